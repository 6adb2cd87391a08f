"""Gaussian noise on a causal factor of a filter: its normalised square root, a lower triangular Toeplitz matrix.

In: a filter. Out: the integer columns of the state, estimates of the counts, exact variances. Touches: nothing.
Source: Henzinger, Kalinin & Upadhyay 2025, "A Normalized Square Root" (columns of norm 1; within a constant of the
best factorisation of running sums); Fichtenberger, Henzinger & Upadhyay 2023 (square roots);
docs/theory/convolution.md, section 12.

With the power series h of the filter, r = h^(1/2), R its lower triangular Toeplitz matrix and D the diagonal matrix of
the norms of R's columns, a state is R D^-1 x + noise. Word k depends on counts up to position k only, so that words
can be published as positions close. Only +, -, *, / and square roots are used, in a fixed order: the columns are the
same integers on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kernels import kernel

MAX_ROOT_POSITIONS: Final = 4096
"""Most positions: work and memory grow with their square."""
BLOCK: Final = 1 << 21
"""Elements of the arrays with which variances are computed."""


@dataclass(frozen=True)
class CausalFactor:
    """The normalised square root of a filter.

    Args:
        coefficients: (lags,) coefficients of the filter by lag; the first is above 0.
        length: N, positions of the series.
    """

    coefficients: Floats
    length: int

    @cached_property
    def root(self) -> Floats:
        """(N,) the power series whose square is the filter's."""
        full = np.zeros(self.length)
        reached = self.coefficients[: self.length]
        full[: len(reached)] = reached
        return np.asarray(_square_root(full))

    @cached_property
    def norms(self) -> Floats:
        """(N,) norm of each column of R."""
        return np.sqrt(np.cumsum(self.root**2)[::-1])

    @cached_property
    def inverse(self) -> Floats:
        """(N,) the power series 1 / r."""
        first = np.zeros(self.length)
        first[0] = 1.0
        return np.asarray(_divide_series(first, self.root))

    @property
    def usable(self) -> bool:
        """Whether the series and its inverse are finite: filters without small zeros."""
        with np.errstate(all="ignore"):
            return bool(np.all(np.isfinite(self.root)) and np.all(np.isfinite(self.inverse)))

    def columns(self, positions: Ints, grid: int) -> Ints:
        """(n, N) int64, change of the state by one unit at each position, on a lattice of `grid` steps in 1."""
        out = np.empty((len(positions), self.length), np.int64)
        root, norms = self.root * grid, self.norms
        for row, position in zip(out, positions.tolist(), strict=True):
            row[:position] = 0
            row[position:] = np.rint(root[: self.length - position] / norms[position])
        return out

    def solve(self, words: Floats) -> Floats:
        """(N,) float64, estimates of the counts from (N,) words in units of 1; each from the words up to its own."""
        return np.asarray(self.norms * _divide_series(words, self.root))

    def variances(self, coefficients: Floats, rows: Ints, length: int) -> Floats:
        """(n,) variances of answers for noise of variance 1 in each word.

        Args:
            coefficients: (lags,) coefficients of the filter that is answered, by lag.
            rows: (n,) int64, k: the answer is the sum of coefficient j times the count at k - j.
            length: positions whose counts are in the answers.
        """
        from scipy import fft

        size = fft.next_fast_len(2 * self.length, real=True)
        turned = np.conj(fft.rfft(self.inverse, size))
        out = np.empty(len(rows))
        step = max(1, BLOCK // size)
        for start in range(0, len(rows), step):
            chosen = rows[start : start + step]
            full = dense_rows(coefficients, chosen, length, self.length) * self.norms
            back = fft.irfft(fft.rfft(full, size, axis=1) * turned, size, axis=1)[:, : self.length]
            out[start : start + step] = np.einsum("ij,ij->i", back, back)
        return out


def block_energies(coefficients: Floats, first: int, stop: int, length: int, width: int) -> Floats:
    """(stop - first,) sums over blocks of the squares of a filter's coefficients, summed over each block.

    Args:
        coefficients: (lags,) coefficients of the filter by lag.
        first: first row, k: coefficient j falls on position k - j.
        stop: one past the last row.
        length: positions, 0 to length - 1; blocks begin at 0.
        width: positions of a block.
    """
    sums, widest = np.concatenate([[0.0], np.cumsum(coefficients)]), len(coefficients)
    if width == 1:
        sums = np.concatenate([[0.0], np.cumsum(coefficients**2)])
        k = np.arange(first, stop)
        return np.asarray(sums[np.minimum(k, widest - 1) + 1] - sums[np.clip(k - length + 1, 0, widest)])
    out = np.empty(stop - first)
    inside = max(0, min(stop, length) - first)
    if inside:  # rows that end within the series: by place in the block, energies add up block by block
        backwards = np.arange(-(-widest // width) + 1) * width
        highs = np.clip(np.arange(width)[:, None] + backwards + 1, 0, widest)
        lows = np.clip(np.arange(width)[:, None] + backwards + 1 - width, 0, widest)
        table = np.cumsum((sums[highs] - sums[lows]) ** 2, axis=1)
        k = np.arange(first, first + inside)
        out[:inside] = table[k % width, np.minimum(k // width, len(backwards) - 1)]
    starts = np.arange(0, length, width)
    step = max(1, BLOCK // len(starts))
    for start in range(first + inside, stop, step):
        k = np.arange(start, min(start + step, stop))[:, None]
        highs = np.clip(k - starts + 1, 0, widest)
        lows = np.clip(k - np.minimum(starts + width, length) + 1, 0, widest)
        out[start - first : start - first + len(k)] = np.sum((sums[highs] - sums[lows]) ** 2, axis=1)
    return out


def filter_causally(counts: Floats, coefficients: Floats, rows: Ints) -> Floats:
    """(n,) sums of coefficient j times the count at k - j for each row k, from counts up to k, in a fixed order."""
    return np.asarray(_filter_rows(counts, np.ascontiguousarray(coefficients), rows))


def dense_rows(coefficients: Floats, rows: Ints, length: int, size: int) -> Floats:
    """(n, size) coefficients of the counts in the answers at rows k; 0 from `length` on."""
    lags = rows[:, None] - np.arange(size)
    inside = (lags >= 0) & (lags < len(coefficients)) & (np.arange(size) < length)
    return np.where(inside, coefficients[np.clip(lags, 0, len(coefficients) - 1)], 0.0)


@kernel
def _square_root(series: Any) -> Any:
    """The square root of a power series."""
    out = np.zeros(len(series))
    out[0] = np.sqrt(series[0])
    for k in range(1, len(series)):
        total = series[k]
        for i in range(1, k):
            total -= out[i] * out[k - i]
        out[k] = total / (2 * out[0])
    return out


@kernel
def _divide_series(above: Any, below: Any) -> Any:
    """The quotient of two power series."""
    out = np.zeros(len(above))
    for k in range(len(above)):
        total = above[k]
        for i in range(1, k + 1):
            total -= below[i] * out[k - i]
        out[k] = total / below[0]
    return out


@kernel
def _filter_rows(counts: Any, coefficients: Any, rows: Any) -> Any:
    """See `filter_causally`."""
    out = np.zeros(len(rows))
    for place in range(len(rows)):
        k = rows[place]
        for j in range(max(0, k - len(counts) + 1), min(k + 1, len(coefficients))):
            out[place] += coefficients[j] * counts[k - j]
    return out
