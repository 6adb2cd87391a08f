"""Where items hardly show above the noise, noise is not told as items, and intervals hold the truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from helpers.crowds import Cell, seen, truths
from sketchstream.array_types import Floats
from sketchstream.kinds.estimates import normal_quantile
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.estimate.open_domain import residues
from sketchstream.kinds.profile.estimate.open_domain.collisions import read_levels
from sketchstream.kinds.profile.estimate.open_domain.residues import Residues
from sketchstream.kinds.profile.estimate.simulate import hash_counts, publish
from sketchstream.kinds.profile.reconstruction import reconstruct

SLOTS, LEVELS = 1 << 13, 8
CELLS = [
    (items, mean, law, modulus)
    for items in (30, 100, 300)
    for mean, law, modulus in ((3.0, "geometric", 32), (2.0, "zipf", 32), (5.0, "negative binomial", 64))
]


def nothing(seed: int, epsilon: str, modulus: int = 32) -> list[Observed]:
    """What is published of no items."""
    rng = np.random.default_rng([seed, modulus])
    sizes = [SLOTS >> min(j + 1, LEVELS - 1) for j in range(LEVELS)]
    empty = [np.zeros(m, np.int64) for m in sizes]
    more: dict[str, Any] = {"unit": "item", "form": "bins", "open_domain": True, "grouped": True}
    return [publish(empty, epsilon=epsilon, cost="1", rng=rng, modulus=modulus, **more)]


@pytest.mark.statistics
@pytest.mark.parametrize(("epsilon", "modulus"), [("4", 32), ("1", 32), ("4", 128)])
def test_an_empty_sketch_is_not_told_to_hold_items(epsilon: str, modulus: int) -> None:
    """Taken as known, the law that fits best found items in half of all empty sketches."""
    runs, some, likeliest = 60, 0, 0
    for seed in range(runs):
        found = reconstruct(nothing(seed, epsilon, modulus), max_count=modulus - 1)
        some += found.distinct.low > 0.0
        likeliest += found.distinct.value < 0.5
        assert all(found.at_least(k).low <= found.distinct.low for k in (2, 5, 10))
    # 5%, and four standard deviations of a share of the runs
    assert some <= runs * (0.05 + 4.0 * math.sqrt(0.05 * 0.95 / runs)), some
    assert likeliest >= runs / 5, "none is the likeliest number for a good part of them"


@pytest.mark.parametrize("modulus", [2, 3, 7, 600])
def test_an_empty_sketch_of_any_modulus_has_an_answer(modulus: int) -> None:
    for seed in range(2):
        found = reconstruct(nothing(seed, "4", modulus), max_count=modulus - 1)
        for name in ("distinct", "total", "mean", "entropy", "one_hit_ratio", "coverage"):
            one = found.number(name)
            assert one.low <= one.value <= one.high, (seed, name)
            assert math.isfinite(one.value)


def test_counts_that_end_at_the_last_resolved_one_have_an_answer() -> None:
    """Of a modulus above 512 counts up to 32 are resolved: nothing was left over which to spread larger ones."""
    for seed in (0, 3, 4):
        rng = np.random.default_rng(seed)
        more = {"unit": "item", "form": "bins", "open_domain": True}
        counters = hash_counts(np.full(300, 25), 1 << 12, 8, rng)
        found = reconstruct([publish(counters, epsilon="4", cost="1", rng=rng, modulus=600, **more)], max_count=599)
        assert found.distinct.low <= 300 <= found.distinct.high


@pytest.mark.statistics
@pytest.mark.timeout(900)
def test_intervals_hold_few_items() -> None:
    runs, held = 24, {}
    for items, mean, law, modulus in CELLS:
        cell = Cell(items / SLOTS, mean, law, modulus, LEVELS, 1)
        for run in range(runs):
            parts, numbers = seen(cell, SLOTS, np.random.default_rng([run, items]))
            profile = reconstruct(parts, max_count=modulus - 1)
            for name, truth in truths(numbers).items():
                one = profile.interval(name)
                held.setdefault((cell, name), []).append(one.low <= truth <= one.high)
    for case, one in held.items():
        assert sum(one) >= runs * (0.95 - 5.0 * math.sqrt(0.05 * 0.95 / runs)), case
    for name in truths(np.ones(3)):
        every = [hit for (_, which), hits in held.items() if which == name for hit in hits]
        assert sum(every) >= len(every) * (0.95 - 4.0 * math.sqrt(0.05 * 0.95 / len(every))), name


def few(seed: int, counts: list[int], levels: int) -> list[Observed]:
    """What 256 slots a level show of a few items."""
    rng = np.random.default_rng([56, seed, len(counts)])
    counters = hash_counts(np.array(counts), 256 * levels, levels, rng)
    more: dict[str, Any] = {"unit": "item", "form": "bins", "open_domain": True}
    return [publish(counters, epsilon="4", cost="1", rng=rng, modulus=16, **more)]


def test_no_entropy_is_refused_that_a_plausible_number_of_items_may_have() -> None:
    """The ellipse around events and surprise alone had its lower end above the logarithm of a plausible number."""
    for seed in range(30):
        known = reconstruct(few(seed, [3], 1), method="inverse", max_count=15)._known
        ends, tails = known.scalars["entropy"], known.tails
        for level in (0.5, 0.8, 0.95):
            z = normal_quantile(level)
            low, items = float(ends.ends(z)[0][0]), float(tails.at(1).ends(z)[0][0])
            assert low <= math.log(max(items, 1.0)) + 1e-12


@pytest.mark.statistics
@pytest.mark.parametrize(("counts", "levels"), [([3], 1), ([1, 1, 1], 2)])
def test_the_entropy_of_a_handful_is_covered_and_no_interval_of_many_is_wider(counts: list[int], levels: int) -> None:
    """82 to 90% of intervals of 80% did, and 94% of those of 95%; every miss was a lower end."""
    runs, truth = 150, math.log(len(counts))
    profiles = [reconstruct(few(seed, counts, levels), method="inverse", max_count=15) for seed in range(runs)]
    for level in (0.8, 0.95):
        found = [profile.number("entropy", level) for profile in profiles]
        low = sum(one.low > truth + 1e-9 for one in found) / runs
        assert low <= 0.3 * (1.0 - level) + 0.02, (level, low)
    rng = np.random.default_rng(57)
    many = publish(hash_counts(rng.geometric(0.4, 2000) % 16, 4096, 2, rng), epsilon="4", cost="1", rng=rng,
                   unit="item", form="bins", open_domain=True, modulus=16)  # fmt: skip
    found = reconstruct([many], method="inverse", max_count=15)
    entropy = found._known.scalars["entropy"]
    assert entropy.ends(1.96)[0] < math.log(found.distinct.low), "the ellipse has the lower end"


def test_a_law_that_differs_has_the_likelihood_of_all_its_counts() -> None:
    """With as many stretches as counts, nothing is lost; with fewer, the curve hardly moves."""
    parts, _ = seen(Cell(100 / SLOTS, 3.0, "geometric", 64, LEVELS, 1), SLOTS, np.random.default_rng(5))
    data = Residues(read_levels(parts[0], 63))
    ends: list[Floats] = []
    for told in (63, 31):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(residues, "MAX_STRETCHES", told)
            curve = data.curve(data.start())
            ends.append(np.array([curve.value, *curve.ends(1.96)]))
    deviation = (ends[0][2] - ends[0][1]) / 3.92
    assert np.abs(ends[0] - ends[1]).max() < 0.25 * deviation, ends
