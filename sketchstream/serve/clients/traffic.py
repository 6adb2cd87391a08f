"""Counts what the service does for its clients: requests by route and status, and how long they took.

In: requests that are done. Out: numbers for `/metrics`. Touches: nothing. Only the thread of the server writes.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from sketchstream.stream.monitoring.histogram import QUICK_S, Histogram

STEPS_S: Final = QUICK_S
"""Upper ends of the histogram's steps, seconds."""


class Traffic:
    """Requests since the start."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """Numbers of requests by route, as the list of routes writes it, and status."""
        self.times = Histogram(STEPS_S)
        """How long the requests took."""
        self.in_progress = 0
        """Requests that have begun and are not done."""

    def done(self, route: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            route: one of the list of routes, or "-".
            status: status of the response.
            seconds: time from the request's headers to the end of the response.
        """
        self.requests[route, status] += 1
        self.times.observe(seconds)
