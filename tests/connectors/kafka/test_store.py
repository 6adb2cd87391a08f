"""The state store on a real broker: atomic, fenced, encrypted, and never a cold start by inference."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import pytest
from kafka import ConsumerGroupMetadata, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from helpers.kafka.devbroker import DevCluster
from sketchstream.errors import BrokerError, ConfigError, DataLossError, FencedError
from sketchstream.stream.interfaces import Fresh, Frontier, Restored, Snapshot
from sketchstream_connectors.kafka.cluster import topics
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.topics import transactional_id
from sketchstream_connectors.kafka.publishing.publisher import KafkaPublisher
from sketchstream_connectors.kafka.state import blobs
from sketchstream_connectors.kafka.state.pointer import Pointer
from sketchstream_connectors.kafka.state.recover import reset
from sketchstream_connectors.kafka.state.store import KafkaStore

SECRET = b"marked-state-that-must-not-be-readable"


class Member:
    """A worker that is in no group: fencing must not need one."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.epochs: dict[int, int] = {}

    def group_metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self.group, -1, "", None)

    def epoch(self, partition: int) -> int:
        return self.epochs.get(partition, -1)

    def expect_epoch(self, partition: int, epoch: int) -> None:
        self.epochs[partition] = epoch

    def mark_fenced(self, error: FencedError) -> None:
        raise AssertionError(error)


@dataclass
class App:
    """One application: its topics and as many stores (workers) as a test wants."""

    bootstrap: str
    group: str
    topic: str
    stores: list[KafkaStore]

    @cached_property
    def connection(self) -> Connection:
        return Connection({"bootstrap.servers": self.bootstrap, "group.id": self.group})

    @property
    def names(self) -> topics.TopicNames:
        return topics.TopicNames(self.group, self.topic, sealed=f"{self.group}.sealed")

    def store(self, **options: object) -> KafkaStore:
        store = KafkaStore(self.connection, self.topic, Member(self.group), sealed_topic=self.names.sealed, **options)
        self.stores.append(store)
        return store

    def fill(self, count: int = 100, partition: int = 0) -> None:
        producer = KafkaProducer(bootstrap_servers=self.bootstrap)
        for i in range(count):
            producer.send(self.topic, value=b"%d" % i, partition=partition)
        producer.flush()
        producer.close()

    def admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.bootstrap)

    def state_records(self, partition: int = 0, isolation: str = "read_uncommitted") -> list[tuple[bytes, bytes]]:
        tp = TopicPartition(self.names.state, partition)
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, isolation_level=isolation)
        consumer.assign([tp])
        consumer.seek_to_beginning(tp)
        end = consumer.end_offsets([tp])[tp]
        found = []
        while consumer.position(tp) < end:
            found += [(r.key, r.value) for r in consumer.poll(timeout_ms=500).get(tp, [])]
        consumer.close()
        return found

    def committed(self, partition: int = 0) -> OffsetAndMetadata | None:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=self.group, isolation_level="read_committed"
        )
        try:
            return consumer.committed(TopicPartition(self.topic, partition), metadata=True)
        finally:
            consumer.close()


@pytest.fixture
def app(kafka: str, topic_name: Callable[[str], str]) -> Iterator[App]:
    yield from opened(kafka, topic_name)


@pytest.fixture
def brisk(own_broker: DevCluster, topic_name: Callable[[str], str]) -> Iterator[App]:
    """On a broker that looks for old data twice a second."""
    yield from opened(own_broker.bootstrap, topic_name)


def opened(bootstrap: str, topic_name: Callable[[str], str]) -> Iterator[App]:
    group, topic = topic_name("group"), topic_name("events")
    made = App(bootstrap, group, topic, [])
    admin = made.admin()
    admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
    admin.wait_for_topics([topic])
    admin.close()
    topics.create(made.connection, made.names)
    yield made
    for store in made.stores:
        store.close()
    made.connection.close()


def snapshot(position: int, brought: dict[str, bytes], keep: frozenset[str] = frozenset(), **manifest: int) -> Snapshot:
    return Snapshot(0, position, {"windows": sorted([*brought, *keep]), **manifest}, brought, keep)


def test_a_first_take_starts_at_the_beginning_and_leaves_a_pointer(app: App) -> None:
    app.fill()
    assert app.store().take(0) == Fresh(0, 0)
    found = app.committed()
    assert found is not None
    assert found.offset == 0
    assert Pointer.from_text(found.metadata) is not None
    assert app.state_records() == []


def test_what_was_committed_is_what_a_successor_takes(app: App) -> None:
    app.fill()
    first = app.store()
    first.take(0)
    big = random.Random(1).randbytes(1_700_000)
    first.commit(0, snapshot(40, {"a": b"one", "b": big}, watermark=7))
    first.commit(0, snapshot(55, {"c": b"three"}, frozenset({"b"}), watermark=9))
    found = app.store().take(0)
    assert isinstance(found, Restored)
    assert found.position == 55
    assert found.manifest == {"windows": ["b", "c"], "watermark": 9}
    assert found.blobs == {"b": big, "c": b"three"}


def test_thousands_of_blobs_are_read_in_one_pass(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition with thousands of open windows, whose snapshots rewrite some of them: wherever they lie."""
    app.fill()
    draw, store = random.Random(5), app.store()
    store.take(0)
    live: dict[str, bytes] = {}
    for position in range(1, 6):
        kept = frozenset(name for name in live if draw.random() < 0.9)
        number = 600 if position == 1 else 90
        sizes = [draw.choice([0, 1, 3_000, 9_000]) for _ in range(number)] + [draw.randrange(1, 3) * blobs.CHUNK_BYTES]
        brought = {f"w{position}-{n}": draw.randbytes(size) for n, size in enumerate(sizes)}
        store.commit(0, snapshot(position, brought, kept))
        live = {name: live[name] for name in kept} | brought
    seeks: list[int] = []
    seek = KafkaConsumer.seek
    monkeypatch.setattr(KafkaConsumer, "seek", lambda self, tp, at: (seeks.append(at), seek(self, tp, at)))
    found = app.store().take(0)
    assert isinstance(found, Restored)
    assert {name: bytes(data) for name, data in found.blobs.items()} == live
    assert 2 <= len(seeks) < 30, "to go to each blob would fetch the same megabytes again for each"
    empty = [data for data in found.blobs.values() if len(data) < 4]
    assert max(len(data.obj) for data in empty) < 1000, "a small blob takes no room for a large one"


def test_a_commit_tells_the_brokers_time(app: App) -> None:
    """From the state topic's append time; not where an older topic keeps the producer's own timestamps."""
    from kafka.admin import ConfigResource, ConfigResourceType

    app.fill()
    store = app.store()
    store.take(0)
    assert store.broker_time is None
    store.commit(0, snapshot(10, {"a": b"1"}))
    assert store.broker_time is not None
    ms, heard = store.broker_time
    assert abs(ms / 1000 - time.time()) < 30
    assert 0 <= time.monotonic() - heard < 30
    with app.connection.admin.client("changing the state topic") as client:
        kept = {"message.timestamp.type": "CreateTime"}
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, app.names.state, kept)])
    deadline = time.monotonic() + 20
    while not kept.items() <= app.connection.admin.configs(app.names.state).items():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    other = app.store()
    other.take(0)
    other.commit(0, snapshot(20, {"b": b"2"}))
    assert other.broker_time is None


def test_a_predecessor_is_fenced_for_ever(app: App) -> None:
    app.fill()
    old, new = app.store(), app.store()
    old.take(0)
    old.commit(0, snapshot(10, {"a": b"1"}))
    new.take(0)
    with pytest.raises(FencedError):
        old.commit(0, snapshot(20, {"b": b"2"}))
    new.commit(0, snapshot(30, {"c": b"3"}))
    with pytest.raises(FencedError):
        old.commit(0, snapshot(40, {"d": b"4"}))
    old.drop(0)
    taken = old.take(0)
    assert isinstance(taken, Restored)
    assert (taken.position, dict(taken.blobs)) == (30, {"c": b"3"})
    with pytest.raises(FencedError):
        new.commit(0, snapshot(50, {"e": b"5"}))


def test_evicted_and_back_with_old_state_is_fenced_though_the_other_worker_has_left(app: App) -> None:
    # A stalls, B takes p, commits and leaves, A goes on with its old memory.
    app.fill()
    a, b = app.store(), app.store()
    a.take(0)
    a.commit(0, snapshot(10, {"a": b"1"}))
    b.take(0)
    b.commit(0, snapshot(90, {"b": b"2"}))
    b.close()
    with pytest.raises(FencedError):
        a.commit(0, snapshot(60, {"stale": b"3"}))
    a.drop(0)
    taken = a.take(0)
    assert isinstance(taken, Restored)
    assert taken.position == 90


def test_a_transaction_left_open_is_ended_by_the_next_owner_and_never_seen(app: App) -> None:
    app.fill()
    first = app.store()
    first.take(0)
    first.commit(0, snapshot(10, {"a": b"1"}))
    fence = first._fences[0]
    fence.producer.begin_transaction()
    fence.producer.send(app.names.state, key=b"k", value=SECRET, partition=0).get(timeout=10)
    fence.producer.send_offsets_to_transaction(
        {TopicPartition(app.topic, 0): OffsetAndMetadata(77, "half", -1)},
        ConsumerGroupMetadata(app.group, -1, "", None),
    )
    taken = app.store().take(0)
    assert isinstance(taken, Restored)
    assert taken.position == 10


def test_nothing_readable_is_in_the_state_topic(app: App) -> None:
    app.fill()
    store = app.store()
    store.take(0)
    store.commit(0, snapshot(10, {"name": SECRET * 100}))
    records = app.state_records()
    assert records
    for key, value in records:
        assert SECRET not in key + value
        assert b"windows" not in value
    committed = app.committed()
    assert committed is not None
    assert len(committed.metadata) < 1024


def test_records_are_small_enough_for_managed_clusters(app: App) -> None:
    app.fill()
    store = app.store()
    store.take(0)
    store.commit(0, snapshot(10, {"a": bytes(3_000_000)}))
    assert max(len(key) + len(value) for key, value in app.state_records()) <= 512 * 1024


def test_superseded_snapshots_are_erased(app: App) -> None:
    app.fill()
    store = app.store()
    store.take(0)
    for position in range(10, 60, 10):
        store.commit(0, snapshot(position, {f"w{position}": b"x" * 1000}))
    store.close()
    assert len(app.state_records()) == 2  # one blob and one manifest


def test_a_clean_blob_that_holds_back_the_cut_is_written_again(app: App) -> None:
    app.fill()
    store = app.store(lag_bytes=20_000)
    store.take(0)
    store.commit(0, snapshot(10, {"clean": b"c" * 100, "w": b"x" * 9_000}))
    before = store._fences[0].places["clean"].offset
    for position in range(11, 16):
        store.commit(0, snapshot(position, {f"w{position}": b"x" * 9_000}, frozenset({"clean"})))
    assert store._fences[0].places["clean"].offset > before
    store.close()
    assert len(app.state_records()) <= 8
    taken = app.store().take(0)
    assert isinstance(taken, Restored)
    assert taken.blobs["clean"] == b"c" * 100


def test_what_a_silent_partition_superseded_stays_on_the_disk_until_its_snapshot_is_written_again(
    brisk: App, own_broker: DevCluster
) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType

    admin = brisk.admin()
    settings = {"segment.ms": "1000", "file.delete.delay.ms": "100"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, brisk.names.state, settings)])
    admin.close()
    brisk.fill()
    store = brisk.store(lag_s=1.0)
    assert store.rewrite_after_s == 6.0
    store.take(0)
    store.commit(0, snapshot(10, {"old": random.Random(1).randbytes(20_000)}))
    (superseded,) = {value[:64] for key, value in brisk.state_records() if key.endswith(b"old")}
    store.commit(0, snapshot(20, {"new": b"live"}))
    folder = own_broker.nodes[1].directory / "data" / f"{brisk.names.state}-0"

    def on_disk() -> bool:
        return any(superseded in path.read_bytes() for path in folder.glob("*.log*"))

    for _ in range(40):  # no reader finds it any more, and the disk has it after many rounds of the broker's cleaning
        time.sleep(0.1)
    assert not any(key.endswith(b"old") for key, _ in brisk.state_records())
    assert on_disk()
    store.commit(0, snapshot(20, {}, frozenset({"new"})))
    deadline = time.monotonic() + 20
    while on_disk():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    found = brisk.store().take(0)
    assert isinstance(found, Restored)
    assert (found.position, dict(found.blobs)) == (20, {"new": b"live"})


def test_a_kept_blob_that_nobody_brought_is_refused(app: App) -> None:
    app.fill()
    store = app.store()
    store.take(0)
    with pytest.raises(DataLossError, match="keeps 1 blobs"):
        store.commit(0, snapshot(10, {}, frozenset({"never"})))


def test_a_position_never_goes_back(app: App) -> None:
    app.fill()
    store = app.store()
    store.take(0)
    store.commit(0, snapshot(50, {"a": b"1"}))
    with pytest.raises(DataLossError, match="position back"):
        store.commit(0, snapshot(49, {"b": b"1"}))


def test_a_stranger_who_commits_in_the_group_halts_the_partition(app: App) -> None:
    app.fill()
    store = app.store()
    store.take(0)
    store.commit(0, snapshot(10, {"a": b"1"}))
    store.close()
    stranger = KafkaConsumer(bootstrap_servers=app.bootstrap, group_id=app.group)
    stranger.assign([TopicPartition(app.topic, 0)])
    stranger.commit({TopicPartition(app.topic, 0): OffsetAndMetadata(99, "", -1)})
    stranger.close()
    with pytest.raises(DataLossError, match=r"was not written by sketchstream.*reset"):
        app.store().take(0)


def test_deleted_group_offsets_halt_instead_of_starting_anew(app: App) -> None:
    app.fill()
    store = app.store()
    store.take(0)
    store.commit(0, snapshot(10, {"a": b"1"}))
    store.close()
    admin = app.admin()
    admin.delete_group_offsets(app.group, [TopicPartition(app.topic, 0)])
    admin.close()
    with pytest.raises(DataLossError, match=r"no committed offset, but .* holds snapshots"):
        app.store().take(0)


def test_sealed_sketches_are_traces_too(app: App) -> None:
    app.fill()
    producer = KafkaProducer(bootstrap_servers=app.bootstrap)
    producer.send(app.names.sealed, value=b"x", partition=0).get(timeout=10)
    producer.close()
    with pytest.raises(DataLossError, match="holds sealed sketches"):
        app.store().take(0)
    assert app.store().take(1) == Fresh(0, 0)


def test_a_recreated_topic_halts(app: App) -> None:
    app.fill(200)
    store = app.store()
    store.take(0)
    store.commit(0, snapshot(10, {"a": b"1"}))
    admin = app.admin()
    admin.delete_topics([app.topic])
    admin.close()
    for _ in range(100):
        if app.connection.admin.topic(app.topic) is None:
            break
    admin = app.admin()
    admin.create_topics({app.topic: {"num_partitions": 2, "replication_factor": 1}})
    admin.wait_for_topics([app.topic])
    admin.close()
    app.fill(200)
    store._admin._seen.clear()
    with pytest.raises(DataLossError, match=r"deleted and made again.*reset"):
        store.commit(0, snapshot(20, {"b": b"1"}))
    # The broker deletes the offsets of a deleted topic: what remains is the trace in the state topic.
    with pytest.raises(DataLossError, match="reset"):
        app.store().take(0)


def make_again(app: App) -> None:
    admin = app.admin()
    admin.delete_topics([app.topic])
    deadline = time.monotonic() + 20
    while app.connection.admin.topic(app.topic) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    admin.create_topics({app.topic: {"num_partitions": 2, "replication_factor": 1}})
    admin.wait_for_topics([app.topic])
    admin.close()


def test_where_losses_are_accepted_a_topic_made_again_begins_one_new_revision(app: App) -> None:
    app.fill(200)
    store = app.store(accept_loss=True)
    for partition in (0, 1):
        assert store.take(partition) == Fresh(0, 0)
    store.commit(0, snapshot(10, {"a": SECRET}))
    store.commit(1, replace(snapshot(0, {"b": SECRET}), partition=1))
    (superseded,) = {value for key, value in app.state_records() if key.endswith(b"a")}
    make_again(app)
    app.fill(5)
    store._admin._seen.clear()
    with pytest.raises(BrokerError, match="begun anew"):
        store.commit(0, snapshot(20, {"c": b"1"}))
    assert store.take(0) == Fresh(1, 0, partial=True)
    other = app.store(accept_loss=True)
    assert other.take(0) == Fresh(1, 0, partial=True), "once more, before the first snapshot"
    other.commit(0, replace(snapshot(5, {"d": b"new"}), revision=1))
    # another worker, later: the revision is the same though one partition has published under it
    publisher = KafkaPublisher(app.connection, app.names.sealed or "")
    publisher.publish(0, [], [Frontier("seen", 1, 0, 1, 2, 1)])
    publisher.close()
    assert app.store(accept_loss=True).take(1) == Fresh(1, 0, partial=True)
    found = app.store(accept_loss=True).take(0)
    assert isinstance(found, Restored)
    assert (found.position, dict(found.blobs)) == (5, {"d": b"new"})
    deadline = time.monotonic() + 20
    while superseded in [value for _, value in app.state_records()]:
        assert time.monotonic() < deadline, "the old topic's snapshot must not stay readable"
        time.sleep(0.2)


def test_pointers_of_another_cluster_halt(app: App) -> None:
    app.fill()
    store = app.store()
    store.take(0)
    store._admin._cluster_id = "another"
    store.commit(0, snapshot(10, {"a": b"1"}))
    for accept in (False, True):
        with pytest.raises(DataLossError, match="written in another cluster"):
            app.store(accept_loss=accept).take(0)


def test_deleted_offsets_of_the_same_topic_halt_whatever_is_accepted(app: App) -> None:
    app.fill()
    store = app.store(accept_loss=True)
    store.take(0)
    store.commit(0, snapshot(10, {"a": b"1"}))
    admin = app.admin()
    admin.delete_group_offsets(app.group, [TopicPartition(app.topic, 0)])
    admin.close()
    with pytest.raises(DataLossError, match="expired or were deleted"):
        app.store(accept_loss=True).take(0)


def test_a_new_partition_is_counted_under_the_revision_of_the_others(app: App) -> None:
    app.fill()
    app.store().take(0)
    reset(app.connection, app.names, to="beginning")
    store = app.store()
    assert store.take(0) == Fresh(1, 0)
    app.connection.admin.grow(app.topic, 3)
    assert store.take(2) == Fresh(1, 0)


def test_a_position_goes_back_only_where_the_log_was_cut(app: App) -> None:
    app.fill()
    store = app.store(accept_loss=True)
    store.take(0)
    store.commit(0, snapshot(50, {"a": b"1"}))
    store.commit(0, replace(snapshot(30, {}, frozenset({"a"})), rewound=True))
    found = app.store(accept_loss=True).take(0)
    assert isinstance(found, Restored)
    assert found.position == 30


def test_a_snapshot_that_is_gone_halts(app: App) -> None:
    app.fill()
    store = app.store()
    store.take(0)
    store.commit(0, snapshot(10, {"a": b"1"}))
    store.close()
    end = app.connection.admin.offsets(app.names.state, [0], "latest")[0]
    app.connection.admin.delete_before(app.names.state, {0: end})
    with pytest.raises(DataLossError, match="is gone"):
        app.store().take(0)


def test_a_new_partition_of_the_input_gets_its_place(app: App) -> None:
    app.fill()
    store = app.store()
    store.take(0)
    app.connection.admin.grow(app.topic, 5)
    assert store.take(4) == Fresh(0, 0)
    found = app.connection.admin.topic(app.names.state)
    assert found is not None
    assert found.partitions == 5


def test_a_missing_or_forgetful_state_topic_is_refused(app: App) -> None:
    other = topics.TopicNames(app.group + "2", app.topic)
    with pytest.raises(ConfigError, match="topics create"):
        KafkaStore(Connection({"bootstrap.servers": app.bootstrap, "group.id": other.group}), app.topic, Member("x"))
    admin = app.admin()
    week = {"retention.ms": str(7 * 86_400_000)}
    admin.create_topics({other.state: {"num_partitions": 2, "replication_factor": 1, "configs": week}})
    admin.wait_for_topics([other.state])
    admin.close()
    with pytest.raises(ConfigError, match=r"retention\.ms"):
        KafkaStore(Connection({"bootstrap.servers": app.bootstrap, "group.id": other.group}), app.topic, Member("x"))


def test_a_pointer_of_a_newer_release_halts(app: App) -> None:
    app.fill()
    text = Pointer("c", "t", "s").to_text().replace('"v":2', '"v":3')
    consumer = KafkaConsumer(bootstrap_servers=app.bootstrap, group_id=app.group)
    consumer.assign([TopicPartition(app.topic, 0)])
    consumer.commit({TopicPartition(app.topic, 0): OffsetAndMetadata(5, text, -1)})
    consumer.close()
    with pytest.raises(DataLossError, match="another release"):
        app.store().take(0)


def decrypt(name: bytes, values: list[bytes], key: bytes) -> memoryview:
    """The blob of these records."""
    decryption = blobs.Decryption(name, len(values), key)
    for value in values:
        decryption.add(value)
    return decryption.blob()


def test_an_altered_blob_does_not_open() -> None:
    key = blobs.new_key()
    data = bytes(2_000_000)
    chunks = list(blobs.encrypt(b"name", len(data), [data], key))
    values = [value for _, value in chunks]
    assert decrypt(b"name", values, key) == data
    for wrong in (values[::-1], values[:-1], [values[0], values[0], *values[2:]]):
        with pytest.raises(DataLossError):
            decrypt(b"name", wrong, key)
    with pytest.raises(DataLossError):
        decrypt(b"other", values, key)


def test_pointers_survive_text() -> None:
    pointer = Pointer("c" * 22, "t" * 36, "s" * 36, 3, b"f" * 16, 2**62, 900, b"i" * 16, b"k" * 32)
    assert Pointer.from_text(pointer.to_text()) == pointer
    assert len(pointer.to_text()) < 512
    for text in ("", "x", '{"app":"sketchstream"}', '{"app":"sketchstream","v":1}', "{}"):
        assert Pointer.from_text(text) is None


def test_fences_are_named_by_group_topic_and_partition() -> None:
    assert transactional_id("reach", "events", 3) == "reach-events-3"
