"""Intervals of open domains: noise, collisions and the random split into levels, by the delta method.

In: levels, the fitted models, the fit. Out: `Uncertainty`. Touches: nothing.
Source: profile specification 5.5 and 5.6; `docs/theory/reconstruction.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sketchstream.estimate import intervals
from sketchstream.estimate.intervals import Uncertainty, cell_mean
from sketchstream.estimate.linear import Band, Circle
from sketchstream.estimate.observed import Floats
from sketchstream.estimate.opened import Level, Model, Spread, linearised, merged, reciprocal, spreads

COVERS = (
    "the noise (of the counters and of the publication), the collisions of items in slots and their random split into "
    "levels"
)


@dataclass(frozen=True)
class Part:
    """Bands of one part.

    Args:
        cells: of Lam_t, index 0 of the number of items. tails: of the items with a count of at least 0..S+1.
        with_all: covariance of Lam_t with the number of items.
        pull: for each level, what one more empty slot (as a share) takes from the number of items.
        hashed: variance of the number of items without its noise.
    """

    cells: Band
    tails: Band
    with_all: Floats
    pull: list[float]
    hashed: float


def bands(groups: Sequence[Sequence[Level]], models: Sequence[Model], n: int) -> Uncertainty:
    """Bands of every number of an open domain; parts add."""
    parts = [of_part(group, model) for group, model in zip(groups, models, strict=True)]
    cells, tails = _sum([part.cells for part in parts]), _sum([part.tails for part in parts])
    with_all = np.sum([part.with_all for part in parts], axis=0)
    items = max(float(tails.low[1]), 1.0)
    share = cells.low / items
    ratio = (cells.variance - 2.0 * share * with_all + share**2 * tails.variance[1]) / items**2
    fractions = Band(share, share, np.maximum(ratio, 1e-3 * cells.variance / items**2))
    wrapped = any(isinstance(level.estimator, Circle) for group in groups for level in group)
    total = _score(groups, models, np.arange(float(cells.low.size))) if wrapped else events(groups)
    n_events = max((float(total.low[0]) + float(total.high[0])) / 2.0, 1e-9)
    mean = n_events / items
    if wrapped:
        mean_variance = float(_score(groups, models, np.arange(float(cells.low.size)) - mean).variance[0])
    else:
        mean_variance = mean**2 * sum(part.hashed for part in parts)
        for part, group in zip(parts, groups, strict=True):
            for level, pull in zip(group, part.pull, strict=True):
                taken = partial(_ratio_score, mean * pull)
                variance = float(level.estimator.functional(taken, cell_mean).variance[0])
                mean_variance += level.m**2 * max(variance, 0.0)
    rare, rare_variance = float(cells.low[1]) / n_events, float(cells.variance[1])
    scalars = {
        "total": total,
        "mean": Band(total.low / items, total.high / items, np.array([mean_variance / items**2])),
        "one_hit_ratio": Band(fractions.low[1:2], fractions.high[1:2], fractions.variance[1:2]),
        "coverage": Band(
            np.array([1.0 - rare]),
            np.array([1.0 - rare]),
            np.array([(rare_variance + rare**2 * float(total.variance[0])) / n_events**2]),
        ),
        "entropy": _entropy(groups, models, total, n_events),
    }
    heavy = _heavy_tails(groups, n)
    return Uncertainty(
        _longer(fractions, heavy, 1.0 / items, n),
        _longer(cells, heavy, 1.0, n),
        _reach(tails, heavy, n),
        _above(tails, heavy, items, n),
        scalars,
        COVERS,
    )


def _ratio_score(factor: float, t: Floats) -> Floats:
    """t, plus `factor` for an empty slot."""
    return np.asarray(t + factor * (t < 0.5))


def events(groups: Sequence[Sequence[Level]]) -> Band:
    """Total weight: collisions do not touch it, so every level counts, crowded or not."""
    each = []
    for group in groups:
        for level in group:
            band = level.estimator.functional(intervals.identity, cell_mean, float(1 << 30))
            each.append(Band(band.low, band.high, np.maximum(band.variance, 0.0)).scaled(level.m))
    return _sum(each)


def of_part(group: Sequence[Level], model: Model) -> Part:
    """Bands of the numbers of one part."""
    size = model.intensity.size
    known = [j for j, level in enumerate(group) if math.isfinite(level.items)]
    shares = np.array([group[j].share for j in known])
    each: list[Spread] = [spreads(group[j], model) for j in known]
    reach = np.append(np.cumsum(model.intensity[::-1])[::-1], 0.0) + model.beyond
    lam = np.append(model.items, model.intensity[1:])
    cell_weight, cell_variance = merged(np.array([e.cell for e in each]), shares, lam)
    tail_weight, tail_variance = merged(np.array([e.tail[1:] for e in each]), shares, reach[1:])
    cell, tail, with_all = np.zeros(size), np.zeros(size), np.zeros(size)
    hashed, pull = float(tail_variance[0]), [0.0] * len(group)
    for i, j in enumerate(known):
        level = group[j]
        seen = linearised(level, model)
        cell += cell_weight[i] * seen / level.share
        tail += tail_weight[i] * (seen[0] - np.concatenate([[0.0], np.cumsum(seen[1:])])) / level.share
        factor = tail_weight[i, 0] / level.share
        with_all += cell_weight[i] / level.share * factor * each[i].with_all
        hashed -= factor**2 * each[i].noise_all
        pull[j] = factor * math.exp(model.items * level.share / level.m)
    with_all += lam * np.maximum((cell_weight * tail_weight[:, :1] / shares[:, None]).sum(axis=0) - 1.0, 0.0)
    tails = np.append(tail[0], tail)
    return Part(
        Band(cell, cell, cell_variance),
        Band(tails, tails, np.append(tail_variance[0], tail_variance)),
        with_all,
        pull,
        max(hashed, 0.0),
    )


def _entropy(groups: Sequence[Sequence[Level]], models: Sequence[Model], total: Band, n_events: float) -> Band:
    """Ln N - S/N with S = sum t ln t Lam_t: light items by the recursion, heavy ones as they stand in the slots."""
    size = models[0].intensity.size
    light = _score(groups, models, intervals.xlogx(np.arange(float(size))))
    variance, low, high = float(light.variance[0]), float(light.low[0]), float(light.high[0])
    for group, model in zip(groups, models, strict=True):
        known = [level for level in group if math.isfinite(level.items)]
        seen = float(sum(level.share for level in known))
        lighter = float(np.arange(size) @ model.intensity)
        for level in known:
            beside = lighter * level.share / level.m  # events of light items in a heavy item's slot
            score, middle = partial(_heavy_score, size, beside), partial(_heavy_middle, size, beside)
            band = level.estimator.functional(score, middle)
            low += level.m * float(band.low[0]) / seen
            high += level.m * float(band.high[0]) / seen
            variance += level.m**2 * max(float(band.variance[0]), 0.0) / seen**2
    ends = np.array([low, high])
    slope = 1.0 / n_events + float(ends.mean()) / n_events**2
    value = math.log(n_events) - ends / n_events
    return Band(np.array([value.min()]), np.array([value.max()]), total.variance * slope**2 + variance / n_events**2)


def _score(groups: Sequence[Sequence[Level]], models: Sequence[Model], score: Floats) -> Band:
    """Sum of score_t Lam_t over the counts of the recursion, all parts and levels."""
    value, variance = 0.0, 0.0
    for group, model in zip(groups, models, strict=True):
        known = [level for level in group if math.isfinite(level.items)]
        shares = np.array([level.share for level in known])
        own = np.array([[_score_variance(level, model, score)] for level in known])
        weight, spread = merged(own, shares, np.array([float(score[1:] ** 2 @ model.intensity[1:])]))
        for w, level in zip(weight[:, 0], known, strict=True):
            value += w * float(score[1:] @ linearised(level, model)[1:]) / level.share
        variance += float(spread[0])
    return Band(np.array([value]), np.array([value]), np.array([variance]))


def _heavy_score(size: int, beside: float, t: Floats) -> Floats:
    """T ln t from `size` up, less what shares the slot."""
    return np.asarray(intervals.xlogx(np.maximum(t - beside, 1.0)) * (t >= size))


def _heavy_middle(size: int, beside: float, start: Floats) -> Floats:
    """The same at the middle of a wide cell."""
    return _heavy_score(size, beside, cell_mean(start))


def _score_variance(level: Level, model: Model, score: Floats) -> float:
    """Variance of sum_t score_t Lam_t from one level: noise and hashing."""
    p = model.slot_law(level.m, level.share)
    r = reciprocal(p)
    score = np.concatenate([[0.0], score[1:]])
    b = np.array([float(score[s:] @ r[: r.size - s]) for s in range(r.size)])
    noise, _ = level.estimator.joint(b[None, :], b, p)
    hashed = level.m * (float(b * b @ p) - float(b @ p) ** 2) - float(score**2 @ model.intensity) * level.share
    return level.m**2 * float(noise[0]) + max(hashed, 0.0)


def _heavy_tails(groups: Sequence[Sequence[Level]], n: int) -> Band:
    """Slots at or above 0..n+1 over the levels that are not crowded, scaled to all items."""
    out = []
    for group in groups:
        known = [level for level in group if math.isfinite(level.items)]
        seen = sum(level.share for level in known)
        out += [level.estimator.tails(n).scaled(level.m / seen) for level in known]
    return _sum(out)


def _longer(band: Band, heavy: Band, scale: float, n: int) -> Band:
    """Cells up to n: the recursion's, then what the slots show. Index 0 is 0: absent items are unknown."""
    span = band.low.size - 1
    low, high, variance = np.zeros(n + 1), np.zeros(n + 1), np.zeros(n + 1)
    top = min(span, n)
    low[1 : top + 1], high[1 : top + 1], variance[1 : top + 1] = (
        band.low[1 : top + 1], band.high[1 : top + 1], band.variance[1 : top + 1],
    )  # fmt: skip
    if n > span:
        t = np.arange(span + 1, n + 1)
        high[span + 1 :] = np.maximum(heavy.high[t] - heavy.low[t + 1], 0.0) * scale
        variance[span + 1 :] = (heavy.variance[t] + heavy.variance[t + 1]) * scale**2
    return Band(low, high, variance)


def _reach(tails: Band, heavy: Band, n: int) -> Band:
    """k+ numbers for k = 0..n+1."""
    top = min(tails.low.size, n + 2)
    return Band(
        np.concatenate([tails.low[:top], heavy.low[top:]]),
        np.concatenate([tails.high[:top], heavy.high[top:]]),
        np.concatenate([tails.variance[:top], heavy.variance[top:]]),
    )


def _above(tails: Band, heavy: Band, items: float, n: int) -> Band:
    """Share of the items above n."""
    whole = _reach(tails, heavy, n)
    return Band(whole.low[-1:], whole.high[-1:], whole.variance[-1:]).scaled(1.0 / items)


def _sum(parts: Sequence[Band]) -> Band:
    """Bands of sums of independent estimates."""
    return Band(
        np.sum([b.low for b in parts], axis=0),
        np.sum([b.high for b in parts], axis=0),
        np.sum([b.variance for b in parts], axis=0),
    )
