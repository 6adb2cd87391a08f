"""The development broker starts, survives what tests do to it, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from helpers.kafka.devbroker import DevCluster, Jars, free_ports
from helpers.paths import TESTS


def _brokers(bootstrap: str, **options: object) -> int:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, **options)
    try:
        return len(admin.describe_cluster()["brokers"])
    finally:
        admin.close()


def test_one_node_answers(kafka: str) -> None:
    assert _brokers(kafka) >= 1


def test_a_killed_node_comes_back_on_its_port(own_broker: DevCluster) -> None:
    before = own_broker.bootstrap
    own_broker.kill(1)
    assert not own_broker.nodes[1].running()
    own_broker.start_node(1)
    assert own_broker.bootstrap == before
    assert _brokers(own_broker.bootstrap) == 1


def test_tls_listener_shows_the_certificate_it_was_given(own_broker: DevCluster) -> None:
    tls = {"security_protocol": "SSL", "ssl_cafile": str(own_broker.certificate)}
    assert _brokers(own_broker.tls_bootstrap, **tls) == 1


def test_three_nodes_form_one_cluster(cluster3: DevCluster) -> None:
    assert _brokers(cluster3.bootstrap) == 3


@pytest.mark.kafka
def test_brokers_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    program = (
        f"import sys, time; from pathlib import Path; sys.path.insert(0, {str(TESTS)!r})\n"
        "from helpers.kafka.devbroker import DevCluster\n"
        f"cluster = DevCluster(1, directory=Path({str(tmp_path)!r})); cluster.start()\n"
        "print(cluster.nodes[1].process.pid, flush=True); time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    broker = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(broker, 0)
        except ProcessLookupError:
            break
        if Path(f"/proc/{broker}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
            break  # ended; nobody has collected it yet
        time.sleep(0.1)
    else:
        pytest.fail("the broker outlived its owner")
    while any(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(tmp_path.iterdir())


def test_free_ports_differ() -> None:
    assert len(set(free_ports(50))) == 50


@pytest.mark.kafka
def test_jars_are_brought_once() -> None:
    jars = Jars()
    jars.ensure()
    marker = (jars.folder / "complete").stat().st_mtime_ns
    jars.ensure()
    assert (jars.folder / "complete").stat().st_mtime_ns == marker
    assert "kafka-server" in jars.class_path()
