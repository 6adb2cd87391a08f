"""Updates of the state of a workload: weights times columns of the strategy are added.

In: a state, cells of events, weights. Out: the state, changed in place. Touches: nothing.

Every event adds a whole column. A batch of at least N events is first added up by cell, and the strategy is applied to
the sums; the sums are erased. Which way is taken depends on the number of events only. Nothing branches on a value of
the state, or on a sum. Additions and products wrap modulo 2^64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream.kernels import kernel
from sketchstream.kinds.linear.events import ONES, add_up

SPARSE: Final = 4
"""Columns are kept as lists of entries where at most one entry in 4 is not 0."""


@dataclass(frozen=True, eq=False)
class StrategyColumns:
    """The columns of a strategy, laid out for updates.

    Args:
        dense: (N, m) the columns, one after the other; empty if they are sparse.
        ends: (N,) one past the last entry of each column that is not 0.
        starts: (N + 1,) start of the entries of each column; empty if they are dense.
    """

    length: int
    size: int
    dense: Ints
    ends: Ints
    starts: Ints
    places: npt.NDArray[np.int32]
    values: Ints

    @classmethod
    def of(cls, matrix: Ints) -> StrategyColumns:
        """The columns of a strategy's matrix, (m, N)."""
        length, size = matrix.shape
        turned = np.ascontiguousarray(matrix.T)
        filled = turned != 0
        none = np.zeros(0, np.int64)
        if int(filled.sum()) * SPARSE <= turned.size:
            cells, places = np.nonzero(filled)
            starts = np.concatenate([[0], np.cumsum(filled.sum(axis=1))]).astype(np.int64)
            empty = np.zeros((0, 0), np.int64)
            return cls(length, size, empty, none, starts, places.astype(np.int32), turned[cells, places])
        ends = length - np.argmax(filled[:, ::-1], axis=1)
        ends[~filled.any(axis=1)] = 0
        return cls(length, size, turned, ends.astype(np.int64), none, np.zeros(0, np.int32), none)

    def add(self, state: Ints, cells: Ints, weights: Ints | None = None) -> None:
        """Add a batch of events to a contiguous (m,) state, in place; events outside of the cells do nothing."""
        amounts = ONES if weights is None else weights
        if len(cells) >= self.size:
            sums = np.zeros(self.size, np.int64)
            add_up(sums, cells, amounts)
            if self.starts.size:
                _add_sparse_all(state, sums, self.starts, self.places, self.values)
            else:
                _add_dense(state, np.arange(self.size), sums, self.dense, self.ends)
            sums[:] = 0
        elif self.starts.size:
            _add_sparse(state, cells, amounts, self.starts, self.places, self.values)
        else:
            _add_dense(state, cells, amounts, self.dense, self.ends)


@kernel
def _add_column(state: Any, place: Any, weight: Any, columns: Any, ends: Any) -> None:
    """Add one event's column times its weight; a cell outside does nothing."""
    cell = np.uint64(place)
    if cell < np.uint64(columns.shape[0]):
        for k in range(ends[cell]):
            state[k] += columns[cell, k] * weight


@kernel
def _add_dense(state: Any, cells: Any, weights: Any, columns: Any, ends: Any) -> None:
    """Add each event's column times its weight; four events at a time, so that the state is read once for all."""
    size = np.uint64(columns.shape[0])
    many = len(weights) > 0
    n = len(cells)
    whole = n - n % 4
    for i in range(0, whole, 4):
        a, b, c, d = np.uint64(cells[i]), np.uint64(cells[i + 1]), np.uint64(cells[i + 2]), np.uint64(cells[i + 3])
        if a < size and b < size and c < size and d < size:
            last = max(ends[a], ends[b], ends[c], ends[d])
            wa = weights[i] if many else np.int64(1)
            wb = weights[i + 1] if many else np.int64(1)
            wc = weights[i + 2] if many else np.int64(1)
            wd = weights[i + 3] if many else np.int64(1)
            for k in range(last):  # no views of columns: counting their references would take longer than adding them
                state[k] += (columns[a, k] * wa + columns[b, k] * wb) + (columns[c, k] * wc + columns[d, k] * wd)
        else:
            for j in range(i, i + 4):
                _add_column(state, cells[j], weights[j] if many else np.int64(1), columns, ends)
    for j in range(whole, n):
        _add_column(state, cells[j], weights[j] if many else np.int64(1), columns, ends)


@kernel
def _add_sparse(state: Any, cells: Any, weights: Any, starts: Any, places: Any, values: Any) -> None:
    """Add each event's entries times its weight."""
    size = np.uint64(len(starts) - 1)
    many = len(weights) > 0
    for i in range(len(cells)):
        cell = np.uint64(cells[i])
        if cell < size:
            w = weights[i] if many else np.int64(1)
            for k in range(starts[cell], starts[cell + np.uint64(1)]):
                state[places[k]] += values[k] * w


@kernel
def _add_sparse_all(state: Any, sums: Any, starts: Any, places: Any, values: Any) -> None:
    """Add every cell's entries times its sum."""
    for j in range(len(sums)):
        for k in range(starts[j], starts[j + 1]):
            state[places[k]] += values[k] * sums[j]
