"""A history in Parquet files: bodies as of a worker over the same files, dirty values included; drawn once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sketchstream as ss
from helpers.commands import Run
from helpers.noiseless import without_noise
from helpers.paths import ROOT
from sketchstream import faults
from sketchstream.config.loader import Config
from sketchstream.items.arrays import Items
from sketchstream.query.times import to_ms
from sketchstream.sketch import Sketch
from sketchstream.topics import HISTORY
from sketchstream_connectors.decode.times import TO_MS
from sketchstream_connectors.factory import file_worker
from sketchstream_connectors.files.sealed import DirectorySealed
from sketchstream_connectors.files.store import DirectoryStore
from sketchstream_connectors.lake.count import UNKNOWN, _judge_rows, _sum_rows, bounds, extents, fill, row_groups
from sketchstream_connectors.lake.engines import SUM, WEIGHED
from sketchstream_connectors.lake.job import BackfillJob, booked_rows

HOUR = 3_600_000
START = to_ms("2023-03-10T05:00:00Z", "") or 0
"""Midnight in New York, two days before its clocks change."""
DAYS = 4
END = START + (24 * DAYS - 1) * HOUR

INPUT = """
[input]
file = "events.parquet"
item = "user"
time = "ts"
time_unit = "{unit}"
weight = "w"
close_at_end = true
lateness = "1h"

[key]
file = "key"

[output]
directory = "{out}"

[store]
path = "{out}.state"
"""
BARE = 'publish = "state"\nintrusion = false\n'
PROFILE = f'kind = "profile"\nepsilon = "1"\n{BARE}'
LINEAR = 'epsilon = "1"\ndelta = "1e-6"\nintrusion = false\nunit = "event"\n'
DAILY = 'window = "1d"\ntimezone = "America/New_York"\n'
SKETCHES = {
    "distinct": f'{PROFILE}unit = "event"\ndomain = {{ slots = 256, levels = 2 }}\nmax_weight = 3',
    "people": f'{PROFILE}unit = "item"\ndomain = {{ slots = 256 }}\nmodulus = 16',
    "by_kind": f'{PROFILE}unit = "event"\ndomain = {{ slots = 64 }}\ngroup_by = "kind"\ngroups = ["a", "b"]\n'
    "other_group = true",
    "only_a": f'{PROFILE}unit = "event"\ndomain = {{ slots = 64 }}\nwhere = {{ kind = ["a", "7"] }}',
    "sums": f'kind = "gaussian"\n{LINEAR}fraction_bits = 3\ndomain = {{ items_file = "users.txt" }}\n'
    'max_weight = "2.5"',
    "hours": f'kind = "convolution"\n{LINEAR}kernel = "window:4"\nstep = "1h"\nnoise = "gaussian"\nmax_weight = 2',
    "tables": f'kind = "workload"\n{LINEAR}mechanism = "gaussian"\nworkload = ["marginals:1"]\n'
    '[[sketch.columns]]\nname = "kind"\nvalues = ["a", "b", "7"]\nother = true',
    "rows": f'kind = "projection"\n{LINEAR}row = "kind"\nrows = {{ items_file = "kinds.txt" }}\nk = 8\n'
    'domain = { items_file = "users.txt" }\nmax_weight = 3',
}
BACK = f'{PROFILE}unit = "item"\ndomain = {{ slots = 64 }}\nperiods = "12h"'


def config(folder: Path, *names: str, out: str = "sealed", lines: str = "", unit: str = "ms") -> Config:
    """A configuration over `events.parquet`."""
    text = INPUT.format(out=out, unit=unit)
    for name in names:
        text += f'\n[[sketch]]\nname = "{name}"\n{lines or DAILY}{SKETCHES.get(name, BACK)}\n'
    path = folder / f"{out}.toml"
    path.write_text(text)
    (folder / "users.txt").write_text("u1\nu2\n5\n")
    (folder / "kinds.txt").write_text("a\nb\n")
    if not (folder / "key").exists():
        ss.Key.generate().save(folder / "key")
    return Config.load(path)


def table(n: int = 400, **changed: Any) -> pa.Table:
    """Events of four days in the order of time: some without item, weight or kind, or with weights that are none."""
    number = np.arange(n)
    times = START * 1000 + number * (END - START) * 1000 // n + number % 3
    users = [None if i % 17 == 5 else f"u{i * i % 11}" if i % 5 else "5" for i in range(n)]
    weights = [
        None if i % 13 == 2 else [1.0, 2.0, -1.0, 0.3, 100.0, float("nan"), -0.0][i * 7 % 7 or i % 7] for i in range(n)
    ]
    kinds = [None if i % 19 == 3 else "abc7"[i % 4] for i in range(n)]
    columns = {
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
        "user": pa.array(users),
        "w": pa.array(weights),
        "kind": pa.array(kinds).dictionary_encode(),
    }
    return pa.table(columns | changed)


def write(folder: Path, rows: pa.Table, files: int = 3) -> None:
    """The rows as a folder of files."""
    for number in range(files):
        path = folder / "events.parquet" / f"part-{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        step = -(-rows.num_rows // files)
        pq.write_table(rows.slice(number * step, step), path, row_group_size=50)


def bodies(given: Config) -> dict[tuple[str, int], Any]:
    """What is published, by sketch and start of the window."""
    assert given.sealed_directory is not None
    found = DirectorySealed(given.sealed_directory).read()
    return {(one.sketch, one.window[0]): ss.load(one.body) for one in found if hasattr(one, "body")}  # type: ignore[union-attr]


def numbers(body: Any) -> list[int]:
    shown = body.noised if hasattr(body, "noised") else body.state
    return [*shown.ravel().tolist(), *(one.value for one in body.counters)]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise, for one test."""
    without_noise(monkeypatch)


def run_all(given: Config, start: int = START, end: int = END, engine: str = "duckdb", again: str = "") -> list[str]:
    job = BackfillJob(given, start, end, engine=engine, again=again)
    try:
        return [one.outcome for one in job.run()]
    finally:
        job.close()


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("name", SKETCHES)
def test_bodies_are_those_of_a_worker_over_the_same_files(name: str, tmp_path: Path) -> None:
    write(tmp_path, table())
    live, history = config(tmp_path, name, out="live"), config(tmp_path, name, out="history")
    file_worker(live).run()
    assert run_all(history) == ["published"] * DAYS
    wanted, found = bodies(live), bodies(history)
    assert found.keys() == wanted.keys()
    assert len(found) == DAYS
    for place, body in found.items():
        assert numbers(body) == numbers(wanted[place]), place
        said = body.origin
        assert replace(said, partition=0, table=None) == wanted[place].origin
        assert (said.partition, said.table[0]) == (HISTORY, "events.parquet")
        assert body.ledger.totals() == wanted[place].ledger.totals()
        assert any(numbers(body))
    assert len({tuple(numbers(body)) for body in found.values()}) > 1


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("hours", 'window = "6h"\n'),
        ("back", 'window = "2d"\n'),
        ("people", 'window = "2d"\nevery = "12h"\ntimezone = "America/New_York"\n'),
    ],
)
def test_every_calendar_has_the_windows_of_a_worker(name: str, lines: str, tmp_path: Path) -> None:
    write(tmp_path, table())
    live, history = (config(tmp_path, name, out=out, lines=lines) for out in ("live", "history"))
    file_worker(live).run()
    wanted = bodies(live)
    assert {*run_all(history, START - 48 * HOUR, END + 48 * HOUR)} - {"no records"} == {"published"}
    found = bodies(history)
    assert found.keys() == wanted.keys()
    assert all(numbers(found[place]) == numbers(wanted[place]) for place in wanted)


TIME = table()["ts"]
OTHER: dict[str, dict[str, Any]] = {
    "ms as integers": {"ts": TIME.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())},
    "nanoseconds": {"ts": TIME.cast(pa.timestamp("ns", "Europe/Paris"))},
    "items are integers": {"user": pa.array([i % 9 - 4 for i in range(400)], pa.int8())},
    "large integers": {"user": pa.array([(1 << 63) + i % 9 for i in range(400)], pa.uint64())},
    "items are bytes": {"user": pa.array([b"\xff%d" % (i % 9) if i % 3 else b"u1" for i in range(400)])},
    "weights are decimals": {"w": pa.array([Decimal(i % 5) / 2 for i in range(400)], pa.decimal128(9, 1))},
    "weights are integers": {"w": pa.array([i % 5 - 1 for i in range(400)], pa.int16())},
    "weights are integers, or missing": {
        "w": pa.array([None if i % 7 == 3 else i % 9 - 4 for i in range(400)], pa.int8())
    },
    "weights have no sign": {"w": pa.array([[0, 1, 2, 3, 4, 2**32 - 1][i % 6] for i in range(400)], pa.uint32())},
    "weights have no sign and 64 bits": {
        "w": pa.array([[1, 2, 2**63, 2**64 - 1][i % 4] for i in range(400)], pa.uint64())
    },
    "weights are the item": {"w": pa.array([i % 5 for i in range(400)]), "user": pa.array([i % 5 for i in range(400)])},
    "weights are large": {"w": pa.array([(1 << 63) - 1 if i % 2 else 1 for i in range(400)], pa.int64())},
    "weights are wide decimals": {
        "w": pa.array(
            [[Decimal("1.5"), Decimal(-(10**30)), None, Decimal("0.125")][i % 4] for i in range(400)],
            pa.decimal128(38, 3),
        )
    },
    "texts look alike": {
        "user": pa.array(
            [["a", "A", "a ", "\xe4", "a\u0308", "", "\u0130", "i", "\xdf", "ss", "a\0"][i % 11] for i in range(400)]
        ),
        "kind": pa.array([["a", "A", "a ", " a"][i % 4] for i in range(400)]),
    },
    "kinds are integers": {"kind": pa.array([i % 9 for i in range(400)], pa.int32())},
}


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("what", OTHER)
def test_columns_of_other_types_mean_what_they_mean_to_a_worker(what: str, tmp_path: Path) -> None:
    names = ["distinct", "only_a", "sums"]
    write(tmp_path, table(**OTHER[what]))
    live, history = (config(tmp_path, *names, out=out) for out in ("live", "history"))
    file_worker(live).run()
    run_all(history)
    wanted, found = bodies(live), bodies(history)
    assert found.keys() == wanted.keys()
    assert len(found) == DAYS * len(names)
    assert all(numbers(found[place]) == numbers(wanted[place]) for place in wanted)


TIMES = {
    "seconds": ("s", pa.int64()),
    "seconds in 32 bits": ("s", pa.int32()),
    "milliseconds": ("ms", pa.int64()),
    "microseconds": ("us", pa.int64()),
    "microseconds before 1970": ("us", pa.int64()),
    "nanoseconds as integers": ("ns", pa.int64()),
}
"""Integers of `input.time_unit`."""
OTHER_ENGINES = ["polars", pytest.param("spark", marks=[pytest.mark.slow, pytest.mark.spark])]
NOT_READ = {"duckdb": (), "polars": (), "spark": ("nanoseconds", "large integers", "weights have no sign and 64 bits")}
"""Types that an engine reads as something else, or not at all: refused with the reason."""


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "spark":
        request.getfixturevalue("spark")
    return str(request.param)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("engine", ["duckdb", *OTHER_ENGINES], indirect=True)
@pytest.mark.parametrize("what", ["as it is", "whole weights", "before 1970", "the clock goes back", *OTHER, *TIMES])
def test_every_engine_counts_what_a_worker_counts(what: str, engine: str, tmp_path: Path) -> None:
    names = ["distinct", "only_a", "sums"] if what in OTHER else [*SKETCHES]
    changed, start, end = OTHER.get(what, {}), START, END
    if what == "whole weights":  # which engines add up
        changed = OTHER["weights are integers, or missing"]
    if what == "the clock goes back":  # the day of 25 hours, and hours that come twice
        start, end = (to_ms(f"2023-11-{day}", "") or 0 for day in ("04T00:00:00-04:00", "07T00:00:00-05:00"))
        times = [start * 1000 + i * (end - start) * 1000 // 400 + i % 3 for i in range(400)]
        changed = {"ts": pa.array(times, pa.timestamp("us", "America/New_York"))}
    if what == "before 1970":  # odd microseconds: brought to milliseconds toward zero, to the edges of the windows too
        start, end = (to_ms(f"1969-12-{day}T05:00:00Z", "") or 0 for day in (29, 31))
        edge = (end - 24 * HOUR) * 1000
        times = [edge + (i % 5 - 2) * 500 if i % 3 else start * 1000 + i * 400_000_007 for i in range(400)]
        changed = {"ts": pa.array(times, pa.timestamp("us", "UTC"))}
    unit = "ms"
    if what in TIMES:
        unit, kind = TIMES[what]
        us = np.array([START * 1000 + i * (END - START) * 1000 // 400 + i % 7 * 333 for i in range(400)])
        if what.endswith("1970"):  # to the edges of the windows too, rounded down
            start, end = (to_ms(f"1969-12-{day}T05:00:00Z", "") or 0 for day in (29, 31))
            edge = (end - 24 * HOUR) * 1000
            us = np.array([edge + (i % 5 - 2) * 500 if i % 3 else start * 1000 + i * 400_000_007 for i in range(400)])
        times = us * 1000 + np.arange(400) % 7 if unit == "ns" else us // {"s": 10**6, "ms": 1000, "us": 1}[unit]
        changed = {"ts": pa.array(times).cast(kind)}
    write(tmp_path, table(**changed))
    live, history = (config(tmp_path, *names, out=out, unit=unit) for out in ("live", "history"))
    if what in NOT_READ[engine]:
        with pytest.raises(ss.FormatError, match=r"cannot count these rows|would count other items"):
            run_all(history, start, end, engine)
        assert not bodies(history)
        return
    file_worker(live).run()
    run_all(history, start, end, engine)
    wanted, found = bodies(live), bodies(history)
    wanted = {place: body for place, body in wanted.items() if start <= place[1] < end}
    assert found.keys() == wanted.keys()
    assert len(found) >= 2 * len(names)
    assert all(numbers(found[place]) == numbers(wanted[place]) for place in wanted)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("bare", "spark")
def test_spark_brings_the_rows_of_a_window_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import DataFrame, SparkSession

    session = SparkSession.getActiveSession()
    assert session is not None
    fetch = type(session.range(1)).toArrow
    fetched: list[int] = []

    def fetching(self: DataFrame) -> pa.Table:
        fetched.append(fetch(self).num_rows)
        return fetch(self)

    write(tmp_path, table())
    live, history = (config(tmp_path, "distinct", out=out) for out in ("live", "history"))
    file_worker(live).run()
    monkeypatch.setattr(type(session.range(1)), "toArrow", fetching)
    monkeypatch.setattr("sketchstream_connectors.lake.engines.MAX_ROWS", 1)
    session.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    try:
        assert run_all(history, engine="spark") == ["published"] * DAYS
    finally:
        session.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
    assert len(fetched) == 2 * DAYS, "one part of each of its two partitions"
    assert all(fetched)
    wanted, found = bodies(live), bodies(history)
    assert {place: numbers(body) for place, body in found.items()} == {
        place: numbers(body) for place, body in wanted.items()
    }
    assert not session.sparkContext._jsc.getPersistentRDDs(), "nothing is kept"


def test_an_engine_that_there_is_not_is_refused(tmp_path: Path) -> None:
    write(tmp_path, table())
    with pytest.raises(ss.ConfigError, match="duckdb, polars, spark"):
        BackfillJob(config(tmp_path, "distinct"), START, END, engine="sqlite")


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("engine", ["duckdb", *OTHER_ENGINES], indirect=True)
def test_whole_weights_make_no_row_of_their_own(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = pa.array([i % 100 for i in range(400)], pa.int32())
    write(tmp_path, table(w=weights, user=pa.array(["u1"] * 400)))
    rows: list[int] = []

    def noted(sketch: Sketch, batches: Any) -> int:
        found = list(batches)
        rows.extend(len(items) for _, items, _, _ in found)
        return fill(sketch, found)

    monkeypatch.setattr("sketchstream_connectors.lake.job.fill", noted)
    run_all(config(tmp_path, "distinct"), engine=engine)
    assert rows == [1] * DAYS


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("engine", ["duckdb", *OTHER_ENGINES], indirect=True)
@pytest.mark.parametrize(("odd", "plain"), [(0, True), (None, False), (1 << 40, False), (-(1 << 40), False)])
def test_weights_that_footers_bound_are_added_up_as_they_are(
    odd: int | None, plain: bool, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = [*(i % 5 - 2 for i in range(399)), odd]
    write(tmp_path, table(w=pa.array(weights, pa.int64())))
    asked: set[bool] = set()

    def noted(plan: Any, layout: Any, window: tuple[int, int], batch: Any) -> Any:
        asked.add(WEIGHED not in batch.schema.names)
        return _judge_rows(plan, layout, window, batch)

    monkeypatch.setattr("sketchstream_connectors.lake.count._judge_rows", noted)
    live, history = (config(tmp_path, "sums", out=out) for out in ("live", "history"))
    file_worker(live).run()
    run_all(history, engine=engine)
    assert asked == {plain}
    wanted, found = bodies(live), bodies(history)
    assert found.keys() == wanted.keys()
    assert len(found) == DAYS
    assert all(numbers(found[place]) == numbers(wanted[place]) for place in wanted)


def test_footers_tell_the_smallest_and_the_largest_weight(tmp_path: Path) -> None:
    path = tmp_path / "w.parquet"
    rows = pa.table({"w": pa.array([3, -2, 7, None, 5, 5], pa.int16())})
    pq.write_table(rows, path, row_group_size=2)
    assert [*extents(pq.read_metadata(path), "w")] == [(-2, 3), UNKNOWN, (5, 5)]
    pq.write_table(rows, path, row_group_size=2, write_statistics=False)
    assert [*extents(pq.read_metadata(path), "w")] == [UNKNOWN] * 3


@pytest.mark.parametrize("unit", ["ms", "us", "ns", "integers", "no statistics"])
def test_footers_bound_the_number_of_events(unit: str, tmp_path: Path) -> None:
    bits = np.random.default_rng(5)
    for case in range(20):
        times = np.sort(bits.integers(-50, 50, 90)) if case % 2 else bits.integers(-50, 50, 90)
        scale = {"us": 1000, "ns": 1_000_000}.get(unit, 1)
        column = pa.array(times * scale + (bits.integers(-scale, scale, 90) if scale > 1 else 0))
        if unit in ("ms", "us", "ns"):
            column = column.cast(pa.timestamp(unit, "UTC"))
        ms = [int(one) for one in column.cast(pa.int64()).to_numpy() / scale]  # toward zero, as a worker
        missing = bits.random(90) < 0.1
        rows = table(90, ts=pa.array(column.to_pylist(), column.type, mask=missing), user=pa.array(["u"] * 90))
        path = tmp_path / f"{case}.parquet"
        pq.write_table(rows, path, row_group_size=9, write_statistics=unit != "no statistics")
        found = [*row_groups(pq.read_metadata(path), "ts")]
        for start in range(-60, 60, 7):
            number = sum(start <= one < start + 20 for one, none in zip(ms, missing, strict=True) if not none)
            least, most = bounds(found, start, start + 20)
            assert least <= number <= most
        assert bounds(found, -100, 100) == ((0, 90) if unit == "no statistics" else (90 - missing.sum(), 90))


def test_footers_bound_events_whose_times_are_integers_of_another_unit(tmp_path: Path) -> None:
    times = np.random.default_rng(6).integers(-500, 500, 90)
    pq.write_table(table(90, ts=pa.array(times), user=pa.array(["u"] * 90)), tmp_path / "e.parquet", row_group_size=9)
    about = pq.read_metadata(tmp_path / "e.parquet")
    for unit, ms in ((TO_MS["s"], times * 1000), (TO_MS["us"], times // 1000), (TO_MS["ns"], times // 10**6)):
        found = [*row_groups(about, "ts", unit)]
        for start in range(int(ms.min()) - 5, int(ms.max()) + 5, max(1, int(np.ptp(ms)) // 9)):
            least, most = bounds(found, start, start + 20)
            assert least <= int(np.sum((ms >= start) & (ms < start + 20))) <= most


def test_times_beyond_the_years_of_python_bound_nothing(tmp_path: Path) -> None:
    far = pa.array([1 << 62, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"ts": far}), tmp_path / "far.parquet")
    assert bounds([*row_groups(pq.read_metadata(tmp_path / "far.parquet"), "ts")], 0, 1) == (0, 2)


def test_a_sum_that_may_have_wrapped_is_refused() -> None:
    """An item would need 2^61 events for it, so the row of the engine is made here."""
    spec = ss.ProfileSpec(epsilon="1", unit="event", domain=ss.OpenDomain(slots=64), max_weight=3)
    room = ((1 << 63) - 1) // 3
    items = Items.of(["u"])
    for number, refused in ((room, False), (room + 1, True)):
        batch = pa.RecordBatch.from_pydict({SUM: [7], WEIGHED: [number]})
        with pytest.raises(ss.WeightError, match="beyond 64 bits") if refused else nullcontext():
            _sum_rows(spec, batch, items, np.ones(1, np.bool_))


@pytest.mark.parametrize("engine", ["duckdb", *OTHER_ENGINES], indirect=True)
def test_sums_beyond_64_bits_are_refused_by_every_engine(engine: str, tmp_path: Path) -> None:
    write(tmp_path, table(w=pa.array([1 << 62] * 400, pa.int64()), user=pa.array(["u1"] * 400)))
    given = config(tmp_path, "people")
    with pytest.raises(ss.WeightError, match="beyond 64 bits"):
        run_all(given, engine=engine)
    assert not bodies(given)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no zone": ({"ts": TIME.cast(pa.timestamp("us"))}, "without a time zone"),
    "dates": ({"ts": TIME.cast(pa.date32())}, "were expected"),
    "texts": ({"ts": TIME.cast(pa.string())}, "were expected"),
    "structs": ({"user": pa.array([{"a": i} for i in range(400)])}, "expected"),
    "floats as items": ({"user": pa.array([0.5] * 400)}, "expected"),
    "flags as items": ({"user": pa.array([True] * 400)}, "expected"),
    "another name": ({"user": None}, "no column 'user'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_could_not_be_counted_exactly_is_refused(what: str, tmp_path: Path) -> None:
    changed, reason = REFUSED[what]
    rows = table()
    for name, column in changed.items():
        at = rows.schema.get_field_index(name)
        rows = rows.remove_column(at) if column is None else rows.set_column(at, name, column)
    write(tmp_path, rows)
    given = config(tmp_path, "distinct")
    with pytest.raises((ss.FormatError, ss.ConfigError), match=reason):
        run_all(given)
    assert not bodies(given)


def test_an_error_of_the_engine_shows_no_value(tmp_path: Path) -> None:
    marked = pa.array([b"zq7marked\xff"] * 400).view(pa.string())
    write(tmp_path, table(user=marked))
    with pytest.raises(ss.FormatError, match="not UTF-8") as caught:
        run_all(config(tmp_path, "distinct"))
    assert "zq7marked" not in "".join(traceback.format_exception(caught.value))


def test_files_of_different_types_are_refused(tmp_path: Path) -> None:
    write(tmp_path, table())
    pq.write_table(table(user=pa.array([1] * 400)), tmp_path / "events.parquet" / "part-9.parquet")
    with pytest.raises(ss.FormatError, match="another type in column 'user'"):
        BackfillJob(config(tmp_path, "distinct"), START, END)


# Drawn once.


def test_a_second_run_publishes_the_same_bytes_and_draws_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, table())
    given = config(tmp_path, "distinct")
    assert run_all(given) == ["published"] * DAYS
    first = {path: path.read_bytes() for path in (tmp_path / "sealed").rglob("*.sealed")}
    assert len(first) == DAYS
    lost, *_ = first
    lost.unlink()
    monkeypatch.setattr(Sketch, "create", lambda *_, **__: pytest.fail("noise was drawn again"))
    assert run_all(given) == ["published again"] * DAYS
    assert {path: path.read_bytes() for path in (tmp_path / "sealed").rglob("*.sealed")} == first


def test_times_of_another_unit_are_other_data(tmp_path: Path) -> None:
    write(tmp_path, table(ts=pa.array([START + i * (END - START) // 400 for i in range(400)])))
    run_all(config(tmp_path, "distinct"), START, START + 24 * HOUR)
    with pytest.raises(ss.DataLossError, match="booked for other data"):
        run_all(config(tmp_path, "distinct", unit="s"), START, START + 24 * HOUR)


def test_other_data_are_refused_for_windows_that_are_booked(tmp_path: Path) -> None:
    write(tmp_path, table())
    given = config(tmp_path, "distinct")
    run_all(given, START, START + 24 * HOUR)
    write(tmp_path, table(380))
    with pytest.raises(ss.DataLossError, match="booked for other data"):
        run_all(given)
    assert len(bodies(given)) == 1
    assert run_all(given, START + 24 * HOUR, END) == ["published"] * (DAYS - 1)
    store = DirectoryStore(given.store_path)  # as `sketchstream reset`
    store.reset()
    store.close()
    with pytest.raises(ss.ConfigError, match="--again REASON"):
        run_all(given)
    assert run_all(given, again="late files") == ["published"] * DAYS
    assert given.sealed_directory is not None
    found = DirectorySealed(given.sealed_directory).read()
    revisions = [one.revision for one in found if hasattr(one, "body")]  # type: ignore[union-attr]
    assert (revisions.count(0), revisions.count(1)) == (DAYS, DAYS)


def test_again_charges_a_second_time_once_and_says_why(tmp_path: Path, run: Run) -> None:
    write(tmp_path, table())
    given = config(tmp_path, "distinct")
    between = ("--from", "2023-03-10T00:00:00-05:00", "--to", "2023-03-14T00:00:00-04:00", "--format", "json")
    command = ("backfill", "-c", "sealed.toml", *between)
    first = json.loads(run(*command).out)
    write(tmp_path, table(380))
    assert "--again REASON" in run(*command).err
    planned = json.loads(run(*command, "--again", "late files", "--dry-run").out)
    assert planned["sketches"][0]["epsilon over revisions"] == 2 * planned["sketches"][0]["epsilon of each"]
    assert planned["snapshot"] != first["snapshot"]
    for what in ("published", "published again", "published again"):
        result = run(*command, "--again", "late files")
        assert [one["what"] for one in json.loads(result.out)["done"]] == [what] * DAYS, result.err
    rows = [row for row, has_body in booked_rows(given.history_path) if has_body]
    assert [(row["revision"], row["again"]) for row in rows] == [(0, "")] * DAYS + [(1, "late files")] * DAYS
    given.path.write_text(given.path.read_text() + "\n[privacy]\nmax_epsilon = 2\n")
    write(tmp_path, table(360))
    refused = run(*command, "--again", "and once more")
    assert refused.code != 0
    assert "max_epsilon" in refused.err
    assert len(booked_rows(given.history_path)) == 2 * DAYS


def test_again_publishes_nothing_of_a_sketch_that_was_not_booked(tmp_path: Path) -> None:
    write(tmp_path, table())
    early = 'window = "1d"\nemit_every = "6h"\nepsilon_early = "1/10"\n'

    def given() -> Config:
        loaded = config(tmp_path, "distinct", "only_a")
        early_one = SKETCHES["only_a"].replace(BARE, "")
        loaded.path.write_text(loaded.path.read_text() + f'\n[[sketch]]\nname = "early"\n{early}{early_one}\n')
        return Config.load(loaded.path)  # which has a sketch without a history too

    with pytest.raises(ss.ConfigError, match="leave --again out"):
        run_all(given(), again="nothing to correct")
    job = BackfillJob(given(), START, START + 24 * HOUR, ["distinct"])
    assert [one.outcome for one in job.run()] == ["published"]
    job.close()
    job = BackfillJob(given(), START, END, again="late files")
    assert [plan.name for plan in job.plans] == ["distinct"]
    assert [(one.sketch, one.outcome) for one in job.run()] == [("distinct", "published")] * DAYS
    job.close()
    assert {row["sketch"] for row, _ in booked_rows(given().history_path)} == {"distinct"}
    with pytest.raises(ss.ConfigError, match="leave --again out"):
        run_all(given(), END + 1, END + 72 * HOUR, again="late files")
    job = BackfillJob(given(), START, END, ["only_a"])  # its first charge, under the revision of now
    assert [one.outcome for one in job.run()] == ["published"] * DAYS
    assert job.charged(job.plans[0]) == 1
    job.close()


def test_the_ledger_shows_what_is_booked_and_has_no_body(tmp_path: Path, hooks: Any, run: Run) -> None:
    write(tmp_path, table(100))
    given = config(tmp_path, "distinct")

    def stop(reached: str) -> None:
        if reached == "backfill:sealed":
            raise Stopped

    hooks(stop)
    with pytest.raises(Stopped):
        run_all(given)
    hooks(None)
    ledger = ("ledger", "-c", "sealed.toml")
    rows = json.loads(run(*ledger, "--format", "json").out)["booked_without_body"]
    assert [(row["sketch"], row["window"][0]) for row in rows] == [("distinct", "2023-03-10T05:00:00Z")]
    assert "no body yet" in run(*ledger).out
    run_all(given)
    assert "booked_without_body" not in json.loads(run(*ledger, "--format", "json").out)
    assert "no body" not in run(*ledger).out


def test_files_that_change_while_they_are_counted_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, table())
    given = config(tmp_path, "distinct")
    update = Sketch.update_sums

    def changing(self: Any, *args: Any, **named: Any) -> None:
        os.utime(tmp_path / "events.parquet" / "part-1.parquet", (1, 1))
        update(self, *args, **named)

    monkeypatch.setattr(Sketch, "update_sums", changing)
    with pytest.raises(ss.StoreError, match="changed while"):
        run_all(given)
    assert not bodies(given)


class Stopped(BaseException):
    """The process ended here."""


@pytest.fixture
def hooks() -> Iterator[Any]:
    yield faults.install
    faults.install(None)


STEPS = [
    *(f"booked:{step}" for step in ("written", "named", "synced")),
    *("backfill:sealed", *(f"body:{step}" for step in ("written", "named", "synced"))),
    *(f"sealed:{step}" for step in ("written", "named", "synced")),
    *(f"frontier:{step}" for step in ("written", "named", "synced")),
]


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_ends_at_any_step_is_continued_with_one_body_and_one_row(
    step: str, tmp_path: Path, hooks: Any
) -> None:
    write(tmp_path, table(100))
    given = config(tmp_path, "distinct")
    folder = tmp_path / "sealed.state" / "backfill" / "distinct" / "r0"
    drawn, create, seen = [], Sketch.create.__func__, []  # type: ignore[attr-defined]

    def stop(reached: str) -> None:
        seen.append(reached)
        if reached == step and seen.count(step) == (1 if step.startswith("frontier") else 2):  # in the second window
            raise Stopped

    def creating(cls: Any, *args: Any, **named: Any) -> Any:
        start = named["origin"].window[0]
        assert len(list(folder.glob("*.booked"))) == len({*drawn, start}), "booked before the noise"
        drawn.append(start)
        return create(cls, *args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sketch, "create", classmethod(creating))
        hooks(stop)
        with pytest.raises(Stopped):
            run_all(given)
        stored = {path: path.read_bytes() for path in folder.glob("*.body")}
        shown = {path: path.read_bytes() for path in (tmp_path / "sealed").rglob("*.sealed")}
        assert {*shown.values()} <= {*stored.values()}, "stored before it is published"
        hooks(None)
        what = run_all(given)
        assert len(drawn) == DAYS + (step in ("booked:named", "booked:synced", "backfill:sealed", "body:written")) - (
            step in ("booked:named", "booked:synced")
        )
    assert what[-1] == ("published again" if step.startswith("frontier") else "published")
    assert len(bodies(given)) == len(list(folder.glob("*.booked"))) == len(list(folder.glob("*.body"))) == DAYS
    assert all(path.read_bytes() == data for path, data in (stored | shown).items())
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize(
    ("how", "kills"),
    [
        ("steps14", 14),  # the first window, and into the second one
        ("3", 3),
        pytest.param("steps99", None, marks=pytest.mark.slow),  # all steps of all windows
        pytest.param("50", 50, marks=pytest.mark.slow),
    ],
)
def test_a_process_that_is_killed_leaves_one_body_and_one_row(how: str, kills: int | None, tmp_path: Path) -> None:
    write(tmp_path, table(100))
    given = config(tmp_path, "distinct")
    script = ROOT / "tests" / "helpers" / "killed_backfill.py"
    command = [sys.executable, str(script), str(given.path), str(START), str(START + 48 * HOUR), how, "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = int(done.stdout.split()[1])
    assert found == kills if kills else found >= 2 * 11  # every window has eleven steps of its own at least


def test_of_two_processes_one_names_the_body_and_both_publish_it(tmp_path: Path, hooks: Any) -> None:
    write(tmp_path, table(100))
    given = config(tmp_path, "distinct")
    inside = []

    def other(reached: str) -> None:
        if reached == "backfill:sealed":  # before the first one stores what it has sealed
            hooks(None)
            inside.append(run_all(given))

    hooks(other)
    assert run_all(given) == ["published"] + ["published again"] * (DAYS - 1)
    assert inside == [["published"] * DAYS]
    folder = tmp_path / "sealed.state" / "backfill" / "distinct" / "r0"
    stored = sorted(path.read_bytes() for path in folder.glob("*.body"))
    assert sorted(path.read_bytes() for path in (tmp_path / "sealed").rglob("*.sealed")) == stored


def test_no_window_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, table())
    given = config(tmp_path, "distinct")
    run_all(given, START, START + 24 * HOUR)
    with pytest.raises(ss.ConfigError, match="no window is passed over"):
        run_all(given, START + 47 * HOUR, END)


@pytest.mark.parametrize("dry", [True, False])
def test_the_command_refuses_windows_that_have_not_ended(
    dry: bool, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year too many in --to would make every live record of a year late, and a claim is never given up."""
    write(tmp_path, table())
    config(tmp_path, "distinct")
    monkeypatch.setattr("time.time_ns", lambda: (START + 60 * HOUR) * 1_000_000)
    command = ("backfill", "-c", "sealed.toml", "--from", "2023-03-10T00:00:00-05:00", *(["--dry-run"] if dry else []))
    refused = run(*command, "--to", "2024-03-14T00:00:00-04:00")
    assert refused.code == 2
    assert "begins at 2023-03-12T05:00:00Z has not ended" in refused.err
    assert not (tmp_path / "sealed.state").exists()
    assert run(*command, "--to", "2023-03-12T05:00:00Z").code == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("events.jsonl", "backfill reads Parquet"),
        ('publish = "state"', "open windows"),
    ],
)
def test_configurations_without_a_history_are_refused(text: str, reason: str, tmp_path: Path) -> None:
    write(tmp_path, table())
    path = config(tmp_path, "distinct").path
    if text.startswith("events"):
        path.write_text(path.read_text().replace("events.parquet", text))
    else:
        early = 'emit_every = "6h"\nepsilon_early = "1/10"\n'
        path.write_text(path.read_text().replace(BARE, early))
    with pytest.raises(ss.ConfigError, match=reason):
        BackfillJob(Config.load(path), START, END)


@pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
def test_the_command_publishes_what_a_worker_publishes_at_epsilon_30(tmp_path: Path, run: Run) -> None:
    write(tmp_path, table())
    for out in ("live", "history"):
        path = config(tmp_path, "only_a", out=out).path
        path.write_text(path.read_text().replace('epsilon = "1"', 'epsilon = "30"'))
    assert run("worker", "-c", "live.toml").code == 0
    between = ("--from", "2023-03-10T00:00:00-05:00", "--to", "2023-03-14T00:00:00-04:00")
    planned = json.loads(run("backfill", "-c", "history.toml", *between, "--dry-run", "--format", "json").out)
    assert planned["sketches"] == [
        {
            "sketch": "only_a",
            "windows": DAYS,
            "unit": "event",
            "epsilon of each": 30.0,
            "epsilon over revisions": 30.0,
            "bytes in memory": 64 * 4,
        }
    ]
    assert (planned["rows"], planned["files"], planned["table"]) == (400, 3, "events.parquet")
    assert not (tmp_path / "history").exists()
    result = run("backfill", "-c", "history.toml", *between, "--format", "json")
    assert result.code == 0, result.err
    said = json.loads(result.out)
    assert [one["what"] for one in said["done"]] == ["published"] * DAYS
    assert "not claimed" in said["input"]
    wanted, found = (bodies(Config.load(tmp_path / f"{out}.toml")) for out in ("live", "history"))
    assert {place: one.state.tolist() for place, one in found.items()} == {
        place: one.state.tolist() for place, one in wanted.items()
    }
    shown = [list(ss.windows(tmp_path / f"{out}.toml", "only_a")) for out in ("live", "history")]
    assert [one.complete for one in shown[1]] == [one.complete for one in shown[0]]
    assert len(shown[1]) == DAYS
    again = run("backfill", "-c", "history.toml", *between)
    assert again.out.count("published again") == DAYS
