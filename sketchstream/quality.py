"""Data quality of a window: the share of its admitted records that was counted, from published noisy numbers alone.

In: published parts. Out: a verdict, its reason in words, and the share with its interval. Touches: nothing.
Source: docs/theory/privacy.md, section 5 (records admitted; the alarm and its proof).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from sketchstream.components import ADMITTED, COUNTED, TOTAL, Counter, find_counter, sum_counters
from sketchstream.kinds.estimates import Estimate
from sketchstream.kinds.noise_sums import NoiseSum, fieller

if TYPE_CHECKING:
    from sketchstream.published import Release, SealedState

Verdict = Literal["good", "warning", "incomplete", "too few", "unknown"]
MIN_WINDOW_ALARMS = 4
"""A window with fewer records than this multiple of the alarm threshold is too small to judge."""
Z95 = 1.959963984540054
"""Standard deviations of a normal law on either side of its mean that hold 95%."""


@dataclass(frozen=True)
class Tolerance:
    """When to report a loss of records.

    Args:
        share: share of the admitted records that may be lost without a report.
        alarm: probability of a false alarm: a report although no larger share was lost.
    """

    share: float
    alarm: float


@dataclass(frozen=True)
class Rule:
    """Rule that says which losses of records are reported.

    Args:
        warn: loss of admitted records beyond which an answer carries a warning.
        incomplete: loss of admitted records beyond which a window is incomplete.
        refused: share of records that came too late, were refused or misplaced, over those admitted, beyond which a
            window is incomplete too; where the number admitted is not published, any such number above the noise.
    """

    warn: Tolerance = Tolerance(0.005, 1e-3)
    incomplete: Tolerance = Tolerance(0.02, 1e-5)
    refused: float = 0.0


DEFAULT = Rule()
REPORTED: Final = ("warning", "incomplete", "unknown")
"""Verdicts whose reasons are part of what is said of a window's completeness."""


@dataclass(frozen=True)
class Quality:
    """How completely a window counted its records.

    Args:
        verdict: "good": no loss beyond the tolerances was detected; "warning" or "incomplete": one was; "too few":
            with so few records only a large loss could be detected; "unknown": the necessary numbers were not
            published.
        reason: one sentence.
        share: share of the admitted records that were counted, with its interval; None if unknown.
        admitted: number of records admitted, with its interval; None if unknown.
        refused: number of records that the window refused (late, future, or of an unreadable time); None if unknown.
        misplaced: number of events (or items) in partitions where they do not belong; None if unknown.
        tolerated: number that may be refused, or misplaced, without a report: the rule's share of the records admitted,
            of which there are more only with a third of the probability of a false alarm.
        unavailable: whether sketches of this unit never publish the share.
    """

    verdict: Verdict
    reason: str
    share: Estimate | None = None
    admitted: Estimate | None = None
    refused: Estimate | None = None
    misplaced: Estimate | None = None
    tolerated: float = 0.0
    unavailable: bool = False

    @property
    def is_mentioned(self) -> bool:
        """Whether answers mention the quality of a single file: its share is known, or is known to be unavailable."""
        return self.share is not None or self.unavailable

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        out: dict[str, Any] = {"verdict": self.verdict, "reason": self.reason}
        if self.share is not None and self.admitted is not None:
            out |= {"share_counted": self.share.to_dict(), "records_admitted": self.admitted.to_dict()}
        if self.refused is not None:
            out["records_refused"] = self.refused.to_dict()
        if self.misplaced is not None:
            out["misplaced"] = self.misplaced.to_dict()
        return out


def judge(parts: Sequence[Release | SealedState], rule: Rule = Rule()) -> Quality:
    """Judge the quality of a window from its published parts.

    Let R be the number of records admitted and C the number of events counted, both noisy. A loss beyond the tolerance
    s is reported if (1-s) R - C > q, where q is the upper quantile of the noise of R minus the noise of C. If the loss
    is at most s, the probability of a report is at most `alarm`.
    """
    if any(part.spec.unit == "item" for part in parts):
        reason = "with unit = 'item' no share of records can be published; the worker's own counts are the check"
        return Quality("unknown", reason, unavailable=True)
    counters = sum_counters([part.counters for part in parts]) if parts else ()
    admitted = find_counter(counters, ADMITTED)
    apart = any(getattr(part.spec, "counted", False) for part in parts)
    counted = find_counter(counters, COUNTED if apart else TOTAL)
    if admitted is None or counted is None:
        return Quality("unknown", "the number of records admitted was not kept")
    share, records = _share(counted, admitted), _records(admitted)
    most = admitted.value + NoiseSum.of(admitted.noise).quantile(rule.incomplete.alarm / 3.0)
    said = f"{share.value:.1%} of about {records.value:,.0f} records were counted"
    quality = Quality("good", said, share, records, tolerated=rule.refused * max(most, 0.0))
    rules: dict[Verdict, Tolerance] = {"incomplete": rule.incomplete, "warning": rule.warn}
    for verdict, tolerance in rules.items():
        if (1.0 - tolerance.share) * admitted.value - counted.value > threshold(admitted, counted, tolerance.alarm):
            reason = f"{said}: more than {tolerance.share * 100:.3g}% lost (false alarm: {tolerance.alarm:g} a window)"
            return replace(quality, verdict=verdict, reason=reason)
    if admitted.value < MIN_WINDOW_ALARMS * threshold(admitted, counted, rule.warn.alarm):
        return replace(quality, verdict="too few", reason=f"too few records to judge a loss by ({said})")
    return quality


def threshold(admitted: Counter, counted: Counter, alarm: float) -> float:
    """The quantile q of `judge`, for the noise of R instead of (1-s) R, which makes q slightly larger."""
    return NoiseSum.of((*admitted.noise, *counted.noise)).quantile(alarm)


def _records(admitted: Counter) -> Estimate:
    low, high = NoiseSum.of(admitted.noise).ends(0.95)
    return Estimate(max(admitted.value, 0.0), max(admitted.value + low, 0.0), max(admitted.value + high, 0.0))


def _share(counted: Counter, admitted: Counter) -> Estimate:
    """Counted over admitted, within 0 and 1, by Fieller's interval."""
    noise, other = (NoiseSum.of(counter.noise).variance for counter in (counted, admitted))
    low, high = fieller(float(counted.value), noise, float(admitted.value), other, Z95)
    value = counted.value / admitted.value if admitted.value > 0 else 0.0
    value, low, high = (min(max(end, 0.0), 1.0) for end in (value, low, high if math.isfinite(high) else 1.0))
    return Estimate(value, min(low, value), max(high, value))
