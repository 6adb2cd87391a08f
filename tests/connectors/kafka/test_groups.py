"""Groups whose members were all evicted, and one who joins: every partition finds an owner."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaAdminClient

from helpers.kafka.app import wait_forgotten
from sketchstream.stream.interfaces import Assigned, Revoked
from sketchstream_connectors.decode.decoder import Decoder
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.input.source import KafkaSource

QUICK = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 400, "max.poll.interval.ms": 2500}


class Member:
    """A source polled by a thread of its own, which can be stopped for a while, and what it was told."""

    def __init__(self, source: KafkaSource) -> None:
        self.source = source
        self.owned: set[int] = set()
        self.awake = threading.Event()
        self.awake.set()
        self.over = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.over:
            self.awake.wait()
            for event in self.source.poll(0.1):
                if isinstance(event, Assigned):
                    assert not self.owned & set(event.partitions)
                    self.owned |= set(event.partitions)
                elif isinstance(event, Revoked):
                    self.owned -= set(event.partitions)

    def close(self) -> None:
        self.over = True
        self.awake.set()
        self.thread.join(30)
        self.source.close()


@pytest.fixture
def join(kafka: str, topic_name: Callable[[str], str]) -> Iterator[Callable[[], Member]]:
    topic, group, made = topic_name("groups"), topic_name("group"), []
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.create_topics({topic: {"num_partitions": 6, "replication_factor": 1}})
    admin.wait_for_topics([topic])
    admin.close()

    def member() -> Member:
        connection = Connection({"bootstrap.servers": kafka, "group.id": group, **QUICK})
        made.append(Member(KafkaSource(connection, topic, Decoder(format="value").decode)))
        return made[-1]

    yield member
    for one in made:
        one.close()


def settle(members: list[Member], seconds: float = 60) -> None:
    """Wait until each of the six partitions has exactly one owner, evenly."""
    deadline = time.monotonic() + seconds
    while True:
        time.sleep(0.1)
        owned = [p for member in members for p in member.owned.copy()]
        sizes = [len(member.owned) for member in members]
        if sorted(owned) == list(range(6)) and max(sizes) - min(sizes) <= 1:
            return
        assert time.monotonic() < deadline, [m.owned for m in members]


@pytest.mark.parametrize("evicted", [1, 2])
def test_evicted_members_and_a_new_one_own_every_partition(join: Callable[[], Member], evicted: int) -> None:
    old = [join() for _ in range(evicted)]
    settle(old)
    for member in old:
        member.awake.clear()
    wait_forgotten(old[0].source._connection)  # nobody polls
    new = join()
    for member in old:
        member.awake.set()
    settle([*old, new])


def test_a_healthy_member_shares_when_an_evicted_one_returns(join: Callable[[], Member]) -> None:
    healthy, sleeper = join(), join()
    settle([healthy, sleeper])
    sleeper.awake.clear()
    deadline = time.monotonic() + 40
    while healthy.owned != set(range(6)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    sleeper.awake.set()
    settle([healthy, sleeper])
