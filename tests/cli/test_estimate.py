"""`sketchstream estimate`, and the life of a sketch of kind `gaussian` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.feather as feather
import pytest

from helpers import json_schema
from helpers.commands import Run
from helpers.configurations import EVENTS_FILE, SEALED_DIRECTORY
from helpers.paths import ROOT

SCHEMA = json.loads((ROOT / "docs" / "estimate.schema.json").read_text())
PLANES = [f"N{number}" for number in range(40)]
LITTLE = ("--epsilon", "9", "--delta", "1e-3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the published file is made once."""
    return tmp_path_factory.mktemp("planes")


@pytest.fixture
def sealed(run: Run, folder: Path) -> Path:
    """A published file: N3 flew 300 times, N5 500 times."""
    if (folder / "s.sealed").exists():
        return folder / "s.sealed"
    (folder / "planes.txt").write_text("\n".join(PLANES) + "\n")
    (folder / "flights.txt").write_text("N3\n" * 300 + "N5\n" * 500 + "stranger\n" * 100)
    key, sketch, out = folder / "key", folder / "s.sketch", folder / "s.sealed"
    assert run("keygen", "-o", key).code == 0
    made = run("create", "-o", sketch, "--kind", "gaussian", *LITTLE, "--items-file", folder / "planes.txt",
               "--key-file", key, "--max-epsilon", "20", "--max-delta", "1e-2")  # fmt: skip
    assert made.code == 0, made.err
    assert run("update", sketch, folder / "flights.txt", "--format", "lines", "--key-file", key).code == 0
    look = run("release", sketch, "-o", folder / "look", "--epsilon", "1/100", "--delta", "1e-9", "--key-file", key)
    assert look.code == 0, look.err
    refused = run("release", sketch, "-o", folder / "no", "--epsilon", "1", "--key-file", key)
    assert refused.code == 2
    assert "would bring the loss of an event" in refused.err  # at the spec's delta, which is beyond the budget
    assert run("seal", sketch, "-o", out, "--key-file", key).code == 0
    return out


def lines(run: Run, *arguments: str | Path) -> list[dict[str, Any]]:
    done = run("estimate", *arguments, "--format", "json")
    assert done.code == 0, done.err
    data = json.loads(done.out)
    assert json_schema.faults(data, SCHEMA, SCHEMA) == []
    return list(data.get("answers", [data]))


def test_selected_answers_have_intervals(run: Run, sealed: Path) -> None:
    names = ("--items-file", sealed.parent / "planes.txt")
    first, second = lines(run, sealed, *names, "--top", "2")
    assert (first["what"], second["what"]) == ("N5", "N3")
    assert abs(first["value"] - 500) < 40  # the noise is fresh in every run: an interval may miss
    assert first["low"] < first["value"] < first["high"]
    chosen = lines(run, sealed, *names, "--item", "N3", "--item", "N4", "--sum", "0:4", "--sum", ":")
    truth = [300, 0, 300, 800]
    assert [one["what"] for one in chosen] == ["N3", "N4", "sum 0:4", "sum :"]
    assert all(abs(one["value"] - real) < 40 for one, real in zip(chosen, truth, strict=True))
    assert all(one["low"] < one["value"] < one["high"] for one in chosen)


def test_all_answers_as_json_csv_table_arrow_and_plot(run: Run, sealed: Path, tmp_path: Path) -> None:
    (data,) = lines(run, sealed, "--method", "raw", "--arrow", tmp_path / "a.arrow", "--plot", tmp_path / "a.png")
    assert data["guarantee"]["measure"] == "mu2"
    assert np.round(data["values"]).argmax() == 5
    assert feather.read_table(tmp_path / "a.arrow").column("value").to_pylist() == data["values"]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    csv = run("estimate", sealed, "--method", "raw", "--format", "csv").out.splitlines()
    assert csv[0] == "slot,item,value,stderr,low,high,raw"
    assert len(csv) == 41
    assert "40 counts by" in run("estimate", sealed).out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--sum", "3"), "LOW:HIGH"),
        (("--top", "41"), "k must be"),
        (("--item", "N3"), "not at hand"),
        (("--method", "best"), "method"),
        (("--plot", "x.gif"), ".png"),
        (("--from", "2013-01-01T00:00Z"), "belong to -c"),
    ],
)
def test_mistakes_say_what_to_do(run: Run, sealed: Path, options: tuple[str, ...], said: str) -> None:
    done = run("estimate", sealed, *options)
    assert done.code not in (0, 70)
    assert said in done.err


def test_inspect_and_ledger_know_the_kind(run: Run, sealed: Path) -> None:
    shown = run("inspect", sealed, "--format", "json")
    assert json.loads(shown.out)["spec"]["kind"] == "gaussian"
    said = json.loads(run("ledger", sealed, "--format", "json").out)
    assert "delta" in said["loss"]
    assert run("ledger", sealed, sealed.parent / "look").code == 0
    asked = run("profile", sealed)
    assert asked.code != 0
    assert "estimate" in asked.err


def test_options_of_another_kind_are_refused(run: Run, tmp_path: Path) -> None:
    for options, said in (
        (("--kind", "gaussian", "--delta", "1e-6", "--bits", "64"), "--bits"),
        (("--kind", "gaussian"), "--delta"),
        (("--delta", "1e-6"), "--delta"),
        (("--kind", "other"), "other"),
        (("--max-weight", "2.5"), "whole number"),
    ):
        done = run("create", "-o", tmp_path / "s", "--unit", "event", "--epsilon", "1", "--size", "9", *options)
        assert done.code not in (0, 70), options
        assert said in done.err


def test_a_window_that_a_worker_published_is_answered_under_its_name(run: Run, tmp_path: Path) -> None:
    records = [{"ts": 1_357_000_000_000 + number, "user": number % 4} for number in range(400)]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (tmp_path / "c.toml").write_text(
        f"""{EVENTS_FILE}close_at_end = true{SEALED_DIRECTORY}[[sketch]]
name = "flights"
kind = "gaussian"
window = "1d"
epsilon = 9
delta = "1e-3"
domain = {{ size = 20 }}
"""
    )
    assert run("validate", "-c", "c.toml").code == 0
    done = run("worker", "-c", "c.toml")
    assert done.code == 0, done.err
    asked = run("estimate", "-c", "c.toml", "--sketch", "flights", "--item", "3", "--top", "4", "--format", "json")
    assert asked.code == 0, asked.err
    data = json.loads(asked.out)
    assert data["complete"] is True
    assert [abs(one["value"] - 100) < 15 for one in data["answers"]] == [True] * 5
    assert "mu^2" in data["guarantee"]["published"]
    assert "mu^2" in run("ledger", "-c", "c.toml").out
    assert "user" not in done.said
    refused = run("profile", "-c", "c.toml")
    assert refused.code != 0
    assert "estimate" in refused.complaint
