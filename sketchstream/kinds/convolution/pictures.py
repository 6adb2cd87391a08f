"""Answers of a sketch of kind `convolution` as sentences, numbers by name and pictures.

In: answers as plain data. Out: see `sketchstream.kinds.shown`. Touches: nothing.

Numbers: "answer.F.P", the answer of filter F at place P of its answers, and "last.F", the one at its last place, which
of a running sum is that of the whole window; F and P count from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from sketchstream.pictures import charts
from sketchstream.pictures.numbers import Number, Panel, listed

PURPOSE: Final = "Keeps a series of counts, read through filters"

UNLISTED: Final = ("answer.F.P (filter F, place P, both from 0)",)
"""Numbers that are not offered one by one."""
OFFERED: Final = 300
"""Most cells of tables that a page offers to follow."""


def headline(answer: Mapping[str, Any]) -> str:
    """The last answer of each filter; of a table, the number of its answers."""
    told = []
    for at, one in enumerate(answer["filters"]):
        found = number(answer, f"last.{at}") if "position" in one["columns"] else None
        if found is None:
            told.append(f"{one['name']} has {one['count']:,} answers")
            continue
        title, last = found
        told.append(f"{title}: {charts.spelled(last['value'] or 0.0)} ({charts.between(last['low'], last['high'])})")
    return f"With 95% intervals, {'; '.join(told)}."


def numbers(answer: Mapping[str, Any]) -> dict[str, str]:
    """The last answer of each series, and the cells of each table."""
    out: dict[str, str] = {}
    for at, one in enumerate(answer["filters"]):
        names = [f"last.{at}"]
        if "position" not in one["columns"]:
            names = [f"answer.{at}.{place}" for place in range(min(one["count"], OFFERED))]
        out |= {name: found[0] for name in names if (found := number(answer, name)) is not None}
    return out


def number(answer: Mapping[str, Any], name: str) -> tuple[str, Number] | None:
    """An answer by its filter and its place."""
    what, *rest = name.split(".")
    parts = {"last": 1, "answer": 2}.get(what)
    if parts != len(rest) or not all(one.isdecimal() for one in rest) or int(rest[0]) >= len(answer["filters"]):
        return None
    one = answer["filters"][int(rest[0])]
    place = one["count"] - 1 if what == "last" else int(rest[1])
    if not 0 <= place < one["count"]:
        return None
    there = one["offset"] + place
    low, high = answer["intervals"][there]
    where = "at the end" if what == "last" else f"at {_cell(answer, one, there, timed=False)}"
    return f"{one['name']} {where}", {"value": answer["values"][there], "low": low, "high": high}


def pictures(answer: Mapping[str, Any], remark: str = "") -> list[Panel]:
    """Each filter's answers."""
    out = []
    for at, one in enumerate(answer["filters"]):
        series, places = "position" in one["columns"], _places(one)
        names = [_cell(answer, one, place) for place in places]
        what = "cell" if not series else "time, UTC" if "time" in one["columns"] else "position"
        found = listed(
            f"filter-{at}", f"{one['name']}{remark}", names, _numbers(answer, one), (what, "value"), ordered=series
        )
        partial = sum(answer["partial"][place] for place in places)
        note = f"{partial} value{'s' * (partial != 1)} stand{'s' * (partial == 1)} on a part of the filter only."
        out.append(found.noted(note if partial else ""))
    return out


def chained(answers: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Each filter's answers at the times of several windows, one after the other."""
    out = []
    for at, first in enumerate(answers[-1]["filters"]):
        parts = [(one, one["filters"][at]) for one in answers if at < len(one["filters"])]
        several = len(parts) > 1 and all(each["name"] == first["name"] for _, each in parts)
        if not several or "time" not in first["columns"]:
            continue
        names = [_cell(one, each, place) for one, each in parts for place in _places(each)]
        value, low, high = map(np.concatenate, zip(*(_numbers(*part) for part in parts), strict=True))
        title = f"{first['name']}, the last {len(parts)} windows shown"
        out.append(listed(f"chain-{at}", title, names, (value, low, high), ("time, UTC", "value"), ordered=True))
    return out


def so_far(answer: Mapping[str, Any]) -> tuple[str, list[Panel]]:
    """The answers at positions that have closed, in a sentence on the last one and in pictures.

    Args:
        answer: of one window that is still open, with one position at least.
    """
    told = []
    for one in answer["filters"]:
        last = _places(one)[-1]
        low, high = answer["intervals"][last]
        part = " on a part of the filter" if answer["partial"][last] else ""
        told.append(f"{one['name']} is {charts.spelled(answer['values'][last])} ({charts.between(low, high)}){part}")
    first = answer["filters"][0]
    where = _cell(answer, first, _places(first)[-1])
    sentence = f"At {where}, the last position that has closed, with 95% intervals: {'; '.join(told)}."
    return sentence, pictures(answer, " so far, in a window that is still open")


def _places(one: Mapping[str, Any]) -> range:
    """Places of a filter's answers among all."""
    return range(one["offset"], one["offset"] + one["count"])


def _numbers(answer: Mapping[str, Any], one: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Values of a filter's answers, and both ends of their intervals."""
    places = slice(one["offset"], one["offset"] + one["count"])
    low, high = np.array(answer["intervals"][places], np.float64).reshape(-1, 2).T
    return answer["values"][places], low, high


def _cell(answer: Mapping[str, Any], one: Mapping[str, Any], place: int, *, timed: bool = True) -> str:
    """A place in words: a table's cell, a time or, where numbers of windows have one title, a position."""
    labels = answer["labels"]
    if "position" not in one["columns"]:
        told = ((name, labels[name][place]) for name in one["columns"])
        return ", ".join(f"{name} {value}" for name, value in told if value is not None)
    if "time" in one["columns"] and timed:
        return str(labels["time"][place]).removesuffix(":00Z").removesuffix("Z").replace("T", " ")
    position = str(labels["position"][place])
    return position if timed else f"position {position}"
