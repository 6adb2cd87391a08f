"""The main job as users run it: all flights through a real topic, two worker processes, one of them killed.

At epsilon 30 with a closed domain every month must be exact; at epsilon 1 with open domains the intervals must cover.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from sketchstream.cli.flights import Flights, read_flights
from sketchstream_connectors.devbroker import DevCluster

pytestmark = pytest.mark.kafka
Run = Callable[..., Any]
CLOSING_MS = 1_391_212_800_000
"""1 February 2014: a record from then on every partition closes December 2013."""

CONFIG = """
[kafka]
"bootstrap.servers" = "{bootstrap}"
"group.id" = "{group}"
"session.timeout.ms" = 6000
"heartbeat.interval.ms" = 1000
[input]
topic = "{topic}"
format = "json"
item = "tailnum"
time = "ts"
partitioned_by = "item"
idle = "off"
[key]
file = "key"
[store]
snapshot_every = "1s"
[[sketch]]
name = "exact"
window = "1mo"
timezone = "America/New_York"
epsilon = "30"
domain = {{ items_file = "aircraft.txt" }}
max_count = 100
"""

OPEN = """
[[sketch]]
name = "{name}"
window = "1mo"
timezone = "America/New_York"
epsilon = "1"
domain = {{ slots = 8192, levels = 2 }}
"""


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    """`bootstrap.servers` of the cluster that the environment names, or of a node of our own."""
    given = os.environ.get("SKETCHSTREAM_TEST_KAFKA")
    if given:
        yield given
        return
    with DevCluster(1) as cluster:
        yield cluster.bootstrap


@pytest.fixture(scope="module")
def flights() -> Flights:
    """All flights of 2013."""
    return read_flights()


@dataclass
class Deployment:
    """A configuration, its topic, and worker processes of ours."""

    bootstrap: str
    folder: Path
    topic: str
    workers: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = field(default_factory=list)

    def start(self) -> subprocess.Popen[bytes]:
        """One more worker."""
        log = (self.folder / f"worker{len(self.workers)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "sketchstream.cli", "worker", "-c", "c.toml", "--log-level", "debug"],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self.workers.append((process, log))
        return process

    def close(self) -> None:
        """End what still runs."""
        for process, log in self.workers:
            if process.poll() is None:
                process.kill()
            process.wait(30)
            log.close()


@pytest.fixture
def deployment(kafka: str, run: Run, flights: Flights, tmp_path: Path) -> Iterator[Deployment]:
    """Four partitions, one closed sketch and three open ones."""
    from kafka import KafkaAdminClient

    group, topic = f"flights-{secrets.token_hex(4)}", f"flights-{secrets.token_hex(4)}"
    text = CONFIG.format(bootstrap=kafka, group=group, topic=topic)
    (tmp_path / "c.toml").write_text(text + "".join(OPEN.format(name=f"open{number}") for number in range(3)))
    (tmp_path / "aircraft.txt").write_text("\n".join(flights.tail_numbers))
    assert run("keygen", "-o", "key").code == 0
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.create_topics({topic: {"num_partitions": 4, "replication_factor": 1}})
    admin.wait_for_topics([topic])
    admin.close()
    made = Deployment(kafka, tmp_path, topic)
    yield made
    made.close()


def months_of(run: Run, sketch: str, *more: str) -> list[dict[str, Any]]:
    """JSON lines of every window."""
    result = run("profile", "-c", "c.toml", "--sketch", sketch, "--all", "--format", "json", *more)
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def test_flights_through_kafka_with_a_killed_worker(deployment: Deployment, run: Run, flights: Flights) -> None:
    from kafka import KafkaProducer

    made = run("topics", "create", "-c", "c.toml", "--format", "json")
    assert made.code == 0, made.err
    assert {row["outcome"] for row in json.loads(made.out)} == {"created"}
    again = run("topics", "create", "-c", "c.toml", "--format", "json")
    assert {row["outcome"] for row in json.loads(again.out)} == {"unchanged"}
    checked = run("validate", "-c", "c.toml", "--online", "--format", "json")
    assert checked.code == 0, checked.err
    assert json.loads(checked.out)["partitions"] == 4

    deployment.start()
    doomed = deployment.start()
    producer = KafkaProducer(bootstrap_servers=deployment.bootstrap, linger_ms=50, batch_size=1 << 18, acks=1)
    names = [name.encode() for name in flights.tail_numbers]
    for number, (value, aircraft) in enumerate(zip(flights.jsonl(), flights.aircraft.tolist(), strict=True)):
        producer.send(deployment.topic, value=value, key=names[aircraft] if aircraft >= 0 else None)
        if number == len(flights) // 2:
            producer.flush()
            doomed.send_signal(signal.SIGKILL)
            doomed.wait(30)
            deployment.start()
    for partition in range(4):
        producer.send(deployment.topic, value=b'{"ts":%d,"tailnum":null}' % CLOSING_MS, partition=partition)
    producer.flush()
    producer.close()

    deadline = time.monotonic() + 180
    done: list[dict[str, Any]] = []
    while len(done) < 12 or not all(month["complete"] for month in done):
        assert time.monotonic() < deadline, [month["partitions"] for month in done]
        time.sleep(3)
        done = months_of(run, "exact", "--method", "inverse")

    truth = flights.months()
    for line, month in zip(months_of(run, "exact"), truth, strict=True):
        expected = np.bincount(month.counts, minlength=101)
        expected[0] = len(flights.tail_numbers) - month.counts.size
        assert line["complete"], line["partitions"]
        assert line["partitions"] == {"published": 4, "of": 4, "missing": []}
        assert np.abs(np.array(line["counts"]) - expected).max() < 1e-4, month.name
        assert line["d"] == len(flights.tail_numbers)

    cells = hits = 0
    for number in range(3):
        for line, month in zip(months_of(run, f"open{number}"), truth, strict=True):
            for k in (1, 2, 10, 30):
                estimate = line["at_least"][str(k)]
                cells += 1
                hits += estimate["low"] <= month.at_least(k) <= estimate["high"]
    # 144 intervals of 95%: at most 121 hits have a probability below 1e-6.
    assert (cells, hits > 121) == (144, True), hits

    for process, _ in deployment.workers:
        if process.poll() is None:
            process.terminate()
            assert process.wait(60) == 0
    logs = b"".join(path.read_bytes() for path in deployment.folder.glob("worker*.log"))
    assert b"event=published" in logs
    assert b"Traceback" not in logs
    assert not [name for name in names if name in logs]
