"""Intervals where the noise is not normal: sums of Laplace draws with known coefficients.

In: the spec, its layers, the positions. Out: half widths. Touches: nothing.
Source: docs/theory/convolution.md, section 8 (inversion of characteristic functions; Cornish & Fisher 1938).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from sketchstream.kinds.convolution.group import Coordinates, Floats
from sketchstream.kinds.convolution.mechanism import phases
from sketchstream.kinds.convolution.spec import ConvolutionSpec, Layer

FEW: Final = 64
"""Up to this many terms the law of their sum is inverted numerically; beyond, its kurtosis says enough."""
GRID: Final = 1 << 14
DISTINCT: Final = 4096
"""Most different laws that are inverted."""


def laplace_half_widths(
    spec: ConvolutionSpec,
    place: int,
    layers: Sequence[Layer],
    positions: npt.NDArray[np.int64],
    stderr: Floats,
    level: float,
) -> Floats:
    """(n,) half widths of central intervals for the Laplace kinds.

    Args:
        spec: of noise "laplace", "laplace_pure" or "counts".
        place: number of the filter.
        layers: the layers in the answers.
        positions: (n,) positions of the answers.
        stderr: (n,) their standard errors.
        level: coverage.
    """
    if spec.noise == "counts":
        return _counts(spec, place, layers, positions, stderr, level)
    return _spectral(spec, place, layers, positions, stderr, level)


def normal_half_width(level: float, excess: Floats) -> Floats:
    """Half widths in standard deviations of symmetric laws with this excess kurtosis (Cornish & Fisher)."""
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    return z + excess * (z**3 - 3 * z) / 24


def _counts(
    spec: ConvolutionSpec,
    place: int,
    layers: Sequence[Layer],
    positions: npt.NDArray[np.int64],
    stderr: Floats,
    level: float,
) -> Floats:
    """Sums of discrete Laplace draws times the filter's coefficients."""
    coefficients = spec.filters[place].coefficients
    used = coefficients[coefficients != 0]
    step = float(np.min(np.abs(used)))
    ratios = np.rint(used / step)
    lattice = step if np.allclose(used / step, ratios, rtol=1e-12, atol=0) else 0.0
    epsilons = [spec.count_epsilon(layer) for layer in layers]
    out = np.empty(len(positions))
    known: dict[tuple[int, int], float] = {}
    width = len(coefficients)
    for i, position in enumerate(positions.tolist()):
        if spec.mode == "linear":
            k = position + spec.origin
            start, stop = max(0, k - spec.length + 1), min(k, width - 1) + 1
        else:
            start, stop = 0, width
        key = (start, stop)
        if key not in known:
            part = coefficients[start:stop]
            part = part[part != 0]
            terms = len(part) * len(layers)
            if terms == 0:
                known[key] = 0.0
            elif lattice and terms <= FEW and len(known) < DISTINCT:
                known[key] = lattice * _lattice_radius(np.rint(part / lattice), epsilons, level)
            else:
                known[key] = _by_kurtosis(part, epsilons, level, lattice)
        out[i] = known[key]
    return np.maximum(out, 0 * stderr)


def _lattice_radius(coefficients: Floats, epsilons: Sequence[Fraction], level: float) -> int:
    """Smallest r with Pr[|S| <= r] >= level, S a sum of whole multiples of discrete Laplace draws."""
    deviation = math.sqrt(sum(float(np.sum(coefficients**2)) * _moments(one)[0] for one in epsilons))
    size = 1 << max(6, math.ceil(math.log2(60 * deviation + 60)))
    turn = 2 * math.pi * np.arange(size) / size
    transform = np.ones(size)
    for epsilon in epsilons:
        a = math.exp(-float(epsilon))
        for coefficient, count in zip(*np.unique(np.abs(coefficients), return_counts=True), strict=True):
            transform *= ((1 - a) ** 2 / ((1 - a) ** 2 + 4 * a * np.sin(coefficient * turn / 2) ** 2)) ** count
    mass = np.fft.ifft(transform).real
    within = mass[0] + 2 * np.cumsum(np.concatenate([[0.0], mass[1 : size // 2]]))
    return int(np.searchsorted(within, level - 1e-12))


def _by_kurtosis(coefficients: Floats, epsilons: Sequence[Fraction], level: float, lattice: float) -> float:
    """A half width for many terms, rounded up to the lattice that the noise lies on."""
    variance = fourth = 0.0
    for epsilon in epsilons:
        second, excess = _moments(epsilon)
        variance += second * float(np.sum(coefficients**2))
        fourth += excess * second**2 * float(np.sum(coefficients**4))
    half = float(normal_half_width(level, np.array(fourth / variance**2))) * math.sqrt(variance)
    return lattice * math.ceil(half / lattice - 0.5) if lattice else half


def _moments(epsilon: Fraction) -> tuple[float, float]:
    """Variance v and excess kurtosis of discrete Laplace noise; its fourth cumulant is v + 3 v^2."""
    variance = 1 / (2 * math.sinh(float(epsilon) / 2) ** 2)
    return variance, 3 + 1 / variance


def _spectral(
    spec: ConvolutionSpec,
    place: int,
    layers: Sequence[Layer],
    positions: npt.NDArray[np.int64],
    stderr: Floats,
    level: float,
) -> Floats:
    """Sums of Laplace draws in the spectrum."""
    held = Coordinates.of(spec.group, spec.shape.kept)
    magnitude = np.abs(spec.spectrum.eigenvalues[place])
    scales2 = [spec.scales2(layer) for layer in layers]
    root = 1 / math.sqrt(spec.group.size)
    if held.size * len(layers) > FEW:
        # The mean over phases of cos^4 + sin^4 is 3/4; many terms leave little of the excess.
        fourth = variance = 0.0
        for scale2 in scales2:
            single = (magnitude * root)[held.singles] ** 2 * scale2[held.singles]
            pair = 2 * (magnitude * root)[held.pairs] ** 2 * scale2[held.pairs]
            variance += 2 * float(single.sum() + pair.sum())
            fourth += 12 * float(np.sum(single**2) + 0.75 * np.sum(pair**2))
        out: Floats = normal_half_width(level, np.array(fourth / variance**2)) * stderr
        return out
    angle = phases(held, positions) * (2 * math.pi / spec.group.period)
    turned = np.angle(spec.spectrum.eigenvalues[place])[held.pairs]
    pair_size = magnitude[held.pairs] * root * math.sqrt(2)
    coefficients = np.concatenate(
        [
            np.broadcast_to(magnitude[held.singles] * root, (len(positions), len(held.singles))),
            np.abs(pair_size * np.cos(angle + turned)),
            np.abs(pair_size * np.sin(angle + turned)),
        ],
        axis=1,
    )
    by_word = [np.sqrt(held.spread(scale2).astype(np.float64)) for scale2 in scales2]
    every = np.concatenate([coefficients * one for one in by_word], axis=1)
    deviation = np.sqrt(2 * np.sum(every**2, axis=1))
    shapes = np.round(np.sort(every / deviation[:, None], axis=1), 6)
    unique, which = np.unique(shapes, axis=0, return_inverse=True)
    which = which.reshape(-1)
    if len(unique) > DISTINCT:
        excess = 12 * np.sum(every**4, axis=1) / deviation**4
        return normal_half_width(level, excess) * stderr
    return np.array([_inverted(row, level) for row in unique])[which] * stderr


def _inverted(scales: Floats, level: float) -> float:
    """The half width of a sum of Laplace draws of these scales, whose variance is 1."""
    step = 1 / 128
    frequency = 2 * math.pi * np.fft.rfftfreq(GRID, step)
    transform = np.ones(len(frequency))
    for scale in scales:
        transform /= 1 + (scale * frequency) ** 2
    mass = np.fft.irfft(transform, GRID)
    within = mass[0] + 2 * np.cumsum(np.concatenate([[0.0], mass[1 : GRID // 2]]))
    # Each mass is that of a cell around its point: the sum up to a point reaches half a step beyond it.
    place = int(np.searchsorted(within, level))
    if place == 0:
        return step * level / (2 * float(mass[0]))
    before, after = float(within[place - 1]), float(within[place])
    return step * (place - 0.5 + (level - before) / (after - before))
