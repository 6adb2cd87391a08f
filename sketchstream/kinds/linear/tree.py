"""Trees of blocks over ordered cells: noise on sums of blocks of several widths, and least squares.

In: the number of cells, how the answers weigh blocks. Out: widths and weights of the levels; states, estimates of the
cells and variances, without a matrix. Touches: nothing but the states it is given.
Source: Hay, Rastogi, Miklau & Suciu 2010 (trees, least squares); Li, Miklau, Hay, McGregor & Rastogi 2015 (weights of
levels); docs/theory/workload.md, section 5 (closed forms).

Every width divides the next one and the padded number of cells. The projections P_l on vectors that are constant on the
blocks of level l are then nested, and with eigenvalues e_l = w_0^2 v_0 + ... + w_l^2 v_l for weights w and widths v

    (C'C)^-1 = sum over l of (1/e_l - 1/e_(l-1)) P_l .
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import SpecError
from sketchstream.kernels import kernel

Levels = tuple[tuple[int, int], ...]

WHOLE: Final = 256
"""Sum of the whole weights of a tree's levels, where the search asks for fine ones."""
SMALL_SUMS: Final = (2, 3, 4, 5, 6, 8, 12)
"""Smaller sums that the search tries besides `WHOLE`."""
BRANCHINGS: Final = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
"""Blocks of one level in a block of the next that are tried."""
TREES_KEPT: Final = 4
"""Trees that are tried with one level more."""
MAX_LEVELS: Final = 64
"""Most levels: each is at least twice as wide as the one before, so no number of cells needs more."""
MIN_GAIN: Final = 0.999
"""A level is added where it lowers the variance by a thousandth."""


def checked_levels(levels: object) -> Levels:
    """The levels of a tree, as plain data has them."""
    pairs = levels if isinstance(levels, (list, tuple)) else ()
    good = [isinstance(pair, (list, tuple)) and [type(number) for number in pair] == [int, int] for pair in pairs]
    if not pairs or not all(good):
        raise SpecError("levels must be pairs of whole numbers: the positions of a block, and the weight of its level")
    return tuple((width, weight) for width, weight in pairs)


def tree_matrix(size: int, levels: Levels, padded: int) -> Ints:
    """(m, N) for each level its weight times the indicators of its blocks, of cells up to `padded`."""
    cells = np.arange(size)
    parts = [weight * (cells // width == np.arange(-(-padded // width))[:, None]) for width, weight in levels]
    return np.concatenate(parts).astype(np.int64)


@dataclass(frozen=True)
class BlockTree:
    """Sums of blocks, each times the weight of its level.

    Args:
        size: cells that can hold weight.
        levels: (cells of a block, weight) of each level; the first has blocks of one cell.
    """

    size: int
    levels: Levels

    def __post_init__(self) -> None:
        before = 0
        for width, weight in self.levels:
            if (before == 0 and width != 1) or (before and (width <= before or width % before)) or weight < 1:
                break
            before = width
        else:
            few = 0 < len(self.levels) <= MAX_LEVELS and self.sensitivity1 <= 1 << 20
            if few and before < 2 * self.size:
                return
        raise SpecError(
            "levels of a tree need widths 1, ... that divide one another, below twice the cells, and weights above 0"
        )

    @property
    def cells(self) -> int:
        """Number of cells, padding included."""
        top = self.levels[-1][0]
        return -(-self.size // top) * top

    @property
    def sensitivity1(self) -> int:
        """L1 sensitivity to one unit in one cell."""
        return sum(weight for _, weight in self.levels)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Place of each level's first word, and one past the last."""
        ends = np.cumsum([self.cells // width for width, _ in self.levels]).tolist()
        return (0, *ends)

    @property
    def words(self) -> int:
        """Words of a state."""
        return self.starts[-1]

    @cached_property
    def eigenvalues(self) -> Floats:
        """(levels,) of C'C on vectors that are constant on the level's blocks and sum to 0 in each of the next."""
        return np.cumsum([float(weight) ** 2 * width for width, weight in self.levels])

    @cached_property
    def shares(self) -> Floats:
        """(levels,) factor of each projection in (C'C)^-1."""
        inverse = 1 / self.eigenvalues
        return np.asarray(np.diff(inverse, prepend=0.0))

    @cached_property
    def _tables(self) -> tuple[Ints, Ints, Ints]:
        """Widths, weights and first words of the levels."""
        widths, weights = np.array(self.levels, np.int64).T
        return np.ascontiguousarray(widths), np.ascontiguousarray(weights), np.array(self.starts[:-1], np.int64)

    def add(self, state: Ints, cells: Ints, weights: Ints) -> None:
        """Add weights of cells, all of which there are, to a state in place; sums wrap."""
        _add_blocks(state, cells, weights, *self._tables)

    def solve(self, state: Ints) -> Floats:
        """(size,) float64, the least squares estimates of the cells."""
        turned, out = self.back(state), np.zeros(self.cells)
        for (width, _), share in zip(self.levels, self.shares.tolist(), strict=True):
            out += np.repeat(turned.reshape(-1, width).sum(axis=1) * (share / width), width)
        return out[: self.size]

    def back(self, state: Ints) -> Floats:
        """(cells,) float64, C' times a state: sums of each cell's words, times the weights of their levels."""
        out = np.zeros(self.cells)
        for (width, weight), start, stop in zip(self.levels, self.starts, self.starts[1:], strict=False):
            out += np.repeat(state[start:stop] * float(weight), width)
        return out

    def gram_times(self, table: Floats) -> Floats:
        """(size,) float64, C'C times a table."""
        out, full = np.zeros(self.cells), np.pad(table, (0, self.cells - self.size))
        for width, weight in self.levels:
            out.reshape(-1, width)[:] += float(weight) ** 2 * full.reshape(-1, width).sum(axis=1, keepdims=True)
        return out[: self.size]

    def variances(self, energies: Sequence[Floats]) -> Floats:
        """Variances of answers for noise of variance 1 in each word.

        Args:
            energies: sum of the squares of the answers' coefficients, each summed over a block, by level.
        """
        parts = [
            energy * (share / width)
            for energy, (width, _), share in zip(energies, self.levels, self.shares.tolist(), strict=True)
        ]
        return np.asarray(np.sum(parts, axis=0))

    def coefficients(self, rows: Floats) -> Floats:
        """(n, words) coefficients in the words of a state of answers with (n, size) coefficients in the cells."""
        full = np.zeros((len(rows), self.cells))
        full[:, : self.size] = rows
        inverse = np.zeros_like(full)
        for (width, _), share in zip(self.levels, self.shares.tolist(), strict=True):
            inverse += np.repeat(full.reshape(len(rows), -1, width).sum(axis=2) * (share / width), width, axis=1)
        parts = [inverse.reshape(len(rows), -1, width).sum(axis=2) * weight for width, weight in self.levels]
        return np.concatenate(parts, axis=1)


@kernel
def _add_blocks(state: Any, cells: Any, amounts: Any, widths: Any, weights: Any, starts: Any) -> None:
    """Add each weight to the blocks that hold its cell."""
    for i in range(len(cells)):
        for level in range(len(widths)):
            state[starts[level] + cells[i] // widths[level]] += amounts[i] * weights[level]


def best_levels(size: int, energy: Callable[[int], float], noise: Callable[[int], float]) -> Levels:
    """The levels of the tree whose answers have the smallest variance; a single level if more do not help.

    Args:
        energy: sum over answers and blocks of the squares of the coefficients' sums in the block, by their width.
        noise: variance of a word's noise, by its L1 sensitivity. Small noise on the integers has a smaller
            variance than one in proportion to the square of the sensitivity, so that small weights are tried too.
    """
    energy_of = lru_cache(maxsize=None)(energy)

    def evaluate(widths: tuple[int, ...], total: int = WHOLE) -> tuple[float, Levels]:
        variance, levels = _best_weights(widths, np.array([energy_of(width) / width for width in widths]), total)
        return variance * noise(sum(weight for _, weight in levels)), levels

    best = evaluate((1,), 1)
    beam: list[tuple[int, ...]] = [(1,)]
    while True:
        longer = {
            (*widths, widths[-1] * step)
            for widths in beam
            for step in BRANCHINGS
            if -(-size // (widths[-1] * step)) * widths[-1] * step <= size + size // 4
        }
        tried = sorted((*evaluate(widths), widths) for widths in longer)[:TREES_KEPT]
        tried = [min((*evaluate(widths, total), widths) for total in (*SMALL_SUMS, WHOLE)) for _, _, widths in tried]
        if not tried or min(tried)[0] > best[0] * MIN_GAIN:
            return best[1]
        best = min(tried)[:2]
        beam = [widths for _, _, widths in tried]


def _best_weights(widths: tuple[int, ...], traces: Floats, total: int) -> tuple[float, Levels]:
    """The variance for noise of variance 1 and the levels with the best integer weights, by exchange of ever less.

    Args:
        traces: (levels,) trace of the answers' Gram matrix on each level's projection.
    """
    details = np.maximum(traces - np.append(traces[1:], 0.0), 0.0)
    scale = np.array(widths, np.float64)
    count = len(widths)
    weights = np.full(count, total // count)
    weights[0] += total - int(weights.sum())
    unit = np.eye(count, dtype=np.int64)
    moves = (unit[:, None] - unit).reshape(-1, count)

    def variance(tried: npt.NDArray[Any]) -> Floats:
        return np.asarray((details / np.cumsum(tried.astype(np.float64) ** 2 * scale, axis=1)).sum(axis=1))

    least = float(variance(weights[None])[0])
    step = max(1, total // 4)
    while step:
        near = weights + step * moves
        near = near[(near.min(axis=1) >= 0) & (near[:, 0] > 0)]
        errors = variance(near)
        place = int(np.argmin(errors))
        if errors[place] < least * (1 - 1e-12):
            least, weights = float(errors[place]), near[place]
        else:
            step //= 2
    levels = tuple((width, int(weight)) for width, weight in zip(widths, weights.tolist(), strict=True) if weight)
    return least, levels
