"""The state of one partition: open windows with their sketches, watermark, outbox; a function of the record sequence.

In: chunks of one partition, in order. Out: outcomes for counters and sinks, snapshots, sealed entries, frontiers.
Touches: its own sketches; entropy when a window opens or is sealed. No clock, no file, no network.
Source: notes/kafka_faults.md 7, 8, 17; design.md 7.

Laws (tests/stream/test_partition.py):
1. However a record sequence is cut into chunks, the same windows get the same events, the same records are late.
2. A window is opened by the envelope of an admitted record alone, whatever its payload holds.
3. A sealed window never reopens, and its open state is in no later snapshot.
4. What a snapshot restores goes on as if nothing had happened.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sketchstream.errors import DataLossError, FormatError, KeyMismatchError, SketchstreamError, SpecError
from sketchstream.items import Items
from sketchstream.published import Origin
from sketchstream.sketch import Sketch
from sketchstream.spec import ClosedDomain, ProfileSpec
from sketchstream.stream.config import SketchPlan
from sketchstream.stream.placement import Partitioner, belongs, kept
from sketchstream.stream.ports import NO_TIME, Chunk, Decoded, Frontier, Plain, Restored, SealedEntry, Snapshot
from sketchstream.stream.windows import EARLIEST_MS, LATEST_MS

if TYPE_CHECKING:
    from sketchstream.hashing import Key

MANIFEST_FORMAT = 1
MANY_WINDOWS = 64
"""Windows of one chunk beyond which they are found by sorting."""
Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
_NO_INTS: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Rules:
    """What all partitions of a worker have in common; public parameters only.

    Args:
        sketches: what is counted.
        key: hash key, if any of them needs one.
        lateness_ms: how long a window stays open behind the watermark.
        max_ahead_ms: how far an event time may lie beyond its record's own timestamp.
        partitioner: recomputes an item's partition; None: not known, or records are not partitioned by item.
        fingerprint: of the set of sketches.
    """

    sketches: tuple[SketchPlan, ...]
    key: Key | None = field(default=None, repr=False)
    lateness_ms: int = 600_000
    max_ahead_ms: int = 3_600_000
    partitioner: Partitioner | None = None
    fingerprint: bytes = b""


@dataclass
class Outcome:
    """What became of the records of one chunk. Numbers and positions only.

    Envelope: records, late, future. The others depend on payloads: for the operator's endpoint alone.
    """

    records: int = 0
    late: dict[str, int] = field(default_factory=dict)
    future: int = 0
    unreadable_times: int = 0
    nulls: int = 0
    updates: int = 0
    sealed: int = 0
    invalid: int = 0
    misplaced: int = 0
    late_records: Ints = field(default_factory=lambda: _NO_INTS, repr=False)
    future_records: Ints = field(default_factory=lambda: _NO_INTS, repr=False)
    undecodable_records: Ints = field(default_factory=lambda: _NO_INTS, repr=False)
    time_records: Ints = field(default_factory=lambda: _NO_INTS, repr=False)


@dataclass
class OpenWindow:
    """One open sketch: [start, end) in ms, the partition counts valid since it opened, and where its bytes are."""

    start: int
    end: int
    sketch: Sketch
    counts: tuple[int, ...]
    blob: str | None = None
    dirty: bool = True


@dataclass
class Track:
    """One sketch name in one partition: its open windows and how far it is sealed."""

    name: str
    plan: SketchPlan | None
    windows: dict[int, OpenWindow] = field(default_factory=dict)
    through: int = NO_TIME
    partial: int = NO_TIME
    sequence: int = 0
    announced: int = NO_TIME
    reached: int = NO_TIME
    last: OpenWindow | None = None

    def aligned(self) -> bool:
        """Whether every open window is one that the calendar would make."""
        if self.plan is None:
            return False
        calendar = self.plan.calendar
        return all(calendar.window(one.start) == (one.start, one.end) for one in self.windows.values())


@dataclass
class _Outgoing:
    """A sealed entry that is in the outbox, and where its bytes are."""

    entry: SealedEntry
    blob: str
    saved: bool = False


class PartitionState:
    """Everything that is known of one partition. Make one with `fresh` or `restore`.

    Args:
        rules: of the worker.
        partition: of the input.
        position: next record to apply.
        partitions: of the input now.
        revision: of the sketches.
    """

    def __init__(self, rules: Rules, partition: int, position: int, partitions: int, revision: int = 0) -> None:
        self.rules = rules
        self.partition = partition
        self.position = position
        self.partitions = partitions
        self.revision = revision
        self.watermark = NO_TIME
        self.tracks: dict[str, Track] = {plan.name: Track(plan.name, plan) for plan in rules.sketches}
        self._outbox: list[_Outgoing] = []
        self._frontiers: dict[str, Frontier] = {}
        self._pending_frontiers: dict[str, Frontier] = {}
        self._partial = False
        self._count_now: Callable[[], int] | None = None
        self._asked: int | None = None
        self._changed = True
        self._masks: dict[tuple[bytes, int], Mask] = {}
        self._odd = dict.fromkeys(self.tracks, False)

    def __repr__(self) -> str:
        """Positions and numbers of windows."""
        return f"<PartitionState {self.partition} at {self.position}, {self.open_windows} open windows>"

    @classmethod
    def fresh(
        cls, rules: Rules, partition: int, position: int, partitions: int, *, revision: int = 0, partial: bool = False
    ) -> PartitionState:
        """A partition of which nothing is known.

        Args:
            rules: of the worker.
            partition: of the input.
            position: where it begins.
            partitions: of the input now.
            revision: of the sketches.
            partial: records before `position` are gone or passed over: the first windows may lack some.
        """
        state = cls(rules, partition, position, partitions, revision)
        state._partial = partial
        return state

    # ------------------------------------------------------------------------------------------- records

    def set_partitions(self, partitions: int) -> None:
        """Partitions of the input now; open windows remember every number that was valid since they opened."""
        if partitions == self.partitions:
            return
        self.partitions = partitions
        self._changed = True
        for track in self.tracks.values():
            for window in track.windows.values():
                window.counts = (*window.counts, partitions)

    def apply(self, chunk: Chunk, count_now: Callable[[], int] | None = None) -> Outcome:
        """Count the records of a chunk that starts at `position`, seal what they close, and move on behind them.

        Args:
            chunk: of this partition.
            count_now: asks for the input's partition count; called when a misplaced item is met, because partitions
                may have been added since the worker last heard of it.

        Raises:
            ValueError: the chunk starts elsewhere; nothing was applied, the source must seek.
        """
        if chunk.partition != self.partition or chunk.from_position != self.position:
            msg = f"partition {self.partition} is at {self.position}; this chunk starts at {chunk.from_position}"
            raise ValueError(msg)
        from sketchstream.stream import kernels

        self._count_now, self._asked = count_now, None
        decoded = chunk.decoded
        times = decoded.times
        outcome = Outcome(records=times.size, late={})
        if times.size:
            stamps = chunk.timestamps
            before = np.empty(times.size, np.int64)
            verdict = np.empty(times.size, np.uint8)
            mark, low, high, outcome.future, outcome.unreadable_times = kernels.admit(
                times,
                _NO_INTS if stamps is None else stamps,
                stamps is not None,
                self.rules.max_ahead_ms,
                EARLIEST_MS,
                LATEST_MS,
                self.watermark,
                before,
                verdict,
            )
            late = np.zeros(times.size, np.bool_)
            if outcome.future + outcome.unreadable_times < times.size:
                whole = _Admitted(decoded, times, before, verdict, int(low), int(high), int(mark), late)
                self._note_partial(int(times[np.argmax(verdict == kernels.ADMITTED)]))
                for track in self.tracks.values():
                    self._count(track, whole, outcome)
            self.watermark = int(mark)
            outcome.sealed += self.seal()
            self._refused(decoded, verdict, late, outcome)
        self.position = chunk.next_position
        self._changed = True
        return outcome

    def _count(self, track: Track, whole: _Admitted, outcome: Outcome) -> None:
        """The records of a chunk into the windows of one sketch."""
        from sketchstream.stream import kernels

        low, high = whole.low, whole.high
        starts, ends = self._windows(track, whole)
        if len(starts) == 1:
            only = int(ends[0])
            if only + self.rules.lateness_ms > whole.mark and only > track.through and starts[0] <= low and high < only:
                window = self._open(track, int(starts[0]), only)
                if window is not None:
                    self._update(window, whole.items, whole.weights, whole.good, outcome)
                return
        places = np.empty(whole.times.size, np.int32)
        used = np.zeros(len(starts), np.bool_)
        n_late = kernels.place(
            whole.times, whole.before, whole.verdict, starts, ends, self.rules.lateness_ms, track.through, places, used
        )
        if n_late:
            outcome.late[track.name] = outcome.late.get(track.name, 0) + int(n_late)
            whole.late |= places == kernels.LATE
        record = whole.decoded.record
        for index in np.flatnonzero(used).tolist():
            window = self._open(track, int(starts[index]), int(ends[index]))
            if window is None:
                continue
            # ascending windows, each sealed at once if the chunk's last watermark closes it: however long a chunk is,
            # no more windows are open at a time than lateness asks for
            chosen = np.empty(len(whole.decoded.valid), np.bool_)
            n = kernels.choose(
                _NO_INTS if record is None else record, record is not None, whole.decoded.valid, places, index, chosen
            )
            if n:
                self._update(window, whole.items, whole.weights, chosen, outcome)
            if window.end + self.rules.lateness_ms <= whole.mark:
                self._seal_window(track, window)
                outcome.sealed += 1

    def _windows(self, track: Track, whole: _Admitted) -> tuple[Ints, Ints]:
        """Ascending, disjoint windows that cover the admitted times of a chunk."""
        last = track.last
        if last is not None and last.start <= whole.low and whole.high < last.end:
            return np.array([last.start], np.int64), np.array([last.end], np.int64)
        if track.plan is None:  # the sketch is no longer configured: its windows are finished, no new ones made
            pairs = sorted((window.start, window.end) for window in track.windows.values())
            return self._around(pairs)
        from sketchstream.stream import kernels

        calendar = track.plan.calendar
        admitted = whole.times[whole.verdict == 0]
        starts = calendar.starts(admitted)
        begins = np.empty(MANY_WINDOWS, np.int64)
        n = kernels.distinct(starts, begins)
        begins = np.unique(starts) if n < 0 else np.sort(begins[:n])
        pairs = [(int(start), calendar.end(int(start))) for start in begins]
        if self._odd[track.name]:
            pairs = _fitted(pairs, [(one.start, one.end) for one in track.windows.values()], admitted)
        return np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)

    def _around(self, pairs: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
        """Open windows of a removed sketch, with fillers between them; `_open` makes nothing of fillers."""
        edges = sorted({EARLIEST_MS, LATEST_MS, *(edge for pair in pairs for edge in pair)})
        return np.array(edges[:-1], np.int64), np.array(edges[1:], np.int64)

    def _open(self, track: Track, start: int, end: int) -> OpenWindow | None:
        """The open window at `start`, made now if need be; None where no sketch is kept for it."""
        window = track.windows.get(start)
        if window is None:
            if track.plan is None:
                return None
            keep = self._keep(track.plan.spec)
            if keep is not None and not keep.any():
                return None  # a public fact: the partitioner sends no item of the list here
            origin = Origin(
                name=track.name,
                revision=self.revision,
                window=(start, end),
                partition=self.partition,
                partitions_open=self.partitions,
            )
            sketch = Sketch.create(track.plan.spec, self.rules.key, origin=origin, keep=keep)
            window = OpenWindow(start, end, sketch, (self.partitions,))
            track.windows[start] = window
        window.dirty = True
        track.last = window
        return window

    def _update(
        self, window: OpenWindow, items: Items, weights: Ints | None, chosen: Mask | None, outcome: Outcome
    ) -> None:
        """Valid occurrences into one sketch; misplaced ones are no-ops."""
        if chosen is not None:
            if not chosen.any():
                return
            items = items.take(chosen)
            weights = None if weights is None else weights[chosen]
        if self.rules.partitioner is not None:
            here = belongs(items, self.rules.partitioner, window.counts, self.partition)
            n_away = len(items) - int(np.count_nonzero(here))
            if n_away and self._count_now is not None:
                self._asked, self._count_now = self._count_now(), None
            if n_away and self._asked is not None:
                # for these items only: what is remembered must not depend on a payload
                counts = (*window.counts, self._asked)
                here = belongs(items, self.rules.partitioner, counts, self.partition)
                n_away = len(items) - int(np.count_nonzero(here))
            if n_away:
                outcome.misplaced += n_away
                items = items.take(here)
                weights = None if weights is None else weights[here]
        if len(items):
            window.sketch.update(items, weights, invalid="noop")
            outcome.updates += len(items)

    def _refused(self, decoded: Decoded, verdict: npt.NDArray[np.uint8], late: Mask, outcome: Outcome) -> None:
        """Which records go to sinks, and the exact counters of payloads."""
        from sketchstream.stream import kernels

        null = decoded.null
        outcome.nulls = int(np.count_nonzero(null))
        wrong = ~decoded.valid
        n_wrong = int(np.count_nonzero(wrong))
        if n_wrong:
            usable = np.zeros(null.size, np.bool_)
            if decoded.record is None:
                usable = ~wrong
                outcome.invalid = int(np.count_nonzero(wrong & ~null))
            else:
                usable[decoded.record[~wrong]] = True
                usable[np.setdiff1d(np.arange(null.size), decoded.record)] = True  # empty records hold nothing wrong
                outcome.invalid = int(np.count_nonzero(wrong & ~null[decoded.record]))
            outcome.undecodable_records = np.flatnonzero(~usable & ~null)
        if outcome.future:
            outcome.future_records = np.flatnonzero(verdict == kernels.FUTURE)
        if outcome.unreadable_times:
            lost = (verdict == kernels.UNREADABLE) & ~null
            lost[outcome.undecodable_records] = False
            outcome.time_records = np.flatnonzero(lost)
        if outcome.late:
            outcome.late_records = np.flatnonzero(late)

    def _keep(self, spec: ProfileSpec) -> Mask | None:
        """Items that have slots here, for closed domains under a known partitioner."""
        if self.rules.partitioner is None or not isinstance(spec.domain, ClosedDomain):
            return None
        return self._kept(spec, self.partitions)

    def _kept(self, spec: ProfileSpec, count: int) -> Mask:
        assert isinstance(spec.domain, ClosedDomain)
        assert self.rules.partitioner is not None
        name = (spec.fingerprint, count)
        if name not in self._masks:
            self._masks[name] = kept(spec.domain, self.rules.partitioner, count, self.partition)
        return self._masks[name]

    def _note_partial(self, first_time: int) -> None:
        """After a start in mid-stream, the windows up to the first record's may lack records."""
        if not self._partial:
            return
        self._partial = False
        for track in self.tracks.values():
            if track.plan is not None:
                track.partial = max(track.partial, track.plan.calendar.window(first_time)[1])

    # ------------------------------------------------------------------------------------------- sealing

    def advance(self, watermark: int) -> bool:
        """Raise the watermark of an idle partition; True if it moved. It must be committed before it is used."""
        if watermark <= self.watermark:
            return False
        self.watermark = min(watermark, LATEST_MS - 1)
        self._changed = True
        return True

    def _target(self, track: Track) -> int:
        """How far this sketch can be sealed: the last boundary whose lateness the watermark has passed."""
        limit = self.watermark - self.rules.lateness_ms if self.watermark != NO_TIME else NO_TIME
        if limit < EARLIEST_MS:
            return max(track.through, track.reached)
        if track.plan is None:
            ends = [one.end for one in track.windows.values() if one.end <= limit]
            return max([track.through, track.reached, *ends])
        reached = track.plan.calendar.window(min(limit, LATEST_MS - 1))[0]
        open_ends = [one.end for one in track.windows.values() if one.end <= limit]
        return max([track.through, track.reached, reached, *open_ends])

    @property
    def outbox_bytes(self) -> int:
        """Size of what is sealed and not yet published."""
        return sum(len(one.entry.body) for one in self._outbox)

    @property
    def to_publish(self) -> bool:
        """Whether sealed entries or frontiers wait for publication."""
        return bool(self._outbox or self._pending_frontiers or self._frontiers)

    @property
    def state_bytes(self) -> int:
        """Memory of the open windows' counters."""
        return sum(_bytes(window) for track in self.tracks.values() for window in track.windows.values())

    @property
    def dirty_bytes(self) -> int:
        """How much a capture would copy."""
        windows = [window for track in self.tracks.values() for window in track.windows.values()]
        copied = sum(_bytes(window) for window in windows if window.dirty or window.blob is None)
        return copied + sum(len(one.entry.body) for one in self._outbox if not one.saved)

    @property
    def open_windows(self) -> int:
        """How many windows are open, over all sketches."""
        return sum(len(track.windows) for track in self.tracks.values())

    def seal(self, *, everything: bool = False) -> int:
        """Seal what the watermark has passed; returns how many windows went to the outbox.

        Args:
            everything: seal every open window: a bounded input has ended, and nothing more will come.
        """
        n = 0
        for track in list(self.tracks.values()):
            through = self._target(track)
            if everything and track.windows:
                through = max(through, *(one.end for one in track.windows.values()))
            if through <= track.through:
                continue
            for start in sorted(track.windows):
                window = track.windows[start]
                if window.end <= through:
                    self._seal_window(track, window)
                    n += 1
            track.through = through
            track.last = None
            self._announce(track)
            self._changed = True
            if track.plan is None and not track.windows:
                del self.tracks[track.name]
        return n

    def _seal_window(self, track: Track, window: OpenWindow) -> None:
        """One window from open to the outbox; its state is destroyed here and now."""
        sketch = window.sketch
        sketch.origin = replace(sketch.origin, partitions_seal=window.counts[-1])
        sealed = sketch.seal()
        entry = SealedEntry(
            sketch=track.name,
            revision=self.revision,
            window=(window.start, window.end),
            partition=self.partition,
            seal_id=sealed.seal_id,
            body=sealed.to_bytes(),
        )
        self._outbox.append(_Outgoing(entry, _new_name()))
        del track.windows[window.start]
        track.reached = max(track.reached, window.end)
        if track.last is window:
            track.last = None

    def _announce(self, track: Track) -> None:
        """A new frontier for a sketch whose sealed-through or partition count moved."""
        track.sequence += 1
        track.announced = self.partitions
        self._pending_frontiers[track.name] = Frontier(
            sketch=track.name,
            revision=self.revision,
            partition=self.partition,
            published_through=track.through,
            partitions=self.partitions,
            sequence=track.sequence,
            partial_through=track.partial,
        )

    @property
    def published_through(self) -> int:
        """Smallest sealed-through of the configured sketches."""
        return min((track.through for track in self.tracks.values() if track.plan is not None), default=NO_TIME)

    # --------------------------------------------------------------------------------------- snapshots

    def changed(self) -> bool:
        """Whether a snapshot would differ from the last one."""
        return self._changed

    def outbox(self) -> tuple[tuple[SealedEntry, ...], tuple[Frontier, ...]]:
        """What the last capture holds for publication: entries, then the frontiers that cover them."""
        return tuple(one.entry for one in self._outbox if one.saved), tuple(self._frontiers.values())

    def published(self, entries: Iterable[SealedEntry], frontiers: Iterable[Frontier]) -> None:
        """These are out for good; the next snapshot need not hold them."""
        gone = {entry.seal_id for entry in entries}
        if gone:
            self._outbox = [one for one in self._outbox if one.entry.seal_id not in gone]
            self._changed = True
        for frontier in frontiers:
            if self._frontiers.get(frontier.sketch) == frontier:
                del self._frontiers[frontier.sketch]
                self._changed = True

    def capture(self) -> Snapshot:
        """A complete copy for the store, as of now. What is due is sealed first. The caller commits it or drops us."""
        self.seal()
        for track in self.tracks.values():
            if track.plan is not None and track.announced not in (NO_TIME, self.partitions):
                self._announce(track)
        blobs: dict[str, bytes] = {}
        keep: set[str] = set()
        sketches: dict[str, Plain] = {}
        for track in self.tracks.values():
            windows: list[Plain] = []
            for window in track.windows.values():
                if window.dirty or window.blob is None:
                    window.blob, window.dirty = _new_name(), False
                    blobs[window.blob] = window.sketch.to_bytes(with_items=False)
                else:
                    keep.add(window.blob)
                windows.append(
                    {"start": window.start, "end": window.end, "counts": list(window.counts), "blob": window.blob}
                )
            sketches[track.name] = {
                "through": track.through,
                "partial": track.partial,
                "sequence": track.sequence,
                "announced": track.announced,
                "windows": windows,
            }
        outbox: list[Plain] = []
        for one in self._outbox:
            if one.saved:
                keep.add(one.blob)
            else:
                blobs[one.blob] = one.entry.body
                one.saved = True
            entry = one.entry
            outbox.append(
                {
                    "sketch": entry.sketch,
                    "revision": entry.revision,
                    "start": entry.window[0],
                    "end": entry.window[1],
                    "seal_id": entry.seal_id,
                    "blob": one.blob,
                }
            )
        self._frontiers.update(self._pending_frontiers)
        self._pending_frontiers.clear()
        manifest: dict[str, Plain] = {
            "format": MANIFEST_FORMAT,
            "partition": self.partition,
            "position": self.position,
            "revision": self.revision,
            "watermark": self.watermark,
            "partitions": self.partitions,
            "partial": self._partial,
            "sketches": sketches,
            "outbox": outbox,
            "frontiers": [_frontier_fields(frontier) for frontier in self._frontiers.values()],
        }
        self._changed = False
        return Snapshot(
            partition=self.partition,
            position=self.position,
            manifest=manifest,
            blobs=blobs,
            keep=frozenset(keep),
            revision=self.revision,
            spec_fingerprint=self.rules.fingerprint,
        )

    @classmethod
    def restore(cls, rules: Rules, partition: int, restored: Restored, partitions: int) -> PartitionState:
        """The state that a snapshot holds.

        Args:
            rules: of the worker, perhaps with other sketches than the snapshot's: open windows finish under the spec
                they began with, new sketches begin with the next window.
            partition: of the input.
            restored: from the store.
            partitions: of the input now.

        Raises:
            DataLossError: the snapshot cannot be used; the message says why and what to do.
        """
        manifest = restored.manifest
        with _Usable(partition):
            if manifest["format"] != MANIFEST_FORMAT:
                msg = (
                    f"partition {partition}: its snapshot has format {manifest['format']!r}, this version "
                    f"writes {MANIFEST_FORMAT}; run the version that wrote it, or a newer one"
                )
                raise DataLossError(msg)
            if manifest["partition"] != partition or manifest["position"] != restored.position:
                msg = f"partition {partition}: its snapshot belongs to another partition or position"
                raise DataLossError(msg)
            state = cls(rules, partition, restored.position, _int(manifest["partitions"]), _int(manifest["revision"]))
            state.watermark = _int(manifest["watermark"])
            state._partial = bool(manifest["partial"])
            saved = _table(manifest["sketches"])
            for name, fields in saved.items():
                state._restore_track(name, _table(fields), restored.blobs)
            for plan in rules.sketches:
                if plan.name not in saved:
                    state._begin(plan)
            for one in _tables(manifest["outbox"]):
                state._restore_outgoing(one, restored.blobs)
            for one in _tables(manifest["frontiers"]):
                frontier = Frontier(**one)
                state._frontiers[frontier.sketch] = frontier
        state._changed = False
        state.set_partitions(partitions)
        return state

    def _restore_track(self, name: str, fields: dict[str, Any], blobs: Mapping[str, bytes]) -> None:
        track = self.tracks.get(name) or Track(name, None)
        track.through, track.partial = _int(fields["through"]), _int(fields["partial"])
        track.sequence, track.announced = _int(fields["sequence"]), _int(fields["announced"])
        for one in _tables(fields["windows"]):
            start, end = _int(one["start"]), _int(one["end"])
            counts = tuple(_int(count) for count in one["counts"])
            sketch = self._restore_sketch(track, blobs[one["blob"]], counts)
            origin = sketch.origin
            if (origin.name, origin.partition, origin.window, origin.revision) != (
                name,
                self.partition,
                (start, end),
                self.revision,
            ):
                msg = f"partition {self.partition}: a blob of sketch {name!r} belongs to another window"
                raise DataLossError(msg)
            track.windows[start] = OpenWindow(start, end, sketch, counts, one["blob"], dirty=False)
        if track.plan is None and not track.windows:
            return
        self.tracks[name] = track
        self._odd[name] = not track.aligned()

    def _restore_sketch(self, track: Track, data: bytes, counts: tuple[int, ...]) -> Sketch:
        """An open sketch from its bytes; the list of items of a closed domain comes from the configuration."""
        from sketchstream import wire

        plan, key = track.plan, self.rules.key
        header, _ = wire.unpack(data, None)
        same = plan is not None and ProfileSpec.from_dict(header["spec"]).fingerprint == plan.spec.fingerprint
        if same:
            assert plan is not None
            keep = None
            if self.rules.partitioner is not None and isinstance(plan.spec.domain, ClosedDomain):
                keep = self._kept(plan.spec, counts[0])
            return Sketch.from_bytes(data, key, spec=plan.spec, keep=keep)
        old = ProfileSpec.from_dict(header["spec"])
        if isinstance(old.domain, ClosedDomain) and old.domain.listed:
            msg = (
                f"partition {self.partition}: sketch {track.name!r} has open windows with another list of items; put "
                "the former items_file back until they have closed, or give the new list to a sketch of another name"
            )
            raise DataLossError(msg)
        keep = None
        if self.rules.partitioner is not None and isinstance(old.domain, ClosedDomain):
            keep = self._kept(old, counts[0])
        return Sketch.from_bytes(data, key, keep=keep)

    def _restore_outgoing(self, fields: dict[str, Any], blobs: Mapping[str, bytes]) -> None:
        entry = SealedEntry(
            sketch=str(fields["sketch"]),
            revision=_int(fields["revision"]),
            window=(_int(fields["start"]), _int(fields["end"])),
            partition=self.partition,
            seal_id=bytes(fields["seal_id"]),
            body=blobs[fields["blob"]],
        )
        self._outbox.append(_Outgoing(entry, str(fields["blob"]), saved=True))

    def _begin(self, plan: SketchPlan) -> None:
        """A sketch that was added while the stream ran: its first window is the first one without a past.

        Records up to the watermark were read without it, so it takes nothing into windows that begin by then.
        """
        if self.watermark != NO_TIME:
            track = self.tracks[plan.name]
            track.through = track.partial = plan.calendar.window(self.watermark)[1]
            self._announce(track)


@dataclass
class _Admitted:
    """A chunk between admission and windows."""

    decoded: Decoded
    times: Ints
    before: Ints
    verdict: npt.NDArray[np.uint8]
    low: int
    high: int
    mark: int
    late: Mask
    items: Items = field(init=False)
    weights: Ints | None = field(init=False)
    good: Mask | None = field(init=False)

    def __post_init__(self) -> None:
        decoded = self.decoded
        self.items = decoded.items
        self.weights = decoded.weights
        admitted = self.verdict == 0
        good = decoded.valid & (admitted if decoded.record is None else admitted[decoded.record])
        self.good = None if good.all() else good


class _Usable:
    """Within this block, a snapshot that lacks or bends something halts its partition."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Turn what a wrong snapshot causes into a DataLossError that says what to do."""
        if error is None or isinstance(error, DataLossError):
            return
        if isinstance(error, KeyMismatchError):
            msg = (
                f"partition {self._partition}: its open windows were made with another hash key; put the former key "
                "back, or start a new revision with `sketchstream reset`"
            )
            raise DataLossError(msg) from None
        broken = (KeyError, TypeError, ValueError, AttributeError, FormatError, SpecError)
        if isinstance(error, (*broken, SketchstreamError)):
            msg = f"partition {self._partition}: its snapshot cannot be read ({type(error).__name__})"
            raise DataLossError(msg) from None


def _fitted(pairs: list[tuple[int, int]], pinned: list[tuple[int, int]], times: Ints) -> list[tuple[int, int]]:
    """Windows of the calendar, cut so that open windows of another width or zone keep their bounds."""
    out: set[tuple[int, int]] = set()
    for start, end in pairs:
        at = start
        for low, high in sorted(pinned):
            if high <= at or low >= end:
                continue
            if low > at:
                out.add((at, low))
            out.add((low, high))
            at = max(at, high)
        if at < end:
            out.add((at, end))
    fitted = sorted(out)
    # only windows that hold a time may be opened; the others would be empty
    starts = np.array([start for start, _ in fitted], np.int64)
    used = np.unique(np.searchsorted(starts, times, side="right") - 1)
    return [fitted[index] for index in used.tolist()]


def _frontier_fields(frontier: Frontier) -> Plain:
    return {
        "sketch": frontier.sketch,
        "revision": frontier.revision,
        "partition": frontier.partition,
        "published_through": frontier.published_through,
        "partitions": frontier.partitions,
        "sequence": frontier.sequence,
        "partial_through": frontier.partial_through,
    }


def _bytes(window: OpenWindow) -> int:
    """Memory of one window's counters."""
    return window.sketch.slots * window.sketch.spec.dtype.itemsize


def _new_name() -> str:
    """A name that no blob ever had."""
    return secrets.token_hex(16)


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        msg = "expected a whole number"
        raise TypeError(msg)
    return value


def _table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        msg = "expected a table"
        raise TypeError(msg)
    return value


def _tables(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        msg = "expected a list"
        raise TypeError(msg)
    return [_table(one) for one in value]
