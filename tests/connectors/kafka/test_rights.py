"""Access rules on a broker that asks for them: the documented rights are enough, each is needed, and is named."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from helpers.kafka.access import administrator, grant, login, withdraw
from helpers.kafka.app import MINUTE, App
from helpers.kafka.devbroker import DevCluster
from sketchstream.errors import BrokerError, ConfigError
from sketchstream_connectors.kafka.cluster import topics as kafka_topics
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.topics import Right, TopicNames, rights
from sketchstream_connectors.kafka.preflight import check, missing_rights
from sketchstream_connectors.kafka.state.topic_validation import check_writable

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
BASE = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE


@pytest.fixture
def admin(own_broker: DevCluster) -> Iterator[KafkaAdminClient]:
    with administrator(own_broker) as client:
        yield client


@pytest.fixture
def app(own_broker: DevCluster, tmp_path: Path) -> Iterator[App]:
    """An application with every kind of topic, whose workers log in as `worker`."""
    made = App(own_broker.bootstrap, tmp_path / "app", partitions=2, kafka={"metadata.max.age.ms": 1000})
    names = names_of(made)
    kafka_topics.create(made.connection, names)
    made.kafka = {**made.kafka, **login(own_broker)}
    made.write()
    text = made.config_file.read_text().replace(
        "[input]", f"[input]\nlate_topic = '{names.late}'\ndead_letter_topic = '{names.dead_letter}'"
    )
    made.config_file.write_text(text.replace("[store]", f"[output]\nresults_topic = '{names.results}'\n[store]"))
    yield made
    made.close()


@pytest.fixture
def connection(app: App) -> Iterator[Connection]:
    """As a worker connects."""
    config = app.config
    made = Connection(config.kafka, config.folder)
    yield made
    made.close()


def names_of(app: App) -> TopicNames:
    group = app.group
    return TopicNames(group, app.topic, f"{group}.sealed", f"{group}.results", f"{group}.dead", f"{group}.late")


def wait_for(true: Callable[[], object], app: App, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, app.logs()
        time.sleep(0.1)


def test_the_documented_rights_are_enough(app: App, admin: KafkaAdminClient, connection: Connection) -> None:
    names = names_of(app)
    grant(admin, rights(names))
    wait_for(lambda: missing_rights(connection, names) == [], app)
    assert check(connection, app.config, names) == []
    worker, load = app.start(), app.load()
    for i in range(300):
        load.send(i, BASE + i)
    load.close_windows(BASE + 3 * MINUTE)
    app.wait_published(BASE + 2 * MINUTE)
    ask = app.connection.admin.offsets
    wait_for(lambda: ask(names.results, [0], "latest")[0], app)  # with a third partition the window is not complete
    app.connection.admin.grow(app.topic, 3)
    wait_for(lambda: worker.says("event=running") == 3, app)
    app.partitions = 3
    load = app.load()
    load.send("no number", BASE + 3 * MINUTE, partition=0, count=False)
    load.send(5, BASE, partition=1, count=False)  # late
    load.flush()
    for topic in (names.dead_letter, names.late):
        wait_for(lambda topic=topic: sum(ask(str(topic), range(2), "latest").values()), app)
    wait_for(lambda: ask(names.state, [0], "earliest")[0] > 0, app)  # superseded snapshots are erased
    app.check_exact()
    assert worker.says("not allowed") == worker.says("event=dropped") == worker.says("erase_delayed") == 0, app.logs()
    assert worker.terminate() == 0


@pytest.mark.slow
def test_every_right_that_is_missing_is_named(app: App, admin: KafkaAdminClient, connection: Connection) -> None:
    names = names_of(app)
    everything = list(rights(names))
    first = {(right.resource_type, right.name): right for right in reversed(everything)}
    assert set(missing_rights(connection, names)) == set(first.values()), "what cannot be seen is named once"
    grant(admin, everything)
    wait_for(lambda: missing_rights(connection, names) == [], app)
    for right in everything:
        withdraw(admin, right)
        wait_for(lambda right=right: missing_rights(connection, names) == [right], app)
        grant(admin, [right])
    withdraw(admin, everything[0])
    wait_for(lambda: missing_rights(connection, names) == everything[:1], app)
    command = [sys.executable, "-m", "sketchstream.cli", "validate", "-c", str(app.config_file), "--online"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"warning: topic {app.topic!r}: the right to read is missing" in done.stderr, done.stderr


def test_commands_without_any_right_say_which_topic_and_what_to_do(app: App, connection: Connection) -> None:
    with pytest.raises(BrokerError) as caught:
        kafka_topics.create(connection, names_of(app))
    found = check(connection, app.config, names_of(app))
    assert f"topic {app.topic!r}: the right to read is missing; with it a worker reads events" in found[0]
    assert "nothing more could be checked" in found[-1]
    for text in (str(caught.value), found[-1]):
        assert f"not allowed to touch topic {app.topic}" in text
        assert "`sketchstream topics acls`" in text


def test_topics_that_may_not_be_written_are_refused_at_start(
    app: App, admin: KafkaAdminClient, connection: Connection
) -> None:
    names = names_of(app)
    assert names.dead_letter
    topics = {"input.dead_letter_topic": names.dead_letter}
    with pytest.raises(ConfigError, match=r"does not exist, or may not be seen.*topics acls"):
        check_writable(connection, topics)
    write = Right("topic", names.dead_letter, "literal", "write", "")
    grant(admin, [replace(write, operation="read")])

    def refused() -> str:
        try:
            check_writable(connection, topics)
        except ConfigError as error:
            return str(error)
        return ""

    wait_for(lambda: "may not be written" in refused(), app)
    grant(admin, [write])
    wait_for(lambda: refused() == "", app)


FATAL = {"input read", "state describe_configs", "group read"}
"""Without these a worker ends at once; without the others it says what is missing, and tries again."""
NEEDED = [
    "input read",
    "state read",
    "state write",
    "state describe_configs",
    "sealed write",
    "group read",
    "fence write",
]


@pytest.mark.slow
@pytest.mark.parametrize("missing", NEEDED)
def test_a_worker_without_one_of_its_rights_says_so(
    app: App, admin: KafkaAdminClient, connection: Connection, missing: str
) -> None:
    names = names_of(app)
    place, operation = missing.split()
    name = {"input": names.input, "state": names.state, "sealed": names.sealed, "group": names.group}
    (gone,) = [
        right
        for right in rights(names)
        if right.operation == operation
        and (right.resource_type == "transactional_id" if place == "fence" else right.name == name[place])
    ]
    load = app.load()
    load.send(1, BASE)
    grant(admin, rights(names))
    if missing == "state read":  # needed where there is something to take over
        wait_for(lambda: missing_rights(connection, names) == [], app)
        worker = app.start()
        wait_for(lambda: worker.says("event=running") == 2, app)
        assert worker.terminate() == 0
    withdraw(admin, gone)
    wait_for(lambda: missing_rights(connection, names) == [gone], app)
    worker = app.start()
    load.close_windows(BASE + 3 * MINUTE)
    kind = {"fence": "transactional id", "group": "group"}.get(place, "topic")
    wait_for(lambda: worker.says(f"not allowed to touch {kind}"), app)
    assert worker.says("`sketchstream topics acls`")
    if missing in FATAL:
        assert worker.process.wait(60) == 1
        return
    grant(admin, [gone])
    app.wait_published(BASE + 2 * MINUTE)
    assert worker.terminate() == 0
