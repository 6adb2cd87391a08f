"""History and live windows of one sketch: each side starts at every step of the other; no window twice, none lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sketchstream as ss
from helpers.commands import Run
from helpers.noiseless import without_noise
from helpers.pages import settle
from helpers.serving import serving
from sketchstream import faults
from sketchstream.config.loader import Config
from sketchstream.query.times import to_ms
from sketchstream.stream.interfaces import SealedEntry
from sketchstream.topics import HISTORY
from sketchstream_connectors.factory import file_worker
from sketchstream_connectors.files.publisher import read_boundary
from sketchstream_connectors.files.sealed import DirectorySealed
from sketchstream_connectors.lake.job import BackfillJob

DAY = 86_400_000
START = to_ms("2024-03-01T00:00:00Z", "") or 0
DAYS, LIVE_FROM, HISTORY_TO = 6, 1, 4
"""Days of all events; the stream begins with the second one, the table ends with the fourth one."""
CONFIG = """
[input]
file = "live.jsonl"
item = "user"
time = "ts"
close_at_end = true
lateness = "1h"

[history]
file = "past"

[key]
file = "key"

[output]
directory = "{out}"

[store]
path = "{out}.state"

[[sketch]]
name = "users"
kind = "profile"
unit = "event"
epsilon = "1"
publish = "state"
intrusion = false
domain = {{ slots = 64 }}
{windows}
"""


def events(first: int, stop: int) -> list[tuple[int, str]]:
    """Times and users of some days."""
    return [
        (START + day * DAY + hour * 3_600_000, f"u{day * hour % 7}")
        for day in range(first, stop)
        for hour in range(day + 3)
    ]


def text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def deployment(folder: Path, windows: str = 'window = "1d"', out: str = "sealed") -> Config:
    """A stream, a table of what came before, and of some of the same days."""
    folder.mkdir(exist_ok=True)
    (folder / "past").mkdir(exist_ok=True)
    last = DAYS if out == "whole" else HISTORY_TO
    times, users = zip(*events(0, last), strict=True)
    table = pa.table({"ts": pa.array([ms * 1000 for ms in times], pa.timestamp("us", "UTC")), "user": list(users)})
    path = "past" if out == "sealed" else f"past.{out}"
    (folder / path).mkdir(exist_ok=True)
    pq.write_table(table, folder / path / "part.parquet")
    rows = [json.dumps({"ts": text(ms), "user": user}) for ms, user in events(LIVE_FROM, DAYS)]
    (folder / "live.jsonl").write_text("\n".join(rows) + "\n")
    if not (folder / "key").exists():
        ss.Key.generate().save(folder / "key")
    where = folder / f"{out}.toml"
    where.write_text(CONFIG.format(out=out, windows=windows).replace('"past"', f'"{path}"'))
    return Config.load(where)


def live(given: Config) -> None:
    file_worker(given).run()


def history(given: Config, days: int = HISTORY_TO, end: int | None = None) -> None:
    """Publish the history, through its last day or the boundary that a refusal names."""
    job = BackfillJob(given, START, START + days * DAY if end is None else end)
    try:
        list(job.run())
    except ss.ConfigError as error:
        assert end is None
        named = str(error).split("begin at ")[1].split(",")[0]
        history(given, end=to_ms(named, ""))
    finally:
        job.close()


def entries(given: Config) -> list[SealedEntry]:
    assert given.sealed_directory is not None
    return [one for one in DirectorySealed(given.sealed_directory).read() if isinstance(one, SealedEntry)]


def numbers(entry: SealedEntry) -> list[int]:
    body: Any = ss.load(entry.body)
    return [int(one) for one in body.state]


def require_one_series(given: Config, wanted: dict[int, list[int]]) -> int:
    """Every window once, on the right side of one boundary, which is returned, with the numbers of its events."""
    found = entries(given)
    starts = [one.window[0] for one in found]
    assert len(starts) == len({*starts}), "a window came twice"
    assert {*starts} == {*wanted}, "a window is lost"
    sides = {one.window[0]: one.partition == HISTORY for one in found}
    edge = min(start for start, of_history in sides.items() if not of_history)
    assert all(of_history == (start < edge) for start, of_history in sides.items())
    assert {one.window[0]: numbers(one) for one in found} == wanted
    assert given.sealed_directory is not None
    said = read_boundary(given.sealed_directory / "users" / "r0" / "boundary")[1]
    assert said.history == said.live == edge
    shown = list(ss.windows(given.path, "users"))
    assert [("history" in one.facts, one.complete) for one in shown] == [
        (sides[start], True) for start in sorted(sides)
    ]
    return edge


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, list[int]]:
    """Numbers of each window without noise, of one history over all days."""
    without_noise(monkeypatch)
    whole = deployment(tmp_path, out="whole")
    history(whole, DAYS)
    found = {one.window[0]: numbers(one) for one in entries(whole)}
    assert len({tuple(one) for one in found.values()}) == len(found) == DAYS
    return found


class Stopped(BaseException):
    """The process ended here."""


def steps_of(given: Config, run: Callable[[Config], None]) -> list[str]:
    """The steps that a run passes."""
    seen: list[str] = []
    faults.install(seen.append)
    try:
        run(given)
    finally:
        faults.install(None)
    return seen


def clean(given: Config) -> None:
    assert given.sealed_directory is not None
    for folder in (given.sealed_directory, given.store_path):
        shutil.rmtree(folder, ignore_errors=True)


def interleaved(given: Config, first: Any, second: Any, at: int, *, killed: bool) -> None:
    """Run one side to its step of this number, then all of the other one; then the first goes on, or begins anew."""
    left = at + 1

    def reached(_step: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            faults.install(None)
            second(given)
            if killed:
                raise Stopped

    faults.install(reached)
    try:
        first(given)
    except Stopped:
        pass
    finally:
        faults.install(None)
    assert left <= 0
    first(given)
    second(given)


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("order", ["worker first", "backfill first"])
@pytest.mark.parametrize("which", ["first of each", pytest.param("all", marks=pytest.mark.slow)])
def test_each_side_starts_at_every_step_of_the_other(
    which: str, order: str, killed: bool, tmp_path: Path, wanted: dict[int, list[int]]
) -> None:
    given = deployment(tmp_path)
    first, second = (live, history) if order == "worker first" else (history, live)
    steps = steps_of(given, first)
    assert {"boundary:named", "sealed:named", "frontier:named"} <= {*steps}
    edges = set()
    for at, step in enumerate(steps):
        if which == "all" or step not in steps[:at]:
            clean(given)
            interleaved(given, first, second, at, killed=killed)
            edges.add(require_one_series(given, wanted))
    # who claims first has its whole range: the other one came before the claim, or after it
    assert edges == {START + LIVE_FROM * DAY, START + HISTORY_TO * DAY}


def test_a_history_that_grows_ends_where_live_windows_begin(tmp_path: Path, wanted: dict[int, list[int]]) -> None:
    given = deployment(tmp_path)
    history(given, 2)
    history(given, 3)
    live(given)
    history(given)
    assert require_one_series(given, wanted) == START + 3 * DAY
    with pytest.raises(ss.ConfigError, match="live windows of sketch users begin at 2024-03-04T00:00:00Z"):
        list(BackfillJob(given, START, START + HISTORY_TO * DAY).run())


def test_overlapping_windows_have_a_boundary_of_their_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_noise(monkeypatch)
    windows = 'window = "2d"\nevery = "1d"'
    whole = deployment(tmp_path, windows, out="whole")
    history(whole, DAYS)
    wanted = {one.window[0]: numbers(one) for one in entries(whole)}
    given = deployment(tmp_path, windows)
    history(given)
    live(given)
    found = entries(given)
    assert [one.window[0] for one in found if one.partition == HISTORY] == [START + day * DAY for day in range(3)]
    assert [one.window[0] for one in found if one.partition != HISTORY] == [START + day * DAY for day in (3, 4, 5)]
    assert all(numbers(one) == wanted[one.window[0]] for one in found if one.window[0] in wanted)


def test_a_new_revision_beside_live_windows_is_begun_by_reset(tmp_path: Path, run: Run) -> None:
    given = deployment(tmp_path)
    history(given)
    live(given)
    (tmp_path / "past" / "more.parquet").write_bytes((tmp_path / "past" / "part.parquet").read_bytes())
    between = ("--from", text(START), "--to", text(START + HISTORY_TO * DAY))
    refused = run("backfill", "-c", "sealed.toml", *between, "--again", "late files")
    assert "sketchstream reset" in refused.err
    assert run("reset", "-c", "sealed.toml", "--yes").code == 0
    assert "say --again REASON" in run("backfill", "-c", "sealed.toml", *between).err
    for what in ("published", "published again"):
        done = run("backfill", "-c", "sealed.toml", *between, "--again", "late files", "--format", "json")
        assert [one["what"] for one in json.loads(done.out)["done"]] == [what] * HISTORY_TO, done.err
    assert {one.revision for one in entries(given)} == {0, 1}
    live(given)
    assert [one.facts["revision"] for one in ss.windows(given.path, "users")] == [1] * DAYS


def test_a_window_of_both_sides_is_an_incident(tmp_path: Path) -> None:
    given, other = deployment(tmp_path), deployment(tmp_path, out="whole")
    history(given)
    live(given)
    history(other, DAYS)
    path = "users/r0/20240306T000000Z/p1600000.sealed"
    shutil.copy(tmp_path / "whole" / path, tmp_path / "sealed" / path)
    with pytest.raises(ss.DataLossError, match="incident: the window of sketch users that begins at 2024-03-06"):
        list(ss.windows(given.path, "users"))


def test_live_windows_that_no_claim_names_are_not_taken(tmp_path: Path) -> None:
    given = deployment(tmp_path)
    live(given)
    shutil.rmtree(tmp_path / "sealed" / "users" / "r0" / "boundary")
    with pytest.raises(ss.ConfigError, match="live windows of sketch users begin at 2024-03-02T00:00:00Z"):
        list(BackfillJob(given, START, START + 2 * DAY).run())
    history(given, 1)
    assert len(entries(given)) == DAYS


def test_a_dry_run_shows_the_boundary_and_what_it_would_refuse(tmp_path: Path, run: Run) -> None:
    given = deployment(tmp_path)
    between = ("--from", text(START), "--to", text(START + HISTORY_TO * DAY), "--dry-run", "--format", "json")

    def planned(*more: str) -> tuple[dict[str, str], list[str]]:
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        said = json.loads(run("backfill", "-c", "sealed.toml", *between, *more).out)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        starts = [text(START + day * DAY).replace("+00:00", "Z") for day in range(HISTORY_TO)]
        assert [one["window"] for one in said["would do"]] == starts
        assert all(("begin at" in one["reason"]) == (one["what"] == "refused") for one in said["would do"])
        (edge,) = said["boundaries"]
        return edge, [one["what"] for one in said["would do"]]

    assert planned() == (
        {"sketch": "users", "history_through": None, "live_from": None},
        ["to publish"] * HISTORY_TO,
    )
    history(given, 1)
    live(given)
    edge, what = planned()
    assert edge == {"sketch": "users", "history_through": "2024-03-02T00:00:00Z", "live_from": "2024-03-02T00:00:00Z"}
    assert what == ["to publish again", *["refused"] * (HISTORY_TO - 1)]
    shutil.rmtree(tmp_path / "sealed" / "users" / "r0" / "boundary")  # as of workers that made no claims
    assert planned()[0]["live_from"] == "2024-03-02T00:00:00Z"


def test_another_ledger_of_one_history_is_refused(tmp_path: Path) -> None:
    given = deployment(tmp_path)
    history(given, 2)
    shutil.rmtree(given.history_path)
    with pytest.raises(ss.ConfigError, match="booked in another folder"):
        list(BackfillJob(given, START + 2 * DAY, START + 3 * DAY).run())
    assert len(entries(given)) == 2


def test_readers_mark_a_history_and_its_guarantee_names_the_table(tmp_path: Path, run: Run) -> None:
    given = deployment(tmp_path)
    history(given)
    live(given)
    shown = ss.windows(given.path, "users")
    assert shown.columns()["history"].tolist() == [True] * HISTORY_TO + [False] * (DAYS - HISTORY_TO)
    body = ss.load(entries(given)[0].body)
    name, snapshot = body.origin.table  # type: ignore[union-attr]
    assert name == "past"
    assert len(snapshot) == 32
    assert shown[0].facts["history"] == {"table": "past", "snapshot": snapshot}
    assert "from table past" in shown[0].status
    assert "history" not in shown[-1].facts
    said = shown[0].answer.to_dict()["guarantee"]  # type: ignore[union-attr]
    stream = shown[-1].answer.to_dict()["guarantee"]  # type: ignore[union-attr]
    assert said["published"] == stream["published"]
    assert said["published_and_one_copy"] == "not claimed: the source is kept"
    assert said["table"] == {"name": "past", "snapshot": snapshot}
    assert any("nothing is claimed" in line and snapshot in line for line in said["seen"])
    assert not any("copied this machine's open state" in line for line in said["seen"])
    assert "table" not in stream
    assert "nothing is claimed against who can read the table" in body.guarantee().summary  # type: ignore[union-attr]
    between = ("--sketch", "users", "--from", text(START), "--to", text(START + DAY))
    printed = run("profile", "-c", "sealed.toml", *between)
    assert "past" in printed.out
    assert (
        json.loads(run("profile", "-c", "sealed.toml", *between, "--format", "json").out)["history"]["table"] == "past"
    )


def test_the_service_marks_a_history_and_shows_no_window_of_both_sides(tmp_path: Path) -> None:
    given, other = deployment(tmp_path), deployment(tmp_path, out="whole")
    history(given)
    live(given)
    history(other, DAYS)
    with serving(tmp_path, given.path.read_text()) as (service, client):
        settle(service)
        rows = client.get("/v1/sketches/users/windows").json()["windows"]
        marked = {one["window_start"]: one.get("history", {}).get("table") for one in rows}
        assert [marked[start] for start in sorted(marked)] == ["past"] * HISTORY_TO + [None] * (DAYS - HISTORY_TO)
        table = client.get("/v1/sketches/users/windows?format=csv").text
        assert table.count(",past,") == HISTORY_TO
        day = {"from": text(START), "to": text(START + DAY)}
        answer = client.get("/v1/sketches/users/profile", params=day).json()
        assert answer["history"]["table"] == "past"
        assert answer["guarantee"]["published_and_one_copy"] == "not claimed: the source is kept"
        assert "from table past" in client.get("/sketches/users/window", params=day).text
        path = "users/r0/20240306T000000Z/p1600000.sealed"
        shutil.copy(tmp_path / "whole" / path, tmp_path / "sealed" / path)
        service.follower.step()
        settle(service)
        (incident,) = client.get("/v1/incidents").json()["incidents"]
        assert incident["window_start"] == "2024-03-06T00:00:00Z"
        assert "from a table and by workers" in incident["text"]
