"""`sketchstream estimate` of kind `projection`: distances, neighbours, drift, heat maps and the whole matrix."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest

import sketchstream as ss
from helpers.commands import Run
from helpers.json_schema import faults
from helpers.paths import ROOT

SCHEMA = json.loads((ROOT / "docs" / "projection.schema.json").read_text())
USERS = ["ATL", "BOS", "ORD", "SFO", "SEA"]
KEY = ss.Key(bytes(range(16)))
FLIGHTS = ([("ATL", "DL"), ("BOS", "DL"), ("ORD", "UA"), ("SFO", "UA")], [500, 480, 500, 700])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two windows of published rows, of a list and of ids, and the list."""
    folder = tmp_path_factory.mktemp("rows")
    spec = ss.ProjectionSpec(
        ss.ClosedDomain(items=USERS), ss.ClosedDomain(items=["DL", "UA"]), 64, "4", "1e-6", max_weight=1000,
        matrix="rademacher", epsilon_publish="9",
    )  # fmt: skip
    for name, factor in (("first", 100), ("second", 300)):
        sketch = ss.Sketch.create(spec, KEY)
        for _ in range(factor):
            sketch.update(*FLIGHTS)
        sketch.seal().save(folder / f"{name}.sealed")
    ss.Sketch.create(ss.ProjectionSpec(1500, 9, 16, "1", "1e-6")).seal().save(folder / "many.sealed")
    ss.Sketch.create(ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=4))).seal().save(folder / "g.sealed")
    (folder / "airports.txt").write_text("\n".join(USERS) + "\n")
    return folder


def named(folder: Path, *more: str | Path) -> tuple[str | Path, ...]:
    """Arguments that ask the first window with the names of its rows."""
    return ("estimate", folder / "first.sealed", "--rows-file", folder / "airports.txt", *more)


def test_distances_and_neighbours_in_every_format(run: Run, folder: Path, tmp_path: Path) -> None:
    pairs = ("--distance", "ATL", "BOS", "--distance", "ATL", "SFO")
    made = run(*named(folder, *pairs, "--format", "json", "--arrow", tmp_path / "pairs.arrow"))
    assert made.code == 0, made.err
    data = json.loads(made.out)
    assert [(row["user"], row["other"]) for row in data["rows"]] == [("ATL", "BOS"), ("ATL", "SFO")]
    truth = [(100 * 20) ** 2, (100**2) * (500**2 + 700**2)]
    for row, true in zip(data["rows"], truth, strict=True):
        assert row["low"] <= max(row["value"], 0) <= row["high"]
        assert abs(row["value"] - true) < 6 * row["stderr"]
    assert data["guarantee"]["unit"] == "event"
    assert feather.read_table(tmp_path / "pairs.arrow").to_pylist() == data["rows"]
    near = run(*named(folder, "--nearest", "ATL", "-k", "2", "--format", "csv"))
    lines = [line.split(",") for line in near.out.splitlines()]
    assert lines[0] == ["user", "rank", "neighbour", "value", "stderr", "low", "high"]
    assert lines[1][:3] == ["ATL", "1", "BOS"]
    assert len(lines) == 3
    assert "neighbour" in run(*named(folder, "--nearest", "ATL")).out
    by_place = run("estimate", folder / "first.sealed", "--nearest", "0", "--format", "json")
    assert json.loads(by_place.out)["rows"][0]["neighbour"] == 1


@pytest.mark.parametrize(
    "question",
    [(), ("--distance", "ATL", "SEA"), ("--nearest", "ATL"), ("--drift", "ATL", "--later", "second.sealed")],
)
def test_json_follows_its_schema(run: Run, folder: Path, question: tuple[str, ...]) -> None:
    more = [folder / one if one.endswith(".sealed") else one for one in question]
    data = json.loads(run(*named(folder, *more, "--format", "json")).out)
    assert not faults(data, SCHEMA, SCHEMA)
    wrong = {**data, "rows": [{**data["rows"][0], "count": 3}], "level": "high"}
    assert len(faults(wrong, SCHEMA, SCHEMA)) == 2
    assert faults({**data, "question": "angle"}, SCHEMA, SCHEMA)
    by_place = json.loads(run("estimate", folder / "first.sealed", "--nearest", "0", "--format", "json").out)
    assert not faults(by_place, SCHEMA, SCHEMA)


def test_rows_drift_from_window_to_window(run: Run, folder: Path) -> None:
    made = run(
        *named(folder, "--drift", "SFO", "--drift", "SEA", "--later", folder / "second.sealed", "--format", "json")
    )
    assert made.code == 0, made.err
    moved, still = json.loads(made.out)["rows"]
    assert (moved["user"], moved["before"], moved["after"]) == ("SFO", 0, 1)
    assert abs(moved["value"] - (200 * 700) ** 2) < 6 * moved["stderr"]
    assert abs(still["value"]) < 6 * still["stderr"]
    assert still["low"] == 0


def test_heat_map_and_the_whole_matrix(run: Run, folder: Path, tmp_path: Path) -> None:
    made = run(*named(folder, "--plot", tmp_path / "map.png", "--matrix", tmp_path / "all.arrow"))
    assert made.code == 0, made.err
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    rows = pa.ipc.open_file(tmp_path / "all.arrow").read_all().to_pylist()
    assert [row["user"] for row in rows] == USERS
    matrix = np.array([row["squared_distances"] for row in rows])
    assert matrix[0, 0] == 0
    single = json.loads(run(*named(folder, "--distance", "BOS", "SEA", "--format", "json")).out)["rows"][0]
    assert matrix[1, 4] == pytest.approx(single["value"], rel=1e-9)
    many = run("estimate", folder / "many.sealed", "--format", "csv", "--plot", tmp_path / "many.svg",
               "--matrix", tmp_path / "many.arrow")  # fmt: skip
    assert many.code == 0, many.err
    assert "averages over runs of 3" in (tmp_path / "many.svg").read_text()
    assert pa.ipc.open_file(tmp_path / "many.arrow").read_all().num_rows == 1500


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--distance", "ATL", "BOS", "--nearest", "ATL"), "one question"),
        (("--nearest", "ATL", "--top", "3"), "one question"),
        (("--count", "3"), "--nearest"),
        (("--drift", "ATL"), "--later"),
        (("--later", "x"), "--drift"),
        (("--nearest", "marked"), "unknown"),
        (("--distance", "ATL", "17"), "unknown"),
        (("--nearest", "ATL", "--plot", "x.png"), "no plot"),
        (("--nearest", "ATL", "--matrix", "x.arrow"), "--matrix"),
        (("--matrix", "no/where.arrow"), "no/where.arrow"),
    ],
)
def test_mistakes_say_what_to_do(run: Run, folder: Path, options: tuple[str, ...], said: str) -> None:
    done = run(*named(folder, *options))
    assert done.code not in (0, 70)
    assert said in done.complaint
    assert "marked" not in done.err


def test_other_kinds_have_no_rows(run: Run, folder: Path) -> None:
    for options in (("--nearest", "1"), ("--rows-file", folder / "airports.txt")):
        done = run("estimate", folder / "g.sealed", *options)
        assert "has no rows" in done.complaint
