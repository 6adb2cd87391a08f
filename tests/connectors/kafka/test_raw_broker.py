"""A real broker's batches: both paths hand out the same records and positions, at every fetch size, after every seek.

In: the broker of all tests. Out: nothing. Touches: Java, free ports of 127.0.0.1.
"""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from sketchstream_connectors.kafka.fetch import fetch_patch

pytestmark = pytest.mark.kafka
Row = tuple[int, int, bytes | None, bytes | None]


@pytest.fixture(scope="module")
def filled(kafka: str) -> TopicPartition:
    """One partition with every codec, null and empty keys, headers, commits and aborts, a large record."""
    topic = f"raw-{secrets.token_hex(4)}"
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.close()
    for number, codec in enumerate([None, "gzip", "snappy", "lz4", "zstd"]):
        producer = KafkaProducer(
            bootstrap_servers=kafka, compression_type=codec, transactional_id=f"{topic}-{number}", linger_ms=5
        )
        producer.init_transactions()
        for attempt in range(4):
            producer.begin_transaction()
            for n in range(60):
                key = [None, b"", b"key-%d" % n][n % 3]
                value = None if n % 9 == 4 else b'{"user_id":"u%d","n":%d}' % (n % 7, n) * (1 + n % 3)
                producer.send(topic, value, key, headers=[("h", b"x" * n)] if n % 4 == 0 else None)
                if n % 20 == 19:
                    producer.flush()
            if attempt == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.close()
    plain = KafkaProducer(bootstrap_servers=kafka)
    plain.send(topic, b"z" * 300_000, b"large")
    plain.close()
    return TopicPartition(topic, 0)


def read(
    kafka: str, partition: TopicPartition, path: fetch_patch.Path, position: int, fetch_bytes: int, isolation: str
) -> tuple[list[Row], int]:
    """Everything from a position on, and the position afterwards."""
    consumer = KafkaConsumer(
        bootstrap_servers=kafka,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level=isolation,
        max_partition_fetch_bytes=fetch_bytes,
        fetch_max_bytes=fetch_bytes,
    )
    rows: list[Row] = []
    try:
        assert fetch_patch.attach(consumer, path) == path
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek(partition, position)
        expected = position
        while consumer.position(partition) < end:
            before = consumer.position(partition)
            polled: Any = consumer.poll(500).get(partition, [])
            for chunk in fetch_patch.as_records(polled, before, consumer.position(partition)):
                assert chunk.from_position == expected
                expected = chunk.next_position
                held = chunk
                rows += [
                    (int(held.offsets[i]), int(held.timestamps[i]), held.key(i), held.value(i))
                    for i in range(len(held))
                ]
        assert expected == end
    finally:
        consumer.close()
    return rows, end


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("fetch_bytes", [1 << 10, 1 << 16, 50 << 20])
def test_both_paths_read_a_real_partition_alike(
    kafka: str, filled: TopicPartition, fetch_bytes: int, isolation: str
) -> None:
    for position in (0, 7, 400):
        stock = read(kafka, filled, "stock", position, fetch_bytes, isolation)
        raw = read(kafka, filled, "raw", position, fetch_bytes, isolation)
        assert raw == stock
    committed = 5 * 3 * 60 + 1
    everything, _ = read(kafka, filled, "raw", 0, fetch_bytes, isolation)
    assert len(everything) == (committed if isolation == "read_committed" else committed + 5 * 60)
    assert everything[-1][2:] == (b"large", b"z" * 300_000)
