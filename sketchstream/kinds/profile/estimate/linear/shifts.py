"""Errors of many linear estimates at once, with scores that are shifts of each other by one count.

In: one level, the scores' common shape, the law of a slot's count. Out: variances and covariances of their noise.
Touches: nothing. Source: docs/theory/profile.md 5, see `Line.joint`. Sums over counts become convolutions.
"""

from __future__ import annotations

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate.linear.circle import Circle
from sketchstream.kinds.profile.estimate.linear.line import Line


def joint_of_shifts(estimator: Line | Circle, steps: Floats, other: Floats, law: Floats) -> tuple[Floats, Floats]:
    """Noise variance of (1/d) sum b_t(h) for b_t(s) = steps[t-s], 0 for s > t; covariance with that of `other`.

    Args:
        estimator: linear estimates of the level.
        steps: (S+1,) scores of the differences 0..S.
        other: (S+1,) another score at counts 0..S, 0 above.
        law: (S+1,) law of a slot's count.

    Returns: (S+1,) and (S+1,), the results of `joint` for the single scores.
    """
    if isinstance(estimator, Circle):
        from scipy.linalg import toeplitz

        return estimator.joint(toeplitz(steps, np.zeros(steps.size)), other, law)
    return _on_the_line(estimator, steps, other, law)


def _on_the_line(line: Line, steps: Floats, other: Floats, law: Floats) -> tuple[Floats, Floats]:
    """The counters below k, and those pooled below them, one by one; all others together."""
    k, size, d = line.k, steps.size, line.d
    near = np.zeros((size, 2 * k + 1))  # scores at counts 0..2k
    for s in range(min(2 * k + 1, size)):
        near[s:, s] = steps[: size - s]
    edge = 1 if k == 1 else 2 * k  # cells below the counter k
    c = line.inverted(near)[:, : edge + 1]
    whole = line.inverted(other[None, :])[0]
    weight = line.expected_cells(law) / d
    far, far_weight = whole[edge:], weight[edge:]
    # c of b_t at the counter y is rise[t - y + k], from the counter k on
    rise = np.convolve(steps, line.taps)

    def sums(shape: Floats, cells: Floats) -> Floats:
        """Sum over the counters y from k on of shape at t - y + k, times the value of the cell."""
        return np.convolve(shape, cells)[:size]

    low = slice(0, edge)
    variance = c[:, low] ** 2 @ weight[low] + sums(rise**2, far_weight) - sums(steps**2, law) / d
    cross = c[:, low] @ (weight[low] * whole[low]) + sums(rise, far_weight * far) - sums(steps, other * law) / d
    if line.form == "cumulative":
        jump, jump_other = np.diff(c, axis=1), np.diff(whole, append=0.0)
        fall = np.diff(rise, prepend=0.0)  # decrease of c from the counter y to the next, at t - y + k
        v = line.v / d**2
        variance += v * ((jump**2).sum(axis=1) + np.cumsum(fall**2)[:size])
        cross += v * (jump @ jump_other[:edge] - sums(fall, jump_other[edge:]))
    elif line.form == "bins":
        bins, copies = line.whole.low.size, np.ones(edge)
        copies[0] = float((line.whole.high <= (0 if k == 1 else -k)).sum())
        mean = (c[:, low] @ copies + np.cumsum(rise)[:size]) / bins
        mean_other = (float(whole[low] @ copies) + float(far.sum())) / bins
        v = line.v / d**2
        variance += v * (c[:, low] ** 2 @ copies + np.cumsum(rise**2)[:size] - bins * mean**2)
        cross += v * (c[:, low] @ (copies * whole[low]) + sums(rise, far) - bins * mean * mean_other)
    return np.maximum(variance, 0.0), cross
