"""Counters, histograms and gauges of a worker.

In: what the worker counts. Out: numbers. Touches: nothing. `exposition` writes them, `endpoint` serves them.

Nothing here depends on an item. Counters that depend on payloads (invalid, misplaced, dead letters, nulls, updates)
are exact numbers without noise: they are for the operator's own endpoint, and `diagnostics = "off"` leaves them out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sketchstream.stream.monitoring.histogram import QUICK_S, SLOW_S, Histogram

PAYLOAD = frozenset(
    {"updates", "invalid", "misplaced", "nulls", "undecodable", "unreadable_times", "dead_letters", "throttles"}
)
"""Counters that depend on payloads."""

COUNTERS = {
    "records": "Records read.",
    "bytes": "Bytes read.",
    "updates": "Updates applied.",
    "late": "Records refused by a window that was closed.",
    "future": "Records whose event time lies too far beyond the clock.",
    "early": "Records whose time lies more than the lateness beyond the watermark.",
    "jumps": "Moves of a watermark by more than the lateness.",
    "unreadable_times": "Records whose event time cannot be read.",
    "undecodable": "Records of which nothing can be used.",
    "invalid": "Updates that are not valid.",
    "misplaced": "Updates whose item does not belong to the partition.",
    "nulls": "Records without an item.",
    "dead_letters": "Records sent to the dead letter topic.",
    "late_sent": "Records sent to the late topic.",
    "windows_sealed": "Windows sealed.",
    "published": "Sealed sketches published.",
    "snapshots": "Snapshots committed.",
    "snapshot_bytes": "Bytes of the blobs of committed snapshots.",
    "commit_failures": "Snapshots that were not committed.",
    "publish_failures": "Publications that failed and are tried again.",
    "restores": "Partitions taken with a snapshot.",
    "lost_offsets": "Offsets that were trimmed before they were read, and passed over by policy.",
    "diverged_offsets": "Offsets that were read and then cut off the log, and kept in open windows by policy.",
    "rebalances": "Changes of the partitions that this worker owns.",
    "throttles": "Times that a partition was not read for a while because too much waited.",
    "gaps": "Chunks discarded because they did not start at the state's position.",
}

HISTOGRAMS = {
    "seal_seconds": ("Time to seal a window of one partition.", QUICK_S),
    "snapshot_seconds": ("Time from capture to commit.", QUICK_S),
    "restore_seconds": ("Time to take a partition.", QUICK_S),
    "capture_seconds": ("Time that a capture holds up consumption.", QUICK_S),
    "publication_delay_seconds": ("Time from the end of a window to the publication of one of its sketches.", SLOW_S),
}


@dataclass
class Metrics:
    """Plain counters of one worker, written by its thread and read by any."""

    diagnostics: bool = True
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    late: dict[str, int] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram(steps) for name, (_, steps) in HISTOGRAMS.items()}
    )

    def add(self, name: str, n: int = 1) -> None:
        """Count; payload-dependent counters only with diagnostics on."""
        if self.diagnostics or name not in PAYLOAD:
            self.counters[name] += n

    def add_late(self, sketch: str, n: int) -> None:
        """Late records of one sketch."""
        self.late[sketch] = self.late.get(sketch, 0) + n

    def observe(self, name: str, seconds: float) -> None:
        """One duration."""
        self.histograms[name].observe(seconds)

    def exact(self) -> dict[str, int]:
        """The counters that may be shown: none that depend on payloads if diagnostics are off."""
        return {name: n for name, n in self.counters.items() if self.diagnostics or name not in PAYLOAD}


@dataclass(frozen=True, slots=True)
class PartitionGauge:
    """One partition as an operator sees it."""

    partition: int
    status: str
    reason: str
    position: int
    lag: int | None
    watermark_ms: int | None
    open_windows: int
    commit_age_s: float
    publication_age_s: float
    lag_s: float | None = None
    state_bytes: int = 0
    snapshot_age_s: float = 0.0
    last_commit_at_s: float | None = None
    last_publication_at_s: float | None = None
    throttled: bool = field(default=False, repr=False)

    @property
    def watermark_s(self) -> float | None:
        """The watermark, seconds since 1970; None before any record."""
        return None if self.watermark_ms is None else self.watermark_ms / 1000


@dataclass(frozen=True, slots=True)
class Gauges:
    """A worker at one moment."""

    partitions: tuple[PartitionGauge, ...]
    epsilon: dict[str, float]
    loop_age_seconds: float
    clock_skew_seconds: float | None
    ready: bool
    healthy: bool
    joined: bool
    mixed: str = ""
