"""Records per second from a real broker into an open sketch, against three peers in the same run.

In: a Kafka of its own on loopback (or `--bootstrap`), filled by confluent-kafka in another process. Out: a table of
medians and ratios on standard output. Touches: Java, free ports, a temporary directory.

Measured end to end by the wall clock, from the first poll to the last record: poll, decode, hash, update a sketch with
2^20 slots. Peers, all with one process reading the same topic:
    ceiling    kafka-python handing whole batches over after the checksum, records only counted
    wide       the same with reads of 256 KiB from the socket, which the client does not have
    stock      kafka-python's poll(500), doing nothing with the records
    confluent  confluent-kafka's consume(500) and value(), key(), doing nothing with them
Rounds are interleaved; each round makes a consumer of its own, connected before the clock starts.

Scaling: one and two processes of one group, each with its share of the partitions, start together; all records over the
time of the slowest, in three times as many rounds, with the same processes in all of them. The peer is the same with
plain byte ceilings: what the broker and the processors leave to two.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
# this file would hide the client's package of the same name

PARTITIONS = 4
ITEMS = 200_000
PACKED = 1_000
SHAPES = ["keys", "json", "packed", "scaling-keys", "scaling-json", "codecs"]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TARGETS = {
    ("keys", "ceiling"): 0.6,
    ("json", "ceiling"): 0.35,
    ("keys", "stock"): 20,
    ("json", "stock"): 8,
    ("keys", "confluent"): 8,
    ("json", "confluent"): 3,
    ("packed", "stock"): 60,
}


# ------------------------------------------------------------------------------------------------- load


def produce(bootstrap: str, topic: str, shape: str, codec: str, records: int) -> None:
    """Fill a topic: runs in a process of its own."""
    import msgpack
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.size": 262_144 if shape != "packed" else 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 400_000,
        }
    )
    rng = np.random.default_rng(7)
    ids = rng.zipf(1.3, records if shape != "packed" else 1) % ITEMS
    base = 1_700_000_000_000
    if shape == "packed":
        payloads = [
            msgpack.packb({"i": (rng.zipf(1.3, PACKED).astype("<u8") % ITEMS).tobytes(), "t": base + k})
            for k in range(64)
        ]
    for n in range(records):
        key: bytes | None = None
        if shape == "keys":
            key, value = b"user-%011d" % ids[n], b"12345678"
        elif shape == "json":
            value = b'{"ts":%d,"user_id":"user-%011d","event":"click","page":"/home/%05d","n":1}' % (
                base + n,
                ids[n],
                n % 99_991,
            )
            value = value[:-1] + b',"p":"' + b"x" * (100 - len(value) - 7) + b'"}'
        else:
            value = payloads[n % 64]
        while True:
            try:
                producer.produce(topic, value, key, partition=n % PARTITIONS if key is None else (n >> 6) % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if n % 4096 == 0:
            producer.poll(0)
    producer.flush(120)


# ---------------------------------------------------------------------------------------------- readers


def counting_records() -> type:
    """Whole batches after the checksum, counted: what the client can hand over at all."""
    from crc32c import crc32c
    from kafka.consumer.fetcher import Fetcher

    from sketchstream_connectors import record_kernels as kernels

    class Count:
        """What poll() returns."""

        def __init__(self, records: int, offset: int) -> None:
            self.records, self.offset = records, offset

    class CountingRecords(Fetcher.PartitionRecords):
        """Counts."""

        def _unpack_records(self, _tp: Any, records: Any, _keys: Any, _values: Any) -> Any:
            view = memoryview(records._buffer)
            data = np.frombuffer(view, dtype=np.uint8)
            heads = np.zeros((kernels.count_batches(data), kernels.COLUMNS), dtype=np.int64)
            kernels.read_heads(data, heads)
            counted = 0
            for head in heads.tolist():
                assert crc32c(view[head[0] + 21 : head[1]]) == head[kernels.CRC]
                counted += head[kernels.COUNT]
                self.next_fetch_offset = head[kernels.BASE_OFFSET] + head[kernels.LAST_DELTA] + 1
            self.bytes_read = len(view)
            if counted:
                yield Count(counted, self.next_fetch_offset)
            self.drain()

        def _maybe_skip_record(self, _record: Any) -> bool:
            return False

    return CountingRecords


def client_consumer(bootstrap: str, topic: str) -> Any:
    """kafka-python with the settings of our worker, at the beginning of all partitions."""
    from kafka import TopicPartition

    from sketchstream_connectors.kafka_client import Connection

    consumer = Connection({"bootstrap.servers": bootstrap, "group.id": "bench"}).consumer(group_id=None)
    partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    consumer.assign(partitions)
    to_beginning(consumer, partitions)
    return consumer


def to_beginning(consumer: Any, partitions: list[Any]) -> int:
    """Go to the beginning of these partitions, connected and with their metadata; returns their records."""
    for partition in partitions:
        consumer.seek(partition, 0)
    return sum(consumer.end_offsets(partitions).values())


def read_stock(bootstrap: str, topic: str, records: int, _decoder: Any) -> float:
    """poll(500), nothing done."""
    consumer = client_consumer(bootstrap, topic)
    seen = 0
    start = time.perf_counter()
    while seen < records:
        for polled in consumer.poll(1000, max_records=500).values():
            seen += len(polled)
    taken = time.perf_counter() - start
    consumer.close()
    return taken


def read_ceiling(bootstrap: str, topic: str, records: int, _decoder: Any) -> float:
    """Batches counted."""
    return counted(client_consumer(bootstrap, topic), records)


def read_wide_ceiling(bootstrap: str, topic: str, records: int, _decoder: Any) -> float:
    """Batches counted, with our reads from the socket."""
    consumer = client_consumer(bootstrap, topic)
    read_widely(consumer)
    return counted(consumer, records)


def read_widely(consumer: Any) -> None:
    """Let the connections of kafka-python read 256 KiB at once instead of 4: the definition of this peer is frozen."""

    def wide(transport: Any) -> Any:
        transport._sock_recv = lambda: receive(transport._sock)
        return transport

    async def build_transport(*arguments: Any, **options: Any) -> Any:
        return wide(await build(*arguments, **options))

    manager = consumer._manager
    build, manager._build_transport = manager._build_transport, build_transport
    for connection in list(manager._conns.values()):
        wide(connection.transport)


def receive(sock: Any) -> tuple[bytes, Exception | None]:
    """All that a socket has to give, up to 8 MiB."""
    parts: list[bytes] = []
    size = 0
    while size < 1 << 23:
        try:
            part = sock.recv(1 << 18)
        except BlockingIOError:
            break
        except OSError as error:
            return b"", error
        if not part:
            return b"", ConnectionError("closed")
        parts.append(part)
        size += len(part)
    return b"".join(parts), None


def counted(consumer: Any, records: int) -> float:
    """Seconds until all are counted; closes the consumer."""
    consumer._fetcher.PartitionRecords = counting_records()
    taken = count_all(consumer, records)
    consumer.close()
    return taken


def count_all(consumer: Any, records: int) -> float:
    """Seconds until all are counted."""
    seen = 0
    start = time.perf_counter()
    while seen < records:
        for polled in consumer.poll(1000).values():
            seen += sum(entry.records for entry in polled)
    return time.perf_counter() - start


def read_confluent(bootstrap: str, topic: str, records: int, _decoder: Any) -> float:
    """consume(500), value() and key()."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.list_topics(topic, timeout=10)
    seen = 0
    start = time.perf_counter()
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    while seen < records:
        for message in consumer.consume(500, 1.0):
            message.value()
            message.key()
            seen += 1
    taken = time.perf_counter() - start
    consumer.close()
    return taken


def read_ours(bootstrap: str, topic: str, records: int, decoder: Any) -> float:
    """Poll, decode, hash, update."""
    return updated(client_consumer(bootstrap, topic), records, decoder)


def updated(consumer: Any, records: int, decoder: Any) -> float:
    """Seconds until all are in a sketch; closes the consumer."""
    from sketchstream_connectors import raw_fetch

    assert raw_fetch.attach(consumer, "raw") == "raw"
    taken = update_all(consumer, records, decoder)
    consumer.close()
    return taken


def update_all(consumer: Any, records: int, decoder: Any) -> float:
    """Seconds until all are in a new sketch."""
    import sketchstream as ss

    spec = ss.ProfileSpec(epsilon="1", domain=ss.OpenDomain(slots=2**20, levels=8))
    sketch = ss.Sketch.create(spec, ss.Key.generate())
    seen = 0
    start = time.perf_counter()
    while seen < records:
        for polled in consumer.poll(1000).values():
            for chunk in polled:
                decoded = decoder.decode(chunk.records)
                if decoded.valid.all():
                    sketch.update(decoded.items, decoded.weights)
                else:
                    items, weights = decoded.items.take(decoded.valid), decoded.weights
                    sketch.update(items, None if weights is None else weights[decoded.valid])
                seen += len(chunk)
    return time.perf_counter() - start


READERS: dict[str, Callable[[str, str, int, Any], float]] = {
    "ours": read_ours,
    "ceiling": read_ceiling,
    "wide": read_wide_ceiling,
    "confluent": read_confluent,
    "stock": read_stock,
}


# --------------------------------------------------------------------------------------------- scaling


def member(bootstrap: str, topic: str, shape: str, role: str, group: str, members: int) -> None:
    """One of a group's processes: says when it has its share, and prints how long it took whenever it is told to go."""
    from kafka.errors import NoOffsetForPartitionError

    from sketchstream_connectors import raw_fetch
    from sketchstream_connectors.kafka_client import Connection

    decoder = decoder_for(shape)
    read_ours(bootstrap, topic, 1, decoder)  # compiled loops
    patient = {"max.poll.interval.ms": 3_600_000}
    consumer = Connection({"bootstrap.servers": bootstrap, "group.id": group, **patient}).consumer()
    consumer.subscribe([topic])
    share: list[Any] = []
    while len(share) * members != PARTITIONS:
        with contextlib.suppress(NoOffsetForPartitionError):  # nothing is committed; `to_beginning` says where to start
            consumer.poll(100)
        share = list(consumer.assignment())
    if role == "ours":
        assert raw_fetch.attach(consumer, "raw") == "raw"
    else:
        consumer._fetcher.PartitionRecords = counting_records()
    print("ready", flush=True)
    for _ in sys.stdin:
        records = to_beginning(consumer, share)
        print("set", flush=True)
        sys.stdin.readline()
        seconds = update_all(consumer, records, decoder) if role == "ours" else count_all(consumer, records)
        print(seconds, flush=True)


class Group:
    """So many processes of one group, which read a topic when they are told to."""

    def __init__(self, bootstrap: str, topic: str, shape: str, role: str, members: int) -> None:
        group = f"bench-{role}-{members}-{time.time_ns()}"
        command = [sys.executable, __file__, "--member", bootstrap, topic, shape, role, group, str(members)]
        self.children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
            for _ in range(members)
        ]
        assert self._hear() == ["ready\n"] * members

    def _say(self, word: str) -> None:
        for child in self.children:
            assert child.stdin is not None
            child.stdin.write(word + "\n")

    def _hear(self) -> list[str]:
        return [child.stdout.readline() for child in self.children if child.stdout is not None]

    def read(self) -> float:
        """Seconds until the slowest has read its share."""
        self._say("on your marks")
        assert self._hear() == ["set\n"] * len(self.children)
        self._say("go")
        return max(float(line) for line in self._hear())

    def close(self) -> None:
        """End the processes."""
        for child in self.children:
            child.kill()
            child.communicate()


def scaling(bootstrap: str, topic: str, shape: str, records: int, rounds: int) -> None:
    """One and two processes, ours and plain ceilings, in turn in every round; ratios are of one round's rates."""
    cases = [(role, members) for role in ("ours", "ceiling") for members in (1, 2)]
    groups = {case: Group(bootstrap, topic, shape, *case) for case in cases}
    for group in groups.values():
        group.read()
    rates = {case: np.array([0.0] * rounds) for case in cases}
    for turn in range(rounds):
        for case in cases if turn % 2 else cases[::-1]:
            rates[case][turn] = records / groups[case].read() / 1e6
    for group in groups.values():
        group.close()
    for role in ("ours", "ceiling"):
        one, two = (float(np.median(rates[role, members])) for members in (1, 2))
        line = f"{shape:7s} scaling {role:8s} {one:7.3f} M records/s by one process, {two:7.3f} by two"
        print(f"{line}   {spread(rates[role, 2] / rates[role, 1])}")
    ratio = spread(rates["ours", 2] / rates["ceiling", 2])
    print(f"{shape:7s} scaling two of ours = {ratio} two ceilings", flush=True)


def spread(ratios: np.ndarray) -> str:
    """Median and quartiles of ratios within rounds."""
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return f"{median:.2f} x (quartiles {low:.2f} to {high:.2f} of {ratios.size} rounds)"


# ------------------------------------------------------------------------------------------------ main


def decoder_for(shape: str) -> Any:
    from sketchstream_connectors.fields import Decoder

    if shape == "keys":
        return Decoder(format="key")
    if shape == "json":
        return Decoder(item="user_id", time="ts")
    return Decoder(format="packed", item_type="int")


def measure(
    bootstrap: str, topic: str, shape: str, records: int, readers: list[str], rounds: int
) -> dict[str, tuple[float, float, float]]:
    """Median, least and greatest records per second of each reader, rounds interleaved."""
    decoder = decoder_for(shape)
    rates: dict[str, list[float]] = {name: [] for name in readers}
    read_ours(bootstrap, topic, records, decoder)  # compiled loops, page cache
    for _ in range(rounds):
        for name in readers:
            gc.collect()
            rates[name].append(records / READERS[name](bootstrap, topic, records, decoder))
    return {name: (statistics.median(values), min(values), max(values)) for name, values in rates.items()}


def load(bootstrap: str, topic: str, shape: str, codec: str, records: int) -> None:
    """A topic filled by another process."""
    from kafka import KafkaAdminClient
    from kafka.admin import NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    admin.close()
    command = [sys.executable, __file__, "--produce", bootstrap, topic, shape, codec, str(records)]
    subprocess.run(command, check=True)


def report(shape: str, codec: str, rates: dict[str, tuple[float, float, float]], stock: float) -> None:
    ours = rates["ours"][0]
    for name, (median, low, high) in rates.items():
        least, most = low / 1e6, high / 1e6
        line = f"{shape:7s} {codec:7s} {name:10s} {median / 1e6:8.3f} M records/s  ({least:.3f} to {most:.3f})"
        if name != "ours":
            target = TARGETS.get((shape, name)) if codec == "none" and shape != "packed" else None
            line += f"   ours = {ours / median:7.2f} x" + (f"   (target {target})" if target else "")
        print(line, flush=True)
    if shape == "packed":
        updates = ours * PACKED
        line = f"{shape:7s} {codec:7s} {'updates':10s} {updates / 1e6:8.1f} M updates/s"
        print(line + f"   = {updates / stock:.0f} x stock JSON records/s   (target 60)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, three rounds")
    parser.add_argument("--records", type=int, help="records a topic (default 1,500,000)")
    parser.add_argument("--rounds", type=int, help="rounds (default 5)")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES, help="some of the parts")
    parser.add_argument("--bootstrap", help="a broker that runs already")
    parser.add_argument("--produce", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--member", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member:
        bootstrap, topic, shape, role, group, members = options.member
        member(bootstrap, topic, shape, role, group, int(members))
        return
    if options.produce:
        bootstrap, topic, shape, codec, count = options.produce
        produce(bootstrap, topic, shape, codec, int(count))
        return
    records = options.records or (150_000 if options.quick else 1_500_000)
    rounds = options.rounds or (3 if options.quick else 5)
    if options.bootstrap:
        run(options.bootstrap, records, rounds, options.shapes)
        return
    from sketchstream_connectors.devbroker import DevCluster

    with DevCluster(1, quick=False, heap="1g") as cluster:
        run(cluster.bootstrap, records, rounds, options.shapes)


def run(bootstrap: str, records: int, rounds: int, shapes: list[str]) -> None:
    """All shapes and codecs that are asked for."""
    mark = f"{os.getpid()}"
    stock = float("nan")
    print(f"{records:,} records a topic, {PARTITIONS} partitions, medians of {rounds} rounds", flush=True)
    for shape in [shape for shape in ("keys", "json", "packed") if shape in shapes]:
        count = records if shape != "packed" else max(records // 100, 2_000)
        load(bootstrap, f"{shape}-none-{mark}", shape, "none", count)
        rates = measure(bootstrap, f"{shape}-none-{mark}", shape, count, list(READERS), rounds)
        stock = rates["stock"][0] if shape == "json" else stock
        report(shape, "none", rates, stock)
    for shape in [shape for shape in ("keys", "json") if f"scaling-{shape}" in shapes]:
        load(bootstrap, f"{shape}-scaling-{mark}", shape, "none", records)
        scaling(bootstrap, f"{shape}-scaling-{mark}", shape, records, 3 * rounds)
    if "codecs" in shapes:
        for codec in CODECS[1:]:
            load(bootstrap, f"json-{codec}-{mark}", "json", codec, records)
            rates = measure(bootstrap, f"json-{codec}-{mark}", "json", records, ["ours", "ceiling", "wide"], rounds)
            report("json", codec, rates, stock)


if __name__ == "__main__":
    main()
