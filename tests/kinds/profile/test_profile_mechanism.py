"""Noise, counts and comparability of profiles, where their specs have wide counters, groups or published patterns.

In: specs and empty or filled states, fixed noise. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from sketchstream.kinds.groups.group_list import Groups, OneOfGroups
from sketchstream.kinds.profile.mechanism import add_view_noise, exact_counts
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.noise.laws import DiscreteLaplace, battery
from sketchstream.spec import ClosedDomain

NAMES = ["a", "b", "c", "d"]


def grouped(most: int, epsilon: str = "3") -> ProfileSpec:
    groups = Groups(NAMES, max_groups=most, limit="ranked")
    return ProfileSpec(epsilon, "item", ClosedDomain(size=100), modulus=16, groups=groups)


def worst(values: np.ndarray, epsilon: Fraction) -> float:
    return min(check.p_value for check in battery(values, DiscreteLaplace(epsilon)))


@pytest.mark.parametrize("most", [1, 3])
def test_a_published_histogram_of_groups_has_the_noise_of_all_groups_in_which_an_item_counts(most: int) -> None:
    """Bins have sensitivity 2, and an item is in `most` histograms."""
    spec, cost = grouped(most), Fraction(3, 2)
    assert spec.group_losses == most
    counts = np.zeros((4_000, spec.edges.size), np.int64)
    add_view_noise(spec, counts, cost)
    share = cost * spec.slots_share / most
    assert worst(counts.ravel(), share / 2) > 1e-6
    assert worst(counts.ravel(), share / 2 * Fraction(21, 20)) < 1e-6
    assert worst(counts.ravel(), share / 2 * Fraction(20, 21)) < 1e-6


@pytest.mark.parametrize("bits", [32, 64])
def test_cumulative_counts_go_half_around_the_circle_of_their_width(bits: int) -> None:
    spec = ProfileSpec("1", domain=ClosedDomain(size=6), bits=bits, max_count=8)
    assert spec.form == "cumulative"
    top = (1 << (bits - 1)) - 1
    state = np.array([0, 1, 8, -1, top, -top - 1], spec.dtype)
    ((first, *_),) = exact_counts(spec, state)
    edge = int(spec.edges[0])
    inside = [(int(x) - edge) % (1 << bits) < 1 << (bits - 1) for x in state]
    assert first == sum(inside)


def test_groups_with_other_costs_of_patterns_are_comparable_and_those_of_another_rule_are_not() -> None:
    one, other, third = (
        ProfileSpec("2", "item", ClosedDomain(size=50), modulus=16, one_of=OneOfGroups(number, patterns=Fraction(cost)))
        for number, cost in ((3, "1/2"), (3, "1/3"), (4, "1/2"))
    )
    assert one != other
    assert one.comparable() == other.comparable()
    assert one.comparable() != third.comparable()
    assert one.one_of is not None
    assert one.one_of.patterns == Fraction(1, 2), "the spec itself keeps its cost"
