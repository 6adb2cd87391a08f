"""The outbox: sealed entries that are not yet published, and the frontiers that cover them.

In: sealed entries and frontiers. Out: those that a committed snapshot holds, for publication. Touches: nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sketchstream.instalment import Instalment
from sketchstream.published import Release, SealedState
from sketchstream.stream.interfaces import Frontier, SealedEntry


def new_name() -> str:
    """A name that no blob has had before."""
    return secrets.token_hex(16)


@dataclass
class Outgoing:
    """A sealed entry that waits for its publication.

    Args:
        entry: what is published.
        blob: name of its bytes in snapshots.
        saved: whether a snapshot holds it.
    """

    entry: SealedEntry
    blob: str
    saved: bool = False


def entry_of(
    published: Release | SealedState | Instalment,
    *,
    positions: tuple[int, int] | None = None,
    early: int | None = None,
) -> SealedEntry:
    """What is published of a window that a worker has opened.

    Args:
        published: a sealed sketch, a release from an open one, or closed positions.
        positions: see `SealedEntry`.
        early: see `SealedEntry`.
    """
    origin = published.origin
    assert origin.window is not None
    assert origin.partition is not None
    place = (origin.name, origin.revision, origin.window, origin.partition)
    return SealedEntry(*place, published.seal_id, published.to_bytes(), positions, early)


class Publications(NamedTuple):
    """Sealed entries, and the frontiers that cover them."""

    entries: tuple[SealedEntry, ...]
    frontiers: tuple[Frontier, ...]


class Outbox:
    """The sealed entries and frontiers of one partition that are to be published."""

    def __init__(self) -> None:
        self.entries: list[Outgoing] = []
        self.frontiers: dict[str, Frontier] = {}
        self.pending: dict[str, Frontier] = {}

    @property
    def n_bytes(self) -> int:
        """Size of all entries."""
        return sum(len(entry.entry.body) for entry in self.entries)

    @property
    def unsaved_bytes(self) -> int:
        """Size of the entries that no snapshot holds."""
        return sum(len(entry.entry.body) for entry in self.entries if not entry.saved)

    @property
    def empty(self) -> bool:
        """Whether nothing waits for publication."""
        return not (self.entries or self.pending or self.frontiers)

    def put(self, entry: SealedEntry) -> None:
        """Add a sealed entry."""
        self.entries.append(Outgoing(entry, new_name()))

    def announce(self, frontier: Frontier) -> None:
        """Add a frontier; it replaces an earlier one of its sketch that is in no snapshot."""
        self.pending[frontier.sketch] = frontier

    def capture(self) -> None:
        """Move the announced frontiers into a snapshot: they may be published once it is committed."""
        self.frontiers.update(self.pending)
        self.pending.clear()

    def captured(self) -> Publications:
        """What the last snapshot holds."""
        return Publications(tuple(entry.entry for entry in self.entries if entry.saved), tuple(self.frontiers.values()))

    def published(self, entries: Iterable[SealedEntry], frontiers: Iterable[Frontier]) -> bool:
        """Remove what has been published; return whether anything was."""
        gone = {entry.seal_id for entry in entries}
        self.entries = [entry for entry in self.entries if entry.entry.seal_id not in gone]
        changed = bool(gone)
        for frontier in frontiers:
            if self.frontiers.get(frontier.sketch) == frontier:
                del self.frontiers[frontier.sketch]
                changed = True
        return changed

    def store_all(self) -> None:
        """Forget that snapshots hold entries: the next one contains all of them."""
        for outgoing in self.entries:
            outgoing.saved = False
