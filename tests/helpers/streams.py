"""Shared by the tests of this folder: made-up streams, an oracle, and chunks of them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.watermark_reference import Reference
from sketchstream.items.arrays import Items
from sketchstream.items.events import Events
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.published import Release, SealedState, read_published
from sketchstream.spec import ClosedDomain, NoPrivacyWarning, OpenDomain
from sketchstream.stream.input.partition_counts import CountNeeded, Result, Steps, run_in_thread
from sketchstream.stream.interfaces import Chunk, RawRecord
from sketchstream.stream.kernels import ADMITTED, FUTURE
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.windows.calendar import LATEST_MS, NO_TIME, Calendar, Width
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream.stream.windows.quorum import MAXIMUM, Quorum

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
EPOCH = 1_700_000_040_000 // HOUR * HOUR
"""A full hour in 2023."""
EXACT = "30"
"""Epsilon at which noise is zero with probability above 1 - 1e-12 a slot."""


def spec(size: int = 16, epsilon: str = EXACT, **more: Any) -> ProfileSpec:
    """A closed domain of ids."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoPrivacyWarning)
        return ProfileSpec(epsilon, domain=ClosedDomain(size=size), **{"max_count": 40, **more})


def open_spec(slots: int = 64, levels: int = 2, epsilon: str = EXACT, **more: Any) -> ProfileSpec:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoPrivacyWarning)
        return ProfileSpec(epsilon, domain=OpenDomain(slots, levels), **{"max_count": 40, **more})


def plan(name: str = "minutes", width: str = "1m", zone: str = "UTC", made: ProfileSpec | None = None) -> SketchPlan:
    return SketchPlan(name, made or spec(), Calendar(Width.parse(width), zone))


def rules(*plans: SketchPlan, lateness_ms: int = MINUTE, quorum: Quorum = MAXIMUM, **more: Any) -> Rules:
    """By default every record moves the watermark, so that short streams close windows, and no item is misplaced."""
    more.setdefault("unkeyed", more.get("partitioner") is None)
    return Rules(plans or (plan(),), lateness_ms=lateness_ms, quorum=quorum, **more)


def asking(
    steps: Steps[Result], count: Callable[[], int] | None = None, count_for_items: Callable[[], int] | None = None
) -> Result:
    """Run a computation; partition counts are answered for a seal, and for misplaced items (default: the same)."""
    answers = {CountNeeded.SEAL: count, CountNeeded.ITEMS: count_for_items or count}

    def answer(needed: CountNeeded) -> int | None:
        ask = answers[needed]
        return None if ask is None else ask()

    return run_in_thread(steps, answer)


@dataclass
class Stream:
    """n records of one partition, one item each."""

    items: np.ndarray
    times: np.ndarray
    stamps: np.ndarray
    valid: np.ndarray
    null: np.ndarray
    partition: int = 0

    def __len__(self) -> int:
        return len(self.items)

    def chunk(self, begin: int, end: int) -> Chunk:
        part = slice(begin, end)
        batch = Events(None, Items.of(self.items[part]), None, self.valid[part], self.times[part], self.null[part])
        offsets = np.arange(begin, end, dtype=np.int64)
        return Chunk(
            self.partition,
            begin,
            end,
            offsets,
            self.stamps[part],
            batch,
            lambda index: RawRecord(begin + index, int(self.stamps[begin + index]), b"k", b"v"),
        )


def stream(seed: int, n: int, *, size: int = 16, jitter_ms: int = 2 * MINUTE, step_ms: int = 5000) -> Stream:
    """Event times that wander forward with disorder, some in the far future, some unreadable, some items bad."""
    rng = np.random.default_rng(seed)
    clock = EPOCH + np.cumsum(rng.integers(0, step_ms, n))
    times = clock - rng.integers(0, jitter_ms, n)
    odd = rng.random(n)
    times = np.where(odd < 0.02, clock + 3 * HOUR, times)
    times = np.where((odd >= 0.02) & (odd < 0.03), NO_TIME, times)
    times = np.where((odd >= 0.03) & (odd < 0.04), 5, times + 0)  # 1970: readable, and late
    times = np.where((odd >= 0.04) & (odd < 0.045), -(1 << 55), times)
    null = rng.random(n) < 0.05
    valid = (rng.random(n) > 0.05) & ~null
    items = rng.integers(0, size + 3, n)  # three beyond the domain: no-ops
    return Stream(items, times.astype(np.int64), clock.astype(np.int64), valid, null)


@dataclass
class Oracle:
    """Which window takes which record, record by record, in Python."""

    width_ms: int
    lateness_ms: int
    size: int
    quorum: Quorum = MAXIMUM
    future_after: int = LATEST_MS

    def run(self, s: Stream) -> tuple[dict[int, Counter[int]], list[int], list[int], int]:
        """Counts by window start, late and future records, and the last watermark."""
        counts: dict[int, Counter[int]] = {}
        late, future = [], []
        mark = Reference(self.quorum, self.lateness_ms)
        for i in range(len(s)):
            t = int(s.times[i])
            before, verdict = mark.admit(t, int(s.stamps[i]), self.future_after)
            if verdict == FUTURE:
                future.append(i)
            if verdict != ADMITTED:
                continue
            start = t // self.width_ms * self.width_ms
            if start + self.width_ms + self.lateness_ms <= before:
                late.append(i)
                continue
            window = counts.setdefault(start, Counter())
            if s.valid[i] and s.items[i] < self.size:
                window[int(s.items[i])] += 1
        return counts, late, future, mark.value


def at_least(counter: Counter[int], k: int) -> int:
    return sum(n >= k for n in counter.values())


def exact(found: Release | SealedState, k: int) -> int:
    """Slots with at least k, of what was published at an epsilon without noise."""
    if isinstance(found, SealedState):
        return int((found.state >= k).sum())
    row = found.noised.sum(axis=0)
    return int(row[found.edges.tolist().index(k)])


def published(state: PartitionState) -> dict[tuple[str, int], Release | SealedState]:
    """Everything sealed so far, by sketch and window start."""
    entries, _ = state.outbox.captured()
    out: dict[tuple[str, int], Release | SealedState] = {}
    for entry in entries:
        found = read_published(entry.body)
        assert isinstance(found, (Release, SealedState))
        assert (entry.sketch, entry.window[0]) not in out, "a window was sealed twice"
        out[entry.sketch, entry.window[0]] = found
    return out
