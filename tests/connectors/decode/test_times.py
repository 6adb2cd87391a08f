"""Event times that are numbers of another unit than milliseconds, in every format; against exact fractions."""

from __future__ import annotations

import io
import json as encoder
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2, message_factory
from hypothesis import given
from hypothesis import strategies as st

from helpers.binary_payloads import fields_of
from helpers.records import records_of
from sketchstream.errors import ConfigError, FormatError
from sketchstream.items.columns import RecordColumn
from sketchstream.kernels.tokens import DECIMAL, INTEGER, STRING
from sketchstream.stream.formats import UNITS_PER_S as PER_S
from sketchstream.stream.formats import TimeUnit
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.decode.avro import tree
from sketchstream_connectors.decode.avro.format import AvroReader
from sketchstream_connectors.decode.avro.schema import parse
from sketchstream_connectors.decode.decoder import Decoder
from sketchstream_connectors.decode.protobuf.format import ProtobufReader
from sketchstream_connectors.decode.protobuf.schema import read_files
from sketchstream_connectors.decode.slots import slots_of
from sketchstream_connectors.decode.times import column_times, in_ms, text_times
from sketchstream_connectors.files import source
from sketchstream_connectors.files.layout import Layout

NUMBERS = [-(2**63), -(2**63) + 1, -1, 0, 1, 999, 1000, -1001, 1_764_000_000, 2**63 - 1]
NUMBERS += [sign * (9_223_372_036_854_775 + more) for sign in (-1, 1) for more in (0, 1)]


def exact(number: Fraction | int, unit: TimeUnit) -> int:
    """The instant's floor in milliseconds; NO_TIME beyond 64 bits. Slow and plain."""
    found = math.floor(Fraction(number) * 1000 / PER_S[unit])
    return found if -(2**63) < found < 2**63 and number != NO_TIME else NO_TIME


def texts(values: list[str], kind: int = STRING, *, raw: bool = False) -> RecordColumn:
    """A column of texts."""
    ends = np.cumsum([len(value) for value in values], dtype=np.int64)
    starts = ends - [len(value) for value in values]
    buffer = np.frombuffer("".join(values).encode() + bytes(128), np.uint8)
    return RecordColumn(np.full(len(values), kind, np.uint8), buffer, starts, ends, raw=raw)


@pytest.mark.parametrize("unit", PER_S)
@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from(NUMBERS), min_size=1))
def test_whole_numbers_become_the_floor_of_their_instant(unit: TimeUnit, numbers: list[int]) -> None:
    expected = [exact(number, unit) for number in numbers]
    assert in_ms(np.array(numbers, np.int64), unit).tolist() == expected
    assert column_times(texts([str(one) for one in numbers], INTEGER), unit).tolist() == expected
    assert text_times(texts([str(one) for one in numbers], raw=True), unit).tolist() == expected


@given(whole=st.integers(0, 10**17), digits=st.text("0123456789", max_size=12))
def test_parts_of_a_second_are_read_exactly_and_cut_to_milliseconds(whole: int, digits: str) -> None:
    text = f"{whole}.{digits}"
    expected = exact(Fraction(f"{text}0"), "s") if whole < 9 * 10**15 else NO_TIME
    assert column_times(texts([text], DECIMAL), "s").tolist() == [expected]
    assert text_times(texts([text], raw=True), "s").tolist() == [expected]
    for unit in ("ms", "us", "ns"):
        assert column_times(texts([text], DECIMAL), unit).tolist() == [NO_TIME]


@pytest.mark.parametrize("text", ["-1.5", "1.5e3", "1e3", ".5", "1.5.5", "1,5", "", " 1.5", "1.5 ", "0x1.8", "NaN"])
def test_what_is_no_plain_decimal_is_no_time(text: str) -> None:
    assert column_times(texts([text], DECIMAL), "s").tolist() == [NO_TIME]
    assert text_times(texts([text], raw=True), "s").tolist() == [NO_TIME]


@pytest.mark.parametrize("unit", PER_S)
def test_texts_say_their_own_unit(unit: TimeUnit) -> None:
    moment = "2025-11-24T16:00:00.5Z"
    for raw, read in ((False, column_times), (True, text_times)):
        assert read(texts([moment], raw=raw), unit).tolist() == [1_764_000_000_500]


@pytest.mark.parametrize("unit", PER_S)
def test_json_avro_and_protobuf_agree(unit: TimeUnit) -> None:
    at = 1_764_000_000 * PER_S[unit] + 7
    expected = [exact(at, unit)]
    decoder = Decoder("json", time="at", columns=("at",), time_unit=unit)
    assert decoder.decode(records_of([encoder.dumps({"at": at}).encode()])).times.tolist() == expected
    for logical in (None, "timestamp-micros"):
        of: Any = "long" if logical is None else {"type": "long", "logicalType": logical}
        schema = {"type": "record", "name": "E", "fields": [{"name": "at", "type": ["null", of]}]}
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"at": at if logical is None else 5_000_000})
        reader = AvroReader(fields_of(time="at", time_unit=unit), "none", lambda _, s=schema: parse(encoder.dumps(s)))
        found = reader.decode(records_of([out.getvalue()]))
        assert found.times.tolist() == (expected if logical is None else [5_000])
        slots, _ = slots_of(fields_of(time="at", time_unit=unit))
        slow = tree.read_fields(parse(encoder.dumps(schema)), out.getvalue(), slots)
        assert slow == [(INTEGER, one) for one in found.times.tolist()]
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="e.proto", syntax="proto3")
    file.message_type.add(name="E").field.add(name="at", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    message = read_files([], file.SerializeToString()).messages[".E"]
    made = message_factory.GetMessages([file])["E"](at=at)
    protobuf = ProtobufReader(fields_of(time="at", time_unit=unit), "none", lambda *_: message)
    assert protobuf.decode(records_of([made.SerializeToString()])).times.tolist() == expected


def test_seconds_of_avro_beyond_64_bits_are_no_time() -> None:
    schema = {"type": "record", "name": "E", "fields": [{"name": "at", "type": "long"}]}
    reader = AvroReader(fields_of(time="at", time_unit="s"), "none", lambda _: parse(encoder.dumps(schema)))
    bodies: list[bytes | None] = []
    for at in (2**63 - 1, -(2**63), 9_223_372_036_854_775, 9_223_372_036_854_776, -9_223_372_036_854_776):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"at": at})
        bodies.append(out.getvalue())
    found = reader.decode(records_of(bodies)).times.tolist()
    assert found == [NO_TIME, NO_TIME, 9_223_372_036_854_775_000, NO_TIME, NO_TIME]


@pytest.mark.parametrize("unit", PER_S)
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "avro"])
def test_files_are_read_in_the_unit(tmp_path: Path, form: str, unit: TimeUnit) -> None:
    numbers = [1_764_000_000 * PER_S[unit] + n for n in range(3)]
    path = tmp_path / f"events.{form}"
    if form == "jsonl":
        path.write_text("".join(encoder.dumps({"u": "a", "at": one}) + "\n" for one in numbers))
    elif form == "csv":
        path.write_text("u,at\n" + "".join(f"a,{one}\n" for one in numbers))
    elif form == "avro":
        fields = [{"name": "u", "type": "string"}, {"name": "at", "type": "long"}]
        with path.open("wb") as out:
            fastavro.writer(
                out, {"type": "record", "name": "E", "fields": fields}, [{"u": "a", "at": one} for one in numbers]
            )
    else:
        pq.write_table(pa.table({"u": ["a"] * 3, "at": numbers}), path)
    layout = Layout(form, "u", time="at", time_unit=unit)  # type: ignore[arg-type]
    found = [
        time for chunk in source.chunks(path, layout) for time in ([] if chunk is None else chunk.events.times.tolist())
    ]
    assert found == [exact(one, unit) for one in numbers]


def test_columns_of_floats_are_seconds_where_seconds_are_expected(tmp_path: Path) -> None:
    pq.write_table(pa.table({"u": ["a"] * 3, "at": [1_764_000_000.25, 1_764_000_001.0, None]}), tmp_path / "e.parquet")
    layout = Layout("parquet", "u", time="at", time_unit="s")
    (chunk,) = source.chunks(tmp_path / "e.parquet", layout)
    assert chunk.events.times.tolist() == [1_764_000_000_250, 1_764_000_001_000, NO_TIME]
    with pytest.raises((ConfigError, FormatError)):
        list(source.chunks(tmp_path / "e.parquet", Layout("parquet", "u", time="at")))
