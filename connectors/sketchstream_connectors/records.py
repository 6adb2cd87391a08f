"""Records: the bytes of Kafka record batches turned into arrays, without a Python object per record.

In: what a fetch response holds for one partition (batches of format v2, any codec; older formats by the client's own
parser), or the stock client's records. Out: frozen `Records`. Touches: nothing.
Source: Apache Kafka protocol guide, "Messages"; the checks are those of kafka-python's `DefaultRecordBatch`.

A batch counts as a whole or not at all: where its checksum or structure is wrong, reading stops before it with
`CorruptRecordError`. One thing is read that the stock parser refuses: header names that are not UTF-8. Headers are
read one record at a time, where somebody asks for them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sketchstream.errors import CorruptRecordError, MissingExtraError
from sketchstream_connectors import record_kernels as kernels

Buffer = bytes | bytearray | memoryview
Ints = npt.NDArray[np.int64]

MAX_BATCH_BYTES = 1 << 28
"""A batch that would grow beyond this when decompressed is refused: the broker only limits compressed sizes."""
NO_TIMESTAMP = -1
MAX_HEADERS, MAX_HEADER_BYTES = 64, 16 << 10
"""Of one record's headers, what is read at most; names and values together."""

Headers = tuple[tuple[str, bytes], ...]

_CODEC_MASK, _LOG_APPEND, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_AFTER_CHECKSUM = 21
_XERIAL = b"\x82SNAPPY\x00"
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, eq=False)
class Records:
    """n records of one partition, in offset order; bytes are [start, end) of `buffer`, start = -1 for null.

    Args:
        offsets: (n,) int64.
        timestamps: (n,) int64, milliseconds, -1 where the record has none.
        buffer: uint8, read-only (which also keeps compiled loops to one variant).
        key_start, key_end, value_start, value_end: (n,) int64.
        next_position: position after the last batch read, control and aborted batches included.
        leader_epoch: of the last batch, -1 where not known.
        framed: `buffer` holds records of format v2 as they are in their batches, headers behind each value.
        client: the records that the client parsed, for their headers.
    """

    offsets: Ints
    timestamps: Ints
    buffer: npt.NDArray[np.uint8]
    key_start: Ints
    key_end: Ints
    value_start: Ints
    value_end: Ints
    next_position: int
    leader_epoch: int = -1
    framed: bool = False
    client: Sequence[ClientRecord] | None = None

    def __len__(self) -> int:
        return int(self.offsets.size)

    def __repr__(self) -> str:
        return f"Records({len(self)} records, next_position={self.next_position})"

    def key(self, index: int) -> bytes | None:
        """The key of one record."""
        return self._slice(int(self.key_start[index]), int(self.key_end[index]))

    def value(self, index: int) -> bytes | None:
        """The value of one record."""
        return self._slice(int(self.value_start[index]), int(self.value_end[index]))

    def headers(self, index: int) -> tuple[Headers, bool]:
        """The headers of one record, as many as `MAX_HEADERS` and `MAX_HEADER_BYTES` allow, and whether that is all.

        Names that are not UTF-8 are escaped, null values are empty.
        """
        found: Iterator[tuple[str | bytes, bytes | None]] = iter(())
        if self.framed:
            found = _read_headers(self.buffer, int(self.value_end[index]))
        elif self.client is not None:
            found = iter(getattr(self.client[index], "headers", None) or ())
        kept: list[tuple[str, bytes]] = []
        room = MAX_HEADER_BYTES
        for name, value in found:
            room -= len(name) + len(value or b"")
            if room < 0 or len(kept) == MAX_HEADERS:
                return tuple(kept), False
            text = name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")
            kept.append((text, bytes(value or b"")))
        return tuple(kept), True

    def _slice(self, start: int, end: int) -> bytes | None:
        """Bytes of the buffer, None for null."""
        return None if start < 0 else self.buffer[start:end].tobytes()


def _read_headers(buffer: npt.NDArray[np.uint8], at: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Names and values of the headers that begin at `at`, of a record whose structure was checked."""

    def number() -> int:
        nonlocal at
        raw = shift = 0
        while True:
            byte = int(buffer[at])
            at += 1
            raw |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return raw >> 1 ^ -(raw & 1)

    def part(size: int) -> bytes:
        nonlocal at
        at += size
        return buffer[at - size : at].tobytes()

    for _ in range(number()):
        name, size = part(number()), number()
        yield name, None if size < 0 else part(size)


def read_only(array: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The array, which nobody may write to from now on."""
    array.flags.writeable = False
    return array


class ClientRecord(Protocol):
    """What is read of kafka-python's `ConsumerRecord`."""

    @property
    def offset(self) -> int:
        """Position in the partition."""

    @property
    def timestamp(self) -> int | None:
        """Milliseconds."""

    @property
    def key(self) -> bytes | None:
        """Raw key."""

    @property
    def value(self) -> bytes | None:
        """Raw value."""


def from_client_records(
    records: Sequence[ClientRecord], *, next_position: int | None = None, leader_epoch: int = -1
) -> Records:
    """The stock path: the same `Records` from kafka-python's records, made without deserializers.

    Args:
        records: in offset order.
        next_position: the consumer's position after them; default: last offset + 1, which is too low where control
            or aborted batches follow. Needed when there are no records.
        leader_epoch: of the last batch.
    """
    if next_position is None:
        if not records:
            msg = "next_position must be given when there are no records: their offsets cannot say it"
            raise ValueError(msg)
        next_position = records[-1].offset + 1
    n = len(records)
    parts: list[bytes] = []
    bounds = np.full((n, 4), -1, dtype=np.int64)
    size = 0
    for line, record in zip(bounds, records, strict=True):
        for column, part in ((0, record.key), (2, record.value)):
            if part is not None:
                parts.append(part)
                line[column] = size
                size += len(part)
                line[column + 1] = size
    return Records(
        offsets=np.fromiter((r.offset for r in records), np.int64, n),
        timestamps=np.fromiter((NO_TIMESTAMP if r.timestamp is None else r.timestamp for r in records), np.int64, n),
        buffer=np.frombuffer(b"".join(parts), dtype=np.uint8),
        key_start=bounds[:, 0].copy(),
        key_end=bounds[:, 1].copy(),
        value_start=bounds[:, 2].copy(),
        value_end=bounds[:, 3].copy(),
        next_position=next_position,
        leader_epoch=leader_epoch,
        client=records,
    )


def join(parts: Sequence[Records]) -> Records:
    """Consecutive records of one partition as one; `parts` has at least one."""
    if len(parts) == 1:
        return parts[0]
    shifts = np.cumsum([0] + [p.buffer.size for p in parts[:-1]])

    def moved(name: str) -> Ints:
        """One column of bounds, counted from the joined buffer's start."""
        columns = [np.asarray(getattr(p, name)) for p in parts]
        return np.concatenate([np.where(c < 0, -1, c + s) for c, s in zip(columns, shifts, strict=True)])

    return Records(
        offsets=np.concatenate([p.offsets for p in parts]),
        timestamps=np.concatenate([p.timestamps for p in parts]),
        buffer=read_only(np.concatenate([p.buffer for p in parts])),
        key_start=moved("key_start"),
        key_end=moved("key_end"),
        value_start=moved("value_start"),
        value_end=moved("value_end"),
        next_position=parts[-1].next_position,
        leader_epoch=parts[-1].leader_epoch,
        framed=all(p.framed for p in parts),
    )


def parse_batches(
    data: Buffer,
    from_position: int,
    *,
    check_crc: bool = True,
    aborted: Iterable[tuple[int, int]] | None = None,
) -> Records:
    """All records of whole batches in `data`, in one piece.

    Args:
        data: consecutive batches; a batch cut off at the end is left for the next fetch.
        from_position: the position that was asked for; records below it are dropped.
        check_crc: whether checksums are checked.
        aborted: (producer id, first offset) of the aborted transactions that the broker listed for a `read_committed`
            fetch; None reads uncommitted. Control batches are never returned.

    Raises:
        CorruptRecordError: a checksum or a structure is wrong. `read_batches` hands out what comes before.
        MissingExtraError: the package for a codec is not installed.
    """
    parts = list(read_batches(data, from_position, check_crc=check_crc, aborted=aborted, chunk_bytes=None))
    return join(parts) if parts else empty(from_position)


def read_batches(
    data: Buffer,
    from_position: int,
    *,
    check_crc: bool = True,
    aborted: Iterable[tuple[int, int]] | None = None,
    chunk_bytes: int | None = 1 << 22,
) -> Iterator[Records]:
    """As `parse_batches`, in pieces of about `chunk_bytes` decompressed bytes, each with its own arrays.

    A piece without records is yielded where the position moved all the same (control, aborted and compacted batches),
    so that each piece begins where the one before it ended. What precedes a corrupt batch is yielded first.
    """
    return _Reader(data, from_position, check_crc, aborted).read(chunk_bytes)


class _Reader:
    """One pass over the batches of one fetch response."""

    def __init__(
        self, data: Buffer, from_position: int, check_crc: bool, aborted: Iterable[tuple[int, int]] | None
    ) -> None:
        self.view = memoryview(data).cast("B")
        self.array = read_only(np.frombuffer(self.view, dtype=np.uint8))
        self.from_position = from_position
        self.position = from_position
        self.leader_epoch = -1
        self.checksum = _checksum() if check_crc else None
        self.committed_only = aborted is not None
        self.aborts = sorted(aborted or (), key=lambda pair: pair[1], reverse=True)
        self.aborting: set[int] = set()

    def read(self, chunk_bytes: int | None) -> Iterator[Records]:
        """Pieces of about `chunk_bytes`."""
        table = np.zeros((kernels.count_batches(self.array), kernels.COLUMNS), dtype=np.int64)
        whole = kernels.read_heads(self.array, table)
        piece = _Piece(self.position)
        for row, head in enumerate(table.tolist()):
            try:
                if row >= whole:
                    msg = f"a batch with an unreadable head (format {head[kernels.MAGIC]})"
                    raise CorruptRecordError(msg, head[kernels.BASE_OFFSET])
                if head[kernels.MAGIC] == 2:
                    self._accept(head, piece)
            except CorruptRecordError:
                yield from self._flush(piece)
                raise
            if head[kernels.MAGIC] < 2:
                yield from self._flush(piece)
                yield self._old(head)
                piece = _Piece(self.position)
            elif chunk_bytes is not None and piece.size >= chunk_bytes:
                yield from self._flush(piece)
                piece = _Piece(self.position)
        yield from self._flush(piece)

    def _flush(self, piece: _Piece) -> Iterator[Records]:
        """The records of a piece; where one of its batches is broken, those before it, and then the error."""
        broken = None
        if piece.segments:
            records, broken = piece.read(self.array, self.from_position, self.position, self.leader_epoch)
            if broken is None or records.next_position > piece.position:
                yield records
        elif self.position > piece.position:
            yield empty(self.position, self.leader_epoch)
        if broken is not None:
            msg = "a batch whose records do not have the structure that its head declares"
            raise CorruptRecordError(msg, broken)

    def _accept(self, head: list[int], piece: _Piece) -> None:
        """Check one batch of format v2, and add it to the piece unless it is a control or an aborted batch."""
        start, end = head[kernels.START], head[kernels.END]
        base, attributes = head[kernels.BASE_OFFSET], head[kernels.ATTRIBUTES]
        if self.checksum is not None and self.checksum(self.view[start + _AFTER_CHECKSUM : end]) != head[kernels.CRC]:
            msg = "a batch whose checksum does not match its bytes"
            raise CorruptRecordError(msg, base)
        skip = control = bool(attributes & _CONTROL)
        producer = head[kernels.PRODUCER]
        if self.committed_only and producer >= 0:
            while self.aborts and self.aborts[-1][1] <= base + head[kernels.LAST_DELTA]:
                self.aborting.add(self.aborts.pop()[0])
            if control and self._is_abort(head):
                self.aborting.discard(producer)
            elif attributes & _TRANSACTIONAL and producer in self.aborting:
                skip = True
        if not skip:
            piece.add(self.view, head, self.position)
        self.leader_epoch = head[kernels.LEADER_EPOCH]
        self.position = max(self.from_position, base + head[kernels.LAST_DELTA] + 1)

    def _is_abort(self, head: list[int]) -> bool:
        """Whether a control batch ends a transaction by aborting it (its key: int16 version, int16 type, 0 = abort)."""
        piece = _Piece(self.position)
        piece.add(self.view, head, self.position)
        marker, broken = piece.read(self.array, np.iinfo(np.int64).min, self.position, -1)
        key = marker.key(0) if len(marker) else None
        if broken is not None or key is None or len(key) < 4:
            msg = "a control batch without a readable marker"
            raise CorruptRecordError(msg, head[kernels.BASE_OFFSET])
        kind: int = struct.unpack_from(">h", key, 2)[0]
        return kind == 0

    def _old(self, head: list[int]) -> Records:
        """A message set of format v0 or v1, by the client's own parser."""
        from kafka.record.legacy_records import LegacyRecordBatch

        base = head[kernels.BASE_OFFSET]
        batch = LegacyRecordBatch(self.view[head[kernels.START] : head[kernels.END]], head[kernels.MAGIC])
        try:
            if self.checksum is not None and not batch.validate_crc():
                msg = "an old message whose checksum does not match its bytes"
                raise CorruptRecordError(msg, base)
            records = []
            for record in batch:
                if self.checksum is not None and not record.validate_crc():
                    msg = "an old message whose checksum does not match its bytes"
                    raise CorruptRecordError(msg, base)
                records.append(record)
        except CorruptRecordError:
            raise
        except Exception as error:
            msg = f"an old message set that cannot be read ({type(error).__name__})"
            raise CorruptRecordError(msg, base) from None
        if records:
            self.position = max(self.from_position, records[-1].offset + 1)
        kept = [record for record in records if record.offset >= self.from_position]
        return from_client_records(kept, next_position=self.position, leader_epoch=self.leader_epoch)


class _Piece:
    """Batches on their way to one `Records`: where their records are, and the position before each of them."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.size = 0
        self.segments: list[tuple[int, int, int, int, int, int]] = []
        self.before: list[int] = []
        self.payloads: dict[int, npt.NDArray[np.uint8]] = {}

    def add(self, view: memoryview, head: list[int], before: int) -> None:
        """One batch, decompressed where needed; `before` is the position that it is read from."""
        start, end = head[kernels.START] + kernels.HEAD_BYTES, head[kernels.END]
        codec = head[kernels.ATTRIBUTES] & _CODEC_MASK
        base, count = head[kernels.BASE_OFFSET], head[kernels.COUNT]
        if codec and end > start:
            payload = decompress(codec, view[start:end], base)
            self.payloads[len(self.segments)] = payload
            start, end = 0, payload.size
        if count > (end - start) // kernels.SMALLEST_RECORD:
            msg = f"a batch of {end - start} bytes that claims {count} records"
            raise CorruptRecordError(msg, base)
        fixed = bool(head[kernels.ATTRIBUTES] & _LOG_APPEND)
        timestamp = head[kernels.MAX_TIMESTAMP if fixed else kernels.FIRST_TIMESTAMP]
        self.segments.append((start, end, base, timestamp, int(fixed), count))
        self.before.append(before)
        self.size += end - start

    def read(
        self, array: npt.NDArray[np.uint8], from_position: int, position: int, leader_epoch: int
    ) -> tuple[Records, int | None]:
        """The records at or after `from_position`, and the base offset of the first broken batch."""
        segments = np.array(self.segments, dtype=np.int64)
        first = segments[0, kernels.SEGMENT_START]
        if not self.payloads:
            buffer = array[first : segments[-1, kernels.SEGMENT_END]]
            segments[:, kernels.SEGMENT_START : kernels.SEGMENT_END + 1] -= first
        else:
            ends = np.cumsum(segments[:, kernels.SEGMENT_END] - segments[:, kernels.SEGMENT_START])
            buffer = np.empty(int(ends[-1]), dtype=np.uint8)
            for index, line in enumerate(segments):
                source = self.payloads.pop(index, None)
                if source is None:
                    source = array[line[kernels.SEGMENT_START] : line[kernels.SEGMENT_END]]
                line[kernels.SEGMENT_END] = ends[index]
                line[kernels.SEGMENT_START] = ends[index] - source.size
                buffer[line[kernels.SEGMENT_START] : line[kernels.SEGMENT_END]] = source
            buffer = read_only(buffer)
        n = int(np.maximum(segments[:, kernels.SEGMENT_COUNT], 0).sum())
        offsets, timestamps, key_start, key_end, value_start, value_end = (
            np.empty(n, dtype=np.int64) for _ in range(6)
        )
        written, broken = kernels.read_records(
            buffer, segments, from_position, offsets, timestamps, key_start, key_end, value_start, value_end
        )
        whole = broken == len(self.segments)
        records = Records(
            offsets[:written],
            timestamps[:written],
            buffer,
            key_start[:written],
            key_end[:written],
            value_start[:written],
            value_end[:written],
            next_position=position if whole else self.before[broken],
            leader_epoch=leader_epoch,
            framed=True,
        )
        return records, None if whole else self.segments[broken][2]


def empty(next_position: int, leader_epoch: int = -1) -> Records:
    """No records, but a position."""
    return from_client_records([], next_position=next_position, leader_epoch=leader_epoch)


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


_GROWTH, _SMALLEST = 8, 1 << 16
"""Room for decompressed data: so many times the compressed size, at least so many bytes; then twice as much."""


class _TooLargeError(ValueError):
    """Decompressed data beyond `MAX_BATCH_BYTES`."""


def _gzip(data: memoryview) -> Buffer:
    """All members of a gzip stream."""
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
    plain = np.empty(sum(sizes), dtype=np.uint8)
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
        part = np.empty(max(_GROWTH * len(data), filled, _SMALLEST), dtype=np.uint8)
        got = reader.readinto(part.data)
        parts.append(part[:got])
        filled += got
        if filled > MAX_BATCH_BYTES:
            raise _TooLargeError
        if got < part.size:
            break
    return (parts[0] if len(parts) == 1 else np.concatenate(parts)).data


def _checksum() -> Callable[[memoryview], int]:
    """CRC-32C by the C package; the pure Python one would cap everything at 10 MB/s."""
    try:
        from crc32c import crc32c
    except ImportError as error:
        msg = "checksums of Kafka batches need the package crc32c: install sketchstream[kafka]"
        raise MissingExtraError(msg) from error
    checksum: Callable[[memoryview], int] = crc32c
    return checksum
