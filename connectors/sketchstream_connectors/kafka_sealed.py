"""How sealed sketches and frontiers look as records of a topic, and the source that readers take them from.

In: entries and frontiers, or a topic. Out: records of at most 512 KiB, or entries and frontiers again. Touches: the
sealed topic (reading), a consumer without a group.

The record's key says all that is needed to put a body together again; headers repeat it for people and tools, and may
be lost in a mirror. Nothing here says which records went in: no offsets, no counts, no watermark.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sketchstream.errors import BrokerError, ConfigError
from sketchstream.stream import marks
from sketchstream.stream.ports import GROWTH, Frontier, SealedEntry
from sketchstream_connectors.kafka_client import Connection, ours

if TYPE_CHECKING:
    from kafka import KafkaConsumer

log = logging.getLogger("sketchstream.kafka")

CHUNK_BYTES = 512 * 1024 - 2048
FORMAT = b"1"
SEALED, FRONTIER = "sealed", "frontier"
READ_TIMEOUT_S = 60.0

Headers = list[tuple[str, bytes]]


def digest_of(body: bytes) -> str:
    """Names a body: two bodies under one key have different ones."""
    return hashlib.blake2b(body, digest_size=16, person=b"sketch-sealed").hexdigest()


def entry_records(entry: SealedEntry) -> Iterator[tuple[bytes, bytes, Headers]]:
    """Key, value and headers of each record of a sealed sketch; the same for every publication of it."""
    digest = digest_of(entry.body)
    count = max(1, -(-len(entry.body) // CHUNK_BYTES))
    start, end = entry.window
    for number in range(count):
        key = f"{SEALED}/{entry.sketch}/{entry.revision}/{start}/{end}/{entry.partition}"
        key += f"/{entry.seal_id.hex()}/{digest}/{number}/{count}"
        headers: Headers = [
            ("content-type", b"application/vnd.sketchstream.sealed"),
            ("ss-format", FORMAT),
            ("ss-window-start", b"%d" % start),
            ("ss-window-end", b"%d" % end),
            ("ss-digest", digest.encode()),
        ]
        yield key.encode(), entry.body[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES], headers


def frontier_record(frontier: Frontier) -> tuple[bytes, bytes, Headers]:
    """Key, value and headers of a frontier."""
    key = f"{FRONTIER}/{frontier.sketch}/{frontier.revision}/{frontier.partition}"
    value = {
        "v": 1,
        "published_through": frontier.published_through,
        "partitions": frontier.partitions,
        "sequence": frontier.sequence,
    }
    value |= marks.set_numbers(frontier.partial, frontier.diverged) | frontier.growth()
    headers: Headers = [("content-type", b"application/json"), ("ss-format", FORMAT)]
    return key.encode(), json.dumps(value, separators=(",", ":")).encode(), headers


@dataclass(frozen=True, order=True)
class Body:
    """One body under one key, as the log names it."""

    sketch: str
    revision: int
    window: tuple[int, int]
    partition: int
    seal_id: str
    digest: str
    count: int


def read_key(key: bytes | None) -> tuple[Body, int] | tuple[str, int, int] | None:
    """What a record's key says: a chunk of a body, a frontier's (sketch, revision, partition), or nothing of ours."""
    try:
        parts = (key or b"").decode().split("/")
        if parts[0] == FRONTIER and len(parts) == 4:
            return parts[1], int(parts[2]), int(parts[3])
        if parts[0] == SEALED and len(parts) == 10:
            window = (int(parts[3]), int(parts[4]))
            body = Body(parts[1], int(parts[2]), window, int(parts[5]), parts[6], parts[7], int(parts[9]))
            return body, int(parts[8])
    except ValueError:
        return None
    return None


def read_frontier(named: tuple[str, int, int], value: bytes | None) -> Frontier | None:
    """A frontier again; None if the value is not one."""
    try:
        said = json.loads(value or b"")
        partial, diverged = marks.read({name: int(said[name]) for name in marks.NAMES if name in said})
        sketch, revision, partition = named
        return Frontier(
            sketch=sketch,
            revision=revision,
            partition=partition,
            published_through=int(said["published_through"]),
            partitions=int(said["partitions"]),
            sequence=int(said["sequence"]),
            partial=partial,
            diverged=diverged,
            **{name: int(said[name]) for name in GROWTH if name in said},
        )
    except (ValueError, KeyError, TypeError):
        return None


@dataclass
class Seen:
    """What was read of the topic so far: newest frontiers, and where the chunks of each body are."""

    frontiers: dict[tuple[str, int, int], Frontier] = field(default_factory=dict)
    chunks: dict[Body, dict[int, int]] = field(default_factory=dict)

    def add(self, record: Any) -> None:
        """Take in one record of the client."""
        named = read_key(record.key)
        if named is None:
            return
        if len(named) == 2:
            body, number = named
            self.chunks.setdefault(body, {}).setdefault(number, record.offset)
            return
        frontier = read_frontier(named, record.value)
        known = self.frontiers.get(named)
        if frontier is not None and (known is None or frontier.sequence >= known.sequence):
            self.frontiers[named] = frontier


class Log:
    """A consumer that reads a topic from where it stopped to its present end; for one thread at a time.

    Args:
        connection: of the cluster.
        topic: sealed topic.
        tail: start that many records before the end of each partition, instead of at the beginning.
        only: read that partition only.
    """

    def __init__(self, connection: Connection, topic: str, *, tail: int | None = None, only: int | None = None) -> None:
        self._topic = topic
        self._only = only
        self._tail = tail
        self._positions: dict[int, int] = {}
        self._consumer: KafkaConsumer = connection.consumer(
            group_id=None, group_instance_id=None, max_partition_fetch_bytes=8 * 2**20, metrics_enabled=False
        )

    def advance(self) -> Iterator[Any]:
        """Records up to the end as it is when this is called.

        Raises:
            BrokerError: the broker does not answer, or a record is gone that should be there.
        """
        from kafka import TopicPartition

        with ours(f"reading {self._topic!r}"):
            partitions = self._consumer.partitions_for_topic(self._topic)
            if not partitions:
                msg = f"the sealed topic {self._topic!r} does not exist; `sketchstream topics create` makes it"
                raise ConfigError(msg)
            chosen = sorted(partitions) if self._only is None else [self._only]
            tps = [TopicPartition(self._topic, p) for p in chosen]
            ends = self._consumer.end_offsets(tps, timeout_ms=20_000)
            begins = self._consumer.beginning_offsets(tps, timeout_ms=20_000)
            if self._consumer.assignment() != set(tps):
                self._consumer.assign(tps)
            for tp in tps:
                first = begins[tp] if self._tail is None else max(begins[tp], ends[tp] - self._tail)
                self._positions[tp.partition] = max(first, self._positions.get(tp.partition, 0))
                self._consumer.seek(tp, self._positions[tp.partition])
            deadline = time.monotonic() + READ_TIMEOUT_S
            while any(self._consumer.position(tp) < ends[tp] for tp in tps):
                found = self._consumer.poll(timeout_ms=500)
                for tp, records in found.items():
                    yield from (record for record in records if record.offset < ends[tp])
                if found:
                    deadline = time.monotonic() + READ_TIMEOUT_S
                elif time.monotonic() > deadline:
                    msg = f"{self._topic!r} gave nothing for {READ_TIMEOUT_S:.0f} s although there is more to read"
                    raise BrokerError(msg)
            self._positions = {tp.partition: max(ends[tp], self._positions[tp.partition]) for tp in tps}

    def fetch(self, partition: int, offsets: Sequence[int]) -> list[bytes]:
        """Values of the records at these offsets of one partition."""
        from kafka import TopicPartition

        tp = TopicPartition(self._topic, partition)
        values: list[bytes] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        with ours(f"reading {self._topic!r}"):
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
                        msg = f"a record of {self._topic!r}, partition {partition}, is gone"
                        raise BrokerError(msg)
        return values

    def close(self) -> None:
        """Let go."""
        self._consumer.close(autocommit=False, timeout_ms=1000)


class KafkaSealedSource:
    """See `ports.SealedSource`: each `frontiers()` reads what is new; `entries()` gives what was read by then."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._log = Log(connection, topic)
        self._seen = Seen()

    def frontiers(self) -> Sequence[Frontier]:
        """Newest frontier of each (sketch, revision, partition)."""
        for record in self._log.advance():
            self._seen.add(record)
        return list(self._seen.frontiers.values())

    def entries(self, sketch: str, window: Callable[[tuple[int, int]], bool] | None = None) -> Iterator[SealedEntry]:
        """Bodies of which every chunk is there and right; one that was cut short by a crash comes again, whole."""
        if not self._seen.frontiers and not self._seen.chunks:
            self.frontiers()
        for body, places in sorted(self._seen.chunks.items()):
            if body.sketch != sketch or (window is not None and not window(body.window)):
                continue
            if len(places) != body.count:
                continue
            data = b"".join(self._log.fetch(body.partition, [places[number] for number in range(body.count)]))
            if digest_of(data) != body.digest:
                log.error("event=sealed_body_altered sketch=%s partition=%d", body.sketch, body.partition)
                continue
            yield SealedEntry(
                body.sketch, body.revision, body.window, body.partition, bytes.fromhex(body.seal_id), data
            )

    def sketches(self) -> Sequence[str]:
        """Names of the sketches of which anything is known."""
        if not self._seen.frontiers and not self._seen.chunks:
            self.frontiers()
        return sorted({key[0] for key in self._seen.frontiers} | {body.sketch for body in self._seen.chunks})

    def close(self) -> None:
        """Let go."""
        self._log.close()
