"""Reads a topic from given offsets to its current end, without a consumer group.

In: a connection, a topic, offsets or a time. Out: records of the client, batch by batch. Touches: a consumer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sketchstream.errors import BrokerError, ConfigError
from sketchstream_connectors.kafka.cluster.client import Connection, translate_errors

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition

READ_TIMEOUT_S = 60.0
"""Seconds without a record after which reading is given up although there is more to read."""
FETCH_WAIT_MS = 20
"""How long a broker holds a fetch for which there is nothing new. It answers one request of a connection at a time, so
a fetch at the end of a partition keeps the next question waiting."""


@dataclass(frozen=True)
class Extent:
    """The first offset and the end offset of each partition of a topic at one moment."""

    begins: dict[int, int]
    ends: dict[int, int]


class Log:
    """A consumer that reads a topic up to its present end; for one thread at a time.

    Args:
        connection: connection to the cluster.
        topic: sealed topic, or one of results or of a history.
        tail: `advance` starts that many records before the end of each partition, instead of at the beginning.
        only: read that partition only.
        fetch_bytes: most that the broker sends of one partition at a time.
        poll_records: most that the client decodes at a time; few for callers that stop early.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        *,
        tail: int | None = None,
        only: int | None = None,
        fetch_bytes: int = 8 * 2**20,
        poll_records: int = 500,
    ) -> None:
        self._topic = topic
        self._only = only
        self._tail = tail
        self._poll_records = poll_records
        self._positions: dict[int, int] = {}
        self._consumer: KafkaConsumer = connection.consumer(
            group_id=None,
            group_instance_id=None,
            max_partition_fetch_bytes=fetch_bytes,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            metrics_enabled=False,
        )

    def extent(self) -> Extent:
        """Where the topic begins and ends now.

        Raises:
            ConfigError: there is no such topic.
            BrokerError: the broker does not answer.
        """
        with translate_errors(f"reading {self._topic!r}"):
            partitions = self._consumer.partitions_for_topic(self._topic)
            if not partitions:
                raise ConfigError(f"the topic {self._topic!r} does not exist; `sketchstream topics create` makes it")
            tps = [self._at(p) for p in sorted(partitions if self._only is None else {self._only})]
            ends = self._consumer.end_offsets(tps, timeout_ms=20_000)
            begins = self._consumer.beginning_offsets(tps, timeout_ms=20_000)
        return Extent({tp.partition: begins[tp] for tp in tps}, {tp.partition: ends[tp] for tp in tps})

    def since(self, extent: Extent, time_ms: int) -> dict[int, int]:
        """First offset of each partition whose record carries this timestamp or a later one; its end if none does."""
        with translate_errors(f"reading {self._topic!r}"):
            times = {self._at(p): max(0, time_ms) for p in extent.ends}
            offsets = self._consumer.offsets_for_times(times)
        return {
            tp.partition: extent.ends[tp.partition] if at is None else max(at.offset, extent.begins[tp.partition])
            for tp, at in offsets.items()
        }

    def advance(self) -> Iterator[Any]:
        """Records from the end of the last call up to the present end.

        Raises:
            BrokerError: the broker does not answer, or a record that should exist is gone.
        """
        extent = self.extent()
        starts = {}
        for partition, end in extent.ends.items():
            first = extent.begins[partition]
            first = first if self._tail is None else max(first, end - self._tail)
            starts[partition] = max(first, self._positions.get(partition, 0))
        for records, _ in self.batches(starts, extent.ends):
            yield from records
        self._positions = {p: max(end, starts[p]) for p, end in extent.ends.items()}

    def batches(
        self, starts: Mapping[int, int], ends: Mapping[int, int], enough: Callable[[int], bool] = lambda _: False
    ) -> Iterator[tuple[list[Any], set[int]]]:
        """Records between offsets, in the client's batches.

        Args:
            starts: offsets at which to start, of each partition to be read.
            ends: where to stop, by partition.
            enough: called after each batch; True if no more of a partition is wanted.

        Yields:
            Records of one partition in order, and the partitions that are read to their end. At least one pair, and a
            last one in which all partitions are.

        Raises:
            BrokerError: the broker does not answer, or a record that should exist is gone.
        """
        over = {p for p, start in starts.items() if start >= ends[p]}
        left = {p for p in starts if p not in over}
        with translate_errors(f"reading {self._topic!r}"):
            tps = [self._at(p) for p in sorted(left)]
            self._consumer.assign(tps)
            for tp in tps:
                self._consumer.seek(tp, starts[tp.partition])
        yield [], set(over)
        deadline = time.monotonic() + READ_TIMEOUT_S
        while left:
            with translate_errors(f"reading {self._topic!r}"):
                fetched = self._consumer.poll(timeout_ms=500, max_records=self._poll_records)
            if fetched:
                deadline = time.monotonic() + READ_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise BrokerError(
                    f"{self._topic!r} gave nothing for {READ_TIMEOUT_S:.0f} s although there is more to read"
                )
            for tp, records in fetched.items():
                if tp.partition in left:
                    yield [record for record in records if record.offset < ends[tp.partition]], set(over)
            at_end = {p for p in left if self._consumer.position(self._at(p)) >= ends[p]}
            over |= at_end
            done = at_end | {p for p in left if enough(p)}
            if done:
                left -= done
                if left:
                    # not paused: records of a paused partition in the client keep it from fetching others
                    with translate_errors(f"reading {self._topic!r}"):
                        self._consumer.assign([self._at(p) for p in sorted(left)])
                yield [], set(over)

    def fetch(self, partition: int, offsets: Sequence[int]) -> list[bytes]:
        """Values of the records at these offsets of one partition."""
        tp = self._at(partition)
        values: list[bytes] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        with translate_errors(f"reading {self._topic!r}"):
            self._consumer.assign([tp])
            for offset in offsets:
                if not values or self._consumer.position(tp) != offset:
                    self._consumer.seek(tp, offset)
                while True:
                    got = self._consumer.poll(timeout_ms=500, max_records=1).get(tp, ())
                    if got and got[0].offset == offset:
                        values.append(got[0].value)
                        break
                    if got or time.monotonic() > deadline:
                        raise BrokerError(f"a record of {self._topic!r}, partition {partition}, is gone")
        return values

    def _at(self, partition: int) -> TopicPartition:
        from kafka import TopicPartition

        return TopicPartition(self._topic, partition)

    def close(self) -> None:
        """Close."""
        self._consumer.close(autocommit=False, timeout_ms=1000)
