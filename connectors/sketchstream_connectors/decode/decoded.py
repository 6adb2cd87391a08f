"""What a decoder makes of payloads, and how weights and times become numbers.

In: columns of fields. Out: `Decoded`, weights, times. Touches: nothing. The result for a record depends on it alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sketchstream.items.arrays import Items
from sketchstream.items.columns import Column
from sketchstream.stream.windows.windows import NO_TIME
from sketchstream_connectors.decode.pools import columns as rows
from sketchstream_connectors.decode.records import NO_TIMESTAMP, Records

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

RECORD_TIME = "record"


@dataclass(frozen=True, eq=False)
class Decoded:
    """u updates from n records.

    Args:
        record: (u,) int64 index of the record of each update; None: u = n, one each, in order.
        items: the u items; an update that is not valid has the item 0, or an empty one.
        weights: (u,) int64, or None if all are 1.
        valid: (u,) bool, whether the update is to be applied. Not valid and not null: a poison payload.
        times: (n,) int64 event time in milliseconds, `NO_TIME` where it cannot be read.
        null: (n,) bool, records without an item, which are no-ops and not errors; their updates are not valid.
        weight: the weights as they were found, if they may be decimal; `weights` is then 0 for non-integers.
        columns: further requested fields of the n records, by name.
    """

    record: Ints | None
    items: Items
    weights: Ints | None
    valid: Flags
    times: Ints
    null: Flags
    weight: Column | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.valid.size)

    def __repr__(self) -> str:
        return f"Decoded({len(self)} updates of {self.times.size} records)"

    @property
    def poison(self) -> Flags:
        """(u,) bool: updates whose payload cannot be used, without those that are no-ops."""
        null = self.null if self.record is None else self.null[self.record]
        wrong: Flags = ~self.valid & ~null
        return wrong


def read_weights(column: Column, valid: Flags, *, decimals: bool) -> tuple[Ints, Column | None]:
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
