"""The quality of a window: which share of the records admitted to it was counted, from published noisy numbers alone.

In: what was published. Out: a verdict, its reason in words, and the share with its interval. Touches: nothing.
Source: docs/theory/privacy.md, section 5 (records admitted; the alarm and its proof).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sketchstream.components import ADMITTED, COUNTED, TOTAL, Counter, find, summed

if TYPE_CHECKING:
    from sketchstream.kinds.profile.estimate.result import Estimate
    from sketchstream.published import Release, SealedState

Verdict = Literal["good", "warning", "incomplete", "too few", "unknown"]
FEW = 4
"""Fewer records than so many times the alarm's threshold are too few to judge."""
Z95 = 1.959963984540054


@dataclass(frozen=True)
class Tolerance:
    """When to speak of a loss.

    Args:
        share: of the admitted records that may be lost without a word.
        alarm: chance of speaking although no more than that was lost.
    """

    share: float
    alarm: float


@dataclass(frozen=True)
class Rule:
    """Two tolerances: beyond the first an answer carries a warning, beyond the second it is not complete."""

    warn: Tolerance = Tolerance(0.005, 1e-3)
    incomplete: Tolerance = Tolerance(0.02, 1e-5)


DEFAULT = Rule()
NEVER = "with unit = 'item' no share of records can be published; the worker's own counts are the check"


@dataclass(frozen=True)
class Quality:
    """What is known of the records that a window counted.

    Args:
        verdict: "good": no loss beyond the tolerance shows; "warning", "incomplete": it does; "too few": so few
            records that only a large loss would show; "unknown": nothing was published to judge by.
        reason: one sentence.
        share: of the admitted records that were counted, with its interval; None if unknown.
        admitted: number of records admitted, with its interval; None if unknown.
    """

    verdict: Verdict
    reason: str
    share: Estimate | None = None
    admitted: Estimate | None = None

    @property
    def said(self) -> bool:
        """Whether answers speak of it: a share is known, or it is known that none can be."""
        return self.share is not None or self.reason == NEVER

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        out: dict[str, Any] = {"verdict": self.verdict, "reason": self.reason}
        if self.share is not None and self.admitted is not None:
            out |= {"share_counted": self.share.to_dict(), "records_admitted": self.admitted.to_dict()}
        return out


def judge(parts: Sequence[Release | SealedState], rule: Rule = Rule()) -> Quality:
    """The quality of a window from its published parts.

    With R records admitted and C events counted, both with noise, a loss beyond the tolerance s shows if
    (1-s) R - C > q, where q is the upper quantile of the noise of R less that of C. While the loss is at most s, the
    chance of that is at most the alarm's.
    """
    if any(part.spec.unit == "item" for part in parts):
        return Quality("unknown", NEVER)
    counters = summed([part.counters for part in parts]) if parts else ()
    admitted = find(counters, ADMITTED)
    apart = any(part.spec.counted for part in parts)
    counted = find(counters, COUNTED if apart else TOTAL)
    if admitted is None or counted is None:
        return Quality("unknown", "the number of records admitted was not kept")
    share, records = _share(counted, admitted), _records(admitted)
    said = f"{share.value:.1%} of about {records.value:,.0f} records were counted"
    for verdict, tolerance in (("incomplete", rule.incomplete), ("warning", rule.warn)):
        if (1.0 - tolerance.share) * admitted.value - counted.value > threshold(admitted, counted, tolerance.alarm):
            reason = f"{said}: more than {tolerance.share * 100:.3g}% lost (false alarm: {tolerance.alarm:g} a window)"
            return Quality(verdict, reason, share, records)  # type: ignore[arg-type]
    if admitted.value < FEW * threshold(admitted, counted, rule.warn.alarm):
        return Quality("too few", f"too few records to judge a loss by ({said})", share, records)
    return Quality("good", said, share, records)


def threshold(admitted: Counter, counted: Counter, alarm: float) -> float:
    """The q of the rule. The noise of R is taken whole, not (1-s) of it, which makes q a little larger."""
    from sketchstream.kinds.profile.estimate.intervals.totals import NoiseSum

    return NoiseSum.of((*admitted.noise, *counted.noise)).quantile(alarm)


def _records(admitted: Counter) -> Estimate:
    from sketchstream.kinds.profile.estimate.intervals.totals import NoiseSum
    from sketchstream.kinds.profile.estimate.result import Estimate

    low, high = NoiseSum.of(admitted.noise).ends(0.95)
    return Estimate(max(admitted.value, 0.0), max(admitted.value + low, 0.0), max(admitted.value + high, 0.0))


def _share(counted: Counter, admitted: Counter) -> Estimate:
    """Counted over admitted, within 0 and 1, by Fieller's interval."""
    from sketchstream.kinds.profile.estimate.intervals.totals import NoiseSum, fieller
    from sketchstream.kinds.profile.estimate.result import Estimate

    noise, other = (NoiseSum.of(one.noise).variance for one in (counted, admitted))
    low, high = fieller(float(counted.value), noise, float(admitted.value), other, Z95)
    value = counted.value / admitted.value if admitted.value > 0 else 0.0
    value, low, high = (min(max(one, 0.0), 1.0) for one in (value, low, high if math.isfinite(high) else 1.0))
    return Estimate(value, min(low, value), max(high, value))
