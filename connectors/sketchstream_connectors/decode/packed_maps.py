"""The format "packed": msgpack maps that hold many items each.

In: `Records`. Out: `Events`. Touches: nothing. Errors never contain a payload.

A map is {"i": bin of little-endian uint64, "w": bin of int32, "t": int milliseconds}, w and t optional, one update per
item. Items are unsigned: as text, their digits are those of a uint64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sketchstream.array_types import Bytes, Flags, Ints
from sketchstream.items.arrays import Items
from sketchstream.items.events import Events
from sketchstream.stream.formats import RECORD_TIME, Fields, PayloadFormat, Reader
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.decode import packed_kernels as kernels
from sketchstream_connectors.decode.raw_values import check_unnamed
from sketchstream_connectors.decode.records import Records, read_only
from sketchstream_connectors.decode.times import record_times

_BAD_TIME = 2


@dataclass(frozen=True)
class PackedReader(Reader):
    """Reads packed maps."""

    fields: Fields

    def decode(self, records: Records) -> Events:
        """Packed maps, spread over their updates."""
        n = len(records)
        buffer = records.buffer
        status = np.empty(n, dtype=np.uint8)
        fields = np.empty((n, 6), dtype=np.int64)
        null = records.value_start < 0
        times = record_times(records)
        if kernels.scan_packed(buffer, records.value_start, records.value_end, status, fields):
            buffer = _ask_msgpack(records, status, fields, null)
        has_time = fields[:, kernels.HAS_TIME] == 1
        times[has_time] = fields[has_time, kernels.TIME]
        unreadable = fields[:, kernels.HAS_TIME] == _BAD_TIME
        if self.fields.time == "t":
            unreadable |= ~has_time
        times[unreadable] = NO_TIME
        readable = fields[:, kernels.ITEMS_START] >= 0
        counts = np.where(readable, (fields[:, kernels.ITEMS_END] - fields[:, kernels.ITEMS_START]) // 8, 1)
        firsts = np.cumsum(counts) - counts
        total = int(counts.sum())
        record = np.empty(total, dtype=np.int64)
        items = np.empty(total, dtype=np.int64)
        weights = np.empty(total if bool((fields[:, kernels.WEIGHTS_START] >= 0).any()) else 0, dtype=np.int64)
        kernels.unpack(buffer, fields, firsts, counts, record, items, weights)
        valid = readable[record]
        given_weights = weights if weights.size else None
        if self.fields.item_type == "int":
            return Events(record, Items.of(items), given_weights, valid, times, null)
        offsets = np.empty(total + 1, dtype=np.int64)
        kernels.decimal_sizes(items, valid, offsets)
        text = np.empty(int(offsets[-1]), dtype=np.uint8)
        kernels.write_decimals(items, offsets, text)
        return Events(record, Items.packed(read_only(text), offsets, "str"), given_weights, valid, times, null)


class PackedFormat(PayloadFormat):
    """See `PayloadFormat`."""

    named = False

    def check(self, fields: Fields) -> Iterator[str]:
        """Mistakes in the fields."""
        if fields.item_type == "bytes":
            yield "packed items are 64-bit integers: item_type must be text or int, found bytes"
        yield from check_unnamed("packed", fields, {None, "w"}, {RECORD_TIME, "t"})

    def reader(self, fields: Fields, payload: Any, resolve: Callable[[str], Any]) -> PackedReader:
        """A reader."""
        return PackedReader(fields)

    def example(self, fields: Fields, now_ms: int) -> tuple[PackedReader, bytes]:
        """A map with one item."""
        import msgpack

        packed: bytes = msgpack.packb({"i": (1).to_bytes(8, "little"), "w": (1).to_bytes(4, "little"), "t": now_ms})
        return PackedReader(fields), packed


FORMATS = {"packed": PackedFormat()}


def _ask_msgpack(records: Records, status: Bytes, fields: Ints, null: Flags) -> Bytes:
    """Let the msgpack library judge the maps that the scanner left; returns the buffer that `fields` then refer to."""
    buffer = records.buffer
    side = bytearray()
    for n in np.flatnonzero(status == 1).tolist():
        line = fields[n]
        line[:] = (-1, -1, -1, -1, 0, 0)
        answer = ask_msgpack(buffer[records.value_start[n] : records.value_end[n]].data)
        if answer is None:
            line[kernels.HAS_TIME] = _BAD_TIME
            continue
        items, weights, line[kernels.HAS_TIME], line[kernels.TIME] = answer
        if items is None:
            null[n] = True
            continue
        if items is False:
            continue
        line[kernels.ITEMS_START] = buffer.size + len(side)
        side += items
        line[kernels.ITEMS_END] = buffer.size + len(side)
        if weights is not None:
            line[kernels.WEIGHTS_START] = line[kernels.ITEMS_END]
            side += weights
            line[kernels.WEIGHTS_END] = buffer.size + len(side)
    return read_only(np.concatenate([buffer, np.frombuffer(side, dtype=np.uint8)]))


def ask_msgpack(text: bytes | memoryview) -> tuple[bytes | Literal[False] | None, bytes | None, int, int] | None:
    """Read a packed map with the msgpack library, which is the reference.

    Returns:
        The bytes of i (None where it is missing or null, False where i or w cannot be used), those of w, whether t is
        there (0 no, 1 yes, 2 not an int64) and t; None where the bytes are not a msgpack map.
    """
    import msgpack

    try:
        document = msgpack.unpackb(text, raw=False, strict_map_key=False)
    except Exception:  # the library raises errors of many types, with the same meaning here
        return None
    if not isinstance(document, dict):
        return None
    time = document.get("t")
    has_time, t = 0, 0
    if time is not None:
        has_time = _BAD_TIME
        if isinstance(time, int) and not isinstance(time, bool) and -(1 << 63) <= time < 1 << 63:
            has_time, t = 1, time
    items, weights = document.get("i"), document.get("w")
    if items is None:
        return None, None, has_time, t
    good = isinstance(items, bytes) and len(items) % 8 == 0
    good = good and (weights is None or (isinstance(weights, bytes) and len(weights) * 2 == len(items)))
    return (items if good else False), (weights if good else None), has_time, t
