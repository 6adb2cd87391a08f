"""A broker that goes away under transactions: they go on when it is back, or when another has taken its place."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import errors

from helpers.kafka.app import App
from helpers.kafka.devbroker import DevCluster
from sketchstream_connectors.kafka.cluster import client
from sketchstream_connectors.kafka.cluster.client import Connection

PATIENCE_MS = 120_000


class Network:
    """What is used of the client's network: asking for a node raises, or says so."""

    def __init__(self, answer: bool | Exception) -> None:
        self.answer = answer
        self.polled: list[float] = []

    def await_ready(self, _node_id: object, timeout_ms: float) -> bool:
        assert timeout_ms > 0
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def poll(self, timeout_ms: float) -> None:
        self.polled.append(timeout_ms)


@pytest.mark.parametrize(
    "answer", [errors.KafkaConnectionError("refused"), errors.NodeNotReadyError(3), errors.UnknownBrokerIdError(3)]
)
def test_a_node_that_cannot_be_reached_is_not_ready(answer: Exception) -> None:
    network = client._report_not_ready(Network(answer))
    assert network.await_ready(3, timeout_ms=10) is False
    assert network.polled == [client.NOT_READY_MS], "who asks does so again at once: not without a pause"


def test_other_answers_stay_what_they_are() -> None:
    assert client._report_not_ready(Network(answer=True)).await_ready(3, timeout_ms=10) is True
    with pytest.raises(errors.SaslAuthenticationFailedError):
        client._report_not_ready(Network(errors.SaslAuthenticationFailedError("no"))).await_ready(3)


@pytest.fixture
def connection(cluster3: DevCluster, tmp_path: Path) -> Iterator[Connection]:
    app = App(cluster3.bootstrap, tmp_path / "app", partitions=3, replication=3)
    yield app.connection
    for number in cluster3.nodes:
        cluster3.start_node(number)
    app.close()


@pytest.mark.timeout(300)
def test_a_transaction_outlives_its_coordinator(cluster3: DevCluster, connection: Connection) -> None:
    """With patience of minutes: a request that the client has lost would wait for that time, and fail."""
    topic = f"{connection.group}.sealed"
    patience = {"max_block_ms": PATIENCE_MS, "delivery_timeout_ms": PATIENCE_MS, "metrics_enabled": False}
    with contextlib.closing(connection.producer(transactional_id=f"{connection.group}-tried", **patience)) as producer:
        producer.init_transactions()
        where = str(producer._transaction_manager._transaction_coordinator)
        producer.begin_transaction()
        producer.send(topic, b"before", partition=0).get(timeout=60)
        number = int(where.removeprefix("coordinator-"))
        cluster3.kill(number)
        after = producer.send(topic, b"after", partition=1)
        time.sleep(3.0)
        assert not after.is_done, "its partition can be added by the coordinator only, and that is away"
        cluster3.start_node(number)
        after.get(timeout=PATIENCE_MS / 1000)
        producer.commit_transaction()
