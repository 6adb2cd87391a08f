"""Protobuf messages, as their descriptors have them: fields by number, with their types and their presence.

In: descriptors of files, in the bytes that protoc or a registry writes. Out: `Message`. Touches: nothing.
Source: descriptor.proto; the language guides of proto2, proto3 and editions (presence).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sketchstream.errors import FormatError, optional_import
from sketchstream_connectors.decode.varints import read_varint

VARINT, FIXED64, BYTES, START, STOP, FIXED32 = range(6)
"""Numbers of Protobuf's wire types."""
KINDS = {
    1: ("double", FIXED64),
    2: ("float", FIXED32),
    3: ("int64", VARINT),
    4: ("uint64", VARINT),
    5: ("int32", VARINT),
    6: ("fixed64", FIXED64),
    7: ("fixed32", FIXED32),
    8: ("bool", VARINT),
    9: ("string", BYTES),
    10: ("group", START),
    11: ("message", BYTES),
    12: ("bytes", BYTES),
    13: ("uint32", VARINT),
    14: ("enum", VARINT),
    15: ("sfixed32", FIXED32),
    16: ("sfixed64", FIXED64),
    17: ("sint32", VARINT),
    18: ("sint64", VARINT),
}
"""Types of fields by their numbers in descriptors, and the wire type of one value."""
WRAPPERS = frozenset(
    f".google.protobuf.{name}Value"
    for name in ("String", "Bytes", "Int64", "UInt64", "Int32", "UInt32", "Double", "Float", "Bool")
)
TIMESTAMP = ".google.protobuf.Timestamp"


@dataclass(eq=False)
class MessageField:
    """One field.

    Args:
        name: name of the field.
        number: number of the field on the wire.
        kind: see `KINDS`.
        wire: wire type of one value.
        repeated: whether it is a list or a map.
        explicit: whether absence differs from the default value on the wire.
        oneof: number of its oneof in the message; -1: none.
        message: type of a field that is a message.
        symbols: names of an enum's values.
    """

    name: str
    number: int
    kind: str
    wire: int
    repeated: bool
    explicit: bool
    oneof: int
    message: Message | None = None
    symbols: dict[int, str] = field(default_factory=dict)

    @property
    def tag(self) -> int:
        """What stands in front of one value."""
        return self.number << 3 | self.wire


@dataclass(eq=False)
class Message:
    """One type of messages."""

    name: str
    fields: list[MessageField] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Message({self.name})"

    def named(self, name: str) -> MessageField | None:
        """The field of a name."""
        return next((member for member in self.fields if member.name == name), None)


@dataclass(frozen=True)
class MessageTypes:
    """Messages by their full names, with a dot in front; those of the last file also in their order."""

    messages: dict[str, Message]
    order: list[Any]

    def at(self, indexes: Sequence[int]) -> Message | None:
        """The message that indexes lead to: among those of the file, then those inside of one."""
        level, name = self.order, ""
        for index in indexes:
            if not 0 <= index < len(level):
                return None
            name, level = level[index]
        return self.messages.get(name)


def read_files(texts: Sequence[bytes], proto: bytes) -> MessageTypes:
    """Read descriptors of files.

    Args:
        texts: FileDescriptorProto of imports, in any order.
        proto: FileDescriptorProto of the file itself, or a FileDescriptorSet.

    Raises:
        FormatError: these are no descriptors, or a type is missing.
    """
    with optional_import("format = 'protobuf' needs protobuf: pip install 'sketchstream[protobuf]'"):
        from google.protobuf import descriptor_pb2, message
    files = []
    try:
        files += [descriptor_pb2.FileDescriptorProto.FromString(text) for text in texts]
        file_set = descriptor_pb2.FileDescriptorSet.FromString(proto) if _is_set(proto) else None
        files += list(file_set.file) if file_set is not None else [descriptor_pb2.FileDescriptorProto.FromString(proto)]
    except message.DecodeError:
        raise FormatError(
            "this is no descriptor of Protobuf; expected the bytes that `protoc --descriptor_set_out` writes"
        ) from None
    messages: dict[str, Message] = {}
    by_name: dict[str, tuple[Any, bool]] = {}
    enums: dict[str, dict[int, str]] = {}
    order: list[Any] = []
    for file in [*_well_known(), *files]:
        before = f".{file.package}" if file.package else ""
        implicit = file.syntax == "proto3"
        order = [_collect(inner, before, implicit, by_name, enums) for inner in file.message_type]
        enums |= {f"{before}.{inner.name}": _symbols(inner) for inner in file.enum_type}
    messages |= {name: Message(name) for name in by_name}
    for name, (described, implicit) in by_name.items():
        messages[name].fields += _fields(described, implicit, messages, enums)
    return MessageTypes(messages, order)


def _is_set(proto: bytes) -> bool:
    """Whether bytes are a set of files: its first field is a message, that of a file its name."""
    from google.protobuf import descriptor_pb2, message

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(proto).file
    except message.DecodeError:
        return False
    return bool(files) and all(file.name for file in files)


def _well_known() -> list[Any]:
    """Files that protoc brings."""
    from google.protobuf import descriptor_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

    files = []
    for module in (timestamp_pb2, wrappers_pb2, duration_pb2, struct_pb2):
        proto = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(proto)
        files.append(proto)
    return files


def _symbols(enum: Any) -> dict[int, str]:
    """Names of values; the first one counts where several have a number."""
    symbols: dict[int, str] = {}
    for value in enum.value:
        symbols.setdefault(value.number, value.name)
    return symbols


def _collect(
    described: Any, before: str, implicit: bool, by_name: dict[str, tuple[Any, bool]], enums: dict[str, dict[int, str]]
) -> tuple[str, list[Any]]:
    """Note a message and those inside of it; returns its name, and their tree."""
    name = f"{before}.{described.name}"
    by_name[name] = described, implicit
    enums |= {f"{name}.{inner.name}": _symbols(inner) for inner in described.enum_type}
    return name, [_collect(inner, name, implicit, by_name, enums) for inner in described.nested_type]


def _fields(
    described: Any, implicit: bool, messages: dict[str, Message], enums: dict[str, dict[int, str]]
) -> Iterator[MessageField]:
    """The fields of a message."""
    for member in described.field:
        kind, wire = KINDS[member.type]
        message_field = MessageField(
            member.name,
            member.number,
            kind,
            wire,
            repeated=member.label == member.LABEL_REPEATED,
            explicit=not implicit or member.proto3_optional or member.HasField("oneof_index") or kind == "message",
            oneof=member.oneof_index if member.HasField("oneof_index") and not member.proto3_optional else -1,
        )
        try:
            if kind in ("message", "group"):
                message_field.message = messages[member.type_name]
            elif kind == "enum":
                message_field.symbols = enums[member.type_name]
        except KeyError:
            raise FormatError(
                "a descriptor uses a type that none of its files has: write it with `protoc --include_imports`"
            ) from None
        yield message_field


def from_registry(text: str, references: Sequence[str]) -> MessageTypes:
    """The files of a registry's answer in its serialized form.

    Raises:
        FormatError: it is not in that form.
    """
    try:
        proto = base64.b64decode(text, validate=True)
        others = [base64.b64decode(reference, validate=True) for reference in references]
    except (binascii.Error, ValueError):
        raise FormatError("the registry does not give descriptors (format=serialized), only .proto text") from None
    return read_files(others, proto)


def document(message: Message, body: bytes, depth: int = 8) -> dict[str, Any] | None:
    """A message as plain data of JSON, for a sample; None if it is malformed. Lists and groups are left out."""
    plain: dict[str, Any] = {}
    at = 0
    by_tag = {field.tag: field for field in message.fields if not field.repeated}
    try:
        while at < len(body):
            tag, at = read_varint(body, at)
            size = {VARINT: 0, FIXED64: 8, FIXED32: 4}.get(tag & 7, -1)
            value: Any = None
            if tag & 7 == VARINT:
                raw, at = read_varint(body, at)
                value = raw & (1 << 64) - 1
            elif tag & 7 == BYTES:
                size, at = read_varint(body, at)
            if size < 0 or at + size > len(body):
                return None
            content, at = body[at : at + size], at + size
            field = by_tag.get(tag)
            if field is None:
                continue
            if field.message is not None:
                plain[field.name] = document(field.message, content, depth - 1) if depth else {}
            else:
                plain[field.name] = content.decode("latin-1") if tag & 7 == BYTES else value
    except IndexError:
        return None
    return plain
