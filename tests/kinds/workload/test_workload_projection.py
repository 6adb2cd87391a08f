"""Projection and discrepancy: known points, certified gaps, small cases against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from helpers.discrepancy import color, herdisc_bounds
from sketchstream.errors import SpecError
from sketchstream.kinds.workload.queries.queries import Workload
from sketchstream.kinds.workload.strategies.projection import FeasibleSet, Projected, all_nearest, nearest


def project(
    point: np.ndarray, columns: np.ndarray, bound: float, *, feasible: FeasibleSet = "cap", tolerance: float
) -> Projected:
    """The projection from a start that knows nothing of the point."""
    return nearest(point, columns, bound, np.zeros(columns.shape[1]), tolerance, feasible)


def test_one_dimension_is_solved_by_hand() -> None:
    # L = [-1, 1], y = -1 and noise 2: the noisy point 1 is in L, and stays.
    found = project(np.array([1.0]), np.array([[1.0]]), 1.0, feasible="sym", tolerance=1e-12)
    assert found.histogram.tolist() == [1.0]
    assert project(np.array([3.0]), np.array([[1.0]]), 1.0, feasible="sym", tolerance=1e-12).histogram[0] == 1
    assert project(np.array([-3.0]), np.array([[1.0]]), 2.0, feasible="cap", tolerance=1e-12).histogram[0] == 0
    assert project(np.array([0.5]), np.array([[1.0]]), 2.0, feasible="cap", tolerance=1e-9).histogram[0] == 0.5
    assert project(np.array([0.5]), np.array([[1.0]]), 2.0, feasible="simplex", tolerance=1e-9).histogram[0] == 2


@pytest.mark.parametrize("feasible", ["cap", "simplex", "sym"])
def test_projections_are_optimal_up_to_their_gap(feasible: FeasibleSet) -> None:
    from scipy.optimize import minimize

    random = np.random.default_rng(1)
    for _ in range(8):
        columns, point = random.normal(size=(5, 7)), 3 * random.normal(size=5)
        found = project(point, columns, 2.0, feasible=feasible, tolerance=1e-9)
        assert found.gap <= 1e-9
        total = np.abs(found.histogram).sum()
        assert total <= 2 * (1 + 1e-9)
        if feasible != "sym":
            assert found.histogram.min() >= 0
        if feasible == "simplex":
            assert total == pytest.approx(2)
        value = np.sum((columns @ found.histogram - point) ** 2) / 2
        # The same problem in twice the variables for a general solver.
        parts = np.hstack([columns, -columns]) if feasible == "sym" else columns
        limit = {"type": "eq" if feasible == "simplex" else "ineq", "fun": lambda x: 2 - x.sum()}
        other = minimize(
            lambda x, parts=parts, point=point: np.sum((parts @ x - point) ** 2) / 2,
            np.full(parts.shape[1], 2 / parts.shape[1]),
            bounds=[(0, None)] * parts.shape[1],
            constraints=[limit],
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        assert value <= other.fun + 1e-6


def test_projections_on_a_set_that_holds_the_truth_never_add_error() -> None:
    random = np.random.default_rng(400)
    for _ in range(400):
        rows, size, count = random.integers(1, 8), random.integers(1, 12), random.integers(1, 20)
        columns = random.normal(size=(rows, size))
        truth = random.multinomial(count, random.dirichlet(np.ones(size)))
        noise = random.normal(size=rows) * random.choice([0.1, 1, 10])
        found = project(columns @ truth + noise, columns, float(count), feasible="cap", tolerance=1e-9 * count)
        error = columns @ (found.histogram - truth)
        bound = float(noise @ noise)
        polar = 2 * count * np.abs(columns.T @ noise).max()
        assert error @ error <= min(bound, 2 * polar) * (1 + 1e-6) + 4 * np.sqrt(found.gap * bound) + 2 * found.gap


def test_many_points_have_the_projections_of_each_alone() -> None:
    random = np.random.default_rng(5)
    columns = random.integers(0, 3, (6, 9)).astype(np.float64)
    truths = random.integers(0, 9, (5, 9))
    points = truths @ columns.T + random.normal(scale=4, size=(5, 6))
    bounds, starts = np.array([4.0, 20.0, 45.0, 60.0, 1e6]), random.normal(scale=5, size=(5, 9))
    found, gap, _ = all_nearest(points, columns, bounds, starts, 1e-7)
    assert gap <= 1e-7
    assert (found >= 0).all()
    assert (found.sum(axis=1) <= bounds + 1e-9).all()
    for point, bound, start, one in zip(points, bounds, starts, found, strict=True):
        alone = nearest(point, columns, bound, start, 1e-7)
        assert columns @ alone.histogram == pytest.approx(columns @ one, abs=1e-3)
        exact = project(point, columns, bound, tolerance=1e-7)
        assert columns @ exact.histogram == pytest.approx(columns @ one, abs=1e-3)


@pytest.mark.parametrize("feasible", ["cap", "simplex", "sym"])
def test_a_search_that_ends_early_returns_its_gap(feasible: FeasibleSet) -> None:
    random = np.random.default_rng(2)
    columns, point = random.normal(size=(20, 40)), 5 * random.normal(size=20)
    start, bounds = np.zeros((1, 40)), np.array([3.0])
    short, gap, steps = all_nearest(point[None], columns, bounds, start, 0.0, 5, feasible)
    long = project(point, columns, 3.0, tolerance=1e-10, feasible=feasible)
    value = [np.sum((columns @ one - point) ** 2) / 2 for one in (short[0], long.histogram)]
    assert steps == 4
    assert 0 <= value[0] - value[1] <= gap


def hereditary(matrix: np.ndarray) -> float:
    """Hereditary discrepancy by trying every subset and every colouring."""
    worst = 0.0
    size = matrix.shape[1]
    for chosen in itertools.product((0, 1), repeat=size):
        kept = np.flatnonzero(chosen)
        if len(kept):
            signs = np.array(list(itertools.product((-1, 1), repeat=len(kept))))
            worst = max(worst, float(np.abs(matrix[:, kept] @ signs.T).max(axis=0).min()))
    return worst


HADAMARD = np.kron(np.kron([[1, 1], [1, -1]], [[1, 1], [1, -1]]), [[1, 1], [1, -1]]).astype(float)
SIGNS = np.random.default_rng(1).integers(0, 2, (8, 8)) * 2.0 - 1


@pytest.mark.parametrize(
    ("matrix", "lower", "exact", "upper"),
    [
        (Workload.named("prefix:4").dense(), 0.5, 1, 2.704),
        (Workload.named("prefix:8").dense(), 0.5, 1, 3.557),
        (HADAMARD, 1.414, 5, 6.660),
        (SIGNS, 1.12, 4, 5.83),
        (Workload.named("ranges:8").dense(), 0.5, 1, 4.785),
    ],
)
def test_bounds_hold_the_exact_hereditary_discrepancy(
    matrix: np.ndarray, lower: float, exact: float, upper: float
) -> None:
    found = herdisc_bounds(matrix)
    assert hereditary(matrix) == exact
    assert found.lower <= exact <= found.upper
    assert found.lower >= 0.97 * lower
    assert found.upper == pytest.approx(upper, rel=2e-3)
    minor = matrix[np.ix_(found.rows, found.columns)]
    assert abs(np.linalg.det(minor)) ** (1 / len(minor)) / 2 == pytest.approx(found.lower, rel=1e-9)
    np.testing.assert_allclose(found.left @ found.right, matrix, atol=1e-9)
    assert np.linalg.norm(found.right, axis=0).max() <= 1 + 1e-9


def test_walks_stay_within_the_bound_and_beat_random_signs() -> None:
    matrix = Workload.named("prefix:64").dense()
    bounds = herdisc_bounds(matrix)
    assert bounds.upper == pytest.approx(6.56, rel=0.01)
    walked = [np.abs(matrix @ color(matrix, bounds=bounds, seed=seed)).max() for seed in range(3)]
    assert max(walked) <= bounds.upper
    assert np.mean(walked) < 5
    chosen = np.array([3, 17, 40, 41, 60])
    signs = color(matrix, chosen, bounds=bounds)
    assert set(signs.tolist()) <= {-1, 1}
    assert np.abs(matrix[:, chosen] @ signs).max() <= bounds.upper
    assert color(matrix, [], bounds=bounds).size == 0


def test_colourings_of_what_is_no_matrix_are_refused() -> None:
    with pytest.raises(SpecError, match="two dimensions"):
        herdisc_bounds([1, 2])
    with pytest.raises(SpecError, match="from 0 to 1"):
        color([[1, 0], [1, 1]], [2])
