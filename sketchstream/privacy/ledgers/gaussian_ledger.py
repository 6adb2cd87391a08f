"""The ledger of a sketch with Gaussian noise: costs are mu^2, losses are given as (epsilon, delta).

In: layers, releases, publications and looks as they happen. Out: `GaussianLoss`, BudgetError before anything is drawn,
plain data for headers. Touches: nothing.
Source: docs/theory/gaussian_ledger.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

from sketchstream.errors import SpecError
from sketchstream.privacy.ledgers.sketch_history import Promise, SketchHistory, damaged, fraction, refuse
from sketchstream.privacy.losses.gaussian import GaussianLoss, UnitShift
from sketchstream.privacy.losses.history import History, LayerEntry, Loss, View
from sketchstream.privacy.losses.law_names import DISCRETE_GAUSSIAN, GAUSSIAN_LAWS
from sketchstream.privacy.losses.loss_numbers import loss_number
from sketchstream.privacy.losses.measures import MU_SQUARED, Measure
from sketchstream.privacy.losses.zcdp import DELTA
from sketchstream.spec import Rational, exact_delta, exact_epsilon

ONE = UnitShift.of(1, 1)
"""One coordinate moves by one."""
BISECTIONS = 40
"""Bisections by which the largest affordable release is found."""
MAX_NOISE_STEPS = 12
"""Steps by which noise is raised for counters besides the slots, at most: 1/4,096 first, each twice the last."""


@dataclass(frozen=True)
class ApproximateBudget:
    """A limit of approximate differential privacy.

    Args:
        epsilon: number above 0.
        delta: number from 1e-300 to 0.5.
    """

    epsilon: Fraction
    delta: Fraction

    @classmethod
    def of(cls, epsilon: Rational | None, delta: Rational | None, usual: Fraction) -> ApproximateBudget | None:
        """The limit that was asked for; None if neither number was given.

        Args:
            epsilon: `max_epsilon`.
            delta: `max_delta`.
            usual: delta where none is given: that of the spec.

        Raises:
            SpecError: a delta without an epsilon, or a number outside its range.
        """
        if epsilon is None and delta is None:
            return None
        if epsilon is None:
            raise SpecError("a budget needs max_epsilon beside max_delta")
        limit = usual if delta is None else exact_delta(delta, "max_delta")
        return cls(exact_epsilon(epsilon, "max_epsilon"), limit)

    def allows(self, loss: GaussianLoss) -> bool:
        """Whether a loss is within this limit."""
        return loss.delta(self.epsilon) <= self.delta

    def __str__(self) -> str:
        """Text for people."""
        return f"(epsilon {self.epsilon}, delta {float(self.delta):g})"


@dataclass(frozen=True)
class GaussianLedger(SketchHistory):
    """Layers and views of one sketch with Gaussian noise, and the promised publication.

    The cost of a layer or a view is mu^2: the squared sensitivity of the unit over the variance of the noise.
    `max_weight` is 1: costs are those of the whole unit.

    Args:
        budget: largest permitted loss of any event, or item; None: no limit.
        shift: says how far the unit moves the state, a function of the sketch's spec.
        usual: delta at which losses are stated where there is no budget: that of the spec.

    Examples:
        >>> shift = UnitShift.of(1, 1, shapes=[(1,)])
        >>> cost = shift.cost(Fraction(18330, 1024))
        >>> layer = LayerEntry(bytes(16), "discrete-gaussian", cost)
        >>> ledger = GaussianLedger.create("event", layer, Promise("fresh", cost), shift)
        >>> ledger.loss().mu2 == cost / 2, ledger.loss(intrusion=True).mu2 == cost
        (True, True)
        >>> round(ledger.loss(intrusion=True).epsilon("1e-6"), 3)
        1.0
    """

    budget: ApproximateBudget | None = None
    shift: UnitShift = ONE
    usual: Fraction = Fraction(str(DELTA))

    laws: ClassVar[tuple[str, ...]] = GAUSSIAN_LAWS
    alike: ClassVar[tuple[str, ...]] = ("shift",)
    measure_key: ClassVar[str] = "mu2"
    """Name of the measure in plain data."""
    symbol: ClassVar[str] = "mu^2"
    """Symbol of the measure, for texts."""

    @property
    def measure(self) -> Measure[Loss]:
        """How the costs of this ledger add up."""
        return MU_SQUARED

    @cached_property
    def most(self) -> GaussianLoss:
        """Largest loss of the unit, including the promised publication."""
        return self._loss_of(self.counted)

    @classmethod
    def create(
        cls,
        unit: str,
        layers: LayerEntry | Iterable[LayerEntry],
        promised: Promise,
        shift: UnitShift,
        budget: ApproximateBudget | None = None,
        usual: Fraction = Fraction(str(DELTA)),
    ) -> Self:
        """The ledger of a fresh sketch.

        Args:
            unit: "event" or "item".
            layers: drawn at creation, of Gaussian noise and `max_weight` 1.
            promised: what the seal will publish: "fresh" or "bare".
            shift: says how far the unit moves the state.
            budget: largest permitted loss of the unit.
            usual: delta at which losses are stated where there is no budget.

        Raises:
            BudgetError: if the promised publication alone costs more than the budget.
        """
        entries = (layers,) if isinstance(layers, LayerEntry) else tuple(layers)
        return cls(unit, 1, History(entries), promised, budget, shift, usual)._require_creation()

    def affordable(self) -> Fraction | float:
        """Nearly the largest mu^2 that one release may cost now; 0 if none, `math.inf` without a limit."""
        if self.budget is None:
            return math.inf
        if self.sealed or not self._is_allowed(self.loss()):
            return Fraction(0)
        low, high = Fraction(0), Fraction(1, 1 << 20)
        while self._has_room_for(high):
            low, high = high, 4 * high
            if high > 1 << 60:
                return math.inf
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._has_room_for(middle) else (low, middle)
        return low

    # What it adds up to.

    def order(self, *, intrusion: bool = False) -> Fraction | float:
        """See `SketchHistory`: the mu^2 that is known."""
        return self.loss(intrusion=intrusion).known

    def loss(self, *, intrusion: bool = False, copies: bool = False, from_now: bool = False) -> GaussianLoss:
        """See `SketchHistory`."""
        history, since = self._history_of_loss(intrusion=intrusion, copies=copies, from_now=from_now)
        return self._loss_of(history, look=intrusion, since=since)

    @property
    def delta(self) -> Fraction:
        """Delta at which losses are stated: that of the budget, or else of the spec."""
        return self.usual if self.budget is None else self.budget.delta

    def epsilon(self, delta: Rational | None = None) -> float:
        """See `SketchHistory`; infinite if nothing hides the unit."""
        return self.loss().epsilon(self.delta if delta is None else exact_delta(delta))

    def totals(self, with_copy: GaussianLoss | None = None) -> dict[str, Any]:
        """Losses at the delta of the budget, or of the spec, and in the measure of the ledger, as plain data.

        Noise of which a rho is known is stated as the Gaussian noise of that rho: mu^2 = 2 rho.
        """
        delta = self.delta
        loss, looked = self.loss(), self.loss(intrusion=True) if with_copy is None else with_copy
        return {
            "measure": self.symbol,
            "delta": str(delta),
            "loss": str(loss.at(delta)),
            "loss_with_intrusion": str(looked.at(delta)),
            "cost": loss_number(loss.known),
            "cost_with_intrusion": loss_number(looked.known),
            "budget": None if self.budget is None else str(self.budget),
            "affordable": None if self.budget is None else f"{self.symbol} {float(self.affordable()):.4g}",
        }

    def loss_of_cost(self, cost: Fraction) -> GaussianLoss:
        """See `SketchHistory`."""
        return self._loss_of(History((LayerEntry(b"", self.laws[0], cost),)).sealed_by(View("publication", None)))

    # Plain data.

    def to_dict(self) -> dict[str, Any]:
        """Plain data for headers and JSON; the unit's shift is not in it, for the spec says it."""
        out = super().to_dict() | {"measure": self.measure_key}
        if self.budget is not None:
            out["budget"] = {"epsilon": str(self.budget.epsilon), "delta": str(self.budget.delta)}
        return out

    @classmethod
    def from_dict(
        cls,
        data: Mapping[str, Any],
        shift: UnitShift,
        usual: Fraction = Fraction(str(DELTA)),
    ) -> Self:
        """The ledger that `to_dict` described.

        Args:
            data: what `to_dict` wrote.
            shift: shift of the state by the unit, from the sketch's spec.
            usual: delta at which losses are stated where there is no budget.

        Raises:
            FormatError: for anything that `to_dict` does not write.
        """
        with damaged():
            if data["measure"] != cls.measure_key or data["max_weight"] != 1:
                refuse()
            fields = cls._read(data, {"measure", "budget"})
            limit = data.get("budget")
            if limit is None:
                return cls(*fields, None, shift, usual)
            budget = ApproximateBudget(fraction(limit["epsilon"]), fraction(limit["delta"]))
            return cls(*fields, budget, shift, usual)

    def of_copies(self, cost: Loss) -> GaussianLoss:
        """The loss to copies of one state: only mu^2 is known."""
        return GaussianLoss.without_bound_of_delta(cost)

    # Private parts.

    def _is_allowed(self, loss: GaussianLoss) -> bool:
        return self.budget is None or self.budget.allows(loss)

    @property
    def _limit(self) -> Fraction:
        assert self.budget is not None
        return self.budget.epsilon

    def _to_epsilon(self, loss: GaussianLoss) -> float:
        return loss.epsilon(self.delta)

    def _loss_text(self, loss: GaussianLoss) -> str:
        return str(loss.at(self.delta))

    def _release_text(self, room: Fraction) -> str:
        return f"noise of sigma at least {math.sqrt(self.shift.sigma2(room)):.6g} can be released now"

    def _loss_of(self, history: History, *, look: bool = False, since: int = 0) -> GaussianLoss:
        return GaussianLoss.of(history, self.shift, unit=self.unit, look=look, since=since)

    def _has_room_for(self, cost: Fraction) -> bool:
        """Whether the budget allows one more release of this mu^2."""
        return self._is_allowed(self._with(View("release", cost)).loss())

    def _with_least_budget(self, ledgers: Sequence[GaussianLedger]) -> GaussianLedger:
        """This ledger with the strictest budget: the least epsilon and the least delta of these ledgers' budgets."""
        budgets = [ledger.budget for ledger in ledgers if ledger.budget is not None]
        if not budgets:
            return replace(self, budget=None)
        least = ApproximateBudget(min(budget.epsilon for budget in budgets), min(budget.delta for budget in budgets))
        return replace(self, budget=least)


@lru_cache(maxsize=256)
def raise_noise(
    parameter: Fraction, grid: Fraction, shift: UnitShift, unit: str, epsilon: Fraction, delta: Fraction
) -> Fraction:
    """The parameter of the slots' noise, raised until the loss with one copy is within (epsilon, delta).

    Counters besides the slots may have so little noise that the discreteness costs more there than a calibration of
    the slots alone allows for.

    Args:
        parameter: sigma2 of the slots to begin with, on the grid.
        grid: parameters are multiples of this.
        shift: says how far a unit moves the slots and the counters, with their shares.
        unit: "event" or "item".
        epsilon: epsilon of the layer.
        delta: delta of the layer.

    Raises:
        SpecError: no parameter close to it is large enough.
    """
    step = max(parameter / 4096 // grid * grid, grid)
    for _ in range(MAX_NOISE_STEPS):
        cost = shift.cost(parameter)
        layer = LayerEntry(b"", DISCRETE_GAUSSIAN, cost, 1)
        # A copy of the open state, then a publication with as much fresh noise: the rounding of both adds to the loss.
        looked = GaussianLedger.create(unit, layer, Promise("fresh", cost), shift).loss(intrusion=True)
        if looked.epsilon(delta) <= epsilon:
            return parameter
        parameter, step = parameter + step, 2 * step
    raise SpecError(
        "counted_share leaves its counter too little noise for this epsilon and delta; use a smaller one, or 0"
    )
