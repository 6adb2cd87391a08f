"""Every outcome of the samplers with narrow words, weighed with Fractions, against the exact probabilities.

The same code that ships draws from words of a few bits: all words of a block are enumerated, and after every tie all
words that may follow. What is decided for a value is at most its probability, and at least that less what is still
open. The mutants that cut ties, or throw half-drawn samples away, break one of the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from helpers.noise import oracle
from sketchstream.noise import gaussian, laplace, response

Draw = Callable[[], int]
Complete = Callable[[list[int], Draw], int | None]


class MoreError(Exception):
    """The words of this branch of the tree are used up."""


def none() -> int:
    """A source without further words."""
    raise MoreError


def enumerate_outcomes(
    columns: Iterable[tuple[int, ...]], rows: int, width: int, depth: int, complete: Complete
) -> tuple[dict[int, Fraction], Fraction]:
    """Probability decided for each value, and what is still open, when at most `depth` further words are drawn."""
    masses: dict[int, int] = defaultdict(int)  # in units of the probability of one longest branch
    open_ = 0
    for column in columns:
        branches: list[tuple[int, ...]] = [()]
        while branches:
            branch = branches.pop()
            later = iter(branch)

            def draw(given: Iterable[int] = later) -> int:
                try:
                    return next(given)  # type: ignore[call-overload]
                except StopIteration:
                    raise MoreError from None

            share = 1 << width * (depth - len(branch))
            try:
                value = complete(list(column), draw)
            except MoreError:
                if len(branch) == depth:
                    open_ += share
                else:
                    branches.extend((*branch, word) for word in range(1 << width))
                continue
            if value is not None:
                masses[value] += share
    unit = Fraction(1, 1 << width * (rows + depth))
    return defaultdict(Fraction, {value: mass * unit for value, mass in masses.items()}), open_ * unit


def consistent(
    masses: dict[int, Fraction], open_: Fraction, pmf: Callable[[int], Fraction], values: Iterable[int]
) -> bool:
    """Whether every probability lies between what is decided and that plus what is open."""
    slack = Fraction(1, 10**60)  # the decimals' own error
    return all(masses[v] <= pmf(v) + slack and pmf(v) <= masses[v] + open_ + slack for v in values)


def laplace_pmf(epsilon: Fraction) -> Callable[[int], Fraction]:
    a = oracle.exp_minus(epsilon)
    return lambda value: (1 - a) / (1 + a) * a ** abs(value)


def columns(rows: int, width: int) -> list[tuple[int, ...]]:
    return list(product(range(1 << width), repeat=rows))


CASES = [("1/2", 2, 3, 2), ("1", 1, 4, 1), ("1", 2, 3, 2), ("22/7", 0, 5, 2), ("1", 0, 5, 2), ("1/3", 1, 3, 3)]


@pytest.mark.statistics
@pytest.mark.parametrize(("epsilon", "digits", "width", "depth"), CASES)
def test_laplace_with_narrow_words_has_exactly_its_law(epsilon: str, digits: int, width: int, depth: int) -> None:
    ready = laplace.plan(Fraction(epsilon), count=digits, width=width)
    masses, open_ = enumerate_outcomes(
        columns(ready.rows, width), ready.rows, width, depth, lambda words, draw: laplace.complete(words, ready, draw)
    )
    assert sum(masses.values()) + open_ == 1
    assert open_ < Fraction(1, 3)
    assert consistent(masses, open_, laplace_pmf(ready.epsilon), range(-25, 26))


@pytest.mark.parametrize(("epsilon", "digits", "width", "depth"), CASES)
def test_decided_columns_of_a_block_are_the_completed_ones(epsilon: str, digits: int, width: int, depth: int) -> None:
    ready = laplace.plan(Fraction(epsilon), count=digits, width=width)
    every = columns(ready.rows, width)
    block = np.ascontiguousarray(np.array(every, np.uint32).T)
    noise = np.zeros(len(every), np.int32)
    assert laplace.numpy_block(block, ready, noise)
    tied = set(laplace.undecided_columns(block, ready).tolist())
    for i, column in enumerate(every):
        if i not in tied:
            assert laplace.complete(list(column), ready, none) == noise[i]  # and asks for nothing more


@pytest.mark.parametrize(("epsilon", "digits", "width", "depth"), CASES)
def test_cutting_ties_or_discarding_half_drawn_samples_is_caught(
    epsilon: str, digits: int, width: int, depth: int
) -> None:
    ready = laplace.plan(Fraction(epsilon), count=digits, width=width)
    every = columns(ready.rows, width)
    pmf = laplace_pmf(ready.epsilon)

    def cut(words: list[int], draw: Draw) -> int:
        return laplace.complete(words, ready, lambda: (1 << width) - 1)  # every tie counts as 'not below'

    assert not consistent(*enumerate_outcomes(every, ready.rows, width, depth, cut), pmf, range(-25, 26))

    def discard(words: list[int], draw: Draw) -> int | None:
        try:
            return laplace.complete(words, ready, none)
        except MoreError:
            return None

    masses, _ = enumerate_outcomes(every, ready.rows, width, depth, discard)
    kept = sum(masses.values())
    scaled = defaultdict(Fraction, {v: m / kept for v, m in masses.items()})
    assert not consistent(scaled, Fraction(0), pmf, range(-25, 26))


@pytest.mark.parametrize("modulus", [2, 3, 6, 7])
@pytest.mark.parametrize("epsilon", ["1/10", "1", "22/7"])
def test_response_with_narrow_words_has_exactly_its_law(modulus: int, epsilon: str) -> None:
    ready = response.plan(modulus, Fraction(epsilon), width=4)
    masses, open_ = enumerate_outcomes(
        columns(2, 4), 2, 4, 3, lambda words, draw: response.complete(words, ready, draw)
    )
    e = 1 / oracle.exp_minus(Fraction(epsilon))
    assert sum(masses.values()) + open_ == 1
    assert open_ < Fraction(1, 10)
    assert set(masses) == set(range(modulus))
    assert consistent(masses, open_, lambda v: (e if v == 0 else 1) / (e + modulus - 1), range(modulus))


def test_response_that_keeps_every_second_word_is_caught() -> None:
    ready = response.plan(6, Fraction(1), width=4)
    biased = response.ResponseThresholds(ready.modulus, ready.moves, 0, ready.width)
    masses, open_ = enumerate_outcomes(
        columns(2, 4), 2, 4, 3, lambda words, draw: response.complete(words, biased, draw)
    )
    e = 1 / oracle.exp_minus(Fraction(1))
    assert not consistent(masses, open_, lambda v: (e if v == 0 else 1) / (e + 5), range(6))


@pytest.mark.parametrize(
    ("sigma2", "width", "table", "depth"),
    [("1/4", 6, 1024, 2), ("1", 7, 1024, 2), ("22/7", 8, 1024, 1), ("16", 5, 2, 1), ("16", 7, 2, 0), ("60", 3, 2, 0)],
)
def test_gaussian_with_narrow_words_has_exactly_its_law(sigma2: str, width: int, table: int, depth: int) -> None:
    ready = gaussian.plan(Fraction(sigma2), width, table)
    masses, open_ = enumerate_outcomes(
        columns(ready.rows, width), ready.rows, width, depth, lambda words, draw: gaussian.complete(words, ready, draw)
    )
    reach = int(25 * float(ready.sigma2) ** 0.5) + 1  # beyond it less than 1e-130
    total = sum(oracle.exp_minus(Fraction(j * j) / (2 * ready.sigma2)) for j in range(-reach, reach + 1))
    accepted = sum(masses.values())  # the rest is open, or refused: those samples are drawn again
    assert (accepted + open_ == 1) == (ready.shift == 0)
    assert ready.rows == (1 if table == 1024 else 2 if ready.packed else 3)
    assert open_ < Fraction(1, 20 if ready.rows == 1 else 1)
    slack = Fraction(1, 10**60)  # the decimals' own error
    for v in range(-min(40, reach), min(40, reach) + 1):
        p = oracle.exp_minus(Fraction(v * v) / (2 * ready.sigma2)) / total
        assert masses[v] <= p * (accepted + open_) + slack
        assert p * accepted <= masses[v] + open_ + slack


def test_columns_of_a_gaussian_block_are_the_completed_ones() -> None:
    for sigma2, width, table in (("1", 9, 1024), ("22/7", 11, 1024), ("100", 5, 4), ("16", 7, 2), ("60", 8, 4)):
        ready = gaussian.plan(Fraction(sigma2), width, table)
        every = columns(ready.rows, width)
        block = np.ascontiguousarray(np.array(every, np.uint32).T)
        noise = np.zeros(len(every), np.int64)
        tied, refused = (set(found.tolist()) for found in gaussian.numpy_block(block, ready, noise))
        assert len(tied) < len(every)
        assert bool(refused) == ready.packed
        for i, column in enumerate(every):
            if i not in tied:
                assert gaussian.complete(list(column), ready, none) == (None if i in refused else noise[i])


def test_acceptance_of_every_word_is_decided_where_and_only_where_it_can_be() -> None:
    sigma2, width, shift = Fraction(100), 10, 2
    words = 1 << width
    for left in range(0, 60, 1 << shift):
        for rest in range(1 << shift):
            exponent = rest * (2 * left + rest) / (2 * sigma2)
            p = oracle.exp_minus(exponent) if rest else Fraction(1)
            for word in range(words):
                known = Fraction(word + 1, words) <= p or Fraction(word, words) >= p
                try:
                    accepted = gaussian.below_exponential(word, width, exponent, width, none)
                except MoreError:
                    assert not known
                else:
                    assert known
                    assert accepted == (Fraction(word + 1, words) <= p)
