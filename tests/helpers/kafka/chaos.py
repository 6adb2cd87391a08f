"""A seeded, replayable schedule of kills, stops, joins and broker restarts, over a steady load.

In: an application, perhaps a cluster whose nodes may be touched, a seed. Out: what was done, the longest standstill of
a partition. Touches: worker processes of the application, nodes of the cluster.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field

from helpers.kafka.app import MINUTE, App
from helpers.kafka.devbroker import DevCluster
from sketchstream.errors import SketchstreamError

ITEMS = 500


@dataclass(frozen=True)
class Step:
    """Something that is done `at` seconds after the start; `for_s`: how long it lasts."""

    at: float
    what: str
    target: int
    for_s: float


def plan(seed: int, seconds: float, *, brokers: bool) -> list[Step]:
    """The schedule of a seed: worker faults every few seconds; broker faults one after the other."""
    rng, steps, at = random.Random(seed), [], 4.0
    while at < seconds - 15:
        what = rng.choice(["kill", "terminate", "stop", "join"])
        steps.append(Step(at, what, rng.randrange(2), rng.uniform(3, 14) if what == "stop" else rng.uniform(0.5, 4)))
        at += rng.uniform(4, 9)
    if brokers:
        at, order = 8.0, rng.sample([1, 2, 3], 3)
        while at < seconds - 20:
            what = rng.choice(["kill-node", "terminate-node"])
            steps.append(Step(at, what, order[0], 4.0))
            order = order[1:] + order[:1]
            at += rng.uniform(16, 24)  # the one before is back: replication 3, two must be in sync
    return sorted(steps, key=lambda step: step.at)


@dataclass
class Run:
    """One run of a schedule.

    Args:
        app: not started yet.
        seed: seed of the schedule and of the load.
        seconds: seconds of load and faults.
        cluster: whose nodes may be stopped; None: only workers.
        rate: events a second.
        speed: event-time seconds in a second.
    """

    app: App
    seed: int
    seconds: float
    cluster: DevCluster | None = None
    rate: int = 2000
    speed: float = 8.0
    base: int = 1_700_000_040_000
    done: list[str] = field(default_factory=list)
    standstill: float = 0.0
    sent: int = 0
    windows: int = 0
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self.base -= self.base % MINUTE
        self._over = threading.Event()
        self._waking: list[threading.Timer] = []

    # --------------------------------------------------------------------------------------------- parts

    def _start(self) -> None:
        """One more worker, whose log says which positions it applied."""
        self.app.start(options=["--log-level", "debug"])

    def _send(self) -> None:
        """Events in time order, paced; each second of the clock is `speed` seconds of the stream."""
        try:
            rng, load, began = random.Random(self.seed), self.app.load(stamped=False), time.monotonic()
            total = int(self.rate * self.seconds)
            for i in range(total):
                ts = self.base + int(i * 1000 * self.speed / self.rate)
                load.send(int((ITEMS - 1) * rng.random() ** 3), ts)
                self.sent += 1
                if i % 100 == 99:
                    time.sleep(max(0.0, began + i / self.rate - time.monotonic()))
            load.flush()
            last = ts - ts % MINUTE
            self.windows = last + MINUTE
            load.close_windows(last + 3 * MINUTE)
        except BaseException as error:
            self.failure = error

    def _watch(self) -> None:
        """How long each partition's committed position stood still while there was something to read."""
        from kafka import TopicPartition

        moved: dict[int, tuple[int, float]] = {}
        while not self._over.wait(1.0):
            try:
                with self.app.connection.admin.client("watching") as admin:
                    found = admin.list_group_offsets(
                        {self.app.group: [TopicPartition(self.app.topic, p) for p in range(self.app.partitions)]}
                    )[self.app.group]
                ends = self.app.connection.admin.offsets(self.app.topic, range(self.app.partitions), "latest")
            except SketchstreamError:
                continue
            now = time.monotonic()
            for tp, committed in found.items():
                position, when = moved.get(tp.partition, (-2, now))
                if committed.offset != position or ends.get(tp.partition, 0) <= committed.offset:
                    moved[tp.partition] = (committed.offset, now)
                else:
                    self.standstill = max(self.standstill, now - when)

    def _do(self, step: Step) -> None:
        """One fault. What it ends is started again at once or after `for_s`."""
        workers = [w for w in self.app.workers if w.alive][:2]
        self.done.append(f"{step.at:.1f} {step.what} {step.target} {step.for_s:.1f}")
        if step.what.endswith("node"):
            assert self.cluster is not None
            (self.cluster.kill if step.what == "kill-node" else self.cluster.terminate)(step.target)
            self._later(step.for_s, self.cluster.start_node, step.target)
            return
        if step.what == "join":
            if len([w for w in self.app.workers if w.alive]) < 3:
                self._start()
            return
        if not workers:
            return
        worker = workers[step.target % len(workers)]
        if step.what == "stop":
            worker.stop()
            self._later(step.for_s, worker.wake)
            return
        worker.wake()
        if step.what == "kill":
            worker.kill()
        else:
            worker.terminate()
        self._start()

    def _later(self, seconds: float, what: object, *args: object) -> None:
        timer = threading.Timer(seconds, what, args)  # type: ignore[arg-type]
        timer.daemon = True
        timer.start()
        self._waking.append(timer)

    # ----------------------------------------------------------------------------------------------- run

    def run(self, patience_s: float = 180) -> None:
        """Load, faults, healing, and waiting until everything sent is published."""
        steps = plan(self.seed, self.seconds, brokers=self.cluster is not None)
        self._start()
        self._start()
        threads = [threading.Thread(target=self._send, daemon=True), threading.Thread(target=self._watch, daemon=True)]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        try:
            for step in steps:
                time.sleep(max(0.0, began + step.at - time.monotonic()))
                self._do(step)
            for timer in self._waking:
                timer.join()
            if self.cluster is not None:
                for number in self.cluster.nodes:
                    self.cluster.start_node(number)
            threads[0].join(self.seconds + 240)
            assert not threads[0].is_alive(), "the load did not end"
            if self.failure is not None:
                raise self.failure
            while len([w for w in self.app.workers if w.alive]) < 2:
                self._start()
            self.app.wait_published(self.windows, patience_s)
        except BaseException:
            self.done.append("FAILED")
            raise
        finally:
            self._over.set()
            threads[1].join(30)
