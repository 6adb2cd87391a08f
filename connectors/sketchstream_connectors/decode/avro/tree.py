"""Reads one Avro value after its schema, type by type: what no plan can hold, and payloads that an operator looks at.

In: a schema and the bytes of a value. Out: kind and text of each wanted field, or a plain document. Touches: nothing.
Source: the Avro 1.12 specification, "Binary Encoding". Verdicts are those of `decode.binary_kernels`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from sketchstream.kernels.tokens import DECIMAL, INTEGER, MISSING, NULL, OTHER, STRING
from sketchstream_connectors.decode.avro.schema import Type
from sketchstream_connectors.decode.slots import Slot
from sketchstream_connectors.decode.varints import read_varint, unzigzag

MAX_DEPTH: Final = 256
"""Most types inside of each other in one value; deeper values are malformed. Schemas with a plan are not as deep."""
MAX_DECIMAL_BYTES: Final = 400
"""Most bytes of a decimal; longer ones are of no use."""
Value = tuple[int, bytes | int | float]
"""Kind of a field, and its bytes or number."""


class Malformed(Exception):  # noqa: N818 - a verdict, which never leaves this file
    """The bytes are not a value of the schema."""


def read_fields(schema: Type, body: bytes, slots: Sequence[Slot]) -> list[Value] | None:
    """Kind and value of each slot; None if the bytes are malformed.

    Args:
        schema: schema of the writer.
        body: the whole value.
        slots: what is wanted.
    """
    tree = _Tree(body, slots)
    paths = [(slot, wanted.path) for slot, wanted in enumerate(slots)]
    return tree.found if _read_whole_value(tree, schema, paths) else None


def document(schema: Type, body: bytes) -> Any:
    """The value as plain data of JSON, for a sample; None if it is malformed. Bytes are shown as Latin-1 text."""
    tree = _Tree(body, (), keep=True)
    return tree.kept if _read_whole_value(tree, schema, []) else None


def end_of(schema: Type, data: bytes, start: int, limit: int) -> int | None:
    """Where the value ends that begins at `start`, and reads no byte at or behind `limit`; None if it is malformed."""
    tree = _Tree(data, (), start=start, limit=limit)
    try:
        tree.read(schema, [], 0)
    except Malformed:
        return None
    return tree.at


def _read_whole_value(tree: _Tree, schema: Type, paths: list[tuple[int, tuple[str, ...]]]) -> bool:
    """Read a value that must end where its bytes end."""
    try:
        tree.kept = tree.read(schema, paths, 0)
    except (Malformed, UnicodeDecodeError):
        return False
    return tree.at == tree.limit


class _Tree:
    """A position in the bytes of one value, and what was taken before it."""

    def __init__(
        self, body: bytes, slots: Sequence[Slot], *, keep: bool = False, start: int = 0, limit: int | None = None
    ) -> None:
        self.body = body
        self.at = start
        self.limit = len(body) if limit is None else limit
        self.slots = slots
        self.keep = keep
        self.kept: Any = None
        self.found: list[Value] = [(MISSING, b"")] * len(slots)

    def number(self, longest: int = 10, bits: int = 64) -> int:
        """Read a zigzag varint."""
        try:
            raw, self.at = read_varint(self.body, self.at, longest)
        except IndexError:
            raise Malformed from None
        if raw >> bits or self.at > self.limit:
            raise Malformed
        return unzigzag(raw)

    def part(self, size: int) -> bytes:
        """Read this number of bytes."""
        if not 0 <= size <= self.limit - self.at:
            raise Malformed
        self.at += size
        return self.body[self.at - size : self.at]

    def index(self, count: int) -> int:
        """Read the index of an enum or a union."""
        number = self.number(5, 32)
        if not 0 <= number < count:
            raise Malformed
        return number

    def read(self, schema: Type, paths: list[tuple[int, tuple[str, ...]]], depth: int) -> Any:
        """Read one value, and take what is wanted of it."""
        if depth > MAX_DEPTH:
            raise Malformed
        slots = [slot for slot, path in paths if not path]
        if schema.kind == "union":
            return self.read(schema.branches[self.index(len(schema.branches))], paths, depth + 1)
        if schema.kind == "record":
            self._take(slots, schema, (OTHER, b""))
            fields = {}
            for name, inner in schema.fields:
                below = [(slot, path[1:]) for slot, path in paths if path and path[0] == name]
                fields[name] = self.read(inner, below, depth + 1)
            return fields
        if schema.kind in ("array", "map"):
            self._take(slots, schema, (OTHER, b""))
            return self._blocks(schema, depth)
        value, plain = self._simple(schema, slots)
        self._take(slots, schema, value)
        return plain if self.keep else None

    def _blocks(self, schema: Type, depth: int) -> Any:
        """The blocks of an array or a map; only the first items are kept."""
        assert schema.items is not None
        is_map = schema.kind == "map"
        item_bytes = schema.items.min_bytes + is_map
        items: list[Any] = []
        while count := self.number():
            stop = None
            if count < 0:
                size = self.number()
                stop = self.at + size
                if not self.at <= stop <= self.limit:
                    raise Malformed
            if item_bytes:
                if abs(count) > ((self.limit if stop is None else stop) - self.at) // item_bytes:
                    raise Malformed
                for _ in range(abs(count)):
                    if is_map:
                        self.part(self.number())
                    items.append(self.read(schema.items, [], depth + 1))
            if stop is not None and self.at != stop:
                raise Malformed
        return {} if is_map else items[:1]

    def _simple(self, schema: Type, slots: list[int]) -> tuple[Value, Any]:
        """A value without parts: its kind and content, and how it is shown."""
        kind = schema.kind
        if kind == "null":
            return (NULL, b""), None
        if kind == "boolean":
            byte = self.part(1)[0]
            if byte > 1:
                raise Malformed
            return (OTHER, b""), bool(byte)
        if kind in ("int", "long"):
            number = self.number(*((5, 32) if kind == "int" else (10, 64)))
            return (INTEGER, number), number
        if kind in ("float", "double"):
            value = struct.unpack("<f" if kind == "float" else "<d", self.part(4 if kind == "float" else 8))[0]
            finite = value - value == 0
            return (DECIMAL if finite else OTHER, value), value if finite else None
        if kind == "enum":
            symbol = schema.symbols[self.index(len(schema.symbols))]
            return (STRING, symbol.encode()), symbol
        found_bytes = self.part(schema.size if kind == "fixed" else self.number())
        if kind == "string" and (slots or self.keep):
            return (STRING, found_bytes), found_bytes.decode()
        if schema.logical == "decimal" and (slots or self.keep):
            return self._decimal(schema, found_bytes)
        if schema.logical == "uuid" and any(self.slots[slot].text for slot in slots):
            spelled = found_bytes.hex()
            parts = (spelled[:8], spelled[8:12], spelled[12:16], spelled[16:20], spelled[20:])
            return (STRING, "-".join(parts).encode()), None
        return (STRING, found_bytes), found_bytes.decode("latin-1") if self.keep else None

    def _decimal(self, schema: Type, content: bytes) -> tuple[Value, Any]:
        if not 0 < len(content) <= MAX_DECIMAL_BYTES:
            return (OTHER, b""), None
        number = int.from_bytes(content, "big", signed=True)
        if schema.scale == 0 and -(1 << 63) <= number < 1 << 63:
            return (INTEGER, number), number
        digits = str(abs(number)).zfill(schema.scale + 1)
        cut = len(digits) - schema.scale
        text = "-" * (number < 0) + digits[:cut] + ("." + digits[cut:] if schema.scale else "")
        return (DECIMAL, text.encode()), float(text)

    def _take(self, slots: list[int], schema: Type, value: Value) -> None:
        """Put a value into its slots, each in its own form."""
        kind, content = value
        for slot in slots:
            wish = self.slots[slot]
            taken_value = value
            if wish.time and kind == INTEGER and isinstance(content, int):
                factor, divisor = schema.time or wish.unit
                content = content * factor // divisor
                taken_value = (INTEGER, content) if -(1 << 63) <= content < 1 << 63 else (OTHER, b"")
            elif wish.number and kind == DECIMAL:
                taken_value = _whole_number(value)
            elif kind == STRING and wish.text and schema.kind in ("bytes", "fixed") and isinstance(content, bytes):
                taken_value = value if _is_text(content) else (OTHER, b"")
            self.found[slot] = taken_value


def _is_text(content: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _whole_number(value: Value) -> Value:
    """A decimal or float that is a whole number of 64 bits as an integer; others as they are."""
    content = value[1]
    if isinstance(content, bytes):
        digits, _, rest = content.partition(b".")
        number = int(digits) if not rest.strip(b"0") else None
    else:
        number = int(content) if content == int(content) else None
    return (INTEGER, number) if number is not None and -(1 << 63) <= number < 1 << 63 else value
