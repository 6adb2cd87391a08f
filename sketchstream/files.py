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
import secrets
from collections.abc import Iterator
from pathlib import Path

from sketchstream.errors import StoreError

SECRET = 0o600
PUBLIC = 0o644
_SUFFIX = ".sketchstream-tmp"
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def write_durably(
    path: str | os.PathLike[str], data: bytes | bytearray | memoryview, *, mode: int = SECRET, replace: bool = False
) -> None:
    """Write a file so that after any crash it is there whole, or as it was before.

    Args:
        path: of the file.
        data: its bytes.
        mode: permissions, `SECRET` (0600) or `PUBLIC` (0644, less the umask).
        replace: take the place of an existing file in one step; otherwise an existing file is refused.

    Raises:
        StoreError: the file exists, the disk is full, or anything else that the operating system refuses; the
            place is then as it was.
    """
    where = Path(path)
    temporary = where.with_name(f".{where.name[:64]}.{secrets.token_hex(8)}{_SUFFIX}")
    try:
        try:
            _fill(temporary, data, mode)
            if replace:
                temporary.replace(where)
            else:
                _name(temporary, where)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(where.parent)
    except FileExistsError:
        msg = f"{where} exists and is not overwritten: remove it, or choose another name"
        raise StoreError(msg) from None
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


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> int:
    """Remove what crashed writers left behind, secrets among it; only for a folder whose lock the caller holds.

    Returns:
        How many temporaries were removed.
    """
    found = list(leftovers(folder))
    for path in found:
        remove_durably(path, secret=True)
    return len(found)


def leftovers(folder: Path) -> Iterator[Path]:
    """Temporaries of writers that were killed."""
    yield from sorted(path for path in folder.glob(f".*{_SUFFIX}") if path.is_file() and not path.is_symlink())


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
    found = StoreError(f"cannot {verb} {path}: {text}")
    found.errno = error.errno
    return found
