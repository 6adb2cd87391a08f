"""Files that are either whole or not there: written beside their place, synced, then named.

In: a path and bytes. Out: a durable file, mode 0600 unless it is published. Touches: that file's folder.

An open sketch, a key and a snapshot are secrets; what was published is not. A name is taken only after its bytes are
on the disk, so a crash at any moment leaves the old file or the new one, and at worst a hidden temporary beside it,
which `sweep` removes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from pathlib import Path

from sketchstream import faults
from sketchstream.errors import StoreError

SECRET = 0o600
PUBLIC = 0o644
_TEMPORARY = re.compile(r"\.(.*)\.[0-9a-f]{16}\.sketchstream-tmp", re.DOTALL)
_NAME_CHARACTERS = 64
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def write_durably(
    path: str | os.PathLike[str],
    data: bytes | bytearray | memoryview,
    *,
    mode: int = SECRET,
    replace: bool = False,
    step: str = "file",
) -> None:
    """Write a file so that after any crash it is there whole, or as it was before.

    Args:
        path: of the file.
        data: its bytes.
        mode: permissions, `SECRET` (0600) or `PUBLIC` (0644, less the umask).
        replace: take the place of an existing file in one step; otherwise an existing file is refused.
        step: begins the names of the steps at which a test may stop the process.

    Raises:
        StoreError: the file exists (`errno` is EEXIST), the disk is full, or anything else that the operating system
            refuses; the place is then as it was.
    """
    where = Path(path)
    temporary = where.with_name(f".{where.name[:_NAME_CHARACTERS]}.{secrets.token_hex(8)}.sketchstream-tmp")
    try:
        try:
            _fill(temporary, data, mode)
            faults.reach(f"{step}:written")
            if replace:
                temporary.replace(where)
            else:
                _name(temporary, where)
            faults.reach(f"{step}:named")
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(where.parent)
        faults.reach(f"{step}:synced")
    except FileExistsError as error:
        msg = f"{where} exists and is not overwritten: remove it, or choose another name"
        raise _with_number(StoreError(msg), error) from None
    except OSError as error:
        raise _store_error(where, error, "write") from error


def remove_durably(path: str | os.PathLike[str], *, secret: bool = False) -> None:
    """Remove a file for good; a missing one is fine.

    Args:
        path: of the file.
        secret: overwrite its bytes first. Best effort: journals, copy-on-write file systems, flash and backups may
            keep what was there.

    Raises:
        StoreError: the operating system refuses.
    """
    where = Path(path)
    try:
        with contextlib.suppress(FileNotFoundError):
            if secret:
                _overwrite(where)
            where.unlink()
        sync_folder(where.parent)
    except OSError as error:
        raise _store_error(where, error, "remove") from error


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and its parents, each name durable.

    Raises:
        StoreError: the operating system refuses.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    try:
        folder.mkdir(mode=mode, exist_ok=True)
        sync_folder(folder.parent)
    except OSError as error:
        raise _store_error(folder, error, "make the folder") from error


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(path: Path) -> int:
    """Remove what killed writers of this file left beside it, secrets among it; the caller holds the file's lock.

    Returns:
        How many temporaries were removed.
    """
    start = path.name[:_NAME_CHARACTERS]
    found = [one for one in path.parent.iterdir() if written_for(one) == start and not one.is_symlink()]
    for one in found:
        remove_durably(one, secret=True)
    return len(found)


def written_for(temporary: Path) -> str | None:
    """The name (of a long one, its beginning) that a temporary was to get; None if this is no temporary of ours."""
    found = _TEMPORARY.fullmatch(temporary.name)
    return None if found is None else found[1]


def _fill(path: Path, data: bytes | bytearray | memoryview, mode: int) -> None:
    """Create exclusively, write everything, sync."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        rest = memoryview(data).cast("B")
        while len(rest):
            rest = rest[os.write(descriptor, rest[: 1 << 30]) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name(temporary: Path, where: Path) -> None:
    """Give the file its name unless the name is taken, in one step where the file system has hard links."""
    try:
        os.link(temporary, where, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SECRET))
        temporary.replace(where)


def _overwrite(path: Path) -> None:
    """Zeros over a file's bytes, synced."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        left = os.fstat(descriptor).st_size
        zeros = bytes(min(left, 1 << 20))
        while left > 0:
            left -= os.write(descriptor, zeros[: min(left, len(zeros))])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _store_error(path: Path, error: OSError, verb: str) -> StoreError:
    """The one-line error for a file."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        text = "the disk is full; nothing was written"
    else:
        text = (error.strerror or type(error).__name__).lower()
    return _with_number(StoreError(f"cannot {verb} {path}: {text}"), error)


def _with_number(found: StoreError, error: OSError) -> StoreError:
    """The error with the operating system's number."""
    found.errno = error.errno
    return found
