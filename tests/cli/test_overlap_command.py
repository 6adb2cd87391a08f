"""`sketchstream overlap` of a file: every format, sets that are asked for, plots, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import sketchstream as ss
from sketchstream.cli.app import run

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    spec = ss.ProfileSpec(
        "3", "item", ss.ClosedDomain(size=3000), groups=ss.Groups(["a", "b $", "c"]), overlap=True, counts="presence"
    )
    sketch = ss.Sketch.create(spec)
    for name, items in (("a", range(1500)), ("b $", range(1000, 2200)), ("c", range(100))):
        sketch.update([(name, item) for item in items])
    sketch.seal().save(tmp_path / "s.sealed")
    return tmp_path / "s.sealed"


def test_every_format_holds_the_same_numbers(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["overlap", str(file), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "overlap"
    assert "guarantee" in found
    assert run(["overlap", str(file), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["query"], float(row["value"])) for row in rows] == [
        (row["query"], row["value"]) for row in found["answers"]
    ]
    assert abs(found["people"]["value"] - 2200) < 300
    assert run(["overlap", str(file), "--query", "a & 'b $'", "--query", "a - 'b $'"]) == 0
    table = capsys.readouterr().out
    assert "a & 'b $'" in table
    assert "come from one fit" in table


def test_plots_and_arrow_files_are_written(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pyarrow import feather

    svg, arrow = file.with_name("u.svg"), file.with_name("rows.arrow")
    assert run(["overlap", str(file), "--upset", str(svg), "--arrow", str(arrow)]) == 0
    capsys.readouterr()
    assert "items in exactly these groups" in svg.read_text()
    assert "b $" in svg.read_text()
    assert feather.read_table(str(arrow)).column_names == [
        "window_start",
        "complete",
        "query",
        "value",
        "low",
        "high",
        "sd",
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--query", "a & d"], "no group 'd'"),
        (["--query", "a &"], "at its end"),
        (["--all"], "belong to -c"),
        (["--upset", "x.gif"], "must end in"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    file: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["overlap", str(file), *words]) == 2
    assert says in capsys.readouterr().err


def test_a_sketch_without_patterns_says_how_to_publish_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ss.Sketch.create(ss.ProfileSpec("1", domain=ss.ClosedDomain(size=4))).seal().save(tmp_path / "s")
    assert run(["overlap", str(tmp_path / "s")]) != 0
    assert "overlap = true" in capsys.readouterr().err
