"""The kind `workload` as the engine sees it.

In: calls of the engine. Out: noise, updates, published states and answers of a batch of linear queries.
Touches: the states it is given, and entropy through `noise`.
Source: docs/theory/workload.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.errors import SpecError
from sketchstream.items import Items, as_weights
from sketchstream.kinds.expansion import Expansion
from sketchstream.kinds.interface import AnyLedger, Events, Given, Mask, Progress, State
from sketchstream.kinds.linear.events import located
from sketchstream.kinds.linear.kind import LinearKind
from sketchstream.kinds.linear.publication import require_method, require_options, shown
from sketchstream.kinds.workload import statement
from sketchstream.kinds.workload.answers import WorkloadAnswers, estimate
from sketchstream.kinds.workload.factors import Ints
from sketchstream.kinds.workload.mechanism import Law
from sketchstream.kinds.workload.noise import add_noise
from sketchstream.kinds.workload.planning import forecast
from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.kinds.workload.strategy import declared_size
from sketchstream.kinds.workload.update import check_events, check_weights, drop_events
from sketchstream.privacy.gaussian import UnitShift
from sketchstream.privacy.gaussian_ledger import GaussianLedger
from sketchstream.spec import Item

if TYPE_CHECKING:
    from sketchstream.batch import Invalid, Outside
    from sketchstream.hashing import Key
    from sketchstream.privacy.guarantee import Context
    from sketchstream.published import Published

LAWS: Final = {"laplace": "discrete-laplace", "l2ball": "discrete-ball"}
"""Law of each mechanism with pure noise; the others are Gaussian."""
LARGEST: Final = 48 << 20
"""Bytes of a strategy and its workload, at most: published objects carry them in their header."""
METHODS: Final = ("auto", "unbiased", "cap", "simplex", "sym")


@dataclass(frozen=True, eq=False)
class Cells:
    """Where items go: cells of the table. Every cell moves a whole column of counters.

    Args:
        spec: spec of the sketch.
    """

    spec: WorkloadSpec

    @property
    def slots(self) -> int:
        """Counters of a sketch."""
        return self.spec.length

    def locate(self, items: Items) -> npt.NDArray[np.int64]:
        """(n,) cell of each item; -1: it has none.

        Integers are cell numbers. Text is read with the spec's universe: the values of its columns, in their order,
        with tabs between them.
        """
        universe = self.spec.universe
        return located(items, self.spec.workload.size, None if universe is None else universe.locate_text)

    def apply_sums(
        self, state: State, items: Items, sums: Ints, events: Ints, *, invalid: Outside, counters: Ints
    ) -> None:
        """See `LinearKind.update_sums`."""
        cells = self.locate(items)
        spec = self.spec
        if invalid == "error":
            check_events(cells, None, spec.workload.size, spec.max_weight)
        spec.columns.add(state, cells, sums)
        if counters.size:
            counters[0] += events[cells >= 0].sum()


class WorkloadKind(LinearKind[WorkloadSpec]):
    """Integer combinations of the cells' counts, under joint noise; answers are those of a fixed batch of queries."""

    name = "workload"
    answer = "estimate"
    partitions = "merge"
    spec_type = WorkloadSpec

    def expansion(self, data: Mapping[str, Any]) -> Expansion:
        """The matrix of the strategy, of which some forms have no bytes, in the 8 bytes that an element takes."""
        return Expansion(8 * declared_size(data.get("strategy")))

    def read_spec(self, data: Mapping[str, Any], items: Sequence[Item] | None = None) -> WorkloadSpec:
        """See `WorkloadSpec.from_dict`."""
        del items
        return WorkloadSpec.from_dict(data)

    def usual_number(self, spec: WorkloadSpec) -> str:
        """The first answer."""
        del spec
        return "answer.0"

    def header(self, spec: WorkloadSpec) -> tuple[str, ...]:
        """A table's name, the columns of all tables, the answer."""
        cells = None if spec.universe is None else spec.universe.cells
        axes = dict.fromkeys(axis.column for table in spec.workload.tables(cells) for axis in table.axes)
        return ("table", *axes, "value", "stderr", "low", "high")

    def described(self, spec: WorkloadSpec, slots: int) -> list[tuple[str, str]]:
        """The table, the queries, and how they are answered."""
        return [
            ("table", " x ".join(f"{name} ({size:,})" for name, size in spec.workload.columns)),
            ("queries", f"{spec.workload.count:,}"),
            ("mechanism", spec.mechanism),
            ("counters", f"{slots:,}"),
        ]

    def expected_error(self, spec: WorkloadSpec) -> tuple[str, float]:
        """The error of all answers together."""
        return "answer", forecast(spec).rmse

    # Costs of noise.

    def law(self, spec: WorkloadSpec) -> str:
        """Discrete Gaussian, discrete Laplace, or the ball's."""
        return LAWS.get(spec.mechanism, "discrete-gaussian")

    def noise_cost(self, spec: WorkloadSpec, epsilon: Fraction, delta: Fraction) -> Fraction:
        """mu^2, or epsilon of pure noise."""
        if not spec.pure and not delta:
            msg = "delta must be > 0 for Gaussian noise"
            raise SpecError(msg)
        return spec.cost(spec.law(epsilon, delta))

    def account(self, spec: WorkloadSpec) -> tuple[type[GaussianLedger], UnitShift]:
        """mu^2 of the queries' counters and of the events counted."""
        return GaussianLedger, spec.shift

    def parameter(self, spec: WorkloadSpec, cost: Fraction) -> Fraction:
        """Parameter of the law in each counter; for the ball's noise its epsilon."""
        return cost if spec.mechanism == "l2ball" else spec.law_of(cost).parameter

    def cost(self, spec: WorkloadSpec, parameter: Fraction) -> Fraction:
        """mu^2 of Gaussian noise, epsilon of pure noise."""
        if spec.mechanism == "l2ball":
            return parameter
        return spec.cost(Law(self.law(spec), parameter, spec.length))  # type: ignore[arg-type]

    def protects(self, spec: WorkloadSpec, ledger: AnyLedger) -> tuple[str, ...]:
        """See `statement.protects`."""
        return statement.protects(spec, ledger)

    def assumes(self, spec: WorkloadSpec, ledger: AnyLedger, around: Context) -> tuple[str, ...]:
        """See `statement.assumes`."""
        del ledger, around
        return statement.assumes(spec)

    def promised_for_all_partitions(self, spec: WorkloadSpec) -> bool:
        """`max_total` is over all partitions."""
        del spec
        return True

    # Updates and states.

    def slots(self, spec: WorkloadSpec) -> int:
        """Rows of the strategy; there may be fewer or more than cells."""
        return spec.length

    def index(self, spec: WorkloadSpec, key: Key | None, keep: Mask | None) -> Cells:
        """Index of cells by their numbers. Cells cannot be selected, as every counter counts many of them.

        Raises:
            SpecError: a selection, or a strategy that is too large to be published.
        """
        del key
        if keep is not None:
            msg = "keep does not apply to kind 'workload': its counters count combinations of cells"
            raise SpecError(msg)
        size = spec.published_size
        if size > LARGEST:
            msg = f"the workload and its strategy take {size:,} bytes, {LARGEST:,} can be published; ask fewer queries"
            raise SpecError(msg)
        return Cells(spec)

    def roles(self, spec: WorkloadSpec) -> tuple[str, ...]:
        """The columns of the universe; a spec without one takes cell numbers as items."""
        return () if spec.universe is None else tuple(column.name for column in spec.universe.columns)

    def events(self, spec: WorkloadSpec, given: Given) -> Events:
        """Cell numbers; a record without a cell is not an event."""
        usual = super().events(spec, given)
        if spec.universe is None:
            return usual
        cells = spec.locator.locate(given.columns)
        good = cells >= 0
        return Events(Items.of(cells), usual.weights, good if usual.good is None else good & usual.good)

    def draw(self, spec: WorkloadSpec, state: State, cost: Fraction, progress: Progress | None = None) -> None:
        """Exact noise of the law that this cost has."""
        add_noise(spec.law_of(cost), state)
        if progress is not None:
            progress(spec.length)

    def update(
        self,
        spec: WorkloadSpec,
        index: Cells,
        state: State,
        items: Items,
        weights: object,
        *,
        counters: npt.NDArray[np.int64],
        invalid: Invalid,
    ) -> None:
        """Add each event's column, times its weight, wrapping."""
        given = as_weights(weights, len(items), alone=invalid == "noop")
        cells = index.locate(items)
        sizes: Ints | None = None if weights is None else given.astype(np.int64, copy=False)
        if invalid == "error":
            check_events(cells, sizes, spec.workload.size, spec.max_weight)
        elif invalid == "skip":
            check_weights(sizes, spec.max_weight)
        else:
            cells, sizes = drop_events(cells, sizes, spec.workload.size, spec.max_weight)
        spec.columns.add(state, cells, sizes)
        if counters.size:
            counters[0] += np.count_nonzero(cells >= 0)

    # Answers.

    def estimate(self, published: Published, **options: Any) -> WorkloadAnswers:
        """Answers to all queries, with standard errors and intervals.

        Args:
            published: parts of a stack are added up.
            options: `method`: "auto" projects on the histograms without negative cells, of at most `n_bound`
                individuals or as many as the answers allow; "unbiased" does not project; "cap", "simplex" and "sym"
                project on the histograms of few individuals (docs/theory/workload.md, section 8). `metric` and
                `n_bound`: of the projection.

        Raises:
            EstimateError: another method or option, or a projection that does not apply.
        """
        method = options.pop("method", "auto")
        require_method(method, METHODS)
        require_options(self.name, options, ("metric", "n_bound"))
        parts = shown(self, published)
        spec: WorkloadSpec = parts[0].spec
        laws = [spec.law_of(self.cost(spec, one)) for part in parts for one in part.parameters]
        feasible = None if method == "unbiased" else method
        state = self.add(spec, [part.numbers for part in parts])
        return estimate(spec, laws, state, feasible=feasible, **options).about(published)


KIND: Final = WorkloadKind()
