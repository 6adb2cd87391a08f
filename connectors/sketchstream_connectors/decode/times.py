"""Event times of numbers and texts, in milliseconds.

In: columns of numbers and texts, the unit of the numbers; records. Out: (n,) milliseconds since 1970. Touches: nothing.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream.items.columns import RecordColumn
from sketchstream.kernels import use_numpy_twin
from sketchstream.kernels.tokens import DECIMAL, INTEGER, NULL, STRING
from sketchstream.stream.formats import UNITS_PER_S, TimeUnit
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.decode import time_kernels
from sketchstream_connectors.decode.memory_pool import int_rows
from sketchstream_connectors.decode.records import NO_TIMESTAMP, Records

TO_MS: Final = {unit: Fraction(1000, per_s).as_integer_ratio() for unit, per_s in UNITS_PER_S.items()}
"""Factor and divisor that make a number of each unit milliseconds."""
MAX_INT64: Final = 2**63 - 1


def record_times(records: Records) -> Ints:
    """The records' own timestamps."""
    times: Ints = int_rows(1, len(records))[0]
    times[:] = records.timestamps
    times[times == NO_TIMESTAMP] = NO_TIME
    return times


def in_ms(numbers: Ints, unit: TimeUnit) -> Ints:
    """(n,) milliseconds, the instants' floors; NO_TIME where that is too large, and where it was given."""
    factor, divisor = TO_MS[unit]
    if unit == "ms":
        return numbers
    unknown = (numbers > MAX_INT64 // factor) | (numbers < -(MAX_INT64 // factor)) | (numbers == NO_TIME)
    return np.where(unknown, NO_TIME, np.where(unknown, 0, numbers) * factor // divisor)


def column_times(column: RecordColumn, unit: TimeUnit = "ms") -> Ints:
    """(n,) event times of JSON values: numbers in this unit, strings RFC 3339; NO_TIME where unreadable."""
    times: Ints = int_rows(1, len(column))[0]
    _read_times(column, column.kinds, unit, times)
    if unit != "ms":
        whole = column.kinds == INTEGER
        times[whole] = in_ms(times[whole], unit)
    return times


def text_times(column: RecordColumn, unit: TimeUnit = "ms") -> Ints:
    """(n,) event times of texts of an untyped format: they spell numbers in this unit, or are RFC 3339."""
    digits, whole = column.integers()
    times, starts, kinds = np.empty(len(column), np.int64), np.maximum(column.starts, 0), column.kinds
    if unit == "s" and column.buffer.size:
        dated = column.buffer[np.minimum(starts + 4, column.buffer.size - 1)] == ord("-")
        kinds = np.where(dated | (kinds <= NULL), kinds, DECIMAL).astype(np.uint8)
    _read_times(replace(column, starts=starts), kinds, unit, times)
    return np.where(whole, in_ms(digits, unit), times)


WORK = 4
"""Elements of `kernels.use_numpy_twin` that the twin of `time_kernels.read_times` costs for each time."""
_NUMBER = re.compile(rb"-?[0-9]{1,19}")
_SECONDS = re.compile(rb"0*([0-9]{1,16})\.([0-9]*)")
_INSTANT = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    rb"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_ERA_DAYS = 146_097
"""Days of 400 years, after which the calendar repeats."""


def _read_times(column: RecordColumn, kinds: npt.NDArray[np.uint8], unit: TimeUnit, times: Ints) -> None:
    """Fill in times; see `time_kernels.read_times`."""
    arguments = (column.buffer, kinds, column.starts, column.ends, unit == "s", times)
    twin = use_numpy_twin(time_kernels.read_times, lambda: WORK * len(times), None, arguments)
    (read_plainly if twin else time_kernels.read_times)(*arguments)


def read_plainly(
    data: npt.NDArray[np.uint8], kinds: npt.NDArray[np.uint8], starts: Ints, ends: Ints, seconds: bool, times: Ints
) -> None:
    """Read times; see `time_kernels.read_times`, whose results these are."""
    readers = {INTEGER: _parse_whole, STRING: _instant} | ({DECIMAL: _in_seconds} if seconds else {})
    for i, (kind, start, end) in enumerate(zip(kinds.tolist(), starts.tolist(), ends.tolist(), strict=True)):
        read = readers.get(kind)
        milliseconds = None if read is None else read(data.data[start:end].tobytes())
        times[i] = NO_TIME if milliseconds is None else milliseconds


def _parse_whole(text: bytes) -> int | None:
    """An integer of milliseconds, or of another unit."""
    number = int(text) if _NUMBER.fullmatch(text) else MAX_INT64 + 1
    return number if abs(number) <= MAX_INT64 else None


def _in_seconds(text: bytes) -> int | None:
    """Milliseconds of decimal seconds."""
    match = _SECONDS.fullmatch(text)
    if match is None or int(match[1]) >= time_kernels.MAX_SECONDS:
        return None
    return int(match[1]) * 1000 + int((match[2] + b"000")[:3])


def _instant(text: bytes) -> int | None:
    """Milliseconds of a time of RFC 3339."""
    match = _INSTANT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    hours, minutes = int(match[9] or 0), int(match[10] or 0)
    if hour > 23 or minute > 59 or second > 60 or hours > 23 or minutes > 59:
        return None
    try:
        # Dates of Python begin with the year 1.
        days = datetime.date(year or 400, month, day).toordinal() - (0 if year else _ERA_DAYS)
    except ValueError:
        return None
    shift = (hours * 60 + minutes) * (-1 if match[8] == b"-" else 1)
    in_minutes = (days - datetime.date(1970, 1, 1).toordinal()) * 1440 + hour * 60 + minute - shift
    if second < 60:
        return in_minutes * 60_000 + second * 1000 + int(((match[7] or b"") + b"000")[:3])
    return in_minutes * 60_000 + 59_999 if in_minutes % 1440 == 1439 else None
