"""Levels as they were published, and the law of items that explains them.

In: slot laws of levels; numbers of items at each count. Out: laws of slots, by the compound Poisson recursion. Touches:
nothing.
Source: docs/theory/profile.md 6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.kinds.profile.estimate.likelihood import kernels
from sketchstream.kinds.profile.estimate.linear.circle import Circle
from sketchstream.kinds.profile.estimate.linear.line import Line
from sketchstream.kinds.profile.estimate.open_domain.wide_cells import Heavy


@dataclass(frozen=True)
class Level:
    """One level of one part.

    Args:
        estimator: linear estimates.
        m: number of slots.
        share: expected share of the items.
        law: (S+1,) unbiased estimate of the slot law at 0..S; may be negative.
    """

    estimator: Line | Circle
    m: float
    share: float
    law: Floats


def exp_series(intensity: Floats, load: float) -> Floats:
    """P(0..S) of the compound Poisson law with intensities Lam_t/m (index 0 ignored) and their full sum `load`.

    With both negated: its reciprocal as a power series.
    """
    out = np.empty_like(intensity)
    kernels.compound(intensity * np.arange(intensity.size), load, out)
    return out


@dataclass(frozen=True)
class VarianceModel:
    """The law of items at which variances are computed: Lam_t for t <= S and the number of items above.

    Args:
        intensity: (S+1,) items at each count, index 0 unused.
        beyond: items with larger counts.
        heavy: the law of these; None if none show, or nothing was found out about it.
    """

    intensity: Floats
    beyond: float
    heavy: Heavy | None = None

    @cached_property
    def items(self) -> float:
        """Number of distinct items."""
        return float(self.intensity[1:].sum()) + self.beyond

    @cached_property
    def numbers(self) -> Floats:
        """(S+1,) number of items, then items at each count."""
        return np.append(self.items, self.intensity[1:])

    @cached_property
    def tails(self) -> Floats:
        """(S+2,) items with a count of at least 0..S+1."""
        return np.append(np.cumsum(self.intensity[::-1])[::-1], 0.0) + self.beyond

    def slot_law(self, m: float, share: float) -> Floats:
        """(S+1,) law of a slot's count at 0..S in a level of m slots."""
        return exp_series(self.intensity * (share / m), self.items * share / m)

    def undone(self, m: float, share: float) -> Floats:
        """(S+1,) reciprocal of the slot law as a power series."""
        return exp_series(self.intensity * (-share / m), -self.items * share / m)

    @cached_property
    def known_tails(self) -> Floats:
        """(S+1+E,) items with a count of at least 1..S+1, and from each further edge on."""
        if self.heavy is None:
            return self.tails[1:]
        return np.append(self.tails[1:-1], self.beyond * self.heavy.tails)

    def with_tails(self, tails: Floats) -> VarianceModel:
        """The law with other `known_tails`, which do not rise; in the same shape inside wide cells."""
        size = self.intensity.size
        beyond = tails[size - 1 :]
        heavy = None if self.heavy is None else self.heavy.moved(-np.diff(beyond, append=0.0))
        return VarianceModel(np.append(0.0, -np.diff(tails[:size])), float(beyond[0]), heavy)

    def scaled(self, factor: float) -> VarianceModel:
        """Rescale the law of counts to another number of items."""
        return replace(self, intensity=self.intensity * factor, beyond=self.beyond * factor)
