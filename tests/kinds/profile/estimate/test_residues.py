"""Unit item: sums of items that share a slot wrap, and what is said of them is true however crowded the slots are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.estimate.open_domain.collisions import read_levels
from sketchstream.kinds.profile.estimate.open_domain.residues import Residues
from sketchstream.kinds.profile.estimate.simulate import hash_counts, publish
from sketchstream.kinds.profile.reconstruction import reconstruct


def published(counts, *, slots=1 << 12, levels=4, modulus=32, epsilon=4, cost=1, seed=1):
    rng = np.random.default_rng(seed)
    return publish(hash_counts(counts, slots, levels, rng), epsilon=epsilon, cost=cost, rng=rng, form="bins",
                   unit="item", modulus=modulus, open_domain=True)  # fmt: skip


def compound(intensity, load, p):
    """Law of the sum modulo p of a Poisson number of items, term by term."""
    shares = intensity / intensity.sum()
    term = np.eye(p)[0]
    out = math.exp(-load) * term
    for k in range(1, 80):
        term = np.array([sum(term[(s - t) % p] * shares[t] for t in range(p)) for s in range(p)])
        out += math.exp(-load) * load**k / math.factorial(k) * term
    return out


@pytest.mark.parametrize("p", [7, 32])
def test_the_law_of_a_slot_is_that_of_a_poisson_number_of_items_modulo_p(p):
    intensity = np.append(0.0, np.random.default_rng(28).random(p - 1) * 200.0)
    data = Residues(read_levels(published(np.ones(50, np.int64), modulus=p), p - 1))
    for transform, share, m in zip(data.transforms(intensity), data.share, data.m, strict=True):
        wanted = compound(intensity, intensity.sum() * share / m, p)
        assert np.fft.ifft(transform).real == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("users", [0.1, 1.0, 3.0])
def test_what_is_published_exactly_is_read_as_the_items_that_it_came_from(users):
    p, slots = 16, 1 << 12
    shape = np.append(0.0, 0.7 ** np.arange(1.0, p))
    intensity = shape / shape.sum() * users * slots
    data = Residues(read_levels(published(np.ones(50, np.int64), modulus=p), p - 1))
    law = np.fft.ifft(data.transforms(intensity), axis=1).real
    data.slots = data.m[:, None] * (data.eigenvalue * law + (1.0 - data.eigenvalue) / p)
    near = intensity * (1.0 + 0.3 * np.sin(np.arange(p)))
    for _ in range(12):
        near = np.append(0.0, data.estimate(near).value)
    assert near[1:] == pytest.approx(intensity[1:], rel=1e-6, abs=1e-3)
    assert data.curve(near).value == pytest.approx(intensity.sum(), rel=1e-6)


def test_a_step_below_zero_in_all_counts_leaves_the_law_where_it_was(monkeypatch):
    """In 2^24 slots with epsilon 1/4 it happens: 0 items, scaled up to 10^9, were not a number."""
    data = Residues(read_levels(published(np.ones(3, np.int64)), 31))
    shape = np.eye(32)[1]
    with_steps = data.plausible(shape, 1e9)
    monkeypatch.setattr(Residues, "_step", lambda *_: np.full(31, -1.0))
    assert math.isfinite(data.plausible(shape, 1e9))
    assert data.plausible(shape, 1e9) <= with_steps + 1e-6


def test_errors_given_the_items_are_those_of_many_throws():
    """Two items a slot in the fullest level: the share of residue 0 is twice that of empty slots."""
    rng, p, slots, runs = np.random.default_rng(3), 16, 1 << 11, 400
    counts = rng.geometric(0.2, slots) % p
    counts = counts[counts > 0]
    intensity = np.bincount(counts, minlength=p).astype(float)
    scores = np.stack([np.ones(p - 1), np.arange(1.0, p), (np.arange(1, p) >= 5).astype(float)])
    found = []
    for seed in range(runs):
        observed = published(counts, slots=slots, modulus=p, seed=seed)
        joint = Residues(read_levels(observed, p - 1)).estimate(intensity)
        found.append(joint.of(scores)[0])
    covariance = joint.of(scores)[1]
    truth = scores @ intensity[1:]
    sd = np.sqrt(np.diag(covariance))
    assert np.abs(np.mean(found, axis=0) - truth).max() <= 5 * sd.max() / math.sqrt(runs)
    # five standard deviations of the standard deviation of 400 normal numbers
    assert np.std(found, axis=0) == pytest.approx(sd, rel=5 / math.sqrt(2 * runs))
    correlation = covariance / np.outer(sd, sd)
    assert np.corrcoef(np.transpose(found)) == pytest.approx(correlation, abs=5 / math.sqrt(runs))


def test_levels_with_uniform_residues_have_no_weight():
    p = 32
    intensity = np.append(0.0, np.full(p - 1, 1000.0))
    data = Residues(read_levels(published(np.ones(50, np.int64), slots=1 << 11, levels=8), p - 1))
    weight = data.weights(intensity)
    assert weight[0] < 1e-6 < 0.1 < weight[-1]


def test_an_unknown_number_of_items_has_no_upper_end_anywhere():
    """So noisy that no number is too large: the ends are infinite, and null in JSON."""
    rng = np.random.default_rng(5)
    profile = reconstruct(
        [published(rng.integers(1, 9, 40), slots=128, levels=2, epsilon="1/20", cost="1/20")], max_count=31
    )
    assert profile.distinct.low <= 40
    said = profile.to_dict()
    for name in ("distinct", "total", "mean", "entropy"):
        assert said[name]["high"] is None, name
    for k in ("1", "2", "5", "10"):
        assert said["at_least"][k]["high"] is None
    assert (said["one_hit_ratio"]["low"], said["one_hit_ratio"]["high"]) == (0.0, 1.0)
    assert "unknown" in profile.covers
    for text in (profile.to_json(), profile.to_csv(), str(profile), profile._repr_html_()):
        assert "nan" not in text.lower()


def test_parts_with_unequal_loads_are_read_each_by_its_own():
    rng = np.random.default_rng(6)
    parts = [published(rng.integers(1, 12, size), seed=size) for size in (500, 4_000)]
    found = reconstruct(parts, max_count=31).interval("distinct", 0.9999)
    assert found.low <= 4_500 <= found.high


def test_a_crowd_that_no_level_can_tell_is_refused():
    observed = published(np.random.default_rng(7).integers(1, 32, 400_000))
    with pytest.raises(EstimateError, match="take more slots or more levels"):
        reconstruct([observed], max_count=31)
