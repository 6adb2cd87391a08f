"""Real brokers for tests: one node for the session, three nodes on demand. A missing broker is a failure.

In: the environment (`SKETCHSTREAM_TEST_KAFKA=host:port` uses a cluster that runs already instead of the one node).
Out: fixtures `own_broker`, `cluster3`, `topic_name`. Touches: Java processes of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

import pytest

from helpers.kafka.devbroker import PASSWORD, SASL_USER, DevCluster


@pytest.fixture(scope="session")
def own_broker() -> Iterator[DevCluster]:
    """One node with TLS and SASL listeners that tests may stop, kill and restart; they leave it running.

    It deletes old data at once. It asks access rules what the users of its SASL listener may do, all but `alice`;
    whoever comes over the other listeners may do everything.
    """
    users = dict.fromkeys((SASL_USER, "worker", "other"), PASSWORD)
    settings: dict[str, str | int] = {
        "super.users": f"User:ANONYMOUS;User:{SASL_USER}",
        "log.retention.check.interval.ms": 500,
        "log.initial.task.delay.ms": 500,
    }
    with DevCluster(1, tls=True, users=users, access=True, properties=settings) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster3() -> Iterator[DevCluster]:
    """Three nodes that tests may stop, kill and restart; they leave all of them running."""
    with DevCluster(3) as cluster:
        yield cluster


@pytest.fixture
def topic_name() -> Callable[[str], str]:
    """Names that no other test of this session has used."""

    def fresh(stem: str) -> str:
        return f"{stem}-{secrets.token_hex(4)}"

    return fresh
