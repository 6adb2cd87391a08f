"""The worker over ports in memory: kills, fences, failures, halts, idle partitions, sinks, threads."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from helpers.streams import EPOCH, HOUR, MINUTE, at_least
from helpers.workers import STATE, TEXT, close_windows, config, counts, driver, send, truth
from sketchstream.errors import BrokerError, DataLossError, FencedError, StoreError
from sketchstream.items.arrays import Items
from sketchstream.published import SealedState
from sketchstream.stream.input.partitioner import belongs, items_kept
from sketchstream.stream.interfaces import (
    Chunk,
    Fresh,
    PartitionError,
    RawRecord,
    Restored,
    SchemaAwaited,
    Snapshot,
    SourceEvent,
)
from sketchstream.stream.monitoring.endpoint import readiness
from sketchstream.stream.windows.boundary import Boundary
from sketchstream.stream.worker import assigned_partition
from sketchstream.stream.worker.settings import Settings
from sketchstream.stream.worker.worker import JUDGE_EVERY_S, POLL_WHILE_BUSY_S, Worker
from sketchstream.testing.driver import Driver
from sketchstream.testing.memory import ManualClock, MemorySink, MemorySnapshots, MemorySource, MemoryStore

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")


def test_counts_are_exact_over_kills_at_random_moments() -> None:
    rng = np.random.default_rng(4)
    d = driver()
    records = [(int(rng.integers(0, 40)), EPOCH + i * 2000) for i in range(1500)]
    for i, (item, at) in enumerate(records):
        send(d, item, at)
        if i % 40 == 0:
            d.clock.advance(0.7)
            d.worker.step(0.0)
        if rng.random() < 0.01:
            d.kill()
    close_windows(d, EPOCH + 2 * HOUR)
    d.kill()
    d.run()
    minutes, hours = truth(records, MINUTE), truth(records, HOUR)
    for k in (1, 2, 4):
        assert counts(d, "minutes", k) == {start: at_least(c, k) for start, c in minutes.items()}
        assert counts(d, "hours", k) == {start: at_least(c, k) for start, c in hours.items()}
    assert all(window.complete for window in d.windows("minutes"))
    keys = Counter(entry.key for entry in d.publisher.log)
    assert len({entry.seal_id for entry in d.publisher.log}) == len(keys), "one seal id for each published window"


def test_at_epsilon_one_the_noise_is_there_and_drawn_once() -> None:
    """State minus truth follows the law, over kills; epsilon = 30 would hide noise that is missing or drawn twice."""
    rng = np.random.default_rng(9)
    d = driver(STATE.replace("size = 40", "size = 4000"), partitions=2)
    records = [(int(rng.integers(0, 4000)), EPOCH + i * 1000) for i in range(3000)]
    for i, (item, at) in enumerate(records):
        send(d, item, at)
        if i % 300 == 299:
            d.clock.advance(1.1)
            d.run()
            if rng.random() < 0.5:
                d.kill()
    close_windows(d, EPOCH + 2 * HOUR)
    d.run()
    (window,) = d.windows("hours")
    true = truth(records, HOUR)[EPOCH]
    noise = []
    for partition, part in enumerate(window.parts):
        assert isinstance(part, SealedState)
        keep = items_kept(d.config.plan("hours").spec.domain, "murmur2", 2, partition)  # type: ignore[arg-type]
        expected = np.array([true[i] for i in np.flatnonzero(keep)])
        noise.append(part.state - expected)
    joined = np.concatenate(noise)
    a = np.exp(-1.0)
    variance = 2 * a / (1 - a) ** 2
    assert joined.size == 4000
    # twice-drawn noise would have twice the variance, missing noise none; 4 standard errors of the sample variance
    kurtosis = (1 + 10 * a + a * a) * 2 * a / (1 - a) ** 4 / variance**2
    assert abs(joined.var() / variance - 1) < 5 * np.sqrt((kurtosis - 1) / 4000)
    assert abs(joined.mean()) < 5 * np.sqrt(variance / 4000)
    assert abs((joined == 0).mean() - (1 - a) / (1 + a)) < 0.04


def test_a_zombie_publishes_nothing_after_another_took_over() -> None:
    d = driver(partitions=1)
    send(d, 1, EPOCH, 0)
    d.run()
    zombie = d.worker
    d.kill()  # it is only stopped: `zombie` still holds its state
    send(d, 1, EPOCH + MINUTE, 0)
    d.run()  # another worker takes the partition
    d.clock.advance(2)
    close_windows(d, EPOCH + 10 * MINUTE)
    before = len(d.publisher.log)
    for _ in range(3):  # the zombie wakes: it reads on, seals, and tries to commit
        zombie.step(0.0)
        d.clock.advance(2)
        if zombie.metrics.counters["commit_failures"]:
            break
    assert zombie.metrics.counters["commit_failures"] == 1
    assert len(d.publisher.log) == before
    d.kill()  # whoever is left takes it again and finishes
    d.run()
    assert counts(d, "minutes", 1) == {EPOCH: 1, EPOCH + MINUTE: 1}


@pytest.mark.parametrize("applied", [True, False])
def test_an_unknown_outcome_of_a_commit_is_read_back(applied: bool) -> None:
    """A commit that raises may have taken effect or not: the state is dropped, and the truth is read."""
    d = driver(partitions=1)
    real = MemoryStore.commit
    failures = iter([False, True, False, True, True, False, False, True] + [False] * 100)

    def commit(self: MemoryStore, partition: int, snapshot: Snapshot) -> None:
        fail = next(failures)
        if not fail or applied:
            real(self, partition, snapshot)
        if fail:
            msg = "connection lost"
            raise BrokerError(msg)

    d.worker._store.commit = commit.__get__(d.worker._store)  # type: ignore[method-assign]
    records = [(i % 7, EPOCH + i * 5000) for i in range(300)]
    for i, (item, at) in enumerate(records):
        send(d, item, at, 0)
        if i % 20 == 0:
            d.clock.advance(1.1)
            d.worker.step(0.0)
    close_windows(d, EPOCH + 2 * HOUR)
    for _ in range(30):
        d.clock.advance(1.1)
        d.worker.step(0.0)
    assert d.worker.metrics.counters["commit_failures"] == 4
    assert counts(d, "minutes", 2) == {s: at_least(c, 2) for s, c in truth(records, MINUTE).items()}
    assert len({entry.seal_id for entry in d.publisher.log}) == len({entry.key for entry in d.publisher.log})


def test_a_failed_publication_is_tried_again_with_the_same_bytes() -> None:
    d = driver(partitions=1)
    d.publisher.fail = BrokerError("no leader")
    send(d, 1, EPOCH, 0)
    close_windows(d, EPOCH + 10 * MINUTE)
    d.run()
    assert d.publisher.log == []
    assert d.worker.metrics.counters["publish_failures"] >= 1
    assert d.worker.gauges().ready, "the state is as good as before"
    committed = set(d.snapshots.blobs[0].values())
    d.kill()
    d.publisher.fail = None
    d.clock.advance(5)
    d.run()
    assert {entry.body for entry in d.publisher.log} <= committed
    assert counts(d, "minutes", 1) == {EPOCH: 1}


def test_nothing_is_published_before_it_is_committed() -> None:
    d = driver(partitions=1)
    order: list[str] = []
    store, publisher = d.worker._store, d.publisher
    commit, publish = store.commit, publisher.publish

    def watched_commit(partition: int, snapshot: Snapshot) -> None:
        commit(partition, snapshot)
        order.extend(f"commit {entry['seal_id'].hex()}" for entry in snapshot.manifest["outbox"])  # type: ignore[union-attr,index,call-overload]

    def watched_publish(partition: int, entries: object, frontiers: object) -> None:
        order.extend(f"publish {entry.seal_id.hex()}" for entry in entries)  # type: ignore[attr-defined]
        publish(partition, entries, frontiers)  # type: ignore[arg-type]

    store.commit = watched_commit  # type: ignore[method-assign]
    publisher.publish = watched_publish  # type: ignore[method-assign,assignment]
    for i in range(20):
        send(d, i, EPOCH + i * MINUTE, 0)
        d.clock.advance(1.5)
        d.run()
    published = [line.split()[1] for line in order if line.startswith("publish")]
    assert len(published) > 10
    for seal_id in published:
        assert order.index(f"commit {seal_id}") < order.index(f"publish {seal_id}")


def test_one_bad_partition_halts_alone() -> None:
    d = driver(partitions=3)
    real = MemoryStore.take

    def take(self: MemoryStore, partition: int) -> object:
        if partition == 1:
            msg = "partition 1: its offset has no pointer of ours; `sketchstream recover` ..."
            raise DataLossError(msg)
        return real(self, partition)

    d.worker._store.take = take.__get__(d.worker._store)  # type: ignore[method-assign]
    for item in range(20):
        send(d, item, EPOCH)
    close_windows(d, EPOCH + 10 * MINUTE)
    for _ in range(20):
        d.clock.advance(1)
        d.worker.step(0.0)
    gauges = d.worker.gauges()
    assert [one.status for one in gauges.partitions] == ["running", "halted", "running"]
    assert gauges.ready, "others must not wait for a partition that waits for a person"
    assert "recover" in gauges.partitions[1].reason
    window = d.windows("minutes")[0]
    assert (window.partitions_done, window.partitions, window.missing, window.complete) == (2, 3, (1,), False)
    assert window.describe() == "2 of 3 partitions (missing: 1)"


def test_everything_halted_or_fail_fast_ends_the_worker() -> None:
    for partitions, fast, name in ((1, False, "everything"), (3, True, "fail_fast")):
        d = driver(partitions=partitions)
        d.worker._manager._settings = Settings(threads=0, fail_fast=fast)
        d.worker.step(0.0)
        d.worker.step(0.0)
        slot = d.worker._partitions[0]
        with pytest.raises(DataLossError, match="trimmed"):
            d.worker._manager.fail(slot, DataLossError(f"{name}: offset was trimmed"))


def test_published_windows_without_any_stored_state_halt() -> None:
    """The state folder was lost: counting again would publish a second view of the same events."""
    d = driver(partitions=1)
    send(d, 1, EPOCH, 0)
    close_windows(d, EPOCH + 10 * MINUTE)
    d.run()
    assert d.windows("minutes")
    d.kill()
    d.snapshots = MemorySnapshots({}, {}, {})
    with pytest.raises(DataLossError, match=r"second noisy view.*reset"):
        d.run()


def test_errors_of_strangers_halt_after_some_time_and_show_no_text() -> None:
    d = driver(partitions=2)
    d.run()
    slot = d.worker._partitions[0]

    def fails(error: Exception) -> str:
        d.worker._manager.fail(slot, error)
        return slot.status

    strange = RuntimeError("payload marker-7351")
    for _ in range(30):
        assert fails(strange) == "restoring", "a client may raise anything while a broker comes back"
    d.clock.advance(59.9)
    assert fails(strange) == "restoring"
    assert fails(BrokerError("known")) == "restoring"
    d.clock.advance(60)
    for _ in range(4):
        assert fails(strange) == "restoring", "not in a row with those before"
    d.clock.advance(60)
    assert fails(strange) == "halted"
    assert "marker" not in slot.reason
    assert "RuntimeError" in slot.reason


def test_chunks_that_do_not_start_at_the_position_are_sought_again() -> None:
    d = driver(partitions=1)
    for i in range(10):
        send(d, i, EPOCH + i, 0)
    d.run()
    d.worker_source.seek(0, 4)  # a client that went back, as after an eviction
    send(d, 1, EPOCH + 20, 0)
    d.run()
    assert d.worker.metrics.counters["gaps"] == 1
    assert d.worker.metrics.counters["records"] == 11


def test_partition_errors_drop_the_state_and_take_it_again() -> None:
    d = driver(partitions=1)
    send(d, 1, EPOCH, 0)
    d.run()
    source = d.worker_source
    poll = source.poll
    source.poll = lambda timeout_s: [PartitionError(0, BrokerError("leader away")), *poll(timeout_s)]  # type: ignore[method-assign]
    d.worker.step(0.0)
    source.poll = poll  # type: ignore[method-assign]
    assert d.worker.gauges().partitions[0].status == "restoring"
    d.clock.advance(1)
    d.run()
    assert d.worker.gauges().partitions[0].status == "running"
    close_windows(d, EPOCH + 10 * MINUTE)
    d.run()
    assert counts(d, "minutes", 1)[EPOCH] == 1
    assert d.worker.metrics.counters["restores"] == 1


def test_a_partition_whose_records_cannot_be_decoded_stalls_until_they_can(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sketchstream")
    d = driver(partitions=1)
    d.run()
    source = d.worker_source
    poll = source.poll
    source.poll = lambda timeout_s: [SchemaAwaited(0, "the registry gives no answer")]  # type: ignore[method-assign]
    d.worker.step(0.0)
    assert d.worker.gauges().ready  # a short pause of the registry is no reason to be alarmed
    d.clock.advance(assigned_partition.SCHEMA_WITHIN_S + 1)
    d.worker.step(0.0)
    (gauge,) = d.worker.gauges().partitions
    assert gauge.status == "stalled"
    assert gauge.reason == "no record could be decoded for 11 s: the registry gives no answer"
    assert not d.worker.gauges().ready
    assert d.worker.progress().stalled == 1
    d.worker.step(0.0)
    source.poll = lambda timeout_s: [PartitionError(0, BrokerError("leader away"))]  # type: ignore[method-assign]
    d.worker.step(0.0)
    (gauge,) = d.worker.gauges().partitions
    assert (gauge.status, d.worker.progress().stalled) == ("restoring", 0), "a dropped state waits for no schema"
    source.poll = poll  # type: ignore[method-assign]
    d.clock.advance(1)
    send(d, 1, EPOCH, 0)
    d.run()
    assert d.worker.gauges().partitions[0].status == "running"
    assert d.worker.gauges().ready
    logged = [record.getMessage() for record in caplog.records]
    assert sum("event=not_durable" in message for message in logged) == 1
    assert sum("event=durable_again" in message for message in logged) == 1
    close_windows(d, EPOCH + 10 * MINUTE)
    d.run()
    assert counts(d, "minutes", 1)[EPOCH] == 1


def test_a_start_waits_until_it_knows_whether_the_topic_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an answer, what former counts placed would be dropped; an error must not end the worker either."""
    d = driver(partitions=1)
    send(d, 1, EPOCH, 0)
    answers = [BrokerError("leader away")]

    def former_counts(self: MemorySource, partition: int) -> dict[int, int | None]:
        if answers:
            raise answers.pop()
        return {}

    monkeypatch.setattr(MemorySource, "former_counts", former_counts)
    d.worker.step(0.0)
    d.run()
    d.clock.advance(1)
    d.run()
    assert not answers
    assert d.worker.gauges().partitions[0].status == "running"
    close_windows(d, EPOCH + 10 * MINUTE)
    d.run()
    assert counts(d, "minutes", 1)[EPOCH] == 1


@pytest.mark.parametrize("accept", [False, True])
def test_trimmed_records_halt_or_make_their_windows_partial(accept: bool) -> None:
    text = TEXT.replace('idle = "10m"', 'idle = "10m"\ndata_loss = "accept"') if accept else TEXT
    d = driver(text, partitions=2)
    for minute in range(4):
        for partition in (0, 1):
            send(d, 3, EPOCH + minute * MINUTE, partition)
    d.run()
    for _ in range(5):  # five records that nobody will ever read
        send(d, 4, EPOCH + 4 * MINUTE, 0)
    source, poll = d.worker_source, d.worker_source.poll
    gone = PartitionError(0, DataLossError("position 4 was trimmed: the log begins at 9"), resume_at=9)
    source.poll = lambda timeout_s: [gone]  # type: ignore[method-assign]
    d.worker.step(0.0)
    source.poll = poll  # type: ignore[method-assign]
    d.clock.advance(1)
    for minute in range(5, 130):
        for partition in (0, 1):
            send(d, 3, EPOCH + minute * MINUTE, partition)
    d.run()
    if not accept:
        assert d.worker.halted() == {0: "position 4 was trimmed: the log begins at 9"}
        return
    assert d.worker.halted() == {}
    assert d.worker.metrics.counters["lost_offsets"] == 5
    hours = d.windows("hours")
    assert [(w.partial, w.whole) for w in hours] == [(True, False), (False, True)]
    assert not hours[0].complete
    minutes = {(w.window[0] - EPOCH) // MINUTE: w.partial for w in d.windows("minutes")}
    assert [n for n, partial in minutes.items() if partial] == [2, 3, 5, 6], (
        "those that were open, that of the first record behind the gap, and the lateness; sealed ones are as they were"
    )


@pytest.mark.parametrize("accept", [False, True])
def test_a_log_that_was_cut_halts_or_marks_the_windows_that_hold_what_it_lost(accept: bool) -> None:
    text = TEXT.replace('idle = "10m"', 'idle = "10m"\ndata_loss = "accept"') if accept else TEXT
    d = driver(text, partitions=2)
    items = [next(i for i in range(40) if belongs(Items.of([i]), "murmur2", [2], p)[0]) for p in (0, 1)]
    for minute in range(4):
        for partition in (0, 1):
            send(d, items[partition], EPOCH + minute * MINUTE, partition)
    d.run()
    d.snapshot()
    del d.log.partitions[0][3:]  # the record of the last minute is gone, as after an unclean election
    source, poll = d.worker_source, d.worker_source.poll
    cut = PartitionError(0, DataLossError("position 4 does not exist: the log was truncated"), resume_at=3)
    source.poll = lambda timeout_s: [cut]  # type: ignore[method-assign]
    d.worker.step(0.0)
    source.poll = poll  # type: ignore[method-assign]
    d.clock.advance(1)
    send(d, items[0], EPOCH + 3 * MINUTE, 0)  # another record in its place
    for minute in range(4, 130):
        for partition in (0, 1):
            send(d, items[partition], EPOCH + minute * MINUTE, partition)
    d.run()
    if not accept:
        assert d.worker.halted() == {0: "position 4 does not exist: the log was truncated"}
        return
    assert d.worker.halted() == {}
    assert d.worker.metrics.counters["diverged_offsets"] == 1
    hours = d.windows("hours")
    assert [(w.partial, w.diverged, w.complete) for w in hours] == [(False, True, False), (False, False, True)]
    minutes = {(w.window[0] - EPOCH) // MINUTE: w for w in d.windows("minutes")}
    assert [n for n, window in minutes.items() if window.diverged] == [2, 3]
    assert minutes[3].fields()["diverged"] is True
    assert "log has lost" in minutes[3].describe()
    assert counts(d, "minutes", 2) == {EPOCH + n * MINUTE: int(n == 3) for n in minutes}, "the lost one and its heir"
    assert d.snapshots.snapshots[0].position == 130
    again = driver(text, partitions=2)
    again.log, again.snapshots, again.publisher = d.log, d.snapshots, d.publisher
    send(again, items[0], EPOCH + 200 * MINUTE, 0)
    again.run()
    assert [w.diverged for w in again.windows("hours")][:2] == [True, False], "marks outlive the worker"


def test_an_input_that_was_made_again_halts_or_is_taken_anew() -> None:
    for accept in (False, True):
        text = TEXT.replace('idle = "10m"', 'idle = "10m"\ndata_loss = "accept"') if accept else TEXT
        d = driver(text, partitions=2)
        send(d, 3, EPOCH, 0)
        d.run()
        store, source, poll = d.worker._store, d.worker_source, d.worker_source.poll
        taken: list[int] = []

        def take(
            partition: int, before: Callable[[int], object] = store.take, taken: list[int] = taken
        ) -> Restored | Fresh:
            before(partition)
            taken.append(partition)
            return Fresh(1, 0, partial=True)

        store.take = take  # type: ignore[method-assign]
        gone = PartitionError(0, DataLossError("the input was made again"), topic_recreated=True)
        source.poll = lambda timeout_s, gone=gone: [gone]  # type: ignore[method-assign, misc]
        d.worker.step(0.0)
        source.poll = poll  # type: ignore[method-assign]
        for _ in range(5):
            d.clock.advance(1)
            d.worker.step(0.0)
        assert d.worker.halted() == ({} if accept else {0: "the input was made again"})
        assert taken == ([0] if accept else [])
        if accept:
            close_windows(d, EPOCH + 5 * MINUTE)
            d.run()
            assert [(w.revision, w.window[0], w.partial) for w in d.windows("minutes")] == [(1, EPOCH, True)]


# ------------------------------------------------------------------------------------------------------ idle


def test_a_restart_after_a_long_stop_makes_nothing_late() -> None:
    """Two hours of backlog: no partition is idle before it was caught up through the whole idle time."""
    d = driver(partitions=3)
    for i in range(60):
        send(d, i % 40, EPOCH + i * MINUTE)
    d.run()
    d.kill()
    for i in range(60, 180):
        send(d, i % 40, EPOCH + i * MINUTE)
    d.clock.advance(3 * 3600)
    worker = d.worker
    d.worker_source.chunk = 2
    for _ in range(100):
        d.clock.advance(30)
        worker.step(0.0)
    assert worker.metrics.counters["records"] >= 120
    assert worker.metrics.counters["late"] == 0


def test_silent_partitions_follow_when_all_are_silent() -> None:
    d = driver(partitions=2)
    send(d, 3, EPOCH, 0)
    d.run()
    d.advance(minutes=61)
    assert d.windows("minutes") == []
    d.advance(minutes=5)
    (window,) = d.windows("minutes")
    assert window.whole
    assert window.partitions_done == 2


def test_a_silent_partition_follows_the_others_not_the_clock() -> None:
    """The stream is behind the clock (a back-fill): the silent partition must not run ahead of it."""
    d = driver(partitions=2, now=EPOCH + 100 * HOUR)
    for i in range(30):
        d.send({"user": 1, "ts": EPOCH + i * MINUTE}, partition=0, timestamp=EPOCH + i * MINUTE)
        d.advance(minutes=1)
    states = {one.partition: one.watermark_ms for one in d.worker.gauges().partitions}
    assert states[0] == EPOCH + 29 * MINUTE
    assert states[1] is not None
    assert EPOCH + 20 * MINUTE < states[1] <= EPOCH + 29 * MINUTE
    whole = [window for window in d.windows("minutes") if window.whole]
    assert len(whole) >= 20


def test_the_history_of_a_sketch_does_not_move_the_watermark_of_its_neighbours() -> None:
    """A table has a day of "hours", and a stream comes with records of that day: "minutes" counts all of them."""
    d = driver(partitions=2, now=EPOCH + 100 * HOUR)
    end = EPOCH + 24 * HOUR
    d.publisher.boundaries["hours", 0] = Boundary().with_history(end, "a", "hours")
    here, there = (
        np.flatnonzero(items_kept(d.config.plan("minutes").spec.domain, "murmur2", 2, partition))  # type: ignore[arg-type]
        for partition in (0, 1)
    )
    records = [(int(here[i % here.size]), EPOCH + i * MINUTE) for i in range(40)]
    for item, at in records:
        d.send({"user": item, "ts": at}, partition=0, timestamp=at)
        d.advance(minutes=1)
    states = {one.partition: one.watermark_ms for one in d.worker.gauges().partitions}
    assert states[1] is not None
    assert states[1] <= records[-1][1], "a silent partition is ahead of what the others have read"
    records.append((int(there[0]), records[-1][1]))
    d.send({"user": records[-1][0], "ts": records[-1][1]}, partition=1, timestamp=records[-1][1])
    close_windows(d, end)
    close_windows(d, end + 2 * HOUR)
    d.run()
    assert d.worker.metrics.counters["late"] == len(records), 'only "hours" has late records: of its history'
    true = truth(records, MINUTE)
    assert {start: n for start, n in counts(d, "minutes", 1).items() if start < end} == {
        start: at_least(c, 1) for start, c in true.items()
    }
    assert [window.window[0] for window in d.windows("hours")] == [end]
    assert d.windows("hours")[0].whole


def test_a_slow_partition_is_not_a_silent_one() -> None:
    """Caught up after every record, but never silent for the idle time: its own records decide, and none is late."""
    d = driver(partitions=2, now=EPOCH + 100 * HOUR)
    for i in range(40):
        d.send({"user": 1, "ts": EPOCH + i * 10 * MINUTE}, partition=0, timestamp=EPOCH + i * 10 * MINUTE)
        d.send({"user": 1, "ts": EPOCH + i * 1000}, partition=1, timestamp=EPOCH + i * 1000)
        d.run()
        for _ in range(4):
            d.clock.advance(60)
            d.run()
    states = {one.partition: one.watermark_ms for one in d.worker.gauges().partitions}
    assert states[1] == EPOCH + 39 * 1000
    assert d.worker.metrics.counters["late"] == 0


def test_records_that_cannot_be_read_yet_keep_a_partition_from_idling() -> None:
    """An open transaction: the high watermark is beyond what read_committed delivers."""
    d = driver(partitions=1)
    send(d, 3, EPOCH, 0)
    d.run()
    source = d.worker_source
    source.high_watermarks = lambda partitions=None: {0: 2}  # type: ignore[method-assign]
    d.advance(hours=1)
    assert d.windows("minutes") == []
    assert d.worker.gauges().partitions[0].lag == 1
    source.high_watermarks = lambda partitions=None: {}  # type: ignore[method-assign]
    d.advance(hours=1)
    assert d.windows("minutes") == [], "a leader that does not answer is not silence"


def test_idle_can_be_switched_off() -> None:
    d = driver(TEXT.replace('idle = "10m"', 'idle = "off"'), partitions=1)
    send(d, 3, EPOCH, 0)
    d.advance(hours=5)
    assert d.windows("minutes") == []
    assert d.worker.gauges().partitions[0].lag == 0
    d.worker_source.pause(0)
    for _ in range(3):
        send(d, 3, EPOCH, 0)
    d.advance(minutes=1)
    assert d.worker.gauges().partitions[0].lag == 3, "the lag is an operator's number, whatever closes windows"


@pytest.mark.parametrize(("minutes", "late"), [(40, 0), (120, 59)])
def test_a_topic_that_was_silent_for_less_than_an_hour_loses_nothing(minutes: int, late: int) -> None:
    """The producers stood still and send their backlog when they are back, one partition half a minute later."""
    d = driver(partitions=3)
    for i in range(60):
        send(d, 1, EPOCH + i * 1000, i % 3)
    d.run()
    d.advance(minutes=minutes)
    for partition in range(3):
        for minute in range(minutes):
            send(d, 1, EPOCH + minute * MINUTE, partition)
        d.advance(seconds=30)
    # each partition's watermark was at the clock - 1 h, and a window is open for 1 min beyond its end
    assert d.worker.metrics.late.get("minutes", 0) == 3 * late
    assert d.worker.metrics.late.get("hours", 0) == 0


def test_one_partition_that_runs_ahead_does_not_take_silent_ones_along() -> None:
    """A fast producer is alone in partition 0: the silent partition follows half of the others, not the furthest."""
    d = driver(partitions=4, now=EPOCH + 100 * HOUR)
    for i in range(40):
        send(d, 1, EPOCH + 90 * HOUR + i * MINUTE, 0)
        send(d, 1, EPOCH + i * MINUTE, 1)
        send(d, 1, EPOCH + i * MINUTE, 2)
        d.advance(minutes=1)
    states = {one.partition: one.watermark_ms for one in d.worker.gauges().partitions}
    assert states[0] == EPOCH + 90 * HOUR + 39 * MINUTE
    assert states[3] is not None
    assert EPOCH + 20 * MINUTE < states[3] <= EPOCH + 39 * MINUTE


def test_partitions_that_are_silent_too_do_not_hold_a_silent_one_back() -> None:
    d = driver(partitions=8, now=EPOCH + 100 * HOUR)
    for i in range(40):
        send(d, 1, EPOCH + i * MINUTE, 0)
        d.advance(minutes=1)
    marks = [one.watermark_ms for one in d.worker.gauges().partitions]
    assert all(mark is not None and mark > EPOCH + 20 * MINUTE for mark in marks)


@pytest.mark.parametrize("payload", [b"rubbish", b'{"user":1,"ts":%d}' % EPOCH])
def test_reading_slowly_moves_no_watermark(payload: bytes) -> None:
    """Dead letters slow a partition down: what is late must be the same as if they had been read at once."""
    d = driver(TEXT.replace('idle = "10m"', 'idle = "10m"\ndead_letter_rate = 1'), partitions=1)
    send(d, 1, EPOCH, 0)
    for _ in range(8000):
        d.log.append(0, EPOCH, None, payload)
    d.worker_source.chunk = 700  # the last chunk spans the silence
    for _ in range(90):
        d.clock.advance(60)
        d.worker.step(0.0)
    assert d.worker._partitions[0].throttled == (payload == b"rubbish")
    send(d, 2, EPOCH + 1, 0)  # the window was closed by silence before this record was written
    for _ in range(90):
        d.clock.advance(60)
        d.worker.step(0.0)
    assert d.worker.metrics.counters["records"] == 8002
    assert d.worker.metrics.late == {"minutes": 1}
    assert d.worker.metrics.counters["late"] == 1


def test_records_for_a_window_sealed_by_silence_are_late() -> None:
    d = driver(partitions=1)
    send(d, 3, EPOCH, 0)
    d.run()
    d.advance(minutes=90)
    before = [entry.body for entry in d.publisher.log]
    send(d, 4, EPOCH + 1, 0)
    d.run()
    assert d.worker.metrics.late["minutes"] == 1
    assert [entry.body for entry in d.publisher.log] == before


# ---------------------------------------------------------------------------------------------------- clocks


def memory_store(d: Driver) -> MemoryStore:
    store = d.worker._store
    assert isinstance(store, MemoryStore)
    return store


def test_records_that_are_not_counted_are_said_within_seconds_and_again_with_each_report(
    caplog: pytest.LogCaptureFixture,
) -> None:
    d = driver(partitions=2)
    for i in range(200):
        send(d, i % 40, EPOCH + i, i % 2)  # half of the items are in the wrong partition
    warned = []
    with caplog.at_level(logging.WARNING, "sketchstream.worker"):
        for _ in range(130):
            d.clock.advance(1.0)
            d.worker.step(0.0)
            warned.append(caplog.text.count("event=not_counted"))
    assert warned[int(JUDGE_EVERY_S) - 3] == 0
    assert warned[int(JUDGE_EVERY_S) + 1] == 1
    assert warned[55] == 1
    assert warned[65] == 2
    assert warned[-1] == 3
    assert "are misplaced" in caplog.text


def test_what_was_published_without_records_is_said_beside_a_warning_that_is_not_repeated(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = driver(partitions=2)
    for i in range(200):
        send(d, i % 40, EPOCH + i, i % 2)
    losses = ["published windows lack records"]
    monkeypatch.setattr(d.worker._manager, "take_loss", lambda: losses.pop() if losses else None)
    with caplog.at_level(logging.WARNING, "sketchstream.worker"):
        for _ in range(40):
            d.clock.advance(1.0)
            d.worker.step(0.0)
    said = [one.getMessage() for one in caplog.records if "not_counted" in one.getMessage()]
    assert len(said) == 2
    assert "are misplaced" in said[0]
    assert "published windows lack records" in said[1]


@pytest.mark.parametrize("ahead_s", [-7200, 7200])
def test_a_wrong_clock_is_reported_and_refuses_no_right_record(ahead_s: int, caplog: pytest.LogCaptureFixture) -> None:
    """The brokers' time was heard with a commit: records are judged by the later clock, silence by the earlier one."""
    true = EPOCH + 10 * HOUR
    d = driver(TEXT.replace('max_ahead = "8h"\n', ""), partitions=1, now=true + ahead_s * 1000)
    store = memory_store(d)
    store.broker_time = (true, d.clock.monotonic())
    for i in range(100):
        send(d, 1, true + i * 500, 0)
    with caplog.at_level(logging.INFO, "sketchstream.worker"):
        d.run()
        d.advance(minutes=60)
        assert d.worker.metrics.counters["future"] == d.worker.metrics.counters["late"] == 0
        assert caplog.text.count("clock_skew") == 1
        now = d.worker.gauges()
        assert now.clock_skew_seconds == ahead_s
        assert now.ready
        assert f"clock: 7200 s {'ahead of' if ahead_s > 0 else 'behind'} the brokers'" in readiness(now)
        mark = d.worker.gauges().partitions[0].watermark_ms
        assert mark == true + 49_500, "an hour after the last record by the true clock, nothing has followed the clock"
        store.broker_time = (d.clock.now_ms(), d.clock.monotonic())
        d.worker.step(0.0)
        assert caplog.text.count("clock_right") == 1
    assert "clock" not in readiness(d.worker.gauges())


def test_a_slow_clock_that_nothing_confirms_halts_instead_of_refusing_everything() -> None:
    d = driver(TEXT.replace('max_ahead = "8h"\n', ""), partitions=2, now=EPOCH)
    for partition in (0, 1):
        send(d, 1, EPOCH, partition)
    d.run()
    for _ in range(20):
        send(d, 1, EPOCH + 2 * HOUR, 0)
    send(d, 1, EPOCH + 2 * HOUR, 1)
    d.worker.step(0.0)
    (reason,) = d.worker.halted().values()
    assert "clock: most of the records from position 1 on" in reason
    assert "2023" in reason
    assert d.worker.metrics.counters["future"] == 1, "one record alone may be wrong, and halts nobody"


@pytest.mark.parametrize("known", [True, False])
def test_future_records_among_right_ones_are_refused_alone(known: bool) -> None:
    d = driver(TEXT.replace('max_ahead = "8h"\n', ""), partitions=1)
    if known:
        memory_store(d).broker_time = (EPOCH, d.clock.monotonic())
    for i in range(40):
        send(d, 1, EPOCH + (HOUR if i % 3 == 0 else 0), 0)
    d.run()
    assert d.worker.halted() == {}
    assert d.worker.metrics.counters["future"] == 14
    assert {reason for _, reason, _, _ in d.sink.sent} == {"future"}
    assert [w.window[0] for w in d.windows("minutes")] == []


def test_records_without_a_timestamp_are_admitted_by_their_event_time() -> None:
    d = driver(partitions=1)
    for minute in (0, 1, 2, 3):
        d.send({"user": 1, "ts": EPOCH + minute * MINUTE}, timestamp=-1, partition=0)
    d.run()
    assert d.worker.metrics.counters["future"] == 0
    assert counts(d, "minutes", 1) == {EPOCH: 1, EPOCH + MINUTE: 1}


def test_a_jump_of_the_watermark_is_logged_with_its_offset(caplog: pytest.LogCaptureFixture) -> None:
    d = driver(partitions=1)
    for at in (0, 1, 2, 3 * MINUTE):
        send(d, 1, EPOCH + at, 0)
    with caplog.at_level(logging.INFO, "sketchstream.worker"):
        d.run()
    assert "event=watermark_jumped partition=0 offset=3 jumps=1" in caplog.text
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING], "a gap harms nobody"
    assert (d.worker.metrics.counters["jumps"], d.worker.metrics.counters["early"]) == (1, 1)


# ----------------------------------------------------------------------------------------------------- sinks


def test_refused_records_are_acknowledged_before_the_snapshot_that_passes_them() -> None:
    d = driver(partitions=1)
    d.run()
    d.sink.fail = BrokerError("topic away")
    d.log.append(0, EPOCH, None, b"{broken")
    send(d, 1, EPOCH + 9 * HOUR, 0)
    d.log.partitions[0][-1] = type(d.log.partitions[0][-1])(1, EPOCH, None, d.log.partitions[0][-1].value)
    send(d, 2, EPOCH, 0)
    for _ in range(5):
        d.clock.advance(2)
        d.worker.step(0.0)
    assert d.snapshots.snapshots[0].position == 0
    d.sink.fail = None
    for _ in range(12):
        d.clock.advance(2)
        d.worker.step(0.0)
    assert d.snapshots.snapshots[0].position == 3
    reasons = {(reason, record.offset) for _, reason, record, _ in d.sink.sent}
    assert reasons == {("undecodable", 0), ("future", 1)}
    for _, _, record, _ in d.sink.sent:
        assert (record.key, record.value, record.headers) == (None, None, ()), "no payload unless configured"


def test_refused_records_that_wait_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition whose letters are many is paused and committed before its time."""
    from sketchstream.stream.worker import assigned_partition

    monkeypatch.setattr(assigned_partition, "MAX_REFUSED_BYTES", 5000)
    d = driver(TEXT.replace('snapshot_every = "1s"', 'snapshot_every = "1h"'), partitions=1)
    d.run()
    before = d.snapshots.snapshots[0].position
    for _ in range(20):
        d.log.append(0, EPOCH, None, b"{broken")
    d.worker.step(0.0)
    d.worker.step(0.0)
    assert d.snapshots.snapshots[0].position == before + 20
    assert d.sink.acknowledged == 20
    assert d.worker._partitions[0].refusals.n_bytes == 0


def test_a_silent_partition_is_committed_once_more_for_the_erasure_of_what_it_superseded() -> None:
    d = driver(TEXT.replace('idle = "10m"', 'idle = "off"'), partitions=1)
    send(d, 1, EPOCH, 0)
    store = d.worker._store
    assert isinstance(store, MemoryStore)
    store.rewrite_after_s = 300.0
    d.run()
    d.clock.advance(2)
    d.run()
    taken: list[Snapshot] = []
    commit = store.commit

    def recording(partition: int, snapshot: Snapshot) -> None:
        taken.append(snapshot)
        commit(partition, snapshot)

    store.commit = recording  # type: ignore[method-assign]
    for seconds, snapshots in ((290, 0), (20, 1), (400, 1)):  # once, not again and again
        for _ in range(seconds):
            d.clock.advance(1)
            d.worker.step(0.0)
        assert len(taken) == snapshots
    assert (taken[0].position, dict(taken[0].blobs)) == (1, {}), "nothing new; the store decides what to write again"
    assert len(taken[0].keep) == 2
    send(d, 1, EPOCH, 0)
    for _ in range(320):
        d.clock.advance(1)
        d.worker.step(0.0)
    assert [snapshot.position for snapshot in taken] == [1, 2, 2], "and once after every time that it was not silent"


def test_partitions_that_the_worker_has_not_heard_of_are_asked_for_before_a_seal() -> None:
    d = driver(partitions=2)
    for partition in (0, 1):
        d.send({"user": None, "ts": EPOCH}, timestamp=EPOCH, partition=partition)
    d.run()
    d.log.partitions.append([])  # nobody owns it here, nobody told this worker
    for partition in (0, 1):
        d.send({"user": None, "ts": EPOCH + 3 * MINUTE}, timestamp=EPOCH + 3 * MINUTE, partition=partition)
    d.run()
    (window,) = d.windows("minutes")
    assert window.repartitioned
    assert window.missing == (2,)


def test_events_that_added_partitions_move_are_counted_where_they_come_to() -> None:
    """Records placed by the former number wait in the log; later ones are placed by the new one."""
    d = driver(partitions=2)
    for item in range(16):
        send(d, item, EPOCH)
    d.run()
    for item in range(16):
        send(d, item, EPOCH + 1)
        send(d, item, EPOCH + MINUTE)
    d.kill()
    d.log.partitions.append([])
    for item in range(16):
        send(d, item, EPOCH + 2)
        send(d, item, EPOCH + MINUTE + 1)
    close_windows(d, EPOCH + 4 * MINUTE)
    d.run()
    totals = [counts(d, "minutes", k) for k in (1, 2, 3, 4)]
    for start, events in ((EPOCH, 3), (EPOCH + MINUTE, 2)):
        assert sum(total[start] for total in totals) == 16 * events
    assert all(window.repartitioned for window in d.windows("minutes"))
    slot = d.worker._partitions[0]
    assert slot.state is not None
    assert slot.state.counts.unsettled
    d.advance(hours=1)
    assert not slot.state.counts.unsettled
    close_windows(d, EPOCH + 70 * MINUTE)
    close_windows(d, EPOCH + 80 * MINUTE)
    d.run()
    assert not d.windows("minutes")[-1].repartitioned, "producers have heard of the new partition long ago"


def test_nothing_is_sealed_while_nobody_says_how_many_partitions_there_are() -> None:
    d = driver(partitions=3)
    close_windows(d, EPOCH)
    d.run()
    source, count = d.worker_source, d.worker_source.partition_count
    asked = 0

    def away(partition: int = 0, *, fresh: bool = False) -> int:
        del partition
        nonlocal asked
        if fresh:
            asked += 1
            msg = "no broker answers"
            raise BrokerError(msg)
        return count()

    source.partition_count = away  # type: ignore[method-assign]
    close_windows(d, EPOCH + 3 * MINUTE)
    most = 0
    for _ in range(5):
        d.clock.advance(1)
        before = asked
        d.worker.step(0.0)
        most = max(most, asked - before)
    assert most == 1, "each question may take as long as the client's patience: one a poll, for all partitions"
    assert d.windows("minutes") == []
    source.partition_count = count  # type: ignore[method-assign]
    for _ in range(10):
        d.clock.advance(1)
        d.worker.step(0.0)
    assert counts(d, "minutes", 1) == {EPOCH: 1}


def test_refused_records_go_whole_only_where_that_is_configured() -> None:
    d = driver(TEXT.replace('idle = "10m"', 'idle = "10m"\ndead_letter_payload = true'), partitions=1)
    d.log.partitions[0].append(RawRecord(0, EPOCH, b"key", b"{broken", (("h", b"v"),)))
    d.run()
    assert [record for _, _, record, _ in d.sink.sent] == d.log.partitions[0]


@pytest.mark.parametrize("late", [False, True])
def test_refused_records_slow_a_partition_down(late: bool) -> None:
    d = driver(TEXT.replace('idle = "10m"', 'idle = "10m"\ndead_letter_rate = 10'), partitions=1)
    send(d, 1, EPOCH + 7 * HOUR, 0)
    for _ in range(100):
        if late:
            send(d, 1, EPOCH, 0)
        else:
            d.log.append(0, EPOCH, None, b"rubbish")
    d.worker.step(0.0)
    d.worker_source.chunk = 5
    for _ in range(40):
        d.worker.step(0.0)
    name = "late_sent" if late else "dead_letters"
    assert 10 <= d.worker.metrics.counters[name] < 30
    assert d.worker._partitions[0].throttled
    for _ in range(100):
        d.clock.advance(1)
        d.worker.step(0.0)
    assert d.worker.metrics.counters[name] == 100


def test_records_that_nobody_takes_are_counted_and_slow_nothing_down() -> None:
    d = driver(TEXT.replace('idle = "10m"', 'idle = "10m"\ndead_letter_rate = 10'), partitions=1)
    d.sink.takes = lambda reason: reason == "undecodable"  # type: ignore[method-assign]
    send(d, 1, EPOCH + 7 * HOUR, 0)
    for _ in range(100):
        send(d, 1, EPOCH, 0)
    d.run()
    assert d.worker.metrics.counters["late"] == 100
    assert d.worker.metrics.counters["late_sent"] == 0
    assert d.sink.sent == []


def test_item_units_count_modulo_and_only_where_the_item_belongs() -> None:
    """A producer that keys one record wrongly must not cost that item twice: the payload is a no-op."""
    text = TEXT.replace('unit = "event"', 'unit = "item"\nmodulus = 8')
    d = driver(text, partitions=4)
    right = [p for p in range(4) if send_and_find(d, 5, p)]
    assert len(right) == 1
    for _ in range(9):
        send(d, 5, EPOCH, right[0])
    close_windows(d, EPOCH + 2 * HOUR)
    d.run()
    assert d.worker.metrics.counters["misplaced"] >= 3
    (window,) = d.windows("hours")
    holds = [part for part in window.parts if part.noised.sum(axis=0)[2]]  # type: ignore[union-attr]
    assert len(holds) == 1, "10 events modulo 8, in one partition"
    assert holds[0].origin.partition == right[0]


def send_and_find(d: Driver, item: int, partition: int) -> bool:
    """Send one record to a partition; whether it belongs there."""
    from sketchstream.items.arrays import Items
    from sketchstream.stream.input.partitioner import belongs

    send(d, item, EPOCH, partition)
    return bool(belongs(Items.of([item]), "murmur2", [len(d.log.partitions)], partition)[0])


def test_topics_that_are_not_keyed_by_item_are_merged() -> None:
    text = TEXT.replace('partitioned_by = "item"', 'partitioned_by = "none"')
    d = driver(text.replace("epsilon = 30", 'epsilon = 30\npublish = "state"\nintrusion = false'), partitions=3)
    for partition, times in ((0, 2), (1, 3), (2, 1)):
        for _ in range(times):
            send(d, 7, EPOCH, partition)
    close_windows(d, EPOCH + 2 * HOUR)
    d.run()
    assert d.worker.metrics.counters["misplaced"] == 0
    (window,) = d.windows("hours")
    merged = window.result(partitioned=False)
    assert isinstance(merged, SealedState)
    assert merged.slots == 40
    assert merged.state[7] == 6
    assert window.known_zeros == 40 - 3 * 40


def test_zeros_of_silent_partitions_are_known() -> None:
    """Closed domains: a partition without records made no sketch, and its items are known to be absent."""
    d = driver(partitions=3)
    item = next(i for i in range(40) if send_and_find(d, i, 0))
    assert item >= 0
    d.run()
    d.advance(hours=3)
    (window,) = d.windows("hours")
    assert window.whole
    assert len(window.parts) == 1
    assert window.known_zeros == 40 - window.parts[0].slots > 0


# --------------------------------------------------------------------------------------------------- threads


class SlowStore(MemoryStore):
    """Commits when told; notices two calls at once for one partition."""

    def __init__(self, saved: MemorySnapshots) -> None:
        super().__init__(saved)
        self.may_commit = threading.Event()
        self.may_commit.set()
        self.inside: Counter[int] = Counter()
        self.worst = 0
        self.guard = threading.Lock()

    def _call(self, partition: int, run: Callable[[], object]) -> object:
        with self.guard:
            self.inside[partition] += 1
            self.worst = max(self.worst, self.inside[partition])
        try:
            return run()
        finally:
            with self.guard:
                self.inside[partition] -= 1

    def take(self, partition: int) -> Restored:
        return self._call(partition, lambda: MemoryStore.take(self, partition))  # type: ignore[return-value]

    def commit(self, partition: int, snapshot: Snapshot) -> None:
        def run() -> None:
            self.may_commit.wait(10)
            MemoryStore.commit(self, partition, snapshot)

        self._call(partition, run)


def threaded(d: Driver, store: MemoryStore, sink: MemorySink | None = None, **more: object) -> Worker:
    return Worker(
        d._rules,
        MemorySource(d.log, d._decoder),
        store,
        d.publisher,
        settings=Settings(snapshot_every_s=0.0, publish_every_s=0.0, idle_ms=None, threads=3, **more),  # type: ignore[arg-type]
        sink=sink,
        clock=ManualClock(EPOCH),
    )


def until(worker: Worker, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline, "nothing happened"
        worker.step(0.001)
        worker._clock.advance(0.01)  # type: ignore[attr-defined]
        time.sleep(0.001)


def test_consumption_goes_on_while_a_commit_is_in_flight() -> None:
    d = driver(partitions=2)
    store = SlowStore(d.snapshots)
    worker = threaded(d, store)
    until(worker, lambda: worker.gauges().ready)
    store.may_commit.clear()
    for i in range(40):
        send(d, i, EPOCH + i)
    until(worker, lambda: worker.metrics.counters["records"] == 40)
    for i in range(40):
        send(d, i, EPOCH + 100 + i)
    until(worker, lambda: worker.metrics.counters["records"] == 80)
    assert all(snapshot.position < 40 for snapshot in d.snapshots.snapshots.values())
    store.may_commit.set()
    worker.finish()
    worker.close()
    assert sum(snapshot.position for snapshot in d.snapshots.snapshots.values()) == 80
    assert store.worst == 1


def test_a_worker_waits_long_for_records_only_when_nothing_is_in_flight() -> None:
    d = driver(partitions=1)
    store = SlowStore(d.snapshots)
    worker = threaded(d, store)
    until(worker, lambda: worker.gauges().ready)
    poll, waits = worker._source.poll, []

    def polled(timeout_s: float) -> list[SourceEvent]:
        waits.append(timeout_s)
        return poll(timeout_s)

    worker._source.poll = polled  # type: ignore[method-assign]
    until(worker, lambda: worker._partitions[0].job is None)
    worker.step()
    assert waits[-1] == Settings().poll_s
    store.may_commit.clear()
    send(d, 1, EPOCH)
    until(worker, lambda: worker._partitions[0].job is not None)
    worker.step()
    assert waits[-1] == POLL_WHILE_BUSY_S
    store.may_commit.set()
    until(worker, lambda: worker._partitions[0].job is None)
    worker.step()
    assert waits[-1] == Settings().poll_s
    worker.close()


def test_a_partition_lost_and_regained_waits_for_its_old_commit() -> None:
    d = driver(partitions=1)
    store = SlowStore(d.snapshots)
    worker = threaded(d, store)
    until(worker, lambda: worker.gauges().ready)
    store.may_commit.clear()
    for i in range(10):
        send(d, i, EPOCH + i, 0)
    until(worker, lambda: worker.metrics.counters["records"] == 10)
    until(worker, lambda: store.inside[0] == 1)
    worker._manager.revoke((0,))
    worker._manager.assign((0,))
    worker.step(0.0)
    assert store.inside[0] == 1
    store.may_commit.set()
    until(worker, lambda: worker.gauges().ready)
    for i in range(10):
        send(d, i, EPOCH + 100 + i, 0)
    close_windows(d, EPOCH + 10 * MINUTE)
    until(worker, lambda: len(d.windows("minutes")) == 1)
    worker.finish()
    worker.close()
    assert counts(d, "minutes", 2) == {EPOCH: 10}
    assert store.worst == 1


def test_a_take_that_ends_after_its_revocation_leaves_nothing_open() -> None:
    d = driver(partitions=1)
    store = SlowStore(d.snapshots)
    worker = threaded(d, store)
    until(worker, lambda: worker.gauges().ready)
    store.may_commit.clear()
    send(d, 1, EPOCH, 0)
    until(worker, lambda: store.inside[0] == 1)
    dropped: list[int] = []
    store.drop = dropped.append  # type: ignore[method-assign]
    worker._manager.revoke((0,))
    worker.step(0.0)
    assert dropped == [], "its job is in flight"
    store.may_commit.set()
    until(worker, lambda: dropped == [0])
    assert worker._manager._leftover == {}
    worker.close()


def test_a_dropped_partition_is_taken_again_only_by_a_member_of_the_group() -> None:
    """A zombie that is woken commits, is refused, and must not fence its successor before it hears of its eviction."""
    d = driver(partitions=1)
    d.run()
    source, taken = d.worker_source, []
    take = d.worker._store.take
    d.worker._store.take = lambda p: taken.append(p) or take(p)  # type: ignore[method-assign, func-returns-value]
    member = False
    source.confirmed = lambda since_s: member and since_s >= 0  # type: ignore[method-assign]
    d.worker._manager.fail(d.worker._partitions[0], FencedError("another worker has taken the partition over"))
    for _ in range(20):
        d.clock.advance(1)
        d.worker.step(0.0)
    assert taken == []
    assert not d.worker.gauges().ready
    member = True
    d.worker.step(0.0)
    d.worker.step(0.0)
    assert taken == [0]
    assert d.worker.gauges().ready


def test_partitions_whose_windows_do_not_fit_into_memory_wait_for_another_worker() -> None:
    d = driver(partitions=3)
    d.worker._manager._settings = replace(d.worker.settings, fits=lambda n, of: n <= 2 and of == 3)
    for _ in range(5):
        d.clock.advance(2)
        d.worker.step(0.0)
    waiting = [one for one in d.worker.gauges().partitions if one.status != "running"]
    assert [one.partition for one in waiting] == [2]
    assert "worker.memory_limit: start more workers" in waiting[0].reason
    assert not d.worker.gauges().ready
    d.worker._manager.revoke((0,))
    for _ in range(3):
        d.clock.advance(2)
        d.worker.step(0.0)
    assert [one.status for one in d.worker.gauges().partitions] == ["running", "running"]


def test_copies_in_flight_stay_small_beside_the_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight partitions want a snapshot at once: only as many are copied as the budget lets wait."""
    from sketchstream.stream.worker import policy as module

    monkeypatch.setattr(module, "MIN_COPIES_BYTES", 100)
    d = driver(partitions=8)
    store = SlowStore(d.snapshots)
    worker = threaded(d, store)
    until(worker, lambda: worker.gauges().ready)
    store.may_commit.clear()
    for partition in range(8):
        for item in range(40):
            send(d, item, EPOCH + item, partition)
    until(worker, lambda: worker.metrics.counters["records"] == 320)
    for _ in range(20):
        worker.step(0.0)
        worker._clock.advance(1)  # type: ignore[attr-defined]
    flying = [slot.job.n_bytes for slot in worker._partitions.values() if slot.job is not None]
    assert 0 < sum(flying) <= 100
    assert 0 < len([size for size in flying if size]) < 8
    store.may_commit.set()
    until(worker, lambda: sum(s.position for s in d.snapshots.snapshots.values()) == 320)
    worker.finish()
    worker.close()


def test_stop_takes_the_last_snapshots() -> None:
    d = driver(partitions=3)
    worker = (
        threaded(d, MemoryStore(d.snapshots), snapshot_every_s=0) if False else threaded(d, MemoryStore(d.snapshots))
    )
    for i in range(100):
        send(d, i % 40, EPOCH + i)
    threading.Timer(0.5, worker.stop).start()
    worker.run()
    assert sum(snapshot.position for snapshot in d.snapshots.snapshots.values()) == 100


def test_fenced_members_end_the_worker() -> None:
    """Another process with the same group.instance.id: the source says so, and the worker leaves (exit code 3)."""
    d = driver(partitions=1)
    d.run()

    def fenced(timeout_s: float) -> list[object]:
        msg = "another member has this group.instance.id"
        raise FencedError(msg)

    d.worker_source.poll = fenced  # type: ignore[method-assign,assignment]
    with pytest.raises(FencedError):
        d.worker.run()


def test_a_full_disk_ends_a_bounded_worker() -> None:
    d = driver(partitions=1)
    store = MemoryStore(d.snapshots)
    worker = threaded(d, store, give_up_after=2)
    until(worker, lambda: worker.gauges().ready)
    store.fail = StoreError("no space left on device")
    send(d, 1, EPOCH, 0)
    with pytest.raises(StoreError, match="no space"):
        until(worker, lambda: False)
    worker.close()


# --------------------------------------------------------------------------------------------- what is shown


def test_no_item_reaches_logs_metrics_or_reprs(caplog: pytest.LogCaptureFixture) -> None:
    """A marked item goes through everything that can happen to a record; all output is searched."""
    from sketchstream.stream.monitoring.exposition import exposition

    mark = "marker-7351-secret"
    text = TEXT.replace('item_type = "int"', "").replace("size = 40", "slots = 64, levels = 2")
    text = text.replace("[store]", '[key]\nfile = "unused"\n[store]')
    from sketchstream.items.key import Key

    key = Key(bytes(range(16)))
    d = Driver(config(text), partitions=2, now=EPOCH, key=key)
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    for at in (EPOCH, EPOCH + 20 * MINUTE, EPOCH, EPOCH + 99 * HOUR, "never", EPOCH + 21 * MINUTE):
        for partition in (0, 1):
            d.send({"user": mark, "ts": at}, timestamp=EPOCH, partition=partition)
    d.log.append(0, EPOCH, mark.encode(), b'{"user": "' + mark.encode())
    d.log.append(0, EPOCH, mark.encode(), None)
    d.run()
    d.snapshot()
    d.kill()
    d.run()
    worker = d.worker
    worker._manager.fail(worker._partitions[0], ValueError(mark))
    worker._manager.fail(worker._partitions[1], DataLossError("its offset is gone"))
    d.clock.advance(10)
    worker.step(0.0)
    seen += [record.getMessage() for record in caplog.records]
    seen += [repr(worker.gauges()), repr(worker.progress()), worker.progress().line(), repr(worker.halted())]
    seen += [
        repr(d.log.partitions),
        repr(d.snapshots.snapshots),
        repr(d.sink.sent),
        repr(worker._partitions),
        repr(d._rules),
    ]
    seen.append(exposition(worker.metrics, worker.gauges, ["events"]).decode())
    everything = "\n".join(seen)
    assert len(everything) > 2000
    assert mark not in everything
    assert mark.encode().hex() not in everything
    assert key.secret().hex() not in everything
    assert "event=halted" in everything


def test_diagnostics_off_counts_no_payloads() -> None:
    from sketchstream.stream.monitoring.exposition import exposition
    from sketchstream.stream.monitoring.metrics import Metrics

    d = driver(partitions=1)
    for diagnostics in (True, False):
        worker = Worker(
            d._rules,
            MemorySource(d.log, d._decoder),
            MemoryStore(),
            d.publisher,
            settings=Settings(threads=0),
            metrics=Metrics(diagnostics),
            clock=ManualClock(EPOCH),
        )
        d.log.append(0, EPOCH, None, b"rubbish")
        send(d, 1, EPOCH, 0)
        for _ in range(4):
            worker.step(0.0)
        shown = exposition(worker.metrics, worker.gauges, ["events"]).decode()
        assert ("sketchstream_invalid_total" in shown) is diagnostics
        assert ("sketchstream_updates_total" in shown) is diagnostics
        assert "sketchstream_records_total" in shown
        assert (worker.metrics.counters["updates"] > 0) is diagnostics


def test_the_endpoint_tells_health_readiness_and_metrics() -> None:
    import urllib.error
    import urllib.request

    from sketchstream.stream.monitoring.endpoint import Endpoint

    d = driver(partitions=2)
    endpoint = Endpoint(("127.0.0.1", 0), d.worker.metrics, d.worker.gauges, ["events"])

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    try:
        assert get("/readyz") == (503, "no partition is assigned yet\n")
        send(d, 1, EPOCH, 0)
        d.run()
        assert get("/readyz") == (200, "ready\n")
        assert get("/healthz")[0] == 200
        code, text = get("/metrics")
        assert code == 200
        for name in (
            "sketchstream_records_total 1.0",
            'sketchstream_window_open{partition="0",topic="events"} 2.0',
            'sketchstream_partition_status{partition="0",status="running",topic="events"} 1.0',
            'sketchstream_privacy_epsilon_spent{sketch="hours"} 30.0',
            "sketchstream_snapshot_seconds_count",
            "sketchstream_commit_failures_total 0.0",
        ):
            assert name in text, name
        d.worker._manager.halt(d.worker._partitions[1], "partition 1: offset trimmed")
        code, text = get("/readyz")
        assert code == 200, "a roll-out does not wait for a partition that waits for a person"
        assert text == "ready\npartition 1 halted: partition 1: offset trimmed\n"
        d.worker._manager.fail(d.worker._partitions[0], BrokerError("away"))
        assert get("/readyz")[0] == 503
        assert "partition 0 restoring: away" in get("/readyz")[1]
        d.clock.advance(1)
        d.run()
        assert get("/readyz")[0] == 200
        d.clock.advance(100)
        assert get("/healthz")[0] == 503
        assert get("/readyz") == (
            503,
            "the worker does not poll\npartition 1 halted: partition 1: offset trimmed\n",
        )
        assert get("/other")[0] == 404
    finally:
        endpoint.close()


def test_large_outboxes_pause_their_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchstream.stream.worker import assigned_partition as module

    monkeypatch.setattr(module, "MAX_OUTBOX_BYTES", 1000)
    d = driver(partitions=1)
    d.run()
    d.publisher.fail = BrokerError("away")
    for i in range(400):
        send(d, 1, EPOCH + i * MINUTE, 0)
    d.worker_source.chunk = 10
    for _ in range(50):
        d.worker.step(0.0)
    assert d.worker._partitions[0].throttled
    assert d.worker.metrics.counters["records"] < 100
    d.publisher.fail = None
    for _ in range(200):
        d.clock.advance(2)
        d.worker.step(0.0)
    assert d.worker.metrics.counters["records"] == 400


def test_chunks_of_unassigned_partitions_are_ignored() -> None:
    d = driver(partitions=1)
    d.run()
    d.worker._manager.revoke((0,))
    send(d, 1, EPOCH, 0)
    chunk = next(event for event in d.worker_source.poll(0) if isinstance(event, Chunk))
    d.worker._chunk(chunk)
    assert d.worker.metrics.counters["records"] == 0
