"""Many pairs at once: blocks of the distance matrix by one BLAS product each, nearest rows, a heat map, an Arrow file.

In: a `PublishedRows`. Out: squared distances with errors, nearest rows, a figure, a file. Touches: that file.
Source: docs/theory/projection.md, sections 6 (selection) and 7 (rounding).

A common row is subtracted from all rows in int64, which changes no distance and removes what the rows share. Then
|a - b|^2 = |a|^2 + |b|^2 - 2 <a, b> is one product of matrices with two columns more. Its rounding error is below
(2 k + 20) u (|a|^2 + |b|^2); pairs for which that exceeds 1e-6 of the smallest standard error there can be are
computed from int64 differences instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import EstimateError, optional_import
from sketchstream.kinds.answers import LEVEL
from sketchstream.kinds.projection.matrices.kernels import squared_gaps
from sketchstream.kinds.projection.reading.rows import PublishedRows, RowEstimates, Who
from sketchstream.pictures import charts
from sketchstream.pictures.numbers import item_name
from sketchstream.spec import checked_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOLERANCE: Final = 1e-6
"""Rounding error of a distance, at most, as a share of its standard error."""
UNIT_ROUNDOFF: Final = 2.0**-53
SEARCHED: Final = 1 << 24
"""Distances that are held at a time, at most."""
PIXELS: Final = 512
"""Most rows of a picture; with more users, each row stands for a run of users."""
MAX_NAMED_ROWS: Final = 120
"""Most rows that have their names beside the picture."""


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

    def block(self, rows: Ints | slice, out: Floats | None = None) -> Floats:
        """(rows, users) unbiased squared distances between rows and all rows, user units; 0 for a row and itself."""
        places = np.arange(len(self._norms))[rows]
        out = np.matmul(self._left[rows], self._right.T, out=out)
        self._repair(out, places)
        out[np.arange(len(places)), places] = 0.0
        return out

    def blocks(self, size: int) -> Iterator[tuple[int, Floats]]:
        """The whole matrix: the first row's number and a (size, n) block, block by block."""
        for start in range(0, len(self._norms), size):
            yield start, self.block(slice(start, start + size))

    def estimates(
        self, values: Floats, level: float = LEVEL, share: float = 1.0, step: Floats | float = 0.0
    ) -> RowEstimates:
        """The distances with standard errors and intervals; see `PublishedRows.from_sums`."""
        doubled, excess = 2 * self.projection.tau, 2 * self.projection.excess
        sums = (values + doubled) / self.projection.scale
        return self.projection.from_sums("distance", sums, doubled, level, share, excess=excess, step=step)

    def _repair(self, out: Floats, places: Ints) -> None:
        """Recompute, from int64 differences, the pairs of rows whose rounding error may be too large."""
        cells, bounds = self.projection.cells, self._most - self._norms[places]
        for i in np.flatnonzero(bounds < self._norms.max()).tolist():
            far = np.flatnonzero(self._norms > bounds[i])
            sums = np.empty(len(far))
            squared_gaps(cells, cells, np.full(len(far), places[i]), far, sums)
            out[i, far] = sums * self.projection.scale - 2 * self.projection.tau


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


def draw_heatmap(projection: PublishedRows) -> Figure:
    """The distances of all rows, similar ones next to each other; of many users, averages over runs of them.

    They are square roots of estimated squared distances, 0 for negative ones.
    """
    n = projection.spec.users.size
    if n < 2:
        raise EstimateError("a heat map needs at least two users, found one")
    run = -(-n // PIXELS)
    starts = np.arange(0, n, run)
    sums = np.empty((len(starts), len(starts)))
    for start, block in Distances(projection).blocks(max(run, SEARCHED // n // run * run)):
        columns = np.add.reduceat(block, starts, axis=1)
        rows = np.add.reduceat(columns, np.arange(0, len(block), run), axis=0)
        sums[start // run : start // run + len(rows)] = rows
    sizes = np.diff([*starts.tolist(), n]).astype(float)
    pairs = np.outer(sizes, sizes)
    pairs[np.diag_indices_from(pairs)] = np.maximum(sizes * (sizes - 1), 1)  # a row does not form a pair with itself
    values = np.sqrt(np.maximum(sums / pairs, 0.0))
    order = alike(values)
    labels = None
    if n <= MAX_NAMED_ROWS:
        names = [item_name(projection.user_name(place)) for place in order.tolist()]
        labels = [name if len(name) <= 12 else name[:11] + "…" for name in names]
    size = 4.5 + 0.075 * min(len(order), MAX_NAMED_ROWS)
    figure = charts.notebook_figure(size + 1, size)
    averages = "" if run == 1 else f", averages over runs of {run:,}"
    error = np.sqrt(projection.law.squared_norm(0.0, 2 * projection.tau, excess=2 * projection.excess))
    title = (
        f"Distances between {n:,} rows{averages}\n"
        f"equal rows may look {np.sqrt(error):.4g} apart, by noise and projection alone"
    )
    charts.draw_heat_map(figure, title, values[np.ix_(order, order)], labels, "distance")
    return figure


def write_arrow(projection: PublishedRows, path: str | Path) -> None:
    """All squared distances as an Arrow file: a record for each user, with its name and its distances to all users."""
    with optional_import("Arrow files need pyarrow: pip install 'sketchstream[arrow]'"):
        import pyarrow as pa
    n = projection.spec.users.size
    names = pa.array([projection.user_name(place) for place in range(n)])
    schema = pa.schema([("user", names.type), ("squared_distances", pa.list_(pa.float64(), n))])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for start, block in Distances(projection).blocks(max(1, SEARCHED // n)):
            distances = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), n)
            writer.write_batch(pa.record_batch([names.slice(start, len(block)), distances], schema=schema))


def alike(values: Floats) -> Ints:
    """An order in which rows at small distances are neighbours: leaves of a tree of average linkage."""
    if len(values) < 3:
        return np.arange(len(values))
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    between = values.copy()
    np.fill_diagonal(between, 0.0)
    tree = linkage(squareform(between, checks=False), "average", optimal_ordering=len(values) <= MAX_NAMED_ROWS)
    return np.asarray(leaves_list(tree).astype(np.int64))
