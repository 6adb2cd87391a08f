"""Answers of a sketch of kind `projection` as sentences, numbers by name and pictures.

In: answers as plain data. Out: see `sketchstream.kinds.presentation`. Touches: nothing.

Numbers: "norm.P", the squared norm of the row at place P of the list of rows, from 0. Distances between all pairs of
some rows are a heat map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np

from sketchstream.kinds import presentation
from sketchstream.kinds.presentation import Presentation
from sketchstream.kinds.projection.reading.distances import alike
from sketchstream.kinds.projection.reading.rows import row_label
from sketchstream.pictures import charts
from sketchstream.pictures.numbers import (
    MAX_ROWS,
    MAX_UNFOLDED_ROWS,
    Number,
    Panel,
    draw_chart,
    draw_numbers,
    ends,
    index_of,
    interval,
    item_name,
)
from sketchstream.pictures.numbers import value as cell
from sketchstream.pictures.report import ReportTable
from sketchstream.texts.number_texts import interval_text, number_text

OFFERED: Final = 300
"""Most rows that a page offers to follow."""
PAIRED: Final = 40
"""Most rows whose distances a page shows."""
Row = Mapping[str, Any]


def headline(answer: Mapping[str, Any]) -> str:
    """Number of rows and the longest one; for a question, its answer."""
    rows = presentation.rows_of(answer)
    if answer["question"] != "norms":
        return f"{str(answer['quantity']).capitalize()}: {len(rows):,} answer{'s' * (len(rows) != 1)}."
    if not rows:
        return "No rows."
    longest = max(rows, key=lambda row: float(row["value"]))
    ends = interval_text(longest["low"], longest["high"])
    return (
        f"{len(rows):,} rows; the longest is that of {row_label(longest)}, squared norm "
        f"{number_text(longest['value'])} (95% interval {ends})."
    )


def numbers(answer: Mapping[str, Any]) -> dict[str, str]:
    """The squared norms of the first rows."""
    return {f"norm.{at}": _title(row) for at, row in enumerate(presentation.rows_of(answer)[:OFFERED])}


def number(answer: Mapping[str, Any], name: str) -> tuple[str, Number] | None:
    """A squared norm by the place of its row."""
    at = index_of(name, "norm", range(len(answer["values"])))
    if at is None:
        return None
    low, high = answer["intervals"][at]
    title = _title({"user": answer["labels"]["user"][at]})
    return title, {"value": answer["values"][at], "low": low, "high": high}


def further(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The distances between the first rows, beside their norms."""
    rows = presentation.rows_of(answer) if answer["question"] == "norms" else []
    return {"among": min(len(rows), PAIRED)} if len(rows) > 1 else {}


def pictures(answer: Mapping[str, Any]) -> list[Panel]:
    """Squared norms, or the answers to the question that was asked."""
    rows = presentation.rows_of(answer)
    if answer["question"] == "distance" and (names := _all_pairs(rows)):
        return [_distances(rows, names)]
    value, low, high = ([row[end] for row in rows] for end in ("value", "low", "high"))
    if answer["question"] != "norms":
        quantity = str(answer["quantity"])
        title, columns = quantity.capitalize(), ("rows", quantity)
    else:
        title, columns = "Squared norms of rows", ("row", "squared norm")
    return [draw_numbers("norms", title, [row_label(row) for row in rows], (value, low, high), columns)]


def _all_pairs(rows: Sequence[Row]) -> list[str]:
    """Names of the rows of which these are all pairs, in their order; empty if they are not, or only one pair."""
    names = list(dict.fromkeys(item_name(user) for row in rows for user in (row["user"], row["other"])))
    found = [(item_name(row["user"]), item_name(row["other"])) for row in rows]
    return names if len(rows) > 1 and found == list(combinations(names, 2)) else []


def _distances(rows: Sequence[Row], names: Sequence[str]) -> Panel:
    """Squared distances of all pairs as a heat map, rows that look alike side by side."""
    upper = np.triu_indices(len(names), 1)
    squares = []
    for squared in ends(rows):
        square = np.full((len(names), len(names)), np.nan)
        square[upper] = squared
        square.T[upper] = squared
        squares.append(square)
    order = alike(np.sqrt(np.nan_to_num(np.maximum(squares[0], 0.0))))
    labels = [names[place] for place in order]
    grid = charts.GridChart(labels, labels, *(square[np.ix_(order, order)] for square in squares))
    least, most = (number_text(float(end)) for end in (np.nanmin(grid.value), np.nanmax(grid.value)))
    title = "Squared distances between rows"
    caption = f"The stronger the color, the farther apart: {least} to {most}. Rows that look alike are side by side."
    chart, wide = (
        draw_chart(lambda wide=wide: charts.heat_chart(grid, title, ("row", "row"), caption, wide=wide))  # type: ignore[misc]
        for wide in (False, True)
    )
    cells = [(item_name(row["user"]), item_name(row["other"]), cell(row), interval(row)) for row in rows[:MAX_ROWS]]
    table = ReportTable(title, ("row", "other row", "squared distance", "95% interval"), cells)
    return Panel("distances", title, chart, table, wide, folded=len(cells) > MAX_UNFOLDED_ROWS)


def _title(row: Mapping[str, Any]) -> str:
    return f"squared norm of {row_label(row)}"


PRESENTATION: Final = Presentation(
    purpose="Keeps rows of users, for the distances between them",
    headline=headline,
    numbers=numbers,
    number=number,
    pictures=pictures,
    further=further,
)
