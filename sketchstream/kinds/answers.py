"""Answers of all kinds of sketches: numbers with their standard errors and intervals, under names, for every output.

In: what a kind computes from a publication. Out: rows, plain data, JSON, CSV, Arrow, pandas, a figure, a card.
Touches: the file of a figure, if one is asked for. Post-processing only.

A kind says what its numbers are (`values`, `stderr`, `labels`, `_ends`) and how they are drawn (`_draw`). Everything
else is here, so that what a user writes for the answers of one kind works for those of every other.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import numpy.typing as npt

from sketchstream import kinds
from sketchstream.errors import EstimateError
from sketchstream.kinds import exports
from sketchstream.kinds.linear.publication import shown
from sketchstream.privacy.history import parameter_name

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa
    from matplotlib.figure import Figure

    from sketchstream.published import Published

Floats = npt.NDArray[np.float64]
Column = Sequence[Any] | npt.NDArray[Any]

LEVEL: Final = 0.95
"""Level of intervals, unless another one is asked for."""
DOTS: Final = 130
"""Dots an inch of a figure in a file."""


class Answers(ABC):
    """Numbers of one publication, each with its standard error and its interval."""

    spec: Any
    """Spec of the sketch."""
    level: float = LEVEL
    """Level of intervals, unless another one is asked for."""
    method: str = "auto"
    """The method that was used."""
    question: str = "estimate"
    """What was asked for."""
    published: Published | None = None
    """What the answers were computed from; None if they were computed from bare numbers."""

    def about(self, published: Published) -> Self:
        """These answers, which now say what they were computed from.

        Args:
            published: a release, a sealed state, or a stack of either.
        """
        object.__setattr__(self, "published", published)  # frozen dataclasses derive from this class too
        return self

    # What a kind says.

    if TYPE_CHECKING:  # fields of dataclasses, which may not inherit a property of their name

        @property
        def values(self) -> Floats:
            """(d,) the numbers, in user units."""

        @property
        def stderr(self) -> Floats:
            """(d,) standard error of each number."""

    @property
    @abstractmethod
    def labels(self) -> Mapping[str, Column]:
        """Columns that say what each number is, by their names; d values each."""

    @abstractmethod
    def _ends(self, level: float) -> tuple[Floats, Floats]:
        """(d,) lower and upper ends of the intervals.

        Args:
            level: between 0 and 1, as has been checked.
        """

    @abstractmethod
    def _draw(self, *options: Any, **named: Any) -> Figure:
        """The figure of `plot`."""

    def _parameters(self) -> Sequence[Fraction]:
        """Parameters of the layers of noise in the numbers."""
        if self.published is None:
            return ()
        return [one for part in shown(kinds.of(self.spec), self.published) for one in part.parameters]

    def beside(self) -> Mapping[str, Column]:
        """Further columns of the rows, by their names; d values each."""
        return {}

    def more(self, level: float) -> dict[str, Any]:
        """Further keys of the plain data, beside those that all kinds have.

        Args:
            level: level of the intervals.
        """
        del level
        return {}

    @property
    def bounded(self) -> bool:
        """Whether the numbers have intervals: some methods have an error of no known law."""
        return True

    # What all kinds have.

    @property
    def guarantee(self) -> dict[str, Any] | None:
        """The guarantee of the publication, as plain data; None if it is not known."""
        return None if self.published is None else self.published.guarantee().to_dict()

    @property
    def layers(self) -> list[dict[str, str]]:
        """Law and parameter of each layer of noise in the numbers; empty if the publication is not known."""
        law = kinds.of(self.spec).law(self.spec)
        return [{"law": law, parameter_name(law): str(one)} for one in self._parameters()]

    def interval(self, level: float | None = None) -> Floats:
        """(d, 2) ends of intervals that hold the true number with this probability, each by itself.

        Args:
            level: above 0 and below 1; None: that of the answers, 0.95 by default.

        Raises:
            EstimateError: a level outside, or numbers without intervals.
        """
        checked = checked_level(self.level if level is None else level)
        if not self.bounded:
            msg = "projected answers have no intervals; ask for method='unbiased', or read stderr as an upper figure"
            raise EstimateError(msg)
        return np.stack(self._ends(checked), axis=-1)

    def rows(self, level: float | None = None) -> Iterator[dict[str, Any]]:
        """One flat row for each number: what it is, then value, stderr, low and high, then further columns.

        Args:
            level: of the intervals; see `interval`. Numbers without one have None for low and high.
        """
        low, high = self.interval(level).T.tolist() if self.bounded else (repeat(None), repeat(None))
        columns = {
            **{name: plain(column) for name, column in self.labels.items()},
            "value": self.values.tolist(),
            "stderr": self.stderr.tolist(),
            "low": low,
            "high": high,
            **{name: plain(column) for name, column in self.beside().items()},
        }
        for row in zip(*columns.values(), strict=False):  # a `repeat` has no end
            yield dict(zip(columns, row, strict=True))

    def numbers(self, level: float | None = None) -> dict[str, Any]:
        """Plain data, ready for JSON, without the guarantee.

        Args:
            level: of the intervals; see `interval`.
        """
        chosen = self.level if level is None else level
        return {
            "kind": self.spec.kind,
            "unit": self.spec.unit,
            "question": self.question,
            "method": self.method,
            "level": chosen,
            "epsilon": str(self.spec.epsilon),
            "delta": str(getattr(self.spec, "delta", 0)),
            "no_privacy": self.spec.no_privacy,
            "layers": self.layers,
            "labels": {name: [_written(one) for one in plain(column)] for name, column in self.labels.items()},
            "values": self.values.tolist(),
            "stderr": self.stderr.tolist(),
            "intervals": self.interval(chosen).tolist() if self.bounded else None,
            **self.more(chosen),
        }

    def to_dict(self, level: float | None = None) -> dict[str, Any]:
        """Plain data, ready for JSON, with the guarantee. All kinds have the same keys; a kind may have more.

        Args:
            level: of the intervals; see `interval`.
        """
        return {**self.numbers(level), "guarantee": self.guarantee}

    def to_json(self, level: float | None = None) -> str:
        """`to_dict` as a JSON text.

        Args:
            level: of the intervals; see `interval`.
        """
        return json.dumps(self.to_dict(level), allow_nan=False)

    def to_csv(self, level: float | None = None) -> str:
        """The rows as RFC 4180 text with a header line.

        Args:
            level: of the intervals; see `interval`.
        """
        return exports.as_csv(list(self.rows(level)))

    def to_arrow(self, level: float | None = None) -> pa.Table:
        """The rows as an Arrow table, with the types that the kind declares.

        Args:
            level: of the intervals; see `interval`.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        return exports.table_of(list(self.rows(level)), kinds.of(self.spec).columns(self.spec))

    def to_pandas(self, level: float | None = None) -> pd.DataFrame:
        """The rows as a pandas DataFrame.

        Args:
            level: of the intervals; see `interval`.

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

    def further(self) -> Answers | None:
        """The answers that pages, reports and notebooks show beside these; None: there are none."""
        return None

    def _repr_html_(self) -> str:
        """For notebooks: the headline, the first tables and charts, and a note."""
        from sketchstream.kinds import shown

        beside = self.further()
        return shown.card(self.numbers(), self._noted(), None if beside is None else beside.numbers())

    def _noted(self) -> str:
        """Sentence below a notebook's card."""
        return " ".join(str(self).splitlines()[:1])


def checked_level(level: float) -> float:
    """Check the level of an interval.

    Raises:
        EstimateError: it is not between 0 and 1.
    """
    if not isinstance(level, (int, float, np.number)) or isinstance(level, bool) or not 0 < level < 1:
        msg = f"level must be above 0 and below 1, found {level!r:.40}"
        raise EstimateError(msg)
    return float(level)


def plain(column: Column) -> Sequence[Any]:
    """A column as a sequence of plain values."""
    values: Sequence[Any] = column.tolist() if isinstance(column, np.ndarray) else column
    return values


def _written(one: object) -> object:
    """A label in plain data: bytes as hexadecimal digits."""
    return one.hex() if isinstance(one, bytes) else one
