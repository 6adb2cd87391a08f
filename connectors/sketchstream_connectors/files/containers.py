"""Reads Avro container files: blocks of records, with the schema of their writer in front.

In: a file or a folder of files, a layout, the first row to read. Out: chunks. Touches: the files, for reading.
Source: the Avro 1.12 specification, "Object Container Files".

Damage to what lies around a block (its number of records, its size, the marker behind it) is an error: where the next
block begins is not known. Damage inside a block is not: its header says how many records it has, and all of them are
events that cannot be used, because where a record begins follows from those before it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final, cast

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Ints
from sketchstream.errors import ConfigError, FormatError
from sketchstream.files import reading
from sketchstream.log_events import EventLog
from sketchstream.stream.formats import RECORD_TIME, Fields
from sketchstream.stream.interfaces import Chunk
from sketchstream_connectors.decode.avro import tree
from sketchstream_connectors.decode.avro.blocks import BlockSplitter
from sketchstream_connectors.decode.avro.format import AvroReader
from sketchstream_connectors.decode.avro.schema import Type, leaf_names, parse
from sketchstream_connectors.decode.named_fields import wanted_fields
from sketchstream_connectors.files.blocks import chunk_of
from sketchstream_connectors.files.codecs import Codec, codec
from sketchstream_connectors.files.layout import Layout, require_length
from sketchstream_connectors.files.rows import files_of
from sketchstream_connectors.schema_registry import sources

event_log = EventLog("sketchstream.worker")


MAGIC: Final = b"Obj\x01"
MARKER: Final = 16
"""Bytes of the marker that ends the header and each block."""
MAX_BYTES: Final = 64 << 20
"""Most bytes of a header or a block, compressed or not."""
MAX_RECORDS: Final = 1 << 22
"""Most records of a block."""
CHUNK_RECORDS: Final = 1 << 16
"""Most records of a chunk."""
GATHERED: Final = 1 << 22
"""Bytes of blocks that are decoded together."""


def avro_rows(path: Path | None, layout: Layout, position: int) -> Iterator[Chunk]:
    """Rows of a container file, or of all files of a folder in the order of their names; see `files.source.chunks`."""
    number = 0
    for file in _files(path):
        with reading(file):
            number = yield from _rows(file, layout, position, number)
    assert path is not None
    require_length(path, number, position, "rows")


def documents(path: Path, max_records: int) -> Iterator[dict[str, Any]]:
    """The first records of each file's blocks as plain documents, without those that are malformed.

    Raises:
        OSError: a file cannot be read.
        FormatError: see `files.source.chunks`.
    """
    for file in _files(path):
        with _open_container(file) as container:
            splitter = BlockSplitter(container.schema)
            for block in container.blocks(0):
                data, starts, ends, _ = _split(splitter, [block])
                for start, end in zip(starts[:max_records].tolist(), ends[:max_records].tolist(), strict=True):
                    document = tree.document(container.schema, data[start:end].tobytes())
                    if isinstance(document, dict):
                        yield document


def _files(path: Path | None) -> list[Path]:
    if path is None:
        raise ConfigError("Avro container files are not read from standard input: give a file")
    return files_of(path, ".avro")


@dataclass(frozen=True)
class _Block:
    """Records of one block.

    Args:
        at: byte of the file where it begins.
        count: number of records.
        plain: bytes of the records; None if they cannot be decompressed.
    """

    at: int
    count: int
    plain: bytes | None


@dataclass
class _Container:
    """A container file, behind its header.

    Args:
        path: path of the file.
        file: the open file.
        schema: schema of the writer.
        codec: codec of the blocks.
        marker: 16 bytes that follow each block.
    """

    path: Path
    file: IO[bytes]
    schema: Type
    codec: Codec
    marker: bytes
    skipped: int = 0

    def blocks(self, skip: int) -> Iterator[_Block]:
        """Blocks, but those of the first `skip` records; `skipped` is then how many were passed over.

        Raises:
            FormatError: what lies around a block is damaged, or the file ends in a block.
        """
        size = os.fstat(self.file.fileno()).st_size
        needed = False
        while (at := self.file.tell()) < size:
            count, length = _number(self.file, self.path), _number(self.file, self.path)
            if not 0 <= count <= MAX_RECORDS or not 0 <= length <= MAX_BYTES:
                raise FormatError(
                    f"{self.path} is damaged: the block at byte {at} has no valid number of records and bytes"
                )
            needed = needed or self.skipped + count > skip
            data = b""
            if needed:
                data = _take(self.file, length, self.path)
            else:
                self.file.seek(length, os.SEEK_CUR)
                self.skipped += count
            if _take(self.file, MARKER, self.path) != self.marker:
                raise FormatError(
                    f"{self.path} is damaged: the block at byte {at} does not end with the marker of the file"
                )
            if needed and count:
                plain = self.codec(data, MAX_BYTES)
                yield _Block(at, count, plain if plain is not None and count <= len(plain) else None)


@contextlib.contextmanager
def _open_container(path: Path) -> Iterator[_Container]:
    """Open a file and read its header.

    Raises:
        OSError: it cannot be read.
        FormatError: it is not a container file, or has no schema that can be read.
        MissingExtraError: its codec needs a package that is not installed.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise FormatError(f"{path} is not an Avro container file")
        metadata = _metadata(file, path)
        marker = _take(file, MARKER, path)
        try:
            schema = parse(metadata.get("avro.schema", b"").decode())
        except (FormatError, UnicodeDecodeError):
            raise FormatError(f"the header of {path} holds no Avro schema that can be read") from None
        if schema.min_bytes == 0:
            raise FormatError(f"the records of {path} have no bytes, and so no fields")
        name = metadata.get("avro.codec", b"null").decode("utf-8", "replace")
        yield _Container(path, file, schema, codec(name, path), marker)


def _metadata(file: IO[bytes], path: Path) -> dict[str, bytes]:
    """The map in the header: in blocks, and those with a negative count have their size in bytes in front."""
    metadata = {}
    while count := _number(file, path):
        if count < 0:
            _number(file, path)
        for _ in range(abs(count)):
            name = _take(file, _number(file, path), path)
            metadata[name.decode("utf-8", "replace")] = _take(file, _number(file, path), path)
            if file.tell() > MAX_BYTES:
                raise FormatError(f"the header of {path} is damaged: it has no end")
    return metadata


def _take(file: IO[bytes], size: int, path: Path) -> bytes:
    """Bytes that must be there."""
    if not 0 <= size <= MAX_BYTES:
        raise FormatError(f"{path} is damaged: a length before byte {file.tell()} is not valid")
    content = file.read(size)
    if len(content) != size:
        raise FormatError(f"{path} is not whole: it ends within its header or a block")
    return content


def _number(file: IO[bytes], path: Path) -> int:
    """A zigzag varint."""
    raw = 0
    for place in range(10):
        (byte,) = _take(file, 1, path)
        raw |= (byte & 127) << 7 * place
        if byte < 128:
            return raw >> 1 ^ -(raw & 1)
    raise FormatError(f"{path} is damaged: there is no number before byte {file.tell()}")


def _rows(path: Path, layout: Layout, position: int, number: int) -> Generator[Chunk, None, int]:
    """Rows of one file whose first row has the number `number`; returns the number behind its last row."""
    with _open_container(path) as container:
        fields = cast("Fields", replace(layout, time=layout.time or RECORD_TIME))
        sources.require_fields(wanted_fields(fields), leaf_names(container.schema, sources.DEPTH), path)
        schema = container.schema
        reader = AvroReader(fields, "none", lambda _: schema)
        splitter = BlockSplitter(schema)
        damaged = 0
        first = number
        for blocks in _gather_blocks(container.blocks(position - first)):
            if number == first:
                number += container.skipped
            data, starts, ends, broken = _split(splitter, blocks)
            if broken and not damaged:
                event_log.warning("block_damaged", file=str(path), byte=broken[0].at, records=broken[0].count)
            damaged += len(broken)
            n_bytes = sum(len(block.plain or b"") for block in blocks)
            skip = max(0, position - number)
            for at in range(skip, starts.size, CHUNK_RECORDS):
                stop = min(at + CHUNK_RECORDS, starts.size)
                positions = number + at, number + stop
                offsets = np.arange(*positions, dtype=np.int64)
                share = n_bytes * offsets.size // starts.size
                yield chunk_of(reader, data, starts[at:stop], ends[at:stop], offsets, positions, share, reader.shown)
            number += starts.size
        return max(number, first + container.skipped)


def _gather_blocks(blocks: Iterator[_Block]) -> Iterator[list[_Block]]:
    """Blocks of about `GATHERED` bytes together; those before an error are given before it is raised."""
    gathered: list[_Block] = []
    size = 0
    try:
        for block in blocks:
            gathered.append(block)
            size += len(block.plain or b"") + block.count
            if size >= GATHERED:
                yield gathered
                gathered, size = [], 0
    except FormatError:
        if gathered:
            yield gathered
        raise
    if gathered:
        yield gathered


def _split(splitter: BlockSplitter, blocks: list[_Block]) -> tuple[npt.NDArray[np.uint8], Ints, Ints, list[_Block]]:
    """The bytes of blocks, the bounds of their records in them (empty in a damaged block), and the damaged blocks."""
    parts = [block.plain or b"" for block in blocks]
    edges = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
    counts = np.array([block.count for block in blocks], np.int64)
    buffer = np.frombuffer(b"".join(parts), np.uint8)
    starts, ends, whole = splitter.split(buffer, edges, counts)
    return buffer, starts, ends, [block for block, good in zip(blocks, whole.tolist(), strict=True) if not good]
