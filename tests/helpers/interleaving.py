"""Two workers over one log in memory, whose every step a test chooses: polls, commits piece by piece, moves, kills.

In: choices. Out: what was published, and what must have been. Touches: a thread for each job of a worker. One of them
runs at a time, until its next pause, so the same choices always give the same run.

The source is a hostile one: it fetches ahead, delivers stale responses after a seek, and calls their positions wrong.
Jobs pause after every piece of a snapshot that they read, before and after their effect. A worker that is killed leaves
its jobs behind: they may take effect later, as requests do that are on their way.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any

from helpers.configurations import EVENTS_TOPIC
from helpers.streams import EPOCH, MINUTE, at_least
from sketchstream import wire
from sketchstream.errors import BrokerError, StoreError
from sketchstream.kinds.profile.groups import one_group
from sketchstream.published import Release, read_published
from sketchstream.stream.interfaces import (
    Assigned,
    Chunk,
    Fresh,
    Frontier,
    Restored,
    Revoked,
    SealedEntry,
    Snapshot,
    SourceEvent,
)
from sketchstream.stream.worker.worker import Worker
from sketchstream.testing.driver import Driver
from sketchstream.testing.memory import MemoryPublisher, MemorySource, MemoryStore, chunk_of
from sketchstream_connectors.factory import settings

GROUPS = ("a", "b", "c")
ITEMS = 60
STEP_MS = 3000
"""Between the times of two events."""
TEXT = (
    EVENTS_TOPIC
    + f"""lateness = "1s"
max_ahead = "8h"
quorum = 1
quorum_time = "1ms"
idle = "off"
[store]
snapshot_every = "1s"
[[sketch]]
name = "grouped"
unit = "event"
window = "1m"
epsilon = 30
domain = {{ size = {ITEMS} }}
group_by = "g"
groups = ["a", "b", "c"]
[[sketch]]
name = "whole"
unit = "event"
window = "2m"
epsilon = 30
domain = {{ size = {ITEMS} }}
"""
)
"""States of `grouped` are read as images, those of `whole` are copied."""
WIDTHS = {"grouped": MINUTE, "whole": 2 * MINUTE}


class Job:
    """One call in a thread of its own, which runs only within `advance`."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.future: Future[Any] = Future()
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        self._go.acquire()
        try:
            self.future.set_result(call())
        except Exception as error:
            self.future.set_exception(error)
        self._paused.release()

    def pause(self) -> None:
        """Called by the job: wait until it is told to go on."""
        self._paused.release()
        self._go.acquire()

    def advance(self) -> None:
        """Let it run to its next pause, or to its end."""
        self._go.release()
        self._paused.acquire()
        if self.future.done():
            self._thread.join()


class Jobs(Executor):
    """The jobs of all workers that have not ended."""

    def __init__(self) -> None:
        self.running: list[Job] = []
        self.at_work: Job | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        job = Job(lambda: fn(*args, **kwargs))
        self.running.append(job)
        return job.future

    def advance(self, job: Job) -> None:
        """Let one job take a step, if it has not ended."""
        if job not in self.running:
            return
        self.at_work = job
        job.advance()
        self.at_work = None
        if job.future.done():
            self.running.remove(job)

    def pause(self) -> None:
        """Called within a job."""
        assert self.at_work is not None
        self.at_work.pause()


@dataclass
class Fates:
    """What happens to the next calls of a store and a publisher."""

    commits: list[str] = field(default_factory=list)
    """"refused": raises, without effect; "unknown": takes effect and raises."""
    publications: list[str] = field(default_factory=list)
    """"refused", or "half": the first entry is published before it raises."""

    def next(self, of: list[str]) -> str:
        return of.pop(0) if of else "good"


class SteppedStore(MemoryStore):
    """Reads snapshots piece by piece; returns blobs in memory that a restored sketch takes over."""

    def __init__(self, saved: Any, jobs: Jobs, fates: Fates) -> None:
        super().__init__(saved)
        self._jobs, self._fates = jobs, fates

    def take(self, partition: int) -> Restored | Fresh:
        self._jobs.pause()
        found = super().take(partition)
        self._jobs.pause()
        if isinstance(found, Fresh):
            return found
        blobs = {}
        for name, data in found.blobs.items():
            blobs[name] = wire.aligned_memory(len(data), bytes(data[: wire.PREFIX_BYTES]))
            blobs[name][:] = data
        return replace(found, blobs=blobs)

    def commit(self, partition: int, snapshot: Snapshot) -> None:
        blobs: dict[str, bytes] = {}
        for name in snapshot.blobs:
            self._jobs.pause()
            read_published = bytearray()
            for piece in snapshot.pieces(name)[1]:
                read_published += piece
                self._jobs.pause()
            blobs[name] = bytes(read_published)
        fate = self._fates.next(self._fates.commits)
        if fate != "refused":
            super().commit(partition, replace(snapshot, blobs=blobs))
        if fate != "good":
            msg = "connection lost"
            raise BrokerError(msg)
        self._jobs.pause()


class SteppedPublisher(MemoryPublisher):
    """Pauses before and after it publishes."""

    def __init__(self, jobs: Jobs, fates: Fates) -> None:
        super().__init__()
        self._jobs, self._fates = jobs, fates

    def publish(self, partition: int, entries: Sequence[SealedEntry], frontiers: Sequence[Frontier]) -> None:
        self._jobs.pause()
        fate = self._fates.next(self._fates.publications)
        if fate != "good":
            super().publish(partition, entries[: fate == "half"], ())
            msg = "connection lost"
            raise StoreError(msg)
        super().publish(partition, entries, frontiers)
        self._jobs.pause()


class HostileSource(MemorySource):
    """A member of a group that fetches ahead and may deliver anything of the log, at any time, under any position."""

    def __init__(self, driver: Driver, assigned: set[int]) -> None:
        super().__init__(driver.log, driver._decoder, ())
        self.assigned = assigned
        """What the group says; the worker hears of it at its next poll."""
        self.regained: set[int] = set()
        """Partitions that were taken away and given back between two polls, and of which the worker is told."""
        self.ahead: list[tuple[int, int, int]] = []
        """Responses on their way: partition, first position, the one after the last."""
        self.size = 5
        self.stale = "no"
        """Whether the next poll delivers responses for another position than ours, and under which: "no"; "yes", under
        their own; "called new", under ours."""

    def fetch(self, partition: int, records: int, back: int = 0) -> None:
        """Ask for the records after those that were asked for last, or for some that were read before."""
        asked = [stop for place, _, stop in self.ahead if place == partition]
        begin = max(0, (asked[-1] if asked else self._positions.get(partition, 0)) - back)
        stop = min(begin + records, len(self._log.partitions[partition]))
        if stop > begin:
            self.ahead.append((partition, begin, stop))

    def poll(self, timeout_s: float) -> list[SourceEvent]:
        announced = self._announced
        gone = (announced - self.assigned) | (announced & self.regained)
        new = (self.assigned - announced) | (gone & self.assigned)
        self.regained.clear()
        self._announced = set(self.assigned)
        self._known = len(self._log.partitions)
        events: list[SourceEvent] = [
            kind(tuple(sorted(found))) for kind, found in ((Revoked, gone), (Assigned, new)) if found
        ]
        for partition in sorted(self._announced - self._paused - new):
            events += self._chunks(partition)
        self.stale = "no"
        return events

    def _chunks(self, partition: int) -> list[Chunk]:
        """What is on its way, and then from the position on; only a stale response is not where it should be."""
        ours = [one for one in self.ahead if one[0] == partition]
        self.ahead = [one for one in self.ahead if one[0] != partition]
        found = []
        for _, begin, stop in ours:
            at = self._positions.get(partition, 0)
            if begin == at:
                found.append(self._chunk(partition, begin, stop))
            elif self.stale != "no":
                found.append(self._chunk(partition, begin, stop, at - begin if self.stale == "called new" else 0))
        at = self._positions.get(partition, 0)
        stop = min(at + self.size, len(self._log.partitions[partition]))
        if stop > at:
            found.append(self._chunk(partition, at, stop))
        return found

    def _chunk(self, partition: int, begin: int, stop: int, shift: int = 0) -> Chunk:
        """The records of these offsets, under positions that may be others."""
        self._positions[partition] = stop + shift
        chunk = chunk_of(partition, begin, self._log.partitions[partition][begin:stop], self._decoder)
        return replace(chunk, from_position=begin + shift, next_position=stop + shift)


class Model:
    """A log, two workers that share its partitions, and the exact counts.

    Args:
        partitions: partitions of the log.
    """

    def __init__(self, partitions: int = 2) -> None:
        self.driver = Driver(TEXT, partitions=partitions, now=EPOCH)
        self.jobs, self.fates = Jobs(), Fates()
        self.publisher = SteppedPublisher(self.jobs, self.fates)
        self.sent = 0
        self.truth: dict[tuple[str, int, str | None], Counter[int]] = {}
        self.owner = dict.fromkeys(range(partitions), 0)
        self.sources: list[HostileSource] = [None, None]  # type: ignore[list-item]
        self.workers: list[Worker] = [None, None]  # type: ignore[list-item]
        self.counters: Counter[str] = Counter()
        """Of workers that were killed."""
        for number in range(2):
            self.kill(number)
        for _ in range(4):
            self.step(0)
            self.end_jobs()

    # ----------------------------------------------------------------------------------------------- choices

    def send(self, items: Sequence[int]) -> None:
        """One event for each item, in a group that depends on their number so far."""
        for item in items:
            at = EPOCH + self.sent * STEP_MS
            group = GROUPS[self.sent % len(GROUPS)]
            self.driver.send({"user": item, "ts": at, "g": group}, timestamp=at)
            for name, width in WIDTHS.items():
                key = name, at // width * width, group if name == "grouped" else None
                self.truth.setdefault(key, Counter())[item] += 1
            self.sent += 1

    def kill(self, number: int) -> None:
        """End a worker, and start another; jobs of the one that ended are still on their way."""
        if self.workers[number] is not None:
            self.counters.update(self.workers[number].metrics.counters)
        mine = {partition for partition, owner in self.owner.items() if owner == number}
        source = self.sources[number] = HostileSource(self.driver, mine)
        made = Worker(
            self.driver._rules,
            source,
            SteppedStore(self.driver.snapshots, self.jobs, self.fates),
            self.publisher,
            settings=replace(settings(self.driver.config), publish_every_s=0.0, threads=0, idle_ms=None),
            clock=self.driver.clock,
        )
        made._executor = made._manager._executor = made._manager._window_executor = self.jobs
        self.workers[number] = made

    def move(self, partition: int) -> None:
        """Give a partition to the other worker; each hears of it when it polls."""
        before = self.owner[partition]
        self.owner[partition] = 1 - before
        self.sources[before].assigned.discard(partition)
        self.sources[1 - before].assigned.add(partition)

    def end_jobs(self) -> None:
        """Let all jobs run to their ends."""
        while self.jobs.running:
            self.jobs.advance(self.jobs.running[0])

    def step(self, number: int) -> None:
        """Let a worker poll, apply, and start what is due."""
        self.workers[number].step(0.0)

    # ------------------------------------------------------------------------------------------------ the end

    def settle(self) -> None:
        """Let all go well until everything that was sent is published."""
        self.fates.commits.clear()
        self.fates.publications.clear()
        last = EPOCH + self.sent * STEP_MS + 10 * MINUTE
        for partition in self.owner:
            self.driver.send({"user": None, "ts": last}, timestamp=last, partition=partition)
        for source in self.sources:
            source.stale, source.size = "no", 1000
        for _ in range(200):
            self.end_jobs()
            self.driver.clock.advance(1.1)
            for number in range(2):
                self.step(number)
            frontiers = self.publisher.frontiers().values()
            done = {(one.sketch, one.partition) for one in frontiers if one.published_through > last - 5 * MINUTE}
            if len(done) == len(WIDTHS) * len(self.owner) and not self.jobs.running:
                return
        halted = [worker.halted() for worker in self.workers]
        msg = f"not everything was published: {sorted(done)}, halted {halted}"
        raise AssertionError(msg)

    def check(self) -> None:
        """Every window was published once by each partition, and the sums are the exact counts."""
        parts: dict[tuple[str, int, str | None], list[Release]] = {}
        places = set()
        for key, body in {entry.key: entry.body for entry in self.publisher.log}.items():
            entry = next(one for one in self.publisher.log if one.key == key)
            place = entry.sketch, entry.window, entry.partition
            assert place not in places, f"{place} was sealed twice"
            places.add(place)
            part = read_published(body)
            assert isinstance(part, Release)
            for group in GROUPS if entry.sketch == "grouped" else (None,):
                one = part if group is None else one_group(part, group)
                assert isinstance(one, Release)
                parts.setdefault((entry.sketch, entry.window[0], group), []).append(one)
        assert self.truth.keys() <= parts.keys()
        for place, found in parts.items():
            counts = self.truth.get(place, Counter())
            for index, edge in enumerate(found[0].edges.tolist()):
                have = sum(int(one.values[index]) for one in found)
                assert edge <= 0 or have == at_least(counts, edge), f"{place}: {have} items seen {edge} times or more"
