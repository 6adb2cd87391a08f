"""Covariances of numbers of items by region, and the variances of all sums of them.

In: a fit. Out: `Covariance`s. Touches: nothing.
Source: docs/theory/overlap.md, section 3.

A covariance is a difference P P' - N N'; sums of numbers are rows of weights, whose products with P and N are all that
is computed. In the coordinates of seen patterns (the channel undone) the information of an open domain is nearly
diagonal, so that its factor is exact however much the channel multiplies the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.overlap.channel import Kronecker, product
from sketchstream.kinds.profile.overlap.law import Patterns, Scoring

if TYPE_CHECKING:
    from sketchstream.kinds.groups.overlap import Covariance

INDISTINGUISHABLE = (
    "nothing tells the groups' items apart: every level of this sketch is full, or its noise hides them; use more "
    "slots or levels, or a larger epsilon"
)
ROW_BLOCK = 64
"""Rows of a large matrix that are transformed at a time."""
SINGLE = 1 << 10
"""Regions from which on the factor is of single precision, which changes variances by 10^-5 of them."""


class OpenCovariance:
    """Covariance in an open domain: the inverse of the information, less the chance by which items are there.

    Args:
        scoring: the likelihood near the likeliest numbers.
        regions: (2^m - 1,) the likeliest numbers.

    Raises:
        EstimateError: the information is not positive definite.
    """

    def __init__(self, scoring: Scoring, regions: Floats) -> None:
        from scipy.linalg.lapack import get_lapack_funcs

        self._quiet = scoring.law.denoised
        self._quiet_back = scoring.law.denoised_transposed
        self._items = np.sqrt(regions)
        matrix = information(scoring)
        scale = np.diagonal(matrix).copy()
        if not (scale > 0).all():
            raise EstimateError(INDISTINGUISHABLE)
        self._scale = 1 / np.sqrt(scale)
        matrix *= self._scale
        matrix *= self._scale[:, None]
        matrix = matrix.astype(np.float64 if len(matrix) < SINGLE else np.float32)
        (factored,) = get_lapack_funcs(("potrf",), (matrix,))
        self._root, failed = factored(matrix.T, lower=0, clean=1, overwrite_a=1)
        if failed:
            raise EstimateError(INDISTINGUISHABLE)

    def _weights(self, weights: Floats) -> Floats:
        """(k, 2^m - 1) of seen patterns, in sums of numbers of items by region."""
        padded = np.zeros((len(weights), weights.shape[1] + 1))
        padded[:, 1:] = weights
        back = self._quiet_back(padded)
        return (back[:, 1:] - back[:, :1]) * self._scale

    def inverse(self, score: Floats) -> Floats:
        """(2^m - 1,) the product of the inverse of the information and these."""
        from scipy.linalg import cho_solve

        seen = cho_solve((self._root, False), self._weights(score[None])[0].astype(self._root.dtype)) * self._scale
        undone: Floats = self._quiet(np.concatenate([[-seen.sum()], seen]))[1:]
        return undone

    def parts(self, weights: Floats) -> tuple[Floats, Floats]:
        """See `Covariance`."""
        from scipy.linalg import solve_triangular

        right = self._weights(weights).T.astype(self._root.dtype)
        return solve_triangular(self._root, right, trans="T").T.astype(np.float64), weights * self._items

    def variances(self) -> Floats:
        """See `Covariance`."""
        from scipy.linalg.lapack import get_lapack_funcs

        (inverted,) = get_lapack_funcs(("trtri",), (self._root,))
        inverse = inverted(self._root, lower=0)[0].T
        total = np.zeros(len(self._scale) + 1)
        for first in range(0, len(inverse), ROW_BLOCK):
            rows = inverse[first : first + ROW_BLOCK] * self._scale.astype(inverse.dtype)
            total += (self._quiet(np.hstack([-rows.sum(axis=1, keepdims=True), rows])) ** 2).sum(axis=0)
        variances: Floats = total[1:] - self._items**2
        return variances


class ClosedCovariance:
    """Covariance in a closed domain, whose true patterns are fixed: the noise of counters and cells, undone.

    Args:
        each: (2^m,) variances of cells without what they have in common.
        regions: (2^m - 1,) the likeliest numbers.
        table: what was published.
    """

    def __init__(self, each: Floats, regions: Floats, table: Patterns) -> None:
        self._undo = Kronecker(table.channel.one, table.groups).inverse
        self._kept, self._each = table.channel.kept, each
        self._drawn = (1 - self._kept) * table.channel.drawn(table.groups)
        self._slots = table.slots
        true = np.concatenate([[max(table.slots - regions.sum(), 0.0)], regions])
        self._true = np.sqrt(true)
        self._seen = Kronecker(table.channel.one, table.groups).transposed

    def free(self, cells: Floats) -> Floats:
        """(2^m - 1,) numbers by region that give these cells, their sum being the number of slots."""
        cells = cells - (cells.sum() - self._slots) / len(cells) - self._slots * self._drawn
        estimates: Floats = self._undo(cells)[1:] / self._kept
        return estimates

    def parts(self, weights: Floats) -> tuple[Floats, Floats]:
        """See `Covariance`."""
        padded = np.zeros((len(weights), weights.shape[1] + 1))
        padded[:, 1:] = weights
        cells = self._undo.transposed(padded) / self._kept
        cells -= cells.mean(axis=1, keepdims=True)
        shown = self._kept * self._seen(cells) + (cells @ self._drawn)[:, None]
        return cells * np.sqrt(self._each), shown * self._true

    def variances(self) -> Floats:
        """See `Covariance`; without a matrix."""
        n = len(self._each)
        middle = self._undo(np.full(n, 1 / n))
        drawn = (self._undo(self._drawn) - middle * self._drawn.sum()) / self._kept
        shift = drawn - middle
        noise = self._undo.squared(self._each) - 2 * middle * self._undo(self._each) + middle**2 * self._each.sum()
        true = self._true**2
        chance = true * (1 + 2 * shift) + shift**2 * true.sum()
        variances: Floats = (noise / self._kept**2 - chance)[1:]
        return variances


@dataclass(frozen=True, eq=False)
class DoubtedCovariance:
    """Covariance of numbers in whose law something is estimated.

    Args:
        exact: exact covariance, where that is known.
        ways: (k, 2^m - 1) changes of the numbers with a standard error of each thing that is estimated.
    """

    exact: Covariance
    ways: Floats

    def parts(self, weights: Floats) -> tuple[Floats, Floats]:
        """See `Covariance`."""
        plus, minus = self.exact.parts(weights)
        return np.hstack([plus, weights @ self.ways.T]), minus

    def variances(self) -> Floats:
        """See `Covariance`."""
        variances: Floats = self.exact.variances() + (self.ways**2).sum(axis=0)
        return variances


@dataclass(frozen=True, eq=False)
class SumCovariance:
    """Covariance of sums of independent numbers, of a share of the items.

    Args:
        terms: covariances of the summands.
        rate: share of the items that was counted.
        items: (2^m - 1,) numbers of all items, of which that share was drawn.
    """

    terms: Sequence[Covariance]
    rate: float
    items: Floats

    def parts(self, weights: Floats) -> tuple[Floats, Floats]:
        """See `Covariance`."""
        plus, minus = zip(*(term.parts(weights / self.rate) for term in self.terms), strict=True)
        drawn = [weights * np.sqrt(self.items * (1 - self.rate) / self.rate)] if self.rate < 1 else []
        return np.hstack([*plus, *drawn]), np.hstack(minus)

    def variances(self) -> Floats:
        """See `Covariance`."""
        variances: Floats = np.sum([term.variances() for term in self.terms], axis=0) / self.rate**2
        return variances + self.items * (1 - self.rate) / self.rate


def information(scoring: Scoring) -> Floats:
    """(2^m - 1, 2^m - 1) of the numbers of slots by pattern, without the pattern of no group: only its lower triangle.

    Args:
        scoring: the likelihood near the likeliest numbers.
    """
    from sketchstream.kinds.profile.overlap.pairs import add_pairs

    law, groups = scoring.law, scoring.law.table.groups
    axis = law.to_patterns.axes[0]
    pairs = np.stack([axis[:, 0] ** 2, axis[:, 0] * axis[:, 1], axis[:, 1] ** 2])
    left, right = (product(np.broadcast_to(pairs, (n, 3, 2))) for n in (groups // 2, groups - groups // 2))
    by_pair = left @ (1 / scoring.variances).reshape(-1, left.shape[1], right.shape[1]) @ right.T
    back = scoring.emptied * law.to_patterns.transposed(scoring.weights)
    matrix = (scoring.common * back).T @ back
    falls = np.ascontiguousarray(scoring.emptied)
    add_pairs(matrix, by_pair.reshape(len(by_pair), -1), falls, ternary(groups).astype(np.uint64))
    along = (law.to_absent @ law.denoised).transposed
    for first in range(0, len(matrix), ROW_BLOCK):
        matrix[first : first + ROW_BLOCK] = along(matrix[first : first + ROW_BLOCK])
    for first in range(0, len(matrix), ROW_BLOCK):
        matrix[first:, first : first + ROW_BLOCK] = along.columns(matrix[:, first : first + ROW_BLOCK], first)
    none = matrix[:, 0].copy()  # the column of no group; also the first row, as the matrix is symmetric
    matrix -= none[:, None]
    matrix -= none - none[0]
    information: Floats = matrix[1:, 1:]
    return information


def ternary(groups: int) -> Ints:
    """(2^m,) numbers whose digits of base 3 are the bits: the sum of two tells which bits none, one or both have."""
    every = np.arange(2**groups)
    places: Ints = np.sum([((every >> bit) & 1) * 3**bit for bit in range(groups)], axis=0)
    return places
