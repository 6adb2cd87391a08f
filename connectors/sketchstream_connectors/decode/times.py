"""Event times of numbers and texts, in milliseconds.

In: columns of numbers and texts, the unit of the numbers. Out: (n,) milliseconds since 1970. Touches: nothing.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from sketchstream.columns import Column
from sketchstream.kernels.tokens import DECIMAL, INTEGER, NULL
from sketchstream.stream.formats import UNITS_PER_S, TimeUnit
from sketchstream.stream.windows.windows import NO_TIME
from sketchstream_connectors.decode import json
from sketchstream_connectors.decode.pools import columns as rows

Ints = npt.NDArray[np.int64]

TO_MS: Final = {unit: Fraction(1000, per_s).as_integer_ratio() for unit, per_s in UNITS_PER_S.items()}
"""What a number is multiplied with, and then divided by, to be milliseconds."""
LARGEST: Final = 2**63 - 1


def in_ms(numbers: Ints, unit: TimeUnit) -> Ints:
    """(n,) milliseconds, the instants' floors; NO_TIME where that is too large, and where it was given."""
    factor, divisor = TO_MS[unit]
    if unit == "ms":
        return numbers
    unknown = (numbers > LARGEST // factor) | (numbers < -(LARGEST // factor)) | (numbers == NO_TIME)
    return np.where(unknown, NO_TIME, np.where(unknown, 0, numbers) * factor // divisor)


def column_times(column: Column, unit: TimeUnit = "ms") -> Ints:
    """(n,) event times of JSON values: numbers in this unit, strings RFC 3339; NO_TIME where unreadable."""
    times: Ints = rows(1, len(column))[0]
    json.read_times(column.buffer, column.kinds, column.starts, column.ends, unit == "s", times)
    if unit != "ms":
        whole = column.kinds == INTEGER
        times[whole] = in_ms(times[whole], unit)
    return times


def text_times(column: Column, unit: TimeUnit = "ms") -> Ints:
    """(n,) event times of texts of an untyped format: they spell numbers in this unit, or are RFC 3339."""
    digits, whole = column.integers()
    times, starts, kinds = np.empty(len(column), np.int64), np.maximum(column.starts, 0), column.kinds
    if unit == "s" and column.buffer.size:
        dated = column.buffer[np.minimum(starts + 4, column.buffer.size - 1)] == ord("-")
        kinds = np.where(dated | (kinds <= NULL), kinds, DECIMAL).astype(np.uint8)
    json.read_times(column.buffer, kinds, starts, column.ends, unit == "s", times)
    return np.where(whole, in_ms(digits, unit), times)
