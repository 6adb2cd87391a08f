"""Quantiles of the noise of a count or a sum of counts: exact for most variances, bounds for large ones.

In: parameters of the layers, a probability. Out: widths in lattice units. Touches: nothing.
Source: docs/theory/gaussian.md, sections 8 and 9 (the bounds and their proofs).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from scipy.special import ndtri

from sketchstream.array_types import Floats
from sketchstream.kinds.estimates import checked_level

MIN_GAUSSIAN: Final = 16
"""Variance from which on noise is treated as one discrete Gaussian; below, the law of the layers' sum is computed."""
MIN_NORMAL: Final = 1 << 20
"""Variance from which on noise is treated as normal: one whole number has a probability below 4e-4."""
NEGLIGIBLE: Final = 60.0
"""Probabilities below e^-NEGLIGIBLE are left out of computed laws."""


def interval_reach(variances: Sequence[Fraction], level: float, slots: int = 1) -> tuple[int, int]:
    """How far the interval of a count, or of a sum of counts chosen independently of the data, reaches to each side.

    It is the shortest interval of whole numbers that covers at least `level`. If their number is even, one more lies
    above than below: the law is symmetric, so either side covers the same.

    Args:
        variances: parameters sigma2 of the layers of noise in a count, squared lattice units.
        level: probability with which the interval holds the true number.
        slots: number of counts in the sum.

    Returns:
        Lattice units below and above.
    """
    miss, total = 1 - checked_level(level), slots * float(sum(variances))
    if total < MIN_GAUSSIAN:
        beyond = tails(noise_law(variances, slots))
    elif total < MIN_NORMAL:
        radius = math.ceil(math.sqrt(2 * total * NEGLIGIBLE))
        law = np.exp(-(np.arange(-radius, radius + 1, dtype=np.float64) ** 2) / (2 * total))
        beyond = tails(law / law.sum())
    else:
        above = math.ceil(-float(ndtri(miss / 2)) * math.sqrt(total) - 0.5)
        return above, above
    above = _reach_of(beyond, miss)
    short = above > 0 and (beyond[above - 1] + beyond[above]) / 2 <= miss
    return above - int(short), above


def sure_width(variances: Sequence[Fraction], miss: float) -> int:
    """Smallest integer h that is known to satisfy Pr[|N| > h] <= miss for the noise N of one count."""
    total = float(sum(variances))
    if total < MIN_GAUSSIAN and miss > 1e-12:
        return _reach_of(tails(noise_law(variances, 1)) * (1 + 1e-9), miss)
    subgaussian = math.ceil(math.sqrt(2 * total * math.log(2 / miss)) * (1 + 1e-12)) - 1
    least = float(min(variances))
    if least < 1:
        return subgaussian
    distance = 4.01 * (len(variances) - 1) * math.exp(-(math.pi**2) * least)
    normal = math.ceil(-float(ndtri(miss * math.exp(-distance) / 2)) * math.sqrt(total) * (1 + 1e-12))
    return min(normal, subgaussian)


def noise_law(variances: Sequence[Fraction], slots: int) -> Floats:
    """(2 R + 1,) probabilities of -R..R for the sum of all layers over some slots; variance below MIN_GAUSSIAN."""
    total = slots * float(sum(variances))
    radius = math.ceil(math.sqrt(2 * total * NEGLIGIBLE)) + 2
    law = np.zeros(2 * radius + 1)
    law[radius] = 1.0
    points = np.arange(-radius, radius + 1, dtype=np.float64)
    for sigma2, times in Counter(variances).items():
        summand = np.exp(-(points**2) / (2 * float(sigma2)))
        summand /= summand.sum()
        power = times * slots
        while power:
            if power & 1:
                law = np.convolve(law, summand)[radius:-radius]
            summand = np.convolve(summand, summand)[radius:-radius]
            power >>= 1
    law /= law.sum()
    return law


def tails(law: Floats) -> Floats:
    """(R + 1,) Pr[|N| > h] for h = 0..R."""
    radius = len(law) // 2
    beyond = 2 * np.cumsum(law[:radius])[::-1]  # Pr[|N| >= h + 1] for h = 0..R-1
    return np.append(beyond, 0.0)


def _reach_of(beyond: Floats, miss: float) -> int:
    """The first h whose tail is at most `miss`."""
    return int(np.argmax(beyond <= miss))
