"""Counts of a sketch of kind `gaussian` as sentences, numbers by name and pictures.

In: answers as plain data. Out: see `sketchstream.kinds.presentation`. Touches: nothing.

Numbers: "sum" of all counts, and "count.P", the published count of the item at position P of the domain, from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sketchstream.kinds.presentation import Presentation
from sketchstream.pictures.numbers import Number, Panel, draw_numbers, index_of, item_name
from sketchstream.texts.number_texts import interval_text, number_text

OFFERED: Final = 100
"""Most items that a page offers to follow: those with the largest counts."""
NAMED: Final = 3
SUM: Final = "sum of all counts"


def headline(answer: Mapping[str, Any]) -> str:
    """The sum and the largest counts in a sentence."""
    total, order = answer["sum"], _largest(answer)[:NAMED]
    ends = interval_text(total["low"], total["high"])
    several = f"The {len(answer['raw']):,} counts add up" if len(answer["raw"]) > 1 else "The count comes"
    first = ", ".join(f"{_name(answer, at)} ({number_text(answer['raw'][at])})" for at in order)
    most = f"; the largest published ones are {first}" if len(answer["raw"]) > NAMED else ""
    return f"{several} to about {number_text(total['value'])} (95% interval {ends}){most}."


def numbers(answer: Mapping[str, Any]) -> dict[str, str]:
    """The sum, then the counts of the largest items."""
    slots, order = answer["labels"]["slot"], _largest(answer)[:OFFERED]
    return {"sum": SUM} | {f"count.{slots[at]}": _title(answer, at) for at in order}


def number(answer: Mapping[str, Any], name: str) -> tuple[str, Number] | None:
    """A number by its name."""
    if name == "sum":
        return SUM, answer["sum"]
    at = index_of(name, "count", answer["labels"]["slot"])
    if at is None:
        return None
    low, high = answer["intervals"][at]
    return _title(answer, at), {"value": answer["raw"][at], "low": low, "high": high}


def pictures(answer: Mapping[str, Any]) -> list[Panel]:
    """The published counts, in the order of the domain."""
    low, high = np.array(answer["intervals"], np.float64).reshape(-1, 2).T
    names = [_name(answer, at) for at in range(len(answer["raw"]))]
    panel = draw_numbers("counts", "Published counts", names, (answer["raw"], low, high), ("item", "count"))
    return [
        panel.noted(
            "In the order of the domain; each interval holds by itself. The API's parameter top gives the largest "
            "ones, with intervals that hold together."
        )
    ]


def _largest(answer: Mapping[str, Any]) -> list[int]:
    """Slots by their published counts, the largest first."""
    order: list[int] = np.argsort(-np.asarray(answer["raw"], np.float64), kind="stable").tolist()
    return order


def _name(answer: Mapping[str, Any], at: int) -> str:
    """The item of a slot as text."""
    slot, item = answer["labels"]["slot"][at], answer["labels"]["item"][at]
    return f"item {slot}" if item is None or item == slot else item_name(item)


def _title(answer: Mapping[str, Any], at: int) -> str:
    return f"count of {_name(answer, at)}"


PRESENTATION: Final = Presentation(
    purpose="Counts the events of each item of a list",
    headline=headline,
    numbers=numbers,
    number=number,
    pictures=pictures,
)
