"""A worker as people and machines see it: where it is, and what each of its partitions does.

In: slots, counters, ages. Out: `Progress`, `Gauges`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sketchstream.stream.metrics import Gauges, PartitionGauge
from sketchstream.stream.slots import Progress, Slot
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


def gauges(slots: Collection[Slot], epsilon: dict[str, float], loop_age_s: float) -> Gauges:
    """What the endpoint shows."""
    partitions = tuple(_gauge(slot) for slot in sorted(slots, key=lambda one: one.partition))
    return Gauges(
        partitions=partitions,
        epsilon=epsilon,
        loop_age_seconds=loop_age_s,
        ready=bool(partitions) and all(one.status == "running" for one in partitions),
        healthy=loop_age_s < HEALTHY_SECONDS,
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
