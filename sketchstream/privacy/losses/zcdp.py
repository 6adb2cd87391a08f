"""Concentrated privacy (zCDP) of one sketch's history, and its composition over sketches.

In: a history (looks.History). Out: rho, exact rationals or infinity. Touches: nothing.
Source: Bun & Steinke, TCC 2016 (Propositions 1.3, 1.4; adaptive composition); Vadhan & Wang, TCC 2021 (interactive
mechanisms as post-processing of randomized response); Canonne, Kamath & Steinke, NeurIPS 2020, Proposition 7 (zCDP to
(epsilon, delta)). The theorems and their proofs: docs/theory/privacy.md section 3.

Across sketches only their pure losses count: each is L^2/2 (`rho_of_pure`), and these add (Theorem 5a). Inside one
sketch without merges rho can be smaller (Theorem 5b): a layer and the view that its shift hides are one block, which
costs (eps + costs of the views between them)^2/2, and every view outside of blocks costs c^2/2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final

from sketchstream.privacy.losses.history import Entry, History, LayerEntry, Loss
from sketchstream.privacy.losses.looks import item_loss, sides, worst_loss
from sketchstream.privacy.losses.measures import ConcentratedEpsilon, PureEpsilon, rho_of_pure

DELTA = 1e-6
"""Delta at which an epsilon is stated where none is given."""
ORDERS: Final = (-12.0, 16.0)
"""Range of ln(alpha - 1) in which the best Renyi order is sought."""
GOLDEN: Final = (math.sqrt(5) - 1) / 2
ROUNDING_FACTOR: Final = 1 + 1e-12
"""Factor that covers the floating-point errors of an epsilon."""


def to_approximate(rho: Loss, delta: float = DELTA) -> float:
    """The epsilon of (epsilon, delta)-DP that follows from rho-zCDP: rho + 2 sqrt(rho ln(1/delta)).

    Source: Bun & Steinke 2016, Proposition 1.3.
    """
    return math.inf if rho == math.inf else float(rho) + 2 * math.sqrt(float(rho) * math.log(1 / delta))


def zcdp_log_delta(rho: float, epsilon: float) -> float:
    """Upper bound of log delta at this epsilon for rho-zCDP noise; the order alpha is found by golden section.

    Args:
        rho: number of at least 0.
        epsilon: number of at least 0.

    Source: Canonne, Kamath & Steinke 2020, Proposition 7.
    """

    def at(place: float) -> float:
        above = math.exp(place)
        alpha = 1 + above
        return above * (alpha * rho - epsilon) + alpha * math.log(above / alpha) - place

    return _least(at)


def zcdp_epsilon(rho: Loss, log_delta: float) -> float:
    """Upper bound of epsilon at this delta for rho-zCDP noise: the same bound, solved for epsilon.

    Args:
        rho: number of at least 0.
        log_delta: natural logarithm of a delta below 1.
    """
    if not math.isfinite(rho):
        return math.inf
    value = float(rho) * ROUNDING_FACTOR

    def at(place: float) -> float:
        above = math.exp(place)
        alpha = 1 + above
        return alpha * value + (alpha * math.log(above / alpha) - place - log_delta) / above

    return max(0.0, _least(at) * ROUNDING_FACTOR)


def log_of(value: Fraction) -> float:
    """Natural logarithm of a positive fraction that may be below the floats."""
    return math.log(value.numerator) - math.log(value.denominator)


def _least(at: Callable[[float], float]) -> float:
    """The smallest value that golden section finds over `ORDERS`; every value is a bound."""
    low, high = ORDERS
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = at(left), at(right)
    while high - low > 1e-9:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = at(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = at(right)
    return min(at_left, at_right)


def worst_rho(history: History, *, unit: str, max_weight: int = 1) -> Loss:
    """Rho of any event (the maximum over gaps) or any item.

    Holds for streams, and gaps of an event, chosen from what was published; epsilons, costs and moments of layers and
    views are fixed in advance. Where they are not, `rho_of_pure` of the budget holds.
    """
    if history.parts:
        return rho_of_pure(worst_loss(history, unit=unit, measure=PureEpsilon(max_weight)))
    if unit == "item":
        return item_rho(history.entries)
    # A layer before the event, and the views between, are one block of pure cost; what follows it adds in rho.
    places = sides(history, ConcentratedEpsilon(max_weight), earlier=PureEpsilon(max_weight))
    return max((min(rho_of_pure(place.before), place.later) for place in places), default=Fraction(0))


class _Costs:
    """Sums over the views of any stretch of a list of entries."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.raw, self.sums = [0], [Fraction(0)]
        for entry in entries:
            cost = Fraction(0) if isinstance(entry, LayerEntry) else entry.cost
            self.raw.append(self.raw[-1] + (cost is None))
            self.sums.append(self.sums[-1] + (cost or 0))

    def total(self, start: int, end: int) -> Loss:
        """Pure costs of the views in entries[start:end]."""
        return math.inf if self.raw[end] > self.raw[start] else self.sums[end] - self.sums[start]


def item_rho(entries: Sequence[Entry]) -> Loss:
    """Rho of an item, for any activity between the views: the cheapest set of disjoint blocks, or one block of all."""
    costs = _Costs(entries)
    layers: list[tuple[int, Fraction]] = []
    cheapest: list[Loss] = [Fraction(0)]
    for at, entry in enumerate(entries):
        if isinstance(entry, LayerEntry):
            layers.append((at, entry.cost))
            cheapest.append(cheapest[at])
            continue
        best = cheapest[at] + (math.inf if entry.cost is None else rho_of_pure(entry.cost))
        for index, epsilon in reversed(layers):
            between = costs.total(index + 1, at)
            if rho_of_pure(between) >= best:  # and a layer further back has more between
                break
            best = min(best, cheapest[index] + rho_of_pure(epsilon + between))
        cheapest.append(best)
    return min(cheapest[-1], rho_of_pure(item_loss(History(tuple(entries)))))
