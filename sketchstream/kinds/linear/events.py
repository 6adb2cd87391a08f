"""Events of linear kinds: places of items and weights in lattice units, each judged from that event alone.

In: items and weights as `Sketch.update` received them, a state. Out: places; int64 lattice units, and which are of
events; the state, to which the columns of places are added. Touches: the states it is given.
Source: docs/theory/gaussian.md, section 5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream.array_types import Flags, Ints
from sketchstream.errors import SpecError
from sketchstream.items.arrays import Items, as_weights, require_no_mask
from sketchstream.items.batch import refuse_first
from sketchstream.items.domains import NO_COUNTERS
from sketchstream.items.lattice import MAX_FRACTION_BITS, Lattice, Units, exact_number
from sketchstream.kernels import kernel

if TYPE_CHECKING:
    from sketchstream.items.batch import Invalid, Outside

ONES: Final = np.zeros(0, np.int64)
"""No weights, for compiled loops: every event weighs 1."""
WHOLE: Final = "; weights with fractions need a spec with fraction_bits above 0"


def place_indices(items: Items, places: int, find: Callable[[str], int] | None) -> Ints:
    """(n,) place of each item; -1: it has none. Integers are places themselves; of equal texts one is looked up.

    Args:
        places: how many there are.
        find: the place of a text, or -1; None: no text has one.
    """
    out = np.full(len(items), -1, np.int64)
    find_once = None if find is None else lru_cache(maxsize=None)(find)
    for position, piece in items.pieces():
        if items.type_name == "int":
            (values,) = piece.arrays
            outside = (values < 0) | (values >= places)
            out[position : position + len(piece)] = np.where(outside, -1, values)
        elif find_once is not None and items.type_name == "str":
            buffer, starts, ends = piece.arrays
            for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True), position):
                out[at] = find_once(buffer[start:end].tobytes().decode(errors="replace"))
    return out


def in_units(lattice: Lattice, weights: object, n: int) -> tuple[Ints, Flags]:
    """(n,) int64 weights in lattice units, 0 for what cannot be the weight of an event; (n,) which of them can.

    Where the lattice has no fraction bits, a weight with a fraction is invalid: cutting it would count something else.

    Args:
        weights: integers, floats, Decimals, Fractions, texts of JSON numbers, `Units`, or None for ones.

    Raises:
        WeightError: not one weight for each event.
    """
    if weights is None:
        unit = 1 << lattice.bits
        return np.full(n, unit, np.int64), np.full(n, unit <= lattice.most)
    if getattr(weights, "ndim", 1) != 1 or not hasattr(weights, "__len__") or len(weights) != n:
        as_weights(weights, n, alone=True)  # refuses them
    require_no_mask(weights)
    values: Any = weights
    values = values.to_pylist() if hasattr(values, "to_pylist") else values
    units, good = lattice.weights(values)
    whole = isinstance(values, Units) or (isinstance(values, np.ndarray) and values.dtype.kind in "iu")
    return units, good if lattice.bits or whole else good & _is_whole(values)


def valid_events(
    outside: Flags,
    good: Flags | None,
    invalid: Invalid,
    limit: object = 0,
    *,
    bound: str = "max_weight",
    hint: str = "",
) -> Flags:
    """(n,) which events count: those inside of the domain with a valid weight. Others may be refused.

    Args:
        outside: (n,) bool, events outside of the domain.
        good: (n,) bool, events with a valid weight; None: all.
        invalid: "error" refuses what does not count, "skip" only weights, "noop" nothing.

    Raises:
        DomainError, WeightError: there is such an event; the first is named by its position.
    """
    valid = ~outside if good is None else good & ~outside
    if invalid != "noop" and not valid.all():
        heavy = np.zeros_like(outside) if good is None else ~good
        refuse_first(outside & (invalid == "error"), heavy, limit, bound=bound, hint=hint)
    return valid


def hint_of(lattice: Lattice) -> str:
    """Words of errors about weights: what fractions need, where the lattice has none."""
    return "" if lattice.bits else WHOLE


@kernel
def add_up(sums: Any, places: Any, weights: Any) -> None:
    """Add each weight to the sum of its place; a place outside does nothing, and no weights are ones."""
    size = np.uint64(len(sums))
    many = len(weights) > 0
    for i in range(len(places)):
        place = np.uint64(places[i])
        if place < size:
            sums[place] += weights[i] if many else np.int64(1)


def _is_whole(weights: Any) -> Flags:
    """(n,) which weights are whole numbers."""
    if isinstance(weights, np.ndarray) and weights.dtype.kind == "f":
        return np.asarray(weights == np.trunc(weights))
    numbers = (exact_number(weight, MAX_FRACTION_BITS + 1) for weight in weights)
    return np.fromiter((number is not None and number.denominator == 1 for number in numbers), np.bool_, len(weights))


@dataclass(frozen=True, eq=False)
class ColumnIndex(ABC):
    """Finds the place of each item, such as a cell or a leaf, and adds the columns of places."""

    spec: Any
    """Spec of the sketch, which each kind narrows to its own."""

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
    def lattice(self) -> Lattice:
        """The whole numbers up to the largest weight of an event."""
        return Lattice(0, Fraction(self.spec.max_weight))

    def require_state(self, state: Ints) -> None:
        """Refuse what is not a state of the spec, as compiled loops do not check bounds."""
        if state.shape != (self.slots,) or state.dtype != np.int64 or not state.flags.c_contiguous:
            raise SpecError(f"the state must be a contiguous int64 array of {self.slots}, found shape {state.shape}")

    def apply(
        self,
        state: Ints,
        items: object,
        weights: object = None,
        *,
        invalid: Invalid = "error",
        counters: Ints = NO_COUNTERS,
    ) -> None:
        """See `ItemIndex`."""
        self.require_state(state)
        items = Items.of(items)
        places, lattice = self.locate(items), self.lattice
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
