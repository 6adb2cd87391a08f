"""`[[sketch]]` of kind `workload`: columns, queries and files in a configuration, and workers that run it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import sketchstream as ss
from helpers.commands import Run
from helpers.configurations import EVENTS_FILE, SEALED_DIRECTORY, UNKEYED_TOPIC
from sketchstream.config.loader import Config
from sketchstream.testing.driver import Driver

BLOCK = """[[sketch]]
name = "tables"
kind = "workload"
window = "1h"
epsilon = 40
mechanism = "laplace"
workload = ["marginals:1,2", "ranges:delay", "origin x prefix:delay"]

[[sketch.columns]]
name = "origin"
field = "from.airport"
values = ["EWR", "JFK", "LGA"]
other = true

[[sketch.columns]]
name = "delay"
start = -30
width = 15
count = 6
"""
MARK = "zq7markedairport"
"""A value of the records that is in no list."""
FILE = EVENTS_FILE.replace('item = "user"\nitem_type = "int"\n', "")


def mistakes(block: str, topic: str = UNKEYED_TOPIC.replace("[input]", '[input]\nitem = "user"')) -> tuple[str, ...]:
    with pytest.raises(ss.ConfigError) as caught:
        Config.parse(topic + block)
    return caught.value.mistakes


def spec_of(text: str) -> ss.WorkloadSpec:
    (plan,) = Config.parse(text).sketches
    assert isinstance(plan.spec, ss.WorkloadSpec)
    return plan.spec


@pytest.mark.filterwarnings("ignore::sketchstream.NoPrivacyWarning")
def test_queries_are_asked_of_named_columns() -> None:
    config = Config.parse(UNKEYED_TOPIC + BLOCK)
    (plan,) = config.sketches
    assert config.columns == ("delay", "from.airport")
    assert plan.fields == {"origin": "from.airport", "delay": "delay"}
    spec = plan.spec
    assert isinstance(spec, ss.WorkloadSpec)
    assert [(table.name, table.shape) for table in spec.workload.tables()] == [
        ("origin", (4,)),
        ("delay", (6,)),
        ("origin x delay", (4, 6)),
        ("delay", (21,)),
        ("origin x delay", (4, 6)),
    ]
    assert spec.universe is not None
    assert spec.universe.describe(3) == {"origin": "EWR", "delay": "15..30"}
    assert "from" not in json.dumps(spec.universe.to_dict())  # how records spell a column is configuration
    assert [table.axes[0].queries for table in spec.workload.tables()][3:] == ["ranges", "identity"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"ranges:delay"', '"ranges:dealy"', "there is no column 'dealy'; there are origin, delay"),
        ('"ranges:delay"', '"rangs:delay"', "expected a column, or prefix:COLUMN"),
        ('"ranges:delay"', '"ranges:origin"', "ranges of column 'origin' needs cells with an order"),
        ('"ranges:delay"', '"windows:delay"', "windows:COLUMN:WIDTH"),
        ('"ranges:delay"', '"windows:delay:x"', "must be a whole number"),
        ('"ranges:delay"', '"windows:delay:7"', "width of windows"),
        ('"ranges:delay"', '"delay x prefix:delay"', "names column 'delay' twice"),
        ('"ranges:delay"', '"x.npy"', "a matrix needs exactly one column"),
        ("marginals:1,2", "marginals:1,3", "orders of marginals must be whole numbers from 0 to 2"),
        ("marginals:1,2", "marginals:one", "written as 'marginals:1,2'"),
        ('["marginals:1,2", "ranges:delay", "origin x prefix:delay"]', "[]", "workload must ask something"),
        ('values = ["EWR", "JFK", "LGA"]\n', "", "needs either values or edges"),
        ('values = ["EWR", "JFK", "LGA"]', 'values = ["EWR", "EWR"]', "must differ from each other"),
        ("width = 15\n", "", "need start, width and count"),
        ("width = 15", "width = -1", "ascending"),
        ("width = 15", "wdith = 15", "unknown key"),
        ('name = "delay"', 'name = "origin"', "columns with different names"),
        ("epsilon = 40", 'epsilon = 40\nunit = "item"', "max_total"),
        ('"laplace"', '"gaussian"\ndelta = "1e-6"', "strategy is missing"),
        ('"laplace"', '"gausian"', "mechanism must be"),
        ("epsilon = 40", "epsilon = 40\ndomain = { slots = 1024 }", "domain does not belong to kind 'workload'"),
        ('"laplace"', '"gaussian"\nstrategy = "nowhere.strategy"', "cannot read strategy"),
        ("epsilon = 40", 'epsilon = 40\nstrategy = "nowhere.strategy"', "cannot read strategy"),
    ],
)
@pytest.mark.filterwarnings("ignore::sketchstream.NoPrivacyWarning")
def test_one_mistake_is_one_line(old: str, new: str, said: str) -> None:
    assert old in BLOCK
    found = mistakes(BLOCK.replace(old, new))
    assert len(found) == 1, found
    assert said in found[0]
    assert "\n" not in found[0]


@pytest.mark.filterwarnings("ignore::sketchstream.NoPrivacyWarning")
def test_columns_need_a_format_with_fields() -> None:
    found = mistakes(BLOCK, UNKEYED_TOPIC.replace('time = "ts"', 'format = "value"'))
    assert any("names a field, and format = 'value' has none" in one for one in found), found


@pytest.mark.filterwarnings("ignore::sketchstream.NoPrivacyWarning")
def test_without_columns_items_are_cell_numbers() -> None:
    text = EVENTS_FILE + SEALED_DIRECTORY + BLOCK[: BLOCK.index("[[sketch.columns]]")]
    text = text.replace('["marginals:1,2", "ranges:delay", "origin x prefix:delay"]', '"ranges:9"')
    assert spec_of(text).workload.count == 45
    assert any(
        "a list of queries needs columns" in one
        for one in mistakes(BLOCK[: BLOCK.index("[[sketch.columns]]")], EVENTS_FILE + SEALED_DIRECTORY)
    )


@pytest.mark.filterwarnings("ignore::sketchstream.NoPrivacyWarning")
def test_matrices_are_read_from_the_folder_of_the_file(tmp_path: Path) -> None:
    matrix = np.random.default_rng(1).integers(0, 2, (5, 6))
    np.save(tmp_path / "queries.npy", matrix)
    column = BLOCK[BLOCK.rindex("[[sketch.columns]]") :]
    head = BLOCK[: BLOCK.index("[[sketch.columns]]")]
    head = head.replace('["marginals:1,2", "ranges:delay", "origin x prefix:delay"]', '["queries.npy", "delay"]')
    path = tmp_path / "sketchstream.toml"
    path.write_text(FILE + SEALED_DIRECTORY + head + column)
    (plan,) = Config.load(path).sketches
    np.testing.assert_array_equal(plan.spec.workload.dense(), np.vstack([matrix, np.eye(6)]))  # type: ignore[attr-defined]


def events(hours: int = 2) -> list[dict[str, object]]:
    random = np.random.default_rng(7)
    out: list[dict[str, object]] = []
    for number in range(600 * hours):
        hour, minute, second = number // 600, number % 600 // 10, number % 10
        where = ["EWR", "JFK", "LGA", MARK, None][int(random.integers(0, 5))]
        delay = [-31, -30, 0, 14.999, 15, 59, 60, "12", None, int(random.integers(-40, 70))][
            int(random.integers(0, 10))
        ]
        out.append({"from": {"airport": where}, "delay": delay, "ts": f"2024-01-01T{hour:02}:{minute:02}:{second:02}Z"})
    return out


def cells_of(spec: ss.WorkloadSpec, given: list[dict[str, object]]) -> list[int]:
    assert spec.universe is not None
    places = [(one["from"]["airport"], one["delay"]) for one in given]  # type: ignore[index]
    return [spec.universe.locate({"origin": place, "delay": delay}) for place, delay in places]


def truth_of(spec: ss.WorkloadSpec, given: list[dict[str, object]]) -> np.ndarray:
    cells = [cell for cell in cells_of(spec, given) if cell >= 0]
    return spec.workload.apply(np.bincount(cells, minlength=spec.workload.size).astype(float))


@pytest.mark.filterwarnings("ignore::sketchstream.NoPrivacyWarning")
def test_partitions_of_a_topic_are_added_whatever_is_killed() -> None:
    driver = Driver(UNKEYED_TOPIC + BLOCK, partitions=3, now="2024-01-01T02:30:00Z")
    given = events()
    for number, event in enumerate(given):
        driver.send(event, timestamp=str(event["ts"]), key=str(number).encode())
        if number % 200 == 150:
            driver.run()
            driver.snapshot()
        if number % 350 == 300:
            driver.kill()
    driver.run()
    window = driver.windows("tables")[0]
    answers = ss.stack(window.parts).estimate()
    truth = truth_of(window.parts[0].spec, [one for one in given if str(one["ts"]) < "2024-01-01T01"])
    assert len(window.parts) == 3
    assert len(answers.layers) == 6
    share = window.quality.share
    assert share is not None
    inside = np.mean([cell >= 0 for cell in cells_of(window.parts[0].spec, given[:600])])
    assert share.value == pytest.approx(inside, abs=0.15)
    assert answers.stderr.max() < 1
    assert np.abs(answers.values - truth).max() < 6 * answers.stderr.max() + 1
    assert answers.table("origin x delay").sum() == pytest.approx(truth[:4].sum(), abs=20)


@pytest.mark.filterwarnings("ignore::sketchstream.NoPrivacyWarning")
def test_a_worker_reads_a_file_and_answers_come_back_as_named_tables(run: Run, tmp_path: Path) -> None:
    block = BLOCK.replace('"laplace"', '"gaussian"\ndelta = "1e-5"')
    (tmp_path / "sketchstream.toml").write_text(FILE + "close_at_end = true\n" + SEALED_DIRECTORY + block)
    given = events()
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in given))
    checked = run("validate", "-c", "sketchstream.toml")
    made = run("worker", "-c", "sketchstream.toml", "--log-level", "debug")
    assert (checked.code, made.code) == (0, 0), made.err
    window = ("-c", "sketchstream.toml", "--from", "2024-01-01T00:00Z", "--to", "2024-01-01T01:00Z")
    found = run("estimate", *window, "--format", "json", "--arrow", "rows.arrow")
    assert found.code == 0, found.err
    data = json.loads(found.out)
    spec = spec_of(FILE + SEALED_DIRECTORY + block)
    truth = truth_of(spec, given[:600])
    assert np.abs(np.array(data["values"]) - truth).max() < 6 * max(data["stderr"]) + 1
    assert data["tables"][2]["columns"][0]["labels"] == ["EWR", "JFK", "LGA", "other"]
    rows = run("estimate", *window, "--format", "csv").out.splitlines()
    assert rows[0] == "table,origin,delay,value,stderr,low,high"
    assert len(rows) == 1 + spec.workload.count
    assert any(row.startswith("delay,,'-30..-15 to 15..30,") for row in rows)
    assert math.isfinite(float(rows[-1].split(",")[3]))
    said = "".join(one.said for one in (checked, made, found)).encode()
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "events.jsonl"]
    assert MARK.encode() in (tmp_path / "events.jsonl").read_bytes()
    assert not any(MARK.encode() in one for one in [said, *kept])
