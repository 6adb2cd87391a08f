"""A number over time: its chart, its table, and the windows in which it is largest.

In: a series as the service gives it. Out: a picture, sentences. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
from markupsafe import Markup

from sketchstream.kinds import presentation
from sketchstream.kinds.estimates import bound_text
from sketchstream.pictures.numbers import Panel, Spell, interval, value
from sketchstream.query.differences import subtract
from sketchstream.query.window_sequence import start_labels
from sketchstream.query.words import window_label
from sketchstream.texts.number_texts import interval_text, number_text

ORDERS: Final = {"time": "time, oldest first", "newest": "time, newest first", "largest": "largest estimate first"}
Point = Mapping[str, Any]


def picture(
    points: Sequence[Point],
    spans: Sequence[tuple[int, int]],
    title: str,
    timezone: str,
    order: str,
    href: Callable[[tuple[int, int]], str],
    spell: Spell = number_text,
) -> Panel:
    """The chart of a series with its table.

    Args:
        points: ascending, one for each window.
        spans: [start, end) of each window, ms since 1970.
        title: title of the number, in words.
        timezone: time zone of the sketch.
        order: order of the table's rows, one of `ORDERS`.
        href: the address of a window.
        spell: writes a number.
    """
    zone = ZoneInfo(timezone)
    labels = start_labels([datetime.fromtimestamp(start / 1000, zone) for start, _ in spans])
    panel = presentation.over_time(
        "series", title, points, labels, [bool(point["complete"]) for point in points], spell
    )
    rows = [_row(*window, timezone, href, spell) for window in _order_windows(points, spans, order)]
    return replace(panel, table=replace(panel.table, rows=rows))


def largest(
    points: Sequence[Point],
    spans: Sequence[tuple[int, int]],
    title: str,
    timezone: str,
    *,
    counts: bool = True,
    independent: bool = True,
    spell: Spell = number_text,
) -> str:
    """Which window has the largest estimate, and which others may have more, in sentences.

    Args:
        points: see `picture`.
        spans: see `picture`.
        title: title of the number, in words.
        timezone: time zone of the sketch.
        counts: whether the number is a count, so that its largest value is the "most".
        independent: whether the noises of all windows are.
        spell: writes a number.
    """
    with_value = [(point, span) for point, span in zip(points, spans, strict=True) if point["value"] is not None]
    if not with_value:
        return "No window in this range has this number yet."
    best, span = max(with_value, key=lambda point: point[0]["value"])
    ends = ""
    if best["low"] is not None or best["high"] is not None:
        around = interval_text(best["low"], best["high"], spell)
        ends = f" (95% interval {around}{bound_text(best.get('bound'), ', ')})"
    unfinished = "" if best["complete"] else ", a window that is not complete"
    adjective = "Most" if counts else "Largest"
    text = f"{adjective} {title}: {window_label(*span, timezone)}, {spell(best['value'])}{ends}{unfinished}."
    if best["low"] is None:
        return text
    others = [(point, window) for point, window in with_value if point is not best]
    close = [window_label(*window, timezone) for point, window in others if _may_be_larger(point, best, independent)]
    if not close:
        return f"{text} All other windows have less: no 95% interval of a difference holds 0." if others else text
    few = " and ".join([", ".join(close[:-1]), close[-1]] if len(close) > 1 else close)
    named = few if len(close) <= 4 else f"{len(close)} other windows"
    why = "the 95% interval of the difference holds 0" if independent else "its interval reaches into this one"
    if len(close) > 1:
        why = "the 95% intervals of the differences hold 0" if independent else "their intervals reach into this one"
    return f"{text} {named} may have more: {why}."


def _may_be_larger(point: Point, best: Point, independent: bool) -> bool:
    """Whether the data allow that a window has more than the one with the largest estimate."""
    if not independent:
        return point["high"] is None or bool(point["high"] >= best["low"])
    first, second = ((window["value"], window["low"], window["high"]) for window in (best, point))
    low = subtract(first, second)[1]
    return low is None or low <= 0


def _order_windows(
    points: Sequence[Point], spans: Sequence[tuple[int, int]], order: str
) -> list[tuple[Point, tuple[int, int]]]:
    """Windows in the order of a table."""
    windows = list(zip(points, spans, strict=True))
    if order == "largest":
        values = [-np.inf if point["value"] is None else point["value"] for point in points]
        return [windows[at] for at in sorted(range(len(windows)), key=values.__getitem__, reverse=True)]
    return windows[::-1] if order == "newest" else windows


def _row(
    point: Point, span: tuple[int, int], timezone: str, href: Callable[[tuple[int, int]], str], spell: Spell
) -> tuple[str, str, str, str]:
    """A window's line of the table."""
    link = Markup('<a href="{}">{}</a>').format(href(span), window_label(*span, timezone))
    states = {
        "ready": {True: "complete", None: "not known to be complete"}.get(point["complete"], "not complete"),
        "pending": "being reconstructed",
        "on_request": "not complete",
        "none": "without an answer",
        "incident": "an incident",
    }
    around = interval(point, spell) + bound_text(point.get("bound"), ", ")
    return link, value(point, spell), around, states[point["answer"]]
