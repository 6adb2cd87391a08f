"""Uncertainty of each number, for all methods: unbiased estimates, their variances, brackets.

In: the observed parts of one closed domain. Out: `Uncertainty`, from which a profile draws intervals at
any level. Touches: nothing. Source: docs/theory/profile.md 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate import fit as fits
from sketchstream.kinds.profile.estimate.linear.circle import Circle
from sketchstream.kinds.profile.estimate.linear.line import Line, expected_line, linear
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.estimate.uncertainty.bands import (
    Band,
    Ends,
    Moments,
    blend,
    blend_moments,
    critical,
    decreasing,
    settle_covariance,
    settle_variances,
)
from sketchstream.kinds.profile.estimate.uncertainty.monotone_tails import (
    MonotoneTails,
    Tails,
    ratios,
    variances_over_parts,
)
from sketchstream.kinds.profile.estimate.uncertainty.small_domains import WithAbsent, small_domain_law


@dataclass(frozen=True)
class Uncertainty:
    """Bands of every number, in the units that the profile reports.

    Args:
        fractions: (n+1,) bands of the shares at counts 0..n.
        counts: (n+1,) bands of the numbers of items at counts 0..n.
        tails: (n+2,) bands of the numbers of items with a count of at least 0..n+1; their ends never rise.
        above: band of the share of items above n.
        scalars: bands of total, mean, entropy, one_hit_ratio, coverage, by name.
        covers: one sentence that says what the intervals cover.
    """

    fractions: Ends
    counts: Ends
    tails: Tails
    above: Ends
    scalars: Mapping[str, Ends]
    covers: str


def xlogx(t: Floats) -> Floats:
    """T ln t with 0 at 0."""
    return np.asarray(t * np.log(np.maximum(t, 1.0)))


def present(t: Floats) -> Floats:
    """1 for counts of at least one."""
    return np.asarray((t >= 0.5).astype(np.float64))


def once(t: Floats) -> Floats:
    """1 for a count of one."""
    return np.asarray((np.abs(t - 1.0) < 0.5).astype(np.float64))


def identity(t: Floats) -> Floats:
    """Score of a count: the count itself."""
    return np.asarray(t, dtype=np.float64)


SCORES = (present, once, identity, xlogx)
ITEMS, ONCE, EVENTS, SURPRISE = range(4)
ItemsInterval = Callable[[float], tuple[float, float]]
"""Ends of a number of items that reach z standard deviations to either side."""


@dataclass(frozen=True)
class Region:
    """A number that is a function of two linear estimates: its range over an ellipse around them.

    For a ratio that is Fieller's interval, which stays valid if the divisor may be near zero (the delta method fails).

    Args:
        centres: (c, 2) the two estimates, one row for each possible position of the counts in wide bins.
        covariance: (2, 2) covariance of their noise.
        number: vectorised function of both; its values are always possible ones.
    """

    centres: Floats
    covariance: Floats
    number: Callable[[Floats, Floats], Floats]

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Least and largest value within z standard deviations, fewer if the centres are far apart. (1,), (1,)."""
        values = self._within(z)
        if len(self.centres) > 1:
            between = np.ptp(self.number(self.centres[:, 0], self.centres[:, 1]))
            deviation = float(np.ptp(values, axis=1).max()) / (2.0 * z)
            values = self._within(float(critical(z, np.asarray(between / max(deviation, 1e-300)))))
        return np.array([values.min()]), np.array([values.max()])

    def _within(self, z: float) -> Floats:
        """(c, 512) values on the ellipses of radius z around the centres."""
        spread, axes = np.linalg.eigh(self.covariance)
        shift = z * (axes * np.sqrt(np.maximum(spread, 0.0))) @ CIRCLE
        return self.number(self.centres[:, :1] + shift[0], self.centres[:, 1:] + shift[1])


@dataclass(frozen=True)
class Entropy:
    """Entropy, from its range over an ellipse around events and sum of t ln t, and from the number of items.

    It is at most the logarithm of that number. Where few items stand out from noise, the ellipse is no
    confidence set: nothing is refused below the logarithm of the least number that is not refused.

    Args:
        centres: (c, 2) events and sums, a row for each possible position of the counts in wide cells.
        covariance: (2, 2) covariance of events and sum.
        items: ends of the number of items that occurred, at each z.
    """

    centres: Floats
    covariance: Floats
    items: ItemsInterval

    def ends(self, z: float) -> tuple[Floats, Floats]:
        """Ends of the interval."""
        few, many = (math.log(max(end, 1.0)) for end in self.items(z))
        low, high = Region(self.centres, self.covariance, partial(entropy, many)).ends(z)
        return np.minimum(low, few), high


CIRCLE = np.stack([np.cos(np.linspace(0.0, 2.0 * np.pi, 512)), np.sin(np.linspace(0.0, 2.0 * np.pi, 512))])


def closed_domain_bands(parts: Sequence[Observed], n: int) -> Uncertainty:
    """Bands for one closed domain, from any number of parts that were not added together."""
    lines = [linear(part) for part in parts]
    models = [model(part, line, n) for part, line in zip(parts, lines, strict=True)]
    d = float(sum(part.slots[0] for part in parts))
    weights = [part.slots[0] / d for part in parts]

    def known(draw: Callable[[Line | Circle], Band]) -> Band:
        own = [draw(line) for line in lines]
        return blend([settle_variances(b, draw(m)) for b, m in zip(own, models, strict=True)], weights)

    shares, tails = known(lambda line: line.shares(n)), known(lambda line: line.tails(n))
    own = [line.moments(SCORES) for line in lines]
    seen = [m.moments(SCORES, line.horizon).covariance for m, line in zip(models, lines, strict=True)]
    above = Band(tails.low[-1:], tails.high[-1:], tails.variance[-1:])
    exact = small_domain_law(parts)
    items: ItemsInterval = (lambda z: (math.inf, d)) if exact is None else (lambda z: (exact.ends(z)[0], d))
    scalars = derived_ends(
        blend_moments(own, weights), np.sum([w * w * c for w, c in zip(weights, seen, strict=True)], axis=0), d, items
    )
    alone = blend([m.tails(n) for m in models], weights).variance[1:]
    windows = variances_over_parts([m.window_variances(n) for m in models], weights)
    falling = MonotoneTails(tails.scaled(d), ratios(alone, windows), occurred=exact)
    known_shares, counts = (
        band if exact is None else WithAbsent(band, exact, unit)
        for band, unit in ((shares, 1.0 / d), (shares.scaled(d), 1.0))
    )
    return Uncertainty(known_shares, counts, falling, above, scalars, coverage_in_words(lines, n))


def model(part: Observed, line: Line | Circle, n: int) -> Line | Circle:
    """Expected observation under the monotone law of counts: its variances cannot be negative."""
    tails = decreasing(line.tails(n).low[1:]).clip(0.0, 1.0)
    law = -np.diff(np.concatenate([[1.0], tails]))
    above = float(tails[-1])
    if isinstance(line, Circle):
        return expected_line(part, 0, law, np.array([n + 1.0]), np.array([above]))
    return expected_line(part, 0, law, *fits.shares_above(line.cells, n, above))


def coverage_in_words(lines: Sequence[Line | Circle], n: int) -> str:
    """What the intervals cover, in words."""
    text = "the noise (of the counters and of the publication); the slots and what they hold are taken as they are"
    if any(line.horizon < line.whole.low.size and line.resolved <= n for line in lines):
        text += "; where bins are wide, also every way the counts may lie within them"
    return text + hiding(lines)


def hiding(lines: Sequence[Line | Circle]) -> str:
    """Text on the large counts that noise hides and on what is assumed of them; empty if it hides none."""
    released = [line for line in lines if isinstance(line, Line) and line.horizon < line.whole.low.size]
    if not released:
        return ""
    first = min(int(line.whole.low[line.horizon]) for line in released)
    items = sum(line.tail.most(line.tail_at(line.horizon)) * line.d for line in released)
    most = f"up to {items:,.0f} items may have"
    if all(line.hidden(line.horizon) is None for line in released):
        return (
            f"; no count of {first:,} or more shows above the noise, and none is taken to be there, though {most} one"
        )
    return (
        f"; {most} counts of {first:,} and more, which cannot be told from noise: events, mean, coverage and entropy "
        "take it that such items thin out as those below them do, or faster, and are left as open as that leaves them; "
        "k+ numbers, shares and low quantiles do not hang on it"
    )


def derived_ends(moments: Moments, model: Floats, d: float, items: ItemsInterval) -> dict[str, Ends]:
    """Total, ratios and entropy from the estimates of all SCORES together.

    Args:
        moments: the estimates.
        model: expected covariance of the estimates.
        d: number of slots.
        items: ends of the number of items that occurred, at each z.
    """
    low, high = moments.inner @ moments.mass, moments.outer @ moments.mass
    tail = np.array([0.0, 0.0, moments.tail, 0.0])
    ways = moments.value + np.stack([low, high, high + tail])

    def ellipse(x: int, y: int, centres: Floats) -> tuple[Floats, Floats]:
        pick = np.ix_([x, y], [x, y])
        return centres[:, [x, y]] * d, settle_covariance(moments.covariance[pick], model[pick]) * d**2

    variance = moments.covariance[EVENTS, EVENTS]
    total = Band(ways[:1, EVENTS], ways[2:, EVENTS], np.array([variance]))
    total = settle_variances(total, Band(total.low, total.high, model[EVENTS : EVENTS + 1, EVENTS]))
    return {
        "total": total.scaled(d),
        "mean": Region(*ellipse(EVENTS, ITEMS, ways), _mean),
        "one_hit_ratio": Region(*ellipse(ONCE, ITEMS, ways[:1]), share),
        "coverage": Region(*ellipse(ONCE, EVENTS, ways), lambda x, y: 1.0 - share(x, y)),
        "entropy": Entropy(*ellipse(EVENTS, SURPRISE, entropy_ways(moments, d)), items),
    }


def _mean(events: Floats, items: Floats) -> Floats:
    """Events per item; at least one."""
    return np.asarray(np.maximum(events / np.maximum(items, 1.0), 1.0))


def share(part: Floats, whole: Floats) -> Floats:
    """Part / whole, between 0 and 1."""
    return np.asarray((np.maximum(part, 0.0) / np.maximum(whole, 1.0)).clip(0.0, 1.0))


def entropy(most: float, events: Floats, surprise: Floats) -> Floats:
    """Ln N - S/N, between 0 and ln d."""
    events = np.maximum(events, 1.0)
    return np.asarray((np.log(events) - surprise / events).clip(0.0, most))


def entropy_ways(moments: Moments, d: float) -> Floats:
    """(c, 4) estimates for the least and the largest entropy that wide bins and the far tail allow.

    Moving a count t up raises the entropy if ln t < S/N, and else lowers it. The content of any part of the far tail
    lowers the entropy most as one item, and raises it most as many items that are as small as they can be.
    """
    value = moments.value
    typical = float(value[SURPRISE] / value[EVENTS]) if value[EVENTS] > 0.0 else 0.0
    slope = [end[EVENTS] * typical - end[SURPRISE] for end in (moments.inner, moments.outer)]
    rising = slope[1] > slope[0]
    most = np.where(rising, moments.outer, moments.inner) @ moments.mass
    least = np.where(rising, moments.inner, moments.outer) @ moments.mass
    if moments.hidden is None:
        return np.asarray(value + np.stack([least, most]))
    far = moments.hidden
    events = np.append(far.events / 4.0 ** np.arange(16), 0.0)
    largest = np.log(np.clip(events * d, far.nearest, far.farthest)) + 1.0
    single = np.zeros((events.size, 4))
    single[:, EVENTS] = events
    many = single.copy()
    single[:, SURPRISE], many[:, SURPRISE] = events * largest, events * math.log(far.nearest)
    return np.asarray(value + np.concatenate([least + single, most + many]))
