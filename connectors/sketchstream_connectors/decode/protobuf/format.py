"""The format "protobuf": dotted fields of messages whose descriptors a registry or a file has.

In: `Records`, descriptors. Out: `Events`. Touches: the registry and its cache. Errors never contain a payload.

A message is valid if its fields read on the way to what is wanted, and it ends exactly at its end; the rules are in
docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.errors import ConfigError, FormatError, SchemaUnavailableError
from sketchstream.kernels.tokens import INTEGER
from sketchstream.stream.formats import Fields, TimeUnit
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.decode.binary_kernels import MAX_DEPTH
from sketchstream_connectors.decode.named_fields import Found, NamedFormat, nest_fields, wanted_fields
from sketchstream_connectors.decode.protobuf.finder import Lookup, ProtobufFinder
from sketchstream_connectors.decode.protobuf.plan import NOWHERE, Wish, leaf_names
from sketchstream_connectors.decode.protobuf.schema import (
    BYTES,
    VARINT,
    Message,
    MessageField,
    MessageTypes,
    document,
    from_registry,
    read_files,
)
from sketchstream_connectors.decode.schema_reader import SchemaReader
from sketchstream_connectors.decode.slots import Slot, binary_times, slots_of
from sketchstream_connectors.decode.varints import write_varint
from sketchstream_connectors.schema_registry import sources

MAX_TIME_S = 1 << 53
"""Seconds below this have milliseconds that are an int64."""


def wishes_of(fields: Fields) -> tuple[tuple[Wish, ...], bool]:
    """What is wanted, and whether it ends with a time, its seconds and its nanoseconds."""
    slots, time = slots_of(fields)
    names = wanted_fields(fields)
    wishes = [
        Wish(slot, place < len(names) and names[place] != fields.item and not slot.time)
        for place, slot in enumerate(slots)
    ]
    if time < 0:
        return tuple(wishes), False
    path = slots[time].path
    wishes[time] = NOWHERE  # where the time is nothing else as well: read once, below
    wishes += [Wish(slots[time], False)]
    wishes += [Wish(Slot((*path, part), time=True), True) for part in ("seconds", "nanos")]
    return tuple(wishes), True


class ProtobufReader(SchemaReader[Message]):
    """Reads Protobuf messages.

    Args:
        fields: what is wanted.
        framing: framing of the values.
        lookup: the message type of an id and of message indexes.
    """

    def __init__(self, fields: Fields, framing: str, lookup: Lookup) -> None:
        finder = ProtobufFinder(*wishes_of(fields), framing, lookup)
        super().__init__(fields, finder, document, lambda found: _times(found, fields.time_unit))


def _times(fields: Found, unit: TimeUnit) -> Ints:
    """(n,) event times of the last three places: a number or a text, or seconds and nanoseconds of a Timestamp."""
    place = fields.kinds.shape[0] - 3
    times = binary_times(fields.column(place), unit)
    split = (fields.kinds[place + 1] == INTEGER) & (fields.kinds[place + 2] == INTEGER)
    if split.any():
        seconds, nanos = fields.starts[place + 1], fields.starts[place + 2]
        good = split & (np.abs(seconds) < MAX_TIME_S) & (nanos >= 0) & (nanos < 10**9)
        times[split] = NO_TIME
        times[good] = seconds[good] * 1000 + nanos[good] // 1_000_000
    return times


class ProtobufFormat(NamedFormat):
    """See `PayloadFormat`."""

    payload_keys = sources.KEYS | {"message"}

    def check(self, fields: Fields) -> Iterator[str]:
        """Mistakes in the fields."""
        yield from super().check(fields)
        for name in wanted_fields(fields):
            if name.count(".") >= MAX_DEPTH:
                yield f"{name[:40]!r}... is the field of a message in more than {MAX_DEPTH - 1} others: too deep"

    def check_payload(self, payload: Any) -> Iterator[str]:
        """Mistakes in `[payload]`."""
        yield from sources.mistakes(payload, "protobuf", "event.desc")
        if (payload.schema_file is None) != (payload.message is None):
            yield "payload.message names the message type in payload.schema_file, for example message = 'shop.Order'"
        if payload.framing == "glue":
            yield "payload.framing = 'glue' is not known for format = 'protobuf'"

    def reader(self, fields: Fields, payload: Any, resolve: Callable[[str], Any]) -> ProtobufReader:
        """A reader.

        Raises:
            ConfigError: `[payload]` is missing, or names a file that does not describe the message.
        """
        if payload is None:
            raise ConfigError(
                "format = 'protobuf' needs [payload]: registry = \"http://...\", or schema_file with message"
            )
        if payload.schema_file is not None:
            path = resolve(str(payload.schema_file))
            message = _from_file(path, payload.message)
            sources.require_fields(wanted_fields(fields), leaf_names(message, sources.DEPTH), path)
            return ProtobufReader(fields, payload.framing, lambda *_: message)
        registry = sources.open_registry(payload, resolve, schema_format="serialized")
        types_by_id: dict[int, MessageTypes | None] = {}

        def lookup(number: int, indexes: tuple[int, ...]) -> Message | None:
            if number not in types_by_id:
                registered = registry.schema(number)
                types_by_id[number] = None
                if registered is not None and registered.schema_type == "PROTOBUF":
                    try:
                        types_by_id[number] = from_registry(
                            registered.text, [text for _, text in registered.references]
                        )
                    except FormatError as error:
                        del types_by_id[number]
                        sources.log_unreadable(number, "protobuf")
                        raise SchemaUnavailableError(str(error)) from None
                elif registered is not None:
                    sources.log_unreadable(number, "protobuf")
            files = types_by_id[number]
            message = None if files is None else files.at(indexes)
            if message is not None:
                sources.log_lacking(number, wanted_fields(fields), leaf_names(message, sources.DEPTH))
            return message

        return ProtobufReader(fields, payload.framing, lookup)

    def example(self, fields: Fields, now_ms: int) -> tuple[ProtobufReader, bytes]:
        """A reader of a message that has all fields, and a value."""
        message, value = _example(nest_fields(fields, now_ms))
        return ProtobufReader(fields, "none", lambda *_: message), value


FORMATS = {"protobuf": ProtobufFormat()}


def _from_file(path: Any, name: str) -> Message:
    """The message type of a descriptor file."""
    try:
        files = read_files([], path.read_bytes())
    except (OSError, FormatError):
        raise ConfigError(
            f"payload.schema_file {path} holds no descriptors: write it with `protoc --include_imports -o FILE`"
        ) from None
    message = files.messages.get(f".{name}")
    if message is None:
        names = ", ".join(sorted(name[1:] for name in files.messages if not name.startswith(".google.")))
        raise ConfigError(f"payload.message {name!r:.80} is not in {path}; it has {names:.300}")
    return message


def _example(document: dict[str, object]) -> tuple[Message, bytes]:
    """A message type of a plain document, and the document as a message."""
    message, body = Message(".example"), b""
    for number, (name, value) in enumerate(document.items(), 1):
        if isinstance(value, int):
            field = MessageField(name, number, "int64", VARINT, False, False, -1)
            body += write_varint(field.tag) + write_varint(value)
        else:
            inner, content = _example(value) if isinstance(value, dict) else (None, str(value).encode())
            kind = "string" if inner is None else "message"
            field = MessageField(name, number, kind, BYTES, False, inner is not None, -1, inner)
            body += write_varint(field.tag) + write_varint(len(content)) + content
        message.fields.append(field)
    return message, body
