"""Names of state topics and fences, what older releases called them, and a state topic that is made again.

In: a broker. Out: nothing. Touches: topics, groups and worker processes of its own.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from helpers.kafka.app import MINUTE, App, Nobody
from sketchstream.errors import DataLossError, FencedError, SnapshotsGoneError
from sketchstream.stream.interfaces import Fresh, Restored, Snapshot
from sketchstream_connectors.kafka.cluster import topics as kafka_topics
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.topics import TopicNames, state_topic, transactional_id
from sketchstream_connectors.kafka.state import store as kafka_store
from sketchstream_connectors.kafka.state import topic_validation, transaction
from sketchstream_connectors.kafka.state.pointer import Pointer
from sketchstream_connectors.kafka.state.recover import recover, reset
from sketchstream_connectors.kafka.state.store import KafkaStore

pytestmark = pytest.mark.filterwarnings("ignore:epsilon above 10")
BASE = 1_700_000_040_000 // MINUTE * MINUTE
PARTS = ("x", "y", "x.y", "y.x", "x-y", "y-x", "x_y", "x y", "1", "x-1", "1.x", "x.1.y", "é", "x" * 230)


def snapshot(position: int, blobs: dict[str, bytes], keep: frozenset[str] = frozenset()) -> Snapshot:
    return Snapshot(0, position, {"at": position}, blobs, keep)


@pytest.fixture
def stores(kafka: str) -> Iterator[Callable[[str, str], KafkaStore]]:
    made: list[KafkaStore] = []

    def store(group: str, topic: str) -> KafkaStore:
        made.append(KafkaStore(connected(kafka, group), topic, Nobody(group)))
        return made[-1]

    yield store
    for one in made:
        one.close()


@pytest.fixture
def taken(
    kafka: str, topic_name: Callable[[str], str], stores: Callable[[str, str], KafkaStore]
) -> Iterator[tuple[Connection, TopicNames, KafkaStore]]:
    """An input and its topics, and a store that has taken its partition."""
    names = TopicNames(topic_name("g"), topic_name("t"))
    connection = connected(kafka, names.group)
    make(kafka, names.input)
    kafka_topics.create(connection, names)
    store = stores(names.group, names.input)
    store.take(0)
    yield connection, names, store
    connection.close()


def connected(kafka: str, group: str) -> Connection:
    return Connection({"bootstrap.servers": kafka, "group.id": group})


def make(kafka: str, *topics: str, settings: bool = False) -> None:
    connection = connected(kafka, "x")
    configs = kafka_topics.STATE if settings else {}
    with connection.admin.client("creating") as admin:
        admin.create_topics(
            {name: {"num_partitions": 1, "replication_factor": 1, "configs": configs} for name in topics}
        )
        admin.wait_for_topics(list(topics))
    connection.close()


def names_of_a_former_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stores that are made now, and what they do from now on, is called as before."""
    monkeypatch.setattr(kafka_store, "state_topics", lambda group, topic: (f"{group}.{topic}.state",))
    monkeypatch.setattr(kafka_store, "Pointer", functools.partial(Pointer, naming=1))
    monkeypatch.setattr(transaction, "transactional_id", lambda group, topic, p: f"{group}-{topic}-{p}")


def test_no_two_applications_have_a_name_in_common() -> None:
    """`x` and `y.z` shared a state topic with `x.y` and `z`; `k1` and `eu-ev` a fence with `k1-eu` and `ev`."""
    pairs = [(group, topic) for group, topic in itertools.product(PARTS, PARTS) if topic.isascii() and " " not in topic]
    states = [state_topic(group, topic) for group, topic in pairs]
    assert len(set(states)) == len(pairs)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) for name in states)
    fences = [transactional_id(group, topic, p) for (group, topic), p in itertools.product(pairs, (0, 1, 10))]
    assert len(set(fences)) == 3 * len(pairs)
    assert (state_topic("reach", "events"), transactional_id("reach", "events", 3)) == (
        "reach.events.state",
        "reach-events-3",
    )
    for group, topic in pairs:  # rights that were given to the former names hold for the present ones
        if len(group + topic) < 200:
            assert transactional_id(group, topic, 0).startswith(f"{group}-{topic}-")


def test_applications_whose_names_join_to_the_same_keep_their_snapshots_apart(
    kafka: str, topic_name: Callable[[str], str], stores: Callable[[str, str], KafkaStore]
) -> None:
    stem = topic_name("n")
    pairs = [(stem, "y.z-" + stem), (f"{stem}.y", f"z-{stem}")]
    make(kafka, *(topic for _, topic in pairs))
    make(kafka, *(state_topic(*pair) for pair in pairs), settings=True)
    taken = [stores(*pair) for pair in pairs]
    for store in taken:
        assert store.take(0) == Fresh(0, 0)
    for n, store in enumerate(taken):
        store.commit(0, snapshot(0, {"a": b"%d" % n}))
    for n, (store, pair) in enumerate(zip(taken, pairs, strict=True)):
        store.commit(0, snapshot(0, {"b": b"x"}, frozenset({"a"})))  # nobody fenced it
        store.close()
        found = stores(*pair).take(0)
        assert isinstance(found, Restored)
        assert found.blobs == {"a": b"%d" % n, "b": b"x"}


def test_snapshots_under_a_former_name_are_taken_and_moved(
    kafka: str,
    topic_name: Callable[[str], str],
    stores: Callable[[str, str], KafkaStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group, topic = topic_name("g.h"), topic_name("events.x")
    former, present = f"{group}.{topic}.state", state_topic(group, topic)
    make(kafka, topic)
    make(kafka, former, settings=True)
    with monkeypatch.context() as patch:
        names_of_a_former_release(patch)
        old = stores(group, topic)
        assert old.take(0) == Fresh(0, 0)
        old.commit(0, snapshot(0, {"a": b"1", "b": b"2"}))
    names = TopicNames(group, topic)
    connection = connected(kafka, group)
    assert [one.outcome for one in recover(connection, names, dry_run=True)] == ["healthy"]
    new = stores(group, topic)
    found = new.take(0)
    assert isinstance(found, Restored)
    assert found.blobs == {"a": b"1", "b": b"2"}
    with pytest.raises(FencedError):
        old.commit(0, snapshot(0, {}, frozenset({"a"})))
    new.commit(0, snapshot(0, {"c": b"3"}, frozenset({"a", "b"})))  # still there: nobody has made the other topic
    assert connection.admin.topic(present) is None
    assert [change.outcome for change in kafka_topics.create(connection, names)] == ["created"]
    newer = stores(group, topic)
    assert isinstance(newer.take(0), Restored)
    newer.commit(0, snapshot(0, {"d": b"4"}, frozenset({"a", "c"})))
    ask = connection.admin.offsets
    assert ask(former, [0], "earliest") == ask(former, [0], "latest"), "nothing is left under the former name"
    newer.commit(0, snapshot(0, {}, frozenset({"a", "d"})))
    newer.close()
    again = stores(group, topic).take(0)
    assert isinstance(again, Restored)
    assert again.blobs == {"a": b"1", "d": b"4"}
    assert [one.outcome for one in recover(connection, names, dry_run=True)] == ["healthy"]
    connection.close()


def test_a_state_topic_with_snapshots_of_another_input_is_refused_and_left_alone(
    kafka: str,
    topic_name: Callable[[str], str],
    stores: Callable[[str, str], KafkaStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stem = topic_name("s")
    pairs = [(stem, "y.z-" + stem), (f"{stem}.y", f"z-{stem}")]
    former = f"{stem}.y.z-{stem}.state"
    make(kafka, *(topic for _, topic in pairs))
    make(kafka, former, settings=True)
    for n, pair in enumerate(pairs):
        with monkeypatch.context() as patch:
            names_of_a_former_release(patch)
            patch.setattr(kafka_store.Eraser, "erase", lambda *_: None)  # else the second one erases the first
            store = stores(*pair)
            if n == 0:
                store.take(0)
            else:  # an older release took no notice
                patch.setattr(store, "_first", lambda p, fence, s=store: s._begin(p, fence, 0, partial=False))
                store.take(0)
            store.commit(0, snapshot(0, {"a": b"%d" % n}))
            store.close()
    for pair, other in zip(pairs, pairs[::-1], strict=True):
        with pytest.raises(DataLossError, match=re.escape(f"holds snapshots of {other[1]!r} too")):
            stores(*pair).take(0)
    for n, pair in enumerate(pairs):
        connection = connected(kafka, pair[0])
        kafka_topics.create(connection, TopicNames(*pair))
        store = stores(*pair)
        found = store.take(0)
        assert isinstance(found, Restored)
        assert found.blobs == {"a": b"%d" % n}
        store.commit(0, snapshot(0, {"b": b"x"}, frozenset({"a"})))
        store.close()
        assert connection.admin.offsets(former, [0], "earliest") == {0: 0}, "the other one's are there too"
        assert [one.outcome for one in reset(connection, TopicNames(*pair))] == ["reset"]
        assert connection.admin.offsets(former, [0], "earliest") == {0: 0}
        connection.close()


def test_a_state_topic_made_again_gets_the_whole_snapshot_of_a_running_worker(
    taken: tuple[Connection, TopicNames, KafkaStore],
    stores: Callable[[str, str], KafkaStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_validation, "ASKED_TOGETHER_S", 0.0)
    connection, names, store = taken
    store.commit(0, snapshot(0, {"a": b"1"}))
    with connection.admin.client("deleting") as admin:
        admin.delete_topics([names.state])
    with pytest.raises(SnapshotsGoneError, match="was deleted; `sketchstream topics create"):
        store.commit(0, snapshot(0, {"b": b"2"}, frozenset({"a"})))
    kafka_topics.create(connection, names)
    with pytest.raises(SnapshotsGoneError, match="made again"):
        store.commit(0, snapshot(0, {"b": b"2"}, frozenset({"a"})))
    store.commit(0, snapshot(0, {"a": b"1", "b": b"2"}))
    store.commit(0, snapshot(0, {"c": b"3"}, frozenset({"a"})))
    store.close()
    assert [one.outcome for one in recover(connection, names, dry_run=True)] == ["healthy"]
    found = stores(names.group, names.input).take(0)
    assert isinstance(found, Restored)
    assert found.blobs == {"a": b"1", "c": b"3"}


def test_a_worker_whose_state_topic_is_made_again_loses_nothing(kafka: str, tmp_path: Path) -> None:
    app = App(kafka, tmp_path / "app", partitions=2)
    try:
        worker, load = app.start(), app.load()
        for i in range(600):
            load.send(i % 499, BASE + i)
        load.flush()
        app.wait_committed()
        with app.connection.admin.client("deleting") as admin:
            admin.delete_topics([app.names.state])
        for i in range(600):
            load.send(i % 499, BASE + 1000 + i)
        load.flush()
        kafka_topics.create(app.connection, app.names)
        app.wait_committed()
        assert worker.says("event=snapshots_gone") >= 2
        worker.kill()
        app.start()
        load.close_windows(BASE + 3 * MINUTE)
        app.wait_published(BASE + MINUTE)
        app.check_exact()
    finally:
        app.close()


def test_a_state_topic_that_begins_to_forget_is_noticed_while_workers_run(
    taken: tuple[Connection, TopicNames, KafkaStore],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(topic_validation, "WATCH_SETTINGS_S", 0.0)
    connection, names, store = taken
    with caplog.at_level(logging.ERROR, "sketchstream.kafka"):
        store.commit(0, snapshot(0, {"a": b"1"}))
        assert "topic_forgets" not in caplog.text
        with connection.admin.client("changing") as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, names.state, {"retention.ms": "1000000000"})])
        store.commit(0, snapshot(0, {}, frozenset({"a"})))
        store.commit(0, snapshot(0, {"b": b"1"}))
    assert caplog.text.count(f"event=topic_forgets topic={names.state}") == 1, "said once, not at each look"
    assert "retention.ms is 1000000000, must be -1" in caplog.text
