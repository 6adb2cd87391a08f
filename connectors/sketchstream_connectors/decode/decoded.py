"""How weights and times of payloads become numbers.

In: columns of fields. Out: weights, times. Touches: nothing. The result for a record depends on it alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sketchstream.items.columns import RecordColumn
from sketchstream.stream.windows.windows import NO_TIME
from sketchstream_connectors.decode.pools import columns as rows
from sketchstream_connectors.decode.records import NO_TIMESTAMP, Records

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

RECORD_TIME = "record"


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


def record_times(records: Records) -> Ints:
    """The records' own timestamps."""
    times: Ints = rows(1, len(records))[0]
    times[:] = records.timestamps
    times[times == NO_TIMESTAMP] = NO_TIME
    return times
