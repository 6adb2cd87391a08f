"""Calibration of a projection's noise, for public and secret matrices.

In: epsilon, delta, k, a bound of the rows. Out: sigma in units in which the projection keeps norms ("JL units"), and
parameters sigma2 of the discrete noise, never too small. Touches: nothing.
Source: Tu (differentially private random projections), Kenthapadi et al. 2013, Laurent & Massart 2000; corrected and
improved in docs/theory/projection.md, sections 3 and 4.

A public matrix: the sensitivity is that of the matrix, exactly. A secret one: its squared sensitivity c is random, and
the delta of the pair (matrix, state) is the mean of D(epsilon, a sqrt c), a = 1 / (sqrt(k) sigma). Theorem 1 of
the paper is here as the end of a search.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

import numpy as np

from sketchstream.errors import SpecError
from sketchstream.privacy.calibration.continuous import DELTA_ERROR, MIN_DELTA, calibrate, check_delta, check_epsilon
from sketchstream.privacy.calibration.discrete import GRID, MAX_SIGMA2, require_sufficient, smoothed_delta
from sketchstream.privacy.calibration.divergence import log_divergence
from sketchstream.spec import Rational, checked_int

ROUNDING: Final = Fraction(4)
"""Variance of the random rounding with which discrete noise is compared."""
LATTICE_MARGIN: Final = Fraction(1, 10**12)
"""Relative amount by which epsilon and delta are lowered for the difference of discrete and continuous noise."""
TABLE_EXCESS: Final = Fraction(1, 10**9)
"""Relative amount by which sigma is raised for a secret matrix: its entries come from a table of 63-bit thresholds."""
SECRET_INFLATION: Final = 1e-5
SEARCH_TOLERANCE: Final = 1e-13
"""Relative step of log sigma at which a search has converged."""
BRACKET: Final = 1e-11
"""Width of the bracket of log sigma that a quick search finds before."""
MAX_CELLS: Final = 1 << 21
"""Cells of the certificate of a secret matrix, at most."""


def paper_theorem_1(epsilon: Rational, delta: Rational, k: int) -> float:
    """Sigma of the paper's Theorem 1, corrected: sufficient for a secret matrix only; for comparison.

    Source: Tu, Theorem 1, with the split of delta that its proof needs and the radicals apart.
    """
    eps, target, k = _check_arguments(epsilon, delta, k)
    log2 = math.log(2 / target)
    stretch = (k + 2 * math.sqrt(k * log2) + 2 * log2) / k
    return math.sqrt(stretch * 2 * (math.log(1 / target) + eps)) / eps


def sub_gaussian(epsilon: Rational, delta: Rational, k: int) -> float:
    """A sigma, in JL units for rows of norm 1, that is enough for a secret matrix of independent sub-Gaussian columns.

    Source: docs/theory/projection.md, theorem 4.
    """
    eps, target, k = _check_arguments(epsilon, delta, k)
    root = math.sqrt(k)
    sigma = _least(
        lambda log_sigma: math.exp(_search_bound(eps, math.exp(-log_sigma) / root, k)[0]),
        target,
        math.log(calibrate(eps, target)) - 1e-6,
        math.log(paper_theorem_1(max(eps, 1e-3), target, k)) + 1,
    )
    return sigma * (1 + SECRET_INFLATION)


def sub_gaussian_delta(epsilon: Rational, scale: float, k: int) -> float:
    """An upper bound of delta for a secret sub-Gaussian matrix: certified over all lengths of the projected row.

    Args:
        scale: the norm of the difference of two rows over sqrt(k) sigma; above 0.
    """
    eps = float(check_epsilon(epsilon))
    k = checked_int(k, "k", 1, 1 << 40)
    guess, tilt = _search_bound(eps, scale, k)
    factor = -k / 2 * math.log1p(-2 * tilt)
    return min(1.0, math.exp(factor + _certified_supremum(eps, scale, tilt, guess - factor)) * (1 + 1e-11))


def sub_gaussian_epsilon(delta: float, scale: float, k: int) -> float:
    """The epsilon at which the bound of a secret matrix is delta, without a certificate: check `sub_gaussian_delta`.

    It is infinite beyond 10,000.
    """
    from scipy.optimize import brentq

    def excess(epsilon: float) -> float:
        return _search_bound(epsilon, scale, k)[0] - math.log(delta)

    low, high = 0.0, 1.0
    if excess(low) <= 0:
        return 0.0
    while excess(high) > 0:
        low, high = high, 2 * high
        if high > 1e4:
            return math.inf
    return float(brentq(excess, low, high, xtol=1e-12, rtol=1e-10))


def public_sigma2(epsilon: Rational, delta: Rational, sensitivity2: Fraction, k: int) -> Fraction:
    """Parameter of the discrete noise of every cell for a public matrix; verified.

    Args:
        sensitivity2: the largest squared norm of a change of a row of the state, lattice units.
        k: number of columns, and so of cells that a neighbour can change.
    """
    eps, target = _lower_for_lattice(epsilon, delta)
    root = math.nextafter(math.sqrt(sensitivity2), math.inf)
    sigma2 = on_grid(Fraction(calibrate(eps, target, root)) ** 2 + ROUNDING)
    verify_public(epsilon, delta, sensitivity2, k, sigma2)
    return sigma2


def verify_public(epsilon: Rational, delta: Rational, sensitivity2: Fraction, k: int, sigma2: Fraction) -> float:
    """An upper bound of the delta of discrete noise for a public matrix, which is at most `delta`.

    The parameter of the noise is `sigma2`; the other arguments are as for `public_sigma2`.
    """
    actual = smoothed_delta(float(check_epsilon(epsilon)), sigma2, sensitivity2, k, ROUNDING)
    return require_sufficient(actual, delta, sigma2)


def secret_sigma2(
    epsilon: Rational, delta: Rational, norm2: Fraction, k: int, entry_variance: Fraction | int
) -> Fraction:
    """Parameter of the discrete noise of every cell for a secret matrix with sub-Gaussian entries; verified.

    Args:
        norm2: the largest squared norm of a change of a row of the data, lattice units.
    """
    eps, target = _lower_for_lattice(epsilon, delta)
    sigma = Fraction(sub_gaussian(eps, target, k)) * (1 + TABLE_EXCESS)
    sigma2 = on_grid(sigma**2 * norm2 * k * entry_variance + ROUNDING)
    verify_secret(epsilon, delta, norm2, k, entry_variance, sigma2)
    return sigma2


def verify_secret(
    epsilon: Rational, delta: Rational, norm2: Fraction, k: int, entry_variance: Fraction | int, sigma2: Fraction
) -> float:
    """An upper bound of the delta of discrete noise for a secret matrix, which is at most `delta`.

    The parameter of the noise is `sigma2`; the other arguments are as for `secret_sigma2`.
    """
    eps = check_epsilon(epsilon) * (1 - LATTICE_MARGIN)
    return require_sufficient(secret_delta(eps, norm2, k, entry_variance, sigma2), delta, sigma2)


def secret_delta(epsilon: Rational, norm2: Fraction, k: int, entry_variance: Fraction | int, sigma2: Fraction) -> float:
    """An upper bound of the delta of discrete noise for a secret matrix.

    Args:
        epsilon: a number not below 0, lowered by `LATTICE_MARGIN` if the result is for the epsilon above it.
        norm2: the largest squared norm of a change of a row of the data, lattice units, times the number by which
            several views raise mu^2 (1 for a single view).
    """
    if sigma2 <= ROUNDING:
        return 1.0
    scale = math.sqrt(norm2 * entry_variance / (sigma2 - ROUNDING)) * (1 + float(TABLE_EXCESS) / 2)
    return min(1.0, sub_gaussian_delta(epsilon, scale, k) * (1 + float(LATTICE_MARGIN)))


def on_grid(value: Fraction) -> Fraction:
    """The next multiple of 1/1024, if it leaves room in 64 bits."""
    sigma2 = Fraction(math.ceil(value * GRID), GRID)
    if sigma2 >= MAX_SIGMA2:
        bits = math.isqrt(math.ceil(sigma2)).bit_length()
        raise SpecError(f"the noise must stay below 2^40 lattice units, found about 2^{bits}: use fewer fraction_bits")
    return sigma2


def _check_arguments(epsilon: Rational, delta: Rational, k: int) -> tuple[float, float, int]:
    return float(check_epsilon(epsilon)), float(check_delta(delta)), checked_int(k, "k", 1, 1 << 40)


def _lower_for_lattice(epsilon: Rational, delta: Rational) -> tuple[Fraction, Fraction]:
    """Epsilon and delta for which the noise is found, before it is made discrete."""
    return check_epsilon(epsilon) * (1 - LATTICE_MARGIN), max(MIN_DELTA, check_delta(delta) * (1 - LATTICE_MARGIN))


def _least(delta_at: Callable[[float], float], target: float, low: float, high: float) -> float:
    """The sigma with delta_at(log sigma) = target, by bisection; the end with a sufficiently small delta.

    Steps that end outside a bracket found before are decided by it: delta falls with sigma. The result is the same.
    """
    while delta_at(high) > target:
        low, high = high, high + 1
    left, right = _bracket(delta_at, target, low, high)
    while high - low > SEARCH_TOLERANCE * max(1.0, abs(high)):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if middle <= left or (middle < right and delta_at(middle) > target):
            low = middle
        else:
            high = middle
    return math.exp(high)


def _bracket(delta_at: Callable[[float], float], target: float, low: float, high: float) -> tuple[float, float]:
    """Two numbers with the solution between them: delta is too large at the first and small enough at the second.

    Where that cannot be shown for one of them, it is `low`, or `high`.
    """
    from scipy.optimize import brentq

    def excess(log_sigma: float) -> float:
        return math.log(max(delta_at(log_sigma), 1e-320)) - math.log(target)

    if excess(low) <= 0:
        return low, high
    near = float(brentq(excess, low, high, xtol=BRACKET, rtol=1e-14))
    left, right = max(low, near - 4 * BRACKET), min(high, near + 4 * BRACKET)
    return left if delta_at(left) > target else low, right if delta_at(right) <= target else high


def _search_bound(epsilon: float, scale: float, k: int) -> tuple[float, float]:
    """Least over lambda of -k/2 log(1 - 2 lambda) + sup_c (log D(epsilon, scale sqrt c) - lambda c), and its lambda."""
    from scipy.optimize import minimize_scalar

    u = math.log(k) / 2 + np.linspace(-1.5, 2.5, 400)
    coarse = log_divergence(np.full_like(u, epsilon), scale * np.exp(u))
    squares = np.exp(2 * u)

    def log_bound(tilt: float) -> float:
        values = coarse - tilt * squares
        best = int(values.argmax())
        left, right = u[max(best - 1, 0)], u[min(best + 1, len(u) - 1)]
        for _ in range(3):
            fine = np.linspace(left, right, 17)
            here = log_divergence(np.full_like(fine, epsilon), scale * np.exp(fine)) - tilt * np.exp(2 * fine)
            at = int(here.argmax())
            left, right = fine[max(at - 1, 0)], fine[min(at + 1, 16)]
        return float(here[at] - k / 2 * math.log1p(-2 * tilt))

    minimum = minimize_scalar(log_bound, bounds=(1e-9, 0.5 - 1e-9), method="bounded", options={"xatol": 1e-10})
    return float(minimum.fun), float(minimum.x)


def _certified_supremum(epsilon: float, scale: float, tilt: float, guess: float) -> float:
    """An upper bound of the supremum over c >= 0 of log D(epsilon, scale sqrt c) - tilt c.

    D grows with c and the other factor falls, so on a cell [c1, c2] the value is at most log D at c2 - tilt c1. Cells
    in which that exceeds what was found by search are halved until it does not, up to a relative 1e-6.
    """
    limit = guess + 1e-6
    end = math.sqrt(max(-guess, 1.0) / tilt) * 1.01  # beyond it D <= 1 is enough
    edges = np.linspace(0.0, end, 1025)
    left, right = edges[:-1], edges[1:]
    worst = -tilt * end * end
    cells = 0
    while len(left):
        values = log_divergence(np.full_like(right, epsilon), scale * right) + DELTA_ERROR - tilt * left * left
        good = values <= limit
        if good.any():
            worst = max(worst, float(values[good].max()))
        cells += len(left)
        left, right = left[~good], right[~good]
        if cells > MAX_CELLS:
            return max(worst, float(values.max()))
        middle = (left + right) / 2
        left, right = np.concatenate((left, middle)), np.concatenate((middle, right))
    return worst
