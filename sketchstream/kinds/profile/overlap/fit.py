"""Numbers of items in all regions of several groups together, by quasi-likelihood, with their covariance.

In: published histograms of patterns (`Table`). Out: a `Fit`. Touches: nothing.
Source: docs/theory/overlap.md, section 3 (McCullagh & Nelder 1989, quasi-likelihood; Lawson & Hanson 1974, least
squares with bounds).

A region is the set of items that are in exactly these groups. Items fall into slots at random, so that a slot is empty
in the groups S with probability exp(-share * reach(S) / slots) in an open domain; in a closed one slots are items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.overlap.channel import MEETING, Channel, kronecker, meets, reaches
from sketchstream.kinds.profile.overlap.wraps import Wraps

Floats = npt.NDArray[np.float64]
FULL = (
    "nothing tells the groups' items apart: every level of this sketch is full, or its noise hides them; use more "
    "slots or levels, or a larger epsilon"
)
LEAST_EMPTY = 1e-4
"""Share of empty slots below which in all levels nothing is told of how many items there are."""
ROUNDS = 60
"""Scoring steps at most; some ten are taken."""
BACKWARDS = 8
"""Times that a fit goes back to a quarter of its numbers because nothing can be told from them."""
NEAR = 1e-10
"""A step is the last one if it is shorter than the root of this, in standard errors."""


@dataclass(frozen=True, eq=False)
class Table:
    """One level of what was published with equal noise, parts added up.

    Args:
        cells: (2^m,) published numbers of slots by pattern.
        slots: of the level, in all parts.
        share: of the items that the level receives.
        noise: variance of the published noise of a cell.
        channel: what the layers did to each counter.
        is_open: whether several items may share a slot.
    """

    cells: Floats
    slots: float
    share: float
    noise: float
    channel: Channel
    is_open: bool


@dataclass(frozen=True, eq=False)
class Fit:
    """Numbers of items by region, index 0 (in no group) left out.

    Args:
        groups: number of groups.
        free: (2^m - 1,) unbiased estimates, some perhaps negative.
        regions: (2^m - 1,) the likeliest numbers that are not negative.
        covariance: of `free`, the items that there were being fixed.
    """

    groups: int
    free: Floats
    regions: Floats
    covariance: Floats = field(repr=False)


@dataclass(frozen=True, eq=False)
class Law:
    """Expected cells of one table, and what they would do if a number of items changed."""

    table: Table
    groups: int
    wraps: Wraps | None

    def __post_init__(self) -> None:
        seen = self.table.channel.matrix(self.groups)
        object.__setattr__(self, "seen", seen)
        object.__setattr__(self, "shown", seen @ kronecker(MEETING, self.groups))
        hit = meets(self.groups)
        object.__setattr__(self, "hit", hit if self.wraps is None else hit @ self.wraps.visible(self.groups)[1:, 1:])

    seen: Floats = field(init=False, repr=False)
    """(2^m, 2^m) law of the seen pattern by the true one."""
    shown: Floats = field(init=False, repr=False)
    """(2^m, 2^m) the seen patterns by Pr[empty in S]."""
    hit: Floats = field(init=False, repr=False)
    """(2^m, 2^m - 1) whether an item of a region fills a set of groups."""

    def empty(self, regions: Floats) -> tuple[Floats, Floats]:
        """(2^m,) Pr[a slot is empty in S], and how that falls for each item more that fills S."""
        rate = self.table.share / self.table.slots
        loads = rate * reaches(np.concatenate([[0.0], regions]))
        if not self.table.is_open:
            return 1 - loads, np.full(loads.shape, rate)
        empty = np.exp(-np.maximum(loads, -1.0))
        if self.wraps is not None:
            empty = empty * self.wraps.factors(loads)
        return empty, rate * empty

    def expected(self, regions: Floats) -> tuple[Floats, Floats]:
        """(2^m,) shares of slots by seen pattern, and (2^m, 2^m - 1) what one item more of a region adds to cells."""
        empty, falls = self.empty(regions)
        slope = -(self.shown * falls) @ self.hit * self.table.slots
        return self.shown @ empty, slope

    def true_patterns(self, regions: Floats) -> Floats:
        """(2^m,) shares of slots by true pattern."""
        return kronecker(MEETING, self.groups) @ self.empty(regions)[0]

    def weighed(self, shares: Floats, what: Floats) -> Floats:
        """What the inverse covariance of the cells gives, slots being independent and of one law."""
        slots = self.table.slots
        each = slots * shares + self.table.noise
        inverse = (what.T / each).T
        loss = shares / each
        return inverse + np.multiply.outer(loss, slots * (shares @ inverse) / (1 - slots * shares @ loss))


def fit(tables: Sequence[Table], groups: int, wraps: Sequence[Wraps | None] | None = None) -> Fit:
    """Estimate the numbers of items in all regions.

    Args:
        tables: levels of what was published.
        groups: m, at most 8: matrices have 2^m rows.
        wraps: for each table, what counts of several events that add up to 0 hide.

    Raises:
        EstimateError: nothing tells them apart: every level is full.
    """
    laws = [Law(one, groups, None if wraps is None else wraps[at]) for at, one in enumerate(tables)]
    at, backwards, length = start(tables, groups), 0, np.inf
    for _ in range(ROUNDS):
        score, information = _score(laws, at)
        try:
            step = _solved(information, score)
        except EstimateError:  # so many items that nothing tells how many: begin nearer
            if backwards == BACKWARDS:
                raise
            at, backwards = at / 4, backwards + 1
            continue
        length = float(score @ step)
        most = max(float(np.abs(step).sum()), 1e-300)
        step *= min(1.0, max(0.5 * float(np.maximum(at, 0).sum()), 1.0) / most)
        at = at + step
        if length < NEAR:
            break
    emptiest = max(float(law.empty(np.maximum(at, 0.0))[0][-1]) for law in laws)
    if length > 1 or (tables[0].is_open and emptiest < LEAST_EMPTY):
        raise EstimateError(FULL)
    _, information = _score(laws, at)
    regions = nearest(information, at)
    inverse = _solved(information, np.eye(len(at)))
    inverse = (inverse + inverse.T) / 2
    if tables[0].is_open:
        covariance = inverse - np.diag(np.maximum(regions, 0.0))
    else:
        covariance = inverse @ _channel_noise(laws, regions) @ inverse
    return Fit(groups, at, regions, covariance)


def expected_cells(tables: Sequence[Table], groups: int, regions: Floats) -> list[Table]:
    """The tables with the numbers of slots that are expected in place of the published ones.

    Args:
        tables: their cells are not looked at.
        groups: m.
        regions: (2^m - 1,) numbers of items.
    """
    laws = [Law(one, groups, None) for one in tables]
    return [replace(law.table, cells=law.table.slots * law.expected(regions)[0]) for law in laws]


def _score(laws: Sequence[Law], at: Floats) -> tuple[Floats, Floats]:
    """Slope of the quasi-likelihood, and its information; variances are those of numbers that are not negative."""
    score, information = np.zeros(len(at)), np.zeros((len(at), len(at)))
    for law in laws:
        shares, slope = law.expected(at)
        likely = shares if (at >= 0).all() else law.expected(np.maximum(at, 0.0))[0]
        likely = np.maximum(likely, 0.0)
        likely /= likely.sum()
        weighed = law.weighed(likely, slope)
        score += weighed.T @ (law.table.cells - law.table.slots * shares)
        information += slope.T @ weighed
    return score, information


def _channel_noise(laws: Sequence[Law], regions: Floats) -> Floats:
    """Covariance of the score in a closed domain, whose true patterns are fixed: the noise of counters and cells."""
    total = np.zeros((len(regions), len(regions)))
    for law in laws:
        shares, slope = law.expected(regions)
        weighed = law.weighed(np.maximum(shares, 0.0), slope)
        true = np.maximum(law.true_patterns(regions), 0.0)
        spread = np.diag(law.table.slots * shares + law.table.noise) - law.table.slots * (law.seen * true) @ law.seen.T
        total += weighed.T @ spread @ weighed
    return total


def _solved(information: Floats, right: Floats) -> Floats:
    """The solution for a positive definite matrix.

    Raises:
        EstimateError: it is none.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    scale = 1 / np.sqrt(np.maximum(np.diag(information), 1e-300))
    try:
        factor = cho_factor(information * np.multiply.outer(scale, scale))
    except LinAlgError:
        raise EstimateError(FULL) from None
    scaled = right * scale if right.ndim == 1 else right * scale[:, None]
    found: Floats = cho_solve(factor, scaled)
    return found * scale if right.ndim == 1 else found * scale[:, None]


def nearest(information: Floats, free: Floats) -> Floats:
    """The numbers that are not negative and nearest to these, by their information."""
    if (free >= 0).all():
        return free.copy()
    from scipy.linalg import cholesky
    from scipy.optimize import nnls

    scale = 1 / np.sqrt(np.diag(information))
    root = cholesky(information * np.multiply.outer(scale, scale))
    found: Floats = nnls(root, root @ (free / scale), maxiter=100 * len(free))[0] * scale
    return found


def start(tables: Sequence[Table], groups: int) -> Floats:
    """Rough numbers to begin with: each group's items alone, by the load that fits its own counters best."""
    largest = max(one.slots / one.share for one in tables)
    loads = np.concatenate([[0.0], np.geomspace(1.0, 20 * largest, 600)])
    out = np.zeros(2**groups - 1)
    every = np.arange(2**groups)
    for group in range(groups):
        bit = 1 << (groups - 1 - group)
        inside = (every & bit) != 0
        misfit = np.zeros(len(loads))
        for one in tables:
            rate = one.share / one.slots
            empty = np.exp(-rate * loads) if one.is_open else np.maximum(1 - rate * loads, 0.0)
            seen = one.channel.full - (one.channel.full - one.channel.empty) * empty
            spread = one.slots * seen * (1 - seen) + one.noise * inside.sum()
            misfit += (one.cells[inside].sum() - one.slots * seen) ** 2 / spread + np.log(spread)
        out[bit - 1] = max(loads[int(np.argmin(misfit))], 1.0)
    return out
