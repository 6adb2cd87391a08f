"""Types of intervals in open domains, where the information of a slot about the items depends on the load.

In: estimates with their variances. Out: bands with the ends of their intervals. Touches: nothing.
Source: Fieller 1954; Zou & Donner 2008; Donner & Zou 2012; `docs/theory/reconstruction.md`, section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate.open_domain.cardinality import Curve
from sketchstream.kinds.profile.estimate.open_domain.slices import Mixed
from sketchstream.kinds.profile.estimate.uncertainty.bands import Band, Ends, critical


@dataclass(frozen=True)
class Reach(Mixed):
    """K+ numbers; index 0 and 1 are the number of items, with ends from the curves, added over the parts.

    Args:
        curves: curves of the parts.
        most: upper limit of the number of items; None: only the curves limit it, and ends may be infinite.
    """

    curves: tuple[Curve, ...] = ()
    most: Band | None = None

    @property
    def middle(self) -> float:
        """The number of items."""
        return sum(curve.value for curve in self.curves)

    def items(self, z: float) -> tuple[float, float]:
        """Ends of the number of items. Sums of skewed intervals: Zou & Donner 2008."""
        middle = self.middle
        ends = [curve.ends(z) for curve in self.curves]
        low = sum((curve.value - end[0]) ** 2 for curve, end in zip(self.curves, ends, strict=True))
        high = sum((curve.value - end[1]) ** 2 for curve, end in zip(self.curves, ends, strict=True))
        last = self._limited(middle + math.sqrt(high), z)
        return min(max(middle - math.sqrt(low), 0.0), last), last

    def _limited(self, high: float, z: float) -> float:
        """The smaller of an upper end and the bound on the number of items."""
        if math.isfinite(high) or self.most is None:
            return high
        bound = sum(float(curve.items[-1]) for curve in self.curves)
        return min(bound, max(float(self.most.ends(z)[1][0]), 1.0))

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals. Where nothing limits the number of all items, nothing limits those of some."""
        low, high = super().ends(z)
        first, last = self.items(z)
        low[:2], high[:2] = first, last
        if math.isinf(last):
            low[2:], high[2:] = 0.0, math.inf
        return low, high

    def at(self, k: int) -> Band:
        """The band of one number."""
        own = super().at(k)
        return _Only(own.low, own.high, own.variance, own, self, k)


@dataclass(frozen=True)
class _Only(Band):
    """Band of one k+ number."""

    own: Band
    whole: Reach
    k: int

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the interval of this number."""
        first, last = self.whole.items(z)
        if self.k > 1:
            return (np.zeros(1), np.full(1, math.inf)) if math.isinf(last) else self.own.ends(z)
        return np.array([first]), np.array([last])


@dataclass(frozen=True)
class Limited:
    """Numbers that are unknown where nothing limits the number of items: linear estimates mean nothing there.

    Args:
        inner: the numbers.
        reach: k+ numbers.
        size: number of estimates.
    """

    inner: Ends
    reach: Reach
    size: int

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals; 0 and infinity if the number of items has no upper end."""
        if math.isfinite(self.reach.items(z)[1]):
            return self.inner.ends(z)
        return np.zeros(self.size), np.full(self.size, math.inf)


@dataclass(frozen=True)
class Quotient(Band):
    """Ratios by Fieller's theorem: all values r for which above - r below is within z standard deviations of 0.

    Args:
        low: lowest ratio.
        high: highest ratio.
        variance: variance of the numerator.
        joint: covariance of numerator and denominator.
        below: the denominator.
        spread: variance of the denominator.
    """

    joint: Floats
    below: float
    spread: float

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals; all values if the denominator may be 0."""
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
class Mean:
    """Total over items: Fieller's interval, each end from the deviations on its side (Donner & Zou 2012).

    Args:
        total: band of the total weight.
        reach: k+ numbers.
        correlation: correlation of the total with the number of items.
    """

    total: Band
    reach: Reach
    correlation: float

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the interval, between 1 and the largest total over the least number of items."""
        items, low, high = self.reach.middle, self.total.low, self.total.high
        all_ = self.total.ends(z)[1]  # at least one item has it
        deviation = np.sqrt(np.maximum(self.total.variance, 0.0))
        few, many = self.reach.items(z)
        its = max(items - few, many - items) / z * low / max(items, 1.0)
        both = np.sqrt(np.maximum(deviation**2 + its**2 - 2.0 * self.correlation * deviation * its, 1e-12))
        z = float(critical(z, (high - low) / both)[0])
        few, many = self.reach.items(z)
        way = z * deviation
        square, middle, product = self._quadratic(low, way, items, many - items)
        first = square / np.maximum(middle + np.sqrt(np.maximum(middle**2 - product * square, 0.0)), 1e-12)
        square, middle, product = self._quadratic(high, way, items, items - few)
        if product > 0:
            last = (middle + np.sqrt(np.maximum(middle**2 - product * square, 0.0))) / product
        else:  # the number of items may be 0: no upper end
            last = np.full_like(high, np.inf)
        return np.where(low > way, first, 1.0), np.minimum(last, np.minimum((high + way) / max(few, 1.0), all_))

    def _quadratic(self, total: Floats, way: Floats, items: float, its: float) -> tuple[Floats, Floats, float]:
        """C, b, a of a x^2 - 2 b x + c <= 0: the means x with total - x items within both ways of 0."""
        return total**2 - way**2, total * items - self.correlation * way * its, items**2 - its**2
