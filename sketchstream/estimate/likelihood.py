"""The default estimator: nonparametric maximum likelihood by EM, finished by the posterior mean.

In: observed parts of one closed domain. Out: a `Fit`. Touches: nothing.
Source: profile specification 5.4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sketchstream.errors import EstimateError
from sketchstream.estimate import grid as grids
from sketchstream.estimate import kernels
from sketchstream.estimate.fit import Fit
from sketchstream.estimate.observed import Floats, Observed
from sketchstream.estimate.problem import Markov, Seen


def reconstruct(parts: Sequence[Observed], n: int) -> Fit:
    """Plain EM with the last step."""
    part = parts[0]
    if len(parts) > 1 or len(part.epsilons) > 1 or part.unit == "item":
        msg = "likelihood is for one layer of unit event"
        raise EstimateError(msg)
    cells = part.cells()
    if part.form == "state":
        grid = grids.of_state(cells, part.epsilons[0])
        seen = Seen(kernels.EXACT, grid.h, float(cells.d), 0.0, 0.0)
    else:
        grid = grids.of_release(cells)
        form = kernels.CUMULATIVE if part.form == "cumulative" else kernels.BINS
        seen = Seen(form, grid.h, float(cells.d), part.q, float(part.parts))
    problem = Markov(grid, part.epsilons[0], seen)
    f = np.full(problem.m, 1.0 / problem.m)
    for _ in range(300):
        f = problem.step(f)
    return spread_out(problem, f, n)


def spread_out(problem: Markov, f: Floats, n: int) -> Fit:
    """The law on the grid as shares at counts 0..n and above."""
    out, heavy, shares = np.zeros(n + 1), [], []
    for low, width, share in zip(problem.grid.low, problem.grid.width, f, strict=True):
        last = low + width - 1
        if low <= n:
            out[low : min(last, n) + 1] += share / width
        if last > n:
            heavy.append((max(low, n + 1) + last) / 2.0)
            shares.append(share * (last - max(low, n + 1) + 1) / width)
    return Fit(out, np.array(heavy), np.array(shares))
