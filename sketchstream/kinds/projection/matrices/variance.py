"""Variances of every estimator, over the draw of the matrix and of the noise, in closed form.

In: squared norms and inner products of the data, tau, k. Out: float64 variances, user units. Touches: nothing.
Source: docs/theory/projection.md, section 5 (derivations).

tau is the noise variance of a cell over the scale of the signal, V / (E[R^2] 4^f): each of the k coordinates of a
row is, on the user's scale, sqrt k times the sum of a projected signal of variance norm^2 and noise of variance tau.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchstream.kinds.projection.matrices.matrix import Matrix

Numbers = Any
"""A float, or a float64 array."""


@dataclass(frozen=True)
class MatrixLaw:
    """What the variances need to know of a matrix.

    Args:
        signal: factor of the terms in which the signal meets itself: 1; for srht, whose columns are sampled without
            replacement, 1 - (k - 1) / (d' - 1); 0 for identity, which loses nothing of it.
        signs: whether entries are signs; then sums of fourth powers lower the variance.
    """

    k: int
    signal: float
    signs: bool

    @classmethod
    def of(cls, matrix: Matrix) -> MatrixLaw:
        """The law of a matrix."""
        sampled = matrix.family == "srht" and matrix.order > 1
        signal = 1 - (matrix.columns - 1) / (matrix.order - 1) if sampled else float(matrix.family != "identity")
        return cls(matrix.columns, signal, matrix.family != "gaussian")

    def squared_norm(self, norm2: Numbers, tau: Numbers, fourth: Numbers = 0.0, excess: Numbers = 0.0) -> Numbers:
        """Variance of a squared norm or, with the noise of both rows in tau, of a squared distance.

        Args:
            fourth: sum of the fourth powers of the vector's entries; 0 gives an upper bound.
            excess: fourth cumulant of a cell's noise, in the square of signal units; 0 for noise that is nearly normal.
        """
        fourth = fourth if self.signs else 0.0
        return (2 * (self.signal * (norm2**2 - fourth) + 2 * norm2 * tau + tau**2) + excess) / self.k

    def inner(self, left2: Numbers, right2: Numbers, product: Numbers, tau: Numbers, shared: Numbers = 0.0) -> Numbers:
        """Variance of an inner product of two rows.

        Args:
            tau: noise variance a cell, signal units; one number, or a pair (left, right): 0 of a public vector.
            shared: sum over features of the product of both squared entries; 0 gives an upper bound.
        """
        left, right = tau if isinstance(tau, tuple) else (tau, tau)
        shared = 2 * shared if self.signs else 0.0
        signal = self.signal * (left2 * right2 + product**2 - shared)
        return (signal + left2 * right + right2 * left + left * right) / self.k

    # The same from estimates: unbiased, as far as cells are normal. Norms are not clipped at 0 before: where noise
    # decides, that would make a standard error 16% too large at k = 16. For srht and identity an estimate can come out
    # below 0; there the least is a half of the noise alone.

    def squared_norm_estimate(self, value: Numbers, tau: Numbers, excess: Numbers = 0.0) -> Numbers:
        """Unbiased estimate of the variance of a squared norm."""
        mixed = 2 * value * tau + tau**2 + excess / 2
        fourth = (value**2 - 2 * mixed / self.k) / (1 + 2 * self.signal / self.k)
        return np.maximum(2 * (self.signal * fourth + mixed), (1 - self.signal) * (tau**2 + excess / 2)) / self.k

    def inner_estimate(self, left2: Numbers, right2: Numbers, value: Numbers, tau: tuple[float, float]) -> Numbers:
        """Unbiased estimate of the variance of an inner product.

        Args:
            right2: squared norm of the other; the exact one of a public vector.
            tau: noise variance a cell of both, signal units; 0 for a public vector.
        """
        k, (left, right) = self.k, tau
        both, square = (left2 + left) * (right2 + right), value**2
        if right == 0:
            random = (both + square) / (1 + 1 / k)
        elif k == 1:
            random = both
        else:
            random = both + (1 - 2 / k) * (square - both / k) / ((1 - 1 / k) * (1 + 2 / k))
        kept = left2 * right + right2 * left + left * right
        lost = 1 - self.signal
        return np.maximum(self.signal * random + lost * kept, lost * left * right / 2) / k
