"""Reads Kafka record batches (format v2, any codec) into `Records`. The client's parser reads older formats.

In: what a fetch response holds for one partition. Out: `Records`. Touches: nothing.
Source: Apache Kafka protocol guide, "Messages"; the checks are those of kafka-python's `DefaultRecordBatch`.

A batch is read completely or not at all: if its checksum or structure is wrong, reading stops before it with
`CorruptRecordError`. Unlike the stock parser, this one accepts header names that are not UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from sketchstream.errors import CorruptRecordError, MissingExtraError
from sketchstream_connectors.decode.memory_pool import PAYLOADS, int_rows
from sketchstream_connectors.decode.records import Records, from_client_records, no_records, read_only
from sketchstream_connectors.kafka.fetch import record_kernels as kernels
from sketchstream_connectors.kafka.fetch.compression import Buffer, Decompressor

CODEC_MASK, _LOG_APPEND, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_AFTER_CHECKSUM = 21
"""Where the bytes begin that the checksum of a batch covers: behind offset, length, leader epoch, magic and itself."""
PIECE_BYTES = 1 << 22
"""Decompressed bytes after which a piece of a response ends."""
_MORE, _ROOM = 1.25, 1 << 20
"""Decompressed batches get 1.25 times the room that the last one lets expect, and room for one batch beyond the end of
a piece, at most 1 MiB."""


def read_batches(
    data: Buffer,
    from_position: int,
    *,
    check_crc: bool = True,
    aborted: Iterable[tuple[int, int]] | None = None,
    chunk_bytes: int | None = PIECE_BYTES,
) -> Iterator[Records]:
    """All records of whole batches in `data`, in pieces of decompressed bytes, each with its own arrays.

    A piece without records is yielded if only the position moved (control, aborted and compacted batches),
    so that each piece begins where the one before it ended. What precedes a corrupt batch is yielded first.

    Args:
        data: consecutive batches; a batch cut off at the end is left for the next fetch.
        from_position: the position that was asked for; records below it are dropped.
        check_crc: whether checksums are checked.
        aborted: (producer id, first offset) of the aborted transactions that the broker listed for a `read_committed`
            fetch; None reads uncommitted. Control batches are never returned.
        chunk_bytes: about the bytes of a piece; None: all are in one.

    Raises:
        CorruptRecordError: a checksum or a structure is wrong.
        MissingExtraError: the package for a codec is not installed.
    """
    return _BatchReader(data, from_position, check_crc, aborted).read(chunk_bytes)


def end_of(data: Buffer, from_position: int) -> tuple[int, int] | None:
    """Where reading continues after sound batches, from their heads alone; nothing else is checked.

    Args:
        data: see `read_batches`.
        from_position: see `read_batches`.

    Returns:
        The position behind the last whole batch, and its leader epoch; None where the heads do not suffice: there is no
        whole batch, one is of an older format, or one is broken.
    """
    array = np.frombuffer(data, dtype=np.uint8)
    table = np.zeros((kernels.count_batches(array), kernels.COLUMNS), dtype=np.int64)
    if kernels.read_heads(array, table) < len(table) or not len(table) or (table[:, kernels.MAGIC] != 2).any():
        return None
    last = table[-1]
    end = int(last[kernels.BASE_OFFSET] + last[kernels.LAST_DELTA] + 1)
    return max(from_position, end), int(last[kernels.LEADER_EPOCH])


class _BatchReader:
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
        self.payloads = _Payloads()

    def read(self, chunk_bytes: int | None) -> Iterator[Records]:
        """Pieces of about `chunk_bytes`."""
        table = np.zeros((kernels.count_batches(self.array), kernels.COLUMNS), dtype=np.int64)
        whole = kernels.read_heads(self.array, table)
        piece = _Piece(self.position, self.payloads)
        for row, head in enumerate(table.tolist()):
            try:
                if row >= whole:
                    raise CorruptRecordError(
                        f"a batch with an unreadable head (format {head[kernels.MAGIC]})", head[kernels.BASE_OFFSET]
                    )
                if head[kernels.MAGIC] == 2:
                    self._accept(head, piece)
            except CorruptRecordError:
                yield from self._flush(piece)
                raise
            if head[kernels.MAGIC] < 2:
                yield from self._flush(piece)
                yield self._old(head)
                piece = _Piece(self.position, self.payloads)
            elif chunk_bytes is not None and piece.size >= chunk_bytes:
                yield from self._flush(piece)
                piece = _Piece(self.position, self.payloads)
        yield from self._flush(piece)

    def _flush(self, piece: _Piece) -> Iterator[Records]:
        """The records of a piece; where one of its batches is broken, those before it, and then the error."""
        broken = None
        if piece.segments:
            records, broken = piece.read(self.array, self.from_position, self.position, self.leader_epoch)
            if broken is None or records.next_position > piece.position:
                yield records
        elif self.position > piece.position:
            yield no_records(piece.position, self.position, self.leader_epoch)
        if broken is not None:
            raise CorruptRecordError("a batch whose records do not have the structure that its head declares", broken)

    def _accept(self, head: list[int], piece: _Piece) -> None:
        """Check one batch of format v2, and add it to the piece unless it is a control or an aborted batch."""
        start, end = head[kernels.START], head[kernels.END]
        base, attributes = head[kernels.BASE_OFFSET], head[kernels.ATTRIBUTES]
        if self.checksum is not None and self.checksum(self.view[start + _AFTER_CHECKSUM : end]) != head[kernels.CRC]:
            raise CorruptRecordError("a batch whose checksum does not match its bytes", base)
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
        piece = _Piece(self.position, self.payloads)
        piece.add(self.view, head, self.position)
        marker, broken = piece.read(self.array, np.iinfo(np.int64).min, self.position, -1)
        key = marker.key(0) if len(marker) else None
        if broken is not None or key is None or len(key) < 4:
            raise CorruptRecordError("a control batch without a readable marker", head[kernels.BASE_OFFSET])
        kind: int = struct.unpack_from(">h", key, 2)[0]
        return kind == 0

    def _old(self, head: list[int]) -> Records:
        """A message set of format v0 or v1, by the client's own parser."""
        from kafka.record.legacy_records import LegacyRecordBatch

        base, before = head[kernels.BASE_OFFSET], self.position
        batch = LegacyRecordBatch(self.view[head[kernels.START] : head[kernels.END]], head[kernels.MAGIC])
        try:
            if self.checksum is not None and not batch.validate_crc():
                raise CorruptRecordError("an old message whose checksum does not match its bytes", base)
            records = []
            for record in batch:
                if self.checksum is not None and not record.validate_crc():
                    raise CorruptRecordError("an old message whose checksum does not match its bytes", base)
                records.append(record)
        except CorruptRecordError:
            raise
        except Exception as error:
            raise CorruptRecordError(f"an old message set that cannot be read ({type(error).__name__})", base) from None
        if records:
            self.position = max(self.from_position, records[-1].offset + 1)
        later = [record for record in records if record.offset >= self.from_position]
        return from_client_records(
            later, from_position=before, next_position=self.position, leader_epoch=self.leader_epoch
        )


class _Payloads:
    """Decompresses the batches of one response, and estimates the room that those of a piece will take."""

    def __init__(self) -> None:
        self._decompressor = Decompressor()
        self._growth = 0.0
        self._longest = 0

    def decompress(self, codec: int, data: memoryview, offset: int, room: memoryview | None) -> memoryview:
        """Decompress as `Decompressor.decompress` does."""
        plain = self._decompressor.decompress(codec, data, offset, room)
        self._growth = len(plain) / len(data)
        self._longest = max(self._longest, len(plain))
        return plain

    def room(self, compressed: int) -> memoryview | None:
        """Memory for the batches of a piece, so that they need not be copied into it; None before the first batch.

        Args:
            compressed: bytes of the response from the first of these batches on.
        """
        if not self._growth:
            return None
        size = min(int(_MORE * self._growth * compressed), PIECE_BYTES)
        return PAYLOADS.take(size + min(self._longest, _ROOM))


class _Piece:
    """Batches on their way to one `Records`: where their records are, and the position before each of them."""

    def __init__(self, position: int, response: _Payloads) -> None:
        self.position = position
        self.size = 0
        self.segments: list[tuple[int, int, int, int, int, int]] = []
        self.before: list[int] = []
        self.payloads: dict[int, npt.NDArray[np.uint8]] = {}
        self._response = response
        self._room: memoryview | None = None
        self._filled = 0

    def add(self, view: memoryview, head: list[int], before: int) -> None:
        """One batch, decompressed where needed; `before` is the position that it is read from."""
        start, end = head[kernels.START] + kernels.HEAD_BYTES, head[kernels.END]
        codec = head[kernels.ATTRIBUTES] & CODEC_MASK
        base, count = head[kernels.BASE_OFFSET], head[kernels.COUNT]
        if codec and end > start:
            start, end = self._plain(codec, view, start, end, base)
        if count > (end - start) // kernels.MIN_RECORD_BYTES:
            raise CorruptRecordError(f"a batch of {end - start} bytes that claims {count} records", base)
        fixed = bool(head[kernels.ATTRIBUTES] & _LOG_APPEND)
        timestamp = head[kernels.MAX_TIMESTAMP if fixed else kernels.FIRST_TIMESTAMP]
        self.segments.append((start, end, base, timestamp, int(fixed), count))
        self.before.append(before)
        self.size += end - start

    def _plain(self, codec: int, view: memoryview, start: int, end: int, base: int) -> tuple[int, int]:
        """Decompress a batch; return where it begins and ends, in the room or in memory of its own."""
        if self._room is None:
            self._room = self._response.room(len(view) - start)
        room = None if self._room is None else self._room[self._filled :]
        payload = self._response.decompress(codec, view[start:end], base, room)
        size = len(payload)
        if self._room is None:  # this is the first batch of all
            room = self._room = self._response.room(len(view) - start)
            if room is not None and size <= len(room):
                room[:size] = payload
                payload = room[:size]
        self.payloads[len(self.segments)] = np.frombuffer(payload, dtype=np.uint8)
        if room is None or payload.obj is not room.obj:
            return 0, size
        self._filled += size
        return self._filled - size, self._filled

    def read(
        self, array: npt.NDArray[np.uint8], from_position: int, position: int, leader_epoch: int
    ) -> tuple[Records, int | None]:
        """The records at or after `from_position`, and the base offset of the first broken batch."""
        segments = np.array(self.segments, dtype=np.int64)
        first = segments[0, kernels.SEGMENT_START]
        if not self.payloads:
            buffer = array[first : segments[-1, kernels.SEGMENT_END]]
            segments[:, kernels.SEGMENT_START : kernels.SEGMENT_END + 1] -= first
        elif self._room is not None and self._filled == self.size:
            buffer = read_only(np.frombuffer(self._room[: self._filled], dtype=np.uint8))
        else:
            ends = np.cumsum(segments[:, kernels.SEGMENT_END] - segments[:, kernels.SEGMENT_START])
            buffer = np.frombuffer(PAYLOADS.take(int(ends[-1])), dtype=np.uint8)
            for index, line in enumerate(segments):
                source = self.payloads.pop(index, None)
                if source is None:
                    source = array[line[kernels.SEGMENT_START] : line[kernels.SEGMENT_END]]
                line[kernels.SEGMENT_END] = ends[index]
                line[kernels.SEGMENT_START] = ends[index] - source.size
                buffer[line[kernels.SEGMENT_START] : line[kernels.SEGMENT_END]] = source
            buffer = read_only(buffer)
        n = int(np.maximum(segments[:, kernels.SEGMENT_COUNT], 0).sum())
        rows = int_rows(6, n)
        written, broken = kernels.read_records(buffer, segments, from_position, *rows)
        offsets, timestamps, key_start, key_end, value_start, value_end = rows[:, :written]
        whole = broken == len(self.segments)
        positions = self.position, position if whole else self.before[broken]
        places = (key_start, key_end, value_start, value_end, *positions)
        records = Records(offsets, timestamps, buffer, *places, leader_epoch=leader_epoch, framed=True)
        return records, None if whole else self.segments[broken][2]


def _checksum() -> Callable[[memoryview], int]:
    """CRC-32C by the C package; the pure Python one would cap everything at 10 MB/s."""
    try:
        from crc32c import crc32c
    except ImportError as error:
        raise MissingExtraError(
            "checksums of Kafka batches need the package crc32c: install sketchstream[kafka]"
        ) from error
    checksum: Callable[[memoryview], int] = crc32c
    return checksum
