"""For how long records have been waiting to be committed, from what a worker has seen of the end of the log.

In: ends of the log with the times at which they were seen. Out: an age. Touches: nothing.

Timestamps of records may be wrong or years old, so none is used: a record waits from when its place in the log was seen
first. A worker that has just started knows no earlier time than that.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MAX_LOG_ENDS: Final = 4096
"""Most ends that are remembered; then every other one is forgotten, so that some records look younger."""


class LogEnds:
    """The ends of one partition's log, and when each was seen first."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque()

    def note(self, end: int, now: float) -> None:
        """Note the end of the log, the offset after its last record."""
        if self._seen and end < self._seen[-1][0]:  # the log was truncated, or made again
            self._seen.clear()
        if not self._seen or end > self._seen[-1][0]:
            self._seen.append((end, now))
        if len(self._seen) > MAX_LOG_ENDS:
            self._seen = deque(list(self._seen)[1::2])

    def waiting_s(self, committed: int | None, now: float) -> float | None:
        """Age of the oldest record that is not committed, seconds; 0: there is none; None: it is not known."""
        if committed is None or not self._seen:
            return None
        while self._seen and self._seen[0][0] <= committed and len(self._seen) > 1:
            self._seen.popleft()
        end, since = self._seen[0]
        return now - since if end > committed else 0.0
