"""Random and damaged values of Avro and Protobuf, compared with the strict readers, at the end of memory.

In: seeds, numbers of schemas and of records. Out: how many were well-formed; an assertion that fails at the first
difference, with what is needed to repeat it. Touches: memory pages of its own.

Values lie in batches of some dozens, the last one of which ends where memory ends: a read beyond it ends the process.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from helpers import avro_reference, protobuf_reference
from helpers.binary_payloads import laid_out, told
from sketchstream_connectors.decode.avro.finder import AvroFinder
from sketchstream_connectors.decode.avro.schema import parse
from sketchstream_connectors.decode.protobuf.finder import ProtobufFinder
from sketchstream_connectors.decode.protobuf.plan import Wish
from sketchstream_connectors.decode.protobuf.schema import read_files
from sketchstream_connectors.decode.slots import Slot

Named = tuple[str, bool, bool, bool]
"""A slot: its path, whether it is text, a number; and of Avro whether it is a time, of Protobuf if defaults count."""
BATCH = 64


def avro_schema(made: avro_reference.Schemas) -> tuple[Any, list[Named]]:
    """A random schema, and slots of it."""
    rng = made.rng
    fields = [{"name": f"f{i}", "type": made.schema()} for i in range(rng.randrange(1, 8))]
    schema = {"type": "record", "name": "Top", "fields": fields}
    paths = [*avro_reference.paths_of(schema), "f0.zz"]
    text = rng.random() < 0.7
    slots = {path: (path, text, rng.random() < 0.5, False) for path in rng.choices(paths, k=4)}
    time = rng.choice(paths)
    number = slots[time][2] if time in slots else False
    return schema, [*slots.values(), (time, text, number, True)]


def avro_finder(schema: Any, slots: list[Named]) -> AvroFinder:
    made = [Slot(tuple(path.split(".")), *flags) for path, *flags in slots]
    return AvroFinder(made, "none", lambda _: parse(json.dumps(schema)))


def avro(seed: int, records: int) -> int:
    """Compare records of one schema; returns how many were well-formed."""
    made = avro_reference.Schemas(seed)
    schema, slots = avro_schema(made)
    bodies = (made.damaged(made.value(schema)) for _ in range(records))

    def wanted(body: bytes) -> Any:
        return avro_reference.expected(schema, body, slots)

    return _compared(avro_finder(schema, slots), wanted, bodies, made.rng, f"avro {seed}")


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
    finder = ProtobufFinder(wishes, False, "none", lambda *_: message)
    bodies = (made.damaged(made.body()) for _ in range(records))

    def wanted(body: bytes) -> Any:
        return protobuf_reference.expected(descriptor, body, slots)

    return _compared(finder, wanted, bodies, rng, f"protobuf {seed}")


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
