"""Likelihood of a profile given the published numbers of one level with one discrete Laplace layer.

In: a grid, the decay of the noise, the law of the published noise. Out: l(f), its gradient, its information, the EM
step, the shrinkage path. Touches: only its scratch memory.
Source: docs/theory/profile.md 7.1, 7.4, 7.6; `docs/theory/reconstruction.md`.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate.likelihood import kernels, realised
from sketchstream.kinds.profile.estimate.likelihood.grid import Grid
from sketchstream.kinds.profile.estimate.likelihood.published_counts import PublishedCounts

TINY = 1e-300


class Likelihood(Protocol):
    """Interface of the data for the models, the same for every channel and part."""

    nodes: Floats
    m: int

    @property
    def d(self) -> float:
        """Number of slots in all parts."""

    def value(self, f: Floats) -> float:
        """Log-likelihood l(f) of the law f."""

    def score(self, f: Floats) -> tuple[float, Floats, Floats]:
        """l(f), the ratio with dl/df = ratio - d and EM step f o ratio / d, and the expected cells mu."""

    def step(self, f: Floats) -> Floats:
        """The law after one EM step from f."""

    def rows(self, f: Floats, mu: Floats, columns: Floats, centre: Floats) -> Floats:
        """Rows whose Gram matrix is the Fisher information of columns of log f."""

    def path(self, f0: Floats, taus: Floats, start: Floats, tolerance: float = 1e-2) -> Floats:
        """Laws along the shrinkage path towards f0."""

    def folds(self, f: Floats, count: int, rng: np.random.Generator) -> list[tuple[Likelihood, Likelihood]]:
        """(train, test) pairs of a random split of the slots; f is a pilot law."""


class Markov:
    """One discrete Laplace layer on cells: K = diag(v) A diag(s), A with a tridiagonal inverse.

    v, s and the ratios of A are chosen so that the probabilities of staying in a cell and of moving to the next one
    are exact for counts spread evenly over their cell; for unit cells the whole kernel is exact.
    """

    def __init__(self, grid: Grid, epsilon: float, seen: PublishedCounts) -> None:
        self.grid, self.epsilon, self.seen = grid, epsilon, seen
        self.m = grid.low.size
        self.rho, self.v, self.s = transition(grid, epsilon)
        self.nodes = grid.nodes
        self._clear(self.m)

    def _clear(self, cells: int) -> None:
        """Scratch memory for this number of cells; the saddlepoint starts without tilt."""
        self.y, self.z, self._work = np.zeros(cells), np.zeros(1), np.zeros((5, cells))

    @property
    def d(self) -> float:
        """Number of slots in all parts."""
        return self.seen.d

    def folds(self, f: Floats, count: int, rng: np.random.Generator) -> list[tuple[Likelihood, Likelihood]]:
        """(train, test) pairs of a random split of the slots into folds."""
        _, _, mu = self.score(f)
        pairs: list[tuple[Likelihood, Likelihood]] = []
        for train, test in thin(self.seen, mu * np.exp(self.y), count, rng):
            pairs.append((self.of(train), self.of(test)))
        return pairs

    def of(self, seen: PublishedCounts) -> Markov:
        """Build the same kernel with other data (a fold)."""
        out = copy(self)
        out.seen = seen
        out._clear(seen.h.size)
        return out

    def spread(self, u: Floats) -> Floats:
        """The product A u."""
        out = np.empty_like(u)
        kernels.two_pass(self.rho, u, out)
        return out

    def spread_columns(self, u: Floats, out: Floats) -> Floats:
        """Fill `out` with A u for the columns of u, both (m, k)."""
        kernels.two_pass_columns(self.rho, u, out, np.empty(u.shape[1]))
        return out

    def chances(self, f: Floats) -> Floats:
        """The chances p with K f = v p. (m,)."""
        return np.maximum(self.spread(self.s * f), TINY)

    def expected(self, f: Floats) -> Floats:
        """Expected slots in each cell. (m,)."""
        return np.maximum(self.seen.d * self.v * self.chances(f), TINY)

    def score(self, f: Floats) -> tuple[float, Floats, Floats]:
        """l(f), the ratio s o A u (so that dl/df = ratio - d and the EM step is f o ratio / d), and mu."""
        value, mu = self._solve(f)
        return value, self.back(np.exp(self.y)), mu

    def back(self, u: Floats) -> Floats:
        """Map u on the published cells back to the nodes; u = observed / expected gives the ratio of the score."""
        return np.asarray(self.s * self.spread(self.seen.d * self.v * u))

    def value(self, f: Floats) -> float:
        """Log-likelihood l(f) of the law f."""
        return self._solve(f)[0]

    def _solve(self, f: Floats) -> tuple[float, Floats]:
        """Compute l(f) and mu; the saddlepoint is stored in y and z."""
        seen = self.seen
        mu = self.expected(f)
        for _ in range(2):
            value = float(
                kernels.saddlepoint(seen.form, mu, seen.h, self.y, self.z, seen.d, seen.q, seen.mult, self._work)
            )
            if value > kernels.IMPOSSIBLE:
                return value, mu
            self.y[:], self.z[:] = 0.0, 0.0  # the start was too far from the optimum
        return kernels.IMPOSSIBLE, mu

    def step(self, f: Floats) -> Floats:
        """One EM step: the posterior mean of the realised profile, renormalised."""
        _, mu = self._solve(f)
        out = f * self.back(realised.expected_slots(self.seen, mu, self.y) / mu)
        return np.asarray(out / out.sum())

    def rows(self, f: Floats, mu: Floats, columns: Floats, centre: Floats) -> Floats:
        """Rows whose Gram matrix is the Fisher information of columns of log f. (m or m+1, k).

        Args:
            f: (m,) law.
            mu: (m,) expected cells.
            columns: (m, k) d log f / d parameter before normalisation.
            centre: (k,) f'columns.
        """
        jacobian = np.empty((self.m + (self.seen.form == kernels.BINS), columns.shape[1]))
        self.spread_columns(columns * (self.s * f)[:, None], jacobian[: self.m])
        jacobian[: self.m] *= (self.seen.d * self.v)[:, None]
        jacobian[: self.m] -= mu[:, None] * centre
        return settle(self.seen, mu, jacobian)

    def path(self, f0: Floats, taus: Floats, start: Floats, tolerance: float = 1e-2) -> Floats:
        """Argmax of l + sum tau (f0 log f - f) for each row of taus, each started from the one before.

        Args:
            f0: (m,) target of the shrinkage.
            taus: (r, m) strengths.
            start: (m,) first point.
            tolerance: Newton stops below this decrement, in nats.

        Returns: (r, m) laws (not renormalised).
        """
        seen = self.seen
        out = np.empty((taus.shape[0], self.m))
        kernels.path(
            seen.form, self.rho, self.v, self.s, seen.h, seen.d, seen.q, seen.mult, np.maximum(f0, 1e-10), taus,
            np.maximum(start, 1e-12), tolerance, out,
            np.empty((kernels.SINGLE, self.m)), np.empty((kernels.DOUBLE, 2 * self.m)),
        )  # fmt: skip
        return out


def settle(seen: PublishedCounts, mu: Floats, jacobian: Floats) -> Floats:
    """Turn J in place into rows whose Gram matrix is J' S^-1 J; for BINS the last row is filled in."""
    m = mu.size
    tail = np.zeros(jacobian.shape[1])
    kernels.settle_rows(seen.form, mu, seen.variance, seen.d, jacobian[:m], tail, seen.last)
    if seen.form == kernels.BINS:
        jacobian[m] = tail
    return jacobian


def thin(
    seen: PublishedCounts, pilot: Floats, count: int, rng: np.random.Generator
) -> list[tuple[PublishedCounts, PublishedCounts]]:
    """(train, test) data of a random split of the slots; pilot: (m,) expected cells given the data (noisy data only).

    Source: docs/theory/profile.md 7.5 and 7.6; without noise, exactly the multivariate hypergeometric split.
    """
    m = seen.h.size
    if seen.form == kernels.EXACT:
        whole = np.rint(seen.h).astype(np.int64)
        rest, noise = np.zeros(m), np.zeros((count, m))
    else:
        up = np.cumsum(np.maximum(pilot, 0.0))
        whole = np.diff(np.rint(up * (round(seen.d) / up[-1])), prepend=0.0).astype(np.int64)
        rest = seen.h - whole
        noise = rng.normal(0.0, math.sqrt(seen.variance / count), (count, m))
        noise[:, -1] *= math.sqrt(seen.last)
        noise -= noise.mean(axis=0)
        if seen.form == kernels.CUMULATIVE:
            noise[:, 0] = 0.0  # thresholds 1..m-1: a cell has the noise of its own minus that of the next
            noise -= np.append(noise[:, 1:], np.zeros((count, 1)), axis=1)
    pairs = []
    for j, part in enumerate(split(whole, count, rng)):
        taken, size = part + rest / count + noise[j], float(part.sum())
        pairs.append(
            (
                replace(seen, h=seen.h - taken, d=seen.d - size, mult=seen.mult * (1.0 - 1.0 / count)),
                PublishedCounts(seen.form, taken, size, seen.q, seen.mult / count, seen.last),
            )
        )
    return pairs


def split(whole: npt.NDArray[np.int64], count: int, rng: np.random.Generator) -> list[Floats]:
    """Split counted objects into `count` folds of equal size, at random: multivariate hypergeometric draws."""
    left = whole.copy()
    out = []
    for j in range(count):
        rest = count - j
        total = int(left.sum())
        if rest == 1:
            part = left
        elif total < 1_000_000_000:  # the generator's limit; beyond it, thinning is as good
            part = rng.multivariate_hypergeometric(left, total // rest, method="marginals")
        else:
            part = rng.binomial(left, 1.0 / rest)
        out.append(part.astype(np.float64))
        left = left - part
    return out


def transition(grid: Grid, epsilon: float) -> tuple[Floats, Floats, Floats]:
    """Rho (m-1,), v (m,), s (m,) of the kernel on cells.

    With counts spread evenly over each cell, exact probabilities: stay P_i, step right r_i, step left l_i;
    rho_i^2 = r_i l_{i+1} / (P_i P_{i+1}); v_i = sqrt(w_i P_i) with w the reversible measure; s makes columns sum to 1.
    """
    a = math.exp(-epsilon)
    m = grid.low.size
    width = grid.width.astype(np.float64)
    leave = -np.expm1(-epsilon * width)  # 1 - a^w
    out = a * leave / (width * (1.0 - a) * (1.0 + a))  # probability of leaving on one side
    if m == 1:
        return np.zeros(0), np.ones(1), np.ones(1)
    stay = 1.0 - 2.0 * out
    stay[0] = 1.0 / (1.0 + a)
    stay[-1] = 1.0 - out[-1]
    reach = leave.copy()  # share of a step into the cell that stops there
    reach[0] = reach[-1] = 1.0
    right = out[:-1] * reach[1:]
    left = out[1:] * reach[:-1]
    rho = np.sqrt(right * left / (stay[:-1] * stay[1:]))
    measure = np.cumprod(np.concatenate([[1.0], right / left]))
    measure *= width[m // 2] / measure[m // 2]
    v = np.sqrt(measure * stay)
    sums = np.empty(m)
    kernels.two_pass(rho, v, sums)
    return rho, v, 1.0 / sums
