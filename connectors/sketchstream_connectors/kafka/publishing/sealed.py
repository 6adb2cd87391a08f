"""Sealed sketches and frontiers as records of a topic, and the source from which readers get them.

In: entries and frontiers, or a topic. Out: records of at most 512 KiB, or entries and frontiers again. Touches: the
sealed topic (reading), a consumer without a group.

The record's key contains everything that is needed to reassemble a body. Headers repeat it for people and tools, and
may be lost when a topic is mirrored. Nothing here reveals which records were counted: no offsets, no counts, no
watermark.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sketchstream.log_events import EventLog
from sketchstream.stream.interfaces import Deleted, Frontier, SealedEntry
from sketchstream.stream.published import frontiers
from sketchstream.stream.published.values import integer
from sketchstream.stream.windows.calendar import NO_TIME, is_within
from sketchstream.topics import TOPIC_STRIDE
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.log_reader import Extent, Log
from sketchstream_connectors.kafka.cluster.reader_pool import ReaderPool

event_log = EventLog("sketchstream.kafka")

SEAL_ID_BYTES = 16
CHUNK_BYTES = 512 * 1024 - 2048
"""Bytes of a body in one record: with key and headers, less than half of the 1 MiB that brokers accept by default."""
FORMAT = b"1"
SEALED, FRONTIER, CLOSED, EARLY = "sealed", "frontier", "closed", "early"
OWN_NUMBERS = {SEALED: 0, CLOSED: 2, EARLY: 1}
"""How many numbers of its own a body's key has between its partition and its seal id."""
TAIL = 64
"""Number of last records of a partition among which its newest frontiers are looked for first."""

Headers = list[tuple[str, bytes]]


def digest_of(body: bytes) -> str:
    """The digest of a body: two bodies under one key have different digests."""
    return hashlib.blake2b(body, digest_size=16, person=b"sketch-sealed").hexdigest()


def entry_records(entry: SealedEntry) -> Iterator[tuple[bytes, bytes, Headers]]:
    """Key, value and headers of each record of a sealed sketch; the same for every publication of it."""
    digest = digest_of(entry.body)
    count = max(1, -(-len(entry.body) // CHUNK_BYTES))
    start, end = entry.window
    own_numbers: tuple[int, ...] = entry.positions or (() if entry.early is None else (entry.early,))
    sort = SEALED if entry.final else CLOSED if entry.early is None else EARLY
    place = (sort, entry.sketch, entry.revision, start, end, entry.partition, *own_numbers, entry.seal_id.hex(), digest)
    for number in range(count):
        key = "/".join(map(str, (*place, number, count)))
        headers: Headers = [
            ("content-type", b"application/vnd.sketchstream.sealed"),
            ("ss-format", FORMAT),
            ("ss-window-start", b"%d" % start),
            ("ss-window-end", b"%d" % end),
            ("ss-digest", digest.encode()),
        ]
        yield key.encode(), entry.body[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES], headers


def stamp(time_ms: int) -> int:
    """The timestamp of a record: the end of its window, or the time of its frontier. Readers seek by it.

    A broker may refuse times beyond its clock.
    """
    return max(0, min(time_ms, round(time.time() * 1000)))


def frontier_record(frontier: Frontier) -> tuple[bytes, bytes, Headers]:
    """Key, value and headers of a frontier."""
    key = f"{FRONTIER}/{frontier.sketch}/{frontier.revision}/{frontier.partition}"
    headers: Headers = [("content-type", b"application/json"), ("ss-format", FORMAT)]
    return (
        key.encode(),
        json.dumps({"v": 1, **frontiers.plain_frontier(frontier)}, separators=(",", ":")).encode(),
        headers,
    )


@dataclass(frozen=True, order=True)
class LogBody:
    """One body under one key, as the log names it; `positions` and `early` as of `SealedEntry`."""

    sketch: str
    revision: int
    window: tuple[int, int]
    partition: int
    seal_id: str
    digest: str
    count: int
    positions: tuple[int, int] | None = None
    early: int | None = None

    @property
    def final(self) -> bool:
        """Whether it is a whole sealed sketch."""
        return self.positions is None and self.early is None

    def entry(self, data: bytes) -> SealedEntry | None:
        """The entry of this body; None if the data are not those that its key names."""
        if digest_of(data) != self.digest:
            return None
        place = (self.sketch, self.revision, self.window, self.partition, bytes.fromhex(self.seal_id))
        return SealedEntry(*place, data, self.positions, self.early)


class LogKey(NamedTuple):
    """The parts of a record's key: a chunk of a body, or, without a body, whose frontier it is."""

    sketch: str
    revision: int
    partition: int
    body: LogBody | None = None
    number: int = 0


def read_key(key: bytes | None) -> LogKey | None:
    """The parts of a record's key; None: it is not a key of this format."""
    try:
        sort, *parts = (key or b"").decode().split("/")
        if sort == FRONTIER and len(parts) == 3:
            return LogKey(parts[0], _number(parts[1]), _number(parts[2]))
        if sort not in OWN_NUMBERS or len(parts) != 9 + OWN_NUMBERS[sort]:
            return None
        sketch, revision, start, end, partition, *own, seal_id, digest, number, count = parts
        own_numbers = tuple(map(_number, own))
        body = LogBody(
            sketch,
            _number(revision),
            (_number(start), _number(end)),
            _number(partition),
            seal_id,
            digest,
            _number(count),
            positions=own_numbers[:2] if sort == CLOSED else None,  # type: ignore[arg-type]  # there are two
            early=own_numbers[0] if sort == EARLY else None,
        )
        plausible = len(bytes.fromhex(seal_id)) == SEAL_ID_BYTES and 0 <= _number(number) < body.count
        return LogKey(sketch, body.revision, body.partition, body, _number(number)) if plausible else None
    except (ValueError, TypeError):
        return None


def _number(text: str) -> int:
    """A whole number of 64 bits; a ValueError or a TypeError otherwise."""
    return integer(int(text))


def read_frontier(key: LogKey | tuple[str, int, int], value: bytes | None) -> Frontier | None:
    """The frontier of a key and a value; None if the value is not one."""
    try:
        return frontiers.read(*key[:3], json.loads(value or b"")).plausible()
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


@dataclass
class NewestFrontiers:
    """The newest frontiers read so far, by (sketch, revision, partition)."""

    frontiers: dict[tuple[str, int, int], Frontier] = field(default_factory=dict)

    def add(self, record: Any) -> bool:
        """Add one record of the client if it holds a frontier; return whether it does."""
        key = read_key(record.key)
        frontier = read_frontier(key, record.value) if key is not None and key.body is None else None
        if frontier is not None:
            self.add_if_newer(frontier)
        return frontier is not None

    def add_if_newer(self, frontier: Frontier) -> bool:
        """Add a frontier; False if a newer one of its partition is known."""
        name = (frontier.sketch, frontier.revision, frontier.partition)
        newest = self.frontiers.get(name)
        if newest is not None and frontier.sequence < newest.sequence:
            return False
        self.frontiers[name] = frontier
        return True


class Trimmed:
    """What was deleted from the beginning of a topic, by the first record of each sketch that is left.

    Args:
        partitions: partitions whose first records are gone.
    """

    def __init__(self, partitions: Collection[int]) -> None:
        self._partitions = partitions
        self._begun: set[tuple[int, str]] = set()

    def before(self, partition: int, key: LogKey, frontier: Frontier | None) -> Deleted | None:
        """What was deleted before a record, if it is the first one of its sketch; `frontier`: what it holds."""
        if partition not in self._partitions or (partition, key.sketch) in self._begun:
            return None
        self._begun.add((partition, key.sketch))
        first = NO_TIME if frontier is None else frontier.published_through
        return Deleted(key.sketch, key.partition, first if key.body is None else key.body.window[0])


MARGIN_MS = 3_600_000
"""How much earlier than a window's end its records may be stamped: their broker may refuse times beyond its clock."""
SOURCE_FETCH_BYTES = 2**18
"""Most that a broker sends of one partition at a time to a source of sealed sketches."""
IDLE_READERS = 16
"""Consumers that a source keeps open while they have nothing to read."""
HELD_BYTES = 64 * 2**20
"""Bytes of unfinished windows' bodies that a source keeps in memory; bodies beyond are fetched when the windows end."""


@dataclass(frozen=True)
class _Held:
    """One body that waits for the end of its window: where its chunks are, and the bytes if they were kept."""

    body: LogBody
    offsets: tuple[int, ...]
    data: bytes | None = field(repr=False)


class _Windows:
    """Bodies in the order of their windows: those of one window are returned together, once it is over.

    A repetition of a returned body is left out. A body that comes after its window was returned is returned at once.
    """

    def __init__(self, fetch: Callable[[int, Sequence[int]], list[bytes]]) -> None:
        self._fetch = fetch
        self._chunks: dict[LogBody, dict[int, tuple[int, bytes | None]]] = {}
        self._waiting: dict[tuple[int, int], list[_Held]] = {}
        self._kept_bytes = 0
        self._known: set[bytes] = set()

    def add(self, body: LogBody, number: int, offset: int, value: bytes) -> None:
        """One chunk of a body."""
        name = hashlib.blake2b(repr(body).encode(), digest_size=16).digest()
        if name in self._known:
            return
        chunks = self._chunks.setdefault(body, {})
        keep = self._kept_bytes + len(value) <= HELD_BYTES
        if number not in chunks:
            chunks[number] = (offset, value if keep else None)
            self._kept_bytes += len(value) if keep else 0
        if len(chunks) < body.count:
            return
        del self._chunks[body]
        self._known.add(name)
        in_order = [chunks[n] for n in range(body.count)]
        whole = [data for _, data in in_order if data is not None]
        data = b"".join(whole) if len(whole) == body.count else None
        if data is None:
            self._kept_bytes -= sum(map(len, whole))
        self._waiting.setdefault(body.window, []).append(_Held(body, tuple(at for at, _ in in_order), data))

    def entries_through(self, through: float) -> Iterator[SealedEntry]:
        """Return the bodies of the windows that end by then, ascending."""
        due = sorted(window for window in self._waiting if window[1] <= through)
        for window in due:
            for held in sorted(self._waiting.pop(window), key=lambda held: (held.body.sketch, held.body)):
                yield from self._entry(held)

    def _entry(self, held: _Held) -> Iterator[SealedEntry]:
        body, data = held.body, held.data
        if data is None:
            data = b"".join(self._fetch(body.partition % TOPIC_STRIDE, held.offsets))
        else:
            self._kept_bytes -= len(data)
        if (entry := body.entry(data)) is None:
            event_log.error("sealed_body_altered", sketch=body.sketch, partition=body.partition)
        else:
            yield entry


class KafkaSealedSource:
    """A `SealedSource` over the sealed topic. Between two calls only the newest frontiers and open consumers are kept.

    Consumers are used again. A `read` that is not exhausted keeps its own: another one may begin meanwhile.

    Args:
        connection: connection to the cluster.
        topic: sealed topic.
        whole: read it to its end before any entry is returned: windows do not come in the order of time.
    """

    def __init__(self, connection: Connection, topic: str, *, whole: bool = False) -> None:
        self._whole = whole
        self._readers = ReaderPool(
            lambda: Log(connection, topic, fetch_bytes=SOURCE_FETCH_BYTES, poll_records=TAIL), IDLE_READERS
        )
        self._seen = NewestFrontiers()
        self._ranges_read: dict[int, tuple[int, int]] = {}

    def frontiers(self, sketch: str | None = None) -> Sequence[Frontier]:
        """Newest frontier of each (sketch, revision, partition) near the ends of the partitions; of one sketch, or all.

        Reads the end of each partition, and further back until it finds the sketch. What an earlier call has read is
        not read again.
        """
        with self._readers.take() as log_:
            self._read_ends(log_, log_.extent(), sketch)
        return self._frontiers(sketch)

    def _read_ends(self, log_: Log, extent: Extent, sketch: str | None) -> None:
        """Read the frontiers near the ends, as far as they are not known."""
        starts = {}
        for p, end in extent.ends.items():
            low, high = self._ranges_read.get(p, (end, -1))
            # offsets that have gone back are those of another topic of this name
            starts[p] = high if extent.begins[p] <= high <= end <= high + TAIL else max(extent.begins[p], end - TAIL)
            self._ranges_read[p] = (low if starts[p] == high else starts[p], end)
        self._add_frontiers(log_, starts, extent.ends)
        tail = TAIL
        while True:
            tail *= 8
            with_frontier = {frontier.partition % TOPIC_STRIDE for frontier in self._frontiers(sketch)}
            ends = {
                p: low
                for p, (low, _) in self._ranges_read.items()
                if p not in with_frontier and low > extent.begins.get(p, low)
            }
            if not ends:
                return
            starts = {p: max(extent.begins[p], extent.ends[p] - tail) for p in ends}
            self._add_frontiers(log_, starts, ends)
            for p, start in starts.items():
                self._ranges_read[p] = (min(start, ends[p]), self._ranges_read[p][1])

    def _add_frontiers(self, log_: Log, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Add the frontiers between these offsets."""
        for records, _ in log_.batches(starts, ends):
            for record in records:
                self._seen.add(record)

    def _frontiers(self, sketch: str | None) -> list[Frontier]:
        return [frontier for frontier in self._seen.frontiers.values() if sketch is None or frontier.sketch == sketch]

    def read(
        self, sketch: str | None = None, since: int | None = None, until: int | None = None
    ) -> Iterator[Frontier | SealedEntry | Deleted]:
        """Frontiers and bodies in a range of time; see `SealedSource`.

        A body with a missing chunk was interrupted by a crash, and is repeated as a whole. Reading begins at the
        first record with a timestamp in the range. It ends where every partition's frontier has passed the range, so
        only a reader of the whole topic sees a second publication that came later.
        """
        with self._readers.take() as log_:
            extent = log_.extent()
            self._read_ends(log_, extent, sketch)
            yield from self._frontiers(sketch)
            yield from self._read_range(log_, extent, sketch, since, until)

    def _read_range(
        self, log_: Log, extent: Extent, sketch: str | None, since: int | None, until: int | None
    ) -> Iterator[Frontier | SealedEntry | Deleted]:
        """Bodies in a range of time, and newer frontiers."""
        starts = extent.begins if since is None else log_.since(extent, since - MARGIN_MS)
        revisions: dict[str, int] = {}
        for newest in self._frontiers(sketch):
            revisions[newest.sketch] = max(newest.revision, revisions.get(newest.sketch, 0))
        passed: dict[int, dict[str, float]] = {p: {} for p in starts}
        windows = _Windows(self._fetch)
        trimmed = Trimmed({p for p, start in starts.items() if start == extent.begins[p] > 0})

        def reached(partition: int) -> float:
            """The time through which a partition has published everything."""
            through = passed[partition]
            return min((through.get(name, -math.inf) for name in revisions), default=-math.inf)

        def enough(partition: int) -> bool:
            return not self._whole and until is not None and reached(partition) >= until

        for records, at_end in log_.batches(starts, extent.ends, enough):
            for record in records:
                key = read_key(record.key)
                if key is None or (key.body is not None and not key.body.final):
                    continue
                ours = sketch in (None, key.sketch)
                frontier = read_frontier(key, record.value) if key.body is None else None
                deleted = trimmed.before(record.partition, key, frontier) if ours else None
                if deleted is not None:
                    yield deleted
                if key.body is not None and ours and is_within(key.body.window, since, until):
                    windows.add(key.body, key.number, record.offset, record.value or b"")
                if frontier is None:
                    continue
                if frontier.revision == revisions.get(key.sketch, 0):
                    passed[record.partition][key.sketch] = frontier.published_through
                if self._seen.add_if_newer(frontier) and ours:
                    yield frontier
            for partition in at_end:
                passed[partition] = dict.fromkeys(revisions, math.inf)
            if not self._whole:
                yield from windows.entries_through(min(map(reached, passed), default=math.inf))
        yield from windows.entries_through(math.inf)

    def closed(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """Instalments of closed positions. See `SealedSource.closed`."""
        bodies = self._bodies(sketch, since, until, lambda body: body.positions is not None)
        for body in sorted(bodies, key=lambda body: (body.window, body.partition, body.positions, body)):
            if (entry := body.entry(bodies[body])) is None:
                event_log.error("closed_positions_altered", sketch=sketch, partition=body.partition)
            else:
                yield entry

    def early(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """Releases from windows that were still open. See `SealedSource.early`."""
        bodies = self._bodies(sketch, since, until, lambda body: body.early is not None)
        for body in sorted(bodies, key=lambda body: (body.window, body.early, body)):
            if (entry := body.entry(bodies[body])) is None:
                event_log.error("early_body_altered", sketch=sketch, partition=body.partition)
            else:
                yield entry

    def _bodies(
        self, sketch: str, since: int | None, until: int | None, takes: Callable[[LogBody], bool]
    ) -> dict[LogBody, bytes]:
        """The data of the bodies of one sort.

        A body that was cut short by a crash is left out: it comes again, whole.
        """
        chunks: dict[LogBody, dict[int, bytes]] = {}
        with self._readers.take() as log_:
            extent = log_.extent()
            starts = extent.begins if since is None else log_.since(extent, since - MARGIN_MS)
            for records, _ in log_.batches(starts, extent.ends):
                for record in records:
                    key = read_key(record.key)
                    if key is None or key.body is None or key.sketch != sketch or not takes(key.body):
                        continue
                    if is_within(key.body.window, since, until):
                        chunks.setdefault(key.body, {}).setdefault(key.number, record.value or b"")
        return {
            body: b"".join(pieces[n] for n in range(body.count))
            for body, pieces in chunks.items()
            if len(pieces) == body.count
        }

    def _fetch(self, partition: int, offsets: Sequence[int]) -> list[bytes]:
        """Fetch chunks of a body that were not kept, with another consumer, so that the first one keeps its place."""
        with self._readers.take() as log_:
            return log_.fetch(partition, offsets)

    def sketches(self) -> Sequence[str]:
        """Names of all sketches that have published anything."""
        names = set()
        with self._readers.take() as log_:
            extent = log_.extent()
            for records, _ in log_.batches(extent.begins, extent.ends):
                for record in records:
                    key = read_key(record.key)
                    if key is not None and (key.body is None or key.body.final):
                        names.add(key.sketch)
        return sorted(names)

    def close(self) -> None:
        """Close the consumers."""
        self._readers.close()
