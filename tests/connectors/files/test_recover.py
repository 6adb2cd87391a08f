"""Directory stores looked at and mended: what `recover` finds, what it changes, and what it leaves alone."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest

from sketchstream.cli import main
from sketchstream.errors import StoreError
from sketchstream.query.sealed import SealedReader
from sketchstream_connectors.files.recover import recover_directory
from sketchstream_connectors.files.sealed import DirectorySealed
from sketchstream_connectors.files.store import DirectoryStore

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")

EPOCH = 1_700_000_040_000 // 3_600_000 * 3_600_000
MINUTE = 60_000
CONFIG = """
[input]
file = "events.{suffix}"
item = "u"
item_type = "int"
time = "t"
lateness = "1m"
quorum = 1
quorum_time = "1ms"
[[sketch]]
name = "minutes"
unit = "event"
window = "1m"
epsilon = 30
domain = {{ size = 40 }}
"""


def rows(minutes: list[int], suffix: str) -> str:
    if suffix == "csv":
        return "".join(f"3,{EPOCH + minute * MINUTE}\n" for minute in minutes)
    return "".join(json.dumps({"u": 3, "t": EPOCH + minute * MINUTE}) + "\n" for minute in minutes)


@pytest.fixture(params=["jsonl", "csv"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A worker that has counted six records: minutes 0 to 2 are sealed, 3 and 4 are open."""
    (tmp_path / "c.toml").write_text(CONFIG.format(suffix=request.param))
    head = "u,t\n" if request.param == "csv" else ""
    (tmp_path / f"events.{request.param}").write_text(head + rows([0, 1, 2, 3, 4, 4], request.param))
    done, _ = run(tmp_path, "worker")
    assert done == 0
    return tmp_path


def run(app: Path, *command: str) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        code = main([*command, "-c", str(app / "c.toml")])
    return code, said.getvalue()


def outcomes(app: Path, *options: str) -> tuple[int, list[dict[str, str]]]:
    code, said = run(app, "recover", "--format", "json", *options)
    return code, json.loads(said)


def files(app: Path) -> dict[str, bytes]:
    """Everything in the store but its lock."""
    found = (app / "state").rglob("*")
    return {str(path): path.read_bytes() for path in found if path.is_file() and path.name != "lock"}


def test_healthy_stores_are_left_alone(app: Path) -> None:
    before = files(app)
    for options in (["--dry-run"], ["--accept-loss"]):
        code, (found,) = outcomes(app, *options)
        assert (code, found["outcome"]) == (0, "healthy")
    assert files(app) == before


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    (found,) = recover_directory(tmp_path / "none", None)
    assert found.outcome == "unstarted"
    assert not (tmp_path / "none").exists()


def test_a_store_in_use_is_looked_at_and_not_touched(app: Path) -> None:
    store = DirectoryStore(app / "state")
    try:
        assert outcomes(app, "--dry-run")[1][0]["outcome"] == "healthy"
        with pytest.raises(StoreError, match="in use"):
            recover_directory(app / "state", None)
    finally:
        store.close()


@pytest.mark.parametrize("damage", [None, b"{"])
def test_a_lost_description_of_the_store_is_written_again(app: Path, damage: bytes | None) -> None:
    done, _ = run(app, "reset", "--yes")
    assert done == 0
    run(app, "worker")
    about = app / "state" / "store.json"
    if damage is None:
        about.unlink()
    else:
        about.write_bytes(damage)
    assert run(app, "worker")[0] != 0
    before = files(app)
    code, (found,) = outcomes(app, "--dry-run")
    assert (code, found["outcome"], found["revision"]) == (4, "adopt", "1")
    assert files(app) == before
    code, (found,) = outcomes(app)
    assert (code, found["outcome"], found["revision"]) == (0, "adopt", "1")
    assert outcomes(app)[1][0]["outcome"] == "healthy"
    assert run(app, "worker")[0] == 0


@pytest.mark.parametrize("victim", ["snapshot", "blob"])
def test_what_is_damaged_is_lost_and_only_a_reset_helps(app: Path, victim: str) -> None:
    path = next((app / "state").rglob(f"*.{victim}"))
    path.write_bytes(path.read_bytes()[:-1])
    before = files(app)
    code, (found,) = outcomes(app, "--accept-loss")
    assert (code, found["outcome"]) == (4, "lost")
    assert "reset" in found["what"]
    assert files(app) == before
    assert run(app, "reset", "--yes")[0] == 0
    assert outcomes(app)[1][0]["outcome"] == "unstarted"
    assert run(app, "worker")[0] == 0


def test_a_snapshot_that_was_removed_is_not_a_fresh_start(app: Path) -> None:
    next((app / "state").rglob("*.snapshot")).unlink()
    code, (found,) = outcomes(app)
    assert (code, found["outcome"]) == (4, "lost")


def test_an_input_that_was_cut_is_gone_on_with_only_where_the_loss_is_accepted(app: Path) -> None:
    (path,) = app.glob("events.*")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-2]))  # the records of minute 4
    assert run(app, "worker")[0] == 4
    before = files(app)
    for options in (["--dry-run", "--accept-loss"], []):
        code, (found,) = outcomes(app, *options)
        assert (code, found["outcome"]) == (4, "accept")
        assert files(app) == before
    code, (found,) = outcomes(app, "--accept-loss")
    assert (code, found["outcome"]) == (0, "accept")
    assert outcomes(app)[1][0]["outcome"] == "healthy"
    with path.open("a") as file:
        file.write(rows([4, 8, 12], path.suffix[1:]))
    assert run(app, "worker")[0] == 0
    windows = list(SealedReader(DirectorySealed(app / "sealed")).windows("minutes"))
    marks = {(window.window[0] - EPOCH) // MINUTE: window.diverged for window in windows}
    assert marks == {0: False, 1: False, 2: False, 3: True, 4: True, 8: False}
    run(app, "worker")
    assert {w.revision for w in windows} == {0}


def test_a_reset_that_was_interrupted_is_seen_as_one(app: Path) -> None:
    about = app / "state" / "store.json"
    said = json.loads(about.read_bytes())
    about.write_text(json.dumps(said | {"revision": 5}))
    code, (found,) = outcomes(app)
    assert (code, found["outcome"], found["revision"]) == (0, "unstarted", "5")


def test_a_file_has_one_partition(app: Path) -> None:
    assert run(app, "recover", "--partition", "0")[0] == 2
