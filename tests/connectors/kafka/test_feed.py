"""The service follows a topic of a real broker: what workers publish is answered as the command line answers it."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.kafka.app import MINUTE, App
from sketchstream.query.history import history
from sketchstream.serve.feed import Batch
from sketchstream.serve.follower import Follower
from sketchstream.serve.pool import Pool
from sketchstream.serve.questions import Question
from sketchstream.serve.service import Service
from sketchstream.serve.store import Store
from sketchstream.stream.interfaces import Deleted, Frontier, SealedEntry
from sketchstream_connectors.kafka.feed import _Reading
from sketchstream_connectors.kafka.sealed import entry_records, frontier_record
from sketchstream_connectors.published import open_feed, open_published

T0 = 1_700_000_040_000


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
            with open_feed(app.config) as (feed, around):
                store = Store(tmp_path / "serve.sqlite", app.config, feed.identity)
                pool = Pool(store, app.config_file.read_text(), 1, 120.0)
                follower = Follower(store, feed, pool, around)
                service = Service(store, pool, follower)
                pool.start()
                try:
                    follower.step()
                    stored.append(follower.stored)
                    assert service.readiness()[0] == 200
                    assert service.behind_seconds("seen") == 0
                    with open_published(app.config) as published:
                        wanted = history(published, "seen")
                        found = store.windows("seen")
                        assert [one.window for one in found] == [window._found.window for window in wanted]
                        for one, window in zip(found, wanted, strict=True):
                            computed = service.ready(one, Question())
                            if computed is None:
                                service.ask(one, Question()).result(120)
                                again = store.window("seen", one.window)
                                assert again is not None
                                computed = service.ready(again, Question())
                            assert computed is not None
                            assert computed.json().decode() == window.answer.to_json()
                finally:
                    pool.close()
                    follower.close()
                    store.close()
        assert all(stored)
        assert len(wanted) * app.partitions >= sum(stored) > stored[0]  # the second one read on
        assert threading.active_count() >= 1
    finally:
        app.close()


def record(key: bytes, value: bytes, partition: int, offset: int) -> SimpleNamespace:
    return SimpleNamespace(key=key, value=value, partition=partition, offset=offset)


def test_a_body_that_is_not_whole_is_read_again_from_its_first_chunk() -> None:
    body = bytes(range(256)) * 5000
    entry = SealedEntry("s", 0, (0, MINUTE), 0, bytes(16), body)
    chunks = list(entry_records(entry))
    assert len(chunks) > 2
    reading = _Reading({0: 7}, set())
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
    reading = _Reading({0: 5}, {0})
    key, value, _ = frontier_record(Frontier("s", 0, 0, 3 * MINUTE, 1, 4))
    reading.add(record(key, value, 0, 5))
    key, value, _ = next(iter(entry_records(SealedEntry("t", 0, (MINUTE, 2 * MINUTE), 0, bytes(16), b"x"))))
    reading.add(record(key, value, 0, 6))
    found = reading.batch(0)
    assert isinstance(found, Batch)
    assert list(found.deleted) == [Deleted("s", 0, 3 * MINUTE), Deleted("t", 0, MINUTE)]
    assert [one.published_through for one in found.frontiers] == [3 * MINUTE]


@pytest.mark.parametrize("damage", [b"", b"short"])
def test_a_body_that_was_altered_is_left_out(damage: bytes) -> None:
    reading = _Reading({0: 0}, set())
    key, _, _ = next(iter(entry_records(SealedEntry("s", 0, (0, MINUTE), 0, bytes(16), b"whole body"))))
    reading.add(record(key, damage, 0, 0))
    assert reading.batch(0).entries == []
