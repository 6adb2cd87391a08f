"""Counters that are 0 although items of their group are in the slot, because their counts add up to the modulus.

In: published histograms of groups, their noise. Out: the law of an item's count modulo p, and by how much slots look
empty. Touches: nothing.
Source: docs/theory/overlap.md, section 4; Buchmann & Gruebel, Annals of Statistics 2003 (decompounding).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Floats

MAX_LOAD = 60.0
"""Loads above it are taken as this: nothing is empty there."""
MAX_ITEMS_PER_SLOT = 1.5
"""Items in a slot up to which a level tells the counts of single items."""
KNOTS = 500
"""Loads between which factors are interpolated."""
USED_FROM = 4.0
"""Standard errors by which a number of items with a count must be above 0 to be used for the tail."""
ALL_OR_NOTHING = 0.55
"""Standard error of a tail of unknown shape, in parts of it: its 95% interval begins below none at all."""
RATIOS = np.linspace(0.0, 1.0, 201)
"""Ratios of a geometric tail that are tried."""
UNSURE = 0.1
"""Part of the correction that may be wrong."""
MIN_WAVE = 1e-3
"""Least size of the values of a slot's characteristic function that are read: near 0 their logarithms are unbounded."""
SQUARED = 64
"""Modulus above which slots that are 0 in two groups are bounded, not computed."""


@dataclass(frozen=True, eq=False)
class CountLaw:
    """Law of one item's count modulo p.

    Args:
        counts: (p,) probabilities; index 0 for counts that are multiples of p.
        doubt: standard error of that one, which no slot shows.
    """

    counts: Floats
    doubt: float


@dataclass(frozen=True, eq=False)
class Wraps:
    """Laws of one item's count modulo p, in each group.

    Args:
        counts: (m, p) probabilities; index 0 for counts that are multiples of p.
        known: (m,) whether the law of a group was found; else items are taken to count once.
        doubts: (m,) standard errors of the shares of items whose counts are multiples of p.
    """

    counts: Floats
    known: npt.NDArray[np.bool_]
    doubts: Floats

    @classmethod
    def of(cls, laws: Sequence[CountLaw | None], modulus: int) -> Wraps:
        """Take what was found of each group."""
        known = np.array([law is not None for law in laws])
        once = CountLaw(np.eye(1, modulus, 1)[0], 0.0)
        counts, doubts = zip(*((one.counts, one.doubt) for one in (law or once for law in laws)), strict=True)
        return cls(np.array(counts), known, np.array(doubts))

    @property
    def visible(self) -> Floats:
        """(m, 2, 2) of each group: whether an item shows in it (rows), by whether it is in it (columns)."""
        return np.array([[[1.0, hidden], [0.0, 1.0 - hidden]] for hidden in self.counts[:, 0]])

    def factors(self, loads: Floats) -> Floats:
        """(..., 2^m) how much likelier a slot is 0 in all groups of S than it is empty in them.

        Exact if the counts of one group wrap, or those of several groups whose items differ.

        Args:
            loads: (..., 2^m) items a slot in some group of S, by S.
        """
        out = np.ones_like(loads)
        for group, curve in enumerate(self._curves):
            axes = (-1, 2**group, 2, loads.shape[-1] >> (group + 1))
            (without, with_it), here = np.moveaxis(loads.reshape(axes), 2, 0), out.reshape(axes)
            here[:, :, 1] *= np.exp(curve(np.clip(with_it - without, 0.0, MAX_LOAD)))
        return out

    def hidden(self, group: int, loads: Floats) -> Floats:
        """(n,) share of slots by which `factors` may be wrong: slots of several items whose counts add up to 0.

        `factors` allows for such slots, and may err by a part of them, since the law of counts is an estimate. It does
        not allow for slots that are 0 in two groups at once: as many are added as if all items were in two groups.

        Args:
            group: position of the group.
            loads: (n,) items of the group a slot.
        """
        crowded = np.minimum(loads, MAX_LOAD)
        empty, (lost, *_), modulus = np.exp(-crowded), self.counts[group], self.counts.shape[1]
        one = crowded * empty
        sums = empty * np.expm1(self._curves[group](crowded)) - one * lost
        if modulus > SQUARED:
            return np.asarray(UNSURE * np.maximum(sums, 0.0) + (1 - empty - one) / modulus**2, np.float64)
        wave, both = np.fft.fft(self.counts[group]), np.zeros_like(empty)
        for other in wave:
            both += np.exp(crowded[:, None] * (wave * other - 1)).real.sum(axis=1)
        twice = both / modulus**2 - empty - one * lost**2
        return np.asarray(UNSURE * np.maximum(sums, 0.0) + np.maximum(twice, 0.0), np.float64)

    @cached_property
    def _curves(self) -> list[Callable[[Floats], Floats]]:
        """The logarithm of one group's factor, by the load of the items that are in no other group of S."""
        from scipy.interpolate import CubicSpline

        loads = MAX_LOAD * np.linspace(0, 1, KNOTS) ** 2
        waves = np.fft.fft(self.counts, axis=1)
        return [CubicSpline(loads, np.log(np.exp(loads[:, None] * wave).real.mean(axis=1))) for wave in waves]


def law_of_counts(
    histograms: Sequence[Floats],
    slots: float,
    shares: Iterable[float],
    kept: float,
    noise: float,
    items: float,
) -> CountLaw | None:
    """Law of one item's count in one group; None where nothing tells it.

    A slot's counter is a sum of the counts of a Poisson number of items, so the logarithm of its characteristic
    function gives the number of items with each count but multiples of p, which follow from the tail.

    Args:
        histograms: (p,) published numbers of slots by residue, for each level.
        slots: slots of a level.
        shares: shares of the items that the levels receive.
        kept: contraction of the noise of the counters (`channel.contraction`).
        noise: variance of the published noise of an entry.
        items: approximate number of items of the group.
    """
    modulus = len(histograms[0])
    total, weight = np.zeros(modulus), 0.0
    for histogram, share in zip(histograms, shares, strict=True):
        load = share * items / slots
        if load > MAX_ITEMS_PER_SLOT:
            continue
        law = (np.asarray(histogram, np.float64) / slots - (1 - kept) / modulus) / kept
        wave = np.fft.fft(law + (1 - law.sum()) / modulus)
        if np.abs(wave).min() < MIN_WAVE:
            continue
        error = (slots * (1 - kept) / modulus + slots * min(load, 1.0) / modulus + noise) / (kept * share) ** 2
        error *= np.exp(2 * load)
        total += np.fft.ifft(np.log(wave)).real * slots / share / error
        weight += 1 / error
    if not weight:
        return None
    return _with_tail(total / weight, float(np.sqrt(1 / weight)))


def _with_tail(numbers: Floats, error: float) -> CountLaw | None:
    """Numbers of items by count as a law, in which a geometric tail stands for those that noise hides.

    Args:
        numbers: (p,) measured numbers of items; index 0, for multiples of p, is not read.
        error: standard error of each.
    """
    modulus = len(numbers)
    sure = np.flatnonzero(numbers[1:] > USED_FROM * error) + 1
    if not sure.size:
        return None
    last = int(sure[-1])
    hidden = modulus - 1 - last
    ratio, spread, known = _tail_ratio(numbers, last, error)
    tail = numbers[last] * ratio ** np.arange(1, hidden + 2)
    counts = np.concatenate([tail[-1:], np.maximum(numbers[1 : last + 1], 0.0), tail[:-1]])
    longer = numbers[last] * ((ratio + spread) ** (hidden + 1) - ratio ** (hidden + 1))
    other_shape = error / np.sqrt(hidden) if hidden else 0.0 if known else ALL_OR_NOTHING * counts[0]
    total = counts.sum()
    doubt = np.sqrt((error * ratio ** (hidden + 1)) ** 2 + longer**2 + other_shape**2)
    return CountLaw(counts / total, float(min(doubt / total, 1 / modulus)))


def _tail_ratio(numbers: Floats, last: int, error: float) -> tuple[float, float, bool]:
    """Ratio of a geometric tail after the last sure count, its standard error, and whether the counts say so.

    The sure counts before it give one ratio, the counts after it, which noise hides one by one, another. Where they
    differ the law has an end, as with at most three events a day, and the later ones are right. Where no count comes
    after it, sure counts that do not fall geometrically leave open what the tail is.
    """
    first = max(1, last - 3)
    after = numbers[last + 1 :]
    before = None
    if last > first and numbers[first] > USED_FROM * error:
        rise = float((numbers[last] / numbers[first]) ** (1 / (last - first)))
        spread = rise * error * float(np.hypot(1 / numbers[last], 1 / numbers[first])) / (last - first)
        before = min(rise, 1.0), spread
    if not after.size:
        ratio, spread = before or (0.0, error / float(numbers[last]))
        straight = numbers[first] * ratio ** np.arange(last - first + 1)
        fits = bool(np.abs(numbers[first : last + 1] - straight).max() <= USED_FROM * error)
        return ratio, spread, before is not None and fits and ratio + 2 * spread < 1
    steps = np.arange(1, after.size + 1)
    squares = ((after - numbers[last] * RATIOS[:, None] ** steps) ** 2).sum(axis=1)
    ratio = float(RATIOS[squares.argmin()])
    spread = error / float(numbers[last] * np.linalg.norm(steps * ratio ** (steps - 1)))
    if before is not None and abs(before[0] - ratio) <= 2 * np.hypot(before[1], spread):
        weights = np.array([before[1], spread]) ** -2.0
        ratio, spread = float(weights @ [before[0], ratio] / weights.sum()), float(weights.sum() ** -0.5)
    return ratio, spread, True
