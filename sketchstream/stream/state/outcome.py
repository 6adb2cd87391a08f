"""What became of the records of one chunk, in numbers and positions.

In: decoded payloads, verdicts on event times. Out: `Outcome`. Touches: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.items.events import Events
from sketchstream.stream import kernels
from sketchstream.stream.state.watermark import Admission
from sketchstream.stream.windows.calendar import EARLIEST_MS

NO_INTS: Ints = np.zeros(0, np.int64)
"""The empty list of records."""


@dataclass
class Outcome:
    """The outcome of the records of one chunk, in numbers and positions only.

    Envelope (event times and timestamps are part of it, wherever they are written): records, late, future,
    unreadable_times, early, jumps, and from where to where the longest jump moved the watermark. The others depend on
    payloads, and only the operator's endpoint shows them.
    """

    records: int = 0
    late: dict[str, int] = field(default_factory=dict)
    future: int = 0
    unreadable_times: int = 0
    early: int = 0
    jumps: int = 0
    jumped_at: int = -1
    moved: tuple[int, int] | None = None
    moved_at: int = -1
    nulls: int = field(default=0, repr=False)
    updates: int = field(default=0, repr=False)
    sealed: int = 0
    invalid: int = field(default=0, repr=False)
    misplaced: int = field(default=0, repr=False)
    late_records: Ints = field(default_factory=lambda: NO_INTS, repr=False)
    future_records: Ints = field(default_factory=lambda: NO_INTS, repr=False)
    undecodable_records: Ints = field(default_factory=lambda: NO_INTS, repr=False)
    time_records: Ints = field(default_factory=lambda: NO_INTS, repr=False)

    def note_admission(self, admission: Admission) -> None:
        """Note what envelopes decide: refused records, and moves of the watermark."""
        self.future, self.unreadable_times, self.early = admission.future, admission.unreadable, admission.early
        self.jumps, self.jumped_at = admission.jumps, admission.jumped_at
        if not self.jumps:
            return
        before, after = admission.before, np.append(admission.before[1:], admission.mark)
        steps = np.where(before >= EARLIEST_MS, after - np.maximum(before, EARLIEST_MS), 0)
        self.moved_at = int(np.argmax(steps))
        self.moved = int(before[self.moved_at]), int(after[self.moved_at])

    def note_refused(self, events: Events, admission: Admission) -> None:
        """Note which records go to sinks, and the exact counters of payloads.

        Args:
            events: payloads of the chunk.
            admission: verdicts on its records, and which of them were late.
        """
        null = events.null
        self.nulls = int(np.count_nonzero(null))
        wrong = ~events.valid
        if wrong.any():
            usable = np.zeros(null.size, np.bool_)
            if events.record is None:
                usable = ~wrong
                self.invalid = int(np.count_nonzero(wrong & ~null))
            else:
                usable[events.record[~wrong]] = True
                usable[np.setdiff1d(np.arange(null.size), events.record)] = True  # empty records hold nothing wrong
                self.invalid = int(np.count_nonzero(wrong & ~null[events.record]))
            self.undecodable_records = np.flatnonzero(~usable & ~null)
        if self.future:
            self.future_records = np.flatnonzero(admission.verdict == kernels.FUTURE)
        if self.unreadable_times:
            lost = (admission.verdict == kernels.UNREADABLE) & ~null
            lost[self.undecodable_records] = False
            self.time_records = np.flatnonzero(lost)
        if self.late:
            self.late_records = np.flatnonzero(admission.late)
