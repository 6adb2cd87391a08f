"""Counts that lie on few values: the sparse candidate finds them, and leaves smooth laws alone."""

from __future__ import annotations

import numpy as np
import pytest

from sketchstream.kinds.profile.estimate.likelihood import sparse
from sketchstream.kinds.profile.estimate.simulate import publish
from sketchstream.kinds.profile.reconstruction import reconstruct

SLOTS = 60_000


def sketch(counts: np.ndarray, epsilon: str, seed: int):
    """What a sketch with half of its slots empty publishes, and the true shares at 0..300."""
    h = np.concatenate([np.zeros(SLOTS - counts.size, np.int64), np.clip(counts, 1, 300)])
    observed = publish([h], epsilon=epsilon, rng=np.random.default_rng(seed), form="state", max_count=300)
    return observed, np.bincount(h, minlength=301) / h.size


@pytest.mark.parametrize(
    ("step", "epsilon", "limit"), [(10, "1", 0.004), (10, "2", 0.001), (5, "1", 0.012), (5, "2", 0.004)]
)
def test_counts_in_multiples_are_found_by_value(step, epsilon, limit):
    """Twenty or forty values, most of the slots at few of them; smooth models alone leave 0.01 to 0.04."""
    counts = step * np.random.default_rng(3).geometric(0.04 * step, SLOTS // 2)
    for seed in range(3):
        observed, truth = sketch(counts, epsilon, seed)
        shares = np.array(reconstruct([observed], method="likelihood", max_count=300).fractions)
        assert np.abs(shares - truth).sum() < limit


@pytest.mark.statistics
def test_one_value_is_found_at_a_small_epsilon():
    """Many atoms have to go until one is left; given up on the way, a run is off by 0.3 to 0.9."""
    for seed in range(6):
        h = np.full(100_000, 37)
        observed = publish([h], epsilon="0.1", rng=np.random.default_rng(seed), form="state", max_count=300)
        shares = np.array(reconstruct([observed], method="likelihood", max_count=300).fractions)
        assert shares[36:39].sum() > 0.95
        assert shares[37] > 0.8


def test_one_value_is_found_where_few_counters_are_seen():
    """At epsilon 2 the counters reach 7 or 8 cells; without atoms for so few, half of the runs are off by 0.001."""
    for seed in range(6):
        observed = publish([np.ones(100_000, np.int64)], epsilon="2", rng=np.random.default_rng(seed), form="state")
        shares = np.array(reconstruct([observed], method="likelihood", max_count=300).fractions)
        assert shares[1] > 0.9993


def test_a_smooth_law_is_not_taken_for_a_sparse_one(monkeypatch):
    found = []
    original = sparse.candidate

    def watched(*args):
        found.append(original(*args))
        return found[-1]

    monkeypatch.setattr(sparse, "candidate", watched)
    counts = np.random.default_rng(4).negative_binomial(0.7, 0.05, SLOTS // 2) + 1
    observed, _ = sketch(counts, "0.5", 1)
    reconstruct([observed], method="likelihood", max_count=300)
    assert found == [None]


def test_merged_pairs_keep_their_mass_and_mean():
    at, mass = np.array([0, 3, 4, 9, 10]), np.array([0.5, 0.1, 0.1, 0.1, 0.2])
    places, shares = sparse._merge_atoms(at, mass, np.arange(12.0), [1, 3])
    assert places.tolist() == [0, 3, 10]
    assert shares == pytest.approx([0.5, 0.2, 0.3])
