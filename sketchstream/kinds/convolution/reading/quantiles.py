"""Intervals for noise that is not normal: sums of Laplace draws with known coefficients.

In: the noise, its layers, the positions. Out: half widths. Touches: nothing.
Source: docs/theory/convolution.md, section 8 (inversion of characteristic functions; Cornish & Fisher 1938).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kinds.convolution.fourier.spectrum import phases
from sketchstream.kinds.convolution.mechanisms.positions import Blocks, Counts
from sketchstream.kinds.convolution.mechanisms.scheme import ConvolutionFields, NoiseLayer, NoiseScheme
from sketchstream.kinds.convolution.mechanisms.spectral import Spectral
from sketchstream.kinds.linear.answers import quantiles
from sketchstream.kinds.linear.causal import dense_rows
from sketchstream.noise.laws import DiscreteLaplace

INVERTED_TERMS: Final = 64
"""Up to this many terms the law of their sum is inverted numerically; beyond, its kurtosis says enough."""
GRID: Final = 1 << 14
"""Points for numerical inversion: a step is then 1/410 of a standard deviation."""
EXACT: Final = 1 << 15
"""Up to this many lattice points the law of a sum is inverted point by point; beyond, on a grid of `GRID` points."""
SPAN: Final = 40.0
"""Standard deviations that the grid covers: a Laplace draw lies outside with probability 5e-13."""
MAX_PRODUCTS: Final = 1 << 24
"""Products of answers and words up to which the kurtosis of every answer of a tree is computed."""
MIN_ROW_BLOCK: Final = 64
"""Answers whose kurtosis is computed at least, and at a time."""
ROUNDED: Final = 1e-9
"""Relative error that coefficients of a tree may have."""
DISTINCT: Final = 4096
"""Most different laws that are inverted."""


@dataclass(frozen=True)
class Term:
    """One window's share in some answers.

    Args:
        positions: (n,) positions of the answers on its axis; beyond its end for contributions to the next window.
    """

    layers: Sequence[NoiseLayer]
    positions: Ints
    length: int


def laplace_half_widths(scheme: NoiseScheme, place: int, terms: Sequence[Term], stderr: Floats, level: float) -> Floats:
    """(n,) half widths of central intervals for the Laplace kinds."""
    if isinstance(scheme, Blocks):
        return _tree(scheme, place, terms, level)
    if isinstance(scheme, Counts):
        return _counts(scheme, place, terms, level)
    assert isinstance(scheme, Spectral)
    return _spectral(scheme, place, terms, stderr, level)


def normal_half_width(level: float, excess: Floats) -> Floats:
    """Half widths in standard deviations of symmetric laws with this excess kurtosis (Cornish & Fisher)."""
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    return z + excess * (z**3 - 3 * z) / 24


def _counts(scheme: Counts, place: int, terms: Sequence[Term], level: float) -> Floats:
    """Sums of discrete Laplace draws times the filter's coefficients."""
    coefficients = scheme.spec.filters[place].coefficients
    used = coefficients[coefficients != 0]
    step = float(np.min(np.abs(used)))
    ratios = np.rint(used / step)
    lattice = step if np.allclose(used / step, ratios, rtol=1e-12, atol=0) else 0.0
    epsilons = [[scheme.count_epsilon(layer) for layer in term.layers] for term in terms]

    @cache
    def half_width(*lags: tuple[int, int]) -> float:
        parts = [coefficients[start:stop] for start, stop in lags]
        sums = [(part[part != 0], epsilon) for part, drawn in zip(parts, epsilons, strict=True) for epsilon in drawn]
        number = sum(len(part) for part, _ in sums)
        if number == 0:
            return 0.0
        return (_by_inversion if number <= INVERTED_TERMS else _by_kurtosis)(sums, level, lattice)

    lags = ([_lags(scheme.spec, place, at, term.length) for at in term.positions.tolist()] for term in terms)
    return np.array([half_width(*each) for each in zip(*lags, strict=True)], np.float64)


def _tree(scheme: Blocks, place: int, terms: Sequence[Term], level: float) -> Floats:
    """Sums of discrete Laplace draws in words of a tree, by their variance and their kurtosis; few by inversion.

    Where all coefficients are multiples of the smallest, so are errors, and intervals are closed at such a multiple.
    """
    n = len(terms[0].positions)
    variance, fourth = np.zeros(n), np.zeros(n)
    used, epsilons = [], []
    for term in terms:
        rows = term.positions + scheme.spec.origin
        first, stop = int(rows.min(initial=0)), int(rows.max(initial=-1)) + 1
        unit = scheme.unit_variances(place, first, stop, term.length)[rows - first]
        used.append(_words(scheme, place, rows, term.length))
        epsilons.append([scheme.count_epsilon(layer) for layer in term.layers])
        for epsilon in epsilons[-1]:
            second, excess = _moments(epsilon)
            variance += second * unit
            fourth += excess * (second * unit) ** 2 * used[-1].heaviness
    shape = np.divide(fourth, variance**2, out=np.zeros_like(fourth), where=variance > 0)
    grid, factors = quantiles(level)
    half: Floats = np.interp(shape, grid, factors) * np.sqrt(variance)
    least, most = (of.reduce([words.steps for words in used]) for of in (np.fmin, np.fmax))
    step = np.where(np.isclose(least, most, rtol=ROUNDED, atol=0), least, 0.0)
    half = np.where(step > 0, step * np.ceil(half / np.where(step > 0, step, 1.0) - 0.5), half)
    inverted: dict[tuple[bytes, ...], float] = {}
    for i in range(n):
        few = [words.few.get(int(term.positions[i])) for words, term in zip(used, terms, strict=True)]
        parts = [part for part in few if part is not None]
        if len(parts) < len(terms):
            continue
        number = sum(len(part) * len(drawn) for part, drawn in zip(parts, epsilons, strict=True))
        if not 0 < number <= 2 * INVERTED_TERMS:
            continue
        key = tuple(part.tobytes() for part in parts)
        if key not in inverted and len(inverted) < DISTINCT:
            sums = [(part, epsilon) for part, drawn in zip(parts, epsilons, strict=True) for epsilon in drawn]
            inverted[key] = _by_inversion(sums, level, float(step[i]))
        half[i] = inverted.get(key, half[i])
    return half


@dataclass(frozen=True)
class _Words:
    """The coefficients of some answers of a tree in its words.

    Args:
        heaviness: (n,) sum of their fourth powers, over the square of that of the squares.
        steps: (n,) the smallest, where all are multiples of it; NaN without words, 0 elsewhere.
        few: position -> the coefficients, ascending, where there are few.
    """

    heaviness: Floats
    steps: Floats
    few: Mapping[int, Floats]


def _words(scheme: Blocks, place: int, rows: Ints, length: int) -> _Words:
    """The coefficients of answers of a filter.

    For long series they are computed at some rows and interpolated: for sums of many terms that hardly matters.
    """
    every = np.unique(rows)
    most = max(MIN_ROW_BLOCK, MAX_PRODUCTS // scheme.size)
    chosen = every if len(every) <= most else every[np.unique(np.linspace(0, len(every) - 1, most).astype(np.int64))]
    heaviness, steps, few = np.empty(len(chosen)), np.zeros(len(chosen)), {}
    coefficients = scheme.spec.filters[place].coefficients
    for start in range(0, len(chosen), MIN_ROW_BLOCK):
        some = chosen[start : start + MIN_ROW_BLOCK]
        full = dense_rows(coefficients, some, length, scheme.spec.length)
        sizes = np.abs(scheme.tree.coefficients(full))
        squares = sizes**2
        total = squares.sum(axis=1)
        heaviness[start : start + MIN_ROW_BLOCK] = np.sum(squares**2, axis=1) / np.where(total > 0, total**2, 1.0)
        used = sizes > ROUNDED * sizes.max(axis=1, keepdims=True)
        least = np.where(used, sizes, np.inf).min(axis=1)
        ratio = np.where(used, sizes / least[:, None], 0.0)
        multiples = np.isclose(ratio, np.rint(ratio), rtol=ROUNDED, atol=0).all(axis=1)
        steps[start : start + MIN_ROW_BLOCK] = np.where(np.isfinite(least), np.where(multiples, least, 0.0), np.nan)
        for i in np.flatnonzero(used.sum(axis=1) <= 2 * INVERTED_TERMS):
            few[int(some[i] - scheme.spec.origin)] = np.round(np.sort(sizes[i, used[i]]), 9)
    if not len(chosen):
        return _Words(np.zeros(0), np.zeros(0), few)
    near = np.clip(np.searchsorted(chosen, rows), 0, len(chosen) - 1)
    alike = (chosen[near] == rows) | np.isclose(steps[near], steps[np.maximum(near - 1, 0)], rtol=ROUNDED, atol=0)
    return _Words(np.interp(rows, chosen, heaviness), np.where(alike, steps[near], 0.0), few)


def _lags(spec: ConvolutionFields, place: int, position: int, length: int) -> tuple[int, int]:
    """[start, stop) of the coefficients of an answer that fall on positions of a window of this length."""
    width = len(spec.filters[place])
    if spec.mode != "linear":
        return 0, width
    k = position + spec.origin
    stop = min(k, width - 1) + 1
    return min(max(0, k - length + 1), stop), stop


def _by_inversion(sums: Sequence[tuple[Floats, Fraction]], level: float, lattice: float) -> float:
    """Half width for few terms: smallest r with Pr[|S| <= r] >= level, by inversion of the characteristic function.

    Exact while the law spreads over at most `EXACT` points of the lattice. Beyond, and for coefficients without a
    lattice (`lattice` 0), a grid of fixed size is used, so that the work does not grow with the weights. The half width
    is then at most two grid steps (1/410 of a standard deviation each) too large.
    """
    deviation = math.sqrt(sum(float(np.sum(part**2)) * _moments(epsilon)[0] for part, epsilon in sums))
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


def _by_kurtosis(sums: Sequence[tuple[Floats, Fraction]], level: float, lattice: float) -> float:
    """Half width for many terms, rounded up to the lattice of the noise."""
    variance = fourth = 0.0
    for part, epsilon in sums:
        second, excess = _moments(epsilon)
        variance += second * float(np.sum(part**2))
        fourth += excess * second**2 * float(np.sum(part**4))
    half = float(normal_half_width(level, np.array(fourth / variance**2))) * math.sqrt(variance)
    return lattice * math.ceil(half / lattice - 0.5) if lattice else half


def _moments(epsilon: Fraction) -> tuple[float, float]:
    """Variance v and excess kurtosis of discrete Laplace noise; its fourth cumulant is v + 3 v^2."""
    variance = DiscreteLaplace(epsilon).variance
    return variance, 3 + 1 / variance


def _spectral(scheme: Spectral, place: int, terms: Sequence[Term], stderr: Floats, level: float) -> Floats:
    """Sums of Laplace draws in the spectrum."""
    coordinates, eigenvalues = scheme.coordinates, scheme.spectrum.eigenvalues[place]
    size = np.abs(eigenvalues) * (1 / math.sqrt(scheme.group.size))
    singles, pairs = size[coordinates.singles], size[coordinates.pairs] * math.sqrt(2)
    if coordinates.size * sum(len(term.layers) for term in terms) > INVERTED_TERMS:
        # The mean over phases of cos^4 + sin^4 is 3/4; many terms leave little of the excess.
        fourth = variance = 0.0
        for scale2 in (scheme.scales2(layer) for term in terms for layer in term.layers):
            single, pair = singles**2 * scale2[coordinates.singles], pairs**2 * scale2[coordinates.pairs]
            variance += 2 * float(single.sum() + pair.sum())
            fourth += 12 * float(np.sum(single**2) + 0.75 * np.sum(pair**2))
        return np.asarray(normal_half_width(level, np.array(fourth / variance**2)) * stderr)
    by_layer = []  # (n, words) scale of each word's noise in each answer
    for term in terms:
        angle = phases(coordinates, term.positions) * (2 * math.pi / scheme.group.period)
        angle = angle + np.angle(eigenvalues)[coordinates.pairs]
        single_words = np.broadcast_to(singles, (len(term.positions), len(singles)))
        by_word = np.concatenate([single_words, np.abs(pairs * np.cos(angle)), np.abs(pairs * np.sin(angle))], axis=1)
        by_layer += [by_word * np.sqrt(scheme.word_scales2(layer)) for layer in term.layers]
    scales = np.concatenate(by_layer, axis=1)
    deviation = np.sqrt(2 * np.sum(scales**2, axis=1))
    shapes = np.round(np.sort(scales / deviation[:, None], axis=1), 6)
    unique, which = np.unique(shapes, axis=0, return_inverse=True)
    if len(unique) > DISTINCT:
        excess = 12 * np.sum(scales**4, axis=1) / deviation**4
        return normal_half_width(level, excess) * stderr
    return np.array([_quantile_by_inversion(row, level) for row in unique])[which.reshape(-1)] * stderr


def _quantile_by_inversion(scales: Floats, level: float) -> float:
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
