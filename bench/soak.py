"""Fifteen minutes at full speed with windows of one minute: memory, lag and the internal topic must stay flat.

In: a Kafka of its own on loopback whose retention check runs every 10 s, one worker as a process. Out: a line every
half minute, and at the end the drift of the second half against the first. Touches: a temporary folder, Java, worker
and producer processes of its own.

    python bench/soak.py [--minutes 15] [--quick]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

# this folder has a kafka.py, which must not be taken for the client
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.kafka.app import AT_ONCE, App  # noqa: E402
from helpers.kafka.devbroker import DevCluster  # noqa: E402
from helpers.memory import resident_bytes  # noqa: E402

SKETCH = 'epsilon = "1"\ndomain = { slots = 262144, levels = 4 }\nmax_count = 300'
INPUT = f'item = "u"\ntime = "ts"\n{AT_ONCE}\nidle = "off"'
PRODUCER = """
import json, random, sys, time
from confluent_kafka import Producer
bootstrap, topic, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 20,
                     "compression.type": "lz4", "queue.buffering.max.messages": 200000})
keys = [b"user-%d" % i for i in range(100000)]
rng, end = random.Random(1), time.time() + seconds
while time.time() < end:
    now = int(time.time() * 1000)
    for _ in range(2000):
        key = keys[int(len(keys) * rng.random() ** 2)]
        value = b'{"u":"%s","ts":%d,"pad":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}' % (key, now)
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.05)
    producer.poll(0)
producer.flush()
"""


def folder_mb(cluster: DevCluster, topic: str) -> float:
    """Size of a topic's segments on the disk."""
    data = next(iter(cluster.nodes.values())).directory / "data"
    total = 0
    for path in data.glob(f"{topic}-*/*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    minutes = 2.0 if options.quick else options.minutes
    warnings.simplefilter("ignore")
    broker = {"log.retention.check.interval.ms": 10_000, "log.segment.delete.delay.ms": 1000}
    with tempfile.TemporaryDirectory() as name, DevCluster(1, quick=False, heap="1g", properties=broker) as cluster:
        app = App(
            cluster.bootstrap,
            Path(name) / "app",
            sketch=SKETCH,
            input=INPUT,
            key=True,
            snapshot_every="5s",
        )
        from kafka.admin import ConfigResource, ConfigResourceType

        short = {"retention.ms": "60000", "segment.ms": "20000"}  # the disk of this machine is small
        quick_roll = {"segment.ms": "20000", "segment.bytes": str(16 * 2**20)}
        with app.connection.admin.client("settings") as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, app.topic, short)])
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, app.names.state, quick_roll)])
        producer = subprocess.Popen([sys.executable, "-c", PRODUCER, app.bootstrap, app.topic, str(minutes * 60)])
        rows: list[tuple[float, float, float, float]] = []
        try:
            worker = app.start(fresh=True)
            began = time.monotonic()
            while time.monotonic() - began < minutes * 60:
                time.sleep(30)
                ends = app.connection.admin.offsets(app.topic, range(app.partitions), "latest")
                behind = sum(ends.values()) - sum(committed(app).values())
                used = resident_bytes(worker.process.pid) / 2**20
                row = (used, behind, folder_mb(cluster, app.names.state), sum(ends.values()))
                rows.append(row)
                rate = (rows[-1][3] - rows[-2][3]) / 30 if len(rows) > 1 else 0.0
                seconds = time.monotonic() - began
                print(
                    f"{seconds:5.0f} s  {row[0]:6.0f} MB resident  {behind:9,.0f} records behind the last snapshot  "
                    f"{row[2]:6.1f} MB of state topic  {rate:9,.0f} records/s",
                    flush=True,
                )
            assert worker.alive
        finally:
            producer.kill()
            producer.wait()
            app.close()
    warm = rows[len(rows) // 5 :]
    first, second = warm[: len(warm) // 2], warm[len(warm) // 2 :]
    for column, what in enumerate(("memory", "lag", "state topic")):
        a, b = (statistics.median(row[column] for row in half) for half in (first, second))
        print(
            json.dumps({"what": what, "first_half": round(a, 1), "second_half": round(b, 1), "ratio": round(b / a, 3)})
        )


def committed(app: App) -> dict[int, int]:
    from kafka import TopicPartition

    with app.connection.admin.client("asking") as admin:
        wanted = {app.group: [TopicPartition(app.topic, p) for p in range(app.partitions)]}
        found = admin.list_group_offsets(wanted)[app.group]
    return {tp.partition: max(offset.offset, 0) for tp, offset in found.items()}


if __name__ == "__main__":
    main()
