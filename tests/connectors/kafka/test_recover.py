"""Halted partitions mended on a real broker: the last snapshot found again, a loss accepted, a new revision begun."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from helpers.kafka.app import MINUTE, App, Nobody
from sketchstream.errors import ConfigError, DataLossError
from sketchstream.stream.interfaces import Fresh, Restored, Snapshot
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.topics import TopicNames, state_topics
from sketchstream_connectors.kafka.publishing.publisher import KafkaPublisher
from sketchstream_connectors.kafka.state import recover as kafka_recover
from sketchstream_connectors.kafka.state.group_validation import require_own_group
from sketchstream_connectors.kafka.state.pointer import Pointer
from sketchstream_connectors.kafka.state.recover import recover, reset
from sketchstream_connectors.kafka.state.store import KafkaStore

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")


@pytest.fixture
def app(kafka: str, tmp_path: Path) -> Iterator[App]:
    made = App(kafka, tmp_path / "app", partitions=2)
    load = made.load()
    for i in range(200):
        load.send(i, 1_700_000_000_000 + i, partition=i % 2)
    load.flush()
    yield made
    made.close()


@pytest.fixture
def store_of(app: App) -> Iterator[Callable[[], KafkaStore]]:
    made: list[KafkaStore] = []

    def open_store() -> KafkaStore:
        made.append(KafkaStore(app.connection, app.topic, Nobody(app.group), sealed_topic=app.names.sealed))
        return made[-1]

    yield open_store
    for store in made:
        store.close()


@pytest.fixture
def taken(store_of: Callable[[], KafkaStore]) -> None:
    """Partition 0 has a snapshot at 40, partition 1 has not begun."""
    store = store_of()
    store.take(0)
    for position in (10, 40):
        manifest = {"position": position, "partial": False}
        store.commit(0, Snapshot(0, position, manifest, {f"w{position}": b"state"}, frozenset()))
    store.close()


def outcomes(findings: list[kafka_recover.Diagnosis]) -> list[str]:
    return [finding.outcome for finding in findings]


@pytest.mark.usefixtures("taken")
def test_healthy_and_unstarted_partitions_are_left_alone(app: App) -> None:
    findings = recover(app.connection, app.names)
    assert outcomes(findings) == ["healthy", "unstarted"]
    assert findings[0].position == 40


@pytest.mark.usefixtures("taken")
def test_a_pointer_that_another_client_wrote_over_is_found_again(app: App, store_of: Callable[[], KafkaStore]) -> None:
    stranger = KafkaConsumer(bootstrap_servers=app.bootstrap, group_id=app.group)
    stranger.assign([TopicPartition(app.topic, 0)])
    stranger.commit({TopicPartition(app.topic, 0): OffsetAndMetadata(99, "", -1)})
    stranger.close()
    findings = recover(app.connection, app.names, dry_run=True)
    assert outcomes(findings) == ["adopt", "unstarted"], findings
    with pytest.raises(DataLossError):
        store_of().take(0)
    assert outcomes(recover(app.connection, app.names)) == ["adopt", "unstarted"]
    found = store_of().take(0)
    assert isinstance(found, Restored)
    assert (found.position, dict(found.blobs)) == (40, {"w40": b"state"})


@pytest.mark.usefixtures("taken")
def test_deleted_offsets_are_found_again(app: App, store_of: Callable[[], KafkaStore]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=app.bootstrap)
    admin.delete_group_offsets(app.group, [TopicPartition(app.topic, 0)])
    admin.close()
    assert outcomes(recover(app.connection, app.names)) == ["adopt", "unstarted"]
    found = store_of().take(0)
    assert isinstance(found, Restored)
    assert found.position == 40


@pytest.mark.usefixtures("taken")
def test_a_reset_by_kafkas_own_tool_halts_and_is_undone(app: App, store_of: Callable[[], KafkaStore]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=app.bootstrap)
    admin.alter_group_offsets(app.group, {TopicPartition(app.topic, 0): OffsetAndMetadata(0, "", -1)})
    admin.close()
    with pytest.raises(DataLossError, match="not written by sketchstream"):
        store_of().take(0)
    assert outcomes(recover(app.connection, app.names)) == ["adopt", "unstarted"]
    found = store_of().take(0)
    assert isinstance(found, Restored)
    assert found.position == 40


@pytest.mark.usefixtures("taken")
def test_trimmed_records_are_passed_over_only_when_the_loss_is_accepted(
    app: App, store_of: Callable[[], KafkaStore]
) -> None:
    app.connection.admin.delete_before(app.topic, {0: 60})
    for accept in (False, True):
        (finding, _) = recover(app.connection, app.names, accept_loss=accept)
        assert (finding.outcome, finding.position) == ("accept", 60)
    found = store_of().take(0)
    assert isinstance(found, Restored)
    assert (found.position, dict(found.blobs)) == (60, {"w40": b"state"})
    assert found.manifest == {"position": 60, "partial": True}
    assert outcomes(recover(app.connection, app.names)) == ["healthy", "unstarted"]


@pytest.mark.usefixtures("taken")
def test_a_lost_snapshot_is_said_to_be_lost(app: App) -> None:
    end = app.connection.admin.offsets(app.names.state, [0], "latest")[0]
    app.connection.admin.delete_before(app.names.state, {0: end})
    findings = recover(app.connection, app.names)
    assert outcomes(findings) == ["lost", "unstarted"]
    assert "gone" in findings[0].text


@pytest.mark.usefixtures("taken")
def test_reset_begins_a_new_revision_and_leaves_nothing_to_read(app: App, store_of: Callable[[], KafkaStore]) -> None:
    zombie = store_of()
    zombie.take(0)
    assert outcomes(reset(app.connection, app.names, to="end", dry_run=True)) == ["reset", "reset"]
    assert isinstance(store_of().take(0), Restored)
    findings = reset(app.connection, app.names, to="end")
    assert [(f.position, f.revision) for f in findings] == [(100, 1), (100, 1)]
    with pytest.raises(Exception, match="taken the partition over"):
        zombie.commit(0, Snapshot(0, 50, {}, {"w": b"zombie"}, frozenset()))
    fresh = store_of()
    assert [fresh.take(p) for p in (0, 1)] == [Fresh(1, 100), Fresh(1, 100)]
    assert [f.revision for f in reset(app.connection, app.names, to="beginning")] == [2, 2]
    assert fresh.take(0) == Fresh(2, 0)
    first = app.connection.admin.offsets(app.names.state, [0], "earliest")
    assert first == app.connection.admin.offsets(app.names.state, [0], "latest")


def test_a_revision_is_above_everything_that_was_published(app: App) -> None:
    from sketchstream.stream.interfaces import Frontier

    publisher = KafkaPublisher(app.connection, app.names.sealed or "")
    publisher.publish(0, [], [Frontier("seen", 6, 0, 1, 2, 1)])
    publisher.close()
    assert [f.revision for f in reset(app.connection, app.names, to=1_700_000_000_000 + 100)] == [7, 7]
    assert kafka_recover.reset(app.connection, app.names, to=0, dry_run=True)[0].position == 0


def test_a_reset_that_was_interrupted_halts_the_others_and_is_finished_by_the_next(
    app: App, store_of: Callable[[], KafkaStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of()
    for p in (0, 1):
        store.take(p)
        store.commit(p, Snapshot(p, 40, {"position": 40, "partial": False}, {"w": b"state"}, frozenset()))
    store.close()
    commit = kafka_recover._commit

    def killed(connection: Connection, names: TopicNames, partition: int, *more: object) -> None:
        if partition == 1:
            raise KeyboardInterrupt
        commit(connection, names, partition, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(kafka_recover, "_commit", killed)
        with pytest.raises(KeyboardInterrupt):
            reset(app.connection, app.names, to="beginning")
    store = store_of()
    assert store.take(0) == Fresh(1, 0)
    with pytest.raises(DataLossError, match="a reset was interrupted"):
        store.take(1)
    store.close()
    findings = reset(app.connection, app.names, to="end")
    assert [(f.position, f.revision) for f in findings] == [(0, 1), (100, 1)]
    store = store_of()
    assert [store.take(p) for p in (0, 1)] == [Fresh(1, 0), Fresh(1, 100)]
    assert [f.revision for f in reset(app.connection, app.names, to="end", dry_run=True)] == [2, 2]


def test_a_group_of_another_application_is_refused_before_anything_is_counted(app: App) -> None:
    stranger = KafkaConsumer(bootstrap_servers=app.bootstrap, group_id=app.group)
    stranger.assign([TopicPartition(app.topic, 1)])
    stranger.commit({TopicPartition(app.topic, 1): OffsetAndMetadata(50, "", -1)})
    stranger.close()
    states = state_topics(app.group, app.topic)
    with pytest.raises(ConfigError, match=r"another application has committed offsets .* \(partition 1\)"):
        require_own_group(app.connection, app.topic, states)
    worker = app.start()
    assert worker.process.wait(60) == 2
    assert worker.says("another application has committed offsets") >= 1
    (_, taken_over) = reset(app.connection, app.names, to="beginning")
    assert "must not use this group" in taken_over.text
    require_own_group(app.connection, app.topic, states)


@pytest.mark.usefixtures("taken")
def test_offsets_that_another_client_wrote_over_are_no_foreign_group(app: App) -> None:
    admin = KafkaAdminClient(bootstrap_servers=app.bootstrap)
    admin.alter_group_offsets(app.group, {TopicPartition(app.topic, 0): OffsetAndMetadata(0, "", -1)})
    admin.close()
    require_own_group(app.connection, app.topic, state_topics(app.group, app.topic))


def test_nothing_is_mended_while_workers_run(app: App) -> None:
    worker = app.start()
    app.wait_running(worker)
    for act in (recover, reset):
        with pytest.raises(ConfigError, match="running workers"):
            act(app.connection, app.names)
    assert outcomes(recover(app.connection, app.names, dry_run=True)) == ["healthy", "healthy"]
    assert worker.terminate() == 0


def test_a_new_revision_is_counted_and_published_as_one(app: App) -> None:
    load = app.load()
    worker = app.start()
    start = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE
    load.send(1, start)
    load.close_windows(start + 2 * MINUTE)
    app.wait_published(start + MINUTE)
    assert worker.terminate() == 0
    reset(app.connection, app.names, to="beginning")
    worker = app.start()
    app.wait_published(start + MINUTE, revision=1)
    found = {(e.revision, e.window[0], e.partition) for e in app.entries()}
    windows = {revision: {(w, p) for r, w, p in found if r == revision} for revision in (0, 1)}
    assert windows[0] == windows[1] != set()
    app.check_publications()
    assert worker.terminate() == 0


def test_java_hashes() -> None:
    known = {"": 0, "a": 97, "hello": 99162322, "Hello, World!": 1498789909}
    assert {text: kafka_recover._java_hash(text) for text in known} == known
    # its hashCode() is Integer.MIN_VALUE, whose absolute value Java does not have
    assert kafka_recover._java_hash("polygenelubricants") == 0


def test_the_log_of_offsets_is_looked_for_where_the_group_writes(kafka: str, topic_name: Callable[[str], str]) -> None:
    groups = {kafka_recover._java_hash(name): name for name in (topic_name("g") for _ in range(200))}
    negative = [name for name in groups.values() if _signed_hash(name) < 0][:4]
    topic = topic_name("events")
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    admin.wait_for_topics([topic])
    admin.close()
    for group in negative:
        connection = Connection({"bootstrap.servers": kafka, "group.id": group})
        consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=group)
        consumer.assign([TopicPartition(topic, 0)])
        text = Pointer("c", "t", "s").to_text()
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(7, text, -1)})
        consumer.close()
        assert kafka_recover.logged_pointers(connection, TopicNames(group, topic)) == {0: (7, Pointer("c", "t", "s"))}
        connection.close()


def _signed_hash(text: str) -> int:
    value = 0
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
