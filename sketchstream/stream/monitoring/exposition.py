"""The metrics of a worker as Prometheus text. `docs/operations.md` lists them; a test compares the two.

In: counters and gauges. Out: text. Touches: /proc, for the numbers of the process. No number depends on an item.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

from sketchstream.errors import optional_import
from sketchstream.stream.monitoring.metrics import COUNTERS, HISTOGRAMS, Gauges, Metrics, PartitionGauge
from sketchstream.topics import TOPIC_STRIDE

STATES = ("restoring", "running", "stalled", "halted")
"""States of a partition: the metric of its present state is 1, those of the others are 0."""


def build_info() -> Any:
    """Versions of this program and of Python, as labels of a metric whose value is 1."""
    from prometheus_client.core import InfoMetricFamily

    versions = {"version": version("sketchstream"), "python": platform.python_version()}
    return InfoMetricFamily("sketchstream_build", "Versions of sketchstream and Python.", value=versions)


class _Collector:
    """Gives prometheus_client the numbers of the moment."""

    def __init__(self, metrics: Metrics, gauges: Callable[[], Gauges], topics: Sequence[str]) -> None:
        self._metrics, self._gauges, self._topics = metrics, gauges, topics

    def describe(self) -> Iterable[Any]:
        """Nothing in advance."""
        return ()

    def collect(self) -> Iterator[Any]:
        """All families."""
        from prometheus_client import PROCESS_COLLECTOR
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, n in self._metrics.exact().items():
            if name == "late":
                continue
            yield CounterMetricFamily(f"sketchstream_{name}", COUNTERS[name], value=n)
        late = CounterMetricFamily("sketchstream_late", COUNTERS["late"], labels=["sketch"])
        for sketch, n in sorted(self._metrics.late.copy().items()):
            late.add_metric([sketch], n)
        yield late
        for name, histogram in self._metrics.histograms.items():
            yield histogram.family(f"sketchstream_{name}", HISTOGRAMS[name][0])
        now = self._gauges()
        yield from self._partitions(now)
        spent = GaugeMetricFamily(
            "sketchstream_privacy_epsilon_spent", "Loss of one event or item in one window.", labels=["sketch"]
        )
        for name, epsilon in now.epsilon.items():
            spent.add_metric([name], epsilon)
        yield spent
        if now.clock_skew_seconds is not None:
            yield GaugeMetricFamily(
                "sketchstream_clock_skew_seconds",
                "How far the worker's clock is ahead of the brokers'.",
                value=now.clock_skew_seconds,
            )
        flags = {
            "ready": ("1 if /readyz answers 200.", now.ready),
            "healthy": ("1 if /healthz answers 200.", now.healthy),
            "joined": ("1 if the worker is a member of its group.", now.joined),
            "mixed_configurations": (
                "1 while workers with another configuration commit snapshots in this group.",
                bool(now.mixed),
            ),
        }
        for name, (text, value) in flags.items():
            yield GaugeMetricFamily(f"sketchstream_{name}", text, value=float(value))
        yield GaugeMetricFamily("sketchstream_loop_age_seconds", "Since the last poll.", value=now.loop_age_seconds)
        yield build_info()
        yield from PROCESS_COLLECTOR.collect()  # descriptors, memory, processor time

    def _place(self, gauge: PartitionGauge) -> list[str]:
        """Topic and partition, as Kafka numbers it."""
        topic, partition = divmod(gauge.partition, TOPIC_STRIDE)
        return [self._topics[topic], str(partition)]

    def _partitions(self, now: Gauges) -> Iterator[Any]:
        """Gauges of the partitions."""
        from prometheus_client.core import GaugeMetricFamily

        status = GaugeMetricFamily(
            "sketchstream_partition_status",
            "1 for the state that the partition is in, 0 for the others.",
            labels=["topic", "partition", "status"],
        )
        for gauge in now.partitions:
            for state in STATES:
                status.add_metric([*self._place(gauge), state], float(gauge.status == state))
        yield status
        metrics = dict(PARTITION)
        if not self._metrics.diagnostics:  # dead letters slow a partition down, and they depend on payloads
            del metrics["partition_throttled"]
        for name, (text, read) in metrics.items():
            family = GaugeMetricFamily(f"sketchstream_{name}", text, labels=["topic", "partition"])
            for gauge in now.partitions:
                value = read(gauge, now.now_s)
                if value is not None:
                    family.add_metric(self._place(gauge), value)
            yield family


def _at(age_s: float | None, now_s: float) -> float | None:
    """The time of something that is so old, seconds since 1970."""
    return None if age_s is None else now_s - age_s


PARTITION: dict[str, tuple[str, Callable[[PartitionGauge, float], float | None]]] = {
    "consumer_lag_records": ("Records of the log that are not committed.", lambda gauge, _now: gauge.lag),
    "consumer_lag_seconds": (
        "Age of the oldest record that is not committed, since this worker has seen its place in the log.",
        lambda gauge, _now: gauge.lag_s,
    ),
    "watermark_timestamp_seconds": (
        "Watermark, in seconds since 1970.",
        lambda gauge, _now: None if gauge.watermark_ms is None else gauge.watermark_ms / 1000,
    ),
    "window_open": ("Open windows, all sketches.", lambda gauge, _now: gauge.open_windows),
    "state_bytes": ("Memory of the open windows' counters.", lambda gauge, _now: gauge.state_bytes),
    "commit_age_seconds": (
        "For how long something has been waiting for a commit; 0: nothing is.",
        lambda gauge, _now: gauge.commit_age_s,
    ),
    "publication_age_seconds": (
        "For how long something sealed has been waiting for its publication; 0: nothing is.",
        lambda gauge, _now: gauge.publication_age_s,
    ),
    "snapshot_age_seconds": (
        "For how long the present snapshot has been written; 0: none is.",
        lambda gauge, _now: gauge.snapshot_age_s,
    ),
    "last_commit_timestamp_seconds": (
        "Time of the last commit by this worker, in seconds since 1970.",
        lambda gauge, now: _at(gauge.last_commit_s, now),
    ),
    "last_publication_timestamp_seconds": (
        "Time of the last publication by this worker, in seconds since 1970.",
        lambda gauge, now: _at(gauge.last_publication_s, now),
    ),
    "partition_throttled": (
        "1 while the partition is not read because too much waits for publication, snapshots or other topics.",
        lambda gauge, _now: float(gauge.throttled),
    ),
}
"""Gauges of a partition: help, and how the value is read at a time in seconds since 1970."""


def exposition(metrics: Metrics, gauges: Callable[[], Gauges], topics: Sequence[str]) -> bytes:
    """Prometheus text of a worker.

    Raises:
        MissingExtraError: prometheus-client is not installed.
    """
    return text_of(_Collector(metrics, gauges, topics))


def text_of(collector: Any) -> bytes:
    """Prometheus text of what a collector of prometheus-client yields.

    Raises:
        MissingExtraError: prometheus-client is not installed.
    """
    with optional_import("metrics need prometheus-client: pip install 'sketchstream[serve]'"):
        from prometheus_client import CollectorRegistry, generate_latest
    registry = CollectorRegistry()
    registry.register(collector)
    out: bytes = generate_latest(registry)
    return out
