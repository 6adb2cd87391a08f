"""Unit item: counters are residues, so the sums of items that share a slot wrap; what they say of items at each count.

In: levels of residues, a law of items. Out: joint estimates of the items at each count with their covariance, the curve
of the number of items. Touches: nothing.
Source: docs/theory/profile.md 6 (compound Poisson law on Z_p), `docs/theory/reconstruction.md` 4 (least squares).

With `load` items in a slot and phi the transform of the law of their counts, a slot's residue has the law whose
transform is exp(load (phi(w) - 1)), w = 2 pi j / p: exactly, however many sums wrap. All levels together are read by
generalised least squares around a law of items, which reaches the Fisher information. A level whose residues are
nearly uniform has a transform near zero and no weight; nothing else decides which levels count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Complexes, Floats
from sketchstream.kinds.profile.estimate.linear.circle import Circle
from sketchstream.kinds.profile.estimate.open_domain.cardinality import HOPELESS, MIN_ITEMS, Curve
from sketchstream.kinds.profile.estimate.open_domain.laws import Level

MAX_MODULUS_READ = 512
"""Largest modulus that is read in this way: matrices have modulus^2 numbers. Sums hardly ever reach larger moduli."""
MIN_CELL_VARIANCE = 0.05
"""Least variance of a cell, in slots: that of a cell that is almost surely empty."""
RIDGE = 1e-13
"""Part of the largest information that each count has at least, so that an inverse exists where nothing is known."""
NEAR_POINTS, FAR_POINTS = 13, 6
"""Numbers of items at which the curve is computed: within `REACH` deviations of its root, and far above it."""
REACH = 4.5
SATURATED, SURE_DEVIATIONS = 0.75, 1.96
"""Residues are saturated if items per slot, less 1.96 standard deviations, are above this part of ln(modulus)."""
FITTED = 4
"""Laws that are tried for a number of items far from the root, each a step from the one before."""
ROOT_STEPS = 12
"""Most steps to the root of a curve."""
NUMBERS, MEANS = 40, 14
"""Numbers of items, and means of their counts, among which a first law is chosen."""
HIDDEN_BELOW, HIDDEN_POINTS = 12.0, 21
"""Distance of the data from no items, in standard deviations, below which items hardly show; numbers then tried."""
ABOVE = 0.85
"""Factor applied to distances above the estimate at low signal; long-tailed laws bias estimates towards 0."""
MAX_STRETCHES = 31
"""Most stretches of counts in which a law may differ from a first one, where items hardly show."""
OTHER, SPREAD = 2.0, 0.02
"""Standard deviation of the number of items with one count: a multiple of that number, plus a part of all items."""


@dataclass(frozen=True)
class Joint:
    """Unbiased estimates of the numbers of items with counts 1..p-1.

    Args:
        value: (p-1,) estimates.
        covariance: (p-1, p-1) covariance of their errors, given the items.
    """

    value: Floats
    covariance: Floats

    def of(self, scores: Floats) -> tuple[Floats, Floats]:
        """Estimates and covariance of sums over the items of scores at counts 1..p-1. (k, p-1) -> (k,), (k, k)."""
        return scores @ self.value, scores @ self.covariance @ scores.T


def exact(levels: Sequence[Level]) -> bool:
    """Whether these levels hold residues that are read here."""
    estimator = levels[0].estimator
    return isinstance(estimator, Circle) and estimator.p <= MAX_MODULUS_READ


class Residues:
    """All levels of one part of unit item."""

    def __init__(self, levels: Sequence[Level]) -> None:
        circles = [level.estimator for level in levels if isinstance(level.estimator, Circle)]
        first = circles[0]
        self.p, self.eigenvalue = first.p, first.eigenvalue
        self.noise = first.v if first.form == "bins" else 0.0
        self.m = np.array([level.m for level in levels])
        self.share = np.array([level.share for level in levels])
        self.slots = np.stack([circle.slots for circle in circles])
        self.most = HOPELESS * float((self.m / self.share).max())
        self._apart = (np.arange(self.p)[:, None] - np.arange(self.p)) % self.p

    def transforms(self, intensity: Floats) -> Complexes:
        """(L, p) transform of the law of a slot of each level; intensity: (p,) items at each count, index 0 unused."""
        full = intensity.copy()
        full[0] = 0.0
        spectrum = np.fft.fft(full) - full.sum()
        return np.asarray(np.exp((self.share / self.m)[:, None] * spectrum))

    def _laws(self, intensities: Floats) -> Floats:
        """Laws of slots, where items at each count are rows, index 0 unused. (.., p) -> (.., L, p)."""
        spectrum = np.fft.rfft(intensities) - intensities.sum(axis=-1, keepdims=True)
        rates = (self.share / self.m)[:, None]
        return np.asarray(np.fft.irfft(np.exp(rates * spectrum[..., None, :]), self.p))

    def weights(self, intensity: Floats) -> Floats:
        """(L,) largest part of the information about one frequency that a level has; 0 if its residues are uniform."""
        square = np.abs(self.transforms(intensity)[:, 1:]) ** 2
        error = (1.0 - self.eigenvalue**2 * square) / self.m[:, None] + self.noise * self.p / self.m[:, None] ** 2
        own = (self.share / self.m)[:, None] ** 2 * square / np.maximum(error, 1e-300)
        return np.asarray((own / np.maximum(own.sum(axis=0), 1e-300)).max(axis=1))

    def _information(self, intensity: Floats) -> tuple[Floats, Floats]:
        """Fisher information about the items at counts 1..p-1, and the score at these items."""
        transform = self.transforms(intensity)
        law = np.fft.ifft(transform, axis=1).real
        mean = self.m[:, None] * np.maximum(self.eigenvalue * law + (1.0 - self.eigenvalue) / self.p, 0.0)
        variance = np.maximum(mean + self.noise, MIN_CELL_VARIANCE)
        weight, left = np.fft.fft(1.0 / variance, axis=1), (variance - mean) / variance
        scale = self.eigenvalue * self.share
        # cells of one level have the covariance diag(variance) - mean mean' / m; its inverse (Sherman & Morrison) is
        # diag(1 / variance) and a term of rank one, over m - sum of mean^2 / variance = sum of mean * left
        spread = (mean * left).sum(axis=1)
        spread = np.where(spread > 0.0, spread, np.inf)
        gap = (self.slots - mean) / variance
        gap_all = (mean * gap).sum(axis=1) / spread
        # whole: inner products of the laws shifted by each pair of counts, weighted by 1 / variance, as transforms
        whole = np.zeros((self.p, self.p), dtype=np.complex128)
        for j in range(self.m.size):
            whole += scale[j] ** 2 * (np.conj(transform[j])[:, None] * transform[j] * weight[j][self._apart])
        table = np.fft.fft(np.fft.ifft(whole, axis=0), axis=1).real / self.p
        back = np.conj(transform)
        residual = np.fft.ifft(back * np.fft.fft(left, axis=1), axis=1).real
        # one item more at count t replaces the law of its slot by the law shifted by t: hence the differences to 0
        residual = residual[:, 1:] - residual[:, :1]
        pull = np.fft.ifft(back * np.fft.fft(gap, axis=1), axis=1).real
        pull = pull[:, 1:] - pull[:, :1] - gap_all[:, None] * residual
        information = table[1:, 1:] - table[:1, 1:] - table[1:, :1] + table[0, 0]
        information += (residual * (scale**2 / spread)[:, None]).T @ residual
        return (information + information.T) / 2.0, scale @ pull

    def _solved(self, information: Floats, right: Floats) -> Floats:
        """Inverse information times columns."""
        from scipy.linalg import cho_factor, cho_solve

        diagonal = np.einsum("ii->i", information)
        ridge = RIDGE * float(diagonal.max())
        while True:
            diagonal += ridge
            try:
                return np.asarray(cho_solve(cho_factor(information), right))
            except np.linalg.LinAlgError:
                ridge *= 100.0

    def estimate(self, intensity: Floats) -> Joint:
        """Least squares around a law of items, with errors under it. Given the items, only where they fall varies."""
        information, score = self._information(intensity)
        inverse = self._solved(information, np.eye(self.p - 1))
        covariance = inverse - np.diag(intensity[1:])
        return Joint(intensity[1:] + inverse @ score, (covariance + covariance.T) / 2.0)

    def number(self, shape: Floats, items: float) -> tuple[float, float]:
        """Estimate of the number of items around `items` of them with this law, and its standard deviation there.

        The law itself may differ by `_spread`, its sum aside: where a crowd hides some frequencies, those that are seen
        decide. In units of that spread its information is B; sums are of (1 + B)^-1, which exists however small B is.
        """
        from scipy.linalg import cho_factor, cho_solve

        information, score = self._information(shape * items)
        spread = self._spread(shape, items)
        law, whole = shape[1:] / spread, spread / math.sqrt(float(spread @ spread))
        columns = np.stack([law, whole, spread * score], axis=1)
        known = np.eye(self.p - 1) + spread[:, None] * information * spread
        inner = columns[:, :2].T @ cho_solve(cho_factor(known), columns)
        (law_law, law_whole, law_score), (_, whole_whole, whole_score) = inner.tolist()
        law_law = float(law @ law) - law_law
        tie = (float(law @ whole) - law_whole) / whole_whole
        precision = max(law_law + tie * tie * whole_whole, 1e-300)
        likeliest = items + (law_score + tie * whole_score) / precision
        return float(likeliest), math.sqrt(max(1.0 / precision - items, MIN_CELL_VARIANCE))

    def _spread(self, shape: Floats, items: float) -> Floats:
        """(p-1,) standard deviations of the numbers of items with each count about those of a first law."""
        return np.asarray((OTHER * shape[1:] + SPREAD) * max(items, 1.0))

    def start(self) -> Floats:
        """(p,) items at each count under the likeliest geometric or Poisson law, over all means and numbers of items.

        What is seen may also fit laws far from the true one: transforms of crowded levels turn more than once.
        """
        numbers = np.append(0.0, np.geomspace(max(self.most * 1e-5, 1.0), self.most, NUMBERS))
        best, best_start = -math.inf, np.zeros(self.p)
        for shape in self._shapes():
            value = self._log_likelihood(self._laws(np.multiply.outer(numbers, shape)))
            at = int(value.argmax())
            if value[at] > best:
                best, best_start = float(value[at]), shape * numbers[at]
        return best_start

    def _shapes(self) -> Iterator[Floats]:
        """(p,) shares of items at each count: geometric and Poisson laws, index 0 unused."""
        t = np.arange(1.0, self.p)
        logs = np.cumsum(np.log(t))
        for mean in np.geomspace(1.01, max(self.p / 2.0, 2.0), MEANS):
            for law in (t * math.log1p(-1.0 / mean), t * math.log(mean) - logs):
                shape = np.append(0.0, np.exp(law - law.max()))
                yield shape / shape.sum()

    def law(self, start: Floats, intensity: Floats) -> Floats:
        """(p-1,) a step from a law of items to the likeliest one, held to the start where the data say nothing."""
        return self._step(start, intensity, *self._information(intensity))

    def _step(self, start: Floats, intensity: Floats, information: Floats, score: Floats) -> Floats:
        """`law`, with information and score at these items."""
        items = max(float(start.sum()), 1.0)
        precision = self._spread(start / items, items) ** -2
        system = information + np.diag(precision)
        return np.asarray(intensity[1:] + self._solved(system, score - precision * (intensity[1:] - start[1:])))

    def plausible(self, shape: Floats, items: float) -> float:
        """Log likelihood, but for a constant, of this number of items under all laws near this one together (Laplace).

        The best law alone would mislead: where crowding hides some frequencies, it fits noise.
        """
        start = shape * items
        spread = self._spread(shape, items)
        intensity, best = start, -math.inf
        for left in reversed(range(FITTED)):
            information, score = self._information(intensity)
            way = (intensity[1:] - start[1:]) / spread
            known = np.eye(self.p - 1) + spread[:, None] * information * spread
            value = float(self._log_likelihood(self._laws(intensity))) - 0.5 * float(way @ way)
            best = max(best, value - 0.5 * float(np.linalg.slogdet(known)[1]))
            if left:
                step = np.append(0.0, np.maximum(self._step(start, intensity, information, score), 0.0))
                intensity = step * (items / total) if (total := float(step.sum())) > 0.0 else start
        return best

    def _log_likelihood(self, laws: Floats) -> Floats:
        """Normal log likelihood of the cells given the laws of slots, but for a constant. (.., L, p) -> (..)."""
        mean = self.m[:, None] * np.maximum(self.eigenvalue * laws + (1.0 - self.eigenvalue) / self.p, 0.0)
        variance = np.maximum(mean + self.noise, MIN_CELL_VARIANCE)
        return np.asarray(-0.5 * ((self.slots - mean) ** 2 / variance + np.log(variance)).sum(axis=(-2, -1)))

    def curve(self, intensity: Floats) -> Curve:
        """Signed distances of the data from numbers of items, with this law of counts or one near it.

        Near the root a distance is a score; far above it, where scores say little, it follows from how much less
        likely the data are than at the root.
        """
        items = float(intensity[1:].sum())
        shape = intensity / items if items > 0.0 else np.eye(self.p)[1]
        known: dict[float, float] = {}

        def distance(number: float) -> tuple[float, float]:
            better, deviation = self.number(shape, number)
            known[number] = (better - number) / deviation
            return better, deviation

        root = min(items, self.most)
        for _ in range(ROOT_STEPS):  # steps of Fisher scoring
            found, deviation = distance(root)
            if abs(known[root]) < 1e-3:
                break
            root = min(max(found, root / 2.0, 0.0), 2.0 * root + deviation, self.most)
        known = {}
        _, without = distance(0.0)
        for z in np.linspace(-REACH, REACH, NEAR_POINTS).tolist():
            near = max(root + z * deviation, 0.0)
            if near < self.most:
                distance(near)
        hidden = known[0.0] < HIDDEN_BELOW and without > 1.0  # less noise than an item hides none
        if hidden:
            root, known = self._hidden(shape, root, deviation)
        far, best = max(*known, MIN_ITEMS), self.plausible(shape, root)
        for number in np.geomspace(far, 1.01 * self.most, FAR_POINTS + 1)[1:].tolist():
            known[number] = -math.sqrt(2.0 * max(best - self.plausible(shape, number), 0.0))
        uniform = np.full((self.m.size, self.p), 1.0 / self.p)
        endless = -math.sqrt(2.0 * max(best - float(self._log_likelihood(uniform)), 0.0))
        known[max(known)] = max(known[max(known)], endless)
        at = np.array(sorted(known))
        return Curve(at, _falling(np.array([known[one] for one in at.tolist()]), at <= root), hidden)

    def _hidden(self, shape: Floats, root: float, deviation: float) -> tuple[float, dict[float, float]]:
        """The likeliest number of items where they hardly show above the noise, and distances from others.

        The law that fits best finds items in mere noise. So each number is as likely as under many first laws, and
        laws near them: a number that is too small by the mean likelihood over all laws, because the best of many laws
        proves nothing; one that is too large, by the best law.

        Args:
            shape: shape of the law that fits best, around which likelihoods are expanded.
            root: number of items that goes with it.
            deviation: standard deviation of that number.
        """
        from scipy.special import logsumexp

        shapes = np.array(list(self._shapes()))
        shapes = np.concatenate([shapes, (shapes[2:] + np.eye(self.p)[1]) / 2.0])  # also half of the items once
        # (S,) begins of stretches of counts, in each of which a law differs from a first one by one amount
        starts = np.arange(self.p - 1)
        if starts.size > MAX_STRETCHES:
            starts = np.unique(np.geomspace(1, self.p, MAX_STRETCHES + 1).astype(np.int64))[:-1] - 1
        sizes = np.diff(np.append(starts, self.p - 1))
        spreads = np.array([self._spread(one, max(root, deviation)) for one in shapes])
        widths = np.sqrt(np.add.reduceat(spreads**2, starts, axis=1))
        whole = widths / np.sqrt((widths**2).sum(axis=1, keepdims=True))  # laws differ, but not in their sum

        def mean(x: Floats) -> Floats:
            return np.asarray(np.add.reduceat(x, starts, axis=-1) / sizes)

        # likelihoods with errors at this law: larger ones at another number would count as evidence of items
        information, score = self._information(shape * root)
        known = widths[:, :, None] * mean(mean(information).T) * widths[:, None, :]
        # (n, S, S) information in units of the widths, without the direction in which the sum of a law would change
        across = np.einsum("nij,nj->ni", known, whole)
        known -= whole[:, :, None] * (across - whole * (across * whole).sum(axis=1, keepdims=True))[:, None, :]
        known -= across[:, :, None] * whole[:, None, :]
        known += np.eye(starts.size)
        inverse, size = np.linalg.inv(known), np.linalg.slogdet(known)[1]
        numbers = np.linspace(0.0, min(root + REACH * deviation, self.most), HIDDEN_POINTS)
        likely = np.empty((HIDDEN_POINTS, len(shapes)))
        # the log likelihood to second order at this law, integrated over the laws near each first one (Laplace)
        for at, number in enumerate(numbers.tolist()):
            way = (number * shapes - root * shape)[:, 1:]
            pull = way @ information
            left = widths * mean(score - pull)
            left -= whole * (whole * left).sum(axis=1, keepdims=True)
            likely[at] = (way * (score - pull / 2.0)).sum(axis=1) - size / 2.0
            likely[at] += np.einsum("ni,nij,nj->n", left, inverse, left) / 2.0
        (middle, most), (_, best) = (_top(numbers, one) for one in (logsumexp(likely, axis=1), likely.max(axis=1)))
        few = np.sqrt(2.0 * np.maximum(most - logsumexp(likely, axis=1), 0.0))
        many = np.minimum(few, np.sqrt(2.0 * np.maximum(best - likely.max(axis=1), 0.0)))
        distances = np.where(numbers < middle, few, -ABOVE * many)
        return middle, {**dict(zip(numbers.tolist(), distances.tolist(), strict=True)), middle: 0.0}


def _top(at: Floats, value: Floats) -> tuple[float, float]:
    """Where values are largest, and that value, by the parabola through three of them."""
    i = int(value.argmax())
    if i in (0, at.size - 1):
        return float(at[i]), float(value[i])
    before, here, after = value[i - 1 : i + 2].tolist()
    bend, slope = 2.0 * here - before - after, (after - before) / 2.0
    step = slope / bend if bend > 0.0 else 0.0
    return float(at[i] + step * (at[1] - at[0])), here + slope * step / 2.0


def saturating_load(levels: Sequence[Level]) -> float:
    """Items per slot beyond which residues of sums are too nearly uniform to tell how many items there are."""
    return SATURATED * math.log(Residues(levels).p)


def is_saturated(levels: Sequence[Level], curve: Curve) -> bool:
    """Whether slots of every level may have wrapped more than once, and residues are nearly equally frequent.

    The remaining signal fits several item counts, because phases are known only modulo 2 pi.
    """
    low, _ = curve.ends(SURE_DEVIATIONS)
    return low > saturating_load(levels) * max(level.m / level.share for level in levels)


def _falling(distance: Floats, below: npt.NDArray[np.bool_]) -> Floats:
    """Distances made to fall, with ends that are as far from the root as any number at their distance.

    Where a crowd hides how many items there are, distances are noise: a number may be rejected and larger ones not.
    """
    first = np.maximum(np.minimum.accumulate(distance), 0.0)
    last = np.minimum(np.maximum.accumulate(distance[::-1])[::-1], 0.0)
    return np.where(below, first, last)
