"""Silent partitions: which of them are caught up and have been for long, and how far their watermarks may follow.

In: the partitions of a worker, high watermarks of the whole topic, what others have published. Out: watermarks to move
to. Touches: the source and the publisher, asking.
Source: design.md 7; notes/kafka_faults.md 8.

Silence is measured within one ownership, by positions that equal a fresh high watermark through the whole idle time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sketchstream.stream.ports import Publisher, Source
from sketchstream.stream.slots import Slot
from sketchstream.stream.windows import NO_TIME


class Silence:
    """What is known of the topic's partitions over time.

    Args:
        idle_ms: how long a partition is silent before its watermark moves.
        lateness_ms: of the worker's rules.
    """

    def __init__(self, idle_ms: int, lateness_ms: int) -> None:
        self._idle_ms = idle_ms
        self._idle_s = idle_ms / 1000
        self._lateness_ms = lateness_ms
        self._looked_at = 0.0
        self._marks: dict[int, tuple[int, float]] = {}

    def forget(self, partitions: Collection[int]) -> None:
        """They are not ours any more: their silence begins anew."""
        for partition in partitions:
            self._marks.pop(partition, None)

    def watermarks(
        self, slots: Collection[Slot], source: Source, publisher: Publisher, now: float, now_ms: int
    ) -> Iterator[tuple[Slot, int]]:
        """Silent partitions and where their watermarks may go; looks again after a tenth of the idle time only.

        Args:
            slots: partitions that are ours; their lag is noted.
            source: whose high watermarks are asked for.
            publisher: knows how far other partitions have published.
            now: a clock that never jumps, seconds.
            now_ms: wall clock.
        """
        if now - self._looked_at < min(max(self._idle_s / 10, 0.2), 10.0):
            return
        self._looked_at = now
        if not any(slot.status == "running" for slot in slots):
            return
        silent = self._silent(slots, source, now)
        if not silent:
            return
        everybody = len(self._marks) == source.partition_count() and all(
            now - since >= self._idle_s for _, since in self._marks.values()
        )
        limit = now_ms - self._idle_ms
        through = None if everybody else publisher.frontiers()
        for slot in silent:
            if through is None:
                yield slot, limit
                continue
            others = [
                one.published_through
                for one in through.values()
                if slot.state is not None and one.partition != slot.partition and one.revision == slot.state.revision
            ]
            reached = max(others, default=NO_TIME)
            if reached != NO_TIME:
                # a partition that has published through t had a watermark of t + lateness
                yield slot, min(limit, reached + self._lateness_ms)

    def _silent(self, slots: Collection[Slot], source: Source, now: float) -> list[Slot]:
        """Partitions of ours that were caught up through the whole idle time."""
        marks = source.high_watermarks()
        for partition, end in marks.items():
            if self._marks.get(partition, (-1, 0.0))[0] != end:
                self._marks[partition] = (end, now)
        for gone in self._marks.keys() - marks.keys():
            del self._marks[gone]
        silent = []
        for slot in slots:
            state, mark = slot.state, marks.get(slot.partition)
            slot.lag = None if state is None or mark is None else max(0, mark - state.position)
            caught_up = slot.status == "running" and not slot.throttled and state is not None and mark == state.position
            if not caught_up or state is None or slot.quiet_position != state.position:
                slot.quiet_since = now if caught_up else None
                slot.quiet_position = state.position if state is not None else -1
            elif slot.quiet_since is None:
                slot.quiet_since = now
            elif now - slot.quiet_since >= self._idle_s:
                silent.append(slot)
        return silent
