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
"""A wish that takes nothing from a message."""


@dataclass
class MessagePlan:
    """Nodes and their rows, counted from the plan's own beginning; the first node is the message itself.

    Args:
        nodes: first row, one past the last row, first default, one past the last default, and for each number of a
            field below `LOOKED_UP` its first row, or -1.
        rows: tag, op, slot or node, flag or first symbol, number of symbols, mask of slots to clear.
        defaults: slot, kind, number or symbol (-1: an empty text).
        numbers: values of enums, sorted within each.
        symbols: names of these values.
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
    builder.node(message, [(slot, wish.slot.path) for slot, wish in enumerate(wishes)])
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
            member.name: [(slot, path[1:]) for slot, path in wanted if path and path[0] == member.name]
            for member in message.fields
        }
        rows: list[list[int]] = []
        for member in message.fields:
            rows += self._rows(member, below[member.name])
        masks = {name: sum(1 << slot for slot in {slot for slot, _ in paths}) for name, paths in below.items()}
        tags = {member.tag: member for member in message.fields}
        for member in message.fields:
            others = [other for other in message.fields if other is not member and 0 <= other.oneof == member.oneof]
            mask = sum(masks[other.name] for other in others)
            if mask and not any(row[0] == member.tag for row in rows):
                rows.append([member.tag, ops.P_CLEAR, 0, 0, 0, 0])
            for row in rows:
                if tags.get(row[0]) is member:
                    row[5] = mask
        defaults = [
            made
            for member in message.fields
            for slot, path in below[member.name]
            if (made := self._default(member, slot, path)) is not None
        ]
        first, start = len(self.plan.rows), len(self.plan.defaults)
        rows.sort(key=lambda row: row[0])
        self.plan.rows += rows
        self.plan.defaults += defaults
        begins = {row[0] >> 3: first + k for k, row in reversed(list(enumerate(rows)))}
        looked_up = [begins.get(number, -1) for number in range(ops.LOOKED_UP)]
        nodes[place] = [first, first + len(rows), start, start + len(defaults), *looked_up]
        return place

    def _rows(self, member: MessageField, wanted: Wanted) -> list[list[int]]:
        """The rows of a field."""
        if not wanted:
            return []
        direct = [slot for slot, path in wanted if not path]
        deeper = [(slot, path) for slot, path in wanted if path]
        if member.repeated or member.kind == "group":
            wires = {member.tag, member.number << 3 | BYTES} if member.kind != "group" else {member.tag}
            return [[tag, ops.P_USELESS, slot, 0, 0, 0] for tag in sorted(wires) for slot in direct]
        if member.message is not None:
            if member.message.name in WRAPPERS:
                deeper += [(slot, ("value",)) for slot in direct]
                direct = []
            rows = [[member.tag, ops.P_USELESS, slot, 0, 0, 0] for slot in direct]
            if deeper:
                rows.append([member.tag, ops.P_DESCEND, self.node(member.message, deeper), 0, 0, 0])
            return rows
        return [self._take(member, slot) for slot in direct]

    def _take(self, member: MessageField, slot: int) -> list[int]:
        wish = self.wishes[slot].slot
        op = OPS.get(member.kind, ops.P_USELESS)
        if op in (ops.P_SINGLE, ops.P_DOUBLE):
            return [member.tag, op, slot, int(wish.number), 0, 0]
        if op == ops.P_RAW:
            return [member.tag, op, slot, int(wish.text), 0, 0]
        if op == ops.P_ENUM:
            first = len(self.plan.symbols)
            self.plan.numbers += sorted(member.symbols)
            self.plan.symbols += [member.symbols[number].encode() for number in sorted(member.symbols)]
            return [member.tag, op, slot, first, len(member.symbols), 0]
        return [member.tag, op, slot, 0, 0, 0]

    def _default(self, member: MessageField, slot: int, path: tuple[str, ...]) -> list[int] | None:
        """What a slot holds where its message is there and its field is not."""
        if path or member.explicit or member.repeated or member.message is not None or not self.wishes[slot].default:
            return None
        if member.kind in ("string", "bytes"):
            return [slot, STRING, -1]
        if member.kind == "enum":
            if 0 not in member.symbols:
                return [slot, INTEGER, 0]
            self.plan.numbers.append(0)
            self.plan.symbols.append(member.symbols[0].encode())
            return [slot, STRING, len(self.plan.symbols) - 1]
        return [slot, OTHER if member.kind == "bool" else INTEGER, 0]


def split_times(message: Message, path: tuple[str, ...]) -> bool:
    """Whether a path leads to a Timestamp, so that its seconds and its nanoseconds are wanted instead of it."""
    inner: Message | None = message
    member: MessageField | None = None
    for name in path:
        member = None if inner is None else inner.named(name)
        inner = None if member is None or member.repeated else member.message
    return member is not None and inner is not None and inner.name == TIMESTAMP


def leaf_names(message: Message, depth: int = 3, before: str = "") -> list[str]:
    """Dotted fields of a message, for the messages of a validation."""
    names: list[str] = []
    for member in message.fields:
        if member.message is None or member.repeated or member.message.name in (TIMESTAMP, *WRAPPERS) or depth == 1:
            names.append(before + member.name)
        else:
            names += leaf_names(member.message, depth - 1, f"{before}{member.name}.")
    return names
