"""The service follows a topic of a real broker: what workers publish is answered as the command line answers it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from kafka import KafkaAdminClient, TopicPartition

from helpers.kafka.app import MINUTE, App
from helpers.serving import TEXT, publish
from helpers.streams import EPOCH
from sketchstream.config.loader import Config
from sketchstream.errors import SketchstreamError
from sketchstream.query.window_sequence import windows_of
from sketchstream.serve import status
from sketchstream.serve.follower import Follower
from sketchstream.serve.reconstruction.pool import Pool
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.serve.service import Service
from sketchstream.serve.store.store import Store
from sketchstream.stream.feed import FeedBatch
from sketchstream.stream.interfaces import Deleted, Frontier, SealedEntry
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.log_reader import Extent, Log
from sketchstream_connectors.kafka.publishing.feed import KafkaFeed, _Reading
from sketchstream_connectors.kafka.publishing.publisher import KafkaPublisher
from sketchstream_connectors.kafka.publishing.sealed import Trimmed, entry_records, frontier_record
from sketchstream_connectors.readers import open_feed, open_published

T0 = 1_700_000_040_000


def agrees(found: object, wanted: object) -> bool:
    """Whether two answers are equal but for digits that mean nothing: they differ by 1e-5 with other threads."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return [*found] == [*wanted] and all(agrees(found[name], wanted[name]) for name in found)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(agrees, found, wanted))
    if isinstance(found, float) and isinstance(wanted, float):
        return found == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    return found == wanted


def test_answers_agree_but_for_last_digits() -> None:
    one = {"a": [1, 0.25, None], "b": {"c": "x"}}
    assert agrees(one, {"a": [1, 0.25 + 1e-5, None], "b": {"c": "x"}})
    for other in ({"a": [1, 0.26, None], "b": {"c": "x"}}, {"a": [1, 0.25], "b": {"c": "x"}}, {"a": one["a"]}):
        assert not agrees(one, other)


def test_a_topic_is_followed_over_a_restart(kafka: str, tmp_path: Path) -> None:
    app = App(kafka, tmp_path / "app", partitions=2, sketch='epsilon = "2"\ndomain = { size = 60 }')
    try:
        app.start()
        load = app.load()

        def send(minute: int) -> None:
            for item in range(20):
                load.send(item, T0 + minute * MINUTE + item)
            load.close_windows(T0 + (minute + 3) * MINUTE)
            app.wait_published(T0 + (minute + 1) * MINUTE)

        send(0)
        stored = []
        for minute in (0, 10):
            if minute:
                send(minute)
            with open_feed(app.config) as (feed, surroundings):
                store = Store(tmp_path / "serve.sqlite", app.config, feed.identity)
                pool = Pool(store, app.config_file.read_text(), 1, 120.0)
                follower = Follower(store, feed, pool, surroundings)
                service = Service(store, pool, follower)
                pool.start()
                try:
                    follower.step()
                    stored.append(follower.stored)
                    assert status.readiness(service)[0] == 200
                    assert status.behind_seconds(service, "seen") == 0
                    with open_published(app.config) as published:
                        wanted = windows_of(published, "seen")
                        found = store.windows("seen")
                        assert [one.window for one in found] == [window._sealed.window for window in wanted]
                        for one, window in zip(found, wanted, strict=True):
                            computed = service.ready(one, Question())
                            if computed is None:
                                service.ask(one, Question()).result(120)
                                again = store.window("seen", one.window)
                                assert again is not None
                                computed = service.ready(again, Question())
                            assert computed is not None
                            assert agrees(json.loads(computed.json()), json.loads(window.answer.to_json()))
                finally:
                    pool.close()
                    follower.close()
                    store.close()
        assert all(stored)
        assert len(wanted) * app.partitions >= sum(stored) > stored[0]  # the second one read on
        assert threading.active_count() >= 1
    finally:
        app.close()


@pytest.fixture
def connection(kafka: str) -> Iterator[Connection]:
    made = Connection({"bootstrap.servers": kafka, "group.id": "followers"})
    yield made
    made.close()


@pytest.fixture
def admin(kafka: str) -> Iterator[KafkaAdminClient]:
    made = KafkaAdminClient(bootstrap_servers=kafka)
    yield made
    made.close()


def test_the_log_loses_its_beginning_while_the_service_follows(
    connection: Connection,
    admin: KafkaAdminClient,
    topic_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was stored stays; what was deleted before it was read is missing, and nothing else is."""
    topic = topic_name("sealed")
    admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
    admin.wait_for_topics([topic])
    driver = publish(tmp_path / "driver", minutes=6, partitions=2)
    minutes = sorted(
        (one for one in driver.publisher.log if one.sketch == "minutes" and one.window[0] < EPOCH + 6 * MINUTE),
        key=lambda one: (one.window, one.partition),
    )
    publisher = KafkaPublisher(connection, topic)

    def send(first: int, last: int) -> dict[int, int]:
        """Publish some minutes with their frontiers; gives the ends of the partitions."""
        for one in minutes:
            number = (one.window[0] - EPOCH) // MINUTE
            if first <= number < last and (number, one.partition) != (0, 0):  # partition 0 was empty at first
                said = Frontier("minutes", 0, one.partition, one.window[1], 2, number + 1)
                publisher.publish(one.partition, [one], [said])
        return feed._log.extent().ends

    def delete(offsets: dict[int, int]) -> None:
        admin.delete_records({TopicPartition(topic, partition): at for partition, at in offsets.items()})

    def shown() -> list[tuple[bool | None, list[int], bool]]:
        fields = [one.fields for one in store.windows("minutes")]
        return [(one["complete"], one["partitions"]["missing"], one.get("deleted", False)) for one in fields]

    feed = KafkaFeed(connection, topic)
    store = Store(tmp_path / "serve.sqlite", Config.parse(TEXT), feed.identity)
    follower = Follower(store, feed)
    whole, lost = (None, [], False), (False, [1], True)  # these frontiers say nothing of refused records
    try:
        ends = send(0, 2)
        follower.step()
        assert shown() == [whole] * 2
        between = send(2, 3)
        send(3, 4)
        delete({0: ends[0], 1: between[1]})  # all that was read of the one; of the other a minute that was not
        follower.step()
        assert shown() == [whole, whole, lost, whole]

        between = send(4, 5)
        send(5, 6)
        extent = Log.extent

        def late(log: Log) -> Extent:
            """The log's beginning moves after the service has asked for it."""
            found = extent(log)
            monkeypatch.setattr(Log, "extent", extent)
            delete({1: between[1]})
            return found

        monkeypatch.setattr(Log, "extent", late)
        with pytest.raises(SketchstreamError):
            follower.step()
        follower.step()
        assert shown() == [whole, whole, lost, whole, lost, whole]
        assert store.incidents() == []
    finally:
        follower.close()
        store.close()
        publisher.close()


def record(key: bytes, value: bytes, partition: int, offset: int) -> SimpleNamespace:
    return SimpleNamespace(key=key, value=value, partition=partition, offset=offset)


def test_a_body_that_is_not_whole_is_read_again_from_its_first_chunk() -> None:
    body = bytes(range(256)) * 5000
    entry = SealedEntry("s", 0, (0, MINUTE), 0, bytes(16), body)
    chunks = list(entry_records(entry))
    assert len(chunks) > 2
    reading = _Reading({0: 7}, Trimmed(set()))
    reading.add(record(b"other/key", b"", 0, 7))
    for number, (key, value, _) in enumerate(chunks[:-1]):
        reading.add(record(key, value, 0, 8 + number))
    first = reading.batch(1)
    assert (first.entries, first.positions) == ([], {"0": "8"})
    key, value, _ = chunks[-1]
    reading.add(record(key, value, 0, 20))
    second = reading.batch(0)
    assert (second.entries, second.positions) == ([entry], {"0": "21"})


def test_what_was_deleted_is_said_with_the_first_record_that_is_left() -> None:
    reading = _Reading({0: 5}, Trimmed({0}))
    key, value, _ = frontier_record(Frontier("s", 0, 0, 3 * MINUTE, 1, 4))
    reading.add(record(key, value, 0, 5))
    key, value, _ = next(iter(entry_records(SealedEntry("t", 0, (MINUTE, 2 * MINUTE), 0, bytes(16), b"x"))))
    reading.add(record(key, value, 0, 6))
    found = reading.batch(0)
    assert isinstance(found, FeedBatch)
    assert list(found.deleted) == [Deleted("s", 0, 3 * MINUTE), Deleted("t", 0, MINUTE)]
    assert [one.published_through for one in found.frontiers] == [3 * MINUTE]


@pytest.mark.parametrize("damage", [b"", b"short"])
def test_a_body_that_was_altered_is_left_out(damage: bytes) -> None:
    reading = _Reading({0: 0}, Trimmed(set()))
    key, _, _ = next(iter(entry_records(SealedEntry("s", 0, (0, MINUTE), 0, bytes(16), b"whole body"))))
    reading.add(record(key, damage, 0, 0))
    assert reading.batch(0).entries == []
