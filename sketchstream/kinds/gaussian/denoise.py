"""Denoised counts: shrinkage and thresholds, each with an unbiased estimate of its own error.

In: noisy counts and the variance of their noise. Out: denoised counts and the estimated sum of squared errors. Touches:
nothing. All of it is post-processing of publications.
Source: James & Stein 1961; Efron & Morris 1973 (shrinkage about the mean); Donoho & Johnstone 1995 (SURE thresholds);
Balle & Wang, ICML 2018, section 4; docs/theory/gaussian.md, section 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sketchstream.errors import EstimateError

Floats = npt.NDArray[np.float64]

METHODS: Final = ("auto", "raw", "js", "js_mean", "soft_sure", "target")
AUTO_FROM: Final = 64
"""Slots from which `auto` chooses; below, an estimated error is too noisy to choose by."""
LEAST_VARIANCE: Final = 1.0
"""Variance in squared lattice units below which noise is too far from normal for denoising."""


@dataclass(frozen=True)
class Denoised:
    """One method's counts.

    Args:
        method: name of the method; never "auto".
        values: (d,) float64, in the units of the input.
        risk: Stein's unbiased estimate of the expected sum of squared errors. It may be negative.
        setting: the factor of a shrinkage, or the threshold.
    """

    method: str
    values: Floats
    risk: float
    setting: float


def denoise(counts: Floats, variance: float, method: str = "auto", target: Floats | None = None) -> Denoised:
    """Denoise by one method, or by the one whose estimated error is smallest.

    Args:
        counts: (d,) float64, noisy.
        variance: variance of the noise of each count.
        method: one of METHODS.
        target: (d,) public counts towards which method "target" shrinks.

    Raises:
        EstimateError: an unknown method, too few counts, too little noise, or a target that is missing or superfluous.
    """
    if not isinstance(method, str) or method not in METHODS:
        msg = f"method must be one of {', '.join(METHODS)}, found {method!r:.40}"
        raise EstimateError(msg)
    if (target is not None) != (method == "target"):
        msg = "method 'target' needs target=, one public number for each slot; no other method takes one"
        raise EstimateError(msg)
    if method == "raw" or (method == "auto" and (variance < LEAST_VARIANCE or len(counts) < AUTO_FROM)):
        return raw(counts, variance)
    if variance < LEAST_VARIANCE:
        msg = (
            f"method {method!r} needs noise of variance 1 or more in lattice units, found {variance:.3g}: use 'raw', "
            "which is accurate here"
        )
        raise EstimateError(msg)
    if method == "auto":
        found = (raw(counts, variance), shrunk(counts, variance), centred(counts, variance), cut(counts, variance))
        return min(found, key=lambda one: one.risk)
    if method == "soft_sure":
        return cut(counts, variance)
    if method == "js_mean":
        return centred(counts, variance)
    if target is None:
        return shrunk(counts, variance)
    if target.shape != counts.shape or not np.isfinite(target).all():
        msg = f"target must be {len(counts)} finite numbers, one for each slot, found shape {target.shape}"
        raise EstimateError(msg)
    moved = shrunk(counts - target, variance)
    return Denoised("target", target + moved.values, moved.risk, moved.setting)


def raw(counts: Floats, variance: float) -> Denoised:
    """The published counts: unbiased."""
    return Denoised("raw", counts, len(counts) * variance, 1.0)


def shrunk(counts: Floats, variance: float) -> Denoised:
    """James-Stein shrinkage towards 0, its factor never negative; at least 3 counts."""
    d = _enough(counts, 3)
    factor, risk = _shrinkage(float(counts @ counts), variance, d, d - 2)
    return Denoised("js", factor * counts, risk, factor)


def centred(counts: Floats, variance: float) -> Denoised:
    """James-Stein shrinkage towards the mean of the counts; at least 4 counts."""
    d = _enough(counts, 4)
    mean = float(counts.mean())
    away = counts - mean
    factor, risk = _shrinkage(float(away @ away), variance, d - 1, d - 3)
    return Denoised("js_mean", mean + factor * away, risk + variance, factor)


def soft(counts: Floats, variance: float, threshold: float) -> Denoised:
    """Each count moved towards 0 by the threshold, at most to 0."""
    size = np.abs(counts)
    values = np.sign(counts) * np.maximum(size - threshold, 0.0)
    kept = np.minimum(size, threshold)
    risk = variance * (len(counts) - 2 * int(np.count_nonzero(size <= threshold))) + float(kept @ kept)
    return Denoised("soft", values, risk, threshold)


def cut(counts: Floats, variance: float) -> Denoised:
    """Soft threshold with the smallest estimated error, over 0 and every |count| up to the universal threshold."""
    _enough(counts, 2)
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
    return Denoised("soft_sure", soft(counts, variance, threshold).values, best, threshold)


def universal_threshold(variance: float, d: int) -> float:
    """sqrt(2 V log d), above all noise for most draws."""
    return math.sqrt(2 * variance * math.log(d))


def refined(values: Floats, *, nonnegative: bool = False, total: float | None = None, whole: bool = False) -> Floats:
    """Apply facts about the true counts, in this order.

    Args:
        values: (d,) counts.
        nonnegative: whether no true count is negative: then negative values become 0.
        total: public sum of all counts: values are scaled to it if their sum is above 0.
        whole: whether to round to integers, in the units of the input.
    """
    out = np.maximum(values, 0.0) if nonnegative else values
    if total is not None:
        found = float(out.sum())
        out = out * (total / found) if found > 0 else out
    return np.rint(out) if whole else out


def _shrinkage(square: float, variance: float, dimensions: int, wanted: int) -> tuple[float, float]:
    """The positive part factor 1 - wanted V / W, and the estimated error in this many dimensions."""
    if square <= wanted * variance:
        return 0.0, square - dimensions * variance
    return 1 - wanted * variance / square, variance * (dimensions - wanted**2 * variance / square)


def _enough(counts: Floats, least: int) -> int:
    """The number of counts, if it is large enough."""
    if len(counts) < least:
        msg = f"this method needs at least {least} slots, found {len(counts)}: use 'raw'"
        raise EstimateError(msg)
    return len(counts)
