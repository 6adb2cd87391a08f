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

OFFERED: Final = 300
"""Most rows that a page offers to follow."""


def headline(answer: Mapping[str, Any]) -> str:
    """How many rows there are, and the longest."""
    rows = answer["rows"]
    if "users" not in answer or not rows:
        return ""
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
    """Squared norms, or what was asked of rows."""
    rows = answer["rows"]
    names = [_name(row) for row in rows]
    ends = tuple([row[end] for row in rows] for end in ("value", "low", "high"))
    found = listed("norms", "Squared norms of the users' rows", names, ends, ("user", "squared norm"))  # type: ignore[arg-type]
    return [found]


def tables(answer: Mapping[str, Any]) -> list[Table]:
    """None."""
    del answer
    return []


def _name(row: Mapping[str, Any]) -> str:
    return item_name(next(iter(row.values())))


def _title(row: Mapping[str, Any]) -> str:
    return f"squared norm of {_name(row)}"
