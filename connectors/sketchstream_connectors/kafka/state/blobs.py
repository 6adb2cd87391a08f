"""Writes encrypted blobs as records of the state topic, and reads them by offset.

In: bytes and a random key for them. Out: records of at most 512 KiB, each authenticated together with its position in
the blob; the bytes read back. Touches: a producer that the caller owns, a consumer of its own.

Every blob has its own key (AES-256-GCM, with the chunk number as nonce). Erasing the manifest that holds the key
therefore erases the blob, even if its bytes remain on a disk for a while.
"""

from __future__ import annotations

import os
import struct
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from sketchstream import wire
from sketchstream.errors import BrokerError, DataLossError
from sketchstream.stream.interfaces import BytesOrView
from sketchstream_connectors.kafka.cluster.client import Connection, translate_errors
from sketchstream_connectors.kafka.state.pointer import Pointer

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.structs import OffsetAndMetadata

CHUNK_BYTES = 512 * 1024 - 1024
"""Bytes of a blob in one record: with key and headers, less than half of the 1 MiB that brokers accept by default."""
STALLED_S = 30.0
"""Seconds without a record after which reading a blob is given up, however much of it is still to come.

A broker gives a consumer no more at once than its quota allows for eleven seconds, and then nothing for as long."""
ASK_TIMEOUT_MS = 5_000
"""Longest wait for an offset."""
FETCH_BYTES = 8 * 2**20
"""Most that a broker sends at a time. What lies between two blobs is read and thrown away if it is less: to go to an
offset throws away what was fetched."""


class BlobPlace(NamedTuple):
    """Where a blob is and how to open it; `mark` and `at`: when it was written, in bytes and in time (ms)."""

    offset: int
    chunks: int
    key: bytes
    mark: int
    at: int


def new_key() -> bytes:
    """A key for one blob."""
    return os.urandom(32)


def manifest_name(snapshot_id: bytes) -> bytes:
    """The name of a manifest among blobs."""
    return b"m" + snapshot_id


def _associated_data(name: bytes, number: int, count: int) -> bytes:
    """The associated data of a chunk: its blob, its number, and the number of chunks."""
    return struct.pack(">HII", len(name), number, count) + name


def encrypt(name: bytes, size: int, pieces: Iterable[BytesOrView], key: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Record keys and values of a blob, in order.

    Args:
        name: name of the blob.
        size: bytes of all pieces.
        pieces: its bytes in order, in pieces of any length; each is good until the next one is asked for.
        key: encryption key of the blob.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(key)
    count = max(1, -(-size // CHUNK_BYTES))
    chunks = _chunks(pieces)
    for number in range(count):
        bound = _associated_data(name, number, count)
        yield bound, cipher.encrypt(number.to_bytes(12, "big"), next(chunks, b""), bound)


def _chunks(pieces: Iterable[BytesOrView]) -> Iterator[BytesOrView]:
    """Divide bytes into pieces of `CHUNK_BYTES`, the last one shorter."""
    chunk = bytearray()
    for piece in pieces:
        view = memoryview(piece)
        while chunk and view:
            room = CHUNK_BYTES - len(chunk)
            chunk += view[:room]
            view = view[room:]
            if len(chunk) == CHUNK_BYTES:
                yield bytes(chunk)
                chunk[:] = bytes(len(chunk))
                chunk.clear()
        whole = len(view) - len(view) % CHUNK_BYTES
        for at in range(0, whole, CHUNK_BYTES):
            yield view[at : at + CHUNK_BYTES]
        chunk += view[whole:]
    if chunk:
        yield bytes(chunk)


class Decryption:
    """A blob that is put together from its records, in memory of its own that a sketch can take over.

    Args:
        name: name of the blob.
        count: number of its records.
        key: encryption key of the blob.
    """

    def __init__(self, name: bytes, count: int, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._name, self._count, self._cipher = name, count, AESGCM(key)
        self._room = memoryview(bytearray())
        self._size = 0
        self.records = 0
        """Records that were added."""

    def add(self, value: bytes) -> None:
        """The next record's value.

        Raises:
            DataLossError: it is not what was written.
        """
        from cryptography.exceptions import InvalidTag

        number = self.records
        try:
            plain = self._cipher.decrypt(
                number.to_bytes(12, "big"), value, _associated_data(self._name, number, self._count)
            )
        except InvalidTag:
            raise DataLossError(
                "a snapshot in the state topic does not open with the key of its pointer: it was altered or replaced"
            ) from None
        if number == 0:
            size = len(plain) if self._count == 1 else self._count * CHUNK_BYTES
            self._room = wire.aligned_memory(size, plain)
        self._room[self._size : self._size + len(plain)] = plain
        self._size += len(plain)
        self.records += 1

    def blob(self) -> memoryview:
        """All of it, once every record was added."""
        return self._room[: self._size]


class BlobReader:
    """Reads committed offsets and blobs; one caller at a time. After any error it must be closed, not used again.

    Args:
        connection: connection to the cluster; its group's offsets are read.
        input_topic: topic whose offsets.
        state_topic: where the blobs are.
    """

    def __init__(self, connection: Connection, input_topic: str, state_topic: str) -> None:
        self._input_topic = input_topic
        self._state_topic = state_topic
        self._consumer: KafkaConsumer = connection.consumer(
            group_id=connection.group,
            group_instance_id=None,
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_wait_ms=100,
            metrics_enabled=False,
        )

    def committed(self, partition: int) -> OffsetAndMetadata | None:
        """The group's committed offset with its metadata, after pending transactions have ended (KIP-447)."""
        from kafka import TopicPartition

        tp = TopicPartition(self._input_topic, partition)
        with translate_errors("reading the committed offset"):
            return self._consumer.committed(tp, metadata=True, timeout_ms=ASK_TIMEOUT_MS)

    def manifest(self, partition: int, pointer: Pointer) -> dict[str, Any]:
        """The manifest that a pointer names; raises what `read_all` raises."""
        name = manifest_name(pointer.snapshot_id)
        place = BlobPlace(pointer.manifest, pointer.chunks, pointer.key, 0, 0)
        manifest: dict[str, Any] = msgpack.unpackb(self.read_all(partition, {name: place})[name], strict_map_key=False)
        return manifest

    def read_all(self, partition: int, places: Mapping[bytes, BlobPlace]) -> dict[bytes, memoryview]:
        """Blobs by name, in one pass over the partition: thousands of windows are as many blobs.

        Raises:
            DataLossError: one of them no longer exists, or is not what was written.
            BrokerError: the broker did not answer in time.
        """
        from kafka import TopicPartition

        tp = TopicPartition(self._state_topic, partition)
        fetched: deque[Any] = deque()
        blobs = {}
        with translate_errors("reading a snapshot"):
            if self._consumer.assignment() != {tp}:
                self._consumer.assign([tp])
            at, record_bytes = -1, FETCH_BYTES
            for name, place in sorted(places.items(), key=lambda pair: pair[1].offset):
                if at < 0 or (place.offset - at) * record_bytes > FETCH_BYTES:
                    fetched.clear()
                    self._consumer.seek(tp, place.offset)
                blobs[name] = self._next(tp, fetched, name, place)
                at = place.offset + place.chunks
                record_bytes = len(fetched[0].value) if fetched else record_bytes
        return blobs

    def _next(self, tp: TopicPartition, fetched: deque[Any], name: bytes, place: BlobPlace) -> memoryview:
        """One blob that lies further on in a partition.

        Args:
            tp: the partition.
            fetched: records that were fetched and not used yet; what lies before the blob is thrown away.
            name: name of the blob.
            place: where the blob lies.
        """
        from kafka.errors import OffsetOutOfRangeError

        gone = DataLossError(
            f"the snapshot that the committed offset of partition {tp.partition} names is gone from "
            f"{self._state_topic!r}; `sketchstream recover` says what can be done, `sketchstream reset` starts a new "
            "revision"
        )
        decryption = Decryption(name, place.chunks, place.key)
        deadline = time.monotonic() + STALLED_S
        while decryption.records < place.chunks:
            if not fetched:
                try:
                    fetched.extend(self._consumer.poll(timeout_ms=500).get(tp, ()))
                except OffsetOutOfRangeError:
                    raise gone from None
            if not fetched and time.monotonic() > deadline:
                end = self._consumer.end_offsets([tp], timeout_ms=ASK_TIMEOUT_MS)[tp]
                if end <= place.offset or self._consumer.position(tp) >= end:
                    raise gone
                raise BrokerError(
                    f"the state topic {self._state_topic!r} gave nothing of a snapshot for {STALLED_S:.0f} s"
                )
            while fetched and decryption.records < place.chunks:
                record = fetched.popleft()
                if record.offset < place.offset:
                    continue
                if not decryption.records and record.offset != place.offset:
                    raise gone
                if record.key == _associated_data(name, decryption.records, place.chunks):
                    decryption.add(record.value)
                    deadline = time.monotonic() + STALLED_S
                elif not decryption.records:
                    raise gone
        return decryption.blob()

    def close(self) -> None:
        """Close."""
        self._consumer.close(autocommit=False, timeout_ms=1000)
