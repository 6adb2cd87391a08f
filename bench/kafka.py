"""Records per second from a real broker into an open sketch, against a limit and three peers in the same run.

In: a Kafka of its own on loopback (or `--bootstrap`), filled by confluent-kafka in another process. Out: medians, and
ratios within rounds with their quartiles, on standard output. Touches: Java, free ports, a temporary directory.

Measured end to end by the wall clock, over the last two thirds of the records: poll, decode, hash, update a sketch
with 2^20 slots. Beside it the processor time of the reading process and of the broker. One process, one topic:
    raw        the limit: a socket, one Fetch on its way while the checksums of the last one are computed, one buffer,
               heads counted; no group, no positions, no records
    confluent  confluent-kafka's consume(500), value() and key(), nothing done with them: fetch.queue.backoff.ms = 5
               (the default of 1,000 makes it idle), checksums on as everywhere here, assigned after its metadata
    bare       the same without value() and key(): messages counted
    wide       kafka-python with reads of 256 KiB from the socket, batches counted after their checksums
    stock      kafka-python's poll(500), doing nothing with its records; of one in twenty, it takes minutes for all
Rounds are interleaved; each round makes a consumer of its own, connected before the clock starts. A rate of a shared
machine means little, a ratio within one round more. With `--alone` (as root) a reader and its broker have the priority
of real-time processes while they are measured, and everything else has a second between two measurements.

Texts: `json`, flat, whose values have the same lengths in all of them, and the same with values of `varied` lengths;
`nested`, `text` (not ASCII), `floats`, `escapes` and `arrays`, the last two of which are read byte by byte where they
differ from the others.

Codecs: beside the raw reader
    decompressed  what decompressing alone allows one thread: the raw reader, which also decompresses each batch, to
                  the same memory
and, in one thread and from memory: decompressing alone; decoding and updating alone, without the table of records; the
whole path from responses in memory to an updated sketch: checksums, decompressing, tables, decoding, updating. Two
processors that nothing else needs, no socket and no broker, are at their limit with half of the whole path. Ours
decompress on two threads, so what one thread can do is no limit of theirs.

Scaling: one process with two partitions, and two with one each, which start together; all records over the time of the
slowest. The peer is the same with raw readers: what the broker and the processors leave to two. A process of ours keeps
more than one processor busy, so on few of them two cannot be twice as fast: the processors that are busy say how far
there was anything left.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
# this file would hide the client's package of the same name

PARTITIONS = 4
SCALING_PARTITIONS = 2
"""One each for two processes."""
ITEMS = 200_000
PACKED = 1_000
STOCK_SHARE = 20
TEXTS = ("json", "varied", "nested", "text", "floats", "escapes", "arrays")
SHAPES = ["keys", *TEXTS, "packed", "scaling-keys", "scaling-json", "codecs", "codecs-varied"]
CODECS = ("gzip", "snappy", "lz4", "zstd")
TARGETS = {  # (shape, peer): wall, processor
    ("keys", "raw"): (0.45, None),
    ("json", "raw"): (0.45, None),
    ("keys", "confluent"): (9, 12),
    ("json", "confluent"): (2.5, 3.5),
    ("json", "decompressed"): (0.8, None),
    ("varied", "decompressed"): (0.8, None),
    **{(shape, "bare"): (1.2, None) for shape in TEXTS[1:]},
}
REST_S = 1.0
ROOM_BYTES = 1 << 22
"""More than a batch of the load decompresses to."""
broker_pid: int | None = None
alone_wanted = False


@contextlib.contextmanager
def alone(*others: int) -> Iterator[None]:
    """With `--alone`: this process, the broker and others go before everything else meanwhile.

    Args:
        others: further processes.
    """

    def schedule(policy: int, priority: int) -> None:
        for pid in (os.getpid(), *([broker_pid] if broker_pid else []), *others):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))

    if not alone_wanted:
        yield
        return
    time.sleep(REST_S)
    schedule(os.SCHED_RR, 1)
    try:
        yield
    finally:
        schedule(os.SCHED_OTHER, 0)


# ------------------------------------------------------------------------------------------------- load

PADDED = {
    "json": '{"ts":%d,"user_id":"user-%011d","event":"click","page":"/home/%05d","n":1,"p":"%s"}',
    "varied": '{"ts":%d,"user_id":"user-%d","event":"click","page":"/home/%d","n":1,"p":"%s"}',
    "nested": '{"ts":%d,"user":{"id":"user-%011d","plan":"free"},"page":{"path":"/home/%05d","n":1},"p":"%s"}',
    "text": '{"ts":%d,"user_id":"user-%011d","city":"Z\u00fcrich","page":"/h\u00f4me/%05d","n":1,"p":"%s"}',
    "floats": '{"ts":%d,"user_id":"user-%011d","price":12.50,"lat":-47.3769,"page":"/%05d","p":"%s"}',
    "escapes": '{"ts":%d,"user_id":"user-%011d","said":"\\"yes\\"\\n","page":"\\/home\\/%05d","n":1,"p":"%s"}',
    "arrays": '{"ts":%d,"user_id":"user-%011d","tags":["a","bc",[1,2.5e3]],"page":"/home/%05d","p":"%s"}',
}
"""Texts of about 100 bytes, filled up to that by their last field."""


def produce(bootstrap: str, topic: str, shape: str, codec: str, records: int, partitions: int) -> None:
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
        elif shape in PADDED:
            fields = (base + n, ids[n], n % 99_991)
            size = len((PADDED[shape] % (*fields, "")).encode())
            value = (PADDED[shape] % (*fields, "x" * max(0, 100 - size))).encode()
        else:
            value = payloads[n % 64]
        while True:
            try:
                producer.produce(topic, value, key, partition=(n if key is None else n >> 6) % partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if n % 4096 == 0:
            producer.poll(0)
    producer.flush(120)


def load(bootstrap: str, topic: str, shape: str, codec: str, records: int, partitions: int = PARTITIONS) -> None:
    """A topic filled by another process."""
    from kafka import KafkaAdminClient
    from kafka.admin import NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, partitions, 1)])
    admin.close()
    command = [sys.executable, __file__, "--produce", bootstrap, topic, shape, codec, str(records), str(partitions)]
    subprocess.run(command, check=True)


# ------------------------------------------------------------------------------------------------- cost


class Cost:
    """Seconds a record by the wall clock, of this process's processors, and of the broker's (NaN where it is not ours).

    The clock starts with the first third behind it, for what a reader allocates at first it uses again afterwards; from
    the beginning where one answer brings everything.
    """

    def __init__(self, records: int) -> None:
        self.records = records
        self.wall = self.cpu = self.broker = float("nan")
        self._from = 0
        self._begun = self.now()

    def seen(self, records: int) -> bool:
        """So many have come; whether more are to come."""
        if records < self.records:
            if self._from == 0 and records >= self.records // 3:
                self._from, self._begun = records, self.now()
            return True
        self.wall, self.cpu, self.broker = (self.now() - self._begun) / (records - self._from)
        return False

    @staticmethod
    def now() -> np.ndarray:
        """Seconds by the wall clock, of this process's processors, and of the broker's."""
        broker = float("nan")
        if broker_pid is not None:
            fields = Path(f"/proc/{broker_pid}/stat").read_text().rpartition(")")[2].split()
            broker = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return np.array([time.perf_counter(), time.process_time(), broker])


# ---------------------------------------------------------------------------------------------- readers


class RawReader:
    """The limit: nothing but the protocol, in as few steps as Python has for it.

    Args:
        bootstrap: bootstrap of a broker that leads all partitions.
        topic: uncompressed or not, its batches are only counted.
        partitions: read from their beginnings, with responses as long as ours.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: Sequence[int]) -> None:
        from sketchstream.config import kafka_settings

        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.topic = topic.encode()
        self.positions = dict.fromkeys(partitions, 0)
        self.share = kafka_settings.partition_share(kafka_settings.PARTITION_FETCH_BYTES, len(partitions))
        self.buffer = memoryview(bytearray(1 << 26))
        self.head = memoryview(bytearray(4))
        self.requests = 0

    def ask(self) -> None:
        """Fetch, version 11, without a session."""
        self.requests += 1
        entries = b"".join(struct.pack(">iiqqi", p, -1, at, -1, self.share) for p, at in self.positions.items())
        body = struct.pack(">hhih3s", 1, 11, self.requests, 3, b"raw")
        body += struct.pack(">iiiibii", -1, 500, 1, 50 << 20, 0, 0, -1)
        body += struct.pack(">ih", 1, len(self.topic)) + self.topic + struct.pack(">i", len(self.positions)) + entries
        body += struct.pack(">ih", 0, 0)
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def fill(self, view: memoryview) -> memoryview:
        """As many bytes."""
        filled = 0
        while filled < len(view):
            got = self.socket.recv_into(view[filled:])
            assert got
            filled += got
        return view

    def read(
        self, records: int, keep: list[bytes] | None = None, decompress: Callable[[int, memoryview], None] | None = None
    ) -> Cost:
        """Count so many records.

        Args:
            records: to read.
            keep: collects what the partitions' fields hold.
            decompress: is given each compressed batch: its codec, its bytes.
        """
        from crc32c import crc32c

        from sketchstream_connectors.kafka.fetch import record_kernels as kernels
        from sketchstream_connectors.kafka.fetch.fetch_responses import read_response

        seen = 0
        cost = Cost(records)
        self.ask()
        while cost.seen(seen):
            size = int.from_bytes(self.fill(self.head), "big")
            correlation, response = read_response(self.fill(self.buffer[:size]), 11)
            assert correlation == self.requests
            found = []
            for part in response.responses[0].partitions:
                assert part.error_code == 0
                data = np.frombuffer(part.records, dtype=np.uint8)
                heads = np.zeros((kernels.count_batches(data), kernels.COLUMNS), dtype=np.int64)
                kernels.read_heads(data, heads)
                if len(heads):
                    self.positions[part.partition_index] = int(
                        heads[-1, kernels.BASE_OFFSET] + heads[-1, kernels.LAST_DELTA] + 1
                    )
                    seen += int(heads[:, kernels.COUNT].sum())
                    found.append((part.records, heads.tolist()))
            if seen < records:
                self.ask()  # on its way while checksums are computed
            for view, heads_ in found:
                for head in heads_:
                    assert crc32c(view[head[0] + 21 : head[1]]) == head[kernels.CRC]
                    codec = head[kernels.ATTRIBUTES] & 7
                    if decompress is not None and codec:
                        decompress(codec, view[head[0] + kernels.HEAD_BYTES : head[1]])
                if keep is not None:
                    keep.append(bytes(view))
        return cost

    def close(self) -> None:
        """End."""
        self.socket.close()


def read_raw(bootstrap: str, topic: str, records: int, _decoder: Any) -> Cost:
    """The limit."""
    reader = RawReader(bootstrap, topic, range(PARTITIONS))
    cost = reader.read(records)
    reader.close()
    return cost


def read_decompressed(bootstrap: str, topic: str, records: int, _decoder: Any) -> Cost:
    """What decompressing alone allows one thread: the raw reader, which also decompresses each batch."""
    from sketchstream_connectors.kafka.fetch.compression import Decompressor

    decompressor, room = Decompressor(), memoryview(bytearray(ROOM_BYTES))
    reader = RawReader(bootstrap, topic, range(PARTITIONS))
    cost = reader.read(records, decompress=lambda codec, view: decompressor.decompress(codec, view, 0, room))
    reader.close()
    return cost


def client_consumer(bootstrap: str, topic: str, share: Sequence[int] = range(PARTITIONS)) -> Any:
    """kafka-python with the settings of our worker, at the beginning of its partitions, connected."""
    from kafka import TopicPartition

    from sketchstream_connectors.kafka.cluster.client import Connection

    consumer = Connection({"bootstrap.servers": bootstrap, "group.id": "bench"}).consumer(group_id=None)
    partitions = [TopicPartition(topic, p) for p in share]
    consumer.assign(partitions)
    to_beginning(consumer, partitions)
    return consumer


def to_beginning(consumer: Any, partitions: list[Any]) -> None:
    """Go to the beginning of these partitions, with their metadata."""
    for partition in partitions:
        consumer.seek(partition, 0)
    consumer.end_offsets(partitions)


def read_stock(bootstrap: str, topic: str, records: int, _decoder: Any) -> Cost:
    """poll(500), nothing done."""
    consumer = client_consumer(bootstrap, topic)
    cost = Cost(max(records // STOCK_SHARE, 1))
    seen = 0
    while cost.seen(seen):
        for polled in consumer.poll(1000, max_records=500).values():
            seen += len(polled)
    consumer.close()
    return cost


def counting_records() -> type:
    """Whole batches after the checksum, counted."""
    from crc32c import crc32c
    from kafka.consumer.fetcher import Fetcher

    from sketchstream_connectors.kafka.fetch import record_kernels as kernels

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


def read_wide(bootstrap: str, topic: str, records: int, _decoder: Any) -> Cost:
    """kafka-python whose connections read 256 KiB at once instead of 4: the definition of this peer is frozen."""

    def wide(transport: Any) -> Any:
        transport._sock_recv = lambda: receive(transport._sock)
        return transport

    async def build_transport(*arguments: Any, **options: Any) -> Any:
        return wide(await build(*arguments, **options))

    consumer = client_consumer(bootstrap, topic)
    manager = consumer._manager
    build, manager._build_transport = manager._build_transport, build_transport
    for connection in list(manager._conns.values()):
        wide(connection.transport)
    consumer._fetcher.PartitionRecords = counting_records()
    cost = Cost(records)
    seen = 0
    while cost.seen(seen):
        for polled in consumer.poll(1000).values():
            seen += sum(entry.records for entry in polled)
    consumer.close()
    return cost


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


def read_confluent(bootstrap: str, topic: str, records: int, _decoder: Any, *, bare: bool = False) -> Cost:
    """consume(500) at its best."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer({**settings, "fetch.queue.backoff.ms": 5, "check.crcs": True})
    consumer.list_topics(topic, timeout=10)
    cost = Cost(records)
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    seen = 0
    while cost.seen(seen):
        messages = consumer.consume(500, 1.0)
        seen += len(messages)
        if not bare:
            for message in messages:
                message.value()
                message.key()
    consumer.close()
    return cost


def our_consumer(bootstrap: str, topic: str, share: Sequence[int] = range(PARTITIONS)) -> Any:
    """With our path attached."""
    from sketchstream_connectors.kafka.fetch import fetch_patch

    consumer = client_consumer(bootstrap, topic, share)
    assert fetch_patch.attach(consumer, "raw") == "raw"
    return consumer


def read_ours(bootstrap: str, topic: str, records: int, decoder: Any) -> Cost:
    """Poll, decode, hash, update."""
    consumer = our_consumer(bootstrap, topic)
    cost = update_all(consumer, records, decoder)
    consumer.close()
    return cost


def update_all(consumer: Any, records: int, decoder: Any) -> Cost:
    """All of them into a new sketch."""
    sketch = new_sketch()
    cost = Cost(records)
    seen = 0
    while cost.seen(seen):
        for polled in consumer.poll(1000, max_records=16).values():  # as the worker
            for batch in polled:
                update(sketch, decoder.decode(batch))
                seen += len(batch)
    return cost


def new_sketch() -> Any:
    """The sketch that everything is counted into."""
    import sketchstream as ss

    spec = ss.ProfileSpec(epsilon="1", domain=ss.OpenDomain(slots=2**20, levels=8))
    return ss.Sketch.create(spec, ss.Key.generate())


def update(sketch: Any, decoded: Any) -> None:
    """Count what was decoded."""
    if decoded.valid.all():
        sketch.update(decoded.items, decoded.weights)
    else:
        items, weights = decoded.items.take(decoded.valid), decoded.weights
        sketch.update(items, None if weights is None else weights[decoded.valid])


READERS: dict[str, Callable[[str, str, int, Any], Cost]] = {
    "ours": read_ours,
    "raw": read_raw,
    "decompressed": read_decompressed,
    "wide": read_wide,
    "confluent": read_confluent,
    "bare": partial(read_confluent, bare=True),
    "stock": read_stock,
}


# --------------------------------------------------------------------------------------------- scaling


def member(bootstrap: str, topic: str, shape: str, role: str, index: int, members: int, records: int) -> None:
    """One of the processes: says when it is connected, and prints how long it took whenever it is told to go."""
    decoder = decoder_for(shape)
    share = range(index, SCALING_PARTITIONS, members)
    consumer = None
    if role == "ours":
        consumer = our_consumer(bootstrap, topic, share)
        update_all(consumer, 1, decoder)  # compiled loops
    print("ready", flush=True)
    for _ in sys.stdin:
        if consumer is not None:
            to_beginning(consumer, list(consumer.assignment()))
        reader = RawReader(bootstrap, topic, share) if consumer is None else None
        print("set", flush=True)
        sys.stdin.readline()
        if reader is None:
            cost = update_all(consumer, records // members, decoder)
        else:
            cost = reader.read(records // members)
            reader.close()
        print(cost.wall * (records // members), cost.cpu / cost.wall, flush=True)


class Group:
    """So many processes, which read their shares of a topic when they are told to."""

    def __init__(self, bootstrap: str, topic: str, shape: str, role: str, members: int, records: int) -> None:
        command = [sys.executable, __file__, "--member", bootstrap, topic, shape, role]
        self.children = [
            subprocess.Popen(
                [*command, str(index), str(members), str(records)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for index in range(members)
        ]
        assert self._hear() == ["ready\n"] * members

    def _say(self, word: str) -> None:
        for child in self.children:
            assert child.stdin is not None
            child.stdin.write(word + "\n")

    def _hear(self) -> list[str]:
        return [child.stdout.readline() for child in self.children if child.stdout is not None]

    def read(self) -> tuple[float, float]:
        """Seconds until the slowest has read its share; processors that they and the broker kept busy."""
        self._say("on your marks")
        assert self._hear() == ["set\n"] * len(self.children)
        with alone(*(child.pid for child in self.children)):
            before = Cost.now()
            self._say("go")
            seconds, busy = zip(*(map(float, line.split()) for line in self._hear()), strict=True)
            wall, _, broker = Cost.now() - before
            return max(seconds), sum(busy) + (broker / wall if broker == broker else 0.0)

    def close(self) -> None:
        """End the processes."""
        for child in self.children:
            child.kill()
            child.communicate()


def scaling(bootstrap: str, topic: str, shape: str, records: int, rounds: int) -> None:
    """One and two processes, ours and raw readers, in turn in every round; ratios are of one round's rates."""
    cases = [(role, members) for role in ("ours", "raw") for members in (1, 2)]
    groups: dict[tuple[str, int], Group] = {}
    rates = {case: np.zeros(rounds) for case in cases}
    busy = {case: np.zeros(rounds) for case in cases}
    try:
        for role, members in cases:
            groups[role, members] = Group(bootstrap, topic, shape, role, members, records)
        for group in groups.values():
            group.read()
        for turn in range(rounds):
            for case in cases if turn % 2 else cases[::-1]:
                seconds, busy[case][turn] = groups[case].read()
                rates[case][turn] = records / seconds / 1e6
    finally:
        for group in groups.values():
            group.close()
    gains = {role: rates[role, 2] / rates[role, 1] for role in ("ours", "raw")}
    for role, gain in gains.items():
        one, two = (float(np.median(rates[role, members])) for members in (1, 2))
        print(f"{shape:8s} scaling {role:5s} {one:7.3f} M records/s by one process, {two:7.3f} by two   {spread(gain)}")
        one, two = (float(np.median(busy[role, members])) for members in (1, 2))
        print(f"{shape:8s} scaling {role:5s} {one:7.2f} processors busy, the broker's too, {two:7.2f} with two")
    print(f"{shape:8s} scaling of ours = {spread(gains['ours'] / gains['raw'])} that of raw readers   (target 0.75)")


def spread(ratios: np.ndarray) -> str:
    """Median and quartiles of ratios within rounds."""
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return f"{median:.2f} x ({low:.2f} to {high:.2f})"


# ------------------------------------------------------------------------------------------------ main


def decoder_for(shape: str) -> Any:
    from sketchstream_connectors.decode.decoder import Decoder

    if shape == "keys":
        return Decoder(format="key")
    if shape in TEXTS:
        return Decoder(item="user.id" if shape == "nested" else "user_id", time="ts")
    return Decoder(format="packed", item_type="int")


Costs = dict[str, np.ndarray]
"""(rounds, 3) of each reader: seconds a record by the wall clock, of its process, of the broker."""


def measure(bootstrap: str, topic: str, shape: str, records: int, readers: list[str], rounds: int) -> Costs:
    """What a record costs each reader, rounds interleaved."""
    decoder = decoder_for(shape)
    costs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in readers}
    read_ours(bootstrap, topic, records, decoder)  # compiled loops, page cache
    for turn in range(rounds):
        for name in readers if turn % 2 else readers[::-1]:
            gc.collect()
            with alone():
                cost = READERS[name](bootstrap, topic, records, decoder)
            costs[name].append((cost.wall, cost.cpu, cost.broker))
    return {name: np.array(values) for name, values in costs.items()}


def report(shape: str, codec: str, costs: Costs) -> None:
    """One line a reader."""
    ours = costs["ours"]
    for name, cost in costs.items():
        wall, cpu, broker = np.median(cost, axis=0)
        best = 1e-6 / cost[:, 0].min()
        line = f"{shape:8s} {codec:7s} {name:10s} {1e-6 / wall:7.3f} M records/s (best {best:.3f}), processors"
        line += f" {1e9 * cpu:4.0f} ns a record"
        line += f", broker {1e9 * broker:4.0f}" if broker == broker else ""
        if name != "ours":
            target, cpu_target = (
                TARGETS.get((shape, name), (None, None)) if codec == "none" or name == "decompressed" else (None, None)
            )
            line += f"   ours = {spread(cost[:, 0] / ours[:, 0])}" + (f" (target {target})" if target else "")
            line += f", processors {spread(cost[:, 1] / ours[:, 1])}" + (
                f" (target {cpu_target})" if cpu_target else ""
            )
        print(line, flush=True)
    if shape == "packed":
        print(f"{shape:8s} {codec:7s} {'updates':10s} {1e-6 * PACKED / np.median(ours[:, 0]):7.1f} M updates/s")


def alone_in_memory(
    bootstrap: str, topic: str, records: int, rounds: int, decoder: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds a record, in one thread, of what compressed batches need at least, everything in memory before.

    Returns:
        Decompressing alone, each batch to the same memory; decoding what came out, hashing and updating a sketch alone,
        its table made before; and all of it, with checksums and tables. The last two with about a million records.
    """
    from sketchstream_connectors.kafka.fetch import record_kernels as kernels
    from sketchstream_connectors.kafka.fetch.compression import Decompressor
    from sketchstream_connectors.kafka.fetch.record_batch import read_batches

    reader, kept = RawReader(bootstrap, topic, range(PARTITIONS)), []
    reader.read(records, kept)
    reader.close()
    batches = []
    for data in kept:
        array = np.frombuffer(data, dtype=np.uint8)
        heads = np.zeros((kernels.count_batches(array), kernels.COLUMNS), dtype=np.int64)
        kernels.read_heads(array, heads)
        for head in heads.tolist():
            batches.append((head[kernels.ATTRIBUTES] & 7, memoryview(data)[head[0] + kernels.HEAD_BYTES : head[1]]))
    compressed = [(codec, view) for codec, view in batches if codec]  # a producer sends what does not shrink as it is
    decompress = Decompressor().decompress
    room = memoryview(bytearray(max(len(decompress(codec, view, 0)) for codec, view in compressed) + 1))
    pieces: list[Any] = []
    responses = 0
    while sum(map(len, pieces)) < 1_000_000 and responses < len(kept):
        pieces += read_batches(kept[responses], 0)
        responses += 1
    decoded = sum(map(len, pieces))
    sketch = new_sketch()
    taken = np.zeros((3, rounds + 1))  # a first round for memory that is touched for the first time
    for turn in range(rounds + 1):
        with alone():
            begun = time.perf_counter()
            for codec, view in compressed:
                decompress(codec, view, 0, room)
            taken[0, turn] = (time.perf_counter() - begun) / records
            begun = time.perf_counter()
            for piece in pieces:
                update(sketch, decoder.decode(piece))
            taken[1, turn] = (time.perf_counter() - begun) / decoded
            begun = time.perf_counter()
            for piece in itertools.chain.from_iterable(read_batches(data, 0) for data in kept[:responses]):
                update(sketch, decoder.decode(piece))
            taken[2, turn] = (time.perf_counter() - begun) / decoded
    return taken[0, 1:], taken[1, 1:], taken[2, 1:]


def codecs(bootstrap: str, shape: str, mark: str, records: int, rounds: int, chosen: list[str]) -> None:
    """Texts in each codec, beside what decompressing and decoding take by themselves."""
    for codec in chosen:
        topic = f"{shape}-{codec}-{mark}"
        load(bootstrap, topic, shape, codec, records)
        costs = measure(bootstrap, topic, shape, records, ["ours", "raw", "decompressed"], rounds)
        report(shape, codec, costs)
        bare, decoding, path = alone_in_memory(bootstrap, topic, records, rounds, decoder_for(shape))
        ours = costs["ours"][:, 0]
        for what, limit in (
            ("decompressing alone", bare),
            ("decoding alone", decoding),
            ("the whole path", path),
            ("it on two processors", path / 2),
        ):
            rate = 1e-6 / np.median(limit)
            print(
                f"{shape:8s} {codec:7s} {what:24s} {rate:7.3f} M records/s   ours = {spread(limit / ours)}", flush=True
            )
        for what, limit in (
            ("decompressing alone", bare),
            ("the reader that decompresses", costs["decompressed"][:, 0]),
        ):
            most = np.median(2 * limit / path)
            print(f"{shape:8s} {codec:7s} two processors could reach {most:.2f} x {what}, at most", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, three rounds")
    parser.add_argument("--records", type=int, help="records a topic (default 3,000,000; twice as many keys)")
    parser.add_argument("--rounds", type=int, help="rounds (default 5)")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES, help="some of the parts")
    parser.add_argument("--codecs", nargs="+", choices=CODECS, default=list(CODECS), help="some of the codecs")
    parser.add_argument("--readers", nargs="+", choices=list(READERS), help="some of the peers beside ours")
    parser.add_argument("--alone", action="store_true", help="measure with real-time priority (as root)")
    parser.add_argument("--bootstrap", help="a broker that runs already")
    parser.add_argument("--produce", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("--member", nargs=7, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member:
        bootstrap, topic, shape, role, index, members, count = options.member
        member(bootstrap, topic, shape, role, int(index), int(members), int(count))
        return
    if options.produce:
        bootstrap, topic, shape, codec, count, partitions = options.produce
        produce(bootstrap, topic, shape, codec, int(count), int(partitions))
        return
    global alone_wanted, broker_pid
    alone_wanted = options.alone
    with contextlib.ExitStack() as stack:
        bootstrap = options.bootstrap
        if bootstrap is None:
            from helpers.kafka.devbroker import DevCluster

            cluster = stack.enter_context(DevCluster(1, quick=False, heap="1g"))
            bootstrap = cluster.bootstrap
            process = next(iter(cluster.nodes.values())).process
            assert process is not None
            broker_pid = process.pid
        records = options.records or (300_000 if options.quick else 3_000_000)
        rounds = options.rounds or (3 if options.quick else 5)
        readers = None if options.readers is None else ["ours", *(name for name in options.readers if name != "ours")]
        run(bootstrap, records, rounds, options.shapes, options.codecs, readers)


def run(
    bootstrap: str, records: int, rounds: int, shapes: list[str], chosen: list[str], wanted: list[str] | None
) -> None:
    """All shapes and codecs that are asked for."""
    mark = f"{os.getpid()}"
    print(f"{PARTITIONS} partitions, medians of {rounds} rounds, ratios within rounds (quartiles)", flush=True)
    for shape in [shape for shape in ("keys", *TEXTS, "packed") if shape in shapes]:
        count = {"keys": 2 * records, "packed": max(records // 100, 2_000)}.get(shape, records)
        load(bootstrap, f"{shape}-none-{mark}", shape, "none", count)
        peers = [name for name in READERS if name != "decompressed"]
        readers = wanted or (peers if shape in ("keys", "json", "packed") else ["ours", "raw", "bare"])
        report(shape, "none", measure(bootstrap, f"{shape}-none-{mark}", shape, count, readers, rounds))
    for shape in [shape for shape in ("keys", "json") if f"scaling-{shape}" in shapes]:
        count = 2 * records if shape == "keys" else records
        count -= count % (64 * PARTITIONS)  # as many in each share
        load(bootstrap, f"{shape}-scaling-{mark}", shape, "none", count, SCALING_PARTITIONS)
        scaling(bootstrap, f"{shape}-scaling-{mark}", shape, count, 2 * rounds)
    for shape, name in (("json", "codecs"), ("varied", "codecs-varied")):
        if name in shapes:
            codecs(bootstrap, shape, mark, records, rounds, chosen)


if __name__ == "__main__":
    main()
