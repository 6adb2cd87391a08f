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
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
MEETING: Floats = np.array([[0.0, 1.0], [1.0, -1.0]])
"""Of one group: from Pr[empty in S] by S to Pr[true pattern]."""


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
        """Of counters that add up weights; what wraps to 0 is not in it."""
        kept = contraction(epsilons, modulus)
        seen = (1 - kept) * (modulus - 1) / modulus
        return cls(seen, kept + seen)

    @classmethod
    def of_presence(cls, epsilons: Sequence[float], modulus: int) -> Channel:
        """Of counters that are uniform after an event."""
        uniform = (modulus - 1) / modulus
        return cls((1 - contraction(epsilons, modulus)) * uniform, uniform)

    @property
    def one(self) -> Floats:
        """(2, 2) law of whether a counter is seen not 0 (rows), by whether some item is there (columns)."""
        return np.array([[1 - self.empty, 1 - self.full], [self.empty, self.full]])

    def matrix(self, groups: int) -> Floats:
        """(2^m, 2^m) law of the pattern that is seen (rows), by the true one (columns)."""
        return kronecker(self.one, groups)


@dataclass(frozen=True)
class JointChannel(Channel):
    """The same where the noise of a slot's counters is drawn together.

    Args:
        kept: probability that it is 0; else it is uniform in all groups.
        uniform: Pr[a uniform counter is not 0].
        occupied: Pr[not 0 without noise | some item].
    """

    kept: float = 1.0
    uniform: float = 0.5
    occupied: float = 1.0

    @classmethod
    def of(cls, epsilons: Sequence[float], modulus: int, groups: int, *, presence: bool) -> JointChannel:
        """Of these layers of the noise of so many groups."""
        kept, uniform = contraction(epsilons, modulus**groups), (modulus - 1) / modulus
        occupied = uniform if presence else 1.0
        seen = (1 - kept) * uniform
        return cls(seen, seen + kept * occupied, kept, uniform, occupied)

    def matrix(self, groups: int) -> Floats:
        """See `Channel`."""
        quiet = kronecker(np.array([[1.0, 1 - self.occupied], [0.0, self.occupied]]), groups)
        drawn = kronecker(np.array([[1 - self.uniform], [self.uniform]]), groups)
        return self.kept * quiet + (1 - self.kept) * drawn


def kronecker(one: Floats, groups: int) -> Floats:
    """The same matrix for each group, over all patterns."""
    out: Floats = np.ones((1, 1))
    for _ in range(groups):
        out = np.asarray(np.kron(out, one), np.float64)
    return out


def applied(one: Floats, vector: Floats) -> Floats:
    """(..., 2^m) the product of `kronecker(one, m)` with each vector, without making that matrix.

    Args:
        one: (2, 2) of a single group.
        vector: (..., 2^m).
    """
    shape = vector.shape
    size = shape[-1]
    out = vector.reshape(-1, size)
    step = size // 2
    while step:
        pairs = out.reshape(-1, 2, step)
        out = np.stack(
            [one[0, 0] * pairs[:, 0] + one[0, 1] * pairs[:, 1], one[1, 0] * pairs[:, 0] + one[1, 1] * pairs[:, 1]],
            axis=1,
        ).reshape(-1, size)
        step //= 2
    found: Floats = out.reshape(shape)
    return found


def meets(groups: int) -> Floats:
    """(2^m, 2^m - 1) whether the region c (columns, from 1) has a group of the set S (rows)."""
    every = np.arange(2**groups)
    found: Floats = ((every[:, None] & every[None, 1:]) != 0).astype(np.float64)
    return found


def reaches(regions: Floats) -> Floats:
    """(..., 2^m) number of items in some group of S, by S.

    Args:
        regions: (..., 2^m) numbers of items by exact pattern.
    """
    inside = applied(np.array([[1.0, 0.0], [1.0, 1.0]]), regions)  # items all of whose groups are in S
    found: Floats = inside[..., -1:] - inside[..., ::-1]
    return found
