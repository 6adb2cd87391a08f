"""The nodes on which a profile is fitted, and the cells in which the counters are published.

In: cells of one level, epsilon. Out: a frozen `Grid`: unit cells at small counts, wider ones in the tail.
Touches: nothing. Source: docs/theory/profile.md 7.1; `docs/theory/reconstruction.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kinds.profile.estimate.observed import UNBOUNDED, Cells, tally

EXACT = 512
"""Up to here every count has a node of its own."""
SPIKE_NODES = 1500
"""Further nodes, at most, that go to spikes."""


@dataclass(frozen=True)
class Grid:
    """Cells of counters and their counts.

    Cell 0 holds every counter <= 0 and the count 0, the last one everything from low[-1] up.

    Args:
        low: (m,) int64, smallest count of each cell; low[0] = 0.
        width: (m,) int64, number of counts in each cell.
        h: (m,) float64, published slots of each cell.
        parts: (m,) int64, the published cell of each node; by default each node has its own.
    """

    low: Ints
    width: Ints
    h: Floats
    parts: Ints | None = None

    @property
    def nodes(self) -> Floats:
        """(m,) middle count of each cell."""
        return self.low + (self.width - 1) / 2.0

    @property
    def cell(self) -> Ints:
        """(m,) published cell of each node."""
        return np.arange(self.low.size) if self.parts is None else self.parts

    @property
    def first(self) -> Ints:
        """(B,) first node of each published cell."""
        return np.flatnonzero(np.diff(self.cell, prepend=-1))

    def gathered(self, f: Floats, n: int) -> Floats:
        """Move the share of each cell to one of its nodes: n if it is among them, else their mean."""
        if self.parts is None:
            return f
        first, whole = self.first, np.maximum(np.add.reduceat(f, self.first), 1e-300)
        inside = np.arange(self.low.size) - first[self.cell]
        place = first + np.rint(np.add.reduceat(f * inside, first) / whole).astype(np.int64)
        top = int(np.searchsorted(self.low, n))
        if top < self.low.size and self.low[top] == n:
            place[self.cell[top]] = top
        out = np.zeros(self.low.size)
        out[place] = whole
        return out


def of_release(cells: Cells) -> Grid:
    """Build the cells of a release, those <= 0 pooled."""
    first = int(np.searchsorted(cells.low, 1))
    low = np.concatenate([[0], cells.low[first:]])
    high = np.concatenate([[0], np.where(cells.high[first:] >= UNBOUNDED, cells.low[first:], cells.high[first:])])
    h = np.concatenate([[cells.slots[:first].sum()], cells.slots[first:]])
    return Grid(low, high - low + 1, h)


def refine(grid: Grid, n: int) -> Grid:
    """Build nodes finer than wide published cells, with one node for n alone.

    A wide cell becomes unit nodes up to EXACT, above that nodes of a 64th of their count.
    """
    low: list[int] = []
    parts: list[int] = []
    for i, (start, width) in enumerate(zip(grid.low.tolist(), grid.width.tolist(), strict=True)):
        cuts = set(range(start, start + width, max(1, start // 64 if start > EXACT else 1)))
        cuts |= {one for one in (n, n + 1) if start < one < start + width}
        low += sorted(cuts)
        parts += [i] * len(cuts)
    every = np.array(low, dtype=np.int64)
    width = np.diff(np.append(every, grid.low[-1] + grid.width[-1]))
    return Grid(every, width, np.zeros(every.size), np.array(parts, dtype=np.int64))


def of_state(cells: Cells, epsilon: float) -> Grid:
    """Cells for the exact histogram of a state: unit up to EXACT, then with widths by the number of slots.

    A cell closes when it holds max(16, d/4096) slots or is 1/128 of its count wide; where a block of width
    1/epsilon is far denser than its surroundings (a spike), cells stay fine within reach of its noise.
    """
    value = np.maximum(cells.low, 0)
    slots = cells.slots
    top = int(value[-1])
    near = tally(value[value <= EXACT], slots[value <= EXACT], min(top, EXACT) + 1)
    if top <= EXACT:
        low = np.arange(top + 1)
        return Grid(low, np.ones(top + 1, dtype=np.int64), near)
    far = value > EXACT
    x, g = value[far], slots[far]
    fine = _spikes(x, g, epsilon)
    full = max(16.0, cells.d / 4096.0)
    starts = [EXACT + 1]
    below = 0.0
    narrow = min(max(1, sum(end - start for start, end in fine) // SPIKE_NODES), max(1, int(0.5 / epsilon)))
    share = 128
    position = 0
    while starts[-1] <= top:
        start = starts[-1]
        inside, until = _in_ranges(fine, start)
        most = narrow if inside else max(1, start // share)
        end = min(start + most, until if not inside else start + most, top + 1)
        stop = int(np.searchsorted(x, end))
        if not inside and stop > position:
            below = np.cumsum(g[position:stop])[-1]
            if below >= full:
                cut = position + int(np.searchsorted(np.cumsum(g[position:stop]), full))
                end = min(end, int(x[cut]) + 1)
                stop = int(np.searchsorted(x, end))
        position = stop
        starts.append(max(end, start + 1))
    low = np.array(starts[:-1])
    width = np.diff(np.append(low, top + 1))
    h = tally(np.searchsorted(low, x, side="right") - 1, g, low.size)
    return Grid(
        np.concatenate([np.arange(EXACT + 1), low]),
        np.concatenate([np.ones(EXACT + 1, dtype=np.int64), width]),
        np.concatenate([near, h]),
    )


def _spikes(x: Ints, g: Floats, epsilon: float) -> list[tuple[int, int]]:
    """Ranges around counts where a block of width 1/epsilon is over 8 times as dense as [15/16, 17/16] of it."""
    width = max(1, math.ceil(1.0 / epsilon))
    block = x // width
    names, inverse = np.unique(block, return_inverse=True)
    mass = tally(inverse, g)
    total = np.concatenate([[0.0], np.cumsum(g)])
    ranges: list[tuple[int, int]] = []
    for name, here in zip(names[mass >= 64], mass[mass >= 64], strict=True):
        middle = name * width + width // 2
        low, high = middle * 15 // 16, middle * 17 // 16
        around = total[np.searchsorted(x, high, side="right")] - total[np.searchsorted(x, low)]
        if here / width > 8.0 * max(around - here, 0.0) / max(high - low - width, 1):
            reach = math.ceil(1.5 * math.log(here + 2.0) / epsilon) + 2
            start, end = int(name * width - reach), int((name + 1) * width + reach)
            if ranges and start <= ranges[-1][1]:
                ranges[-1] = (ranges[-1][0], max(end, ranges[-1][1]))
            else:
                ranges.append((start, end))
    return ranges


def _in_ranges(ranges: list[tuple[int, int]], position: int) -> tuple[bool, int]:
    """Whether a position is in a range, and the start of the next range."""
    for start, end in ranges:
        if start <= position < end:
            return True, end
        if start > position:
            return False, start
    return False, UNBOUNDED
