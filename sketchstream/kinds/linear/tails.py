"""Intervals for sums of independent symmetric noise, from variance and kurtosis.

In: a level. Out: number of standard deviations by excess kurtosis. Touches: nothing.
Source: Madan & Seneta 1990 (the variance-gamma law); docs/theory/workload.md, section 9.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from sketchstream.array_types import Floats

BELOW_ZERO: Final = (
    "some answers are below 0 by more than noise explains: weights below 0 were counted that no earlier event makes up "
    "for"
)
"""Sentence that answers carry where `below_zero` is true."""


def below_zero(values: Floats, stderr: Floats, *, gaussian: bool) -> bool:
    """Whether an unbiased answer is so far below 0 that its true value cannot be 0 or more.

    Chance does that with less than 1e-14 for an answer (Gaussian noise), or 1e-9 (one Laplace variable).
    """
    return bool(((values + (8.0 if gaussian else 16.0) * stderr) < 0).any())


@lru_cache(maxsize=64)
def quantiles(level: float) -> tuple[Floats, Floats]:
    """Number of standard deviations for an interval of this level, for excess kurtosis 0 to 3.

    The noise of an answer is treated as the symmetric variance-gamma law with its variance and kurtosis. That is exact
    for one Laplace variable, for means of equal ones, and for every direction of the ball's noise; 0 is normal.

    Returns:
        (61,) kurtosis, and (61,) factors.
    """
    from scipy.optimize import brentq
    from scipy.special import erfc, gammaincinv, ndtri

    grid = np.linspace(0.0, 3.0, 61)
    factors = np.empty_like(grid)
    factors[0] = ndtri(0.5 + level / 2)
    # Midpoints of 4,000 equally likely parts, finer towards a small mixing variable.
    nodes, weights = np.polynomial.legendre.leggauss(400)
    levels, shares = (nodes + 1) / 2, weights / 2
    for i, kurtosis in enumerate(grid[1:], 1):
        shape = 3 / kurtosis
        mixing = gammaincinv(shape, levels) / shape

        def outside(x: float, mixing: Floats = mixing) -> float:
            return float(shares @ erfc(x / np.sqrt(2 * mixing))) - (1 - level)

        factors[i] = brentq(outside, 1e-9, 60.0)
    return grid, factors
