"""Audit of kind `workload`: noise, updates, answers, ledgers, and the event with the largest privacy loss.

In: specs with every mechanism. Out: findings for `sketchstream.audit.report`. Touches: entropy, through the sketches
it creates.
Source: docs/theory/workload.md sections 2, 6 and 7.

Nothing here calls internals of sketches. The queries are written again, sensitivities are sums of Python
integers over the published strategy, sigma comes from the divergence of two normal laws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.audit.cases import Case, Number
from sketchstream.audit.linear import ERRORS, LOOK, creation, publication
from sketchstream.audit.observed import Outcome, judge, repeated, shift_seen, state_of, variance_of_unit
from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.noise import laws
from sketchstream.sketch import Sketch

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

EXCESS: Final = 4
"""Variance by which discrete noise is raised above the continuous one's."""


@lru_cache(maxsize=2)
def specs(epsilon: str = "1") -> dict[str, tuple[WorkloadSpec, Floats]]:
    """Specs with every mechanism, unit and form of a strategy, each with its queries as a matrix.

    Args:
        epsilon: epsilon of each spec.
    """
    real = np.random.default_rng(8).normal(size=(6, 40)).round(3)
    prefixes, ranges, tables = np.tri(128), _ranges(48), _tables((2,) * 6, 2)
    counted = {"counted_share": "1/4", "epsilon_records": "1/5"}
    more: dict[str, tuple[Any, Floats, dict[str, Any]]] = {
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
        "event, laplace, counted": ("identity:64", np.eye(64), {"mechanism": "laplace", "max_weight": 2, **counted}),
    }
    common = {"mechanism": "gaussian", "epsilon_publish": "3/4"}
    return {
        name: (WorkloadSpec(asked, epsilon, "1e-6", **{**common, **given}), matrix)
        for name, (asked, matrix, given) in more.items()
    }


@lru_cache(maxsize=1)
def cases(slots: int = 0) -> tuple[Case, ...]:
    """What all kinds have in common is checked for these."""
    del slots
    return tuple(_case(name, spec) for name, (spec, _) in specs().items())


def _case(name: str, spec: WorkloadSpec) -> Case:
    """The promises of one spec: epsilon, or mu^2 with the excess of variance."""

    def cost(epsilon: Fraction, delta: Fraction) -> Number:
        if spec.pure:
            return epsilon
        mu2 = _reach(spec, 2) / (variance_of_unit(epsilon, delta) * _reach(spec, 2) + EXCESS)
        return mu2 / (1 + mu2 * float(spec.counted_share))  # the integers of the counter need noise too

    costs: dict[Any, Number] = {
        "create": cost(spec.epsilon, spec.delta), **dict.fromkeys(("release", "refresh"), cost(*LOOK))
    }  # fmt: skip
    if spec.intrusion:
        costs["seal"] = cost(spec.epsilon_publish, spec.delta_publish)

    def counters(cost: Number) -> dict[str, laws.Law]:
        share = Fraction(spec.counted_share) * Fraction(cost)
        if not share:
            return {}
        return {"counted": laws.DiscreteLaplace(share) if spec.pure else laws.DiscreteGaussian(1 / share)}

    most, size = spec.max_weight, spec.workload.size
    moves: list[tuple[list[int], list[int], dict[str, int]]] = [
        ([1, 1, 2], [most, -most, 1], {"counted": 3}),
        ([1, size, -1], [1, 1, 1], {"counted": 1}),
        ([1], [most + 1], {"counted": 0}),
    ]
    records = laws.DiscreteLaplace(spec.epsilon_records) if spec.epsilon_records else None
    return Case(
        name,
        spec,
        costs,
        "epsilon" if spec.pure else "mu^2",
        LOOK[:1] if spec.pure else LOOK,
        counters,
        records,
        moves,
        independent=spec.mechanism != "l2ball",
        slack=2e-2 if spec.counted_share else 1e-3,
    )


WORKERS: Final[Mapping[str, str]] = {
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
"""Fields of a `[[sketch]]` for the audit of a worker's windows."""


def case_of(spec: WorkloadSpec) -> Case:
    """The promises of a spec from elsewhere, such as a worker's."""
    return _case("worker", spec)


def windows(case: Case, parts: Sequence[Any]) -> Outcome:
    """Judge what was published of sketches without events."""
    return _judge(case.spec, case.spec.epsilon, case.spec.delta, np.stack([part.state for part in parts]))


def checks(quick: bool) -> Iterator[tuple[str, Callable[[], Outcome]]]:
    """Names and checks of all tests.

    Args:
        quick: whether to draw fewer samples.
    """
    samples = 6_000 if quick else 200_000
    most = 200 if quick else 4_000
    for name, (spec, queries) in specs().items():
        rounds = min(-(-samples // spec.length), most)
        yield f"create, {name}", partial(creation, spec, partial(_judge, spec), rounds)
        yield f"seal, {name}", partial(publication, spec, partial(_judge, spec), rounds)
        yield f"release, {name}", lambda spec=spec, rounds=rounds: _release(spec, rounds)  # type: ignore[misc]
        yield f"events, {name}", lambda spec=spec: _events(spec)  # type: ignore[misc]
        if not spec.counted_share:
            yield f"answers, {name}", lambda spec=spec, matrix=queries: _answers(spec, matrix)  # type: ignore[misc]
    trials = 1_000 if quick else 20_000
    for name in ("event, prefixes", "event, weights to 5, tables"):
        yield f"plainest event, {name}", lambda name=name: _plainest(specs("6")[name][0], trials)  # type: ignore[misc]


# Expected values, from the fields of a spec.


def _ranges(size: int) -> Floats:
    """(r, cells) matrix of all intervals of cells."""
    return np.array([[low <= cell <= high for cell in range(size)] for low in range(size) for high in range(low, size)])


def _tables(sizes: tuple[int, ...], ways: int) -> Floats:
    """All tables of so many columns at a time."""
    cells = np.array(list(np.ndindex(sizes)))
    rows = []
    for chosen in np.ndindex((len(sizes),) * ways):
        if list(chosen) == sorted(set(chosen)):
            for values in np.ndindex(tuple(sizes[column] for column in chosen)):
                rows.append((cells[:, list(chosen)] == values).all(axis=1))
    return np.array(rows, np.float64)


def _reach(spec: WorkloadSpec, power: int) -> int:
    """Sensitivity to one unit: the L1 norm, or the square of the L2 norm, in Python integers."""
    columns = [sum(abs(entry) ** power for entry in column) for column in spec.strategy.matrix.T.tolist()]
    weight = spec.max_total if spec.unit == "item" and spec.max_total is not None else spec.max_weight
    return int(max(columns) * weight**power)


def _judge(spec: WorkloadSpec, epsilon: Fraction, delta: Fraction, drawn: Ints) -> Outcome:
    """Judge layers of noise against the law for an epsilon and a delta.

    Args:
        spec: spec of the sketches.
        epsilon: epsilon of each layer.
        delta: delta of each layer.
        drawn: (n, m) noise of n layers.
    """
    again = repeated(drawn)
    if again is not None:
        return again
    if spec.mechanism != "l2ball":
        return judge(drawn.ravel(), _law(spec, epsilon, delta))
    return _judge_ball(float(epsilon) / math.sqrt(_reach(spec, 2)), drawn)


def _law(spec: WorkloadSpec, epsilon: Fraction, delta: Fraction) -> laws.Law:
    """The law of one layer in every counter of the strategy, but for the mechanism "l2ball"."""
    share = Fraction(spec.counted_share)
    if spec.mechanism == "laplace":
        return laws.DiscreteLaplace(epsilon * (1 - share) / _reach(spec, 1))
    sigma2 = variance_of_unit(epsilon, delta) * _reach(spec, 2) + EXCESS
    if share:  # the integers of that counter need noise too
        sigma2 *= (1 + _reach(spec, 2) / sigma2 * float(share)) / float(1 - share)
    return laws.DiscreteGaussian(Fraction(sigma2))


def _judge_ball(rate: float, drawn: Ints) -> Outcome:
    """Judge vectors with density exp(-rate length): the length is a gamma variable, the direction uniform."""
    from scipy.stats import kstest

    n, length = drawn.shape
    sizes = np.linalg.norm(drawn.astype(np.float64), axis=1)
    p = float(kstest(sizes * rate, "gamma", args=(length,)).pvalue)
    sums = (drawn / sizes[:, None]).sum(axis=0) * math.sqrt(length / n)
    passed = p > 1e-9 and float(np.abs(sums).max()) < ERRORS
    found = f"p = {p:.2g}, directions within {float(np.abs(sums).max()):.1f} standard errors, n = {n}"
    return passed, "gamma lengths, uniform directions", found, f"epsilon wrong by {12 / math.sqrt(n * length):.0%}"


# Checks.


def _release(spec: WorkloadSpec, rounds: int) -> Outcome:
    """Check that releases of one sketch have fresh noise of their law."""
    drawn: list[Ints] = []
    while len(drawn) < rounds:
        sketch = Sketch.create(spec)
        exact = state_of(sketch)
        looks = LOOK[:1] if spec.pure else LOOK
        drawn += [sketch.release(*looks).noised - exact for _ in range(8)]
    return _judge(spec, *LOOK, np.stack(drawn))


def _events(spec: WorkloadSpec) -> Outcome:
    """Check that an event moves the state by its weight times its cell's column, within the sensitivity."""
    rng = np.random.default_rng(6)
    sketch = Sketch.create(spec)
    size, most = spec.workload.size, spec.max_weight
    columns = spec.strategy.matrix.T
    wrong = 0
    for count in (1, 1, size // 2, 3 * size):
        cells, weights = rng.integers(-1, size + 1, count), rng.integers(-most - 1, most + 2, count)
        before = state_of(sketch)
        sketch.update(cells, weights, invalid="noop")
        wanted = np.zeros(spec.length, np.int64)
        for cell, weight in zip(cells.tolist(), weights.tolist(), strict=True):
            if 0 <= cell < size and abs(weight) <= most:
                wanted += weight * columns[cell]
        wrong += not np.array_equal(state_of(sketch) - before, wanted)
    found = "so it was" if not wrong else f"WRONG in {wrong} of 4 batches"
    return not wrong, "weight times column; no-ops outside", found, "one counter, in any of 4 batches"


def _answers(spec: WorkloadSpec, queries: Floats) -> Outcome:
    """Check that answers are the queries of the best estimate of the cells, with the errors of its noise."""
    sketch = Sketch.create(spec)
    sketch.update(np.arange(spec.workload.size).repeat(3))
    published: Any = sketch.seal()
    found = published.estimate("unbiased")
    inverse = np.linalg.pinv(spec.strategy.matrix.astype(np.float64))
    values = queries @ (inverse @ published.state)
    noise = 0.0
    for epsilon, delta in ((spec.epsilon, spec.delta), (spec.epsilon_publish, spec.delta_publish))[
        : 1 + spec.intrusion
    ]:
        if spec.mechanism != "l2ball":
            noise += _law(spec, epsilon, delta).variance
        else:
            noise += (spec.length + 1) * _reach(spec, 2) / float(epsilon) ** 2
    errors = np.sqrt(noise * ((queries @ inverse) ** 2).sum(axis=1))
    off = float(np.abs(found.values - values).max() / errors.min())
    wide = float(np.abs(found.stderr / errors - 1).max())
    limit = 0.51 / float(errors.min()) if spec.integral else 1e-3  # of integers: half a unit
    passed = off < limit and wide < 1e-6
    return passed, "the queries, and their errors", f"off by {off:.1g} and {wide:.1g} of an error", "1e-6 of an error"


def _plainest(spec: WorkloadSpec, trials: int) -> Outcome:
    """Check mu for the event that moves the state farthest, as an observer of the open state measures it.

    Each sketch is a trial; half of them get the event, and the observer projects the state onto its column.
    """
    columns = spec.strategy.matrix.T.astype(np.float64)
    cell = int((columns**2).sum(axis=1).argmax())
    direction = columns[cell] / np.linalg.norm(columns[cell])
    seen: list[list[float]] = [[], []]
    for trial in range(trials):
        sketch = Sketch.create(spec)
        sketch.update([cell] * (trial % 2), [spec.max_weight] * (trial % 2))
        seen[trial % 2].append(float(direction @ state_of(sketch)))
    mu, error = shift_seen(np.array(seen[0]), np.array(seen[1]))
    claim = math.sqrt(_reach(spec, 2) / (variance_of_unit(spec.epsilon, spec.delta) * _reach(spec, 2) + EXCESS))
    passed = abs(mu - claim) <= ERRORS * error
    return passed, f"mu {claim:.3f}", f"{mu:.3f} +- {error:.3f}, {trials} trials", f"mu wrong by {ERRORS * error:.2f}"
