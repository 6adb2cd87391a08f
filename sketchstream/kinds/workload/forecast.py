"""Expected errors of a workload's answers, for planning.

In: a spec. Out: `WorkloadForecast`: the expected error of every answer, the sparse bound, memory. Touches: nothing.
Source: docs/theory/workload.md, sections 6 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.workload.answers import break_even
from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.kinds.workload.strategies.implicit import Implicit
from sketchstream.kinds.workload.strategies.mechanism import candidates


@dataclass(frozen=True, eq=False)
class WorkloadForecast:
    """Expected errors of the published answers.

    Args:
        stderr: (d,) standard deviation of each unprojected answer.
        lower: lower bound of the RMSE of any Gaussian unbiased mechanism with as many such layers; 0 for Laplace noise
            and for the objective "max". Implicit strategy with Laplace noise: a bound of all strategies with it.
        state_rmse: bound of the RMSE in a counter after projection with `n_bound`, over the one before; None without.
        break_even: individuals from which projection's guarantee is no better than the dense one.
    """

    stderr: Floats
    rmse: float
    worst: float
    layers: int
    lower: float
    counters: int
    state_rmse: float | None
    break_even: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the answers' own errors."""
        return {name: value for name, value in vars(self).items() if name != "stderr"}


@dataclass(frozen=True, eq=False)
class WorkloadPlan:
    """A spec and its alternatives, each with its forecast.

    Args:
        tried: pairs (spec, forecast) of every candidate, the chosen one among them, best first.
    """

    spec: WorkloadSpec
    chosen: WorkloadForecast
    tried: tuple[tuple[WorkloadSpec, WorkloadForecast], ...]

    def tables(self) -> list[dict[str, Any]]:
        """The expected standard errors of each set of queries."""
        cells = None if self.spec.universe is None else self.spec.universe.cells
        out = []
        for table in self.spec.workload.tables(cells):
            part = self.chosen.stderr[table.part]
            queries = " x ".join(
                axis.column if axis.queries == "identity" else f"{axis.queries}:{axis.column}" for axis in table.axes
            )
            out.append(
                {
                    "queries": queries or "total",
                    "answers": table.count,
                    "rmse": math.sqrt(float(np.mean(part**2))),
                    "smallest": float(part.min()),
                    "largest": float(part.max()),
                }
            )
        return out

    def mechanisms(self) -> list[dict[str, Any]]:
        """The alternatives: mechanism, strategy, number of counters, errors."""
        return [
            {
                "mechanism": spec.mechanism,
                "strategy": spec.strategy.form,
                "counters": expected.counters,
                "rmse": expected.rmse,
                "worst": expected.worst,
                "chosen": spec is self.spec,
            }
            for spec, expected in self.tried
        ]

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data."""
        return {
            "workload": {"cells": self.spec.workload.size, "queries": self.spec.workload.count},
            "mechanism": self.spec.mechanism,
            **self.chosen.to_dict(),
            "certified_gap": self.gap,
            "tables": self.tables(),
            "tried": self.mechanisms(),
        }

    @property
    def gap(self) -> float | None:
        """Most by which the objective may exceed that of the best Gaussian noise; None for pure noise.

        An implicit strategy with Laplace noise is compared with the best strategy with such noise.
        """
        strategy = self.spec.strategy
        if isinstance(strategy, Implicit):
            return (self.chosen.rmse / self.chosen.lower) ** 2 - 1 if self.chosen.lower else None
        return None if self.spec.pure or not strategy.least_total else strategy.total / strategy.least_total - 1


def plan(spec_of: Callable[..., WorkloadSpec], *, parts: int = 1) -> WorkloadPlan:
    """Compare the chosen mechanism with all others.

    Args:
        spec_of: the spec with this `mechanism` and `strategy`; "auto" without a strategy gives the chosen one.
    """
    spec = spec_of(mechanism="auto", strategy=None)
    ours = spec.mechanism, spec.strategy.form
    others = [
        spec_of(mechanism=candidate.mechanism, strategy=candidate.strategy)
        for candidate in candidates(spec.task, "auto")
        if (candidate.mechanism, candidate.strategy.form) != ours
    ]
    forecasts = [(tried, forecast(tried, parts=parts)) for tried in (spec, *others)]
    return WorkloadPlan(spec, forecasts[0][1], tuple(sorted(forecasts, key=lambda pair: pair[1].rmse)))


def forecast(spec: WorkloadSpec, *, parts: int = 1) -> WorkloadForecast:
    """Expected errors of what `seal` publishes, of this number of states that are added up."""
    laws = [spec.layer(), *([spec.fresh()] if spec.intrusion else [])] * parts
    variance = sum(law.variance for law in laws)
    stderr = np.sqrt(variance * spec.variances)
    unit, implicit = variance / spec.strategy.sensitivity2, isinstance(spec.strategy, Implicit)
    bounded = spec.objective == "total" and spec.row_weights is None and (implicit or not spec.pure)
    if implicit and spec.pure:  # a column's L2 norm is at most its L1 norm
        unit = sum(replace(law, parameter=law.parameter * spec.strategy.sensitivity1).variance for law in laws)
    bound = None
    if spec.n_bound is not None and not implicit:
        sparse = 2 * spec.n_bound * math.sqrt(2 * math.log(2 * spec.workload.size)) / math.sqrt(unit)
        bound = math.sqrt(min(1.0, sparse / spec.length))
    return WorkloadForecast(
        stderr=stderr,
        rmse=math.sqrt(float(np.mean(stderr**2))),
        worst=float(stderr.max()),
        layers=len(laws),
        lower=math.sqrt(unit * spec.strategy.least_total / spec.workload.count) if bounded else 0.0,
        counters=spec.length,
        state_rmse=bound,
        break_even=break_even(spec),
    )
