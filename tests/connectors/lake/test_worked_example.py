"""The blocks of docs/backfill.md run as they are written, and give what the text says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import sketchstream as ss
from helpers.commands import Run
from helpers.paths import ROOT
from sketchstream_demo.flights import read_flights

TEXT, EXAMPLE = (ROOT / "docs" / "backfill.md").read_text().split("## A worked example")


def test_rows_and_tables_of_the_page_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    for block in blocks:
        exec(compile(block, "docs/backfill.md", "exec"), names)
    assert len(blocks) == 2
    assert capsys.readouterr().out.count("(17") == 4  # two windows of the rows, two of the table


@pytest.mark.slow
def test_the_worked_example_runs_and_its_numbers_are_those_of_the_flights(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = dict(re.findall(r"^```(python|bash|toml)\n(.*?)^```", EXAMPLE, re.M | re.S))
    exec(compile(blocks["python"], "docs/backfill.md", "exec"), {})
    (tmp_path / "flights.toml").write_text(blocks["toml"])
    for line in blocks["bash"].splitlines():
        done = run(*shlex.split(line)[1:])
        assert done.code == 0, done.err
    shown = ss.windows(tmp_path / "flights.toml", "aircraft")
    assert [("history" in one.facts, one.complete) for one in shown] == [(True, True)] * 6 + [(False, True)] * 6
    for one, month in zip(shown, read_flights().months(), strict=True):
        found = one.profile().distinct
        assert found.low is not None
        assert found.high is not None
        assert abs(found.value - month.counts.size) < 3 * (found.high - found.low)
