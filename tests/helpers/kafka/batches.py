"""Kafka record batches of every shape, written byte by byte; and logs of them, as strategies.

In: what a batch is to hold. Out: bytes, with the aborted transactions that a broker would list. Touches: nothing.
Source: Apache Kafka protocol guide, "Messages: record batch".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from crc32c import crc32c
from hypothesis import strategies as st
from kafka import codec as codecs
from kafka.record.memory_records import MemoryRecordsBuilder

HEAD = 61
ENCODERS = (
    bytes,
    codecs.gzip_encode,
    codecs.snappy_encode,
    codecs.lz4_encode,
    codecs.zstd_encode,
)
LOG_APPEND, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20


def varint(number: int) -> bytes:
    """Zigzag varint."""
    raw = (number << 1) ^ (number >> 63)
    raw &= (1 << 64) - 1
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)
    return bytes(out)


@dataclass(frozen=True)
class Record:
    """One record of a batch."""

    offset_delta: int
    time_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def encode(self) -> bytes:
        """Wire bytes, length included."""
        body = b"\x00" + varint(self.time_delta) + varint(self.offset_delta)
        for part in (self.key, self.value):
            body += varint(-1) if part is None else varint(len(part)) + part
        body += varint(len(self.headers))
        for name, value in self.headers:
            body += varint(len(name.encode())) + name.encode()
            body += varint(-1) if value is None else varint(len(value)) + value
        return varint(len(body)) + body


def assemble(
    payload: bytes,
    *,
    base: int = 0,
    last_delta: int = 0,
    count: int = 0,
    codec: int = 0,
    attributes: int = 0,
    first_time: int = 1_000,
    max_time: int = 2_000,
    producer: int = -1,
    epoch: int = 7,
) -> bytes:
    """A batch around the bytes of its records (compressed already), with its checksum."""
    rest = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        last_delta,
        first_time,
        max_time,
        producer,
        0 if producer >= 0 else -1,
        0 if producer >= 0 else -1,
        count,
    )
    rest += payload
    return struct.pack(">qiibI", base, len(rest) + 9, epoch, 2, crc32c(rest)) + rest


@dataclass(frozen=True)
class Batch:
    """A batch of format v2 as a strategy draws it; offsets are counted from its base."""

    records: tuple[Record, ...]
    last_delta: int
    codec: int = 0
    attributes: int = 0
    producer: int = -1
    first_time: int = 1_000
    max_time: int = 5_000

    def encode(self, base: int) -> bytes:
        """Wire bytes at a base offset."""
        payload = ENCODERS[self.codec](b"".join(record.encode() for record in self.records))
        return assemble(
            payload,
            base=base,
            last_delta=self.last_delta,
            count=len(self.records),
            codec=self.codec,
            attributes=self.attributes,
            first_time=self.first_time,
            max_time=self.max_time,
            producer=self.producer,
            epoch=base % 5,
        )


def marker(producer: int, commit: bool) -> Batch:
    """The control batch that ends a transaction."""
    record = Record(0, 0, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0))
    return Batch((record,), 0, attributes=TRANSACTIONAL | CONTROL, producer=producer)


def old_message_set(base: int, magic: int, codec: int, values: Sequence[tuple[bytes | None, bytes | None]]) -> bytes:
    """Messages of format v0 or v1 from the client's own builder."""
    builder = MemoryRecordsBuilder(magic, codec, 1 << 20, offset=base)
    for index, (key, value) in enumerate(values):
        builder.append(1_000 + index, key, value)
    builder.close()
    return bytes(builder.buffer())


@dataclass(frozen=True)
class Aborted:
    """An aborted transaction as a fetch response lists it."""

    producer_id: int
    first_offset: int


@dataclass
class Log:
    """A partition: batches with their bases, the aborted transactions, and the position after the last batch."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(base, next, bytes)"""
    aborted: list[Aborted] = field(default_factory=list)
    end: int = 0

    @property
    def data(self) -> bytes:
        """All bytes."""
        return b"".join(batch for _, _, batch in self.batches)

    def add(self, batch: Batch) -> None:
        """Append a batch of format v2."""
        last = self.end + batch.last_delta
        self.batches.append((self.end, last + 1, batch.encode(self.end)))
        self.end = last + 1

    def fetch(self, position: int, max_bytes: int) -> bytes:
        """What a broker answers: from the batch that holds the position on, the first one whole, then up to a limit."""
        found = [batch for _, following, batch in self.batches if following > position]
        if not found:
            return b""
        return b"".join(found)[: max(max_bytes, len(found[0]))]


texts = st.one_of(st.none(), st.binary(max_size=12), st.sampled_from([b"", b"x" * 200]))
headers = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=5))), max_size=2)


@st.composite
def data_batches(draw: st.DrawFn, producer: int = -1, transactional: bool = False) -> Batch:
    """Batches with gaps (compaction), empty ones, negative time deltas, log-append times and every codec."""
    gaps = draw(st.lists(st.integers(0, 3), max_size=6))
    records, offset = [], draw(st.integers(0, 2))
    for gap in gaps:
        offset += gap
        records.append(Record(offset, draw(st.integers(-500, 500)), draw(texts), draw(texts), tuple(draw(headers))))
        offset += 1
    return Batch(
        tuple(records),
        last_delta=max(offset - 1, 0) + draw(st.integers(0, 2)),
        codec=draw(st.integers(0, 4)) if records else 0,
        attributes=(LOG_APPEND if draw(st.booleans()) else 0) | (TRANSACTIONAL if transactional else 0),
        producer=producer,
        first_time=draw(st.sampled_from([1_000, 1_700_000_000_000, -1])),
    )


@st.composite
def logs(draw: st.DrawFn, old_formats: bool = True) -> Log:
    """Logs with plain and idempotent batches, interleaved transactions, markers, gaps between batches, old formats."""
    log = Log(end=draw(st.sampled_from([0, 5, 1 << 40])))
    open_since: dict[int, int] = {}
    if old_formats and draw(st.integers(0, 9)) == 0:
        base = log.end
        values = draw(st.lists(st.tuples(texts, texts), min_size=1, max_size=3))
        data = old_message_set(base, draw(st.integers(0, 1)), draw(st.sampled_from([0, 0, 1])), values)
        log.batches.append((base, base + len(values), data))
        log.end = base + len(values)
    for _ in range(draw(st.integers(0, 8))):
        log.end += draw(st.sampled_from([0, 0, 0, 4]))
        kind = draw(st.sampled_from(["plain", "idempotent", "transaction", "transaction", "end", "end"]))
        producer = draw(st.integers(1, 3))
        if kind == "plain":
            log.add(draw(data_batches()))
        elif kind == "idempotent":
            log.add(draw(data_batches(producer=9)))
        elif kind == "transaction":
            open_since.setdefault(producer, log.end)
            log.add(draw(data_batches(producer=producer, transactional=True)))
        else:
            commit = draw(st.booleans())
            if producer in open_since:
                first = open_since.pop(producer)
                if not commit:
                    log.aborted.append(Aborted(producer, first))
            log.add(marker(producer, commit))
    return log
