"""The consumer source on a real broker: positions are ours, errors are of one partition, both paths are the same."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import MemberToRemove
from kafka.errors import CorruptRecordError, LogTruncationError, OffsetOutOfRangeError, TopicAlreadyExistsError

from helpers.kafka.app import wait_forgotten
from sketchstream.errors import BrokerError, ConfigError, DataLossError
from sketchstream.stream.interfaces import Assigned, Chunk, PartitionError, Revoked, SourceEvent
from sketchstream_connectors.decode.decoder import Decoder
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.input import source as kafka_source
from sketchstream_connectors.kafka.input.source import KafkaSource

QUICK = {"session.timeout.ms": 3000, "heartbeat.interval.ms": 500, "max.poll.interval.ms": 5000}


@pytest.fixture
def topic(kafka: str, topic_name: Callable[[str], str]) -> str:
    name = topic_name("input")
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.create_topics({name: {"num_partitions": 4, "replication_factor": 1}})
    admin.wait_for_topics([name])
    admin.close()
    return name


@pytest.fixture
def opened(kafka: str, topic: str, topic_name: Callable[[str], str]) -> Iterator[Callable[..., KafkaSource]]:
    group, made = topic_name("group"), []

    def open_source(path: str = "auto", **options: object) -> KafkaSource:
        connection = Connection({"bootstrap.servers": kafka, "group.id": group, **QUICK, **options})
        source = KafkaSource(connection, topic, Decoder(format="value").decode, path=path)
        made.append(source)
        return source

    yield open_source
    for source in made:
        source.close()


def fill(kafka: str, topic: str, partition: int, values: range, transactional: str | None = None, abort: bool = False):
    producer = KafkaProducer(bootstrap_servers=kafka, transactional_id=transactional)
    if transactional:
        producer.init_transactions()
        producer.begin_transaction()
    for i in values:
        producer.send(topic, value=b"%d" % i, partition=partition)
    producer.flush()
    if transactional:
        (producer.abort_transaction if abort else producer.commit_transaction)()
    producer.close()


def poll_until(
    source: KafkaSource, enough: Callable[[list[SourceEvent]], bool], seconds: float = 40
) -> list[SourceEvent]:
    events: list[SourceEvent] = []
    deadline = time.monotonic() + seconds
    while not enough(events):
        assert time.monotonic() < deadline, events
        events += source.poll(0.2)
    return events


def assigned(events: list[SourceEvent]) -> set[int]:
    now: set[int] = set()
    for event in events:
        if isinstance(event, Assigned):
            now |= set(event.partitions)
        elif isinstance(event, Revoked):
            now -= set(event.partitions)
    return now


def chunks(events: list[SourceEvent], partition: int) -> list[Chunk]:
    return [event for event in events if isinstance(event, Chunk) and event.partition == partition]


def reached(partition: int, position: int) -> Callable[[list[SourceEvent]], bool]:
    return lambda events: any(c.next_position >= position for c in chunks(events, partition))


@pytest.mark.parametrize("path", ["raw", "stock"])
def test_partitions_are_silent_until_resumed_and_begin_where_they_are_sought(
    opened: Callable[..., KafkaSource], kafka: str, topic: str, path: str
) -> None:
    fill(kafka, topic, 0, range(1000))
    source = opened(path)
    events = poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    for _ in range(5):
        events += source.poll(0.1)
    assert not [event for event in events if isinstance(event, Chunk)]
    source.seek(0, 250)
    source.resume(0)
    found = chunks(poll_until(source, reached(0, 1000)), 0)
    assert found[0].from_position == 250
    assert all(a.next_position == b.from_position for a, b in itertools.pairwise(found))
    assert np.array_equal(np.concatenate([c.offsets for c in found]), np.arange(250, 1000))
    assert found[0].raw is not None
    assert found[0].raw(0).value == b"250"
    source.seek(0, 10)
    again = chunks(poll_until(source, reached(0, 1000)), 0)
    assert again[0].from_position == 10


@pytest.mark.parametrize("path", ["raw", "stock"])
def test_positions_pass_over_control_records_and_aborted_transactions(
    opened: Callable[..., KafkaSource], kafka: str, topic: str, path: str
) -> None:
    fill(kafka, topic, 1, range(10), "t-" + topic)
    fill(kafka, topic, 1, range(100, 120), "t-" + topic, abort=True)
    fill(kafka, topic, 1, range(10, 20), "t-" + topic)
    source = opened(path)
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    source.seek(1, 0)
    source.resume(1)
    found = chunks(poll_until(source, reached(1, 43)), 1)
    assert sum(len(c.offsets) for c in found) == 20
    assert found[-1].next_position == 43 == source.high_watermarks([1])[1]
    assert [c.raw(i).value for c in found for i in range(len(c.offsets)) if c.raw] == [b"%d" % i for i in range(20)]


def test_a_partition_kept_over_a_rebalance_goes_on_where_it_was(
    opened: Callable[..., KafkaSource], kafka: str, topic: str
) -> None:
    for p in range(4):
        fill(kafka, topic, p, range(100))
    first = opened()
    events = poll_until(first, lambda seen: assigned(seen) == {0, 1, 2, 3})
    for p in range(4):
        first.seek(p, 0)
        first.resume(p)
    events += poll_until(first, lambda seen: all(reached(p, 100)(seen) for p in range(4)))
    first.pause(0)
    second = opened()
    both: dict[str, list[SourceEvent]] = {"first": events, "second": []}
    deadline = time.monotonic() + 40
    while len(assigned(both["first"])) != 2 or len(assigned(both["second"])) != 2:
        assert time.monotonic() < deadline
        both["first"] += first.poll(0.1)
        both["second"] += second.poll(0.1)
    assert assigned(both["first"]) | assigned(both["second"]) == {0, 1, 2, 3}
    for p in range(4):
        fill(kafka, topic, p, range(100, 150))
    kept = assigned(both["first"]) - {0}
    new = poll_until(first, lambda seen: all(reached(p, 150)(seen) for p in kept))
    for p in kept:
        assert chunks(new, p)[0].from_position == 100
    assert not chunks(new, 0)
    moved = sorted(assigned(both["second"]))
    assert not [event for event in both["second"] if isinstance(event, Chunk)]
    second.seek(moved[0], 42)
    second.resume(moved[0])
    assert chunks(poll_until(second, reached(moved[0], 150)), moved[0])[0].from_position == 42


def test_a_member_that_was_evicted_is_told_that_its_partitions_moved(
    opened: Callable[..., KafkaSource], kafka: str, topic: str
) -> None:
    source = opened(**{"session.timeout.ms": 2000, "heartbeat.interval.ms": 400, "max.poll.interval.ms": 2500})
    events = poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    for p in range(4):
        source.seek(p, 0)
        source.resume(p)
    source.poll(0.1)
    wait_forgotten(source._connection)  # beyond max.poll.interval: the group goes on without it
    events = poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    assert isinstance(events[0], Revoked)
    assert events[0].partitions == (0, 1, 2, 3)
    assert not [event for event in events if isinstance(event, Chunk)]


def test_a_trimmed_partition_halts_alone(opened: Callable[..., KafkaSource], kafka: str, topic: str) -> None:
    for p in (0, 1):
        fill(kafka, topic, p, range(100))
    source = opened()
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    source._admin.delete_before(topic, {0: 50})
    assert source.beginning(0) == 50
    for p in (0, 1):
        source.seek(p, 10)
        source.resume(p)
    events = poll_until(source, reached(1, 100))
    events += poll_until(source, lambda seen: any(isinstance(e, PartitionError) for e in [*events, *seen]))
    errors = [event for event in events if isinstance(event, PartitionError)]
    assert [(e.partition, type(e.error)) for e in errors] == [(0, DataLossError)]
    assert "position 10" in str(errors[0].error)
    assert "reset" in str(errors[0].error)
    fill(kafka, topic, 1, range(100, 120))
    more = poll_until(source, reached(1, 120))
    assert not [event for event in more if isinstance(event, PartitionError)]


def test_a_replica_that_lags_does_not_halt_a_partition_whose_position_exists(
    opened: Callable[..., KafkaSource], kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(kafka, topic, 1, range(100))
    source = opened()
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    source.seek(1, 40)
    source.resume(1)
    offsets, ends, poll = source._admin.offsets, [30, 30, 100], source.consumer.poll

    def lagging(name: str, partitions: list[int], which: str) -> dict[int, int]:
        if which == "latest" and len(ends) > 1:
            return {1: ends.pop(0)}
        return offsets(name, partitions, which)

    def refused(**_: object) -> object:
        monkeypatch.setattr(source.consumer, "poll", poll)
        raise OffsetOutOfRangeError({source._topic_partition(1): 40})

    monkeypatch.setattr(source._admin, "offsets", lagging)
    monkeypatch.setattr(source.consumer, "poll", refused)
    events = poll_until(source, reached(1, 100))
    assert not [event for event in events if isinstance(event, PartitionError)]
    assert chunks(events, 1)[0].from_position == 40
    assert ends == [100]


def test_corrupt_batches_are_fetched_again_before_the_partition_halts(
    opened: Callable[..., KafkaSource], kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = opened()
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    source.seek(2, 0)
    source.resume(2)
    poll = source.consumer.poll

    def broken(**_: object) -> object:
        msg = f"Record batch for partition TopicPartition(topic={topic!r}, partition=2) at offset 0 failed crc check"
        raise CorruptRecordError(msg)

    monkeypatch.setattr(source.consumer, "poll", broken)
    for _ in range(3):
        assert source.poll(0.1) == []
    (event,) = source.poll(0.1)
    assert isinstance(event, PartitionError)
    assert event.partition == 2
    assert isinstance(event.error, DataLossError)
    monkeypatch.setattr(source.consumer, "poll", poll)


def test_a_truncated_log_halts_its_partition(
    opened: Callable[..., KafkaSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = opened()
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    error = LogTruncationError({source._topic_partition(3): None})
    error.divergent_offsets = {source._topic_partition(3): None}

    def truncated(**_: object) -> object:
        raise error

    monkeypatch.setattr(source.consumer, "poll", truncated)
    (event,) = source.poll(0.1)
    assert isinstance(event, PartitionError)
    assert event.partition == 3
    assert "truncated" in str(event.error)


def test_an_error_says_where_reading_could_go_on(
    opened: Callable[..., KafkaSource], kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "TRUNCATED_AFTER_S", 1.0)
    for p in (0, 1):
        fill(kafka, topic, p, range(100))
    source = opened()
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    source._admin.delete_before(topic, {0: 50})
    for p, position in ((0, 10), (1, 140)):  # one trimmed, one beyond the end
        source.seek(p, position)
        source.resume(p)
    events = poll_until(source, lambda seen: sum(isinstance(e, PartitionError) for e in seen) == 2)
    found = {e.partition: (e.resume_at, e.topic_recreated) for e in events if isinstance(e, PartitionError)}
    assert found == {0: (50, False), 1: (100, False)}
    for p, position in ((0, 50), (1, 100)):
        source.seek(p, position)
        source.resume(p)
    fill(kafka, topic, 1, range(100, 110))
    events = poll_until(source, lambda seen: reached(0, 100)(seen) and reached(1, 110)(seen))
    assert [chunks(events, p)[0].from_position for p in (0, 1)] == [50, 100]


def test_a_topic_that_is_made_again_is_read_from_its_own_beginning(
    opened: Callable[..., KafkaSource], kafka: str, topic: str
) -> None:
    for p in range(4):
        fill(kafka, topic, p, range(100))
    source = opened(**{"metadata.max.age.ms": 1000})
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    for p in range(4):
        source.seek(p, 0)
        source.resume(p)
    poll_until(source, lambda seen: all(reached(p, 100)(seen) for p in range(4)))
    make_again(kafka, topic, 4)
    for p in range(4):
        fill(kafka, topic, p, range(7))
    source._watch._check_topic()
    events = poll_until(source, lambda seen: any(isinstance(e, PartitionError) for e in seen), 60)
    errors = [event for event in events if isinstance(event, PartitionError)]
    assert all(event.topic_recreated and event.resume_at is None for event in errors)
    assert "made again" in str(errors[0].error)
    events = poll_until(source, lambda seen: source._assigned_partitions() == {0, 1, 2, 3})
    for p in range(4):
        source.seek(p, 0)
        source.resume(p)
    events = poll_until(source, lambda seen: all(reached(p, 7)(seen) for p in range(4)))
    assert not [event for event in events if isinstance(event, PartitionError)]
    assert [chunks(events, p)[0].from_position for p in range(4)] == [0, 0, 0, 0]


def make_again(kafka: str, topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.delete_topics([topic])
    deadline = time.monotonic() + 20
    while True:
        try:
            admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}})
            break
        except TopicAlreadyExistsError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    admin.wait_for_topics([topic])
    admin.close()


def test_a_topic_made_again_halts_every_partition(opened: Callable[..., KafkaSource], kafka: str, topic: str) -> None:
    source = opened()
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    source.topic_id = "another"
    source._watch._check_topic()
    errors = [event for event in source.poll(0.1) if isinstance(event, PartitionError)]
    assert sorted(event.partition for event in errors) == [0, 1, 2, 3]
    assert "made again" in str(errors[0].error)


def test_a_consumer_that_stalls_below_the_last_stable_offset_is_replaced(
    opened: Callable[..., KafkaSource], kafka: str, topic: str
) -> None:
    fill(kafka, topic, 0, range(10))
    source = opened()
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    source.seek(0, 5)
    source.resume(0)
    old = source.consumer
    for _ in range(3):  # no poll in between, as if the client never fetched the node again
        source._watch._progress[0] = time.monotonic() - 100
        source._watch._check_progress()
    assert source._recreate is None, "the records have been seen to wait for a moment only"
    position, since = source._watch._suspect[0]
    source._watch._suspect[0] = position - 1, since - 100
    source._watch._check_progress()
    assert source._recreate is None, "it was at another position then"
    source._watch._suspect[0] = position, since - 100
    source._watch._check_progress()
    events = source.poll(0.1)
    assert source.consumer is not old
    assert events[0] == Revoked((0, 1, 2, 3))
    poll_until(source, lambda seen: assigned(events + seen) == {0, 1, 2, 3})


def test_an_open_transaction_is_no_stall(opened: Callable[..., KafkaSource], kafka: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka, transactional_id="open-" + topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, value=b"x", partition=0).get(timeout=10)
    source = opened()
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    source.seek(0, 0)
    source.resume(0)
    for _ in range(3):
        source.poll(0.1)
        source._watch._progress[0] = time.monotonic() - 100
        source._watch._check_progress()
    assert source._recreate is None
    assert source.high_watermarks([0]) == {0: 1}  # and the partition is not at its end: it is not idle
    producer.abort_transaction()
    producer.close()


def test_partitions_that_nobody_owns_make_one_member_join_anew(
    opened: Callable[..., KafkaSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = opened()
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    source._watch._check_owners()
    source._watch._check_owners()
    assert source._recreate is None
    described = KafkaAdminClient.describe_groups

    def forgetful(client: KafkaAdminClient, groups: list[str]) -> dict[str, object]:
        found = described(client, groups)
        for group in found.values():
            for member in group["members"]:
                member["member_assignment"] = {"assigned_partitions": []}
        return found

    monkeypatch.setattr(KafkaAdminClient, "describe_groups", forgetful)
    source._watch._check_owners()
    assert source._recreate is None  # one look may fall into a rebalance
    source._watch._check_owners()
    monkeypatch.undo()
    old = source.consumer
    events = source.poll(0.1)
    assert source.consumer is not old
    poll_until(source, lambda seen: assigned(events + seen) == {0, 1, 2, 3})


def test_new_partitions_are_seen(opened: Callable[..., KafkaSource], topic: str) -> None:
    source = opened(**{"metadata.max.age.ms": 1000})
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    source._admin.grow(topic, 6)
    events = poll_until(source, lambda seen: {4, 5} <= assigned(seen) | set())
    assert {4, 5} <= assigned(events)
    assert source.partition_count(fresh=True) == 6


def test_a_leader_whose_polls_are_short_takes_up_new_partitions(opened: Callable[..., KafkaSource], topic: str) -> None:
    """Each poll ends before the brokers answer; a join that only new partitions asked for must not be forgotten."""
    source = opened(**{"metadata.max.age.ms": 1000})
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    for partitions in (6, 8, 10):
        source._admin.grow(topic, partitions)
        events: list[SourceEvent] = []
        deadline = time.monotonic() + 25
        while not {partitions - 2, partitions - 1} <= assigned(events):
            assert time.monotonic() < deadline, events
            events += source.poll(0.002)
    since = time.monotonic()
    while not source.confirmed(since):
        assert time.monotonic() < since + 30, "it sends no heartbeats"
        source.poll(0.1)


def test_a_missing_topic_and_a_dead_broker_are_said_so(kafka: str) -> None:
    decode, threads = Decoder("value").decode, threading.active_count()
    for address, error in ((kafka, ConfigError), ("127.0.0.1:9", BrokerError)):
        connection = Connection({"bootstrap.servers": address, "group.id": "g"})
        with pytest.raises(error, match=r"does not exist|connecting to the cluster"):
            KafkaSource(connection, "no-such", decode)
        connection.close()
    assert threading.active_count() <= threads


def test_static_members_leave_only_when_asked(opened: Callable[..., KafkaSource], kafka: str, topic: str) -> None:
    for leave in (False, True):
        source = opened(**{"group.instance.id": "pod-0", "session.timeout.ms": 30_000})
        poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
        group = source._connection.group
        source.close(leave=leave)
        admin = KafkaAdminClient(bootstrap_servers=kafka)
        members = admin.describe_groups([group])[group]["members"]
        admin.close()
        assert len(members) == (0 if leave else 1)


def test_threads_end_with_the_source(opened: Callable[..., KafkaSource]) -> None:
    before = threading.active_count()
    source = opened()
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    source.close()
    source._connection.close()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before


def test_a_member_is_confirmed_by_heartbeats_that_are_answered_and_not_when_it_was_evicted(
    opened: Callable[..., KafkaSource],
) -> None:
    """Until then a worker whose state was dropped takes nothing: another one may own its partitions."""
    source = opened()
    poll_until(source, lambda seen: assigned(seen) == {0, 1, 2, 3})
    assert source.joined
    since = time.monotonic()
    assert not source.confirmed(since)
    deadline = since + 30
    while not source.confirmed(since):
        assert time.monotonic() < deadline
        source.poll(0.1)
    member = source.group_metadata()
    with source._connection.admin.client("evicting") as admin:
        admin.remove_group_members(member.group_id, [MemberToRemove(member_id=member.member_id)])
    since = time.monotonic()
    for _ in range(15):  # the client's own thread sends heartbeats; nobody polls, so nobody joins anew
        time.sleep(0.1)
        assert not source.confirmed(since)
    while not source.confirmed(since):
        assert time.monotonic() < deadline + 30
        source.poll(0.1)
