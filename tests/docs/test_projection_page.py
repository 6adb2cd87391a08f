"""docs/projection.md: its blocks run in their order, and what it says of its numbers holds."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from helpers.commands import Run
from helpers.paths import ROOT

PAGE = (ROOT / "docs" / "projection.md").read_text()


@pytest.mark.statistics
def test_the_page_runs_from_the_question_to_the_answer(run: Run, tmp_path: Path) -> None:
    said: list[str] = []
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        if language == "toml":
            (tmp_path / "sketchstream.toml").write_text(block)
        elif language == "python":
            exec(compile(block, "projection.md", "exec"), {})
        else:
            for line in block.replace("\\\n", " ").splitlines():
                name, *arguments = shlex.split(line)
                assert name == "sketchstream"
                done = run(*arguments)
                assert done.code == 0, (line, done.err)
                said.append(done.out)
    planned, _, near, pairs, among, drift, products, norms, vectors, _ = said
    assert "With k = " in planned
    found = [line.split() for line in near.splitlines() if line.split()[:1] == ["3"]]
    assert {int(line[2]) for line in found} <= {*range(10)} - {3}
    (_, alike), (apart, _) = json.loads(pairs)["intervals"]
    assert alike < apart
    assert len(among.splitlines()) == 1 + 20 * 19 // 2
    assert len([line for line in drift.splitlines() if line.split()[:1] in (["3"], ["4"])]) == 2
    for answer in (products, norms, vectors):
        assert [line.split()[0] for line in answer.splitlines() if line.split()[:1] in (["3"], ["14"])]
    assert (tmp_path / "distances.png").exists()
    assert (tmp_path / "distances.arrow").exists()


def test_the_distance_that_can_be_told_is_that_of_the_plan(run: Run) -> None:
    """The page says 120 event weights at epsilon 1 and delta 1e-6, for any number of features."""
    for features in ("100", "100000"):
        for epsilon, distance in (("1", 120), ("1/2", 240)):
            planned = run(
                "plan", "--kind", "projection", "--rows", "9", "--features", features, "--epsilon", epsilon, "--delta",
                "1e-6", "--family", "rademacher", "--squared-distance", str(distance**2), "--format", "json",
            )  # fmt: skip
            best = json.loads(planned.out)["best"]
            assert best["distance"] / distance**2 == pytest.approx(0.2, abs=0.02)
