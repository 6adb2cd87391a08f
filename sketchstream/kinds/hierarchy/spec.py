"""The specification of a sketch of kind `hierarchy`: tree, privacy and multipliers, validated once and frozen.

In: parameters from a user. Out: a frozen `HierarchySpec`. Touches: nothing.
Source: docs/theory/hierarchy.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.errors import SpecError
from sketchstream.kinds.hierarchy.fit import fit_unbiased
from sketchstream.kinds.hierarchy.tree import Tree
from sketchstream.kinds.linear.spec import CAPACITY, WholeWeightsSpec, calibrate_shift
from sketchstream.privacy.losses.gaussian import UnitShift
from sketchstream.spec import ClosedDomain, Rational, Unit, checked_int, flag

MAX_TIMES: Final = 1000
"""Largest multiplier of a level."""


@dataclass(frozen=True, eq=False)
class HierarchySpec(WholeWeightsSpec):
    """Counts of all nodes of a declared tree, which add up on all levels.

    Items of `Sketch.update` are leaves: texts of the names on the way to one, with tabs between them, or whole numbers,
    which are positions among the sorted paths, whatever order they were declared in.

    Args:
        levels: names of the levels below the root, such as ("country", "region", "city"); or a `Tree` with its paths.
        paths: names on the way from the top to each leaf, ("DE", "Bayern", "Fürth"), or one text with tabs.
        epsilon: privacy of a layer; exact rational (str, int, Fraction, Decimal, or float by its shortest repr).
        delta: exact rational from 1e-300 to 0.5.
        unit: unit of privacy: one "event", or all events of one "item" in this sketch.
        max_weight: largest absolute weight of one event.
        max_total: unit "item": a promise of the source that the absolute weights of one item's events in one sketch,
            over all parts and partitions, add up to at most this.
        signed: whether a true count may be below 0; if not, estimates are not negative either.
        multipliers: how finely the root and each level are counted: noise falls as one over it, and what a unit
            costs rises with the sum of the squares. 0: the level has no noise of its own, its counts are sums of those
            below. Default: 1 for each, within 2% of the smallest mean error of a level (docs/theory/hierarchy.md, 3).
        capacity: largest sum of absolute weights that the counters must hold.
        epsilon_publish: epsilon of the fresh noise at seal; default epsilon.
        delta_publish: delta of the fresh noise at seal; default delta.
        intrusion: True: `seal` adds fresh noise, and the guarantee holds with one copy of the open state. False: it
            publishes the bare state, and the guarantee is void for events after any copy.
        counted_share: unit "event": share of every cost that a counter of the events counted gets; 0: none is kept.
        epsilon_records: unit "event": epsilon of the number of records admitted, outside the ledger; 0: none is kept.

    Raises:
        SpecError: a parameter is outside its range, or parameters contradict each other.

    Examples:
        >>> spec = HierarchySpec(["state", "city"], [("NY", "NYC"), ("NY", "Albany"), ("NJ", "Newark")], "1", "1e-6")
        >>> spec.tree.nodes, spec.multipliers
        (6, (1, 1, 1))
    """

    tree: Tree
    max_weight: int
    max_total: int | None
    signed: bool
    multipliers: tuple[int, ...]
    capacity: int
    counted_share: Fraction

    kind = "hierarchy"

    def __init__(
        self,
        levels: Sequence[str] | Tree,
        paths: Sequence[Sequence[str] | str],
        epsilon: Rational,
        delta: Rational,
        unit: Unit = "event",
        *,
        max_weight: int = 1,
        max_total: int | None = None,
        signed: object = False,
        multipliers: Sequence[int] | None = None,
        capacity: int = CAPACITY,
        epsilon_publish: Rational | None = None,
        delta_publish: Rational | None = None,
        intrusion: bool = True,
        counted_share: Rational = 0,
        epsilon_records: Rational = 0,
    ) -> None:
        self._put(tree=levels if isinstance(levels, Tree) else Tree.of(levels, paths))
        self._put_privacy(epsilon, delta, epsilon_publish, delta_publish, intrusion)
        self._put_weights(unit, max_weight, max_total)
        self._put(signed=flag(signed, "signed"))
        self._put(multipliers=self._multipliers(multipliers), capacity=checked_int(capacity, "capacity", 1, 1 << 62))
        self._put_counters(counted_share, epsilon_records)
        self._require_room()
        self._warn_of_privacy()

    def _multipliers(self, multipliers: object) -> tuple[int, ...]:
        """The multipliers, checked; equal ones if none are given."""
        if multipliers is None:
            return (1,) * len(self.tree.sizes)
        listed = list(multipliers) if isinstance(multipliers, (list, tuple)) else []
        if len(listed) != len(self.tree.sizes):
            raise SpecError(
                f"multipliers must be {len(self.tree.sizes)} whole numbers, the root's first, found {multipliers!r:.80}"
            )
        *above, last = listed
        return (
            *(checked_int(multiplier, "multipliers", 0, MAX_TIMES) for multiplier in above),
            checked_int(last, "multipliers", 1, MAX_TIMES),
        )

    def _require_room(self) -> None:
        """Refuse a capacity that the counters cannot hold: no update looks at them."""
        deviation = math.isqrt(math.ceil(max(self.sigma2(self.epsilon, self.delta), self._fresh))) + 1
        most = ((1 << 63) - 128 * deviation) // max(self.multipliers)
        if self.capacity > most:
            raise SpecError(f"capacity must be at most {max(most, 0)} for these multipliers, found {self.capacity}")

    @property
    def _fresh(self) -> Fraction:
        return self.sigma2(self.epsilon_publish, self.delta_publish)

    @property
    def slots(self) -> int:
        """Counters of a sketch: one for each node."""
        return self.tree.nodes

    @property
    def sensitivity2(self) -> int:
        """Squared L2 sensitivity of the state: all of the unit's weight in one leaf, on all levels."""
        return self.weight**2 * sum(multiplier * multiplier for multiplier in self.multipliers)

    @property
    def coordinates(self) -> int:
        """Most counters that one unit moves; before and after a look count separately."""
        counted = sum(map(bool, self.multipliers))
        if self.max_total is None:
            return counted
        return min(self.max_total * counted, 2 * self.tree.nodes)

    @cached_property
    def shift(self) -> UnitShift:
        """Shift of the nodes' counters and of the events counted by one unit."""
        return self.shift_of(self.sensitivity2, self.coordinates)

    def sigma2(self, epsilon: Fraction, delta: Fraction) -> Fraction:
        """Parameter of a layer of this privacy: the variance of the noise in each counter."""
        return calibrate_shift(epsilon, delta, self.shift).sigma2

    @property
    def domain(self) -> ClosedDomain:
        """The leaves, by their numbers."""
        return ClosedDomain(size=self.tree.leaves)

    @cached_property
    def precisions(self) -> tuple[float, ...]:
        """One over the variance of a node's count by its counter, by level, for noise of variance 1."""
        return tuple(float(multiplier * multiplier) for multiplier in self.multipliers)

    @cached_property
    def variances(self) -> Floats:
        """(nodes,) variance of each node's estimate, for noise of variance 1 in each counter."""
        return fit_unbiased(self.tree, np.zeros(self.tree.nodes), self.precisions)[1]

    @cached_property
    def scale(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """(nodes,) multiplier of each node's counter."""
        return np.array(self.multipliers, np.int64)[self.tree.depths]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, canonical: it contains the tree and its names, so that any reader can answer."""
        out = self._plain("kind", "epsilon", "delta", "unit", "max_weight", "signed", "capacity", "intrusion")
        out |= self._plain("epsilon_publish", "delta_publish")
        out |= self._given("counted_share", "epsilon_records", "max_total")
        return out | self._plain("multipliers", "tree")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HierarchySpec:
        """See `LinearSpec`."""
        fields = cls._read_fields(data)
        return cls._from_fields(levels=Tree.from_dict(fields.pop("tree", None)), paths=(), **fields)
