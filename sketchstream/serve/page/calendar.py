"""The windows of a sketch as calendars: a cell for each shows its completeness by sign, color and text.

In: windows as the service describes them. Out: tables for the templates. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from sketchstream.query.words import window_label
from sketchstream.stream.windows.calendar import DAY_MS, HOUR_MS

SIGNS: Final = (
    ("complete", "✓", "complete, its numbers are there"),
    ("pending", "…", "complete, its numbers are being reconstructed"),
    ("unknown", "?", "not known to be complete: the window says why"),
    ("incomplete", "◐", "not complete: the window says why"),
    ("incident", "!", "an incident, or no answer: the window says why"),
)
"""For each state of a window: its name, its sign, and what that means."""


@dataclass(frozen=True)
class Cell:
    """A window in a calendar."""

    state: str
    sign: str
    text: str
    href: str


@dataclass(frozen=True)
class CalendarRow:
    """A line of a calendar: cells by column, None where no window is."""

    name: str
    cells: Sequence[Cell | None]


@dataclass(frozen=True)
class CalendarTable:
    """A table of windows."""

    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[CalendarRow]


def state_of_window(described: Mapping[str, Any]) -> str:
    """Which of `SIGNS` a window has.

    Args:
        described: a window as the service's list of windows describes it.
    """
    if described["answer"] in ("incident", "none"):
        return "incident"
    if described["answer"] == "pending":
        return "pending"
    return {True: "complete", None: "unknown"}.get(described.get("complete", False), "incomplete")


def calendars(
    windows: Sequence[tuple[Mapping[str, Any], tuple[int, int]]], timezone: str, href: Callable[[tuple[int, int]], str]
) -> list[CalendarTable]:
    """Calendars of these windows: years by months, months by days, or days by hours.

    Args:
        windows: windows as the service describes them, and [start, end) in ms since 1970; in any order.
        timezone: time zone of the sketch.
        href: the address of a window.
    """
    if not windows:
        return []
    zone = ZoneInfo(timezone)
    shortest = min(end - start for _, (start, end) in windows)
    if shortest >= 28 * DAY_MS:
        place, columns, corner, caption = _by_year, [f"{month:02d}" for month in range(1, 13)], "year", "Months"
    elif shortest >= DAY_MS:
        place, columns, corner, caption = _by_month, [f"{day}" for day in range(1, 32)], "month", "Days"
    elif shortest >= HOUR_MS:
        place, columns, corner, caption = _by_day, [f"{hour:02d}" for hour in range(24)], "day", "Hours"
    else:
        steps = max(1, HOUR_MS // shortest)
        columns = [f":{60 * at // steps:02d}" for at in range(steps)]

        def place(when: datetime) -> tuple[str, int]:
            return f"{when:%Y-%m-%d %H}h", (when.minute * 60 + when.second) * 1000 // (HOUR_MS // steps)

        corner, caption = "hour", "Parts of hours"
    rows: dict[str, list[Cell | None]] = {}
    for described, window in sorted(windows, key=lambda pair: pair[1]):
        name, at = place(datetime.fromtimestamp(window[0] / 1000, zone))
        completeness = state_of_window(described)
        sign = next(sign for known, sign, _ in SIGNS if known == completeness)
        text = f"{window_label(*window, timezone)}: {described['status']}"
        row = rows.setdefault(name, [None] * len(columns))
        row[min(at, len(columns) - 1)] = Cell(completeness, sign, text, href(window))
    found_rows = [CalendarRow(name, cells) for name, cells in sorted(rows.items(), reverse=True)]
    return [CalendarTable(f"{caption}, times of {timezone}", corner, columns, found_rows)]


def _by_year(when: datetime) -> tuple[str, int]:
    return f"{when:%Y}", when.month - 1


def _by_month(when: datetime) -> tuple[str, int]:
    return f"{when:%Y-%m}", when.day - 1


def _by_day(when: datetime) -> tuple[str, int]:
    return f"{when:%Y-%m-%d}", when.hour
