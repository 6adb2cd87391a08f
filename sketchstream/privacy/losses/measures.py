"""Measures of privacy loss: what a layer or a view costs, and how costs add along a history.

In: layers and views. Out: costs. Touches: nothing.
Source: docs/theory/privacy.md section 3 (pure, zCDP); docs/theory/gaussian_ledger.md (mu^2);
docs/theory/convolution.md section 11 (l2 norms of epsilons).

The ledger's algorithm (`privacy.losses.looks`) is the same for every measure. A shift that stays visible at one more
view costs more (in series). One more layer can only make hiding it cheaper (in parallel): it replaces what came before
where shifts are integers of pure cost, and takes its share of the shift where the noise is Gaussian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from sketchstream.privacy.losses.history import LayerEntry, Loss, View

Cost = TypeVar("Cost")


class Measure(Protocol[Cost]):
    """How costs of one kind add.

    Laws:
        1. `join` is associative and commutative, with `unbounded` as its neutral element.
        2. `join(one, other)` is neither above `one` nor above `other`; with `nothing` it is `nothing`.
        3. `view` never lowers a cost, and of a raw view it is `unbounded`.
        4. Both grow with each of their arguments.
    """

    @property
    def nothing(self) -> Cost:
        """The cost of a shift that no view sees."""

    @property
    def unbounded(self) -> Cost:
        """The cost of a shift that nothing hides."""

    @property
    def bounded_items(self) -> bool:
        """Whether costs of an item's shifts are those of a norm that its source bounds.

        An item that is active in several gaps then loses no more than one event of its size.
        """

    def layer(self, entry: LayerEntry) -> Cost:
        """The cost of hiding the whole shift behind this layer."""

    def view(self, cost: Cost, view: View) -> Cost:
        """The cost of a shift that one more view sees."""

    def join(self, one: Cost, other: Cost) -> Cost:
        """The least cost of a shift that can be hidden in either way, or partly in each."""


class FromZero:
    """Costs that are numbers from 0 to infinity."""

    @property
    def nothing(self) -> Loss:
        """The cost of no loss: 0."""
        return Fraction(0)

    @property
    def unbounded(self) -> Loss:
        """The cost without a bound: infinity."""
        return math.inf


@dataclass(frozen=True)
class PureEpsilon(FromZero):
    """Epsilon of pure differential privacy: the cheapest single way hides the whole shift.

    Args:
        max_weight: largest absolute weight of one event.
        bounded_items: whether an item's source bounds the sum of its absolute weights.
    """

    max_weight: int = 1
    bounded_items: bool = False

    def layer(self, entry: LayerEntry) -> Loss:
        """Epsilon of the layer, for an event of full weight."""
        return entry.cost * self.max_weight / entry.max_weight

    def view(self, cost: Loss, view: View) -> Loss:
        """The cost so far, plus that of the view."""
        return math.inf if view.cost is None else cost + view.cost

    def join(self, one: Loss, other: Loss) -> Loss:
        """The smaller of two costs."""
        return min(one, other)


@dataclass(frozen=True)
class ConcentratedEpsilon(PureEpsilon):
    """Rho of zCDP for layers and views of pure costs, each by itself: c^2/2."""

    def layer(self, entry: LayerEntry) -> Loss:
        """Rho of the layer."""
        return rho_of_pure(super().layer(entry))

    def view(self, cost: Loss, view: View) -> Loss:
        """The cost so far, plus that of the view."""
        return math.inf if view.cost is None else cost + rho_of_pure(view.cost)


@dataclass(frozen=True)
class EuclideanEpsilon(PureEpsilon):
    """sqrt(2 rho) of noise with independent coordinates: the l2 norm of the epsilons that a unit has in each of them.

    In each coordinate costs are epsilons in proportion to the norm, so they add and join as epsilons do, and rho is
    half the square of the sum (docs/theory/convolution.md, Theorem 7).
    """

    bounded_items: bool = True


@dataclass(frozen=True)
class MuSquared(FromZero):
    """mu^2 of Gaussian noise: shift^2 / variance. Conductances of resistors: a shift divides between layers.

    Args:
        thinning: variance that is taken from every layer and every view, as a multiple of the squared sensitivity.
            The cost c = 1/R becomes 1/(R - thinning).
    """

    thinning: Fraction = Fraction(0)
    bounded_items: bool = True

    def layer(self, entry: LayerEntry) -> Loss:
        """Squared sensitivity over variance."""
        return self.thinned(entry.cost)

    def view(self, cost: Loss, view: View) -> Loss:
        """The cost so far, plus that of the view."""
        return math.inf if view.cost is None else cost + self.thinned(view.cost)

    def join(self, one: Loss, other: Loss) -> Loss:
        """The cost 1 / (1/one + 1/other), as for resistances in parallel."""
        if one == math.inf:
            return other
        if other == math.inf:
            return one
        return one * other / (one + other) if one and other else Fraction(0)

    def thinned(self, cost: Fraction) -> Loss:
        """The cost of noise whose variance is reduced by `thinning`; infinite where no variance is left."""
        left = 1 - cost * self.thinning
        return cost / left if left > 0 else math.inf


PURE: Final = PureEpsilon()
MU_SQUARED: Final = MuSquared()
EUCLIDEAN: Final = EuclideanEpsilon()


def rho_of_pure(loss: Loss) -> Loss:
    """Rho of anything whose pure loss is at most `loss`: loss^2 / 2.

    Source: Bun & Steinke 2016, Proposition 1.4.
    """
    return loss * loss / 2
