"""How a worker ends, and what does not end it: last snapshots that fail, brokers that are away, damaged frontiers."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from helpers.configurations import EVENTS_FILE, EVENTS_TOPIC
from sketchstream.config.loader import Config
from sketchstream.errors import BrokerError, FormatError, StoreError
from sketchstream.stream.input.partition_counts import CountNeeded, Steps
from sketchstream.stream.interfaces import PartitionError, Snapshot
from sketchstream.testing.driver import Driver
from sketchstream_connectors.factory import file_worker
from sketchstream_connectors.files.publisher import DirectoryPublisher

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")

HOUR = 3_600_000
START = 1_357_000_000_000 // HOUR * HOUR
SKETCH = """
[[sketch]]
name = "hourly"
unit = "event"
window = "1h"
epsilon = "30"
max_count = 20
domain = { size = 6 }
"""
FILE = EVENTS_FILE + "close_at_end = true\n"
TOPIC = f"""{EVENTS_TOPIC}idle = "10m"
data_loss = "accept"
"""


def test_a_file_whose_last_snapshot_cannot_be_written_is_not_said_to_be_done(tmp_path: Path) -> None:
    lines = [json.dumps({"ts": START + n, "user": n % 6}) for n in range(10)]
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    worker = file_worker(Config.parse(FILE + SKETCH, tmp_path / "c.toml", {}))
    commit, full = worker._store.commit, StoreError("the disk is full")
    full.errno = errno.ENOSPC

    def fail(partition: int, snapshot: Snapshot) -> None:
        if snapshot.position:
            raise full
        commit(partition, snapshot)

    worker._store.commit = fail  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="disk is full"):
        worker.run()


def test_a_loss_is_counted_once_though_its_snapshot_fails_at_first() -> None:
    driver = Driver(TOPIC + SKETCH, now=START)
    for n in range(5):
        driver.send({"ts": START + n, "user": n}, timestamp=START + n)
    driver.run()
    worker, source = driver.worker, driver.worker_source
    commit = worker._store.commit

    def fail(partition: int, snapshot: Snapshot) -> None:
        del partition, snapshot
        msg = "no answer"
        raise BrokerError(msg)

    driver.clock.advance(60)
    driver.send({"ts": START + 5, "user": 5}, timestamp=START + 5)
    source.chunk = 1
    worker._store.commit = fail  # type: ignore[method-assign]
    state = worker._partitions[0].state
    assert state is not None
    state.touch()
    worker._manager.save(worker._partitions[0])  # in flight, and lost
    gap = PartitionError(0, BrokerError("trimmed"), resume_at=9)
    poll = source.poll
    source.poll = lambda timeout_s: [gap]  # type: ignore[method-assign]
    assert worker._manager.accept_loss(worker._partitions[0], gap), "nothing is halted"
    worker._store.commit = commit  # type: ignore[method-assign]
    source.poll = poll  # type: ignore[method-assign]
    assert worker.metrics.counters["lost_offsets"] == 0, "the state that would have passed the gap is gone"


def test_a_broker_that_does_not_answer_while_a_snapshot_is_captured_drops_the_partition_only() -> None:
    driver = Driver(TOPIC + SKETCH, now=START)
    driver.send({"ts": START, "user": 1}, timestamp=START)
    driver.run()
    state = driver.worker._partitions[0].state
    assert state is not None

    def sealing_for_snapshot() -> Steps[int]:
        yield CountNeeded.SEAL
        msg = "no answer"
        raise BrokerError(msg)

    state.sealing_for_snapshot = sealing_for_snapshot  # type: ignore[method-assign]
    driver.send({"ts": START + 1, "user": 2}, timestamp=START + 1)
    driver.worker.step(0.0)
    driver.clock.advance(60)
    driver.worker.step(0.0)
    assert driver.worker._partitions[0].status == "restoring"
    driver.clock.advance(60)
    driver.run()
    assert driver.worker.gauges().ready
    assert driver.worker.gauges().partitions[0].position == 2


def test_frontiers_that_cannot_be_read_say_where_and_do_not_end_a_worker(tmp_path: Path) -> None:
    folder = tmp_path / "hourly" / "r0"
    folder.mkdir(parents=True)
    (folder / "frontier.p00001.json").write_bytes(b"{}")
    with pytest.raises(FormatError, match=r"frontier\.p00001\.json"):
        DirectoryPublisher(tmp_path).frontiers()
    driver = Driver(TOPIC + SKETCH, partitions=2, now=START)
    driver.send({"ts": START, "user": 1}, timestamp=START, partition=0)
    driver.run()
    driver.publisher.frontiers = DirectoryPublisher(tmp_path).frontiers  # type: ignore[method-assign, assignment]
    for _ in range(40):
        driver.send({"ts": START, "user": 1}, timestamp=START, partition=1)
        driver.clock.advance(60)
        driver.worker.step(0.0)
    assert driver.worker.gauges().ready
