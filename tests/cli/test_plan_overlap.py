"""`plan --overlap`: expected errors of sets of groups, in every format, with the loss that the ledger charges."""

from __future__ import annotations

import csv
import io
import json

import pytest

from helpers.commands import Run

ONE = ("plan", "--unit", "item", "--epsilon", "4", "--open", "--slots", "65536", "--items", "30000")
SETS = ("--groups", "spring,summer,brand", "--overlap", "--shared", ".3")


def test_every_format_has_the_same_numbers(run: Run) -> None:
    found = json.loads(run(*ONE, *SETS, "--format", "json").out)
    assert found["overlap"] == ["spring", "summer", "brand"]
    assert found["answers"][2]["expected"] == pytest.approx(3000, rel=0.01)
    rows = list(csv.DictReader(io.StringIO(run(*ONE, *SETS, "--format", "csv").out)))
    assert [float(row["sd"]) for row in rows] == [row["sd"] for row in found["answers"]]
    text = run(*ONE, *SETS).out
    assert "one group and another" in text
    assert "for what the groups have in common it pays 1 once" in text
    assert "a multiple of the modulus look like none" in text


def test_presence_and_joint_noise_cost_what_the_ledger_says(run: Run) -> None:
    item = {}
    for name, more in {
        "own": (),
        "presence": ("--counts", "presence"),
        "joint": ("--counts", "presence", "--noise", "joint"),
    }.items():
        found = json.loads(run(*ONE, *SETS, *more, "--format", "json").out)
        item[name] = found["losses"][0]["item"]
    assert item == {"own": "12", "presence": "1", "joint": "1"}
    exact = json.loads(run(*ONE, *SETS, "--counts", "presence", "--epsilon-overlap", "1/8", "--format", "json").out)
    assert exact["epsilon_overlap"] == "1/8"
    assert exact["losses"][0]["item"] == "1/8"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*ONE, "--overlap"), "--overlap needs --groups"),
        ((*ONE, "--counts", "presence", "--groups", "a,b"), "belong to --overlap"),
        ((*ONE, *SETS, "--target", ".1"), "not for --overlap"),
        ((*ONE, *SETS, "--runs", "3"), "not for --overlap"),
        ((*ONE, *SETS, "--group-limit", "ranked", "--max-groups", "2"), "group_limit = 'ranked'"),
        (("plan", "--unit", "event", *ONE[3:], *SETS), "whether it is above 0 says little"),
    ],
)
def test_what_cannot_be_planned_is_refused(run: Run, words: tuple[str, ...], says: str) -> None:
    assert says in run(*words).complaint
