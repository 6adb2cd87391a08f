"""What a kind takes of records: the fields that it needs, the weights that it allows, the events that they become.

In: specs, and what a chunk's records hold. Out: `Events` as `Sketch.update` takes them. Touches: nothing. Law 5 of
`sketchstream.kinds.interface`: each event is judged from itself alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from sketchstream.items.events import Events
    from sketchstream.items.lattice import Lattice

S = TypeVar("S")


class Intake(Generic[S]):
    """How records become one kind's events; by default their items and weights, as they came. Stateless."""

    carries: ClassVar[tuple[str, ...]] = ("item", "weight")
    """What a record may carry for this kind: "item"; "row", of kinds whose events are pairs; "weight"."""

    def roles(self, spec: S) -> tuple[str, ...]:
        """Fields of a record that its events need besides item, weight and time: keys of `Events.columns`."""
        return tuple(role for role in self.carries if role not in ("item", "weight"))

    def stretch_ms(self, spec: S) -> int | None:
        """Length in ms of one position: a window is divided into positions, the first of which begins with it.

        None: events have no position in time. Otherwise `events` is called once for each window of a chunk.
        """
        return None

    def lattice(self, spec: S) -> Lattice | None:
        """The lattice on which the weights of events lie; None where they are whole numbers."""
        return getattr(spec, "lattice", None)

    def sums_refused(self, spec: S) -> str | None:
        """Why sums over events do not say what a sketch of this spec counts (law 11); None: they do."""
        return getattr(spec, "sums_refused", None)

    def decimal_weights(self, spec: S) -> bool:
        """Whether weights may have fractions: specs whose lattice is finer than the whole numbers."""
        lattice = self.lattice(spec)
        return lattice is not None and lattice.bits > 0

    def most_weight(self, spec: S) -> int | None:
        """Largest absolute whole weight of an event; None where any weight will do."""
        return math.floor(getattr(spec, "max_weight", 1))

    def events(self, spec: S, given: Events) -> Events:
        """What `update` gets of a chunk of records, each judged from itself alone (law 5): items, weights, `good`.

        By default these are items and weights as they came. Where weights may be decimal, they are exact multiples of
        2^-f for a spec with a `lattice`, and whole numbers for others.

        Args:
            spec: spec of the sketch.
            given: what the records hold.
        """
        column, lattice = given.weight_column, self.lattice(spec)
        if column is None:
            return given
        if lattice is None or not self.decimal_weights(spec):
            return replace(given, good=column.absent | column.integers()[1])
        from sketchstream.items.lattice import Units

        units, good = column.decimals(lattice.bits, lattice.max_weight)
        absent, single = column.absent, lattice.weight(1)
        units[absent] = single or 0
        return replace(given, weights=Units(units, lattice.bits), good=good | (absent & (single is not None)))
