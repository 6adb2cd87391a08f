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
REFETCHES = 3
"""Times that a batch with a wrong checksum is fetched again, from another replica perhaps."""


@dataclass
class _Hold:
    """A position in doubt: since when, and when the leader is asked again (never, once it said that it exists)."""

    since: float
    offset: int
    again_at: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """What is true of a position.

    Args:
        exists: it may be read from.
        text: otherwise: what happened to it.
        resume_at: otherwise: where reading could go on; None where nobody can say.
    """

    exists: bool
    text: str = ""
    resume_at: int | None = None


class Doubts:
    """Partitions that are held back because their position is in doubt."""

    def __init__(self) -> None:
        self._held: dict[int, _Hold] = {}
        self._refetched: dict[int, tuple[int, int]] = {}

    def hold(self, partition: int, offset: int, now: float) -> None:
        """A broker says that this position does not exist; if it is in doubt already, it is so since then."""
        self._held.setdefault(partition, _Hold(now, offset))

    def waits(self, partition: int) -> bool:
        """Whether a partition is held back now."""
        hold = self._held.get(partition)
        return hold is not None and hold.again_at != float("inf")

    def due(self, now: float) -> list[int]:
        """Partitions of which the leader is to be asked again."""
        return [partition for partition, hold in self._held.items() if hold.again_at <= now]

    def asked(self, partition: int, now: float) -> int | None:
        """The leader is asked now: the position in question; None where there is none any more."""
        hold = self._held.get(partition)
        if hold is None:
            return None
        hold.again_at = now + ASK_EVERY_S
        return hold.offset

    def judge(
        self, partition: int, first: int | None, last: int | None, now: float, patience_s: float
    ) -> Verdict | None:
        """What the leader's bounds say of the position in question; None: it is asked again.

        Args:
            partition: that is held back.
            first: where its log begins; None where the leader did not say.
            last: where it ends.
            now: seconds.
            patience_s: how long a position beyond the end is waited for.
        """
        hold = self._held[partition]
        if first is not None and hold.offset < first:
            del self._held[partition]
            text = f"position {hold.offset} was trimmed (retention or DeleteRecords): the log begins at {first}"
            return Verdict(False, text, first)
        if last is not None and now - hold.since > patience_s:
            del self._held[partition]
            text = f"position {hold.offset} does not exist (the log ends at {last}): the log was truncated"
            return Verdict(False, text, last if last < hold.offset else None)
        if first is not None and last is not None and hold.offset <= last:
            hold.again_at = float("inf")  # how long it was in doubt is remembered until a chunk comes
            return Verdict(True)
        return None

    def refetch(self, partition: int, position: int) -> int | None:
        """A batch at this position cannot be read: the how-many-th attempt is next; None: there were enough."""
        at, times = self._refetched.get(partition, (position, 0))
        times = times + 1 if at == position else 1
        if times > REFETCHES:
            del self._refetched[partition]
            return None
        self._refetched[partition] = (position, times)
        return times

    def settled(self, partition: int) -> None:
        """A chunk came, or the partition was sought or taken away: nothing of it is in doubt."""
        self._held.pop(partition, None)

    def let_go(self) -> None:
        """Another consumer: every position is sought anew. Batches that could not be read are remembered."""
        self._held.clear()

    def clear(self) -> None:
        """Another topic: nothing of any partition is in doubt."""
        self._held.clear()
        self._refetched.clear()
