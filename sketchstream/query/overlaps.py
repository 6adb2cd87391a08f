"""What groups have in common, of one window or one published file, with the facts of its window.

In: published objects, windows. Out: plain data for JSON, rows for CSV and tables. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sketchstream.kinds.estimates import without_intervals
from sketchstream.kinds.exports import WINDOW, Types
from sketchstream.kinds.groups import overlap
from sketchstream.query.answers import facts_of

if TYPE_CHECKING:
    from sketchstream.kinds.groups.overlap import Overlap
    from sketchstream.published import Published
    from sketchstream.query.sealed import SealedWindow
    from sketchstream.query.windows import PublishedWindows

COLUMNS: Final = ("query", "value", "low", "high", "sd")
TYPES: Final[Types] = {**WINDOW, **overlap.TYPES}
"""Types of the columns that are not text."""


@dataclass(frozen=True, eq=False)
class OverlapAnswer:
    """Answers about sets of groups, with facts about their origin.

    Args:
        overlap: the answers.
        facts: facts about the window; empty without one.
        guarantee: the most that the publication can cost.
        intervals: whether intervals are valid; otherwise no output contains any.
    """

    overlap: Overlap
    facts: Mapping[str, Any]
    guarantee: Mapping[str, Any]
    intervals: bool = True

    def rows(self, queries: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """One row for each question: `COLUMNS`; ends of invalid intervals are None.

        Args:
            queries: expressions; None: the usual ones.
        """
        rows = self.overlap.rows(queries)
        return rows if self.intervals else [without_intervals(row) for row in rows]

    def numbers(self, queries: Sequence[str] | None = None) -> dict[str, Any]:
        """The numbers as plain data, without facts and guarantee.

        Args:
            queries: expressions; None: the usual ones.
        """
        numbers = self.overlap.to_dict(queries)
        return numbers if self.intervals else without_intervals(numbers)

    def to_dict(self, queries: Sequence[str] | None = None) -> dict[str, Any]:
        """Plain data, for JSON: the facts, then the numbers.

        Args:
            queries: expressions; None: the usual ones.
        """
        return {**self.facts, **self.numbers(queries), "guarantee": dict(self.guarantee)}


def of_file(published: Published, groups: Sequence[str] | None = None) -> OverlapAnswer:
    """The answers of one published object, without frontiers or a configuration.

    Args:
        published: a publication with patterns of groups.
        groups: groups to combine; None: all.

    Raises:
        EstimateError: it has none, or nothing can be told from them.
    """
    facts, repartitioned = facts_of(published.parts), published.repartitioned
    if facts and repartitioned:
        facts["repartitioned"] = True
    return OverlapAnswer(published.overlap(groups), facts, published.guarantee().to_dict(), intervals=not repartitioned)


def of_window(published: PublishedWindows, window: SealedWindow, groups: Sequence[str] | None = None) -> OverlapAnswer:
    """The answers of one window, as all callers give them.

    Args:
        published: the publication that it is from.
        window: the window.
        groups: groups to combine; None: all.

    Raises:
        EstimateError, MergeError: this window has no answer; others may have one.
    """
    overlap = published.result(window).overlap(groups)
    facts = {**window.fields(), **published.config.names.facts()}
    return OverlapAnswer(overlap, facts, published.guarantee(window), intervals=not window.repartitioned)


def rows_of(answers: Iterable[OverlapAnswer], queries: Sequence[str] | None) -> list[dict[str, Any]]:
    """Rows of several windows, each with the start of its window and whether it is complete.

    Args:
        answers: answers in any order.
        queries: expressions; None: the usual ones.
    """
    return [
        {"window_start": answer.facts.get("window_start"), "complete": answer.facts.get("complete"), **row}
        for answer in answers
        for row in answer.rows(queries)
    ]
