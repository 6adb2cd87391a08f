"""Noises with words of their own for positions or blocks, for which layout, floor and transform do not matter.

In: the fields of a spec. Out: noises "counts" and "tree" (Laplace noise on counts and on sums of blocks) and "toeplitz"
(Gaussian noise on a causal factor). Touches: the states they are given, and entropy.
Source: docs/theory/convolution.md, sections 9 and 12; docs/theory/workload.md, section 5 (trees).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import SpecError
from sketchstream.kinds.convolution.fourier.group import Group
from sketchstream.kinds.convolution.fourier.spectrum import NoiseKind, smooth_length
from sketchstream.kinds.convolution.mechanisms.scheme import (
    COLUMNS_GRID,
    ConvolutionFields,
    NoiseLayer,
    NoiseOptions,
    NoiseScheme,
)
from sketchstream.kinds.convolution.mechanisms.spectral import UP, Correlated
from sketchstream.kinds.convolution.mechanisms.synthesis import Objects, filter_draws
from sketchstream.kinds.linear.causal import MAX_ROOT_POSITIONS, CausalFactor, block_energies, filter_causally
from sketchstream.kinds.linear.tree import BlockTree, best_levels, checked_levels
from sketchstream.noise import discrete_laplace
from sketchstream.noise.entropy import WordSource
from sketchstream.noise.laws import DiscreteLaplace
from sketchstream.privacy.losses.law_names import DISCRETE_LAPLACE
from sketchstream.spec import checked_int

FAR_BELOW: Final = 0.75
"""Noise "toeplitz" is not tried where another error is below this share of that of noise "gaussian": it never wins."""
COMPARED: Final = 256
"""Number of answers, at equal distances, whose variances are compared to choose a root; in shorter series, all."""
MAX_SPREAD_POSITIONS: Final = 1 << 17
"""Most positions: beyond, the noise of a state takes more than ten seconds."""
ROUND_OFF: Final = 64 * 2.0**-53
"""Relative error of an element of a convolution by transforms, for each factor of two of its length; far above it."""
MAX_NORM_ERROR: Final = 1e-3
"""Largest bound of the relative error of norms: noise grows by as much."""
KNOTS: Final = 64
"""Variances that are computed at first, between those that are asked for; more where they bend."""
BEND: Final = 1e-3
"""Largest relative distance of a variance from the line between its neighbours, at which no more are computed."""


class ByPosition(NoiseScheme):
    """Base of the noises with words of their own for positions or blocks."""

    word_per_position = True

    def __init__(self, spec: ConvolutionFields, options: NoiseOptions) -> None:
        super().__init__(spec, options)
        if spec.mode == "linear" and not options.fixed:  # the transform only decodes: any length will do
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
    law = DISCRETE_LAPLACE

    @cached_property
    def grid(self) -> int:
        """1: the words are whole numbers as they are."""
        return self._finest(1, largest=max(weight for _, weight in self.tree.levels) if self.tree else 1)

    def count_epsilon(self, layer: NoiseLayer) -> Fraction:
        """The ratio parameter of the discrete Laplace noise of each word."""
        return self.words_loss(layer) / self.sensitivity1

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
        spec, levels = self.spec, self.options.levels
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
    def sensitivity1(self) -> int:
        """See `NoiseScheme`: in every level an event is in one block."""
        return self.spec.bound * self.tree.sensitivity1

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
        spec, chosen = self.spec, self.options.root
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


@dataclass(frozen=True)
class SpreadFactor(CausalFactor):
    """The normalised square root of a long filter: noise is spread over the counts, so that an event changes one word.

    With r the square root of the filter's power series, T the lower triangular Toeplitz matrix of 1/r and D the norms
    of the columns of its inverse, counts get the noise D T z, z independent. `CausalFactor` has the same noise once its
    words are decoded; but an event changes all of those words, R D^-1 x + z, from its position on. Numbers here come
    from fast transforms, which round: noise and answers use the same rounded T, and the norms in D are raised by a
    bound of what they may lack (`error`).

    Source: Henzinger, Kalinin & Upadhyay 2025, "A Normalized Square Root"; docs/theory/convolution.md, section 12.
    """

    @cached_property
    def inverse(self) -> Floats:
        """(N,) the power series 1 / r: Newton's iteration for h^(-1/2), twice as many terms in each step."""
        series = np.array([1 / math.sqrt(self.coefficients[0])])
        while len(series) < self.length:
            size = min(2 * len(series), self.length)
            square = _product(series, series, size)
            correction = -_product(self.coefficients[:size], square, size)
            correction[0] += 3
            series = _product(series, correction / 2, size)
        return series

    @cached_property
    def root(self) -> Floats:
        """(N,) the power series r, up to `error`."""
        return _product(self.coefficients[: self.length], self.inverse, self.length)

    @cached_property
    def error(self) -> float:
        """Bound of the sum of |r / r' - 1|'s coefficients, r' the exact inverse of `inverse`."""
        product = _product(self.root, self.inverse, self.length)
        product[0] -= 1
        each = ROUND_OFF * math.log2(2 * self.length) * float(np.linalg.norm(self.root) * np.linalg.norm(self.inverse))
        return float(np.abs(product).sum()) + self.length * each

    @cached_property
    def norms(self) -> Floats:
        """(N,) upper bounds of the norms of the columns of T's inverse: r' = r / (1 + e), and |e| sums to `error`."""
        return np.sqrt(np.cumsum(self.root**2)[::-1]) * ((1 + 1e-12) / (1 - self.error))

    @cached_property
    def usable(self) -> bool:
        """Whether the norms are known well enough."""
        with np.errstate(all="ignore"):
            return bool(np.isfinite(self.error)) and self.error <= MAX_NORM_ERROR

    @cached_property
    def least_variance(self) -> float:
        """Lower bound of the variance of D T z in any direction, z of variance 1.

        The spectral norm of T's inverse is at most the sum of the absolute coefficients of r'.
        """
        return (float(self.norms.min()) * (1 - self.error) / float(np.abs(self.root).sum())) ** 2 * (1 - 1e-12)

    @cached_property
    def largest_deviation(self) -> float:
        """Upper bound of the standard deviation of an element of D T z."""
        return float(self.norms.max() * np.linalg.norm(self.inverse)) * (1 + 1e-12)

    def variances(self, coefficients: Floats, rows: Ints, length: int) -> Floats:
        """See `CausalFactor.variances`; with many rows some are computed, and the others interpolated by lines.

        More are computed until each that lies in the middle of two others is on their line, within BEND.
        """
        exact = super().variances
        if len(rows) <= KNOTS:
            return exact(coefficients, rows, length)
        last = len(rows) - 1
        away = np.unique(np.geomspace(1, last, KNOTS // 2).astype(np.int64))
        places = np.unique(np.concatenate([[0], away, last - away]))
        computed = exact(coefficients, rows[places], length)
        gaps = np.stack([places[:-1], places[1:]])
        while gaps.size:
            middles = (gaps[0] + gaps[1]) // 2
            gaps, middles = gaps[:, middles > gaps[0]], middles[middles > gaps[0]]
            exact_there = exact(coefficients, rows[middles], length)
            bent = np.abs(np.interp(rows[middles], rows[places], computed) - exact_there) > BEND * exact_there
            order = np.argsort(np.concatenate([places, middles]), kind="stable")
            places = np.concatenate([places, middles])[order]
            computed = np.concatenate([computed, exact_there])[order]
            gaps = np.stack([np.concatenate([gaps[0], middles]), np.concatenate([middles, gaps[1]])])
            gaps = gaps[:, np.concatenate([bent, bent])]
        return np.interp(rows, rows[places], computed)


def _product(left: Floats, right: Floats, size: int) -> Floats:
    """(size,) the first coefficients of the product of two power series, by transforms; zeros where it has fewer."""
    from scipy import fft

    long = fft.next_fast_len(max(size, len(left) + len(right) - 1), real=True)
    return np.asarray(fft.irfft(fft.rfft(left, long) * fft.rfft(right, long), long)[:size])


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
    def least_variance(self) -> float:
        return self.factor.least_variance

    @property
    def widest(self) -> float:
        return self.factor.largest_deviation**2

    def _relative_error(self, layer: NoiseLayer) -> float:
        """See `Correlated`; the least variance of any direction, so that rounding adds little to every answer."""
        return self.least_variance / self.scale_budget(layer)

    def _correlated(self, drawn: Objects, layer: NoiseLayer) -> Objects:
        """See `Correlated`; a product of power series makes it."""
        deviation = math.sqrt(1 / self.scale_budget(layer)) * UP
        return filter_draws(drawn, self.factor.inverse, self.factor.norms * deviation)
