"""The replay oracle: the definitions of the samplers, read word by word with Fractions.

In: the words that a sampler consumed. Out: the noise it must have added. Touches: nothing.

Nothing is shared with the product but the order of the words. Thresholds come from `decimal`, whose exponential is
correctly rounded, at 400 digits; uniform reals are intervals that shrink as words are read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, wraps
from typing import Any

DIGITS = 400
TABLE_DIGITS = 100
"""For the thousands of exponentials of a Gaussian's table and of its acceptances: a word that they leave open makes
the oracle read one word more than the sampler did, which the tests notice."""


def kept(oracle: Callable[..., list[int]]) -> Callable[..., list[int]]:
    """With the last answers kept: two ways to run a sampler consume the same words, or each gets its own answer."""
    known = lru_cache(maxsize=2)(oracle)

    @wraps(oracle)
    def ask(words: Sequence[int], *rest: Any, **more: Any) -> list[int]:
        return list(known(tuple(words), *rest, **more))

    return ask


def exp_minus(x: Fraction, digits: int = DIGITS) -> Fraction:
    """exp(-x) with a relative error far below 10^-(digits - 20)."""
    with localcontext() as context:
        context.prec = digits
        return Fraction((-(Decimal(x.numerator) / Decimal(x.denominator))).exp())


class Real:
    """A probability known to a relative 10^-(digits - 20), as integers around its multiples of powers of two."""

    def __init__(self, p: Fraction, digits: int = DIGITS) -> None:
        self.p = p
        whole = 10 ** (digits - 20)
        self.low, self.high = p.numerator * (whole - 1), p.numerator * (whole + 1)
        self.unit = p.denominator * whole
        self.known: dict[int, tuple[int, int]] = {}

    def around(self, bits: int) -> tuple[int, int]:
        """Integers below and above p * 2^bits."""
        if bits not in self.known:
            self.known[bits] = (self.low << bits) // self.unit, -(-(self.high << bits) // self.unit)
        return self.known[bits]


class Uniform:
    """A uniform real of which some words are known."""

    def __init__(self, word: int, stream: Iterator[int], width: int, bits: int | None = None) -> None:
        self.bits = width if bits is None else bits
        self.value = word
        self.stream = stream
        self.width = width

    def below(self, p: Real) -> bool:
        """Whether the real is below p: words are read until its interval lies on one side."""
        while True:
            low, high = p.around(self.bits + 64)
            if (self.value + 1) << 64 <= low:
                return True
            if self.value << 64 >= high:
                return False
            self.value = (self.value << self.width) | next(self.stream)
            self.bits += self.width


def blocks(words: Sequence[int], samples: int, rows: int, block: int) -> Iterator[tuple[list[int], Iterator[int]]]:
    """Each sample's own words, and the stream from which its further words come."""
    position = 0

    def later() -> Iterator[int]:
        nonlocal position
        while True:
            position += 1
            yield words[position - 1]

    done = 0
    while done < samples:
        here = min(block, samples - done)
        start, position = position, position + rows * here
        for i in range(here):
            yield [words[start + row * here + i] for row in range(rows)], later()
        done += here


@kept
def laplace(
    words: Sequence[int], samples: int, epsilon: Fraction, digits: int, block: int, width: int = 32
) -> list[int]:
    """S (1 + G) of every sample."""
    q = exp_minus(epsilon)
    side, other = Real(q / (1 + q)), Real(1 / (1 + q))
    ones = []
    for j in range(digits):
        e = exp_minus(epsilon * 2**j)
        ones.append(Real(e / (1 + e)))
    high = lru_cache(maxsize=None)(lambda k: Real(exp_minus(epsilon * 2**digits * k)))
    out = []
    for own, stream in blocks(words, samples, digits + 2, block):
        sign = Uniform(own[0], stream, width)
        if 2 * own[0] < 1 << width:
            s = -1 if sign.below(side) else 0
        else:
            s = 0 if sign.below(other) else 1
        g = sum(2**j * Uniform(own[1 + j], stream, width).below(one) for j, one in enumerate(ones))
        top, k = Uniform(own[-1], stream, width), 0
        while top.below(high(k + 1)):
            k += 1
        out.append(s * (1 + g + 2**digits * k))
    return out


@kept
def response(
    words: Sequence[int], samples: int, modulus: int, epsilon: Fraction, block: int, width: int = 32
) -> list[int]:
    """The shift of every sample."""
    out = []
    moved = Real((modulus - 1) / (1 / exp_minus(epsilon) + modulus - 1))
    for own, stream in blocks(words, samples, 2, block):
        moves = Uniform(own[0], stream, width).below(moved)
        word = own[1]
        while word * (modulus - 1) % 2**width < 2**width % (modulus - 1):  # one word too many leads to this value
            word = next(stream)
        out.append(1 + word * (modulus - 1) // 2**width if moves else 0)
    return out


@lru_cache(maxsize=16)
def gaussian_tails(s2: Fraction, half: bool) -> list[Real]:
    """Pr[K >= k] for k = 0.. until it is below 2^-200, weights exp(-k^2 / (2 s2)), that of 0 halved or not."""
    unit = 10 ** (TABLE_DIGITS + 80)
    weights = [unit // 2 if half else unit]
    while weights[-1] > unit >> 250:
        weights.append(round(exp_minus(len(weights) ** 2 / (2 * s2), TABLE_DIGITS) * unit))
    tails, total = [], 0
    for weight in reversed(weights):
        total += weight
        tails.append(total)
    return [Real(Fraction(tail, total), TABLE_DIGITS) for tail in reversed(tails)]


@kept
def gaussian(
    words: Sequence[int], samples: int, sigma2: Fraction, shift: int, block: int, width: int = 32
) -> list[int]:
    """+-(2^m K + R) of every sample; all that are refused start again in blocks of their own, after the others."""
    packed = 0 < shift <= width // 2
    rows = 1 if shift == 0 else 2 if packed else 2 + -(-shift // width)
    tails = gaussian_tails(sigma2 / 4**shift, shift == 0)
    out = [0] * samples
    pending, position = list(range(samples)), 0

    def later() -> Iterator[int]:
        nonlocal position
        while True:
            position += 1
            yield words[position - 1]

    while pending:
        refused = []
        for start in range(0, len(pending), block):
            here = pending[start : start + block]
            own = [
                list(column)
                for column in zip(
                    *(words[position + row * len(here) :][: len(here)] for row in range(rows)), strict=True
                )
            ]
            position += rows * len(here)
            for sample, column in zip(here, own, strict=True):
                value = gaussian_proposal(column, later(), sigma2, shift, width, tails)
                if value is None:
                    refused.append(sample)
                else:
                    out[sample] = value
        pending = refused
    return out


def gaussian_proposal(
    own: Sequence[int], stream: Iterator[int], sigma2: Fraction, shift: int, width: int, tails: list[Real]
) -> int | None:
    """One sample, or None where it is refused."""
    sign = -1 if own[0] >> (width - 1) else 1
    real = Uniform(own[0] % 2 ** (width - 1), stream, width, width - 1)
    # the tails fall: jump to the last one that the known bits are surely below, then go one by one
    k = bisect_left(range(1, len(tails)), True, key=lambda i: not surely_below(real, tails[i]))
    while real.below(tails[k + 1]):
        k += 1
    if shift == 0:
        return sign * k
    if shift <= width // 2:
        rest = own[1] % 2**shift
        uniform = Uniform(own[1] // 2**shift, stream, width, width - shift)
    else:
        rest = 0
        for word in own[2:]:
            rest = (rest << width) + word
        rest >>= (len(own) - 2) * width - shift
        uniform = Uniform(own[1], stream, width)
    value = 2**shift * k + rest
    drop = Fraction(value**2 - (2**shift * k) ** 2) / (2 * sigma2)
    accept = rest == 0 or uniform.below(Real(exp_minus(drop, TABLE_DIGITS), TABLE_DIGITS))
    return sign * value if accept and not (sign < 0 and value == 0) else None


def surely_below(real: Uniform, p: Real) -> bool:
    """Whether the known bits alone put the real below p."""
    return (real.value + 1) << 64 <= p.around(real.bits + 64)[0]
