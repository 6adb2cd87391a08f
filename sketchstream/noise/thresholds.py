"""Exact thresholds: the binary expansion of a probability, to any number of digits.

In: a rational exponent. Out: floor(p * 2^n) for any n, decided by integer interval arithmetic whose two ends agree.
Touches: nothing. No floating point.
Source: docs/theory/noise.md, section 1; Karney 2016 (comparison with a lazily drawn uniform real).

A comparison `U < p` with a uniform real U needs only as many bits of U as it takes to differ from p. The samplers
draw the first 32 bits of every U in bulk; `is_below` draws further bits for the few that are still tied.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

WORD_BITS = 32
"""Bits of one word of entropy."""
CACHED_BITS = 256
"""Bits of every threshold that are computed at once; more are computed when a comparison asks for them."""
LIMIT_BITS = 1 << 16

Enclosure = Callable[[int], tuple[int, int]]
"""A function of bits that returns (low, high) with low <= p * 2^bits <= high; high - low grows slower than 2^bits."""
Draw = Callable[[], int]
"""One fresh uniform word."""


class Threshold:
    """A real number 0 <= p <= 1, not a dyadic rational, given by integer intervals of increasing precision."""

    __slots__ = ("_bits", "_enclose", "_value")

    def __init__(self, enclose: Enclosure, bits: int = CACHED_BITS) -> None:
        self._enclose = enclose
        self._bits = 0
        self._value = 0
        self._extend(bits)

    def prefix(self, bits: int) -> int:
        """floor(p * 2^bits), exactly."""
        if bits > self._bits:
            self._extend(max(bits, 2 * self._bits))
        return self._value >> (self._bits - bits)

    def word(self, width: int = WORD_BITS) -> int:
        """The first `width` bits of p."""
        return self.prefix(width)

    def _extend(self, bits: int) -> None:
        """Compute `bits` bits, with more precision while the two ends of the interval disagree."""
        spare = 64
        while True:
            low, high = self._enclose(bits + spare)
            if low >> spare == high >> spare:
                self._bits, self._value = bits, low >> spare
                return
            spare *= 2
            if spare > LIMIT_BITS:  # p is dyadic to 65,536 bits: its arguments are wrong; a guess would bias the noise
                raise ArithmeticError("the interval arithmetic of a noise threshold does not close")


def is_below(threshold: Threshold, word: int, draw: Draw, width: int = WORD_BITS) -> bool:
    """Whether the uniform real that starts with `word` is below the threshold.

    Args:
        threshold: the real number to compare with.
        word: the first `width` bits of the uniform real.
        draw: gives the following bits, `width` at a time; called only while the two are tied.
        width: bits of one word.
    """
    bits = width
    while word == threshold.prefix(bits):
        word = (word << width) | draw()
        bits += width
    return word < threshold.prefix(bits)


def exp_minus(x: Fraction, bits: int) -> tuple[int, int]:
    """(low, high) around exp(-x) * 2^bits for a rational x >= 0; high - low is at most 2.

    Halves x until it is at most 2^-4, sums the alternating Taylor series with every term rounded down and up, squares
    back with the low end rounded down and the high end rounded up. Squaring at most doubles the absolute error of a
    number below 1, so the guard bits cover it.
    """
    if x < 0:
        raise ArithmeticError(f"exp_minus needs x >= 0, found {x}")
    halvings = max(0, (x.numerator // x.denominator).bit_length() + 4)
    work = bits + halvings + bits.bit_length() + 8
    num, den = x.numerator, x.denominator << halvings
    low = high = term_low = term_high = 1 << work
    index = 0
    while term_high > 1:
        index += 1
        term_low = term_low * num // (den * index)
        term_high = -(-term_high * num // (den * index))
        if index % 2:
            low, high = low - term_high, high - term_low
        else:
            low, high = low + term_low, high + term_high
    low, high = low - term_high, high + term_high  # the omitted terms add up to less than the last one
    for _ in range(halvings):
        low = low * low >> work
        high = -(-high * high >> work)
    spare = work - bits
    return max(low, 0) >> spare, -(-min(high, 1 << work) >> spare)


def exponential(x: Fraction, bits: int = CACHED_BITS) -> Threshold:
    """The number exp(-x), x rational and positive; `bits` of it are computed at once.

    It is transcendental (Lindemann 1882), so every comparison with it ends; the same holds for the two probabilities
    below.
    """
    _positive(x)
    return Threshold(lambda bits_wanted: exp_minus(x, bits_wanted), bits)


def digit(x: Fraction) -> Threshold:
    """The probability 1 / (1 + exp(x)), x rational and positive, that a binary digit is one.

    For G with Pr[G = g] = (1 - q) q^g and q = exp(-epsilon), digit j of G is one with this probability at
    x = epsilon 2^j, independently of all other digits.
    """
    return _odds(1, x)


def response(modulus: int, epsilon: Fraction) -> Threshold:
    """The probability (p - 1) / (exp(epsilon) + p - 1) that randomized response on Z_p moves a value."""
    return _odds(modulus - 1, epsilon)


def _odds(weight: int, x: Fraction) -> Threshold:
    """The probability w / (w + exp(x)) for a whole number w."""
    _positive(x)

    def enclose(bits: int) -> tuple[int, int]:
        low, high = (weight * end for end in exp_minus(x, bits))
        one = 1 << bits
        return (low << bits) // (one + low), -(-(high << bits) // (one + high))

    return Threshold(enclose)


def _positive(x: Fraction) -> None:
    """Refuse an exponent that is not a positive rational."""
    if not isinstance(x, Fraction) or x <= 0:
        raise ArithmeticError(f"an exponent must be a positive Fraction, found {x!r:.60}")
