"""The likelihood estimator: its derivatives, its folds, its agreement with slow twins, and that it beats circulant."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from helpers import estimates_reference as reference
from sketchstream.kinds.profile.estimate.baselines import circulant
from sketchstream.kinds.profile.estimate.likelihood import channels, kernels, smooth
from sketchstream.kinds.profile.estimate.likelihood.grid import EXACT, Grid, of_release, of_state, refine
from sketchstream.kinds.profile.estimate.likelihood.pooled import Pooled
from sketchstream.kinds.profile.estimate.likelihood.problem import Markov, split, thin
from sketchstream.kinds.profile.estimate.likelihood.published_counts import PublishedCounts
from sketchstream.kinds.profile.estimate.simulate import hash_counts, publish
from sketchstream.kinds.profile.reconstruction import reconstruct

FORMS = ("state", "cumulative", "bins")
KINDS = [*FORMS, "wide", "layers", "item", "parts"]


def slots(size=4000, seed=0):
    return np.concatenate(
        [np.zeros(size, dtype=np.int64), np.random.default_rng(seed).geometric(0.3, size).clip(max=20)]
    )


def problems():
    h = slots()
    rng = np.random.default_rng(1)
    for form in FORMS:
        yield form, channels.likelihood([publish([h], epsilon=1, rng=rng, form=form, max_count=20)], 20)[0]
    wide = np.concatenate([h, np.full(500, 60)])
    yield "wide", channels.likelihood([publish([wide], epsilon=1, rng=rng, form="bins", max_count=60)], 60)[0]
    yield (
        "layers",
        channels.likelihood([publish([h], epsilon=1, rng=rng, form="cumulative", layers=2, max_count=20)], 20)[0],
    )
    item = publish([h.clip(max=15)], epsilon=2, rng=rng, form="bins", unit="item", modulus=16)
    yield "item", channels.likelihood([item], 15)[0]
    parts = [publish([h], epsilon=e, rng=rng, form="cumulative", max_count=20) for e in ("1", "1/2")]
    yield "parts", channels.likelihood(parts, 20)[0]


@pytest.mark.parametrize("name", KINDS)
def test_ratio_is_the_gradient_of_the_likelihood(name):
    problem = dict(problems())[name]
    rng = np.random.default_rng(2)
    f = 0.5 * rng.dirichlet(np.ones(problem.m)) + 0.5 / problem.m
    f[0] += 1.0
    f /= f.sum()
    _, ratio, _ = problem.score(f)
    for _ in range(5):
        move = rng.normal(size=f.size) * f
        move -= f * move.sum()
        size = 1e-5
        up, down = problem.value(f + size * move), problem.value(f - size * move)
        assert (up - down) / (2 * size) == pytest.approx(float(move @ (ratio - problem.d)), rel=1e-3, abs=0.05), name


@pytest.mark.parametrize("name", KINDS)
def test_an_em_step_never_lowers_the_likelihood(name):
    problem = dict(problems())[name]
    f = np.full(problem.m, 1.0 / problem.m)
    value = problem.value(f)
    for _ in range(20):
        f = problem.step(f)
        new = problem.value(f)
        assert new >= value - 1e-6 * abs(value), name
        assert f.sum() == pytest.approx(1.0)
        value = new


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_kernel_on_unit_cells_is_exact(epsilon):
    m = 12
    grid = Grid(np.arange(m), np.ones(m, dtype=np.int64), np.ones(m))
    problem = Markov(grid, epsilon, PublishedCounts(kernels.EXACT, np.ones(m), float(m), 0.0, 0.0))
    reach = int(60 / epsilon)
    dense = reference.kernel(epsilon, np.arange(-reach, m + reach), np.arange(m))
    pooled = np.concatenate(
        [
            dense[: reach + 1].sum(axis=0)[None],
            dense[reach + 1 : reach + m - 1],
            dense[reach + m - 1 :].sum(axis=0)[None],
        ]
    )
    for j in range(m):
        f = np.zeros(m)
        f[j] = 1.0
        assert problem.v * problem.chances(f) == pytest.approx(pooled[:, j], rel=1e-9, abs=1e-15)


def test_wide_cells_keep_the_chances_of_staying_and_of_one_step():
    width = np.array([1, 1, 1, 2, 5, 9, 30, 100, 100, 1])
    low = np.concatenate([[0], np.cumsum(width)[:-1]])
    grid = Grid(low, width, np.ones(width.size))
    for epsilon in (0.1, 1.0):
        problem = Markov(grid, epsilon, PublishedCounts(kernels.EXACT, grid.h, 10.0, 0.0, 0.0))
        reach = int(60 / epsilon)
        dense = reference.kernel(epsilon, np.arange(-reach, low[-1] + reach), np.arange(low[-1] + 1))
        index = np.clip(np.searchsorted(low, np.arange(-reach, low[-1] + reach), side="right") - 1, 0, width.size - 1)
        for j in range(width.size):
            inside = dense[:, low[j] : low[j] + width[j]].mean(axis=1)
            wanted = np.bincount(index, inside, width.size)
            f = np.zeros(width.size)
            f[j] = 1.0
            found = problem.v * problem.chances(f)
            assert found.sum() == pytest.approx(1.0)
            near = slice(max(j - 1, 0), j + 2)
            assert found[near] == pytest.approx(wanted[near], rel=0.18, abs=0.02)


def test_newton_path_and_fixed_point_reach_the_same_maximum():
    h = slots(2000)
    seen = publish([h], epsilon=1, rng=np.random.default_rng(3), form="cumulative", max_count=12)
    fast, grid = channels.likelihood([seen], 12)
    slow = channels.Composite(grid, [channels._layered_channel(seen, grid)])
    flat = grid.width / grid.width.sum()
    taus = np.full((1, fast.m), 50.0)
    one = fast.path(flat, taus, flat, 1e-10)[0]
    two = slow.path(flat, taus, flat, 1e-10)[0]
    assert one == pytest.approx(two, abs=2e-3)


def test_bins_of_one_count_each_are_the_same_seen_as_wide_ones():
    grid = Grid(np.arange(12), np.ones(12, dtype=np.int64), np.zeros(12))
    rng = np.random.default_rng(3)
    f = rng.dirichlet(np.ones(12))
    seen = PublishedCounts(kernels.BINS, rng.poisson(3000 * f) + rng.normal(0.0, 3.0, 12), 3000.0, math.exp(-0.5), 1.0)
    one, two = Markov(grid, 1.0, seen), Pooled(grid, 1.0, seen)
    for a, b in zip(one.score(f), two.score(f), strict=True):
        assert a == pytest.approx(b)
    columns = rng.normal(size=(12, 3))
    mu = one.score(f)[2]
    assert one.rows(f, mu, columns, f @ columns) == pytest.approx(two.rows(f, mu, columns, f @ columns))
    taus = 3000.0 * np.array([1.0, 1e-2, 1e-5])[:, None] * np.ones(12)
    flat = np.full(12, 1 / 12)
    fast, dense = one.path(flat, taus, flat, 1e-10), two.path(flat, taus, flat, 1e-10)
    assert fast == pytest.approx(dense, abs=2e-5)


def test_wide_bins_are_the_sums_of_the_nodes_in_them():
    coarse = Grid(np.array([0, 1, 2, 4, 8]), np.array([1, 1, 2, 4, 1000]), np.zeros(5))
    grid = refine(coarse, 600)
    assert np.array_equal(np.diff(grid.low), grid.width[:-1])
    assert grid.low[-1] + grid.width[-1] == 1008
    assert np.array_equal(grid.low[grid.first], coarse.low)
    assert 600 in grid.low[grid.width == 1]
    f = np.random.default_rng(4).dirichlet(np.ones(grid.low.size))
    seen = PublishedCounts(kernels.BINS, np.ones(5), 100.0, 0.5, 1.0)
    nodes = 100.0 * Markov(grid, 0.5, seen).v * Markov(grid, 0.5, seen).chances(f)
    assert Pooled(grid, 0.5, seen).expected(f) == pytest.approx(np.bincount(grid.cell, nodes))
    atoms = grid.gathered(f, 600)
    assert np.bincount(grid.cell, atoms) == pytest.approx(np.bincount(grid.cell, f))
    top = int(np.searchsorted(grid.low, 600))
    middle = [round(float(np.average(i, weights=f[i]))) for i in (np.array([2, 3]), np.array([4, 5, 6, 7]))]
    assert np.flatnonzero(atoms).tolist() == [0, 1, *middle, top]


def test_the_path_in_wide_bins_ends_at_the_unrestricted_maximum_over_their_shares():
    problem = dict(problems())["wide"]
    flat = np.full(problem.m, 1.0 / problem.m)
    taus = problem.d * np.power(10.0, np.arange(0.0, -8.25, -0.5))[:, None] * np.ones(problem.m)
    path = problem.path(flat, taus, flat)
    best = path[-1] / path[-1].sum()
    f, whole = flat, problem.bin
    for _ in range(3000):  # EM over the shares of the bins, even inside them
        share = np.bincount(whole, problem.step(f))
        f = (share / np.bincount(whole))[whole]
    assert problem.value(best) >= problem.value(f) - 0.05
    assert problem.value(path[0] / path[0].sum()) < problem.value(best) - 10.0


@pytest.mark.parametrize("epsilon", ["0.25", "1", "2"])
def test_bins_find_a_spike_at_the_largest_count_inside_a_wide_bin(epsilon):
    h = np.concatenate([np.zeros(20_000, dtype=np.int64), np.random.default_rng(10).zipf(1.3, 20_000).clip(max=300)])
    truth = np.bincount(h, minlength=301) / h.size
    assert truth[300] > 0.05
    for seed in range(2):
        seen = publish([h], epsilon=epsilon, rng=np.random.default_rng(seed), form="bins", max_count=300)
        p = reconstruct([seen], max_count=300)
        assert p.fractions[300] + p.above.value == pytest.approx(truth[300], abs=0.1 * truth[300])
        assert p.fractions[280:300].sum() == pytest.approx(truth[280:300].sum(), abs=0.1 * truth[300])


@pytest.mark.parametrize(("epsilon", "limit"), [("0.1", 0.1), ("2", 0.01)])
def test_bins_find_spikes_anywhere_inside_wide_bins(epsilon, limit):
    h = np.random.default_rng(16).choice([1, 5, 20, 100], 60_000)  # 100 lies in the bin 91..101
    seen = publish([h], epsilon=epsilon, rng=np.random.default_rng(17), form="bins", max_count=300)
    p = reconstruct([seen], max_count=300)
    assert np.abs(p.fractions - np.bincount(h, minlength=301) / h.size).sum() < limit


def test_unrestricted_maximum_matches_thousands_of_em_steps():
    h = slots(1500, 4).clip(max=8)
    seen = publish([h], epsilon=1, rng=np.random.default_rng(5))
    problem, grid = channels.likelihood([seen], 8)
    flat = np.full(problem.m, 1.0 / problem.m)
    taus = problem.d * np.power(10.0, np.arange(0.0, -8.25, -0.5))[:, None] * np.ones(problem.m)
    best = problem.path(flat, taus, flat)[-1]
    counters = np.arange(-40, grid.low[-1] + 41)
    g = np.bincount(seen.edges + 40, seen.values[0], counters.size)[: counters.size]
    slow = reference.em(g / g.sum(), reference.kernel(1.0, counters, grid.low), 5000)
    assert problem.value(best) >= problem.value(np.maximum(slow, 1e-300)) - 0.05


def test_folds_split_slots_as_drawing_without_replacement():
    rng = np.random.default_rng(6)
    whole = np.array([50, 30, 15, 5])
    draws = np.array([split(whole, 5, rng)[0] for _ in range(4000)])
    assert draws.mean(axis=0) == pytest.approx(whole / 5, abs=0.15)
    n, size = whole.sum(), 20
    variance = size * whole / n * (1 - whole / n) * (n - size) / (n - 1)
    assert draws.var(axis=0) == pytest.approx(variance, rel=0.12)
    parts = split(whole, 5, rng)
    assert np.array_equal(sum(parts), whole)


def test_a_last_cell_of_several_published_ones_has_the_noise_of_all():
    """The saddlepoint and the information, against Phi minimised by scipy, and against the matrix written out."""
    mu, h = np.array([500.0, 300, 120, 50, 20, 10]), np.array([523.0, 262, 127, 61, 8, 31])
    d, q, copies = 1000.0, math.exp(-0.5), np.array([1.0, 1, 1, 1, 1, 40])

    def phi(at):
        s = at[:6] - at[6]
        cumulant = 2 * math.log1p(-q) - np.log(np.maximum(1 + q * q - 2 * q * np.cosh(s), 1e-300))
        return mu @ np.expm1(at[:6]) - h @ at[:6] + (h.sum() - d) * at[6] + copies @ cumulant

    y, z = np.zeros(6), np.zeros(1)
    value = kernels.saddlepoint(kernels.BINS, mu, h, y, z, d, q, 1.0, np.zeros((5, 6)), 40.0)
    found = minimize(phi, np.zeros(7), method="Nelder-Mead", options={"maxiter": 40_000, "fatol": 1e-12, "xatol": 1e-9})
    assert value == pytest.approx(found.fun, abs=1e-6)
    assert y == pytest.approx(found.x[:6], abs=1e-4)
    columns = np.random.default_rng(5).normal(size=(6, 2))
    noise = 2 * q / (1 - q) ** 2
    whole, tail = columns.copy(), np.zeros(2)
    kernels.settle_rows(kernels.BINS, mu, noise, d, whole, tail, 40.0)
    spread = np.diag(mu + noise * copies) - np.outer(mu, mu) / mu.sum()
    wanted = columns.T @ np.linalg.solve(spread, columns)
    assert whole.T @ whole + np.outer(tail, tail) == pytest.approx(wanted)
    pilot = np.array([600.0, 250, 100, 50])
    seen, rng = PublishedCounts(kernels.BINS, pilot, 1000.0, q, 1.0, 40.0), np.random.default_rng(8)
    held = [thin(seen, pilot, 5, rng)[0][1].h[-1] for _ in range(2000)]
    assert np.var(held) == pytest.approx(40 * noise / 5 * (1 - 1 / 5) + 200 * 0.05 * 0.95 * 800 / 999, rel=0.2)


@pytest.mark.parametrize("form", [kernels.CUMULATIVE, kernels.BINS])
def test_folds_of_noisy_data_have_the_mean_and_variance_of_thinned_data(form):
    rng = np.random.default_rng(7)
    pilot, q = np.array([600.0, 250, 100, 50]), math.exp(-0.5)
    h = pilot + np.array([3.0, -4, 2, -1])
    seen = PublishedCounts(form, h, 1000.0, q, 1.0)
    tests, trains = [], []
    for _ in range(3000):
        train, test = thin(seen, pilot, 5, rng)[0]
        assert train.h + test.h == pytest.approx(h)
        assert train.d + test.d == 1000.0
        tests.append(test.h)
        trains.append(train.h)
    assert np.mean(tests, axis=0) == pytest.approx(h / 5, abs=0.5)
    v = seen.variance / 5 * (1 - 1 / 5)
    noise = v * (np.array([1, 2, 2, 1]) if form == kernels.CUMULATIVE else 1)
    binomial = 200 * pilot / 1000 * (1 - pilot / 1000) * 800 / 999
    assert np.var(tests, axis=0) == pytest.approx(binomial + noise, rel=0.15)


def test_knots_rise_from_0_to_the_top():
    for top in (8.0, 300.0, 1e6):
        for epsilon in (0.1, 1.0, 5.0):
            at = smooth.knots(top, epsilon)
            assert (at[0], at[-1]) == (0.0, top)
            assert (np.diff(at) >= 0.5).all()
            assert at.size < 150


def test_grid_of_a_state_covers_every_counter_and_stays_fine_at_spikes():
    rng = np.random.default_rng(8)
    h = np.concatenate([np.zeros(50_000, dtype=np.int64), np.full(50_000, 5000), rng.zipf(1.5, 2000).clip(max=10**6)])
    cells = publish([h], epsilon="0.1", rng=rng).cells()
    grid = of_state(cells, 0.1)
    assert np.array_equal(grid.low[: EXACT + 1], np.arange(EXACT + 1))
    assert np.array_equal(grid.low[1:], grid.low[:-1] + grid.width[:-1])
    assert grid.h.sum() == h.size
    near = (grid.low > 4950) & (grid.low < 5050)
    assert (grid.width[near] == 1).all()
    assert grid.low.size < 6000


def test_far_cells_with_nothing_but_noise_are_left_out():
    seen = publish([slots()], epsilon=1, rng=np.random.default_rng(9), form="cumulative", max_count=40)
    assert of_release(seen.cells()).low[-1] < 80
    heavy = np.concatenate([slots(), np.full(200, 100_000)])
    seen = publish([heavy], epsilon=1, rng=np.random.default_rng(9), form="cumulative", max_count=40)
    last = of_release(seen.cells())
    assert last.low[-1] <= 100_000 < last.low[-1] + last.width[-1] * 1.2
    assert reconstruct([seen], max_count=40).total.value == pytest.approx(heavy.sum(), rel=0.1)


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1", "2"])
def test_likelihood_beats_the_seed_naive_and_monotone_on_a_smooth_tail(epsilon):
    h = np.concatenate([np.zeros(20_000, dtype=np.int64), np.random.default_rng(10).zipf(1.6, 20_000).clip(max=200)])
    truth = np.bincount(h, minlength=201) / h.size
    errors = {"likelihood": [], "monotone": [], "circulant": []}
    for seed in range(3):
        seen = publish([h], epsilon=epsilon, rng=np.random.default_rng(seed))
        for method, values in errors.items():
            p = reconstruct([seen], method=method, max_count=200)
            f = np.array(p.fractions)
            f[-1] += p.above.value
            values.append((np.abs(f - truth).sum(), np.abs(np.cumsum(f - truth)).sum()))
    mean = {method: np.mean(values, axis=0) for method, values in errors.items()}
    assert mean["likelihood"][0] < 0.9 * mean["circulant"][0]
    assert mean["likelihood"][1] < 0.9 * mean["monotone"][1]


def test_parts_of_different_epsilon_are_used_together():
    h = slots(8000)
    rng = np.random.default_rng(11)
    halves = [rng.permutation(h)[:8000], rng.permutation(h)[:8000]]
    truth = np.mean([np.bincount(x, minlength=31) / 8000 for x in halves], axis=0)
    parts = [
        publish([x], epsilon=e, rng=rng, form="cumulative", max_count=30)
        for x, e in zip(halves, ("1", "1/2"), strict=True)
    ]
    p = reconstruct(parts, max_count=30)
    assert np.abs(p.fractions - truth).sum() < 0.12
    assert p.distinct.low <= 16_000 * (1 - truth[0]) <= p.distinct.high


def test_parts_of_different_populations_keep_their_own_laws():
    rng = np.random.default_rng(12)
    one, two = np.full(5000, 3), np.zeros(5000, dtype=np.int64)
    parts = [publish([one], epsilon=1, rng=rng), publish([two], epsilon="1/2", rng=rng)]
    p = reconstruct(parts, max_count=10)
    assert p.fractions[0] == pytest.approx(0.5, abs=0.02)
    assert p.fractions[3] == pytest.approx(0.5, abs=0.02)


def test_merged_states_are_inverted_through_every_layer():
    h = slots(20_000)
    truth = np.bincount(h, minlength=31) / h.size
    p = reconstruct([publish([h], epsilon=2, rng=np.random.default_rng(13), layers=3)], max_count=30)
    assert np.abs(p.fractions - truth).sum() < 0.1


@pytest.mark.statistics
@pytest.mark.parametrize(("items", "limit"), [(20_000, 0.02), (200_000, 0.012)])
def test_open_domains_count_distinct_items_within_the_limit(items, limit):
    rng = np.random.default_rng(14)
    errors = []
    for _ in range(12):
        counts = rng.geometric(0.4, items)
        seen = publish(
            hash_counts(counts, 1 << 18, 8, rng), epsilon=1, rng=rng, form="cumulative", open_domain=True, max_count=30
        )
        errors.append(reconstruct([seen], max_count=30).distinct.value / items - 1)
    assert math.sqrt(np.mean(np.square(errors))) < limit


@pytest.mark.statistics
def test_open_domain_profile_is_close_item_by_item():
    rng = np.random.default_rng(15)
    counts = rng.geometric(0.4, 100_000)
    truth = np.bincount(counts, minlength=31)[:31] / counts.size
    for form in FORMS:
        seen = publish(
            hash_counts(counts, 1 << 18, 8, rng), epsilon=1, rng=rng, form=form, open_domain=True, max_count=30
        )
        p = reconstruct([seen], max_count=30)
        assert np.abs(p.fractions - truth).sum() < 0.12, form


def test_truncation_of_the_seed_is_refused_when_it_cannot_be_inverted():
    from sketchstream.errors import EstimateError

    with pytest.raises(EstimateError, match="not invertible"):
        circulant.eigenvalues(0.1, 5, 10)


@pytest.mark.parametrize(("top", "epsilon"), [(20.0, 1.0), (1000.0, 0.3), (3.0, 2.0)])
def test_splines_are_those_of_scipy(top, epsilon):
    from scipy.interpolate import BSpline

    at = np.log1p(smooth.knots(top, epsilon))
    t = np.concatenate([np.repeat(at[0], 3), at, np.repeat(at[-1], 3)])
    x = np.clip(np.log1p(np.linspace(0, top, 300)), at[0], at[-1])
    found = smooth.b_splines(t, x)
    assert np.allclose(found, BSpline.design_matrix(x, t, 3).toarray(), atol=1e-14)
    second = np.stack([BSpline(t, one, 3).derivative(2)(x) for one in np.eye(found.shape[1])], axis=1)
    assert np.allclose(smooth.b_splines(t, x, derivative=2), second, atol=1e-12 * abs(second).max())
