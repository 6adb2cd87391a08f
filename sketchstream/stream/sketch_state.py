"""What a partition's state is made of: rules, windows, tracks, the outbox, outcomes.

In: public parameters, chunks after admission. Out: plain holders without a life of their own. Touches: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sketchstream.items import Items
from sketchstream.sketch import Sketch
from sketchstream.stream.interfaces import Decoded, SealedEntry
from sketchstream.stream.partitioner import Partitioner
from sketchstream.stream.plans import SketchPlan
from sketchstream.stream.quorum import DEFAULT, Quorum
from sketchstream.stream.window_ranges import UNMARKED, Mark
from sketchstream.stream.windows import NO_TIME

if TYPE_CHECKING:
    from sketchstream.hashing import Key

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
NO_INTS: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Rules:
    """What all partitions of a worker have in common; public parameters only.

    Args:
        sketches: what is counted.
        key: hash key, if any of them needs one.
        lateness_ms: how long a window stays open behind the watermark.
        max_ahead_ms: how far an event time may lie beyond the clock.
        quorum: what moves the watermark.
        partitioner: recomputes an item's partition; None: not known, or records are not partitioned by item.
        fingerprint: of the set of sketches.
    """

    sketches: tuple[SketchPlan, ...]
    key: Key | None = field(default=None, repr=False)
    lateness_ms: int = 600_000
    max_ahead_ms: int = 600_000
    quorum: Quorum = DEFAULT
    partitioner: Partitioner | None = None
    fingerprint: bytes = b""


@dataclass
class Outcome:
    """What became of the records of one chunk. Numbers and positions only.

    Envelope (event times and timestamps are part of it, wherever they are written): records, late, future,
    unreadable_times, early, jumps. The others depend on payloads: for the operator's endpoint alone.
    """

    records: int = 0
    late: dict[str, int] = field(default_factory=dict)
    future: int = 0
    unreadable_times: int = 0
    early: int = 0
    jumps: int = 0
    jumped_at: int = -1
    nulls: int = field(default=0, repr=False)
    updates: int = field(default=0, repr=False)
    sealed: int = 0
    invalid: int = field(default=0, repr=False)
    misplaced: int = field(default=0, repr=False)
    late_records: Ints = field(default_factory=lambda: NO_INTS, repr=False)
    future_records: Ints = field(default_factory=lambda: NO_INTS, repr=False)
    undecodable_records: Ints = field(default_factory=lambda: NO_INTS, repr=False)
    time_records: Ints = field(default_factory=lambda: NO_INTS, repr=False)


@dataclass
class OpenWindow:
    """One open sketch: [start, end) in ms, and where its bytes are.

    Args:
        counts: partition counts that were valid since it opened, ascending.
        slots_for: closed domains: the partition counts whose items have slots.
    """

    start: int
    end: int
    sketch: Sketch
    counts: tuple[int, ...]
    blob: str | None = None
    dirty: bool = True
    slots_for: tuple[int, ...] = ()

    @property
    def n_bytes(self) -> int:
        """Memory of its counters."""
        return self.sketch.slots * int(self.sketch.spec.dtype.itemsize)


@dataclass
class LateCount:
    """The number of late records of one sketch in one partition, with noise from the start: no exact count is kept.

    Fresh noise is added after each frontier that shows it, so that what came between two frontiers is noisy too.

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
        """A new one for a sketch, with its first draw."""
        count = cls(Fraction(0) if plan is None else plan.spec.epsilon_records)
        count.draw()
        return count

    def draw(self) -> None:
        """One more draw of discrete Laplace noise."""
        if self.epsilon:
            from sketchstream import noise

            number = np.zeros(1, np.int64)
            noise.discrete_laplace(number, self.epsilon)
            self.value += int(number[0])
            self.draws += 1

    def add(self, records: int) -> None:
        """More records were late."""
        if self.epsilon:
            self.value += records


@dataclass
class Track:
    """One sketch name in one partition: its open windows and how far it is sealed."""

    name: str
    plan: SketchPlan | None
    windows: dict[int, OpenWindow] = field(default_factory=dict)
    through: int = NO_TIME
    partial: Mark = UNMARKED
    diverged: Mark = UNMARKED
    sequence: int = 0
    announced: int = NO_TIME
    grown_from: int = 0
    grown_through: int = NO_TIME
    reached: int = NO_TIME
    last: OpenWindow | None = None
    late: LateCount = field(default_factory=LateCount)

    def __post_init__(self) -> None:
        self.late = LateCount.of(self.plan)

    def mark_partial(self, end: int) -> None:
        """Windows that are not sealed and end by then may lack records."""
        self.partial = self.partial.stretched(self.through, end)

    def mark_diverged(self, end: int) -> None:
        """Windows that are not sealed and end by then may hold records that the log has lost."""
        self.diverged = self.diverged.stretched(self.through, end)

    def aligned(self) -> bool:
        """Whether every open window is one that the calendar would make."""
        if self.plan is None:
            return False
        calendar = self.plan.calendar
        return all(calendar.window(one.start) == (one.start, one.end) for one in self.windows.values())


@dataclass
class Outgoing:
    """A sealed entry that is in the outbox, and where its bytes are."""

    entry: SealedEntry
    blob: str
    saved: bool = False


@dataclass
class Admitted:
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


def fitted(pairs: list[tuple[int, int]], pinned: list[tuple[int, int]], times: Ints) -> list[tuple[int, int]]:
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
