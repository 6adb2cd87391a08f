"""The life cycle of a worker's partitions: taking, reading, saving, retrying, dropping, halting.

In: partition events of the source, states that are due for a snapshot. Out: assigned partitions with states.
Touches: the source (pause, seek, resume), the store (drop), the worker's threads.

After any failure of a partition, its state is dropped, and after the next poll it is taken again from what is
committed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Literal

from sketchstream.errors import BrokerError, DataLossError, SketchstreamError, SnapshotsGoneError
from sketchstream.log_events import EventLog
from sketchstream.stream.input.partition_counts import CountNeeded, LongWork, Result, Steps
from sketchstream.stream.interfaces import Chunk, Clock, Fresh, PartitionError, Snapshot, Source
from sketchstream.stream.monitoring.metrics import Metrics
from sketchstream.stream.state import checkpoint
from sketchstream.stream.state.buffers import Buffers
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.windows.calendar import iso
from sketchstream.stream.worker import log_lines, policy
from sketchstream.stream.worker.assigned_partition import AssignedPartition, Computation, Job
from sketchstream.stream.worker.io_tasks import Done, IoTasks
from sketchstream.stream.worker.settings import Settings
from sketchstream.topics import TOPIC_STRIDE

event_log = EventLog("sketchstream.worker")

TURN_S = 0.5
"""Seconds of computing after which the worker polls, even if the next long work was done at once."""


class PartitionManager:
    """The partitions of one worker. Every method is called from the worker's own thread.

    Args:
        source: source of records.
        tasks: what is done for a partition in another thread.
        executor: runs the tasks.
        window_executor: does the long work of states: it must not wait behind tasks, which may take minutes.
        clock: the machine's, or a test's.
        settings: settings of the worker.
        metrics: counters.
        apply: applies a chunk that had to wait.
    """

    def __init__(
        self,
        source: Source,
        tasks: IoTasks,
        executor: Executor,
        window_executor: Executor,
        clock: Clock,
        settings: Settings,
        metrics: Metrics,
        apply: Callable[[Chunk], None],
    ) -> None:
        self.partitions: dict[int, AssignedPartition] = {}
        self.polls = 0
        self._source = source
        self._tasks = tasks
        self._executor = executor
        self._window_executor = window_executor
        self._apply = apply
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._counted: dict[tuple[CountNeeded, int], tuple[int, int]] = {}
        self._unanswered: tuple[int, SketchstreamError] = (-1, SketchstreamError())
        self._leftover: dict[int, Job] = {}
        self._paid_until = float("-inf")
        self._buffers = Buffers()
        self._loss: str | None = None

    def assign(self, partitions: tuple[int, ...]) -> None:
        """Accept newly assigned partitions: the store takes each before any of its records is read."""
        for partition in partitions:
            if partition in self.partitions:
                continue
            self._source.pause(partition)
            assigned = self.partitions[partition] = AssignedPartition(partition, self._clock.monotonic())
            self.take(assigned)

    def revoke(self, partitions: tuple[int, ...]) -> None:
        """Drop the states of partitions that are no longer ours."""
        for partition in partitions:
            assigned = self.partitions.pop(partition, None)
            if assigned is None:
                continue
            assigned.drop()
            self._release(assigned)
            event_log.info("revoked", partition=partition)

    def _release(self, assigned: AssignedPartition) -> None:
        """Let the store forget the partition, after its running job has ended."""
        if self._tasks.sink is not None:
            self._tasks.sink.forget(assigned.partition)
        job, assigned.job = assigned.job, None
        if job is None or job.future.done():
            self._tasks.store.drop(assigned.partition)
        else:
            self._leftover[assigned.partition] = job

    def take(self, assigned: AssignedPartition) -> None:
        """Ask the store for a partition and its state."""
        left = self._leftover.get(assigned.partition)
        if left is not None:
            if not left.future.done():  # the store takes one call at a time for a partition
                assigned.wait(self._clock.monotonic() + 0.05)
                return
            del self._leftover[assigned.partition]
            self._tasks.store.drop(assigned.partition)
        if not self._fits(assigned):
            return
        assigned.take()
        self._start(
            assigned, "take", self._tasks.take, assigned.partition, self._source.partition_count(assigned.partition)
        )

    def _fits(self, assigned: AssignedPartition) -> bool:
        """Whether a partition's windows fit into memory with the others'; otherwise it waits for another worker.

        If a worker were killed for its memory, its partitions would move to others, which would be killed in turn.
        """
        fits, of = self._settings.fits, len(self._source.numbers())
        others = (other for other in self.partitions.values() if other is not assigned)
        number = 1 + sum(other.state is not None or other.job is not None for other in others)
        if fits is None or fits(number, of):
            return True
        reason = f"windows and input of {number} partitions do not fit into worker.memory_limit: start more workers"
        if assigned.reason != reason:
            event_log.error("no_memory", partition=assigned.partition, reason=reason)
        assigned.wait(self._clock.monotonic() + 1.0, reason)
        return False

    def _taken(self, assigned: AssignedPartition, start: PartitionState | Fresh, seconds: float) -> None:
        """Begin with the state of a partition."""
        if isinstance(start, Fresh):
            try:
                beginning = start.position if start.position is not None else self._source.beginning(assigned.partition)
                former_counts = self._source.former_counts(assigned.partition)
            except BrokerError as error:  # where the log begins, and whether it has grown, must be known
                self.fail(assigned, error)
                return
            state = PartitionState.fresh(
                self._tasks.rules,
                assigned.partition,
                beginning,
                self._source.partition_count(assigned.partition),
                revision=start.revision,
                partial=start.partial or beginning > 0,
                sealed_elsewhere=start.sealed_elsewhere,
                peers=start.peers,
                former_counts=former_counts,
            )
        else:
            state = start
        state.lifecycle.claim = self._tasks.live_from
        assigned.begin(state)
        if isinstance(start, Fresh):
            self.save(assigned)  # before the first record: a crash must not look like a first start again
            return
        self._metrics.add("restores")
        self._metrics.observe("restore_seconds", seconds)
        self._go(assigned)

    def _go(self, assigned: AssignedPartition) -> None:
        """Start reading a partition that has its state."""
        assert assigned.state is not None
        assigned.run(self._clock.monotonic(), self._rewrite_at())
        self._source.seek(assigned.partition, assigned.state.position)
        if not assigned.throttled:
            self._source.resume(assigned.partition)
        event_log.info(
            "running",
            partition=assigned.partition,
            position=assigned.state.position,
            open_windows=assigned.state.open_windows,
        )

    def handle_partition_error(self, assigned: AssignedPartition, event: PartitionError) -> None:
        """Handle a partition that cannot be read further: accept the loss, if that is the policy, or fail it."""
        if not self._settings.accept_loss:
            self.fail(assigned, event.error)
        elif event.topic_recreated:
            self.fail(
                assigned, BrokerError(f"partition {assigned.partition}: the input was made again: taking it anew")
            )
        elif not self.accept_loss(assigned, event):
            self.fail(assigned, event.error)

    def accept_loss(self, assigned: AssignedPartition, event: PartitionError) -> bool:
        """Accept a loss if possible: the marked windows are committed before anything more is read."""
        state, position = assigned.state, event.resume_at
        if position is None or state is None or assigned.status != "running" or position == state.position:
            return False
        self.wait(assigned, self._clock.monotonic() + self._settings.stop_s)
        if assigned.state is not state:
            return True  # a commit in flight failed: the state is taken again, and meets the gap again
        if assigned.busy or position == state.position:
            return False
        self._source.pause(assigned.partition)
        lost = position - state.position
        event_log.warning("loss_accepted", partition=assigned.partition, position=position, offsets=lost)
        self._metrics.add("lost_offsets" if lost > 0 else "diverged_offsets", abs(lost))
        if lost > 0:
            state.skip(position)
        else:
            state.rewind(position)
        assigned.resume_after_loss()
        self.save(assigned)
        return True

    def fail(self, assigned: AssignedPartition, error: BaseException) -> None:
        """Drop a partition's state; take it again later, or halt."""
        now = self._clock.monotonic()
        assigned.drop()
        self._source.pause(assigned.partition)
        verdict = assigned.failures.judge(assigned.partition, error, now)
        if verdict.halts:
            self.halt(assigned, verdict.text)
            return
        self._release(assigned)
        assigned.fail(error, verdict.text, self.polls, now)
        if self._settings.give_up_after is not None and assigned.failures.count > self._settings.give_up_after:
            raise error
        event_log.warning(
            "dropped", partition=assigned.partition, failures=assigned.failures.count, reason=verdict.text
        )

    def halt(self, assigned: AssignedPartition, reason: str) -> None:
        """Stop reading a partition until a person decides.

        Raises:
            DataLossError: `fail_fast` is set, or every partition of the input is halted.
        """
        self._release(assigned)
        assigned.halt(reason)
        event_log.error("halted", partition=assigned.partition, reason=reason)
        everything = len(self.partitions) == len(self._source.numbers()) and all(
            other.status == "halted" for other in self.partitions.values()
        )
        if self._settings.fail_fast or everything:
            raise DataLossError(reason)

    def wait(self, assigned: AssignedPartition, deadline: float) -> None:
        """Wait for a partition's computation and its job, and process their results."""
        while assigned.computation is not None and assigned.computation.long_work is not None:
            if not self._wait_for(assigned.computation.long_work, deadline):
                return
            self._continue(assigned)
        if assigned.job is not None and self._wait_for(assigned.job.future, deadline):
            self.collect()

    def _wait_for(self, future: Future[Any], deadline: float) -> bool:
        """Wait for another thread until a deadline; False if that thread has not ended."""
        try:
            future.exception(timeout=max(0.0, deadline - self._clock.monotonic()))
        except TimeoutError:
            return False
        return True

    def throttle(self, assigned: AssignedPartition) -> None:
        """Pause a partition until it may be read again."""
        if assigned.slow_down():
            self._metrics.add("throttles")
            self._source.pause(assigned.partition)

    def _start(
        self,
        assigned: AssignedPartition,
        kind: Literal["take", "commit", "publish"],
        run: Callable[..., object],
        *arguments: object,
        n_bytes: int = 0,
    ) -> None:
        """Let another thread work for a partition."""
        began = self._clock.monotonic()
        assigned.job = Job(kind, self._executor.submit(run, *arguments), began, n_bytes)

    def save(self, assigned: AssignedPartition) -> None:
        """Capture a partition and start its commit, or only its publication if nothing else changed."""
        state = assigned.state
        assert state is not None
        began = self._clock.monotonic()
        assigned.saved_at = began
        if state.changed():
            self.compute(assigned, checkpoint.capturing(state, self._buffers), partial(self._captured, assigned, state))
        else:
            self._start(assigned, "publish", self._tasks.publish, assigned.partition, state.outbox.captured())

    def _captured(self, assigned: AssignedPartition, state: PartitionState, snapshot: Snapshot, seconds: float) -> None:
        """Start the commit of a snapshot."""
        now = self._clock.monotonic()
        self._metrics.observe("capture_seconds", seconds)
        event_log.debug("captured", partition=assigned.partition, position=snapshot.position)
        assigned.captured(snapshot.position, now)
        self._paid_until = max(now, self._paid_until) + snapshot.blob_bytes / self._settings.snapshot_bytes_per_s
        arguments = assigned.partition, snapshot, state.outbox.captured()
        self._start(assigned, "commit", self._tasks.commit, *arguments, n_bytes=snapshot.copied_bytes)

    def paced(self, now: float) -> bool:
        """Whether another snapshot may begin without exceeding the allowed average rate."""
        return now >= self._paid_until

    def collect(self) -> None:
        """Process the results of finished jobs, and continue the computations whose long work is done."""
        for assigned in list(self.partitions.values()):
            self._continue(assigned)
        for partition in [p for p, job in self._leftover.items() if job.future.done()]:
            del self._leftover[partition]
            self._tasks.store.drop(partition)  # a take that ended after its revocation has opened it again
        for assigned in list(self.partitions.values()):
            job = assigned.job
            if job is None or not job.future.done():
                continue
            assigned.job = None
            error = job.future.exception()
            if error is not None:
                self._job_failed(assigned, job, error)
            elif job.task == "take":
                if assigned.status == "restoring":
                    self._taken(assigned, job.future.result(), self._clock.monotonic() - job.began)
            elif assigned.state is not None:
                self._saved(assigned, assigned.state, job, job.future.result())

    def _job_failed(self, assigned: AssignedPartition, job: Job, error: BaseException) -> None:
        """Drop the partition's state after a failed job; if the store lost its snapshots, write the state again."""
        if job.task == "commit":
            self._metrics.add("commit_failures")
            assigned.commit_failed(str(error) if isinstance(error, SketchstreamError) else type(error).__name__)
        if isinstance(error, SnapshotsGoneError) and assigned.state is not None:
            if assigned.failures.count == 0:  # the first of a row; what follows is in `Durability.stall_reason`
                event_log.error("snapshots_gone", partition=assigned.partition, reason=str(error))
            assigned.state.store_all()
            assigned.save_again(self._clock.monotonic())
            if assigned.status != "restoring":
                return
            # the partition has no snapshot yet: it is taken again
        if assigned.status != "halted":
            self.fail(assigned, error)

    def _saved(self, assigned: AssignedPartition, state: PartitionState, job: Job, done: Done) -> None:
        """Process a finished job: its snapshot, if any, is durable, and its outbox was published or not."""
        if job.task == "commit":
            self._committed(assigned, state, done)
        failed_before = assigned.publish_error is not None
        assigned.published(done.error, self._clock.monotonic(), anything=any(done.publications))
        if isinstance(done.error, DataLossError):
            self.fail(assigned, done.error)
            return
        if done.error is None:
            self._published(state, done)
        else:
            self._metrics.add("publish_failures")
            if not failed_before:  # the first of a row; what follows is in `Durability.stall_reason`
                event_log.warning("publish_failed", partition=assigned.partition, reason=str(done.error))
        if assigned.status == "restoring":
            self._go(assigned)

    def _committed(self, assigned: AssignedPartition, state: PartitionState, done: Done) -> None:
        """Note that a snapshot is durable, and when the next one is due."""
        assigned.failures.clear()
        superseded_s = self._tasks.store.superseded_s
        every_s = policy.snapshot_every_s(self._settings, done.blob_bytes, done.seconds, superseded_s)
        assigned.committed(self._rewrite_at(), every_s, self._clock.monotonic())
        self._metrics.add("snapshots")
        self._metrics.add("snapshot_bytes", done.blob_bytes)
        self._metrics.observe("snapshot_seconds", done.seconds)
        state.postpone(done.begins)

    def _published(self, state: PartitionState, done: Done) -> None:
        """Remove what was published from the outbox, and count and log it."""
        entries, frontiers = done.publications
        state.published(entries, frontiers)
        self._loss = log_lines.published_reason(frontiers) or self._loss
        self._metrics.add("published", len(entries))
        for entry in entries:
            if entry.positions is None:
                delay_ms = self._clock.now_ms() - entry.window[1]
                self._metrics.observe("publication_delay_seconds", max(0.0, delay_ms / 1000))
            event_log.info(
                "published",
                sketch=entry.sketch,
                partition=entry.partition,
                revision=entry.revision,
                window=iso(entry.window[0]),
            )

    def take_loss(self) -> str | None:
        """Why published windows lack records, if they do, since this was last asked."""
        loss, self._loss = self._loss, None
        return loss

    def _rewrite_at(self) -> float | None:
        """When a partition that becomes idle now is committed once more; see `StateStore.rewrite_after_s`."""
        after = self._tasks.store.rewrite_after_s
        return None if after is None else self._clock.monotonic() + after

    def compute(self, assigned: AssignedPartition, steps: Steps[Result], then: Callable[[Result, float], None]) -> None:
        """Run a computation of a partition's state, asking the cluster for the partition counts that it needs.

        While another thread does its long work, the worker polls on: a group evicts members that do not. Nothing more
        of this partition is read then. A computation that fails leaves a state that may be half changed: it is dropped.

        Args:
            assigned: the partition.
            steps: the computation.
            then: gets the result, and the seconds that it took in this thread; now, or in a later turn of the loop.
        """
        self._run(assigned, Computation(steps, then))

    def _run(self, assigned: AssignedPartition, todo: Computation) -> None:
        """Run a computation to its end, or to long work that takes a while."""
        began = self._clock.monotonic()
        try:
            needed = todo.resume()
            while True:
                if isinstance(needed, LongWork):
                    todo.long_work = self._window_executor.submit(needed.do)
                    if not todo.long_work.done() or self._clock.monotonic() - began > TURN_S:
                        todo.spent_s += self._clock.monotonic() - began
                        self._source.pause(assigned.partition)
                        assigned.interrupt(todo)
                        return
                    needed = todo.resume()
                else:
                    needed = todo.resume(self._count(needed, assigned.partition))
        except StopIteration as end:
            result = end.value
        except Exception as error:  # whatever happened, a state that may be half changed must go
            self.fail(assigned, error)
            return
        try:
            todo.then(result, todo.spent_s + self._clock.monotonic() - began)
        except Exception as error:
            self.fail(assigned, error)

    def _continue(self, assigned: AssignedPartition) -> None:
        """Continue a computation whose long work is done, then with the chunks that waited for it, then read again."""
        todo = assigned.take_computation()
        if todo is not None:
            self._run(assigned, todo)
        while (chunk := assigned.take_buffered()) is not None:
            self._apply(chunk)
        if assigned.may_resume():
            self._source.resume(assigned.partition)

    def _count(self, needed: CountNeeded, partition: int) -> int:
        """Ask the cluster for the partition count, after the present records were fetched.

        Asks once in each poll for each reason and topic, whatever the answer: if no broker answers, every partition
        would wait for it in turn, and the group would evict this worker. A missing answer holds for all reasons.

        Raises:
            SketchstreamError: no broker answered.
        """
        if self._unanswered[0] == self.polls:
            raise self._unanswered[1]
        question = needed, partition // TOPIC_STRIDE
        if self._counted.get(question, (-1, 0))[0] != self.polls:
            try:
                self._counted[question] = self.polls, self._source.partition_count(partition, fresh=True)
            except SketchstreamError as error:
                self._unanswered = self.polls, error
                raise
        return self._counted[question][1]

    def settle_counts(self, assigned: AssignedPartition) -> None:
        """Settle former partition counts, once producers have learned of added partitions."""
        if assigned.state is not None and assigned.asks_for_end(self._clock.monotonic()):
            end = self._source.high_watermarks([assigned.partition]).get(assigned.partition)
            if end is not None:
                assigned.state.settle_counts(end)
