"""Projection of noisy answers on those that some histogram could have, by accelerated gradients.

In: a point, the columns of a strategy, the metric of distances, a bound of the number of individuals. Out: a
histogram, the gap that certifies it. Touches: nothing.
Source: Nikolov, Talwar & Zhang 2013 (projection of noisy answers); Beck & Teboulle 2009 with restarts of O'Donoghue &
Candes 2015 (gradients); docs/theory/workload.md, section 8.

Only published states are projected: it is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.errors import EstimateError
from sketchstream.kinds.workload.queries.queries import Workload
from sketchstream.kinds.workload.strategies.strategy import MAX_COVARIANCE_CELLS, Strategy

FeasibleSet = Literal["cap", "simplex", "sym"]
"""Tables x >= 0 whose sum is at most n, or is n; tables whose absolute values add up to at most n."""
Metric = Literal["state", "answers", "both"]

METRICS: Final = get_args(Metric)

ANSWERS: Final = 0.3
"""Weight of the distance of answers besides that of states in metric "both", each relative to what noise does to it."""
MAX_MOVED_SHARE: Final = 0.75
"""Share of their noise's sum of squares by which answers may move before metric "both" is taken."""
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


def nearest(
    point: Floats, columns: Floats, bound: float, start: Floats, tolerance: float, feasible: FeasibleSet = "cap"
) -> Projected:
    """The x in a feasible set that minimises |columns x - point|, from a start near it for many individuals."""
    bounds = np.array([bound])
    histograms, gap, steps = all_nearest(point[None], columns, bounds, start[None], tolerance, feasible=feasible)
    return Projected(histograms[0], gap, steps)


def all_nearest(
    points: Floats,
    columns: Floats,
    bounds: Floats,
    starts: Floats,
    tolerance: float,
    most_steps: int = GRADIENTS,
    feasible: FeasibleSet = "cap",
) -> tuple[Floats, float, int]:
    """Project many points at once: (t, N) histograms, the largest gap, the number of steps.

    Args:
        points: (t, r) noisy states.
        columns: (r, N) contribution of one individual of each cell.
        bounds: (t,) upper bounds of the number of individuals, each above 0.
        starts: (t, N) starts of the search, such as the estimates without constraints.
        tolerance: gap at which the search stops.
        most_steps: steps after which it stops at the latest.
        feasible: set of the histograms.

    Raises:
        EstimateError: no such set.
    """
    if feasible not in get_args(FeasibleSet):
        raise EstimateError(f"set must be 'cap', 'simplex' or 'sym', found {feasible!r:.40}")
    wide = 2 * len(columns) < columns.shape[1]  # then the cells' Gram matrix may be too large for memory
    gram = columns @ columns.T if wide else columns.T @ columns
    pull = points @ columns

    def slope(tables: Floats) -> Floats:
        return np.asarray((tables @ columns.T) @ columns if wide else tables @ gram) - pull

    powers = curvature(lambda vector: np.asarray(gram @ vector), np.sqrt(np.diagonal(gram)))
    steepest = min(float(np.abs(gram).sum(axis=1).max()), powers)
    return descend(slope, steepest, bounds, starts, tolerance, most_steps, feasible)


def descend(
    slope: Callable[[Floats], Floats],
    steepest: float,
    bounds: Floats,
    starts: Floats,
    tolerance: float,
    most_steps: int = GRADIENTS,
    feasible: FeasibleSet = "cap",
) -> tuple[Floats, float, int]:
    """The x in a feasible set of the smallest half squared distance, by its gradient; see `all_nearest`.

    Args:
        slope: gradient of half the squared distance, of (t, N) tables.
        steepest: an upper figure of its curvature.
    """
    here = ahead = _nearest_tables(starts, bounds, feasible)
    speed, gap, step = np.ones((len(starts), 1)), np.inf, 0
    for step in range(most_steps):
        if step % CHECKED == 0:
            steep = slope(here)
            gaps = np.einsum("ij,ij->i", steep, here) - bounds * _lowest(steep, feasible)
            gap = float(gaps.max())
            if gap <= tolerance:
                break
        moved = _nearest_tables(ahead - slope(ahead) / steepest, bounds, feasible)
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


def _lowest(steep: Floats, feasible: FeasibleSet) -> Floats:
    """(t,) the least that a table of a feasible set with n = 1 can have in the direction of (t, N) gradients."""
    if feasible == "sym":
        return np.asarray(-np.abs(steep).max(axis=1))
    least = steep.min(axis=1)
    return np.asarray(least if feasible == "simplex" else np.minimum(least, 0.0))


def _nearest_tables(values: Floats, bounds: Floats, feasible: FeasibleSet) -> Floats:
    """For each row of values the nearest table of a feasible set, for its bound.

    Source: Michelot 1986: entries below the threshold of the remaining ones are left out until there is no such entry.
    """
    if feasible == "sym":
        return np.sign(values) * _nearest_tables(np.abs(values), bounds, "cap")
    out = np.maximum(values, 0.0)
    outside = out.sum(axis=1) > bounds if feasible == "cap" else np.ones(len(out), np.bool_)
    for row in np.flatnonzero(outside):
        kept, count = values[row] if feasible == "simplex" else out[row][out[row] > 0], 0
        while len(kept) != count:
            count = len(kept)
            excess = (float(kept.sum()) - float(bounds[row])) / count
            kept = kept[kept > excess]
        out[row] = np.maximum(values[row] - excess, 0.0)
    return out
