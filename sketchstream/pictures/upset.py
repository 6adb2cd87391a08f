"""What groups have in common, as an UpSet plot, tables, a sentence and a card.

In: answers as plain data, as the command line and the HTTP API write them. Out: parts of pages, a card of a notebook, a
figure, and a file if a path is given. Touches: that file. Plots need matplotlib, imported on use.

An UpSet plot has bars of the largest regions with intervals, over a matrix of the groups that they are in.
Source: Lex et al., IEEE TVCG 2014 (UpSet).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream.pictures import charts, report
from sketchstream.pictures.numbers import Panel, draw_chart, interval, value
from sketchstream.texts import naming
from sketchstream.texts.number_texts import interval_text, number_text, with_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_REGIONS: Final = 30
"""Most regions that are drawn, the largest ones."""
MAX_NARROW_REGIONS: Final = 10
"""Most regions that are drawn on narrow screens."""
MAX_LISTED_REGIONS: Final = 60
"""Most regions of a table, the largest ones."""
FITTED: Final = "95% intervals. All numbers come from one fit: those of disjoint sets add up."
TITLE: Final = "Items in exactly these groups"

Region = Mapping[str, Any]
"""`in`: names of groups; `value`, `low`, `high`: items in exactly these; ends are None where no interval is valid."""


def plot(answer: Mapping[str, Any], path: Path | None = None) -> Figure:
    """Draw regions whose interval does not contain 0, largest first; if there is none, the largest one.

    Args:
        answer: `groups` and `regions`; see `Overlap.to_dict`.
        path: file to write; its ending decides the format.
    """
    regions = _regions_shown(answer["regions"], MAX_REGIONS)
    figure = charts.notebook_figure(*_size(len(regions), len(answer["groups"])))
    _draw(figure, answer, regions)
    if path is not None:
        figure.savefig(path, dpi=130, bbox_inches="tight")
    return figure


def chart(answer: Mapping[str, Any], *, wide: bool = False) -> charts.Chart:
    """The plot for a page.

    Args:
        answer: see `plot`.
        wide: whether it is for wide screens.
    """
    regions = _regions_shown(answer["regions"], MAX_REGIONS if wide else MAX_NARROW_REGIONS)
    words = [f"{region_text(row, answer['groups'])}: {_number_text(row)}" for row in regions]
    places = [(float(at), float(row["value"]), text) for at, (row, text) in enumerate(zip(regions, words, strict=True))]
    width, height = _size(len(regions), len(answer["groups"]))
    if len(regions) > 1 or not wide:
        width = charts.WIDE_INCHES[0] if wide else charts.NARROW_INCHES[0]
    say = naming.names_in(answer)
    caption = say("Bars: items in exactly the groups that have a dark dot below, with 95% intervals. Left: each group.")
    title = f"{say(TITLE)}. {'. '.join(words[:5])}."
    return charts.chart_of(lambda figure: _draw(figure, answer, regions), title, caption, places, (width, height))


def region_text(row: Region, groups: Sequence[str]) -> str:
    """A region in words."""
    names = " and ".join(row["in"])
    return f"{names} alone" if len(row["in"]) < len(groups) else names


def sentence(title: str, number: Mapping[str, Any], items: str) -> str:
    """A number of items in a sentence."""
    ends = "" if number["low"] is None else f" (95% interval: {interval_text(number['low'], number['high'])})"
    return f"{title}: {number_text(number['value'])} {items}{ends}."


def headline(answer: Mapping[str, Any], expression: str) -> str:
    """The set that was asked for in a sentence, or how many items are in any group.

    Args:
        answer: answer of the window.
        expression: expression; empty: none.
    """
    items = naming.names_in(answer).items
    if expression:
        return sentence(expression, next(row for row in answer["answers"] if row["query"] == expression), items)
    return sentence(f"In at least one of the {len(answer['groups'])} groups", answer["people"], items)


def picture(answer: Mapping[str, Any]) -> Panel:
    """The UpSet plot with the table of its regions."""
    rows = [(" & ".join(row["in"]), value(row), interval(row)) for row in answer["regions"][:MAX_LISTED_REGIONS]]
    say = naming.names_in(answer)
    table = report.ReportTable(say(TITLE), ("in these groups and no others", say("items"), "95% interval"), rows)
    left = len(answer["regions"]) - len(rows)
    return Panel(
        "upset",
        say(TITLE),
        draw_chart(lambda: chart(answer)),
        table,
        draw_chart(lambda: chart(answer, wide=True)),
        folded=True,
        note=f"{left:,} smaller regions are left out here." if left else "",
    )


def tables(answer: Mapping[str, Any]) -> list[report.ReportTable]:
    """Sets of groups that are usually asked for, and what each group adds to those before it."""
    sets = [(row["query"], value(row), interval(row)) for row in answer["answers"]]
    adds = [
        (row["group"], value(row["added"]), interval(row["added"]), value(row["reached"]), interval(row["reached"]))
        for row in answer["increments"]
    ]
    added = ("group", "adds to those above", "95% interval", "all have by then", "95% interval of it")
    return [
        report.ReportTable("What each group adds", added, adds),
        report.ReportTable("Sets of groups", ("set", naming.names_in(answer).items, "95% interval"), sets),
    ]


def card(answer: Mapping[str, Any]) -> str:
    """The answers in the output of a notebook's cell."""
    panel = picture(answer)
    listed = [*tables(answer), panel.table]
    return report.card(headline(answer, ""), tables=listed, charts=[panel.chart], note=text_below(answer))


def text_below(answer: Mapping[str, Any]) -> str:
    """What is said below the numbers."""
    return " ".join([FITTED, *answer.get("notes", ())])


def _regions_shown(regions: Sequence[Region], most: int) -> list[Region]:
    """The largest regions whose intervals exclude 0; without intervals, those above 0."""
    certain = [row for row in regions if (row["value"] if row["low"] is None else row["low"]) > 0]
    return certain[:most] or list(regions[:1])


def _size(regions: int, groups: int) -> tuple[float, float]:
    """Inches wide and high."""
    return max(5.0, 1.8 + 0.34 * regions + 2.2), 3.2 + 0.28 * groups


def _number_text(row: Region) -> str:
    """A number with its interval as text."""
    if row["low"] is None:
        return number_text(row["value"])
    return with_interval(row["value"], row["low"], row["high"])


def _draw(figure: Figure, answer: Mapping[str, Any], regions: Sequence[Region]) -> Axes:
    """Draw into an empty figure; returns the panel of the bars."""
    names = answer["groups"]
    number, groups = len(regions), len(names)
    reaches = [sum(row["value"] for row in answer["regions"] if name in row["in"]) for name in names]
    room = max(2.0, 0.34 * number, float(figure.get_size_inches()[0]) - 4.5)
    grid = figure.add_gridspec(2, 2, width_ratios=(2.2, room), height_ratios=(3.0, 0.28 * groups + 0.4), wspace=0.05)
    bars, matrix, sizes = (
        figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1]), figure.add_subplot(grid[1, 0])
    )  # fmt: skip
    at, values = np.arange(number), np.array([row["value"] for row in regions])
    bars.bar(at, values, color=charts.BLUE, width=0.6)
    if all(row["low"] is not None for row in regions):
        low, high = (np.array([row[end] for row in regions], np.float64) for end in ("low", "high"))
        bars.errorbar(at, values, [values - low, high - values], fmt="none", ecolor=charts.INK, elinewidth=1, capsize=2)
    bars.set_xlim(-0.6, number - 0.4)
    bars.set_ylim(bottom=0)
    bars.set_xticks([])
    say = naming.names_in(answer)
    bars.set_ylabel(say("items in exactly these groups"))
    bars.yaxis.set_major_formatter("{x:,.0f}")
    _draw_matrix(matrix, names, regions)
    sizes.barh(np.arange(groups), reaches, color=charts.GREY, height=0.6)
    sizes.invert_xaxis()
    sizes.set_ylim(groups - 0.5, -0.5)
    sizes.set_yticks([])
    sizes.xaxis.set_major_formatter("{x:,.0f}")
    sizes.tick_params(axis="x", labelrotation=45, labelsize=7)
    sizes.set_xlabel(say("items of each group"))
    for axes in (bars, matrix, sizes):
        for side in ("top", "right", *(("left", "bottom") if axes is matrix else ())):
            axes.spines[side].set_visible(False)
    return bars


def _draw_matrix(matrix: Axes, names: Sequence[str], regions: Sequence[Region]) -> None:
    """A column of dots for each region: dark in the groups that its items are in, joined by a line."""
    for column, row in enumerate(regions):
        inside = [names.index(name) for name in row["in"]]
        outside = [group for group in range(len(names)) if group not in inside]
        matrix.scatter([column] * len(outside), outside, s=28, color=charts.GRID_LINE, zorder=2)
        matrix.plot([column] * len(inside), inside, color=charts.INK, linewidth=1.5, marker="o", markersize=5, zorder=3)
    matrix.set_xlim(-0.6, len(regions) - 0.4)
    matrix.set_ylim(len(names) - 0.5, -0.5)
    matrix.set_xticks([])
    matrix.set_yticks(range(len(names)), [charts.shorten(name) for name in names])
    matrix.tick_params(axis="y", length=0)
