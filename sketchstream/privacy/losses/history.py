"""The history of a sketch: noise layers and views, in order of application.

In: nothing. Out: the types of a history. Touches: nothing.
Source: docs/theory/privacy.md section 3.

A *layer* is one independent noise vector that is added to the state. A *view* is something that somebody sees: a raw
view (cost None) shows the state as it is, any other view adds fresh noise of its cost. The measure of the ledger
(`privacy.losses.measures`) defines costs and how they add.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

ViewKind = Literal["release", "publication", "look", "copy"]
Loss = Fraction | float
"""An exact rational, or `math.inf`; no other float ever."""


@dataclass(frozen=True)
class LayerEntry:
    """One noise vector added to the state.

    Args:
        lineage: 16 random bytes that name this draw.
        law: law of each coordinate.
        cost: cost of hiding an event of weight `max_weight`, or an item, behind this layer alone: in the ledger's
            measure (`privacy.losses.measures`), epsilon, or mu^2 of Gaussian noise. Not divided by the weight.
        max_weight: largest absolute weight of one event; 1 where the cost is that of the whole unit.
    """

    lineage: bytes
    law: str
    cost: Fraction
    max_weight: int = 1


@dataclass(frozen=True)
class View:
    """Something that somebody saw, or may see.

    Args:
        kind: "release", "publication", "look" (somebody saw the open state) or "copy" (a secret file of ours).
        cost: cost of its fresh noise, in the ledger's measure; None: the raw state.
    """

    kind: ViewKind
    cost: Fraction | None


Entry = LayerEntry | View
GapPath = tuple[tuple[int, ...], int]
"""A merged part of a history (path of indices, () for the sketch itself) and a number of entries of that part."""


@dataclass(frozen=True)
class History:
    """Layers and views in order of application.

    Args:
        entries: entries of this sketch.
        parts: histories that were merged into it before the first entry.
        seal: None while the state is open; afterwards the number of last entries that belong to the seal. Nothing
            was applied between these, and no state exists after them.
    """

    entries: tuple[Entry, ...] = ()
    parts: tuple[History, ...] = ()
    seal: int | None = None

    def then(self, *entries: Entry) -> History:
        """This history with more entries at its end."""
        return replace(self, entries=self.entries + entries)

    def sealed_by(self, *entries: Entry) -> History:
        """This history, ended by the entries of its seal."""
        return replace(self, entries=self.entries + entries, seal=len(entries))

    @property
    def moments(self) -> range:
        """Numbers of entries after which an open state existed, and events may have been applied."""
        last = len(self.entries) - (self.seal or 0)
        if self.parts:
            first = 0 if any(part.seal is None for part in self.parts) else last + 1
        else:
            first = next((at + 1 for at, entry in enumerate(self.entries) if isinstance(entry, LayerEntry)), last + 1)
        return range(first, last + 1)

    @property
    def length(self) -> int:
        """Number of entries, those of merged parts included."""
        return sum(1 for _ in self.every())

    def every(self) -> Iterator[Entry]:
        """Every entry, those of merged parts first."""
        for part in self.parts:
            yield from part.every()
        yield from self.entries

    def layers(self) -> Iterator[LayerEntry]:
        """Every layer, those of merged parts first."""
        return (entry for entry in self.every() if isinstance(entry, LayerEntry))

    def unnamed(self) -> History:
        """This history without the names of its draws, on which no loss depends: sketches of one spec have the same."""
        entries = tuple(
            replace(entry, lineage=b"") if isinstance(entry, LayerEntry) else entry for entry in self.entries
        )
        return replace(self, entries=entries, parts=tuple(part.unnamed() for part in self.parts))

    def without_copies(self) -> History:
        """This history without the copies that nobody is known to have read."""
        entries = tuple(entry for entry in self.entries if not (isinstance(entry, View) and entry.kind == "copy"))
        return replace(self, entries=entries, parts=tuple(part.without_copies() for part in self.parts))


@dataclass(frozen=True)
class Gap:
    """A place where an event may have been applied, and its loss.

    Args:
        part: path of indices to the merged part, () for the sketch itself.
        after: number of entries of that part that came before the event.
        loss: loss of an event of full weight (or of an item that is active in this gap only), in the ledger's measure.
    """

    part: tuple[int, ...]
    after: int
    loss: Loss


LOOK = View("look", None)
COPY = View("copy", None)
