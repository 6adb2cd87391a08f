"""The service's numbers for Prometheus.

In: a `Service`. Out: Prometheus text. Touches: nothing. No number depends on an item.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from sketchstream.serve.traffic import STEPS_S
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
        if self._allowed is None:  # what follows speaks of all sketches together
            yield CounterMetricFamily("sketchstream_serve_bodies", "Sealed sketches stored.", service.follower.stored)
            yield CounterMetricFamily("sketchstream_serve_answers", "Answers computed.", service.pool.computed)
            yield CounterMetricFamily("sketchstream_serve_failures", "Answers that failed.", service.pool.failed)
            yield from self._whole()

    def _whole(self) -> Iterator[Any]:
        """Requests, the queue, threads, descriptors and the database."""
        from prometheus_client import PROCESS_COLLECTOR
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        service, traffic = self._service, self._service.traffic
        requests = CounterMetricFamily(
            "sketchstream_serve_requests", "Requests by route and status.", labels=["route", "status"]
        )
        for (route, status), number in list(traffic.requests.items()):
            requests.add_metric([route, str(status)], number)
        yield requests
        counts = list(itertools.accumulate(traffic.steps))
        ends = [*map(str, STEPS_S), "+Inf"]
        seconds = HistogramMetricFamily("sketchstream_serve_request_seconds", "How long requests took.")
        seconds.add_metric([], list(zip(ends, counts, strict=True)), traffic.seconds)
        yield seconds
        pool = service.pool
        gauges = {
            "requests_in_progress": ("Requests that have begun and are not done.", traffic.in_progress),
            "questions_waiting": ("Questions that wait to be computed.", pool.waiting),
            "reconstructions_running": ("Reconstructions that run.", pool.running),
            "threads": ("Threads that run.", threading.active_count()),
            "threads_needed": ("Threads of the service that must run.", len(pool.threads) + 1),
            "threads_running": ("Those of them that do.", sum(one.is_alive() for one in service.threads)),
            "database_bytes": ("Size of the database and its journal.", service.store.size),
            "database_trouble": ("Whether the last change could not be stored.", service.store.trouble is not None),
            "unreadable": ("Published files that cannot be read at the moment.", len(service.follower.problems)),
            "follower_stuck": ("Whether reading what is published has stopped.", service.follower.stuck),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"sketchstream_serve_{name}", text, value=float(value))
        yield CounterMetricFamily(
            "sketchstream_serve_abandoned", "Questions given up because nobody waited any more.", pool.abandoned
        )
        yield from PROCESS_COLLECTOR.collect()  # descriptors, memory, processor time


def exposition(service: Service, allowed: frozenset[str] | None = None) -> bytes:
    """Prometheus text.

    Args:
        service: whose numbers.
        allowed: sketches that may be seen; None: all.

    Raises:
        MissingExtraError: prometheus-client is not installed.
    """
    return text_of(_Collector(service, allowed))
