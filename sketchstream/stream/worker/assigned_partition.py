"""One partition assigned to a worker: its state, its running tasks, its failures, and what is due for it.

In: what happened to it, times. Out: its status, decisions. Touches: nothing; the manager acts.

The worker and the manager call its methods. Of its fields they set four: `job` and `saved_at` as tasks begin and end,
`ended` and `schema_awaited` as the source says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from sketchstream.errors import DataLossError, SketchstreamError
from sketchstream.image import DEFERRED_PART, MAX_DEFERRED_BYTES
from sketchstream.stream.input.partition_counts import PRODUCERS_LEARN_MS, CountNeeded, LongWork, Steps
from sketchstream.stream.interfaces import Chunk
from sketchstream.stream.monitoring.durability import SLOW_S, WRITTEN_BYTES_PER_S, Durability
from sketchstream.stream.monitoring.lag import LogEnds
from sketchstream.stream.state.partition import PartitionState
from sketchstream.stream.worker.jumps import Jumps
from sketchstream.stream.worker.settings import Settings

Status = Literal["restoring", "running", "halted"]
Due = Literal["nothing", "snapshot", "save", "rewrite"]
"""`snapshot`: the partition only moved on, so it can wait; `save`: something waits for its commit."""

MAX_OUTBOX_BYTES = 64 << 20
"""Sealed bytes of one partition that may wait for publication; with more, the partition is paused."""
MAX_REFUSED_BYTES = 16 << 20
"""Bytes of refused records of one partition that wait for their topic before it is paused and committed."""
STRANGE_ERRORS, STRANGE_S = 5, 60.0
"""Unexpected errors in a row after which a partition halts, and the seconds for which they must last.

What a client raises while a broker comes back is not always an error of its own tree; that passes."""
SCHEMA_WITHIN_S = 10.0
"""Seconds without an answer of a schema registry after which a partition counts as stalled."""
PRODUCERS_LEARN_S = PRODUCERS_LEARN_MS / 1000
"""Seconds within which producers place records by a new number of partitions: the clients' largest default."""


@dataclass(frozen=True)
class Job:
    """A task that another thread runs for a partition.

    Args:
        task: one of the tasks of `IoTasks`.
        future: result of the task.
        began: start time on the monotonic clock, seconds.
        n_bytes: size of the captured states that it holds.
    """

    task: Literal["take", "commit", "publish"]
    future: Future[Any] = field(repr=False)
    began: float
    n_bytes: int = 0


@dataclass
class Computation:
    """A computation of a partition's state, which stops while another thread does its long work.

    Args:
        steps: the computation.
        then: gets its result, and the seconds that it took in the worker's own thread.
        spent_s: the part of those seconds before it stopped.
        long_work: what it waits for; None: nothing.
    """

    steps: Steps[Any] = field(repr=False)
    then: Callable[[Any, float], None] = field(repr=False)
    spent_s: float = 0.0
    long_work: Future[None] | None = field(default=None, repr=False)

    def resume(self, answer: int | None = None) -> CountNeeded | LongWork:
        """Go on to its next stop, with an answer or with the outcome of its long work.

        Raises:
            StopIteration: it has ended; the value is its result.
        """
        error = None if self.long_work is None else self.long_work.exception()
        self.long_work = None
        return self.steps.send(answer) if error is None else self.steps.throw(error)


@dataclass
class Failures:
    """The failures of a partition since its last success.

    Args:
        count: failures in a row.
        of_commit: a commit is among them; then only the next commit ends the row, however many records are read.
        strange: unexpected errors in a row.
        strange_since: time of the first of them, seconds.
        error: the last error.
        dropped_poll: number of the poll after which the state was dropped last; -1: never.
        dropped_s: time of that drop, seconds.
        retry_at: when the partition may be taken again, seconds.
    """

    count: int = 0
    of_commit: bool = False
    strange: int = 0
    strange_since: float = 0.0
    error: BaseException | None = field(default=None, repr=False)
    dropped_poll: int = -1
    dropped_s: float = 0.0
    retry_at: float = 0.0

    def clear(self) -> None:
        """Reset after a success: the next failure counts as the first."""
        self.count = self.strange = 0
        self.of_commit = False

    def clear_reading(self) -> None:
        """Reset after records were applied, unless commits fail."""
        if not self.of_commit:
            self.clear()

    def judge(self, partition: int, error: BaseException, now: float) -> Verdict:
        """Decide what an error means for its partition."""
        if isinstance(error, SketchstreamError):
            self.strange, self.strange_since = 0, 0.0
            return Verdict(isinstance(error, DataLossError), str(error))
        self.strange_since = self.strange_since if self.strange else now
        self.strange += 1
        text = type(error).__name__
        if self.strange < STRANGE_ERRORS or now - self.strange_since < STRANGE_S:
            return Verdict(False, text)
        return Verdict(True, f"partition {partition}: {text}, {self.strange} times in a row")


@dataclass(frozen=True)
class Verdict:
    """What an error means for its partition.

    Args:
        halts: the partition is not tried again.
        text: why; never the text of an error that is not ours, which may hold data.
    """

    halts: bool
    text: str


@dataclass
class Refusals:
    """How many refused records a partition may still send, and how many bytes of them are waiting.

    Args:
        tokens: records that may be sent; negative after more were sent than the rate allows.
        tokens_at: time at which `tokens` was computed, seconds.
        n_bytes: size of the records that wait for their commit.
    """

    tokens: float = 0.0
    tokens_at: float = 0.0
    n_bytes: int = 0

    def refill(self, now: float, per_second: float) -> None:
        """Add tokens for the time that has passed, up to those of one second."""
        self.tokens = min(per_second, self.tokens + (now - self.tokens_at) * per_second)
        self.tokens_at = now


class AssignedPartition:
    """One assigned partition.

    A partition is `restoring` (the store is taking it), `running`, or `halted` (paused, its state dropped; `reason`
    says what to do).

    Args:
        partition: partition of the input.
        now: seconds of the monotonic clock.
    """

    def __init__(self, partition: int, now: float) -> None:
        self.partition = partition
        self.status: Status = "restoring"
        self.reason = "taking"
        self.state: PartitionState | None = None
        self.job: Job | None = None
        self.computation: Computation | None = None
        self.interrupted = False
        self._buffered: deque[Chunk] = deque()
        self.failures = Failures()
        self.refusals = Refusals(tokens_at=now)
        self.throttled = False
        self.log_end: int | None = None
        self._ends = LogEnds()
        self.durability = Durability()
        self.ended = False
        self.saved_at = 0.0
        self.rewriting = False
        self.publish_error: SketchstreamError | None = None
        self._rewrite_at: float | None = None
        self.snapshot_every_s = 0.0
        self._publish_at = 0.0
        self._save_at = 0.0
        self._ask_ends_at: float | None = None
        self._jumps: Jumps | None = None
        self._conditions: set[str] = set()
        self.schema_awaited: tuple[float, str] | None = None

    def __repr__(self) -> str:
        """Number, status and state; of the state, positions only."""
        return f"<AssignedPartition {self.partition} {self.status} {self.state!r}>"

    # ---------------------------------------------------------------------------------------------- its status

    def take(self) -> None:
        """Note that the store is asked for the partition."""
        self.status, self.reason = "restoring", "taking"

    def wait(self, until: float, reason: str | None = None) -> None:
        """Do not take the partition before this time, seconds."""
        self.failures.retry_at = until
        self.reason = self.reason if reason is None else reason

    def begin(self, state: PartitionState) -> None:
        """Start with a fresh state, which is committed before the first record is read."""
        self.state, self.reason = state, "first snapshot"
        self.durability.restored(state.position)

    def run(self, now: float, rewrite_at: float | None) -> None:
        """Start reading: the state is durable."""
        self.status, self.reason, self.failures.error = "running", "", None
        self.saved_at = now
        self._rewrite_at, self.rewriting = rewrite_at, False
        self.ended, self._ask_ends_at = False, None

    def resume_after_loss(self) -> None:
        """Continue after a loss of records, which the state has noted; it is committed before anything more is read."""
        self.status, self.reason = "restoring", "resuming after lost records"

    def note_end(self, end: int | None, now: float) -> None:
        """Note the end of the log; None: nobody answered, and the last known end stays."""
        if end is not None:
            self.log_end = end
            self._ends.note(end, now)

    def lag_s(self, now: float) -> float | None:
        """Age of the oldest record that is not committed, as far as its place was seen in the log; see `lag`."""
        return self._ends.waiting_s(self.durability.position, now)

    @property
    def lag(self) -> int | None:
        """Records that are not committed yet; None where that is not known. A restart reads all of them."""
        position = self.durability.position
        return None if self.log_end is None or position is None else max(0, self.log_end - position)

    @property
    def unread(self) -> int | None:
        """Records that are not read yet; None where that is not known."""
        return None if self.log_end is None or self.state is None else max(0, self.log_end - self.state.position)

    def snapshot_age_s(self, now: float) -> float:
        """Seconds for which the present commit has been running; 0: none is."""
        job = self.job
        return 0.0 if job is None or job.task != "commit" else now - job.began

    def slow(self, now: float) -> str:
        """A sentence about a commit that takes long for the size of the state; empty if none does."""
        age = self.snapshot_age_s(now)
        if age < SLOW_S or (self.state is not None and age < SLOW_S + self.state.state_bytes / WRITTEN_BYTES_PER_S):
            return ""
        return f"a snapshot has been written for {age:.0f} s"

    def await_schema(self, reason: str, now: float) -> None:
        """Note that the next records cannot be decoded now; the first chunk that can be ends it."""
        self.schema_awaited = (self.schema_awaited[0] if self.schema_awaited is not None else now), reason

    def stall_reason(self, now: float, within_s: float) -> str:
        """Why nothing of this partition is read or becomes durable; empty if it does, or did a short while ago."""
        if self.schema_awaited is not None and now - self.schema_awaited[0] > SCHEMA_WITHIN_S:
            return f"no record could be decoded for {now - self.schema_awaited[0]:.0f} s: {self.schema_awaited[1]}"
        return self.durability.stall_reason(now, within_s)

    def note_change(self, condition: str, holds: bool) -> bool:
        """Note whether a condition holds, by its name; return whether that differs from what was noted last."""
        before = condition in self._conditions
        (self._conditions.add if holds else self._conditions.discard)(condition)
        return holds != before

    def jumps(self, lateness_ms: int, quorum_ms: int) -> Jumps:
        """The moves of the partition's watermark, made with these arguments when it is first asked for; see `Jumps`."""
        self._jumps = self._jumps or Jumps(lateness_ms, quorum_ms)
        return self._jumps

    def drop(self) -> None:
        """Drop the state, what is computed of it, and the refused records that belong to it."""
        if self.computation is not None:
            self.computation.steps.close()
        self.state, self.computation, self.interrupted = None, None, False
        self.schema_awaited = None
        self._buffered.clear()
        self.refusals.n_bytes = 0

    def fail(self, error: BaseException, reason: str, polls: int, now: float) -> None:
        """Note that the state was dropped because of an error; the partition is taken again later."""
        failures = self.failures
        failures.count += 1
        failures.error = error
        failures.dropped_poll, failures.dropped_s = polls, now
        failures.retry_at = now + pause_s(failures.count)
        self.status, self.reason = "restoring", reason

    def halt(self, reason: str) -> None:
        """Stop reading the partition until a person decides."""
        self.drop()
        self.status, self.reason = "halted", reason

    # ------------------------------------------------------------------------------------------------- its job

    def interrupt(self, computation: Computation) -> None:
        """Note that a computation waits for its long work; until it ends, nothing else may use the state."""
        self.computation, self.interrupted = computation, True

    def take_computation(self) -> Computation | None:
        """Return the computation whose long work is done, and forget it; None if there is none."""
        computation = self.computation
        if computation is None or computation.long_work is None or not computation.long_work.done():
            return None
        self.computation = None
        return computation

    def buffer(self, chunk: Chunk) -> None:
        """Keep a chunk that came with the one whose computation waits; no more are read until it has ended."""
        self._buffered.append(chunk)

    def take_buffered(self) -> Chunk | None:
        """Return the next chunk that waited; None if there is none, or it must still wait."""
        return self._buffered.popleft() if self._buffered and self.computation is None else None

    def may_resume(self) -> bool:
        """Whether a partition that was interrupted may be read again, from now on."""
        if not self.interrupted or self.computation is not None:
            return False
        self.interrupted = False
        return self.status == "running" and not self.throttled

    @property
    def busy(self) -> bool:
        """Whether another thread works for the partition."""
        return self.job is not None or self.computation is not None

    def captured(self, position: int, now: float) -> None:
        """Note that the commit of this position starts now; it waits for the refused records."""
        self.refusals.n_bytes = 0
        self.durability.captured(position, now)

    def committed(self, rewrite_at: float | None, snapshot_every_s: float, now: float) -> None:
        """Note that a snapshot is durable; one without any changes is not repeated.

        Args:
            rewrite_at: see `run`.
            snapshot_every_s: time from this snapshot to the next one.
            now: seconds.
        """
        self.snapshot_every_s = snapshot_every_s
        self.durability.committed(changed=self.state is not None and self.state.changed(), now=now)
        if not self.rewriting:
            self._rewrite_at = rewrite_at
        self.rewriting = False

    def commit_failed(self, reason: str) -> None:
        """Note that a snapshot was not committed."""
        self.failures.of_commit = True
        self.durability.commit_failed(reason)

    def save_again(self, now: float) -> None:
        """Write a snapshot once more after a failure that left the state as it was, after a pause."""
        self.failures.count += 1
        self._save_at = now + pause_s(self.failures.count)

    def rewrite(self) -> None:
        """Request one more snapshot, so that what the last one superseded leaves the disk."""
        assert self.state is not None
        self.rewriting, self._rewrite_at = not self.state.changed(), None
        self.state.touch()

    def published(self, error: SketchstreamError | None, now: float, *, anything: bool = True) -> None:
        """Note whether the committed outbox was published; if not, it is tried again a second later."""
        self.publish_error = error
        self.durability.published("" if error is None else str(error), now, anything=anything)
        if error is not None:
            self._publish_at = now + 1.0

    # --------------------------------------------------------------------------------------------- what is due

    def due(self, now: float, settings: Settings) -> Due:
        """What a running partition without a job should do now."""
        assert self.state is not None
        if now < self._save_at:
            return "nothing"
        if self._rewrite_at is not None and now >= self._rewrite_at:
            return "rewrite"
        if self.refusals.n_bytes > MAX_REFUSED_BYTES:
            return "save"
        waited = now - self.saved_at
        if (
            (not self.state.outbox.empty or self.state.closes)
            and waited >= settings.publish_every_s
            and now >= self._publish_at
        ):
            return "save"
        every_s = max(self.snapshot_every_s, settings.snapshot_every_s)
        return "snapshot" if self.state.changed() and waited >= every_s else "nothing"

    def takes_again(self, now: float, polls: int, *, member: bool) -> bool:
        """Whether a dropped partition may be taken.

        Args:
            now: seconds.
            polls: how many there were.
            member: the group has answered since the drop that we are one of its members. A zombie that took a
                partition would fence its present owner.
        """
        failures = self.failures
        return self.state is None and polls > failures.dropped_poll and now >= failures.retry_at and member

    @property
    def dropped_s(self) -> float | None:
        """When the state was dropped last, seconds; None: never."""
        return None if self.failures.dropped_poll < 0 else self.failures.dropped_s

    @property
    def full(self) -> bool:
        """Whether reading must stop because too much waits: for publication, for the topics of refused records, or
        for a snapshot to be written.
        """  # noqa: D205
        state = self.state
        if state is not None and state.deferred_bytes > max(MAX_DEFERRED_BYTES, state.state_bytes // DEFERRED_PART):
            return True
        outbox = 0 if state is None else state.outbox.n_bytes
        return outbox > MAX_OUTBOX_BYTES or self.refusals.n_bytes > MAX_REFUSED_BYTES

    def refuse(self, records: int, n_bytes: int, now: float, per_second: float) -> bool:
        """Count refused records that were sent; return whether the partition must be slowed down."""
        self.refusals.n_bytes += n_bytes
        if not records:
            return False
        self.refusals.refill(now, per_second)
        self.refusals.tokens -= records
        return self.refusals.tokens < -per_second

    def slow_down(self) -> bool:
        """Pause reading for now; False if it was already paused."""
        slowed, self.throttled = not self.throttled, True
        return slowed

    def speed_up(self, now: float, per_second: float) -> bool:
        """Whether a partition that was slowed down may be read again, from now on."""
        if not self.throttled:
            return False
        self.refusals.refill(now, per_second)
        self.throttled = self.refusals.tokens < 0 or self.full
        return not self.throttled

    def asks_for_end(self, now: float) -> bool:
        """Whether to ask now for the end of the log, up to which former partition counts may have placed records.

        Once producers have heard of new partitions, records to come are placed by the new count; what they wrote
        until then is below the high watermark that is asked for.
        """
        if self.state is None or not self.state.counts.unsettled:
            self._ask_ends_at = None
            return False
        if self._ask_ends_at is None:
            self._ask_ends_at = now + PRODUCERS_LEARN_S
        if now < self._ask_ends_at:
            return False
        self._ask_ends_at = now + 1.0  # when to ask again, if nobody answers
        return True


def pause_s(failures: int) -> float:
    """How long a partition waits after this many failures in a row, seconds."""
    return float(min(5.0, 0.1 * 2 ** min(failures - 1, 6)))
