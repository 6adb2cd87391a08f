"""The worker: one loop that polls, applies, seals, snapshots, commits and publishes, over ports.

In: a source, a store, a publisher, perhaps a sink. Out: sealed sketches and frontiers, published after they were
committed. Touches: what its ports touch; two worker threads for commits unless told otherwise.
Source: design.md 7; notes/kafka_faults.md 10, 13, 14.

This file is the loop. What becomes of a partition is in `lives`, what is decided without acting in `judgement`, what
other threads do in `jobs`, what it all looks like from outside in `views`.

A partition is `restoring` (the store is taking it), `running`, or `halted` (paused, its state dropped; the message says
what to do). Whatever goes wrong with a partition drops its state, lets one poll pass, and takes it again from what is
committed; nothing of a dropped state was published. A halted partition does not stop the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

from sketchstream.errors import SketchstreamError
from sketchstream.stream import account, policy, side_outputs, status
from sketchstream.stream.assigned_partition import Inline, Progress, Settings, Slot, SystemClock
from sketchstream.stream.clocks import Clocks
from sketchstream.stream.idleness import Silence
from sketchstream.stream.interfaces import (
    Assigned,
    Chunk,
    Clock,
    PartitionError,
    Publisher,
    Revoked,
    Sink,
    Source,
    StateStore,
)
from sketchstream.stream.io_tasks import Jobs
from sketchstream.stream.metrics import Gauges, Metrics
from sketchstream.stream.partition import Outcome, PartitionState, Rules
from sketchstream.stream.partition_manager import Lives, say
from sketchstream.stream.windows import iso

__all__ = ["Progress", "Settings", "SystemClock", "Worker"]

log = logging.getLogger("sketchstream.worker")

FLYING_S = 0.05
"""Longest wait for records while a partition is being taken or committed, seconds."""


class Worker:
    """Runs sketches over a source. `run` until stopped or the input ends; or `step` by step.

    Args:
        rules: what is counted, and how.
        source: of records.
        store: of snapshots.
        publisher: of sealed sketches.
        settings: how.
        sink: for late records and dead letters; None: they are counted only.
        clock: the machine's, or a test's.
        metrics: counters; made if not given.
        progress: called after each step with where the worker is.
    """

    def __init__(
        self,
        rules: Rules,
        source: Source,
        store: StateStore,
        publisher: Publisher,
        *,
        settings: Settings | None = None,
        sink: Sink | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.rules = rules
        self.settings = settings = settings or Settings()
        self.metrics = metrics or Metrics()
        self._source = source
        self._store = store
        self._publisher = publisher
        self._sink = sink
        self._clock: Clock = clock or SystemClock()
        self._progress = progress
        self._stop = threading.Event()
        self._polled_at = self._clock.monotonic()
        self._began = self._clock.monotonic()
        self._losses = {plan.name: float(plan.loss) for plan in rules.sketches}
        self._clocks = Clocks(self._clock, store)
        self._silence = Silence(settings.idle_ms, settings.idle_topic_ms, rules.lateness_ms)
        self._closed = False
        self._report_at = self._began + settings.report_every_s
        self.last_words: tuple[str, ...] = ()
        self._executor: Executor = (
            ThreadPoolExecutor(settings.threads, thread_name_prefix="sketchstream-commit")
            if settings.threads
            else Inline()
        )
        jobs = Jobs(rules, store, publisher, sink, self._clock)
        self._lives = Lives(source, jobs, self._executor, self._clock, settings, self.metrics)
        self._slots = self._lives.slots

    # ---------------------------------------------------------------------------------------------- running

    def run(self, *, leave: bool = False) -> None:
        """Work until `stop`, or until a bounded input has ended; then take the last snapshots and close everything.

        Raises:
            DataLossError: a partition halted and `fail_fast` is set, or every partition of the input is halted.
            FencedError: another process took this member's place.
        """
        try:
            while not self._stop.is_set() and not self.finished:
                self.step()
            self.finish()
        finally:
            self.close(leave=leave)

    def stop(self) -> None:
        """Ask `run` to finish; may be called from a signal handler or another thread."""
        self._stop.set()

    def step(self, timeout_s: float | None = None) -> None:
        """One turn: collect finished jobs, poll, apply, start jobs that are due."""
        self._lives.collect()
        events = self._source.poll(self._patience_s() if timeout_s is None else timeout_s)
        self._lives.polls += 1
        self._polled_at = self._clock.monotonic()
        for event in events:
            if isinstance(event, Chunk):
                self._chunk(event)
            elif isinstance(event, Assigned):
                self._lives.assign(event.partitions)
            elif isinstance(event, Revoked):
                self._lives.revoke(event.partitions)
            elif isinstance(event, PartitionError):
                slot = self._slots.get(event.partition)
                if slot is not None and slot.status != "halted":
                    self._lives.trouble(slot, event)
            else:
                slot = self._slots.get(event.partition)
                if slot is not None:
                    slot.ended = True
        self._lives.collect()
        self._tick()
        if self._progress is not None:
            self._progress(self.progress())

    def _patience_s(self) -> float:
        """How long to wait for records: not at all where a job has ended meanwhile, not long where one will."""
        jobs = [slot.job for slot in self._slots.values() if slot.job is not None]
        if any(job.done() for job in jobs):
            return 0.0
        return min(FLYING_S, self.settings.poll_s) if jobs else self.settings.poll_s

    @property
    def finished(self) -> bool:
        """Whether a bounded input has been read to its end."""
        return bool(self._slots) and all(slot.ended and slot.status == "running" for slot in self._slots.values())

    def finish(self) -> None:
        """Last snapshots of all running partitions, within `stop_s`; a partition that does not make it is replayed.

        Raises:
            StoreError: a bounded input was read to its end, and what it gave could not be committed or published.
        """
        deadline = self._clock.monotonic() + self.settings.stop_s
        if self.settings.close_at_end and self.finished:
            for slot in self._slots.values():
                self._seal(slot, everything=True)
        for _ in range(4):  # a snapshot and its publication, the snapshot without the outbox, and retries
            for slot in self._slots.values():
                self._lives.wait(slot, deadline)
            todo = [
                slot
                for slot in self._slots.values()
                if slot.state is not None
                and slot.status == "running"
                and (slot.state.changed() or slot.state.to_publish)
            ]
            if not todo or self._clock.monotonic() >= deadline:
                break
            for slot in todo:
                if not policy.fits(slot, self._slots.values()):
                    for other in self._slots.values():
                        self._lives.wait(other, deadline)
                if slot.state is not None and slot.job is None:
                    self._lives.save(slot)
        self.last_words = self._last_words()
        for slot in self._slots.values():  # an input that was read to its end is not done while something is missing
            if slot.ended and slot.publish_error is not None and slot.state is not None and slot.state.to_publish:
                raise slot.publish_error
            if slot.ended and slot.error is not None and slot.status == "restoring":
                raise slot.error

    def _report(self) -> None:
        """How much was counted, and a warning where most of it was not."""
        log.info("event=progress %s, %s", self.progress().line(), account.counts(self.metrics))
        reason = account.main_reason(self.metrics)
        if reason is not None:
            say(logging.WARNING, "not_counted", reason=reason)

    def _last_words(self) -> tuple[str, ...]:
        """Which windows stay open, why none was sealed, why most was not counted."""
        slots = self._slots.values()
        bounded = any(slot.ended for slot in slots)
        nothing = account.nothing_sealed(slots, self.metrics, bounded=bounded)
        reason = account.main_reason(self.metrics) if nothing is None else nothing
        return (
            *(() if reason is None else (reason,)),
            *account.unsealed(slots, self.rules.lateness_ms, bounded=bounded),
        )

    def close(self, *, leave: bool = False) -> None:
        """Close all ports; what was not committed is replayed by the next owner."""
        if self._closed:
            return
        self._closed = True
        for slot in self._slots.values():
            slot.state = None
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._source.close(leave=leave)
        self._store.close()
        self._publisher.close()
        if self._sink is not None:
            self._sink.close()

    # ----------------------------------------------------------------------------------------------- records

    def _chunk(self, chunk: Chunk) -> None:
        slot = self._slots.get(chunk.partition)
        if slot is None or slot.status != "running" or slot.state is None:
            return
        state = slot.state
        if chunk.from_position != state.position:
            self.metrics.add("gaps")
            self._source.seek(chunk.partition, state.position)
            return
        state.set_partitions(self._source.partition_count())
        try:
            clock_ms = None if chunk.timestamps is None else self._clocks.latest_ms()
            if clock_ms is not None and self._clocks.broker_ms() is None:
                policy.check_clock(chunk, clock_ms, self.rules)
            outcome = state.apply(
                chunk, self._lives.partitions_now, self._lives.partitions_for_items, clock_ms=clock_ms
            )
            self._count(slot, state, chunk, outcome)
        except Exception as error:  # whatever happened, a state that may be half applied must go
            self._lives.fail(slot, error)
            return
        slot.failures = slot.strange = 0
        if policy.full(slot):
            self._lives.throttle(slot)

    def _count(self, slot: Slot, state: PartitionState, chunk: Chunk, outcome: Outcome) -> None:
        add = self.metrics.add
        add("records", outcome.records)
        add("bytes", chunk.n_bytes)
        add("updates", outcome.updates)
        add("windows_sealed", outcome.sealed)
        add("future", outcome.future)
        add("early", outcome.early)
        add("jumps", outcome.jumps)
        if outcome.jumps:
            say(
                logging.WARNING,
                "watermark_jumped",
                partition=slot.partition,
                offset=int(chunk.offsets[outcome.jumped_at]),
                jumps=outcome.jumps,
                watermark=iso(state.watermark),
            )
        add("nulls", outcome.nulls)
        add("invalid", outcome.invalid)
        add("misplaced", outcome.misplaced)
        add("undecodable", outcome.undecodable_records.size)
        add("unreadable_times", outcome.unreadable_times)
        add("late", outcome.late_records.size)
        for sketch, n in outcome.late.items():
            self.metrics.add_late(sketch, n)
        if self._sink is not None:
            sent, size = side_outputs.send(
                self._sink, chunk, outcome, self.metrics, payload=self.settings.refused_payload
            )
            slot.refused_bytes += size
            if sent:
                self._refill(slot)
                slot.tokens -= sent
                if slot.tokens < -self.settings.refused_per_s:
                    self._lives.throttle(slot)

    # -------------------------------------------------------------------------------------------------- time

    def _tick(self) -> None:
        """Start what is due."""
        now = self._clock.monotonic()
        if now >= self._report_at:
            self._report_at = now + self.settings.report_every_s
            self._report()
        self._clocks.watch()
        self._idle(now)
        for slot in sorted(self._slots.values(), key=lambda one: one.saved_at):  # whoever waits longest is first
            if slot.job is not None:
                continue
            if slot.status == "restoring":
                member = slot.dropped_at < 0 or self._source.confirmed(slot.dropped_s)
                if policy.takes_again(slot, now, self._lives.polls, member=member):
                    self._lives.take(slot)
                continue
            if slot.status == "halted" or slot.state is None:
                continue
            if slot.throttled:
                self._refill(slot)
                if policy.flows(slot):
                    slot.throttled = False
                    self._source.resume(slot.partition)
            self._lives.settle_counts(slot)
            due = policy.due(slot, now, self.settings)
            if due == "nothing" or (due == "snapshot" and not self._lives.paced(now)):
                continue
            if not policy.fits(slot, self._slots.values()):
                continue
            if due == "rewrite":
                slot.rewriting, slot.rewrite_at = not slot.state.changed(), None
                slot.state.touch()
            self._lives.save(slot)
        self._lives.collect()

    def _refill(self, slot: Slot) -> None:
        side_outputs.refill(slot, self._clock.monotonic(), self.settings.refused_per_s)

    def _idle(self, now: float) -> None:
        """Move the watermarks of silent partitions, and seal what they have passed."""
        slots = list(self._slots.values())
        try:
            silent = list(
                self._silence.watermarks(slots, self._source, self._publisher, now, self._clocks.earliest_ms())
            )
        except SketchstreamError as error:  # what the others have published cannot be read: silence waits
            say(logging.WARNING, "silence_unknown", reason=str(error))
            return
        for slot, end, watermark in silent:
            if slot.state is not None and slot.state.advance_at(end, watermark):
                self._seal(slot)

    def _seal(self, slot: Slot, *, everything: bool = False) -> None:
        """Seal what is due, or everything; where nobody says how many partitions there are, drop the partition."""
        if slot.state is None:
            return
        try:
            self.metrics.add("windows_sealed", slot.state.seal(self._lives.partitions_now, everything=everything))
        except SketchstreamError as error:
            self._lives.fail(slot, error)

    # ------------------------------------------------------------------------------------------------- views

    def progress(self) -> Progress:
        """Where the worker is."""
        return status.progress(self._slots.values(), self.metrics.counters, self._clock.monotonic() - self._began)

    def gauges(self) -> Gauges:
        """What the endpoint shows. May be called from other threads."""
        age = self._clock.monotonic() - self._polled_at
        skew_ms = self._clocks.skew_ms()
        return status.gauges(
            self._slots.copy().values(), self._losses, age, joined=self._source.joined, skew_ms=skew_ms
        )

    def halted(self) -> dict[int, str]:
        """Halted partitions and why."""
        return {slot.partition: slot.reason for slot in self._slots.values() if slot.status == "halted"}
