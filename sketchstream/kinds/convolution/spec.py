"""The specification of a sketch of kind `convolution`: filters, positions and noise, validated once and frozen.

In: user parameters. Out: a frozen `ConvolutionSpec`, its plain-data form and fingerprint, the law of every layer,
and the mean squared error that follows. Touches: the file that a .npy kernel names.
Source: Fawaz, Muthukrishnan & Nikolov 2013; docs/theory/convolution.md.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Literal, cast

import numpy as np

from sketchstream.errors import SpecError
from sketchstream.items.columns import Choices
from sketchstream.kinds.convolution.calibration import mu_of, require_delta, rho_of
from sketchstream.kinds.convolution.filtering.filters import LONGEST, DeclaredColumns, Filter, kernel_of, parse_filter
from sketchstream.kinds.convolution.filtering.group import Coordinates, Floats, Group
from sketchstream.kinds.convolution.filtering.mechanism import (
    Layout,
    NoiseKind,
    NoiseShape,
    Spectrum,
    choose_length,
    padded,
    pure_shape,
    smooth_length,
    spectral_shape,
)
from sketchstream.kinds.convolution.filtering.spread import LONGEST_SPREAD, SpreadFactor
from sketchstream.kinds.linear.causal import LONGEST_ROOT, CausalFactor, block_energies
from sketchstream.kinds.linear.fields import parse_delta
from sketchstream.kinds.linear.spec import EventCountingSpec
from sketchstream.kinds.linear.tree import BlockTree, Levels, best_levels, checked_levels
from sketchstream.noise.laws import DiscreteLaplace
from sketchstream.privacy.calibration.discrete import closeness
from sketchstream.privacy.losses.gaussian import UnitShift
from sketchstream.spec import (
    UNITS,
    ClosedDomain,
    Epsilon,
    Unit,
    exact_delta,
    exact_epsilon,
    exact_rational,
    exact_share,
    require_choice,
    whole,
)

Mode = Literal["linear", "circular"]
Publish = Literal["state", "closed"]
Measure = Literal["mu2", "rho", "epsilon"]

LONG: Final = 1 << 13
"""Positions of a series above which layout "time" is the default."""
GRID: Final = 1 << 32
"""Largest grid of layout "fourier"."""
BITS_GRID: Final = 1 << 20
"""Grid where all columns are +-1: nothing is rounded."""
LEAST_SCALE: Final = 1 << 10
"""Smallest noise in lattice units; the discrete law is then as good as the continuous one."""
MOST_SCALE: Final = 1 << 49
"""Largest noise in lattice units that is drawn."""
SMOOTHING: Final = 4
"""Variance that every layer holds beyond the need, which makes integer noise as private as real noise."""
ROUNDING_SHARE: Final = 0.012
"""Layout "time": grids on which rounding adds at most a thousandth to the error."""
COLUMN_ERROR: Final = 1
"""Bound on the error of a column's entries in lattice units: one half by rounding, the rest by differing libraries."""
LEAST_CORRELATED: Final = 1 << 36
"""Layout "time": grids are refined until no direction has a smaller variance, as far as the capacity allows."""
LOSS_BITS: Final = 32
"""Binary digits of a loss: few, so that machines whose last digits of floats differ find the same."""
COUNTER_ROUNDINGS: Final = (1, 2, SMOOTHING)
"""Variances beyond the need that are tried in turn for the counter of the events counted; see `SMOOTHING`."""
LAPLACE_STEP: Final = 512
"""Scales of Laplace noise are multiples of this: see `add_laplace`."""
SLACK: Final = 1 + 1e-12
"""Covers the floating-point errors of sums of positive terms."""
NOISES: Final = ("gaussian", "laplace", "laplace_pure", "counts", "tree", "toeplitz")
BY_POSITION: Final = ("counts", "tree", "toeplitz")
"""Noises of series with a state of their own: layout, floor and transform do not matter."""
FAR_BELOW: Final = 0.75
"""Noise "toeplitz" is not tried where another error is below this share of that of noise "gaussian": it never wins."""
PURE: Final = ("laplace_pure", "counts", "tree")
SYNTHESIS_BITS: Final = 128
"""Layout "time": the base noise differs from the continuous one by at most 2^-SYNTHESIS_BITS of its scale."""


@dataclass(frozen=True)
class NoiseLayer:
    """The law of one layer of noise, and its cost for the protected unit.

    Attributes:
        measure: "mu2" (Gaussian: squared sensitivity over variance), "rho" (zCDP) or "epsilon" (pure).
        loss: loss in that measure, exact, never below the true loss; of the words and of the counter beside them.
        epsilon: requested epsilon; None if only the loss is known.
        delta: requested delta; None if only the loss is known.
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


@dataclass(frozen=True)
class ConvolutionSpec(EventCountingSpec):
    """A noisy series of counts, or table of counts, that is read through filters known beforehand.

    Args:
        kernel: one filter or a list of named ones that share the state. For a series: "window:W", "average:W", "sum",
            "decay:A", "difference", "identity", a .npy path, or coefficients by lag. For groups: (M,) coefficients, or
            with `columns` names such as "marginal:late,day".
        length: positions of the series or elements of the group; with `columns` it may be left out.
        group: "cyclic" (a series), "bool" (bit vectors, length a power of two) or orders of cyclic factors.
        columns: declared columns instead of a group; position = cell.
        mode: "linear" (nothing wraps around; the default for a series) or "circular" (the only mode of other groups).
        origin: lag 0 is this place of the coefficients; above 0 an answer looks ahead.
        epsilon: exact rational.
        delta: exact rational in [1e-300, 0.5], or 0 for pure privacy.
        noise: "gaussian", "laplace", "laplace_pure" (delta not spent), "counts" (Laplace noise on the counts), for
            series "tree" (Laplace noise on sums of blocks) and "toeplitz" (Gaussian noise on the normalised square root
            of a filter; up to 131,072 positions), or "auto", the one whose error is smallest.
        layout: "fourier" (exact integers, an update touches each coefficient) or "time" (an update touches one). By
            default "time" for series of more than 8,192 positions with a delta, else "fourier".
        floor: share of the budget that is spread evenly, in [0, 1); above 0 for layout "time".
        unit: unit of privacy: one "event", or all events of one "item" in this sketch.
        max_weight: largest absolute weight of one event (unit "event").
        max_total: promised bound of an item's absolute weights together (unit "item").
        capacity: largest sum of absolute weights.
        publish: "state", or "closed" to publish each position when it closes; noise is then "gaussian",
            "toeplitz" or "counts".
        intrusion: True adds fresh noise at seal; "closed" needs False.
        epsilon_publish: of the fresh noise; default as epsilon.
        delta_publish: of the fresh noise; default as delta.
        weights: weight of each filter's error in the choice of the noise; default 1.
        step_ms: of a series whose positions are event times: milliseconds of one position from the start of its window
            on; None: positions are whole numbers.
        counted_share: unit "event": share of every cost that a counter of the events counted gets; 0: none is kept.
        epsilon_records: unit "event": epsilon of the number of records admitted, outside the ledger; 0: none is kept.
        transform_length: of a series, M, at least as long as series and filter together, less one; default: one of a
            few with the smallest error.
        levels: of noise "tree": (positions of a block, weight) of each level; default: the best found.
        root: of noise "toeplitz": number of the filter whose root it is; default: the best.

    Raises:
        SpecError: a parameter is outside its range, or parameters contradict each other.

    Examples:
        >>> spec = ConvolutionSpec("window:64", 1024, epsilon="1", delta="1e-6")
        >>> spec.noise, spec.transform_length, round(float(spec.mse()[0]), 1)
        ('tree', 1120, 65.2)
    """

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

    kind = "convolution"
    zero_delta = True

    def __init__(
        self,
        kernel: object,
        length: int | None = None,
        *,
        group: str | Sequence[int] = "cyclic",
        columns: DeclaredColumns | Mapping[str, Sequence[int | str]] | None = None,
        mode: Mode | None = None,
        origin: int = 0,
        epsilon: Epsilon,
        delta: Epsilon = 0,
        noise: NoiseKind | Literal["auto"] = "auto",
        layout: Layout | None = None,
        floor: Epsilon = "1/64",
        unit: Unit = "event",
        max_weight: int | None = None,
        max_total: int | None = None,
        capacity: int = 1 << 31,
        publish: Publish = "state",
        intrusion: bool = True,
        epsilon_publish: Epsilon | None = None,
        delta_publish: Epsilon | None = None,
        weights: Sequence[Epsilon] | None = None,
        step_ms: int | None = None,
        counted_share: Epsilon = 0,
        epsilon_records: Epsilon = 0,
        transform_length: int | None = None,
        levels: Sequence[Sequence[int]] | None = None,
        root: int | None = None,
    ) -> None:
        put = self._put
        self._put_privacy(epsilon, delta, epsilon_publish, delta_publish, intrusion)
        put(floor=exact_share(floor, "floor"))
        if layout is None:  # of a series so long that events would change too many words
            series = group == "cyclic" and columns is None and mode != "circular" and self.delta > 0
            layout = "time" if series and (length or 0) > LONG else "fourier"
        require_choice(layout, "layout", ("fourier", "time"))
        require_choice(noise, "noise", (*NOISES, "auto"))
        require_choice(publish, "publish", ("state", "closed"))
        put(publish=publish, capacity=whole(capacity, "capacity", 1, 1 << 61))
        self._put_unit(unit, max_weight, max_total)
        self._put_counters(counted_share, epsilon_records)
        self._put_group(kernel, length, group, columns, mode, origin, layout, transform_length)
        put(step_ms=None if step_ms is None else whole(step_ms, "step_ms", 1, 1 << 40))
        if step_ms is not None and self.mode != "linear":
            msg = "step_ms is for series in mode 'linear': positions of groups and columns are no times"
            raise SpecError(msg)
        given = [1] * len(self.filters) if weights is None else list(weights)
        shares = tuple(exact_rational(one, "weights must be positive numbers, one a filter") for one in given)
        if len(shares) != len(self.filters) or min(shares) <= 0:
            msg = f"weights must be positive numbers, one for each of {len(self.filters)} filters"
            raise SpecError(msg)
        put(weights=shares)
        self._put_noise(noise, layout, levels, root, chosen=transform_length is None)
        self._require_closed()
        self._warn_of_privacy()

    def _put_unit(self, unit: Unit, max_weight: int | None, max_total: int | None) -> None:
        """Check the unit of privacy and its bound."""
        put = self._put
        require_choice(unit, "unit", UNITS)
        if unit == "event":
            if max_total is not None:
                msg = "max_total belongs to unit = 'item'; with unit = 'event' max_weight bounds what an event adds"
                raise SpecError(msg)
            bound = whole(1 if max_weight is None else max_weight, "max_weight", 1, 1 << 30)
            put(unit=unit, max_weight=bound, max_total=None)
        else:
            if max_total is None or max_weight is not None:
                msg = "unit = 'item' needs max_total, the bound of an item's weights together, and no max_weight"
                raise SpecError(msg)
            put(unit=unit, max_weight=None, max_total=whole(max_total, "max_total", 1, 1 << 30))

    def _put_group(
        self,
        kernel: object,
        length: int | None,
        group: str | Sequence[int],
        columns: DeclaredColumns | Mapping[str, Sequence[int | str]] | None,
        mode: Mode | None,
        origin: int,
        layout: Layout,
        transform_length: int | None,
    ) -> None:
        """Check the positions, the group and the filters."""
        put = self._put
        series = group == "cyclic" and columns is None
        chosen = ("linear" if series else "circular") if mode is None else mode
        require_choice(chosen, "mode", ("linear", "circular"))
        if not series and chosen == "linear":
            msg = "mode = 'linear' belongs to series (group = 'cyclic'); groups and columns are circular"
            raise SpecError(msg)
        if columns is not None:
            columns = columns if isinstance(columns, DeclaredColumns) else DeclaredColumns(columns)
            shape = columns.shape
        elif series:
            shape = (whole(length, "length", 1, LONGEST),)
        elif group == "bool":
            size = whole(length, "length", 2, LONGEST)
            if size & (size - 1):
                msg = f"group = 'bool' needs a length that is a power of two, found {size}"
                raise SpecError(msg)
            shape = (2,) * (size.bit_length() - 1)
        elif isinstance(group, str):
            msg = f"group must be 'cyclic', 'bool' or a list of orders, found {group[:40]!r}"
            raise SpecError(msg)
        else:
            shape = tuple(whole(order, "order of a cyclic factor", 2, LONGEST) for order in group)
        positions = math.prod(shape)
        if not shape or positions > LONGEST or (length is not None and length != positions):
            msg = f"length must be the number of elements, here {positions}, at most {LONGEST}; found {length!r:.40}"
            raise SpecError(msg)
        put(length=positions, columns=columns, mode=chosen)
        filters = _filters(kernel, positions, columns, trim=chosen == "linear")
        longest = max(map(len, filters))
        put(filters=filters, origin=whole(origin, "origin", 0, longest - 1))
        if self.origin and len(filters) > 1:
            msg = "origin above 0 is for a single filter"
            raise SpecError(msg)
        if chosen == "circular":
            wrong = [len(one) for one in filters if len(one) != positions and one.name == "kernel"]
            if wrong:
                msg = f"mode = 'circular' needs as many coefficients as positions, {positions}, found {wrong[0]}"
                raise SpecError(msg)
            if transform_length not in (None, positions):
                msg = f"transform_length is for mode 'linear'; here it is the number of elements, {positions}"
                raise SpecError(msg)
            put(group=Group(shape))
        else:
            widest = max(filters, key=len)
            if transform_length is None:
                size = choose_length(widest, self.origin, positions, layout)
            else:
                size = whole(transform_length, "transform_length", positions + len(widest) - 1, 4 * LONGEST)
            put(group=Group((size,)))

    def _put_noise(
        self, noise: str, layout: Layout, levels: Sequence[Sequence[int]] | None, root: int | None, *, chosen: bool
    ) -> None:
        """Check the noise, or choose it."""
        put = self._put
        if self.delta:
            exact_delta(self.delta_publish, "delta_publish")
        candidates = [noise]
        if noise == "auto":
            candidates = [one for one in NOISES if self._refusal(one, layout) is None]
        elif noise == "laplace_pure" and self.delta:
            msg = "noise = 'laplace_pure' needs delta = 0; 'auto' may choose it for any delta"
            raise SpecError(msg)
        elif refusal := self._refusal(noise, layout):
            raise SpecError(refusal)
        if layout == "time" and noise not in BY_POSITION and self.floor == 0:
            msg = "floor must be above 0 with layout = 'time': coefficients without noise would lie open"
            raise SpecError(msg)
        fitting: list[tuple[float, int, str, int]] = []
        refused: SpecError | None = None
        shaped = 0.0
        for place, one in enumerate(candidates):
            put(noise=one, layout="time" if one in BY_POSITION else layout, grid=1)
            self._forget()
            try:
                self._put_factor(levels, root)
                put(grid=self._grid())
                self._forget()
                self.require_scales([self.layer()] + ([published] if (published := self.published_layer) else []))
                if one == "tree" and len(self.levels) == 1 and len(candidates) > 1:
                    continue  # the same as noise "counts"
                if one == "toeplitz" and fitting and min(fitting)[0] < FAR_BELOW * shaped:
                    continue
                weighted = float(np.dot([float(w) for w in self.weights], self.mse())) if len(candidates) > 1 else 0.0
                shaped = weighted if one == "gaussian" else shaped
                fitting.append((weighted, place, one, self.grid))
            except SpecError as error:
                refused = error
        if not fitting:
            assert refused is not None
            raise refused
        _, _, best, grid = min(fitting)
        put(noise=best, layout="time" if best in BY_POSITION else layout, grid=grid)
        self._put_factor(levels, root)
        if best in BY_POSITION and chosen and self.mode == "linear":  # the transform only decodes: any length will do
            put(group=Group((smooth_length(self.length + max(map(len, self.filters)) - 1),)))
        self._forget()

    def _refusal(self, noise: str, layout: Layout) -> str | None:
        """Why the spec cannot have this noise, whatever its size; None if it can."""
        if self.delta == 0 and noise not in PURE:
            return f"noise = {noise!r} needs delta > 0"
        if layout == "time" and noise == "laplace_pure":
            return "noise = 'laplace_pure' needs layout = 'fourier'"
        if self.publish == "closed" and noise == "laplace":  # docs/theory/convolution.md, section 11
            return (
                "noise = 'laplace' does not go with publish = 'closed': a stream that reacts to closed positions would "
                "lose more than its rho says; use noise = 'gaussian' with layout = 'time', noise = 'counts', or "
                "publish = 'state'"
            )
        if self.publish == "closed" and noise == "tree":
            return "noise = 'tree' does not go with publish = 'closed': use noise = 'toeplitz' or 'counts'"
        if self.mode != "linear" and noise in ("tree", "toeplitz"):
            return f"noise = {noise!r} is for series in mode 'linear'"
        return None

    def _put_factor(self, levels: Sequence[Sequence[int]] | None, root: int | None) -> None:
        """Check or choose the levels of a tree, or the filter whose square root is taken.

        Raises:
            SpecError: there is none.
        """
        self._put(levels=(), root=0)
        if self.noise == "tree":
            if levels is None:
                self._put(levels=self._best_tree)
            else:
                self._put(levels=checked_levels(levels))
            self.tree  # noqa: B018 - checks them
        elif self.noise == "toeplitz":
            self._put(root=self._best_root if root is None else whole(root, "root", 0, len(self.filters) - 1))
            if not self._rooted(self.root):
                msg = (
                    "noise = 'toeplitz' needs a filter whose coefficients begin above 0 and whose square root does not "
                    f"grow; above {LONGEST_ROOT} positions one whose coefficients do not grow, and at most "
                    f"{LONGEST_SPREAD} positions; use noise = 'gaussian'"
                )
                raise SpecError(msg)

    @cached_property
    def _best_tree(self) -> Levels:
        """Levels of the tree with the smallest error."""

        def energy(width: int) -> float:
            parts = (float(self.block_energy(place, width).mean()) for place in range(len(self.filters)))
            return sum(float(weight) * one for weight, one in zip(self.weights, parts, strict=True))

        epsilon = self.epsilon * (1 - self.counted_share) / self.bound
        return best_levels(self.length, energy, lambda reach: DiscreteLaplace(epsilon / reach).variance)

    def _rooted(self, place: int) -> bool:
        """Whether a filter has a square root that can be used."""
        coefficients = self.filters[place].coefficients
        falling = self.length <= LONGEST_ROOT or bool(coefficients[-1] >= 0 and np.all(np.diff(coefficients) <= 0))
        return self.length <= LONGEST_SPREAD and coefficients[0] > 0 and falling and self._factors[place].usable

    @cached_property
    def _factors(self) -> tuple[CausalFactor, ...]:
        """The factor of each filter, which computes what it is asked for; of long series with noise on the counts."""
        made = CausalFactor if self.length <= LONGEST_ROOT else SpreadFactor
        return tuple(made(one.coefficients, self.length) for one in self.filters)

    @cached_property
    def _best_root(self) -> int:
        """Number of the filter whose square root makes the weighted error smallest."""
        usable = [place for place in range(len(self.filters)) if self._rooted(place)]
        if len(usable) < 2:
            return usable[0] if usable else 0

        def error(place: int) -> float:
            factor = self._factors[place]
            rows = np.arange(0, self.length, max(1, self.length // 256), dtype=np.int64)
            parts = (float(factor.variances(one.coefficients, rows, self.length).mean()) for one in self.filters)
            return sum(float(weight) * one for weight, one in zip(self.weights, parts, strict=True))

        return min(usable, key=error)

    @cached_property
    def tree(self) -> BlockTree:
        """The blocks of noise "tree"."""
        return BlockTree(self.length, self.levels)

    @property
    def factor(self) -> CausalFactor:
        """The factor of noise "toeplitz"."""
        return self._factors[self.root]

    @property
    def spread(self) -> SpreadFactor | None:
        """The factor of noise "toeplitz" whose noise is spread over the counts, as it is for long series."""
        return self.factor if self.noise == "toeplitz" and isinstance(self.factor, SpreadFactor) else None

    @property
    def triangular(self) -> bool:
        """Whether words are sums of counts up to their position: noise "toeplitz" on series that are not long."""
        return self.noise == "toeplitz" and self.spread is None

    @property
    def by_columns(self) -> bool:
        """Whether an event changes many words, by integers of its own for each."""
        return self.layout == "fourier" or self.triangular

    def block_energy(
        self, place: int, width: int, first: int | None = None, stop: int | None = None, length: int | None = None
    ) -> Floats:
        """Sum over blocks of the squares of a filter's coefficients, summed over each block.

        Args:
            place: number of the filter.
            width: positions of a block.
            first: first answer, counted with those of the origin; default those at the positions.
            stop: one past the last.
            length: positions whose counts are in the answers; default all.
        """
        first = self.origin if first is None else first
        stop = self.length + self.origin if stop is None else stop
        return block_energies(
            self.filters[place].coefficients, first, stop, self.length if length is None else length, width
        )

    def unit_variances(self, place: int, first: int, stop: int, length: int) -> Floats:
        """(stop - first,) variances of a filter's answers for noise of variance 1 in each word, in its own units.

        Args:
            place: number of the filter.
            first: first answer, k, which counts back from k; at position n that is n + origin.
            stop: one past the last.
            length: positions whose counts are in the answers.
        """
        if self.noise == "toeplitz":
            rows = np.arange(first, stop, dtype=np.int64)
            return self.factor.variances(self.filters[place].coefficients, rows, length)
        widths = (width for width, _ in self.levels) if self.noise == "tree" else (1,)
        energies = [self.block_energy(place, width, first, stop, length) for width in widths]
        return self.tree.variances(energies) if self.noise == "tree" else energies[0]

    @cached_property
    def position_variances(self) -> tuple[Floats, ...]:
        """(N,) `unit_variances` of each filter at the positions; for noises with a state of their own."""
        places = range(len(self.filters))
        if self.mode == "circular":
            return tuple(np.full(self.length, self.spectrum.energy[place]) for place in places)
        ends = self.origin, self.length + self.origin, self.length
        return tuple(self.unit_variances(place, *ends) for place in places)

    def word_variance(self, layers: Sequence[NoiseLayer]) -> float:
        """Variance of the noise of layers in a word, in the units of `unit_variances`."""
        if self.noise == "toeplitz":
            return sum(1 / self.scale_budget(layer) for layer in layers)
        return sum(DiscreteLaplace(self.count_epsilon(layer)).variance for layer in layers)

    def _forget(self) -> None:
        """Delete cached values of another candidate."""
        for name in ("spectrum", "shape", "coordinates", "fingerprint", "position_variances", "tree"):
            self.__dict__.pop(name, None)

    def _require_closed(self) -> None:
        """Check the assumptions of publication in instalments."""
        if self.publish != "closed":
            return
        needed = {"mode": "linear", "origin": 0, "intrusion": False, "layout": "time"}
        found = [f"{name} {held!r}" for name, one in needed.items() if (held := getattr(self, name)) != one]
        if found:
            msg = (
                "publish = 'closed' needs mode = 'linear', origin = 0, intrusion = False and a state by position "
                f"(layout = 'time' or noise = 'counts'); found {', '.join(found)}"
            )
            raise SpecError(msg)

    def positions_of(self, window: tuple[int, int] | None) -> int:
        """Positions of a window [start, end), ms since 1970: `length` if positions are not times."""
        if self.step_ms is None or window is None:
            return self.length
        return min(self.length, -(-(window[1] - window[0]) // self.step_ms))

    @property
    def bound(self) -> int:
        """Largest sum of absolute weights of one protected unit, Delta_1."""
        return self.max_weight or self.max_total or 1

    @property
    def transform_length(self) -> int:
        """M, elements of the group of the transform."""
        return self.group.size

    @cached_property
    def spectrum(self) -> Spectrum:
        """The eigenvalues of the filters."""
        kernels = [padded(one, self.origin, self.group.size) for one in self.filters]
        return Spectrum.of(self.group, kernels, [float(one) for one in self.weights])

    @cached_property
    def shape(self) -> NoiseShape:
        """The noise of each coefficient, up to its size; not for noise "counts"."""
        if self.noise == "laplace_pure":
            return pure_shape(self.spectrum, self.length).quantized()
        return spectral_shape(self.spectrum, self.noise, self.layout, float(self.floor)).quantized()

    @cached_property
    def coordinates(self) -> Coordinates:
        """The real Fourier coordinates that layout "fourier" stores."""
        return Coordinates.of(self.group, self.shape.kept)

    @property
    def size(self) -> int:
        """Words of the state."""
        if self.noise == "tree":
            return self.tree.words
        if self.noise in BY_POSITION:
            return self.length
        return self.group.size if self.layout == "time" else self.coordinates.size

    @property
    def slots(self) -> int:
        """Counters of a sketch: the words of its state; with padding, more than positions."""
        return self.size

    @cached_property
    def domain(self) -> ClosedDomain:
        """The positions, 0 to length - 1."""
        return ClosedDomain(size=self.length)

    @cached_property
    def choices(self) -> dict[str, Choices]:
        """The declared values of each column, as records of a stream spell them: numbers by their digits."""
        return {} if self.columns is None else {n: Choices(one) for n, one in self.columns.values.items()}

    @property
    def grid_scale(self) -> float:
        """Lattice units of one unit of a real Fourier coordinate, or of one count in layout "time"."""
        exact = self.group.bits and self.layout == "fourier"  # not of series, which have noise "toeplitz"
        return self.grid * math.sqrt(self.group.size) if exact else float(self.grid)

    @property
    def measure(self) -> Measure:
        """The measure in which layers of this noise add up."""
        if self.noise in PURE:
            return "epsilon"
        return "rho" if self.noise == "laplace" else "mu2"

    def layer(self, epsilon: Epsilon | None = None, delta: Epsilon | None = None) -> NoiseLayer:
        """The law of one layer: of the creation layer, or of fresh noise for another epsilon and delta.

        Raises:
            SpecError: a number outside its range, or noise that the state cannot hold.
        """
        eps = self.epsilon if epsilon is None else exact_epsilon(epsilon)
        target = self.delta if delta is None else parse_delta(delta, "delta", zero=True)
        loss = self._loss(eps, target) if self.measure != "mu2" else self._lattice_loss(eps, target)
        if self.measure == "rho":
            loss = _short(Fraction(math.sqrt(2 * loss) * (1 - 1e-15))) ** 2 / 2
        return NoiseLayer(self.measure, _short(loss) if self.measure == "mu2" else loss, eps, target)

    def _lattice_loss(self, epsilon: Fraction, delta: Fraction) -> Fraction:
        """The mu^2 that fits a promise, for Gaussian noise on the integers.

        It holds for what is left when a rounding is taken from each variance. The words have room for SMOOTHING; the
        counter beside them has little noise, and a smaller rounding, further from the integers, can leave it more.
        """
        found = Fraction(0)
        for rounding in COUNTER_ROUNDINGS if self.counted else (SMOOTHING,):
            # Layers of the state itself and of a view with fresh noise: an intruder before the seal sees both.
            near = 2 * (self.size + 1) * closeness(Fraction(rounding)) if self.counted else 0.0
            apart = Fraction(near)
            if apart <= epsilon / 100:
                loss = self._loss(epsilon - 2 * apart, delta * (1 - apart))
                found = max(found, loss / (1 + rounding * loss * self.shift.density))
        return found

    def _loss(self, epsilon: Fraction, delta: Fraction) -> Fraction:
        """The loss that fits a promise, for noise on the real numbers."""
        if self.measure == "epsilon":
            return epsilon
        require_delta(delta)
        left = delta - self.sampling_delta(epsilon, delta)
        if self.measure == "rho":
            return rho_of(epsilon, left)
        # Integer noise is compared with rounded real noise: epsilon and delta give way by far less than this.
        return mu_of(epsilon * (1 - Fraction(1, 10**12)), left * (1 - Fraction(1, 10**9))) ** 2

    def layer_of(self, cost: Fraction) -> NoiseLayer:
        """The law of a layer, or of fresh noise, that costs this much: mu^2, sqrt(2 rho) or epsilon.

        Args:
            cost: above 0.
        """
        return NoiseLayer(self.measure, cost**2 / 2 if self.measure == "rho" else cost)

    @property
    def least_variance(self) -> Fraction:
        """Gaussian noise: lower bound of the variance in any direction, lattice units, times mu^2 of the words."""
        if self.noise == "toeplitz":
            smallest = 1.0 if self.spread is None else self.spread.least
        else:
            smallest = float(np.min(self.shape.relative[self.shape.kept]))
        least = smallest * self.grid_scale**2 * self.bound**2
        return Fraction(least / SLACK)

    @property
    def shift(self) -> UnitShift:
        """Shift of a state with Gaussian noise by one unit: of its words, and of the events counted.

        Its mu^2 counts at once in all words, none of which has less than the least variance: the shift is not that of
        one word. A thinning of every word by the same variance costs no more than it would cost a single word of the
        least variance (docs/theory/convolution.md, section 10).
        """
        return self.shift_of(self.least_variance, self.size)

    def words_loss(self, layer: NoiseLayer) -> Fraction:
        """Cost of a layer for the words alone; the counter of events has the rest."""
        share = 1 - self.counted_share
        return layer.loss * (share**2 if layer.measure == "rho" else share)  # shares divide norms, as they do epsilons

    @property
    def published_layer(self) -> NoiseLayer | None:
        """The law of the fresh noise at seal; None if the bare state is published."""
        return self.layer(self.epsilon_publish, self.delta_publish) if self.intrusion else None

    def sampling_delta(self, epsilon: Fraction, delta: Fraction) -> Fraction:
        """Layout "time": bound on what the finite precision of the synthesis adds to delta; 0 otherwise.

        Raises:
            SpecError: it is above a tenth of delta.
        """
        if self.layout != "time" or (self.noise in BY_POSITION and self.spread is None):
            return Fraction(0)
        # A draw is off by at most 2^-SYNTHESIS_BITS of its scale; a value then by sqrt(M) times the largest.
        widest = self.spread.largest**2 if self.spread is not None else float(np.max(self.shape.relative))
        largest = math.sqrt(widest / self._least_budget(epsilon, delta))
        error = Fraction(1, 1 << SYNTHESIS_BITS) * math.ceil(math.sqrt(self.size) * (largest + 1))
        changed = 2 * self.grid * self.size * error
        spent = (1 + Fraction(math.exp(min(float(epsilon), 700)))) * changed
        if spent * 10 > delta:
            msg = (
                f"layout = 'time' would spend {float(spent):.3g} of delta {float(delta):.3g} on its sampler "
                f"(M {self.size}, grid {self.grid}): use layout = 'fourier' or a larger delta"
            )
            raise SpecError(msg)
        return spent

    def _least_budget(self, epsilon: Fraction, delta: Fraction) -> float:
        """A lower bound of the budget of `scale_budget`, without the reserve that depends on it."""
        share = 1 - self.counted_share
        if self.noise == "laplace":
            return float(2 * rho_of(epsilon, delta / 2) * share**2) / self.bound**2
        return float(mu_of(epsilon, delta / 2) ** 2 * share) / self.bound**2

    def scale_budget(self, layer: NoiseLayer) -> float:
        """The budget that sizes the noise: mu^2, S = 2 rho or epsilon^2, for one count, columns rounded."""
        loss = self.words_loss(layer) / self.bound**2
        if layer.measure == "epsilon":
            loss = self.words_loss(layer) ** 2 / self.bound**2
        elif layer.measure == "rho":
            loss = 2 * loss
        return float(loss) / self._inflation(layer) ** 2

    def _inflation(self, layer: NoiseLayer) -> float:
        """Factor on all scales that covers the rounding of the columns."""
        if self.triangular:
            return (1 + COLUMN_ERROR * math.sqrt(self.length) / self.grid) * SLACK
        if self.layout == "time" or self.group.bits:
            return SLACK
        if layer.measure != "epsilon":
            return (1 + COLUMN_ERROR * math.sqrt(self.group.size) / self.grid) * SLACK
        inverse = self.coordinates.spread(1 / np.sqrt(np.where(self.shape.kept, self.shape.relative, 1.0)))
        return (1 + COLUMN_ERROR / self.grid * float(np.sum(inverse))) * SLACK

    def scales2(self, layer: NoiseLayer) -> Floats:
        """(M,) float64 by character: variance (Gaussian) or squared scale (Laplace) of a real coordinate, counts."""
        return self.shape.relative / self.scale_budget(layer)

    def lattice_scales(self, layer: NoiseLayer) -> Floats:
        """(size,) float64 whole numbers: the parameters of the discrete law of each word, layout "fourier".

        Gaussian noise: the variance; Laplace noise: the scale. Each is rounded up.
        """
        if self.noise == "toeplitz":
            variance = math.ceil(self.grid_scale**2 / self.scale_budget(layer) * SLACK) + SMOOTHING
            return np.full(self.size, float(variance))
        by_word = cast("Floats", self.coordinates.spread(self.scales2(layer)))
        if self.noise == "gaussian":
            return np.ceil(by_word * self.grid_scale**2 * SLACK) + SMOOTHING
        return np.ceil(np.sqrt(by_word) * self.grid_scale * SLACK / LAPLACE_STEP) * LAPLACE_STEP

    def count_epsilon(self, layer: NoiseLayer) -> Fraction:
        """Noise "counts" and "tree": the ratio parameter of the discrete Laplace noise of each word."""
        return self.words_loss(layer) / self.reach

    @property
    def reach(self) -> int:
        """Largest L1 change of the words by one protected unit, where they have equal noise on the integers."""
        return self.bound * (self.tree.reach if self.noise == "tree" else 1)

    def _grid(self) -> int:
        """The lattice for this noise and layout."""
        if self.noise in ("counts", "tree"):
            return self._require_headroom(1, max((float(weight) for _, weight in self.levels), default=1.0))
        if self.triangular:
            grid = GRID
            while grid > 1 and self.capacity * grid >= 2**61:
                grid //= 2
            return self._require_headroom(grid, 1.0)
        if self.layout == "time":
            layer = NoiseLayer(self.measure, self._loss(self.epsilon, self.delta))
            if self.spread is not None:  # rounding then adds little in every direction, so to every answer
                mean = least = self.spread.least / self.scale_budget(layer)
            else:
                mean = float(np.min(self.mse([layer]) / self.spectrum.energy))
                least = float(np.min(self.scales2(layer)))
            grid = 1
            while grid * grid * ROUNDING_SHARE * mean < 1:
                grid *= 2
            while grid * grid * least < LEAST_CORRELATED and self.capacity * grid < 1 << 60:
                grid *= 2
            return self._require_headroom(grid, 1.0)
        if self.group.bits:
            return self._require_headroom(BITS_GRID, 1.0)
        grid = GRID
        while grid > 1 and self.capacity * grid >= 2**62 * math.sqrt(self.group.size / 2):
            grid //= 2
        return self._require_headroom(grid, math.sqrt(2 / self.group.size))

    def _require_headroom(self, grid: int, largest: float) -> int:
        """Refuse a capacity that the words cannot hold."""
        if self.capacity * grid * largest >= 2**62:
            msg = f"capacity must stay below 2^62 lattice units, found {self.capacity} on a grid of 1/{grid}"
            raise SpecError(msg)
        return grid

    def require_scales(self, layers: Sequence[NoiseLayer]) -> None:
        """Refuse layers of noise that the words cannot hold, or that is too small for the lattice.

        Raises:
            SpecError: one of them is such a layer.
        """
        if self.noise in ("counts", "tree"):
            return
        for layer in layers:
            if self.noise == "toeplitz":
                low = high = math.sqrt(1 / self.scale_budget(layer)) * self.grid_scale
                if self.spread is not None:
                    low, high = math.inf, high * self.spread.largest
            elif self.layout == "fourier":
                scales = np.sqrt(cast("Floats", self.coordinates.spread(self.scales2(layer)))) * self.grid_scale
                low, high = float(scales.min()), float(scales.max())
            else:
                low, high = math.inf, math.sqrt(float(np.max(self.scales2(layer)))) * self.grid
            if high > MOST_SCALE:
                msg = (
                    f"noise of {high:.3g} lattice units is above 2^49: raise floor, or lower capacity or use a larger "
                    "epsilon or delta"
                )
                raise SpecError(msg)
            if low < LEAST_SCALE:
                msg = (
                    f"noise of {low:.3g} lattice units is below 2^10 on a grid of 1/{self.grid}: lower capacity, "
                    "epsilon or delta"
                )
                raise SpecError(msg)

    def mse(self, layers: Sequence[NoiseLayer] | None = None) -> Floats:
        """(filters,) mean squared error of each filter's answers, the mean over the positions.

        Args:
            layers: the layers whose noise is in the published state; default one creation layer.
        """
        given = (self.layer(),) if layers is None else layers
        if self.noise in BY_POSITION:
            return self.word_variance(given) * np.array([float(np.mean(one)) for one in self.position_variances])
        total = sum((self.shape.mse(self.scale_budget(layer)) for layer in given), np.zeros(len(self.filters)))
        if self.layout == "time" and self.grid > 1:
            total = total + self.spectrum.energy * len(given) / (12 * self.grid**2)
        return total

    def to_dict(self) -> dict[str, Any]:
        """Plain data, canonical: equal specs give equal dictionaries."""
        written = [one.to_data() for one in self.filters]
        out: dict[str, Any] = {"kind": self.kind, "kernel": written[0] if len(written) == 1 else written}
        out |= self._plain("length", "group", "mode", "origin", "epsilon", "delta", "noise", "layout")
        out |= self._plain("floor", "unit", "capacity", "publish", "intrusion", "epsilon_publish", "delta_publish")
        out |= {"transform_length": self.transform_length, "grid": self.grid, "support": self.support_digest}
        several = self.mode == "circular" and len(self.group.shape) > 1
        out["group"] = list(self.group.shape) if several else "cyclic"
        if self.columns is not None:
            out["columns"] = [[name, listed] for name, listed in self.columns.to_dict().items()]
        if len(written) > 1:
            out["weights"] = [str(one) for one in self.weights]
        if self.levels:
            out["levels"] = [list(one) for one in self.levels]
        return out | self._given("root", "step_ms", "counted_share", "epsilon_records", "max_weight", "max_total")

    @property
    def support_digest(self) -> str:
        """Digest of the list of coefficients in the state; hosts must agree on it before they add states."""
        if self.triangular:
            found = self.factor.columns(np.zeros(1, np.int64), self.grid).tobytes()
            return hashlib.blake2b(found, digest_size=8, person=b"sketch-support").hexdigest()
        kept = np.ones(1, np.bool_) if self.noise in BY_POSITION else self.shape.kept
        return hashlib.blake2b(np.packbits(kept).tobytes(), digest_size=8, person=b"sketch-support").hexdigest()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ConvolutionSpec:
        """The spec that `to_dict` described.

        Raises:
            SpecError: unknown fields, or derived fields that come out otherwise on this machine.
        """
        fields = cls._stored(data)
        derived = {name: fields.pop(name, None) for name in ("transform_length", "grid", "support")}
        if fields.get("mode") == "linear":  # other releases may choose others
            fields["transform_length"] = derived["transform_length"]
        columns = fields.pop("columns", None)
        if columns is not None:
            fields["columns"] = DeclaredColumns(dict(columns))
            fields.pop("group", None)
        delta = fields.get("delta")
        if fields.get("noise") == "toeplitz":
            fields.setdefault("root", 0)
        if fields.get("noise") == "laplace_pure":  # chosen by "auto" for a delta that it does not spend
            fields["delta"] = 0
        made = cls._made(**fields)
        if fields.get("noise") == "laplace_pure" and delta is not None:
            made._put(delta=parse_delta(delta, "delta", zero=True))
        found = {"transform_length": made.transform_length, "grid": made.grid, "support": made.support_digest}
        if found != derived:
            wrong = ", ".join(name for name in found if found[name] != derived[name])
            msg = f"spec was written with another {wrong} than this machine derives: the states do not fit"
            raise SpecError(msg)
        return made


def _short(value: Fraction) -> Fraction:
    """The largest number of LOSS_BITS binary digits that is not above a positive one."""
    shift = LOSS_BITS - (value.numerator.bit_length() - value.denominator.bit_length())
    return Fraction(math.floor(value * Fraction(2) ** shift)) / Fraction(2) ** shift


def _filters(written: object, positions: int, columns: DeclaredColumns | None, *, trim: bool) -> tuple[Filter, ...]:
    """One filter, or several that are named."""
    several = isinstance(written, (list, tuple)) and bool(written)
    several = several and all(isinstance(one, (str, bytes, Filter)) for one in cast("Sequence[object]", written))
    out = []
    for one in cast("Sequence[object]", written) if several else (written,):
        if isinstance(one, str) and one.startswith("marginal:"):
            if columns is None:
                msg = "kernel marginal:... needs columns"
                raise SpecError(msg)
            out.append(columns.marginal([name for name in one.removeprefix("marginal:").split(",") if name]))
        elif not trim and isinstance(one, np.ndarray) and one.ndim > 1:
            out.append(parse_filter(kernel_of(one).reshape(-1), positions, trim=False))
        else:
            out.append(parse_filter(one, positions, trim=trim))
    return tuple(out)
