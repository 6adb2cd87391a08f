"""Number of distinct items: each candidate is tested against the empty slots of all levels jointly.

In: levels and the shape of the law of counts. Out: a `Curve`: its root is the estimate, its ends are intervals
at any level. Touches: nothing.
Source: docs/theory/profile.md 6 (variances and weights); test inversion: `docs/theory/reconstruction.md`.

With D items, a share exp(-l), l = D s / m, of the slots of a level with m slots and a share s of the items is empty.
The difference of the observed share from that, in standard deviations under D, falls as D grows. Nothing here
takes the logarithm of a noisy number, and no level is excluded because of its data: for a D that crowds it, a
level's weight vanishes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate.open_domain.laws import Level, VarianceModel
from sketchstream.kinds.profile.estimate.uncertainty.bands import SHOWS

CROWDED = 1.75
"""Items per slot beyond which little is to be learned from a level (docs/theory/profile.md 6)."""
HOPELESS = 8.0
"""Items per slot at which the emptiest level says nothing any more."""
DEAD = 60.0
"""Items per slot at which a level's weight is set to zero."""
MIN_ITEMS = 1e-3
"""Least number of items that is looked at, but for none: without noise a step would be nothing."""
LOADS = np.concatenate([[0.0], np.geomspace(0.02, HOPELESS, 14)])


@dataclass(frozen=True)
class Curve:
    """Signed distance of the data from each number of items, in standard deviations.

    Args:
        items: (G,) ascending, from 0.
        distance: (G,) falling.
        hidden: whether items hardly show above noise, so that the estimate is drawn towards none: its error does not
            go with those of linear estimates.
    """

    items: Floats
    distance: Floats
    hidden: bool = False

    @cached_property
    def value(self) -> float:
        """The number of items at distance 0."""
        return self.at(0.0)

    def ends(self, z: float) -> tuple[float, float]:
        """Smallest and largest number within distance z; infinity if there is no largest."""
        return self.at(z), (math.inf if self.distance[-1] > -z else self.at(-z))

    def at(self, distance: float) -> float:
        """The number of items at a distance."""
        return float(np.interp(-distance, -self.distance, self.items))


def curve(levels: Sequence[Level], shape: VarianceModel) -> Curve:
    """The curve of one part; `shape` determines how the noise of the empty slots depends on the load."""
    tester = _Tester(levels, shape)
    most = HOPELESS * max(level.m / level.share for level in levels)
    step = tester.deviation(np.zeros(1))[0] / 4.0
    rough = np.concatenate([[0.0], np.geomspace(np.clip(step, MIN_ITEMS, most / 2.0), most, 96)])
    tester.calibrate(tester.root(most))
    low = tester.root(most)
    near = low + tester.deviation(np.array([low]))[0] * np.linspace(-8.0, 8.0, 129)
    items = np.unique(np.concatenate([rough, near[(near > 0.0) & (near < most)], [low]]))
    return Curve(items, np.minimum.accumulate(tester.distance(items)))


def is_overcrowded(levels: Sequence[Level], curve: Curve) -> bool:
    """Whether every level is surely crowded, so that the number of items is unknown."""
    low, high = curve.ends(SHOWS)
    return math.isinf(high) and low > CROWDED * max(level.m / level.share for level in levels)


def weights(levels: Sequence[Level], model: VarianceModel) -> Floats:
    """(L,) weights of the levels' estimates, scaled up by their shares, for the number of items of a model."""
    load, weight, _ = _Tester(levels, model)._weights(np.array([model.items]))
    return np.asarray((weight * np.exp(-load))[0])


class _Tester:
    """Distances of the data of levels from numbers of items."""

    def __init__(self, levels: Sequence[Level], shape: VarianceModel) -> None:
        self.m = np.array([level.m for level in levels])
        self.share = np.array([level.share for level in levels])
        self.empty = np.array([level.law[0] for level in levels])
        tables: dict[float, Floats] = {}
        for level in levels:
            if level.m not in tables:
                tables[level.m] = _noise(level, shape)
        self.noise = [tables[level.m] for level in levels]
        self.levels = levels

    def root(self, most: float) -> float:
        """The number of items at distance 0, at most `most`."""
        low, high = 0.0, most
        for _ in range(7):  # each a sixty-fourth of the rest
            items = np.linspace(low, high, 65)
            above = max(int((self.distance(items[1:]) > 0.0).cumprod().sum()), 0)
            low, high = float(items[above]), float(items[min(above + 1, 64)])
        return low

    def calibrate(self, items: float) -> None:
        """Scale the noise to the observed counters, for the levels that are informative at this number of items."""
        load, weight, _ = self._weights(np.array([items]))
        pull = (weight[0] * self.m / self.share) ** 2
        full = -np.expm1(-load[0])
        model = [np.interp(one, -np.expm1(-LOADS), noise) for one, noise in zip(full, self.noise, strict=True)]
        seen = np.array([level.estimator.tails(1).variance[1] for level in self.levels])
        factor = float(pull @ seen) / max(float(pull @ np.array(model)), 1e-300)
        if factor >= 0.25:
            self.noise = [factor * one for one in self.noise]

    def _weights(self, items: Floats) -> tuple[Floats, Floats, Floats]:
        """Loads, weights of the levels (G, L), standard deviation of the weighted estimate (G,)."""
        load = items[:, None] * self.share / self.m
        with np.errstate(over="ignore"):
            rise = np.exp(np.minimum(load, DEAD))
        full = -np.expm1(-load)
        noise = np.stack([np.interp(full[:, j], -np.expm1(-LOADS), one) for j, one in enumerate(self.noise)], axis=1)
        own = (self.m**2 * noise * rise**2 + self.m * np.maximum(rise - 1.0 - load, 0.0)) / self.share**2
        weight = np.where(load < DEAD, 1.0 / np.maximum(own + items[:, None] / self.share, 1e-12), 0.0)
        weight /= weight.sum(axis=1, keepdims=True)
        split = np.maximum((weight**2 / self.share).sum(axis=1) - 1.0, 0.0)
        return load, weight * rise, np.sqrt((weight**2 * own).sum(axis=1) + items * split)

    def deviation(self, items: Floats) -> Floats:
        """Standard deviation of the estimate, for each number of items."""
        return self._weights(items)[2]

    def distance(self, items: Floats) -> Floats:
        """Distance from each number of items, in standard deviations: positive if more items were seen."""
        load, weight, deviation = self._weights(items)
        gap = np.exp(-load) - self.empty
        return np.asarray((weight * gap * self.m / self.share).sum(axis=1) / np.maximum(deviation, 1e-9))


def _noise(level: Level, shape: VarianceModel) -> Floats:
    """Noise variance of the share of empty slots at LOADS items per slot."""
    out = np.empty(LOADS.size)
    items = max(shape.items, 1e-300)
    empty = np.zeros(shape.intensity.size)
    empty[0] = 1.0
    for i, load in enumerate(LOADS):
        law = shape.slot_law(items, load)
        out[i] = level.estimator.joint(empty[None, :], empty, law)[0][0]
    return out
