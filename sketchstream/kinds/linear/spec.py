"""The base of the specs of linear kinds: privacy, publication, canonical data, fingerprint.

In: parameters of a subclass's constructor; stored data. Out: validated fields, 16-byte fingerprints. Touches: nothing.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

import msgpack
import numpy as np

from sketchstream.errors import SpecError
from sketchstream.privacy.calibration.discrete import DiscreteCalibration, calibrate_parts
from sketchstream.privacy.losses.gaussian import ComponentShift, UnitShift
from sketchstream.spec import (
    NO_PRIVACY,
    UNITS,
    ClosedDomain,
    Domain,
    Item,
    NoPrivacyWarning,
    Rational,
    SpecFields,
    Unit,
    checked_int,
    exact_counted_share,
    exact_delta,
    exact_epsilon,
    exact_rational,
    exact_records,
    flag,
    require_choice,
    stored_domain,
)

MAX_WEIGHT: Final = (1 << 30) - 1
CAPACITY: Final = 1 << 40
"""Largest weight of a unit, and default of the sum of absolute weights that counters must hold."""
LARGE_DELTA: Final = Fraction(1, 1000)
"""Delta above which a warning is given: a mechanism that shows one unit in a thousand whole would be allowed."""
PRIVACY_FIELDS: Final = ("epsilon", "delta", "epsilon_publish", "delta_publish")
"""Parameters of privacy, in which parts of a stack may differ."""


class Stored(str):
    """The text of a number in a stored spec, where rules for what users may write do not apply."""

    __slots__ = ()


def parse_epsilon(value: Rational, name: str, allowed: tuple[Fraction, Fraction] | None = None) -> Fraction:
    """An exact epsilon from 1e-6 to 50; of stored specs one that is allowed, as some kinds have had a wider range."""
    if allowed is None or not isinstance(value, Stored):
        return exact_epsilon(value, name)
    expected = f"{name} must be a rational number from {allowed[0]} to {allowed[1]}, such as '1', '0.1' or '1/2'"
    exact = exact_rational(value, expected)
    if not allowed[0] <= exact <= allowed[1]:
        raise SpecError(f"{expected}, found {value!s:.40}")
    return exact


def parse_delta(value: Rational, name: str, *, zero: bool) -> Fraction:
    """An exact delta from 1e-300 to 1/2, or 0 where the noise may be pure."""
    if zero and not exact_rational(value, f"{name} must be 0 or in [1e-300, 0.5], such as '1e-6'"):
        return Fraction(0)
    return exact_delta(value, name)


def stored_closed(described: object, items: Sequence[Item] | None, what: str) -> ClosedDomain:
    """The closed domain that its dictionary describes; see `stored_domain`."""
    if not isinstance(described, Mapping) or described.get("kind") != "closed":
        raise SpecError(f"{what} must be a closed domain")
    try:
        domain = stored_domain(described, items)
    except TypeError:
        raise SpecError("spec has a domain with fields that this version does not know") from None
    assert isinstance(domain, ClosedDomain)
    return domain


@dataclass(frozen=True, eq=False)
class LinearSpec(SpecFields):
    """Base of specs that publish `A x + noise`. A subclass is a frozen dataclass with a constructor of its own.

    Attributes:
        epsilon_records: epsilon of the discrete Laplace noise of the number of records admitted (`Sketch.admit`), which
            is a function of envelopes and outside the ledger; 0: none is kept. All others: see the subclasses.
    """

    zero_delta: ClassVar[bool] = False
    """Whether delta may be 0."""
    stored_epsilons: ClassVar[tuple[Fraction, Fraction] | None] = None
    """Range of epsilon in stored specs, where it was not that of other kinds, 1e-6 to 50."""
    item_bounds: ClassVar[tuple[str, ...]] = ("max_total",)
    """Promises of the source about an item, of which unit "item" needs one."""
    bounds_events_of_items: ClassVar[bool] = False
    """Whether `max_weight` bounds an event's weight for unit "item" too."""
    may_differ: ClassVar[Mapping[str, object]] = {"counted_share": Fraction(0), "epsilon_records": Fraction(0)}
    """Further fields in which parts of a stack may differ, with the value that stands for all."""

    epsilon: Fraction
    delta: Fraction
    epsilon_publish: Fraction
    delta_publish: Fraction
    intrusion: bool
    unit: Unit
    epsilon_records: Fraction

    if TYPE_CHECKING:  # fields of some subclasses, computed by others

        @property
        def domain(self) -> Domain:
            """The domain: which items there are."""

        @property
        def shift(self) -> UnitShift:
            """Shift of the state and the counters that share its layers by one unit, where the noise is Gaussian."""

        @property
        def max_total(self) -> Fraction | int | None:
            """Largest sum of one item's absolute weights, as the source promises."""

    @property
    def needs_key(self) -> bool:
        """Whether a hash key decides where an item goes."""
        return False

    def _put_privacy(
        self,
        epsilon: Rational,
        delta: Rational,
        epsilon_publish: Rational | None,
        delta_publish: Rational | None,
        intrusion: object,
    ) -> None:
        """Check and set the parameters of privacy."""
        allowed, zero = self.stored_epsilons, self.zero_delta
        first, small = parse_epsilon(epsilon, "epsilon", allowed), parse_delta(delta, "delta", zero=zero)
        again = first if epsilon_publish is None else parse_epsilon(epsilon_publish, "epsilon_publish", allowed)
        later = small if delta_publish is None else parse_delta(delta_publish, "delta_publish", zero=zero)
        fresh = flag(intrusion, "intrusion")
        given = [value for value in (epsilon_publish, delta_publish) if not isinstance(value, Stored | None)]
        if not fresh and given:
            raise SpecError(
                "epsilon_publish and delta_publish are for the fresh noise of seal, which intrusion=False leaves out"
            )
        self._put(epsilon=first, delta=small, epsilon_publish=again, delta_publish=later, intrusion=fresh)

    def _put_unit(self, unit: Unit, checked: Callable[[Any, str], object], **bounds: Any) -> None:
        """Check and set the unit and its bounds: `max_weight` of an event, by default 1, and promises about an item.

        Args:
            unit: "event" or "item".
            checked: the bound that is kept, from what was given and its name; `SpecError`: it cannot be.
            bounds: `max_weight` and the promises; None: not given.
        """
        require_choice(unit, "unit", UNITS)
        *promises, last = (name for name in bounds if name != "max_weight")
        either = " or ".join(self.item_bounds)
        if unit == "item":
            if bounds["max_weight"] is not None and not self.bounds_events_of_items:
                raise SpecError(f"max_weight belongs to unit = 'event'; with unit = 'item' promise {either}")
            if all(bounds[name] is None for name in self.item_bounds):
                raise SpecError(f"unit = 'item' needs {either}: without a bound one item may be the whole stream")
        elif any(bounds[name] is not None for name in (*promises, last)):
            several = f"{', '.join(promises)} and {last} belong" if promises else f"{last} belongs"
            raise SpecError(f"{several} to unit = 'item'; with unit = 'event' max_weight is the bound")
        elif bounds["max_weight"] is None:
            bounds["max_weight"] = 1
        self._put(unit=unit, **{n: None if value is None else checked(value, n) for n, value in bounds.items()})

    def _warn_of_privacy(self, stacklevel: int = 3) -> None:
        """Warn of parameters that protect nobody, or not everybody; called by the constructor, or further down."""
        if self.no_privacy:
            text = f"epsilon above {NO_PRIVACY} protects nobody: NO PRIVACY"
            warnings.warn(text, NoPrivacyWarning, stacklevel=stacklevel)
        if max(self.delta, self.delta_publish) > LARGE_DELTA:
            text = "delta above 1e-3 allows whole units to be shown now and then; 1e-6 or less is usual"
            warnings.warn(text, NoPrivacyWarning, stacklevel=stacklevel)

    @property
    def slots(self) -> int:
        """Counters of a sketch."""
        return self.domain.size or 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a counter: int64, wrapping."""
        return np.dtype(np.int64)

    @property
    def measure(self) -> Literal["mu2", "rho", "epsilon"]:
        """The measure in which losses add up."""
        return "mu2"

    @property
    def pure(self) -> bool:
        """Whether the noise is pure: its loss is an epsilon without a delta."""
        return self.measure == "epsilon"

    @property
    def no_privacy(self) -> bool:
        """Whether an epsilon is so large that results must say NO PRIVACY."""
        return max(self.epsilon, self.epsilon_publish) > NO_PRIVACY

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The spec that `to_dict` described.

        Raises:
            SpecError: these data do not describe a spec of this kind.
        """
        raise NotImplementedError

    @classmethod
    def _read_fields(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of stored data, whose numbers need only satisfy the rules of the version that wrote them."""
        fields = super()._read_fields(data)
        return fields | {name: Stored(fields[name]) for name in PRIVACY_FIELDS if isinstance(fields.get(name), str)}

    @classmethod
    def _from_fields(cls, **fields: Any) -> Self:
        """The spec with these fields."""
        try:
            return cls(**fields)
        except TypeError:
            raise SpecError("spec has fields that this version does not know, or lacks some") from None

    def comparable(self) -> Self:
        """The spec with all fields in which parts of a stack may differ set to one value."""
        twin = copy.copy(self)
        vars(twin).pop("fingerprint", None)
        for name, value in {**dict.fromkeys(PRIVACY_FIELDS, Fraction(1, 2)), **self.may_differ}.items():
            object.__setattr__(twin, name, value)
        return twin

    def _canonical(self) -> bytes:
        """Bytes of which the fingerprint is a digest: MessagePack with sorted keys, not at every depth."""
        packed: bytes = msgpack.packb(dict(sorted(self.to_dict().items())))
        return packed


class EventCountingSpec(LinearSpec):
    """Base of specs whose events counted may have a counter, by which the quality of a stream is judged.

    `counted_share` is its share of the cost of every layer and every view; 0: there is none.
    """

    counted_share: Fraction

    @property
    def counted(self) -> bool:
        """Whether the events counted have a counter."""
        return bool(self.counted_share)

    def _put_counters(self, counted_share: Rational, epsilon_records: Rational) -> None:
        """Check and set the shares of the counters; the unit is set."""
        self._put(counted_share=exact_counted_share(counted_share, self.unit))
        self._put(epsilon_records=exact_records(epsilon_records, self.unit))

    def shift_of(self, sensitivity2: Fraction | int, coordinates: int) -> UnitShift:
        """Shift by one unit of the state and, if it has a share of every cost, of the number of events counted.

        Args:
            sensitivity2: squared L2 norm of the state's shift.
            coordinates: number of counters of the state that one unit moves, at most.
        """
        if not self.counted_share:
            return UnitShift.of(sensitivity2, coordinates)
        state = ComponentShift(Fraction(sensitivity2), coordinates, 1 - self.counted_share)
        return UnitShift((state, ComponentShift(Fraction(1), 1, self.counted_share)))


class WholeWeightsSpec(EventCountingSpec):
    """Base of specs whose events have whole weights of at most `max_weight`, whatever the unit."""

    bounds_events_of_items = True

    max_weight: int
    max_total: int | None

    @property
    def weight(self) -> int:
        """The unit's weight: the L1 distance between the histograms of two neighbours is at most this."""
        return self.max_weight if self.max_total is None else self.max_total

    def _put_weights(self, unit: Unit, max_weight: int, max_total: int | None) -> None:
        """Check and set the unit and its bounds."""
        self._put_unit(unit, _whole_weight, max_weight=max_weight, max_total=max_total)
        if max_total is not None and self.max_weight > max_total:
            raise SpecError(f"max_weight must be at most max_total, found {max_weight} and {max_total}")


def _whole_weight(value: object, name: str) -> int:
    return checked_int(value, name, 1, MAX_WEIGHT)


@lru_cache(maxsize=128)
def calibrate_shift(epsilon: Fraction, delta: Fraction, shift: UnitShift) -> DiscreteCalibration:
    """Noise of a state whose parts share one mu^2, remembered: a configuration is read more than once."""
    return calibrate_parts(epsilon, delta, [(one.sensitivity2, one.coordinates, one.share) for one in shift.components])
