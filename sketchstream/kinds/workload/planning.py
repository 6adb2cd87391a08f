"""What a workload's answers will be worth, before anything is created.

In: a spec. Out: `Forecast`: the expected error of every answer, the sparse bound, memory. Touches: nothing.
Source: docs/theory/workload.md, sections 6 and 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchstream.kinds.workload.answers import break_even
from sketchstream.kinds.workload.factors import Floats
from sketchstream.kinds.workload.spec import WorkloadSpec


@dataclass(frozen=True, eq=False)
class Forecast:
    """Expected errors of the published answers.

    Args:
        stderr: (d,) standard deviation of each unprojected answer.
        rmse: root of the mean squared error over all answers.
        worst: largest standard deviation.
        layers: layers of noise in what is published.
        lower: lower bound of the RMSE of any Gaussian unbiased mechanism with as many such layers; 0 for Laplace noise
            and for the objective "max".
        counters: int64 counters of the state.
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
        return {
            "rmse": self.rmse,
            "worst": self.worst,
            "layers": self.layers,
            "lower": self.lower,
            "counters": self.counters,
            "state_rmse": self.state_rmse,
            "break_even": self.break_even,
        }


def forecast(spec: WorkloadSpec, *, merged: int = 1) -> Forecast:
    """Expected errors of what `seal` publishes.

    Args:
        spec: of the sketch.
        merged: number of sketches that are merged before, each with its own layer.
    """
    laws = [spec.layer()] * merged + ([spec.fresh()] if spec.intrusion else [])
    variance = sum(law.variance for law in laws)
    stderr = np.sqrt(variance * spec.variances)
    unit = variance / spec.strategy.sensitivity2
    gaussian = not spec.pure and spec.objective == "total" and spec.row_weights is None
    bound = None
    if spec.n_bound is not None:
        sparse = 2 * spec.n_bound * math.sqrt(2 * math.log(2 * spec.workload.size)) / math.sqrt(unit)
        bound = math.sqrt(min(1.0, sparse / spec.length))
    return Forecast(
        stderr=stderr,
        rmse=math.sqrt(float(np.mean(stderr**2))),
        worst=float(stderr.max()),
        layers=len(laws),
        lower=math.sqrt(unit * spec.strategy.lower / spec.workload.count) if gaussian else 0.0,
        counters=spec.length,
        state_rmse=bound,
        break_even=break_even(spec),
    )
