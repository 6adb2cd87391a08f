"""Idle partitions: how far their watermarks may follow the other partitions, or the clock.

In: high watermarks of the whole topic, clocks, what others have published. Out: watermarks to advance to, each with the
offset from which it is valid. Touches: the source, for queries.
Source: docs/streams.md, "Idle partitions".

Whether a partition is idle depends only on the end of its log, and a watermark is valid from that end on. The speed at
which records are read does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from sketchstream.stream.interfaces import Frontier, Source
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream.stream.worker.assigned_partition import AssignedPartition

LOOK_S = 10.0
"""Longest time between two looks at the ends of the log."""
WAIT_S = 0.2
"""Seconds until the next look while what others have published is being read."""

Frontiers = Mapping[tuple[str, int, int], Frontier]
"""The newest frontiers, by (sketch, revision, partition)."""


class IdlePartitions:
    """The ends of the topic's partitions over time.

    Args:
        idle_ms: how long a partition is silent before its watermark follows the others; None: never, only lags are
            noted.
        idle_topic_ms: how far watermarks stay behind the clock while the whole topic is silent.
        lateness_ms: lateness of the worker's rules.
    """

    def __init__(self, idle_ms: int | None, idle_topic_ms: int, lateness_ms: int) -> None:
        self._idle_ms = idle_ms
        self._idle_topic_ms = idle_topic_ms
        self._lateness_ms = lateness_ms
        self._looked_at = 0.0
        self._woke_at = 0.0
        self._ends: dict[int, tuple[int, float]] = {}

    def watermarks(
        self,
        partitions: Collection[AssignedPartition],
        source: Source,
        published: Callable[[], Frontiers | None],
        now: float,
        now_ms: int,
    ) -> Iterator[tuple[AssignedPartition, int, int]]:
        """The idle partitions, the ends of their logs, and the watermarks that are valid from there on.

        Asks again only after a tenth of the idle time.

        Args:
            partitions: our own; their lag is noted.
            source: is asked for high watermarks.
            published: how far other partitions have published; None while that is being read, which may take long.
            now: a clock that never jumps, seconds.
            now_ms: wall clock.
        """
        idle_s = 10 * LOOK_S if self._idle_ms is None else self._idle_ms / 1000
        every_s = min(max(idle_s / 10, WAIT_S), LOOK_S)
        if now - self._looked_at < every_s:
            return
        self._looked_at = now
        if not partitions:
            return
        self._look(partitions, source, now)
        if self._idle_ms is None:
            return
        numbers = source.numbers()
        silent = {partition for partition, (_, since) in self._ends.items() if now - since >= idle_s}
        ours = [assigned for assigned in partitions if assigned.partition in silent and assigned.status == "running"]
        if silent.issuperset(numbers):
            # when records come again, they may come to one partition before another
            self._woke_at = now
            for assigned in ours:
                yield assigned, self._ends[assigned.partition][0], now_ms - self._idle_topic_ms
            return
        ours = [assigned for assigned in ours if now - self._woke_at >= idle_s]
        if not ours:
            return
        frontiers = published()
        if frontiers is None:
            self._looked_at = now - every_s + WAIT_S
            return
        active = [partition for partition in numbers if partition not in silent]
        for assigned in ours:
            revision = 0 if assigned.state is None else assigned.state.revision
            reached = _lower_median(frontiers, active, revision)
            if reached != NO_TIME:
                # a partition that has published through t had a watermark of t + lateness
                watermark = min(now_ms - self._idle_ms, reached + self._lateness_ms)
                yield assigned, self._ends[assigned.partition][0], watermark

    def _look(self, partitions: Collection[AssignedPartition], source: Source, now: float) -> None:
        """Note the ends of the logs, since when they have not moved, and the lags."""
        ends = source.high_watermarks()
        for partition, end in ends.items():
            if self._ends.get(partition, (-1, 0.0))[0] != end:
                self._ends[partition] = (end, now)
        for gone in self._ends.keys() - ends.keys():
            del self._ends[gone]
        for assigned in partitions:
            assigned.note_end(ends.get(assigned.partition), now)


def _lower_median(frontiers: Frontiers, partitions: list[int], revision: int) -> int:
    """The time through which half of these partitions have published; NO_TIME if nothing is published."""
    reached = dict.fromkeys(partitions, NO_TIME)
    for frontier in frontiers.values():
        if frontier.revision == revision and frontier.partition in reached:
            reached[frontier.partition] = max(reached[frontier.partition], frontier.published_through)
    return sorted(reached.values())[(len(reached) - 1) // 2]
