"""Losses under `data_loss = "accept"`, on a real broker: records trimmed, a log cut off, a topic made again.

Each is tried with a worker process, and each halts where nothing is accepted (see test_workers and
test_store).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.errors import TopicAlreadyExistsError

from helpers.kafka.app import AT_ONCE, MINUTE, App, Worker
from helpers.kafka.devbroker import DevCluster
from helpers.kafka.minutes import BASE, close_windows, fill, windows
from sketchstream.errors import BrokerError

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
ACCEPT = f'item_type = "int"\nitem = "u"\ntime = "ts"\n{AT_ONCE}\nidle = "off"\ndata_loss = "accept"'
QUICK = {"metadata.max.age.ms": 1000}


@pytest.fixture
def app_of(kafka: str, tmp_path: Path) -> Iterator[Callable[..., App]]:
    made: list[App] = []

    def make(**options: object) -> App:
        given = {"input": ACCEPT, "partitions": 2, "kafka": QUICK, **options}
        made.append(App(str(given.pop("bootstrap", kafka)), tmp_path / f"app{len(made)}", **given))
        return made[-1]

    yield make
    for app in made:
        app.close()


def wait_for(true: Callable[[], object], app: App, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, app.logs()
        time.sleep(0.1)


def stopped(app: App, worker: Worker) -> dict[int, int]:
    """The worker, ended in order after it has read everything; positions of the ends of the input."""
    ends = app.wait_committed(180)
    assert worker.terminate() == 0, app.logs()
    return ends


@pytest.mark.slow
def test_records_trimmed_before_they_were_read_leave_partial_windows(app_of: Callable[..., App]) -> None:
    app = app_of()
    worker = app.start()
    fill(app, 0)
    close_windows(app, 2)
    app.wait_published(BASE + MINUTE)
    ends = stopped(app, worker)
    fill(app, 2)
    trimmed = app.connection.admin.offsets(app.topic, [0], "latest")[0]
    assert trimmed > ends[0]
    app.connection.admin.delete_before(app.topic, {0: trimmed})
    worker = app.start()
    fill(app, 5)
    fill(app, 7)
    close_windows(app, 10)
    app.wait_published(BASE + 8 * MINUTE)
    assert worker.says("event=loss_accepted partition=0") == 1
    assert worker.says(f"offsets={trimmed - ends[0]}") == 1
    found = windows(app)
    partial = {n: window.partial for n, window in found.items()}
    assert partial == {0: False, 2: True, 5: True, 7: False}, "5: lost records may have been of the next one's window"
    assert {n: window.complete for n, window in found.items()} == {0: True, 2: False, 5: False, 7: True}
    app.check_exact([BASE, BASE + 5 * MINUTE, BASE + 7 * MINUTE])
    assert worker.terminate() == 0


def cut_log(node_folder: Path, topic: str, partition: int, position: int) -> None:
    """Cut the log of a stopped broker before the batch that holds this position, as a broken disk's copy would be."""
    folder = node_folder / "data" / f"{topic}-{partition}"
    (path,) = folder.glob("*.log")
    data = path.read_bytes()
    at = 0
    while at < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        if base + struct.unpack_from(">i", data, at + 23)[0] >= position:
            break
        at += 12 + length
    path.write_bytes(data[:at])
    for other in folder.iterdir():
        if other.suffix in (".index", ".timeindex", ".snapshot"):
            other.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("regrown", [False, True])
def test_a_log_that_was_cut_below_what_was_read_marks_the_open_windows(
    app_of: Callable[..., App], own_broker: DevCluster, regrown: bool
) -> None:
    app = app_of(bootstrap=own_broker.bootstrap)
    worker = app.start()
    fill(app, 0)
    close_windows(app, 2)
    app.wait_published(BASE + MINUTE)
    before = app.connection.admin.offsets(app.topic, range(2), "latest")
    fill(app, 2)
    ends = stopped(app, worker)
    app.connection.admin.close()
    own_broker.kill(1)
    cut_log(own_broker.nodes[1].directory, app.topic, 0, before[0])
    own_broker.start_node(1)
    wait_for(lambda: 0 in app.connection.admin.offsets(app.topic, [0], "latest"), app)
    assert app.connection.admin.offsets(app.topic, [0], "latest")[0] == before[0] < ends[0]
    if regrown:  # other records up to beyond the position: only the leader's epoch can tell
        fill(app, 2, range(100, 500))
        assert app.connection.admin.offsets(app.topic, [0], "latest")[0] > ends[0]
    worker = app.start()
    wait_for(lambda: worker.says("event=loss_accepted partition=0"), app)
    assert worker.says(f"position={before[0]} offsets={before[0] - ends[0]}") == 1
    fill(app, 5)
    close_windows(app, 8)
    app.wait_published(BASE + 6 * MINUTE)
    found = windows(app)
    assert {n: window.diverged for n, window in found.items()} == {0: False, 2: True, 5: False}
    assert {n: window.complete for n, window in found.items()} == {0: True, 2: False, 5: True}
    app.check_exact()  # the truth here is what was sent: what the log has lost was counted once, before
    assert worker.terminate() == 0


def make_again(app: App) -> None:
    with app.connection.admin.client("deleting") as admin:
        admin.delete_topics([app.topic])
    settings = {"num_partitions": app.partitions, "replication_factor": 1, "configs": {"retention.ms": "-1"}}
    deadline = time.monotonic() + 20
    while True:
        try:
            with app.connection.admin.client("creating") as admin:
                admin.create_topics({app.topic: settings})
                admin.wait_for_topics([app.topic])
            return
        except BrokerError as error:
            if not isinstance(error.__cause__, TopicAlreadyExistsError) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.mark.parametrize("running", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_topic_that_was_made_again_is_counted_as_a_new_revision(app_of: Callable[..., App], running: bool) -> None:
    app = app_of()
    worker = app.start()
    fill(app, 0)
    close_windows(app, 2)
    app.wait_published(BASE + MINUTE)
    fill(app, 2)
    if not running:
        stopped(app, worker)
    make_again(app)
    app.truth.clear()
    fill(app, 3)  # fewer records than the old topic had
    if not running:
        worker = app.start()
    wait_for(
        lambda: {worker.says(f"event=input_made_again topic={app.topic} partition={p}") for p in (0, 1)} == {1}, app
    )
    fill(app, 5)
    close_windows(app, 8)
    wait_for(lambda: 5 in windows(app), app)
    wait_for(lambda: windows(app)[5].complete, app)
    found = windows(app)
    assert {n: (window.revision, window.partial) for n, window in found.items()} == {
        0: (0, False),
        3: (1, True),
        5: (1, False),
    }
    app.check_exact()
    app.check_publications()
    assert worker.terminate() == 0
