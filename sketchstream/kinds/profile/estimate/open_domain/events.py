"""The events of open domains: total weight, and the sum in the entropy.

In: parts with their models. Out: `EventTotals`. Touches: nothing.
Source: docs/theory/profile.md 5 and 6; heavy items in one slot: `docs/theory/reconstruction.md`, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate import fit as fits
from sketchstream.kinds.profile.estimate.intervals import bounds
from sketchstream.kinds.profile.estimate.linear.line import Line, linear
from sketchstream.kinds.profile.estimate.observed import Observed, tally
from sketchstream.kinds.profile.estimate.open_domain.collisions import ObservedPart, linearise, merge_levels
from sketchstream.kinds.profile.estimate.open_domain.laws import Level, VarianceModel
from sketchstream.kinds.profile.estimate.open_domain.residues import Joint
from sketchstream.kinds.profile.estimate.uncertainty.bands import (
    Band,
    Moments,
    Score,
    blend_moments,
    covariance_from_parts,
    settle_covariance,
)

NODES = 256
"""Steps, even on log scales, in which heavy counts are taken."""


@dataclass(frozen=True)
class EventTotals:
    """Total weight, and the sum of t ln t over the items; the entropy follows from the two.

    Args:
        total: band of the total weight.
        limit: upper limit of the number of items, as each has at least one event; None if sums wrap.
        limits: the same limit for each part.
        centres: (c, 2) weight and sum: in the first row with counts in the middle of wide cells, in the other rows for
            the different positions that counts may have inside the cells.
        covariance: (2, 2) covariance of weight and sum.
        hiding: what noise hides of large counts, in words.
    """

    total: Band
    limit: Band | None
    limits: list[Band | None]
    centres: Floats
    covariance: Floats
    hiding: str


def as_one_domain(observed: Observed, levels: Sequence[int]) -> Observed:
    """Levels as one closed domain with one horizon, for numbers that collisions do not change."""
    return replace(
        observed,
        open_domain=False,
        slots=(sum(observed.slots[j] for j in levels),),
        hashed_into=(),
        shares=(1.0,),
        values=observed.values[list(levels)].sum(axis=0)[None, :],
        parts=observed.parts * len(levels),
    )


def every_level(part: ObservedPart) -> Observed:
    """All levels of a part as one closed domain."""
    return as_one_domain(part.observed, range(part.observed.levels))


def _sum_over_parts(parts: Sequence[Observed], n: int, scores: Sequence[Score]) -> Moments:
    """Sums (not shares) of scores over the slots of parts, with a covariance that cannot be too small."""
    moments = []
    for part in parts:
        line = linear(part)
        own = line.moments(scores)
        typical = bounds.model(part, line, n).moments(scores, line.horizon).covariance
        moments.append(replace(own, covariance=settle_covariance(own.covariance, typical)))
    return blend_moments(moments, [float(part.slots[0]) for part in parts])


def weight_of(parts: Sequence[ObservedPart]) -> Moments:
    """Total weight: collisions do not change it, so every level is used, crowded or not."""
    return _sum_over_parts([every_level(part) for part in parts], parts[0].model.intensity.size - 1, (bounds.identity,))


def _band(weight: Moments, beyond: float) -> Band:
    """Band of the total weight or of a smaller number, with this much beyond the horizon."""
    low, high = weight.value + weight.inner @ weight.mass, weight.value + weight.outer @ weight.mass
    return Band(low, high + beyond, weight.covariance[0])


def _limit(weight: Moments) -> Band:
    """Upper bound on the number of items: each has an event. Hidden counts hold many events but few items."""
    return _band(weight, 0.0 if weight.hidden is None else weight.hidden.items)


def totals_of_events(parts: Sequence[ObservedPart]) -> EventTotals:
    """Unit event: light items by the recursion, heavy ones directly from the slots of clear levels."""
    size = parts[0].model.intensity.size
    each = [weight_of([part]) for part in parts]
    all_ = blend_moments(each, [1.0] * len(each))
    total = _band(all_, all_.tail)
    light = _score(parts, bounds.xlogx(np.arange(float(size))))
    value, covariance = np.zeros(4), np.zeros((4, 4))
    value[bounds.EVENTS], value[bounds.SURPRISE] = all_.value[0], float(light.low[0])
    covariance[bounds.EVENTS, bounds.EVENTS] = all_.covariance[0, 0]
    covariance[bounds.SURPRISE, bounds.SURPRISE] = float(light.variance[0])
    heavy = []
    for part in parts:
        clear = [j for j, level in enumerate(part.every) if any(level is one for one in part.clear)]
        shares = np.array([part.every[j].share for j in clear])
        seen = float(shares.sum())
        scores = (*bounds.SCORES[:3], lambda t: np.asarray(bounds.xlogx(t) * (t >= size)))
        moments = _sum_over_parts([as_one_domain(part.observed, clear)], size - 1, scores)
        pairs = _shared_slots(part, [part.every[j] for j in clear])
        scale = np.diag([0.0, 0.0, 1.0, 1.0 / seen])
        value[bounds.SURPRISE] += (moments.value[bounds.SURPRISE] - pairs.excess) / seen
        own = scale @ moments.covariance @ scale
        own[bounds.EVENTS, bounds.EVENTS] = 0.0
        covariance += own
        hidden = covariance_from_parts([(moments.hidden, 1.0 / seen)]) if moments.hidden is not None else None
        heavy.append(Moments(np.zeros(4), np.zeros((4, 4)), moments.mass / seen, moments.inner, moments.outer, hidden))
        covariance[bounds.SURPRISE, bounds.SURPRISE] += (pairs.variance + pairs.squares * (1.0 - seen)) / seen**2
    whole = replace(blend_moments(heavy, [1.0] * len(heavy)), value=value, covariance=covariance)
    pick = [bounds.EVENTS, bounds.SURPRISE]
    ways = bounds.entropy_ways(whole, 1.0)[:, pick]
    hiding = bounds.hiding([linear(every_level(part)) for part in parts])
    limits: list[Band | None] = [_limit(moments) for moments in each]
    centres = np.concatenate([value[None, pick], ways])
    return EventTotals(total, _limit(all_), limits, centres, covariance[np.ix_(pick, pick)], hiding)


def totals_of_items(parts: Sequence[ObservedPart], joints: Sequence[Joint | None]) -> tuple[EventTotals, Floats]:
    """Unit item: all items by the recursion, as sums wrap. And the covariances of the weight with items and items once.

    Args:
        parts: the parts.
        joints: joint estimates of the items at each count, of the parts that have them.
    """
    t = np.arange(float(parts[0].model.intensity.size))
    scores = np.stack([t, bounds.xlogx(t), bounds.present(t), bounds.once(t)])
    if any(joint is None for joint in joints):
        value, covariance = _by_pairs(parts, scores)
    else:
        each = [joint.of(scores[:, 1:]) for joint in joints if joint is not None]
        value, covariance = np.sum([one for one, _ in each], axis=0), np.sum([own for _, own in each], axis=0)
    total = Band(value[:1], value[:1], np.maximum(covariance[0, :1], 0.0))
    return EventTotals(total, None, [None] * len(parts), value[None, :2], covariance[:2, :2], ""), covariance[0, 2:]


def _by_pairs(parts: Sequence[ObservedPart], scores: Floats) -> tuple[Floats, Floats]:
    """Sums of scores over the items, and their covariance from the variances of sums of two."""
    bands = [_score(parts, score) for score in scores]
    covariance = np.diag([float(band.variance[0]) for band in bands])
    for i in range(len(scores)):
        for j in range(i):
            both = float(_score(parts, scores[i] + scores[j]).variance[0])
            covariance[i, j] = covariance[j, i] = (both - covariance[i, i] - covariance[j, j]) / 2.0
    return np.array([float(band.low[0]) for band in bands]), covariance


@dataclass(frozen=True)
class Shared:
    """Contribution of slots with several items to the sum of t ln t over heavy slots.

    Args:
        excess: expected excess over the sum for the heavy items alone.
        variance: variance of the excess, due to the random slots of the items.
        squares: sum of (t ln t)^2 over the heavy items of these levels.
    """

    excess: float
    variance: float
    squares: float


def _shared_slots(part: ObservedPart, levels: Sequence[Level]) -> Shared:
    """Expected sum of t ln t over heavy slots minus that over heavy items, in these levels.

    By Mecke's formula the sum of g(T) T over the slots has the mean of the sum of t E g(t + T) over the items, with T
    the count of other items in the slot. Source: Last & Penrose, Lectures on the Poisson Process, 2017, theorem 4.1.
    """
    model, size = part.model, part.model.intensity.size
    heavy, weight = _heavy_items(part, levels)
    light = np.arange(1.0, size)
    beside = np.concatenate([np.arange(float(size)), heavy])
    alone = np.log1p(beside / heavy[:, None])
    both = light[:, None] + beside
    pushed = np.where(both >= size, np.log(both), 0.0)
    excess, variance = 0.0, 0.0
    for level in levels:
        law = model.slot_law(level.m, level.share)
        beyond = max(1.0 - float(law.sum()), 0.0)
        law = np.concatenate([law, beyond * weight / max(float(weight.sum()), 1e-12)])
        for counts, score, items in ((heavy, alone, weight), (light, pushed, model.intensity[1:])):
            mean = score @ law
            excess += level.share * float((counts * items) @ mean)
            # a shared slot counts once for each of its items: at most twice the squares
            variance += 2.0 * level.share * float((counts**2 * items) @ np.maximum(score**2 @ law - mean**2, 0.0))
    seen = sum(level.share for level in levels)
    return Shared(excess, variance, seen * float(bounds.xlogx(heavy) ** 2 @ weight))


def _heavy_items(part: ObservedPart, levels: Sequence[Level]) -> tuple[Floats, Floats]:
    """Counts beyond the recursion, in at most NODES steps, and the model's number of items at each."""
    size, beyond = part.model.intensity.size, part.model.beyond
    counts, slots = [], []
    for level in levels:
        assert isinstance(level.estimator, Line)
        cells = level.estimator.cells
        at, share = fits.shares_above(cells, size - 1, 1.0)
        counts.append(at)
        slots.append(share * float(np.maximum(cells.slots[cells.low >= size], 0.0).sum()))
    at, weight = np.concatenate(counts), np.concatenate(slots)
    step = np.minimum((np.log(at / size) * (NODES / math.log(max(at.max() / size, 2.0)))).astype(np.int64), NODES - 1)
    mass, events = tally(step, weight, NODES), tally(step, weight * at, NODES)
    keep = mass > 0.0
    if beyond <= 0.0 or not keep.any():
        return np.zeros(0), np.zeros(0)
    return events[keep] / mass[keep], mass[keep] * (beyond / mass.sum())


def _score(parts: Sequence[ObservedPart], score: Floats) -> Band:
    """Sum of score_t Lam_t over the counts of the recursion, all parts and levels."""
    value, variance = 0.0, 0.0
    for part in parts:
        model = part.model
        shares = np.array([level.share for level in part.levels])
        own = np.array([[_score_variance(level, model, score)] for level in part.levels])
        weight, spread = merge_levels(own, shares, np.array([float(score[1:] ** 2 @ model.intensity[1:])]))
        for w, level in zip(weight[:, 0], part.levels, strict=True):
            value += w * float(score[1:] @ linearise(level, model)[1:]) / level.share
        variance += float(spread[0])
    return Band(np.array([value]), np.array([value]), np.array([variance]))


def _score_variance(level: Level, model: VarianceModel, score: Floats) -> float:
    """Variance of sum_t score_t Lam_t from one level: noise and hashing."""
    p, r = model.slot_law(level.m, level.share), model.undone(level.m, level.share)
    score = np.concatenate([[0.0], score[1:]])
    b = np.array([float(score[s:] @ r[: r.size - s]) for s in range(r.size)])
    noise, _ = level.estimator.joint(b[None, :], b, p)
    hashed = level.m * (float(b * b @ p) - float(b @ p) ** 2) - float(score**2 @ model.intensity) * level.share
    return level.m**2 * float(noise[0]) + max(hashed, 0.0)
