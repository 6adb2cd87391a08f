"""The causal factor of a long filter: its noise is spread over the counts, so that an event changes one word.

In: a filter whose coefficients do not grow. Out: the series and the norms that noise is made with, bounds of their
floating-point errors, variances of answers. Touches: nothing.
Source: Henzinger, Kalinin & Upadhyay 2025, "A Normalized Square Root"; docs/theory/convolution.md, section 12.

With r the square root of the filter's power series, T the lower triangular Toeplitz matrix of 1/r and D the norms of
the columns of its inverse, counts get the noise D T z, z independent. `CausalFactor` has the same noise once its words
are decoded; but an event changes all of those words, R D^-1 x + z, from its position on. Numbers here come from fast
transforms, which round: noise and answers use the same rounded T, and the norms in D are raised by a bound of what they
may lack (`error`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kinds.linear.causal import CausalFactor

MAX_SPREAD_POSITIONS: Final = 1 << 17
"""Most positions: beyond, the noise of a state takes more than ten seconds."""
ROUND_OFF: Final = 64 * 2.0**-53
"""Relative error of an element of a convolution by transforms, for each factor of two of its length; far above it."""
MAX_NORM_ERROR: Final = 1e-3
"""Largest bound of the relative error of norms: noise grows by as much."""
KNOTS: Final = 64
"""Variances that are computed at first, between those that are asked for; more where they bend."""
BEND: Final = 1e-3
"""Largest relative distance of a variance from the line between its neighbours, at which no more are computed."""


@dataclass(frozen=True)
class SpreadFactor(CausalFactor):
    """The normalised square root of a long filter."""

    @cached_property
    def inverse(self) -> Floats:
        """(N,) the power series 1 / r: Newton's iteration for h^(-1/2), twice as many terms in each step."""
        series = np.array([1 / math.sqrt(self.coefficients[0])])
        while len(series) < self.length:
            size = min(2 * len(series), self.length)
            square = _product(series, series, size)
            correction = -_product(self.coefficients[:size], square, size)
            correction[0] += 3
            series = _product(series, correction / 2, size)
        return series

    @cached_property
    def root(self) -> Floats:
        """(N,) the power series r, up to `error`."""
        return _product(self.coefficients[: self.length], self.inverse, self.length)

    @cached_property
    def error(self) -> float:
        """Bound of the sum of |r / r' - 1|'s coefficients, r' the exact inverse of `inverse`."""
        product = _product(self.root, self.inverse, self.length)
        product[0] -= 1
        each = ROUND_OFF * math.log2(2 * self.length) * float(np.linalg.norm(self.root) * np.linalg.norm(self.inverse))
        return float(np.abs(product).sum()) + self.length * each

    @cached_property
    def norms(self) -> Floats:
        """(N,) upper bounds of the norms of the columns of T's inverse: r' = r / (1 + e), and |e| sums to `error`."""
        return np.sqrt(np.cumsum(self.root**2)[::-1]) * ((1 + 1e-12) / (1 - self.error))

    @cached_property
    def usable(self) -> bool:
        """Whether the norms are known well enough."""
        with np.errstate(all="ignore"):
            return bool(np.isfinite(self.error)) and self.error <= MAX_NORM_ERROR

    @cached_property
    def least(self) -> float:
        """Lower bound of the variance of D T z in any direction, z of variance 1.

        The spectral norm of T's inverse is at most the sum of the absolute coefficients of r'.
        """
        return (float(self.norms.min()) * (1 - self.error) / float(np.abs(self.root).sum())) ** 2 * (1 - 1e-12)

    @cached_property
    def largest(self) -> float:
        """Upper bound of the standard deviation of an element of D T z."""
        return float(self.norms.max() * np.linalg.norm(self.inverse)) * (1 + 1e-12)

    def variances(self, coefficients: Floats, rows: Ints, length: int) -> Floats:
        """See `CausalFactor.variances`; with many rows some are computed, and the others interpolated by lines.

        More are computed until each that lies in the middle of two others is on their line, within BEND.
        """
        exact = super().variances
        if len(rows) <= KNOTS:
            return exact(coefficients, rows, length)
        last = len(rows) - 1
        away = np.unique(np.geomspace(1, last, KNOTS // 2).astype(np.int64))
        places = np.unique(np.concatenate([[0], away, last - away]))
        known = exact(coefficients, rows[places], length)
        gaps = np.stack([places[:-1], places[1:]])
        while gaps.size:
            middles = (gaps[0] + gaps[1]) // 2
            gaps, middles = gaps[:, middles > gaps[0]], middles[middles > gaps[0]]
            exact_there = exact(coefficients, rows[middles], length)
            bent = np.abs(np.interp(rows[middles], rows[places], known) - exact_there) > BEND * exact_there
            order = np.argsort(np.concatenate([places, middles]), kind="stable")
            places = np.concatenate([places, middles])[order]
            known = np.concatenate([known, exact_there])[order]
            gaps = np.stack([np.concatenate([gaps[0], middles]), np.concatenate([middles, gaps[1]])])
            gaps = gaps[:, np.concatenate([bent, bent])]
        return np.interp(rows, rows[places], known)


def _product(left: Floats, right: Floats, size: int) -> Floats:
    """(size,) the first coefficients of the product of two power series, by transforms; zeros where it has fewer."""
    from scipy import fft

    long = fft.next_fast_len(max(size, len(left) + len(right) - 1), real=True)
    return np.asarray(fft.irfft(fft.rfft(left, long) * fft.rfft(right, long), long)[:size])
