"""The format "json": dotted fields of JSON texts, exactly as orjson would read them.

In: `Records`. Out: `Events`, or bounds of fields. Touches: nothing. Errors never contain a payload.
"""

from __future__ import annotations

import json as encoder
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.items.events import Events
from sketchstream.kernels import spared
from sketchstream.kernels.tokens import ASK, DECIMAL, INTEGER, MISSING, NULL, OTHER, STRING, TOMBSTONE, UNREAD
from sketchstream.stream.formats import Fields
from sketchstream_connectors.decode import json, layouts
from sketchstream_connectors.decode.named_fields import Found, assemble, check_paths, nested, wanted_fields
from sketchstream_connectors.decode.pools import columns as rows
from sketchstream_connectors.decode.records import Records, read_only
from sketchstream_connectors.decode.times import column_times

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
WORK = 4
"""Elements of `kernels.spared` that a text counts for where orjson reads all of them, so that nothing is compiled.

It takes as long as 12 elements, and the loops take three times as long to compile as others.
"""


@dataclass(frozen=True)
class JsonReader:
    """Reads JSON values."""

    fields: Fields

    def decode(self, records: Records) -> Events:
        """Decode items, weights and times of all records; see `Reader`."""
        wanted = wanted_fields(self.fields)
        found = find_fields(records.buffer, records.value_start, records.value_end, wanted)
        return assemble(self.fields, records, found, lambda column: column_times(column, self.fields.time_unit))

    def shown(self, payload: bytes | None) -> bytes | None:
        """The payload: it is JSON."""
        return payload


class JsonFormat:
    """See `PayloadFormat`."""

    named = True
    payload_keys: frozenset[str] = frozenset()

    def check(self, fields: Fields) -> Iterator[str]:
        """Mistakes in the fields."""
        yield from check_paths(fields)

    def check_payload(self, payload: Any) -> Iterator[str]:
        """No keys, no mistakes."""
        del payload
        yield from ()

    def reader(self, fields: Fields, payload: Any, resolve: Callable[[str], Any]) -> JsonReader:
        """A reader."""
        del payload, resolve
        return JsonReader(fields)

    def example(self, fields: Fields, now_ms: int) -> tuple[JsonReader, bytes]:
        """A text with all fields."""
        return JsonReader(fields), encoder.dumps(nested(fields, now_ms)).encode()


FORMATS = {"json": JsonFormat()}


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
    texts = (buffer, starts, ends, *wanted, status, kinds, found_start, found_end)
    if spared(json.scan_json, lambda: WORK * n, None, texts):
        kinds[:], found_start[:], found_end[:] = MISSING, 0, 0
        status[:] = np.where(starts < 0, TOMBSTONE, ASK)
        asked = n
    elif n >= layouts.WORTH:
        read = layouts.scan_alike(*texts)
    if read + asked < n:
        asked = json.scan_json(*texts)
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
