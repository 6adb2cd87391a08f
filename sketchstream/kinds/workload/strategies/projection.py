"""Projection of noisy answers on those that some histogram could have: by pairwise Frank-Wolfe, or by gradients.

In: a point, the columns of a strategy, a bound of the number of individuals. Out: a histogram, the gap that certifies
it. Touches: nothing.
Source: Nikolov, Talwar & Zhang 2013 (projection of noisy answers); Lacoste-Julien & Jaggi 2015 (pairwise steps);
Beck & Teboulle 2009 with restarts of O'Donoghue & Candes 2015 (gradients);
docs/theory/workload.md, section 8.

Only published states are projected: it is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from sketchstream.errors import EstimateError
from sketchstream.kinds.workload.queries.factors import Floats

FeasibleSet = Literal["cap", "simplex", "sym"]

MOST_STEPS: Final = 5000
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
        steps: iterations.
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
    most_steps: int = MOST_STEPS,
) -> Projected:
    """The x in the set that minimises |columns x - point|.

    Args:
        point: (r,) noisy answers, or a noisy state.
        columns: (r, N) contribution of one individual of each cell.
        bound: upper bound of the number of individuals, n; above 0.
        feasible: "cap" (x >= 0, sum at most n), "simplex" (x >= 0, sum n), "sym" (sum of |x| at most n).
        tolerance: gap at which the search stops.
        most_steps: iterations after which it stops with the gap that it has.

    Raises:
        EstimateError: another set.
    """
    if feasible not in ("cap", "simplex", "sym"):
        msg = f"set must be 'cap', 'simplex' or 'sym', found {feasible!r:.40}"
        raise EstimateError(msg)
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
    for step in range(most_steps):
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


def nearest(point: Floats, columns: Floats, bound: float, start: Floats, tolerance: float) -> Projected:
    """The x >= 0 of sum at most n that minimises |columns x - point|, from a start that is near for many individuals.

    Args:
        point: (r,) noisy state.
        columns: (r, N) contribution of one individual of each cell.
        bound: upper bound of the number of individuals, n; above 0.
        start: (N,) such as the estimates without constraints.
        tolerance: gap at which the search stops.
    """
    found, gap, steps = all_nearest(point[None], columns, np.array([bound]), start[None], tolerance)
    return Projected(found[0], gap, steps)


def all_nearest(
    points: Floats, columns: Floats, bounds: Floats, starts: Floats, tolerance: float, most_steps: int = GRADIENTS
) -> tuple[Floats, float, int]:
    """The same for many points at once: (t, N) histograms, the largest gap, the number of steps.

    Args:
        points: (t, r) noisy states.
        columns: (r, N) contribution of one individual of each cell.
        bounds: (t,) upper bounds of the number of individuals, each above 0.
        starts: (t, N) such as the estimates without constraints.
        tolerance: gap at which the search stops, for all of them.
        most_steps: steps after which it stops with the gaps that it has.
    """
    gram, pull = columns.T @ columns, points @ columns
    steepest = _curvature(gram)
    here = ahead = _capped(starts, bounds)
    speed, gap, step = np.ones((len(points), 1)), np.inf, 0
    for step in range(most_steps):
        if step % CHECKED == 0:
            slope = here @ gram - pull
            gaps = np.einsum("ij,ij->i", slope, here) - bounds * np.minimum(0.0, slope.min(axis=1))
            gap = float(gaps.max())
            if gap <= tolerance:
                break
        moved = _capped(ahead - (ahead @ gram - pull) / steepest, bounds)
        speed = np.where(np.einsum("ij,ij->i", ahead - moved, moved - here)[:, None] > 0, 1.0, speed)
        faster = (1 + np.sqrt(1 + 4 * speed * speed)) / 2
        ahead = moved + (speed - 1) / faster * (moved - here)
        here, speed = moved, faster
    return here, max(gap, 0.0), step


def _curvature(gram: Floats) -> float:
    """An upper figure of the largest eigenvalue: by rows, or by powers with a margin."""
    rows = float(np.abs(gram).sum(axis=1).max())
    vector = np.sqrt(np.diagonal(gram))
    for _ in range(POWERS):
        vector = gram @ (vector / np.linalg.norm(vector))
    return min(rows, MARGIN * float(np.linalg.norm(vector)))


def _capped(values: Floats, bounds: Floats) -> Floats:
    """For each row the nearest x >= 0 of sum at most its bound."""
    out = np.maximum(values, 0.0)
    over = np.flatnonzero(out.sum(axis=1) > bounds)
    if len(over):
        ordered = np.sort(values[over], axis=1)[:, ::-1]
        excess = (np.cumsum(ordered, axis=1) - bounds[over, None]) / np.arange(1, values.shape[1] + 1)
        last = np.count_nonzero(ordered > excess, axis=1) - 1
        out[over] = np.maximum(values[over] - excess[np.arange(len(over)), last][:, None], 0.0)
    return np.asarray(out)
