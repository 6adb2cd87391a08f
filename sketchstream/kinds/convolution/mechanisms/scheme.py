"""What every noise is asked for: lattice, budget, law of the words, what events change, errors, decoded answers.

In: the fields of a spec. Out: `NoiseLayer`, and `NoiseScheme`, the base of all noises. Touches: the states it is given,
and entropy through the samplers.
Source: Balle & Wang 2018, Theorem 8 (mu of Gaussian noise); Canonne, Kamath & Steinke 2020, Proposition 7 (rho-zCDP to
(epsilon, delta)); docs/theory/convolution.md, sections 2 to 8.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar, Final, Literal, NamedTuple

import numpy as np

from sketchstream.array_types import Floats, Ints
from sketchstream.errors import SpecError
from sketchstream.kinds.convolution.fourier.filters import DeclaredColumns, Filter
from sketchstream.kinds.convolution.fourier.group import Group
from sketchstream.kinds.convolution.fourier.spectrum import Layout, NoiseKind, Spectrum, pad_filter
from sketchstream.kinds.convolution.mechanisms.independent import add_gaussian
from sketchstream.kinds.linear.spec import EventCountingSpec
from sketchstream.kinds.linear.tree import BlockTree, Levels
from sketchstream.noise.entropy import WordSource
from sketchstream.privacy.calibration.continuous import MAX_DELTA, MIN_DELTA, calibrate
from sketchstream.privacy.losses.law_names import SPECTRAL_GAUSSIAN
from sketchstream.privacy.losses.zcdp import log_of, zcdp_log_delta

Mode = Literal["linear", "circular"]
Publish = Literal["state", "closed"]
Measure = Literal["mu2", "rho", "epsilon"]

ROUNDING_FACTOR: Final = 1 + 1e-12
"""Factor that covers the floating-point errors of sums of positive terms."""
SMOOTHING: Final = 4
"""Variance that every layer holds beyond the need, which makes integer noise as private as real noise."""
COLUMN_ERROR: Final = 1
"""Bound on the error of a column's entries in lattice units: one half by rounding, the rest by differing libraries."""
COLUMNS_GRID: Final = 1 << 32
"""Largest grid of columns: noise grows by less than a millionth for their rounding, up to 2^24 entries."""
MIN_SCALE: Final = 1 << 10
"""Smallest noise in lattice units; the discrete law is then as good as the continuous one."""
MAX_SCALE: Final = 1 << 49
"""Largest noise in lattice units that is drawn."""
SAFETY: Final = 1e-9
"""Relative amount by which rho is lowered; the search and its floating-point errors stay far below it."""


@dataclass(frozen=True)
class NoiseLayer:
    """The law of one layer of noise, and its cost for the protected unit.

    Attributes:
        measure: "mu2" (Gaussian: squared sensitivity over variance), "rho" (zCDP) or "epsilon" (pure).
        loss: loss in that measure, exact, never below the true loss; of the words and of the counter besides them.
        epsilon: requested epsilon; None if only the loss is known.
    """

    measure: Measure
    loss: Fraction
    epsilon: Fraction | None = None
    delta: Fraction | None = None

    @property
    def cost(self) -> Fraction:
        """What the ledger counts: the loss, or its norm sqrt(2 rho), which is exact for the layers of specs."""
        if self.measure != "rho":
            return self.loss
        square = 2 * self.loss
        return Fraction(math.isqrt(square.numerator), math.isqrt(square.denominator))


@dataclass(frozen=True, eq=False)
class ConvolutionFields(EventCountingSpec):
    """The fields of a `ConvolutionSpec`, which describes them: what its noise is chosen for, and what was chosen."""

    filters: tuple[Filter, ...]
    length: int
    group: Group
    columns: DeclaredColumns | None
    mode: Mode
    origin: int
    noise: NoiseKind
    layout: Layout
    floor: Fraction
    max_weight: int | None
    max_total: int | None
    capacity: int
    publish: Publish
    weights: tuple[Fraction, ...]
    step_ms: int | None
    counted_share: Fraction
    grid: int
    levels: Levels
    root: int

    @property
    def bound(self) -> int:
        """Largest sum of absolute weights of one protected unit, Delta_1."""
        return self.max_weight or self.max_total or 1

    def weighted(self, errors: Sequence[float]) -> float:
        """The sum of the errors of all filters, each times the weight of its filter."""
        return sum(float(weight) * error for weight, error in zip(self.weights, errors, strict=True))


class Tables(NamedTuple):
    """Tables from which the columns of events are computed, in the order that `update.add_columns` takes.

    Attributes:
        singles: (s, factors) characters that are their own conjugate, times period / order.
        pairs: (p, factors) characters of the pairs, times period / order.
        orders: (factors,) orders of the cyclic factors.
        period: least common multiple of the orders.
        single: lattice value of a self-conjugate character.
        cosine: (period,) lattice values of cos.
        sine: (period,) lattice values of sin.
    """

    singles: Ints
    pairs: Ints
    orders: Ints
    period: int
    single: int
    cosine: Ints
    sine: Ints


class NoiseOptions(NamedTuple):
    """What a user asked of the noise beside its name; None for levels or root: the best ones are searched."""

    layout: Layout
    levels: Sequence[Sequence[int]] | None
    root: int | None
    fixed: bool
    """Whether the length of the transform was given."""


class NoiseScheme(ABC):
    """One noise for one spec: everything that is mathematically its own.

    Args:
        spec: fields of the spec; those that the noise determines are not set yet.
        options: what was asked of the noise.
    """

    name: ClassVar[NoiseKind]
    measure: ClassVar[Measure] = "mu2"
    law: ClassVar[str] = SPECTRAL_GAUSSIAN
    """Law of a layer, as ledgers name it."""
    layout: ClassVar[Layout] = "time"
    by_columns: ClassVar[bool] = False
    """Whether an event changes many words, by integers of its own for each."""
    needs_floor: ClassVar[bool] = False
    """Whether characters without noise would be published bare."""
    for_series: ClassVar[bool] = False
    """Whether this noise is for series in mode "linear" alone."""
    closed_refused: ClassVar[str] = ""
    """Why this noise does not go with positions that are published as they close; empty if it does."""
    word_per_position: ClassVar[bool] = False
    """Whether each position has a word of its own, which holds noise where a window has no position."""

    def __init__(self, spec: ConvolutionFields, options: NoiseOptions) -> None:
        self.spec, self.options = spec, options
        self.group = spec.group
        """Group of the transform in which answers are computed."""

    # Whether it can be chosen.

    @property
    def refusal(self) -> str | None:
        """Why the spec cannot have this noise, whatever its size; None if it can."""
        if self.spec.delta == 0 and self.measure != "epsilon":
            return f"noise = {self.name!r} needs delta > 0"
        if self.closed_refused and self.spec.publish == "closed":
            return f"noise = {self.name!r} does not go with publish = 'closed': {self.closed_refused}"
        if self.for_series and self.spec.mode != "linear":
            return f"noise = {self.name!r} is for series in mode 'linear'"
        return None

    def never_best(self, errors: Mapping[str, float]) -> bool:
        """Whether this noise cannot win against those tried before, whose weighted errors these are by name."""
        return False

    @property
    def root(self) -> int:
        """Noise "toeplitz": number of the filter whose square root it is."""
        return 0

    # The state.

    @cached_property
    def spectrum(self) -> Spectrum:
        """The eigenvalues of the filters."""
        spec, size = self.spec, self.group.size
        kernels = [pad_filter(each, spec.origin, size) for each in spec.filters]
        return Spectrum.of(self.group, kernels, [float(weight) for weight in spec.weights])

    @property
    def size(self) -> int:
        """Words of a state: by default one for each position."""
        return self.spec.length

    @property
    @abstractmethod
    def grid(self) -> int:
        """Lattice units of one unit; `SpecError`: the words cannot hold the capacity."""

    def _finest(self, grid: int, room: float = math.inf, largest: float = 1.0) -> int:
        """The finest of the grid, its half and so on, on which the capacity stays below `room` lattice units.

        A weight of 1 changes a word by `largest` units at most.
        """
        capacity = self.spec.capacity
        while grid > 1 and capacity * grid >= room:
            grid //= 2
        if capacity * grid * largest >= 2**62:
            raise SpecError(f"capacity must stay below 2^62 lattice units, found {capacity} on a grid of 1/{grid}")
        return grid

    @property
    def grid_scale(self) -> float:
        """Lattice units of one unit of a real Fourier coordinate, or of one count in layout "time"."""
        return float(self.grid)

    @property
    def support(self) -> bytes:
        """What the words stand for: hosts must agree on it before they add states."""
        return np.packbits(np.ones(1, np.bool_)).tobytes()

    @property
    def tree(self) -> BlockTree | None:
        """The blocks whose sums are the words; None: an event changes one word, or a column."""
        return None

    @property
    def tables(self) -> Tables | None:
        """Tables from which columns are computed one by one, see `update.add_columns`; None: there are none."""
        return None

    def columns(self, positions: Ints) -> Ints:
        """(positions, size) int64, change by one event of weight 1 at each position, where it touches many words."""
        raise NotImplementedError

    # Losses and scales.

    @property
    def sensitivity1(self) -> int:
        """Largest L1 change of the words by one protected unit, where they have equal noise on the integers."""
        return self.spec.bound

    @property
    def least_variance(self) -> float:
        """Gaussian noise: lower bound of the variance in any direction, for a budget of 1."""
        return 1.0

    def loss(self, epsilon: Fraction, delta: Fraction, grid: int | None = None) -> Fraction:
        """The loss that fits a promise, for noise on the real numbers; see `sampling_delta`."""
        if self.measure == "epsilon":
            return epsilon
        require_delta(delta)
        left = delta - self.sampling_delta(epsilon, delta, grid)
        if self.measure == "rho":
            return rho_of(epsilon, left)
        # Integer noise is compared with rounded real noise: epsilon and delta give way by far less than this.
        return mu_of(epsilon * (1 - Fraction(1, 10**12)), left * (1 - Fraction(1, 10**9))) ** 2

    def sampling_delta(self, epsilon: Fraction, delta: Fraction, grid: int | None = None) -> Fraction:
        """Bound on what the finite precision of correlated noise adds to delta, on its grid or another; 0 for others.

        Raises:
            SpecError: it is above a tenth of delta.
        """
        return Fraction(0)

    def words_loss(self, layer: NoiseLayer) -> Fraction:
        """Cost of a layer for the words alone; the counter of events has the rest."""
        share = 1 - self.spec.counted_share
        return layer.loss * (share**2 if layer.measure == "rho" else share)  # shares divide norms, as they do epsilons

    def scale_budget(self, layer: NoiseLayer) -> float:
        """The budget that sizes the noise: mu^2, S = 2 rho or epsilon^2, for one count, columns rounded."""
        loss = self.words_loss(layer)
        budget = loss**2 if layer.measure == "epsilon" else 2 * loss if layer.measure == "rho" else loss
        return float(budget / self.spec.bound**2) / ((1 + self._column_error) * ROUNDING_FACTOR) ** 2

    @property
    def _column_error(self) -> float:
        """Bound on the norm of the errors of a column's entries, in units of their noise; 0: nothing is rounded."""
        return COLUMN_ERROR * math.sqrt(self.size) / self.grid if self.by_columns else 0.0

    def word_scales2(self, layer: NoiseLayer) -> Floats:
        """(size,) float64: variance (Gaussian) or squared scale (Laplace) of each word in real units."""
        return np.full(self.size, 1 / self.scale_budget(layer))

    def lattice_scales(self, layer: NoiseLayer) -> Floats:
        """(size,) float64 whole numbers: the parameters of the discrete law of each word, rounded up.

        Gaussian noise: the variance; Laplace noise: the scale.
        """
        return np.ceil(self.word_scales2(layer) * self.grid_scale**2 * ROUNDING_FACTOR) + SMOOTHING

    def _extremes(self, layer: NoiseLayer) -> tuple[float, float]:
        """The smallest and the largest scale of a word in lattice units."""
        scales = np.sqrt(self.word_scales2(layer)) * self.grid_scale
        return float(scales.min()), float(scales.max())

    def require_scales(self, layers: Sequence[NoiseLayer]) -> None:
        """Refuse layers of noise that the words cannot hold, or that is too small for the lattice."""
        for layer in layers:
            low, high = self._extremes(layer)
            if high > MAX_SCALE:
                raise SpecError(
                    f"noise of {high:.3g} lattice units is above 2^49: raise floor, or lower capacity or use a larger "
                    "epsilon or delta"
                )
            if low < MIN_SCALE:
                raise SpecError(
                    f"noise of {low:.3g} lattice units is below 2^10 on a grid of 1/{self.grid}: lower capacity, "
                    "epsilon or delta"
                )

    def add_noise(self, state: Ints, layer: NoiseLayer, entropy: WordSource | None) -> None:
        """Add one independent layer of exact noise to a state, in place; by default discrete Gaussian to each word."""
        add_gaussian(state, self.lattice_scales(layer), entropy)

    # Errors and answers.

    @abstractmethod
    def mse(self, layers: Sequence[NoiseLayer]) -> Floats:
        """(filters,) mean squared error of each filter's answers, the mean over the positions."""

    def variances(self, place: int, layers: Sequence[NoiseLayer], tail: tuple[int, int] | None = None) -> Floats:
        """Variance of the noise in a filter's answers.

        Args:
            tail: None: all positions; else (length, lags): the `lags` answers beyond the end of a window of `length`
                positions.
        """
        return np.full(self.spec.length if tail is None else tail[1], self.mse(layers)[place])

    def density(self, layers: Sequence[NoiseLayer]) -> Floats | float | None:
        """(M,) variance of the noise in the counts by character; None where it is not alike at all positions."""
        return None

    def decode(self, state: Ints, place: int = 0, length: int | None = None) -> Floats:
        """Float64, one filter's answers at every element; in linear mode those from N on are tails.

        Args:
            length: positions that the window has, if fewer; words of positions beyond hold no event, only noise.
        """
        counts = self._counts(state)
        if self.word_per_position and length is not None:
            counts[length:] = 0
        return self._filtered(counts, place)

    def _counts(self, state: Ints) -> Floats:
        """Float64, unbiased estimates of the counts."""
        return np.asarray(state / self.grid_scale)

    def _filtered(self, counts: Floats, place: int) -> Floats:
        """Answers of a filter, computed from the counts."""
        if len(counts) < self.group.size:
            counts = np.concatenate([counts, np.zeros(self.group.size - len(counts))])
        return self.group.convolve(counts, self.spectrum.eigenvalues[place])


# Budgets: exact numbers that are never above the true ones.


def require_delta(delta: Fraction) -> None:
    """Refuse a delta outside [1e-300, 0.5]."""
    if not MIN_DELTA <= delta <= MAX_DELTA:
        raise SpecError(f"delta must be in [1e-300, 0.5] for this noise, found {float(delta):.6g}")


@lru_cache(maxsize=64)
def mu_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Largest mu = sensitivity / sigma of (epsilon, delta)-private Gaussian noise, at most a relative 2e-11 too low."""
    require_delta(delta)
    return Fraction(math.nextafter(1 / calibrate(epsilon, delta), 0))


@lru_cache(maxsize=64)
def rho_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Largest rho for which rho-zCDP implies (epsilon, delta), at most a relative 2e-9 below the bound.

    Source: Canonne, Kamath & Steinke 2020, Proposition 7: delta = min over alpha > 1 of
    exp((alpha - 1)(alpha rho - epsilon)) (1 - 1/alpha)^alpha / (alpha - 1).
    """
    require_delta(delta)
    eps, log_delta = float(epsilon), log_of(delta)
    low, high = math.log(eps) - 120.0, math.log(eps)
    for _ in range(80):
        middle = (low + high) / 2
        fits = zcdp_log_delta(math.exp(middle), eps) <= log_delta
        low, high = (middle, high) if fits else (low, middle)
    return Fraction(math.exp(low) * (1 - SAFETY))
