"""The watermark of a partition: the time that a quorum of its records agrees has been reached.

In: event times and record timestamps, in offset order. Out: verdicts and watermarks. Touches: nothing.
Source: docs/streams.md, "The watermark", which states the rule, its promises and its limits.

Everything here is a function of envelopes. The rule itself is the compiled `admit`; this file keeps its state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Flags, Ints
from sketchstream.stream.interfaces import Plain
from sketchstream.stream.windows.calendar import EARLIEST_MS, LATEST_MS, NO_TIME
from sketchstream.stream.windows.quorum import Quorum

TARGET_TIMES = 34
"""Target times at once: the next multiple of a slice * 2^i after the watermark, i < TARGET_TIMES. At 15 s they span the
years that an event time can have."""

MAX_IDLED = 15
"""Most stretches of time, skipped by idleness, that are remembered so that a later contradiction is noticed."""
_NO_STAMPS: Ints = np.zeros(0, np.int64)


@dataclass(slots=True)
class Admission:
    """The verdicts on n records. `low` and `high` are meaningless if no record was admitted.

    Args:
        times: (n,) int64, event times, ms.
        before: (n,) int64, watermark before each record, ms.
        verdict: (n,) uint8, see `kernels.ADMITTED`.
        late: (n,) bool, set for records that are late for a window of a sketch, when these are assigned to windows.
        low: smallest admitted event time.
        high: largest admitted event time.
        mark: watermark after the last record.
        future: records refused because their event time lies too far beyond the clock.
        unreadable: records without an event time.
        early: admitted records that vouch for more than the lateness beyond the watermark.
        jumps: moves of the watermark by more than the lateness.
        jumped_at: index of the record that made the last one; -1 if there was none.
    """

    times: Ints
    before: Ints
    verdict: npt.NDArray[np.uint8]
    late: Flags
    low: int = LATEST_MS
    high: int = EARLIEST_MS
    mark: int = NO_TIME
    future: int = 0
    unreadable: int = 0
    early: int = 0
    jumps: int = 0
    jumped_at: int = -1

    @property
    def admitted(self) -> Flags:
        """(n,) records that were admitted."""
        from sketchstream.stream import kernels

        admitted: Flags = self.verdict == kernels.ADMITTED
        return admitted

    def between(self, first: int, stop: int) -> Admission | None:
        """Take the records from `first` to before `stop` alone; None if none of them is admitted."""
        from sketchstream.stream import kernels

        if (first, stop) == (0, self.times.size):
            return self
        verdict = np.full_like(self.verdict, kernels.FUTURE)
        verdict[first:stop] = self.verdict[first:stop]
        admitted = self.times[verdict == kernels.ADMITTED]
        if not admitted.size:
            return None
        mark = self.mark if stop == self.times.size else int(self.before[stop])
        return Admission(self.times, self.before, verdict, self.late, int(admitted.min()), int(admitted.max()), mark)


class Watermark:
    """A watermark and the votes for later times.

    Args:
        quorum: the conditions under which it moves.
        lateness_ms: how long windows stay open behind it.
    """

    def __init__(self, quorum: Quorum, lateness_ms: int) -> None:
        from sketchstream.stream import kernels

        self.value = NO_TIME
        self._quorum = quorum
        self.idled: list[tuple[int, int]] = []
        """Stretches [before, after] of time, ms, that were passed without votes; later records may prove them wrong."""
        self._advances: dict[int, int] = {}
        self._top = 0
        self._rule = kernels.WatermarkRule(
            EARLIEST_MS, LATEST_MS, lateness_ms, quorum.slice_ms, quorum.records, quorum.most
        )
        self._votes = kernels.Votes(
            np.zeros(TARGET_TIMES, np.int64), np.zeros(TARGET_TIMES, np.int64), np.zeros(TARGET_TIMES, np.uint64)
        )

    def __repr__(self) -> str:
        """The value and how many targets have votes."""
        return f"<Watermark {self.value}, {self._top} targets with votes>"

    @property
    def _slice(self) -> int:
        """The slice of time that the value falls into."""
        return max(self.value, EARLIEST_MS) // self._quorum.slice_ms

    @property
    def scores(self) -> tuple[int, ...]:
        """Votes of the targets that have any, in eighths, nearest target first."""
        return tuple(self._votes.scores[: self._top].tolist())

    def admit(
        self,
        times: Ints,
        stamps: Ints | None,
        future_after: int = LATEST_MS,
        advances: Sequence[tuple[int, int]] = (),
    ) -> Admission:
        """Judge records in offset order, and move the watermark.

        Args:
            times: (n,) event times, ms.
            stamps: (n,) the records' own timestamps, negative where a record has none; None: the source has none.
            future_after: event times beyond it are refused as future.
            advances: ascending indices of records, and the watermark to advance to before each; n: after the last.
        """
        n = times.size
        out = Admission(times, np.empty(n, np.int64), np.empty(n, np.uint8), np.zeros(n, np.bool_))
        begin = 0
        for index, value in advances:
            self._admit(times, stamps, future_after, begin, index, out)
            self.advance(value)
            begin = index
        self._admit(times, stamps, future_after, begin, n, out)
        out.mark = self.value
        return out

    def _admit(self, times: Ints, stamps: Ints | None, future_after: int, begin: int, end: int, out: Admission) -> None:
        """Judge records `begin` to `end`, between two advances."""
        from sketchstream.stream import kernels

        if begin == end:
            return
        judged = kernels.admit(
            times[begin:end],
            _NO_STAMPS if stamps is None else stamps[begin:end],
            future_after,
            self._rule,
            self.value,
            self._top,
            self._votes,
            out.before[begin:end],
            out.verdict[begin:end],
        )
        self.value, self._top = int(judged.watermark), int(judged.top)
        out.low, out.high = min(out.low, int(judged.low)), max(out.high, int(judged.high))
        out.future += int(judged.future)
        out.unreadable += int(judged.unreadable)
        out.early += int(judged.early)
        out.jumps += int(judged.jumps)
        if judged.jumps:
            out.jumped_at = begin + int(judged.jumped_at)

    def advance(self, value: int) -> bool:
        """Move without votes, for an idle partition; votes for later times stay. True if it moved."""
        if value <= self.value:
            return False
        from sketchstream.stream import kernels

        before, before_slice = self.value, self._slice
        self.value = min(value, LATEST_MS - 1)
        self._top = int(kernels.move(before_slice, self._slice, self._top, self._votes))
        if self.idled and self.idled[-1][1] == before:
            before = self.idled.pop()[0]
        self.idled = [*self.idled[-MAX_IDLED:], (before, self.value)]
        return True

    def advance_at(self, position: int, value: int) -> None:
        """Move without votes later, before the record at a position of the input: see `due`."""
        self._advances[position] = max(value, self._advances.get(position, NO_TIME))

    def due(self, offsets: Ints, next_position: int) -> list[tuple[int, int]]:
        """The advances within a chunk or at its end: the index of the record after each, and its watermark.

        Args:
            offsets: (n,) positions of the records of the chunk, ascending.
            next_position: where the chunk ends.
        """
        due = sorted(position for position in self._advances if position <= next_position)
        return [(int(np.searchsorted(offsets, position)), self._advances.pop(position)) for position in due]

    def forget_votes(self) -> None:
        """Keep only the watermark: the next records do not follow those that were read last."""
        self._advances.clear()
        self._votes.scores[:] = 0
        self._top = 0

    def fields(self) -> dict[str, Plain]:
        """The votes in the form that a snapshot stores."""
        return {
            "slice": self._quorum.slice_ms,
            "scores": self._votes.scores[: self._top].tolist(),
            "lowest": self._votes.lowest[: self._top].tolist(),
            "slices": self._votes.slices[: self._top].tolist(),
        }

    def restore(self, value: int, fields: Mapping[str, Any] | None) -> None:
        """Restore the watermark of a snapshot with its votes, which are dropped if its slices have another width.

        Args:
            value: value of the watermark.
            fields: what `fields` gave; None: the snapshot is older than votes.

        Raises:
            ValueError: the fields do not fit together.
        """
        self.value = value
        self.forget_votes()
        if fields is None or fields["slice"] != self._quorum.slice_ms:
            return
        scores, lowest, slices = fields["scores"], fields["lowest"], fields["slices"]
        top = len(scores)
        falling = all(a >= b for a, b in pairwise(scores)) and min(scores, default=1) > 0
        if not (top == len(lowest) == len(slices) <= TARGET_TIMES and falling):
            raise ValueError("votes of a watermark do not fit together")
        self._top = top
        self._votes.scores[:top] = np.minimum(np.array(scores, np.int64), 8 * self._quorum.most)
        self._votes.lowest[:top] = lowest
        self._votes.slices[:top] = slices
