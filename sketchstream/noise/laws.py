"""The laws of the noise: probabilities, exact moments, and a battery of statistical tests for samples.

In: exact parameters, samples. Out: probabilities in float64, chi-square p-values. Touches: nothing.
Source: Ghosh, Roughgarden & Sundararajan 2009 (discrete Laplace); Dwork et al. 2010 (randomized response on Z_p);
Canonne, Kamath & Steinke 2020 (discrete Gaussian); docs/theory/gaussian.md (its theta identities).

The floats here serve tests, displays and estimators; no sampler uses this module. A battery can reject a wrong law, but
cannot prove an exact one (docs/theory/noise.md has the proofs).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats

Values = npt.NDArray[np.integer]

MIN_EXPECTED_COUNT = 25
"""Smallest expected count of a chi-square cell; rarer values are pooled with their neighbours outwards."""
MAX_CELLS = 20_000
RESIDUES = 64
EQUAL_CELLS = 100
MAX_EXPONENT = 350
"""Exponents up to which squares of hyperbolic functions are floats."""


class Law(Protocol):
    """A law on the integers, symmetric about 0 (randomized response: on 0..p-1)."""

    @property
    def low(self) -> float:
        """Smallest possible value; -inf on the line."""

    @property
    def mean(self) -> float:
        """First moment of the law."""

    @property
    def variance(self) -> float:
        """Second moment about the mean."""

    @property
    def moved(self) -> float:
        """Probability of all values but 0, without cancellation."""

    def pmf(self, values: Values) -> Floats:
        """Probability of each value."""

    def cdf(self, values: Values) -> Floats:
        """Probability of at most each value."""

    def residues(self, modulus: int) -> Floats:
        """(modulus,) probability of each residue."""


@dataclass(frozen=True)
class DiscreteLaplace:
    """Pr[z = j] = (1 - a) / (1 + a) * a^|j| with a = exp(-epsilon)."""

    epsilon: Fraction

    low = -math.inf
    mean = 0.0

    @cached_property
    def moved(self) -> float:
        """2 a / (1 + a)."""
        return 2 * self.ratio / (1 + self.ratio)

    @cached_property
    def ratio(self) -> float:
        """The ratio a of neighbouring probabilities."""
        return math.exp(-float(self.epsilon))

    @cached_property
    def variance(self) -> float:
        """2 a / (1 - a)^2, which is 1 / (2 sinh^2(epsilon / 2))."""
        half = float(self.epsilon) / 2
        return 0.5 / math.sinh(half) ** 2 if half < MAX_EXPONENT else 0.0

    def pmf(self, values: Values) -> Floats:
        """Probability of each value."""
        out: Floats = math.tanh(float(self.epsilon) / 2) * np.exp(-float(self.epsilon) * np.abs(_float(values)))
        return out

    def cdf(self, values: Values) -> Floats:
        """Probability of at most each value."""
        eps, x = float(self.epsilon), _float(values)
        below = np.exp(-eps * np.abs(np.where(x < 0, x, x + 1))) / (1 + self.ratio)
        return np.where(x < 0, below, 1 - below)

    def residues(self, modulus: int) -> Floats:
        """(modulus,) probability of each residue: tanh(eps/2) (a^j + a^(m-j)) / (1 - a^m)."""
        eps, j = float(self.epsilon), np.arange(modulus, dtype=np.float64)
        out: Floats = (
            math.tanh(eps / 2) * (np.exp(-eps * j) + np.exp(-eps * (modulus - j))) / -math.expm1(-eps * modulus)
        )
        return out


@dataclass(frozen=True)
class RandomizedResponse:
    """Pr[z = 0] = e^epsilon / (e^epsilon + p - 1) on Z_p, every other value 1 / (e^epsilon + p - 1)."""

    modulus: int
    epsilon: Fraction

    low = 0.0

    @cached_property
    def each(self) -> float:
        """Probability of each single value but 0."""
        q = math.exp(-float(self.epsilon))
        return q / (1 + (self.modulus - 1) * q)

    @cached_property
    def moved(self) -> float:
        """Probability of all values but 0."""
        return (self.modulus - 1) * self.each

    @cached_property
    def mean(self) -> float:
        """Mean of z as one of the integers 0..p-1."""
        return self.each * self.modulus * (self.modulus - 1) / 2

    @cached_property
    def variance(self) -> float:
        """Variance of z as one of the integers 0..p-1."""
        p = self.modulus
        return self.each * (p - 1) * p * (2 * p - 1) / 6 - self.mean * self.mean

    def pmf(self, values: Values) -> Floats:
        """Probability of each value."""
        x = _float(values)
        inside = (x >= 0) & (x < self.modulus)
        return np.where(x == 0, 1 - self.moved, np.where(inside, self.each, 0.0))

    def cdf(self, values: Values) -> Floats:
        """Probability of at most each value."""
        x = np.minimum(_float(values), self.modulus - 1)
        return np.where(x < 0, 0.0, 1 - (self.modulus - 1 - x) * self.each)

    def residues(self, modulus: int) -> Floats:
        """(modulus,) probability of each residue of z."""
        every = np.arange(self.modulus)
        return _fold_residues(every, self.pmf(every), modulus)


@dataclass(frozen=True)
class DiscreteGaussian:
    """Pr[z = j] = exp(-j^2 / (2 sigma2)) / Z."""

    sigma2: Fraction

    low = -math.inf
    mean = 0.0

    @cached_property
    def moved(self) -> float:
        """Probability of all values but 0."""
        if self.sigma < 1:
            return 2 * math.fsum(math.exp(-j * j / (2 * float(self.sigma2))) for j in range(1, 60)) / self.normaliser
        return 1 - 1 / self.normaliser

    @cached_property
    def sigma(self) -> float:
        """Square root of the parameter (above the standard deviation for small parameters)."""
        return math.sqrt(self.sigma2)

    @cached_property
    def normaliser(self) -> float:
        """Z, by the theta series that converges faster."""
        s2 = float(self.sigma2)
        if s2 < 1:
            return 1 + 2 * math.fsum(math.exp(-j * j / (2 * s2)) for j in range(1, 60))
        return math.sqrt(2 * math.pi * s2) * (1 + 2 * math.fsum(math.exp(-2 * math.pi**2 * s2 * j * j) for j in (1, 2)))

    @cached_property
    def variance(self) -> float:
        """The exact variance: below sigma2, and equal to it up to 1e-30 from sigma = 2 on; see `gaussian_variance`."""
        s2 = float(self.sigma2)
        if s2 >= 4:
            return s2
        return 2 * math.fsum(j * j * math.exp(-j * j / (2 * s2)) for j in range(1, 100)) / self.normaliser

    @cached_property
    def fourth_cumulant(self) -> float:
        """The fourth moment without three times the squared variance: 0, as of a normal law, from sigma = 2 on."""
        s2 = float(self.sigma2)
        if s2 >= 4:
            return 0.0
        fourth = 2 * math.fsum(j**4 * math.exp(-j * j / (2 * s2)) for j in range(1, 100)) / self.normaliser
        return fourth - 3 * self.variance**2

    def pmf(self, values: Values) -> Floats:
        """Probability of each value."""
        x = _float(values) / self.sigma
        out: Floats = np.exp(-0.5 * x * x) / self.normaliser
        return out

    @cached_property
    def _sums(self) -> Floats:
        """Probability of at most j, j = -R..R, for a sigma that allows a table."""
        reach = math.ceil(40 * self.sigma) + 1
        return np.cumsum(self.pmf(np.arange(-reach, reach + 1)))

    def cdf(self, values: Values) -> Floats:
        """Probability of at most each value; by Euler and Maclaurin where sigma is large (error below 1e-12)."""
        from scipy.special import ndtr

        if self.sigma <= 1000:
            reach = len(self._sums) // 2
            out: Floats = self._sums[np.clip(np.asarray(values), -reach, reach) + reach]
            return out
        x = (_float(values) + 0.5) / self.sigma
        correction = x * np.exp(-0.5 * x * x) / (math.sqrt(2 * math.pi) * 24 * float(self.sigma2))
        below: Floats = ndtr(x) + correction
        return below

    def residues(self, modulus: int) -> Floats:
        """(modulus,) probability of each residue."""
        if self.sigma <= 1000:
            reach = len(self._sums) // 2
            every = np.arange(-reach, reach + 1)
            return _fold_residues(every, self.pmf(every), modulus)
        waves = 2 * np.pi * np.arange(modulus) / modulus
        out = np.ones(modulus)
        for k in range(1, 20):
            out += 2 * math.exp(-2 * (math.pi * k * self.sigma / modulus) ** 2) * np.cos(k * waves)
        return out / modulus


def gaussian_variance(sigma2: Fraction) -> Fraction:
    """Variance of discrete Gaussian noise: sigma2 itself from 4 on, less below; 0 where there is no noise."""
    if not 0 < sigma2 < 4:
        return sigma2
    return Fraction(max(DiscreteGaussian(sigma2).variance, sys.float_info.min))


@dataclass(frozen=True)
class Check:
    """One test of a battery: its name, its chi-square statistic and degrees of freedom, its p-value."""

    name: str
    statistic: float
    freedom: int
    p_value: float


def chi_square(name: str, observed: Values, expected: Floats) -> Check:
    """Pearson's test of counts against expected counts of the same sum; cells are merged until each has enough.

    Cells are joined to the next one while fewer than `MIN_EXPECTED_COUNT` are expected in them.
    """
    from scipy.special import gammaincc

    seen, merged = _pool_cells(np.asarray(observed, dtype=np.float64), expected)
    freedom = len(seen) - 1
    if freedom < 1:
        return Check(name, 0.0, 0, 1.0)
    statistic = float(np.sum((seen - merged) ** 2 / merged))
    return Check(name, statistic, freedom, float(gammaincc(freedom / 2, statistic / 2)))


def battery(samples: Values, law: Law) -> list[Check]:
    """Every test of a sample against its law.

    `values`: each integer a cell of its own while enough are expected of it, both tails pooled. `equal`: about 100
    cells of equal mass, for slow drifts that many small cells hide. `residues`: modulo 64, for the low digits.
    `sign`: below, at and above 0. `zero`: how many differ from 0, exactly binomial. `spread`: the second moment, as a
    chi-square of one degree.

    Args:
        samples: (n,) independent draws.
        law: the law to test against.

    Returns:
        One `Check` each; under the law every p-value is uniform, up to the chi-square approximation.
    """
    n = samples.size
    return [
        _cells("values", samples, law, _unit_edges(law, n)),
        _cells("equal", samples, law, _equal_edges(law)),
        chi_square(
            "residues",
            np.bincount((samples % RESIDUES).astype(np.int64), minlength=RESIDUES),
            n * law.residues(RESIDUES),
        ),
        _cells("sign", samples, law, np.array([-1, 0])),
        _zero(samples, law),
        _check_spread(samples, law),
    ]


def _cells(name: str, samples: Values, law: Law, edges: npt.NDArray[np.int64]) -> Check:
    """Chi-square over the cells x <= edges[0], edges[i-1] < x <= edges[i], x > edges[-1]."""
    counts = np.bincount(np.searchsorted(edges, samples, side="left"), minlength=len(edges) + 1)
    mass = np.diff(law.cdf(edges), prepend=0.0, append=1.0)
    return chi_square(name, counts, samples.size * mass)


def _unit_edges(law: Law, n: int) -> npt.NDArray[np.int64]:
    """Every integer near 0 of which enough are expected in n draws."""
    reach = 1
    while reach < MAX_CELLS // 2 and n * float(law.pmf(np.array([reach]))[0]) >= MIN_EXPECTED_COUNT:
        reach = min(2 * reach, MAX_CELLS // 2)
    every = np.arange(max(-reach, law.low), reach + 1).astype(np.int64)
    return every[n * law.pmf(every) >= MIN_EXPECTED_COUNT] if len(every) else np.array([0])


def _equal_edges(law: Law) -> npt.NDArray[np.int64]:
    """Integers at which the cdf passes the multiples of 1 / EQUAL_CELLS."""

    def passed(share: float) -> Callable[[int], bool]:
        return lambda x: float(law.cdf(np.array([x]))[0]) >= share

    edges = [_smallest_holding(passed(cell / EQUAL_CELLS)) for cell in range(1, EQUAL_CELLS)]
    return np.unique(np.array(edges, dtype=np.int64))


def _smallest_holding(reached: Callable[[int], bool]) -> int:
    """Smallest integer for which a monotone predicate holds."""
    low, high = -1, 1
    while reached(low):
        low *= 2
    while not reached(high):
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _zero(samples: Values, law: Law) -> Check:
    """The exact binomial test of how many samples are not 0: the only one with power where nearly all are."""
    from scipy.special import betainc

    n, nonzero = samples.size, int(np.count_nonzero(samples))
    share = law.moved
    at_least = float(betainc(nonzero, n - nonzero + 1, share)) if nonzero else 1.0
    at_most = 1 - float(betainc(nonzero + 1, n - nonzero, share)) if nonzero < n else 1.0
    return Check("zero", float(nonzero), 1, min(1.0, 2 * min(at_least, at_most)))


def _check_spread(samples: Values, law: Law) -> Check:
    """The mean square about the law's mean, against its variance; its own spread is taken from the sample."""
    squares = (_float(samples) - law.mean) ** 2
    deviation = float(squares.std())
    if deviation == 0.0 or np.count_nonzero(samples) < MIN_EXPECTED_COUNT:
        return Check("spread", 0.0, 0, 1.0)
    statistic = samples.size * (float(squares.mean()) - law.variance) ** 2 / deviation**2
    return Check("spread", statistic, 1, math.erfc(math.sqrt(statistic / 2)))


def _pool_cells(observed: Floats, expected: Floats) -> tuple[Floats, Floats]:
    """Neighbouring cells joined until at least `MIN_EXPECTED_COUNT` are expected in each."""
    if np.all(expected >= MIN_EXPECTED_COUNT):
        return observed, expected
    seen: list[float] = []
    expected_merged: list[float] = []
    open_seen = open_wanted = 0.0
    for count, mass in zip(observed.tolist(), expected.tolist(), strict=True):
        open_seen += count
        open_wanted += mass
        if open_wanted >= MIN_EXPECTED_COUNT:
            seen.append(open_seen)
            expected_merged.append(open_wanted)
            open_seen = open_wanted = 0.0
    if expected_merged:
        seen[-1] += open_seen
        expected_merged[-1] += open_wanted
    else:
        seen, expected_merged = [open_seen], [open_wanted]
    return np.array(seen), np.array(expected_merged)


def _fold_residues(values: Values, masses: Floats, modulus: int) -> Floats:
    """(modulus,) sum of the masses of the values of each residue."""
    out = np.zeros(modulus)
    np.add.at(out, values % modulus, masses)
    return out


def _float(values: Values) -> Floats:
    """Integers as float64."""
    return np.asarray(values, dtype=np.float64)
