"""Open domains: from published histograms to the profile over distinct items.

In: observed parts whose items were hashed into levels of slots. Out: the fit, the number of items, the bands.
Touches: nothing.
Source: docs/theory/profile.md 6; docs/theory/reconstruction.md (weights of the levels).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sketchstream.kinds.profile.estimate import fit as fits
from sketchstream.kinds.profile.estimate.fit import Fit
from sketchstream.kinds.profile.estimate.intervals.bounds import Uncertainty
from sketchstream.kinds.profile.estimate.linear.circle import Circle
from sketchstream.kinds.profile.estimate.linear.line import linear
from sketchstream.kinds.profile.estimate.observed import FAR, Cells, Floats, Observed
from sketchstream.kinds.profile.estimate.open_domain import events, intervals
from sketchstream.kinds.profile.estimate.open_domain.collisions import RANGE, SHORT, Level, Model, Part, read_part


def reconstruct(parts: Sequence[Observed], method: str, n: int) -> tuple[Fit, float, Uncertainty]:
    """Profile over the distinct items of an open domain.

    Returns: the fit (shares over items, index 0 is 0), the number of items, the bands.
    """
    least = 1 if method == "inverse" else SHORT  # each further unregularised cell costs accuracy
    span = min([min(max(n + 1, least), RANGE)] + [int(min(linear(part).resolved, FAR)) for part in parts])
    found = [read_part(part, span) for part in parts]
    if method == "likelihood":
        # imported only if chosen: it takes a tenth of a second, and the other methods do not need it
        from sketchstream.kinds.profile.estimate.open_domain import likelihood

        found = [
            replace(part, model=_counted(likelihood.fit(one, part), part.curve.value))
            for one, part in zip(parts, found, strict=True)
        ]
    models = [part.model for part in found]
    light, beyond = np.sum([model.intensity for model in models], axis=0), sum(model.beyond for model in models)
    if method == "inverse":
        light, beyond = np.zeros(span + 1), 0.0
        for part in found:
            known = intervals.of_part(part)
            light += known.cells.low * (np.arange(span + 1) > 0)
            beyond += float(known.tails.low[0] - known.cells.low[1:].sum())
        if float(light.sum()) + beyond < 1.0:  # signed numbers with a sum below one item: shares are undefined
            return Fit(np.zeros(n + 1), np.zeros(0), np.zeros(0)), 0.0, intervals.bands(found, n)
    fit, population = _whole(found, light, beyond, n)
    if parts[0].unit == "event":
        fit = _with_total(fit, float(events.weight_of(found).value[0]) / population, n, max(n, span))
    return fit, population, intervals.bands(found, n)


def _counted(model: Model, items: float) -> Model:
    """Combine the law of one estimate with the curve's number of items, whose error is known."""
    return model.scaled(items / model.items) if model.items > 0.0 else model


def _with_total(fit: Fit, mean: float, n: int, span: int) -> Fit:
    """Move heavy counts so that the law has the total of all levels together.

    Crowded levels hide which counts the items above the resolved ones have, up to `span`; their sum is still known
    exactly. Only those counts are moved, unless the rest already exceeds the total.
    """
    rest = mean - float(np.arange(n + 1.0) @ fit.fractions)
    heavy, shares = fit.heavy, fit.heavy_shares
    far = heavy > span
    left = rest - float(heavy[~far] @ shares[~far])
    if far.any() and left > (span + 1.0) * float(shares[far].sum()) > 0.0:
        moved = heavy.copy()
        moved[far] = _moved(heavy[far], shares[far], left, span + 1.0)
        return Fit(fit.fractions, moved, shares)
    above, have = float(shares.sum()), float(heavy @ shares)
    if above != 0.0 and (have <= 0.0 or rest <= (n + 1.0) * above):
        return Fit(fit.fractions, np.array([rest / above]), np.array([above]))
    return fit if have <= 0.0 else Fit(fit.fractions, _moved(heavy, shares, rest, n + 1.0), shares)


def _moved(heavy: Floats, shares: Floats, total: float, least: float) -> Floats:
    """Stretch counts of at least `least` away from it until they have the given total."""
    have, floor = float(heavy @ shares), least * float(shares.sum())
    return heavy * (total / have) if have <= floor else least + (heavy - least) * ((total - floor) / (have - floor))


def _whole(found: Sequence[Part], light: Floats, beyond: float, n: int) -> tuple[Fit, float]:
    """Light items from the recursion, heavier ones directly from the slots: shares over all items."""
    span = light.size - 1
    population = max(float(light.sum()) + beyond, 1e-9)
    fractions = np.zeros(n + 1)
    fractions[: min(span, n) + 1] = light[: n + 1] / population
    counts, weights, dense = [], [], np.zeros(max(n - span, 0))
    for part in found:
        for level in part.clear:
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
        at, weight = at[weight > 0.0], weight[weight > 0.0] * (beyond / mass)
    elif beyond != 0.0:
        at, weight = np.array([max(n, span) + 1.0]), np.array([beyond])
    else:
        at, weight = np.zeros(0), np.zeros(0)
    near = n + 1 + np.flatnonzero(light[n + 1 :])  # resolved counts beyond n
    return Fit(fractions, np.append(near, at), np.append(light[near], weight) / population), population


def _cells(level: Level) -> Cells:
    """The cells of a level, whatever its unit."""
    estimator = level.estimator
    if isinstance(estimator, Circle):
        at = np.arange(estimator.p, dtype=np.int64)
        return Cells(at, at, estimator.slots, estimator.d)
    return estimator.cells
