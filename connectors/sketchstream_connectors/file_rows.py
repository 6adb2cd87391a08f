"""Rows of csv and parquet files: columns of texts or numbers as pieces of records.

In: a file, a layout, a row to begin with. Out: pieces. Touches: the file or standard input, reading.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.errors import ConfigError, FormatError, MissingExtraError, StoreError
from sketchstream.stream.windows import NO_TIME
from sketchstream_connectors import field_kernels, json_kernels
from sketchstream_connectors.fields import Decoded
from sketchstream_connectors.file_layout import Ints, Layout, Piece, require_length, unreadable
from sketchstream_connectors.records import Records

Bytes = npt.NDArray[np.uint8]

ROWS = 1 << 16


def csv_rows(path: Path | None, layout: Layout, position: int) -> Iterator[Piece]:
    """Rows of a CSV file with a header; empty cells are nulls."""
    import csv
    import io

    try:
        raw = sys.stdin.buffer if path is None else path.open("rb")
        with io.TextIOWrapper(raw, encoding="utf-8", newline="") as text:
            rows = csv.reader(text, strict=True)
            header = next(rows, None)
            if header is None:
                msg = f"{path or 'standard input'} is empty: a csv file begins with the names of its columns"
                raise FormatError(msg)
            wanted = _columns(layout, header)
            number = 0 if path is not None else position
            batch: list[list[str]] = []
            for row in rows:
                if not row:
                    continue
                if len(row) != len(header):
                    msg = f"line {rows.line_num} has {len(row)} cells, the header has {len(header)}"
                    raise FormatError(msg)
                number += 1
                if number > position or path is None:
                    batch.append(row)
                if len(batch) == ROWS:
                    yield _csv_piece(layout, wanted, batch, number)
                    batch = []
            if path is not None:
                require_length(path, number, position, "rows")
            if batch:
                yield _csv_piece(layout, wanted, batch, number)
    except UnicodeDecodeError:
        msg = f"{path or 'standard input'} is not UTF-8 text"
        raise FormatError(msg) from None
    except csv.Error as error:
        msg = f"{path or 'standard input'} is not csv: {error}"
        raise FormatError(msg) from None
    except OSError as error:
        if path is None or isinstance(error, StoreError):
            raise
        raise unreadable(path, error) from error


def _columns(layout: Layout, header: Sequence[str]) -> dict[str, int]:
    """Position of each column that is asked for."""
    out = {}
    for role, name in (("item", layout.item), ("weight", layout.weight), ("time", layout.time)):
        if name is None:
            continue
        if list(header).count(name) != 1:
            many = "more than one" if name in header else "no"
            # A file without a header would show its first row here: no names, only how many.
            msg = f"there is {many} column {name!r:.60} among the {len(header)} columns that the file names"
            raise ConfigError(msg)
        out[role] = list(header).index(name)
    return out


def _csv_piece(layout: Layout, wanted: Mapping[str, int], rows: list[list[str]], number: int) -> Piece:
    def spans(role: str) -> tuple[Bytes, Ints, Ints]:
        return _spans([row[wanted[role]].encode() or None for row in rows])

    weights = spans("weight") if "weight" in wanted else None
    times = spans("time") if "time" in wanted else None
    return _from_columns(layout, spans("item"), weights, times, number, sum(map(len, map("".join, rows))))


def _spans(cells: Sequence[bytes | None]) -> tuple[Bytes, Ints, Ints]:
    """Cells end to end: buffer, starts (-1 for None), ends."""
    sizes = np.fromiter((len(cell) if cell is not None else 0 for cell in cells), np.int64, len(cells))
    ends = np.cumsum(sizes)
    starts = ends - sizes
    starts[np.fromiter((cell is None for cell in cells), np.bool_, len(cells))] = -1
    return np.frombuffer(b"".join(cell for cell in cells if cell), np.uint8), starts, ends


def _from_columns(
    layout: Layout,
    item: tuple[Bytes, Ints, Ints],
    weight: tuple[Bytes, Ints, Ints] | Ints | None,
    time: tuple[Bytes, Ints, Ints] | Ints | None,
    number: int,
    n_bytes: int,
) -> Piece:
    """Rows number-n .. number-1 from columns of texts or numbers."""
    buffer, starts, ends = item
    n = starts.size
    offsets = np.arange(number - n, number, dtype=np.int64)
    none = np.full(n, -1, np.int64)
    found = layout.decoder.decode(Records(offsets, none, buffer, none, none, starts, ends, number))
    valid = found.valid.copy()
    weights: Ints | None = None
    if isinstance(weight, tuple):
        given = weight[1] >= 0
        readable = given.copy()
        weights = np.empty(n, np.int64)
        field_kernels.read_integers(weight[0], np.maximum(weight[1], 0), weight[2], readable, False, weights)
        weights[~given] = 1
        valid &= readable | ~given
    elif weight is not None:
        weights = weight
    times = np.full(n, NO_TIME, np.int64)
    if isinstance(time, tuple):
        kinds = np.where(time[1] < 0, json_kernels.NULL, json_kernels.STRING).astype(np.uint8)
        digits = np.empty(n, np.int64)
        whole = time[1] >= 0
        field_kernels.read_integers(time[0], np.maximum(time[1], 0), time[2], whole, False, digits)
        json_kernels.read_times(time[0], kinds, np.maximum(time[1], 0), time[2], times)
        times = np.where(whole, digits, times)
    elif time is not None:
        times = time
    return Piece(offsets, number, Decoded(None, found.items, weights, valid, times, found.null), n_bytes)


def parquet_rows(path: Path | None, layout: Layout, position: int) -> Iterator[Piece]:
    """Rows of a Parquet file."""
    if path is None:
        msg = "parquet cannot be read from standard input: its index is at the end; give a file"
        raise ConfigError(msg)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        msg = "parquet needs pyarrow: pip install 'sketchstream[arrow]'"
        raise MissingExtraError(msg) from None
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            wanted = [names[at] for at in _columns(layout, names).values()]
            require_length(path, file.metadata.num_rows, position, "rows")
            number = 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if number + rows <= position:
                    number += rows
                    continue
                for batch in file.iter_batches(batch_size=ROWS, row_groups=[group], columns=wanted):
                    number += batch.num_rows
                    skip = max(0, position - (number - batch.num_rows))
                    if skip < batch.num_rows:
                        yield _arrow_piece(layout, batch.slice(skip), number)
    except pa.ArrowException as error:
        msg = f"{path} cannot be read as parquet ({type(error).__name__})"
        raise FormatError(msg) from None
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise unreadable(path, error) from error


def _arrow_piece(layout: Layout, batch: Any, number: int) -> Piece:
    import pyarrow as pa

    item = batch.column(layout.item)
    weight = None if layout.weight is None else _arrow_ints(batch.column(layout.weight), layout.weight, 1)
    time: tuple[Bytes, Ints, Ints] | Ints | None = None
    if layout.time is not None:
        column = batch.column(layout.time)
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            utc = pa.timestamp("ms", tz=getattr(column.type, "tz", None))
            time = _arrow_ints(column.cast(utc, safe=False), layout.time, NO_TIME)
        elif pa.types.is_integer(column.type):
            time = _arrow_ints(column, layout.time, NO_TIME)
        else:
            time = _arrow_spans(column, layout.time)
    return _from_columns(layout, _arrow_spans(item, str(layout.item)), weight, time, number, int(batch.nbytes))


def _arrow_spans(column: Any, name: str) -> tuple[Bytes, Ints, Ints]:
    """A column of strings, bytes or integers as spans; nulls are -1."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_integer(kind):
        column = column.cast(pa.large_string())
    elif not (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        msg = f"column {name!r:.60} has type {kind}; text, bytes or integers were expected"
        raise ConfigError(msg)
    column = column.cast(pa.large_binary())
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    null = column.is_null().to_numpy(zero_copy_only=False)
    buffer = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return buffer, np.where(null, -1, bounds[:-1]), bounds[1:].copy()


def _arrow_ints(column: Any, name: str, null: int) -> Ints:
    """A column of integers as int64, nulls as `null`."""
    import pyarrow as pa

    try:
        numbers = column.cast(pa.int64())
    except pa.ArrowException:
        msg = f"column {name!r:.60} has type {column.type}; whole numbers of at most 64 bits were expected"
        raise ConfigError(msg) from None
    out: Ints = numbers.fill_null(null).to_numpy(zero_copy_only=False).astype(np.int64)
    return out
