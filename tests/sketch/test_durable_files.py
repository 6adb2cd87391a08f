"""Durable files: whole or not there, mode 0600, never overwritten by accident.

In: temporary folders, faults put into system calls. Out: verdicts. Touches: temporary folders.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sketchstream import files
from sketchstream.cli.sketches import lock
from sketchstream.errors import StoreError
from sketchstream.files import remove_durably, sweep, write_durably, written_for


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_whole_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_durably(path, memoryview(bytes(range(256)) * 5000))
    assert path.read_bytes() == bytes(range(256)) * 5000
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(tmp_path) == ["state"]


def test_an_existing_file_is_refused_unless_it_shall_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_durably(path, b"old")
    with pytest.raises(StoreError, match="not overwritten"):
        write_durably(path, b"new")
    assert path.read_bytes() == b"old"
    write_durably(path, b"new", replace=True)
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["state"]


def test_a_dangling_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        write_durably(tmp_path / "link", b"secret")
    assert not (tmp_path / "elsewhere").exists()


def test_a_missing_folder_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such file or directory") as caught:
        write_durably(tmp_path / "nowhere" / "file", b"x")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("call", ["write", "fsync", "link", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failing_call_leaves_the_place_as_it_was(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    write_durably(path, b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    if call == "replace":
        monkeypatch.setattr(Path, "replace", fail)
    else:
        monkeypatch.setattr(os, call, fail)
    target, replace = (tmp_path / "other", False) if call == "link" else (path, True)
    with pytest.raises(StoreError, match="disk is full" if number == errno.ENOSPC else "input/output error"):
        write_durably(target, b"new", replace=replace)
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["state"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    write_durably(tmp_path / "state", bytes(range(100)))
    monkeypatch.undo()
    assert (tmp_path / "state").read_bytes() == bytes(range(100))


def test_file_systems_without_hard_links_still_refuse_to_overwrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(files.os, "link", fail)
    write_durably(tmp_path / "state", b"one")
    with pytest.raises(StoreError, match="not overwritten"):
        write_durably(tmp_path / "state", b"two")
    assert (tmp_path / "state").read_bytes() == b"one"


def test_removing_a_secret_overwrites_it_first(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_durably(path, b"secret" * 300_000)
    other = tmp_path / "same-blocks"
    os.link(path, other)
    remove_durably(path, secret=True)
    assert not path.exists()
    assert other.read_bytes() == bytes(1_800_000)
    remove_durably(path)


@pytest.mark.parametrize("name", ["other", "a" * 100, "[x]*.sketch"])
def test_what_killed_writers_of_a_file_left_is_swept(tmp_path: Path, name: str) -> None:
    write_durably(tmp_path / "state", b"x")
    script = (
        "import os, sys; from sketchstream import files; files.os.link = lambda *a, **k: os.kill(os.getpid(), 9); "
        "files.write_durably(sys.argv[1], b'half')"
    )
    assert subprocess.run([sys.executable, "-c", script, tmp_path / name], check=False).returncode == -9
    (left,) = [path for path in tmp_path.iterdir() if written_for(path) is not None]
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
    assert sweep(tmp_path / "state") == sweep(tmp_path / name[:3]) == 0
    assert sweep(tmp_path / name) == 1
    assert names(tmp_path) == ["state"]


def test_a_command_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    (tmp_path / "s.sketch").write_bytes(b"state")
    (tmp_path / ".s.sketch.0123456789abcdef.sketchstream-tmp").write_bytes(b"secret")
    with lock(tmp_path / "s.sketch"):
        assert names(tmp_path) == ["s.sketch"]
