"""K+ intervals: their ends never rise, they hold their estimates inside, and they cover as they did."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from sketchstream.kinds.estimates import normal_quantile
from sketchstream.kinds.profile.estimate import laws
from sketchstream.kinds.profile.estimate.fit import Fit, tails, with_tails
from sketchstream.kinds.profile.estimate.intervals.bounds import closed_domain_bands
from sketchstream.kinds.profile.estimate.linear.line import Line
from sketchstream.kinds.profile.estimate.linear.wide import transition_matrix, undone_bins
from sketchstream.kinds.profile.estimate.open_domain.collisions import read_part
from sketchstream.kinds.profile.estimate.open_domain.slices import linearise_at, window_variances
from sketchstream.kinds.profile.estimate.simulate import hash_counts, publish
from sketchstream.kinds.profile.estimate.uncertainty.bands import Band, decreasing
from sketchstream.kinds.profile.estimate.uncertainty.monotone_tails import (
    CHOSEN,
    WIDTHS,
    MonotoneTails,
    clip_inside,
    monotone_ends,
    ratios,
    widen_to_contain,
    window_means,
)
from sketchstream.kinds.profile.reconstruction import reconstruct

Z = normal_quantile(0.95)
RNG = np.random.default_rng(40)
COUNTS = {
    "geometric": RNG.geometric(0.4, 3000),
    "zipf": np.minimum(RNG.zipf(1.5, 3000), 10**6),
    "spikes": RNG.choice([1, 2, 10, 25, 300], 3000),
    "none": np.zeros(0, np.int64),
}


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e3)), min_size=1, max_size=60),
    st.booleans(),
)
def test_non_increasing_fits_are_those_of_scipy(pairs, weighted):
    y, weights = np.array(pairs).T
    chosen = weights if weighted else None
    found = decreasing(y, chosen)
    assert (np.diff(found) <= 0).all()
    np.testing.assert_allclose(found, isotonic_regression(y, weights=chosen, increasing=False).x, rtol=1e-9, atol=1e-6)


def domain(counts, zeros=3000):
    return np.concatenate([np.zeros(zeros, np.int64), counts])


@pytest.mark.parametrize(
    "method", [pytest.param("likelihood", marks=pytest.mark.statistics), "monotone", "inverse", "circulant"]
)
@pytest.mark.parametrize("form", ["state", "cumulative", "bins"])
@pytest.mark.parametrize("counts", COUNTS)
def test_ends_never_rise_and_estimates_lie_inside(counts, form, method):
    rng = np.random.default_rng(41)
    for unit, is_open in itertools.product(("event", "item"), (False, True)):
        if (unit == "item" and form == "cumulative") or (method == "circulant" and (unit == "item" or is_open)):
            continue
        held = np.minimum(COUNTS[counts], 14) if unit == "item" else COUNTS[counts]
        slots = hash_counts(held, 4096, 2, rng) if is_open else [domain(held)]
        options = {"modulus": 16} if unit == "item" else {"max_count": 30}
        seen = publish(slots, epsilon="0.5", rng=rng, form=form, unit=unit, open_domain=is_open, **options)
        profile = reconstruct([seen], method=method, max_count=15 if unit == "item" else 30)
        most = np.inf if is_open else 6000.0
        for level in (0.5, 0.95, 0.999):
            value, low, high = profile.tail_ends(normal_quantile(level))[1:].T
            assert (low[1:] <= low[:-1]).all(), (unit, is_open, level)
            assert (high[1:] <= high[:-1]).all(), (unit, is_open, level)  # infinite where nothing tells
            assert (low >= 0).all()
            assert (high <= most).all()
            assert ((low < value) | (value <= 0)).all(), "inside, unless at a bound of the possible"
            known = profile._known.tails.band.variance[1:] <= 0  # no item has a count beyond its modulus
            assert ((value < high) | (value >= most) | known).all()
        if method in ("likelihood", "monotone"):  # the others' numbers are signed: each as the noise has left it
            for k in range(1, profile.max_count + 1):
                assert profile.exactly(k).high <= profile.at_least(k).high, "a part is no more than the whole"


def test_ends_that_hold_a_falling_truth_still_hold_it_where_no_window_is_used():
    rng = np.random.default_rng(42)
    for _ in range(300):
        truth = np.sort(rng.exponential(size=20))[::-1]
        low, high = truth - rng.exponential(size=20), truth + rng.exponential(size=20)
        middle = (low + high) / 2.0
        below, above = monotone_ends(middle, middle, low, high, (low, high), {})
        assert (below <= truth + 1e-12).all()
        assert (above >= truth - 1e-12).all()
        assert (np.diff(below) <= 1e-12).all()


@given(
    st.lists(st.tuples(*[st.floats(0.0, 50.0)] * 3), min_size=1, max_size=30),
    st.sampled_from([60.0, np.inf]),
)
def test_estimates_moved_between_ends_fall_and_leave_the_ends_alone(numbers, most):
    """Where ends are far enough apart; else only a twentieth of a half width is missing."""
    value, down, up = np.sort(np.array(numbers), axis=0)[::-1].T
    low, high = np.minimum(value, down) * 0.9, np.maximum(value, up) * 1.1 + 1.0
    way = np.full(low.size, float((high - low).min()) / 2.0)
    for start in (value, value + 30.0, value * 0.3):
        found = clip_inside(start, low, high, way, most)
        assert (np.diff(found) <= 0.0).all()
        kept = widen_to_contain(found, low, high, way, most)
        assert kept[0] == pytest.approx(np.minimum(low, most))
        assert kept[1] == pytest.approx(np.minimum(high, most))
    inside = clip_inside(value, low, high, way, most)
    far = (value >= low + way) & (value <= high - way) & (value < most)
    assert np.array_equal(inside[far], value[far])


def test_a_law_with_other_k_plus_numbers_has_them():
    for fit in (
        Fit(np.array([0.5, 0.2, 0.2]), np.array([5.0, 9.0]), np.array([0.06, 0.04])),
        Fit(np.array([0.5, 0.3, 0.2]), np.zeros(0), np.zeros(0)),
    ):
        for wanted in ([100.0, 40.0, 30.0, 20.0], [100.0, 40.0, 30.0, 0.0]):
            moved = with_tails(fit, np.array(wanted), 100.0)
            assert tails(moved, 100.0) == pytest.approx(wanted)
            assert float(moved.fractions.sum()) + moved.above == pytest.approx(1.0)


@pytest.mark.statistics
def test_intervals_of_the_likelihood_are_not_widened_to_hold_its_estimates():
    rng = np.random.default_rng(45)
    for seed, weight in enumerate((2, 2, 5)):
        counts = np.minimum(np.random.default_rng(seed).zipf(1.5, 2000), 4000)
        seen = publish(hash_counts(counts, 4096, 2, rng), epsilon=2, rng=rng, max_count=100, max_weight=weight,
                       form="bins", open_domain=True)  # fmt: skip
        profile = reconstruct([seen], max_count=100)
        low, high, _ = profile._known.tails.ends_and_ways(Z)
        value, least, most = profile.tail_ends(Z).T
        assert least[1:] == pytest.approx(np.maximum(low, 0.0)[1:])
        assert most[1:] == pytest.approx(high[1:])
        assert value == pytest.approx(tails(Fit(profile.fractions, profile._fit.heavy, profile._fit.heavy_shares),
                                            profile.distinct.value))  # fmt: skip


@pytest.mark.parametrize("form", ["state", "cumulative", "bins"])
@pytest.mark.parametrize("is_open", [False, True])
def test_intervals_of_larger_levels_hold_those_of_smaller_ones(form, is_open):
    """Windows were chosen anew at each level: some ends of 80% lay within those of 50%."""
    for seed in range(6):
        rng = np.random.default_rng([48, seed])
        counts = rng.geometric(0.4, 60)
        slots = hash_counts(counts, 1024, 2, rng) if is_open else [domain(counts, 60)]
        seen = publish(slots, epsilon="0.5", rng=rng, form=form, max_count=30, open_domain=is_open, grouped=True)
        profile = reconstruct([seen], method="inverse", max_count=30)
        inner = None
        for level in (0.3, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999):
            _, least, most = profile.tail_ends(normal_quantile(level)).T
            if inner is not None:
                assert (least <= inner[0] + 1e-9).all(), (seed, level)
                assert (most >= inner[1] - 1e-9).all(), (seed, level)
            inner = least, most


def test_windows_are_chosen_at_the_usual_level_so_that_its_ends_are_computed_once():
    assert normal_quantile(0.95) == CHOSEN


class Endless(Band):
    """Without upper ends from 80% on, as of crowded slots."""

    def ends(self, z):
        low, high = super().ends(z)
        return low, high if z < normal_quantile(0.8) else np.full_like(high, np.inf)


def test_levels_at_which_ends_are_finite_choose_windows_where_they_are_not_at_the_usual_level():
    band = Endless(np.array([9.0, 9.0, 5.0, 6.0]), np.array([9.0, 9.0, 5.0, 6.0]), np.ones(4))
    falling = MonotoneTails(band, {2: np.array([0.3, 0.3])}, limited=True)
    for level in (0.5, 0.95):
        low, high = falling.ends(normal_quantile(level))
        assert np.isfinite(low).all()
        assert np.isfinite(high).all() == (level == 0.5)


def test_no_number_of_an_open_domain_ends_above_that_of_all_items():
    band = Band(np.array([5.0, 5.0, 9.0]), np.array([5.0, 5.0, 9.0]), np.ones(3))
    assert MonotoneTails(band, {}).ends(1.0)[1][2] > 6.0
    assert (MonotoneTails(band, {}, limited=True).ends(1.0)[1] <= 6.0).all()


@pytest.mark.statistics
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("form", ["state", "cumulative", "bins"])
def test_variances_of_window_means_are_what_they_are(form, layers):
    rng = np.random.default_rng(43)
    h = domain(rng.geometric(0.3, 400).clip(max=15), 600)
    means, claimed = {width: [] for width in WIDTHS}, {width: [] for width in WIDTHS}
    for _ in range(500):
        line = Line(publish([h], epsilon=1, rng=rng, form=form, layers=layers, max_count=60, grouped=True))
        n = min(line.resolved, 20) - 1
        share = line.tails(n).low[1:]
        for width, variance in line.window_variances(n).items():
            means[width].append(window_means(share, width))
            claimed[width].append(variance)
    checked = 0
    for width in WIDTHS:
        if means[width] and len(means[width][0]):
            ratio = np.mean(claimed[width], axis=0) / np.var(means[width], axis=0)
            assert ratio == pytest.approx(np.ones(ratio.size), abs=0.3), width
            checked += 1
    assert checked >= 7


@pytest.mark.statistics
def test_windows_of_open_domains_vary_as_much_less_as_they_say():
    rng = np.random.default_rng(44)
    items = rng.geometric(0.3, 3000)
    tails, expected = [], {width: [] for width in WIDTHS}
    for _ in range(120):
        seen = publish(
            hash_counts(items, 8192, 2, rng),
            epsilon=1,
            rng=rng,
            form="cumulative",
            max_count=30,
            open_domain=True,
            grouped=True,
        )
        part = read_part(seen, 32)
        found = linearise_at(part.levels, part.model)
        tails.append(found.values[1][:31])
        windows = window_variances(part.levels, part.model, 31)
        for width, ratio in ratios(found.variances[1][:31], windows).items():
            expected[width].append(ratio)
    deviation = np.std(tails, axis=0)
    for width in (2, 4, 8):
        own = np.std([window_means(one, width) for one in tails], axis=0) / window_means(deviation, width)
        assert np.mean(expected[width], axis=0) == pytest.approx(own, abs=0.2), width


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("counts", "form", "narrower"),
    [
        ("geometric", "cumulative", 0.85),
        ("spikes", "cumulative", 0.6),
        ("geometric", "bins", 0.95),
    ],
)
def test_they_cover_at_every_k_and_are_narrower_where_noise_alternates(counts, form, narrower):
    """Beyond the last single count too: there bins were read as if counters had no noise, and no truth was held."""
    rng, h = np.random.default_rng(45), domain(np.repeat(COUNTS[counts], 4), 12_000)
    truth = np.array([(h >= k).sum() for k in range(1, 32)])
    runs, hits, widths = 200, np.zeros(31), np.zeros(2)
    for _ in range(runs):
        tails = closed_domain_bands(
            [publish([h], epsilon="0.25", rng=rng, form=form, max_count=30, grouped=True)], 30
        ).tails
        low, high = (end[1:].clip(0, h.size) for end in tails.ends(Z))
        hits += (low <= truth) & (truth <= high)
        alone = [end[1:].clip(0, h.size) for end in tails.band.ends(Z)]
        widths += (high - low).sum(), (alone[1] - alone[0]).sum()
    assert (hits / runs).min() >= 0.9
    assert (hits / runs).mean() >= 0.95
    assert widths[0] <= narrower * widths[1]


@pytest.mark.parametrize("epsilons", [[0.25], [1.0], [0.5, 0.7], [1.0, 1.0, 1.0]])
def test_chances_to_be_seen_in_another_bin_are_sums_over_the_noise(epsilons):
    low = np.array([17, 18, 19, 20, 22, 24, 27, 30, 33, 400, 10**9])
    high = np.append(low[1:] - 1, 1 << 62)
    found = transition_matrix(low, high, epsilons)
    reach = laws.radius(epsilons, 1e-13)
    law, shift = laws.noise_pmf(epsilons, reach), np.arange(-reach, reach + 1)
    for i in (0, 3, 5, 8):
        row = np.zeros(low.size)
        for count in range(low[i], high[i] + 1):
            where = np.maximum(np.searchsorted(low, count + shift, side="right") - 1, 0)
            np.add.at(row, where, law / (high[i] - low[i] + 1))
        assert found[i] == pytest.approx(row, abs=1e-11)
    assert found.sum(axis=1) == pytest.approx(np.ones(low.size))


@pytest.mark.parametrize("epsilons", [[0.5], [1.0, 2.0]])
def test_bins_of_one_count_are_undone_by_the_stencil(epsilons):
    low = np.arange(30, 60)
    found = undone_bins(low, low, epsilons)
    k, taps = len(epsilons), laws.stencil(epsilons)
    for i in (12, 15):
        wanted = np.zeros(low.size)
        wanted[i - k : i + k + 1] = taps
        assert found[i] == pytest.approx(wanted, abs=1e-9)


@pytest.mark.statistics
@pytest.mark.parametrize("layers", [1, 2])
def test_counts_beyond_the_last_single_bin_are_told_from_the_noise_of_smaller_ones(layers):
    rng = np.random.default_rng(46)
    h = domain(np.minimum(rng.geometric(0.2, 4000), 40), 4000)
    edges = [21, 22, 24, 27, 30, 33]
    shares, variances = [], []
    for _ in range(150):
        line = Line(publish([h], epsilon="0.5", rng=rng, form="bins", max_count=30, layers=layers, grouped=True))
        edge, value, variance = line.edge_tails
        where = np.searchsorted(edge, edges[1:])
        shares.append(value[where])
        variances.append(variance[where])
    truth = np.array([(h >= k).mean() for k in edges[1:]])
    seen = np.std(shares, axis=0)
    claimed = np.mean(variances, axis=0) / seen**2
    assert ((claimed > 0.65) & (claimed < 1.8)).all(), claimed
    # counts are not spread quite evenly over a bin: a tenth of a standard deviation, and of what the noise alone adds
    assert (np.abs(np.mean(shares, axis=0) - truth) <= 0.3 * seen + 1e-6).all()
    assert (decreasing(truth) == truth).all()
