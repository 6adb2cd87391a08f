"""Answers of a sketch of kind `convolution` as sentences, numbers by name and pictures.

In: answers as plain data. Out: see `sketchstream.kinds.presentation`. Touches: nothing.

Numbers: "answer.F.P", the answer of filter F at place P of its answers, and "last.F", the one at its last place, which
of a running sum is that of the whole window; F and P count from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from sketchstream.kinds.presentation import Presentation
from sketchstream.pictures.numbers import Number, Panel, draw_numbers
from sketchstream.texts.number_texts import interval_text, number_text

OFFERED: Final = 300
"""Most cells of tables that a page offers to follow."""


def headline(answer: Mapping[str, Any]) -> str:
    """The last answer of each filter; of a table, the number of its answers."""
    phrases = []
    for at, entry in enumerate(answer["filters"]):
        named = number(answer, f"last.{at}") if "position" in entry["columns"] else None
        if named is None:
            phrases.append(f"{entry['name']} has {entry['count']:,} answers")
            continue
        title, last = named
        phrases.append(f"{title}: {number_text(last['value'] or 0.0)} ({interval_text(last['low'], last['high'])})")
    return f"With 95% intervals, {'; '.join(phrases)}."


def numbers(answer: Mapping[str, Any]) -> dict[str, str]:
    """The last answer of each series, and the cells of each table."""
    out: dict[str, str] = {}
    for at, entry in enumerate(answer["filters"]):
        names = [f"last.{at}"]
        if "position" not in entry["columns"]:
            names = [f"answer.{at}.{place}" for place in range(min(entry["count"], OFFERED))]
        out |= {name: named[0] for name in names if (named := number(answer, name)) is not None}
    return out


def number(answer: Mapping[str, Any], name: str) -> tuple[str, Number] | None:
    """An answer by its filter and its place."""
    what, *rest = name.split(".")
    parts = {"last": 1, "answer": 2}.get(what)
    if parts != len(rest) or not all(text.isdecimal() for text in rest) or int(rest[0]) >= len(answer["filters"]):
        return None
    entry = answer["filters"][int(rest[0])]
    place = entry["count"] - 1 if what == "last" else int(rest[1])
    if not 0 <= place < entry["count"]:
        return None
    there = entry["offset"] + place
    low, high = answer["intervals"][there]
    where = "at the end" if what == "last" else f"at {_cell(answer, entry, there, timed=False)}"
    return f"{entry['name']} {where}", {"value": answer["values"][there], "low": low, "high": high}


def pictures(answer: Mapping[str, Any], remark: str = "") -> list[Panel]:
    """Charts of each filter's answers."""
    out = []
    for at, entry in enumerate(answer["filters"]):
        series, places = "position" in entry["columns"], _places_of_filter(entry)
        names = [_cell(answer, entry, place) for place in places]
        what = "cell" if not series else "time, UTC" if "time" in entry["columns"] else "position"
        panel = draw_numbers(
            f"filter-{at}", f"{entry['name']}{remark}", names, _numbers(answer, entry), (what, "value"), ordered=series
        )
        partial = sum(answer["partial"][place] for place in places)
        note = f"{partial} value{'s' * (partial != 1)} stand{'s' * (partial == 1)} on a part of the filter only."
        out.append(panel.noted(note if partial else ""))
    return out


def chain_windows(answers: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Each filter's answers at the times of several windows, one after the other."""
    out = []
    for at, first in enumerate(answers[-1]["filters"]):
        parts = [(answer, answer["filters"][at]) for answer in answers if at < len(answer["filters"])]
        several = len(parts) > 1 and all(each["name"] == first["name"] for _, each in parts)
        if not several or "time" not in first["columns"]:
            continue
        names = [_cell(one, each, place) for one, each in parts for place in _places_of_filter(each)]
        value, low, high = map(np.concatenate, zip(*(_numbers(*part) for part in parts), strict=True))
        title = f"{first['name']}, the last {len(parts)} windows shown"
        out.append(draw_numbers(f"chain-{at}", title, names, (value, low, high), ("time, UTC", "value"), ordered=True))
    return out


def so_far(answer: Mapping[str, Any]) -> tuple[str, list[Panel]]:
    """The answers at positions that have closed, at least one, in a sentence on the last one and in pictures."""
    phrases = []
    for entry in answer["filters"]:
        last = _places_of_filter(entry)[-1]
        low, high = answer["intervals"][last]
        part = " on a part of the filter" if answer["partial"][last] else ""
        phrases.append(f"{entry['name']} is {number_text(answer['values'][last])} ({interval_text(low, high)}){part}")
    first = answer["filters"][0]
    where = _cell(answer, first, _places_of_filter(first)[-1])
    sentence = f"At {where}, the last position that has closed, with 95% intervals: {'; '.join(phrases)}."
    return sentence, pictures(answer, " so far, in a window that is still open")


def _places_of_filter(entry: Mapping[str, Any]) -> range:
    """Places of a filter's answers among all."""
    return range(entry["offset"], entry["offset"] + entry["count"])


def _numbers(answer: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Values of a filter's answers, and both ends of their intervals."""
    places = slice(entry["offset"], entry["offset"] + entry["count"])
    low, high = np.array(answer["intervals"][places], np.float64).reshape(-1, 2).T
    return answer["values"][places], low, high


def _cell(answer: Mapping[str, Any], entry: Mapping[str, Any], place: int, *, timed: bool = True) -> str:
    """A place in words: a table's cell, a time or, where numbers of windows have one title, a position."""
    labels = answer["labels"]
    if "position" not in entry["columns"]:
        columns = ((name, labels[name][place]) for name in entry["columns"])
        return ", ".join(f"{name} {value}" for name, value in columns if value is not None)
    if "time" in entry["columns"] and timed:
        return str(labels["time"][place]).removesuffix(":00Z").removesuffix("Z").replace("T", " ")
    position = str(labels["position"][place])
    return position if timed else f"position {position}"


PRESENTATION: Final = Presentation(
    purpose="Keeps a series of counts, read through filters",
    unlisted=("answer.F.P (filter F, place P, both from 0)",),
    headline=headline,
    numbers=numbers,
    number=number,
    pictures=pictures,
    chain_windows=chain_windows,
    so_far=so_far,
)
