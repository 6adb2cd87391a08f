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
from sketchstream.stream.interfaces import Frontier
from sketchstream.stream.published.evidence import EvidenceNoise
from sketchstream.stream.state.evidence import Evidence
from sketchstream.stream.state.window_sketch import WindowSketch
from sketchstream.stream.windows.boundary import NO_LIVE_WINDOW
from sketchstream.stream.windows.calendar import EARLIEST_MS, NO_TIME
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream.stream.windows.window_ranges import UNMARKED, Mark

MAX_REFUSED_WINDOWS = 1000
"""Most windows of refused records that one chunk looks for; wrong clocks can give each record a window of its own."""


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
    sketch: WindowSketch
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
        epsilon: epsilon of each draw; 0: nothing is kept.
        value: noise included.
        draws: how many are in it.
    """

    epsilon: Fraction = Fraction(0)
    value: int = 0
    draws: int = 0

    @classmethod
    def for_plan(cls, plan: SketchPlan | None) -> LateCount:
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
class SealProgress:
    """How far the windows of one sketch are closed, sealed and published in one partition, in event time.

    Args:
        through: windows that end by then (ms) take no record: they are sealed, of a backfill, or from before the
            sketch.
        published: windows that end by then are sealed here. Frontiers say this, which the watermark has passed, so that
            no other sketch is sealed by it ahead of its records.
        last_sealed: latest end of a window that was sealed.
        positions: positions that end by then are published; NO_TIME: none yet, or the sketch publishes none.
    """

    through: int = NO_TIME
    published: int = NO_TIME
    last_sealed: int = NO_TIME
    positions: int = NO_TIME


@dataclass
class OpeningBounds:
    """The times (ms) from which windows of one sketch are counted, created, claimed and opened by the watermark.

    Args:
        before_sketch: windows that end by then are from before the sketch: their records are neither counted nor late.
        created_from: overlapping windows: those of the plan that start before then are not created, because windows
            of a former plan, or of a backfill, have their records.
        claimed_from: windows that begin then or later are claimed for workers, see `stream.windows.boundary`.
        positions_from: windows that begin then or later are opened when their first position closes, if not by a
            record.
    """

    before_sketch: int = NO_TIME
    created_from: int = NO_TIME
    claimed_from: int = NO_LIVE_WINDOW
    positions_from: int = NO_TIME


@dataclass(frozen=True, slots=True)
class LastFrontier:
    """What the last frontier of one sketch said, as far as the next one depends on it.

    Args:
        sequence: number of the frontier; 0: there was none.
        partitions: partition count of the input.
        watermark: watermark of the partition, ms.
    """

    sequence: int = 0
    partitions: int = NO_TIME
    watermark: int = NO_TIME


@dataclass(frozen=True, slots=True)
class PartitionGrowth:
    """The last growth of the input.

    Args:
        former: number of partitions before some were added; 0: none were.
        through: `SealProgress.through` of the sketch at that time.
    """

    former: int = 0
    through: int = NO_TIME


@dataclass
class SketchState:
    """One sketch name in one partition: its open windows and what the partition knows about its other windows.

    Args:
        name: name of the sketch.
        plan: configuration of the sketch; None: it is no longer configured, and its open windows are finished.
        windows: open windows, by start.
        last: window that took the last records.
        irregular: some windows have, or may get, bounds that the plan does not have.
        overlapping: windows that are open, or will be, overlap.
        progress: how far its windows are sealed.
        opening: which windows are counted and created.
        frontier: last frontier of the partition.
        growth: the last growth of the input.
        partial: windows that may lack records.
        diverged: windows that may hold records that the log has lost.
        late: number of late records.
        evidence: numbers of records that its windows refused, and of items that were misplaced.
    """

    name: str
    plan: SketchPlan | None
    windows: dict[int, OpenWindow] = field(default_factory=dict)
    last: OpenWindow | None = None
    irregular: bool = False
    overlapping: bool = False
    progress: SealProgress = field(default_factory=SealProgress)
    opening: OpeningBounds = field(default_factory=OpeningBounds)
    frontier: LastFrontier = field(default_factory=LastFrontier)
    growth: PartitionGrowth = field(default_factory=PartitionGrowth)
    partial: Mark = UNMARKED
    diverged: Mark = UNMARKED
    late: LateCount = field(default_factory=LateCount)
    evidence: Evidence = field(default_factory=lambda: Evidence(EvidenceNoise()))

    def __post_init__(self) -> None:
        self.late = LateCount.for_plan(self.plan)
        self.overlapping = self.plan is not None and self.plan.steps > 1

    def fields(self, spec: Spec) -> Mapping[str, str] | None:
        """Role -> field of the records for a sketch of this spec; None where the configuration no longer names them."""
        named: Mapping[str, str] = {} if self.plan is None else self.plan.fields
        roles = kinds.kind_of(spec).intake.roles(spec)
        return {role: named[role] for role in roles} if all(role in named for role in roles) else None

    def holding(self, times: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
        """The windows [start, end) that may hold some of these times: those that are open, known, or of the plan."""
        bounds = {(window.start, window.end) for window in self.windows.values()} | self.evidence.known
        if self.plan is not None and times.size:
            placed = np.zeros(times.size, np.bool_)
            if not self.overlapping:
                first, last = int(times.min()), int(times.max())
                for start, end in bounds:
                    if start <= last and first < end:
                        placed |= (times >= start) & (times < end)
            for step in np.unique(self.plan.calendar.starts(times[~placed])).tolist()[:MAX_REFUSED_WINDOWS]:
                bounds.update(self.plan.holding(step))
        return sorted(bounds)

    @property
    def within(self) -> tuple[int, int] | None:
        """The part of a window of the plan that former windows cover; None: the last of them ends with a window."""
        if self.plan is None or self.progress.through < EARLIEST_MS:
            return None
        start = self.plan.calendar.window(self.progress.through)[0]
        return (start, self.progress.through) if start < self.progress.through else None

    def mark_partial(self, end: int) -> None:
        """Mark windows that are not sealed and end by then: they may lack records."""
        self.partial = self.partial.extended(self.progress.through, end)

    def mark_diverged(self, end: int) -> None:
        """Mark windows that are not sealed and end by then: they may hold records that the log has lost."""
        self.diverged = self.diverged.extended(self.progress.through, end)

    def next_frontier(self, revision: int, partition: int, partitions: int, watermark: int) -> Frontier:
        """The frontier to announce now; the number of late records gets fresh noise after it.

        Args:
            revision: revision of the sketches.
            partition: input partition.
            partitions: partition count of the input.
            watermark: watermark of the partition, ms.
        """
        self.frontier = LastFrontier(self.frontier.sequence + 1, partitions, watermark)
        frontier = Frontier(
            sketch=self.name,
            revision=revision,
            partition=partition,
            published_through=self.progress.published,
            partitions=partitions,
            sequence=self.frontier.sequence,
            partial=self.partial,
            diverged=self.diverged,
            grown_from=self.growth.former,
            grown_through=self.growth.through,
            late=self.late.value if self.late.draws else None,
            late_draws=self.late.draws,
            closed_through=self.progress.positions,
            evidence=self.evidence.report() if self.evidence.kept else None,
        )
        self.late.draw()
        return frontier

    def restored(self, *, changed: bool) -> None:
        """Compare the open windows of a snapshot with the plan; `changed`: its windows were those of another plan."""
        bounds = sorted((window.start, window.end) for window in self.windows.values())
        strange = [window for window in bounds if self.plan is None or not self.plan.has_window(window)]
        self.overlapping |= any(after < end for (_, end), (after, _) in pairwise(bounds))
        if self.overlapping:
            ends = [end for _, end in (bounds if changed else strange)]
            through = self.progress.through if changed else NO_TIME
            self.opening.created_from = max([self.opening.created_from, through, *ends])
        self.irregular = self.plan is None or bool(strange) or self.within is not None
