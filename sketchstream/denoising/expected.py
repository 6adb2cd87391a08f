"""Expected error of every method for a law of true counts, for planning.

In: true counts (or a law of them), the variance of the noise. Out: expected squared errors. Touches: nothing.
Source: James & Stein 1961; Donoho & Johnstone 1995; docs/theory/gaussian.md, section 7.

For the planner: exact for "raw", "js", "js_mean" and a fixed threshold; for "soft_sure" the error of the best
threshold, which the estimated one approaches as the number of slots grows; for "empirical_bayes" the error that it has
on counts of this law with noise at its quantiles, in an order without a pattern.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, ndtri
from scipy.stats import chi2, norm

from sketchstream.array_types import Floats
from sketchstream.denoising.methods import AUTO_FROM, MIN_VARIANCE, SHRUNK_FROM, universal_threshold
from sketchstream.denoising.mixture import posterior_means, scramble
from sketchstream.errors import EstimateError

THRESHOLDS: Final = 65
"""Thresholds that are tried for "soft_sure"."""
SPREAD: Final = 12.0
"""Standard deviations of a Poisson law that are summed."""
TRIED: Final = (1 << 14, 1 << 18)
"""Slots on which posterior means are tried: of several trials together at least, of one at most."""
MIN_EXPANDED_MEAN: Final = 1e6
"""Mean of a Poisson law from which its inverse moments are expanded instead of summed."""


def expected_errors(counts: Mapping[float, int] | npt.ArrayLike, variance: float) -> dict[str, float]:
    """Expected sum of squared errors of every method.

    Args:
        counts: true counts in lattice units, as an array, or as {count: number of slots}.
        variance: variance of the noise of one published count, in squared lattice units.

    Returns:
        Method -> expected sum of squared errors; "auto" is the smallest of its candidates. Methods that do not
        apply (too few slots, too little noise) are omitted.

    Raises:
        EstimateError: there are no slots, or numbers are not finite.
    """
    values, slots = _law(counts)
    d = int(slots.sum())
    out = {"raw": d * variance}
    if variance >= MIN_VARIANCE:
        square = float(slots @ values**2)
        if d >= 3:
            out["js"] = shrinkage_error(square, variance, d)
        if d >= SHRUNK_FROM:
            mean = float(slots @ values) / d
            out["js_mean"] = variance + shrinkage_error(float(slots @ (values - mean) ** 2), variance, d - 1)
        if d >= 2:
            thresholds = np.linspace(0.0, universal_threshold(variance, d), THRESHOLDS).tolist()
            out["soft_sure"] = min(float(slots @ threshold_errors(values, variance, limit)) for limit in thresholds)
    if variance >= MIN_VARIANCE and d >= AUTO_FROM:
        out["empirical_bayes"] = _expected_loss_of_means(values, slots, variance)
    considered = ("js", "js_mean", "empirical_bayes") if d >= AUTO_FROM else ("js_mean",)
    out["auto"] = min((out[method] for method in considered if method in out), default=out["raw"])
    return out


def _expected_loss_of_means(values: Floats, slots: Floats, variance: float) -> float:
    """Sum of squared errors of posterior means for the quantiles of a law, a mean over trials."""
    d = float(slots.sum())
    number = int(min(d, TRIED[1]))
    truth = values[np.searchsorted(np.cumsum(slots), (np.arange(number) + 0.5) * d / number)]
    noise = math.sqrt(variance) * ndtri((np.arange(number) + 0.5) / number)
    trials = -(-TRIED[0] // number)
    orders = scramble(trials * number).reshape(trials, number).argsort(axis=1)
    errors = [posterior_means(truth + noise[order], variance)[0] - truth for order in orders]
    return d * float(np.mean(np.square(errors)))


def shrinkage_error(square: float, variance: float, d: int, *, positive: bool = True) -> float:
    """Expected squared error of James-Stein shrinkage towards 0.

    W / V is chi-square with d + 2 K degrees of freedom, K Poisson with mean square / (2 V). The error is the
    expectation of its unbiased estimate given W.

    Args:
        square: sum of squares of the true counts.
        variance: variance of the noise.
        d: number of dimensions, at least 3.
        positive: whether a negative factor is replaced by 0.
    """
    mean = square / (2 * variance)
    freedom = d - 2
    if mean > MIN_EXPANDED_MEAN:
        middle = freedom + 2 * mean
        inverse = (1 + 4 * mean / middle**2) / middle  # to second order; the rest is below 1e-11 of it
        return variance * (d - freedom**2 * inverse)
    reach = SPREAD * math.sqrt(mean) + 40
    k = np.arange(max(0, math.floor(mean - reach)), math.ceil(mean + reach) + 1, dtype=np.float64)
    weights = np.exp(k * math.log(mean) - mean - gammaln(k + 1)) if mean > 0 else (k == 0).astype(np.float64)
    weights /= weights.sum()
    n = d + 2 * k
    if not positive:
        return variance * (d - freedom**2 * float(weights @ (1 / (n - 2))))
    above = chi2.sf(freedom, n - 2) / (n - 2)  # E[V / W; W >= freedom V]
    risks = d * chi2.sf(freedom, n) - freedom**2 * above + n * chi2.cdf(freedom, n + 2) - d * chi2.cdf(freedom, n)
    return variance * float(weights @ risks)


def threshold_errors(values: Floats, variance: float, threshold: float) -> Floats:
    """Expected squared error of soft thresholding for each true count (Donoho & Johnstone 1995)."""
    scale = math.sqrt(variance)
    u, t = values / scale, threshold / scale
    inner = (u**2 - t**2 - 1) * (norm.cdf(t - u) - norm.cdf(-t - u))
    out: Floats = variance * (1 + t**2 + inner - (t - u) * norm.pdf(t + u) - (t + u) * norm.pdf(t - u))
    return out


def _law(counts: Mapping[float, int] | npt.ArrayLike) -> tuple[Floats, Floats]:
    """Distinct counts, and the number of slots with each."""
    if isinstance(counts, Mapping):
        values = np.array(list(counts), np.float64)
        slots = np.array(list(counts.values()), np.float64)
    else:
        values, number = np.unique(np.asarray(counts, np.float64).reshape(-1), return_counts=True)
        slots = number.astype(np.float64)
    if values.size == 0 or not np.isfinite(values).all() or not (slots >= 1).all():
        raise EstimateError("counts must be finite numbers, at least one, each in at least one slot")
    return values, slots
