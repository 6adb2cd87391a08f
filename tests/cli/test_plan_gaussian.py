"""`sketchstream plan --kind gaussian`: expected errors are those that sketches then have."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

import sketchstream as ss
from helpers.commands import Run

ASKED = ("plan", "--kind", "gaussian", "--size", "500", "--epsilon", "1", "--delta", "1e-6")
LAW = ("--items", "40", "--mean", "30")


def test_planned_errors_are_those_of_sketches(run: Run) -> None:
    """Fixed true counts, many published views of them: the mean squared error of every method is the planned one."""
    data = json.loads(run(*ASKED, *LAW, "--total-share", "0", "--format", "json").out)
    shares = (1 - 1 / 30) ** np.arange(900) / 30
    quantiles = np.searchsorted(np.cumsum(shares) / shares.sum(), (np.arange(40) + 0.5) / 40) + 1
    truth = np.zeros(500, np.int64)
    truth[:40] = quantiles
    spec = ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=500), max_weight=1)
    errors: dict[str, list[float]] = {name: [] for name in ("raw", "js", "js_mean", "soft_sure")}
    for _ in range(40):
        sketch = ss.Sketch.create(spec)
        sketch.update(np.repeat(np.arange(500), truth))
        sealed = sketch.seal()
        for name, found in errors.items():
            found.append(float(((sealed.estimate(method=name).values - truth) ** 2).sum()))
    for name, found in errors.items():
        planned = data["methods"][name]["rmse"] ** 2 * 500
        error = np.std(found) / len(found) ** 0.5
        slack = 0.02 if name == "soft_sure" else 0.0  # its threshold is chosen anew in every sketch
        assert abs(np.mean(found) - planned) < 5 * error + slack * planned, name
    assert data["stderr"] == pytest.approx(float(spec.publish_sigma2 or 0) ** 0.5 * 2**0.5, rel=1e-9)
    assert data["methods"]["auto"]["rmse"] == min(one["rmse"] for one in data["methods"].values())


def test_formats_agree_and_say_what_is_best(run: Run) -> None:
    data = json.loads(run(*ASKED, *LAW, "--format", "json").out)
    rows = list(csv.DictReader(io.StringIO(run(*ASKED, *LAW, "--format", "csv").out)))
    assert {row["method"]: float(row["rmse"]) for row in rows} == {
        name: one["rmse"] for name, one in data["methods"].items()
    }
    table = run(*ASKED, *LAW).out
    assert "best" in table
    assert "One published count has a standard error of" in table
    wider = json.loads(run(*ASKED, *LAW, "--windows", "4", "--format", "json").out)
    assert wider["stderr"] == pytest.approx(2 * data["stderr"])
    finer = json.loads(run(*ASKED, *LAW, "--fraction-bits", "6", "--format", "json").out)
    assert finer["stderr"] == pytest.approx(data["stderr"], rel=0.02)
    nothing = json.loads(run(*ASKED, "--items", "0", "--format", "json").out)
    assert nothing["methods"]["raw"]["relative"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--items", "501"), "--items must be at most --size"),
        (("--items", "5", "--mean", "0.5"), "mean must be"),
        (("--items", "5", "--unit", "item"), "max_total"),
        (("--items", "5", "--law", "zipf", "--exponent", "1"), "exponent must be above 1"),
    ],
)
def test_mistakes_say_what_to_do(run: Run, options: tuple[str, ...], said: str) -> None:
    done = run(*ASKED, *options)
    assert done.code not in (0, 70)
    assert said in done.err


def test_help_is_that_of_the_plan_and_names_the_noise_alone(run: Run) -> None:
    text = run("plan", "--kind", "gaussian", "--help").out
    assert "--fraction-bits" in text
    assert "sketchstream calibrate" in text
