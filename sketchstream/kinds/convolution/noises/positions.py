"""Noises with words of their own for positions or blocks, for which layout, floor and transform do not matter.

In: the fields of a spec. Out: noises "counts" and "tree" (Laplace noise on counts and on sums of blocks) and "toeplitz"
(Gaussian noise on a causal factor). Touches: the states they are given, and entropy.
Source: docs/theory/convolution.md, sections 9 and 12; docs/theory/workload.md, section 5 (trees).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import SpecError
from sketchstream.kinds.convolution.filtering.group import Group
from sketchstream.kinds.convolution.filtering.mechanism import NoiseKind, smooth_length
from sketchstream.kinds.convolution.filtering.spread import MAX_SPREAD_POSITIONS, SpreadFactor
from sketchstream.kinds.convolution.noises.scheme import COLUMNS_GRID, FilteredSpec, NoiseLayer, NoiseScheme, Request
from sketchstream.kinds.convolution.noises.spectral import UP, Correlated
from sketchstream.kinds.convolution.noises.synthesis import Objects, filter_draws
from sketchstream.kinds.linear.causal import MAX_ROOT_POSITIONS, CausalFactor, block_energies, filter_causally
from sketchstream.kinds.linear.tree import BlockTree, best_levels, checked_levels
from sketchstream.noise import discrete_laplace
from sketchstream.noise.entropy import WordSource
from sketchstream.noise.laws import DiscreteLaplace
from sketchstream.spec import checked_int

FAR_BELOW: Final = 0.75
"""Noise "toeplitz" is not tried where another error is below this share of that of noise "gaussian": it never wins."""
COMPARED: Final = 256
"""Number of answers, at equal distances, whose variances are compared to choose a root; in shorter series, all."""


class ByPosition(NoiseScheme):
    """Base of the noises with words of their own for positions or blocks."""

    own_words = True

    def __init__(self, spec: FilteredSpec, request: Request) -> None:
        super().__init__(spec, request)
        if spec.mode == "linear" and not request.fixed:  # the transform only decodes: any length will do
            self.group = Group((smooth_length(spec.length + max(map(len, spec.filters)) - 1),))

    @abstractmethod
    def unit_variances(self, place: int, first: int, stop: int, length: int) -> Floats:
        """(stop - first,) variances of a filter's answers for noise of variance 1 in each word, in its own units.

        Args:
            first: first answer, k, which counts back from k; at position n that is n + origin.
            length: positions whose counts are in the answers.
        """

    @abstractmethod
    def word_variance(self, layers: Sequence[NoiseLayer]) -> float:
        """Variance of the noise of layers in a word, in the units of `unit_variances`."""

    @cached_property
    def position_variances(self) -> tuple[Floats, ...]:
        """(N,) `unit_variances` of each filter at the positions."""
        spec, places = self.spec, range(len(self.spec.filters))
        if spec.mode == "circular":
            return tuple(np.full(spec.length, self.spectrum.energy[place]) for place in places)
        return tuple(self.unit_variances(place, *self._ends) for place in places)

    @property
    def _ends(self) -> tuple[int, int, int]:
        """First answer, one past the last, and positions: of the answers at all positions."""
        return self.spec.origin, self.spec.length + self.spec.origin, self.spec.length

    def mse(self, layers: Sequence[NoiseLayer]) -> Floats:
        """See `NoiseScheme`; the mean over positions whose errors differ."""
        return self.word_variance(layers) * np.array([float(np.mean(each)) for each in self.position_variances])

    def variances(self, place: int, layers: Sequence[NoiseLayer], tail: tuple[int, int] | None = None) -> Floats:
        if tail is None:
            return self.word_variance(layers) * self.position_variances[place]
        length, lags = tail
        return self.word_variance(layers) * self.unit_variances(place, length, length + lags, length)


class Counts(ByPosition):
    """Noise "counts": equal discrete Laplace noise on each count."""

    name: ClassVar[NoiseKind] = "counts"
    measure = "epsilon"
    law = "discrete-laplace"

    @cached_property
    def grid(self) -> int:
        """1: the words are whole numbers as they are."""
        return self._finest(1, largest=max(weight for _, weight in self.tree.levels) if self.tree else 1)

    def count_epsilon(self, layer: NoiseLayer) -> Fraction:
        """The ratio parameter of the discrete Laplace noise of each word."""
        return self.words_loss(layer) / self.reach

    def require_scales(self, layers: Sequence[NoiseLayer]) -> None:
        """Noise on whole numbers is exact at any scale."""

    def add_noise(self, state: Ints, layer: NoiseLayer, entropy: WordSource | None) -> None:
        discrete_laplace(state, self.count_epsilon(layer), entropy)

    def word_variance(self, layers: Sequence[NoiseLayer]) -> float:
        return sum(DiscreteLaplace(self.count_epsilon(layer)).variance for layer in layers)

    def unit_variances(self, place: int, first: int, stop: int, length: int) -> Floats:
        return block_energies(self.spec.filters[place].coefficients, first, stop, length, 1)

    def density(self, layers: Sequence[NoiseLayer]) -> float | None:
        """See `NoiseScheme`; equal for all characters."""
        return self.word_variance(layers)


class Blocks(Counts):
    """Noise "tree": equal discrete Laplace noise on the sums of blocks of several widths, each level with a weight."""

    name = "tree"
    for_series = True
    closed_refused = "use noise = 'toeplitz' or 'counts'"

    def never_best(self, errors: Mapping[str, float]) -> bool:
        """See `NoiseScheme`: a tree of one level is noise "counts"."""
        return len(self.tree.levels) == 1

    @cached_property
    def tree(self) -> BlockTree:
        """The blocks that were asked for, or those with the smallest error."""
        spec, levels = self.spec, self.request.levels
        if levels is not None:
            return BlockTree(spec.length, checked_levels(levels))

        def energy(width: int) -> float:
            parts = (block_energies(each.coefficients, *self._ends, width).mean() for each in spec.filters)
            return spec.weighted([float(part) for part in parts])

        epsilon = spec.epsilon * (1 - spec.counted_share) / spec.bound
        best = best_levels(spec.length, energy, lambda reach: DiscreteLaplace(epsilon / reach).variance)
        return BlockTree(spec.length, best)

    @property
    def size(self) -> int:
        """Number of words: one for each block."""
        return self.tree.words

    @property
    def reach(self) -> int:
        """See `NoiseScheme`: in every level an event is in one block."""
        return self.spec.bound * self.tree.reach

    def unit_variances(self, place: int, first: int, stop: int, length: int) -> Floats:
        """See `ByPosition`; estimates by least squares combine the blocks of all levels."""
        coefficients = self.spec.filters[place].coefficients
        widths = (width for width, _ in self.tree.levels)
        return self.tree.variances([block_energies(coefficients, first, stop, length, width) for width in widths])

    def density(self, layers: Sequence[NoiseLayer]) -> None:
        """Return None: the noise depends on where in its blocks a position is."""

    def _counts(self, state: Ints) -> Floats:
        """See `NoiseScheme`: estimates by least squares."""
        return self.tree.solve(state)


class Rooted(ByPosition):
    """Noise "toeplitz": what is alike for short and for long series."""

    name = "toeplitz"
    for_series = True
    factor_type: type[CausalFactor] = CausalFactor

    def never_best(self, errors: Mapping[str, float]) -> bool:
        """See `NoiseScheme`: it never wins where another noise is far better than noise "gaussian"."""
        return min(errors.values(), default=math.inf) < FAR_BELOW * errors.get("gaussian", 0.0)

    @cached_property
    def root(self) -> int:
        """Number of the filter: the one that was asked for, or the one with the smallest weighted error."""
        spec, chosen = self.spec, self.request.root
        places = range(len(spec.filters)) if chosen is None else [checked_int(chosen, "root", 0, len(spec.filters) - 1)]
        usable = [place for place in places if self._usable(place)]
        if not usable:
            raise SpecError(
                "noise = 'toeplitz' needs a filter whose coefficients begin above 0 and whose square root does not "
                f"grow; above {MAX_ROOT_POSITIONS} positions one whose coefficients do not grow, and at most "
                f"{MAX_SPREAD_POSITIONS} positions; use noise = 'gaussian'"
            )
        rows = np.arange(0, spec.length, max(1, spec.length // COMPARED), dtype=np.int64)

        def error(place: int) -> float:
            variances = self._factors[place].variances
            return spec.weighted([float(variances(f.coefficients, rows, spec.length).mean()) for f in spec.filters])

        return min(usable, key=error) if len(usable) > 1 else usable[0]

    @cached_property
    def _factors(self) -> tuple[CausalFactor, ...]:
        """The factor of each filter, which computes what it is asked for."""
        return tuple(self.factor_type(each.coefficients, self.spec.length) for each in self.spec.filters)

    def _usable(self, place: int) -> bool:
        """Whether a filter has a square root that can be used."""
        return bool(self.spec.filters[place].coefficients[0] > 0) and self._factors[place].usable

    @property
    def factor(self) -> CausalFactor:
        """The factor of the filter whose root it is."""
        return self._factors[self.root]

    def word_variance(self, layers: Sequence[NoiseLayer]) -> float:
        return sum(1 / self.scale_budget(layer) for layer in layers)

    def unit_variances(self, place: int, first: int, stop: int, length: int) -> Floats:
        rows = np.arange(first, stop, dtype=np.int64)
        return self.factor.variances(self.spec.filters[place].coefficients, rows, length)


class Toeplitz(Rooted):
    """Noise "toeplitz" of a short series: independent Gaussian noise on the words R D^-1 x; see `CausalFactor`."""

    by_columns = True

    @cached_property
    def grid(self) -> int:
        return self._finest(COLUMNS_GRID, 2**61)

    @cached_property
    def support(self) -> bytes:
        """See `NoiseScheme`: the first column of the factor."""
        return self.columns(np.zeros(1, np.int64)).tobytes()

    def columns(self, positions: Ints) -> Ints:
        return self.factor.columns(positions, self.grid)

    def _filtered(self, counts: Floats, place: int) -> Floats:
        """See `NoiseScheme`; sums have a fixed order, so that closed positions do not depend on later words."""
        spec, coefficients = self.spec, self.spec.filters[place].coefficients
        return filter_causally(counts, coefficients, np.arange(spec.length + len(coefficients) - 1) + spec.origin)

    def _counts(self, state: Ints) -> Floats:
        """See `NoiseScheme`; each estimate is from the words up to its own."""
        return self.factor.solve(state / self.grid)


class SpreadToeplitz(Rooted, Correlated):
    """Noise "toeplitz" of a long series: what `Toeplitz` leaves in the counts, added to them; see `SpreadFactor`."""

    factor_type = SpreadFactor

    def _usable(self, place: int) -> bool:
        """See `Rooted`; coefficients must not grow either, as the bounds of the factor's errors need."""
        coefficients = self.spec.filters[place].coefficients
        falling = bool(coefficients[-1] >= 0 and np.all(np.diff(coefficients) <= 0))
        return self.spec.length <= MAX_SPREAD_POSITIONS and falling and super()._usable(place)

    @property
    def factor(self) -> SpreadFactor:
        factor = super().factor
        assert isinstance(factor, SpreadFactor)
        return factor

    @cached_property
    def least(self) -> float:
        return self.factor.least

    @property
    def widest(self) -> float:
        return self.factor.largest**2

    def _relative_error(self, layer: NoiseLayer) -> float:
        """See `Correlated`; the least variance of any direction, so that rounding adds little to every answer."""
        return self.least / self.scale_budget(layer)

    def _correlated(self, drawn: Objects, layer: NoiseLayer) -> Objects:
        """See `Correlated`; a product of power series makes it."""
        deviation = math.sqrt(1 / self.scale_budget(layer)) * UP
        return filter_draws(drawn, self.factor.inverse, self.factor.norms * deviation)
