"""From what was published to a likelihood, whatever the unit, the layers and the parts.

In: observed parts of one closed domain. Out: a `Likelihood` and its grid; laws on the grid made into a `Fit`.
Touches: nothing. Source: profile specification 5.4; notes on the likelihood 1.7.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sketchstream.errors import EstimateError
from sketchstream.estimate import grid as grids
from sketchstream.estimate import kernels
from sketchstream.estimate.fit import Fit
from sketchstream.estimate.grid import Grid
from sketchstream.estimate.observed import Floats, Observed
from sketchstream.estimate.problem import Likelihood, Markov, Seen

FORMS = {"state": kernels.EXACT, "cumulative": kernels.CUMULATIVE, "bins": kernels.BINS}


def likelihood(parts: Sequence[Observed], n: int) -> tuple[Likelihood, Grid]:
    """The likelihood of all parts together, and the grid on which laws live."""
    part = parts[0]
    if len(parts) == 1 and part.unit == "event" and len(part.epsilons) == 1:
        cells = part.cells()
        grid = grids.of_state(cells, part.epsilons[0]) if part.form == "state" else grids.of_release(cells)
        seen = Seen(FORMS[part.form], grid.h, float(cells.d), part.q, float(part.parts))
        return Markov(grid, part.epsilons[0], seen), grid
    msg = f"likelihood of several layers or parts is not there yet (n = {n})"
    raise EstimateError(msg)


def spread_out(parts: Sequence[Observed], grid: Grid, f: Floats, n: int) -> Fit:
    """The law on the grid as shares at counts 0..n and above.

    Inside a wide cell the share goes where the counters were seen (states, where the cell is wide against the noise),
    or evenly.
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
    """Counters seen in a wide cell and their weights, if the cell is wide against the noise."""
    empty = np.zeros(0)
    if len(states) != 1 or width * min(states[0].epsilons) < 4.0:
        return None, empty
    edges = states[0].edges
    first, last = np.searchsorted(edges, [start, start + width])
    weight = states[0].values[0, first:last].astype(np.float64)
    if weight.sum() <= 0.0:
        return None, empty
    return edges[first:last].astype(np.float64), weight / weight.sum()
