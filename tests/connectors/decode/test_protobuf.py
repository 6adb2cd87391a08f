"""Protobuf messages: verdicts and contents as the strict reader says, and as the official runtime on what it wrote.

In: random message types, messages of the official runtime, damaged ones. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from helpers import format_fuzz
from helpers.binary_payloads import fields_of, items_of, records_of
from helpers.schema_registry import StandInRegistry
from sketchstream.config.schema import PayloadTable
from sketchstream.errors import ConfigError, FormatError, SchemaUnavailableError
from sketchstream.items.columns import Choices
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.decode.decoder import Decoder
from sketchstream_connectors.decode.protobuf.finder import unpack_indexes
from sketchstream_connectors.decode.protobuf.format import FORMATS, ProtobufReader
from sketchstream_connectors.decode.protobuf.plan import leaf_names
from sketchstream_connectors.decode.protobuf.schema import from_registry, read_files


def test_verdicts_and_values_are_those_of_the_strict_reader_and_no_byte_beyond_is_read() -> None:
    assert 1000 < sum(format_fuzz.protobuf(seed, 120) for seed in range(25)) < 2950


@pytest.mark.slow
def test_verdicts_and_values_of_many_messages_are_those_of_the_strict_reader() -> None:
    """More, and of one's own seeds: `make fuzz-formats`."""
    assert sum(format_fuzz.protobuf(seed, 500) for seed in range(1000, 2000)) > 100_000


# --------------------------------------------------------------------------------------------- official runtime

F = descriptor_pb2.FieldDescriptorProto


def order_file() -> descriptor_pb2.FileDescriptorProto:
    """As protoc would describe: message Other; message Order with User inside, a Timestamp, a wrapper and a oneof."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    file.message_type.add(name="Other").field.add(name="x", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    user = order.nested_type.add(name="User")
    user.field.add(name="id", number=1, type=F.TYPE_UINT64, label=F.LABEL_OPTIONAL)
    user.field.add(name="country", number=90, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    status = file.enum_type.add(name="Status")
    for number, name in enumerate(("NEW", "PAID")):
        status.value.add(name=name, number=number)

    def add(name: str, number: int, kind: int, type_name: str = "", **more: Any) -> None:
        one = order.field.add(name=name, number=number, type=kind, label=F.LABEL_OPTIONAL, **more)
        if type_name:
            one.type_name = type_name

    add("user", 1, F.TYPE_MESSAGE, ".shop.Order.User")
    add("at", 2, F.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add("n", 3, F.TYPE_INT32)
    add("status", 4, F.TYPE_ENUM, ".shop.Status")
    add("note", 5, F.TYPE_MESSAGE, ".google.protobuf.StringValue")
    order.oneof_decl.add(name="way")
    add("card", 6, F.TYPE_STRING, oneof_index=0)
    add("cash", 7, F.TYPE_INT64, oneof_index=0)
    order.oneof_decl.add(name="_m")
    add("m", 8, F.TYPE_INT32, proto3_optional=True, oneof_index=1)
    return file


def order_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    from google.protobuf import timestamp_pb2, wrappers_pb2

    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(order_file())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def reader_of(**fields: Any) -> ProtobufReader:
    message = read_files([], order_file().SerializeToString()).messages[".shop.Order"]
    return ProtobufReader(fields_of(**fields), "none", lambda *_: message)


def test_messages_of_the_official_runtime_are_read() -> None:
    made = order_class()
    bodies = []
    for i in range(6):
        one = made(n=i)
        one.user.id = (1 << 64) - i if i % 2 else i + 1
        one.user.country = "DE" if i % 3 else ""
        one.at.seconds, one.at.nanos = i - 2, 999_999_999
        one.status = i % 2
        if i % 2:
            one.note.value = "x"
        bodies.append(one.SerializeToString())
    found = reader_of(item="user.id", weight="n", time="at", columns=("status", "user.country", "note", "card")).decode(
        records_of(bodies)
    )
    assert found.valid.all()
    assert items_of(found.items) == [str((1 << 64) - i if i % 2 else i + 1).encode() for i in range(6)]
    assert found.weights is not None
    assert found.weights.tolist() == list(range(6))
    assert found.times.tolist() == [(i - 2) * 1000 + 999 for i in range(6)]
    assert found.columns["status"].codes(Choices(["NEW", "PAID"])).tolist() == [0, 1] * 3
    assert found.columns["user.country"].codes(Choices(["DE", ""])).tolist() == [1, 0, 0] * 2
    assert found.columns["note"].codes(Choices(["x"])).tolist() == [-1, 0] * 3
    assert found.columns["card"].absent.all()
    numbers = reader_of(item="user.id", item_type="int").decode(records_of(bodies))
    assert items_of(numbers.items) == [-i if i % 2 else i + 1 for i in range(6)]


def test_presence_is_decided_as_the_documentation_says() -> None:
    made = order_class()
    empty = made().SerializeToString()
    with_user = made()
    with_user.user.SetInParent()
    bodies = [empty, with_user.SerializeToString(), None]
    found = reader_of(item="user.id", weight="n", time="at").decode(records_of(bodies))
    assert found.null.tolist() == [True, True, True]
    weighted = reader_of(weight="n", time="at").decode(records_of([empty]))
    assert weighted.weights is not None
    assert (weighted.weights.tolist(), weighted.times.tolist()) == ([0], [NO_TIME])
    optional = reader_of(weight="m", time="user.id").decode(records_of([empty, with_user.SerializeToString()]))
    assert optional.weights is not None
    assert (optional.weights.tolist(), optional.times.tolist()) == ([1, 1], [NO_TIME, NO_TIME])


def test_the_last_member_of_a_oneof_holds_and_messages_that_come_twice_are_merged() -> None:
    made = order_class()
    first, second = made(card="x"), made(cash=5)
    first.user.id = 9
    second.user.country = "FR"
    both = first.SerializeToString() + second.SerializeToString()
    merged = made.FromString(both)
    assert (merged.WhichOneof("way"), merged.user.id, merged.user.country) == ("cash", 9, "FR")
    found = reader_of(item="user.id", columns=("card", "cash", "user.country")).decode(records_of([both]))
    assert items_of(found.items) == [b"9"]
    assert found.columns["card"].absent.all()
    assert found.columns["cash"].integers()[0].tolist() == [5]
    assert found.columns["user.country"].codes(Choices(["FR"])).tolist() == [0]


def serialized(file: Any) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def test_messages_of_confluents_frame_name_their_type_by_indexes() -> None:
    made = order_class()
    body = made(n=1, user={"id": 7}).SerializeToString()
    head = b"\0" + struct.pack(">i", 12)
    nested = made.DESCRIPTOR.nested_types_by_name["User"]
    user = message_factory.GetMessageClass(nested)(id=8).SerializeToString()
    bodies = [
        head + b"\x02\x02" + body,  # [1]: Order
        head + b"\x04\x02\x00" + user,  # [1, 0]: Order.User
        head + b"\x00" + b"\x08\x05",  # [0]: Other
        head + b"\x02\x00" + b"\x08\x05",  # [0] written in full
        head + b"\x02\x08" + body,  # there is no [4]
        head + b"\x01" + body,
        head,
        b"\0\0\0\0\x63\0" + body,
    ]
    with StandInRegistry() as stand_in:
        stand_in.register(12, serialized(order_file()), "PROTOBUF")
        decoder = Decoder("protobuf", item="user.id", payload=PayloadTable(registry=stand_in.url))
        found = decoder.decode(records_of(bodies))
        asked = {path for _, path in stand_in.asked}
    assert found.valid.tolist() == [True] + [False] * 7
    assert found.null.tolist() == [False, True, True, True, False, False, False, False]
    assert asked == {"/schemas/ids/12?format=serialized", "/schemas/ids/99?format=serialized"}
    assert unpack_indexes(1 | 3 << 16) == (0, 2)


def test_a_registry_that_has_only_text_lets_records_wait() -> None:
    with StandInRegistry() as stand_in:
        stand_in.register(12, 'syntax = "proto3"; message A {}', "PROTOBUF")
        decoder = Decoder("protobuf", item="x", payload=PayloadTable(registry=stand_in.url))
        with pytest.raises(SchemaUnavailableError, match="serialized"):
            decoder.decode(records_of([b"\0\0\0\0\x0c\0\x08\x01"]))


def test_values_of_confluents_serializer_are_read() -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    made = order_class()
    client = SchemaRegistryClient.new_client({"url": "mock://protobuf"})
    serializer = ProtobufSerializer(made, client, {"use.deprecated.format": False})
    context = SerializationContext("orders", MessageField.VALUE)
    values = [serializer(made(user={"id": n + 1}, n=n), context) for n in range(5)]
    number = int.from_bytes(values[0][1:5], "big")
    with StandInRegistry() as stand_in:
        stand_in.register(number, client.get_schema(number).schema_str, "PROTOBUF")
        found = Decoder("protobuf", item="user.id", payload=PayloadTable(registry=stand_in.url)).decode(
            records_of(values)
        )
    assert items_of(found.items) == [str(n + 1).encode() for n in range(5)]


def test_a_descriptor_file_names_its_message(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[order_file()]).SerializeToString())
    table = PayloadTable(schema_file=path, message="shop.Order", framing="none")
    found = Decoder("protobuf", item="user.id", payload=table).decode(
        records_of([order_class()(user={"id": 7}).SerializeToString()])
    )
    assert items_of(found.items) == [b"7"]
    with pytest.raises(ConfigError, match=r"no field 'usr\.id'; fields there are: .*did you mean 'user\.id'"):
        Decoder("protobuf", item="usr.id", payload=table)
    with pytest.raises(ConfigError, match=r"shop\.Order\.User"):
        Decoder("protobuf", item="x", payload=table.model_copy(update={"message": "shop.None"}))
    path.write_bytes(b"\xff\xff")
    with pytest.raises(ConfigError, match="protoc"):
        Decoder("protobuf", item="x", payload=table)
    with pytest.raises(FormatError):
        from_registry("no base 64!", [])


def test_fields_are_found_as_deep_as_names_go() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="n.proto", package="n", syntax="proto3")
    node = file.message_type.add(name="Node")
    node.field.add(name="n", number=1, type=F.TYPE_MESSAGE, type_name=".n.Node", label=F.LABEL_OPTIONAL)
    node.field.add(name="u", number=2, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    message = read_files([], file.SerializeToString()).messages[".n.Node"]
    body = b"\x12\x01a"
    for _ in range(63):
        body = b"\x0a" + varint(len(body)) + body
    deepest = ".".join(["n"] * 63 + ["u"])
    found = ProtobufReader(fields_of(item=deepest), "none", lambda *_: message).decode(records_of([body]))
    assert items_of(found.items) == [b"a"]
    further = fields_of(item=f"n.{deepest}")
    assert "more than 63 others" in "".join(FORMATS["protobuf"].check(further))
    assert not list(FORMATS["protobuf"].check(fields_of(item=deepest)))


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])


def test_a_sample_shows_the_fields_as_json() -> None:
    reader = reader_of(item="user.id")
    shown = reader.shown(order_class()(user={"id": 7}, n=3).SerializeToString())
    assert shown is not None
    assert json.loads(shown) == {"user": {"id": 7}, "n": 3}
    assert reader.shown(b"\xff") is None
    names = leaf_names(read_files([], order_file().SerializeToString()).messages[".shop.Order"])
    assert {"user.id", "at", "note", "status"} <= set(names)
