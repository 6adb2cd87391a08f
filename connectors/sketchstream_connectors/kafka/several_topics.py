"""Several topics as one input: a source, store, publisher, sink, sealed source or feed of each, as if there were one.

In: the parts of each topic, in the order of the configuration. Out: what the interfaces of the worker and of readers
require. Touches: nothing of its own.

Each part knows one topic and its partitions from 0. Here they have the numbers of `sketchstream.topics`, which
are also those in what is published. Every topic has a group, a state topic, fences and a sealed topic of its own, so
nothing that is true of one topic ceases to be true.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from typing import Any, Generic, TypeVar, cast

from sketchstream.stream.feed import Feed, FeedBatch
from sketchstream.stream.interfaces import (
    Assigned,
    Deleted,
    Frontier,
    Peer,
    Publisher,
    Refusal,
    Revoked,
    SealedEntry,
    SealedSource,
    Sink,
    Source,
    SourceEvent,
    StateStore,
)
from sketchstream.stream.windows.boundary import Boundary, Claim
from sketchstream.topics import TOPIC_STRIDE
from sketchstream_connectors.kafka.cluster.reader_pool import Closable

WAIT_S = 0.05
"""Longest wait for one topic while others may bring something."""


Part = TypeVar("Part", bound=Closable)
F = TypeVar("F", bound=Callable[..., Any])


class _Several(Generic[Part]):
    """The parts of each topic.

    Args:
        parts: parts of the topics, in the order of the configuration.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = tuple(parts)

    def _locate(self, number: int) -> tuple[Part, int]:
        """The part of a partition, and its number there."""
        topic, partition = divmod(number, TOPIC_STRIDE)
        return self._parts[topic], partition

    def close(self) -> None:
        """Close all."""
        with ExitStack() as stack:
            for part in self._parts:
                stack.callback(part.close)


def _route(method: F) -> F:
    """The method of the part that has a partition, by the number that the partition has there."""

    @wraps(method)
    def of_part(self: _Several[Any], partition: int = 0, *arguments: Any, **named: Any) -> Any:
        part, number = self._locate(partition)
        return getattr(part, method.__name__)(number, *arguments, **named)

    return cast("F", of_part)


class Sources(_Several[Source]):
    """A `Source` over one of each topic."""

    @property
    def joined(self) -> bool:
        """Whether the assignment in every group is known."""
        return all(part.joined for part in self._parts)

    def confirmed(self, since_s: float) -> bool:
        """Whether every group has confirmed this member."""
        return all(part.confirmed(since_s) for part in self._parts)

    def poll(self, timeout_s: float) -> list[SourceEvent]:
        """Poll each topic; if none has anything, wait a short while for each."""
        for wait_s in (0.0, min(timeout_s / len(self._parts), WAIT_S)):
            events = [_number_event(event, t) for t, part in enumerate(self._parts) for event in part.poll(wait_s)]
            if events:
                break
        return events

    seek = _route(Source.seek)
    pause = _route(Source.pause)
    resume = _route(Source.resume)

    def numbers(self) -> Sequence[int]:
        """Partitions of all topics."""
        return [TOPIC_STRIDE * t + p for t, part in enumerate(self._parts) for p in part.numbers()]

    partition_count = _route(Source.partition_count)
    beginning = _route(Source.beginning)
    former_counts = _route(Source.former_counts)

    def high_watermarks(self, partitions: Collection[int] | None = None) -> Mapping[int, int]:
        """Fresh high watermarks."""
        by_partition: dict[int, int] = {}
        for t, part in enumerate(self._parts):
            numbers = (
                None if partitions is None else [p - TOPIC_STRIDE * t for p in partitions if p // TOPIC_STRIDE == t]
            )
            if numbers is None or numbers:
                by_partition |= {TOPIC_STRIDE * t + p: end for p, end in part.high_watermarks(numbers).items()}
        return by_partition

    def close(self, *, leave: bool = False) -> None:
        """Close all."""
        with ExitStack() as stack:
            for part in self._parts:
                stack.callback(part.close, leave=leave)


def _number_event(event: SourceEvent, topic: int) -> SourceEvent:
    """An event of one topic with the numbers of the whole input."""
    if isinstance(event, Assigned | Revoked):
        return replace(event, partitions=tuple(TOPIC_STRIDE * topic + p for p in event.partitions))
    return replace(event, partition=TOPIC_STRIDE * topic + event.partition)


class Stores(_Several[StateStore]):
    """A `StateStore` over one of each topic."""

    def __init__(self, parts: Sequence[StateStore]) -> None:
        super().__init__(parts)
        first = self._parts[0]
        self.rewrite_after_s, self.superseded_s = first.rewrite_after_s, first.superseded_s

    @property
    def broker_time(self) -> tuple[int, float] | None:
        """The newest that is known."""
        times = [part.broker_time for part in self._parts if part.broker_time is not None]
        return max(times, key=lambda time: time[1], default=None)

    @broker_time.setter
    def broker_time(self, value: tuple[int, float] | None) -> None:
        raise AttributeError

    take = _route(StateStore.take)
    commit = _route(StateStore.commit)

    def peers(self) -> Sequence[Peer]:
        """The snapshots of all partitions of all topics."""
        return [peer for part in self._parts for peer in part.peers()]

    drop = _route(StateStore.drop)


class Publishers(_Several[Publisher]):
    """A `Publisher` over one of each topic: keys have the number of a partition, the partition is the topic's."""

    publish = _route(Publisher.publish)

    def settle(self, sketch: str, revision: int, claim: Claim) -> Boundary:
        """Add a claim at the first topic: a history has no topics."""
        return self._parts[0].settle(sketch, revision, claim)

    def frontiers(self) -> Mapping[tuple[str, int, int], Frontier]:
        """Newest frontiers of all topics."""
        return {key: frontier for part in self._parts for key, frontier in part.frontiers().items()}


class Sinks(_Several[Sink]):
    """A `Sink` over one of each topic: refused records name the topic that they come from."""

    def takes(self, reason: Refusal) -> bool:
        """Whether there is a topic for them."""
        return self._parts[0].takes(reason)

    send = _route(Sink.send)
    flush = _route(Sink.flush)
    forget = _route(Sink.forget)


class SealedSources(_Several[SealedSource]):
    """A `SealedSource` over the sealed topic of each topic."""

    def frontiers(self, sketch: str | None = None) -> Sequence[Frontier]:
        """Newest frontiers of all topics."""
        return [frontier for part in self._parts for frontier in part.frontiers(sketch)]

    def read(
        self, sketch: str | None = None, since: int | None = None, until: int | None = None
    ) -> Iterator[Frontier | SealedEntry | Deleted]:
        """Frontiers and bodies; those of a window come together, after all that comes before it in each topic."""
        readers = [part.read(sketch, since, until) for part in self._parts]
        waiting: list[tuple[tuple[int, int], int, int, SealedEntry]] = []
        n, behind = 0, list(range(len(readers)))
        while True:
            for t in behind:
                for published in readers[t]:
                    if isinstance(published, SealedEntry):
                        heapq.heappush(waiting, (published.window, t, n, published))
                        n += 1
                        break
                    yield published
            if not waiting:
                return
            _, t, _, entry = heapq.heappop(waiting)
            yield entry
            behind = [t]

    def closed(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """Instalments of closed positions."""
        by_topic = (part.closed(sketch, since, until) for part in self._parts)
        return heapq.merge(*by_topic, key=lambda entry: (entry.window, entry.partition, entry.positions))

    def early(self, sketch: str, since: int | None = None, until: int | None = None) -> Iterator[SealedEntry]:
        """Releases from windows that were still open."""
        by_topic = (part.early(sketch, since, until) for part in self._parts)
        return heapq.merge(*by_topic, key=lambda entry: (entry.window, entry.early))

    def sketches(self) -> Sequence[str]:
        """Names of all sketches that have published anything."""
        return sorted({name for part in self._parts for name in part.sketches()})


class Feeds(_Several[Feed]):
    """A `Feed` over the sealed topic of each topic."""

    @property
    def identity(self) -> str:
        """All of them, in order."""
        return " and ".join(part.identity for part in self._parts)

    def newest(self) -> Sequence[Frontier]:
        """The newest frontiers of all topics."""
        return [frontier for part in self._parts for frontier in part.newest()]

    def read(self, positions: Mapping[str, str]) -> Iterator[FeedBatch]:
        """Batches of one topic after the other."""
        for t, part in enumerate(self._parts):
            part_positions = {name.partition("/")[2]: at for name, at in positions.items() if name.startswith(f"{t}/")}
            for batch in part.read(part_positions):
                last = t == len(self._parts) - 1
                behind = batch.behind if last else max(batch.behind, 1)
                yield replace(
                    batch, positions={f"{t}/{name}": at for name, at in batch.positions.items()}, behind=behind
                )
