"""Reads a few records of a topic or a file as plain documents, before there is a configuration.

In: a connection and a topic, or a path. Out: decoded JSON objects, or rows by the names of their columns.
Touches: the newest records of the topic, or the first bytes of the file; nothing of them is kept.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sketchstream.errors import ConfigError, FormatError, StoreError, optional_import
from sketchstream.files import reading
from sketchstream.stream.input.sampling import ARRAY
from sketchstream_connectors.files import blocks
from sketchstream_connectors.files.compression import is_compressed
from sketchstream_connectors.files.rows import require_utf8, separator_of

if TYPE_CHECKING:
    from sketchstream_connectors.files.layout import FileFormat
    from sketchstream_connectors.kafka.cluster.client import Connection

RECORDS: Final = 1000
"""Most records that are looked at."""

Document = dict[str, Any]


def of_file(path: Path, record_format: str) -> list[Document]:
    """Read the first records of a file.

    Args:
        path: The path of the file.
        record_format: "jsonl", "csv", "parquet" or "avro".

    Raises:
        ConfigError: The format has no named fields.
        FormatError, StoreError: The file cannot be read in this format.
    """
    if record_format == "parquet":
        return _parquet(path)
    if record_format == "avro":
        from sketchstream_connectors.files import containers

        with reading(path):
            return list(itertools.islice(containers.documents(path, RECORDS), RECORDS))
    if record_format not in ("jsonl", "csv"):
        raise ConfigError(
            f"{path} is read as {record_format!r}, which has no fields to choose from: expected jsonl, csv, parquet "
            "or avro"
        )
    lines = itertools.islice(
        _lines(path, "jsonl" if record_format == "jsonl" else "csv"), RECORDS + (record_format == "csv")
    )
    first = next(lines, b"")
    require_utf8(path, first)
    if record_format == "jsonl":
        documents = _objects(itertools.chain([first], lines))
        if not documents and first.lstrip()[:1] == b"[":
            raise ConfigError(f"{path} is {ARRAY}")
        return documents
    texts = (line.decode("utf-8-sig", "replace") for line in itertools.chain([first], lines))
    rows = csv.DictReader(texts, delimiter=separator_of(first.rstrip(b"\r\n")))
    return [{name: _number(cell) for name, cell in row.items() if name and cell} for row in rows]


def about_so_many(path: Path, record_format: str) -> int | None:
    """About how many records a file holds, from its size and its first ones; None: unknown.

    Args:
        path: path of the file.
        record_format: see `of_file`.
    """
    if record_format == "parquet":
        from pyarrow import parquet

        return int(parquet.read_metadata(path).num_rows)
    if record_format not in ("jsonl", "csv") or is_compressed(path):
        return None
    lengths = [len(line) + 1 for line in itertools.islice(_lines(path, "jsonl"), RECORDS)]
    return round(path.stat().st_size * len(lengths) / max(sum(lengths), 1))


def of_topic(connection: Connection, topic: str) -> tuple[int, int, list[Document]]:
    """Read the newest records of a topic.

    Returns:
        The number of partitions, the number of records read, and those that are JSON objects.

    Raises:
        ConfigError: There is no such topic.
        BrokerError: The cluster does not answer, or the topic may not be read.
    """
    from sketchstream_connectors.kafka.input.sample import read_newest

    newest = read_newest(connection, topic, RECORDS)
    values = [record.value for records in newest.records.values() for record in records]
    return newest.partitions, len(values), _objects(value for value in values if value is not None)


def _lines(path: Path, record_format: FileFormat) -> Iterator[bytes]:
    for part in blocks.parts(path, record_format, 0, None):
        if part is None:
            continue
        data, starts, ends = part
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            if start >= 0:
                yield data[start:end]


def _objects(texts: Iterable[bytes]) -> list[Document]:
    """Texts that are JSON objects."""
    import orjson

    documents = []
    for text in texts:
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        if isinstance(document, dict):
            documents.append(document)
    return documents


def _parquet(path: Path) -> list[Document]:
    with optional_import("parquet needs pyarrow: pip install 'sketchstream[arrow]'"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    try:
        with pq.ParquetFile(path) as file:
            batch = next(file.iter_batches(RECORDS), None)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or 'it cannot be opened'}") from None
    except pa.ArrowException as error:
        raise FormatError(f"{path} cannot be read as parquet ({type(error).__name__})") from None
    rows: list[Document] = [] if batch is None else batch.to_pylist()
    return rows


def _number(cell: str) -> object:
    """A cell as a number where it is one."""
    for read in (int, float):
        try:
            return read(cell)
        except ValueError:
            continue
    return cell
