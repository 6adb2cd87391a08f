"""Reads rows of csv and parquet files: columns of texts or numbers become chunks of records.

In: a file, a layout, the first row to read. Out: chunks. Touches: the file or standard input, for reading.
"""

from __future__ import annotations

import csv
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from sketchstream.array_types import Bytes, Flags, Ints
from sketchstream.errors import ConfigError, FormatError, did_you_mean, optional_import
from sketchstream.files import reading
from sketchstream.items.arrays import Items, whole_numbers, without_references
from sketchstream.items.columns import RecordColumn
from sketchstream.items.events import Events
from sketchstream.kernels.tokens import DECIMAL, INTEGER, NULL, OTHER, STRING
from sketchstream.stream.input.sampling import MAX_NAMES
from sketchstream.stream.interfaces import Chunk
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.decode.named_fields import read_weights
from sketchstream_connectors.decode.times import in_ms, text_times
from sketchstream_connectors.files import blocks
from sketchstream_connectors.files.layout import Layout, require_length

CHUNK_ROWS = 1 << 16
"""Rows of a chunk, as many as `containers.CHUNK_ROWS`."""


SEPARATORS: Final = ",;\t|"


class CsvHeader(NamedTuple):
    """The first line of a file.

    Args:
        separator: what stands between two cells.
        columns: number of columns.
        places: position of each column that is wanted, by its name.
    """

    separator: str
    columns: int
    places: Mapping[str, int]


def csv_rows(path: Path | None, layout: Layout, position: int, wait_s: float | None) -> Iterator[Chunk | None]:
    """Rows of a CSV file with a header; empty cells are nulls.

    A row is one line of the file, parsed by itself: what one of them holds, an open quote included, says nothing about
    another. A line that is not a row of the header's cells is an event that cannot be used; an empty one is none.
    """
    header: CsvHeader | None = None
    number = 0 if path is not None else position
    for part in blocks.parts(path, "csv", 0, wait_s):
        if part is None:
            yield None
            continue
        data, starts, ends = part
        if header is None:
            header = _read_header(path, layout, data[max(int(starts[0]), 0) : int(ends[0])])
            starts, ends = starts[1:], ends[1:]
        skip = max(0, position - number) if path is not None else 0
        number += starts.size
        if skip < starts.size:
            yield _csv_chunk(layout, header, data, starts[skip:], ends[skip:], number)
    if header is None:
        raise FormatError(f"{path or 'standard input'} is empty: a csv file begins with the names of its columns")
    if path is not None:
        require_length(path, number, position, "rows")


def separator_of(line: bytes) -> str:
    """What stands between the names of columns: whichever of `SEPARATORS` makes most of them, a comma where equal."""
    return max(SEPARATORS, key=lambda separator: len((quoted_cells(line, separator) or ())[1:]))


def require_utf8(path: Path | None, line: bytes) -> None:
    """Refuse a file whose first line is not UTF-8.

    Raises:
        FormatError: it is UTF-16 or has an encoding of one byte a letter.
    """
    try:
        wrong = "\0" in line.decode()
    except UnicodeDecodeError:
        wrong = True
    if wrong:
        encoding = "UTF-16" if b"\0" in line else "ISO-8859-1"
        raise FormatError(
            f"{path or 'standard input'} is not UTF-8, which is expected: where it is {encoding}, "
            f"`iconv -f {encoding} -t UTF-8` makes it so"
        )


def _read_header(path: Path | None, layout: Layout, first_line: bytes) -> CsvHeader:
    """Read the names of the columns; those that are not UTF-8 do not hurt if they are not asked for."""
    line = first_line
    if b"\0" in line:
        require_utf8(path, line)
    separator = separator_of(line)
    cells = quoted_cells(line, separator)
    if cells is None:
        raise FormatError(
            f"the first line of {path or 'standard input'} is not a line of csv, as the names of its columns would be"
        )
    try:
        places = _columns(layout, [cell.decode("utf-8", "replace") for cell in cells])
    except ConfigError:
        require_utf8(path, line)  # names cannot be found in a line that is not UTF-8
        raise
    return CsvHeader(separator, len(cells), places)


def _columns(layout: Layout, header: Sequence[str]) -> dict[str, int]:
    """Position of each requested column, by its name."""
    places: dict[str, int] = {}
    for name in (layout.item, layout.weight, layout.time, *layout.columns):
        if name is None or name in places:
            continue
        if list(header).count(name) != 1:
            column = f"column {name!r:.60} among the {len(header)} columns of the file"
            if name in header:
                msg = f"there is more than one {column}: give the others another name"
            elif layout.format == "csv":  # one without a header would show its first row here: give no name
                msg = f"there is no {column}: its first line must name them; add a line of names if it begins with data"
            else:
                msg = f"there is no {column}; there are: {', '.join(header[:MAX_NAMES])}{did_you_mean(name, header)}"
            raise ConfigError(msg)
        places[name] = list(header).index(name)
    return places


def _csv_chunk(layout: Layout, header: CsvHeader, data: bytes, starts: Ints, ends: Ints, number: int) -> Chunk:
    """Lines number-n .. number-1 of a file."""
    cells, broken = _table(header, data, starts, ends)
    n = starts.size
    valid, weights, weight = ~broken, None, None
    if layout.weight is not None:
        weights, weight = read_weights(cells[layout.weight], valid, decimals=layout.decimals)
    times = np.full(n, NO_TIME, np.int64)
    if layout.time is not None:
        times = text_times(cells[layout.time], layout.time_unit)
    items = cells[layout.item] if layout.item is not None else None
    further = {name: cells[name] for name in layout.columns}
    return _chunk(layout, items, broken, valid, times, (weights, weight), further, number, len(data))


def _table(header: CsvHeader, data: bytes, starts: Ints, ends: Ints) -> tuple[dict[str, RecordColumn], Flags]:
    """The wanted cells of each line, and a mask of invalid lines."""
    separator, columns, places = header
    buffer = np.frombuffer(data, np.uint8)
    marks = np.append(np.flatnonzero(buffer == ord(separator)), len(data))
    quotes = np.flatnonzero(buffer == ord('"'))
    present = starts >= 0
    begin = np.where(present, starts, ends)
    first, last = np.searchsorted(marks, begin), np.searchsorted(marks, ends)
    quoted = np.searchsorted(quotes, ends) > np.searchsorted(quotes, begin)
    broken = present & ~quoted & (last - first != columns - 1)
    plain = present & ~quoted & ~broken
    spans = {}
    for name, at in places.items():
        left = begin if at == 0 else marks[np.minimum(first + at - 1, marks.size - 1)] + 1
        right = ends if at == columns - 1 else marks[np.minimum(first + at, marks.size - 1)]
        spans[name] = np.where(plain & (right > left), left, -1), np.where(plain, right, 0)
    side = bytearray()
    for i in np.flatnonzero(quoted).tolist():
        cells = quoted_cells(data[starts[i] : ends[i]], separator)
        if cells is None or len(cells) != columns:
            broken[i] = True
            continue
        for name, at in places.items():
            left, right = spans[name]
            left[i] = len(data) + len(side) if cells[at] else -1
            side += cells[at]
            right[i] = len(data) + len(side)
    whole = np.frombuffer(data + bytes(side), np.uint8) if side else buffer
    return {name: _texts(whole, left, right) for name, (left, right) in spans.items()}, broken


def _texts(buffer: Bytes, starts: Ints, ends: Ints) -> RecordColumn:
    """Cells of bytes; start < 0: there is none."""
    return RecordColumn(np.where(starts < 0, NULL, STRING).astype(np.uint8), buffer, starts, ends, raw=True)


def quoted_cells(line: bytes, separator: str = ",") -> list[bytes] | None:
    """Cells of one line of csv, bytes as they are; None if it is not one."""
    try:
        rows = list(csv.reader([line.decode("latin-1")], strict=True, delimiter=separator))
    except csv.Error:
        return None
    return [cell.encode("latin-1") for cell in rows[0]] if len(rows) == 1 else None


def _chunk(
    layout: Layout,
    cells: RecordColumn | None,
    broken: Flags,
    valid: Flags,
    times: Ints,
    weights: tuple[Ints | None, RecordColumn | None],
    columns: Mapping[str, RecordColumn],
    number: int,
    n_bytes: int,
) -> Chunk:
    """Rows number-n .. number-1.

    Args:
        layout: layout of the file.
        cells: cells of the items; None if there are none, and every row is an event.
        broken: (n,) rows that have no cells.
        valid: (n,) rows whose weights can be used, and which are not broken.
        times: (n,) event times.
        weights: see `Events`: numbers, and as they were found.
        columns: further ones.
        number: position behind the rows.
        n_bytes: number of bytes that were read for them.
    """
    n = valid.size
    offsets = np.arange(number - n, number, dtype=np.int64)
    if cells is None:
        items, null = Items.of(np.zeros(n, np.int64)), np.zeros(n, np.bool_)
    else:
        items, readable = cells.items(layout.item_type)
        valid &= readable
        null = cells.absent & ~broken
    events = Events(None, items, weights[0], valid, times, null, weights[1], columns)
    return Chunk(0, number - n, number, offsets, None, events, n_bytes=n_bytes)


def parquet_rows(path: Path | None, layout: Layout, position: int) -> Iterator[Chunk]:
    """Rows of a Parquet file, or of all files of a folder in the order of their names."""
    if path is None:
        raise ConfigError("parquet cannot be read from standard input: its index is at the end; give a file")
    with optional_import("parquet needs pyarrow: pip install 'sketchstream[arrow]'"):
        import pyarrow.parquet as pq
    del pq
    number = 0
    for file in files_of(path, ".parquet"):
        number = yield from _parquet_file(file, layout, position, number)
    require_length(path, number, position, "rows")


def files_of(path: Path, ending: str) -> list[Path]:
    """The file itself; of a folder, its files and those of its folders that have this ending, by their names.

    Names that begin with a dot or an underscore are what engines leave next to data. New files are read by a later
    start if their names sort behind those that were there.

    Raises:
        FormatError: a folder without any.
    """
    if not path.is_dir():
        return [path]
    paths = [
        file
        for file in path.rglob(f"*{ending}")
        if file.is_file() and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    ]
    if not paths:
        raise FormatError(f"the folder {path} has no file that ends in {ending}")
    return sorted(paths, key=lambda file: file.relative_to(path).parts)


def _parquet_file(path: Path, layout: Layout, position: int, number: int) -> Generator[Chunk, None, int]:
    """Rows of one file whose first row has the number `number`; returns the number behind its last row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with reading(path), pq.ParquetFile(path) as file:
            nested = any(map(pa.types.is_struct, file.schema_arrow.types))
            columns = list(_columns(layout, _flat(file.schema_arrow.empty_table()).column_names))
            for group in range(file.num_row_groups):
                length = file.metadata.row_group(group).num_rows
                if number + length <= position:
                    number += length
                    continue
                for batch in file.iter_batches(batch_size=CHUNK_ROWS, row_groups=[group], columns=columns):
                    number += batch.num_rows
                    skip = max(0, position - (number - batch.num_rows))
                    if skip < batch.num_rows:
                        rows = batch.slice(skip)
                        if nested:
                            (rows,) = _flat(pa.Table.from_batches([rows])).combine_chunks().to_batches()
                        yield arrow_chunk(layout, rows, number)
    except pa.ArrowException as error:
        raise FormatError(f"{path} cannot be read as parquet ({type(error).__name__})") from None
    return number


def _flat(table: Any) -> Any:
    """A table without columns in columns: b in a is called a.b."""
    import pyarrow as pa

    while any(map(pa.types.is_struct, table.schema.types)):
        table = table.flatten()
    return table


def arrow_chunk(layout: Layout, batch: Any, number: int) -> Chunk:
    """Rows number-n .. number-1 as a record batch holds them.

    Raises:
        ConfigError: a column of a type that its role cannot have.
    """
    import pyarrow as pa

    n = batch.num_rows
    valid, weights, weight = np.ones(n, np.bool_), None, None
    if layout.weight is not None:
        weight_column = batch.column(layout.weight)
        if layout.decimals and (pa.types.is_floating(weight_column.type) or pa.types.is_decimal(weight_column.type)):
            weights, weight = read_weights(_arrow_column(weight_column, layout.weight), valid, decimals=True)
        else:
            weights, valid = _arrow_ints(weight_column, layout.weight, 1)
    times = np.full(n, NO_TIME, np.int64)
    if layout.time is not None:
        column = batch.column(layout.time)
        if pa.types.is_timestamp(column.type) and column.type.tz is None:
            raise ConfigError(no_instant(layout.time))
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            utc = pa.timestamp("ms", tz=getattr(column.type, "tz", None))
            times = _arrow_times(column.cast(utc, safe=False), layout.time)
        elif pa.types.is_integer(column.type):
            times = in_ms(_arrow_times(column, layout.time), layout.time_unit)
        else:
            seconds = layout.time_unit == "s" and pa.types.is_floating(column.type)
            column = column.cast(pa.large_string()) if seconds else column
            times = text_times(_arrow_texts(column, layout.time), layout.time_unit)
    items = _arrow_texts(batch.column(layout.item), layout.item) if layout.item is not None else None
    further = {name: _arrow_column(batch.column(name), name) for name in layout.columns}
    none = np.zeros(n, np.bool_)
    return _chunk(layout, items, none, valid, times, (weights, weight), further, number, int(batch.nbytes))


def no_instant(name: str) -> str:
    """What is wrong with a column of timestamps without a time zone."""
    return (
        f"column {name!r:.60} has timestamps without a time zone, which say no instant: write it again with one (in "
        "pandas: .dt.tz_localize('UTC'), in DuckDB: timezone('UTC', column)), or as integer milliseconds since 1970"
    )


def _arrow_column(column: Any, name: str) -> RecordColumn:
    """A column of texts, bytes or numbers, unchanged; floats that are not finite are OTHER."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_floating(kind):
        null = column.is_null().to_numpy(zero_copy_only=False)
        floats = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        kinds = np.where(null, NULL, np.where(np.isfinite(floats), DECIMAL, OTHER)).astype(np.uint8)
        nowhere = np.zeros(len(column), np.int64)
        return RecordColumn(kinds, np.zeros(0, np.uint8), nowhere, nowhere, floats=floats)
    texts = _arrow_texts(column.cast(pa.large_string()) if pa.types.is_decimal(kind) else column, name)
    stored = INTEGER if pa.types.is_integer(kind) else DECIMAL if pa.types.is_decimal(kind) else STRING
    return replace(texts, kinds=np.where(texts.kinds == NULL, NULL, stored).astype(np.uint8), raw=stored == STRING)


def _arrow_times(column: Any, name: str) -> Ints:
    """A column of times, `NO_TIME` where there is none that can be used."""
    times, readable = _arrow_ints(column, name, NO_TIME)
    return np.where(readable, times, NO_TIME)


def _arrow_texts(column: Any, name: str) -> RecordColumn:
    """A column of strings, bytes or integers as texts."""
    import pyarrow as pa

    column = without_references(column)
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
        whole = "; pandas makes floats of integers with gaps: .astype('Int64')" if pa.types.is_floating(kind) else ""
        raise ConfigError(f"column {name!r:.60} has type {kind}; text, bytes or integers were expected{whole}")
    column = column.cast(pa.large_binary())
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    null = column.is_null().to_numpy(zero_copy_only=False)
    buffer = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return _texts(buffer, np.where(null, -1, bounds[:-1]), bounds[1:].copy())


def _arrow_ints(column: Any, name: str, null: int) -> tuple[Ints, Flags]:
    """A column of numbers as int64, nulls as `null`; and which can be used: integers that are not too large.

    Raises:
        ConfigError: a column of another type than numbers.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_signed_integer(kind) and not column.null_count:  # most columns: nothing can be wrong with these
        return column.to_numpy(zero_copy_only=False).astype(np.int64), np.ones(len(column), np.bool_)
    present = ~column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        wide = pa.float64() if pa.types.is_floating(kind) else pa.uint64() if kind == pa.uint64() else pa.int64()
        values, readable = whole_numbers(column.cast(wide).fill_null(0).to_numpy(zero_copy_only=False))
    elif pa.types.is_decimal(kind):
        exact = [0 if value is None else value for value in column.to_pylist()]
        readable = np.array([value == int(value) and -(1 << 63) <= value < 1 << 63 for value in exact], np.bool_)
        values = np.array([int(value) if good else 0 for value, good in zip(exact, readable, strict=True)], np.int64)
    else:
        raise ConfigError(f"column {name!r:.60} has type {kind}; whole numbers of at most 64 bits were expected")
    return np.where(present, values, null), readable | ~present
