"""`sketchstream estimate` of kind `projection`: every question about rows, heat maps and the whole matrix."""

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
from sketchstream.kinds.presentation import rows_of

SCHEMA = json.loads((ROOT / "docs" / "estimate.schema.json").read_text())
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
    (folder / "airlines.txt").write_text("DL\nUA\n")
    return folder


def named(folder: Path, *more: str | Path) -> tuple[str | Path, ...]:
    """Arguments that ask the first window with the names of its rows."""
    return ("estimate", folder / "first.sealed", "--rows-file", folder / "airports.txt", *more)


def test_distances_and_neighbours_in_every_format(run: Run, folder: Path, tmp_path: Path) -> None:
    pairs = ("--distance", "ATL", "BOS", "--distance", "ATL", "SFO")
    made = run(*named(folder, *pairs, "--format", "json", "--arrow", tmp_path / "pairs.arrow"))
    assert made.code == 0, made.err
    data = json.loads(made.out)
    assert [(row["user"], row["other"]) for row in rows_of(data)] == [("ATL", "BOS"), ("ATL", "SFO")]
    truth = [(100 * 20) ** 2, (100**2) * (500**2 + 700**2)]
    for row, true in zip(rows_of(data), truth, strict=True):
        assert row["low"] <= max(row["value"], 0) <= row["high"]
        assert abs(row["value"] - true) < 6 * row["stderr"]
    assert data["guarantee"]["unit"] == "event"
    assert feather.read_table(tmp_path / "pairs.arrow").to_pylist() == rows_of(data)
    near = run(*named(folder, "--nearest", "ATL", "-k", "2", "--format", "csv"))
    lines = [line.split(",") for line in near.out.splitlines()]
    assert lines[0] == ["user", "rank", "neighbour", "value", "stderr", "low", "high"]
    assert lines[1][:3] == ["ATL", "1", "BOS"]
    assert len(lines) == 3
    assert "neighbour" in run(*named(folder, "--nearest", "ATL")).out
    by_place = run("estimate", folder / "first.sealed", "--nearest", "0", "--format", "json")
    assert rows_of(json.loads(by_place.out))[0]["neighbour"] == 1


PRODUCTS = [
    ("inner", ("--inner", "ATL", "BOS", "--inner", "SFO", "ORD"), [500 * 480, 700 * 500]),
    ("sq_norm", ("--sq-norm", "SFO", "--sq-norm", "SEA"), [700**2, 0]),
    (
        "with_vector",
        ("--with-vector", "BOS", "--with-vector", "ORD", "--feature", "DL", "--weight", "2", "--feature", "UA",
         "--weight", "-1.5e0"),
        [2 * 480, -1.5 * 500],
    ),
    ("with_vector", ("--with-vector", "SFO", "--feature", "UA"), [700]),
]  # fmt: skip


@pytest.mark.parametrize(("question", "options", "exact"), PRODUCTS)
def test_products_and_norms_in_every_format(
    run: Run, folder: Path, tmp_path: Path, question: str, options: tuple[str, ...], exact: list[float]
) -> None:
    """The numbers of Python's questions, about the truth, the same in JSON, CSV, Arrow and the table."""
    more = ("--items-file", folder / "airlines.txt", "--arrow", tmp_path / "rows.arrow")
    made = run(*named(folder, *options, *more, "--format", "json"))
    assert made.code == 0, made.err
    data = json.loads(made.out)
    assert data["question"] == question
    assert not faults(data, SCHEMA, SCHEMA)
    rows = rows_of(data)
    scale = 100 if question == "with_vector" else 100**2  # the window holds each event a hundred times
    for row, true in zip(rows, exact, strict=True):
        assert abs(row["value"] - scale * true) < 6 * row["stderr"]
        value = max(row["value"], 0) if question == "sq_norm" else row["value"]  # intervals of norms begin at 0
        assert row["low"] <= value <= row["high"]
    python = ss.load((folder / "first.sealed").read_bytes()).estimate(users=USERS, features=["DL", "UA"])
    users = [row["user"] for row in rows]
    found = {
        "inner": lambda: python.inner(users, [row.get("other") for row in rows]),
        "sq_norm": lambda: python.sq_norm(users),
        "with_vector": lambda: python.with_vector(users, {"DL": 2, "UA": -1.5} if len(users) == 2 else {"UA": 1}),
    }[question]()
    for row, same in zip(rows, found.rows(), strict=True):
        assert {name: row[name] for name in same} == pytest.approx(same)
    assert feather.read_table(tmp_path / "rows.arrow").to_pylist() == rows
    head, *lines = run(*named(folder, *options, *more, "--format", "csv")).out.splitlines()
    assert head.split(",") == [*rows[0]]
    assert [[*map(float, line.split(",")[-4:])] for line in lines] == [
        pytest.approx([row[name] for name in ("value", "stderr", "low", "high")]) for row in rows
    ]
    table = run(*named(folder, *options, *more))
    assert table.code == 0, table.err
    for row in rows:
        assert f"{row['value']:.6g}" in table.out
    page = run(*named(folder, *options, *more, "--html", tmp_path / "page.html"))
    assert page.code == 0, page.err
    assert f"{data['quantity'].capitalize()}: {len(rows)} answer" in (tmp_path / "page.html").read_text()


def test_features_without_their_list_are_ids(run: Run, folder: Path) -> None:
    by_place = run("estimate", folder / "first.sealed", "--with-vector", "3", "--feature", "1", "--format", "json")
    by_name = run(
        *named(folder, "--with-vector", "SFO", "--feature", "UA", "--items-file", folder / "airlines.txt"),
        "--format", "json",
    )  # fmt: skip
    (found,), (same,) = (rows_of(json.loads(one.out)) for one in (by_place, by_name))
    assert (found.pop("user"), same.pop("user")) == (3, "SFO")
    assert found == same


@pytest.mark.parametrize(
    "question",
    [(), ("--distance", "ATL", "SEA"), ("--nearest", "ATL"), ("--drift", "ATL", "--later", "second.sealed")],
)
def test_json_follows_its_schema(run: Run, folder: Path, question: tuple[str, ...]) -> None:
    more = [folder / one if one.endswith(".sealed") else one for one in question]
    data = json.loads(run(*named(folder, *more, "--format", "json")).out)
    assert not faults(data, SCHEMA, SCHEMA)
    wrong = {**data, "values": ["many"], "level": "high"}
    assert len(faults(wrong, SCHEMA, SCHEMA)) == 2
    assert faults({**data, "question": "angle"}, SCHEMA, SCHEMA)
    by_place = json.loads(run("estimate", folder / "first.sealed", "--nearest", "0", "--format", "json").out)
    assert not faults(by_place, SCHEMA, SCHEMA)


def test_rows_drift_from_window_to_window(run: Run, folder: Path) -> None:
    made = run(
        *named(folder, "--drift", "SFO", "--drift", "SEA", "--later", folder / "second.sealed", "--format", "json")
    )
    assert made.code == 0, made.err
    moved, still = rows_of(json.loads(made.out))
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
    single = rows_of(json.loads(run(*named(folder, "--distance", "BOS", "SEA", "--format", "json")).out))[0]
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
        (("--nearest", "ATL", "--matrix", "x.arrow"), "--matrix"),
        (("--matrix", "no/where.arrow"), "no/where.arrow"),
        (("--inner", "ATL", "BOS", "--sq-norm", "ATL"), "one question"),
        (("--sq-norm", "ATL", "--item", "3"), "one question"),
        (("--inner", "ATL", "ATL"), "use sq_norm"),
        (("--sq-norm", "marked"), "unknown"),
        (("--with-vector", "ATL"), "--with-vector and --feature go together"),
        (("--feature", "marked"), "--with-vector and --feature go together"),
        (("--sq-norm", "ATL", "--weight", "2"), "found 0 of --feature and 1 of --weight"),
        (
            ("--with-vector", "ATL", "--feature", "0", "--feature", "1", "--weight", "2"),
            "found 2 of --feature and 1 of --weight",
        ),
        (("--with-vector", "ATL", "--feature", "0", "--weight", "marked"), "each --weight must be a number"),
        (("--with-vector", "ATL", "--feature", "0", "--weight", "nan"), "each --weight must be a number"),
        (("--with-vector", "ATL", "--feature", "marked"), "expected a feature"),
    ],
)
def test_mistakes_say_what_to_do(run: Run, folder: Path, options: tuple[str, ...], said: str) -> None:
    done = run(*named(folder, *options))
    assert done.code not in (0, 70)
    assert said in done.complaint
    assert "marked" not in done.err


def test_other_kinds_have_no_rows(run: Run, folder: Path) -> None:
    for options in (("--nearest", "1"), ("--sq-norm", "1"), ("--rows-file", folder / "airports.txt")):
        done = run("estimate", folder / "g.sealed", *options)
        assert "has no rows" in done.complaint
