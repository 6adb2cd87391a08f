"""The formats "key" and "value": the raw bytes of a record's key or value are the item.

In: `Records`. Out: `Events`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchstream.items.arrays import Items
from sketchstream.items.columns import RecordColumn
from sketchstream.items.events import Events
from sketchstream.kernels import check_payloads, check_utf8
from sketchstream.kernels.tokens import NULL, STRING
from sketchstream.stream.formats import RECORD_TIME, Fields, PayloadFormat, Reader
from sketchstream_connectors.decode.records import Records
from sketchstream_connectors.decode.times import record_times


@dataclass(frozen=True)
class RawReader(Reader):
    """Reads whole keys, or whole values.

    Args:
        fields: what is wanted; there are no named ones.
        key: whether the key is the item.
    """

    fields: Fields
    key: bool

    def decode(self, records: Records) -> Events:
        """Decode items of all records; see `Reader`."""
        starts, ends = records.value_start, records.value_end
        if self.key:
            starts, ends = records.key_start, records.key_end
        if self.fields.item_type == "int":
            null = starts < 0
            kinds = np.where(null, NULL, STRING).astype(np.uint8)
            if self.key:
                null |= records.value_start < 0
            items, valid = RecordColumn(kinds, records.buffer, starts, ends, raw=True).items("int")
            return Events(None, items, None, valid & ~null, record_times(records), null)
        null, valid = np.empty(len(records), np.bool_), np.empty(len(records), np.bool_)
        text = self.fields.item_type == "text"
        if check_payloads(records.buffer, starts, ends, records.value_start, text, null, valid):
            check_utf8(records.buffer, starts, ends, valid)
        if not valid.all():
            starts, ends = np.where(valid, starts, 0), np.where(valid, ends, 0)
        items = Items.spans(records.buffer, starts, ends, "str" if text else "bytes")
        return Events(None, items, None, valid, record_times(records), null)


@dataclass(frozen=True)
class RawFormat(PayloadFormat):
    """See `PayloadFormat`."""

    name: str
    named = False

    def check(self, fields: Fields) -> Iterator[str]:
        """Mistakes in the fields."""
        yield from check_unnamed(self.name, fields, {None}, {RECORD_TIME})

    def reader(self, fields: Fields, payload: Any, resolve: Callable[[str], Any]) -> RawReader:
        """A reader."""
        return RawReader(fields, self.name == "key")

    def example(self, fields: Fields, now_ms: int) -> tuple[RawReader, bytes]:
        """An item of any type."""
        return RawReader(fields, self.name == "key"), b"1"


FORMATS = {name: RawFormat(name) for name in ("key", "value")}


def check_unnamed(record_format: str, fields: Fields, weights: set[str | None], times: set[str]) -> Iterator[str]:
    """Mistakes in the fields of a format whose payloads have no named ones.

    Args:
        record_format: name of the format.
        fields: what is wanted.
        weights: what may stand for the weight.
        times: what may stand for the time.
    """
    if fields.item is not None:
        yield f"item names a field of format = 'json'; format = {record_format!r} has none: leave it out"
    if fields.columns:
        yield f"format = {record_format!r} has no named fields: sketches that need fields of records need format json"
    if fields.weight not in weights:
        yield f"format = {record_format!r} has no weight field, found weight = {fields.weight!r:.40}"
    if fields.time not in times:
        yield f"format = {record_format!r} takes time from {sorted(times)}, found {fields.time!r:.40}"
