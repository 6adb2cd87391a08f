"""Likelihoods of published numbers, for all units, layers and parts.

In: observed parts of one closed domain. Out: a `Likelihood` and its grid; laws on the grid made into a `Fit`.
Touches: nothing. Source: docs/theory/profile.md 7.1 and 7.7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate import laws
from sketchstream.kinds.profile.estimate.fit import Fit
from sketchstream.kinds.profile.estimate.likelihood import grid as grids
from sketchstream.kinds.profile.estimate.likelihood import kernels, realised
from sketchstream.kinds.profile.estimate.likelihood.grid import Grid
from sketchstream.kinds.profile.estimate.likelihood.pooled import Pooled
from sketchstream.kinds.profile.estimate.likelihood.problem import TINY, Likelihood, Markov, settle, thin
from sketchstream.kinds.profile.estimate.likelihood.published_counts import PublishedCounts
from sketchstream.kinds.profile.estimate.observed import Cells, Observed, tally

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FORMS = {"state": kernels.EXACT, "cumulative": kernels.CUMULATIVE, "bins": kernels.BINS}


def likelihood(parts: Sequence[Observed], n: int) -> tuple[Likelihood, Grid]:
    """Build the likelihood of all parts together, and the grid of its laws.

    Args:
        parts: parts of one closed domain.
        n: largest count resolved; the grid reaches at least the largest observed count.
    """
    part = parts[0]
    if part.unit == "item":
        grid = _circle_grid(parts)
        return Composite(grid, [_response(part, grid) for part in parts]), grid
    if len(parts) == 1 and len(part.epsilons) == 1:
        cells = part.cells()
        grid = grids.of_state(cells, part.epsilons[0]) if part.form == "state" else grids.of_release(cells)
        seen = PublishedCounts(FORMS[part.form], grid.h, float(cells.d), part.q, float(part.parts))
        if part.form == "bins" and int(grid.width.max()) > 1:
            grid = grids.refine(grid, n)
            return Pooled(grid, part.epsilons[0], seen), grid
        return Markov(grid, part.epsilons[0], seen), grid
    grid = _line_grid(parts)
    assert n >= 1
    return Composite(grid, [_layered_channel(part, grid) for part in parts]), grid


class Response:
    """Randomized response on Z_p on cells of counts: K f = L f + (1-L) width/p."""

    def __init__(self, eigenvalue: float, weights: Floats) -> None:
        self.eigenvalue, self.weights = eigenvalue, (1.0 - eigenvalue) * weights

    def forward(self, f: Floats) -> Floats:
        """K f, for one law or for columns."""
        if f.ndim == 1:
            return np.asarray(self.eigenvalue * f + self.weights * f.sum())
        return np.asarray(self.eigenvalue * f + self.weights[:, None] * f.sum(axis=0))

    def adjoint(self, u: Floats) -> Floats:
        """The product K'u: the kernel, transposed, on u."""
        return np.asarray(self.eigenvalue * u + float(self.weights @ u))


class Layered:
    """Any list of discrete Laplace layers, from counts on a grid to cells of counters."""

    def __init__(self, table: csr_array) -> None:
        self.table, self.transposed = table, table.T.tocsr()

    def forward(self, f: Floats) -> Floats:
        """K f, for one law or for columns."""
        return np.asarray(self.table @ f)

    def adjoint(self, u: Floats) -> Floats:
        """The product K'u: the kernel, transposed, on u."""
        return np.asarray(self.transposed @ u)


class Composite:
    """A sum of log-likelihoods over parts with channels of their own; the shrinkage path by a fixed point."""

    def __init__(self, grid: Grid, parts: Sequence[tuple[Response | Layered, PublishedCounts]]) -> None:
        self.grid, self.parts = grid, list(parts)
        self.nodes, self.m = grid.nodes, grid.low.size
        sizes = [seen.h.size for _, seen in self.parts]
        self._y = [np.zeros(size) for size in sizes]
        self._z = [np.zeros(1) for _ in sizes]
        self._work = [np.zeros((5, size)) for size in sizes]

    @property
    def d(self) -> float:
        """Number of slots in all parts."""
        return float(sum(seen.d for _, seen in self.parts))

    def _solve(self, f: Floats) -> tuple[float, Floats]:
        """l(f) and the expected cells of all parts, end to end."""
        total, every = 0.0, []
        for (channel, seen), y, z, work in zip(self.parts, self._y, self._z, self._work, strict=True):
            mu = np.maximum(seen.d * channel.forward(f), TINY)
            value = kernels.saddlepoint(seen.form, mu, seen.h, y, z, seen.d, seen.q, seen.mult, work)
            if value <= kernels.IMPOSSIBLE:
                y[:], z[:] = 0.0, 0.0
                value = kernels.saddlepoint(seen.form, mu, seen.h, y, z, seen.d, seen.q, seen.mult, work)
            total += value
            every.append(mu)
        return max(float(total), kernels.IMPOSSIBLE), np.concatenate(every)

    def value(self, f: Floats) -> float:
        """Log-likelihood l(f) of the law f."""
        return self._solve(f)[0]

    def score(self, f: Floats) -> tuple[float, Floats, Floats]:
        """l(f), the ratio with dl/df = ratio - d, and the expected cells."""
        value, mu = self._solve(f)
        ratio = np.zeros(self.m)
        for (channel, seen), y in zip(self.parts, self._y, strict=True):
            ratio += seen.d * channel.adjoint(np.exp(y))
        return value, ratio, mu

    def step(self, f: Floats) -> Floats:
        """One EM step: the posterior mean of the realised profile, renormalised."""
        _, mu = self._solve(f)
        ratio, start = np.zeros(self.m), 0
        for (channel, seen), y in zip(self.parts, self._y, strict=True):
            here = mu[start : start + y.size]
            ratio += seen.d * channel.adjoint(realised.expected_slots(seen, here, y) / here)
            start += y.size
        out = f * ratio
        return np.asarray(out / out.sum())

    def rows(self, f: Floats, mu: Floats, columns: Floats, centre: Floats) -> Floats:
        """Rows whose Gram matrix is the Fisher information of columns of log f."""
        moved, out, start = columns * f[:, None], [], 0
        for channel, seen in self.parts:
            size = seen.h.size
            here = mu[start : start + size]
            jacobian = np.zeros((size + (seen.form == kernels.BINS), columns.shape[1]))
            jacobian[:size] = seen.d * channel.forward(moved) - here[:, None] * centre
            out.append(settle(seen, here, jacobian))
            start += size
        return np.concatenate(out) if len(out) > 1 else out[0]

    def folds(self, f: Floats, count: int, rng: np.random.Generator) -> list[tuple[Likelihood, Likelihood]]:
        """(train, test) pairs of a random split of the slots of every part."""
        _, _, mu = self.score(f)
        each, start = [], 0
        for (_, seen), y in zip(self.parts, self._y, strict=True):
            each.append(thin(seen, mu[start : start + seen.h.size] * np.exp(y), count, rng))
            start += seen.h.size
        channels = [channel for channel, _ in self.parts]
        return [
            (
                Composite(self.grid, list(zip(channels, [one[j][0] for one in each], strict=True))),
                Composite(self.grid, list(zip(channels, [one[j][1] for one in each], strict=True))),
            )
            for j in range(count)
        ]

    def path(self, f0: Floats, taus: Floats, start: Floats, tolerance: float = 1e-2) -> Floats:
        """Argmax of l + sum tau (f0 log f - f) for each row of taus by SQUAREM on f = (f o ratio + tau f0)/(d + tau).

        Source: Varadhan & Roland 2008; docs/theory/profile.md 7.7.
        """
        f0, f = np.maximum(f0, 1e-10), np.maximum(start, 1e-12)
        out = np.empty((taus.shape[0], self.m))
        d = self.d
        for i, tau in enumerate(taus):

            def update(f: Floats, tau: Floats = tau) -> tuple[Floats, float]:
                value, ratio, _ = self.score(f)
                return (f * ratio + tau * f0) / (d + tau), value + float(tau @ (f0 * np.log(f) - f))

            f = squarem(f, update, tolerance)
            out[i] = f
        return out


def squarem(f: Floats, update: Callable[[Floats], tuple[Floats, float]], tolerance: float, cycles: int = 60) -> Floats:
    """Fixed point of a monotone map, accelerated by squared extrapolation (Varadhan & Roland 2008, scheme S3).

    `update` returns the next point and the objective at the point it was given.
    """
    best = -np.inf
    for _ in range(cycles):
        first, value = update(f)
        two, _ = update(first)
        r, v = first - f, two - 2.0 * first + f
        size = float(np.sqrt((v @ v) or 0.0))
        if size < 1e-14:
            return np.maximum(two, 1e-200)
        alpha = min(-1.0, -float(np.sqrt(r @ r)) / size)
        trial = np.maximum(f - 2.0 * alpha * r + alpha * alpha * v, 1e-200)
        after, reached = update(trial)
        if reached < value or not np.isfinite(reached):
            after, reached = two, value
        f = np.maximum(after, 1e-200)
        if reached - best < 0.1 * tolerance and best > -np.inf:
            break
        best = max(best, reached)
    return f


def _circle_grid(parts: Sequence[Observed]) -> Grid:
    """Counts 0..p-1, one cell each; for states with a large modulus, wider ones above EXACT."""
    p = parts[0].modulus
    assert p is not None
    low = np.arange(p, dtype=np.int64)
    if p > 2 * grids.EXACT and all(part.form == "state" for part in parts):
        edges = list(range(grids.EXACT))
        while edges[-1] < p:
            edges.append(edges[-1] + max(1, edges[-1] // 64))
        low = np.array([edge for edge in edges if edge < p], dtype=np.int64)
    width = np.diff(np.append(low, p))
    return Grid(low, width, np.zeros(low.size))


def _response(part: Observed, grid: Grid) -> tuple[Response, PublishedCounts]:
    """Channel and data of one part with randomized response."""
    assert part.modulus is not None
    eigenvalue = laws.response_eigenvalue(part.epsilons, part.modulus)
    where = np.searchsorted(grid.low, part.edges, side="right") - 1
    h = tally(where, part.values[0], grid.low.size)
    seen = PublishedCounts(FORMS[part.form], h, float(part.slots[0]), part.q, float(part.parts))
    return Response(eigenvalue, grid.width / part.modulus), seen


def _line_grid(parts: Sequence[Observed]) -> Grid:
    """One grid for several parts: of all states together, else the finest of the releases, up to the largest count."""
    states = [part for part in parts if part.form == "state"]
    if states:
        edges = np.unique(np.concatenate([part.edges for part in states]))
        slots = np.zeros(edges.size)
        for part in states:
            slots[np.searchsorted(edges, part.edges)] += part.values[0]
        epsilon = min(min(part.epsilons) for part in states)
        grid = grids.of_state(Cells(edges, edges, slots, int(slots.sum())), epsilon)
    else:
        every = [grids.of_release(part.cells()) for part in parts]
        fine = max(every, key=lambda one: int((one.width == 1).sum()))
        far = max(every, key=lambda one: int(one.low[-1]))
        more = far.low > fine.low[-1] + fine.width[-1] - 1
        grid = Grid(
            np.concatenate([fine.low, far.low[more]]), np.concatenate([fine.width, far.width[more]]), np.zeros(0)
        )
    return Grid(grid.low, grid.width, np.zeros(grid.low.size))


def _layered_channel(part: Observed, grid: Grid) -> tuple[Layered, PublishedCounts]:
    """Channel and data of one part with any number of discrete Laplace layers."""
    from scipy.sparse import csr_array

    cells = part.cells()
    if part.form == "state":
        least = min(int(part.edges[0]), 0)
        low = np.concatenate([np.arange(least, 0), grid.low])
        h = tally(np.searchsorted(low, part.edges, side="right") - 1, part.values[0], low.size)
    else:
        low, h = cells.low, cells.slots
    reach = laws.radius(part.epsilons, 1e-14)
    climb = np.concatenate([[0.0], np.cumsum(laws.noise_pmf(part.epsilons, reach))])
    climb /= climb[-1]
    nodes = grid.nodes

    def below(edge: npt.NDArray[np.int64]) -> Floats:
        """Probability of a counter below each edge, from each node; half-integer nodes are between two integers."""
        out = np.zeros((edge.size, nodes.size))
        for node in (np.floor(nodes), np.ceil(nodes)):
            gap = np.clip(edge.astype(np.float64)[:, None] - node[None, :], -reach, reach + 1).astype(np.int64)
            out += 0.5 * climb[gap + reach]
        return out

    table = np.diff(np.concatenate([np.zeros((1, nodes.size)), below(low[1:]), np.ones((1, nodes.size))]), axis=0)
    table[table < 1e-15] = 0.0
    seen = PublishedCounts(FORMS[part.form], h, float(cells.d), part.q, float(part.parts))
    return Layered(csr_array(table)), seen


def spread_out(parts: Sequence[Observed], grid: Grid, f: Floats, n: int) -> Fit:
    """The law on the grid as shares at counts 0..n and above.

    Inside a wide cell the share is put at the observed counters (states, if the cell is much wider than the noise),
    or spread evenly.
    """
    out = np.zeros(n + 1)
    unit = grid.width == 1
    low = grid.low
    inside = unit & (low <= n)
    out[low[inside]] = f[inside]
    over = unit & (low > n)
    heavy, shares = [low[over].astype(np.float64)], [f[over]]
    states = [part for part in parts if part.form == "state" and part.unit == "event"]
    for i in np.flatnonzero(~unit & (f > 0.0)):
        start, width = int(low[i]), int(grid.width[i])
        at, weight = _seen_within(states, start, width)
        if at is None:
            first, last = max(start, n + 1), start + width - 1
            if start <= n:
                stop = min(last, n)
                out[start : stop + 1] += f[i] / width
            if last > n:
                heavy.append(np.array([(first + last) / 2.0]))
                shares.append(np.array([f[i] * (last - first + 1) / width]))
        else:
            share = f[i] * weight
            light = at <= n
            np.add.at(out, at[light].astype(np.int64), share[light])
            heavy.append(at[~light])
            shares.append(share[~light])
    where, share = np.concatenate(heavy), np.concatenate(shares)
    order = np.argsort(where, kind="stable")
    keep = order[share[order] > 0.0]
    return Fit(out, where[keep], share[keep])


def _seen_within(states: Sequence[Observed], start: int, width: int) -> tuple[Floats | None, Floats]:
    """Observed counters of a wide cell and their weights, if the cell is much wider than the noise."""
    empty = np.zeros(0)
    if len(states) != 1 or width * min(states[0].epsilons) < 4.0:
        return None, empty
    edges = states[0].edges
    first, last = np.searchsorted(edges, [start, start + width])
    weight = states[0].values[0, first:last].astype(np.float64)
    if weight.sum() <= 0.0:
        return None, empty
    return edges[first:last].astype(np.float64), weight / weight.sum()
