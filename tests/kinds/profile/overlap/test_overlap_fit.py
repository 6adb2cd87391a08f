"""The fit: exact where nothing is noisy, slopes and covariances by other means, wraps by the sum over all waves."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.overlap.channel import MEETING, Channel, applied, contraction, kronecker, reaches
from sketchstream.kinds.profile.overlap.fit import Law, Table, fit, nearest, start
from sketchstream.kinds.profile.overlap.wraps import Wraps, law_of_counts

REGIONS = np.array([40_000.0, 90_000, 10_000, 180_000, 20_000, 60_000, 10_000])
"""Of three groups: only C, only B, B and C, only A, A and C, A and B, all."""


def tables(
    regions: Any,
    groups: int,
    *,
    levels: int = 6,
    slots: float = 2**17,
    wraps: Wraps | None = None,
    is_open: bool = True,
    modulus: int = 16,
) -> list[Table]:
    """What would be published at epsilon 4 if every cell were as expected."""
    channel, noise = Channel.of_layers([4.0], modulus), 7.0
    shares = [2.0 ** -(at + 1) for at in range(levels)]
    shares[-1] *= 2
    out = []
    for share in shares if is_open else [1.0]:
        empty = Table(np.zeros(2**groups), slots, share, noise, channel, is_open)
        expected = slots * Law(empty, groups, wraps).expected(np.asarray(regions, np.float64))[0]
        out.append(Table(expected, slots, share, noise, channel, is_open))
    return out


def test_products_of_one_matrix_for_each_group_need_no_large_matrix() -> None:
    rng = np.random.default_rng(1)
    for groups in (1, 2, 5):
        one, vector = rng.normal(size=(2, 2)), rng.normal(size=(3, 2**groups))
        assert np.allclose(applied(one, vector), vector @ kronecker(one, groups).T)


def test_reaches_are_sums_over_the_regions_that_meet_a_set() -> None:
    counts = np.concatenate([[5.0], REGIONS])  # those in no group are in no set
    found = reaches(np.concatenate([[0.0], REGIONS]))
    for chosen in range(8):
        assert found[chosen] == sum(n for c, n in enumerate(counts) if c & chosen)


def test_the_channel_is_that_of_randomized_response() -> None:
    e, w = math.exp(4.0), 16
    found = Channel.of_layers([4.0], w)
    assert found.empty == pytest.approx((w - 1) / (e + w - 1))
    assert found.full == pytest.approx(1 - 1 / (e + w - 1))
    first, second = contraction([1.0], 5), contraction([2.0], 5)
    twice = Channel.of_layers([1.0, 2.0], 5)
    assert twice.full - twice.empty == pytest.approx(first * second)
    rows = twice.matrix(3)
    assert np.allclose(rows.sum(axis=0), 1)
    assert rows[0b101, 0b100] == pytest.approx(twice.full * (1 - twice.empty) * twice.empty)
    assert np.allclose(kronecker(MEETING, 2)[3], [1, -1, -1, 1])


@pytest.mark.parametrize("is_open", [True, False])
def test_expected_cells_give_the_numbers_back(is_open: bool) -> None:
    found = fit(tables(REGIONS, 3, is_open=is_open, slots=2.0**20), 3)
    assert found.free == pytest.approx(REGIONS, rel=1e-6)
    assert found.regions == pytest.approx(REGIONS, rel=1e-6)
    assert np.linalg.eigvalsh(found.covariance).min() > 0


def test_two_six_and_eight_groups_are_fitted() -> None:
    rng = np.random.default_rng(5)
    for groups in (2, 6, 8):
        regions = np.where(rng.random(2**groups - 1) < 0.3, rng.integers(0, 4000, 2**groups - 1), 0).astype(float)
        found = fit(tables(regions, groups), groups)
        assert found.free == pytest.approx(regions, abs=1e-3 * max(regions.sum(), 1))


@pytest.mark.parametrize("is_open", [True, False])
def test_slopes_are_differences(is_open: bool) -> None:
    (table, *_) = tables(REGIONS, 3, is_open=is_open, slots=2.0**19)
    law = Law(table, 3, None)
    before, slope = law.expected(REGIONS)
    for region in range(7):
        moved = REGIONS.copy()
        moved[region] += 1.0
        found = (law.expected(moved)[0] - before) * table.slots
        assert found == pytest.approx(slope[:, region], rel=1e-3, abs=1e-6)


def test_the_inverse_covariance_is_that_of_independent_slots() -> None:
    (table, *_) = tables(REGIONS, 3)
    law = Law(table, 3, None)
    shares = law.expected(REGIONS)[0]
    covariance = np.diag(table.slots * shares + table.noise) - table.slots * np.multiply.outer(shares, shares)
    what = np.eye(8)[:, :3]
    assert law.weighed(shares, what) == pytest.approx(np.linalg.solve(covariance, what), rel=1e-8)
    assert law.weighed(shares, what[:, 1]) == pytest.approx(np.linalg.solve(covariance, what[:, 1]), rel=1e-8)


def test_the_covariance_of_a_level_without_noise_is_that_of_collisions() -> None:
    slots, people = 4096.0, 3000.0
    channel = Channel(0.0, 1.0)
    regions = np.array([people / 3] * 3)
    table = Table(np.zeros(4), slots, 1.0, 1e-9, channel, is_open=True)
    cells = slots * Law(table, 2, None).expected(regions)[0]
    found = fit([Table(cells, slots, 1.0, 1e-6, channel, is_open=True)], 2)
    every = float(found.covariance.sum())
    load = people / slots
    assert every == pytest.approx(slots * math.expm1(load) - people, rel=1e-4)


def test_numbers_below_zero_become_the_nearest_that_are_not() -> None:
    information = np.array([[2.0, 1.0], [1.0, 2.0]])
    assert nearest(information, np.array([3.0, 4.0])).tolist() == [3.0, 4.0]
    found = nearest(information, np.array([3.0, -1.0]))
    assert found == pytest.approx([2.5, 0.0])  # along the axis, where the other number is 0


def test_a_start_is_near_each_groups_items() -> None:
    found = start(tables(REGIONS, 3), 3)
    assert found[[3, 1, 0]] == pytest.approx([270_000, 170_000, 80_000], rel=0.1)


def test_full_levels_are_refused() -> None:
    full = tables(1e9 * np.ones(3), 2, levels=1, slots=256.0)
    with pytest.raises(EstimateError, match="every level"):
        fit(full, 2)


def empty_exactly(regions: Any, laws: Any, chosen: Any, rate: float) -> float:
    """Pr[all counters of these groups are 0 mod p], by the sum over all waves."""
    groups, modulus = len(laws), len(laws[0])
    waves = np.fft.fft(np.asarray(laws), axis=1)
    total = 0.0
    for at in itertools.product(range(modulus), repeat=len(chosen)):
        rate_of = 0j
        for region in range(1, 2**groups):
            inside = [g for g in chosen if region >> (groups - 1 - g) & 1]
            wave = np.prod([waves[g][at[chosen.index(g)]] for g in inside]) if inside else 1.0
            rate_of += regions[region - 1] * (wave - 1)
        total += np.exp(rate * rate_of).real
    return total / modulus ** len(chosen)


@pytest.mark.parametrize(("modulus", "tolerance"), [(4, 4e-3), (16, 1e-6)])
def test_slots_look_empty_as_often_as_the_sum_over_all_waves_says(modulus: int, tolerance: float) -> None:
    counts = np.array([2.0**-t if t else 2.0**-modulus for t in range(modulus)])
    laws = np.array([counts / counts.sum()] * 3)
    regions = REGIONS / REGIONS.sum()
    wraps = Wraps(laws)
    for rate in (0.1, 1.0):
        loads = rate * reaches(np.concatenate([[0.0], regions]))
        found = np.exp(-loads) * wraps.factors(loads)
        for chosen in ([0], [1, 2], [0, 2]):
            code = sum(1 << (2 - g) for g in chosen)
            assert found[code] == pytest.approx(empty_exactly(regions, laws, chosen, rate), rel=tolerance)


def test_one_group_that_wraps_is_exact() -> None:
    laws = np.array([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]])
    loads = 1.3 * reaches(np.array([0.0, 0.3, 0.5, 0.2]))
    found = np.exp(-loads) * Wraps(laws).factors(loads)
    assert found[2] == pytest.approx(empty_exactly([0.3, 0.5, 0.2], laws, [0], 1.3))


def test_counts_are_found_in_slots_that_several_items_share() -> None:
    modulus, slots, items = 8, 2.0**16, 60_000.0
    law = np.array([2.0**-t if t else 2.0**-8 for t in range(modulus)])
    law /= law.sum()
    kept = contraction([4.0], modulus)
    shares, rows = [0.5, 0.25, 0.25], []
    for share in shares:
        wave = np.exp(share * items / slots * (np.fft.fft(law) - 1))
        clean = np.fft.ifft(wave).real
        rows.append(slots * (kept * clean + (1 - kept) / modulus))
    found = law_of_counts(rows, [slots] * 3, shares, [kept] * 3, [2.0] * 3, items)
    assert found == pytest.approx(law, abs=2e-3)
    crowded = law_of_counts(rows, [100.0] * 3, shares, [kept] * 3, [2.0] * 3, items)
    assert crowded.tolist() == [0, 1, 0, 0, 0, 0, 0, 0]


def test_counts_that_wrap_are_allowed_for() -> None:
    counts = np.array([2.0**-t if t else 1 / 16 for t in range(4)])
    wraps = Wraps(np.array([counts / counts.sum()] * 3))
    given = tables(REGIONS, 3, wraps=wraps, modulus=4, slots=2.0**19)
    plain, corrected = fit(given, 3), fit(given, 3, [wraps] * len(given))
    assert corrected.free == pytest.approx(REGIONS, rel=1e-5)
    assert abs(plain.free - REGIONS).max() > 5_000
