"""Mistakes of a first user about fields: told at once by `validate`, `update` and `worker`, before anything is counted.

In: files of events. Out: verdicts. Touches: temporary folders.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.commands import Run

CONFIG = """
[input]
file = "events.jsonl"
item = "user_id"
time = "ts"
[[sketch]]
name = "daily"
unit = "event"
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


def set_aside(folder: Path) -> None:
    """The next worker is the first one."""
    for name in ("state", "sealed"):
        if (folder / name).exists():
            (folder / name).rename(folder / f"old {name}")


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
    set_aside(tmp_path)
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
    options = ["--unit", "event", "--epsilon", "1", "--items-file", "items.txt", "--key-file", key]
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


def notes(caplog: pytest.LogCaptureFixture) -> str:
    """What the worker says at its end."""
    return "\n".join(one.getMessage() for one in caplog.records if one.name == "sketchstream.worker")


def test_a_window_that_is_not_there_is_explained(
    run: Run, key: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    configure(tmp_path)
    events(tmp_path / "events.jsonl", 300)
    assert run("worker", "-c", "c.toml").code == 0
    said = notes(caplog)
    assert "event=ended 300 records" in said
    assert "0 windows sealed" in said
    assert "window 2023-11-14T00:00:00Z to 2023-11-15T00:00:00Z of sketch daily is open" in said
    assert "reaches 2023-11-15T00:10:00Z, its end and input.lateness; input.close_at_end = true seals it" in said
    asked = run("profile", "-c", "c.toml")
    assert asked.code == 1
    assert asked.complaint == (
        "no window of sketch daily is published; windows still open: 2023-11-14T00:00:00Z to 2023-11-15T00:00:00Z; "
        "each is published when it is sealed"
    )
    every = run("profile", "-c", "c.toml", "--all", "--format", "json")
    assert (every.code, every.out) == (0, "")
    assert "windows still open: 2023-11-14" in every.err
    assert MARK not in said + every.err
    caplog.clear()
    assert run("worker", "-c", "c.toml").code == 0
    assert "event=ended 0 records" in notes(caplog)
    assert "is open" in notes(caplog)


def test_the_same_input_again_is_said_to_be_late(
    spawn: Run, run: Run, key: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    close = ('time = "ts"', 'time = "ts"\nclose_at_end = true')
    configure(tmp_path, close)
    events(tmp_path / "events.jsonl", 300)
    assert run("worker", "-c", "c.toml").code == 0
    assert "1 windows sealed" in notes(caplog)
    assert "is open" not in notes(caplog)
    caplog.clear()
    assert run("worker", "-c", "c.toml").code == 0
    assert "there is nothing new: an earlier run read the input to its end" in notes(caplog)
    configure(
        tmp_path,
        close,
        ('file = "events.jsonl"', 'file = "-"\nformat = "jsonl"'),
        ("[key]", '[store]\npath = "s2"\n[output]\ndirectory = "d2"\n[key]'),
    )
    for words in ("1 windows sealed", "all 300 records are late: their windows are sealed: the same input again"):
        result = spawn("worker", "-c", "c.toml", stdin=(tmp_path / "events.jsonl").read_bytes())
        assert result.code == 0, result.err
        assert words in result.err


def test_the_log_counts_by_reason_or_says_that_it_does_not(
    run: Run, key: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    configure(tmp_path)
    events(tmp_path / "events.jsonl", 90)
    with (tmp_path / "events.jsonl").open("a") as more:
        more.write('{"user_id": 1.5, "ts": 1700000000100}\n' * 120 + "broken\n" * 3 + '{"ts": 1700000000100}\n' * 4)
    assert run("worker", "-c", "c.toml").code == 0
    assert "updates=90 unreadable_times=3 undecodable=123 invalid=123 nulls=4" in notes(caplog)
    assert "more than half of all records are undecodable: check input.format" in notes(caplog)
    caplog.clear()
    set_aside(tmp_path)
    configure(tmp_path, ("[key]", '[privacy]\ndiagnostics = "off"\n[key]'))
    assert run("worker", "-c", "c.toml").code == 0
    said = notes(caplog)
    assert "diagnostics=off (how many events were counted is not said)" in said
    assert not [word for word in ("updates=", "undecodable", "123", "nulls") if word in said]


def test_a_running_worker_reports_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    from sketchstream.testing.driver import Driver

    caplog.set_level("INFO")
    text = CONFIG.format().replace(
        'file = "events.jsonl"', 'topic = "e"\npartitioned_by = "item"\npartitioner = "fnv1a"'
    )
    text = text.replace('[key]\nfile = "key"', "").replace("slots = 1024, levels = 2", "size = 40")
    text = text.replace('item = "user_id"', 'item = "user_id"\nitem_type = "int"')
    driver = Driver('[kafka]\nbootstrap.servers = "x:1"\ngroup.id = "g"\n' + text, partitions=2)
    for number in range(100):
        event = {"user_id": number % 40, "ts": 1_700_000_000_000 + number}
        elsewhere = 1 - driver._partition(event, None, None)
        driver.send(event, partition=elsewhere, timestamp=1_700_000_000_000)
    driver.advance(minutes=3)
    said = notes(caplog)
    assert "event=progress 100 records" in said
    assert "updates=0 misplaced=100" in said
    assert "more than half of all records are misplaced: check input.partitioner with" in said


@pytest.mark.parametrize(
    ("address", "privacy", "code"),
    [
        ("127.0.0.1:0", "", 0),
        ("[::1]:0", "", 0),
        ("localhost:0", "", 0),
        ("0.0.0.0:9400", "", 2),
        ("[::]:9400", "", 2),
        ("metrics.example:9400", "", 2),
        ("0.0.0.0:9400", 'diagnostics = "off"', 0),
        ("0.0.0.0:9400", "diagnostics_public = true", 0),
    ],
)
def test_exact_counts_stay_on_loopback_addresses(
    run: Run, key: Path, tmp_path: Path, address: str, privacy: str, code: int
) -> None:
    configure(tmp_path, ("[key]", f'[worker]\nmetrics = "{address}"\n[privacy]\n{privacy}\n[key]'))
    result = run("validate", "-c", "c.toml")
    assert result.code == code, result.err
    if code:
        assert "set diagnostics = 'off', or diagnostics_public = true" in result.complaint
