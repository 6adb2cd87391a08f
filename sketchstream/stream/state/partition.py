"""The state of one partition: open windows with their sketches, watermark, outbox; a function of the record sequence.

In: chunks of one partition, in order. Out: outcomes for counters and sinks, snapshots, sealed entries, frontiers.
Touches: its own sketches; entropy when a window opens or is sealed. No file, no network, and no clock but one that
measures how long sealing takes.

If `applying`, `sealing` or `checkpoint.capturing` needs a fresh partition count of the input, it stops and says so. Its
caller asks the cluster and resumes it with the answer. It also stops before long work (the noise of a large window, or
of one of many, its seal, a copy of thousands), which its caller may leave to another thread; until it is resumed,
nothing else may change the state.

Its parts have one duty each: `Watermark` judges records, `RecordCounter` counts them, `LostRecords` marks the windows
that lack some, `WindowLifecycle` claims, opens and seals windows, `EarlyReleases` and `ClosingPositions` publish from
open ones, and the `Outbox` holds what is to be published.

Laws (tests/stream/test_partition.py):
1. The division of a record sequence into chunks does not matter: windows get the same events, the same records are
   late.
2. A window is opened by the envelope of an admitted record alone, whatever its payload holds; or by the watermark,
   where positions are published when they close.
3. A sealed window never reopens, and its open state is in no later snapshot.
4. A restored state continues exactly like the state from which the snapshot was taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sketchstream.spec import ClosedDomain
from sketchstream.stream.input.partition_counts import CountNeeded, PartitionCounts, Steps, run_without_cluster
from sketchstream.stream.interfaces import Chunk, Frontier, Peer, SealedEntry
from sketchstream.stream.published.evidence import EvidenceNoise
from sketchstream.stream.state.domain_lists import DomainLists
from sketchstream.stream.state.evidence import Evidence
from sketchstream.stream.state.lost_records import LostRecords
from sketchstream.stream.state.outbox import Outbox
from sketchstream.stream.state.outcome import Outcome
from sketchstream.stream.state.record_counter import RecordCounter
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.state.sketch_state import OpenWindow, PartitionGrowth, SketchState
from sketchstream.stream.state.watermark import Watermark
from sketchstream.stream.state.window_lifecycle import WindowLifecycle
from sketchstream.stream.state.window_specs import boundary
from sketchstream.stream.windows.calendar import EARLIEST_MS, LATEST_MS, NO_TIME


class PartitionState:
    """The whole state of one partition. Create one with `fresh`; `checkpoint` captures and restores it.

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
        self.revision = revision
        self.newest = NO_TIME
        self.counts = PartitionCounts(partitions)
        self.outbox = Outbox()
        self.lists = DomainLists(rules.key)
        self.sketch_states: dict[str, SketchState] = {}
        for plan in rules.sketches:
            noise = EvidenceNoise.for_plan(plan, checked=rules.partitioner is not None, unkeyed=rules.unkeyed)
            self.sketch_states[plan.name] = SketchState(plan.name, plan, evidence=Evidence(noise))
        self.lifecycle = WindowLifecycle(rules, partition, revision, self.counts, self.outbox)
        self._counter = RecordCounter(self.lifecycle, self._ask_partitions)
        self._watermark = Watermark(rules.quorum, rules.lateness_ms)
        self.lost = LostRecords(self.sketch_states, rules.lateness_ms)
        self._rewound = False
        self._changed = True

    @classmethod
    def fresh(
        cls,
        rules: Rules,
        partition: int,
        position: int,
        partitions: int,
        *,
        revision: int = 0,
        partial: bool = False,
        sealed_elsewhere: Mapping[str, int] | None = None,
        peers: Sequence[Peer] = (),
        former_counts: Mapping[int, int | None] | None = None,
    ) -> PartitionState:
        """Create the state of a partition without a past.

        Args:
            rules: rules of the worker.
            partition: partition of the input.
            position: where it begins.
            partitions: number of partitions of the input now.
            revision: revision of the sketches.
            partial: records before `position` are gone or skipped: the first windows may lack some.
            sealed_elsewhere: see `interfaces.Fresh`.
            peers: snapshots of all partitions.
            former_counts: see `interfaces.Source`; None: no other.
        """
        state = cls(rules, partition, position, partitions, revision)
        state.counts.restore(former_counts or {})
        state.counts.passed(position)
        state.lost.missing = partial
        if any(peer.spec_fingerprint != rules.fingerprint for peer in peers):
            state.lifecycle.specs.begins = boundary(peers, rules.fingerprint, NO_TIME)
        for name, through in (sealed_elsewhere or {}).items():
            sketch_state = state.sketch_states.get(name)
            if sketch_state is not None and through > sketch_state.progress.through:
                sketch_state.evidence.seal(sketch_state.plan, NO_TIME, through)
                sketch_state.progress.through = sketch_state.progress.published = through
                state._announce(sketch_state)
        return state

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
        former = self.counts.now
        if not self.counts.grow(partitions):
            return
        for state in self.sketch_states.values():
            state.growth = PartitionGrowth(former, state.progress.through)
            for window in state.windows.values():
                window.counts = (*window.counts, partitions)
                self.lifecycle.slots.fit(window, window.counts)
        self._changed = True

    def settle_counts(self, position: int) -> None:
        """Note that records from `position` on were placed by the present partition count only."""
        self.counts.settle(position)
        self.counts.passed(self.position)
        self._changed = True

    def apply(self, chunk: Chunk, *, clock_ms: int | None = None) -> Outcome:
        """Like `applying`, without a cluster to ask: the partition count is the one that was last set."""
        return run_without_cluster(self.applying(chunk, clock_ms=clock_ms))

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
            raise ValueError(
                f"partition {self.partition} is at {self.position}; this chunk starts at {chunk.from_position}"
            )
        self._require_between(chunk)

        self._begin_steps()
        events = chunk.events
        n = events.times.size
        outcome = Outcome(records=n)
        advances = self._watermark.due(chunk.offsets, chunk.next_position)
        if n:
            watermark_before = self.watermark
            future_after = LATEST_MS if clock_ms is None else clock_ms + self.rules.max_ahead_ms
            admission = self._watermark.admit(events.times, chunk.timestamps, future_after, advances)
            outcome.note_admission(admission)
            if admission.future + admission.unreadable < n:
                self.lost.note_moves(watermark_before, admission, chunk.timestamps, future_after, self.newest)
                self.newest = max(self.newest, admission.high)
                yield from self._counter.count(self.sketch_states.values(), events, admission, outcome)
            self.lost.refuse(chunk, admission.verdict, self.newest)
            outcome.sealed += yield from self._seal()
            outcome.note_refused(events, admission)
            self.lost.contradict(chunk, advances, self._watermark.idled)
        elif advances:
            for _, watermark in advances:
                self.advance(watermark)
            outcome.sealed += yield from self._seal()
        self.position = chunk.next_position
        self.counts.passed(self.position)
        self._changed = True
        return outcome

    def _begin_steps(self) -> None:
        """Begin a computation, which asks for partition counts anew and has done no long work yet."""
        self.counts.forget_answers()
        self.lifecycle.pace.begin()

    def _require_between(self, chunk: Chunk) -> None:
        """Refuse a chunk with records outside of its positions, or with more records than these can have.

        Offsets ascend, so a record that came twice, or that belongs to an earlier chunk, is found by three comparisons.
        """
        offsets, positions = chunk.offsets, chunk.next_position - chunk.from_position
        if not offsets.size:
            return
        if offsets[0] < chunk.from_position or offsets[-1] >= chunk.next_position or offsets.size > positions:
            raise ValueError(
                f"partition {self.partition}: a chunk from {chunk.from_position} to {chunk.next_position} has "
                f"{offsets.size} records from {offsets[0]} to {offsets[-1]}"
            )

    @property
    def changing(self) -> bool:
        """Whether windows that open now may still have sketches of an earlier configuration."""
        return bool(self.lifecycle.specs.former) and self.newest < self.lifecycle.specs.begins

    def postpone(self, begins: int) -> None:
        """Begin changed sketches later, as another partition does, if this one has not reached its own time yet."""
        if self.changing and begins > self.lifecycle.specs.begins:
            self.lifecycle.specs.begins = begins
            self._changed = True

    def _ask_partitions(self) -> Steps[None]:
        """Ask for added partitions before a window is sealed, so that the window is marked."""
        count = yield from self.counts.ask(CountNeeded.SEAL)
        if count is not None:
            self.set_partitions(count)

    def skip(self, position: int) -> None:
        """Continue at a later position: the records between are lost, see `mark_missing_records`.

        Raises:
            ValueError: the position is not later than the present one.
        """
        if position <= self.position:
            raise ValueError(f"partition {self.partition} is at {self.position}; it can only skip forward")
        self._move(position)
        self.mark_missing_records()

    def mark_missing_records(self) -> None:
        """Note that records before `position` are missing: open windows, and those passed from now on, may lack some.

        The record that moves the watermark ends this, however late the first ones were: the last windows marked are
        those of the newest record until then, of that record's own timestamp, and of times up to the lateness beyond
        them.
        """
        for state in self.lost.begin():
            self._announce(state)

    def rewind(self, position: int) -> None:
        """Continue at an earlier position, where the log was truncated: open windows may hold records that it has lost.

        Raises:
            ValueError: the position is not earlier than the present one.
        """
        if position >= self.position:
            raise ValueError(
                f"partition {self.partition} is at {self.position}; it can only be rewound to an earlier position"
            )
        self._move(position)
        self._rewound = True
        for state in self.sketch_states.values():
            if state.windows:
                state.mark_diverged(max(window.end for window in state.windows.values()))
            self._announce(state)

    def _move(self, position: int) -> None:
        """Go on at another position, whose records do not follow those that were read last."""
        self.position = position
        self.counts.passed(position)
        self._watermark.forget_votes()
        self._changed = True

    # ------------------------------------------------------------------------------------------- sealing

    def advance(self, watermark: int) -> bool:
        """Raise the watermark without votes; True if it moved. That must be committed before it is used."""
        moved = self._watermark.advance(watermark)
        self._changed |= moved
        return moved

    def advance_at(self, position: int, watermark: int) -> bool:
        """Raise the watermark before the record at `position`, now or once all records before it were applied.

        True if it moved now. A position that was already passed is too late: later records were placed without it.
        """
        if position > self.position:
            self._watermark.advance_at(position, watermark)
        return position == self.position and self.advance(watermark)

    def _target(self, state: SketchState) -> int:
        """How far this sketch can be sealed: the last boundary that the watermark has passed by the lateness."""
        limit = self._limit
        if limit < EARLIEST_MS:
            return max(state.progress.through, state.progress.last_sealed)
        ends = [window.end for window in state.windows.values() if window.end <= limit]
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
        return run_without_cluster(self.sealing(everything=everything))

    def sealing(self, *, everything: bool = False) -> Steps[int]:
        """Seal what the watermark has passed; return how many windows went to the outbox.

        Asks for the partition count before the first window is sealed.

        Args:
            everything: seal every open window, because a bounded input has ended.
        """
        self._begin_steps()
        return (yield from self._seal(everything))

    def _seal(self, everything: bool = False) -> Steps[int]:
        if (yield from self.lifecycle.early.emit(self.sketch_states.values(), self.watermark)):
            self._changed = True
        n = 0
        for state in list(self.sketch_states.values()):
            through = self._target(state)
            if everything and state.windows:
                through = max(through, *(window.end for window in state.windows.values()))
            if through <= state.progress.through:
                continue
            yield from self._ask_partitions()
            for start in sorted(state.windows):
                window = state.windows[start]
                if window.end <= through:
                    yield from self.lifecycle.sealing(state, window)
                    n += 1
            if self.lost.missing:
                state.mark_partial(through)
            state.evidence.seal(state.plan, state.progress.through, through)
            state.progress.through = state.progress.published = through
            state.last = None
            self._announce(state)
            self._changed = True
        return n

    def _close(self) -> Steps[None]:
        """Put the positions that the watermark has passed into the outbox, for sketches that publish them then.

        If no record has opened the window of the first of them, it is opened: what is published of it now must be in
        its final state too. This depends on envelopes only.
        """
        for state in self.sketch_states.values():
            closed = self.lifecycle.closing.reached(state, self._limit)
            if closed is None:
                continue
            start, end, through = closed
            if state.progress.positions == NO_TIME:
                state.opening.positions_from = end
            opens = (
                through > start and start not in state.windows and end > state.progress.through and not state.irregular
            )
            if opens and start < state.opening.claimed_from and state.plan is not None:
                yield from self.lifecycle.claim_from(state, state.plan, start)
            if opens and end > state.progress.through:
                yield from self.lifecycle.opening(state, start, end)
            for window in state.windows.values():
                self._changed |= self.lifecycle.closing.close(window, self._limit)
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
        reached = ((state, self.lifecycle.closing.reached(state, self._limit)) for state in self.sketch_states.values())
        return any(closed is not None and closed.through > state.progress.positions for state, closed in reached)

    def _announce(self, state: SketchState) -> None:
        """Announce a frontier for a sketch whose sealed-through time or partition count changed."""
        self.outbox.announce(state.next_frontier(self.revision, self.partition, self.counts.now, self.watermark))

    # --------------------------------------------------------------------------------------- snapshots

    def sealing_for_snapshot(self) -> Steps[int]:
        """Seal and announce what is due before a snapshot; return how many windows it writes anew."""
        yield from self.sealing()
        yield from self._close()
        if any(isinstance(window.sketch.spec.domain, ClosedDomain) for window in self._open_windows()):
            # the size of what is written then never tells that a misplaced item made us ask
            yield from self._ask_partitions()
        for state in self.sketch_states.values():
            grown = state.plan is not None and state.frontier.partitions not in (NO_TIME, self.counts.now)
            if grown or self._reports(state):
                self._announce(state)
        return sum(window.unsaved for window in self._open_windows())

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
