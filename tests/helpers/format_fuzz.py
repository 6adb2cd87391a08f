"""Random and damaged values of Avro and Protobuf, compared with the strict readers, at the end of memory.

In: seeds, numbers of schemas and of records. Out: how many were well-formed; an assertion that fails at the first
difference, with what is needed to repeat it. Touches: memory pages of its own.

Values lie in batches of some dozens, the last one of which ends where memory ends: a read beyond it ends the process.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from helpers import avro_reference, protobuf_reference
from helpers.binary_payloads import laid_out, told
from sketchstream_connectors.decode.avro.finder import AvroFinder
from sketchstream_connectors.decode.avro.schema import parse
from sketchstream_connectors.decode.protobuf.finder import ProtobufFinder
from sketchstream_connectors.decode.protobuf.plan import Wish
from sketchstream_connectors.decode.protobuf.schema import Message, read_files
from sketchstream_connectors.decode.slots import Slot

Named = tuple[str, bool, bool, bool]
"""A slot: its path, whether it is text, a number; and of Avro whether it is a time, of Protobuf if defaults count."""
BATCH = 64
ID = 0x01020304
"""The only schema id that exists."""
FRAMES = {
    "confluent": b"\0" + ID.to_bytes(4, "big"),
    "apicurio8": b"\0" + ID.to_bytes(8, "big"),
    "glue": b"\3\0" + ID.to_bytes(16, "big"),
}


def avro_schema(made: avro_reference.Schemas) -> tuple[Any, list[Named]]:
    """A random schema, and slots of it."""
    rng = made.rng
    fields = [{"name": f"f{i}", "type": made.schema()} for i in range(rng.randrange(1, 8))]
    schema = {"type": "record", "name": "Top", "fields": fields}
    paths = [*avro_reference.paths_of(schema), "f0.zz"]
    paths += [f"{path}.{more}" for path in paths if path.endswith("again") for more in ("f0", "again.f0")]
    text = rng.random() < 0.7
    slots = {path: (path, text, rng.random() < 0.5, False) for path in rng.choices(paths, k=4)}
    time = rng.choice(paths)
    number = slots[time][2] if time in slots else False
    return schema, [*slots.values(), (time, text, number, True)]


def avro_finder(schema: Any, slots: list[Named], framing: str = "none") -> AvroFinder:
    """A finder for the id `ID` alone, if values have frames."""
    made = [Slot(tuple(path.split(".")), *flags) for path, *flags in slots]
    known = 0 if framing == "none" else ID
    return AvroFinder(made, framing, lambda number: parse(json.dumps(schema)) if number == known else None)


def avro(seed: int, records: int) -> int:
    """Compare records of one schema; returns how many were well-formed."""
    made = avro_reference.Schemas(seed)
    rng = made.rng
    schema, slots = avro_schema(made)
    framing = rng.choice(["none", *FRAMES])
    head = FRAMES.get(framing, b"")

    def one() -> bytes:
        body = made.damaged(made.value(schema))
        if framing == "glue" and rng.random() < 0.05:
            return _hurt(rng, b"\3\5" + head[2:]) + zlib.compress(body)[: rng.choice([None, None, -1])]
        return _hurt(rng, head) + body

    def wanted(value: bytes) -> Any:
        if framing == "glue" and value.startswith(b"\3\5" + head[2:]):
            try:
                value = head + zlib.decompress(value[len(head) :])
            except zlib.error:
                return None
        return avro_reference.expected(schema, value[len(head) :], slots) if value.startswith(head) else None

    return _compared(avro_finder(schema, slots, framing), wanted, (one() for _ in range(records)), rng, f"avro {seed}")


def protobuf(seed: int, records: int) -> int:
    """Compare messages of one type; returns how many were well-formed."""
    made = protobuf_reference.Messages(seed)
    rng = made.rng
    descriptor = made.message_class.DESCRIPTOR
    paths = [*protobuf_reference.paths_of(descriptor), "f0.zz"]
    text = rng.random() < 0.7
    slots: list[Named] = [
        (path, text, rng.random() < 0.5, rng.random() < 0.5) for path in sorted(set(rng.choices(paths, k=4)))
    ]
    message = read_files([], made.file.SerializeToString()).messages[".r.Top"]
    wishes = [Wish(Slot(tuple(path.split(".")), *flags), default) for path, *flags, default in slots]
    framing = rng.choice(["none", "confluent", "apicurio8"])
    head = FRAMES.get(framing, b"")
    indexes = b"" if framing == "none" else rng.choice([b"\0", b"\2\0", b"\4\2\0", b"\x08\xac\2\2\4\0"])
    path = {b"\0": (0,), b"\2\0": (0,), b"\4\2\0": (1, 0), b"\x08\xac\2\2\4\0": (150, 1, 2, 0), b"": ()}[indexes]

    def lookup(number: int, found: tuple[int, ...]) -> Message | None:
        return message if framing == "none" or (number == ID and found == path) else None

    finder = ProtobufFinder(wishes, False, framing, lookup)
    bodies = (_hurt(rng, head + indexes) + made.damaged(made.body()) for _ in range(records))

    def wanted(value: bytes) -> Any:
        if framing != "none":
            read = _after_indexes(value[len(head) :]) if value.startswith(head) else None
            if read is None or read[0] != path:
                return None
            value = read[1]
        return protobuf_reference.expected(descriptor, value, slots)

    return _compared(finder, wanted, bodies, rng, f"protobuf {seed}")


def _hurt(rng: random.Random, head: bytes) -> bytes:
    """A frame, sometimes damaged."""
    if rng.random() < 0.95 or not head:
        return head
    at = rng.randrange(len(head))
    return rng.choice([head[:at], head[:at] + bytes([rng.choice([0, 1, 2, 3, 5, 128, 255])]) + head[at + 1 :]])


def _after_indexes(value: bytes) -> tuple[tuple[int, ...], bytes] | None:
    """Message indexes at the beginning of a value, as their rule says, and what follows; None if there are none."""
    try:
        numbers: list[int] = []
        raw, at = protobuf_reference.varint(value, 0)
        count = raw // 2
        while raw % 2 == 0 and count <= 4 and len(numbers) < count:
            index, at = protobuf_reference.varint(value, at)
            if index % 2 or index // 2 >= 0xFFFF:
                return None
            numbers.append(index // 2)
    except protobuf_reference.Bad:
        return None
    return None if raw % 2 or count > 4 else (tuple(numbers) or (0,), value[at:])


def _compared(
    finder: Any, wanted: Callable[[bytes], Any], bodies: Iterator[bytes], rng: random.Random, name: str
) -> int:
    """Compare batches of values; returns how many were well-formed."""
    good = 0
    more = True
    while more:
        batch = []
        for body in bodies:
            batch.append(body)
            if len(batch) == BATCH or rng.random() < 1 / BATCH:
                break
        else:
            more = False
        found = told(finder.find(*laid_out(batch, guarded=True)), len(batch)) if batch else []
        for body, one in zip(batch, found, strict=True):
            right = wanted(body)
            assert one == right, (name, body.hex(), one, right)
            good += right is not None
    return good
