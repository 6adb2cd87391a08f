"""The logs of workers tell whether their states hold every record once."""

from __future__ import annotations

import logging

import pytest

from helpers.kafka.applied import complaints
from helpers.streams import EPOCH, MINUTE
from helpers.workers import close_windows, driver, send
from sketchstream.errors import BrokerError
from sketchstream.stream.interfaces import Snapshot
from sketchstream.stream.state.partition import PartitionState
from sketchstream.testing.driver import Driver
from sketchstream.testing.memory import MemoryStore

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")


@pytest.fixture(autouse=True)
def _debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "sketchstream.worker")


def logs(caplog: pytest.LogCaptureFixture, lives: list[int]) -> list[str]:
    """One text for each worker; `lives`: where in the records each began."""
    texts = [record.getMessage() for record in caplog.records]
    return ["\n".join(texts[first:last]) + "\n" for first, last in zip(lives, [*lives[1:], None], strict=True)]


def run(caplog: pytest.LogCaptureFixture, kill_every: int = 40) -> tuple[Driver, list[str]]:
    """Workers that are killed after so many records, and one to the end; the logs of all of them."""
    d, lives = driver(partitions=2), [0]
    for i in range(200):
        send(d, i % 40, EPOCH + i * 1000)
        if i % 10 == 9:
            d.clock.advance(0.4)
            d.worker.step(0.0)
        if i % kill_every == kill_every - 1:
            d.kill()
            lives.append(len(caplog.records))
    close_windows(d, EPOCH + 10 * MINUTE)
    d.run()
    return d, logs(caplog, lives)


def test_nothing_is_said_of_workers_that_were_killed(caplog: pytest.LogCaptureFixture) -> None:
    d, texts = run(caplog)
    assert complaints(texts) == []
    assert len(texts) == 6
    applied = sum(text.count("event=applied") for text in texts)
    assert applied > sum(len(log) for log in d.log.partitions) / 20, "chunks are in the logs"
    assert sum(text.count("event=running") for text in texts) > len(texts), "later workers restored partitions"


def test_a_chunk_that_is_applied_twice_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    applying, left = PartitionState.applying, [10]

    def twice(self: PartitionState, chunk: object, **rest: object) -> object:
        left[0] -= 1
        outcome = yield from applying(self, chunk, **rest)
        if left[0] == 0:
            self.position = chunk.from_position
        return outcome

    monkeypatch.setattr(PartitionState, "applying", twice)
    found = complaints(run(caplog, kill_every=1000)[1])
    assert any("a chunk from" in text for text in found)
    assert all("partition 1:" in text for text in found)


def test_a_snapshot_of_another_position_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that returns a snapshot under a wrong position would let records be counted twice."""
    take = MemoryStore.take

    def early(self: MemoryStore, partition: int) -> object:
        found = take(self, partition)
        if hasattr(found, "manifest") and found.position > 3:
            found.manifest["position"] = found.position - 3
            return type(found)(found.position - 3, found.manifest, found.blobs)
        return found

    monkeypatch.setattr(MemoryStore, "take", early)
    _, texts = run(caplog)
    assert any("where no snapshot was captured" in text for text in complaints(texts))


def test_dropped_states_and_half_lines_are_no_contradiction(caplog: pytest.LogCaptureFixture) -> None:
    d = driver(partitions=1)
    real, failures = MemoryStore.commit, iter([False, False, True, False, True] + [False] * 100)

    def commit(self: MemoryStore, partition: int, snapshot: Snapshot) -> None:
        real(self, partition, snapshot)
        if next(failures):
            msg = "connection lost"
            raise BrokerError(msg)

    d.worker._store.commit = commit.__get__(d.worker._store)  # type: ignore[method-assign]
    for i in range(100):
        send(d, i % 40, EPOCH + i * 1000)
        if i % 10 == 9:
            d.clock.advance(1.1)
            d.run()
    (text,) = logs(caplog, [0])
    assert text.count("event=dropped") == 2
    assert complaints([text]) == []
    cut = text[: text.rindex("records=") + len("records=")]
    assert complaints([cut]) == []
