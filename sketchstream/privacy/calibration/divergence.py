"""The hockey-stick divergence of two shifted Gaussians: log D(epsilon, mu), accurate for every argument.

In: epsilon >= 0 and mu > 0, float64 arrays. Out: log D, float64. Touches: nothing.
Source: Balle & Wang, ICML 2018, Theorem 8 (the condition), Lemma 7 (D grows with mu); docs/theory/gaussian.md,
section 2 (this form).

D(epsilon, mu) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) is the smallest delta for which noise of
standard deviation sigma is (epsilon, delta)-private at L2 sensitivity mu * sigma. The two terms can nearly cancel, and
e^epsilon can overflow. With s = epsilon/mu - mu/2, t = s + mu and the Mills ratio m(x) = Q(x) / phi(x), D is
phi(s) (m(s) - m(t)), which is phi(s) times the integral of h(x) = 1 - x m(x) from s to t.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from sketchstream.array_types import Floats

EXPANSION_FROM = 2.5
"""From this x on h(x) is read from its expansion: 1 - x m(x) would cancel."""
DEGREE = 28
"""Degree of the Chebyshev expansion of x^2 h(x) in 1/x on (0, 1/EXPANSION_FROM]; its relative error is below 1e-15."""
NODES = 8
"""Gauss-Legendre nodes for the integral of h over an interval no longer than 1; its relative error is below 1e-15."""
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


def log_divergence(epsilon: Floats, mu: Floats) -> Floats:
    """Log D(epsilon, mu).

    The result is the exact value at an mu that differs from the given one by a relative 1e-13 at most; the relative
    error of D itself is below 1e-12 for epsilon up to 1,000 and D down to 1e-300.

    Args:
        mu: (n,) above 0; sensitivity over sigma.
    """
    with np.errstate(over="ignore", divide="ignore", under="ignore"):  # beyond the floats, log D is -inf or 0
        quotient = epsilon / mu
        s, t = quotient - 0.5 * mu, quotient + 0.5 * mu
        out = -0.5 * s * s - HALF_LOG_TAU
        near = mu <= 1
        out[near] += _log_integral(s[near], mu[near])
        right = ~near & (s >= 0)
        out[right] += np.log(mills(s[right]) - mills(t[right]))
        left = ~near & (s < 0)
        out[left] = _log_complement(s[left], t[left])
    return out


def mills(x: Floats) -> Floats:
    """m(x) = Q(x) / phi(x), for x that do not overflow it (x > -38)."""
    from scipy.special import erfcx

    out: Floats = math.sqrt(math.pi / 2) * erfcx(x * math.sqrt(0.5))
    return out


def mills_slope(x: Floats) -> Floats:
    """h(x) = 1 - x m(x), which is -m'(x); positive. For x above -1."""
    near = x < EXPANSION_FROM
    inverse = 1 / np.where(near, EXPANSION_FROM, x)
    far = _chebyshev(2 * EXPANSION_FROM * inverse - 1) * inverse * inverse
    return np.where(near, 1 - x * mills(np.minimum(x, EXPANSION_FROM)), far)


def _log_integral(s: Floats, mu: Floats) -> Floats:
    """Log of the integral of h from s to s + mu, by Gauss and Legendre."""
    nodes, weights = _gauss_legendre()
    x = s + np.multiply.outer(0.5 * (nodes + 1), mu)
    return np.log(0.5 * mu) + np.log(weights @ mills_slope(x))


def _log_complement(s: Floats, t: Floats) -> Floats:
    """Log of D where it is near 1: 1 - D is Phi(s) + e^epsilon Phi(-t), and the second term is phi(s) m(t)."""
    from scipy.special import ndtr

    out: Floats = np.log1p(-(ndtr(s) + np.exp(-0.5 * s * s - HALF_LOG_TAU) * mills(t)))
    return out


def _chebyshev(w: Floats) -> Floats:
    """x^2 h(x) at w = 2 EXPANSION_FROM / x - 1, by Clenshaw's recurrence."""
    last, before = np.zeros_like(w), np.zeros_like(w)
    twice = 2 * w
    for coefficient in _coefficients()[:0:-1]:
        last, before = twice * last - before + coefficient, last
    return w * last - before + _coefficients()[0]


@lru_cache(maxsize=1)
def _gauss_legendre() -> tuple[Floats, Floats]:
    """Nodes and weights of the integral of h."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    nodes.flags.writeable = weights.flags.writeable = False
    return nodes, weights


@lru_cache(maxsize=1)
def _coefficients() -> tuple[float, ...]:
    """Chebyshev coefficients of x^2 h(x), from its values at the Chebyshev nodes."""
    size = DEGREE + 1
    angles = (np.arange(size) + 0.5) * math.pi / size
    values = np.array([_far_slope(2 * EXPANSION_FROM / (1 + math.cos(angle))) for angle in angles])
    sums = 2 / size * np.cos(np.multiply.outer(np.arange(size), angles)) @ values
    sums[0] /= 2
    return tuple(sums.tolist())


def _far_slope(x: float) -> float:
    """x^2 h(x) for x >= EXPANSION_FROM, by the continued fraction m(x) = 1 / (x + 1 / (x + 2 / (x + ...))).

    With K = 1 / (x + 2 / (x + ...)) the slope is K / (x + K): a quotient of positive numbers, nothing cancels.
    """
    tail = x
    for j in range(math.ceil(40 + 3200 / x**2), 1, -1):
        tail = x + j / tail
    return x * x / (tail * x + 1)
