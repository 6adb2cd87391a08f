"""Kill -9 at every write of release, seal, update, snapshot and publication: the ledger never says less than what left.

In: commands and workers killed at their n-th change of the file system. Out: verdicts. Touches: child processes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from helpers.configurations import EVENTS_FILE, SEALED_DIRECTORY
from sketchstream import published, wire
from sketchstream.errors import FormatError
from sketchstream.privacy.ledgers.ledger import Ledger
from sketchstream.privacy.losses.history import View

pytestmark = pytest.mark.statistics
ZYGOTE = """
import json, os, signal, sys
import sketchstream.cli, sketchstream.files, sketchstream.privacy.ledgers.ledger, sketchstream.sketch, sketchstream.wire
import sketchstream_connectors.factory, sketchstream.testing.driver, sketchstream.privacy.deployments.guarantee
import sketchstream.noise.laplace, sketchstream.kernels, sketchstream_connectors.files

def counted(call, changes=lambda *a, **k: True):
    def wrapped(*args, **more):
        global left
        if changes(*args, **more):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        return call(*args, **more)
    return wrapped

for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(job["folder"])
        quiet = os.open("/dev/null", os.O_WRONLY)
        os.dup2(quiet, 1), os.dup2(quiet, 2)
        left = job["step"]
        os.write = counted(os.write, lambda fd, *_: fd > 2)
        os.fsync, os.link, os.replace = counted(os.fsync), counted(os.link), counted(os.replace)
        os.rename, os.unlink, os.mkdir = counted(os.rename), counted(os.unlink), counted(os.mkdir)
        os.open = counted(os.open, lambda path, flags, *_, **__: bool(flags & os.O_CREAT))
        code = 70
        try:
            code = sketchstream.cli.main(job["arguments"])
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
NEVER = -1
"""A step that is never reached."""


class Zygote:
    """A process that has imported everything and forks for each command: a kill costs milliseconds."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "ignore", "-c", ZYGOTE]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, *arguments: str, folder: Path, step: int = NEVER) -> int:
        """Run a command that is killed before its change number `step`; its exit code, -9 if it was killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"step": step, "arguments": arguments, "folder": str(folder)}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    """One for all tests of this file."""
    made = Zygote()
    yield made
    made.close()


def each_step(zygote: Zygote, folder: Path, *arguments: str, stride: int = 1) -> Iterator[tuple[int, Path]]:
    """A fresh copy of the folder for every change that the command makes, in the state the kill left it in.

    With a stride every so-manieth change only.
    """
    for step in range(0, 300, stride):
        here = folder.parent / f"{folder.name}-{arguments[0]}-{step}"
        shutil.copytree(folder, here)
        code = zygote.run(*arguments, folder=here, step=step)
        yield step, here
        if code == 0:
            assert step >= 4, "the command changed nothing"
            return
        assert code == -9
    pytest.fail("the command never ended")


@pytest.fixture
def opened(tmp_path: Path, zygote: Zygote) -> Path:
    """A folder with an open sketch and some events."""
    folder = tmp_path / "life"
    folder.mkdir()
    (folder / "events").write_text("1\n2\n2\n3\n")
    for arguments in (
        ("create", "-o", "s.sketch", "--unit", "event", "--epsilon", "1", "--size", "8", "--max-epsilon", "5"),
        ("update", "s.sketch", "events", "--format", "lines"),
    ):
        assert zygote.run(*arguments, folder=folder) == 0
    return folder


def objects(folder: Path) -> dict[str, str]:
    """Every file of ours that is whole, temporaries included: name -> kind."""
    found = {}
    for path in sorted(folder.iterdir()):
        try:
            found[path.name] = str(wire.unpack(path.read_bytes())[0]["kind"])
        except FormatError:
            continue
    return found


def ledger(path: Path) -> Ledger:
    return Ledger.from_dict(wire.unpack(path.read_bytes())[0]["ledger"])


def test_a_release_that_left_is_in_the_ledger_wherever_the_command_is_killed(opened: Path, zygote: Zygote) -> None:
    charged = left = 0
    for _, folder in each_step(zygote, opened, "release", "s.sketch", "-o", "look", "--epsilon", "1/4"):
        entries = ledger(folder / "s.sketch").history.entries
        spent = tuple(one.cost for one in entries if isinstance(one, View) and one.kind == "release")
        out = [name for name, kind in objects(folder).items() if kind == "release"]
        assert spent in ((), (Fraction(1, 4),))
        if out:
            assert spent == (Fraction(1, 4),)
        charged += bool(spent)
        left += "look" in out
        assert (folder / "s.sketch").stat().st_mode & 0o077 == 0
    assert 0 < left < charged  # the charge comes first


def test_a_killed_seal_never_leads_to_two_publications(opened: Path, zygote: Zygote) -> None:
    once = 0
    for _, folder in each_step(zygote, opened, "seal", "s.sketch", "-o", "s.sealed"):
        before = {path.read_bytes() for path in folder.iterdir() if path.name == "s.sealed"}
        once += bool(before)
        zygote.run("seal", "s.sketch", "-o", "again.sealed", folder=folder)
        for path in ("again.sealed", "s.sealed"):
            if (folder / path).exists():
                before.add((folder / path).read_bytes())
        assert len(before) == 1, "two different publications of one sketch, or none"
        found = published.read_published(before.pop())
        assert not isinstance(found, published.Stack)
        assert found.ledger.loss() == 1
        kinds = [kind for name, kind in objects(folder).items() if name != "events"]
        assert "sketch" not in kinds, "an open state outlived its publication"
    assert once > 1


def test_a_killed_update_leaves_one_whole_sketch_and_no_second_copy_in_sight(opened: Path, zygote: Zygote) -> None:
    for _, folder in each_step(zygote, opened, "update", "s.sketch", "events", "--format", "lines"):
        kinds = objects(folder)
        assert kinds["s.sketch"] == "sketch"
        for path in folder.iterdir():
            if path.name != "events":
                assert path.stat().st_mode & 0o077 == 0  # a torn copy is a secret too
        assert zygote.run("update", "s.sketch", "events", "--format", "lines", folder=folder) == 0


CONFIG = f"""{EVENTS_FILE}close_at_end = true{SEALED_DIRECTORY}[privacy]
max_epsilon = 1
[[sketch]]
name = "hourly"
unit = "event"
window = "1h"
epsilon = "1"
publish = "{{publish}}"
{{intrusion}}
domain = {{{{ size = 6 }}}}
"""
HOUR = 3_600_000
START = 1_357_000_000_000 // HOUR * HOUR


def bodies(folder: Path) -> dict[tuple[int, int], set[bytes]]:
    """Everything published so far: window -> bodies."""
    found: dict[tuple[int, int], set[bytes]] = {}
    for path in sorted((folder / "sealed").rglob("*")) if (folder / "sealed").is_dir() else ():
        try:
            one = published.read_published(path.read_bytes()) if path.is_file() else None
        except FormatError:
            continue
        if isinstance(one, (published.Release, published.SealedState)):
            assert one.origin.window is not None
            found.setdefault(one.origin.window, set()).add(path.read_bytes())
    return found


@pytest.mark.parametrize(
    ("publish", "intrusion", "stride"),
    [
        pytest.param("histogram", "", 11, id="histogram"),
        pytest.param("state", "intrusion = true", 13, id="state"),
        pytest.param("histogram", "", 1, id="histogram, every write", marks=pytest.mark.slow),
        pytest.param("state", "intrusion = true", 1, id="state, every write", marks=pytest.mark.slow),
    ],
)
def test_a_killed_worker_never_publishes_two_views_of_one_window(
    publish: str, intrusion: str, stride: int, tmp_path: Path, zygote: Zygote
) -> None:
    """Whatever write it dies at, its successor publishes the same bytes, and counts every window."""
    folder = tmp_path / "worker"
    folder.mkdir()
    (folder / "c.toml").write_text(CONFIG.format(publish=publish, intrusion=intrusion))
    events = [(hour, user) for hour in range(2) for user in (1, 1, 2)]
    lines = [json.dumps({"ts": START + hour * HOUR + 1000 + n, "user": user}) for n, (hour, user) in enumerate(events)]
    (folder / "events.jsonl").write_text("".join(f"{line}\n" for line in lines))
    interrupted = 0
    for attempt in range(3 if stride == 1 else 1):  # threads take turns as they like: no run is sure to die in between
        if interrupted:
            break
        again = shutil.copytree(folder, tmp_path / f"attempt{attempt}" / "worker")
        for _, here in each_step(zygote, again, "worker", "-c", "c.toml", stride=stride):
            before = bodies(here)
            assert zygote.run("worker", "-c", "c.toml", folder=here) == 0
            after = bodies(here)
            assert sorted(after) == [(START, START + HOUR), (START + HOUR, START + 2 * HOUR)]
            for window, found in after.items():
                assert len(found | before.get(window, set())) == 1, "two different publications of one window"
                (body,) = found
                one = published.read_published(body)
                assert not isinstance(one, published.Stack)
                assert one.ledger.loss() == 1
            interrupted += 0 < len(before) < 2 or (bool(before) and before != after)
    assert interrupted > 0 or stride > 1
