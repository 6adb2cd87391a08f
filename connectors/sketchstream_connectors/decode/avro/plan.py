"""Compiles an Avro schema into a plan: rows of what to skip and what to take, in the order of the bytes.

In: a `Type`, and the slots that are wanted. Out: a `SchemaPlan`. Touches: nothing.
Source: the Avro 1.12 specification, "Binary Encoding".

A row is (op, a, b, c, optional), with an operation of `decode.binary_kernels`. `optional` fuses a union of null and one
other type with the row of that type: 1 where null is the first branch, 2 where it is the second; if the branch is null,
the row is done. Records are inlined, so a plan is a straight line but for unions and arrays. What has no plan
(recursive or deep schemas, more than `MAX_ROWS` rows) is read by `decode.avro.tree`, with the same verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sketchstream.kernels.tokens import NULL, OTHER
from sketchstream_connectors.decode import binary_kernels as ops
from sketchstream_connectors.decode.avro.schema import Type
from sketchstream_connectors.decode.slots import Slot

MAX_ROWS: Final = 4096
"""Most rows of a plan; a schema that needs more is read by `decode.avro.tree`."""
MAX_TYPES: Final = 128
"""Most types of a schema inside of each other."""
MAX_DECIMAL_PLACES: Final = 18
"""Most digits behind the point of a decimal that the loop writes."""
WORD: Final = 8
"""Most bytes of a decimal that the loop reads: those of an int64."""
TAKEN: Final = {
    "int": ops.TAKE_INT,
    "long": ops.TAKE_LONG,
    "float": ops.TAKE_FLOAT,
    "double": ops.TAKE_DOUBLE,
    "boolean": ops.TAKE_BOOLEAN,
}
"""Operation that takes a number, by the type of the number."""


@dataclass
class SchemaPlan:
    """Rows, targets of unions, and symbols of enums, all counted from the plan's own beginning."""

    rows: list[list[int]] = field(default_factory=list)
    jumps: list[int] = field(default_factory=list)
    symbols: list[bytes] = field(default_factory=list)
    decimals: int = 0


class TooLargeError(Exception):
    """The schema has no plan."""


def compile_plan(schema: Type, slots: Sequence[Slot]) -> SchemaPlan | None:
    """The plan of a schema; None if it has none.

    Args:
        schema: schema of the writer.
        slots: what is wanted.
    """
    builder = _SchemaBuilder(slots)
    try:
        builder.emit(schema, [(slot, wanted.path) for slot, wanted in enumerate(slots)])
        builder.add(ops.END)
    except TooLargeError:
        return None
    return builder.plan


Wanted = list[tuple[int, tuple[str, ...]]]
"""Slots that lie at or below a type, and the paths that lead to them from there."""


class _SchemaBuilder:
    """The plan so far."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = slots
        self.plan = SchemaPlan()
        self._open: list[Type] = []
        self._loops = 0
        self._depth = 0

    def add(self, op: int, a: int = 0, b: int = 0, c: int = 0, optional: int = 0) -> int:
        """Add a row; returns its place."""
        rows = self.plan.rows
        if len(rows) >= MAX_ROWS:
            raise TooLargeError
        if op == ops.FIXED and not optional and self._straight and rows and rows[-1][0] == op and not rows[-1][4]:
            rows[-1][1] += a
            return len(rows) - 1
        self._straight = True
        rows.append([op, a, b, c, optional])
        return len(rows) - 1

    _straight = True
    """Whether no jump leads behind the last row, so that the next one may be joined with it."""

    def here(self) -> int:
        """The place of the next row, to which something will jump."""
        self._straight = False
        return len(self.plan.rows)

    def emit(self, schema: Type, wanted: Wanted, optional: int = 0) -> None:
        """Add the rows of a type."""
        if self._depth == MAX_TYPES:
            raise TooLargeError
        self._depth += 1
        self._emit(schema, wanted, optional)
        self._depth -= 1

    def _emit(self, schema: Type, wanted: Wanted, optional: int) -> None:
        slots = [slot for slot, path in wanted if not path]
        if schema.kind == "union":
            self._union(schema, wanted)
        elif schema.kind == "record":
            self._record(schema, wanted, slots, optional)
        elif schema.kind in ("array", "map"):
            self._loop(schema, slots, optional)
        elif schema.kind == "null":
            for slot in slots:
                self.add(ops.MARK, slot, NULL)
        elif not slots:
            self._skip(schema, optional)
        else:
            self._take(schema, slots, optional)

    def _grouped(self, optional: int, slots: list[int]) -> int | None:
        """Begin several rows that a null passes over; return the place of the row that jumps."""
        for slot in slots if optional else ():
            self.add(ops.MARK, slot, NULL)
        return self.add(ops.OPTIONAL, optional=optional) if optional else None

    def _close(self, group: int | None) -> None:
        if group is not None:
            self.plan.rows[group][1] = self.here()

    def _record(self, schema: Type, wanted: Wanted, slots: list[int], optional: int) -> None:
        if schema in self._open:
            raise TooLargeError
        self._open.append(schema)
        group = self._grouped(optional, slots)
        for slot in slots:
            self.add(ops.MARK, slot, OTHER)
        for name, inner in schema.fields:
            self.emit(inner, [(slot, path[1:]) for slot, path in wanted if path and path[0] == name])
        self._close(group)
        self._open.pop()

    def _loop(self, schema: Type, slots: list[int], optional: int) -> None:
        assert schema.items is not None
        if self._loops == ops.MAX_LOOPS:
            raise TooLargeError
        group = self._grouped(optional, slots)
        for slot in slots:
            self.add(ops.MARK, slot, OTHER)
        is_map = schema.kind == "map"
        item_bytes = schema.items.min_bytes + is_map
        start = self.add(ops.ARRAY, 0, item_bytes, self._loops)
        self._loops += 1
        if item_bytes:
            self.here()
            if is_map:
                self.add(ops.BYTES)
            self.emit(schema.items, [])
        self._loops -= 1
        if item_bytes:
            self.add(ops.NEXT, start, 0, self._loops)
        self.plan.rows[start][1] = self.here()
        self._close(group)

    def _union(self, schema: Type, wanted: Wanted) -> None:
        kinds = [branch.kind for branch in schema.branches]
        if len(kinds) == 2 and kinds.count("null") == 1:
            null = kinds.index("null")
            self.emit(schema.branches[1 - null], wanted, optional=null + 1)
            return
        first = len(self.plan.jumps)
        self.plan.jumps += [0] * len(kinds)
        self.add(ops.UNION, first, len(kinds))
        ends = []
        for place, branch in enumerate(schema.branches):
            self.plan.jumps[first + place] = self.here()
            self.emit(branch, wanted)
            if place + 1 < len(kinds):
                ends.append(self.add(ops.JUMP))
        after = self.here()
        for row in ends:
            self.plan.rows[row][1] = after

    def _skip(self, schema: Type, optional: int) -> None:
        size = {"float": 4, "double": 8, "fixed": schema.size}.get(schema.kind)
        if size is not None:
            self.add(ops.FIXED, size, optional=optional)
        elif schema.kind == "enum":
            self.add(ops.ENUM, 0, len(schema.symbols), optional=optional)
        else:
            op = {"int": ops.INT, "long": ops.LONG, "boolean": ops.BOOLEAN}.get(schema.kind, ops.BYTES)
            self.add(op, optional=optional)

    def _take(self, schema: Type, slots: list[int], optional: int) -> None:
        """Take a value into the first slot; others are copies, which the reader makes by taking the same path once."""
        assert len(slots) <= 2
        times = [slot for slot in slots if self.slots[slot].time]
        slot = next((slot for slot in slots if slot not in times), slots[0])
        wanted = self.slots[slot]
        kind = schema.kind
        if schema.logical == "decimal":
            size = schema.size if kind == "fixed" else -1
            if schema.scale > MAX_DECIMAL_PLACES or size > WORD:
                self._slow(slots, optional)
                return
            self.plan.decimals += 1
            self.add(ops.TAKE_DECIMAL, slot, schema.scale | wanted.number << 8, size, optional)
        elif kind == "fixed":
            if schema.logical == "uuid" and wanted.text:
                self._slow(slots, optional)
                return
            self.add(ops.TAKE_FIXED, slot, schema.size, ops.TEXT_OR_OTHER if wanted.text else ops.ANY_BYTES, optional)
        elif kind in ("string", "bytes"):
            check = ops.MUST_BE_TEXT if kind == "string" else ops.TEXT_OR_OTHER if wanted.text else ops.ANY_BYTES
            self.add(ops.TAKE_BYTES, slot, check, optional=optional)
        elif kind == "enum":
            first = len(self.plan.symbols)
            self.plan.symbols += [symbol.encode() for symbol in schema.symbols]
            self.add(ops.TAKE_ENUM, slot, len(schema.symbols), first, optional)
        else:
            self.add(TAKEN[kind], slot, int(wanted.number), optional=optional)
        for time in times:
            factor, divisor = schema.time or self.slots[time].unit
            if time != slot or (factor, divisor) != (1, 1):
                self.add(ops.TIME, time, slot, factor if divisor == 1 else -divisor)

    def _slow(self, slots: list[int], optional: int) -> None:
        """Leave records that have this value to the slow path; the rest of the plan is not run for them."""
        group = self._grouped(optional, slots)
        self.add(ops.SLOW)
        self._close(group)
