"""The service's numbers for Prometheus. `docs/operations.md` lists them; a test compares the two.

In: a `Service`. Out: Prometheus text. Touches: the store, reading; the pool, for groups without an answer; /proc. No
number depends on an item: answers are computed from publications.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from sketchstream.serve import status
from sketchstream.serve.clients.access import may_see, may_see_all
from sketchstream.serve.newest import newest_answers
from sketchstream.stream.monitoring.exposition import build_info, text_of

if TYPE_CHECKING:
    from sketchstream.serve.service import Service

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _ServiceCollector:
    """Collects present values for prometheus_client.

    Args:
        service: service whose numbers are read.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Any]:
        """Yield all metric families."""
        from prometheus_client.core import CounterMetricFamily

        service = self._service
        delays = status.status(service)
        yield _gauge("ready", "1 if everything published is stored.", value=float(delays["ready"]))
        if delays["unread"] is not None:
            yield _gauge("unread", "Records, or files, known to be unread.", value=delays["unread"])
        yield _gauge("pending_windows", "Windows still to be reconstructed.", value=delays["pending"])
        behind = _gauge("behind_seconds", "How far the store is behind the newest frontier.", labels=["sketch"])
        for name, numbers in delays["sketches"].items():
            if numbers["behind_seconds"] is not None:
                behind.add_metric([name], numbers["behind_seconds"])
        yield behind
        yield from self._windows()
        yield from self._answers()
        if may_see_all():  # what follows speaks of all sketches together
            yield CounterMetricFamily("sketchstream_serve_bodies", "Sealed sketches stored.", service.follower.stored)
            yield CounterMetricFamily("sketchstream_serve_answers", "Answers computed.", service.pool.computed)
            yield CounterMetricFamily("sketchstream_serve_failures", "Answers that failed.", service.pool.failed)
            yield from self._whole()

    def _windows(self) -> Iterator[Any]:
        """Numbers of stored windows."""
        texts = {
            "windows": "Windows stored.",
            "settled": "Windows that all partitions have published.",
            "pending": "Windows with something left to compute.",
            "incidents": "Windows that were replaced or contradict themselves, and are not shown.",
        }
        families = {
            name: _gauge(name if name == "windows" else f"windows_{name}", text, labels=["sketch"])
            for name, text in texts.items()
        }
        for sketch, counts in self._service.store.counts().items():
            if may_see(sketch):
                for name, n in counts.items():
                    families[name].add_metric([sketch], n)
        yield from families.values()

    def _answers(self) -> Iterator[Any]:
        """The newest numbers of each sketch, with their intervals, and the windows that they belong to."""
        labels = ["sketch", "group", "number"]
        value = _gauge("answer", "A number of the newest window that lacks nothing as far as is known.", labels=labels)
        low = _gauge("answer_low", "Lower end of its 95% interval.", labels=labels)
        high = _gauge("answer_high", "Upper end of its 95% interval.", labels=labels)
        text = "End of the window that the newest numbers belong to, in seconds since 1970."
        end = _gauge("answer_window_end_timestamp_seconds", text, labels=["sketch"])
        text = "1 if that window is complete, 0 if nothing published can tell."
        complete = _gauge("answer_complete", text, labels=["sketch"])
        for newest in newest_answers(self._service):
            end.add_metric([newest.sketch], newest.window[1] / 1000)
            complete.add_metric([newest.sketch], float(newest.complete))
            for group, number, ends in newest.numbers:
                for family, end_of in zip((value, low, high), ends, strict=True):
                    if end_of is not None:
                        family.add_metric([newest.sketch, group, number], end_of)
        yield from (value, low, high, end, complete)

    def _whole(self) -> Iterator[Any]:
        """Requests, the queue, threads, descriptors and the database."""
        from prometheus_client import PROCESS_COLLECTOR
        from prometheus_client.core import CounterMetricFamily

        service, traffic = self._service, self._service.traffic
        labels = ["route", "status"]
        requests = CounterMetricFamily("sketchstream_serve_requests", "Requests by route and status.", labels=labels)
        for (route, code), number in list(traffic.requests.items()):
            requests.add_metric([route, str(code)], number)
        yield requests
        yield traffic.times.family("sketchstream_serve_request_seconds", "How long requests took.")
        pool = service.pool
        yield pool.times.family("sketchstream_serve_reconstruction_seconds", "How long answers took to compute.")
        gauges = {
            "requests_in_progress": ("Requests that have begun and are not done.", traffic.in_progress),
            "questions_waiting": ("Questions that wait to be computed.", pool.waiting),
            "reconstructions_running": ("Reconstructions that run.", pool.running),
            "threads": ("Threads that run.", threading.active_count()),
            "threads_needed": ("Threads of the service that must run.", len(pool.threads) + 1),
            "threads_running": ("Those of them that do.", sum(thread.is_alive() for thread in status.threads(service))),
            "database_bytes": ("Size of the database and its journal.", service.store.size),
            "database_trouble": ("1 if the last change could not be stored.", service.store.error is not None),
            "unreadable": ("Published files that cannot be read at the moment.", len(service.follower.problems)),
            "follower_stuck": ("1 if reading what is published has stopped.", service.follower.stuck),
        }
        for name, (text, value) in gauges.items():
            yield _gauge(name, text, value=float(value))
        text = "Questions given up because nobody waited any more."
        yield CounterMetricFamily("sketchstream_serve_abandoned", text, pool.abandoned)
        yield build_info()
        yield from PROCESS_COLLECTOR.collect()  # descriptors, memory, processor time


def _gauge(name: str, text: str, **options: Any) -> Any:
    """A number of the service, or a number for each of some labels."""
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"sketchstream_serve_{name}", text, **options)


def exposition(service: Service) -> bytes:
    """Prometheus text.

    Args:
        service: service whose numbers are read.

    Raises:
        MissingExtraError: prometheus-client is not installed.
    """
    return text_of(_ServiceCollector(service))
