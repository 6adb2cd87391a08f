"""Judges moves of a watermark by more than the lateness by their cause: a gap of the stream, or a clock that is ahead.

In: outcomes of chunks, event times. Out: what to log about a move. Touches: nothing.

A quorum moves a watermark in steps of up to `quorum_time`, so with a shorter lateness every step is such a move, and so
is each record of a sparse partition. A move over a gap makes no record late either. What harms is a move ahead of
records that are still to come: then these are late. Only event times are read, nothing in payloads.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sketchstream.stream.state.outcome import Outcome

MIN_LATE_RECORDS = 10
"""Fewest records that a move must make late before it is reported."""
LATE_SHARE = 4
"""At least one record in 4 after the move must be late because of it; fewer are the disorder of the stream."""
REMEMBERED = 1000
"""Number of records after the move that are judged together; older ones count half as much, and so on."""


class Jumps:
    """The last move of one partition's watermark over a gap, and the records that are late because of it.

    Args:
        lateness_ms: how long windows stay open behind the watermark.
        quorum_ms: longest step, ms, in which a quorum moves a watermark.
    """

    def __init__(self, lateness_ms: int, quorum_ms: int) -> None:
        self._lateness_ms, self._quorum_ms = lateness_ms, quorum_ms
        self._move: tuple[int, int] | None = None
        self._records = 0
        self._late = 0
        self._logged = False

    def over_gap(self, moved: tuple[int, int] | None) -> bool:
        """Whether a move is longer than the steps in which a quorum moves a watermark."""
        return moved is not None and moved[1] - moved[0] > self._lateness_ms + self._quorum_ms

    def observe(self, outcome: Outcome, times: npt.NDArray[np.int64]) -> int:
        """Count the records of a chunk that the last move made late.

        Args:
            outcome: outcome of the chunk.
            times: (n,) event times of its records, ms.

        Returns:
            How many records the last move has made late, once, when they have become many; otherwise 0.
        """
        first = 0
        if self.over_gap(outcome.moved):
            self._add(outcome.late_records[outcome.late_records < outcome.moved_at], times)
            self._move, self._records, self._late, self._logged = outcome.moved, 0, 0, False
            first = outcome.moved_at + 1
        if self._move is None:
            return 0
        self._records += outcome.records - first
        self._add(outcome.late_records[outcome.late_records >= first], times)
        if self._logged or self._late < MIN_LATE_RECORDS or LATE_SHARE * self._late < self._records:
            while self._records > REMEMBERED:
                self._records, self._late = self._records // 2, self._late // 2
            return 0
        self._logged = True
        return self._late

    def _add(self, late: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> None:
        """Count the late records that would not have been late without the move."""
        if self._move is None or not late.size:
            return
        before, after = self._move
        self._late += int(np.count_nonzero((times[late] > before - self._lateness_ms) & (times[late] < after)))
