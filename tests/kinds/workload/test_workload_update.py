"""Updates of a workload's state against a plain loop over events; refusals; linearity."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.noise.words import Seeded
from sketchstream.errors import DomainError, SpecError, WeightError
from sketchstream.kinds.workload.kind import TableCells
from sketchstream.kinds.workload.queries.queries import Workload
from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.kinds.workload.strategies.mechanism import add_noise
from sketchstream.kinds.workload.strategies.strategy import Strategy, from_matrix
from sketchstream.kinds.workload.update import StrategyColumns
from sketchstream.sketch import Sketch

RANDOM = np.random.default_rng(6)


def reference(strategy: Strategy, state: np.ndarray, cells: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """One event after the other, in Python's integers, modulo 2^64."""
    values = state.tolist()
    for i, cell in enumerate(cells.tolist()):
        if 0 <= cell < strategy.size:
            weight = 1 if weights is None else int(weights[i])
            for k in range(strategy.length):
                values[k] += weight * int(strategy.matrix[k, cell])
    wrapped = [(value + (1 << 63)) % (1 << 64) - (1 << 63) for value in values]
    return np.array(wrapped, np.int64)


def strategies() -> list[Strategy]:
    triangular = WorkloadSpec("prefix:17", "1", "1e-6", "gaussian").strategy
    tree = WorkloadSpec("prefix:64", "1", "1e-6", "laplace").strategy
    rows = WorkloadSpec("marginals:5:1,2", "1", "1e-6", "gaussian").strategy
    full = from_matrix(Workload.named("identity:5"), RANDOM.integers(-(1 << 62), 1 << 62, (3, 5)), "queries")
    empty = from_matrix(Workload.named("identity:6"), np.diag([1, 0, 2, 0, 3, 0]).astype(np.int64), "queries")
    gap = np.ones((4, 7), np.int64)
    gap[:, 3] = 0
    return [triangular, tree, rows, full, empty, from_matrix(Workload.named("identity:7"), gap, "queries")]


@pytest.mark.parametrize("index", range(6))
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 63, 64, 200])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_batch_is_its_events_one_by_one(index: int, count: int, weighted: bool) -> None:
    strategy = strategies()[index]
    columns = StrategyColumns.of(strategy.matrix)
    cells = RANDOM.integers(-2, strategy.size + 2, count)
    weights = RANDOM.integers(-(1 << 40), 1 << 40, count) if weighted else None
    state = RANDOM.integers(-(1 << 63), (1 << 63) - 1, strategy.length)
    expected = reference(strategy, state, cells, weights)
    columns.add(state, cells, weights)
    assert state.tolist() == expected.tolist()


def test_order_and_batches_make_no_difference() -> None:
    strategy = strategies()[0]
    columns = StrategyColumns.of(strategy.matrix)
    cells, weights = RANDOM.integers(0, 17, 90), RANDOM.integers(-9, 10, 90)
    whole, parts = np.zeros(17, np.int64), np.zeros(17, np.int64)
    columns.add(whole, cells, weights)
    order = RANDOM.permutation(90)
    for part in np.array_split(order, 13):
        columns.add(parts, cells[part], weights[part])
    assert whole.tolist() == parts.tolist()
    columns.add(whole, cells, -weights)
    assert not whole.any()


def test_sketches_add_up_to_the_sketch_of_both_streams() -> None:
    spec = WorkloadSpec("ranges:9", "1", "1e-6", "gaussian")
    columns = StrategyColumns.of(spec.strategy.matrix)
    first, second = RANDOM.integers(0, 9, 40), RANDOM.integers(0, 9, 25)
    states = []
    for seed, cells in ((1, first), (2, second)):
        state = np.zeros(spec.length, np.int64)
        add_noise(spec.layer(), state, Seeded(seed))
        columns.add(state, cells)
        states.append(state)
    layers = np.zeros(spec.length, np.int64)
    for seed in (1, 2):
        add_noise(spec.layer(), layers, Seeded(seed))
    columns.add(layers, np.concatenate([first, second]))
    assert (states[0] + states[1]).tolist() == layers.tolist()


def test_invalid_events_are_refused_or_dropped_by_themselves() -> None:
    cells, weights = np.array([3, 9, 1, -1]), np.array([1, 1, 5, 1])
    sketch = Sketch.create(WorkloadSpec("identity:9", "1", "1e-6", "plain", max_weight=2))
    assert sketch._state is not None
    before = sketch._state.copy()
    with pytest.raises(DomainError, match="position 1") as found:
        sketch.update(cells, weights)
    assert "9" not in str(found.value)
    for invalid in ("error", "skip"):
        with pytest.raises(WeightError, match="position 2"):
            sketch.update(np.array([3, 3, 1]), weights[:3], invalid=invalid)  # type: ignore[arg-type]
    assert np.array_equal(sketch._state, before)
    sketch.update(np.array([3, 0]))
    sketch.update(cells, weights, invalid="noop")
    expected = np.zeros(9, np.int64)
    np.add.at(expected, [3, 0, 3], 1)
    assert np.array_equal(sketch._state - before, sketch.spec.strategy.matrix @ expected)


def test_a_state_of_another_shape_is_refused() -> None:
    cells = TableCells(WorkloadSpec("identity:17", "1", "1e-6", "plain"))
    for wrong in (np.zeros(16, np.int64), np.zeros(17), np.zeros(34, np.int64)[::2]):
        with pytest.raises(SpecError, match="int64 array of 17"):
            cells.apply(wrong, np.zeros(1, np.int64))
