"""Noise on Z^r with probabilities proportional to exp(-rate |v|), |v| the Euclidean norm, sampled exactly.

In: an int64 array, the exact square of the rate. Out: the array with one draw of the whole vector added.
Touches: the entropy source.
Source: Hardt & Talwar 2010 (noise from a norm); docs/theory/workload.md, section 7 (the rejection step).

The triangle inequality makes it rate * |shift| private: no delta. Independent discrete Laplace draws with a rational
rate t <= rate / sqrt(r) are accepted with probability exp(-(rate |v| - t |v|_1)); the exponent is at least 0, and the
comparison with a uniform real is decided by integer intervals.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np

from sketchstream import noise
from sketchstream.array_types import Ints
from sketchstream.noise.blocks import Scratch, add_wrapping, flat
from sketchstream.noise.entropy import WordSource
from sketchstream.noise.thresholds import WORD_BITS, Threshold, exp_minus, is_below

MAX_RANK: Final = 16
"""Largest rank: beyond it nearly every candidate is refused."""
CANDIDATES_AT_ONCE: Final = 64
"""Candidates that are drawn at once."""
RATE_BITS: Final = 64


def add_ball_noise(out: Ints, rate2: Fraction, entropy: WordSource | None = None) -> None:
    """Add one exact draw to a vector, in place, wrapping.

    Args:
        rate2: square of the rate: (epsilon / (W sqrt(D2)))^2, above 0.
    """
    view = flat(out, (np.int64,))
    below_rate = laplace_rate(rate2, view.size)
    candidates: Ints = np.zeros((CANDIDATES_AT_ONCE, view.size), np.int64)
    with Scratch(1, 1, entropy) as scratch:
        while True:
            candidates[:] = 0
            noise.discrete_laplace(candidates, below_rate, entropy)
            for candidate in candidates:
                values = candidate.tolist()
                if accept_draw(values, rate2, below_rate, scratch):
                    for position, value in enumerate(values):
                        add_wrapping(view, position, value)
                    candidates[:] = 0
                    return


def laplace_rate(rate2: Fraction, size: int) -> Fraction:
    """A rational t with t <= rate / sqrt(size), close to it."""
    square = rate2 / size
    shift = 2 * (RATE_BITS + max(0, (square.denominator // square.numerator).bit_length() // 2))
    return Fraction(math.isqrt((square.numerator << shift) // square.denominator), 1 << (shift // 2))


def accept_draw(values: list[int], rate2: Fraction, below_rate: Fraction, scratch: Scratch) -> bool:
    """One draw of the event with probability exp(-(rate |v| - t |v|_1)), v the values and t the rate below."""
    square = rate2 * sum(value * value for value in values)
    linear = below_rate * sum(map(abs, values))
    if square == linear * linear:  # the exponent is 0
        return True
    return is_below(Threshold(lambda bits: _enclose(square, linear, bits)), scratch.draw(), scratch.draw, WORD_BITS)


def _enclose(square: Fraction, linear: Fraction, bits: int) -> tuple[int, int]:
    """(low, high) around exp(-(sqrt(square) - linear)) * 2^bits, for a positive exponent.

    An exponent that is algebraic and not 0 has a transcendental exponential (Lindemann 1882): no comparison stays tied.
    """
    work = bits + 16
    root = math.isqrt((square.numerator << (2 * work)) // square.denominator)
    low_exponent = max(Fraction(root, 1 << work) - linear, Fraction(0))
    high_exponent = Fraction(root + 1, 1 << work) - linear
    low, _ = exp_minus(high_exponent, bits)
    _, high = exp_minus(low_exponent, bits)
    return low, high
