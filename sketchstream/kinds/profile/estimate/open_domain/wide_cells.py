"""Open domains: items with counts in cells wider than one count, with collisions and noise undone together.

In: levels and a law of items. Out: linear estimates of the items in each wide cell and from each edge on, with their
variances. Touches: nothing.
Source: docs/theory/profile.md 6; `docs/theory/reconstruction.md`, section 4.

The recursion of `collisions` needs the law of a slot at every single count. Beyond those the slots at or above each
edge are compared with the number expected under the law of items (`lattice`), and one Newton step is taken: K says how
many more slots are at or above an edge with one more item in a cell, and its inverse undoes noise and collisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kinds.profile.estimate.linear.line import Line
from sketchstream.kinds.profile.estimate.observed import Cells, tally
from sketchstream.kinds.profile.estimate.open_domain.lattice import CountLattice
from sketchstream.kinds.profile.estimate.uncertainty.bands import decreasing
from sketchstream.kinds.pseudo_inverse import pseudo_inverse

SINGLE = 32
"""Count up to which every published cell has a wide cell of its own."""
NARROW, LARGE = 16, 1024
"""Cells above that are at least 1/16 of their count wide; from count 1,024 on, at least 1/8."""
NOISE = 1.0
"""Least width of a cell over the noise of a counter: narrower cells would multiply the noise."""
NODES_PER_COUNT = 32
"""Nodes inside cells are single counts up to count 64; above, each is about 1/32 of its count wide."""


@dataclass(frozen=True)
class Wide:
    """Cells of counts, from 1 up, and nodes inside them.

    Args:
        span: largest count of the recursion.
        edges: (G,) smallest count of each cell; the first is 1, and the last cell has no upper end.
        data: smallest count of each cell whose slots the likelihood reads.
        low: (m,) smallest count of each node; up to `span` nodes are single counts.
        width: (m,) number of counts of each node.
        epsilons: epsilons of the layers of noise.
    """

    span: int
    edges: Ints
    data: Ints
    low: Ints
    width: Ints
    epsilons: tuple[float, ...]

    @cached_property
    def lattice(self) -> CountLattice:
        """The lattice on which laws of counters are computed."""
        return CountLattice(self.low, self.width, self.epsilons, int(self.edges[-1]))

    @cached_property
    def cell(self) -> Ints:
        """(m,) cell of each node."""
        return np.searchsorted(self.edges, self.low, side="right") - 1

    @cached_property
    def first(self) -> int:
        """Index of the first cell beyond the recursion."""
        return int(np.searchsorted(self.edges, self.span + 1))

    @property
    def further(self) -> Ints:
        """(E,) edges above span + 1."""
        return self.edges[self.first + 1 :]


def gather_cells(edges: Ints, cells: Cells) -> tuple[Floats, Floats]:
    """Published slots, and number of published values, of what is below 1 and from each edge to the next. (1+G,)."""
    where = np.searchsorted(edges, cells.low, side="right")
    return tally(where, cells.slots, edges.size + 1), tally(where, np.ones(where.size), edges.size + 1)


def wide_cells_of(line: Line, span: int) -> Wide | None:
    """The cells and nodes of one part; None if nothing shows beyond the counts of the recursion."""
    top = int(line.cells.low[-1])
    if top <= span + 1:
        return None
    published = line.whole.low[line.whole.low >= 1] if line.form != "state" else None
    if published is not None:  # some may have larger counts and not show, and slots hold the sums of two items
        top = int(line.whole.low[min(int(np.searchsorted(line.whole.low, 2 * top)), line.whole.low.size - 1)])
    end = top + max(1, _width(top))
    data = _edges(published, top, (span + 1,), 1)
    reach = int(NOISE * sum(1.0 / epsilon for epsilon in line.epsilons))
    low = np.concatenate(
        [np.arange(first, last, max(1, first // NODES_PER_COUNT)) for first, last in pairwise((*data.tolist(), end))]
    )
    low = np.union1d(np.arange(1, span + 1), low)
    edges = _edges(published, top, (span + 1,), reach)
    edges = edges[np.unique(np.searchsorted(edges, low, side="right") - 1)]  # the cell below `top` may hold no node
    return Wide(span, edges, data, low, np.diff(np.append(low, end)), line.epsilons)


def _width(count: int) -> int:
    """Least width of the cell that begins at a count; 0 up to SINGLE."""
    return 0 if count < SINGLE else count // NARROW if count < LARGE else 2 * count // NARROW


def _edges(published: Ints | None, top: int, kept: Sequence[int], narrow: int) -> Ints:
    """Edges from 1 to `top`, each a published one, at least `narrow` apart; some are kept in any case."""
    edges = [1]
    while edges[-1] < top:
        last = edges[-1]
        least = last + max(1, narrow, _width(last))
        least = min([least, *(one for one in kept if one > last)])
        if published is not None:
            at = int(np.searchsorted(published, least))
            least = int(published[at]) if at < published.size else top
        edges.append(min(least, top))
    return np.array(edges, dtype=np.int64)


@dataclass(frozen=True)
class Heavy:
    """The law of counts beyond the recursion.

    Args:
        wide: cells and nodes.
        share: (h,) shares of the heavy items at the nodes above the recursion; they sum to 1.
    """

    wide: Wide
    share: Floats

    @property
    def nodes(self) -> slice:
        """The nodes above the recursion."""
        return slice(self.wide.span, None)

    @property
    def counts(self) -> Floats:
        """(h,) middle count of each node."""
        wide = self.wide
        return np.asarray(wide.low[self.nodes] + (wide.width[self.nodes] - 1) / 2.0)

    @cached_property
    def cells(self) -> Floats:
        """(E + 1,) shares of the heavy items in each wide cell."""
        wide = self.wide
        return tally(wide.cell[self.nodes] - wide.first, self.share, wide.edges.size - wide.first)

    @property
    def tails(self) -> Floats:
        """(E + 1,) shares of the heavy items from span + 1 and from each further edge on."""
        return np.asarray(np.cumsum(self.cells[::-1])[::-1])

    def moved(self, cells: Floats) -> Heavy:
        """The law with other items in each wide cell, (E + 1,), in the same shape inside."""
        if not cells.sum() > 0.0:
            return self
        have = self.cells
        even = uniform_law(self.wide, cells).share
        cell = self.wide.cell[self.nodes] - self.wide.first
        shape = self.share / np.maximum(have, 1e-300)[cell]
        return Heavy(self.wide, np.where(have[cell] > 0.0, shape * (cells / cells.sum())[cell], even))


@dataclass(frozen=True)
class LevelEstimates:
    """Linear estimates of one level beyond the recursion.

    Args:
        cell: (3, E) items of each cell but the last; their variances; their covariances with the number of items.
        tail: (3, E) the same of the items from each further edge on.
    """

    cell: Floats
    tail: Floats


def estimates(line: Line, m: float, share: float, intensity: Floats, beyond: float, heavy: Heavy) -> LevelEstimates:
    """Estimates of one level, linearised at a law of items, with their errors under it.

    Args:
        line: estimator of the level.
        m: number of its slots.
        share: expected share of the items in it.
        intensity: (S+1,) items at each count of the recursion.
        beyond: number of items above.
        heavy: law of the counts above.
    """
    wide = heavy.wide
    items = np.concatenate([intensity[1 : wide.span + 1], beyond * heavy.share])
    law = wide.lattice.law(items * (share / m), float(items.sum()) * share / m)
    above = law.at_least(wide.edges)
    moved = _by_cell(wide, law.with_one_more(wide.edges), items) - above[:, None]
    try:
        rows = np.linalg.inv(moved)
    except np.linalg.LinAlgError:  # more noise than floating point can undo
        rows = pseudo_inverse(moved)
    rows = np.concatenate([rows, np.cumsum(rows[::-1], axis=0)[::-1]])
    known = tally(wide.cell, items, wide.edges.size)
    known = np.concatenate([known, np.cumsum(known[::-1])[::-1]]) * share
    # coefficients of the slots below 1 and of each cell
    c = np.concatenate([np.zeros((rows.shape[0], 1)), np.cumsum(rows, axis=1)], axis=1)
    expected = m * -np.diff(above, prepend=1.0, append=0.0)
    seen, copies = gather_cells(wide.edges, line.whole)
    every = rows.shape[0] // 2  # all items: from the first edge on
    if line.form == "bins":
        c = c - (c @ copies / copies.sum())[:, None]
        noise, noise_all = line.v * (c**2 @ copies), line.v * (c @ (copies * c[every]))
    elif line.form == "cumulative":
        noise, noise_all = line.v * (rows**2).sum(axis=1), line.v * (rows @ rows[every])
    else:
        noise = noise_all = np.zeros(rows.shape[0])
    value = known + c @ (seen - expected)
    mean = c @ expected
    variance = c**2 @ expected - mean**2 / m - known + noise
    joint = c @ (expected * c[every]) - mean * mean[every] / m - known + noise_all
    found = np.stack([value, np.maximum(variance, 0.0), joint])
    return LevelEstimates(found[:, wide.first : every - 1], found[:, every + wide.first + 1 :])


def _by_cell(wide: Wide, chances: Floats, items: Floats) -> Floats:
    """Chances with one more item of each cell, from those of each node. (B, m) -> (B, G).

    Inside a cell items are at its nodes as the law of items says, evenly where it has none.
    """
    first = np.flatnonzero(np.diff(wide.cell, prepend=-1))
    whole, even = np.add.reduceat(items, first), np.add.reduceat(wide.width, first)
    weight = np.where(whole > 0.0, 1.0 / np.maximum(whole, 1e-300), 0.0)[wide.cell] * items
    weight = np.where((whole > 0.0)[wide.cell], weight, wide.width / even[wide.cell])
    return np.asarray(np.add.reduceat(chances * weight, first, axis=1))


def uniform_law(wide: Wide, cells: Floats) -> Heavy:
    """The law with these numbers of items in the cells beyond the recursion, spread evenly inside them. (E+1,)."""
    nodes = slice(wide.span, None)
    cell, width = wide.cell[nodes] - wide.first, wide.width[nodes]
    cells = cells / cells.sum() if cells.sum() > 0.0 else np.append(1.0, np.zeros(cells.size - 1))
    return Heavy(wide, cells[cell] * width / tally(cell, width)[cell])


def initial_law(wide: Wide, lines: Sequence[Line]) -> Heavy:
    """A first law, from the published slots of levels as they are."""
    slots = np.sum([gather_cells(wide.edges, line.whole)[0] for line in lines], axis=0)[wide.first + 1 :]
    tails = np.maximum(decreasing(np.cumsum(slots[::-1])[::-1]), 0.0)
    return uniform_law(wide, -np.diff(tails, append=0.0))
