"""All distances of a projection as a picture, and as a file.

In: a `PublishedRows`. Out: a heat map; an Arrow file with the whole distance matrix. Touches: that file.

The matrix is made block by block, so neither needs memory for all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import EstimateError, needing
from sketchstream.kinds.projection.reading.neighbours import Distances
from sketchstream.kinds.projection.reading.rows import PublishedRows
from sketchstream.pictures import charts
from sketchstream.pictures.numbers import item_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIXELS: Final = 512
"""Most rows of a picture; with more users, each row stands for a run of users."""
MAX_NAMED_ROWS: Final = 120
"""Most rows that have their names beside the picture."""
DISTANCES_AT_ONCE: Final = 1 << 24
"""Distances that are held at a time, at most."""


@dataclass(frozen=True)
class HeatMap:
    """The distances that a heat map draws.

    Args:
        values: (p, p) distances between rows, or between runs of rows on average: square roots of estimated squared
            distances, 0 for negative ones.
        order: (p,) the row, or the run of rows, at each place.
        error: standard error of the squared distance of two equal rows: what noise and projection make of nothing.
    """

    values: Floats
    order: Ints
    run: int
    error: float


def heat_map(projection: PublishedRows) -> HeatMap:
    """The distances of all rows, similar ones next to each other; of many users, averages over runs of them."""
    n = projection.spec.users.size
    if n < 2:
        raise EstimateError("a heat map needs at least two users, found one")
    run = -(-n // PIXELS)
    starts = np.arange(0, n, run)
    sums = np.empty((len(starts), len(starts)))
    step = max(run, DISTANCES_AT_ONCE // n // run * run)
    for start, block in Distances(projection).blocks(step):
        columns = np.add.reduceat(block, starts, axis=1)
        rows = np.add.reduceat(columns, np.arange(0, len(block), run), axis=0)
        sums[start // run : start // run + len(rows)] = rows
    sizes = np.diff([*starts.tolist(), n]).astype(float)
    pairs = np.outer(sizes, sizes)
    pairs[np.diag_indices_from(pairs)] = np.maximum(sizes * (sizes - 1), 1)  # a row does not form a pair with itself
    values = np.sqrt(np.maximum(sums / pairs, 0.0))
    order = alike(values)
    error = float(np.sqrt(projection.law.squared_norm(0.0, 2 * projection.tau, excess=2 * projection.excess)))
    return HeatMap(values[np.ix_(order, order)], order, run, error)


def draw_heatmap(projection: PublishedRows) -> Figure:
    """A heat map as a figure."""
    heat = heat_map(projection)
    names = None
    if heat.run == 1 and len(heat.order) <= MAX_NAMED_ROWS:
        names = [_name(projection.user_name(place)) for place in heat.order.tolist()]
    size = 4.5 + 0.075 * min(len(heat.order), MAX_NAMED_ROWS)
    figure = charts.notebook_figure(size + 1, size)
    each = "" if heat.run == 1 else f", averages over runs of {heat.run:,}"
    title = (
        f"Distances between {projection.spec.users.size:,} rows{each}\n"
        f"equal rows may look {np.sqrt(heat.error):.4g} apart, by noise and projection alone"
    )
    charts.draw_heat_map(figure, title, heat.values, names, "distance")
    return figure


def write_arrow(projection: PublishedRows, path: str | Path) -> None:
    """All squared distances as an Arrow file: a record for each user, with its name and its distances to all users."""
    with needing("Arrow files need pyarrow: pip install 'sketchstream[arrow]'"):
        import pyarrow as pa
    n = projection.spec.users.size
    names = pa.array([projection.user_name(place) for place in range(n)])
    schema = pa.schema([("user", names.type), ("squared_distances", pa.list_(pa.float64(), n))])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for start, block in Distances(projection).blocks(max(1, DISTANCES_AT_ONCE // n)):
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


def _name(item: Any) -> str:
    """A short label for a row."""
    text = item_name(item)
    return text if len(text) <= 12 else text[:11] + "…"
