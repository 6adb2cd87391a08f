"""Hereditary discrepancy of a matrix: bounds with witnesses, and colourings that reach the upper one.

In: a matrix. Out: lower and upper bounds, signs. Touches: nothing but a generator with the caller's seed.
Source: Nikolov, Talwar & Zhang 2013, section 6; Lovasz, Spencer & Vesztergombi 1986 (determinants);
Matousek, Nikolov & Talwar 2020 (gamma_2); Bansal, Dadush, Garg & Lovett 2018 and Harshaw, Savje, Spielman & Zhang 2024
(the Gram-Schmidt walk is 1-subgaussian); docs/theory/workload.md, section 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import SpecError
from sketchstream.kinds.workload.queries.factors import matrix_factor
from sketchstream.kinds.workload.strategies.optimise import factorisation

STARTS = 20
TRIALS = 1000


@dataclass(frozen=True, eq=False)
class HereditaryDiscrepancy:
    """Bounds of the hereditary discrepancy, with what proves them.

    Args:
        lower: |det M|^(1/k) / 2 for the minor that was found.
        upper: gamma_2 sqrt(2 ln 2d), by the factors.
        rows: rows of the minor.
        columns: columns of the minor.
        left: (d, r) B.
        right: (r, N) C with columns of norm at most 1; A = B C, and the rows of B have norm at most gamma_2.
    """

    lower: float
    upper: float
    rows: Ints
    columns: Ints
    left: Floats
    right: Floats


def herdisc_bounds(matrix: npt.ArrayLike, *, seed: int = 0, tolerance: float = 1e-3) -> HereditaryDiscrepancy:
    """Bounds of the largest discrepancy over all subsets of the columns.

    Args:
        matrix: (d, N) finite numbers.
        seed: seed of the random starts of the search for a minor.
        tolerance: tolerance of gamma_2 squared.

    Raises:
        SpecError: not a matrix, or all zero.

    Examples:
        >>> found = herdisc_bounds([[1, 0], [1, 1]])
        >>> found.lower <= 1 <= found.upper
        True
    """
    array = _array(matrix)
    left, right, _, gamma, _ = factorisation(array, tolerance=tolerance)
    lower, rows, columns = _best_minor(array, seed)
    upper = gamma * math.sqrt(2 * math.log(2 * len(array)))
    return HereditaryDiscrepancy(lower, upper, rows, columns, left, right)


def color(
    matrix: npt.ArrayLike,
    columns: npt.ArrayLike | None = None,
    *,
    bounds: HereditaryDiscrepancy | None = None,
    seed: int = 0,
) -> npt.NDArray[np.int8]:
    """Signs of some columns whose signed sum is at most the upper bound in every row.

    Args:
        matrix: (d, N) finite numbers.
        columns: which columns to sign; all of them if None.
        bounds: bounds of the matrix, if they are known.
        seed: seed of the walk.

    Returns:
        (n,) -1 or 1.

    Raises:
        SpecError: not a matrix, columns that it does not have, or no colouring in 1,000 walks.
    """
    array = _array(matrix)
    known = herdisc_bounds(array, seed=seed) if bounds is None else bounds
    chosen = np.arange(array.shape[1]) if columns is None else np.asarray(columns, np.int64)
    if chosen.ndim != 1 or (chosen.size and not (chosen.min() >= 0 and chosen.max() < array.shape[1])):
        msg = f"columns must be a list of column numbers from 0 to {array.shape[1] - 1}"
        raise SpecError(msg)
    generator = np.random.default_rng(seed)
    vectors = known.right[:, chosen]
    for _ in range(TRIALS):
        signs = _walk(vectors, generator)
        if not chosen.size or np.abs(array[:, chosen] @ signs).max() <= known.upper:
            return signs.astype(np.int8)
    msg = f"no colouring within the bound was found in {TRIALS} walks; try another seed"
    raise SpecError(msg)


def _array(matrix: npt.ArrayLike) -> Floats:
    """The matrix, checked."""
    found = matrix_factor(matrix).matrix
    assert found is not None
    return found


def _walk(vectors: Floats, generator: Any) -> Floats:
    """One Gram-Schmidt walk: signs for which the sum of signed vectors is subgaussian."""
    count = vectors.shape[1]
    signs = np.zeros(count)
    alive = list(range(count))
    pivot = -1
    while alive:
        if pivot not in alive:
            pivot = alive[-1]
        others = [one for one in alive if one != pivot]
        direction = np.zeros(count)
        direction[pivot] = 1.0
        if others:
            found, *_ = np.linalg.lstsq(vectors[:, others], -vectors[:, pivot], rcond=None)
            direction[others] = found
        moving = np.abs(direction) > 1e-12
        up = np.min((np.sign(direction[moving]) - signs[moving]) / direction[moving])
        down = np.min((np.sign(direction[moving]) + signs[moving]) / direction[moving])
        step = up if generator.random() * (up + down) < down else -down
        signs += step * direction
        alive = [one for one in alive if abs(signs[one]) < 1 - 1e-9]
    return np.where(signs < 0, -1.0, 1.0)


def _best_minor(matrix: Floats, seed: int) -> tuple[float, Ints, Ints]:
    """The largest |det|^(1/k) / 2 that elimination with complete pivoting finds, then improved by swaps."""
    generator = np.random.default_rng(seed)
    best, kept = 0.0, (np.zeros(1, np.int64), np.zeros(1, np.int64))
    for start in range(STARTS):
        rest = matrix.copy()
        rows: list[int] = []
        columns: list[int] = []
        total = 0.0
        for step in range(min(matrix.shape)):
            size = np.abs(rest)
            if step == 0 and start:
                nonzero = np.argwhere(size > 0)
                i, j = nonzero[generator.integers(len(nonzero))]
            else:
                i, j = np.unravel_index(np.argmax(size), size.shape)
            pivot = rest[i, j]
            if abs(pivot) <= 1e-12 * np.abs(matrix).max():
                break
            rows.append(int(i))
            columns.append(int(j))
            total += math.log(abs(pivot))
            rest = rest - np.outer(rest[:, j], rest[i]) / pivot
            rest[i], rest[:, j] = 0.0, 0.0
            value = math.exp(total / (step + 1)) / 2
            if value > best * (1 + 1e-12):
                best, kept = value, (np.array(rows), np.array(columns))
    return _swapped(matrix, best, *kept)


def _swapped(matrix: Floats, best: float, rows: Ints, columns: Ints) -> tuple[float, Ints, Ints]:
    """Replace one row or one column at a time while that enlarges the determinant."""
    size = len(rows)
    for _ in range(4 * size):
        inverse = np.linalg.inv(matrix[np.ix_(rows, columns)])
        # Replacing row a by row i multiplies the determinant by (row i times inverse)_a; columns alike.
        by_rows = np.abs(matrix[:, columns] @ inverse)
        by_columns = np.abs(inverse @ matrix[rows])
        i, a = np.unravel_index(np.argmax(by_rows), by_rows.shape)
        b, j = np.unravel_index(np.argmax(by_columns), by_columns.shape)
        if max(by_rows[i, a], by_columns[b, j]) <= 1 + 1e-9:
            break
        if by_rows[i, a] >= by_columns[b, j]:
            rows = rows.copy()
            rows[a] = i
        else:
            columns = columns.copy()
            columns[b] = j
    _, log_det = np.linalg.slogdet(matrix[np.ix_(rows, columns)])
    return max(best, math.exp(log_det / size) / 2), rows, columns
