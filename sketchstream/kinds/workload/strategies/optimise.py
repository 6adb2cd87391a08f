"""The Gaussian noise with the smallest total error, or the smallest worst error, for a workload; with a certificate.

In: a `Workload`, or a matrix. Out: `Optimum`: a covariance of the answers for sensitivity 1, and bounds on the
optimum. Touches: nothing.
Source: Nikolov, Talwar & Zhang 2013 (the ellipsoid); Nikolov & Tang 2023, Edmonds, Nikolov & Ullman 2020 (the
factorisation norm as the optimum); docs/theory/workload.md, sections 2 and 3 (duality, the ascent, both certificates).

Gaussian noise of covariance sigma^2 S is private at sensitivity 1 exactly if every column a of the workload has
a' S^-1 a <= 1. The smallest trace of such an S is the maximum over weights p of the columns of (tr M(p)^(1/2))^2, where
M(p) is the sum of p_j a_j a_j'. Any p gives a covariance that is feasible and a lower bound: privacy never depends on
convergence, and the gap is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats
from sketchstream.errors import SpecError
from sketchstream.kinds.workload.queries.queries import Workload, product_workload

Objective = Literal["total", "max"]

MAX_RANK: Final = 4096
TOLERANCE: Final = 1e-3
"""Certified relative gap at which the search stops."""
WORST_GAP: Final = 0.05
MAX_STEPS: Final = 2000
"""Steps after which a gap of up to `WORST_GAP` is accepted."""
DAMPING: Final = 1e-3
"""Least factor of a column's weight before it is raised to the power of the step."""


@dataclass(frozen=True, eq=False)
class Reduced:
    """A workload in the coordinates of its row space: A = U diag(s) V'.

    Args:
        right: (N, r) orthonormal columns, V.
        singular: (r,) positive, descending.
    """

    right: Floats
    singular: Floats

    @property
    def rank(self) -> int:
        """Rank of the workload, r."""
        return len(self.singular)

    @property
    def columns(self) -> Floats:
        """(r, N) the columns of the workload in orthonormal coordinates of its answers."""
        return self.singular[:, None] * self.right.T


@dataclass(frozen=True, eq=False)
class Optimum:
    """A covariance of the answers for L2 sensitivity 1, with bounds on the optimum.

    Args:
        covariance: (r, r) positive definite; every column c of `reduced.columns` has c' covariance^-1 c <= 1.
        upper: the objective of this covariance: its trace ("total"), or the largest variance of an answer ("max").
    """

    reduced: Reduced
    covariance: Floats
    lower: float
    upper: float
    steps: int

    @property
    def gap(self) -> float:
        """Certified relative distance to the optimum, upper / lower - 1."""
        return self.upper / self.lower - 1


def reduce_matrix(matrix: Floats) -> Reduced:
    """The row space of a matrix."""
    rows, size = matrix.shape
    if min(rows, size) > MAX_RANK:  # the decomposition would take minutes to say so
        _require_rank(max(triangle(matrix != 0), triangle((matrix != 0).T)), "at least ")
    _, singular, right = np.linalg.svd(matrix, full_matrices=False)
    significant = singular > max(rows, size) * np.finfo(np.float64).eps * singular[0]
    _require_rank(int(significant.sum()))
    return Reduced(np.ascontiguousarray(right[significant].T), singular[significant])


def triangle(filled: npt.NDArray[np.bool_], most: int = MAX_RANK + 1) -> int:
    """A lower bound of the rank, at most `most`: rows sorted so that each has an entry where all later have none."""
    left, open_rows, rows_taken = filled.sum(axis=0), np.ones(len(filled), np.bool_), 0
    while rows_taken < most:
        alone = int(np.argmax(left == 1))
        if left[alone] != 1:
            break
        row = int(np.argmax(filled[:, alone] & open_rows))
        open_rows[row] = False
        left = left - filled[row]
        rows_taken += 1
    return rows_taken


def reduce(workload: Workload) -> Reduced:
    """The row space of a workload; from its Gram matrix if the queries are named, or many more than the cells.

    The Gram matrix of named queries is exact and not too badly conditioned; it takes a quarter of the time.
    """
    if too_large(workload):
        raise SpecError(
            f"no matrix is made of {workload.count} x {workload.size} queries and cells: the rank may exceed {MAX_RANK}"
        )
    named = all(factor.matrix is None for product in workload.products for factor in product)
    fewer = workload.count < workload.size if named else workload.count <= 4 * workload.size
    if workload.writable and fewer:
        return reduce_matrix(workload.dense())
    _require_rank(workload.size)
    values, vectors = np.linalg.eigh(workload.gram())
    values, vectors = values[::-1], vectors[:, ::-1]
    significant = values > workload.size * np.finfo(np.float64).eps * values[0]
    return Reduced(np.ascontiguousarray(vectors[:, significant]), np.sqrt(values[significant]))


def too_large(workload: Workload) -> bool:
    """Whether no matrix is made of the queries: they are runs, or named ones over more cells than a search takes."""
    names = {factor.name for product in workload.products for factor in product}
    if names & {"runs", "matrix"} or workload.size <= MAX_RANK:
        return "runs" in names
    ranks = (math.prod(min(factor.rows, factor.size) for factor in product) for product in workload.products)
    apart = len(workload.products) == 1 and len(workload.shape) > 1  # each factor is reduced by itself
    return max(ranks) > MAX_RANK or (not apart and (not workload.writable or workload.count >= workload.size))


def optimise(
    workload: Workload,
    *,
    objective: Objective = "total",
    row_weights: Floats | None = None,
    tolerance: float = TOLERANCE,
) -> Optimum:
    """The best covariance of Gaussian noise for a workload, with its certificate.

    Args:
        objective: "total" (the sum of the variances) or "max" (the largest).
        row_weights: (d,) importance of each query, positive; "total" only.
        tolerance: certified relative gap at which the search stops.

    Raises:
        SpecError: the rank exceeds 4096, or the gap stays above 5%.

    Examples:
        >>> round(optimise(Workload.named("prefix:8"), tolerance=1e-9).upper, 6)
        17.866177
    """
    if objective == "max":
        return smallest_maximum(workload.dense(), tolerance=tolerance)
    if row_weights is not None:
        matrix = workload.dense() * np.sqrt(row_weights)[:, None]
        return smallest_total(reduce_matrix(matrix), tolerance=tolerance)
    parts = workload.products[0]
    if len(workload.products) == 1 and len(parts) > 1:
        # The optimum of a product is the product of the optima, and so are the bounds: both are multiplicative.
        alone = [product_workload({"cell": factor}) for factor in parts]
        return _product_of([optimise(part, tolerance=tolerance / len(parts)) for part in alone])
    return smallest_total(reduce(workload), tolerance=tolerance)


def smallest_total(reduced: Reduced, *, tolerance: float = TOLERANCE) -> Optimum:
    """The covariance with the smallest trace, by multiplicative ascent on the weights of the columns."""
    columns = reduced.columns
    used = np.einsum("ij,ij->j", columns, columns) > 0
    weights = used / used.sum()
    least = min(1e-4, tolerance / 10)
    power, before, saved = 2.0, 0.0, weights
    best: tuple[float, float, Floats] | None = None
    lower = 0.0
    steps = 0
    for steps in range(MAX_STEPS + 1):  # noqa: B007 - returned
        moment = (columns * weights) @ columns.T
        values, vectors = np.linalg.eigh(moment)
        roots = np.sqrt(np.maximum(values, 0.0))
        norm = float(roots.sum())
        raised = np.maximum(roots, least * norm / reduced.rank)
        turned = vectors.T @ columns
        gains = np.einsum("ij,ij->j", turned, turned / raised[:, None])
        most = float(gains.max())
        upper = float(raised.sum()) * most
        lower = max(lower, norm * norm)
        if best is None or upper < best[0]:
            best = upper, most, (vectors * (raised * most)) @ vectors.T
        if best[0] <= lower * (1 + tolerance):
            break
        if norm < before and power > 2.0:
            weights, power, before = saved, 2.0, 0.0
            continue
        saved, before = weights, norm
        weights = weights * np.maximum(gains / norm, DAMPING) ** power
        weights /= weights.sum()
        power = min(1.1 * power, 16.0)
    assert best is not None
    _require_gap(best[0] / lower - 1)
    return Optimum(reduced, best[2], lower, best[0], steps)


def smallest_maximum(matrix: Floats, *, tolerance: float = TOLERANCE) -> Optimum:
    """The covariance whose largest variance of an answer is smallest; `upper` is the square of gamma_2."""
    reduced = reduce_matrix(matrix)
    left, _, lower, upper, steps = factorisation(matrix, tolerance=tolerance)
    coordinates = (matrix @ reduced.right) / reduced.singular
    inner = coordinates.T @ left
    covariance = inner @ inner.T
    covariance = (covariance + covariance.T) / 2
    need = _largest_need(reduced.columns, covariance)
    return Optimum(reduced, covariance * need, lower * lower, upper * upper * need, steps)


def factorisation(matrix: Floats, *, tolerance: float = TOLERANCE) -> tuple[Floats, Floats, float, float, int]:
    """A = B C with the smallest product of B's largest row norm and C's largest column norm, which is gamma_2.

    Returns:
        B (d, r), C (r, N) scaled so that C's columns have norm at most 1, a lower and an upper bound of gamma_2, and
        the number of iterations.
    """
    rank = reduce_matrix(matrix).rank
    kept_rows, kept_columns = matrix.any(axis=1), matrix.any(axis=0)
    core = matrix[np.ix_(kept_rows, kept_columns)]
    rows, size = core.shape
    q, p = np.full(rows, 1 / rows), np.full(size, 1 / size)
    power, before, saved = 2.0, 0.0, (q, p)
    best: tuple[float, Floats, Floats] | None = None
    lower = 0.0
    steps = 0
    for steps in range(MAX_STEPS + 1):  # noqa: B007 - returned
        a, b, c = np.linalg.svd(np.sqrt(q)[:, None] * core * np.sqrt(p), full_matrices=False)
        a, b, c = a[:, :rank], b[:rank], c[:rank]
        norm = float(b.sum())
        row = np.einsum("ik,k,ik->i", a, b, a) / q
        column = np.einsum("kj,k,kj->j", c, b, c) / p
        upper = math.sqrt(float(row.max()) * float(column.max()))
        lower = max(lower, norm)
        if best is None or upper < best[0]:
            root = np.sqrt(b)
            best = upper, (a * root) / np.sqrt(q)[:, None], (root[:, None] * c) / np.sqrt(p)
        if best[0] ** 2 <= lower**2 * (1 + tolerance):
            break
        if norm < before and power > 2.0:
            (q, p), power, before = saved, 2.0, 0.0
            continue
        saved, before = (q, p), norm
        q = q * np.maximum(row / norm, DAMPING) ** (power / 2)
        p = p * np.maximum(column / norm, DAMPING) ** (power / 2)
        q, p = np.maximum(q / q.sum(), 1e-9 / rows), np.maximum(p / p.sum(), 1e-9 / size)
        q, p = q / q.sum(), p / p.sum()
        power = min(1.1 * power, 16.0)
    assert best is not None
    _require_gap(best[0] ** 2 / lower**2 - 1)
    scale = float(np.sqrt(np.einsum("kj,kj->j", best[2], best[2]).max()))
    left, right = np.zeros((matrix.shape[0], rank)), np.zeros((rank, matrix.shape[1]))
    left[kept_rows] = best[1] * scale
    right[:, kept_columns] = best[2] / scale
    return left, right, lower, best[0], steps


def _product_of(shapes: list[Optimum]) -> Optimum:
    """The shape of a product from those of its factors."""
    right: Any = np.ones((1, 1))
    singular: Any = np.ones(1)
    covariance: Any = np.ones((1, 1))
    for shape in shapes:
        _require_rank(len(singular) * shape.reduced.rank)
        right = np.kron(right, shape.reduced.right)
        singular = np.kron(singular, shape.reduced.singular)
        covariance = np.kron(covariance, shape.covariance)
    lower, upper = math.prod(shape.lower for shape in shapes), math.prod(shape.upper for shape in shapes)
    return Optimum(Reduced(right, singular), covariance, lower, upper, sum(shape.steps for shape in shapes))


def _largest_need(columns: Floats, covariance: Floats) -> float:
    """The largest c' covariance^-1 c over the columns c."""
    solved = triangular_solution(np.linalg.cholesky(covariance), columns, lower=True)
    return float(np.einsum("ij,ij->j", solved, solved).max())


def triangular_solution(
    triangle: npt.NDArray[Any], right: Floats, *, lower: bool = False, transposed: bool = False
) -> Floats:
    """The x with triangle x = right, or with the transpose of the triangle in its place."""
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(triangle.astype(np.float64), right, lower=lower, trans=int(transposed)))


def _require_rank(rank: int, known: str = "") -> None:
    """Refuse a workload of too high a rank."""
    if rank > MAX_RANK:
        raise SpecError(f"workload rank {known}{rank} exceeds {MAX_RANK}; use fewer independent queries or fewer cells")


def _require_gap(gap: float) -> None:
    """Refuse a search that ended far from the optimum."""
    if not gap <= WORST_GAP:
        raise SpecError(f"the optimiser stopped at certified gap {gap:.1%}; allow more steps or a larger tolerance")
