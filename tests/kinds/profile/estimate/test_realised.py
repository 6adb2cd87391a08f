"""The exact posterior mean of the counters' histogram, against sums over everything that can be."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from sketchstream.kinds.profile.estimate.likelihood import kernels, realised
from sketchstream.kinds.profile.estimate.likelihood.published_counts import PublishedCounts

Q = math.exp(-1.0)


def noise_chance(z, times):
    """Chance of z for the sum of discrete Laplace numbers, by summing over all but the last."""
    if times == 1:
        return (1 - Q) / (1 + Q) * Q ** abs(z)
    return sum(noise_chance(x, 1) * noise_chance(z - x, times - 1) for x in range(-60, 61))


@pytest.mark.parametrize("times", [1, 2])
def test_slots_expected_given_thresholds_are_the_sum_over_all_histograms(times):
    d, mu, above = 6, np.array([2.5, 1.5, 0.5, 1.5]), np.array([3, 4, 0])
    whole, mean = 0.0, np.zeros(4)
    for cells in itertools.product(range(d + 1), repeat=4):
        if sum(cells) == d:
            chance = math.prod(x**g / math.factorial(g) for x, g in zip(mu, cells, strict=True))
            chance *= math.prod(noise_chance(above[i] - sum(cells[i + 1 :]), times) for i in range(3))
            whole += chance
            mean += chance * np.array(cells)
    h = -np.diff(np.concatenate([[d], above, [0]])).astype(float)
    found = realised.expected_slots(PublishedCounts(kernels.CUMULATIVE, h, float(d), Q, float(times)), mu, np.zeros(4))
    assert found == pytest.approx(mean / whole, rel=1e-8)
    assert found.sum() == pytest.approx(d)


def test_where_cells_are_full_the_exact_mean_is_that_of_the_saddlepoint():
    rng = np.random.default_rng(1)
    mu = np.array([50_000.0, 30_000.0, 9_000.0, 8_000.0, 3_000.0])
    h = rng.multinomial(100_000, mu / mu.sum()) + np.array([3.0, -4.0, 2.0, 0.0, -1.0])
    y, z = np.zeros(5), np.zeros(1)
    kernels.saddlepoint(kernels.CUMULATIVE, mu, h, y, z, 1e5, Q, 1.0, np.empty((5, 5)))
    found = realised.expected_slots(PublishedCounts(kernels.CUMULATIVE, h, 1e5, Q, 1.0), mu, y)
    assert found == pytest.approx(mu * np.exp(y), rel=1e-5, abs=0.05)


def test_thresholds_that_cannot_be_fall_back_on_the_saddlepoint():
    mu, y = np.array([5.0, 3.0, 2.0]), np.array([0.1, -0.2, 0.3])
    h = np.array([10.0, -500.0, 500.0])  # 500 more slots above the second threshold than above the first
    seen = PublishedCounts(kernels.CUMULATIVE, h, 10.0, Q, 1.0)
    assert realised.expected_slots(seen, mu, y) == pytest.approx(mu * np.exp(y))


def test_the_law_of_summed_noise_is_whole():
    for times in (1, 3, 20):
        law = realised.noise_of_sum(Q, times)
        assert law.sum() == pytest.approx(1.0, abs=1e-8)
        assert law == pytest.approx(law[::-1])
        at = np.arange(law.size) - law.size // 2
        assert at**2 @ law == pytest.approx(times * 2 * Q / (1 - Q) ** 2, rel=1e-6)
