"""Projection of noisy answers on those that some histogram could have: by pairwise Frank-Wolfe, or by gradients.

In: a point, the columns of a strategy, the metric of distances, a bound of the number of individuals. Out: a
histogram, the gap that certifies it. Touches: nothing.
Source: Nikolov, Talwar & Zhang 2013 (projection of noisy answers); Lacoste-Julien & Jaggi 2015 (pairwise steps);
Beck & Teboulle 2009 with restarts of O'Donoghue & Candes 2015 (gradients);
docs/theory/workload.md, section 8.

Only published states are projected: it is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.errors import EstimateError
from sketchstream.kinds.workload.queries.queries import Workload
from sketchstream.kinds.workload.strategies.strategy import MAX_COVARIANCE_CELLS, Strategy

FeasibleSet = Literal["cap", "simplex", "sym"]
Metric = Literal["state", "answers", "both"]

METRICS: Final = ("state", "answers", "both")

ANSWERS: Final = 0.3
"""Weight of the distance of answers beside that of states in metric "both", each relative to what noise does to it."""
MAX_MOVED_SHARE: Final = 0.75
"""Share of their noise's sum of squares by which answers may move before metric "both" is taken."""
MAX_STEPS: Final = 5000
REBUILD: Final = 500
NEGLIGIBLE: Final = 1e-15
POWERS: Final = 30
MARGIN: Final = 1.25
GRADIENTS: Final = 2000
CHECKED: Final = 10
"""Steps by gradients, and after how many of them the gap is computed."""


@dataclass(frozen=True, eq=False)
class Projected:
    """The nearest feasible histogram, up to a known gap.

    Args:
        histogram: (N,) float64, weights of the cells.
        gap: half the squared distance exceeds the smallest possible one by at most this.
    """

    histogram: Floats
    gap: float
    steps: int


def project(
    point: Floats,
    columns: Floats,
    bound: float,
    *,
    feasible: FeasibleSet = "cap",
    tolerance: float,
) -> Projected:
    """The x in the set that minimises |columns x - point|.

    Args:
        point: (r,) noisy answers, or a noisy state.
        columns: (r, N) contribution of one individual of each cell.
        bound: upper bound of the number of individuals, n; above 0.
        feasible: "cap" (x >= 0, sum at most n), "simplex" (x >= 0, sum n), "sym" (sum of |x| at most n).
    """
    if feasible not in ("cap", "simplex", "sym"):
        raise EstimateError(f"set must be 'cap', 'simplex' or 'sym', found {feasible!r:.40}")
    size = columns.shape[1]
    # Vertices: n e_j; then -n e_j (sym); then the origin (cap).
    vertices = 2 * size if feasible == "sym" else size + (feasible == "cap")
    start = int(np.argmax(columns.T @ point)) if feasible != "cap" else size
    weights = np.zeros(vertices)
    weights[start] = 1.0
    active = [start]

    def image(vertex: int) -> Floats:
        if vertex < size:
            return np.asarray(bound * columns[:, vertex])
        return np.asarray(-bound * columns[:, vertex - size]) if feasible == "sym" else np.zeros(len(point))

    here = image(start)
    gap, step = np.inf, 0
    for step in range(MAX_STEPS):
        slope = here - point
        scores = bound * (columns.T @ slope)
        along = float(slope @ here)
        best = int(np.argmin(scores))
        lowest = float(scores[best])
        if feasible == "sym":
            other = int(np.argmax(scores))
            if -scores[other] < lowest:
                best, lowest = size + other, -float(scores[other])
        elif feasible == "cap" and lowest > 0:
            best, lowest = size, 0.0
        gap = along - lowest
        if gap <= tolerance:
            break
        worst = max(active, key=lambda one: _score(one, scores, size, feasible))
        direction = image(best) - image(worst)
        length = float(direction @ direction)
        move = weights[worst] if length == 0 else min(weights[worst], -float(slope @ direction) / length)
        weights[best] += move
        weights[worst] -= move
        if best not in active:
            active.append(best)
        if weights[worst] <= NEGLIGIBLE:
            weights[worst] = 0.0
            active.remove(worst)
        here = here + move * direction
        if step % REBUILD == REBUILD - 1:
            weights[active] /= weights[active].sum()
            here = np.sum([weights[one] * image(one) for one in active], axis=0)
    histogram = bound * weights[:size]
    if feasible == "sym":
        histogram = histogram - bound * weights[size:]
    return Projected(histogram, max(float(gap), 0.0), step)


def _score(vertex: int, scores: Floats, size: int, feasible: str) -> float:
    """Inner product of the slope with a vertex's image."""
    if vertex < size:
        return float(scores[vertex])
    return -float(scores[vertex - size]) if feasible == "sym" else 0.0


def stretch_metric(
    workload: Workload, strategy: Strategy, metric: Metric, total: float
) -> tuple[Floats | None, Floats]:
    """(k, m) map of states and (k, N) map of tables after which a metric is the length of their difference.

    Args:
        metric: "state", of the counters, which have equal noise: no map of states is needed; "answers"; or "both".
        total: sum of the answers' variances for noise of variance 1 in each counter.
    """
    columns = strategy.matrix.astype(np.float64)
    if metric == "state":
        return None, columns
    cells = strategy.length > strategy.size
    back = strategy.decoder if cells else np.eye(strategy.length)
    inner = workload.gram() if cells else _gram_of_answers(workload, strategy)
    if metric == "both":
        inner = ANSWERS * strategy.length / total * inner + (columns.T @ columns if cells else back)
    values, vectors = np.linalg.eigh(inner)
    left = np.sqrt(np.maximum(values, 0.0))[:, None] * (vectors.T @ back)
    return left, left @ columns


def _gram_of_answers(workload: Workload, strategy: Strategy) -> Floats:
    """(m, m) Gram matrix of the answers as functions of the state."""
    if strategy.size <= MAX_COVARIANCE_CELLS:
        return np.asarray(strategy.decoder.T @ workload.gram() @ strategy.decoder)
    answers = np.stack([workload.apply(column) for column in strategy.decoder.T])
    return np.asarray(answers @ answers.T)


def nearest(point: Floats, columns: Floats, bound: float, start: Floats, tolerance: float) -> Projected:
    """The x >= 0 of sum at most n that minimises |columns x - point|, from a start near it for many individuals."""
    histograms, gap, steps = all_nearest(point[None], columns, np.array([bound]), start[None], tolerance)
    return Projected(histograms[0], gap, steps)


def all_nearest(
    points: Floats, columns: Floats, bounds: Floats, starts: Floats, tolerance: float, most_steps: int = GRADIENTS
) -> tuple[Floats, float, int]:
    """Project many points at once: (t, N) histograms, the largest gap, the number of steps.

    Args:
        points: (t, r) noisy states.
        bounds: (t,) upper bounds of the number of individuals, each above 0.
        starts: (t, N) starts of the search, such as the estimates without constraints.
    """
    wide = 2 * len(columns) < columns.shape[1]  # then the cells' Gram matrix may be too large for memory
    gram = columns @ columns.T if wide else columns.T @ columns
    pull = points @ columns

    def slope(tables: Floats) -> Floats:
        return np.asarray((tables @ columns.T) @ columns if wide else tables @ gram) - pull

    powers = curvature(lambda vector: np.asarray(gram @ vector), np.sqrt(np.diagonal(gram)))
    steepest = min(float(np.abs(gram).sum(axis=1).max()), powers)
    return descend(slope, steepest, bounds, starts, tolerance, most_steps)


def descend(
    slope: Callable[[Floats], Floats],
    steepest: float,
    bounds: Floats,
    starts: Floats,
    tolerance: float,
    most_steps: int = GRADIENTS,
) -> tuple[Floats, float, int]:
    """The x >= 0 of sum at most n of the smallest half squared distance, by its gradient; see `all_nearest`.

    Args:
        slope: gradient of half the squared distance, of (t, N) tables.
        steepest: an upper figure of its curvature.
    """
    here = ahead = _cap_sums(starts, bounds)
    speed, gap, step = np.ones((len(starts), 1)), np.inf, 0
    for step in range(most_steps):
        if step % CHECKED == 0:
            steep = slope(here)
            gaps = np.einsum("ij,ij->i", steep, here) - bounds * np.minimum(0.0, steep.min(axis=1))
            gap = float(gaps.max())
            if gap <= tolerance:
                break
        moved = _cap_sums(ahead - slope(ahead) / steepest, bounds)
        speed = np.where(np.einsum("ij,ij->i", ahead - moved, moved - here)[:, None] > 0, 1.0, speed)
        faster = (1 + np.sqrt(1 + 4 * speed * speed)) / 2
        ahead = moved + (speed - 1) / faster * (moved - here)
        here, speed = moved, faster
    return here, max(gap, 0.0), step


def curvature(times: Callable[[Floats], Floats], start: Floats) -> float:
    """An upper figure of the largest eigenvalue of a matrix that has no negative one: by powers, with a margin.

    Args:
        times: the matrix times a vector.
    """
    for _ in range(POWERS):
        start = times(start / np.linalg.norm(start))
    return MARGIN * float(np.linalg.norm(start))


def _cap_sums(values: Floats, bounds: Floats) -> Floats:
    """For each row the nearest x >= 0 of sum at most its bound.

    Source: Michelot 1986: entries below the threshold of the remaining ones are left out until there is no such entry.
    """
    out = np.maximum(values, 0.0)
    for row in np.flatnonzero(out.sum(axis=1) > bounds):
        positive, count = out[row][out[row] > 0], 0
        while len(positive) != count:
            count = len(positive)
            excess = (float(positive.sum()) - float(bounds[row])) / count
            positive = positive[positive > excess]
        out[row] = np.maximum(values[row] - excess, 0.0)
    return out
