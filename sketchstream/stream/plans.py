"""One `[[sketch]]` of the configuration as the engine sees it: name, spec and windows.

In: a spec and a calendar. Out: a `SketchPlan`. Touches: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from sketchstream import kinds
from sketchstream.kinds.interface import Spec
from sketchstream.stream.windows import Calendar


@dataclass(frozen=True)
class SketchPlan:
    """One `[[sketch]]`: its name, what it is, and its windows."""

    name: str
    spec: Spec
    calendar: Calendar = field(compare=False)

    @property
    def loss(self) -> float:
        """The most that one event (or item) loses by what one window publishes: epsilon, at the kind's delta if any."""
        return kinds.of(self.spec).planned_epsilon(self.spec)

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
        return -(-behind_ms // self.calendar.shortest_ms) + 2
