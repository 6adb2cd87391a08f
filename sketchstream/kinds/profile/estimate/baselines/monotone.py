"""Isotonic regression of unbiased k+ shares: the best cheap estimator by earth mover's distance.

In: one level of an `Observed`. Out: a `Fit`. Touches: nothing.
Source: Ghazi, Kamath, Kumar & Manurangsi, "Anonymized Histograms in Intermediate Privacy Models", NeurIPS 2022;
docs/theory/profile.md 3.
"""

from __future__ import annotations

import numpy as np

from sketchstream.kinds.profile.estimate import fit as fits
from sketchstream.kinds.profile.estimate.linear.circle import Circle
from sketchstream.kinds.profile.estimate.linear.line import Line
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.estimate.uncertainty.bands import decreasing


def reconstruct(observed: Observed, n: int) -> fits.Fit:
    """Monotone k+ shares of one closed domain, differenced."""
    if observed.unit == "item":
        assert observed.modulus is not None
        last = observed.modulus - 1
        tails = decreasing(Circle(observed).tails(last).low[1:]).clip(0.0, 1.0)
        fractions = -np.diff(np.concatenate([[1.0], tails]))
        return fits.Fit(fractions[: n + 1], np.arange(n + 1, last + 1, dtype=np.float64), fractions[n + 1 :])
    line = Line(observed)
    cells = line.cells
    resolved = line.resolved
    if observed.form == "state":
        top = int(min(max(int(cells.high[-1]), 1) + line.k, max(4 * n, 1 << 22)))
    else:
        top = int(resolved)
    raw = line.tails(top - 1).low[1:]
    if observed.form == "state":
        raw[0] = _first_tail_share(line)
    edges = np.arange(1, top + 1, dtype=np.float64)
    if (cells.low > top).any():
        if observed.form == "state":
            edge, beyond = cells.low, np.cumsum(cells.slots[::-1])[::-1] / cells.d
        else:  # without far bins that hold only noise
            edge, beyond, _ = Line(observed, cells=cells).edge_tails
        edges = np.concatenate([edges, edge[edge > top].astype(np.float64)])
        raw = np.concatenate([raw, beyond[edge > top]])
    tails = decreasing(raw).clip(0.0, 1.0)
    mass = -np.diff(np.concatenate([[1.0], tails, [0.0]]))
    fractions, counts, shares = np.zeros(n + 1), [], []
    low = np.concatenate([[0.0], edges])
    high = np.concatenate([edges - 1.0, edges[-1:]])
    single = (low == high) & (low <= n)
    fractions[low[single].astype(np.int64)] = mass[single]
    for start, end, share in zip(low[~single], high[~single], mass[~single], strict=True):
        width = end - start + 1.0
        if start <= n:
            last = min(int(end), n)
            fractions[int(start) : last + 1] += share / width
            if end > n:
                counts.append((n + 1.0 + end) / 2.0)
                shares.append(share * (end - n) / width)
        else:
            counts.append((start + end) / 2.0)
            shares.append(share)
    heavy = np.array(shares)
    keep = heavy > 0.0
    return fits.Fit(fractions, np.array(counts)[keep] if keep.any() else np.zeros(0), heavy[keep])


def _first_tail_share(line: Line) -> float:
    """The 1+ share by the plain stencil, with T_0 for the pooled bins (vector in docs/theory/profile.md 9)."""
    k = line.k
    taps = line.taps
    tails = [float(line.cells.slots[line.cells.low >= 1 + j].sum()) for j in range(-k, k + 1)]
    return float(np.dot(taps, tails)) / line.d
