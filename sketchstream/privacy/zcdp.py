"""Concentrated privacy (zCDP) of one sketch's history, and its composition over sketches.

In: a history (looks.History). Out: rho, exact rationals or infinity. Touches: nothing.
Source: Bun & Steinke, TCC 2016 (Propositions 1.3, 1.4; adaptive composition); Vadhan & Wang, TCC 2021 (interactive
mechanisms as post-processing of randomized response). The theorems and their proofs: docs/theory/privacy.md section 3.

Across sketches only their pure losses count: each is L^2/2 (`concentrated`), and these add (Theorem 5a). Inside one
sketch without merges rho can be smaller (Theorem 5b): a layer and the view that its shift hides are one block, which
costs (eps + costs of the views between them)^2/2, and every view outside of blocks costs c^2/2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from sketchstream.privacy.history import Entry, History, LayerEntry, Loss
from sketchstream.privacy.looks import item_loss, sides, worst_loss
from sketchstream.privacy.measures import ConcentratedEpsilon, PureEpsilon, concentrated

DELTA = 1e-6
"""At which an epsilon is said where no delta is given."""


def to_approximate(rho: Loss, delta: float = DELTA) -> float:
    """The epsilon of (epsilon, delta)-DP that follows from rho-zCDP: rho + 2 sqrt(rho ln(1/delta)).

    Source: Bun & Steinke 2016, Proposition 1.3.
    """
    return math.inf if rho == math.inf else float(rho) + 2 * math.sqrt(float(rho) * math.log(1 / delta))


def worst_rho(history: History, *, unit: str, max_weight: int = 1) -> Loss:
    """Rho of any event (the maximum over gaps) or any item.

    Holds for streams, and gaps of an event, chosen from what was published; epsilons, costs and moments of layers and
    views are fixed in advance. Where they are not, `concentrated` of the budget holds.
    """
    if history.parts:
        return concentrated(worst_loss(history, unit=unit, measure=PureEpsilon(max_weight)))
    if unit == "item":
        return item_rho(history.entries)
    # A layer before the event, and the views between, are one block of pure cost; what follows it adds in rho.
    places = sides(history, ConcentratedEpsilon(max_weight), earlier=PureEpsilon(max_weight))
    return max((min(concentrated(place.before), place.later) for place in places), default=Fraction(0))


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
        best = cheapest[at] + (math.inf if entry.cost is None else concentrated(entry.cost))
        for index, epsilon in reversed(layers):
            between = costs.total(index + 1, at)
            if concentrated(between) >= best:  # and a layer further back has more between
                break
            best = min(best, cheapest[index] + concentrated(epsilon + between))
        cheapest.append(best)
    return min(cheapest[-1], concentrated(item_loss(History(tuple(entries)))))
