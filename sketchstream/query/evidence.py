"""Judges a window by published evidence: records that it refused, items that were misplaced, contradicted idleness.

In: the frontiers of all partitions, the judgement of the share counted. Out: the judgement of the window. Touches:
nothing.
Source: docs/streams.md, "Quality"; docs/theory/privacy.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sketchstream.components import Noise
from sketchstream.kinds.estimates import Estimate
from sketchstream.kinds.noise_sums import NoiseSum
from sketchstream.privacy.losses.law_names import DISCRETE_LAPLACE
from sketchstream.quality import Z95, Quality, Rule
from sketchstream.stream.interfaces import Frontier
from sketchstream.stream.published.evidence import EvidenceNoise, PublishedEvidence, WindowNumbers, misplaced_law
from sketchstream.stream.windows.calendar import NO_TIME

Span = tuple[int, int]
OLDER_ALARM = 1e-5
"""Probability that refused records of older windows are reported although there are none."""


@dataclass(frozen=True)
class PartitionEvidence:
    """What the newest frontier of one partition says about a window.

    Args:
        reason: why its numbers are not known; empty if they are.
        noise: noise of the numbers.
        shown: the numbers; None: they were no more than noise, and the window is too old for them to be repeated.
    """

    reason: str = ""
    noise: EvidenceNoise = field(default_factory=EvidenceNoise)
    shown: WindowNumbers | None = None


ByPartition = Mapping[int, PartitionEvidence]


def forgets(newest: PublishedEvidence | None) -> list[bool]:
    """Whether records came for windows that are too old to have numbers, in the evidence and in each former one."""
    return [
        bool(report.noise.refused) and report.older > _laplace(report.noise, report.older_draws).quantile(OLDER_ALARM)
        for report in (() if newest is None else (newest, *newest.former))
    ]


def partition_evidence(frontier: Frontier | None, window: Span) -> PartitionEvidence:
    """The evidence of one partition about a window.

    Args:
        frontier: the newest one of the partition; None: there is none.
        window: [start, end), ms since 1970.
    """
    if frontier is None or frontier.published_through < window[1]:
        return PartitionEvidence("not all partitions have told how many records they refused")
    reports = () if frontier.evidence is None else (frontier.evidence, *frontier.evidence.former)
    for report in reports:
        if window in report.windows:
            return PartitionEvidence("", report.noise, report.windows[window])
    for report, forgot in zip(reports, forgets(frontier.evidence), strict=True):
        if forgot:
            return PartitionEvidence(
                f"about {report.older:,} records came for windows as old as this one, and which is not known"
            )
        if report.since == NO_TIME or window[1] > report.since:
            # A history says of all its windows that no record was refused.
            if report.noise.refused or report.since == NO_TIME:
                return PartitionEvidence("", report.noise)
            break
    return PartitionEvidence("how many records came too late, or were refused, was not published")


def weigh(counted: Quality, evidence: ByPartition, rule: Rule, *, keyed: bool, counts: frozenset[int]) -> Quality:
    """Judge a window by the share of records counted and by the evidence of its partitions.

    A loss shows where a number exceeds what noise explains, over all partitions or in one of them; the probability
    that one is reported without any is at most that of the rule, for each of the two numbers.

    Args:
        counted: judgement of the share counted.
        evidence: what each partition says.
        rule: decides what is reported.
        keyed: whether an item belongs to one partition.
        counts: partitions with a sketch of the window.
    """
    usable = {partition: part for partition, part in evidence.items() if not part.reason}
    refused, late = _estimate_refused(usable, rule, counted)
    misplaced, astray = _estimate_misplaced({p: part for p, part in usable.items() if p in counts}, rule, counted)
    quality = replace(counted, refused=refused, misplaced=misplaced)
    if counted.verdict == "incomplete":
        return quality
    if any(part.shown is not None and part.shown.contradicted for part in usable.values()):
        reason = "records that were written in this window came after a silent partition had been passed over"
        return replace(quality, verdict="incomplete", reason=reason)
    if late:
        assert refused is not None
        reason = f"about {refused.value:,.0f} {_ends(refused)} records came too late for this window or were refused"
        reason += f" (false alarm: {rule.incomplete.alarm:g} a window)"
        return replace(quality, verdict="incomplete", reason=reason)
    if astray:
        assert misplaced is not None
        what = "items" if any(part.noise.cells for part in usable.values()) else "events"
        reason = (
            f"about {misplaced.value:,.0f} {_ends(misplaced)} {what} were in partitions where they do not belong; "
            "check input.partitioner with `sketchstream validate`"
        )
        return replace(quality, verdict="incomplete", reason=reason)
    unknown = next((part.reason for part in evidence.values() if part.reason), None)
    if (
        unknown is None
        and keyed
        and len(evidence) > 1
        and counted.share is None
        and not _tells_misplaced(usable, counts)
    ):
        unknown = "whether items were in the partitions where they belong was not published"
    if unknown is not None:
        return replace(quality, verdict="unknown", reason=unknown)
    if counted.share is not None:
        return quality
    return replace(quality, verdict="good", reason=_none_lost(refused, misplaced))


def _tells_misplaced(evidence: ByPartition, counts: Iterable[int]) -> bool:
    """Whether all partitions that counted publish how much was misplaced, or say that nothing can be misplaced."""
    return all(part.noise.misplaced or part.noise.unkeyed for p, part in evidence.items() if p in counts)


def _none_lost(refused: Estimate | None, misplaced: Estimate | None) -> str:
    """Say that no loss was detected, and how large one may be."""
    reason = "no loss of records shows"
    if refused is None:
        return reason
    most = f"at most {refused.high:,.0f} were refused"
    if misplaced is not None:
        most += f" and {misplaced.high:,.0f} misplaced" if math.isfinite(misplaced.high) else ""
    return f"{reason} ({most})"


def _ends(estimate: Estimate) -> str:
    high = f"{estimate.high:,.0f}" if math.isfinite(estimate.high) else "?"
    return f"[{estimate.low:,.0f}, {high}]"


def _estimate(value: float, low: float, high: float) -> Estimate:
    """A number of records with its interval, none below 0."""
    return Estimate(max(float(value), 0.0), max(float(low), 0.0), max(float(high), 0.0))


def _laplace(noise: EvidenceNoise, draws: int) -> NoiseSum:
    return NoiseSum.of([Noise(DISCRETE_LAPLACE, noise.refused)] * draws)


def _estimate_refused(evidence: ByPartition, rule: Rule, counted: Quality) -> tuple[Estimate | None, bool]:
    """The number of refused records, and whether it is more than is tolerated and noise explains."""
    parts = [(part.noise, part.shown) for part in evidence.values() if part.shown is not None]
    if not parts:
        return None, False
    tolerated = counted.tolerated
    value = sum(shown.refused for _, shown in parts)
    draws = [Noise(DISCRETE_LAPLACE, noise.refused) for noise, shown in parts for _ in range(shown.draws)]
    total = NoiseSum.of(draws)
    low, high = total.ends(0.95)
    alarm = rule.incomplete.alarm / 3.0
    late = value - tolerated > total.quantile(alarm) or any(
        shown.refused - tolerated > _laplace(noise, shown.draws).quantile(alarm / len(parts)) for noise, shown in parts
    )
    return _estimate(value, value + low, value + high), late


def _estimate_misplaced(evidence: ByPartition, rule: Rule, counted: Quality) -> tuple[Estimate | None, bool]:
    """The number of misplaced events or items, and whether it is more than is tolerated and noise explains."""
    parts = [
        (part.noise, part.shown.misplaced)
        for part in evidence.values()
        if part.shown is not None and part.shown.misplaced is not None and part.noise.misplaced
    ]
    laws = {noise for noise, _ in parts}
    if len(laws) != 1:  # partitions in which the configuration changed before this window, and others
        by_law = ({p: part for p, part in evidence.items() if part.noise == law} for law in laws)
        verdicts = [_estimate_misplaced(alike, rule, counted) for alike in by_law]
        return next((verdict for verdict in verdicts if verdict[1]), (None, False))
    noise, values = parts[0][0], [value for _, value in parts]
    alarm = rule.incomplete.alarm / 3.0
    tolerated = counted.tolerated
    astray = _excess(noise, values) - tolerated > _excess_bound(noise, len(values), alarm) or any(
        _excess(noise, [value]) - tolerated > _excess_bound(noise, 1, alarm / len(values)) for value in values
    )
    if not noise.cells:
        low, high = NoiseSum.of([Noise(DISCRETE_LAPLACE, noise.misplaced)] * (2 * len(values))).ends(0.95)
        value = float(sum(values))
        return _estimate(value, value + low, value + high), astray
    excess = _excess(noise, values)
    spread = Z95 * math.sqrt(misplaced_law(noise, len(values))[1]) + 1.0
    ends = (_items(noise, len(values), end) for end in (excess, excess - spread, excess + spread))
    return _estimate(*ends), astray


def _excess(noise: EvidenceNoise, values: Sequence[int]) -> float:
    """The published numbers minus their mean without misplaced items."""
    return sum(values) - misplaced_law(noise, len(values))[0]


def _excess_bound(noise: EvidenceNoise, parts: int, alarm: float) -> float:
    """A bound that the excess of some partitions passes with probability at most `alarm` if nothing is misplaced."""
    laplace = NoiseSum.of([Noise(DISCRETE_LAPLACE, noise.misplaced)] * (parts if noise.cells else 2 * parts))
    if not noise.cells:
        return laplace.quantile(alarm)
    from scipy.stats import binom

    # exact quantiles of the cells and of the noise, each with half of the probability
    cells, share = noise.cells * parts, 1.0 / (1.0 + math.exp(float(noise.misplaced)))
    return float(binom.isf(alarm / 2.0, cells, share)) - cells * share + laplace.quantile(alarm / 2.0)


def _items(noise: EvidenceNoise, parts: int, excess: float) -> float:
    """The number of misplaced items that makes cells exceed their mean by `excess`; each is noted in one partition.

    An item that hashes to its own partition is noted nowhere, so the number is one of `parts` times what is seen.
    """
    cells = noise.cells * parts
    share = 1.0 / (1.0 + math.exp(float(noise.misplaced)))
    seen = max(excess, 0.0) / (cells * (1.0 - 2.0 * share))
    return math.inf if seen >= 1.0 else -cells * math.log1p(-seen) * parts
