"""Decompresses record batches (gzip, snappy, lz4, zstd) with a limit on the decompressed size.

In: compressed bytes and the number of their codec. Out: plain bytes. Touches: nothing.
Source: Apache Kafka protocol guide, "Messages"; Snappy's framing by xerial's snappy-java.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

from sketchstream.errors import CorruptRecordError, MissingExtraError
from sketchstream_connectors.decode.pools import PAYLOADS

Buffer = bytes | bytearray | memoryview

MAX_BATCH_BYTES = 1 << 28
"""A batch that would grow beyond this when decompressed is refused: the broker only limits compressed sizes."""
_XERIAL = b"\x82SNAPPY\x00"
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_DEFLATED = 1032
"""So many times longer, at most, is what deflate has shortened."""
_GROWTH, _SMALLEST = 16, 1 << 16
"""Room for decompressed data: so many times the compressed size, at least so many bytes; then twice as much."""


class _TooLargeError(ValueError):
    """Decompressed data beyond `MAX_BATCH_BYTES`."""


def decompress(codec: int, data: memoryview, offset: int) -> npt.NDArray[np.uint8]:
    """The records of a compressed batch; `codec` 1 gzip, 2 snappy (plain or xerial), 3 lz4 frame, 4 zstd.

    Raises:
        CorruptRecordError: the data are broken, or grow beyond `MAX_BATCH_BYTES`.
        MissingExtraError: the codec's package is not installed.
    """
    if codec >= len(_CODECS):
        msg = f"a batch with an unknown codec ({codec})"
        raise CorruptRecordError(msg, offset)
    try:
        plain = (_gzip, _snappy, _lz4, _zstd)[codec - 1](data)
    except ImportError as error:
        msg = f"a batch is compressed with {_CODECS[codec]}: install sketchstream[kafka]"
        raise MissingExtraError(msg) from error
    except Exception as error:  # every codec has errors of its own
        msg = f"a batch whose {_CODECS[codec]} data cannot be decompressed ({type(error).__name__})"
        raise CorruptRecordError(msg, offset) from None
    return np.frombuffer(plain, dtype=np.uint8)


def _gzip(data: memoryview) -> Buffer:
    """All members of a gzip stream; a member of known length is decompressed in place."""
    at_once = _one_member(data)
    if at_once is not None:
        return at_once
    parts: list[bytes] = []
    room = MAX_BATCH_BYTES
    rest: Buffer = data
    while len(rest):
        member = zlib.decompressobj(wbits=31)
        parts.append(member.decompress(rest, room + 1))
        room -= len(parts[-1])
        if room < 0:
            raise _TooLargeError
        if not member.eof:
            raise EOFError
        rest = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _one_member(data: memoryview) -> memoryview | None:
    """Decompress a stream whose length is in its last bytes; None: leave the decision to zlib."""
    size = int.from_bytes(data[-4:], "little") if len(data) >= 18 else 0
    if not 0 < size <= min(MAX_BATCH_BYTES, _DEFLATED * len(data)):
        return None
    try:
        from cramjam import gzip

        plain = PAYLOADS.take(size + 1)
        filled = gzip.decompress_into(data, plain)
    except Exception:  # the package is not there, or the stream is another one
        return None
    return plain[:size] if filled == size else None


def _snappy(data: memoryview) -> Buffer:
    """One snappy block, or xerial's sequence of blocks with a big-endian length before each."""
    from cramjam import snappy

    if len(data) < 16 or bytes(data[:8]) != _XERIAL:
        if snappy.decompress_raw_len(data) > MAX_BATCH_BYTES:
            raise _TooLargeError
        return memoryview(snappy.decompress_raw(data))
    blocks: list[memoryview] = []
    position = 16
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if length < 0 or length > len(data) - position:
            raise EOFError
        blocks.append(data[position : position + length])
        position += length
    sizes = [snappy.decompress_raw_len(block) for block in blocks]
    if sum(sizes) > MAX_BATCH_BYTES:
        raise _TooLargeError
    plain = np.frombuffer(PAYLOADS.take(sum(sizes)), dtype=np.uint8)
    filled = 0
    for block, size in zip(blocks, sizes, strict=True):
        snappy.decompress_raw_into(block, plain.data[filled : filled + size])
        filled += size
    return plain.data


def _lz4(data: memoryview) -> Buffer:
    """One lz4 frame."""
    from lz4.frame import LZ4FrameDecompressor

    frame = LZ4FrameDecompressor()
    parts: list[bytes] = []
    filled = 0
    rest: Buffer = data
    while not frame.eof:
        parts.append(frame.decompress(rest, max_length=max(_GROWTH * len(data), filled, _SMALLEST)))
        filled += len(parts[-1])
        rest = b""
        if filled > MAX_BATCH_BYTES:
            raise _TooLargeError
        if frame.needs_input and not frame.eof:
            raise EOFError
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd(data: memoryview) -> Buffer:
    """All frames of a zstd stream."""
    from zstandard import ZstdDecompressor

    reader = ZstdDecompressor().stream_reader(data, read_across_frames=True)
    parts: list[npt.NDArray[np.uint8]] = []
    filled = 0
    while True:
        part = np.frombuffer(PAYLOADS.take(max(_GROWTH * len(data), filled, _SMALLEST)), dtype=np.uint8)
        got = reader.readinto(part.data)
        parts.append(part[:got])
        filled += got
        if filled > MAX_BATCH_BYTES:
            raise _TooLargeError
        if got < part.size:
            break
    return (parts[0] if len(parts) == 1 else np.concatenate(parts)).data
