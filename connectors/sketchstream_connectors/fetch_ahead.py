"""The next fetch is on its way while the records of the last one are decoded.

In: a fetcher of the client. Out: what its `fetch_records` hands out. Touches: the fetcher's requests and the data that
it has parked.

The client sends only after a drain that found nothing, so that request, wait, decoding and updates run one after the
other. And it can lose a wake-up: a response that comes after its drain and before it tidies its futures makes it say
that nothing is on its way, whereupon its caller sleeps for `retry_backoff_ms`.
"""

from __future__ import annotations

from typing import Any

from sketchstream_connectors.frames import Pool


class FetchAhead:
    """`fetch_records` for one fetcher.

    Args:
        fetcher: the client's.
        pool: the memory of its frames.
    """

    def __init__(self, fetcher: Any, pool: Pool) -> None:
        self._fetcher = fetcher
        self._pool = pool
        self._wait = fetcher.fetch_records

    def fetch_records(
        self, max_records: int | None = None, update_offsets: bool = True, timeout_ms: float | None = None
    ) -> tuple[dict[Any, list[Any]], bool]:
        """As the client's: records by partition, and whether there is nothing to wait for."""
        fetcher = self._fetcher
        self._pool.rest()
        records, more = fetcher.fetched_records(max_records, update_offsets=update_offsets)
        idle = False
        if not records and not more:
            records, idle = self._wait(max_records, update_offsets=update_offsets, timeout_ms=timeout_ms)
            if idle and fetcher._completed_fetches:  # it came while the client tidied up
                records, _ = fetcher.fetched_records(max_records, update_offsets=update_offsets)
                idle = False
        self._let_go()
        if records and not fetcher._completed_fetches and not fetcher._next_partition_records:
            fetcher._manager.call_soon(fetcher._send_fetches_async)
        return records, idle

    def _let_go(self) -> None:
        """Nothing is kept for paused partitions: they may be so for ever, and are asked again from their positions."""
        fetcher = self._fetcher
        fetcher._paused_completed_fetches.clear()
        for part in fetcher._paused_partition_records.values():
            part.drain()
        fetcher._paused_partition_records.clear()


def install(consumer: Any, pool: Pool) -> None:
    """Let this consumer fetch ahead."""
    fetcher = consumer._fetcher
    fetcher.fetch_records = FetchAhead(fetcher, pool).fetch_records
