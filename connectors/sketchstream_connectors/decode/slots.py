"""What is wanted of binary payloads: slots, and event times of what was found in them.

In: the wanted fields. Out: slots; times. Touches: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.items.columns import RecordColumn
from sketchstream.kernels.tokens import INTEGER, OTHER, STRING
from sketchstream.stream.formats import RECORD_TIME, Fields, TimeUnit
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.decode.named_fields import wanted_fields
from sketchstream_connectors.decode.times import TO_MS, column_times, in_ms


@dataclass(frozen=True)
class Slot:
    """One field that is wanted.

    Args:
        path: names of fields.
        text: bytes are of use only as UTF-8.
        number: decimals and floats that are whole become integers.
        time: times become milliseconds.
        unit: what plain numbers are multiplied with, and then divided by, for that.
    """

    path: tuple[str, ...]
    text: bool = True
    number: bool = False
    time: bool = False
    unit: tuple[int, int] = (1, 1)


def slots_of(fields: Fields) -> tuple[tuple[Slot, ...], int]:
    """The slots of the wanted fields in their order; and that of the time, which is the last one, -1 if there is none.

    A field that is the time and something else as well has two slots, as its number and as its milliseconds.
    """
    text = fields.item_type != "bytes"
    names = wanted_fields(fields)
    others = {fields.item, fields.weight, *fields.columns}
    unit = TO_MS[fields.time_unit]
    slots = [Slot(tuple(name.split(".")), text, name == fields.weight, name not in others, unit) for name in names]
    if fields.time == RECORD_TIME:
        return tuple(slots), -1
    if fields.time in others:
        slots.append(Slot(tuple(fields.time.split(".")), text, fields.time == fields.weight, True, unit))
        return tuple(slots), len(slots) - 1
    return tuple(slots), names.index(fields.time)


def binary_times(column: RecordColumn, unit: TimeUnit = "ms") -> Ints:
    """(n,) int64 event times: numbers in this unit, strings RFC 3339; NO_TIME where unreadable."""
    numbers = (column.kinds == INTEGER) & (column.ends < 0) if column.binary else np.zeros(len(column), np.bool_)
    if numbers.all():
        return in_ms(column.starts.copy(), unit)
    kinds = np.where(column.kinds == STRING, STRING, OTHER).astype(np.uint8)
    times = column_times(RecordColumn(kinds, column.buffer, column.starts, column.ends))
    times[numbers] = in_ms(column.starts[numbers], unit)
    times[~numbers & (kinds != STRING)] = NO_TIME
    return times
