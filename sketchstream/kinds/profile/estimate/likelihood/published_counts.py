"""The published numbers of one level, as likelihoods read them.

In: a histogram and the law of its noise. Out: both in one object. Touches: nothing.
Source: docs/theory/profile.md 7.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from sketchstream.array_types import Floats


@dataclass
class PublishedCounts:
    """The published numbers: h, its total d, and the law of its noise.

    Args:
        form: kernels.EXACT, CUMULATIVE or BINS.
        h: (m,) slots in each cell.
        d: total number of slots.
        q: ratio of the noise law (0 for EXACT).
        mult: number of independent noise terms in each number (a fraction for folds).
        last: BINS only: the last cell has `mult` times this number of noise terms; above 1 if it is a sum of cells.
    """

    form: int
    h: Floats
    d: float
    q: float
    mult: float
    last: float = 1.0

    @property
    def variance(self) -> float:
        """Variance of the noise of one published value."""
        return self.mult * 2.0 * self.q / (1.0 - self.q) ** 2 if self.form else 0.0
