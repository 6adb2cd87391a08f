"""Avro schemas: parsed from JSON into a graph of types, with names and references resolved.

In: the text of a schema, and those that it refers to. Out: a `Type`. Touches: nothing.
Source: the Avro 1.12 specification, "Schema Declaration" and "Logical Types".

A named type that is used several times, or inside itself, is one object. Aliases, defaults and documentation do not
change what bytes mean, and are left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sketchstream.errors import FormatError

PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
MAX_DEPTH: Final = 100
"""Most levels of nesting in the text of a schema."""
TIMES: Final = {
    ("int", "date"): (86_400_000, 1),
    ("long", "timestamp-millis"): (1, 1),
    ("long", "timestamp-micros"): (1, 1_000),
    ("long", "timestamp-nanos"): (1, 1_000_000),
    ("long", "local-timestamp-millis"): (1, 1),
    ("long", "local-timestamp-micros"): (1, 1_000),
    ("long", "local-timestamp-nanos"): (1, 1_000_000),
}
"""Factor and divisor that make a number milliseconds since 1970, by types; local times are read as UTC."""
CONNECT: Final = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Timestamp": "timestamp-millis",
    "io.debezium.time.MicroTimestamp": "timestamp-micros",
    "io.debezium.time.NanoTimestamp": "timestamp-nanos",
}
"""Times that Debezium names in `connect.name` where Avro would have a logical type.

Source: the Debezium reference, "Temporal types"."""
MAX_SCALE: Final = 400
"""Largest scale of a decimal; with a larger one only the underlying type counts."""


@dataclass(eq=False)
class Type:
    """One type.

    Args:
        kind: a primitive type, or record, enum, array, map, fixed or union.
        logical: a logical type that is known and valid here; else empty.
        scale: digits behind the point of a decimal.
        size: bytes of a fixed.
        fields: names and types of a record's fields.
        symbols: symbols of an enum.
        items: type of the items of an array, or of the values of a map.
        branches: types of the branches of a union.
        record_bytes: fewest bytes of a record; 1 for one that is recursive, or whose fields are not known yet.
    """

    kind: str
    logical: str = ""
    scale: int = 0
    size: int = 0
    fields: list[tuple[str, Type]] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    items: Type | None = None
    branches: list[Type] = field(default_factory=list)
    record_bytes: int = 1

    def __repr__(self) -> str:
        return f"Type({self.logical or self.kind})"

    @property
    def min_bytes(self) -> int:
        """A number of bytes that every value takes at least; 0: no value takes any."""
        if self.kind == "record":
            return self.record_bytes
        return {"null": 0, "float": 4, "double": 8, "fixed": self.size}.get(self.kind, 1)

    @property
    def time(self) -> tuple[int, int] | None:
        """Multiplier and divisor that make milliseconds of the number, if it is a time."""
        return TIMES.get((self.kind, self.logical))


def parse(text: str, references: Sequence[str] = ()) -> Type:
    """Parse a schema.

    Args:
        text: JSON.
        references: schemas whose named types it uses, those that others use first.

    Raises:
        FormatError: it is not an Avro schema; the text is not shown.
    """
    names: dict[str, Type] = {}
    try:
        for reference in references:
            _type(_load(reference), "", names, 0)
        return _type(_load(text), "", names, 0)
    except (KeyError, TypeError, ValueError, RecursionError, AttributeError) as error:
        raise FormatError(
            f"this is not a valid Avro schema ({type(error).__name__}); expected JSON by the Avro 1.12 specification"
        ) from None


def _load(text: str) -> Any:
    """The JSON of a schema; the registry may hold the bare name of a primitive type."""
    return text if text in PRIMITIVE else json.loads(text)


def _type(described: Any, namespace: str, names: dict[str, Type], depth: int) -> Type:
    """The type that a part of the JSON declares or names."""
    if depth > MAX_DEPTH:
        raise ValueError
    if isinstance(described, str):
        if described in PRIMITIVE:
            return Type(described)
        return names.get(_full_name(described, namespace)) or names[described]
    if isinstance(described, list):
        branches = [_type(branch, namespace, names, depth + 1) for branch in described]
        if not branches or any(branch.kind == "union" for branch in branches):
            raise ValueError
        return Type("union", branches=branches)
    kind = described["type"]
    if not isinstance(kind, str):
        return _type(kind, namespace, names, depth + 1)
    if kind in ("array", "map"):
        return Type(kind, items=_type(described["items" if kind == "array" else "values"], namespace, names, depth + 1))
    if kind not in ("record", "error", "enum", "fixed"):
        return _logical(Type(kind), described) if kind in PRIMITIVE else _type(kind, namespace, names, depth + 1)
    space = described.get("namespace", namespace)
    full = _full_name(described["name"], space)
    if full in names:
        raise ValueError
    result = Type("record" if kind == "error" else kind)
    names[full] = result
    inner = full.rpartition(".")[0]
    if kind == "enum":
        result.symbols = tuple(str(symbol) for symbol in described["symbols"])
        if len(set(result.symbols)) != len(result.symbols):
            raise ValueError
    elif kind == "fixed":
        result.size = int(described["size"])
        if not 0 <= result.size < 1 << 31:
            raise ValueError
        _logical(result, described)
    else:
        for field in described["fields"]:
            result.fields.append((str(field["name"]), _type(field["type"], inner, names, depth + 1)))
        result.record_bytes = min(sum(member.min_bytes for _, member in result.fields), 1 << 31)
    return result


def _full_name(name: str, namespace: str) -> str:
    """The full name."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _logical(result: Type, described: dict[str, Any]) -> Type:
    """Note a logical type, unless it is unknown or wrong: then only the underlying type counts, as in Avro."""
    logical = described.get("logicalType", CONNECT.get(str(described.get("connect.name"))))
    if (result.kind, logical) in TIMES:
        result.logical = str(logical)
    elif logical == "uuid" and (result.kind == "string" or (result.kind == "fixed" and result.size == 16)):
        result.logical = "uuid"
    elif logical == "decimal" and result.kind in ("bytes", "fixed"):
        precision, scale = described.get("precision"), described.get("scale", 0)
        if type(precision) is int and type(scale) is int and 0 <= scale <= min(precision, MAX_SCALE) and precision > 0:
            result.logical, result.scale = "decimal", scale
    return result


def leaf_names(schema: Type, depth: int = 3, before: str = "") -> list[str]:
    """Dotted fields of a schema, for the messages of a validation; a repeated or deeper one is left out.

    Args:
        schema: type of a payload.
        depth: levels of records.
        before: path that leads here.
    """
    if schema.kind == "union":
        inner = [leaf_names(branch, depth, before) for branch in schema.branches if branch.kind == "record"]
        return list(dict.fromkeys(leaf for names in inner for leaf in names)) or [before.rstrip(".")]
    if schema.kind != "record" or depth == 0:
        return [before.rstrip(".")] if before else []
    inner = [leaf_names(member, depth - 1, f"{before}{name}.") for name, member in schema.fields]
    return list(dict.fromkeys(leaf for names in inner for leaf in names))
