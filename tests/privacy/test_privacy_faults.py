"""Kill -9 at every write of release, seal, update, snapshot and publication: the ledger never says less than what left.

In: commands and workers killed at their n-th change of the file system. Out: verdicts. Touches: child processes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from sketchstream import published, wire
from sketchstream.errors import FormatError
from sketchstream.privacy.ledger import Ledger

KILLER = """
import os, signal, sys
left = int(sys.argv[1])
def counted(call, changes=lambda *a, **k: True):
    def wrapped(*args, **more):
        global left
        if changes(*args, **more):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        return call(*args, **more)
    return wrapped
import sketchstream.cli, sketchstream.files, sketchstream.privacy.ledger, sketchstream.sketch, sketchstream.wire
os.write = counted(os.write, lambda fd, *_: fd > 2)
os.fsync = counted(os.fsync)
os.link = counted(os.link)
os.replace = counted(os.replace)
os.rename = counted(os.rename)
os.unlink = counted(os.unlink)
os.open = counted(os.open, lambda path, flags, *_, **__: bool(flags & os.O_CREAT))
sys.exit(sketchstream.cli.main(sys.argv[2:]))
"""


def killed_at(step: int, *arguments: str, folder: Path) -> int:
    """Run a command that is killed before its change number `step`; its exit code, -9 if it was killed."""
    command = [sys.executable, "-W", "ignore", "-c", KILLER, str(step), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=120).returncode


def each_step(folder: Path, *arguments: str) -> Iterator[tuple[int, Path]]:
    """A fresh copy of the folder for every change that the command makes, in the state the kill left it in."""
    for step in range(60):
        here = folder.parent / f"{folder.name}-{arguments[0]}-{step}"
        shutil.copytree(folder, here)
        code = killed_at(step, *arguments, folder=here)
        yield step, here
        if code == 0:
            assert step >= 4, "the command changed nothing"
            return
        assert code == -9
    pytest.fail("the command never ended")


@pytest.fixture
def opened(tmp_path: Path) -> Path:
    """A folder with an open sketch and some events."""
    folder = tmp_path / "life"
    folder.mkdir()
    (folder / "events").write_text("1\n2\n2\n3\n")
    for arguments in (
        ("create", "-o", "s.sketch", "--epsilon", "1", "--size", "8", "--max-epsilon", "5"),
        ("update", "s.sketch", "events", "--format", "lines"),
    ):
        command = [sys.executable, "-m", "sketchstream.cli", *arguments]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
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


def retry(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same command again, as an operator would."""
    command = [sys.executable, "-m", "sketchstream.cli", *arguments]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, timeout=120, text=True)


@pytest.mark.statistics
def test_a_release_that_left_is_in_the_ledger_wherever_the_command_is_killed(opened: Path) -> None:
    charged = left = 0
    for _, folder in each_step(opened, "release", "s.sketch", "-o", "look", "--epsilon", "1/4"):
        spent = ledger(folder / "s.sketch").releases
        out = [name for name, kind in objects(folder).items() if kind == "release"]
        assert spent in ((), (Fraction(1, 4),))
        if out:
            assert spent == (Fraction(1, 4),)
        charged += bool(spent)
        left += "look" in out
        assert (folder / "s.sketch").stat().st_mode & 0o077 == 0
    assert 0 < left < charged  # the charge comes first


@pytest.mark.statistics
def test_a_killed_seal_never_leads_to_two_publications(opened: Path) -> None:
    once = 0
    for _, folder in each_step(opened, "seal", "s.sketch", "-o", "s.sealed"):
        before = {path.read_bytes() for path in folder.iterdir() if path.name == "s.sealed"}
        once += bool(before)
        retry(folder, "seal", "s.sketch", "-o", "again.sealed")
        for path in ("again.sealed", "s.sealed"):
            if (folder / path).exists():
                before.add((folder / path).read_bytes())
        assert len(before) == 1, "two different publications of one sketch, or none"
        found = published.read(before.pop())
        assert not isinstance(found, published.Stack)
        assert found.ledger.loss() == 1
        kinds = [kind for name, kind in objects(folder).items() if name != "events"]
        assert "sketch" not in kinds, "an open state outlived its publication"
    assert once > 1


@pytest.mark.statistics
def test_a_killed_update_leaves_one_whole_sketch_and_no_second_copy_in_sight(opened: Path) -> None:
    for _, folder in each_step(opened, "update", "s.sketch", "events", "--format", "lines"):
        kinds = objects(folder)
        assert kinds["s.sketch"] == "sketch"
        for path in folder.iterdir():
            if path.name != "events":
                assert path.stat().st_mode & 0o077 == 0  # a torn copy is a secret too
        assert retry(folder, "update", "s.sketch", "events", "--format", "lines").returncode == 0
