"""`plan`: expected errors as a table, JSON and CSV; the inverse question; agreement with what a sketch then says."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
SKETCH = ("--epsilon", "1", "--open", "--slots", "8192", "--levels", "2")


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
    assert "an event loses at most 1" in table


def test_slots_for_a_target_reach_it_and_half_of_them_do_not(run: Run) -> None:
    ask = ("plan", "--epsilon", "1", "--open", "--items", "50000", "--number", "at_least.3", "--format", "json")
    found = json.loads(run(*ask, "--target", "0.02").out)
    assert found["numbers"]["at_least.3"]["relative"] <= 0.02
    half = json.loads(run(*ask, "--slots", str(found["slots"] // 2)).out)
    assert half["numbers"]["at_least.3"]["relative"] > 0.02


def test_epsilon_for_a_target_reaches_it(run: Run) -> None:
    ask = ("plan", "--epsilon", "1", "--size", "20000", "--items", "5000", "--vary", "epsilon", "--format", "json")
    found = json.loads(run(*ask, "--target", "0.01").out)
    assert found["numbers"]["distinct"]["relative"] <= 0.01
    assert found["slots"] == 20000


def test_interval_of_a_sketch_is_as_wide_as_planned(run: Run, key: Path, tmp_path: Path) -> None:
    planned = json.loads(run("plan", *SKETCH, "--items", "3000", "--mean", "2", "--format", "json").out)
    (tmp_path / "e.txt").write_text("".join(f"{number % 3000}\n" for number in range(6000)))
    assert run("create", "-o", "s", *SKETCH, "--key-file", key).code == 0
    assert run("update", "s", "e.txt", "--key-file", key).code == 0
    assert run("seal", "s", "-o", "p", "--key-file", key).code == 0
    distinct = json.loads(run("profile", "p", "--format", "json").out)["distinct"]
    half_width = (distinct["high"] - distinct["low"]) / 2
    assert half_width == pytest.approx(1.96 * planned["numbers"]["distinct"]["sd"], rel=0.25)
