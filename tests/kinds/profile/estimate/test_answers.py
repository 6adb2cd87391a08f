"""There is always an answer: finite numbers in order, or an `EstimateError` that says why not."""

from __future__ import annotations

import json
import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.estimate.simulate import hash_counts, publish
from sketchstream.kinds.profile.reconstruction import reconstruct

NUMBERS = (
    "distinct", "total", "mean", "entropy", "one_hit_ratio", "coverage", "above", "at_least.0", "at_least.1",
    "exactly.0", "exactly.1", "quantile.0", "quantile.0.5", "quantile.0.99", "quantile.1",
)  # fmt: skip
KINDS = ("none", "one", "ones", "equal", "huge", "beyond", "geometric", "zipf", "spikes")
FOUND = (61, 70, 73, 100)
"""Draws that ended in an error."""


def counts(kind: str, rng: np.random.Generator) -> np.ndarray:
    size = int(rng.choice([1, 2, 5, 30, 300, 3000]))
    made = {
        "none": np.zeros(0, np.int64),
        "one": np.array([int(rng.choice([1, 7, 10**6]))]),
        "ones": np.ones(size, np.int64),
        "equal": np.full(size, int(rng.integers(1, 400))),
        "huge": np.append(np.ones(size, np.int64), int(rng.choice([60, 5000, 10**9]))),
        "beyond": rng.integers(10**4, 10**8, size),
        "geometric": rng.geometric(0.3, size),
        "zipf": np.minimum(rng.zipf(1.3, size), 10**9),
        "spikes": rng.choice([1, 2, 19, 300, 5000], size),
    }
    return made[kind]


def drawn(seed: int) -> tuple[list, dict]:
    """Parts of one population, whatever they are like, and options of `reconstruct`."""
    rng = np.random.default_rng([77, seed])
    unit, is_open = str(rng.choice(["event", "item"])), bool(rng.integers(2))
    form = str(rng.choice(["state", "bins"] if unit == "item" else ["state", "cumulative", "bins"]))
    parts, layers = int(rng.choice([1, 1, 1, 2, 3, 4])), int(rng.choice([1, 1, 1, 2, 3, 4]))
    method = str(rng.choice(["likelihood", "likelihood", "monotone", "inverse", "circulant"]))
    modulus = int(rng.choice([2, 3, 17, 64])) if unit == "item" else None
    n = int(rng.choice([1, 2, 10, 30, 100]))
    n = n if modulus is None else min(n, modulus - 1)
    kind = str(rng.choice(KINDS))
    if (parts > 1 or layers > 1) and kind in ("beyond", "huge", "zipf"):
        kind = "geometric"  # through several layers or parts, far counts take minutes
    resolved = int(rng.choice([1, 16, 100, 300]))
    epsilons = [Fraction(int(rng.choice([1, 5, 25, 100, 300, 1000, 3000, 5000])), 100) for _ in range(parts)]
    costs = [Fraction(int(rng.choice([1, 10, 100, 1000, 5000])), 100) for _ in range(parts)]
    if rng.integers(2):
        epsilons, costs = epsilons[:1] * parts, costs[:1] * parts
    empty = int(rng.choice([0, 0, 10, 2000, 100_000]))
    slots, levels = [(64, 2), (4096, 4), (256, 1)][int(rng.integers(3))]
    seen = []
    for epsilon, cost in zip(epsilons, costs, strict=True):
        items = counts(kind, rng)
        items = items if modulus is None else items % modulus
        filled = np.append(items, np.zeros(max(empty, 1 - items.size), np.int64))
        seen.append(
            publish(
                hash_counts(items, slots, levels, rng) if is_open else [filled], epsilon=epsilon, rng=rng, unit=unit,
                form=form, cost=None if form == "state" else cost, layers=layers, max_count=resolved, modulus=modulus,
                open_domain=is_open, grouped=True,
            )
        )  # fmt: skip
    return seen, {"method": method, "max_count": n}


def answered(seen: list, options: dict) -> bool:
    """Whether there is an answer and not a refusal; fails if it is none."""
    try:
        profile = reconstruct(seen, **options)
    except EstimateError:
        return False
    json.loads(profile.to_json())
    unlimited = seen[0].open_domain and seen[0].unit == "item"  # nothing need limit the number of items
    widths = {}
    for name in NUMBERS:
        found = [profile.interval(name, level) for level in (0.5, 0.95, 0.9999)]
        for one in found:
            assert all(map(math.isfinite, (one.value, one.low))), (name, one)
            assert math.isfinite(one.high) or unlimited or one.bound == "lower", (name, one)
            assert one.low <= one.value <= one.high, (name, one)
        for inner, outer in pairwise(found):
            assert outer.low <= inner.low + 1e-9 * abs(inner.low), (name, inner, outer)
            most = outer.high if math.isinf(outer.high) else outer.high + 1e-9 * abs(outer.high)
            assert inner.high <= most, (name, inner, outer)
        if math.isfinite(found[-1].high):
            widths[name] = [one.high - one.low for one in found]
    unknown = unlimited and math.isinf(profile.interval("distinct", 0.9999).high)
    least = profile.interval("distinct", 0.5)  # of items, whose totals have no upper end, even this may be all there is
    unknown |= seen[0].unit == "item" and (least.low, least.high) == (0.0, float(profile.facts.d))
    assert unknown or any(first < last for first, _, last in widths.values()), "more confidence takes more room"
    for name in ("fractions", "counts"):
        value, (low, high) = getattr(profile, name), profile.interval(name).T
        assert np.isfinite([value, low]).all(), name
        assert (np.isfinite(high) | (unlimited & (high == np.inf))).all(), name
        assert ((low <= value) & (value <= high)).all(), name
    value, low, high = profile.tail_ends(1.96)[1:].T
    assert np.isfinite([value, low]).all()
    assert (np.isfinite(high) | (unlimited & (high == np.inf))).all()
    assert ((low <= value) & (value <= high)).all()
    assert (np.diff(low) <= 0).all()
    assert (high[1:] <= high[:-1]).all()
    return True


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("seed", FOUND)
def test_draws_that_ended_in_an_error(seed):
    seen, options = drawn(seed)
    if not answered(seen, options):
        with pytest.raises(EstimateError, match="crowded"):
            reconstruct(seen, **options)


@pytest.mark.statistics
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_whatever_was_published_there_is_an_answer():
    found = Counter(answered(*drawn(seed)) for seed in range(1000, 1040))
    assert found[True] >= 25


def test_an_upper_limit_below_the_lower_end_of_the_items_is_the_end_of_both():
    rng = np.random.default_rng(79)
    for size in (30, 300):
        slots = hash_counts(np.ones(size, np.int64), 256, 1, rng)
        for method in ("monotone", "likelihood"):
            seen = publish(slots, epsilon=3, rng=rng, form="cumulative", cost="1/100", max_count=16, open_domain=True)
            assert answered([seen], {"method": method, "max_count": 2})


@pytest.mark.statistics
@pytest.mark.parametrize("seed", range(4))
def test_one_item_far_from_a_thousand_at_one_without_much_noise(seed):
    """The square of a share on the path to these laws was less than the least number."""
    rng = np.random.default_rng([78, seed])
    h = np.zeros(100_000, np.int64)
    h[: int(rng.integers(600, 3000))] = 1
    h[0] = 60
    assert answered([publish([h], epsilon=30, rng=rng, form="cumulative", grouped=True)], {"max_count": 300})
