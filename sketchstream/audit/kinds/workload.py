"""Audit of kind `workload`: noise, updates, answers, ledgers, and the event with the largest privacy loss.

In: specs with every mechanism. Out: findings for `sketchstream.audit.report`. Touches: entropy, through the sketches
it creates.
Source: docs/theory/workload.md sections 2, 6 and 7.

Nothing here calls internals of sketches. The queries are written again, sensitivities are sums of Python
integers over the published strategy, sigma comes from the divergence of two normal laws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.audit.cases import Case, Check, Number
from sketchstream.audit.kinds.linear import ERRORS, EXCESS, MatrixAudit, case, law_beside_counter, moves_of, reach_of
from sketchstream.audit.observed import Outcome, find_repeated_noise, variance_of_unit
from sketchstream.kinds.workload.queries.queries import Workload
from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.kinds.workload.strategies.implicit import Implicit
from sketchstream.noise import laws


@lru_cache(maxsize=2)
def specs(epsilon: str = "1") -> dict[str, WorkloadSpec]:
    """Specs with every mechanism, unit and form of a strategy, each of this epsilon."""
    common = {"mechanism": "gaussian", "epsilon_publish": "3/4"}
    return {
        name: WorkloadSpec(asked, epsilon, "1e-6", **{**common, **given})
        for name, (asked, _, given) in _specs_tried().items()
    }


def _specs_tried() -> dict[str, tuple[Any, Floats, dict[str, Any]]]:
    """Queries of each spec, the same queries as a matrix, and the spec's other fields."""
    real = np.random.default_rng(8).normal(size=(6, 40)).round(3)
    prefixes, ranges, tables = np.tri(128), _ranges(48), _tables((2,) * 6, 2)
    blocks = Implicit(Workload.named("prefix:128"), ((1, 3000), (8, 2000), (32, 1000)))
    counted = {"counted_share": "1/4", "epsilon_records": "1/5"}
    return {
        "event, prefixes": ("prefix:128", prefixes, {}),
        "event, bare prefixes": ("prefix:128", prefixes, {"intrusion": False, "epsilon_publish": None}),
        "event, weights to 5, tables": ("marginals:6:2", tables, {"max_weight": 5}),
        "item, ranges": ("ranges:48", ranges, {"unit": "item", "max_total": 9, "max_weight": 4}),
        "event, matrix": (real, real, {}),
        "event, smallest maximum": ("prefix:32", np.tri(32), {"objective": "max"}),
        "event, laplace, ranges": ("ranges:48", ranges, {"mechanism": "laplace"}),
        "item, laplace, cells": ("identity:64", np.eye(64), {"mechanism": "laplace", "unit": "item", "max_total": 3}),
        "event, ball": ("prefix:9", np.tri(9), {"mechanism": "l2ball"}),
        "event, counted": ("prefix:64", np.tri(64), {"max_weight": 3, **counted}),
        "event, tree without a matrix": (blocks.workload, prefixes, {"strategy": blocks}),
        "event, laplace, tree without a matrix": (
            blocks.workload,
            prefixes,
            {"strategy": blocks, "mechanism": "laplace"},
        ),
        "event, laplace, counted": ("identity:64", np.eye(64), {"mechanism": "laplace", "max_weight": 2, **counted}),
    }


WORKERS: Final = {
    "event": """
kind = "workload"
workload = ["prefix:delay"]
epsilon = 1
delta = 0
mechanism = "laplace"
intrusion = false
epsilon_records = "1/5"

[[sketch.columns]]
name = "delay"
start = 0
width = 1
count = 510
"""
}


class WorkloadAudit(MatrixAudit):
    """See `LinearAudit`."""

    def matrix(self, spec: WorkloadSpec) -> Ints:
        return spec.strategy.matrix

    def questions(self, name: str, spec: WorkloadSpec) -> Floats:
        """The queries, written again."""
        return _specs_tried()[name][1]

    def promises(self, name: str, spec: WorkloadSpec) -> Case:
        """Epsilon, or mu^2 with the excess of variance."""

        def cost(epsilon: Fraction, delta: Fraction) -> Number:
            if spec.pure:
                return epsilon
            mu2 = _sensitivity(spec, 2) / (variance_of_unit(epsilon, delta) * _sensitivity(spec, 2) + EXCESS)
            return mu2 / (1 + mu2 * float(spec.counted_share))  # the integers of the counter need noise too

        independent, slack = spec.mechanism != "l2ball", 2e-2 if spec.counted_share else 1e-3
        moves = moves_of(spec.workload.size, spec.max_weight)
        return case(name, spec, cost, moves, independent=independent, slack=slack)

    def law(self, spec: WorkloadSpec, epsilon: Fraction, delta: Fraction) -> laws.Law:
        """Laplace or Gaussian noise in every counter of the strategy; not that of mechanism "l2ball"."""
        if spec.mechanism == "laplace":
            return laws.DiscreteLaplace(epsilon * (1 - Fraction(spec.counted_share)) / _sensitivity(spec, 1))
        sigma2 = variance_of_unit(epsilon, delta) * _sensitivity(spec, 2) + EXCESS
        return law_beside_counter(sigma2, _sensitivity(spec, 2) / sigma2, spec)

    def judge(self, spec: WorkloadSpec, epsilon: Fraction, delta: Fraction, drawn: Ints) -> Outcome:
        """See `LinearAudit`; vectors of mechanism "l2ball" by their lengths and directions."""
        if spec.mechanism != "l2ball":
            return super().judge(spec, epsilon, delta, drawn)
        return find_repeated_noise(drawn) or _judge_ball(float(epsilon) / math.sqrt(_sensitivity(spec, 2)), drawn)

    def variance(self, spec: WorkloadSpec, epsilon: Fraction, delta: Fraction) -> float:
        if spec.mechanism != "l2ball":
            return super().variance(spec, epsilon, delta)
        return (spec.length + 1) * _sensitivity(spec, 2) / float(epsilon) ** 2

    def answers_slack(self, spec: WorkloadSpec) -> tuple[float, float] | None:
        return None if spec.counted_share else (1e-3, 1e-6)

    def checks(self, quick: bool) -> Iterator[Check]:
        """Check what every matrix audit checks, and the plainest events of two specs."""
        yield from super().checks(quick)
        for name in ("event, prefixes", "event, weights to 5, tables"):
            yield f"plainest event, {name}", lambda name=name: self.plainest(specs("6")[name], quick)  # type: ignore[misc]


# Expected values, from the fields of a spec.


def _ranges(size: int) -> Floats:
    """(r, cells) matrix of all intervals of cells."""
    return np.array([[low <= cell <= high for cell in range(size)] for low in range(size) for high in range(low, size)])


def _tables(sizes: tuple[int, ...], ways: int) -> Floats:
    """Queries of all tables over `ways` columns at a time."""
    cells = np.array(list(np.ndindex(sizes)))
    rows = []
    for chosen in np.ndindex((len(sizes),) * ways):
        if list(chosen) == sorted(set(chosen)):
            for values in np.ndindex(tuple(sizes[column] for column in chosen)):
                rows.append((cells[:, list(chosen)] == values).all(axis=1))
    return np.array(rows, np.float64)


def _sensitivity(spec: WorkloadSpec, power: int) -> int:
    """Sensitivity to one unit: the L1 norm, or the square of the L2 norm."""
    return reach_of(spec, spec.strategy.matrix, power)


def _judge_ball(rate: float, drawn: Ints) -> Outcome:
    """Judge vectors with density exp(-rate length): the length is a gamma variable, the direction uniform."""
    from scipy.stats import kstest

    n, length = drawn.shape
    sizes = np.linalg.norm(drawn.astype(np.float64), axis=1)
    p = float(kstest(sizes * rate, "gamma", args=(length,)).pvalue)
    sums = (drawn / sizes[:, None]).sum(axis=0) * math.sqrt(length / n)
    passed = p > 1e-9 and float(np.abs(sums).max()) < ERRORS
    verdict = f"p = {p:.2g}, directions within {float(np.abs(sums).max()):.1f} standard errors, n = {n}"
    return passed, "gamma lengths, uniform directions", verdict, f"epsilon wrong by {12 / math.sqrt(n * length):.0%}"


AUDIT: Final = WorkloadAudit(specs, WORKERS)
