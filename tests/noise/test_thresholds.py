"""Thresholds against an independent derivation, and comparisons against every possible word."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import pytest

from helpers.noise import oracle
from sketchstream.noise.gaussian import GaussianTails
from sketchstream.noise.thresholds import CACHED_BITS, Threshold, digit, exp_minus, exponential, is_below, response

EXPONENTS = [
    Fraction(e) for e in ("1/1000000", "1/10000", "1/100", "1/10", "3/7", "1", "22/7", "10", "50", "700", "1/3")
]


def decimal_odds(weight: int, x: Fraction, bits: int, digits: int) -> int:
    """floor(2^bits w / (w + e^x)) by correctly rounded decimals: another method than the product's."""
    with localcontext() as context:
        context.prec = digits
        p = weight / (weight + (Decimal(x.numerator) / Decimal(x.denominator)).exp())
        return int(p * 2**bits)


@pytest.mark.parametrize("x", EXPONENTS)
@pytest.mark.parametrize("bits", [8, 32, 256, 257, 1024])
def test_digit_thresholds_equal_decimals_at_two_precisions(x: Fraction, bits: int) -> None:
    for weight, threshold in ((1, digit(x)), (15, response(16, x)), (32767, response(32768, x))):
        assert threshold.prefix(bits) == decimal_odds(weight, x, bits, 420) == decimal_odds(weight, x, bits, 900)


@pytest.mark.parametrize("x", EXPONENTS)
def test_exponentials_equal_decimals_and_themselves_at_twice_the_precision(x: Fraction) -> None:
    threshold = exponential(x)
    with localcontext() as context:
        context.prec = 900
        exact = (-(Decimal(x.numerator) / Decimal(x.denominator))).exp()
        assert threshold.prefix(CACHED_BITS) == int(exact * 2**CACHED_BITS)
    assert threshold.prefix(CACHED_BITS) == exponential(x, 2 * CACHED_BITS).prefix(2 * CACHED_BITS) >> CACHED_BITS


@pytest.mark.parametrize("x", [*EXPONENTS, Fraction(0), Fraction(10**9), Fraction(1, 10**40)])
@pytest.mark.parametrize("bits", [1, 17, 320, 5000])
def test_the_interval_of_an_exponential_holds_it_and_is_narrow(x: Fraction, bits: int) -> None:
    low, high = exp_minus(x, bits)
    with localcontext() as context:
        context.prec = 1700
        exact = (-(Decimal(x.numerator) / Decimal(x.denominator))).exp() * 2**bits
        assert low <= exact <= high
    assert high - low <= 2


def test_an_interval_that_never_closes_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(ArithmeticError):
        Threshold(lambda bits: ((1 << (bits - 1)) - 1, 1 << (bits - 1)))


@pytest.mark.parametrize("x", [Fraction(0), Fraction(-1), 1.0])
def test_exponents_that_are_no_positive_rationals_are_refused(x: Fraction) -> None:
    for make in (digit, exponential):
        with pytest.raises(ArithmeticError):
            make(x)


@pytest.mark.parametrize("x", EXPONENTS[:9])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_comparing_every_word_gives_the_exact_probability(x: Fraction, width: int) -> None:
    """All first words, then all words after each tie, ...: what is decided brackets 1 / (1 + e^x) ever closer."""
    threshold, words = digit(x), 1 << width
    sure, open_ = Fraction(0), Fraction(0)
    ties: list[list[int]] = [[]]
    for depth in range(1, 7):
        share, still = Fraction(1, words**depth), []
        for tie, word in product(ties, range(words)):
            asked = iter([*tie, word])
            try:
                sure += share * is_below(threshold, next(asked), lambda given=asked: next(given), width)
            except StopIteration:
                still.append([*tie, word])
        ties, open_ = still, share * len(still)
        assert len(ties) == 1  # exactly one word ties with an irrational threshold, at every depth
    e = oracle.exp_minus(x)
    assert sure < e / (1 + e) < sure + open_


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("s2", ["1/50", "1/4", "1", "22/7", "400"])
def test_gaussian_tables_equal_sums_of_decimals(s2: str, half: bool) -> None:
    exact = Fraction(s2)
    tails = GaussianTails(exact, half=half)
    known = oracle.gaussian_tails(exact, half)
    for bits in (31, 128, 200):
        for k in range(0, len(known), max(1, len(known) // 40)):
            low, high = tails.enclose(k, bits)
            assert low <= known[k].p * 2**bits * (1 + Fraction(1, 10**70))
            assert high >= known[k].p * 2**bits * (1 - Fraction(1, 10**70))
            assert high - low <= 2
    for k in range(1, len(known), max(1, len(known) // 40)):
        assert tails.first_bits(k, 31) == int(known[k].p * 2**31)
