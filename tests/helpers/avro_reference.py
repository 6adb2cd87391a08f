"""The specification of which bytes are an Avro value, as plain and slow code, and a writer of random ones.

In: a schema as its JSON, bytes. Out: verdicts and values. Touches: nothing. Nothing here comes from the product.

A value is well-formed if its whole structure reads by its schema and ends where the bytes end:

* a varint has at most ten bytes and 64 bits; that of an `int`, an enum or a union at most five bytes and 32 bits;
* lengths are not negative and do not reach beyond the value; a boolean is 0 or 1; indexes exist;
* a block of an array or a map with a negative count has its size in bytes, which its items take exactly; a block of
  items that take bytes has at most as many as could fit; items that take no bytes may be any number;
* a string that is taken is UTF-8 (others are not looked at).
"""

from __future__ import annotations

import random
import struct
from fractions import Fraction
from typing import Any

PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
ABSENT = ("absent", None)


class Bad(Exception):
    pass


class Strict:
    """Reads one value."""

    def __init__(self, body: bytes) -> None:
        self.body, self.at = body, 0
        self.names: dict[str, Any] = {}

    def cut(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.body):
            raise Bad
        self.at += size
        return self.body[self.at - size : self.at]

    def varint(self, most: int) -> int:
        digits = []
        while True:
            digits.append(self.cut(1)[0])
            if digits[-1] < 128:
                break
            if len(digits) == most:
                raise Bad
        raw = sum((digit % 128) * 128**place for place, digit in enumerate(digits))
        if raw >= 2 ** (64 if most == 10 else 32):
            raise Bad
        return raw // 2 if raw % 2 == 0 else -(raw + 1) // 2

    def choice(self, count: int) -> int:
        index = self.varint(5)
        if index < 0 or index >= count:
            raise Bad
        return index

    def read(self, schema: Any) -> tuple[str, Any]:
        if isinstance(schema, str) and schema not in PRIMITIVE:
            schema = self.names[schema]
        if isinstance(schema, list):
            return self.read(schema[self.choice(len(schema))])
        kind = schema if isinstance(schema, str) else schema["type"]
        logical = None if isinstance(schema, str) else schema.get("logicalType")
        if kind in ("record", "enum", "fixed"):
            self.names[schema["name"]] = schema
        if kind == "record":
            return "record", {one["name"]: self.read(one["type"]) for one in schema["fields"]}
        if kind in ("array", "map"):
            return self.blocks(schema, kind)
        if kind == "null":
            return ABSENT
        if kind == "boolean":
            if self.cut(1) not in (b"\0", b"\1"):
                raise Bad
            return "useless", None
        if kind in ("int", "long"):
            number = self.varint(5 if kind == "int" else 10)
            return "number", (Fraction(number), kind, logical, True)
        if kind in ("float", "double"):
            value = struct.unpack("<f", self.cut(4))[0] if kind == "float" else struct.unpack("<d", self.cut(8))[0]
            if value != value or value in (float("inf"), float("-inf")):
                return "useless", None
            return "number", (Fraction(value), kind, None, False)
        if kind == "enum":
            return "text", (schema["symbols"][self.choice(len(schema["symbols"]))].encode(), "enum", None)
        content = self.cut(schema["size"] if kind == "fixed" else self.varint(10))
        if logical == "decimal":
            if not content or len(content) > 400:
                return "useless", None
            number = Fraction(int.from_bytes(content, "big", signed=True), 10 ** schema.get("scale", 0))
            return "number", (number, "decimal", None, schema.get("scale", 0) == 0)
        return "text", (content, kind, logical)

    def blocks(self, schema: Any, kind: str) -> tuple[str, Any]:
        items = schema["items" if kind == "array" else "values"]
        least = self.fewest(items) + (kind == "map")
        while count := self.varint(10):
            before = self.at
            if count < 0:
                size = self.varint(10)
                before = self.at
                self.cut(size)
                self.at = before
            if least and abs(count) * least > len(self.body) - before:
                raise Bad
            for _ in range(abs(count) if least else 0):
                if kind == "map":
                    self.cut(self.varint(10))
                self.read(items)
            if count < 0 and self.at != before + size:
                raise Bad
        return "useless", None

    def fewest(self, schema: Any) -> int:
        if isinstance(schema, str) and schema in self.names:
            schema = self.names[schema]
        if isinstance(schema, list):
            return 1
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            self.names[schema["name"]] = schema
            return sum(self.fewest(one["type"]) for one in schema["fields"])
        return {"null": 0, "float": 4, "double": 8}.get(kind, schema["size"] if kind == "fixed" else 1)


def at_path(value: tuple[str, Any], path: list[str]) -> tuple[str, Any]:
    for name in path:
        if value[0] != "record" or name not in value[1]:
            return ABSENT
        value = value[1][name]
    return ("useless", None) if value[0] == "record" else value


TIMES = {
    "date": Fraction(86_400_000),
    "timestamp-millis": Fraction(1),
    "timestamp-micros": Fraction(1, 1_000),
    "timestamp-nanos": Fraction(1, 1_000_000),
    "local-timestamp-millis": Fraction(1),
    "local-timestamp-micros": Fraction(1, 1_000),
    "local-timestamp-nanos": Fraction(1, 1_000_000),
}


def is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def expected(schema: Any, body: bytes, slots: list[tuple[str, bool, bool, bool]]) -> list[tuple[str, Any]] | None:
    """What the slots (path, text, number, time) hold; None: malformed."""
    reader = Strict(body)
    try:
        value = reader.read(schema)
    except Bad:
        return None
    if reader.at != len(body):
        return None
    out: list[tuple[str, Any]] = []
    for path, text, number, time in slots:
        kind, content = at_path(value, path.split("."))
        if kind == "number":
            exact, source, logical, whole = content
            factor = TIMES.get(logical or "")
            if time and factor is not None and (source == "int") == (logical == "date"):
                exact = Fraction((exact * factor).numerator // (exact * factor).denominator)
            fits = exact.denominator == 1 and -(2**63) <= exact < 2**63
            whole = (whole and fits) or (number and fits)
            out.append(("integer" if whole else "decimal", exact))
        elif kind == "text":
            found, source, logical = content
            if source == "string" and not is_text(found):
                return None
            if source == "fixed" and logical == "uuid" and text:
                found = "-".join(found.hex()[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))).encode()
            elif source in ("bytes", "fixed") and text and not is_text(found):
                out.append(("useless", None))
                continue
            out.append(("text", found))
        else:
            out.append((kind, None))
    return out


# --------------------------------------------------------------------------------------- random schemas and values


class Schemas:
    """Random schemas, and values of them in valid bytes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.made = 0
        self.records: dict[str, Any] = {}

    def name(self) -> str:
        self.made += 1
        return f"N{self.made}"

    def schema(self, depth: int = 3, union: bool = True) -> Any:
        rng = self.rng
        pick = rng.random()
        if depth and pick < 0.2:
            fields = [{"name": f"f{i}", "type": self.schema(depth - 1)} for i in range(rng.randrange(0, 6))]
            name = self.name()
            if rng.random() < 0.05:  # a recursive one
                fields.append({"name": "again", "type": ["null", name]})
            self.records[name] = {"type": "record", "name": name, "fields": fields}
            return self.records[name]
        if depth and pick < 0.27:
            return {"type": "array", "items": self.schema(depth - 1)}
        if depth and pick < 0.34:
            return {"type": "map", "values": self.schema(depth - 1)}
        if union and pick < 0.6:
            return self.union(depth)
        return self.leaf()

    def union(self, depth: int) -> Any:
        rng = self.rng
        if rng.random() < 0.7:
            one = self.schema(max(depth - 1, 0), union=False)
            if one != "null":
                return ["null", one] if rng.random() < 0.5 else [one, "null"]
        seen: dict[str, Any] = {}
        for _ in range(rng.randrange(1, 5)):
            one = self.schema(max(depth - 1, 0), union=False)
            kind = one if isinstance(one, str) else one["type"]
            seen.setdefault(one["name"] if kind in ("record", "enum", "fixed") else kind, one)
        return list(seen.values())

    def leaf(self) -> Any:
        rng = self.rng

        def logical(kind: str, called: str, **more: Any) -> dict[str, Any]:
            return {"type": kind, "logicalType": called, **more}

        return rng.choice(
            [
                *PRIMITIVE,
                "string",
                "long",
                "int",
                {"type": "enum", "name": self.name(), "symbols": [f"S{i}" for i in range(rng.randrange(1, 200))]},
                {"type": "fixed", "name": self.name(), "size": rng.randrange(0, 20)},
                logical("fixed", "uuid", name=self.name(), size=16),
                logical(
                    "fixed",
                    "decimal",
                    name=self.name(),
                    size=rng.randrange(1, 12),
                    precision=30,
                    scale=rng.randrange(6),
                ),
                logical("bytes", "decimal", precision=40, scale=rng.randrange(0, 25)),
                logical("bytes", "decimal", precision=12, scale=2),
                logical("string", "uuid"),
                logical("int", "date"),
                logical("long", "timestamp-millis"),
                logical("long", "timestamp-micros"),
                logical("long", "timestamp-nanos"),
                logical("long", "local-timestamp-micros"),
            ]
        )

    def varint(self, number: int) -> bytes:
        raw = 2 * number if number >= 0 else -2 * number - 1
        out = bytearray()
        while raw > 127:
            out.append(raw % 128 + 128)
            raw //= 128
        out.append(raw)
        return bytes(out)

    def integer(self, bits: int) -> int:
        rng = self.rng
        size = rng.randrange(1, bits)
        return rng.choice([rng.getrandbits(size), -rng.getrandbits(size), 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 0])

    def content(self, size: int | None = None) -> bytes:
        rng = self.rng
        size = rng.choice([0, 1, 3, 8, 20, 70]) if size is None else size
        return bytes(rng.getrandbits(8) if rng.random() < 0.02 else rng.randrange(32, 127) for _ in range(size))

    def value(self, schema: Any) -> bytes:
        rng = self.rng
        if isinstance(schema, list):
            index = rng.randrange(len(schema))
            return self.varint(index) + self.value(schema[index])
        schema = self.records.get(schema, schema) if isinstance(schema, str) else schema
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            return b"".join(self.value(one["type"]) for one in schema["fields"])
        if kind in ("array", "map"):
            out = b""
            for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
                count = rng.randrange(1, 4)
                inside = b""
                for _ in range(count):
                    if kind == "map":
                        key = self.content()
                        inside += self.varint(len(key)) + key
                    inside += self.value(schema["items" if kind == "array" else "values"])
                sized = rng.random() < 0.3
                out += (self.varint(-count) + self.varint(len(inside)) if sized else self.varint(count)) + inside
            return out + b"\0"
        if kind == "null":
            return b""
        if kind == "boolean":
            return bytes([rng.randrange(2)])
        if kind in ("int", "long"):
            return self.varint(self.integer(32 if kind == "int" else 64))
        if kind == "float":
            return struct.pack("<f", rng.choice([0.5, 3.0, -2.25, float("nan"), 1e30, float("inf")]))
        if kind == "double":
            return struct.pack("<d", rng.choice([0.1, 7.0, -2.25, float("nan"), 1e300, -0.0, 2.0**62, 2.0**63]))
        if kind == "enum":
            return self.varint(rng.randrange(len(schema["symbols"])))
        if kind == "fixed":
            return self.content(schema["size"])
        if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
            size = rng.choice([1, 2, 3, 8, 8, 9, 17])
            found = rng.getrandbits(8 * size - 1).to_bytes(size, "big", signed=False)
            return self.varint(size) + found
        content = self.content()
        return self.varint(len(content)) + content

    def damaged(self, body: bytes) -> bytes:
        rng = self.rng
        out = bytearray(body)
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            if out:
                out[rng.randrange(len(out))] = rng.choice([0, 1, 2, 3, 4, 127, 128, 129, 255, rng.getrandbits(8)])
        cut = rng.random()
        if cut < 0.15:
            del out[rng.randrange(len(out) + 1) :]
        elif cut < 0.25:
            out += bytes(rng.getrandbits(8) for _ in range(rng.randrange(1, 4)))
        elif cut < 0.3 and out:
            at = rng.randrange(len(out))
            out[at:at] = bytes(rng.choice([0x80, 0xFF, 0]) for _ in range(rng.randrange(1, 12)))
        return bytes(out)


def paths_of(schema: Any, depth: int = 3, before: str = "") -> list[str]:
    """Paths of a schema that do not lead through arrays or maps."""
    if isinstance(schema, list):
        return [path for one in schema for path in paths_of(one, depth, before)]
    if not isinstance(schema, dict) or schema["type"] != "record" or not depth:
        return []
    out = []
    for one in schema["fields"]:
        out.append(before + one["name"])
        out += paths_of(one["type"], depth - 1, f"{before}{one['name']}.")
    return out
