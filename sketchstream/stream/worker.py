"""The worker: one loop that polls, applies, seals, snapshots, commits and publishes, over ports.

In: a source, a store, a publisher, perhaps a sink. Out: sealed sketches and frontiers, published after they were
committed. Touches: what its ports touch; two worker threads for commits unless told otherwise.
Source: design.md 7; notes/kafka_faults.md 10, 13, 14.

This file acts. What is decided without acting is in `judgement`, what its threads do in `jobs`, what it looks like from
outside in `views`.

A partition is `restoring` (the store is taking it), `running`, or `halted` (paused, its state dropped; the message says
what to do). Whatever goes wrong with a partition drops its state, lets one poll pass, and takes it again from what is
committed; nothing of a dropped state was published. A halted partition does not stop the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from sketchstream.errors import BrokerError, DataLossError, SketchstreamError
from sketchstream.stream import judgement, refusals, views
from sketchstream.stream.jobs import Done, Jobs
from sketchstream.stream.metrics import Gauges, Metrics
from sketchstream.stream.partition import Outcome, PartitionState, Rules
from sketchstream.stream.ports import (
    Assigned,
    Chunk,
    Clock,
    Fresh,
    PartitionError,
    Publisher,
    Revoked,
    Sink,
    Source,
    StateStore,
)
from sketchstream.stream.silence import Silence
from sketchstream.stream.slots import Inline, Progress, Settings, Slot, SystemClock
from sketchstream.stream.windows import iso

__all__ = ["Progress", "Settings", "SystemClock", "Worker"]

log = logging.getLogger("sketchstream.worker")


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
        self._jobs = Jobs(rules, store, publisher, sink, self._clock)
        self._progress = progress
        self._slots: dict[int, Slot] = {}
        self._stop = threading.Event()
        self._polls = 0
        self._polled_at = self._clock.monotonic()
        self._began = self._clock.monotonic()
        self._losses = {plan.name: float(plan.loss) for plan in rules.sketches}
        self._silence = None if settings.idle_ms is None else Silence(settings.idle_ms, rules.lateness_ms)
        self._counted = (-1, 0)
        self._closed = False
        self._leftover: dict[int, Future[Any]] = {}
        self._executor: Executor = (
            ThreadPoolExecutor(settings.threads, thread_name_prefix="sketchstream-commit")
            if settings.threads
            else Inline()
        )

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
        self._collect()
        busy = any(slot.job is not None and slot.job.done() for slot in self._slots.values())
        events = self._source.poll(0.0 if busy else self.settings.poll_s if timeout_s is None else timeout_s)
        self._polls += 1
        self._polled_at = self._clock.monotonic()
        for event in events:
            if isinstance(event, Chunk):
                self._chunk(event)
            elif isinstance(event, Assigned):
                self._assigned(event.partitions)
            elif isinstance(event, Revoked):
                self._revoked(event.partitions)
            elif isinstance(event, PartitionError):
                slot = self._slots.get(event.partition)
                if slot is not None and slot.status != "halted":
                    self._troubled(slot, event)
            else:
                slot = self._slots.get(event.partition)
                if slot is not None:
                    slot.ended = True
        self._collect()
        self._tick()
        if self._progress is not None:
            self._progress(self.progress())

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
                self._wait(slot, deadline)
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
                if not judgement.fits(slot, self._slots.values()):
                    for other in self._slots.values():
                        self._wait(other, deadline)
                if slot.state is not None and slot.job is None:
                    self._save(slot)
        for slot in self._slots.values():  # an input that was read to its end is not done while something is missing
            if slot.ended and slot.publish_error is not None and slot.state is not None and slot.state.to_publish:
                raise slot.publish_error
            if slot.ended and slot.error is not None and slot.status == "restoring":
                raise slot.error

    def _wait(self, slot: Slot, deadline: float) -> None:
        """Wait for a partition's job, and take in what it brought."""
        job = slot.job
        if job is None:
            return
        left = max(0.0, deadline - self._clock.monotonic())
        try:
            job.exception(timeout=left)
        except TimeoutError:
            return
        self._collect()

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

    # ------------------------------------------------------------------------------------------- partitions

    def _assigned(self, partitions: tuple[int, ...]) -> None:
        for partition in partitions:
            if partition in self._slots:
                continue
            self._source.pause(partition)
            slot = self._slots[partition] = Slot(partition, tokens_at=self._clock.monotonic())
            self._take(slot)

    def _revoked(self, partitions: tuple[int, ...]) -> None:
        for partition in partitions:
            slot = self._slots.pop(partition, None)
            if slot is None:
                continue
            slot.state = None
            self._release(slot)
            if self._silence is not None:
                self._silence.forget(partition)
            _say(logging.INFO, "revoked", partition=partition)

    def _release(self, slot: Slot) -> None:
        """Let the store forget the partition; if a job of it is still in flight, once that has ended."""
        job, slot.job = slot.job, None
        if job is None or job.done():
            self._store.drop(slot.partition)
        else:
            self._leftover[slot.partition] = job

    def _take(self, slot: Slot) -> None:
        slot.status = "restoring"
        left = self._leftover.get(slot.partition)
        if left is not None:
            if not left.done():  # the store takes one call at a time for a partition
                slot.retry_at = self._clock.monotonic() + 0.05
                return
            del self._leftover[slot.partition]
            self._store.drop(slot.partition)
        slot.reason = "taking"
        self._start(slot, "take", self._jobs.take, slot.partition, self._source.partition_count())

    def _taken(self, slot: Slot, found: PartitionState | Fresh, seconds: float) -> None:
        if isinstance(found, Fresh):
            beginning = found.position if found.position is not None else self._source.beginning(slot.partition)
            state = PartitionState.fresh(
                self.rules,
                slot.partition,
                beginning,
                self._source.partition_count(),
                revision=found.revision,
                partial=found.partial or beginning > 0,
            )
            slot.state = state
            slot.reason = "first snapshot"
            self._save(slot)  # before the first record: a crash must not look like a first start again
            return
        slot.state = found
        self.metrics.add("restores")
        self.metrics.observe("restore_seconds", seconds)
        self._go(slot)

    def _go(self, slot: Slot) -> None:
        """A partition has its state: read on."""
        assert slot.state is not None
        slot.status, slot.reason, slot.error = "running", "", None
        slot.saved_at = self._clock.monotonic()
        self._plan_rewrite(slot)
        slot.quiet_since, slot.ended = None, False
        self._source.seek(slot.partition, slot.state.position)
        if not slot.throttled:
            self._source.resume(slot.partition)
        _say(
            logging.INFO,
            "running",
            partition=slot.partition,
            position=slot.state.position,
            open_windows=slot.state.open_windows,
        )

    def _troubled(self, slot: Slot, event: PartitionError) -> None:
        """The source cannot read a partition on: accept what was lost, where that is the policy, or let go of it."""
        if not self.settings.accept_loss:
            self._failed(slot, event.error)
        elif event.anew:
            self._failed(slot, BrokerError(f"partition {slot.partition}: the input was made again: taking it anew"))
        elif not self._accepted(slot, event):
            self._failed(slot, event.error)

    def _accepted(self, slot: Slot, event: PartitionError) -> bool:
        """Whether a loss was accepted: committed with its windows marked, before anything more is read."""
        state, position = slot.state, event.resume_at
        if position is None or state is None or slot.status != "running" or position == state.position:
            return False
        self._source.pause(slot.partition)
        self._wait(slot, self._clock.monotonic() + self.settings.stop_s)
        if slot.state is not state:
            return True  # a commit in flight failed: the state is taken again, and meets the gap again
        if slot.job is not None:
            return False
        lost = position - state.position
        _say(logging.WARNING, "loss_accepted", partition=slot.partition, position=position, offsets=lost)
        self.metrics.add("lost_offsets" if lost > 0 else "diverged_offsets", abs(lost))
        if lost > 0:
            state.skip(position)
        else:
            state.rewind(position)
        slot.status, slot.reason = "restoring", "going on where the log goes on"
        self._save(slot)
        return True

    def _failed(self, slot: Slot, error: BaseException) -> None:
        """Drop a partition's state; take it again later, or halt."""
        slot.state = None
        self._source.pause(slot.partition)
        found = judgement.verdict(slot, error)
        slot.strange = found.strange
        if found.halts:
            self._halt(slot, found.text)
            return
        self._release(slot)
        slot.failures += 1
        if self.settings.give_up_after is not None and slot.failures > self.settings.give_up_after:
            raise error
        slot.status, slot.reason, slot.error = "restoring", found.text, error
        slot.dropped_at = self._polls
        slot.retry_at = self._clock.monotonic() + judgement.pause_s(slot.failures)
        _say(logging.WARNING, "dropped", partition=slot.partition, failures=slot.failures, reason=found.text)

    def _halt(self, slot: Slot, reason: str) -> None:
        self._release(slot)
        slot.state = None
        slot.status, slot.reason = "halted", reason
        _say(logging.ERROR, "halted", partition=slot.partition, reason=reason)
        everything = len(self._slots) == self._source.partition_count() and all(
            one.status == "halted" for one in self._slots.values()
        )
        if self.settings.fail_fast or everything:
            raise DataLossError(reason)

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
            outcome = state.apply(chunk, self._partitions_now)
            self._count(slot, chunk, outcome)
        except Exception as error:  # whatever happened, a state that may be half applied must go
            self._failed(slot, error)
            return
        slot.failures = slot.strange = 0
        slot.quiet_since = None
        if judgement.full(slot):
            self._throttle(slot)

    def _count(self, slot: Slot, chunk: Chunk, outcome: Outcome) -> None:
        add = self.metrics.add
        add("records", outcome.records)
        add("bytes", chunk.n_bytes)
        add("updates", outcome.updates)
        add("windows_sealed", outcome.sealed)
        add("future", outcome.future)
        add("nulls", outcome.nulls)
        add("invalid", outcome.invalid)
        add("misplaced", outcome.misplaced)
        add("undecodable", outcome.undecodable_records.size)
        add("unreadable_times", outcome.unreadable_times)
        add("late", outcome.late_records.size)
        for sketch, n in outcome.late.items():
            self.metrics.add_late(sketch, n)
        if self._sink is not None:
            sent = refusals.send(self._sink, chunk, outcome, self.metrics, payload=self.settings.refused_payload)
            if sent:
                self._refill(slot)
                slot.tokens -= sent
                if slot.tokens < -self.settings.refused_per_s:
                    self._throttle(slot)

    def _throttle(self, slot: Slot) -> None:
        if not slot.throttled:
            slot.throttled = True
            self._source.pause(slot.partition)

    # -------------------------------------------------------------------------------------------------- jobs

    def _start(self, slot: Slot, kind: str, run: Callable[..., Any], *args: object) -> None:
        slot.job_kind, slot.job_began = kind, self._clock.monotonic()
        slot.job = self._executor.submit(run, *args)

    def _save(self, slot: Slot) -> None:
        """Capture a partition and start its commit; or only its publication, if nothing else changed."""
        state = slot.state
        assert state is not None
        began = self._clock.monotonic()
        if state.changed():
            slot.job_bytes = state.dirty_bytes
            try:
                snapshot = state.capture(self._partitions_now)
            except Exception as error:  # what was half sealed must go
                self._failed(slot, error)
                return
            self.metrics.observe("capture_seconds", self._clock.monotonic() - began)
            self._start(slot, "commit", self._jobs.commit, slot.partition, snapshot, state.outbox())
        else:
            self._start(slot, "publish", self._jobs.publish, slot.partition, state.outbox())
        slot.saved_at = began

    def _collect(self) -> None:
        """Take in what finished jobs brought."""
        for slot in list(self._slots.values()):
            job = slot.job
            if job is None or not job.done():
                continue
            slot.job = None
            error = job.exception()
            if error is not None:
                if slot.job_kind == "commit":
                    self.metrics.add("commit_failures")
                if slot.status != "halted":
                    self._failed(slot, error)
                continue
            result = job.result()
            if slot.job_kind == "take":
                if slot.status == "restoring":
                    self._taken(slot, result, self._clock.monotonic() - slot.job_began)
            elif slot.state is not None:
                self._committed(slot, result)

    def _committed(self, slot: Slot, done: Done) -> None:
        state = slot.state
        assert state is not None
        slot.failures = slot.strange = 0
        if slot.job_kind == "commit":
            if not slot.rewriting:
                self._plan_rewrite(slot)
            slot.rewriting = False
            self.metrics.add("snapshots")
            self.metrics.add("snapshot_bytes", done.blob_bytes)
            self.metrics.observe("snapshot_seconds", done.seconds)
        slot.publish_error = done.error
        if done.error is None:
            entries, frontiers = done.outbox
            state.published(entries, frontiers)
            self.metrics.add("published", len(entries))
            for entry in entries:
                _say(
                    logging.INFO,
                    "published",
                    sketch=entry.sketch,
                    partition=entry.partition,
                    revision=entry.revision,
                    window=iso(entry.window[0]),
                )
        elif isinstance(done.error, DataLossError):
            self._failed(slot, done.error)
            return
        else:
            self.metrics.add("publish_failures")
            slot.publish_at = self._clock.monotonic() + 1.0
            _say(logging.WARNING, "publish failed", partition=slot.partition, reason=str(done.error))
        if slot.status == "restoring":
            self._go(slot)

    # -------------------------------------------------------------------------------------------------- time

    def _tick(self) -> None:
        """Start what is due."""
        now = self._clock.monotonic()
        self._idle(now)
        for slot in list(self._slots.values()):
            if slot.job is not None:
                continue
            if slot.status == "restoring":
                if judgement.takes_again(slot, now, self._polls):
                    self._take(slot)
                continue
            if slot.status == "halted" or slot.state is None:
                continue
            if slot.throttled:
                self._refill(slot)
                if judgement.flows(slot):
                    slot.throttled = False
                    self._source.resume(slot.partition)
            due = judgement.due(slot, now, self.settings)
            if due == "nothing" or not judgement.fits(slot, self._slots.values()):
                continue
            if due == "rewrite":
                slot.rewriting, slot.rewrite_at = not slot.state.changed(), None
                slot.state.touch()
            self._save(slot)
        self._collect()

    def _plan_rewrite(self, slot: Slot) -> None:
        """A partition that falls silent now is committed once more later on; see `StateStore.rewrite_after_s`."""
        after = self._store.rewrite_after_s
        slot.rewrite_at = None if after is None else self._clock.monotonic() + after
        slot.rewriting = False

    def _refill(self, slot: Slot) -> None:
        refusals.refill(slot, self._clock.monotonic(), self.settings.refused_per_s)

    def _idle(self, now: float) -> None:
        """Move the watermarks of silent partitions, and seal what they have passed."""
        if self._silence is None:
            return
        slots = list(self._slots.values())
        try:
            silent = list(self._silence.watermarks(slots, self._source, self._publisher, now, self._clock.now_ms()))
        except SketchstreamError as error:  # what the others have published cannot be read: silence waits
            _say(logging.WARNING, "silence_unknown", reason=str(error))
            return
        for slot, watermark in silent:
            if slot.state is not None and slot.state.advance(watermark):
                self._seal(slot)

    def _seal(self, slot: Slot, *, everything: bool = False) -> None:
        """Seal what is due, or everything; where nobody says how many partitions there are, drop the partition."""
        if slot.state is None:
            return
        try:
            self.metrics.add("windows_sealed", slot.state.seal(self._partitions_now, everything=everything))
        except SketchstreamError as error:
            self._failed(slot, error)

    def _partitions_now(self) -> int:
        """Partitions of the input, asked of the cluster after the records that are being looked at were fetched."""
        if self._counted[0] != self._polls:
            self._counted = self._polls, self._source.partition_count(fresh=True)
        return self._counted[1]

    # ------------------------------------------------------------------------------------------------- views

    def progress(self) -> Progress:
        """Where the worker is."""
        return views.progress(self._slots.values(), self.metrics.counters, self._clock.monotonic() - self._began)

    def gauges(self) -> Gauges:
        """What the endpoint shows. May be called from other threads."""
        age = self._clock.monotonic() - self._polled_at
        return views.gauges(self._slots.copy().values(), self._losses, age)

    def halted(self) -> dict[int, str]:
        """Halted partitions and why."""
        return {slot.partition: slot.reason for slot in self._slots.values() if slot.status == "halted"}


def _say(level: int, event: str, **fields: object) -> None:
    """One log line of key=value pairs; no item, count or key is ever among them."""
    if log.isEnabledFor(level):
        text = " ".join(f"{name}={_quoted(value)}" for name, value in fields.items())
        log.log(level, "event=%s %s", _quoted(event), text)


def _quoted(value: object) -> str:
    text = str(value).replace("\n", " ")
    return f'"{text}"' if " " in text or not text else text
