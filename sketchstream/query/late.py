"""How many records came too late for a window of a sketch, from the noisy numbers in its newest frontiers.

In: frontiers, the parameter of their noise. Out: a `LateRecords`. Touches: nothing.
Source: docs/streams.md, "Quality"; docs/theory/privacy.md, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sketchstream.components import DISCRETE_LAPLACE, Noise
from sketchstream.kinds.profile.estimate.intervals.totals import NoiseSum
from sketchstream.stream.interfaces import Frontier

if TYPE_CHECKING:
    from sketchstream.kinds.profile.estimate.result import Estimate

ALARM = 1e-3
"""Probability that late records are reported although there are none."""


@dataclass(frozen=True)
class LateRecords:
    """The number of late records of one sketch since its workers first published, over all partitions.

    Args:
        sketch: its name.
        records: their number with its 95% interval.
        shown: whether there are any beyond doubt: the published number exceeds what noise alone reaches with
            probability `ALARM`.
    """

    sketch: str
    records: Estimate
    shown: bool

    def describe(self) -> str:
        """One sentence for people, with what to do."""
        low, high = self.records.low, self.records.high
        return (
            f"about {self.records.value:,.0f} records [{low:,.0f}, {high:,.0f}] came too late for their windows so far "
            "and are in none of them; a larger input.lateness waits for such records"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"records": self.records.to_dict(), "shown": self.shown}


def late_records(sketch: str, frontiers: Iterable[Frontier], epsilon: Fraction) -> LateRecords | None:
    """The number of late records that the newest frontiers of a sketch speak of.

    A changed sketch counts from nothing, so that only the newest revision is read.

    Args:
        sketch: its name.
        frontiers: the newest one of each partition and revision, of any sketches.
        epsilon: of each draw of noise; 0: no such number is kept.

    Returns:
        None where no frontier has the number.
    """
    from sketchstream.kinds.profile.estimate.result import Estimate

    own = [one for one in frontiers if one.sketch == sketch]
    newest = max((one.revision for one in own), default=0)
    said = [one for one in own if one.revision == newest and one.late is not None]
    if not said or not epsilon:
        return None
    value = sum(one.late for one in said if one.late is not None)
    noise = NoiseSum.of(Noise(DISCRETE_LAPLACE, epsilon) for one in said for _ in range(one.late_draws))
    low, high = noise.ends(0.95)
    records = Estimate(*(max(float(one), 0.0) for one in (value, value + low, value + high)))
    return LateRecords(sketch, records, value > noise.quantile(ALARM))
