"""Answers of all kinds of sketches: numbers with their standard errors and intervals, under names, for every output.

In: what a kind computes from a publication. Out: rows, plain data, JSON, CSV, Arrow, pandas, a figure, a card.
Touches: the file of a figure, if one is asked for. Post-processing only.

A kind gives its numbers and their labels (`values`, `stderr`, `labels`, `_ends`), where they are from, and how they are
drawn (`_draw`). Everything else is here, so that code for the answers of one kind works for those of every other.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats
from sketchstream.errors import EstimateError
from sketchstream.kinds import exports
from sketchstream.kinds.estimates import checked_level
from sketchstream.kinds.exports import ColumnType

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa
    from matplotlib.figure import Figure

ColumnValues = Sequence[Any] | npt.NDArray[Any]

LEVEL: Final = 0.95
"""Level of intervals, unless another one is asked for."""
_NUMBERS: Final = {"type": "array", "items": {"type": ["number", "null"]}}
SCHEMA: Final[Mapping[str, Any]] = {
    "kind": {"type": "string"},
    "unit": {"enum": ["event", "item"], "description": "What is protected."},
    "question": {"type": "string"},
    "method": {"type": "string"},
    "level": {"type": "number", "description": "Of the intervals."},
    "epsilon": {"type": "string", "description": "An exact fraction, like delta."},
    "delta": {"type": "string"},
    "no_privacy": {"type": "boolean"},
    "layers": {
        "description": "Law and exact parameter of each layer of noise in the numbers.",
        "type": "array",
        "items": {"type": "object", "required": ["law"], "additionalProperties": {"type": "string"}},
    },
    "labels": {
        "description": "What each number is: columns by name, as long as `values`; null where a column says nothing.",
        "type": "object",
        "additionalProperties": {"type": "array"},
    },
    "values": _NUMBERS,
    "stderr": {**_NUMBERS, "type": ["array", "null"]},
    "intervals": {
        "description": "Lower and upper end for each number; null where a method has no intervals.",
        "type": ["array", "null"],
        "items": _NUMBERS,
    },
    "guarantee": {"type": "object"},
}
"""JSON Schema of each key that the plain data of answers of every kind have; docs/write_schemas.py writes it down."""
MAX_LISTED_ROWS: Final = 100
"""Most rows whose pairs are listed: 4,950 distances. A file or a picture of all distances has more."""
DOTS: Final = 130
"""Dots an inch of a figure in a file."""


class Answers(ABC):
    """Numbers of one publication, each with its standard error and its interval."""

    level: float = LEVEL
    """Level of the intervals."""
    method: str = "auto"
    """The method that was used."""
    question: str = "estimate"
    """What was asked for."""

    # What each kind implements.

    if TYPE_CHECKING:  # fields of dataclasses, which may not inherit a property of their name

        @property
        def values(self) -> Floats:
            """(d,) the numbers, in user units."""

        @property
        def stderr(self) -> Floats:
            """(d,) standard error of each number."""

    @property
    @abstractmethod
    def guarantee(self) -> dict[str, Any] | None:
        """The guarantee of the publication, as plain data; None if it is not known."""

    @property
    @abstractmethod
    def labels(self) -> Mapping[str, ColumnValues]:
        """Columns that say what each number is, by their names; d values each."""

    @abstractmethod
    def _ends(self, level: float) -> tuple[Floats, Floats]:
        """(d,) lower and upper ends of the intervals.

        Args:
            level: between 0 and 1, already checked.
        """

    @abstractmethod
    def _draw(self, *options: Any, **named: Any) -> Figure:
        """The figure of `plot`."""

    @abstractmethod
    def types(self) -> Mapping[str, ColumnType]:
        """Types of the columns of the rows; those that are not here are text."""

    @abstractmethod
    def sketch_facts(self) -> dict[str, Any]:
        """Facts about the sketch for plain data: kind, unit, epsilon, delta, no_privacy."""

    @property
    @abstractmethod
    def layers(self) -> list[dict[str, str]]:
        """Law and parameter of each layer of noise in the numbers."""

    def extra_columns(self, level: float) -> Mapping[str, ColumnValues]:
        """Further columns of the rows, by their names; d values each.

        Args:
            level: level of the intervals.
        """
        return {}

    def more(self, level: float) -> dict[str, Any]:
        """Further keys of the plain data, besides those that all kinds have.

        Args:
            level: level of the intervals.
        """
        return {}

    @property
    def bounded(self) -> bool:
        """Whether the numbers have intervals: the law of the error is not known for every method."""
        return True

    # What all kinds share.

    def interval(self, level: float | None = None) -> Floats:
        """(d, 2) ends of intervals that hold the true number with this probability, each by itself.

        Args:
            level: level above 0 and below 1; None: that of the answers, 0.95 by default.

        Raises:
            EstimateError: a level outside, or numbers without intervals.
        """
        checked = checked_level(self.level if level is None else level)
        if not self.bounded:
            raise EstimateError("these answers have no intervals; read stderr as an upper figure")
        return np.stack(self._ends(checked), axis=-1)

    def rows(self, level: float | None = None) -> Iterator[dict[str, Any]]:
        """One flat row for each number: what it is, then value, stderr, low and high, then further columns.

        Args:
            level: see `interval`. Numbers without one have None for low and high.
        """
        chosen = self.level if level is None else level
        low, high = self.interval(chosen).T.tolist() if self.bounded else (repeat(None), repeat(None))
        columns = {
            **{name: plain_column(column) for name, column in self.labels.items()},
            "value": self.values.tolist(),
            "stderr": self.stderr.tolist(),
            "low": low,
            "high": high,
            **{name: plain_column(column) for name, column in self.extra_columns(chosen).items()},
        }
        for row in zip(*columns.values(), strict=False):  # a `repeat` has no end
            yield dict(zip(columns, row, strict=True))

    def numbers(self, level: float | None = None) -> dict[str, Any]:
        """Plain data, ready for JSON, without the guarantee.

        Args:
            level: see `interval`.
        """
        chosen = self.level if level is None else level
        return {
            **self.sketch_facts(),
            "question": self.question,
            "method": self.method,
            "level": chosen,
            "layers": self.layers,
            "labels": {
                name: [_plain_label(one) for one in plain_column(column)] for name, column in self.labels.items()
            },
            "values": self.values.tolist(),
            "stderr": self.stderr.tolist(),
            "intervals": _finite(self.interval(chosen)) if self.bounded else None,
            **self.more(chosen),
        }

    def to_dict(self, level: float | None = None) -> dict[str, Any]:
        """Plain data, ready for JSON, with the guarantee. All kinds have the same keys; a kind may have more.

        Args:
            level: see `interval`.
        """
        return {**self.numbers(level), "guarantee": self.guarantee}

    def to_json(self, level: float | None = None) -> str:
        """`to_dict` as a JSON text.

        Args:
            level: see `interval`.
        """
        return json.dumps(self.to_dict(level), allow_nan=False)

    def to_csv(self, level: float | None = None) -> str:
        """The rows as RFC 4180 text with a header line.

        Args:
            level: see `interval`.
        """
        return exports.as_csv(list(self.rows(level)))

    def to_arrow(self, level: float | None = None) -> pa.Table:
        """The rows as an Arrow table, with the types that the kind declares.

        Args:
            level: see `interval`.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        return exports.table_of(list(self.rows(level)), self.types())

    def to_pandas(self, level: float | None = None) -> pd.DataFrame:
        """The rows as a pandas DataFrame.

        Args:
            level: see `interval`.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return exports.frame_of(list(self.rows(level)))

    def plot(self, path: str | Path | None = None, **options: Any) -> Figure:
        """Draw the numbers with their intervals; a notebook shows the figure.

        Args:
            path: path of a .png, .svg or .pdf file to write; None: write none.
            options: options of the kind: `k`, `tables` or `truth`.

        Raises:
            EstimateError: an option does not apply.
            MissingExtraError: matplotlib is not installed.
        """
        figure = self._draw(**options)
        if path is not None:
            figure.savefig(path, dpi=DOTS, bbox_inches="tight")
        return figure


def plain_column(column: ColumnValues) -> Sequence[Any]:
    """A column as a sequence of plain values."""
    values: Sequence[Any] = column.tolist() if isinstance(column, np.ndarray) else column
    return values


def _finite(ends: Floats) -> list[list[float | None]]:
    """Ends of intervals in plain data: None for one that is not known."""
    known = ends.astype(object)
    known[~np.isfinite(ends)] = None
    pairs: list[list[float | None]] = known.tolist()
    return pairs


def _plain_label(label: object) -> object:
    """A label in plain data: bytes as hexadecimal digits."""
    return label.hex() if isinstance(label, bytes) else label
