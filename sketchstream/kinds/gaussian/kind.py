"""The kind `gaussian`: implementation of the engine's interface.

In: calls of the engine. Out: results from the spec, the state and the estimators. Touches: the states it is
given, and entropy through `state`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.components import ADMITTED, COUNTED, DISCRETE_GAUSSIAN, TOTAL, Component
from sketchstream.errors import EstimateError, FormatError, SpecError
from sketchstream.items import as_weights
from sketchstream.kinds.gaussian.parts import joined
from sketchstream.kinds.gaussian.spec import GaussianSpec
from sketchstream.kinds.gaussian.state import add_layer
from sketchstream.kinds.gaussian.statement import statement
from sketchstream.kinds.interface import AnyLedger, ColumnType, Kind, Mask, Progress, State
from sketchstream.privacy.gaussian_ledger import ApproximateBudget, GaussianLedger
from sketchstream.privacy.history import LayerEntry
from sketchstream.privacy.sketch_history import Promise
from sketchstream.spec import Epsilon, Item, exact_epsilon, exact_rational

if TYPE_CHECKING:
    from sketchstream.batch import Invalid
    from sketchstream.domains import Index
    from sketchstream.items import Items
    from sketchstream.kinds.gaussian.answers import GaussianEstimate
    from sketchstream.privacy.guarantee import Context, Guarantee
    from sketchstream.published import Published, Release, SealedState


class GaussianKind(Kind[GaussianSpec]):
    """One count or sum for each item of a closed domain, under discrete Gaussian noise; costs are mu^2."""

    name = "gaussian"
    slots_are_items = True
    table = "sketchstream.kinds.gaussian.table"
    shows = "sketchstream.kinds.gaussian.pictures"
    audit = "sketchstream.audit.gaussians"
    spec_type = GaussianSpec

    def read_spec(self, data: Mapping[str, Any], items: Sequence[Item] | None = None) -> GaussianSpec:
        """See `GaussianSpec.from_dict`."""
        return GaussianSpec.from_dict(data, items)

    def columns(self, spec: GaussianSpec) -> dict[str, ColumnType]:
        """Slots, published counts, and the ranks of the largest."""
        return super().columns(spec) | {"slot": "int64", "raw": "float64", "rank": "int64"}

    def comparable(self, spec: GaussianSpec) -> GaussianSpec:
        """Epsilons, deltas and the counters beside the slots may differ between parts."""
        twin = copy.copy(spec)
        for name in ("epsilon", "epsilon_publish", "delta", "delta_publish"):
            object.__setattr__(twin, name, Fraction(1, 2))
        for name, value in (("total_share", Fraction(0)), ("counted", False), ("epsilon_records", Fraction(0))):
            object.__setattr__(twin, name, value)
        return twin

    def facts(self, spec: GaussianSpec, slots: int) -> list[tuple[str, str]]:
        """Public parameters in words."""
        fresh = f"epsilon {spec.epsilon_publish}, delta {float(spec.delta_publish):g}"
        rows = [
            ("kind", "gaussian: a count for each item"),
            ("protected unit", f"one {spec.unit}"),
            ("privacy of the state", f"epsilon {spec.epsilon}, delta {float(spec.delta):g}"),
            ("privacy of the publication at seal", fresh if spec.intrusion else "none of its own: the bare state"),
            ("domain", f"closed, {slots:,} slots"),
            ("largest weight", str(spec.max_weight)),
        ]
        if spec.fraction_bits:
            rows.append(("weights are multiples of", str(spec.step)))
        if spec.max_total is not None:
            rows.append(("largest total of an item (a promise)", str(spec.max_total)))
        if spec.max_per_slot is not None:
            rows.append(("largest total of an item in one slot (a promise)", str(spec.max_per_slot)))
        return rows

    # Costs of noise.

    def law(self, spec: GaussianSpec) -> str:
        """Discrete Gaussian noise."""
        del spec
        return DISCRETE_GAUSSIAN

    def creation_cost(self, spec: GaussianSpec) -> Fraction:
        """mu^2 of the calibrated noise."""
        return spec.mu2

    def asked_cost(self, spec: GaussianSpec, epsilon: Epsilon, delta: Epsilon | None) -> Fraction:
        """mu^2 of noise that is calibrated to (epsilon, delta); both are needed."""
        if delta is None:
            msg = "kind 'gaussian' needs a delta beside epsilon, such as delta='1e-6' (command line: --delta 1e-6)"
            raise SpecError(msg)
        return spec.shift.cost(spec.calibrated(epsilon, delta).sigma2)

    def parameter(self, spec: GaussianSpec, cost: Fraction) -> Fraction:
        """sigma2 of the slots: their squared sensitivity over their share of mu^2."""
        return spec.shift.sigma2(cost)

    def cost(self, spec: GaussianSpec, parameter: Fraction) -> Fraction:
        """mu^2 of the whole sketch."""
        return spec.shift.cost(parameter)

    def components(self, spec: GaussianSpec) -> tuple[Component, ...]:
        """The slots, then the total, the events counted, the records admitted.

        The total and the slots are in lattice units. The number of records is a function of envelopes: it has discrete
        Laplace noise of its own, outside the ledger.
        """
        square = spec.sensitivity2
        root = math.isqrt(square)
        slots = Component("slots", spec.slots_share, root + (root * root < square), DISCRETE_GAUSSIAN, square=square)
        total = spec.total_share / 2 if spec.counted else spec.total_share
        counters = [Component(TOTAL, total, spec.most_total, DISCRETE_GAUSSIAN)] if total else []
        counters += [Component(COUNTED, total, 1, DISCRETE_GAUSSIAN)] if spec.counted else []
        counters += [Component(ADMITTED, Fraction(0), own=spec.epsilon_records)] if spec.epsilon_records else []
        return slots, *counters

    def promise(self, spec: GaussianSpec) -> Promise:
        """The state, under fresh noise or bare."""
        if spec.publish_sigma2 is None:
            return Promise("bare")
        return Promise("fresh", spec.shift.cost(spec.publish_sigma2))

    def ledger(
        self, spec: GaussianSpec, lineage: bytes, epsilon: Epsilon | None = None, delta: Epsilon | None = None
    ) -> GaussianLedger:
        """A ledger of mu^2; its budget is an epsilon at a delta."""
        budget = None
        if epsilon is not None or delta is not None:
            if epsilon is None or delta is None:
                msg = "a budget of kind 'gaussian' is an epsilon and a delta: give max_epsilon and max_delta"
                raise SpecError(msg)
            wanted = "max_delta must be in [1e-300, 0.5]"
            exact = exact_rational(delta, wanted)
            if not Fraction(1, 10**300) <= exact <= Fraction(1, 2):
                raise SpecError(wanted)
            budget = ApproximateBudget(exact_epsilon(epsilon, "max_epsilon"), exact)
        first = self.entry(spec, lineage, spec.mu2)
        return GaussianLedger.create(spec.unit, first, self.promise(spec), spec.shift, budget)

    def entry(self, spec: GaussianSpec, lineage: bytes, cost: Fraction) -> LayerEntry:
        """mu^2 of the whole sketch."""
        del spec
        return LayerEntry(lineage, DISCRETE_GAUSSIAN, cost)

    def read_ledger(self, spec: GaussianSpec, data: Mapping[str, Any]) -> GaussianLedger:
        """A ledger of mu^2."""
        return GaussianLedger.from_dict(data, spec.shift)

    def order(self, ledger: AnyLedger) -> Any:
        """Its mu^2."""
        assert isinstance(ledger, GaussianLedger)
        return ledger.loss().mu2

    def statement(self, spec: GaussianSpec, ledger: AnyLedger, context: Context | None = None) -> Guarantee:
        """The guarantee in (epsilon, delta) and mu^2."""
        assert isinstance(ledger, GaussianLedger)
        return statement(spec, ledger, context)

    def planned_epsilon(self, spec: GaussianSpec) -> float:
        """Planned epsilon, at the spec's delta."""
        return self.ledger(spec, b"").loss().epsilon(spec.delta)

    # Updates and states.

    def draw(self, spec: GaussianSpec, state: State, cost: Fraction, progress: Progress | None = None) -> None:
        """Add discrete Gaussian noise to every slot."""
        add_layer(state, self.parameter(spec, cost), progress)

    def update(
        self,
        spec: GaussianSpec,
        index: Index,
        state: State,
        items: Items,
        weights: object,
        *,
        counters: npt.NDArray[np.int64],
        threads: int,
        invalid: Invalid,
    ) -> None:
        """Add each weight, in lattice units, to the slot of its item, wrapping."""
        index.apply(
            state,
            items,
            lattice_weights(spec, weights, len(items), alone=invalid == "noop"),
            max_weight=spec.lattice.most,
            threads=threads,
            invalid=invalid,
            counters=counters,
        )

    # Publications.

    def require_view(self, spec: GaussianSpec, header: Mapping[str, Any], body: npt.NDArray[Any]) -> None:
        """Require the number of counters that the header gives."""
        self.require_state(spec, header["slots"], body)

    def require_state(self, spec: GaussianSpec, slots: int, body: npt.NDArray[Any]) -> None:
        """Require at most as many slots as items."""
        super().require_state(spec, slots, body)
        if slots > spec.domain.size:
            msg = f"a sketch of this spec has at most {spec.domain.size} slots, found {slots}"
            raise FormatError(msg)

    # Answers.

    def estimate(
        self,
        published: Published,
        *,
        items: Sequence[Item] | None = None,
        kept: Sequence[Mask] | None = None,
        **options: Any,
    ) -> GaussianEstimate:
        """See `GaussianEstimate`.

        Args:
            published: a release, a sealed state, or a stack of either.
            items: items of a listed domain, whose names are not in published bytes.
            kept: for parts without a slot for every item: for each part, (size,) bool, its items.
            options: options of `GaussianEstimate`.

        Raises:
            EstimateError: parts have no masks or different noise, or options do not apply.
            SpecError: the list of items is another one.
        """
        from sketchstream.kinds.gaussian.answers import GaussianEstimate

        parts: Sequence[Release | SealedState] = getattr(published, "parts", (published,))  # type: ignore[arg-type]
        spec = published.spec if items is None else self.read_spec(published.spec.to_dict(), items)
        found = joined(spec, [self._shown(part) for part in parts], kept)
        try:
            return GaussianEstimate(spec, found.variances, found.state, positions=found.positions, **options)
        except TypeError:
            msg = "estimate of kind 'gaussian' takes method, target, nonnegative, total, whole, items and kept"
            raise EstimateError(msg) from None

    def _shown(self, part: Any) -> tuple[State, tuple[Fraction, ...]]:
        """The published numbers of a part, and the parameters of all noise in them."""
        layers = tuple(sorted(layer.parameter for layer in part.layers))
        cost: Fraction | None = getattr(part, "cost", None)  # noise of the release itself
        if cost is None:
            return part.state, layers
        return part.noised, (*layers, self.parameter(part.spec, cost))


def lattice_weights(spec: GaussianSpec, weights: object, n: int, *, alone: bool) -> object:
    """(n,) int32 or int64 weights in lattice units, or None for ones; an invalid one becomes larger than the largest.

    Args:
        spec: spec of the sketch.
        weights: integers, floats, Decimals, Fractions, texts of JSON numbers, or None.
        n: expected number of weights.
        alone: whether to keep invalid ones, which `Index.apply` then skips.

    Raises:
        WeightError: a weight is invalid, unless `alone`; gives the position, never the weight.
    """
    bits, most = spec.lattice.bits, spec.lattice.most
    if weights is None:
        return None if bits == 0 else np.full(n, 1 << bits, np.int64)
    if isinstance(weights, np.ndarray) and weights.ndim == 1 and weights.dtype in (np.int32, np.int64) and bits == 0:
        return weights
    if isinstance(weights, (int, float, np.generic)) or not hasattr(weights, "__len__") or not len(weights):
        return as_weights(weights, n, alone=alone)
    units, good = spec.lattice.weights(weights.to_pylist() if hasattr(weights, "to_pylist") else weights)
    if len(units) != n:
        return as_weights(units, n)  # refuses them
    if not good.all():
        if not alone:
            spec.lattice.checked(weights)
        units = np.where(good, units, most + 1)
    return units


KIND: Final = GaussianKind()
