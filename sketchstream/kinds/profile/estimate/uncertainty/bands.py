"""Estimates with their uncertainty: variances, brackets, and the ends of intervals.

In: arrays. Out: `Band`, `Moments`, critical values. Touches: nothing.
Source: Imbens & Manski, Econometrica 72 (2004), for numbers that are known up to a bracket.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sketchstream.array_types import Floats

Score = Callable[[Floats], Floats]
"""A function of counts, whose mean over the slots is estimated."""
PLAIN_UP_TO = 500
"""Numbers for which the standard library is quick enough."""
SHOWS = 1.96
"""Standard deviations to either side that hold 95%: what lies further off is told from nothing."""


class Ends(Protocol):
    """Numbers with intervals of any level."""

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals that reach z standard deviations to either side."""


def critical(z: float, width: Floats) -> Floats:
    """Standard deviations on each side of a bracket that give the coverage of z of them around a point.

    The interval of a wide bracket can miss on one side only, so fewer suffice: 1.64 instead of 1.96.

    Args:
        z: standard deviations around a point.
        width: width of the brackets, in standard deviations.

    Source: Imbens & Manski 2004, equation 7.
    """
    level = math.erf(z / math.sqrt(2.0))
    out = np.full(np.shape(width), float(z))
    for _ in range(6):  # Newton on a concave function
        rise = np.exp(-(out**2) / 2.0) + np.exp(-((out + width) ** 2) / 2.0)
        out -= (_normal_below(out + width) - _normal_below(-out) - level) * math.sqrt(2.0 * math.pi) / rise
    return out


def _normal_below(z: Floats) -> Floats:
    """Probability that a standard normal number is below z: of few without scipy.special, which takes long to load."""
    if z.size > PLAIN_UP_TO:
        from scipy.special import ndtr

        return np.asarray(ndtr(z))
    return np.array([0.5 * math.erfc(-one / math.sqrt(2.0)) for one in z.flat]).reshape(z.shape)


@dataclass(frozen=True)
class Band:
    """Unbiased estimates known up to a bracket: low <= estimate <= high, both with the same noise.

    Args:
        low: (m,) estimates with everything in a wide bin at its lower end (equal to high in the unit range).
        high: (m,) the same at the upper end.
        variance: (m,) variance of the noise in both.
    """

    low: Floats
    high: Floats
    variance: Floats

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals that reach z standard deviations to either side, fewer for wide brackets."""
        deviation = np.sqrt(np.maximum(self.variance, 0.0))
        way = z * deviation
        wide = self.high > self.low
        if wide.any():
            bracket = (self.high - self.low)[wide] / np.maximum(deviation[wide], 1e-300)
            once, where = np.unique(bracket, return_inverse=True)  # counts in one wide bin have the same score
            way[wide] = deviation[wide] * critical(z, once)[where]
        return self.low - way, self.high + way

    def at(self, k: int) -> Band:
        """The band of one number."""
        return Band(self.low[k : k + 1], self.high[k : k + 1], self.variance[k : k + 1])

    def scaled(self, factor: float) -> Band:
        """The band of the estimate times a positive factor."""
        return Band(self.low * factor, self.high * factor, self.variance * factor**2)


@dataclass(frozen=True)
class Moved:
    """Numbers times a factor, the first of them shifted.

    Args:
        inner: the numbers.
        factor: positive.
        first: added to the first number.
    """

    inner: Ends
    factor: float
    first: float

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals."""
        low, high = (end * self.factor for end in self.inner.ends(z))
        low[0] += self.first
        high[0] += self.first
        return low, high


def blend(bands: Sequence[Band], weights: Sequence[float]) -> Band:
    """Weighted sum of independent bands."""
    return Band(
        np.sum([w * b.low for w, b in zip(weights, bands, strict=True)], axis=0),
        np.sum([w * b.high for w, b in zip(weights, bands, strict=True)], axis=0),
        np.sum([w * w * b.variance for w, b in zip(weights, bands, strict=True)], axis=0),
    )


@dataclass(frozen=True)
class Hidden:
    """Bounds on events and items beyond the largest counts that are visible above the noise.

    Args:
        events: upper bound on events per slot, in addition to those counted.
        items: upper bound on items per slot.
        nearest: smallest of their counts.
        farthest: largest of their counts.
    """

    events: float
    items: float
    nearest: float
    farthest: float


@dataclass(frozen=True)
class Moments:
    """Estimates of (1/d) sum b(h) for several scores b, with the uncertainty from wide bins.

    Args:
        value: (m,) estimates, with everything in a wide bin at its middle and nothing beyond the horizon.
        covariance: (m, m) covariance of their noise.
        mass: (w,) share of slots in each wide bin below the horizon.
        inner: (m, w) contribution of b per slot at the lower end of each bin.
        outer: (m, w) contribution of b per slot at the upper end of each bin.
        hidden: bounds beyond the horizon; None if nothing is assumed there.
    """

    value: Floats
    covariance: Floats
    mass: Floats
    inner: Floats
    outer: Floats
    hidden: Hidden | None = None

    @property
    def tail(self) -> float:
        """Upper bound on events per slot beyond the horizon."""
        return 0.0 if self.hidden is None else self.hidden.events


def blend_moments(moments: Sequence[Moments], weights: Sequence[float]) -> Moments:
    """Weighted sum of independent moments."""
    pairs = list(zip(moments, weights, strict=True))
    return Moments(
        np.sum([w * m.value for m, w in pairs], axis=0),
        np.sum([w * w * m.covariance for m, w in pairs], axis=0),
        np.concatenate([w * m.mass for m, w in pairs]),
        np.concatenate([m.inner for m, _ in pairs], axis=1),
        np.concatenate([m.outer for m, _ in pairs], axis=1),
        covariance_from_parts([(m.hidden, w) for m, w in pairs if m.hidden is not None]),
    )


def covariance_from_parts(parts: Sequence[tuple[Hidden, float]]) -> Hidden | None:
    """Weighted sum of the bounds beyond the horizons of several parts."""
    if not parts:
        return None
    return Hidden(
        sum(w * one.events for one, w in parts),
        sum(w * one.items for one, w in parts),
        min(one.nearest for one, _ in parts),
        max(one.farthest for one, _ in parts),
    )


def decreasing(y: Floats, weights: Floats | None = None) -> Floats:
    """The closest non-increasing sequence in weighted least squares (pool adjacent violators). (m,) -> (m,)."""
    # scipy.optimize has this too, but importing it takes a quarter of the time of an answer from one window
    values: list[float] = []
    masses: list[float] = []
    sizes: list[int] = []
    for single, weight in zip(y.tolist(), [1.0] * y.size if weights is None else weights.tolist(), strict=True):
        value, mass, size = single, weight, 1
        while values and values[-1] <= value:
            mass += masses[-1]
            value += (values.pop() - value) * (masses.pop() / mass)
            size += sizes.pop()
        values.append(value)
        masses.append(mass)
        sizes.append(size)
    return np.repeat(np.asarray(values, dtype=np.float64), sizes)


def settle_variances(band: Band, model: Band) -> Band:
    """Use the model's variance for each number whose own is less than a quarter of it.

    An unbiased estimate of a variance is noisy if it reads few slots, and may be negative.
    """
    own = np.where(band.variance >= 0.25 * model.variance, band.variance, model.variance)
    return Band(band.low, band.high, np.maximum(own, 0.0))


def settle_covariance(own: Floats, typical: Floats) -> Floats:
    """`settle_variances` for a covariance, in the order of matrices. (m, m), (m, m) -> (m, m)."""
    return own if np.linalg.eigvalsh(own - typical / 4.0)[0] >= 0.0 else typical
