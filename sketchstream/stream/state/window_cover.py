"""The windows of one sketch that the admitted records of a chunk fall into.

In: admitted event times, open windows, the plan of the sketch. Out: starts and ends. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from sketchstream import kinds
from sketchstream.items.events import Events
from sketchstream.kinds.interface import Spec
from sketchstream.stream.state.outcome import Ints, Mask
from sketchstream.stream.state.sketch_state import Track
from sketchstream.stream.windows.windows import EARLIEST_MS, LATEST_MS, NO_TIME, Calendar

MANY_WINDOWS = 64
"""Windows of one chunk beyond which they are found by sorting."""


@dataclass
class Admitted:
    """A chunk whose records are admitted, but not yet assigned to windows.

    Args:
        events: of its records.
        times: (n,) event times, ms.
        before: (n,) watermark before each record, ms.
        verdict: (n,) of `Watermark.admit`.
        low: earliest admitted time.
        high: latest admitted time.
        mark: watermark after the chunk.
        late: (n,) set for records that are late for a sketch.
        good: (u,) occurrences that are valid in admitted records; None: all are.
    """

    events: Events
    times: Ints
    before: Ints
    verdict: npt.NDArray[np.uint8]
    low: int
    high: int
    mark: int
    late: Mask
    good: Mask | None = field(init=False)
    _events: dict[tuple[bytes, tuple[tuple[str, str], ...], tuple[int, int] | None], Events] = field(
        init=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        events = self.events
        admitted = self.verdict == 0
        good = events.valid & (admitted if events.record is None else admitted[events.record])
        self.good = None if good.all() else good

    def between(self, first: int, stop: int) -> Admitted | None:
        """The chunk with the records from `first` to before `stop` alone; None if none of them is admitted."""
        from sketchstream.stream import kernels

        if (first, stop) == (0, self.times.size):
            return self
        verdict = np.full_like(self.verdict, kernels.FUTURE)
        verdict[first:stop] = self.verdict[first:stop]
        admitted = self.times[verdict == kernels.ADMITTED]
        if not admitted.size:
            return None
        mark = self.mark if stop == self.times.size else int(self.before[stop])
        low, high = int(admitted.min()), int(admitted.max())
        part = Admitted(self.events, self.times, self.before, verdict, low, high, mark, self.late)
        part._events = self._events
        return part

    def counted(self, spec: Spec, fields: Mapping[str, str], window: tuple[int, int]) -> Events:
        """The events of the chunk for a sketch of this spec; computed once for all windows, unless its kind needs them.

        Args:
            spec: of the sketch.
            fields: role -> field of the record, as `SketchPlan.fields`.
            window: [start, end) of the sketch, ms.
        """
        depends = kinds.of(spec).intake.stretch_ms(spec) is not None
        name = (spec.fingerprint, tuple(fields.items()), window if depends else None)
        if name not in self._events:
            columns = {role: self.events.columns[field] for role, field in fields.items()}
            given = replace(self.events, columns=columns, window=window)
            self._events[name] = kinds.of(spec).intake.events(spec, given)
        return self._events[name]


def covering(track: Track, chunk: Admitted) -> tuple[Ints, Ints]:
    """(w,) starts and (w,) ends of ascending, disjoint windows that cover the admitted times of a chunk."""
    last = track.last
    if last is not None and last.start <= chunk.low and chunk.high < last.end:
        return np.array([last.start], np.int64), np.array([last.end], np.int64)
    if track.plan is None:  # the sketch is no longer configured: its windows are finished, no new ones made
        return _with_fillers(sorted((window.start, window.end) for window in track.windows.values()), track.through)
    from sketchstream.stream import kernels  # numba is loaded with the first record

    calendar = track.plan.calendar
    admitted = chunk.times[chunk.verdict == kernels.ADMITTED]
    pairs = [(start, calendar.end(start)) for start in _steps(calendar, admitted)]
    if track.irregular:
        pinned = [(one.start, one.end) for one in track.windows.values()]
        pinned += [] if track.within is None else [track.within]
        pairs = _fitted(pairs, pinned, admitted)
    return np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)


def overlapping(track: Track, chunk: Admitted) -> list[tuple[int, int]]:
    """The windows [start, end) that hold admitted times of a chunk, ascending; any number of them may hold one time."""
    found = {(window.start, window.end) for window in track.windows.values()}
    if track.plan is not None:
        from sketchstream.stream import kernels

        admitted = chunk.times[chunk.verdict == kernels.ADMITTED]
        made = {window for step in _steps(track.plan.calendar, admitted) for window in track.plan.holding(step)}
        if track.begins != NO_TIME:
            made = set(_made_from(track.begins, made, cut=track.plan.steps == 1))
        found |= made
    return sorted(window for window in found if window[0] <= chunk.high and chunk.low < window[1])


def _made_from(begins: int, windows: Iterable[tuple[int, int]], *, cut: bool) -> Iterator[tuple[int, int]]:
    """The windows that start then or later; with `cut` also the rest of the window that holds that time."""
    for start, end in windows:
        if start >= begins:
            yield start, end
        elif cut and begins < end:
            yield begins, end


def _steps(calendar: Calendar, times: Ints) -> list[int]:
    """Starts of the calendar's windows that hold these times, ascending."""
    from sketchstream.stream import kernels

    starts = calendar.starts(times)
    begins = np.empty(MANY_WINDOWS, np.int64)
    n = kernels.distinct(starts, begins)
    found: list[int] = (np.unique(starts) if n < 0 else np.sort(begins[:n])).tolist()
    return found


def _with_fillers(pairs: Sequence[tuple[int, int]], through: int) -> tuple[Ints, Ints]:
    """Open windows of a removed sketch, with fillers around them, for which nothing is opened; `through`: sealed."""
    edges = sorted({EARLIEST_MS, max(EARLIEST_MS, through), LATEST_MS, *(edge for pair in pairs for edge in pair)})
    return np.array(edges[:-1], np.int64), np.array(edges[1:], np.int64)


def _fitted(pairs: list[tuple[int, int]], pinned: list[tuple[int, int]], times: Ints) -> list[tuple[int, int]]:
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
