"""Reads compressed files, gzip and zstd, recognised by their file name extension.

In: a path. Out: blocks of decompressed bytes. Touches: the file, for reading. Positions count decompressed bytes, so
resuming at a position means decompressing everything before it. A file that ends inside a frame is refused.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from sketchstream.config.checks import COMPRESSED
from sketchstream.errors import FormatError, optional_import

GZIP, ZSTD = COMPRESSED
ZSTD_STEP: Final = 4096
"""Compressed bytes at a time: how many they become is known only afterwards, at worst some 30,000 times as many."""


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed, by its name.

    Raises:
        FormatError: it is, and its name has another ending.
    """
    if path.suffix.lower() in COMPRESSED or not path.is_file():
        return path.suffix.lower() in COMPRESSED
    try:
        with path.open("rb") as file:
            begins = file.read(4)
    except OSError:  # whoever opens the file next reports it
        return False
    for magic, ending in ((b"\x1f\x8b\x08", GZIP), (b"\x28\xb5\x2f\xfd", ZSTD)):
        if begins.startswith(magic):
            raise FormatError(f"{path} is compressed, and its name does not say so: name it {path.name}{ending}")
    return False


def blocks(path: Path, size: int) -> Iterator[bytes]:
    """The bytes that a compressed file holds, in blocks of about `size`, none of them empty.

    Raises:
        FormatError: it is not such a file, was altered, or ends too early.
        MissingExtraError: zstd, and zstandard is not installed.
        OSError: it cannot be read.
    """
    name = "gzip" if path.suffix.lower() == GZIP else "zstd"
    source = _gzip(path, size) if name == "gzip" else _zstd(path)
    gathered: list[bytes] = []
    room = size
    while True:
        try:
            block = next(source, b"")
        except (gzip.BadGzipFile, zlib.error):
            raise FormatError(f"{path} is not {name}, as its ending says, or was altered") from None
        except EOFError:
            raise FormatError(f"{path} is not whole: it ends inside its {name} data") from None
        gathered.append(block)
        room -= len(block)
        if room <= 0 or not block:
            whole = b"".join(gathered)
            if whole:
                yield whole
            if not block:
                return
            gathered, room = [], size


def _gzip(path: Path, size: int) -> Iterator[bytes]:
    """Blocks of a gzip file, of all its members."""
    with gzip.open(path, "rb") as file:
        while block := file.read(size):
            yield block


def _zstd(path: Path) -> Iterator[bytes]:
    """Blocks of a zstd file, of all its frames; EOFError where the last one is not whole."""
    with optional_import(f"{path} needs zstandard: pip install zstandard"):
        import zstandard
    del zstandard
    with path.open("rb") as file:
        yield from zstd_frames(iter(lambda: file.read(ZSTD_STEP), b""))


def zstd_frames(parts: Iterable[bytes]) -> Iterator[bytes]:
    """What zstd frames hold, in blocks, from parts of them that should have `ZSTD_STEP` bytes.

    Raises:
        zlib.error: they are not zstd frames.
        EOFError: the last one is not whole.
    """
    import zstandard

    frame = None
    for compressed in parts:
        rest = compressed
        while rest:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            try:
                block = frame.decompress(rest)
            except zstandard.ZstdError as error:
                raise zlib.error from error
            if block:
                yield block
            rest = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError
