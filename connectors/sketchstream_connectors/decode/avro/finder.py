"""Finds fields in framed Avro values: plans of all schema ids that were met, and the loop over them.

In: bounds of values, wanted fields, a source of schemas. Out: `Found`. Touches: the source of schemas.

A schema id is looked up once, outside of the loop. While the source cannot answer, `SchemaUnavailableError` leaves the
method, and nothing of the batch was used: the caller waits and comes back. An id that does not exist is poison.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels.tokens import DECIMAL, INTEGER, MISSING, STRING
from sketchstream_connectors.decode import binary_kernels as kernels
from sketchstream_connectors.decode.avro import tree
from sketchstream_connectors.decode.avro.plan import compile_plan
from sketchstream_connectors.decode.avro.schema import Type
from sketchstream_connectors.decode.named_fields import Found
from sketchstream_connectors.decode.pools import int_rows
from sketchstream_connectors.decode.records import read_only
from sketchstream_connectors.decode.slots import FRAMINGS, MAX_KNOWN, Slot

Lookup = Callable[[int], Type | None]
"""Finds the schema of an id; None: there is none."""

MAX_INFLATED_BYTES: Final = 1 << 24
"""Most bytes of a decompressed value; longer ones are malformed."""


class AvroFinder:
    """Plans of the schemas that were met.

    Args:
        slots: what is wanted.
        framing: a key of `FRAMINGS`.
        lookup: the schema of an id, or of 0 where values have no frame.
    """

    def __init__(self, slots: Sequence[Slot], framing: str, lookup: Lookup) -> None:
        self._slots = tuple(slots)
        self._framing = FRAMINGS[framing]
        self._lookup = lookup
        self._forget()
        if self._framing == kernels.BARE:
            self._learn(0)

    def _forget(self) -> None:
        self._schemas: dict[int, Type | None] = {}
        self._ids = np.zeros((0, 2), np.uint64)
        self._entries = np.zeros(0, np.int64)
        self._rows = np.zeros((0, 5), np.int64)
        self._jumps = np.zeros(0, np.int64)
        self._symbols = np.zeros(1, np.int64)
        self._symbol_bytes = np.zeros(0, np.uint8)
        self._decimals = False

    def _learn(self, number: int) -> None:
        """Look an id up, and add its plan."""
        if len(self._schemas) >= MAX_KNOWN:
            self._forget()
        schema = self._lookup(number)
        entry = kernels.REFUSED
        if schema is not None:
            plan = compile_plan(schema, self._slots)
            entry = kernels.TREE if plan is None else self._rows.shape[0]
            if plan is not None:
                rows = np.array(plan.rows, np.int64)
                self._shift(rows)
                self._rows = np.concatenate([self._rows, rows])
                self._jumps = np.concatenate([self._jumps, np.array(plan.jumps, np.int64) + entry])
                sizes = np.array([len(symbol) for symbol in plan.symbols], np.int64)
                self._symbols = np.concatenate([self._symbols, self._symbols[-1] + np.cumsum(sizes)])
                added = np.frombuffer(b"".join(plan.symbols), np.uint8)
                self._symbol_bytes = np.concatenate([self._symbol_bytes, added])
                self._decimals = self._decimals or plan.decimals > 0
        self._schemas[number] = schema
        line = np.array([[number >> 64, number & (1 << 64) - 1]], np.uint64)
        place = sum(1 for known in self._schemas if known < number)
        self._ids = np.insert(self._ids, place, line, axis=0)
        self._entries = np.insert(self._entries, place, entry)

    def _shift(self, rows: Ints) -> None:
        """Count rows, targets and symbols of a plan from the beginning of the table."""
        first = self._rows.shape[0]
        for op in (kernels.JUMP, kernels.ARRAY, kernels.NEXT, kernels.OPTIONAL):
            rows[rows[:, 0] == op, 1] += first
        rows[rows[:, 0] == kernels.UNION, 1] += self._jumps.size
        rows[rows[:, 0] == kernels.TAKE_ENUM, 3] += self._symbols.size - 1

    def find(self, buffer: Bytes, starts: Ints, ends: Ints) -> Found:
        """Find the slots in all values.

        Args:
            buffer: uint8.
            starts: (n,) where each value begins, < 0: there is none.
            ends: (n,) where it ends.

        Raises:
            SchemaUnavailableError: an id is not known, and the source of schemas cannot be asked now.
        """
        n, k = starts.size, len(self._slots)
        status = np.full(n, kernels.WAITING, np.uint8)
        kinds = np.full((k, n), MISSING, np.uint8)
        places = int_rows(k, n), int_rows(k, n)
        while True:
            texts = np.empty(n * k * kernels.TEXT_BYTES if self._decimals else 0, np.uint8)
            state = np.zeros(2, np.int64)
            plans = self._ids, self._entries, self._rows, self._jumps, self._symbols
            at = kernels.scan_avro(buffer, starts, ends, self._framing, *plans, status, kinds, *places, texts, state)
            if at == n:
                break
            high, low, _ = kernels.frame(buffer, starts[at], ends[at], self._framing)
            self._learn(int(high) << 64 | int(low))
        parts = [buffer, self._symbol_bytes, texts[: state[1]]]
        side = self._by_tree(buffer, starts, ends, status, kinds, places, sum(part.size for part in parts))
        if self._symbol_bytes.size or state[1] or side.size:
            buffer = read_only(np.concatenate([*parts, side]))
        return Found(buffer, kinds, *places, status == kernels.BROKEN, binary=True)

    def _by_tree(
        self, buffer: Bytes, starts: Ints, ends: Ints, status: Bytes, kinds: Bytes, places: tuple[Ints, Ints], base: int
    ) -> Bytes:
        """Read the values that the loop left; returns the bytes that their fields refer to, from `base` on."""
        side = bytearray()
        for i in np.flatnonzero(status == kernels.BY_TREE).tolist():
            high, low, at = kernels.frame(buffer, starts[i], ends[i], self._framing)
            schema = self._schemas[int(high) << 64 | int(low) if self._framing != kernels.BARE else 0]
            body = buffer[max(int(at), int(starts[i])) : ends[i]].tobytes()
            plain = _uncompressed_body(body, int(at))
            values = None if schema is None or plain is None else tree.read_fields(schema, plain, self._slots)
            status[i] = kernels.BROKEN if values is None else kernels.GOOD
            for slot, (kind, content) in enumerate(values or [(MISSING, b"")] * len(self._slots)):
                kinds[slot, i] = kind
                begin, end = 0, 0
                if kind in (STRING, DECIMAL) and isinstance(content, bytes):
                    begin = base + len(side)
                    side += content
                    end = base + len(side)
                elif kind in (INTEGER, DECIMAL):
                    end = -1
                    begin = content if isinstance(content, int) else int(np.float64(content).view(np.int64))
                places[0][slot, i], places[1][slot, i] = begin, end
        return np.frombuffer(bytes(side), np.uint8)

    def body(self, payload: bytes) -> tuple[Type, bytes] | None:
        """The schema of one framed value, and the value; None if there is none."""
        buffer = np.frombuffer(payload, np.uint8)
        high, low, at = kernels.frame(buffer, 0, buffer.size, self._framing)
        number = int(high) << 64 | int(low)
        if at == -1:
            return None
        if number not in self._schemas:
            self._learn(number)
        schema = self._schemas[number]
        plain = _uncompressed_body(payload[max(int(at), 0) :], int(at))
        return None if schema is None or plain is None else (schema, plain)


def _uncompressed_body(body: bytes, at: int) -> bytes | None:
    """The value, inflated where its frame says so; None where that fails."""
    if at >= 0:
        return body
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body[18:], MAX_INFLATED_BYTES)
    except zlib.error:
        return None
    return plain if inflater.eof and not inflater.unused_data else None
