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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sketchstream.kinds.profile.estimate.likelihood import estimator, kernels
from sketchstream.kinds.profile.estimate.likelihood.channels import FORMS, Response, squarem
from sketchstream.kinds.profile.estimate.likelihood.grid import Grid
from sketchstream.kinds.profile.estimate.likelihood.problem import TINY, Likelihood, Markov, Seen, settle, thin
from sketchstream.kinds.profile.estimate.linear.line import Line
from sketchstream.kinds.profile.estimate.observed import Floats, Observed, tally
from sketchstream.kinds.profile.estimate.open_domain import cardinality, residues
from sketchstream.kinds.profile.estimate.open_domain.collisions import Level, Model, Part, with_heavy
from sketchstream.kinds.profile.estimate.open_domain.lattice import Counters
from sketchstream.kinds.profile.estimate.open_domain.wide_cells import Heavy, Wide, gathered

LEAST = 0.01
"""Levels with less than this part of the best level's weight are left out of the likelihood."""


@dataclass
class Floor:
    """One level: its channel from slot counts 0..S, S+1 to cells, its data, and its items per slot at a share of 1.

    Args:
        channel: K, from slot counts to cells.
        sums: from the law of items to that of slot counts.
        seen: the observed data.
        scale: M s_j / m_j.
        y: (m,) saddlepoint of the m cells, kept as the start of the next search.
        z: (1,) its additional coordinate in form BINS.
        work: (5, m) scratch memory.
    """

    channel: Line2Cells | Response | CounterCells
    sums: Sums | WrappedSums | CounterSums
    seen: Seen
    scale: float
    y: Floats
    z: Floats
    work: Floats

    def value(self, mu: Floats) -> float:
        """Log likelihood of the level, given its expected cells."""
        seen = self.seen
        found = kernels.saddlepoint(
            seen.form, mu, seen.h, self.y, self.z, seen.d, seen.q, seen.mult, self.work, seen.last
        )
        return float(found)


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


class Sums:
    """The law of a slot's count 0..S, and everything above, as the sum of the counts of its items: power series."""

    def __init__(self, m: int) -> None:
        self.m = m

    def law(self, scale: float, f: Floats) -> Floats:
        """Law of a slot with `scale` virtual items of this law."""
        size = self.m - 1
        out = np.empty(self.m)
        kernels.compound(scale * f[:size] * np.arange(size), scale * float(f[1:].sum()), out[:size])
        out[size] = max(1.0 - float(out[:size].sum()), 0.0)
        return out

    def met(self, ratio: Floats, law: Floats) -> Floats:
        """Mean of `ratio` over the law moved by each node. (m,)."""
        size = self.m - 1
        out = np.empty(self.m)
        kernels.meet(ratio[:size], law[:size], ratio[size], out[:size])
        out[size] = ratio[size]
        return out

    def moved(self, law: Floats, change: Floats) -> Floats:
        """Derivative of the law, per virtual item, in the direction of changes of f. (m, k)."""
        size = self.m - 1
        out = np.empty_like(change)
        kernels.smear(law[:size], np.ascontiguousarray(change[:size]), out[:size])
        out[:size] -= law[:size, None] * change.sum(axis=0)
        out[size] = -out[:size].sum(axis=0)
        return out


class WrappedSums:
    """The law of a slot's residue 0..p-1: sums modulo p, exactly, by their transform.

    Args:
        m: number of nodes; the last one stands for the residues from m - 1 up.
        above: (p - m + 1,) shares of those residues.
        p: modulus.
    """

    def __init__(self, m: int, above: Floats, p: int) -> None:
        self.m, self.above, self.p = m, above, p

    def _all(self, f: Floats) -> Floats:
        """Laws on nodes, or columns, as laws on residues; absent items change nothing."""
        out = np.zeros((self.p, *f.shape[1:]))
        out[1 : self.m - 1] = f[1:-1]
        out[self.m - 1 :] = np.multiply.outer(self.above, f[-1])
        return out

    def law(self, scale: float, f: Floats) -> Floats:
        """Law of a slot with `scale` virtual items of this law."""
        spectrum = np.fft.rfft(self._all(f)) - float(f[1:].sum())
        return np.maximum(np.fft.irfft(np.exp(scale * spectrum), self.p), 0.0)

    def met(self, ratio: Floats, law: Floats) -> Floats:
        """Mean of `ratio` over the law moved by each node. (m,)."""
        each = np.fft.irfft(np.fft.rfft(ratio) * np.conj(np.fft.rfft(law)), self.p)
        return np.append(each[: self.m - 1], float(self.above @ each[self.m - 1 :]))

    def moved(self, law: Floats, change: Floats) -> Floats:
        """Derivative of the law, per virtual item, in the direction of changes of f. (p, k)."""
        change = self._all(change)
        spectrum = np.fft.rfft(law)[:, None] * np.fft.rfft(change, axis=0)
        return np.asarray(np.fft.irfft(spectrum, self.p, axis=0) - law[:, None] * change.sum(axis=0))


class CounterSums:
    """The law of a counter of any size, noise included, as the sum of the counts of its items on wide nodes."""

    def __init__(self, wide: Wide) -> None:
        self.wide = wide

    def law(self, scale: float, f: Floats) -> Counters:
        """Law of a counter with `scale` virtual items of this law."""
        return self.wide.lattice.law(scale * f[1:], scale * float(f[1:].sum()))

    def met(self, ratio: Floats, law: Counters) -> Floats:
        """Mean of `ratio` over the cells of counters moved by each node. (m,)."""
        return np.append(0.0, ratio[0] + np.diff(ratio) @ law.with_one_more(self.wide.data))

    def moved(self, law: Counters, change: Floats) -> Floats:
        """Derivative of the chances of the cells, per virtual item, in the direction of changes of f. (B, k)."""
        more = law.with_one_more(self.wide.data) - law.at_least(self.wide.data)[:, None]
        return between(more @ change[1:], 0.0)


class CounterCells:
    """The cells of a law of counters, as a channel."""

    def __init__(self, wide: Wide) -> None:
        self.wide = wide

    def forward(self, law: Counters | Floats) -> Floats:
        """Chances of the cells; changes of them as they are."""
        return between(law.at_least(self.wide.data), 1.0) if isinstance(law, Counters) else law

    def adjoint(self, u: Floats) -> Floats:
        """As it is."""
        return u


class Opened:
    """The likelihood of an item profile given the levels of one part."""

    def __init__(self, grid: Grid, floors: Sequence[Floor], most: float) -> None:
        self.grid, self.floors, self.most = grid, list(floors), most
        self.nodes, self.m = grid.nodes, grid.low.size

    @property
    def d(self) -> float:
        """M, times the part of the slots in the data."""
        return sum(floor.scale * floor.seen.d for floor in self.floors)

    def _solve(self, f: Floats) -> tuple[float, list[Floats], list[Any]]:
        """l(f), the expected cells and the slot law of every level."""
        total, cells, slots = 0.0, [], []
        for floor in self.floors:
            law: Any = floor.sums.law(floor.scale, f)
            seen = floor.seen
            mu = np.maximum(seen.d * floor.channel.forward(law), TINY)
            value = floor.value(mu)
            if value <= kernels.IMPOSSIBLE:
                floor.y[:], floor.z[:] = 0.0, 0.0
                value = floor.value(mu)
            total += value
            cells.append(mu)
            slots.append(law)
        return max(float(total), kernels.IMPOSSIBLE), cells, slots

    def value(self, f: Floats) -> float:
        """l(f)."""
        return self._solve(f)[0]

    def _pull(self, slots: Sequence[Any]) -> Floats:
        """R with dl/df_t = R_t - d for t >= 1 and EM step f_t R_t / d; R_0 = d."""
        out = np.zeros(self.m)
        for floor, law in zip(self.floors, slots, strict=True):
            ratio = floor.seen.d * floor.channel.adjoint(np.exp(floor.y))
            out += floor.scale * floor.sums.met(ratio, law)
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
        change = f[:, None] * (columns - centre)
        change[0] = 0.0
        out, start = [], 0
        for floor in self.floors:
            seen = floor.seen
            law: Any = floor.sums.law(floor.scale, f)
            moved = floor.sums.moved(law, change)
            jacobian = np.zeros((seen.h.size + (seen.form == kernels.BINS), columns.shape[1]))
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
            opened(floor.channel, floor.sums, seen, floor.scale) for floor, seen in zip(self.floors, data, strict=True)
        ]
        return Opened(self.grid, floors, self.most)


def opened(
    channel: Line2Cells | Response | CounterCells, sums: Sums | WrappedSums | CounterSums, seen: Seen, scale: float
) -> Floor:
    """A level whose saddlepoint starts without tilt."""
    size = seen.h.size
    return Floor(channel, sums, seen, scale, np.zeros(size), np.zeros(1), np.zeros((5, size)))


def between(at_least: Floats, below: float) -> Floats:
    """Chances of cells, or columns of their changes, from those of being at or above each edge."""
    shape = (1, *at_least.shape[1:])
    return np.asarray(-np.diff(at_least, axis=0, prepend=np.full(shape, below), append=np.zeros(shape)))


def wide_fit(observed: Observed, levels: Sequence[Level], heavy: Heavy, most: float) -> Model:
    """Maximum likelihood items at the nodes of noisy bins."""
    wide, floors = heavy.wide, []
    for level in levels:
        assert isinstance(level.estimator, Line)
        # what is far above the last edge is in the last cell, with its noise: left out, large counts would go missing
        h, copies = gathered(wide.data, level.estimator.whole)
        seen = Seen(FORMS[observed.form], h, level.m, observed.q, float(observed.parts), float(copies[-1]))
        floors.append(opened(CounterCells(wide), CounterSums(wide), seen, most * level.share / level.m))
    low, width = np.append(0, wide.low), np.append(1, wide.width)
    cell = np.append(0, np.searchsorted(wide.data, wide.low, side="right"))
    problem = Opened(Grid(low, width, np.zeros(low.size), cell), floors, most)
    noise = 2.0 * math.sqrt(observed.noise_variance * len(levels)) / most
    items = most * estimated(observed, problem, max(1e-5, noise))
    items[0] = 0.0
    beyond = float(items[wide.span + 1 :].sum())
    share = items[wide.span + 1 :] / beyond if beyond > 0.0 else heavy.share
    return Model(items[: wide.span + 1], beyond, replace(heavy, share=share))


def fit(observed: Observed, part: Part) -> Model:
    """Maximum likelihood items at each count, from all informative levels."""
    if residues.exact(part.levels):
        weight = residues.Residues(part.levels).weights(part.model.intensity)
    else:
        weight = cardinality.weights(part.levels, part.model)
    start = part.model
    levels = [level for level, one in zip(part.levels, weight, strict=True) if one >= LEAST * weight.max()]
    span = start.intensity.size - 1
    if len(observed.epsilons) > 1 or span < 8:
        return start
    most = 2.0 * max(start.items, 50.0) + 8.0 * math.sqrt(sum(level.m for level in levels))
    if start.heavy is not None and observed.form == "bins":
        return wide_fit(observed, levels, start.heavy, most)
    top = _reach(start, span)
    if observed.modulus is not None:
        top = min(top, observed.modulus - 2)
    low = np.arange(top + 2, dtype=np.int64)
    grid = Grid(low, np.ones(top + 2, dtype=np.int64), np.zeros(top + 2))
    floors = [_floor(observed, level, grid, most, start) for level in levels]
    f = estimated(observed, Opened(grid, floors, most), 1e-5)
    intensity = np.zeros(span + 1)
    intensity[1 : top + 1] = most * f[1 : top + 1]
    beyond = most * float(f[top + 1])
    rest = float(start.intensity[top + 1 :].sum()) + start.beyond
    if rest <= 0.0:
        if observed.modulus is not None:  # the last node was spread evenly
            intensity[top + 1 :] = beyond / (span - top)
            beyond = 0.0
        return Model(intensity, beyond, start.heavy)
    intensity[top + 1 :] = start.intensity[top + 1 :] * (beyond / rest)
    return with_heavy(Model(intensity, start.beyond * beyond / rest), levels)


def estimated(observed: Observed, problem: Opened, least: float) -> Floats:
    """The averaged law on the grid of a problem; atoms below `least` are taken for noise."""
    settings = estimator.Settings(
        round(float(problem.nodes[-1])), min(observed.epsilons), 0.0, least, brief=True, plain=True
    )
    f, _ = estimator.estimate(problem, problem.grid, settings, estimator.generator([observed]))
    return f


def _reach(start: Model, span: int) -> int:
    """Largest count with a node of its own: a quarter above the count where the start has hardly any item left."""
    tails = np.cumsum(start.intensity[::-1])[::-1] + start.beyond
    worth = max(2.0, 1e-4 * start.items)
    last = int(np.flatnonzero(tails > worth)[-1]) if (tails > worth).any() else 0
    return min(span, max(12, last + last // 4 + 4))


def _floor(observed: Observed, level: Level, grid: Grid, most: float, start: Model) -> Floor:
    """One level in the form that the likelihood takes."""
    m = grid.low.size
    scale = most * level.share / level.m
    channel: Line2Cells | Response
    sums: Sums | WrappedSums
    if isinstance(level.estimator, Line):
        cells = level.estimator.cells
        at = np.clip(cells.low, 0, m - 1)
        at[0] = 0
        seen = Seen(FORMS[observed.form], tally(at, cells.slots, m), level.m, observed.q, float(observed.parts))
        channel, sums = Line2Cells(Markov(grid, observed.epsilons[0], seen)), Sums(m)
    else:
        p = level.estimator.p
        seen = Seen(FORMS[observed.form], level.estimator.slots, level.m, observed.q, float(observed.parts))
        channel, sums = (
            Response(level.estimator.eigenvalue, np.full(p, 1.0 / p)),
            WrappedSums(m, _above(start, m, p), p),
        )
    return opened(channel, sums, seen, scale)


def _above(start: Model, m: int, p: int) -> Floats:
    """Shares of the residues m-1..p-1, as in the first law; evenly where it has none, and for items beyond its end."""
    out = np.full(p - m + 1, 1e-300)
    inside = start.intensity[m - 1 :]
    out[: inside.size] += inside
    out[inside.size :] += start.beyond / max(out.size - inside.size, 1)
    return np.asarray(out / out.sum())
