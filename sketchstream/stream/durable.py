"""Files that are whole or absent after any crash.

In: bytes and paths. Out: files that were synced before they got their name. Touches: the folders it is given.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from sketchstream.stream import faults

PART = ".part"
"""Suffix of files that are being written; what a crash leaves of them is swept."""


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and its parents, each name durable."""
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    folder.mkdir(mode=mode, exist_ok=True)
    sync_folder(folder.parent)


def write_new(path: Path, data: bytes, mode: int, step: str) -> None:
    """Write a file under a unique name, sync it, then link it to `path`, which must not exist.

    Raises:
        FileExistsError: `path` exists; it is as it was.
        OSError: nothing was written under `path`.
    """
    part = path.parent / f".{secrets.token_hex(16)}{PART}"
    try:
        _write(part, data, mode)
        faults.reach(f"{step}:written")
        os.link(part, path)
        faults.reach(f"{step}:linked")
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)
    faults.reach(f"{step}:synced")


def replace(path: Path, data: bytes, mode: int, step: str) -> None:
    """Write a file under a unique name, sync it, then let it take the place of `path`."""
    part = path.parent / f".{secrets.token_hex(16)}{PART}"
    try:
        _write(part, data, mode)
        faults.reach(f"{step}:written")
        part.replace(path)
        faults.reach(f"{step}:replaced")
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _write(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
