"""The loss to publications that descend from one state because its file was copied and each copy was sealed.

In: published histories, with the name of each publication. Out: chains (one for each copy), and a bound for all
chains with the same noise. Touches: nothing.
Source: docs/theory/privacy.md section 5 (copies).

The publications of one sketch form a chain: each continues the ledger of the one before. Two publications at the
same place of a ledger, or with ledgers that diverge, come from two copies. That is an incident, but the loss may still
have a bound: noise that each copy drew for itself hides what that copy counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from sketchstream.privacy.history import History, LayerEntry, Loss

Place = tuple[tuple[int, ...], int]
"""Merged part (path of indices) and number of entries."""
UNKNOWN = b""
"""The name of a publication that has none, for example of a part of a merge."""


@dataclass
class Chain:
    """The publications of one state.

    Args:
        history: of the last one.
        taken: names of publications, by their place in the history.
        members: indices of its publications.
    """

    history: History
    taken: dict[Place, bytes] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)

    def takes(self, history: History, name: bytes, number: int) -> bool:
        """Add a publication if this state can have made it; False if another copy must have."""
        place = _place(self.history, history)
        if place is None or self.taken.get(place, name) not in (name, UNKNOWN):
            return name == UNKNOWN and place is not None
        self.taken[place] = name
        self.members.append(number)
        return True


def families(published: Sequence[tuple[History, bytes]]) -> list[list[Chain]]:
    """Group publications by the state that made them, and states by common noise.

    Args:
        published: history without copies, and the name (seal id) of each publication, in any order.

    Returns:
        Lists of chains; a list has one chain if all its publications can come from one state.
    """
    relatives: dict[bytes, list[int]] = {}
    for number, (history, _) in enumerate(published):
        shared = {layer.lineage for layer in history.layers()}
        lists = {id(found): found for lineage in shared if (found := relatives.get(lineage)) is not None}
        joined = [one for found in lists.values() for one in found] + [number]
        for one in joined if len(lists) > 1 else ():
            shared |= {layer.lineage for layer in published[one][0].layers()}
        if len(lists) == 1:
            joined = next(iter(lists.values()))
            joined.append(number)
        relatives |= dict.fromkeys(shared, joined)
    groups = {id(found): found for found in relatives.values()}
    return [_chains(published, sorted(group)) for group in groups.values()]


def _chains(published: Sequence[tuple[History, bytes]], numbers: Sequence[int]) -> list[Chain]:
    """The smallest number of chains that explains these publications, the longest first."""
    found: list[Chain] = []
    for number in sorted(numbers, key=lambda one: _size(published[one][0]), reverse=True):
        history, name = published[number]
        if not any(chain.takes(history, name, number) for chain in found):
            found.append(Chain(history, {((), len(history.entries)): name}, [number]))
    return found


def copied_loss(histories: Sequence[History]) -> Loss:
    """Largest loss of an event, or of an item, to all publications of copies of one state.

    Every release and every publication with noise of its own is charged. One bare view is hidden by the cheapest layer
    that it sees, and costs as much as that layer; with a second bare view there is no bound. A release in the ledgers
    of two copies is counted for each of them, as it may have been drawn twice.

    Args:
        histories: of each copy, publications that are promised included.
    """
    views = [view for history in histories for view in _views(history)]
    bare = [layer for cost, layer in views if cost is None]
    if len(bare) > 1:
        return math.inf
    return sum((cost for cost, _ in views if cost is not None), Fraction(0)) + sum(bare, Fraction(0))


def _views(history: History) -> Iterator[tuple[Fraction | None, Fraction]]:
    """Cost of every view (None if it is bare), and the lowest cost of the layers that it sees."""
    seen = [layer.cost for part in history.parts for layer in part.layers()]
    for part in history.parts:
        yield from _views(part)
    entries = history.entries
    if history.seal == 2 and isinstance(entries[-2], LayerEntry):  # the bare state under a fresh layer of its own
        yield entries[-2].cost, Fraction(0)
        entries = entries[:-2]
    for entry in entries:
        if isinstance(entry, LayerEntry):
            seen.append(entry.cost)
        else:
            yield entry.cost, min(seen, default=Fraction(0))


def _place(longer: History, shorter: History, path: tuple[int, ...] = ()) -> Place | None:
    """The place where another history ends that this one begins with; also inside a part that was merged later."""
    n = len(shorter.entries)
    whole = shorter.seal is None or (shorter.seal == longer.seal and n == len(longer.entries))
    if whole and longer.parts == shorter.parts and longer.entries[:n] == shorter.entries:
        return path, n
    for index, part in enumerate(longer.parts):
        found = _place(part, shorter, (*path, index))
        if found is not None:
            return found
    return None


def _size(history: History) -> int:
    """Number of entries of a history and of all its parts."""
    return len(history.entries) + sum(1 + _size(part) for part in history.parts)
