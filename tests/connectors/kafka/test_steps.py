"""A worker killed or stopped at every step of take, commit and publish, and another one taking over."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.kafka.app import MINUTE, MISSED_SOON, App, Nobody
from sketchstream.errors import BrokerError, FencedError
from sketchstream.stream.interfaces import Restored, Snapshot
from sketchstream_connectors.kafka.state.store import KafkaStore

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
STEPS = [
    "take.fenced",
    "commit.begun",
    "commit.blobs",
    "commit.manifest",
    "commit.offsets",
    "commit.done",
    "publish.entries",
    "publish.frontiers",
]
QUICKLY = {("commit.offsets", "kill"), ("publish.entries", "stop")}
CASES = [
    pytest.param(step, how, marks=() if (step, how) in QUICKLY else pytest.mark.slow)
    for step in STEPS
    for how in ("kill", "stop")
]
BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE


@pytest.fixture
def app(kafka: str, tmp_path: Path) -> Iterator[App]:
    made = App(kafka, tmp_path / "app", partitions=2, kafka=MISSED_SOON)
    yield made
    made.close()


@pytest.mark.parametrize(("step", "how"), CASES)
def test_a_worker_that_fails_at_this_step_loses_and_repeats_nothing(app: App, step: str, how: str) -> None:
    times = "2" if step == "take.fenced" else "4" if step.startswith("commit") else "2"
    faulty = app.start("faulty", fault=(step, times, how))
    load, rng = app.load(), random.Random(9)
    other = None
    for w in range(4):
        for i in range(1500):
            load.send(int(499 * rng.random() ** 3), BASE + w * MINUTE + i * MINUTE // 1500)
        load.flush()
        time.sleep(1.5)
        if other is None and faulty.says("FAULT"):
            other = app.start("other")
    deadline = time.monotonic() + 40
    while not faulty.says("FAULT"):
        assert faulty.alive or faulty.says("FAULT"), app.logs()
        load.close_windows(BASE + 5 * MINUTE)
        assert time.monotonic() < deadline, f"{step} was never reached\n{app.logs()}"
        time.sleep(0.5)
    other = other or app.start("other")
    load.close_windows(BASE + 6 * MINUTE)
    app.wait_published(BASE + 4 * MINUTE)
    if how == "stop":
        faulty.wake()  # the zombie goes on in the middle of its step
        time.sleep(4)
        for i in range(500):
            load.send(int(499 * rng.random() ** 3), BASE + 6 * MINUTE + i)
        load.close_windows(BASE + 9 * MINUTE)
        app.wait_published(BASE + 7 * MINUTE)
    app.check_exact()


# ------------------------------------------------------------- transactions whose outcome the committer does not learn


@pytest.fixture
def store_of(app: App) -> Iterator[Callable[[], KafkaStore]]:
    made: list[KafkaStore] = []
    load = app.load()
    for i in range(100):
        load.send(i, BASE + i, partition=0)
    load.flush()

    def open_store() -> KafkaStore:
        made.append(KafkaStore(app.connection, app.topic, Nobody(app.group), sealed_topic=app.names.sealed))
        return made[-1]

    yield open_store
    for store in made:
        store.close()


def snapshot(position: int) -> Snapshot:
    return Snapshot(0, position, {}, {f"w{position}": b"%d" % position}, frozenset())


def test_a_commit_that_took_effect_but_was_not_answered_is_found_by_the_next_take(
    store_of: Callable[[], KafkaStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of()
    store.take(0)
    store.commit(0, snapshot(10))
    producer = store._fences[0].producer
    manager = producer._transaction_manager
    begin = manager.begin_commit

    class Unanswered:
        """The answer is lost on the way; the commit itself went through."""

        def __init__(self) -> None:
            result = begin()
            producer._sender.wakeup()  # as the store does: else the sender may sleep longer than anybody waits
            assert result.wait(timeout_ms=60_000), "the commit did not go through"

        def wait(self, timeout_ms: float) -> bool:
            return False

    monkeypatch.setattr(manager, "begin_commit", Unanswered)
    with pytest.raises(BrokerError, match="made no progress"):
        store.commit(0, snapshot(20))
    with pytest.raises(FencedError):  # whatever happened, this state is not used again
        store.commit(0, snapshot(30))
    store.drop(0)
    found = store.take(0)
    assert isinstance(found, Restored)
    assert (found.position, dict(found.blobs)) == (20, {"w20": b"20"})


def test_a_commit_that_was_held_back_is_refused_when_it_arrives_after_a_later_one(
    store_of: Callable[[], KafkaStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = store_of(), store_of()
    slow.take(0)
    slow.commit(0, snapshot(10))
    producer = slow._fences[0].producer
    manager = producer._transaction_manager
    begin = manager.begin_commit

    class Held:
        """Nothing leaves this process yet."""

        def wait(self, timeout_ms: float) -> bool:
            return False

    monkeypatch.setattr(manager, "begin_commit", Held)
    with pytest.raises(BrokerError):
        slow.commit(0, snapshot(20))
    found = other.take(0)
    assert isinstance(found, Restored)
    assert found.position == 10
    other.commit(0, snapshot(30))
    held = begin()  # now it goes out
    producer._sender.wakeup()
    from kafka.errors import KafkaError

    with pytest.raises(KafkaError):
        held.wait(20_000)
    found = store_of().take(0)
    assert isinstance(found, Restored)
    assert (found.position, dict(found.blobs)) == (30, {"w30": b"30"})
