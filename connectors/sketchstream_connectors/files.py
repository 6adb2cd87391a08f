"""Files and standard input: as a source of the worker, and as batches of items for `sketchstream update`.

In: jsonl, lines, csv, parquet, or concatenated msgpack maps (see `fields`). Out: chunks of decoded records; batches of
items. Touches: the file or standard input, reading.

A file is one partition. Positions are byte offsets (jsonl, lines, msgpack) or row numbers (csv, parquet), so a worker
that restarts goes on where its last snapshot stopped; a file that has grown since is read on. Standard input cannot be
read again: there a restart goes on with whatever comes next, and records between the last snapshot and a crash are
lost; use a file, or Kafka, where that matters.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sketchstream.errors import ConfigError, DataLossError, FormatError, ItemError, MissingExtraError, StoreError
from sketchstream.items import Items
from sketchstream.stream.ports import Assigned, Chunk, Decoded, Ended, PartitionError, RawRecord, SourceEvent
from sketchstream_connectors import field_kernels, json_kernels
from sketchstream_connectors import fields as fields_of
from sketchstream_connectors.fields import Decoder, ItemType
from sketchstream_connectors.records import Records

FileFormat = Literal["jsonl", "lines", "csv", "parquet", "msgpack"]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

BLOCK_BYTES = 4 << 20
LONGEST_BYTES = 64 << 20
"""A line or a map beyond this is not one: the file has another format."""
ROWS = 1 << 16


@dataclass(frozen=True)
class Layout:
    """How a file is read.

    Args:
        format: of the file.
        item: field (jsonl, dotted) or column (csv, parquet) of the item.
        item_type: "text", "int" or "bytes".
        weight: field or column of an integer weight.
        time: field or column of the event time; None: not read.

    Raises:
        ConfigError: fields that the format does not have, or one that it needs is missing.
    """

    format: FileFormat
    item: str | None = None
    item_type: ItemType = "text"
    weight: str | None = None
    time: str | None = None

    def __post_init__(self) -> None:
        if self.format not in ("jsonl", "lines", "csv", "parquet", "msgpack"):
            msg = f"format must be lines, jsonl, csv, parquet or msgpack, found {self.format!r:.40}"
            raise ConfigError(msg)
        named = self.format in ("jsonl", "csv", "parquet")
        if named and not self.item:
            msg = f"format {self.format} needs the name of the item's field, for example --item user_id"
            raise ConfigError(msg)
        if not named and (self.item or self.weight):
            msg = f"format {self.format} has no named fields: leave item and weight out"
            raise ConfigError(msg)
        if self.format == "lines" and self.time:
            msg = "a file of lines has no event times"
            raise ConfigError(msg)

    @property
    def decoder(self) -> Decoder:
        """Of the records' values."""
        if self.format == "jsonl":
            return Decoder("json", self.item, self.item_type, self.weight, self.time or fields_of.RECORD_TIME)
        if self.format == "msgpack":
            return Decoder("packed", None, self.item_type, None, "t" if self.time else fields_of.RECORD_TIME)
        return Decoder("value", None, self.item_type)


@dataclass(frozen=True, eq=False)
class _Values:
    """Decoded columns; see `Decoded`."""

    record: Ints | None
    items: Items
    weights: Ints | None
    valid: npt.NDArray[np.bool_]
    times: Ints
    null: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive records of a file.

    Args:
        offsets: (n,) position of each record.
        next_position: behind the last one.
        decoded: their contents.
        n_bytes: that were read for them.
        raw: record i as it stands in the file, where that is bytes.
    """

    offsets: Ints
    next_position: int
    decoded: Decoded
    n_bytes: int
    raw: Callable[[int], RawRecord] | None = None


def pieces(path: Path | None, layout: Layout, position: int = 0, wait_s: float | None = None) -> Iterator[Piece | None]:
    """The records of a file from a position on.

    Args:
        path: of the file; None: standard input, of which `position` is where counting goes on.
        layout: how it is read.
        position: byte offset, or row for csv and parquet.
        wait_s: standard input: yield None when nothing came for so long; None: wait.

    Raises:
        StoreError: the file cannot be read.
        FormatError: it does not have that format.
        DataLossError: it is shorter than `position`.
    """
    if layout.format == "parquet":
        yield from _parquet(path, layout, position)
        return
    if layout.format == "csv":
        yield from _csv(path, layout, position)
        return
    split = _maps if layout.format == "msgpack" else _lines
    decoder = layout.decoder
    rest = b""
    for block in _blocks(path, position, wait_s):
        if block is None:
            yield None
            continue
        data = rest + block if rest else block
        final = not block
        starts, ends, used = split(data, final)
        if len(data) - used > LONGEST_BYTES:
            msg = f"a record of more than {LONGEST_BYTES >> 20} MiB at byte {position + used}: is this {layout.format}?"
            raise FormatError(msg)
        if used:
            yield _piece(decoder, data[:used], starts, ends, position)
            position += used
        rest = data[used:]


def end_of(path: Path | None, layout: Layout) -> int | None:
    """The position behind the last record of a file as it is now; None for standard input and where there is no file.

    Raises:
        FormatError, ConfigError, StoreError: as `pieces`.
    """
    if path is None or not path.is_file():
        return None
    if layout.format not in ("csv", "parquet"):
        return path.stat().st_size
    end = 0
    for piece in pieces(path, layout):
        end = end if piece is None else piece.next_position
    return end


def _blocks(path: Path | None, position: int, wait_s: float | None) -> Iterator[bytes | None]:
    """Blocks of bytes; an empty one at the end; None when standard input was silent for `wait_s`."""
    if path is None:
        descriptor = sys.stdin.fileno()
        while True:
            if wait_s is not None and not select.select([descriptor], [], [], wait_s)[0]:
                yield None
                continue
            block = os.read(descriptor, BLOCK_BYTES)
            yield block
            if not block:
                return
    try:
        with path.open("rb") as file:
            _require_length(path, os.fstat(file.fileno()).st_size, position, "bytes")
            file.seek(position)
            while True:
                block = file.read(BLOCK_BYTES)
                yield block
                if not block:
                    return
    except OSError as error:
        raise _unreadable(path, error) from error


def _require_length(path: Path, length: int, position: int, unit: str) -> None:
    if position > length:
        msg = (
            f"{path} has {length} {unit}, but the state already counted {position}: it was cut or replaced; put "
            "the former file back, or start a new revision with `sketchstream reset`"
        )
        raise DataLossError(msg)


def _unreadable(path: Path, error: OSError) -> StoreError:
    msg = f"cannot read {path}: {error.strerror or type(error).__name__}"
    return StoreError(msg)


def _lines(data: bytes, final: bool) -> tuple[Ints, Ints, int]:
    """Where lines begin and end (without line breaks), and how many bytes they use; blank lines are null."""
    buffer = np.frombuffer(data, np.uint8)
    breaks = np.flatnonzero(buffer == 10)
    starts = np.concatenate([np.zeros(1, np.int64), breaks + 1])
    ends = np.concatenate([breaks, np.array([len(data)], np.int64)])
    if not final or starts[-1] == len(data):
        starts, ends = starts[:-1], ends[:-1]
    used = len(data) if final else (int(breaks[-1]) + 1 if breaks.size else 0)
    if starts.size:
        ended = (ends > starts) & (buffer[np.maximum(ends - 1, 0)] == 13)
        ends = ends - ended
        starts = np.where(ends > starts, starts, -1)
    return starts, ends, used


def _maps(data: bytes, final: bool) -> tuple[Ints, Ints, int]:
    """Where concatenated msgpack maps begin and end, and how many bytes they use."""
    import msgpack

    unpacker = msgpack.Unpacker(raw=True, strict_map_key=False, max_buffer_size=LONGEST_BYTES + BLOCK_BYTES)
    unpacker.feed(data)
    edges = [0]
    try:
        while True:
            unpacker.skip()
            edges.append(unpacker.tell())
    except msgpack.OutOfData:
        pass
    except ValueError:
        msg = "this is not a sequence of msgpack maps"
        raise FormatError(msg) from None
    if final and edges[-1] != len(data):
        msg = "the file ends inside a msgpack map"
        raise FormatError(msg)
    marks = np.array(edges, np.int64)
    return marks[:-1], marks[1:], int(marks[-1])


def _piece(decoder: Decoder, data: bytes, starts: Ints, ends: Ints, position: int) -> Piece:
    """Lines or maps as records without keys."""
    n = starts.size
    none = np.full(n, -1, np.int64)
    first = np.where(starts < 0, ends, starts)
    records = Records(
        offsets=first + position,
        timestamps=none,
        buffer=np.frombuffer(data, np.uint8),
        key_start=none,
        key_end=none,
        value_start=starts,
        value_end=ends,
        next_position=position + len(data),
    )

    def raw(index: int) -> RawRecord:
        return RawRecord(int(records.offsets[index]), -1, None, records.value(index))

    return Piece(records.offsets, records.next_position, decoder.decode(records), len(data), raw)


# ------------------------------------------------------------------------------------------------- columns


def _csv(path: Path | None, layout: Layout, position: int) -> Iterator[Piece]:
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
                _require_length(path, number, position, "rows")
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
        raise _unreadable(path, error) from error


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
    times = np.full(n, fields_of.UNREADABLE_TIME, np.int64)
    if isinstance(time, tuple):
        kinds = np.where(time[1] < 0, json_kernels.NULL, json_kernels.STRING).astype(np.uint8)
        digits = np.empty(n, np.int64)
        whole = time[1] >= 0
        field_kernels.read_integers(time[0], np.maximum(time[1], 0), time[2], whole, False, digits)
        json_kernels.read_times(time[0], kinds, np.maximum(time[1], 0), time[2], times)
        times = np.where(whole, digits, times)
    elif time is not None:
        times = time
    return Piece(offsets, number, _Values(None, found.items, weights, valid, times, found.null), n_bytes)


def _parquet(path: Path | None, layout: Layout, position: int) -> Iterator[Piece]:
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
            _require_length(path, file.metadata.num_rows, position, "rows")
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
        raise _unreadable(path, error) from error


def _arrow_piece(layout: Layout, batch: Any, number: int) -> Piece:
    import pyarrow as pa

    item = batch.column(layout.item)
    weight = None if layout.weight is None else _arrow_ints(batch.column(layout.weight), layout.weight, 1)
    time: tuple[Bytes, Ints, Ints] | Ints | None = None
    if layout.time is not None:
        column = batch.column(layout.time)
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            utc = pa.timestamp("ms", tz=getattr(column.type, "tz", None))
            time = _arrow_ints(column.cast(utc, safe=False), layout.time, fields_of.UNREADABLE_TIME)
        elif pa.types.is_integer(column.type):
            time = _arrow_ints(column, layout.time, fields_of.UNREADABLE_TIME)
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


# ----------------------------------------------------------------------------------------------- the source


class FileSource:
    """A file or standard input as a source with one partition. A `Source`.

    Args:
        path: of the file; None: standard input.
        layout: how it is read; `time` is needed, except for msgpack.
    """

    def __init__(self, path: Path | None, layout: Layout) -> None:
        self._path = path
        self._layout = layout
        self._position = 0
        self._pieces: Iterator[Piece | None] | None = None
        self._paused = True
        self._announced = False
        self._ended = False

    def poll(self, timeout_s: float) -> list[SourceEvent]:
        """The next piece of the file."""
        if not self._announced:
            self._announced = True
            return [Assigned((0,))]
        if self._paused or self._ended:
            import time

            time.sleep(min(timeout_s, 0.01))
            return []
        begin = self._position
        try:
            if self._pieces is None:
                self._pieces = pieces(self._path, self._layout, begin, timeout_s)
            piece = next(self._pieces, None) if self._path is not None else next(self._pieces)
        except StopIteration:
            piece, self._ended = None, True
        except (FormatError, ConfigError, StoreError, DataLossError, MissingExtraError) as error:
            self._pieces = None
            return [PartitionError(0, _halting(error))]
        if piece is None:
            if self._path is not None or self._ended:
                self._ended = True
                return [Ended(0)]
            return []
        self._position = piece.next_position
        chunk = Chunk(0, begin, piece.next_position, piece.offsets, None, piece.decoded, piece.raw, piece.n_bytes)
        return [chunk]

    def seek(self, partition: int, position: int) -> None:
        """Go on from here."""
        del partition
        self._position, self._pieces, self._ended = position, None, False

    def pause(self, partition: int) -> None:
        """Deliver nothing."""
        del partition
        self._paused = True

    def resume(self, partition: int) -> None:
        """Deliver again."""
        del partition
        self._paused = False

    def partition_count(self, *, fresh: bool = False) -> int:
        """A file is one partition."""
        del fresh
        return 1

    def beginning(self, partition: int) -> int:
        """The first record."""
        del partition
        return 0

    def high_watermarks(self, partitions: Collection[int] | None = None) -> Mapping[int, int]:
        """Unknown: a file that is silent has ended."""
        del partitions
        return {}

    def close(self, *, leave: bool = False) -> None:
        """Close the file."""
        del leave
        self._pieces = None


def _halting(error: Exception) -> DataLossError:
    """A file that cannot be read on halts its partition: reading it again would not help."""
    return error if isinstance(error, DataLossError) else DataLossError(str(error))


# ------------------------------------------------------------------------------------------------- batches


def batches(
    path: Path | None, layout: Layout, *, skip_invalid: bool = False
) -> Iterator[tuple[Items, Ints | None, int]]:
    """Items and weights of a file, without event times, for `Sketch.update`.

    Args:
        path: of the file; None: standard input.
        layout: how it is read; `time` is not used.
        skip_invalid: leave out records that cannot be used, instead of raising.

    Yields:
        Items, weights (None: all 1), and how many records were left out. Null items are no-ops and not counted.

    Raises:
        ItemError: a record cannot be used; names its line, row or byte, never what is in it.
        FormatError, StoreError, ConfigError: as `pieces`.
    """
    plain = Layout(layout.format, layout.item, layout.item_type, layout.weight)
    lines = 0
    for piece in pieces(path, plain):
        if piece is None:
            continue
        found = piece.decoded
        null = found.null if found.record is None else found.null[found.record]
        wrong = ~found.valid & ~null
        left_out = int(np.count_nonzero(wrong))
        if left_out and not skip_invalid:
            at = int(np.argmax(wrong))
            record = at if found.record is None else int(found.record[at])
            what = "an integer weight and an item" if layout.weight else "an item"
            place = f"byte {int(piece.offsets[record])}" if layout.format == "msgpack" else f"line {lines + record + 1}"
            if layout.format in ("csv", "parquet"):
                place = f"row {lines + record + 1}"
            msg = f"{place} of {path or 'standard input'} does not hold {what} of type {layout.item_type}"
            raise ItemError(msg)
        lines += piece.offsets.size
        items, weights = found.items, found.weights
        if not found.valid.all():
            items = items.take(found.valid)
            weights = None if weights is None else weights[found.valid]
        yield items, weights, left_out
