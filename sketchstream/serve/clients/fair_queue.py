"""A queue that serves clients in turn: questions to be computed, pages to be drawn.

In: questions or pages with their clients. Out: the next one. Touches: nothing; who owns a queue guards it.

Clients take turns. When the queue is full, the client with most questions loses its newest one to a client with fewer:
one client cannot crowd out another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from sketchstream.errors import BusyError

WAITING: Final = 64
"""Most jobs (questions, pages) that wait; more are refused."""

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """Jobs by client; a job that several clients wait for is in the queue of each.

    Args:
        most: places in all queues together.
    """

    def __init__(self, most: int = WAITING) -> None:
        self._most = most
        self._by_client: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._by_client.values()))

    def put(self, job: T, client: str) -> T | None:
        """Add a job of a client.

        Returns:
            A job that lost its last place to this one; None without one.

        Raises:
            BusyError: the queue is full, and no client has more jobs in it than this one would have.
        """
        jobs = self._by_client.get(client, OrderedDict())
        if job in jobs:
            return None
        lost: T | None = None
        if len(self) >= self._most:
            longest = max(self._by_client, key=lambda client: len(self._by_client[client]))
            if len(self._by_client[longest]) <= len(jobs) + 1:
                raise BusyError(f"{len(self)} questions are waiting already: ask again later")
            lost, _ = self._by_client[longest].popitem()
            self._drop_empty(longest)
            if any(lost in others for others in self._by_client.values()):
                lost = None
        self._by_client.setdefault(client, jobs)[job] = None
        return lost

    def take(self) -> T | None:
        """The next job: the oldest one of the client whose turn it is; None: there is none."""
        if not self._by_client:
            return None
        client, jobs = next(iter(self._by_client.items()))
        job, _ = jobs.popitem(last=False)
        self._by_client.move_to_end(client)
        self.remove(job)
        self._drop_empty(client)
        return job

    def remove(self, job: T) -> None:
        """Take a job out of every queue."""
        for client in list(self._by_client):
            self._by_client[client].pop(job, None)
            self._drop_empty(client)

    def clear(self) -> list[T]:
        """Take out all jobs."""
        jobs = list({job: None for queue in self._by_client.values() for job in queue})
        self._by_client.clear()
        return jobs

    def _drop_empty(self, client: str) -> None:
        if client in self._by_client and not self._by_client[client]:
            del self._by_client[client]
