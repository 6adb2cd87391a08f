"""Opening and sealing large windows beside the poll thread: the worker polls on, and counts what it would have counted.

In: a worker over ports in memory, whose long work ends when a test says so. Out: nothing. Touches: a thread at a time.
"""

from __future__ import annotations

from typing import Any

import pytest

from helpers.interleaving import Jobs
from helpers.streams import EPOCH, HOUR, MINUTE, at_least
from helpers.workers import TEXT, close_windows, counts, driver, send, truth
from sketchstream.errors import BrokerError
from sketchstream.stream.state import work_pace
from sketchstream.stream.state.window_sketch import WindowSketch
from sketchstream.stream.worker.io_tasks import Inline
from sketchstream.stream.worker.partition_manager import TURN_S
from sketchstream.stream.worker.settings import Settings
from sketchstream.testing.driver import Driver

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")


@pytest.fixture
def window_executor(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Every window is large, and its work is done when a test advances it."""
    monkeypatch.setattr(work_pace, "LARGE_SLOTS", 1)
    return Jobs()


def begun(window_executor: Jobs, partitions: int = 2) -> Driver:
    d = driver(partitions=partitions)
    d.worker._manager._window_executor = window_executor
    d.run()
    return d


def do_all(d: Driver, window_executor: Jobs) -> None:
    """Let all long work end, and what comes after it."""
    for _ in range(40):
        while window_executor.running:
            window_executor.advance(window_executor.running[0])
        d.clock.advance(1.1)
        d.worker.step(0.0)


def test_other_partitions_are_read_while_a_window_is_opened(window_executor: Jobs) -> None:
    d = begun(window_executor)
    sent = [(item, EPOCH + 10 * item) for item in range(40)]
    for item, at in sent:
        send(d, item, at)
    numbers = sorted(map(len, d.log.partitions))
    polls = d.worker._manager.polls
    for _ in range(5):
        d.clock.advance(1.1)
        d.worker.step(0.0)
    assert d.worker._manager.polls == polls + 5, "a group evicts members that do not poll"
    assert 0 < numbers[0] < sum(numbers)
    assert d.worker.metrics.counters["records"] == 0
    assert all(one.busy for one in d.worker._partitions.values())
    first = window_executor.running[0]
    while window_executor.running and window_executor.running[0] is first:
        window_executor.advance(first)
    for _ in range(6):  # each window is claimed before it is opened
        d.worker.step(0.0)
        later = [job for job in window_executor.running if job is not window_executor.running[0]]
        for job in later:  # of the same partition
            window_executor.advance(job)
    assert d.worker.metrics.counters["records"] in numbers, "one partition does not wait for the other's window"
    do_all(d, window_executor)
    assert d.worker.metrics.counters["records"] == 40
    close_windows(d, EPOCH + 2 * HOUR)
    do_all(d, window_executor)
    assert counts(d, "hours", 1) == {EPOCH // HOUR * HOUR: 40}
    assert d.worker.metrics.counters["gaps"] == 0


def test_no_snapshot_is_taken_of_a_state_that_is_half_computed(window_executor: Jobs) -> None:
    d = begun(window_executor, partitions=1)
    before = d.snapshots.snapshots[0].position
    send(d, 1, EPOCH, 0)
    for _ in range(5):
        d.clock.advance(60)
        d.worker.step(0.0)
    assert d.snapshots.snapshots[0].position == before
    do_all(d, window_executor)
    assert d.snapshots.snapshots[0].position == before + 1


@pytest.mark.parametrize("step", ["open", "seal"])
def test_long_work_that_fails_drops_the_partition_and_is_done_again(
    window_executor: Jobs, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = begun(window_executor, partitions=1)
    sent = [(item, EPOCH + item) for item in range(30)]
    for item, at in sent:
        send(d, item, at, 0)
    whole: Any = WindowSketch.create if step == "open" else WindowSketch.seal
    failures: list[int] = []

    def broken(*given: Any, **more: Any) -> Any:
        if not failures:
            failures.append(1)
            msg = "no memory"
            raise BrokerError(msg)
        return whole(*given, **more)

    monkeypatch.setattr(WindowSketch, "create" if step == "open" else "seal", broken)
    do_all(d, window_executor)
    close_windows(d, EPOCH + 2 * HOUR)
    do_all(d, window_executor)
    assert failures == [1]
    assert d.worker.metrics.counters["restores"] >= 1
    assert counts(d, "minutes", 1) == {start: at_least(c, 1) for start, c in truth(sent, MINUTE).items()}
    assert len({entry.key for entry in d.publisher.log}) == len({entry.seal_id for entry in d.publisher.log})


def test_a_partition_that_is_revoked_forgets_its_long_work(window_executor: Jobs) -> None:
    d = begun(window_executor, partitions=1)
    send(d, 1, EPOCH, 0)
    d.worker.step(0.0)
    one = d.worker._partitions[0]
    assert one.computation is not None
    d.worker._manager.revoke((0,))
    assert one.computation is None
    assert one.state is None
    while window_executor.running:
        window_executor.advance(window_executor.running[0])
    d.worker.step(0.0)
    assert d.worker.metrics.counters["records"] == 0
    d.kill()
    d.worker._manager._window_executor = window_executor
    do_all(d, window_executor)
    close_windows(d, EPOCH + 2 * HOUR)
    do_all(d, window_executor)
    assert counts(d, "minutes", 1) == {EPOCH: 1}


def test_a_worker_that_stops_waits_for_long_work(window_executor: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    d = begun(window_executor, partitions=1)
    send(d, 1, EPOCH, 0)
    d.worker.step(0.0)
    waited: list[float] = []
    manager = d.worker._manager

    def wait(future: Any, deadline: float) -> bool:
        waited.append(deadline)
        while not future.done():
            for job in list(window_executor.running):
                window_executor.advance(job)
        return True

    monkeypatch.setattr(manager, "_wait_for", wait)
    d.worker.finish()
    assert waited
    assert max(waited) <= d.clock.monotonic() + Settings().stop_s
    assert d.snapshots.snapshots[0].position == 1


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_worker_polls_on_while_many_small_windows_are_opened_written_and_sealed(
    partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes milliseconds; ten thousand of them take as long as the largest, and none of them is large."""
    window_executor, at_a_time, windows = Jobs(), 8, 60
    monkeypatch.setattr(work_pace, "LARGE_SLOTS", at_a_time * work_pace.MIN_SLOTS)
    d = driver(TEXT.replace('lateness = "1m"', 'lateness = "2h"'), partitions)
    d.worker._manager._window_executor = window_executor
    d.run()
    sent = [(item % 40, EPOCH + item * MINUTE) for item in range(windows)]
    for item, at in sent:
        send(d, item, at)
    numbers = [len(log) for log in d.log.partitions]

    def pauses() -> int:
        """Let one piece of long work end after the other; how many there were, with a poll after each."""
        found = 0
        for _ in range(20 * windows):
            d.worker.step(0.0)
            if window_executor.running:
                found += 1
                polls = d.worker._manager.polls
                d.worker.step(0.0)
                assert d.worker._manager.polls == polls + 1
                window_executor.advance(window_executor.running[0])
        return found

    assert pauses() >= sum(number // at_a_time for number in numbers)
    assert d.worker.metrics.counters["records"] == windows
    for item, at in sent:
        send(d, item, at)
    d.worker.step(0.0)
    assert not window_executor.running, "the windows are open already"
    d.clock.advance(60)
    d.worker.step(0.0)
    assert len(window_executor.running) == partitions, "thousands of windows are copied beside the thread that polls"
    while window_executor.running:
        window_executor.advance(window_executor.running[0])
    d.worker.step(0.0)
    assert {one: saved.position for one, saved in d.snapshots.snapshots.items()} == {
        one: 2 * number for one, number in enumerate(numbers)
    }
    close_windows(d, EPOCH + 4 * HOUR)
    assert pauses() >= sum(number // at_a_time for number in numbers)
    do_all(d, window_executor)
    assert counts(d, "minutes", 2) == {start: at_least(c, 2) for start, c in truth(sent * 2, MINUTE).items()}


def test_a_worker_polls_on_though_each_piece_of_long_work_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that computes may never see the other one at work, and still compute for minutes."""
    monkeypatch.setattr(work_pace, "LARGE_SLOTS", 4 * work_pace.MIN_SLOTS)
    d = driver(TEXT.replace('lateness = "1m"', 'lateness = "2h"'), partitions=1)

    class Quick(Inline):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            d.clock.advance(0.2)
            return super().submit(fn, *args, **kwargs)

    d.run()
    d.worker._manager._window_executor = Quick()
    for item in range(100):
        send(d, item % 40, EPOCH + item * MINUTE)
    polls, began = d.worker._manager.polls, d.clock.monotonic()
    while d.worker.metrics.counters["records"] < 100:
        d.worker.step(0.0)
    turns = (d.clock.monotonic() - began) / (TURN_S + 0.2)
    assert turns > 5
    assert d.worker._manager.polls - polls >= turns / 3, "results are collected three times in a turn of the loop"
