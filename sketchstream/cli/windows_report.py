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
from sketchstream.kinds import presentation
from sketchstream.kinds.profile_answers import TREND
from sketchstream.pictures import report
from sketchstream.query import words
from sketchstream.query.window_sequence import start_labels
from sketchstream.texts.naming import USUAL, Names

if TYPE_CHECKING:
    from sketchstream.kinds.estimates import Estimate
    from sketchstream.pictures.numbers import Panel
    from sketchstream.query.answers import ProfileAnswer
    from sketchstream.query.sealed import SealedWindow

FOLDS: Final = 100
"""Number of last windows that have a fold with their own numbers and chart; the table has all windows."""
SHOWN_NUMBERS: Final = (*TREND, "mean", "entropy")


@dataclass(frozen=True)
class ManyWindows:
    """What a report says of its windows, of any kind of sketch.

    Args:
        sketch: name of the sketch.
        timezone: time zone of its windows.
        labels: starts of the windows.
        unfinished: number of windows that are not complete.
        guarantee: guarantee of the last window; None without any.
    """

    sketch: str
    timezone: str
    labels: Sequence[str]
    unfinished: int
    guarantee: Mapping[str, Any] | None

    def page(
        self, trend: Sequence[report.Section], folds: list[report.Fold], note: str = "", alarms: Sequence[str] = ()
    ) -> str:
        """The report.

        Args:
            trend: trend over all windows.
            folds: folds of the last windows, the last one first.
            note: before the choice of a window.
            alarms: others than those of all reports.
        """
        count, lead = len(self.labels), "No window is published in that range."
        if count:
            span = f"{self.labels[0]} to {self.labels[-1]} (times of {self.timezone})"
            lead = f"{count:,} window{'s' * (count != 1)}, {span}."
        unfinished = f"{self.unfinished} of these windows are not complete, or not known to be."
        others = "" if len(folds) == count else f"; only the last {len(folds)} of {count:,} are here, the table has all"
        choice = f"{note}Choose a window to see it, the last one first{others}."
        sections = [
            *trend,
            report.Section("One window", (choice,), folds=folds),
            report.Section("What is guaranteed", lists=words.statement(self.guarantee)),
        ]
        alarm = " ".join([*words.warnings_of(self.guarantee), *([unfinished] if self.unfinished else []), *alarms])
        title = f"Window by window: {self.sketch}"
        return report.page(title, (lead,), sections if count else [], words.ASKING_IS_FREE, alarm)


def fold(title: str, pictures: Sequence[Panel]) -> report.Fold:
    """One window with its pictures, under a title."""
    charts = [picture.chart for picture in pictures if picture.chart is not None]
    return report.Fold(title, charts, [picture.table for picture in pictures])


@dataclass
class WindowsReport:
    """What is kept of each window until the page is written.

    Args:
        sketch: name of the sketch.
        timezone: time zone of its windows.
    """

    sketch: str
    timezone: str
    starts: list[datetime] = field(default_factory=list)
    rows: list[Mapping[str, Estimate | None]] = field(default_factory=list)
    status: list[str] = field(default_factory=list)
    complete: list[bool] = field(default_factory=list)
    intervals: list[bool] = field(default_factory=list)
    folds: deque[report.Fold] = field(default_factory=lambda: deque(maxlen=FOLDS))
    guarantee: Mapping[str, Any] | None = None
    say: Names = USUAL

    def add(self, window: SealedWindow, answer: ProfileAnswer) -> None:
        """Add one more window, later than those before."""
        start = datetime.fromtimestamp(window.window[0] / 1000, ZoneInfo(self.timezone))
        profile, data = answer.profile, answer.to_dict()
        self.starts.append(start)
        self.rows.append(profile.chosen(SHOWN_NUMBERS))
        self.status.append(window.describe())
        self.complete.append(window.complete is True)
        self.intervals.append(answer.intervals)
        self.guarantee = profile.guarantee
        self.say = profile.names
        title = f"{start:%Y-%m-%d %H:%M}: {presentation.presentation_of(data).headline(data)}"
        self.folds.append(fold(title, presentation.presentation_of(data).main(data)))

    def page(self) -> str:
        """The report."""
        labels = start_labels(self.starts)
        charts = presentation.trend_together(TREND, self.rows, labels, all(self.intervals), self.say)
        trend = report.Section("Trend", (words.INTERVALS,), charts=charts, tables=[self._table(labels)])
        alarms = [] if all(self.intervals) else [f"Some windows have no intervals. {words.NO_INTERVALS}"]
        about = ManyWindows(self.sketch, self.timezone, labels, self.complete.count(False), self.guarantee)
        return about.page([trend], list(reversed(self.folds)), alarms=alarms)

    def _table(self, labels: Sequence[str]) -> report.ReportTable:
        """All windows."""
        names = {"distinct": "distinct", "at_least.2": "2 or more", "at_least.10": "10 or more"}
        columns = ("window", *(names.get(name, name) for name in SHOWN_NUMBERS), "status")
        rows = []
        for label, row, status, intervals in zip(labels, self.rows, self.status, self.intervals, strict=True):
            rows.append((label, *(show.cell(name, value, intervals=intervals) for name, value in row.items()), status))
        return report.ReportTable("All windows: estimate [95% interval]", columns, rows)
