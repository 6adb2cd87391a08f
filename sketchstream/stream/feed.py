"""The feed of the service: batches of published sketches and frontiers.

In: nothing. Out: the protocol, and the plain data that it exchanges. Touches: nothing. The feeds of a topic and of a
folder are in the connectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sketchstream.stream.interfaces import Deleted, Frontier, SealedEntry


@dataclass(frozen=True)
class Unreadable:
    """A publication that cannot be read, so that nothing of its window may be shown.

    Args:
        sketch: name of the sketch.
        start: start of the window, ms since 1970.
        text: description of the problem.
    """

    sketch: str
    start: int
    text: str


@dataclass(frozen=True)
class FeedBatch:
    """What a feed brings at once. It is stored whole, or not at all.

    Args:
        entries: sealed sketches.
        frontiers: each covers only entries of this batch and of earlier ones.
        deleted: what may have been deleted before it could be read.
        unreadable: publications that cannot be read.
        problems: what could not be read this time, in words; it is tried again.
        positions: positions at which the feed continues after this batch, by its own names.
        behind: records, or files, that are known to be still unread after this batch.
    """

    entries: Sequence[SealedEntry] = field(default=(), repr=False)
    frontiers: Sequence[Frontier] = field(default=(), repr=False)
    deleted: Sequence[Deleted] = ()
    unreadable: Sequence[Unreadable] = ()
    problems: Sequence[str] = ()
    positions: Mapping[str, str] = field(default_factory=dict, repr=False)
    behind: int = 0


class Feed(Protocol):
    """Where published sketches come from. Only one thread at a time may use it.

    1. `read` returns everything that was published after `positions`, and may repeat earlier publications.
    2. What it brings last covers everything that was there when it was called: `behind` is 0.
    3. A frontier comes in the batch of the last entry that it covers, or in a later one. One that covers an entry that
       could not be read does not come: the entry's window stays incomplete until it can be.
    4. What cannot be read stops nothing else.
    """

    @property
    def identity(self) -> str:
        """Identifies the topic or the folder: a store of one is not valid for another."""

    def read(self, positions: Mapping[str, str]) -> Iterator[FeedBatch]:
        """Read new publications.

        Args:
            positions: positions of the earlier batches that are stored.

        Raises:
            BrokerError, StoreError: nothing can be read now; the caller tries again later.
            ConfigError: the configuration does not allow it, now or later.
        """

    def newest(self) -> Sequence[Frontier]:
        """The newest frontiers, without reading everything before them, for the remaining distance.

        Raises:
            BrokerError, StoreError: nothing can be read now.
        """

    def close(self) -> None:
        """Let go."""
