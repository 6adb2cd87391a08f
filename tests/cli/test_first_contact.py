"""Mistakes of a first user about fields: told at once by `validate`, `update` and `worker`, before anything is counted.

In: files of events. Out: verdicts. Touches: temporary folders.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
CONFIG = """
[input]
file = "events.jsonl"
item = "user_id"
time = "ts"
[[sketch]]
name = "daily"
window = "1d"
epsilon = "1"
domain = {{ slots = 1024, levels = 2 }}
[key]
file = "key"
"""
MARK = "zebra-5512"


def events(path: Path, count: int, **more: object) -> None:
    lines = [{"user_id": f"{MARK}-{n % 50}", "n": 7, "ts": 1_700_000_000_000 + n, **more} for n in range(count)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def configure(folder: Path, *changes: tuple[str, str]) -> None:
    text = CONFIG.format()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "c.toml").write_text(text)


MISTAKES = [
    pytest.param(
        [('item = "user_id"', 'item = "userid"')], "'userid' (input.item)", "did you mean 'user_id'", id="item"
    ),
    pytest.param([('time = "ts"', 'time = "at"')], "'at' (input.time)", "fields there are: n, ts, user_id", id="time"),
    pytest.param([('time = "ts"', 'time = "ts"\nweight = "m"')], "'m' (input.weight)", "would count as 1", id="weight"),
    pytest.param(
        [('time = "ts"', 'time = "ts"\nweight = "n"')], "above max_weight = 1", "raise max_weight", id="heavy"
    ),
    pytest.param([('time = "ts"', 'time = "ts"\nitem_type = "int"')], "no item of type int", "item_type", id="type"),
]


@pytest.mark.parametrize(("changes", "what", "advice"), MISTAKES)
def test_a_field_that_is_not_there_is_told_before_any_sketch_exists(
    run: Run, key: Path, tmp_path: Path, changes: list[tuple[str, str]], what: str, advice: str
) -> None:
    configure(tmp_path, *changes)
    events(tmp_path / "events.jsonl", 300)
    for command in ("validate", "worker"):
        result = run(command, "-c", "c.toml")
        assert result.code == 2, (command, result.err)
        (line,) = [line for line in result.err.splitlines() if line.startswith("sketchstream: error:")]
        assert what in line
        assert advice in line
        assert MARK not in result.err + result.out
    assert not list(tmp_path.glob("state/p*/*.blob"))
    configure(tmp_path)
    assert run("validate", "-c", "c.toml").code == 0
    assert run("worker", "-c", "c.toml").code == 0


def test_few_records_and_a_started_worker_are_warned_only(
    run: Run, key: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configure(tmp_path, ('item = "user_id"', 'item = "userid"'))
    events(tmp_path / "events.jsonl", 20)
    checked = run("validate", "-c", "c.toml")
    assert checked.code == 0
    assert "warning: none of the 20 records of a sample has the field 'userid'" in checked.err
    started = run("worker", "-c", "c.toml")
    assert started.code == 0, started.err
    assert "event=sample warning=" in caplog.text
    caplog.clear()
    configure(tmp_path)
    (tmp_path / "state").rename(tmp_path / "old state")
    (tmp_path / "sealed").rename(tmp_path / "old sealed")
    assert run("worker", "-c", "c.toml").code == 0
    configure(tmp_path, ('item = "user_id"', 'item = "userid"'))
    with (tmp_path / "events.jsonl").open("a") as more:
        more.write('{"user_id": "a", "n": 1, "ts": 1700000001000}\n' * 200)
    later = run("worker", "-c", "c.toml")
    assert later.code == 0
    assert "'userid'" in caplog.text


def test_standard_input_is_looked_at_too(spawn: Run, run: Run, key: Path, tmp_path: Path) -> None:
    configure(tmp_path, ('file = "events.jsonl"', 'file = "-"\nformat = "jsonl"'), ('item = "user_id"', 'item = "u"'))
    events(tmp_path / "events.jsonl", 300)
    result = spawn("worker", "-c", "c.toml", stdin=(tmp_path / "events.jsonl").read_bytes())
    assert result.code == 2
    assert "has the field 'u' (input.item); fields there are: n, ts, user_id" in result.err


UPDATES = [
    pytest.param(["--item", "userid"], "has the field 'userid' (--item); fields there are: n, ts, user_id", id="item"),
    pytest.param(["--item", "user_id", "--weight", "m"], "has the field 'm' (--weight): every event", id="weight"),
    pytest.param(
        ["--item", "user_id", "--weight", "n"], "every weight of a sample is above max_weight = 1", id="heavy"
    ),
    pytest.param(["--item", "user_id", "--item-type", "int"], "no item of type int (--item-type)", id="type"),
]


@pytest.mark.parametrize(("options", "words"), UPDATES)
def test_update_adds_nothing_where_no_record_has_the_field(
    run: Run, key: Path, made: Callable[..., Path], tmp_path: Path, options: list[str], words: str
) -> None:
    path = made()
    before = path.read_bytes()
    events(tmp_path / "events.jsonl", 300)
    result = run("update", path, "events.jsonl", *options, "--key-file", key)
    assert result.code == 2
    assert words in result.complaint
    assert path.read_bytes() == before
    events(tmp_path / "events.jsonl", 30)
    warned = run("update", path, "events.jsonl", *options, "--key-file", key)
    assert warned.code == 0
    assert words in warned.err
    assert MARK not in result.err + warned.err


def test_a_json_array_is_not_lines_of_json(run: Run, key: Path, made: Callable[..., Path], tmp_path: Path) -> None:
    path = made()
    (tmp_path / "events.jsonl").write_text(json.dumps([{"user_id": "a", "ts": 1}] * 3))
    result = run("update", path, "events.jsonl", "--item", "user_id", "--key-file", key)
    assert result.code == 2
    assert "JSON array" in result.complaint
    configure(tmp_path)
    for command in ("validate", "worker"):
        refused = run(command, "-c", "c.toml")
        assert refused.code == 2
        assert "the input is a JSON array" in refused.err


def test_diagnostics_of_update_name_every_reason(run: Run, key: Path, tmp_path: Path) -> None:
    (tmp_path / "items.txt").write_text("a\nb\n")
    options = ["--epsilon", "1", "--items-file", "items.txt", "--key-file", key]
    assert run("create", "-o", "s", *options).code == 0
    lines = (
        ['{"u":"a","n":1}'] * 5 + ['{"u":"b","n":9}'] * 2 + ['{"u":"c","n":1}'] * 3 + ["broken", '{"x":1}', '{"u":[]}']
    )
    (tmp_path / "e.jsonl").write_text("\n".join(lines))
    base = ("update", "s", "e.jsonl", "--item", "u", "--weight", "n", "--key-file", key)
    assert run(*base).err == ""
    told = run(*base, "--diagnostics", "exact").err
    assert told.startswith(
        "2 events could not be read, 1 have no item, 2 have a weight above max_weight, 3 have an item"
    )
