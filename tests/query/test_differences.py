"""Intervals of differences cover what they say wherever the numbers lie, also where intervals and estimates are cut.

In: estimates drawn from known laws, fixed seeds. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta

import sketchstream as ss
from helpers.crowds import Cell, publish, reconstruct, shares
from helpers.thrown import thrown
from sketchstream.query.differences import OUTSIDE, Difference, Point, difference, mean, subtract

RUNS = 10_000
LEAST = 0.95 - 5 * math.sqrt(0.95 * 0.05 / RUNS)
Z = 1.959964
PLACES = (0.0, 0.5, 1.0, 3.0)


def normal(rng: np.random.Generator, mean: float, *, clipped: bool) -> list[Point]:
    """Unbiased estimates with deviation 1 of a number that is at least 0, their intervals cut at 0.

    Args:
        clipped: whether the estimates are cut too, and widen their intervals, as those of profiles.
    """
    drawn = mean + rng.standard_normal(RUNS)
    value = np.maximum(drawn, 0.0) if clipped else drawn
    low, high = np.maximum(drawn - Z, 0.0), np.maximum(drawn + Z, 0.0)
    if clipped:
        low, high = np.minimum(low, np.maximum(value - 0.05 * Z, 0.0)), np.maximum(high, value + 0.05 * Z)
    return list(zip(value.tolist(), low.tolist(), high.tolist(), strict=True))


def share_that_holds(first: list[Point], second: list[Point], truth: float) -> float:
    held = 0
    for a, b in zip(first, second, strict=True):
        value, low, high = subtract(a, b)
        assert value is not None
        assert low is not None
        assert high is not None
        assert low <= value <= high
        held += low <= truth <= high
    return held / len(first)


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("mean", PLACES)
def test_differences_of_numbers_near_zero_are_covered(mean: float, *, clipped: bool) -> None:
    rng = np.random.default_rng(int(10 * mean) + clipped)
    for other in PLACES:
        first, second = normal(rng, mean, clipped=clipped), normal(rng, other, clipped=clipped)
        covered = share_that_holds(first, second, mean - other)
        assert covered > LEAST, (mean, other, covered)
        shares = [[(1 - v, 1 - h, 1 - low) for v, low, h in one] for one in (first, second)]  # near the largest value
        assert share_that_holds(*shares, other - mean) > LEAST


def test_distances_to_cut_ends_would_not_cover() -> None:
    """The rule that was used before, and that this test can tell from the present one."""
    rng = np.random.default_rng(7)
    held = 0
    for (a, a_low, a_high), (b, b_low, b_high) in zip(*(normal(rng, 0.0, clipped=False) for _ in "ab"), strict=True):
        assert None not in (a, b, a_low, b_low, a_high, b_high)
        low, high = a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low)  # type: ignore[operator]
        held += low <= 0 <= high
    assert held / RUNS < 0.92


@pytest.mark.parametrize("columns", [8, 64])
@pytest.mark.parametrize("place", PLACES)
def test_differences_of_squared_norms_of_projections_are_covered(place: float, columns: int) -> None:
    spec = ss.ProjectionSpec(2, 8, columns, epsilon="1", delta="1e-6")
    projection = ss.Sketch.create(spec).seal().estimate()
    rng = np.random.default_rng(columns)
    deviation = projection.tau * math.sqrt(2 / columns)

    def drawn(norm2: float) -> list[Point]:
        """Estimates of one squared norm: cells are normal with variance norm2 + tau."""
        sums = (norm2 + projection.tau) * rng.chisquare(columns, RUNS) / columns / projection.scale
        found = projection.from_sums("sq_norm", sums, projection.tau, 0.95)
        return list(zip(found.value.tolist(), found.low.tolist(), found.high.tolist(), strict=True))

    for other in PLACES:
        covered = share_that_holds(drawn(place * deviation), drawn(other * deviation), (place - other) * deviation)
        assert covered > LEAST, (place, other, covered)


def test_an_estimate_outside_its_interval_is_said() -> None:
    """Squared norms can come out negative, and their intervals hold possible values only."""
    inside, outside = (1.0, 0.0, 3.0), (-2.0, 0.0, 1.0)
    for first, second in ((inside, outside), (outside, inside)):
        value, low, high = subtract(first, second)
        found = Difference(
            title="squared norm", value=value, low=low, high=high, first=first, second=second, independent=True
        )
        assert found.assumes.endswith(OUTSIDE)
        assert OUTSIDE in str(found)
    value, low, high = subtract(inside, inside)
    equal = Difference(title="n", value=value, low=low, high=high, first=inside, second=inside, independent=True)
    assert OUTSIDE not in equal.assumes


def test_a_cut_end_beside_one_without_limit_has_no_limit_either() -> None:
    assert subtract((5.0, 0.0, None), (1.0, 0.5, 2.0))[1:] == (None, None)
    assert subtract((900.0, 900.0, 900.0), (900.0, 900.0, 900.0), (0.0, 1.0, 900.0)) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ((True, True), ""),
        ((False, True), "the window that begins at 2026-01-01T00:00:00Z is not complete: what"),
        ((True, None), "the window that begins at 2026-01-02T00:00:00Z is not known to be complete: what"),
        (
            (None, False),
            "is not known to be complete and the window that begins at 2026-01-02T00:00:00Z is not complete",
        ),
    ],
)
def test_what_windows_lack_is_said_with_their_difference(states: tuple[bool | None, ...], said: str) -> None:
    spec = ss.ProfileSpec(epsilon="1", domain=ss.ClosedDomain(size=40), max_count=10)
    answers = [
        ss.Sketch.create(spec).seal().profile().to_dict()
        | {"window_start": f"2026-01-0{day}T00:00:00Z", "complete": one}
        for day, one in enumerate(states, 1)
    ]
    found = difference(spec, *answers, "distinct")
    assert found.lacking in found.assumes
    assert found.lacking in str(found)
    assert said in found.lacking
    assert bool(said) is bool(found.lacking)


@pytest.mark.parametrize("seen", [0, 3])
def test_shares_differ_by_no_more_than_one(seen: int) -> None:
    """Where noise hides all items a share may be anything, and a difference no more than that."""
    spec = ss.ProfileSpec(epsilon="1/10", domain=ss.ClosedDomain(size=40), max_count=10)
    answers = []
    for start in ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"):
        sketch = ss.Sketch.create(spec)
        sketch.update(list(range(seen)))
        answers.append(sketch.seal().profile().to_dict() | {"window_start": start})
    found = difference(spec, *answers, "one_hit_ratio")
    assert found.low is not None
    assert found.high is not None
    assert -1.0 <= found.low <= (found.value or 0.0) <= found.high <= 1.0


def test_the_mean_of_windows_covers_and_narrows_with_their_number():
    """19 of 20 intervals hold the true mean, of counts far from 0 and near it; those of one window are its own."""
    rng, runs, n = np.random.default_rng(39), 2000, 7
    assert mean([(5.0, 2.0, 9.0)], together=False) == (5.0, 2.0, 9.0)
    for truth, least in ((100.0, 0.94), (1.0, 0.94)):
        held, widths = 0, []
        for linear in truth + rng.normal(size=(runs, n)):
            # the estimate shrinks towards 90, as likelihoods do, and the interval lies around the linear one
            points = [(x + 0.1 * (90 - x), max(x - 1.96, 0.0), max(x + 1.96, 0.0)) for x in linear.tolist()]
            _, low, high = mean(points, together=False)
            held += low <= truth <= high
            widths.append(high - low)
        assert held >= least * runs
        if truth == 100.0:
            assert held <= 0.97 * runs, "it would be too wide"
            assert np.allclose(widths, 2 * 1.96 / math.sqrt(n))


def test_the_mean_of_windows_of_a_domain_where_nearly_all_items_come_covers():
    """Upper ends are cut at the number of items, so that intervals do not lie around their estimates."""
    rng, size, truth, runs = np.random.default_rng(5), 1000.0, 860.0, 500
    held = 0
    for linear in truth + 110 * rng.normal(size=(runs, 28)):
        _, low, high = mean([(min(x, size), x - 216, min(x + 216, size)) for x in linear.tolist()], together=False)
        held += low <= truth <= high
    assert held >= 0.95 * runs


def test_the_mean_of_windows_of_few_items_covers():
    """Ends of intervals from an exact law are whole, and lie to one side."""
    rng, items, truth, runs = np.random.default_rng(6), 60, 54, 300
    held = 0
    for seen in rng.binomial(items, truth / items, (runs, 28)):
        lows = np.floor(items * beta.ppf(0.025, seen, items - seen + 1))
        highs = np.ceil(items * np.nan_to_num(beta.ppf(0.975, seen + 1, items - seen), nan=1.0))
        points = zip((seen + 0.25).tolist(), lows.tolist(), highs.tolist(), strict=True)
        _, low, high = mean(list(points), together=False)
        held += low <= truth <= high
    assert held >= 0.95 * runs


def test_the_mean_of_whole_numbers_around_their_estimates_narrows():
    """Totals: whole numbers with whole noise."""
    assert mean([(50.0, 20.0, 80.0), (70.0, 40.0, 100.0)], together=False)[1:] == pytest.approx(
        (60 - 450**0.5, 60 + 450**0.5)
    )


def test_a_missing_end_of_one_window_leaves_none_of_the_mean():
    assert mean([(5.0, None, 9.0), (7.0, 6.0, 8.0)], together=False) == (6.0, None, 8.5)


def test_the_mean_of_windows_that_hash_the_same_items_alike_covers():
    """The same people come every day: their collisions are those of the day before, only noise is new."""
    held: dict[bool, int] = dict.fromkeys((True, False), 0)
    runs, slots, cell = 24, 1 << 13, Cell(1.0, 3.0, "geometric", 32, 8, 1)
    for run in range(runs):
        rng = np.random.default_rng([39, run])
        numbers = rng.multinomial(slots, shares(cell))
        counters = thrown(np.arange(1, 32), numbers, slots, 8, rng)
        points: list[Point] = []
        for _ in range(5):
            part = publish(counters.copy(), epsilon=16, cost=8, rng=rng, unit="item", form="bins", modulus=32,
                           open_domain=True, grouped=True)  # fmt: skip
            one = reconstruct([part], max_count=31, method="inverse").number("distinct")
            points.append((one.value, one.low, one.high))
        for together in held:
            _, low, high = mean(points, together=together)
            assert low is not None
            assert high is not None
            held[together] += low <= numbers.sum() <= high
    assert held[True] >= 0.9 * runs
    assert held[False] <= 0.85 * runs, "errors as independent as this would need no such rule"
