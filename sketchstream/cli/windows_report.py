"""Many windows as one report: their trend, a table of all, and each of the last ones in a fold of its own.

In: windows and their profiles, one after the other. Out: one HTML page. Touches: nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from sketchstream.cli import show
from sketchstream.kinds.profile import pictures as pages
from sketchstream.naming import USUAL, Names
from sketchstream.pictures import report
from sketchstream.query import words
from sketchstream.query.history import start_labels

if TYPE_CHECKING:
    from sketchstream.kinds.estimates import Estimate
    from sketchstream.query.answers import Answer
    from sketchstream.query.sealed import SealedWindow

FOLDS: Final = 100
"""So many of the last windows have a fold with their own numbers and chart; the table has all of them."""
NUMBERS: Final = (*pages.TREND, "mean", "entropy")


@dataclass
class WindowsReport:
    """What is kept of each window until the page is written.

    Args:
        sketch: its name.
        timezone: of its windows.
    """

    sketch: str
    timezone: str
    starts: list[datetime] = field(default_factory=list)
    rows: list[Mapping[str, Estimate | None]] = field(default_factory=list)
    status: list[str] = field(default_factory=list)
    intervals: list[bool] = field(default_factory=list)
    folds: deque[report.Fold] = field(default_factory=lambda: deque(maxlen=FOLDS))
    guarantee: Mapping[str, Any] | None = None
    say: Names = USUAL

    def add(self, window: SealedWindow, answer: Answer) -> None:
        """One more window, later than those before."""
        start = datetime.fromtimestamp(window.window[0] / 1000, ZoneInfo(self.timezone))
        profile, data = answer.profile, answer.to_dict()
        self.starts.append(start)
        self.rows.append(pages.chosen(profile, NUMBERS))
        self.status.append(window.describe())
        self.intervals.append(answer.intervals)
        self.guarantee = profile.guarantee
        self.say = profile.names
        chart = pages.reach_chart(pages.curves(data)[0], self.say)
        title = f"{start:%Y-%m-%d %H:%M}: {pages.headline(data)}"
        self.folds.append(report.Fold(title, [chart], [pages.reach_table(data)]))

    def page(self) -> str:
        """The report."""
        labels = start_labels(self.starts)
        alarms = words.warned(self.guarantee)
        unfinished = sum(status != "complete" and not status.startswith("all ") for status in self.status)
        if unfinished:
            alarms.append(f"{unfinished} of these windows are not complete, or not known to be.")
        if not all(self.intervals):
            alarms.append(f"Some windows have no intervals. {words.NO_INTERVALS}")
        sections = [
            report.Section(
                "Trend",
                (words.INTERVALS,),
                charts=[pages.trend(self.rows, labels, all(self.intervals), self.say)] if self.rows else [],
                tables=[self._table(labels)],
            ),
            report.Section(
                "One window",
                (f"Choose a window to see it, the last one first{last(len(self.folds), len(self.rows))}.",),
                folds=list(reversed(self.folds)),
            ),
            report.Section("What is guaranteed", lists=words.statement(self.guarantee)),
        ]
        count = len(self.rows)
        lead = (
            f"{count:,} windows, {labels[0]} to {labels[-1]} (times of {self.timezone})."
            if count
            else "No window is published in that range."
        )
        return report.page(
            f"Window by window: {self.sketch}",
            (lead,),
            sections if count else [],
            words.ASKING_IS_FREE,
            " ".join(alarms),
        )

    def _table(self, labels: Sequence[str]) -> report.ReportTable:
        """All windows."""
        names = {"distinct": "distinct", "at_least.2": "2 or more", "at_least.10": "10 or more"}
        columns = ("window", *(names.get(name, name) for name in NUMBERS), "status")
        rows = []
        for label, row, status, intervals in zip(labels, self.rows, self.status, self.intervals, strict=True):
            rows.append((label, *(show.cell(one, intervals=intervals) for one in row.values()), status))
        return report.ReportTable("All windows: estimate [95% interval]", columns, rows)


def last(shown: int, count: int) -> str:
    """Number of windows with a fold, if not all have one."""
    return "" if shown == count else f"; only the last {shown} of {count:,} are here, the table has all"
