"""Whether the service is alive and ready, and how far it is behind what is published.

In: a `Service`. Out: plain data and lines of text, for the HTTP API, Prometheus and the page. Touches: nothing.
"""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from sketchstream.serve.clients.access import may_see, may_see_all

if TYPE_CHECKING:
    from sketchstream.serve.service import Service

UNREAD: Final = "what is published cannot be read at the moment: the log says why"


def status(service: Service) -> dict[str, Any]:
    """Delay of the store behind publications, and of the pool behind the store.

    What speaks of all sketches together, or of files, is None for those who may not see all.
    """
    whole = may_see_all()
    pending = service.store.pending() if whole else _pending_to_see(service)
    rate = service.pool.rate() if whole else None
    error = service.follower.error or service.store.error or service.pool.error
    if whole and error is None and service.follower.problems:
        error = service.follower.problems[0]
    return {
        "ready": readiness(service)[0] == HTTPStatus.OK,
        "unread": service.follower.behind if whole else None,
        "error": error if whole or error is None else UNREAD,
        "pending": pending,
        "rate_per_second": None if rate is None else round(rate, 3),
        "pending_seconds": pending_seconds(service, pending),
        "sketches": {name: {"behind_seconds": behind_seconds(service, name)} for name in service.catalog.names()},
    }


def readiness(service: Service) -> tuple[int, str]:
    """HTTP status, and lines on parts that are not ready. They name no file and no sketch: any client may read them.

    `status` and the log have all details.
    """
    follower = service.follower
    lines = []
    if follower.error is not None:
        lines.append(UNREAD)
    if follower.stuck:
        lines.append("reading what is published has stopped: a disk or a broker does not answer")
    if follower.caught_up_at is None:
        lines.append("what was published is still being read")
    if service.store.error is not None or service.store.damaged:
        lines.append("the database cannot be used: the log says why")
    if service.pool.error is not None:
        lines.append("answers cannot be computed at the moment: the log says why")
    code = HTTPStatus.SERVICE_UNAVAILABLE if lines else HTTPStatus.OK
    if code == HTTPStatus.OK:
        late = max((behind_seconds(service, name) or 0.0 for name in service.catalog.every_name()), default=0.0)
        lines.append(f"ready, {late:.0f} s behind the frontier")
    return code, "\n".join(lines) + "\n"


def liveness(service: Service) -> tuple[int, str]:
    """HTTP status, and a line: whether every thread that must run does. If not, only a restart helps."""
    gone = [thread.name for thread in threads(service) if thread.ident and not thread.is_alive()]
    if gone:
        return HTTPStatus.SERVICE_UNAVAILABLE, f"{', '.join(gone)} ended\n"
    return HTTPStatus.OK, "ok\n"


def threads(service: Service) -> list[threading.Thread]:
    """Threads that run as long as the service does."""
    return [*service.pool.threads, service.follower.thread]


def _pending_to_see(service: Service) -> int:
    """Windows that are still to be reconstructed, of sketches that the client may see."""
    return sum(counts["pending"] for name, counts in service.store.counts().items() if may_see(name))


def pending_seconds(service: Service, pending: int) -> float | None:
    """Time for this number of reconstructions at the present rate; None: not known yet."""
    rate = service.pool.rate()
    return 0.0 if not pending else None if rate is None else round(pending / rate, 1)


def behind_seconds(service: Service, name: str) -> float | None:
    """Delay of the stored windows behind the newest published frontier; None: nothing is published."""
    newest = service.follower.frontiers.get(name)
    settled = service.catalog.settled(name)
    if newest is None or settled is None:
        return None
    return max(0.0, (newest - settled[1]) / 1000)
