"""Sentences shared by the command line, reports and the service's page.

In: guarantees and windows as plain data. Out: text. Touches: nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, Final
from zoneinfo import ZoneInfo

NO_INTERVALS: Final = "No intervals: partitions were added inside the window, so an item may be counted twice."
INTERVALS: Final = "A 95% interval is made to hold the true number in 19 of 20 cases."
ASKING_IS_FREE: Final = (
    "Reconstructed by sketchstream from what was published; asking again, or otherwise, costs no more privacy."
)
LARGE: Final = 20.0
"""An epsilon beyond this promises nothing that can be put into words."""


def statement(guarantee: Mapping[str, Any] | None) -> list[tuple[str, Sequence[str]]]:
    """The guarantee as titled lists."""
    titles = {
        "Protected": "protects",
        "How much, at most": "seen",
        "Not protected": "not_protected",
        "Assumed": "assumes",
    }
    return [(title, (guarantee or {}).get(name, ())) for title, name in titles.items()]


def promise(guarantee: Mapping[str, Any]) -> str:
    """Guarantee of one unit against readers of publications, in one plain sentence.

    Args:
        guarantee: guarantee in the form of the command line's JSON.
    """
    if guarantee.get("no_privacy"):
        return str(guarantee.get("warning") or "This sketch protects nobody.")
    what = {
        "item": "everything that one item (a user, a device) did in a window",
        "event": "every single event",
        "group": "everything that one group did in a window",
    }.get(str(guarantee["unit"]), f"one {guarantee['unit']}")
    told = str(guarantee["published"])
    number = re.search(r"\d+(?:/\d+|(?:\.\d+)?(?:e[+-]?\d+)?)", told)
    epsilon = math.inf if number is None else float(Fraction(number[0]))
    if epsilon > LARGE:
        return f"Protected is {what}, but readers of what is published can learn almost everything: its loss is {told}."
    delta = float(Fraction(str(guarantee.get("delta") or 0)))
    but = f" at delta {delta:g}" if delta else ""
    return (
        f"Protected is {what}: leaving it out changes the probability of anything shown here by a factor of at most "
        f"{math.exp(epsilon):.3g} (epsilon {number[0] if number else told}{but})."
    )


def window_label(start_ms: int, end_ms: int, timezone: str) -> str:
    """Short name of a window: "July 2013", "2013-07-04", "2013-07-04 13:00 to 14:00".

    Args:
        start_ms: ms since 1970.
        end_ms: ms since 1970; exclusive.
        timezone: timezone of the sketch.
    """
    zone = ZoneInfo(timezone)
    start, end = (datetime.fromtimestamp(at / 1000, zone) for at in (start_ms, end_ms))
    whole = all((when.hour, when.minute, when.second) == (0, 0, 0) for when in (start, end))
    if whole and start.day == end.day == 1:
        if (start.year, start.month) == (end.year - 1, end.month) == (end.year - 1, 1):
            return f"{start:%Y}"
        if end.year * 12 + end.month == start.year * 12 + start.month + 1:
            return f"{start:%B %Y}"
    if whole:
        last = end - timedelta(days=1)
        return f"{start:%Y-%m-%d}" if last.date() <= start.date() else f"{start:%Y-%m-%d} to {last:%Y-%m-%d}"
    finish = f"{end:%H:%M}" if end.date() == start.date() else f"{end:%Y-%m-%d %H:%M}"
    return f"{start:%Y-%m-%d %H:%M} to {finish}"
