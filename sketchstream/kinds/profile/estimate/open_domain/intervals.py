"""Intervals of open domains: noise, collisions and the random split into levels.

In: parts with their models. Out: `Uncertainty`. Touches: nothing.
Source: docs/theory/profile.md 5 and 6; skewed ends, ratios and sums of parts: `docs/theory/reconstruction.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sketchstream.kinds.profile.estimate.intervals import bounds
from sketchstream.kinds.profile.estimate.intervals.bands import SHOWS, Band, Ends
from sketchstream.kinds.profile.estimate.intervals.bounds import Region, Uncertainty
from sketchstream.kinds.profile.estimate.intervals.falling import Falling, ratios, together
from sketchstream.kinds.profile.estimate.linear.line import Line
from sketchstream.kinds.profile.estimate.observed import FAR, Floats
from sketchstream.kinds.profile.estimate.open_domain import events as opened_events
from sketchstream.kinds.profile.estimate.open_domain.cardinality import Curve
from sketchstream.kinds.profile.estimate.open_domain.collisions import Part
from sketchstream.kinds.profile.estimate.open_domain.interval_ends import Entropy, Mean, Quotient, Reach
from sketchstream.kinds.profile.estimate.open_domain.slices import (
    Linear,
    Mixed,
    Slices,
    about,
    slices,
    window_variances,
)

COVERS = (
    "the noise (of the counters and of the publication), the collisions of items in slots and their random split into "
    "levels"
)
AVERAGE = "; histograms with similar numbers of items a slot were added and are read as one"
BOUNDED = "; where the slots set no upper limit to the number of items, that limit is "


@dataclass(frozen=True)
class Known:
    """Bands of one part.

    Args:
        cells: bands of Lam_t; index 0: of the number of items.
        tails: bands of the number of items with a count of at least 1+t.
        linear: linear estimates that the bands are computed from.
        pull: for each level, decrease of the number of items with one more empty slot (as a share).
    """

    cells: Band
    tails: Band
    linear: Linear
    pull: list[float]


def of_part(part: Part) -> Known:
    """Bands of the numbers of one part, with errors computed at its estimates."""
    found = about(part.levels, part.model)
    cells, tails = (Band(value, value, own) for value, own in zip(found.values, found.variances, strict=True))
    factors = {id(level): w / level.share for level, w in zip(part.levels, found.first, strict=True)}
    pull = [
        factors.get(id(level), 0.0) * math.exp(min(part.model.items * level.share / level.m, 50.0))
        for level in part.every
    ]
    return Known(cells, tails, found, pull)


def bands(found: Sequence[Part], n: int) -> Uncertainty:
    """Bands of every number of an open domain, summed over the parts."""
    known = [of_part(part) for part in found]
    cells, tails = _added([one.cells for one in known]), _added([one.tails for one in known])
    cell_all = np.sum([one.linear.joints[0] for one in known], axis=0)
    items, items_variance = float(tails.low[0]), float(tails.variance[0])
    wrapped = found[0].observed.unit == "item"
    events = opened_events.wrapped(found) if wrapped else opened_events.unwrapped(found)
    total, noise = events.total, events.covariance[0, 0]
    heavy = _heavy_tails(found, n)
    sliced = [
        slices(part, one.linear, _upper(limit)) for part, one, limit in zip(found, known, events.limits, strict=True)
    ]
    cell_slices, tail_slices = zip(*sliced, strict=True)
    reach = _reach(tails, tail_slices, heavy, n, tuple(part.curve for part in found), events.limit)
    joint = opened_events.with_items(found) if wrapped else _with_events(found, known)
    correlation = float(np.clip(joint / math.sqrt(max(noise * items_variance, 1e-12)), -0.99, 0.99))
    longer = _longer(cells, cell_slices, heavy, n)
    joint_all = np.zeros(n + 1)
    joint_all[: min(cell_all.size, n + 1)] = cell_all[: n + 1]
    whole = reach.low.size - 1

    def shared(band: Band, joint: Floats) -> Quotient:
        ratio = band.low / max(items, 1.0)
        return Quotient(ratio, band.high / max(items, 1.0), band.variance, joint, max(items, 1.0), items_variance)

    once = np.stack([np.full(len(events.centres), float(cells.low[1])), events.centres[:, 0]], axis=1)
    scalars: dict[str, Ends] = {
        "total": total,
        "mean": Mean(total, reach, correlation),
        "one_hit_ratio": shared(longer.at(1), joint_all[1:2]),
        "coverage": Region(once, np.diag([float(cells.variance[1]), noise]), _complement),
        "entropy": Entropy(events.centres, events.covariance, reach),
    }
    bound = "the total weight" if not wrapped else "that at which the emptiest level would be full"
    added = any(part.observed.slots != part.observed.hashed_into for part in found)
    unbounded = any(math.isinf(part.curve.ends(SHOWS)[1]) for part in found)
    return Uncertainty(
        shared(longer, joint_all),
        longer,
        Falling(reach, _windows(found, known, n), limited=True),
        shared(Band(reach.low[whole:], reach.high[whole:], reach.variance[whole:]), np.zeros(1)),
        scalars,
        COVERS + (AVERAGE if added else "") + (BOUNDED + bound if unbounded else "") + events.hiding,
    )


def _windows(found: Sequence[Part], known: Sequence[Known], n: int) -> dict[int, Floats]:
    """Relative deviations of the means of neighbouring k+ numbers, within the counts of the recursion."""
    last = min(found[0].model.intensity.size, n + 1)
    windows = together([window_variances(part.levels, part.model, last) for part in found], [1.0] * len(found))
    return ratios(np.sum([one.linear.variances[1][:last] for one in known], axis=0), windows)


def _complement(part: Floats, whole: Floats) -> Floats:
    """1 - part / whole."""
    return 1.0 - bounds.share(part, whole)


def _with_events(found: Sequence[Part], known: Sequence[Known]) -> float:
    """Covariance of the total weight with the number of items: both contain the noise of the same slots."""
    out = 0.0
    for part, one in zip(found, known, strict=True):
        for level, pull in zip(part.every, one.pull, strict=True):
            line = level.estimator
            assert isinstance(line, Line)
            wide = np.flatnonzero((line.whole.low != line.whole.high) & (line.whole.low > -FAR))
            cut = int(wide[0]) if wide.size else line.whole.low.size
            both = line.moments((bounds.present, bounds.identity), cut).covariance
            out += level.m**2 * pull * float(both[0, 1])
    return out


def _upper(limit: Band | None) -> float:
    """Upper end of a bound on the number of items."""
    return math.inf if limit is None else float(limit.ends(SHOWS)[1][0])


def _heavy_tails(found: Sequence[Part], n: int) -> Band:
    """Slots with counts of at least 0..n+1 in the levels that are not crowded, scaled to all items."""
    out = []
    for part in found:
        seen = sum(level.share for level in part.clear)
        out += [level.estimator.tails(n).scaled(level.m / seen) for level in part.clear]
    return _added(out)


def _longer(band: Band, each: Sequence[Slices], heavy: Band, n: int) -> Mixed:
    """Cells up to n: first from the recursion, then from the slots. Index 0 is 0: absent items are unknown."""
    top = min(band.low.size - 1, n)
    low, high, variance = np.zeros(n + 1), np.zeros(n + 1), np.zeros(n + 1)
    for whole, light in ((low, band.low), (high, band.high), (variance, band.variance)):
        whole[1 : top + 1] = light[1 : top + 1]
    t = np.arange(top + 1, n + 1)
    high[top + 1 :] = np.maximum(heavy.high[t] - heavy.low[t + 1], 0.0)
    variance[top + 1 :] = heavy.variance[t] + heavy.variance[t + 1]
    return Mixed(low, high, variance, tuple(one.cut(1, top + 1) for one in each))


def _reach(
    tails: Band, each: Sequence[Slices], heavy: Band, n: int, curves: tuple[Curve, ...], most: Band | None
) -> Reach:
    """K+ numbers for k = 0..n+1."""
    top = min(tails.low.size + 1, n + 2)

    def joined(light: Floats, rest: Floats) -> Floats:
        return np.concatenate([light[:1], light, rest[top:]])[: n + 2]

    return Reach(
        joined(tails.low, heavy.low),
        joined(tails.high, heavy.high),
        joined(tails.variance, heavy.variance),
        tuple(one.cut(0, n + 1) for one in each),
        1,
        curves,
        most,
    )


def _added(parts: Sequence[Band]) -> Band:
    """Bands of sums of independent estimates."""
    return Band(
        np.sum([b.low for b in parts], axis=0),
        np.sum([b.high for b in parts], axis=0),
        np.sum([b.variance for b in parts], axis=0),
    )
