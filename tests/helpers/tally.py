"""A toy kind for tests of the seam: one noisy counter of the weights of all items that are in a closed domain.

In: what the engine asks of a kind. Out: a counter under discrete Laplace noise. Touches: the states it is given. It
shows all that a kind must say, in one file; nothing in the package knows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import msgpack
import numpy as np
import numpy.typing as npt

from sketchstream import noise
from sketchstream.components import Component
from sketchstream.errors import FormatError, SpecError
from sketchstream.items.arrays import as_weights
from sketchstream.items.domains import Index
from sketchstream.kinds.accounting import Accounting
from sketchstream.kinds.interface import Kind
from sketchstream.privacy.ledgers.ledger import Ledger, pure_budget, require_no_delta
from sketchstream.privacy.ledgers.sketch_history import Promise
from sketchstream.privacy.losses.history import LayerEntry
from sketchstream.spec import ClosedDomain, DomainOutline, exact_epsilon


@dataclass(frozen=True)
class TallySpec:
    """A noisy count of the events of known items."""

    epsilon: Fraction
    domain: ClosedDomain
    unit: Literal["event", "item"] = "event"

    kind = "tally"
    slots = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", exact_epsilon(self.epsilon))
        if not isinstance(self.domain, ClosedDomain) or self.unit != "event":
            msg = "a tally has a closed domain and protects events"
            raise SpecError(msg)

    epsilon_publish = property(lambda self: self.epsilon)
    dtype = np.dtype(np.int64)
    needs_key = property(lambda self: self.domain.listed)
    no_privacy = property(lambda self: self.epsilon > 10)

    def comparable(self) -> TallySpec:
        return replace(self, epsilon=Fraction(1))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "epsilon": str(self.epsilon), "unit": self.unit, "domain": self.domain.to_dict()}

    @property
    def fingerprint(self) -> bytes:
        return hashlib.blake2b(msgpack.packb(self.to_dict()), digest_size=16).digest()


@dataclass(frozen=True)
class Statement:
    """The guarantee, in few words."""

    unit: str
    loss: Fraction
    no_privacy: bool
    warning: str | None = None

    @property
    def summary(self) -> str:
        return f"an {self.unit} loses at most {self.loss}"

    def to_dict(self) -> dict[str, Any]:
        return {"unit": self.unit, "published": str(self.loss), "summary": self.summary}

    def __str__(self) -> str:
        return self.summary


@dataclass(frozen=True)
class Tally:
    """The answer: the count, and its interval."""

    value: int
    low: float
    high: float

    columns = ("name", "value", "low", "high")

    def to_dict(self) -> dict[str, Any]:
        return {"value": self.value, "low": self.low, "high": self.high}

    def rows(self) -> list[dict[str, Any]]:
        return [{"name": "events", "value": self.value, "low": self.low, "high": self.high}]

    def __str__(self) -> str:
        return f"events: {self.value} ({self.low:.0f} to {self.high:.0f})"


class OneSlot:
    """Items are inside or outside; there is one slot for all that are inside."""

    slots = 1

    def __init__(self, within: Index) -> None:
        self._within = within

    def locate(self, items: Any) -> npt.NDArray[np.int64]:
        return np.where(self._within.locate(items) >= 0, 0, -1)

    def apply(self, state: Any, items: Any, weights: object, *, invalid: Any, counters: Any) -> None:
        given = as_weights(weights, len(items), alone=invalid == "noop")
        units = np.ones(len(items), np.int64) if len(given) == 0 else given.astype(np.int64)
        inside = self.locate(items) >= 0
        good = np.abs(units) <= 1
        if invalid == "error" and not (inside & good).all():
            from sketchstream.errors import DomainError

            msg = f"the event at position {int(np.argmin(inside & good))} is none of this sketch's; nothing was applied"
            raise DomainError(msg)
        with np.errstate(over="ignore"):
            state[0] += np.sum(units[inside & good], dtype=np.int64)

    def apply_sums(self, state: Any, items: Any, sums: Any, events: Any, *, invalid: Any, counters: Any) -> None:
        inside = self.locate(items) >= 0
        if invalid == "error" and not inside.all():
            from sketchstream.errors import DomainError

            msg = f"the row at position {int(np.argmin(inside))} is none of this sketch's; nothing was applied"
            raise DomainError(msg)
        with np.errstate(over="ignore"):
            state[0] += np.sum(sums[inside], dtype=np.int64)


class TallyAccounting(Accounting[TallySpec]):
    """Costs are pure epsilons."""

    def law(self, spec: TallySpec) -> str:
        return "discrete-laplace"

    def creation_cost(self, spec: TallySpec) -> Fraction:
        return spec.epsilon

    def asked_cost(self, spec: TallySpec, epsilon: Any, delta: Any) -> Fraction:
        require_no_delta(delta)
        return exact_epsilon(epsilon)

    def parameter(self, spec: TallySpec, cost: Fraction) -> Fraction:
        return cost

    def cost(self, spec: TallySpec, parameter: Fraction) -> Fraction:
        return parameter

    def unit_weight(self, spec: TallySpec) -> int:
        return 1

    def groups_of_item(self, spec: TallySpec) -> int:
        return 1

    def shared_cost(self, spec: TallySpec, cost: Fraction, *, final: bool) -> Fraction:
        return cost

    def components(self, spec: TallySpec) -> tuple[Component, ...]:
        return (Component("slots", Fraction(1)),)

    def promise(self, spec: TallySpec) -> Promise:
        return Promise("fresh", spec.epsilon)

    def ledger(self, spec: TallySpec, lineage: bytes, epsilon: Any = None, delta: Any = None) -> Ledger:
        budget = pure_budget(epsilon, delta)
        first = LayerEntry(lineage, "discrete-laplace", spec.epsilon, 1)
        return Ledger.create("event", 1, first, self.promise(spec), budget)

    def read_ledger(self, spec: TallySpec, data: Mapping[str, Any]) -> Ledger:
        return Ledger.from_dict(data)


class TallyKind(Kind[TallySpec]):
    """One counter."""

    name = "tally"
    partitions = "merge"
    spec_type = TallySpec
    accounting = TallyAccounting()

    def expected_error(self, spec: TallySpec) -> tuple[str, float]:
        return "count", 2 / float(spec.epsilon)

    def read_spec(self, data: Mapping[str, Any], items: Sequence[Any] | None = None) -> TallySpec:
        domain = dict(data["domain"])
        domain.pop("kind")
        digest = domain.pop("items_digest", None)
        if digest is None:
            return TallySpec(data["epsilon"], ClosedDomain(**domain))
        return TallySpec(
            data["epsilon"], DomainOutline(digest=digest, **domain) if items is None else ClosedDomain(items=items)
        )

    def statement(self, spec: TallySpec, ledger: Any, context: Any = None) -> Statement:
        return Statement(spec.unit, ledger.loss(), spec.no_privacy)

    def index(self, spec: TallySpec, key: Any, keep: Any, origin: Any = None) -> Any:
        return OneSlot(Index.build(spec.domain, key if spec.needs_key else None, keep))

    def draw(self, spec: TallySpec, state: Any, cost: Fraction, progress: Any = None) -> None:
        noise.discrete_laplace(state, cost)

    def require_view(self, spec: TallySpec, header: Mapping[str, Any], body: Any) -> None:
        if body.shape != (1,) or body.dtype != np.int64 or header["slots"] != 1:
            msg = "a tally is one count: its counters are those of one slot"
            raise FormatError(msg)

    def estimate(self, published: Any, **options: Any) -> Tally:
        parts = getattr(published, "parts", (published,))
        value = sum(int((part.noised if hasattr(part, "noised") else part.state)[0]) for part in parts)
        scales = [1 / float(layer.parameter) for part in parts for layer in part.layers]
        width = 3 * sum(2 * scale**2 for scale in scales) ** 0.5
        return Tally(value, value - width, value + width)


KIND = TallyKind()
