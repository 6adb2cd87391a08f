"""Questions to a published projection that are asked in one call, and their answers as tables.

In: a `Projection`, options of `estimate`. Out: the projection itself, or an `Answer`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sketchstream.errors import EstimateError
from sketchstream.kinds.projection.answers import LEVEL, Projection
from sketchstream.spec import Item, whole

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """A table of estimates, one row each.

    Args:
        question: "distance" or "nearest"; values are squared distances.
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
        return {"question": self.question, "quantity": "squared distance", "level": self.level, "rows": self.rows()}

    def __str__(self) -> str:
        return text(self.table)


def asked(projection: Projection, options: Mapping[str, Any]) -> Projection | Answer:
    """What the options of `estimate` ask for.

    Args:
        projection: what was published.
        options: `distance`, pairs of users; or `nearest`, users, with `count`; and `level`.

    Raises:
        EstimateError: an unknown option, or two questions.
        DomainError: an unknown user.
    """
    given = {name: value for name, value in options.items() if value is not None}
    unknown = given.keys() - {"distance", "nearest", "count", "level"}
    if unknown or {"distance", "nearest"} <= given.keys() or ("count" in given and "nearest" not in given):
        msg = (
            "estimate of kind 'projection' takes distance= (pairs of users), or nearest= (users) with count=, and "
            f"level, key, users, features; found {', '.join(sorted(map(str, given)))}"
        )
        raise EstimateError(msg)
    level = given.get("level", LEVEL)
    if "distance" in given:
        return distances(projection, given["distance"], level)
    if "nearest" in given:
        return neighbours(projection, given["nearest"], given.get("count", 10), level)
    return projection


def distances(projection: Projection, pairs: Iterable[tuple[Item, Item]], level: float) -> Answer:
    """Squared distances of pairs of users.

    Args:
        projection: what was published.
        pairs: of users.
        level: of the intervals.
    """
    listed = [tuple(pair) if isinstance(pair, (list, tuple)) else (pair,) for pair in pairs]
    if not listed or any(len(pair) != 2 for pair in listed):
        msg = "distance must be a list of pairs of users"
        raise EstimateError(msg)
    found = projection.distance([pair[0] for pair in listed], [pair[1] for pair in listed], level).rows()
    rows = ({"user": u, "other": v, **row} for (u, v), row in zip(listed, found, strict=True))
    return Answer("distance", level, tuple(rows))


def neighbours(projection: Projection, users: Any, count: int, level: float) -> Answer:
    """The rows that look nearest to some users' rows.

    Args:
        projection: what was published.
        users: one user or several.
        count: how many each; all other users, if there are fewer.
        level: of the intervals, which hold together.
    """
    from sketchstream.kinds.projection.neighbours import nearest

    others = projection.spec.users.size - 1
    most = min(whole(count, "count", 1, projection.spec.users.size + (1 << 32)), max(others, 1))
    found = nearest(projection, users, most, level)
    rows = []
    for row in found.rows():
        names = {name: projection.user_name(int(row[name])) for name in ("user", "neighbour")}
        rows.append({**row, **names})
    return Answer("nearest", level, tuple(rows))


def text(rows: Iterable[Row]) -> str:
    """A table for people: numbers with six digits, columns of equal width."""
    table = list(rows)
    cells = [list(row) for row in table[:1]]
    cells += [[f"{one:.6g}" if isinstance(one, float) else str(one) for one in row.values()] for row in table]
    if not cells:
        return ""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(lines)
