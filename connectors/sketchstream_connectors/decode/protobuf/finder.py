"""Finds fields in framed Protobuf messages: plans of all message types that were met, and the loop over them.

In: bounds of values, wanted fields, a source of message types. Out: `Found`. Touches: the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sketchstream.array_types import Bytes
from sketchstream.kernels.tokens import STRING
from sketchstream_connectors.decode import binary_kernels as kernels
from sketchstream_connectors.decode.protobuf.plan import NOWHERE, Wish, compile_plan, split_times
from sketchstream_connectors.decode.protobuf.schema import Message
from sketchstream_connectors.decode.schema_reader import Id, Places, SchemaFinder, Values

Lookup = Callable[[int, tuple[int, ...]], Message | None]
"""Finds the message type of a file's id and of message indexes; None: there is none."""


class ProtobufFinder(SchemaFinder[Message]):
    """Plans of the message types that were met; a type is named by its packed message indexes and the id of its file.

    Args:
        wishes: what is wanted; the last three are the time, its seconds and its nanoseconds, if `timed`.
        timed: whether there is a time.
        framing: a key of `FRAMINGS`.
        lookup: the message type of an id.
    """

    def __init__(self, wishes: Sequence[Wish], timed: bool, framing: str, lookup: Lookup) -> None:
        self._wishes = tuple(wishes)
        self._timed = timed
        self._lookup = lookup
        super().__init__(len(wishes), framing)

    def _forget(self) -> None:
        super()._forget()
        self._nodes = np.zeros((0, 4 + kernels.LOOKED_UP), np.int64)
        self._rows = np.zeros((0, 6), np.int64)
        self._defaults = np.zeros((0, 3), np.int64)
        self._numbers = np.zeros(0, np.int64)

    def _look_up(self, name: Id) -> Message | None:
        indexes, number = name
        return self._lookup(number, unpack_indexes(indexes))

    def _add(self, schema: Message) -> int:
        """Add the plan of a message type, counted from the beginning of the tables."""
        wishes = list(self._wishes)
        if self._timed and not split_times(schema, wishes[-3].slot.path):
            wishes[-2:] = [NOWHERE, NOWHERE]
        plan = compile_plan(schema, wishes)
        first = self._nodes.shape[0]
        nodes = np.array(plan.nodes, np.int64)
        rows = np.array(plan.rows, np.int64).reshape(-1, 6)
        defaults = np.array(plan.defaults, np.int64).reshape(-1, 3)
        rows[rows[:, 1] == kernels.P_DESCEND, 2] += first
        rows[rows[:, 1] == kernels.P_ENUM, 3] += self._symbols.size - 1
        defaults[(defaults[:, 1] == STRING) & (defaults[:, 2] >= 0), 2] += self._symbols.size - 1
        nodes[:, :2] += self._rows.shape[0]
        nodes[:, 4:][nodes[:, 4:] >= 0] += self._rows.shape[0]
        nodes[:, 2:4] += self._defaults.shape[0]
        self._nodes = np.concatenate([self._nodes, nodes])
        self._rows = np.concatenate([self._rows, rows])
        self._defaults = np.concatenate([self._defaults, defaults])
        self._numbers = np.concatenate([self._numbers, np.array(plan.numbers, np.int64)])
        self._add_symbols(plan.symbols)
        return first

    def _scan(self, values: Values, places: Places) -> tuple[int, Bytes]:
        large = bool(np.isin(self._rows[:, 1], (kernels.P_UNSIGNED, kernels.P_WORD64)).any())
        texts = np.empty(places[1].size * kernels.UNSIGNED_BYTES if large else 0, np.uint8)
        plans = self._ids, self._entries, self._nodes, self._rows, self._defaults, self._numbers, self._symbols
        arguments = (*values, *plans, *places, texts, np.zeros(1, np.int64))
        return kernels.scan_protobuf(*arguments), texts

    def _frame(self, value: Bytes) -> tuple[Id, int]:
        _, low, at = kernels.frame(value, 0, value.size, self._framing)
        indexes = 0
        if self._framing != kernels.BARE and at >= 0:
            indexes, at = kernels.message_indexes(value, at, value.size)
        return (int(indexes), int(low)), int(max(at, -1))


def unpack_indexes(indexes: int) -> tuple[int, ...]:
    """Message indexes from their packed form."""
    return tuple((indexes >> shift & 0xFFFF) - 1 for shift in range(0, 64, 16) if indexes >> shift & 0xFFFF)
