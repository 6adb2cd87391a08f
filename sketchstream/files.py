"""Files that are either complete or absent: written to a temporary, synced, then named.

In: a path and bytes. Out: a durable file, mode 0600 unless it is published. Touches: that file's folder.

An open sketch, a key and a snapshot are secrets; publications are not. A file gets its name only after its bytes are on
the disk, so a crash at any moment leaves the old file or the new one, and at worst a hidden temporary in the same
folder, which `sweep` removes. A writer holds a lock on its temporary until its process ends, which distinguishes
temporaries in use from those left by a crash.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from sketchstream import faults
from sketchstream.errors import FormatError, KeyMismatchError, SketchstreamError, StoreError

Data = bytes | bytearray | memoryview
SECRET = 0o600
PUBLIC = 0o644
_FOREIGN = 0o027
"""Permissions that a secret's file must not give: its group may read it, nobody else may do anything."""
_TEMPORARY = re.compile(r"\.(.*)\.[0-9a-f]{16}\.sketchstream-tmp", re.DOTALL)
_NAME_CHARACTERS = 64
"""Characters of a file's name that the name of its temporary file repeats: names have limits."""
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def write_durably(
    path: str | os.PathLike[str],
    data: Data | Iterable[Data],
    *,
    mode: int = SECRET,
    replace: bool = False,
    step: str = "file",
) -> None:
    """Write a file so that after any crash it is complete, or as it was before.

    Args:
        path: path of the file.
        data: bytes of the file, or pieces of them in order.
        mode: permissions, `SECRET` (0600) or `PUBLIC` (0644, less the umask).
        replace: whether to replace an existing file atomically; otherwise an existing file is refused.
        step: prefix of the names of the steps at which a test may stop the process.

    Raises:
        StoreError: the file exists (`errno` is EEXIST), the disk is full, or any other error of the operating
            system; the folder is then as it was.
    """
    where = Path(path)
    try:
        with _temporary(where, mode) as (temporary, descriptor):
            _fill(descriptor, data)
            faults.checkpoint(f"{step}:written")
            if replace:
                temporary.replace(where)
            else:
                _name(temporary, where)
            faults.checkpoint(f"{step}:named")
        sync_folder(where.parent)
        faults.checkpoint(f"{step}:synced")
    except FileExistsError as error:
        msg = f"{where} exists and is not overwritten: remove it, or choose another name"
        raise _with_number(StoreError(msg), error) from None
    except OSError as error:
        raise _store_error(where, error, "write") from error


def write_new(path: Path, data: Data, *, mode: int = SECRET, step: str = "file") -> bool:
    """Write a file as `write_durably` does, after what killed writers left of it is gone; False: there is one."""
    sweep(path, secret=mode == SECRET)
    try:
        write_durably(path, data, mode=mode, step=step)
    except StoreError as error:
        if error.errno != errno.EEXIST:
            raise
        return False
    return True


def replace_secret(path: str | os.PathLike[str], data: bytes, predecessor: BinaryIO | None = None) -> None:
    """Replace the file of a secret atomically, then overwrite its old bytes with zeros.

    Args:
        path: path of the file.
        data: new bytes.
        predecessor: the present file, open for reading and writing; None: it is opened here. Erasing is best
            effort, as in `remove_durably`.

    Raises:
        StoreError: see `write_durably`.
    """
    if predecessor is None:
        with _trying_to("replace", Path(path)):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "r+b") as opened:
            replace_secret(path, data, opened)
        return
    write_durably(path, data, replace=True)
    os.lseek(predecessor.fileno(), 0, os.SEEK_SET)
    _erase(predecessor.fileno())


def read_file(path: str | os.PathLike[str], most: int = -1) -> tuple[bytes, int]:
    """The bytes of a file, and its permissions.

    Args:
        path: path of the file.
        most: largest number of bytes to read; -1: all.

    Raises:
        StoreError: the file cannot be read.
        FormatError: this is not a path.
    """
    where = as_path(path)
    with _trying_to("read", where), where.open("rb") as file:
        return file.read(most), stat.S_IMODE(os.fstat(file.fileno()).st_mode)


def as_path(path: object) -> Path:
    """A path that somebody gave.

    Raises:
        FormatError: this is not a path.
    """
    try:
        return Path(path)  # type: ignore[arg-type]
    except TypeError:
        raise FormatError(f"expected a path, found {type(path).__name__}") from None


@contextlib.contextmanager
def os_errors_as(what: str, kind: type[SketchstreamError] = StoreError) -> Iterator[None]:
    """Turn errors of the operating system into our own: what failed, then the system's words."""
    try:
        yield
    except OSError as error:
        if isinstance(error, SketchstreamError):
            raise
        raise kind(f"{what}: {error.strerror or type(error).__name__}") from error


def reading(where: object, kind: type[SketchstreamError] = StoreError) -> AbstractContextManager[None]:
    """Turn errors of the operating system into our own that say what cannot be read."""
    return os_errors_as(f"cannot read {where}", kind)


@contextlib.contextmanager
def naming_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Prefix errors of a file's bytes and keys with its name."""
    try:
        yield
    except (FormatError, KeyMismatchError) as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from None


def require_private(mode: int, name: str, advice: str) -> None:
    """Refuse a secret's file that other users can read or change.

    Args:
        mode: permissions of the file.
        name: description and path of the file, for the message.
        advice: what to do, for the message.

    Raises:
        StoreError: the permissions are too wide.
    """
    if mode & _FOREIGN:
        raise StoreError(f"{name} has mode {mode:04o}: others could read or change it; {advice}")


def remove_durably(path: str | os.PathLike[str], *, secret: bool = False) -> None:
    """Remove a file for good; a missing one is fine.

    Args:
        path: path of the file.
        secret: whether to overwrite its bytes first. Best effort: journals, copy-on-write file systems, flash and
            backups may keep the old bytes.

    Raises:
        StoreError: an error of the operating system.
    """
    where = Path(path)
    with _trying_to("remove", where):
        if secret:
            erase(where)
        else:
            where.unlink(missing_ok=True)
        sync_folder(where.parent)


def erase(path: Path) -> None:
    """Overwrite a secret file and remove its name; the caller syncs the folder. A missing file is fine.

    Best effort, see `remove_durably`.
    """
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            _erase(descriptor)
        finally:
            os.close(descriptor)
        path.unlink()


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Create a folder and its parents durably.

    Raises:
        StoreError: an error of the operating system.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    with _trying_to("make the folder", folder):
        folder.mkdir(mode=mode, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(path: Path, *, secret: bool = True) -> int:
    """Remove temporaries that killed writers of this file left; those of running processes stay.

    Args:
        path: path of the file.
        secret: whether to overwrite removed bytes, see `remove_durably`; not if they have another name already.

    Returns:
        Number of temporaries that were removed.

    Raises:
        StoreError: an error of the operating system.
    """
    start = path.name[:_NAME_CHARACTERS]
    with _trying_to("remove what was left of", path):
        with os.scandir(path.parent) as entries:
            left = [Path(entry.path) for entry in entries if written_for(Path(entry.path)) == start]
        removed = sum(_remove_left(leftover, secret=secret) for leftover in left)
        if removed:
            sync_folder(path.parent)
    return removed


def _remove_left(temporary: Path, *, secret: bool) -> bool:
    """Remove a temporary whose writer is gone; False if it is being written, or may be."""
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # removed meanwhile, a symbolic link, or owned by another user
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if secret and os.fstat(descriptor).st_nlink == 1:  # two names: its writer was killed after it had named it
            _erase(descriptor)
        temporary.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in _NO_LOCKS or isinstance(error, BlockingIOError):
            return False
        raise
    finally:
        os.close(descriptor)
    return True


def written_for(temporary: Path) -> str | None:
    """The intended name of a temporary (the start of a long one); None if this is not a temporary of this module."""
    match = _TEMPORARY.fullmatch(temporary.name)
    return None if match is None else match[1]


@contextlib.contextmanager
def _temporary(where: Path, mode: int) -> Iterator[tuple[Path, int]]:
    """Create an empty locked file in the folder of `where`; removed afterwards unless it got a name."""
    while True:
        path = where.with_name(f".{where.name[:_NAME_CHARACTERS]}.{secrets.token_hex(8)}.sketchstream-tmp")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        try:
            if not _lock(descriptor):
                continue
            try:
                yield path, descriptor
            finally:
                path.unlink(missing_ok=True)
            return
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock a new temporary; False if a concurrent sweep removes it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return os.fstat(descriptor).st_nlink > 0


def _fill(descriptor: int, data: Data | Iterable[Data]) -> None:
    """Write all data to the file, and sync it."""
    for piece in (data,) if isinstance(data, (bytes, bytearray, memoryview)) else data:
        rest = memoryview(piece).cast("B")
        while len(rest):
            rest = rest[os.write(descriptor, rest[: 1 << 30]) :]
    os.fsync(descriptor)


def _name(temporary: Path, where: Path) -> None:
    """Give the file its name unless the name is taken; atomic if the file system has hard links."""
    try:
        os.link(temporary, where, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SECRET))
        temporary.replace(where)


def _erase(descriptor: int) -> None:
    """Overwrite with zeros from the current position to the end, and sync."""
    left = os.fstat(descriptor).st_size
    zeros = bytes(min(left, 1 << 20))
    while left > 0:
        left -= os.write(descriptor, zeros[: min(left, len(zeros))])
    os.fsync(descriptor)


@contextlib.contextmanager
def _trying_to(verb: str, path: Path) -> Iterator[None]:
    """Turn errors of the operating system into one line about a file."""
    try:
        yield
    except OSError as error:
        raise _store_error(path, error, verb) from error


def _store_error(path: Path, error: OSError, verb: str) -> StoreError:
    """The one-line error for a file."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        text = "the disk is full; nothing was written"
    else:
        text = (error.strerror or type(error).__name__).lower()
    return _with_number(StoreError(f"cannot {verb} {path}: {text}"), error)


def _with_number(failure: StoreError, error: OSError) -> StoreError:
    """The error with the operating system's number."""
    failure.errno = error.errno
    return failure
