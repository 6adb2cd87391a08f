"""The windows of one sketch as a sequence, with profiles on demand and numbers of all windows as columns.

In: publications of a configuration's workers. Out: windows, their profiles, tables, cards for notebooks.
Touches: the sealed topic or folder, reading, once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, overload
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from sketchstream.kinds import exports, presentation
from sketchstream.kinds.profile_answers import TREND
from sketchstream.pictures import report
from sketchstream.query.answers import ProfileAnswer
from sketchstream.query.differences import Difference, difference
from sketchstream.query.times import to_span
from sketchstream.texts.number_texts import number_text

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from sketchstream.kinds.answers import Answers
    from sketchstream.kinds.profile_answers import Profile
    from sketchstream.published import Published
    from sketchstream.query.estimates import EstimateAnswer
    from sketchstream.query.sealed import SealedWindow
    from sketchstream.query.windows import PublishedWindows

USUAL_NUMBERS: Final = ("distinct", "at_least.2", "at_least.10", "total", "mean", "entropy")
"""Numbers of a table of windows, unless others are asked for."""
SUM: Final = ("sum",)
"""Numbers of such a table for kinds that give estimates."""
Time = str | datetime
Columns = dict[str, npt.NDArray[Any]]


class Window:
    """One window of a sketch, with the parts that are published.

    Its profile is computed on first use. Further questions cost no privacy.
    """

    def __init__(self, published: PublishedWindows, sealed: SealedWindow) -> None:
        self._published = published
        self._sealed = sealed

    @property
    def start(self) -> datetime:
        """Start of the window, in the sketch's timezone."""
        return self._when(0)

    @property
    def end(self) -> datetime:
        """End of the window, exclusive, in the sketch's timezone."""
        return self._when(1)

    @property
    def complete(self) -> bool | None:
        """Whether every partition has published the window and no loss shows; None: that is not known."""
        return self._sealed.complete

    @property
    def status(self) -> str:
        """Completeness in words."""
        return self._sealed.describe()

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts about the window: the fields that `sketchstream profile -c` prints first."""
        return self._sealed.fields()

    @cached_property
    def published(self) -> Published:
        """The published object of the window: partitions of a keyed input stacked, others merged."""
        return self._published.result(self._sealed)

    @cached_property
    def answer(self) -> ProfileAnswer | EstimateAnswer:
        """The answer of `sketchstream profile -c`, `estimate -c` and the results topic for this window."""
        return self._published.given_out(self._sealed)

    def profile(self) -> Profile:
        """Reconstruct the profile by the default method; its guarantee accounts for the whole deployment.

        For another method: `published.profile(method=...)`.

        Raises:
            EstimateError: the sketch's kind gives estimates, not profiles.
        """
        answer = self.answer
        return answer.profile if isinstance(answer, ProfileAnswer) else self.published.profile()

    def estimate(self) -> Answers:
        """Estimates by the default method, for kinds that provide them; listed items have their names.

        For another method: `published.estimate(method=...)`.

        Raises:
            EstimateError: the sketch has a profile.
        """
        answer = self.answer
        return self.published.estimate() if isinstance(answer, ProfileAnswer) else answer.answers

    @property
    def intervals(self) -> bool:
        """Whether intervals are valid: those of profiles are not if partitions were added during the window."""
        return not (self._sealed.repartitioned and isinstance(self.answer, ProfileAnswer))

    def numbers(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Numbers by name, with intervals; None for a k+ number beyond the largest resolved count.

        Args:
            names: names of numbers: "distinct", "at_least.5", ... of profiles; "sum" or an item of estimates. Default:
                `USUAL_NUMBERS`, or the sum.
        """
        answer = self.answer
        if isinstance(answer, ProfileAnswer):
            return dict(answer.profile.chosen(USUAL_NUMBERS if names is None else names))
        return answer.named(SUM if names is None else names)

    def difference(self, other: Window, number: str) -> Difference:
        """Subtract a number of another window from that of this one, with a 95% interval.

        Args:
            other: a window of the same sketch, or of another of its groups.
            number: "distinct", "at_least.5", ... of profiles; of the other kinds "sum", "count.7" (by the position in
                the domain), "answer.7", "last.0", "norm.7".

        Raises:
            EstimateError: an answer does not have this number.
        """
        spec = self._published.plan_of(self._sealed).spec
        first, second = (json.loads(window.answer.to_json()) for window in (self, other))
        return difference(spec, first, second, number)

    @property
    def group(self) -> str | None:
        """The group of the answers; None if the sketch has no groups or none was chosen."""
        return self._sealed.group

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the sketch's groups."""
        return self._sealed.groups

    def of_group(self, name: str) -> Window:
        """Restrict the window to one of its groups.

        Raises:
            EstimateError: the sketch has no groups, or none of that name.
        """
        return Window(self._published, self._sealed.of_group(name))

    def __repr__(self) -> str:
        """Public parameters only."""
        group = "" if self.group is None else f" group {self.group}"
        span = f"{self.start.isoformat()} to {self.end.isoformat()}"
        return f"<Window of {self._sealed.sketch}{group}, {span}, {self.status}>"

    def _repr_html_(self) -> str:
        """Card for notebooks: of the profile, of the estimates, or of the questions that the kind answers."""
        answer = self.profile() if isinstance(self.answer, ProfileAnswer) else self.estimate()
        if hasattr(answer, "_repr_html_"):
            return str(answer._repr_html_())
        return report.card(repr(self)[1:-1], note=str(answer))

    def _when(self, end: int) -> datetime:
        zone = ZoneInfo(self._published.plan_of(self._sealed).calendar.timezone)
        return datetime.fromtimestamp(self._sealed.window[end] / 1000, zone)


class Windows(Sequence[Window]):
    """The windows of one sketch, in order of time."""

    def __init__(self, sketch: str, windows: Sequence[Window]) -> None:
        self.sketch = sketch
        self._windows = tuple(windows)

    def __len__(self) -> int:
        return len(self._windows)

    @overload
    def __getitem__(self, at: int) -> Window: ...
    @overload
    def __getitem__(self, at: slice) -> Windows: ...
    def __getitem__(self, at: int | slice) -> Window | Windows:
        return Windows(self.sketch, self._windows[at]) if isinstance(at, slice) else self._windows[at]

    def __iter__(self) -> Iterator[Window]:
        return iter(self._windows)

    def __repr__(self) -> str:
        """Number of windows and their range of time."""
        if not self._windows:
            return f"<Windows of {self.sketch}: none published>"
        return f"<Windows of {self.sketch}: {len(self)}, {self[0].start.isoformat()} to {self[-1].end.isoformat()}>"

    def columns(self, numbers: Sequence[str] | None = None) -> Columns:
        """One row for each window: start, end, completeness, whether it is of a history, numbers with their intervals.

        Args:
            numbers: "distinct", "at_least.5", "mean", "quantile.0.9", ... of profiles; "sum" and items of estimates. A
                dot becomes an underscore in the names of columns. Numbers that a window does not resolve, and invalid
                intervals, are NaN.
        """
        out: Columns = {
            "window_start": _times(window.start for window in self),
            "window_end": _times(window.end for window in self),
            "complete": _flags(window.complete for window in self),
            "history": _flags("history" in window.facts for window in self),
        }
        rows = [window.numbers(numbers) for window in self]
        for name in dict.fromkeys(name for row in rows for name in row):
            column = name.replace(".", "_")
            estimates = [row[name] for row in rows]
            out[column] = _floats(None if estimate is None else estimate.value for estimate in estimates)
            ends = [estimate if window.intervals else None for estimate, window in zip(estimates, self, strict=True)]
            out[f"{column}_low"] = _floats(None if end is None else end.low for end in ends)
            out[f"{column}_high"] = _floats(None if end is None else end.high for end in ends)
            bounds = [getattr(estimate, "bound", None) or "" for estimate in estimates]
            if any(bounds):  # counts modulo p make bounds of numbers
                out[f"{column}_bound"] = np.array(bounds, np.str_)
        return out

    def to_pandas(self, numbers: Sequence[str] | None = None) -> pd.DataFrame:
        """`columns` as a pandas DataFrame, times in UTC.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        frame = exports.frame_of(self.columns(numbers))
        for name in ("window_start", "window_end"):
            frame[name] = frame[name].dt.tz_localize("UTC")
        return frame

    def _repr_html_(self) -> str:
        """A picture for notebooks: the trend, and a table of all windows."""
        if self._windows and not isinstance(self[-1].answer, ProfileAnswer):
            return self._trend_of_estimates()
        rows = [window.numbers(tuple(TREND)) for window in self]
        labels = start_labels([window.start for window in self])
        cells = []
        for window, label, row in zip(self, labels, rows, strict=True):
            texts = [
                "-" if point is None else str(point) if window.intervals else number_text(point.value)
                for point in row.values()
            ]
            cells.append((label, *texts, window.status))
        columns = ("window", *(name.replace("\n", " ") for name in TREND.values()), "status")
        table = report.ReportTable("Estimates [95% intervals]", columns, cells)
        draw = all(window.intervals for window in self)
        charts = presentation.trend_together(TREND, rows, labels, draw, self[-1].profile().names) if rows else []
        guarantee = self[-1].profile().guarantee if rows else None
        note = guarantee["seen"][0] if guarantee else ""
        return report.card(repr(self)[1:-1], tables=[table], charts=charts, note=note)

    def _trend_of_estimates(self) -> str:
        """A picture for notebooks: the first number of each window, and the newest window's answers."""
        labels = start_labels([window.start for window in self])
        answers = [json.loads(window.answer.to_json()) for window in self]
        panels = presentation.trend(answers, labels, [window.complete is True for window in self], most=1)
        tables, charts = [panel.table for panel in panels], [panel.chart for panel in panels]
        return report.card(repr(self)[1:-1], tables=tables, charts=charts) + self[-1]._repr_html_()


def windows_of(
    published: PublishedWindows,
    sketch: str | None = None,
    since: Time | None = None,
    until: Time | None = None,
    group: str | None = None,
) -> Windows:
    """Collect the windows of one sketch, ascending; arguments and errors are those of `sketchstream.windows`."""
    first, last = (moment.isoformat() if isinstance(moment, datetime) else moment for moment in (since, until))
    span = to_span(first, last, ("since", "until"))
    plan = published.plan(sketch)
    windows = [Window(published, window) for window in published.every(plan.name, *span)]
    return Windows(plan.name, windows if group is None else [window.of_group(group) for window in windows])


def start_labels(starts: Sequence[datetime]) -> list[str]:
    """Starts of windows as short texts: only month or day if all windows begin with one."""
    if all(when.hour == when.minute == 0 for when in starts):
        months = all(when.day == 1 for when in starts) and len(starts) > 1
        return [f"{when:%Y-%m}" if months else f"{when:%Y-%m-%d}" for when in starts]
    return [f"{when:%m-%d %H:%M}" for when in starts]


def _times(times: Iterable[datetime]) -> npt.NDArray[Any]:
    """(n,) datetime64 in milliseconds, UTC."""
    return np.array([when.astimezone(UTC).replace(tzinfo=None) for when in times], "datetime64[ms]")


def _flags(flags: Iterable[bool | None]) -> np.ndarray[Any, Any]:
    """A column of flags: bool, or objects where one is not known."""
    values = list(flags)
    return np.array(values, np.object_ if None in values else np.bool_)


def _floats(values: Iterable[float | None]) -> npt.NDArray[np.float64]:
    """(n,) numbers, NaN for None."""
    return np.array([np.nan if value is None else value for value in values], np.float64)
