"""Avro values: verdicts and contents as the strict reader says, for well-formed, damaged and foreign bytes.

In: random schemas and values, values of fastavro. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest

from helpers import format_fuzz
from helpers.avro_reference import Schemas
from helpers.binary_payloads import fields_of, items_of, laid_out, records_of, told
from sketchstream.config.schema import PayloadTable
from sketchstream.errors import ConfigError, FormatError, SchemaUnavailableError
from sketchstream.items.columns import Choices
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.decode import binary_kernels as kernels
from sketchstream_connectors.decode.avro import tree
from sketchstream_connectors.decode.avro.format import AvroReader
from sketchstream_connectors.decode.avro.plan import compile_plan
from sketchstream_connectors.decode.avro.schema import leaf_names, parse
from sketchstream_connectors.decode.decoder import Decoder
from sketchstream_connectors.decode.slots import Slot
from sketchstream_connectors.decode.varints import write_zigzag


def test_verdicts_and_values_are_those_of_the_strict_reader_and_no_byte_beyond_is_read() -> None:
    assert 1000 < sum(format_fuzz.avro(seed, 150) for seed in range(20)) < 2800


@pytest.mark.slow
def test_verdicts_and_values_of_many_records_are_those_of_the_strict_reader() -> None:
    """More, and of one's own seeds: `make fuzz-formats`."""
    assert sum(format_fuzz.avro(seed, 500) for seed in range(1000, 2000)) > 100_000


def test_the_tree_has_the_verdicts_of_the_loop() -> None:
    for seed in range(300, 312):
        random_one = Schemas(seed)
        schema, slots = format_fuzz.avro_schema(random_one)
        bodies = [random_one.damaged(random_one.value(schema)) for _ in range(60)]
        made = [Slot(tuple(path.split(".")), *flags) for path, *flags in slots]
        looped = told(format_fuzz.avro_finder(schema, slots).find(*laid_out(bodies)), len(bodies))
        finder = format_fuzz.avro_finder(schema, slots)
        finder._entries[:] = kernels.TREE
        assert told(finder.find(*laid_out(bodies)), len(bodies)) == looped
        assert [tree.read_fields(parse(json.dumps(schema)), body, made) is None for body in bodies] == [
            one is None for one in looped
        ]


# ------------------------------------------------------------------------------------------------ real encoders

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {
            "name": "user",
            "type": {
                "type": "record",
                "name": "User",
                "fields": [{"name": "id", "type": "long"}, {"name": "country", "type": ["null", "string"]}],
            },
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["CLICK", "BUY", "VIEW"]}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "props", "type": {"type": "map", "values": "shop.User"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "session", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "price", "type": ["null", "double", "string"]},
    ],
}


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def order(i: int) -> dict[str, Any]:
    amount = decimal.Decimal("123456789012345678901.25") if i % 7 == 0 else decimal.Decimal(i) / 4
    return {
        "id": f"order-{i}",
        "user": {"id": i - 5, "country": None if i % 3 else "DE"},
        "at": datetime.datetime(2024, 2, 3, 4, 5, 6, 789_123, tzinfo=datetime.UTC),
        "kind": "BUY" if i % 2 else "VIEW",
        "tags": [None, "ä"] * (i % 3),
        "props": {"k": {"id": 1, "country": "x"}} if i % 2 else {},
        "amount": amount,
        "day": datetime.date(2024, 2, 3),
        "session": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "price": (None, 2.5, "text")[i % 3],
    }


def test_values_of_fastavro_are_read() -> None:
    reader = AvroReader(
        fields_of(item="user.id", weight="amount", time="at", columns=("kind", "price", "user.country"), decimals=True),
        "none",
        lambda _: parse(json.dumps(ORDER)),
    )
    found = reader.decode(records_of([written(ORDER, order(i)) for i in range(30)]))
    assert found.valid.tolist() == [i % 7 != 0 for i in range(30)]  # weights beyond 2^40
    assert items_of(found.items)[1:7] == [str(i - 5).encode() for i in range(1, 7)]
    when = datetime.datetime(2024, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    assert set(found.times.tolist()) == {int(when.timestamp()) * 1000 + 789}
    units, good = found.weight_column.decimals(2)
    assert [int(one) for one in units[good]] == [i for i in range(30) if i % 7]
    assert (~good).sum() == 5
    codes = found.columns["kind"].codes(Choices(["BUY", "VIEW"]))
    assert codes.tolist() == [0 if i % 2 else 1 for i in range(30)]
    country = found.columns["user.country"].codes(Choices(["DE"]))
    assert country.tolist() == [-1 if i % 3 else 0 for i in range(30)]
    prices, numbers = found.columns["price"].decimals(1)
    assert numbers.tolist() == [i % 3 == 1 for i in range(30)]
    assert set(prices[numbers].tolist()) == {5}


@pytest.mark.parametrize(
    ("field", "item_type", "wanted"),
    [
        ("user.id", "text", b"-4"),
        ("user.id", "int", -4),
        ("id", "text", b"order-1"),
        ("kind", "text", b"BUY"),
        ("session", "bytes", b"0f8fad5b-d9cb-469f-a165-70867728950e"),
        ("day", "int", 19756),
        ("at", "int", 1706933106789123),
    ],
)
def test_fields_of_many_types_are_items(field: str, item_type: str, wanted: object) -> None:
    reader = AvroReader(fields_of(item=field, item_type=item_type), "none", lambda _: parse(json.dumps(ORDER)))
    found = reader.decode(records_of([written(ORDER, order(1)), None, b"\x02"]))
    assert found.valid.tolist() == [True, False, False]
    assert found.null.tolist() == [False, True, False]
    assert items_of(found.items)[0] == wanted


def test_a_time_that_is_also_the_item_has_both_meanings() -> None:
    schema = {"type": "record", "name": "E", "fields": [{"name": "at", "type": ORDER["fields"][2]["type"]}]}  # type: ignore[index]
    reader = AvroReader(fields_of(item="at", item_type="int", time="at"), "none", lambda _: parse(json.dumps(schema)))
    moment = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC)
    found = reader.decode(records_of([written(schema, {"at": moment})]))
    assert items_of(found.items) == [-1]
    assert found.times.tolist() == [-1]  # the floor of -1 microsecond


def test_texts_are_times_by_rfc_3339_and_what_is_no_time_is_none() -> None:
    schema = {"type": "record", "name": "E", "fields": [{"name": "at", "type": ["null", "string", "long", "double"]}]}
    reader = AvroReader(fields_of(time="at"), "none", lambda _: parse(json.dumps(schema)))
    values = ["2024-01-01T00:00:00Z", 5, 2.5, None, "soon"]
    found = reader.decode(records_of([written(schema, {"at": one}) for one in values]))
    assert found.times.tolist() == [1_704_067_200_000, 5, NO_TIME, NO_TIME, NO_TIME]


def test_schemas_evolve_within_one_batch_and_each_id_is_looked_up_once() -> None:
    old = {"type": "record", "name": "E", "fields": [{"name": "u", "type": "int"}]}
    new = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "int"}, {"name": "u", "type": "string"}]}
    other = {"type": "record", "name": "F", "fields": [{"name": "x", "type": "int"}]}
    known = {1: old, 2: new, 9: other}
    asked: list[int] = []

    def lookup(number: int) -> Any:
        asked.append(number)
        return parse(json.dumps(known[number])) if number in known else None

    def framed(number: int, body: bytes) -> bytes:
        return b"\0" + struct.pack(">i", number) + body

    reader = AvroReader(fields_of(item="u", weight="n"), "confluent", lookup)
    bodies = [
        framed(2, written(new, {"n": 3, "u": "a"})),
        framed(1, written(old, {"u": 7})),
        framed(9, written(other, {"x": 1})),
        framed(5, b"\x02"),
        b"\1" + framed(1, b"\x0e")[1:],
        b"\0\0",
    ] * 3
    found = reader.decode(records_of(bodies))
    assert found.valid.tolist() == [True, True, False, False, False, False] * 3
    assert found.null.tolist() == [False, False, True, False, False, False] * 3
    assert items_of(found.items)[:2] == [b"a", b"7"]
    assert found.weights is not None
    assert found.weights[found.valid].tolist() == [3, 1] * 3
    assert sorted(asked) == [1, 2, 5, 9]


@pytest.mark.parametrize("framing", ["apicurio8", "glue"])
def test_other_frames_are_read_and_never_guessed(framing: str) -> None:
    number = 0x1122334455667788 if framing == "apicurio8" else 0x0102030405060708090A0B0C0D0E0F10
    head = b"\0" + number.to_bytes(8, "big") if framing == "apicurio8" else b"\3\0" + number.to_bytes(16, "big")
    schema = {"type": "record", "name": "E", "fields": [{"name": "u", "type": "string"}]}
    body = written(schema, {"u": "someone"})
    reader = AvroReader(
        fields_of(item="u"), framing, lambda asked: parse(json.dumps(schema)) if asked == number else None
    )
    packed = b"\3\5" + number.to_bytes(16, "big")
    bodies = [
        head + body,
        b"\0\0\0\0\7" + body,
        head[:-1],
        packed + zlib.compress(body),
        packed + zlib.compress(body)[:-2],
    ]
    found = reader.decode(records_of(bodies))
    assert found.valid.tolist() == [True, False, False, framing == "glue", False]


def test_recursive_schemas_are_read_by_the_tree_and_deep_values_are_malformed() -> None:
    schema = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "u", "type": "string"}, {"name": "next", "type": ["null", "Node"]}],
    }
    assert compile_plan(parse(json.dumps(schema)), [Slot(("u",))]) is None
    reader = AvroReader(fields_of(item="next.u"), "none", lambda _: parse(json.dumps(schema)))
    value = {"u": "a", "next": {"u": "b", "next": None}}
    endless = b"\x02a\x02" * 500_000
    found = reader.decode(records_of([written(schema, value), endless, endless + b"\x02a\0"]))
    assert found.valid.tolist() == [True, False, False]
    assert items_of(found.items)[0] == b"b"


def test_items_without_bytes_are_not_looped_over() -> None:
    schema = {
        "type": "record",
        "name": "E",
        "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}, {"name": "u", "type": "string"}],
    }
    reader = AvroReader(fields_of(item="u"), "none", lambda _: parse(json.dumps(schema)))
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\x02u"  # 2^63 - 1 nulls
    found = reader.decode(records_of([huge] * 1000))
    assert found.valid.all()


def test_an_int_beyond_32_bits_is_malformed_though_fastavro_reads_it() -> None:
    schema = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "int"}, {"name": "u", "type": "string"}]}
    body = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x02u"
    assert fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema(schema), None)["n"] < -(2**31)
    reader = AvroReader(fields_of(item="u"), "none", lambda _: parse(json.dumps(schema)))
    assert not reader.decode(records_of([body])).valid.any()


@pytest.mark.parametrize("items", ["string", "null", {"type": "array", "items": "int"}])
def test_a_block_that_gives_its_size_is_judged_as_one_that_does_not(items: Any) -> None:
    fields = [{"name": "a", "type": {"type": "array", "items": items}}, {"name": "u", "type": "string"}]
    reader = AvroReader(
        fields_of(item="u"), "none", lambda _: parse(json.dumps({"type": "record", "name": "E", "fields": fields}))
    )
    inside = {"string": b"\x02x\x00", "null": b""}.get(str(items), b"\x02\x08\x00\x00")
    size = len(inside)
    head, tail = write_zigzag(-2), b"\x00\x02u"
    bodies = [
        write_zigzag(2) + inside + tail,
        head + write_zigzag(size) + inside + tail,
        head + write_zigzag(size) + inside + head + write_zigzag(size) + inside + tail,
        head + write_zigzag(size + 1) + inside + tail,
        head + write_zigzag(size - 1) + inside + tail,
        head + write_zigzag(size + 1) + inside + b"x" + tail,
        head + write_zigzag(1 << 40) + inside + tail,
        write_zigzag(-(1 << 63)) + write_zigzag(size) + inside + tail,
    ]
    found = reader.decode(records_of(bodies))
    assert found.valid.tolist() == [True, True, True, False, False, False, False, items == "null"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"type":"record","name":"E"}', '{"type":"nothing"}', '["null",["int"]]', "[" * 5000, "7"],
)
def test_what_is_no_schema_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(FormatError, match="not a valid Avro schema") as raised:
        parse(text)
    assert len(text) < 9 or text not in str(raised.value)


def test_a_sample_shows_the_fields_as_json() -> None:
    reader = AvroReader(fields_of(item="user.id"), "none", lambda _: parse(json.dumps(ORDER)))
    shown = reader.shown(written(ORDER, order(1)))
    assert shown is not None
    assert json.loads(shown)["user"] == {"id": -4, "country": None}
    assert reader.shown(b"\xff") is None
    assert "user.country" in leaf_names(parse(json.dumps(ORDER)))


def test_named_types_used_often_make_no_plan_that_explodes() -> None:
    inner: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
    for level in range(1, 30):
        inner = {
            "type": "record",
            "name": f"R{level}",
            "fields": [{"name": "a", "type": inner}, {"name": "b", "type": f"R{level - 1}"}],
        }
    schema = parse(
        json.dumps(
            {"type": "record", "name": "T", "fields": [{"name": "l", "type": {"type": "array", "items": inner}}]}
        )
    )
    assert compile_plan(schema, [Slot(("l",))]) is None


@pytest.mark.parametrize("types", [40, 200, 3000])
def test_named_types_in_a_long_chain_have_the_verdict_of_their_depth(types: int) -> None:
    """Each of them refers to the one before it, so the text of the schema is flat; a recursion over them would end."""
    union = {"name": "x", "type": ["null", "string"]}
    chain = [{"type": "record", "name": "R0", "fields": [union]}]
    for level in range(1, types):
        fields = [{"name": "x", "type": ["null", f"R{level - 1}"]}]
        chain.append({"type": "record", "name": f"R{level}", "fields": fields})
    fields = [{"name": f"a{level}", "type": ["null", one]} for level, one in enumerate(chain)]
    listed = {"name": "l", "type": {"type": "array", "items": f"R{types - 1}"}}
    schema = parse(json.dumps({"type": "record", "name": "T", "fields": [*fields, listed]}))
    assert (compile_plan(schema, [Slot(("l",))]) is not None) == (types == 40)
    reader = AvroReader(fields_of(columns=("a0.x",)), "none", lambda _: schema)
    shallow = b"\x02\x02\x02a" + bytes(types - 1) + b"\0"
    deepest = bytes(types - 1) + b"\x02" * (types + 1) + b"\x02a\0"
    found = reader.decode(records_of([shallow, deepest]))
    assert found.valid.tolist() == [True, types == 40]
    assert found.columns["a0.x"].codes(Choices(["a"])).tolist() == [0, -1]


def test_avro_without_schemas_is_refused() -> None:

    with pytest.raises(ConfigError, match="registry"):
        Decoder("avro", item="u")


def test_a_schema_file_is_compared_with_the_fields_that_are_wanted(tmp_path: Path) -> None:

    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    table = PayloadTable(schema_file=Path("order.avsc"), framing="none")
    decoder = Decoder("avro", item="user.id", payload=table, folder=tmp_path)
    assert decoder.decode(records_of([written(ORDER, order(3))])).valid.all()
    with pytest.raises(ConfigError, match=r"no field 'userid'.*did you mean 'user\.id'"):
        Decoder("avro", item="userid", payload=table, folder=tmp_path)
    path.write_text("no schema")
    with pytest.raises(ConfigError, match="holds no Avro schema"):
        Decoder("avro", item="user.id", payload=table, folder=tmp_path)


def test_schemas_of_glue_come_from_a_folder_that_may_grow(tmp_path: Path) -> None:
    old, new, foreign = (UUID(int=n << 64 | 1 << 63 | n) for n in (1, 2, 3))
    schema = {"type": "record", "name": "E", "fields": [{"name": "u", "type": "string"}]}
    more = {**schema, "fields": [{"name": "n", "type": "long"}, *schema["fields"]]}
    table = PayloadTable(schema_file=tmp_path, framing="glue")
    with pytest.raises(ConfigError, match="it has none"):
        Decoder("avro", "u", payload=table)
    (tmp_path / f"{old}.avsc").write_text(json.dumps(schema))
    with pytest.raises(ConfigError, match="no field 'user'"):
        Decoder("avro", "user", payload=table)
    decoder = Decoder("avro", "u", payload=table)

    def framed(version: UUID, body: bytes) -> bytes:
        return b"\3\0" + version.bytes + body

    first, second = framed(old, written(schema, {"u": "a"})), framed(new, written(more, {"n": 1, "u": "b"}))
    text = b"\3\0sixteen letters and more"
    assert decoder.decode(records_of([first, text])).valid.tolist() == [True, False]
    with pytest.raises(SchemaUnavailableError) as raised:
        decoder.decode(records_of([first, second]))
    assert str(new) not in str(raised.value)
    (tmp_path / f"{new}.avsc").write_text(json.dumps(more))
    (tmp_path / f"{foreign}.avsc").touch()
    found = decoder.decode(records_of([first, second, framed(foreign, b"")]))
    assert found.valid.tolist() == [True, True, False]
    assert items_of(found.items)[:2] == [b"a", b"b"]
