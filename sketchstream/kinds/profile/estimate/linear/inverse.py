"""The exact inverse of the noise: unbiased shares, count by count, which may be negative or above 1.

They add up to 1. Clipping would make them biased, so it is left to `Profile`, for the numbers derived from them.

In: one level of an `Observed`. Out: a `Fit`. Touches: nothing.
Source: docs/theory/profile.md 2; Dwork et al., ICS 2010 (randomized response); Ghazi et al., NeurIPS 2022.
"""

from __future__ import annotations

import numpy as np

from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.estimate import fit as fits
from sketchstream.kinds.profile.estimate.linear.circle import Circle
from sketchstream.kinds.profile.estimate.linear.line import Line
from sketchstream.kinds.profile.estimate.observed import Observed


def reconstruct(observed: Observed, n: int) -> fits.Fit:
    """Unbiased shares of one closed domain; beyond the unit range wide bins are spread evenly."""
    cells = observed.cells()
    if observed.unit == "item":
        circle = Circle(observed)
        share = circle.shares(circle.resolved).low
        counts = np.arange(n + 1, share.size, dtype=np.float64)
        return fits.Fit(share[: n + 1], counts, share[n + 1 :])
    line = Line(observed)
    if cells.unit_range[0] > -line.k:
        raise EstimateError(f"inverse needs {line.k} unit bins below zero for {line.k} layers; use likelihood")
    if observed.form == "state":
        # the plain stencil, cell by cell (docs/theory/profile.md 2); its part outside 0..n completes the sum
        k = line.k
        fractions = np.convolve(cells.dense(-k, n + k)[1] / cells.d, line.taps, "valid")
        return fits.Fit(fractions, *fits.shares_above(cells, n, 1.0 - float(fractions.sum())))
    fractions = line.shares(n).low
    top = min(n, line.resolved)
    if n > top:
        fractions[top + 1 :] = fits.spread_cells(cells, top + 1, n)
    return fits.Fit(fractions, *fits.shares_above(cells, n, 1.0 - float(fractions.sum())))
