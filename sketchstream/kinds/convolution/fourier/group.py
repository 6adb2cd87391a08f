"""Finite abelian groups and their real Fourier basis: cyclic groups, products of them, bit vectors.

In: the orders of the cyclic factors. Out: characters, conjugate pairs, transforms. Touches: nothing.
Source: docs/theory/convolution.md, section 1; Fawaz, Muthukrishnan & Nikolov 2013 (cyclic groups and bit vectors).

A character is numbered like an element, in row-major order. Characters chi and conj(chi) give two real coordinates,
cos and sin; a character that is its own conjugate gives one. All coordinates are orthonormal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Complexes, Flags, Floats, Ints

Entry = TypeVar("Entry", bound=np.generic)
"""Type of the entries of an array."""


@dataclass(frozen=True)
class Group:
    """The product of the cyclic groups of these orders; bit vectors are (2, 2, ..., 2)."""

    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements, M."""
        return math.prod(self.shape)

    @property
    def bits(self) -> bool:
        """Whether all factors have order 2: the transform is then an integer map up to its scale."""
        return all(order == 2 for order in self.shape)

    @cached_property
    def conjugate(self) -> Ints:
        """(M,) int64, number of the conjugate of each character."""
        out = np.zeros(1, np.int64)
        for order in self.shape:
            negated = -np.arange(order, dtype=np.int64) % order
            out = (out[:, None] * order + negated).reshape(-1)
        return out

    def spectrum(self, kernel: Floats) -> Complexes:
        """(M,) complex, eigenvalues of the convolution with (M,) float64 `kernel`, by character."""
        from scipy import fft

        if len(self.shape) == 1:
            half = fft.rfft(kernel)
            return np.concatenate([half, np.conj(half[1 : self.size - len(half) + 1][::-1])])
        out: Complexes = fft.fftn(kernel.reshape(self.shape)).reshape(-1)
        if self.bits:
            out = out.real.astype(np.complex128)
        return out

    def synthesize(self, transform: Complexes) -> Floats:
        """(M,) float64 with this unitary transform, which is (M,) complex with conjugate symmetry."""
        from scipy import fft

        if len(self.shape) == 1:
            return np.asarray(fft.irfft(transform[: self.size // 2 + 1], self.size, norm="ortho"))
        return np.asarray(fft.ifftn(transform.reshape(self.shape), norm="ortho").reshape(-1).real)

    def analyze(self, values: Floats) -> Complexes:
        """(M,) complex, the unitary transform of (M,) float64."""
        return self.spectrum(values) / math.sqrt(self.size)

    def convolve(self, values: Floats, eigenvalues: Complexes) -> Floats:
        """(M,) float64, the convolution with the kernel of these eigenvalues."""
        from scipy import fft

        if len(self.shape) == 1:
            half = self.size // 2 + 1
            return np.asarray(fft.irfft(fft.rfft(values) * eigenvalues[:half], self.size))
        return self.synthesize(eigenvalues * self.analyze(values))

    @property
    def period(self) -> int:
        """Least common multiple of the orders: phases are multiples of 2 pi / period."""
        return math.lcm(*self.shape)

    def digits(self, numbers: Ints) -> Ints:
        """(n, factors) int64, the coordinates of elements or characters."""
        return np.stack(np.unravel_index(numbers, self.shape), axis=1).astype(np.int64)


@dataclass(frozen=True)
class Coordinates:
    """The real coordinates that a state holds, in its order: singles, then the cos of all pairs, then their sin.

    Attributes:
        singles: (s,) int64, characters that are their own conjugate.
        pairs: (p,) int64, the lower-numbered character of each conjugate pair.
    """

    group: Group
    singles: Ints
    pairs: Ints

    @classmethod
    def of(cls, group: Group, kept: Flags) -> Coordinates:
        """The coordinates of the characters in `kept`, (M,) bool, which holds with each its conjugate."""
        numbers = np.arange(group.size, dtype=np.int64)
        conjugate = group.conjugate
        return cls(group, numbers[kept & (conjugate == numbers)], numbers[kept & (numbers < conjugate)])

    @property
    def size(self) -> int:
        """Number of real coordinates."""
        return len(self.singles) + 2 * len(self.pairs)

    def spread(self, by_character: npt.NDArray[Entry]) -> npt.NDArray[Entry]:
        """(size,) the value of each coordinate's character, from (M,) values by character."""
        pairs = by_character[self.pairs]
        return np.concatenate([by_character[self.singles], pairs, pairs])

    def transform(self, coordinates: Floats) -> Complexes:
        """(M,) complex, the unitary transform with these (size,) real coordinates; 0 for omitted ones."""
        out = np.zeros(self.group.size, np.complex128)
        s, p = len(self.singles), len(self.pairs)
        out[self.singles] = coordinates[:s]
        half = (coordinates[s : s + p] - 1j * coordinates[s + p :]) * math.sqrt(0.5)
        out[self.pairs] = half
        if len(self.group.shape) > 1:  # one factor is synthesized from its first half
            out[self.group.conjugate[self.pairs]] = np.conj(half)
        return out

    def convolve(self, state: Ints, scale: float, eigenvalues: Complexes) -> Floats:
        """(M,) float64, the convolution of the function whose (size,) real coordinates are state / scale.

        A single factor is synthesized from its first half, which is built in place: large transforms spend more time
        on memory than on arithmetic.
        """
        if len(self.group.shape) > 1:
            return self.group.synthesize(self.transform(state / scale) * eigenvalues)
        from scipy import fft

        half = np.zeros(self.group.size // 2 + 1, np.complex128)
        s, p = len(self.singles), len(self.pairs)
        half[self.singles] = state[:s] / scale
        if p and self.pairs[-1] - self.pairs[0] == p - 1:
            first = int(self.pairs[0])
            complex_pairs = half[first : first + p]
            np.divide(state[s : s + p], scale, out=complex_pairs.real)
            np.divide(state[s + p :], -scale, out=complex_pairs.imag)
            complex_pairs *= math.sqrt(0.5)
        else:
            half[self.pairs] = (state[s : s + p] - 1j * state[s + p :]) / scale * math.sqrt(0.5)
        half *= eigenvalues[: len(half)]
        return np.asarray(fft.irfft(half, self.group.size, norm="ortho", overwrite_x=True))
