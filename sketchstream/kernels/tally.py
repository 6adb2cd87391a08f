"""Histograms of counters: of releases, before their noise, and of published states, exact.

In: counters. Out: counts per threshold or bin, or (value, count) pairs. Touches: nothing.
Source: docs/theory/privacy.md (half circles of wrapping counters).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream.errors import SpecError
from sketchstream.kernels.compilation import kernel, use_numpy_twin

Counters = npt.NDArray[np.signedinteger[Any]]

_FIRST_TABLE_WIDTH = 1 << 17
"""Counters around 0 that are counted value by value in a first pass."""
_MAX_TABLE_RANGE = 1 << 22
"""Range of counters that `value_counts` counts in a table where many lie far from 0; beyond it sorts."""
_LARGEST_OUTSIDE_PART = 16
"""If more than one counter in 16 lies outside the first table, a table that fits them all is tried."""
_COUNTERS_PER_TWIN_ELEMENT = 16
"""Counters that numpy counts in the time of an element of `use_numpy_twin`."""
_FEWEST_FOR_TWO_THREADS = 1 << 22
"""Counters from which on two threads count a half each: one alone does not draw what the memory gives."""


@kernel
def _tally_one(value: Any, low: Any, row: Ints, edges: Ints, outer: Ints) -> None:
    """Count one counter in its table."""
    place = np.uint64(np.int64(value) - low)
    if place < np.uint64(len(row)):
        row[place] += 1
        return
    # Halving: `first` becomes the number of edges at or below the value.
    first, last = 0, len(edges)
    while first < last:
        middle = (first + last) >> 1
        if edges[middle] <= value:
            first = middle + 1
        else:
            last = middle
    outer[first] += 1


@kernel
def _tally(state: Any, low: Any, table: Ints, edges: Ints, outer: Ints) -> None:
    """Count each value v of low..low+width-1 in column v - low, any other in outer[edges at or below it].

    The table has four rows, summed afterwards, so that equal counters in sequence are independent.
    """
    quarter = len(state) // 4
    width = np.uint64(table.shape[1])
    part0, part1 = state[:quarter], state[quarter : 2 * quarter]
    part2, part3 = state[2 * quarter : 3 * quarter], state[3 * quarter : 4 * quarter]
    rest = state[4 * quarter :]
    row0, row1, row2, row3 = table[0], table[1], table[2], table[3]
    for i in range(quarter):
        a = np.uint64(np.int64(part0[i]) - low)
        b = np.uint64(np.int64(part1[i]) - low)
        c = np.uint64(np.int64(part2[i]) - low)
        d = np.uint64(np.int64(part3[i]) - low)
        # Unsigned: a value below `low` wraps to a number above `width`, so that one comparison has both bounds.
        if a < width and b < width and c < width and d < width:
            row0[a] += 1
            row1[b] += 1
            row2[c] += 1
            row3[d] += 1
        else:
            _tally_one(part0[i], low, row0, edges, outer)
            _tally_one(part1[i], low, row1, edges, outer)
            _tally_one(part2[i], low, row2, edges, outer)
            _tally_one(part3[i], low, row3, edges, outer)
    for i in range(len(rest)):
        _tally_one(rest[i], low, row0, edges, outer)


def _sorted_tally(state: Counters, low: int, width: int, edges: Ints) -> tuple[Ints, Ints]:
    """What `_tally` counts, without compiled loops: the sums of its rows, and the counters outside."""
    place = (state.astype(np.int64) - low).view(np.uint64)
    inside = place < np.uint64(width)
    inner = np.bincount(place[inside].view(np.int64), minlength=width)
    beyond = np.searchsorted(edges, state[~inside], side="right")
    return inner, np.bincount(beyond, minlength=len(edges) + 1)


@kernel
def _outside(state: Any, low: Any, width: Any, out: Any) -> Any:
    """Copy the counters outside low..low+width-1 to `out`; returns how many."""
    number = 0
    for i in range(len(state)):
        if np.uint64(np.int64(state[i]) - low) >= np.uint64(width):
            out[number] = state[i]
            number += 1
    return number


def _count_values(state: Counters, low: int, width: int, edges: Ints) -> tuple[Ints, Ints]:
    """(width,) counters at each value from low on, and (E+1,) others by the edges at or below them."""

    def part(some: Counters) -> tuple[Ints, Ints]:
        table, outer = np.zeros((4, width), np.int64), np.zeros(len(edges) + 1, np.int64)
        arguments = (some, low, table, edges, outer)
        if use_numpy_twin(_tally, lambda: len(some) // _COUNTERS_PER_TWIN_ELEMENT, some.dtype, arguments):
            return _sorted_tally(some, low, width, edges)
        _tally(*arguments)
        return table.sum(axis=0), outer

    if len(state) < _FEWEST_FOR_TWO_THREADS:
        return part(state)
    with ThreadPoolExecutor(1, "sketchstream-tally") as other:
        second = other.submit(part, state[: len(state) // 2])
        inner, outer = part(state[len(state) // 2 :])
        more, beyond = second.result()
    return inner + more, outer + beyond


def _first_table_range(size: int) -> tuple[int, int]:
    """Lowest value and width of the first table for this number of counters."""
    width = min(_FIRST_TABLE_WIDTH, 1 << max(8, size.bit_length()))
    return -(width // 2), width


class _Below:
    """Counts counters below any of the given edges, in one pass over the state."""

    def __init__(self, state: Counters, edges: Ints) -> None:
        self._low, width = _first_table_range(len(state))
        self._edges = np.unique(edges)
        inner, outer = _count_values(state, self._low, width, self._edges)
        self._inner = np.concatenate([[0], np.cumsum(inner)])
        self._outer = np.cumsum(outer)

    def __call__(self, edges: Ints) -> Ints:
        """(B,) number of counters below each edge, one of those given before."""
        place = np.clip(edges, self._low, self._low + len(self._inner) - 1) - self._low
        out: Ints = self._inner[place] + self._outer[np.searchsorted(self._edges, edges)]
        return out


def release_counts(
    state: Counters, edges: Ints, form: Literal["cumulative", "bins"], modulus: int = 0, bits: int = 32
) -> Ints:
    """(B,) histogram of the counters for a release, before its noise: a secret.

    Args:
        state: (slots,) counters.
        edges: (B,) ascending.
        form: "cumulative": value i counts the slots in the half circle [edges[i], edges[i] + 2**(bits-1)) of
            Z_{2**bits}: the sign bit of the wrapped difference is clear. "bins": value i counts the slots with
            edges[i] <= x < edges[i+1], the last one everything above.
        modulus: modulus of the counters (unit "item"), or 0.
        bits: width of the circle, for "cumulative": that of the counters.

    Raises:
        SpecError: "cumulative" counters that are not `bits` wide, or have a modulus.
    """
    flat = np.ascontiguousarray(state).reshape(-1)
    if form == "bins":
        below = _Below(flat, edges)(edges)
        return np.diff(below, append=len(flat))
    if modulus or flat.dtype.itemsize * 8 != bits:
        raise SpecError(f"cumulative counts need counters of {bits} bits without a modulus, found {flat.dtype}")
    half = 1 << (bits - 1)
    opposite = np.array([edge - half if edge >= 0 else edge + half for edge in edges.tolist()], np.int64)
    counter = _Below(flat, np.concatenate([edges, opposite]))
    below, beyond = counter(edges), counter(opposite)
    return np.where(edges >= 0, len(flat) - below + beyond, beyond - below)


def value_counts(state: Counters) -> tuple[Ints, Ints]:
    """(V,) distinct counter values, ascending, and (V,) their numbers of slots, for published states."""
    flat = np.ascontiguousarray(state).reshape(-1)
    if not len(flat):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    nowhere = np.empty(0, np.int64)
    low, width = _first_table_range(len(flat))
    inner, outer = _count_values(flat, low, width, nowhere)
    if outer[0] > len(flat) // _LARGEST_OUTSIDE_PART:
        low, high = int(flat.min()), int(flat.max())
        width = min(high - low + 1, _MAX_TABLE_RANGE, max(1 << 10, 4 * len(flat)))
        if width < high - low + 1:
            low = max(low, min(-(width // 2), high - width + 1))
        inner, outer = _count_values(flat, low, width, nowhere)
    present = np.flatnonzero(inner)
    values, counts = present + low, inner[present]
    if outer[0]:
        far = np.empty(int(outer[0]), flat.dtype)
        _outside(flat, low, width, far)
        far_values, far_counts = np.unique(far, return_counts=True)
        values = np.concatenate([values, far_values.astype(np.int64)])
        counts = np.concatenate([counts, far_counts])
        order = np.argsort(values, kind="stable")
        values, counts = values[order], counts[order]
    return values, counts
