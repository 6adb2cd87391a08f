"""One application under test: its topics, its load, its workers as processes, and what came out of it.

In: a cluster, a folder, a configuration. Out: published bodies and how they compare with what was sent. Touches:
processes of its own (each in its own folder and process group), topics of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from helpers.kafka.applied import complaints
from helpers.kafka.worker_nest import Forked, Nest
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError
from sketchstream.published import Release, SealedState, read_published
from sketchstream.stream.input.partitioner import items_kept
from sketchstream.stream.interfaces import Frontier, SealedEntry
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.kafka.cluster import topics
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.log_reader import Log
from sketchstream_connectors.kafka.publishing.sealed import KafkaSealedSource, read_key

MINUTE = 60_000
AT_ONCE = 'lateness = "5s"\nquorum = 1\nquorum_time = "1ms"\nmax_ahead = "1h"'
"""Every record moves the watermark, so that one closes a window."""
QUICK = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000, "max.poll.interval.ms": 20000}
MISSED_SOON = {"session.timeout.ms": 3000, "heartbeat.interval.ms": 500}
"""For tests that wait until the group misses a worker."""

Truth = Mapping[int, Counter]  # window start -> occurrences by item


_NESTING = threading.Lock()


def nest() -> Nest:
    """The process that forks workers, one for the whole run of the tests; two runs of faults may ask at once."""
    with _NESTING:
        return _nest()


@functools.cache
def _nest() -> Nest:
    made = Nest()
    atexit.register(made.close)
    return made


class Nobody:
    """A worker in no group."""

    def __init__(self, group: str) -> None:
        self.group = group

    def group_metadata(self) -> object:
        from kafka import ConsumerGroupMetadata

        return ConsumerGroupMetadata(self.group, -1, "", None)

    def epoch(self, partition: int) -> int:
        return -1

    def expect_epoch(self, partition: int, epoch: int) -> None:
        pass

    def mark_fenced(self, error: Exception) -> None:
        raise AssertionError(error)


@dataclass
class Worker:
    """A worker process."""

    name: str
    process: subprocess.Popen | Forked
    log: Path

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def terminate(self, timeout_s: float = 60) -> int:
        os.killpg(self.process.pid, signal.SIGTERM)
        return self.process.wait(timeout_s)

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGCONT)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def says(self, text: str) -> int:
        return self.log.read_text(errors="replace").count(text)


@dataclass
class App:
    """See the room card."""

    bootstrap: str
    folder: Path
    partitions: int = 4
    replication: int = 1
    snapshot_every: str = "1s"
    sketch: str = 'epsilon = "30"\ndomain = { size = 500 }\nmax_count = 300'
    window: str = "1m"
    input: str = f'item_type = "int"\nitem = "u"\ntime = "ts"\n{AT_ONCE}\nidle = "off"'
    kafka: Mapping[str, object] = field(default_factory=dict)
    input_topic: Mapping[str, object] | None = None
    key: bool = False
    extra: str = ""
    form: str = "json"
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.group = "app-" + secrets.token_hex(4)
        self.topic = "events-" + secrets.token_hex(4)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config_file = self.folder / "sketchstream.toml"
        if self.key:
            from sketchstream.items.key import Key

            Key.generate().save(self.folder / "key")
        self.write()
        self.connection = Connection({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        with self.connection.admin.client("creating the input") as admin:
            # event times are the records' timestamps, and years old: retention by time would trim them at once
            settings = {"retention.ms": "-1"}
            topic = {"num_partitions": self.partitions, "replication_factor": self.replication, "configs": settings}
            admin.create_topics({self.topic: self.input_topic or topic})
            admin.wait_for_topics([self.topic])
        self._create_others()
        self.truth: defaultdict[int, Counter] = defaultdict(Counter)

    def _create_others(self) -> None:
        """Our topics, once the input is known: a broker that was started a moment ago may hear of it late."""
        deadline = time.monotonic() + 60
        while True:
            try:
                topics.create(self.connection, self.names, replication=self.replication)
            except ConfigError as error:
                if "does not exist" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    @property
    def names(self) -> topics.TopicNames:
        return topics.TopicNames(self.group, self.topic, sealed=f"{self.group}.sealed")

    @property
    def config(self) -> Config:
        return Config.load(self.config_file)

    def write(self) -> None:
        options = {"bootstrap.servers": self.bootstrap, "group.id": self.group, **QUICK, **self.kafka}
        lines = "\n".join(f'"{name}" = {json.dumps(value)}' for name, value in options.items())
        key = '[key]\nfile = "key"\n' if self.key else ""
        own = self.sketch.partition("[[sketch]]")[0]
        unit = "" if "kind =" in own or "unit =" in own else "unit = 'event'\n"
        self.config_file.write_text(
            f"[kafka]\n{lines}\n[input]\ntopic = '{self.topic}'\nformat = '{self.form}'\npartitioned_by = 'item'\n"
            "partitioner = 'murmur2'\n"
            f"{self.input}\n"
            f"{key}[store]\nsnapshot_every = '{self.snapshot_every}'\n{self.extra}\n"
            f"[[sketch]]\nname = 'seen'\n{unit}window = '{self.window}'\n{self.sketch}\n"
        )

    # ------------------------------------------------------------------------------------------- workers

    def start(
        self,
        name: str | None = None,
        *,
        options: Sequence[str] = (),
        fault: Sequence[str] = (),
        altered: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> Worker:
        """A worker process in a folder and process group of its own.

        Args:
            name: name of its folder.
            options: options of `sketchstream worker`, further ones.
            fault: step, times and kind, see `faulty_worker`.
            altered: what is different from a usual worker, see `altered_worker`.
            fresh: started as a shell would, in place of forked off a process that has everything imported.
        """
        name = name or f"w{len(self.workers)}"
        home = self.folder / name
        home.mkdir(exist_ok=True)
        log = home / f"{secrets.token_hex(3)}.log"
        arguments = ["worker", *options, "-c", str(self.config_file)]
        if fresh:
            assert not fault
            assert not altered
            with log.open("w") as output:
                process: subprocess.Popen | Forked = subprocess.Popen(
                    [sys.executable, "-m", "sketchstream.cli", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=home,
                    start_new_session=True,
                )
        else:
            log.touch()
            process = nest().fork(arguments, home, log, fault, altered)
        worker = Worker(name, process, log)
        self.workers.append(worker)
        return worker

    def close(self) -> None:
        """End every process that is left."""
        for worker in self.workers:
            if worker.alive:
                worker.wake()
                worker.kill()
        self.connection.close()

    def said(self) -> str:
        """What every worker said, without the client's chatter."""
        return "\n".join(map(_telling, (worker.log.read_text(errors="replace") for worker in self.workers)))

    def logs(self) -> str:
        """What every worker said, and where those stand that are alive: for a test that gives up.

        Python reads the frames of running threads for it without stopping them, and that can end the worker.
        """
        told = [worker.log.read_text(errors="replace") for worker in self.workers]
        standing = [w for w in self.workers if w.alive and isinstance(w.process, Forked)]
        for worker in standing:
            os.kill(worker.process.pid, signal.SIGUSR1)
        time.sleep(1.0 if standing else 0.0)
        parts = []
        for worker, said in zip(self.workers, told, strict=True):
            stands = worker.log.read_text(errors="replace")[len(said) :]
            parts.append(
                f"--- {worker.name}{' (alive)' if worker.alive else ''}\n{_telling(said)[-8_000:]}\n{stands[-4_000:]}"
            )
        return "\n".join(parts)

    def wait_running(self, worker: Worker, partitions: int | None = None, timeout_s: float = 60) -> None:
        """Until a worker has begun to read so many partitions, by default all."""
        deadline = time.monotonic() + timeout_s
        while worker.says("event=running") < (partitions or self.partitions):
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.05)

    def wait_committed(self, timeout_s: float = 60) -> dict[int, int]:
        """Until all records of the input are in committed snapshots; returns the positions of its partitions' ends."""
        ends = self.connection.admin.offsets(self.topic, range(self.partitions), "latest")
        deadline = time.monotonic() + timeout_s
        while {tp.partition: at.offset for tp, at in self.connection.admin.committed(self.group).items()} != ends:
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.1)
        return ends

    # ---------------------------------------------------------------------------------------------- load

    def load(self, *, stamped: bool = True, linger_ms: int = 5) -> Load:
        return Load(self, stamped=stamped, linger_ms=linger_ms)

    # ------------------------------------------------------------------------------------------- results

    def frontiers(self) -> dict[int, Frontier]:
        source = KafkaSealedSource(self.connection, f"{self.group}.sealed")
        try:
            return {f.partition: f for f in source.frontiers()}
        finally:
            source.close()

    def wait_published(
        self, through: int, timeout_s: float = 120, sketches: Iterable[str] = ("seen",), revision: int | None = None
    ) -> None:
        """Until every partition has published these sketches through that time, under that revision or any."""
        wanted = [(name, p) for name in sketches for p in range(self.partitions)]
        source = KafkaSealedSource(self.connection, f"{self.group}.sealed")
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                found = {
                    (f.sketch, f.partition): f.published_through
                    for f in source.frontiers()
                    if revision is None or f.revision == revision
                }
                behind = [place for place in wanted if found.get(place, NO_TIME) < through]
                if not behind:
                    return
                if time.monotonic() > deadline:
                    msg = f"{behind} are behind {through}: {found}\n{self.logs()}"
                    raise AssertionError(msg)
                time.sleep(0.2)
        finally:
            source.close()

    def entries(self) -> list[SealedEntry]:
        source = KafkaSealedSource(self.connection, f"{self.group}.sealed")
        try:
            return [one for one in source.read("seen") if isinstance(one, SealedEntry)]
        finally:
            source.close()

    def check_publications(self) -> list[SealedEntry]:
        """One seal and one lineage a window and partition; every repetition byte-identical. Returns each once."""
        log, copies = Log(self.connection, f"{self.group}.sealed"), defaultdict(set)
        for record in log.advance():
            key = read_key(record.key)
            if key is not None and key.body is not None and key.body.final:
                place = (key.sketch, key.revision, key.body.window, key.partition)
                copies[place, key.number].add((record.key, record.value, tuple(record.headers)))
        log.close()
        for place, found in copies.items():
            assert len(found) == 1, f"{place}: {len(found)} different publications"
        entries = self.entries()
        assert len({e.key for e in entries}) == len(entries)
        seen: set[bytes] = set()
        for entry in entries:
            part = read_published(entry.body)
            assert isinstance(part, Release | SealedState)
            assert part.seal_id == entry.seal_id
            for layer in part.layers:
                assert layer.lineage not in seen, "one creation noise was published twice"
                seen.add(layer.lineage)
        return entries

    def check_exact(self, windows: Iterable[int] | None = None) -> None:
        """At epsilon 30: every window's cumulative histogram over all partitions is that of what was sent."""
        published: dict[int, dict[int, Release]] = defaultdict(dict)
        for entry in self.check_publications():
            part = read_published(entry.body)
            assert isinstance(part, Release)
            published[entry.window[0]][entry.partition] = part
        for start in sorted(self.truth if windows is None else windows):
            parts = published[start]
            assert parts, f"window {start} was not published"
            wrong = _wrong_edges(list(parts.values()), self.truth[start])
            if wrong:
                edge, want, have = wrong[0]
                msg = (
                    f"window {start}: items seen at least {edge} times: {have}, not {want}; "
                    f"{self.diagnosis(start, parts)}"
                )
                raise AssertionError(msg)

    def logged(self) -> dict[int, dict[int, Counter]]:
        """Occurrences by item in the log of the input, by partition and window."""
        log = Log(self.connection, self.topic)
        found: dict[int, dict[int, Counter]] = {p: defaultdict(Counter) for p in range(self.partitions)}
        for record in log.advance():
            event = json.loads(record.value)
            if event["u"] is not None:
                found[record.partition][event["ts"] - event["ts"] % MINUTE][event["u"]] += 1
        log.close()
        return found

    def believe_log(self) -> int:
        """Take for the truth what is in the log of the input; returns how many events are there more than once.

        For loads during which brokers end: a producer may write an event twice then, and loses none.
        """
        sent, self.truth = self.truth, defaultdict(Counter)
        for windows in self.logged().values():
            for start, counts in windows.items():
                self.truth[start] += counts
        missing = {start: lost for start, counts in sent.items() if (lost := counts - self.truth[start])}
        assert not missing, f"events that were acknowledged are not in the log: {missing}"
        return sum(map(Counter.total, self.truth.values())) - sum(map(Counter.total, sent.values()))

    def diagnosis(self, start: int, parts: Mapping[int, Release]) -> str:
        """Whose mistake a wrong window is: whether the log has what was sent, and each record was applied once.

        Args:
            start: start of the window.
            parts: what was published of it, by partition.
        """
        found = {partition: windows[start] for partition, windows in self.logged().items()}
        logged, sent = sum(found.values(), Counter()), self.truth[start]
        lines = [
            f"sent {sum(sent.values())}, in the log {sum(logged.values())}: {dict(logged - sent)} more, "
            f"{dict(sent - logged)} fewer"
        ]
        for partition, part in sorted(parts.items()):
            wrong = ", ".join(
                f"{edge}: {have - want:+d}" for edge, want, have in _wrong_edges([part], found[partition])
            )
            if wrong:
                lines.append(f"partition {partition} differs from its log at {wrong}")
        texts = [worker.log.read_text(errors="replace") for worker in self.workers]
        applied = complaints(texts) if any("event=applied" in text for text in texts) else ["chunks were not logged"]
        return "\n".join([*lines, *(applied or ["every record was applied once"])])

    def residuals(self, size: int, windows: Iterable[int]) -> np.ndarray:
        """With published states of a closed domain of ids: state minus truth, of every slot of every partition."""
        wanted, rest = set(windows), []
        plan = self.config.sketches[0]
        for entry in self.check_publications():
            if entry.window[0] not in wanted:
                continue
            part = read_published(entry.body)
            assert isinstance(part, SealedState)
            mask = items_kept(plan.spec.domain, "murmur2", self.partitions, entry.partition)
            ids = np.flatnonzero(mask)
            truth = np.array([self.truth[entry.window[0]][int(i)] for i in ids])
            assert part.state.size == ids.size
            rest.append(part.state.astype(np.int64) - truth)
        return np.concatenate(rest)

    def live_manifests(self) -> dict[int, int]:
        """Committed manifests by partition that are still in the state topic and in no committed pointer: must be 0."""
        from sketchstream_connectors.kafka.state.blobs import BlobReader
        from sketchstream_connectors.kafka.state.pointer import Pointer

        reader = BlobReader(self.connection, self.topic, self.names.state)
        pointers = {}
        for p in range(self.partitions):
            committed = reader.committed(p)
            assert committed is not None
            pointers[p] = Pointer.from_text(committed.metadata)
        reader.close()
        log, manifests = Log(self.connection, self.names.state), defaultdict(list)
        for record in log.advance():
            if record.key[10:11] == b"m":
                manifests[record.partition].append(record.key[11:])
        log.close()
        return {p: sum(name == pointers[p].snapshot_id for name in set(manifests[p])) for p in pointers}


def _telling(said: str) -> str:
    """A log without the client's chatter."""
    return "\n".join(line for line in said.splitlines() if " kafka.net." not in line)


def _wrong_edges(parts: Sequence[Release], truth: Mapping[object, int]) -> list[tuple[int, int, int]]:
    """Where the cumulative histogram of all parts is not that of these counts: edge, expected, found."""
    counts = np.array(list(truth.values()) or [0])
    got = np.sum([part.values for part in parts], axis=0)
    expected = [
        (edge, int((counts >= edge).sum()), have)
        for edge, have in zip(parts[0].edges.tolist(), got.tolist(), strict=True)
    ]
    return [(edge, want, have) for edge, want, have in expected if edge > 0 and want != have]


def wait_forgotten(connection: Connection, timeout_s: float = 60) -> None:
    """Until the group has no members."""
    deadline = time.monotonic() + timeout_s
    while connection.admin.ask_group(connection.group)["members"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Load:
    """Sends JSON events, in event-time order, and remembers what was acknowledged. librdkafka's client, murmur2.

    Args:
        app: whose input is written.
        stamped: records have their event times as timestamps; else the time at which they are sent. A broker that
            starts forgets producers whose last timestamp is older than a day (`producer.id.expiration.ms`), and then
            appends what they send again, so loads during which brokers end need the present time.
        linger_ms: for so long events are gathered before they are sent.
    """

    def __init__(self, app: App, *, stamped: bool = True, linger_ms: int = 5) -> None:
        from confluent_kafka import Producer
        from kafka.partitioner.default import murmur2

        self._app = app
        self._stamped = stamped
        self._murmur2 = murmur2
        self._places: dict[object, int] = {}
        self._starts: list[bytes] = []
        self.encode: Callable[[object, int], bytes] | None = None
        """Payload of an item at a time; None: JSON."""
        self._failed = 0
        self._producer = Producer(
            {
                "bootstrap.servers": app.bootstrap,
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "message.timeout.ms": 120_000,
                "queue.buffering.max.messages": 500_000,
                "delivery.report.only.error": True,
                "log_level": 0,
            }
        )

    def place(self, item: object) -> int:
        """Partition of an item, as Java's default partitioner says."""
        if item not in self._places:
            key = str(item).encode()
            self._places[item] = (self._murmur2(key) & 0x7FFFFFFF) % self._app.partitions
        return self._places[item]

    def send(
        self, item: object, ts: int, *, partition: int | None = None, count: bool | int = True, weight: str = ""
    ) -> None:
        """Send one event.

        Args:
            item: item of the event.
            ts: its time, ms.
            partition: where to; None: where the item belongs.
            count: what it adds to the truth.
            weight: text of a number, of the field `w`; empty: there is none.
        """
        field = f',"w":{weight}' if weight else ""
        value = b'{"u":%s,"ts":%d%s}' % (json.dumps(item).encode(), ts, field.encode())
        if self.encode is not None:
            value = self.encode(item, ts)
        self.send_raw(value, self.place(item) if partition is None else partition, ts, key=str(item).encode())
        if count:
            self._app.truth[ts - ts % MINUTE][item] += int(count)

    def send_many(self, items: Sequence[int], ts: int) -> None:
        """Send many events of one time at once, with little of the processor: stamped JSON, without weights."""
        ends, produce, topic = b',"ts":%d}' % ts, self._producer.produce, self._app.topic
        self._starts += [b'{"u":%d' % item for item in range(len(self._starts), max(items) + 1)]
        for item in items:
            value = self._starts[item] + ends
            try:
                produce(topic, value, b"", self.place(item), on_delivery=self._delivered, timestamp=ts)
            except BufferError:
                self.send_raw(value, self.place(item), ts)
        self._producer.poll(0)
        self._app.truth[ts - ts % MINUTE].update(items)

    def send_raw(self, value: bytes, partition: int, ts: int, *, key: bytes = b"") -> None:
        """Send one payload that nobody counts."""
        while True:
            try:
                stamp = max(ts, 0) if self._stamped else time.time_ns() // 1_000_000
                self._producer.produce(
                    self._app.topic, value, key, partition, on_delivery=self._delivered, timestamp=stamp
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _delivered(self, error: object, _message: object) -> None:
        self._failed += error is not None

    def close_windows(self, ts: int) -> None:
        """One record on every partition that moves its watermark to `ts`; null items: they are counted nowhere."""
        for p in range(self._app.partitions):
            self.send(None, ts, partition=p, count=False)
        self.flush()

    def flush(self) -> None:
        assert self._producer.flush(120) == 0
        assert self._failed == 0


def everything(app: App, topic: str) -> list[bytes]:
    """Keys, values and headers of every record that a topic still holds, aborted ones included."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=app.bootstrap, isolation_level="read_uncommitted", enable_auto_commit=False
    )
    try:
        partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        found: list[bytes] = []
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            for records in consumer.poll(1000).values():
                for record in records:
                    headers = b"".join(name.encode() + (value or b"") for name, value in record.headers)
                    found.append((record.key or b"") + (record.value or b"") + headers)
        return found
    finally:
        consumer.close()
