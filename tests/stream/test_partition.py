"""The state of a partition: a function of the record sequence, whatever the batches."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.streams import (
    EPOCH,
    HOUR,
    MINUTE,
    SECOND,
    Oracle,
    Stream,
    asking,
    at_least,
    exact,
    open_spec,
    plan,
    published,
    rules,
    spec,
    stream,
)
from sketchstream.errors import DataLossError
from sketchstream.items.arrays import Items
from sketchstream.items.events import Events
from sketchstream.items.key import Key
from sketchstream.published import Release, SealedState, read_published
from sketchstream.stream.input.partition_counts import Steps
from sketchstream.stream.input.partitioner import belongs, items_kept
from sketchstream.stream.interfaces import Chunk, Restored
from sketchstream.stream.state.checkpoint import capture, mark_diverged, mark_partial, restore
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.sketch_state import OpenWindow
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream.stream.windows.quorum import MAXIMUM, Quorum

pytestmark = pytest.mark.filterwarnings("ignore:epsilon above 10")


QUORUMS = (MAXIMUM, Quorum(3, 15_000), Quorum())


def feed(state: PartitionState, s: Stream, cuts: list[int], clock_ms: int | None = None) -> tuple[list[int], list[int]]:
    """Apply a stream in chunks; returns the late and the future records."""
    late: list[int] = []
    future: list[int] = []
    edges = [0, *sorted(set(cuts)), len(s)]
    for begin, end in pairwise(edges):
        outcome = state.apply(s.chunk(begin, end), clock_ms=clock_ms)
        late += (begin + outcome.late_records).tolist()
        future += (begin + outcome.future_records).tolist()
    return late, future


def finish(state: PartitionState) -> dict[tuple[str, int], Release | SealedState]:
    state.seal(everything=True)
    capture(state)
    return published(state)


@pytest.mark.statistics
@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(1, 399), max_size=12),
    lateness=st.integers(0, 4),
    quorum=st.sampled_from(QUORUMS),
)
@settings(max_examples=40)
def test_batch_boundaries_change_nothing(seed: int, cuts: list[int], lateness: int, quorum: Quorum) -> None:
    s = stream(seed, 400)
    clock_ms = int(s.stamps[-1])
    oracle = Oracle(MINUTE, lateness * MINUTE, 16, quorum, clock_ms + HOUR)
    counts, late, future, mark = oracle.run(s)
    common = rules(lateness_ms=lateness * MINUTE, max_ahead_ms=HOUR, quorum=quorum)
    state = PartitionState.fresh(common, 0, 0, 1)
    assert feed(state, s, cuts, clock_ms) == (late, future)
    assert state.watermark == mark
    assert state.position == 400
    sealed = finish(state)
    assert sorted(start for _, start in sealed) == sorted(counts)
    for (_, start), found in sealed.items():
        for k in (1, 2, 3, 5):
            assert exact(found, k) == at_least(counts[start], k), (start, k)


@given(seed=st.integers(0, 10**6), cut=st.integers(1, 399), quorum=st.sampled_from(QUORUMS))
@settings(max_examples=20)
def test_what_a_snapshot_restores_goes_on_as_if_nothing_had_happened(seed: int, cut: int, quorum: Quorum) -> None:
    s = stream(seed, 400)
    counts, late, _, mark = Oracle(MINUTE, MINUTE, 16, quorum).run(s)
    common = rules(plan(), plan("hours", "1h"), quorum=quorum)
    first = PartitionState.fresh(common, 0, 0, 1)
    outcome = first.apply(s.chunk(0, cut))
    snapshot = capture(first)
    second = restore(common, 0, Restored(cut, snapshot.manifest, snapshot.blobs), 1)
    assert not second.changed()
    again = second.apply(s.chunk(cut, 400))
    assert len(late) == outcome.late.get("minutes", 0) + again.late.get("minutes", 0)
    assert second.watermark == mark
    sealed = finish(second)
    by_hour: dict[int, Counter[int]] = {}
    for start, window in counts.items():
        by_hour.setdefault(start // HOUR * HOUR, Counter()).update(window)
        assert exact(sealed["minutes", start], 2) == at_least(window, 2)
    if not late:
        for start, window in by_hour.items():
            assert exact(sealed["hours", start], 2) == at_least(window, 2)


def test_a_snapshot_from_before_the_quorum_is_taken_with_its_watermark() -> None:
    s = stream(21, 200)
    common = rules(quorum=Quorum())
    first = PartitionState.fresh(common, 0, 0, 1)
    first.apply(s.chunk(0, 200))
    snapshot = capture(first)
    assert snapshot.manifest["votes"]["scores"]  # type: ignore[index,call-overload]
    older = {name: value for name, value in snapshot.manifest.items() if name not in ("votes", "newest")}
    second = restore(common, 0, Restored(200, older, snapshot.blobs), 1)
    assert (second.watermark, second.newest) == (first.watermark, first.watermark)
    assert capture(second).manifest["votes"]["scores"] == []  # type: ignore[index,call-overload]
    broken = {**snapshot.manifest, "votes": {"slice": 15_000, "scores": [8], "lowest": [], "slices": []}}
    with pytest.raises(DataLossError, match="cannot be read"):
        restore(common, 0, Restored(200, broken, snapshot.blobs), 1)


def test_a_sketch_that_is_added_is_partial_up_to_the_newest_record_read_without_it() -> None:
    """The watermark lags behind: records beyond it were read, too."""
    times = EPOCH + np.arange(600, dtype=np.int64) * SECOND
    s = Stream(np.zeros(600, np.int64), times, times, np.ones(600, bool), np.zeros(600, bool))
    first = PartitionState.fresh(rules(quorum=Quorum()), 0, 0, 1)
    first.apply(s.chunk(0, 600))
    assert first.watermark < EPOCH + 8 * MINUTE
    snapshot = capture(first)
    both = rules(plan(), plan("new"), quorum=Quorum())
    second = restore(both, 0, Restored(600, snapshot.manifest, snapshot.blobs), 1)
    sketch_state = second.sketch_states["new"]
    assert sketch_state.progress.through == first.watermark // MINUTE * MINUTE + MINUTE
    assert sketch_state.partial.covers(EPOCH + 10 * MINUTE)
    assert not sketch_state.partial.covers(EPOCH + 11 * MINUTE)


@pytest.mark.parametrize("lost", [True, False])
def test_votes_do_not_reach_over_a_gap_or_a_cut(lost: bool) -> None:
    """Nine records that are far ahead, then records are lost or taken back: the tenth starts anew."""
    ahead = EPOCH + HOUR + np.arange(10, dtype=np.int64) * 15 * SECOND
    s = Stream(np.zeros(10, np.int64), ahead, ahead, np.ones(10, bool), np.zeros(10, bool))
    state = PartitionState.fresh(rules(quorum=Quorum()), 0, 0, 1)
    state.apply(s.chunk(0, 9))
    if lost:
        state.skip(20)
    else:
        state.rewind(5)
    last = s.chunk(9, 10)
    state.apply(
        replace(
            last,
            from_position=state.position,
            next_position=state.position + 1,
            offsets=last.offsets * 0 + state.position,
        )
    )
    assert state.watermark == NO_TIME
    kept = PartitionState.fresh(rules(quorum=Quorum()), 0, 0, 1)
    kept.apply(s.chunk(0, 9))
    kept.apply(s.chunk(9, 10))
    assert kept.watermark == ahead[0]


@pytest.mark.parametrize("lost", [True, False])
def test_a_snapshot_that_is_moved_by_recover_forgets_its_votes(lost: bool) -> None:
    s = stream(23, 200)
    common = rules(quorum=Quorum())
    state = PartitionState.fresh(common, 0, 0, 1)
    state.apply(s.chunk(0, 200))
    snapshot = capture(state)
    moved = deepcopy(dict(snapshot.manifest))
    moved["position"] = 250 if lost else 150
    if lost:
        mark_partial(moved)
    else:
        mark_diverged(moved)
    restored = restore(common, 0, Restored(moved["position"], moved, snapshot.blobs), 1)
    assert restored.watermark == state.watermark
    votes = [capture(one).manifest["votes"]["scores"] for one in (state, restored)]  # type: ignore[index,call-overload]
    assert votes[0]
    assert not votes[1]


@given(seed=st.integers(0, 10**6))
@settings(max_examples=10)
def test_payloads_have_no_say_in_what_is_sealed_when(seed: int) -> None:
    """Items, validity and nulls exchanged among the same envelopes: the same windows, seals and late records."""
    s = stream(seed, 400)
    order = np.random.default_rng(seed).permutation(400)
    other = replace(s, items=s.items[order], valid=s.valid[order], null=s.null[order])
    found = []
    for one in (s, other):
        state = PartitionState.fresh(rules(quorum=Quorum(3, 15 * SECOND)), 0, 0, 1)
        late: list[int] = []
        steps = []
        for begin in range(0, 400, 40):
            outcome = state.apply(one.chunk(begin, begin + 40), clock_ms=int(s.stamps[-1]))
            late += (begin + outcome.late_records).tolist()
            steps.append((state.watermark, outcome.sealed, outcome.future, outcome.early, outcome.jumps))
            through = [sketch_state.progress.through for sketch_state in state.sketch_states.values()]
            steps.append((outcome.unreadable_times, state.open_windows, through))
        found.append((late, steps, sorted(finish(state))))
    assert found[0] == found[1]
    assert found[0][2]


@pytest.mark.parametrize("cuts", [[], [3], [2, 5], [1, 2, 3, 4, 5, 6]])
def test_an_advance_holds_from_its_offset_on_however_late_it_is_read(cuts: list[int]) -> None:
    """Silence moved the watermark behind record 4; records before it are placed as if it had not."""
    times = np.full(7, EPOCH)
    s = Stream(np.zeros(7, np.int64), times, times, np.ones(7, bool), np.zeros(7, bool))
    state = PartitionState.fresh(rules(lateness_ms=0), 0, 0, 1)
    assert not state.advance_at(5, EPOCH + 10 * MINUTE)
    assert not state.advance_at(5, EPOCH + 5 * MINUTE)
    assert feed(state, s, cuts) == ([5, 6], [])
    assert state.watermark == EPOCH + 10 * MINUTE
    assert not state.advance_at(6, EPOCH + HOUR), "records behind it were placed already"
    assert state.watermark == EPOCH + 10 * MINUTE
    assert state.advance_at(7, EPOCH + HOUR)
    assert state.watermark == EPOCH + HOUR


def test_an_advance_behind_the_last_record_is_used_when_the_end_is_reached() -> None:
    """Control records or compacted ones follow: the chunk ends beyond its last record."""
    times = np.full(2, EPOCH)
    s = Stream(np.zeros(2, np.int64), times, times, np.ones(2, bool), np.zeros(2, bool))
    state = PartitionState.fresh(rules(lateness_ms=0), 0, 0, 1)
    state.advance_at(5, EPOCH + 10 * MINUTE)
    state.apply(s.chunk(0, 2))
    assert state.open_windows == 1
    empty = s.chunk(0, 0)
    outcome = state.apply(replace(empty, from_position=2, next_position=5))
    assert (outcome.sealed, state.watermark) == (1, EPOCH + 10 * MINUTE)


def test_lateness_uses_the_watermark_before_each_record() -> None:
    """Inside one batch: the record that moves the watermark does not make itself late; the next one may be."""
    times = np.array([EPOCH, EPOCH + 3 * MINUTE, EPOCH + 1, EPOCH + 2 * MINUTE], np.int64)
    s = Stream(np.arange(4), times, times + HOUR, np.ones(4, bool), np.zeros(4, bool))
    state = PartitionState.fresh(rules(lateness_ms=MINUTE), 0, 0, 1)
    assert feed(state, s, []) == ([2], [])


def test_a_future_record_moves_nothing() -> None:
    """Its own timestamp, as wrong as its time, does not speak for it."""
    times = np.array([EPOCH, EPOCH + 2 * HOUR, EPOCH + 1], np.int64)
    s = Stream(np.arange(3), times, times, np.ones(3, bool), np.zeros(3, bool))
    state = PartitionState.fresh(rules(), 0, 0, 1)
    assert feed(state, s, [], EPOCH) == ([], [1])
    assert state.watermark == EPOCH + 1
    assert state.open_windows == 1


def test_without_a_clock_nothing_is_future() -> None:
    s = stream(3, 50)
    assert PartitionState.fresh(rules(), 0, 0, 1).apply(s.chunk(0, 50)).future == 0
    chunk = replace(s.chunk(0, 50), timestamps=None)
    assert PartitionState.fresh(rules(), 0, 0, 1).apply(chunk).future == 0


def test_windows_are_opened_by_envelopes_alone() -> None:
    """Invalid items, nulls and items outside the domain open the same windows and make the same blobs dirty."""
    rng = np.random.default_rng(5)
    times = EPOCH + np.sort(rng.integers(0, 10 * MINUTE, 100))
    plain = Stream(np.zeros(100, np.int64), times, times, np.ones(100, bool), np.zeros(100, bool))
    no_ops = Stream(np.full(100, 99), times, times, np.zeros(100, bool), np.arange(100) % 2 == 0)
    snapshots = []
    for s in (plain, no_ops):
        state = PartitionState.fresh(rules(), 0, 0, 1)
        state.apply(s.chunk(0, 60))
        capture(state)
        state.apply(s.chunk(60, 100))
        snapshots.append(capture(state))
    shapes = [
        [(w["start"], w["end"], w["counts"]) for w in snapshot.manifest["sketches"]["minutes"]["windows"]]  # type: ignore[index,call-overload]
        for snapshot in snapshots
    ]
    assert shapes[0] == shapes[1]
    assert len(snapshots[0].blobs) == len(snapshots[1].blobs)
    assert len(snapshots[0].keep) == len(snapshots[1].keep)
    sizes = [
        [len(snapshot.blobs.get(w["blob"], b"")) for w in snapshot.manifest["sketches"]["minutes"]["windows"]]  # type: ignore[index,call-overload]
        for snapshot in snapshots
    ]
    assert sizes[0] == sizes[1]
    assert max(sizes[0]) > 0


def test_sizes_of_open_blobs_do_not_depend_on_items() -> None:
    sizes: list[list[int]] = []
    s = stream(11, 300, jitter_ms=1, step_ms=100)
    busy = np.zeros(300, np.int64)
    for items in (s.items, busy):
        state = PartitionState.fresh(rules(plan("hours", "1h"), lateness_ms=HOUR), 0, 0, 1)
        sizes.append([])
        for begin in range(0, 300, 50):
            state.apply(replace(s, items=items).chunk(begin, begin + 50))
            snapshot = capture(state)
            sizes[-1] += sorted(map(len, snapshot.blobs.values()))
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) >= 6


def test_a_sealed_window_never_reopens() -> None:
    state = PartitionState.fresh(rules(lateness_ms=0), 0, 0, 1)
    times = np.array([EPOCH, EPOCH + 5 * MINUTE], np.int64)
    s = Stream(np.arange(2), times, times, np.ones(2, bool), np.zeros(2, bool))
    state.apply(s.chunk(0, 2))
    snapshot = capture(state)
    restored = restore(rules(lateness_ms=10 * MINUTE), 0, Restored(2, snapshot.manifest, snapshot.blobs), 1)
    back = Stream(np.zeros(3, np.int64), np.full(3, EPOCH), np.full(3, EPOCH), np.ones(3, bool), np.zeros(3, bool))
    chunk = back.chunk(0, 1)
    outcome = restored.apply(replace(chunk, from_position=2, next_position=3, offsets=chunk.offsets + 2))
    assert outcome.late == {"minutes": 1}


def test_chunks_from_elsewhere_are_refused_and_change_nothing() -> None:
    s = stream(1, 100)
    state = PartitionState.fresh(rules(), 0, 0, 1)
    state.apply(s.chunk(0, 40))
    before = state.watermark, state.position
    for begin in (0, 39, 41):
        with pytest.raises(ValueError, match="starts at"):
            state.apply(s.chunk(begin, 90))
    assert (state.watermark, state.position) == before


def test_gaps_inside_a_chunk_are_legal() -> None:
    """Compaction and control records leave holes: positions, not offsets, say where a chunk belongs."""
    s = stream(2, 10)
    chunk = replace(s.chunk(0, 10), offsets=np.arange(10) * 7, next_position=80)
    state = PartitionState.fresh(rules(), 0, 0, 1)
    state.apply(chunk)
    assert state.position == 80
    empty = s.chunk(0, 0)
    state.apply(replace(empty, from_position=80, next_position=95))
    assert state.position == 95


def test_long_chunks_keep_few_windows_open() -> None:
    """Six hours of minutes in one chunk: windows are sealed on the way, not held together."""
    n = 720
    times = EPOCH + np.arange(n, dtype=np.int64) * 30_000
    s = Stream(np.arange(n) % 16, times, times, np.ones(n, bool), np.zeros(n, bool))
    state = PartitionState.fresh(rules(lateness_ms=2 * MINUTE), 0, 0, 1)
    most = 0
    opened = state.lifecycle.opening

    def watch(*args: object) -> Steps[OpenWindow | None]:
        nonlocal most
        out = yield from opened(*args)  # type: ignore[arg-type]
        most = max(most, state.open_windows)
        return out

    state.lifecycle.opening = watch  # type: ignore[method-assign,assignment]
    state.apply(s.chunk(0, n))
    assert most <= 5
    capture(state)
    assert len(published(state)) == 360 - 3


def test_idle_partitions_follow_the_clock_and_never_go_back() -> None:
    state = PartitionState.fresh(rules(lateness_ms=0), 0, 0, 1)
    assert state.outbox.empty
    assert state.advance(EPOCH + MINUTE)
    state.seal()
    assert not state.advance(EPOCH)
    snapshot = capture(state)
    entries, frontiers = state.outbox.captured()
    assert entries == ()
    assert [(one.published_through, one.sequence) for one in frontiers] == [(EPOCH + MINUTE, 1)]
    assert snapshot.manifest["watermark"] == EPOCH + MINUTE
    times = np.array([EPOCH + 1], np.int64)
    s = Stream(np.zeros(1, np.int64), times, times, np.ones(1, bool), np.zeros(1, bool))
    assert state.apply(s.chunk(0, 1)).late == {"minutes": 1}


def test_several_sketches_have_their_own_windows_and_lateness() -> None:
    times = EPOCH + np.array([0, 10 * MINUTE, 30_000], np.int64)
    s = Stream(np.arange(3), times, times, np.ones(3, bool), np.zeros(3, bool))
    state = PartitionState.fresh(rules(plan(), plan("hours", "1h"), lateness_ms=0), 0, 0, 1)
    outcome = state.apply(s.chunk(0, 3))
    assert outcome.late == {"minutes": 1}
    assert outcome.late_records.tolist() == [2]
    sealed = finish(state)
    assert exact(sealed["hours", EPOCH], 1) == 3
    assert exact(sealed["minutes", EPOCH], 1) == 1


def test_packed_records_spread_over_windows() -> None:
    """Several occurrences a record: each goes where its record's time says, invalid ones alone are left out."""
    batch = Events(
        record=np.array([0, 0, 1, 1, 1], np.int64),
        items=Items.of(np.array([1, 2, 1, 1, 3], np.int64)),
        weights=None,
        valid=np.array([True, False, True, True, True]),
        times=EPOCH + np.array([0, MINUTE, MINUTE], np.int64),
        null=np.array([False, False, False]),
    )
    state = PartitionState.fresh(rules(), 0, 0, 1)
    outcome = state.apply(Chunk(0, 0, 3, np.arange(3), None, batch))
    assert (outcome.updates, outcome.invalid, outcome.undecodable_records.size) == (4, 1, 0)
    sealed = finish(state)
    assert exact(sealed["minutes", EPOCH], 1) == 1
    assert exact(sealed["minutes", EPOCH + MINUTE], 2) == 1
    assert exact(sealed["minutes", EPOCH + MINUTE], 1) == 2


@pytest.mark.parametrize(
    "offsets",
    [[10, 11, 12, 13, 14], [10, 11, 12, 10, 11, 12, 13], [12, 13, 14, 15], [9, 10, 11, 12], [10, 10, 11, 12, 13]],
)
def test_a_chunk_with_records_of_other_positions_changes_nothing(offsets: list[int]) -> None:
    s = stream(3, 20)
    state = PartitionState.fresh(rules(), 0, 0, 1)
    state.apply(s.chunk(0, 10))
    windows = [window for sketch_state in state.sketch_states.values() for window in sketch_state.windows.values()]
    before = [window.sketch._open_state("test").copy() for window in windows]
    sound = s.chunk(10, 14)
    chosen = np.array(offsets)
    batch = Events(None, Items.of(s.items[chosen]), None, s.valid[chosen], s.times[chosen], s.null[chosen])
    with pytest.raises(ValueError, match="from 10 to 14 has"):
        state.apply(replace(sound, offsets=chosen, timestamps=s.stamps[chosen], events=batch))
    assert state.position == 10
    for window, counters in zip(windows, before, strict=True):
        assert (window.sketch._open_state("test") == counters).all()
    state.apply(sound)
    assert state.position == 14


def test_refused_records_are_named_by_reason() -> None:
    n = 5
    times = np.array([EPOCH, NO_TIME, EPOCH + 9 * HOUR, EPOCH, EPOCH], np.int64)
    valid = np.array([False, True, True, False, True])
    null = np.array([False, False, False, True, False])
    s = Stream(np.zeros(n, np.int64), times, np.full(n, EPOCH), valid, null)
    outcome = PartitionState.fresh(rules(), 0, 0, 1).apply(s.chunk(0, n), clock_ms=EPOCH)
    assert outcome.undecodable_records.tolist() == [0]
    assert outcome.time_records.tolist() == [1]
    assert outcome.future_records.tolist() == [2]
    assert (outcome.nulls, outcome.invalid, outcome.updates) == (1, 1, 1)


def test_misplaced_items_are_no_ops() -> None:
    ids = np.arange(16, dtype=np.int64)
    here = belongs(Items.of(ids), "murmur2", [4], 1)
    assert 0 < here.sum() < 16
    s = Stream(ids, np.full(16, EPOCH), np.full(16, EPOCH), np.ones(16, bool), np.zeros(16, bool), partition=1)
    asked: list[str] = []

    def count(what: str) -> int:
        asked.append(what)
        return 4

    state = PartitionState.fresh(rules(partitioner="murmur2"), 1, 0, 4)
    outcome = asking(state.applying(s.chunk(0, 16)), lambda: count("windows"), lambda: count("items"))
    assert outcome.misplaced == 16 - here.sum()
    assert outcome.updates == here.sum()
    assert asked == ["items", "windows"], "once a chunk for items, and afresh for what the watermark passed"
    (found,) = finish(state).values()
    assert found.slots == here.sum() == items_kept(spec().domain, "murmur2", 4, 1).sum()  # type: ignore[arg-type]
    assert exact(found, 1) == here.sum()


def test_partitions_added_in_mid_window_are_valid_from_then_on() -> None:
    """A producer that already knows the new number of partitions is right as soon as the worker asks."""
    key = Key(bytes(16))
    ids = np.arange(64, dtype=np.int64)
    old, new = (belongs(Items.of(ids), "murmur2", [n], 1) for n in (4, 6))
    moved = ids[new & ~old]
    assert moved.size
    common = replace(rules(plan(made=open_spec(slots=4096)), partitioner="murmur2"), key=key)
    state = PartitionState.fresh(common, 1, 0, 4)
    first = ids[old]
    n = first.size + moved.size
    s = Stream(
        np.concatenate([first, moved]), np.full(n, EPOCH), np.full(n, EPOCH), np.ones(n, bool), np.zeros(n, bool), 1
    )
    assert asking(state.applying(s.chunk(0, first.size)), lambda: 4).misplaced == 0
    assert asking(state.applying(s.chunk(first.size, n)), lambda: 6).misplaced == 0
    snapshot = capture(state)
    state = restore(common, 1, Restored(n, snapshot.manifest, snapshot.blobs), 6)
    (found,) = finish(state).values()
    assert found.origin.partitions == (4, 6)
    assert found.repartitioned


def test_before_a_window_is_sealed_the_cluster_is_asked_for_its_partitions() -> None:
    """No item is misplaced, so that nothing but the seal itself makes the state ask."""
    asked: list[int] = []

    def count_now() -> int:
        asked.append(6)
        return 6

    times = EPOCH + np.array([0, 0.5, 2, 30]) * MINUTE
    times = times.astype(np.int64)
    s = Stream(np.zeros(4, np.int64), times, times, np.zeros(4, bool), np.ones(4, bool))
    for cut in (3, 4):  # sealed behind the chunk, and inside it
        state = PartitionState.fresh(rules(partitioner="murmur2"), 0, 0, 4)
        asking(state.applying(s.chunk(0, 1)), lambda: 4)
        asking(state.applying(s.chunk(1, 2)), count_now)
        assert asked == []
        asking(state.applying(s.chunk(2, cut)), count_now)
        assert asked == [6], "once a chunk, and only when something is sealed"
        asked.clear()
        found = finish(state)
        assert [found["minutes", int(t)].repartitioned for t in times[::2][:2]] == [True, True]
        state.set_partitions(5)
        assert state.counts.now == 6
    state = PartitionState.fresh(rules(partitioner="murmur2"), 0, 0, 4)
    asking(state.applying(s.chunk(0, 1)), lambda: 4)
    state.advance(EPOCH + HOUR)
    asking(state.sealing(), count_now)
    assert asked == [6]
    assert published_after(state)[0].repartitioned


def test_a_misplaced_payload_does_not_decide_what_a_seal_hears_of_partitions() -> None:
    """Partitions are added between a misplaced item and the seal that its chunk causes: both worlds must say so."""
    said = {}
    for misplaced in (True, False):
        answers = iter([4, 6] if misplaced else [6])
        here = next(item for item in range(16) if belongs_to(item, 4) == belongs_to(item, 6) == 0)
        away = next(item for item in range(16) if belongs_to(item, 4) != 0)
        times = (EPOCH + np.array([0, 0.5, 30]) * MINUTE).astype(np.int64)
        items = np.array([here, away if misplaced else here, here])
        s = Stream(items, times, times, np.ones(3, bool), np.zeros(3, bool))
        state = PartitionState.fresh(rules(partitioner="murmur2"), 0, 0, 4)
        outcome = asking(state.applying(s.chunk(0, 3)), lambda answers=answers: next(answers))  # type: ignore[misc]
        assert outcome.misplaced == int(misplaced)
        assert outcome.sealed == 1
        found = published_after(state)[0]
        said[misplaced] = (found.origin.partition_counts, state.counts.now)
    assert said[True] == said[False] == ((4, 6), 6)


def belongs_to(item: int, partitions: int) -> int:
    """The partition that the Java client's partitioner chooses."""
    return next(p for p in range(partitions) if belongs(Items.of([item]), "murmur2", (partitions,), p)[0])


def published_after(state: PartitionState) -> list[Release | SealedState]:
    capture(state)
    return list(published(state).values())


def test_partitions_without_items_of_a_list_keep_no_sketch() -> None:
    ids = np.arange(2, dtype=np.int64)
    empty = next(p for p in range(64) if not belongs(Items.of(ids), "murmur2", [64], p).any())
    s = Stream(np.zeros(1, np.int64), np.full(1, EPOCH), np.full(1, EPOCH), np.ones(1, bool), np.zeros(1, bool), empty)
    state = PartitionState.fresh(rules(plan(made=spec(2)), partitioner="murmur2"), empty, 0, 64)
    state.apply(s.chunk(0, 1))
    assert state.open_windows == 0
    assert state.watermark == EPOCH


@pytest.mark.parametrize("steps", [1, 2])
def test_an_added_sketch_begins_with_the_next_window(steps: int) -> None:
    """Records of windows from before it are neither counted nor late, also after another restart."""
    before = rules(lateness_ms=0)
    state = PartitionState.fresh(before, 0, 0, 1)
    minutes = [0, 0, 1, 125, 1, 45, 70, 200]
    times = EPOCH + MINUTE * np.array(minutes, np.int64)
    n = len(times)
    s = Stream(np.arange(n), times, times, np.ones(n, bool), np.zeros(n, bool))
    state.apply(s.chunk(0, 2))
    snapshot = capture(state)
    both = rules(plan(), replace(plan("hours", "1h" if steps == 1 else "30m"), steps=steps), lateness_ms=0)
    state = restore(both, 0, Restored(2, snapshot.manifest, snapshot.blobs), 1)
    outcome = state.apply(s.chunk(2, 4))
    assert outcome.late == {}
    second = capture(state)
    _, frontiers = state.outbox.captured()
    frontier = next(one for one in frontiers if one.sketch == "hours")
    assert frontier.partial.through == EPOCH + HOUR
    blobs = {**snapshot.blobs, **second.blobs}
    state = restore(both, 0, Restored(4, second.manifest, blobs), 1)
    late = state.apply(s.chunk(4, 7)).late  # of 45 minutes: in a window that it had where windows overlap
    assert late == {"minutes": 3, "hours": steps}
    state.apply(s.chunk(7, 8))
    assert ("hours", EPOCH) not in finish(state)
    assert ("hours", EPOCH + 2 * HOUR) in published(state)


def test_a_removed_sketch_finishes_its_windows() -> None:
    both = rules(plan(), plan("hours", "1h"), lateness_ms=0)
    state = PartitionState.fresh(both, 0, 0, 1)
    times = EPOCH + np.array([0, 10 * MINUTE, 20 * MINUTE, 90 * MINUTE], np.int64)
    s = Stream(np.arange(4), times, times, np.ones(4, bool), np.zeros(4, bool))
    state.apply(s.chunk(0, 2))
    snapshot = capture(state)
    state = restore(rules(lateness_ms=0), 0, Restored(2, snapshot.manifest, snapshot.blobs), 1)
    state.apply(s.chunk(2, 4))
    middle = capture(state)
    sealed = published(state)
    assert exact(sealed["hours", EPOCH], 1) == 3
    assert ("hours", EPOCH + HOUR) not in sealed
    frontiers = {one.sketch: one for one in state.outbox.captured()[1]}
    assert frontiers["hours"].published_through == EPOCH + HOUR
    later = capture(state)
    state = restore(
        both, 0, Restored(4, later.manifest, {**snapshot.blobs, **middle.blobs, **later.blobs}), 1
    )  # and it is put back
    state.apply(replace(s.chunk(3, 4), from_position=4, next_position=5, offsets=np.array([4])))
    assert state.sketch_states["hours"].windows == {}, "the second hour began without it"
    assert state.changed()
    capture(state)
    back = {one.sketch: one for one in state.outbox.captured()[1]}["hours"]
    assert back.sequence > frontiers["hours"].sequence
    assert back.partial.through == EPOCH + 2 * HOUR
    assert back.published_through == EPOCH + HOUR, "the watermark has not passed the second one"


def test_a_changed_width_leaves_open_windows_alone() -> None:
    """Hours become quarters of an hour: the open hour keeps its bounds, the next windows are quarters."""
    state = PartitionState.fresh(rules(plan("w", "1h"), lateness_ms=0), 0, 0, 1)
    times = EPOCH + np.array([0, 20, 70, 100, 200], np.int64) * MINUTE
    s = Stream(np.arange(5), times, times, np.ones(5, bool), np.zeros(5, bool))
    state.apply(s.chunk(0, 1))
    snapshot = capture(state)
    state = restore(rules(plan("w", "15m"), lateness_ms=0), 0, Restored(1, snapshot.manifest, snapshot.blobs), 1)
    state.apply(s.chunk(1, 5))
    capture(state)
    windows = {entry.window for entry in state.outbox.captured()[0]}
    assert windows == {
        (EPOCH, EPOCH + HOUR),
        (EPOCH + 60 * MINUTE, EPOCH + 75 * MINUTE),
        (EPOCH + 90 * MINUTE, EPOCH + 105 * MINUTE),
    }
    assert exact(published(state)["w", EPOCH], 1) == 2


def test_a_wider_window_is_cut_around_open_ones() -> None:
    state = PartitionState.fresh(rules(plan("w", "15m"), lateness_ms=0), 0, 0, 1)
    times = EPOCH + np.array([20, 31, 50, 61, 200], np.int64) * MINUTE
    s = Stream(np.arange(5), times, times, np.ones(5, bool), np.zeros(5, bool))
    state.apply(s.chunk(0, 1))
    snapshot = capture(state)
    state = restore(rules(plan("w", "1h"), lateness_ms=0), 0, Restored(1, snapshot.manifest, snapshot.blobs), 1)
    state.apply(s.chunk(1, 5))
    capture(state)
    windows = sorted(entry.window for entry in state.outbox.captured()[0])
    assert windows == [
        (EPOCH + 15 * MINUTE, EPOCH + 30 * MINUTE),
        (EPOCH + 30 * MINUTE, EPOCH + HOUR),
        (EPOCH + HOUR, EPOCH + 2 * HOUR),
    ]
    assert exact(published(state)["w", EPOCH + 30 * MINUTE], 1) == 2


def test_an_open_window_finishes_under_its_spec() -> None:
    state = PartitionState.fresh(rules(plan(made=spec(16))), 0, 0, 1)
    times = EPOCH + np.array([0, 1, 5 * MINUTE], np.int64)
    s = Stream(np.array([1, 1, 20]), times, times, np.ones(3, bool), np.zeros(3, bool))
    state.apply(s.chunk(0, 1))
    snapshot = capture(state)
    wider = rules(plan(made=spec(32)))
    state = restore(wider, 0, Restored(1, snapshot.manifest, snapshot.blobs), 1)
    state.apply(s.chunk(1, 3))
    sealed = finish(state)
    assert (sealed["minutes", EPOCH].slots, sealed["minutes", EPOCH + 5 * MINUTE].slots) == (16, 32)
    assert exact(sealed["minutes", EPOCH], 2) == 1
    assert exact(sealed["minutes", EPOCH + 5 * MINUTE], 1) == 1


def test_another_key_halts_and_says_what_to_do() -> None:
    common = replace(rules(plan(made=open_spec())), key=Key(bytes(16)))
    state = PartitionState.fresh(common, 0, 0, 1)
    s = stream(1, 10)
    state.apply(s.chunk(0, 10))
    snapshot = capture(state)
    with pytest.raises(DataLossError, match=r"another hash key.*reset"):
        restore(replace(common, key=Key(bytes(15) + b"1")), 0, Restored(10, snapshot.manifest, snapshot.blobs), 1)


def test_snapshots_that_do_not_fit_halt() -> None:
    state = PartitionState.fresh(rules(), 0, 0, 1)
    state.apply(stream(1, 50).chunk(0, 50))
    snapshot = capture(state)

    def restored_with(
        partition: int = 0, position: int = 50, blobs: dict[str, bytes] | None = None, **changed: object
    ) -> None:
        manifest = {**snapshot.manifest, **changed}
        restore(
            rules(),
            partition,
            Restored(position, manifest, snapshot.blobs if blobs is None else blobs),
            1,  # type: ignore[arg-type]
        )

    restored_with()
    for broken in (
        {"format": 5},
        {"partition": 1},
        {"position": 49},
        {"watermark": "soon"},
        {"sketches": None},
        {"sketches": {"minutes": {"windows": [{}]}}},
        {"outbox": [{}]},
        {"frontiers": [{"sketch": "x"}]},
        {"revision": 7},
    ):
        with pytest.raises(DataLossError):
            restored_with(**broken)  # type: ignore[arg-type]
    with pytest.raises(DataLossError):
        restored_with(blobs={})
    with pytest.raises(DataLossError):
        restored_with(blobs=dict.fromkeys(snapshot.blobs, b"rubbish"))
    names = list(snapshot.blobs)
    swapped = dict(zip(names, [snapshot.blobs[name] for name in names[1:] + names[:1]], strict=True))
    assert len(names) > 1
    with pytest.raises(DataLossError):
        restored_with(blobs=swapped)


def test_noise_is_drawn_once_and_kept_over_restarts() -> None:
    """At epsilon 1: the sealed state minus the truth is the noise that the first snapshot held."""
    made = spec(64, "1", publish="state", intrusion=False)
    common = rules(plan(made=made))
    state = PartitionState.fresh(common, 0, 0, 1)
    times = np.full(40, EPOCH)
    s = Stream(np.arange(40), times, times, np.ones(40, bool), np.zeros(40, bool))
    state.apply(s.chunk(0, 10))
    snapshot = capture(state)
    results = []
    for cuts in ([25], [11, 12, 39]):  # replayed twice from the same snapshot, as after two kills
        state = restore(common, 0, Restored(10, snapshot.manifest, snapshot.blobs), 1)
        edges = [10, *cuts, 40]
        for begin, end in pairwise(edges):
            state.apply(s.chunk(begin, end))
        (found,) = finish(state).values()
        assert isinstance(found, SealedState)
        results.append(found)
    assert (results[0].state == results[1].state).all()
    assert results[0].layers == results[1].layers
    assert results[0].state.std() > 0
    other = PartitionState.fresh(common, 0, 0, 1)
    other.apply(s.chunk(0, 40))
    (found,) = finish(other).values()
    assert isinstance(found, SealedState)
    assert found.layers[0].lineage != results[0].layers[0].lineage
    assert (found.state != results[0].state).any()


def test_an_outbox_survives_until_it_is_published() -> None:
    state = PartitionState.fresh(rules(lateness_ms=0), 0, 0, 1)
    times = EPOCH + np.array([0, 2 * MINUTE], np.int64)
    s = Stream(np.arange(2), times, times, np.ones(2, bool), np.zeros(2, bool))
    state.apply(s.chunk(0, 2))
    assert state.outbox.captured() == ((), ()), "nothing may leave before it is in a snapshot"
    snapshot = capture(state)
    entries, frontiers = state.outbox.captured()
    assert len(entries) == len(frontiers) == 1
    again = restore(rules(lateness_ms=0), 0, Restored(2, snapshot.manifest, snapshot.blobs), 1)
    assert again.outbox.captured() == (entries, frontiers)
    again.published(entries, frontiers)
    assert again.changed()
    after = capture(again)
    assert after.manifest["outbox"] == []
    assert after.manifest["frontiers"] == []
    sealed_blob = next(name for name, data in snapshot.blobs.items() if data == entries[0].body)
    assert sealed_blob not in after.keep | after.blobs.keys()
    assert read_published(entries[0].body).seal_id == entries[0].seal_id  # type: ignore[union-attr]


def test_windows_without_new_records_are_not_written_again() -> None:
    state = PartitionState.fresh(rules(plan("hours", "1h"), lateness_ms=2 * HOUR), 0, 0, 1)
    times = EPOCH + np.array([0, HOUR, HOUR + 1], np.int64)
    s = Stream(np.arange(3), times, times, np.ones(3, bool), np.zeros(3, bool))
    state.apply(s.chunk(0, 2))
    first = capture(state)
    assert (len(first.blobs), len(first.keep)) == (2, 0)
    state.apply(s.chunk(2, 3))
    second = capture(state)
    assert (len(second.blobs), len(second.keep)) == (1, 1)
    assert second.keep < first.blobs.keys()
    assert not second.blobs.keys() & first.blobs.keys(), "a name is never used twice"


@pytest.mark.parametrize("restarted", [False, True])
def test_delayed_records_after_a_loss_do_not_end_what_windows_may_lack(restarted: bool) -> None:
    """Minute 20 is lost; what is read next was delayed by a quarter of an hour, then come records of minute 20 on."""
    minutes = [0.0, 1.0, *(5 + one / 10 for one in range(9)), *(20 + one / 10 for one in range(200))]
    times = EPOCH + np.array([round(one * MINUTE) for one in minutes], np.int64)
    n = len(times)
    s = Stream(np.arange(n), times, times, np.ones(n, bool), np.zeros(n, bool))
    common = rules(quorum=Quorum(), lateness_ms=MINUTE)
    state = PartitionState.fresh(common, 0, 0, 1)
    state.apply(s.chunk(0, 2))
    state.skip(7)
    before = capture(state)
    for at in range(2, n):
        part = s.chunk(at, at + 1)
        state.apply(replace(part, from_position=at + 5, next_position=at + 6, offsets=part.offsets + 5))
        if restarted and at in (4, 13):
            middle = capture(state)
            blobs = {**before.blobs, **middle.blobs}
            state = restore(common, 0, Restored(at + 6, middle.manifest, blobs), 1)
            before = replace(middle, blobs=blobs)
    found = state.sketch_states["minutes"].partial
    assert found.covers(EPOCH + 21 * MINUTE)
    assert not found.covers(EPOCH + 25 * MINUTE)


@pytest.mark.parametrize("cuts", [[], [1], [2], [1, 2, 3]])
@pytest.mark.parametrize("way", ["fresh", "skip"])
def test_after_a_start_in_mid_stream_the_first_windows_are_partial(cuts: list[int], way: str) -> None:
    """Up to the window of the first record that moved the watermark, and the lateness beyond it: what was lost may have
    come out of order. It does not matter how the records were cut into chunks.
    """
    times = EPOCH + np.array([90, 10, 150, 400], np.int64) * 1000
    s = Stream(np.arange(4), times, times, np.ones(4, bool), np.zeros(4, bool))
    common = rules(lateness_ms=2 * MINUTE)
    if way == "fresh":
        state = PartitionState.fresh(common, 0, 0, 1, partial=True)
    else:
        state = PartitionState.fresh(common, 0, -5, 1)
        state.skip(0)
        with pytest.raises(ValueError, match="only skip forward"):
            state.skip(0)
    feed(state, s, cuts)
    capture(state)
    (frontier,) = state.outbox.captured()[1]
    assert frontier.partial.through == EPOCH + 4 * MINUTE
