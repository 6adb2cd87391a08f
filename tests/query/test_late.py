"""Late records from published frontiers: the number, its interval, and when it is spoken of."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from sketchstream.query.late import ALARM, LateRecords, late_records
from sketchstream.stream.interfaces import Frontier

EPSILON = Fraction(1, 10)


def frontier(partition: int, late: int | None, draws: int = 1, revision: int = 0, sketch: str = "hourly") -> Frontier:
    return Frontier(sketch, revision, partition, 0, 4, 1, late=late, late_draws=draws)


def found(*frontiers: Frontier) -> LateRecords:
    number = late_records("hourly", frontiers, EPSILON)
    assert number is not None
    return number


def test_partitions_are_added_up_and_other_sketches_and_revisions_left_out() -> None:
    number = found(
        frontier(0, 1000, revision=1),
        frontier(1, 2000, revision=1),
        frontier(2, 50_000),
        frontier(3, 50_000, revision=1, sketch="daily"),
    )
    assert number.records.value == 3000
    assert number.records.low < 3000 < number.records.high
    assert number.shown
    assert "about 3,000 records" in number.describe()


def test_nothing_is_said_where_no_number_is_kept() -> None:
    assert late_records("hourly", [], EPSILON) is None
    assert late_records("hourly", [frontier(0, None, 0)], EPSILON) is None
    assert late_records("hourly", [frontier(0, 10)], Fraction(0)) is None


def laplace(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Discrete Laplace draws of epsilon 1/10: the difference of two geometric ones."""
    p = -math.expm1(-float(EPSILON))
    return np.asarray(rng.geometric(p, shape) - rng.geometric(p, shape))


@pytest.mark.parametrize("draws", [1, 7])
def test_the_interval_holds_and_noise_alone_is_rarely_reported(draws: int) -> None:
    rng = np.random.default_rng(20 + draws)
    n, true = 4000, 5000
    noise = laplace(rng, (n, 2 * draws)).reshape(n, 2, draws).sum(axis=2)
    known: dict[int, tuple[bool, bool]] = {}
    for total in noise.sum(axis=1).tolist():
        if total not in known:
            about = found(frontier(0, true + total, draws), frontier(1, 0, draws)).records
            alone = found(frontier(0, total, draws), frontier(1, 0, draws)).shown
            known[total] = (about.low <= true <= about.high, alone)
    covered = np.mean([known[total][0] for total in noise.sum(axis=1).tolist()])
    alarms = sum(known[total][1] for total in noise.sum(axis=1).tolist())
    assert 0.95 - 4 * math.sqrt(0.95 * 0.05 / n) <= covered <= 0.975
    assert alarms <= ALARM * n + 4 * math.sqrt(ALARM * n)


def test_a_number_as_if_of_half_the_noise_raises_false_alarms() -> None:
    """The other direction: with noise twice as large as is said, alarms are frequent."""
    rng = np.random.default_rng(5)
    totals = 2 * laplace(rng, (4000, 1))[:, 0]
    alarms = sum(found(frontier(0, total)).shown for total in totals.tolist())
    assert alarms > 10 * ALARM * 4000
