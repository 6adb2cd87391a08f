"""A broker that does not answer is found out at once, whatever keeps it from answering, and one that does is enough."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sketchstream.cli import clusters
from sketchstream.config.loader import Config

NOBODY = "127.0.0.1:1"


@pytest.fixture
def listener() -> Iterator[str]:
    """The address of somebody who accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def config(tmp_path: Path, servers: str) -> Config:
    return Config.parse(
        f"""
        [kafka]
        "bootstrap.servers" = "{servers}"
        "group.id" = "g"
        [input]
        topic = "events"
        format = "value"
        partitioned_by = "item"
        partitioner = "murmur2"
        [key]
        file = "key"
        [[sketch]]
        name = "hourly"
        window = "1h"
        unit = "event"
        epsilon = "1"
        domain = {{ slots = 64, levels = 1 }}
        """,
        tmp_path / "c.toml",
    )


def test_one_server_that_answers_is_enough(tmp_path: Path, listener: str) -> None:
    for servers in (listener, f"{NOBODY},{listener}", f"{listener},{NOBODY}", f"no.invalid:9092, {listener}"):
        assert clusters.unreachable(config(tmp_path, servers)) is None


def test_the_reason_is_said_once_for_all_servers(tmp_path: Path) -> None:
    found = clusters.unreachable(config(tmp_path, f"{NOBODY},127.0.0.1:2"))
    assert found == f"{NOBODY},127.0.0.1:2 cannot be reached: 111 ECONNREFUSED"


def test_a_server_that_never_answers_is_not_waited_for(
    tmp_path: Path, listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a resolver or a firewall that drops packets: the thread is left behind."""
    free = threading.Event()
    connect = socket.create_connection

    def silent(address: tuple[str, int], timeout: float) -> socket.socket:
        if address[0] == "silent":
            free.wait()
        return connect(address, timeout=timeout)

    monkeypatch.setattr(socket, "create_connection", silent)
    monkeypatch.setattr(clusters, "ANSWER_S", 0.3)
    try:
        found = clusters.unreachable(config(tmp_path, f"silent:1,{NOBODY}"))
        assert found == f"silent:1,{NOBODY} cannot be reached: 111 ECONNREFUSED; no answer within 0.3 s"
        monkeypatch.setattr(clusters, "ANSWER_S", 60.0)
        assert clusters.unreachable(config(tmp_path, f"silent:1,{listener}")) is None
    finally:
        free.set()
