"""Facts about a whole sketch that its profile needs, besides what was observed of its slots.

In: facts. Out: `SketchFacts`, and from it the share of the items that counted. Touches: nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sketchstream.kinds.groups.group_list import GroupSample

IMPLAUSIBLE_DEVIATIONS: Final = 6.0
"""Standard deviations from which a number of slots is not that of a sample of the whole domain."""


@dataclass(frozen=True)
class SketchFacts:
    """Facts about the whole sketch, for its profile.

    Args:
        epsilon: epsilon of the largest layer; None: that of the slots.
        cost: cost of the publication; None: that of the slots.
        total: noisy sum of the weights, and parameters of the discrete Laplace draws in it; None: not counted.
        signed: whether events may be deletions, so that a total may be negative.
        sample: the items that counted, if not all did; answers are those of all of them.
        kept: items of a closed domain of which a sample has slots, and the probability of each; None: all have one.
        max_total: bound on the total of one item; None: unknown.
    """

    epsilon: Fraction | None = None
    cost: Fraction | None = None
    total: tuple[int, tuple[Fraction, ...]] | None = None
    signed: bool = False
    sample: GroupSample | None = None
    kept: tuple[int, Fraction] | None = None
    max_total: int | None = None

    def kept_share(self, slots: int) -> Fraction:
        """Share of a closed domain that has slots: `slots` of its items; the sampling rate if partitions are missing.

        Args:
            slots: number of slots that were published.
        """
        if self.kept is None:
            return Fraction(1)
        size, rate = self.kept
        far = IMPLAUSIBLE_DEVIATIONS * math.sqrt(float(rate * (1 - rate)) * size) + 1.0
        return Fraction(slots, size) if 0 < slots <= size and abs(slots - rate * size) <= far else rate

    def share(self, slots: int) -> Fraction:
        """Share of the items that counted: those with slots, and of these those that count in a group."""
        return self.kept_share(slots) * (1 if self.sample is None else self.sample.share)
