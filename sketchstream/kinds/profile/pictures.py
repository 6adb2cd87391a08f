"""A profile as parts of a page (curves, tables, a headline) and as a card for notebooks.

In: plain data with the keys of the command line's JSON, or a `Profile`. Out: charts and tables of
`sketchstream.pictures`, HTML, a figure. Touches: nothing. Reports, notebooks and the service's page share them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.presentation import Presentation
from sketchstream.kinds.profile.estimate.intervals.wrapping import bound_kind, mark_bound
from sketchstream.kinds.profile_answers import has_number
from sketchstream.pictures import charts, report
from sketchstream.pictures.numbers import Number, Panel, draw_chart, ends, interval, spelling, value
from sketchstream.privacy.deployments.guarantee import summary
from sketchstream.texts import naming
from sketchstream.texts.naming import USUAL, Names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sketchstream.kinds.estimates import Bound
    from sketchstream.kinds.profile_answers import Profile


LISTED_COUNTS: Final = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
WHOLE: Final = spelling("at_least")
BARS: Final = 12
"""Largest count with a bar of its own."""
MIN_REACH_DRAWN: Final = 5
"""The reach is drawn up to this count at least, and up to the last count with `MIN_ITEMS_DRAWN` items."""
MIN_ITEMS_DRAWN: Final = 0.5
POINTS: Final = 200
OFFERED: Final = {
    "distinct": "distinct items",
    "exactly.1": "items seen only once",
    "exactly.2": "items seen exactly twice",
    "at_least.2": "items seen 2 times or more",
    "at_least.3": "items seen 3 times or more",
    "at_least.5": "items seen 5 times or more",
    "at_least.10": "items seen 10 times or more",
    "at_least.30": "items seen 30 times or more",
    "at_least.100": "items seen 100 times or more",
    "total": "events",
    "mean": "events for each item, on average",
    "one_hit_ratio": "share of items with one event only",
    "coverage": "chance that the next event is of an already seen item",
    "entropy": "entropy of the events over the items (nats)",
    "quantile.0.5": "count that half of the items do not exceed",
    "quantile.0.9": "count that 90% of the items do not exceed",
    "quantile.0.99": "count that 99% of the items do not exceed",
}
"""Numbers that are worth following over time, in words."""


def find(data: Mapping[str, Any], name: str) -> Number | None:
    """Find a number of a profile by its name in `Profile.interval`; None if the data do not have it.

    Args:
        data: profile as plain data, with the keys of the command line's JSON.
        name: name of the number, such as "distinct", "at_least.3", "exactly.1" or "quantile.0.9".
    """
    group, dot, key = name.partition(".")
    if not dot:
        number = data.get(name)
        return number if isinstance(number, dict) and "value" in number else None
    entry: Number | None = data.get("quantiles" if group == "quantile" else group, {}).get(key)
    return entry


def title(name: str, say: Names = USUAL) -> str:
    """Title of any number, offered or not."""
    family, _, key = name.partition(".")
    families = {"at_least": "items seen {} times or more", "exactly": "items seen exactly {} times"}
    usual = OFFERED.get(name) or (families[family].format(key) if family in families else "")
    return say(usual) or name


def title_of(spec: Any, name: str, say: Names) -> str:
    """Title of a number of a sketch: of counts modulo p, some are bounds.

    Args:
        spec: None: it is not known.
        name: name of the number.
        say: names of items.
    """
    return mark_bound(title(name, say), None if spec is None else bound_of(spec, name))


def bound_of(spec: Any, name: str) -> Bound | None:
    """What counts modulo p make of a number of every profile of a sketch; None: an estimate."""
    return None if spec.modulus is None else bound_kind(name, counted=bool(spec.total_share))


def numbers(answer: Mapping[str, Any]) -> dict[str, str]:
    """See `sketchstream.kinds.presentation.Presentation`: the same for every profile up to the same `max_count`."""
    say, largest = naming.names_in(answer), answer.get("max_count", math.inf)
    return {name: say(text) for name, text in OFFERED.items() if has_number(name, largest)}


def number(answer: Mapping[str, Any], name: str) -> tuple[str, Number] | None:
    """See `sketchstream.kinds.presentation.Presentation`."""
    data = find(answer, name)
    if data is None:
        return None
    known = "wrapping" in answer and "bound" in data
    words = title(name, naming.names_in(answer))
    return mark_bound(words, bound_kind(name, counted=False) if known else None), data


def pictures(answer: Mapping[str, Any]) -> list[Panel]:
    """The k+ curve and the numbers of small counts."""
    chart = draw_chart(lambda: exact_chart(curves(answer)[1], naming.names_in(answer)))
    return [*main(answer), Panel("exact", "Exactly k times (the profile)", chart, exact_table(answer))]


def main(answer: Mapping[str, Any]) -> list[Panel]:
    """Chart of the k+ curve."""
    chart = draw_chart(lambda: reach_chart(curves(answer)[0], naming.names_in(answer)))
    return [Panel("reach", "At least k times (k+ reach)", chart, reach_table(answer))]


def curves(data: Mapping[str, Any], truth: Floats | None = None) -> tuple[charts.CountsCurve, charts.CountsCurve]:
    """The k+ curve up to the last visible count, and the numbers of small counts.

    Args:
        data: profile as plain data, with the keys of the command line's JSON.
        truth: true numbers of items at counts 0, 1, .., if they are known.
    """
    counts, reach = np.array(data["counts"], np.float64), data["at_least"]
    seen = np.flatnonzero(counts[1:] >= MIN_ITEMS_DRAWN)
    far = min(max(int(seen.max(initial=0)) + 1, MIN_REACH_DRAWN), data["max_count"])
    known = np.array([int(k) for k in reach], np.int64)
    spaced = np.geomspace(1, max(far, 1), POINTS).round().astype(np.int64)
    ks = known[known <= far] if far <= POINTS // 4 else np.intersect1d(spaced, known)
    ts = np.arange(1, min(BARS, data["max_count"]) + 1)
    many = charts.CountsCurve(ks, *ends([reach[str(k)] for k in ks]))
    few = charts.CountsCurve(ts, *ends([data["exactly"][str(t)] for t in ts]))
    if truth is None:
        return many, few
    real = np.append(truth, np.zeros(data["max_count"]))
    return replace(many, truth=np.cumsum(real[::-1])[::-1][ks]), replace(few, truth=real[ts])


def reach_chart(reach: charts.CountsCurve, say: Names = USUAL) -> charts.Chart:
    """Chart of the k+ curve."""
    return charts.reach_chart(
        reach,
        "At least k times",
        say("items counted at least k times"),
        say("How to read it: above k = 3 stands how many items were counted three times or more."),
    )


def exact_chart(exact: charts.CountsCurve, say: Names = USUAL) -> charts.Chart:
    """The numbers of small counts."""
    return charts.exact_chart(
        exact,
        "Exactly k times",
        say("items counted exactly k times"),
        say("How to read it: the bar at k = 3 shows how many items were counted three times, no more, no less."),
    )


def headline(data: Mapping[str, Any]) -> str:
    """The most important numbers in a sentence."""
    distinct = data["distinct"]
    low, high = distinct["low"], distinct["high"]
    last = "or more" if high is None else f"to {high:,.0f}"
    ends = "" if low is None else f" (95% interval {low:,.0f} {last})"
    again = find(data, "at_least.2")
    share, at_least = "", "At least" if distinct.get("bound") == "lower" else "About"
    if again is not None and again["value"] is not None and distinct["value"] >= 1:
        share = f"; {again['value'] / distinct['value']:.0%} of them more than once"
    counted = naming.names_in(data)("distinct items were counted")
    return f"{at_least} {distinct['value']:,.0f} {counted}{ends}{share}."


def reach_table(data: Mapping[str, Any]) -> report.ReportTable:
    """k+ numbers with shares."""
    items = data["distinct"]["value"]
    rows = []
    for k in LISTED_COUNTS:
        if k > data["max_count"]:
            break
        number = data["at_least"][str(k)]
        share = f"{number['value'] / items:.1%}" if items > 0 else "-"
        name = "at least once" if k == 1 else f"{k} times or more"
        rows.append((mark_bound(name, number.get("bound")), value(number, WHOLE), interval(number, WHOLE), share))
        if number["value"] < MIN_ITEMS_DRAWN:  # nothing visible beyond
            break
    say = naming.names_in(data)
    columns = ("counted", say("items"), "95% interval", "share")
    return report.ReportTable(say("Items by how often they were counted"), columns, rows)


def exact_table(data: Mapping[str, Any]) -> report.ReportTable:
    """Numbers of items with small counts."""
    rows = []
    for k in range(1, min(BARS, data["max_count"]) + 1):
        number = data["exactly"][str(k)]
        name = "once" if k == 1 else f"{k} times"
        rows.append((mark_bound(name, number.get("bound")), value(number, WHOLE), interval(number, WHOLE)))
    say = naming.names_in(data)
    return report.ReportTable(
        say("Items by their exact count"), ("counted exactly", say("items"), "95% interval"), rows
    )


def tables(data: Mapping[str, Any]) -> list[report.ReportTable]:
    """Table of the numbers other than k+ numbers."""
    rows = []
    say = naming.names_in(data)
    titles = {
        **{name: OFFERED[name] for name in ("total", "mean", "one_hit_ratio", "coverage", "entropy")},
        "quantile.0.5": "half of the items have at most so many events",
        "quantile.0.9": "90% of the items have at most so many",
        "quantile.0.99": "99% of the items have at most so many",
        "above": f"share of items with more than {data['max_count']:,}",
    }
    for name, title in titles.items():
        number: Mapping[str, Any] | None = find(data, name)
        unseen = name == "above" and data["max_count"] + 1 >= data.get("wrapping", {}).get("modulus", math.inf)
        if number is not None and number["value"] is not None and not unseen:
            spell = spelling(name)
            rows.append((mark_bound(say(title), number.get("bound")), value(number, spell), interval(number, spell)))
    return [report.ReportTable("What follows from it", ("number", "estimate", "95% interval"), rows)]


def card(profile: Profile) -> str:
    """The profile in the output of a notebook's cell: k+ numbers, their curve, one line of guarantee."""
    data, said = {**profile.to_dict(), **profile.names.facts()}, profile.guarantee
    note = "" if said is None else summary(said)
    return report.card(
        headline(data),
        tables=[reach_table(data)],
        charts=[draw_chart(lambda: reach_chart(curves(data)[0], profile.names))],
        note=note if profile.facts.wrapping is None else f"{note} {_sentence(profile.facts.wrapping.said)}",
    )


def _sentence(text: str) -> str:
    """A clause as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def figure(profile: Profile, truth: Floats | None = None) -> Figure:
    """Items counted exactly (left) and at least (right) k times, with 95% intervals; see `curves`."""
    drawing = charts.notebook_figure(11.0, 4.5)
    charts.draw_panels(drawing, profile.heading(), *curves(profile.to_dict(), truth))
    return drawing


PRESENTATION: Final = Presentation(
    purpose="Counts how many items (users, devices) occurred how often",
    headline=headline,
    numbers=numbers,
    number=number,
    pictures=pictures,
    main_pictures=main,
    tables=tables,
    title_of=title_of,
    bound_of=bound_of,
)
