"""Strategies for Laplace noise: each cell, the queries themselves, or a tree of blocks with the best weights.

In: a workload. Out: integer matrices. Touches: nothing.
Source: Hay, Rastogi, Miklau & Suciu 2010 (trees); Li, Miklau, Hay, McGregor & Rastogi 2015 (strategies);
docs/theory/workload.md, section 5 (the eigenspaces of a tree with equal branching).

Pure epsilon privacy implies (epsilon, delta) privacy, and where the L1 sensitivity of a good strategy is not much above
its L2 sensitivity, Laplace noise is smaller than Gaussian noise.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from sketchstream.kinds.workload.factors import Floats, Ints

BRANCHINGS = (2, 4, 8, 16, 32)
TREE_BITS = 8
"""Weights of a tree's levels are multiples of 2^-TREE_BITS."""


def laplace_variance(epsilon: Fraction, sensitivity1: int) -> float:
    """Variance of discrete Laplace noise with parameter epsilon / sensitivity1.

    Args:
        epsilon: privacy.
        sensitivity1: L1 sensitivity.
    """
    rate = float(epsilon / sensitivity1)
    return 1 / (2 * math.sinh(rate / 2) ** 2) if rate < 1400 else 0.0


def best_tree(gram: Floats) -> list[tuple[int, int]]:
    """The levels of the best tree over the branchings tried, as `tree_levels`; empty if no tree has two levels.

    Args:
        gram: (N, N) of the workload.
    """
    found = [tree_levels(gram, branching) for branching in BRANCHINGS]
    found = [levels for levels in found if len(levels) > 1]
    return min(found, key=lambda levels: tree_error(gram, levels), default=[])


def tree_error(gram: Floats, levels: list[tuple[int, int]]) -> float:
    """Squared L1 sensitivity times the total variance for noise of variance 1 in each block.

    Args:
        gram: (N, N) of the workload.
        levels: result of `tree_levels`.
    """
    blocks = tree_matrix(len(gram), levels).astype(np.float64)
    return float(np.trace(np.linalg.solve(blocks.T @ blocks, gram))) * sum(weight for _, weight in levels) ** 2


def tree_levels(gram: Floats, branching: int) -> list[tuple[int, int]]:
    """(cells of a block, integer weight) of each level that is kept, for a tree over ordered cells.

    The continuous weights minimise the total variance of the answers by least squares at L1 sensitivity 1.

    Args:
        gram: (N, N) of the workload.
        branching: blocks of one level in a block of the next.
    """
    from scipy.optimize import minimize

    size = len(gram)
    widths = [1]
    while widths[-1] < size:
        widths.append(widths[-1] * branching)
    traces = np.array([_block_trace(gram, width) for width in widths] + [0.0])
    details = np.maximum(traces[:-1] - traces[1:], 0.0)
    scale = np.array(widths, np.float64)

    def total(logs: Floats) -> float:
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        return float(np.sum(details / np.cumsum(weights * weights * scale)))

    options = {"maxiter": 400 * len(widths), "maxfev": 400 * len(widths), "xatol": 1e-5, "fatol": 1e-9 * traces[0]}
    found = np.asarray(minimize(total, np.zeros(len(widths)), method="Nelder-Mead", options=options).x)
    weights = np.exp(found - found.max())
    whole = np.rint(weights / weights.sum() * (1 << TREE_BITS)).astype(np.int64)
    whole[0] = max(whole[0], 1)
    return [(width, int(weight)) for width, weight in zip(widths, whole.tolist(), strict=True) if weight]


def tree_matrix(size: int, levels: list[tuple[int, int]]) -> Ints:
    """(m, N) the strategy: for every kept level, its weight times the indicator of each block.

    Args:
        size: cells, N.
        levels: (cells of a block, weight) of each level.
    """
    cells = np.arange(size)
    parts = []
    for width, weight in levels:
        count = -(-size // width)
        part = np.zeros((count, size), np.int64)
        part[cells // width, cells] = weight
        parts.append(part)
    return np.concatenate(parts)


def _block_trace(gram: Floats, width: int) -> float:
    """Trace of (projection onto vectors constant on blocks) x gram; a last block that is cut counts as a whole one."""
    size = len(gram)
    starts = np.arange(0, size, width)
    sums = np.add.reduceat(np.add.reduceat(gram, starts, axis=0), starts, axis=1)
    return float(np.trace(sums)) / width
