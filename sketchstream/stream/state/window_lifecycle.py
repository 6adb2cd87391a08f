"""Claims, opens and seals the windows of one partition.

In: verdicts on the records of a chunk, plans, specs. Out: open windows; sealed entries in the outbox. Touches: its own
sketches; entropy when a window opens or is sealed; a clock that measures how long sealing takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import perf_counter

from sketchstream import kinds
from sketchstream.errors import BrokerError
from sketchstream.kinds.capabilities import SlotsOfItems
from sketchstream.provenance import Origin
from sketchstream.stream.input.partition_counts import PartitionCounts, Steps, perform
from sketchstream.stream.interfaces import SealedEntry
from sketchstream.stream.state.closing_positions import ClosingPositions
from sketchstream.stream.state.domain_slots import DomainSlots
from sketchstream.stream.state.early_answers import EarlyReleases
from sketchstream.stream.state.outbox import Outbox, entry_of
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.state.sketch_state import OpenWindow, SketchState
from sketchstream.stream.state.watermark import Admission
from sketchstream.stream.state.window_sketch import WindowSketch
from sketchstream.stream.state.window_specs import WindowSpecs
from sketchstream.stream.state.work_pace import WorkPace
from sketchstream.stream.windows.plans import SketchPlan


class WindowLifecycle:
    """What begins and ends the windows of one partition.

    Args:
        rules: rules of the worker.
        partition: partition of the input.
        revision: revision of the sketches.
        counts: partition counts of the input.
        outbox: where sealed entries wait for their publication.
    """

    def __init__(self, rules: Rules, partition: int, revision: int, counts: PartitionCounts, outbox: Outbox) -> None:
        self.slots = DomainSlots(rules, partition)
        self.specs = WindowSpecs()
        self.pace = WorkPace()
        self.closing = ClosingPositions(self.specs, rules.lateness_ms, outbox)
        self.early = EarlyReleases(rules.lateness_ms, outbox, self.pace)
        self.seal_seconds: list[float] = []
        self.claim: Callable[[str, int, int], int] | None = None
        """Claims windows of (sketch, revision) that begin at a time or later; returns where they may (`IoTasks`)."""
        self.rules = rules
        self.partition = partition
        self.counts = counts
        self._revision = revision
        self._outbox = outbox

    def claim_opened(self, state: SketchState, admission: Admission, windows: list[tuple[int, int]]) -> Steps[None]:
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
                yield from self.claim_from(state, state.plan, start)

    def claim_from(self, state: SketchState, plan: SketchPlan, start: int) -> Steps[None]:
        """Claim the windows that begin at `start` or later; those that a history has are as good as sealed."""
        if self.claim is None:
            return
        live = yield from perform(partial(self.claim, state.name, self._revision, start), long=True)
        state.opening.claimed_from = live
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

    def opening(self, state: SketchState, start: int, end: int) -> Steps[OpenWindow | None]:
        """The open window at `start`, created if necessary; None if no sketch is kept for it."""
        window = state.windows.get(start)
        if window is None:
            sketch = None if state.plan is None else (yield from self._creating(state.plan, start, end))
            if sketch is None:
                return None
            counts = self.counts.valid
            window = state.windows[start] = OpenWindow(start, end, sketch, counts, slots_for=counts)
            state.evidence.open(start, end)
        window.dirty = True
        state.last = window
        return window

    def _creating(self, plan: SketchPlan, start: int, end: int) -> Steps[WindowSketch | None]:
        """The sketch of a new window; None if no sketch is kept for it."""
        counts, spec = self.counts.valid, self.specs.at(plan, start)
        keep = self.slots.keep(spec, counts)
        if keep is not None and not keep.any():
            return None  # a public fact: the partitioner sends no item of the list here
        chosen = keep is not None and isinstance(kinds.kind_of(spec), SlotsOfItems)
        origin = Origin(
            name=plan.name,
            revision=self._revision,
            window=(start, end),
            partition=self.partition,
            partitions=counts,
            partitioner=self.rules.partitioner if chosen else None,
        )
        create = partial(WindowSketch.create, spec, self.rules.key, origin=origin, keep=keep)
        return (yield from perform(create, long=self.pace.takes_long(spec)))

    def sealing(self, state: SketchState, window: OpenWindow) -> Steps[None]:
        """Seal one window into the outbox; its state is destroyed here.

        Raises:
            BrokerError: a broker has reported more partitions than are known now.
        """
        if window.slots_for[-1] > window.counts[-1]:
            raise BrokerError(f"partition {self.partition}: brokers disagree on how many partitions the input has")
        self.slots.fit(window, window.counts)
        self.closing.close(window, window.end)
        sketch = window.sketch
        if sketch.origin.partitions:
            sketch.origin = replace(sketch.origin, partitions=window.counts)
        else:  # opened in format 1, which knows the first and the last
            sketch.origin = replace(sketch.origin, partitions_seal=window.counts[-1])
        entry = yield from perform(partial(self.seal, window), long=self.pace.takes_long(sketch.spec))
        self._outbox.put(entry)
        del state.windows[window.start]
        state.progress.last_sealed = max(state.progress.last_sealed, window.end)
        if state.last is window:
            state.last = None

    def seal(self, window: OpenWindow) -> SealedEntry:
        """Seal the sketch of a window. Touches nothing but that sketch, and the list of how long seals took."""
        began = perf_counter()
        entry = entry_of(window.sketch.seal())
        self.seal_seconds.append(perf_counter() - began)
        return entry
