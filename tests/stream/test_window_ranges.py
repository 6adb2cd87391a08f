"""Marks on windows: which they cover, how they stretch, and the bytes they are stored and published as."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from helpers.streams import EPOCH, MINUTE, Stream, rules
from sketchstream.stream.interfaces import Frontier, Restored
from sketchstream.stream.state.checkpoint import capture, restore
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.windows import window_ranges
from sketchstream.stream.windows.window_ranges import UNMARKED, Mark
from sketchstream_connectors.files.publisher import decode_frontier, encode_frontier
from sketchstream_connectors.kafka.publishing.sealed import frontier_record, read_frontier

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")

PARTIAL, DIVERGED = Mark(10, 30), Mark(20, 40)


def test_a_mark_begins_behind_what_is_sealed_and_only_grows() -> None:
    mark = UNMARKED.extended(10, 30)
    assert mark == Mark(10, 30)
    assert [end for end in range(0, 50, 10) if mark.covers(end)] == [20, 30]
    assert mark.extended(20, 25) == mark
    assert mark.extended(40, 60) == Mark(10, 60), "one stretch: what lies between two losses carries the mark too"
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
    assert window_ranges.read(window_ranges.numbers(partial, diverged)) == (partial, diverged)


def read_on(state: PartitionState, *seconds: int) -> Mark:
    """Read records of these times, and what the frontier says then; all that is due is sealed."""
    times = EPOCH + np.array(seconds, np.int64) * 1000
    n = times.size
    offset = state.position
    stream = Stream(np.arange(n), times, times, np.ones(n, bool), np.zeros(n, bool))
    chunk = stream.chunk(0, n)
    state.apply(replace(chunk, from_position=offset, next_position=offset + n, offsets=chunk.offsets + offset))
    frontier = announced(state)
    return UNMARKED if frontier is None else frontier.partial


def announced(state: PartitionState) -> Frontier | None:
    """The newest frontier of the one sketch."""
    return {**state.outbox.frontiers, **state.outbox.pending}.get("minutes")


def at_hand(*, restored: bool = False) -> PartitionState:
    """Minutes 0 and 1 are open, the watermark is in minute 1, and then records are lost."""
    common = rules(lateness_ms=2 * MINUTE)
    state = PartitionState.fresh(common, 0, 0, 1)
    read_on(state, 10, 70)
    if not restored:
        state.skip(10)
        return state
    snapshot = capture(state)
    manifest = {**snapshot.manifest, "position": 10, "partial": True}  # as `recover --accept-loss` leaves it
    return restore(common, 0, Restored(10, manifest, snapshot.blobs), 1)


def test_marks_of_frontiers_that_wait_are_restored_every_time_anew() -> None:
    state = at_hand()
    snapshot = capture(state)
    frontiers = state.outbox.captured()[1]
    assert [one.partial.through for one in frontiers] == [EPOCH + 2 * MINUTE]
    for _ in range(2):
        again = restore(state.rules, 0, Restored(10, snapshot.manifest, snapshot.blobs), 1)
        assert again.outbox.captured()[1] == frontiers


@pytest.mark.parametrize("restored", [False, True])
def test_after_lost_records_every_window_up_to_the_next_record_may_lack_some(restored: bool) -> None:
    mark = read_on(at_hand(restored=restored), 310, 400, 1000)
    covered = [minute for minute in range(15) if mark.covers(EPOCH + (minute + 1) * MINUTE)]
    assert covered == [*range(8)], "those that were open, those that were passed, that of the next record, and lateness"


@pytest.mark.parametrize("restored", [False, True])
def test_an_old_record_after_a_loss_does_not_hide_that_newer_windows_lack_some(restored: bool) -> None:
    mark = read_on(at_hand(restored=restored), 20, 1000)
    covered = [minute for minute in range(25) if mark.covers(EPOCH + (minute + 1) * MINUTE)]
    assert covered == [*range(19)], "up to the record that moved the watermark, and lateness beyond it"


@pytest.mark.parametrize(
    ("stamp", "last"), [(1200, 22), (4000, 7)], ids=["written in minute 20", "a clock that is fast says nothing"]
)
def test_a_delayed_record_that_is_a_quorum_alone_does_not_end_what_windows_may_lack(stamp: int, last: int) -> None:
    """Records of minutes 2 to 20 are lost; what is read next is of minute 5; its own timestamp says when it came."""
    state = at_hand()
    times = EPOCH + np.array([300], np.int64) * 1000
    delayed = Stream(
        np.arange(1), times, EPOCH + np.array([stamp], np.int64) * 1000, np.ones(1, bool), np.zeros(1, bool)
    )
    chunk = replace(delayed.chunk(0, 1), from_position=10, next_position=11, offsets=np.array([10]))
    state.apply(chunk, clock_ms=EPOCH + 21 * MINUTE)
    mark = read_on(state, 2000)
    assert [minute for minute in range(40) if mark.covers(EPOCH + (minute + 1) * MINUTE)] == [*range(last + 1)]


@pytest.mark.parametrize("lost", ["trimmed", "recovered", "begun in mid-stream"])
def test_a_silent_partition_says_that_what_it_passes_may_lack_lost_records(lost: str) -> None:
    if lost == "begun in mid-stream":
        state = PartitionState.fresh(rules(lateness_ms=2 * MINUTE), 0, 10, 1, partial=True)
    else:
        state = at_hand(restored=lost == "recovered")
    state.advance(EPOCH + 10 * MINUTE)
    state.seal()
    frontier = announced(state)
    assert frontier is not None
    assert frontier.published_through == EPOCH + 8 * MINUTE
    assert all(frontier.partial.covers(EPOCH + n * MINUTE) for n in range(1, 9))
    assert not frontier.partial.covers(EPOCH + 9 * MINUTE), "as far as is known now"
    assert read_on(state, 700, 2000).covers(EPOCH + 12 * MINUTE), "the window of the next record too"
