"""The specification of a sketch of kind `workload`: queries, privacy and strategy, validated once and frozen.

In: parameters from a user. Out: a frozen `WorkloadSpec`, its plain data, its fingerprint, the laws of its layers.
Touches: nothing (a workload that names a file is read by `Workload.named`).
Source: docs/theory/workload.md.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import SpecError
from sketchstream.kinds.linear.spec import CAPACITY, WholeWeightsSpec
from sketchstream.kinds.workload.queries.queries import Workload
from sketchstream.kinds.workload.queries.universe import CellLocator, Universe
from sketchstream.kinds.workload.strategies.implicit import Implicit, read_strategy
from sketchstream.kinds.workload.strategies.mechanism import (
    MECHANISMS,
    PURE_LAWS,
    LayerLaw,
    Mechanism,
    Task,
    choose,
    law_of_cost,
    layer_law,
)
from sketchstream.kinds.workload.strategies.optimise import Objective
from sketchstream.kinds.workload.strategies.strategy import MAX_COVARIANCE_CELLS, Strategy
from sketchstream.kinds.workload.update import StrategyColumns
from sketchstream.privacy.ledgers.gaussian_ledger import raise_noise
from sketchstream.privacy.losses.gaussian import UnitShift
from sketchstream.spec import ClosedDomain, Rational, Unit, checked_int, require_choice

WARNED_RATIO: Final = 1e6
"""Ratio of column norms above which a warning says that small queries will drown."""


class WorkloadWarning(UserWarning):
    """A workload or a parameter that is allowed and probably not meant."""


@dataclass(frozen=True, eq=False)
class WorkloadSpec(WholeWeightsSpec):
    """Private answers to a fixed batch of linear queries over the cells of a table.

    Args:
        workload: the queries: a `Workload`, its text ("prefix:512", "marginals:8:1,2", "a.npy"), or a matrix.
        epsilon: privacy of a layer; exact rational (str, int, Fraction, Decimal, or float by its shortest repr).
        delta: exact rational from 1e-300 to 0.5, or 0 for pure epsilon privacy ("laplace", "l2ball").
        mechanism: "auto" (smallest predicted error), "gaussian" (the best covariance), "laplace", "l2ball" (rank up
            to 16), or for comparison "paper" and "plain".
        unit: unit of privacy: one "event", or all events of one "item" in this sketch.
        max_weight: largest absolute weight of one event.
        max_total: unit "item": a promise of the source that the absolute weights of one item's events in one sketch,
            over all parts and partitions, add up to at most this.
        n_bound: upper bound of the total weight of all events, none of them negative in sum; allows projection.
        objective: "total" (sum of the variances) or "max" (the largest).
        row_weights: (d,) importance of each query, positive; only with "total".
        capacity: largest sum of absolute weights that the counters must hold.
        intrusion: True: `seal` adds fresh noise, and the guarantee holds with one copy of the open state. False: it
            publishes the bare state, and the guarantee is void for events after any copy.
        epsilon_publish: epsilon of the fresh noise at seal; default epsilon.
        delta_publish: delta of the fresh noise at seal; default delta.
        counted_share: unit "event": share of every cost that a counter of the events counted gets; 0: none is kept.
        epsilon_records: unit "event": epsilon of the number of records admitted, outside the ledger; 0: none is kept.
        universe: map from the fields of a record to a cell, with names of cells; its columns have the names
            and sizes of the workload's. Without one, items are cell numbers.
        strategy: a strategy that was made for this workload before; None: it is computed here.

    Raises:
        SpecError: a parameter is outside its range, or parameters contradict each other.

    Examples:
        >>> spec = WorkloadSpec("prefix:64", epsilon="1", delta="1e-6", mechanism="gaussian")
        >>> spec.strategy.length, spec.layer().name
        (64, 'discrete-gaussian')
    """

    workload: Workload
    mechanism: Mechanism
    max_weight: int
    max_total: int | None
    n_bound: int | None
    objective: Objective
    row_weights: tuple[float, ...] | None
    capacity: int
    counted_share: Fraction
    universe: Universe | None
    strategy: Strategy

    kind = "workload"
    zero_delta = True

    def __init__(
        self,
        workload: Workload | str | npt.ArrayLike,
        epsilon: Rational,
        delta: Rational,
        mechanism: Mechanism = "auto",
        *,
        unit: Unit = "event",
        max_weight: int = 1,
        max_total: int | None = None,
        n_bound: int | None = None,
        objective: Objective = "total",
        row_weights: Sequence[float] | None = None,
        capacity: int = CAPACITY,
        intrusion: bool = True,
        epsilon_publish: Rational | None = None,
        delta_publish: Rational | None = None,
        counted_share: Rational = 0,
        epsilon_records: Rational = 0,
        universe: Universe | None = None,
        strategy: Strategy | None = None,
    ) -> None:
        queries = _workload(workload)
        self._put(workload=queries)
        self._put_privacy(epsilon, delta, epsilon_publish, delta_publish, intrusion)
        self._put_weights(unit, max_weight, max_total)
        self._put(n_bound=None if n_bound is None else checked_int(n_bound, "n_bound", 1, 1 << 53))
        require_choice(mechanism, "mechanism", MECHANISMS)
        self._put(objective=require_choice(objective, "objective", get_args(Objective)))
        self._put(row_weights=_row_weights(row_weights, queries.count, objective))
        self._put(capacity=checked_int(capacity, "capacity", 1, 1 << 62))
        self._put_counters(counted_share, epsilon_records)
        if universe is not None and tuple((column.name, column.size) for column in universe.columns) != queries.columns:
            raise SpecError(
                "the columns of the universe must have the names and sizes of the workload's; make the workload from "
                "it, as universe.marginals((1, 2)) does"
            )
        self._put(universe=universe)
        self._put_strategy(mechanism, strategy)
        self._require_room()
        self._warn()

    @property
    def task(self) -> Task:
        """What the strategy is chosen for."""
        weights = None if self.row_weights is None else np.array(self.row_weights)
        return Task(self.workload, self.epsilon, self.delta, self.weight, self.objective, weights, self.n_bound)

    def _put_strategy(self, mechanism: Mechanism, strategy: Strategy | None) -> None:
        """Compute or check the strategy."""
        if strategy is None:
            best = choose(self.task, mechanism)
            mechanism, strategy = best.mechanism, best.strategy
        elif mechanism not in MECHANISMS or mechanism == "auto":
            raise SpecError(f"a spec with a given strategy needs its mechanism, not {mechanism!r:.40}")
        elif strategy.workload_digest != self.workload.digest:
            raise SpecError("the strategy was made for another workload")
        if min(self.delta, self.delta_publish) == 0 and mechanism not in PURE_LAWS:
            raise SpecError("delta must be > 0 for Gaussian noise; use mechanism='laplace' or 'l2ball'")
        self._put(mechanism=mechanism, strategy=strategy)

    def _require_room(self) -> None:
        """Refuse a capacity that the counters cannot hold: no update looks at them."""
        deviation = max(self.layer().variance, self.fresh().variance) ** 0.5
        most = ((1 << 63) - 64 * math.ceil(2 * deviation) - 1) // self.strategy.largest
        if self.capacity > most:
            raise SpecError(
                f"capacity must be at most {max(most, 0)} for this workload's counters, found {self.capacity}"
            )

    def _warn(self) -> None:
        """Warn of parameters that are allowed but probably not intended."""
        self._warn_of_privacy(4)
        if len(self.workload.products) == 1 and self.workload.products[0][0].name == "matrix":
            matrix = self.workload.dense()
            norms = np.sqrt(np.einsum("ij,ij->j", matrix, matrix))
            if norms.max() > WARNED_RATIO * norms[norms > 0].min():
                text = "columns of the workload differ in norm by more than 1e6: small queries drown; set row_weights"
                warnings.warn(text, WorkloadWarning, stacklevel=4)
            if len(np.unique(matrix, axis=0)) < len(matrix):
                text = "the workload has duplicate rows: they are weighted twice"
                warnings.warn(text, WorkloadWarning, stacklevel=4)

    @property
    def length(self) -> int:
        """Counters of the state, int64 each."""
        return self.strategy.length

    @property
    def slots(self) -> int:
        """Counters of a sketch: rows of the strategy; there may be fewer or more than cells."""
        return self.length

    @property
    def domain(self) -> ClosedDomain:
        """The cells, by their numbers."""
        return ClosedDomain(size=self.workload.size)

    def layer(self) -> LayerLaw:
        """The law of the layer at creation."""
        return self.law(self.epsilon, self.delta)

    def fresh(self) -> LayerLaw:
        """The law of the fresh layer at seal."""
        return self.law(self.epsilon_publish, self.delta_publish)

    def law(self, epsilon: Fraction, delta: Fraction) -> LayerLaw:
        """The law of a layer, or of a release's fresh noise, of this privacy; pure mechanisms have no delta."""
        if self.pure:
            return self.law_of(epsilon)
        alone = layer_law(self.mechanism, self.strategy, epsilon, delta, self.weight)
        if not self.counted_share:
            return alone
        # The noise of the events counted is small, so that the integers cost more there than `layer_law` knows: the
        # ledger's account decides.
        start = Fraction(math.ceil(alone.parameter / (1 - self.counted_share)))
        return replace(alone, parameter=raise_noise(start, Fraction(1), self.shift, self.unit, epsilon, delta))

    @cached_property
    def shift(self) -> UnitShift:
        """Shift of the queries' counters and of the events counted by one unit."""
        return self.shift_of(self.strategy.sensitivity2 * self.weight**2, self.length)

    @cached_property
    def variances(self) -> Floats:
        """(d,) variance of each answer for independent noise of variance 1 in each counter."""
        if isinstance(self.strategy, Implicit):
            return self.strategy.variances
        if self.strategy.form == "causal":
            return self.strategy.causal_variances / 4.0**self.strategy.bits
        if self.workload.size > MAX_COVARIANCE_CELLS:
            return self.workload.power_sums(self.strategy.decoder, 2)
        return np.maximum(self.workload.variances(self.strategy.cell_covariance), 0.0)

    @cached_property
    def heaviness(self) -> Floats:
        """(d,) sum of the fourth powers of each answer's coefficients in the counters, over the square of the second.

        It is 1 for an answer that reads one counter, and near 0 for one that averages many.
        """
        if isinstance(self.strategy, Implicit):
            fourth = self.strategy.fourths
        else:
            fourth = self.workload.power_sums(self.strategy.decoder, 4)
        return np.divide(fourth, self.variances**2, out=np.zeros_like(fourth), where=self.variances > 0)

    @property
    def integral(self) -> bool:
        """Whether unprojected answers are whole numbers, so that their noise is on the integers too."""
        strategy = self.strategy
        direct = strategy.form == "queries" and strategy.rank == strategy.length
        return direct or (strategy.form == "identity" and self.workload.integer)

    @property
    def measure(self) -> Literal["mu2", "epsilon"]:
        return "epsilon" if self.mechanism in PURE_LAWS else "mu2"

    def cost(self, law: LayerLaw) -> Fraction:
        """Cost of a layer or a view with this law in the ledger: mu^2 for Gaussian noise, epsilon for pure noise."""
        share = 1 - self.counted_share
        if law.name == "discrete-laplace":
            return law.parameter * self.weight * self.strategy.sensitivity1 / share
        square = self.strategy.sensitivity2 * self.weight**2
        if law.name == "discrete-gaussian":
            return square / (law.parameter * share)
        product = law.parameter * square
        return Fraction(math.isqrt(product.numerator), math.isqrt(product.denominator)) / share

    def law_of(self, cost: Fraction) -> LayerLaw:
        """The law of a layer or a view of this cost: the inverse of `cost`.

        Args:
            cost: mu^2 for Gaussian noise, epsilon for pure noise; of the queries' counters and all others.
        """
        return law_of_cost(self.mechanism, self.strategy, self.weight, cost * (1 - self.counted_share))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, canonical: it contains the queries and the strategy, so that any reader can answer."""
        out = self._plain("kind", "workload", "epsilon", "delta", "mechanism", "unit", "max_weight", "objective")
        out |= self._plain("capacity", "intrusion", "epsilon_publish", "delta_publish")
        out["strategy"] = self.strategy.to_bytes()
        out |= self._given("counted_share", "epsilon_records", "max_total", "n_bound")
        if self.row_weights is not None:
            out["row_weights"] = np.array(self.row_weights, "<f8").tobytes()
        return out | self._given("universe")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> WorkloadSpec:
        """See `LinearSpec`.

        Raises:
            FormatError: a strategy that is damaged, or made for other queries.
        """
        fields = cls._read_fields(data)
        if not {"workload", "strategy", "epsilon", "delta", "mechanism"} <= fields.keys():
            raise SpecError("the data of a workload's spec lack a field")
        workload = Workload.from_dict(fields.pop("workload"))
        strategy = read_strategy(fields.pop("strategy"), workload)
        if "row_weights" in fields:
            fields["row_weights"] = np.frombuffer(fields["row_weights"], "<f8").tolist()
        if "universe" in fields:
            fields["universe"] = Universe.from_dict(fields["universe"])
        return cls._from_fields(workload=workload, strategy=strategy, **fields)

    @cached_property
    def columns(self) -> StrategyColumns | Implicit:
        """The strategy's columns as updates add them."""
        return self.strategy if isinstance(self.strategy, Implicit) else StrategyColumns.of(self.strategy.matrix)

    @cached_property
    def locator(self) -> CellLocator:
        """Finds the cells of records, for specs with a universe."""
        assert self.universe is not None
        return CellLocator(self.universe)

    @cached_property
    def published_size(self) -> int:
        """Bytes of the queries and the strategy, which every published object carries."""
        factors = (factor.to_dict() for product in self.workload.products for factor in product)
        matrices = sum(len(value) for fields in factors for value in fields.values() if isinstance(value, bytes))
        return matrices + len(self.strategy.to_bytes())

    def cells(self, fields: Mapping[str, Sequence[object]]) -> Ints:
        """(n,) cell numbers of a batch of records, ready for `Sketch.update`; -1 for records that have none.

        Args:
            fields: values of each field, one a record, such as the columns of a data frame.

        Raises:
            SpecError: the spec has no universe, a field is missing, or lengths differ.
        """
        if self.universe is None:
            raise SpecError("this spec has no universe=, so records are given by their cell numbers")
        return self.universe.locate_fields(fields)


def _workload(value: object) -> Workload:
    """The queries, however they were given."""
    if isinstance(value, Workload):
        return value
    return Workload.named(value) if isinstance(value, str) else Workload.of_matrix(value)


def _row_weights(row_weights: Sequence[float] | None, count: int, objective: Objective) -> tuple[float, ...] | None:
    """Importance of each query, checked."""
    if row_weights is None:
        return None
    weights = np.asarray(row_weights, np.float64)
    if weights.shape != (count,) or not np.all(np.isfinite(weights)) or not np.all(weights > 0):
        raise SpecError(f"row_weights must be {count} positive numbers, one for each query")
    if objective != "total":
        raise SpecError("row_weights belongs to objective = 'total'")
    return tuple(weights.tolist())
