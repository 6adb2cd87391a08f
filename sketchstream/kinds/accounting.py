"""What the noise of a kind costs: its law and parameters, the counters that share it, the ledger that adds its costs.

In: specs, epsilons, costs. Out: costs, parameters, components, promises, ledgers. Touches: nothing; no noise is drawn
here. Laws 2, 7 and 10 of `sketchstream.kinds.interface` are about these numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from sketchstream.components import Component
    from sketchstream.privacy.ledgers.sketch_history import Promise, SketchHistory
    from sketchstream.spec import Rational

S = TypeVar("S")


class Accounting(ABC, Generic[S]):
    """Costs of one kind's noise, in the measure in which its ledger adds. Stateless, as the kind that has it."""

    @abstractmethod
    def law(self, spec: S) -> str:
        """Name of the law of a layer."""

    @abstractmethod
    def creation_cost(self, spec: S) -> Fraction:
        """Cost of the layer that is drawn at creation."""

    @abstractmethod
    def asked_cost(self, spec: S, epsilon: Rational, delta: Rational | None) -> Fraction:
        """Cost of a release, or of a fresh layer, with this epsilon and delta.

        Raises:
            SpecError: such a promise does not exist for this kind.
        """

    @abstractmethod
    def parameter(self, spec: S, cost: Fraction) -> Fraction:
        """Parameter of the noise of the slots, if the whole sketch gets noise of this cost."""

    @abstractmethod
    def cost(self, spec: S, parameter: Fraction) -> Fraction:
        """Cost of a layer whose law has this parameter in the slots."""

    @abstractmethod
    def unit_weight(self, spec: S) -> int:
        """`max_weight` of the ledgers of this spec: 1, unless costs are those of a unit of weight."""

    @abstractmethod
    def groups_of_item(self, spec: S) -> int:
        """Groups whose losses the ledger adds for an item: 1 for unit "event", and for specs without groups."""

    @abstractmethod
    def shared_cost(self, spec: S, cost: Fraction, *, final: bool) -> Fraction:
        """The part of a publication's cost that slots and counters share; the rest is that of what else it shows.

        Args:
            spec: spec of the sketch.
            cost: cost of the publication.
            final: whether it is the publication at seal.
        """

    @abstractmethod
    def components(self, spec: S) -> tuple[Component, ...]:
        """The slots, then the counters besides them."""

    @abstractmethod
    def promise(self, spec: S) -> Promise:
        """The promise of the ledger: what `seal` will publish."""

    @abstractmethod
    def ledger(
        self, spec: S, lineage: bytes, epsilon: Rational | None = None, delta: Rational | None = None
    ) -> SketchHistory:
        """The ledger that a sketch of this spec begins with.

        Args:
            spec: spec of the sketch.
            lineage: lineage of its creation layer; empty for a sketch that is only planned.
            epsilon: budget, if there is one.
            delta: delta of that budget, where the kind's losses have one.

        Raises:
            BudgetError: the promised publication alone exceeds the budget.
        """

    @abstractmethod
    def read_ledger(self, spec: S, data: Mapping[str, Any]) -> SketchHistory:
        """The ledger that its `to_dict` described.

        Raises:
            FormatError: these data describe no ledger of this kind.
        """
