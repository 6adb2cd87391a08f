"""Charts with their tables, for any numbers with intervals on pages, in reports and notebooks.

In: numbers with names, as plain data. Out: pictures, cells of tables. Touches: nothing.

The charts are drawn here and not in the browser: pages without JavaScript have them, reports and notebooks
have the same ones, and no library has to be vendored. The page's script only shows the text of their points.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.errors import MissingExtraError
from sketchstream.pictures import charts, report
from sketchstream.texts.number_texts import interval_text, number_text, speller

MAX_BARS: Final = 40
"""Most numbers that are drawn as bars; more of them are drawn as a line with its band."""
MAX_ROWS: Final = 1000
"""Most rows of a table of a page; downloads have all."""
MAX_UNFOLDED_ROWS: Final = 14
"""Most rows of a table that is not folded."""
MAX_SINGLE_NUMBERS: Final = 120
"""Most ordered numbers of which each can be seen; a longer stretch is divided into parts."""
PARTS: Final = 8
"""Number of parts into which a stretch is divided."""
STRETCHES: Final = 8
"""Most stretches of a picture that are kept, as drawn."""
COUNTS: Final = ("distinct", "at_least", "exactly", "total")
"""Numbers of profiles that count things: they are shown without digits after the point."""
SHARES: Final = ("one_hit_ratio", "coverage", "above")
"""Numbers of profiles that are shares: they are shown in per cent."""
Spell = Callable[[float], str]
"""Writes a number as text."""
Number = Mapping[str, float | None]
"""A value, and the ends of its interval: both None where intervals do not hold, an end None where there is none."""


@dataclass(frozen=True)
class Stretches:
    """The ordered numbers of a picture that has too many of them to show each; parts of the sequence are pictures too.

    Args:
        names: names of n numbers.
        draw: draws those from one place up to, and without, another.
    """

    names: Sequence[str]
    draw: Callable[[int, int], Panel]

    def within(self, first: int, last: int) -> list[tuple[str, int, int]]:
        """Names and places of the parts of a stretch; empty if each number of it can be seen."""
        if last - first <= MAX_SINGLE_NUMBERS:
            return []
        cuts = np.linspace(first, last, PARTS + 1).astype(int).tolist()
        return [(self.label(*ends), *ends) for ends in pairwise(cuts)]

    def label(self, first: int, last: int) -> str:
        """The names at the ends of a stretch."""
        return f"{self.names[first]} to {self.names[last - 1]}"


@dataclass(frozen=True)
class Panel:
    """A chart with its table.

    Args:
        name: name in addresses.
        title: title above the chart.
        chart: chart for all screens, or for narrow ones if there is a wide one. None: only the table.
        table: table of the same numbers.
        wide: chart for wide screens; None: the same chart.
        folded: whether the table is folded.
        note: text below the chart.
        downloads: name and address of each file with the chart or its numbers.
        stretches: stretches that are pictures too; None without any.
        closer: name and address of each stretch that a page offers.
    """

    name: str
    title: str
    chart: charts.Chart | None
    table: report.ReportTable
    wide: charts.Chart | None = None
    folded: bool = False
    note: str = ""
    downloads: Sequence[tuple[str, str]] = ()
    stretches: Stretches | None = None
    closer: Sequence[tuple[str, str]] = ()

    def noted(self, text: str) -> Panel:
        """Add a sentence before the note."""
        return replace(self, note=f"{text} {self.note}".strip()) if text else self


def index_of(name: str, what: str, places: Sequence[int]) -> int | None:
    """Index of a number that is named WHAT.PLACE; None for other names.

    Args:
        places: places of the numbers, ascending.
    """
    prefix, _, place = name.partition(".")
    if prefix != what or not place.isdecimal():
        return None
    at = bisect_left(places, int(place))
    return at if at < len(places) and places[at] == int(place) else None


def spelling(metric: str) -> Spell:
    """How a number of a profile is written without digits that say nothing: things whole, shares in per cent.

    Args:
        metric: name of the number, such as "at_least.3"; empty for numbers of other kinds.
    """
    family = metric.partition(".")[0]
    if family in COUNTS:
        return "{:z,.0f}".format
    return "{:z.1%}".format if family in SHARES else number_text


def value(number: Number, spell: Spell = number_text) -> str:
    """The cell of a number; a dash if there is none."""
    if number["value"] is None:
        return "-"
    return report.exact(number["value"], speller(number["low"], number["high"], spell))


def interval(number: Number, spell: Spell = number_text) -> str:
    """The cell of a number's interval; a dash if none is valid."""
    ends = number["low"], number["high"]
    low, high = (None if end is None or not math.isfinite(end) else end for end in ends)
    if low is None and high is None:
        return "-"
    spell = speller(low, high, spell)
    return interval_text(low, high, lambda end: report.exact(end, spell))


def ends(numbers: Sequence[Number | None]) -> tuple[Floats, Floats, Floats]:
    """Numbers as values, low and high ends, for charts.

    NaN if there is no number; infinite for one missing end; the value if both are missing (no interval).
    """
    table = np.full((len(numbers), 3), np.nan)
    for at, number in enumerate(numbers):
        if number is not None and number["value"] is not None:
            low, high = number["low"], number["high"]
            if low is None and high is None:
                low = high = number["value"]
            table[at] = [number["value"], -np.inf if low is None else low, np.inf if high is None else high]
    return table[:, 0], table[:, 1], table[:, 2]


def draw_numbers(
    name: str,
    title: str,
    names: Sequence[str],
    numbers: tuple[Any, Any, Any],
    columns: tuple[str, str],
    caption: str = "Estimates with their 95% intervals.",
    *,
    ordered: bool = False,
    spell: Spell = number_text,
) -> Panel:
    """Picture of named numbers: bars for a few, a line with its band for more, or if they are ordered.

    Args:
        name: name in addresses.
        title: title above the chart.
        names: names of n numbers.
        numbers: (n,) values, low ends and high ends; the ends are the values without intervals.
        columns: headers of the table, for the names and the numbers.
        caption: text below the chart.
        ordered: whether the names are ordered, such as times.
        spell: writes a number.
    """
    values, low, high = (np.asarray(number, np.float64) for number in numbers)
    rows, note = table(title, names, (values, low, high), columns, spell)
    chart = wide = None
    if len(names) > 1:
        bars = charts.Bars(names, values, low, high, spell=spell)
        if len(names) <= MAX_BARS and not ordered:
            chart = draw_chart(lambda: charts.bar_chart(bars, title, columns[1], caption))
            if max(map(len, names)) > charts.MAX_NAME_LETTERS[0]:
                wide = draw_chart(lambda: charts.bar_chart(bars, title, columns[1], caption, wide=True))
        else:
            chart = draw_chart(lambda: charts.band_chart(bars, title, columns[0], caption))
            wide = draw_chart(lambda: charts.band_chart(bars, title, columns[0], caption, wide=True))

    def stretch(first: int, last: int) -> Panel:
        some, part = (values[first:last], low[first:last], high[first:last]), names[first:last]
        within = f"{title}, {part[0]} to {part[-1]}"
        return replace(
            draw_numbers(name, within, part, some, columns, caption, ordered=True, spell=spell), stretches=parts
        )

    parts = Stretches(names, lru_cache(STRETCHES)(stretch)) if ordered and len(names) > MAX_SINGLE_NUMBERS else None
    return Panel(name, title, chart, rows, wide, folded=len(names) > MAX_UNFOLDED_ROWS, note=note, stretches=parts)


def table(
    title: str, names: Sequence[str], numbers: tuple[Floats, Floats, Floats],
    columns: tuple[str, str], spell: Spell = number_text,
) -> tuple[report.ReportTable, str]:  # fmt: skip
    """Table of named numbers, with a note on omitted ones.

    Args:
        title: caption of the table.
        names: names of n numbers.
        numbers: (n,) values, low ends and high ends.
        columns: headers, for the names and the numbers.
        spell: writes a number.
    """
    rows = []
    for name, middle, low, high in zip(names[:MAX_ROWS], *numbers, strict=False):
        exactly, written = low == middle == high, speller(low, high, spell)
        between = interval({"value": middle, "low": low, "high": high}, spell) if low <= high and not exactly else "-"
        rows.append((name, report.exact(middle, written), between))
    note = ""
    if len(names) > MAX_ROWS:
        note = f"The table has the first {MAX_ROWS:,} of {len(names):,} rows; downloads have all."
    return report.ReportTable(title, (columns[0], columns[1], "95% interval"), rows), note


def draw_chart(draw: Callable[[], charts.Chart]) -> charts.Chart | None:
    """A chart; None if matplotlib is not installed, as the table has the same numbers."""
    try:
        return draw()
    except MissingExtraError:
        return None


def item_name(item: object) -> str:
    """An item as text."""
    return item.hex() if isinstance(item, bytes) else str(item)
