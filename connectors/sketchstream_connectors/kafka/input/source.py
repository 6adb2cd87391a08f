"""Reads records of a Kafka topic as one member of a consumer group.

In: a connection, a topic, a decoder of records. Out: the events of `sketchstream.stream.interfaces.Source`.
Touches: one consumer and its group membership, an admin connection, the thread of its watch.

The worker, not the client, manages the position of every partition. Partitions are announced paused and without a
position, and the worker seeks to the position in its store. A partition that is kept over a rebalance continues where
it was. Each chunk carries the position it was fetched from, so it does not matter when a rebalance is noticed.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sketchstream.errors import BrokerError, DataLossError, FencedError, SchemaUnavailableError
from sketchstream.items.events import Events
from sketchstream.log_events import EventLog
from sketchstream.stream.interfaces import (
    Assigned,
    Chunk,
    PartitionError,
    RawRecord,
    Revoked,
    SchemaAwaited,
    SourceEvent,
)
from sketchstream_connectors.kafka.cluster.client import Admin, Connection, translate_errors
from sketchstream_connectors.kafka.fetch import fetch_patch
from sketchstream_connectors.kafka.input.consumer import open_consumer, require_accepted
from sketchstream_connectors.kafka.input.growth import former_numbers
from sketchstream_connectors.kafka.input.offset_validation import DoubtedPositions
from sketchstream_connectors.kafka.input.positions import UNKNOWN, Position, Positions
from sketchstream_connectors.kafka.input.watchdog import Watch

if TYPE_CHECKING:
    from kafka import ConsumerGroupMetadata, KafkaConsumer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    from sketchstream_connectors.decode.records import Records

event_log = EventLog("sketchstream.kafka")

CHUNKS_A_POLL = 16
"""Most chunks of one poll, where batches are read as they are."""
RECORDS_A_POLL = 4000
"""Most records of one poll, where the client reads them."""
RECREATE_EVERY_S = 120.0
"""Least time between two replacements of the consumer, seconds."""
TRUNCATED_AFTER_S = 30.0
"""Seconds for which brokers must say that a position does not exist: a replica that lags says so for a moment."""
SCHEMA_PAUSE_S, SCHEMA_LOGGED_EVERY_S = 0.1, 10.0
LOGGED_FAILURES, LOGGED_EVERY = 5, 60
"""Of polls that fail in a row, the first 5 are logged, and then every 60th."""


class KafkaSource:
    """One consumer of one topic. Every public method is called from the worker's thread.

    Args:
        connection: connection to the cluster; its `group.id` is the group.
        topic: the input topic. It must exist.
        decode: records -> items, times and validity; never raises because of a record's contents.
        path: "auto" (raw batches if the self-test passes), "raw" or "stock".

    Raises:
        ConfigError: no such topic, or the raw path asked for and impossible.
        BrokerError: the cluster cannot be reached.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        decode: Callable[[Records], Events],
        *,
        path: fetch_patch.Decode = "auto",
    ) -> None:
        self.topic = topic
        self._connection = connection
        self._decode = decode
        self._wanted_path = path
        self._admin = Admin(connection, patience_ms=5_000)
        self._announced: set[int] = set()
        self._lost: set[int] = set()
        self._positions = Positions()
        self._paused: set[int] = set()
        self._doubted = DoubtedPositions()
        self.joined = False
        self._failing = 0
        self._consumer: KafkaConsumer | None = None
        self._recreate: str | None = None
        self._recreated_at = float("-inf")
        self._queued: list[SourceEvent] = []
        self._condemned: FencedError | None = None
        self._silenced = False
        self._suspicious = False
        self._schema_awaited_at = float("-inf")
        try:
            self.topic_id = self._admin.require_topic(topic).topic_id
            self._open()
        except BaseException:
            self._admin.close()
            raise
        self._watch = Watch(self, connection)
        self._grown: tuple[int, dict[int, int]] = (0, {})

    # ------------------------------------------------------------------------------------------- the consumer

    def _open(self) -> None:
        """A new consumer, subscribed."""
        self._consumer, self.path = open_consumer(
            self._connection, self.topic, self._wanted_path, self._on_assigned, self._on_lost
        )

    @property
    def consumer(self) -> KafkaConsumer:
        """The client's consumer."""
        if self._consumer is None:
            raise BrokerError("the Kafka source is closed")
        return self._consumer

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member of the group, for transactions: any thread may ask."""
        return self.consumer.group_metadata()

    def epoch(self, partition: int) -> int:
        """Leader epoch of the last batch read, -1 where not known: any thread may ask."""
        return self._positions.epoch(partition)

    def expect_epoch(self, partition: int, epoch: int) -> None:
        """Note the epoch that was committed with the position of the next seek: any thread may call this."""
        self._positions.expect(partition, epoch)

    def _topic_partition(self, partition: int) -> TopicPartition:
        from kafka import TopicPartition

        return TopicPartition(self.topic, partition)

    def _assigned_partitions(self) -> set[int]:
        return {tp.partition for tp in self.consumer.assignment()}

    def _replace_consumer(self, reason: str) -> None:
        """Close the consumer and open another: a new member, to which everything is announced again."""
        event_log.warning("consumer_recreated", topic=self.topic, reason=reason)
        self._recreated_at = time.monotonic()
        self.joined = False
        self._close_consumer(3000)
        if self._announced:
            self._queued.append(Revoked(tuple(sorted(self._announced))))
        self._announced.clear()
        self._positions.clear()
        self._paused.clear()
        self._doubted.clear_doubts()
        self._lost.clear()
        self._open()

    def _close_consumer(self, timeout_ms: int) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(Exception):
                consumer.close(autocommit=False, timeout_ms=timeout_ms)

    def owns(self, partition: int) -> bool:
        """Whether this partition is assigned: any thread may ask."""
        return partition in self._announced

    def waiting(self) -> Mapping[int, int]:
        """The partitions that are being read, and their positions: any thread may ask."""
        positions = self._positions.all()
        return {p: positions[p].offset for p in self._announced - self._paused if p in positions}

    def doubt_topic(self) -> None:
        """Let the next poll check whether the topic was created again. Any thread may call this."""
        self._suspicious = True

    def ask_for_another_consumer(self, reason: str) -> None:
        """Let the next poll open a new consumer, if the last one is old enough. Any thread may call this."""
        self._recreate = reason

    def mark_fenced(self, error: FencedError) -> None:
        """Let the next poll raise, because another process has our group.instance.id. Any thread may call this."""
        self._condemned = error

    def _check_instance(self) -> None:
        """Find out whether this static member was replaced: the client only stops its heartbeats then."""
        if self._condemned is not None:
            raise self._condemned
        if self._connection.instance is None:
            return
        coordinator = self.consumer._coordinator
        silenced = coordinator.stable() and not coordinator._heartbeat_enabled
        if silenced and self._silenced:
            raise FencedError(f"another worker runs with the same group.instance.id {self._connection.instance!r}")
        self._silenced = silenced

    # ------------------------------------------------------------------- called by the client while poll() blocks

    def _on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Let kept partitions continue where they were; new ones wait, paused, for their position from the store."""
        for tp in partitions:
            p = tp.partition
            position = self._positions.at(p)
            if p in self._announced and p not in self._lost and position is not None:
                self._place(p, position)
                if p in self._paused or self._doubted.is_held(p):
                    self.consumer.pause(tp)
            else:
                self._positions.forget(p)
                self._paused.add(p)
                self.consumer.seek(tp, 0)
                self.consumer.pause(tp)

    def _on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Drop all that we hold of these partitions: it is stale, because the group has continued without us."""
        self._lost.update(tp.partition for tp in partitions)

    def _place(self, partition: int, position: Position) -> None:
        """Seek, with the leader epoch if it is known, so that a truncation below the position is noticed (KIP-320)."""
        tp = self._topic_partition(partition)
        self.consumer.seek(tp, position.offset)
        if position.epoch >= 0:
            from kafka.structs import OffsetAndMetadata

            self.consumer._subscription.seek(tp, OffsetAndMetadata(position.offset, "", position.epoch))

    # ----------------------------------------------------------------------------------------------- the port

    def confirmed(self, since_s: float) -> bool:
        """Whether a heartbeat sent after that time was answered: those of a zombie are refused."""
        heartbeat = self.consumer._coordinator.heartbeat
        return bool(heartbeat.last_send > since_s and heartbeat.last_receive >= heartbeat.last_send)

    def poll(self, timeout_s: float) -> list[SourceEvent]:
        """See `stream.interfaces.Source.poll`.

        Raises:
            FencedError: another worker runs under the same group.instance.id.
            BrokerError: the topic may not be read.
            ConfigError: the group accepts no member with these settings.
        """
        self._check_instance()
        if self._recreate is not None and time.monotonic() - self._recreated_at > RECREATE_EVERY_S:
            reason, self._recreate = self._recreate, None
            self._replace_consumer(reason)
        polled: Mapping[Any, Sequence[Any]] = {}
        failures: list[SourceEvent] = []
        limit = CHUNKS_A_POLL if self.path == "raw" else RECORDS_A_POLL
        try:
            polled = self.consumer.poll(timeout_ms=max(0, int(min(timeout_s, 1.0) * 1000)), max_records=limit)
            self._failing = 0
        except Exception as error:  # sorted out by type, those of our own mistakes are raised again
            failures = self._handle_poll_error(error)
        self.joined = self.joined or bool(self.consumer._coordinator.stable())
        events = [*self._queued, *self._assignment_changes(), *failures]
        self._queued.clear()
        if self._suspicious:
            self._suspicious = False
            with contextlib.suppress(BrokerError):
                events += self._check_recreated()
        for p in self._doubted.due(time.monotonic()):
            events += self._judge_position(p)
        for p in sorted(self._announced - self._paused):
            events += self._chunks(p, polled.get(self._topic_partition(p), ()))
        return events

    def _assignment_changes(self) -> list[SourceEvent]:
        """The differences between the assignment and what was announced to the worker."""
        owned = self._assigned_partitions()
        lost = self._lost & self._announced
        gone = (self._announced - owned) | lost
        new = owned - (self._announced - gone)
        self._lost.clear()
        for p in gone:
            self._doubted.clear_doubt(p)
        for p in gone - new:
            self._positions.forget(p)
            self._paused.discard(p)
        self._announced = owned
        events: list[SourceEvent] = []
        if gone:
            events.append(Revoked(tuple(sorted(gone))))
        if new:
            events.append(Assigned(tuple(sorted(new))))
        return events

    def _chunks(self, partition: int, polled: Sequence[Any]) -> list[SourceEvent]:
        """Chunks of one partition, from our position to the client's position after the poll."""
        before = self._positions.at(partition)
        state = self.consumer._subscription.assignment.get(self._topic_partition(partition))
        after = state.position.offset if state is not None and state.position is not None else None
        if before is None or after is None or (not polled and after == before.offset):
            return []
        events: list[SourceEvent] = []
        for records in fetch_patch.as_records(polled, before.offset, after, state.position.leader_epoch):
            if records.from_position != before.offset:
                event_log.warning("chunk_discarded", topic=self.topic, partition=partition)
                self._place(partition, before)
                return events
            try:
                decoded = self._decode(records)
            except SchemaUnavailableError as error:
                self._await_schema(partition, before, error)
                return [*events, SchemaAwaited(partition, str(error))]
            events.append(
                Chunk(
                    partition=partition,
                    from_position=records.from_position,
                    next_position=records.next_position,
                    offsets=records.offsets,
                    timestamps=records.timestamps,
                    events=decoded,
                    raw=_raw(records),
                    n_bytes=int(records.buffer.size),
                    tombstones=records.value_start < 0,
                )
            )
            before = self._positions.read(partition, records.next_position, records.leader_epoch)
            self._doubted.clear_doubt(partition)
        self._watch.progress(partition)
        return events

    def _await_schema(self, partition: int, position: Position, error: SchemaUnavailableError) -> None:
        """Read these records again later: the registry has not given their schema."""
        now = time.monotonic()
        if now - self._schema_awaited_at > SCHEMA_LOGGED_EVERY_S:
            self._schema_awaited_at = now
            fields = {"partition": partition, "position": position.offset, "reason": error}
            event_log.warning("schema_awaited", **fields)
        self._place(partition, position)
        self._watch.progress(partition)
        time.sleep(SCHEMA_PAUSE_S)

    def _handle_poll_error(self, error: Exception) -> list[SourceEvent]:
        """Find out what an exception of the client's poll means, and for which partition."""
        from kafka import errors

        if isinstance(error, errors.NoOffsetForPartitionError):
            for tp in error.args[0]:
                self._on_assigned([tp])
            return []
        if isinstance(error, errors.OffsetOutOfRangeError):
            return [event for tp, offset in error.args[0].items() for event in self._doubt(tp.partition, offset)]
        if isinstance(error, errors.LogTruncationError):
            return self._handle_truncation(getattr(error, "divergent_offsets", None) or {})
        if isinstance(error, errors.CorruptRecordError | errors.UnsupportedCodecError):
            return self._handle_unreadable_batch(error)
        if isinstance(error, errors.FencedInstanceIdError):
            with translate_errors("polling"):
                raise error
        if isinstance(error, errors.TopicAuthorizationFailedError | errors.GroupAuthorizationFailedError):
            with translate_errors(f"reading {self.topic!r} in group {self._connection.group!r}"):
                raise error
        if isinstance(error, errors.UnknownBrokerIdError):
            self._recreate = "a broker was unknown to the client"  # else the client would never fetch from it again
            return []
        require_accepted(error, self._connection)
        if isinstance(error, errors.KafkaError):
            self._failing += 1
            if self._failing <= LOGGED_FAILURES or self._failing % LOGGED_EVERY == 0:
                fields = {"topic": self.topic, "error": type(error).__name__, "times": self._failing}
                event_log.warning("poll_failed", **fields)
            time.sleep(min(0.05 * self._failing, 1.0))
            return []
        raise error

    def _doubt(self, partition: int, offset: int) -> list[SourceEvent]:
        """Doubt a position that does not exist according to a broker."""
        self._doubted.hold(partition, offset, time.monotonic())
        return self._judge_position(partition)

    def _judge_position(self, partition: int) -> list[SourceEvent]:
        """Halt, continue, or wait, according to the leader's bounds."""
        now = time.monotonic()
        offset = self._doubted.note_question(partition, now)
        if offset is None:  # settled while another partition was being judged
            return []
        if partition in self._assigned_partitions():
            self.consumer.pause(self._topic_partition(partition))
        try:
            first = self._admin.offsets(self.topic, [partition], "earliest").get(partition)
            last = self._admin.offsets(self.topic, [partition], "latest").get(partition)
            topic_recreated = self._check_recreated()
        except BrokerError:
            return []
        if topic_recreated:
            return topic_recreated
        place = {"topic": self.topic, "partition": partition}
        event_log.warning("position_in_doubt", **place, position=offset, first=first, last=last)
        verdict = self._doubted.judge(partition, first, last, now, TRUNCATED_AFTER_S)
        if verdict is None:
            return []
        if not verdict.exists:
            self._positions.expect(partition, UNKNOWN)  # epoch of a position from which reading may continue
            return [self._halt(partition, verdict.text, verdict.resume_at)]
        if partition in self._assigned_partitions():
            self._place(partition, self._positions.at(partition) or Position(offset))
            if partition not in self._paused:
                self.consumer.resume(self._topic_partition(partition))
        return []

    def _handle_truncation(self, divergent: Mapping[TopicPartition, OffsetAndMetadata | None]) -> list[SourceEvent]:
        """Find where each log that was cut below our positions, and perhaps grew again, differs from what we read.

        None if the leader has nothing left of that time, so that the place is unknown.
        """
        try:
            topic_recreated = self._check_recreated()
        except BrokerError:
            topic_recreated = []  # the topic's watcher will find out
        if topic_recreated:
            return topic_recreated
        events: list[SourceEvent] = []
        for tp, place in divergent.items():
            resume_at = None if place is None or place.offset < 0 else int(place.offset)
            if resume_at is not None and place is not None:
                self._positions.expect(tp.partition, UNKNOWN if place.leader_epoch is None else place.leader_epoch)
            events.append(
                self._halt(tp.partition, "its log was truncated below the position (unclean election)", resume_at)
            )
        return events

    def _check_recreated(self) -> list[SourceEvent]:
        """Halt all partitions if the input is no longer the topic to which their positions belong."""
        described = self._admin.topic(self.topic)
        if described is not None and described.topic_id == self.topic_id:
            return []
        happened = "was deleted" if described is None else "was deleted and made again (its topic id changed)"
        event_log.error("topic_recreated", topic=self.topic)
        if described is not None:
            self.topic_id = described.topic_id
        self._positions.forget_epochs()
        self._doubted.clear()
        error = DataLossError(f"the input topic {self.topic!r} {happened}; `sketchstream reset` starts a new revision")
        for p in self._announced:
            self._stop(p)
        return [PartitionError(p, error, topic_recreated=True) for p in sorted(self._announced)]

    def _halt(self, partition: int, why: str, resume_at: int | None = None) -> PartitionError:
        """Stop reading a partition, so that the others are not starved by its error."""
        self._stop(partition)
        advice = "`sketchstream recover` says what can be done, `sketchstream reset` starts a new revision"
        error = DataLossError(f"partition {partition} of {self.topic!r}: {why}; {advice}")
        return PartitionError(partition, error, resume_at)

    def _stop(self, partition: int) -> None:
        if partition in self._assigned_partitions():
            self.pause(partition)
            position = self._positions.at(partition)
            self.consumer.seek(self._topic_partition(partition), 0 if position is None else position.offset)

    def _handle_unreadable_batch(self, error: Exception) -> list[SourceEvent]:
        """Fetch a batch with a wrong checksum again, perhaps from another replica; halt the partition after that."""
        partition = self._partition_of_error(error)
        position = None if partition is None else self._positions.at(partition)
        if partition is None or position is None:
            raise BrokerError(f"a batch of {self.topic!r} cannot be read: {type(error).__name__}") from error
        attempt = self._doubted.refetch(partition, position.offset)
        if attempt is not None:
            event_log.warning("batch_unreadable", topic=self.topic, partition=partition, attempt=attempt)
            self._place(partition, position)
            return []
        return [
            self._halt(partition, f"a batch at or after position {position.offset} is corrupt ({type(error).__name__})")
        ]

    def _partition_of_error(self, error: Exception) -> int | None:
        """The partition that an error of the fetcher names."""
        named = re.search(r"partition=(\d+)", str(error))
        if named:
            return int(named.group(1))
        part = getattr(self.consumer._fetcher, "_next_partition_records", None)
        return int(part.topic_partition.partition) if part is not None else None

    def seek(self, partition: int, position: int) -> None:
        """Continue at this position."""
        place = self._positions.seek(partition, position)
        self._doubted.clear_doubt(partition)
        if partition in self._assigned_partitions():
            self._place(partition, place)

    def pause(self, partition: int) -> None:
        """Deliver nothing until `resume`."""
        self._paused.add(partition)
        if partition in self._assigned_partitions():
            self.consumer.pause(self._topic_partition(partition))

    def resume(self, partition: int) -> None:
        """Deliver again."""
        self._paused.discard(partition)
        self._watch.progress(partition)
        if partition in self._assigned_partitions() and not self._doubted.is_held(partition):
            self.consumer.resume(self._topic_partition(partition))

    def numbers(self) -> Sequence[int]:
        """Partitions of the topic, as the client knows them."""
        return range(self.partition_count())

    def partition_count(self, partition: int = 0, *, fresh: bool = False) -> int:
        """Partitions of the topic now."""
        if fresh:
            described = self._admin.topic(self.topic)
            if described is not None:
                return described.partitions
        cached = self.consumer.partitions_for_topic(self.topic)
        return len(cached) if cached else 0

    def beginning(self, partition: int) -> int:
        """Position of the first record that still exists."""
        return self._admin.all_offsets(self.topic, [partition], "earliest")[partition]

    def former_counts(self, partition: int) -> Mapping[int, int | None]:
        """See `Source`; asked once for each number of partitions."""
        count = self.partition_count()
        if self._grown[0] != count:
            self._grown = count, former_numbers(self._admin, self.topic, count)
        return {
            n: self._admin.offsets_at(self.topic, [partition], until_ms).get(partition, (None,))[0]
            for n, until_ms in self._grown[1].items()
            if partition < n
        }

    def high_watermarks(self, partitions: Collection[int] | None = None) -> Mapping[int, int]:
        """Fresh high watermarks; partitions whose leader does not answer are left out."""
        try:
            numbers = range(self.partition_count()) if partitions is None else partitions
            return self._admin.offsets(self.topic, list(numbers), "latest")
        except BrokerError:
            return {}

    def close(self, *, leave: bool = False) -> None:
        """Close; a static member keeps its place unless `leave`."""
        self._watch.stop()
        self._close_consumer(5000)
        instance = self._connection.instance
        if leave and instance is not None:
            from kafka.admin import MemberToRemove

            with self._admin.client("leaving the group") as client:
                client.remove_group_members(self._connection.group, [MemberToRemove(group_instance_id=instance)])
        self._admin.close()


def _raw(records: Records) -> Callable[[int], RawRecord]:
    """Record i, unchanged."""

    def record(index: int) -> RawRecord:
        headers, whole = records.headers(index)
        return RawRecord(
            int(records.offsets[index]),
            int(records.timestamps[index]),
            records.key(index),
            records.value(index),
            headers,
            not whole,
        )

    return record
