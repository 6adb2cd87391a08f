"""Posterior means of true counts, under the law of true counts that fits the noisy ones.

In: noisy counts and the variance of their noise. Out: posterior means and an unbiased estimate of their error. Touches:
nothing.
Source: Robbins 1956; Kiefer & Wolfowitz 1956; Jiang & Zhang 2009 (the error approaches that of the best function of one
count); Ramani, Blu & Unser 2008 (the divergence in an unbiased estimate of error, by a small shift of all counts);
docs/theory/gaussian.md, section 7.

The law has atoms on a grid. It is found by a fixed number of steps of expectation and maximisation, from a start that
is mostly a normal law, so it becomes only as rough as the counts ask for.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats

ATOMS_PER_DEVIATION: Final = 8
"""Atoms for each standard deviation of the noise."""
ATOMS_ASIDE: Final = 6 * ATOMS_PER_DEVIATION
"""Atoms from a count's own to the farthest that explains it."""
MAX_ATOMS: Final = 1 << 14
"""Atoms around the median, at most; counts beyond them stay as they are."""
EM_STEPS: Final = 100
"""Steps of expectation and maximisation."""
FLAT: Final = 0.1
"""Share of the uniform law at the start."""
NUDGE: Final = 0.1
"""Grid steps by which counts are shifted, up or down, to see how far the means follow."""

OFFSETS: Final = np.arange(-ATOMS_ASIDE, ATOMS_ASIDE + 1, dtype=np.float64)
KERNEL: Final = np.exp(-0.5 * (OFFSETS / ATOMS_PER_DEVIATION) ** 2)


def posterior_means(counts: Floats, variance: float) -> tuple[Floats, float, float]:
    """Posterior means of all counts.

    Args:
        counts: (d,) float64, noisy.
        variance: variance of the noise of each count.

    Returns:
        (d,) means; Stein's unbiased estimate of the sum of squared errors; the mean slope of the means in the counts.
    """
    scale = ATOMS_PER_DEVIATION / math.sqrt(variance)
    middle = float(np.quantile(counts, 0.5, method="lower"))  # one of the counts, so that some are near
    places = (counts - middle) * scale
    near = np.abs(places) <= MAX_ATOMS / 2
    first = math.floor(places[near].min()) - 1
    at = places[near] - first
    size = math.floor(at.max()) + 3
    signs = np.where(scramble(len(at)) >> np.uint64(63), 1.0, -1.0)
    means, nudged = (_posterior_means_on_grid(one, size) for one in (at, at + NUDGE * signs))
    away = means - at
    slope = float(signs @ (nudged - means)) / NUDGE
    values = counts.copy()
    values[near] = (means + first) / scale + middle
    risk = variance * (len(counts) - 2 * len(at) + 2 * slope) + float(away @ away) / scale**2
    return values, risk, (slope + len(counts) - len(at)) / len(counts)


def _posterior_means_on_grid(at: Floats, size: int) -> Floats:
    """Posterior means of places on a grid."""
    low = np.minimum(at.astype(np.int64), size - 2)
    right = at - low
    # Counts are shared out to the grid points on both sides, so that their mean stays.
    histogram = np.asarray(np.bincount(low, 1 - right, size) + np.bincount(low + 1, right, size), np.float64)
    means = _means(_fit_mixture(histogram, _start(histogram)))
    return np.asarray(means[low] * (1 - right) + means[low + 1] * right)


def scramble(number: int) -> npt.NDArray[np.uint64]:
    """(number,) words without a pattern, the same in every call: no answer depends on a random draw.

    Args:
        number: number of words.
    """
    words = np.arange(1, number + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    words ^= words >> np.uint64(29)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    return words


def _start(histogram: Floats) -> Floats:
    """A normal law around the middle half of the counts, without their noise, mixed with the uniform one."""
    size, number = len(histogram), float(histogram.sum())
    grid = np.arange(size, dtype=np.float64)
    quarter, half, three = np.interp([number / 4, number / 2, 3 * number / 4], np.cumsum(histogram), grid)
    spread = math.sqrt(max((three - quarter) ** 2 / 1.349**2 - ATOMS_PER_DEVIATION**2, 1.0))
    law = np.exp(-0.5 * ((grid - half) / spread) ** 2)
    return np.asarray((1 - FLAT) * law / law.sum() + FLAT / size)


def _fit_mixture(histogram: Floats, start: Floats) -> Floats:
    """(size,) the law after all steps."""
    law, number = start, histogram.sum()
    for _ in range(EM_STEPS):
        law = law * _convolve_same(histogram / np.maximum(_convolve_same(law, KERNEL), 1e-300), KERNEL) / number
    return law


def _means(law: Floats) -> Floats:
    """(size,) posterior mean at each grid point, in grid steps."""
    shift = _convolve_same(law, OFFSETS * KERNEL) / np.maximum(_convolve_same(law, KERNEL), 1e-300)
    return np.asarray(np.arange(len(law)) - shift)


def _convolve_same(values: Floats, kernel: Floats) -> Floats:
    """The convolution, of the size of the values."""
    return np.asarray(np.convolve(values, kernel)[ATOMS_ASIDE:-ATOMS_ASIDE])
