"""The status of a worker, for people and for monitoring: its progress, and the state of each partition.

In: assigned partitions, counters, ages. Out: `Progress`, `Gauges`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sketchstream.stream.monitoring.metrics import Gauges, PartitionGauge
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream.stream.worker.assigned_partition import AssignedPartition

HEALTHY_SECONDS = 60.0
"""Seconds without a poll after which the loop of a worker is stuck."""


@dataclass
class Progress:
    """The progress of a worker, for a status line."""

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
    stalled: int = 0

    def line(self) -> str:
        """One line for people."""
        rate = self.records / self.seconds if self.seconds > 0 else 0.0
        parts = [f"{self.records:,} records", f"{rate:,.0f}/s", f"{self.sealed} windows sealed"]
        if self.lag is not None:
            parts.append(f"lag {self.lag:,}")
        if self.restoring:
            parts.append(f"{self.restoring} restoring")
        if self.stalled:
            parts.append(f"{self.stalled} NOT DURABLE")
        if self.halted:
            parts.append(f"{self.halted} HALTED")
        return ", ".join(parts)

    def fields(self) -> dict[str, object]:
        """Fields by name, for the log."""
        return {
            "records": self.records,
            "seconds": round(self.seconds, 1),
            "windows_sealed": self.sealed,
            "unread": self.lag,
            "running": self.running,
            "restoring": self.restoring,
            "halted": self.halted,
            "stalled": self.stalled,
        }


def progress(
    partitions: Collection[AssignedPartition], counters: Mapping[str, int], seconds: float, now: float, within_s: float
) -> Progress:
    """The progress of a worker after this many seconds; `now` is the time of the monotonic clock.

    A commit older than `within_s` counts as stalled.
    """
    lags = [assigned.unread for assigned in partitions if assigned.unread is not None]
    count = dict.fromkeys(("restoring", "running", "halted"), 0)
    for assigned in partitions:
        count[assigned.status] += 1
    return Progress(
        records=counters["records"],
        updates=counters["updates"],
        bytes=counters["bytes"],
        sealed=counters["windows_sealed"],
        seconds=seconds,
        lag=sum(lags) if lags else None,
        late=counters["late"],
        stalled=sum(bool(assigned.stall_reason(now, within_s)) for assigned in partitions),
        **count,
    )


def gauges(
    partitions: Collection[AssignedPartition],
    epsilon: dict[str, float],
    loop_age_s: float,
    *,
    now: float,
    within_s: float,
    joined: bool,
    skew_ms: int | None = None,
    mixed: str = "",
    now_ms: int = 0,
) -> Gauges:
    """What the endpoint shows.

    A worker is ready if its loop polls, its assignment is known, perhaps empty, no partition is being restored, and
    what is counted and sealed becomes durable. A halted partition waits for a person, whom metrics and log alert:
    other workers must not wait for it.
    """
    healthy = loop_age_s < HEALTHY_SECONDS
    shown = tuple(
        _gauge(partition, now, within_s, now_ms / 1000)
        for partition in sorted(partitions, key=lambda each: each.partition)
    )
    return Gauges(
        partitions=shown,
        epsilon=epsilon,
        loop_age_seconds=loop_age_s,
        clock_skew_seconds=None if skew_ms is None else skew_ms / 1000,
        ready=healthy and joined and all(gauge.status not in {"restoring", "stalled"} for gauge in shown),
        healthy=healthy,
        joined=joined,
        mixed=mixed,
    )


def _gauge(assigned: AssignedPartition, now: float, within_s: float, wall_s: float) -> PartitionGauge:
    """One partition; `now` is the time of the monotonic clock, `wall_s` that of the other, seconds since 1970."""
    state = assigned.state
    stall_reason = "" if assigned.status == "halted" else assigned.stall_reason(now, within_s)
    return PartitionGauge(
        partition=assigned.partition,
        status="stalled" if stall_reason else assigned.status,
        reason=stall_reason or assigned.reason or assigned.slow(now),
        position=-1 if state is None else state.position,
        lag=assigned.lag,
        watermark_ms=None if state is None or state.watermark == NO_TIME else state.watermark,
        open_windows=0 if state is None else state.open_windows,
        commit_age_s=assigned.durability.commit_age_s(now),
        publication_age_s=assigned.durability.publication_age_s(now),
        lag_s=assigned.lag_s(now),
        state_bytes=0 if state is None else state.state_bytes,
        snapshot_age_s=assigned.snapshot_age_s(now),
        last_commit_at_s=_ago(assigned.durability.since_commit_s(now), wall_s),
        last_publication_at_s=_ago(assigned.durability.since_publication_s(now), wall_s),
        throttled=assigned.throttled,
    )


def _ago(age_s: float | None, wall_s: float) -> float | None:
    """When something happened that is so old, seconds since 1970."""
    return None if age_s is None else wall_s - age_s
