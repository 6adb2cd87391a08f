"""The conditions under which a watermark moves.

In: numbers of a configuration. Out: a `Quorum`. Touches: nothing.
Source: docs/streams.md, "The watermark".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quorum:
    """The conditions under which a watermark moves.

    Args:
        records: number of records that must agree, and of slices of time that their times must fall into.
        time_ms: length of all slices together; a shorter burst does not move the watermark.
        most: number of records that suffices even in fewer slices.
    """

    records: int = 10
    time_ms: int = 150_000
    most: int = 10_000

    @property
    def slice_ms(self) -> int:
        """Width of one slice of time."""
        return max(1, self.time_ms // self.records)


DEFAULT = Quorum()
MAXIMUM = Quorum(records=1, time_ms=1)
"""Every record moves the watermark: the largest min(event time, timestamp) so far."""
