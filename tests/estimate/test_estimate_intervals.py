"""95% intervals cover the truth in about 95% of 300 runs: both kinds of domain, every form, both units."""

from __future__ import annotations

import numpy as np
import pytest

from sketchstream.estimate import reconstruct
from sketchstream.estimate.simulate import hashed, publish

pytestmark = pytest.mark.statistics

RUNS = 300
LOW, HIGH = 0.91, 0.985
SHARES = np.array([0.4, 0.2, 0.12, 0.08, 0.06, 0.05, 0.03, 0.02, 0.01, 0.02, 0.01])


def items(size):
    return np.repeat(np.arange(1, 12), np.rint(SHARES * size).astype(int))


def truths(counts):
    out = {f"at_least.{k}": float((counts >= k).sum()) for k in (2, 5, 10)}
    return {**out, "distinct": counts.size, "f1": (counts == 1).sum(), "mean": counts.sum() / counts.size}


def covered(draw, wanted, n, method="monotone"):
    """Share of runs whose interval holds the truth, for each number."""
    hits = dict.fromkeys(wanted, 0)
    for _ in range(RUNS):
        profile = reconstruct([draw()], method=method, max_count=n)
        for name, truth in wanted.items():
            if name == "f1":
                low, high = profile.interval("counts")[1]
            else:
                found = profile.interval(name)
                low, high = found.low, found.high
            hits[name] += low <= truth <= high
    return {name: count / RUNS for name, count in hits.items()}


@pytest.mark.parametrize("form", ["state", "cumulative", "bins"])
@pytest.mark.parametrize("epsilon", ["0.25", "1"])
def test_closed_domain_of_events(epsilon, form):
    rng = np.random.default_rng(1)
    counts = items(10_000)
    h = np.concatenate([np.zeros(10_000, dtype=np.int64), counts])
    found = covered(lambda: publish([h], epsilon=epsilon, rng=rng, form=form, max_count=40), truths(counts), 40)
    assert {name: share for name, share in found.items() if not LOW <= share <= HIGH} == {}


def test_closed_domain_of_items():
    rng = np.random.default_rng(2)
    counts = items(10_000)
    h = np.concatenate([np.zeros(10_000, dtype=np.int64), counts])

    def draw():
        return publish([h], epsilon=2, rng=rng, form="bins", unit="item", modulus=16)

    found = covered(draw, truths(counts), 15)
    assert {name: share for name, share in found.items() if not LOW <= share <= HIGH} == {}


def test_two_layers_of_a_merge():
    rng = np.random.default_rng(3)
    counts = items(10_000)
    h = np.concatenate([np.zeros(10_000, dtype=np.int64), counts])
    found = covered(lambda: publish([h], epsilon=1, rng=rng, layers=2), truths(counts), 40)
    assert {name: share for name, share in found.items() if not LOW <= share <= HIGH} == {}


@pytest.mark.parametrize(
    ("unit", "form"), [("event", "state"), ("event", "cumulative"), ("event", "bins"), ("item", "bins")]
)
def test_open_domain(unit, form):
    rng = np.random.default_rng(4)
    counts = items(20_000)
    more = {"unit": "item", "modulus": 32} if unit == "item" else {"max_count": 40}
    epsilon = 2 if unit == "item" else 1

    def draw():
        return publish(hashed(counts, 1 << 16, 4, rng), epsilon=epsilon, rng=rng, form=form, open_domain=True, **more)

    found = covered(draw, truths(counts), 31 if unit == "item" else 40)
    assert {name: share for name, share in found.items() if not LOW <= share <= HIGH} == {}


def test_the_default_method_keeps_the_coverage():
    rng = np.random.default_rng(5)
    counts = items(10_000)
    h = np.concatenate([np.zeros(10_000, dtype=np.int64), counts])
    found = covered(
        lambda: publish([h], epsilon=1, rng=rng, form="cumulative", max_count=12), truths(counts), 12, "likelihood"
    )
    assert {name: share for name, share in found.items() if not LOW <= share <= HIGH} == {}
