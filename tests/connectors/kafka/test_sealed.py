"""Sealed sketches, frontiers and refused records on a real broker."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from sketchstream.errors import BrokerError, DataLossError
from sketchstream.stream.interfaces import Deleted, Frontier, RawRecord, SealedEntry
from sketchstream.stream.windows.window_ranges import Mark
from sketchstream_connectors.kafka.cluster import client
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.log_reader import Log
from sketchstream_connectors.kafka.publishing import publisher as kafka_publish
from sketchstream_connectors.kafka.publishing import sealed
from sketchstream_connectors.kafka.publishing.publisher import KafkaPublisher, KafkaSink
from sketchstream_connectors.kafka.publishing.sealed import KafkaSealedSource, entry_records, frontier_record, read_key


@pytest.fixture
def connection(kafka: str) -> Iterator[Connection]:
    made = Connection({"bootstrap.servers": kafka, "group.id": "readers"})
    yield made
    made.close()


@pytest.fixture
def topic(kafka: str, topic_name: Callable[[str], str]) -> str:
    name = topic_name("sealed")
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.create_topics({name: {"num_partitions": 3, "replication_factor": 1}})
    admin.wait_for_topics([name])
    admin.close()
    return name


def entry(partition: int = 0, body: bytes = b"body", start: int = 0, sketch: str = "hourly") -> SealedEntry:
    return SealedEntry(sketch, 0, (start, start + 3_600_000), partition, bytes(range(16)), body)


def bodies(
    source: KafkaSealedSource, sketch: str | None = None, since: int | None = None, until: int | None = None
) -> list[SealedEntry]:
    return [one for one in source.read(sketch, since, until) if isinstance(one, SealedEntry)]


def records(kafka: str, topic: str, partition: int = 0) -> list[object]:
    tp = TopicPartition(topic, partition)
    consumer = KafkaConsumer(bootstrap_servers=kafka)
    consumer.assign([tp])
    consumer.seek_to_beginning(tp)
    end, found = consumer.end_offsets([tp])[tp], []
    while consumer.position(tp) < end:
        found += consumer.poll(timeout_ms=500).get(tp, [])
    consumer.close()
    return found


def test_readers_get_what_was_published(connection: Connection, topic: str) -> None:
    publisher = KafkaPublisher(connection, topic)
    big = random.Random(1).randbytes(1_300_000)
    publisher.publish(1, [entry(1, big), entry(1, b"day", sketch="daily")], [Frontier("hourly", 0, 1, 3_600_000, 3, 1)])
    publisher.publish(2, [entry(2, b"")], [Frontier("hourly", 0, 2, 7_200_000, 3, 5, partial=Mark(through=3_600_000))])
    source = KafkaSealedSource(connection, topic)
    assert sorted(source.frontiers(), key=lambda f: f.partition) == [
        Frontier("hourly", 0, 1, 3_600_000, 3, 1),
        Frontier("hourly", 0, 2, 7_200_000, 3, 5, partial=Mark(through=3_600_000)),
    ]
    assert bodies(source, "hourly") == [entry(1, big), entry(2, b"")]
    assert source.sketches() == ["daily", "hourly"]
    assert bodies(source, "hourly", 1) == []
    publisher.publish(0, [entry(0, b"late comer")], [])
    assert {e.body for e in bodies(source, "hourly")} == {big, b"", b"late comer"}
    source.close()
    publisher.close()


def test_records_are_chunked_and_say_nothing_of_offsets(connection: Connection, topic: str, kafka: str) -> None:
    publisher = KafkaPublisher(connection, topic)
    publisher.publish(0, [entry(0, bytes(1_200_000))], [Frontier("hourly", 0, 0, 1, 1, 1)])
    publisher.close()
    found = records(kafka, topic)
    assert len(found) == 4
    assert max(len(r.value) + len(r.key) for r in found) <= 512 * 1024
    assert [r.key.split(b"/")[0] for r in found] == [b"sealed"] * 3 + [b"frontier"]
    names = {name for r in found for name, _ in r.headers}
    assert names == {"content-type", "ss-format", "ss-window-start", "ss-window-end", "ss-digest"}


def test_a_retry_is_byte_identical_and_read_once(connection: Connection, topic: str, kafka: str) -> None:
    for _ in range(2):  # two workers: before and after a crash
        publisher = KafkaPublisher(connection, topic)
        publisher.publish(0, [entry(0, bytes(700_000))], [])
        publisher.close()
    found = records(kafka, topic)
    assert [(r.key, r.value, r.headers) for r in found[:2]] == [(r.key, r.value, r.headers) for r in found[2:]]
    source = KafkaSealedSource(connection, topic)
    assert [e.body for e in bodies(source, "hourly")] == [bytes(700_000)]
    source.close()


def test_a_body_cut_short_by_a_crash_waits_for_its_repetition(connection: Connection, topic: str, kafka: str) -> None:
    chunks = list(entry_records(entry(0, bytes(1_100_000))))
    producer = KafkaProducer(bootstrap_servers=kafka, max_request_size=2**21)
    for key, value, headers in chunks[:2]:
        producer.send(topic, key=key, value=value, headers=headers, partition=0)
    producer.flush()
    source = KafkaSealedSource(connection, topic)
    assert bodies(source, "hourly") == []
    for key, value, headers in chunks:
        producer.send(topic, key=key, value=value, headers=headers, partition=0)
    producer.flush()
    producer.close()
    assert [e.body for e in bodies(source, "hourly")] == [bytes(1_100_000)]
    source.close()


def test_a_second_body_under_one_key_is_refused_and_both_are_given_to_readers(
    connection: Connection, topic: str
) -> None:
    publisher, other = KafkaPublisher(connection, topic), KafkaPublisher(connection, topic)
    publisher.publish(0, [entry(0, b"one")], [])
    with pytest.raises(DataLossError, match="another body"):
        publisher.publish(0, [entry(0, b"two")], [])
    other.publish(0, [entry(0, b"two")], [])
    source = KafkaSealedSource(connection, topic)
    assert sorted(e.body for e in bodies(source, "hourly")) == [b"one", b"two"]
    for opened in (publisher, other, source):
        opened.close()


def test_the_newest_publications_are_remembered(
    connection: Connection, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_publish, "REMEMBERED", 2)
    publisher = KafkaPublisher(connection, topic)
    for number in (0, 1, 0, 2):
        publisher.publish(0, [entry(number, b"one")], [])
    assert len(publisher._published) == 2
    for number in (0, 2):
        with pytest.raises(DataLossError, match="another body"):
            publisher.publish(0, [entry(number, b"two")], [])
    publisher.close()


def test_publishers_see_the_frontiers_of_others(connection: Connection, topic: str) -> None:
    publisher, other = KafkaPublisher(connection, topic), KafkaPublisher(connection, topic)
    assert publisher.frontiers() == {}
    newest = Frontier("hourly", 0, 2, 99, 3, 2)
    other.publish(2, [], [Frontier("hourly", 0, 2, 11, 3, 1)])
    other.publish(2, [], [newest])
    publisher._read_at = float("-inf")
    assert publisher.frontiers() == {("hourly", 0, 2): newest}
    publisher.close()
    other.close()


def test_frontiers_are_found_without_reading_the_bodies(
    connection: Connection, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = KafkaPublisher(connection, topic, ["hourly", "daily"])
    for number in range(40):
        publisher.publish(0, [entry(0, bytes(600_000), start=number)], [Frontier("hourly", 0, 0, number, 3, number)])
    publisher.publish(1, [entry(1, bytes(600_000))], [Frontier("daily", 0, 1, 5, 3, 1)])
    publisher.publish(0, [entry(0, bytes(600_000), start=40)], [])  # interrupted before its frontier
    taken: list[int] = []
    add = sealed.NewestFrontiers.add

    def counted(self: sealed.NewestFrontiers, record: Any) -> bool:
        taken.append(len(record.value or b""))
        return add(self, record)

    monkeypatch.setattr(sealed.NewestFrontiers, "add", counted)
    found = publisher.frontiers()
    assert found == {
        ("hourly", 0, 0): Frontier("hourly", 0, 0, 39, 3, 39),
        ("daily", 0, 1): Frontier("daily", 0, 1, 5, 3, 1),
    }
    assert sum(taken) < 4_000_000, "of 25 MB"
    taken.clear()
    publisher._read_at = float("-inf")
    assert publisher.frontiers() == found
    assert not taken, "nothing is read again"
    publisher.publish(2, [], [Frontier("hourly", 0, 2, 7, 3, 1)])
    publisher._read_at = float("-inf")
    assert len(publisher.frontiers()) == 3
    assert len(taken) == 1
    publisher.close()


def test_foreign_records_in_the_sealed_topic_are_passed_over(connection: Connection, topic: str, kafka: str) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka)
    keys = (None, b"x", b"sealed/a/b", b"frontier/a/0/0", b"\xff", b"sealed/a/0/x/1/0/00/00/0/1")
    for key in keys:
        producer.send(topic, key=key, value=b"{}", partition=0)
    producer.flush()
    producer.close()
    source = KafkaSealedSource(connection, topic)
    assert list(source.frontiers()) == []
    assert bodies(source, "a") == []
    source.close()


def test_refused_records_say_where_they_are_and_keep_what_they_came_with(
    connection: Connection, topic: str, kafka: str
) -> None:
    forged = (("__sketchstream.errors.offset", b"forged"), ("__sketchstream.errors.x", b"forged"))
    sink = KafkaSink(connection, "events", late_topic=topic, dead_letter_topic="")
    assert sink.takes("late")
    assert sink.takes("future")
    assert not sink.takes("undecodable")
    sink.send(2, "late", RawRecord(7, 123, None, None), "window closed")
    sink.send(2, "future", RawRecord(8, 123, b"user", b"secret", (("h", b"v"), *forged, ("h", b"w"))))
    sink.send(2, "future", RawRecord(9, 123, b"tombstone", None))
    sink.send(2, "undecodable", RawRecord(10, 123, b"nowhere", b"to go"))
    sink.flush(2)
    sink.close()
    found = [r for p in range(3) for r in records(kafka, topic, p)]
    bare = next(r for r in found if r.key == b"events/2/7")
    full = next(r for r in found if r.key == b"user")
    assert {(r.key, r.value) for r in found} == {(b"events/2/7", b""), (b"user", b"secret"), (b"tombstone", None)}
    assert full.headers[:2] == [("h", b"v"), ("h", b"w")]
    assert b"forged" not in [value for _, value in full.headers]
    assert dict(full.headers)["__sketchstream.errors.offset"] == b"8"
    assert dict(full.headers)["__sketchstream.errors.left.out"] == b"headers"
    headers = dict(bare.headers)
    assert headers["__sketchstream.errors.offset"] == b"7"
    assert headers["__sketchstream.errors.partition"] == b"2"
    assert headers["__sketchstream.errors.topic"] == b"events"
    assert headers["__sketchstream.errors.reason"] == b"late"
    assert headers["__sketchstream.errors.message"] == b"window closed"


def test_a_refused_record_that_is_too_large_for_its_topic_goes_without_its_contents(
    connection: Connection, kafka: str, topic_name: Callable[[str], str]
) -> None:
    name = topic_name("letters")
    with connection.admin.client("creating") as admin:
        admin.create_topics(
            {name: {"num_partitions": 1, "replication_factor": 1, "configs": {"max.message.bytes": "4000"}}}
        )
        admin.wait_for_topics([name])
    sink = KafkaSink(connection, "events", dead_letter_topic=name)
    sizes = [100, 8000, 100, 5 << 20, 200]  # the fourth is too large for the client itself
    for offset, size in enumerate(sizes):
        sink.send(0, "undecodable", RawRecord(offset, 1, b"k%d" % offset, b"x" * size))
    sink.flush(0, 30.0)
    assert sink._pending == {}
    sink.close()
    found = {dict(r.headers)["__sketchstream.errors.offset"]: r for r in records(kafka, name)}
    assert [found[b"%d" % n].key for n in range(5)] == [b"k0", b"events/0/1", b"k2", b"events/0/3", b"k4"]
    assert [len(found[b"%d" % n].value) for n in range(5)] == [100, 0, 100, 0, 200]
    assert dict(found[b"1"].headers)["__sketchstream.errors.left.out"] == b"key, value, headers"


def test_refused_records_that_cannot_be_acknowledged_stop_the_snapshot_and_are_kept(connection: Connection) -> None:
    sink = KafkaSink(connection, "events", dead_letter_topic="no-such-topic")
    began = time.monotonic()
    for offset in range(200):
        sink.send(0, "undecodable", RawRecord(offset, 1, None, b"x"))
    sink.send(1, "undecodable", RawRecord(7, 1, None, b"y"))
    assert sink._outlet._producer is None, "sending only queues: nothing of Kafka is asked on the worker's thread"
    sink._outlet._more = {"max_block_ms": 500}
    with pytest.raises(BrokerError):
        sink.flush(0, 2.0)
    for partition in (0, 1):  # the topic was away a moment ago: nobody waits for it again so soon
        with pytest.raises(BrokerError, match="a moment ago"):
            sink.flush(partition, 2.0)
    assert {p: len(letters) for p, letters in sink._pending.items()} == {0: 200, 1: 1}
    sink.flush(2)
    sink.forget(0)
    assert list(sink._pending) == [1]
    assert time.monotonic() - began < 60
    sink.close()


def test_a_partition_that_was_added_a_moment_ago_is_published_to(connection: Connection, topic: str) -> None:
    """The producer has heard of three partitions, and asks again after half a minute only."""
    publisher = KafkaPublisher(connection, topic)
    publisher.publish(0, [entry(0)], [])
    connection.admin.grow(topic, 5)
    publisher.publish(4, [entry(4)], [Frontier("hourly", 0, 4, 3_600_000, 5, 1)])
    with pytest.raises(BrokerError, match="has no partition 7"):
        client.know_partition(publisher._outlet.producer(), topic, 7, timeout_s=0.3)
    publisher.close()
    source = KafkaSealedSource(connection, topic)
    assert [one.partition for one in source.frontiers()] == [4]
    source.close()


def test_a_partition_waits_for_its_own_refused_records_while_another_sends(
    connection: Connection, topic: str, kafka: str
) -> None:
    """A flush that finds another one under way must not return before its own letters are acknowledged."""
    sink = KafkaSink(connection, "events", dead_letter_topic=topic)
    reached, go_on = threading.Event(), threading.Event()
    deliver = sink._deliver

    def held(letters: Sequence[Any], deadline: float) -> None:
        reached.set()
        assert go_on.wait(30)
        deliver(letters, deadline)

    sink._deliver = held  # type: ignore[method-assign]
    sink.send(0, "undecodable", RawRecord(1, 1, b"zero", None))
    sink.send(1, "undecodable", RawRecord(2, 1, b"one", None))
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(sink.flush, 0)
        assert reached.wait(30)
        second = threads.submit(sink.flush, 1)
        time.sleep(0.2)
        assert not second.done()
        go_on.set()
        first.result(30)
        second.result(30)
    assert {r.key for p in range(3) for r in records(kafka, topic, p)} == {b"zero", b"one"}
    sink.close()


def test_keys_name_bodies_and_frontiers() -> None:
    (key, value, _), *others = list(entry_records(entry(3, b"x")))
    assert not others
    named = read_key(key)
    assert named is not None
    body = named.body
    assert body is not None
    assert (body.sketch, body.partition, body.count, named.number, value) == ("hourly", 3, 1, 0, b"x")
    assert named[:3] == ("hourly", body.revision, 3)
    assert body.digest == sealed.digest_of(b"x")
    assert read_key(frontier_record(Frontier("a.b", 1, 2, 3, 4, 5))[0]) == ("a.b", 1, 2, None, 0)


@pytest.mark.parametrize(
    ("place", "bad"),
    [
        *((place, bad) for place in (2, 3, 4, 5, 8, 9) for bad in ("9" * 30, "1e9", "9" * 5000)),
        *((6, bad) for bad in ("zz", "00", "9" * 5000)),
        *((place, "-1") for place in (8, 9)),
        (8, "1"),
        (9, "0"),
    ],
)
def test_keys_that_nobody_writes_are_passed_over(place: int, bad: str) -> None:
    parts = next(iter(entry_records(entry(3, b"x"))))[0].decode().split("/")
    parts[place] = bad
    assert read_key("/".join(parts).encode()) is None


@pytest.mark.parametrize(
    "value", ["[" * 100_000, "{", "[]", "null", '{"sequence":1e999}', f'{{"sequence":{"9" * 40}}}']
)
def test_values_that_are_no_frontier_are_passed_over(value: str) -> None:
    said = Frontier("a.b", 1, 2, 3, 4, 5)
    whole = frontier_record(said)[1].decode()
    bad = whole[:-1] + "," + value[1:] if value.startswith('{"') else value
    assert sealed.read_frontier(("a.b", 1, 2), bad.encode()) is None
    assert sealed.read_frontier(("a.b", 1, 2), whole.encode()) == said


HOUR = 3_600_000
DAYS = 40


@pytest.fixture
def hours(connection: Connection, topic: str) -> list[SealedEntry]:
    """Forty days of hourly windows in three partitions; each frontier comes after its window."""
    publisher, made = KafkaPublisher(connection, topic), []
    for day in range(DAYS):
        for partition in range(3):
            entries = [entry(partition, b"%d" % hour, hour * HOUR) for hour in range(24 * day, 24 * day + 24)]
            through = (24 * day + 24) * HOUR
            publisher.publish(partition, entries, [Frontier("hourly", 0, partition, through, 3, day)])
            made += entries
    publisher.close()
    return made


def test_a_range_of_time_is_sought_and_reading_ends_behind_it(
    connection: Connection, topic: str, hours: list[SealedEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(sealed, "read_key", lambda key: seen.append(key) or read_key(key))
    source = KafkaSealedSource(connection, topic)
    first = (24 * 20 + 5) * HOUR
    assert bodies(source, "hourly", first, first + HOUR) == [
        one for one in hours if one.window == (first, first + HOUR)
    ]
    # the tails of three partitions, about a day of each, and what one fetch brings beyond
    assert len(seen) <= 3 * (sealed.TAIL + 24 + 2 + 500), len(seen)
    assert len(hours) == 3 * 24 * DAYS
    whole = bodies(source, "hourly")
    assert [one.window for one in whole] == sorted(one.window for one in hours)
    assert {one.key for one in whole} == {one.key for one in hours}
    source.close()


def test_windows_are_given_while_the_topic_is_still_being_read(
    connection: Connection, topic: str, hours: list[SealedEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first window comes before the last one was read; bodies beyond the memory allowed are fetched when due."""
    for held in (sealed.HELD_BYTES, 20):
        monkeypatch.setattr(sealed, "HELD_BYTES", held)
        monkeypatch.setattr(sealed, "SOURCE_FETCH_BYTES", 2048)
        source = KafkaSealedSource(connection, topic)
        seen: list[int] = []
        advance = Log.batches

        def batches(*args: object, advance: object = advance, seen: list[int] = seen, **kwargs: object) -> object:
            for found, over in advance(*args, **kwargs):  # type: ignore[operator]
                seen.append(len(found))
                yield found, over

        monkeypatch.setattr(Log, "batches", batches)
        source.frontiers("hourly")
        seen.clear()
        first = next(one for one in source.read("hourly") if isinstance(one, SealedEntry))
        assert first.window == (0, HOUR)
        assert sum(seen) < len(hours) / 2
        if held == 20:
            some = bodies(source, "hourly", 0, 24 * HOUR)
            assert [(one.partition, one.body) for one in some] == [
                (partition, b"%d" % hour) for hour in range(24) for partition in range(3)
            ]
        source.close()


def test_what_was_published_again_later_is_still_an_incident(
    connection: Connection, topic: str, hours: list[SealedEntry]
) -> None:
    publisher = KafkaPublisher(connection, topic)
    publisher.publish(0, [entry(0, b"0", 0)], [])  # the same bytes: a retry
    source = KafkaSealedSource(connection, topic)
    assert len(bodies(source, "hourly")) == len(hours)
    other = KafkaPublisher(connection, topic)
    other.publish(0, [entry(0, b"something else", 0)], [])
    found = bodies(source, "hourly")
    assert len(found) == len(hours) + 1
    assert {one.body for one in found if one.key == "hourly/0/0/0"} == {b"0", b"something else"}
    for one in (publisher, other, source):
        one.close()


def test_deleted_records_make_windows_incomplete(
    connection: Connection, topic: str, hours: list[SealedEntry], kafka: str
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.delete_records({TopicPartition(topic, 1): 30})  # one day, its frontier, and some hours of the next day
    admin.close()
    source = KafkaSealedSource(connection, topic)
    found = list(source.read("hourly", 0, 48 * HOUR))
    said = [one for one in found if isinstance(one, Deleted)]
    assert [(one.sketch, one.partition) for one in said] == [("hourly", 1)]
    assert found.index(said[0]) < min(n for n, one in enumerate(found) if isinstance(one, SealedEntry))
    gone = {one.window for one in hours} - {
        one.window for one in found if isinstance(one, SealedEntry) and one.partition == 1
    }
    lost = {window for window in gone if window[1] <= 48 * HOUR}
    assert lost
    assert all(window[1] <= said[0].through for window in lost)
    assert not any(isinstance(one, Deleted) for one in source.read("hourly", 24 * 20 * HOUR))
    source.close()


def test_another_reading_may_begin_before_the_first_one_has_ended(
    connection: Connection, topic: str, hours: list[SealedEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `profile --all` does: windows come one by one, and each asks for the ledger of its time."""
    monkeypatch.setattr(sealed, "SOURCE_FETCH_BYTES", 2048)
    source = KafkaSealedSource(connection, topic)
    found = []
    for one in source.read("hourly"):
        if isinstance(one, SealedEntry):
            found.append(one)
            if len(found) % 500 == 1:
                near = bodies(source, None, one.window[0], one.window[1] + 4 * HOUR)
                assert len(near) == len([e for e in hours if one.window[0] <= e.window[0] <= one.window[0] + 4 * HOUR])
                source.frontiers()
    assert len(found) == len(hours)
    source.close()
