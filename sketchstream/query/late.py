"""Number of records that came too late for windows of a sketch, from noisy numbers in its newest frontiers.

In: frontiers, the parameter of their noise. Out: a `LateRecords`. Touches: nothing.
Source: docs/streams.md, "Quality"; docs/theory/privacy.md, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sketchstream.components import Noise
from sketchstream.kinds.estimates import Estimate
from sketchstream.kinds.noise_sums import NoiseSum
from sketchstream.privacy.losses.law_names import DISCRETE_LAPLACE
from sketchstream.stream.interfaces import Frontier

ALARM = 1e-3
"""Probability that late records are reported although there are none."""


@dataclass(frozen=True)
class LateRecords:
    """The number of late records of one sketch since its workers first published, over all partitions.

    Args:
        sketch: name of the sketch.
        records: number of late records with its 95% interval.
        shown: whether late records are certain: noise alone exceeds the published number with probability at most
            `ALARM`.
    """

    sketch: str
    records: Estimate
    shown: bool

    def describe(self) -> str:
        """One sentence with the number and advice."""
        low, high = self.records.low, self.records.high
        return (
            f"about {self.records.value:,.0f} records [{low:,.0f}, {high:,.0f}] came too late for their windows so far "
            "and are in none of them; a larger input.lateness waits for such records"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"records": self.records.to_dict(), "shown": self.shown}


def late_records(sketch: str, frontiers: Iterable[Frontier], epsilon: Fraction) -> LateRecords | None:
    """Estimate the number of late records from the newest frontiers of a sketch.

    A changed sketch counts from 0, so only the newest revision is read.

    Args:
        sketch: name of the sketch.
        frontiers: newest frontier of each partition and revision, of any sketches.
        epsilon: epsilon of each draw of noise; 0: the number is not kept.

    Returns:
        None if no frontier has the number.
    """
    own = [frontier for frontier in frontiers if frontier.sketch == sketch]
    newest = max((frontier.revision for frontier in own), default=0)
    counting = [frontier for frontier in own if frontier.revision == newest and frontier.late is not None]
    if not counting or not epsilon:
        return None
    value = sum(frontier.late for frontier in counting if frontier.late is not None)
    noise = NoiseSum.of(Noise(DISCRETE_LAPLACE, epsilon) for frontier in counting for _ in range(frontier.late_draws))
    low, high = noise.ends(0.95)
    estimate, least, most = (max(float(number), 0.0) for number in (value, value + low, value + high))
    records = Estimate(estimate, least, most)
    return LateRecords(sketch, records, value > noise.quantile(ALARM))
