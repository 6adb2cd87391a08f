"""The loss of publications that descend from one state, because a file was copied, updated and sealed repeatedly.

In: published histories with what names each publication. Out: chains (one for each state that went on by itself),
and a bound for all chains of one noise. Touches: nothing.
Source: docs/theory/privacy.md section 5 (copies).

A sketch publishes along one chain: each of its publications continues the ledger of the one before. Two publications
that name the same place of one ledger, or ledgers that part ways, are those of two copies. That is an incident, but
not always without a bound: noise that was drawn by each copy for itself hides what each of them counted.
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
        taken: names of publications, by the place in the history at which they came.
        members: numbers of the publications in it.
    """

    history: History
    taken: dict[Place, bytes] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)

    def takes(self, history: History, name: bytes, number: int) -> bool:
        """Add a publication if it is one of this state's; False if another copy must have made it."""
        place = _place(self.history, history)
        if place is None or self.taken.get(place, name) not in (name, UNKNOWN):
            return name == UNKNOWN and place is not None
        self.taken[place] = name
        self.members.append(number)
        return True


def families(published: Sequence[tuple[History, bytes]]) -> list[list[Chain]]:
    """The states that made these publications, those with noise in common together.

    Args:
        published: history without copies, and the name (seal id) of each publication, in any order.

    Returns:
        Lists of chains: one chain where all publications can be those of one state.
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
    """As few chains as these publications need, the longest first."""
    found: list[Chain] = []
    for number in sorted(numbers, key=lambda one: _size(published[one][0]), reverse=True):
        history, name = published[number]
        if not any(chain.takes(history, name, number) for chain in found):
            found.append(Chain(history, {((), len(history.entries)): name}, [number]))
    return found


def copied_loss(histories: Sequence[History]) -> Loss:
    """Most that an event, or an item, loses to all publications of copies of one state.

    Every release and every publication under noise of its own is paid. One bare view is hidden by the cheapest layer
    that it sees, at the price of that layer; a second one leaves no bound. A release that two copies' ledgers hold is
    counted for each: nothing says that it was one.

    Args:
        histories: of each copy, publications that are promised included.
    """
    views = [view for history in histories for view in _views(history)]
    bare = [layer for cost, layer in views if cost is None]
    if len(bare) > 1:
        return math.inf
    return sum((cost for cost, _ in views if cost is not None), Fraction(0)) + sum(bare, Fraction(0))


def _views(history: History) -> Iterator[tuple[Fraction | None, Fraction]]:
    """Cost of every view, None for a bare one, and the least cost of the layers that it sees."""
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
    """Where in one history another one ends, if it begins like it; also inside a part that was merged later."""
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
    """Entries of a history and of all its parts."""
    return len(history.entries) + sum(1 + _size(part) for part in history.parts)
