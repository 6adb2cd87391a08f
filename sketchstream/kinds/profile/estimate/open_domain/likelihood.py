"""Maximum likelihood for non-negative item profiles of open domains: compound Poisson slots with noise.

In: levels of one part and a non-negative start. Out: a `VarianceModel`. Touches: nothing.
Source: docs/theory/profile.md 6; `docs/theory/reconstruction.md`.

The unknown law f is on counts 0..S and one node for everything above; M f_t is the number of items with count t, and
f_0 is the share of items that did not occur (M is larger than any possible number of items). A slot of level j has law
exp(sum_t M f_t s_j/m_j (z^t - 1)), seen through the noise. The recipe of closed domains applies unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate.likelihood import estimator, kernels
from sketchstream.kinds.profile.estimate.likelihood.channels import FORMS, squarem
from sketchstream.kinds.profile.estimate.likelihood.grid import Grid
from sketchstream.kinds.profile.estimate.likelihood.problem import TINY, Likelihood, Markov, settle, thin
from sketchstream.kinds.profile.estimate.likelihood.published_counts import PublishedCounts
from sketchstream.kinds.profile.estimate.linear.line import Line
from sketchstream.kinds.profile.estimate.observed import Observed, tally
from sketchstream.kinds.profile.estimate.open_domain import cardinality, residues
from sketchstream.kinds.profile.estimate.open_domain.collisions import ObservedPart, with_heavy
from sketchstream.kinds.profile.estimate.open_domain.lattice import CounterLaw
from sketchstream.kinds.profile.estimate.open_domain.laws import Level, VarianceModel
from sketchstream.kinds.profile.estimate.open_domain.wide_cells import Heavy, Wide, gather_cells

MIN_WEIGHT = 0.01
"""Levels with less than this part of the best level's weight are left out of the likelihood."""


class Sums:
    """Unit event: counts 0..S of a slot, and everything above, by power series; one discrete Laplace layer on them."""

    def __init__(self, markov: Markov) -> None:
        self.m, self.markov = markov.m, markov

    def laws(self, scales: Floats, f: Floats) -> Floats:
        """Laws of slots that hold, for each scale, that multiple of the items of f. (L, m)."""
        size, items = self.m - 1, float(f[1:].sum())
        events = f[:size] * np.arange(size)
        out = np.empty((scales.size, self.m))
        for law, scale in zip(out, scales.tolist(), strict=True):
            kernels.compound(scale * events, scale * items, law[:size])
            law[size] = max(1.0 - float(law[:size].sum()), 0.0)
        return out

    def chances(self, laws: Floats) -> Floats:
        """Chances of the cells under these laws. (L, m)."""
        return np.ascontiguousarray(self._noisy(laws.T).T)

    def _noisy(self, columns: Floats) -> Floats:
        """The noise on laws of slots that are columns."""
        scaled = np.ascontiguousarray(columns * self.markov.s[:, None])
        return self.markov.spread_columns(scaled, np.empty_like(scaled)) * self.markov.v[:, None]

    def met(self, ratios: Floats, laws: Floats) -> Floats:
        """Means of ratios of cells over the laws moved by each node, added over the levels. (m,)."""
        size, markov = self.m - 1, self.markov
        out, part = np.zeros(self.m), np.empty(self.m)
        for ratio, law in zip(ratios, laws, strict=True):
            clear = markov.s * markov.spread(markov.v * ratio)
            kernels.meet(clear[:size], law[:size], clear[size], part[:size])
            part[size] = clear[size]
            out += part
        return out

    def derivatives(self, laws: Floats, change: Floats) -> Iterator[Floats]:
        """Derivatives of the chances, per virtual item, in the direction of changes of f. (m, k), a level each."""
        size = self.m - 1
        for law in laws:
            out = np.empty_like(change)
            kernels.smear(law[:size], np.ascontiguousarray(change[:size]), out[:size])
            out[:size] -= law[:size, None] * change.sum(axis=0)
            out[size] = -out[:size].sum(axis=0)
            yield self._noisy(out)


class WrappedSums:
    """Unit item: residues 0..p-1 of a slot, exactly, by the transform that levels share; randomised response on them.

    Args:
        m: number of nodes; the last one stands for the residues from m - 1 up.
        above: (p - m + 1,) shares of those residues.
        eigenvalue: eigenvalue of the response: the probability that it keeps a residue and does not draw one of all.
    """

    def __init__(self, m: int, above: Floats, eigenvalue: float) -> None:
        self.m, self.above, self.eigenvalue = m, above, eigenvalue
        self.p = m - 1 + above.size

    def _all(self, f: Floats) -> Floats:
        """Laws on nodes, or rows of changes, as such on residues; absent items change nothing."""
        out = np.zeros((*f.shape[:-1], self.p))
        out[..., 1 : self.m - 1] = f[..., 1:-1]
        out[..., self.m - 1 :] = np.multiply.outer(f[..., -1], self.above)
        return out

    def laws(self, scales: Floats, f: Floats) -> Floats:
        """Laws of slots that hold, for each scale, that multiple of the items of f. (L, p)."""
        spectrum = np.fft.rfft(self._all(f)) - float(f[1:].sum())
        return np.maximum(np.fft.irfft(np.exp(np.multiply.outer(scales, spectrum)), self.p), 0.0)

    def chances(self, laws: Floats) -> Floats:
        """Chances of the cells under these laws. (L, p)."""
        even = ((1.0 - self.eigenvalue) / self.p) * laws.sum(axis=1, keepdims=True)
        return np.asarray(self.eigenvalue * laws + even)

    def met(self, ratios: Floats, laws: Floats) -> Floats:
        """Means of ratios of cells over the laws moved by each node, added over the levels. (m,)."""
        both = np.fft.rfft(np.stack((ratios, laws)))
        each = np.fft.irfft((both[0] * np.conj(both[1])).sum(axis=0), self.p)
        # the response is symmetric: its even part gives every node the same, as laws sum to one
        even = (1.0 - self.eigenvalue) / self.p * float(ratios.sum())
        each = self.eigenvalue * each + even
        return np.append(each[: self.m - 1], float(self.above @ each[self.m - 1 :]))

    def derivatives(self, laws: Floats, change: Floats) -> Floats:
        """Derivatives of the chances, per virtual item, in the direction of changes of f. (L, p, k)."""
        change = self._all(np.ascontiguousarray(change.T))
        spectrum = np.fft.rfft(laws)[:, None, :] * np.fft.rfft(change)
        out = np.fft.irfft(spectrum, self.p) - laws[:, None, :] * change.sum(axis=1)[:, None]
        return np.asarray(self.eigenvalue * out.transpose(0, 2, 1))


class CounterSums:
    """Unit event in wide bins: counters of any size, noise included, by sums of the counts of items on wide nodes."""

    def __init__(self, wide: Wide) -> None:
        self.wide = wide

    def laws(self, scales: Floats, f: Floats) -> list[CounterLaw]:
        """Laws of counters that hold, for each scale, that multiple of the items of f."""
        items = float(f[1:].sum())
        return [self.wide.lattice.law(scale * f[1:], scale * items) for scale in scales.tolist()]

    def chances(self, laws: Sequence[CounterLaw]) -> Floats:
        """Chances of the cells under these laws. (L, B)."""
        return np.stack([chances_between(law.at_least(self.wide.data), 1.0) for law in laws])

    def met(self, ratios: Floats, laws: Sequence[CounterLaw]) -> Floats:
        """Means of ratios of cells over the laws moved by each node, added over the levels. (m,)."""
        each = [
            ratio[0] + np.diff(ratio) @ law.with_one_more(self.wide.data)
            for ratio, law in zip(ratios, laws, strict=True)
        ]
        return np.append(0.0, np.sum(each, axis=0))

    def derivatives(self, laws: Sequence[CounterLaw], change: Floats) -> Iterator[Floats]:
        """Derivatives of the chances, per virtual item, in the direction of changes of f. (B, k), a level each."""
        for law in laws:
            more = law.with_one_more(self.wide.data) - law.at_least(self.wide.data)[:, None]
            yield chances_between(more @ change[1:], 0.0)


Laws = Sums | WrappedSums | CounterSums
"""What turns a law of items into what the levels of one part show: laws of their slots, chances of their cells."""


class Opened:
    """The likelihood of an item profile given the levels of one part.

    Args:
        grid: grid of the law.
        laws: matrices from laws of items to the cells of the levels.
        levels: (L,) the observed data, cells of one size.
        scales: (L,) M s_j / m_j, a level's items per slot at a share of 1.
    """

    def __init__(self, grid: Grid, laws: Laws, levels: Sequence[PublishedCounts], scales: Floats) -> None:
        self.grid, self.laws, self.levels, self.scales = grid, laws, list(levels), scales
        self.nodes, self.m = grid.nodes, grid.low.size
        self._h = np.stack([seen.h for seen in levels])
        self._slots = np.array([seen.d for seen in levels])
        self._mult, self._last = np.array([(float(seen.mult), seen.last) for seen in levels]).T.copy()
        # the saddlepoints are kept as the start of the next search
        size = self._h.shape[1]
        self._y, self._z, self._work = np.zeros_like(self._h), np.zeros((len(levels), 1)), np.zeros((5, size))

    @property
    def d(self) -> float:
        """M, times the part of the slots in the data."""
        return float(self.scales @ self._slots)

    def _solve(self, f: Floats) -> tuple[float, Floats, Any]:
        """l(f), the expected cells (L, m) and the slot laws of the levels."""
        laws: Any = self.laws.laws(self.scales, f)
        mu = np.maximum(self._slots[:, None] * self.laws.chances(laws), TINY)
        first = self.levels[0]
        value = kernels.saddlepoints(
            first.form, mu, self._h, self._y, self._z, self._slots, first.q, self._mult, self._work, self._last
        )
        return float(value), mu, laws

    def value(self, f: Floats) -> float:
        """Log-likelihood l(f) of the law f."""
        return self._solve(f)[0]

    def _pull(self, laws: Any) -> Floats:
        """R with dl/df_t = R_t - d for t >= 1 and EM step f_t R_t / d; R_0 = d."""
        out = self.laws.met((self.scales * self._slots)[:, None] * np.exp(self._y), laws)
        out[0] = self.d
        return out

    def score(self, f: Floats) -> tuple[float, Floats, Floats]:
        """l(f), the ratio for laws that sum to one (its excess over d has mean 0 under f), and the expected cells."""
        value, mu, laws = self._solve(f)
        ratio = self._pull(laws)
        return value, ratio - float(f @ (ratio - self.d)), mu.reshape(-1)

    def step(self, f: Floats) -> Floats:
        """One EM step: expected items at each count; the rest of M did not occur."""
        _, _, laws = self._solve(f)
        return self._em_step(f, self._pull(laws))

    def _em_step(self, f: Floats, ratio: Floats) -> Floats:
        """The EM step, kept on the simplex."""
        out = f * ratio / self.d
        out[0] = max(1.0 - float(out[1:].sum()), 1e-9)
        return np.asarray(out / out.sum())

    def rows(self, f: Floats, mu: Floats, columns: Floats, centre: Floats) -> Floats:
        """Rows whose Gram matrix is the Fisher information of columns of log f."""
        change = f[:, None] * (columns - centre)
        change[0] = 0.0
        laws: Any = self.laws.laws(self.scales, f)
        size = self._h.shape[1]
        rows = np.zeros((len(self.levels), size + (self.levels[0].form == kernels.BINS), columns.shape[1]))
        for j, derivative in enumerate(self.laws.derivatives(laws, change)):
            rows[j, :size] = (self._slots[j] * self.scales[j]) * derivative
            settle(self.levels[j], mu[j * size : (j + 1) * size], rows[j])
        return rows.reshape(-1, columns.shape[1])

    def path(self, f0: Floats, taus: Floats, start: Floats, tolerance: float = 1e-2) -> Floats:
        """Shrinkage path by SQUAREM on f = (f o R + tau f0) / (d + tau)."""
        f0, f = np.maximum(f0, 1e-12), np.maximum(start, 1e-12)
        out = np.empty((taus.shape[0], self.m))
        d = self.d
        for i, tau in enumerate(taus):

            def update(f: Floats, tau: Floats = tau) -> tuple[Floats, float]:
                f = f / f.sum()
                value, _, laws = self._solve(f)
                step = self._em_step(f, self._pull(laws))
                return (step * d + tau * f0) / (d + tau), value + float(tau @ (f0 * np.log(f) - f))

            f = squarem(f, update, max(tolerance, 0.05), 40)
            f /= f.sum()
            out[i] = f
        return out

    def folds(self, f: Floats, count: int, rng: np.random.Generator) -> list[tuple[Likelihood, Likelihood]]:
        """(train, test) pairs of a random split of the slots of every level."""
        _, mu, _ = self._solve(f)
        each = [thin(*both, count, rng) for both in zip(self.levels, mu * np.exp(self._y), strict=True)]
        return [
            (self._with([one[j][0] for one in each]), self._with([one[j][1] for one in each])) for j in range(count)
        ]

    def _with(self, levels: Sequence[PublishedCounts]) -> Opened:
        """Copy the levels with other data."""
        return Opened(self.grid, self.laws, levels, self.scales)


def chances_between(at_least: Floats, below: float) -> Floats:
    """Chances of cells, or columns of their changes, from those of being at or above each edge."""
    shape = (1, *at_least.shape[1:])
    return np.asarray(-np.diff(at_least, axis=0, prepend=np.full(shape, below), append=np.zeros(shape)))


def wide_fit(observed: Observed, levels: Sequence[Level], heavy: Heavy, most: float) -> VarianceModel:
    """Maximum likelihood items at the nodes of noisy bins."""
    wide, levels_seen = heavy.wide, []
    for level in levels:
        assert isinstance(level.estimator, Line)
        # what is far above the last edge is in the last cell, with its noise: left out, large counts would go missing
        h, copies = gather_cells(wide.data, level.estimator.whole)
        levels_seen.append(
            PublishedCounts(FORMS[observed.form], h, level.m, observed.q, float(observed.parts), float(copies[-1]))
        )
    low, width = np.append(0, wide.low), np.append(1, wide.width)
    cell = np.append(0, np.searchsorted(wide.data, wide.low, side="right"))
    grid = Grid(low, width, np.zeros(low.size), cell)
    problem = Opened(grid, CounterSums(wide), levels_seen, most * _rates(levels))
    noise = 2.0 * math.sqrt(observed.noise_variance * len(levels)) / most
    items = most * average_law(observed, problem, max(1e-5, noise))
    items[0] = 0.0
    beyond = float(items[wide.span + 1 :].sum())
    share = items[wide.span + 1 :] / beyond if beyond > 0.0 else heavy.share
    return VarianceModel(items[: wide.span + 1], beyond, replace(heavy, share=share))


def fit(observed: Observed, part: ObservedPart) -> VarianceModel:
    """Maximum likelihood items at each count, from all informative levels."""
    if residues.exact(part.levels):
        weight = residues.Residues(part.levels).weights(part.model.intensity)
    else:
        weight = cardinality.weights(part.levels, part.model)
    start = part.model
    levels = [level for level, one in zip(part.levels, weight, strict=True) if one >= MIN_WEIGHT * weight.max()]
    span = start.intensity.size - 1
    if len(observed.epsilons) > 1 or span < 8:
        return start
    most = 2.0 * max(start.items, 50.0) + 8.0 * math.sqrt(sum(level.m for level in levels))
    if start.heavy is not None and observed.form == "bins":
        return wide_fit(observed, levels, start.heavy, most)
    top = _largest_node(start, span)
    if observed.modulus is not None:
        top = min(top, observed.modulus - 2)
    low = np.arange(top + 2, dtype=np.int64)
    grid = Grid(low, np.ones(top + 2, dtype=np.int64), np.zeros(top + 2))
    seen = [_counts_of_level(observed, level, grid) for level in levels]
    first = levels[0].estimator
    laws: Laws
    if isinstance(first, Line):
        laws = Sums(Markov(grid, observed.epsilons[0], seen[0]))
    else:
        laws = WrappedSums(top + 2, _residue_shares(start, top + 2, first.p), first.eigenvalue)
    f = average_law(observed, Opened(grid, laws, seen, most * _rates(levels)), 1e-5)
    intensity = np.zeros(span + 1)
    intensity[1 : top + 1] = most * f[1 : top + 1]
    beyond = most * float(f[top + 1])
    rest = float(start.intensity[top + 1 :].sum()) + start.beyond
    if rest <= 0.0:
        if observed.modulus is not None and top < span:  # the last node was spread evenly
            intensity[top + 1 :] = beyond / (span - top)
            beyond = 0.0
        return VarianceModel(intensity, beyond, start.heavy)
    intensity[top + 1 :] = start.intensity[top + 1 :] * (beyond / rest)
    return with_heavy(VarianceModel(intensity, start.beyond * beyond / rest), levels)


def average_law(observed: Observed, problem: Opened, least: float) -> Floats:
    """The averaged law on the grid of a problem; atoms below `least` are taken for noise."""
    settings = estimator.FitSettings(
        round(float(problem.nodes[-1])), min(observed.epsilons), 0.0, least, brief=True, plain=True
    )
    f, _ = estimator.estimate(problem, problem.grid, settings, estimator.generator([observed]))
    return f


def _largest_node(start: VarianceModel, span: int) -> int:
    """Largest count with a node of its own: a quarter above the count where the start has hardly any item left."""
    tails = np.cumsum(start.intensity[::-1])[::-1] + start.beyond
    worth = max(2.0, 1e-4 * start.items)
    last = int(np.flatnonzero(tails > worth)[-1]) if (tails > worth).any() else 0
    return min(span, max(12, last + last // 4 + 4))


def _counts_of_level(observed: Observed, level: Level, grid: Grid) -> PublishedCounts:
    """The data of one level."""
    estimator = level.estimator
    if isinstance(estimator, Line):
        m = grid.low.size
        at = np.clip(estimator.cells.low, 0, m - 1)
        at[0] = 0
        slots = tally(at, estimator.cells.slots, m)
    else:
        slots = estimator.slots
    return PublishedCounts(FORMS[observed.form], slots, level.m, observed.q, float(observed.parts))


def _rates(levels: Sequence[Level]) -> Floats:
    """Part of all items in a slot of each level."""
    return np.array([level.share / level.m for level in levels])


def _residue_shares(start: VarianceModel, m: int, p: int) -> Floats:
    """Shares of the residues m-1..p-1, as in the first law; evenly where it has none, and for items beyond its end."""
    out = np.full(p - m + 1, 1e-300)
    inside = start.intensity[m - 1 :]
    out[: inside.size] += inside
    out[inside.size :] += start.beyond / max(out.size - inside.size, 1)
    return np.asarray(out / out.sum())
