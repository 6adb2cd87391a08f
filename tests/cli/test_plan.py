"""`plan`: expected errors as a table, JSON and CSV; the inverse question; agreement with what a sketch then says."""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.commands import Run

SKETCH = ("--unit", "event", "--epsilon", "1", "--open", "--slots", "8192", "--levels", "2")


def test_formats_agree(run: Run) -> None:
    data = json.loads(run("plan", *SKETCH, "--items", "3000", "--format", "json").out)
    assert data["slots"] == 8192
    assert data["loss"] == "1"
    assert 0.02 < data["numbers"]["distinct"]["relative"] < 0.06
    rows = list(csv.DictReader(io.StringIO(run("plan", *SKETCH, "--items", "3000", "--format", "csv").out)))
    assert {row["number"]: float(row["sd"]) for row in rows} == pytest.approx(
        {name: number["sd"] for name, number in data["numbers"].items()}
    )
    table = run("plan", *SKETCH, "--items", "3000").out
    assert all(name in table for name in data["numbers"])
    assert "an event loses at most 1 to readers" in table


def test_slots_for_a_target_reach_it_and_half_of_them_do_not(run: Run) -> None:
    ask = (
        "plan",
        "--unit",
        "event",
        "--epsilon",
        "1",
        "--open",
        "--items",
        "50000",
        "--number",
        "at_least.3",
        "--format",
        "json",
    )
    found = json.loads(run(*ask, "--target", "0.02").out)
    assert found["numbers"]["at_least.3"]["relative"] <= 0.02
    half = json.loads(run(*ask, "--slots", str(found["slots"] // 2)).out)
    assert half["numbers"]["at_least.3"]["relative"] > 0.02


def test_epsilon_for_a_target_reaches_it(run: Run) -> None:
    ask = (
        "plan",
        "--unit",
        "event",
        "--epsilon",
        "1",
        "--size",
        "20000",
        "--items",
        "5000",
        "--vary",
        "epsilon",
        "--format",
        "json",
    )
    found = json.loads(run(*ask, "--target", "0.01").out)
    assert found["numbers"]["distinct"]["relative"] <= 0.01
    assert found["slots"] == 20000


def test_interval_of_a_sketch_is_as_wide_as_planned(run: Run, key: Path, tmp_path: Path) -> None:
    planned = json.loads(run("plan", *SKETCH, "--items", "3000", "--mean", "2", "--format", "json").out)
    counts = [count for count in range(1, 11) for _ in range(3000 >> count)]  # the geometric law that is planned for
    counts += [1] * (3000 - len(counts))
    (tmp_path / "e.txt").write_text("".join(f"{item}\n" * count for item, count in enumerate(counts)))
    assert run("create", "-o", "s", *SKETCH, "--key-file", key).code == 0
    assert run("update", "s", "e.txt", "--key-file", key).code == 0
    assert run("seal", "s", "-o", "p", "--key-file", key).code == 0
    distinct = json.loads(run("profile", "p", "--format", "json").out)["distinct"]
    half_width = (distinct["high"] - distinct["low"]) / 2
    assert half_width == pytest.approx(1.96 * planned["numbers"]["distinct"]["sd"], rel=0.25)


def test_plan_explains_its_columns_and_both_dials(run: Run) -> None:
    out = run(
        "plan",
        "--unit",
        "event",
        "--epsilon",
        "4",
        "--epsilon-publish",
        "1",
        "--unit",
        "item",
        *SKETCH[4:],
        "--items",
        "3000",
    ).out
    for column in ("number", "value", "sd", "relative", "simulated", "central"):
        assert re.search(rf"^  {column} +\S", out, re.MULTILINE), column
    assert "an item loses at most 1 to readers of what is published (epsilon_publish), and at most 5 in all" in out
    assert "counts are kept modulo 32: about 0 items are expected above 31" in out


def test_plan_says_how_many_items_wrap(run: Run) -> None:
    ask = (
        "plan",
        "--epsilon",
        "4",
        "--unit",
        "item",
        *SKETCH[4:],
        "--items",
        "3000",
        "--mean",
        "10",
        "--modulus",
        "16",
    )
    # a geometric count of mean 10 is above 15 with probability .9^15 = .206
    assert "about 618 items are expected above 15" in run(*ask).out


@pytest.mark.parametrize("unit", ["item", "event"])
def test_plan_refuses_slots_in_which_a_million_items_drown(run: Run, unit: str) -> None:
    ask = (
        "plan",
        "--unit",
        "event",
        "--epsilon",
        "4",
        "--unit",
        unit,
        "--open",
        "--slots",
        "8192",
        "--levels",
        "2",
        "--items",
        "1e6",
    )
    result = run(*ask)
    assert result.code == 2
    assert "crowd" in result.complaint


ISSUE = ("--items", "1e6", "--number", "distinct", "--number", "at_least.5", "--error", "0.011")


def test_the_sketch_that_size_finds_reaches_the_error_and_half_of_it_does_not(run: Run) -> None:
    found = json.loads(run("size", *ISSUE, "--format", "json").out)
    assert (found["spec"]["unit"], found["spec"]["epsilon"], found["spec"]["epsilon_publish"]) == ("item", "4", "1")
    assert found["spec"]["domain"] == {"kind": "open", "slots": 1 << 20, "levels": 8}
    relative = {name: found["plan"]["numbers"][name]["relative"] for name in ("distinct", "at_least.5")}
    assert relative == pytest.approx({"distinct": 0.0023, "at_least.5": 0.0089}, abs=2e-4)
    assert found["memory"] == 2 << 20
    ask = (
        "plan",
        "--unit",
        "event",
        "--epsilon",
        "4",
        "--epsilon-publish",
        "1",
        "--unit",
        "item",
        "--open",
        "--slots",
        str(1 << 19),
    )
    half = json.loads(run(*ask, "--items", "1e6", "--format", "json").out)
    assert half["numbers"]["at_least.5"]["relative"] > 0.011


INPUT = '[input]\nfile = "events.jsonl"\nitem = "user"\ntime = "ts"\n[key]\nfile = "key"\n[store]\nkind = "dir"\n' + (
    'path = "state"\n[output]\ndirectory = "sealed"\n\n'
)


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--unit", "event", "--window", "1h", "--name", "hourly.x"),
        ("--largest", "100", "--mean", "8", "--error", "0.1", "--parts", "4"),
        ("--machine", "untrusted", "--epsilon-publish", "3", "--error", "0.1"),
    ],
)
def test_the_block_that_size_prints_is_a_configuration(
    run: Run, key: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    result = run("size", "--items", "50000", *more)
    assert (result.code, result.err) == (0, "")
    block = result.out[: result.out.index("\n\n")]
    (tmp_path / "sketchstream.toml").write_text(INPUT + block)
    (tmp_path / "events.jsonl").touch()
    checked = run("validate", "-c", "sketchstream.toml")
    assert (checked.code, checked.err) == (0, "")
    table = tomllib.loads(block)["sketch"][0]
    assert table["window"] == ("1h" if "1h" in more else "1d")
    assert table["unit"] == ("event" if "event" in more else "item")
    assert table["epsilon"] == ("3" if "untrusted" in more else "4")
    assert table.get("modulus", 0) == (0 if "event" in more else 101 if "--largest" in more else 32)
    assert "The loss of one " in result.out
    assert all(f"\n{name} " in result.out for name in ("distinct", "at_least.3", "mean"))


def test_a_machine_that_nobody_trusts_costs_accuracy_and_that_is_said(run: Run) -> None:
    result = run("size", *ISSUE, "--machine", "untrusted")
    assert result.code == 2
    assert "the best is" in result.complaint
    assert "allow a larger error or a larger epsilon" in result.complaint


def test_size_asks_on_a_terminal_for_what_no_option_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchstream.cli import options

    assert "Missing option '--items'" in run("size").complaint
    asked: list[str] = []

    def answer(question: str, default: object, err: bool, **_: object) -> object:
        asked.append(question)
        assert err, "questions do not mix with the block"
        return 50_000.0 if default is None else default

    monkeypatch.setattr(options.sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(options.sys, "stderr", SimpleNamespace(isatty=lambda: True, write=len, flush=int))
    monkeypatch.setattr(options.click, "prompt", answer)
    result = run("size", "--unit", "item")
    assert result.code == 0
    assert len(asked) == 5
    assert 'unit = "item"' in result.out


@pytest.mark.parametrize(
    ("more", "words"),
    [(("--name", "A b"), "--name"), (("--window", "7s"), "window"), (("--number", "most"), "number must be one of")],
)
def test_size_refuses_what_a_configuration_would_refuse(run: Run, more: tuple[str, ...], words: str) -> None:
    result = run("size", "--items", "50000", *more)
    assert result.code == 2
    assert words in result.complaint
