"""The format "json": dotted fields of JSON texts, exactly as orjson would read them.

In: `Records`. Out: `Events`, or bounds of fields. Touches: nothing. Errors never contain a payload.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchstream.array_types import Bytes, Ints
from sketchstream.items.events import Events
from sketchstream.kernels import use_numpy_twin
from sketchstream.kernels.tokens import ASK, DECIMAL, INTEGER, MISSING, NULL, OTHER, STRING, TOMBSTONE, UNREAD
from sketchstream.stream.formats import Fields
from sketchstream_connectors.decode import json_scanner, layouts
from sketchstream_connectors.decode.memory_pool import int_rows
from sketchstream_connectors.decode.named_fields import Found, NamedFormat, assemble, nest_fields, wanted_fields
from sketchstream_connectors.decode.records import Records, read_only
from sketchstream_connectors.decode.times import column_times

_Column = tuple[list[int], list[bytes]]
WORK = 4
"""Elements for `kernels.use_numpy_twin` that a text counts as where orjson reads all, so that nothing is compiled.

It takes as long as some ten elements, and the loops take three times as long to compile as others.
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


class JsonFormat(NamedFormat):
    """See `PayloadFormat`."""

    def reader(self, fields: Fields, payload: Any, resolve: Callable[[str], Any]) -> JsonReader:
        """A reader."""
        return JsonReader(fields)

    def example(self, fields: Fields, now_ms: int) -> tuple[JsonReader, bytes]:
        """A text with all fields."""
        return JsonReader(fields), json.dumps(nest_fields(fields, now_ms)).encode()


FORMATS = {"json": JsonFormat()}


def find_fields(buffer: Bytes, starts: Ints, ends: Ints, fields: list[str]) -> Found:
    """Look dotted fields up in JSON texts, exactly as orjson would read them (duplicate keys: the last one holds).

    Args:
        buffer: uint8.
        starts: (n,) where each text begins, < 0 for none.
        ends: (n,) where it ends.
        fields: up to 62 dotted fields; no component is empty.
    """
    names = [field.split(".") for field in fields]
    components = [[part.encode() for part in path] for path in names]
    flat = [part for path in components for part in path]
    bounds = np.cumsum([0] + [len(part) for part in flat], dtype=np.int64)
    firsts = np.cumsum([0] + [len(path) for path in components])[:-1]
    paths = np.array([[first, len(path)] for first, path in zip(firsts, components, strict=True)], dtype=np.int64)
    paths = paths.reshape(-1, 2)
    k, n = len(fields), starts.size
    status = np.full(n, UNREAD, dtype=np.uint8)
    kinds = np.empty((k, n), dtype=np.uint8)
    found_start, found_end = int_rows(k, n), int_rows(k, n)
    wanted = np.frombuffer(b"".join(flat), dtype=np.uint8), bounds, paths
    n_read = n_asked = 0
    texts = (buffer, starts, ends, *wanted, status, kinds, found_start, found_end)
    if use_numpy_twin(json_scanner.scan_json, lambda: WORK * n, None, texts):
        kinds[:], found_start[:], found_end[:] = MISSING, 0, 0
        status[:] = np.where(starts < 0, TOMBSTONE, ASK)
        n_asked = n
    elif n >= layouts.WORTH:
        n_read = layouts.scan_alike(*texts)
    if n_read + n_asked < n:
        n_asked = json_scanner.scan_json(*texts)
    broken = np.zeros(n, dtype=np.bool_)
    if n_asked and (asking := np.flatnonzero(status == ASK)).size:
        texts_asked = [
            buffer.data[first:last] for first, last in zip(starts[asking].tolist(), ends[asking].tolist(), strict=True)
        ]
        broken[asking], answers = ask_orjson(texts_asked, names)
        side, behind = [buffer], buffer.size
        for field, (kinds_asked, spelled) in enumerate(answers):
            kinds[field, asking] = kinds_asked
            last = behind + np.cumsum([len(text) for text in spelled], dtype=np.int64)
            found_start[field, asking] = np.concatenate([[behind], last[:-1]])
            found_end[field, asking] = last
            side.append(np.frombuffer(b"".join(spelled), np.uint8))
            behind = int(last[-1])
        buffer = read_only(np.concatenate(side))
    return Found(buffer, kinds, found_start, found_end, broken)


class _Nowhere:
    """What stands for a value that is not there."""


_NOWHERE = _Nowhere()
_KINDS = {_Nowhere: MISSING, type(None): NULL, str: STRING, int: INTEGER, float: DECIMAL}
"""Kinds by the types of orjson's values; those of others are OTHER."""
_NUMBERS = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)
"""Strings and numbers of a text that is JSON."""


def ask_orjson(texts: list[memoryview], paths: list[list[str]]) -> tuple[list[bool], list[_Column]]:
    """Which texts are no JSON; for each path the kinds of its values, UTF-8 bytes of strings and texts of numbers."""
    import orjson

    documents: list[object] = []
    broken = [False] * len(texts)
    for i, text in enumerate(texts):
        try:
            documents.append(orjson.loads(text))
        except orjson.JSONDecodeError:
            documents.append(_NOWHERE)
            broken[i] = True
    columns = []
    for path in paths:
        values = _values_at(documents, path)
        kinds = [_KINDS.get(type(value), OTHER) for value in values]
        spelled = [
            str(value).encode() if kind in (STRING, INTEGER) else b"" for kind, value in zip(kinds, values, strict=True)
        ]
        for i in [i for i, kind in enumerate(kinds) if kind == DECIMAL]:
            # the text of the number: parse the document again, with each number in quotes
            quoted = orjson.loads(_NUMBERS.sub(_quote_number, bytes(texts[i])))
            spelled[i] = str(_values_at([quoted], path)[0]).encode()
        columns.append((kinds, spelled))
    return broken, columns


def _values_at(documents: list[object], path: list[str]) -> list[object]:
    """The value at a path of each JSON document; `_NOWHERE` where there is none."""
    values = documents
    for part in path:
        values = [value.get(part, _NOWHERE) if type(value) is dict else _NOWHERE for value in values]
    return values


def _quote_number(found: re.Match[bytes]) -> bytes:
    """A number in quotes; a string as it is."""
    token = found.group()
    return token if token.startswith(b'"') else b'"' + token + b'"'
