"""Intervals of k+ numbers that fall with k, as the numbers themselves do.

In: a band of unbiased k+ numbers, and relative deviations of the means of neighbours. Out: `MonotoneTails`, whose ends
never rise. Touches: nothing. Source: Barlow, Bartholomew, Bremner & Brunk 1972 (isotonic regression); windows and
constants: `docs/theory/reconstruction.md`, section 1.

A k+ number is at most the mean of those at and below k, and at least the mean of those at and above it. Undoing the
noise of counters makes errors of neighbours negatively correlated, so such means vary far less than each number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate.uncertainty.bands import Band, decreasing
from sketchstream.kinds.profile.estimate.uncertainty.small_domains import Occurred

WIDTHS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""How many neighbours a window may hold."""
WINDOW_ERROR_FACTOR = 1.15
"""Factor of the error of a window: the one with the least seen error is chosen, so its true error is larger."""
FALL_WEIGHT = 0.5
"""Part of what k+ numbers fall within a window, as seen, that counts against it when one is chosen."""
SINGLE_ERROR_FACTOR = 0.9
"""Factor of the error of a number by itself, when it is compared with windows."""
CHOSEN = 1.9599639845400536
"""Standard deviations (95%) at which windows are chosen for all levels, so that their intervals are nested."""


def window_means(x: Floats, width: int) -> Floats:
    """Means of `width` neighbours. (m,) -> (m - width + 1,)."""
    sums = np.convolve(x, np.ones(width), "valid")
    return np.asarray(sums / width)


def squared_score_weights(width: int) -> Floats:
    """(width,) weights of the k+ numbers of a window in the sum of b^2, if b is the score of their mean."""
    return np.asarray((2.0 * np.arange(width, 0, -1) - 1.0) / width**2)


def ratios(alone: Floats, windows: Mapping[int, Floats]) -> dict[int, Floats]:
    """Standard deviation of each window's mean over the mean standard deviation of its members; at most 1.

    Args:
        alone: (K,) variances of k+ numbers from k = 1 on.
        windows: (K - width + 1,) variances of the means by the first k, for each width.
    """
    out = {}
    deviation = np.sqrt(np.maximum(alone, 0.0))
    for width, variance in windows.items():
        usual = window_means(deviation[: variance.size + width - 1], width)
        ratio = np.sqrt(np.maximum(variance, 0.0)) / np.maximum(usual, 1e-300)
        out[width] = np.where(usual > 0.0, np.minimum(ratio, 1.0), 1.0)
    return out


class Tails(Protocol):
    """K+ numbers for k = 0, 1, .. with intervals of any level."""

    def ends_and_ways(self, z: float) -> tuple[Floats, Floats, Floats]:
        """Ends of the intervals, and half the width of each single number's interval."""

    def at(self, k: int) -> Band:
        """The band of one number."""

    def moved(self, by: float) -> Tails:
        """These numbers with `by` more items of a closed domain that are known to be absent."""


@dataclass(frozen=True)
class MonotoneTails:
    """K+ numbers for k = 0, 1, .. with ends that never rise from k = 1 on.

    Args:
        band: band of each single number.
        ratios: deviation of a window's mean over that of a single number, for each window width, indexed by the
            window's first k, from k = 1 on. Windows contain resolved counts only.
        limited: whether the upper ends are limited by that of the number of all items.
        occurred: small closed domains: the number of items that occurred, from its exact law; it limits k+ numbers.
    """

    band: Band
    ratios: Mapping[int, Floats]
    limited: bool = False
    occurred: Occurred | None = None

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals, not clipped to possible numbers."""
        low, high, _ = self.ends_and_ways(z)
        return low, high

    def at(self, k: int) -> Band:
        """The band of one number."""
        return self.band.at(k)

    def moved(self, by: float) -> MonotoneTails:
        """These numbers with `by` more items of a closed domain that are known to be absent."""
        step = np.zeros(self.band.low.size)
        step[0] = by
        return replace(self, band=Band(self.band.low + step, self.band.high + step, self.band.variance))

    def ends_and_ways(self, z: float) -> tuple[Floats, Floats, Floats]:
        """Ends of the intervals, and half the width of each single number's interval."""
        low, high = self.band.ends(z)
        usual = (low, high) if z == CHOSEN else self.band.ends(CHOSEN)
        usual = usual if np.isfinite(usual[1]).all() else (low, high)
        most, usual_most = high[1], usual[1][1]
        if self.limited and not np.isfinite(most):  # no number of items is too large, and so no k+ number
            low[1:] = decreasing(low[1:])
            return low, np.full_like(high, np.inf), np.maximum(self.band.low - low, 0.0)
        way = np.maximum(high - low, 0.0) / 2.0
        if self.limited and usual_most > 0.0:
            way = np.minimum(way, usual_most)
        first = 1 if self.occurred is None else 2  # the exact ends take no part in the others' fit
        least, last = self.band.low[first:], self.band.high[first:]
        chosen = [end[first:] for end in usual]
        known = {width: ratio[first - 1 :] for width, ratio in self.ratios.items()}
        low[first:], high[first:] = monotone_ends(least, last, low[first:], high[first:], chosen, known)
        if self.occurred is not None:
            low[1], high[1] = self.occurred.ends(z)
            low[2:], high[2:] = np.minimum(low[2:], low[1]), np.minimum(high[2:], high[1])
        if self.limited:
            low, high = np.minimum(low, most), np.minimum(high, most)
        return low, high, way


def monotone_ends(
    least: Floats, most: Floats, low: Floats, high: Floats, usual: Sequence[Floats], known: Mapping[int, Floats]
) -> tuple[Floats, Floats]:
    """Ends from the best windows, made non-increasing. All (K,).

    Args:
        least: unbiased numbers, at the lower ends of their brackets.
        most: unbiased numbers, at the upper ends.
        low: lower ends of the single numbers' intervals.
        high: upper ends of the single numbers' intervals.
        usual: ends of those intervals at the level at which windows are chosen.
        known: relative deviations of the windows' means, as `ratios` gives them.
    """
    down, up = least - low, high - most
    usual_down, usual_up = least - usual[0], usual[1] - most
    half = np.maximum((usual[1] - usual[0]) / 2.0, 1e-9)
    # a non-increasing fit, from which follows how far the truth is likely to fall within a window
    guide = np.maximum(decreasing((least + most) / 2.0, 1.0 / half**2), 0.0)
    lower, upper = low.copy(), high.copy()
    # windows are chosen by errors at the usual level, so that every level has the same windows
    cost_down, cost_up = SINGLE_ERROR_FACTOR * usual_down, SINGLE_ERROR_FACTOR * usual_up
    for width, ratio in known.items():
        size = ratio.size
        if not size:
            continue
        reach = size + width - 1
        error = WINDOW_ERROR_FACTOR * ratio
        middle = window_means(guide[:reach], width)
        first, last = slice(0, size), slice(width - 1, reach)
        # a window from k on has a mean of at most the number at k: less its error, it is a lower end
        cost = FALL_WEIGHT * (guide[first] - middle) + error * window_means(usual_down[:reach], width)
        way = error * window_means(down[:reach], width)
        better = cost < cost_down[first]
        lower[first] = np.where(better, window_means(least[:reach], width) - way, lower[first])
        cost_down[first] = np.where(better, cost, cost_down[first])
        # a window up to k has a mean of at least the number at k: with its error, it is an upper end
        cost = FALL_WEIGHT * (middle - guide[last]) + error * window_means(usual_up[:reach], width)
        way = error * window_means(up[:reach], width)
        better = cost < cost_up[last]
        upper[last] = np.where(better, window_means(most[:reach], width) + way, upper[last])
        cost_up[last] = np.where(better, cost, cost_up[last])
    lower, upper = decreasing(lower), decreasing(upper)
    meeting = (lower + upper) / 2.0  # at small levels ends may cross: then both are their middle
    return np.minimum(lower, meeting), np.maximum(upper, meeting)


MIN_END_DISTANCE = 0.05
"""How far an estimate stays from either end at least, as a part of half the width its number has by itself."""


def widen_to_contain(value: Floats, low: Floats, high: Floats, way: Floats, most: float) -> tuple[Floats, Floats]:
    """Widen ends to contain the estimates, within 0 and `most`, so that they still never rise. All (K,)."""
    room = MIN_END_DISTANCE * way
    low = np.minimum(np.clip(low, 0.0, most), np.maximum(value - room, 0.0))
    high = np.maximum(np.clip(high, 0.0, most), np.minimum(value + room, most))
    return np.minimum.accumulate(low), np.maximum.accumulate(high[::-1])[::-1]


def clip_inside(value: Floats, low: Floats, high: Floats, way: Floats, most: float) -> Floats:
    """Move non-increasing estimates so far inside their ends that `holding` need not widen the ends. All (K,)."""
    room = MIN_END_DISTANCE * way
    low, high = np.clip(low, 0.0, most), np.clip(high, 0.0, most)
    least = np.where(low > 0.0, np.minimum(low + room, most), 0.0)
    last = np.where(high < most, np.maximum(high - room, 0.0), most)
    least, last = np.maximum.accumulate(least[::-1])[::-1], np.minimum.accumulate(last)
    return np.clip(value, least, np.maximum(least, last))


def variances_over_parts(parts: Sequence[Mapping[int, Floats]], weights: Sequence[float]) -> dict[int, Floats]:
    """Variances of the windows' weighted sums over independent parts, up to the shortest of them."""
    out = {}
    for width in WIDTHS:
        size = min(part[width].size if width in part else 0 for part in parts)
        if size:
            out[width] = np.sum([w * w * part[width][:size] for part, w in zip(parts, weights, strict=True)], axis=0)
    return out
