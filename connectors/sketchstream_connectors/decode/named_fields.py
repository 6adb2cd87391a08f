"""Items, weights and times of payloads with named fields, whatever format they are in.

In: where the wanted fields of n payloads are. Out: `Events`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from sketchstream.array_types import Bytes, Flags, Ints
from sketchstream.items.arrays import Items
from sketchstream.items.columns import RecordColumn
from sketchstream.items.events import Events
from sketchstream.kernels.tokens import DECIMAL, INTEGER
from sketchstream.stream.formats import RECORD_TIME, Fields, PayloadFormat
from sketchstream_connectors.decode.records import Records, read_only
from sketchstream_connectors.decode.times import record_times


@dataclass(frozen=True, eq=False)
class Found:
    """Where the fields of n payloads are.

    Args:
        buffer: buffer of the bounds.
        kinds: (k, n) uint8, as of a `RecordColumn`.
        starts: (k, n) int64 start of a string's UTF-8 bytes, or of a number's text; undefined for other kinds.
        ends: (k, n) int64 end of these bytes.
        broken: (n,) bool, payloads that are malformed. Fields that are not there have kind MISSING.
        binary: whether numbers are binary: with an end of -1 the start is an integer, or, of a decimal, the bits
            of a double.
    """

    buffer: Bytes
    kinds: Bytes
    starts: Ints
    ends: Ints
    broken: Flags
    binary: bool = False

    def column(self, place: int) -> RecordColumn:
        """One of the fields."""
        kinds, starts, ends = self.kinds[place], self.starts[place], self.ends[place]
        if not self.binary:
            return RecordColumn(kinds, self.buffer, starts, ends)
        doubles = (kinds == DECIMAL) & (ends < 0)
        column = RecordColumn(kinds, self.buffer, starts, ends, binary=True)
        if not doubles.any():
            return column
        if bool(np.all(doubles | ((kinds != INTEGER) & (kinds != DECIMAL)))):
            return replace(column, floats=np.where(doubles, starts.view(np.float64), 0.0), binary=False)
        return _spelled_doubles(column, doubles)


def _spelled_doubles(column: RecordColumn, doubles: Flags) -> RecordColumn:
    """A column whose integers and doubles are mixed: every double becomes the exact text of its value."""
    texts = [str(Decimal(float(value))).encode() for value in column.starts[doubles].view(np.float64)]
    bounds = np.cumsum([column.buffer.size] + [len(text) for text in texts])
    buffer = np.concatenate([column.buffer, np.frombuffer(b"".join(texts), np.uint8)])
    starts, ends = column.starts.copy(), column.ends.copy()
    starts[doubles], ends[doubles] = bounds[:-1], bounds[1:]
    return replace(column, buffer=read_only(buffer), starts=starts, ends=ends)


def wanted_fields(fields: Fields) -> list[str]:
    """The different fields that are wanted, in the order item, weight, time, columns."""
    time = None if fields.time == RECORD_TIME else fields.time
    return list(dict.fromkeys(field for field in (fields.item, fields.weight, time, *fields.columns) if field))


class NamedFormat(PayloadFormat):
    """A format whose payloads have named fields."""

    named = True

    def check(self, fields: Fields) -> Iterator[str]:
        """Mistakes in dotted fields."""
        named = [("item", fields.item), ("weight", fields.weight), ("time", fields.time)]
        for name, value in named + [("a column", column) for column in fields.columns]:
            if value is not None and not all(value.split(".")):
                yield f"{name} must be a dotted field such as user.id, found {value!r:.40}"


def read_weights(column: RecordColumn, valid: Flags, *, decimals: bool) -> tuple[Ints, RecordColumn | None]:
    """Weights of n records: integers, 1 where there is none.

    Args:
        column: the field.
        valid: (n,) bool, cleared where the weight cannot be used.
        decimals: whether a weight may be any number; non-integers are then 0 here, and must be read from the column.

    Returns:
        (n,) int64; the column with `decimals`, else None.
    """
    absent = column.absent
    weights, readable = column.integers()
    weights[absent] = 1
    readable |= absent
    if decimals:
        weights[~readable] = 0
        readable |= column.decimals(0)[1]
    valid &= readable
    return weights, column if decimals else None


def assemble(fields: Fields, records: Records, found: Found, read_times: Callable[[RecordColumn], Ints]) -> Events:
    """Make items, weights and times of the fields that were found.

    Args:
        fields: what is wanted.
        records: the n records.
        found: the places of `wanted_fields`, in that order.
        read_times: (n,) event times in milliseconds, from the column of the time.
    """
    of = {name: found.column(place) for place, name in enumerate(wanted_fields(fields))}
    if fields.item is None:
        null = records.value_start < 0
        items, valid = Items.of(np.zeros(len(records), np.int64)), ~null & ~found.broken
    else:
        null = ~found.broken & of[fields.item].absent
        items, valid = of[fields.item].items(fields.item_type)
    weights, weight = None, None
    if fields.weight is not None:
        weights, weight = read_weights(of[fields.weight], valid, decimals=fields.decimals)
    times = record_times(records) if fields.time == RECORD_TIME else read_times(of[fields.time])
    return Events(None, items, weights, valid, times, null, weight, {name: of[name] for name in fields.columns})


def nest_fields(fields: Fields, now_ms: int) -> dict[str, object]:
    """A document with one value in each wanted field, nested as their paths say."""
    values: dict[str, object] = dict.fromkeys(fields.columns, "1")
    values |= {fields.item or "": 1 if fields.item_type == "int" else "1", fields.weight or "": 1}
    if fields.time != RECORD_TIME:
        values[fields.time] = now_ms
    document: dict[str, object] = {}
    for path, value in values.items():
        *parents, leaf = path.split(".")
        place = document
        for parent in parents:
            inner = place.setdefault(parent, {})
            if not isinstance(inner, dict):
                break
            place = inner
        else:
            place[leaf] = value
    return document
