"""Snapshots behind a broker that is slow, or silent: what makes progress is committed, what makes none is given up.

In: a broker of its own with a quota. Out: nothing. Touches: topics and the quota.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from helpers.kafka.app import Nobody
from helpers.kafka.devbroker import DevCluster
from helpers.kafka.quotas import limited
from sketchstream.errors import BrokerError
from sketchstream.stream.interfaces import Restored, Snapshot
from sketchstream_connectors.kafka.cluster import acknowledgements
from sketchstream_connectors.kafka.cluster import topics as kafka_topics
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.topics import TopicNames
from sketchstream_connectors.kafka.state.store import KafkaStore

BLOB = bytes(range(256)) * (96 << 10)  # 24 MiB
QUOTA = 2 << 20
STALLED_S = 5.0
"""Less than the blob takes at the quota, and more than the broker takes for one of its records."""


@pytest.fixture
def store(own_broker: DevCluster, topic_name: Callable[[str], str]) -> Iterator[Callable[[], KafkaStore]]:
    """Makes stores of one group and topic that have taken partition 0."""
    names = TopicNames(topic_name("g"), topic_name("t"))
    connection = Connection({"bootstrap.servers": own_broker.bootstrap, "group.id": names.group})
    made: list[KafkaStore] = []
    with connection.admin.client("creating") as admin:
        admin.create_topics({names.input: {"num_partitions": 1, "replication_factor": 1}})
        admin.wait_for_topics([names.input])
    kafka_topics.create(connection, names)
    producer = connection.producer()
    for _ in range(3):  # positions up to 3 exist
        producer.send(names.input, value=b"x", partition=0)
    producer.close()

    def make() -> KafkaStore:
        made.append(KafkaStore(connection, names.input, Nobody(names.group)))
        return made[-1]

    yield make
    for one in made:
        one.close()
    connection.close()


@pytest.fixture
def throttled(own_broker: DevCluster) -> Iterator[None]:
    """Quotas for all clients, set by Kafka's own tool and removed again."""
    with limited(own_broker, producer_byte_rate=QUOTA, consumer_byte_rate=QUOTA):
        yield


def test_a_snapshot_that_takes_long_behind_a_quota_is_committed_and_restored(
    store: Callable[[], KafkaStore], throttled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One large window, and thousands of small ones."""
    monkeypatch.setattr(acknowledgements, "STALLED_S", STALLED_S)
    writer = store()
    writer.take(0)
    for position in (1, 2):  # the quota forgives what was not used before the first
        began = time.monotonic()
        starts = [0, *range(len(BLOB) // 2, len(BLOB), 4 << 10)]
        brought = {f"{position}-{at}": BLOB[at:end] for at, end in pairwise([*starts, len(BLOB)])}
        writer.commit(0, Snapshot(0, position, {"at": position}, brought, frozenset()))
    assert time.monotonic() - began > STALLED_S, "the quota must hold the commit up for this test to mean anything"
    found = store().take(0)
    assert isinstance(found, Restored)
    state = b"".join(bytes(found.blobs[name]) for name in sorted(brought, key=lambda name: int(name[2:])))
    assert (found.position, state == BLOB) == (2, True)


def test_a_broker_that_does_not_answer_is_given_up(
    own_broker: DevCluster, store: Callable[[], KafkaStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledgements, "STALLED_S", STALLED_S)
    writer = store()
    writer.take(0)
    writer.commit(0, Snapshot(0, 1, {}, {"state": b"first"}, frozenset()))
    own_broker.suspend(1)
    try:
        with pytest.raises(BrokerError):
            writer.commit(0, Snapshot(0, 2, {}, {"state": BLOB}, frozenset()))
    finally:
        own_broker.resume(1)
    found = store().take(0)
    assert isinstance(found, Restored)
    assert found.position == 1
