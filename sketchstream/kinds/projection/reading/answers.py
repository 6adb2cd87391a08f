"""Answers of a published projection: squared norms of all rows, or the answer to one question.

In: see `rows`; options of `estimate`. Out: a `Projection`, or a `RowAnswer`. Touches: a file of distances, where one is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.errors import EstimateError
from sketchstream.kinds import presentation
from sketchstream.kinds.answers import LEVEL, MAX_LISTED_ROWS, ColumnValues
from sketchstream.kinds.linear.answers import LinearAnswers
from sketchstream.kinds.projection.reading.distances import draw_heatmap, nearest, write_arrow
from sketchstream.kinds.projection.reading.rows import PublishedRows, RowEstimates, row_label
from sketchstream.spec import Item, checked_int

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from sketchstream.kinds.projection.spec import ProjectionSpec

Row = Mapping[str, Any]

QUANTITIES: Final = {
    "distance": "squared distance",
    "nearest": "squared distance",
    "drift": "squared distance",
    "inner": "inner product",
    "sq_norm": "squared norm",
    "with_vector": "inner product with a vector",
}
"""Questions, and what their values are."""
BESIDE: Final = {"count": "nearest", "later": "drift", "windows": "drift", "vector": "with_vector"}
"""Options that belong to one question."""


@dataclass(frozen=True)
class Projection(PublishedRows):
    """A published projection. It is sufficient for all questions, which cost no privacy.

    Its own numbers are the squared norms of all rows; distances and the others have methods. See `PublishedRows`.
    """

    def __str__(self) -> str:
        return text(self.rows())

    def _noted(self) -> str:
        return "Squared norms and distances; nearest rows, products and drift are asked for by name."

    def further(self) -> LinearAnswers | None:
        """Distances between the first rows; None if there is one row only."""
        if self.spec.users.size < 2:
            return None
        numbers = self.numbers()
        return answer_questions(self, presentation.presentation_of(numbers).further(numbers))

    def _draw(self) -> Figure:
        return draw_heatmap(self)

    def write_distances(self, path: str | Path) -> None:
        """All squared distances as an Arrow file, a record a user. See `distances.write_arrow`.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        write_arrow(self, path)


@dataclass(frozen=True)
class RowAnswer(LinearAnswers):
    """The answer to one question, a number for each pair, row or step.

    Args:
        names: columns that say whose number it is.
        ask: computes the numbers with the intervals of a level. Those of "nearest" hold for all candidates together,
            so for the chosen ones too.
        question: one of `QUANTITIES`.
    """

    spec: ProjectionSpec = field(repr=False)
    names: Mapping[str, Sequence[Any]]
    ask: Callable[[float], RowEstimates] = field(repr=False)
    question: str
    level: float

    def __post_init__(self) -> None:
        """Refuse what cannot be answered before anybody asks for a number."""
        _ = self._found

    @cached_property
    def _found(self) -> RowEstimates:
        return self.ask(self.level)

    @property
    def values(self) -> Floats:
        """(n,) unbiased; a squared distance or norm can come out negative."""
        return np.ravel(self._found.value)

    @property
    def stderr(self) -> Floats:
        """(n,) standard errors, from the estimates themselves."""
        return np.ravel(self._found.stderr)

    @property
    def labels(self) -> Mapping[str, ColumnValues]:
        return self.names

    def more(self, level: float) -> dict[str, Any]:
        return {"quantity": QUANTITIES[self.question]}

    def _ends(self, level: float) -> tuple[Floats, Floats]:
        found = self._found if level == self.level else self.ask(level)
        return np.ravel(found.low), np.ravel(found.high)

    def _draw(self) -> Figure:
        from sketchstream.pictures import charts

        names = [row_label(row) for row in self.rows()]
        bars = charts.Bars(names, self.values, *self.interval().T)
        return charts.bars_figure(f"{QUANTITIES[self.question]}, {self.level:.0%} intervals", bars, "")

    def __str__(self) -> str:
        return text(self.rows())

    def _noted(self) -> str:
        note = f"{QUANTITIES[self.question].capitalize()}, {self.level:.0%} intervals."
        if self.question == "nearest":
            note += " They hold for all candidates together, so for the chosen ones too."
        return note


def answer_questions(
    projection: PublishedRows, options: Mapping[str, Any], read: Callable[[Any], PublishedRows] | None = None
) -> LinearAnswers:
    """Parse the questions in the options of `estimate`.

    Args:
        options: one question: `distance` or `inner`, pairs of users; `nearest`, users, with `count`; `sq_norm`, users;
            `with_vector`, users, with `vector`, pairs of a feature and a number, or a mapping; `among`, a number: all
            pairs of as many users, the first ones, answered as `distance`; `drift`, users, with
            `later`, published objects of later windows, and perhaps `windows`, names of all of them. And `level`.
        read: makes a projection of a published object, for `later`.

    Raises:
        EstimateError: an unknown option, or two questions.
        DomainError: an unknown user.
        MergeError: a later window has another matrix.
    """
    chosen = {name: value for name, value in options.items() if value is not None}
    unknown = chosen.keys() - QUANTITIES.keys() - BESIDE.keys() - {"among", "level"}
    questions = chosen.keys() & {*QUANTITIES, "among"}
    alone = any(name in chosen and question not in chosen for name, question in BESIDE.items())
    without = ("drift" in chosen and "later" not in chosen) or ("with_vector" in chosen and "vector" not in chosen)
    if unknown or len(questions) > 1 or alone or without:
        raise EstimateError(
            "estimate of kind 'projection' takes one question: distance= or inner= (pairs of users), among= (how many "
            "of the first users), nearest= (users) with count=, sq_norm= (users), with_vector= (users) with vector= "
            "(features and numbers), or drift= (users) with later= (published objects); and level, key, users, "
            "features; found "
            f"{', '.join(sorted(map(str, chosen)))}"
        )
    level = chosen.get("level", LEVEL)
    for question in ("distance", "inner"):
        if question in chosen:
            return answer_pairs(projection, question, chosen[question], level)
    if "among" in chosen:
        users = range(min(checked_int(chosen["among"], "among", 2, MAX_LISTED_ROWS), projection.spec.users.size))
        return answer_pairs(projection, "distance", combinations(map(projection.user_name, users), 2), level)
    if "nearest" in chosen:
        return neighbours(projection, chosen["nearest"], chosen.get("count", 10), level)
    if "drift" in chosen:
        assert read is not None
        published = [
            projection,
            *(rows if isinstance(rows, PublishedRows) else read(rows) for rows in chosen["later"]),
        ]
        return drift(published, chosen["drift"], level, chosen.get("windows"))
    for question in ("sq_norm", "with_vector"):
        if question in chosen:
            rows = _several(chosen[question])
            given = (_sum_by_feature(chosen["vector"]),) if question == "with_vector" else ()
            ask = partial(getattr(projection, question), rows, *given)
            return RowAnswer(projection.spec, {"user": rows}, ask, question, level)
    return projection


def answer_pairs(
    projection: PublishedRows, question: str, pairs: Iterable[tuple[Item, Item]], level: float
) -> RowAnswer:
    """Squared distances, or inner products, of pairs of users."""
    listed = [tuple(pair) if isinstance(pair, (list, tuple)) else (pair,) for pair in pairs]
    if not listed or any(len(pair) != 2 for pair in listed):
        raise EstimateError(f"{question} must be a list of pairs of users")
    first, second = map(list, zip(*listed, strict=True))
    ask = partial(getattr(projection, question), first, second)
    return RowAnswer(projection.spec, {"user": first, "other": second}, ask, question, level)


def _several(users: Any) -> list[Item]:
    """Users as a list, also one."""
    return list(users) if isinstance(users, (Sequence, np.ndarray)) and not isinstance(users, (str, bytes)) else [users]


def _sum_by_feature(vector: Mapping[Item, float] | Iterable[tuple[Item, float]]) -> dict[Item, float]:
    """A vector's numbers by feature; those of a feature that is named twice add up."""
    pairs = vector.items() if isinstance(vector, Mapping) else vector
    out: dict[Item, float] = {}
    for feature, number in pairs:
        out[feature] = out.get(feature, 0.0) + number
    return out


def neighbours(projection: PublishedRows, users: Any, count: int, level: float) -> RowAnswer:
    """The rows that look nearest to some users' rows: this number of each, or all others if they are fewer."""
    others = projection.spec.users.size - 1
    most = min(checked_int(count, "count", 1, projection.spec.users.size + (1 << 32)), max(others, 1))
    rows = nearest(projection, users, most, level)
    labels = {
        "user": [projection.user_name(place) for place in np.repeat(rows.users, rows.nearest.shape[1]).tolist()],
        "rank": [*range(1, rows.nearest.shape[1] + 1)] * len(rows.users),
        "neighbour": [projection.user_name(place) for place in np.ravel(rows.nearest).tolist()],
    }

    def ask(at_level: float) -> RowEstimates:
        return rows.distances if at_level == level else nearest(projection, users, most, at_level).distances

    return RowAnswer(projection.spec, labels, ask, "nearest", level)


def drift(windows: Sequence[PublishedRows], users: Any, level: float, names: Sequence[str] | None = None) -> RowAnswer:
    """Squared distances between a user's rows in consecutive windows, of the same users, features and matrix."""
    if len(windows) < 2:
        raise EstimateError(f"drift needs at least two windows, found {len(windows)}")
    places = np.atleast_1d(windows[0].user_places(users))
    window_names = (range(len(windows)) if names is None else names)[: len(windows)]
    labels = {
        "user": [windows[0].user_name(place) for place in places.tolist() for _ in windows[1:]],
        "before": [*window_names[:-1]] * len(places),
        "after": [*window_names[1:]] * len(places),
    }

    def ask(at_level: float) -> RowEstimates:
        steps = [before.drift_at(after, places, at_level) for before, after in pairwise(windows)]
        value, stderr, low, high = (
            np.stack([getattr(step, end) for step in steps], axis=1) for end in ("value", "stderr", "low", "high")
        )
        return RowEstimates(value, low, high, None, stderr, "drift", at_level)

    return RowAnswer(windows[0].spec, labels, ask, "drift", level)


def text(rows: Iterable[Row]) -> str:
    """A text table: numbers with six digits, columns of equal width."""
    table = list(rows)
    cells = [list(row) for row in table[:1]]
    cells += [[*map(_cell, row.values())] for row in table]
    if not cells:
        return ""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(lines)


def _cell(value: object) -> str:
    """A number with six digits; bytes as hexadecimal digits."""
    if isinstance(value, bytes):
        return value.hex()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
