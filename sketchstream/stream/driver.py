"""A test driver: a configuration run in this process, without sockets, files or clocks of its own.

In: a configuration, records with timestamps, moves of the clock. Out: sealed windows. Touches: memory only (and the
items_file and key file that the configuration names). The worker, the decoders and the partition states are the real
ones; source, store, publisher and clock are kept in memory, under the same laws.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sketchstream.errors import ConfigError, DataLossError, FencedError
from sketchstream.serve.sealed import SealedReader, SealedWindow
from sketchstream.stream.config import Config
from sketchstream.stream.launch import rules, settings
from sketchstream.stream.ports import (
    Assigned,
    Chunk,
    Decoded,
    Fresh,
    Frontier,
    RawRecord,
    Refusal,
    Restored,
    SealedEntry,
    Snapshot,
    SourceEvent,
)
from sketchstream.stream.worker import Settings, Worker

if TYPE_CHECKING:
    from sketchstream.hashing import Key
    from sketchstream_connectors.fields import Decoder

Moment = int | str | datetime


def moment_ms(moment: Moment) -> int:
    """Ms since 1970 of a number of ms, an RFC 3339 text or an aware datetime.

    Examples:
        >>> moment_ms("1970-01-01T00:01:00Z")
        60000
    """
    if isinstance(moment, int):
        return moment
    when = datetime.fromisoformat(moment.replace("Z", "+00:00")) if isinstance(moment, str) else moment
    if when.tzinfo is None:
        msg = "a time needs a zone, for example 2013-01-01T00:00:00Z"
        raise ConfigError(msg)
    return round((when - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


class ManualClock:
    """A clock that stands until it is moved. A `Clock`."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._monotonic = 1000.0

    def now_ms(self) -> int:
        """As set."""
        return self._now_ms

    def monotonic(self) -> float:
        """Moves with `advance`."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both clocks on."""
        self._now_ms += round(seconds * 1000)
        self._monotonic += seconds


class MemoryLog:
    """A topic in memory: records by partition. `MemorySource` reads it; several sources may."""

    def __init__(self, partitions: int) -> None:
        self.partitions: list[list[RawRecord]] = [[] for _ in range(partitions)]

    def append(self, partition: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> int:
        """Add one record; returns its offset."""
        log = self.partitions[partition]
        log.append(RawRecord(len(log), timestamp_ms, key, value))
        return len(log) - 1


class MemorySource:
    """Reads a `MemoryLog`. A `Source`.

    Args:
        log: the records.
        decoder: of their payloads.
        owned: partitions to announce; None: all.
        chunk: records in one chunk at most.
    """

    def __init__(
        self, log: MemoryLog, decoder: Decoder, owned: Collection[int] | None = None, chunk: int = 1000
    ) -> None:
        self._log = log
        self._decoder = decoder
        self.owned = list(range(len(log.partitions)) if owned is None else owned)
        self.chunk = chunk
        self._announced: set[int] = set()
        self._paused: set[int] = set()
        self._positions: dict[int, int] = {}

    def poll(self, timeout_s: float) -> list[SourceEvent]:
        """One chunk of each partition that has one."""
        del timeout_s
        fresh = tuple(partition for partition in self.owned if partition not in self._announced)
        if fresh:
            self._announced.update(fresh)
            return [Assigned(fresh)]
        events: list[SourceEvent] = []
        for partition in self.owned:
            begin = self._positions.get(partition, 0)
            records = self._log.partitions[partition][begin : begin + self.chunk]
            if records and partition not in self._paused:
                self._positions[partition] = begin + len(records)
                events.append(chunk_of(partition, begin, records, self._decoder))
        return events

    def seek(self, partition: int, position: int) -> None:
        """Go on from here."""
        self._positions[partition] = position

    def pause(self, partition: int) -> None:
        """Deliver nothing of it."""
        self._paused.add(partition)

    def resume(self, partition: int) -> None:
        """Deliver again."""
        self._paused.discard(partition)

    def partition_count(self, *, fresh: bool = False) -> int:
        """Partitions of the log now."""
        del fresh
        return len(self._log.partitions)

    def beginning(self, partition: int) -> int:
        """Nothing is ever trimmed."""
        del partition
        return 0

    def high_watermarks(self, partitions: Collection[int] | None = None) -> Mapping[int, int]:
        """Ends of the log."""
        chosen = range(len(self._log.partitions)) if partitions is None else partitions
        return {partition: len(self._log.partitions[partition]) for partition in chosen}

    def close(self, *, leave: bool = False) -> None:
        """Nothing is held."""
        del leave


def chunk_of(partition: int, begin: int, records: Sequence[RawRecord], decoder: Decoder) -> Chunk:
    """A chunk of consecutive records that starts at position `begin`."""
    from sketchstream_connectors.records import Records

    def spans(payloads: Iterable[bytes | None], at: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], bytes]:
        starts, ends, joined = [], [], []
        for payload in payloads:
            starts.append(-1 if payload is None else at)
            at += len(payload or b"")
            ends.append(at)
            joined.append(payload or b"")
        return np.array(starts, np.int64), np.array(ends, np.int64), b"".join(joined)

    key_start, key_end, keys = spans((record.key for record in records), 0)
    value_start, value_end, values = spans((record.value for record in records), len(keys))
    offsets = np.array([record.offset for record in records], np.int64)
    stamps = np.array([record.timestamp_ms for record in records], np.int64)
    buffer = np.frombuffer(keys + values or b"\0", np.uint8)
    following = begin + len(records)
    decoded: Decoded = decoder.decode(
        Records(offsets, stamps, buffer, key_start, key_end, value_start, value_end, following)
    )
    return Chunk(
        partition, begin, following, offsets, stamps, decoded, lambda index: records[index], len(keys) + len(values)
    )


class MemoryStore:
    """Snapshots in memory, fenced like the real ones: a `StateStore` that outlives workers.

    Args:
        saved: shared with other stores over the same state; each `take` fences the others.
    """

    def __init__(self, saved: MemorySnapshots | None = None) -> None:
        self.saved = saved or MemorySnapshots({}, {}, {})
        self._tokens: dict[int, int] = {}
        self.fail: Exception | None = None

    def take(self, partition: int) -> Restored | Fresh:
        """The committed snapshot; earlier owners are fenced."""
        if self.fail is not None:
            raise self.fail
        self._tokens[partition] = self.saved.tokens.get(partition, 0) + 1
        self.saved.tokens[partition] = self._tokens[partition]
        snapshot = self.saved.snapshots.get(partition)
        if snapshot is None:
            return Fresh()
        return Restored(snapshot.position, snapshot.manifest, dict(self.saved.blobs[partition]))

    def commit(self, partition: int, snapshot: Snapshot) -> None:
        """Replace the snapshot, unless another store has taken the partition."""
        if self.fail is not None:
            raise self.fail
        if self._tokens.get(partition) != self.saved.tokens.get(partition):
            msg = f"partition {partition} was taken by another worker"
            raise FencedError(msg)
        before = self.saved.blobs.get(partition, {})
        missing = snapshot.keep - before.keys()
        if missing:
            msg = f"partition {partition}: a snapshot keeps blobs that were never brought"
            raise DataLossError(msg)
        self.saved.blobs[partition] = {name: before[name] for name in snapshot.keep} | dict(snapshot.blobs)
        self.saved.snapshots[partition] = snapshot

    def drop(self, partition: int) -> None:
        """Forget the token."""
        self._tokens.pop(partition, None)

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class MemorySnapshots:
    """What memory stores share: snapshots, their blobs, and who may write."""

    snapshots: dict[int, Snapshot]
    blobs: dict[int, dict[str, bytes]]
    tokens: dict[int, int]


class MemoryPublisher:
    """Keeps what was published: a `Publisher` and a `SealedSource`."""

    def __init__(self) -> None:
        self.log: list[SealedEntry] = []
        self._bodies: dict[str, bytes] = {}
        self._frontiers: dict[tuple[str, int, int], Frontier] = {}
        self.fail: Exception | None = None

    def publish(self, partition: int, entries: Sequence[SealedEntry], frontiers: Sequence[Frontier]) -> None:
        """Keep entries, then frontiers."""
        del partition
        if self.fail is not None:
            raise self.fail
        for entry in entries:
            if self._bodies.setdefault(entry.key, entry.body) != entry.body:
                msg = f"incident: {entry.key} was published twice with different contents"
                raise DataLossError(msg)
            self.log.append(entry)
        for frontier in frontiers:
            name = (frontier.sketch, frontier.revision, frontier.partition)
            if name not in self._frontiers or self._frontiers[name].sequence < frontier.sequence:
                self._frontiers[name] = frontier

    def frontiers(self) -> _Frontiers:
        """Newest frontiers, by name."""
        return _Frontiers(self._frontiers)

    def entries(self, sketch: str, window: Any = None) -> Iterator[SealedEntry]:
        """What was published of a sketch."""
        return (one for one in self.log if one.sketch == sketch and (window is None or window(one.window)))

    def sketches(self) -> Sequence[str]:
        """Names."""
        return sorted({one.sketch for one in self.log})

    def close(self) -> None:
        """Nothing is held."""


class _Sealed:
    """A `MemoryPublisher` as readers see it."""

    def __init__(self, publisher: MemoryPublisher) -> None:
        self._publisher = publisher

    def frontiers(self) -> Sequence[Frontier]:
        """Newest frontiers."""
        return list(self._publisher.frontiers().values())

    def entries(self, sketch: str, window: Any = None) -> Iterator[SealedEntry]:
        """What was published of a sketch."""
        return self._publisher.entries(sketch, window)

    def sketches(self) -> Sequence[str]:
        """Names."""
        return self._publisher.sketches()

    def close(self) -> None:
        """Nothing is held."""


_Frontiers = dict[tuple[str, int, int], Frontier]


class MemorySink:
    """Keeps what was refused. A `Sink`."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Refusal, RawRecord, str]] = []
        self.acknowledged = 0
        self.fail: Exception | None = None

    def send(self, partition: int, reason: Refusal, record: RawRecord, detail: str = "") -> None:
        """Keep one record."""
        self.sent.append((partition, reason, record, detail))

    def flush(self, timeout_s: float = 10.0) -> None:
        """All of them are here."""
        del timeout_s
        if self.fail is not None:
            raise self.fail
        self.acknowledged = len(self.sent)

    def close(self) -> None:
        """Nothing is held."""


class Driver:
    """Runs a configuration on records that a test feeds. For users' own tests.

    Args:
        config: a `Config`, or the text of a configuration file.
        partitions: of the input.
        now: where the clock begins; ms since 1970, RFC 3339, or an aware datetime.
        key: hash key, in place of the configuration's key file.

    Examples:
        >>> driver = Driver('''
        ... [kafka]
        ... bootstrap.servers = "unused:9092"
        ... group.id = "reach"
        ... [input]
        ... topic = "events"
        ... item = "user"
        ... item_type = "int"
        ... time = "ts"
        ... partitioned_by = "item"
        ... lateness = "5m"
        ... [[sketch]]
        ... name = "hourly"
        ... window = "1h"
        ... epsilon = 1
        ... domain = { size = 100 }
        ... ''', partitions=2, now="2024-01-01T00:00:00Z")
        >>> for minute in range(60):
        ...     at = f"2024-01-01T00:{minute:02}:00Z"
        ...     driver.send({"user": minute % 7, "ts": at}, timestamp=at)
        >>> driver.run()
        >>> driver.windows("hourly")                   # nothing has passed the end of the hour yet
        []
        >>> driver.kill()                              # as by SIGKILL: what was not committed is replayed
        >>> for partition in range(2):
        ...     at = "2024-01-01T01:06:00Z"
        ...     driver.send({"user": 3, "ts": at}, timestamp=at, partition=partition)
        >>> driver.run()
        >>> [window.fields()["complete"] for window in driver.windows("hourly")]
        [True]
        >>> driver.advance(hours=3)                    # silent partitions follow the clock
        >>> [window.fields()["window_start"] for window in driver.windows("hourly")]
        ['2024-01-01T00:00:00Z', '2024-01-01T01:00:00Z']
    """

    def __init__(
        self, config: Config | str, *, partitions: int = 1, now: Moment = 1_700_000_000_000, key: Key | None = None
    ) -> None:
        from sketchstream_connectors.fields import Decoder

        self.config = Config.parse(config) if isinstance(config, str) else config
        given = self.config.input
        form = {"jsonl": "json", "msgpack": "packed"}.get(self.config.format, self.config.format)
        self._decoder = Decoder(form, given.item, given.item_type, given.weight, given.time)  # type: ignore[arg-type]
        common = rules(self.config if key is None else replace(self.config, key_file=None))
        self._rules = common if key is None else replace(common, key=key)
        self.clock = ManualClock(moment_ms(now))
        self.log = MemoryLog(partitions)
        self.snapshots = MemorySnapshots({}, {}, {})
        self.publisher = MemoryPublisher()
        self.sink = MemorySink()
        self._worker: Worker | None = None

    @property
    def worker(self) -> Worker:
        """The running worker; after `kill`, a new one that restores what was committed."""
        if self._worker is None:
            own = settings(self.config)
            self._worker = Worker(
                self._rules,
                MemorySource(self.log, self._decoder),
                MemoryStore(self.snapshots),
                self.publisher,
                settings=Settings(
                    snapshot_every_s=own.snapshot_every_s,
                    publish_every_s=0.0,
                    idle_ms=own.idle_ms,
                    threads=0,
                    dead_letter_payload=own.dead_letter_payload,
                    dead_letters_per_s=own.dead_letters_per_s,
                ),
                sink=self.sink,
                clock=self.clock,
            )
        return self._worker

    def send(
        self,
        value: object,
        *,
        key: bytes | None = None,
        timestamp: Moment | None = None,
        partition: int | None = None,
    ) -> None:
        """Append one record to the input.

        Args:
            value: bytes, None (a tombstone), or anything that JSON can write.
            key: of the record.
            timestamp: of the record (its Kafka timestamp); default: the clock.
            partition: default: where the configured partitioner sends the key, or, without one, the item.
        """
        payload = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        if partition is None:
            partition = self._partition(value, payload, key)
        stamp = self.clock.now_ms() if timestamp is None else moment_ms(timestamp)
        self.log.append(partition, stamp, key, payload)

    def _partition(self, value: object, payload: bytes | None, key: bytes | None) -> int:
        from sketchstream.items import Items
        from sketchstream.stream.placement import belongs

        count = len(self.log.partitions)
        if count == 1:
            return 0
        if key is None:
            found = value
            for part in (self.config.input.item or "").split("."):
                found = found.get(part) if isinstance(found, Mapping) else None
            key = found if isinstance(found, bytes) else None if found is None else str(found).encode()
        if key is None:
            return zlib.crc32(payload or b"") % count
        way = self._rules.partitioner or "murmur2"
        return next(p for p in range(count) if belongs(Items.of([key]), way, [count], p)[0])

    def run(self, steps: int = 10_000) -> None:
        """Let the worker read all that was sent, and publish what is sealed.

        Raises:
            DataLossError: every partition halted.
        """
        for _ in range(steps):
            before = self._state()
            self.worker.step(0.0)
            if self._state() == before and self.worker.gauges().ready:
                return

    def _state(self) -> tuple[object, ...]:
        gauges = self.worker.gauges()
        positions = tuple((one.partition, one.status, one.position) for one in gauges.partitions)
        counters = self.worker.metrics.counters
        return positions, counters["published"], counters["snapshots"], counters["gaps"], len(self.publisher.log)

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0) -> None:
        """Move the clock, in steps short enough for the worker to notice silence; snapshots are taken as configured."""
        left = seconds + 60 * minutes + 3600 * hours
        idle = self._rules.lateness_ms / 1000 if self.config.input.idle is None else self.config.input.idle / 1000
        stride = max(idle / 8, left / 200, 0.001)
        while left > 0:
            self.clock.advance(min(stride, left))
            left -= stride
            self.run()

    def snapshot(self) -> None:
        """Commit the states of all partitions now."""
        self.run()
        self.worker.finish()

    def kill(self) -> None:
        """End the worker as SIGKILL would: nothing more is committed. The next step starts a new one."""
        self._worker = None

    def add_partitions(self, total: int) -> None:
        """Give the input more partitions."""
        while len(self.log.partitions) < total:
            self.log.partitions.append([])
            if self._worker is not None:
                self.worker_source.owned.append(len(self.log.partitions) - 1)

    @property
    def worker_source(self) -> MemorySource:
        """The running worker's source."""
        source = self.worker._source
        assert isinstance(source, MemorySource)
        return source

    def windows(self, sketch: str) -> list[SealedWindow]:
        """What was sealed and published of a sketch, ascending."""
        return SealedReader(_Sealed(self.publisher)).windows(sketch)
