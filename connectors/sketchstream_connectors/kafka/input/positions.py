"""The read position of each partition: an offset and its leader epoch, which always change together.

In: offsets and leader epochs, as they are read, restored and sought. Out: positions. Touches: nothing.
Source: KIP-320. An offset paired with the epoch of an earlier offset looks as if the log had been truncated between the
two. After a restore this could happen: the epoch of the new offset is known before the consumer seeks to it, and the
client may still seek to the old offset again.
"""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = -1


@dataclass(frozen=True)
class Position:
    """The offset of the next record, and the leader epoch of the batch before it; -1 if unknown."""

    offset: int
    epoch: int = UNKNOWN


class Positions:
    """The positions of our partitions. Any thread may call `expect`, `epoch` and `all`."""

    def __init__(self) -> None:
        self._at: dict[int, Position] = {}
        self._expected: dict[int, int] = {}

    def at(self, partition: int) -> Position | None:
        """The position of a partition; None before its first seek."""
        return self._at.get(partition)

    def all(self) -> dict[int, Position]:
        """A copy."""
        return self._at.copy()

    def read(self, partition: int, offset: int, epoch: int) -> Position:
        """Note that records before `offset` were read; the epoch is that of their last batch."""
        position = self._at[partition] = Position(offset, epoch)
        return position

    def expect(self, partition: int, epoch: int) -> None:
        """Note the epoch of the offset that will be sought next; the present epoch does not change."""
        self._expected[partition] = epoch

    def seek(self, partition: int, offset: int) -> Position:
        """Seek to `offset`, with the expected epoch, or else with the present one, unless that may be older."""
        before, epoch = self._at.get(partition), self._expected.pop(partition, None)
        if epoch is None:
            epoch = before.epoch if before is not None and offset <= before.offset else UNKNOWN
        return self.read(partition, offset, epoch)

    def epoch(self, partition: int) -> int:
        """The epoch to commit with an offset: the expected one before its seek, else that of the last batch read."""
        expected = self._expected.get(partition)
        if expected is not None:
            return expected
        position = self._at.get(partition)
        return UNKNOWN if position is None else position.epoch

    def forget(self, partition: int) -> None:
        """Forget a partition that was taken away: its next offset comes from the store."""
        self._at.pop(partition, None)

    def clear(self) -> None:
        """Forget all partitions."""
        self._at.clear()

    def forget_epochs(self) -> None:
        """Forget the epochs, because the topic is a different one."""
        self._expected.clear()
        self._at = {partition: Position(position.offset) for partition, position in self._at.items()}
