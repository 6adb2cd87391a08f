"""Sketch files, open or published, read back by their path.

In: a path, and for an open sketch its key. Out: the object in the file. Touches: that file, reading.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sketchstream import published, wire
from sketchstream.errors import FormatError
from sketchstream.files import naming_errors, read_file, require_private
from sketchstream.sketch import Sketch

if TYPE_CHECKING:
    from sketchstream.items.key import Key
    from sketchstream.published import Published

_KEY_FILE = b"sketchstream-key-"
_EXPOSED = (
    "chmod 600 it; if somebody may have copied it already, seal it and create another one, because two copies of an "
    "open sketch show what was counted in between"
)


def load(source: str | os.PathLike[str] | bytes, key: Key | None = None) -> Published | Sketch:
    """Read any sketch: a release, a sealed state, a stack, or an open sketch.

    Args:
        source: path of the file, or its bytes.
        key: with an open sketch, the key that it was created with; published objects need none.

    Raises:
        StoreError: the file cannot be read, or contains an open sketch that other users can read.
        FormatError: no path and no bytes; not a sketch, truncated, altered, or of a newer version.
        KeyMismatchError: an open sketch without its key.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Sketch.from_bytes(source, key) if wire.kind_of(source) == "sketch" else published.read_published(source)
    data, mode = read_file(source)
    with naming_errors(source):
        if data.startswith(_KEY_FILE):
            raise FormatError("this is a key file: read it with Key.load(path)")
        if wire.kind_of(data) == "sketch":
            return _private(Sketch.from_bytes(data, key), source, mode)
        return published.read_published(data)


def load_sketch(path: str | os.PathLike[str], key: Key | None = None) -> Sketch:
    """Read an open sketch.

    Args:
        path: path of the file.
        key: the key it was created with, if it has one.

    Raises:
        StoreError: the file cannot be read, or other users can read it.
        SealedError: the file contains a published object.
        FormatError, KeyMismatchError: see `Sketch.from_bytes`.
    """
    data, mode = read_file(path)
    with naming_errors(path):
        return _private(Sketch.from_bytes(data, key), path, mode)


def _private(sketch: Sketch, path: str | os.PathLike[str], mode: int) -> Sketch:
    """Return the open sketch, unless other users can read its file."""
    require_private(mode, f"the open sketch {os.fspath(path)}", _EXPOSED)
    return sketch
