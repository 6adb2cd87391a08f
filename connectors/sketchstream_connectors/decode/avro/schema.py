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
MOST_DEPTH: Final = 100
"""Nesting of a schema's own text."""
TIMES: Final = {
    ("int", "date"): (86_400_000, 1),
    ("long", "timestamp-millis"): (1, 1),
    ("long", "timestamp-micros"): (1, 1_000),
    ("long", "timestamp-nanos"): (1, 1_000_000),
    ("long", "local-timestamp-millis"): (1, 1),
    ("long", "local-timestamp-micros"): (1, 1_000),
    ("long", "local-timestamp-nanos"): (1, 1_000_000),
}
"""What a number is multiplied and divided by, for milliseconds since 1970; local times are read as UTC."""
CONNECT: Final = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Timestamp": "timestamp-millis",
    "io.debezium.time.MicroTimestamp": "timestamp-micros",
    "io.debezium.time.NanoTimestamp": "timestamp-nanos",
}
"""Times that Debezium names in `connect.name` where Avro would have a logical type.

Source: the Debezium reference, "Temporal types"."""
MOST_SCALE: Final = 400


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
    def least(self) -> int:
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
        for one in references:
            _type(_load(one), "", names, 0)
        return _type(_load(text), "", names, 0)
    except (KeyError, TypeError, ValueError, RecursionError, AttributeError) as error:
        msg = f"this is not a valid Avro schema ({type(error).__name__}); expected JSON by the Avro 1.12 specification"
        raise FormatError(msg) from None


def _load(text: str) -> Any:
    """The JSON of a schema; the registry may hold the bare name of a primitive type."""
    return text if text in PRIMITIVE else json.loads(text)


def _type(given: Any, namespace: str, names: dict[str, Type], depth: int) -> Type:
    """The type that a part of the JSON declares or names."""
    if depth > MOST_DEPTH:
        raise ValueError
    if isinstance(given, str):
        if given in PRIMITIVE:
            return Type(given)
        return names.get(_full(given, namespace)) or names[given]
    if isinstance(given, list):
        branches = [_type(one, namespace, names, depth + 1) for one in given]
        if not branches or any(one.kind == "union" for one in branches):
            raise ValueError
        return Type("union", branches=branches)
    kind = given["type"]
    if not isinstance(kind, str):
        return _type(kind, namespace, names, depth + 1)
    if kind in ("array", "map"):
        return Type(kind, items=_type(given["items" if kind == "array" else "values"], namespace, names, depth + 1))
    if kind not in ("record", "error", "enum", "fixed"):
        return _logical(Type(kind), given) if kind in PRIMITIVE else _type(kind, namespace, names, depth + 1)
    space = given.get("namespace", namespace)
    full = _full(given["name"], space)
    if full in names:
        raise ValueError
    made = Type("record" if kind == "error" else kind)
    names[full] = made
    inner = full.rpartition(".")[0]
    if kind == "enum":
        made.symbols = tuple(str(one) for one in given["symbols"])
        if len(set(made.symbols)) != len(made.symbols):
            raise ValueError
    elif kind == "fixed":
        made.size = int(given["size"])
        if not 0 <= made.size < 1 << 31:
            raise ValueError
        _logical(made, given)
    else:
        made.fields += [(str(one["name"]), _type(one["type"], inner, names, depth + 1)) for one in given["fields"]]
        made.record_bytes = min(sum(one.least for _, one in made.fields), 1 << 31)
    return made


def _full(name: str, namespace: str) -> str:
    """The full name."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _logical(made: Type, given: dict[str, Any]) -> Type:
    """Note a logical type, unless it is unknown or wrong: then only the underlying type counts, as Avro says."""
    logical = given.get("logicalType", CONNECT.get(str(given.get("connect.name"))))
    if (made.kind, logical) in TIMES:
        made.logical = str(logical)
    elif logical == "uuid" and (made.kind == "string" or (made.kind == "fixed" and made.size == 16)):
        made.logical = "uuid"
    elif logical == "decimal" and made.kind in ("bytes", "fixed"):
        precision, scale = given.get("precision"), given.get("scale", 0)
        if type(precision) is int and type(scale) is int and 0 <= scale <= min(precision, MOST_SCALE) and precision > 0:
            made.logical, made.scale = "decimal", scale
    return made


def leaf_names(made: Type, depth: int = 3, before: str = "") -> list[str]:
    """Dotted fields of a schema, for the messages of a validation; a repeated or deeper one is left out.

    Args:
        made: type of a payload.
        depth: levels of records.
        before: path that leads here.
    """
    if made.kind == "union":
        inner = [leaf_names(one, depth, before) for one in made.branches if one.kind == "record"]
        return list(dict.fromkeys(name for names in inner for name in names)) or [before.rstrip(".")]
    if made.kind != "record" or depth == 0:
        return [before.rstrip(".")] if before else []
    return list(
        dict.fromkeys(leaf for name, one in made.fields for leaf in leaf_names(one, depth - 1, f"{before}{name}."))
    )
