"""Inverse of the noise of counters on published bins that hold many counts.

In: the bins about and beyond the last single count, the noise of a counter. Out: an inverse. Touches: nothing.
Source: docs/theory/profile.md 2, extended to bins inside which counts are spread evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kinds.profile.estimate import laws
from sketchstream.kinds.pseudo_inverse import pseudo_inverse

FAR_WIDTH = 64.0
"""Bins that are wider than 64 times the noise are taken as they are."""
MAX_NOISE = 1 << 20
"""Largest value of the noise of several layers that is computed."""


def undone_bins(low: Ints, high: Ints, epsilons: Sequence[float]) -> Floats:
    """C of the share of each bin: row i estimates the share of slots with a count in bin i. (m, m).

    Rows are unbiased if counts are spread evenly over each bin; for single counts, always. They correspond to the
    stencil of single counts: the inverse of the probabilities that a count of one bin is seen in
    another. For bins much wider than the noise they are almost the identity.

    Args:
        low: (m,) first counts of adjacent bins; counts in the last one stay in it.
        high: (m,) their last counts.
        epsilons: epsilons of the layers.
    """
    narrow = int(np.searchsorted(high[:-1] - low[:-1], FAR_WIDTH * sum(1.0 / epsilon for epsilon in epsilons))) + 1
    out = np.eye(low.size)
    out[:narrow, :narrow] = _inverse(low[:narrow].tobytes(), high[:narrow].tobytes(), tuple(epsilons))
    return out


@lru_cache(maxsize=64)
def _inverse(low: bytes, high: bytes, epsilons: tuple[float, ...]) -> Floats:
    """The inverse for bins that are not wide, cached: it is the same for levels, parts and model laws."""
    chances = transition_matrix(np.frombuffer(low, np.int64), np.frombuffer(high, np.int64), epsilons)
    try:
        return np.asarray(np.linalg.inv(chances).T)
    except np.linalg.LinAlgError:  # more noise than floating point can undo
        return pseudo_inverse(chances).T


def transition_matrix(low: Ints, high: Ints, epsilons: Sequence[float]) -> Floats:
    """Probabilities that counts spread evenly over one bin (row) are seen in another (column). (m, m)."""
    start, end = low[:, None], np.append(high[:-1], low[-1])[:, None]
    width = (end - start + 1).astype(np.float64)
    after, before = low - end - 1, start - low  # from the last count up to a lower end; from there to the first
    excess = _excess(epsilons)
    reached = np.where(
        after >= 0,
        excess(np.maximum(after, 0)) - excess(np.maximum(after, 0) + end - start + 1),
        width - excess(np.maximum(before, 0)) + excess(np.maximum(before, 0) + end - start + 1),
    )
    reached = reached / width
    reached[-1, :] = 1.0
    reached[:, 0] = 1.0
    return np.asarray(reached - np.append(reached[:, 1:], np.zeros((low.size, 1)), axis=1))


def _excess(epsilons: Sequence[float]) -> Callable[[Ints], Floats]:
    """Mean excess of the noise over a non-negative number."""
    if len(epsilons) == 1:
        a = laws.decay(epsilons[0])
        return lambda x: np.exp(-epsilons[0] * (x + 1.0)) / (1.0 - a * a)
    reach = min(laws.radius(epsilons, 1e-15), MAX_NOISE)
    above = np.cumsum(laws.noise_pmf(epsilons, reach)[:reach:-1])  # Pr[>= reach], Pr[>= reach - 1], ..
    table = np.append(np.cumsum(above)[::-1], 0.0)
    return lambda x: table[np.minimum(x, reach)]
