"""Positions of open windows that are published when they close: which have closed, and what is published of them.

In: event times, watermarks, open windows. Out: late records, entries in the outbox. Touches: the sketches of the
windows it closes positions of.
Source: docs/sealed-topic.md, "Closed positions"; docs/series.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Flags, Ints
from sketchstream.kinds import closing_step
from sketchstream.stream import kernels
from sketchstream.stream.state.outbox import Outbox, entry_of
from sketchstream.stream.state.sketch_state import OpenWindow, SketchState
from sketchstream.stream.state.watermark import Admission
from sketchstream.stream.state.window_cover import WindowBounds
from sketchstream.stream.state.window_specs import WindowSpecs
from sketchstream.stream.windows.calendar import EARLIEST_MS, LATEST_MS, NO_TIME


class ClosedThrough(NamedTuple):
    """The window of the watermark less lateness, and how far positions are closed, all in ms.

    Args:
        start: start of the window.
        end: end of the window.
        through: positions that end by then are closed.
    """

    start: int
    end: int
    through: int


class ClosingPositions:
    """The positions of one partition that are published when they close.

    Args:
        specs: specs of windows that are not open yet.
        lateness_ms: how long positions stay open behind the watermark.
        outbox: where instalments wait for their publication.
    """

    def __init__(self, specs: WindowSpecs, lateness_ms: int, outbox: Outbox) -> None:
        self._specs = specs
        self._lateness_ms = lateness_ms
        self._outbox = outbox

    def step_ms(self, state: SketchState, start: int) -> int | None:
        """Length of a position in the window that begins at `start`; None: its positions close with the window."""
        window = state.windows.get(start)
        if window is not None:
            return closing_step(window.sketch.spec)
        return None if state.plan is None else closing_step(self._specs.at(state.plan, start))

    def closes_at(self, window: tuple[int, int], times: Ints | int, step_ms: int) -> Ints:
        """The watermarks at which the positions close that hold these times of a window [start, end)."""
        start, end = window
        closed: Ints = np.minimum(start + ((times - start) // step_ms + 1) * step_ms, end) + self._lateness_ms
        return closed

    def refuse(
        self,
        admission: Admission,
        places: npt.NDArray[np.int32],
        used: Flags,
        windows: WindowBounds,
        steps_ms: list[int | None],
    ) -> int:
        """Make late the records whose position has closed, because it takes nothing more. Return how many there are.

        Args:
            admission: verdicts on the records of a chunk.
            places: (n,) window of each record; changed for late ones.
            used: (w,) windows that take records; changed for those that take none now.
            windows: bounds of the windows.
            steps_ms: length of a position in each window; None: its positions close with the window.
        """
        n_late = 0
        for index, (window, step_ms) in enumerate(zip(windows.pairs, steps_ms, strict=True)):
            if step_ms is None or not used[index]:
                continue
            placed = np.flatnonzero(places == index)
            late = placed[self.closes_at(window, admission.times[placed], step_ms) <= admission.before[placed]]
            places[late] = kernels.LATE
            n_late += late.size
            used[index] = late.size < placed.size
        return n_late

    def reached(self, state: SketchState, limit: int) -> ClosedThrough | None:
        """How far positions are closed; None if none close.

        A window that began before this partition is opened by records only, and closes no position before that.

        Args:
            state: state of the sketch.
            limit: the watermark less lateness, ms.
        """
        if state.plan is None or state.overlapping or limit < EARLIEST_MS:
            return None
        start, end = state.plan.calendar.window(min(limit, LATEST_MS - 1))
        step_ms = self.step_ms(state, start)
        if step_ms is None:
            return None
        through = start + (limit - start) // step_ms * step_ms
        if start not in state.windows and (state.progress.positions == NO_TIME or start < state.opening.positions_from):
            through = start
        return ClosedThrough(start, end, max(state.progress.through, through))

    def close(self, window: OpenWindow, limit: int) -> bool:
        """Put the positions of one window that end by a time into the outbox; return whether there were any.

        Args:
            window: an open window, of any kind.
            limit: the time, ms.
        """
        sketch = window.sketch
        step_ms = closing_step(sketch.spec)
        if step_ms is None:
            return False
        passed = (limit - window.start) // step_ms if limit < window.end else -(-(window.end - window.start) // step_ms)
        stop = min(passed, sketch.spec.domain.size)
        if stop <= window.closed:
            return False
        instalment = sketch.close_positions(window.closed, stop)
        self._outbox.put(entry_of(instalment, positions=(instalment.first, instalment.stop)))
        window.closed = stop
        return True
