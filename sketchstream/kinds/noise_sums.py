"""The law of the sum of a counter's noises, and the interval of a ratio of two estimates.

In: the laws of a counter's noise; two estimates with their variances. Out: variances, quantiles, interval ends.
Touches: nothing.
Source: Fieller 1954 (ratio of two estimates); docs/theory/privacy.md, section 3 (the counters' noise).
"""

from __future__ import annotations

import math
from collections import Counter as Multiset
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.components import Noise
from sketchstream.privacy.losses.law_names import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE

Draws = tuple[tuple[float, int], ...]
"""Parameters of draws, and how many draws have each."""
MAX_LAW_POINTS = 1 << 20
"""Points of a law; wider laws are computed on every second, fourth, ... integer, and rounded outwards."""


@dataclass(frozen=True)
class NoiseSum:
    """The sum of independent discrete Laplace and discrete Gaussian draws.

    Args:
        epsilons: parameters of the Laplace draws.
        sigma2s: parameters of the Gaussian draws.
    """

    epsilons: tuple[Fraction, ...]
    sigma2s: tuple[Fraction, ...] = ()

    @classmethod
    def of(cls, draws: Iterable[Noise]) -> NoiseSum:
        """Build the sum of the draws in a counter."""
        laws: dict[str, list[Fraction]] = {DISCRETE_LAPLACE: [], DISCRETE_GAUSSIAN: []}
        for draw in draws:
            laws[draw.law].append(draw.parameter)
        return cls(tuple(laws[DISCRETE_LAPLACE]), tuple(laws[DISCRETE_GAUSSIAN]))

    @cached_property
    def variance(self) -> float:
        """Variance of the sum: 2a / (1-a)^2 per Laplace draw, a = exp(-epsilon); at most sigma2 per Gaussian."""
        laplace = sum(0.5 / math.sinh(float(epsilon) / 2) ** 2 for epsilon in self.epsilons)
        return laplace + float(sum(self.sigma2s))

    @property
    def deviation(self) -> float:
        """Standard deviation of the sum."""
        return math.sqrt(self.variance)

    def quantile(self, alpha: float) -> float:
        """The smallest q with Pr[sum > q] <= alpha; alpha below a half. Exact, by the Fourier transform of the law."""
        return _quantile(_with_multiplicities(self.epsilons), _with_multiplicities(self.sigma2s), alpha)

    def ends(self, level: float) -> tuple[float, float]:
        """(-q, q) with Pr[-q <= sum <= q] at least `level`."""
        q = self.quantile((1.0 - level) / 2.0)
        return -q, q


def _with_multiplicities(parameters: Iterable[Fraction]) -> Draws:
    """Each parameter as a float, with its multiplicity."""
    return tuple(sorted(Multiset(map(float, parameters)).items()))


@lru_cache(maxsize=64)
def _tail(epsilons: Draws, sigma2s: Draws) -> tuple[int, Floats]:
    """Step of the lattice, and Pr[sum >= step * j] for j = 0, 1, 2, ..."""
    variance = sum(times * 0.5 / math.sinh(epsilon / 2) ** 2 for epsilon, times in epsilons)
    variance += sum(times * sigma2 for sigma2, times in sigma2s)
    reach = 10.0 * math.sqrt(variance) + 40.0 / min((epsilon for epsilon, _ in epsilons), default=20.0) + 2.0
    step = 1
    while 2.0 * reach / step > MAX_LAW_POINTS:
        step *= 2
    size = 1 << max(4, math.ceil(math.log2(2.0 * reach / step)))
    wave = 2.0 * np.pi * np.arange(size // 2 + 1) / size
    spectrum = np.ones(wave.size)
    for epsilon, times in epsilons:
        # (1-a)^2 / (1 - 2a cos w + a^2), without cancellation
        spectrum *= (1.0 + (np.sin(wave / 2.0) / math.sinh(epsilon * step / 2.0)) ** 2) ** -times
    for sigma2, times in sigma2s:
        spectrum *= _gaussian_spectrum(wave, sigma2 / step**2) ** times
    law = np.maximum(np.fft.irfft(spectrum, size), 0.0)
    upper: Floats = np.cumsum(law[: size // 2][::-1])[::-1]
    return step, upper


def _gaussian_spectrum(wave: Floats, sigma2: float) -> Floats:
    """Characteristic function of a discrete Gaussian, on [0, pi]; by Poisson summation unless sigma2 is small."""
    if sigma2 < 1:
        k = np.arange(1, 12)
        weights = np.exp(-(k**2) / (2 * sigma2))
        small: Floats = (1 + 2 * np.cos(np.multiply.outer(wave, k)) @ weights) / (1 + 2 * weights.sum())
        return small
    turns = 2 * np.pi * np.arange(-2, 3)
    large: Floats = np.exp(-sigma2 * np.add.outer(turns, wave) ** 2 / 2).sum(axis=0)
    return large / float(np.exp(-sigma2 * turns**2 / 2).sum())


def _quantile(epsilons: Draws, sigma2s: Draws, alpha: float) -> float:
    step, upper = _tail(epsilons, sigma2s)
    first = int(np.argmax(upper <= alpha)) if upper[-1] <= alpha else upper.size
    return float(max(first - 1, 0) * step + (step - 1))


def fieller(
    value: float, variance: float, items: float, items_variance: float, z: float, covariance: float = 0.0
) -> tuple[float, float]:
    """Fieller's interval of value / items, two estimates of this covariance; unbounded if `items` may be 0."""
    a = items**2 - z**2 * items_variance
    b = value * items - z**2 * covariance
    c = value**2 - z**2 * variance
    inside = b * b - a * c
    if items <= 0.0 or a <= 0.0:
        return (0.0 if c <= 0.0 or inside <= 0.0 else _least(a, b, c, inside)), math.inf
    root = math.sqrt(max(inside, 0.0))
    return (b - root) / a, (b + root) / a


def _least(a: float, b: float, c: float, inside: float) -> float:
    """The lower end if there is no upper one: the smallest positive root of a r^2 - 2 b r + c."""
    root = math.sqrt(inside)
    roots = [(b - root) / a, (b + root) / a] if a else [c / (2.0 * b)] if b else []
    return min((one for one in roots if one > 0.0), default=0.0)
