"""The interfaces of the worker: what a source, a store, a publisher, a sink and a sealed reader must do.

In: nothing. Out: the protocols, and the plain data that they exchange. Touches: nothing.

The worker (`sketchstream.stream.worker.worker`) is written against these protocols only, so files, standard input and
Kafka run through the same code. Laws are numbered; each is a test for every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from sketchstream.errors import FormatError
from sketchstream.stream.windows.calendar import NO_TIME, iso
from sketchstream.stream.windows.window_ranges import UNMARKED, Mark
from sketchstream.topics import TOPIC_STRIDE, require_partitions

if TYPE_CHECKING:
    from sketchstream.items.events import Events
    from sketchstream.stream.published.evidence import PublishedEvidence
    from sketchstream.stream.windows.boundary import Boundary, Claim

Plain = None | bool | int | str | bytes | list["Plain"] | dict[str, "Plain"]
"""What a manifest is made of: msgpack can write it, and nothing in it is code."""


# ---------------------------------------------------------------------------------------------------- records

MAX_COLUMNS: Final = 32
"""Most fields that sketches may need in addition to item, weight and time."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record as the source holds it, for the dead letter and late topics. Raw data: never logged or shown.

    Args:
        offset: position in its partition.
        timestamp_ms: Kafka timestamp of the record, -1 if it has none.
        key: unchanged.
        value: unchanged.
        headers: headers of the record, limited in number and size.
        headers_cut: whether the record had more headers than these.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    headers_cut: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one partition.

    Args:
        partition: partition of the input.
        from_position: the position from which this chunk was requested. A chunk that does not start at the state's
            position is discarded, and the source is asked to seek.
        next_position: where the next chunk begins (past trailing control records and compaction gaps too).
        offsets: (n,) int64 ascending, from_position <= offsets < next_position.
        timestamps: (n,) int64 ms, the records' own Kafka timestamps; None if the source has none (files).
        events: events of these records.
        raw: returns record i (0 <= i < n) unchanged; valid as long as the chunk, which may outlive several polls.
        n_bytes: size on the wire or on disk, for metrics.
        tombstones: (n,) records without a value; None: there are none.
    """

    partition: int
    from_position: int
    next_position: int
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64] | None
    events: Events = field(repr=False)
    raw: Callable[[int], RawRecord] | None = field(default=None, repr=False)
    n_bytes: int = 0
    tombstones: npt.NDArray[np.bool_] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions are now ours and were not before. They must not be read before the store has taken them."""

    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    """These partitions are no longer ours (moved, lost, or this consumer was recreated): their states are dropped."""

    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionError:
    """A partition cannot be read further. A DataLossError halts it; after a retriable error it is taken again.

    Args:
        partition: partition that cannot be read further.
        error: why; its message says what to do.
        resume_at: where reading could continue: behind the state's position after records were trimmed, before it
            after the log was truncated below it. Used only with the policy input.data_loss = "accept".
        topic_recreated: the input is a different topic now, for which positions of the old one have no meaning; with
            the same policy the store begins anew.
    """

    partition: int
    error: Exception
    resume_at: int | None = None
    topic_recreated: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A bounded source has delivered all records of this partition. Kafka never sends it."""

    partition: int


@dataclass(frozen=True, slots=True)
class SchemaAwaited:
    """The next records of a partition wait: they cannot be decoded now, as without an answer of a schema registry."""

    partition: int
    reason: str


SourceEvent = Assigned | Revoked | Chunk | PartitionError | Ended | SchemaAwaited


class Source(Protocol):
    """Where records come from. Every method is called from the worker's own thread, `joined` from any.

    1. `poll` returns within about `timeout_s`, whatever the broker does, and never raises for one partition:
       that is a `PartitionError` in its result.
    2. A partition is announced by `Assigned` before its first chunk, and delivers nothing between `pause` (or its
       assignment) and `resume`.
    3. After `seek(p, x)` the next chunk of p has `from_position == x`.
    4. Chunks of one partition come in order, each from where the last one ended.
    """

    @property
    def joined(self) -> bool:
        """Whether our assignment is known; it may be empty."""

    def confirmed(self, since_s: float) -> bool:
        """Whether the group has confirmed this member since that time of the monotonic clock.

        A worker that was suspended for long does not know yet that others own its partitions. Without a group: always.
        """
        return True

    def poll(self, timeout_s: float) -> list[SourceEvent]:
        """Return what happened since the last call, in order."""

    def seek(self, partition: int, position: int) -> None:
        """Continue at this position."""

    def pause(self, partition: int) -> None:
        """Deliver nothing of this partition until `resume`."""

    def resume(self, partition: int) -> None:
        """Deliver again."""

    def numbers(self) -> Sequence[int]:
        """All partitions of the input as far as they are known, owned or not, ascending."""

    def partition_count(self, partition: int = 0, *, fresh: bool = False) -> int:
        """Partitions of the topic of this partition now.

        Args:
            partition: partition of the input.
            fresh: ask the broker (after a misplaced item, or before a seal); otherwise the number may be cached.

        Raises:
            BrokerError: `fresh`, and no broker answers.
        """

    def beginning(self, partition: int) -> int:
        """Position of the first record that still exists (0 if nothing was ever trimmed)."""
        return 0

    def former_counts(self, partition: int) -> Mapping[int, int | None]:
        """Former partition counts by which records that still exist may have been placed, for a start without a state.

        Found in envelopes alone: partitions that were added begin at offset 0, with a record later than many of all
        others. With each the position up to which it may be so; None: to the end.
        """
        return {}

    def high_watermarks(self, partitions: Collection[int] | None = None) -> Mapping[int, int]:
        """Fresh high watermarks (read_uncommitted) of these partitions, or of all of the input, owned or not.

        Partitions whose leader does not answer are left out: they do not count as idle.
        """

    def close(self, *, leave: bool = False) -> None:
        """Close the source. `leave`: also give up static membership."""


# ---------------------------------------------------------------------------------------------------- state


BytesOrView = bytes | memoryview


@dataclass(frozen=True)
class Snapshot:
    """One partition at one position: everything that a successor needs to continue without counting twice.

    Args:
        partition: partition of the input.
        position: records before it are included, records from it on are not.
        manifest: plain data (watermark, sealed-through, partition counts, outbox, open windows, revision, each
            window or outbox entry naming its blob). Small: kilobytes.
        blobs: new blobs by name. Names are unique for ever (random), contents never change under a name. Open
            states have a size that depends on their spec only; they are secrets. Their last bytes are computed when
            they are read. A store that keeps a blob beyond `commit` copies it. Stores read `pieces`, once for each
            blob: large states are not copied, and deferred events wait until they are read.
        keep: names of blobs of earlier snapshots that this one still needs. Every other blob of this
            partition is superseded once this snapshot is durable, and must be erased.
        spec_fingerprint: fingerprint of all configured sketches, for the pointer.
        blob_bytes: total size of the new blobs without the headers of open states.
        copied_bytes: memory that they need in addition to the states until `release`.
        release: returns the memory of the blobs; called once, when the commit has succeeded or failed.
        rewound: the position may be before the last one, because the log was truncated below it and the loss accepted.
        begins: windows that start at this time (ms) or later have the sketches configured now, earlier ones the former.
        newest: latest admitted event time, ms: no window starts after it yet.
    """

    partition: int
    position: int
    manifest: dict[str, Plain] = field(repr=False)
    blobs: Mapping[str, BytesOrView] = field(repr=False)
    keep: frozenset[str] = field(repr=False)
    revision: int = 0
    spec_fingerprint: bytes = field(default=b"", repr=False)
    rewound: bool = False
    begins: int = NO_TIME
    newest: int = NO_TIME
    blob_bytes: int = 0
    copied_bytes: int = 0
    release: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)

    def pieces(self, name: str) -> tuple[int, Iterator[BytesOrView]]:
        """Size of a new blob, and its bytes in order, each piece good until the next one is asked for."""
        streamed = getattr(self.blobs, "pieces", None)
        if streamed is not None:
            found: tuple[int, Iterator[BytesOrView]] = streamed(name)
            return found
        whole = self.blobs[name]
        return len(whole), iter((whole,))


@dataclass(frozen=True)
class Peer:
    """What the last snapshot of a partition says about the sketches that were configured then.

    `spec_fingerprint`, `begins`, `newest`: see `Snapshot`.
    """

    spec_fingerprint: bytes
    begins: int = NO_TIME
    newest: int = NO_TIME


@dataclass(frozen=True)
class Restored:
    """The last committed snapshot of a partition. `blobs` holds every blob that the manifest names.

    Restored sketches take over the memory of blobs that are writable, so these can be read once.
    """

    position: int
    manifest: dict[str, Plain] = field(repr=False)
    blobs: Mapping[str, BytesOrView] = field(repr=False)


@dataclass(frozen=True)
class Fresh:
    """A partition without any state: start at `position` (None: the source's beginning), under this revision.

    Args:
        revision: revision of the sketches.
        position: where to start.
        partial: records before the start, of an earlier topic, are lost.
        sealed_elsewhere: times (ms) by sketch: windows that end by then were sealed in other partitions before this one
            was added; a new partition adds no record to them.
        peers: snapshots of all partitions.
    """

    revision: int = 0
    position: int | None = None
    partial: bool = False
    sealed_elsewhere: Mapping[str, int] = field(default_factory=dict)
    peers: Sequence[Peer] = ()


class StateStore(Protocol):
    """Where snapshots are stored. Called from worker threads: any number at a time, at most one per partition.

    1. `take` fences every earlier owner, whose later commits are refused. It is called again after `drop`, and
       returns what is committed then.
    2. `commit` is atomic: after any crash `take` returns either the old or the new snapshot, whole. After it has
       returned, it is the new one. If it raises, the outcome is unknown: the worker drops the state and takes again.
    3. A committed position never goes back unless its snapshot is `rewound`. A missing pointer is not taken for a
       first start if there are other traces of us (DataLossError).
    4. A superseded blob is erased only after the snapshot that supersedes it is durable.
    """

    rewrite_after_s: float | None
    """Seconds after its last commit at which a silent partition is committed once more, because only then what it
    superseded can leave the disk; None: it has left already."""

    superseded_s: float
    """Seconds for which superseded snapshots still take room where they are stored; 0: they are gone at once."""

    broker_time: tuple[int, float] | None
    """The brokers' clock at the last commit, ms, and the worker's monotonic clock then, seconds; None: not known."""

    def take(self, partition: int) -> Restored | Fresh:
        """Become the owner.

        Raises:
            DataLossError: continuing would lose or repeat data; the partition halts. The message says what to do.
            FencedError, BrokerError: temporary; tried again while the partition is assigned.
        """

    def commit(self, partition: int, snapshot: Snapshot) -> None:
        """Make this the partition's snapshot.

        Raises:
            FencedError, BrokerError, StoreError, DataLossError: see the laws.
            SnapshotsGoneError: nothing was written, and blobs of earlier snapshots are gone: the next snapshot must
                contain all of them. The partition is still ours.
        """

    def peers(self) -> Sequence[Peer]:
        """The existing snapshots of all partitions of this input. Raises BrokerError."""

    def drop(self, partition: int) -> None:
        """Forget the partition (not its snapshots): close what `take` opened, abort what is in flight. Never raises."""

    def close(self) -> None:
        """Drop all partitions, release locks and connections."""


# ---------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True, slots=True)
class SealedEntry:
    """One sealed sketch to be published: the bytes of a Release or SealedState, and where they belong.

    Publishing it twice must give the same bytes in the same place. `window`: [start, end) in ms since 1970.
    `positions`: [first, stop) of an instalment of closed positions; None: a whole sealed sketch. `early`: of a release
    from a window that was still open, the time (ms) that the partition's watermark had passed; None: it is sealed.
    """

    sketch: str
    revision: int
    window: tuple[int, int]
    partition: int
    seal_id: bytes
    body: bytes = field(repr=False)
    positions: tuple[int, int] | None = None
    early: int | None = None

    @property
    def final(self) -> bool:
        """Whether it is the publication of a sealed window, and not something that was published before the seal."""
        return self.positions is None and self.early is None

    @property
    def key(self) -> str:
        """`sketch/revision/window start/partition`: the same for every publication of this entry."""
        part = "" if self.positions is None else f"/{self.positions[0]}-{self.positions[1]}"
        part += "" if self.early is None else f"/early-{self.early}"
        return f"{self.sketch}/{self.revision}/{self.window[0]}/{self.partition}{part}"


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far one partition has published one sketch: nothing more follows for windows that end by then.

    Args:
        sketch: name of the sketch.
        revision: revision of the sketch.
        partition: input partition.
        published_through: ms; every window with end <= this is published, or had no records here.
        partitions: number of partitions of its topic, as seen now.
        sequence: grows with every new frontier of this (sketch, revision, partition): readers take the largest.
        partial: windows that may lack records, from before the start or lost.
        diverged: windows that may hold records that the log has lost.
        grown_from: partitions of the input before partitions were added for the last time; 0: none were.
        grown_through: how far this partition had published then.
        late: noisy number of records that were late for a window of this sketch, since it began here; None: not kept.
            The number between two frontiers is their difference, which has its own noise.
        late_draws: draws of discrete Laplace noise in `late`, each of the sketch's `epsilon_records`.
        closed_through: ms, of sketches that publish positions when they close; every position that ends by then is
            published, or had no records.
        evidence: noisy numbers of refused records and misplaced items, by window; None: not kept.
    """

    sketch: str
    revision: int
    partition: int
    published_through: int
    partitions: int
    sequence: int
    partial: Mark = UNMARKED
    diverged: Mark = UNMARKED
    grown_from: int = 0
    grown_through: int = NO_TIME
    late: int | None = None
    late_draws: int = 0
    closed_through: int = NO_TIME
    evidence: PublishedEvidence | None = None

    def plausible(self) -> Frontier:
        """This frontier, read from untrusted bytes.

        Raises:
            FormatError: it has more partitions than an input has, or a time that no calendar has.
        """
        require_partitions(self.partition, self.partitions, self.grown_from)
        try:
            for time in {self.published_through, self.grown_through, self.closed_through} - {NO_TIME}:
                iso(time)
        except OverflowError:
            raise FormatError("a frontier is at a time that no calendar has") from None
        return self

    def sealed_without(self, partition: int) -> int:
        """Windows that end by then (ms) were published before the topic had this partition; of another topic, none."""
        place = partition % TOPIC_STRIDE
        if partition - place != self.partition - self.partition % TOPIC_STRIDE:
            return NO_TIME
        if self.partitions <= place:
            return self.published_through
        return self.grown_through if 0 < self.grown_from <= place else NO_TIME


class Publisher(Protocol):
    """Where sealed sketches are published. Called from worker threads, at most one call per partition at a time.

    1. Durable on return; `entries` before the `frontiers` that cover them.
    2. Byte-identical entries may be repeated at any time; an existing *different* body under one key is an incident
       (DataLossError, nothing overwritten).
    3. Claims of one sketch and revision form one sequence: each is made with those that came before it, by whichever
       process, and is durable on return.
    """

    def publish(self, partition: int, entries: Sequence[SealedEntry], frontiers: Sequence[Frontier]) -> None:
        """Publish. Raises BrokerError or StoreError (tried again), DataLossError (incident; the partition halts)."""

    def settle(self, sketch: str, revision: int, claim: Claim) -> Boundary:
        """Add a claim to the boundary between the history and live windows of a sketch; returns all claims.

        Args:
            sketch: name of the sketch.
            revision: revision of the sketch.
            claim: called with the claims so far, perhaps several times; what it raises ends the attempt.

        Raises:
            BrokerError, StoreError: it is not known whether the claim was made; it may be made again.
        """

    def frontiers(self) -> Mapping[tuple[str, int, int], Frontier]:
        """The newest frontier of every (sketch, revision, partition), of other workers too; for idle partitions.

        May be a few seconds old: an old frontier only covers less.
        """

    def close(self) -> None:
        """Close."""


@dataclass(frozen=True)
class Deleted:
    """Entries of one partition that may be missing because old records were deleted.

    Args:
        sketch: name of the sketch.
        partition: partition of the input.
        through: entries of windows that end by then, ms since 1970, may be missing.
    """

    sketch: str
    partition: int
    through: int


class SealedSource(Protocol):
    """Where readers find what was published.

    1. A frontier covers only entries that the same `read` returns, before it or after it.
    2. Entries of one sketch come by ascending windows, all partitions of a window together. Only repetitions that
       were published after the window was returned come later.
    3. Different bodies under one key are all returned: the reader refuses them as an incident. Repetitions of the same
       body may be left out.
    4. A `Deleted` comes before any entry of the windows that may have lost entries.
    """

    def frontiers(self, sketch: str | None = None) -> Sequence[Frontier]:
        """The newest frontier of each (sketch, revision, partition); of one sketch, or of all."""

    def read(
        self, sketch: str | None = None, since: int | None = None, until: int | None = None
    ) -> Iterator[Frontier | SealedEntry | Deleted]:
        """Read frontiers, and the entries of windows that begin at `since` or later and end by `until` (ms since 1970).

        Args:
            sketch: name of the sketch; None: all sketches.
            since: None: from the first window.
            until: None: to the last window.
        """

    def closed(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """Read instalments of closed positions, by ascending windows and positions; `read` does not return them.

        Args:
            sketch: name of the sketch.
            since: see `read`.
            until: see `read`.
        """

    def early(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """Read releases from windows that were still open, by ascending windows and times; `read` leaves them out.

        Args:
            sketch: name of the sketch.
            since: see `read`.
            until: see `read`.
        """

    def sketches(self) -> Sequence[str]:
        """Names of all sketches that have published anything."""

    def close(self) -> None:
        """Close."""


Refusal = Literal["late", "future", "undecodable", "time"]
"""Why a record went to a sink: late and future go to the late topic, the others to the dead letter topic."""


class Sink(Protocol):
    """Where refused records are sent, at least once, named by (topic, partition, offset).

    The worker decides whether to send their contents, which are raw data, and how many records a second.

    1. `send` only enqueues and never waits (worker's thread); `flush` (a worker thread) returns when everything that
       was sent of this partition before is acknowledged, and raises BrokerError otherwise: then the snapshot that
       would pass them is not made.
    """

    def takes(self, reason: Refusal) -> bool:
        """Whether there is a topic for such records; otherwise they are only counted."""

    def send(self, partition: int, reason: Refusal, record: RawRecord, detail: str = "") -> None:
        """Enqueue one record. `detail` names sketches or rules, never contents."""

    def flush(self, partition: int, timeout_s: float = 10.0) -> None:
        """Wait until all of this partition is acknowledged."""

    def forget(self, partition: int) -> None:
        """Forget the waiting records of a dropped partition: its next owner sends them again."""

    def close(self) -> None:
        """Close."""


class Clock(Protocol):
    """The current time; the test driver sets it."""

    def now_ms(self) -> int:
        """Wall clock, ms since 1970."""

    def monotonic(self) -> float:
        """Seconds that never jump."""
