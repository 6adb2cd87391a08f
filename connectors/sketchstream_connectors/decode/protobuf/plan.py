"""Compiles what is wanted of a Protobuf message into a plan: for each message on the way, the tags that matter.

In: a `Message`, and slots. Out: a `MessagePlan`. Touches: nothing.

A node is a message on the way to a wanted field: a range of rows (tag, op, slot or node, more, number of symbols, slots
to clear) in the order of their tags, and a range of defaults. The loop looks a field's number up in its node, which
says where the rows of that number begin; every other field is skipped by its wire type, and its inside is not looked
at. The last value of a field holds, a message that comes
twice is merged, and a member of a oneof clears the others: what the official libraries do.

A field without explicit presence (proto3) is not on the wire when it has its default value. So that value is taken for
the weight and for columns, as the producer meant it; an item or a time is absent then, since a default is no identity
and no time. Below a message that is absent, everything is absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sketchstream.kernels.tokens import INTEGER, OTHER, STRING
from sketchstream_connectors.decode import binary_kernels as ops
from sketchstream_connectors.decode.protobuf.schema import BYTES, TIMESTAMP, WRAPPERS, Message, MessageField
from sketchstream_connectors.decode.slots import Slot

OPS: Final = {
    "int64": ops.P_SIGNED,
    "uint64": ops.P_UNSIGNED,
    "int32": ops.P_SIGN32,
    "uint32": ops.P_LOW32,
    "sint64": ops.P_ZIGZAG,
    "sint32": ops.P_ZIGZAG32,
    "fixed64": ops.P_WORD64,
    "sfixed64": ops.P_SIGNED64,
    "fixed32": ops.P_WORD32,
    "sfixed32": ops.P_SIGNED32,
    "float": ops.P_SINGLE,
    "double": ops.P_DOUBLE,
    "string": ops.P_TEXT,
    "bytes": ops.P_RAW,
    "enum": ops.P_ENUM,
}


@dataclass(frozen=True)
class Wish:
    """A slot and whether a default value counts where a field without presence is absent."""

    slot: Slot
    default: bool


NOWHERE: Final = Wish(Slot(("",), time=True), False)
"""Takes nothing."""


@dataclass
class MessagePlan:
    """Nodes and their rows, counted from the plan's own beginning; the first node is the message itself.

    Args:
        nodes: first row, one past the last row, first default, one past the last default, and for each number of a
            field below `LOOKED_UP` its first row, or -1.
        rows: tag, op, slot or node, flag or first symbol, number of symbols, mask of slots to clear.
        defaults: slot, kind, number or symbol (-1: an empty text).
        numbers: values of enums, sorted within each.
        symbols: their names.
    """

    nodes: list[list[int]] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    defaults: list[list[int]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    symbols: list[bytes] = field(default_factory=list)


Wanted = list[tuple[int, tuple[str, ...]]]


def compile_plan(message: Message, wishes: Sequence[Wish]) -> MessagePlan:
    """The plan of a message.

    Args:
        message: the type of the values.
        wishes: what is wanted; a time that is a Timestamp must have been split by `split_times`.
    """
    builder = _MessageBuilder(wishes)
    builder.node(message, [(slot, one.slot.path) for slot, one in enumerate(wishes)])
    return builder.plan


class _MessageBuilder:
    """The plan so far."""

    def __init__(self, wishes: Sequence[Wish]) -> None:
        self.wishes = wishes
        self.plan = MessagePlan()

    def node(self, message: Message, wanted: Wanted) -> int:
        """Add a node and all below it; returns its place."""
        nodes = self.plan.nodes
        place = len(nodes)
        nodes.append([])
        below = {
            one.name: [(slot, path[1:]) for slot, path in wanted if path and path[0] == one.name]
            for one in message.fields
        }
        rows: list[list[int]] = []
        for one in message.fields:
            rows += self._rows(one, below[one.name])
        masks = {one.name: sum(1 << slot for slot in {slot for slot, _ in below[one.name]}) for one in message.fields}
        tags = {one.tag: one for one in message.fields}
        for one in message.fields:
            others = [other for other in message.fields if other is not one and 0 <= other.oneof == one.oneof]
            mask = sum(masks[other.name] for other in others)
            if mask and not any(row[0] == one.tag for row in rows):
                rows.append([one.tag, ops.P_CLEAR, 0, 0, 0, 0])
            for row in rows:
                if tags.get(row[0]) is one:
                    row[5] = mask
        defaults = [
            made
            for one in message.fields
            for slot, path in below[one.name]
            if (made := self._default(one, slot, path)) is not None
        ]
        first, start = len(self.plan.rows), len(self.plan.defaults)
        rows.sort(key=lambda row: row[0])
        self.plan.rows += rows
        self.plan.defaults += defaults
        begins = {row[0] >> 3: first + k for k, row in reversed(list(enumerate(rows)))}
        looked_up = [begins.get(number, -1) for number in range(ops.LOOKED_UP)]
        nodes[place] = [first, first + len(rows), start, start + len(defaults), *looked_up]
        return place

    def _rows(self, one: MessageField, wanted: Wanted) -> list[list[int]]:
        """The rows of a field."""
        if not wanted:
            return []
        direct = [slot for slot, path in wanted if not path]
        deeper = [(slot, path) for slot, path in wanted if path]
        if one.repeated or one.kind == "group":
            wires = {one.tag, one.number << 3 | BYTES} if one.kind != "group" else {one.tag}
            return [[tag, ops.P_USELESS, slot, 0, 0, 0] for tag in sorted(wires) for slot in direct]
        if one.message is not None:
            if one.message.name in WRAPPERS:
                deeper += [(slot, ("value",)) for slot in direct]
                direct = []
            rows = [[one.tag, ops.P_USELESS, slot, 0, 0, 0] for slot in direct]
            if deeper:
                rows.append([one.tag, ops.P_DESCEND, self.node(one.message, deeper), 0, 0, 0])
            return rows
        return [self._take(one, slot) for slot in direct]

    def _take(self, one: MessageField, slot: int) -> list[int]:
        wanted = self.wishes[slot].slot
        op = OPS.get(one.kind, ops.P_USELESS)
        if op in (ops.P_SINGLE, ops.P_DOUBLE):
            return [one.tag, op, slot, int(wanted.number), 0, 0]
        if op == ops.P_RAW:
            return [one.tag, op, slot, int(wanted.text), 0, 0]
        if op == ops.P_ENUM:
            first = len(self.plan.symbols)
            self.plan.numbers += sorted(one.symbols)
            self.plan.symbols += [one.symbols[number].encode() for number in sorted(one.symbols)]
            return [one.tag, op, slot, first, len(one.symbols), 0]
        return [one.tag, op, slot, 0, 0, 0]

    def _default(self, one: MessageField, slot: int, path: tuple[str, ...]) -> list[int] | None:
        """What a slot holds where its message is there and its field is not."""
        if path or one.explicit or one.repeated or one.message is not None or not self.wishes[slot].default:
            return None
        if one.kind in ("string", "bytes"):
            return [slot, STRING, -1]
        if one.kind == "enum":
            if 0 not in one.symbols:
                return [slot, INTEGER, 0]
            self.plan.numbers.append(0)
            self.plan.symbols.append(one.symbols[0].encode())
            return [slot, STRING, len(self.plan.symbols) - 1]
        return [slot, OTHER if one.kind == "bool" else INTEGER, 0]


def split_times(message: Message, path: tuple[str, ...]) -> bool:
    """Whether a path leads to a Timestamp, so that its seconds and its nanoseconds are wanted instead of it."""
    here: Message | None = message
    found: MessageField | None = None
    for name in path:
        found = None if here is None else here.named(name)
        here = None if found is None or found.repeated else found.message
    return found is not None and here is not None and here.name == TIMESTAMP


def leaf_names(message: Message, depth: int = 3, before: str = "") -> list[str]:
    """Dotted fields of a message, for the messages of a validation."""
    out: list[str] = []
    for one in message.fields:
        if one.message is None or one.repeated or one.message.name in (TIMESTAMP, *WRAPPERS) or depth == 1:
            out.append(before + one.name)
        else:
            out += leaf_names(one.message, depth - 1, f"{before}{one.name}.")
    return out
