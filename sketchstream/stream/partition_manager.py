"""The life of a worker's partitions: taken, read, saved, in trouble, dropped, halted.

In: what the source says of partitions, states that want to be saved. Out: slots with states. Touches: the source
(pause, seek, resume), the store (drop), the worker's threads.

Whatever goes wrong with a partition drops its state, lets one poll pass, and takes it again from what is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from sketchstream.errors import BrokerError, DataLossError, SketchstreamError, SnapshotsGoneError
from sketchstream.stream import policy
from sketchstream.stream.assigned_partition import Settings, Slot
from sketchstream.stream.buffers import Buffers
from sketchstream.stream.interfaces import Clock, Fresh, PartitionError, Source
from sketchstream.stream.io_tasks import Done, Jobs
from sketchstream.stream.metrics import Metrics
from sketchstream.stream.partition import PartitionState
from sketchstream.stream.windows import iso

log = logging.getLogger("sketchstream.worker")

PRODUCERS_LEARN_S = 900.0
"""Seconds within which producers place records by a new number of partitions: the clients' largest default."""


class Lives:
    """The partitions of one worker. Every method is called from the worker's own thread.

    Args:
        source: of records.
        jobs: what is done for a partition in another thread.
        executor: where that is.
        clock: the machine's, or a test's.
        settings: of the worker.
        metrics: counters.
    """

    def __init__(
        self, source: Source, jobs: Jobs, executor: Executor, clock: Clock, settings: Settings, metrics: Metrics
    ) -> None:
        self.slots: dict[int, Slot] = {}
        self.polls = 0
        self._source = source
        self._jobs = jobs
        self._executor = executor
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._counted: dict[str, tuple[int, int]] = {}
        self._unanswered: tuple[int, SketchstreamError] = (-1, SketchstreamError())
        self._leftover: dict[int, Future[Any]] = {}
        self._paid_until = float("-inf")
        self._buffers = Buffers()

    def assign(self, partitions: tuple[int, ...]) -> None:
        """These partitions are ours: the store takes them before anything of them is read."""
        for partition in partitions:
            if partition in self.slots:
                continue
            self._source.pause(partition)
            slot = self.slots[partition] = Slot(partition, tokens_at=self._clock.monotonic())
            self.take(slot)

    def revoke(self, partitions: tuple[int, ...]) -> None:
        """These are not ours any more: their states are dropped."""
        for partition in partitions:
            slot = self.slots.pop(partition, None)
            if slot is None:
                continue
            slot.state = None
            self._release(slot)
            say(logging.INFO, "revoked", partition=partition)

    def _release(self, slot: Slot) -> None:
        """Let the store forget the partition; if a job of it is still in flight, once that has ended."""
        slot.refused_bytes = 0
        if self._jobs.sink is not None:
            self._jobs.sink.forget(slot.partition)
        job, slot.job = slot.job, None
        if job is None or job.done():
            self._jobs.store.drop(slot.partition)
        else:
            self._leftover[slot.partition] = job

    def take(self, slot: Slot) -> None:
        """Ask the store for a partition and its state."""
        slot.status = "restoring"
        left = self._leftover.get(slot.partition)
        if left is not None:
            if not left.done():  # the store takes one call at a time for a partition
                slot.retry_at = self._clock.monotonic() + 0.05
                return
            del self._leftover[slot.partition]
            self._jobs.store.drop(slot.partition)
        if not self._fits(slot):
            return
        slot.reason = "taking"
        self._start(slot, "take", self._jobs.take, slot.partition, self._source.partition_count())

    def _fits(self, slot: Slot) -> bool:
        """Whether a partition's windows fit into memory beside those of the others; else it waits for another worker.

        The partitions of a worker that ends or is killed all move to others, who would be killed in their turn.
        """
        fits, of = self._settings.fits, self._source.partition_count()
        held = [
            one for one in self.slots.values() if one is not slot and (one.state is not None or one.job is not None)
        ]
        if fits is None or fits(len(held) + 1, of):
            return True
        reason = f"the windows of {len(held) + 1} partitions do not fit into worker.memory_limit: start more workers"
        if slot.reason != reason:
            say(logging.ERROR, "no_memory", partition=slot.partition, reason=reason)
        slot.reason, slot.retry_at = reason, self._clock.monotonic() + 1.0
        return False

    def _taken(self, slot: Slot, found: PartitionState | Fresh, seconds: float) -> None:
        if isinstance(found, Fresh):
            beginning = found.position if found.position is not None else self._source.beginning(slot.partition)
            state = PartitionState.fresh(
                self._jobs.rules,
                slot.partition,
                beginning,
                self._source.partition_count(),
                revision=found.revision,
                partial=found.partial or beginning > 0,
                sealed_elsewhere=found.sealed_elsewhere,
                peers=found.peers,
            )
            slot.state = state
            slot.reason = "first snapshot"
            self.save(slot)  # before the first record: a crash must not look like a first start again
            return
        slot.state = found
        self._metrics.add("restores")
        self._metrics.observe("restore_seconds", seconds)
        self._go(slot)

    def _go(self, slot: Slot) -> None:
        """A partition has its state: read on."""
        assert slot.state is not None
        slot.status, slot.reason, slot.error = "running", "", None
        slot.saved_at = self._clock.monotonic()
        self._plan_rewrite(slot)
        slot.ended, slot.grown_at = False, None
        self._source.seek(slot.partition, slot.state.position)
        if not slot.throttled:
            self._source.resume(slot.partition)
        say(
            logging.INFO,
            "running",
            partition=slot.partition,
            position=slot.state.position,
            open_windows=slot.state.open_windows,
        )

    def trouble(self, slot: Slot, event: PartitionError) -> None:
        """The source cannot read a partition on: accept what was lost, where that is the policy, or let go of it."""
        if not self._settings.accept_loss:
            self.fail(slot, event.error)
        elif event.anew:
            self.fail(slot, BrokerError(f"partition {slot.partition}: the input was made again: taking it anew"))
        elif not self.accept_loss(slot, event):
            self.fail(slot, event.error)

    def accept_loss(self, slot: Slot, event: PartitionError) -> bool:
        """Whether a loss was accepted: committed with its windows marked, before anything more is read."""
        state, position = slot.state, event.resume_at
        if position is None or state is None or slot.status != "running" or position == state.position:
            return False
        self._source.pause(slot.partition)
        self.wait(slot, self._clock.monotonic() + self._settings.stop_s)
        if slot.state is not state:
            return True  # a commit in flight failed: the state is taken again, and meets the gap again
        if slot.job is not None:
            return False
        lost = position - state.position
        say(logging.WARNING, "loss_accepted", partition=slot.partition, position=position, offsets=lost)
        self._metrics.add("lost_offsets" if lost > 0 else "diverged_offsets", abs(lost))
        if lost > 0:
            state.skip(position)
        else:
            state.rewind(position)
        slot.status, slot.reason = "restoring", "going on where the log goes on"
        self.save(slot)
        return True

    def fail(self, slot: Slot, error: BaseException) -> None:
        """Drop a partition's state; take it again later, or halt."""
        slot.state = None
        self._source.pause(slot.partition)
        found = policy.verdict(slot, error, self._clock.monotonic())
        slot.strange, slot.strange_since = found.strange, found.since
        if found.halts:
            self.halt(slot, found.text)
            return
        self._release(slot)
        slot.failures += 1
        if self._settings.give_up_after is not None and slot.failures > self._settings.give_up_after:
            raise error
        slot.status, slot.reason, slot.error = "restoring", found.text, error
        slot.dropped_at, slot.dropped_s = self.polls, self._clock.monotonic()
        slot.retry_at = self._clock.monotonic() + policy.pause_s(slot.failures)
        say(logging.WARNING, "dropped", partition=slot.partition, failures=slot.failures, reason=found.text)

    def halt(self, slot: Slot, reason: str) -> None:
        """Read nothing more of a partition: a person has to decide.

        Raises:
            DataLossError: `fail_fast` is set, or every partition of the input is halted.
        """
        self._release(slot)
        slot.state = None
        slot.status, slot.reason = "halted", reason
        say(logging.ERROR, "halted", partition=slot.partition, reason=reason)
        everything = len(self.slots) == self._source.partition_count() and all(
            one.status == "halted" for one in self.slots.values()
        )
        if self._settings.fail_fast or everything:
            raise DataLossError(reason)

    def wait(self, slot: Slot, deadline: float) -> None:
        """Wait for a partition's job, and take in what it brought."""
        job = slot.job
        if job is None:
            return
        left = max(0.0, deadline - self._clock.monotonic())
        try:
            job.exception(timeout=left)
        except TimeoutError:
            return
        self.collect()

    def throttle(self, slot: Slot) -> None:
        """Read nothing of a partition until it may go on."""
        if not slot.throttled:
            slot.throttled = True
            self._source.pause(slot.partition)

    def _start(self, slot: Slot, kind: str, run: Callable[..., Any], *args: object) -> None:
        slot.job_kind, slot.job_began = kind, self._clock.monotonic()
        slot.job = self._executor.submit(run, *args)

    def save(self, slot: Slot) -> None:
        """Capture a partition and start its commit; or only its publication, if nothing else changed."""
        state = slot.state
        assert state is not None
        began = self._clock.monotonic()
        if state.changed():
            try:
                snapshot = state.capture(self.partitions_now, self._buffers)
            except Exception as error:  # what was half sealed must go
                self.fail(slot, error)
                return
            self._metrics.observe("capture_seconds", self._clock.monotonic() - began)
            slot.job_bytes = snapshot.blob_bytes
            slot.refused_bytes = 0
            self._paid_until = max(began, self._paid_until) + slot.job_bytes / self._settings.snapshot_bytes_per_s
            self._start(slot, "commit", self._jobs.commit, slot.partition, snapshot, state.outbox())
        else:
            self._start(slot, "publish", self._jobs.publish, slot.partition, state.outbox())
        slot.saved_at = began

    def paced(self, now: float) -> bool:
        """Whether what was written of snapshots lets another one begin: on average no more than the rate allowed."""
        return now >= self._paid_until

    def collect(self) -> None:
        """Take in what finished jobs brought."""
        for partition in [p for p, job in self._leftover.items() if job.done()]:
            del self._leftover[partition]
            self._jobs.store.drop(partition)  # a take that ended after its revocation has opened it again
        for slot in list(self.slots.values()):
            job = slot.job
            if job is None or not job.done():
                continue
            slot.job = None
            error = job.exception()
            if error is not None:
                if slot.job_kind == "commit":
                    self._metrics.add("commit_failures")
                if isinstance(error, SnapshotsGoneError) and slot.state is not None:
                    say(logging.ERROR, "snapshots_gone", partition=slot.partition, reason=str(error))
                    slot.state.store_all()
                    if slot.status == "restoring":  # its first snapshot
                        self.fail(slot, error)
                    continue
                if slot.status != "halted":
                    self.fail(slot, error)
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
            self._metrics.add("snapshots")
            self._metrics.add("snapshot_bytes", done.blob_bytes)
            self._metrics.observe("snapshot_seconds", done.seconds)
            state.postpone(done.begins)
        slot.publish_error = done.error
        if done.error is None:
            entries, frontiers = done.outbox
            state.published(entries, frontiers)
            self._metrics.add("published", len(entries))
            for entry in entries:
                say(
                    logging.INFO,
                    "published",
                    sketch=entry.sketch,
                    partition=entry.partition,
                    revision=entry.revision,
                    window=iso(entry.window[0]),
                )
        elif isinstance(done.error, DataLossError):
            self.fail(slot, done.error)
            return
        else:
            self._metrics.add("publish_failures")
            slot.publish_at = self._clock.monotonic() + 1.0
            say(logging.WARNING, "publish failed", partition=slot.partition, reason=str(done.error))
        if slot.status == "restoring":
            self._go(slot)

    def _plan_rewrite(self, slot: Slot) -> None:
        """A partition that falls silent now is committed once more later on; see `StateStore.rewrite_after_s`."""
        after = self._jobs.store.rewrite_after_s
        slot.rewrite_at = None if after is None else self._clock.monotonic() + after
        slot.rewriting = False

    def partitions_now(self) -> int:
        """Partitions of the input, asked of the cluster after the records that are being looked at were fetched.

        Once a poll, whatever the answer is: where nobody answers, each partition would wait for that by itself, and
        the group would miss this worker.

        Raises:
            SketchstreamError: nobody answered.
        """
        return self._count("windows")

    def partitions_for_items(self) -> int:
        """The same, because of a misplaced item: asked for apart, so that `partitions_now` depends on no payload."""
        return self._count("items")

    def _count(self, purpose: str) -> int:
        """The answer of this poll for one purpose; that nobody answers is known for all purposes."""
        if self._unanswered[0] == self.polls:
            raise self._unanswered[1]
        if self._counted.get(purpose, (-1, 0))[0] != self.polls:
            try:
                self._counted[purpose] = self.polls, self._source.partition_count(fresh=True)
            except SketchstreamError as error:
                self._unanswered = self.polls, error
                raise
        return self._counted[purpose][1]

    def settle_counts(self, slot: Slot) -> None:
        """After partitions were added: once producers have heard of it, records to come are placed by the new number.

        What they wrote until then is below the high watermark that is asked for here.
        """
        state = slot.state
        if state is None or not state.unsettled:
            slot.grown_at = None
            return
        now = self._clock.monotonic()
        if slot.grown_at is None:
            slot.grown_at = now
        if now - slot.grown_at >= PRODUCERS_LEARN_S:
            slot.grown_at = now - PRODUCERS_LEARN_S + 1.0  # the next question, if nobody answers this one
            end = self._source.high_watermarks([slot.partition]).get(slot.partition)
            if end is not None:
                state.settle_counts(end)


def say(level: int, event: str, **fields: object) -> None:
    """One log line of key=value pairs; no item, count or key is ever among them."""
    if log.isEnabledFor(level):
        text = " ".join(f"{name}={_quoted(value)}" for name, value in fields.items())
        log.log(level, "event=%s %s", _quoted(event), text)


def _quoted(value: object) -> str:
    text = str(value).replace("\n", " ")
    return f'"{text}"' if " " in text or not text else text
