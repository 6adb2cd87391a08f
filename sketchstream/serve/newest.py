"""The newest numbers of each sketch, for dashboards.

In: a `Service`. Out: numbers with their intervals. Touches: the store, reading; the pool, which computes the answers of
groups that nobody has asked for yet. Everything is post-processing of publications.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from sketchstream.serve.over_time import computed
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.serve.store.stored_windows import SETTLED, StoredWindow

if TYPE_CHECKING:
    from sketchstream.query.differences import Point
    from sketchstream.query.sealed import Span
    from sketchstream.serve.service import Service

SHOWN_NUMBERS: Final = ("distinct", "total", "mean", "at_least.2", "at_least.3", "at_least.5", "at_least.10")
"""Numbers of profiles that are shown; of other kinds all that are kept for series, or else the usual one."""
LOOKED_AT: Final = 50
"""Number of newest windows among which one that lacks nothing is looked for."""
GROUPS: Final = 100
"""Most groups of a sketch that are shown, the first of its list: each is a series of its own for Prometheus."""
ASKED: Final = 16
"""Most answers of groups that are computed for one look."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest numbers of a sketch.

    Args:
        sketch: name of the sketch.
        window: start and end, ms since 1970.
        complete: whether the window is known to be complete; otherwise nothing published can tell.
        numbers: group, or "" without groups; name of the number; value, low, high.
    """

    sketch: str
    window: Span
    complete: bool
    numbers: tuple[tuple[str, str, Point], ...]


def newest_answers(service: Service) -> Iterator[Newest]:
    """The numbers of the newest window of each sketch that is settled and not known to lack anything.

    Args:
        service: service whose store is read.
    """
    for name in service.catalog.names():
        stored = None if service.catalog.patterns_alone(name) else firm_window(service, name)
        if stored is None:
            continue
        groups = service.catalog.groups(name)[:GROUPS]
        if groups:
            answer_groups(service, stored, groups)
        numbers = tuple(_of_groups(service, stored, groups) if groups else _of_window(service, stored))
        yield Newest(name, stored.window, bool(stored.complete), numbers)


def firm_window(service: Service, name: str) -> StoredWindow | None:
    """The newest window of a sketch that is settled, not known to lack anything, and has its answer or groups.

    Args:
        service: service whose store is read.
        name: name of the sketch.
    """
    groups = service.catalog.groups(name)
    for stored in service.store.windows(name, limit=LOOKED_AT, newest=True):
        unanswered = stored.failure is not None or (not groups and stored.todo)
        if stored.state == SETTLED and stored.complete is not False and not unanswered:
            return stored
    return None


def answer_groups(service: Service, stored: StoredWindow, groups: Sequence[str]) -> int:
    """Have some missing answers of a window's groups computed; return how many are missing.

    Args:
        service: service that answers.
        stored: the window.
        groups: groups that are wanted.
    """
    questions = [Question(group=group) for group in groups]
    missing = [question for question in questions if service.lacks(stored, question)]
    for question in missing[:ASKED]:
        if not service.ask_soon(stored, question):
            break
    return len(missing)


def _of_window(service: Service, stored: StoredWindow) -> Iterator[tuple[str, str, Point]]:
    """Numbers of a window without groups."""
    points = service.store.points_of(stored)
    if service.catalog.answers(stored.sketch) == "profile":
        points = {number: points[number] for number in SHOWN_NUMBERS if number in points}
    usual = service.catalog.rows(stored.sketch).usual_number
    if not points and (ends := computed(service, [stored], usual, None)[0]) is not None:
        points = {usual: ends}
    for number, ends in points.items():
        yield "", number, ends


def _of_groups(service: Service, stored: StoredWindow, groups: tuple[str, ...]) -> Iterator[tuple[str, str, Point]]:
    """Numbers of the groups of a window that are computed."""
    for group, number in product(groups, SHOWN_NUMBERS):
        ends = computed(service, [stored], number, group)[0]
        if ends is not None:
            yield group, number, ends
