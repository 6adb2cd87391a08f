"""Finds fields in framed Avro values: plans of all schema ids that were met, and the loop over them.

In: bounds of values, wanted fields, a source of schemas. Out: `Found`. Touches: the source of schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sketchstream.array_types import Bytes
from sketchstream.kernels.tokens import DECIMAL, INTEGER, MISSING, STRING
from sketchstream_connectors.decode import binary_kernels as kernels
from sketchstream_connectors.decode.avro import tree
from sketchstream_connectors.decode.avro.plan import compile_plan
from sketchstream_connectors.decode.avro.schema import Type
from sketchstream_connectors.decode.schema_reader import Id, Places, SchemaFinder, Values
from sketchstream_connectors.decode.slots import Slot

Lookup = Callable[[int], Type | None]
"""Finds the schema of an id; None: there is none."""


class AvroFinder(SchemaFinder[Type]):
    """Plans of the schemas that were met.

    Args:
        slots: what is wanted.
        framing: a key of `FRAMINGS`.
        lookup: the schema of an id, or of 0 where values have no frame.
    """

    def __init__(self, slots: Sequence[Slot], framing: str, lookup: Lookup) -> None:
        self._slots = tuple(slots)
        self._lookup = lookup
        super().__init__(len(slots), framing)

    def _forget(self) -> None:
        super()._forget()
        self._rows = np.zeros((0, 5), np.int64)
        self._jumps = np.zeros(0, np.int64)
        self._decimals = False

    def _look_up(self, name: Id) -> Type | None:
        return self._lookup(name[0] << 64 | name[1])

    def _add(self, schema: Type) -> int:
        """Add a plan, whose rows, targets and symbols are then counted from the beginning of the tables."""
        plan = compile_plan(schema, self._slots)
        if plan is None:
            return kernels.TREE
        rows, first = np.array(plan.rows, np.int64), self._rows.shape[0]
        for op in (kernels.JUMP, kernels.ARRAY, kernels.NEXT, kernels.OPTIONAL):
            rows[rows[:, 0] == op, 1] += first
        rows[rows[:, 0] == kernels.UNION, 1] += self._jumps.size
        rows[rows[:, 0] == kernels.TAKE_ENUM, 3] += self._symbols.size - 1
        self._rows = np.concatenate([self._rows, rows])
        self._jumps = np.concatenate([self._jumps, np.array(plan.jumps, np.int64) + first])
        self._add_symbols(plan.symbols)
        self._decimals = self._decimals or plan.decimals > 0
        return first

    def _scan(self, values: Values, places: Places) -> tuple[int, Bytes]:
        kinds = places[1]
        texts = np.empty(kinds.size * kernels.TEXT_BYTES if self._decimals else 0, np.uint8)
        state = np.zeros(2, np.int64)
        plans = self._ids, self._entries, self._rows, self._jumps, self._symbols
        arguments = (*values, *plans, *places, texts, state)
        at = kernels.scan_avro(*arguments)
        return at, texts[: state[1]]

    def _frame(self, value: Bytes) -> tuple[Id, int]:
        high, low, at = kernels.frame(value, 0, value.size, self._framing)
        return (int(high), int(low)), int(at)

    def _read_rest(self, values: Values, places: Places, base: int) -> Bytes:
        buffer, starts, ends, _ = values
        status, kinds, found_start, found_end = places
        side = bytearray()
        for i in np.flatnonzero(status == kernels.BY_TREE).tolist():
            framed = self.body(buffer[starts[i] : ends[i]].tobytes())
            fields = None if framed is None else tree.read_fields(*framed, self._slots)
            status[i] = kernels.BROKEN if fields is None else kernels.GOOD
            for slot, (kind, content) in enumerate(fields or [(MISSING, b"")] * len(self._slots)):
                begin, end = 0, 0
                if kind in (STRING, DECIMAL) and isinstance(content, bytes):
                    begin = base + len(side)
                    side += content
                    end = base + len(side)
                elif kind in (INTEGER, DECIMAL):
                    end = -1
                    begin = content if isinstance(content, int) else int(np.float64(content).view(np.int64))
                kinds[slot, i], found_start[slot, i], found_end[slot, i] = kind, begin, end
        return np.frombuffer(bytes(side), np.uint8)
