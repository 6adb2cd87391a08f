"""What a worker is made of: its settings, the partitions it holds, where it is.

In: configuration, clocks. Out: plain holders. Touches: nothing but the clocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, Literal

from sketchstream.errors import SketchstreamError
from sketchstream.stream.partition import PartitionState

Status = Literal["restoring", "running", "halted"]


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall clock."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Never jumps."""
        return time.monotonic()


@dataclass(frozen=True)
class Settings:
    """How a worker runs; nothing here changes what is counted.

    Args:
        snapshot_every_s: between snapshots of a partition that only moved on.
        snapshot_bytes_per_s: most that snapshots write on average; where states are larger, they come less often.
        publish_every_s: at least this long between two snapshots of a partition that has something to publish.
        idle_ms: how long a partition is silent before its watermark follows the others; None: never.
        idle_topic_ms: how far watermarks stay behind the clock while the whole topic is silent.
        poll_s: longest wait for records.
        threads: for commits and restores; 0 does them in the worker's thread.
        fail_fast: raise DataLossError when a partition halts.
        accept_loss: where records were trimmed before they were read, or the log was cut below what was read, go on
            where it goes on, their windows marked; where the input was made again, begin a new revision with it.
        close_at_end: seal every open window when a bounded input has ended.
        refused_per_s: a partition that sends more refused records (late or dead letters) is slowed down.
        refused_payload: whether refused records go with their key, value and headers, which are raw data.
        stop_s: longest time for the last snapshots of a graceful stop.
        give_up_after: failures of a partition in a row after which its error is raised (files: nobody else will mend
            a full disk); None: tried again for ever.
        report_every_s: between log lines that say how much was counted.
        fits: whether the open windows of so many partitions, of so many of the input, fit into memory; None: always.
    """

    snapshot_every_s: float = 30.0
    snapshot_bytes_per_s: float = 16.0 * 2**20
    publish_every_s: float = 0.5
    idle_ms: int | None = 600_000
    idle_topic_ms: int = 3_600_000
    poll_s: float = 0.5
    threads: int = 2
    fail_fast: bool = False
    accept_loss: bool = False
    close_at_end: bool = False
    refused_per_s: float = 1000.0
    refused_payload: bool = False
    stop_s: float = 20.0
    give_up_after: int | None = None
    report_every_s: float = 60.0
    fits: Callable[[int, int], bool] | None = None


@dataclass
class Slot:
    """One assigned partition."""

    partition: int
    status: Status = "restoring"
    state: PartitionState | None = None
    reason: str = "taking"
    job: Future[Any] | None = None
    job_kind: str = ""
    job_began: float = 0.0
    job_bytes: int = 0
    saved_at: float = 0.0
    rewrite_at: float | None = None
    rewriting: bool = False
    retry_at: float = 0.0
    failures: int = 0
    strange: int = 0
    strange_since: float = 0.0
    error: BaseException | None = field(default=None, repr=False)
    dropped_at: int = -1
    dropped_s: float = 0.0
    publish_at: float = 0.0
    publish_error: SketchstreamError | None = None
    grown_at: float | None = None
    lag: int | None = None
    tokens: float = 0.0
    tokens_at: float = 0.0
    refused_bytes: int = 0
    throttled: bool = False
    ended: bool = False


class Inline(Executor):
    """Runs jobs at once, in the caller's thread: for files, tests and the driver."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run now."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass
class Progress:
    """Where a worker is, for a status line."""

    records: int = 0
    updates: int = field(default=0, repr=False)
    bytes: int = 0
    sealed: int = 0
    seconds: float = 0.0
    lag: int | None = None
    running: int = 0
    restoring: int = 0
    halted: int = 0
    late: int = 0

    def line(self) -> str:
        """One line for people."""
        rate = self.records / self.seconds if self.seconds > 0 else 0.0
        parts = [f"{self.records:,} records", f"{rate:,.0f}/s", f"{self.sealed} windows sealed"]
        if self.lag is not None:
            parts.append(f"lag {self.lag:,}")
        if self.restoring:
            parts.append(f"{self.restoring} restoring")
        if self.halted:
            parts.append(f"{self.halted} HALTED")
        return ", ".join(parts)
