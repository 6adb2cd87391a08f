"""Sketch files as the commands see them: keys, open sketches, published objects.

In: paths. Out: objects of the library, or one clear error. Touches: those files; an open sketch is locked while it is
changed, replaced in one step, and removed for good when it was sealed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sketchstream.errors import SealedError, StoreError
from sketchstream.files import naming_errors, remove_durably, replace_secret, sweep

if TYPE_CHECKING:
    from sketchstream.items.key import Key
    from sketchstream.published import Published, Release, SealedState
    from sketchstream.sketch import Sketch
    from sketchstream.spec import Item


def load_key(path: Path | None) -> Key | None:
    """The key in a file, or None."""
    from sketchstream.items.key import Key

    return None if path is None else Key.load(path)


def read_bytes(path: Path) -> bytes:
    """A file's bytes; every failure is a StoreError that names it."""
    with accessing(path):
        return path.read_bytes()


@contextlib.contextmanager
def accessing(path: Path) -> Iterator[None]:
    """Turn every failure of the system into a StoreError that names the file, while it is read or written."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: {(error.strerror or type(error).__name__).lower()}") from None


def read_header(path: Path) -> Mapping[str, Any]:
    """The header of any sketch file, its checksum verified."""
    from sketchstream import wire

    data = read_bytes(path)
    with naming_errors(path):
        header: Mapping[str, Any] = wire.unpack(data)[0]
    return header


def read_published(path: Path, purpose: str) -> Published:
    """A published object; an open sketch is refused with what to do."""
    from sketchstream import published, wire

    data = read_bytes(path)
    with naming_errors(path):
        result = published.read_published(data) if wire.unpack(data)[0]["kind"] != "sketch" else None
    if result is None:
        raise SealedError(
            f"{path} is an open sketch, and {purpose} takes only what was published: run `sketchstream seal` on it "
            "(which ends it), or `sketchstream release` (a look, which costs privacy)"
        )
    return result


def require_free(path: Path) -> None:
    """Refuse an output that exists, before anything is drawn."""
    if path.exists() or path.is_symlink():
        raise StoreError(f"{path} exists and is not overwritten: remove it, or give another -o")
    if not path.parent.is_dir():
        raise StoreError(f"{path.parent} is not a directory")


@contextlib.contextmanager
def lock(path: Path) -> Iterator[BinaryIO]:
    """This process alone has the file within this block; a second command on it is refused at once, not queued.

    What a killed command left next to it is removed.

    Yields:
        The file, open for reading and writing, for `replace_secret`, which erases the old content: two copies of one
        open state reveal the events in between.
    """
    with accessing(path):
        handle = path.open("r+b")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"{path} is being changed by another command: wait for it to end") from None
        try:
            same = os.path.samestat(path.stat(), os.fstat(handle.fileno()))
        except FileNotFoundError:
            same = False
        if not same:
            raise StoreError(f"{path} was changed by another command at this moment: run this one again")
        sweep(path)
        yield handle


def open_sketch(path: Path, key_file: Path | None) -> Sketch:
    """The open sketch in a file."""
    from sketchstream.storage import load_sketch

    key = load_key(key_file)
    try:
        return load_sketch(path, key)
    except SealedError:
        raise SealedError(
            f"{path} was published already and cannot be changed: this command takes an open sketch"
        ) from None


def seal(path: Path, key_file: Path | None, predecessor: BinaryIO) -> Release | SealedState:
    """Publish an open sketch into its own file, in one step, before its bytes go anywhere else.

    A command that is killed later finds them there: whatever happens, one sketch has one publication. The file stays
    readable by its owner only.
    """
    sealed = open_sketch(path, key_file).seal()
    replace_secret(path, sealed.to_bytes(), predecessor)
    return sealed


def read_interrupted_seal(path: Path) -> Release | SealedState | None:
    """The publication that a killed `seal` left in the sketch's own file, readable only by its owner; else None."""
    from sketchstream import published, wire

    data = read_bytes(path)
    with naming_errors(path):
        header = wire.unpack(data)[0]
    final = header["kind"] == "sealed-state" or (header["kind"] == "release" and header["final"])
    if not final or path.stat().st_mode & 0o077:
        return None
    publication = published.read_published(data)
    assert isinstance(publication, (published.Release, published.SealedState))
    return publication


def remove(path: Path) -> None:
    """Erase and delete an open sketch whose publication is durable."""
    try:
        remove_durably(path, secret=True)
    except StoreError as error:
        raise StoreError(f"the publication is written, but {error}: delete {path} yourself") from None


def read_items(path: Path, item_type: str) -> list[Item]:
    """The items of a closed domain: one a line; duplicates and empty lines are refused."""
    from sketchstream.items import item_lists

    read_bytes(path)
    return item_lists.read_items(path, item_type)
