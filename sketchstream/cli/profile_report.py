"""A profile as a report: the numbers, two charts, and what is guaranteed.

In: a profile, what is known of its window. Out: one HTML page. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream import charts, report
from sketchstream.cli import results, show
from sketchstream.estimate.result import shown

if TYPE_CHECKING:
    from sketchstream.estimate.result import Profile

LISTED: Final = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
BARS: Final = 12
"""Largest count with a bar of its own."""
SHORTEST: Final = 5
"""The reach is drawn up to this count at least, and up to the last count with `SEEN` items."""
SEEN: Final = 0.5
POINTS: Final = 200


def page(profile: Profile, source: str, facts: Mapping[str, Any] | None = None) -> str:
    """The report.

    Args:
        profile: what was reconstructed.
        source: where it comes from, in a word or two.
        facts: of its window, if it has one.
    """
    known = dict(facts or {})
    intervals = not known.get("repartitioned", False)
    seen = np.flatnonzero(profile.counts[1:] >= SEEN)
    far = min(max(int(seen.max(initial=0)) + 1, SHORTEST), profile.max_count)
    ks = np.unique(np.geomspace(1, far, POINTS).round().astype(np.int64))
    reach = _curve(ks, [(one.value, one.low, one.high) for one in map(profile.at_least, ks.tolist())], intervals)
    ts = np.arange(1, min(BARS, profile.max_count) + 1)
    exact = _curve(ts, np.column_stack([profile.counts, profile.interval("counts")])[ts], intervals)
    sections = [
        report.Section(
            "The numbers",
            (
                "Shares are shares of the distinct items. "
                + (
                    f"A 95% interval is made to hold the true number in 19 of 20 cases. It covers {profile.covers}."
                    if intervals
                    else results.NO_INTERVALS
                ),
            ),
            tables=[_reach_table(profile, intervals), _other_table(profile, intervals)],
        ),
        report.Section(
            "How often items were counted",
            charts=[
                charts.reach_chart(
                    reach,
                    "At least k times",
                    "items counted at least k times",
                    "How to read it: above k = 3 stands how many items were counted three times or more.",
                ),
                charts.exact_chart(
                    exact,
                    "Exactly k times",
                    "items counted exactly k times",
                    "How to read it: the bar at k = 3 shows how many items were counted three times, no more, no less.",
                ),
            ],
        ),
        report.Section("What is guaranteed", lists=results.statement(profile.guarantee)),
        report.Section("Where it comes from", tables=[_origin_table(profile, source, known)]),
    ]
    guarantee = profile.guarantee or {}
    alarms = [str(guarantee["warning"])] if guarantee.get("warning") else []
    if not known.get("complete", True):
        alarms.append("Not all partitions of this window are published yet: the numbers will grow.")
    return report.page(
        f"How often items occurred: {source}",
        (_headline(profile, intervals),),
        sections,
        "Reconstructed by sketchstream from what was published; asking again, or otherwise, costs no more privacy.",
        " ".join(alarms),
    )


def _curve(k: npt.NDArray[np.int64], rows: npt.ArrayLike, intervals: bool) -> charts.Curve:
    """(n, 3) values, low and high ends as a curve; without intervals the ends are the values."""
    value, low, high = np.asarray(rows, np.float64).T
    return charts.Curve(k, value, low, high) if intervals else charts.Curve(k, value, value, value)


def _headline(profile: Profile, intervals: bool) -> str:
    """The most important numbers in a sentence."""
    distinct = profile.distinct
    ends = f" (95% interval {show.interval(distinct.low, distinct.high)})" if intervals else ""
    again = profile.at_least(2).value if profile.max_count >= 1 else 0.0
    share = f"; {again / distinct.value:.0%} of them more than once" if distinct.value >= 1 else ""
    return f"About {distinct.value:,.0f} distinct items were counted{ends}{share}."


def _reach_table(profile: Profile, intervals: bool) -> report.Table:
    """k+ numbers with shares."""
    items = profile.distinct.value
    rows = []
    for k in LISTED:
        if k > profile.max_count:
            break
        one = profile.at_least(k)
        share = f"{one.value / items:.1%}" if items > 0 else "-"
        name = "at least once" if k == 1 else f"{k} times or more"
        rows.append((name, show.number(round(one.value)), _ends(round(one.low), round(one.high), intervals), share))
        if one.value < SEEN:  # nothing more to see
            break
    return report.Table("Items by how often they were counted", ("counted", "items", "95% interval", "share"), rows)


def _other_table(profile: Profile, intervals: bool) -> report.Table:
    """Everything that is not a k+ number."""
    titles = {
        "total": "events",
        "mean": "events for each item, on average",
        "one_hit_ratio": "share of items with one event only",
        "coverage": "chance that the next event is of an item already seen",
        "entropy": "entropy of the events over the items (nats)",
        "quantile.0.5": "half of the items have at most so many events",
        "quantile.0.9": "90% of the items have at most so many",
        "quantile.0.99": "99% of the items have at most so many",
        "above": f"share of items with more than {profile.max_count:,}",
    }
    rows = []
    for name, title in titles.items():
        one = profile.interval(name)
        rows.append((title, shown(one.value), f"{shown(one.low)} to {shown(one.high)}" if intervals else "-"))
    return report.Table("What follows from it", ("number", "estimate", "95% interval"), rows)


def _ends(low: float, high: float, intervals: bool) -> str:
    return show.interval(low, high) if intervals else "-"


def _origin_table(profile: Profile, source: str, known: Mapping[str, Any]) -> report.Table:
    """What was published, and how it was read."""
    facts = profile.facts
    rows = [
        ("source", source),
        *show.flatten(known),
        ("domain", f"{'open' if facts.open_domain else 'closed'}, {facts.d:,} slots"),
        ("protected unit", f"one {facts.unit}"),
        ("epsilon of the counters", facts.epsilon),
        ("epsilon of the publication", facts.cost or "none of its own"),
        ("published", f"{facts.form}, {len(facts.layers)} noise layer{'s' if len(facts.layers) > 1 else ''}"),
        ("estimator", facts.method),
        ("largest count that is resolved", f"{profile.max_count:,}"),
    ]
    return report.Table("Facts", ("what", "value"), rows)
