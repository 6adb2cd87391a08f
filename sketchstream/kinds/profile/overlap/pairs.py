"""Compiled sum of what two patterns have in common, over all pairs of patterns.

In: plain arrays, checked by the caller. Out: a matrix, changed in place. Touches: nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats
from sketchstream.kernels import kernel

TILE = 64


@kernel
def add_pairs(matrix: Floats, by_pair: Floats, falls: Floats, places: npt.NDArray[np.uint64]) -> None:
    """Add sums over the levels of one number for what two patterns have in common, times one of each pattern.

    The sums are symmetric: each is computed once, in square tiles that stay in the cache, and added at both places.

    Args:
        matrix: (2^m, 2^m).
        by_pair: (levels, 3^m).
        falls: (levels, 2^m).
        places: (2^m,) places, as `ternary` gives them.
    """
    n = len(places)
    size = min(n, TILE)
    tile = np.empty((size, size))
    for first in range(0, n, size):
        for second in range(first, n, size):
            tile[:] = 0.0
            for s in range(size):
                row, place = tile[s], places[first + s]
                for level in range(len(falls)):
                    one, here, fall = by_pair[level], falls[level, second : second + size], falls[level, first + s]
                    for t in range(size):
                        row[t] += one[place + places[second + t]] * here[t] * fall
            for s in range(size):
                for t in range(size):
                    matrix[first + s, second + t] += tile[s, t]
                    if second > first:
                        matrix[second + t, first + s] += tile[s, t]
