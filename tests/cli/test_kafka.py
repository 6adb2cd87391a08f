"""The commands that speak to a broker, on a real one: topics, validate, worker, profile, ledger, recover, reset.

At epsilon 30 the counts must be exact. The year of flights, with a killed worker, is in tests/connectors/kafka.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import Run
from sketchstream.stream.windows.calendar import iso

pytestmark = pytest.mark.kafka

HOUR = 3_600_000
START = 1_700_000_000_000 // HOUR * HOUR
MARK = "zebra-5512-marked"
TRUTH = {0: [7, 3, 0, 0, 0], 1: [7, 0, 0, 2, 1]}
"""Of the ten users, by hour: how many occurred 0 to 4 times."""

CONFIG = """
[kafka]
"bootstrap.servers" = "{bootstrap}"
"group.id" = "{group}"
"session.timeout.ms" = 6000
"heartbeat.interval.ms" = 1000
[input]
topic = "{group}"
format = "json"
item = "user"
time = "ts"
partitioned_by = "item"
partitioner = "murmur2"
lateness = "1m"
quorum = 1
quorum_time = "1ms"
idle = "off"
[key]
file = "key"
[store]
snapshot_every = "500ms"
[quality]
refused = 0.5
[[sketch]]
name = "exact"
unit = "event"
window = "1h"
epsilon = "30"
domain = {{ items_file = "users.txt" }}
max_count = 20
"""


@pytest.fixture
def group(kafka: str, run: Run, tmp_path: Path) -> str:
    """A configuration and its input topic of three partitions, both named like the group."""
    from kafka import KafkaAdminClient

    group = f"cli-{secrets.token_hex(4)}"
    (tmp_path / "c.toml").write_text(CONFIG.format(bootstrap=kafka, group=group))
    (tmp_path / "users.txt").write_text("".join(f"user{number}\n" for number in range(10)))
    assert run("keygen", "-o", "key").code == 0
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.create_topics({group: {"num_partitions": 3, "replication_factor": 1}})
    admin.wait_for_topics([group])
    admin.close()
    return group


def produce(kafka: str, topic: str) -> None:
    """Two hours of events, bad ones among them, and a record on each partition that closes them."""
    from kafka import KafkaProducer
    from kafka.partitioner.default import murmur2

    producer = KafkaProducer(bootstrap_servers=kafka)

    def send(hour: int, user: str, number: int) -> None:
        value = json.dumps({"ts": START + hour * HOUR + number, "user": user}).encode()
        producer.send(topic, value=value, key=user.encode())

    for number, user in enumerate(["user0", "user1", "user2", MARK]):
        send(0, user, number)
    producer.send(topic, value=f"{MARK}, not json".encode(), key=b"user0")
    foreign = (murmur2(b"user4") & 0x7FFFFFFF) % 3 + 1  # one of the two partitions that are not user4's
    producer.send(topic, value=json.dumps({"ts": START + 9, "user": "user4"}).encode(), partition=foreign % 3)
    for number, user in enumerate(["user1"] * 4 + ["user5"] * 3 + ["user6"] * 3):
        send(1, user, number)
    for partition in range(3):
        value = json.dumps({"ts": START + 3 * HOUR, "user": None}).encode()
        producer.send(topic, value=value, partition=partition)
    producer.flush()
    producer.close()


def start(folder: Path) -> subprocess.Popen[bytes]:
    """A worker process; its log goes to worker.log."""
    with (folder / "worker.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "sketchstream.cli", "worker", "-c", "c.toml", "--log-level", "debug"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def wait_for(run: Run, revision: int) -> list[dict[str, Any]]:
    """Both hours, once they are complete under this revision."""
    deadline = time.monotonic() + 90
    while True:
        result = run("profile", "-c", "c.toml", "--all", "--method", "inverse", "--max-count", "4", "--format", "json")
        assert result.code == 0, result.err
        lines = [json.loads(line) for line in result.out.splitlines()]
        if len(lines) == 2 and all(line["complete"] and line["revision"] == revision for line in lines):
            return lines
        if time.monotonic() > deadline:
            log = Path("worker.log").read_text(errors="replace")
            pytest.fail(
                f"not complete under revision {revision}: {result.out}\nthe worker's log ends:\n{log[-20_000:]}"
            )
        time.sleep(0.5)


def assert_exact(lines: list[dict[str, Any]]) -> None:
    """Both hours are what was sent; bad events, and one in a foreign partition, count nothing."""
    for line, truth in zip(lines, TRUTH.values(), strict=True):
        assert [round(value, 4) for value in line["counts"]] == truth
        assert line["d"] == 10
        assert line["partitions"] == {"published": 3, "of": 3, "missing": []}


def test_life_of_a_deployment(kafka: str, group: str, run: Run, tmp_path: Path) -> None:
    before = run("validate", "-c", "c.toml", "--online", "--format", "json")
    assert before.code == 0, before.err
    assert {text.split(":")[0] for text in json.loads(before.out)["topics"].values()} == {"missing"}
    looked = run("topics", "create", "-c", "c.toml", "--dry-run", "--format", "json")
    assert {row["outcome"] for row in json.loads(looked.out)} == {"created"}
    for outcome in ("created", "unchanged"):
        made = run("topics", "create", "-c", "c.toml", "--format", "json")
        assert made.code == 0, made.err
        assert {row["outcome"] for row in json.loads(made.out)} == {outcome}
        assert {row["topic"] for row in json.loads(made.out)} == {f"{group}.{group}.state", f"{group}.sealed"}
    checked = json.loads(run("validate", "-c", "c.toml", "--online", "--format", "json").out)
    assert (checked["partitions"], set(checked["topics"].values())) == (3, {"ready"})

    produce(kafka, group)
    worker = start(tmp_path)
    try:
        assert_exact(wait_for(run, 0))
        still = run("profile", "-c", "c.toml", "--all")
        assert f"windows still open: {iso(START + 3 * HOUR)} to {iso(START + 4 * HOUR)}" in still.err
        busy = run("reset", "-c", "c.toml", "--yes")
        assert busy.code == 2
        assert "running workers" in busy.complaint
        assert run("recover", "-c", "c.toml", "--dry-run").code == 0
    finally:
        worker.terminate()
        assert worker.wait(60) == 0

    ledger = json.loads(run("ledger", "-c", "c.toml", "--format", "json").out)
    assert ledger["total"]["event"] == "30"
    recovered = run("recover", "-c", "c.toml", "--format", "json")
    assert recovered.code == 0, recovered.err
    assert {row["outcome"] for row in json.loads(recovered.out)} <= {"healthy", "unstarted"}

    planned = run("reset", "-c", "c.toml", "--to", "beginning", "--dry-run", "--format", "json")
    assert planned.code == 0, planned.err
    assert {row["revision"] for row in json.loads(planned.out)} == {"1"}
    assert run("reset", "-c", "c.toml", "--to", "beginning", "--yes").code == 0
    worker = start(tmp_path)
    try:
        assert_exact(wait_for(run, 1))
    finally:
        worker.terminate()
        assert worker.wait(60) == 0
    assert json.loads(run("ledger", "-c", "c.toml", "--format", "json").out)["total"]["event"] == "60"

    log = (tmp_path / "worker.log").read_bytes()
    assert b"event=published" in log
    reasons = re.findall(rb"(.*)\nTraceback", log)  # the client library has its own of connections that a broker ends
    assert log.count(b"Traceback") == len(reasons)
    assert all(b" ERROR kafka.net." in line for line in reasons), reasons
    assert MARK.encode() not in log


def test_missing_topics_are_named(kafka: str, group: str, spawn: Run, run: Run) -> None:
    result = spawn("worker", "-c", "c.toml")
    assert result.code in (1, 2)
    errors = [line for line in result.err.splitlines() if line.startswith("sketchstream: error:")]
    assert len(errors) == 1
    assert "topics create" in errors[0]
