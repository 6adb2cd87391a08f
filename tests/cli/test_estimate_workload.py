"""`sketchstream estimate` of kind `workload`: named tables as text, JSON, CSV and Arrow."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.feather as feather
import pytest

import sketchstream as ss
from helpers.commands import Run
from sketchstream.kinds.workload.queries.universe import Column

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
    assert data["guarantee"]["published_and_one_copy"].startswith("(epsilon 5, delta 1e-06; ")
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
    for wrong in (("--top", "3"), ("--method", "best")):
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


def test_tables_are_drawn_as_heat_maps_bars_and_lines(run: Run, sealed: Path, tmp_path: Path) -> None:
    picture = tmp_path / "tables.svg"
    assert run("estimate", sealed, "--plot", picture).code == 0
    text = picture.read_text()
    assert text.startswith("<?xml")
    figure = ss.load(sealed.read_bytes()).estimate().plot()  # type: ignore[union-attr]
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left").split(",")[0] for axes in panels] == ["origin", "carrier", "origin x carrier"]
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["EWR", "JFK"]
    (image,) = panels[2].images
    assert image.get_array().shape == (2, 3)
    assert abs(float(image.get_array()[0, 1]) - 300) < 40


def test_ranges_are_drawn_by_their_ends_and_prefixes_with_a_band() -> None:
    for name, shape in (("ranges:5", (5, 5)), ("prefix:50", None), ("identity:60", None)):
        spec = ss.WorkloadSpec(name, "5", "1e-6", "gaussian")
        sketch = ss.Sketch.create(spec)
        sketch.update([2] * 400)
        answers = sketch.seal().estimate()
        (axes,) = [axes for axes in answers.plot().axes if axes.get_title(loc="left")]
        if shape is not None:
            grid = np.ma.filled(axes.images[0].get_array().astype(float), np.nan)
            assert grid.shape == shape
            assert grid[1, 3] == answers.values[answers.tables[0].axes[0].labels.index("1 to 3")]
            assert np.isnan(grid[3, 1])
        else:
            np.testing.assert_array_equal(axes.lines[0].get_ydata(), answers.values)
            band = axes.collections[0].get_paths()[0].vertices[:, 1]
            assert (band.min(), band.max()) == (answers.interval()[:, 0].min(), answers.interval()[:, 1].max())
    with pytest.raises(ss.EstimateError, match="only tables of one or two columns"):
        answers.plot(tables=["cell x cell"])
    assert "60 answers, gaussian noise" in answers._repr_html_()
