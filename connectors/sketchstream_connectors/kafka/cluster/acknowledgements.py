"""Waits for the acknowledgement of records that were sent, as long as there is any.

In: futures of a producer, sizes. Out: offsets. Touches: nothing else; it waits.

Behind a slow link, large snapshots and publications would never meet a deadline for all of their records. So the
deadline moves with each acknowledgement. The client gives up a record that waits in it for longer than its
`delivery.timeout.ms`, and its memory has no limit of its own; so little is handed to it at a time.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

STALLED_S = 20.0
"""Seconds without any acknowledgement after which records are given up, however many are still to be sent."""
UNACKNOWLEDGED_BYTES = 8 << 20
"""Bytes of records that are sent before the first of them is acknowledged."""


class Acknowledgements:
    """The records that one step sends: a slow broker has time, one that does not answer has not."""

    def __init__(self) -> None:
        self._until = 0.0
        self._waiting: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self.restart()

    def restart(self) -> None:
        """Begin to wait anew."""
        self._until = time.monotonic() + STALLED_S

    @property
    def left_s(self) -> float:
        """Seconds until the deadline, at least one millisecond."""
        return max(0.001, self._until - time.monotonic())

    def make_room(self, n_bytes: int) -> None:
        """Wait until `n_bytes` more may be sent."""
        while self._waiting and self._bytes + n_bytes > UNACKNOWLEDGED_BYTES:
            self._wait_for_first()

    def add(self, future: Any, n_bytes: int) -> None:
        """Note a record that was handed to the producer."""
        self._waiting.append((future, n_bytes))
        self._bytes += n_bytes

    def wait_for_all(self) -> None:
        """Wait for every record that was sent."""
        while self._waiting:
            self._wait_for_first()

    def _wait_for_first(self) -> None:
        """Wait for the record that was sent first."""
        future, n_bytes = self._waiting.popleft()
        self._bytes -= n_bytes
        self.wait_for_offset(future)

    def wait_for_offset(self, future: Any) -> int:
        """Offset of a record once it is acknowledged."""
        offset = int(future.get(timeout=self.left_s).offset)
        self.restart()
        return offset
