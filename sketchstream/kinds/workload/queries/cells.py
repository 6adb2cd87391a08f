"""Cells of records: from columns of a chunk, as a decoder found them, to cell numbers.

In: a `Universe`, a `RecordColumn` of records for each of its columns. Out: cell numbers, -1 for records that have none.
Touches: nothing.

Each record gets the cell that `Universe.locate` gives its texts: numbers are compared with the edges exactly, never
through floats. Whole numbers and listed texts are located in compiled code; so are numbers with fractions, unless they
lie at an edge. Those, and numbers spelled in strings, are read as fractions, each text once a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream.items.columns import Choices, RecordColumn
from sketchstream.kernels.tokens import DECIMAL, INTEGER, STRING
from sketchstream.kinds.workload.queries.universe import NOWHERE, Column, Universe

BITS: Final = 8
"""Numbers with fractions are compared with edges in units of 2^-BITS first."""
MAX_INTEGER: Final = (1 << 63) - 1


class CellLocator:
    """Locates records in a table."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._columns = [
            _by_values(column) if column.values else _OfEdges(column).locate for column in universe.columns
        ]

    def locate(self, columns: Mapping[str, RecordColumn]) -> Ints:
        """(n,) cell of each record; -1: it has none."""
        cells: Ints | None = None
        for column, locate in zip(self._universe.columns, self._columns, strict=True):
            places = locate(columns[column.name])
            if column.other:
                places = np.where(places < 0, column.size - 1, places)
            before = np.zeros(len(places), np.int64) if cells is None else cells
            cells = np.where((before < 0) | (places < 0), NOWHERE, before * column.size + places)
        assert cells is not None
        return cells


def _by_values(column: Column) -> Callable[[RecordColumn], Ints]:
    """Gives the (n,) places of records' values in the list of categories, or -1."""
    choices = Choices(column.values)
    return lambda found: found.codes(choices).astype(np.int64)


class _OfEdges:
    """Buckets of numbers between edges."""

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
        seen: dict[bytes, int] = {}
        for place in places[~sure].tolist():
            text = column.buffer[column.starts[place] : column.ends[place]].tobytes()
            if text not in seen:
                seen[text] = self._locate_text(text)
            out[place] = seen[text]

    def _of_floats(self, floats: npt.NDArray[np.float64], good: npt.NDArray[np.bool_]) -> Ints:
        """Floats count as their shortest decimal form; each value is decided once."""
        values, which = np.unique(np.where(good, floats, np.nan), return_inverse=True)
        buckets = np.array([self._locate(value) for value in values.tolist()], np.int64)
        out: Ints = buckets[which]
        return out

    def _locate_text(self, text: bytes) -> int:
        """The bucket of a number as it is written."""
        try:
            return self._locate(text.decode())
        except UnicodeDecodeError:
            return NOWHERE

    def _locate(self, value: Any) -> int:
        """The bucket of a number; -1 if it is in none, whether or not the column has a cell for those."""
        place = self._column.locate(value)
        return NOWHERE if place == len(self._column.edges) - 1 else place


def _bucket(edges: Ints, numbers: Ints) -> Ints:
    """(n,) bucket i with edges[i] <= x < edges[i + 1], or -1."""
    places = np.searchsorted(edges, numbers, side="right") - 1
    return np.where(places >= len(edges) - 1, NOWHERE, places).astype(np.int64)
