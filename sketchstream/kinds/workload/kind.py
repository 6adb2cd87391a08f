"""The kind `workload` as the engine sees it.

In: calls of the engine. Out: noise, updates, published states and answers of a batch of linear queries.
Touches: the states it is given, and entropy through `noise`.
Source: docs/theory/workload.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from sketchstream.array_types import Flags, Ints, State
from sketchstream.errors import SpecError
from sketchstream.items.arrays import Items
from sketchstream.items.events import Events
from sketchstream.kinds.expansion import Expansion
from sketchstream.kinds.exports import USUAL, AnswerRows
from sketchstream.kinds.intake import Intake
from sketchstream.kinds.interface import Progress
from sketchstream.kinds.linear.answers import parts_of, sum_parts
from sketchstream.kinds.linear.events import ColumnIndex, place_indices
from sketchstream.kinds.linear.kind import LinearAccounting, LinearKind, unit_of_places
from sketchstream.kinds.options import require_method, require_options
from sketchstream.kinds.workload.answers import WorkloadAnswers, estimate
from sketchstream.kinds.workload.forecast import forecast
from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.kinds.workload.strategies.mechanism import PURE_LAWS, LawName, LayerLaw, add_noise
from sketchstream.kinds.workload.strategies.strategy import declared_size
from sketchstream.privacy.deployments.guarantee import RELATION

if TYPE_CHECKING:
    from sketchstream.items.key import Key
    from sketchstream.privacy.deployments.surroundings import Context
    from sketchstream.privacy.ledgers.sketch_history import SketchHistory
    from sketchstream.provenance import Origin
    from sketchstream.published import Published

MAX_PUBLISHED_BYTES: Final = 48 << 20
"""Bytes of a strategy and its workload, at most: published objects carry them in their header."""
METHODS: Final = ("auto", "unbiased", "cap", "simplex", "sym")


class TableCells(ColumnIndex):
    """Where items go: cells of the table. Every cell moves a whole column of counters."""

    spec: WorkloadSpec

    def locate(self, items: Items) -> Ints:
        """(n,) cell of each item; -1: it has none.

        Integers are cell numbers. Text is read with the spec's universe: the values of its columns, in their order,
        with tabs between them.
        """
        universe = self.spec.universe
        return place_indices(items, self.spec.workload.size, None if universe is None else universe.locate_text)

    def add(self, state: Ints, places: Ints, weights: Ints | None) -> None:
        self.spec.columns.add(state, places, weights)


class WorkloadAccounting(LinearAccounting[WorkloadSpec]):
    """Costs are mu^2, or epsilons of pure noise."""

    def law(self, spec: WorkloadSpec) -> LawName:
        return PURE_LAWS.get(spec.mechanism, "discrete-gaussian")

    def noise_cost(self, spec: WorkloadSpec, epsilon: Fraction, delta: Fraction) -> Fraction:
        if not spec.pure and not delta:
            raise SpecError("delta must be > 0 for Gaussian noise")
        return spec.cost(spec.law(epsilon, delta))

    def parameter(self, spec: WorkloadSpec, cost: Fraction) -> Fraction:
        """Parameter of the law in each counter; for the ball's noise its epsilon."""
        return cost if spec.mechanism == "l2ball" else spec.law_of(cost).parameter

    def cost(self, spec: WorkloadSpec, parameter: Fraction) -> Fraction:
        if spec.mechanism == "l2ball":
            return parameter
        return spec.cost(LayerLaw(self.law(spec), parameter, spec.length))


class WorkloadIntake(Intake[WorkloadSpec]):
    """Cells by the columns of the universe, or by their numbers."""

    def roles(self, spec: WorkloadSpec) -> tuple[str, ...]:
        """The columns of the universe; a spec without one takes cell numbers as items."""
        return () if spec.universe is None else tuple(column.name for column in spec.universe.columns)

    def events(self, spec: WorkloadSpec, given: Events) -> Events:
        """Cell numbers; a record without a cell is not an event."""
        usual = super().events(spec, given)
        if spec.universe is None:
            return usual
        cells = spec.locator.locate(given.columns)
        return usual.counted(Items.of(cells), cells >= 0)


class WorkloadKind(LinearKind[WorkloadSpec]):
    """Integer combinations of the cells' counts, under joint noise; answers are those of a fixed batch of queries."""

    name = "workload"
    partitions = "merge"
    promised_for_all_partitions = True
    spec_type = WorkloadSpec
    accounting = WorkloadAccounting()
    intake = WorkloadIntake()

    def expansion(self, data: Mapping[str, Any]) -> Expansion:
        """The strategy's matrix, 8 bytes an element, even where the spec describes it without listing its elements."""
        return Expansion(8 * declared_size(data.get("strategy")))

    # Descriptions and the statement.

    def facts_of_kind(self, spec: WorkloadSpec, slots: int) -> list[tuple[str, str]]:
        return [
            ("table", " x ".join(f"{name} ({size:,})" for name, size in spec.workload.columns)),
            ("queries", f"{spec.workload.count:,}"),
            ("mechanism", spec.mechanism),
            ("counters", f"{slots:,}"),
        ]

    def unit_in_words(self, spec: WorkloadSpec) -> str:
        return unit_of_places(spec, "cell")

    def relation(self, spec: WorkloadSpec) -> tuple[str, ...]:
        return (
            f"{RELATION}to move an event to another cell is two changes: twice the epsilon of pure noise, four times "
            "the mu^2 of Gaussian noise",
        )

    def assumes(self, spec: WorkloadSpec, ledger: SketchHistory, context: Context) -> tuple[str, ...]:
        how = "delta = 0 up to the cipher" if spec.pure else "delta is stated above, and the cipher's is not counted"
        lines = [
            f"AES-256: this is computational differential privacy, {how}; the samplers are exact",
            "the queries, the table's columns and all parameters were not chosen from the data",
            "the sensitivities are those of the integer strategy in the spec, computed from its integers",
        ]
        if spec.max_total is not None:
            lines.append(
                f"the absolute weights of one item's events add up to at most {spec.max_total} over all partitions of "
                "a window, as its source promises (max_total)"
            )
        return tuple(lines)

    # Updates and states.

    def index(
        self, spec: WorkloadSpec, key: Key | None, keep: Flags | None, origin: Origin | None = None
    ) -> TableCells:
        self.require_all_places(keep)
        size = spec.published_size
        if size > MAX_PUBLISHED_BYTES:
            most = f"{MAX_PUBLISHED_BYTES:,}"
            raise SpecError(
                f"the workload and its strategy take {size:,} bytes, {most} can be published; ask fewer queries"
            )
        return TableCells(spec)

    def draw(self, spec: WorkloadSpec, state: State, cost: Fraction, progress: Progress | None = None) -> None:
        add_noise(spec.law_of(cost), state)
        if progress is not None:
            progress(spec.length)

    # Answers.

    def rows(self, spec: WorkloadSpec) -> AnswerRows:
        """A table's name, the columns of all tables, the answer."""
        return AnswerRows(("table", *spec.workload.axes, *USUAL), "answer.0")

    def expected_error(self, spec: WorkloadSpec) -> tuple[str, float]:
        """The error of all answers together."""
        return "answer", forecast(spec).rmse

    def estimate(self, published: Published, **options: Any) -> WorkloadAnswers:
        """Answers to all queries, with standard errors and intervals.

        Args:
            options: `method`: "auto" projects on the histograms without negative cells, of at most `n_bound`
                individuals or as many as the answers allow; "unbiased" does not project; "cap", "simplex" and "sym"
                project on the histograms of few individuals (docs/theory/workload.md, section 8). `metric` ("state",
                "answers" or "both") and `n_bound`: of the projection.
        """
        method = options.pop("method", "auto")
        require_method(method, METHODS)
        require_options(self.name, options, ("metric", "n_bound"))
        parts = parts_of(self, published)
        spec: WorkloadSpec = published.spec
        laws = [spec.law_of(self.accounting.cost(spec, parameter)) for part in parts for parameter in part.parameters]
        feasible = None if method == "unbiased" else method
        return estimate(spec, laws, sum_parts(spec, parts), feasible=feasible, **options).computed_from(published)


KIND: Final = WorkloadKind()
