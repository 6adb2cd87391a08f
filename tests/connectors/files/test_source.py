"""Files and standard input: one meaning for every format, positions that resume, clear errors."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import math
import os
import re
import subprocess
import sys
import textwrap
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from sketchstream.errors import ConfigError, DataLossError, FormatError, ItemError, StoreError
from sketchstream.items.arrays import Items
from sketchstream.stream.interfaces import Assigned, Chunk, Ended, PartitionError
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors import first_records
from sketchstream_connectors.files import blocks
from sketchstream_connectors.files import rows as file_rows
from sketchstream_connectors.files.layout import Layout
from sketchstream_connectors.files.source import FileSource, batches, chunks

ROWS: list[dict[str, Any]] = [
    {"u": "a", "n": 1, "t": 1_700_000_000_000},
    {"u": "b,\"'é", "n": 2, "t": 1_700_000_060_000},
    {"u": None, "n": 1, "t": 1_700_000_070_000},
    {"u": "a", "n": None, "t": 1_700_000_080_000},
    {"u": "c", "n": -3, "t": 1_700_000_090_000},
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        import csv

        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(["t", "u", "other", "n"])
        for row in rows:
            writer.writerow(
                [row["t"], "" if row["u"] is None else row["u"], "x,y", "" if row["n"] is None else row["n"]]
            )
        path.write_text(text.getvalue(), newline="")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: [row[name] for row in rows] for name in ("u", "n", "t")}
        table = pa.table({**columns, "t": pa.array(columns["t"], pa.timestamp("ms", tz="UTC"))})
        pq.write_table(table, path, row_group_size=2)
    return path


def texts(items: Items) -> list[bytes | int]:
    whole = items.whole()
    if whole.type_name == "int":
        return [int(value) for value in whole.arrays[0]]
    buffer, starts, ends = whole.arrays
    return [buffer[a:b].tobytes() for a, b in zip(starts, ends, strict=True)]


def read(path: Path | None, layout: Layout, position: int = 0) -> list[tuple[Any, ...]]:
    """(item, weight, time, valid, null) of each occurrence."""
    out = []
    for chunk in chunks(path, layout, position):
        assert chunk is not None
        found = chunk.events
        items = texts(found.items)
        for at, item in enumerate(items):
            record = at if found.record is None else int(found.record[at])
            valid = bool(found.valid[at])
            weight = 1 if found.weights is None else int(found.weights[at])
            out.append((item if valid else None, weight, int(found.times[record]), valid, bool(found.null[record])))
    return out


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_every_format_with_fields_reads_the_same(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"x.{suffix}", ROWS)
    found = read(path, Layout(suffix, "u", weight="n", time="t"))  # type: ignore[arg-type]
    assert found == [
        (b"a", 1, 1_700_000_000_000, True, False),
        ("b,\"'é".encode(), 2, 1_700_000_060_000, True, False),
        (None, 1, 1_700_000_070_000, False, True),
        (b"a", 1, 1_700_000_080_000, True, False),
        (b"c", -3, 1_700_000_090_000, True, False),
    ]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_ints_are_ints_in_every_format(tmp_path: Path, suffix: str) -> None:
    rows = [{"u": u, "n": 1, "t": 0} for u in (5, -7, 0)]
    path = write(tmp_path / f"x.{suffix}", rows)
    assert [row[0] for row in read(path, Layout(suffix, "u", "int"))] == [5, -7, 0]  # type: ignore[arg-type]
    assert [row[0] for row in read(path, Layout(suffix, "u", "text"))] == [b"5", b"-7", b"0"]  # type: ignore[arg-type]


LINES = {
    "an open quote": b'"a,1,2',
    "a quote that ends early": b'"a"b,1,2',
    "a line break inside quotes": b'"a\nb"',
    "too many cells": b"a,1,2,3",
    "too few cells": b"a,1",
    "Latin-1": b"caf\xe9,1,2",
    "a weight that is none": b"a,many,2",
    "a weight beyond 64 bits": b"a,9223372036854775808,2",
    "a nul": b'"a\0,1,2',
}


@pytest.mark.parametrize("payload", LINES.values(), ids=LINES)
def test_a_payload_of_csv_changes_no_other_row(tmp_path: Path, payload: bytes) -> None:
    """The line is the envelope: with a quote left open in one payload, thousands of others went with it."""
    before = b"".join(b'user%d,1,%d\n"q%d, ""x""",2,5\n' % (i, i, i) for i in range(200))
    path, layout = tmp_path / "x.csv", Layout("csv", "u", weight="n", time="t")
    path.write_bytes(b"u,n,t\n" + before + b"\n" * (1 + payload.count(b"\n")) + before)
    without = read(path, layout)
    path.write_bytes(b"u,n,t\n" + before + payload + b"\n" + before)
    found = read(path, layout)
    odd = slice(400, 401 + payload.count(b"\n"))
    assert len(found) == len(without) == 800 + odd.stop - odd.start
    assert found[: odd.start] + found[odd.stop :] == without[: odd.start] + without[odd.stop :]
    assert all(row[0] is None and not row[3] and not row[4] for row in found[odd]), "counted as of no use"
    assert all(row[4] for row in without[odd]), "an empty line is no event"
    assert found[1][:2] == (b'q0, "x"', 2)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_is_read_with_the_separator_of_its_header(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "x.csv"
    others = "".join(set(",;\t|") - {separator})
    rows = [["t", "user id", "n"], ["1", "a", "2"], ["2", f'"b{others}{separator}"', "1"], ["3", f"c{others}", "1"]]
    path.write_bytes(codecs.BOM_UTF8 + "".join(separator.join(row) + "\r\n" for row in rows).encode())
    layout = Layout("csv", "user id", weight="n", time="t")
    found = [row[:3] for row in read(path, layout)]
    assert found == [(b"a", 2, 1), (f"b{others}{separator}".encode(), 1, 2), (f"c{others}".encode(), 1, 3)]
    assert [row["n"] for row in first_records.of_file(path, "csv")] == [2, 1, 1]


def test_one_column_with_another_separator_in_its_name_is_one_column(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('"a;b"\nx;y\n')
    assert [row[0] for row in read(path, Layout("csv", "a;b"))] == [b"x;y"]
    path.write_text("a;b,c\nx;y,z\n")  # as many columns by commas
    assert [row[0] for row in read(path, Layout("csv", "a;b"))] == [b"x;y"]


def test_latin_1_counts_as_bytes_and_does_not_hurt_beside_the_item(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xef\xbb\xbfu,na\xefve\ncaf\xe9,1\ntea,\xff\n")
    assert [row[0] for row in read(path, Layout("csv", "u", "bytes"))] == [b"caf\xe9", b"tea"]
    assert [row[0] for row in read(path, Layout("csv", "u"))] == [None, b"tea"]


@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        ("uint64", [1, 1 << 63, (1 << 64) - 1, None, (1 << 63) - 1], [1, None, None, 1, (1 << 63) - 1]),
        ("float64", [2.0, 1.5, math.nan, math.inf, 2.0**63, None], [2, None, None, None, None, 1]),
        ("float64", [-(2.0**63)], [-(1 << 63)]),
        ("float16", [3.0, 0.5], [3, None]),
        ("decimal128(38, 1)", [Decimal("7.0"), Decimal("7.5"), Decimal(1 << 63), None], [7, None, None, 1]),
        ("int8", [-3, None], [-3, 1]),
    ],
)
def test_each_weight_of_a_parquet_file_is_judged_alone(
    tmp_path: Path, kind: str, values: list[Any], wanted: list[int | None]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "x.parquet"
    given = pa.decimal128(38, 1) if kind.startswith("decimal") else getattr(pa, kind)()
    if kind == "float16":
        values = [np.float16(one) for one in values]
    try:
        pq.write_table(pa.table({"u": ["a"] * len(values), "n": pa.array(values, given)}), path)
    except pa.ArrowNotImplementedError:
        assert kind == "float16", "older ones cannot write it, and so have no such files"
        return
    found = read(path, Layout("parquet", "u", weight="n"))
    assert [row[1] if row[3] else None for row in found] == wanted
    assert not any(row[4] for row in found)


def test_times_are_read_from_numbers_and_texts(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("u,t\na,2023-11-14T22:13:20Z\na,1700000000000\na,2023-11-14T23:13:20+01:00\na,soon\na,\n")
    times = [row[2] for row in read(path, Layout("csv", "u", time="t"))]
    assert times == [1_700_000_000_000] * 3 + [NO_TIME] * 2


def test_lines_and_packed_maps(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"a\r\nb\n\n\xc3\xa9\n\xff\nlast")
    assert [(row[0], row[3], row[4]) for row in read(path, Layout("lines"))] == [
        (b"a", True, False),
        (b"b", True, False),
        (None, False, True),
        ("é".encode(), True, False),
        (None, False, False),
        (b"last", True, False),
    ]
    path = tmp_path / "x.msgpack"
    packed = [([1, 2, 3], None, 1000), ([7], [-2], 2000), ([], None, 3000)]
    with path.open("wb") as file:
        for items, weights, at in packed:
            record = {"i": np.array(items, np.uint64).tobytes(), "t": at}
            if weights is not None:
                record["w"] = np.array(weights, np.int32).tobytes()
            file.write(msgpack.packb(record))
    assert [row[:3] for row in read(path, Layout("msgpack", item_type="int", time="t"))] == [
        (1, 1, 1000),
        (2, 1, 1000),
        (3, 1, 1000),
        (7, -2, 2000),
    ]


def test_views_and_dictionaries_of_parquet_are_texts(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names, times = pa.array(["a", None, "b"]), pa.array([1_700_000_000_000] * 3)
    found = []
    for kind in (pa.string(), pa.string_view(), pa.binary_view(), pa.dictionary(pa.int32(), pa.string())):
        column = names.dictionary_encode() if pa.types.is_dictionary(kind) else names.cast(kind)
        pq.write_table(pa.table({"u": column, "t": times}), tmp_path / "x.parquet")
        found.append(read(tmp_path / "x.parquet", Layout("parquet", "u", time="t")))
    assert found == found[:1] * 4
    assert [row[0] for row in found[0]] == [b"a", None, b"b"]


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, suffix: str) -> None:
    layout = Layout(suffix, "u", weight="n", time="t")  # type: ignore[arg-type]
    plain = write(tmp_path / f"x.{suffix}", ROWS)
    marked, packed = tmp_path / f"y.{suffix}", tmp_path / f"z.{suffix}.gz"
    marked.write_bytes(codecs.BOM_UTF8 + plain.read_bytes())
    packed.write_bytes(gzip.compress(marked.read_bytes()))
    assert read(marked, layout) == read(packed, layout) == read(plain, layout)


def test_of_lines_a_byte_order_mark_is_none(tmp_path: Path) -> None:
    for text, items in ((b"a\nb\n", [b"a", b"b"]), (b"\na\n", [None, b"a"]), (b"a", [b"a"]), (b"", [])):
        (tmp_path / "x.txt").write_bytes(codecs.BOM_UTF8 + text)
        found = [row[0] for row in read(tmp_path / "x.txt", Layout("lines"))]
        assert found == items or (not text and found == [None])


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "msgpack"])
def test_positions_resume_anywhere(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 64)
    monkeypatch.setattr(file_rows, "CHUNK_ROWS", 3)
    rows = [{"u": i, "n": 1, "t": 1000 * i} for i in range(40)]
    path = tmp_path / f"x.{suffix}"
    if suffix == "msgpack":
        path.write_bytes(b"".join(msgpack.packb({"i": np.uint64(r["u"]).tobytes(), "t": r["t"]}) for r in rows))
        layout = Layout("msgpack", item_type="int", time="t")
    else:
        write(path, rows)
        layout = Layout(suffix, "u", "int", time="t")  # type: ignore[arg-type]
    whole = read(path, layout)
    assert [row[0] for row in whole] == list(range(40))
    edges = [chunk.next_position for chunk in chunks(path, layout) if chunk is not None]
    assert len(edges) > 5
    for edge in edges:
        rest = read(path, layout, edge)
        assert rest == whole[40 - len(rest) :]
    ends = {len(read(path, layout, edge)) for edge in edges}
    assert len(ends) == len(edges)


def test_columns_in_columns_of_parquet_are_read_by_their_paths(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = write(tmp_path / "flat.parquet", ROWS)
    table = pq.read_table(flat)
    inner = pa.StructArray.from_arrays([table["u"].combine_chunks(), table["n"].combine_chunks()], ["u", "n"])
    absent = pa.array([{"inner": one} for one in inner.to_pylist()] + [None, {"inner": None}])
    whole = pa.table(
        {"a": absent, "t": pa.concat_arrays([table["t"].combine_chunks(), table["t"][:2].combine_chunks()])}
    )
    pq.write_table(whole, tmp_path / "nested.parquet", row_group_size=2)
    nested = Layout("parquet", "a.inner.u", weight="a.inner.n", time="t")
    for position in (0, 3):
        found = read(tmp_path / "nested.parquet", nested, position)
        assert found[:-2] == read(flat, Layout("parquet", "u", weight="n", time="t"), position)
        assert [one[4] for one in found[-2:]] == [True, True], "what lies in nothing is null"
    with pytest.raises(ConfigError, match=r"no column 'a.u' .* there are: a.inner.u, a.inner.n, t"):
        read(tmp_path / "nested.parquet", Layout("parquet", "a.u"))


def test_a_grown_file_is_read_on_and_a_shorter_one_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", ROWS[:2])
    layout = Layout("jsonl", "u")
    end = [chunk.next_position for chunk in chunks(path, layout) if chunk is not None][-1]
    with path.open("a") as file:
        file.write(json.dumps(ROWS[4]))
    assert [row[0] for row in read(path, layout, end)] == [b"c"]
    path.write_text("{}\n")
    for suffix, position in (("jsonl", end), ("csv", 4), ("parquet", 4)):
        small = path if suffix == "jsonl" else write(tmp_path / f"y.{suffix}", ROWS[:3])
        with pytest.raises(DataLossError, match="cut or replaced"):
            read(small, Layout(suffix, "u"), position)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "data", "layout", "error", "message"),
    [
        ("x.csv", b"", Layout("csv", "u"), FormatError, "is empty"),
        ("x.csv", b"a,b\n1,2\n", Layout("csv", "u"), ConfigError, "no column 'u'"),
        ("x.csv", b"u,u\n1,2\n", Layout("csv", "u"), ConfigError, "more than one column 'u' .* another name"),
        ("x.csv", b'u,"b\n1,2\n', Layout("csv", "u"), FormatError, "first line"),
        ("x.csv", "u,ü\n1,2\n".encode("latin-1"), Layout("csv", "ü"), FormatError, "iconv -f ISO-8859-1 -t UTF-8"),
        ("x.csv", "u,b\n1,2\n".encode("utf-16"), Layout("csv", "u"), FormatError, "iconv -f UTF-16 -t UTF-8"),
        ("x.csv", "u,b\n1,2\n".encode("utf-16-le"), Layout("csv", "u"), FormatError, "iconv -f UTF-16 -t UTF-8"),
        ("x.parquet", b"PAR1 nothing", Layout("parquet", "u"), FormatError, "as parquet"),
        ("x.msgpack", b"\xc1", Layout("msgpack"), FormatError, "msgpack"),
        ("x.msgpack", b"\x81\xa1i", Layout("msgpack"), FormatError, "ends inside"),
    ],
)
def test_files_of_another_format(
    tmp_path: Path, name: str, data: bytes, layout: Layout, error: type[Exception], message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(error, match=message) as caught:
        read(path, layout)
    assert "\n" not in str(caught.value)


def test_missing_files_and_impossible_layouts(tmp_path: Path) -> None:
    for suffix in ("jsonl", "csv", "parquet", "msgpack", "lines"):
        layout = Layout(suffix, None if suffix in ("msgpack", "lines") else "u")  # type: ignore[arg-type]
        with pytest.raises(StoreError, match="cannot read"):
            read(tmp_path / "none", layout)
    for args in (("xml", "u"), ("jsonl", None), ("lines", "u"), ("lines", None, "text", None, "t"), ("msgpack", "u")):
        with pytest.raises(ConfigError):
            Layout(*args)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="standard input"):
        read(None, Layout("parquet", "u"))


def test_endless_lines_are_not_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MAX_RECORD_BYTES", 1000)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 100)
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"u": 1}\n' + b"x" * 5000)
    with pytest.raises(FormatError, match="byte 9"):
        read(path, Layout("jsonl", "u"))


def test_batches_for_updates_name_the_place_of_a_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"u": "a"}\n\n{"u": null}\n{"u": {"secret": 1}}\n{"u": "b"}\n')
    with pytest.raises(ItemError, match=r"^line 4 of") as caught:
        list(batches(path, Layout("jsonl", "u")))
    assert "secret" not in str(caught.value)
    given, left_out = next(batches(path, Layout("jsonl", "u"), skip_invalid=True))
    items, weights = given.items, given.weights
    assert (texts(items), weights, left_out) == ([b"a", b"b"], None, 1)
    path = tmp_path / "x.csv"
    path.write_text("u,n\na,1\nb,many\n")
    with pytest.raises(ItemError, match=r"^row 2 of .*integer weight"):
        list(batches(path, Layout("csv", "u", weight="n")))
    (given, _), *_ = batches(path, Layout("csv", "u"))
    items, weights = given.items, given.weights
    assert texts(items) == [b"a", b"b"]


def test_a_file_as_a_source(tmp_path: Path) -> None:
    source = FileSource(write(tmp_path / "x.jsonl", ROWS), Layout("jsonl", "u", time="t"))
    assert source.poll(0) == [Assigned((0,))]
    assert source.poll(0) == [], "nothing before it is resumed"
    source.seek(0, 0)
    source.resume(0)
    (chunk,) = source.poll(0)
    assert isinstance(chunk, Chunk)
    assert (chunk.from_position, chunk.next_position) == (0, (tmp_path / "x.jsonl").stat().st_size)
    assert chunk.raw is not None
    assert json.loads(chunk.raw(1).value or b"") == ROWS[1]
    assert source.poll(0) == [Ended(0)]
    source.seek(0, int(chunk.offsets[3]))
    (again,) = source.poll(0)
    assert isinstance(again, Chunk)
    assert again.offsets.tolist() == chunk.offsets[3:].tolist()
    (tmp_path / "y.csv").write_text("a\n1\n")
    source = FileSource(tmp_path / "y.csv", Layout("csv", "u", time="t"))
    source.poll(0)
    source.resume(0)
    (error,) = source.poll(0)
    assert isinstance(error, PartitionError)
    assert isinstance(error.error, DataLossError)


STDIN = """
    import sys
    from sketchstream.stream.interfaces import Chunk, Ended
    from sketchstream_connectors.files.layout import Layout
    from sketchstream_connectors.files.source import FileSource
    source = FileSource(None, Layout("jsonl", "u", time="t"))
    source.poll(0)
    source.seek(0, 1000)
    source.resume(0)
    seen = 0
    while True:
        events = source.poll(0.05)
        if seen and not events:
            print("silence", flush=True)
        for event in events:
            if isinstance(event, Ended):
                print("end", seen, position)
                sys.exit()
            seen += event.offsets.size
            position = event.next_position
"""


def test_standard_input_goes_on_where_counting_stopped_and_does_not_block() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(STDIN)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write('{"u": 1, "t": 1}\n{"u": 2,')
    process.stdin.flush()
    assert process.stdout.readline() == "silence\n", "half a record is waited for without blocking"
    out, _ = process.communicate(' "t": 2}\n', timeout=60)
    assert out.splitlines()[-1] == "end 2 1034"


CRASH = """
    import os, signal, sys, warnings
    warnings.simplefilter("ignore")
    from pathlib import Path
    from sketchstream import faults
    from sketchstream.config.loader import Config
    from sketchstream_connectors.factory import file_worker
    from sketchstream_connectors.files import blocks

    blocks.BLOCK_BYTES = 2048
    base, text = Path(sys.argv[1]), Path(sys.argv[2]).read_text()

    def run(folder, at):
        seen = 0

        def hook(step):
            nonlocal seen
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)

        faults.install(hook)
        worker = file_worker(Config.parse(text, folder / "c.toml", {}))
        object.__setattr__(worker.settings, "publish_every_s", 0.0)
        object.__setattr__(worker.settings, "snapshot_every_s", 0.0)
        worker.run()
        return seen

    (base / "whole").mkdir()
    steps = run(base / "whole", -1)
    faults.install(None)
    done = 0
    for at in range(1, steps + 1, 7):
        folder = base / f"at{at}"
        folder.mkdir()
        child = os.fork()
        if child == 0:
            run(folder, at)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0 and done >= 15:  # threads interleave otherwise in each run: this one had fewer steps
            break
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (at, status)
        before = {path: path.read_bytes() for path in (folder / "sealed").rglob("*.sealed")}
        run(folder, -1)  # started again: it ends the file
        for path, body in before.items():
            assert path.read_bytes() == body, "what was published is never published otherwise"
        done += 1
    print(steps, done)
"""


@pytest.mark.statistics
@pytest.mark.filterwarnings("ignore:.*epsilon above 10")
def test_a_worker_killed_at_any_step_ends_with_the_exact_counts(tmp_path: Path) -> None:
    """Files: snapshots, seals and publications, killed at many steps and started again; one seal a window."""
    from helpers.streams import EPOCH, MINUTE, at_least, exact
    from helpers.workers import truth
    from sketchstream.published import Release
    from sketchstream.query.sealed import SealedReader
    from sketchstream_connectors.files.sealed import DirectorySealed

    rng = np.random.default_rng(3)
    records = [(int(rng.integers(0, 30)), EPOCH + i * 700 + int(rng.integers(0, 500))) for i in range(400)]
    events = tmp_path / "events.jsonl"
    events.write_text("".join(json.dumps({"u": item, "t": at}) + "\n" for item, at in records))
    (tmp_path / "text").write_text(
        f'''
        [input]
        file = "{events}"
        item = "u"
        item_type = "int"
        time = "t"
        lateness = "1m"
        quorum = 1
        quorum_time = "1ms"
        close_at_end = true
        [[sketch]]
        name = "minutes"
        unit = "event"
        window = "1m"
        epsilon = 30
        domain = {{ size = 30 }}
        '''
    )
    (tmp_path / "runs").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CRASH), str(tmp_path / "runs"), str(tmp_path / "text")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    steps, runs = map(int, done.stdout.split())
    assert steps > 100
    assert runs >= 15
    expected = {start: [at_least(c, k) for k in (1, 2, 3)] for start, c in truth(records, MINUTE).items()}
    for folder in sorted((tmp_path / "runs").iterdir()):
        windows = list(SealedReader(DirectorySealed(folder / "sealed")).windows("minutes"))
        found = {}
        for window in windows:
            assert window.complete
            (part,) = window.parts
            assert isinstance(part, Release)
            found[window.window[0]] = [exact(part, k) for k in (1, 2, 3)]
        assert found == expected, folder.name
        left = [path.name for path in (folder / "state" / "p00000").iterdir()]
        assert len([name for name in left if name.endswith(".snapshot")]) == 1
        assert not any(re.search(r"\.(part|blob)$", name) for name in left), "everything was sealed and published"
