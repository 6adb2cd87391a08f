"""What operators are told when commits or publications do not succeed although records are read.

In: a worker over ports in memory. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest

from helpers.streams import EPOCH, MINUTE
from helpers.workers import close_windows, counts, driver, send
from sketchstream.errors import BrokerError, SnapshotsGoneError
from sketchstream.stream.monitoring.durability import FAILING_S, WRITTEN_BYTES_PER_S, Durability
from sketchstream.stream.monitoring.endpoint import readiness
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.worker.assigned_partition import AssignedPartition, Job
from sketchstream.testing.driver import Driver

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")


def keep_reading(d: Driver, seconds: int, at: int = EPOCH) -> None:
    """A record and a turn of the loop each second."""
    for second in range(seconds):
        send(d, second % 40, at + second * 1000, 0)
        d.clock.advance(1.0)
        d.worker.step(0.0)


@pytest.mark.parametrize("error", [BrokerError("over its quota"), SnapshotsGoneError("the state topic was deleted")])
def test_commits_that_fail_while_records_are_read_are_said_within_half_a_minute(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    d = driver(partitions=1)
    keep_reading(d, 3)
    assert d.worker.gauges().ready
    d.worker._store.commit = lambda partition, snapshot: (_ for _ in ()).throw(error)  # type: ignore[method-assign]
    said_after = 0
    for second in range(60):
        keep_reading(d, 1, EPOCH + second * 1000)
        if "event=not_durable" in caplog.text:
            said_after = said_after or second
    assert 0 < said_after <= 30
    assert caplog.text.count("event=not_durable") == 1, "once, not once for each attempt"
    assert caplog.text.count("event=snapshots_gone") <= 1
    gauges = d.worker.gauges()
    assert not gauges.ready
    assert gauges.partitions[0].commit_age_s >= 30
    assert "nothing was committed for" in readiness(gauges)
    assert str(error) in readiness(gauges)
    attempts = d.worker.metrics.counters["commit_failures"]
    assert 5 <= attempts <= 40, "tried again, at growing intervals"
    del d.worker._store.commit  # type: ignore[method-assign]
    keep_reading(d, 15, EPOCH + 60_000)
    assert d.worker.gauges().ready
    assert d.worker.gauges().partitions[0].commit_age_s < 5
    assert caplog.text.count("event=durable_again") == 1


def test_records_that_are_applied_do_not_hide_commits_that_fail() -> None:
    """Back-off and the limit of failures count commits although records are read between them."""
    d = driver(partitions=1)
    keep_reading(d, 2)
    object.__setattr__(d.worker.settings, "give_up_after", 3)
    d.worker._store.commit = lambda partition, snapshot: (_ for _ in ()).throw(BrokerError("no"))  # type: ignore[method-assign]
    with pytest.raises(BrokerError, match="no"):
        keep_reading(d, 60)


def test_publications_that_fail_are_said_within_half_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    d = driver(partitions=1)
    send(d, 1, EPOCH, 0)
    close_windows(d, EPOCH + 10 * MINUTE)
    d.publisher.fail = BrokerError("the disk is full")
    keep_reading(d, 30, EPOCH + 10 * MINUTE)
    gauges = d.worker.gauges()
    assert not gauges.ready
    assert gauges.partitions[0].status == "stalled"
    assert "sealed sketches have been waiting for" in readiness(gauges)
    assert "the disk is full" in readiness(gauges)
    assert caplog.text.count("event=publish_failed") == 1
    assert caplog.text.count("event=not_durable") == 1
    d.publisher.fail = None
    keep_reading(d, 5, EPOCH + 11 * MINUTE)
    assert d.worker.gauges().ready
    assert counts(d, "minutes", 1)[EPOCH] == 1


def test_a_partition_that_cannot_be_taken_again_is_stalled_as_well() -> None:
    """Brokers that do not answer fail a commit first, and then each attempt to take the partition again."""
    d = driver(partitions=1)
    keep_reading(d, 3)
    away = BrokerError("the cluster cannot be reached")
    d.worker._store.commit = lambda partition, snapshot: (_ for _ in ()).throw(away)  # type: ignore[method-assign]
    d.worker._store.take = lambda partition: (_ for _ in ()).throw(away)  # type: ignore[method-assign]
    keep_reading(d, 60, EPOCH + 3000)
    (one,) = d.worker.gauges().partitions
    assert (d.worker._partitions[0].status, one.status) == ("restoring", "stalled")
    assert "the cluster cannot be reached" in one.reason


def test_lag_is_measured_from_what_is_committed() -> None:
    d = driver(partitions=1)
    keep_reading(d, 5)
    d.run()
    d.advance(minutes=1)
    assert d.worker.gauges().partitions[0].lag == 0
    d.worker._store.commit = lambda partition, snapshot: (_ for _ in ()).throw(BrokerError("no"))  # type: ignore[method-assign]
    keep_reading(d, 40, EPOCH + 5000)
    lag = d.worker.gauges().partitions[0].lag
    assert lag is not None
    assert lag >= 30
    assert d.worker.progress().stalled == 1
    assert "NOT DURABLE" in d.worker.progress().line()


def test_ages_are_zero_while_nothing_waits() -> None:
    one = Durability()
    one.restored(7)
    assert (one.commit_age_s(1e6), one.publication_age_s(1e6), one.stall_reason(1e6, 300)) == (0, 0, "")
    one.changed(10.0)
    one.changed(20.0)
    assert one.commit_age_s(30.0) == 20.0
    assert one.stall_reason(30.0, 300) == "", "slow is not failing"
    assert "the limit is 15 s" in one.stall_reason(30.0, 15)
    one.captured(9, 25.0)
    one.committed(changed=True)
    assert (one.position, one.commit_age_s(30.0)) == (9, 5.0)
    one.commit_failed("quota")
    assert one.stall_reason(25.0 + FAILING_S - 1, 300) == ""
    assert "quota" in one.stall_reason(25.0 + FAILING_S, 300)
    one.captured(11, 50.0)
    one.committed(changed=False)
    assert (one.position, one.commit_age_s(90.0), one.stall_reason(90.0, 10)) == (11, 0, "")


def test_a_commit_is_slow_after_ten_seconds_and_what_its_state_explains() -> None:
    one = AssignedPartition(0, 0.0)
    assert one.slow(1e6) == "", "none is being written"
    one.job = Job("commit", Future(), began=100.0)
    assert one.slow(109.9) == ""
    assert one.slow(110.0) == "a snapshot has been written for 10 s"
    one.state = cast(PartitionState, SimpleNamespace(state_bytes=100 * WRITTEN_BYTES_PER_S))
    assert one.slow(209.9) == "", "a state of 400 MiB"
    assert one.slow(210.0) == "a snapshot has been written for 110 s"
