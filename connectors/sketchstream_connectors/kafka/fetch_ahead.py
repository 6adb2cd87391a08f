"""Sends the next fetch request while the records of the last response are decoded.

In: a fetcher of the client. Out: what its `fetch_records` returns. Touches: the fetcher's requests and the data that it
has buffered.

The stock client sends a request only after a drain that found nothing, so request, wait, decoding and updates run one
after the other. Its wait makes two calls to its own thread, each of which costs a millisecond on a busy machine. It can
also lose a wake-up: if a response arrives after the drain but before the client removes finished futures, the client
reports that no request is in flight, and its caller sleeps for `retry_backoff_ms`.
"""

from __future__ import annotations

import threading
from typing import Any

from sketchstream_connectors.decode import pools
from sketchstream_connectors.decode.pools import Pool


class FetchAhead:
    """`fetch_records` for one fetcher.

    Args:
        fetcher: the client's.
        pool: the memory of its frames.
    """

    def __init__(self, fetcher: Any, pool: Pool) -> None:
        self._fetcher = fetcher
        self._pool = pool
        self._client_waits = fetcher.fetch_records
        self._client_clears = fetcher._clear_pending_fetch_request
        self._answered = threading.Event()
        fetcher._clear_pending_fetch_request = self._clear
        fetcher.fetch_records = self.fetch_records

    def _clear(self, node: int, answer: object) -> None:
        """The last thing that the client does when a fetch has ended: what it brought is there to be drained."""
        self._client_clears(node, answer)
        self._answered.set()

    def fetch_records(
        self, max_records: int | None = None, update_offsets: bool = True, timeout_ms: float | None = None
    ) -> tuple[dict[Any, list[Any]], bool]:
        """As the client's: records by partition, and whether there is nothing to wait for."""
        fetcher = self._fetcher
        self._pool.rest()
        pools.rest()
        self._answered.clear()  # before the drain: an answer that comes after it ends the wait
        records, more = fetcher.fetched_records(max_records, update_offsets=update_offsets)
        idle = False
        if not records and not more:
            if self._all_asked():
                self._answered.wait(None if timeout_ms is None else timeout_ms / 1000)
                records, _ = fetcher.fetched_records(max_records, update_offsets=update_offsets)
            else:
                records, idle = self._client_waits(max_records, update_offsets=update_offsets, timeout_ms=timeout_ms)
            if idle and fetcher._completed_fetches:  # it came while the client tidied up
                records, _ = fetcher.fetched_records(max_records, update_offsets=update_offsets)
                idle = False
        self._let_go()
        if records and not fetcher._completed_fetches and not fetcher._next_partition_records:
            fetcher._manager.call_soon(fetcher._send_fetches_async)
        return records, idle

    def _all_asked(self) -> bool:
        """Whether every partition that can be fetched is being fetched, so that there is nothing to do but wait."""
        fetcher = self._fetcher
        asked = fetcher._nodes_with_pending_fetch_requests
        nodes = [fetcher._select_read_replica(partition) for partition in fetcher._fetchable_partitions()]
        return bool(nodes) and all(node in asked for node in nodes)

    def _let_go(self) -> None:
        """Nothing is kept for paused partitions: they may be so for ever, and are asked again from their positions."""
        fetcher = self._fetcher
        fetcher._paused_completed_fetches.clear()
        for part in fetcher._paused_partition_records.values():
            part.drain()
        fetcher._paused_partition_records.clear()


def install(consumer: Any, pool: Pool) -> None:
    """Let this consumer fetch ahead."""
    FetchAhead(consumer._fetcher, pool)
