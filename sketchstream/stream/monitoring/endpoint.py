"""The endpoint of a worker: /metrics, /healthz, /readyz.

In: counters and gauges. Out: HTTP responses. Touches: one listening socket, one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sketchstream.errors import ConfigError
from sketchstream.stream.monitoring.clocks import SKEWED_MS
from sketchstream.stream.monitoring.exposition import exposition
from sketchstream.stream.monitoring.metrics import Gauges, Metrics


class Endpoint:
    """/metrics, /healthz (the loop polls) and /readyz (nothing is being restored, commits succeed) on one address.

    Args:
        address: host and port; port 0 takes a free one.
        metrics: metrics of the worker.
        gauges: asked at each request.
        topics: labels of the partitions' gauges: the topics of the input.

    Raises:
        ConfigError: the address cannot be bound.
        MissingExtraError: prometheus-client is not installed.
    """

    def __init__(
        self, address: tuple[str, int], metrics: Metrics, gauges: Callable[[], Gauges], topics: Sequence[str]
    ) -> None:
        exposition(metrics, gauges, topics)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                now = gauges()
                if self.path == "/metrics":
                    self._answer(200, "text/plain; version=0.0.4; charset=utf-8", exposition(metrics, gauges, topics))
                elif self.path == "/healthz":
                    self._answer(200 if now.healthy else 503, "text/plain", b"ok\n" if now.healthy else b"stuck\n")
                elif self.path == "/readyz":
                    self._answer(200 if now.ready else 503, "text/plain", readiness(now).encode())
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
            raise ConfigError(
                f"worker.metrics: cannot listen on {address[0]}:{address[1]}: {error.strerror}"
            ) from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="sketchstream-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def readiness(now: Gauges) -> str:
    """A line for what is not ready, and one for each partition that does not run."""
    lines = [] if now.healthy else ["the worker does not poll"]
    if not now.joined:
        lines.append("no partition is assigned yet")
    if now.ready:
        lines.append("ready" if now.partitions else "ready, a spare: no partition is assigned")
    lines += [
        f"partition {gauge.partition} {gauge.status}: {gauge.reason}"
        for gauge in now.partitions
        if gauge.reason or gauge.status != "running"
    ]
    if now.mixed:
        lines.append(now.mixed)
    skew = now.clock_skew_seconds
    if skew is not None and abs(skew) > SKEWED_MS / 1000:
        lines.append(f"clock: {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the brokers'")
    return "\n".join(lines) + "\n"
