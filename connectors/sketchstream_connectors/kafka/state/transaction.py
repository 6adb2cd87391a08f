"""The fencing producer of one partition, and the transactions that it writes: a snapshot with its input offset.

In: snapshots. Out: the new locations of their blobs. Touches: the state topic, the group's offsets.

A transaction holds new blobs, the manifest that names them, and the input's offset with a pointer to the manifest.
After an error its outcome is unknown: the next owner of the partition ends it and reads what was committed.
Source: docs/kafka.md, "What is exact" and "Every case" (the interleavings that this handles).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import msgpack

from sketchstream import faults
from sketchstream.errors import BrokerError, FencedError
from sketchstream.stream.interfaces import BytesOrView, Snapshot
from sketchstream_connectors.kafka.cluster.acknowledgements import STALLED_S, Acknowledgements
from sketchstream_connectors.kafka.cluster.client import (
    TRANSACTION_TIMEOUT_MS,
    Connection,
    know_partition,
    translate_errors,
)
from sketchstream_connectors.kafka.cluster.topics import former_transactional_id, transactional_id
from sketchstream_connectors.kafka.state import blobs, traces
from sketchstream_connectors.kafka.state.blobs import BlobPlace
from sketchstream_connectors.kafka.state.pointer import Pointer

if TYPE_CHECKING:
    from kafka import ConsumerGroupMetadata, KafkaProducer

    from sketchstream_connectors.kafka.publishing.sealed import Headers

MANIFEST_FORMAT = 1


class Committer(Protocol):
    """Says in whose name an offset is committed, and which leader epoch goes with it."""

    def group_metadata(self) -> ConsumerGroupMetadata | str:
        """The group for transactions; the bare name of a group whose members do not run."""

    def epoch(self, partition: int) -> int:
        """Leader epoch of the last batch read, -1 where not known."""


class Member(Committer, Protocol):
    """What is asked of the consumer: who we are in the group, and leader epochs."""

    def expect_epoch(self, partition: int, epoch: int) -> None:
        """Note the epoch that is committed with the position."""

    def mark_fenced(self, error: FencedError) -> None:
        """Note that another process has our group.instance.id."""


@dataclass
class Fence:
    """One partition that is ours: its producer, and where its live blobs are.

    Args:
        partition: partition of the input.
        topic: the input.
        state_topic: where snapshots are written.
        producer: transactional, with the partition's own id; earlier owners are fenced.
        state_id: id of the state topic that holds the live blobs.
        position: committed with the last snapshot.
        manifest: offset of that snapshot's manifest; -1: none yet.
        written: bytes of blobs that were ever written.
        places: places of the live blobs, by name.
        broken: an outcome is open: the partition must be taken again.
        broker_time: see `stream.interfaces.StateStore.broker_time`; known where the state topic has the brokers'
            timestamps.
        moving: live blobs that are in another topic yet; the next snapshot writes them here.
        moved_from: the topic that has them.
    """

    partition: int
    topic: str
    state_topic: str
    producer: KafkaProducer = field(repr=False)
    state_id: str
    position: int = -1
    manifest: int = -1
    written: int = 0
    places: dict[str, BlobPlace] = field(default_factory=dict, repr=False)
    broken: bool = False
    broker_time: tuple[int, float] | None = None
    moving: dict[str, bytes] = field(default_factory=dict, repr=False)
    moved_from: str | None = None

    @classmethod
    def open(cls, connection: Connection, topic: str, state_topic: str, state_id: str, partition: int) -> Fence:
        """Open a producer that is not yet fenced off from what a predecessor has in flight: see `take`."""
        producer = connection.producer(
            transactional_id=transactional_id(connection.group, topic, partition),
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            batch_size=2**20,
            max_request_size=4 * 2**20,
            client_id=f"sketchstream-{partition}",
        )
        return cls(partition, topic, state_topic, producer, state_id)

    def take(self) -> None:
        """End whatever a predecessor has in flight, and fence it, for ever."""
        with translate_errors(f"taking partition {self.partition}"):
            self.producer.init_transactions()

    @staticmethod
    def end_former(connection: Connection, topic: str, partition: int) -> bool:
        """Fence an owner under the id that older releases gave the partition; False if it is the same id."""
        name = former_transactional_id(connection.group, topic, partition)
        if name is None:
            return False
        producer = connection.producer(transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        try:
            with translate_errors(f"taking partition {partition} from an older release"):
                producer.init_transactions()
        finally:
            producer.close(timeout=2)
        return True

    @property
    def first(self) -> int:
        """Offset in the state topic before which nothing is needed any more."""
        return min([self.manifest, *(place.offset for place in self.places.values())])

    def begin(self, position: int, pointer: Pointer, member: Committer) -> None:
        """Commit a pointer without a snapshot, before the first record."""
        with translate_errors(f"starting partition {self.partition}"):
            self.producer.begin_transaction()
            self._finish(position, pointer, member, Acknowledgements())
        self.position = position

    def write(self, snapshot: Snapshot, again: Mapping[str, BytesOrView], about: Pointer, member: Committer) -> None:
        """Commit a snapshot.

        Args:
            snapshot: snapshot whose blobs are new, or have a place.
            again: blobs that have a place and are written once more.
            about: the pointer, but for where the snapshot is.
            member: member of the group.
        """
        acknowledged = Acknowledgements()
        places_kept = {name: self.places[name] for name in snapshot.keep - again.keys()}
        with translate_errors(f"committing a snapshot of partition {self.partition}"):
            know_partition(self.producer, self.state_topic, self.partition)
            self.producer.begin_transaction()
            faults.checkpoint("commit.begun")
            written = self.written
            sent: dict[str, tuple[Any, int, bytes, int]] = {}
            for name in (*again, *snapshot.blobs):
                key = blobs.new_key()
                length, pieces = (len(again[name]), iter((again[name],))) if name in again else snapshot.pieces(name)
                future, count, size = self._send(name.encode(), length, pieces, key, acknowledged)
                sent[name] = (future, count, key, written)
                written += size
            now = time.time_ns() // 1_000_000
            places = {
                name: BlobPlace(acknowledged.wait_for_offset(future), count, key, mark, now)
                for name, (future, count, key, mark) in sent.items()
            }
            faults.checkpoint("commit.blobs")
            fresh = {**places_kept, **places}
            manifest = {
                "v": MANIFEST_FORMAT,
                "partition": self.partition,
                "position": snapshot.position,
                "manifest": snapshot.manifest,
                "blobs": {name: list(place) for name, place in fresh.items()},
                "written": written,
            }
            pointer = self._send_manifest(msgpack.packb(manifest), about, acknowledged)
            faults.checkpoint("commit.manifest")
            self._finish(snapshot.position, pointer, member, acknowledged)
        faults.checkpoint("commit.done")
        self.position, self.manifest, self.places, self.written = snapshot.position, pointer.manifest, fresh, written

    def move(self, position: int, manifest: Mapping[str, Any], about: Pointer, member: Committer) -> None:
        """Commit the manifest of a snapshot at another position; its blobs stay where they are.

        Args:
            position: position in the input.
            manifest: manifest in the state topic, with that position.
            about: the pointer, but for where the manifest is.
            member: member of the group.
        """
        acknowledged = Acknowledgements()
        with translate_errors(f"moving the position of partition {self.partition}"):
            know_partition(self.producer, self.state_topic, self.partition)
            self.producer.begin_transaction()
            pointer = self._send_manifest(msgpack.packb(manifest), about, acknowledged)
            self._finish(position, pointer, member, acknowledged)

    def _send_manifest(self, packed: bytes, about: Pointer, acknowledged: Acknowledgements) -> Pointer:
        """Hand the manifest over, and wait for its place; return the pointer that names it."""
        snapshot_id, key = os.urandom(16), blobs.new_key()
        headers = traces.trace_headers(about.topic_id, about.revision)
        future, count, _ = self._send(
            blobs.manifest_name(snapshot_id), len(packed), (packed,), key, acknowledged, headers
        )
        offset = acknowledged.wait_for_offset(future)
        stamp = _append_time(future)
        if stamp is not None:
            self.broker_time = stamp, time.monotonic()
        return replace(about, manifest=offset, chunks=count, snapshot_id=snapshot_id, key=key)

    def _send(
        self,
        name: bytes,
        size: int,
        pieces: Iterable[BytesOrView],
        key: bytes,
        acknowledged: Acknowledgements,
        headers: Headers | None = None,
    ) -> tuple[Any, int, int]:
        """Hand a blob to the producer; return its first record's future, the number of records, their bytes."""
        first, count, written = None, 0, 0
        for record_key, value in blobs.encrypt(name, size, pieces, key):
            acknowledged.make_room(len(value))
            future = self.producer.send(
                self.state_topic, key=record_key, value=value, partition=self.partition, headers=headers
            )
            acknowledged.add(future, len(value))
            first = first or future
            count += 1
            written += len(value)
        return first, count, written

    def _finish(self, position: int, pointer: Pointer, member: Committer, acknowledged: Acknowledgements) -> None:
        """Commit the offset with its pointer, and end the transaction; wait, but not for ever."""
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        offset = OffsetAndMetadata(position, pointer.to_text(), member.epoch(self.partition))
        manager, wake = self.producer._transaction_manager, self.producer._sender.wakeup
        steps = (
            lambda: manager.send_offsets_to_transaction(
                {TopicPartition(self.topic, self.partition): offset}, member.group_metadata()
            ),
            manager.begin_commit,
        )
        for step in steps:
            if step == manager.begin_commit:
                faults.checkpoint("commit.offsets")
            result = step()
            wake()
            if not result.wait(timeout_ms=acknowledged.left_s * 1000):
                raise BrokerError(f"a transaction of partition {self.partition} made no progress for {STALLED_S:.0f} s")
            acknowledged.restart()

    def abandon(self) -> None:
        """Close the producer without waiting for what it has in flight, which the partition's next owner aborts."""
        self.broken = True
        with contextlib.suppress(Exception):
            self.producer._unregister_cleanup()
            self.producer._sender.force_close()
            self.producer._closed = True


def _append_time(future: Any) -> int | None:
    """The brokers' clock when an acknowledged record was appended; None where the producer's timestamp was kept."""
    result = getattr(getattr(future, "_produce_future", None), "value", None)
    stamp = result[1] if isinstance(result, tuple) and len(result) > 1 else None
    return stamp if isinstance(stamp, int) and stamp >= 0 else None
