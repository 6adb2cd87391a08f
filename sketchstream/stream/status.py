"""A worker as people and machines see it: where it is, and what each of its partitions does.

In: slots, counters, ages. Out: `Progress`, `Gauges`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sketchstream.stream.assigned_partition import Progress, Slot
from sketchstream.stream.metrics import Gauges, PartitionGauge
from sketchstream.stream.windows import NO_TIME

HEALTHY_SECONDS = 60.0
"""A loop that has not polled for longer is stuck."""


def progress(slots: Collection[Slot], counters: Mapping[str, int], seconds: float) -> Progress:
    """Where a worker is after so many seconds."""
    lags = [slot.lag for slot in slots if slot.lag is not None]
    count = dict.fromkeys(("restoring", "running", "halted"), 0)
    for slot in slots:
        count[slot.status] += 1
    return Progress(
        records=counters["records"],
        updates=counters["updates"],
        bytes=counters["bytes"],
        sealed=counters["windows_sealed"],
        seconds=seconds,
        lag=sum(lags) if lags else None,
        late=counters["late"],
        **count,
    )


def gauges(
    slots: Collection[Slot],
    epsilon: dict[str, float],
    loop_age_s: float,
    *,
    joined: bool,
    skew_ms: int | None = None,
) -> Gauges:
    """What the endpoint shows.

    Ready: the loop polls, the source has said which partitions are ours, perhaps none, and none of them is being
    restored. A halted partition waits for a person, whom metrics and log call: other workers must not wait for it.
    """
    healthy = loop_age_s < HEALTHY_SECONDS
    partitions = tuple(_gauge(slot) for slot in sorted(slots, key=lambda one: one.partition))
    return Gauges(
        partitions=partitions,
        epsilon=epsilon,
        loop_age_seconds=loop_age_s,
        clock_skew_seconds=None if skew_ms is None else skew_ms / 1000,
        ready=healthy and joined and all(one.status != "restoring" for one in partitions),
        healthy=healthy,
        joined=joined,
    )


def _gauge(slot: Slot) -> PartitionGauge:
    state = slot.state
    return PartitionGauge(
        partition=slot.partition,
        status=slot.status,
        reason=slot.reason,
        position=-1 if state is None else state.position,
        lag=slot.lag,
        watermark_ms=None if state is None or state.watermark == NO_TIME else state.watermark,
        open_windows=0 if state is None else state.open_windows,
    )
