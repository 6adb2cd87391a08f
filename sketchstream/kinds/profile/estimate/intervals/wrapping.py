"""Counts that may have wrapped: what a histogram of counts modulo p says of counts that have no upper limit.

In: the number of items whose residue is near the top of the circle. Out: which side of a number the wrapped counts move
it to, and how far. Touches: nothing.
Source: docs/theory/profile.md 11.

An item with a count of p or more appears at its residue, or not at all where the count is a multiple of p. So the
numbers of items that occurred, that occurred k times or more, totals, means and quantiles are too low, and numbers of
items with one exact count are too high. Where the law of counts does not rise from k on, no residue holds more wrapped
items than the residues k .. p - 1 hold on average: each count m p + s is at least as rare as the p - k counts before
m p, and those have such residues.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.estimates import Bound
from sketchstream.kinds.profile.estimate.uncertainty.bands import Band

LOWER: Final[Bound] = "lower"
MODULO: Final[Bound] = "modulo"
SHOWS: Final = 1.64
"""Standard deviations from which items at the top of the circle are taken for real."""
MATERIAL: Final = 0.25
"""Part of half an interval from which a shift of its end makes the number a bound, where wrapped counts show."""
HIDDEN: Final = 0.5
"""Like `MATERIAL` where no wrapped count shows, for the shift by as many as the noise can hide."""


def top_of(modulus: int) -> int:
    """The first of the residues at the top of the circle, a quarter of them."""
    return modulus - max(modulus // 4, 1)


@dataclass(frozen=True)
class Wrapping:
    """The evidence for counts of `modulus` or more.

    Args:
        modulus: p.
        top: band of the number of items whose residue is at least `top_of(modulus)`.
    """

    modulus: int
    top: Band

    @property
    def shows(self) -> bool:
        """Whether there are items near the top of the circle, beyond the noise: then some are likely beyond it."""
        return float(self.top.low[0]) > SHOWS * math.sqrt(max(float(self.top.variance[0]), 0.0))

    def hidden(self, z: float) -> float:
        """The most wrapped items at any one residue, as many as the noise can hide included."""
        return max(float(self.top.ends(z)[1][0]), 0.0) / (self.modulus - top_of(self.modulus))

    def most(self, z: float) -> float:
        """The most wrapped items at any one residue, by which ends are moved; 0 where nothing shows at the top."""
        return self.hidden(z) if self.shows else 0.0

    def residues_below(self, size: int) -> Floats:
        """(size,) number of residues below k = 0, 1, ..: those whose wrapped items are missing in a k+ number."""
        return np.minimum(np.arange(size, dtype=np.float64), self.modulus)

    def marks(self, half: float, residues: float, z: float) -> bool:
        """Whether wrapped items may shift an end by a part of half its interval that matters.

        Args:
            half: half the width of the interval, before it was widened.
            residues: number of residues that hold the items that shift it.
            z: standard deviations of the interval.
        """
        return residues * self.hidden(z) > (MATERIAL if self.shows else HIDDEN) * half

    def to_dict(self, z: float) -> dict[str, Any]:
        """Plain data: the modulus, whether counts near it show, and the most items that may have reached it."""
        most = self.modulus * self.most(z) if self.shows else None
        return {"modulus": self.modulus, "shows": self.shows, "items_at_most": most}

    @property
    def said(self) -> str:
        """Sentence that tells readers of a table about wrapped counts."""
        p = self.modulus
        text = f"counts are kept modulo {p}, so an item counted {p} times or more appears with what remains"
        if not self.shows:
            return (
                f"{text}: none shows, and intervals take it that there are hardly any; but totals and means have no "
                "upper end, as few very heavy items are enough to exceed any, and numbers that more items than their "
                "intervals hold could exceed without showing are marked as lower bounds"
            )
        return (
            f"{text}, and counts near {p} do show: numbers marked as lower or upper bounds are no more than that, "
            f"totals and means have no upper end, and all other ends allow for wrapped counts if no count above "
            f"{top_of(p)} is more frequent than smaller ones; a larger modulus would tell"
        )


def bound_kind(name: str, *, counted: bool) -> Bound | None:
    """What a number of counts modulo p is whether or not counts near p show; None: an estimate.

    Args:
        name: name of the number, as in `Profile.interval`.
        counted: whether the total is counted apart from the counts.
    """
    if name in ("total", "mean"):
        return None if counted else "lower"
    return {"coverage": LOWER, "entropy": MODULO}.get(name)


def mark_bound(title: str, bound: str | None) -> str:
    """The title of a number that is a bound.

    Args:
        title: title of the number.
        bound: the side on which the number bounds the truth, as `Bound` has it; None: it is not a bound.
    """
    words = {"lower": "lower bound", "upper": "upper bound", "modulo": "of counts modulo the modulus"}
    return title if bound is None else f"{title} ({words[bound]})"
