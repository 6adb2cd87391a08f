"""The service's numbers for Prometheus.

In: a `Service`. Out: Prometheus text. Touches: nothing. No number depends on an item.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from sketchstream.stream.metrics import text_of

if TYPE_CHECKING:
    from sketchstream.serve.service import Service

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _Collector:
    """Collects present values for prometheus_client.

    Args:
        service: whose.
        allowed: sketches that may be seen; None: all.
    """

    def __init__(self, service: Service, allowed: frozenset[str] | None) -> None:
        self._service, self._allowed = service, allowed

    def describe(self) -> Iterable[Any]:
        """Nothing in advance."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Yield all metric families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        service = self._service
        status = service.status(self._allowed)
        gauges = {
            "ready": ("Whether everything published is stored.", float(status["ready"])),
            "unread": ("Records, or files, known to be unread.", status["unread"]),
            "pending_windows": ("Windows still to be reconstructed.", status["pending"]),
            "reconstructions_per_second": ("Reconstructions a second, lately.", status["rate_per_second"]),
        }
        for name, (text, value) in gauges.items():
            if value is not None:
                yield GaugeMetricFamily(f"sketchstream_serve_{name}", text, value=value)
        behind = GaugeMetricFamily(
            "sketchstream_serve_behind_seconds", "How far the store is behind the newest frontier.", labels=["sketch"]
        )
        windows = GaugeMetricFamily("sketchstream_serve_windows", "Windows stored.", labels=["sketch", "state"])
        for name, one in status["sketches"].items():
            if one["behind_seconds"] is not None:
                behind.add_metric([name], one["behind_seconds"])
        for name, counts in service.store.counts().items():
            if self._allowed is None or name in self._allowed:
                for state, n in counts.items():
                    windows.add_metric([name, "all" if state == "windows" else state], n)
        yield from (behind, windows)
        yield CounterMetricFamily("sketchstream_serve_bodies", "Sealed sketches stored.", value=service.follower.stored)
        yield CounterMetricFamily("sketchstream_serve_answers", "Answers computed.", value=service.pool.computed)
        yield CounterMetricFamily("sketchstream_serve_failures", "Answers that failed.", value=service.pool.failed)


def exposition(service: Service, allowed: frozenset[str] | None = None) -> bytes:
    """Prometheus text.

    Args:
        service: whose numbers.
        allowed: sketches that may be seen; None: all.

    Raises:
        MissingExtraError: prometheus-client is not installed.
    """
    return text_of(_Collector(service, allowed))
