"""Open domains: from published histograms to the profile over distinct items.

In: observed parts whose items were hashed into levels of slots. Out: the fit, the number of items, the bands.
Touches: nothing.
Source: docs/theory/profile.md 6; docs/theory/reconstruction.md (weights of the levels).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kinds.profile.estimate.fit import Fit
from sketchstream.kinds.profile.estimate.intervals.bounds import Uncertainty
from sketchstream.kinds.profile.estimate.linear.line import linear
from sketchstream.kinds.profile.estimate.observed import UNBOUNDED, Observed
from sketchstream.kinds.profile.estimate.open_domain import events, intervals, likelihood
from sketchstream.kinds.profile.estimate.open_domain.collisions import (
    MIN_COUNTS,
    RANGE,
    ObservedPart,
    largest_resolved,
    read_part,
)
from sketchstream.kinds.profile.estimate.open_domain.laws import VarianceModel
from sketchstream.kinds.profile.estimate.open_domain.slices import linearise_at, moved_to


def reconstruct(parts: Sequence[Observed], method: str, n: int) -> tuple[Fit, float, Uncertainty]:
    """Profile over the distinct items of an open domain.

    Returns: the fit (shares over items, index 0 is 0), the number of items, the bands.
    """
    least = 1 if method == "inverse" else MIN_COUNTS  # each further unregularised cell costs accuracy
    span = min([min(max(n + 1, least), RANGE)] + [int(min(linear(part).resolved, UNBOUNDED)) for part in parts])
    span = largest_resolved(parts[0], span)
    found = [read_part(part, span) for part in parts]
    if method == "likelihood":
        found = [
            replace(part, model=_with_number_of_items(part, likelihood.fit(one, part)))
            for one, part in zip(parts, found, strict=True)
        ]
    models = [part.model for part in found]
    light, beyond = np.sum([model.intensity for model in models], axis=0), sum(model.beyond for model in models)
    if method == "inverse":
        light, beyond = np.zeros(span + 1), 0.0
        for part in found:
            cells, tails = intervals.of_part(part, n).linear.values
            light[1:] += cells[1 : span + 1]
            beyond += float(tails[0] - cells[1 : span + 1].sum())
        if float(light.sum()) + beyond < 1.0:  # signed numbers with a sum below one item: shares are undefined
            return Fit(np.zeros(n + 1), np.zeros(0), np.zeros(0)), 0.0, intervals.bands(found, n)
    fit, population = _join_light_and_heavy(found, light, beyond, n)
    if parts[0].unit == "event":
        fit = _with_total(fit, float(events.weight_of(found).value[0]) / population, n, max(n, span))
    return fit, population, intervals.bands(found, n)


def _with_number_of_items(part: ObservedPart, model: VarianceModel) -> VarianceModel:
    """Combine the law of one estimate with the curve's number of items, whose error is known."""
    items = part.curve.value
    if model.items <= 0.0 or part.observed.unit == "item":
        return model.scaled(items / model.items) if model.items > 0.0 else model
    return moved_to(items, model, linearise_at(part.levels, model))


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
        moved[far] = _stretch_counts(heavy[far], shares[far], left, span + 1.0)
        return Fit(fit.fractions, moved, shares)
    above, have = float(shares.sum()), float(heavy @ shares)
    if above != 0.0 and (have <= 0.0 or rest <= (n + 1.0) * above):
        return Fit(fit.fractions, np.array([rest / above]), np.array([above]))
    return fit if have <= 0.0 else Fit(fit.fractions, _stretch_counts(heavy, shares, rest, n + 1.0), shares)


def _stretch_counts(heavy: Floats, shares: Floats, total: float, least: float) -> Floats:
    """Stretch counts of at least `least` away from it until they have the given total."""
    have, floor = float(heavy @ shares), least * float(shares.sum())
    return heavy * (total / have) if have <= floor else least + (heavy - least) * ((total - floor) / (have - floor))


def _join_light_and_heavy(parts: Sequence[ObservedPart], light: Floats, beyond: float, n: int) -> tuple[Fit, float]:
    """Light items from the recursion, and the law of the heavier ones: shares over all items."""
    span = light.size - 1
    population = max(float(light.sum()) + beyond, 1e-9)
    fractions = np.zeros(n + 1)
    fractions[: min(span, n) + 1] = light[: n + 1] / population
    counts, weights, dense = [], [], np.zeros(max(n - span, 0))
    for part in parts:
        for low, width, items in _heavy(part):
            last = low + width - 1
            inside = np.flatnonzero((low <= n) & (items > 0.0))
            for i in inside:
                dense[low[i] - span - 1 : min(last[i], n) - span] += items[i] / width[i]
            first = np.maximum(low, n + 1)
            over = (last > n) & (items > 0.0)
            counts.append((first + last)[over] / 2.0)
            weights.append((items * (last - first + 1) / width)[over])
    at, weight = np.concatenate([np.zeros(0), *counts]), np.concatenate([np.zeros(0), *weights])
    order = np.argsort(at, kind="stable")
    at, weight = at[order], weight[order]
    mass = dense.sum() + weight.sum()
    if beyond != 0.0 and mass > 0.0:
        fractions[span + 1 :] = dense * (beyond / mass / population)
        weight = weight * (beyond / mass)
    elif beyond != 0.0:
        at, weight = np.array([max(n, span) + 1.0]), np.array([beyond])
    else:
        at, weight = np.zeros(0), np.zeros(0)
    near = n + 1 + np.flatnonzero(light[n + 1 :])  # resolved counts beyond n
    return Fit(fractions, np.append(near, at), np.append(light[near], weight) / population), population


def _heavy(part: ObservedPart) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Items above the recursion: first counts, numbers of counts and items of nodes."""
    model = part.model
    if model.heavy is not None:
        wide, nodes = model.heavy.wide, model.heavy.nodes
        yield wide.low[nodes], wide.width[nodes], model.beyond * model.heavy.share
