"""The quorum that moves a watermark: the compiled rule against its twin, what it survives, and what it does not."""

from __future__ import annotations

from itertools import pairwise

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.streams import EPOCH, HOUR, MINUTE, SECOND
from helpers.watermark_reference import Reference
from sketchstream.stream.state.watermark import Watermark
from sketchstream.stream.windows.calendar import DAY_MS, EARLIEST_MS, LATEST_MS, NO_TIME
from sketchstream.stream.windows.quorum import MAXIMUM, Quorum

LATENESS = 10 * MINUTE

QUORUMS = st.builds(
    lambda records, time_ms, most: Quorum(records, time_ms, max(records, most)),
    st.sampled_from([1, 2, 3, 10]),
    st.sampled_from([1, 50, 20 * SECOND, 150 * SECOND]),
    st.sampled_from([1, 5, 40, 10_000]),
)


def records(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and timestamps of every kind: steady, far ahead, delayed, before 1970, unreadable, without a timestamp."""
    rng = np.random.default_rng(seed)
    step = int(rng.choice([10, 1000, 20 * SECOND, 10 * MINUTE]))
    now = EPOCH + np.cumsum(rng.integers(0, step, n))
    times, stamps = now.copy(), now.copy()
    kind = rng.choice(8, n, p=rng.dirichlet(np.full(8, 0.5)))
    wrong = rng.integers(0, 2 * HOUR, n)
    times[kind == 1] += wrong[kind == 1]
    stamps[kind == 1] += wrong[kind == 1]
    times[kind == 2] += wrong[kind == 2]
    times[kind == 3] -= wrong[kind == 3]
    times[kind == 4] -= wrong[kind == 4]
    stamps[kind == 4] -= wrong[kind == 4]
    stamps[kind == 5] = -1
    odd = rng.choice([NO_TIME, 5, -40 * 365 * DAY_MS, LATEST_MS, LATEST_MS - 1, EPOCH + 200 * 365 * DAY_MS // 100], n)
    times[kind == 6] = odd[kind == 6]
    stamps[kind == 7] = rng.choice([0, 1, 2**62, -(2**62)], n)[kind == 7]
    return times, stamps


@given(
    seed=st.integers(0, 10**6), quorum=QUORUMS, lateness=st.sampled_from([0, MINUTE, LATENESS]), stamped=st.booleans()
)
@settings(max_examples=60, deadline=None)
def test_the_compiled_rule_is_the_one_written_down(seed: int, quorum: Quorum, lateness: int, stamped: bool) -> None:
    times, stamps = records(seed, 120)
    bound = int(np.quantile(times[times > 0], 0.95)) if (times > 0).any() else LATEST_MS
    slow = Reference(quorum, lateness)
    fast = Watermark(quorum, lateness)
    rng = np.random.default_rng(seed)
    for i in range(times.size):
        found = fast.admit(times[i : i + 1], stamps[i : i + 1] if stamped else None, bound)
        wanted = slow.admit(int(times[i]), int(stamps[i]) if stamped else None, bound)
        assert (int(found.before[0]), int(found.verdict[0])) == wanted
        assert fast.value == slow.value
        assert list(fast.scores) == slow.scores()
        assert all(a >= b > 0 for a, b in pairwise([*fast.scores, 1]))
        if rng.random() < 0.02:
            ahead = fast.value + int(rng.integers(-MINUTE, 20 * MINUTE)) if fast.value != NO_TIME else EPOCH
            fast.advance(ahead)
            slow.advance(ahead)


@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(1, 1999), max_size=12),
    killed=st.integers(0, 1999),
    quorum=QUORUMS,
)
@settings(max_examples=40, deadline=None)
def test_chunks_and_restarts_change_nothing(seed: int, cuts: list[int], killed: int, quorum: Quorum) -> None:
    """Kill and restore anywhere, in the middle of a vote too: the same watermark before each record."""
    times, stamps = records(seed, 2000)
    whole = Watermark(quorum, LATENESS).admit(times, stamps)
    assert np.all(whole.before[1:] >= whole.before[:-1]), "a watermark never falls"
    mark = Watermark(quorum, LATENESS)
    for begin, end in pairwise([0, *sorted({*cuts, killed} - {0}), 2000]):
        if begin == killed:
            fields = msgpack.unpackb(msgpack.packb(mark.fields()))
            restored = Watermark(quorum, LATENESS)
            restored.restore(mark.value, fields)
            mark = restored
        part = mark.admit(times[begin:end], stamps[begin:end])
        assert part.before.tolist() == whole.before[begin:end].tolist()
        assert part.verdict.tolist() == whole.verdict[begin:end].tolist()


# ------------------------------------------------------------------------------------------ what it survives


def steady(seed: int, seconds: int, per_s: float = 10.0) -> tuple[np.ndarray, np.ndarray]:
    """Right clocks: event times up to two seconds before their timestamps."""
    rng = np.random.default_rng(seed)
    stamps = EPOCH + np.sort(rng.integers(0, seconds * SECOND, int(seconds * per_s)))
    return stamps - rng.integers(0, 2 * SECOND, stamps.size), stamps


def late(times: np.ndarray, before: np.ndarray, width: int = HOUR) -> np.ndarray:
    return times // width * width + width + LATENESS <= before


def closing_delay(stamps: np.ndarray, before: np.ndarray, end: int) -> float:
    """Minutes from window end + lateness until it closes."""
    return float(stamps[np.argmax(before >= end + LATENESS)] - end - LATENESS) / MINUTE


def test_one_fast_record_makes_nothing_late() -> None:
    """58 minutes ahead, just within the hour that used to be allowed."""
    times, stamps = steady(1, 7200)
    times[9000] = stamps[9000] = stamps[9000] + 58 * MINUTE
    found = Watermark(Quorum(), LATENESS).admit(times, stamps)
    assert not late(times, found.before).any()
    assert found.early == 1
    assert found.jumps == 0
    assert 0 < closing_delay(stamps, found.before, EPOCH + HOUR) < 3
    assert late(times, Watermark(MAXIMUM, LATENESS).admit(times, stamps).before).mean() > 0.3


@pytest.mark.parametrize("ahead", [20, 45, 59])
@pytest.mark.parametrize("share", [0.02, 0.4])
def test_a_fast_producer_makes_nothing_late(ahead: int, share: float) -> None:
    times, stamps = steady(2, 4 * 3600)
    wrong = np.random.default_rng(3).random(times.size) < share
    times[wrong] += ahead * MINUTE
    stamps[wrong] += ahead * MINUTE
    before = Watermark(Quorum(), LATENESS).admit(times, stamps).before
    assert not late(times, before)[~wrong].any()
    assert closing_delay(stamps - wrong * ahead * MINUTE, before, EPOCH + 2 * HOUR) < 3


@pytest.mark.parametrize(("n", "seconds", "moves"), [(9, 600, False), (10, 100, False), (10, 135, True)])
def test_a_quorum_takes_ten_records_in_ten_slices(n: int, seconds: int, moves: bool) -> None:
    """Nobody else sends meanwhile: the third case is what a producer alone with a wrong clock can do."""
    times, stamps = steady(4, 3600)
    alone = times[-1] + 59 * MINUTE + np.linspace(0, seconds * SECOND, n).astype(np.int64)
    mark = Watermark(Quorum(), LATENESS)
    mark.admit(times, stamps)
    mark.admit(alone, alone)
    assert (mark.value > stamps[-1]) == moves
    if moves:
        assert mark.value == alone[0]


def test_very_many_records_at_once_are_a_quorum() -> None:
    times, stamps = steady(5, 3600)
    for n, moves in ((9_999, False), (10_001, True)):
        burst = np.sort(np.random.default_rng(6).integers(0, 1000, n)) + stamps[-1] + 59 * MINUTE
        mark = Watermark(Quorum(), LATENESS)
        mark.admit(times, stamps)
        mark.admit(burst, burst)
        assert (mark.value > stamps[-1]) == moves


def test_a_first_record_in_2150_does_not_close_the_partition() -> None:
    times, stamps = steady(7, 2 * 3600)
    times[0] = stamps[0] = 5_680_281_600_000
    mark = Watermark(Quorum(), LATENESS)
    found = mark.admit(times, stamps)
    assert not late(times, found.before).any()
    assert closing_delay(stamps, found.before, EPOCH + HOUR) < 5
    judged = Watermark(Quorum(), LATENESS).admit(times, stamps, int(stamps[-1]) + LATENESS)
    assert (judged.future, int(judged.verdict[0]), judged.verdict[1:].any()) == (1, 1, False)


def test_with_right_timestamps_no_share_of_wrong_times_passes_the_clock() -> None:
    times, stamps = steady(8, 4 * 3600)
    wrong = np.random.default_rng(9).random(times.size) < 0.9
    times[wrong] += 59 * MINUTE
    before = Watermark(Quorum(), LATENESS).admit(times, stamps).before
    assert (before[1:] <= stamps[:-1]).all()
    assert not late(times, before).any()
    assert closing_delay(stamps, before, EPOCH + 2 * HOUR) < 3


def test_records_without_a_timestamp_stand_by_their_event_time() -> None:
    times, _ = steady(10, 4 * 3600)
    wrong = np.random.default_rng(11).random(times.size) < 0.02
    times[wrong] += 45 * MINUTE
    with_none = Watermark(Quorum(), LATENESS).admit(times, np.full(times.size, -1))
    assert (with_none.future, with_none.unreadable) == (0, 0)
    assert not late(times, with_none.before)[~wrong].any()
    assert with_none.before.tolist() == Watermark(Quorum(), LATENESS).admit(times, None).before.tolist()


def test_delayed_uploads_hold_nothing_up() -> None:
    """60% of the events come two hours late, and 2% are 45 min fast; a gateway stamps all of them."""
    rng = np.random.default_rng(12)
    times, stamps = steady(12, 6 * 3600)
    held = rng.random(times.size) < 0.6
    times[held] -= rng.gamma(4.0, HOUR / 2, int(held.sum())).astype(np.int64)
    wrong = rng.random(times.size) < 0.02
    times[wrong] += 45 * MINUTE
    before = Watermark(Quorum(), LATENESS).admit(times, stamps).before
    assert not late(times, before)[~held & ~wrong].any()
    assert all(closing_delay(stamps, before, EPOCH + hour * HOUR) < 5 for hour in (2, 3, 4, 5))


def test_live_records_in_a_back_fill_close_nothing() -> None:
    rng = np.random.default_rng(13)
    times = EPOCH + np.arange(86_400) * SECOND
    stamps = EPOCH + 30 * DAY_MS + np.arange(86_400)
    live = rng.choice(86_400, 20, replace=False)
    right = np.ones(86_400, bool)
    right[live] = False
    times[live] = stamps[live]
    mark = Watermark(Quorum(), LATENESS)
    before = mark.admit(times, stamps).before
    assert not late(times, before)[right].any()
    assert EPOCH + DAY_MS - HOUR < mark.value < EPOCH + DAY_MS


@pytest.mark.parametrize("seconds", [15, 30, 105, 120, 1200, 64 * 15, 4096 * 15])
def test_records_at_exact_periods_are_not_far_ahead_of_their_watermark(seconds: int) -> None:
    """Also where the period is a multiple of all the slices that can be told apart."""
    times = EPOCH + np.arange(400) * seconds * SECOND
    before = Watermark(Quorum(), LATENESS).admit(times, times).before
    newer = np.arange(400) - 1 - np.searchsorted(times, before)
    assert newer[50:].max() <= 40


@given(seed=st.integers(0, 10**6), time_ms=st.sampled_from([1, 50, 150 * SECOND]))
@settings(max_examples=20, deadline=None)
def test_a_quorum_of_one_follows_the_largest_time(seed: int, time_ms: int) -> None:
    times, stamps = records(seed, 300)
    readable = (times >= EARLIEST_MS) & (times < LATEST_MS)
    both = np.where(readable, np.minimum(times, np.where(stamps < 0, times, stamps)), EARLIEST_MS)
    largest = np.maximum.accumulate(both)
    before = Watermark(Quorum(1, time_ms), LATENESS).admit(times, stamps).before
    assert (before[1:] <= largest[:-1])[readable[:-1]].all()
    assert (np.maximum(before[1:], EARLIEST_MS) >= largest[:-1] - time_ms)[readable[:-1]].all()


def test_an_advance_is_not_a_vote() -> None:
    """Silence moves the watermark while targets have votes; the next record does not complete a quorum by that."""
    times, stamps = steady(14, 3600)
    mark = Watermark(Quorum(), LATENESS)
    mark.admit(times, stamps)
    fast = stamps[-1] + 59 * MINUTE + np.arange(9) * 15 * SECOND
    mark.admit(fast, fast)
    assert mark.scores
    moved = int(stamps[-1]) + 5 * MINUTE
    assert mark.advance(moved)
    assert not mark.advance(moved - 1)
    assert mark.scores, "votes for later times stay"
    shift = moved - EPOCH
    assert mark.admit(fast[-1:] + 15 * SECOND, fast[-1:] + 15 * SECOND).before.tolist() == [moved]
    assert mark.value == fast[0], "ten records in ten slices are a quorum, before and after the advance"
    mark = Watermark(Quorum(), LATENESS)
    mark.admit(times, stamps)
    mark.admit(fast, fast)
    mark.advance(moved)
    found = mark.admit(np.append(times + shift, fast[-1] + HOUR), np.append(stamps + shift, fast[-1] + HOUR))
    assert (found.before[1:] <= stamps + shift).all(), "right records undo the nine, and the tenth comes too late"
    assert mark.value <= stamps[-1] + shift


def test_a_jump_is_told_with_the_record_that_made_it() -> None:
    times, stamps = steady(15, 3600)
    alone = times[-1] + 59 * MINUTE + np.arange(20) * 15 * SECOND
    mark = Watermark(Quorum(), LATENESS)
    mark.admit(times, stamps)
    found = mark.admit(alone, alone)
    assert (found.jumps, found.jumped_at) == (1, 9)
    assert found.early == 10, "until the watermark is there"


def test_a_watermark_forgets_its_votes_with_another_slice_or_an_older_snapshot() -> None:
    times, stamps = steady(16, 600)
    mark = Watermark(Quorum(), LATENESS)
    mark.admit(times, stamps)
    fields = mark.fields()
    assert fields["scores"]
    for quorum, saved in ((Quorum(time_ms=300 * SECOND), fields), (Quorum(), None)):
        restored = Watermark(quorum, LATENESS)
        restored.restore(mark.value, saved)
        assert (restored.value, restored.scores) == (mark.value, ())
    broken = {**fields, "scores": [8, 16], "lowest": [1, 1], "slices": [1, 1]}
    with pytest.raises(ValueError, match="fit together"):
        Watermark(Quorum(), LATENESS).restore(mark.value, broken)
