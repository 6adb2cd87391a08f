"""`sketchstream estimate` of kind `workload`: named tables as text, JSON, CSV and Arrow."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.feather as feather
import pytest

import sketchstream as ss
from helpers.commands import Run
from sketchstream.kinds.workload import Column

TABLE = ss.Universe([Column("origin", ["EWR", "JFK"]), Column("carrier", ["AA", "UA"], other=True)])


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A published file: 300 flights of UA from EWR, and one of B6 from JFK."""
    spec = ss.WorkloadSpec(TABLE.marginals((1, 2)), "5", "1e-6", "gaussian", universe=TABLE)
    sketch = ss.Sketch.create(spec)
    sketch.update(["EWR\tUA"] * 300 + ["JFK\tB6"])
    path = tmp_path / "flights.sealed"
    sketch.seal().save(path)
    return path


def test_rows_are_named_in_every_format(run: Run, sealed: Path, tmp_path: Path) -> None:
    arrow = tmp_path / "rows.arrow"
    made = run("estimate", sealed, "--format", "json", "--arrow", arrow)
    assert made.code == 0, made.err
    data = json.loads(made.out)
    assert [table["name"] for table in data["tables"]] == ["origin", "carrier", "origin x carrier"]
    assert data["guarantee"]["published_and_one_copy"] == "5 at delta 1e-06"
    rows = feather.read_table(arrow).to_pylist()
    assert len(rows) == 2 + 3 + 6
    (found,) = [row for row in rows if (row["origin"], row["carrier"]) == ("EWR", "UA")]
    assert abs(found["value"] - 300) < 6 * found["stderr"]
    assert found["low"] < found["value"] < found["high"]
    table = run("estimate", sealed, "--format", "csv").out.splitlines()
    assert table[0].split(",") == ["table", "origin", "carrier", "value", "stderr", "low", "high"]
    assert len(table) == 12
    assert "origin x carrier: 2 x 3" in run("estimate", sealed).out


def test_projections_and_what_does_not_apply(run: Run, sealed: Path) -> None:
    said = run("estimate", sealed, "--method", "simplex", "--format", "json")
    assert json.loads(said.out)["projected"] == "simplex"
    for wrong in (("--top", "3"), ("--method", "best"), ("--plot", "x.png")):
        refused = run("estimate", sealed, *wrong)
        assert refused.code != 0
        assert "Traceback" not in refused.err


def test_a_workload_is_inspected_and_its_ledger_shown(run: Run, sealed: Path) -> None:
    shown = run("inspect", sealed)
    assert shown.code == 0, shown.err
    assert "carrier" in shown.out
    assert run("inspect", sealed, "--format", "json").code == 0
    history = run("ledger", sealed)
    assert history.code == 0, history.err
    assert "discrete-gaussian" in history.out
