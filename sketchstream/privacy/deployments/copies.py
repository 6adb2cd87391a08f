"""The loss to publications that descend from one state because its file was copied and each copy was sealed.

In: published histories, with the name of each publication. Out: chains (one for each copy), and a bound for all
chains with the same noise. Touches: nothing.
Source: docs/theory/privacy.md section 5 (copies).

The publications of one sketch form a chain: each continues the ledger of the one before. Two publications at the
same place of a ledger, or with ledgers that diverge, come from two copies. That is an incident, but the loss may still
have a bound: noise that each copy drew for itself hides what that copy counted.

A sketch that publishes positions when they close publishes each position once, and again with its seal, in the same
words: all of that is one view. Two instalments of one position, or an instalment and a seal that differ in a word,
come from two copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sketchstream.privacy.losses.history import GapPath, History, LayerEntry, Loss

UNKNOWN = b""
"""The name of a publication that has none, for example of a part of a merge."""


@dataclass(frozen=True)
class CopiedPositions:
    """Words of a state that were published when their positions closed, or with the seal.

    Args:
        first: first position.
        stop: position after the last.
        words: gives the words of a range of these positions, as bytes.
        sealed: whether the seal published them.
    """

    first: int
    stop: int
    words: Callable[[int, int], bytes] = field(repr=False)
    sealed: bool = False

    def of_one_state(self, other: CopiedPositions) -> bool:
        """Whether one sketch can have published both."""
        if self.stop <= other.first or other.stop <= self.first:
            return True
        if not self.sealed and not other.sealed:
            return False
        early = other if self.sealed else self
        return self.words(early.first, early.stop) == other.words(early.first, early.stop)


@dataclass
class Chain:
    """The publications of one state.

    Args:
        history: history of the last copy.
        taken: names of publications, by their place in the history.
        members: indices of its publications.
        closed: what was published of positions, with its name and the noise layers in it.
    """

    history: History
    taken: dict[GapPath, bytes] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)
    closed: list[tuple[bytes, frozenset[bytes], CopiedPositions]] = field(default_factory=list)

    def takes(self, history: History, name: bytes, number: int, positions: CopiedPositions | None = None) -> bool:
        """Add a publication if this state can have made it; False if another copy must have.

        Args:
            history: history of the publication.
            name: name of the publication.
            number: index of the publication.
            positions: positions that the publication shows, of a sketch that publishes them when they close.
        """
        place = _place(self.history, history)
        if positions is not None and place is not None:
            layers = frozenset(layer.lineage for layer in history.layers())
            for closed_name, noise, other in self.closed:
                # words under other noise cannot be compared: a layer was added, and a look recorded, between the two
                if closed_name != name and noise == layers and not positions.of_one_state(other):
                    return False
            if not positions.sealed:
                self.closed.append((name, layers, positions))
                self.members.append(number)
                return True
        if place is None or self.taken.get(place, name) not in (name, UNKNOWN):
            return name == UNKNOWN and place is not None
        self.taken[place] = name
        self.members.append(number)
        return True


def before_seal(history: History) -> History:
    """The open state's history when an instalment was published: its ledger says what the seal will publish."""
    before = len(history.entries) - (history.seal or 0)
    return replace(history, entries=history.entries[:before], seal=None)


def families(
    published: Sequence[tuple[History, bytes]], positions: Sequence[CopiedPositions | None] = ()
) -> list[list[Chain]]:
    """Group publications by the state that made them, and states by common noise.

    Args:
        published: history without copies, and the name (seal id) of each publication, in any order.
        positions: what each of them shows of a sketch that publishes positions when they close; default: none does.

    Returns:
        Lists of chains; a list has one chain if all its publications can come from one state.
    """
    relatives: dict[bytes, list[int]] = {}
    for number, (history, _) in enumerate(published):
        shared = {layer.lineage for layer in history.layers()}
        lists = {id(found): found for lineage in shared if (found := relatives.get(lineage)) is not None}
        joined = [member for found in lists.values() for member in found] + [number]
        for member in joined if len(lists) > 1 else ():
            shared |= {layer.lineage for layer in published[member][0].layers()}
        if len(lists) == 1:
            joined = next(iter(lists.values()))
            joined.append(number)
        relatives |= dict.fromkeys(shared, joined)
    groups = {id(found): found for found in relatives.values()}
    shown = positions or [None] * len(published)
    return [_chains(published, shown, sorted(group)) for group in groups.values()]


def _chains(
    published: Sequence[tuple[History, bytes]], shown: Sequence[CopiedPositions | None], numbers: Sequence[int]
) -> list[Chain]:
    """The smallest number of chains that explains these publications, the longest first."""
    chains: list[Chain] = []
    early = {number for number in numbers if (copy := shown[number]) is not None and not copy.sealed}
    histories = {n: before_seal(published[n][0]) if n in early else published[n][0] for n in numbers}
    for number in sorted(numbers, key=lambda number: _size(histories[number]), reverse=True):
        history, name, positions = histories[number], published[number][1], shown[number]
        if any(chain.takes(history, name, number, positions) for chain in chains):
            continue
        layers = frozenset(layer.lineage for layer in history.layers())
        closed = [] if positions is None else [(name, layers, positions)]
        taken: dict[GapPath, bytes] = {} if number in early else {((), len(history.entries)): name}
        chains.append(Chain(history, taken, [number], closed))
    return chains


def copied_loss(histories: Sequence[History]) -> Loss:
    """Largest loss of an event, or of an item, to all publications of copies of one state.

    Every release and every publication with noise of its own is charged. One bare view is hidden by the cheapest layer
    that it sees, and costs as much as that layer; with a second bare view there is no bound. A release in the ledgers
    of two copies is counted for each of them, as it may have been drawn twice.

    Args:
        histories: histories of each copy, publications that are promised included.
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


def _place(longer: History, shorter: History, path: tuple[int, ...] = ()) -> GapPath | None:
    """The place where another history ends that this one begins with; also inside a part that was merged later."""
    n = len(shorter.entries)
    whole = shorter.seal is None or (shorter.seal == longer.seal and n == len(longer.entries))
    if whole and longer.parts == shorter.parts and longer.entries[:n] == shorter.entries:
        return path, n
    for index, part in enumerate(longer.parts):
        inner = _place(part, shorter, (*path, index))
        if inner is not None:
            return inner
    return None


def _size(history: History) -> int:
    """Number of entries of a history and of all its parts."""
    return len(history.entries) + sum(1 + _size(part) for part in history.parts)
