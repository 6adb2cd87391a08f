"""A number over time: its chart, its table, and the windows in which it is largest.

In: a series as the service gives it. Out: a picture, sentences. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
from markupsafe import Markup

from sketchstream import charts, report
from sketchstream.kinds.profile.show import pages
from sketchstream.query.history import start_labels
from sketchstream.query.words import window_label
from sketchstream.serve.page.pictures import Picture

METRICS: Final = {
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
    "coverage": "chance that the next event is of an item already seen",
    "entropy": "entropy of the events over the items (nats)",
    "quantile.0.5": "count that half of the items do not exceed",
    "quantile.0.9": "count that 90% of the items do not exceed",
    "quantile.0.99": "count that 99% of the items do not exceed",
}
"""Numbers that the page offers, in words."""
ORDERS: Final = {"time": "time, oldest first", "newest": "time, newest first", "largest": "largest estimate first"}
SHORT: Final = 14
"""Rows of a table that is not folded."""
Point = Mapping[str, Any]


def metric_words(metric: str) -> str:
    """A number in words, also one that the page does not offer."""
    name, _, key = metric.partition(".")
    families = {"at_least": "items seen {} times or more", "exactly": "items seen exactly {} times"}
    return METRICS.get(metric) or (families[name].format(key) if name in families else metric)


def picture(
    points: Sequence[Point],
    spans: Sequence[tuple[int, int]],
    metric: str,
    timezone: str,
    order: str,
    href: Callable[[tuple[int, int]], str],
) -> Picture:
    """The chart of a series with its table.

    Args:
        points: ascending, one for each window.
        spans: [start, end) of each window, ms since 1970.
        metric: name of the number.
        timezone: of the sketch.
        order: of the table's rows, of `ORDERS`.
        href: the address of a window.
    """
    words = metric_words(metric)
    zone = ZoneInfo(timezone)
    labels = start_labels([datetime.fromtimestamp(start / 1000, zone) for start, _ in spans])
    firm = np.array([bool(one["complete"]) for one in points])
    series = [charts.Series("", *pages.ends(points), firm=firm)]
    caption = "One dot for each window, its 95% interval as a bar; hollow dots are windows that are not complete."
    if len(points) > charts.MANY:
        caption = "A line of estimates with the band of their 95% intervals; gaps are windows without a number."
    drawn = np.isfinite(series[0].value).any()
    narrow, wide = (
        (charts.series_chart(series, labels, words, "", caption, wide=wide) if drawn else None)
        for wide in (False, True)
    )
    rows = [_row(*one, timezone, href) for one in _ordered(points, spans, order)]
    table = report.Table(f"{words}, by window", ("window", words, "95% interval", "window is"), rows)
    return Picture("series", f"{words[0].upper()}{words[1:]}", narrow, table, wide, folded=len(rows) > SHORT)


def largest(points: Sequence[Point], spans: Sequence[tuple[int, int]], metric: str, timezone: str) -> str:
    """Which window has the largest estimate, and which others may have more, in sentences."""
    known = [(one, span) for one, span in zip(points, spans, strict=True) if one["value"] is not None]
    if not known:
        return "No window in this range has this number yet."
    best, span = max(known, key=lambda one: one[0]["value"])
    words = metric_words(metric)
    ends = "" if best["low"] is None else f" (95% interval {_ends(best)})"
    unfinished = "" if best["complete"] else ", a window that is not complete"
    text = f"Most {words}: {window_label(*span, timezone)}, {charts.shown(best['value'])}{ends}{unfinished}."
    if metric in ("mean", "one_hit_ratio", "coverage", "entropy") or metric.startswith("quantile"):
        text = text.replace("Most ", "Largest ", 1)
    if best["low"] is None:
        return text
    close = [
        window_label(*other, timezone)
        for one, other in known
        if one is not best and (one["high"] is None or one["high"] >= best["low"])
    ]
    if not close:
        return f"{text} Its interval lies above those of all other windows."
    few = " and ".join([", ".join(close[:-1]), close[-1]] if len(close) > 1 else close)
    named = few if len(close) <= 4 else f"{len(close)} other windows"
    return f"{text} The intervals of {named} reach into its interval, so the true maximum may be there."


def _ends(one: Point) -> str:
    return (
        f"{charts.shown(one['low'])} or more"
        if one["high"] is None
        else (f"{charts.shown(one['low'])} to {charts.shown(one['high'])}")
    )


def _ordered(
    points: Sequence[Point], spans: Sequence[tuple[int, int]], order: str
) -> list[tuple[Point, tuple[int, int]]]:
    """Windows in the order of a table."""
    found = list(zip(points, spans, strict=True))
    if order == "newest":
        return found[::-1]
    if order == "largest":
        return sorted(found, key=lambda one: -np.inf if one[0]["value"] is None else one[0]["value"], reverse=True)
    return found


def _row(
    one: Point, span: tuple[int, int], timezone: str, href: Callable[[tuple[int, int]], str]
) -> tuple[str, str, str, str]:
    """A window's line of the table."""
    link = Markup('<a href="{}">{}</a>').format(href(span), window_label(*span, timezone))
    said = {
        "ready": "complete" if one["complete"] else "not complete",
        "pending": "being reconstructed",
        "on_request": "not complete",
        "none": "without an answer",
        "incident": "an incident",
    }
    return link, pages.value(one), pages.interval(one), said[one["answer"]]
