"""Exact independent noise of many scales: integers from entropy to state.

In: an array of integers and the scale of each. Out: the array with one independent draw added to each word.
Touches: the entropy source.
Source: docs/theory/noise.md (the exact samplers); docs/theory/convolution.md, sections 6 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats, Ints
from sketchstream.noise import discrete_gaussian, discrete_laplace
from sketchstream.noise.entropy import WordSource, word_by_word, words_of
from sketchstream.noise.gaussian import below_exponential
from sketchstream.noise.thresholds import WORD_BITS
from sketchstream.noise.varied import discrete_gaussians

BASE: Final = 512
"""Laplace noise of many scales is a multiple of the scale over BASE, plus a uniform remainder.

Scales are multiples of BASE, so that remainders are whole numbers: for scales from MIN_SCALE on that costs little.
"""
MIN_SHARED_VARIANCE: Final = float(1 << 40)
"""Variance from which on one table serves all variances."""
ACCEPTED_BELOW: Final = (1 << WORD_BITS) - (1 << WORD_BITS) // BASE - 1
"""Words below this accept a remainder without looking at it, as exp(-1/BASE) is above 1 - 1/BASE."""


def add_gaussian(out: Ints, variances: Floats, entropy: WordSource | None = None) -> None:
    """Add exact discrete Gaussian noise of variance parameter variances[i] to element i, in place.

    From sigma = 2^20 on all elements share one table. |z| = t K + R with t = floor(sigma / BASE) + 2: K has weights
    exp(-k^2 / (2 BASE^2)), R is uniform in [0, t), and both are accepted with probability exp(-E),
    E = (t K + R)^2 / (2 sigma^2) - K^2 / (2 BASE^2), which is at least 0; minus zero is refused.

    Args:
        variances: (n,) float64, whole numbers up to 2^98, each the exact sigma^2.

    Source: Karney 2016 (cells of equal width); docs/theory/convolution.md, section 6.
    """
    small = variances < MIN_SHARED_VARIANCE
    if small.any():
        values, which = np.unique(variances[small], return_inverse=True)
        drawn = np.zeros(int(small.sum()), np.int64)
        discrete_gaussians(drawn, [Fraction(int(value)) for value in values.tolist()], which.reshape(-1), entropy)
        out[small] += drawn
        drawn.fill(0)
    wide = np.flatnonzero(~small)
    if not wide.size:
        return
    parts = np.zeros(len(out), np.int64)
    parts[wide] = np.floor(np.sqrt(variances[wide]) / BASE).astype(np.int64) + 2

    def cells(count: int, source: WordSource) -> Ints:
        signed = np.zeros(2 * count + 64, np.int64)
        discrete_gaussian(signed, Fraction(BASE**2), source)
        magnitudes = signed[signed >= 0][:count]
        signed.fill(0)
        return magnitudes

    def exponent(place: int, t: int, k: int, rest: int) -> Fraction:
        return Fraction((t * k + rest) ** 2, 2 * int(variances[place])) - Fraction(k * k, 2 * BASE**2)

    sure = _sure_words(1 << (int(variances[wide].min()).bit_length() - 1) // 2)
    _add_cells(out, wide, parts, cells, sure, exponent, entropy)


@lru_cache(maxsize=16)
def _sure_words(least: int) -> npt.NDArray[np.uint32]:
    """For each K, the words that accept for every remainder, where sigma is at least this.

    With tau = t BASE / sigma <= 1 + 2 BASE / sigma, E is at most ((tau^2 - 1)(K + 1)^2 + 2 K + 1) / (2 BASE^2), and
    exp(-E) is at least 1 - E. The last entry accepts nothing and serves all larger K.
    """
    excess = Fraction(2 * BASE, least)
    stretch = 2 * excess + excess**2
    out = []
    for k in range(8 * BASE):
        bound = (stretch * (k + 1) ** 2 + 2 * k + 1) / (2 * BASE**2)
        out.append(max(0, math.floor((1 - bound) * (1 << WORD_BITS)) - 1))
    return np.array([*out, 0], np.uint32)


def add_laplace(out: Ints, parts: Ints, entropy: WordSource | None = None) -> None:
    """Add exact discrete Laplace noise of scale BASE * parts[i] to element i, in place.

    Pr[z = j] is proportional to exp(-|j| / (BASE t)). |z| = t V + R: V is geometric with ratio exp(-1/BASE), R uniform
    in [0, t) and accepted with probability exp(-R / (BASE t)); minus zero is refused.

    Args:
        parts: (n,) int64, t, from 1 to 2^40.
    """

    def cells(count: int, source: WordSource) -> Ints:
        signed = np.zeros(count, np.int64)
        discrete_laplace(signed, Fraction(1, BASE), source)
        magnitudes = np.where(signed > 0, signed - 1, -signed)
        signed.fill(0)
        return magnitudes

    sure = np.array([ACCEPTED_BELOW], np.uint32)
    _add_cells(out, np.arange(len(out)), parts, cells, sure, lambda _place, t, _k, r: Fraction(r, BASE * t), entropy)


def _add_cells(
    out: Ints,
    pending: Ints,
    parts: Ints,
    cells_of: Callable[[int, WordSource], Ints],
    sure: npt.NDArray[np.uint32],
    exponent_of: Callable[[int, int, int, int], Fraction],
    entropy: WordSource | None,
) -> None:
    """Add z to the pending elements, |z| = t K + R with R uniform in [0, t), t the element's of `parts`, by rejection.

    `cells_of(n)` draws at most n K. K and R are accepted with probability exp(-E), and `exponent_of` gives E for an
    element, t, K and R; words below the entry of `sure` for K, or its last, accept without it. Minus zero is refused.
    """
    shifts = (64 - np.frexp(parts.astype(np.float64))[1]).astype(np.uint64)  # t < 2^(64 - shift)
    with words_of(entropy) as source:
        draw = word_by_word(source)
        while pending.size:
            cells = cells_of(pending.size, source)
            now = pending[: cells.size]
            words = np.empty((4, now.size), np.uint32)
            source.fill(words.reshape(-1))
            t = parts[now]
            rest = (((words[0].astype(np.uint64) << np.uint64(32)) | words[1]) >> shifts[now]).astype(np.int64)
            accepted = rest < t
            for place in np.flatnonzero(accepted & (words[2] >= sure[np.minimum(cells, len(sure) - 1)])).tolist():
                exponent = exponent_of(int(now[place]), int(t[place]), int(cells[place]), int(rest[place]))
                accepted[place] = below_exponential(int(words[2, place]), WORD_BITS, exponent, WORD_BITS, draw)
            value = t * cells + rest
            negative = (words[3] >> np.uint32(31)).astype(np.bool_)
            accepted &= ~(negative & (value == 0))
            out[now[accepted]] += np.where(negative, -value, value)[accepted]
            pending = np.concatenate([now[~accepted], pending[cells.size :]])
            for scratch in (cells, rest, value):
                scratch.fill(0)
            words.fill(0)


def base_draws(count: int, *, gaussian: bool, source: WordSource) -> npt.NDArray[Any]:
    """(count,) exact integers of scale 2^128: discrete Gaussian of that sigma, or discrete Laplace of that scale.

    |z| = 2^79 K + R: K has weights exp(-K^2 / 2^99) or exp(-K / 2^49), R has 79 uniform bits and is accepted with
    probability exp(-R (2^80 K + R) / 2^257) or exp(-R / 2^128), which is above 1 - 2^-32 for K below 2^54.
    """
    draw = word_by_word(source)
    out = np.zeros(count, np.object_)
    pending = np.arange(count)
    while pending.size:
        cells = np.zeros(pending.size, np.int64)
        if gaussian:
            discrete_gaussian(cells, Fraction(1 << 98), source)
            accepted = cells >= 0
        else:
            discrete_laplace(cells, Fraction(1, 1 << 49), source)
            accepted = np.ones(pending.size, np.bool_)
            cells = np.where(cells > 0, cells - 1, -cells)
        words = np.empty((4, pending.size), np.uint32)
        source.fill(words.reshape(-1))
        accept = np.empty(pending.size, np.uint32)
        source.fill(accept)
        # 79 bits of the remainder and the sign from 128 bits of words.
        rest = words[0].astype(np.object_) << 47 | words[1].astype(np.object_) << 15
        rest |= (words[2] >> np.uint32(17)).astype(np.object_)
        unsure = (accept == np.uint32(0xFFFFFFFF)) | (cells >= 1 << 54)
        for place in np.flatnonzero(accepted & unsure).tolist():
            k, r = int(cells[place]), int(rest[place])
            exponent = Fraction(r * ((k << 80) + r), 1 << 257) if gaussian else Fraction(r, 1 << 128)
            accepted[place] = below_exponential(int(accept[place]), WORD_BITS, exponent, WORD_BITS, draw)
        value = (cells.astype(np.object_) << 79) + rest
        negative = (words[3] >> np.uint32(31)).astype(np.bool_)
        accepted &= ~(negative & (value == 0).astype(np.bool_))
        out[pending[accepted]] = np.where(negative, -value, value)[accepted]
        pending = pending[~accepted]
        cells.fill(0)
        words.fill(0)
    return out
