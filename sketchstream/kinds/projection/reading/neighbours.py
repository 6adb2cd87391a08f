"""Many pairs at once: blocks of the distance matrix by one BLAS product each, and the nearest rows of a user.

In: a `PublishedRows`. Out: squared distances with errors, and nearest rows. Touches: nothing.
Source: docs/theory/projection.md, sections 6 (selection) and 7 (rounding).

A common row is subtracted from all rows in int64, which changes no distance and removes what the rows share. Then
|a - b|^2 = |a|^2 + |b|^2 - 2 <a, b> is one product of matrices with two columns more. Its rounding error is below
(2 k + 20) u (|a|^2 + |b|^2); pairs for which that exceeds 1e-6 of the smallest standard error there can be are
computed from int64 differences instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import EstimateError
from sketchstream.kinds.answers import LEVEL
from sketchstream.kinds.projection.matrices.kernels import squared_gaps
from sketchstream.kinds.projection.reading.rows import PublishedRows, RowEstimates, Who
from sketchstream.spec import checked_int

BLOCK: Final = 4096
"""Rows of a block of the distance matrix."""
TOLERANCE: Final = 1e-6
"""Rounding error of a distance, at most, as a share of its standard error."""
UNIT_ROUNDOFF: Final = 2.0**-53
SEARCHED: Final = 1 << 24
"""Distances that a search for neighbours holds at a time, at most."""


@dataclass(frozen=True)
class Neighbours:
    """The rows that look nearest to some users' rows.

    The intervals hold for all candidates together, so they hold for the chosen ones too. The values do not account for
    the choice: what looks nearest is on average farther than it looks.

    Args:
        users: (m,) positions of the users.
        nearest: (m, count) positions of the chosen users, by ascending estimate.
        distances: (m, count) their squared distances; interval ends hold after selection.
    """

    users: Ints
    nearest: Ints
    distances: RowEstimates


class Distances:
    """Squared distances between all rows of a projection, block by block."""

    def __init__(self, projection: PublishedRows) -> None:
        self.projection = projection
        values = projection.cells
        common = np.rint(values.astype(np.float64).mean(axis=0)).astype(np.int64)
        centred = (values - common).astype(np.float64)
        self._norms: Floats = np.einsum("ij,ij->i", centred, centred)
        n, k = centred.shape
        scale, ones = projection.scale, np.ones(n)
        # [-2 S a, S |a|^2 - 2 tau, 1] . [b, 1, S |b|^2] is the estimate.
        self._left: Floats = np.empty((n, k + 2))
        self._left[:, :k] = -2 * scale * centred
        self._left[:, k] = scale * self._norms - 2 * projection.tau
        self._left[:, k + 1] = ones
        self._right: Floats = np.column_stack((centred, ones, scale * self._norms))
        smallest = np.sqrt(projection.law.squared_norm(0.0, 2 * projection.tau)) / scale
        self._most = TOLERANCE * float(smallest) / ((2 * k + 20) * UNIT_ROUNDOFF)
        self._highest = float(self._norms.max())

    def block(
        self,
        rows: Ints | slice,
        columns: Ints | slice = slice(None),
        out: Floats | None = None,
    ) -> Floats:
        """(rows, columns) unbiased squared distances between rows and others, user units; 0 for a row and itself."""
        n = len(self._norms)
        first, second = (_positions(one, n) for one in (rows, columns))
        out = np.matmul(self._left[rows], self._right[columns].T, out=out)
        bound = self._most - self._norms[first]
        if bound.size and second.size and float(bound.min()) < self._highest:
            self._repair(out, first, second, bound)
        own = np.searchsorted(second, first) if _is_ascending(second) else None
        if own is None:
            out[first[:, None] == second[None, :]] = 0.0
        else:
            hit = (own < len(second)) & (second[np.minimum(own, len(second) - 1)] == first)
            out[np.flatnonzero(hit), own[hit]] = 0.0
        return out

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[int, Floats]]:
        """The whole matrix: the first row's number and a (size, n) block, block by block."""
        for start in range(0, len(self._norms), size):
            yield start, self.block(slice(start, start + size))

    def estimates(
        self, values: Floats, level: float = LEVEL, share: float = 1.0, step: Floats | float = 0.0
    ) -> RowEstimates:
        """The distances with standard errors and intervals.

        Args:
            share: part of the error probability that each interval may have; 1 over their number makes all of them
                hold together.
        """
        doubled, excess = 2 * self.projection.tau, 2 * self.projection.excess
        sums = (values + doubled) / self.projection.scale
        return self.projection.from_sums("distance", sums, doubled, level, share, excess=excess, step=step)

    def _repair(self, out: Floats, first: Ints, second: Ints, bound: Floats) -> None:
        """Recompute, from int64 differences, the pairs whose rounding error may be too large."""
        values, scale, tau = self.projection.cells, self.projection.scale, self.projection.tau
        norms = self._norms[second]
        for i in np.flatnonzero(bound < self._highest).tolist():
            places = np.flatnonzero(norms > bound[i])
            sums = np.empty(len(places))
            squared_gaps(values, values, np.full(len(places), first[i]), second[places], sums)
            out[i, places] = sums * scale - 2 * tau


def nearest(projection: PublishedRows, users: Who, count: int = 10, level: float = LEVEL) -> Neighbours:
    """The rows that look nearest to some users' rows, with intervals that hold after the selection.

    Args:
        level: probability with which all intervals of one user hold together, whichever rows are chosen.
    """
    n = projection.spec.users.size
    if n < 2:
        raise EstimateError("nearest needs at least two users, found one")
    count = checked_int(count, "count", 1, n - 1)
    places = np.atleast_1d(projection.user_places(users))
    distances = Distances(projection)
    chosen = np.empty((len(places), count), np.int64)
    values = np.empty((len(places), count))
    step = max(1, SEARCHED // n)
    for start in range(0, len(places), step):
        part = places[start : start + step]
        block = distances.block(part)
        block[np.arange(len(part)), part] = np.inf
        best = np.argpartition(block, count - 1, axis=1)[:, :count]
        smallest = np.take_along_axis(block, best, axis=1)
        order = np.argsort(smallest, axis=1, kind="stable")
        chosen[start : start + step] = np.take_along_axis(best, order, axis=1)
        values[start : start + step] = np.take_along_axis(smallest, order, axis=1)
    steps = projection.gap_steps(np.repeat(places, count).reshape(chosen.shape), chosen, projection)
    return Neighbours(places, chosen, distances.estimates(values, level, 1 / (n - 1), steps))


def _positions(which: Any, n: int) -> Ints:
    """Positions that a slice or a list names."""
    return np.arange(n)[which] if isinstance(which, slice) else np.asarray(which, np.int64)


def _is_ascending(places: Ints) -> bool:
    """Whether positions are strictly ascending."""
    return bool(np.all(places[1:] > places[:-1]))
