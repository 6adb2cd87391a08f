"""Facts of the theory that hold exactly, or to the accuracy of many draws (docs/theory/profile.md)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from helpers import estimates_reference as reference
from sketchstream import noise
from sketchstream.kinds.profile.estimate import laws, simulate
from sketchstream.kinds.profile.estimate.baselines import circulant
from sketchstream.kinds.profile.estimate.intervals.bounds import identity, once, present, xlogx
from sketchstream.kinds.profile.estimate.linear import inverse
from sketchstream.kinds.profile.estimate.linear.line import Line
from sketchstream.kinds.profile.estimate.observed import UNBOUNDED, Cells, Observed
from sketchstream.kinds.profile.estimate.open_domain.laws import exp_series

EPSILONS = (0.1, 0.25, 0.5, 1.0, math.log(3), 2.0)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_stencil_undoes_the_noise_law(epsilon, layers):
    reach = int(40 * layers / epsilon)
    law = laws.noise_pmf([epsilon] * layers, reach)
    undone = np.convolve(law, laws.stencil([epsilon] * layers))[reach + layers - 5 : reach + layers + 6]
    assert undone == pytest.approx(np.eye(11)[5], abs=1e-9 * laws.gain([epsilon] * layers))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_eigenvalues_in_closed_form_are_those_of_the_matrix(epsilon):
    r = circulant.truncation(1000, epsilon, 0.05)
    n = 17
    column = reference.noise_circulant(epsilon, r, n)[:, 0]
    assert circulant.eigenvalues(epsilon, r, n) == pytest.approx(np.fft.rfft(column).real, abs=1e-12)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_norms_of_the_circulant_inverse_tend_to_coth_squared(epsilon):
    r = circulant.truncation(10**9, epsilon, 1e-3)
    lam = circulant.eigenvalues(epsilon, r, 20)
    first = np.fft.irfft(1.0 / lam, 2 * r + 21)
    limit = 1.0 / math.tanh(epsilon / 2) ** 2
    assert np.abs(first).sum() == pytest.approx(limit, rel=1e-6)
    assert 1.0 / lam.min() == pytest.approx(limit, rel=2e-2)


@pytest.mark.parametrize("epsilon", [0.25, 1.0])
def test_circle_and_line_agree_where_nothing_wraps(epsilon):
    rng = np.random.default_rng(1)
    x = rng.integers(40, 60, 5000) + simulate.laplace(rng, epsilon, 5000)
    p = 1 << 10
    g = np.bincount(x % p, minlength=p) / 5000
    line = np.convolve(g, laws.stencil([epsilon]), "same")
    assert reference.on_circle(g, [epsilon])[1:-1] == pytest.approx(line[1:-1], abs=1e-9)


def test_inverse_on_the_circle_undoes_wrapped_noise_exactly():
    for p in (7, 8, 33):
        f = np.random.default_rng(p).dirichlet(np.ones(p))
        reach = 400
        wrapped = np.bincount(np.arange(-reach, reach + 1) % p, laws.noise_pmf([0.5, 1.0], reach), p)
        g = np.fft.irfft(np.fft.rfft(f) * np.fft.rfft(wrapped), p)
        assert reference.on_circle(g, [0.5, 1.0]) == pytest.approx(f, abs=1e-10)


def test_inverse_of_randomized_response_is_exact_over_layers():
    p, epsilons = 16, (1.0, 0.7)
    f = np.random.default_rng(2).dirichlet(np.ones(p))
    g = f
    for epsilon in epsilons:
        keep = math.exp(epsilon) / (math.exp(epsilon) + p - 1)
        g = keep * g + (1 - keep) / (p - 1) * (1 - g)
    counters = np.rint(g * (1 << 50)).astype(np.int64)
    published = Observed(
        unit="item", form="state", open_domain=False, slots=(int(counters.sum()),), hashed_into=(), shares=(),
        layers=tuple(("randomized-response", Fraction(epsilon)) for epsilon in epsilons), edges=np.arange(p),
        values=counters, modulus=p,
    )  # fmt: skip
    assert inverse.reconstruct(published, p - 1).fractions == pytest.approx(f, abs=1e-12)


@pytest.mark.parametrize("norm", [1, math.inf])
def test_algorithm_2_reaches_the_optimum_of_the_linear_program(norm):
    rng = np.random.default_rng(5)
    for n, epsilon, d in ((4, 1.0, 30), (9, 0.5, 50), (15, 2.0, 100), (6, 1.0, 1000), (12, 1.5, 17)):
        r = circulant.truncation(d, epsilon, 0.1)
        x = rng.integers(0, n + 1, d) + np.clip(simulate.laplace(rng, epsilon, d), -r, r)
        g = np.bincount(x + r, minlength=n + 2 * r + 1) / d
        y = circulant.restore(g, epsilon, r, n, norm)
        _, best = reference.program(g, epsilon, r, n, norm)
        assert y[r : r + n + 1].sum() == pytest.approx(1.0, abs=1e-12)
        assert reference.distance(y, g, epsilon, r, n, norm) == pytest.approx(best, abs=1e-9)


def test_algorithm_2_in_norm_2_is_the_least_squares_point():
    rng = np.random.default_rng(6)
    n, epsilon, d = 7, 0.8, 60
    r = circulant.truncation(d, epsilon, 0.1)
    g = rng.dirichlet(np.ones(n + 2 * r + 1))
    y = circulant.restore(g, epsilon, r, n, 2)
    best = reference.distance(y, g, epsilon, r, n, 2)
    inside = np.zeros(g.size)
    inside[r : r + n + 1] = 1.0
    for _ in range(50):
        step = rng.normal(size=g.size)
        step -= inside * (inside @ step) / inside.sum()
        assert reference.distance(y + 1e-3 * step, g, epsilon, r, n, 2) >= best


def test_rounding_lands_on_the_simplex_and_keeps_points_of_it():
    rng = np.random.default_rng(7)
    for _ in range(100):
        y = rng.normal(size=20)
        y += (1.0 - y.sum()) / 20
        f = circulant.simplex(y)
        assert f.min() >= 0.0
        assert f.sum() == pytest.approx(1.0, abs=1e-12)
        inside = rng.dirichlet(np.ones(20))
        assert circulant.simplex(inside) == pytest.approx(inside, abs=1e-12)


def test_unfolding_pooled_ends_restores_the_law_of_the_counters():
    n, epsilon, d = 6, 0.7, 10**6
    r = circulant.truncation(d, epsilon, 1e-6)
    law = reference.kernel(epsilon, np.arange(-200, n + 201), np.arange(n + 1)).mean(axis=1)  # counts spread over 0..n
    ends = np.concatenate([[law[:201].sum()], law[201 : 200 + n], [law[200 + n :].sum()]])
    low, high = np.arange(n + 1), np.arange(n + 1)
    low[0], high[-1] = -UNBOUNDED, UNBOUNDED
    unfolded = circulant.pool_tails(Cells(low, high, d * ends, d), n, r, math.exp(-epsilon))
    assert unfolded == pytest.approx(law[200 - r : 201 + n + r], abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_expected_square_error_of_the_stencil_is_the_law(epsilon):
    a = math.exp(-epsilon)
    per_slot = (1 + 4 * a**2 + a**4) / (1 - a) ** 4 - 1
    reach = int(60 / epsilon)
    law = laws.noise_pmf([epsilon], reach)
    taps = laws.stencil([epsilon])
    # one slot contributes a shifted stencil: sum over cells of its second moment less its squared mean
    assert float(law.sum()) * float((taps**2).sum()) - 1.0 == pytest.approx(per_slot, rel=1e-9)
    rng = np.random.default_rng(9)
    h = rng.geometric(0.3, 4000)
    truth = np.bincount(h, minlength=400) / h.size
    errors = []
    for _ in range(200):
        x = h + simulate.laplace(rng, epsilon, h.size)
        g = np.bincount(x + 150, minlength=560)[:560] / h.size
        line = np.convolve(g, taps, "same")[:550]
        errors.append(((line[150:] - truth) ** 2).sum() + (line[:150] ** 2).sum())
    assert np.mean(errors) == pytest.approx(per_slot / h.size, rel=0.1)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_k_plus_score_has_mean_one_or_zero_and_the_stated_variance(epsilon):
    a = math.exp(-epsilon)
    x = a / (1 - a) ** 2
    reach = int(60 / epsilon)
    law = laws.noise_pmf([epsilon], reach)
    z = np.arange(-reach, reach + 1)

    def moments(distance):  # count = k + distance
        m = z + distance
        score = np.where(m > 0, 1.0, 0.0) + np.where(m == 0, 1 + x, 0.0) + np.where(m == -1, -x, 0.0)
        mean = float(law @ score)
        return mean, float(law @ score**2) - mean**2

    v0 = laws.tail_variance([epsilon])
    for distance in range(6):
        mean, variance = moments(distance)
        assert mean == pytest.approx(1.0, abs=1e-9)
        assert variance == pytest.approx(a**distance * v0, rel=1e-6)
        mean, variance = moments(-1 - distance)
        assert mean == pytest.approx(0.0, abs=1e-9)
        assert variance == pytest.approx(a**distance * v0, rel=1e-6)


def test_negative_binomial_shares_add_up_to_discrete_laplace():
    a, k, reach = math.exp(-0.7), 5, 200
    j = np.arange(reach)
    share = np.exp([math.lgamma(i + 1 / k) - math.lgamma(1 / k) - math.lgamma(i + 1) for i in j]) * (1 - a) ** (1 / k)
    share = share * a**j
    one_side = np.ones(1)
    for _ in range(k):
        one_side = np.convolve(one_side, share)[:reach]
    both = np.convolve(one_side, one_side[::-1])
    middle = both.size // 2
    wanted = laws.noise_pmf([0.7], 20)
    assert both[middle - 20 : middle + 21] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.statistics
@pytest.mark.parametrize("form", ["state", "cumulative", "bins"])
@pytest.mark.parametrize("layers", [1, 2])
def test_linear_estimates_and_their_variances_are_unbiased(form, layers):
    rng = np.random.default_rng(10)
    h = np.concatenate([np.zeros(600, dtype=np.int64), rng.geometric(0.4, 400).clip(max=12)])
    scores = {"present": present, "once": once, "total": identity, "entropy": xlogx}
    runs = 1500
    value, variance = {name: [] for name in scores}, {name: [] for name in scores}
    tails, tail_variance = [], []
    for _ in range(runs):
        seen = simulate.publish([h], epsilon=2, rng=rng, form=form, layers=layers)
        line = Line(seen, cells=seen.published(0))
        for name, score in scores.items():
            if form != "state" and name in ("total", "entropy"):
                continue  # beyond the unit range by a model, not unbiased
            moments = line.moments((score,))
            value[name].append(moments.value[0])
            variance[name].append(moments.covariance[0, 0])
        band = line.tails(6)
        tails.append(band.low)
        tail_variance.append(band.variance)
    for name, score in scores.items():
        if not value[name]:
            continue
        truth = float(score(h.astype(float)).mean())
        sd = np.std(value[name])
        assert np.mean(value[name]) == pytest.approx(truth, abs=4.5 * sd / math.sqrt(runs))
        assert np.mean(variance[name]) == pytest.approx(sd**2, rel=0.2)
    truth = np.array([(h >= k).mean() for k in range(8)])
    sd = np.std(tails, axis=0)
    assert np.mean(tails, axis=0) == pytest.approx(truth, abs=float(4.5 * sd.max() / math.sqrt(runs)))
    assert np.mean(tail_variance, axis=0)[1:] == pytest.approx(sd[1:] ** 2, rel=0.2)


def log_series(p):
    """Coefficients of log P by the recursion of docs/theory/profile.md 6, index 0 set to 0."""
    out = np.zeros_like(p)
    for s in range(1, p.size):
        out[s] = (p[s] - (np.arange(1, s) * out[1:s]) @ p[s - 1 : 0 : -1] / s) / p[0]
    return out


def test_compound_poisson_recursion_and_its_inverse_cancel():
    rng = np.random.default_rng(11)
    intensity = np.concatenate([[0.0], rng.random(40) / np.arange(1, 41) ** 2])
    law = exp_series(intensity, intensity.sum() + 0.05)
    assert log_series(law) == pytest.approx(intensity, abs=1e-12)
    one = np.convolve(law, exp_series(-intensity, -intensity.sum() - 0.05))[: law.size]
    assert one == pytest.approx(np.eye(law.size)[0], abs=1e-12)
    assert -math.log(law[0]) == pytest.approx(intensity.sum() + 0.05)


@pytest.mark.statistics
def test_the_integer_sampler_keeps_the_likelihood_ratio_of_neighbours():
    epsilon = Fraction(1)
    size = 1_000_000
    x, y = np.zeros(size, dtype=np.int32), np.ones(size, dtype=np.int32)
    noise.discrete_laplace(x, epsilon)
    noise.discrete_laplace(y, epsilon)
    reach = 6
    one = np.bincount(np.clip(x + reach, 0, 2 * reach), minlength=2 * reach + 1)
    two = np.bincount(np.clip(y + reach, 0, 2 * reach), minlength=2 * reach + 1)
    ratio = np.log(one / two)
    assert np.abs(ratio).max() < 1.0 + 6 * math.sqrt(2 / min(one.min(), two.min()))
    assert np.abs(ratio)[2:-2] == pytest.approx(1.0, abs=0.05)
