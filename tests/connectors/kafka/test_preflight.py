"""`validate --online`: mistakes that only the cluster can show."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from helpers.kafka.app import App
from sketchstream_connectors.kafka import preflight
from sketchstream_connectors.kafka.preflight import check

pytestmark = pytest.mark.filterwarnings("ignore:.*NO PRIVACY")


@pytest.fixture
def app(kafka: str, tmp_path: Path) -> Iterator[App]:
    made = App(kafka, tmp_path / "app")
    yield made
    made.close()


def set_topic(app: App, topic: str, **settings: str) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType

    named = {name.replace("_", "."): value for name, value in settings.items()}
    with app.connection.admin.client("setting") as client:
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, named)])
    deadline = time.monotonic() + 20
    while not named.items() <= app.connection.admin.configs(topic).items():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def found(app: App) -> str:
    return "\n".join(check(app.connection, app.config, app.names))


def test_a_good_topic_has_nothing_to_complain_of(app: App) -> None:
    assert found(app) == ""
    load = app.load()
    for i in range(400):
        load.send(i, 1_700_000_000_000 + i)
    load.flush()
    assert found(app) == ""


def test_items_in_partitions_of_another_partitioner_are_noticed_and_not_shown(app: App) -> None:
    load = app.load()
    for i in range(123_000_000, 123_000_100):
        load.send(i, 1_700_000_000_000 + i, partition=i % 4)
    load.flush()
    assert "the partitioner does not send them to" in found(app)
    assert "123000" not in found(app)


def test_records_that_retention_will_trim_are_noticed(app: App) -> None:
    app.load().send(1, 1_700_000_000_000)
    load = app.load()
    load.send(1, 1_700_000_000_000)
    load.flush()
    set_topic(app, app.topic, retention_ms="3600000")
    assert "older by their timestamps than the topic's retention" in found(app)


def test_short_retention_and_unbounded_timestamps_are_noticed(app: App) -> None:
    set_topic(app, app.topic, retention_ms="4000", message_timestamp_after_max_ms=str(2**63 - 1))
    text = found(app)
    assert "less than lateness" in text
    assert "superseded snapshots" in text
    assert "without limit" in text


def test_a_forgetful_state_topic_is_noticed(app: App) -> None:
    set_topic(app, app.names.state, retention_ms="1000")
    assert "retention.ms is '1000' and must be '-1'" in found(app)


def test_a_state_topic_that_does_not_tell_the_time_is_noticed(app: App) -> None:
    assert "message.timestamp.type" not in found(app)
    set_topic(app, app.names.state, message_timestamp_type="CreateTime")
    assert "workers cannot compare their clocks with the brokers'" in found(app)


def test_records_that_hold_no_item_are_noticed(app: App) -> None:
    load = app.load()
    for i in range(50):
        load.send(f"text {i}", 1_700_000_000_000, partition=0)
    load.flush()
    text = found(app)
    assert "hold no item" in text
    assert "text 1" not in text


def test_limits_of_the_brokers_are_noticed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "MAX_POINTER_BYTES", 5000)  # the brokers take 4,096
    assert "offset.metadata.max.bytes is 4096, workers need at least 5000" in found(app)


def test_a_shared_group_is_noticed(app: App) -> None:
    stranger = KafkaConsumer(bootstrap_servers=app.bootstrap, group_id=app.group)
    stranger.assign([TopicPartition(app.names.state, 0)])
    stranger.commit({TopicPartition(app.names.state, 0): OffsetAndMetadata(0, "", -1)})
    stranger.close()
    assert "another application uses it" in found(app)


def test_validate_prints_warnings_of_the_cluster(app: App) -> None:
    set_topic(app, app.topic, retention_ms="4000")
    command = [sys.executable, "-m", "sketchstream.cli", "validate", "-c", str(app.config_file), "--online"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning: the topic keeps records for 4 s" in done.stderr
