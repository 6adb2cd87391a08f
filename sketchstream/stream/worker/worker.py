"""The worker: one loop that polls, applies, seals, snapshots, commits and publishes.

In: a source, a store, a publisher, an optional sink. Out: sealed sketches and frontiers, published after they were
committed. Touches: what its interfaces touch; two worker threads for commits unless configured otherwise.

This file is the loop. `partition_manager` takes, saves and drops partitions, `assigned_partition` knows what is due for
one partition, `policy` decides about several, `io_tasks` is the work of other threads, `status` is the view from
outside.

Every chunk takes the same path: `Source.poll` returns it with its payloads decoded; `PartitionState.applying` admits
its times, finds the windows and adds each window's items to a sketch. If this needs a fresh partition count, it stops
and says so; the manager asks the cluster, and the computation resumes.

After any failure of a partition, its state is dropped, and after the next poll it is taken again from what is
committed. Nothing of a dropped state was published. A halted partition does not stop the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor

from sketchstream.errors import SketchstreamError
from sketchstream.log_events import EventLog
from sketchstream.stream.interfaces import (
    Assigned,
    Chunk,
    Clock,
    PartitionError,
    Peer,
    Publisher,
    Revoked,
    SchemaAwaited,
    Sink,
    Source,
    StateStore,
)
from sketchstream.stream.monitoring.clocks import Clocks, SystemClock
from sketchstream.stream.monitoring.metrics import Gauges, Metrics
from sketchstream.stream.state.outcome import Outcome
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.windows.calendar import iso
from sketchstream.stream.worker import log_lines, policy, side_outputs, status
from sketchstream.stream.worker.assigned_partition import AssignedPartition
from sketchstream.stream.worker.idleness import Frontiers, IdlePartitions
from sketchstream.stream.worker.io_tasks import Inline, IoTasks
from sketchstream.stream.worker.mixed_configurations import MixedConfigurations
from sketchstream.stream.worker.partition_manager import PartitionManager
from sketchstream.stream.worker.settings import Settings
from sketchstream.stream.worker.status import Progress

event_log = EventLog("sketchstream.worker")

JUDGE_EVERY_S = 15.0
"""Seconds between two checks whether most of the records that came were counted."""
POLL_WHILE_BUSY_S = 0.05
"""Longest wait for records while a partition is being taken or committed, seconds."""
WINDOW_THREADS = 2
"""Most threads that open and seal large windows."""


class Worker:
    """Runs sketches over a source. `run` until stopped or the input ends; or `step` by step.

    Args:
        rules: what is counted, and how.
        source: source of records.
        store: store of snapshots.
        publisher: publisher of sealed sketches.
        settings: how it runs.
        sink: sink for late records and dead letters; None: they are counted only.
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
        self._idle_partitions = IdlePartitions(settings.idle_ms, settings.idle_topic_ms, rules.lateness_ms)
        self._closed = False
        self._mixed = MixedConfigurations(rules.fingerprint)
        self._mixed_logged = False
        self._peers: Future[Sequence[Peer]] | None = None
        self._hearing: Future[Frontiers] | None = None
        self._tasks = tasks = IoTasks(rules, store, publisher, sink, self._clock)
        self._within_s = settings.durable_within_s
        self._report_at = self._began + settings.report_every_s
        self._judge_at, self._warned_before = self._began + JUDGE_EVERY_S, False
        self._recent = log_lines.Recent()
        self.closing_messages: tuple[str, ...] = ()
        self._executor = _threads(settings.threads, "commit")
        self._window_executor = _threads(min(settings.threads, WINDOW_THREADS), "windows")
        self._manager = PartitionManager(
            source, tasks, self._executor, self._window_executor, self._clock, settings, self.metrics, self._chunk
        )
        self._partitions = self._manager.partitions

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
        self._manager.collect()
        events = self._source.poll(self._patience_s() if timeout_s is None else timeout_s)
        self._manager.polls += 1
        self._polled_at = self._clock.monotonic()
        for event in events:
            if isinstance(event, Chunk):
                self._chunk(event)
            elif isinstance(event, Assigned):
                self.metrics.add("rebalances")
                self._manager.assign(event.partitions)
            elif isinstance(event, Revoked):
                self.metrics.add("rebalances")
                self._manager.revoke(event.partitions)
            elif isinstance(event, PartitionError):
                assigned = self._partitions.get(event.partition)
                if assigned is not None and assigned.status != "halted":
                    self._manager.handle_partition_error(assigned, event)
            else:
                assigned = self._partitions.get(event.partition)
                if assigned is not None and isinstance(event, SchemaAwaited):
                    assigned.await_schema(event.reason, self._polled_at)
                elif assigned is not None:
                    assigned.ended = True
        self._manager.collect()
        self._tick()
        if self._progress is not None:
            self._progress(self.progress())

    def _patience_s(self) -> float:
        """How long to wait for records: not at all if a job has ended, not long if one is running."""
        partitions = self._partitions.values()
        running = [assigned.job.future for assigned in partitions if assigned.job is not None]
        running += [
            assigned.computation.long_work
            for assigned in partitions
            if assigned.computation is not None and assigned.computation.long_work is not None
        ]
        if any(future.done() for future in running):
            return 0.0
        return min(POLL_WHILE_BUSY_S, self.settings.poll_s) if running else self.settings.poll_s

    @property
    def finished(self) -> bool:
        """Whether a bounded input has been read to its end."""
        return bool(self._partitions) and all(
            assigned.ended and assigned.status == "running" and assigned.computation is None
            for assigned in self._partitions.values()
        )

    def finish(self) -> None:
        """Take last snapshots of all running partitions within `stop_s`; partitions without one are replayed.

        Raises:
            StoreError: a bounded input was read to its end, but its results could not be committed or published.
        """
        deadline = self._clock.monotonic() + self.settings.stop_s
        if self.settings.close_at_end and self.finished:
            for assigned in self._partitions.values():
                self._seal(assigned, everything=True)
        for _ in range(4):  # a snapshot and its publication, the snapshot without the outbox, and retries
            for assigned in self._partitions.values():
                self._manager.wait(assigned, deadline)
            todo = [
                assigned
                for assigned in self._partitions.values()
                if assigned.state is not None
                and assigned.status == "running"
                and (assigned.state.changed() or not assigned.state.outbox.empty)
            ]
            if not todo or self._clock.monotonic() >= deadline:
                break
            for assigned in todo:
                if not policy.fits(assigned, self._partitions.values()):
                    for other in self._partitions.values():
                        self._manager.wait(other, deadline)
                if assigned.state is not None and not assigned.busy:
                    self._manager.save(assigned)
        self.closing_messages = self._closing_messages()
        # an input that was read to its end is not done while something is missing
        for assigned in self._partitions.values():
            if (
                assigned.ended
                and assigned.publish_error is not None
                and assigned.state is not None
                and not assigned.state.outbox.empty
            ):
                raise assigned.publish_error
            if assigned.ended and assigned.failures.error is not None and assigned.status == "restoring":
                raise assigned.failures.error

    def _report(self) -> None:
        """Log how much was counted."""
        progress = self.progress()
        text = f"{progress.line()}, {log_lines.counts(self.metrics)}"
        event_log.info("progress", text, **progress.fields(), **log_lines.counters_shown(self.metrics))
        self._judge(repeat=True)
        self._recent.note(self.metrics)

    def _judge(self, *, repeat: bool) -> None:
        """Log a warning if most of what came recently was not counted; `repeat`: also if it was logged before."""
        reason = log_lines.main_reason(self._recent.counted(self.metrics))
        repeated, self._warned_before = self._warned_before and not repeat, reason is not None
        if reason is None or repeated:
            reason = self._manager.take_loss()
        if reason is not None:
            event_log.warning("not_counted", reason=reason)

    def _closing_messages(self) -> tuple[str, ...]:
        """Log which windows stay open, why none was sealed, why most records were not counted."""
        ours = self._partitions.values()
        bounded = any(assigned.ended for assigned in ours)
        nothing = log_lines.nothing_sealed(ours, self.metrics, bounded=bounded)
        recent = log_lines.main_reason(self._recent.counted(self.metrics))
        reason = recent or log_lines.main_reason(self.metrics.exact()) if nothing is None else nothing
        return (
            *(() if reason is None else (reason,)),
            *log_lines.describe_unsealed(ours, self.rules.lateness_ms, bounded=bounded),
        )

    def close(self, *, leave: bool = False) -> None:
        """Close all interfaces; the next owner replays what was not committed."""
        if self._closed:
            return
        self._closed = True
        for assigned in self._partitions.values():
            assigned.drop()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._window_executor.shutdown(wait=True, cancel_futures=True)
        self._source.close(leave=leave)
        self._store.close()
        self._publisher.close()
        if self._sink is not None:
            self._sink.close()

    # ----------------------------------------------------------------------------------------------- records

    def _chunk(self, chunk: Chunk) -> None:
        assigned = self._partitions.get(chunk.partition)
        if assigned is None or assigned.status != "running" or assigned.state is None:
            return
        if assigned.computation is not None:
            assigned.buffer(chunk)
            return
        state, assigned.schema_awaited = assigned.state, None
        if chunk.from_position != state.position:
            self.metrics.add("gaps")
            self._source.seek(chunk.partition, state.position)
            return
        state.set_partitions(self._source.partition_count(chunk.partition))
        try:
            clock_ms = None if chunk.timestamps is None else self._clocks.latest_ms()
            if clock_ms is not None and self._clocks.broker_ms() is None:
                policy.check_clock(chunk, clock_ms, self.rules)
        except SketchstreamError as error:
            self._manager.fail(assigned, error)
            return
        self._manager.compute(
            assigned,
            state.applying(chunk, clock_ms=clock_ms),
            lambda outcome, _: self._applied(assigned, state, chunk, outcome),
        )

    def _applied(self, assigned: AssignedPartition, state: PartitionState, chunk: Chunk, outcome: Outcome) -> None:
        """Count what became of the records of a chunk."""
        self._count(assigned, state, chunk, outcome)
        assigned.failures.clear_reading()
        event_log.debug(
            "applied",
            partition=assigned.partition,
            position=chunk.from_position,
            next=chunk.next_position,
            records=outcome.records,
        )
        if assigned.full:
            self._manager.throttle(assigned)

    def _count(self, assigned: AssignedPartition, state: PartitionState, chunk: Chunk, outcome: Outcome) -> None:
        add = self.metrics.add
        add("records", outcome.records)
        add("bytes", chunk.n_bytes)
        add("updates", outcome.updates)
        add("windows_sealed", outcome.sealed)
        add("future", outcome.future)
        add("early", outcome.early)
        add("jumps", outcome.jumps)
        self._judge_jumps(assigned, state, chunk, outcome)
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
            if assigned.refuse(sent, size, self._clock.monotonic(), self.settings.refused_per_s):
                self._manager.throttle(assigned)

    def _judge_jumps(self, assigned: AssignedPartition, state: PartitionState, chunk: Chunk, outcome: Outcome) -> None:
        """Log a move of the watermark over a gap, and with a warning one that made many records late."""
        jumps = assigned.jumps(self.rules.lateness_ms, self.rules.quorum.time_ms)
        if jumps.over_gap(outcome.moved):
            event_log.info(
                "watermark_jumped",
                partition=assigned.partition,
                offset=int(chunk.offsets[outcome.moved_at]),
                jumps=outcome.jumps,
                watermark=iso(state.watermark),
            )
        late = jumps.observe(outcome, chunk.events.times)
        if late:
            reason = (
                f"{late} records are late because the watermark was moved ahead of them: a clock is fast, or records "
                "arrive later than input.lateness allows"
            )
            event_log.warning("watermark_ahead", partition=assigned.partition, reason=reason)

    # -------------------------------------------------------------------------------------------------- time

    def _tick(self) -> None:
        """Start what is due."""
        now = self._clock.monotonic()
        if now >= self._report_at:
            self._report_at = now + self.settings.report_every_s
            self._judge_at = now + JUDGE_EVERY_S
            self._report()
        elif now >= self._judge_at:
            self._judge_at = now + JUDGE_EVERY_S
            self._judge(repeat=False)
        self._clocks.watch()
        self._watch_configurations(now)
        self._idle(now)
        within_s = self._within_s = self._durable_within_s()
        self._note_seals()
        for assigned in sorted(
            self._partitions.values(), key=lambda assigned: assigned.saved_at
        ):  # whoever waits longest is first
            self._watch_durability(assigned, now, within_s)
            if assigned.busy:
                continue
            if assigned.status == "restoring":
                member = assigned.dropped_s is None or self._source.confirmed(assigned.dropped_s)
                if assigned.takes_again(now, self._manager.polls, member=member):
                    self._manager.take(assigned)
                continue
            if assigned.status == "halted" or assigned.state is None:
                continue
            if assigned.speed_up(now, self.settings.refused_per_s):
                self._source.resume(assigned.partition)
            self._manager.settle_counts(assigned)
            due = assigned.due(now, self.settings)
            if due == "nothing" or (due == "snapshot" and not self._manager.paced(now)):
                continue
            if not policy.fits(assigned, self._partitions.values()):
                continue
            if due == "rewrite":
                assigned.rewrite()
            self._manager.save(assigned)
        self._manager.collect()

    def _note_seals(self) -> None:
        """Move the times that sealing has taken to the histogram."""
        for assigned in self._partitions.values():
            while assigned.state is not None and assigned.state.lifecycle.seal_seconds:
                self.metrics.observe("seal_seconds", assigned.state.lifecycle.seal_seconds.pop())

    def _watch_configurations(self, now: float) -> None:
        """Log once when another configuration is at work in the group for longer than a rolling change takes."""
        if self._peers is not None and self._peers.done():
            self._mixed.observe(self._peers.result(), now)
            self._peers = None
        if self._peers is None and self._partitions and self._mixed.due(now):
            self._peers = self._executor.submit(self._tasks.peers)
        warning = self._mixed.warning(now)
        if warning and not self._mixed_logged:
            event_log.warning("mixed_configurations", reason=warning)
        self._mixed_logged = bool(warning)

    def _durable_within_s(self) -> float:
        """The age of a commit, in seconds, up to which it is normal: large states are written slowly, in turn."""
        partitions = self._partitions.values()
        n_bytes = sum(assigned.state.state_bytes for assigned in partitions if assigned.state is not None)
        rarest_s = max((assigned.snapshot_every_s for assigned in partitions), default=0.0)
        return self.settings.durable_within_s + n_bytes / self.settings.snapshot_bytes_per_s + rarest_s

    def _watch_durability(self, assigned: AssignedPartition, now: float, within_s: float) -> None:
        """Log once when a partition's commits or publications stop succeeding, and once when they succeed again."""
        if assigned.state is not None and assigned.state.changed():
            assigned.durability.changed(now)
        stall_reason = assigned.stall_reason(now, within_s)
        if assigned.note_change("not_durable", bool(stall_reason)):
            if stall_reason:
                event_log.error("not_durable", partition=assigned.partition, reason=stall_reason)
            else:
                event_log.info("durable_again", partition=assigned.partition)
        slow = assigned.slow(now)
        if assigned.note_change("slow_commit", bool(slow)) and slow:
            event_log.warning("slow_commit", partition=assigned.partition, reason=slow)

    def _idle(self, now: float) -> None:
        """Move the watermarks of idle partitions, and seal what they have passed."""
        ours = list(self._partitions.values())
        try:
            silent = list(
                self._idle_partitions.watermarks(ours, self._source, self._published, now, self._clocks.earliest_ms())
            )
        except SketchstreamError as error:  # what the others have published cannot be read: silence waits
            event_log.warning("silence_unknown", reason=str(error))
            return
        for assigned, end, watermark in silent:
            if (
                assigned.state is not None
                and assigned.computation is None
                and assigned.state.advance_at(end, watermark)
            ):
                self._seal(assigned)

    def _published(self) -> Frontiers | None:
        """How far all partitions have published, read by another thread; None until it has.

        Raises:
            SketchstreamError: it cannot be read.
        """
        if self._hearing is None:
            self._hearing = self._executor.submit(self._publisher.frontiers)
        if not self._hearing.done():
            return None
        heard, self._hearing = self._hearing, None
        return heard.result()

    def _seal(self, assigned: AssignedPartition, *, everything: bool = False) -> None:
        """Seal what is due, or everything."""
        if assigned.state is not None and assigned.computation is None:
            self._manager.compute(
                assigned,
                assigned.state.sealing(everything=everything),
                lambda windows, _: self.metrics.add("windows_sealed", windows),
            )

    # ------------------------------------------------------------------------------------------------- views

    def progress(self) -> Progress:
        """The progress of the worker."""
        return status.progress(
            self._partitions.values(),
            self.metrics.counters,
            self._clock.monotonic() - self._began,
            self._clock.monotonic(),
            self._within_s,
        )

    def gauges(self) -> Gauges:
        """The numbers for the endpoint. May be called from other threads."""
        age = self._clock.monotonic() - self._polled_at
        skew_ms = self._clocks.skew_ms()
        return status.gauges(
            self._partitions.copy().values(),
            self._losses,
            age,
            now=self._clock.monotonic(),
            within_s=self._within_s,
            joined=self._source.joined,
            skew_ms=skew_ms,
            mixed=self._mixed.warning(self._clock.monotonic()),
            now_ms=self._clock.now_ms(),
        )

    def halted(self) -> dict[int, str]:
        """Halted partitions and why."""
        return {
            assigned.partition: assigned.reason for assigned in self._partitions.values() if assigned.status == "halted"
        }


def _threads(number: int, name: str) -> Executor:
    """An executor with this number of threads; with 0, tasks run in the caller's thread."""
    return ThreadPoolExecutor(number, thread_name_prefix=f"sketchstream-{name}") if number else Inline()
