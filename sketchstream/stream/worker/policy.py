"""The worker's decisions about several partitions or about a chunk, without side effects.

In: assigned partitions, chunks, a time. Out: decisions. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sketchstream.errors import DataLossError
from sketchstream.stream.interfaces import Chunk
from sketchstream.stream.state.rules import Rules
from sketchstream.stream.windows.calendar import LATEST_MS, iso
from sketchstream.stream.worker.assigned_partition import AssignedPartition
from sketchstream.stream.worker.settings import Settings

MIN_COPIES_BYTES = 32 << 20
"""Captured snapshots that wait for their commit may hold these bytes, or a sixteenth of the states if that is more."""
WRITING_PART = 3
"""Writing snapshots of a partition takes at most a third of the time, however fast the store is."""
HELD_TIMES, MIN_HELD_BYTES = 4, 16 << 20
"""All stored snapshots of a partition hold at most 4 times its newest one, or 16 MiB if that is more."""
UNCONFIRMED = 10
"""Future records in one chunk that make the worker doubt an unconfirmed clock; fewer may have wrong clocks."""


def fits(assigned: AssignedPartition, partitions: Collection[AssignedPartition]) -> bool:
    """Whether memory allows one more captured snapshot; one may always wait for its commit."""
    flying = sum(other.job.n_bytes for other in partitions if other.job is not None)
    if not flying or assigned.state is None:
        return True
    states = sum(other.state.state_bytes for other in partitions if other.state is not None)
    return flying + assigned.state.dirty_bytes <= max(MIN_COPIES_BYTES, states // 16)


def snapshot_every_s(settings: Settings, n_bytes: int, seconds: float, superseded_s: float) -> float:
    """Seconds from one snapshot of a partition to the next: large ones neither fill the link nor the brokers' disks.

    Sizes, and so these times, depend on specs and on how many windows are open; never on items.

    Args:
        settings: settings of the worker.
        n_bytes: size of the last snapshot.
        seconds: time that its commit took.
        superseded_s: see `StateStore`.
    """
    superseded = max(HELD_TIMES * n_bytes, MIN_HELD_BYTES) - n_bytes
    return max(settings.snapshot_every_s, WRITING_PART * seconds, superseded_s * n_bytes / superseded)


def check_clock(chunk: Chunk, clock_ms: int, rules: Rules) -> None:
    """Refuse to use an unconfirmed clock that would refuse most of a chunk as future.

    Raises:
        DataLossError: the worker's clock is slow, or most producers' clocks are fast.
    """
    times = chunk.events.times
    future = int(np.count_nonzero((times > clock_ms + rules.max_ahead_ms) & (times < LATEST_MS)))
    if future >= UNCONFIRMED and 2 * future > times.size:
        raise DataLossError(
            f"partition {chunk.partition}: clock: most of the records from position {chunk.from_position} on lie more "
            f"than input.max_ahead beyond this worker's clock, {iso(clock_ms)}, and the brokers' time is not known "
            "yet; correct the clock; if the records are right, raise input.max_ahead"
        )
