"""A histogram of durations with fixed steps, as Prometheus reads it.

In: seconds. Out: cumulative counts by upper end. Touches: nothing.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from typing import Any, Final

QUICK_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Upper ends, in seconds, of the steps of a histogram of work that takes milliseconds to minutes."""
SLOW_S: Final = (1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0)
"""Upper ends, in seconds, of the steps of a histogram of delays from a second to a day."""


class Histogram:
    """Durations since the start. One thread writes, any may read.

    Args:
        ends: upper ends of the steps, ascending, seconds; a further step has no end.
    """

    def __init__(self, ends: tuple[float, ...] = QUICK_S) -> None:
        self.ends = ends
        self.steps = [0] * (len(ends) + 1)
        """Number of durations in each step."""
        self.sum = 0.0
        """Sum of all durations, seconds."""

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self.steps[bisect_left(self.ends, seconds)] += 1
        self.sum += seconds

    @property
    def count(self) -> int:
        """How many durations there were."""
        return sum(self.steps)

    def family(self, name: str, text: str) -> Any:
        """The histogram as a metric family of prometheus-client."""
        from prometheus_client.core import HistogramMetricFamily

        ends = [*map(str, self.ends), "+Inf"]
        family = HistogramMetricFamily(name, text)
        family.add_metric([], list(zip(ends, itertools.accumulate(self.steps), strict=True)), self.sum)
        return family
