"""The result of every estimator: one law of counts over the slots, including counts beyond the largest resolved one.

In: shares at counts. Out: a frozen `Fit`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate.observed import UNBOUNDED, Cells


@dataclass(frozen=True)
class Fit:
    """A law of counts.

    Args:
        fractions: (n+1,) shares at counts 0..n; may be negative for unbiased methods.
        heavy: (k,) ascending counts above n (middles of wide cells need not be whole). Where the total is lower, or
            higher, than shares allow, one count stands for all of them so that the total is kept: it can be any number.
        heavy_shares: (k,) shares at those counts.
    """

    fractions: Floats
    heavy: Floats
    heavy_shares: Floats

    @property
    def above(self) -> float:
        """Share of the slots above n."""
        return float(self.heavy_shares.sum())


def tails(fit: Fit, population: float) -> Floats:
    """(n+2,) items with a count of at least 0..n+1."""
    above = fit.above * population
    counts = fit.fractions * population
    return np.concatenate([np.cumsum(counts[::-1])[::-1] + above, [above]])


def with_tails(fit: Fit, tails: Floats, items: float) -> Fit:
    """The law with other numbers of items from each count on, `tails`, as shares of `items`. tails: (n+2,)."""
    fractions = -np.diff(tails) / items
    fractions[0] = 1.0 - tails[1] / items
    have, above = fit.above, float(tails[-1]) / items
    if have > 0.0:
        return Fit(fractions, fit.heavy, fit.heavy_shares * (above / have))
    heavy = np.full(int(above > 0.0), tails.size - 1.0)
    return Fit(fractions, heavy, np.full(heavy.size, above))


def middles(cells: Cells) -> Floats:
    """(B,) typical count of each cell; for a pooled cell its finite end."""
    low = np.where(cells.low <= -UNBOUNDED, cells.high, cells.low).astype(np.float64)
    high = np.where(cells.high >= UNBOUNDED, cells.low, cells.high).astype(np.float64)
    return (low + high) / 2.0


def spread_cells(cells: Cells, low: int, high: int) -> Floats:
    """(high-low+1,) share of each count in low..high, wide cells spread evenly; negative bins count as they are."""
    out = np.zeros(high - low + 1)
    inside = (cells.high >= low) & (cells.low <= high)
    for start, end, slots in zip(cells.low[inside], cells.high[inside], cells.slots[inside], strict=True):
        width = 1 if end >= UNBOUNDED else end - start + 1
        first, last = max(start, low), min(start + width - 1, high)
        if last >= first:
            out[first - low : last - low + 1] += slots / width / cells.d
    return out


def shares_above(cells: Cells, n: int, share: float) -> tuple[Floats, Floats]:
    """Counts above n and their shares, adding up to `share`, in proportion to the cells above n."""
    if share == 0.0:
        return np.zeros(0), np.zeros(0)
    inside = cells.high > n
    counts = np.maximum(middles(cells)[inside], n + 1.0)
    weights = np.maximum(cells.slots[inside], 0.0)
    if counts.size == 0 or weights.sum() <= 0.0:
        return np.array([n + 1.0]), np.array([share])
    keep = weights > 0.0
    return counts[keep], share * weights[keep] / weights.sum()


def mix_fits(fits: Sequence[Fit], slots: Sequence[float]) -> Fit:
    """Average the laws of parts, weighted by their slots."""
    if len(fits) == 1:
        return fits[0]
    weights = np.array(slots, dtype=np.float64) / sum(slots)
    heavy = np.concatenate([fit.heavy for fit in fits])
    shares = np.concatenate([w * fit.heavy_shares for w, fit in zip(weights, fits, strict=True)])
    order = np.argsort(heavy, kind="stable")
    fractions = np.sum([w * fit.fractions for w, fit in zip(weights, fits, strict=True)], axis=0)
    return Fit(fractions, heavy[order], shares[order])
