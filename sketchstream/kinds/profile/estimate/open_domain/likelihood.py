"""Maximum likelihood for non-negative item profiles of open domains: compound Poisson slots with noise.

In: levels of one part and a non-negative start. Out: a `Model`. Touches: nothing.
Source: docs/theory/profile.md 6; `docs/theory/reconstruction.md`.

The unknown law f is on counts 0..S and one node for everything above; M f_t is the number of items with count t, and
f_0 is the share of items that did not occur (M is larger than any possible number of items). A slot of level j has law
exp(sum_t M f_t s_j/m_j (z^t - 1)), seen through the noise. The recipe of closed domains applies unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sketchstream.kinds.profile.estimate.likelihood import estimator, kernels
from sketchstream.kinds.profile.estimate.likelihood.channels import FORMS, Response, squarem
from sketchstream.kinds.profile.estimate.likelihood.grid import Grid
from sketchstream.kinds.profile.estimate.likelihood.problem import TINY, Likelihood, Markov, Seen, settle, thin
from sketchstream.kinds.profile.estimate.linear.line import Line
from sketchstream.kinds.profile.estimate.observed import Floats, Observed, tally
from sketchstream.kinds.profile.estimate.open_domain import cardinality
from sketchstream.kinds.profile.estimate.open_domain.collisions import Level, Model, Part

LEAST = 0.01
"""Levels with less than this part of the best level's weight are left out of the likelihood."""


@dataclass
class Floor:
    """One level: its channel from slot counts 0..S, S+1 to cells, its data, and its items per slot at a share of 1.

    Args:
        channel: K, from slot counts to cells.
        seen: the observed data.
        scale: M s_j / m_j.
        y: (m,) saddlepoint of the m cells, kept as the start of the next search.
        z: (1,) its additional coordinate in form BINS.
        work: (5, m) scratch memory.
    """

    channel: Line2Cells | Response | Wrapped
    seen: Seen
    scale: float
    y: Floats
    z: Floats
    work: Floats


class Line2Cells:
    """One discrete Laplace layer on unit cells 0..S and everything above, as a channel."""

    def __init__(self, markov: Markov) -> None:
        self.markov = markov

    def forward(self, f: Floats) -> Floats:
        """K f, for one law or for columns."""
        markov = self.markov
        if f.ndim == 1:
            return np.asarray(markov.v * markov.spread(markov.s * f))
        out = np.empty_like(f)
        kernels.two_pass_columns(markov.rho, f * markov.s[:, None], out)
        return np.asarray(out * markov.v[:, None])

    def adjoint(self, u: Floats) -> Floats:
        """K'u."""
        return np.asarray(self.markov.s * self.markov.spread(self.markov.v * u))


class Wrapped:
    """Randomized response on Z_p from slot counts 0..p-1 and everything above, which wraps around to any residue."""

    def __init__(self, eigenvalue: float, p: int) -> None:
        self.response, self.p = Response(eigenvalue, np.full(p, 1.0 / p)), p

    def forward(self, f: Floats) -> Floats:
        """K f, for one law or for columns."""
        return self.response.forward(f[: self.p] + f[self.p] / self.p)

    def adjoint(self, u: Floats) -> Floats:
        """K'u."""
        back = self.response.adjoint(u)
        return np.append(back, back.mean())


class Opened:
    """The likelihood of an item profile given the levels of one part."""

    def __init__(self, grid: Grid, floors: Sequence[Floor], most: float) -> None:
        self.grid, self.floors, self.most = grid, list(floors), most
        self.nodes, self.m = grid.nodes, grid.low.size

    @property
    def d(self) -> float:
        """M, times the part of the slots in the data."""
        return sum(floor.scale * floor.seen.d for floor in self.floors)

    def slot_law(self, floor: Floor, f: Floats) -> Floats:
        """Law of a slot at 0..S and above, of one level."""
        size = self.m - 1
        out = np.empty(self.m)
        weighted = floor.scale * f[:size] * np.arange(size)
        kernels.compound(weighted, floor.scale * float(f[1:].sum()), out[:size])
        out[size] = max(1.0 - float(out[:size].sum()), 0.0)
        return out

    def _solve(self, f: Floats) -> tuple[float, list[Floats], list[Floats]]:
        """l(f), the expected cells and the slot law of every level."""
        total, cells, slots = 0.0, [], []
        for floor in self.floors:
            law = self.slot_law(floor, f)
            seen = floor.seen
            mu = np.maximum(seen.d * floor.channel.forward(law), TINY)
            value = kernels.saddlepoint(seen.form, mu, seen.h, floor.y, floor.z, seen.d, seen.q, seen.mult, floor.work)
            if value <= kernels.IMPOSSIBLE:
                floor.y[:], floor.z[:] = 0.0, 0.0
                value = kernels.saddlepoint(
                    seen.form, mu, seen.h, floor.y, floor.z, seen.d, seen.q, seen.mult, floor.work
                )
            total += value
            cells.append(mu)
            slots.append(law)
        return max(float(total), kernels.IMPOSSIBLE), cells, slots

    def value(self, f: Floats) -> float:
        """l(f)."""
        return self._solve(f)[0]

    def _pull(self, slots: Sequence[Floats]) -> Floats:
        """R with dl/df_t = R_t - d for t >= 1 and EM step f_t R_t / d; R_0 = d."""
        size = self.m - 1
        out = np.zeros(self.m)
        one = np.empty(size)
        for floor, law in zip(self.floors, slots, strict=True):
            ratio = floor.seen.d * floor.channel.adjoint(np.exp(floor.y))
            kernels.meet(ratio[:size], law[:size], ratio[size], one)
            out[:size] += floor.scale * one
            out[size] += floor.scale * ratio[size]
        out[0] = self.d
        return out

    def score(self, f: Floats) -> tuple[float, Floats, Floats]:
        """l(f), the ratio for laws that sum to one (its excess over d has mean 0 under f), and the expected cells."""
        value, cells, slots = self._solve(f)
        ratio = self._pull(slots)
        return value, ratio - float(f @ (ratio - self.d)), np.concatenate(cells)

    def step(self, f: Floats) -> Floats:
        """One EM step: expected items at each count; the rest of M did not occur."""
        _, _, slots = self._solve(f)
        return self._moved(f, self._pull(slots))

    def _moved(self, f: Floats, ratio: Floats) -> Floats:
        """The EM step, kept on the simplex."""
        out = f * ratio / self.d
        out[0] = max(1.0 - float(out[1:].sum()), 1e-9)
        return np.asarray(out / out.sum())

    def rows(self, f: Floats, mu: Floats, columns: Floats, centre: Floats) -> Floats:
        """Rows whose Gram matrix is the Fisher information of columns of log f."""
        size, k = self.m - 1, columns.shape[1]
        change = f[:, None] * (columns - centre)
        change[0] = 0.0
        lost = change.sum(axis=0)
        out, start = [], 0
        for floor in self.floors:
            law, seen = self.slot_law(floor, f), floor.seen
            moved = np.empty((self.m, k))
            kernels.smear(law[:size], np.ascontiguousarray(change[:size]), moved[:size])
            moved[:size] -= law[:size, None] * lost
            moved[size] = -moved[:size].sum(axis=0)
            jacobian = np.zeros((seen.h.size + (seen.form == kernels.BINS), k))
            jacobian[: seen.h.size] = seen.d * floor.scale * floor.channel.forward(moved)
            out.append(settle(seen, mu[start : start + seen.h.size], jacobian))
            start += seen.h.size
        return np.concatenate(out)

    def path(self, f0: Floats, taus: Floats, start: Floats, tolerance: float = 1e-2) -> Floats:
        """Shrinkage path by SQUAREM on f = (f o R + tau f0) / (d + tau)."""
        f0, f = np.maximum(f0, 1e-12), np.maximum(start, 1e-12)
        out = np.empty((taus.shape[0], self.m))
        d = self.d
        for i, tau in enumerate(taus):

            def update(f: Floats, tau: Floats = tau) -> tuple[Floats, float]:
                f = f / f.sum()
                value, _, slots = self._solve(f)
                moved = self._moved(f, self._pull(slots))
                return (moved * d + tau * f0) / (d + tau), value + float(tau @ (f0 * np.log(f) - f))

            f = squarem(f, update, max(tolerance, 0.05), 40)
            f /= f.sum()
            out[i] = f
        return out

    def folds(self, f: Floats, count: int, rng: np.random.Generator) -> list[tuple[Likelihood, Likelihood]]:
        """(train, test) pairs of a random split of the slots of every level."""
        _, cells, _ = self._solve(f)
        each = [
            thin(floor.seen, mu * np.exp(floor.y), count, rng) for floor, mu in zip(self.floors, cells, strict=True)
        ]
        return [
            (self._with([one[j][0] for one in each]), self._with([one[j][1] for one in each])) for j in range(count)
        ]

    def _with(self, data: Sequence[Seen]) -> Opened:
        """The same levels with other data."""
        floors = [
            Floor(floor.channel, seen, floor.scale, np.zeros(seen.h.size), np.zeros(1), np.zeros((5, seen.h.size)))
            for floor, seen in zip(self.floors, data, strict=True)
        ]
        return Opened(self.grid, floors, self.most)


def fit(observed: Observed, part: Part) -> Model:
    """Maximum likelihood items at each count, from all informative levels; the first law gives the shape above S."""
    weight = cardinality.weights(part.levels, part.model)
    start = part.model
    levels = [level for level, one in zip(part.levels, weight, strict=True) if one >= LEAST * weight.max()]
    span = start.intensity.size - 1
    if len(observed.epsilons) > 1 or span < 8:
        return start
    top = _reach(start, span)
    most = 2.0 * max(start.items, 50.0) + 8.0 * math.sqrt(sum(level.m for level in levels))
    low = np.arange(top + 2, dtype=np.int64)
    grid = Grid(low, np.ones(top + 2, dtype=np.int64), np.zeros(top + 2))
    floors = [_floor(observed, level, grid, most) for level in levels]
    problem = Opened(grid, floors, most)
    settings = estimator.Settings(top + 1, min(observed.epsilons), 0.0, 1e-5, brief=True, plain=True)
    f, _ = estimator.estimate(problem, grid, settings, estimator.generator([observed]))
    intensity = np.zeros(span + 1)
    intensity[1 : top + 1] = most * f[1 : top + 1]
    heavy = most * float(f[top + 1])
    rest = float(start.intensity[top + 1 :].sum()) + start.beyond
    if rest <= 0.0:
        return Model(intensity, heavy)
    intensity[top + 1 :] = start.intensity[top + 1 :] * (heavy / rest)
    return Model(intensity, start.beyond * heavy / rest)


def _reach(start: Model, span: int) -> int:
    """Largest count with a node of its own: a quarter above the count where the start has hardly any item left."""
    tails = np.cumsum(start.intensity[::-1])[::-1] + start.beyond
    worth = max(2.0, 1e-4 * start.items)
    last = int(np.flatnonzero(tails > worth)[-1]) if (tails > worth).any() else 0
    return min(span, max(12, last + last // 4 + 4))


def _floor(observed: Observed, level: Level, grid: Grid, most: float) -> Floor:
    """One level in the form that the likelihood takes."""
    m = grid.low.size
    scale = most * level.share / level.m
    if observed.unit == "event":
        assert isinstance(level.estimator, Line)
        cells = level.estimator.cells
        at = np.clip(cells.low, 0, m - 1)
        at[0] = 0
        h = tally(at, cells.slots, m)
        seen = Seen(FORMS[observed.form], h, level.m, observed.q, float(observed.parts))
        markov = Markov(grid, observed.epsilons[0], seen)
        channel: Line2Cells | Response | Wrapped = Line2Cells(markov)
    else:
        assert not isinstance(level.estimator, Line)
        p = level.estimator.p
        if m > p:  # empty above: larger sums wrap around
            channel = Wrapped(level.estimator.eigenvalue, p)
            h = level.estimator.slots
        else:
            at = np.minimum(np.arange(p), m - 1)
            h = tally(at, level.estimator.slots, m)
            channel = Response(level.estimator.eigenvalue, tally(at, np.ones(p), m) / p)
        seen = Seen(FORMS[observed.form], h, level.m, observed.q, float(observed.parts))
    return Floor(channel, seen, scale, np.zeros(h.size), np.zeros(1), np.zeros((5, h.size)))
