"""`sketchstream plan --kind workload`: errors of every set of queries before anything is created."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import sketchstream as ss
from helpers.commands import Run
from sketchstream.config.loader import Config

PLAN = ("plan", "--kind", "workload")
TOPIC = """
[kafka]
bootstrap.servers = "unused:9092"
group.id = "tables"
[input]
topic = "events"
time = "ts"
partitioned_by = "none"
[[sketch]]
name = "tables"
kind = "workload"
window = "1h"
epsilon = 1
delta = "1e-6"
mechanism = "gaussian"
strategy = "tables.strategy"
workload = ["marginals:1,2", "prefix:delay"]
[[sketch.columns]]
name = "origin"
values = ["EWR", "JFK"]
[[sketch.columns]]
name = "delay"
start = 0
width = 15
count = 6
"""


def test_errors_are_those_of_what_is_published(run: Run) -> None:
    given = ("--workload", "prefix:32", "--epsilon", "1", "--delta", "1e-6", "--parts", "2")
    data = json.loads(run(*PLAN, *given, "--format", "json").out)
    assert data["mechanism"] == "laplace"
    assert [one["strategy"] for one in data["tried"] if one["chosen"]] == ["tree"]
    assert [one["rmse"] for one in data["tried"]] == sorted(one["rmse"] for one in data["tried"])
    spec = ss.WorkloadSpec("prefix:32", "1", "1e-6")
    parts = [ss.Sketch.create(spec).seal() for _ in range(2)]
    published = ss.merge(parts).estimate().stderr
    (table,) = data["tables"]
    assert table["rmse"] == pytest.approx((published**2).mean() ** 0.5)
    assert data["rmse"] == pytest.approx(table["rmse"])
    assert table["largest"] == data["worst"]
    gaussian = json.loads(run(*PLAN, *given, "--objective", "max", "--format", "json").out)
    assert {one["mechanism"] for one in gaussian["tried"]} == {"gaussian", "laplace"}


def test_a_configuration_is_planned_and_its_strategy_written_once(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sketchstream.toml").write_text(TOPIC)
    assert "cannot read strategy" in run("validate", "-c", "sketchstream.toml").complaint
    made = run(*PLAN, "-c", "sketchstream.toml", "--write")
    assert made.code == 0, made.err
    assert "prefix:delay" in made.out
    assert "at most 0.0" in made.out
    assert 'mechanism = "gaussian"\n  strategy = "tables.strategy"' in made.out
    first, second = (Config.load(tmp_path / "sketchstream.toml").sketches[0].spec for _ in range(2))
    assert first.fingerprint == second.fingerprint
    assert isinstance(first, ss.WorkloadSpec)
    assert (tmp_path / "tables.strategy").read_bytes() == first.strategy.to_bytes()
    assert "exists: windows" in run(*PLAN, "-c", "sketchstream.toml", "--write").complaint
    other = TOPIC.replace('"prefix:delay"', '"ranges:delay"')
    (tmp_path / "sketchstream.toml").write_text(other)
    assert "made for another workload" in run("validate", "-c", "sketchstream.toml").complaint
    damaged = bytearray((tmp_path / "tables.strategy").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "tables.strategy").write_bytes(damaged)
    (tmp_path / "sketchstream.toml").write_text(TOPIC)
    assert "strategy" in run("validate", "-c", "sketchstream.toml").complaint
    (tmp_path / "sketchstream.toml").write_text(TOPIC.replace('"gaussian"', '"auto"'))
    assert "strategy needs mechanism" in run("validate", "-c", "sketchstream.toml").complaint


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--epsilon", "1"), "give either --workload"),
        (("--workload", "prefix:8"), "give either --workload"),
        (("--workload", "prefixes:8", "--epsilon", "1"), "a workload's name must be one of"),
        (("--workload", "prefix:8", "--epsilon", "1", "--write"), "belong to -c"),
        (("--workload", "prefix:8", "--epsilon", "1", "--unit", "item"), "max_total"),
        (("-c", "sketchstream.toml", "--sketch", "other"), "--sketch must name one"),
        (("-c", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_mistakes_are_one_line(run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "sketchstream.toml").write_text(TOPIC)
    refused = run(*PLAN, *arguments)
    assert refused.code == 2
    assert said in refused.err


def test_every_candidate_has_the_error_that_its_sketches_have() -> None:
    from sketchstream.kinds.workload import forecast

    found = forecast.plan(
        lambda mechanism, strategy: ss.WorkloadSpec("ranges:6", "1", "1e-6", mechanism, strategy=strategy)
    )
    for spec, expected in found.tried:
        answers = ss.Sketch.create(spec).seal().estimate()
        np.testing.assert_allclose(answers.stderr, expected.stderr)
    assert len(found.tried) == 4
    assert found.spec is found.tried[0][0]
