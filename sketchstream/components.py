"""The counters of a sketch besides its slots. Each has its own noise law, sensitivity and noise.

In: components of a spec, costs of layers and views. Out: noisy counters of an open sketch, and published ones.
Touches: entropy, through `sketchstream.noise`.
Source: docs/theory/privacy.md, section 3 (components of a sketch); docs/theory/gaussian_ledger.md, section 3.

A sketch is its slots and its counters together. Every layer and every view of cost c is divided between them by fixed
shares that add up to one: a component of share s gets s c. Costs are epsilons, or mu^2 for Gaussian noise.
One event (or item) changes all components together, so their losses add up to the loss of the whole sketch, and the
sketch's ledger does not need to know about components.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream import noise
from sketchstream.errors import FormatError
from sketchstream.privacy.losses.law_names import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, parameter_name
from sketchstream.spec import read_rational

TOTAL, COUNTED, ADMITTED = "total", "counted", "admitted"
"""Sum of the weights of the events that moved a slot; number of events counted; number of records admitted."""
_WIDTH = 8
"""Bytes of a counter, whatever its value: the size of an open sketch must not depend on its content."""


@dataclass(frozen=True)
class Component:
    """One part of a sketch with its own noise.

    Args:
        name: "slots", or a counter.
        share: share of the cost of every layer and view; 0 for a counter outside the ledger.
        sensitivity: largest change of its value by one protected event (or item).
        law: law of its noise: "discrete-laplace" (costs are epsilons) or "discrete-gaussian" (costs are mu^2).
        own_cost: cost of a counter outside the ledger. Its noise is added at creation only, and the value is published
            unchanged.
        square: square of the L2 sensitivity; None: the square of `sensitivity`.
    """

    name: str
    share: Fraction
    sensitivity: int = 1
    law: str = DISCRETE_LAPLACE
    own_cost: Fraction | None = None
    square: int | None = None

    def parameter(self, cost: Fraction) -> Fraction:
        """The noise parameter of this component, epsilon or sigma2, when the whole sketch gets `cost`."""
        ours = cost * self.share if self.own_cost is None else self.own_cost
        if self.law == DISCRETE_GAUSSIAN:
            return (self.square or self.sensitivity**2) / ours
        return ours / self.sensitivity


def quality_counters(law: str, counted_share: Fraction, epsilon_records: Fraction) -> tuple[Component, ...]:
    """The counters for judging quality, if they are kept: events counted, then records admitted.

    Args:
        law: law of the noise of the events counted.
        counted_share: share of the events counted in every cost; 0: not kept.
        epsilon_records: epsilon of the noise of the records admitted; 0: not kept.
    """
    counters = [Component(COUNTED, counted_share, 1, law)] if counted_share else []
    counters += [Component(ADMITTED, Fraction(0), own_cost=epsilon_records)] if epsilon_records else []
    return tuple(counters)


@dataclass(frozen=True)
class Noise:
    """One draw that was added to a counter.

    Args:
        law: "discrete-laplace": Pr[z = j] is proportional to e^(-epsilon |j|); or "discrete-gaussian": it is
            proportional to e^(-j^2 / (2 sigma2)).
        parameter: epsilon, or sigma2.
    """

    law: str
    parameter: Fraction

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data for a header."""
        return {"law": self.law, parameter_name(self.law): str(self.parameter)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Noise:
        """The draw that `to_dict` described."""
        law = data["law"]
        parameter = read_rational(data.get(parameter_name(law), "0"))
        if law not in (DISCRETE_LAPLACE, DISCRETE_GAUSSIAN) or parameter <= 0:
            raise FormatError("the noise of a counter in these bytes is not of a law that this version knows")
        return cls(law, parameter)


@dataclass(frozen=True)
class Counter:
    """A published counter: a noisy number, and every noise draw that it contains.

    Args:
        name: "total", "counted" or "admitted".
        value: noise included; may be negative.
        noise: laws of the draws that were added up.
    """

    name: str
    value: int
    noise: tuple[Noise, ...] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data for a header."""
        data = _wrap_to_64_bits(self.value).to_bytes(_WIDTH, "little", signed=True)
        return {"name": self.name, "value": data, "noise": [draw.to_dict() for draw in self.noise]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Counter:
        """The counter that `to_dict` described."""
        value = int.from_bytes(data["value"], "little", signed=True)
        return cls(data["name"], value, tuple(Noise.from_dict(draw) for draw in data["noise"]))

    @classmethod
    def sum(cls, counters: Sequence[Counter]) -> Counter:
        """Counters of several sketches added up: values, and all draws."""
        draws = tuple(draw for counter in counters for draw in counter.noise)
        return cls(counters[0].name, _wrap_to_64_bits(sum(counter.value for counter in counters)), draws)


class Counters:
    """The counters of one open sketch. They are secret, like its slots.

    Args:
        components: components of the counters; those inside the ledger come first.
        values: (k,) int64, noise included; they wrap.
        noise: the noise draws in each counter.
    """

    __slots__ = ("_admitted", "_held", "components", "noise", "values")

    def __init__(
        self,
        components: tuple[Component, ...],
        values: npt.NDArray[np.int64],
        noise: tuple[tuple[Noise, ...], ...],
    ) -> None:
        self.components = components
        self.values = values
        self.noise = noise
        self._held = sum(component.own_cost is None for component in components)
        self._admitted = next((at for at, component in enumerate(components) if component.name == ADMITTED), None)

    def __repr__(self) -> str:
        """Text with the counters' names only."""
        return f"<Counters {', '.join(component.name for component in self.components)}>"

    @classmethod
    def create(cls, components: tuple[Component, ...], cost: Fraction) -> Counters:
        """Fresh counters: nothing but the noise of the sketch's creation layer."""
        empty = cls(components, np.zeros(len(components), np.int64), ((),) * len(components))
        return empty.refreshed(cost)

    def refreshed(self, cost: Fraction) -> Counters:
        """Return these counters with one more layer of noise; `self` does not change.

        Args:
            cost: cost of the layer for the whole sketch. A counter outside the ledger uses its own cost.
        """
        draws = [self._drawn(component, component.parameter(cost)) for component in self.components]
        noise = tuple((*held, draw) for held, (draw, _) in zip(self.noise, draws, strict=True))
        with np.errstate(over="ignore"):
            values = self.values + np.array([number for _, number in draws], np.int64)
        return Counters(self.components, values, noise)

    def publish(self, cost: Fraction | None, *, final: bool) -> tuple[Counter, ...]:
        """Return the counters to publish.

        Args:
            cost: cost of the view for the whole sketch; fresh noise is added. None: no noise is added, because the
                state itself is published.
            final: whether this is the publication at seal. Counters outside the ledger are published only then.
        """
        out = []
        for component, value, noises in zip(self.components, self.values.tolist(), self.noise, strict=True):
            if component.own_cost is not None:
                out += [Counter(component.name, value, noises)] if final else []
            elif cost is None:
                out.append(Counter(component.name, value, noises))
            else:
                draw, number = self._drawn(component, component.parameter(cost))
                out.append(Counter(component.name, _wrap_to_64_bits(value + number), (*noises, draw)))
        return tuple(out)

    def as_they_are(self) -> tuple[Counter, ...]:
        """All counters, unchanged, for the bytes of an open sketch."""
        return self.publish(None, final=True)

    def moved(self) -> npt.NDArray[np.int64]:
        """View of the values that updates change in place: the total, then the number of events counted."""
        return self.values[: self._held]

    def admit(self, records: int) -> None:
        """Add to the number of records admitted, if the sketch keeps it."""
        if self._admitted is not None:
            self.values[self._admitted] = _wrap_to_64_bits(int(self.values[self._admitted]) + records)

    def erase(self) -> None:
        """Overwrite the values with zeros."""
        self.values[:] = 0

    @classmethod
    def from_list(cls, components: tuple[Component, ...], data: Sequence[Mapping[str, Any]]) -> Counters:
        """The counters that the plain data of each one describe."""
        read = [Counter.from_dict(counter) for counter in data]
        require_names(components, read)
        values = np.array([counter.value for counter in read], np.int64)
        return cls(components, values, tuple(counter.noise for counter in read))

    @classmethod
    def merge(cls, parts: Sequence[Counters]) -> Counters:
        """The counters of the sketch that results from merging open sketches."""
        with np.errstate(over="ignore"):
            values = np.stack([part.values for part in parts]).sum(axis=0, dtype=np.int64)
        noise = tuple(
            tuple(draw for part in parts for draw in part.noise[at]) for at in range(len(parts[0].components))
        )
        return cls(parts[0].components, values, noise)

    @staticmethod
    def _drawn(component: Component, parameter: Fraction) -> tuple[Noise, int]:
        """One exact draw, and its law."""
        number = np.zeros(1, np.int64)
        draw = noise.discrete_gaussian if component.law == DISCRETE_GAUSSIAN else noise.discrete_laplace
        draw(number, parameter)
        return Noise(component.law, parameter), int(number[0])


def read_counters(
    components: tuple[Component, ...], data: Sequence[Mapping[str, Any]], *, final: bool
) -> tuple[Counter, ...]:
    """The counters of a published object.

    Args:
        components: counters that the spec declares.
        data: fields of the header.
        final: whether the object is the publication at seal.

    Raises:
        FormatError: the counters are not those that a sketch of this spec publishes.
    """
    counters = tuple(Counter.from_dict(counter) for counter in data)
    require_names(tuple(component for component in components if final or component.own_cost is None), counters)
    return counters


def require_names(components: Iterable[Component], counters: Iterable[Counter]) -> None:
    """Raise an error unless the counters are those of a sketch with these components."""
    expected, present = [component.name for component in components], [counter.name for counter in counters]
    if expected != present:
        raise FormatError(f"a sketch of this spec has the counters {expected}, found {present!r:.80}")


def find_counter(counters: Iterable[Counter], name: str) -> Counter | None:
    """The counter of that name, if there is one."""
    return next((counter for counter in counters if counter.name == name), None)


def sum_counters(parts: Sequence[Sequence[Counter]]) -> tuple[Counter, ...]:
    """Sums of the counters that all the sketches have."""
    named = [{counter.name: counter for counter in part} for part in parts]
    names = [counter.name for counter in parts[0] if all(counter.name in part for part in named)]
    return tuple(Counter.sum([part[name] for part in named]) for name in names)


def _wrap_to_64_bits(value: int) -> int:
    """Reduce an integer to 64 bits with sign."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
