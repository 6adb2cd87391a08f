"""Every number that docs/theory/privacy.md quotes is computed here.

In: nothing. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from sketchstream.audit import oracle
from sketchstream.privacy.losses.history import History, LayerEntry, View

F = Fraction


def response(epsilon: str) -> LayerEntry:
    return LayerEntry(bytes(16), "randomized-response", F(epsilon))


def laplace(epsilon: str) -> LayerEntry:
    return LayerEntry(bytes(16), "discrete-laplace", F(epsilon))


def test_a_swap_costs_exactly_twice_on_a_bare_state() -> None:
    """Two slots, independent noise: an event of one item against an event of the other."""
    law = oracle.randomized_response(3, 1.0)
    here, there = np.outer(np.roll(law, 1), law).ravel(), np.outer(law, np.roll(law, 1)).ravel()
    nobody = np.outer(law, law).ravel()
    assert oracle.log_ratio([here, there]) == pytest.approx(2)
    assert oracle.log_ratio([here, nobody]) == pytest.approx(1)


def test_saturation_at_127_erases_the_noise() -> None:
    """130 times +1, then -5: 0.987 at 122, and nothing there with one more deletion."""
    a = math.exp(-1)

    def at_122(deletions: int) -> float:
        total = 0.0
        for z in range(-60, 61):
            x = z
            for _ in range(130):
                x = min(127, x + 1)
            total += (1 - a) / (1 + a) * a ** abs(z) * (x - deletions == 122)
        return total

    assert at_122(5) == pytest.approx(0.987, abs=5e-4)
    assert at_122(6) == 0


def test_linear_thresholds_lose_seven_times_what_they_claim() -> None:
    """All eight thresholds of Z_8 at cost 0.3 are crossed at once at the wrap, but one that is never crossed."""

    def linear(size: int, cost: float) -> oracle.Floats:
        x = (np.arange(size)[:, None] + size // 2) % size - size // 2
        return oracle.bits(x >= np.arange(-3, 4), cost)

    ring = oracle.Ring(8, oracle.wrapped_laplace, linear)
    history = History((laplace("50"), View("release", F("0.3"))))
    kernel = linear(8, 0.3)
    assert oracle.log_ratio([kernel[3], kernel[4]]) == pytest.approx(2.1)
    assert max(oracle.exact_event_losses(history, ring).values()) == pytest.approx(2.1, abs=1e-6)
    honest = oracle.Ring(8, oracle.wrapped_laplace, oracle.half_circle_release)
    assert max(oracle.exact_event_losses(history, honest).values()) == pytest.approx(0.3, abs=1e-6)


def test_a_histogram_of_a_state_that_nobody_saw_costs_less_than_any_ledger_can_say() -> None:
    """One threshold, epsilon = c = 1: 0.434."""
    e = math.e
    assert math.log((1 + e * e) / (e + e)) == pytest.approx(0.434, abs=5e-4)
    ring = oracle.Ring(2, oracle.randomized_response, lambda m, c: oracle.bits(np.arange(m)[:, None] >= [1], c))
    history = History((response("1"), View("release", F(1))))
    assert max(oracle.exact_event_losses(history, ring).values()) == pytest.approx(0.434, abs=5e-4)


def test_two_layers_of_randomized_response_cost_little_if_nobody_looked() -> None:
    """p = 16, both 1: ln((1 + (p-1) L^2) / (1 - L^2)) = 0.141."""
    shrink = (math.e - 1) / (math.e + 15)
    formula = math.log((1 + 15 * shrink**2) / (1 - shrink**2))
    assert formula == pytest.approx(0.141, abs=5e-4)
    ring = oracle.Ring(16, oracle.randomized_response, oracle.bins_release)
    history = History((response("1"),)).sealed_by(response("1"), View("publication", None))
    assert max(oracle.exact_event_losses(history, ring).values()) == pytest.approx(formula, abs=1e-9)
