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
from dataclasses import dataclass

import numpy as np

from sketchstream.kinds.profile.estimate.intervals.bands import Band
from sketchstream.kinds.profile.estimate.intervals.falling import WIDTHS, squares_of_a_ramp
from sketchstream.kinds.profile.estimate.linear.circle import Circle
from sketchstream.kinds.profile.estimate.observed import Floats
from sketchstream.kinds.profile.estimate.open_domain.collisions import (
    Level,
    Model,
    Part,
    Spread,
    linearised,
    merged,
    spreads,
    useful,
    window_spreads,
)

HALVINGS = 48
"""Steps in which a quantile is found: far below any rounding."""
GRIDS = ((1.1, 3), (1.5, 7), (math.inf, 15))
"""How many numbers of items are looked at, by the ratio of the largest to the least within two standard deviations."""


@dataclass(frozen=True)
class Linear:
    """Linear estimates of one part, linearised at a model.

    Args:
        values: estimates of Lam_t (index 0: of the number of items), and of the items with a count of at least 1+t.
        variances: variances of both.
        joints: covariances of both with the number of items.
        first: (L,) weights of the levels for the number of items.
    """

    values: tuple[Floats, Floats]
    variances: tuple[Floats, Floats]
    joints: tuple[Floats, Floats]
    first: Floats


def about(levels: Sequence[Level], model: Model) -> Linear:
    """Estimates linearised at a model, with their errors under it."""
    shares = np.array([level.share for level in levels])
    each = [spreads(level, model) for level in levels]
    seen = np.array([linearised(level, model) / level.share for level in levels])
    left = seen[:, :1] - np.cumsum(seen, axis=1) + seen[:, :1]  # items minus those up to each count
    left = np.concatenate([seen[:, :1], left[:, 1:]], axis=1)
    own = (model.numbers, model.tails[1:])
    weights, variances = _merged(each, shares, own)
    first = weights[1][:, :1]
    joints = []
    for weight, cross, items in zip(
        weights, ([e.cell_all for e in each], [e.tail_all for e in each]), own, strict=True
    ):  # fmt: skip
        joint = (weight * first * np.array(cross) / shares[:, None] ** 2).sum(axis=0)
        joints.append(joint + items * ((weight * first / shares[:, None]).sum(axis=0) - 1.0))
    values = ((weights[0] * seen).sum(axis=0), (weights[1] * left).sum(axis=0))
    return Linear(values, variances, (joints[0], joints[1]), first[:, 0])


def window_variances(levels: Sequence[Level], model: Model, last: int) -> dict[int, Floats]:
    """Variances under a model of the means of neighbouring k+ numbers, k = 1..last, by the first k; for each width."""
    shares = np.array([level.share for level in levels])
    out = {}
    for width in WIDTHS:
        size = last - width + 1
        if size < 1 or any(isinstance(level.estimator, Circle) for level in levels):
            break
        own = np.convolve(model.tails[1 : last + 1], squares_of_a_ramp(width), "valid")
        each = [window_spreads(level, model, width, own * level.share) for level in levels]
        out[width] = merged(np.array(each), shares, own)[1]
    return out


def _merged(
    each: Sequence[Spread], shares: Floats, own: tuple[Floats, Floats]
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Weights and variances of cells, and of k+ numbers."""
    cell_weight, cell = merged(np.array([e.cell for e in each]), shares, own[0])
    tail_weight, tail = merged(np.array([e.tail for e in each]), shares, own[1])
    return (cell_weight, tail_weight), (cell, tail)


@dataclass(frozen=True)
class Slices:
    """Conditional distributions of numbers, on a grid of numbers of items.

    Args:
        chance: (G,) probability of each number of items.
        value: (G, m) estimates given each number of items.
        deviation: (G, m) standard deviations of `value`.
    """

    chance: Floats
    value: Floats
    deviation: Floats

    def cut(self, first: int, last: int) -> Slices:
        """Numbers first..last-1."""
        return Slices(self.chance, self.value[:, first:last], self.deviation[:, first:last])

    def scaled(self, factor: float) -> Slices:
        """All numbers times a positive factor."""
        return Slices(self.chance, self.value * factor, self.deviation * factor)

    def quantile(self, z: float) -> Floats:
        """Quantiles at the probability that a standard normal number is below z. (m,)."""
        from scipy.special import ndtr

        each = self.value + z * self.deviation
        low, high = each.min(axis=0), each.max(axis=0)
        level, deviation = ndtr(z), np.maximum(self.deviation, 1e-12)
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            below = self.chance @ ndtr((middle - self.value) / deviation) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray((low + high) / 2.0)


def slices(part: Part, middle: Linear, limit: float) -> tuple[Slices, Slices]:
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
    each = []
    for z in roots:
        items = max(min(curve.at(-float(z)), max(limit, curve.value)), 1.0)
        null = _under(model, items, max(limit, items))
        own = middle if null is model else about(useful(part.every, items), null)
        each.append((own, (own.values[1][0] - items) / max(float(own.variances[1][0]), 1e-12)))

    def sliced(k: int) -> Slices:
        value = np.array([one.values[k] - one.joints[k] * gap for one, gap in each])
        rest = np.array([one.variances[k] - one.joints[k] ** 2 / max(one.variances[1][0], 1e-12) for one, _ in each])
        return Slices(chance / chance.sum(), value, np.sqrt(np.maximum(rest, 0.0)))

    return sliced(0), sliced(1)


def _under(model: Model, items: float, limit: float) -> Model:
    """Rescale a model to another number of items; no k+ number exceeds the largest total divided by k."""
    if model.items <= 0.0:
        return Model(np.where(np.arange(model.intensity.size) == 1, items, 0.0), 0.0)
    found = model if math.isclose(items, model.items, rel_tol=1e-9) else model.scaled(items / model.items)
    tails = found.tails[1:]
    most = limit / np.arange(1.0, tails.size + 1.0)
    if (tails <= most * (1.0 + 1e-9)).all():
        return found
    tails = np.minimum(tails, most)
    return Model(np.concatenate([[0.0], -np.diff(tails)]), float(tails[-1]))


@dataclass(frozen=True)
class Mixed(Band):
    """A band in which the numbers from `start` on have ends from the slices of parts.

    Sums of skewed intervals: Zou & Donner 2008.
    """

    parts: tuple[Slices, ...]
    start: int = 1

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals."""
        low, high = super().ends(z)
        whole = slice(self.start, self.start + self.parts[0].value.shape[1])
        if len(self.parts) == 1:
            low[whole], high[whole] = self.parts[0].quantile(-z), self.parts[0].quantile(z)
        else:
            least, middle, most = ([one.quantile(way) for one in self.parts] for way in (-z, 0.0, z))
            low[whole] = np.sum(middle, axis=0) - np.sqrt(np.square(np.subtract(middle, least)).sum(axis=0))
            high[whole] = np.sum(middle, axis=0) + np.sqrt(np.square(np.subtract(most, middle)).sum(axis=0))
        return low, high

    def at(self, k: int) -> Band:
        """The band of one number."""
        band, j = super().at(k), k - self.start
        if not 0 <= j < self.parts[0].value.shape[1]:
            return band
        return Mixed(band.low, band.high, band.variance, tuple(one.cut(j, j + 1) for one in self.parts), 0)

    def scaled(self, factor: float) -> Band:
        """The band of the numbers times a positive factor."""
        band = super().scaled(factor)
        parts = tuple(one.scaled(factor) for one in self.parts)
        return Mixed(band.low, band.high, band.variance, parts, self.start)
