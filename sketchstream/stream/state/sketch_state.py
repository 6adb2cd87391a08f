"""One sketch in one partition: its open windows, how far it is sealed, its number of late records.

In: public parameters, open sketches. Out: plain holders. Touches: entropy for the number of late records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sketchstream import kinds, noise
from sketchstream.kinds.interface import Spec
from sketchstream.sketch import Sketch
from sketchstream.stream.state.evidence import Evidence, EvidenceNoise
from sketchstream.stream.windows.boundary import NEVER
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream.stream.windows.window_ranges import UNMARKED, Mark
from sketchstream.stream.windows.windows import EARLIEST_MS, NO_TIME

MOST_STEPS = 1000
"""Windows of refused records that are looked for in one chunk; wrong clocks can give each record one of its own."""


@dataclass
class OpenWindow:
    """One open sketch: [start, end) in ms, and where its bytes are.

    Args:
        counts: partition counts that were valid since it opened, ascending.
        slots_for: closed domains: the partition counts whose items have slots.
        closed: positions that were published when they closed.
        early: releases that were published before the seal.
    """

    start: int
    end: int
    sketch: Sketch
    counts: tuple[int, ...]
    blob: str | None = None
    dirty: bool = True
    slots_for: tuple[int, ...] = ()
    closed: int = 0
    early: int = 0

    @property
    def n_bytes(self) -> int:
        """Memory of its counters."""
        return self.sketch.slots * int(self.sketch.spec.dtype.itemsize)

    @property
    def copied_bytes(self) -> int:
        """How much a snapshot of it copies."""
        return self.n_bytes if self.unsaved and not self.sketch.large else 0

    @property
    def unsaved(self) -> bool:
        """Whether a snapshot writes it anew."""
        return self.dirty or self.blob is None


@dataclass
class LateCount:
    """The number of late records of one sketch in one partition, noisy from the start: no exact count is kept.

    Fresh noise is added after each frontier that shows it, so that the number between two frontiers is noisy too.

    Args:
        epsilon: of each draw; 0: nothing is kept.
        value: noise included.
        draws: how many are in it.
    """

    epsilon: Fraction = Fraction(0)
    value: int = 0
    draws: int = 0

    @classmethod
    def of(cls, plan: SketchPlan | None) -> LateCount:
        """Create the number for a sketch, with its first draw."""
        count = cls(Fraction(0) if plan is None else plan.epsilon_records)
        count.draw()
        return count

    def draw(self) -> None:
        """One more draw of discrete Laplace noise."""
        if self.epsilon:
            number = np.zeros(1, np.int64)
            noise.discrete_laplace(number, self.epsilon)
            self.value += int(number[0])
            self.draws += 1

    def add(self, records: int) -> None:
        """Add late records."""
        if self.epsilon:
            self.value += records


@dataclass
class Track:
    """One sketch name in one partition: its open windows and how far it is sealed.

    Args:
        name: of the sketch.
        plan: its configuration; None: it is no longer configured, and its open windows are finished.
        windows: open, by start.
        through: windows that end by then (ms) take no record: they are sealed, of a history, or from before the sketch.
        published: windows that end by then are sealed here. Frontiers say this, which the watermark has passed, so that
            no other sketch is sealed by it ahead of its records.
        partial: windows that may lack records.
        diverged: windows that may hold records that the log has lost.
        sequence: of its last frontier.
        announced: partition count of its last frontier.
        grown_from: partitions of the input before some were added; 0: none were.
        grown_through: `through` at that time.
        reached: latest end of a window that was sealed.
        last: window that took the last records.
        irregular: some windows have, or may get, bounds that the plan does not have.
        overlapping: windows that are open, or will be, overlap.
        begins: overlapping windows: those of the plan that start before then (ms) are not created, because windows
            of a former plan, or a history, have their records.
        live: windows that begin then (ms) or later are claimed for workers, see `stream.windows.boundary`.
        earlier: windows that end by then (ms) are from before the sketch: their records are neither counted nor late.
        late: number of late records.
        closed: positions that end by then (ms) are published; NO_TIME: none yet, or the sketch publishes none.
        opens_from: windows that begin then or later are opened when their first position closes, if not by a record.
        evidence: about records that its windows refused, and items that were misplaced.
        reported: watermark of its last frontier.
    """

    name: str
    plan: SketchPlan | None
    windows: dict[int, OpenWindow] = field(default_factory=dict)
    through: int = NO_TIME
    published: int = NO_TIME
    partial: Mark = UNMARKED
    diverged: Mark = UNMARKED
    sequence: int = 0
    announced: int = NO_TIME
    grown_from: int = 0
    grown_through: int = NO_TIME
    reached: int = NO_TIME
    last: OpenWindow | None = None
    irregular: bool = False
    overlapping: bool = False
    begins: int = NO_TIME
    live: int = NEVER
    earlier: int = NO_TIME
    late: LateCount = field(default_factory=LateCount)
    closed: int = NO_TIME
    opens_from: int = NO_TIME
    evidence: Evidence = field(default_factory=lambda: Evidence(EvidenceNoise()))
    reported: int = NO_TIME

    def __post_init__(self) -> None:
        self.late = LateCount.of(self.plan)
        self.overlapping = self.plan is not None and self.plan.steps > 1

    def fields(self, spec: Spec) -> Mapping[str, str] | None:
        """Role -> field of the records for a sketch of this spec; None where the configuration no longer names them."""
        named: Mapping[str, str] = {} if self.plan is None else self.plan.fields
        roles = kinds.of(spec).intake.roles(spec)
        return {role: named[role] for role in roles} if all(role in named for role in roles) else None

    def holding(self, times: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
        """The windows [start, end) that may hold some of these times: those that are open, known, or of the plan."""
        found = {(one.start, one.end) for one in self.windows.values()} | self.evidence.known
        if self.plan is not None and times.size:
            known = np.zeros(times.size, np.bool_)
            if not self.overlapping:
                first, last = int(times.min()), int(times.max())
                for start, end in found:
                    if start <= last and first < end:
                        known |= (times >= start) & (times < end)
            for step in np.unique(self.plan.calendar.starts(times[~known])).tolist()[:MOST_STEPS]:
                found.update(self.plan.holding(step))
        return sorted(found)

    @property
    def within(self) -> tuple[int, int] | None:
        """The part of a window of the plan that windows of a former plan have covered; None: they end with one."""
        if self.plan is None or self.through < EARLIEST_MS:
            return None
        start = self.plan.calendar.window(self.through)[0]
        return (start, self.through) if start < self.through else None

    def mark_partial(self, end: int) -> None:
        """Mark windows that are not sealed and end by then: they may lack records."""
        self.partial = self.partial.stretched(self.through, end)

    def mark_diverged(self, end: int) -> None:
        """Mark windows that are not sealed and end by then: they may hold records that the log has lost."""
        self.diverged = self.diverged.stretched(self.through, end)

    def restored(self, *, changed: bool) -> None:
        """Compare the open windows of a snapshot with the plan; `changed`: its windows were those of another plan."""
        bounds = sorted((one.start, one.end) for one in self.windows.values())
        strange = [window for window in bounds if self.plan is None or not self.plan.makes(window)]
        self.overlapping |= any(after < end for (_, end), (after, _) in pairwise(bounds))
        if self.overlapping:
            taken = bounds if changed else strange
            self.begins = max([self.begins, self.through if changed else NO_TIME, *(end for _, end in taken)])
        self.irregular = self.plan is None or bool(strange) or self.within is not None
