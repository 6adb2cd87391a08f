"""Denoised vectors: shrinkage, thresholds and posterior means, each with an estimate of its own error.

In: noisy numbers and the variance of their noise. Out: denoised numbers and the estimated sum of squared errors.
Touches: nothing. All of it is post-processing of publications.
Source: James & Stein 1961; Efron & Morris 1973 (about the mean); Donoho & Johnstone 1994 and 1995 (thresholds);
Jiang & Zhang 2009 (empirical Bayes); Leung & Barron 2006, Dalalyan & Salmon 2012 (exponential weights); Balle & Wang,
ICML 2018, section 4; docs/theory/gaussian.md, section 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats
from sketchstream.denoising.mixture import posterior_means
from sketchstream.errors import EstimateError

METHODS: Final = ("auto", "raw", "js", "js_mean", "soft", "soft_sure", "empirical_bayes", "weighted", "target")
AUTO_FROM: Final = 64
"""Numbers from which `auto` is "weighted"; below, an estimated error is too noisy to weigh by."""
SHRUNK_FROM: Final = 4
"""Numbers from which shrinkage about the mean has at most the error of the noisy numbers, whatever the true ones."""
MIN_VARIANCE: Final = 1.0
"""Variance of noise on the integers below which it is too far from normal for denoising."""
TEMPERATURE: Final = 8.0
"""Variances of one number by which a method must seem better than another to have e times its weight."""


@dataclass(frozen=True)
class Denoised:
    """One method's numbers.

    Args:
        method: name of the method; never "auto".
        values: (d,) float64, in the units of the input.
        risk: Stein's unbiased estimate of the expected sum of squared errors. It may be negative.
        setting: the factor of a shrinkage, the threshold, or the mean slope of the posterior means.
        deviation: standard error of `risk`, about.
    """

    method: str
    values: Floats
    risk: float
    setting: float
    deviation: float = 0.0

    @property
    def expected_loss(self) -> float:
        """The expected sum of squared errors, above 0.

        That is the mean of a normal law around `risk`, restricted to what is possible. Where `risk` is large against
        its `deviation`, the loss is `risk`; where it is lost in the noise, the loss is about as large as `deviation`.
        """
        from scipy.special import log_ndtr

        if not self.deviation:
            return self.risk
        t = self.risk / self.deviation
        return self.risk + self.deviation * math.exp(-(t**2) / 2 - math.log(2 * math.pi) / 2 - float(log_ndtr(t)))


def denoise(noisy: npt.ArrayLike, sigma: float, method: str = "auto", target: npt.ArrayLike | None = None) -> Denoised:
    """Denoise a published vector of real numbers, such as the mean of records to which Gaussian noise was added.

    This is post-processing: it costs no privacy. "js" and "soft" are the two estimators of Balle & Wang 2018.

    Args:
        noisy: (d,) numbers.
        sigma: standard deviation of the noise of each, which is independent and normal or nearly so.
        method: "raw"; shrinkage towards 0 ("js"), the mean ("js_mean") or the target ("target"); soft thresholds,
            universal ("soft") or with the least estimated error ("soft_sure"); posterior means under the law of true
            numbers that fits best ("empirical_bayes"); the mean of it, "js" and "js_mean", weighted by estimated errors
            ("weighted"); or "auto", which is "weighted" from 64 numbers on and "js_mean" from 4.
        target: (d,) public numbers for method "target".

    Raises:
        EstimateError: an unknown method, too few numbers, numbers that are not finite, or a target that does not fit.

    Examples:
        >>> import sketchstream as ss
        >>> sigma = ss.calibrate("0.1", "1e-4", 100**0.5 / 500)      # the mean of 500 records of 100 numbers in [0, 1]
        >>> ss.denoise([0.5 + sigma / 2, 0.5 - sigma / 2, 0.5, 0.5, 0.5], sigma).values.tolist()
        [0.5, 0.5, 0.5, 0.5, 0.5]
    """
    values = np.asarray(noisy, np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise EstimateError(f"expected one-dimensional finite numbers, found shape {values.shape}")
    if not (isinstance(sigma, (int, float, np.number)) and 0 < sigma < math.inf):
        raise EstimateError(f"sigma must be a number above 0, found {sigma!r:.40}")
    return denoise_by(values, float(sigma) ** 2, method, None if target is None else np.asarray(target, np.float64))


def denoise_by(counts: Floats, variance: float, method: str = "auto", target: Floats | None = None) -> Denoised:
    """Denoise by one method, or by the one that `auto` stands for.

    Args:
        counts: (d,) float64, noisy.
        variance: variance of the noise of each count.
        method: one of METHODS.
        target: (d,) public numbers towards which method "target" shrinks.

    Raises:
        EstimateError: an unknown method, too few numbers, or a target that is missing or superfluous.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise EstimateError(f"method must be one of {', '.join(METHODS)}, found {method!r:.40}")
    if (target is not None) != (method == "target"):
        raise EstimateError("method 'target' needs target=, one public number for each slot; no other method takes one")
    if target is not None:
        if target.shape != counts.shape or not np.isfinite(target).all():
            raise EstimateError(
                f"target must be {len(counts)} finite numbers, one for each slot, found shape {target.shape}"
            )
        shrunken = shrunk(counts - target, variance)
        return Denoised("target", target + shrunken.values, shrunken.risk, shrunken.setting, shrunken.deviation)
    if method == "auto":
        method = "weighted" if len(counts) >= AUTO_FROM else "js_mean" if len(counts) >= SHRUNK_FROM else "raw"
    if method == "soft":
        return soft(counts, variance, universal_threshold(variance, _require_counts(counts, 2)))
    return _BY_NAME[method](counts, variance)


def raw(counts: Floats, variance: float) -> Denoised:
    """The published counts: unbiased."""
    return Denoised("raw", counts, len(counts) * variance, 1.0)


def shrunk(counts: Floats, variance: float) -> Denoised:
    """James-Stein shrinkage towards 0, its factor never negative; at least 3 counts."""
    d = _require_counts(counts, 3)
    factor, risk = _shrinkage(float(counts @ counts), variance, d, d - 2)
    return Denoised("js", factor * counts, risk, factor, _deviation(variance, d, factor))


def shrink_to_mean(counts: Floats, variance: float) -> Denoised:
    """James-Stein shrinkage towards the mean of the counts; at least 4 counts."""
    d = _require_counts(counts, 4)
    mean = float(counts.mean())
    away = counts - mean
    factor, risk = _shrinkage(float(away @ away), variance, d - 1, d - 3)
    return Denoised("js_mean", mean + factor * away, risk + variance, factor, _deviation(variance, d, factor))


def soft(counts: Floats, variance: float, threshold: float) -> Denoised:
    """Each count moved towards 0 by the threshold, at most to 0."""
    size = np.abs(counts)
    values = np.sign(counts) * np.maximum(size - threshold, 0.0)
    cut_off = np.minimum(size, threshold)
    d, zero = len(counts), int(np.count_nonzero(size <= threshold))
    risk = variance * (d - 2 * zero) + float(cut_off @ cut_off)
    return Denoised("soft", values, risk, threshold, _deviation(variance, d, 1 - zero / d))


def cut(counts: Floats, variance: float) -> Denoised:
    """Soft threshold with the smallest estimated error, over 0 and every |count| up to the universal threshold."""
    _require_counts(counts, 2)
    size = np.sort(np.abs(counts))
    below = np.append(0.0, np.cumsum(size**2))  # sum of squares of the j smallest
    d = len(size)
    number = np.arange(1, d + 1)
    risks = variance * (d - 2 * number) + below[1:] + (d - number) * size**2
    ties = np.append(size[1:] == size[:-1], False)  # among equal sizes the last one counts all of them
    allowed = ~ties & (size <= universal_threshold(variance, d))
    best, threshold = variance * (d - 2 * int(np.count_nonzero(size == 0))), 0.0
    if allowed.any():
        place = int(np.argmin(np.where(allowed, risks, math.inf)))
        if risks[place] < best:
            best, threshold = float(risks[place]), float(size[place])
    best_cut = soft(counts, variance, threshold)
    return Denoised("soft_sure", best_cut.values, best, threshold, best_cut.deviation)


def posterior(counts: Floats, variance: float) -> Denoised:
    """Posterior means under the law of true counts that fits best; at least 4 counts."""
    d = _require_counts(counts, SHRUNK_FROM)
    values, risk, slope = posterior_means(counts, variance)
    return Denoised("empirical_bayes", values, risk, slope, _deviation(variance, d, slope))


def weigh_estimates(counts: Floats, variance: float) -> Denoised:
    """A mean of shrinkage towards 0, towards the mean, and posterior means; at least 4 counts.

    Weights fall exponentially with the estimated errors, so that which method is best need not be found out: where
    that is lost in the noise, all of them count. A threshold is not among them: posterior means do what it does, and
    better. The mean of their estimated errors is at least the estimated error of their mean.
    """
    candidates = [method(counts, variance) for method in (shrink_to_mean, shrunk, posterior)]
    risks = np.array([candidate.risk for candidate in candidates])
    seeming = risks / (TEMPERATURE * variance) + (0, 0, 1)  # a whole law is fitted for the last one: it begins with 1/e
    weights = np.exp(seeming.min() - seeming)
    weights /= weights.sum()
    values, slope = (
        weights @ [candidate.values for candidate in candidates],
        float(weights @ [candidate.setting for candidate in candidates]),
    )
    return Denoised("weighted", values, float(weights @ risks), slope, _deviation(variance, len(counts), slope))


def universal_threshold(variance: float, d: int) -> float:
    """sqrt(2 V log d), above all noise for most draws."""
    return math.sqrt(2 * variance * math.log(d))


def apply_facts(
    values: Floats, *, nonnegative: bool = False, total: float | None = None, whole: bool = False
) -> Floats:
    """Apply facts about the true counts, in this order.

    Args:
        values: (d,) counts.
        nonnegative: whether no true count is negative: then negative values become 0.
        total: public sum of all counts: values are scaled to it if their sum is above 0.
        whole: whether to round to integers, in the units of the input.
    """
    out = np.maximum(values, 0.0) if nonnegative else values
    if total is not None:
        total_now = float(out.sum())
        out = out * (total / total_now) if total_now > 0 else out
    return np.rint(out) if whole else out


def _deviation(variance: float, d: int, slope: float) -> float:
    """Standard error of an estimated error: that of a shrinkage by this factor, which is 0 for the counts themselves.

    The estimate is V (d - d^2 V / W), and W has the variance V^2 (2 d + 4 |x|^2 / V), with 1 - V d / W = slope.
    """
    share = min(max(slope, 0.0), 1.0)
    return variance * math.sqrt(2 * d * (1 - share) ** 3 * (1 + share))


def _shrinkage(square: float, variance: float, dimensions: int, freedom: int) -> tuple[float, float]:
    """The positive part factor 1 - freedom V / W, and the estimated error in this many dimensions."""
    if square <= freedom * variance:
        return 0.0, square - dimensions * variance
    return 1 - freedom * variance / square, variance * (dimensions - freedom**2 * variance / square)


def _require_counts(counts: Floats, least: int) -> int:
    """The number of counts, if it is large enough."""
    if len(counts) < least:
        raise EstimateError(f"this method needs at least {least} slots, found {len(counts)}: use 'raw'")
    return len(counts)


_BY_NAME: Final = {
    "raw": raw,
    "js": shrunk,
    "js_mean": shrink_to_mean,
    "soft_sure": cut,
    "empirical_bayes": posterior,
    "weighted": weigh_estimates,
}
