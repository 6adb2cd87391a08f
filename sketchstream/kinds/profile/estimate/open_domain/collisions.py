"""Open domains: joint inversion of collisions and noise.

In: observed parts whose items were hashed into levels of slots. Out: linear estimates and a law of counts for each
level and part. Touches: nothing.
Source: docs/theory/profile.md 6 (the compound Poisson recursion run backwards); `docs/theory/reconstruction.md`
(influence of a slot, variance of the hash, weights of the levels).

A slot's count is the sum of the counts of the items that fell into it: with Poisson numbers of items, the power series
of the slot law is P(z) = exp(sum_t (Lam_t/m)(z^t - 1)). So log P gives Lam, and d(Lam_t/m)/dP(s) = R_{t-s} with
R = 1/P: to first order, every number is a linear functional of the slot law, to which the formulas of
closed domains apply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.estimate.linear.circle import Circle
from sketchstream.kinds.profile.estimate.linear.line import Line, linear
from sketchstream.kinds.profile.estimate.linear.shifts import joint_of_shifts
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.estimate.open_domain import cardinality, residues, wide_cells
from sketchstream.kinds.profile.estimate.open_domain.cardinality import CROWDED, Curve
from sketchstream.kinds.profile.estimate.open_domain.laws import Level, VarianceModel
from sketchstream.kinds.profile.estimate.uncertainty.bands import decreasing

USEFUL = 5.0
"""Levels with more items than this per slot are left out: their weight would be nothing."""
FIRST_STEPS = 3
"""Steps in which a first law is found."""
TIMES = 4.0
"""Ratio by which one step of the first law may change the number of items at most."""
SIMILAR = 1.1
"""Ratio of two numbers of items up to which parts are read as one: an error of a thousandth of the items."""
GROUPS = 6
"""Groups of similar parts at most; the ratio grows until there are no more."""
RANGE = 512
"""Counts beyond this are taken as they stand in the slots: heavier items hardly ever share one."""
SURELY_ITEMS = 5.0
"""Distance of the data from no items, in standard deviations, below which noise may be all there is."""
MIN_COUNTS = 32
"""Least number of counts that are resolved: asking for fewer must not change what is said of them."""


def largest_resolved(observed: Observed, span: int) -> int:
    """Largest count of the recursion where counts up to `span` are wanted; with residues, every sum may wrap."""
    if observed.modulus is None:
        return span
    return observed.modulus - 1 if observed.modulus <= residues.MAX_MODULUS_READ else min(span, observed.modulus - 1)


def read_levels(observed: Observed, span: int) -> list[Level]:
    """Every level with its slot law."""
    out = []
    for j in range(observed.levels):
        estimator = linear(observed, j)
        law = estimator.shares(span).low.copy()
        law[0] = 1.0 - estimator.tails(span).low[1]
        out.append(Level(estimator, float(observed.slots[j]), observed.shares[j], law))
    return out


def linearise(level: Level, model: VarianceModel) -> Floats:
    """Unbiased Lam_t of one level, index 0 the number of items: one Newton step from the model to the data.

    The recursion itself, run on noisy data, can blow up at large counts; its derivative at the model cannot.
    """
    gap = level.law - _seen_law(level, model)
    r = model.undone(level.m, level.share)
    out = model.intensity * level.share + level.m * np.convolve(r, gap)[: gap.size]
    out[0] = model.items * level.share - level.m * r[0] * gap[0]
    return out


def _seen_law(level: Level, model: VarianceModel) -> Floats:
    """(S+1,) law of a slot's observed count at 0..S: unit `item` counts modulo p, so sums wrap."""
    if not isinstance(level.estimator, Circle):
        return model.slot_law(level.m, level.share)
    each = level.share / level.m
    spectrum = np.fft.rfft(model.intensity * each, level.estimator.p)
    law = np.fft.irfft(np.exp(spectrum - model.items * each), level.estimator.p)
    return np.asarray(law[: model.intensity.size])


@dataclass(frozen=True)
class Spread:
    """Variances of one level's estimates under the model, in squared items of that level.

    Args:
        cell: (S+1,) variances of Lam_t (index 0: of the number of items).
        tail: (S+1,) variances of the number of items with a count of at least 1+t.
        cell_all: (S+1,) covariances of Lam_t with the number of items.
        tail_all: (S+1,) covariances of the tail numbers with the number of items.
    """

    cell: Floats
    tail: Floats
    cell_all: Floats
    tail_all: Floats


def spreads(level: Level, model: VarianceModel) -> Spread:
    """Noise and hash variance of every cell and k+ number of one level.

    d Lam_t = m sum_s R_{t-s} dP(s), d items = -m R_0 dP(0), and the items with at least k are -m sum over s < k of
    (R_0 + .. + R_{k-1-s}) dP(s). Hashing: m Var(score) under the slot law, minus the variance of the items themselves.
    """
    p, r = model.slot_law(level.m, level.share), model.undone(level.m, level.share)
    m, every = level.m, -r[0] * (np.arange(p.size) == 0)

    def both(steps: Floats, own: Floats) -> tuple[Floats, Floats]:
        noise, noise_all = joint_of_shifts(level.estimator, steps, every, p)
        mean = np.convolve(steps, p)[: p.size]
        hashed = m * (np.convolve(steps**2, p)[: p.size] - mean**2) - own
        hashed_all = m * (steps * (every[0] * p[0]) - mean * float(every @ p)) - own
        return m * m * noise + np.maximum(hashed, 0.0), m * m * noise_all + hashed_all

    cell, cell_all = both(r, model.numbers * level.share)
    tail, tail_all = both(-np.cumsum(r), model.tails[1:] * level.share)
    cell[0], cell_all[0] = tail[0], tail_all[0]
    return Spread(cell, tail, cell_all, tail_all)


def window_spreads(level: Level, model: VarianceModel, width: int, own: Floats) -> Floats:
    """Noise and hash variance of the means of neighbouring k+ numbers of one level.

    Args:
        level: one level.
        model: the law of items.
        width: number of k+ numbers in a mean.
        own: (r,) sum of the squared scores over the items of the level, for each mean by its first k.
    """
    p, r, m = model.slot_law(level.m, level.share), model.undone(level.m, level.share), level.m
    steps = np.convolve(-np.cumsum(r), np.ones(width) / width)[: r.size]  # where the last k is one more than the index
    noise, _ = joint_of_shifts(level.estimator, steps, np.zeros(p.size), p)
    hashed = m * (np.convolve(steps**2, p)[: p.size] - np.convolve(steps, p)[: p.size] ** 2)
    window = slice(width - 1, width - 1 + own.size)
    return np.asarray(m * m * noise[window] + np.maximum(hashed[window] - own, 0.0))


def merge_levels(variance: Floats, shares: Floats, population: Floats) -> tuple[Floats, Floats]:
    """Weights of the levels and the variance of the weighted estimate, for each number.

    Args:
        variance: (L, r) variance of each level's own estimate.
        shares: (L,) expected shares of items.
        population: (r,) sum of the squared scores over the items, for the variance of the random split.

    Returns: (L, r) weights of estimate / share, which sum to 1; (r,) variance of the sum.
    """
    s = shares[:, None]
    own = variance / s**2
    weight = 1.0 / np.maximum(own + population / s, 1e-12)
    weight /= weight.sum(axis=0)
    split = np.maximum((weight**2 / s).sum(axis=0) - 1.0, 0.0)
    return weight, (weight**2 * own).sum(axis=0) + population * split


@dataclass(frozen=True)
class ObservedPart:
    """Observations and estimates of one part.

    Args:
        observed: a published histogram.
        every: all levels.
        levels: the levels that are informative about single counts.
        curve: curve of the number of items.
        model: non-negative law of items.
    """

    observed: Observed
    every: list[Level]
    levels: list[Level]
    curve: Curve
    model: VarianceModel

    @property
    def clear(self) -> list[Level]:
        """The levels in which a heavy item is nearly alone in its slot: those that are not crowded, or the emptiest."""
        load = [self.curve.value * level.share / level.m for level in self.levels]
        return [level for level, one in zip(self.levels, load, strict=True) if one <= max(CROWDED, min(load))]


def read_part(observed: Observed, span: int) -> ObservedPart:
    """Estimate the number of items of one part, and a first law of them.

    Raises:
        EstimateError: every level is crowded, or noise hides how many items there are.
    """
    levels = read_levels(observed, span)
    if residues.exact(levels):
        curve, model = _of_residues(levels)
        clear = levels
    else:
        raw = sum((level.m * level.law for level in levels), np.zeros(span + 1))
        raw[0] = max(sum(level.m for level in levels) - raw[0], 1.0)
        model = nonnegative(raw)
        for _ in range(2):  # the noise of the empty slots depends on how many slots hold 1 or 2
            curve = cardinality.curve(levels, model)
            items = curve.value
            clear = useful(levels, items)
            model = _first_law(clear, model, items)
    crowded, exact = cardinality.is_overcrowded(levels, curve), residues.exact(levels)
    if crowded or (exact and residues.is_saturated(levels, curve)):
        if float(curve.distance[0]) < SURELY_ITEMS:
            raise EstimateError(
                "noise hides how many items there are: what is published may hold none as well as more than can be "
                "told apart; take a larger epsilon, fewer slots or fewer levels"
            )
        if crowded:
            raise EstimateError(
                f"every level is too crowded: there are more than {CROWDED:.3g} items in each slot, and what is "
                "published cannot tell how many; take more slots or more levels"
            )
        raise EstimateError(
            f"every level is too crowded: there are more than {residues.saturating_load(levels):.2g} items in each "
            f"slot, and sums modulo {observed.modulus} cannot tell how many; take more slots, more levels or a larger "
            "modulus"
        )
    return ObservedPart(observed, levels, clear, curve, with_heavy(model, clear))


def with_heavy(model: VarianceModel, levels: Sequence[Level]) -> VarianceModel:
    """Add one count beyond the recursion to the law: a few steps from the counts of the slots."""
    lines = [level.estimator for level in levels if isinstance(level.estimator, Line)]
    cells = wide_cells.wide_cells_of(lines[0], model.intensity.size - 1) if lines else None
    if cells is None:
        return model
    model = replace(model, heavy=wide_cells.initial_law(cells, lines))
    for _ in range(FIRST_STEPS if model.beyond > 0.0 else 0):
        tails = decreasing(np.append(model.beyond, wide_estimates(levels, model)[1].values)).clip(0.0, model.beyond)
        model = replace(model, heavy=wide_cells.uniform_law(cells, -np.diff(tails, append=0.0)))
    return model


@dataclass(frozen=True)
class Merged:
    """Estimates of all levels together.

    Args:
        values: (r,) the estimates.
        variances: (r,) their variances.
        joints: (r,) their covariances with the number of items.
    """

    values: Floats
    variances: Floats
    joints: Floats


def wide_estimates(levels: Sequence[Level], model: VarianceModel, first: Floats | None = None) -> tuple[Merged, Merged]:
    """Items in each wide cell but the last, and items from each further edge on, from all levels.

    Args:
        levels: the informative levels.
        model: the law to linearise at, with its heavy items.
        first: (L,) weights of the levels for the number of items; None if covariances are not wanted.
    """
    assert model.heavy is not None
    shares = np.array([level.share for level in levels])
    each = []
    for level in levels:
        assert isinstance(level.estimator, Line)
        each.append(
            wide_cells.estimates(level.estimator, level.m, level.share, model.intensity, model.beyond, model.heavy)
        )
    items = model.beyond * model.heavy.cells
    out = []
    for found, own in (
        (np.array([one.cell for one in each]), items[:-1]),
        (np.array([one.tail for one in each]), np.cumsum(items[::-1])[::-1][1:]),
    ):
        weight, variance = merge_levels(found[:, 1], shares, own)
        values = (weight * found[:, 0] / shares[:, None]).sum(axis=0)
        out.append(Merged(values, variance, np.zeros(values.size)))
        if first is not None:
            out[-1] = replace(out[-1], joints=covariance_with_items(weight, first[:, None], found[:, 2], shares, own))
    return out[0], out[1]


def covariance_with_items(weight: Floats, first: Floats, cross: Floats, shares: Floats, own: Floats) -> Floats:
    """Covariances of merged estimates with the number of items.

    Args:
        weight: (L, r) weights of the levels.
        first: (L, 1) weights of the levels for the number of items.
        cross: (L, r) covariances within the levels.
        shares: (L,) expected shares of items.
        own: (r,) sum over the items of the product of both scores.
    """
    joint = (weight * first * cross / shares[:, None] ** 2).sum(axis=0)
    return np.asarray(joint + own * ((weight * first / shares[:, None]).sum(axis=0) - 1.0))


def _of_residues(levels: Sequence[Level]) -> tuple[Curve, VarianceModel]:
    """Unit item: the curve of the number of items, and a first law of them."""
    data = residues.Residues(levels)
    start = data.start()
    model = VarianceModel(start, 0.0)
    for _ in range(FIRST_STEPS):
        value = data.law(start, model.intensity)
        around = max(model.items, 1.0)
        model = _positive(value, float(np.clip(value.sum(), around / TIMES, min(around * TIMES, data.most))))
    curve = data.curve(model.intensity)
    for _ in range(FIRST_STEPS):
        model = _positive(model.intensity[1:], curve.value)
        model = _positive(data.law(start, model.intensity), curve.value)
    return curve, model


def _positive(value: Floats, items: float) -> VarianceModel:
    """The closest law without negative numbers to estimates at counts 1..p-1, scaled to a number of items."""
    model = nonnegative(np.append(max(float(value.sum()), 0.0), value))
    have = float(model.intensity.sum())
    if have <= 0.0:
        return VarianceModel(np.where(np.arange(value.size + 1) == 1, items, 0.0), 0.0)
    return VarianceModel(model.intensity * (items / have), 0.0)


def useful(levels: Sequence[Level], items: float) -> list[Level]:
    """The levels that are still informative with this many items; always the emptiest one."""
    emptiest = min(level.share / level.m for level in levels)
    return [level for level in levels if level.share / level.m <= max(USEFUL / max(items, 1.0), emptiest)]


def _first_law(levels: Sequence[Level], shape: VarianceModel, items: float) -> VarianceModel:
    """A non-negative law: a few steps from the counts of the slots, at a fixed number of items."""
    if items <= 0.0 or shape.items <= 0.0:
        return VarianceModel(np.zeros_like(shape.intensity), 0.0)
    model = shape.scaled(items / shape.items)
    weight = cardinality.weights(levels, model)
    for _ in range(FIRST_STEPS):
        raw = np.zeros(shape.intensity.size)
        for w, level in zip(weight, levels, strict=True):
            raw += w / level.share * linearise(level, model)
        raw[0] = items
        model = nonnegative(raw)
    return model


def nonnegative(raw: Floats) -> VarianceModel:
    """The closest model without negative numbers, by isotonic regression of the k+ numbers."""
    total = max(raw[0], 0.0)
    tails = total - np.concatenate([[0.0], np.cumsum(raw[1:])])
    tails = decreasing(tails).clip(0.0, total)
    return VarianceModel(np.concatenate([[0.0], -np.diff(tails)]), float(tails[-1]))


def alike(parts: Sequence[Observed]) -> list[list[int]]:
    """Group the parts to add: those whose loads (items per slot) do not differ, or hardly.

    Added parts are read as one sketch with the average load, which is exact for equal loads; for a load l with
    coefficient of variation v, the number of items is l v^2 / 2 too low.

    Args:
        parts: parts with equal noise and equal slots, one for each publication.
    """
    numbers = []
    for part in parts:
        try:
            curve = read_part(part, largest_resolved(part, MIN_COUNTS)).curve
            numbers.append((curve.value, (curve.ends(1.0)[1] - curve.ends(1.0)[0]) / 2.0))
        except EstimateError:
            numbers.append((math.inf, 0.0))
    order = sorted(range(len(parts)), key=lambda i: numbers[i])
    ratio = SIMILAR
    while True:
        groups: list[list[int]] = []
        for i in order:
            items, sd = numbers[i]
            least, its = numbers[groups[-1][0]] if groups else (-math.inf, 0.0)
            if groups and (items <= ratio * least or items - least <= 4.0 * math.hypot(sd, its)):
                groups[-1].append(i)
            else:
                groups.append([i])
        if len(groups) <= GROUPS:
            return groups
        ratio *= 1.1
