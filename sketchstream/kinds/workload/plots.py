"""Pictures of a workload's answers: a heat map for a two-way table, a line with its band for prefixes and windows.

In: answers of some tables, and their intervals. Out: a figure. Touches: nothing. Needs matplotlib, imported on use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.errors import EstimateError
from sketchstream.kinds.workload.queries.queries import ProductTable
from sketchstream.pictures import charts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS: Final = 9
"""Tables in one figure, at most."""
BARS: Final = 40
"""More cells than this are drawn as a line with its band."""


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
    drawn = [table for table in tables if 1 <= len(table.axes) <= 2]
    if chosen is not None:
        known = {table.name: table for table in drawn}
        odd = [name for name in chosen if name not in known]
        if odd:
            msg = f"only tables of one or two columns are drawn: {', '.join(known)}; found {odd[0]!r:.60}"
            raise EstimateError(msg)
        drawn = [known[name] for name in chosen]
    if not drawn:
        msg = "no table has one or two columns, so that there is nothing to draw"
        raise EstimateError(msg)
    panelled = drawn[:PANELS]
    across = min(len(panelled), 3) if len(panelled) != 4 else 2
    down = -(-len(panelled) // across)
    figure = charts.notebook_figure(5.2 * across, 4.2 * down)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, table in zip(panels, panelled, strict=False):
        part = slice(table.offset, table.offset + table.count)
        _draw(axes, table, values[part], ends[part])
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
            axes, _titled(table.name, widest), value.reshape(table.shape), first.labels, table.axes[1].labels,
            (first.column, table.axes[1].column),
        )  # fmt: skip
    elif first.queries == "ranges":
        cells = [first.labels[place] for place in _diagonal(table.count)]
        grid = np.full((len(cells), len(cells)), np.nan)
        grid[np.triu_indices(len(cells))] = value
        title = _titled(f"ranges of {first.column}", widest)
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


def _titled(name: str, widest: float) -> str:
    """The name, and the half width of the intervals, which a heat map cannot show."""
    return f"{name}, each within {widest:,.3g}"
