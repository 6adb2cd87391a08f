"""From a sample of the items to all of them: numbers divided by the inclusion probability, intervals with its variance.

In: the law, the number of items and the bands of the items that count. Out: the same for all items. Touches: nothing.
Source: Horvitz & Thompson 1952; Wilson 1927 (intervals of a share); Zou & Donner 2008 (sums of two errors);
docs/theory/profile.md, section 10.

Each item counts with probability p, independently of the others. A sum of b over all items is estimated by 1/p times
that over the sample, whose variance is (1-p)/p times the sum of b^2 over all items: of a number N of items (1-p)/p N.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate.fit import Fit
from sketchstream.kinds.profile.estimate.intervals.bounds import Uncertainty
from sketchstream.kinds.profile.estimate.uncertainty.bands import Band, Ends, Moved
from sketchstream.kinds.profile.estimate.uncertainty.monotone_tails import Tails


@dataclass(frozen=True)
class ItemSample:
    """How the items that count were chosen.

    Args:
        share: probability with which an item counts, below 1.
        said: who counts, in words.
        kept: whether only the items that count have slots, in a closed domain; else they are among the slots.
        largest: bound on the total of one item; None: there is no counter of the total.
        counted: value of the counter of the total, noise included.
    """

    share: float
    said: str
    kept: bool = False
    largest: float | None = None
    counted: float = 0.0

    @property
    def spread(self) -> float:
        """Variance of an estimated number of items, for each of them."""
        return (1.0 - self.share) / self.share


def scaled_up(
    fit: Fit, population: float, known: Uncertainty, sample: ItemSample, *, closed: bool, signed: bool
) -> tuple[Fit, float, Uncertainty]:
    """The law, the number of items and the bands of all items.

    Args:
        fit: law of the items that count; closed domains: slots whose item does not count have their share at 0.
        population: number of those items; closed domains: of slots.
        known: bands of the items that count.
        sample: rule by which the items that count were chosen.
        closed: whether the domain is closed.
        signed: whether the method may give negative shares.
    """
    p, among = sample.share, closed and not sample.kept
    whole, items = (_fill_domain(fit, p, signed), population) if among else (fit, population / p)
    law = _Law.of(whole, items)
    tails = SampledTails(known.tails, p, items if closed else None)
    numbers = SampledNumbers(known.counts, p, 1.0, tails if closed else None)
    if among:
        shares: Ends = Moved(numbers, 1.0 / items, 0.0)
        above: Ends = SampledNumbers(known.above, p, 1.0 / items)
    else:
        shares = SampledRatios(known.fractions, (1.0 - p) / max(population, 1.0))
        above = SampledRatios(known.above, (1.0 - p) / max(population, 1.0))
    scalars: dict[str, Ends] = {
        "one_hit_ratio": SampledRatios(known.scalars["one_hit_ratio"], sample.spread / max(law.items, 1.0)),
        "coverage": Widened(known.scalars["coverage"], sample.spread * law.coverage),
        "entropy": Widened(known.scalars["entropy"], sample.spread * law.entropy, shift=-math.log(p)),
    }
    if sample.largest is None:
        total, mean = law.squares, law.mean
    else:
        events = max(abs(sample.counted) / p, 1.0)
        total = sample.largest * events  # the sum of squares of numbers that are at most `largest` and add up to this
        mean = max(total - events**2 / max(law.items, 1.0), 0.0) / max(law.items, 1.0) ** 2
    scalars["total"] = Widened(known.scalars["total"], sample.spread * total, factor=1.0 / p)
    scalars["mean"] = Widened(known.scalars["mean"], sample.spread * mean)
    covers = f"{known.covers}; {sample.said}"
    return (
        whole,
        items,
        replace(known, fractions=shares, counts=numbers, tails=tails, above=above, scalars=scalars, covers=covers),
    )


def _fill_domain(fit: Fit, share: float, signed: bool) -> Fit:
    """The law over a closed domain: shares of counts above 0 scaled up, as far as there are items."""
    present = float(fit.fractions[1:].sum()) + fit.above
    factor = 1.0 / share if signed or present <= 0.0 else min(1.0 / share, max(1.0 / present, 1.0))
    fractions = fit.fractions * factor
    fractions[0] = 1.0 - factor * present
    return Fit(fractions, fit.heavy, fit.heavy_shares * factor)


@dataclass(frozen=True)
class _Law:
    """Sums over the items that occurred, from their law of counts.

    Args:
        items: number of these items.
        events: sum of their counts.
        squares: sum of the squares of their counts.
        mean: sum of squares of the influences of an item on the mean count.
        coverage: sum of squares of the influences of an item on the coverage.
        entropy: sum of squares of the influences of an item on the entropy.
    """

    items: float
    events: float
    squares: float
    mean: float
    coverage: float
    entropy: float

    @classmethod
    def of(cls, fit: Fit, population: float) -> _Law:
        """The sums for a law and a number of items (or slots)."""
        t = np.concatenate([np.arange(1.0, fit.fractions.size), fit.heavy])
        n = population * np.maximum(np.concatenate([fit.fractions[1:], fit.heavy_shares]), 0.0)
        items, events, squares = float(n.sum()), float(n @ t), float(n @ t**2)
        if items <= 0.0 or events <= 0.0:
            return cls(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        logs = np.log(np.maximum(t, 1.0))
        surprise = float(n @ (t * logs)) / events
        return cls(
            items,
            events,
            squares,
            float(n @ (t - events / items) ** 2) / items**2,
            float(n @ ((t == 1.0) - t * (float(n @ (t == 1.0)) / events)) ** 2) / events**2,
            float(n @ (t * (1.0 + surprise - logs)) ** 2) / events**2,
        )


def _middles_and_half_widths(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Middles and half widths of intervals; an interval that lacks an end has its other end, and infinity."""
    with np.errstate(invalid="ignore"):
        middle, half = (low + high) / 2.0, (high - low) / 2.0
    other = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
    return np.where(np.isfinite(middle), middle, other), half


def _wilson(low: Floats, high: Floats, z: float, spread: float) -> tuple[Floats, Floats]:
    """Ends for numbers M whose estimates have the error of the interval given, and a variance of `spread` M besides.

    All M with (estimate - M)^2 <= half^2 + z^2 spread M.
    """
    middle, half = _middles_and_half_widths(low, high)
    skew = z * z * spread / 2.0
    way = np.sqrt(half**2 + 2.0 * skew * np.maximum(middle, 0.0) + skew**2)
    return np.where(np.isfinite(low), middle + skew - way, low), middle + skew + way


@dataclass(frozen=True)
class SampledNumbers:
    """Numbers of items with each count.

    Args:
        inner: numbers of the sample.
        share: probability with which an item counts.
        unit: what one item is in these numbers: 1, or its share of a closed domain.
        tails: closed domains: k+ numbers, from which the number of absent items follows.
    """

    inner: Ends
    share: float
    unit: float
    tails: SampledTails | None = None

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals."""
        low, high = self.inner.ends(z)
        spread = self.unit * (1.0 - self.share) / self.share
        low, high = _wilson(low / self.share, high / self.share, z, spread)
        if self.tails is not None:
            assert self.tails.items is not None
            least, most, _ = self.tails.ends_and_ways(z)
            low[0], high[0] = self.tails.items - most[1], self.tails.items - least[1]
        return low, high


@dataclass(frozen=True)
class SampledTails:
    """K+ numbers for k = 0, 1, ..; see `MonotoneTails`.

    Args:
        inner: numbers of the sample.
        share: probability with which an item counts.
        items: number of items of a closed domain, which is known; None: open.
    """

    inner: Tails
    share: float
    items: float | None

    def ends_and_ways(self, z: float) -> tuple[Floats, Floats, Floats]:
        """Ends of the intervals, and half the width of each single number's interval."""
        low, high, way = self.inner.ends_and_ways(z)
        low, high = _wilson(low / self.share, high / self.share, z, (1.0 - self.share) / self.share)
        if self.items is not None:
            low[0] = high[0] = self.items
        return low, high, np.maximum(way / self.share, np.maximum(high - low, 0.0) / 2.0)

    def at(self, k: int) -> Band:
        """The band of one number."""
        if k == 0 and self.items is not None:
            return Band(np.array([self.items]), np.array([self.items]), np.zeros(1))
        own = self.inner.at(k).scaled(1.0 / self.share)
        sampling = (1.0 - self.share) / self.share * np.maximum(own.low, 0.0)
        return Band(own.low, own.high, own.variance + sampling)

    def moved(self, by: float) -> SampledTails:
        """These numbers with `by` more items of a closed domain that are known to be absent."""
        assert self.items is not None
        return replace(self, items=self.items + by)


@dataclass(frozen=True)
class SampledRatios:
    """Shares of the items that occurred: they need no factor.

    Args:
        inner: numbers of the sample.
        spread: variance of the estimate of a share r is this times r (1 - r).
    """

    inner: Ends
    spread: float

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """All r with (estimate - r)^2 <= half^2 + z^2 spread r (1 - r)."""
        low, high = self.inner.ends(z)
        middle, half = _middles_and_half_widths(low, high)
        c = z * z * self.spread
        inside = np.clip(middle, 0.0, 1.0)
        way = np.sqrt((1.0 + c) * half**2 + c * inside * (1.0 - inside) + c * c / 4.0)
        centre = middle + c / 2.0
        first, last = (centre - way) / (1.0 + c), (centre + way) / (1.0 + c)
        return np.where(np.isfinite(low), first, low), np.where(np.isfinite(high), last, high)


@dataclass(frozen=True)
class Widened:
    """A number that is estimated from the sample, times a factor, with a further independent error.

    Args:
        inner: numbers of the sample.
        variance: variance of the further error.
        factor: factor by which the number is multiplied.
        shift: amount that is added to the product.
    """

    inner: Ends
    variance: float
    factor: float = 1.0
    shift: float = 0.0

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the intervals."""
        low, high = (end * self.factor + self.shift for end in self.inner.ends(z))
        middle, half = _middles_and_half_widths(low, high)
        further = z * z * self.variance
        way = np.sqrt(half**2 + further)
        alone = math.sqrt(further)
        return (
            np.where(np.isfinite(high), middle - way, low - alone),
            np.where(np.isfinite(low), middle + way, high + alone),
        )
