"""Sentences shared by the command line, reports and the service's page.

In: guarantees and windows as plain data. Out: text. Touches: nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, Final
from zoneinfo import ZoneInfo

from sketchstream.privacy.losses.loss_numbers import rounded_up
from sketchstream.texts.naming import USUAL, Names

NO_INTERVALS: Final = "No intervals: partitions were added inside the window, so an item may be counted twice."
INTERVALS: Final = "A 95% interval is made to hold the true number in 19 of 20 cases."
ASKING_IS_FREE: Final = (
    "Reconstructed by sketchstream from what was published; asking again, or otherwise, costs no more privacy."
)
LEDGER_COLUMNS: Final = {
    "sketch": "name in the configuration; revision: raised by `sketchstream reset`",
    "unit": "what is protected, and what the losses are those of",
    "windows": "how many were published; partitions: in how many partitions of the input",
    "one window": "most that the unit loses to one window (epsilon)",
    "all windows": "most that it loses to all of them: an event lies in one window, an item may lie in each",
}
"""What the columns of a deployment's ledger mean."""
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


def warnings_of(guarantee: Mapping[str, Any] | None) -> list[str]:
    """The warning of a guarantee, if it has one."""
    warning = (guarantee or {}).get("warning")
    return [str(warning)] if warning else []


def promise(guarantee: Mapping[str, Any], say: Names = USUAL) -> str:
    """Guarantee of one unit against readers of publications, in one plain sentence.

    Args:
        guarantee: guarantee in the form of the command line's JSON.
        say: names of items and events.
    """
    warning = guarantee.get("warning")
    if guarantee.get("no_privacy"):
        return str(warning or "This sketch protects nobody.")
    also = f" {warning}." if warning else ""
    what = {
        "item": say(f"everything that one item {'(a user, a device) ' if say == USUAL else ''}did in a window"),
        "event": say("every single event"),
        "group": "everything that one group did in a window",
    }.get(str(guarantee["unit"]), f"one {guarantee['unit']}")
    promised, loss = str(guarantee["published"]), guarantee["losses"]["published"]
    text = str(loss.get("pure", loss.get("epsilon")))
    epsilon = math.inf if text in ("None", "unlimited") else float(Fraction(text))
    if epsilon > LARGE:
        text = f"Protected is {what}, but readers of what is published can learn almost everything: "
        return f"{text}its loss is {promised}.{also}"
    delta = float(Fraction(str(guarantee.get("delta") or 0)))
    more = f", and by at most {delta:g} beyond that" if delta else ""
    number = text if "pure" in loss else rounded_up(epsilon)
    return (
        f"Protected is {what}: leaving it out changes the probability of anything shown here by a factor of at most "
        f"{rounded_up(math.exp(epsilon), 3)}{more} (epsilon {number}{f', delta {delta:g}' if delta else ''}).{also}"
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


def tell_unfinished(facts: Mapping[str, Any]) -> list[str]:
    """The sentence about a window that is not complete, or not known to be; empty for others.

    Args:
        facts: about the window, `SealedWindow.fields`.
    """
    if facts.get("complete", True) is True:
        return []
    if facts.get("preliminary"):
        return [f"This answer is preliminary, as of {facts['as_of']}: its window is not sealed yet."]
    if (facts.get("partitions") or {}).get("missing"):
        return ["Not all partitions of this window are published yet: the numbers will grow."]
    quality = facts.get("quality") or {}
    if quality.get("verdict") in ("incomplete", "unknown"):
        state = "not complete" if quality["verdict"] == "incomplete" else "not known to be complete"
        return [f"This window is {state}: {quality['reason']}."]
    if facts.get("repartitioned"):
        return ["This window is not complete: partitions were added inside it, and items may be counted twice."]
    return ["This window is not complete: records may be missing from it, or have been lost since."]
