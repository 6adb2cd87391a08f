"""What readers of binary formats share: plans of the schemas that were met, and how fields are found by them.

In: bounds of framed values, a source of schemas. Out: `Found`, `Events`. Touches: the source of schemas.

A schema is looked up once, outside of the loop. While its source cannot answer, `SchemaUnavailableError` leaves `find`,
and nothing of the batch was used: the caller waits and comes back. An id that does not exist is poison.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np

from sketchstream.array_types import Bytes, Ints
from sketchstream.items.events import Events
from sketchstream.kernels.tokens import MISSING
from sketchstream.stream.formats import Fields
from sketchstream_connectors.decode import binary_kernels as kernels
from sketchstream_connectors.decode.memory_pool import int_rows
from sketchstream_connectors.decode.named_fields import Found, assemble
from sketchstream_connectors.decode.records import Records, read_only

FRAMINGS: Final = {
    "none": kernels.BARE,
    "confluent": kernels.CONFLUENT,
    "apicurio8": kernels.APICURIO,
    "glue": kernels.GLUE,
}
MAX_KNOWN: Final = 2_000
"""Most ids whose plans are kept; with more, all are looked up again."""
MAX_INFLATED_BYTES: Final = 1 << 24
"""Most bytes of a decompressed value; longer ones are malformed."""

Schema = TypeVar("Schema")
Id = tuple[int, int]
"""Two halves of 64 bits of what a frame names; zeros where values have no frame."""
Values = tuple[Bytes, Ints, Ints, int]
"""The bytes, where each value begins and ends, and their frames: what the loops begin with."""
Places = tuple[Bytes, Bytes, Ints, Ints]
"""What the loops fill in: the status of each value; kinds, starts and ends of its fields."""


class SchemaFinder(Generic[Schema]):
    """Plans of the schemas that were met; a subclass has the tables of its plans and the loop over them.

    Args:
        n_slots: number of the fields that are wanted.
        framing: a key of `FRAMINGS`.
    """

    def __init__(self, n_slots: int, framing: str) -> None:
        self._n_slots = n_slots
        self._framing = FRAMINGS[framing]
        self._forget()
        if self._framing == kernels.BARE:
            self._learn((0, 0))

    def _forget(self) -> None:
        """Empty all tables."""
        self._schemas: dict[Id, Schema | None] = {}
        self._ids = np.zeros((0, 2), np.uint64)
        self._entries = np.zeros(0, np.int64)
        self._symbols = np.zeros(1, np.int64)
        self._symbol_bytes = np.zeros(0, np.uint8)

    def _look_up(self, name: Id) -> Schema | None:
        """Ask the source for a schema; None: there is none."""
        raise NotImplementedError

    def _add(self, schema: Schema) -> int:
        """Add the plan of a schema to the tables; returns its entry."""
        raise NotImplementedError

    def _scan(self, values: Values, places: Places) -> tuple[int, Bytes]:
        """Run the loop over values; the value whose id is not known, and texts that fields refer to."""
        raise NotImplementedError

    def _frame(self, value: Bytes) -> tuple[Id, int]:
        """The id of a framed value, and where its body begins; -1: malformed, -2: compressed."""
        raise NotImplementedError

    def _read_rest(self, values: Values, places: Places, base: int) -> Bytes:
        """Read the values that the loop left; returns the bytes that their fields refer to, from `base` on."""
        return np.zeros(0, np.uint8)

    def _learn(self, name: Id) -> None:
        """Look a schema up, and add its plan."""
        if len(self._schemas) >= MAX_KNOWN:
            self._forget()
        schema = self._look_up(name)
        entry = kernels.REFUSED if schema is None else self._add(schema)
        place = sum(1 for other in self._schemas if other < name)
        self._schemas[name] = schema
        self._ids = np.insert(self._ids, place, np.array([name], np.uint64), axis=0)
        self._entries = np.insert(self._entries, place, entry)

    def _add_symbols(self, symbols: Sequence[bytes]) -> None:
        """Add names of enums' values, which lie behind the values of a batch."""
        sizes = np.array([len(symbol) for symbol in symbols], np.int64)
        self._symbols = np.concatenate([self._symbols, self._symbols[-1] + np.cumsum(sizes)])
        self._symbol_bytes = np.concatenate([self._symbol_bytes, np.frombuffer(b"".join(symbols), np.uint8)])

    def find(self, buffer: Bytes, starts: Ints, ends: Ints) -> Found:
        """Find the slots in all values.

        Args:
            buffer: uint8.
            starts: (n,) where each value begins, < 0: there is none.
            ends: (n,) where it ends.

        Raises:
            SchemaUnavailableError: an id is not known, and the source of schemas cannot be asked now.
        """
        n, k = starts.size, self._n_slots
        status, kinds = np.full(n, kernels.WAITING, np.uint8), np.full((k, n), MISSING, np.uint8)
        bounds = int_rows(k, n), int_rows(k, n)
        values, places = (buffer, starts, ends, self._framing), (status, kinds, *bounds)
        while True:
            at, texts = self._scan(values, places)
            if at == n:
                break
            self._learn(self._frame(buffer[starts[at] : ends[at]])[0])
        parts = [buffer, self._symbol_bytes, texts]
        parts.append(self._read_rest(values, places, sum(part.size for part in parts)))
        if any(part.size for part in parts[1:]):
            buffer = read_only(np.concatenate(parts))
        return Found(buffer, kinds, *bounds, status == kernels.BROKEN, binary=True)

    def body(self, value: bytes) -> tuple[Schema, bytes] | None:
        """The schema of one framed value, and its body; None if there is none."""
        name, at = self._frame(np.frombuffer(value, np.uint8))
        if at == -1:
            return None
        if name not in self._schemas:
            self._learn(name)
        schema = self._schemas[name]
        body = value[at:] if at >= 0 else _inflate(value[kernels.GLUE_BYTES :])
        return None if schema is None or body is None else (schema, body)


def _inflate(compressed: bytes) -> bytes | None:
    """Decompress a value; None where that fails."""
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(compressed, MAX_INFLATED_BYTES)
    except zlib.error:
        return None
    return plain if inflater.eof and not inflater.unused_data else None


class SchemaReader(Generic[Schema]):
    """Reads values by their schemas.

    Args:
        fields: what is wanted.
        finder: finds the fields.
        document: makes plain data of JSON of a value and its schema; None: it is malformed.
        read_times: (n,) event times of the fields that were found.
    """

    def __init__(
        self,
        fields: Fields,
        finder: SchemaFinder[Schema],
        document: Callable[[Schema, bytes], Any],
        read_times: Callable[[Found], Ints],
    ) -> None:
        self.fields = fields
        self._finder, self._document, self._read_times = finder, document, read_times

    def decode(self, records: Records) -> Events:
        """Decode items, weights and times of all records; see `Reader`.

        Raises:
            SchemaUnavailableError: a schema is needed and cannot be read now; nothing was decoded.
        """
        found = self._finder.find(records.buffer, records.value_start, records.value_end)
        return assemble(self.fields, records, found, lambda _: self._read_times(found))

    def shown(self, payload: bytes | None) -> bytes | None:
        """A value as JSON text; None if it is malformed."""
        import orjson

        framed = None if payload is None else self._finder.body(payload)
        document = None if framed is None else self._document(*framed)
        return None if document is None else orjson.dumps(document)
