"""The fit: exact where nothing is noisy, equal to a dense twin, slopes by differences, wraps by all waves."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.overlap import fit as fitting
from sketchstream.kinds.profile.overlap.channel import MEETING, Channel, JointChannel, Kronecker, contraction
from sketchstream.kinds.profile.overlap.covariance import SumCovariance, information
from sketchstream.kinds.profile.overlap.fit import fit, start
from sketchstream.kinds.profile.overlap.law import PatternLaw, Patterns, Scoring, expected_cells
from sketchstream.kinds.profile.overlap.wraps import CountLaw, Wraps, _with_tail, law_of_counts

REGIONS = np.array([40_000.0, 90_000, 10_000, 180_000, 20_000, 60_000, 10_000])
"""Of three groups: only C, only B, B and C, only A, A and C, A and B, all."""


def matrix(product: Any, size: int) -> Any:
    """A linear map as a matrix."""
    return np.stack([product(one) for one in np.eye(size)], axis=-1)


def table(
    regions: Any,
    groups: int,
    *,
    levels: int = 6,
    slots: float = 2**17,
    wraps: Wraps | None = None,
    is_open: bool = True,
    channel: Channel | None = None,
) -> Patterns:
    """What would be published at epsilon 4 if every cell were as expected."""
    shares = 2.0 ** -np.arange(1, levels + 1)
    shares[-1] *= 2
    shares = shares if is_open else np.ones(1)
    channel = channel or Channel.of_layers([4.0], 16 if wraps is None else wraps.counts.shape[1])
    empty = Patterns(np.zeros((len(shares), 2**groups)), shares, slots, 7.0, channel, is_open, wraps)
    return expected_cells(empty, np.asarray(regions, np.float64))


def reached(regions: Any) -> Any:
    """(2^m,) items in some group of S, by S."""
    return np.array([sum(n for c, n in enumerate(regions, 1) if c & chosen) for chosen in range(len(regions) + 1)])


def test_products_of_a_matrix_for_each_group_need_no_large_matrix() -> None:
    rng = np.random.default_rng(1)
    for groups in (1, 2, 5):
        axes, vectors = rng.normal(size=(groups, 2, 2)), rng.normal(size=(3, 2**groups))
        whole = np.ones((1, 1))
        for one in axes:
            whole = np.kron(whole, one)
        product = Kronecker(axes, groups)
        assert np.allclose(product(vectors), vectors @ whole.T)
        assert np.allclose(product.columns(vectors.T), whole @ vectors.T)
        half = 2 ** (groups - groups // 2)
        if groups > 1:
            assert np.allclose(product.columns(vectors.T, half), (whole @ vectors.T)[half:])
        assert np.allclose(product.transposed(vectors), vectors @ whole)
        assert np.allclose(product.inverse(product(vectors)), vectors)
        assert np.allclose(product.squared(vectors), vectors @ (whole**2).T)
        assert np.allclose((product @ product)(vectors), vectors @ (whole @ whole).T)


def test_loads_are_sums_over_the_regions_that_meet_a_set() -> None:
    law = PatternLaw(table(REGIONS, 3))
    assert np.allclose(law.filled(REGIONS)[0], law.rate[0] * reached(REGIONS))


def test_the_channel_is_that_of_randomized_response() -> None:
    e, w = math.exp(4.0), 16
    found = Channel.of_layers([4.0], w)
    assert found.empty == pytest.approx((w - 1) / (e + w - 1))
    assert found.full == pytest.approx(1 - 1 / (e + w - 1))
    first, second = contraction([1.0], 5), contraction([2.0], 5)
    twice = Channel.of_layers([1.0, 2.0], 5)
    assert twice.full - twice.empty == pytest.approx(first * second)
    rows = matrix(Kronecker(twice.one, 3), 8)
    assert np.allclose(rows.sum(axis=0), 1)
    assert rows[0b101, 0b100] == pytest.approx(twice.full * (1 - twice.empty) * twice.empty)
    assert np.allclose(matrix(Kronecker(MEETING, 2), 4)[3], [1, -1, -1, 1])


@pytest.mark.parametrize("is_open", [True, False])
def test_expected_cells_give_the_numbers_back(is_open: bool) -> None:
    found = fit(table(REGIONS, 3, is_open=is_open, slots=2.0**20))
    assert found.free == pytest.approx(REGIONS, rel=1e-6)
    assert found.regions == pytest.approx(REGIONS, rel=1e-6)
    assert found.covariance.variances().min() > 0


@pytest.mark.parametrize("groups", [1, 2, 6, 9, 12])
def test_one_to_twelve_groups_are_fitted(groups: int) -> None:
    rng = np.random.default_rng(5)
    size = 2**groups - 1
    regions = np.where(rng.random(size) < min(0.3, 60 / size), rng.integers(1, 4000, size), 0).astype(float)
    regions[0] += 100
    found = fit(table(regions, groups))
    assert found.regions == pytest.approx(regions, abs=1e-3 * regions.sum())
    assert found.free == pytest.approx(regions, abs=1e-2 * regions.sum())
    assert found.regions.min() >= 0


def dense(given: Patterns) -> tuple[Any, Any, Any]:
    """The slow twin: every matrix made, each step solved by least squares with bounds."""
    from scipy.optimize import nnls

    law, size = PatternLaw(given), given.cells.shape[1]
    shown, seen = matrix(law.to_patterns, size), matrix(law.noise, size)
    hit = (np.arange(size)[:, None] & np.arange(1, size)) != 0
    if given.wraps is not None:
        hit = hit @ matrix(Kronecker(given.wraps.visible, given.groups), size)[1:, 1:]
    kept = given.channel.kept
    drawn = (1 - kept) * given.channel.drawn(given.groups)
    at = start(given)
    for _ in range(300):
        score, total, noise = np.zeros(size - 1), np.zeros((size - 1,) * 2), np.zeros((size - 1,) * 2)
        for cells, share in zip(given.cells, given.shares, strict=True):
            loads = share / given.slots * reached(at)
            empty = np.exp(-loads) if given.is_open else 1 - loads
            if given.wraps is not None:
                empty = empty * given.wraps.factors(loads)
            shares = kept * shown @ empty + drawn
            likely = np.maximum(shares, 0) / np.maximum(shares, 0).sum()
            covariance = np.diag(given.slots * likely + given.noise) - given.slots * np.multiply.outer(likely, likely)
            slope = -share * kept * (shown * (empty if given.is_open else 1.0)) @ hit
            weighed = np.linalg.solve(covariance, slope)
            score += weighed.T @ (cells - given.slots * shares)
            total += weighed.T @ slope
            whole = kept * seen + drawn[:, None]
            true = np.concatenate([[given.slots - at.sum()], at])
            fixed = np.diag(np.diag(covariance + given.slots * np.multiply.outer(likely, likely)))
            noise += weighed.T @ (fixed - (whole * true) @ whole.T) @ weighed
        free = at + np.linalg.solve(total, score)
        scale = 1 / np.sqrt(np.diag(total))
        root = np.linalg.cholesky(total * np.multiply.outer(scale, scale)).T
        moved = nnls(root, root @ (free / scale), maxiter=10_000)[0] * scale - at
        if np.sqrt(moved @ total @ moved) < 1e-11:
            break
        part = 0.5 if _ < 20 else 1.0
        at = at + part * moved
    inverse = np.linalg.inv(total)
    return free, at, inverse - np.diag(at) if given.is_open else inverse @ noise @ inverse


def known(laws: Any) -> Wraps:
    """Laws of counts that are known exactly."""
    return Wraps.of([CountLaw(np.asarray(law), 0.0) for law in laws], len(laws[0]))


COUNTS = np.array([2.0**-t if t else 1 / 16 for t in range(4)])
KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "two": (2, {}),
    "four": (4, {}),
    "six": (6, {"levels": 4}),
    "wraps": (3, {"wraps": known([COUNTS / COUNTS.sum()] * 3), "slots": 2**19}),
    "joint": (3, {"channel": JointChannel.of([4.0], 3, 3, presence=True)}),
    "closed": (4, {"is_open": False, "slots": 2**19}),
    "closed joint": (3, {"is_open": False, "slots": 2**19, "channel": JointChannel.of([4.0], 3, 3, presence=False)}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_fit_is_the_one_with_dense_matrices(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "MIN_SQUARED_STEP", 1e-24)
    monkeypatch.setattr(fitting, "STEP_PRECISION", 1e-20)
    (groups, more), rng = KINDS[kind], np.random.default_rng(3)
    size = 2**groups - 1
    regions = np.where(rng.random(size) < 0.4, 0, rng.integers(100, 60_000 >> (groups // 2), size)).astype(float)
    clean = table(regions, groups, **more)
    noisy = clean.cells + rng.normal(size=clean.cells.shape) * np.sqrt(clean.cells + clean.noise)
    noisy += (clean.cells.sum(axis=1, keepdims=True) - noisy.sum(axis=1, keepdims=True)) / noisy.shape[1]
    given = replace(clean, cells=np.round(noisy))
    found, (free, at, covariance) = fit(given), dense(given)
    assert (at < 1e-6).any()
    assert (free < 0).any()
    sds = np.sqrt(np.diag(covariance))
    assert np.abs(found.regions - at).max() < 1e-8 * at.sum()
    assert (np.abs(found.free - free) / sds).max() < 1e-7
    assert found.covariance.variances() == pytest.approx(np.diag(covariance), rel=1e-7)
    plus, minus = found.covariance.parts(np.eye(size))
    assert plus @ plus.T - minus @ minus.T == pytest.approx(covariance, rel=1e-6, abs=1e-8 * float(sds.max()) ** 2)


def test_the_information_is_that_of_products_one_by_one() -> None:
    given = table(REGIONS, 3)
    scoring = Scoring(PatternLaw(given), REGIONS)
    quiet = scoring.law.noise.inverse
    into = matrix(lambda seen: quiet(np.concatenate([[-seen.sum()], seen]))[1:], 7)
    dense_one = into.T @ matrix(scoring.information, 7) @ into
    assert np.allclose(np.tril(information(scoring)), np.tril(dense_one))
    near = np.linalg.eigvals(matrix(scoring.approximate_inverse, 7) @ matrix(scoring.information, 7)).real
    assert 0.05 < near.min() < near.max() < 1.5


def test_single_precision_does_for_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchstream.kinds.profile.overlap import covariance

    given = table(np.tile(REGIONS, 9), 6)
    double = fit(given).covariance.variances()
    monkeypatch.setattr(covariance, "SINGLE", 1)
    assert fit(given).covariance.variances() == pytest.approx(double, rel=1e-4)


def test_sums_of_independent_numbers_of_a_sample_have_the_chance_of_being_drawn_too() -> None:
    one = fit(table(REGIONS, 3)).covariance
    found = SumCovariance([one, one], 0.5, 4 * REGIONS)
    assert found.variances() == pytest.approx(2 * one.variances() / 0.25 + 4 * REGIONS)
    plus, minus = found.parts(np.eye(7))
    assert np.diag(plus @ plus.T - minus @ minus.T) == pytest.approx(found.variances())


@pytest.mark.parametrize("is_open", [True, False])
def test_slopes_are_differences(is_open: bool) -> None:
    given = table(REGIONS, 3, is_open=is_open, slots=2.0**19)
    slope = matrix(Scoring(PatternLaw(given), REGIONS).slope, 7)
    for region in range(7):
        moved = REGIONS.copy()
        moved[region] += 1.0
        found = expected_cells(given, moved).cells - given.cells
        assert found == pytest.approx(slope[..., region], rel=1e-3, abs=1e-6)


def test_the_inverse_covariance_is_that_of_independent_slots() -> None:
    given = table(REGIONS, 3, levels=1)
    scoring = Scoring(PatternLaw(given), REGIONS)
    (shares,) = scoring.expected
    covariance = np.diag(given.slots * shares + given.noise) - given.slots * np.multiply.outer(shares, shares)
    found = matrix(lambda one: scoring.weighted(one[None])[0], 8)
    assert found == pytest.approx(np.linalg.inv(covariance), rel=1e-8)


def test_the_covariance_of_a_level_without_noise_is_that_of_collisions() -> None:
    slots, people = 4096.0, 3000.0
    given = Patterns(np.zeros((1, 4)), np.ones(1), slots, 1e-6, Channel(0.0, 1.0), is_open=True)
    found = fit(expected_cells(given, np.array([people / 3] * 3)))
    plus, minus = found.covariance.parts(np.ones((1, 3)))
    load = people / slots
    assert (plus**2).sum() - (minus**2).sum() == pytest.approx(slots * math.expm1(load) - people, rel=1e-4)


def test_a_start_is_near_each_groups_items() -> None:
    found = start(table(REGIONS, 3))
    assert found[[3, 1, 0]] == pytest.approx([270_000, 170_000, 80_000], rel=0.1)


def test_full_levels_are_refused() -> None:
    full = table(1e9 * np.ones(3), 2, levels=1, slots=256.0)
    with pytest.raises(EstimateError, match="every level"):
        fit(full)


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
    wraps = known(laws)
    for rate in (0.1, 1.0):
        loads = rate * reached(regions)
        found = np.exp(-loads) * wraps.factors(loads)
        for chosen in ([0], [1, 2], [0, 2]):
            code = sum(1 << (2 - g) for g in chosen)
            assert found[code] == pytest.approx(empty_exactly(regions, laws, chosen, rate), rel=tolerance)


def test_one_group_that_wraps_is_exact() -> None:
    laws = np.array([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]])
    loads = 1.3 * reached([0.3, 0.5, 0.2])
    found = np.exp(-loads) * known(laws).factors(loads)
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
    found = law_of_counts(rows, slots, shares, kept, 2.0, items)
    assert found is not None
    assert found.counts == pytest.approx(law, abs=2e-3)
    assert 0 < found.doubt < 0.01
    assert law_of_counts(rows, 100.0, shares, kept, 2.0, items) is None


def test_what_noise_hides_of_counts_is_within_its_doubt() -> None:
    """Laws that end, have gaps or go on: the share of items whose counts wrap, which no slot shows."""
    rng, cap = np.random.default_rng(4), [1.0, 1.0, 1.0]
    laws = {"once": [1.0], "three": cap, "one or five": [1, 0, 0, 0, 1], "on": [0.5**count for count in range(60)]}
    for modulus in (4, 8, 16, 32):
        for name, law in laws.items():
            folded = np.zeros(modulus)
            np.add.at(folded, np.arange(1, len(law) + 1) % modulus, law)
            folded /= folded.sum()
            for error in (3.0, 20.0, 60.0):
                found = [_with_tail(1000 * folded + rng.normal(0, error, modulus), error) for _ in range(100)]
                told = [law for law in found if law is not None]
                held = [abs(law.counts[0] - folded[0]) <= 2 * law.doubt + 1e-9 for law in told]
                assert len(told) > 90, (modulus, name, error)
                assert np.mean(held) > 0.85, (modulus, name, error)
                if modulus > 4:
                    assert np.mean([law.counts[0] for law in told]) == pytest.approx(folded[0], abs=0.01)


def test_counts_that_wrap_are_allowed_for() -> None:
    given = table(REGIONS, 3, wraps=known([COUNTS / COUNTS.sum()] * 3), slots=2.0**19)
    plain, corrected = fit(replace(given, wraps=None)), fit(given)
    assert corrected.free == pytest.approx(REGIONS, rel=1e-5)
    assert abs(plain.free - REGIONS).max() > 5_000
