"""Expected errors of sets of groups are those that sketches then have, and impossible expectations are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

import sketchstream as ss
from sketchstream.errors import EstimateError, SpecError
from sketchstream.items.arrays import Items
from sketchstream.kinds.profile.groups import Grouped
from sketchstream.kinds.profile.overlap.forecast import forecast

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
NAMES = ("spring", "a & b", "brand")
ITEMS, SHARED, RUNS = 3000, 0.25, 120
OPEN = ss.OpenDomain(2**13, 4)
CLOSED = ss.ClosedDomain(size=9000)


def spec_of(domain, groups=NAMES, **more) -> ss.ProfileSpec:
    fields = {"counts": "presence", "epsilon_overlap": "1", "overlap": True} | more
    return ss.ProfileSpec("3", "item", domain, groups=ss.Groups(groups), **fields)


def measured(spec: ss.ProfileSpec) -> list[list[float]]:
    """Answers of sketches with fresh noise, in the order of the rows of a forecast."""
    both, found = round(ITEMS * SHARED), []
    queries = ("spring", "spring | 'a & b'", "spring & 'a & b'", "spring - 'a & b'", "spring & 'a & b' & brand",
               "spring | 'a & b' | brand", "spring - ('a & b' | brand)")  # fmt: skip
    for _ in range(RUNS):
        key = ss.Key.generate() if isinstance(spec.domain, ss.OpenDomain) else None
        sketch = ss.Sketch.create(spec, key)
        for at in range(len(NAMES)):
            own = np.arange(ITEMS - both) + both + at * (ITEMS - both)
            items = np.concatenate([np.arange(both), own])
            sketch.update(Grouped(np.full(len(items), at, np.int32), Items.of(items)))
        overlap = sketch.seal().overlap()
        found.append([overlap.query(one).value for one in queries])
    return found


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("domain", "more"),
    [(OPEN, {}), (CLOSED, {}), (OPEN, {"counts": "modulus", "modulus": 16, "epsilon_publish": "1"})],
)
def test_expected_errors_are_those_that_are_measured(domain, more: dict) -> None:
    spec = spec_of(domain, **more)
    rows = forecast(spec, ITEMS, shared=SHARED).rows()
    found = np.array(measured(spec))
    sds = found.std(axis=0, ddof=1)
    for row, sd, mean in zip(rows, sds, found.mean(axis=0), strict=True):
        # no items are in exactly two groups here: as no region is negative, those are found a bit too large, and what
        # is in all groups a bit too small and more exact than told
        assert abs(mean - row["expected"]) < (0.7 + 5 / math.sqrt(RUNS)) * row["sd"]
        assert 0.6 < sd / row["sd"] < 1.35, (row, sd)


def test_more_shared_noise_or_fewer_slots_cost_accuracy() -> None:
    usual = forecast(spec_of(OPEN), ITEMS).rows()
    for other in (
        forecast(spec_of(ss.OpenDomain(2**11, 4)), ITEMS),
        forecast(spec_of(OPEN, epsilon_overlap="1/16"), ITEMS),
        forecast(spec_of(OPEN), ITEMS, parts=16),
    ):
        worse = [one["sd"] > before["sd"] for one, before in zip(other.rows(), usual, strict=True)]
        assert all(worse) or other.parts == 16


def test_of_two_groups_there_are_four_rows_and_a_share_of_nothing_is_none() -> None:
    found = forecast(spec_of(OPEN, ("a", "b")), ITEMS, shared=0)
    assert [row["set"] for row in found.rows()] == [
        "one group", "one group or another", "one group and another", "one group but not another"
    ]  # fmt: skip
    assert found.rows()[2]["relative"] is None
    assert found.notes() == []


@pytest.mark.parametrize(
    ("spec", "items", "shared", "error", "says"),
    [
        (ss.ProfileSpec("3", "item", CLOSED, groups=ss.Groups(NAMES)), 10, 0.1, SpecError, "need overlap"),
        (spec_of(OPEN), 10, 1.5, SpecError, "from 0 to 1, found 1.5"),
        (spec_of(OPEN), 0, 0.1, SpecError, "from 1 to 10.12"),
        (spec_of(CLOSED), 9000, 0.1, SpecError, "do not fit a closed domain of 9,000"),
        (spec_of(ss.OpenDomain(2**8, 1)), 1e7, 0.1, EstimateError, "full"),
    ],
)
def test_impossible_expectations_are_refused(spec, items: float, shared: float, error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        forecast(spec, items, shared=shared)
