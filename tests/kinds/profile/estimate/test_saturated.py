"""Unit item in far too few slots: residues say nothing, and no number of items is made up from them."""

from __future__ import annotations

import numpy as np
import pytest

from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.estimate import simulate
from sketchstream.kinds.profile.reconstruction import reconstruct


def seen(modulus: int, slots: int, levels: int, load: float, seed: int):
    """Published residues of items counted 1 or 2 times, `load` of them in each slot of the emptiest level."""
    rng = np.random.default_rng(seed)
    share = 1.0 if levels == 1 else 2.0 ** -(levels - 1)
    items = rng.integers(1, min(modulus, 3), int(load * (slots // levels) / share))
    counters = simulate.hash_counts(items, slots, levels, rng)
    more = {"unit": "item", "open_domain": True, "form": "bins", "modulus": modulus, "max_count": modulus - 1}
    return items.size, simulate.publish(counters, epsilon="4", rng=rng, cost="1", **more)


@pytest.mark.parametrize(("slots", "levels"), [(4096, 1), (8192, 2), (8192, 4)])
@pytest.mark.parametrize("modulus", [32, 100])
def test_saturated_residues_are_refused_and_others_are_not(modulus: int, slots: int, levels: int) -> None:
    # 40 items of one or two events fill a slot with a total of 60, give or take 7: all residues of 32 are there
    with pytest.raises(EstimateError, match="too crowded"):
        reconstruct([seen(modulus, slots, levels, 40.0 if modulus == 32 else 250.0, 1)[1]], max_count=modulus - 1)
    most = 0.5 * np.log(modulus)
    for load in (0.0, 0.3 * most, most):
        true, published = seen(modulus, slots, levels, load, 2)
        found = reconstruct([published], max_count=modulus - 1).distinct
        assert abs(found.value - true) <= max(4 * (found.high - found.low) / 3.92, 0.02 * true)


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_not_taken_for_a_crowd(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counters = [np.zeros(2048, np.int64)] * 2
    more = {"unit": "item", "open_domain": True, "form": "bins", "modulus": 32, "max_count": 31}
    published = simulate.publish(counters, epsilon="1/10", rng=rng, cost="1/10", **more)
    assert reconstruct([published], max_count=31).distinct.low == 0.0


@pytest.mark.parametrize(("epsilon", "seed"), [("1/10", 45), ("1/20", 49)])
def test_an_empty_sketch_that_is_refused_is_not_called_crowded(epsilon: str, seed: int) -> None:
    more = {"unit": "event", "open_domain": True, "form": "cumulative", "max_count": 300}
    counters = [np.zeros(512, np.int64)] * 2
    published = simulate.publish(counters, epsilon=epsilon, rng=np.random.default_rng(seed), cost=epsilon, **more)
    with pytest.raises(EstimateError, match=r"^noise hides how many items there are.* a larger epsilon"):
        reconstruct([published], max_count=300)


def test_a_crowd_is_refused_with_the_limit_that_holds() -> None:
    with pytest.raises(EstimateError, match=r"more than 0\.52 items in each slot, and sums modulo 2 .* larger modulus"):
        reconstruct([seen(2, 4096, 1, 0.73, 3)[1]], max_count=1)
    rng = np.random.default_rng(1)
    more = {"unit": "event", "open_domain": True, "form": "cumulative", "max_count": 300}
    counters = simulate.hash_counts(np.full(20_000, 3), 1024, 2, rng)
    with pytest.raises(EstimateError, match=r"more than 1\.75 items in each slot, and what is published"):
        reconstruct([simulate.publish(counters, epsilon="1", rng=rng, cost="1", **more)], max_count=300)
