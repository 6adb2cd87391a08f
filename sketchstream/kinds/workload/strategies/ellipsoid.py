"""The mechanism of the paper, for comparison: nested halves of minimum enclosing ellipsoids.

In: a reduced workload. Out: weights of the minimum enclosing ellipsoid, the paper's blocks, an `Optimum` made
of them. Touches: nothing.
Source: Nikolov, Talwar & Zhang 2013, algorithms 1 and 2; Khachiyan 1996 and Todd & Yildirim 2007 (the ellipsoid, with
steps away); docs/theory/workload.md, section 4 (what is corrected: the factor of the covariance is not the number of
blocks but at most that).
"""

from __future__ import annotations

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.workload.strategies.optimise import Optimum, Reduced

MAX_STEPS = 1_000_000
REBUILD = 200
"""Steps after which the inverse is computed afresh."""
NEGLIGIBLE = 1e-15
"""Weights below this are 0."""


def enclosing_weights(columns: Floats, tolerance: float = 1e-3) -> Floats:
    """Weights p of the minimum enclosing ellipsoid {v : v' (k M(p))^-1 v <= 1} of the columns and their negatives.

    k is the largest c' M^-1 c over the columns; it is r at the optimum. For any p the ellipsoid holds the columns.

    Args:
        tolerance: relative distance of every c' M^-1 c from r at which the search stops.

    Returns:
        (N,) weights, which sum to 1.
    """
    rank, size = columns.shape
    weights = np.full(size, 1 / size)
    if rank == 1:
        weights[:] = 0.0
        weights[np.argmax(np.abs(columns[0]))] = 1.0
        return weights
    for number in range(MAX_STEPS):
        if number % REBUILD == 0:
            inverse = np.linalg.inv((columns * weights) @ columns.T)
            heights = np.einsum("ij,ij->j", columns, inverse @ columns)
        high, low = int(heights.argmax()), int(np.where(weights > 0, heights, np.inf).argmin())
        up, down = heights[high] / rank - 1, 1 - heights[low] / rank
        if max(up, down) <= tolerance:
            break
        j = high if up >= down else low
        step = (heights[j] / rank - 1) / (heights[j] - 1) if heights[j] > 1 else -np.inf
        if up < down:  # a step away from a column takes no more than all of its weight
            step = max(step, -weights[j] / (1 - weights[j]))
        moved, scale = inverse @ columns[:, j], step / (1 - step + step * heights[j])
        inverse = (inverse - scale * np.outer(moved, moved)) / (1 - step)
        heights = (heights - scale * (moved @ columns) ** 2) / (1 - step)
        weights *= 1 - step
        weights[j] = weights[j] + step if weights[j] + step >= NEGLIGIBLE else 0.0
    return weights


def blocks(columns: Floats) -> list[Floats]:
    """The paper's base decomposition: orthonormal blocks of directions, the short axes of the ellipsoid first.

    Returns:
        1 + floor(log2 r) matrices (r, d_i), mutually orthogonal, which span everything.
    """
    rank = columns.shape[0]
    weights = enclosing_weights(columns)
    _, axes = np.linalg.eigh((columns * weights) @ columns.T)
    axes = axes[:, ::-1]
    if rank == 1:
        return [axes]
    half = rank // 2
    long, short = axes[:, :half], axes[:, half:]
    return [short, *(long @ block for block in blocks(long.T @ columns))]


def paper_shape(reduced: Reduced, *, verbatim: bool = False) -> Optimum:
    """The covariance of the paper's dense mechanism.

    Args:
        verbatim: whether the factor is the number of blocks, as published; else it is the smallest that is private.
    """
    columns = reduced.columns
    parts = blocks(columns)
    norms = [np.sqrt(np.einsum("ij,ij->j", part, part)) for part in (part.T @ columns for part in parts)]
    radii = [float(norm.max()) for norm in norms]
    need = float(np.sum([(norm / radius) ** 2 for norm, radius in zip(norms, radii, strict=True)], axis=0).max())
    factor = len(parts) if verbatim else need
    covariance = factor * np.sum([r * r * (part @ part.T) for r, part in zip(radii, parts, strict=True)], axis=0)
    return Optimum(reduced, covariance, uniform_bound(reduced), float(np.trace(covariance)), 0)


def plain_shape(reduced: Reduced) -> Optimum:
    """Independent noise of one size on every answer: as long as the longest column."""
    columns = reduced.columns
    longest = float(np.einsum("ij,ij->j", columns, columns).max())
    return Optimum(reduced, np.eye(reduced.rank) * longest, uniform_bound(reduced), longest * reduced.rank, 0)


def uniform_bound(reduced: Reduced) -> float:
    """The singular value bound on the smallest total: (sum of the singular values)^2 / N."""
    return float(reduced.singular.sum() ** 2 / reduced.right.shape[0])
