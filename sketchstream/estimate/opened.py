"""Open domains: collisions undone together with the noise.

In: observed parts whose items were hashed into levels of slots. Out: the profile over distinct items, with bands.
Touches: nothing.
Source: profile specification 5.6 (the compound Poisson recursion run backwards); `docs/theory/reconstruction.md`
(influence of a slot, variance of the hash, weights of the levels).

A slot's count is the sum of the counts of the items that fell into it: with Poisson numbers of items, the power series
of the slot law is P(z) = exp(sum_t (Lam_t/m)(z^t - 1)). So log P gives Lam, and d(Lam_t/m)/dP(s) = R_{t-s} with
R = 1/P: every number asked for is, to first order, a linear functional of the slot law, to which the formulas of
closed domains apply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sketchstream.errors import EstimateError
from sketchstream.estimate import fit as fits
from sketchstream.estimate.fit import Fit
from sketchstream.estimate.intervals import Uncertainty
from sketchstream.estimate.linear import Circle, Line, linear
from sketchstream.estimate.monotone import decreasing
from sketchstream.estimate.observed import FAR, Cells, Floats, Observed

CROWDED = 1.75
"""Levels with more items than this per slot are left out (specification 5.6); those near it weigh little anyway."""
RANGE = 512
"""Counts beyond this are taken as they stand in the slots: heavier items hardly ever share one."""


@dataclass(frozen=True)
class Level:
    """One level of one part: unbiased slot law and what follows from it.

    Args:
        estimator: linear estimates. m: slots. share: expected share of the items.
        law: (S+1,) estimated slot law at 0..S. items: estimated number of items (inf if too crowded to say).
        intensity: (S+1,) estimated Lam_t, index 0 unused (0).
    """

    estimator: Line | Circle
    m: float
    share: float
    law: Floats
    items: float
    intensity: Floats


def log_series(p: Floats) -> Floats:
    """Lam_t/m for t = 1..S from the slot law P(0..S): coefficients of log P, index 0 set to 0. O(S^2)."""
    out = np.zeros_like(p)
    weighted = np.zeros_like(p)
    for s in range(1, p.size):
        out[s] = (p[s] - weighted[1:s] @ p[s - 1 : 0 : -1] / s) / p[0]
        weighted[s] = s * out[s]
    return out


def exp_series(intensity: Floats, load: float) -> Floats:
    """P(0..S) of the compound Poisson law with intensities Lam_t/m (index 0 ignored) and their full sum `load`."""
    out = np.zeros_like(intensity)
    weighted = intensity * np.arange(intensity.size)
    out[0] = math.exp(-load)
    for s in range(1, out.size):
        out[s] = weighted[1 : s + 1] @ out[s - 1 :: -1][:s] / s
    return out


def reciprocal(p: Floats) -> Floats:
    """R with R(z) P(z) = 1 up to the length of p. O(S^2)."""
    out = np.zeros_like(p)
    out[0] = 1.0 / p[0]
    for s in range(1, p.size):
        out[s] = -(p[1 : s + 1] @ out[s - 1 :: -1][:s]) / p[0]
    return out


def read_levels(observed: Observed, span: int) -> list[Level]:
    """Every level, with the recursion of specification 5.6 run backwards where it can be."""
    out = []
    for j in range(observed.levels):
        estimator = linear(observed, j)
        m = float(observed.slots[j])
        tails = estimator.tails(span)
        law = estimator.shares(span).low.copy()
        law[0] = 1.0 - tails.low[1]
        sd = math.sqrt(max(float(tails.variance[1]), 0.0))
        if law[0] < math.exp(-CROWDED) or law[0] < 4.0 * sd:
            out.append(Level(estimator, m, observed.shares[j], law, math.inf, np.zeros(span + 1)))
        else:
            intensity = m * log_series(law)
            out.append(Level(estimator, m, observed.shares[j], law, -m * math.log(law[0]), intensity))
    if all(math.isinf(level.items) for level in out):
        msg = "no level allows an estimate: each is too crowded, or too small for its noise; take more slots or levels"
        raise EstimateError(msg)
    return out


@dataclass(frozen=True)
class Model:
    """The law of items that stands behind the variances: Lam_t for t <= S and how many items lie above.

    Args:
        intensity: (S+1,) items at each count, index 0 unused. beyond: items with larger counts.
    """

    intensity: Floats
    beyond: float

    @property
    def items(self) -> float:
        """Number of distinct items."""
        return float(self.intensity[1:].sum()) + self.beyond

    def slot_law(self, m: float, share: float) -> Floats:
        """(S+1,) law of a slot's count at 0..S in a level of m slots."""
        return exp_series(self.intensity * (share / m), self.items * share / m)


def linearised(level: Level, model: Model) -> Floats:
    """Unbiased Lam_t of one level, index 0 the number of items: one step from the model towards what was seen.

    The recursion itself, run on noisy data, can blow up at large counts; its derivative at the model cannot.
    """
    p = model.slot_law(level.m, level.share)
    r = reciprocal(p)
    gap = level.law - p
    out = model.intensity * level.share + level.m * np.convolve(r, gap)[: p.size]
    out[0] = model.items * level.share - level.m * r[0] * gap[0]
    return out


@dataclass(frozen=True)
class Spread:
    """Variances of one level's estimates under the model, in squared items of that level.

    Args:
        cell: (S+1,) of Lam_t (index 0: of the number of items). tail: (S+2,) of the items with a count of at least k.
        with_all: (S+1,) covariance of Lam_t with the number of items.
        noise_all: the part of tail[1] that is noise, not hashing.
    """

    cell: Floats
    tail: Floats
    with_all: Floats
    noise_all: float


def spreads(level: Level, model: Model) -> Spread:
    """Noise and hash variance of every cell and k+ number of one level.

    d Lam_t = m sum_s R_{t-s} dP(s), d items = -m R_0 dP(0), and the items with at least k are -m sum over s < k of
    (R_0 + .. + R_{k-1-s}) dP(s). Hashing: m Var(score) under the slot law, less what the items themselves vary.
    """
    from scipy.linalg import toeplitz

    p = model.slot_law(level.m, level.share)
    r, m, size = reciprocal(p), level.m, p.size
    zeros = np.zeros(size)
    every = -r[0] * (np.arange(size) == 0)
    cells = toeplitz(r, zeros)
    cells[0] = every
    climb = -toeplitz(np.cumsum(r), zeros)
    lam = model.intensity * level.share
    reach = level.share * (np.append(np.cumsum(model.intensity[::-1])[::-1], 0.0) + model.beyond)
    cell, with_all = level.estimator.joint(cells, every, p)
    tail, _ = level.estimator.joint(climb, every, p)
    cell, with_all, tail = m * m * cell, m * m * with_all, m * m * tail
    noise_all = float(tail[0])
    hash_cell = m * ((cells * cells) @ p - (cells @ p) ** 2) - lam
    hash_with = m * ((cells * every) @ p - (cells @ p) * float(every @ p)) - lam
    hash_tail = m * ((climb * climb) @ p - (climb @ p) ** 2) - reach[1:]
    hash_cell[0] = hash_tail[0]
    return Spread(
        cell + np.maximum(hash_cell, 0.0),
        np.concatenate([[0.0], tail + np.maximum(hash_tail, 0.0)]),
        with_all + hash_with,
        noise_all,
    )


def merged(variance: Floats, shares: Floats, population: Floats) -> tuple[Floats, Floats]:
    """Weights of the levels and the variance of the weighted estimate, for each number.

    Args:
        variance: (L, r) of each level's own estimate, inf where it has none.
        shares: (L,) expected shares of items.
        population: (r,) sum of the squared scores over the items: what the random split into levels adds.

    Returns: (L, r) weights of estimate / share, which sum to 1; (r,) variance of the sum.
    """
    s = shares[:, None]
    own = variance / s**2
    weight = 1.0 / np.maximum(own + population / s, 1e-12)
    weight /= weight.sum(axis=0)
    parts = np.where(weight > 0.0, weight**2 * np.where(np.isinf(own), 0.0, own), 0.0)
    split = np.maximum((weight**2 / s).sum(axis=0) - 1.0, 0.0)
    return weight, parts.sum(axis=0) + population * split


def first_model(levels: Sequence[Level], span: int) -> Model:
    """A non-negative model from the recursions of all levels that are not crowded, by inverse variance."""
    shares = np.array([level.share for level in levels])
    items = np.array([level.items for level in levels])
    known = np.isfinite(items)
    guess = float(np.median(items[known] / shares[known]))
    for _ in range(4):
        variance = np.full((len(levels), 1), np.inf)
        for j, level in enumerate(levels):
            if known[j]:
                load = min(max(guess, 1.0) * level.share / level.m, 20.0)
                noise = float(level.estimator.tails(1).variance[1])
                law0 = math.exp(-load)
                variance[j] = max(level.m**2 * noise / law0**2 + level.m * (math.exp(load) - 1.0 - load), 1e-9)
        weight, _ = merged(variance, shares, np.array([max(guess, 1.0)]))
        guess = float((weight[known, 0] * items[known] / shares[known]).sum())
    raw = np.zeros(span + 1)
    for j, level in enumerate(levels):
        if known[j]:
            raw += weight[j, 0] * level.intensity / level.share
    raw[0] = guess
    return nonnegative(raw)


def nonnegative(raw: Floats) -> Model:
    """The closest model with no negative number: k+ numbers made non-increasing."""
    total = max(raw[0], 0.0)
    tails = total - np.concatenate([[0.0], np.cumsum(raw[1:])])
    tails = decreasing(tails).clip(0.0, total)
    return Model(np.concatenate([[0.0], -np.diff(tails)]), float(tails[-1]))


def reconstruct(parts: Sequence[Observed], method: str, n: int) -> tuple[Fit, float, Uncertainty]:
    """Profile over the distinct items of an open domain.

    Returns: the fit (shares over items, index 0 is 0), the number of items, the bands.
    """
    from sketchstream.estimate import opened_bands

    span = min([min(n + 1, RANGE)] + [int(min(linear(part).resolved, FAR)) for part in parts])
    groups = [read_levels(part, span) for part in parts]
    models = tuple(first_model(group, span) for group in groups)
    if method == "likelihood":
        from sketchstream.estimate import opened_likelihood

        models = tuple(opened_likelihood.fit(p, g, m) for p, g, m in zip(parts, groups, models, strict=True))
    total = Model(np.sum([m.intensity for m in models], axis=0), sum(m.beyond for m in models))
    light, beyond = total.intensity, total.beyond
    if method == "inverse":
        light, beyond = np.zeros(span + 1), 0.0
        for group, model in zip(groups, models, strict=True):
            part = opened_bands.of_part(group, model)
            light += part.cells.low * (np.arange(span + 1) > 0)
            beyond += float(part.tails.low[1] - part.cells.low[1:].sum())
    fit, population = _whole(groups, light, beyond, n)
    if parts[0].unit == "event":
        band = opened_bands.events(groups)
        fit = _with_total(fit, float(band.low[0] + band.high[0]) / 2.0 / population, n)
    return fit, population, opened_bands.bands(groups, models, n)


def _with_total(fit: Fit, mean: float, n: int) -> Fit:
    """Heavy counts moved so that the law has the total that every level together shows.

    Where items lie above n, crowded levels hide which; their sum is known exactly all the same.
    """
    rest = mean - float(np.arange(n + 1.0) @ fit.fractions)
    have = float(fit.heavy @ fit.heavy_shares)
    if fit.above != 0.0 and (have <= 0.0 or rest <= (n + 1.0) * fit.above):
        return Fit(fit.fractions, np.array([rest / fit.above]), np.array([fit.above]))
    if have <= 0.0:
        return fit
    room = have - (n + 1.0) * fit.above
    if room <= 0.0:
        return Fit(fit.fractions, fit.heavy * (rest / have), fit.heavy_shares)
    return Fit(
        fit.fractions, n + 1.0 + (fit.heavy - n - 1.0) * ((rest - (n + 1.0) * fit.above) / room), fit.heavy_shares
    )


def _whole(groups: Sequence[Sequence[Level]], light: Floats, beyond: float, n: int) -> tuple[Fit, float]:
    """Light items from the recursion, heavier ones as they stand in the slots: shares over all items."""
    span = light.size - 1
    population = max(float(light.sum()) + beyond, 1e-9)
    fractions = np.zeros(n + 1)
    fractions[: min(span, n) + 1] = light[: n + 1] / population
    counts, weights, dense = [], [], np.zeros(max(n - span, 0))
    for group in groups:
        for level in (one for one in group if math.isfinite(one.items)):
            cells = _cells(level)
            if n > span:
                dense += np.maximum(fits.spread(cells, span + 1, n), 0.0) * cells.d
            at, share = fits.above(cells, max(n, span), 1.0)
            heavy = float(np.maximum(cells.slots[cells.low > max(n, span)], 0.0).sum())
            counts.append(at)
            weights.append(share * heavy)
    at, weight = np.concatenate(counts), np.concatenate(weights)
    order = np.argsort(at, kind="stable")
    at, weight = at[order], weight[order]
    mass = dense.sum() + weight.sum()
    if beyond != 0.0 and mass > 0.0:
        fractions[span + 1 :] = dense * (beyond / mass / population)
        keep = weight > 0.0
        if span > n:  # one resolved count beyond n
            at, weight = np.append(at, n + 1.0), np.append(weight * (beyond / mass), light[-1])
            return Fit(fractions, at[np.append(keep, True)], weight[np.append(keep, True)] / population), population
        return Fit(fractions, at[keep], weight[keep] * (beyond / mass / population)), population
    extra = beyond + (float(light[n + 1 :].sum()) if span > n else 0.0)
    return Fit(fractions, np.array([max(n, span) + 1.0]), np.array([extra / population])), population


def _cells(level: Level) -> Cells:
    """The cells of a level, whatever its unit."""
    estimator = level.estimator
    if isinstance(estimator, Circle):
        at = np.arange(estimator.p, dtype=np.int64)
        return Cells(at, at, estimator.slots, estimator.d)
    return estimator.cells
