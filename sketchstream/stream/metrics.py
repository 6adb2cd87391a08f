"""Counters of a worker, and their endpoint: /metrics, /healthz, /readyz.

In: what the worker counts. Out: numbers; Prometheus text when asked. Touches: one listening socket, if configured.

Nothing here depends on an item. Counters that depend on payloads (invalid, misplaced, dead letters, nulls, updates)
are exact numbers without noise: they are for the operator's own endpoint, and `diagnostics = "off"` leaves them out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sketchstream.errors import ConfigError, MissingExtraError
from sketchstream.stream.clocks import SKEWED_MS

PAYLOAD = frozenset({"updates", "invalid", "misplaced", "nulls", "undecodable", "unreadable_times", "dead_letters"})
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
    "gaps": "Chunks discarded because they did not start at the state's position.",
}

SUMMARIES = {
    "seal_seconds": "Time to seal a window.",
    "snapshot_seconds": "Time from capture to commit.",
    "restore_seconds": "Time to take a partition.",
    "capture_seconds": "Time that a capture holds up consumption.",
}


@dataclass
class Metrics:
    """Plain counters of one worker, written by its thread and read by any."""

    diagnostics: bool = True
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    late: dict[str, int] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SUMMARIES, 0.0))
    times: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SUMMARIES, 0))
    slowest: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SUMMARIES, 0.0))

    def add(self, name: str, n: int = 1) -> None:
        """Count; payload-dependent counters only with diagnostics on."""
        if self.diagnostics or name not in PAYLOAD:
            self.counters[name] += n

    def add_late(self, sketch: str, n: int) -> None:
        """Late records of one sketch."""
        self.late[sketch] = self.late.get(sketch, 0) + n

    def observe(self, name: str, seconds: float) -> None:
        """One duration."""
        self.sums[name] += seconds
        self.times[name] += 1
        self.slowest[name] = max(self.slowest[name], seconds)

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


class _Collector:
    """Gives prometheus_client the numbers of the moment."""

    def __init__(self, metrics: Metrics, gauges: Callable[[], Gauges], topic: str) -> None:
        self._metrics, self._gauges, self._topic = metrics, gauges, topic

    def describe(self) -> Iterable[Any]:
        """Nothing in advance."""
        return ()

    def collect(self) -> Iterator[Any]:
        """All families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

        for name, n in self._metrics.exact().items():
            if name == "late":
                continue
            yield CounterMetricFamily(f"sketchstream_{name}", COUNTERS[name], value=n)
        late = CounterMetricFamily("sketchstream_late", COUNTERS["late"], labels=["sketch"])
        for sketch, n in sorted(self._metrics.late.items()):
            late.add_metric([sketch], n)
        yield late
        for name, text in SUMMARIES.items():
            yield SummaryMetricFamily(
                f"sketchstream_{name}",
                text,
                count_value=self._metrics.times[name],
                sum_value=self._metrics.sums[name],
            )
        now = self._gauges()
        labels = ["topic", "partition"]
        lag = GaugeMetricFamily(
            "sketchstream_consumer_lag", "Records of the log that are not committed.", labels=labels
        )
        mark = GaugeMetricFamily("sketchstream_watermark_seconds", "Watermark, seconds since 1970.", labels=labels)
        opened = GaugeMetricFamily("sketchstream_window_open", "Open windows, all sketches.", labels=labels)
        status = GaugeMetricFamily(
            "sketchstream_partition_status", "1 for the state it is in.", labels=[*labels, "status"]
        )
        commit = GaugeMetricFamily(
            "sketchstream_commit_age_seconds", "For how long something has been waiting for a commit.", labels=labels
        )
        publication = GaugeMetricFamily(
            "sketchstream_publication_age_seconds",
            "For how long something sealed has been waiting for its publication.",
            labels=labels,
        )
        for one in now.partitions:
            at = [self._topic, str(one.partition)]
            if one.lag is not None:
                lag.add_metric(at, one.lag)
            if one.watermark_ms is not None:
                mark.add_metric(at, one.watermark_ms / 1000)
            opened.add_metric(at, one.open_windows)
            commit.add_metric(at, one.commit_age_s)
            publication.add_metric(at, one.publication_age_s)
            status.add_metric([*at, one.status], 1)
        yield from (lag, mark, opened, commit, publication, status)
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
        yield GaugeMetricFamily(
            "sketchstream_mixed_configurations",
            "1 while workers with another configuration commit snapshots in this group.",
            value=float(bool(now.mixed)),
        )
        yield GaugeMetricFamily("sketchstream_loop_age_seconds", "Since the last poll.", value=now.loop_age_seconds)


def exposition(metrics: Metrics, gauges: Callable[[], Gauges], topic: str) -> bytes:
    """Prometheus text of a worker.

    Raises:
        MissingExtraError: prometheus-client is not installed.
    """
    return text_of(_Collector(metrics, gauges, topic))


def text_of(collector: Any) -> bytes:
    """Prometheus text of what a collector of prometheus-client yields.

    Raises:
        MissingExtraError: prometheus-client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        msg = "metrics need prometheus-client: pip install 'sketchstream[serve]'"
        raise MissingExtraError(msg) from None
    registry = CollectorRegistry()
    registry.register(collector)
    out: bytes = generate_latest(registry)
    return out


class Endpoint:
    """/metrics, /healthz (the loop polls) and /readyz (nothing is being restored, commits succeed) on one address.

    Args:
        address: host and port; port 0 takes a free one.
        metrics: of the worker.
        gauges: asked at each request.
        topic: label of the partitions' gauges.

    Raises:
        ConfigError: the address cannot be bound.
        MissingExtraError: prometheus-client is not installed.
    """

    def __init__(self, address: tuple[str, int], metrics: Metrics, gauges: Callable[[], Gauges], topic: str) -> None:
        exposition(metrics, gauges, topic)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                now = gauges()
                if self.path == "/metrics":
                    self._answer(200, "text/plain; version=0.0.4; charset=utf-8", exposition(metrics, gauges, topic))
                elif self.path == "/healthz":
                    self._answer(200 if now.healthy else 503, "text/plain", b"ok\n" if now.healthy else b"stuck\n")
                elif self.path == "/readyz":
                    self._answer(200 if now.ready else 503, "text/plain", _readiness(now).encode())
                else:
                    self._answer(404, "text/plain", b"/metrics, /healthz, /readyz\n")

            def _answer(self, code: int, kind: str, body: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
                """Say nothing."""

        try:
            self._server = ThreadingHTTPServer(address, Handler)
        except OSError as error:
            msg = f"worker.metrics: cannot listen on {address[0]}:{address[1]}: {error.strerror}"
            raise ConfigError(msg) from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="sketchstream-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def _readiness(now: Gauges) -> str:
    """A line for what is not ready, and one for each partition that does not run."""
    lines = [] if now.healthy else ["the worker does not poll"]
    if not now.joined:
        lines.append("no partition is assigned yet")
    if now.ready:
        lines.append("ready" if now.partitions else "ready, a spare: no partition is assigned")
    lines += [
        f"partition {one.partition} {one.status}: {one.reason}"
        for one in now.partitions
        if one.reason or one.status != "running"
    ]
    if now.mixed:
        lines.append(now.mixed)
    skew = now.clock_skew_seconds
    if skew is not None and abs(skew) > SKEWED_MS / 1000:
        lines.append(f"clock: {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the brokers'")
    return "\n".join(lines) + "\n"
