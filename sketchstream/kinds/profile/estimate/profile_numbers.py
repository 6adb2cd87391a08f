"""How many items occurred how often, each number with its interval, from one law of counts.

In: a fit and the uncertainty of each number. Out: `ProfileNumbers`. Touches: nothing.
Source: docs/theory/profile.md 8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any, Self

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.errors import EstimateError
from sketchstream.kinds.answers import LEVEL, ColumnValues
from sketchstream.kinds.estimates import Bound, Estimate, normal_quantile
from sketchstream.kinds.exports import ColumnType
from sketchstream.kinds.profile.estimate.fit import Fit, tails
from sketchstream.kinds.profile.estimate.intervals.bounds import Uncertainty, xlogx
from sketchstream.kinds.profile.estimate.intervals.wrapping import Wrapping, bound_kind
from sketchstream.kinds.profile.estimate.uncertainty.bands import Band, Ends, Moved
from sketchstream.kinds.profile.estimate.uncertainty.monotone_tails import widen_to_contain
from sketchstream.kinds.profile_answers import Profile


@dataclass(frozen=True)
class Facts:
    """Facts about the origin of a profile.

    Args:
        method: estimator.
        unit: unit of privacy, "event" or "item".
        form: form of the publication.
        d: number of slots.
        layers: law and epsilon (as text) of each noise layer.
        epsilon: epsilon of the sketch, as text.
        cost: cost of the publication, as text, or None.
        open_domain: whether the domain is open.
        settings: options of the method (norm, beta).
        total: the noisy sum of weights, if the sketch has one: total and mean are computed from it, not from the law
            of counts.
        signed: whether events may be deletions.
        sample: sample of the items from which answers are scaled up: `share` that counts, as text; number of
            `groups`, if they are ranked.
        wrapping: evidence for counts beyond the modulus, for unit "item".
    """

    method: str
    unit: str
    form: str
    d: int
    layers: tuple[tuple[str, str], ...]
    epsilon: str
    cost: str | None
    open_domain: bool
    settings: Mapping[str, object] = field(default_factory=dict)
    total: float | None = None
    signed: bool = False
    sample: Mapping[str, Any] | None = None
    wrapping: Wrapping | None = None


class ProfileNumbers(Profile):
    """The numbers of a profile, and their intervals: all of `ReconstructedProfile` but what shows it."""

    facts: Facts

    def __init__(
        self, fit: Fit, population: float, known: Uncertainty, facts: Facts, guarantee: Mapping[str, Any] | None = None
    ) -> None:
        self.facts = facts
        wrapping = facts.wrapping
        self.covers = known.covers if wrapping is None else f"{known.covers}; {wrapping.said}"
        self._guarantee = dict(guarantee) if guarantee is not None else None
        self.fractions: Floats = fit.fractions
        self.fractions.flags.writeable = False
        self._fit = fit
        self._population = float(population)
        self._known = known
        self._reach: dict[float, Floats] = {}
        self._counted: dict[float, Floats] = {}

    @property
    def method(self) -> str:  # type: ignore[override]
        """Name of the estimator."""
        return self.facts.method

    @property
    def layers(self) -> list[dict[str, str]]:
        """Law and epsilon of each layer of noise."""
        return [{"law": law, "epsilon": epsilon} for law, epsilon in self.facts.layers]

    @cached_property
    def values(self) -> Floats:
        """(n+1,) numbers of items that occurred 0, 1, .. n times or more."""
        resolved: Floats = self._tails[:-1]
        return resolved

    @cached_property
    def stderr(self) -> Floats:
        """(n+1,) standard errors of the unbiased estimates of the same numbers."""
        variance = np.array([self.known_tail(k).variance[0] for k in range(self.max_count + 1)])
        out: Floats = np.sqrt(np.maximum(variance, 0.0))
        return out

    @property
    def labels(self) -> Mapping[str, ColumnValues]:
        """The count of each number."""
        return {"count": np.arange(self.max_count + 1)}

    def extra_columns(self, level: float) -> Mapping[str, ColumnValues]:
        """Shares and numbers of the items with each count; of counts modulo p, what that makes of the k+ number."""
        columns: dict[str, ColumnValues] = {}
        for name, value in (("fraction", self.fractions), ("items", self.counts)):
            low, high = self.number("fractions" if name == "fraction" else "counts", level).T
            columns |= {name: value, f"{name}_low": low, f"{name}_high": high}
        if self.facts.wrapping is not None:
            columns["bound"] = [self.number(f"at_least.{k}").bound for k in range(self.max_count + 1)]
        return columns

    def types(self) -> Mapping[str, ColumnType]:
        """Counts are whole numbers, all others are not."""
        numbers = {"value", "stderr", "low", "high", *self.extra_columns(self.level)} - {"bound"}
        return {"count": "int64", **dict.fromkeys(numbers, "float64")}

    def _ends(self, level: float) -> tuple[Floats, Floats]:
        """Ends that never rise from one count to the next."""
        _, low, high = self.tail_ends(normal_quantile(level))[:-1].T
        return low, high

    @cached_property
    def counts(self) -> Floats:
        """(n+1,) numbers of items that occurred exactly t times, not rounded."""
        out = self.fractions * self._population
        out.flags.writeable = False
        return out

    @cached_property
    def _tails(self) -> Floats:
        """(n+2,) numbers of items with a count of at least 0..n+1, clipped to possible numbers."""
        out = tails(self._fit, self._population).clip(0.0, self._most)
        if not self.facts.open_domain:
            out[0] = self._population  # all items of the domain: a known whole number, which a sum may miss by rounding
        return out

    def known_tail(self, k: int) -> Band:
        """The unbiased estimate of one k+ number with its variance, 0 <= k <= max_count + 1."""
        return self._known.tails.at(k)

    def at_least(self, k: int) -> Estimate:
        """See `Profile`."""
        return self._at_least(k, normal_quantile(LEVEL))

    def exactly(self, k: int) -> Estimate:
        """See `Profile`."""
        return self._exactly(k, normal_quantile(LEVEL))

    def quantile(self, q: float) -> Estimate:
        """See `Profile`."""
        return self._quantile(q, normal_quantile(LEVEL))

    def interval(  # type: ignore[override]
        self, named: float | str | None = None, /, level: float | None = None
    ) -> Any:
        """(n+1, 2) ends of the intervals of `values`; or a named number with its interval, as `number` gives it.

        Args:
            named: name of a number; or the level, as the intervals of other kinds take it.
            level: level of the interval.

        Raises:
            EstimateError: a level outside, or an unknown name.
        """
        if isinstance(named, str):
            return self.number(named, LEVEL if level is None else level)
        return super().interval(level if named is None else named)

    def _number(self, name: str, level: float) -> Estimate | Floats:
        z = normal_quantile(level)
        if name == "fractions":
            return self._shares_ends(z)
        if name == "counts":
            return self._counts_ends(z)
        if name == "distinct":
            return self._at_least(1, z)
        if name == "above":
            return self._above_share(z)
        if name in self._known.scalars:
            least = 1.0 if name == "mean" else 0.0
            least = -math.inf if self.facts.signed and name in ("total", "mean") else least
            most = 1.0 if name in ("one_hit_ratio", "coverage") else math.inf
            return self._scalar(name, _estimate(self._value(name), self._known.scalars[name], z, least, most), z)
        kind, _, rest = name.partition(".")
        if kind == "at_least":
            return self._at_least(_parse_number(rest), z)
        if kind == "exactly":
            return self._exactly(_parse_number(rest), z)
        if kind == "quantile":
            return self._quantile(_parse_number(rest), z)
        raise EstimateError(
            "unknown number: expected distinct, total, mean, entropy, one_hit_ratio, coverage, above, fractions, "
            f"counts, at_least.K, exactly.K or quantile.Q, found {name:.40}"
        )

    def _at_least(self, k: object, z: float) -> Estimate:
        """The k+ number of one k, with its interval."""
        count = _count(k, self.max_count + 1, "max_count + 1")
        estimate = Estimate(*self.tail_ends(z)[count].tolist())
        return self._marked(estimate, "lower", count, z)

    def _exactly(self, k: object, z: float) -> Estimate:
        """The number of items with one count."""
        count = _count(k, self.max_count, "max_count")
        low, high = self._counts_ends(z)[count].tolist()
        return self._marked(Estimate(float(self.counts[count]), low, high), "upper", 1.0, z)

    def _counts_ends(self, z: float) -> Floats:
        """(n+1, 2) ends of the numbers of items with each count: at most those with this count or more."""
        if z not in self._counted:
            low, high = _ends(self._known.counts, z, 0.0, self._most)
            high = np.minimum(high, self.tail_ends(z)[:-1, 2])
            ends = _widen_to_contain(self.counts, (np.maximum(low - self._most_wrapped(z), 0.0), high))
            ends.flags.writeable = False
            self._counted = {z: ends}  # callers ask for one count after another, at one level
        return self._counted[z]

    def _shares_ends(self, z: float) -> Floats:
        """(n+1, 2) ends of the shares of items with each count."""
        low, high = _ends(self._known.fractions, z, 0.0, 1.0)
        return _widen_to_contain(self.fractions, (self._without_wrapped(low, z), high))

    def _most_wrapped(self, z: float) -> float:
        """The most items with a count beyond the modulus at any one residue; 0 where none shows."""
        return 0.0 if self.facts.wrapping is None else self.facts.wrapping.most(z)

    def _without_wrapped(self, low: Floats, z: float) -> Floats:
        """Lower ends of shares, less the wrapped items, over items that wrapping may have hidden."""
        each = self._most_wrapped(z)
        if not each:
            return low
        items = max(self._population, 1e-9)
        hidden = each if self.facts.open_domain else 0.0
        return np.asarray(((low * items - each) / (items + hidden)).clip(0.0, 1.0))

    def _marked(self, estimate: Estimate, bound: Bound, residues: float, z: float, scale: float = 1.0) -> Estimate:
        """The estimate as a bound, if wrapped items may shift it by a part of its interval that matters.

        Args:
            estimate: the estimate; its interval allows for wrapped items where they show.
            bound: the kind of bound that it is then.
            residues: number of residues that hold the items that shift it.
            z: standard deviations of the interval.
            scale: items for one unit of the estimate: 1 for numbers of items.
        """
        wrapping = self.facts.wrapping
        if wrapping is None:
            return estimate
        half = max((estimate.high - estimate.low) * scale - residues * wrapping.most(z), 0.0) / 2.0
        return replace(estimate, bound=bound) if wrapping.marks(half, residues, z) else estimate

    def _scalar(self, name: str, estimate: Estimate, z: float) -> Estimate:
        """A scalar as what it says of counts that may have wrapped."""
        wrapping = self.facts.wrapping
        if wrapping is None:
            return estimate
        estimate = replace(estimate, bound=bound_kind(name, counted=self.facts.total is not None))
        each, items = wrapping.most(z), max(float(self._tails[1]), 1.0)
        if name == "mean" and estimate.bound is None:  # the sum is counted apart, the items may be more
            low = estimate.low * items / (items + each)
            return replace(estimate, low=low if self.facts.signed else max(low, 1.0))
        if estimate.bound == "lower":  # few very heavy items are enough, and need not show
            return replace(estimate, high=1.0 if name == "coverage" else math.inf)
        if name != "one_hit_ratio":
            return estimate
        low = max((estimate.low * items - each) / (items + each), 0.0)
        return self._marked(replace(estimate, low=low), "upper", 1.0, z, items)

    def _above_share(self, z: float) -> Estimate:
        """The share beyond `max_count`; at `modulus - 1` nothing can be seen of it."""
        share, wrapping = _estimate(self._fit.above, self._known.above, z, 0.0, 1.0), self.facts.wrapping
        if wrapping is None:
            return share
        below, items = self.max_count + 1.0, max(self._population, 1.0)
        share = replace(share, high=max(share.high, min(share.high + below * wrapping.most(z) / items, 1.0)))
        return replace(share, bound="lower") if self.blind else self._marked(share, "lower", below, z, items)

    def with_zeros(self, zeros: int) -> Self:
        """Add items with count 0, or remove them (a negative number).

        Raises:
            EstimateError: an open domain, or fewer than zero items would remain.
        """
        if zeros == 0:
            return self
        if self.facts.open_domain:
            raise EstimateError("items without a slot are known in closed domains only")
        before = self._population
        after = before + zeros
        if after <= 0:
            raise EstimateError(f"{-zeros} items cannot leave a domain of {before:.0f}")
        fit, known, scale = self._fit, self._known, before / after
        fractions = fit.fractions * scale
        fractions[0] += zeros / after
        return type(self)(
            Fit(fractions, fit.heavy, fit.heavy_shares * scale),
            after,
            replace(
                known,
                fractions=Moved(known.fractions, scale, zeros / after),
                counts=Moved(known.counts, 1.0, zeros),
                tails=known.tails.moved(zeros),
                above=Moved(known.above, scale, 0.0),
            ),
            replace(self.facts, d=round(after)),
            self.guarantee,
        )

    @property
    def blind(self) -> bool:
        """Whether every count beyond `max_count` wraps, so that nothing can be seen of the share above."""
        return self.facts.wrapping is not None and self.max_count + 1 >= self.facts.wrapping.modulus

    @property
    def _most(self) -> float:
        """Largest possible number of items."""
        return math.inf if self.facts.open_domain else self._population

    def tail_ends(self, z: float) -> Floats:
        """(n+2, 3) numbers of items with a count of at least 0..n+1: value, low, high.

        Ends never rise from one count to the next, and no estimate equals an end unless it is the least or the largest
        possible number. In an open domain no upper end of a k+ number is above that of all items. Where they do not
        hold an estimate by themselves (see the class), ends are widened.
        """
        if z not in self._reach:
            low, high, way = self._known.tails.ends_and_ways(z)
            value = self._tails
            if self.facts.open_domain:  # where 0+ and 1+ are the same items
                low[0], high[0], way[0] = low[1], high[1], way[1]
            if self._most_wrapped(z):
                assert self.facts.wrapping is not None
                high = high + self._most_wrapped(z) * self.facts.wrapping.residues_below(high.size)
                high[1:] = np.minimum.accumulate(high[1:])
            low, high = widen_to_contain(value, low, high, way, self._most)
            ends = np.stack([value, low, high], axis=1)
            ends.flags.writeable = False
            self._reach = dict([*self._reach.items()][-1:]) | {z: ends}  # callers ask k after k, at a level or two
        return self._reach[z]

    def _value(self, name: str) -> float:
        """A scalar from the law of counts, clipped to possible values; 0 if no item occurred."""
        t = np.arange(self.fractions.size, dtype=np.float64)
        fit, scale, items = self._fit, self._population, float(self._tails[1])
        total = max(scale * float(t @ fit.fractions + fit.heavy @ fit.heavy_shares), 0.0)
        counted = self.facts.total
        if name == "total":
            return total if counted is None else counted if self.facts.signed else max(counted, 0.0)
        if name == "mean" and counted is not None and items > 0.0:
            return counted / items if self.facts.signed else max(counted / items, 1.0)
        if items <= 0.0 or total <= 0.0:
            return 0.0
        if name == "mean":
            return max(total / items, 1.0)
        if name in ("one_hit_ratio", "coverage"):
            once = max(float(self.counts[1]), 0.0)
            return min(once / items, 1.0) if name == "one_hit_ratio" else max(1.0 - once / total, 0.0)
        spread = scale * float(xlogx(t) @ fit.fractions + xlogx(fit.heavy) @ fit.heavy_shares)
        return min(max(math.log(total) - spread / total, 0.0), math.log(max(items, 1.0)))

    def _quantile(self, share: object, z: float) -> Estimate:
        """Frequency quantile of the items that occurred; its ends come from those of the k+ numbers.

        No k+ number is known beyond max_count: there an end is the first count above, or the largest one seen.
        """
        q = _share(share)
        first, last = self.max_count + 1.0, float(self._fit.heavy.max(initial=self.max_count + 1.0))
        value = self._crossing(self._tails, float(self._tails[1]), q)
        if value is None:
            value = self._above(q)
        _, low, high = self.tail_ends(z).T
        few = max(float(low[1]), 1e-9) if high[1] > 0.0 else 0.0  # there may be hardly an item, and a heavy one
        least, most = self._crossing(low, float(high[1]), q), self._crossing(high, few, q)
        most = last if most is None else most
        wrapping = self.facts.wrapping
        if wrapping is not None and most >= wrapping.modulus:
            most = math.inf  # no count of the modulus or more can be seen
        estimate = Estimate(value, min(value, first if least is None else least), max(value, most))
        if wrapping is None or (wrapping.shows and estimate.high == estimate.value):
            return estimate
        hidden = wrapping.hidden(z) * wrapping.residues_below(high.size)
        further = self._crossing(np.minimum.accumulate(high + hidden), few, q)
        unsure = wrapping.shows or further is None or further > estimate.high
        return replace(estimate, bound="lower") if unsure else estimate

    def _crossing(self, tails: Floats, items: float, q: float) -> float | None:
        """Smallest count t >= 1 with at most (1-q) of the items above t; None if it is beyond max_count."""
        if items <= 0:
            return 0.0
        below = np.flatnonzero(tails[2:] <= _at_most(q, items))
        return float(below[0] + 1) if below.size else None

    def _above(self, q: float) -> float:
        """The quantile from the heavy counts, for one beyond max_count.

        A noisy total that is too low for the items above gives them a count that no such item has: see `Fit`.
        """
        heavy, share = self._fit.heavy, self._fit.heavy_shares
        if heavy.size == 0:
            return float(self.max_count)
        left = self._tails[-1] * np.append(1.0 - np.cumsum(share[:-1]) / share.sum(), 0.0)
        first = int(np.argmax(left <= _at_most(q, float(self._tails[1]))))  # found: the share above ends at 0
        return max(float(np.rint(heavy[first])), self.max_count + 1.0)


def _ends(band: Ends, z: float, least: float, most: float) -> tuple[Floats, Floats]:
    """Ends of the intervals of a band, within [least, most]."""
    low, high = band.ends(z)
    return np.clip(low, least, most), np.clip(high, least, most)


def _widen_to_contain(value: Floats, ends: tuple[Floats, Floats]) -> Floats:
    """(n, 2) ends of intervals, widened if needed to contain the estimates."""
    return np.stack([np.minimum(ends[0], value), np.maximum(ends[1], value)], axis=1)


def _estimate(value: float, band: Ends, z: float, least: float, most: float) -> Estimate:
    """The estimate with its interval, widened to contain the value."""
    low, high = _ends(band, z, least, most)
    return Estimate(float(value), float(min(low[0], value)), float(max(high[0], value)))


def _count(k: object, most: int, limit: str) -> int:
    """Parse a count from 0 to `most`; the error calls the bound `limit`."""
    if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or not 0 <= k <= most:
        raise EstimateError(f"k must be a whole number from 0 to {limit} = {most}, found {k!s:.40}")
    return int(k)


def _share(q: object) -> float:
    """Parse a share from 0 to 1."""
    if not isinstance(q, Real) or not 0.0 <= float(q) <= 1.0:
        raise EstimateError(f"a quantile lies between 0 and 1, found {q!s:.40}")
    return float(q)


def _parse_number(text: str) -> int | float | str:
    """The number in a text, or the text itself if it holds none."""
    if text.isdecimal():
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def _at_most(q: float, items: float) -> float:
    """Number of items that may be above a quantile."""
    return (1.0 - q) * items * (1.0 + 1e-12) + 1e-12 if q < 1.0 else 1e-12  # items may be infinite
