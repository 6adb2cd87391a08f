"""`sketchstream plan --kind convolution`: errors before creation, the best noise and layout first, and advice."""

from __future__ import annotations

import json
import math

import pytest

import sketchstream as ss
from helpers.commands import Run

ASKED = ("--epsilon", "1", "--delta", "1e-6")


def plan(run: Run, *arguments: str) -> dict[str, object]:
    done = run("plan", "--kind", "convolution", *arguments, "--format", "json")
    assert done.code == 0, done.err
    return dict(json.loads(done.out))


def test_the_first_figure_is_what_auto_publishes(run: Run) -> None:
    for kernel, length in (("window:24", 744), ("window:168", 744), ("decay:0.99", 500)):
        found = plan(run, "--kernel", kernel, "--length", str(length), *ASKED)
        (best, *_) = found["figures"]  # type: ignore[misc]
        spec = ss.ConvolutionSpec(
            kernel, length, epsilon="1", delta="1e-6", layout=best["layout"], counted_share="1/40"
        )
        answers = ss.Sketch.create(spec).seal().estimate()[kernel]
        assert best["noise"] == spec.noise
        assert best["rmse"][0] == pytest.approx(math.sqrt(answers.mse))
        assert best["rmse"] == min(one["rmse"] for one in found["figures"])  # type: ignore[attr-defined]


def test_counters_of_quality_are_in_the_errors(run: Run) -> None:
    asked = ("--kernel", "sum", "--length", "744", *ASKED)
    errors = [plan(run, *asked, *more)["figures"][0]["rmse"][0] for more in ((), ("--counted-share", "0"))]  # type: ignore[index]
    assert 1 / (1 - 1 / 40) <= (errors[0] / errors[1]) ** 2 < 1.06  # a share of epsilon is its square in variance
    item = plan(run, *asked, "--unit", "item", "--max-total", "1")
    assert item["figures"][0]["rmse"][0] == pytest.approx(errors[1])  # type: ignore[index]


def test_a_calendar_says_how_long_a_series_is(run: Run) -> None:
    found = plan(run, "--kernel", "window:24", "--kernel", "sum", "--window", "1y", "--step", "1h",
                 "--timezone", "America/New_York", *ASKED, "--parts", "3", "--no-intrusion")  # fmt: skip
    assert (found["length"], found["filters"]) == (8784, ["window:24", "sum"])
    single = plan(run, "--kernel", "window:24", "--kernel", "sum", "--length", "8784", *ASKED, "--no-intrusion")
    ratio = found["figures"][0]["rmse"][0] / single["figures"][0]["rmse"][0]  # type: ignore[index]
    assert ratio == pytest.approx(math.sqrt(3))


def test_where_something_else_wins_it_is_said(run: Run) -> None:
    table = run("plan", "--kind", "convolution", "--kernel", "sum", "--length", "744", *ASKED)
    assert table.code == 0, table.err
    noises = [line.split()[0] for line in table.out.splitlines() if line.split()[1:2] in (["time"], ["fourier"])]
    assert noises[0] == "tree"
    assert "744 positions" in table.out
    cells = ("--column", "late=0,1", "--column", "day=mo,tu,we")
    marginal = run("plan", "--kind", "convolution", "--kernel", "marginal:late", *cells, *ASKED)
    assert "2 cells" in marginal.out
    rows = run("plan", "--kind", "convolution", "--kernel", "window:168", "--length", "744", *ASKED, "--format", "csv")
    assert rows.out.splitlines()[0].startswith("noise,layout,error window:168")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kernel", "sum"), "--length, or --window"),
        (("--kernel", "sum", "--window", "1d"), "--window and --step"),
        (("--kernel", "sum", "--length", "3", "--column", "a=0,1"), "either --length"),
        (("--kernel", "marginal:a", "--column", "a"), "NAME=A,B"),
        (("--kernel", "windw:3", "--length", "30"), "kernel must be one of"),
    ],
)
def test_what_cannot_be_planned_is_said(run: Run, arguments: tuple[str, ...], said: str) -> None:
    refused = run("plan", "--kind", "convolution", *arguments, *ASKED)
    assert refused.code != 0
    assert said in refused.err.replace("\n", " ")
