"""Unclean elections on three brokers: a follower that lagged becomes leader, and what only the old leader had is gone.

Partition 0 of the input lies on nodes 1 (its leader) and 2. Node 2 is ended, records go to node 1 alone and are
counted; node 1 is ended, node 2 comes back and is elected, for the topic allows it. Partition 1 lies on the others.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.kafka.app import AT_ONCE, MINUTE, App
from helpers.kafka.devbroker import DevCluster
from helpers.kafka.minutes import BASE, close_windows, fill, windows
from sketchstream.errors import BrokerError
from sketchstream_connectors.kafka.state.recover import recover

pytestmark = [pytest.mark.filterwarnings("ignore:.*NO PRIVACY"), pytest.mark.slow, pytest.mark.timeout(600)]
INPUT = f'item_type = "int"\nitem = "u"\ntime = "ts"\n{AT_ONCE}\nidle = "off"\ndata_loss = "%s"'
LEADER, FOLLOWER, OTHER = 1, 2, 3
UNCLEAN = {
    "assignments": {0: [LEADER, FOLLOWER], 1: [OTHER, LEADER]},
    "configs": {"retention.ms": "-1", "min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
}


@pytest.fixture
def app_of(cluster3: DevCluster, tmp_path: Path) -> Iterator[Callable[[str], App]]:
    made: list[App] = []

    def make(data_loss: str) -> App:
        options = {"partitions": 2, "replication": 3, "kafka": {"metadata.max.age.ms": 1000}, "input_topic": UNCLEAN}
        made.append(App(cluster3.bootstrap, tmp_path / "app", input=INPUT % data_loss, **options))
        return made[-1]

    yield make
    for app in made:
        app.close()
    for number in cluster3.nodes:
        cluster3.start_node(number)


def wait_for(true: Callable[[], object], app: App, seconds: float = 120) -> None:
    """Nodes come and go meanwhile: who asks one that is gone asks again."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(BrokerError):
            if true():
                return
        assert time.monotonic() < deadline, app.logs()
        time.sleep(0.2)


def in_sync(app: App) -> set[int]:
    """Nodes that have all of partition 0."""
    with app.connection.admin.client("asking") as admin:
        (found,) = admin.describe_topics([app.topic])
    return set(next(p["isr_nodes"] for p in found["partitions"] if p["partition_index"] == 0))


def leader(app: App) -> int:
    found = app.connection.admin.topic(app.topic)
    assert found is not None
    return found.leaders[0]


def end(app: App) -> int:
    """Of partition 0, as its leader says; while there is none, nobody does."""
    found: dict[int, int] = {}

    def answered() -> bool:
        found.update(app.connection.admin.offsets(app.topic, [0], "latest"))
        return 0 in found

    wait_for(answered, app)
    return found[0]


def committed(app: App) -> int:
    return {tp.partition: at.offset for tp, at in app.connection.admin.committed(app.group).items()}[0]


def count_what_only_the_leader_has(app: App, cluster: DevCluster) -> tuple[int, int]:
    """Minute 2, of which the follower knows nothing; the ends of partition 0 before and after it."""
    wait_for(lambda: in_sync(app) == {LEADER, FOLLOWER}, app)
    assert leader(app) == LEADER
    before = end(app)
    cluster.kill(FOLLOWER)
    wait_for(lambda: in_sync(app) == {LEADER}, app)
    fill(app, 2)
    wait_for(lambda: committed(app) == end(app) > before, app)
    return before, end(app)


def elect_the_follower(app: App, cluster: DevCluster, before: int) -> None:
    """The leader is gone for ever, as far as anybody knows; the follower's log is the log."""
    cluster.kill(LEADER)
    cluster.start_node(FOLLOWER)
    wait_for(lambda: leader(app) == FOLLOWER, app)
    wait_for(lambda: end(app) == before, app)


def check_marks(app: App) -> None:
    """Minute 2 holds records that the log has lost, and says so; those before and behind it do not."""
    fill(app, 5)
    close_windows(app, 8)
    app.wait_published(BASE + 6 * MINUTE)
    found = windows(app)
    assert {n: window.diverged for n, window in found.items()} == {0: False, 2: True, 5: False}
    assert {n: window.complete for n, window in found.items()} == {0: True, 2: False, 5: True}
    app.check_exact()  # the truth here is what was sent: what the log has lost was counted once, before


@pytest.mark.parametrize("regrown", [False, True])
def test_an_unclean_election_while_no_worker_runs_marks_the_open_windows(
    app_of: Callable[[str], App], cluster3: DevCluster, regrown: bool
) -> None:
    app = app_of("accept")
    worker = app.start()
    fill(app, 0)
    close_windows(app, 2)
    app.wait_published(BASE + MINUTE)
    before, after = count_what_only_the_leader_has(app, cluster3)
    assert worker.terminate() == 0, app.logs()
    elect_the_follower(app, cluster3, before)
    if regrown:  # other records up to beyond the position: only the leader's epoch can tell
        fill(app, 2, range(100, 500))
        assert end(app) > after
    worker = app.start()
    wait_for(lambda: worker.says("event=loss_accepted partition=0"), app)
    assert worker.says(f"position={before} offsets={before - after}") == 1
    check_marks(app)
    assert worker.terminate() == 0


def test_an_unclean_election_under_a_running_worker_marks_the_open_windows(
    app_of: Callable[[str], App], cluster3: DevCluster
) -> None:
    app = app_of("accept")
    worker = app.start()
    fill(app, 0)
    close_windows(app, 2)
    app.wait_published(BASE + MINUTE)
    before, after = count_what_only_the_leader_has(app, cluster3)
    elect_the_follower(app, cluster3, before)
    wait_for(lambda: worker.says("event=loss_accepted partition=0"), app)
    assert worker.says(f"position={before} offsets={before - after}") == 1
    check_marks(app)
    assert worker.terminate() == 0


def test_an_unclean_election_halts_its_partition_until_the_loss_is_accepted(
    app_of: Callable[[str], App], cluster3: DevCluster
) -> None:
    app = app_of("halt")
    worker = app.start()
    fill(app, 0)
    close_windows(app, 2)
    app.wait_published(BASE + MINUTE)
    before, after = count_what_only_the_leader_has(app, cluster3)
    elect_the_follower(app, cluster3, before)
    wait_for(lambda: worker.says("event=halted partition=0"), app)
    assert "truncated" in worker.log.read_text()
    load = app.load()
    load.send(None, BASE + 5 * MINUTE, partition=1, count=False)  # the other partition goes on
    load.flush()
    wait_for(lambda: app.frontiers()[1].published_through >= BASE + 3 * MINUTE, app)
    assert app.frontiers()[0].published_through < BASE + 3 * MINUTE
    assert worker.alive
    assert worker.terminate() == 0
    assert committed(app) == after, "the pointer is where it was"

    (finding, other) = recover(app.connection, app.names, accept_loss=True)
    assert (finding.outcome, finding.position, other.outcome) == ("accept", before, "healthy")
    worker = app.start()
    check_marks(app)
    assert worker.terminate() == 0
