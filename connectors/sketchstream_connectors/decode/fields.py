"""Decodes the items, weights and event times in the payloads of records. Each event is validated separately.

In: `Records`. Out: `Decoded`. Touches: nothing. Errors never contain a payload.

Formats: "key" and "value" take the raw bytes; "json" takes dotted fields of the value; "packed" takes a msgpack map
{"i": bin of little-endian uint64, "w": bin of int32, "t": int milliseconds}, w and t optional, one update per item.

What an item may be, by `item_type`:
    text    strings and UTF-8 bytes as they are, integers as their decimal digits: 5 and "5" are one item
    int     64-bit integers; decimal text of an integer (as JSON writes them) is that integer; 2^63 to 2^64 - 1 are the
            int64 of the same 64 bits, so 2^64 - 1 and -1 are one item
    bytes   strings and bytes as they are; integers are invalid
Packed items are unsigned: as text, their digits are those of a uint64. Floats, booleans, arrays and objects are invalid
items. A null item, a missing field, a null key or value is a no-op, not an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from sketchstream.columns import Column, ItemType
from sketchstream.errors import ConfigError
from sketchstream.items import Items
from sketchstream.kernels import check_payloads, check_utf8
from sketchstream.kernels.tokens import ASK, DECIMAL, INTEGER, MISSING, NULL, OTHER, STRING, UNREAD
from sketchstream.stream.interfaces import MOST_COLUMNS
from sketchstream.stream.windows import NO_TIME
from sketchstream_connectors.decode import json, kernels, layouts
from sketchstream_connectors.decode.pools import columns as rows
from sketchstream_connectors.decode.records import NO_TIMESTAMP, Records, read_only

Format = Literal["json", "key", "value", "packed"]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
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


@dataclass(frozen=True)
class Decoder:
    """How payloads are read; the `[input]` section of a configuration.

    Args:
        format: "json", "key", "value" or "packed".
        item: json only: dotted field of the item; None if events have only columns or times.
        item_type: "text", "int" or "bytes" (not for packed).
        weight: json: dotted field of an integer weight; missing or null is 1. packed: "w", read anyway.
        time: "record" (the record's own timestamp), or for json a dotted field with integer milliseconds or an RFC 3339
            string. packed: t where the map has it, else the record's timestamp; "t" makes it obligatory.
        columns: json: dotted fields that are wanted as they are.
        decimals: json: a weight may be any number; `Decoded.weight` has it.

    Raises:
        ConfigError: a combination that means nothing.
    """

    format: Format = "json"
    item: str | None = None
    item_type: ItemType = "text"
    weight: str | None = None
    time: str = RECORD_TIME
    columns: tuple[str, ...] = ()
    decimals: bool = False

    def __post_init__(self) -> None:
        if self.format not in {"json", "key", "value", "packed"}:
            msg = f"format must be json, key, value or packed, found {self.format!r:.40}"
            raise ConfigError(msg)
        if self.item_type not in {"text", "int", "bytes"}:
            msg = f"item_type must be text, int or bytes, found {self.item_type!r:.40}"
            raise ConfigError(msg)
        if self.format != "json":
            self._refuse_columns()
        if len(self.columns) > MOST_COLUMNS:
            msg = f"at most {MOST_COLUMNS} fields can be read beside item, weight and time, found {len(self.columns)}"
            raise ConfigError(msg)
        if self.format == "packed" and self.item_type == "bytes":
            msg = "packed items are 64-bit integers: item_type must be text or int, found bytes"
            raise ConfigError(msg)
        allowed_weight = {"json": None, "packed": {None, "w"}}.get(self.format, {None})
        if allowed_weight is not None and self.weight not in allowed_weight:
            msg = f"format = {self.format!r} has no weight field, found weight = {self.weight!r:.40}"
            raise ConfigError(msg)
        allowed_time = {"json": None, "packed": {RECORD_TIME, "t"}}.get(self.format, {RECORD_TIME})
        if allowed_time is not None and self.time not in allowed_time:
            msg = f"format = {self.format!r} takes time from {sorted(allowed_time)}, found {self.time!r:.40}"
            raise ConfigError(msg)
        named = [("item", self.item), ("weight", self.weight), ("time", self.time)]
        for name, value in named + [("a column", one) for one in self.columns]:
            if value is not None and not all(value.split(".")):
                msg = f"{name} must be a dotted field such as user.id, found {value!r:.40}"
                raise ConfigError(msg)

    def _refuse_columns(self) -> None:
        """Item and columns name fields, which only json has."""
        if self.item is not None:
            msg = f"item names a field of format = 'json'; format = {self.format!r} has none: leave it out"
            raise ConfigError(msg)
        if self.columns:
            msg = f"format = {self.format!r} has no named fields: sketches that need fields of records need format json"
            raise ConfigError(msg)

    def decode(self, records: Records) -> Decoded:
        """Decode items, weights and times of all records; invalid content raises no error."""
        if self.format == "json":
            return self._json(records)
        if self.format == "packed":
            return self._packed(records)
        key = self.format == "key"
        starts, ends = (records.key_start, records.key_end) if key else (records.value_start, records.value_end)
        if self.item_type == "int":
            null = starts < 0
            kinds = np.where(null, NULL, STRING).astype(np.uint8)
            if key:
                null |= records.value_start < 0
            items, valid = Column(kinds, records.buffer, starts, ends, raw=True).items("int")
            return Decoded(None, items, None, valid & ~null, _record_times(records), null)
        null, valid = np.empty(len(records), np.bool_), np.empty(len(records), np.bool_)
        text = self.item_type == "text"
        if check_payloads(records.buffer, starts, ends, records.value_start, text, null, valid):
            check_utf8(records.buffer, starts, ends, valid)
        if not valid.all():
            starts, ends = np.where(valid, starts, 0), np.where(valid, ends, 0)
        items = Items.spans(records.buffer, starts, ends, "str" if text else "bytes")
        return Decoded(None, items, None, valid, _record_times(records), null)

    def _json(self, records: Records) -> Decoded:
        """Fields of JSON values."""
        time = None if self.time == RECORD_TIME else self.time
        fields = list(dict.fromkeys(one for one in (self.item, self.weight, time, *self.columns) if one))
        found = find_fields(records.buffer, records.value_start, records.value_end, fields)
        of = {name: found.column(place) for place, name in enumerate(fields)}
        if self.item is None:
            null = records.value_start < 0
            items, valid = Items.of(np.zeros(len(records), np.int64)), ~null & ~found.broken
        else:
            null = ~found.broken & of[self.item].absent
            items, valid = of[self.item].items(self.item_type)
        weights, weight = None, None
        if self.weight is not None:
            weights, weight = read_weights(of[self.weight], valid, decimals=self.decimals)
        if time is None:
            times = _record_times(records)
        else:
            (times,) = rows(1, len(records))
            json.read_times(found.buffer, of[time].kinds, of[time].starts, of[time].ends, times)
        return Decoded(None, items, weights, valid, times, null, weight, {name: of[name] for name in self.columns})

    def _packed(self, records: Records) -> Decoded:
        """Packed maps, spread over their updates."""
        n = len(records)
        buffer = records.buffer
        status = np.empty(n, dtype=np.uint8)
        fields = np.empty((n, 6), dtype=np.int64)
        null = records.value_start < 0
        times = _record_times(records)
        if kernels.scan_packed(buffer, records.value_start, records.value_end, status, fields):
            buffer = _ask_msgpack(records, status, fields, null)
        has_time = fields[:, 4] == 1
        times[has_time] = fields[has_time, 5]
        unreadable = fields[:, 4] == _BAD_TIME
        if self.time == "t":
            unreadable |= ~has_time
        times[unreadable] = NO_TIME
        readable = fields[:, 0] >= 0
        counts = np.where(readable, (fields[:, 1] - fields[:, 0]) // 8, 1)
        firsts = np.cumsum(counts) - counts
        total = int(counts.sum())
        record = np.empty(total, dtype=np.int64)
        items = np.empty(total, dtype=np.int64)
        weights = np.empty(total if bool((fields[:, 2] >= 0).any()) else 0, dtype=np.int64)
        kernels.unpack(buffer, fields, firsts, counts, record, items, weights)
        valid = readable[record]
        given = weights if weights.size else None
        if self.item_type == "int":
            return Decoded(record, Items.of(items), given, valid, times, null)
        offsets = np.empty(total + 1, dtype=np.int64)
        kernels.decimal_sizes(items, valid, offsets)
        text = np.empty(int(offsets[-1]), dtype=np.uint8)
        kernels.write_decimals(items, offsets, text)
        return Decoded(record, Items.packed(read_only(text), offsets, "str"), given, valid, times, null)


_BAD_TIME = 2


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


def _record_times(records: Records) -> Ints:
    """The records' own timestamps."""
    times: Ints = rows(1, len(records))[0]
    times[:] = records.timestamps
    times[times == NO_TIMESTAMP] = NO_TIME
    return times


@dataclass(frozen=True, eq=False)
class Found:
    """Where the fields of n JSON texts are.

    Args:
        buffer: buffer of the bounds.
        kinds: (k, n) uint8, as of a `Column`.
        starts: (k, n) int64 start of a string's UTF-8 bytes, or of a number's text; undefined for other kinds.
        ends: (k, n) int64 end of these bytes.
        broken: (n,) bool, texts that are not JSON. Texts that are not there have kind MISSING.
    """

    buffer: Bytes
    kinds: Bytes
    starts: Ints
    ends: Ints
    broken: Flags

    def column(self, place: int) -> Column:
        """One of the fields."""
        return Column(self.kinds[place], self.buffer, self.starts[place], self.ends[place])


def find_fields(buffer: Bytes, starts: Ints, ends: Ints, fields: list[str]) -> Found:
    """Look dotted fields up in JSON texts, exactly as orjson would read them (duplicate keys: the last one holds).

    Args:
        buffer: uint8.
        starts: (n,) where each text begins, < 0 for none.
        ends: (n,) where it ends.
        fields: up to 62 dotted fields; no component is empty.
    """
    components = [[part.encode() for part in field.split(".")] for field in fields]
    flat = [part for path in components for part in path]
    bounds = np.cumsum([0] + [len(part) for part in flat], dtype=np.int64)
    firsts = np.cumsum([0] + [len(path) for path in components])[:-1]
    paths = np.array([[first, len(path)] for first, path in zip(firsts, components, strict=True)], dtype=np.int64)
    paths = paths.reshape(-1, 2)
    k, n = len(fields), starts.size
    status = np.full(n, UNREAD, dtype=np.uint8)
    kinds = np.empty((k, n), dtype=np.uint8)
    found_start, found_end = rows(k, n), rows(k, n)
    wanted = np.frombuffer(b"".join(flat), dtype=np.uint8), bounds, paths
    read = asked = 0
    if n >= layouts.WORTH:
        read = layouts.scan_alike(buffer, starts, ends, *wanted, status, kinds, found_start, found_end)
    if read < n:
        asked = json.scan_json(buffer, starts, ends, *wanted, status, kinds, found_start, found_end)
    broken = np.zeros(n, dtype=np.bool_)
    if asked:
        side = bytearray()
        for i in np.flatnonzero(status == ASK).tolist():
            text = buffer[starts[i] : ends[i]].data
            answers = ask_orjson(text, components)
            broken[i] = answers is None
            for field, (kind, literal) in enumerate(answers or [(MISSING, b"")] * k):
                kinds[field, i] = kind
                found_start[field, i] = buffer.size + len(side)
                side += literal
                found_end[field, i] = buffer.size + len(side)
        buffer = read_only(np.concatenate([buffer, np.frombuffer(side, dtype=np.uint8)]))
    return Found(buffer, kinds, found_start, found_end, broken)


def ask_orjson(text: bytes | memoryview, paths: list[list[bytes]]) -> list[tuple[int, bytes]] | None:
    """Reference decoder: kind of each path's value, UTF-8 bytes of strings, text of numbers; None for invalid JSON."""
    import orjson

    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    answers: list[tuple[int, bytes]] = []
    spelled: object = None
    for path in paths:
        value = _at(document, path)
        if value is _NOWHERE:
            answers.append((MISSING, b""))
        elif value is None:
            answers.append((NULL, b""))
        elif isinstance(value, str):
            answers.append((STRING, value.encode()))
        elif isinstance(value, int) and not isinstance(value, bool):
            answers.append((INTEGER, str(value).encode()))
        elif isinstance(value, float):
            # the text of the number: parse the document again, with each number in quotes
            if spelled is None:
                spelled = orjson.loads(_NUMBERS.sub(_quoted, bytes(text)))
            number = _at(spelled, path)
            assert isinstance(number, str)
            answers.append((DECIMAL, number.encode()))
        else:
            answers.append((OTHER, b""))
    return answers


_NOWHERE = object()
_NUMBERS = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)
"""Strings and numbers of a text that is JSON."""


def _quoted(found: re.Match[bytes]) -> bytes:
    """A number in quotes; a string as it is."""
    token = found.group()
    return token if token.startswith(b'"') else b'"' + token + b'"'


def _at(document: object, path: list[bytes]) -> object:
    """The value at a path of a JSON document; `_NOWHERE` if there is none."""
    value = document
    for part in path:
        if not isinstance(value, dict) or part.decode() not in value:
            return _NOWHERE
        value = value[part.decode()]
    return value


def _ask_msgpack(records: Records, status: Bytes, fields: Ints, null: Flags) -> Bytes:
    """Let the msgpack library judge the maps that the scanner left; returns the buffer that `fields` then refer to."""
    buffer = records.buffer
    side = bytearray()
    for n in np.flatnonzero(status == 1).tolist():
        line = fields[n]
        line[:] = (-1, -1, -1, -1, 0, 0)
        answer = ask_msgpack(buffer[records.value_start[n] : records.value_end[n]].data)
        if answer is None:
            line[4] = _BAD_TIME
            continue
        items, weights, line[4], line[5] = answer
        if items is None:
            null[n] = True
            continue
        if items is False:
            continue
        line[0] = buffer.size + len(side)
        side += items
        line[1] = buffer.size + len(side)
        if weights is not None:
            line[2] = line[1]
            side += weights
            line[3] = buffer.size + len(side)
    return read_only(np.concatenate([buffer, np.frombuffer(side, dtype=np.uint8)]))


def ask_msgpack(text: bytes | memoryview) -> tuple[bytes | Literal[False] | None, bytes | None, int, int] | None:
    """The reference for packed maps.

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
