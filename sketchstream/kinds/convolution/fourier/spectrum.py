"""The noise of each Fourier coefficient, and the resulting error of every answer, in closed form.

In: the eigenvalues of one filter or of several, the noise kind, its budget, the floor. Out: a variance (or a squared
Laplace scale) for each character, and mean squared errors. Touches: nothing.
Source: Fawaz, Muthukrishnan & Nikolov 2013 (noise in the spectrum in the optimal proportion);
docs/theory/convolution.md, sections 2 to 5 (Gaussian noise, the real coordinates, floors, optimality).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np

from sketchstream.array_types import Complexes, Flags, Floats, Ints
from sketchstream.kinds.convolution.fourier.filters import Filter
from sketchstream.kinds.convolution.fourier.group import Coordinates, Group

NoiseKind = Literal["gaussian", "laplace", "laplace_pure", "counts", "tree", "toeplitz"]
Layout = Literal["fourier", "time"]

UNIT_ROUNDOFF: Final = 2.0**-53
DISTINCT: Final = 1 << 12
"""Most distinct variances that are kept as they are."""
VARIANCE_STEPS: Final = 256
"""Relative steps to which variances are rounded where there are more than `DISTINCT`."""
SEARCHED: Final = 4
"""Transform lengths tried by `choose_length`: parity matters, and more does not help."""
MAX_ANY_LENGTH: Final = 1 << 15
"""Layout "time": up to this any length is transformed within seconds; beyond, those without large prime factors."""
MAX_PRIME: Final = 31
"""Largest prime factor of longer lengths. Any number below `synthesis.DIRECT` would do: such sums are quick."""


@dataclass(frozen=True)
class Spectrum:
    """The eigenvalues of the filters that one state serves.

    Attributes:
        eigenvalues: (filters, M) complex; coefficients below the tolerance are exactly 0.
        weights: (filters,) weight of each filter's error in the optimum.
    """

    group: Group
    eigenvalues: Complexes
    weights: Floats

    @classmethod
    def of(cls, group: Group, kernels: Sequence[Floats], weights: Sequence[float] | None = None) -> Spectrum:
        """Transform kernels, each (M,) float64 in the group's order."""
        rows = []
        for kernel in kernels:
            row = group.spectrum(kernel)
            peak = float(np.max(np.abs(row)))
            tolerance = 64 * UNIT_ROUNDOFF * math.log2(2 * group.size) * float(np.abs(kernel).sum())
            row[np.abs(row) <= min(tolerance, peak / 2)] = 0
            rows.append(row)
        by_filter = np.ones(len(rows)) if weights is None else np.array(weights, np.float64)
        return cls(group, np.array(rows), by_filter)

    @cached_property
    def magnitude(self) -> Floats:
        """(M,) float64, |lambda_k|; for several filters the root of the weighted sum of squares."""
        out: Floats = np.abs(self.eigenvalues[0])
        if len(self.eigenvalues) > 1 or self.weights[0] != 1:
            out = np.sqrt(self.weights @ np.abs(self.eigenvalues) ** 2)
        return out

    @cached_property
    def support(self) -> Flags:
        """(M,) bool, characters on which a filter is not 0."""
        return self.magnitude > 0

    @property
    def mean_magnitude(self) -> float:
        """Mean of |lambda_k|, the nuclear norm of the convolution over M: the error is its square over mu^2."""
        return float(self.magnitude.mean())

    @property
    def energy(self) -> Floats:
        """(filters,) squared 2-norm of each kernel."""
        return np.asarray(np.mean(np.abs(self.eigenvalues) ** 2, axis=1))


@dataclass(frozen=True)
class NoiseShape:
    """Noise up to its size: what each character's variance is for a budget of 1.

    Attributes:
        noise: "gaussian" and "laplace" share a shape, `laplace_pure` has its own.
        kept: (M,) bool, characters that the state holds.
        relative: (M,) float64; the variance of a Gaussian coordinate is relative / mu^2, the squared scale of a
            Laplace one relative / S, of a pure one relative / epsilon^2. 0 for empty entries.
    """

    spectrum: Spectrum
    noise: NoiseKind
    kept: Flags
    relative: Floats

    @property
    def variance_factor(self) -> int:
        """Variance of a coordinate over its squared scale: 1 for Gaussian noise, 2 for Laplace."""
        return 1 if self.noise == "gaussian" else 2

    def mse(self, budget: float) -> Floats:
        """(filters,) mean squared error of every answer, for a budget mu^2, S or epsilon^2."""
        weighted = np.abs(self.spectrum.eigenvalues) ** 2 @ self.relative
        return weighted * (self.variance_factor / self.spectrum.group.size / budget)

    def quantized(self) -> NoiseShape:
        """Reduce many distinct variances to a few, at almost no cost, as samplers need tables for each.

        Variances are rounded up to a grid of relative steps of 1/VARIANCE_STEPS, then all lowered by the factor that
        uses the budget again. The optimum is flat, so that the error grows by the square of a step only.
        """
        values = self.relative[self.kept]
        if self.noise == "laplace_pure" or len(values) <= DISTINCT or len(np.unique(values)) <= DISTINCT:
            return self
        exponent = np.floor(np.log2(values))
        step = 2.0**exponent / VARIANCE_STEPS
        rounded = np.ceil(values / step) * step
        rounded *= float(np.sum(1 / rounded) / np.sum(1 / values)) * (1 + 1e-13)
        relative = np.zeros(len(self.relative))
        relative[self.kept] = rounded
        return NoiseShape(self.spectrum, self.noise, self.kept, relative)


def spectral_shape(spectrum: Spectrum, noise: NoiseKind, layout: Layout, floor: float) -> NoiseShape:
    """The noise in the optimal proportion, with a share `floor` of the budget spread evenly.

    Args:
        layout: "fourier" holds the support only; "time" needs noise on every character.
        floor: share of the budget, from 0 to below 1; above 0 for layout "time".

    Source: docs/theory/convolution.md, theorem 2.
    """
    kept = np.ones(spectrum.group.size, np.bool_) if layout == "time" else spectrum.support.copy()
    magnitude = spectrum.magnitude
    share = (1 - floor) * magnitude / magnitude.sum() + floor / np.count_nonzero(kept)
    relative = np.zeros(len(magnitude))
    relative[kept] = 1 / (spectrum.group.size * share[kept])
    return NoiseShape(spectrum, noise, kept, relative)


def pure_shape(spectrum: Spectrum, positions: int) -> NoiseShape:
    """Laplace noise for delta = 0: scales in the proportion |h_k|^(-2/3), sized by the worst of the first positions.

    Source: docs/theory/convolution.md, theorem 4.
    """
    kept = spectrum.support.copy()
    unitary = spectrum.magnitude / math.sqrt(spectrum.group.size)
    weight = np.zeros(len(unitary))
    weight[kept] = unitary[kept] ** (2 / 3)
    relative = np.zeros(len(unitary))
    loss = worst_loss(Coordinates.of(spectrum.group, kept), weight, positions)
    relative[kept] = (loss / weight[kept]) ** 2
    return NoiseShape(spectrum, "laplace_pure", kept, relative)


def worst_loss(coordinates: Coordinates, weight: Floats, positions: int) -> float:
    """Upper bound of the largest sum over coordinates of |phi_j(n)| times their weights, over n < positions.

    The sum is scanned exactly if that is cheap; otherwise |cos| + |sin| is bounded by sqrt 2.
    """
    group = coordinates.group
    root = 1 / math.sqrt(group.size)
    singles, pairs = weight[coordinates.singles], weight[coordinates.pairs]
    if len(pairs) * positions > SCANNED:
        return float((singles.sum() + 2 * pairs.sum()) * root) * (1 + 1e-12)
    worst = 0.0
    for start in range(0, positions, SCAN_BLOCK):
        phase = phases(coordinates, np.arange(start, min(start + SCAN_BLOCK, positions)))
        turn = phase * (2 * math.pi / group.period)
        total = math.sqrt(2) * ((np.abs(np.cos(turn)) + np.abs(np.sin(turn))) @ pairs)
        worst = max(worst, float(np.max(total)) if len(total) else 0.0)
    return (float(singles.sum()) + worst) * root * (1 + 1e-12)


SCANNED: Final = 1 << 24
"""Pairs times positions up to which every position is looked at; measured: two seconds."""
SCAN_BLOCK: Final = 256
"""Positions at a time: their phases of all pairs are in memory."""


def phases(coordinates: Coordinates, elements: Ints) -> Ints:
    """(elements, pairs) int64, phase of each pair's character at each element, in units of 2 pi / period."""
    group = coordinates.group
    steps = np.array([group.period // order for order in group.shape], np.int64)
    left = group.digits(elements)
    right = group.digits(coordinates.pairs) * steps
    out: Ints = left @ right.T
    return out % group.period


def choose_length(written: Filter, origin: int, positions: int, layout: Layout = "fourier") -> int:
    """The transform length M for a linear convolution: the best of a few that do not wrap around.

    Args:
        layout: "fourier": the smallest lengths; "time": the smallest whose exact transform is quick.
    """
    shortest = positions + len(written) - 1
    sizes = [shortest] if layout == "fourier" else [quick_length(shortest)]
    while len(sizes) < SEARCHED:
        sizes.append(sizes[-1] + 1 if layout == "fourier" else quick_length(sizes[-1] + 1))
    return min(
        sizes,
        key=lambda size: (Spectrum.of(Group((size,)), [pad_filter(written, origin, size)]).mean_magnitude, size),
    )


def quick_length(shortest: int) -> int:
    """The smallest length from here on whose exact transform takes seconds at most."""
    return shortest if shortest <= MAX_ANY_LENGTH else smooth_length(shortest, MAX_PRIME)


def smooth_length(shortest: int, largest: int = 7) -> int:
    """The smallest number that is at least this and has no prime factor above `largest`."""
    size = shortest
    while _without_factors(size, largest) > 1:
        size += 1
    return size


def _without_factors(size: int, largest: int) -> int:
    """Remove the prime factors up to `largest` from a number."""
    for factor in range(2, largest + 1):
        while size % factor == 0:
            size //= factor
    return size


def pad_filter(written: Filter, origin: int, size: int) -> Floats:
    """(size,) float64, the coefficients rolled back by the origin and filled with zeros."""
    out = np.zeros(size)
    out[: len(written)] = written.coefficients
    return np.roll(out, -origin)
