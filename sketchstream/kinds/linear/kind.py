"""The base of linear kinds: costs, ledgers, budgets, statements, noise, and the checks of published bodies.

In: a spec, events in the life of a sketch. Out: costs, ledgers, guarantees. Touches: the states it is given, and
entropy through `noise`.
Source: docs/theory/gaussian_ledger.md; docs/theory/privacy.md, section 3.

The accounting of a kind gives the cost of noise of an (epsilon, delta) (`noise_cost`) and the ledger in which costs
add (`ledger_and_shift`). From that follow the cost of creation, of releases and of the seal, and the ledger with its
budget. The kind describes whom it protects; from that and the ledger follows the statement.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import numpy.typing as npt

from sketchstream import kinds, noise
from sketchstream.array_types import Flags, State
from sketchstream.components import Component, quality_counters
from sketchstream.errors import FormatError, SpecError
from sketchstream.kinds.accounting import Accounting
from sketchstream.kinds.interface import Kind, Progress
from sketchstream.kinds.linear.spec import LinearSpec, WholeWeightsSpec
from sketchstream.privacy.deployments.guarantee import Guarantee, merged_from, not_protected
from sketchstream.privacy.deployments.surroundings import Context
from sketchstream.privacy.ledgers.gaussian_ledger import ApproximateBudget, GaussianLedger
from sketchstream.privacy.ledgers.ledger import Ledger, pure_budget, require_no_delta
from sketchstream.privacy.ledgers.sketch_history import Promise, SketchHistory
from sketchstream.privacy.losses.gaussian import UnitShift
from sketchstream.privacy.losses.law_names import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from sketchstream.spec import Rational, exact_delta, exact_epsilon

if TYPE_CHECKING:
    from sketchstream.spec import Item

L = TypeVar("L", bound=LinearSpec)

DRAWN_AT_ONCE: Final = 1 << 22
"""Counters whose noise is drawn between two reports of progress."""
BOUNDS: Final = {
    "max_weight": "largest weight of an event",
    "max_total": "largest total of an item's weights (a promise)",
    "max_per_slot": "largest total of an item in one slot (a promise)",
    "max_norm": "largest norm of a row (a promise)",
    "max_features": "most features of a row (a promise)",
    "n_bound": "most individuals (a promise)",
    "counted_share": "share of the events counted",
    "fraction_bits": "binary digits of a weight's fraction",
}
"""Labels of the bounds in a spec, by field; bounds that are None or 0 are left out."""


class LinearAccounting(Accounting[L]):
    """Costs of `A x + noise`: mu^2 of discrete Gaussian noise, unless the kind overrides it."""

    @abstractmethod
    def noise_cost(self, spec: L, epsilon: Fraction, delta: Fraction) -> Fraction:
        """Cost of noise of this privacy, for the whole unit."""

    def ledger_and_shift(self, spec: L) -> tuple[type[GaussianLedger], UnitShift]:
        """The ledger of noise that is not pure, and how far a unit moves what has it: by default mu^2 of all of it."""
        return GaussianLedger, spec.shift

    def law(self, spec: L) -> str:
        """Discrete Gaussian noise, unless the kind has another."""
        return DISCRETE_GAUSSIAN

    def creation_cost(self, spec: L) -> Fraction:
        return self.noise_cost(spec, spec.epsilon, spec.delta)

    def asked_cost(self, spec: L, epsilon: Rational, delta: Rational | None) -> Fraction:
        """Cost of noise of this epsilon and delta; by default the spec's delta. Pure noise has none."""
        exact = exact_epsilon(epsilon, "epsilon of a release")
        if spec.pure:
            require_no_delta(delta)
        elif delta is not None:
            return self.noise_cost(spec, exact, exact_delta(delta, "delta of a release"))
        return self.noise_cost(spec, exact, spec.delta)

    def parameter(self, spec: L, cost: Fraction) -> Fraction:
        """sigma2 of every counter of the state: its squared sensitivity over its share of mu^2."""
        return self.ledger_and_shift(spec)[1].sigma2(cost)

    def cost(self, spec: L, parameter: Fraction) -> Fraction:
        return self.ledger_and_shift(spec)[1].cost(parameter)

    def unit_weight(self, spec: L) -> int:
        return 1

    def groups_of_item(self, spec: L) -> int:
        return 1

    def shared_cost(self, spec: L, cost: Fraction, *, final: bool) -> Fraction:
        return cost

    def components(self, spec: L) -> tuple[Component, ...]:
        """The state, then the events counted and the records admitted, if kept."""
        share: Fraction = getattr(spec, "counted_share", Fraction(0))
        beside = DISCRETE_GAUSSIAN if spec.measure == "mu2" else DISCRETE_LAPLACE
        state = Component("slots", 1 - share, law=self.law(spec))
        return (state, *quality_counters(beside, share, spec.epsilon_records))

    def promise(self, spec: L) -> Promise:
        if not spec.intrusion:
            return Promise("bare")
        return Promise("fresh", self.noise_cost(spec, spec.epsilon_publish, spec.delta_publish))

    def ledger(
        self, spec: L, lineage: bytes, epsilon: Rational | None = None, delta: Rational | None = None
    ) -> Ledger | GaussianLedger:
        """A ledger in the measure of the spec; a budget without a delta has that of the spec."""
        first = kinds.layer_entry(spec, lineage, self.creation_cost(spec))
        if spec.pure:
            return Ledger.create(spec.unit, 1, first, self.promise(spec), pure_budget(epsilon, delta))
        made, shift = self.ledger_and_shift(spec)
        budget = ApproximateBudget.of(epsilon, delta, spec.delta)
        return made.create(spec.unit, first, self.promise(spec), shift, budget, spec.delta)

    def read_ledger(self, spec: L, data: Mapping[str, Any]) -> Ledger | GaussianLedger:
        if spec.pure:
            return Ledger.from_dict(data)
        made, shift = self.ledger_and_shift(spec)
        return made.from_dict(data, shift, spec.delta)


class LinearKind(Kind[L]):
    """A kind whose state is `A x + noise`."""

    accounting: LinearAccounting[L]
    promised_for_all_partitions: ClassVar[bool] = False
    """Whether one promise bounds an item over all partitions of a window together."""

    def read_spec(self, data: Mapping[str, Any], items: Sequence[Item] | None = None) -> L:
        return self.spec_type.from_dict(data)

    # Descriptions and the statement.

    @abstractmethod
    def unit_in_words(self, spec: L) -> str:
        """The protected unit in words, for the statement."""

    @abstractmethod
    def relation(self, spec: L) -> tuple[str, ...]:
        """Sentences of the statement: what counts as one event, what the neighbours of the proof are."""

    @abstractmethod
    def assumes(self, spec: L, ledger: SketchHistory, context: Context) -> tuple[str, ...]:
        """Sentences of the statement: what its proof rests on."""

    def exposes(self, spec: L) -> tuple[str, ...]:
        """Sentences of the statement: what of this kind is not protected."""
        return ()

    def facts_of_kind(self, spec: L, slots: int) -> list[tuple[str, str]]:
        """Public parameters of this kind alone, as rows of (name, value)."""
        return []

    def facts(self, spec: L, slots: int) -> list[tuple[str, str]]:
        """Public parameters in words: privacy, what is the kind's own, bounds."""
        fresh = _privacy(spec, spec.epsilon_publish, spec.delta_publish)
        bounds = ((label, getattr(spec, name, None)) for name, label in BOUNDS.items())
        return [
            ("protected unit", f"one {spec.unit}"),
            ("privacy of the state", _privacy(spec, spec.epsilon, spec.delta)),
            ("privacy of the publication at seal", fresh if spec.intrusion else "none of its own: the bare state"),
            *self.facts_of_kind(spec, slots),
            *((label, f"{value:,}" if isinstance(value, int) else str(value)) for label, value in bounds if value),
        ]

    def statement(self, spec: L, ledger: SketchHistory, context: Context | None = None) -> Guarantee:
        """The guarantee in (epsilon, delta) and the measure of the noise, or in pure epsilons."""
        context = context or Context()
        return Guarantee.build(
            spec,
            ledger,
            context,
            delta=Fraction(0) if spec.pure else spec.delta,
            protects=(self.unit_in_words(spec), *self.relation(spec), *merged_from(ledger)),
            not_protected=(
                *self.exposes(spec),
                *not_protected(spec, ledger, context, states=True, bare=not spec.intrusion),
            ),
            assumes=self.assumes(spec, ledger, context),
            whole=self.promised_for_all_partitions,
        )

    # States.

    def require_all_places(self, keep: Flags | None) -> None:
        """Refuse a selection of places, each of which moves counters that are also others'."""
        if keep is not None:
            raise SpecError(
                f"keep does not apply to kind {self.name!r}: all positions share its counters, none is an item's"
            )

    def draw(self, spec: L, state: State, cost: Fraction, progress: Progress | None = None) -> None:
        """Add discrete Gaussian noise to every counter."""
        sigma2 = self.accounting.parameter(spec, cost)
        for start in range(0, len(state), DRAWN_AT_ONCE):
            part = state[start : start + DRAWN_AT_ONCE]
            noise.discrete_gaussian(part, sigma2)
            if progress is not None:
                progress(start + len(part))

    # Publications.

    def require_view(self, spec: L, header: Mapping[str, Any], body: npt.NDArray[Any]) -> None:
        """Require a state: releases show all of it."""
        self.require_state(spec, header["slots"], body)

    def require_state(self, spec: L, slots: int, body: npt.NDArray[Any]) -> None:
        super().require_state(spec, slots, body)
        if slots != spec.slots:
            raise FormatError(f"a sketch of this spec has {spec.slots} counters, found {slots}")


def _privacy(spec: LinearSpec, epsilon: Fraction, delta: Fraction) -> str:
    """Epsilon and, unless the noise is pure, delta."""
    return f"epsilon {epsilon}" if spec.pure else f"epsilon {epsilon}, delta {float(delta):g}"


def unit_of_places(spec: WholeWeightsSpec, place: str) -> str:
    """The protected unit in words, for specs whose events are at places and have weights up to `max_weight`."""
    several = "leaves" if place == "leaf" else f"{place}s"
    if spec.unit == "item":
        return (
            f"everything that one item did in this sketch, in any {several}, as long as the absolute weights of its "
            f"events add up to at most {spec.max_total}"
        )
    weight = "" if spec.max_weight == 1 else f", of any weight up to {spec.max_weight} in absolute value"
    return f"one event: whether it counted, and in which {place}{weight}; an event and its later deletion are two"
