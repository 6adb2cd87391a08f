"""Snapshots in an internal topic, one transaction with the offset that they belong to; a producer per partition fences.

In: snapshots. Out: what `sketchstream.stream.ports.StateStore` says. Touches: the state topic, the group's offsets, one
transactional producer for each partition taken, a thread that erases superseded snapshots.

Taking a partition is `init_transactions()` with the partition's own transactional id: it ends whatever a predecessor
had in flight and fences it, for ever. Then the committed offset and its pointer are the truth. A snapshot is one
transaction: new blobs, manifest, offset with pointer. Offset, state and outbox move together or not at all, and a
state is valid exactly as long as the producer that took it.
Source: design.md section 7; notes/kafka_faults.md 1, 2, 4, 6, 11 (interleavings that this answers).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgpack

from sketchstream import faults
from sketchstream.errors import BrokerError, ConfigError, DataLossError, FencedError, SketchstreamError
from sketchstream.stream.ports import Fresh, Restored, Snapshot
from sketchstream_connectors import kafka_blobs as blobs
from sketchstream_connectors import kafka_traces as traces
from sketchstream_connectors.kafka_client import TRANSACTION_TIMEOUT_MS, Admin, Connection, Topic, ours
from sketchstream_connectors.kafka_pointer import Pointer

if TYPE_CHECKING:
    from kafka import ConsumerGroupMetadata, KafkaProducer

    from sketchstream_connectors.kafka_sealed import Headers

log = logging.getLogger("sketchstream.kafka")

LAG_BYTES = 64 * 2**20
LAG_S = 600.0
COMMIT_TIMEOUT_S = 20.0
TOPIC_CHECK_S = 5.0
ERASE_EVERY_S = 1.0
IDLE_READERS = 2
GROW_TIMEOUT_S = 5.0
MANIFEST_FORMAT = 1
ADVICE = "`sketchstream recover` says what can be done, `sketchstream reset` starts a new revision"


class Member(Protocol):
    """What the store asks of the consumer: who we are in the group, and leader epochs."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        """For transactions."""

    def epoch(self, partition: int) -> int:
        """Leader epoch of the last batch read, -1 where not known."""

    def expect_epoch(self, partition: int, epoch: int) -> None:
        """The epoch committed with the position."""

    def condemn(self, error: FencedError) -> None:
        """Another process has our group.instance.id."""


def state_topic(group: str, topic: str) -> str:
    """Name of the internal topic."""
    return f"{group}.{topic}.state"


def transactional_id(group: str, topic: str, partition: int) -> str:
    """The fence of one partition."""
    return f"{group}-{topic}-{partition}"


class _Place(NamedTuple):
    """Where a blob is and how to open it; `mark` and `at` say when it was written, in bytes and in time (ms)."""

    offset: int
    chunks: int
    key: bytes
    mark: int
    at: int


@dataclass
class _Fence:
    """One partition that is ours: its producer, and where its live blobs are."""

    producer: KafkaProducer
    position: int = -1
    manifest: int = -1
    written: int = 0
    places: dict[str, _Place] = field(default_factory=dict)
    broken: bool = False


class KafkaStore:
    """See `ports.StateStore`; `take` and `commit` may be called from any thread, one at a time for a partition.

    Args:
        connection: of the cluster; its `group.id` names topics and fences.
        topic: the input topic.
        member: the source of the same worker.
        sealed_topic: where sealed sketches go: records in it are traces of an earlier life of a partition.
        accept_loss: an input that was made again is begun anew, as a new revision; a position beyond the end of the
            log is left to the source.
        largest_blob_lag: bytes after which a clean blob is written again, so that what lies before it can be erased.

    Raises:
        ConfigError: a topic is missing, or has settings under which state would be lost.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        member: Member,
        *,
        sealed_topic: str | None = None,
        accept_loss: bool = False,
        lag_bytes: int = LAG_BYTES,
        lag_s: float = LAG_S,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._member = member
        self._sealed_topic = sealed_topic
        self._accept_loss = accept_loss
        self._state_topic = state_topic(connection.group, topic)
        self._lag = (lag_bytes, lag_s)
        # The broker begins a new segment with the first append after `segment.ms`, and deletes whole segments only:
        # what a silent partition superseded leaves the disk when its snapshot is written again behind it.
        self.rewrite_after_s: float | None = lag_s + 5.0
        self._admin = Admin(connection, patience_ms=10_000)
        self._fences: dict[int, _Fence] = {}
        self._readers: list[blobs.Reader] = []
        self._lock = threading.Lock()
        self._input = self._existing(topic)
        self._state = self._existing(self._state_topic)
        self._check_settings()
        self._eraser = _Eraser(connection, self._state_topic)

    # ---------------------------------------------------------------------------------------------- topics

    def _existing(self, name: str) -> Topic:
        found = self._admin.topic(name)
        if found is None:
            msg = f"topic {name!r} does not exist; `sketchstream topics create -c FILE` makes the topics that are ours"
            raise ConfigError(msg)
        return found

    def _check_settings(self) -> None:
        """A state topic that forgets would lose the state of a partition that is silent for a while."""
        configs = self._admin.configs(self._state_topic)
        wanted = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        wrong = [f"{k} is {configs.get(k)}, must be {v}" for k, v in wanted.items() if configs.get(k) != v]
        if wrong:
            msg = f"the state topic {self._state_topic!r} would lose snapshots: {'; '.join(wrong)}"
            raise ConfigError(msg)

    def _check_input(self) -> Topic:
        """The input topic is the one we know; its id changes when it is deleted and made again."""
        found = self._admin.topic(self._topic, max_age_s=TOPIC_CHECK_S)
        if found is None or found.topic_id != self._input.topic_id:
            what = "was deleted" if found is None else "was deleted and made again (its topic id changed)"
            if self._accept_loss:
                msg = f"the input topic {self._topic!r} {what}: its partitions are begun anew"
                raise BrokerError(msg)
            msg = f"the input topic {self._topic!r} {what}; {ADVICE}"
            raise DataLossError(msg)
        return found

    def _adopt_input(self) -> None:
        """Where that is accepted, the topic of that name that is there now is the input, whatever was before."""
        if not self._accept_loss:
            return
        found = self._admin.topic(self._topic)
        if found is None:
            msg = f"the input topic {self._topic!r} was deleted: waiting for it to be made again"
            raise BrokerError(msg)
        self._input = found

    def _check_room(self, partition: int) -> None:
        """State and sealed topics have the partition; they are grown when the input was."""
        for name in (self._state_topic, self._sealed_topic):
            found = self._admin.topic(name, max_age_s=TOPIC_CHECK_S) if name else None
            if name is not None and (found is None or found.partitions <= partition):
                self._grow(name, partition)

    def _grow(self, name: str, partition: int) -> None:
        """As many partitions as the input has now; several workers may do this at once."""
        given = self._admin.topic(self._topic)
        cause: BrokerError | None = None
        try:
            if given is not None:
                self._admin.grow(name, given.partitions)
                log.info("event=topic_grown topic=%s partitions=%d", name, given.partitions)
        except BrokerError as error:  # not allowed, or another worker was first
            cause = error
        deadline = time.monotonic() + GROW_TIMEOUT_S
        while time.monotonic() < deadline:
            found = self._admin.topic(name)
            if found is not None and found.partitions > partition and found.leaders.get(partition, -1) >= 0:
                return
            time.sleep(0.1)
        msg = (
            f"topic {name!r} has no partition {partition} and could not be given one; run "
            "`sketchstream topics create -c FILE`"
        )
        raise DataLossError(msg) from cause

    # ---------------------------------------------------------------------------------------------- the port

    def take(self, partition: int) -> Restored | Fresh:
        """See `ports.StateStore.take`."""
        started = time.monotonic()
        self.drop(partition)
        self._adopt_input()
        self._check_room(partition)
        name = transactional_id(self._connection.group, self._topic, partition)
        producer = self._connection.producer(
            transactional_id=name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            batch_size=2**20,
            max_request_size=4 * 2**20,
            metrics_enabled=False,
            client_id=f"sketchstream-{partition}",
        )
        fence = _Fence(producer)
        try:
            with ours(f"taking partition {partition}"):
                producer.init_transactions()
            faults.reach("take.fenced")
            found = self._restore(partition, fence)
        except BaseException:
            _abandon(producer)
            raise
        with self._lock:
            self._fences[partition] = fence
        log.info("event=partition_taken partition=%d seconds=%.3f", partition, time.monotonic() - started)
        return found

    def _restore(self, partition: int, fence: _Fence) -> Restored | Fresh:
        """What is committed, checked against the cluster and the topics it was written for."""
        with self._reader() as reader:
            committed = reader.committed(partition)
            if committed is None:
                return self._first(partition, fence)
            pointer = Pointer.from_text(committed.metadata or "")
            if pointer is None:
                msg = (
                    f"the committed offset of partition {partition} of {self._topic!r} was not written by sketchstream "
                    f"(another client of this group, or a reset by another tool); {ADVICE}"
                )
                raise DataLossError(msg)
            if self._accept_loss and pointer.topic_id != self._input.topic_id:
                return self._begin_anew(partition, fence, pointer.revision)
            self._check_pointer(partition, pointer, committed.offset)
            if committed.leader_epoch is not None:
                self._member.expect_epoch(partition, committed.leader_epoch)
            fence.position = committed.offset
            if pointer.manifest < 0:
                return Fresh(pointer.revision, committed.offset, pointer.partial)
            return self._load(partition, fence, pointer, reader)

    def _load(self, partition: int, fence: _Fence, pointer: Pointer, reader: blobs.Reader) -> Restored:
        """Manifest and blobs."""
        packed = reader.read(partition, b"m" + pointer.snapshot_id, pointer.manifest, pointer.chunks, pointer.key)
        said = msgpack.unpackb(packed, strict_map_key=False)
        if said["v"] != MANIFEST_FORMAT:
            msg = f"a snapshot in format {said['v']} was written by another release; this one knows {MANIFEST_FORMAT}"
            raise DataLossError(msg)
        if said["partition"] != partition or said["position"] != fence.position:
            msg = f"the snapshot of partition {partition} belongs to another position or partition; {ADVICE}"
            raise DataLossError(msg)
        fence.places = {name: _Place(*place) for name, place in said["blobs"].items()}
        fence.manifest, fence.written = pointer.manifest, said["written"]
        found = {
            name: reader.read(partition, name.encode(), place.offset, place.chunks, place.key)
            for name, place in sorted(fence.places.items(), key=lambda pair: pair[1].offset)
        }
        return Restored(fence.position, said["manifest"], found)

    def _check_pointer(self, partition: int, pointer: Pointer, position: int) -> None:
        """Another cluster, another topic of the same name, a position that is not in its log."""
        if pointer.cluster_id != self._admin.cluster_id():
            what = "was written in another cluster (mirrored offsets point nowhere)"
        elif pointer.topic_id != self._input.topic_id:
            what = "belongs to an earlier topic of the same name"
        elif pointer.state_id != self._state.topic_id and pointer.manifest >= 0:
            what = "names a snapshot in a state topic that was deleted and made again"
        else:
            ends = self._admin.offsets(self._topic, [partition], "latest")
            if self._accept_loss or ends.get(partition, position) >= position:
                return
            what = "lies beyond the end of the log (truncated or restored from an older copy)"
        msg = f"the committed offset of partition {partition} of {self._topic!r} {what}; {ADVICE}"
        raise DataLossError(msg)

    def _first(self, partition: int, fence: _Fence) -> Fresh:
        """No offset: only a partition without any trace may start; its pointer is committed before its first record."""
        for name, what in ((self._state_topic, "snapshots"), (self._sealed_topic, "sealed sketches")):
            if name is None:
                continue
            ends = self._admin.offsets(name, [partition], "latest")
            if partition not in ends:
                msg = f"no leader answers for partition {partition} of {name!r}"
                raise BrokerError(msg)
            if ends[partition] > 0:
                if self._accept_loss:
                    trace = traces.newest_trace(self._connection, self._state_topic, partition)
                    if trace is not None and trace.topic_id != self._input.topic_id:
                        return self._begin_anew(partition, fence, trace.revision)
                msg = (
                    f"partition {partition} of {self._topic!r} has no committed offset, but {name!r} holds {what} of "
                    f"it: the group's offsets expired or were deleted; {ADVICE}"
                )
                raise DataLossError(msg)
        revision = traces.revision_of(self._connection, self._topic, self._input.topic_id)
        return self._begin(partition, fence, revision or 0, partial=False)

    def _begin_anew(self, partition: int, fence: _Fence, used: int) -> Fresh:
        """The input is another topic than the one that was counted: a new revision, and the old state is erased.

        Its records may be those of the old topic again, so nothing of them may go into a sketch that has those.
        """
        revision = traces.next_revision(self._connection, self._topic, self._input.topic_id, self._sealed_topic, used)
        self._member.expect_epoch(partition, -1)
        log.warning("event=input_made_again topic=%s partition=%d revision=%d", self._topic, partition, revision)
        return self._begin(partition, fence, revision, partial=True)

    def _begin(self, partition: int, fence: _Fence, revision: int, *, partial: bool) -> Fresh:
        """Commit a pointer without a snapshot at the beginning of the log."""
        begins = self._admin.offsets(self._topic, [partition], "earliest")
        if partition not in begins:
            msg = f"no leader answers for partition {partition} of {self._topic!r}"
            raise BrokerError(msg)
        ids = self._admin.cluster_id(), self._input.topic_id, self._state.topic_id
        with ours(f"starting partition {partition}"):
            fence.producer.begin_transaction()
            deadline = time.monotonic() + COMMIT_TIMEOUT_S
            self._finish(partition, fence, begins[partition], Pointer(*ids, revision, partial=partial), deadline)
        fence.position = begins[partition]
        return Fresh(revision, fence.position, partial)

    def commit(self, partition: int, snapshot: Snapshot) -> None:
        """See `ports.StateStore.commit`."""
        with self._lock:
            fence = self._fences.get(partition)
        if fence is None or fence.broken:
            msg = f"partition {partition} is not ours any more: take it again"
            raise FencedError(msg)
        if snapshot.position < fence.position and not snapshot.rewound:
            fence.broken = True
            msg = f"a snapshot of partition {partition} would move its position back"
            raise DataLossError(msg)
        fence.broken = True
        self._check_input()
        try:
            self._write(partition, fence, snapshot)
        except FencedError as error:
            if getattr(error, "whole_worker", False):
                self._member.condemn(error)
            raise
        fence.broken = False
        first = min([fence.manifest, *(place.offset for place in fence.places.values())])
        self._eraser.erase(partition, first)

    def _write(self, partition: int, fence: _Fence, snapshot: Snapshot) -> None:
        """The transaction. Any error leaves the outcome open: whoever takes the partition next reads the truth."""
        deadline = time.monotonic() + COMMIT_TIMEOUT_S
        missing = snapshot.keep - fence.places.keys()
        if missing:
            msg = f"a snapshot of partition {partition} keeps {len(missing)} blobs that no earlier one brought"
            raise DataLossError(msg)
        again = self._lagging(partition, fence, snapshot)
        kept = {name: fence.places[name] for name in snapshot.keep - again.keys()}
        with ours(f"committing a snapshot of partition {partition}"):
            fence.producer.begin_transaction()
            faults.reach("commit.begun")
            written = fence.written
            sent: dict[str, tuple[Any, int, bytes, int]] = {}
            for name, data in {**again, **snapshot.blobs}.items():
                key = blobs.new_key()
                future, count, size = self._send(partition, fence, name.encode(), data, key)
                sent[name] = (future, count, key, written)
                written += size
            now = time.time_ns() // 1_000_000
            places = {
                name: _Place(_offset(future, deadline), count, key, mark, now)
                for name, (future, count, key, mark) in sent.items()
            }
            faults.reach("commit.blobs")
            fresh = {**kept, **places}
            manifest = {
                "v": MANIFEST_FORMAT,
                "partition": partition,
                "position": snapshot.position,
                "manifest": snapshot.manifest,
                "blobs": {name: list(place) for name, place in fresh.items()},
                "written": written,
            }
            snapshot_id, key = os.urandom(16), blobs.new_key()
            packed: bytes = msgpack.packb(manifest)
            headers = traces.trace_headers(self._input.topic_id, snapshot.revision)
            future, count, _ = self._send(partition, fence, b"m" + snapshot_id, packed, key, headers)
            pointer = Pointer(
                self._admin.cluster_id(),
                self._input.topic_id,
                self._state.topic_id,
                snapshot.revision,
                snapshot.spec_fingerprint,
                _offset(future, deadline),
                count,
                snapshot_id,
                key,
            )
            faults.reach("commit.manifest")
            self._finish(partition, fence, snapshot.position, pointer, deadline)
        faults.reach("commit.done")
        fence.position, fence.manifest, fence.places, fence.written = (
            snapshot.position,
            pointer.manifest,
            fresh,
            written,
        )

    def _send(
        self, partition: int, fence: _Fence, name: bytes, data: bytes, key: bytes, headers: Headers | None = None
    ) -> tuple[Any, int, int]:
        """Hand a blob to the producer: the future of its first record, the number of records, their bytes."""
        first, count, size = None, 0, 0
        for record_key, value in blobs.encrypt(name, data, key):
            future = fence.producer.send(
                self._state_topic, key=record_key, value=value, partition=partition, headers=headers
            )
            first = first or future
            count += 1
            size += len(value)
        return first, count, size

    def _finish(self, partition: int, fence: _Fence, position: int, pointer: Pointer, deadline: float) -> None:
        """The offset with its pointer, and the end of the transaction; waits, but not for ever."""
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        offset = OffsetAndMetadata(position, pointer.to_text(), self._member.epoch(partition))
        manager, wake = fence.producer._transaction_manager, fence.producer._sender.wakeup
        steps = (
            lambda: manager.send_offsets_to_transaction(
                {TopicPartition(self._topic, partition): offset}, self._member.group_metadata()
            ),
            manager.begin_commit,
        )
        for step in steps:
            if step == manager.begin_commit:
                faults.reach("commit.offsets")
            result = step()
            wake()
            if not result.wait(timeout_ms=max(1.0, (deadline - time.monotonic()) * 1000)):
                msg = f"a transaction of partition {partition} did not end within {COMMIT_TIMEOUT_S:.0f} s"
                raise BrokerError(msg)

    def _lagging(self, partition: int, fence: _Fence, snapshot: Snapshot) -> dict[str, bytes]:
        """Clean blobs so old that they keep superseded snapshots from being erased, to be written again."""
        lag_bytes, lag_s = self._lag
        oldest = time.time_ns() // 1_000_000 - int(lag_s * 1000)
        old = [
            name
            for name in snapshot.keep
            if fence.written - fence.places[name].mark > lag_bytes or fence.places[name].at < oldest
        ]
        if not old:
            return {}
        with self._reader() as reader:
            return {
                name: reader.read(partition, name.encode(), place.offset, place.chunks, place.key)
                for name, place in ((name, fence.places[name]) for name in sorted(old))
            }

    @contextlib.contextmanager
    def _reader(self) -> Iterator[blobs.Reader]:
        """A reader, from a few that are kept open; one that failed is thrown away (its answers may be stale)."""
        with self._lock:
            reader = self._readers.pop() if self._readers else None
        reader = reader or blobs.Reader(self._connection, self._topic, self._state_topic)
        try:
            yield reader
        except BaseException:
            with contextlib.suppress(Exception):
                reader.close()
            raise
        with self._lock:
            keep = len(self._readers) < IDLE_READERS
            if keep:
                self._readers.append(reader)
        if not keep:
            reader.close()

    def drop(self, partition: int) -> None:
        """Forget a partition. A transaction in flight is ended by whoever takes it next."""
        with self._lock:
            fence = self._fences.pop(partition, None)
        if fence is not None:
            fence.broken = True
            _abandon(fence.producer)

    def close(self) -> None:
        """Drop all."""
        senders = [fence.producer._sender for fence in self._fences.values()]
        for partition in list(self._fences):
            self.drop(partition)
        self._eraser.close()
        for sender in senders:
            sender.join(1.0)
        with self._lock:
            readers, self._readers = self._readers, []
        for reader in readers:
            with contextlib.suppress(Exception):
                reader.close()
        self._admin.close()


def _offset(future: Any, deadline: float) -> int:
    """Offset of a record once it is acknowledged."""
    return int(future.get(timeout=max(0.001, deadline - time.monotonic())).offset)


def _abandon(producer: KafkaProducer) -> None:
    """Close a producer without waiting for what it has in flight."""
    with contextlib.suppress(Exception):
        producer._unregister_cleanup()
        producer._sender.force_close()
        producer._closed = True


class _Eraser:
    """A thread that cuts superseded snapshots off the state topic (DeleteRecords); late is better than wrong."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._admin = Admin(connection, patience_ms=10_000)
        self._topic = topic
        self._wanted: dict[int, int] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sketchstream-kafka-eraser", daemon=True)
        self._thread.start()

    def erase(self, partition: int, before: int) -> None:
        """Everything of this partition before that offset is superseded."""
        with self._lock:
            self._wanted[partition] = max(before, self._wanted.get(partition, 0))

    def _run(self) -> None:
        done: dict[int, int] = {}
        while not self._stopped.wait(ERASE_EVERY_S):
            self._round(done)
        self._round(done)

    def _round(self, done: dict[int, int]) -> None:
        with self._lock:
            due = {p: o for p, o in self._wanted.items() if o > done.get(p, 0)}
        if not due:
            return
        try:
            self._admin.delete_before(self._topic, due)
            done.update(due)
        except SketchstreamError as error:
            log.warning("event=erase_delayed topic=%s error=%s", self._topic, type(error.__cause__ or error).__name__)

    def close(self) -> None:
        """One last round, and the end."""
        self._stopped.set()
        self._thread.join(timeout=15)
        self._admin.close()
