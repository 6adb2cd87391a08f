"""Intervals of open domains: noise, collisions and the random split into levels.

In: parts with their models. Out: `Uncertainty`. Touches: nothing.
Source: profile specification 5.5 and 5.6; skewed ends, ratios and sums of parts: `docs/theory/reconstruction.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sketchstream.estimate import intervals
from sketchstream.estimate.intervals import Uncertainty, cell_mean
from sketchstream.estimate.linear import Band, Circle, Line, Score
from sketchstream.estimate.observed import Floats
from sketchstream.estimate.opened import Level, Model, Part, Spread, linearised, merged, spreads
from sketchstream.estimate.opened_count import Curve

COVERS = (
    "the noise (of the counters and of the publication), the collisions of items in slots and their random split into "
    "levels"
)
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
class Entropy(Band):
    """Entropy, which the number of items limits; nothing more is known where the total may be 0."""

    reach: Reach
    total: Band

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the interval."""
        most = math.log(max(self.reach.items(z)[1], 1.0))
        low, high = super().ends(z)
        if self.total.ends(z)[0][0] <= 0.0:
            return np.zeros(1), np.array([most])
        return np.clip(low, 0.0, most), np.minimum(high, most)


@dataclass(frozen=True)
class Known:
    """Bands of one part.

    Args:
        cells: of Lam_t, index 0 of the number of items. tails: of the items with a count of at least 1+t.
        cell_all, tail_all: their covariances with the number of items.
        pull: for each of all levels, what one more empty slot (as a share) takes from the number of items.
        hashed: variance of the number of items without its noise.
    """

    cells: Bent
    tails: Bent
    cell_all: Floats
    tail_all: Floats
    pull: list[float]
    hashed: float


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
    noise = sum(factors[id(level)] ** 2 * e.noise_all for level, e in zip(levels, each, strict=True))
    pull = [
        factors.get(id(level), 0.0) * math.exp(min(model.items * level.share / level.m, 50.0)) for level in part.every
    ]
    hashed = max(float(variances[1][0]) - noise, 0.0)
    return Known(bands[0], bands[1], joints[0], joints[1], pull, hashed)


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
    wrapped = any(isinstance(level.estimator, Circle) for part in found for level in part.every)
    counts = np.arange(float(cells.low.size))
    total = _score(found, counts) if wrapped else events(found)
    n_events = max(_middle(total), 1e-9)
    heavy = _heavy_tails(found, n)
    reach = _reach(tails, heavy, n, tuple(part.curve for part in found), None if wrapped else total)
    mean = n_events / max(sum(part.curve.value for part in found), 1.0)
    if wrapped:
        mean_variance = float(_score(found, counts - mean).variance[0])
    else:
        mean_variance = mean**2 * sum(one.hashed for one in known)
        for one, part in zip(known, found, strict=True):
            for level, pull in zip(part.every, one.pull, strict=True):
                taken = partial(_ratio_score, mean * pull)
                variance = float(level.estimator.functional(taken, cell_mean).variance[0])
                mean_variance += level.m**2 * max(variance, 0.0)
    further = math.sqrt(mean_variance / max(items_variance, 1e-12)) / max(mean, 1e-12)
    longer = _longer(cells, heavy, n)
    joint = np.zeros(n + 1)
    joint[: min(cell_all.size, n + 1)] = cell_all[: n + 1]
    whole = reach.low.size - 1

    def shared(band: Band, joint: Floats) -> Quotient:
        ratio = band.low / max(items, 1.0)
        return Quotient(ratio, band.high / max(items, 1.0), band.variance, joint, max(items, 1.0), items_variance)

    noise, rest = float(total.variance[0]), np.array([1.0 - float(cells.low[1]) / n_events])
    scalars: dict[str, Band] = {
        "total": total,
        "mean": Mean(total.low / max(items, 1.0), total.high / max(items, 1.0), total.variance, reach, total, further),
        "one_hit_ratio": shared(longer.at(1), joint[1:2]),
        "coverage": Quotient(rest, rest, cells.variance[1:2] + noise, np.array([noise]), n_events, noise),
        "entropy": _entropy(found, total, n_events, reach),
    }
    bound = "the total weight" if not wrapped else "that at which the emptiest level would be full"
    unbounded = any(math.isinf(part.curve.ends(1.96)[1]) for part in found)
    return Uncertainty(
        shared(longer, joint),
        longer,
        reach,
        shared(Band(reach.low[whole:], reach.high[whole:], reach.variance[whole:]), np.zeros(1)),
        scalars,
        COVERS + (BOUNDED + bound if unbounded else ""),
    )


def _middle(band: Band) -> float:
    """The middle of a band of one number."""
    return float(band.low[0] + band.high[0]) / 2.0


def _ratio_score(factor: float, t: Floats) -> Floats:
    """t, plus `factor` for an empty slot."""
    return np.asarray(t + factor * (t < 0.5))


def events(found: Sequence[Part]) -> Band:
    """Total weight: collisions do not touch it, so every level counts, crowded or not."""
    each = []
    for part in found:
        for level in part.every:
            band = level.estimator.functional(intervals.identity, cell_mean, float(1 << 30))
            each.append(Band(band.low, band.high, np.maximum(band.variance, 0.0)).scaled(level.m))
    return _added(each)


def _entropy(found: Sequence[Part], total: Band, n_events: float, reach: Reach) -> Entropy:
    """Ln N - S/N with S = sum t ln t Lam_t: light items by the recursion, heavy ones as they stand in the slots.

    Where cells are wide: from everything at their lower ends, in the middle, at their upper ends.
    """
    size = found[0].model.intensity.size
    light = _score(found, intervals.xlogx(np.arange(float(size))))
    variance = float(light.variance[0])
    ends, noise = np.zeros((3, 2)), 0.0
    lines = [
        (part, level, level.estimator) for part in found for level in part.every if isinstance(level.estimator, Line)
    ]
    for part, level, line in lines:
        seen = sum(one.share for one in part.clear)
        factor = 1.0 / seen if any(one is level for one in part.clear) else 0.0
        beside = float(np.arange(size) @ part.model.intensity) * level.share / level.m  # light events in a slot
        ends += level.m * _sums(line, partial(_heavy_score, size, beside), factor)
    ends[:, 1] += float(light.low[0])
    if lines:
        slope = 1.0 + float(ends[1, 1]) / n_events
        for part, level, line in lines:
            seen = sum(one.share for one in part.clear)
            factor = 1.0 / seen if any(one is level for one in part.clear) else 0.0
            beside = float(np.arange(size) @ part.model.intensity) * level.share / level.m
            score = partial(_surprise_score, slope, factor, size, beside)
            noise += level.m**2 * max(float(line.functional(score, score).variance[0]), 0.0)
    else:
        ends[:, 0], noise = n_events, float(total.variance[0]) * (1.0 + float(ends[1, 1]) / n_events) ** 2
    values = [math.log(max(n, 1.0)) - s / max(n, 1.0) for n, s in ends]
    return Entropy(
        np.array([min(values)]), np.array([max(values)]), np.array([(noise + variance) / n_events**2]), reach, total
    )


def _sums(line: Line, heavy: Score, factor: float) -> Floats:
    """(3, 2) total and sum of `heavy` times a factor, per slot, with wide cells at their lower ends, middles, ends."""
    out = np.zeros((3, 2))
    for i, place in enumerate((intervals.identity, cell_mean, _cell_end)):
        for j, score in enumerate((intervals.identity, heavy)):
            if j == 0 or factor > 0.0:
                c = line.coefficients(score, partial(_placed, score, place), 0.0)[0]
                sums = np.array([float(c.sum())])
                out[i, j] = float(line._centred(np.array([float(c @ line.cells.slots)]), sums)[0])
    out[:, 1] *= factor
    return out


def _placed(score: Score, place: Score, start: Floats) -> Floats:
    """A score at a place inside a wide cell, given by its lower end."""
    return np.asarray(score(place(start)))


def _cell_end(start: Floats) -> Floats:
    """Upper end of the wide cell that starts at `start` (the edges' rule: width start // 8)."""
    return np.asarray(start + np.maximum(start // 8.0, 1.0) - 1.0)


def _heavy_score(size: int, beside: float, t: Floats) -> Floats:
    """T ln t from `size` up, less what shares the slot."""
    return np.asarray(intervals.xlogx(np.maximum(t - beside, 1.0)) * (t >= size))


def _surprise_score(slope: float, factor: float, size: int, beside: float, t: Floats) -> Floats:
    """What a slot with count t adds to slope N - S."""
    return np.asarray(slope * t - factor * _heavy_score(size, beside, t))


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
