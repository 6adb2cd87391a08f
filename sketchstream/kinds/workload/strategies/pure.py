"""Strategies for Laplace noise: each cell, the queries themselves, or a tree of blocks with the best weights.

In: a workload. Out: integer matrices. Touches: nothing.
Source: Hay, Rastogi, Miklau & Suciu 2010 (trees); Li, Miklau, Hay, McGregor & Rastogi 2015 (strategies);
docs/theory/workload.md, section 5 (the eigenspaces of a tree with equal branching).

Pure epsilon privacy implies (epsilon, delta) privacy, and where the L1 sensitivity of a good strategy is not much above
its L2 sensitivity, Laplace noise is smaller than Gaussian noise.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kinds.linear.tree import Levels, best_levels
from sketchstream.noise.laws import DiscreteLaplace


def best_tree(gram: Floats, epsilon: Fraction) -> Levels:
    """(cells of a block, integer weight) of each level of the best tree over ordered cells.

    Args:
        epsilon: privacy of a layer, for one unit of weight.
    """
    sums = np.zeros((len(gram) + 1, len(gram) + 1))
    np.cumsum(np.cumsum(gram, axis=0), axis=1, out=sums[1:, 1:])

    def energy(width: int) -> float:
        first = np.arange(0, len(gram), width)
        last = np.minimum(first + width, len(gram))
        return float(np.sum(sums[last, last] - 2 * sums[first, last] + sums[first, first]))

    return best_levels(len(gram), energy, lambda reach: DiscreteLaplace(epsilon / reach).variance)


def tree_matrix(size: int, levels: Levels) -> Ints:
    """(m, N) the strategy: for every kept level, its weight times the indicator of each block."""
    cells = np.arange(size)
    parts = []
    for width, weight in levels:
        count = -(-size // width)
        part = np.zeros((count, size), np.int64)
        part[cells // width, cells] = weight
        parts.append(part)
    return np.concatenate(parts)
