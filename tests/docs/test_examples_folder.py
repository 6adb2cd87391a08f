"""The folder of examples: what its page says runs, and the answers are near the truth.

In: examples/. Out: verdicts. Touches: a temporary copy of the folder.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.commands import Run
from helpers.paths import ROOT

FOLDER = ROOT / "examples"


@pytest.mark.statistics
def test_examples_run_and_are_right(run: Run, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "examples")
    made = [sys.executable, "examples/visits.py", "--users", "2000", "--days", "2"]
    subprocess.run(made, cwd=tmp_path, check=True)
    visits = [json.loads(line) for line in (tmp_path / "visits.jsonl").read_text().splitlines()]
    assert run("keygen", "-o", "sketch.key").code == 0
    listed = re.findall(r"^\| \[(\w+\.toml)\]", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(one.name for one in FOLDER.glob("*.toml"))
    for name in listed:
        checked = run("validate", "--offline", "-c", f"examples/{name}")
        assert (checked.code, checked.err) == (0, ""), name
        if name != "topic.toml":
            assert run("worker", "-c", f"examples/{name}").code == 0, name

    def near(found: dict[str, float], truth: int) -> None:
        assert abs(found["value"] - truth) < 3 * (found["high"] - found["low"]), "six standard deviations"

    asked = ["--group", "spring", "--format", "json"]
    week = json.loads(run("profile", "-c", "examples/campaigns.toml", "--sketch", "reach.1w", *asked).out)
    spring = [one["user"] for one in visits if one["campaign"] == "spring"]
    near(week["at_least"]["3"], sum(spring.count(user) >= 3 for user in set(spring)))
    assert week["names"]["items"] == "users"
    both = json.loads(run("overlap", "-c", "examples/both.toml", "--query", "spring & brand", "--format", "json").out)
    brand = {one["user"] for one in visits if one["campaign"] == "brand"}
    near(both["answers"][0], len(set(spring) & brand))
    hours = run("estimate", "-c", "examples/shops.toml", "--all", "--format", "csv").out.splitlines()
    assert len(hours) == 1 + 24 * 2 * 10
