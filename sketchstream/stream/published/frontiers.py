"""Frontiers as plain data, the same in files, topics and snapshots.

In: a `Frontier`, or plain data. Out: plain data, or a `Frontier`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sketchstream.stream.interfaces import Frontier
from sketchstream.stream.published.evidence import PublishedEvidence
from sketchstream.stream.published.values import integer
from sketchstream.stream.windows import window_ranges
from sketchstream.stream.windows.calendar import NO_TIME

REACHED: Final = ("published_through", "partitions", "sequence")
SPARSE: Final = ("grown_from", "grown_through", "late", "late_draws", "closed_through")
"""Numbers of a frontier that are stored and published only where there is something to count."""
EVIDENCE: Final = "evidence"
NAMES: Final = (*REACHED, *window_ranges.NAMES, *SPARSE, EVIDENCE)
"""Everything that a frontier may say."""


def plain_frontier(frontier: Frontier, *, unset: bool = False) -> dict[str, Any]:
    """What a frontier says of its partition.

    Args:
        frontier: what a partition announced; its sketch, revision and partition are not among the fields.
        unset: whether the numbers of marks that are not set are among it.
    """
    marks = window_ranges.numbers(frontier.partial, frontier.diverged)
    sparse = (
        *(("grown_from", "grown_through") if frontier.grown_from else ()),
        *(("late", "late_draws") if frontier.late is not None else ()),
        *(("closed_through",) if frontier.closed_through != NO_TIME else ()),
    )
    return {
        **{name: getattr(frontier, name) for name in REACHED},
        **{name: number for name, number in marks.items() if unset or number != NO_TIME},
        **{name: getattr(frontier, name) for name in sparse},
        **({} if frontier.evidence is None else {EVIDENCE: frontier.evidence.fields()}),
    }


def read(sketch: str, revision: object, partition: object, fields: Mapping[str, Any]) -> Frontier:
    """Read a frontier from the fields that `plain_frontier` made of it.

    Args:
        sketch: name of the sketch.
        revision: revision of the sketch.
        partition: partition of the input.
        fields: what `plain_frontier` gave, perhaps with other keys.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not that.
    """
    marks = {name: integer(fields[name]) for name in window_ranges.NAMES if name in fields}
    partial, diverged = window_ranges.read(marks)
    numbers = {name: integer(fields[name]) for name in (*REACHED, *filter(fields.__contains__, SPARSE))}
    evidence = PublishedEvidence.read(fields[EVIDENCE]) if EVIDENCE in fields else None
    number, place = integer(revision), integer(partition)
    return Frontier(sketch, number, place, **numbers, partial=partial, diverged=diverged, evidence=evidence)
