"""One series of windows of a `[[sketch]]`, as the engine sees it: name, spec and windows.

In: a spec and a calendar. Out: a `SketchPlan`. Touches: nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

from sketchstream import kinds
from sketchstream.image import DEFERRED_PART, is_large
from sketchstream.kinds import deferred_addition
from sketchstream.kinds.interface import Spec
from sketchstream.spec import ClosedDomain
from sketchstream.stream.windows.calendar import DAY_MS, MINUTE_MS, Calendar, Width


@dataclass(frozen=True)
class Memory:
    """What a series of windows needs in one partition, bytes.

    Args:
        window: counters of one window.
        most: windows that are open at once, at most.
        snapshot: memory in addition to the states while a snapshot is written, one partition at a time.
    """

    window: int
    most: int
    snapshot: int

    @property
    def states(self) -> int:
        """Counters of all open windows."""
        return self.window * self.most

    def for_partitions(self, partitions: int) -> int:
        """All bytes that a worker with this number of partitions needs."""
        return self.states * partitions + self.snapshot


@dataclass(frozen=True)
class EarlyAnswers:
    """Releases from windows that are still open.

    Args:
        every_ms: time from the beginning of a window to the first of them, and from each to the next.
        epsilon: cost of each.
        most: largest number of them in one window.
    """

    every_ms: int
    epsilon: Fraction
    most: int

    def times(self, window: tuple[int, int]) -> list[int]:
        """The watermarks (ms) at which they are due in a window [start, end), ascending; its end is the last."""
        start, end = window
        return [*range(start + self.every_ms, end, self.every_ms), end][: self.most]


@dataclass(frozen=True)
class SketchPlan:
    """One series of windows: its name, spec and calendar.

    Args:
        name: name under which its windows are published.
        spec: spec of the sketch of each window.
        calendar: calendar of its windows, or of the steps of hopping windows.
        steps: number of consecutive steps in a window.
        fields: role -> field of the records, for the roles that its kind needs besides item, weight and time. Not part
            of the spec: how the records of a deployment spell a role is configuration.
        stride: steps from the beginning of one window to that of the next: 1 unless that time does not divide a window.
        epsilon_refused: noise of the numbers of records that its windows refused; None: by its spec, see
            `stream.published.evidence`.
        epsilon_misplaced: noise of the numbers of misplaced events or items; None: by its spec.
        early: releases from windows that are still open; None: there are none.
        listed: role -> values of its field that the configuration lists, see `stream.input.listed_values`.
    """

    name: str
    spec: Spec
    calendar: Calendar = field(compare=False)
    steps: int = field(default=1, compare=False)
    fields: Mapping[str, str] = field(default_factory=dict, compare=False)
    stride: int = field(default=1, compare=False)
    epsilon_refused: Fraction | None = field(default=None, compare=False)
    epsilon_misplaced: Fraction | None = field(default=None, compare=False)
    early: EarlyAnswers | None = field(default=None, compare=False)
    listed: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def window(self) -> str:
        """The length of a window, and how often one begins, as a configuration says it: "1d", or "7d every 1d"."""
        step = self.calendar.width
        if self.steps == 1:
            return str(step)
        return f"{Width(step.count * self.steps, step.unit)} every {self.starts.width}"

    @property
    def windows_text(self) -> str:
        """The windows of the plan as a text: equal for two plans whose windows are equal."""
        return f"{self.steps} of {self.calendar}, one every {self.stride}"

    @cached_property
    def starts(self) -> Calendar:
        """The calendar whose windows begin where those of the plan do: that of the windows, or of `every`."""
        if self.stride == 1:
            return self.calendar
        step = self.calendar.width
        return Calendar(Width(step.count * self.stride, step.unit), self.calendar.timezone)

    @property
    def overlap(self) -> int:
        """Most windows that hold one instant: the window over `every`, rounded up."""
        return -(-self.steps // self.stride)

    @property
    def shortest_ms(self) -> int:
        """A lower bound of the length of the plan's windows, ms."""
        return self.steps * self.calendar.shortest_ms

    def holding(self, step: int) -> list[tuple[int, int]]:
        """The windows [start, end) that hold the step (of tumbling windows: the window) that begins then, ascending."""
        starts, ends = [step], [self.calendar.end(step)]
        for _ in range(self.steps - 1):
            starts.append(self.calendar.before(starts[-1]))
            ends.append(self.calendar.end(ends[-1]))
        windows = zip(reversed(starts), ends, strict=True)
        return [(start, end) for start, end in windows if self.stride == 1 or self.starts.window(start)[0] == start]

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The windows that lie in a range of time (ms) as a whole, ascending."""
        windows = []
        at = self.calendar.window(start)[0]
        while at < end:
            holding = self.holding(at)
            if holding and holding[-1][0] == at and start <= at and holding[-1][1] <= end:
                windows.append(holding[-1])
            at = self.calendar.end(at)
        return windows

    def last_end(self, time_ms: int) -> int:
        """End of the last window that holds this time."""
        return self.holding(self.calendar.window(time_ms)[0])[-1][1]

    def has_window(self, window: tuple[int, int]) -> bool:
        """Whether a window is one of this plan."""
        start = window[0]
        return self.calendar.window(start)[0] == start and self.holding(start)[-1] == window

    @property
    def loss(self) -> float:
        """The most that one event (or item) loses by what one window publishes: epsilon, at the kind's delta if any."""
        if self.early is not None:
            return float(self.ledger.loss())
        return float(kinds.initial_ledger(self.spec).epsilon())

    @cached_property
    def ledger(self) -> Any:
        """The ledger that each window begins with, with all of its early answers charged."""
        ledger = kinds.initial_ledger(self.spec)
        for _ in range(0 if self.early is None else self.early.most):
            assert self.early is not None
            ledger = ledger.charge_release(self.early.epsilon)
        return ledger

    @property
    def epsilon_records(self) -> Fraction:
        """Noise of numbers of records, which are functions of envelopes; 0: no such number is kept."""
        return Fraction(getattr(self.spec, "epsilon_records", 0))

    def open_windows(self, behind_ms: int) -> int:
        """Most windows that are open at once in one partition.

        Args:
            behind_ms: how far the oldest open window may end before the newest event: lateness and quorum_time. A
                partition of few records keeps more, up to one for each record that its watermark lags behind.
        """
        return -(-behind_ms // self.starts.shortest_ms) + 1 + self.overlap

    def window_bytes(self, total: int, *, checked: bool) -> int:
        """Counters of one open window in one partition.

        Args:
            total: partitions of the input.
            checked: whether an item's partition can be recomputed.
        """
        kind = kinds.kind_of(self.spec)
        slots = self.spec.slots
        if isinstance(self.spec.domain, ClosedDomain) and checked and kind.partitions == "stack":
            slots = -(-slots // total)  # a partition's sketch has slots for its own items only
        return slots * self.spec.dtype.itemsize

    def memory(self, behind_ms: int, total: int, *, checked: bool) -> Memory:
        """What open windows need in one partition.

        A snapshot copies the windows; of large sketches with groups it copies nothing, and keeps a list of events
        while it is written.

        Args:
            behind_ms: see `open_windows`.
            total: partitions of the input.
            checked: whether an item's partition can be recomputed.
        """
        window, itemsize = self.window_bytes(total, checked=checked), self.spec.dtype.itemsize
        most = self.open_windows(behind_ms)
        imaged = deferred_addition(self.spec) is not None and is_large(window // itemsize, itemsize)
        return Memory(window, most, window * most // DEFERRED_PART if imaged else window * most)


def plan_of_windows(name: str, spec: Spec, windows: Sequence[tuple[int, int]]) -> SketchPlan:
    """The plan of windows that were published, where no configuration has it: of equal lengths, in UTC.

    Args:
        name: name under which they were published.
        spec: spec of their sketches.
        windows: [start, end) of at least one, ms, ascending. The shortest time from one to the next gives how many
            hold one instant.
    """
    length = max(end - start for start, end in windows)
    apart = [second - first for (first, _), (second, _) in pairwise(windows) if second > first]
    every = min([length, *apart])
    step = math.gcd(length, every)
    width = Width(step // DAY_MS, "day") if step % DAY_MS == 0 else Width(step // MINUTE_MS, "minute")
    return SketchPlan(name, spec, Calendar(width), steps=length // step, stride=every // step)
