"""A history from rows of sums: bodies as of the events themselves, one sketch at a time, and refusals with reasons.

Where numbers are compared, no noise is drawn (`bare`).
"""

from __future__ import annotations

import datetime
import functools
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import sketchstream as ss
from helpers.kind_cases import PAIRS
from helpers.noiseless import without_noise
from sketchstream.config.loader import Config
from sketchstream.stream.windows.calendar import Calendar, Width, iso
from sketchstream.stream.windows.plans import SketchPlan

KEY = ss.Key(bytes(range(16)))
HOUR = 3_600_000
DAY = 24 * HOUR
START = 19_000 * DAY
E: dict[str, Any] = {"epsilon": "1", "delta": "1e-6", "intrusion": False}
STATE: dict[str, Any] = {"publish": "state", "intrusion": False}
GROUPS = ss.Groups(["a", "b"], True)
OPEN = ss.OpenDomain(slots=256, levels=2)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise, for one test."""
    without_noise(monkeypatch)


@functools.cache
def specs() -> dict[str, tuple[Any, list[Any], list[Any] | None]]:
    """Specs, items and weights."""
    return {
        "items": (
            ss.ProfileSpec("1", domain=OPEN, max_weight=3, **STATE),
            [f"u{i % 7}" for i in range(40)],
            [1, 3, -2, 1] * 10,
        ),
        "residues": (ss.ProfileSpec("1", "item", OPEN, **STATE), [i % 9 for i in range(40)], None),
        "groups": (
            ss.ProfileSpec(
                "1", domain=OPEN, groups=ss.Groups(["a", "b"], True), total_share="1/9", counted=True, **STATE
            ),
            [("abc"[i % 3], f"u{i % 4}") for i in range(40)],
            None,
        ),
        "fractions": (
            ss.GaussianSpec(domain=ss.ClosedDomain(items=["x", "y"]), max_weight="2.5", fraction_bits=3, **E),
            ["x", "y", "x", "elsewhere"] * 10,
            [0.3, -1.7, 2.5, 1] * 10,
        ),
        "series": (
            ss.ConvolutionSpec("window:4", 24, noise="gaussian", max_weight=2, **E),
            [i % 24 for i in range(40)],
            [1, -2] * 20,
        ),
        "queries": (ss.WorkloadSpec("prefix:12", mechanism="gaussian", **E), [i % 13 for i in range(39)], None),
        "rows": (ss.ProjectionSpec(12, 40, 16, max_weight=3, **E), (PAIRS * 2)[:40], [1, -2, 3, 0] * 10),
    }


def rows_of(spec: Any, events: list[tuple[int, Any, Any]]) -> list[dict[str, Any]]:
    """Rows of an exact GROUP BY, ordered by window."""
    lattice, sums = getattr(spec, "lattice", None), defaultdict(list)
    for window, item, weight in events:
        sums[window, item].append(weight if lattice is None else lattice.weight(weight))
    out = []
    for (window, item), weights in sorted(sums.items(), key=lambda one: (one[0][0], str(one[0][1]))):
        named = {"item": item}
        if isinstance(item, tuple):
            named = {"row" if spec.kind == "projection" else "group": item[0], "item": item[1]}
        out.append({"window": window, **named, "sum": sum(weights), "events": len(weights)})
    return out


def batches(rows: list[dict[str, Any]], size: int = 5) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[first : first + size])


def numbers(published: Any) -> list[int]:
    found = published.noised if hasattr(published, "noised") else published.state
    return [*np.asarray(found).ravel().tolist(), *(one.value for one in published.counters)]


@pytest.mark.parametrize("name", ["items", "residues", "groups", "fractions", "series", "queries", "rows"])
@pytest.mark.usefixtures("bare")
def test_bodies_are_those_of_the_events(name: str) -> None:
    spec, items, weights = specs()[name]
    key = KEY if spec.needs_key else None
    events = [(START + i * 16 % 3 * DAY, item, 1 if weights is None else weights[i]) for i, item in enumerate(items)]
    found = list(ss.backfill(batches(rows_of(spec, events)), spec, key, name="history", revision=2))
    assert [one.origin.window for one in found] == [(START + day * DAY, START + (day + 1) * DAY) for day in range(3)]
    for body in found:
        assert (body.origin.name, body.origin.revision) == ("history", 2)
        sketch = ss.Sketch.create(spec, key, origin=body.origin)  # a secret matrix, and nothing else, depends on it
        here = [(item, weight) for start, item, weight in events if start == body.origin.window[0]]
        sketch.update([item for item, _ in here], [weight for _, weight in here], invalid="noop")
        other = sketch.seal()
        assert numbers(body) == numbers(other)
        assert any(numbers(body))
        assert body.ledger.totals() == other.ledger.totals()
        assert ss.load(body.to_bytes()).to_bytes() == body.to_bytes()


@pytest.mark.usefixtures("bare")
def test_every_form_of_an_arrow_stream_is_read() -> None:
    spec = ss.ProfileSpec("1", domain=ss.ClosedDomain(size=100), **STATE)
    table = pa.table(
        {
            "window": pa.array([iso_time(day) for day in (0, 0, 1)], pa.timestamp("us", "Europe/Paris")),
            "item": pa.array([7, 7, 8], pa.int32()),
            "sum": pa.array([Decimal(2), Decimal(1), Decimal(4)], pa.decimal128(38, 0)),  # as engines widen sums
            "events": pa.array([2, 1, 4], pa.uint32()),
        }
    )
    relation = duckdb.from_arrow(table)
    seen = []
    for rows in (table, table.to_reader(), table.to_batches(), iter(table.to_batches(1)), relation):
        found = list(ss.backfill(rows, spec))
        assert [one.origin.window[0] for one in found] == [START, START + DAY]
        seen.append([numbers(one) for one in found])
    assert all(one == seen[0] for one in seen)
    (single,) = ss.backfill(table.slice(0, 2).to_batches()[0], spec)
    assert numbers(single) == seen[0][0]


def iso_time(day: int) -> Any:
    return datetime.datetime.fromtimestamp(START / 1000 + day * 86400, datetime.UTC)


def test_one_sketch_is_open_at_a_time_and_rows_are_read_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, read, made = ss.ProfileSpec("1", domain=ss.ClosedDomain(size=100)), [], []
    create = ss.Sketch.create

    def counting(*args: Any, **named: Any) -> Any:
        assert all(one.closed for one in made)
        made.append(create(*args, **named))
        return made[-1]

    def rows() -> Iterator[pa.RecordBatch]:
        for day in range(5):
            for _ in range(3):
                read.append(day)
                yield next(batches([{"window": START + day * DAY, "item": 3, "sum": 1, "events": 1}]))

    monkeypatch.setattr(ss.Sketch, "create", counting)
    bodies = ss.backfill(rows(), spec)
    assert not read
    for day in range(5):
        next(bodies)
        assert read.count(day) == 3
        assert max(read) == min(day + 1, 4)
    assert len(made) == 5


def test_a_plan_has_its_own_windows_those_of_clock_changes_too(tmp_path: Any) -> None:
    text = """
[input]
file = "x.parquet"
item = "item"
item_type = "int"
time = "ts"
[[sketch]]
name = "daily"
kind = "gaussian"
domain = { size = 10 }
epsilon = "1"
delta = "1e-6"
intrusion = false
window = "1d"
timezone = "America/New_York"
"""
    plan = Config.parse(text, tmp_path / "c.toml").plan("daily")
    calendar = Calendar(Width.parse("1d"), "America/New_York")
    start = calendar.window(1_678_600_000_000)[0]  # 12 March 2023: 23 hours
    (body,) = ss.backfill(batches([{"window": start, "item": 3, "sum": 5, "events": 5}]), plan, records={start: 5})
    assert body.origin.window == (start, start + 23 * HOUR)
    assert body.origin.name == "daily"
    with pytest.raises(ss.FormatError, match="no window of 1d"):
        next(
            ss.backfill(batches([{"window": start + HOUR, "item": 3, "sum": 5, "events": 5}]), plan, records={start: 5})
        )
    hopping = SketchPlan("week", plan.spec, Calendar(Width.parse("1d")), 7)
    (body,) = ss.backfill(batches([{"window": START, "item": 3, "sum": 5, "events": 5}]), hopping, records={START: 5})
    assert body.origin.window == (START, START + 7 * DAY)


@pytest.mark.usefixtures("bare")
def test_the_number_of_records_is_given_or_not_published() -> None:
    spec = ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=5), total_share="1/9", epsilon_records="1")
    rows = [{"window": START, "item": 3, "sum": 5, "events": 5}]
    with pytest.raises(ss.SpecError, match="how many records"):
        ss.backfill(batches(rows), spec)
    (body,) = ss.backfill(batches(rows), spec, records={START: 12})
    assert {one.name: one.value for one in body.counters}["admitted"] == 12
    with pytest.raises(ss.SpecError, match=iso(START)):
        next(ss.backfill(batches(rows), spec, records={}))


def column(**changed: Any) -> list[pa.RecordBatch]:
    """One good row with another column."""
    usual = {"window": pa.array([START]), "item": pa.array([3]), "sum": pa.array([1]), "events": pa.array([1])}
    columns = {name: one for name, one in (usual | changed).items() if one is not None}
    return [pa.RecordBatch.from_pydict(columns)]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (column(sum=pa.array([1.0])), "order of addition"),
        (column(events=pa.array([1.0])), "order of addition"),
        (column(sum=pa.array(["1"])), "integers were expected"),
        (column(sum=pa.array([None], pa.int64())), "missing"),
        (column(sum=pa.array([1 << 63], pa.uint64())), "64 bits"),
        (column(sum=pa.array([Decimal(1 << 63)], pa.decimal128(38, 0))), "64 bits"),
        (column(sum=pa.array([Decimal("1.5")], pa.decimal128(38, 1))), "integers were expected"),
        (column(item=pa.array([3.0])), "bit by bit"),
        (column(item=pa.array([True])), "bit by bit"),
        (column(item=pa.array([None], pa.int64())), "no events"),
        (column(window=pa.array([START], pa.timestamp("ms"))), "without a time zone"),
        (column(window=pa.array([START * 1000 + 1], pa.timestamp("us", "UTC"))), "whole number of milliseconds"),
        (column(window=pa.array([19_000], pa.date32())), "integers were expected"),
        (column(window=pa.array([START + 1])), "no window of 1d"),
        (column(window=pa.array([1 << 62])), "no window of 1d"),
        (column(item=None), "no column 'item'"),
        (column(group=pa.array(["a"])), "leave it out"),
        (column() + column(window=pa.array([START + DAY])) + column(), "order the rows"),
        ([3], "record batches"),
        (3, "Arrow stream"),
    ],
)
def test_rows_are_refused_with_the_reason(rows: Any, reason: str) -> None:
    spec = ss.ProfileSpec("1", domain=ss.ClosedDomain(size=100))
    with pytest.raises(ss.FormatError, match=reason):
        list(ss.backfill(rows, spec))


@pytest.mark.usefixtures("bare")
def test_weights_are_judged_before_they_are_added_up() -> None:
    spec = ss.ProfileSpec("1", domain=ss.ClosedDomain(size=100), max_weight=3)
    with pytest.raises(ss.WeightError, match="event by event"):
        list(ss.backfill(column(sum=pa.array([4])), spec))
    with pytest.raises(ss.DomainError, match="position 0"):
        list(ss.backfill(column(item=pa.array([100])), spec, invalid="error"))
    (left_out,) = ss.backfill(
        column(item=pa.array([100])), ss.ProfileSpec("1", domain=ss.ClosedDomain(size=100), **STATE)
    )
    (empty,) = ss.backfill(column(sum=pa.array([0])), ss.ProfileSpec("1", domain=ss.ClosedDomain(size=100), **STATE))
    assert numbers(left_out) == numbers(empty)


def test_what_sums_do_not_say_is_refused_before_a_row_is_read() -> None:
    groups = ss.Groups(["a", "b"])
    presence = ss.ProfileSpec("2", "item", OPEN, groups=groups, overlap=True, counts="presence")
    with pytest.raises(ss.SpecError, match="random residue"):
        ss.backfill(iter(()), presence, KEY)
    with pytest.raises(ss.KeyMismatchError):
        ss.backfill(iter(()), specs()["items"][0])
    assert not list(ss.backfill(iter(()), specs()["items"][0], KEY))
