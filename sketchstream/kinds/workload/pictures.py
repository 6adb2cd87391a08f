"""Answers of a sketch of kind `workload` as sentences, numbers by name and pictures.

In: answers as plain data. Out: see `sketchstream.kinds.presentation`; `draw` makes the figure of notebooks of answers
themselves. Touches: nothing. Matplotlib is imported on use.

Numbers: "answer.N", the answer at place N of all tables, from 0, in the order of the JSON and of the CSV rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.errors import EstimateError
from sketchstream.kinds.presentation import Presentation
from sketchstream.kinds.workload.queries.queries import ProductTable
from sketchstream.pictures import charts
from sketchstream.pictures.numbers import MAX_UNFOLDED_ROWS, Number, Panel, draw_chart, draw_numbers, index_of, table
from sketchstream.texts.number_texts import interval_text, number_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


CELLS: Final = 2500
"""Largest table that is drawn as a heat map."""
OFFERED: Final = 300
"""Most answers that a page offers to follow."""
PANELS: Final = 9
"""Tables in one figure, at most."""
BARS: Final = 40
"""More cells than this are drawn as a line with its band."""


def headline(answer: Mapping[str, Any]) -> str:
    """Number of answers, and the first one."""
    count, tables_there = len(answer["values"]), len(answer["tables"])
    first = number(answer, "answer.0")
    example = ""
    if first is not None:
        example = f"; {first[0]}: {number_text(first[1]['value'] or 0.0)}"
        if first[1]["low"] is not None and first[1]["high"] is not None:
            example += f" (95% interval {interval_text(first[1]['low'], first[1]['high'])})"
    return f"{count:,} answer{'s' * (count != 1)} in {tables_there} table{'s' * (tables_there != 1)}{example}."


def numbers(answer: Mapping[str, Any]) -> dict[str, str]:
    """The first answers, table by table."""
    return {f"answer.{at}": _title(answer, at) for at in range(min(len(answer["values"]), OFFERED))}


def number(answer: Mapping[str, Any], name: str) -> tuple[str, Number] | None:
    """An answer by its place."""
    at, intervals = index_of(name, "answer", range(len(answer["values"]))), answer.get("intervals")
    if at is None:
        return None
    low, high = (None, None) if intervals is None else intervals[at]
    return _title(answer, at), {"value": answer["values"][at], "low": low, "high": high}


def pictures(answer: Mapping[str, Any]) -> list[Panel]:
    """Each table of answers: a heat map of two columns, bars or a line of one."""
    values = np.array(answer["values"], np.float64)
    intervals = answer.get("intervals")
    low, high = (values, values) if intervals is None else np.array(intervals, np.float64).reshape(-1, 2).T
    out = []
    for place, described in enumerate(answer["tables"]):
        shape = tuple(described["shape"])
        at = slice(described["offset"], described["offset"] + int(np.prod(shape, dtype=np.int64)))
        columns, title = described["columns"], str(described["name"])
        name, part = f"table-{place}", (values[at], low[at], high[at])
        if len(shape) == 2 and int(np.prod(shape)) <= CELLS:
            grid = charts.GridChart(columns[0]["labels"], columns[1]["labels"], *(each.reshape(shape) for each in part))
            axes = (columns[0]["name"], columns[1]["name"])
            least, most = (number_text(float(end)) for end in (part[0].min(), part[0].max()))
            caption = f"The stronger the color, the larger the number: {least} to {most}."
            names = [f"{row}, {column}" for row in grid.rows for column in grid.columns]
            listing, note = table(title, names, part, (" and ".join(axes), "answer"))
            chart = draw_chart(partial(charts.heat_chart, grid, title, axes, caption))
            out.append(Panel(name, title, chart, listing, folded=len(names) > MAX_UNFOLDED_ROWS, note=note))
        else:
            what = " and ".join(column["name"] for column in columns) or "question"
            out.append(
                draw_numbers(name, title, products([each["labels"] for each in columns]), part, (what, "answer"))
            )
    return out


def products(labels: Sequence[Sequence[str]]) -> list[str]:
    """Names of the cells of a table, the last column fastest; "all" for a table without columns."""
    names = [""]
    for column in labels:
        names = [f"{front}, {label}" if front else str(label) for front in names for label in column]
    return names if labels else ["all"]


def _title(answer: Mapping[str, Any], at: int) -> str:
    """The table of an answer, and its cell."""
    for part in answer["tables"]:
        count = int(np.prod(part["shape"], dtype=np.int64))
        if part["offset"] <= at < part["offset"] + count:
            places = np.unravel_index(at - part["offset"], part["shape"]) if part["columns"] else ()
            cell = [str(column["labels"][int(place)]) for column, place in zip(part["columns"], places, strict=True)]
            return f"{part['name']}: {', '.join(cell) or 'all'}"
    return f"answer {at}"


def draw(
    tables: Sequence[ProductTable], values: Floats, ends: Floats, mechanism: str, chosen: Sequence[str] | None = None
) -> Figure:
    """One panel for each table of one or two columns, with 95% intervals if the answers have them.

    A table of single cells is drawn as bars, of prefixes or windows as a line with its band; the ranges of a column
    are a heat map of their first and last cell, and a table of two columns one of both.

    Args:
        ends: (n, 2) ends of their intervals.
        chosen: names of tables; default the first nine that can be drawn.
    """
    drawable = [table for table in tables if 1 <= len(table.axes) <= 2]
    if chosen is not None:
        by_name = {table.name: table for table in drawable}
        unknown = [name for name in chosen if name not in by_name]
        if unknown:
            raise EstimateError(
                f"only tables of one or two columns are drawn: {', '.join(by_name)}; found {unknown[0]!r:.60}"
            )
        drawable = [by_name[name] for name in chosen]
    if not drawable:
        raise EstimateError("no table has one or two columns, so that there is nothing to draw")
    panelled = drawable[:PANELS]
    across = min(len(panelled), 3) if len(panelled) != 4 else 2
    down = -(-len(panelled) // across)
    figure = charts.notebook_figure(5.2 * across, 4.2 * down)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, panelled_table in zip(panels, panelled, strict=False):
        _draw(axes, panelled_table, values[panelled_table.part], ends[panelled_table.part])
    for axes in panels[len(panelled) :]:
        axes.set_visible(False)
    rest = f", {len(panelled)} of {len(tables)} tables" if len(panelled) < len(tables) else ""
    figure.suptitle(f"{mechanism} noise, 95% intervals{rest}", fontsize=10, color=charts.INK)
    return figure


def _draw(axes: Axes, table: ProductTable, value: Floats, ends: Floats) -> None:
    """One table in one panel, with the (n, 2) ends of its intervals."""
    first = table.axes[0]
    low, high = ends.T
    widest = float((high - low).max()) / 2
    if len(table.axes) == 2:
        charts.draw_table(
            axes, _title_with_width(table.name, widest), value.reshape(table.shape), first.labels, table.axes[1].labels,
            (first.column, table.axes[1].column),
        )  # fmt: skip
    elif first.queries == "ranges":
        cells = [first.labels[place] for place in _diagonal(table.count)]
        grid = np.full((len(cells), len(cells)), np.nan)
        grid[np.triu_indices(len(cells))] = value
        title = _title_with_width(f"ranges of {first.column}", widest)
        charts.draw_table(axes, title, grid, cells, cells, (f"from {first.column}", f"to {first.column}"))
    else:
        name = first.column if first.queries == "identity" else f"{first.queries} of {first.column}"
        if first.queries == "identity" and table.count <= BARS:
            charts.draw_columns(axes, name, first.labels, value, (low, high), first.column)
        else:
            charts.draw_band(axes, name, first.labels, value, (low, high), first.column)


def _diagonal(ranges: int) -> list[int]:
    """Places of the ranges of one cell among all ranges, which are sorted by their first cell."""
    size = int(((8 * ranges + 1) ** 0.5 - 1) / 2)
    return [cell * size - cell * (cell - 1) // 2 for cell in range(size)]


def _title_with_width(name: str, widest: float) -> str:
    """The name, and the half width of the intervals, which a heat map cannot show."""
    return f"{name}, each within {widest:,.3g}"


PRESENTATION: Final = Presentation(
    purpose="Answers a fixed list of counting questions",
    headline=headline,
    numbers=numbers,
    number=number,
    pictures=pictures,
)
