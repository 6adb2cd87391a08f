"""Releases from windows that are still open: when they are due, and what is published.

In: watermarks, open windows, verdicts on the records of a chunk. Out: entries in the outbox. Touches: the sketches of
the windows; entropy when one is released.
Source: docs/streams.md, "Early answers".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from sketchstream import kinds
from sketchstream.kinds.capabilities import Reconstructing
from sketchstream.stream.input.partition_counts import Steps, perform
from sketchstream.stream.interfaces import SealedEntry
from sketchstream.stream.state.outbox import Outbox, entry_of
from sketchstream.stream.state.sketch_state import OpenWindow, SketchState
from sketchstream.stream.state.watermark import Admission
from sketchstream.stream.state.window_cover import covering
from sketchstream.stream.state.work_pace import WorkPace
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream.stream.windows.plans import EarlyAnswers


class EarlyReleases:
    """The early answers of one partition.

    Args:
        lateness_ms: how long windows stay open behind the watermark.
        outbox: where releases wait for their publication.
        pace: decides which releases are long work.
    """

    def __init__(self, lateness_ms: int, outbox: Outbox, pace: WorkPace) -> None:
        self.through = NO_TIME
        """Answers that are due by this time (ms) were released, or will not be."""
        self._lateness_ms = lateness_ms
        self._outbox = outbox
        self._pace = pace

    def due(
        self, state: SketchState, early: EarlyAnswers, admission: Admission
    ) -> list[tuple[int, list[tuple[int, int]]]]:
        """The records of a chunk before which answers are due, with starts of their windows and times, for `emit`."""
        bounds = {(window.start, window.end) for window in state.windows.values()} | {*covering(state, admission).pairs}
        due: dict[int, dict[int, int]] = {}
        for start, end in sorted(bounds):
            for time_ms in early.times((start, end)):
                if self.through < time_ms <= admission.mark:
                    index = int(np.searchsorted(admission.before, time_ms, side="left"))
                    if index < admission.times.size:
                        due.setdefault(index, {})[start] = time_ms  # the last of several that are due at once
        return [(index, sorted(due[index].items())) for index in sorted(due)]

    def passed(self, watermark: int) -> None:
        """Note that all answers that were due by a watermark were released."""
        self.through = max(self.through, watermark)

    def emit(self, states: Iterable[SketchState], watermark: int) -> Steps[bool]:
        """Release the answers whose time the watermark has passed since the last record; return whether any was."""
        released = False
        for state in states:
            early = None if state.plan is None else state.plan.early
            if early is None:
                continue
            for window in sorted(state.windows.values(), key=lambda window: window.start):
                times = early.times((window.start, window.end))
                due = [time_ms for time_ms in times if self.through < time_ms <= watermark]
                if due:
                    released |= yield from self.release(state, early, window.start, due[-1], watermark)
        self.passed(watermark)
        return released

    def release(self, state: SketchState, early: EarlyAnswers, start: int, time_ms: int, watermark: int) -> Steps[bool]:
        """Put a release from an open window into the outbox; return whether there was one.

        There is none if the window is not open, has had all of its answers, or is sealed at this watermark anyway.
        """
        window = state.windows.get(start)
        if window is None or window.early >= early.most or window.end + self._lateness_ms <= watermark:
            return False
        spec = window.sketch.spec
        kind = kinds.kind_of(spec)
        if not isinstance(kind, Reconstructing) or kind.accounting.promise(spec).kind != "histogram":
            return False  # it was opened under another configuration
        window.early, window.dirty = window.early + 1, True
        if window.sketch.origin.partitions:
            window.sketch.origin = replace(window.sketch.origin, partitions=window.counts)
        release = partial(_release, window, early, time_ms)
        self._outbox.put((yield from perform(release, long=self._pace.takes_long(spec))))
        return True


def _release(window: OpenWindow, early: EarlyAnswers, time_ms: int) -> SealedEntry:
    """Release the view of one open window. Touches nothing but its sketch."""
    return entry_of(window.sketch.release(early.epsilon), early=time_ms)
