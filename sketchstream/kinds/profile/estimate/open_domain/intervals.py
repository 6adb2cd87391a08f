"""Intervals of open domains: noise, collisions and the random split into levels.

In: parts with their models. Out: `Uncertainty`. Touches: nothing.
Source: docs/theory/profile.md 5 and 6; skewed ends, ratios and sums of parts: `docs/theory/reconstruction.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kinds.profile.estimate.intervals import bounds
from sketchstream.kinds.profile.estimate.intervals.bounds import Entropy, Region, Uncertainty
from sketchstream.kinds.profile.estimate.linear.line import Line
from sketchstream.kinds.profile.estimate.observed import UNBOUNDED
from sketchstream.kinds.profile.estimate.open_domain import events as opened_events
from sketchstream.kinds.profile.estimate.open_domain.cardinality import Curve
from sketchstream.kinds.profile.estimate.open_domain.collisions import ObservedPart
from sketchstream.kinds.profile.estimate.open_domain.interval_ends import Limited, Mean, Quotient, Reach
from sketchstream.kinds.profile.estimate.open_domain.slices import (
    Linear,
    Mixed,
    Slices,
    linearise_at,
    slices,
    window_variances,
)
from sketchstream.kinds.profile.estimate.uncertainty.bands import SHOWS, Band, Ends, blend
from sketchstream.kinds.profile.estimate.uncertainty.monotone_tails import MonotoneTails, ratios, variances_over_parts

COVERS = (
    "the noise (of the counters and of the publication), the collisions of items in slots and their random split into "
    "levels"
)
AVERAGE = "; histograms with similar numbers of items a slot were added and are read as one"
BOUNDED = "; where the slots set no upper limit to the number of items, that limit is the total weight"
UNKNOWN = "; the slots are so crowded or so noisy that they set no upper limit to the number of items: ends are unknown"


@dataclass(frozen=True)
class Known:
    """Estimates of one part.

    Args:
        linear: linear estimates with their errors at the part's model.
        pull: decrease of the number of items with one more empty slot (as a share), for each level.
        last: largest k whose k+ number lies between two estimates.
    """

    linear: Linear
    pull: list[float]
    last: int

    def tails(self) -> tuple[Band, Ints, Ints]:
        """K+ numbers for k = 1..last between the estimates on both sides, and the indices of these."""
        least, most = self.linear.around(np.arange(1, self.last + 1))
        value, variance = self.linear.values[1], self.linear.variances[1]
        return Band(value[least], value[most], np.maximum(variance[least], variance[most])), least, most

    def cells(self) -> tuple[Band, Floats, Ints, Ints]:
        """Items at counts 0..last-1 (0: all items): between nothing and the items of the cell where it is wide.

        Returns: the band, covariances with the number of items, indices of the estimates on both sides (one beyond the
        last one: nothing).
        """
        value, variance, joint = self.linear.values[0], self.linear.variances[0], self.linear.joints[0]
        edges = np.append(0, self.linear.edges)
        most = np.searchsorted(edges, np.arange(self.last), side="right") - 1
        single = np.append(np.diff(edges) == 1, False)[most]
        least = np.where(single, most, value.size)
        low = np.where(single, value[most], 0.0)
        return Band(low, np.where(single, low, np.maximum(value[most], 0.0)), variance[most]), joint[most], least, most


def of_part(part: ObservedPart, n: int) -> Known:
    """Estimates of one part, with errors at its model, for counts up to n."""
    linear = linearise_at(part.levels, part.model)
    factors = {id(level): w / level.share for level, w in zip(part.levels, linear.first, strict=linear.joint is None)}
    pull = [
        factors.get(id(level), 0.0) * math.exp(min(part.model.items * level.share / level.m, 50.0))
        for level in part.every
    ]
    return Known(linear, pull, min(n + 1, int(linear.edges[-1])))


def bands(parts: Sequence[ObservedPart], n: int) -> Uncertainty:
    """Bands of every number of an open domain, summed over the parts."""
    known = [of_part(part, n) for part in parts]
    last = min(one.last for one in known)
    known = [replace(one, last=last) for one in known]
    items = sum(float(one.linear.values[1][0]) for one in known)
    items_variance = sum(float(one.linear.variances[1][0]) for one in known)
    wrapped = parts[0].observed.unit == "item"
    if wrapped:
        events, (joint, joint_once) = opened_events.totals_of_items(parts, [one.linear.joint for one in known])
    else:
        events, joint, joint_once = opened_events.totals_of_events(parts), _with_events(parts, known), 0.0
    total, noise = events.total, events.covariance[0, 0]
    heavy = _heavy_tails(parts, n)
    sliced = [
        slices(part, one.linear, _upper(limit)) for part, one, limit in zip(parts, known, events.limits, strict=True)
    ]
    reach = _reach_numbers(
        known, [one[1] for one in sliced], heavy, n, tuple(part.curve for part in parts), events.limit
    )
    correlation = float(np.clip(joint / math.sqrt(max(noise * items_variance, 1e-12)), -0.99, 0.99))
    if any(part.curve.hidden for part in parts):
        correlation = min(correlation, 0.0)
    longer, joint_all = _longer(known, [one[0] for one in sliced], heavy, n)
    single, single_variance = float(longer.low[1]), float(longer.variance[1])
    whole = reach.low.size - 1

    def shared(band: Band, joint: Floats) -> Quotient:
        ratio = band.low / max(items, 1.0)
        return Quotient(ratio, band.high / max(items, 1.0), band.variance, joint, max(items, 1.0), items_variance)

    once = np.stack([np.full(len(events.centres), single), events.centres[:, 0]], axis=1)
    scalars: dict[str, Ends] = {
        "total": total,
        "mean": Mean(total, reach, correlation),
        "one_hit_ratio": shared(longer.at(1), joint_all[1:2]),
        "coverage": Region(once, np.array([[single_variance, joint_once], [joint_once, noise]]), _complement),
        "entropy": Entropy(events.centres, events.covariance, reach.items),
    }
    added = any(part.observed.slots != part.observed.hashed_into for part in parts)
    unbounded = any(math.isinf(part.curve.ends(SHOWS)[1]) for part in parts)
    unknown = "" if not unbounded else UNKNOWN if wrapped else BOUNDED

    def limited(ends: Ends, size: int = 1) -> Ends:
        return Limited(ends, reach, size) if wrapped else ends

    return Uncertainty(
        limited(shared(longer, joint_all), n + 1),
        limited(longer, n + 1),
        MonotoneTails(reach, _windows(parts, known, n), limited=True),
        limited(shared(Band(reach.low[whole:], reach.high[whole:], reach.variance[whole:]), np.zeros(1))),
        {name: limited(ends) for name, ends in scalars.items()},
        COVERS + (AVERAGE if added else "") + unknown + events.hiding,
    )


def _windows(parts: Sequence[ObservedPart], known: Sequence[Known], n: int) -> dict[int, Floats]:
    """Relative deviations of the means of neighbouring k+ numbers, within the counts of the recursion."""
    last = min(parts[0].model.intensity.size, n + 1)
    windows = variances_over_parts(
        [window_variances(part.levels, part.model, last) for part in parts], [1.0] * len(parts)
    )
    return ratios(np.sum([one.linear.variances[1][:last] for one in known], axis=0), windows)


def _complement(part: Floats, whole: Floats) -> Floats:
    """1 - part / whole."""
    return 1.0 - bounds.share(part, whole)


def _with_events(parts: Sequence[ObservedPart], known: Sequence[Known]) -> float:
    """Covariance of the total weight with the number of items: both contain the noise of the same slots."""
    out = 0.0
    for part, part_known in zip(parts, known, strict=True):
        for level, pull in zip(part.every, part_known.pull, strict=True):
            line = level.estimator
            assert isinstance(line, Line)
            wide = np.flatnonzero((line.whole.low != line.whole.high) & (line.whole.low > -UNBOUNDED))
            cut = int(wide[0]) if wide.size else line.whole.low.size
            both = line.moments((bounds.present, bounds.identity), cut).covariance
            out += level.m**2 * pull * float(both[0, 1])
    return out


def _upper(limit: Band | None) -> float:
    """Upper end of a bound on the number of items."""
    return math.inf if limit is None else float(limit.ends(SHOWS)[1][0])


def _heavy_tails(parts: Sequence[ObservedPart], n: int) -> Band:
    """Slots with counts of at least 0..n+1 in the levels that are not crowded, scaled to all items."""
    out = []
    for part in parts:
        seen = sum(level.share for level in part.clear)
        out += [level.estimator.tails(n).scaled(level.m / seen) for level in part.clear]
    return _add_bands(out)


def _longer(known: Sequence[Known], each: Sequence[Slices], heavy: Band, n: int) -> tuple[Mixed, Floats]:
    """Counts up to n: first from the estimates, then from the slots; covariances with the number of items.

    Index 0 is 0: absent items are unknown.
    """
    bands, joints, least, most = zip(*(one.cells() for one in known), strict=True)
    added, top = _add_bands(bands), known[0].last - 1
    low, high, variance, joint = (np.zeros(n + 1) for _ in range(4))
    for whole, own in ((low, added.low), (high, added.high), (variance, added.variance), (joint, np.sum(joints, 0))):
        whole[1 : top + 1] = own[1:]
    t = np.arange(top + 1, n + 1)
    high[top + 1 :] = np.maximum(heavy.high[t] - heavy.low[t + 1], 0.0)
    variance[top + 1 :] = heavy.variance[t] + heavy.variance[t + 1]
    sliced = [replace(one.with_nothing(), least=a[1:], most=b[1:]) for one, a, b in zip(each, least, most, strict=True)]
    return Mixed(low, high, variance, tuple(sliced)), joint


def _reach_numbers(
    known: Sequence[Known],
    each: Sequence[Slices],
    heavy: Band,
    n: int,
    curves: tuple[Curve, ...],
    most_items: Band | None,
) -> Reach:
    """K+ numbers for k = 0..n+1."""
    bands, least, most = zip(*(one.tails() for one in known), strict=True)
    added, top = _add_bands(bands), known[0].last + 1

    def joined(light: Floats, rest: Floats) -> Floats:
        return np.concatenate([light[:1], light, rest[top:]])

    sliced = [replace(one, least=a, most=b) for one, a, b in zip(each, least, most, strict=True)]
    return Reach(
        joined(added.low, heavy.low),
        joined(added.high, heavy.high),
        joined(added.variance, heavy.variance),
        tuple(sliced),
        1,
        curves,
        most_items,
    )


def _add_bands(parts: Sequence[Band]) -> Band:
    """Bands of sums of independent estimates."""
    return blend(parts, [1.0] * len(parts))
