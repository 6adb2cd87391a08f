"""Large counts that noise hides: the horizon of sums over counts, and bounds on the rest.

In: published k+ shares at the edges of wide bins, and estimates for the counts below. Out: `Tail`: its
horizon, and bounds on what is beyond. Touches: nothing. Source: `docs/theory/reconstruction.md`, section 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.kinds.profile.estimate.uncertainty.bands import SHOWS, Hidden, decreasing

RARE = 0.025
"""A tail is continued until fewer items than this are expected."""
FLATTEST = 0.01
"""Least slope of a tail on log scales."""
FIRM = 6.0
"""A tail is also continued from the last k+ share whose upper end is at least 6 times that of noise alone."""
POWER = 3.0
"""Standard deviations by which a window of thresholds is to tell s slots from none."""
LIKELY = 1.5
"""Standard deviations by which k+ shares are lowered where the fall of a tail that does not show is taken from them."""
LOOKED_AT, STARTS = 48, 12
"""Numbers of counts, evenly spaced on a log scale: at which the fall of a tail is read; from which it is continued."""
SPANS = (1.2, 1.5, 2.0)
"""Ratios of the last to the first count over which k+ shares are averaged."""
WINDOWS = (1.5, 2.0, 3.0, 6.0, 16.0)
"""Ends of the windows of bins that limit a k+ share, by the count at which they begin."""
MAX_LIMITED_SLOTS = 10_000
"""Slots beyond the horizon whose counts are limited one by one."""


@dataclass(frozen=True)
class Tail:
    """K+ shares of large counts.

    Args:
        d: number of slots.
        single: whether each threshold has its own noise (form cumulative); else they share that of the bins above.
        edge: (m,) positive edges.
        above: (m,) published shares at or above the edges.
        noise: (m,) variances of `above`.
        below: (r,) unbiased k+ shares at 1..r, where every count is resolved.
        spread: (r,) variances of `below`.
        clear: index of the first edge to which the resolved counts add almost no noise.
        blur: largest distance by which noise moves a counter.
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
        """Index of the first clear edge whose k+ share is not visible above the noise; m if all are."""
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
        """Bounds on events and items at or beyond an edge; None if nothing is assumed there.

        If a share is visible, the tail continues as a power law until it holds almost no item, or up to the limit that
        thresholds beyond allow, if that is less. If none is, it falls at least as fast as the counters before it.
        """
        if not self.clear <= at < self.edge.size:
            return None
        deviation = np.sqrt(self.noise[self.clear : at + 1])
        upper = self.upper[: deviation.size]
        if self.above[self.clear] <= SHOWS * deviation[0]:
            return self._faded(at)
        bounds = [self._continued(at, at, float(upper[-1]))]
        firm = np.flatnonzero(upper >= FIRM * SHOWS * deviation)
        if firm.size:
            bounds.append(self._continued(at, self.clear + int(firm[-1]), float(upper[firm[-1]])))
        if self.single:
            bounds.append(self._room(at, float(upper[-1])))
        least = min(bounds, key=lambda one: one.events)
        return least if least.events > 0.0 else None

    def _faded(self, at: int) -> Hidden | None:
        """Bounds beyond an edge if no wide edge is visible: the least over tails that start at any earlier count.

        Tails are assumed to grow steeper: after each count they fall at least as fast as before it.
        """
        start = float(self.edge[at])
        looked_at = self._near(np.geomspace(1.0, start, LOOKED_AT))
        tails = (self._from(int(i), looked_at, start) for i in self._near(np.geomspace(3.0, start, STARTS)))
        least = min(tails, key=lambda one: one.events)
        return least if least.farthest > start else None

    @cached_property
    def _points(self) -> tuple[Floats, Floats, Floats]:
        """All counts at which a k+ share is known without the noise of counters, the shares, their variances.

        Estimated variances may be near 0 or negative if few slots are read; that of the published values is known.
        """
        single = np.arange(1, self.below.size + 1)
        spread = np.maximum(self.spread, self.noise[np.searchsorted(self.edge, single)])
        return (
            np.concatenate([single.astype(np.float64), self.edge[self.clear :]]),
            np.concatenate([self.below, self.above[self.clear :]]),
            np.concatenate([spread, self.noise[self.clear :]]),
        )

    @cached_property
    def _own(self) -> Floats:
        """The part of a share's variance that shares above it do not have in common with it."""
        counts, _, variance = self._points
        return variance if self.single else variance - self.noise[np.searchsorted(self.edge, counts)]

    def _near(self, counts: Floats) -> Ints:
        """Indices of the points at these counts, or next above."""
        known = self._points[0]
        return np.unique(np.searchsorted(known, counts).clip(0, known.size - 1))

    def _from(self, i: int, looked_at: Ints, start: float) -> Hidden:
        """Bounds beyond a count if the tail continues from a point with the slope of the points before it.

        In noisy bins a window says more about a k+ share than all bins above do: the steeper the tail, the more of
        the share is in the window; and the smaller the share, the steeper the tail. Logs are of counts less 1/2:
        sums from k on become integrals from k - 1/2.
        """
        counts = self._points[0]
        far = looked_at[counts[looked_at] <= counts[i] / 2.0]
        lower = self._limits[0][far]
        way = np.log((counts[i] - 0.5) / (counts[far] - 0.5))
        share = float(self._limits[1][i])
        windows = [] if self.single else self._windows(i)
        while True:
            slope = _steepest(lower, share, way)
            less = min([share, *(most / (1.0 - ratio**-slope) for most, ratio in windows)])
            if not less <= 0.99 * share:
                break
            share = less
        return self._beyond(start, share * (float(counts[i]) / start) ** slope, slope)

    @cached_property
    def _limits(self) -> tuple[Floats, Floats]:
        """Likely smallest and sure largest shares at all points: by each share alone, and by means with its neighbours.

        Shares decrease, so that a mean of neighbours is no more than their first and no less than their last. Undoing
        the noise of counters adds errors that alternate: a mean of n has 1/n of their variance or less. So it is with
        the noise of thresholds, but not with that of bins, which all shares above them have in common.
        """
        counts, value, variance = self._points
        common = variance - self._own
        # from the end: inverting the noise at small counts may give numbers larger by many powers of ten
        sums, own = (np.append(np.cumsum(one[::-1])[::-1], 0.0) for one in (value, self._own))

        def mean(start: Ints, end: Ints) -> tuple[Floats, Floats]:
            n = end - start
            shared = np.maximum(common[start], common[end - 1])
            return (sums[start] - sums[end]) / n, np.sqrt((own[start] - own[end]).clip(0.0) / n**2 + shared)

        lower = value - LIKELY * np.sqrt(variance)
        upper = np.maximum(decreasing(value), 0.0) + SHOWS * np.sqrt(variance)
        index = np.arange(counts.size)
        for ratio in SPANS:
            before, deviation = mean(np.searchsorted(counts, counts / ratio), index + 1)
            upper = np.minimum(upper, np.maximum(before, 0.0) + SHOWS * deviation)
            after, deviation = mean(index, np.searchsorted(counts, counts * ratio, side="right"))
            lower = np.maximum(lower, after - LIKELY * deviation)
        return lower, np.maximum(upper, RARE / self.d)

    def _windows(self, i: int) -> list[tuple[float, float]]:
        """Upper ends of the shares of slots in windows of bins that begin at a point, and how far each reaches."""
        counts, value, _ = self._points
        out = []
        for j in self._near(float(counts[i]) * np.array(WINDOWS)):
            if j <= i:
                continue
            first, last = np.searchsorted(self.edge, counts[[i, j]])
            variance = float(last - first) * float(self.noise[-1]) + float(self._own[[i, j]].sum())
            most = max(float(value[i] - value[j]), 0.0) + SHOWS * math.sqrt(variance)
            out.append((most, float(counts[j] / counts[i])))
        return out

    def _slope(self, at: int, share: float) -> float:
        """Steepest fall, on log scales, from earlier k+ shares to 1.96 deviations below that at an edge."""
        start = float(self.edge[at])
        counts, _, variance = self._points
        value = np.concatenate([self.below, decreasing(self.above[self.clear :])]) - SHOWS * np.sqrt(variance)
        near = (counts >= min(start / 16.0, math.sqrt(start))) & (counts <= start / 4.0)
        return _steepest(value[near], share, np.log(start / counts[near]))

    def _continued(self, at: int, anchor: int, share: float) -> Hidden:
        """Events beyond an edge, if the tail continues from a k+ share's upper end with the sure slope before it."""
        start, own = float(self.edge[at]), float(self.edge[anchor])
        slope = self._slope(anchor, share)
        return self._beyond(start, share * (own / start) ** slope, slope)

    def _beyond(self, start: float, share: float, slope: float) -> Hidden:
        """Bounds beyond a count with this k+ share, if the tail falls with this slope.

        The items are a small sample of such a tail: standard deviations of their sum are added to its mean.
        """
        last = float(self.edge[-1])
        reach = min(math.log(max(share * self.d / RARE, 1.0)) / slope, math.log(max(last / start, 1.0)))
        first, second = _integral(1.0 - slope, reach), _integral(2.0 - slope, reach)
        events = share * start * first + SHOWS * start * math.sqrt(2.0 * share * max(second - first, 0.0) / self.d)
        if not self.single:  # treat the last bin below as empty
            events += share * start
        return Hidden(events, share, start, start * math.exp(reach))

    def _room(self, at: int, share: float) -> Hidden:
        """Events beyond an edge if the s-th largest count is as large as the thresholds allow, for every s.

        If s slots have a count of at least k, every threshold below k shows s or more. So the mean of the last of
        them rules out each k at which it is too small (inversion of a test for every k).
        """
        # imported late: programs that only read an answer start without numba
        from sketchstream.kinds.profile.estimate.linear.thresholds import last_possible

        seen, sd = self.above * self.d, math.sqrt(float(self.noise[-1])) * self.d
        sums = np.concatenate([[0.0], np.cumsum(seen)])
        end = np.searchsorted(self.edge, self.edge - self.blur, side="right")
        start = float(self.edge[at])
        events, farthest = 0.0, start
        for s in range(1, MAX_LIMITED_SLOTS):
            width = max(math.ceil(((SHOWS + POWER) * sd / s) ** 2), 4)
            last = last_possible(sums, end, width, s, SHOWS * sd, at)
            if last < at:
                break
            largest = float(self.edge[min(last + 1, self.edge.size - 1)])
            farthest = max(farthest, largest)
            events += largest - start
        return Hidden(events / self.d, share, start, farthest)


def _steepest(before: Floats, share: float, way: Floats) -> float:
    """Steepest fall from shares to a later one over these ways, all on log scales; `FLATTEST` at least."""
    return max(float((np.log(np.maximum(before, share) / share) / way).max(initial=0.0)), FLATTEST)


def _integral(power: float, reach: float) -> float:
    """Integral of u^(power - 1) from 1 to exp(reach)."""
    return reach if abs(power) < 1e-9 else math.expm1(power * reach) / power
