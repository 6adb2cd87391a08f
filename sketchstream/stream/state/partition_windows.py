"""The windows of one partition: sketches that count, watermark, what is due and what is published.

In: chunks of one partition, in order. Out: outcomes for counters and sinks, sealed entries, frontiers. Touches: its own
sketches; entropy when a window opens or is sealed. No file, no network, and no clock but one that measures how long
sealing takes. See `partition`, which states the laws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from time import perf_counter

import numpy as np
import numpy.typing as npt

from sketchstream import kinds
from sketchstream.array_types import Flags, Ints
from sketchstream.errors import BrokerError
from sketchstream.items.events import Events
from sketchstream.kinds import closing_step
from sketchstream.kinds.capabilities import Reconstructing, SlotsOfItems
from sketchstream.kinds.interface import Spec
from sketchstream.published import Instalment, Origin, Release, SealedState
from sketchstream.sketch import Sketch
from sketchstream.stream import kernels
from sketchstream.stream.input.partition_counts import CountNeeded, LongWork, PartitionCounts, Steps, unanswered
from sketchstream.stream.input.partitioner import belongs
from sketchstream.stream.interfaces import Chunk, Frontier, SealedEntry
from sketchstream.stream.state.domain_lists import DomainLists
from sketchstream.stream.state.domain_slots import DomainSlots
from sketchstream.stream.state.evidence import Evidence, EvidenceNoise
from sketchstream.stream.state.outbox import Outbox
from sketchstream.stream.state.outcome import NO_INTS, Outcome
from sketchstream.stream.state.quorum import Admission, Watermark
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.state.sketch_state import OpenWindow, Track
from sketchstream.stream.state.window_cover import covering, overlapping
from sketchstream.stream.windows.plans import EarlyAnswers, SketchPlan
from sketchstream.stream.windows.windows import EARLIEST_MS, LATEST_MS, NO_TIME

LARGE_SLOTS = 1 << 17
"""Slots from which opening or sealing a window is long work: less than that takes milliseconds."""
SMALLEST_SLOTS = 1 << 10
"""Slots that a window counts as at least: what a small one takes does not depend on its slots."""
MOST_IDLED = 15
"""Stretches of time that idleness has passed over, of which contradictions are noticed."""


class PartitionWindows:
    """All of the state of one partition but how it begins, is copied and is restored.

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
        self.counts = PartitionCounts(partitions)
        self.slots = DomainSlots(rules, partition)
        self.revision = revision
        self.newest = NO_TIME
        self._watermark = Watermark(rules.quorum, rules.lateness_ms)
        self._advances: dict[int, int] = {}
        checked = rules.partitioner is not None
        self.tracks: dict[str, Track] = {
            plan.name: Track(
                plan.name,
                plan,
                evidence=Evidence(EvidenceNoise.of(plan, checked=checked, anywhere=rules.anywhere)),
            )
            for plan in rules.sketches
        }
        self._idled: list[tuple[int, int]] = []
        self.early_through = NO_TIME
        self.outbox = Outbox()
        self._partial = False
        self._rewound = False
        self.begins = NO_TIME
        self.former_specs: dict[str, Spec] = {}
        self.lists = DomainLists(rules.key)
        self.claim: Callable[[str, int, int], int] | None = None
        """Claims windows of (sketch, revision) that begin at a time or later; returns where they may (`IoTasks`)."""
        self._answers: dict[CountNeeded, int | None] = {}
        self._events_by_spec: dict[tuple[bytes, tuple[tuple[str, str], ...], tuple[int, int] | None], Events] = {}
        self.seal_seconds: list[float] = []
        self._worked = 0
        self._changed = True

    def __repr__(self) -> str:
        """Positions and numbers of windows."""
        return f"<{type(self).__name__} {self.partition} at {self.position}, {self.open_windows} open windows>"

    @property
    def watermark(self) -> int:
        """The time that a quorum of records agrees has been reached; NO_TIME before that."""
        return self._watermark.value

    # ------------------------------------------------------------------------------------------- records

    def set_partitions(self, partitions: int) -> None:
        """Set the partition count of the input; open windows remember every count that was valid since they opened.

        A smaller count is older; see `PartitionCounts.grow`.
        """
        former = self.partitions
        if not self.counts.grow(partitions):
            return
        for track in self.tracks.values():
            track.grown_from, track.grown_through = former, track.through
            for window in track.windows.values():
                window.counts = (*window.counts, partitions)
                self.slots.fit(window, window.counts)
        self._changed = True

    @property
    def partitions(self) -> int:
        """The partition count of the input, as last set."""
        return self.counts.now

    def settle_counts(self, position: int) -> None:
        """Note that records from `position` on were placed by the present partition count only."""
        self.counts.settle(position)
        self._changed = True

    def apply(self, chunk: Chunk, *, clock_ms: int | None = None) -> Outcome:
        """Like `applying`, without a cluster to ask: the partition count is the one that was last set."""
        return unanswered(self.applying(chunk, clock_ms=clock_ms))

    def applying(self, chunk: Chunk, *, clock_ms: int | None = None) -> Steps[Outcome]:
        """Count the records of a chunk that starts at `position`, seal the windows that they close, and advance.

        Args:
            chunk: of this partition.
            clock_ms: records more than `max_ahead_ms` beyond it are refused as future; None: none are. It decides
                nothing else, and records with a correct clock are far from this limit.

        Asks for the partition count, at most once for each reason: before the first window is sealed, because
        partitions may have been added since the worker last heard of them, and when a misplaced item is found. A
        computation that is not run to its end leaves a state that must be dropped.

        Raises:
            ValueError: the chunk starts at another position, and the source must seek; or its records cannot be those
                between its positions. Nothing was applied.
        """
        if chunk.partition != self.partition or chunk.from_position != self.position:
            msg = f"partition {self.partition} is at {self.position}; this chunk starts at {chunk.from_position}"
            raise ValueError(msg)
        self._require_between(chunk)

        self._answers.clear()
        self._worked = 0
        events = chunk.events
        n = events.times.size
        outcome = Outcome(records=n, late={})
        advances = self._due_advances(chunk)
        if n:
            known = self.watermark
            future_after = LATEST_MS if clock_ms is None else clock_ms + self.rules.max_ahead_ms
            admission = self._watermark.admit(events.times, chunk.timestamps, future_after, advances)
            for before, after in admission.advanced:
                self._note_idle(before, after)
            outcome.future, outcome.unreadable_times = admission.future, admission.unreadable
            outcome.early, outcome.jumps, outcome.jumped_at = admission.early, admission.jumps, admission.jumped_at
            if admission.jumps:
                outcome.moved, outcome.moved_at = _longest_move(admission.before, self.watermark)
            if admission.future + admission.unreadable < n:
                self._note_partial(known, admission, chunk.timestamps, future_after)
                self.newest = max(self.newest, admission.high)
                for track in self.tracks.values():
                    if track.plan is None or track.plan.early is None:
                        yield from self._count(track, events, admission, outcome)
                    else:
                        yield from self._count_with_early(track, track.plan.early, events, admission, outcome)
                self._events_by_spec.clear()  # nothing of the records stays
                self.early_through = max(self.early_through, int(admission.before[-1]))
            self._note_unplaced(chunk, admission.verdict)
            outcome.sealed += yield from self._seal()
            outcome.note_refused(events, admission)
            self._note_contradictions(chunk, advances)
        elif advances:
            for _, watermark in advances:
                self.advance(watermark)
            outcome.sealed += yield from self._seal()
        self.position = chunk.next_position
        self.counts.passed(self.position)
        self._changed = True
        return outcome

    def _note_unplaced(self, chunk: Chunk, verdict: npt.NDArray[np.uint8]) -> None:
        """Count future records, and those of an unreadable time, for the windows in which they were meant to be.

        A record whose event time cannot be read is counted for the windows that hold its own timestamp; if it has
        none, for those that hold the newest event time. A tombstone is meant for no window.
        """
        lost = verdict == kernels.UNREADABLE
        if chunk.tombstones is not None:
            lost &= ~chunk.tombstones
        future = verdict == kernels.FUTURE
        if not lost.any() and not future.any():
            return
        stamps = chunk.timestamps
        known = np.full(verdict.size, self.newest, np.int64)
        if stamps is not None:
            known = np.where(stamps >= 0, stamps, known)
        times = np.concatenate([chunk.events.times[future], known[lost]])
        times = times[(times >= EARLIEST_MS) & (times < LATEST_MS)]
        for track in self.tracks.values():
            track.evidence.refuse(times, track.holding(times), track.through)

    def _note_idle(self, before: int, after: int) -> None:
        """Note that idleness moved the watermark; records that come later may prove it wrong."""
        if self._idled and self._idled[-1][1] == before:
            before = self._idled.pop()[0]
        self._idled = [*self._idled[-MOST_IDLED:], (before, after)]

    def _note_contradictions(self, chunk: Chunk, advances: Sequence[tuple[int, int]]) -> None:
        """Mark the windows that idleness closed although records were written in them that come only now.

        The records' own timestamps decide, nothing in their payloads.
        """
        if not self._idled or chunk.timestamps is None:
            return
        first = max((index for index, _ in advances), default=0)
        stamps = chunk.timestamps[first:]
        for track in self.tracks.values():
            track.evidence.contradict(stamps, self._idled, self.rules.lateness_ms)

    def _require_between(self, chunk: Chunk) -> None:
        """Refuse a chunk with records outside of its positions, or with more records than these can have.

        Offsets ascend, so a record that came twice, or that belongs to an earlier chunk, is found by three comparisons.
        """
        offsets, positions = chunk.offsets, chunk.next_position - chunk.from_position
        if not offsets.size:
            return
        if offsets[0] < chunk.from_position or offsets[-1] >= chunk.next_position or offsets.size > positions:
            msg = (
                f"partition {self.partition}: a chunk from {chunk.from_position} to {chunk.next_position} has "
                f"{offsets.size} records from {offsets[0]} to {offsets[-1]}"
            )
            raise ValueError(msg)

    def _count(self, track: Track, events: Events, admission: Admission, outcome: Outcome) -> Steps[None]:
        """Count the records of a chunk in the windows of one sketch."""
        if track.overlapping:
            yield from self._count_overlapping(track, events, admission, outcome)
            return
        low, high, lateness = admission.low, admission.high, self.rules.lateness_ms
        times, before = admission.times, admission.before
        starts, ends = covering(track, admission)
        yield from self._claim_opened(track, admission, zip(starts.tolist(), ends.tolist(), strict=True))
        steps = [self._step(track, int(start)) for start in starts]
        if len(starts) == 1 and not (steps[0] and self._closes_at(int(starts[0]), low, steps[0]) <= admission.mark):
            only = int(ends[0])
            if only + lateness > admission.mark and only > track.through and starts[0] <= low and high < only:
                window = yield from self._opening(track, int(starts[0]), only)
                if window is not None:
                    window.sketch.admit(int(np.count_nonzero(admission.admitted)))
                    yield from self._update(track, window, events, _usable(events, admission), outcome)
                return
        places = np.empty(times.size, np.int32)
        used = np.zeros(len(starts), np.bool_)
        n_late = kernels.place(times, before, admission.verdict, starts, ends, lateness, track.through, places, used)
        for index, step in enumerate(steps):
            if step is not None and used[index]:  # a position that has closed takes nothing more
                start, end = int(starts[index]), int(ends[index])
                here = places == index
                since = np.where(here, times - start, 0)
                closing = np.minimum(start + (since // step + 1) * step, end) + lateness
                here &= closing <= before
                places[here] = kernels.LATE
                n_late += int(np.count_nonzero(here))
                used[index] = bool((places == index).any())
        if n_late:
            late = (places == kernels.LATE) & (times >= track.earlier)
            if track.plan is not None or track.windows:
                self._note_late(track, admission, late, outcome)
            track.evidence.refuse(times[places == kernels.LATE], track.holding(times[late]), track.through)
        for index in np.flatnonzero(used).tolist():
            window = yield from self._opening(track, int(starts[index]), int(ends[index]))
            if window is not None:
                yield from self._take(track, window, events, admission, places, index, outcome)

    def _count_with_early(
        self, track: Track, early: EarlyAnswers, events: Events, admission: Admission, outcome: Outcome
    ) -> Steps[None]:
        """Count the records of a chunk, and release early answers between them, where the watermark passed their time.

        An answer that is due at a watermark holds the records before the one that comes at that watermark: it is a
        function of the sequence of records, however that is divided into chunks.
        """
        first, n = 0, admission.times.size
        for index, due in [*self._due_early(track, early, admission), (n, [])]:
            part = admission.between(first, index)
            if part is not None:
                yield from self._count(track, events, part, outcome)
            first = index
            for start, time_ms in due:
                yield from self._release_early(track, early, start, time_ms, int(admission.before[index]))

    def _due_early(
        self, track: Track, early: EarlyAnswers, admission: Admission
    ) -> list[tuple[int, list[tuple[int, int]]]]:
        """Before which records of a chunk early answers are due: starts of windows, and times. `_emit` has the rest."""
        starts, ends = covering(track, admission)
        bounds = {(one.start, one.end) for one in track.windows.values()} | set(
            zip(starts.tolist(), ends.tolist(), strict=True)
        )
        due: dict[int, dict[int, int]] = {}
        for start, end in sorted(bounds):
            for time_ms in early.times((start, end)):
                if self.early_through < time_ms <= admission.mark:
                    index = int(np.searchsorted(admission.before, time_ms, side="left"))
                    if index < admission.times.size:
                        due.setdefault(index, {})[start] = time_ms  # the last of several that are due at once
        return [(index, sorted(due[index].items())) for index in sorted(due)]

    def _emit(self) -> Steps[None]:
        """Release the early answers whose time the watermark has passed since the last record."""
        for track in self.tracks.values():
            early = None if track.plan is None else track.plan.early
            if early is None:
                continue
            for window in sorted(track.windows.values(), key=lambda one: one.start):
                passed = [
                    time_ms
                    for time_ms in early.times((window.start, window.end))
                    if self.early_through < time_ms <= self.watermark
                ]
                if passed:
                    yield from self._release_early(track, early, window.start, passed[-1], self.watermark)
        self.early_through = max(self.early_through, self.watermark)

    def _release_early(
        self, track: Track, early: EarlyAnswers, start: int, time_ms: int, watermark: int
    ) -> Steps[None]:
        """Put a release from an open window into the outbox.

        Nothing if it is not open, has had all of its early answers, or is sealed at this watermark anyway.
        """
        window = track.windows.get(start)
        if window is None or window.early >= early.most or window.end + self.rules.lateness_ms <= watermark:
            return
        kind, spec = kinds.of(window.sketch.spec), window.sketch.spec
        if not isinstance(kind, Reconstructing) or kind.accounting.promise(spec).kind != "histogram":
            return  # it was opened under another configuration
        window.early, window.dirty, self._changed = window.early + 1, True, True
        if window.sketch.origin.partitions:
            window.sketch.origin = replace(window.sketch.origin, partitions=window.counts)
        release = partial(self._release, window, early.epsilon, time_ms)
        if self._takes_long(window.sketch.spec):
            released = LongWork(release)
            yield released
            self.outbox.put(released.result)
        else:
            self.outbox.put(release())

    def _release(self, window: OpenWindow, epsilon: Fraction, time_ms: int) -> SealedEntry:
        """Release the view of one open window. Touches nothing but its sketch."""
        return self._entry(window, window.sketch.release(epsilon), early=time_ms)

    def _entry(
        self,
        window: OpenWindow,
        shown: Release | SealedState | Instalment,
        positions: tuple[int, int] | None = None,
        early: int | None = None,
    ) -> SealedEntry:
        """What is published of a window."""
        place = (shown.origin.name, self.revision, (window.start, window.end), self.partition)
        return SealedEntry(*place, shown.seal_id, shown.to_bytes(), positions, early)

    def _step(self, track: Track, start: int) -> int | None:
        """Length of a position in ms, for windows whose positions are published when they close."""
        window = track.windows.get(start)
        if window is not None:
            spec = window.sketch.spec
        elif track.plan is not None:
            spec = self._spec(track.plan, start)
        else:
            return None
        return closing_step(spec)

    def _closes_at(self, start: int, time: int, step: int) -> int:
        """The watermark at which the position that holds a time closes, in a window that begins at `start`."""
        return start + ((time - start) // step + 1) * step + self.rules.lateness_ms

    def _count_overlapping(self, track: Track, events: Events, admission: Admission, outcome: Outcome) -> Steps[None]:
        """Count the records of a chunk in overlapping windows: each record in every window that holds its time.

        A record that is late for any of them is counted as late once.
        """
        times, before, lateness = admission.times, admission.before, self.rules.lateness_ms
        places = np.empty(times.size, np.int32)
        late = np.zeros(times.size, np.bool_)
        windows = overlapping(track, admission)
        yield from self._claim_opened(track, admission, windows)
        former, admitted = track.evidence.known.difference(windows), admission.admitted
        if any(start <= admission.high and admission.low < end for start, end in former):
            track.evidence.refuse(times[admitted], former, track.through)
        for start, end in overlapping(track, admission):
            if end <= track.earlier:
                continue
            n = kernels.inside(times, before, admission.verdict, start, end, lateness, track.through, places, late)
            window = (yield from self._opening(track, start, end)) if n else None
            if window is not None:
                yield from self._take(track, window, events, admission, places, 0, outcome)
            inside = admitted & (times >= start) & (times < end)
            refused = inside & (places == kernels.OUT)
            track.evidence.refuse(times[refused], [(start, end)], track.through)
        self._note_late(track, admission, late, outcome)

    @staticmethod
    def _note_late(track: Track, admission: Admission, late: Flags, outcome: Outcome) -> None:
        """Count late records; those of windows from before the sketch are not among them."""
        n_late = int(np.count_nonzero(late))
        if n_late:
            outcome.late[track.name] = outcome.late.get(track.name, 0) + n_late
            admission.late |= late
            track.late.add(n_late)

    def _take(
        self,
        track: Track,
        window: OpenWindow,
        events: Events,
        admission: Admission,
        places: npt.NDArray[np.int32],
        index: int,
        outcome: Outcome,
    ) -> Steps[None]:
        """Count the records of a chunk that were placed in one window.

        Windows come in ascending order, and each is sealed at once if the chunk's last watermark closes it: however
        long a chunk is, no more windows are open at a time than the lateness requires.
        """
        window.sketch.admit(int(np.count_nonzero(places == index)))
        record, chosen = events.record, np.empty(len(events), np.bool_)
        n = kernels.choose(
            NO_INTS if record is None else record, record is not None, events.valid, places, index, chosen
        )
        if n:
            yield from self._update(track, window, events, chosen, outcome)
        if window.end + self.rules.lateness_ms <= admission.mark:
            yield from self._ask_partitions()
            yield from self._sealing_window(track, window)
            outcome.sealed += 1

    def _claim_opened(self, track: Track, admission: Admission, windows: Iterable[tuple[int, int]]) -> Steps[None]:
        """Claim the windows that records of a chunk will open, before the records are assigned.

        Args:
            track: of the sketch.
            admission: verdicts on the records.
            windows: that hold its times, ascending.
        """
        for start, end in windows:
            if start >= track.live or track.plan is None:
                return
            if start in track.windows or end <= track.through:
                continue
            inside = admission.admitted & (admission.times >= start) & (admission.times < end)
            if (admission.before[inside] < end + self.rules.lateness_ms).any():
                yield from self._claim(track, track.plan, start)

    def _claim(self, track: Track, plan: SketchPlan, start: int) -> Steps[None]:
        """Claim the windows that begin at `start` or later; those that a history has are as good as sealed."""
        if self.claim is None:
            return
        claimed = LongWork(partial(self.claim, track.name, self.revision, start))
        yield claimed
        track.live, self._changed = claimed.result, True
        if track.live <= start:
            return
        if track.overlapping:
            track.begins = max(track.begins, track.live)
            return
        edge = plan.calendar.window(track.live)
        through = edge[0] if edge[0] == track.live else edge[1]
        if through > track.through:
            track.evidence.seal(plan, track.through, through)
            track.through, track.last = through, None

    def _opening(self, track: Track, start: int, end: int) -> Steps[OpenWindow | None]:
        """The open window at `start`, created if necessary; None if no sketch is kept for it."""
        if start not in track.windows and track.plan is not None and self._takes_long(self._spec(track.plan, start)):
            draw = self._drawing(track.plan, start, end)
            if draw is not None:
                drawn = LongWork(draw)
                yield drawn
                return self._open(track, start, end, drawn.result)
        return self._open(track, start, end)

    def _open(self, track: Track, start: int, end: int, drawn: Sketch | None = None) -> OpenWindow | None:
        """See `_opening`; `drawn`: the sketch of a new window."""
        window = track.windows.get(start)
        if window is None:
            draw = None if track.plan is None else self._drawing(track.plan, start, end)
            if draw is None:
                return None
            counts = self.counts.valid(self.position)
            window = OpenWindow(start, end, draw() if drawn is None else drawn, counts, slots_for=counts)
            track.windows[start] = window
            track.evidence.open(start, end)
        window.dirty = True
        track.last = window
        return window

    def _drawing(self, plan: SketchPlan, start: int, end: int) -> Callable[[], Sketch] | None:
        """What makes the sketch of a new window; None if no sketch is kept for it."""
        counts = self.counts.valid(self.position)
        spec = self._spec(plan, start)
        keep = self.slots.keep(spec, counts)
        if keep is not None and not keep.any():
            return None  # a public fact: the partitioner sends no item of the list here
        chosen = keep is not None and isinstance(kinds.of(spec), SlotsOfItems)
        origin = Origin(
            name=plan.name,
            revision=self.revision,
            window=(start, end),
            partition=self.partition,
            partitions=counts,
            partitioner=self.rules.partitioner if chosen else None,
        )
        return partial(Sketch.create, spec, self.rules.key, origin=origin, keep=keep)

    def _spec(self, plan: SketchPlan, start: int) -> Spec:
        """The spec of a window that starts then: a changed configuration takes effect at one time in all partitions."""
        former = self.former_specs.get(plan.name)
        return plan.spec if former is None or start >= self.begins else former

    @property
    def changing(self) -> bool:
        """Whether windows that open now may still have sketches of an earlier configuration."""
        return bool(self.former_specs) and self.newest < self.begins

    def postpone(self, begins: int) -> None:
        """Begin changed sketches later, as another partition does, if this one has not reached its own time yet."""
        if self.changing and begins > self.begins:
            self.begins = begins
            self._changed = True

    def _update(
        self, track: Track, window: OpenWindow, events: Events, chosen: Flags | Ints | None, outcome: Outcome
    ) -> Steps[None]:
        """Add valid occurrences to one sketch; misplaced ones, and those that its kind cannot use, do nothing."""
        fields = track.fields(window.sketch.spec)
        if fields is None:
            return  # the window was marked as one that lacks records when the snapshot was read
        counted = self._counted_by(window, fields, events)
        if counted.good is not None:
            chosen = counted.good if chosen is None else chosen & counted.good
        if chosen is not None and not chosen.any():
            return
        if self.rules.partitioner is not None:
            items = events.items if chosen is None else events.items.take(chosen)
            here = belongs(items, self.rules.partitioner, window.counts, self.partition)
            n_away = len(items) - int(np.count_nonzero(here))
            asked = (yield from self._ask(CountNeeded.ITEMS)) if n_away else None
            if asked is not None and asked > window.counts[-1]:
                # for these items only: what is remembered must not depend on a payload
                counts = (*window.counts, asked)
                here = belongs(items, self.rules.partitioner, counts, self.partition)
                if len(items) - int(np.count_nonzero(here)) < n_away:
                    self.slots.fit(window, counts)
                n_away = len(items) - int(np.count_nonzero(here))
            if n_away:
                outcome.misplaced += n_away
                away, at = items.take(~here), (window.start, window.end)
                track.evidence.misplace(*at, away, self.partition, window.counts[-1])
                places = np.flatnonzero(here)
                chosen = places if chosen is None else np.flatnonzero(chosen)[places]
        taken, weights = counted.items, counted.weights
        if chosen is not None:
            taken = taken.take(chosen)
            weights = None if weights is None else weights[chosen]
        if len(taken):
            window.sketch.update(taken, weights, invalid="noop")
            outcome.updates += len(taken)

    def _counted_by(self, window: OpenWindow, fields: Mapping[str, str], events: Events) -> Events:
        """The events as the kind of a sketch counts them; made once for all windows, unless they depend on the window.

        Args:
            window: of the sketch.
            fields: role -> field of the record, as `SketchPlan.fields`.
            events: of the chunk.
        """
        spec, bounds = window.sketch.spec, (window.start, window.end)
        intake = kinds.of(spec).intake
        depends = intake.stretch_ms(spec) is not None
        name = (spec.fingerprint, tuple(fields.items()), bounds if depends else None)
        if name not in self._events_by_spec:
            columns = {role: events.columns[field] for role, field in fields.items()}
            self._events_by_spec[name] = intake.events(spec, replace(events, columns=columns, window=bounds))
        return self._events_by_spec[name]

    def _ask(self, needed: CountNeeded) -> Steps[int | None]:
        """Ask for the current partition count, once for each reason; None if there is no cluster to ask."""
        if self._answers.get(needed) is None:
            self._answers[needed] = yield needed
        return self._answers[needed]

    def _ask_partitions(self) -> Steps[None]:
        """Before a window is sealed, learn of partitions that were added, so that the window is marked."""
        count = yield from self._ask(CountNeeded.SEAL)
        if count is not None:
            self.set_partitions(count)

    def _takes_long(self, spec: Spec) -> bool:
        """Whether opening or sealing the next window of this spec is long work.

        That of a large window is; and now and then that of a small one, when what a computation has done without a
        pause adds up to a large one. The worker polls meanwhile, whether one window is large or thousands are small.
        """
        self._worked += max(SMALLEST_SLOTS, spec.slots)
        if self._worked < LARGE_SLOTS:
            return False
        self._worked = 0
        return True

    def skip(self, position: int) -> None:
        """Continue at a later position: the records between are lost, see `lack`.

        Raises:
            ValueError: the position is not later than the present one.
        """
        if position <= self.position:
            msg = f"partition {self.partition} is at {self.position}; it can only skip forward"
            raise ValueError(msg)
        self.position = position
        self._changed = True
        self._watermark.forget_votes()
        self._advances.clear()
        self.lack()

    def lack(self) -> None:
        """Note that records before `position` are missing: open windows, and those passed from now on, may lack some.

        The record that moves the watermark ends this, however late the first ones were: the last windows marked are
        those of the newest record until then, of that record's own timestamp, and of times up to the lateness beyond
        them.
        """
        self._partial = True
        for track in self.tracks.values():
            if track.windows:
                before = track.partial
                track.mark_partial(max(window.end for window in track.windows.values()))
                if track.partial != before:
                    self._announce(track)

    def rewind(self, position: int) -> None:
        """Continue at an earlier position, where the log was truncated: open windows may hold records that it has lost.

        Raises:
            ValueError: the position is not earlier than the present one.
        """
        if position >= self.position:
            msg = f"partition {self.partition} is at {self.position}; it can only be rewound to an earlier position"
            raise ValueError(msg)
        self.position = position
        self._changed = self._rewound = True
        self._watermark.forget_votes()
        self._advances.clear()
        for track in self.tracks.values():
            if track.windows:
                track.mark_diverged(max(window.end for window in track.windows.values()))
            self._announce(track)

    def _note_partial(self, known: int, admission: Admission, stamps: Ints | None, future_after: int) -> None:
        """Note that the watermark, `known` before this chunk, has moved after missing records; see `lack`.

        A delayed record can move it where a quorum is one record, but its timestamp says until when records were lost.
        A timestamp beyond `future_after` says nothing: its clock was wrong.
        """
        if not self._partial:
            return
        after = np.append(admission.before[1:], admission.mark)
        moved = int(np.argmax(after > known))
        if after[moved] <= known:
            return
        self._partial = False
        read = admission.times[: moved + 1][admission.verdict[: moved + 1] == 0]
        newest = int(read.max(initial=max(self.newest, int(after[moved]))))
        if stamps is not None and stamps[moved] <= future_after:
            newest = max(newest, int(stamps[moved]))
        for track in self.tracks.values():
            if track.plan is not None:
                track.mark_partial(track.plan.last_end(min(newest + self.rules.lateness_ms, LATEST_MS - 1)))

    # ------------------------------------------------------------------------------------------- sealing

    def advance(self, watermark: int) -> bool:
        """Raise the watermark without votes; True if it moved. That must be committed before it is used."""
        before = self.watermark
        moved = self._watermark.advance(watermark)
        if moved:
            self._note_idle(before, self.watermark)
            self._changed = True
        return moved

    def advance_at(self, position: int, watermark: int) -> bool:
        """Raise the watermark before the record at `position`, now or once all records before it were applied.

        True if it moved now. A position that was already passed is too late: later records were placed without it.
        """
        if position > self.position:
            self._advances[position] = max(watermark, self._advances.get(position, NO_TIME))
        return position == self.position and self.advance(watermark)

    def _due_advances(self, chunk: Chunk) -> list[tuple[int, int]]:
        """The advances within a chunk or at its end: the index of the record after each, and its watermark."""
        due = sorted(position for position in self._advances if position <= chunk.next_position)
        return [(int(np.searchsorted(chunk.offsets, position)), self._advances.pop(position)) for position in due]

    def _target(self, track: Track) -> int:
        """How far this sketch can be sealed: the last boundary that the watermark has passed by the lateness."""
        limit = self._limit
        if limit < EARLIEST_MS:
            return max(track.through, track.reached)
        ends = [one.end for one in track.windows.values() if one.end <= limit]
        if track.plan is not None:
            ends.append(track.plan.calendar.window(min(limit, LATEST_MS - 1))[0])
        return max([track.through, track.reached, *ends])

    @property
    def state_bytes(self) -> int:
        """Memory of the open windows' counters."""
        return sum(window.n_bytes for window in self._open_windows())

    @property
    def dirty_bytes(self) -> int:
        """How much a capture would copy."""
        return sum(window.copied_bytes for window in self._open_windows()) + self.outbox.unsaved_bytes

    @property
    def deferred_bytes(self) -> int:
        """Memory of the events that wait until a snapshot is written."""
        return sum(window.sketch.deferred_bytes for window in self._open_windows())

    def _open_windows(self) -> Iterator[OpenWindow]:
        """Open windows of all sketches; metrics ask for them from another thread, while windows open and close."""
        return (window for track in list(self.tracks.values()) for window in list(track.windows.values()))

    @property
    def open_windows(self) -> int:
        """How many windows are open, over all sketches."""
        return sum(len(track.windows) for track in self.tracks.values())

    def seal(self, *, everything: bool = False) -> int:
        """Like `sealing`, without a cluster to ask for partitions."""
        return unanswered(self.sealing(everything=everything))

    def sealing(self, *, everything: bool = False) -> Steps[int]:
        """Seal what the watermark has passed; return how many windows went to the outbox.

        Asks for the partition count before the first window is sealed.

        Args:
            everything: seal every open window, because a bounded input has ended.
        """
        self._answers.clear()
        self._worked = 0
        return (yield from self._seal(everything))

    def _seal(self, everything: bool = False) -> Steps[int]:
        yield from self._emit()
        n = 0
        for track in list(self.tracks.values()):
            through = self._target(track)
            if everything and track.windows:
                through = max(through, *(one.end for one in track.windows.values()))
            if through <= track.through:
                continue
            yield from self._ask_partitions()
            for start in sorted(track.windows):
                window = track.windows[start]
                if window.end <= through:
                    yield from self._sealing_window(track, window)
                    n += 1
            if self._partial:
                track.mark_partial(through)
            track.evidence.seal(track.plan, track.through, through)
            track.through = track.published = through
            track.last = None
            self._announce(track)
            self._changed = True
        return n

    def _sealing_window(self, track: Track, window: OpenWindow) -> Steps[None]:
        """Seal one window into the outbox; its state is destroyed here.

        Raises:
            BrokerError: a broker has reported more partitions than are known now.
        """
        if window.slots_for[-1] > window.counts[-1]:
            msg = f"partition {self.partition}: brokers disagree on how many partitions the input has"
            raise BrokerError(msg)
        self.slots.fit(window, window.counts)
        self._close_window(window, window.end)
        sketch = window.sketch
        if sketch.origin.partitions:
            sketch.origin = replace(sketch.origin, partitions=window.counts)
        else:  # opened in format 1, which knows the first and the last
            sketch.origin = replace(sketch.origin, partitions_seal=window.counts[-1])
        if self._takes_long(sketch.spec):
            sealed = LongWork(partial(self._seal_window, window))
            yield sealed
            entry = sealed.result
        else:
            entry = self._seal_window(window)
        self.outbox.put(entry)
        del track.windows[window.start]
        track.reached = max(track.reached, window.end)
        if track.last is window:
            track.last = None

    def _seal_window(self, window: OpenWindow) -> SealedEntry:
        """Seal the sketch of a window. Touches nothing but that sketch, and the list of how long seals took."""
        began = perf_counter()
        entry = self._entry(window, window.sketch.seal())
        self.seal_seconds.append(perf_counter() - began)
        return entry

    def _close(self) -> Steps[None]:
        """Put the positions that the watermark has passed into the outbox, for sketches that publish them then.

        If no record has opened the window of the first of them, it is opened: what is published of it now must be in
        its final state too. This depends on envelopes only.
        """
        for track in self.tracks.values():
            found = self._reached(track)
            if found is None:
                continue
            start, end, reached = found
            if track.closed == NO_TIME:
                track.opens_from = end
            opens = reached > start and start not in track.windows and end > track.through and not track.irregular
            if opens and start < track.live and track.plan is not None:
                yield from self._claim(track, track.plan, start)
            if opens and end > track.through:
                yield from self._opening(track, start, end)
            for window in track.windows.values():
                self._close_window(window, self._limit)
            if reached > track.closed:
                track.closed = reached
                self._announce(track)

    def _reached(self, track: Track) -> tuple[int, int, int] | None:
        """The window of the watermark less lateness, and how far positions are closed; None if none close.

        A window that began before this partition is opened by records only, and closes no position before that.
        """
        limit = self._limit
        if track.plan is None or track.overlapping or limit < EARLIEST_MS:
            return None
        start, end = track.plan.calendar.window(min(limit, LATEST_MS - 1))
        step = self._step(track, start)
        if step is None:
            return None
        reached = start + (limit - start) // step * step
        if start not in track.windows and (track.closed == NO_TIME or start < track.opens_from):
            reached = start
        return start, end, max(track.through, reached)

    def _close_window(self, window: OpenWindow, limit: int) -> None:
        """Put the positions of one window that end by a time into the outbox."""
        sketch = window.sketch
        step = closing_step(sketch.spec)
        if step is None:
            return
        passed = (limit - window.start) // step if limit < window.end else -(-(window.end - window.start) // step)
        stop = min(passed, sketch.spec.domain.size)
        if stop <= window.closed:
            return
        instalment = sketch.close_positions(window.closed, stop)
        self.outbox.put(self._entry(window, instalment, positions=(instalment.first, instalment.stop)))
        window.closed = stop
        self._changed = True

    @property
    def _limit(self) -> int:
        """Windows and positions that end by this time accept no more records; NO_TIME before any record."""
        return self.watermark - self.rules.lateness_ms if self.watermark != NO_TIME else NO_TIME

    @property
    def closes(self) -> bool:
        """Whether positions have closed that are not in the outbox."""
        found = ((track, self._reached(track)) for track in self.tracks.values())
        return any(one is not None and one[2] > track.closed for track, one in found)

    def _announce(self, track: Track) -> None:
        """Announce a frontier for a sketch whose sealed-through time or partition count changed."""
        track.sequence += 1
        track.announced = self.partitions
        track.reported = self.watermark
        self.outbox.announce(
            Frontier(
                sketch=track.name,
                revision=self.revision,
                partition=self.partition,
                published_through=track.published,
                partitions=self.partitions,
                sequence=track.sequence,
                partial=track.partial,
                diverged=track.diverged,
                grown_from=track.grown_from,
                grown_through=track.grown_through,
                late=track.late.value if track.late.draws else None,
                late_draws=track.late.draws,
                closed_through=track.closed,
                evidence=track.evidence.report() if track.evidence.kept else None,
            )
        )
        track.late.draw()

    # --------------------------------------------------------------------------------------- snapshots

    def changed(self) -> bool:
        """Whether a snapshot would differ from the last one, or was requested."""
        return self._changed

    def touch(self) -> None:
        """Request a snapshot although nothing changed."""
        self._changed = True

    def published(self, entries: Iterable[SealedEntry], frontiers: Iterable[Frontier]) -> None:
        """Note that these are published; the next snapshot need not contain them."""
        self._changed |= self.outbox.published(entries, frontiers)

    def _copying_takes_long(self) -> bool:
        """Whether a snapshot holds so much that its copy is long work."""
        return SMALLEST_SLOTS * sum(window.unsaved for window in self._open_windows()) >= LARGE_SLOTS

    def _reports(self, track: Track) -> bool:
        """Whether evidence about sealed windows is published again before another window is sealed.

        Once the watermark has moved by a quarter of a window, and at least the lateness, since the last frontier; of a
        sketch that was removed, for a while.
        """
        window_ms = track.evidence.young_ms if track.plan is None else track.plan.shortest_ms
        if window_ms is None or track.reported == NO_TIME or not track.evidence.kept:
            return False
        return self.watermark - track.reported >= max(self.rules.lateness_ms, window_ms // 4)

    def store_all(self) -> None:
        """Forget earlier snapshots, which are gone: the next one contains every window and entry."""
        for window in self._open_windows():
            window.dirty = True
        self.outbox.store_all()
        self.lists.forget()
        self._changed = True


def _usable(events: Events, admission: Admission) -> Flags | None:
    """(u,) events that are valid, of admitted records; None: all are."""
    admitted = admission.admitted
    usable = events.valid & (admitted if events.record is None else admitted[events.record])
    return None if usable.all() else usable


def _longest_move(before: npt.NDArray[np.int64], last: int) -> tuple[tuple[int, int], int]:
    """The longest move of a watermark that had a value: from where to where, and the record that made it.

    Args:
        before: (n,) watermark before each record, NO_TIME before there is one.
        last: watermark after the last record.
    """
    after = np.append(before[1:], last)
    steps = np.where(before >= EARLIEST_MS, after - np.maximum(before, EARLIEST_MS), 0)
    at = int(np.argmax(steps))
    return (int(before[at]), int(after[at])), at
