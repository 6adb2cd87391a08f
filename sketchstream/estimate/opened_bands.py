"""Intervals of open domains: noise, collisions and the random split into levels.

In: parts with their models. Out: `Uncertainty`. Touches: nothing.
Source: profile specification 5.5 and 5.6; skewed ends, ratios and sums of parts: `docs/theory/reconstruction.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sketchstream.estimate import intervals
from sketchstream.estimate.intervals import Region, Uncertainty
from sketchstream.estimate.linear import SHOWS, Band, Ends, Line, Moments, Score, blended, linear, trusted
from sketchstream.estimate.observed import FAR, Floats, Observed
from sketchstream.estimate.opened import Level, Model, Part, Spread, linearised, merged, spreads
from sketchstream.estimate.opened_count import Curve

COVERS = (
    "the noise (of the counters and of the publication), the collisions of items in slots and their random split into "
    "levels"
)
AVERAGE = "; histograms with similar numbers of items a slot were added and are read as one"
BOUNDED = "; where the slots set no upper limit to the number of items, that limit is "


@dataclass(frozen=True)
class Bent(Band):
    """A band whose standard deviation grows by exp(bend u) when the number itself grows by u.

    So it is on the scale of the empty slots, 1 - exp(-bend u), that its width is the same everywhere.
    """

    bend: Floats

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals; infinity where the slots set no limit."""
        width = z * np.sqrt(np.maximum(self.variance, 0.0))
        return self.low - _stretched(width, -self.bend), self.high + _stretched(width, self.bend)

    def at(self, k: int) -> Band:
        """The band of one number."""
        return Bent(self.low[k : k + 1], self.high[k : k + 1], self.variance[k : k + 1], self.bend[k : k + 1])

    def scaled(self, factor: float) -> Band:
        """The band of the estimate times a positive factor."""
        return Bent(self.low * factor, self.high * factor, self.variance * factor**2, self.bend / factor)


def _stretched(width: Floats, bend: Floats) -> Floats:
    """The way u > 0 with (1 - exp(-bend u))/bend = width."""
    x = bend * width
    flat = np.abs(x) < 1e-6
    with np.errstate(divide="ignore", invalid="ignore"):
        out = -np.log1p(-np.minimum(x, 1.0)) / np.where(flat, 1.0, bend)
    return np.where(flat, width, out)


@dataclass(frozen=True)
class Reach(Bent):
    """K+ numbers, index 0 and 1 the number of items: their ends are those of the curves, added over the parts.

    Args:
        curves: of the parts. most: the total weight, which no number of items exceeds; None where it wraps.
    """

    curves: tuple[Curve, ...]
    most: Band | None

    def items(self, z: float) -> tuple[float, float]:
        """Ends of the number of items. Sums of skewed intervals: Zou & Donner 2008."""
        middle = sum(curve.value for curve in self.curves)
        ends = [curve.ends(z) for curve in self.curves]
        low = sum((curve.value - end[0]) ** 2 for curve, end in zip(self.curves, ends, strict=True))
        high = sum((curve.value - end[1]) ** 2 for curve, end in zip(self.curves, ends, strict=True))
        return max(middle - math.sqrt(low), 0.0), self._limited(middle + math.sqrt(high), z)

    def _limited(self, high: float, z: float) -> float:
        """An upper end, or what no number of items exceeds."""
        if math.isfinite(high):
            return high
        bound = sum(float(curve.items[-1]) for curve in self.curves)
        if self.most is not None:
            bound = min(bound, max(float(self.most.ends(z)[1][0]), 1.0))
        return bound

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals."""
        low, high = super().ends(z)
        first, last = self.items(z)
        low[:2], high[:2] = first, last
        return np.minimum(low, last), np.where(np.isinf(high), last, high)

    def at(self, k: int) -> Band:
        """The band of one number."""
        one = self if k < 2 else Bent(self.low, self.high, self.variance, self.bend)
        return _Only(self.low[k : k + 1], self.high[k : k + 1], self.variance[k : k + 1], one, k)


@dataclass(frozen=True)
class _Only(Band):
    """One number of a band of several."""

    whole: Band
    k: int

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of its interval."""
        low, high = self.whole.ends(z)
        return low[self.k : self.k + 1], high[self.k : self.k + 1]


@dataclass(frozen=True)
class Quotient(Band):
    """Ratios by Fieller's theorem: all values r for which above - r below is within z standard deviations of 0.

    Args:
        low, high: the ratio. variance: of `above`. joint: its covariance with `below`.
        below, spread: the denominator and its variance.
    """

    joint: Floats
    below: float
    spread: float

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals; everything where the denominator may be 0."""
        above, b, q = self.low * self.below, self.below, z * z
        a2 = b * b - q * self.spread
        if a2 <= 0.0:
            return np.full(above.size, -np.inf), np.full(above.size, np.inf)
        a1 = above * b - q * self.joint
        root = np.sqrt(np.maximum(a1**2 - a2 * (above**2 - q * self.variance), 0.0))
        return (a1 - root) / a2, (a1 + root) / a2

    def at(self, k: int) -> Band:
        """The band of one number."""
        one = slice(k, k + 1)
        return Quotient(self.low[one], self.high[one], self.variance[one], self.joint[one], self.below, self.spread)


@dataclass(frozen=True)
class Mean(Band):
    """Total over items: the ends of the number of items, a factor further out for the total's own noise.

    Args:
        reach: k+ numbers. total: of the weight. further: sd of (total - mean items) / mean over that of the items.
    """

    reach: Reach
    total: Band
    further: float

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the interval; from 1 to the total where the total may be 0."""
        least, most = self.total.ends(z)
        few, many = self.reach.items(z * self.further)
        if least[0] <= 0.0:
            return np.ones(1), most / max(few, 1.0)
        return self.total.low / max(many, 1.0), self.total.high / max(few, 1.0)


@dataclass(frozen=True)
class Entropy:
    """Entropy over an ellipse around events and sum of t ln t; the number of items limits it.

    Args:
        centres: (c, 2) events and sums, for each way the counts may lie in wide cells. covariance: (2, 2).
    """

    centres: Floats
    covariance: Floats
    reach: Reach

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the interval."""
        most = math.log(max(self.reach.items(z)[1], 1.0))
        return Region(self.centres, self.covariance, partial(intervals.entropy, most)).ends(z)


@dataclass(frozen=True)
class Known:
    """Bands of one part.

    Args:
        cells: of Lam_t, index 0 of the number of items. tails: of the items with a count of at least 1+t.
        cell_all, tail_all: their covariances with the number of items.
        pull: for each of all levels, what one more empty slot (as a share) takes from the number of items.
    """

    cells: Bent
    tails: Bent
    cell_all: Floats
    tail_all: Floats
    pull: list[float]


def of_part(part: Part) -> Known:
    """Bands of the numbers of one part."""
    model, levels = part.model, part.levels
    shares = np.array([level.share for level in levels])
    each = [spreads(level, model) for level in levels]
    weights, variances = _merged(each, shares, model)
    step = min(0.25, math.sqrt(float(variances[1][0])) / max(model.items, 1e-9))
    more = model.scaled(1.0 + step)
    _, wider = _merged([spreads(level, more) for level in levels], shares, more)
    seen = np.array([linearised(level, model) / level.share for level in levels])
    left = seen[:, :1] - np.cumsum(seen, axis=1) + seen[:, :1]  # items less those up to each count
    left = np.concatenate([seen[:, :1], left[:, 1:]], axis=1)
    values = [(weights[0] * seen).sum(axis=0), (weights[1] * left).sum(axis=0)]
    first = weights[1][:, :1]
    bands, joints = [], []
    for weight, variance, wide, value, cross, own in zip(
        weights, variances, wider, values,
        ([e.cell_all for e in each], [e.tail_all for e in each]), (model.numbers, model.tails[1:]), strict=True,
    ):  # fmt: skip
        joint = (weight * first * np.array(cross) / shares[:, None] ** 2).sum(axis=0)
        joint += own * ((weight * first / shares[:, None]).sum(axis=0) - 1.0)
        grown = np.log(np.maximum(wide, 1e-12) / np.maximum(variance, 1e-12)) / 2.0
        bend = grown / max(step * model.items, 1e-9) * joint / np.maximum(variance, 1e-12)
        bands.append(Bent(value, value, variance, bend if model.items > 0.0 else np.zeros_like(bend)))
        joints.append(joint)
    factors = {id(level): w / level.share for level, w in zip(levels, first[:, 0], strict=True)}
    pull = [
        factors.get(id(level), 0.0) * math.exp(min(model.items * level.share / level.m, 50.0)) for level in part.every
    ]
    return Known(bands[0], bands[1], joints[0], joints[1], pull)


def _merged(
    each: Sequence[Spread], shares: Floats, model: Model
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Weights and variances of cells, and of k+ numbers."""
    cell_weight, cell = merged(np.array([e.cell for e in each]), shares, model.numbers)
    tail_weight, tail = merged(np.array([e.tail for e in each]), shares, model.tails[1:])
    return (cell_weight, tail_weight), (cell, tail)


def bands(found: Sequence[Part], n: int) -> Uncertainty:
    """Bands of every number of an open domain; parts add."""
    known = [of_part(part) for part in found]
    cells, tails = _sum([one.cells for one in known]), _sum([one.tails for one in known])
    cell_all = np.sum([one.cell_all for one in known], axis=0)
    items, items_variance = float(tails.low[0]), float(tails.variance[0])
    wrapped = found[0].observed.unit == "item"
    events = _wrapped(found) if wrapped else _events(found)
    total, noise = events.total, events.covariance[0, 0]
    n_events = max(float(events.centres[0, 0]), 1e-9)
    heavy = _heavy_tails(found, n)
    reach = _reach(tails, heavy, n, tuple(part.curve for part in found), None if wrapped else total)
    mean = n_events / max(sum(part.curve.value for part in found), 1.0)
    joint = _with_score(found) if wrapped else _with_events(found, known)
    far = noise - 2.0 * mean * joint + mean**2 * items_variance
    further = math.sqrt(max(far, 0.01 * mean**2 * items_variance) / max(items_variance, 1e-12)) / max(mean, 1e-12)
    longer = _longer(cells, heavy, n)
    joint_all = np.zeros(n + 1)
    joint_all[: min(cell_all.size, n + 1)] = cell_all[: n + 1]
    whole = reach.low.size - 1

    def shared(band: Band, joint: Floats) -> Quotient:
        ratio = band.low / max(items, 1.0)
        return Quotient(ratio, band.high / max(items, 1.0), band.variance, joint, max(items, 1.0), items_variance)

    once = np.stack([np.full(len(events.centres), float(cells.low[1])), events.centres[:, 0]], axis=1)
    scalars: dict[str, Ends] = {
        "total": total,
        "mean": Mean(total.low / max(items, 1.0), total.high / max(items, 1.0), total.variance, reach, total, further),
        "one_hit_ratio": shared(longer.at(1), joint_all[1:2]),
        "coverage": Region(once, np.diag([float(cells.variance[1]), noise]), _complement),
        "entropy": Entropy(events.centres, events.covariance, reach),
    }
    bound = "the total weight" if not wrapped else "that at which the emptiest level would be full"
    added = any(part.observed.slots != part.observed.hashed_into for part in found)
    unbounded = any(math.isinf(part.curve.ends(SHOWS)[1]) for part in found)
    return Uncertainty(
        shared(longer, joint_all),
        longer,
        reach,
        shared(Band(reach.low[whole:], reach.high[whole:], reach.variance[whole:]), np.zeros(1)),
        scalars,
        COVERS + (AVERAGE if added else "") + (BOUNDED + bound if unbounded else ""),
    )


def _complement(part: Floats, whole: Floats) -> Floats:
    """1 - part / whole."""
    return 1.0 - intervals.share(part, whole)


@dataclass(frozen=True)
class Events:
    """Total weight, and with the sum of t ln t over the items what the entropy is made of.

    Args:
        total: of the weight.
        centres: (c, 2) weight and sum, the first row in the middle of wide cells, the others for the ways the counts
            may lie in them. covariance: (2, 2).
    """

    total: Band
    centres: Floats
    covariance: Floats


def together(observed: Observed, levels: Sequence[int]) -> Observed:
    """Levels as one closed domain: for what collisions do not touch, and with one horizon for all."""
    return replace(
        observed,
        open_domain=False,
        slots=(sum(observed.slots[j] for j in levels),),
        hashed_into=(),
        shares=(1.0,),
        values=observed.values[list(levels)].sum(axis=0)[None, :],
        parts=observed.parts * len(levels),
    )


def _whole(parts: Sequence[Observed], n: int, scores: Sequence[Score]) -> Moments:
    """Sums (not shares) of scores over the slots of parts, with a covariance that cannot be too small."""
    moments = []
    for part in parts:
        line = linear(part)
        own = line.moments(scores)
        typical = intervals.model(part, line, n).moments(scores, line.horizon).covariance
        moments.append(replace(own, covariance=trusted(own.covariance, typical)))
    return blended(moments, [float(part.slots[0]) for part in parts])


def weight_of(found: Sequence[Part]) -> Moments:
    """Total weight: collisions do not touch it, so every level counts, crowded or not."""
    every = [together(part.observed, range(part.observed.levels)) for part in found]
    return _whole(every, found[0].model.intensity.size - 1, (intervals.identity,))


def _events(found: Sequence[Part]) -> Events:
    """Unit event: light items by the recursion, heavy ones as they stand in the slots of clear levels."""
    size = found[0].model.intensity.size
    all_ = weight_of(found)
    span = np.array([0.0, float(all_.outer[0] @ all_.mass) + all_.tail])
    low = float(all_.inner[0] @ all_.mass)
    total = Band(all_.value[:1] + low, all_.value[:1] + span[1:], all_.covariance[0, :1])
    light = _score(found, intervals.xlogx(np.arange(float(size))))
    value, covariance = np.zeros(4), np.zeros((4, 4))
    value[intervals.EVENTS], value[intervals.SURPRISE] = all_.value[0], float(light.low[0])
    covariance[intervals.EVENTS, intervals.EVENTS] = all_.covariance[0, 0]
    covariance[intervals.SURPRISE, intervals.SURPRISE] = float(light.variance[0])
    heavy = []
    for part in found:
        clear = [j for j, level in enumerate(part.every) if any(level is one for one in part.clear)]
        shares = np.array([part.every[j].share for j in clear])
        seen = float(shares.sum())
        load = np.array([part.every[j].share / part.every[j].m for j in clear])
        beside = float(np.arange(size) @ part.model.intensity) * float(shares @ load) / seen
        scores = (*intervals.SCORES[:3], partial(_heavy_score, size, beside))
        one = _whole([together(part.observed, clear)], size - 1, scores)
        seen_value, scale = one.value / seen, np.diag([0.0, 0.0, 1.0, 1.0 / seen])
        value[intervals.SURPRISE] += seen_value[intervals.SURPRISE]
        own = scale @ one.covariance @ scale
        own[intervals.EVENTS, intervals.EVENTS] = 0.0
        covariance += own
        heavy.append(
            replace(one, value=np.zeros(4), covariance=np.zeros((4, 4)), mass=one.mass / seen, tail=one.tail / seen)
        )
        split = float(one.outer[intervals.SURPRISE] ** 2 @ one.mass) if seen < 1.0 else 0.0
        covariance[intervals.SURPRISE, intervals.SURPRISE] += split * (1.0 - seen) / seen**2
    whole = replace(blended(heavy, [1.0] * len(heavy)), value=value, covariance=covariance)
    pick = [intervals.EVENTS, intervals.SURPRISE]
    ways = intervals.entropy_ways(whole, 1.0)[:, pick]
    return Events(total, np.concatenate([value[None, pick], ways]), covariance[np.ix_(pick, pick)])


def _wrapped(found: Sequence[Part]) -> Events:
    """Unit item: everything by the recursion, for sums wrap."""
    t = np.arange(float(found[0].model.intensity.size))
    total, spread = _score(found, t), _score(found, intervals.xlogx(t))
    both = float(_score(found, t + intervals.xlogx(t)).variance[0])
    joint = (both - float(total.variance[0]) - float(spread.variance[0])) / 2.0
    covariance = np.array([[float(total.variance[0]), joint], [joint, float(spread.variance[0])]])
    return Events(total, np.array([[float(total.low[0]), float(spread.low[0])]]), covariance)


def _with_events(found: Sequence[Part], known: Sequence[Known]) -> float:
    """Covariance of the total weight with the number of items: both see the noise of the same slots."""
    out = 0.0
    for part, one in zip(found, known, strict=True):
        for level, pull in zip(part.every, one.pull, strict=True):
            line = level.estimator
            assert isinstance(line, Line)
            wide = np.flatnonzero((line.whole.low != line.whole.high) & (line.whole.low > -FAR))
            cut = int(wide[0]) if wide.size else line.whole.low.size
            both = line.moments((intervals.present, intervals.identity), cut).covariance
            out += level.m**2 * pull * float(both[0, 1])
    return out


def _with_score(found: Sequence[Part]) -> float:
    """The same for unit item, from the variances of sums."""
    t = np.arange(float(found[0].model.intensity.size))
    one, two, both = (
        float(_score(found, score).variance[0]) for score in (t, intervals.present(t), t + intervals.present(t))
    )
    return (both - one - two) / 2.0


def _heavy_score(size: int, beside: float, t: Floats) -> Floats:
    """T ln t from `size` up, less what shares the slot."""
    return np.asarray(intervals.xlogx(np.maximum(t - beside, 1.0)) * (t >= size))


def _score(found: Sequence[Part], score: Floats) -> Band:
    """Sum of score_t Lam_t over the counts of the recursion, all parts and levels."""
    value, variance = 0.0, 0.0
    for part in found:
        model = part.model
        shares = np.array([level.share for level in part.levels])
        own = np.array([[_score_variance(level, model, score)] for level in part.levels])
        weight, spread = merged(own, shares, np.array([float(score[1:] ** 2 @ model.intensity[1:])]))
        for w, level in zip(weight[:, 0], part.levels, strict=True):
            value += w * float(score[1:] @ linearised(level, model)[1:]) / level.share
        variance += float(spread[0])
    return Band(np.array([value]), np.array([value]), np.array([variance]))


def _score_variance(level: Level, model: Model, score: Floats) -> float:
    """Variance of sum_t score_t Lam_t from one level: noise and hashing."""
    p, r = model.slot_law(level.m, level.share), model.undone(level.m, level.share)
    score = np.concatenate([[0.0], score[1:]])
    b = np.array([float(score[s:] @ r[: r.size - s]) for s in range(r.size)])
    noise, _ = level.estimator.joint(b[None, :], b, p)
    hashed = level.m * (float(b * b @ p) - float(b @ p) ** 2) - float(score**2 @ model.intensity) * level.share
    return level.m**2 * float(noise[0]) + max(hashed, 0.0)


def _heavy_tails(found: Sequence[Part], n: int) -> Band:
    """Slots at or above 0..n+1 over the levels that are not crowded, scaled to all items."""
    out = []
    for part in found:
        seen = sum(level.share for level in part.clear)
        out += [level.estimator.tails(n).scaled(level.m / seen) for level in part.clear]
    return _added(out)


def _longer(band: Bent, heavy: Band, n: int) -> Bent:
    """Cells up to n: the recursion's, then what the slots show. Index 0 is 0: absent items are unknown."""
    top = min(band.low.size - 1, n)
    low, high, variance, bend = np.zeros(n + 1), np.zeros(n + 1), np.zeros(n + 1), np.zeros(n + 1)
    for whole, light in ((low, band.low), (high, band.high), (variance, band.variance), (bend, band.bend)):
        whole[1 : top + 1] = light[1 : top + 1]
    t = np.arange(top + 1, n + 1)
    high[top + 1 :] = np.maximum(heavy.high[t] - heavy.low[t + 1], 0.0)
    variance[top + 1 :] = heavy.variance[t] + heavy.variance[t + 1]
    return Bent(low, high, variance, bend)


def _reach(tails: Bent, heavy: Band, n: int, curves: tuple[Curve, ...], most: Band | None) -> Reach:
    """K+ numbers for k = 0..n+1."""
    top = min(tails.low.size + 1, n + 2)

    def joined(light: Floats, rest: Floats) -> Floats:
        return np.concatenate([light[:1], light, rest[top:]])[: n + 2]

    return Reach(
        joined(tails.low, heavy.low),
        joined(tails.high, heavy.high),
        joined(tails.variance, heavy.variance),
        joined(tails.bend, np.zeros(n + 2)),
        curves,
        most,
    )


def _added(parts: Sequence[Band]) -> Band:
    """Bands of sums of independent estimates."""
    return Band(
        np.sum([b.low for b in parts], axis=0),
        np.sum([b.high for b in parts], axis=0),
        np.sum([b.variance for b in parts], axis=0),
    )


def _sum(parts: Sequence[Bent]) -> Bent:
    """The same with skewed ends: what skews a sum adds up as third moments do."""
    whole = _added(parts)
    if len(parts) == 1:
        return parts[0]
    bend = np.sum([b.bend * b.variance**1.5 for b in parts], axis=0) / np.maximum(whole.variance, 1e-12) ** 1.5
    return Bent(whole.low, whole.high, whole.variance, bend)
