"""Counts what the service does for its clients: requests by route and status, and how long they took.

In: requests that are done. Out: numbers for `/metrics`. Touches: nothing. Only the thread of the server writes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final

STEPS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Upper ends of the histogram's steps, seconds."""


class Traffic:
    """Requests since the start."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By route, as it is written in the list of routes, and status."""
        self.steps = [0] * (len(STEPS_S) + 1)
        """By how long they took: numbers in each step, the last one without an end."""
        self.seconds = 0.0
        """That all took together."""
        self.in_progress = 0
        """Requests that have begun and are not done."""

    def done(self, route: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            route: of the list of routes, or "-".
            status: of the response.
            seconds: from the request's headers to the end of the response.
        """
        self.requests[route, status] += 1
        self.steps[bisect_left(STEPS_S, seconds)] += 1
        self.seconds += seconds
