"""A worker over a file, and what `profile -c` says of its windows; at epsilon 30 counts are exact."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import Run
from helpers.configurations import EVENTS_FILE, SEALED_DIRECTORY

HOUR = 3_600_000
START = 1_357_000_000_000 // HOUR * HOUR

CONFIG = f"""{EVENTS_FILE}close_at_end = {{close}}{SEALED_DIRECTORY}[[sketch]]
name = "hourly"
unit = "event"
window = "1h"
epsilon = "30"
max_count = 20
domain = {{{{ size = 6 }}}}
{{more}}
"""


def quiet(result: Any) -> list[str]:
    """Lines on standard error, without log lines and the warning that epsilon 30 deserves."""
    return [line for line in result.err.splitlines() if "NO PRIVACY" not in line and " INFO " not in line]


def write(folder: Path, events: Sequence[tuple[int, int]], close: bool = True, more: str = "") -> None:
    """Events (hour, user) and a configuration."""
    records = [
        {"ts": START + hour * HOUR + 120_000 + number, "user": user} for number, (hour, user) in enumerate(events)
    ]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (folder / "c.toml").write_text(CONFIG.format(close=str(close).lower(), more=more))


EVENTS = [(0, 0), (0, 1), (0, 1), (1, 2), (1, 2), (1, 2), (3, 5)]


@pytest.fixture
def sealed(run: Run, tmp_path: Path) -> Path:
    """Three sealed hours: one item once and one twice; one three times; one once."""
    write(tmp_path, EVENTS)
    result = run("worker", "-c", "c.toml")
    assert result.code == 0, result.err
    assert result.out == ""
    assert quiet(result) == []
    return tmp_path / "c.toml"


def test_every_window_is_exact_and_complete(run: Run, sealed: Path) -> None:
    result = run("profile", "-c", sealed, "--sketch", "hourly", "--all", "--max-count", "4", "--format", "json")
    assert result.code == 0, result.err
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [round(value, 4) for value in lines[0]["counts"]] == [4, 1, 1, 0, 0]
    assert [round(value, 4) for value in lines[1]["counts"]] == [5, 0, 0, 1, 0]
    assert [round(value, 4) for value in lines[2]["counts"]] == [5, 1, 0, 0, 0]
    assert [line["window_start"] for line in lines] == [
        "2013-01-01T00:00:00Z",
        "2013-01-01T01:00:00Z",
        "2013-01-01T03:00:00Z",
    ]
    assert lines[0]["window_end"] == "2013-01-01T01:00:00Z"
    for line in lines:
        assert line["complete"] is True
        assert line["partitions"] == {"published": 1, "of": 1, "missing": []}


def test_one_window_is_chosen_by_time(run: Run, sealed: Path) -> None:
    more = ["--from", "2013-01-01T02:00+01:00", "--to", "2013-01-01T02:00Z", "--format", "json"]
    data = json.loads(run("profile", "-c", sealed, *more).out)
    assert data["window_start"] == "2013-01-01T01:00:00Z"
    assert round(data["distinct"]["value"], 4) == 1


def test_several_windows_need_all_or_merge(run: Run, sealed: Path) -> None:
    result = run("profile", "-c", sealed)
    assert result.code == 2
    assert "more than one window" in result.complaint
    assert "--all" in result.complaint


def test_histograms_of_several_windows_cannot_be_merged(run: Run, sealed: Path) -> None:
    result = run("profile", "-c", sealed, "--merge")
    assert result.code == 1
    assert "publish = 'state'" in result.complaint


def test_no_window_in_a_range_is_said(run: Run, sealed: Path) -> None:
    result = run("profile", "-c", sealed, "--from", "2014-01-01T00:00Z")
    assert result.code == 1
    assert "no window" in result.complaint
    empty = run("profile", "-c", sealed, "--from", "2014-01-01T00:00Z", "--all", "--format", "json")
    assert (empty.code, empty.out) == (0, "")


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--sketch", "hourli"], 2, "did you mean 'hourly'?"),
        (["--from", "yesterday"], 2, "--from must be a time"),
        (
            ["--from", "2013-01-02", "--to", "2013-01-01"],
            2,
            "--from must be before --to, found 2013-01-02 and 2013-01-01",
        ),
        (["--from", "2013-01-02", "--to", "2013-01-02"], 2, "exchange them, or choose a later end"),
        (["--to", "2013-01-01T00:00"], 2, "with its offset"),
        (["--all", "--merge"], 2, "exclude each other"),
        (["--all", "--plot", "p.png"], 2, "--plot shows one profile"),
    ],
)
def test_malformed_questions(run: Run, sealed: Path, options: list[str], code: int, text: str) -> None:
    result = run("profile", "-c", sealed, *options)
    assert result.code == code
    assert text in result.complaint


def test_table_and_csv_of_every_window(run: Run, sealed: Path) -> None:
    table = run("profile", "-c", sealed, "--all").out
    assert table.count("2013-01-01T") == 3
    assert "[" in table
    rows = list(csv.DictReader(io.StringIO(run("profile", "-c", sealed, "--all", "--format", "csv").out)))
    assert len(rows) == 3 * 21
    assert {row["complete"] for row in rows} == {"true"}
    second = [row for row in rows if row["window_start"] == "2013-01-01T01:00:00Z"]
    assert [round(float(row["items"]), 4) for row in second[:4]] == [5, 0, 0, 1]


def test_worker_goes_on_where_it_stopped_and_open_windows_stay_open(run: Run, tmp_path: Path) -> None:
    write(tmp_path, EVENTS[:5], close=False)
    assert run("worker", "-c", "c.toml").code == 0
    first = run("profile", "-c", "c.toml", "--all", "--format", "json").out.splitlines()
    assert len(first) == 1  # the second hour is open: nothing of it may be seen
    write(tmp_path, EVENTS, close=True)
    assert run("worker", "-c", "c.toml").code == 0
    lines = [json.loads(line) for line in run("profile", "-c", "c.toml", "--all", "--format", "json").out.splitlines()]
    assert [round(value, 4) for value in lines[1]["counts"][:4]] == [5, 0, 0, 1]
    assert len(lines) == 3
    before = {path: path.read_bytes() for path in (tmp_path / "sealed").rglob("*") if path.is_file()}
    assert run("worker", "-c", "c.toml").code == 0
    assert {path: path.read_bytes() for path in (tmp_path / "sealed").rglob("*") if path.is_file()} == before


def test_ledger_of_a_configuration_adds_up(run: Run, sealed: Path) -> None:
    data = json.loads(run("ledger", "-c", sealed, "--format", "json").out)
    assert data["total"]["event"] == "30"
    assert len(data["sketches"]) == 3
    table = run("ledger", "-c", sealed)
    assert "one event loses at most 30" in table.out
    assert run("ledger", "-c", sealed, "--format", "csv").out.startswith("sketch,revision,unit")


def test_a_file_that_was_cut_ends_with_the_data_loss_code(run: Run, sealed: Path, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("")
    result = run("worker", "-c", sealed)
    assert result.code == 4
    assert any(line.startswith("sketchstream: error: ") for line in quiet(result))
    assert "Traceback" not in result.err


def test_a_sealed_file_that_was_exchanged_is_an_incident(run: Run, sealed: Path, tmp_path: Path) -> None:
    one, other = sorted((tmp_path / "sealed").rglob("*.sealed"))[:2]
    one.write_bytes(other.read_bytes())
    result = run("profile", "-c", sealed, "--all")
    assert result.code in (1, 4)
    assert result.out == ""
    assert len(quiet(result)) == 1


def test_states_of_several_windows_can_be_merged(run: Run, tmp_path: Path) -> None:
    write(tmp_path, EVENTS, more='publish = "state"\nintrusion = false\n')
    assert run("worker", "-c", "c.toml").code == 0
    result = run("profile", "-c", "c.toml", "--merge", "--max-count", "4", "--method", "inverse", "--format", "json")
    assert result.code == 0, result.err
    data = json.loads(result.out)
    assert data["windows"] == 3
    assert data["error_factor"] == 1.0
    assert [round(value, 4) for value in data["counts"]] == [2, 2, 1, 1, 0]
    assert "3 windows merged" in result.err


def test_guarantee_of_a_window_knows_the_deployment(run: Run, sealed: Path) -> None:
    line = json.loads(run("profile", "-c", sealed, "--all", "--format", "json").out.splitlines()[0])
    text = " ".join(line["guarantee"]["not_protected"])
    assert "snapshots in the directory store" in text
    assert "events in several windows" in text


def test_worker_reads_standard_input(spawn: Run, run: Run, tmp_path: Path) -> None:
    write(tmp_path, EVENTS)
    text = (tmp_path / "c.toml").read_text().replace('file = "events.jsonl"', 'file = "-"\nformat = "jsonl"')
    (tmp_path / "c.toml").write_text(text)
    result = spawn("worker", "-c", "c.toml", stdin=(tmp_path / "events.jsonl").read_bytes())
    assert result.code == 0, result.err
    assert "3 windows sealed" in result.err
    lines = run("profile", "-c", "c.toml", "--all", "--max-count", "3", "--format", "json").out.splitlines()
    assert [round(value, 4) for value in json.loads(lines[1])["counts"]] == [5, 0, 0, 1]


def test_reset_counts_again_as_a_new_revision_and_the_ledger_adds_it(run: Run, sealed: Path, tmp_path: Path) -> None:
    refused = run("reset", "-c", sealed)
    assert refused.code == 2
    assert "say --yes" in refused.err
    done = run("reset", "-c", sealed, "--yes", "--format", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["revision"] == 1
    assert "lose epsilon again" in done.err
    assert run("worker", "-c", sealed).code == 0
    lines = [json.loads(line) for line in run("profile", "-c", sealed, "--all", "--format", "json").out.splitlines()]
    assert [line["revision"] for line in lines] == [1, 1, 1]
    assert [round(value, 4) for value in lines[1]["counts"][:4]] == [5, 0, 0, 1]
    assert len(list((tmp_path / "sealed").rglob("*.sealed"))) == 6
    assert json.loads(run("ledger", "-c", sealed, "--format", "json").out)["total"]["event"] == "60"
    assert [line["guarantee"]["total"] for line in lines] == ["60"] * 3, "what the ledger says, not one revision's part"


def test_a_sketch_that_left_the_configuration_is_still_paid_for(run: Run, sealed: Path) -> None:
    text = sealed.read_text()
    assert text.count('name = "') == 1
    for name in ("second", "third"):
        sealed.write_text(re.sub('name = "[a-z]+"', f'name = "{name}"', text))
        assert run("reset", "-c", sealed, "--yes").code == 0
        assert run("worker", "-c", sealed).code == 0
    spent = json.loads(run("ledger", "-c", sealed, "--format", "json").out)["total"]
    assert spent["event"] == "90"
    lines = [json.loads(line) for line in run("profile", "-c", sealed, "--all", "--format", "json").out.splitlines()]
    assert {(line["sketch"], line["guarantee"]["total"]) for line in lines} == {("third", spent["event"])}
    assert all("over 3 sketches: an event loses at most 90" in " ".join(line["guarantee"]["seen"]) for line in lines)


def test_reset_beyond_the_budget_is_refused_before_anything_is_dropped(run: Run, sealed: Path, tmp_path: Path) -> None:
    text = sealed.read_text()
    sealed.write_text(f"{text}\n[privacy]\nmax_epsilon = 50\n")
    before = sorted((tmp_path / "state").rglob("*.snapshot"))
    refused = run("reset", "-c", sealed, "--yes")
    assert refused.code == 2
    assert "lost up to 30 by what was published, and would lose 30 more" in refused.complaint
    assert sorted((tmp_path / "state").rglob("*.snapshot")) == before != []
    sealed.write_text(text)
    assert run("reset", "-c", sealed, "--yes").code == 0


def test_reset_of_a_store_in_use_is_refused(run: Run, sealed: Path, tmp_path: Path) -> None:
    from sketchstream_connectors.files.store import DirectoryStore

    store = DirectoryStore(tmp_path / "state")
    try:
        result = run("reset", "-c", sealed, "--yes")
    finally:
        store.close()
    assert result.code == 1
    assert "in use" in result.complaint


def test_a_worker_whose_windows_need_more_than_its_memory_does_not_start(run: Run, sealed: Path) -> None:
    sealed.write_text(f'{sealed.read_text()}\n[worker]\nmemory_limit = "10B"\n')
    result = run("worker", "-c", sealed)
    assert result.code == 2
    assert "more than worker.memory_limit = 10 B" in result.complaint
