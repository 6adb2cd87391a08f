"""`validate` finds the partitioner of real producers, writes it, and a worker without it, or with another, refuses."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from confluent_kafka import Producer

from helpers.commands import Run
from sketchstream.config.loader import Config
from sketchstream.stream.input.partitioner import HASHES
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.input import sample

pytestmark = pytest.mark.kafka

START = 1_700_000_000_000
USERS = 1500
CONFIG = """# one file of a first user
[kafka]
"bootstrap.servers" = "{bootstrap}"
"group.id" = "{topic}"
[input]
topic = "{topic}"
item = "user"
time = "ts"
partitioned_by = "item"   # keyed by user
[key]
file = "key"
[[sketch]]
name = "hourly"
window = "1h"
unit = "event"
epsilon = "1"
domain = {{ slots = 1024, levels = 2 }}
"""


@pytest.fixture
def topic(kafka: str, run: Run, tmp_path: Path) -> str:
    """A configuration without a partitioner, and its empty input topic of four partitions."""
    from kafka import KafkaAdminClient

    name = f"first-{secrets.token_hex(4)}"
    (tmp_path / "c.toml").write_text(CONFIG.format(bootstrap=kafka, topic=name))
    assert run("keygen", "-o", "key").code == 0
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    configs = {"retention.ms": "-1"}  # the records' times are years old
    admin.create_topics({name: {"num_partitions": 4, "replication_factor": 1, "configs": configs}})
    admin.wait_for_topics([name])
    admin.close()
    return name


def produce(kafka: str, topic: str, partitioner: str, *, keyed: bool = True) -> None:
    producer = Producer({"bootstrap.servers": kafka, "partitioner": partitioner, "sticky.partitioning.linger.ms": 0})
    for number in range(2 * USERS):
        user = f"user{number % USERS}"
        value = json.dumps({"user": user, "ts": START + number})
        producer.produce(topic, value=value, key=user if keyed else None, timestamp=START + number)
        producer.poll(0)
    assert producer.flush(30) == 0


@pytest.mark.parametrize(
    "partitioner", ["murmur2", "murmur2_random", "consistent", "consistent_random", "fnv1a", "fnv1a_random"]
)
def test_the_partitioner_of_a_librdkafka_producer_is_found_and_written(
    kafka: str, topic: str, run: Run, tmp_path: Path, partitioner: str
) -> None:
    produce(kafka, topic, partitioner)
    found = {0: "murmur2", 1: "consistent_random", 2: "fnv1a"}[HASHES[partitioner]]  # type: ignore[index]
    looked = run("validate", "-c", "c.toml", "--format", "json")
    assert looked.code == 2
    (line,) = [line for line in looked.err.splitlines() if "error" in line]
    assert f'partitioner = "{found}"' in line
    assert "user1" not in looked.err + looked.out
    before = (tmp_path / "c.toml").read_text()
    written = run("validate", "-c", "c.toml", "--write", "--format", "json")
    assert written.code == 0, written.err
    comment = 'partitioned_by = "item"   # keyed by user\n'
    assert (tmp_path / "c.toml").read_text() == before.replace(comment, f'{comment}partitioner = "{found}"\n')
    config = Config.load(tmp_path / "c.toml")
    connection = Connection(config.kafka, config.folder)
    try:
        assert sample.read(connection, config).misplaced == 0
    finally:
        connection.close()
    checked = run("validate", "-c", "c.toml", "--format", "json")
    assert checked.code == 0
    # before the line is written, while it is, and after: the losses are those with it
    for earlier in (looked, written):
        assert json.loads(earlier.out)["sketches"] == json.loads(checked.out)["sketches"]


def test_a_worker_without_or_with_another_partitioner_refuses_and_names_the_line(
    kafka: str, topic: str, run: Run, tmp_path: Path
) -> None:
    assert run("topics", "create", "-c", "c.toml").code == 0
    empty = run("worker", "-c", "c.toml")
    assert empty.code == 2
    assert "input.partitioner is missing, and a sample of the topic holds too few distinct items" in empty.err
    assert "the topic holds no records" in empty.err
    produce(kafka, topic, "consistent_random")
    refused = run("worker", "-c", "c.toml")
    assert refused.code == 2
    assert 'a sample of the topic says: partitioner = "consistent_random"' in refused.err
    text = (tmp_path / "c.toml").read_text()
    (tmp_path / "c.toml").write_text(text.replace("[key]", 'partitioner = "murmur2"\n[key]').replace('"ts"', '"tss"'))
    wrong = run("worker", "-c", "c.toml")
    assert wrong.code == 2
    errors = [line for line in wrong.err.splitlines() if line.startswith("sketchstream: error:")]
    assert len(errors) == 2, wrong.err
    assert (
        'input.partitioner = "murmur2" does not fit: a sample of the topic says partitioner = "consistent' in errors[0]
    )
    assert "has the field 'tss' (input.time); fields there are: ts, user; did you mean 'ts'?" in errors[1]
    validated = run("validate", "-c", "c.toml")
    assert validated.code == 2
    assert [line for line in validated.err.splitlines() if "does not fit" in line]


def test_rows_without_keys_fit_none_and_the_way_out_is_named(kafka: str, topic: str, run: Run, tmp_path: Path) -> None:
    produce(kafka, topic, "random", keyed=False)
    before = (tmp_path / "c.toml").read_text()
    result = run("validate", "-c", "c.toml", "--write")
    assert result.code == 2
    assert "key the topic by the item, or set input.partitioned_by" in result.err
    assert (tmp_path / "c.toml").read_text() == before


def test_validate_asks_a_broker_only_where_one_answers_or_where_it_is_told(
    kafka: str, topic: str, run: Run, tmp_path: Path
) -> None:
    told = run("validate", "-c", "c.toml", "--offline")
    assert told.code == 2
    assert "validate -c FILE --write" in told.err
    text = (tmp_path / "c.toml").read_text().replace("[key]", 'partitioner = "murmur2"\n[key]')
    (tmp_path / "c.toml").write_text(text)
    asked = json.loads(run("validate", "-c", "c.toml", "--format", "json").out)
    assert asked["partitions"] == 4
    assert "partitions" not in json.loads(run("validate", "-c", "c.toml", "--offline", "--format", "json").out)
    (tmp_path / "c.toml").write_text(text.replace(kafka, "127.0.0.1:1"))
    for options in ([], ["--online"], ["--write"]):
        absent = run("validate", "-c", "c.toml", "--format", "json", *options)
        assert absent.code == 1
        assert "127.0.0.1:1 cannot be reached: 111 ECONNREFUSED; topics and input were not compared" in absent.complaint
        assert "partitions" not in json.loads(absent.out)


def test_a_sample_of_a_topic_that_was_erased_says_so(kafka: str, topic: str, run: Run, tmp_path: Path) -> None:
    from kafka import KafkaAdminClient, TopicPartition

    produce(kafka, topic, "murmur2")
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.delete_records({TopicPartition(topic, partition): -1 for partition in range(4)})
    admin.close()
    lacking = run("validate", "-c", "c.toml")
    assert lacking.code == 2
    extent = f"the topic holds no records; {2 * USERS:,} older ones were erased by its retention"
    assert f"{extent}: its fields and its partitioner were not compared with it" in lacking.err
    assert f"(it takes about 1,000): {extent}" in lacking.err
    text = (tmp_path / "c.toml").read_text().replace("[key]", 'partitioner = "murmur2"\n[key]')
    (tmp_path / "c.toml").write_text(text)
    empty = run("validate", "-c", "c.toml")
    assert empty.code == 0
    assert f"warning: {extent}" in empty.err
    produce(kafka, topic, "murmur2")
    assert run("validate", "-c", "c.toml").code == 0
