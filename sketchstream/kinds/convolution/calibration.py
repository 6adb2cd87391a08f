"""Privacy budgets of the noise kinds: mu of Gaussian noise, rho of noise that composes as zCDP.

In: epsilon and delta, exact rationals. Out: Fractions that are never above the true value. Touches: nothing.
Source: Balle & Wang, ICML 2018, Theorem 8 (mu); Canonne, Kamath & Steinke, NeurIPS 2020, Proposition 7 (zCDP to
(epsilon, delta)); docs/theory/convolution.md, section 3.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

from sketchstream.errors import SpecError
from sketchstream.privacy.calibration.continuous import MAX_DELTA, MIN_DELTA, calibrate
from sketchstream.privacy.losses.zcdp import log_of, zcdp_log_delta

SAFETY: Final = 1e-9
"""Relative amount by which rho is lowered; the search and its floating-point errors stay far below it."""


def require_delta(delta: Fraction) -> None:
    """Refuse a delta outside [1e-300, 0.5]."""
    if not MIN_DELTA <= delta <= MAX_DELTA:
        raise SpecError(f"delta must be in [1e-300, 0.5] for this noise, found {float(delta):.6g}")


@lru_cache(maxsize=64)
def mu_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Largest mu = sensitivity / sigma of (epsilon, delta)-private Gaussian noise, at most a relative 2e-11 too low.

    Source: Balle & Wang 2018, Theorem 8.
    """
    require_delta(delta)
    return Fraction(math.nextafter(1 / calibrate(epsilon, delta), 0))


@lru_cache(maxsize=64)
def rho_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Largest rho for which rho-zCDP implies (epsilon, delta), at most a relative 2e-9 below the bound.

    Source: Canonne, Kamath & Steinke 2020, Proposition 7: delta = min over alpha > 1 of
    exp((alpha - 1)(alpha rho - epsilon)) (1 - 1/alpha)^alpha / (alpha - 1).
    """
    require_delta(delta)
    return Fraction(_rho(float(epsilon), log_of(delta)) * (1 - SAFETY))


def _rho(epsilon: float, log_delta: float) -> float:
    """The lower end of a bisection on log rho."""
    low, high = math.log(epsilon) - 120.0, math.log(epsilon)
    for _ in range(80):
        middle = (low + high) / 2
        if zcdp_log_delta(math.exp(middle), epsilon) <= log_delta:
            low = middle
        else:
            high = middle
    return math.exp(low)
