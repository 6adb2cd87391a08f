"""The contract of the sealed topic: readers of 100 lines of Python, and in Java, see what our own reader sees."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from kafka import KafkaAdminClient, KafkaProducer

import sketchstream as ss
from helpers.kafka.devbroker import Jars
from helpers.paths import TESTS
from sketchstream.provenance import Origin
from sketchstream.published import Release, SealedState
from sketchstream.query.sealed import SealedReader
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.topics import FOR_EVER
from sketchstream_connectors.kafka.publishing.publisher import KafkaPublisher
from sketchstream_connectors.kafka.publishing.sealed import KafkaSealedSource

HOUR = 3_600_000
START = 1_600_000_000_000 - 1_600_000_000_000 % HOUR
READERS = TESTS / "helpers" / "kafka" / "readers"


def sealed(hour: int, partition: int, *, revision: int = 0, state: bool = False, of: int = 3) -> SealedEntry:
    """A sketch of one partition, sealed; states need several records."""
    domain = ss.ClosedDomain(size=300_000) if state else ss.OpenDomain(slots=64, levels=2)
    publish = {"publish": "state", "intrusion": False, "bits": 64} if state else {}
    spec = ss.ProfileSpec(epsilon="1/20" if state else "1", domain=domain, max_count=20, **publish)  # type: ignore[arg-type]
    window = (START + hour * HOUR, START + (hour + 1) * HOUR)
    origin = Origin("states" if state else "hourly", revision, window, partition, of, of)
    sketch = ss.Sketch.create(spec, None if state else ss.Key(bytes(range(16))), origin=origin)
    sketch.update(list(range(50)))
    made = sketch.seal()
    return SealedEntry(origin.name, revision, window, partition, made.seal_id, made.to_bytes())


def frontier(hour: int, partition: int, sequence: int, *, revision: int = 0, of: int = 3) -> Frontier:
    return Frontier("hourly", revision, partition, START + hour * HOUR, of, sequence)


@pytest.fixture
def published(kafka: str, topic_name: Callable[[str], str]) -> tuple[str, list[dict[str, object]]]:
    """A topic with everything that the contract speaks of, and what our reader makes of it."""
    topic = topic_name("contract")
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.create_topics({topic: {"num_partitions": 3, "replication_factor": 1, "configs": FOR_EVER}})
    admin.wait_for_topics([topic])
    admin.close()
    connection = Connection({"bootstrap.servers": kafka, "group.id": "contract"})
    publisher = KafkaPublisher(connection, topic)
    for partition in range(3):
        entries = [sealed(hour, partition) for hour in range(3) if (hour, partition) not in ((1, 2), (2, 2))]
        publisher.publish(partition, entries, [frontier(2, partition, 1)])
        publisher.publish(partition, entries[:1], [])  # a retry after a crash
    publisher.publish(0, [], [frontier(3, 0, 2), frontier(3, 0, 2)])
    publisher.publish(1, [sealed(0, 1, revision=1), sealed(5, 1, state=True)], [frontier(1, 1, 1, revision=1)])
    producer = KafkaProducer(bootstrap_servers=kafka)
    producer.send(topic, key=None, value=b"of somebody else", partition=0)
    producer.send(topic, key=b"sealed/of/another/kind", value=b"", partition=0)
    producer.close()
    publisher.close()
    expected = []
    for name in ("hourly", "states"):
        reader = SealedReader(KafkaSealedSource(connection, topic))
        for window in reader.windows(name):
            parts = {}
            for part in window.parts:
                assert isinstance(part, Release | SealedState)
                counts = (part.noised if isinstance(part, Release) else part.state).reshape(-1).tolist()
                parts[str(part.origin.partition)] = {"n": len(counts), "sum": sum(counts), "first": counts[:5]}
            expected.append(
                {"sketch": name, "window": list(window.window), "revision": window.revision}
                | {"missing": list(window.missing), **parts}
            )
        reader.close()
    connection.close()
    return topic, expected


def test_readers_of_other_teams_see_the_same(kafka: str, published: tuple[str, list[dict[str, object]]]) -> None:
    topic, expected = published
    assert [(one["revision"], one["missing"]) for one in expected] == [(1, [0, 2]), (0, []), (0, [2]), (0, [0, 2])]
    jars = Jars().class_path()
    commands = {
        "python": [sys.executable, READERS / "plain_reader.py", kafka, topic],
        "java": ["java", "-cp", jars, READERS / "SealedReader.java", kafka, topic],
    }
    for name, command in commands.items():
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, f"{name}: {ran.stderr}"
        assert [json.loads(line) for line in ran.stdout.splitlines()] == expected, name


def test_the_plain_reader_is_short_and_knows_nothing_of_ours() -> None:
    text = (READERS / "plain_reader.py").read_text()
    assert len(text.splitlines()) <= 100
    assert "import sketchstream" not in text
    assert "from sketchstream" not in text
