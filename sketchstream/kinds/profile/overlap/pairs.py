"""Compiled sum of what two patterns have in common, over all pairs of patterns.

In: plain arrays, checked by the caller. Out: a matrix, changed in place. Touches: nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sketchstream.kernels import kernel

Floats = npt.NDArray[np.float64]


@kernel
def add_pairs(matrix: Floats, by_pair: Floats, falls: Floats, places: npt.NDArray[np.uint64]) -> None:
    """Add sums over the levels of one number for what two patterns have in common, times one of each pattern.

    Args:
        matrix: (2^m, 2^m).
        by_pair: (levels, 3^m).
        falls: (levels, 2^m).
        places: (2^m,) see `ternary`.
    """
    n = len(places)
    for s in range(n):
        row = matrix[s]
        for level in range(len(falls)):
            one, here, fall = by_pair[level], falls[level], falls[level, s]
            for t in range(n):
                row[t] += one[places[s] + places[t]] * here[t] * fall
