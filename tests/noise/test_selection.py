"""The exponential mechanism draws from exactly the law that it claims."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import pytest

from helpers.noise.words import Forged, Seeded
from sketchstream.noise.selection import choose

DRAWS = 20_000


@pytest.mark.parametrize(
    ("scores", "epsilon"),
    [
        ({"a": Fraction(0), "b": Fraction(3), "c": Fraction(7, 4)}, Fraction(1)),
        ({"a": Fraction(5), "b": Fraction(5)}, Fraction(2)),
        ({"a": Fraction(100), "b": Fraction(80), "c": Fraction(99), "d": Fraction(0)}, Fraction(1, 10)),
    ],
)
def test_candidates_are_chosen_with_the_claimed_probabilities(scores: dict[str, Fraction], epsilon: Fraction) -> None:
    source = Seeded(7)
    found = Counter(choose(scores, epsilon, source) for _ in range(DRAWS))
    weights = {one: math.exp(float(epsilon * score) / 2) for one, score in scores.items()}
    total = sum(weights.values())
    statistic = 0.0
    for one, weight in weights.items():
        p = weight / total
        if p * DRAWS < 5:
            assert found[one] < 30
            continue
        statistic += (found[one] - p * DRAWS) ** 2 / (p * DRAWS)
    assert statistic < 80  # chi-square with at most 3 degrees of freedom: beyond 1e-16


def test_a_hopeless_candidate_is_not_chosen_and_ends() -> None:
    scores = {"good": Fraction(100_000), "bad": Fraction(0)}
    assert {choose(scores, Fraction(1, 10), Seeded(1)) for _ in range(20)} == {"good"}
    assert choose({"only": Fraction(0)}, Fraction(1, 10)) == "only"


def test_words_that_would_favour_the_first_candidates_are_drawn_again() -> None:
    """2^32 = 3 * 1431655765 + 1: the last word is one too many for three candidates."""
    scores = {"a": Fraction(0), "b": Fraction(0), "c": Fraction(0)}
    last = (1 << 32) - 1
    assert choose(scores, Fraction(1), Forged([last - 1])) == "c"
    assert choose(scores, Fraction(1), Forged([last, 1])) == "b"
    assert choose(scores, Fraction(1), Forged([last, last, 2])) == "c"
