"""Reads lines and msgpack maps from a file or standard input, in blocks that end at record boundaries.

In: a file, a layout, the first byte to read. Out: chunks. Touches: the file or standard input, for reading.
"""

from __future__ import annotations

import os
import select
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream.errors import FormatError
from sketchstream.files import reading
from sketchstream.stream.formats import Reader
from sketchstream.stream.interfaces import Chunk, RawRecord
from sketchstream_connectors.decode.decoder import Decoder
from sketchstream_connectors.decode.records import NO_TIMESTAMP, Records
from sketchstream_connectors.files import compression
from sketchstream_connectors.files.layout import FileFormat, Layout, require_length

BLOCK_BYTES = 4 << 20
"""Bytes that are read from a file at a time: thousands of lines, and little memory."""
MAX_RECORD_BYTES = 64 << 20
"""Most bytes of a line or a map: in a file with a longer one, the format is another."""


def records(
    path: Path | None, layout: Layout, position: int, wait_s: float | None, *, growing: bool = False
) -> Iterator[Chunk | None]:
    """Chunks of a file of lines or maps; see `files.source.chunks`."""
    decoder = layout.decoder
    for part in parts(path, layout.format, position, wait_s, growing=growing):
        if part is None:
            yield None
            continue
        data, starts, ends = part
        offsets, following = np.where(starts < 0, ends, starts) + position, position + len(data)
        buffer = np.frombuffer(data, np.uint8)
        yield chunk_of(decoder, buffer, starts, ends, offsets, (position, following), len(data))
        position = following


def parts(
    path: Path | None, record_format: FileFormat, position: int, wait_s: float | None, *, growing: bool = False
) -> Iterator[tuple[bytes, Ints, Ints] | None]:
    """Bytes that end where a record ends, with where each record begins and ends in them; None for silence."""
    split = _maps if record_format == "msgpack" else _lines
    rest = b""
    for block in _blocks(path, position, wait_s):
        if block is None:
            yield None
            continue
        data = rest + block if rest else block
        final = not block
        if final and growing and path is not None and record_format == "jsonl":
            data = data[: _whole_lines(data)]
        starts, ends, used = split(data, final)
        if position == 0 and record_format != "msgpack" and data.startswith(BOM_UTF8) and used:
            starts[0] = len(BOM_UTF8) if ends[0] > len(BOM_UTF8) else -1  # no part of the first line
        if len(data) - used > MAX_RECORD_BYTES:
            raise FormatError(
                f"a record of more than {MAX_RECORD_BYTES >> 20} MiB at byte {position + used}: is this "
                f"{record_format}?"
            )
        if used:
            yield data[:used], starts, ends
            position += used
        rest = data[used:]


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
    if compression.is_compressed(path):
        yield from _decompress_blocks(path, position)
        return
    with reading(path), path.open("rb") as file:
        require_length(path, os.fstat(file.fileno()).st_size, position, "bytes")
        file.seek(position)
        while True:
            block = file.read(BLOCK_BYTES)
            yield block
            if not block:
                return


def _decompress_blocks(path: Path, position: int) -> Iterator[bytes]:
    """Blocks of a compressed file from a position on; an empty one at the end."""
    skip = position
    with reading(path):
        for block in compression.blocks(path, BLOCK_BYTES):
            if skip < len(block):
                yield block[skip:]
            skip = max(0, skip - len(block))
    require_length(path, position - skip, position, "bytes")
    yield b""


def _whole_lines(data: bytes) -> int:
    """Bytes of JSON lines without the last one, if that has no end yet and is not JSON: its writer is not done."""
    import orjson

    last = data.rfind(b"\n") + 1
    try:
        orjson.loads(data[last:])
    except orjson.JSONDecodeError:
        return last
    return len(data)


def _lines(data: bytes, final: bool) -> tuple[Ints, Ints, int]:
    """Starts and ends of lines (without line breaks), and the number of bytes used; blank lines are null."""
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
    """Starts and ends of concatenated msgpack maps, and the number of bytes used."""
    import msgpack

    unpacker = msgpack.Unpacker(raw=True, strict_map_key=False, max_buffer_size=MAX_RECORD_BYTES + BLOCK_BYTES)
    unpacker.feed(data)
    edges = [0]
    try:
        while True:
            unpacker.skip()
            edges.append(unpacker.tell())
    except msgpack.OutOfData:
        pass
    except ValueError:
        raise FormatError("this is not a sequence of msgpack maps") from None
    if final and edges[-1] != len(data):
        raise FormatError("the file ends inside a msgpack map")
    marks = np.array(edges, np.int64)
    return marks[:-1], marks[1:], int(marks[-1])


def chunk_of(
    reader: Reader | Decoder,
    buffer: npt.NDArray[np.uint8],
    starts: Ints,
    ends: Ints,
    offsets: Ints,
    positions: tuple[int, int],
    n_bytes: int,
    raw_of: Callable[[bytes | None], bytes | None] = lambda value: value,
) -> Chunk:
    """Values of a file as records without keys.

    Args:
        reader: decodes them.
        buffer: bytes of the values.
        starts: (n,) where each value begins, < 0 where there is none.
        ends: (n,) where it ends.
        offsets: (n,) offsets of the records.
        positions: positions of the chunk, from and next.
        n_bytes: number of bytes that were read for them.
        raw_of: what `Chunk.raw` shows of a value.
    """
    none = np.full(starts.size, NO_TIMESTAMP, np.int64)
    records = Records(offsets, none, buffer, none, none, starts, ends, *positions)

    def raw(index: int) -> RawRecord:
        return RawRecord(int(offsets[index]), NO_TIMESTAMP, None, raw_of(records.value(index)))

    return Chunk(0, *positions, offsets, None, reader.decode(records), raw, n_bytes)
