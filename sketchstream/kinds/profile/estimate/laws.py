"""Noise of a counter, for the estimators: stencils, eigenvalues, laws of sums of layers.

In: effective epsilons. Out: numbers and arrays. Touches: nothing.
Source: Wu & Pagh, ICML 2024, Lemma 4.6 (eigenvalues); Ghazi et al., NeurIPS 2022 (the stencil);
docs/theory/profile.md 2 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sketchstream.array_types import Floats


def decay(epsilon: float) -> float:
    """A = exp(-epsilon), the ratio of the discrete Laplace law."""
    return math.exp(-epsilon)


def stencil(epsilons: Sequence[float]) -> Floats:
    """(2k+1,) taps of the inverse of k discrete Laplace layers, centre at k; they sum to 1.

    One layer: (-a, 1 + a^2, -a) / (1-a)^2. Source: docs/theory/profile.md 2.
    """
    taps = np.ones(1)
    for epsilon in epsilons:
        a = decay(epsilon)
        single_layer = np.array([-a, 1.0 + a * a, -a]) / math.expm1(-epsilon) ** 2
        taps = np.convolve(taps, single_layer)
    return taps


def response_eigenvalue(epsilons: Sequence[float], p: int) -> float:
    """L, the eigenvalue off zero of randomized response on Z_p, over all layers."""
    out = 1.0
    for epsilon in epsilons:
        out *= math.expm1(epsilon) / (math.expm1(epsilon) + p)
    return out


def gain(epsilons: Sequence[float]) -> float:
    """Norm of the inverse on the line: product of coth^2(epsilon/2) over the layers."""
    return math.prod(1.0 / math.tanh(epsilon / 2.0) ** 2 for epsilon in epsilons)


def radius(epsilons: Sequence[float], share: float) -> int:
    """R with Pr[|sum of the layers| > r] below about `share`."""
    return max(1, math.ceil(sum(math.log(2.0 * len(epsilons) / share) / epsilon for epsilon in epsilons)))


def noise_pmf(epsilons: Sequence[float], reach: int) -> Floats:
    """(2 reach + 1,) law of the sum of the layers on -reach..reach, by repeated two-sided filters.

    Exact for one layer; else exact up to the mass beyond `reach`.
    """
    j = np.abs(np.arange(-reach, reach + 1))
    out: Floats | None = None
    for epsilon in epsilons:
        a = decay(epsilon)
        single_layer = -math.expm1(-epsilon) / (1.0 + a) * np.exp(-epsilon * j)
        if out is None:
            out = single_layer
        else:
            size = 2 * out.size
            product = np.fft.irfft(np.fft.rfft(out, size) * np.fft.rfft(single_layer, size), size)
            out = np.maximum(product[reach : 3 * reach + 1], 0.0)
    assert out is not None
    return out


def tail_variance(epsilons: Sequence[float]) -> float:
    """V0 of one slot's contribution to a k+ share when its count is near k (one layer; product form else).

    Source: Ghazi et al. 2022; docs/theory/profile.md 3.
    """
    out = 1.0
    for epsilon in epsilons:
        a = decay(epsilon)
        x = a / (1.0 - a) ** 2
        v = (x * x * (1.0 - a) + (1.0 + x) ** 2 * a * (1.0 - a) + a * a) / (1.0 + a)
        out *= v if out == 1.0 else 1.0 / math.tanh(epsilon / 2.0) ** 2
    return out
