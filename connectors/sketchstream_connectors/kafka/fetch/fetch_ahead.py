"""Sends the next fetch request before the records of the last response are read and decoded.

In: a fetcher of the client. Out: what its `fetch_records` returns. Touches: the fetcher's requests and the data that it
has buffered.

The stock client sends a request only after a drain that found nothing, so request, wait, checksums, decoding and
updates run one after the other. Its wait makes two calls to its own thread, each of which costs a millisecond on a busy
machine. It can also lose a wake-up: if a response arrives after the drain but before the client removes finished
futures, the client reports that no request is in flight, and its caller sleeps for `retry_backoff_ms`.

Here the next request begins where the heads of a response's batches end, so it is sent before anything else is done.
What it brings waits until the response before it is drained: a broker has at most two responses in memory. If a batch
turns out to be broken, or the caller seeks, the positions do not match, and the client drops what was asked for too far
ahead.
"""

from __future__ import annotations

import collections
import threading
from functools import cache
from typing import Any

from sketchstream.config import kafka_settings
from sketchstream_connectors.decode import memory_pool
from sketchstream_connectors.decode.memory_pool import MemoryPool
from sketchstream_connectors.kafka.fetch.read_ahead import ReadAhead, Reading, read_committed
from sketchstream_connectors.kafka.fetch.record_batch import end_of


class _PatchedView:
    """A view of an object in which some attributes are replaced; methods of its class are called with it.

    Args:
        original: object that has all other attributes.
        replaced: attributes that are replaced.
    """

    def __init__(self, original: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced, _original=original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _Positions:
    """The client's states of partitions, some of them at other positions.

    Args:
        states: client's states of all assigned partitions.
        ahead: the other positions.
    """

    def __init__(self, states: Any, ahead: dict[Any, Any]) -> None:
        self._states, self._ahead = states, ahead

    def __getitem__(self, partition: Any) -> Any:
        state, ahead = self._states[partition], self._ahead.get(partition)
        return state if ahead is None else _PatchedView(state, position=ahead)


@cache
def _completed_fetch_type() -> type:
    """The client's `CompletedFetch`, which keeps what is read of it."""
    from kafka.consumer.fetcher import CompletedFetch

    class Arrived(CompletedFetch):  # type: ignore[misc]
        """A response of one partition, and its reading."""

        reading: Reading | None = None

    return Arrived


class _Arrivals:
    """The queue to which the client appends responses: another thread begins to read them, and they wait here.

    Args:
        fetcher: fetcher of the client.
        aside: responses that wait to be drained.
        reader: begins to read these responses.
    """

    def __init__(self, fetcher: Any, aside: collections.deque[Any], reader: ReadAhead) -> None:
        self._aside, self._reader = aside, reader
        self._check_crc = bool(fetcher.config["check_crcs"])
        self._committed_only = fetcher._isolation_level == read_committed()

    def append(self, completed: Any) -> None:
        """Take a response of one partition."""
        arrived = _completed_fetch_type()(*completed)
        arrived.reading = self._reader.begin(completed, check_crc=self._check_crc, committed_only=self._committed_only)
        self._aside.append(arrived)


class FetchAhead:
    """`fetch_records` for one fetcher.

    Args:
        fetcher: fetcher of the client.
        pool: the memory of its frames.
        reader: reads responses as soon as they arrive.
    """

    def __init__(self, fetcher: Any, pool: MemoryPool, reader: ReadAhead) -> None:
        self._fetcher = fetcher
        self._pool = pool
        self._reader = reader
        self._client_waits = fetcher.fetch_records
        self._client_drains = fetcher.fetched_records
        self._client_clears = fetcher._clear_pending_fetch_request
        self._client_chooses = fetcher._fetchable_partitions
        self._share = int(fetcher.config["max_partition_fetch_bytes"])
        self._answered = threading.Event()
        self._arrived: collections.deque[Any] = collections.deque()
        self._asked_ahead = False
        self._receiving = _PatchedView(fetcher, _completed_fetches=_Arrivals(fetcher, self._arrived, reader))
        fetcher._handle_fetch_response = self._receive
        fetcher._fetchable_partitions = self._fetchable
        fetcher._clear_pending_fetch_request = self._clear
        fetcher.fetched_records = self._drain
        fetcher.fetch_records = self.fetch_records

    def _receive(self, *response: Any) -> None:
        """Let the client handle a response, but append it to the queue here instead of its own."""
        type(self._fetcher)._handle_fetch_response(self._receiving, *response)

    def _fetchable(self) -> list[Any]:
        """Partitions that can be asked for and of which nothing is buffered or laid aside.

        The client calls this before it makes requests. A response costs thousands of calls of Python, whatever is in
        it, so few partitions are asked for more each.
        """
        fetcher = self._fetcher
        share = kafka_settings.partition_share(self._share, len(fetcher._subscriptions.assignment))
        fetcher.config["max_partition_fetch_bytes"] = share
        buffered = {completed.topic_partition for completed in self._arrived.copy()}
        return [partition for partition in self._client_chooses() if partition not in buffered]

    def _clear(self, node: int, answer: object) -> None:
        """Note that what a fetch brought is there to be drained: the client calls this last when a fetch has ended."""
        self._client_clears(node, answer)
        self._answered.set()

    def fetch_records(
        self, max_records: int | None = None, update_offsets: bool = True, timeout_ms: float | None = None
    ) -> tuple[dict[Any, list[Any]], bool]:
        """Return, as the client does, records by partition, and whether there is nothing to wait for."""
        fetcher = self._fetcher
        self._pool.rest()
        memory_pool.clear_pools()
        self._asked_ahead = False
        self._answered.clear()  # before the drain: an answer that comes after it ends the wait
        records, more = fetcher.fetched_records(max_records, update_offsets=update_offsets)
        idle = False
        if not records and not more:
            if self._all_asked():
                self._answered.wait(None if timeout_ms is None else timeout_ms / 1000)
                records, _ = fetcher.fetched_records(max_records, update_offsets=update_offsets)
            else:
                records, idle = self._client_waits(max_records, update_offsets=update_offsets, timeout_ms=timeout_ms)
            if idle and (fetcher._completed_fetches or self._arrived):  # it came while the client tidied up
                records, _ = fetcher.fetched_records(max_records, update_offsets=update_offsets)
                idle = False
        self._let_go()
        if records and not (self._asked_ahead or self._arrived or self._buffers):
            fetcher._manager.call_soon(fetcher._send_fetches_async)
        return records, idle

    @property
    def _buffers(self) -> bool:
        """Whether the client has something to drain."""
        return bool(self._fetcher._completed_fetches or self._fetcher._next_partition_records)

    def _drain(self, max_records: int | None = None, update_offsets: bool = True) -> tuple[dict[Any, list[Any]], bool]:
        """Drain as the client's `fetched_records`, and add responses laid aside when all those before are drained."""
        while True:
            if self._arrived and not self._buffers:
                while self._arrived:
                    self._fetcher._completed_fetches.append(self._arrived.popleft())
                self._ask_ahead()
            records, more = self._client_drains(self._at_most(max_records), update_offsets=update_offsets)
            if records or more or not self._arrived:
                return records, more

    def _at_most(self, max_records: int | None) -> int | None:
        """Most chunks to drain, so that none is waited for while others are ready."""
        ready = self._reader.ready
        if ready is None:
            return max_records
        return max(ready, 1) if max_records is None else min(max(ready, 1), max_records)

    def _ask_ahead(self) -> None:
        """Send the requests that follow the buffered responses, if the heads of all of these are sound."""
        from kafka.structs import OffsetAndMetadata

        fetcher = self._fetcher
        states = fetcher._subscriptions.assignment
        ahead: dict[Any, Any] = {}
        for completed in fetcher._completed_fetches:
            partition, answer = completed.topic_partition, completed.partition_data
            state = states.get(partition)
            if (
                partition in ahead
                or state is None
                or state.position is None
                or state.position.offset != completed.fetched_offset
                or answer.error_code
                or answer.diverging_epoch is not None
                or answer.preferred_read_replica >= 0
                or not answer.records
            ):
                return
            end = end_of(answer.records, completed.fetched_offset)
            if end is None:
                return
            ahead[partition] = OffsetAndMetadata(end[0], "", end[1])
        self._asked_ahead = True
        self._fetcher._manager.call_soon(self._send_ahead, ahead)

    async def _send_ahead(self, ahead: dict[Any, Any]) -> None:
        """Send requests as the client's `_send_fetches_async` does, with some partitions at later positions."""
        fetcher, kind = self._fetcher, type(self._fetcher)
        subscriptions = fetcher._subscriptions
        others = set(fetcher._fetchable_partitions())
        partitions = [
            partition for partition in subscriptions.fetchable_partitions() if partition in ahead or partition in others
        ]
        creating = _PatchedView(
            fetcher,
            _fetchable_partitions=lambda: partitions,
            _subscriptions=_PatchedView(subscriptions, assignment=_Positions(subscriptions.assignment, ahead)),
        )
        sending = _PatchedView(fetcher, _create_fetch_requests=lambda: kind._create_fetch_requests(creating))
        await kind._send_fetches_async(sending)

    def _all_asked(self) -> bool:
        """Whether every partition that can be fetched is being fetched, so that there is nothing to do but wait."""
        fetcher = self._fetcher
        pending = fetcher._nodes_with_pending_fetch_requests
        nodes = [fetcher._select_read_replica(partition) for partition in fetcher._fetchable_partitions()]
        return bool(nodes) and all(node in pending for node in nodes)

    def _let_go(self) -> None:
        """Keep nothing for paused partitions: they may stay so for ever, and are asked again from their positions."""
        fetcher = self._fetcher
        fetcher._paused_completed_fetches.clear()
        for part in fetcher._paused_partition_records.values():
            part.drain()
        fetcher._paused_partition_records.clear()


def install(consumer: Any, pool: MemoryPool, reader: ReadAhead) -> None:
    """Let this consumer fetch ahead."""
    FetchAhead(consumer._fetcher, pool, reader)
