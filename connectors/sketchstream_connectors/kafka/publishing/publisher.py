"""Publishes a worker's output to Kafka: sealed sketches and frontiers, late records and dead letters, results.

In: entries, frontiers, refused records, results. Out: acknowledged records. Touches: idempotent producers, one each;
the sealed topic is also read, for the frontiers of other partitions.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from sketchstream import faults
from sketchstream.errors import BrokerError, DataLossError
from sketchstream.stream.interfaces import Frontier, RawRecord, Refusal, SealedEntry
from sketchstream.stream.windows.boundary import Boundary, Claim
from sketchstream_connectors.kafka.cluster.acknowledgements import Acknowledgements
from sketchstream_connectors.kafka.cluster.client import Connection, know_partition, translate_errors
from sketchstream_connectors.kafka.cluster.log_reader import Log
from sketchstream_connectors.kafka.publishing.sealed import (
    Headers,
    NewestFrontiers,
    digest_of,
    entry_records,
    frontier_record,
    stamp,
)

if TYPE_CHECKING:
    from kafka import KafkaProducer


FRONTIERS_AGE_S = 5.0
"""Seconds for which frontiers that were read serve as the newest: an older frontier only covers less."""
TAILS = (4, 16, 64)
"""Numbers of last records of a partition among which a frontier is looked for, one number after the other."""
FETCH_BYTES = 2**15
"""Most that a broker sends of one partition at a time where frontiers are read, but for one larger batch."""
REMEMBERED = 1 << 16
"""Most digests of published bodies that are kept, the newest: repetitions of a publication come soon after it."""
PREFIX = "__sketchstream.errors."
MAX_BLOCK_MS = 5_000
"""Longest wait for the metadata of a topic of refused records, which must not hold up the counting."""
AWAY_S = 5.0
"""Seconds during which a topic that took no refused record is not tried again."""

Record = tuple[bytes, bytes, Headers]


class Outlet:
    """One idempotent producer; a send waits for its acknowledgement. After an error it is replaced.

    Args:
        connection: connection to the cluster.
        client_id: client id of the producer.
        max_block_ms: longest wait of a send for the metadata of its topic; default: the configuration's.
    """

    def __init__(self, connection: Connection, client_id: str, max_block_ms: int | None = None) -> None:
        self._connection = connection
        self._client_id = client_id
        self._more: dict[str, object] = {} if max_block_ms is None else {"max_block_ms": max_block_ms}
        self._producer: KafkaProducer | None = None
        self._lock = threading.Lock()

    def producer(self) -> KafkaProducer:
        """The producer, connected when it is first needed."""
        with self._lock:
            if self._producer is None:
                self._producer = self._connection.producer(
                    client_id=self._client_id,
                    batch_size=2**20,
                    max_request_size=4 * 2**20,
                    **self._more,
                )
            return self._producer

    def send(
        self,
        topic: str,
        partition: int | None,
        records: Iterable[Record],
        action: str,
        timestamps: Iterable[int | None] = repeat(None),
    ) -> None:
        """Send records in order and return when all are acknowledged, which may take long behind a slow link.

        Args:
            topic: where to.
            partition: partition of the topic; None: the client chooses.
            records: keys, values and headers.
            action: names the step in errors.
            timestamps: timestamps of the records, ms; None: the time of sending.
        """
        producer = self.producer()
        acknowledged = Acknowledgements()
        try:
            with translate_errors(action):
                if partition is not None:
                    know_partition(producer, topic, partition)
                for (key, value, headers), timestamp in zip(records, timestamps, strict=False):
                    acknowledged.make_room(len(value))
                    future = producer.send(
                        topic, key=key, value=value, headers=headers, partition=partition, timestamp_ms=timestamp
                    )
                    acknowledged.add(future, len(value))
                acknowledged.wait_for_all()
        except BrokerError:
            self.discard(producer)
            raise

    def replace(self) -> None:
        """Discard the present producer."""
        with self._lock:
            producer = self._producer
        if producer is not None:
            self.discard(producer)

    def discard(self, producer: KafkaProducer) -> None:
        """Discard a producer; records that it has in flight may still arrive, with the same bytes."""
        with self._lock:
            if self._producer is producer:
                self._producer = None
        with contextlib.suppress(Exception):
            producer.close(timeout=0)
        with contextlib.suppress(Exception):
            producer._sender.force_close()

    def close(self) -> None:
        """Close."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):
                producer.close(timeout=5)


class KafkaPublisher:
    """See `stream.interfaces.Publisher`: everything about input partition p goes to partition p of the sealed topic.

    Args:
        connection: connection to the cluster.
        topic: sealed topic.
        sketches: names whose frontiers are looked for further back when the topic is read for the first time.
    """

    def __init__(self, connection: Connection, topic: str, sketches: Collection[str] = ()) -> None:
        self._connection = connection
        self._topic = topic
        self._sketches = frozenset(sketches)
        self._outlet = Outlet(connection, "sketchstream-sealed")
        self._published: dict[str, str] = {}
        self._remembering = threading.Lock()
        self._seen = NewestFrontiers()
        self._log: Log | None = None
        self._ends: dict[int, int] = {}
        self._read_at = float("-inf")
        self._reading = threading.Lock()

    def publish(self, partition: int, entries: Sequence[SealedEntry], frontiers: Sequence[Frontier]) -> None:
        """Publish entries, then frontiers, each acknowledged."""
        digests = {entry.key: digest_of(entry.body) for entry in entries}
        for key, digest in digests.items():
            if self._published.get(key, digest) != digest:
                raise DataLossError(
                    f"another body was already published as {key}: two publications of one window would cost its "
                    "privacy twice, so nothing was published"
                )
        action = f"publishing partition {partition} to {self._topic!r}"
        records = [(record, stamp(entry.window[1])) for entry in entries for record in entry_records(entry)]
        if records:
            bodies, stamps = zip(*records, strict=True)
            self._outlet.send(self._topic, partition, bodies, action, stamps)
            self._remember(digests)
            faults.checkpoint("publish.entries")
        if frontiers:
            stamps = tuple(stamp(f.published_through) for f in frontiers)
            self._outlet.send(self._topic, partition, [frontier_record(f) for f in frontiers], action, stamps)
            faults.checkpoint("publish.frontiers")

    def _remember(self, digests: Mapping[str, str]) -> None:
        """Remember published entries, and forget the oldest after months."""
        with self._remembering:
            for key, digest in digests.items():
                self._published.pop(key, None)
                self._published[key] = digest
            for key in list(islice(self._published, max(0, len(self._published) - REMEMBERED))):
                del self._published[key]

    def settle(self, sketch: str, revision: int, claim: Claim) -> Boundary:
        """Make the only claim: without a `KafkaHistory`, nothing but workers publishes. See `Publisher.settle`."""
        return claim(Boundary())

    def frontiers(self) -> Mapping[tuple[str, int, int], Frontier]:
        """Newest frontiers of all partitions, from the tails of the log, up to a few seconds old.

        A publication ends with its frontiers, so the last record of a partition is one of them unless a publication
        has just been interrupted. No more records are read than it takes to find one: the others are bodies, which may
        be large, of all partitions.
        """
        with self._reading:
            if time.monotonic() - self._read_at < FRONTIERS_AGE_S:
                return dict(self._seen.frontiers)
            try:
                if self._log is None:
                    self._log = Log(self._connection, self._topic, fetch_bytes=FETCH_BYTES, poll_records=TAILS[0])
                self._read_ends(self._log)
            except BrokerError:
                if self._log is not None:
                    with contextlib.suppress(Exception):
                        self._log.close()
                self._log = None
            self._read_at = time.monotonic()
            return dict(self._seen.frontiers)

    def _read_ends(self, log_: Log) -> None:
        """Read the frontiers that each partition ends with, as far as they are not known."""
        extent, ends = log_.extent(), self._ends
        # ends that have gone back are those of another topic of this name
        floors = {
            p: max(begin, ends.get(p, 0) if ends.get(p, 0) <= extent.ends[p] else 0)
            for p, begin in extent.begins.items()
        }
        first, with_frontier = not ends, set[int]()
        stops = dict(extent.ends)
        for tail in TAILS:
            missed = first and not self._sketches <= {frontier.sketch for frontier in self._seen.frontiers.values()}
            starts = {
                p: max(floors[p], end - tail) for p, end in extent.ends.items() if missed or p not in with_frontier
            }
            for records, _ in log_.batches(starts, {p: stops[p] for p in starts}):
                for record in records:
                    if self._seen.add(record):
                        with_frontier.add(record.partition)
            stops |= starts
        self._ends = dict(extent.ends)

    def close(self) -> None:
        """Close."""
        self._outlet.close()
        if self._log is not None:
            with contextlib.suppress(Exception):
                self._log.close()


@dataclass
class _Letter:
    """One refused record that is being sent.

    Args:
        topic: destination topic.
        record: key, value and headers to send.
        bare: smaller record to send if the topic does not accept a record of this size.
        future: the producer's future for this record.
        done: whether the record was acknowledged.
    """

    topic: str
    record: tuple[bytes | None, bytes | None, Headers] = field(repr=False)
    bare: Record | None = field(default=None, repr=False)
    future: Any = None
    done: bool = False


def _too_large(error: BrokerError) -> bool:
    """Whether the topic, or the client, refuses a record of this size."""
    from kafka.errors import MessageSizeTooLargeError, RecordListTooLargeError

    return isinstance(error.__cause__, MessageSizeTooLargeError | RecordListTooLargeError)


def _mark_refused(marks: Mapping[str, str]) -> Headers:
    """The headers that describe a refused record."""
    return [(PREFIX + name, text.encode()) for name, text in marks.items()]


class KafkaSink:
    """See `stream.interfaces.Sink`: refused records go to their topics, at least once, keyed by where they came from.

    Args:
        connection: connection to the cluster.
        input_topic: named in the headers.
        late_topic: topic for late and future records; empty: they are only counted.
        dead_letter_topic: topic for records that cannot be read; empty: they are only counted.

    A record that is sent with its contents keeps key, value and headers if the topic accepts records of that size,
    except for headers with our prefix. Otherwise the key of the letter names the record.
    """

    def __init__(
        self, connection: Connection, input_topic: str, *, late_topic: str = "", dead_letter_topic: str = ""
    ) -> None:
        self._topics = {"late": late_topic, "future": late_topic}
        self._dead_letters = dead_letter_topic
        self._input = input_topic
        self._outlet = Outlet(connection, "sketchstream-refused", max_block_ms=MAX_BLOCK_MS)
        self._pending: dict[int, list[_Letter]] = {}
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._away_until = float("-inf")

    def takes(self, reason: Refusal) -> bool:
        """Whether there is a topic for them."""
        return bool(self._topics.get(reason, self._dead_letters))

    def send(self, partition: int, reason: Refusal, record: RawRecord, detail: str = "") -> None:
        """Queue one record of its partition. The next `flush` reports a failure."""
        topic = self._topics.get(reason, self._dead_letters)
        if not topic:
            return
        headers = [(name, value) for name, value in record.headers if not name.startswith(PREFIX)]
        marks = {
            "topic": self._input,
            "partition": str(partition),
            "offset": str(record.offset),
            "timestamp": str(record.timestamp_ms),
            "reason": reason,
            "message": detail,
        }
        bare: Record = (
            f"{self._input}/{partition}/{record.offset}".encode(),
            b"",
            _mark_refused(marks | {"left.out": "key, value, headers"}),
        )
        letter = _Letter(topic, bare)
        if record.key is not None or record.value is not None:
            if record.headers_cut or len(headers) < len(record.headers):
                marks["left.out"] = "headers"
            letter = _Letter(topic, (record.key, record.value, headers + _mark_refused(marks)), bare)
        with self._lock:
            self._pending.setdefault(partition, []).append(letter)

    def flush(self, partition: int, timeout_s: float = 10.0) -> None:
        """Wait until all sent records of a partition are acknowledged; else BrokerError: no snapshot may pass them.

        One partition at a time, because a failed letter also fails everything else in flight in its producer. If a
        topic has just accepted nothing, other partitions do not wait for it again.
        """
        with self._lock:
            pending = self._pending.pop(partition, [])
        if not pending:
            return
        with self._flushing:
            try:
                if time.monotonic() < self._away_until:
                    raise BrokerError("refused records were not acknowledged: their topic took none a moment ago")
                self._send(pending, time.monotonic() + timeout_s)
            except BrokerError:
                left = [letter for letter in pending if not letter.done]
                for letter in left:
                    letter.future = None  # sent again by the next flush: at least once
                with self._lock:
                    self._pending[partition] = left + self._pending.get(partition, [])
                raise

    def _send(self, pending: Sequence[_Letter], deadline: float) -> None:
        """Deliver letters; one by one if any is too large."""
        try:
            try:
                self._deliver(pending, deadline)
            except BrokerError as error:
                if not _too_large(error):
                    raise
                # a letter that is too large fails its producer, and everything that it has in flight
                for letter in [letter for letter in pending if not letter.done]:
                    self._deliver_alone(letter, deadline)
        except BrokerError:
            self._outlet.replace()
            self._away_until = time.monotonic() + AWAY_S
            raise

    def forget(self, partition: int) -> None:
        """Forget the waiting letters of a dropped partition; they are sent again with its records."""
        with self._lock:
            self._pending.pop(partition, None)

    def _deliver(self, letters: Sequence[_Letter], deadline: float) -> None:
        """Hand over the letters that no producer has, and wait until all are acknowledged."""
        for letter in letters:
            if letter.future is None:
                key, value, headers = letter.record
                with translate_errors(f"sending a refused record to {letter.topic!r}"):
                    letter.future = self._outlet.producer().send(letter.topic, key=key, value=value, headers=headers)
        with translate_errors("refused records were not acknowledged"):
            for letter in letters:
                letter.future.get(timeout=max(0.001, deadline - time.monotonic()))
                letter.done = True

    def _deliver_alone(self, letter: _Letter, deadline: float) -> None:
        """Deliver one letter; without its contents if it is too large."""
        self._outlet.replace()
        letter.future = None
        try:
            self._deliver([letter], deadline)
        except BrokerError as error:
            if not _too_large(error) or letter.bare is None:
                raise
            letter.record, letter.bare = letter.bare, None
            self._deliver_alone(letter, deadline)

    def close(self) -> None:
        """Close."""
        self._outlet.close()
