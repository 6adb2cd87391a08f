"""A file that grows while a worker reads it: a line that is half written is counted once, when it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from sketchstream.errors import ItemError
from sketchstream.stream.interfaces import Chunk, Ended
from sketchstream_connectors.files.layout import Layout
from sketchstream_connectors.files.source import FileSource, batches

LAYOUT = Layout("jsonl", "u", "int", time="t")
WHOLE = b'{"u": 1, "t": 1}\n'


def read(path: Path, position: int) -> tuple[list[int], int]:
    """Event times of what is read from a position on, and where that ends."""
    source = FileSource(path, LAYOUT)
    source.poll(0)
    source.seek(0, position)
    source.resume(0)
    times: list[int] = []
    while True:
        (event,) = source.poll(0)
        if isinstance(event, Ended):
            return times, position
        assert isinstance(event, Chunk)
        assert (event.events.valid | event.events.null).all()
        times += event.events.times[event.events.valid].tolist()
        position = event.next_position


@pytest.mark.parametrize("cut", range(1, 17))
def test_half_a_line_is_left_for_the_next_time(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "events.jsonl"
    last = b'{"u": 22, "t": 2}'
    path.write_bytes(WHOLE + last[:cut])
    assert read(path, 0) == ([1], len(WHOLE))
    path.write_bytes(WHOLE + last + b"\n")
    assert read(path, len(WHOLE)) == ([2], len(WHOLE) + len(last) + 1)


def test_a_whole_last_line_needs_no_line_break(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(WHOLE + WHOLE.rstrip())
    assert read(path, 0) == ([1, 1], 2 * len(WHOLE) - 1)
    path.write_bytes(WHOLE + WHOLE.rstrip() + b"\n" + WHOLE)
    assert read(path, 2 * len(WHOLE) - 1) == ([1], 3 * len(WHOLE))


def test_half_a_line_is_a_mistake_in_a_file_that_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(WHOLE + b'{"u": 2')
    with pytest.raises(ItemError, match="line 2"):
        list(batches(path, LAYOUT))
