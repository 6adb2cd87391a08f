"""The ports of the worker in memory: for the driver, tests and benches, under the laws of the real ones.

In: records, snapshots, sealed sketches. Out: the same. Touches: memory only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sketchstream.errors import DataLossError, FencedError, IncidentError
from sketchstream.stream.interfaces import (
    Assigned,
    Chunk,
    Deleted,
    Fresh,
    Frontier,
    Peer,
    RawRecord,
    Refusal,
    Restored,
    SealedEntry,
    Snapshot,
    Source,
    SourceEvent,
)
from sketchstream.stream.windows.boundary import Boundary, Claim
from sketchstream.stream.windows.calendar import is_within
from sketchstream_connectors.decode.records import Records

if TYPE_CHECKING:
    from sketchstream_connectors.decode.decoder import Decoder


class ManualClock:
    """A `Clock` that stands until it is moved."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._monotonic = 1000.0

    def now_ms(self) -> int:
        """The time that the test has set."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds of a clock that only `advance` moves."""
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


class MemorySource(Source):
    """A `Source` that reads a `MemoryLog`.

    Args:
        log: the records.
        decoder: decoder of their payloads.
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
        self._known = 0

    @property
    def joined(self) -> bool:
        """Whether the partitions were announced."""
        return set(self.owned) <= self._announced

    def poll(self, timeout_s: float) -> list[SourceEvent]:
        """One chunk of each partition that has one."""
        fresh = tuple(partition for partition in self.owned if partition not in self._announced)
        if fresh:
            self._known = len(self._log.partitions)
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

    def numbers(self) -> Sequence[int]:
        """All partitions, from 0."""
        return range(self.partition_count())

    def partition_count(self, partition: int = 0, *, fresh: bool = False) -> int:
        """Partitions of the log now; not fresh, as of when they were announced."""
        if fresh or self._known == 0:
            self._known = len(self._log.partitions)
        return self._known

    def high_watermarks(self, partitions: Collection[int] | None = None) -> Mapping[int, int]:
        """Ends of the log."""
        chosen = range(len(self._log.partitions)) if partitions is None else partitions
        return {partition: len(self._log.partitions[partition]) for partition in chosen}

    def close(self, *, leave: bool = False) -> None:
        """Nothing is held."""


def chunk_of(partition: int, begin: int, records: Sequence[RawRecord], decoder: Decoder) -> Chunk:
    """A chunk of consecutive records that starts at position `begin`."""

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
    events = decoder.decode(
        Records(offsets, stamps, buffer, key_start, key_end, value_start, value_end, begin, following)
    )
    size, tombstones = len(keys) + len(values), value_start < 0
    return Chunk(partition, begin, following, offsets, stamps, events, lambda index: records[index], size, tombstones)


class MemoryStore:
    """Snapshots in memory, fenced like the real ones: a `StateStore` that outlives workers.

    Args:
        saved: shared with other stores over the same state; each `take` fences the others.
    """

    def __init__(self, saved: MemorySnapshots | None = None) -> None:
        self.saved = saved or MemorySnapshots({}, {}, {})
        self._tokens: dict[int, int] = {}
        self.fail: Exception | None = None
        self.rewrite_after_s: float | None = None
        self.superseded_s = 0.0
        self.broker_time: tuple[int, float] | None = None

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
            raise FencedError(f"partition {partition} was taken by another worker")
        before = self.saved.blobs.get(partition, {})
        missing = snapshot.keep - before.keys()
        if missing:
            raise DataLossError(f"partition {partition}: a snapshot keeps blobs that were never brought")
        self.saved.blobs[partition] = {name: before[name] for name in snapshot.keep} | {
            name: b"".join(map(bytes, snapshot.pieces(name)[1])) for name in snapshot.blobs
        }
        self.saved.snapshots[partition] = snapshot

    def peers(self) -> Sequence[Peer]:
        """What is stored of all partitions."""
        return [
            Peer(snapshot.spec_fingerprint, snapshot.begins, snapshot.newest)
            for snapshot in self.saved.snapshots.values()
        ]

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
    """Keeps all publications: a `Publisher` and a `SealedSource`."""

    def __init__(self) -> None:
        self.log: list[SealedEntry] = []
        self._bodies: dict[str, bytes] = {}
        self._frontiers: dict[tuple[str, int, int], Frontier] = {}
        self.boundaries: dict[tuple[str, int], Boundary] = {}
        self.fail: Exception | None = None

    def publish(self, partition: int, entries: Sequence[SealedEntry], frontiers: Sequence[Frontier]) -> None:
        """Keep entries, then frontiers."""
        if self.fail is not None:
            raise self.fail
        for entry in entries:
            if self._bodies.setdefault(entry.key, entry.body) != entry.body:
                raise IncidentError(f"{entry.key} was published twice with different contents")
            self.log.append(entry)
        for frontier in frontiers:
            name = (frontier.sketch, frontier.revision, frontier.partition)
            if name not in self._frontiers or self._frontiers[name].sequence < frontier.sequence:
                self._frontiers[name] = frontier

    def settle(self, sketch: str, revision: int, claim: Claim) -> Boundary:
        """Add a claim."""
        boundary = claim(self.boundaries.get((sketch, revision), Boundary()))
        self.boundaries[sketch, revision] = boundary
        return boundary

    def frontiers(self) -> Mapping[tuple[str, int, int], Frontier]:
        """Newest frontiers, by name."""
        return dict(self._frontiers)

    def sketches(self) -> Sequence[str]:
        """Names."""
        return sorted({entry.sketch for entry in self.log})

    def close(self) -> None:
        """Nothing is held."""


class MemorySealed:
    """A `MemoryPublisher` as readers see it."""

    def __init__(self, publisher: MemoryPublisher) -> None:
        self._publisher = publisher

    def frontiers(self, sketch: str | None = None) -> Sequence[Frontier]:
        """Newest frontiers."""
        return [frontier for frontier in self._publisher.frontiers().values() if sketch in (None, frontier.sketch)]

    def read(
        self, sketch: str | None = None, since: int | None = None, until: int | None = None
    ) -> Iterator[Frontier | SealedEntry | Deleted]:
        """What was published of a sketch."""
        yield from self.frontiers(sketch)
        entries = (entry for entry in self._publisher.log if entry.final and sketch in (None, entry.sketch))
        yield from sorted(
            (entry for entry in entries if is_within(entry.window, since, until)), key=lambda entry: entry.window
        )

    def closed(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """Instalments of closed positions."""
        instalments = [entry for entry in self._in_range(sketch, since, until) if entry.positions is not None]
        yield from sorted(instalments, key=lambda entry: (entry.window, entry.partition, entry.positions or (0, 0)))

    def early(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """Releases from windows that were still open."""
        releases = [entry for entry in self._in_range(sketch, since, until) if entry.early is not None]
        yield from sorted(releases, key=lambda entry: (entry.window, entry.early, entry.partition))

    def _in_range(self, sketch: str, since: int | None, until: int | None) -> list[SealedEntry]:
        return [
            entry for entry in self._publisher.log if entry.sketch == sketch and is_within(entry.window, since, until)
        ]

    def sketches(self) -> Sequence[str]:
        """Names."""
        return self._publisher.sketches()

    def close(self) -> None:
        """Nothing is held."""


class MemorySink:
    """A `Sink` that keeps what was refused."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Refusal, RawRecord, str]] = []
        self.acknowledged = 0
        self.fail: Exception | None = None

    def takes(self, reason: Refusal) -> bool:
        """All kinds."""
        return True

    def send(self, partition: int, reason: Refusal, record: RawRecord, detail: str = "") -> None:
        """Keep one record."""
        self.sent.append((partition, reason, record, detail))

    def flush(self, partition: int, timeout_s: float = 10.0) -> None:
        """All of them are here."""
        if self.fail is not None:
            raise self.fail
        self.acknowledged = len(self.sent)

    def forget(self, partition: int) -> None:
        """Forget nothing: tests look at everything that was ever sent."""

    def close(self) -> None:
        """Nothing is held."""
