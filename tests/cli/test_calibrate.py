"""`calibrate`: the third of epsilon, delta and sigma in every format, noise on the integers, refusals."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from helpers.commands import Run


def test_formats_agree(run: Run) -> None:
    ask = ("calibrate", "--epsilon", "1", "--delta", "1e-6", "--sensitivity", "2")
    data = json.loads(run(*ask, "--format", "json").out)
    assert data == {"noise": "gaussian", "epsilon": "1", "delta": "1e-6", "sensitivity": "2", "sigma": data["sigma"]}
    assert data["sigma"] == pytest.approx(8.449357778654, rel=1e-11)
    rows = {row["field"]: row["value"] for row in csv.DictReader(io.StringIO(run(*ask, "--format", "csv").out))}
    assert rows == {name: str(value) for name, value in data.items()}
    assert run(*ask).out.splitlines()[-1].split() == ["sigma", str(data["sigma"])]


def test_each_of_the_three_is_found_from_the_other_two(run: Run) -> None:
    def found(*options: str) -> dict[str, Any]:
        return json.loads(run("calibrate", *options, "--format", "json").out)

    sigma = str(found("--epsilon", "0.5", "--delta", "1e-9")["sigma"])
    assert found("--epsilon", "0.5", "--sigma", sigma)["delta"] == pytest.approx(1e-9, rel=1e-9, abs=0)
    assert found("--delta", "1e-9", "--sigma", sigma)["epsilon"] == pytest.approx(0.5, rel=1e-9)


def test_noise_on_the_integers(run: Run) -> None:
    ask = ("calibrate", "--epsilon", "5", "--delta", "1e-6", "--discrete", "--format", "json")
    data = json.loads(run(*ask, "--shape", "1,-1").out)
    assert (data["sigma2"], data["route"], data["shapes"]) == ("2001/1024", "exact", ["1,-1"])
    assert data["delta_verified"] <= 1e-6
    assert json.loads(run(*ask).out)["sigma2"] == "115/128"
    assert json.loads(run(*ask, "--sensitivity", "1").out)["sigma2"] == "115/128"
    wide = json.loads(run(*ask, "--sensitivity2", "64", "--coordinates", "64").out)
    assert (wide["route"], wide["sensitivity2"], wide["coordinates"]) == ("smoothing", 64, 64)


def test_plan_of_kind_gaussian_is_calibrate(run: Run) -> None:
    ask = ("--epsilon", "1", "--delta", "1e-6", "--sensitivity", "2")
    calibrated = run("calibrate", *ask)
    for kind in (("--kind", "gaussian"), ("--kind=gaussian",)):
        planned = run("plan", *kind, *ask)
        assert (planned.code, planned.out) == (0, calibrated.out)
    profile = ("plan", "--unit", "event", "--epsilon", "1", "--size", "100", "--items", "50", "--format", "json")
    assert run(*profile, "--kind", "profile").out == run(*profile).out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "1"], "exactly two of --epsilon, --delta and --sigma are needed"),
        (["--epsilon", "1", "--delta", "1e-6", "--sigma", "3"], "exactly two of"),
        (["--epsilon", "-1", "--delta", "1e-6"], "epsilon must be at least 0, found -1"),
        (["--epsilon", "1", "--delta", "0.7"], "delta must be in [1e-300, 0.5], found 0.7"),
        (["--epsilon", "1", "--sigma", "0"], "sigma must be at least 1e-300, found 0"),
        (["--epsilon", "1", "--delta", "1e-6", "--shape", "1"], "belong to --discrete"),
        (["--epsilon", "1", "--sigma", "3", "--discrete"], "--epsilon and --delta are needed"),
        (["--epsilon", "1", "--delta", "1e-6", "--discrete", "--shape", "1,x"], "needs whole numbers"),
        (["--epsilon", "1", "--delta", "1e-6", "--discrete", "--sensitivity", "1.5"], "needs whole numbers"),
        (["--epsilon", "1", "--delta", "1e-6", "--discrete", "--coordinates", "2"], "are needed together"),
        (
            ["--epsilon", "1", "--delta", "1e-6", "--discrete", "--shape", "1", "--sensitivity", "1"],
            "only one of --sensitivity, --shape and --sensitivity2",
        ),
    ],
)
def test_mistakes_are_one_line(run: Run, options: list[str], message: str) -> None:
    result = run("calibrate", *options)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1
