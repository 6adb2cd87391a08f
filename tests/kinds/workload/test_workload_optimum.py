"""The optimal covariance against closed forms, published numbers, duality, and the paper's own mechanism."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from helpers.ellipsoids import enclosing_shape
from sketchstream.errors import SpecError
from sketchstream.kinds.workload.queries.queries import Workload, marginals
from sketchstream.kinds.workload.strategies import optimise as optimise_module
from sketchstream.kinds.workload.strategies.ellipsoid import (
    blocks,
    paper_shape,
    plain_shape,
    uniform_bound,
)
from sketchstream.kinds.workload.strategies.optimise import (
    factorisation,
    optimise,
    reduce,
    reduce_matrix,
    smallest_total,
)

UNIT = 17.8479117  # variance of Gaussian noise for L2 sensitivity 1 at epsilon 1, delta 1e-6


def hashed_matrix() -> np.ndarray:
    i, j = np.meshgrid(np.arange(6), np.arange(20), indexing="ij")
    return ((37 * i**2 + 101 * i * j + 53 * j**2 + 7) % 97 < 48).astype(float)


def needs(shape: object) -> np.ndarray:
    """c' S^-1 c of every column c, computed apart from the optimiser."""
    columns = shape.reduced.columns
    return np.einsum("ij,ij->j", columns, np.linalg.solve(shape.covariance, columns))


def test_two_prefixes_have_the_golden_ratio_as_optimum() -> None:
    shape = optimise(Workload.named("prefix:2"), tolerance=1e-12)
    assert shape.upper == pytest.approx((3 + math.sqrt(5)) / 2, rel=1e-9)
    left = Workload.named("prefix:2").dense() @ shape.reduced.right / shape.reduced.singular
    expected = [[1.1708203933, 0.7236067977], [0.7236067977, 1.4472135955]]
    np.testing.assert_allclose(left @ shape.covariance @ left.T, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "optimum"),
    [
        ("prefix:4", 6.87414410),
        ("prefix:8", 17.86617733),
        ("prefix:16", 45.66535681),
        ("ranges:8", 80.46426516),
        ("ranges:16", 413.14021684),
        ("windows:10:3", 15.19777270),
        ("identity:9", 9.0),
        ("prefix:4 x prefix:8", 6.87414410 * 17.86617733),
    ],
)
def test_optimum_is_the_published_one_and_is_certified(text: str, optimum: float) -> None:
    shape = optimise(Workload.named(text), tolerance=1e-8)
    assert shape.lower <= optimum * (1 + 1e-8)
    assert optimum * (1 - 1e-8) <= shape.upper <= shape.lower * (1 + 1.1e-8)
    assert needs(shape).max() <= 1 + 1e-9
    assert np.trace(shape.covariance) == pytest.approx(shape.upper, rel=1e-9)


@pytest.mark.parametrize(("text", "optimum", "error"), [("prefix:64", 282.21, 0.02), ("ranges:64", 11024.5, 0.5)])
def test_larger_optima_are_the_published_ones(text: str, optimum: float, error: float) -> None:
    assert optimise(Workload.named(text), tolerance=1e-6).upper == pytest.approx(optimum, abs=error)


@pytest.mark.statistics
def test_512_prefixes_have_the_published_optimum() -> None:
    shape = optimise(Workload.named("prefix:512"), tolerance=2e-5)
    assert shape.upper == pytest.approx(3842.2, abs=0.5)


@pytest.mark.parametrize(
    ("bits", "orders", "optimum"),
    [
        (8, (1,), 58.62741700),
        (8, (2,), 741.40518355),
        (8, (3,), 3558.71113707),
        (8, (1, 2, 3), 4858.80825619),
        (6, (2,), 260.65119620),
        (3, (1, 2), 36.0),
    ],
)
def test_marginals_need_no_iteration_and_have_the_closed_form(
    bits: int, orders: tuple[int, ...], optimum: float
) -> None:
    shape = optimise(marginals({f"b{i}": 2 for i in range(bits)}, orders), tolerance=1e-9)
    assert shape.steps == 0
    assert shape.upper == pytest.approx(optimum, rel=1e-9)
    closed = sum(
        math.comb(bits, t) * math.sqrt(sum(math.comb(bits - t, k - t) * 2.0 ** (bits - k) for k in orders if k >= t))
        for t in range(bits + 1)
    )
    assert shape.upper == pytest.approx(closed**2 / 2**bits, rel=1e-12)
    assert shape.reduced.rank == sum(math.comb(bits, t) for t in range(max(orders) + 1))


def test_marginals_of_columns_of_any_size_need_no_iteration() -> None:
    sizes = (5, 3, 4)
    shape = optimise(marginals({"a": 5, "b": 3, "c": 4}, (1, 2)), tolerance=1e-9)
    total = 0.0
    for held in itertools.product((0, 1), repeat=3):
        eigenvalue = sum(
            math.prod(size for size, one in zip(sizes, chosen, strict=True) if not one)
            for chosen in itertools.product((0, 1), repeat=3)
            if sum(chosen) in (1, 2) and all(c >= h for c, h in zip(chosen, held, strict=True))
        )
        total += math.prod(size - 1 for size, one in zip(sizes, held, strict=True) if one) * math.sqrt(eigenvalue)
    assert shape.steps == 0
    assert shape.upper == pytest.approx(total**2 / 60, rel=1e-12)


def test_hashed_matrix_has_the_published_numbers() -> None:
    matrix = hashed_matrix()
    assert matrix[:, :5].sum(axis=0).tolist() == [3, 4, 2, 1, 2]
    reduced = reduce_matrix(matrix)
    assert smallest_total(reduced, tolerance=1e-10).upper == pytest.approx(15.73118509, rel=1e-8)
    enclosing = enclosing_shape(reduced, 1e-9)
    assert np.linalg.slogdet(enclosing)[1] == pytest.approx(4.10677044, abs=1e-6)
    assert np.trace(enclosing) == pytest.approx(19.186944, abs=1e-4)
    assert plain_shape(reduced).upper == pytest.approx(30)
    assert (matrix**2).sum() == 54


def test_copies_signs_and_interior_columns_change_nothing() -> None:
    matrix = np.random.default_rng(2).integers(-2, 3, (6, 12)).astype(float)
    base = smallest_total(reduce_matrix(matrix), tolerance=1e-9).upper
    assert base == pytest.approx(73.61688, abs=1e-5)
    more = np.hstack([matrix, matrix[:, :3], -matrix[:, 3:5], np.zeros((6, 2))])
    assert smallest_total(reduce_matrix(more), tolerance=1e-9).upper == pytest.approx(base, rel=1e-6)
    mixed = np.random.default_rng(3).dirichlet(np.ones(12), 200).T * 0.9
    inside = np.hstack([matrix, matrix @ mixed])
    assert smallest_total(reduce_matrix(inside), tolerance=1e-9).upper == pytest.approx(base, rel=1e-6)
    twice = np.vstack([matrix, matrix[:2]])
    assert smallest_total(reduce_matrix(twice), tolerance=1e-9).upper == pytest.approx(98.8138, abs=1e-3)


def test_badly_scaled_rows_still_give_a_feasible_covariance() -> None:
    matrix = Workload.named("prefix:16").dense() * np.geomspace(1, 1e-7, 16)[:, None]
    shape = smallest_total(reduce_matrix(matrix))
    assert shape.steps <= 20
    assert 1.26560 * (1 - 1e-3) <= shape.lower <= shape.upper <= 1.26572 * (1 + 1e-3)
    solved = np.linalg.solve(np.linalg.cholesky(shape.covariance), shape.reduced.columns)
    assert (solved**2).sum(axis=0).max() <= 1 + 1e-9


def test_diagonals_add_their_squares_up() -> None:
    assert optimise(Workload.of_matrix(np.diag([3.0, 2.0, 0.5])), tolerance=1e-9).upper == pytest.approx(13.25)
    wide = smallest_total(reduce_matrix(np.diag(np.geomspace(1, 1e-10, 8))), tolerance=1e-6)
    assert wide.upper == pytest.approx(1.00139143, rel=2e-6)


@pytest.mark.parametrize(("text", "gamma"), [("prefix:4", 1.326123), ("prefix:8", 1.510484)])
def test_gamma_2_is_the_published_one(text: str, gamma: float) -> None:
    left, right, lower, upper, _ = factorisation(Workload.named(text).dense(), tolerance=1e-8)
    assert lower <= gamma * (1 + 1e-6)
    assert gamma == pytest.approx(upper, rel=1e-6)
    np.testing.assert_allclose(left @ right, Workload.named(text).dense(), atol=1e-12)
    assert np.linalg.norm(right, axis=0).max() <= 1 + 1e-12
    assert np.linalg.norm(left, axis=1).max() == pytest.approx(upper, rel=1e-4)


@pytest.mark.parametrize(("text", "low", "high"), [("prefix:256", 2.5327, 2.5347), ("marginals:8:1,2,3", 2.970, 2.973)])
def test_gamma_2_of_larger_workloads_lies_in_the_published_interval(text: str, low: float, high: float) -> None:
    _, _, lower, upper, _ = factorisation(Workload.named(text).dense())
    assert low * (1 - 1e-3) <= lower <= upper <= high * (1 + 1e-3)


def test_gamma_2_of_a_hadamard_matrix_is_the_root_of_its_size() -> None:
    one = np.array([[1, 1], [1, -1]])
    _, _, lower, upper, _ = factorisation(np.kron(np.kron(one, one), one).astype(float), tolerance=1e-9)
    assert (lower, upper) == (pytest.approx(math.sqrt(8)), pytest.approx(math.sqrt(8)))


def test_smallest_maximum_trades_the_total_for_the_worst_query() -> None:
    workload = Workload.named("ranges:16")
    total, worst = optimise(workload, tolerance=1e-6), optimise(workload, objective="max", tolerance=1e-6)
    left = workload.dense() @ total.reduced.right / total.reduced.singular
    spread = np.einsum("ij,jk,ik->i", left, total.covariance, left)
    other = workload.dense() @ worst.reduced.right / worst.reduced.singular
    even = np.einsum("ij,jk,ik->i", other, worst.covariance, other)
    assert needs(worst).max() <= 1 + 1e-9
    assert even.max() == pytest.approx(worst.upper, rel=1e-5)
    assert even.max() < 0.9 * spread.max()
    assert even.sum() > spread.sum()


def test_paper_blocks_are_orthogonal_and_as_many_as_the_depth() -> None:
    for rank, depth in ((1, 1), (2, 2), (3, 2), (5, 3), (8, 4), (9, 4), (100, 7)):
        columns = np.random.default_rng(rank).normal(size=(rank, 3 * rank))
        found = blocks(columns)
        assert len(found) == depth
        joined = np.hstack(found)
        np.testing.assert_allclose(joined.T @ joined, np.eye(rank), atol=1e-9)


def test_paper_mechanism_on_a_diagonal_is_the_worked_example() -> None:
    reduced = reduce_matrix(np.diag([8.0, 4.0, 2.0, 1.0]))
    assert [one.shape[1] for one in blocks(reduced.columns)] == [2, 1, 1]
    assert paper_shape(reduced, verbatim=True).upper == pytest.approx(264)
    assert paper_shape(reduced).upper == pytest.approx(88)
    assert smallest_total(reduced, tolerance=1e-9).upper == pytest.approx(85)


TABLE = [
    # workload, plain, enclosing, paper tight, optimum, singular value bound: mean squared errors per query
    ("identity:64", 17.85, 17.85, 17.85, 17.85, 17.85),
    ("prefix:64", 1142, 580, 124, 78.7, 74.3),
    pytest.param("prefix:256", 4569, 2294, 174, 113.8, 109.0, marks=pytest.mark.slow),
    ("windows:256:16", 286, 269, 101, 78.4, 76.9),
    pytest.param("windows:256:64", 1142, 861, 146, 115.9, 107.5, marks=pytest.mark.slow),
    pytest.param("trailing:256:32", 571, 537, 124, 97.4, 95.4, marks=pytest.mark.slow),
    ("ranges:64", 18847, 393, 110, 94.6, 92.6),
    ("marginals:8:1", 143, 80.3, 85.6, 65.4, 65.4),
    ("marginals:8:2", 500, 165, 159, 118.1, 118.1),
    ("marginals:8:3", 999, 207, 169, 141.8, 141.8),
    ("marginals:8:1,2,3", 1642, 265, 207, 150.6, 150.6),
]


@pytest.mark.statistics
@pytest.mark.parametrize(("text", "plain", "enclosing", "paper", "optimum", "bound"), TABLE)
def test_errors_are_in_the_published_order(
    text: str, plain: float, enclosing: float, paper: float, optimum: float, bound: float
) -> None:
    workload = Workload.named(text)
    reduced = reduce(workload)
    scale = UNIT / workload.count
    best = optimise(workload)
    tight, verbatim = paper_shape(reduced), paper_shape(reduced, verbatim=True)
    ellipsoid = float(np.trace(enclosing_shape(reduced)))
    assert best.upper * scale == pytest.approx(optimum, rel=0.01)
    assert uniform_bound(reduced) * scale == pytest.approx(bound, rel=0.005)
    # Ranges by their Gram matrix: the plain mechanism's error is spread over d queries, not over the rank.
    longest = plain_shape(reduced).upper / reduced.rank * UNIT
    assert longest == pytest.approx(plain, rel=0.01)
    assert ellipsoid * scale == pytest.approx(enclosing, rel=0.01)
    assert tight.upper * scale == pytest.approx(paper, rel=0.17)  # the axes of a round ellipsoid are arbitrary
    assert best.upper <= tight.upper * (1 + 1e-9) <= verbatim.upper * (1 + 2e-9)
    assert best.upper <= ellipsoid * (1 + 1e-3)
    assert best.upper * scale <= longest * (1 + 1e-3)
    assert uniform_bound(reduced) <= best.upper * (1 + 1e-9)


def test_a_search_that_is_cut_short_says_how_far_it_got(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimise_module, "MAX_STEPS", 0)
    matrix = np.random.default_rng(5).normal(size=(8, 40)) * np.geomspace(1, 300, 40)
    with pytest.raises(SpecError, match="certified gap"):
        smallest_total(reduce_matrix(matrix))


def test_row_weights_move_accuracy_to_the_queries_that_matter() -> None:
    workload = Workload.named("prefix:16")
    weights = np.ones(16)
    weights[3] = 100.0
    even, tilted = optimise(workload, tolerance=1e-6), optimise(workload, row_weights=weights, tolerance=1e-6)
    row = workload.dense()[3]
    before = row @ even.reduced.right / even.reduced.singular
    after = 10 * row @ tilted.reduced.right / tilted.reduced.singular
    assert after @ tilted.covariance @ after / 100 < 0.7 * (before @ even.covariance @ before)
