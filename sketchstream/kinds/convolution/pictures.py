"""Answers of a sketch of kind `convolution` as sentences, numbers by name and pictures.

In: answers as plain data. Out: see `sketchstream.kinds.shown`. Touches: nothing.

Numbers: "answer.F.P", the answer of filter F at place P of its answers, and "last.F", the one at its last place, which
of a running sum is that of the whole window; F and P count from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from sketchstream import charts
from sketchstream.pictures import Number, Picture, listed
from sketchstream.report import Table

OFFERED: Final = 300
"""Most cells of tables that a page offers to follow."""


def headline(answer: Mapping[str, Any]) -> str:
    """The last answer of each filter; of a table, the number of its answers."""
    told = []
    for at, one in enumerate(answer["answers"]):
        found = number(answer, f"last.{at}") if one.get("labels") is None else None
        if found is None:
            told.append(f"{one['filter']} has {len(one['values']):,} answers")
            continue
        title, last = found
        told.append(f"{title}: {charts.shown(last['value'] or 0.0)} ({charts.between(last['low'], last['high'])})")
    return f"With 95% intervals, {'; '.join(told)}."


def numbers(answer: Mapping[str, Any]) -> dict[str, str]:
    """The last answer of each series, and the cells of each table."""
    out: dict[str, str] = {}
    for at, one in enumerate(answer["answers"]):
        names = [f"last.{at}"]
        if one.get("labels") is not None:
            names = [f"answer.{at}.{place}" for place in range(min(len(one["values"]), OFFERED))]
        out |= {name: found[0] for name in names if (found := number(answer, name)) is not None}
    return out


def number(answer: Mapping[str, Any], name: str) -> tuple[str, Number] | None:
    """An answer by its filter and its place."""
    what, *rest = name.split(".")
    parts = {"last": 1, "answer": 2}.get(what)
    if parts != len(rest) or not all(one.isdecimal() for one in rest) or int(rest[0]) >= len(answer["answers"]):
        return None
    one = answer["answers"][int(rest[0])]
    place = len(one["values"]) - 1 if what == "last" else int(rest[1])
    if not 0 <= place < len(one["values"]):
        return None
    low, high = one["intervals"][place]
    # the position, not its time: the number has the same title in every window
    there = _cell(one, place) if one.get("labels") is not None else f"position {one['positions'][place]}"
    where = "at the end" if what == "last" else f"at {there}"
    return f"{one['filter']} {where}", {"value": one["values"][place], "low": low, "high": high}


def pictures(answer: Mapping[str, Any], remark: str = "") -> list[Picture]:
    """Each filter's answers.

    Args:
        answer: of one window.
        remark: after the titles.
    """
    out = []
    for at, one in enumerate(answer["answers"]):
        names = [_cell(one, place) for place in range(len(one["values"]))]
        low, high = np.array(one["intervals"], np.float64).reshape(-1, 2).T
        what = "cell" if one.get("labels") is not None else "position" if one.get("times") is None else "time, UTC"
        numbers_there = (one["values"], low, high)
        ordered = one.get("labels") is None
        title = f"{one['filter']}{remark}"
        found = listed(f"filter-{at}", title, names, numbers_there, (what, "value"), ordered=ordered)
        partial = int(np.count_nonzero(one["partial"]))
        note = f"{partial} value{'s' * (partial != 1)} stand{'s' * (partial == 1)} on a part of the filter only."
        out.append(found.noted(note if partial else ""))
    return out


def chained(answers: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """Each filter's answers at the times of several windows, one after the other.

    Args:
        answers: of one sketch, ascending.
    """
    out = []
    for at, first in enumerate(answers[-1]["answers"]):
        parts = [one["answers"][at] for one in answers if at < len(one["answers"])]
        if first.get("times") is None or any(one["filter"] != first["filter"] for one in parts) or len(parts) < 2:
            continue
        names = [_cell(one, place) for one in parts for place in range(len(one["values"]))]
        values = [value for one in parts for value in one["values"]]
        low, high = np.array([ends for one in parts for ends in one["intervals"]], np.float64).reshape(-1, 2).T
        title = f"{first['filter']}, the last {len(parts)} windows shown"
        out.append(listed(f"chain-{at}", title, names, (values, low, high), ("time, UTC", "value"), ordered=True))
    return out


def so_far(answer: Mapping[str, Any]) -> tuple[str, list[Picture]]:
    """The answers at positions that have closed, in a sentence on the last one and in pictures.

    Args:
        answer: of one window that is still open, with one position at least.
    """
    told = []
    for one in answer["answers"]:
        low, high = one["intervals"][-1]
        part = " on a part of the filter" if one["partial"][-1] else ""
        told.append(f"{one['filter']} is {charts.shown(one['values'][-1])} ({charts.between(low, high)}){part}")
    where = _cell(answer["answers"][0], -1)
    sentence = f"At {where}, the last position that has closed, with 95% intervals: {'; '.join(told)}."
    return sentence, pictures(answer, " so far, in a window that is still open")


def tables(answer: Mapping[str, Any]) -> list[Table]:
    """None."""
    del answer
    return []


def _cell(one: Mapping[str, Any], place: int) -> str:
    """A place in words: the labels of a table's cell, a time, or a position."""
    if one.get("labels") is not None:
        return ", ".join(f"{column} {value}" for column, value in one["labels"][place].items())
    if one.get("times") is not None:
        return str(one["times"][place]).removesuffix(":00Z").removesuffix("Z").replace("T", " ")
    return str(one["positions"][place])
