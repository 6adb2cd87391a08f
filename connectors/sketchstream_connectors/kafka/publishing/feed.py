"""Follows a sealed topic.

In: a connection, the topic. Out: batches, as a `Feed`. Touches: the sealed topic, reading, with a consumer without a
group. A position is the offset at which a partition is read on; it stays before the first chunk of a body whose other
chunks have not come yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sketchstream.errors import StoreError
from sketchstream.log_events import EventLog
from sketchstream.stream.feed import FeedBatch, Unreadable
from sketchstream.stream.interfaces import Deleted, Frontier, SealedEntry
from sketchstream_connectors.kafka.cluster.log_reader import Log
from sketchstream_connectors.kafka.publishing.sealed import KafkaSealedSource, LogBody, Trimmed, read_frontier, read_key

if TYPE_CHECKING:
    from sketchstream_connectors.kafka.cluster.client import Connection

event_log = EventLog("sketchstream.kafka")

ENTRIES: Final = 512
"""Most bodies of one batch."""
BATCH_BYTES: Final = 32 * 2**20
"""Most bytes of the bodies of one batch."""


class KafkaFeed:
    """A `Feed` over a sealed topic.

    Args:
        connection: connection to the cluster; it stays open.
        topic: the sealed topic.

    Raises:
        ConfigError: there is no such topic.
        BrokerError: the broker does not answer.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        advice = "; `sketchstream topics create` makes it"
        described = connection.admin.require_topic(topic, "the sealed topic", advice)
        self._identity = f"topic {topic} {described.topic_id}"
        self._connection, self._topic = connection, topic
        self._log = Log(connection, topic)
        self._newest = KafkaSealedSource(connection, topic)

    @property
    def identity(self) -> str:
        """The topic and its id, which changes if the topic is deleted and created again."""
        return self._identity

    def newest(self) -> Sequence[Frontier]:
        """The newest frontiers, from the ends of the partitions."""
        return self._newest.frontiers()

    def read(self, positions: Mapping[str, str]) -> Iterator[FeedBatch]:
        """Records after the positions up to the present end.

        Raises:
            StoreError: the topic ends before a position, so it is not the topic that was read.
        """
        extent = self._log.extent()
        starts: dict[int, int] = {}
        trimmed: set[int] = set()
        for partition, begin in extent.begins.items():
            continues_at = positions.get(str(partition))
            at = begin if continues_at is None else int(continues_at)
            if at > extent.ends[partition]:
                raise StoreError(
                    f"partition {partition} of {self._topic!r} ends before what was read of it: records were lost, or "
                    "it is another topic; remove the database of the service, and it is filled again"
                )
            starts[partition] = max(at, begin)
            if at < begin or (continues_at is None and begin > 0):  # the log may begin where it was read to
                trimmed.add(partition)
        reading = _Reading(starts, Trimmed(trimmed))
        left = sum(extent.ends[p] - start for p, start in starts.items())
        for records, _ in self._log.batches(starts, extent.ends):
            left -= len(records)
            for record in records:
                reading.add(record)
                if reading.full:
                    yield reading.batch(max(left, 1))
        for partition, end in extent.ends.items():
            reading.advance(partition, end)
        yield reading.batch(0)

    def close(self) -> None:
        """Close the consumers."""
        self._log.close()
        self._newest.close()


class _Reading:
    """What was read since the last batch, and the chunks of incomplete bodies.

    Args:
        starts: first offset of each partition.
        trimmed: what was deleted before it was read.
    """

    def __init__(self, starts: Mapping[int, int], trimmed: Trimmed) -> None:
        self._next = dict(starts)
        self._trimmed = trimmed
        self._open: dict[tuple[int, LogBody], dict[int, tuple[int, bytes]]] = {}
        self._entries: list[SealedEntry] = []
        self._frontiers: list[Frontier] = []
        self._deleted: list[Deleted] = []
        self._unreadable: list[Unreadable] = []
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether it is time for a batch."""
        return len(self._entries) + len(self._frontiers) >= ENTRIES or self._bytes >= BATCH_BYTES

    def add(self, record: Any) -> None:
        """Add one record."""
        partition = record.partition
        self._next[partition] = record.offset + 1
        key = read_key(record.key)
        if key is None:
            return
        frontier = read_frontier(key, record.value) if key.body is None else None
        if key.body is None or key.body.final:
            deleted = self._trimmed.before(partition, key, frontier)
            self._deleted += [] if deleted is None else [deleted]
        if frontier is not None:
            self._frontiers.append(frontier)
        elif key.body is not None:
            self._add_chunk(partition, key.body, key.number, record)

    def _add_chunk(self, partition: int, body: LogBody, number: int, record: Any) -> None:
        """Add a chunk of a body: of a sealed sketch, of an instalment, or of an early release."""
        chunks = self._open.setdefault((partition, body), {})
        chunks.setdefault(number, (record.offset, record.value or b""))
        if len(chunks) < body.count:
            return
        del self._open[partition, body]
        data = b"".join(chunks[n][1] for n in range(body.count))
        entry = body.entry(data)
        if entry is None:
            event_log.error("sealed_body_altered", sketch=body.sketch, partition=body.partition)
            reason = f"what was published for partition {body.partition} was altered: its digest does not fit"
            self._unreadable.append(Unreadable(body.sketch, body.window[0], reason))
            return
        self._bytes += len(data)
        self._entries.append(entry)

    def advance(self, partition: int, end: int) -> None:
        """Note that the partition is read up to this offset; transaction markers at its end are no records."""
        self._next[partition] = max(end, self._next.get(partition, end))

    def batch(self, behind: int) -> FeedBatch:
        """Return what was read since the last batch."""
        positions = dict(self._next)
        for (partition, _), chunks in self._open.items():
            positions[partition] = min([positions[partition], *(offset for offset, _ in chunks.values())])
        batch = FeedBatch(
            entries=self._entries,
            frontiers=self._frontiers,
            deleted=self._deleted,
            unreadable=self._unreadable,
            positions={str(partition): str(at) for partition, at in positions.items()},
            behind=behind,
        )
        self._entries, self._frontiers, self._deleted, self._unreadable, self._bytes = [], [], [], [], 0
        return batch
