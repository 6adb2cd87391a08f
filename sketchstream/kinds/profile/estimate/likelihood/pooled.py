"""Likelihood for noisy bins wider than one count: the law has finer nodes than the published bins.

In: a grid of nodes with their bins, the published numbers. Out: a `Likelihood`. Touches: only its
scratch memory. Source: docs/theory/profile.md 7.1 and 7.6; `docs/theory/reconstruction.md`.
"""

from __future__ import annotations

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate.likelihood import kernels
from sketchstream.kinds.profile.estimate.likelihood.grid import Grid
from sketchstream.kinds.profile.estimate.likelihood.problem import TINY, Markov, settle
from sketchstream.kinds.profile.estimate.likelihood.published_counts import PublishedCounts


class Pooled(Markov):
    """One discrete Laplace layer, exact on its nodes, whose counters are published in bins of neighbouring nodes.

    Smooth models and atoms are on the nodes. The shrinkage path moves only the shares of whole bins: inside a bin it
    keeps the shape of the law that it shrinks to, as there are no data.
    """

    def __init__(self, grid: Grid, epsilon: float, seen: PublishedCounts) -> None:
        super().__init__(grid, epsilon, seen)
        self.first, self.bin = grid.first, grid.cell
        self._clear(grid.first.size)

    def back(self, u: Floats) -> Floats:
        """Map u on the bins back to the nodes. (B,) -> (m,)."""
        return super().back(u[self.bin])

    def expected(self, f: Floats) -> Floats:
        """Expected slots in each bin. (B,)."""
        return np.maximum(np.add.reduceat(self.seen.d * self.v * self.chances(f), self.first), TINY)

    def rows(self, f: Floats, mu: Floats, columns: Floats, centre: Floats) -> Floats:
        """Rows whose Gram matrix is the Fisher information of columns of log f. (B+1, k)."""
        jacobian = np.empty((self.first.size + 1, columns.shape[1]))
        jacobian[:-1] = self._moved(columns * (self.s * f)[:, None]) - mu[:, None] * centre
        return settle(self.seen, mu, jacobian)

    def _moved(self, columns: Floats) -> Floats:
        """Expected slots in the bins for columns of s o f. (B, k)."""
        moved = self.spread_columns(columns, np.empty_like(columns))
        moved *= (self.seen.d * self.v)[:, None]
        return np.asarray(np.add.reduceat(moved, self.first))

    def path(self, f0: Floats, taus: Floats, start: Floats, tolerance: float = 1e-2) -> Floats:
        """Argmax of l + sum tau (f0 log f - f) over laws with f0's shape inside the bins; see `Markov.path`."""
        seen, f0 = self.seen, np.maximum(f0, 1e-10)
        whole = np.add.reduceat(f0, self.first)
        shape = f0 / whole[self.bin]
        columns = np.zeros((self.m, whole.size))
        columns[np.arange(self.m), self.bin] = self.s * shape
        out = np.empty((taus.shape[0], whole.size))
        kernels.pooled_path(
            self._moved(columns), seen.h, seen.d, seen.q, seen.mult, whole, np.ascontiguousarray(taus[:, self.first]),
            np.add.reduceat(np.maximum(start, 1e-12), self.first), tolerance, out,
        )  # fmt: skip
        return np.asarray(out[:, self.bin] * shape)
