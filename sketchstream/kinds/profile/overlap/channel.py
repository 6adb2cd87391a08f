"""What noise does to the pattern of a slot: the law of the pattern that is seen, given the one that is true.

In: noise layers, the modulus. Out: probabilities and matrices over patterns. Touches: nothing.
Source: docs/theory/overlap.md, section 2; Dwork et al., ICS 2010 (randomized response).

Patterns are numbers with a bit for each group, the first group's highest. A set S of groups is such a number too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sketchstream.array_types import Floats

MEETING: Floats = np.array([[0.0, 1.0], [1.0, -1.0]])
"""Matrix of one group, from Pr[empty in S] by S to Pr[true pattern]."""
MISSING: Floats = np.array([[1.0, 1.0], [1.0, 0.0]])
"""Matrix of one group, from numbers of items by pattern to the number of items that are in no group of S, by S."""


def contraction(epsilons: Iterable[float], modulus: int) -> float:
    """L of randomized response on Z_modulus under these layers: a counter keeps its value with probability L more
    than it takes any other.
    """  # noqa: D205
    return math.prod(math.expm1(epsilon) / (math.exp(epsilon) + modulus - 1) for epsilon in epsilons)


@dataclass(frozen=True)
class Channel:
    """How the noise of a counter changes whether it is 0.

    Args:
        empty: Pr[seen not 0 | no item of the group in the slot].
        full: Pr[seen not 0 | some item].
    """

    empty: float
    full: float

    @classmethod
    def of_layers(cls, epsilons: Sequence[float], modulus: int) -> Channel:
        """Make the channel of counters that add up weights; what wraps to 0 is not in it."""
        contracted = contraction(epsilons, modulus)
        seen = (1 - contracted) * (modulus - 1) / modulus
        return cls(seen, contracted + seen)

    @classmethod
    def of_presence(cls, epsilons: Sequence[float], modulus: int) -> Channel:
        """Make the channel of counters that are uniform after an event."""
        uniform = (modulus - 1) / modulus
        return cls((1 - contraction(epsilons, modulus)) * uniform, uniform)

    @property
    def one(self) -> Floats:
        """(2, 2) law of whether a counter is seen not 0 (rows), by whether some item is there (columns)."""
        return np.array([[1 - self.empty, 1 - self.full], [self.empty, self.full]])

    @property
    def kept(self) -> float:
        """Probability that a pattern is seen by `one` of each group; else it is that of drawn counters."""
        return 1.0

    def drawn(self, groups: int) -> Floats:
        """(2^m,) law of the pattern of counters that were drawn together."""
        return np.zeros(2**groups)


@dataclass(frozen=True)
class JointChannel(Channel):
    """The channel where the noise of a slot's counters is drawn together.

    Args:
        quiet: probability that it is 0; else it is uniform in all groups.
        uniform: Pr[a uniform counter is not 0].
        occupied: Pr[not 0 without noise | some item].
    """

    quiet: float = 1.0
    uniform: float = 0.5
    occupied: float = 1.0

    @classmethod
    def of(cls, epsilons: Sequence[float], modulus: int, groups: int, *, presence: bool) -> JointChannel:
        """Make the channel of these layers, whose noise is drawn for this number of groups together."""
        quiet, uniform = contraction(epsilons, modulus**groups), (modulus - 1) / modulus
        occupied = uniform if presence else 1.0
        seen = (1 - quiet) * uniform
        return cls(seen, seen + quiet * occupied, quiet, uniform, occupied)

    @property
    def one(self) -> Floats:
        """See `Channel`; without noise."""
        return np.array([[1.0, 1 - self.occupied], [0.0, self.occupied]])

    @property
    def kept(self) -> float:
        """See `Channel`."""
        return self.quiet

    def drawn(self, groups: int) -> Floats:
        """See `Channel`."""
        return Kronecker(np.array([[1 - self.uniform, 0.0], [self.uniform, 0.0]]), groups)(np.eye(1, 2**groups)[0])


class Kronecker:
    """A matrix over all patterns that is a product of one (2, 2) matrix for each group; it is never made.

    Args:
        axes: (m, 2, 2), or (2, 2): the same for each group.
        groups: m.
    """

    def __init__(self, axes: Floats, groups: int) -> None:
        self.axes: Floats = np.broadcast_to(axes, (groups, 2, 2))
        halves = self.axes[: groups // 2], self.axes[groups // 2 :]
        self._left, self._right = (product(half) for half in halves)

    def __call__(self, vectors: Floats) -> Floats:
        """(..., 2^m) the product with each vector, as two products with matrices of half of the groups."""
        left, right = (one.astype(vectors.dtype, copy=False) for one in (self._left, self._right))
        product: Floats = (left @ vectors.reshape(-1, len(left), len(right)) @ right.T).reshape(vectors.shape)
        return product

    def columns(self, matrix: Floats, first: int = 0) -> Floats:
        """(2^m - first, n) the product with each column.

        Args:
            matrix: (2^m, n).
            first: row from which on it is wanted, a multiple of the size of the right half.
        """
        size = len(self._right)
        left = self._left[first // size :]
        below = (left @ matrix.reshape(len(self._left), -1)).reshape(len(left), size, -1)
        product: Floats = (self._right @ below).reshape(-1, matrix.shape[1])
        return product

    def __matmul__(self, other: Kronecker) -> Kronecker:
        return Kronecker(self.axes @ other.axes, len(self.axes))

    @property
    def transposed(self) -> Kronecker:
        """Rows and columns exchanged."""
        return Kronecker(self.axes.transpose(0, 2, 1), len(self.axes))

    @property
    def inverse(self) -> Kronecker:
        """The inverse of this matrix."""
        return Kronecker(np.linalg.inv(self.axes).astype(np.float64), len(self.axes))

    @property
    def squared(self) -> Kronecker:
        """The squares of its entries."""
        return Kronecker(self.axes**2, len(self.axes))


def product(axes: Floats) -> Floats:
    """The Kronecker product of a few matrices."""
    out: Floats = np.ones((1, 1))
    for axis in axes:
        out = np.asarray(np.kron(out, axis), np.float64)
    return out
