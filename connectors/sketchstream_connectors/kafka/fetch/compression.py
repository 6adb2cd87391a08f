"""Decompresses record batches (gzip, snappy, lz4, zstd) with a limit on the decompressed size.

In: compressed bytes, the number of their codec, and room for what comes out. Out: plain bytes. Touches: nothing.
Source: Apache Kafka protocol guide, "Messages"; Snappy's framing by xerial's snappy-java; LZ4 Frame Format 1.6.2;
RFC 8878 (zstd).
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from typing import Any

import numpy as np

from sketchstream.errors import CorruptRecordError, MissingExtraError
from sketchstream_connectors.decode.memory_pool import PAYLOADS

Buffer = bytes | bytearray | memoryview

MAX_BATCH_BYTES = 1 << 28
"""A batch that would grow beyond this when decompressed is refused: the broker only limits compressed sizes."""
_XERIAL = b"\x82SNAPPY\x00"
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_DEFLATED = 1032
"""Deflate shortens data to no less than a 1,032nd of its length."""
_GROWTH, _MIN_ROOM = 16, 1 << 16
"""Decompressed data get room for 16 times the compressed size, at least 64 KiB; then for twice as much."""
_LZ4_MAGIC = 0x184D2204
_LZ4_SIZE = 0x7FFFFFFF
"""The bits of a block's size; the remaining one marks a block that is not compressed."""
_ZSTD_SKIPPED = 0x184D2A5
"""Magic number of frames to be skipped, without its last four bits."""
_ZSTD_HEAD = 18
"""Bytes of the longest head of a frame."""
_ZSTD_REPEATED = 1
"""The type of a block that is one byte, repeated."""


class _TooLargeError(ValueError):
    """Decompressed data beyond `MAX_BATCH_BYTES`."""


class Decompressor:
    """Decompresses batches one after the other; what a codec needs for that is made once."""

    def __init__(self) -> None:
        self._zstd_context: Any = None

    def decompress(self, codec: int, data: memoryview, offset: int, room: memoryview | None = None) -> memoryview:
        """The records of a compressed batch.

        Args:
            codec: 1 gzip, 2 snappy (plain or xerial), 3 lz4 frame, 4 zstd.
            data: compressed bytes of the batch.
            offset: offset of the batch, for errors.
            room: memory that the records are written to if they fit; what it holds behind them is undefined.

        Returns:
            The beginning of `room`, with the same `obj`, or a view of other memory.

        Raises:
            CorruptRecordError: the data are broken, or grow beyond `MAX_BATCH_BYTES`.
            MissingExtraError: the codec's package is not installed.
        """
        if codec >= len(_CODECS):
            raise CorruptRecordError(f"a batch with an unknown codec ({codec})", offset)
        if room is not None:
            room = room[:MAX_BATCH_BYTES]
        try:
            return memoryview((self._gzip, self._snappy, self._lz4, self._zstd)[codec - 1](data, room))
        except ImportError as error:
            raise MissingExtraError(
                f"a batch is compressed with {_CODECS[codec]}: install sketchstream[kafka]"
            ) from error
        except Exception as error:  # every codec has errors of its own
            raise CorruptRecordError(
                f"a batch whose {_CODECS[codec]} data cannot be decompressed ({type(error).__name__})", offset
            ) from None

    def _gzip(self, data: memoryview, room: memoryview | None) -> Buffer:
        """All members of a gzip stream; a member of known length is decompressed in place."""
        at_once = _one_member(data, room)
        if at_once is not None:
            return at_once
        parts: list[bytes] = []
        left = MAX_BATCH_BYTES
        rest: Buffer = data
        while len(rest):
            member = zlib.decompressobj(wbits=31)
            parts.append(member.decompress(rest, left + 1))
            left -= len(parts[-1])
            if left < 0:
                raise _TooLargeError
            if not member.eof:
                raise EOFError
            rest = member.unused_data
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _snappy(self, data: memoryview, room: memoryview | None) -> Buffer:
        """One snappy block, or xerial's sequence of blocks with a big-endian length before each."""
        from cramjam import snappy

        blocks = [data]
        if len(data) >= 16 and bytes(data[:8]) == _XERIAL:
            blocks.clear()
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
        plain = _place(sum(sizes), room)
        filled = 0
        for block, size in zip(blocks, sizes, strict=True):
            snappy.decompress_raw_into(block, plain[filled : filled + size])
            filled += size
        return plain

    def _lz4(self, data: memoryview, room: memoryview | None) -> Buffer:
        """One lz4 frame."""
        if room is not None and _is_one_frame(data):
            from cramjam import DecompressionError, lz4

            with contextlib.suppress(DecompressionError):  # broken, or too large: decided below
                return room[: lz4.decompress_into(data, room)]
        from lz4.frame import LZ4FrameDecompressor

        frame = LZ4FrameDecompressor()
        parts: list[bytes] = []
        filled = 0
        rest: Buffer = data
        while not frame.eof:
            parts.append(frame.decompress(rest, max_length=max(_GROWTH * len(data), filled, _MIN_ROOM)))
            filled += len(parts[-1])
            rest = b""
            if filled > MAX_BATCH_BYTES:
                raise _TooLargeError
            if frame.needs_input and not frame.eof:
                raise EOFError
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _zstd(self, data: memoryview, room: memoryview | None) -> Buffer:
        """All frames of a zstd stream."""
        declared = _declared_size(data)
        if self._zstd_context is None:
            from zstandard import ZstdDecompressor

            self._zstd_context = ZstdDecompressor()
        reader = self._zstd_context.stream_reader(data, read_across_frames=True)
        parts: list[memoryview] = []
        filled = 0
        part = room
        while True:
            if not part:
                part = PAYLOADS.take(max(_GROWTH * len(data), filled, _MIN_ROOM))
            got = reader.readinto(part)
            parts.append(part[:got])
            filled += got
            if filled > MAX_BATCH_BYTES:
                raise _TooLargeError
            if got < len(part):
                break
            part = None
        if declared not in (None, filled):
            raise ValueError
        return parts[0] if len(parts) == 1 else np.concatenate(parts).data


def _place(size: int, room: memoryview | None) -> memoryview:
    """Memory of this size: the first bytes of `room`, or other memory where `room` is too small."""
    return PAYLOADS.take(size) if room is None or size > len(room) else room[:size]


def _one_member(data: memoryview, room: memoryview | None) -> memoryview | None:
    """Decompress a stream whose length is in its last bytes; None: leave the decision to zlib."""
    size = int.from_bytes(data[-4:], "little") if len(data) >= 18 else 0
    if not 0 < size <= min(MAX_BATCH_BYTES, _DEFLATED * len(data)):
        return None
    try:
        from cramjam import gzip

        plain = _place(size + 1, room)
        filled = gzip.decompress_into(data, plain)
    except Exception:  # the package is not there, or the stream is another one
        return None
    return plain[:size] if filled == size else None


def _is_one_frame(data: memoryview) -> bool:
    """Whether these bytes are one lz4 frame from its magic number to its end, by the sizes in it."""
    if len(data) < 11:
        return False
    magic, flags = struct.unpack_from("<IB", data)
    if magic != _LZ4_MAGIC:
        return False
    checked = 4 if flags & 0x10 else 0  # bytes of each block's checksum
    position = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    while len(data) - position >= 4:
        (size,) = struct.unpack_from("<I", data, position)
        position += 4
        if size == 0:
            return position + (4 if flags & 0x04 else 0) == len(data)
        position += (size & _LZ4_SIZE) + checked
    return False


def _declared_size(data: memoryview) -> int | None:
    """The decompressed size of zstd frames by their heads; None where one lacks it.

    The package returns what there is of a stream that was cut off. So the sizes of all blocks are followed to the end.

    Raises:
        EOFError: the last frame ends elsewhere than the data.
    """
    from zstandard import CONTENTSIZE_UNKNOWN, frame_header_size, get_frame_parameters

    position, size = 0, len(data)
    declared: int | None = 0
    while size - position >= 8:
        magic, skipped = struct.unpack_from("<II", data, position)
        if magic >> 4 == _ZSTD_SKIPPED:
            position += 8 + skipped
            continue
        head = data[position : position + _ZSTD_HEAD]
        parameters = get_frame_parameters(head)
        if parameters.content_size == CONTENTSIZE_UNKNOWN:
            declared = None
        elif declared is not None:
            declared += parameters.content_size
        position += frame_header_size(head)
        last = False
        while not last:
            if size - position < 3:
                raise EOFError
            block = int.from_bytes(data[position : position + 3], "little")
            last = bool(block & 1)
            position += 3 + (1 if block >> 1 & 3 == _ZSTD_REPEATED else block >> 3)
        position += 4 if parameters.has_checksum else 0
    if position != size:
        raise EOFError
    return declared
