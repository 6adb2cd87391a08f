"""What the groups of one window have in common, on a page of its own.

In: answers in the form of the API. Out: a sentence, a picture, tables. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sketchstream import charts, upset
from sketchstream.pictures import Picture, drawn, interval, value
from sketchstream.report import Table

LISTED: Final = 60
"""Regions of the table of a page, the largest ones; downloads have all."""


def said(title: str, one: Mapping[str, Any]) -> str:
    """A number of items in a sentence."""
    ends = "" if one["low"] is None else f" (95% interval: {charts.between(one['low'], one['high'])})"
    return f"{title}: {charts.shown(one['value'])} items{ends}."


def headline(answer: Mapping[str, Any], asked: str) -> str:
    """The set that was asked for in a sentence, or how many items are in any group.

    Args:
        answer: of the window.
        asked: expression; empty: none.
    """
    if asked:
        return said(asked, next(row for row in answer["answers"] if row["query"] == asked))
    return said(f"In at least one of the {len(answer['groups'])} groups", answer["people"])


def picture(answer: Mapping[str, Any]) -> Picture:
    """The UpSet plot with the table of its regions."""
    rows = [(" & ".join(row["in"]), value(row), interval(row)) for row in answer["regions"][:LISTED]]
    table = Table(upset.TITLE, ("in these groups and no others", "items", "95% interval"), rows)
    left = len(answer["regions"]) - len(rows)
    return Picture(
        "upset",
        upset.TITLE,
        drawn(lambda: upset.chart(answer)),
        table,
        drawn(lambda: upset.chart(answer, wide=True)),
        folded=True,
        note=f"{left:,} smaller regions are left out here." if left else "",
    )


def tables(answer: Mapping[str, Any]) -> list[Table]:
    """Sets of groups that are usually asked for, and what each group adds to those before it."""
    sets = [(row["query"], value(row), interval(row)) for row in answer["answers"]]
    adds = [
        (row["group"], value(row["added"]), interval(row["added"]), value(row["reached"]), interval(row["reached"]))
        for row in answer["increments"]
    ]
    added = ("group", "adds to those above", "95% interval", "all have by then", "95% interval of it")
    return [
        Table("What each group adds", added, adds),
        Table("Sets of groups", ("set", "items", "95% interval"), sets),
    ]
