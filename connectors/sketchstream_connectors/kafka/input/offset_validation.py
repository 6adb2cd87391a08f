"""Decides whether an OffsetOutOfRange error is real or comes from a lagging replica.

In: positions, the leader's own bounds, times. Out: verdicts. Touches: nothing.
Source: docs/kafka.md, "Every case" (a lagging replica answers as if the log had been truncated).

A replica that has just restarted reports that a position does not exist until it has caught up, and a client with stale
metadata may ask it. The bounds of the leader therefore decide, and an end below the position is believed only after a
while.
"""

from __future__ import annotations

from dataclasses import dataclass

ASK_EVERY_S = 0.5
"""Seconds between two questions about a position that a broker says does not exist."""
REFETCHES = 3
"""Times that a batch with a wrong checksum is fetched again, from another replica perhaps."""


@dataclass
class _Hold:
    """A doubted position: since when, and when to ask the leader again (never, once it has confirmed the position)."""

    since: float
    offset: int
    again_at: float = 0.0


@dataclass(frozen=True)
class PositionVerdict:
    """The verdict on a position.

    Args:
        exists: whether reading may continue from this position.
        text: if not, what happened to the position.
        resume_at: if not, where reading could continue; None if that is unknown.
    """

    exists: bool
    text: str = ""
    resume_at: int | None = None


class DoubtedPositions:
    """Partitions that are held back because their position is in doubt."""

    def __init__(self) -> None:
        self._in_doubt: dict[int, _Hold] = {}
        self._refetched: dict[int, tuple[int, int]] = {}

    def hold(self, partition: int, offset: int, now: float) -> None:
        """Doubt a position that does not exist according to a broker; keep the time of an earlier doubt."""
        self._in_doubt.setdefault(partition, _Hold(now, offset))

    def is_held(self, partition: int) -> bool:
        """Whether a partition is held back now."""
        hold = self._in_doubt.get(partition)
        return hold is not None and hold.again_at != float("inf")

    def due(self, now: float) -> list[int]:
        """Partitions for which the leader is to be asked again."""
        return [partition for partition, hold in self._in_doubt.items() if hold.again_at <= now]

    def note_question(self, partition: int, now: float) -> int | None:
        """Note that the leader is asked now; return the position in doubt, None if there is none any more."""
        hold = self._in_doubt.get(partition)
        if hold is None:
            return None
        hold.again_at = now + ASK_EVERY_S
        return hold.offset

    def judge(
        self, partition: int, first: int | None, last: int | None, now: float, patience_s: float
    ) -> PositionVerdict | None:
        """Judge the position in doubt by the leader's bounds; None: the leader is asked again.

        Args:
            partition: partition that is held back.
            first: where its log begins; None if the leader did not answer.
            last: where it ends.
            now: seconds.
            patience_s: how long to wait for a position beyond the end.
        """
        hold = self._in_doubt[partition]
        if first is not None and hold.offset < first:
            del self._in_doubt[partition]
            text = f"position {hold.offset} was trimmed (retention or DeleteRecords): the log begins at {first}"
            return PositionVerdict(False, text, first)
        if last is not None and now - hold.since > patience_s:
            del self._in_doubt[partition]
            text = f"position {hold.offset} does not exist (the log ends at {last}): the log was truncated"
            return PositionVerdict(False, text, last if last < hold.offset else None)
        if first is not None and last is not None and hold.offset <= last:
            hold.again_at = float("inf")  # how long it was in doubt is remembered until a chunk comes
            return PositionVerdict(True)
        return None

    def refetch(self, partition: int, position: int) -> int | None:
        """Count a failure to read the batch at this position; return the number of the next attempt, None: no more."""
        at, times = self._refetched.get(partition, (position, 0))
        times = times + 1 if at == position else 1
        if times > REFETCHES:
            del self._refetched[partition]
            return None
        self._refetched[partition] = (position, times)
        return times

    def clear_doubt(self, partition: int) -> None:
        """Clear the doubt about a partition: a chunk came, or it was sought or taken away."""
        self._in_doubt.pop(partition, None)

    def clear_doubts(self) -> None:
        """Clear all doubts for a new consumer, which seeks every position; failures to read batches are kept."""
        self._in_doubt.clear()

    def clear(self) -> None:
        """Clear everything, because the topic is a different one."""
        self._in_doubt.clear()
        self._refetched.clear()
