"""The quorum that moves a watermark: the compiled rule against its twin, what it survives, and what it does not."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import msgpack
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchstream.stream.quorum import Quorum, Watermark
from sketchstream.stream.windows import DAY_MS, LATEST_MS, NO_TIME

sys.path.insert(0, str(Path(__file__).parent))
from streams import EPOCH, HOUR, MINUTE
from watermark_reference import Reference

LATENESS = 10 * MINUTE
SECOND = 1000

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
