"""Conditional estimates of an open domain's numbers given each number of items, and their mixture.

In: parts with their models. Out: `Slices`, and bands with ends from them. Touches: nothing.
Source: Hannig, Iyer, Lai & Lee 2016 (generalized fiducial inference); Zou & Donner 2008 (sums);
`docs/theory/reconstruction.md`, section 4.

The information of a slot about an item depends on the load, and so do all weights and errors. So a number is not
estimated once, with errors at the estimated number of items, but given each possible number of items, with the part
that depends on that number removed. The curve of `cardinality` gives the probability of each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kinds.profile.estimate.linear.circle import Circle
from sketchstream.kinds.profile.estimate.open_domain import residues
from sketchstream.kinds.profile.estimate.open_domain.cardinality import CROWDED
from sketchstream.kinds.profile.estimate.open_domain.collisions import (
    ObservedPart,
    Spread,
    covariance_with_items,
    linearise,
    merge_levels,
    spreads,
    useful,
    wide_estimates,
    window_spreads,
)
from sketchstream.kinds.profile.estimate.open_domain.laws import Level, VarianceModel
from sketchstream.kinds.profile.estimate.uncertainty.bands import Band, critical, decreasing
from sketchstream.kinds.profile.estimate.uncertainty.monotone_tails import WIDTHS, squared_score_weights

HALVINGS = 48
"""Steps in which a quantile is found: far below any rounding."""
MAX_BRACKET = 1e6
"""Width of a bracket, in standard deviations, from which on more makes no difference."""
GRIDS = ((1.1, 3), (1.5, 7), (math.inf, 15))
"""How many numbers of items are looked at, by the ratio of the largest to the least within two standard deviations."""


@dataclass(frozen=True)
class Linear:
    """Linear estimates of one part, linearised at a model.

    Args:
        values: estimates of Lam_t (index 0: of the number of items), then of the items in each wide cell; and of the
            items with a count of at least 1+t, then of those from each further edge on.
        variances: variances of both.
        joints: covariances of both with the number of items.
        first: (L,) weights of the levels for the number of items; empty for residues.
        further: (E,) edges beyond the counts of the recursion and the one after them.
        joint: all estimates of residues, with their covariance.
    """

    values: tuple[Floats, Floats]
    variances: tuple[Floats, Floats]
    joints: tuple[Floats, Floats]
    first: Floats
    further: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    joint: residues.Joint | None = None

    @property
    def edges(self) -> Ints:
        """Counts from which on the items of each k+ estimate are."""
        single = self.values[1].size - self.further.size
        return np.concatenate([np.arange(1, single + 1), self.further])

    def around(self, k: Ints) -> tuple[Ints, Ints]:
        """K+ estimates that each k+ number is at least, and at most; k up to the last edge."""
        edges = self.edges
        return np.searchsorted(edges, k), np.searchsorted(edges, k, side="right") - 1


def linearise_at(levels: Sequence[Level], model: VarianceModel) -> Linear:
    """Estimates linearised at a model, with their errors under it."""
    if residues.exact(levels):
        return _of_joint(residues.Residues(levels).estimate(model.intensity))
    shares = np.array([level.share for level in levels])
    each = [spreads(level, model) for level in levels]
    seen = np.array([linearise(level, model) / level.share for level in levels])
    left = seen[:, :1] - np.cumsum(seen, axis=1) + seen[:, :1]  # items minus those up to each count
    left = np.concatenate([seen[:, :1], left[:, 1:]], axis=1)
    own = (model.numbers, model.tails[1:])
    weights, variances = _merge_levels(each, shares, own)
    first = weights[1][:, :1]
    joints = []
    for weight, cross, items in zip(
        weights, ([e.cell_all for e in each], [e.tail_all for e in each]), own, strict=True
    ):  # fmt: skip
        joints.append(covariance_with_items(weight, first, np.array(cross), shares, items))
    values = ((weights[0] * seen).sum(axis=0), (weights[1] * left).sum(axis=0))
    if model.heavy is None:
        return Linear(values, variances, (joints[0], joints[1]), first[:, 0])
    both = wide_estimates(levels, model, first[:, 0])

    def longer(cells_and_tails: Sequence[Floats], name: str) -> tuple[Floats, Floats]:
        cells, tails = (np.append(x, getattr(one, name)) for x, one in zip(cells_and_tails, both, strict=True))
        return cells, tails

    return Linear(
        longer(values, "values"), longer(variances, "variances"), longer(joints, "joints"), first[:, 0],
        further=model.heavy.wide.further,
    )  # fmt: skip


def _of_joint(joint: residues.Joint) -> Linear:
    """The numbers of residues, from the joint estimates at counts 1..p-1, without items above p-1."""

    def from_above(x: Floats, axis: int = 0) -> Floats:
        return np.flip(np.cumsum(np.flip(x, axis), axis), axis)

    value, covariance = joint.value, joint.covariance
    with_all = covariance.sum(axis=1)
    tails, variance = from_above(value), np.diag(from_above(from_above(covariance), 1))
    tail_with_all = from_above(with_all)
    return Linear(
        (np.append(tails[0], value), np.append(tails, 0.0)),
        (np.append(variance[0], np.diag(covariance)), np.append(variance, 0.0)),
        (np.append(tail_with_all[0], with_all), np.append(tail_with_all, 0.0)),
        np.zeros(0),
        joint=joint,
    )


def window_variances(levels: Sequence[Level], model: VarianceModel, last: int) -> dict[int, Floats]:
    """Variances under a model of the means of neighbouring k+ numbers, k = 1..last, by the first k; for each width."""
    shares = np.array([level.share for level in levels])
    out = {}
    for width in WIDTHS:
        size = last - width + 1
        if size < 1 or any(isinstance(level.estimator, Circle) for level in levels):
            break
        own = np.convolve(model.tails[1 : last + 1], squared_score_weights(width), "valid")
        each = [window_spreads(level, model, width, own * level.share) for level in levels]
        out[width] = merge_levels(np.array(each), shares, own)[1]
    return out


def _merge_levels(
    each: Sequence[Spread], shares: Floats, own: tuple[Floats, Floats]
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Weights and variances of cells, and of k+ numbers."""
    cell_weight, cell = merge_levels(np.array([e.cell for e in each]), shares, own[0])
    tail_weight, tail = merge_levels(np.array([e.tail for e in each]), shares, own[1])
    return (cell_weight, tail_weight), (cell, tail)


@dataclass(frozen=True)
class Slices:
    """Conditional distributions of estimates, on a grid of numbers of items, and the brackets between them.

    Args:
        chance: (G,) probability of each number of items.
        value: (G, r) estimates given each number of items.
        deviation: (G, r) standard deviations of `value`.
        least: (m,) estimate that each number is at least; by default each number has its own.
        most: (m,) the estimate that it is at most.
    """

    chance: Floats
    value: Floats
    deviation: Floats
    least: Ints | None = None
    most: Ints | None = None

    @property
    def brackets(self) -> tuple[Ints, Ints]:
        """(m,) and (m,) estimates on both sides of each number."""
        own = np.arange(self.value.shape[1])
        return own if self.least is None else self.least, own if self.most is None else self.most

    def cut(self, first: int, last: int) -> Slices:
        """The slices of the numbers first..last-1."""
        least, most = self.brackets
        return replace(self, least=least[first:last], most=most[first:last])

    def with_nothing(self) -> Slices:
        """One more estimate, of a number that is 0."""
        none = np.zeros((self.chance.size, 1))
        return replace(self, value=np.append(self.value, none, 1), deviation=np.append(self.deviation, none, 1))

    def scaled(self, factor: float) -> Slices:
        """All numbers times a positive factor."""
        return replace(self, value=self.value * factor, deviation=self.deviation * factor)

    def quantile(self, z: float | Floats, of: Ints | None = None) -> Floats:
        """Quantiles of estimates (default: all) at the probability that a standard normal number is below z. (m,)."""
        from scipy.special import ndtr

        value, deviation = (self.value, self.deviation) if of is None else (self.value[:, of], self.deviation[:, of])
        each = value + z * deviation
        low, high = each.min(axis=0), each.max(axis=0)
        level, deviation = ndtr(z), np.maximum(deviation, 1e-12)
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            below = self.chance @ ndtr((middle - value) / deviation) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray((low + high) / 2.0)

    def ends(self, z: float) -> Floats:
        """(4, m) lower end, median below, median above, upper end of every number; wide brackets take a smaller z."""
        pairs, where = np.unique(np.stack(self.brackets), axis=1, return_inverse=True)
        least, most = pairs
        below, above = self.quantile(0.0, least), self.quantile(0.0, most)
        deviation = np.maximum(self.chance @ self.deviation, 1e-12)
        width = np.maximum(above - below, 0.0) / np.minimum(deviation[least], deviation[most])
        way = np.where(least == most, z, critical(z, np.minimum(width, MAX_BRACKET)))
        # noise may put the estimate that a number is at least above the one that it is at most
        low = np.minimum(self.quantile(-way, least), self.quantile(-way, most))
        high = np.maximum(self.quantile(way, least), self.quantile(way, most))
        every = np.stack([low, np.minimum(below, above), np.maximum(below, above), high])
        return np.asarray(every[:, where.ravel()])


def slices(part: ObservedPart, middle: Linear, limit: float) -> tuple[Slices, Slices]:
    """Slices of Lam_t (index 0: unused) and of the items with a count of at least 1+t.

    Args:
        part: observations and estimates of one part.
        middle: estimates linearised at its model.
        limit: upper bound on the number of items and on their total.
    """
    curve, model = part.curve, part.model
    low, high = curve.ends(2.0)
    size = next(size for ratio, size in GRIDS if high <= ratio * low or math.isinf(ratio))
    roots, chance = np.polynomial.hermite_e.hermegauss(size)
    crowded = max(curve.value, CROWDED * max(level.m / level.share for level in part.every))

    def given(items: float) -> list[tuple[Floats, Floats]]:
        """Values of the cells and of the k+ numbers given a number of items, and their deviations."""
        null = _with_number_of_items(model, middle, items, max(limit, items))
        own = middle if null is model else linearise_at(_informative(part, items), null)
        gap = (own.values[1][0] - items) / max(float(own.variances[1][0]), 1e-12)
        pairs = []
        for value, variance, joint in zip(own.values, own.variances, own.joints, strict=True):
            rest = variance - joint**2 / max(float(own.variances[1][0]), 1e-12)
            pairs.append((value - joint * gap, np.sqrt(np.maximum(rest, 0.0))))
        if model.heavy is not None and items > crowded:
            # slots with many items say nothing of large counts, which hardly hang on how many small ones there are
            single = model.intensity.size
            pairs = [
                (np.append(x[:single], far_x[single:]), np.append(y[:single], far_y[single:]))
                for (x, y), (far_x, far_y) in zip(pairs, given(crowded), strict=True)
            ]
        return pairs

    each = [given(max(min(curve.at(-float(z)), max(limit, curve.value)), 1.0)) for z in roots]
    cells, tails = (
        Slices(chance / chance.sum(), *(np.array(one) for one in zip(*found, strict=True)))
        for found in zip(*each, strict=True)
    )
    return cells, tails


def _informative(part: ObservedPart, items: float) -> list[Level]:
    """The levels that are informative at this number of items; with residues all, as least squares weigh them."""
    return part.every if residues.exact(part.every) else useful(part.every, items)


def moved_to(items: float, model: VarianceModel, linear: Linear) -> VarianceModel:
    """The law of counts that goes with another number of items.

    Each k+ number moves with the number of items as its linear estimate does: k+ numbers of large counts are known far
    better than the number of items, and hardly move.
    """
    if model.items <= 0.0:
        return replace(model, intensity=np.where(np.arange(model.intensity.size) == 1, items, 0.0), beyond=0.0)
    if math.isclose(items, model.items, rel_tol=1e-9):
        return model
    pull = (linear.joints[1] / max(float(linear.variances[1][0]), 1e-12)).clip(0.0, 1.0)
    pull[0] = 1.0
    tails = decreasing(model.known_tails + decreasing(pull) * (items - model.items)).clip(0.0, items)
    return model.with_tails(np.append(items, tails[1:]))


def _with_number_of_items(model: VarianceModel, linear: Linear, items: float, limit: float) -> VarianceModel:
    """The law with another number of items; no k+ number exceeds the largest total divided by k."""
    if linear.joint is None or model.items <= 0.0:
        moved = moved_to(items, model, linear)
    else:
        moved = model if math.isclose(items, model.items, rel_tol=1e-9) else model.scaled(items / model.items)
    tails, most = moved.known_tails, limit / linear.edges
    return moved if (tails <= most * (1.0 + 1e-9)).all() else moved.with_tails(np.minimum(tails, most))


@dataclass(frozen=True)
class Mixed(Band):
    """A band in which the numbers from `start` on have ends from the slices of parts.

    Sums of skewed intervals: Zou & Donner 2008.
    """

    parts: tuple[Slices, ...]
    start: int = 1

    @property
    def sliced(self) -> int:
        """How many numbers have ends from slices."""
        return int(self.parts[0].brackets[0].size)

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals."""
        low, high = super().ends(z)
        whole = slice(self.start, self.start + self.sliced)
        least, below, above, most = np.moveaxis(np.stack([part.ends(z) for part in self.parts]), 1, 0)
        if len(self.parts) == 1:
            low[whole], high[whole] = least[0], most[0]
        else:
            low[whole] = below.sum(axis=0) - np.sqrt(np.square(below - least).sum(axis=0))
            high[whole] = above.sum(axis=0) + np.sqrt(np.square(most - above).sum(axis=0))
        return low, high

    def at(self, k: int) -> Band:
        """The band of one number."""
        band, j = super().at(k), k - self.start
        if not 0 <= j < self.sliced:
            return band
        return Mixed(band.low, band.high, band.variance, tuple(part.cut(j, j + 1) for part in self.parts), 0)

    def scaled(self, factor: float) -> Band:
        """The band of the numbers times a positive factor."""
        band = super().scaled(factor)
        parts = tuple(part.scaled(factor) for part in self.parts)
        return Mixed(band.low, band.high, band.variance, parts, self.start)
