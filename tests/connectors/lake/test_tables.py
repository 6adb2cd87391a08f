"""`ss.backfill(table=...)`: files, relations and frames give what the command gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sketchstream as ss
from helpers.noiseless import without_noise

HOUR = 3_600_000
START = 1_735_689_600_000
BETWEEN = {"since": "2025-01-01T00:00:00Z", "until": "2025-01-04T00:00:00Z"}
COLUMNS = {"item": "user", "time": "ts", "weight": "w"}
KEY = ss.Key.generate()
SPEC = ss.ProfileSpec(
    epsilon="1", unit="event", domain=ss.OpenDomain(slots=64), publish="state", intrusion=False, max_weight=3
)


def table() -> pa.Table:
    """Two days of three: dirty items and weights."""
    n = 200
    return pa.table(
        {
            "ts": pa.array([START * 1000 + i * 13 * 60_000_000 for i in range(n)], pa.timestamp("us", "UTC")),
            "user": [None if i % 17 == 5 else f"u{i % 11}" for i in range(n)],
            "w": pa.array([[1, 2, -1, 100, None][i % 5] for i in range(n)], pa.int64()),
        }
    )


NO_ZONE = table().set_column(0, "ts", table()["ts"].cast(pa.timestamp("us")))


def reference() -> dict[int, list[int]]:
    """Numbers of each window, by sketches that count the events themselves."""
    found: dict[int, ss.Sketch] = {}
    for row in table().to_pylist():
        start = START + (int(row["ts"].timestamp() * 1000) - START) // (24 * HOUR) * 24 * HOUR
        weight = 1 if row["w"] is None else row["w"]
        sketch = found.setdefault(start, ss.Sketch.create(SPEC, KEY))
        if row["user"] is not None and abs(weight) <= 3:
            sketch.update([row["user"]], [weight])
    return {start: numbers(sketch.seal()) for start, sketch in found.items()}


def numbers(body: Any) -> list[int]:
    return [*body.state.tolist(), *(one.value for one in body.counters)]


def given(kind: str, folder: Path) -> Any:
    """The same rows in each of the forms that a table has."""
    if kind in ("folder", "pattern", "file"):
        for part in range(2):
            pq.write_table(table().slice(part * 100, 100), folder / f"part-{part}.parquet")
        if kind == "file":
            pq.write_table(table(), folder / "all.parquet")
        return {"folder": str(folder), "pattern": f"{folder}/part-*.parquet", "file": folder / "all.parquet"}[kind]
    if kind == "relation":
        return duckdb.connect(":memory:").from_arrow(table())
    if kind in ("frame", "lazy frame"):
        frame = pl.from_arrow(table())
        assert isinstance(frame, pl.DataFrame)
        return frame if kind == "frame" else frame.lazy()
    return table()


@pytest.mark.parametrize("kind", ["folder", "pattern", "file", "relation", "arrow", "frame", "lazy frame"])
def test_every_table_gives_what_its_events_give(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_noise(monkeypatch)
    wanted = reference()
    source = given(kind, tmp_path)
    found = list(ss.backfill(table=source, spec=SPEC, key=KEY, name="users", snapshot="v7", **COLUMNS, **BETWEEN))
    assert {one.origin.window[0]: numbers(one) for one in found} == wanted  # type: ignore[index]
    assert len(wanted) == 2
    assert all(one.origin.table is not None and one.origin.table[1] == "v7" for one in found)
    assert "snapshot v7" in str(found[0].guarantee())


def collated(kind: str) -> Any:
    """Texts that a collation of the table makes equal."""
    users = ["a", "A", "a", "b "]
    rows = pa.table({"ts": pa.array([START * 1000] * 4, pa.timestamp("us", "UTC")), "user": users})
    if kind == "spark":
        from pyspark.sql import SparkSession
        from pyspark.sql import functions as f

        session = SparkSession.getActiveSession()
        assert session is not None
        return session.createDataFrame(rows).withColumn("user", f.collate("user", "UTF8_LCASE"))
    home = duckdb.connect(":memory:")
    if kind == "default":
        home.execute("SET default_collation = 'nocase'")
    home.execute(f'CREATE TABLE t (ts TIMESTAMPTZ, "user" VARCHAR {"COLLATE NOCASE" if kind == "column" else ""})')
    home.from_arrow(rows).insert_into("t")
    return home.table("t")


@pytest.mark.parametrize(
    "kind", ["column", "default", pytest.param("spark", marks=[pytest.mark.slow, pytest.mark.spark])]
)
def test_a_collation_makes_no_items_equal(
    kind: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if kind == "spark":
        request.getfixturevalue("spark")
    without_noise(monkeypatch)
    spec = replace(SPEC, domain=ss.ClosedDomain(items=["a", "A", "b", "b "]))
    (found,) = ss.backfill(table=collated(kind), spec=spec, key=KEY, item="user", time="ts", **BETWEEN)
    assert found.state.tolist() == [2, 1, 0, 1]  # type: ignore[union-attr]


def test_files_are_counted_by_the_engine_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_noise(monkeypatch)
    path = given("folder", tmp_path)
    found = ss.backfill(table=path, spec=SPEC, key=KEY, engine="polars", **COLUMNS, **BETWEEN)
    assert {one.origin.window[0]: numbers(one) for one in found} == reference()  # type: ignore[index]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"table": None}, "rows of an engine or a table"),
        ({"rows": table()}, "rows of an engine or a table"),
        ({"rows": table(), "table": None}, "item, time, weight, since, until cannot be given with rows"),
        ({"records": {1: 2}}, "records cannot be given with a table"),
        ({"spec": None}, "takes a spec"),
        ({"since": None}, "since= and until="),
        ({"until": "2025-01-04"}, "with its offset"),
        ({"table": 5}, "found 'int'"),
        ({"engine": "polars"}, "for polars"),
        ({"item": "nobody"}, "no column 'nobody'"),
        ({"key": None}, "needs a hash key"),
        ({"time": None}, "no time of its own"),
        ({"table": NO_ZONE}, "without a time zone"),
        ({"table": pl.from_arrow(NO_ZONE)}, "without a time zone"),
        ({"table": duckdb.connect(":memory:").from_arrow(NO_ZONE)}, "without a time zone"),
    ],
)
def test_what_cannot_be_counted_is_refused(changed: dict[str, Any], reason: str) -> None:
    asked = {"table": table(), "spec": SPEC, "key": KEY, **COLUMNS, **BETWEEN} | changed
    with pytest.raises(ss.SketchstreamError, match=reason):
        list(ss.backfill(**asked))
