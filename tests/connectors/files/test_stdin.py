"""Standard input as a source: it is not read again; who takes its partition again goes on with what comes next."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sketchstream.stream.interfaces import Chunk, Ended, SourceEvent
from sketchstream_connectors.files.layout import Layout
from sketchstream_connectors.files.source import FileSource


@contextmanager
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard input is a pipe; yields its other end."""
    reading, writing = os.pipe()
    with io.TextIOWrapper(os.fdopen(reading, "rb")) as text:
        monkeypatch.setattr(sys, "stdin", text)
        yield writing


def chunk(events: list[SourceEvent]) -> Chunk:
    (event,) = events
    assert isinstance(event, Chunk)
    return event


def test_half_a_record_outlives_that_its_partition_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with stdin(monkeypatch) as writing:
        source = FileSource(None, Layout("jsonl", "u", "int", time="t"))
        source.poll(0)
        source.seek(0, 1000)
        source.resume(0)
        os.write(writing, b'{"u": 1, "t": 1}\n{"u": 2,')
        first = chunk(source.poll(0.01))
        assert (first.from_position, first.next_position) == (1000, 1017)
        source.seek(0, 500)  # a snapshot before the first record: that one is lost, the half one is not
        os.write(writing, b' "t": 2}\n')
        second = chunk(source.poll(0.01))
        assert (second.from_position, second.next_position) == (500, 517)
        assert second.offsets.tolist() == [500]
        assert second.events.valid.tolist() == [True]
        assert second.events.times.tolist() == [2]
        os.close(writing)
        assert source.poll(0.01) == [Ended(0)]
        source.seek(0, 517)
        assert source.poll(0.01) == [Ended(0)], "said again to who took it again"


def test_a_csv_header_is_read_once_though_its_partition_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with stdin(monkeypatch) as writing:
        monkeypatch.setattr("sketchstream_connectors.files.blocks.BLOCK_BYTES", len("u,t\n1,1\n2,2\n"))
        source = FileSource(None, Layout("csv", "u", "int", time="t"))
        source.poll(0)
        source.seek(0, 0)
        source.resume(0)
        os.write(writing, b"u,t\n1,1\n2,2\n3,3\n4,4\n")
        os.close(writing)
        assert chunk(source.poll(0.01)).next_position == 2
        source.seek(0, 0)
        again = chunk(source.poll(0.01))
        assert (again.from_position, again.next_position) == (0, 2)
        assert again.events.times.tolist() == [3, 4]
        assert source.poll(0.01) == [Ended(0)]
