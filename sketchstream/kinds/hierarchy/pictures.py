"""Counts of a sketch of kind `hierarchy` as sentences, numbers by name and pictures.

In: answers as plain data. Out: see `sketchstream.kinds.presentation`. Touches: nothing.

Numbers: "count.N", the count of node N of the tree; the root is 0, then follow the levels, each in its order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sketchstream.kinds.presentation import Presentation
from sketchstream.pictures.numbers import Number, Panel, draw_numbers, index_of
from sketchstream.texts.number_texts import interval_text, number_text

OFFERED: Final = 100
"""Most nodes that a page offers to follow."""


def headline(answer: Mapping[str, Any]) -> str:
    """The first number, and how many there are."""
    low, high = answer["intervals"][0]
    total = f"{number_text(answer['values'][0])} (95% interval {interval_text(low, high)})"
    return f"{len(answer['values']):,} counts; {_title(answer, 0)}: {total}."


def numbers(answer: Mapping[str, Any]) -> dict[str, str]:
    """The nodes from the top."""
    return {f"count.{node}": _title(answer, at) for at, node in enumerate(answer["nodes"][:OFFERED])}


def number(answer: Mapping[str, Any], name: str) -> tuple[str, Number] | None:
    """The count of a node by its number."""
    at = index_of(name, "count", answer["nodes"])
    if at is None:
        return None
    low, high = answer["intervals"][at]
    value = {"value": answer["values"][at], "stderr": answer["stderr"][at], "low": low, "high": high}
    return _title(answer, at), value


def pictures(answer: Mapping[str, Any]) -> list[Panel]:
    """Each level as bars, in the order of its nodes."""
    low, high = np.array(answer["intervals"], np.float64).reshape(-1, 2).T
    level, values, out = np.array(answer["labels"]["level"]), np.array(answer["values"]), []
    for place, name in enumerate(answer["levels"]):
        at = np.flatnonzero(level == name)
        if len(at):
            names = [_title(answer, node) for node in at.tolist()]
            out.append(draw_numbers(f"level-{place}", name, names, (values[at], low[at], high[at]), (name, "count")))
    return out


def _title(answer: Mapping[str, Any], at: int) -> str:
    """The names on the way to a node."""
    path = (answer["labels"][level][at] for level in answer["levels"])
    return ", ".join(name for name in path if name is not None) or "all"


PRESENTATION: Final = Presentation(
    purpose="Counts events on all levels of a tree",
    headline=headline,
    numbers=numbers,
    number=number,
    pictures=pictures,
)
