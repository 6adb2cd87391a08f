"""What windows cost: memory of many open ones, snapshots, records through a partition's state.

In: made-up records; a Kafka of its own on loopback, to which snapshots go. Out: ratios, printed. Touches: about half a
gigabyte of memory without --quick, Java and a temporary folder of its own.

Run: python bench/windows.py [--quick] [--only memory stall snapshots throughput admission]
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sketchstream.items.arrays import Items
from sketchstream.items.events import Events
from sketchstream.items.key import Key
from sketchstream.kernels import compile_first, kernel
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.sketch import Sketch
from sketchstream.spec import OpenDomain
from sketchstream.stream.interfaces import Assigned, Chunk, Snapshot, SourceEvent
from sketchstream.stream.state.buffers import Buffers
from sketchstream.stream.state.checkpoint import capture
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.state.watermark import Watermark
from sketchstream.stream.windows.calendar import Calendar, Width
from sketchstream.stream.windows.plans import SketchPlan
from sketchstream.stream.windows.quorum import Quorum
from sketchstream.stream.worker.settings import Settings
from sketchstream.stream.worker.worker import Worker
from sketchstream.testing.memory import MemoryPublisher, MemoryStore

# this folder has a kafka.py, which must not be taken for the client
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.memory import resident_bytes  # noqa: E402

HOUR_MS = 3_600_000
NEVER = 1e9
START_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS
KEY = Key(bytes(range(16)))


def batch_of(given: Items, times: np.ndarray) -> Events:
    """N text items, one a record."""
    return Events(None, given, None, np.ones(len(given), np.bool_), times, np.zeros(len(given), np.bool_))


def items(n: int, seed: int) -> Items:
    """16-byte items out of a million."""
    ids = np.random.default_rng(seed).integers(0, 10**6, n)
    buffer = np.frombuffer(b"".join(b"user-%011d" % i for i in ids), np.uint8)
    return Items.packed(buffer, np.arange(n + 1, dtype=np.int64) * 16, "str")


def rules(slots: int, lateness_ms: int, *, checked: bool = False) -> Rules:
    """One hourly sketch."""
    spec = ProfileSpec("1", domain=OpenDomain(slots, 8))
    plan = SketchPlan("hourly", spec, Calendar(Width.parse("1h")))
    return Rules((plan,), KEY, lateness_ms=lateness_ms, partitioner="murmur2" if checked else None)


class Spread:
    """A source whose records lie in all of the last 24 hours, so that every open window changes all the time."""

    def __init__(self, partitions: int, windows: int, n: int) -> None:
        self.partitions, self.n = partitions, n
        self._items = items(n, 1)
        self._times = START_MS + np.random.default_rng(2).integers(0, windows * HOUR_MS, n)
        self._positions = dict.fromkeys(range(partitions), 0)
        self._announced = False
        self._ready: set[int] = set()
        self._turn = 0

    @property
    def joined(self) -> bool:
        """Whether the partitions were announced."""
        return self._announced

    def confirmed(self, since_s: float) -> bool:
        """There is no group."""
        del since_s
        return True

    def poll(self, timeout_s: float) -> list[SourceEvent]:
        """One chunk of the next partition."""
        del timeout_s
        if not self._announced:
            self._announced = True
            return [Assigned(tuple(range(self.partitions)))]
        self._turn += 1
        partition = self._turn % self.partitions
        if partition not in self._ready:
            return []
        begin = self._positions[partition]
        self._positions[partition] = begin + self.n
        offsets = np.arange(begin, begin + self.n, dtype=np.int64)
        return [Chunk(partition, begin, begin + self.n, offsets, None, batch_of(self._items, self._times))]

    def seek(self, partition: int, position: int) -> None:
        """Go on from here."""
        self._positions[partition] = position

    def pause(self, partition: int) -> None:
        """Deliver nothing of it."""
        self._ready.discard(partition)

    def resume(self, partition: int) -> None:
        """Deliver again."""
        self._ready.add(partition)

    def numbers(self) -> list[int]:
        """All partitions."""
        return list(range(self.partitions))

    def partition_count(self, partition: int = 0, *, fresh: bool = False) -> int:
        """As made."""
        del fresh
        return self.partitions

    def beginning(self, partition: int) -> int:
        """The first record."""
        del partition
        return 0

    def high_watermarks(self, partitions: Collection[int] | None = None) -> Mapping[int, int]:
        """Unknown."""
        del partitions
        return {}

    def close(self, *, leave: bool = False) -> None:
        """Nothing is held."""
        del leave


class Sleepy(MemoryStore):
    """A store that takes 50 ms for a snapshot, as a transaction does, and keeps nothing."""

    def commit(self, partition: int, snapshot: Snapshot) -> None:
        """Wait."""
        del partition, snapshot
        time.sleep(0.05)


def memory(partitions: int, windows: int, slots: int) -> None:
    """Peak memory while everything changes and is snapshotted, beside the states' own size."""
    n = 20_000
    warm = PartitionState.fresh(rules(64, windows * HOUR_MS), 0, 0, 1)
    source = Spread(partitions, windows, n)
    warm.apply(Chunk(0, 0, n, np.arange(n), None, batch_of(source._items, source._times)))
    capture(warm)
    before = resident_bytes()
    worker = Worker(
        rules(slots, windows * HOUR_MS),
        source,
        Sleepy(),
        MemoryPublisher(),
        settings=Settings(snapshot_every_s=0.5, idle_ms=None, threads=8),
    )
    began = time.perf_counter()
    while time.perf_counter() - began < 15 or worker.metrics.counters["snapshots"] < 4 * partitions:
        worker.step(0.0)
    states = sum(slot.state.state_bytes for slot in worker._partitions.values() if slot.state is not None)
    used = resident_bytes(peak=True) - before
    opened = worker.progress()
    print(
        f"memory: {partitions} partitions x {windows} windows x {slots} slots: states {states / 2**20:.0f} MiB, "
        f"peak {used / 2**20:.0f} MiB more than before: {used / states:.2f}x "
        f"({worker.metrics.counters['snapshots']} snapshots, {opened.records:,} records meanwhile)"
    )
    worker.close()


def stall(slots: int, rounds: int, limit_ms: float) -> None:
    """How long a capture of one window holds up consumption, beside one pass of numpy over as many bytes."""
    state = PartitionState.fresh(rules(slots, 0), 0, 0, 1)
    batch = batch_of(items(1000, 3), np.full(1000, START_MS))
    times, packing, copies = [], [], []
    warm, whole, buffers = np.zeros(slots, np.int32), np.ones(slots, np.int32), Buffers()
    for number in range(rounds):
        state.apply(Chunk(0, 1000 * number, 1000 * (number + 1), 1000 * number + np.arange(1000), None, batch))
        began = time.perf_counter()
        snapshot = capture(state, buffers)
        times.append(time.perf_counter() - began)
        began = time.perf_counter()
        size = sum(len(data) for data in snapshot.blobs.values())
        snapshot.release()
        packing.append(time.perf_counter() - began)
        began = time.perf_counter()
        np.copyto(warm, whole)
        copies.append(time.perf_counter() - began)
    waited, packed, copied = (statistics.median(one) * 1000 for one in (times, packing, copies))
    print(
        f"snapshot of {size / 2**20:.0f} MiB: consumption waits {waited:.1f} ms (limit {limit_ms:.0f}; one warm copy "
        f"of as much {copied:.1f} ms); another thread finishes it in {packed:.0f} ms"
    )


def snapshots(rounds: int) -> None:
    """Records through a worker whose snapshots go to a broker, beside the same worker without any, in turn.

    The records lie in memory, so nothing waits for the network but the snapshots: this is the most they can cost. What
    one costs is measured where there are many, and the cost at the default interval follows from it.
    """
    from helpers.kafka.app import Nobody
    from helpers.kafka.devbroker import DevCluster
    from sketchstream_connectors.kafka.cluster import topics
    from sketchstream_connectors.kafka.cluster.client import Connection
    from sketchstream_connectors.kafka.state.store import KafkaStore

    default, seconds = Settings().snapshot_every_s, 4.0
    bare: list[float] = []
    costs: list[float] = []
    waits: dict[float, list[float]] = {NEVER: [], 1.0: []}
    partitions, slots, group = 4, 1 << 20, f"bench-{secrets.token_hex(4)}"
    with DevCluster(1, quick=False, heap="1g") as cluster:
        connection = Connection({"bootstrap.servers": cluster.bootstrap, "group.id": group})
        with connection.admin.client("creating the input") as admin:
            admin.create_topics({"events": {"num_partitions": partitions, "replication_factor": 1}})
            admin.wait_for_topics(["events"])
        topics.create(connection, topics.TopicNames(group, "events"))
        worker = Worker(
            rules(slots, HOUR_MS),
            Spread(partitions, 1, 200_000),
            KafkaStore(connection, "events", Nobody(group)),
            MemoryPublisher(),
            settings=Settings(idle_ms=None, threads=8),
        )
        while worker.progress().running < partitions or worker.progress().records < 20_000_000:
            worker.step(0.01)
        counters = worker.metrics.counters
        others = time.process_time() - time.thread_time()
        first, captures = counters["snapshots"], worker.metrics.histograms["capture_seconds"].sum
        for number in range(rounds):
            rates = {}
            for every in sorted(waits, reverse=bool(number % 2)):
                rates[every], longest, taken, lasted = run_for(worker, every, seconds)
                waits[every].append(longest)
                if every != NEVER:
                    number_taken, whole = taken, lasted
            bare.append(rates[NEVER])
            costs.append((1 - rates[1.0] / rates[NEVER]) * whole / number_taken)
        number = counters["snapshots"] - first
        own = (worker.metrics.histograms["capture_seconds"].sum - captures) / number
        others = (time.process_time() - time.thread_time() - others) / number
        worker.close()
        connection.close()
    low, cost, high = np.quantile(costs, [0.25, 0.5, 0.75])
    share = partitions / default
    print(
        f"a snapshot of {slots} slots takes {own * 1000:.1f} ms of the worker's thread and {others * 1000:.1f} ms of "
        f"processor in others ({number} snapshots); longest step {statistics.median(waits[1.0]) * 1000:.0f} ms, "
        f"without snapshots {statistics.median(waits[NEVER]) * 1000:.0f} ms"
    )
    print(
        f"snapshots of {partitions} partitions every {default:.0f} s cost {share * cost:.2%} of the "
        f"{statistics.median(bare) / 1e6:.1f} M records/s without any (quartiles {share * low:.2%} to "
        f"{share * high:.2%} of {rounds} rounds in turn; {cost * 1000:.0f} ms of consumption each)"
    )


def run_for(worker: Worker, every: float, seconds: float) -> tuple[float, float, int, float]:
    """Records a second, longest step, snapshots, seconds; until the last snapshot that was begun in time has ended."""
    counters = worker.metrics.counters
    worker.settings = replace(worker.settings, snapshot_every_s=every)
    for slot in worker._partitions.values():
        slot.snapshot_every_s = 0.0  # what the last snapshot asked for, which was at another interval
    records, saved = counters["records"], counters["snapshots"]
    began = last = time.perf_counter()
    longest = 0.0
    while last - began < seconds or any(slot.job is not None for slot in worker._partitions.values()):
        if last - began >= seconds:
            worker.settings = replace(worker.settings, snapshot_every_s=NEVER)
        worker.step(0.0)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    lasted = last - began
    return (counters["records"] - records) / lasted, longest, counters["snapshots"] - saved, lasted


def throughput(rounds: int) -> None:
    """Records through admission, windows and the partitioner's check, beside the bare update."""
    n = 200_000
    batch = items(n, 4)
    bare = Sketch.create(rules(2**20, 0).sketches[0].spec, KEY)
    rng = np.random.default_rng(5)
    cases = {
        "one window": (rules(2**20, 600_000), lambda: np.full(n, START_MS)),
        "one window, partitions checked": (rules(2**20, 600_000, checked=True), lambda: np.full(n, START_MS)),
        "in order over a boundary": (rules(2**20, 600_000), lambda: START_MS + np.arange(n) * 36),
        "in disorder over a boundary": (rules(2**20, 2 * HOUR_MS), lambda: START_MS + rng.integers(0, 2 * HOUR_MS, n)),
    }
    for name, (common, times) in cases.items():
        ratios, rates = [], []
        for _ in range(rounds):
            state = PartitionState.fresh(common, 0, 0, 1)
            state.apply(Chunk(0, 0, n, np.arange(n), None, batch_of(batch, times())))
            chunk = Chunk(0, n, 2 * n, n + np.arange(n), None, batch_of(batch, times()))
            began = time.perf_counter()
            bare.update(batch, invalid="noop")
            between = time.perf_counter()
            state.apply(chunk)
            ended = time.perf_counter()
            ratios.append((ended - between) / (between - began))
            rates.append(n / (ended - between) / 1e6)
        print(
            f"{name}: {statistics.median(rates):.1f} M records/s, "
            f"{statistics.median(ratios):.2f}x the time of the bare update"
        )


@kernel
def largest_times(
    times: npt.NDArray[np.int64],
    stamps: npt.NDArray[np.int64],
    ahead: int,
    before: npt.NDArray[np.int64],
    verdict: npt.NDArray[np.uint8],
) -> None:
    """Admission by the largest time so far, as most engines have it."""
    watermark = 0
    for i in range(times.size):
        before[i] = watermark
        verdict[i] = times[i] > stamps[i] + ahead
        if verdict[i] == 0:
            watermark = max(watermark, times[i])


def admission(rounds: int) -> None:
    """Nanoseconds a record that the watermark's quorum costs, beside a loop that takes the largest time."""
    n = 500_000
    rng = np.random.default_rng(6)
    loads = {}
    for name, per_s in (("10 records/s", 10), ("10,000 records/s", 10_000)):
        stamps = START_MS + np.sort(rng.integers(0, n * 1000 // per_s, n))
        loads[name] = stamps - rng.integers(0, 2000, n), stamps
    for name, part, ahead, alike in (
        ("2% fast", 0.02, 59, True),
        ("40% fast", 0.4, 59, True),
        ("60% late", 0.6, -59, False),
    ):
        times, stamps = (column.copy() for column in loads["10,000 records/s"])
        some = rng.random(n) < part
        times[some] += ahead * 60_000
        stamps[some] += ahead * 60_000 if alike else 0
        loads[f"10,000 records/s, {name}"] = times, stamps
    before, verdict = np.empty(n, np.int64), np.empty(n, np.uint8)
    for name, (times, stamps) in loads.items():
        by_quorum, by_maximum = [], []
        for _ in range(rounds + 1):
            began = time.perf_counter()
            Watermark(Quorum(), 600_000).admit(times, stamps)
            between = time.perf_counter()
            largest_times(times, stamps, 600_000, before, verdict)
            by_maximum.append((time.perf_counter() - between) / n * 1e9)
            by_quorum.append((between - began) / n * 1e9)
        quorum_ns, largest_ns = statistics.median(by_quorum[1:]), statistics.median(by_maximum[1:])
        print(f"admission, {name}: {quorum_ns:.1f} ns a record by quorum, {largest_ns:.1f} ns by the largest time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parts = ["memory", "stall", "snapshots", "throughput", "admission"]
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, help="some of the parts")
    options = parser.parse_args()
    compile_first()
    quick = options.quick
    if "memory" in options.only:
        memory(4 if quick else 16, 24, 1 << 16 if quick else 1 << 18)
    if "stall" in options.only:
        stall(1 << 20, 5 if quick else 15, 50)
        stall(1 << 26, 3 if quick else 9, 100)
    if "snapshots" in options.only:
        snapshots(2 if quick else 8)
    if "throughput" in options.only:
        throughput(3 if quick else 9)
    if "admission" in options.only:
        admission(3 if quick else 9)


if __name__ == "__main__":
    main()
