"""Answers of a sketch of kind `projection` as sentences, numbers by name and pictures.

In: answers as plain data. Out: see `sketchstream.kinds.shown`. Touches: nothing.

Numbers: "norm.P", the squared norm of the row at place P of the list of rows, from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sketchstream import charts
from sketchstream.pictures import Number, Picture, item_name, listed
from sketchstream.report import Table

WHOSE: Final = ("user", "other", "neighbour", "before", "after")
"""Columns that say whose number it is."""
OFFERED: Final = 300
"""Most rows that a page offers to follow."""


def headline(answer: Mapping[str, Any]) -> str:
    """Number of rows and the longest one; for a question, its answer."""
    rows = answer["rows"]
    if "question" in answer:
        return f"{str(answer['quantity']).capitalize()}: {len(rows):,} answer{'s' * (len(rows) != 1)}."
    if not rows:
        return "No rows."
    longest = max(rows, key=lambda row: float(row["value"]))
    ends = charts.between(longest["low"], longest["high"])
    return (
        f"{len(rows):,} rows; the longest is that of {_name(longest)}, squared norm {charts.shown(longest['value'])} "
        f"(95% interval {ends})."
    )


def numbers(answer: Mapping[str, Any]) -> dict[str, str]:
    """The squared norms of the first rows."""
    return {f"norm.{at}": _title(row) for at, row in enumerate(answer["rows"][:OFFERED])}


def number(answer: Mapping[str, Any], name: str) -> tuple[str, Number] | None:
    """A squared norm by the place of its row."""
    what, _, place = name.partition(".")
    if what != "norm" or not place.isdecimal() or int(place) >= len(answer["rows"]):
        return None
    row = answer["rows"][int(place)]
    return _title(row), {end: row[end] for end in ("value", "low", "high")}


def pictures(answer: Mapping[str, Any]) -> list[Picture]:
    """Squared norms, or the answers to the question that was asked."""
    rows = answer["rows"]
    value, low, high = ([row[end] for row in rows] for end in ("value", "low", "high"))
    if "question" in answer:
        quantity = str(answer["quantity"])
        title, columns = quantity.capitalize(), ("rows", quantity)
    else:
        title, columns = "Squared norms of the users' rows", ("user", "squared norm")
    return [listed("norms", title, [_name(row) for row in rows], (value, low, high), columns)]


def tables(answer: Mapping[str, Any]) -> list[Table]:
    """None."""
    del answer
    return []


def _name(row: Mapping[str, Any]) -> str:
    """Whose number it is: a row, or two of them, and when."""
    return ", ".join(item_name(row[column]) for column in WHOSE if column in row)


def _title(row: Mapping[str, Any]) -> str:
    return f"squared norm of {_name(row)}"
