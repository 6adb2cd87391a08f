"""The windows of one partition: sketches that count, watermark, what is due and what is published.

In: chunks of one partition, in order. Out: outcomes for counters and sinks, sealed entries, frontiers. Touches: its own
sketches; entropy when a window opens or is sealed. No file, no network, and no clock but one that measures how long
sealing takes. See `partition`, which states the laws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np
import numpy.typing as npt

from sketchstream import kinds
from sketchstream.array_types import Flags, Ints
from sketchstream.errors import BrokerError
from sketchstream.items.events import Events
from sketchstream.kinds.capabilities import SlotsOfItems
from sketchstream.published import Origin
from sketchstream.sketch import Sketch
from sketchstream.stream import kernels
from sketchstream.stream.input.partition_counts import CountNeeded, PartitionCounts, Steps, perform, unanswered
from sketchstream.stream.input.partitioner import belongs
from sketchstream.stream.interfaces import Chunk, Frontier, SealedEntry
from sketchstream.stream.published.evidence import EvidenceNoise
from sketchstream.stream.state.closing_positions import ClosingPositions
from sketchstream.stream.state.domain_lists import DomainLists
from sketchstream.stream.state.domain_slots import DomainSlots
from sketchstream.stream.state.early_answers import EarlyReleases
from sketchstream.stream.state.evidence import Evidence
from sketchstream.stream.state.outbox import Outbox, entry_of
from sketchstream.stream.state.outcome import NO_INTS, Outcome
from sketchstream.stream.state.quorum import Admission, Watermark
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.state.sketch_state import OpenWindow, PartitionGrowth, SketchState
from sketchstream.stream.state.window_cover import covering, overlapping
from sketchstream.stream.state.window_specs import WindowSpecs
from sketchstream.stream.state.work_pace import WorkPace
from sketchstream.stream.windows.plans import EarlyAnswers, SketchPlan
from sketchstream.stream.windows.windows import EARLIEST_MS, LATEST_MS, NO_TIME

MOST_IDLED = 15
"""Most stretches of time, skipped by idleness, that are remembered so that a later contradiction is noticed."""


class PartitionWindows:
    """All of the state of one partition but how it begins, is copied and is restored.

    Args:
        rules: rules of the worker.
        partition: partition of the input.
        position: next record to apply.
        partitions: number of partitions of the input now.
        revision: revision of the sketches.
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
        self.sketch_states: dict[str, SketchState] = {
            plan.name: SketchState(
                plan.name,
                plan,
                evidence=Evidence(EvidenceNoise.of(plan, checked=checked, anywhere=rules.anywhere)),
            )
            for plan in rules.sketches
        }
        self._idled: list[tuple[int, int]] = []
        self.outbox = Outbox()
        self.specs = WindowSpecs()
        self._pace = WorkPace()
        self.early = EarlyReleases(rules.lateness_ms, self.outbox, self._pace)
        self.closing = ClosingPositions(self.specs, rules.lateness_ms, self.outbox)
        self._partial = False
        self._rewound = False
        self.lists = DomainLists(rules.key)
        self.claim: Callable[[str, int, int], int] | None = None
        """Claims windows of (sketch, revision) that begin at a time or later; returns where they may (`IoTasks`)."""
        self._answers: dict[CountNeeded, int | None] = {}
        self._events_by_spec: dict[tuple[bytes, tuple[tuple[str, str], ...], tuple[int, int] | None], Events] = {}
        self.seal_seconds: list[float] = []
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
        for state in self.sketch_states.values():
            state.growth = PartitionGrowth(former, state.progress.through)
            for window in state.windows.values():
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
            chunk: records of this partition.
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
        self._pace.begin()
        events = chunk.events
        n = events.times.size
        outcome = Outcome(records=n, late={})
        advances = self._due_advances(chunk)
        if n:
            watermark_before = self.watermark
            future_after = LATEST_MS if clock_ms is None else clock_ms + self.rules.max_ahead_ms
            admission = self._watermark.admit(events.times, chunk.timestamps, future_after, advances)
            for before, after in admission.advanced:
                self._note_idle(before, after)
            outcome.future, outcome.unreadable_times = admission.future, admission.unreadable
            outcome.early, outcome.jumps, outcome.jumped_at = admission.early, admission.jumps, admission.jumped_at
            if admission.jumps:
                outcome.moved, outcome.moved_at = _longest_move(admission.before, self.watermark)
            if admission.future + admission.unreadable < n:
                self._note_partial(watermark_before, admission, chunk.timestamps, future_after)
                self.newest = max(self.newest, admission.high)
                for state in self.sketch_states.values():
                    if state.plan is None or state.plan.early is None:
                        yield from self._count(state, events, admission, outcome)
                    else:
                        yield from self._count_with_early(state, state.plan.early, events, admission, outcome)
                self._events_by_spec.clear()  # nothing of the records stays
                self.early.passed(int(admission.before[-1]))
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
        meant = np.full(verdict.size, self.newest, np.int64)
        if stamps is not None:
            meant = np.where(stamps >= 0, stamps, meant)
        times = np.concatenate([chunk.events.times[future], meant[lost]])
        times = times[(times >= EARLIEST_MS) & (times < LATEST_MS)]
        for state in self.sketch_states.values():
            state.evidence.refuse(times, state.holding(times), state.progress.through)

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
        for state in self.sketch_states.values():
            state.evidence.contradict(stamps, self._idled, self.rules.lateness_ms)

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

    def _count(self, state: SketchState, events: Events, admission: Admission, outcome: Outcome) -> Steps[None]:
        """Count the records of a chunk in the windows of one sketch."""
        if state.overlapping:
            yield from self._count_overlapping(state, events, admission, outcome)
            return
        low, high, lateness = admission.low, admission.high, self.rules.lateness_ms
        times, before = admission.times, admission.before
        starts, ends = covering(state, admission)
        yield from self._claim_opened(state, admission, zip(starts.tolist(), ends.tolist(), strict=True))
        steps = [self.closing.step_ms(state, int(start)) for start in starts]
        if len(starts) == 1 and not (
            steps[0] and self.closing.closes_at(int(starts[0]), low, steps[0]) <= admission.mark
        ):
            only = int(ends[0])
            if only + lateness > admission.mark and only > state.progress.through and starts[0] <= low and high < only:
                window = yield from self._opening(state, int(starts[0]), only)
                if window is not None:
                    window.sketch.admit(int(np.count_nonzero(admission.admitted)))
                    yield from self._update(state, window, events, _usable(events, admission), outcome)
                return
        places = np.empty(times.size, np.int32)
        used = np.zeros(len(starts), np.bool_)
        n_late = kernels.place(
            times, before, admission.verdict, starts, ends, lateness, state.progress.through, places, used
        )
        n_late += self.closing.refuse(admission, places, used, (starts, ends), steps)
        if n_late:
            late = (places == kernels.LATE) & (times >= state.opening.before_sketch)
            if state.plan is not None or state.windows:
                self._note_late(state, admission, late, outcome)
            state.evidence.refuse(times[places == kernels.LATE], state.holding(times[late]), state.progress.through)
        for index in np.flatnonzero(used).tolist():
            window = yield from self._opening(state, int(starts[index]), int(ends[index]))
            if window is not None:
                yield from self._take(state, window, events, admission, places, index, outcome)

    def _count_with_early(
        self, state: SketchState, early: EarlyAnswers, events: Events, admission: Admission, outcome: Outcome
    ) -> Steps[None]:
        """Count the records of a chunk, and release early answers between them, where the watermark passed their time.

        An answer that is due at a watermark holds the records before the one that comes at that watermark: it is a
        function of the sequence of records, however that is divided into chunks.
        """
        first, n = 0, admission.times.size
        for index, due in [*self.early.due(state, early, admission), (n, [])]:
            part = admission.between(first, index)
            if part is not None:
                yield from self._count(state, events, part, outcome)
            first = index
            for start, time_ms in due:
                yield from self.early.release(state, early, start, time_ms, int(admission.before[index]))

    def _count_overlapping(
        self, state: SketchState, events: Events, admission: Admission, outcome: Outcome
    ) -> Steps[None]:
        """Count the records of a chunk in overlapping windows: each record in every window that holds its time.

        A record that is late for any of them is counted as late once.
        """
        times, before, lateness = admission.times, admission.before, self.rules.lateness_ms
        places = np.empty(times.size, np.int32)
        late = np.zeros(times.size, np.bool_)
        windows = overlapping(state, admission)
        yield from self._claim_opened(state, admission, windows)
        former, admitted = state.evidence.known.difference(windows), admission.admitted
        if any(start <= admission.high and admission.low < end for start, end in former):
            state.evidence.refuse(times[admitted], former, state.progress.through)
        for start, end in overlapping(state, admission):
            if end <= state.opening.before_sketch:
                continue
            n = kernels.inside(
                times, before, admission.verdict, start, end, lateness, state.progress.through, places, late
            )
            window = (yield from self._opening(state, start, end)) if n else None
            if window is not None:
                yield from self._take(state, window, events, admission, places, 0, outcome)
            inside = admitted & (times >= start) & (times < end)
            refused = inside & (places == kernels.OUT)
            state.evidence.refuse(times[refused], [(start, end)], state.progress.through)
        self._note_late(state, admission, late, outcome)

    @staticmethod
    def _note_late(state: SketchState, admission: Admission, late: Flags, outcome: Outcome) -> None:
        """Count late records; those of windows from before the sketch are not among them."""
        n_late = int(np.count_nonzero(late))
        if n_late:
            outcome.late[state.name] = outcome.late.get(state.name, 0) + n_late
            admission.late |= late
            state.late.add(n_late)

    def _take(
        self,
        state: SketchState,
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
            yield from self._update(state, window, events, chosen, outcome)
        if window.end + self.rules.lateness_ms <= admission.mark:
            yield from self._ask_partitions()
            yield from self._sealing_window(state, window)
            outcome.sealed += 1

    def _claim_opened(
        self, state: SketchState, admission: Admission, windows: Iterable[tuple[int, int]]
    ) -> Steps[None]:
        """Claim the windows that records of a chunk will open, before the records are assigned.

        Args:
            state: state of the sketch.
            admission: verdicts on the records.
            windows: windows that hold their times, ascending.
        """
        for start, end in windows:
            if start >= state.opening.claimed_from or state.plan is None:
                return
            if start in state.windows or end <= state.progress.through:
                continue
            inside = admission.admitted & (admission.times >= start) & (admission.times < end)
            if (admission.before[inside] < end + self.rules.lateness_ms).any():
                yield from self._claim(state, state.plan, start)

    def _claim(self, state: SketchState, plan: SketchPlan, start: int) -> Steps[None]:
        """Claim the windows that begin at `start` or later; those that a history has are as good as sealed."""
        if self.claim is None:
            return
        live = yield from perform(partial(self.claim, state.name, self.revision, start), long=True)
        state.opening.claimed_from, self._changed = live, True
        if live <= start:
            return
        if state.overlapping:
            state.opening.created_from = max(state.opening.created_from, live)
            return
        edge = plan.calendar.window(live)
        through = edge[0] if edge[0] == live else edge[1]
        if through > state.progress.through:
            state.evidence.seal(plan, state.progress.through, through)
            state.progress.through, state.last = through, None

    def _opening(self, state: SketchState, start: int, end: int) -> Steps[OpenWindow | None]:
        """The open window at `start`, created if necessary; None if no sketch is kept for it."""
        plan, drawn = state.plan, None
        if start not in state.windows and plan is not None and self._pace.takes_long(self.specs.at(plan, start)):
            draw = self._drawing(plan, start, end)
            drawn = None if draw is None else (yield from perform(draw, long=True))
        return self._open(state, start, end, drawn)

    def _open(self, state: SketchState, start: int, end: int, drawn: Sketch | None = None) -> OpenWindow | None:
        """See `_opening`; `drawn`: the sketch of a new window."""
        window = state.windows.get(start)
        if window is None:
            draw = None if state.plan is None else self._drawing(state.plan, start, end)
            if draw is None:
                return None
            counts = self.counts.valid(self.position)
            window = OpenWindow(start, end, draw() if drawn is None else drawn, counts, slots_for=counts)
            state.windows[start] = window
            state.evidence.open(start, end)
        window.dirty = True
        state.last = window
        return window

    def _drawing(self, plan: SketchPlan, start: int, end: int) -> Callable[[], Sketch] | None:
        """What makes the sketch of a new window; None if no sketch is kept for it."""
        counts = self.counts.valid(self.position)
        spec = self.specs.at(plan, start)
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

    @property
    def changing(self) -> bool:
        """Whether windows that open now may still have sketches of an earlier configuration."""
        return bool(self.specs.former) and self.newest < self.specs.begins

    def postpone(self, begins: int) -> None:
        """Begin changed sketches later, as another partition does, if this one has not reached its own time yet."""
        if self.changing and begins > self.specs.begins:
            self.specs.begins = begins
            self._changed = True

    def _update(
        self, state: SketchState, window: OpenWindow, events: Events, chosen: Flags | Ints | None, outcome: Outcome
    ) -> Steps[None]:
        """Add valid occurrences to one sketch; misplaced ones, and those that its kind cannot use, do nothing."""
        fields = state.fields(window.sketch.spec)
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
            fresh_count = (yield from self._ask(CountNeeded.ITEMS)) if n_away else None
            if fresh_count is not None and fresh_count > window.counts[-1]:
                # for these items only: what is remembered must not depend on a payload
                counts = (*window.counts, fresh_count)
                here = belongs(items, self.rules.partitioner, counts, self.partition)
                if len(items) - int(np.count_nonzero(here)) < n_away:
                    self.slots.fit(window, counts)
                n_away = len(items) - int(np.count_nonzero(here))
            if n_away:
                outcome.misplaced += n_away
                away, at = items.take(~here), (window.start, window.end)
                state.evidence.misplace(*at, away, self.partition, window.counts[-1])
                places = np.flatnonzero(here)
                chosen = places if chosen is None else np.flatnonzero(chosen)[places]
        items_here, weights = counted.items, counted.weights
        if chosen is not None:
            items_here = items_here.take(chosen)
            weights = None if weights is None else weights[chosen]
        if len(items_here):
            window.sketch.update(items_here, weights, invalid="noop")
            outcome.updates += len(items_here)

    def _counted_by(self, window: OpenWindow, fields: Mapping[str, str], events: Events) -> Events:
        """The events as the kind of a sketch counts them; made once for all windows, unless they depend on the window.

        Args:
            window: open window of the sketch.
            fields: role -> field of the record, as `SketchPlan.fields`.
            events: events of the chunk.
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
        """Ask for added partitions before a window is sealed, so that the window is marked."""
        count = yield from self._ask(CountNeeded.SEAL)
        if count is not None:
            self.set_partitions(count)

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
        for state in self.sketch_states.values():
            if state.windows:
                before = state.partial
                state.mark_partial(max(window.end for window in state.windows.values()))
                if state.partial != before:
                    self._announce(state)

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
        for state in self.sketch_states.values():
            if state.windows:
                state.mark_diverged(max(window.end for window in state.windows.values()))
            self._announce(state)

    def _note_partial(self, before: int, admission: Admission, stamps: Ints | None, future_after: int) -> None:
        """Note whether the watermark has moved in this chunk, after missing records; see `lack`.

        A delayed record can move it where a quorum is one record, but its timestamp says until when records were lost.
        A timestamp beyond `future_after` says nothing: its clock was wrong.
        """
        if not self._partial:
            return
        after = np.append(admission.before[1:], admission.mark)
        moved = int(np.argmax(after > before))
        if after[moved] <= before:
            return
        self._partial = False
        read = admission.times[: moved + 1][admission.verdict[: moved + 1] == 0]
        newest = int(read.max(initial=max(self.newest, int(after[moved]))))
        if stamps is not None and stamps[moved] <= future_after:
            newest = max(newest, int(stamps[moved]))
        for state in self.sketch_states.values():
            if state.plan is not None:
                state.mark_partial(state.plan.last_end(min(newest + self.rules.lateness_ms, LATEST_MS - 1)))

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

    def _target(self, state: SketchState) -> int:
        """How far this sketch can be sealed: the last boundary that the watermark has passed by the lateness."""
        limit = self._limit
        if limit < EARLIEST_MS:
            return max(state.progress.through, state.progress.last_sealed)
        ends = [one.end for one in state.windows.values() if one.end <= limit]
        if state.plan is not None:
            ends.append(state.plan.calendar.window(min(limit, LATEST_MS - 1))[0])
        return max([state.progress.through, state.progress.last_sealed, *ends])

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
        return (window for state in list(self.sketch_states.values()) for window in list(state.windows.values()))

    @property
    def open_windows(self) -> int:
        """How many windows are open, over all sketches."""
        return sum(len(state.windows) for state in self.sketch_states.values())

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
        self._pace.begin()
        return (yield from self._seal(everything))

    def _seal(self, everything: bool = False) -> Steps[int]:
        if (yield from self.early.emit(self.sketch_states.values(), self.watermark)):
            self._changed = True
        n = 0
        for state in list(self.sketch_states.values()):
            through = self._target(state)
            if everything and state.windows:
                through = max(through, *(one.end for one in state.windows.values()))
            if through <= state.progress.through:
                continue
            yield from self._ask_partitions()
            for start in sorted(state.windows):
                window = state.windows[start]
                if window.end <= through:
                    yield from self._sealing_window(state, window)
                    n += 1
            if self._partial:
                state.mark_partial(through)
            state.evidence.seal(state.plan, state.progress.through, through)
            state.progress.through = state.progress.published = through
            state.last = None
            self._announce(state)
            self._changed = True
        return n

    def _sealing_window(self, state: SketchState, window: OpenWindow) -> Steps[None]:
        """Seal one window into the outbox; its state is destroyed here.

        Raises:
            BrokerError: a broker has reported more partitions than are known now.
        """
        if window.slots_for[-1] > window.counts[-1]:
            msg = f"partition {self.partition}: brokers disagree on how many partitions the input has"
            raise BrokerError(msg)
        self.slots.fit(window, window.counts)
        self.closing.close(window, window.end)
        sketch = window.sketch
        if sketch.origin.partitions:
            sketch.origin = replace(sketch.origin, partitions=window.counts)
        else:  # opened in format 1, which knows the first and the last
            sketch.origin = replace(sketch.origin, partitions_seal=window.counts[-1])
        seal = partial(self._seal_window, window)
        self.outbox.put((yield from perform(seal, long=self._pace.takes_long(sketch.spec))))
        del state.windows[window.start]
        state.progress.last_sealed = max(state.progress.last_sealed, window.end)
        if state.last is window:
            state.last = None

    def _seal_window(self, window: OpenWindow) -> SealedEntry:
        """Seal the sketch of a window. Touches nothing but that sketch, and the list of how long seals took."""
        began = perf_counter()
        entry = entry_of(window.sketch.seal())
        self.seal_seconds.append(perf_counter() - began)
        return entry

    def _close(self) -> Steps[None]:
        """Put the positions that the watermark has passed into the outbox, for sketches that publish them then.

        If no record has opened the window of the first of them, it is opened: what is published of it now must be in
        its final state too. This depends on envelopes only.
        """
        for state in self.sketch_states.values():
            closed = self.closing.reached(state, self._limit)
            if closed is None:
                continue
            start, end, through = closed
            if state.progress.positions == NO_TIME:
                state.opening.positions_from = end
            opens = (
                through > start and start not in state.windows and end > state.progress.through and not state.irregular
            )
            if opens and start < state.opening.claimed_from and state.plan is not None:
                yield from self._claim(state, state.plan, start)
            if opens and end > state.progress.through:
                yield from self._opening(state, start, end)
            for window in state.windows.values():
                self._changed |= self.closing.close(window, self._limit)
            if through > state.progress.positions:
                state.progress.positions = through
                self._announce(state)

    @property
    def _limit(self) -> int:
        """Windows and positions that end by this time accept no more records; NO_TIME before any record."""
        return self.watermark - self.rules.lateness_ms if self.watermark != NO_TIME else NO_TIME

    @property
    def closes(self) -> bool:
        """Whether positions have closed that are not in the outbox."""
        reached = ((state, self.closing.reached(state, self._limit)) for state in self.sketch_states.values())
        return any(closed is not None and closed.through > state.progress.positions for state, closed in reached)

    def _announce(self, state: SketchState) -> None:
        """Announce a frontier for a sketch whose sealed-through time or partition count changed."""
        self.outbox.announce(state.next_frontier(self.revision, self.partition, self.partitions, self.watermark))

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

    def _reports(self, state: SketchState) -> bool:
        """Whether evidence about sealed windows is published again before another window is sealed.

        It is, once the watermark has moved by a quarter of a window, and at least the lateness, since the last
        frontier; for a sketch that was removed, only for a while.
        """
        window_ms = state.evidence.young_ms if state.plan is None else state.plan.shortest_ms
        if window_ms is None or state.frontier.watermark == NO_TIME or not state.evidence.kept:
            return False
        return self.watermark - state.frontier.watermark >= max(self.rules.lateness_ms, window_ms // 4)

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
