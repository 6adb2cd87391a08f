"""Intervals for sums of independent symmetric noise, from variance and kurtosis.

In: a level. Out: number of standard deviations by excess kurtosis; half widths of sums of few draws of discrete
Laplace noise. Touches: nothing.
Source: Madan & Seneta 1990 (the variance-gamma law); docs/theory/workload.md, section 9; docs/theory/convolution.md,
section 8 (inversion of characteristic functions).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from sketchstream.noise.laws import DiscreteLaplace

Floats = npt.NDArray[np.float64]
FEW: Final = 64
"""Up to this many terms the law of their sum is inverted numerically; beyond, its kurtosis says enough."""
GRID: Final = 1 << 14
EXACT: Final = 1 << 15
"""Up to this many lattice points the law of a sum is inverted point by point; beyond, on a grid of `GRID` points."""
SPAN: Final = 40.0
"""Standard deviations that the grid covers: a Laplace draw lies outside with probability 5e-13."""
BELOW_ZERO: Final = (
    "some answers are below 0 by more than noise explains: weights below 0 were counted that no earlier event makes up "
    "for"
)
"""What is said where `below_zero`."""


def below_zero(values: Floats, stderr: Floats, *, gaussian: bool) -> bool:
    """Whether an unbiased answer is so far below 0 that its true value cannot be 0 or more.

    Chance does that with less than 1e-14 for an answer (Gaussian noise), or 1e-9 (one Laplace variable).

    Args:
        values: (d,) unbiased answers.
        stderr: (d,) their standard errors.
        gaussian: whether the noise is.
    """
    return bool(((values + (8.0 if gaussian else 16.0) * stderr) < 0).any())


@lru_cache(maxsize=64)
def quantiles(level: float) -> tuple[Floats, Floats]:
    """Number of standard deviations for an interval of this level, for excess kurtosis 0 to 3.

    The noise of an answer is treated as the symmetric variance-gamma law with its variance and kurtosis. That is exact
    for one Laplace variable, for means of equal ones, and for every direction of the ball's noise; 0 is normal.

    Args:
        level: between 0 and 1.

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


def half_width(sums: Sequence[tuple[Floats, Fraction]], level: float, lattice: float) -> float:
    """Half width for few terms: smallest r with Pr[|S| <= r] >= level, by inversion of the characteristic function.

    Exact while the law spreads over at most `EXACT` points of the lattice. Beyond, and for coefficients without a
    lattice (`lattice` 0), a grid of fixed size is used, so that the work does not grow with the weights. The half width
    is then at most two grid steps (1/410 of a standard deviation each) too large.
    """
    deviation = math.sqrt(sum(float(np.sum(part**2)) * moments(epsilon)[0] for part, epsilon in sums))
    points = 60 * deviation / lattice + 60 if lattice else math.inf
    if points <= EXACT:
        size = 1 << max(6, math.ceil(math.log2(points)))
        whole = [(np.rint(part / lattice), epsilon) for part, epsilon in sums]
        return lattice * int(np.searchsorted(_mass_within(whole, size), level - 1e-12))
    step = SPAN * deviation / GRID
    within = _mass_within([(part / step, epsilon) for part, epsilon in sums], GRID)
    half = step * (int(np.searchsorted(within, level)) + (0.5 if lattice else 1.5))
    return lattice * math.ceil(half / lattice) if lattice else half


def _mass_within(sums: Sequence[tuple[Floats, Fraction]], size: int) -> Floats:
    """(size/2,) Pr[|S| <= r + 1/2] for r = 0, 1, ..., S a sum of multiples of discrete Laplace draws.

    Whole multiples give the law itself, up to what lies beyond size/2; others give it smoothed over one step.
    """
    turn = 2 * math.pi * np.arange(size // 2 + 1) / size
    transform = np.ones(turn.size)
    for part, epsilon in sums:
        decay, rest = math.exp(-float(epsilon)), -math.expm1(-float(epsilon))
        for coefficient, count in zip(*np.unique(np.abs(part), return_counts=True), strict=True):
            transform *= (rest**2 / (rest**2 + 4 * decay * np.sin(coefficient * turn / 2) ** 2)) ** count
    mass = np.fft.irfft(transform, size)
    return np.asarray(mass[0] + 2 * np.cumsum(np.concatenate([[0.0], mass[1 : size // 2]])))


def moments(epsilon: Fraction) -> tuple[float, float]:
    """Variance v and excess kurtosis of discrete Laplace noise; its fourth cumulant is v + 3 v^2."""
    variance = DiscreteLaplace(epsilon).variance
    return variance, 3 + 1 / variance
