"""Stores snapshots in an internal topic, in one transaction with their input offset; one fencing producer a partition.

In: snapshots. Out: what `sketchstream.stream.interfaces.StateStore` requires. Touches: the state topic, the offsets,
one transactional producer for each partition taken, a thread that erases superseded snapshots.

Taking a partition calls `init_transactions()` with the partition's own transactional id. This ends any transaction of a
previous owner and fences that owner permanently. From then on the committed offset and its pointer are authoritative. A
snapshot is one transaction: new blobs, manifest, and offset with pointer. Offset, state and outbox therefore change
together or not at all, and a state is valid exactly as long as the producer that took it.
Source: docs/kafka.md, "What is exact" and "Every case" (the interleavings that this handles).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence

from sketchstream import faults
from sketchstream.errors import BrokerError, DataLossError, FencedError, SnapshotsGoneError
from sketchstream.log_events import EventLog
from sketchstream.stream.interfaces import BytesOrView, Fresh, Peer, Restored, Snapshot
from sketchstream_connectors.kafka.cluster.client import Admin, Connection
from sketchstream_connectors.kafka.cluster.reader_pool import ReaderPool
from sketchstream_connectors.kafka.cluster.topics import state_topics
from sketchstream_connectors.kafka.input.positions import UNKNOWN
from sketchstream_connectors.kafka.state import blobs, traces
from sketchstream_connectors.kafka.state.blobs import BlobPlace
from sketchstream_connectors.kafka.state.group_validation import require_newest_revision
from sketchstream_connectors.kafka.state.log_trimmer import Eraser
from sketchstream_connectors.kafka.state.pointer import NAMING, Pointer
from sketchstream_connectors.kafka.state.topic_validation import ADVICE, StoreTopics
from sketchstream_connectors.kafka.state.transaction import MANIFEST_FORMAT, Fence, Member

event_log = EventLog("sketchstream.kafka")

LAG_BYTES = 64 * 2**20
"""Default of `lag_bytes` of `KafkaStore`."""
LAG_S = 600.0
"""Default of `lag_s` of `KafkaStore`."""
SUPERSEDED_S = 360.0
"""How long a broker may keep what was erased: it looks for segments to delete every five minutes by default
(`log.retention.check.interval.ms`), and removes their files a little later."""
IDLE_READERS = 2
"""Readers that stay connected while they have nothing to read."""


class KafkaStore:
    """See `stream.interfaces.StateStore`; any thread may call `take` and `commit`, one at a time for a partition.

    Args:
        connection: connection to the cluster; its `group.id` names topics and fences.
        topic: the input topic.
        member: the source of the same worker.
        sealed_topic: where sealed sketches go: records in it are traces of an earlier life of a partition.
        accept_loss: an input that was made again is begun anew, as a new revision; a position beyond the end of the
            log is left to the source.
        revision: revision of other topics of the same input: a partition begins with it, or halts if it has an older
            one.
        lag_bytes: written since, after which a clean blob is written again, so that what lies before it can be erased.
        lag_s: seconds, likewise.

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
        revision: int | None = None,
        lag_bytes: int = LAG_BYTES,
        lag_s: float = LAG_S,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._member = member
        self._accept_loss = accept_loss
        self._other_revision = revision
        self._lag = (lag_bytes, lag_s)
        # The broker begins a new segment with the first append after `segment.ms`, and deletes whole segments only:
        # what a silent partition superseded leaves the disk when its snapshot is written again behind it.
        self.rewrite_after_s: float | None = lag_s + 5.0
        self.superseded_s = SUPERSEDED_S
        self.broker_time: tuple[int, float] | None = None
        self._admin = Admin(connection, patience_ms=10_000)
        self._fences: dict[int, Fence] = {}
        self._lock = threading.Lock()
        states = state_topics(connection.group, topic)
        self._topics = StoreTopics(self._admin, topic, states, sealed_topic, accept_loss=accept_loss)
        self._state_topic = self._topics.state.name
        self._readers = ReaderPool(lambda: blobs.BlobReader(connection, topic, self._state_topic), IDLE_READERS)
        self._may_be_shared = self._state_topic != states[0]
        self._eraser = Eraser(connection, self._state_topic)

    # ---------------------------------------------------------------------------------------------- the port

    def take(self, partition: int) -> Restored | Fresh:
        """See `stream.interfaces.StateStore.take`."""
        started = time.monotonic()
        self.drop(partition)
        self._topics.adopt_input()
        self._topics.check_room(partition)
        if self._may_be_shared:
            self._require_own_topic(partition)
        state = self._topics.state_now()
        fence = Fence.open(self._connection, self._topic, state.name, state.topic_id, partition)
        try:
            fence.take()
            faults.checkpoint("take.fenced")
            restored = self._restore(partition, fence)
        except BaseException:
            fence.abandon()
            raise
        with self._lock:
            self._fences[partition] = fence
        seconds = round(time.monotonic() - started, 3)
        event_log.info("partition_taken", topic=self._topic, partition=partition, seconds=seconds)
        return restored

    def _require_own_topic(self, partition: int) -> None:
        """Refuse a state topic whose name two applications share: each would erase the other's snapshots."""
        other = self._other_input_in(self._state_topic, partition)
        if other is not None:
            raise DataLossError(
                f"the state topic {self._state_topic!r} holds snapshots of {other!r} too: another application's group "
                "and topic make the same name. `sketchstream topics create` makes one for this application alone; "
                "workers that are started then move their snapshots there"
            )

    def _other_input_in(self, state_topic: str, partition: int) -> str | None:
        """Find another input that exists, and whose snapshots are in a partition of a state topic."""
        others = traces.inputs_of(self._connection, state_topic, partition) - {self._topics.input.topic_id}
        if not others:
            return None
        names = self._admin.topic_ids()
        return next((names[topic_id] for topic_id in sorted(others) if topic_id in names), None)

    def _restore(self, partition: int, fence: Fence) -> Restored | Fresh:
        """Read what is committed, and check it against the cluster and the topics that it was written for."""
        with self._readers.take() as reader:
            committed = reader.committed(partition)
            if committed is None:
                return self._first(partition, fence)
            pointer = Pointer.from_text(committed.metadata or "")
            older = pointer is not None and pointer.naming < NAMING
            if older and Fence.end_former(self._connection, self._topic, partition):
                committed = reader.committed(partition) or committed
                pointer = Pointer.from_text(committed.metadata or "")
            if pointer is None:
                raise DataLossError(
                    f"the committed offset of partition {partition} of {self._topic!r} was not written by sketchstream "
                    f"(another client of this group, or a reset by another tool); {ADVICE}"
                )
            if self._accept_loss and pointer.topic_id != self._topics.input.topic_id:
                return self._begin_anew(partition, fence, pointer.revision)
            self._check_pointer(partition, pointer, committed.offset)
            require_newest_revision(partition, pointer.revision, self._newest_revision())
            self._member.expect_epoch(partition, UNKNOWN if committed.leader_epoch is None else committed.leader_epoch)
            fence.position = committed.offset
            if pointer.manifest < 0:
                return Fresh(pointer.revision, committed.offset, pointer.partial)
            return self._load(partition, fence, pointer, reader)

    def _load(self, partition: int, fence: Fence, pointer: Pointer, reader: blobs.BlobReader) -> Restored:
        """Read manifest and blobs; those in a state topic of an older release move with the next snapshot."""
        home = self._topics.topic_of_state(pointer.state_id) or self._state_topic
        if home != self._state_topic:
            with contextlib.closing(blobs.BlobReader(self._connection, self._topic, home)) as elsewhere:
                restored = self._read(partition, fence, pointer, elsewhere)
            # restored sketches take over the memory of the blobs themselves
            copies = {name: bytes(data) for name, data in restored.blobs.items()}
            fence.moving, fence.moved_from, fence.places, fence.written = copies, home, {}, 0
            return restored
        return self._read(partition, fence, pointer, reader)

    def _read(self, partition: int, fence: Fence, pointer: Pointer, reader: blobs.BlobReader) -> Restored:
        """Read manifest and blobs with a reader of the topic that they are in."""
        manifest = reader.manifest(partition, pointer)
        if manifest["v"] != MANIFEST_FORMAT:
            number = manifest["v"]
            raise DataLossError(
                f"a snapshot in format {number} was written by another release; this one knows {MANIFEST_FORMAT}"
            )
        if manifest["partition"] != partition or manifest["position"] != fence.position:
            raise DataLossError(
                f"the snapshot of partition {partition} belongs to another position or partition; {ADVICE}"
            )
        fence.places = {name: BlobPlace(*place) for name, place in manifest["blobs"].items()}
        fence.manifest, fence.written = pointer.manifest, manifest["written"]
        return Restored(fence.position, manifest["manifest"], _read_named(reader, partition, fence.places))

    def _check_pointer(self, partition: int, pointer: Pointer, position: int) -> None:
        """Refuse a pointer from another cluster or another topic of that name, or with a position beyond its log."""
        if pointer.cluster_id != self._admin.cluster_id():
            problem = "was written in another cluster (mirrored offsets point nowhere)"
        elif pointer.topic_id != self._topics.input.topic_id:
            problem = "belongs to an earlier topic of the same name"
        elif pointer.manifest >= 0 and self._topics.topic_of_state(pointer.state_id) is None:
            problem = "names a snapshot in a state topic that was deleted and made again"
        else:
            ends = self._admin.offsets(self._topic, [partition], "latest")
            if self._accept_loss or ends.get(partition, position) >= position:
                return
            problem = "lies beyond the end of the log (truncated or restored from an older copy)"
        raise DataLossError(f"the committed offset of partition {partition} of {self._topic!r} {problem}; {ADVICE}")

    def _first(self, partition: int, fence: Fence) -> Fresh:
        """Begin without an offset, which only a partition without any trace may; its pointer is committed first."""
        earlier = self._earlier_records(partition)
        if earlier is None:
            return self._begin(partition, fence, self._newest_revision() or 0, partial=False)
        trace = traces.newest_trace(self._connection, self._state_topic, partition) if self._accept_loss else None
        if trace is not None and trace.topic_id != self._topics.input.topic_id:
            return self._begin_anew(partition, fence, trace.revision)
        raise DataLossError(
            f"partition {partition} of {self._topic!r} has no committed offset, but {earlier} of it: the group's "
            f"offsets expired or were deleted; {ADVICE}"
        )

    def _earlier_records(self, partition: int) -> str | None:
        """Which topic holds what of a partition, in words; None if there is no trace of it."""
        for name, contents in ((self._state_topic, "snapshots"), (self._topics.sealed, "sealed sketches")):
            if name is not None and self._admin.all_offsets(name, [partition], "latest")[partition] > 0:
                return f"{name!r} holds {contents}"
        former = self._topics.former_state
        if former is not None and self._topics.input.topic_id in traces.inputs_of(self._connection, former, partition):
            return f"{former!r} holds snapshots"
        return None

    def _newest_revision(self) -> int | None:
        """Largest revision of all partitions, those of other topics as of the start; None: none has begun."""
        own = traces.revision_of(self._connection, self._topic, self._topics.input.topic_id)
        return max((revision for revision in (own, self._other_revision) if revision is not None), default=None)

    def _begin_anew(self, partition: int, fence: Fence, used: int) -> Fresh:
        """The input is another topic than the one that was counted: a new revision, whose first commit erases the old.

        Its records may be those of the old topic again, so nothing of them may go into a sketch that has those.
        """
        revision = traces.next_revision(
            self._connection, self._topic, self._topics.input.topic_id, self._topics.sealed, used
        )
        event_log.warning("input_made_again", topic=self._topic, partition=partition, revision=revision)
        return self._begin(partition, fence, revision, partial=True)

    def _begin(self, partition: int, fence: Fence, revision: int, *, partial: bool) -> Fresh:
        """Commit a pointer without a snapshot at the beginning of the log."""
        begins = self._admin.all_offsets(self._topic, [partition], "earliest")
        self._member.expect_epoch(partition, UNKNOWN)
        fence.begin(begins[partition], Pointer(*self._ids(fence), revision, partial=partial), self._member)
        return Fresh(revision, fence.position, partial)

    def _ids(self, fence: Fence) -> tuple[str, str, str]:
        """Ids of the cluster, the input and the state topic: what a pointer is bound to."""
        return self._admin.cluster_id(), self._topics.input.topic_id, fence.state_id

    def commit(self, partition: int, snapshot: Snapshot) -> None:
        """See `stream.interfaces.StateStore.commit`."""
        with self._lock:
            fence = self._fences.get(partition)
        if fence is None or fence.broken:
            raise FencedError(f"partition {partition} belongs to another worker now: take it again")
        if snapshot.position < fence.position and not snapshot.rewound:
            fence.broken = True
            raise DataLossError(f"a snapshot of partition {partition} would move its position back")
        state_id = self._topics.state_now().topic_id
        if fence.state_id != state_id:
            fence.places, fence.moving, fence.manifest, fence.written = {}, {}, -1, 0
            fence.position, fence.state_id = min(fence.position, snapshot.position), state_id
            self._eraser.restart(partition)
            raise SnapshotsGoneError(
                f"the state topic {self._state_topic!r} was deleted and made again while partition {partition} ran: "
                "its snapshot is written again, whole"
            )
        fence.broken = True
        self._topics.check_input()
        self._topics.watch_settings()
        missing = snapshot.keep - fence.places.keys() - fence.moving.keys()
        if missing:
            raise DataLossError(
                f"a snapshot of partition {partition} keeps {len(missing)} blobs that no earlier one brought"
            )
        about = Pointer(
            *self._ids(fence),
            snapshot.revision,
            snapshot.spec_fingerprint,
            begins=snapshot.begins,
            newest=snapshot.newest,
        )
        try:
            again: dict[str, BytesOrView] = {name: data for name, data in fence.moving.items() if name in snapshot.keep}
            again |= self._blobs_to_rewrite(partition, fence, snapshot)
            fence.write(snapshot, again, about, self._member)
        except FencedError as error:
            if error.whole_worker:
                self._member.mark_fenced(error)
            raise
        fence.broken = False
        self.broker_time = fence.broker_time or self.broker_time
        self._eraser.erase(partition, fence.first)
        if fence.moved_from is not None:
            home, fence.moved_from, fence.moving = fence.moved_from, None, {}
            self._erase_former(partition, home)

    def _erase_former(self, partition: int, home: str) -> None:
        """Erase snapshots that were moved from their former topic, if it holds nobody else's."""
        try:
            if self._other_input_in(home, partition) is None:
                self._admin.delete_before(home, self._admin.offsets(home, [partition], "latest"))
            event_log.info("state_moved", partition=partition, topic=home)
        except BrokerError as error:
            reason = type(error.__cause__ or error).__name__
            event_log.warning("erase_delayed", topic=home, error=reason)

    def _blobs_to_rewrite(self, partition: int, fence: Fence, snapshot: Snapshot) -> dict[str, BytesOrView]:
        """Blobs to write again: they are clean, but so old that they keep superseded snapshots from being erased."""
        lag_bytes, lag_s = self._lag
        oldest = time.time_ns() // 1_000_000 - int(lag_s * 1000)
        old = [
            name
            for name in snapshot.keep & fence.places.keys()
            if fence.written - fence.places[name].mark > lag_bytes or fence.places[name].at < oldest
        ]
        if not old:
            return {}
        with self._readers.take() as reader:
            return _read_named(reader, partition, {name: fence.places[name] for name in old})

    def peers(self) -> Sequence[Peer]:
        """See `stream.interfaces.StateStore.peers`: from the committed pointers."""
        pointers = traces.pointers_of(self._connection, self._topic, self._topics.input.topic_id)
        return [
            Peer(pointer.fingerprint, pointer.begins, pointer.newest) for pointer in pointers if pointer.manifest >= 0
        ]

    def drop(self, partition: int) -> None:
        """Forget a partition. Its next owner aborts a transaction that is in flight."""
        with self._lock:
            fence = self._fences.pop(partition, None)
        if fence is not None:
            fence.abandon()

    def close(self) -> None:
        """Drop all."""
        senders = [fence.producer._sender for fence in self._fences.values()]
        for partition in list(self._fences):
            self.drop(partition)
        self._eraser.close()
        for sender in senders:
            sender.join(1.0)
        self._readers.close()
        self._admin.close()


def _read_named(reader: blobs.BlobReader, partition: int, places: Mapping[str, BlobPlace]) -> dict[str, BytesOrView]:
    """The blobs at these places, by name."""
    by_name = reader.read_all(partition, {name.encode(): place for name, place in places.items()})
    return {name.decode(): data for name, data in by_name.items()}
