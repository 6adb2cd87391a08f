"""Avro container files that fastavro wrote: every codec and schema, resumed at any row, whole or damaged.

In: files of fastavro. Out: nothing. Touches: temporary folders.
"""

from __future__ import annotations

import bz2
import datetime
import json
import logging
import lzma
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import avro.schema
import cramjam
import fastavro
import numpy as np
import pytest
import zstandard
from avro.datafile import DataFileWriter
from avro.io import DatumWriter

from helpers.avro_reference import Bad, Schemas, Strict
from helpers.binary_payloads import items_of, laid_out
from sketchstream.errors import ConfigError, DataLossError, FormatError, ItemError, StoreError
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.decode.avro.blocks import BlockSplitter
from sketchstream_connectors.decode.avro.schema import parse
from sketchstream_connectors.decode.varints import write_zigzag
from sketchstream_connectors.files import codecs, containers
from sketchstream_connectors.files.layout import Layout
from sketchstream_connectors.files.source import batches, chunks, end_of

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "user", "type": {"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}]}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "n", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
LAYOUT = Layout("avro", item="user.id", item_type="int", weight="n", time="at")
CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")


def rows(first: int, n: int) -> list[dict[str, Any]]:
    return [
        {
            "user": {"id": i},
            "note": None if i % 3 else "ä" * (i % 7),
            "tags": ["x"] * (i % 4),
            "n": i % 5 - 2,
            "at": 1_000_000 * i + 999,
        }
        for i in range(first, first + n)
    ]


def write(path: Path, first: int, n: int, codec: str = "null", interval: int = 200, schema: Any = SCHEMA) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if codec == "zstandard":  # which fastavro has not without a package of its own
        return write_by_apache(path, rows(first, n), codec)
    with path.open("wb") as file:
        values = rows(first, n) if schema is SCHEMA else [{"user": i} for i in range(first, first + n)]
        fastavro.writer(file, fastavro.parse_schema(schema), values, codec=codec, sync_interval=interval)
    return path


def write_by_apache(path: Path, values: list[dict[str, Any]], codec: str, schema: Any = SCHEMA) -> Path:
    with DataFileWriter(path.open("wb"), DatumWriter(), avro.schema.parse(json.dumps(schema)), codec) as writer:
        for place, value in enumerate(values):
            writer.append(value | {"at": datetime.datetime.fromtimestamp(value["at"] / 1e6, datetime.UTC)})
            if place % 7 == 6:
                writer.sync()
    return path


def found(path: Path, position: int = 0, layout: Layout = LAYOUT) -> list[tuple[int, int, int] | None]:
    """(item, weight, time) of each record, None where it is of no use; positions are checked."""
    out: list[tuple[int, int, int] | None] = []
    for chunk in chunks(path, layout, position):
        assert chunk is not None
        decoded = chunk.events
        assert chunk.offsets.tolist() == list(range(position + len(out), chunk.next_position))
        assert decoded.weights is not None
        values = zip(items_of(decoded.items), decoded.weights.tolist(), decoded.times.tolist(), strict=True)
        out += [value if good else None for value, good in zip(values, decoded.valid.tolist(), strict=True)]
        assert not decoded.null.any()
    return out


def wanted(first: int, n: int) -> list[tuple[int, int, int] | None]:
    return [(i, i % 5 - 2, 1000 * i) for i in range(first, first + n)]


@pytest.mark.parametrize("codec", CODECS)
def test_files_of_every_codec_are_read_and_resumed_at_any_row(
    tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "e.avro", 0, 200, codec)
    assert found(path) == wanted(0, 200)
    monkeypatch.setattr(containers, "GATHERED", 100)
    monkeypatch.setattr(containers, "CHUNK_RECORDS", 3)
    for position in (0, 1, 9, 10, 11, 57, 199, 200):
        assert found(path, position) == wanted(position, 200 - position)
    assert end_of(path, LAYOUT) == 200
    with pytest.raises(DataLossError, match="200 rows"):
        found(path, 201)


def test_a_folder_of_files_with_different_schemas_is_one_input(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    write(folder / "day=2" / "b.avro", 40, 30, "deflate")
    write(folder / "day=1" / "a.avro", 0, 40)
    write(folder / "_temporary" / "a.avro", 900, 5)
    other = {
        "type": "record",
        "name": "E",
        "fields": [*reversed(SCHEMA["fields"]), {"name": "more", "type": "double", "default": 0.0}],
    }
    with (folder / "day=3.avro").open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(other), rows(70, 10))
    for position in (0, 39, 40, 41, 69, 70, 79, 80):
        assert found(folder, position) == wanted(position, 80 - position)
    write(folder / "day=4.avro", 80, 4)
    assert found(folder, 80) == wanted(80, 4)


def test_a_file_without_the_fields_is_refused_and_says_which_it_has(tmp_path: Path) -> None:
    path = write(tmp_path / "e.avro", 0, 3)
    with pytest.raises(ConfigError, match=r"no field 'userid'.*user\.id"):
        found(path, layout=Layout("avro", item="userid"))
    with pytest.raises(ConfigError, match="standard input"):
        list(chunks(None, LAYOUT))
    with pytest.raises(StoreError, match="cannot read"):
        found(tmp_path / "none.avro")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match=r"no file that ends in \.avro"):
        found(tmp_path / "empty")


def test_a_recursive_schema_is_read_by_the_tree(tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "user", "type": "int"}, {"name": "n", "type": ["null", "Node"], "default": None}],
    }
    path = write(tmp_path / "e.avro", 0, 50, "deflate", 30, schema)
    (chunk,) = chunks(path, Layout("avro", item="user", item_type="int"))
    assert chunk is not None
    assert items_of(chunk.events.items) == list(range(50))
    assert set(chunk.events.times.tolist()) == {NO_TIME}


# ------------------------------------------------------------------------------------------------------ damage


def container(blocks: list[tuple[int, bytes]], schema: Any = SCHEMA, codec: str = "null") -> bytes:
    """A file by hand: (number of records, bytes) of each block."""
    marker = bytes(range(16))

    def held(data: bytes) -> bytes:
        return write_zigzag(len(data)) + data

    pairs = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": codec.encode(), b"mine": b""}
    meta = b"".join(held(name) + held(value) for name, value in pairs.items())
    head = b"Obj\x01" + write_zigzag(-len(pairs)) + write_zigzag(len(meta)) + meta + b"\0" + marker
    return head + b"".join(write_zigzag(count) + held(data) + marker for count, data in blocks)


SMALL = {
    "type": "record",
    "name": "E",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "n", "type": "int"},
    ],
}
ONE = b"\x02a\x02"
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": lambda data: zlib.compress(data, wbits=-15),
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)) + zlib.crc32(data).to_bytes(4, "big"),
    "zstandard": lambda data: zstandard.ZstdCompressor().compress(data),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
TEXT = Layout("avro", item="user", weight="n")


@pytest.mark.parametrize(
    ("block", "codec"),
    [
        ((2, ONE + b"\x7f"), "null"),
        ((2, ONE + ONE[:-1]), "null"),
        ((2, ONE + ONE + b"\0"), "null"),
        ((2, ONE), "null"),
        ((2, ONE * 3), "null"),
        ((2, b""), "null"),
        ((2, zlib.compress(ONE * 2)), "deflate"),
        ((2, zlib.compress(ONE * 2, wbits=-15)[:-1]), "deflate"),
        ((2, zlib.compress(ONE * 2, wbits=-15) + b"1234"), "deflate"),
        ((2, b"\xff" * 9), "snappy"),
        ((2, b""), "snappy"),
        ((2, b"\xff" * 9), "zstandard"),
        ((2, b"\xff" * 9), "bzip2"),
        ((2, b"\xff" * 9), "xz"),
    ],
)
def test_a_damaged_block_is_counted_as_a_whole_and_its_neighbours_are_not_touched(
    tmp_path: Path, block: tuple[int, bytes], codec: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = (3, PACKED[codec](ONE * 3))
    path = tmp_path / "e.avro"
    path.write_bytes(container([good, block, good], SMALL, codec))
    one = (b"a", 1, NO_TIME)
    with caplog.at_level(logging.WARNING):
        assert found(path, layout=TEXT) == [one] * 3 + [None] * 2 + [one] * 3
    (said,) = [record.message for record in caplog.records if "block_damaged" in record.message]
    assert "records=2" in said
    with pytest.raises(ItemError, match="row 4 of"):
        list(batches(path, TEXT))
    assert sum(len(given.items) for given, _ in batches(path, TEXT, skip_invalid=True)) == 6


def test_a_checksum_of_snappy_is_judged(tmp_path: Path) -> None:
    path = write(tmp_path / "e.avro", 0, 6, "snappy", 10_000)
    data = bytearray(path.read_bytes())
    data[-17] ^= 1
    path.write_bytes(data)
    assert found(path) == [None] * 6


def test_text_that_is_not_utf_8_spoils_its_own_record_only(tmp_path: Path) -> None:
    path = tmp_path / "e.avro"
    path.write_bytes(container([(3, ONE + b"\x02\xff\x02" + ONE)], SMALL))
    assert [one is None for one in found(path, layout=TEXT)] == [False, True, False]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PAR1", "not an Avro container"),
        (b"", "not an Avro container"),
        (container([(1, ONE)], SMALL)[:20], "not whole"),
        (container([(1, ONE)], SMALL)[:-1], "not whole"),
        (container([(1, ONE)], SMALL) + b"\x02", "not whole"),
        (container([(1, ONE)], SMALL)[:-1] + b"x", "does not end with the marker"),
        (container([(1, ONE)], SMALL) + b"\x01\0" + bytes(range(16)), "no valid number"),
        (container([(1 << 40, ONE)], SMALL), "no valid number"),
        (container([(1, ONE)], SMALL) + b"\xff" * 10, "no number"),
        (container([(1, ONE)], {"type": "nothing"}), "no Avro schema"),
        (container([(1, ONE)], SMALL, "lzo"), "'lzo', which is not one of null, deflate"),
        (container([(1, b"")], {"type": "record", "name": "E", "fields": [{"name": "user", "type": "null"}]}), "bytes"),
        (b"Obj\x01" + write_zigzag(1) + write_zigzag(1 << 40), "length"),
    ],
)
def test_damage_around_blocks_is_an_error_that_shows_no_payload(tmp_path: Path, data: bytes, text: str) -> None:
    path = tmp_path / "e.avro"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=text) as raised:
        found(path, layout=TEXT)
    assert "\n" not in str(raised.value)


def test_what_lies_before_a_damaged_marker_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "e.avro"
    path.write_bytes(container([(1, ONE), (1, ONE)], SMALL)[:-1] + b"x")
    read = chunks(path, TEXT)
    chunk = next(read)
    assert chunk is not None
    assert chunk.next_position == 1
    with pytest.raises(FormatError, match="marker"):
        next(read)


def test_decompression_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_BYTES", 10_000)
    for codec in CODECS[1:]:
        big = tmp_path / f"{codec}.avro"
        body = PACKED[codec](write_zigzag(20_000) + b"a" * 20_000 + b"\x02")
        big.write_bytes(container([(1, body)], SMALL, codec))
        assert big.stat().st_size < 5_000
        assert found(big, layout=TEXT) == [None], codec


def test_a_codec_whose_package_is_missing_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchstream.errors import MissingExtraError

    monkeypatch.setitem(codecs._CODECS, "snappy", (codecs._snappy, "no_such_package"))
    with pytest.raises(MissingExtraError, match="pip install no_such_package"):
        codecs.codec("snappy", "e.avro")


def test_bounds_of_random_values_are_those_of_the_strict_reader() -> None:
    """Values that are damaged end a block's values, and nothing else; the last ones end where memory does."""
    whole_blocks = damaged = 0
    for seed in range(700, 730):
        made = Schemas(seed)
        rng = random.Random(seed)
        fields = [{"name": "f", "type": made.schema()}, {"name": "g", "type": "int"}]
        schema = {"type": "record", "name": "Top", "fields": fields}
        blocks = []
        for _ in range(20):
            values = [made.value(schema) for _ in range(rng.randrange(1, 6))]
            if rng.random() < 0.5:
                at = rng.randrange(len(values))
                values[at] = made.damaged(values[at])
            blocks.append((len(values), b"".join(values)))
        buffer, starts, ends = laid_out([body for _, body in blocks], guarded=True)
        edges = [*starts.tolist(), int(ends[-1])]
        counts = [count for count, _ in blocks]
        splitter = BlockSplitter(parse(json.dumps(schema)))
        first, last, whole = splitter.split(buffer, np.array(edges), np.array(counts))
        place = 0
        for (count, body), edge, good in zip(blocks, edges, whole.tolist(), strict=False):
            bounds = []
            reader = Strict(body)
            try:
                for _ in range(count):
                    bounds.append(reader.at)
                    reader.read(schema)
                fits = reader.at == len(body)
            except Bad:
                fits = False
            assert good == fits
            whole_blocks += good
            damaged += not good
            said = first[place : place + count] - (edge if good else 0)
            assert said.tolist() == (bounds if good else [0] * count)
            behind = last[place : place + count] - (edge if good else 0)
            assert behind.tolist() == ([*bounds[1:], len(body)] if good else [0] * count)
            place += count
    assert whole_blocks > 200 < 600 - damaged
    assert damaged > 100
