"""Disturbances of a running worker: how soon an operator can see each of them, and what was lost.

In: a broker of its own, the table of docs/operations.md. Out: a row for each disturbance: where it shows, after how
many seconds, what was lost. Touches: topics, rights and quotas of that broker, processes of its own, a folder.

An operator sees `/readyz`, the alarming numbers of `/metrics`, which are asked every quarter of a second, and the log
from the level of warnings on. Each disturbance lasts until it shows; then it ends, and every window must be exact. If
what happens destroys data outside of the worker, every window that was published before must still be exact; what is
published later lacks records, and is not looked at here.
"""

from __future__ import annotations

import ast
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.kafka.access import administrator, grant, login, withdraw
from helpers.kafka.altered_worker import set_clock
from helpers.kafka.app import MINUTE, MISSED_SOON, App, Load, Worker
from helpers.kafka.devbroker import DevCluster, free_ports
from helpers.kafka.quotas import limited
from helpers.paths import ROOT
from sketchstream.log_events import EVENTS
from sketchstream_connectors.kafka.cluster import topics
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.preflight import missing_rights

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
DOCUMENT = ROOT / "docs" / "operations.md"
BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE
PARTITIONS = 2
PATIENCE_S = 120.0
HEALTHY = ("event=watermark_jumped", "event=clock_skew", "WARNING kafka.", "event=mixed")
"""Lines that healthy streams may have too."""
ALARMING = {"sketchstream_consumer_lag_seconds": 20.0, "sketchstream_late_total": 100.0}
"""Numbers that a dashboard shows in red, and above which value."""


@dataclass
class Scene:
    """A worker in a steady stream."""

    app: App
    broker: DevCluster
    port: int
    worker: Worker
    load: Load
    sent: int = 0
    destroyed: str = ""
    """What somebody else destroyed, so that windows which were open cannot be exact; empty: nothing."""
    since: int = 0
    """What was published before is gone."""
    within_s: float = 30.0
    """The disturbance shows by then."""
    harmless: tuple[str, ...] = HEALTHY
    afterwards: ExitStack = field(default_factory=ExitStack)
    """What ends with the test."""

    def send(self, seconds: int) -> None:
        """So many seconds of the stream, in event time."""
        for _ in range(20 * seconds):
            self.load.send(self.sent * 7919 % 500, BASE + self.sent * 50)
            self.sent += 1
        self.load._producer.poll(0)

    @contextmanager
    def for_others(self, epsilon: str = "30") -> Iterator[None]:
        """Another configuration for workers that are started meanwhile: without the port, with this epsilon."""
        extra, sketch = self.app.extra, self.app.sketch
        self.app.extra, self.app.sketch = extra.split("[worker]")[0], sketch.replace('"30"', f'"{epsilon}"')
        self.app.write()
        yield
        self.app.extra, self.app.sketch = extra, sketch
        self.app.write()

    def start_next(self, altered: Mapping[str, str] | None = None) -> None:
        """A worker in the place of one that has ended."""
        self.worker = self.app.start("next", altered=altered)
        self.app.wait_running(self.worker, timeout_s=120)

    def take_for_a_sign(self, event: str) -> None:
        """Let a line that healthy streams may have too tell of this disturbance."""
        self.harmless = tuple(one for one in HEALTHY if one != event)

    @property
    def clock(self) -> Path:
        """By how much the clock of the first worker is wrong, see `set_clock`."""
        return self.app.folder / "clock"

    @property
    def published_through(self) -> int:
        """End of the windows that all partitions have published."""
        return min((one.published_through for one in self.app.frontiers().values()), default=0)

    def shows(self) -> str:
        """Where an operator sees that something is wrong; empty: nowhere."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2):
                pass
        except urllib.error.HTTPError as error:
            return f"/readyz {error.code}: {error.read().decode(errors='replace').strip()[:100]}"
        except OSError:
            return "/readyz does not answer"
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            for name, value in re.findall(r"^(\w+)(?:{.*})? (\S+)$", answer.read().decode(), re.MULTILINE):
                if name in ALARMING and float(value) > ALARMING[name]:
                    return f"/metrics: {name} {value}"
        for line in self.worker.log.read_text(errors="replace").splitlines():
            if any(level in line for level in ("WARNING", "ERROR")) and not any(one in line for one in self.harmless):
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
    try:
        yield
    finally:
        scene.broker.resume(1)


@contextmanager
def broker_down(scene: Scene) -> Iterator[None]:
    scene.broker.kill(1)
    try:
        yield
    finally:
        scene.broker.start_node(1)


@contextmanager
def quota(scene: Scene) -> Iterator[None]:
    with limited(scene.broker, "sketchstream-0", producer_byte_rate=100):
        yield


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
    with scene.for_others():  # the one that sleeps holds the port
        other = scene.app.start("other")
        scene.app.wait_running(other, timeout_s=120)
    scene.worker.wake()


@contextmanager
def slow_reading(scene: Scene) -> Iterator[None]:
    with limited(scene.broker, consumer_byte_rate=50):
        yield


@contextmanager
def sealed_topic_deleted(scene: Scene) -> Iterator[None]:
    scene.since = scene.published_through
    with scene.app.connection.admin.client("deleting") as admin:
        admin.delete_topics([scene.app.names.sealed])
    scene.send(70)  # a window that must be published
    yield
    topics.create(scene.app.connection, scene.app.names)


@contextmanager
def full_disk(scene: Scene) -> Iterator[None]:
    output = scene.app.folder / "out"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(output)], check=True)
    try:
        (output / "filler").write_bytes(bytes(4096))
        scene.send(70)
        yield
    finally:
        subprocess.run(["umount", str(output)], check=True)


@contextmanager
def input_topic_made_again(scene: Scene) -> Iterator[None]:
    scene.destroyed = "the input"
    admin = scene.app.connection.admin
    with admin.client("deleting") as client:
        client.delete_topics([scene.app.topic])
        time.sleep(2)
        client.create_topics({scene.app.topic: {"num_partitions": PARTITIONS, "replication_factor": 1}})
    yield


@contextmanager
def records_deleted_unread(scene: Scene) -> Iterator[None]:
    scene.destroyed = "records that nobody had read"
    scene.worker.stop()
    for _ in range(3):  # requests that were under way when it was stopped are answered with the first of them
        scene.send(20)
        scene.load.flush()
    admin = scene.app.connection.admin
    admin.delete_before(scene.app.topic, admin.offsets(scene.app.topic, range(PARTITIONS), "latest"))
    scene.worker.wake()
    yield


@contextmanager
def state_topic_that_forgets(scene: Scene) -> Iterator[None]:
    from kafka.admin import ConfigResource, ConfigResourceType

    with scene.app.connection.admin.client("changing") as admin:
        settings = {"cleanup.policy": "delete", "retention.ms": "600000"}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, scene.app.names.state, settings)])
    yield


@contextmanager
def unreadable_records(scene: Scene) -> Iterator[None]:
    for number in range(12_000):
        scene.load.send_raw(b"\xff" * 20, number % PARTITIONS, BASE, key=b"")
    yield


@contextmanager
def misplaced_records(scene: Scene) -> Iterator[None]:
    for number in range(4_000):
        item, at = number % 500, BASE + scene.sent * 50
        scene.load.send(item, at, partition=(scene.load.place(item) + 1) % PARTITIONS, count=False)
    yield


@contextmanager
def clock_that_runs_ahead(scene: Scene) -> Iterator[None]:
    scene.destroyed = "the order of the stream: windows were closed early"
    for partition in range(PARTITIONS):
        scene.load.send(None, BASE + 24 * 60 * MINUTE, partition=partition, count=False)
    yield


@contextmanager
def worker_killed(scene: Scene) -> Iterator[None]:
    scene.worker.kill()
    yield
    scene.start_next()


@contextmanager
def broker_stutters(scene: Scene) -> Iterator[None]:
    """Slow disks and coordinators: every answer takes up to seven seconds."""
    ended = threading.Event()

    def stutter() -> None:
        while not ended.is_set():
            scene.broker.suspend(1)
            time.sleep(7)
            scene.broker.resume(1)
            time.sleep(0.3)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def another_configuration(scene: Scene) -> Iterator[None]:
    scene.take_for_a_sign("event=mixed")
    scene.within_s = 75.0  # a change of the configuration, worker by worker, is no mistake for its first minute
    with scene.for_others(epsilon="29"):
        other = scene.app.start("other")
        scene.app.wait_running(other, 1, timeout_s=120)
    yield
    other.terminate()


@contextmanager
def rolling_restart(scene: Scene) -> Iterator[None]:
    """Four members, each with one partition, are replaced one after the other; that was planned, and the last shows."""
    with scene.for_others():
        members = [scene.app.start(f"member{number}") for number in range(3)]
        for member in members:
            scene.app.wait_running(member, 1, timeout_s=120)
        for number, member in enumerate(members):
            assert member.terminate() == 0
            scene.send(5)
            scene.app.wait_running(scene.app.start(f"new{number}"), 1, timeout_s=120)
    assert scene.worker.terminate() == 0
    yield
    scene.worker = scene.app.start("next")
    scene.app.wait_running(scene.worker, 1, timeout_s=120)


@contextmanager
def right_revoked(scene: Scene, kind: str, operation: str) -> Iterator[None]:
    """A worker that logs in may not do one of the things that it could do when it started."""
    app, names = scene.app, scene.app.names
    assert scene.worker.terminate() == 0
    app.kafka = {**app.kafka, **login(scene.broker)}
    app.write()
    admin = scene.afterwards.enter_context(administrator(scene.broker))
    everything = list(topics.rights(names))
    topic = {"state": names.state, "input": names.input}[kind]
    (gone,) = [one for one in everything if (one.resource_type, one.name, one.operation) == ("topic", topic, operation)]
    grant(admin, everything)
    connection = Connection(app.config.kafka, app.config.folder)
    while missing_rights(connection, names):
        time.sleep(0.2)
    connection.close()
    scene.start_next()
    scene.send(5)
    scene.load.flush()
    app.wait_committed()
    withdraw(admin, gone)
    yield
    if kind == "input":  # nothing can be read any more: the worker ends
        assert scene.worker.process.wait(60) == 1
        assert scene.worker.says("not allowed to touch topic")
    grant(admin, [gone])
    if not scene.worker.alive:
        scene.start_next()


@contextmanager
def right_to_write_revoked(scene: Scene) -> Iterator[None]:
    with right_revoked(scene, "state", "write"):
        yield


@contextmanager
def right_to_read_revoked(scene: Scene) -> Iterator[None]:
    with right_revoked(scene, "input", "read"):
        yield


@contextmanager
def clock_wrong(scene: Scene, seconds: float) -> Iterator[None]:
    """Until a window's records were read under a clock that is ahead by so much."""
    scene.take_for_a_sign("event=clock_skew")
    set_clock(scene.clock, seconds)
    yield
    scene.send(60)
    scene.load.flush()
    scene.app.wait_committed()
    set_clock(scene.clock, 0.0)


@contextmanager
def clock_jumps_ahead(scene: Scene) -> Iterator[None]:
    """By a day, and back again."""
    with clock_wrong(scene, 24 * 3600.0):
        yield


@contextmanager
def clock_jumps_back(scene: Scene) -> Iterator[None]:
    """To a day before the stream began, so that every record is from the future for it; and ahead again."""
    with clock_wrong(scene, BASE / 1000 - time.time() - 24 * 3600.0):
        yield


@contextmanager
def two_releases(scene: Scene) -> Iterator[None]:
    """A newer release runs beside this one, and goes again: what it wrote last cannot be read by this one."""
    with scene.for_others():
        newer = scene.app.start("newer", altered={"release": "newer"})
        scene.app.wait_running(newer, 1, timeout_s=120)
    scene.send(20)
    scene.load.flush()
    scene.app.wait_committed()
    assert newer.terminate() == 0
    yield
    scene.worker.terminate()
    scene.start_next({"release": "newer"})


DISTURBANCES = [
    state_topic_deleted,
    broker_that_does_not_answer,
    broker_down,
    quota,
    output_that_is_no_folder,
    zombie,
    slow_reading,
    sealed_topic_deleted,
    full_disk,
    input_topic_made_again,
    records_deleted_unread,
    state_topic_that_forgets,
    unreadable_records,
    misplaced_records,
    clock_that_runs_ahead,
    worker_killed,
    broker_stutters,
    another_configuration,
    rolling_restart,
    right_to_write_revoked,
    right_to_read_revoked,
    clock_jumps_ahead,
    clock_jumps_back,
    two_releases,
]
FROZEN = {broker_that_does_not_answer, broker_stutters}
"""While these last, a producer may wait for long."""


FOUR = {rolling_restart}
"""These have four partitions."""


@dataclass(frozen=True)
class Row:
    """A row of the table of disturbances."""

    what: str
    shows: str
    seconds: float
    lost: str
    tests: tuple[str, ...]


def quoted(cell: str) -> tuple[str, ...]:
    """What stands in a cell as code."""
    return tuple(re.findall(r"`([^`]+)`", cell))


def table() -> list[Row]:
    """The table of disturbances in the document for operators."""
    (section,) = re.findall(r"^## Disturbances\n(.*?)^## ", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return [Row(what, shows, float(seconds), lost, quoted(tests)) for what, shows, seconds, lost, tests in rows[2:]]


def exists(named: str) -> bool:
    """Whether there is a disturbance, or a test as `file::name`, of this name."""
    if "::" not in named:
        return named in {one.__name__ for one in DISTURBANCES}
    file, name = named.split("::")
    return any(
        isinstance(one, ast.FunctionDef) and one.name == name for one in ast.walk(ast.parse((ROOT / file).read_text()))
    )


def test_each_disturbance_has_a_row_and_each_named_test_exists() -> None:
    rows = table()
    named = [test for row in rows for test in row.tests]
    assert all(row.tests for row in rows)
    assert [one for one in named if not exists(one)] == []
    assert sorted(one for one in named if "::" not in one) == sorted(one.__name__ for one in DISTURBANCES)
    assert not exists("another_name")
    assert not exists("tests/connectors/kafka/test_disturbances.py::test_of_nothing")


def test_what_the_table_says_is_shown_exists_and_comes_within_half_a_minute() -> None:
    metrics = set(re.findall(r"^\| `(sketchstream_\w+)`", DOCUMENT.read_text(), re.MULTILINE))
    for row in table():
        assert row.seconds <= (75 if "another_configuration" in row.tests else 30), row
        for place in quoted(row.shows):
            known = place in {"/readyz", "/metrics"} or place in metrics or place.removeprefix("event=") in EVENTS
            assert known, place


@pytest.fixture
def scene(own_broker: DevCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    (port,) = free_ports(1)
    app = App(
        own_broker.bootstrap,
        tmp_path / "app",
        partitions=4 if request.node.callspec.params["disturbance"] in FOUR else PARTITIONS,
        kafka=MISSED_SOON,
        extra=f'[output]\ndirectory = "{tmp_path / "app" / "out"}"\n[worker]\nmetrics = "127.0.0.1:{port}"\n',
    )
    set_clock(app.folder / "clock", 0.0)
    worker = app.start("first", altered={"clock": str(app.folder / "clock")})
    app.wait_running(worker, timeout_s=120)
    made = Scene(app, own_broker, port, worker, app.load(stamped=False))
    made.send(90)
    made.load.flush()
    app.wait_published(BASE + MINUTE)
    with made.afterwards:
        yield made
        app.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=lambda one: one.__name__)
def test_a_disturbance_shows_and_loses_nothing(
    scene: Scene, disturbance: Callable[[Scene], Iterator[None]], capsys: pytest.CaptureFixture[str]
) -> None:
    deadline = time.monotonic() + 60
    while scene.shows():
        assert time.monotonic() < deadline, scene.shows()
        time.sleep(0.25)
    before = scene.published_through
    with disturbance(scene):  # type: ignore[attr-defined]
        began = time.monotonic()
        while not (where := scene.shows()):
            assert time.monotonic() - began < PATIENCE_S, scene.app.logs()
            if scene.broker.nodes[1].running() and disturbance not in FROZEN:
                scene.send(1)
            time.sleep(0.25)
        seconds = time.monotonic() - began
        if scene.destroyed:
            scene.app.check_exact(exact := [one for one in scene.app.truth if one < before])
    if not scene.destroyed:
        scene.send(60)
        scene.load.flush()
        end = BASE + scene.sent * 50
        scene.load.close_windows(end + 2 * MINUTE)
        last = end // MINUTE * MINUTE
        scene.app.wait_published(last, timeout_s=180)
        scene.app.check_exact(exact := [start for start in scene.app.truth if scene.since <= start < last])
    gone = scene.destroyed or ("what was published before" if scene.since else "nothing")
    with capsys.disabled():
        print(f"\n| {disturbance.__name__} | {where} | {seconds:.1f} s | {gone}; {len(exact)} windows exact |")
    assert seconds <= scene.within_s
    (row,) = [one for one in table() if disturbance.__name__ in one.tests]
    assert any(place in where for place in quoted(row.shows)), row.shows
