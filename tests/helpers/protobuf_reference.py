"""The specification of what a Protobuf message holds at a path, as plain and slow code, and random messages.

In: descriptors of the official runtime, bytes. Out: verdicts and values. Touches: nothing. Nothing is of the product.

A message is well-formed if its fields read up to its end: tags of at most five bytes and 32 bits, of a number above 0;
varints of at most ten bytes and 64 bits; lengths within the message; groups that end with their own number, at most 64
inside of each other. Only messages on the way to what is wanted are looked into; strings that are taken are UTF-8.
"""

from __future__ import annotations

import random
import struct
from fractions import Fraction
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

F = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "double": (F.TYPE_DOUBLE, 1),
    "float": (F.TYPE_FLOAT, 5),
    "int64": (F.TYPE_INT64, 0),
    "uint64": (F.TYPE_UINT64, 0),
    "int32": (F.TYPE_INT32, 0),
    "fixed64": (F.TYPE_FIXED64, 1),
    "fixed32": (F.TYPE_FIXED32, 5),
    "bool": (F.TYPE_BOOL, 0),
    "string": (F.TYPE_STRING, 2),
    "bytes": (F.TYPE_BYTES, 2),
    "uint32": (F.TYPE_UINT32, 0),
    "enum": (F.TYPE_ENUM, 0),
    "sfixed32": (F.TYPE_SFIXED32, 5),
    "sfixed64": (F.TYPE_SFIXED64, 1),
    "sint32": (F.TYPE_SINT32, 0),
    "sint64": (F.TYPE_SINT64, 0),
}
NAMES = {number: name for name, (number, _) in SCALARS.items()}
ABSENT, USELESS = ("absent", None), ("useless", None)


class Bad(Exception):
    pass


def varint(body: bytes, at: int, most: int = 10) -> tuple[int, int]:
    digits = []
    while True:
        if at >= len(body) or len(digits) == most:
            raise Bad
        digits.append(body[at])
        at += 1
        if digits[-1] < 128:
            break
    raw = sum(digit % 128 << 7 * place for place, digit in enumerate(digits))
    if raw >= 1 << (64 if most == 10 else 32):
        raise Bad
    return raw, at


def events(
    body: bytes, group: int | None = None, at: int = 0, depth: int = 0
) -> tuple[list[tuple[int, int, Any]], int]:
    """(number, wire type, content) of each field, and where the message or the group ends."""
    out = []
    while at < len(body):
        tag, at = varint(body, at, 5)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise Bad
        content: Any = None
        if wire == 0:
            content, at = varint(body, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            content, at = body[at : at + size], at + size
        elif wire == 2:
            size, at = varint(body, at)
            content, at = body[at : at + size], at + size
        elif wire == 3:
            if depth == 64:
                raise Bad
            _, at = events(body, number, at, depth + 1)
        elif wire == 4 and group == number:
            return out, at
        else:
            raise Bad
        if at > len(body):
            raise Bad
        out.append((number, wire, content))
    if group is not None:
        raise Bad
    return out, at


def wire_of(one: Any) -> int:
    return 2 if one.type == F.TYPE_MESSAGE else 3 if one.type == F.TYPE_GROUP else SCALARS[NAMES[one.type]][1]


def at_path(
    descriptor: Any, found: list[tuple[int, int, Any]], path: list[str], text: bool, number: bool, default: bool
) -> Any:
    one = descriptor.fields_by_name.get(path[0])
    if one is None:
        return ABSENT
    rivals = {}
    if one.containing_oneof is not None:
        rivals = {
            (other.number, wire_of(other))
            for other in one.containing_oneof.fields
            if other is not one and other.number != one.number
        }
    held: list[Any] = []
    listed = False
    for field, wire, content in found:
        if field == one.number and wire == wire_of(one):
            inside = one.type == F.TYPE_MESSAGE and len(path) > 1 and not one.is_repeated
            if one.type == F.TYPE_STRING and not one.is_repeated and len(path) == 1:
                try:
                    content.decode()
                except UnicodeDecodeError:
                    raise Bad from None
            if inside:  # judged even if a later field replaces or clears it
                content_events = events(content)[0]
                at_path(one.message_type, content_events, path[1:], text, number, default)
            held.append(content_events if inside else content)
        elif field == one.number and wire == 2:
            listed = True
        elif (field, wire) in rivals:
            held = []
    if one.is_repeated:
        return USELESS if (held or listed) and len(path) == 1 else ABSENT
    if one.type == F.TYPE_MESSAGE:
        if not held:
            return ABSENT
        if len(path) == 1:
            return USELESS
        return at_path(one.message_type, [event for part in held for event in part], path[1:], text, number, default)
    if len(path) > 1:
        return ABSENT
    if not held:
        if one.has_presence or not default:
            return ABSENT
        if one.type in (F.TYPE_STRING, F.TYPE_BYTES):
            return "text", b""
        if one.type == F.TYPE_ENUM:
            return "text", one.enum_type.values_by_number[0].name.encode()
        return USELESS if one.type == F.TYPE_BOOL else ("integer", Fraction(0))
    return value(one, held[-1], text, number)


def value(one: Any, content: Any, text: bool, number: bool) -> Any:
    name = NAMES[one.type]
    if name in ("string", "bytes"):
        if name == "bytes" and text:
            try:
                content.decode()
            except UnicodeDecodeError:
                return USELESS
        return "text", content
    if name == "bool":
        return USELESS
    if name in ("float", "double"):
        found = struct.unpack("<f" if name == "float" else "<d", content)[0]
        if found != found or found in (float("inf"), float("-inf")):
            return USELESS
        exact = Fraction(found)
        whole = number and exact.denominator == 1 and -(2**63) <= exact < 2**63
        return "integer" if whole else "decimal", exact
    if isinstance(content, bytes):
        return "integer", Fraction(int.from_bytes(content, "little", signed=name.startswith("s")))
    if name.endswith("32") or name == "enum":
        content %= 1 << 32
    if name.startswith("sint"):
        content = content // 2 if content % 2 == 0 else -(content + 1) // 2
    elif not name.startswith("uint"):
        half = 1 << (31 if name.endswith("32") or name == "enum" else 63)
        content = content - 2 * half if content >= half else content
    if name == "enum" and content in one.enum_type.values_by_number:
        return "text", one.enum_type.values_by_number[content].name.encode()
    return "integer", Fraction(content)


def expected(descriptor: Any, body: bytes, slots: list[tuple[str, bool, bool, bool]]) -> list[Any] | None:
    try:
        found = events(body)[0]
        return [at_path(descriptor, found, path.split("."), *flags) for path, *flags in slots]
    except Bad:
        return None


class Messages:
    """A random message type, and messages of it that the official runtime writes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.file = descriptor_pb2.FileDescriptorProto(name=f"r{seed}.proto", package="r")
        self.file.syntax = self.rng.choice(["proto3", "proto3", "proto2"])
        self.made = 0
        enum = self.file.enum_type.add(name="E")
        for place, number in enumerate((0, 1, 5, 700, -3)):
            enum.value.add(name=f"V{place}", number=number)
        self.describe("Top", 3)
        self.message_class = self._built()

    def _built(self) -> Any:
        pool = descriptor_pool.DescriptorPool()
        pool.Add(self.file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName("r.Top"))

    def describe(self, name: str, depth: int) -> None:
        rng = self.rng
        made = descriptor_pb2.DescriptorProto(name=name)
        if rng.random() < 0.5:
            made.oneof_decl.add(name="choice")
        numbers = rng.sample([*range(1, 20), 100, 2000, 70_000, (1 << 29) - 1], rng.randrange(2, 9))
        late = []
        for place, number in enumerate(numbers):
            kind = rng.choice([*SCALARS, "string", "int64", "message", "message"])
            one = made.field.add(name=f"f{place}", number=number, label=F.LABEL_OPTIONAL)
            if kind == "message" and depth:
                self.made += 1
                inner = f"M{self.made}"
                self.describe(inner, depth - 1)
                one.type, one.type_name = F.TYPE_MESSAGE, f".r.{inner}"
            else:
                kind = "string" if kind == "message" else kind
                one.type = SCALARS[kind][0]
                if kind == "enum":
                    one.type_name = ".r.E"
            pick = rng.random()
            if pick < 0.15:
                one.label = F.LABEL_REPEATED
            elif pick < 0.45 and len(made.oneof_decl):
                one.oneof_index = 0
            elif pick < 0.55 and self.file.syntax == "proto3" and one.type != F.TYPE_MESSAGE:
                late.append(one)
        if made.oneof_decl and not any(one.HasField("oneof_index") for one in made.field):
            del made.oneof_decl[:]
        for one in late:
            one.proto3_optional, one.oneof_index = True, len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{one.name}")
        self.file.message_type.append(made)

    def filled(self, message: Any) -> Any:
        rng = self.rng
        for one in message.DESCRIPTOR.fields:
            if rng.random() < 0.3:
                continue
            if one.type == F.TYPE_MESSAGE:
                if one.is_repeated:
                    self.filled(getattr(message, one.name).add())
                else:
                    getattr(message, one.name).SetInParent()
                    self.filled(getattr(message, one.name))
            elif one.is_repeated:
                getattr(message, one.name).extend(self.scalar(one) for _ in range(rng.randrange(3)))
            else:
                setattr(message, one.name, self.scalar(one))
        return message

    def scalar(self, one: Any) -> Any:
        rng = self.rng
        name = NAMES[one.type]
        if name in ("float", "double"):
            return rng.choice([0.5, 3.0, -2.25, float("nan"), 1e30, 0.0])
        if name == "bool":
            return rng.random() < 0.5
        if name == "string":
            return rng.choice(["", "a", "ä" * 30, "x" * 200])
        if name == "bytes":
            return rng.choice([b"", b"\xff", b"abc"])
        if name == "enum":
            return rng.choice([0, 1, 5, 700, -3])
        bits = 32 if "32" in name else 64
        low, high = (0, 1 << bits) if name.startswith(("uint", "fixed")) else (-(1 << bits - 1), 1 << bits - 1)
        return rng.choice([0, low, high - 1, rng.randrange(low, high), rng.randrange(100)])

    def body(self) -> bytes:
        rng = self.rng
        out = b""
        for _ in range(rng.choice([1, 1, 2])):
            out += self.filled(self.message_class()).SerializeToString()
        if rng.random() < 0.15:
            out += b"\xab\x06\x08\x01\xab\x06\xac\x06\xac\x06"  # a group in a group, of an unknown number
        return out

    def damaged(self, body: bytes) -> bytes:
        rng = self.rng
        out = bytearray(body)
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
            if out:
                out[rng.randrange(len(out))] = rng.choice([0, 1, 2, 3, 4, 6, 7, 127, 128, 129, 255, rng.getrandbits(8)])
        if rng.random() < 0.1:
            del out[rng.randrange(len(out) + 1) :]
        return bytes(out)


def paths_of(descriptor: Any, depth: int = 4, before: str = "") -> list[str]:
    out = []
    for one in descriptor.fields:
        out.append(before + one.name)
        if one.type == F.TYPE_MESSAGE and depth > 1:
            out += paths_of(one.message_type, depth - 1, f"{before}{one.name}.")
    return out
