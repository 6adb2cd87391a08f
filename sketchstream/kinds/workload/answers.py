"""Answers of a workload from one published state: values, standard errors, intervals, named tables.

In: a spec, the laws of a published state's layers, the state. Out: `WorkloadAnswers`. Touches: nothing.
Source: docs/theory/workload.md, sections 6 (unbiased), 8 (projection) and 9 (intervals).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import EstimateError
from sketchstream.kinds.answers import ColumnValues
from sketchstream.kinds.linear.answers import BELOW_ZERO, LinearAnswers, below_zero, quantiles
from sketchstream.kinds.noise_sums import NoiseSum
from sketchstream.kinds.workload import pictures
from sketchstream.kinds.workload.queries.queries import ProductTable
from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.kinds.workload.strategies import projection
from sketchstream.kinds.workload.strategies.implicit import Implicit
from sketchstream.kinds.workload.strategies.mechanism import LayerLaw
from sketchstream.kinds.workload.strategies.projection import FeasibleSet, Metric
from sketchstream.kinds.workload.strategies.strategy import MAX_COVARIANCE_CELLS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RELATIVE_GAP: Final = 0.01
"""Gap at which a projection stops, relative to the expected squared distance."""
SD_ABOVE: Final = 3.0
"""Standard deviations that are added to an estimated number of individuals."""
FAR_ABOVE: Final = 4.0
MIN_TOTAL: Final = 0.5
MAX_SUMMED: Final = 64
"""Most counters in an answer for which the law of the noise is computed; with more, its kurtosis is enough."""
MAX_PROJECTED: Final = 1 << 21
"""Most entries of a strategy with which answers are projected by default."""


@dataclass(frozen=True, eq=False)
class WorkloadAnswers(LinearAnswers):
    """Answers to all queries of a workload.

    Args:
        values: (d,) answers, in units of weight.
        stderr: (d,) standard deviation of each answer before projection; after it, a figure that is rarely exceeded.
        tails: (d,) excess kurtosis of each answer's noise; 0 for Gaussian noise.
        layer_count: number of noise layers in the publication.
        projected: the set on which the answers were projected, or None.
        gap: certified gap of the projection.
        steps: number of steps of the projection.
        n_bound: bound of the number of individuals that was used.
        unprojected: (d,) the answers before projection, on which intervals stand; None where there is none.
        integral: whether the unprojected answers and their noise are whole numbers; then intervals are closed at whole
            numbers, and hold at least at their level.
        epsilons: epsilons of the discrete Laplace noise of each layer; none for other noise.
    """

    question = "queries"

    spec: WorkloadSpec = field(repr=False)
    values: Floats
    stderr: Floats
    tails: Floats
    tables: tuple[ProductTable, ...]
    layer_count: int
    projected: FeasibleSet | None = None
    gap: float | None = None
    steps: int = 0
    n_bound: float | None = None
    unprojected: Floats | None = field(default=None, repr=False)
    integral: bool = False
    epsilons: tuple[Fraction, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = field(default=())

    @property
    def method(self) -> str:  # type: ignore[override]
        """The set on which the answers were projected, or "unbiased"."""
        return self.projected or "unbiased"

    def _ends(self, level: float) -> tuple[Floats, Floats]:
        """Ends of intervals around the answers before projection, by the variance and kurtosis of each answer's noise.

        Ends are cut by what is known of the histogram, and moved outwards to contain the projected answer.
        """
        grid, factors = quantiles(level)
        half = np.interp(self.tails, grid, factors) * self.stderr
        if self.integral:  # the noise is a whole number: an end at k covers up to k + 1/2 of the continuous law
            half = np.ceil(half - 0.5)
            for counters in np.unique(self._sums[self._sums <= MAX_SUMMED]) if self.epsilons else ():
                half[self._sums == counters] = NoiseSum(self.epsilons * int(counters)).ends(level)[1]
        if self.unprojected is None:
            return self.values - half, self.values + half
        low = self.unprojected - half
        if self.projected != "sym" and self.spec.workload.nonnegative:
            low = np.maximum(low, 0.0)
        return np.minimum(low, self.values), np.maximum(self.unprojected + half, self.values)

    @cached_property
    def _sums(self) -> Floats:
        """(d,) how many counters a whole-number answer is the sum of; infinite where one has another factor than 1."""
        variances = self.spec.variances
        return np.where(np.abs(self.spec.heaviness * variances - 1) < 1e-9, np.rint(variances), np.inf)

    def table(self, name: str) -> Floats:
        """The values of one table, one axis for each of its columns.

        Raises:
            EstimateError: no table has this name.
        """
        for table in self.tables:
            if table.name == name:
                return self.values[table.part].reshape(table.shape)
        raise EstimateError(f"no table of this name; there are {', '.join(table.name for table in self.tables)}")

    @cached_property
    def labels(self) -> Mapping[str, ColumnValues]:
        """Each answer's table and its cell in it; None in columns that the table sums over."""
        names = dict.fromkeys(axis.column for table in self.tables for axis in table.axes)
        columns: dict[str, list[Any]] = {"table": [], **{name: [] for name in names}}
        for table in self.tables:
            cells = np.unravel_index(np.arange(table.count), table.shape) if table.axes else ()
            labels = {
                axis.column: [axis.labels[place] for place in places.tolist()]
                for axis, places in zip(table.axes, cells, strict=True)
            }
            labels["table"] = [table.name] * table.count
            for name in columns:
                columns[name] += labels.get(name, [None] * table.count)
        return columns

    def more(self, level: float) -> dict[str, Any]:
        return {
            "mechanism": self.spec.mechanism,
            "projected": self.projected,
            "gap": self.gap,
            "n_bound": self.n_bound,
            "tables": [
                {
                    "name": table.name,
                    "offset": table.offset,
                    "shape": list(table.shape),
                    "columns": [
                        {"name": axis.column, "queries": axis.queries, "labels": list(axis.labels)}
                        for axis in table.axes
                    ],
                }
                for table in self.tables
            ],
            "notes": list(self.notes),
        }

    def _draw(self, tables: Sequence[str] | None = None) -> Figure:
        return pictures.draw(self.tables, self.values, self.interval(), self.spec.mechanism, tables)

    def _noted(self) -> str:
        return " ".join(str(self).splitlines())

    def __str__(self) -> str:
        how = "" if self.projected is None else f", projected on histograms of at most {self.n_bound:.6g}"
        lines = [f"{len(self.values)} answers, {self.spec.mechanism} noise, {self.layer_count} layer(s){how}"]
        for table in self.tables:
            sizes = " x ".join(map(str, table.shape)) or "1"
            errors = self.stderr[table.part]
            lines.append(f"  {table.name}: {sizes}, standard error {errors.min():.4g} to {errors.max():.4g}")
        return "\n".join([*lines, *self.notes])


def estimate(
    spec: WorkloadSpec,
    laws: Sequence[LayerLaw],
    state: Ints,
    *,
    feasible: FeasibleSet | Literal["auto"] | None = None,
    metric: Metric | None = None,
    n_bound: float | None = None,
    cells: Sequence[tuple[str, ...]] | None = None,
) -> WorkloadAnswers:
    """Answers from one published state.

    Args:
        laws: laws of every layer and of the fresh noise that the state holds.
        feasible: set on which to project, or None for the unbiased answers; "auto" projects on "cap" where a bound of
            the number of individuals is known and the strategy is not large.
        metric: "state" (distance in counters, which have equal noise), "answers", or "both"; default "state", and for
            "auto" "both" where the answers would else move farther than their noise explains.
        n_bound: bound of the number of individuals; default that of the spec, or an estimate from the answers where
            the queries determine the total.
        cells: names of each column's cells (default: those of the spec's universe).
    """
    if state.shape != (spec.length,) or not laws:
        raise EstimateError(f"expected a published state of {spec.length} counters and the laws of its noise")
    strategy, workload, variances = spec.strategy, spec.workload, spec.variances
    point = state.astype(np.float64)
    variance = sum(law.variance for law in laws)
    stderr = np.sqrt(variance * variances)
    tails = _tails(spec, laws, variances)
    if cells is None and spec.universe is not None:
        cells = spec.universe.cells
    tables = tuple(workload.tables(cells))
    epsilons = tuple(law.parameter for law in laws if law.name == "discrete-laplace")
    base: dict[str, Any] = {"stderr": stderr, "tables": tables, "layer_count": len(laws)}
    base |= {"integral": spec.integral, "epsilons": epsilons}
    known_bound = spec.n_bound if n_bound is None else n_bound
    if metric not in (None, *projection.METRICS):
        raise EstimateError(f"metric must be one of {', '.join(projection.METRICS)}, found {metric!r:.40}")
    if isinstance(strategy, Implicit) and feasible not in (None, "auto", "cap"):
        raise EstimateError(
            f"{feasible!r:.40} needs the matrix of the strategy, which has none; use method 'cap' or 'unbiased'"
        )
    total, total_sd = (None, 0.0) if feasible is None else _total(spec, state, variance)
    bias = _bias_notes(spec, n_bound, float(stderr.min(initial=math.inf, where=stderr > 0)))
    raw = strategy.answers(state) if isinstance(strategy, Implicit) else workload.apply(strategy.estimate(point))
    raw = np.rint(raw) if spec.integral else raw
    below: tuple[str, ...] = ()
    if workload.nonnegative and below_zero(raw, stderr, gaussian=not spec.pure):
        feasible = None if feasible == "auto" else feasible
        cut = "nothing is cut at 0" if feasible is None else "this method cuts them off, use 'unbiased'"
        below = (f"{BELOW_ZERO}; {cut}",)
    quick = strategy.form == "identity" if isinstance(strategy, Implicit) else strategy.matrix.size <= MAX_PROJECTED
    if feasible is None or (feasible == "auto" and (not quick or (known_bound is None and total is None))):
        return WorkloadAnswers(spec, raw, tails=tails, notes=(*bias, *below), **base)
    if known_bound is None and total is None:
        raise EstimateError(
            "projection needs n_bound=, or queries that determine the total; add the total to the workload"
        )
    bound = float(known_bound) if known_bound is not None else max((total or 0.0) + SD_ABOVE * total_sd, 1.0)
    if feasible == "auto" and total is not None:
        # Without it, answers over many empty cells would add up what is left of noise where negative parts are cut.
        bound = min(bound, max(total + (0.0 if known_bound is None else total_sd), MIN_TOTAL))
    if not bound > 0:
        raise EstimateError("n_bound must be above 0")
    notes = [*bias] if feasible == "auto" else [*below, _help_note(spec, bound)]
    if known_bound is not None and total is not None and total > bound + FAR_ABOVE * total_sd:
        notes.append("n_bound looks too small: the answers would be biased; it is not enlarged")

    projected = _project_state(spec, state, variance, bound, feasible, metric or "state")
    moved = float(np.sum((workload.apply(projected.histogram) - raw) ** 2))
    if metric is None and feasible == "auto" and moved > projection.MAX_MOVED_SHARE * variance * float(variances.sum()):
        projected = _project_state(spec, state, variance, bound, feasible, "both")
    return WorkloadAnswers(
        spec,
        workload.apply(projected.histogram),
        tails=tails,
        unprojected=raw,
        projected="cap" if feasible == "auto" else feasible,
        gap=projected.gap,
        steps=projected.steps,
        n_bound=bound,
        notes=tuple(note for note in notes if note),
        **base,
    )


def _project_state(
    spec: WorkloadSpec,
    state: Ints,
    variance: float,
    bound: float,
    feasible: FeasibleSet | Literal["auto"],
    metric: Metric,
) -> projection.Projected:
    """The possible histogram that is nearest to a state, whose counters have noise of this variance; see `estimate`."""
    strategy, workload, total = spec.strategy, spec.workload, float(spec.variances.sum())
    across = metric == "answers" and not isinstance(strategy, Implicit)
    noise = variance * (total if across else spec.length)
    farthest = math.sqrt(_largest(spec) if across else strategy.sensitivity2)
    sparse = 2 * bound * farthest * math.sqrt(variance * 2 * math.log(2 * workload.size))
    tolerance = RELATIVE_GAP * min(noise, sparse)
    if isinstance(strategy, Implicit):
        return strategy.nearest(state, bound, tolerance, metric)
    point = state.astype(np.float64)
    left, columns = projection.stretch_metric(workload, strategy, metric, total)
    target = point if left is None else left @ point
    where = "cap" if feasible == "auto" else feasible
    return projection.nearest(target, columns, bound, strategy.estimate(point), tolerance, where)


def break_even(spec: WorkloadSpec) -> float:
    """Number of individuals from which the guarantee of a projection is no better than the dense one; 0 without one."""
    sigma = math.sqrt(spec.layer().variance / spec.strategy.sensitivity2)
    return sigma * spec.length / (2 * math.sqrt(2 * math.log(2 * spec.workload.size)))


def _tails(spec: WorkloadSpec, laws: Sequence[LayerLaw], variances: Floats) -> Floats:
    """(d,) excess kurtosis of each answer's noise."""
    if not spec.pure:
        return np.zeros_like(variances)
    total = sum(law.variance for law in laws)
    mixed = sum((law.variance / total) ** 2 * 3 / law.shape for law in laws)
    return np.full_like(variances, mixed) if spec.mechanism == "l2ball" else mixed * spec.heaviness


def _total(spec: WorkloadSpec, state: Ints, variance: float) -> tuple[float | None, float]:
    """Estimate of the number of individuals and its standard deviation; None if the queries do not determine it."""
    strategy = spec.strategy
    if isinstance(strategy, Implicit):
        if not strategy.levels:
            return None, 0.0
        total, unit = strategy.individuals(state)
        return total, math.sqrt(variance * unit)
    back = strategy.sum_coefficients
    if np.abs(back @ strategy.matrix - 1).max() > 1e-8:
        return None, 0.0
    return float(back @ state), math.sqrt(variance * float(back @ back))


def _largest(spec: WorkloadSpec) -> float:
    """Largest c' S c over the columns c of the queries; S for noise of variance 1."""
    if spec.workload.size > MAX_COVARIANCE_CELLS and spec.workload.writable:
        matrix = spec.workload.dense()
        return float(np.sum(((matrix @ spec.strategy.decoder).T @ matrix) ** 2, axis=0).max())
    gram = spec.workload.gram()
    return float(np.einsum("ij,jk,ki->i", gram, spec.strategy.cell_covariance, gram, optimize=True).max())


def _help_note(spec: WorkloadSpec, bound: float) -> str:
    """Note on the guarantee of the projection where it is no better than the dense one; else empty."""
    limit = break_even(spec)
    if bound <= limit:
        return ""
    return (
        f"projection is only sure to help up to {limit:.0f} individuals, here {bound:.6g}: beyond that it helps where "
        f"they are concentrated in few cells"
    )


def _bias_notes(spec: WorkloadSpec, n_bound: float | None, smallest: float) -> tuple[str, ...]:
    """The largest bias from rounding real queries, if it is not negligible."""
    if spec.strategy.form != "rounded":
        return ()
    matrix = spec.workload.dense()
    off = float(np.abs(matrix @ spec.strategy.decoder @ spec.strategy.matrix - matrix).max())
    bound = spec.n_bound if n_bound is None else n_bound
    total = float(spec.capacity if bound is None else bound)
    if off * total <= 0.01 * smallest:
        return ()
    return (f"answers may be biased by up to {off:.3g} times the number of individuals: real queries were rounded",)
