"""Workers as an orchestrator sees them: ready, healthy, and ending when they are asked to.

In: a broker. Out: nothing. Touches: worker processes.
"""

from __future__ import annotations

import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.kafka.app import MINUTE, MISSED_SOON, App

BASE = 1_700_000_040_000 // MINUTE * MINUTE

pytestmark = pytest.mark.filterwarnings("ignore:epsilon above 10")


@pytest.fixture
def app_of(kafka: str, tmp_path: Path) -> Iterator[Callable[..., App]]:
    apps: list[App] = []

    def make(**more: object) -> App:
        apps.append(App(kafka, tmp_path / f"app{len(apps)}", **more))  # type: ignore[arg-type]
        return apps[-1]

    yield make
    for app in apps:
        app.close()


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def wait_for(true: Callable[[], bool], app: App, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, app.logs()
        time.sleep(0.1)


def test_a_dead_letter_topic_that_went_away_stops_snapshots_and_nothing_else(app_of: Callable[..., App]) -> None:
    port = free_port()
    app = app_of(partitions=2, extra=f"[worker]\nmetrics = '127.0.0.1:{port}'")
    letters = app.topic + ".dead"
    app.input += f'\ndead_letter_topic = "{letters}"'
    app.write()
    refused = app.start()
    assert refused.process.wait(60) == 2
    assert "input.dead_letter_topic" in refused.log.read_text()
    assert "topics create" in refused.log.read_text()

    def create() -> None:
        with app.connection.admin.client("creating") as admin:
            admin.create_topics({letters: {"num_partitions": 1, "replication_factor": 1}})
            admin.wait_for_topics([letters])

    create()
    worker = app.start()
    app.wait_running(worker)
    wait_for(lambda: get(port, "/readyz")[0] == 200, app)
    with app.connection.admin.client("deleting") as admin:
        admin.delete_topics([letters])
    load = app.load()
    for i in range(600):
        load.send(i % 499, BASE + i)
    for i in range(40):
        load.send({"no": "item"}, BASE + i, partition=0, count=False)
    load.flush()
    wait_for(lambda: worker.says("event=dropped partition=0") > 0, app)
    ages = []
    for _ in range(60):
        found = re.search(r"sketchstream_loop_age_seconds ([\d.e+-]+)", get(port, "/metrics")[1])
        assert found
        ages.append(float(found[1]))
        time.sleep(0.1)
    assert max(ages) < 4, "the worker polls on, however long the topic makes its commits wait"
    assert get(port, "/healthz")[0] == 200
    create()
    load.close_windows(BASE + 3 * MINUTE)
    app.wait_published(BASE + MINUTE)
    app.check_exact()
    assert app.connection.admin.offsets(letters, [0], "latest")[0] >= 40
    wait_for(lambda: get(port, "/readyz")[0] == 200, app)
    assert worker.terminate() == 0


def test_a_spare_worker_and_one_with_a_halted_partition_are_ready(app_of: Callable[..., App]) -> None:
    """A roll-out goes on only where every replaced worker gets ready."""
    ports = free_port(), free_port()
    app = app_of(partitions=2, kafka=MISSED_SOON, extra=f"[worker]\nmetrics = '127.0.0.1:{ports[0]}'")
    load = app.load()
    for i in range(600):
        load.send(i % 499, BASE + i)
    load.flush()
    worker = app.start()
    app.wait_committed()
    assert worker.terminate() == 0
    for i in range(600):
        load.send(i % 499, BASE + i)
    load.flush()
    app.connection.admin.delete_before(app.topic, {1: app.connection.admin.offsets(app.topic, [1], "latest")[1]})
    worker = app.start()
    wait_for(lambda: worker.says("event=halted partition=1") == 1, app)
    wait_for(lambda: get(ports[0], "/readyz")[0] == 200, app)
    assert "partition 1 halted" in get(ports[0], "/readyz")[1]
    for number in range(2):  # three members, two partitions: one of them is a spare
        app.extra = f"[worker]\nmetrics = '127.0.0.1:{ports[1] if number else 0}'"
        app.write()
        app.start()
    wait_for(lambda: get(ports[1], "/readyz")[0] == 200, app)
