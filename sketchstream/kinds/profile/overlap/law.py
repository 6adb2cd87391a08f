"""What is expected of published patterns of groups, given numbers of items by region, and how well that agrees.

In: published histograms of patterns (`Patterns`). Out: a `PatternLaw`, a `Scoring`. Touches: nothing.
Source: docs/theory/overlap.md, section 3 (McCullagh & Nelder 1989, quasi-likelihood).

A region is the set of items that are in exactly these groups. Items fall into slots at random, so that a slot is empty
in the groups S with probability exp(-share * reach(S) / slots) in an open domain; in a closed one slots are items. What
noise and chance do to patterns is a Kronecker product over the groups, so that no matrix is made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.overlap.channel import MEETING, MISSING, Channel, Kronecker
from sketchstream.kinds.profile.overlap.wraps import Wraps

Numbers = Any
"""A float, or an array."""


@dataclass(frozen=True, eq=False)
class Patterns:
    """What was published with equal noise, parts added up.

    Args:
        cells: (levels, 2^m) published numbers of slots by pattern.
        shares: (levels,) shares of the items that the levels receive.
        slots: slots of each level, in all parts.
        noise: variance of the published noise of a cell.
        channel: what the layers did to each counter.
        is_open: whether several items may share a slot.
        wraps: what counts of several events that add up to 0 hide.
        wrapped: share of crowded slots whose counts add up to 0.
    """

    cells: Floats
    shares: Floats
    slots: float
    noise: float
    channel: Channel
    is_open: bool
    wraps: Wraps | None = None
    wrapped: float = 0.0

    @property
    def groups(self) -> int:
        """Number of groups, m."""
        return int(self.cells.shape[-1]).bit_length() - 1

    def occupied(self, group: int) -> Floats:
        """(levels,) published numbers of slots whose counter of a group is not 0."""
        slots: Floats = self.cells.reshape(len(self.cells), 2**group, 2, -1)[:, :, 1].sum(axis=(1, 2))
        return slots

    def counters(self, empty: Numbers) -> tuple[Numbers, Numbers]:
        """Expected numbers of slots whose counter of one group is not 0, and their variances.

        Args:
            empty: share of the slots in which that counter is 0 without noise.
        """
        seen = self.channel.full - (self.channel.full - self.channel.empty) * empty
        return self.slots * seen, self.slots * seen * (1 - seen) + self.noise * 2.0 ** (self.groups - 1)


class PatternLaw:
    """Expected cells, given numbers of items by region, and what they do if these change.

    Args:
        table: the table, whose cells are not read.

    Attributes:
        rate: (levels,) items a slot of a level, for each item that there is.
        noise: what noise does to the shares of slots by true pattern.
        denoised: its inverse.
        to_patterns: from Pr[a slot is empty in S], by S, to the shares of slots by published pattern.
        absent: from numbers of items by region to the number of items that are in no group of S, by S.
        to_absent: the same without items that hide as their counts add up to 0.
        transposed: the transposes of `to_patterns` and `to_absent`.
        joint_noise: (2^m,) shares of slots by pattern that noise alone determines.
    """

    def __init__(self, table: Patterns) -> None:
        groups = table.groups
        self.table, self.rate = table, table.shares / table.slots
        self.noise = Kronecker(table.channel.one, groups)
        self.to_patterns = Kronecker(table.channel.one @ MEETING, groups)
        missing = Kronecker(MISSING, groups)
        self.to_absent = missing if table.wraps is None else missing @ Kronecker(table.wraps.visible, groups)
        self.transposed = self.to_patterns.transposed, self.to_absent.transposed
        self.denoised = self.noise.inverse
        self.denoised_transposed = self.denoised.transposed
        self.absent = missing
        self.joint_noise = (1 - table.channel.kept) * table.channel.drawn(groups)

    def filled(self, regions: Floats) -> Floats:
        """(levels, 2^m) items a slot in some group of S."""
        return self.rate[:, None] * -self.absent(balance_regions(regions))

    def empty(self, regions: Floats) -> tuple[Floats, Floats]:
        """(levels, 2^m) Pr[a slot is empty in S], and by how many slots that number falls for each item more in S."""
        loads = self.filled(regions)
        if not self.table.is_open:
            return 1 - loads, np.broadcast_to(self.table.shares[:, None], loads.shape)
        empty = np.exp(-loads)
        if self.table.wraps is not None:
            empty = empty * self.table.wraps.factors(loads)
        return empty, self.table.shares[:, None] * empty

    def expected(self, empty: Floats) -> Floats:
        """(levels, 2^m) shares of slots by seen pattern, from Pr[empty in S]."""
        return self.table.channel.kept * self.to_patterns(empty) + self.joint_noise


class Scoring:
    """Quasi-likelihood of numbers near others that are not negative, whose variances are those of the cells.

    Args:
        law: law of the cells.
        regions: (2^m - 1,) the numbers near which it is taken.

    Attributes:
        expected: (levels, 2^m) expected shares of slots by published pattern.
        emptied: (levels, 2^m) by how many slots the number of those that are empty in S falls with an item more in S.
        variances: (levels, 2^m) variance of each cell, as if cells were independent.
        weights: (levels, 2^m) expected shares over these variances; with `common`, what correlates the cells.
        residuals: (levels, 2^m) published cells less the expected ones.
        score: (2^m - 1,) gradient of the quasi-likelihood.
    """

    def __init__(self, law: PatternLaw, regions: Floats) -> None:
        self.law, self.regions = law, regions
        self.empty, emptied = law.empty(regions)
        contraction, table = law.table.channel.kept, law.table
        self.expected = law.expected(self.empty)
        likely = np.maximum(self.expected, 0.0)
        likely /= likely.sum(axis=-1, keepdims=True)
        self.emptied = contraction * emptied
        self.variances = table.slots * likely + table.noise
        self.weights = likely / self.variances
        self.common = table.slots / (1 - table.slots * (likely * self.weights).sum(axis=-1, keepdims=True))
        self.precision = ((contraction * table.shares[:, None]) ** 2 / self.variances).sum(axis=0)
        self.residuals = table.cells - table.slots * self.expected
        self.score = self.gradient(self.residuals)

    def weighted(self, cells: Floats) -> Floats:
        """(levels, 2^m) the inverse covariance of the cells times these: slots are independent and of one law."""
        common: Floats = self.common * (self.weights * cells).sum(axis=-1, keepdims=True)
        return np.asarray(cells / self.variances + self.weights * common, np.float64)

    def gradient(self, cells: Floats) -> Floats:
        """(2^m - 1,) how much likelier these differences of cells are with one item more in a region."""
        from_patterns, from_absent = self.law.transposed
        back = from_absent((self.emptied * from_patterns(self.weighted(cells))).sum(axis=0))
        return np.asarray(back[1:] - back[0], np.float64)

    def slope(self, regions: Floats) -> Floats:
        """(levels, 2^m) what more items by region add to the cells."""
        return self.law.to_patterns(self.emptied * self.law.to_absent(balance_regions(regions)))

    def information(self, regions: Floats) -> Floats:
        """(2^m - 1,) the product of the information and these numbers."""
        return self.gradient(self.slope(regions))

    def approximate_inverse(self, regions: Floats) -> Floats:
        """(2^m - 1,) an approximate inverse of the information times these: exact for empty slots."""
        balanced_back = self.law.denoised_transposed(np.concatenate([[0.0], regions])) / self.precision
        balanced: Floats = self.law.denoised(balanced_back)[1:]
        return balanced

    def misfit(self, moved: Floats) -> float:
        """Half of the squared length of the differences to the published cells, in standard errors.

        Args:
            moved: (2^m - 1,) more items by region.
        """
        table, law = self.law.table, self.law
        emptied = law.rate[:, None] * law.to_absent(balance_regions(moved))
        empty = self.empty * np.exp(emptied) if table.is_open else self.empty + emptied
        rest = table.cells - table.slots * law.expected(empty)
        return float((rest * self.weighted(rest)).sum()) / 2


def balance_regions(regions: Floats) -> Floats:
    """(2^m,) these numbers, after that of items in no group, which falls by their sum."""
    return np.concatenate([[-regions.sum()], regions])


def expected_cells(table: Patterns, regions: Floats) -> Patterns:
    """The table with the numbers of slots that are expected in place of the published ones.

    Args:
        table: the table, whose cells are not read.
        regions: (2^m - 1,) numbers of items.
    """
    law = PatternLaw(table)
    return replace(table, cells=table.slots * law.expected(law.empty(regions)[0]))
