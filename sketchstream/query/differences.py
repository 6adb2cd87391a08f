"""Differences of a number between two windows, with intervals.

In: two answers as plain data, with the keys of the command line's JSON. Out: their difference. Touches: nothing.
Source: G. Y. Zou and A. Donner, Statistics in Medicine 27(10), 2008, doi:10.1002/sim.3095.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sketchstream import kinds
from sketchstream.errors import EstimateError
from sketchstream.kinds import shown
from sketchstream.kinds.profile.group_list import difference_factor
from sketchstream.query.windows import to_ms

End = float | None
Point = tuple[End, End, End]
"""A value, and the ends of its interval; an end of None is infinite, or there is no interval."""
INDEPENDENT: Final = "the noises of the two windows are independent"
SHARED: Final = (
    "nothing: the later window's number reaches back into the earlier window and holds its noise, so there is no "
    "interval; compare windows that do not follow each other"
)
NAMED: Final = 20
"""Most names of numbers that an error lists."""


@dataclass(frozen=True)
class Difference:
    """A number in two windows, and its difference.

    Args:
        title: title of the number.
        value: the first minus the second.
        low: lower end of the 95% interval; None: there is none.
        high: upper end of the 95% interval; None: there is none.
        first: the number in the first window, with its interval.
        second: the number in the second window, with its interval.
        independent: whether the noise of the two numbers is independent; otherwise there is no interval.
    """

    title: str
    value: End
    low: End
    high: End
    first: Point
    second: Point
    independent: bool

    @property
    def assumes(self) -> str:
        """The assumption of the interval, or the reason why there is none."""
        return INDEPENDENT if self.independent else SHARED

    def __str__(self) -> str:
        """The difference with its interval."""
        if self.value is None:
            return f"{self.title}: no number"
        ends = "no interval" if self.low is None and self.high is None else f"[{_end(self.low)}, {_end(self.high)}]"
        return f"{self.title}: {self.value:.6g} {ends}"


def difference(spec: Any, first: Mapping[str, Any], second: Mapping[str, Any], metric: str) -> Difference:
    """Subtract a number of one window from that of another.

    Args:
        spec: spec of the sketch in the present configuration; None: it was removed.
        first: answer of the window of interest.
        second: answer of the window to compare with, of the same sketch.
        metric: name of the number, as `sketchstream.kinds.shown` knows it.

    Raises:
        EstimateError: an answer does not have this number, or the windows define it differently.
    """
    found = []
    for answer in (first, second):
        one = shown.of(answer).number(answer, metric)
        if one is None:
            raise no_number(metric, list(shown.of(answer).numbers(answer)))
        found.append((one[0], (one[1]["value"], one[1]["low"], one[1]["high"])))
    (title, a), (other, b) = found
    if title != other:
        msg = (
            f"{metric!r:.40} is not the same number in both windows: the domain was changed between them. Choose "
            "windows before the change, or after it"
        )
        raise EstimateError(msg)
    value, low, high = subtract(a, b)
    factor = _of_samples(first, second)
    low, high = (None if end is None or value is None else value + factor * (end - value) for end in (low, high))
    if shares_noise(spec, first, second, metric):
        return Difference(title, value, None, None, a, b, independent=False)
    return Difference(title, value, low, high, a, b, independent=True)


def shares_noise(spec: Any, first: Mapping[str, Any], second: Mapping[str, Any], metric: str) -> bool:
    """Whether a number of one window contains noise of the other window.

    Every window has its own noise; only answers that use the window before also contain that window's noise.

    Args:
        spec: spec of the sketch in the present configuration; None: unknown, any number may use the window before.
        first: answer of a window.
        second: answer of another window.
        metric: name of the number.
    """
    earlier, later = sorted((first, second), key=lambda one: to_ms(one["window_start"], "window_start") or 0)
    if "joined" not in later or later["joined"] != earlier["window_start"]:
        return False
    start, stop = (to_ms(later[end], end) or 0 for end in ("window_start", "window_end"))
    return spec is None or kinds.of(spec).reaches_back(spec, metric, (start, stop))


def _of_samples(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """How much wider the interval is because both answers are scaled up from samples that depend on each other.

    Samples of one group in two windows have the same items: there independence is assumed, and too wide.
    """
    if first.get("group") == second.get("group"):
        return 1.0
    samples = [one["sample"]["groups"] for one in (first, second) if one.get("sample")]
    return difference_factor(min(samples)) if len(samples) == 2 else 1.0


def subtract(first: Point, second: Point) -> Point:
    """Subtract two independent estimates, with an interval; an infinite end is None.

    Args:
        first: value, low, high; an end of None is infinite.
        second: value, low, high of the number to subtract.

    Source: Zou & Donner 2008, eq. 4.
    """
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    if a is None or b is None:
        return None, None, None
    low = None if a_low is None or b_high is None else a - b - math.hypot(a - a_low, b_high - b)
    high = None if a_high is None or b_low is None else a - b + math.hypot(a_high - a, b - b_low)
    return a - b, low, high


def no_number(metric: str, names: list[str]) -> EstimateError:
    """The error for an unknown number, which lists the available ones.

    Args:
        metric: requested name.
        names: available names.
    """
    there = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
    return EstimateError(f"the answers have no number {metric!r:.40} with an interval; they have {there or 'none'}")


def _end(value: End) -> str:
    return "unbounded" if value is None else f"{value:.6g}"
