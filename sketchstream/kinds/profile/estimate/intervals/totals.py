"""Intervals of a noisy counter, and of the mean computed from it and the number of items.

In: a counter's value and the laws of its noise; the number of items with its variance. Out: interval ends at any
level. Touches: nothing.
Source: docs/theory/privacy.md, section 3 (the counters' noise).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.noise_sums import NoiseSum, fieller
from sketchstream.kinds.profile.estimate.uncertainty.bands import Band


@dataclass(frozen=True)
class TotalEnds:
    """Ends of the intervals of a counter.

    Args:
        value: noise included.
        noise: noise in the value.
    """

    value: float
    noise: NoiseSum

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends with the probability that z standard deviations have under a normal law."""
        low, high = self.noise.ends(math.erf(z / math.sqrt(2.0)))
        return np.array([self.value + low]), np.array([self.value + high])


@dataclass(frozen=True)
class RatioEnds:
    """Ends of Fieller's intervals of a counter divided by the number of items.

    Args:
        value: value of the counter.
        noise: noise in the counter.
        items: (1,) band of the number of items, independent of that noise.
    """

    value: float
    noise: NoiseSum
    items: Band

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """The ratios r for which value - r items is within z standard deviations of 0; infinity: no upper end."""
        intervals = [
            fieller(self.value, self.noise.variance, float(items), float(self.items.variance[0]), z)
            for items in (self.items.low[0], self.items.high[0])
        ]
        return np.array([min(low for low, _ in intervals)]), np.array([max(high for _, high in intervals)])
