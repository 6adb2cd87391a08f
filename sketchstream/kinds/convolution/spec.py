"""The specification of a sketch of kind `convolution`: filters, positions and noise, validated once and frozen.

In: user parameters. Out: a frozen `ConvolutionSpec`, its plain-data form and fingerprint, the law of every layer,
and the mean squared error that follows. Touches: the file that a .npy kernel names.
Source: Fawaz, Muthukrishnan & Nikolov 2013; docs/theory/convolution.md.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Literal, cast, get_args

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.errors import SpecError
from sketchstream.items.columns import Choices
from sketchstream.kinds.convolution.fourier.filters import (
    MAX_COEFFICIENTS,
    DeclaredColumns,
    Filter,
    kernel_of,
    parse_filter,
)
from sketchstream.kinds.convolution.fourier.group import Group
from sketchstream.kinds.convolution.fourier.spectrum import Layout, NoiseKind, choose_length
from sketchstream.kinds.convolution.mechanisms import NOISES, scheme_of
from sketchstream.kinds.convolution.mechanisms.scheme import (
    ROUNDING_FACTOR,
    SMOOTHING,
    ConvolutionFields,
    Measure,
    Mode,
    NoiseLayer,
    NoiseOptions,
    NoiseScheme,
    Publish,
)
from sketchstream.kinds.linear.spec import parse_delta
from sketchstream.privacy.calibration.discrete import closeness
from sketchstream.privacy.losses.gaussian import UnitShift
from sketchstream.spec import (
    ClosedDomain,
    Rational,
    Unit,
    checked_int,
    exact_delta,
    exact_epsilon,
    exact_rational,
    exact_share,
    require_choice,
)

LONG: Final = 1 << 13
"""Positions of a series above which layout "time" is the default."""
LOSS_BITS: Final = 32
"""Binary digits of a loss: few, so that machines whose last digits of floats differ find the same."""
COUNTER_ROUNDINGS: Final = (1, 2, SMOOTHING)
"""Variances beyond the need that are tried in turn for the counter of the events counted; see `SMOOTHING`."""


@dataclass(frozen=True)
class ConvolutionSpec(ConvolutionFields):
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
        epsilon: privacy of a layer; exact rational (str, int, Fraction, Decimal, or float by its shortest repr).
        delta: exact rational from 1e-300 to 0.5, or 0 for pure privacy.
        noise: "gaussian", "laplace", "laplace_pure" (needs delta = 0; "auto" may choose it for any delta, which is not
            spent), "counts" (Laplace noise on the counts), for series "tree" (Laplace noise on sums of blocks) and
            "toeplitz" (Gaussian noise on the normalised square root of a filter; up to 131,072 positions), or "auto",
            the one whose error is smallest.
        layout: "fourier" (exact integers, an update touches each coefficient) or "time" (an update touches one). By
            default "time" for series of more than 8,192 positions with a delta, else "fourier".
        floor: share of the budget that is spread evenly, in [0, 1); above 0 for layout "time".
        unit: unit of privacy: one "event", or all events of one "item" in this sketch.
        max_weight: largest absolute weight of one event.
        max_total: unit "item": a promise of the source that the absolute weights of one item's events in one sketch,
            over all parts and partitions, add up to at most this.
        capacity: largest sum of absolute weights that the counters must hold.
        publish: "state", or "closed" to publish each position when it closes; noise is then "gaussian",
            "toeplitz" or "counts".
        intrusion: True: `seal` adds fresh noise, and the guarantee holds with one copy of the open state. False: it
            publishes the bare state, and the guarantee is void for events after any copy. "closed" needs False.
        epsilon_publish: epsilon of the fresh noise at seal; default epsilon.
        delta_publish: delta of the fresh noise at seal; default delta.
        weights: weight of each filter's error in the choice of the noise; default 1.
        step_ms: milliseconds of one position, of a series whose positions are event times, from the start of its window
            on; None: positions are whole numbers.
        counted_share: unit "event": share of every cost that a counter of the events counted gets; 0: none is kept.
        epsilon_records: unit "event": epsilon of the number of records admitted, outside the ledger; 0: none is kept.
        transform_length: length M of a series's transform, at least as long as series and filter together, less one;
            default: one of a few with the smallest error.
        levels: (positions of a block, weight) of each level of noise "tree"; default: the best found.
        root: number of the filter whose root noise "toeplitz" is on; default: the best.

    Raises:
        SpecError: a parameter is outside its range, or parameters contradict each other.

    Examples:
        >>> spec = ConvolutionSpec("window:64", 1024, epsilon="1", delta="1e-6")
        >>> spec.noise, spec.transform_length, round(float(spec.mse()[0]), 1)
        ('tree', 1120, 65.2)
    """

    scheme: NoiseScheme = field(repr=False, compare=False)
    """The noise: what is mathematically its own."""

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
        epsilon: Rational,
        delta: Rational = 0,
        noise: NoiseKind | Literal["auto"] = "auto",
        layout: Layout | None = None,
        floor: Rational = "1/64",
        unit: Unit = "event",
        max_weight: int | None = None,
        max_total: int | None = None,
        capacity: int = 1 << 31,
        publish: Publish = "state",
        intrusion: bool = True,
        epsilon_publish: Rational | None = None,
        delta_publish: Rational | None = None,
        weights: Sequence[Rational] | None = None,
        step_ms: int | None = None,
        counted_share: Rational = 0,
        epsilon_records: Rational = 0,
        transform_length: int | None = None,
        levels: Sequence[Sequence[int]] | None = None,
        root: int | None = None,
    ) -> None:
        put = self._put
        self._put_privacy(epsilon, delta, epsilon_publish, delta_publish, intrusion)
        put(floor=exact_share(floor, "floor"))
        if layout is None:  # "time" for a series so long that events would change too many words
            series = group == "cyclic" and columns is None and mode != "circular" and self.delta > 0
            layout = "time" if series and (length or 0) > LONG else "fourier"
        require_choice(layout, "layout", get_args(Layout))
        require_choice(noise, "noise", (*NOISES, "auto"))
        require_choice(publish, "publish", get_args(Publish))
        put(publish=publish, capacity=checked_int(capacity, "capacity", 1, 1 << 61))
        self._put_unit(unit, _bound, max_weight=max_weight, max_total=max_total)
        self._put_counters(counted_share, epsilon_records)
        self._put_group(kernel, length, group, columns, mode, origin, layout, transform_length)
        put(step_ms=None if step_ms is None else checked_int(step_ms, "step_ms", 1, 1 << 40))
        if step_ms is not None and self.mode != "linear":
            raise SpecError("step_ms is for series in mode 'linear': positions of groups and columns are no times")
        numbers = [1] * len(self.filters) if weights is None else list(weights)
        shares = tuple(exact_rational(number, "weights must be positive numbers, one a filter") for number in numbers)
        if len(shares) != len(self.filters) or min(shares) <= 0:
            raise SpecError(f"weights must be positive numbers, one for each of {len(self.filters)} filters")
        put(weights=shares)
        self._put_noise(noise, NoiseOptions(layout, levels, root, fixed=transform_length is not None))
        self._require_closed()
        self._warn_of_privacy()

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
        put = self._put
        series = group == "cyclic" and columns is None
        chosen = ("linear" if series else "circular") if mode is None else mode
        require_choice(chosen, "mode", get_args(Mode))
        if not series and chosen == "linear":
            raise SpecError("mode = 'linear' belongs to series (group = 'cyclic'); groups and columns are circular")
        if columns is not None:
            columns = columns if isinstance(columns, DeclaredColumns) else DeclaredColumns(columns)
            shape = columns.shape
        elif series:
            shape = (checked_int(length, "length", 1, MAX_COEFFICIENTS),)
        elif group == "bool":
            size = checked_int(length, "length", 2, MAX_COEFFICIENTS)
            if size & (size - 1):
                raise SpecError(f"group = 'bool' needs a length that is a power of two, found {size}")
            shape = (2,) * (size.bit_length() - 1)
        elif isinstance(group, str):
            raise SpecError(f"group must be 'cyclic', 'bool' or a list of orders, found {group[:40]!r}")
        else:
            shape = tuple(checked_int(order, "order of a cyclic factor", 2, MAX_COEFFICIENTS) for order in group)
        positions = math.prod(shape)
        if not shape or positions > MAX_COEFFICIENTS or (length is not None and length != positions):
            most = f"at most {MAX_COEFFICIENTS}; found {length!r:.40}"
            raise SpecError(f"length must be the number of elements, here {positions}, {most}")
        put(length=positions, columns=columns, mode=chosen)
        filters = _filters(kernel, positions, columns, trim=chosen == "linear")
        widest = max(filters, key=len)
        put(filters=filters, origin=checked_int(origin, "origin", 0, len(widest) - 1))
        if self.origin and len(filters) > 1:
            raise SpecError("origin above 0 is for a single filter")
        if chosen == "circular":
            wrong = [len(kernel) for kernel in filters if len(kernel) != positions and kernel.name == "kernel"]
            if wrong:
                raise SpecError(
                    f"mode = 'circular' needs as many coefficients as positions, {positions}, found {wrong[0]}"
                )
            if transform_length not in (None, positions):
                raise SpecError(
                    f"transform_length is for mode 'linear'; here it is the number of elements, {positions}"
                )
        elif transform_length is None:
            shape = (choose_length(widest, self.origin, positions, layout),)
        else:
            shortest = positions + len(widest) - 1
            shape = (checked_int(transform_length, "transform_length", shortest, 4 * MAX_COEFFICIENTS),)
        put(group=Group(shape))

    def _put_noise(self, noise: NoiseKind | Literal["auto"], options: NoiseOptions) -> None:
        if self.delta:
            exact_delta(self.delta_publish, "delta_publish")
        candidates = [scheme_of(name, self, options) for name in (NOISES if noise == "auto" else (noise,))]
        if noise == "auto":
            candidates = [scheme for scheme in candidates if scheme.refusal is None]
        elif noise == "laplace_pure" and self.delta:
            raise SpecError("noise = 'laplace_pure' needs delta = 0; 'auto' may choose it for any delta")
        elif refusal := candidates[0].refusal:
            raise SpecError(refusal)
        if options.layout == "time" and self.floor == 0 and (noise == "auto" or candidates[0].needs_floor):
            raise SpecError("floor must be above 0 with layout = 'time': coefficients without noise would lie open")
        self._put_scheme(self._best(candidates) if len(candidates) > 1 else candidates[0])

    def _put_scheme(self, scheme: NoiseScheme) -> None:
        """Set the noise and what it determines."""
        self._put(scheme=scheme, noise=scheme.name, layout=scheme.layout, group=scheme.group)
        self._put(levels=scheme.tree.levels if scheme.tree else (), root=scheme.root, grid=scheme.grid)
        scheme.require_scales([self.layer()] + ([published] if (published := self.published_layer) else []))

    def _best(self, candidates: Sequence[NoiseScheme]) -> NoiseScheme:
        """The noise whose weighted error is smallest, of equal ones the first."""
        errors: dict[str, float] = {}
        refused: SpecError | None = None
        for scheme in candidates:
            try:
                if not scheme.never_best(errors):
                    self._put_scheme(scheme)
                    errors[scheme.name] = self.weighted(self.mse().tolist())
            except SpecError as error:
                refused = error
        if not errors:
            assert refused is not None
            raise refused
        best = min(errors, key=errors.__getitem__)
        return next(scheme for scheme in candidates if scheme.name == best)

    def _require_closed(self) -> None:
        """Check the assumptions of publication in instalments."""
        if self.publish != "closed":
            return
        needed = {"mode": "linear", "origin": 0, "intrusion": False, "layout": "time"}
        others = [f"{name} {value!r}" for name, one in needed.items() if (value := getattr(self, name)) != one]
        if others:
            raise SpecError(
                "publish = 'closed' needs mode = 'linear', origin = 0, intrusion = False and a state by position "
                f"(layout = 'time' or noise = 'counts'); found {', '.join(others)}"
            )

    def positions_of(self, window: tuple[int, int] | None) -> int:
        """Positions of a window [start, end), ms since 1970: `length` if positions are not times."""
        if self.step_ms is None or window is None:
            return self.length
        return min(self.length, -(-(window[1] - window[0]) // self.step_ms))

    @property
    def transform_length(self) -> int:
        """M, elements of the group of the transform."""
        return self.group.size

    @property
    def size(self) -> int:
        """Words of the state."""
        return self.scheme.size

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
        return {} if self.columns is None else {n: Choices(value) for n, value in self.columns.values.items()}

    @property
    def measure(self) -> Measure:
        return self.scheme.measure

    def layer(self, epsilon: Rational | None = None, delta: Rational | None = None) -> NoiseLayer:
        """The law of one layer: of the creation layer, or of fresh noise for another epsilon and delta.

        Raises:
            SpecError: a number outside its range, or noise that the state cannot hold.
        """
        eps = self.epsilon if epsilon is None else exact_epsilon(epsilon)
        target = self.delta if delta is None else parse_delta(delta, "delta", zero=True)
        loss = self.scheme.loss(eps, target) if self.measure != "mu2" else self._lattice_loss(eps, target)
        if self.measure == "rho":
            loss = _round_down_to_bits(Fraction(math.sqrt(2 * loss) * (1 - 1e-15))) ** 2 / 2
        return NoiseLayer(self.measure, _round_down_to_bits(loss) if self.measure == "mu2" else loss, eps, target)

    def _lattice_loss(self, epsilon: Fraction, delta: Fraction) -> Fraction:
        """The mu^2 that fits a promise, for Gaussian noise on the integers.

        It holds for what is left when a rounding is taken from each variance. The words have room for SMOOTHING; the
        counter besides them has little noise, and a smaller rounding, further from the integers, can leave it more.
        """
        largest = Fraction(0)
        for rounding in COUNTER_ROUNDINGS if self.counted else (SMOOTHING,):
            # Layers of the state itself and of a view with fresh noise: an intruder before the seal sees both.
            near = 2 * (self.size + 1) * closeness(Fraction(rounding)) if self.counted else 0.0
            apart = Fraction(near)
            if apart <= epsilon / 100:
                loss = self.scheme.loss(epsilon - 2 * apart, delta * (1 - apart))
                largest = max(largest, loss / (1 + rounding * loss * self.shift.density))
        return largest

    def layer_of(self, cost: Fraction) -> NoiseLayer:
        """The law of a layer, or of fresh noise, that costs this much: mu^2, sqrt(2 rho) or epsilon."""
        return NoiseLayer(self.measure, cost**2 / 2 if self.measure == "rho" else cost)

    @property
    def shift(self) -> UnitShift:
        """Shift of a state with Gaussian noise by one unit: of its words, and of the events counted.

        Its mu^2 counts at once in all words, none of which has less than the least variance: the shift is not that of
        one word. A thinning of every word by the same variance costs no more than it would cost a single word of the
        least variance (docs/theory/convolution.md, section 10).
        """
        lattice_units = self.scheme.grid_scale**2
        square = self.scheme.least_variance * lattice_units * self.bound**2  # times mu^2 of the words
        return self.shift_of(Fraction(square / ROUNDING_FACTOR), self.size)

    @property
    def published_layer(self) -> NoiseLayer | None:
        """The law of the fresh noise at seal; None if the bare state is published."""
        return self.layer(self.epsilon_publish, self.delta_publish) if self.intrusion else None

    def mse(self, layers: Sequence[NoiseLayer] | None = None) -> Floats:
        """(filters,) mean squared error of each filter's answers over the positions; default: one creation layer."""
        return self.scheme.mse((self.layer(),) if layers is None else layers)

    def to_dict(self) -> dict[str, Any]:
        written = [each.to_data() for each in self.filters]
        out: dict[str, Any] = {"kind": self.kind, "kernel": written[0] if len(written) == 1 else written}
        out |= self._plain("length", "group", "mode", "origin", "epsilon", "delta", "noise", "layout")
        out |= self._plain("floor", "unit", "capacity", "publish", "intrusion", "epsilon_publish", "delta_publish")
        out |= {"transform_length": self.transform_length, "grid": self.grid, "support": self.support_digest}
        several = self.mode == "circular" and len(self.group.shape) > 1
        out["group"] = list(self.group.shape) if several else "cyclic"
        if self.columns is not None:
            out["columns"] = [[name, listed] for name, listed in self.columns.to_dict().items()]
        if len(written) > 1:
            out |= self._plain("weights")
        out |= self._given("levels", "root", "step_ms", "counted_share", "epsilon_records")
        return out | self._given("max_weight", "max_total")

    @property
    def support_digest(self) -> str:
        """Digest of the list of coefficients in the state; hosts must agree on it before they add states."""
        return hashlib.blake2b(self.scheme.support, digest_size=8, person=b"sketch-support").hexdigest()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ConvolutionSpec:
        """The spec that `to_dict` described.

        Raises:
            SpecError: unknown fields, or derived fields that come out otherwise on this machine.
        """
        fields = cls._read_fields(data)
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
        made = cls._from_fields(**fields)
        if fields.get("noise") == "laplace_pure" and delta is not None:
            made._put(delta=parse_delta(delta, "delta", zero=True))
        here = {"transform_length": made.transform_length, "grid": made.grid, "support": made.support_digest}
        if here != derived:
            wrong = ", ".join(name for name in here if here[name] != derived[name])
            raise SpecError(f"spec was written with another {wrong} than this machine derives: the states do not fit")
        return made


def _bound(value: object, name: str) -> int:
    return checked_int(value, name, 1, 1 << 30)


def _round_down_to_bits(value: Fraction) -> Fraction:
    """The largest number of LOSS_BITS binary digits that is not above a positive one."""
    shift = LOSS_BITS - (value.numerator.bit_length() - value.denominator.bit_length())
    return Fraction(math.floor(value * Fraction(2) ** shift)) / Fraction(2) ** shift


def _filters(written: object, positions: int, columns: DeclaredColumns | None, *, trim: bool) -> tuple[Filter, ...]:
    """One filter, or several that are named."""
    several = isinstance(written, (list, tuple)) and bool(written)
    several = several and all(isinstance(kernel, (str, bytes, Filter)) for kernel in cast("Sequence[object]", written))
    out = []
    for kernel in cast("Sequence[object]", written) if several else (written,):
        if isinstance(kernel, str) and kernel.startswith("marginal:"):
            if columns is None:
                raise SpecError("kernel marginal:... needs columns")
            out.append(columns.marginal([name for name in kernel.removeprefix("marginal:").split(",") if name]))
        elif not trim and isinstance(kernel, np.ndarray) and kernel.ndim > 1:
            out.append(parse_filter(kernel_of(kernel).reshape(-1), positions, trim=False))
        else:
            out.append(parse_filter(kernel, positions, trim=trim))
    return tuple(out)
