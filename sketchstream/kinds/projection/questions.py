"""Questions to a published projection in one call, and their answers as tables.

In: projections, options of `estimate`. Out: the projection itself, or an `Answer`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, Final

import numpy as np

from sketchstream.errors import EstimateError
from sketchstream.kinds.projection.answers import LEVEL, Estimates, Projection
from sketchstream.kinds.projection.neighbours import nearest
from sketchstream.spec import Item, whole

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
MOST_AMONG: Final = 100
"""Most users whose pairs are listed: 4,950 distances. A file or a picture of all distances has more."""
BESIDE: Final = {"count": "nearest", "later": "drift", "windows": "drift", "vector": "with_vector"}
"""Options that belong to one question."""


@dataclass(frozen=True)
class Answer:
    """A table of estimates, one row each.

    Args:
        question: of `QUANTITIES`.
        level: of the intervals. Those of "nearest" hold for all candidates together, so for the chosen ones too.
        table: rows with equal columns.
    """

    question: str
    level: float
    table: tuple[Row, ...]

    def rows(self) -> list[dict[str, Any]]:
        """The table, one dictionary a row."""
        return [dict(row) for row in self.table]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        quantity = QUANTITIES[self.question]
        asked = {"question": self.question, "quantity": quantity, "level": self.level}
        return {"kind": "projection", **asked, "rows": self.rows()}

    def __str__(self) -> str:
        return text(self.table)

    def _repr_html_(self) -> str:
        """For notebooks: the table, and its numbers as a chart."""
        from sketchstream.kinds import shown

        note = f"{QUANTITIES[self.question].capitalize()}, {self.level:.0%} intervals."
        if self.question == "nearest":
            note += " They hold for all candidates together, so for the chosen ones too."
        return shown.card(self.to_dict(), note)


def asked(
    projection: Projection, options: Mapping[str, Any], read: Callable[[Any], Projection] | None = None
) -> Projection | Answer:
    """Parse the questions in the options of `estimate`.

    Args:
        projection: published projection.
        options: one question: `distance` or `inner`, pairs of users; `nearest`, users, with `count`; `sq_norm`, users;
            `with_vector`, users, with `vector`, pairs of a feature and a number, or a mapping; `among`, a number: all
            pairs of the first so many users, answered as `distance`; `drift`, users, with
            `later`, published objects of later windows, and perhaps `windows`, names of all of them. And `level`.
        read: makes a projection of a published object, for `later`.

    Raises:
        EstimateError: an unknown option, or two questions.
        DomainError: an unknown user.
        MergeError: a later window has another matrix.
    """
    given = {name: value for name, value in options.items() if value is not None}
    unknown = given.keys() - QUANTITIES.keys() - BESIDE.keys() - {"among", "level"}
    questions = given.keys() & {*QUANTITIES, "among"}
    alone = any(name in given and question not in given for name, question in BESIDE.items())
    without = ("drift" in given and "later" not in given) or ("with_vector" in given and "vector" not in given)
    if unknown or len(questions) > 1 or alone or without:
        msg = (
            "estimate of kind 'projection' takes one question: distance= or inner= (pairs of users), among= (how many "
            "of the first users), nearest= (users) with count=, sq_norm= (users), with_vector= (users) with vector= "
            "(features and numbers), or drift= (users) with later= (published objects); and level, key, users, "
            "features; found "
            f"{', '.join(sorted(map(str, given)))}"
        )
        raise EstimateError(msg)
    level = given.get("level", LEVEL)
    for question in ("distance", "inner"):
        if question in given:
            return between(projection, question, given[question], level)
    if "among" in given:
        return between(projection, "distance", first_pairs(projection, given["among"]), level)
    if "nearest" in given:
        return neighbours(projection, given["nearest"], given.get("count", 10), level)
    if "sq_norm" in given:
        return of_rows("sq_norm", given["sq_norm"], projection.sq_norm(_several(given["sq_norm"]), level))
    if "with_vector" in given:
        found = projection.with_vector(_several(given["with_vector"]), _summed(given["vector"]), level)
        return of_rows("with_vector", given["with_vector"], found)
    if "drift" in given:
        assert read is not None
        published = [projection, *(one if isinstance(one, Projection) else read(one) for one in given["later"])]
        return drift(published, given["drift"], level, given.get("windows"))
    return projection


def between(projection: Projection, question: str, pairs: Iterable[tuple[Item, Item]], level: float) -> Answer:
    """Squared distances, or inner products, of pairs of users.

    Args:
        projection: published projection.
        question: "distance" or "inner".
        pairs: of users.
        level: of the intervals.
    """
    listed = [tuple(pair) if isinstance(pair, (list, tuple)) else (pair,) for pair in pairs]
    if not listed or any(len(pair) != 2 for pair in listed):
        msg = f"{question} must be a list of pairs of users"
        raise EstimateError(msg)
    ask = projection.distance if question == "distance" else projection.inner
    found = ask([pair[0] for pair in listed], [pair[1] for pair in listed], level).rows()
    rows = ({"user": u, "other": v, **row} for (u, v), row in zip(listed, found, strict=True))
    return Answer(question, level, tuple(rows))


def first_pairs(projection: Projection, count: int) -> list[tuple[Item, Item]]:
    """All pairs of the first users, in the order of the domain.

    Args:
        projection: published projection.
        count: number of users; all, if there are fewer.
    """
    users = range(min(whole(count, "among", 2, MOST_AMONG), projection.spec.users.size))
    return list(combinations([projection.user_name(place) for place in users], 2))


def of_rows(question: str, users: Any, found: Estimates) -> Answer:
    """A table of one estimate for each user.

    Args:
        question: of `QUANTITIES`.
        users: one user or several.
        found: their estimates.
    """
    rows = ({"user": user, **row} for user, row in zip(_several(users), found.rows(), strict=True))
    return Answer(question, found.level, tuple(rows))


def _several(users: Any) -> list[Item]:
    """Users as a list, also one."""
    return list(users) if isinstance(users, (Sequence, np.ndarray)) and not isinstance(users, (str, bytes)) else [users]


def _summed(vector: Mapping[Item, float] | Iterable[tuple[Item, float]]) -> dict[Item, float]:
    """A vector's numbers by feature; those of a feature that is named twice add up."""
    pairs = vector.items() if isinstance(vector, Mapping) else vector
    out: dict[Item, float] = {}
    for feature, number in pairs:
        out[feature] = out.get(feature, 0.0) + number
    return out


def neighbours(projection: Projection, users: Any, count: int, level: float) -> Answer:
    """The rows that look nearest to some users' rows.

    Args:
        projection: published projection.
        users: one user or several.
        count: number of neighbours of each; all other users, if there are fewer.
        level: of the intervals, which hold together.
    """
    others = projection.spec.users.size - 1
    most = min(whole(count, "count", 1, projection.spec.users.size + (1 << 32)), max(others, 1))
    found = nearest(projection, users, most, level)
    rows = []
    for row in found.rows():
        names = {name: projection.user_name(int(row[name])) for name in ("user", "neighbour")}
        rows.append({**row, **names})
    return Answer("nearest", level, tuple(rows))


def drift(windows: Sequence[Projection], users: Any, level: float, names: Sequence[str] | None = None) -> Answer:
    """Squared distances between a user's rows in consecutive windows.

    Args:
        windows: in order of time, with the same users, features and matrix.
        users: one user or several.
        level: of the intervals, each for itself.
        names: of the windows; by default their numbers, from 0.

    Raises:
        EstimateError: fewer than two windows.
        MergeError: two windows have different matrices, such as secret ones.
        DomainError: an unknown user.
    """
    if len(windows) < 2:
        msg = f"drift needs at least two windows, found {len(windows)}"
        raise EstimateError(msg)
    called: Sequence[Any] = range(len(windows)) if names is None else names
    places = np.atleast_1d(windows[0].user_places(users))
    steps = [before.drift(after, places, level, located=True).rows() for before, after in pairwise(windows)]
    rows = (
        {"user": windows[0].user_name(place), "before": called[number], "after": called[number + 1], **step[at]}
        for at, place in enumerate(places.tolist())
        for number, step in enumerate(steps)
    )
    return Answer("drift", level, tuple(rows))


def text(rows: Iterable[Row]) -> str:
    """A text table: numbers with six digits, columns of equal width."""
    table = list(rows)
    cells = [list(row) for row in table[:1]]
    cells += [[_cell(one) for one in row.values()] for row in table]
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
