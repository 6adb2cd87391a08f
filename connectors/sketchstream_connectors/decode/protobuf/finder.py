"""Finds fields in framed Protobuf messages: plans of all message types that were met, and the loop over them.

In: bounds of values, wanted fields, a source of message types. Out: `Found`. Touches: the source.

A type is looked up once, outside of the loop, as for Avro (`decode.avro.finder`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels.tokens import MISSING, STRING
from sketchstream_connectors.decode import binary_kernels as kernels
from sketchstream_connectors.decode.named_fields import Found
from sketchstream_connectors.decode.pools import int_rows
from sketchstream_connectors.decode.protobuf.plan import NOWHERE, Wish, compile_plan, split_times
from sketchstream_connectors.decode.protobuf.schema import Message
from sketchstream_connectors.decode.records import read_only
from sketchstream_connectors.decode.slots import FRAMINGS, MAX_KNOWN

Lookup = Callable[[int, tuple[int, ...]], Message | None]
"""Finds the message type of a file's id and of message indexes; None: there is none."""


class ProtobufFinder:
    """Plans of the message types that were met.

    Args:
        wishes: what is wanted; the last three are the time, its seconds and its nanoseconds, if `timed`.
        timed: whether there is a time.
        framing: a key of `FRAMINGS`.
        lookup: the message type of an id.
    """

    def __init__(self, wishes: Sequence[Wish], timed: bool, framing: str, lookup: Lookup) -> None:
        self._wishes = tuple(wishes)
        self._timed = timed
        self._framing = FRAMINGS[framing]
        self._lookup = lookup
        self._forget()
        if self._framing == kernels.BARE:
            self._learn(0, 0)

    def _forget(self) -> None:
        self._types: dict[tuple[int, int], Message | None] = {}
        self._ids = np.zeros((0, 2), np.uint64)
        self._entries = np.zeros(0, np.int64)
        self._nodes = np.zeros((0, 4 + kernels.LOOKED_UP), np.int64)
        self._rows = np.zeros((0, 6), np.int64)
        self._defaults = np.zeros((0, 3), np.int64)
        self._numbers = np.zeros(0, np.int64)
        self._symbols = np.zeros(1, np.int64)
        self._symbol_bytes = np.zeros(0, np.uint8)

    def _learn(self, indexes: int, number: int) -> None:
        """Look a type up, and add its plan."""
        if len(self._types) >= MAX_KNOWN:
            self._forget()
        message = self._lookup(number, unpack_indexes(indexes))
        entry = kernels.REFUSED if message is None else self._nodes.shape[0]
        if message is not None:
            self._add(message)
        key = indexes, number
        place = sum(1 for known in self._types if known < key)
        self._types[key] = message
        self._ids = np.insert(self._ids, place, np.array([key], np.uint64), axis=0)
        self._entries = np.insert(self._entries, place, entry)

    def _add(self, message: Message) -> None:
        """Add the plan of a message type, counted from the beginning of the tables."""
        wishes = list(self._wishes)
        if self._timed and not split_times(message, wishes[-3].slot.path):
            wishes[-2:] = [NOWHERE, NOWHERE]
        plan = compile_plan(message, wishes)
        nodes = np.array(plan.nodes, np.int64)
        rows = np.array(plan.rows, np.int64).reshape(-1, 6)
        defaults = np.array(plan.defaults, np.int64).reshape(-1, 3)
        rows[rows[:, 1] == kernels.P_DESCEND, 2] += self._nodes.shape[0]
        rows[rows[:, 1] == kernels.P_ENUM, 3] += self._symbols.size - 1
        defaults[(defaults[:, 1] == STRING) & (defaults[:, 2] >= 0), 2] += self._symbols.size - 1
        nodes[:, :2] += self._rows.shape[0]
        nodes[:, 4:][nodes[:, 4:] >= 0] += self._rows.shape[0]
        nodes[:, 2:4] += self._defaults.shape[0]
        self._nodes = np.concatenate([self._nodes, nodes])
        self._rows = np.concatenate([self._rows, rows])
        self._defaults = np.concatenate([self._defaults, defaults])
        self._numbers = np.concatenate([self._numbers, np.array(plan.numbers, np.int64)])
        sizes = np.array([len(symbol) for symbol in plan.symbols], np.int64)
        self._symbols = np.concatenate([self._symbols, self._symbols[-1] + np.cumsum(sizes)])
        self._symbol_bytes = np.concatenate([self._symbol_bytes, np.frombuffer(b"".join(plan.symbols), np.uint8)])

    def find(self, buffer: Bytes, starts: Ints, ends: Ints) -> Found:
        """Find the slots in all values.

        Args:
            buffer: uint8.
            starts: (n,) where each value begins, < 0: there is none.
            ends: (n,) where it ends.

        Raises:
            SchemaUnavailableError: a type is not known, and its source cannot be asked now.
        """
        n, k = starts.size, len(self._wishes)
        status = np.full(n, kernels.WAITING, np.uint8)
        kinds = np.full((k, n), MISSING, np.uint8)
        rows = int_rows(k, n), int_rows(k, n)
        while True:
            large = bool(np.isin(self._rows[:, 1], (kernels.P_UNSIGNED, kernels.P_WORD64)).any())
            texts = np.empty(n * k * kernels.UNSIGNED_BYTES if large else 0, np.uint8)
            state = np.zeros(1, np.int64)
            plans = self._ids, self._entries, self._nodes, self._rows, self._defaults, self._numbers, self._symbols
            at = kernels.scan_protobuf(buffer, starts, ends, self._framing, *plans, status, kinds, *rows, texts, state)
            if at == n:
                break
            self._learn(*self._key(buffer, starts[at], ends[at]))
        if self._symbol_bytes.size or texts.size:
            buffer = read_only(np.concatenate([buffer, self._symbol_bytes, texts]))
        return Found(buffer, kinds, *rows, status == kernels.BROKEN, binary=True)

    def _key(self, buffer: Bytes, start: int, end: int) -> tuple[int, int]:
        """Message indexes and id of a value whose frame is good."""
        _, low, at = kernels.frame(buffer, start, end, self._framing)
        indexes, _ = kernels.message_indexes(buffer, at, end)
        return int(indexes), int(low)

    def body(self, payload: bytes) -> tuple[Message, bytes] | None:
        """The type of one framed value, and the value; None if there is none."""
        buffer = np.frombuffer(payload, np.uint8)
        key, at = (0, 0), 0
        if self._framing != kernels.BARE:
            _, low, place = kernels.frame(buffer, 0, buffer.size, self._framing)
            if place < 0:
                return None
            indexes, at = kernels.message_indexes(buffer, place, buffer.size)
            key = int(indexes), int(low)
        if at < 0:
            return None
        if key not in self._types:
            self._learn(*key)
        message = self._types[key]
        return None if message is None else (message, payload[int(at) :])


def unpack_indexes(indexes: int) -> tuple[int, ...]:
    """Message indexes from their packed form."""
    return tuple((indexes >> shift & 0xFFFF) - 1 for shift in range(0, 64, 16) if indexes >> shift & 0xFFFF)
