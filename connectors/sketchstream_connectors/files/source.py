"""Files and standard input as a source of the worker, and as batches of items for `sketchstream update`.

In: jsonl, lines, csv, parquet, avro, or concatenated msgpack maps (see `decode.decoder`). Out: chunks of decoded
records; batches of items. Touches: the file or standard input, reading.

A file is one partition. Positions are byte offsets (jsonl, lines, msgpack) or row numbers (csv, parquet, avro), so a
worker that restarts continues where its last snapshot stopped. If the file has grown since, the new records are read.
An incomplete last line of jsonl is left for the next start. Standard input cannot be read again: a restart continues
with the next input, and records between the last snapshot and a crash are lost. Use a file or Kafka if that matters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from sketchstream.errors import ConfigError, DataLossError, FormatError, ItemError, MissingExtraError, StoreError
from sketchstream.items.events import Events
from sketchstream.log_events import EventLog
from sketchstream.stream.input.sampling import PARSED, Sample, Wanted
from sketchstream.stream.interfaces import Assigned, Chunk, Ended, PartitionError, Source, SourceEvent
from sketchstream_connectors.decode import memory_pool
from sketchstream_connectors.files import blocks, compression, containers, rows
from sketchstream_connectors.files.layout import Layout

event_log = EventLog("sketchstream.worker")

COUNTED: Final = ("csv", "parquet", "avro")
"""Formats whose positions are numbers of rows."""


def chunks(
    path: Path | None, layout: Layout, position: int = 0, wait_s: float | None = None, *, growing: bool = False
) -> Iterator[Chunk | None]:
    """The records of a file from a position on.

    Args:
        path: path of the file; None: standard input, whose next record has `position`.
        layout: how it is read.
        position: byte offset, or row for csv, parquet and avro.
        wait_s: standard input: seconds without input after which None is yielded; None: wait.
        growing: leave a last line of jsonl that is not whole yet for the next time.

    Raises:
        StoreError: the file cannot be read.
        FormatError: it does not have that format.
        DataLossError: it is shorter than `position`.
    """
    if layout.format == "parquet":
        yield from rows.parquet_rows(path, layout, position)
    elif layout.format == "avro":
        yield from containers.avro_rows(path, layout, position)
    elif layout.format == "csv":
        yield from rows.csv_rows(path, layout, position, wait_s)
    else:
        yield from blocks.records(path, layout, position, wait_s, growing=growing)


def end_of(path: Path | None, layout: Layout) -> int | None:
    """The position behind the present last record of a file; None for standard input or a missing file.

    Raises:
        FormatError, ConfigError, StoreError: see `chunks`.
    """
    if path is None or not path.exists():
        return None
    if layout.format not in COUNTED and not compression.is_compressed(path):
        return path.stat().st_size
    end = 0
    for chunk in chunks(path, layout):
        end = end if chunk is None else chunk.next_position
    return end


# ----------------------------------------------------------------------------------------------- the source


class FileSource(Source):
    """A `Source` with one partition: a file, or standard input.

    Args:
        path: path of the file; None: standard input.
        layout: how it is read; `time` is needed, except for msgpack.
        wanted: configured fields to look for in the first records; None: do not check them.
        diagnosed: whether warnings may say what many of the first records lack, see `privacy.diagnostics`.
    """

    def __init__(
        self, path: Path | None, layout: Layout, wanted: Wanted | None = None, *, diagnosed: bool = False
    ) -> None:
        self._wanted, self._diagnosed = wanted, diagnosed
        self._path = path
        self._layout = layout
        self._position = 0
        self._chunks: Iterator[Chunk | None] | None = None
        self._shift = 0
        self._paused = True
        self._announced = False
        self._ended = False

    @property
    def joined(self) -> bool:
        """Whether the partitions were announced."""
        return self._announced

    def poll(self, timeout_s: float) -> list[SourceEvent]:
        """The next chunk of the file."""
        if not self._announced:
            self._announced = True
            return [Assigned((0,))]
        if self._paused or self._ended:
            time.sleep(min(timeout_s, 0.01))
            return []
        begin = self._position
        try:
            if self._chunks is None:
                self._chunks, self._shift = chunks(self._path, self._layout, begin, timeout_s, growing=True), 0
            chunk = next(self._chunks)
        except StopIteration:
            self._ended = True
            return [Ended(0)]
        except (FormatError, ConfigError, StoreError, DataLossError, MissingExtraError) as error:
            self._chunks = None
            # the partition halts: reading the file again would not help
            return [PartitionError(0, error if isinstance(error, DataLossError) else DataLossError(str(error)))]
        if chunk is None:
            memory_pool.clear_pools()
            return []
        if self._wanted is not None:
            self._check_sample(chunk, first=begin == 0)
        self._position = chunk.next_position + self._shift
        offsets = chunk.offsets + self._shift
        return [replace(chunk, from_position=begin, next_position=self._position, offsets=offsets)]

    def _check_sample(self, chunk: Chunk, *, first: bool) -> None:
        """Compare the first records with the configured fields: refuse them before any sketch exists, warn later."""
        assert self._wanted is not None
        sample = add_to_sample(self._layout, chunk, Sample(self._wanted))
        self._wanted = None
        mistakes, warnings = sample.verdict(doubts=self._diagnosed)
        if mistakes and first:
            raise ConfigError(*mistakes)
        for text in mistakes + warnings:
            event_log.warning("sample", warning=text)

    def seek(self, partition: int, position: int) -> None:
        """Continue from this position; standard input continues with what comes next, under this position."""
        if self._path is None:
            self._shift += position - self._position
        else:
            self._chunks = None
        self._position, self._ended = position, False

    def pause(self, partition: int) -> None:
        """Deliver nothing."""
        self._paused = True

    def resume(self, partition: int) -> None:
        """Deliver again."""
        self._paused = False

    def numbers(self) -> Sequence[int]:
        """A file is partition 0."""
        return (0,)

    def partition_count(self, partition: int = 0, *, fresh: bool = False) -> int:
        """A file is one partition."""
        return 1

    def high_watermarks(self, partitions: Collection[int] | None = None) -> Mapping[int, int]:
        """Unknown: a file that is silent has ended."""
        return {}

    def close(self, *, leave: bool = False) -> None:
        """Close the file."""
        self._chunks = None


def add_to_sample(layout: Layout, chunk: Chunk, sample: Sample) -> Sample:
    """Take the records of a chunk of a file into a sample."""
    raw = chunk.raw if layout.documents else None
    sample.add(chunk.events, None if raw is None else lambda index: raw(index).value)
    return sample


def sample_of(path: Path, layout: Layout, wanted: Wanted) -> Sample:
    """The first records of a file, as a sample.

    Raises:
        FormatError, StoreError, ConfigError: see `chunks`.
    """
    sample = Sample(wanted)
    for chunk in chunks(path, layout):
        if chunk is not None:
            add_to_sample(layout, chunk, sample)
        if sample.records >= PARSED:
            break
    return sample


# ------------------------------------------------------------------------------------------------- batches


def batches(
    path: Path | None, layout: Layout, *, skip_invalid: bool = False, inspect: Callable[[Chunk], None] | None = None
) -> Iterator[tuple[Events, int]]:
    """Yield the events of a file, without event times, in the form that `Intake.events` takes.

    Args:
        path: path of the file; None: standard input.
        layout: how it is read; `time` is not used.
        skip_invalid: leave out records that cannot be used, instead of raising.
        inspect: sees every chunk before its items are given.

    Yields:
        Events, whose columns have the names of their fields, and how many records were left out. Null items are no-ops
        and not counted.

    Raises:
        ItemError: a record is invalid; gives its line, row or byte, never its content.
        FormatError, StoreError, ConfigError: see `chunks`.
    """
    plain = replace(layout, time=None)
    lines = 0
    for chunk in chunks(path, plain):
        if chunk is None:
            continue
        if inspect is not None:
            inspect(chunk)
        events = chunk.events
        wrong = events.poison
        left_out = int(np.count_nonzero(wrong))
        if left_out and not skip_invalid:
            at = int(np.argmax(wrong))
            record = at if events.record is None else int(events.record[at])
            number = "a weight" if layout.decimals else "an integer weight"
            contents = f"{number} and an item" if layout.weight else "an item"
            place = f"byte {int(chunk.offsets[record])}" if layout.format == "msgpack" else f"line {lines + record + 1}"
            if layout.format in COUNTED:
                place = f"row {lines + record + 1}"
            raise ItemError(
                f"{place} of {path or 'standard input'} does not hold {contents} of type {layout.item_type}"
            )
        lines += chunk.offsets.size
        yield events.usable(), left_out
