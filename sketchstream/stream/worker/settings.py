"""Operational settings of a worker; none of them changes what is counted.

In: configuration. Out: `Settings`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """How a worker runs.

    Args:
        snapshot_every_s: time between snapshots of a partition that has nothing to publish.
        snapshot_bytes_per_s: most that snapshots write on average; those of larger states come less often.
        publish_every_s: shortest time between two snapshots of a partition that has something to publish.
        idle_ms: how long a partition is silent before its watermark follows the others; None: never.
        idle_topic_ms: how far watermarks stay behind the clock while the whole topic is silent.
        poll_s: longest wait for records.
        threads: number of threads for commits and restores; 0 does them in the worker's thread.
        fail_fast: raise DataLossError when a partition halts.
        accept_loss: whether to continue, with marked windows, after records were trimmed before they were read or the
            log was truncated below what was read; and to begin a new revision if the input was created again.
        close_at_end: seal every open window when a bounded input has ended.
        refused_per_s: a partition that sends more refused records (late or dead letters) is slowed down.
        refused_payload: whether refused records go with their key, value and headers, which are raw data.
        stop_s: longest time for the last snapshots of a graceful stop.
        give_up_after: failures of a partition in a row after which its error is raised (for files: no other worker
            can repair a full disk); None: retry for ever.
        durable_within_s: a partition without a commit for longer, although there is something to commit, is not ready.
        report_every_s: time between log lines that say how much was counted.
        fits: (our partitions, partitions of the input) -> whether their open windows fit into memory; None: always.
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
    durable_within_s: float = 300.0
    report_every_s: float = 60.0
    fits: Callable[[int, int], bool] | None = None
