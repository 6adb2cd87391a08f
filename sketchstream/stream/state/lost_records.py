"""Which windows of a partition lack records: lost before they were read, refused, or found after idleness.

In: the records of a chunk and the verdicts on them. Out: marks on sketch states and their evidence. Touches: these
alone; all of it is a function of the record sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream.stream import kernels
from sketchstream.stream.interfaces import Chunk
from sketchstream.stream.state.sketch_state import SketchState
from sketchstream.stream.state.watermark import Admission
from sketchstream.stream.windows.calendar import EARLIEST_MS, LATEST_MS


class LostRecords:
    """Marks windows that lack records.

    Args:
        sketch_states: state of each sketch, by its name.
        lateness_ms: how long windows stay open behind the watermark.
    """

    def __init__(self, sketch_states: Mapping[str, SketchState], lateness_ms: int) -> None:
        self.missing = False
        """Whether records before the next one are missing, and the watermark has not moved since."""
        self._sketch_states = sketch_states
        self._lateness_ms = lateness_ms

    def begin(self) -> Iterator[SketchState]:
        """Note that the records before the next one are missing; yield the sketches whose mark has changed."""
        self.missing = True
        for state in self._sketch_states.values():
            if state.windows:
                before = state.partial
                state.mark_partial(max(window.end for window in state.windows.values()))
                if state.partial != before:
                    yield state

    def note_moves(
        self, before: int, admission: Admission, stamps: Ints | None, future_after: int, newest: int
    ) -> None:
        """Note whether the watermark has moved in this chunk, after missing records; see `begin`.

        A delayed record can move it where a quorum is one record, but its timestamp says until when records were lost.
        A timestamp beyond `future_after` says nothing: its clock was wrong.

        Args:
            before: watermark before the chunk, ms.
            admission: verdicts on its records.
            stamps: (n,) the records' own timestamps, ms; None: there are none.
            future_after: event times beyond it are refused as future.
            newest: newest event time before the chunk, ms.
        """
        if not self.missing:
            return
        after = np.append(admission.before[1:], admission.mark)
        moved = int(np.argmax(after > before))
        if after[moved] <= before:
            return
        self.missing = False
        read = admission.times[: moved + 1][admission.verdict[: moved + 1] == 0]
        newest = int(read.max(initial=max(newest, int(after[moved]))))
        if stamps is not None and stamps[moved] <= future_after:
            newest = max(newest, int(stamps[moved]))
        for state in self._sketch_states.values():
            if state.plan is not None:
                state.mark_partial(state.plan.last_end(min(newest + self._lateness_ms, LATEST_MS - 1)))

    def refuse(self, chunk: Chunk, verdict: npt.NDArray[np.uint8], newest: int) -> None:
        """Count future records, and those of an unreadable time, for the windows in which they were meant to be.

        A record whose event time cannot be read is counted for the windows that hold its own timestamp; if it has
        none, for those that hold the newest event time. A tombstone is meant for no window.

        Args:
            chunk: the records.
            verdict: (n,) verdict on each.
            newest: newest event time so far, ms.
        """
        lost = verdict == kernels.UNREADABLE
        if chunk.tombstones is not None:
            lost &= ~chunk.tombstones
        future = verdict == kernels.FUTURE
        if not lost.any() and not future.any():
            return
        stamps = chunk.timestamps
        meant = np.full(verdict.size, newest, np.int64)
        if stamps is not None:
            meant = np.where(stamps >= 0, stamps, meant)
        times = np.concatenate([chunk.events.times[future], meant[lost]])
        times = times[(times >= EARLIEST_MS) & (times < LATEST_MS)]
        for state in self._sketch_states.values():
            state.evidence.refuse(times, state.holding(times), state.progress.through)

    def contradict(self, chunk: Chunk, advances: Sequence[tuple[int, int]], idled: Sequence[tuple[int, int]]) -> None:
        """Mark the windows that idleness closed although records were written in them that come only now.

        The records' own timestamps decide, nothing in their payloads.

        Args:
            chunk: the records.
            advances: index of a record, and the watermark to which idleness moved before it.
            idled: stretches of time, ms, that were passed without votes.
        """
        if not idled or chunk.timestamps is None:
            return
        first = max((index for index, _ in advances), default=0)
        stamps = chunk.timestamps[first:]
        for state in self._sketch_states.values():
            state.evidence.contradict(stamps, idled, self._lateness_ms)
