"""Disturbances of a running worker: how soon an operator can see each of them, and what was lost.

In: a broker of its own. Out: a line for each disturbance: seconds until it shows, where it shows, what was lost.
Touches: topics, rights and quotas of that broker, processes of its own, a folder.

An operator sees `/readyz`, which is asked every quarter of a second, and the log from the level of warnings on. Each
disturbance lasts until it shows; then it ends, and every window must be exact.
"""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.kafka.app import MINUTE, MISSED_SOON, App, Load, Worker
from sketchstream_connectors.kafka import topics
from sketchstream_connectors.kafka.devbroker import DevCluster, Jars, free_ports

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*NO PRIVACY")]
BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE
PATIENCE_S = 120.0
HEALTHY = ("event=watermark_jumped", "event=clock_skew", "kafka.", "event=mixed")
"""Lines that healthy streams may have too."""


@dataclass
class Scene:
    """A worker in a steady stream."""

    app: App
    broker: DevCluster
    port: int
    worker: Worker
    load: Load
    sent: int = 0

    def send(self, seconds: int) -> None:
        """So many seconds of the stream, in event time."""
        for _ in range(20 * seconds):
            self.load.send(self.sent * 7919 % 500, BASE + self.sent * 50)
            self.sent += 1
        self.load._producer.poll(0)

    def shows(self) -> str:
        """Where an operator sees that something is wrong; empty: nowhere."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2):
                pass
        except urllib.error.HTTPError as error:
            return f"/readyz {error.code}: {error.read().decode(errors='replace').strip()[:100]}"
        except OSError:
            return "/readyz does not answer"
        for line in self.worker.log.read_text(errors="replace").splitlines():
            if any(level in line for level in ("WARNING", "ERROR")) and not any(one in line for one in HEALTHY):
                return f"log: {line[:100]}"
        return ""


@contextmanager
def state_topic_deleted(scene: Scene) -> Iterator[None]:
    connection, names = scene.app.connection, scene.app.names
    with connection.admin.client("deleting") as admin:
        admin.delete_topics([names.state])
    yield
    topics.create(connection, names)


@contextmanager
def broker_that_does_not_answer(scene: Scene) -> Iterator[None]:
    scene.broker.suspend(1)
    yield
    scene.broker.resume(1)


@contextmanager
def broker_down(scene: Scene) -> Iterator[None]:
    scene.broker.kill(1)
    yield
    scene.broker.start_node(1)


@contextmanager
def quota(scene: Scene) -> Iterator[None]:
    command = ["java", "-cp", Jars().class_path(), "kafka.admin.ConfigCommand", "--bootstrap-server"]
    command += [scene.broker.bootstrap, "--alter", "--entity-type", "clients", "--entity-name", "sketchstream-0"]
    subprocess.run([*command, "--add-config", "producer_byte_rate=100"], check=True, capture_output=True)
    yield
    subprocess.run([*command, "--delete-config", "producer_byte_rate"], check=True, capture_output=True)


@contextmanager
def output_that_is_no_folder(scene: Scene) -> Iterator[None]:
    output = scene.app.folder / "out"
    aside = output.rename(output.with_name("aside")) if output.exists() else None
    output.write_text("in the way")
    scene.send(70)  # a window that must be published
    yield
    output.unlink()
    if aside is not None:
        aside.rename(output)


@contextmanager
def zombie(scene: Scene) -> Iterator[None]:
    scene.worker.stop()
    yield
    scene.app.extra = scene.app.extra.split("[worker]")[0]  # the one that sleeps holds the port
    scene.app.write()
    other = scene.app.start("other")
    scene.app.wait_running(other, timeout_s=120)
    scene.worker.wake()


DISTURBANCES = [
    state_topic_deleted,
    broker_that_does_not_answer,
    broker_down,
    quota,
    output_that_is_no_folder,
    zombie,
]


@pytest.fixture
def scene(own_broker: DevCluster, tmp_path: Path) -> Iterator[Scene]:
    (port,) = free_ports(1)
    app = App(
        own_broker.bootstrap,
        tmp_path / "app",
        partitions=1,
        kafka=MISSED_SOON,
        extra=f'[output]\ndirectory = "{tmp_path / "app" / "out"}"\n[worker]\nmetrics = "127.0.0.1:{port}"\n',
    )
    worker = app.start("first")
    app.wait_running(worker, timeout_s=120)
    made = Scene(app, own_broker, port, worker, app.load(stamped=False))
    made.send(90)
    made.load.flush()
    yield made
    app.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=lambda one: one.__name__)
def test_a_disturbance_shows_and_loses_nothing(
    scene: Scene, disturbance: Callable[[Scene], Iterator[None]], capsys: pytest.CaptureFixture[str]
) -> None:
    deadline = time.monotonic() + 60
    while scene.shows():
        assert time.monotonic() < deadline, scene.shows()
        time.sleep(0.25)
    with disturbance(scene):  # type: ignore[attr-defined]
        began = time.monotonic()
        while not (where := scene.shows()):
            assert time.monotonic() - began < PATIENCE_S, scene.app.logs()
            if scene.broker.nodes[1].running and disturbance is not broker_that_does_not_answer:
                scene.send(1)
            time.sleep(0.25)
        seconds = time.monotonic() - began
    scene.send(60)
    scene.load.flush()
    end = BASE + scene.sent * 50
    scene.load.close_windows(end + 2 * MINUTE)
    last = end // MINUTE * MINUTE
    scene.app.wait_published(last, timeout_s=180)
    scene.app.check_exact(start for start in scene.app.truth if start < last)
    with capsys.disabled():
        print(f"\n{disturbance.__name__}: shows after {seconds:.1f} s ({where})")
        print(f"lost: nothing, all windows of {scene.sent} records are exact")
