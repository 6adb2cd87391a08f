"""Where events go that each move a column of counters: from a batch to the state, for kinds with whole weights.

In: items, weights, a state. Out: the state, changed in place. Touches: nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.items.arrays import Items
from sketchstream.items.lattice import Lattice
from sketchstream.kinds.linear.events import hint_of, in_units, valid_events

if TYPE_CHECKING:
    from sketchstream.items.batch import Invalid, Outside
    from sketchstream.kinds.linear.spec import PlaceCountingSpec


@dataclass(frozen=True, eq=False)
class ColumnIndex(ABC):
    """Finds the place of each item, such as a cell or a leaf, and adds the columns of places."""

    spec: PlaceCountingSpec

    @property
    def slots(self) -> int:
        """Counters of a sketch."""
        return int(self.spec.slots)

    @abstractmethod
    def locate(self, items: Items) -> Ints:
        """(n,) place of each item; -1: it has none."""

    @abstractmethod
    def add(self, state: Ints, places: Ints, weights: Ints | None) -> None:
        """Add the column of each place times its weight, wrapping; place -1 does nothing, no weights are ones."""

    @cached_property
    def _lattice(self) -> Lattice:
        return Lattice(0, Fraction(self.spec.max_weight))

    def apply(self, state: Ints, items: Items, weights: object, *, invalid: Invalid, counters: Ints) -> None:
        """See `ItemIndex`."""
        places = self.locate(items)
        lattice = self._lattice
        units, good = (None, None) if weights is None else in_units(lattice, weights, len(items))
        valid = valid_events(places < 0, good, invalid, lattice.max_weight, hint=hint_of(lattice))
        self.add(state, places if invalid != "noop" or units is None else np.where(valid, places, -1), units)
        if counters.size:
            counters[0] += np.count_nonzero(valid)

    def apply_sums(
        self, state: Ints, items: Items, sums: Ints, events: Ints, *, invalid: Outside, counters: Ints
    ) -> None:
        """See `ItemIndex`."""
        places = self.locate(items)
        valid = valid_events(places < 0, None, invalid)
        self.add(state, places, sums)
        if counters.size:
            counters[0] += events[valid].sum()
