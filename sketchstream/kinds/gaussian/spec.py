"""The specification of a sketch of kind `gaussian`: parameters that are validated and calibrated once and frozen.

In: epsilon, delta, unit and its bounds, domain, fraction bits. Out: a frozen `GaussianSpec`. Touches: nothing.
Source: Balle & Wang, ICML 2018 (calibration); docs/theory/gaussian.md, sections 4 to 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final

from sketchstream.errors import SpecError
from sketchstream.items.lattice import MAX_FRACTION_BITS, MAX_UNITS, Lattice
from sketchstream.kinds.linear.spec import CAPACITY, LinearSpec, calibrate_shift, parse_epsilon, stored_closed
from sketchstream.privacy.calibration.discrete import DiscreteCalibration, calibrate_discrete, verify_discrete
from sketchstream.privacy.losses.gaussian import ComponentShift, UnitShift
from sketchstream.spec import (
    ClosedDomain,
    Item,
    Rational,
    SpecFields,
    Unit,
    checked_int,
    exact_delta,
    exact_rational,
    exact_records,
    exact_share,
    keeps_counted,
)

Shape = tuple[int, ...]

MAX_EPSILON: Final = Fraction(1000)
MAX_CAPACITY: Final = 1 << 62
"""Sums of absolute weights in lattice units stay below this, so counters of 64 bits hold them and the noise."""
LISTED_TOTAL: Final = 11
"""Largest total, in lattice units, for which every shape of an item is listed: 194 partitions."""
LISTED_WEIGHT: Final = 200
"""Largest weight of an event, in lattice units, for which every shape is listed."""


@dataclass(frozen=True)
class GaussianSpec(LinearSpec):
    """A vector of counts or sums, one for each item, under exact Gaussian noise.

    Args:
        epsilon: privacy of a layer; exact rational (str, int, Fraction, Decimal, or float by its shortest repr).
        delta: exact rational from 1e-300 to 0.5.
        unit: unit of privacy: one "event", or all events of one "item" in this sketch. The bound determines what an
            item is: a person, a device.
        domain: ClosedDomain; one slot for each of its items, none left out by sampling.
        max_weight: largest absolute weight of one event. Default 1 for unit "event"; for unit "item" `max_per_slot`, or
            `max_total`.
        max_total: unit "item": a promise of the source that the absolute weights of one item's events in one sketch,
            over all parts and partitions, add up to at most this.
        max_per_slot: unit "item": the same promise for each slot; default `max_total`.
        fraction_bits: f, from 0 to 40; weights are multiples of 2^-f, truncated toward zero.
        capacity: largest sum of absolute weights that the counters must hold.
        epsilon_publish: epsilon of the fresh noise at seal; default epsilon.
        delta_publish: delta of the fresh noise at seal; default delta.
        intrusion: True: `seal` adds fresh noise, and the guarantee holds with one copy of the open state. False: it
            publishes the bare state, and the guarantee is void for events after any copy.
        total_share: share of every layer's and every view's mu^2 that a counter of the total weight gets, in lattice
            units; exact rational below 1, 0 (default) for no such counter. The slots' noise is calibrated together with
            it.
        counted: whether events are counted apart from their weights; that counter gets half of `total_share`. Default:
            for unit "event" with a total, where weights are not all 1.
        epsilon_records: unit "event": epsilon of the number of records admitted, outside the ledger; 0: none is kept.

    Raises:
        SpecError: a parameter is outside its range, or parameters contradict each other.

    Examples:
        >>> spec = GaussianSpec(epsilon="1", delta="1e-6", domain=ClosedDomain(size=4000))
        >>> spec.sigma2, spec.sensitivity2
        (Fraction(9165, 512), 1)
    """

    domain: ClosedDomain
    max_weight: Fraction
    max_total: Fraction | None
    max_per_slot: Fraction | None
    fraction_bits: int
    capacity: Fraction
    total_share: Fraction
    counted: bool

    kind = "gaussian"
    bounds_events_of_items = True
    stored_epsilons = (Fraction(0), MAX_EPSILON)
    may_differ: ClassVar[Mapping[str, object]] = {
        "total_share": Fraction(0),
        "counted": False,
        "epsilon_records": Fraction(0),
    }

    def __init__(
        self,
        epsilon: Rational,
        delta: Rational,
        unit: Unit = "event",
        domain: ClosedDomain | None = None,
        *,
        max_weight: Rational | None = None,
        max_total: Rational | None = None,
        max_per_slot: Rational | None = None,
        fraction_bits: int = 0,
        capacity: Rational = CAPACITY,
        epsilon_publish: Rational | None = None,
        delta_publish: Rational | None = None,
        intrusion: bool = True,
        total_share: Rational = 0,
        counted: bool | None = None,
        epsilon_records: Rational = 0,
    ) -> None:
        self._put_privacy(epsilon, delta, epsilon_publish, delta_publish, intrusion)
        if not isinstance(domain, ClosedDomain):
            raise SpecError(f"kind 'gaussian' needs a ClosedDomain, found {type(domain).__name__}")
        if domain.sample_rate is not None:
            raise SpecError("kind 'gaussian' answers for each item: leave sample_rate out")
        self._put(domain=domain, fraction_bits=checked_int(fraction_bits, "fraction_bits", 0, MAX_FRACTION_BITS))
        self._put_unit(unit, self._bound, max_weight=max_weight, max_total=max_total, max_per_slot=max_per_slot)
        if (total := self.max_total) is not None:
            slot = self.max_per_slot if self.max_per_slot is not None and self.max_per_slot < total else None
            most = slot or total
            self._put(max_per_slot=slot, max_weight=most if max_weight is None else min(self.max_weight, most))
        share = exact_share(total_share, "total_share")
        apart = keeps_counted(counted, self.max_weight != 1 or self.fraction_bits > 0, self.unit, share)
        self._put(total_share=share, counted=apart, epsilon_records=exact_records(epsilon_records, self.unit))
        self._put(capacity=self._bound(capacity, "capacity"))
        if self.lattice.units(self.capacity) >= MAX_CAPACITY:
            raise SpecError(
                f"capacity times 2^fraction_bits must be below 2^62, found {self.capacity} times "
                f"2^{self.fraction_bits}: lower one of them"
            )
        self._warn_of_privacy()

    def _bound(self, value: Rational, name: str) -> Fraction:
        """An exact bound of at least one lattice unit."""
        exact = exact_rational(value, f"{name} must be a positive rational number")
        if exact < self.step:
            raise SpecError(f"{name} must be at least one lattice unit, 2^-{self.fraction_bits}, found {value!s:.40}")
        if name != "capacity" and exact * (1 << self.fraction_bits) >= MAX_UNITS:
            raise SpecError(
                f"{name} times 2^fraction_bits must be below 2^40, found {value!s:.40} times 2^{self.fraction_bits}"
            )
        return exact

    @cached_property
    def lattice(self) -> Lattice:
        """The lattice that maps weights to integers."""
        return Lattice(self.fraction_bits, self.max_weight)

    @property
    def step(self) -> Fraction:
        """One lattice unit in user units, 2^-f."""
        return Fraction(1, 1 << self.fraction_bits)

    @property
    def largest_shape(self) -> tuple[int, int, int]:
        """(c, q, r): the shift of largest L2 norm has q entries c and one entry r, in lattice units."""
        if self.unit == "event":
            return self.lattice.most, 1, 0
        assert self.max_total is not None
        total = self.lattice.units(self.max_total)
        slot = min(total, self.lattice.units(self.max_per_slot or self.max_total))
        entries = min(total // slot, self.domain.size)
        return slot, entries, total % slot if entries < self.domain.size else 0

    @property
    def sensitivity2(self) -> int:
        """Squared L2 sensitivity of the state, in squared lattice units."""
        c, q, r = self.largest_shape
        return q * c * c + r * r

    @property
    def coordinates(self) -> int:
        """Largest number of coordinates in which neighbours can differ; before and after a look count separately."""
        if self.unit == "event":
            return 1
        assert self.max_total is not None
        return min(self.lattice.units(self.max_total), 2 * self.domain.size)

    def shapes(self) -> list[Shape] | None:
        """Every shift that one unit can cause, up to order and sign; None if they are too many to list.

        Unit "item": all partitions of 1 to max_total into at most `coordinates` parts of at most max_per_slot, none
        longer than the largest shift. They contain the vectors in which an entry is split in two, for events on both
        sides of a look: splitting shortens.
        """
        if self.unit == "event":
            most = self.lattice.most
            return [(weight,) for weight in range(1, most + 1)] if most <= LISTED_WEIGHT else None
        assert self.max_total is not None
        total = self.lattice.units(self.max_total)
        if total > LISTED_TOTAL:
            return None
        largest = self.largest_shape[0]
        return [
            parts
            for whole in range(1, total + 1)
            for parts in _partitions(whole, largest)
            if len(parts) <= self.coordinates and sum(part * part for part in parts) <= self.sensitivity2
        ]

    @cached_property
    def calibration(self) -> DiscreteCalibration:
        """Noise of the creation layer: the smallest sigma2 found, and its verified delta."""
        return self.calibrated(self.epsilon, self.delta)

    @property
    def sigma2(self) -> Fraction:
        """Parameter of the creation layer, in squared lattice units."""
        return self.calibration.sigma2

    @property
    def publish_sigma2(self) -> Fraction | None:
        """Parameter of the fresh layer at seal; None if the bare state is published."""
        return self.calibrated(self.epsilon_publish, self.delta_publish).sigma2 if self.intrusion else None

    @property
    def published_variances(self) -> tuple[Fraction, ...]:
        """Parameters of the layers in what `seal` publishes of an unmerged sketch."""
        return (self.sigma2, self.publish_sigma2) if self.publish_sigma2 is not None else (self.sigma2,)

    @property
    def slots_share(self) -> Fraction:
        """The slots' share of every layer's and every view's mu^2."""
        return 1 - self.total_share

    @cached_property
    def shift(self) -> UnitShift:
        """Shift of the slots and the counters that share their layers by one unit.

        The total moves by the absolute weights of the unit; for an item on both sides of a look that is two moves.
        """
        if not self.total_share:
            return UnitShift.of(self.sensitivity2, self.coordinates, self.shapes() or ())
        total = self.total_share / 2 if self.counted else self.total_share
        moves = 1 if self.unit == "event" else 2
        parts = [
            ComponentShift(Fraction(self.sensitivity2), self.coordinates, self.slots_share),
            ComponentShift(Fraction(self.most_total**2), min(moves, self.most_total), total),
        ]
        return UnitShift((*parts, ComponentShift(Fraction(1), 1, total)) if self.counted else tuple(parts))

    @property
    def most_total(self) -> int:
        """Largest change of the total by one unit, in lattice units."""
        return self.lattice.most if self.max_total is None else self.lattice.units(self.max_total)

    @property
    def mu2(self) -> Fraction:
        """Squared sensitivity over variance, of the slots and the counters besides: the cost of the first layer."""
        return self.shift.cost(self.sigma2)

    @property
    def needs_key(self) -> bool:
        return self.domain.listed

    def calibrated(self, epsilon: Rational, delta: Rational) -> DiscreteCalibration:
        """Noise for one release of (epsilon, delta) to this unit."""
        exact = parse_epsilon(epsilon, "epsilon", self.stored_epsilons), exact_delta(delta)
        if self.total_share:
            return calibrate_shift(*exact, self.shift)
        shapes = self.shapes()
        return _calibrate_again(*exact, None if shapes is None else tuple(shapes), self.sensitivity2, self.coordinates)

    def to_dict(self) -> dict[str, Any]:
        out = self._plain("kind", "epsilon", "delta", "unit", "domain", "max_weight", "fraction_bits", "capacity")
        out |= self._plain("intrusion") | self._given("max_total", "max_per_slot")
        if self.intrusion:
            out |= self._plain("epsilon_publish", "delta_publish")
        if self.total_share:
            out |= self._plain("total_share", "counted")
        return out | self._given("epsilon_records")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], items: Sequence[Item] | None = None) -> GaussianSpec:
        """The spec that `to_dict` described.

        Args:
            data: result of `to_dict`.
            items: the items of a listed domain, which are not in the dictionary; without them the spec can read
                publications, but its sketches cannot be updated.

        Raises:
            SpecError: the data do not describe a spec of this kind, or have another list of items.
        """
        fields = cls._read_fields(data)
        domain = stored_closed(fields.pop("domain", None), items, "the domain of kind 'gaussian'")
        return cls._from_fields(domain=domain, **fields)

    def _canonical(self) -> bytes:
        """As of a profile: the keys of the domain are sorted too."""
        return SpecFields._canonical(self)


@lru_cache(maxsize=128)
def _calibrate_again(
    epsilon: Fraction, delta: Fraction, shapes: tuple[Shape, ...] | None, sensitivity2: int, coordinates: int
) -> DiscreteCalibration:
    """Calibrate noise, and verify its final parameter again as it will be used; by the shapes if they are listed."""
    reach: dict[str, Any] = {"shapes": shapes}
    if shapes is None:
        reach = {"sensitivity2": sensitivity2, "coordinates": coordinates}
    return verify_discrete(epsilon, delta, calibrate_discrete(epsilon, delta, **reach).sigma2, **reach)


def _partitions(total: int, largest: int) -> Iterator[Shape]:
    """Partitions of an integer into parts of at most `largest`, descending."""
    if total == 0:
        yield ()
    for first in range(min(total, largest), 0, -1):
        for rest in _partitions(total - first, first):
            yield (first, *rest)
