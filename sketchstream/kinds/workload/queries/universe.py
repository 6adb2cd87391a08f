"""From the fields of records to cells of the table, and back to names.

In: columns with their rules, values of fields, or columns of a chunk as a decoder found them. Out: cell numbers, names
of the cells. Touches: nothing.

A column is a list of categories, or buckets of numbers between edges. A value that is in none belongs to the cell
"other" if the column has one; else the record has no cell, and does nothing. Each record is decided from that record
alone. Comparisons with edges are exact: numbers are read as rationals, floats by their shortest decimal form.

Of the columns of a chunk, whole numbers and listed texts are located in compiled code; so are numbers with fractions,
unless they lie at an edge. Those, and numbers spelled in strings, are read as fractions, each text once a chunk.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Flags, Floats, Ints
from sketchstream.errors import SpecError
from sketchstream.items.columns import Choices, RecordColumn
from sketchstream.kernels.tokens import DECIMAL, INTEGER, STRING
from sketchstream.kinds.workload.queries.factors import MAX_CELLS
from sketchstream.kinds.workload.queries.queries import Workload, marginals
from sketchstream.spec import checked_int, exact_rational, flag

OTHER: Final = "other"
NOWHERE: Final = -1
BITS: Final = 8
"""Numbers with fractions are compared with edges in units of 2^-BITS first."""
MAX_INTEGER: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Column:
    """The cells of one field.

    Args:
        name: name of the column, and of the field unless `field` is given.
        values: categories, as text; numbers of a record are compared by their text.
        edges: ascending; bucket i holds edges[i] <= x < edges[i + 1].
        other: whether values in no cell have a cell of their own, the last one.
        field: name of the record's field.

    Raises:
        SpecError: both or neither of values and edges, values that repeat, edges that do not ascend.
    """

    name: str
    values: tuple[str, ...] = ()
    edges: tuple[Fraction, ...] = ()
    other: bool = False
    field: str = ""

    def __init__(
        self,
        name: str,
        values: Iterable[str | int] = (),
        edges: Iterable[Any] = (),
        *,
        other: bool = False,
        field: str = "",
    ) -> None:
        if not isinstance(name, str) or not name:
            raise SpecError("a column needs a name")
        other = flag(other, f"other of column {name!r:.40}")
        words = tuple(_text(value) for value in values)
        if any(word is None for word in words):
            raise SpecError(f"values of column {name!r:.40} must be text or whole numbers")
        expected = f"edges of column {name!r:.40} must be numbers"
        ends = tuple(exact_rational(edge, expected) for edge in edges)
        if bool(words) == bool(ends):
            raise SpecError(f"column {name!r:.40} needs either values or edges")
        if len(set(words)) != len(words) or (other and OTHER in words):
            raise SpecError(
                f"values of column {name!r:.40} must differ from each other, and from 'other' where it is a cell"
            )
        if ends and (len(ends) < 2 or any(low >= high for low, high in itertools.pairwise(ends))):
            raise SpecError(f"edges of column {name!r:.40} must be at least two, ascending")
        vars(self).update(name=name, values=words, edges=ends, other=other, field=field or name)

    @classmethod
    def buckets(cls, name: str, start: Any, width: Any, count: int, *, other: bool = False, field: str = "") -> Column:
        """Buckets of one width.

        Args:
            name: name of the column.
            start: lower edge of the first bucket.
            width: width of a bucket, above 0.
            count: number of buckets.
            other: whether numbers outside have a cell.
            field: name of the record's field.

        Examples:
            >>> Column.buckets("delay", -60, 15, 4).cells
            ('-60..-45', '-45..-30', '-30..-15', '-15..0')
        """
        first = exact_rational(start, f"start of column {name!r:.40} must be a number")
        step = exact_rational(width, f"width of column {name!r:.40} must be a number")
        count = checked_int(count, f"count of column {name!r:.40}", 1, MAX_CELLS)
        return cls(name, edges=[first + step * i for i in range(count + 1)], other=other, field=field)

    @property
    def size(self) -> int:
        """Number of cells."""
        return (len(self.values) or len(self.edges) - 1) + self.other

    @property
    def cells(self) -> tuple[str, ...]:
        """Names of the cells."""
        words = self.values or tuple(
            f"{_spell_edge(low)}..{_spell_edge(high)}" for low, high in itertools.pairwise(self.edges)
        )
        return (*words, OTHER) if self.other else words

    def locate(self, value: object) -> int:
        """The cell of a field's value; -1 if it has none.

        Args:
            value: text, a number, or anything else, which is in no cell.
        """
        missing = self.size - 1 if self.other else NOWHERE
        if self.values:
            word = _text(value)
            return missing if word is None else self._places.get(word, missing)
        number = _number(value)
        if number is None or not self.edges[0] <= number < self.edges[-1]:
            return missing
        return bisect_right(self.edges, number) - 1

    @cached_property
    def _places(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.values)}

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data."""
        out: dict[str, Any] = {"name": self.name, "field": self.field, "other": self.other}
        if self.values:
            out["values"] = list(self.values)
        else:
            out["edges"] = [str(edge) for edge in self.edges]
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Column:
        """The column that `to_dict`, or a configuration, described.

        Args:
            data: name; values, or edges, or start with width and count; other; field.

        Raises:
            SpecError: keys that a column does not have.
        """
        fields = dict(data)
        keys = {"name", "field", "other", "values", "edges", "start", "width", "count"}
        if not set(fields) <= keys or "name" not in fields:
            unknown = ", ".join(sorted(set(fields) - keys)) or "no name"
            raise SpecError(f"a column has the keys {', '.join(sorted(keys))}; found {unknown:.80}")
        spaced = {key: fields.pop(key) for key in ("start", "width", "count") if key in fields}
        if not spaced:
            return cls(**fields)
        if len(spaced) < 3 or "values" in fields or "edges" in fields:
            raise SpecError("buckets of one width need start, width and count, and neither values nor edges")
        return cls.buckets(fields.pop("name"), **spaced, **fields)


@dataclass(frozen=True)
class Universe:
    """The table whose cells the records fall into; the last column runs fastest.

    Args:
        columns: columns with different names.

    Raises:
        SpecError: no column, names that repeat, or more than 2^24 cells.

    Examples:
        >>> table = Universe([Column("origin", ["EWR", "JFK"]), Column.buckets("hour", 0, 6, 4)])
        >>> table.locate({"origin": "JFK", "hour": 13})
        6
        >>> table.describe(6)
        {'origin': 'JFK', 'hour': '12..18'}
    """

    columns: tuple[Column, ...]

    def __init__(self, columns: Sequence[Column]) -> None:
        listed = tuple(columns)
        if not listed or len({column.name for column in listed}) != len(listed):
            raise SpecError("a table needs at least one column, and columns with different names")
        vars(self).update(columns=listed)
        checked_int(self.size, "number of cells of the table", 1, MAX_CELLS)

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of each column."""
        return tuple(column.size for column in self.columns)

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """Names of each column's cells."""
        return tuple(column.cells for column in self.columns)

    def locate(self, record: Mapping[str, object]) -> int:
        """The cell of a record, or -1 if it has none.

        Args:
            record: fields by name; one that is missing is in no cell.
        """
        cell = 0
        for column in self.columns:
            place = column.locate(record.get(column.field))
            if place < 0:
                return NOWHERE
            cell = cell * column.size + place
        return cell

    def locate_text(self, text: str) -> int:
        r"""The cell of a record that is one text: the columns' values in their order, with tabs between them.

        Args:
            text: text of the record; numbers are written as decimals or fractions.

        Examples:
            >>> table = Universe([Column("origin", ["EWR", "JFK"]), Column.buckets("hour", 0, 6, 4)])
            >>> table.locate_text("JFK\t13")
            6
        """
        values = text.split("\t")
        if len(values) != len(self.columns):
            return NOWHERE
        return self.locate({column.field: value for column, value in zip(self.columns, values, strict=True)})

    def locate_fields(self, fields: Mapping[str, Sequence[object]]) -> Ints:
        """(n,) cells of a batch, -1 for records that have none.

        Args:
            fields: values of each field, one a record; columns of equal length.

        Raises:
            SpecError: a field is missing, or lengths differ.
        """
        for column in self.columns:
            if column.field not in fields:
                raise SpecError(f"the batch has no field {column.field!r:.40}")
        if len({len(fields[column.field]) for column in self.columns}) > 1:
            raise SpecError("the fields of a batch must have equal lengths")
        return self.combine([_places(column, fields[column.field]) for column in self.columns])

    def combine(self, places: Sequence[Ints]) -> Ints:
        """(n,) cells of records by the place of each in every column; -1 for records that lack one."""
        stacked = np.stack(places)
        cells: Ints = np.ravel_multi_index(tuple(np.maximum(stacked, 0)), self.shape).astype(np.int64)
        return np.where((stacked < 0).any(axis=0), NOWHERE, cells)

    def describe(self, cell: int) -> dict[str, str]:
        """The names of a cell, one for each column."""
        places = np.unravel_index(cell, self.shape)
        return {column.name: column.cells[int(place)] for column, place in zip(self.columns, places, strict=True)}

    def marginals(self, orders: Iterable[int]) -> Workload:
        """All tables over these numbers of columns."""
        return marginals({column.name: column.size for column in self.columns}, orders)

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data."""
        return {"columns": [column.to_dict() for column in self.columns]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Universe:
        """The table that `to_dict` described."""
        return cls([Column.from_dict(column) for column in data["columns"]])


class CellLocator:
    """Locates records of a chunk in a table; each gets the cell that `Universe.locate` gives its texts."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._locators = [
            _value_locator(column) if column.values else _EdgeLocator(column).locate for column in universe.columns
        ]

    def locate(self, columns: Mapping[str, RecordColumn]) -> Ints:
        """(n,) cell of each record; -1: it has none."""
        places = []
        for column, locate in zip(self._universe.columns, self._locators, strict=True):
            inside = locate(columns[column.name])
            places.append(np.where(inside < 0, column.size - 1, inside) if column.other else inside)
        return self._universe.combine(places)


def _value_locator(column: Column) -> Callable[[RecordColumn], Ints]:
    """Function that gives the (n,) places of records' values in the list of categories, or -1."""
    choices = Choices(column.values)
    return lambda records: records.codes(choices).astype(np.int64)


class _EdgeLocator:
    """Finds buckets of numbers between edges."""

    def __init__(self, column: Column) -> None:
        self._column = column

    @cached_property
    def _whole(self) -> Ints:
        """Smallest whole number in each bucket, and one past the last: x >= edge if and only if x >= its ceiling."""
        return np.array([min(max(math.ceil(edge), -MAX_INTEGER), MAX_INTEGER) for edge in self._column.edges], np.int64)

    @cached_property
    def _units(self) -> Ints:
        """Edges in units of 2^-BITS, rounded down, and cut to 2^41 units, which no number reaches."""
        most = 1 << 41
        return np.array(
            [min(max(math.floor(edge * (1 << BITS)), -most), most) for edge in self._column.edges], np.int64
        )

    def locate(self, column: RecordColumn) -> Ints:
        """(n,) bucket of each record's number, or -1."""
        if column.floats is not None:
            return self._of_floats(column.floats, column.kinds == DECIMAL)
        numbers, whole = column.integers()
        out = np.where(whole, _bucket(self._whole, numbers), NOWHERE)
        rest = ~whole & ((column.kinds == DECIMAL) | (column.kinds == INTEGER) | (column.kinds == STRING))
        if rest.any():
            self._of_texts(column, np.flatnonzero(rest), out)
        return out

    def _of_texts(self, column: RecordColumn, places: Ints, out: Ints) -> None:
        """Locate numbers that are not 64-bit integers: by their units if no edge is near, else as fractions."""
        part = column.take(places)
        units, read = part.decimals(BITS)
        # the number lies between units - 1 and units + 1, an edge above its floor by less than one unit
        below, above = (np.searchsorted(self._units, units + far, side="right") for far in (-2, 0))
        sure = read & (below == above)
        out[places[sure]] = _bucket(self._units, units[sure])
        locate = lru_cache(maxsize=None)(self._locate)
        for place in places[~sure].tolist():
            text = column.buffer[column.starts[place] : column.ends[place]].tobytes()
            out[place] = locate(text.decode(errors="replace"))

    def _of_floats(self, floats: Floats, good: Flags) -> Ints:
        """Floats count as their shortest decimal form; each value is decided once."""
        values, which = np.unique(np.where(good, floats, np.nan), return_inverse=True)
        buckets = np.array([self._locate(value) for value in values.tolist()], np.int64)
        out: Ints = buckets[which]
        return out

    def _locate(self, value: Any) -> int:
        """The bucket of a number; -1 if it is in none, whether or not the column has a cell for those."""
        place = self._column.locate(value)
        return NOWHERE if place == len(self._column.edges) - 1 else place


def _bucket(edges: Ints, numbers: Ints) -> Ints:
    """(n,) bucket i with edges[i] <= x < edges[i + 1], or -1."""
    places = np.searchsorted(edges, numbers, side="right") - 1
    return np.where(places >= len(edges) - 1, NOWHERE, places).astype(np.int64)


def _places(column: Column, values: Iterable[object]) -> Ints:
    """(n,) the cell of each value; equal values of one type are decided once."""
    locate = lru_cache(maxsize=None, typed=True)(column.locate)
    quick = (str, int, float, np.generic)
    return np.array([(locate if isinstance(value, quick) else column.locate)(value) for value in values], np.int64)


def _text(value: object) -> str | None:
    """A category's text: text itself, or a whole number in decimal."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        return None
    return str(int(value))


def _number(value: object) -> Fraction | None:
    """The exact number that a field holds, or None."""
    if isinstance(value, (bool, np.bool_)) or value is None:
        return None
    if not isinstance(value, (int, float, str, Decimal, Fraction, np.integer, np.floating)):
        return None
    try:
        return exact_rational(value, "a number")  # type: ignore[arg-type]
    except SpecError:
        return None


def _spell_edge(edge: Fraction) -> str:
    """An edge as a reader writes it."""
    return str(edge.numerator) if edge.denominator == 1 else f"{float(edge):g}"
