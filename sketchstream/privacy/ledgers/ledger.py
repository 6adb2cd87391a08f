"""The ledger of one sketch: its layers and views, their loss so far, and the remaining budget.

In: layers, releases, publications and looks as they happen. Out: losses as exact fractions, BudgetError before
anything is drawn, plain data for headers. Touches: nothing.
Source: the lemma of looks, docs/theory/privacy.md section 3.

Losses are pure epsilons. Sketches with Gaussian noise have a ledger in mu^2 (`privacy.ledgers.gaussian_ledger`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from sketchstream.errors import SpecError
from sketchstream.privacy.ledgers.sketch_history import Promise, SketchHistory, damaged, fraction
from sketchstream.privacy.losses.history import LOOK, History, LayerEntry, Loss, View
from sketchstream.privacy.losses.law_names import PURE_LAWS
from sketchstream.privacy.losses.looks import event_losses, item_loss
from sketchstream.privacy.losses.loss_numbers import loss_number
from sketchstream.privacy.losses.measures import PureEpsilon, rho_of_pure
from sketchstream.privacy.losses.zcdp import worst_rho
from sketchstream.spec import Rational, exact_epsilon


@dataclass(frozen=True)
class Ledger(SketchHistory):
    """Layers and views of one sketch in order of application, and the promised publication.

    Args:
        unit: "event" or "item".
        max_weight: largest absolute weight of one event.
        history: what happened.
        promised: what the seal will publish; Promise("nothing") once it was published.
        budget: largest permitted loss of any event, or item; None: no limit.

    Examples:
        >>> layer = LayerEntry(bytes(16), "discrete-laplace", Fraction(1))
        >>> ledger = Ledger.create("event", 1, layer, Promise("histogram", Fraction(1)), Fraction(2))
        >>> ledger.loss(), ledger.loss(intrusion=True)
        (Fraction(1, 1), Fraction(1, 1))
        >>> ledger.charge_release(Fraction(1, 2)).loss()
        Fraction(1, 1)
    """

    budget: Fraction | None = None

    symbol: ClassVar[str] = "epsilon"
    laws: ClassVar[tuple[str, ...]] = PURE_LAWS

    @classmethod
    def create(
        cls,
        unit: str,
        max_weight: int,
        layers: LayerEntry | Iterable[LayerEntry],
        promised: Promise,
        budget: Fraction | None = None,
    ) -> Ledger:
        """The ledger of a fresh sketch.

        Raises:
            BudgetError: if the promised publication alone costs more than the budget.
        """
        entries = (layers,) if isinstance(layers, LayerEntry) else tuple(layers)
        return cls(unit, max_weight, History(entries), promised, budget)._require_creation()

    @property
    def measure(self) -> PureEpsilon:
        """How the costs of this ledger add up."""
        return PureEpsilon(self.max_weight)

    def affordable(self) -> Loss:
        """The largest cost that the budget allows for one release now; 0 if none, `math.inf` without a limit.

        The loss as a function of one view's cost c is max over gaps of min(a, b + c): a is its value where that
        view may cost anything, b where it costs nothing.
        """
        if self.budget is None:
            return math.inf
        if self.history.seal is not None:
            return Fraction(0)
        free, dear = self._with(View("release", Fraction(0)))._losses(), self._with(LOOK)._losses()
        room: Loss = math.inf
        for base, cap in zip(free, dear, strict=True):
            if cap > self.budget:
                room = min(room, self.budget - base)
        return max(room, Fraction(0))

    # What it adds up to.

    def order(self, *, intrusion: bool = False) -> Loss:
        """See `SketchHistory`: epsilon."""
        return self.loss(intrusion=intrusion)

    def loss(self, *, intrusion: bool = False, copies: bool = False, from_now: bool = False) -> Loss:
        """See `SketchHistory`."""
        history, since = self._history_of_loss(intrusion=intrusion, copies=copies, from_now=from_now)
        return self._loss_of(history, look=intrusion, since=since)

    def epsilon(self, delta: Rational | None = None) -> float:
        """The loss as a float, rounded up; infinite if nothing hides the unit. It holds at every delta."""
        exact = self.loss()
        nearest = float(exact)
        return nearest if exact <= nearest else math.nextafter(nearest, math.inf)

    def zcdp(self, *, intrusion: bool = False) -> Loss:
        """The loss as rho of zCDP, an exact rational or infinity; at most half the square of `loss`.

        It holds if costs do not depend on what was released before (the stream may). An intruder may choose the moment
        of the look from what was seen, so with `intrusion` it is half the square of `loss`.
        """
        if intrusion:
            return rho_of_pure(self.loss(intrusion=True))
        return worst_rho(self._seen(promise=True), unit=self.unit, max_weight=self.max_weight)

    @cached_property
    def most_of_event(self) -> Loss:
        """Largest loss of an event, including the promised publication, for either unit."""
        gaps = event_losses(self.counted, PureEpsilon(self.max_weight))
        return max((gap.loss for gap in gaps), default=Fraction(0))

    @cached_property
    def most_of_item(self) -> Loss:
        """Largest loss of an item, including the promised publication; infinite for unit "event"."""
        return item_loss(self.counted) if self.unit == "item" else math.inf

    def loss_of_cost(self, cost: Fraction) -> Loss:
        """A cost is an epsilon already."""
        return cost

    def totals(self, with_copy: Loss | None = None) -> dict[str, Any]:
        """Pure epsilons, and rho of zCDP, as plain data."""
        looked = self.loss(intrusion=True) if with_copy is None else with_copy
        return {
            "measure": self.symbol,
            "delta": "0",
            **dict.fromkeys(("loss", "cost"), loss_number(self.loss())),
            **dict.fromkeys(("loss_with_intrusion", "cost_with_intrusion"), loss_number(looked)),
            "loss_zcdp": loss_number(self.zcdp()),
            "budget": None if self.budget is None else str(self.budget),
            "affordable": None if self.budget is None else loss_number(self.affordable()),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data for headers and JSON: costs only, fractions and lineages as strings."""
        out = super().to_dict()
        if self.budget is not None:
            out["budget"] = str(self.budget)
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Ledger:
        """The ledger that `to_dict` described.

        Raises:
            FormatError: for anything that `to_dict` does not write.
        """
        with damaged():
            return cls(*cls._read(data, {"budget"}), fraction(data["budget"]) if "budget" in data else None)

    # Private parts.

    def _loss_of(self, history: History, *, look: bool = False, since: int = 0) -> Loss:
        return self._worst(history, look=look, since=since)

    def _is_allowed(self, loss: Loss) -> bool:
        return self.budget is None or loss <= self.budget

    @property
    def _limit(self) -> Fraction:
        assert self.budget is not None
        return self.budget

    def _to_epsilon(self, loss: Loss) -> Loss:
        return loss

    def _loss_text(self, loss: Loss) -> str:
        return loss_number(loss)

    def _release_text(self, room: Fraction) -> str:
        return f"at most {room} can be released now"

    def _with_least_budget(self, ledgers: Sequence[Ledger]) -> Ledger:
        """This ledger with the strictest of these ledgers' budgets."""
        budgets = [ledger.budget for ledger in ledgers if ledger.budget is not None]
        return replace(self, budget=min(budgets, default=None))

    def _losses(self) -> list[Loss]:
        """Losses whose maximum is the loss, each of the form min(a, b + c) in the cost c of any one view."""
        history = self._seen(promise=True)
        if self.unit == "item":
            return [item_loss(history)]
        return [gap.loss for gap in event_losses(history, self.measure)]


def pure_budget(epsilon: Rational | None, delta: Rational | None) -> Fraction | None:
    """The budget that was asked for, of a sketch whose losses are pure epsilons; None if none was.

    Args:
        epsilon: `max_epsilon`.
        delta: `max_delta`, which such losses do not have.

    Raises:
        SpecError: a number outside its range, or a delta.
    """
    require_no_delta(delta, "max_delta")
    return None if epsilon is None else exact_epsilon(epsilon, "max_epsilon")


def require_no_delta(delta: Rational | None, name: str = "delta") -> None:
    """Refuse a delta where the noise is pure.

    Raises:
        SpecError: one was given.
    """
    if delta is not None:
        raise SpecError(f"the noise of this sketch is pure: its loss has delta = 0, leave {name} out")
