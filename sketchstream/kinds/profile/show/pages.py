"""A profile as parts of a page: curves, tables, a headline; and as a card for notebooks.

In: a `Profile`. Out: charts and tables of `sketchstream.charts` and `sketchstream.report`, HTML. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from sketchstream import charts, report
from sketchstream.cards import drawn
from sketchstream.kinds.profile.estimate.result import Estimate, shown

if TYPE_CHECKING:
    from sketchstream.kinds.profile.estimate.result import Profile

LISTED: Final = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
BARS: Final = 12
"""Largest count with a bar of its own."""
SHORTEST: Final = 5
"""The reach is drawn up to this count at least, and up to the last count with `SEEN` items."""
SEEN: Final = 0.5
POINTS: Final = 200


def curves(profile: Profile, intervals: bool = True) -> tuple[charts.Curve, charts.Curve]:
    """The k+ curve up to where nothing more is to be seen, and the numbers of small counts.

    Args:
        profile: what was reconstructed.
        intervals: False: the ends are the values.
    """
    seen = np.flatnonzero(profile.counts[1:] >= SEEN)
    far = min(max(int(seen.max(initial=0)) + 1, SHORTEST), profile.max_count)
    ks = np.unique(np.geomspace(1, far, POINTS).round().astype(np.int64))
    reach = _curve(ks, [(one.value, one.low, one.high) for one in map(profile.at_least, ks.tolist())], intervals)
    ts = np.arange(1, min(BARS, profile.max_count) + 1)
    return reach, _curve(ts, np.column_stack([profile.counts, profile.interval("counts")])[ts], intervals)


def reach_chart(reach: charts.Curve) -> charts.Chart:
    """The k+ curve."""
    return charts.reach_chart(
        reach,
        "At least k times",
        "items counted at least k times",
        "How to read it: above k = 3 stands how many items were counted three times or more.",
    )


def exact_chart(exact: charts.Curve) -> charts.Chart:
    """The numbers of small counts."""
    return charts.exact_chart(
        exact,
        "Exactly k times",
        "items counted exactly k times",
        "How to read it: the bar at k = 3 shows how many items were counted three times, no more, no less.",
    )


def headline(profile: Profile, intervals: bool = True) -> str:
    """The most important numbers in a sentence."""
    distinct = profile.distinct
    ends = f" (95% interval {distinct.low:,.0f} to {distinct.high:,.0f})" if intervals else ""
    again = profile.at_least(2).value if profile.max_count >= 1 else 0.0
    share = f"; {again / distinct.value:.0%} of them more than once" if distinct.value >= 1 else ""
    return f"About {distinct.value:,.0f} distinct items were counted{ends}{share}."


def reach_table(profile: Profile, intervals: bool = True) -> report.Table:
    """k+ numbers with shares."""
    items = profile.distinct.value
    rows = []
    for k in LISTED:
        if k > profile.max_count:
            break
        one = profile.at_least(k)
        share = f"{one.value / items:.1%}" if items > 0 else "-"
        name = "at least once" if k == 1 else f"{k} times or more"
        rows.append((name, f"{one.value:,.0f}", f"{one.low:,.0f} to {one.high:,.0f}" if intervals else "-", share))
        if one.value < SEEN:  # nothing more to see
            break
    return report.Table("Items by how often they were counted", ("counted", "items", "95% interval", "share"), rows)


def other_table(profile: Profile, intervals: bool = True) -> report.Table:
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


TREND: Final = {"distinct": "distinct", "at_least.2": "2 times\nor more", "at_least.10": "10 times\nor more"}
"""Numbers of a trend, and their labels."""


def trend(rows: Sequence[Mapping[str, Estimate | None]], labels: Sequence[str], intervals: bool = True) -> charts.Chart:
    """A few numbers over all windows.

    Args:
        rows: for each window its numbers by name; those of `TREND` are drawn, where every window has them.
        labels: of the windows.
        intervals: False: the ends are the values.
    """
    series = []
    for name, label in TREND.items():
        found = [one for row in rows if (one := row.get(name)) is not None]
        if len(found) == len(rows):
            value, low, high = np.array([(one.value, one.low, one.high) for one in found], np.float64).T
            series.append(charts.Series(label, value, *((low, high) if intervals else (value, value))))
    return charts.series_chart(
        series, labels, "Window by window", "items", "Estimates of each window with their 95% intervals."
    )


def numbers(profile: Profile, names: Sequence[str]) -> dict[str, Estimate | None]:
    """Numbers by name; None for a number of items by count beyond what the profile resolves."""
    found: dict[str, Estimate | None] = {}
    largest = {"at_least": profile.max_count + 1, "exactly": profile.max_count}
    for name in names:
        kind, _, k = name.partition(".")
        beyond = kind in largest and k.isdecimal() and int(k) > largest[kind]
        found[name] = None if beyond else profile.interval(name)
    return found


def card(profile: Profile) -> str:
    """The profile in the output of a notebook's cell: k+ numbers, their curve, one line of guarantee."""
    from sketchstream.privacy.guarantee import summary

    said = profile.guarantee
    note = ""
    if said is not None:
        looked = said["published_and_one_copy"]
        note = summary(said["unit"], said["published"], looked, no_privacy=said["no_privacy"])
    return report.card(
        headline(profile),
        tables=[reach_table(profile)],
        charts=drawn(lambda: [reach_chart(curves(profile)[0])]),
        note=note,
    )


def _curve(k: npt.NDArray[np.int64], rows: npt.ArrayLike, intervals: bool) -> charts.Curve:
    """(n, 3) values, low and high ends as a curve; without intervals the ends are the values."""
    value, low, high = np.asarray(rows, np.float64).T
    return charts.Curve(k, value, low, high) if intervals else charts.Curve(k, value, value, value)
