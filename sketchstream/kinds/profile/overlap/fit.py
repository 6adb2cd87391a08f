"""Numbers of items in all regions of several groups together, by quasi-likelihood, with their covariance.

In: published histograms of patterns (`Patterns`). Out: a `RegionFit`, an `Overlap`. Touches: nothing.
Source: docs/theory/overlap.md, section 3 (Bertsekas, SIAM J. Control Optim. 1982, projected Newton steps; Hestenes &
Stiefel 1952, conjugate gradients).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats
from sketchstream.errors import EstimateError
from sketchstream.kinds.groups.overlap import Covariance, Overlap
from sketchstream.kinds.profile.overlap.covariance import (
    INDISTINGUISHABLE,
    ClosedCovariance,
    DoubtedCovariance,
    OpenCovariance,
    SumCovariance,
)
from sketchstream.kinds.profile.overlap.law import PatternLaw, Patterns, Scoring

MIN_EMPTY_SHARE = 1e-4
"""Share of empty slots: with less in every level, nothing shows how many items there are."""
CLEAR = 3.0
"""Standard errors of empty slots that each group must have in some level beyond what full slots would show."""
WITHIN = 0.5
"""Standard errors of a level's empty slots that may be hidden in it."""
MAX_NEWTON_STEPS = 100
"""Most Newton steps; some 20 are taken for 12 groups."""
MAX_GRADIENTS = 100
"""Most conjugate gradients of one Newton step."""
ROUGH, STEP_PRECISION = 1e-2, 1e-6
"""Part of its squared length to which a step is computed: far from the end, near it."""
MIN_SQUARED_STEP = 1e-8
"""A step is the last one if it is shorter than the root of this, in standard errors."""
MIN_STEP = 1e-3
"""Part of a step to which it is shortened at most where the misfit grows."""
PARTS_OF_ITEM = 1024.0
"""Parts of an item in which regions are counted."""


@dataclass(frozen=True, eq=False)
class RegionFit:
    """Numbers of items by region, index 0 (in no group) left out.

    Args:
        free: (2^m - 1,) unbiased estimates, some perhaps negative.
        regions: (2^m - 1,) the likeliest numbers that are not negative.
        covariance: covariance of `free` for fixed items.
    """

    free: Floats
    regions: Floats
    covariance: Covariance = field(repr=False)


def answers_of(
    groups: tuple[str, ...],
    fits: Sequence[RegionFit],
    *,
    epsilon: Fraction,
    rate: float,
    most: float | None,
    notes: tuple[str, ...] = (),
) -> Overlap:
    """The answers of the fits of one or several parts, whose items differ.

    Args:
        groups: names of the groups.
        fits: fits of the items of each part.
        epsilon: cost of the patterns.
        rate: share of the items that have slots.
        most: number of slots of a closed domain.
        notes: remarks for readers, as `Overlap` has them.
    """
    regions = np.sum([one.regions for one in fits], axis=0)
    counts = np.round(np.concatenate([[0.0], regions]) / rate * PARTS_OF_ITEM) / PARTS_OF_ITEM
    free = np.concatenate([[0.0], np.sum([one.free for one in fits], axis=0)]) / rate
    spread = SumCovariance([one.covariance for one in fits], rate, counts[1:])
    return Overlap(
        groups=groups,
        counts=counts,
        free=free,
        spread=spread,
        epsilon=epsilon,
        most=None if most is None else most / rate,
        notes=notes,
    )


def fit(table: Patterns, begin: Floats | None = None) -> RegionFit:
    """Estimate the numbers of items in all regions.

    Args:
        table: what was published.
        begin: (2^m - 1,) rough numbers, see `start`.

    Raises:
        EstimateError: nothing tells them apart: every level is full.
    """
    if table.is_open and not all(has_empty_slots(table, group) for group in range(table.groups)):
        raise EstimateError(INDISTINGUISHABLE)
    law = PatternLaw(table)
    at, length = start(table) if begin is None else begin, np.inf
    for _ in range(MAX_NEWTON_STEPS):
        at, length = newton_step(Scoring(law, at))
        if length < MIN_SQUARED_STEP:
            break
    last = Scoring(law, at)
    if not length < 1 or (table.is_open and float(last.empty[:, -1].max()) < MIN_EMPTY_SHARE):
        raise EstimateError(INDISTINGUISHABLE)
    if not table.is_open:
        closed = ClosedCovariance(last.variances[0], at, table)
        return RegionFit(closed.free(table.cells[0]), at, closed)
    spread = OpenCovariance(last, at)
    free = at + spread.inverse(last.score)
    wrapped = spread if table.wraps is None else DoubtedCovariance(spread, doubt_of_regions(at, table.wraps.doubts))
    return RegionFit(free, at, wrapped)


def doubt_of_regions(regions: Floats, doubts: Floats) -> Floats:
    """(m, 2^m - 1) by how much numbers of items are wrong if counts of a group wrap more often by a standard error.

    Args:
        regions: (2^m - 1,) numbers of items.
        doubts: (m,) standard errors of the shares whose counts wrap.
    """
    out = np.zeros((len(doubts), len(regions) + 1))
    for group, (row, doubt) in enumerate(zip(out, doubts, strict=True)):
        without, inside = row.reshape(2**group, 2, -1).transpose(1, 0, 2)
        inside[:] = doubt * np.concatenate([[0.0], regions]).reshape(2**group, 2, -1)[:, 1]
        without[:] = -inside
    return out[:, 1:]


def has_empty_slots(table: Patterns, group: int) -> bool:
    """Whether a group has more empty slots, in some level, than noise can make of full ones.

    Without them any large number of items fits as well as any other, while the fit, which begins at one of them, would
    take the chance excess for a few empty slots and give it a narrow interval.
    """
    full, variance = table.counters(table.wrapped)
    return bool((full - table.occupied(group)).max() > CLEAR * np.sqrt(variance))


def trusted_levels(table: Patterns, loads: Floats) -> npt.NDArray[np.bool_]:
    """(levels,) levels that tell empty slots from those whose counts add up to 0, within their standard errors.

    Elsewhere the fit would be sure of what it cannot know: a level of five items a slot has fewer empty slots than
    such sums, whose number follows from the law of counts alone.

    Args:
        table: table of an open domain.
        loads: (m, levels) items of each group a slot, about.
    """
    reach = table.channel.full - table.channel.empty
    good = np.ones(loads.shape[1], np.bool_)
    for group, load in enumerate(loads):
        empty = np.exp(-load)
        if table.wraps is not None and table.wraps.known[group]:
            hidden = table.wraps.hidden(group, load)
        else:
            hidden = table.wrapped * (1 - empty * (1 + load))
        good &= table.slots * reach * hidden < WITHIN * np.sqrt(table.counters(empty)[1])
    return good


def start(table: Patterns) -> Floats:
    """(2^m - 1,) rough numbers to begin with: each group's items alone, by the load that fits its own counters best."""
    groups, reach = table.groups, table.channel.full - table.channel.empty
    loads = np.concatenate([[0.0], np.geomspace(1.0, 20 * table.slots / table.shares.min(), 600)])
    filled = np.multiply.outer(table.shares / table.slots, loads)
    empty = np.exp(-filled) if table.is_open else np.maximum(1 - filled, 0.0)
    hidden = table.wrapped * (1 - empty * (1 + filled)) / 2
    seen, variance = table.counters(empty + hidden)
    spread = variance + (table.slots * reach * hidden) ** 2
    out = np.zeros(2**groups - 1)
    for group in range(groups):
        bit = 1 << (groups - 1 - group)
        misfit = ((table.occupied(group)[:, None] - seen) ** 2 / spread + np.log(spread)).sum(axis=0)
        out[bit - 1] = max(loads[int(np.argmin(misfit))], 1.0)
    return out


def newton_step(scoring: Scoring) -> tuple[Floats, float]:
    """The next numbers, none negative, and how far they are, in standard errors squared.

    Args:
        scoring: the likelihood near the numbers of the step before.
    """
    free = (scoring.regions > 0) | (scoring.score > 0)
    before = scoring.misfit(np.zeros_like(scoring.regions))
    for part in (ROUGH, STEP_PRECISION):
        direction = conjugate_gradients(
            lambda x: scoring.information(x) * free,
            scoring.score * free,
            lambda x: scoring.approximate_inverse(x) * free,
            part,
        )
        moved, scale = np.maximum(direction, -scoring.regions), 1.0
        while scale > MIN_STEP and before - scoring.misfit(moved) < 1e-4 * float(moved @ scoring.score):
            scale /= 2
            moved = np.maximum(scale * direction, -scoring.regions)
        length = float(moved @ scoring.information(moved))
        if length > ROUGH:
            break
    return np.maximum(scoring.regions + moved, 0.0), length


def conjugate_gradients(
    product: Callable[[Floats], Floats], right_side: Floats, precondition: Callable[[Floats], Floats], part: float
) -> Floats:
    """Solve a positive definite system by conjugate gradients.

    Args:
        product: function that multiplies the matrix by a vector.
        right_side: the right side.
        precondition: function that multiplies an approximate inverse by a vector.
        part: part of the squared length at the beginning, at which the search ends.
    """
    solution, residual = np.zeros_like(right_side), right_side.copy()
    preconditioned = precondition(residual)
    direction, length = preconditioned, float(residual @ preconditioned)
    first = length
    for _ in range(MAX_GRADIENTS):
        if length <= part * first:
            break
        image = product(direction)
        curvature = float(direction @ image)
        if curvature <= 0:
            break
        size = length / curvature
        solution += size * direction
        residual -= size * image
        preconditioned = precondition(residual)
        length, before = float(residual @ preconditioned), length
        direction = preconditioned + length / before * direction
    return solution
