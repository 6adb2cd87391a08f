"""The metrics of a worker as Prometheus text. `docs/operations.md` lists them; a test compares the two.

In: counters and gauges. Out: text. Touches: /proc, for the numbers of the process. No number depends on an item.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
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
        for name, (attribute, text) in metrics.items():
            family = GaugeMetricFamily(f"sketchstream_{name}", text, labels=["topic", "partition"])
            for gauge in now.partitions:
                value = getattr(gauge, attribute)
                if value is not None:
                    family.add_metric(self._place(gauge), float(value))
            yield family


PARTITION = {
    "consumer_lag_records": ("lag", "Records of the log that are not committed."),
    "consumer_lag_seconds": (
        "lag_s",
        "Age of the oldest record that is not committed, since this worker has seen its place in the log.",
    ),
    "watermark_timestamp_seconds": ("watermark_s", "Watermark, in seconds since 1970."),
    "window_open": ("open_windows", "Open windows, all sketches."),
    "state_bytes": ("state_bytes", "Memory of the open windows' counters."),
    "commit_age_seconds": ("commit_age_s", "For how long something has been waiting for a commit; 0: nothing is."),
    "publication_age_seconds": (
        "publication_age_s",
        "For how long something sealed has been waiting for its publication; 0: nothing is.",
    ),
    "snapshot_age_seconds": ("snapshot_age_s", "For how long the present snapshot has been written; 0: none is."),
    "last_commit_timestamp_seconds": (
        "last_commit_at_s",
        "Time of the last commit by this worker, in seconds since 1970.",
    ),
    "last_publication_timestamp_seconds": (
        "last_publication_at_s",
        "Time of the last publication by this worker, in seconds since 1970.",
    ),
    "partition_throttled": (
        "throttled",
        "1 while the partition is not read because too much waits for publication, snapshots or other topics.",
    ),
}
"""Gauges of a partition: the attribute of `PartitionGauge`, and the help."""


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
        from prometheus_client import generate_latest
    out: bytes = generate_latest(collector)
    return out
