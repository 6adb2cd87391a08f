"""Differences of a number between two windows, with intervals.

In: two answers as plain data, with the keys of the command line's JSON. Out: their difference. Touches: nothing.
Source: G. Y. Zou and A. Donner, Statistics in Medicine 27(10), 2008, doi:10.1002/sim.3095.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sketchstream.errors import EstimateError
from sketchstream.kinds import continuing_kind, presentation
from sketchstream.pictures.numbers import SHARES
from sketchstream.query.times import to_ms

End = float | None
Point = tuple[End, End, End]
"""A value, and the ends of its interval; an end of None is infinite, or there is no interval."""
UNEVEN: Final = 0.12
"""Largest distance of the correlation of two groups' counts of one item from that of a random ranking."""
INDEPENDENT: Final = "the noises of the two numbers are independent"
SHARED: Final = (
    "the later window's number reaches back into the earlier window and holds its noise, so there is no interval; "
    "compare windows that do not follow each other"
)
OUTSIDE: Final = (
    "an estimate lies outside its own interval, which holds possible values only: the noise is larger than the number, "
    "and the difference is computed from the estimates"
)
BOUNDS: Final = frozenset((0.0, 1.0))
"""Least and largest possible values of counts, norms, shares and means."""
WRAPPED: Final = (
    "counts are kept modulo a modulus, and one of the numbers is a bound for that reason: the difference of what was "
    "counted may be another"
)
MAX_NAMES: Final = 20
"""Most names of numbers that an error lists."""


@dataclass(frozen=True, kw_only=True)
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
        lacking: says in words which windows are not known to be complete; empty if all are.
        bound: "modulo" where a number is a bound because counts are kept modulo p: the difference is one of such
            numbers, and of the counts themselves it may be anything. None: it is an estimate.
    """

    title: str
    value: End
    low: End
    high: End
    first: Point
    second: Point
    independent: bool
    bound: str | None = None
    lacking: str = ""

    @property
    def assumes(self) -> str:
        """The assumption of the interval, or the reason why there is none; and whether an estimate is impossible."""
        noise = INDEPENDENT if self.independent else f"nothing: {SHARED}"
        outside = any(
            value is not None and ((low is not None and value < low) or (high is not None and value > high))
            for value, low, high in (self.first, self.second)
        )
        notes = (self.lacking, "" if self.bound is None else WRAPPED, OUTSIDE if outside else "")
        return "; ".join([noise, *filter(None, notes)])

    def __str__(self) -> str:
        """The difference with its interval."""
        if self.value is None:
            return f"{self.title}: no number"
        ends = "no interval" if self.low is None and self.high is None else f"[{_end(self.low)}, {_end(self.high)}]"
        notes = "".join(f" ({note})" for note in (self.lacking, WRAPPED, OUTSIDE) if note and note in self.assumes)
        return f"{self.title}: {self.value:.6g} {ends}{notes}"


def difference(spec: Any, first: Mapping[str, Any], second: Mapping[str, Any], metric: str) -> Difference:
    """Subtract a number of one window from that of another.

    Args:
        spec: spec of the sketch in the present configuration; None: it was removed.
        first: answer of the window of interest.
        second: answer of the window to compare with, of the same sketch.
        metric: name of the number, as `sketchstream.kinds.presentation` knows it.

    Raises:
        EstimateError: an answer does not have this number, or the windows define it differently.
    """
    rows, bounds = [], []
    for answer in (first, second):
        number = presentation.presentation_of(answer).number(answer, metric) if isinstance(metric, str) else None
        if number is None:
            raise no_number(metric, presentation.known_names(answer))
        rows.append((number[0], (number[1]["value"], number[1]["low"], number[1]["high"])))
        bounds.append(number[1].get("bound"))
    (title, a), (other, b) = rows
    if title != other:
        raise EstimateError(
            f"{metric!r:.40} is not the same number in both windows: the domain was changed between them. Choose "
            "windows before the change, or after it"
        )
    items = [float(answer["d"]) for answer in (first, second) if isinstance(answer.get("d"), int)]
    value, low, high = subtract(a, b, (*BOUNDS, *items))
    factor = _of_samples(first, second)
    low, high = (None if end is None or value is None else value + factor * (end - value) for end in (low, high))
    if metric.partition(".")[0] in SHARES and value is not None:  # shares differ by no more than 1
        low, high = max(-1.0, -1.0 if low is None else low), min(1.0, 1.0 if high is None else high)
    lacks = lacking(first, second)
    if shares_noise(spec, first, second, metric):
        return Difference(
            title=title, value=value, low=None, high=None, first=a, second=b, independent=False, lacking=lacks
        )
    bound = "modulo" if any(bounds) else None
    return Difference(
        title=title, value=value, low=low, high=high, first=a, second=b, independent=True, bound=bound, lacking=lacks
    )


def lacking(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Say that the difference includes what windows lack; empty if both are complete, or are not of a worker.

    Args:
        first: answer, or facts, of the window of interest.
        second: answer, or facts, of the window to compare with.
    """
    states = {False: "is not complete", None: "is not known to be complete"}
    lacks = [
        f"the window that begins at {answer['window_start']} {states[answer['complete']]}"
        for answer in (first, second)
        if answer.get("complete", True) in states
    ]
    # two groups of one window lack the same
    return f"{' and '.join(dict.fromkeys(lacks))}: what is missing there is part of the difference" if lacks else ""


def shares_noise(spec: Any, first: Mapping[str, Any], second: Mapping[str, Any], metric: str) -> bool:
    """Whether a number of one window contains noise of the other window.

    Every window has its own noise; only answers that use the window before also contain that window's noise.

    Args:
        spec: spec of the sketch in the present configuration; None: unknown, any number may use the window before.
        first: answer of a window.
        second: answer of another window.
        metric: name of the number.
    """
    earlier, later = sorted((first, second), key=lambda answer: to_ms(answer["window_start"], "window_start") or 0)
    if "joined" not in later or later["joined"] != earlier["window_start"]:
        return False
    start, stop = (to_ms(later[end], end) or 0 for end in ("window_start", "window_end"))
    kind = None if spec is None else continuing_kind(spec)
    return spec is None or (kind is not None and kind.reaches_back(spec, metric, (start, stop)))


def _of_samples(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """How much wider the interval is because both answers are scaled up from samples that depend on each other.

    Samples of one group in two windows have the same items: there independence is assumed, and too wide.
    """
    if first.get("group") == second.get("group"):
        return 1.0
    samples = [groups for answer in (first, second) if (groups := (answer.get("sample") or {}).get("groups"))]
    if len(samples) < 2:
        return 1.0
    # What they count of one item has a correlation of about -1 / (groups - 1): a difference has a larger variance, by
    # as much if all items are in both groups.
    return math.sqrt(min(1.0 + 1.0 / (min(samples) - 1) + UNEVEN, 2.0))


def subtract(first: Point, second: Point, bounds: Collection[float] = BOUNDS) -> Point:
    """Subtract two independent estimates, with an interval; an infinite end is None.

    Args:
        first: value, low, high; an end of None is infinite.
        second: value, low, high of the number to subtract.
        bounds: least and largest possible values, at which intervals are cut.

    Source: Zou & Donner 2008, eq. 4, with the distances of `_interval_reach`.
    """
    a, b = first[0], second[0]
    if a is None or b is None:
        return None, None, None
    a_down, a_up = _interval_reach(a, first[1], first[2], bounds)
    b_down, b_up = _interval_reach(b, second[1], second[2], bounds)
    low = None if a_down is None or b_up is None else a - b - math.hypot(a_down, b_up)
    high = None if a_up is None or b_down is None else a - b + math.hypot(a_up, b_down)
    return a - b, low, high


def mean(points: Sequence[Point], *, together: bool) -> Point:
    """The mean of a number over windows with noises of their own, with an interval; an infinite end is None.

    Where items are hashed into slots or sampled, the same items meet in the same slots in every window, so that errors
    go together and do not average out: the ends are averaged, which holds however errors depend on each other. Else
    intervals of counts lie symmetrically around unbiased linear estimates of their numbers: the mean of
    these estimates is taken, so that no bias of single estimates adds up. A whole end of an interval that is not around
    its estimate was cut at a possible value, or follows from an exact law: its middle is not such an estimate, and ends
    are averaged too.

    Args:
        points: value, low and high of each window, at least one; an end of None is infinite.
        together: whether the errors of windows may go together: domains that are open or sampled.
    """
    count = len(points)
    lows, highs = ([point[end] for point in points] for end in (1, 2))
    value = sum(point[0] or 0.0 for point in points) / count
    low, high = (None if None in ends else sum(end or 0.0 for end in ends) / count for ends in (lows, highs))
    if together or count == 1 or low is None or high is None or any(map(_is_off_center, points)):
        return value, low, high
    middle = (low + high) / 2
    half = math.hypot(*((b or 0.0) - (a or 0.0) for a, b in zip(lows, highs, strict=True))) / 2 / count
    return middle, middle - half, middle + half


def _is_off_center(point: Point) -> bool:
    """Whether an end of an interval is whole, and the interval not around its estimate."""
    value, low, high = (end or 0.0 for end in point)
    return (low.is_integer() or high.is_integer()) and value != (low + high) / 2


def _interval_reach(value: float, low: End, high: End, bounds: Collection[float]) -> tuple[End, End]:
    """How far an interval would reach below and above its estimate if its ends were not cut; None: without limit.

    An end at the least or largest possible value was cut there, and one on the wrong side of the estimate was too: the
    distance to it says how far the estimate is from that value, and not how wrong it may be. The interval is taken to
    reach as far as on the other side. Otherwise intervals of differences near 0 would cover the truth in 90% of cases.
    """
    down, up = (None if end is None else abs(value - end) for end in (low, high))
    if low is not None and (low in bounds or low > value):
        down = None if up is None or down is None else max(down, up)
    if high is not None and (high in bounds or high < value):
        up = None if up is None or down is None else max(down, up)
    return down, up


def no_number(metric: str, names: list[str]) -> EstimateError:
    """The error for an unknown number, which lists the available ones.

    Args:
        metric: requested name.
        names: available names.
    """
    listed = ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")
    return EstimateError(f"the answers have no number {metric!r:.40} with an interval; they have {listed or 'none'}")


def _end(value: End) -> str:
    return "unbounded" if value is None else f"{value:.6g}"
