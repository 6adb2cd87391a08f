"""Answers as pictures, each with its table.

In: an answer as plain data, as the HTTP API and the command line's JSON have it. Out: charts of `sketchstream.charts`
and tables of `sketchstream.report`. Touches: nothing.

The charts are drawn here and not in the browser: a page that is read without JavaScript has them, they are those of
reports and notebooks, and nothing has to be vendored. A script of the page only reads out their points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from sketchstream import charts, report
from sketchstream.kinds.profile.show import pages

FEW: Final = 40
"""So many numbers are drawn as bars; more of them as a line with its band."""
LISTED: Final = 1000
"""Rows of a table of the page; downloads have all."""
CELLS: Final = 2500
"""Largest table that is drawn as a heat map."""


@dataclass(frozen=True)
class Picture:
    """A chart with its table.

    Args:
        name: in addresses.
        title: above.
        chart: for every screen, or for narrow ones if there is a wide one. None: the table only.
        table: the same numbers.
        wide: for wide screens; None: the other one.
        folded: whether the table is folded.
        note: below.
        download: address of the chart alone; empty: none.
    """

    name: str
    title: str
    chart: charts.Chart | None
    table: report.Table
    wide: charts.Chart | None = None
    folded: bool = False
    note: str = ""
    download: str = ""

    def at(self, address: str) -> Picture:
        """The same, with the address of its chart."""
        return replace(self, download=address) if self.chart is not None else self


def pictures(answer: Mapping[str, Any]) -> list[Picture]:
    """The pictures of one window's answer.

    Args:
        answer: of any kind of sketch.
    """
    if "fractions" in answer:
        return _profile(answer)
    draw: dict[str, Callable[[Mapping[str, Any]], list[Picture]]] = {
        "gaussian": _gaussian,
        "convolution": _convolution,
        "workload": _workload,
        "projection": _projection,
    }
    return draw[answer["kind"]](answer)


def tables(answer: Mapping[str, Any]) -> list[report.Table]:
    """Tables of an answer that have no picture."""
    return [pages.other_table(answer)] if "fractions" in answer else []


def _profile(answer: Mapping[str, Any]) -> list[Picture]:
    """The k+ curve and the numbers of small counts."""
    reach, exact = pages.curves(answer)
    return [
        *_groups(answer.get("groups") or {}),
        Picture("reach", "At least k times (k+ reach)", pages.reach_chart(reach), pages.reach_table(answer)),
        Picture("exact", "Exactly k times (the profile)", pages.exact_chart(exact), pages.exact_table(answer)),
    ]


def _groups(groups: Mapping[str, Mapping[str, Any]]) -> list[Picture]:
    """The distinct items of each group."""
    if not groups:
        return []
    value, low, high = pages.ends([one["distinct"] for one in groups.values()])
    found = _listed("groups", "Distinct items by group", list(groups), value, low, high, ("group", "distinct items"))
    note = "An item can be in several groups: groups do not add up."
    return [replace(found, note=f"{note} {found.note}".strip())]


def _gaussian(answer: Mapping[str, Any]) -> list[Picture]:
    """The published counts, in the order of the domain."""
    found = answer.get("items")
    names = [f"item {at}" for at in range(len(answer["raw"]))] if found is None else [_name(one) for one in found]
    low, high = np.array(answer["intervals"], np.float64).T
    picture = _listed("counts", "Published counts", names, answer["raw"], low, high, ("item", "count"))
    note = (
        "In the order of the domain; each interval holds by itself. The API's parameter top gives the largest ones, "
        "with intervals that hold together."
    )
    return [replace(picture, note=f"{note} {picture.note}".strip())]


def _convolution(answer: Mapping[str, Any]) -> list[Picture]:
    """Each filter's answers."""
    out = []
    for number, one in enumerate(answer["answers"]):
        labels = one.get("labels")
        names = (
            [str(at) for at in one["positions"]]
            if labels is None
            else [", ".join(f"{column} {value}" for column, value in label.items()) for label in labels]
        )
        low, high = np.array(one["intervals"], np.float64).reshape(-1, 2).T
        what = "position" if labels is None else "cell"
        picture = _listed(f"filter-{number}", one["filter"], names, one["values"], low, high, (what, "value"))
        partial = int(np.count_nonzero(one["partial"]))
        note = f"{partial} values stand on a part of their filter only." if partial else ""
        out.append(replace(picture, note=f"{note} {picture.note}".strip()))
    return out


def _workload(answer: Mapping[str, Any]) -> list[Picture]:
    """Each table of answers: a heat map of two columns, bars or a line of one."""
    values = np.array(answer["values"], np.float64)
    told = answer.get("intervals")
    low, high = (values, values) if told is None else (np.array(told[end], np.float64) for end in ("low", "high"))
    out = []
    for number, table in enumerate(answer["tables"]):
        shape = tuple(table["shape"])
        at = slice(table["offset"], table["offset"] + int(np.prod(shape, dtype=np.int64)))
        columns = table["columns"]
        name, part = f"table-{number}", (values[at], low[at], high[at])
        if len(shape) == 2 and int(np.prod(shape)) <= CELLS:
            grid = charts.Grid(columns[0]["labels"], columns[1]["labels"], *(one.reshape(shape) for one in part))
            axes = (columns[0]["name"], columns[1]["name"])
            chart = charts.heat_chart(grid, table["name"], axes, "The stronger the color, the larger the number.")
            names = [f"{row}, {column}" for row in grid.rows for column in grid.columns]
            listed, note = _table(table["name"], names, *part, (" and ".join(axes), "answer"))
            out.append(Picture(name, table["name"], chart, listed, folded=True, note=note))
        else:
            names = _products([column["labels"] for column in columns]) or ["all"]
            what = " and ".join(column["name"] for column in columns) or "question"
            out.append(_listed(name, table["name"], names, *part, (what, "answer")))
    return out


def _projection(answer: Mapping[str, Any]) -> list[Picture]:
    """Squared norms."""
    rows = answer["rows"]
    names = [_name(next(iter(row.values()))) for row in rows]
    value, low, high = (np.array([row[key] for row in rows], np.float64) for key in ("value", "low", "high"))
    return [_listed("norms", "Squared norms of the users' rows", names, value, low, high, ("user", "squared norm"))]


def _listed(
    name: str,
    title: str,
    names: Sequence[str],
    value: Any,
    low: charts.Floats,
    high: charts.Floats,
    columns: tuple[str, str],
) -> Picture:
    """Numbers with names: bars where there are few, a line with its band where there are more."""
    value = np.asarray(value, np.float64)
    listed, note = _table(title, names, value, low, high, columns)
    chart = None
    if len(names) > 1:
        bars = charts.Bars(names, value, low, high)
        draw = charts.bar_chart if len(names) <= FEW else charts.band_chart
        axis = columns[1] if len(names) <= FEW else columns[0]
        chart = draw(bars, title, axis, "Estimates with their 95% intervals.")
    return Picture(name, title, chart, listed, folded=len(names) > 12, note=note)


def _table(
    title: str,
    names: Sequence[str],
    value: charts.Floats,
    low: charts.Floats,
    high: charts.Floats,
    columns: tuple[str, str],
) -> tuple[report.Table, str]:
    """Numbers with names as a table, and what it leaves out."""
    rows = []
    for name, one, least, most in zip(names[:LISTED], value, low, high, strict=False):
        ends = pages.interval({"value": one, "low": least, "high": most}) if least < most else "-"
        rows.append((name, report.exact(one), ends))
    note = ""
    if len(names) > LISTED:
        note = f"The table has the first {LISTED:,} of {len(names):,} rows; downloads have all."
    return report.Table(title, (columns[0], columns[1], "95% interval"), rows), note


def _products(labels: Sequence[Sequence[str]]) -> list[str]:
    """Names of the cells of a table, the last column fastest."""
    names = [""]
    for column in labels:
        names = [f"{front}, {label}" if front else str(label) for front in names for label in column]
    return [name for name in names if name]


def _name(item: Any) -> str:
    """An item as text."""
    return item.hex() if isinstance(item, bytes) else str(item)
