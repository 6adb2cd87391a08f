"""What is known about each number whatever the method: unbiased estimates, their variances, brackets.

In: the observed parts of one closed domain, and the fit. Out: `Uncertainty`, from which a profile draws intervals at
any level. Touches: nothing. Source: profile specification 5.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sketchstream.estimate.fit import Fit
from sketchstream.estimate.linear import Band, Circle, Line, Score, blend, expected, linear, settled
from sketchstream.estimate.observed import Floats, Observed

SCALARS = ("total", "mean", "entropy", "one_hit_ratio", "coverage")


@dataclass(frozen=True)
class Uncertainty:
    """Bands of every number, in the units that the profile reports.

    Args:
        fractions: (n+1,) of the shares at counts 0..n.
        counts: (n+1,) of the numbers of items at counts 0..n.
        tails: (n+2,) of the numbers of items with a count of at least 0..n+1.
        above: of the share of items above n.
        scalars: of total, mean, entropy, one_hit_ratio, coverage.
        covers: one sentence that says what the intervals cover.
    """

    fractions: Band
    counts: Band
    tails: Band
    above: Band
    scalars: dict[str, Band]
    covers: str


def xlogx(t: Floats) -> Floats:
    """T ln t with 0 at 0."""
    return np.asarray(t * np.log(np.maximum(t, 1.0)))


def present(t: Floats) -> Floats:
    """1 for counts of at least one."""
    return np.asarray((t >= 0.5).astype(np.float64))


def once(t: Floats) -> Floats:
    """1 for a count of one."""
    return np.asarray((np.abs(t - 1.0) < 0.5).astype(np.float64))


def identity(t: Floats) -> Floats:
    """The count itself."""
    return np.asarray(t, dtype=np.float64)


def closed(parts: Sequence[Observed], fit: Fit, n: int) -> Uncertainty:
    """Bands for one closed domain, from any number of parts that were not added together."""
    lines = [linear(part) for part in parts]
    models = [expected(part, 0, fit.fractions, fit.heavy, np.maximum(fit.heavy_shares, 0.0)) for part in parts]
    d = float(sum(part.slots[0] for part in parts))
    weights = [part.slots[0] / d for part in parts]

    def known(draw: Callable[[Line | Circle], Band]) -> Band:
        own = [draw(line) for line in lines]
        return blend([settled(b, draw(m)) for b, m in zip(own, models, strict=True)], weights)

    shares, tails = known(lambda line: line.shares(n)), known(lambda line: line.tails(n))
    unit = all(not isinstance(line, Line) or line.resolved > n for line in lines)

    def functional(b: Score, typical: Score | None = None) -> Band:
        return known(lambda line: line.functional(b, typical, beyond=float(1 << 30)))

    scalars = derived(functional, d)
    scalars["total"] = scalars["total"].scaled(d)
    covers = (
        "the noise (of the counters and of the publication); the slots and what they hold are taken as they are"
        + ("" if unit else "; where bins are wide, also every way the counts may lie within them")
    )
    above = Band(tails.low[-1:], tails.high[-1:], tails.variance[-1:])
    return Uncertainty(shares, shares.scaled(d), tails.scaled(d), above, scalars, covers)


def derived(functional: Callable[[Score, Score | None], Band], d: float) -> dict[str, Band]:
    """Total and ratios by the delta method, per slot (total) or as they are (ratios).

    `functional` gives the band of (1/d) sum b(h); d is the number of slots.
    """
    total = functional(identity, cell_mean)
    items = functional(present, None)
    first = functional(once, None)
    spread = functional(xlogx, lambda t: xlogx(cell_mean(t)))
    n_events = max(_middle(total), 1.0 / d)
    n_items = max(_middle(items), 1.0 / d)
    n_spread = _middle(spread)
    mean = n_events / n_items
    hit = _middle(first) / n_items
    rare = _middle(first) / n_events
    surprise = math.log(n_events * d) - n_spread / n_events

    def ratio(b: Score, scale: float, centre: float, low: float, high: float) -> Band:
        variance = functional(b, None).variance / scale**2
        return Band(np.array([min(low, centre)]), np.array([max(high, centre)]), variance)

    low_n, high_n = max(float(total.low[0]), 1.0 / d), max(float(total.high[0]), 1.0 / d)
    return {
        "total": total,
        "mean": ratio(lambda t: t - mean * present(t), n_items, mean, low_n / n_items, high_n / n_items),
        "one_hit_ratio": ratio(lambda t: once(t) - hit * present(t), n_items, hit, hit, hit),
        "coverage": ratio(
            lambda t: rare * t - once(t),
            n_events,
            1.0 - rare,
            1.0 - max(_middle(first), 0.0) / low_n,
            1.0 - max(_middle(first), 0.0) / high_n,
        ),
        "entropy": ratio(
            lambda t: t * (1.0 + n_spread / n_events) - xlogx(t),
            n_events,
            surprise,
            *_entropy_bracket(total, spread, surprise, d),
        ),
    }


def cell_mean(start: Floats) -> Floats:
    """Typical count in the wide cell that starts at `start` (the edges' rule: width start // 8)."""
    return np.asarray(start + np.maximum(start // 8.0 - 1.0, 0.0) / 2.0)


def _entropy_bracket(total: Band, spread: Band, centre: float, d: float) -> tuple[float, float]:
    """Entropy when all wide bins stand at one end, or at the other."""
    values = [centre]
    for events, part in ((total.low[0], spread.low[0]), (total.high[0], spread.high[0])):
        if events > 0:
            values.append(math.log(events * d) - part / events)
    return min(values), max(values)


def _middle(band: Band) -> float:
    """The middle of a band of one number."""
    return float(band.low[0] + band.high[0]) / 2.0
