"""What noise hides of large counts: how much is taken to be there, and that thresholds limit it."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sketchstream.kinds.profile.estimate.intervals.bounds import Region, closed_domain_bands
from sketchstream.kinds.profile.estimate.linear.line import linear
from sketchstream.kinds.profile.estimate.linear.tail import Tail
from sketchstream.kinds.profile.estimate.open_domain.events import as_one_domain
from sketchstream.kinds.profile.estimate.simulate import hash_counts, publish
from sketchstream.kinds.profile.estimate.uncertainty.bands import Band, critical

Z = 1.96


def padded(counts, zeros):
    return np.append(np.zeros(zeros, dtype=np.int64), counts)


def zipf(exponent, most, size):
    return np.minimum(np.random.default_rng(17).zipf(exponent, size), most)


@pytest.mark.parametrize("width", [0.0, 0.01, 0.5, 3.0, 1e9])
def test_a_number_within_a_bracket_is_covered_as_often_as_a_point(width):
    normal, found = NormalDist(), float(critical(Z, np.array(width)))
    assert normal.cdf(found + width) - normal.cdf(-found) == pytest.approx(normal.cdf(Z) - normal.cdf(-Z), abs=1e-12)


def test_wide_brackets_take_the_one_sided_critical_value_and_points_the_other():
    low, high = Band(np.zeros(2), np.array([0.0, 1e6]), np.ones(2)).ends(Z)
    one_sided = NormalDist().inv_cdf(2.0 * NormalDist().cdf(Z) - 1.0)
    assert low == pytest.approx([-Z, -one_sided])
    assert high == pytest.approx([Z, 1e6 + one_sided])


def test_the_range_of_a_function_over_far_centres_takes_it_too():
    centres = np.array([[0.0, 0.0], [1e6, 0.0]])
    region = Region(centres, np.eye(2), lambda x, y: x + 0.0 * y)
    one_sided = NormalDist().inv_cdf(2.0 * NormalDist().cdf(Z) - 1.0)
    assert float(region.ends(Z)[0][0]) == pytest.approx(-one_sided, abs=1e-3)
    assert float(Region(centres[:1], np.eye(2), lambda x, y: x + 0.0 * y).ends(Z)[0][0]) == pytest.approx(-Z, abs=1e-3)


@pytest.mark.parametrize("far", [2_000, 300_000])
def test_thresholds_limit_the_largest_count_and_the_limit_holds(far):
    rng = np.random.default_rng(3)
    h = padded(np.append(rng.geometric(0.4, 2_000), [300, 500, 900, far]), 2_000)
    farthest = []
    for _ in range(200):
        tail = linear(publish([h], epsilon=1, rng=rng, form="cumulative", max_count=30)).tail
        room = tail._room(tail.clear, tail.most(tail.clear))
        farthest.append(room.farthest)
        assert room.events * h.size >= 0.0
    assert np.mean(np.array(farthest) >= far) >= 0.95
    assert np.median(farthest) <= 100 * far


def test_a_tail_that_shows_in_thresholds_leaves_the_total_open_by_a_small_factor_only():
    rng, counts = np.random.default_rng(4), zipf(2.0, 10**5, 20_000)
    h = padded(counts, 20_000)
    ends = [
        closed_domain_bands([publish([h], epsilon=1, rng=rng, form="cumulative", max_count=30)], 30)
        .scalars["total"]
        .ends(Z)
        for _ in range(20)
    ]
    low, high = np.array(ends)[:, :, 0].T
    assert np.mean((low <= counts.sum()) & (counts.sum() <= high)) >= 0.9
    assert np.median(high) <= 10 * counts.sum()


def test_a_heavy_tail_that_does_not_show_is_covered_where_the_counts_below_do_not_rule_it_out():
    rng, counts = np.random.default_rng(5), zipf(1.5, 10**4, 500)
    h = padded(counts, 500)
    hits = 0
    for _ in range(100):
        known = closed_domain_bands([publish([h], epsilon="0.25", rng=rng, form="bins", max_count=30)], 30)
        low, high = known.scalars["mean"].ends(Z)
        hits += low[0] <= counts.mean() <= high[0]
    assert hits >= 88


@pytest.mark.parametrize(("size", "epsilon"), [(2_000, "1"), (20_000, "0.25")])
def test_a_tail_that_does_not_show_goes_on_as_the_counts_below_fall(size, epsilon):
    """Zipf 2.2 in noisy bins: with nothing beyond the last bin that shows half of the means were covered."""
    rng, counts, runs = np.random.default_rng(9), np.random.default_rng(5).zipf(2.2, size).clip(1, 10**6), 80
    h, high = padded(counts, size), []
    for _ in range(runs):
        known = closed_domain_bands([publish([h], epsilon=epsilon, rng=rng, form="bins", max_count=30)], 30)
        high.append(known.scalars["mean"].ends(Z)[1][0])
    assert np.sum(np.array(high) < counts.mean()) <= 0.1 * runs
    assert np.quantile(high, 0.2) < 5 * counts.mean()


def test_light_counts_leave_little_room_beyond_the_last_bin_that_shows():
    rng = np.random.default_rng(8)
    counts = rng.geometric(0.6, 2_000)
    h, beyond = padded(counts, 2_000), []
    for _ in range(40):
        line = linear(publish([h], epsilon=2, rng=rng, form="bins", max_count=30))
        found = line.hidden(line.horizon)
        beyond.append(0.0 if found is None else found.events * line.d)
    assert np.median(beyond) < 0.01 * counts.sum()


def test_what_may_be_hidden_is_a_number_in_words():
    rng = np.random.default_rng(6)
    h = padded(rng.geometric(0.4, 20_000), 20_000)
    for resolved in (100, 300):
        light = closed_domain_bands([publish([h], epsilon=1, rng=rng, form="cumulative", max_count=resolved)], 30)
        assert "none is taken to be there, though up to" in light.covers
    few = closed_domain_bands([publish([padded(zipf(1.5, 10**4, 500), 500)], epsilon="0.25", rng=rng, form="bins")], 30)
    assert "cannot be told from noise" in few.covers
    assert "k+ numbers, shares and low quantiles do not hang on it" in few.covers


def test_light_counts_beyond_the_last_bin_that_shows_are_counted_in():
    """Levels of about two items a slot, each slot noisy: without it 78 in 100 totals were covered."""
    rng, runs = np.random.default_rng(7), 100
    counts = np.random.default_rng(17).geometric(0.4, 8_000)
    hits, hidden = 0, []
    for _ in range(runs):
        observed = publish(
            hash_counts(counts, 1 << 12, 4, rng), epsilon=1, rng=rng, form="bins", max_count=30, open_domain=True
        )
        whole = as_one_domain(observed, range(4))
        low, high = closed_domain_bands([whole], 30).scalars["total"].ends(Z)
        hits += low[0] <= counts.sum() <= high[0]
        line = linear(whole)
        if line.whole.low[line.horizon] < 40 and (found := line.hidden(line.horizon)) is not None:
            hidden.append(found.events * line.d)
    assert hits > 0.88 * runs
    assert np.median(hidden) < 0.2 * counts.sum()


@pytest.mark.parametrize("single", [True, False])
def test_shares_whose_estimated_variance_is_nothing_have_the_noise_of_what_was_published(single):
    edge = np.concatenate([np.arange(1, 31), np.geomspace(33, 10**6, 60).astype(np.int64)])
    noise = np.full(edge.size, 4e-6) if single else 1e-7 * np.arange(edge.size, 0, -1)
    below, spread = np.where(np.arange(20) < 4, 0.02, -1e-4), np.where(np.arange(20) < 4, 1e-5, -1e-9)
    tail = Tail(1e5, single, edge, np.zeros(edge.size), noise, below, spread, clear=32, blur=6.0)
    found = tail.hidden(tail.quiet)
    assert found is not None
    assert 0.0 < found.events < 1.0


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 200),
    empty=st.integers(0, 200),
    counts=st.sampled_from(["light", "heavy", "even", "one"]),
    epsilon=st.sampled_from(["0.02", "0.1", "1", "8"]),
    form=st.sampled_from(["cumulative", "bins"]),
    resolved=st.sampled_from([1, 5, 30, 400]),
    layers=st.integers(1, 3),
)
@example(seed=3, size=50, empty=100, counts="light", epsilon="0.02", form="cumulative", resolved=30, layers=3)
def test_totals_of_whatever_is_published_have_an_end(seed, size, empty, counts, epsilon, form, resolved, layers):
    """Three layers at epsilon 0.02 have variances of 10^22: sums of those and of small ones lost the small ones."""
    rng = np.random.default_rng(seed)
    draw = {
        "light": lambda: rng.geometric(0.4, size),
        "heavy": lambda: rng.zipf(1.5, size).clip(1, 10**6),
        "even": lambda: rng.integers(0, 100, size),
        "one": lambda: np.full(size, rng.integers(1, 1000)),
    }[counts]
    h = padded(draw(), empty)
    published = publish([h], epsilon=epsilon, rng=rng, form=form, max_count=resolved, layers=layers)
    low, high = closed_domain_bands([published], min(resolved, 30)).scalars["total"].ends(Z)
    assert np.isfinite(low).all()
    assert (low <= high).all()
    assert np.isfinite(high).all()
