"""The windows of one sketch that the admitted records of a chunk fall into.

In: admitted event times, open windows, the plan of the sketch. Out: starts and ends. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.stream import kernels
from sketchstream.stream.state.sketch_state import SketchState
from sketchstream.stream.state.watermark import Admission
from sketchstream.stream.windows.calendar import EARLIEST_MS, LATEST_MS, NO_TIME, Calendar

MANY_WINDOWS = 64
"""Windows of one chunk beyond which they are found by sorting."""


class WindowBounds(NamedTuple):
    """(w,) starts and (w,) ends of ascending, disjoint windows, ms."""

    starts: Ints
    ends: Ints

    @classmethod
    def from_pairs(cls, pairs: Sequence[tuple[int, int]]) -> WindowBounds:
        """The bounds of windows [start, end)."""
        return cls(np.array([start for start, _ in pairs], np.int64), np.array([end for _, end in pairs], np.int64))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The windows [start, end)."""
        return list(zip(self.starts.tolist(), self.ends.tolist(), strict=True))


def covering(state: SketchState, admission: Admission) -> WindowBounds:
    """Windows that cover the admitted times of a chunk."""
    last = state.last
    if last is not None and last.start <= admission.low and admission.high < last.end:
        return WindowBounds.from_pairs([(last.start, last.end)])
    if state.plan is None:  # no longer configured: its windows are finished, and nothing is opened between them
        edges = {EARLIEST_MS, max(EARLIEST_MS, state.progress.through), LATEST_MS}
        edges |= {edge for window in state.windows.values() for edge in (window.start, window.end)}
        return WindowBounds.from_pairs([*pairwise(sorted(edges))])
    calendar = state.plan.calendar
    admitted = admission.times[admission.admitted]
    pairs = [(start, calendar.end(start)) for start in _steps(calendar, admitted)]
    if state.irregular:
        pinned = [(window.start, window.end) for window in state.windows.values()]
        pinned += [] if state.within is None else [state.within]
        pairs = _shorten_to_fit(pairs, pinned, admitted)
    return WindowBounds.from_pairs(pairs)


def overlapping(state: SketchState, admission: Admission) -> list[tuple[int, int]]:
    """The windows [start, end) that hold admitted times of a chunk, ascending; any number of them may hold one time."""
    windows = {(window.start, window.end) for window in state.windows.values()}
    if state.plan is not None:
        admitted = admission.times[admission.admitted]
        planned = {window for step in _steps(state.plan.calendar, admitted) for window in state.plan.holding(step)}
        if state.opening.created_from != NO_TIME:
            planned = set(_made_from(state.opening.created_from, planned, cut=state.plan.steps == 1))
        windows |= planned
    return sorted(window for window in windows if window[0] <= admission.high and admission.low < window[1])


def _made_from(begins: int, windows: Iterable[tuple[int, int]], *, cut: bool) -> Iterator[tuple[int, int]]:
    """The windows that start then or later; with `cut` also the rest of the window that holds that time."""
    for start, end in windows:
        if start >= begins:
            yield start, end
        elif cut and begins < end:
            yield begins, end


def _steps(calendar: Calendar, times: Ints) -> list[int]:
    """Starts of the calendar's windows that hold these times, ascending."""
    starts = calendar.starts(times)
    begins = np.empty(MANY_WINDOWS, np.int64)
    n = kernels.distinct(starts, begins)
    ascending: list[int] = (np.unique(starts) if n < 0 else np.sort(begins[:n])).tolist()
    return ascending


def _shorten_to_fit(pairs: list[tuple[int, int]], pinned: list[tuple[int, int]], times: Ints) -> list[tuple[int, int]]:
    """Windows of the calendar, shortened so that open windows of another width or zone keep their bounds."""
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
    pieces = sorted(out)
    # only windows that hold a time may be opened; the others would be empty
    starts = np.array([start for start, _ in pieces], np.int64)
    used = np.unique(np.searchsorted(starts, times, side="right") - 1)
    return [pieces[index] for index in used.tolist()]
