"""The codecs of blocks in Avro container files: null, deflate, snappy, zstandard, bzip2 and xz.

In: the name of a codec, bytes. Out: decompressed bytes, at most a given number. Touches: nothing.
Source: the Avro 1.12 specification, "Required Codecs" and "Optional Codecs".
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Final

from sketchstream.errors import FormatError, MissingExtraError
from sketchstream_connectors.files import compression

Codec = Callable[[bytes, int], bytes | None]
"""Decompresses a block, given the most bytes that it may become; None: it is damaged, or larger."""
SNAPPY_SUM: Final = 4
"""Bytes of the checksum behind a block."""
ADLER: Final = 4
"""Bytes of the checksum of zlib's wrapper."""


def _null(data: bytes, max_bytes: int) -> bytes | None:
    return data if len(data) <= max_bytes else None


def _finish_inflating(inflater: Any, data: bytes, max_bytes: int, spare: int = 0) -> bytes | None:
    """What one stream holds; at most `spare` bytes may follow it."""
    try:
        plain: bytes = inflater.decompress(data, max_bytes)
    except (zlib.error, lzma.LZMAError, OSError):
        return None
    return plain if inflater.eof and len(inflater.unused_data) <= spare else None


def _deflate(data: bytes, max_bytes: int) -> bytes | None:
    """Deflate without a wrapper; fastavro leaves most of zlib's checksum behind it."""
    return _finish_inflating(zlib.decompressobj(-zlib.MAX_WBITS), data, max_bytes, spare=ADLER - 1)


def _bzip2(data: bytes, max_bytes: int) -> bytes | None:
    return _finish_inflating(bz2.BZ2Decompressor(), data, max_bytes)


def _xz(data: bytes, max_bytes: int) -> bytes | None:
    return _finish_inflating(lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=4 * max_bytes), data, max_bytes)


def _zstandard(data: bytes, max_bytes: int) -> bytes | None:
    step = compression.ZSTD_STEP
    gathered, size = [], 0
    try:
        for block in compression.zstd_frames(data[at : at + step] for at in range(0, len(data), step)):
            gathered.append(block)
            size += len(block)
            if size > max_bytes:
                return None
    except (EOFError, zlib.error):
        return None
    return b"".join(gathered)


def _snappy(data: bytes, max_bytes: int) -> bytes | None:
    """A snappy block, and the big-endian CRC-32 of what it holds."""
    import cramjam

    block, checksum = data[:-SNAPPY_SUM], data[-SNAPPY_SUM:]
    try:
        if cramjam.snappy.decompress_raw_len(block) > max_bytes:
            return None
        plain = bytes(cramjam.snappy.decompress_raw(block))
    except (cramjam.DecompressionError, ValueError):
        return None
    return plain if checksum == zlib.crc32(plain).to_bytes(SNAPPY_SUM, "big") else None


_CODECS: Final[dict[str, tuple[Codec, str]]] = {
    "null": (_null, ""),
    "deflate": (_deflate, ""),
    "snappy": (_snappy, "cramjam"),
    "zstandard": (_zstandard, "zstandard"),
    "bzip2": (_bzip2, ""),
    "xz": (_xz, ""),
}
"""Each codec, and the package that it needs."""


def codec(name: str, path: object) -> Codec:
    """The codec of that name.

    Args:
        name: name of the codec in the header of a file.
        path: path of the file, for messages.

    Raises:
        FormatError: there is none.
        MissingExtraError: its package is not installed.
    """
    if name not in _CODECS:
        raise FormatError(f"the blocks of {path} have the codec {name!r:.40}, which is not one of {', '.join(_CODECS)}")
    made, package = _CODECS[name]
    if package:
        try:
            __import__(package)
        except ImportError:
            raise MissingExtraError(
                f"the blocks of {path} are compressed with {name}, which needs {package}: pip install {package}"
            ) from None
    return made
