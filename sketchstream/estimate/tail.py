"""Large counts that noise hides: where sums over counts end, and how much may lie beyond.

In: published k+ shares at the edges of wide bins, and what is known of the counts below. Out: `Tail`: its
horizon, and what may lie beyond. Touches: nothing. Source: `docs/theory/reconstruction.md`, section 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sketchstream.estimate.bands import SHOWS, Hidden, decreasing
from sketchstream.estimate.observed import Floats, Ints
from sketchstream.kernels import kernel

RARE = 0.025
"""Expected items at which the continuation of a tail ends."""
FLATTEST = 0.01
"""Least slope of a tail on log scales."""
FIRM = 6.0
"""A tail is continued from the last k+ share whose upper end is so many times that of noise alone, too."""
POWER = 3.0
"""Standard deviations by which a window of thresholds is to tell s slots from none."""
MOST = 10_000
"""Slots beyond the horizon whose counts are limited one by one."""


@dataclass(frozen=True)
class Tail:
    """K+ shares where counts are large.

    Args:
        d: slots. single: whether thresholds have noise of their own each (form cumulative), so that many add up.
        edge: (m,) positive edges. above: (m,) published shares at or above them. noise: (m,) their variances.
        below: (r,) unbiased k+ shares at 1..r, where every count is resolved. spread: (r,) their variances.
        clear: index of the first edge at which next to no noise comes from the resolved counts. blur: how far noise
            moves a counter, at most.
    """

    d: float
    single: bool
    edge: Ints
    above: Floats
    noise: Floats
    below: Floats
    spread: Floats
    clear: int
    blur: float

    @property
    def quiet(self) -> int:
        """Index of the first clear edge whose k+ share does not show above the noise; m if all do."""
        shows = decreasing(self.above[self.clear :]) > SHOWS * np.sqrt(self.noise[self.clear :])
        return self.clear + (shows.size if shows.all() else int(np.argmin(shows)))

    @cached_property
    def upper(self) -> Floats:
        """Upper ends of the k+ shares from the first clear edge on."""
        own = np.sqrt(self.noise[self.clear :])
        return np.asarray(np.maximum(decreasing(self.above[self.clear :]), 0.0) + SHOWS * own)

    def most(self, at: int) -> float:
        """Upper end of the k+ share at an edge; 0 beyond the last."""
        return float(self.upper[at - self.clear]) if self.clear <= at < self.edge.size else 0.0

    def hidden(self, at: int) -> Hidden | None:
        """What may lie at or beyond an edge; None if nothing is taken to be there.

        If anything shows, the tail goes on like a power law, until it holds next to no item; or as far as thresholds
        beyond leave room, if that is less. If nothing does, the same, unless the k+ shares below are likely (one
        standard deviation) to fall faster than 1/k on the way there: then the mean does not hang on the tail, and what
        lies beyond thins out as the counters before the edge do; bins just before it say whether there are any.
        """
        if not self.clear <= at < self.edge.size:
            return None
        deviation = np.sqrt(self.noise[self.clear : at + 1])
        upper = self.upper[: deviation.size]
        shows = self.above[self.clear] > SHOWS * deviation[0]
        if not shows and self._slope(at, float(upper[-1]), 1.0, 1.0) >= 1.0:
            return None if self.single else self._thinned(at)
        found = [self._continued(at, at, float(upper[-1]))]
        firm = np.flatnonzero(upper >= FIRM * SHOWS * deviation)
        if firm.size:
            found.append(self._continued(at, self.clear + int(firm[-1]), float(upper[firm[-1]])))
        if self.single:
            found.append(self._room(at, float(upper[-1])))
        least = min(found, key=lambda one: one.events)
        return least if least.events > 0.0 else None

    def _thinned(self, at: int) -> Hidden | None:
        """What lies beyond an edge if counters go on to thin out as they do in the half before it, exponentially.

        A k+ share adds up the noise of all bins above, single bins do not: these may show where it does not. They
        are taken one standard deviation higher.
        """
        start = float(self.edge[at])
        first, middle = (int(np.searchsorted(self.edge, part * start)) for part in (0.5, 0.75))
        if not first < middle < at:
            return None
        ends = self.edge[[first, middle, at]].astype(np.float64)
        density = -np.diff(self.above[[first, middle, at]]) / np.diff(ends)
        noise = math.sqrt((at - middle) * float(self.noise[-1])) / float(ends[2] - ends[1])
        if density[1] <= SHOWS * noise:
            return None
        centre = (ends[1:] + ends[:-1]) / 2.0
        rate = max(math.log(max(density[0] / density[1], 1.0)) / float(centre[1] - centre[0]), 1.0 / start)
        share = float(density[1] + noise) * math.exp(-rate * (start - float(centre[1]))) / rate
        reach = math.log(max(share * self.d / RARE, 1.0)) / rate
        return Hidden(share * (start + 1.0 / rate), share, start, start + reach)

    def _slope(self, at: int, share: float, first: float, z: float) -> float:
        """Steepest fall, on log scales, to a k+ share at an edge from those at `first` to a quarter of it.

        These are taken z standard deviations lower.
        """
        counts = np.concatenate([np.arange(1.0, self.below.size + 1.0), self.edge[self.clear :]])
        value = np.concatenate([self.below, decreasing(self.above[self.clear :])])
        value = value - z * np.sqrt(np.concatenate([self.spread, self.noise[self.clear :]]).clip(0.0))
        start = float(self.edge[at])
        near = (counts >= first) & (counts <= start / 4.0)
        fall = np.log(np.maximum(value[near], share) / share) / np.log(start / counts[near])
        return max(float(fall.max(initial=0.0)), FLATTEST)

    def _continued(self, at: int, anchor: int, share: float) -> Hidden:
        """Events beyond an edge if the tail goes on from the upper end of a k+ share, with the slope sure before.

        The items are a sample of such a tail, and few: to their mean come as many standard deviations of their sum.
        """
        start, own, last = float(self.edge[at]), float(self.edge[anchor]), float(self.edge[-1])
        slope = self._slope(anchor, share, min(own / 16.0, math.sqrt(own)), SHOWS)
        share *= (own / start) ** slope
        reach = min(math.log(max(share * self.d / RARE, 1.0)) / slope, math.log(max(last / start, 1.0)))
        first, second = _integral(1.0 - slope, reach), _integral(2.0 - slope, reach)
        events = share * start * first + SHOWS * start * math.sqrt(2.0 * share * max(second - first, 0.0) / self.d)
        if not self.single:  # the last bin below counts as empty
            events += share * start
        return Hidden(events, share, start, start * math.exp(reach))

    def _room(self, at: int, share: float) -> Hidden:
        """Events beyond an edge if the s-th largest count is as large as the thresholds allow, for every s.

        If s slots have a count of at least k, every threshold below k shows s or more. So the mean of the last of
        them rules out each k at which it is too small: a test for every k, inverted.
        """
        seen, sd = self.above * self.d, math.sqrt(float(self.noise[-1])) * self.d
        sums = np.concatenate([[0.0], np.cumsum(seen)])
        end = np.searchsorted(self.edge, self.edge - self.blur, side="right")
        start = float(self.edge[at])
        events, farthest = 0.0, start
        for s in range(1, MOST):
            width = max(math.ceil(((SHOWS + POWER) * sd / s) ** 2), 4)
            last = _last_possible(sums, end, width, s, SHOWS * sd, at)
            if last < at:
                break
            largest = float(self.edge[min(last + 1, self.edge.size - 1)])
            farthest = max(farthest, largest)
            events += largest - start
        return Hidden(events / self.d, share, start, farthest)


@kernel
def _last_possible(sums: Floats, end: Ints, width: Any, s: Any, margin: Any, at: Any) -> Any:
    """Last edge from `at` up, where the mean of the `width` thresholds before its end does not rule s slots out."""
    for i in range(end.size - 1, at - 1, -1):
        first = max(end[i] - width, 0)
        used = max(end[i] - first, 1)
        if end[i] == 0 or (sums[end[i]] - sums[first]) / used >= s - margin / math.sqrt(used):
            return i
    return -1


def _integral(power: float, reach: float) -> float:
    """Of u^(power - 1) from 1 to exp(reach)."""
    return reach if abs(power) < 1e-9 else math.expm1(power * reach) / power
