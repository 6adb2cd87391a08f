"""Noise with a variance for each coordinate has each coordinate's own law, and bad arguments are refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from helpers.noise import oracle
from helpers.noise.words import Forged, Recorded, Seeded
from sketchstream import noise
from sketchstream.errors import SpecError
from sketchstream.noise import gaussian, laws, varied

FEW = [Fraction(1, 2), Fraction(179, 10), Fraction(3_000_000)]


def worst(samples: np.ndarray, law: laws.Law) -> float:
    return min(check.p_value for check in laws.battery(samples, law))


def test_a_table_is_the_next_point_of_the_grid() -> None:
    for sigma2 in (Fraction(1), Fraction(17, 16), Fraction(1, 3), Fraction(10**9 + 1), Fraction(2047, 1024)):
        table = varied.table_parameter(sigma2)
        assert sigma2 <= table < sigma2 * Fraction(9, 8)
        assert varied.table_parameter(table) == table


def test_with_one_variance_it_is_the_plain_sampler() -> None:
    first, second = np.full(5000, 7, np.int64), np.full(5000, 7, np.int64)
    noise.discrete_gaussians(first, [Fraction(179, 10)], np.zeros(5000, np.int8), Seeded(1))
    noise.discrete_gaussian(second, Fraction(179, 10), Seeded(1))
    assert np.array_equal(first, second)


@pytest.mark.statistics
def test_each_of_few_variances_passes_the_battery_of_its_own_law_and_of_no_other() -> None:
    which = np.arange(3 * 60_000) % 3
    out = np.zeros(len(which), np.int64)
    noise.discrete_gaussians(out, FEW, which, Seeded(2))
    for index, sigma2 in enumerate(FEW):
        mine = out[which == index]
        assert worst(mine, laws.DiscreteGaussian(sigma2)) > 1e-4
        assert worst(mine, laws.DiscreteGaussian(sigma2 * Fraction(112, 100))) < 1e-9
        assert worst(mine, laws.DiscreteGaussian(sigma2 / Fraction(112, 100))) < 1e-9


@pytest.mark.statistics
def test_thinned_samples_have_their_own_law_and_unthinned_ones_are_refused() -> None:
    sigma2, size = Fraction(1_000_001, 1_000_000) * 16, 400_000
    table = varied.table_parameter(sigma2)
    assert table == 18
    which = np.zeros(size, np.int64)
    out = np.zeros(size, np.int64)
    varied.draw_thinned(out, which, table, [sigma2], Seeded(3))
    assert worst(out, laws.DiscreteGaussian(sigma2)) > 1e-4
    assert worst(out, laws.DiscreteGaussian(table)) < 1e-9
    unthinned = np.zeros(size, np.int64)
    noise.discrete_gaussian(unthinned, table, Seeded(3))
    assert worst(unthinned, laws.DiscreteGaussian(sigma2)) < 1e-9


@pytest.mark.statistics
def test_many_variances_have_unit_spread_once_scaled() -> None:
    random = np.random.default_rng(4)
    sigma2s = [Fraction(int(one), 1024) for one in random.integers(20_000, 4_000_000, 3000)]
    which = random.integers(0, len(sigma2s), 800_000)
    out = np.zeros(len(which), np.int64)
    noise.discrete_gaussians(out, sigma2s, which, Seeded(5))
    scaled = out / np.sqrt(np.array([float(one) for one in sigma2s])[which])
    assert abs(np.mean(scaled**2) - 1) < 5 * np.sqrt(2 / len(which))
    assert abs(np.mean(scaled)) < 5 / np.sqrt(len(which))
    tables = np.array([float(varied.table_parameter(one)) for one in sigma2s])[which]
    assert abs(np.mean(out**2 / tables) - 1) > 4 * np.sqrt(2 / len(which))  # thinning left out would be seen


@pytest.mark.parametrize(("sigma2", "table"), [("1", "2"), ("1000/1001", "1"), ("1000000", "1031250")])
def test_what_is_decided_at_once_is_decided_right(sigma2: str, table: str) -> None:
    coefficient = (1 / Fraction(sigma2) - 1 / Fraction(table)) / 2
    root = varied._root(coefficient)
    assert (root - 1) ** 2 < coefficient * (1 << 120) <= root**2
    spread = max(1, round(float(Fraction(sigma2)) ** 0.5))
    drawn = np.array([*range(-3, 4), spread, -5 * spread, 10 * spread, 1 << 61], np.int64)
    open_ = 0
    for z in drawn.tolist():
        p = oracle.exp_minus(min(coefficient * z * z, Fraction(200)))
        edge = int(p * (1 << 32))
        near = {edge + step for step in (-(1 << 20), -300_000, -100, -1, 0, 1, 100, 300_000, 1 << 20)}
        words = np.array(sorted(w for w in near | {0, (1 << 32) - 1} if 0 <= w < 1 << 32), np.uint32)
        kept, unsure = varied.decide(words, np.full(len(words), z), np.full(len(words), root))
        for word, accept, left in zip(words.tolist(), kept.tolist(), unsure.tolist(), strict=True):
            if left:
                open_ += 1
            else:
                assert accept == (Fraction(word + 1, 1 << 32) <= p) or p == 1
    assert open_


def test_thinning_equals_its_definition_word_by_word() -> None:
    """At 2 against 18 the first word often leaves an acceptance open, at 16 almost never."""
    sigma2s, which = [Fraction(16), Fraction(2), Fraction(18)], np.arange(900) % 3
    table = Fraction(18)
    source = Recorded(Forged([], seed=9))
    out = np.zeros(900, np.int64)
    varied.draw_thinned(out, which, table, sigma2s, source)
    words, ready = iter(source.words), gaussian.plan(table)
    pending, expected, refusals = list(range(900)), [0] * 900, 0
    while pending:
        own = [next(words) for _ in pending]
        drawn = [gaussian.complete([word], ready, lambda: next(words)) for word in own]
        thinned = [i for i in pending if sigma2s[which[i]] != table]
        uniform = dict(zip(thinned, [next(words) for _ in thinned], strict=True))
        refused = []
        for i, z in zip(pending, drawn, strict=True):
            expected[i] = z
            exponent = Fraction(z * z) * (1 / sigma2s[which[i]] - 1 / table) / 2
            if exponent and not Fraction(uniform[i], 1 << 32) < oracle.exp_minus(exponent):
                refused.append(i)
        refusals += len(refused)
        pending = refused
    assert out.tolist() == expected
    assert next(words, None) is None
    assert refusals > 300


def test_arguments_that_do_not_fit_are_refused() -> None:
    out = np.zeros(3, np.int64)
    for sigma2s, which in (
        ([Fraction(0)], np.zeros(3, int)),
        ([Fraction(1)], np.ones(3, int)),
        ([Fraction(1)], np.zeros(2, int)),
        ([Fraction(1)], np.zeros(3)),
        ([Fraction(1)], -np.ones(3, int)),
    ):
        with pytest.raises(SpecError):
            noise.discrete_gaussians(out, sigma2s, which)
    assert not out.any()
    noise.discrete_gaussians(out[:0], [Fraction(1)], np.zeros(0, int))
