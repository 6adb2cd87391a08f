"""Marks on windows: which they cover, how they stretch, and the bytes they are stored and published as."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sketchstream.stream import marks
from sketchstream.stream.marks import UNMARKED, Mark
from sketchstream.stream.partition import PartitionState
from sketchstream.stream.ports import Frontier, Restored
from sketchstream.stream.results import decode_frontier, encode_frontier
from sketchstream_connectors.kafka_sealed import frontier_record, read_frontier

sys.path.insert(0, str(Path(__file__).parent))
from streams import EPOCH, rules

PARTIAL, DIVERGED = Mark(10, 30), Mark(20, 40)


def test_a_mark_begins_behind_what_is_sealed_and_only_grows() -> None:
    mark = UNMARKED.stretched(10, 30)
    assert mark == Mark(10, 30)
    assert [end for end in range(0, 50, 10) if mark.covers(end)] == [20, 30]
    assert mark.stretched(20, 25) == mark
    assert mark.stretched(40, 60) == Mark(10, 60), "one stretch: what lies between two losses carries the mark too"
    assert not any(UNMARKED.covers(end) for end in (-1, 0, 1))


@pytest.mark.parametrize(
    ("partial", "diverged", "said"),
    [
        (UNMARKED, UNMARKED, {}),
        (PARTIAL, UNMARKED, {"partial_through": 30, "partial_from": 10}),
        (Mark(through=30), DIVERGED, {"partial_through": 30, "diverged_through": 40, "diverged_from": 20}),
    ],
)
def test_marks_are_published_as_they_always_were(partial: Mark, diverged: Mark, said: dict[str, int]) -> None:
    frontier = Frontier("hourly", 0, 3, 100, 16, 2, partial, diverged)
    key, value, _ = frontier_record(frontier)
    plain = {"v": 1, "published_through": 100, "partitions": 16, "sequence": 2}
    assert value == json.dumps({**plain, **said}, separators=(",", ":")).encode()
    assert read_frontier(("hourly", 0, 3), value) == frontier
    assert key == b"frontier/hourly/0/3"
    data = encode_frontier(frontier)
    always = {"sketch": "hourly", "revision": 0, "partition": 3, "partial_through": partial.through}
    plain = {"published_through": 100, "partitions": 16, "sequence": 2}
    assert data == json.dumps({**always, **plain, **said}, sort_keys=True, separators=(",", ":")).encode()
    assert decode_frontier(data) == frontier
    assert marks.read(marks.numbers(partial, diverged)) == (partial, diverged)


def test_marks_of_frontiers_that_wait_are_restored_every_time_anew() -> None:
    state = PartitionState.fresh(rules(), 0, 0, 1)
    state.watermark = EPOCH
    state.skip(5)
    snapshot = state.capture()
    frontiers = state.outbox()[1]
    assert frontiers
    assert all(one.partial.covers(EPOCH + 1) for one in frontiers)
    for _ in range(2):
        again = PartitionState.restore(rules(), 0, Restored(5, snapshot.manifest, snapshot.blobs), 1)
        assert again.outbox()[1] == frontiers
