"""Numbers of several windows: series, series of all groups, differences of two windows.

In: a `Service`, names of numbers. Out: plain data, for the HTTP API and the page. Touches: the store, reading; the
pool, which computes answers of groups that nobody has asked for yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from sketchstream.errors import ConfigError
from sketchstream.kinds import presentation
from sketchstream.query import differences
from sketchstream.query.differences import Point, no_number
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.serve.status import pending_seconds
from sketchstream.serve.store.stored_windows import INCIDENT, SETTLED, StoredWindow

if TYPE_CHECKING:
    from sketchstream.serve.service import Service, WindowAnswer

AT_ONCE: Final = 16
"""Most answers of a group that are computed for one call of `series`."""


def series(
    service: Service,
    name: str,
    metric: str,
    since: int | None = None,
    until: int | None = None,
    group: str | None = None,
) -> dict[str, Any]:
    """A number by window, with its interval, as far as it is computed.

    Args:
        service: has the answers.
        name: name of the sketch.
        metric: such as "distinct", "at_least.10", "exactly.1", "mean", "quantile.0.9".
        since: windows that start at or after this time, ms.
        until: windows that end at or before this time, ms.
        group: group of a sketch with groups. Its answers are computed when they are asked for: some at each call.

    Returns:
        `points`, ascending, each with window_start, window_end, complete, value, low, high, and `answer` as of
        `describe`; numbers are None where they are not there. `pending`: how many are being computed.

    Raises:
        ConfigError: a range of too many windows, or not a name of a number.
        EstimateError: no answer that is there has this number.
    """
    service.catalog.require_number(name, metric)
    service.catalog.require_group(name, group)
    question = Question(group=group)
    windows = service.require_windows(name, since, until)
    points_stored = {} if group is not None else service.store.points(name, metric, since, until)
    usual = service.store.answered(windows) if group is not None else None
    answered = have_computed(service, windows, question) if group is not None else set()
    points: list[dict[str, Any]] = []
    always = _bound(service, name, metric)
    pending = ready = 0
    names: Sequence[str] = ()
    title = ""
    for stored in reversed(windows):
        state = service.answer_state(stored, usual)
        if group is not None and state == "on_request":
            if stored.input in answered:
                state = "ready"
            elif service.pool.refused(stored, question) is not None:
                state = "none"
            elif stored.state == SETTLED:
                state = "pending"
        stored_point = points_stored.get(stored.window)
        ends, bound = (None, None) if stored_point is None else (stored_point[:3], stored_point[3])
        if state == "ready" and ends is None:
            read = service.number(stored, question, metric)
            names, title, ends, bound = names or read.others, title or read.title, read.point, read.bound
            if read.title != title:  # since a change of the domain the position has another item
                ends = None
        pending += state == "pending"
        ready += state == "ready"
        ends = ends if state == "ready" else None
        mark = {} if ends is None or bound is None or always else {"bound": bound}
        points.append(_series_point(stored, state, ends) | mark)
    points.reverse()
    if ready and not any(point["value"] is not None for point in points):
        raise no_number(metric, list(names))
    return {
        "sketch": name,
        "metric": metric,
        "title": title or _title(service, name, metric, windows, question),
        **always,
        "level": 0.95,
        "pending": pending,
        "pending_seconds": pending_seconds(service, pending),
        "points": points,
    }


def series_by_group(
    service: Service, name: str, metric: str, since: int | None = None, until: int | None = None
) -> dict[str, Any]:
    """A number by window for each group of a sketch; see `series`.

    Args:
        service: has the answers.
        name: name of the sketch.
        metric: see `series`.
        since: windows that start at or after this time, ms.
        until: windows that end at or before this time, ms.

    Raises:
        ConfigError: the sketch has no groups, or these are too many numbers.
        EstimateError: no answer that is there has this number.
    """
    groups = service.catalog.groups(name)
    if not groups:
        raise ConfigError(f"sketch {name} has no groups: leave by out")
    service.require_windows(name, since, until, groups=len(groups))
    several = [{"group": group, **series(service, name, metric, since, until, group)} for group in groups]
    pending = sum(series["pending"] for series in several)
    parts = [{name: series[name] for name in ("group", "title", "pending", "points")} for series in several]
    shared = ("sketch", "metric", "bound", "level")
    same: dict[str, Any] = {name: several[0][name] for name in shared if name in several[0]}
    return {**same, "pending": pending, "pending_seconds": pending_seconds(service, pending), "groups": parts}


def computed(service: Service, windows: Sequence[StoredWindow], metric: str, group: str | None) -> list[Point | None]:
    """A number by window, if already computed; nothing is computed for this.

    Args:
        service: has the answers.
        windows: windows of one sketch.
        metric: see `series`.
        group: group of a sketch that has groups.
    """
    question = Question(group=group)
    answered = (window.state != INCIDENT and window.guarantee is not None for window in windows)
    pairs = zip(windows, answered, strict=True)
    return [service.number(window, question, metric).point if is_answered else None for window, is_answered in pairs]


def have_computed(service: Service, windows: Sequence[StoredWindow], question: Question) -> set[bytes]:
    """Have the newest settled windows without an answer to a question computed, a few at a time.

    Returns:
        Inputs of the windows whose answer is there.
    """
    answered = service.store.answered(windows, question.text)
    lacking = (
        window
        for window in reversed(windows)
        if window.state == SETTLED and window.input not in answered and service.pool.refused(window, question) is None
    )
    for stored in islice(lacking, AT_ONCE):
        if not service.ask_soon(stored, question):
            break
    return answered


def difference(service: Service, first: WindowAnswer, second: WindowAnswer) -> Callable[[str], dict[str, Any]]:
    """Any number of one window minus that of another, with an interval; their answers are read once.

    The noises of two windows are independent, and the interval is that of Zou and Donner for the difference of two
    independent estimates with intervals of their own. There is none where one of the numbers holds noise of the
    other's window.

    Args:
        service: knows the sketch.
        first: the window of interest.
        second: the one that it is compared with.

    Returns:
        A function of the name of a number, see `series`; EstimateError: an answer does not have it.

    Source: G. Y. Zou and A. Donner, Statistics in Medicine 27(10), 2008, doi:10.1002/sim.3095, eq. 4.
    """
    answers = first.to_dict(), second.to_dict()
    plan = service.catalog.plan(first.stored.sketch)

    def of(metric: str) -> dict[str, Any]:
        result = differences.difference(None if plan is None else plan.spec, *answers, metric)
        return {
            "sketch": first.stored.sketch,
            "metric": metric,
            "title": result.title,
            "level": 0.95,
            "independent": result.independent,
            "difference": {"value": result.value, "low": result.low, "high": result.high},
            **({} if result.bound is None else {"bound": result.bound}),
            "window": _series_point(first.stored, "ready", result.first),
            "against": _series_point(second.stored, "ready", result.second),
            "assumes": result.assumes,
        }

    return of


def _title(service: Service, name: str, metric: str, windows: Sequence[StoredWindow], question: Question) -> str:
    """A number in words: those of profiles say it by their names, those of other kinds in the newest answer."""
    catalog = service.catalog
    plan = catalog.plan(name)
    spec = None if plan is None else plan.spec
    title = presentation.presentation_of_kind(catalog.kind(name).name).title_of(spec, metric, service.config.names)
    if title:
        return title
    newest = next((window for window in reversed(windows) if service.answer_state(window) == "ready"), None)
    return (service.number(newest, question, metric).title if newest is not None else "") or metric


def _bound(service: Service, name: str, metric: str) -> dict[str, str]:
    """`bound` of all points of a series, if counts modulo p make bounds of them."""
    plan = service.catalog.plan(name)
    bound = None if plan is None else presentation.presentation_of_kind(plan.spec.kind).bound_of(plan.spec, metric)
    return {} if bound is None else {"bound": bound}


def _series_point(stored: StoredWindow, state: str, ends: Point | None) -> dict[str, Any]:
    numbers = zip(("value", "low", "high"), ends or (None, None, None), strict=True)
    return {**stored.front, "answer": state, **dict(numbers)}
