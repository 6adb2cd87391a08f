"""Sensitivity of a row of the state to one event or one row: upper bounds of norms of the projection matrix.

In: a matrix; bounds of weights. Out: squared sensitivities, exact rationals. Touches: nothing.
Source: Gershgorin's theorem (sparse rows); Tropp 2011 (srht); Rump 2006 (the certificate); docs/theory/projection.md,
section 2.

The Gram matrix is exact although BLAS computes it: entries are integers of at most 582, so all products and partial
sums are integers below 2^53 up to 2^34 features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from operator import mul
from typing import Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import SpecError
from sketchstream.kinds.projection.matrices.matrix import Matrix

MAX_PASSED: Final = 1 << 24
"""Features of a matrix whose rows are all looked at, at most."""
MAX_PAIR_PRODUCTS: Final = 1 << 38
"""Multiplications of a search over all pairs of rows, at most."""
BLOCK: Final = 1 << 21
"""Entries of a block of rows."""
PAIRED_ROWS: Final = 1024
"""Rows of a block that is paired with others: `BLOCK` entries of few columns would have gigabytes of pairs."""
LARGE: Final = 256
"""Size from which on the largest eigenvalue of a matrix is found by iteration."""
DIGITS: Final = 20
"""Bits of one part of an eigenvector's entry; it has two."""
GRID: Final = 1 << 40
"""Bounds of squared singular values are multiples of one over this."""


@lru_cache(maxsize=64)
def longest_row(matrix: Matrix) -> int:
    """The largest squared norm of a row; exact, and without a look at the rows for signs."""
    if matrix.family == "identity":
        return 1
    if matrix.family != "gaussian":
        return matrix.columns
    return max(int(np.einsum("ij,ij->i", block, block).max()) for block in _blocks(matrix))


@lru_cache(maxsize=64)
def spectral(matrix: Matrix) -> Fraction:
    """An upper bound of the largest squared singular value: d' for srht, 1 for identity, else certified."""
    if matrix.family in ("srht", "identity"):
        return Fraction(matrix.order if matrix.family == "srht" else 1)
    return _certified_eigenvalue(_gram(matrix))


def _gram(matrix: Matrix) -> Ints:
    """R'R or, with fewer rows than columns, RR', which has the same largest eigenvalue; exact."""
    if matrix.features < matrix.columns:
        rows = np.concatenate(list(_blocks(matrix)))
        return np.asarray(rows @ rows.T, np.int64)
    gram = np.zeros((matrix.columns, matrix.columns), np.int64)
    for block in _blocks(matrix):
        gram += (block.T @ block).astype(np.int64)
    return gram


def _certified_eigenvalue(gram: Ints) -> Fraction:
    """An upper bound of the largest eigenvalue of an exact Gram matrix; the same on every machine.

    The Rayleigh quotient of a computed eigenvector is taken in integers. Its error is the square of the vector's, far
    below the grid to which the bound is rounded up, so libraries of linear algebra that differ in last bits lead to
    one bound: costs in bytes rest on it.

    The bound b is certified by a Cholesky factorization of b I - G that completes although the diagonal was lowered by
    more than all rounding errors together (Rump 2006, Theorem 2.3: about (k + 2) u trace; the conversion of G and the
    subtraction add (k + 1) u b).
    """
    k = len(gram)
    as_floats = gram.astype(np.float64)
    largest = _rayleigh(gram, _top_eigenvector(as_floats))
    rounding = 4 * (k + 2) ** 2 * 2.0**-53
    excess = Fraction(2 * rounding)
    while True:
        bound = Fraction(math.ceil(largest * (1 + excess) * GRID), GRID)
        try:
            np.linalg.cholesky(np.diag(np.full(k, float(bound) * (1 - rounding))) - as_floats)
        except np.linalg.LinAlgError:
            excess *= 2
        else:
            return bound


def _top_eigenvector(gram: Floats) -> Floats:
    """(k,) the unit eigenvector of the largest eigenvalue, as floating point finds it."""
    if len(gram) < LARGE:
        return np.asarray(np.linalg.eigh(gram)[1][:, -1])
    from scipy.sparse.linalg import eigsh

    return np.asarray(eigsh(gram, 1, which="LA", v0=np.ones(len(gram)))[1][:, 0])


def _rayleigh(gram: Ints, vector: Floats) -> Fraction:
    """X'Gx / x'x in integers, for the vector rounded to multiples of 2^-2 DIGITS.

    Products are taken in parts that stay below 2^63: parts of x have DIGITS bits, those of G at most 24.
    """
    whole = [round(entry * 4.0**DIGITS) for entry in vector.tolist()]
    parts = np.array([divmod(entry, 1 << DIGITS) for entry in whole], np.int64)
    low = 1 << 22
    high_products, low_products = (gram // low) @ parts, (gram % low) @ parts
    image = [
        (a * low << DIGITS) + (b * low) + (c << DIGITS) + d
        for (a, b), (c, d) in zip(high_products.tolist(), low_products.tolist(), strict=True)
    ]
    return Fraction(sum(map(mul, whole, image)), sum(entry * entry for entry in whole))


@lru_cache(maxsize=64)
def largest_overlap(matrix: Matrix) -> int:
    """The largest absolute inner product of two different rows; exact. O(d^2 k), for srht O(d log d)."""
    if matrix.features == 1 or matrix.family == "identity":
        return 0
    if matrix.family == "srht" and matrix.order <= MAX_PASSED:
        # Rows i and j differ from rows 0 and i ^ j by signs only, and i ^ j takes every value from 1 to d' - 1.
        sums = np.zeros(matrix.order, np.int64)
        sums[matrix.sampled.astype(np.int64)] = 1
        half = 1
        while half < matrix.order:
            pairs = sums.reshape(-1, 2, half)
            sums = np.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), axis=1).reshape(-1)
            half *= 2
        return int(np.abs(sums[1:]).max())
    if matrix.features**2 * matrix.columns > MAX_PAIR_PRODUCTS:
        raise SpecError(
            f"max_features needs a look at all pairs of features, too many for {matrix.features} features and "
            f"k = {matrix.columns}; leave max_features out, or use matrix = 'srht'"
        )
    blocks = list(_blocks(matrix, PAIRED_ROWS))
    largest = 0
    for i, left in enumerate(blocks):
        for right in blocks[i:]:
            products = left @ right.T
            if left is right:
                np.fill_diagonal(products, 0.0)
            largest = max(largest, int(np.abs(products).max()))
    return largest


def sparse(matrix: Matrix, max_features: int) -> Fraction:
    """An upper bound of the squared norm of z R over unit vectors z with at most this many nonzero entries."""
    bound = longest_row(matrix) + (max_features - 1) * largest_overlap(matrix)
    return min(Fraction(bound), spectral(matrix))


def _blocks(matrix: Matrix, most_rows: int = BLOCK) -> Iterator[Floats]:
    """The rows as float64, block by block."""
    step = max(1, min(most_rows, BLOCK // matrix.columns))
    for start in range(0, matrix.features, step):
        stop = min(start + step, matrix.features)
        yield matrix.rows(np.arange(start, stop, dtype=np.uint64)).astype(np.float64)
