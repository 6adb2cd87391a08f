"""Noise in the spectrum: a variance for each Fourier coefficient, in the proportion that the filters ask for.

In: the fields of a spec. Out: noises "gaussian", "laplace" and "laplace_pure" in both layouts; `Correlated`. Touches:
the states they are given, and entropy.
Source: Fawaz, Muthukrishnan & Nikolov 2013; docs/theory/convolution.md, sections 2 to 7.

Layout "fourier" holds the real coordinates with independent noise, and an event touches each of them. Layout "time"
holds the counts with correlated noise, and an event touches one.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import SpecError
from sketchstream.kinds.convolution.fourier.group import Coordinates
from sketchstream.kinds.convolution.fourier.spectrum import NoiseKind, NoiseShape, pure_shape, spectral_shape
from sketchstream.kinds.convolution.mechanisms.independent import BASE, add_laplace, base_draws
from sketchstream.kinds.convolution.mechanisms.scheme import (
    COLUMN_ERROR,
    COLUMNS_GRID,
    ROUNDING_FACTOR,
    Measure,
    NoiseLayer,
    NoiseScheme,
    Tables,
    mu_of,
    rho_of,
)
from sketchstream.kinds.convolution.mechanisms.synthesis import FRACTION, SYNTHESIS_BITS, Objects, synthesize
from sketchstream.noise.blocks import add_wrapping
from sketchstream.noise.entropy import WordSource, words_of
from sketchstream.privacy.losses.law_names import SPECTRAL_LAPLACE

BITS_GRID: Final = 1 << 20
"""Grid where all columns are +-1: nothing is rounded."""
ROUNDING_SHARE: Final = 0.012
"""Correlated noise: grids on which rounding adds at most a thousandth to the error."""
MIN_CORRELATED: Final = 1 << 36
"""Correlated noise: grids are refined until no direction has a smaller variance, as far as the capacity allows."""
UP: Final = 1 + 1e-15
"""Factor on standard deviations of correlated noise, which covers the rounding of their square roots."""


class Spectral(NoiseScheme):
    """Base of the noises in the spectrum."""

    @cached_property
    def shape(self) -> NoiseShape:
        """The noise of each coefficient, up to its size."""
        return spectral_shape(self.spectrum, self.name, self.layout, float(self.spec.floor)).quantized()

    @cached_property
    def support(self) -> bytes:
        """Which characters have noise, a bit each."""
        return np.packbits(self.shape.kept).tobytes()

    @cached_property
    def coordinates(self) -> Coordinates:
        """The real Fourier coordinates with noise."""
        return Coordinates.of(self.group, self.shape.kept)

    @property
    def size(self) -> int:
        """Number of words: one for each coordinate with noise; in layout "time", one for each element of the group."""
        return self.coordinates.size

    @cached_property
    def least_variance(self) -> float:
        return float(np.min(self.shape.relative[self.shape.kept]))

    def scales2(self, layer: NoiseLayer) -> Floats:
        """(M,) float64 by character: variance (Gaussian) or squared scale (Laplace) of a real coordinate, counts."""
        return self.shape.relative / self.scale_budget(layer)

    def word_scales2(self, layer: NoiseLayer) -> Floats:
        """See `NoiseScheme`; `scales2` by coordinate."""
        return self.coordinates.spread(self.scales2(layer))

    def mse(self, layers: Sequence[NoiseLayer]) -> Floats:
        """See `NoiseScheme`; errors are equal at all positions."""
        return np.asarray(np.sum([self.shape.mse(self.scale_budget(layer)) for layer in layers], axis=0))

    def density(self, layers: Sequence[NoiseLayer]) -> Floats:
        return np.asarray(np.sum([self.scales2(layer) for layer in layers], axis=0)) * self.shape.variance_factor


class FourierGaussian(Spectral):
    """Noise "gaussian" in layout "fourier": independent Gaussian noise on the real coordinates."""

    name: ClassVar[NoiseKind] = "gaussian"
    layout = "fourier"
    by_columns = True

    @cached_property
    def grid(self) -> int:
        if self.group.bits:
            return self._finest(BITS_GRID)
        return self._finest(COLUMNS_GRID, 2**62 * math.sqrt(self.group.size / 2), math.sqrt(2 / self.group.size))

    @property
    def grid_scale(self) -> float:
        """See `NoiseScheme`; columns of +-1 are not divided by the root of their length."""
        return self.grid * math.sqrt(self.group.size) if self.group.bits else float(self.grid)

    @property
    def _column_error(self) -> float:
        """See `NoiseScheme`; +-1 is exact."""
        return 0.0 if self.group.bits else COLUMN_ERROR * math.sqrt(self.group.size) / self.grid

    @cached_property
    def tables(self) -> Tables:
        """Characters by coordinate and the values of cos and sin on the lattice."""
        group, coordinates = self.group, self.coordinates
        period = group.period
        orders = np.array(group.shape, np.int64)
        root = self.grid / math.sqrt(group.size)
        turn = 2 * math.pi * np.arange(period) / period
        cosine = np.rint(root * math.sqrt(2) * np.cos(turn)).astype(np.int64)
        sine = np.rint(root * math.sqrt(2) * np.sin(turn)).astype(np.int64)
        singles, pairs = (group.digits(each) * (period // orders) for each in (coordinates.singles, coordinates.pairs))
        return Tables(singles, pairs, orders, period, self.grid if group.bits else round(root), cosine, sine)

    def columns(self, positions: Ints) -> Ints:
        singles, pairs, _, period, single, cosine, sine = self.tables
        digits = self.group.digits(positions)
        odd = (digits @ singles.T) % period != 0
        phase = (digits @ pairs.T) % period
        columns = np.concatenate([np.where(odd, -single, single), cosine[phase], sine[phase]], axis=1)
        return np.ascontiguousarray(columns, np.int64)

    def decode(self, state: Ints, place: int = 0, length: int | None = None) -> Floats:
        """See `NoiseScheme`; the coordinates are transformed, none of which belongs to a position."""
        return self.coordinates.convolve(state, self.grid_scale, self.spectrum.eigenvalues[place])


class FourierLaplace(FourierGaussian):
    """Noise "laplace" in layout "fourier": independent Laplace noise on the real coordinates, composed as zCDP."""

    name: ClassVar[NoiseKind] = "laplace"
    measure: ClassVar[Measure] = "rho"
    law = SPECTRAL_LAPLACE
    closed_refused = (  # docs/theory/convolution.md, section 11
        "a stream that reacts to closed positions would lose more than its rho says; use noise = 'gaussian' with "
        "layout = 'time', noise = 'counts', or publish = 'state'"
    )

    def lattice_scales(self, layer: NoiseLayer) -> Floats:
        """See `NoiseScheme`; scales are multiples of BASE."""
        return np.ceil(np.sqrt(self.word_scales2(layer)) * self.grid_scale * ROUNDING_FACTOR / BASE) * BASE

    def add_noise(self, state: Ints, layer: NoiseLayer, entropy: WordSource | None) -> None:
        add_laplace(state, self.lattice_scales(layer).astype(np.int64) // BASE, entropy)


class FourierPure(FourierLaplace):
    """Noise "laplace_pure": independent Laplace noise on the real coordinates, whose epsilons add up."""

    name = "laplace_pure"
    measure = "epsilon"
    closed_refused = ""

    @property
    def refusal(self) -> str | None:
        return "noise = 'laplace_pure' needs layout = 'fourier'" if self.options.layout == "time" else None

    @cached_property
    def shape(self) -> NoiseShape:
        """See `Spectral`; scales have a proportion of their own."""
        return pure_shape(self.spectrum, self.spec.length).quantized()

    @cached_property
    def _column_error(self) -> float:
        """See `NoiseScheme`: a sum, as epsilons add up over the words."""
        relative = np.where(self.shape.kept, self.shape.relative, 1.0)
        total = float(np.sum(self.coordinates.spread(1 / np.sqrt(relative))))
        return 0.0 if self.group.bits else COLUMN_ERROR / self.grid * total


class Correlated(NoiseScheme):
    """Base of noises on the counts that are made of exact independent draws by transforms in fixed point."""

    @property
    @abstractmethod
    def widest(self) -> float:
        """Upper bound of the variance of what is added up for a word, in counts, for a budget of 1."""

    @abstractmethod
    def _relative_error(self, layer: NoiseLayer) -> float:
        """Variance of answers over the squared norm of their filter, to which rounding adds 1/12 of a squared step."""

    @abstractmethod
    def _correlated(self, drawn: Objects, layer: NoiseLayer) -> Objects:
        """(size,) noise of the counts, integers with FRACTION places, of (size,) independent ones of scale 2^128."""

    @cached_property
    def grid(self) -> int:
        """The coarsest whose rounding adds little to any answer and is small in every direction."""
        layer = NoiseLayer(self.measure, self.loss(self.spec.epsilon, self.spec.delta, grid=1))
        error, least = self._relative_error(layer), self.least_variance / self.scale_budget(layer)
        grid = 1
        while grid * grid * ROUNDING_SHARE * error < 1:
            grid *= 2
        while grid * grid * least < MIN_CORRELATED and self.spec.capacity * grid < 1 << 60:
            grid *= 2
        return self._finest(grid)

    def sampling_delta(self, epsilon: Fraction, delta: Fraction, grid: int | None = None) -> Fraction:
        grid = self.grid if grid is None else grid
        # A draw is off by at most 2^-SYNTHESIS_BITS of its scale; a value then by sqrt(M) times the largest.
        largest = math.sqrt(self.widest / self._least_budget(epsilon, delta))
        error = Fraction(1, 1 << SYNTHESIS_BITS) * math.ceil(math.sqrt(self.size) * (largest + 1))
        changed = 2 * grid * self.size * error
        spent = (1 + Fraction(math.exp(min(float(epsilon), 700)))) * changed
        if spent * 10 > delta:
            raise SpecError(
                f"layout = 'time' would spend {float(spent):.3g} of delta {float(delta):.3g} on its sampler "
                f"(M {self.size}, grid {grid}): use layout = 'fourier' or a larger delta"
            )
        return spent

    def _least_budget(self, epsilon: Fraction, delta: Fraction) -> float:
        """A lower bound of the budget of `scale_budget`, without the reserve that depends on it."""
        share = 1 - self.spec.counted_share
        if self.measure == "rho":
            return float(2 * rho_of(epsilon, delta / 2) * share**2) / self.spec.bound**2
        return float(mu_of(epsilon, delta / 2) ** 2 * share) / self.spec.bound**2

    def _extremes(self, layer: NoiseLayer) -> tuple[float, float]:
        """No smallest: the grid is chosen so that none is too small."""
        return math.inf, math.sqrt(self.widest / self.scale_budget(layer)) * self.grid

    def add_noise(self, state: Ints, layer: NoiseLayer, entropy: WordSource | None) -> None:
        """Add rint(grid * g), g the correlated noise of the counts."""
        with words_of(entropy) as source:
            drawn = base_draws(self.size, gaussian=self.measure == "mu2", source=source)
            noise = self._correlated(drawn, layer)
            rounded = (noise * self.grid + (1 << (FRACTION - 1))) >> FRACTION
            for place, value in enumerate(rounded.tolist()):
                add_wrapping(state, place, value)
            for scratch in (drawn, noise, rounded):
                scratch.fill(0)


class TimeGaussian(Spectral, Correlated):
    """Noise "gaussian" in layout "time": stationary Gaussian noise on the counts."""

    name: ClassVar[NoiseKind] = "gaussian"
    needs_floor = True

    @property
    def widest(self) -> float:
        return float(np.max(self.shape.relative))

    def _relative_error(self, layer: NoiseLayer) -> float:
        """See `Correlated`; the smallest of all filters."""
        return float(np.min(self.shape.mse(self.scale_budget(layer)) / self.spectrum.energy))

    def _correlated(self, drawn: Objects, layer: NoiseLayer) -> Objects:
        """See `Correlated`; a Fourier transform makes it."""
        return synthesize(self.coordinates, drawn, np.sqrt(self.word_scales2(layer)) * UP)

    def mse(self, layers: Sequence[NoiseLayer]) -> Floats:
        """See `Spectral`; the rounding to the grid adds its variance."""
        return super().mse(layers) + self.spectrum.energy * len(layers) / (12 * self.grid**2)

    def density(self, layers: Sequence[NoiseLayer]) -> Floats:
        """See `Spectral`; the rounding to the grid adds its variance."""
        return super().density(layers) + len(layers) / (12 * self.grid**2)


class TimeLaplace(TimeGaussian):
    """Noise "laplace" in layout "time": stationary noise on the counts, of Laplace coordinates."""

    name = "laplace"
    measure = "rho"
    law = SPECTRAL_LAPLACE
    closed_refused = FourierLaplace.closed_refused
