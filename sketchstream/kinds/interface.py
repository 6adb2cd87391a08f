"""The seam between the engine and the kinds of sketches: what a kind must say and do.

In: specs, states, batches of items, published objects. Out: one `Kind` for each kind of sketch. Touches: nothing; a
kind's methods touch the states they are given and, through `sketchstream.noise`, entropy.

A kind is everything that differs between sketches; the engine (`Sketch`, `Release`, bytes, ledger, worker, store,
query, command line) is everything that does not. The engine asks `sketchstream.kinds.of(spec)` and never names a kind.
What only some kinds can do is in `sketchstream.kinds.capabilities`.
A kind is added by one package under `kinds/` and one line in the registry, `kinds/__init__.py`.

Laws, which `tests/helpers/conformance.py` checks for every kind:

    1. A spec is frozen, validated once, and the same after `read_spec(spec.to_dict())`; equal specs have equal
       fingerprints and unequal specs unequal ones. `to_dict()["kind"]` is the name of the kind.
    2. `parameter` and `cost` are inverse: `cost(spec, parameter(spec, c)) == c`, exactly. Costs are in the measure in
       which the kind's ledger adds (epsilon of pure differential privacy, mu^2 of Gaussian noise).
    3. `draw` adds one independent vector of exact noise of the law that `parameter` names to every counter, and nothing
       else. It is called before the first event, and what it does is independent of the state.
    4. `apply` is linear and commutative: the state after a batch is the state before it plus (in the group of the
       kind) a function of the batch alone. Batches may be cut and ordered in any way. It never branches on, or fails
       because of, the value of a counter.
    5. An event outside the domain, or with an invalid weight, is an error that leaves the state as it was
       (`invalid="error"`), or no event at all ("noop"); that is decided from the event alone.
    6. `kinds.add` is the sum of that group: sketches of two halves of a stream, added, hold the stream.
    7. One protected unit moves component i of the state by at most `components(spec)[i].sensitivity`, in the norm of
       its law.
    8. `view` reads the state and leaves it as it is; what it returns has fresh noise of the given cost.
    9. `answer` is a function of what was published alone: it needs no key, no state, and no entropy.
    10. The ledger that `ledger` begins accounts for exactly the noise that `draw`, `view` and the counters draw; bytes
        whose ledger does not account for their noise are refused.
    11. `apply_sums` of rows (item, sum of the weights, number of events) leaves state and counters as `apply` of the
        events themselves would, bit for bit, however the events are divided among rows. A spec for which that is not
        true says why in `sums_refused`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from sketchstream.errors import EstimateError, FormatError
from sketchstream.items.arrays import Items
from sketchstream.kinds.capabilities import Reconstructing
from sketchstream.kinds.expansion import Expansion
from sketchstream.kinds.exports import ColumnType
from sketchstream.privacy.deployments.publications import require_listed
from sketchstream.privacy.losses.sketch_history import SketchHistory

if TYPE_CHECKING:
    from sketchstream.components import Component
    from sketchstream.items.batch import Invalid, Outside
    from sketchstream.items.events import Events
    from sketchstream.items.hashing import Key
    from sketchstream.items.lattice import Lattice
    from sketchstream.privacy.deployments.guarantee import Context
    from sketchstream.privacy.losses.sketch_history import Promise
    from sketchstream.spec import Domain, Epsilon, Item

State = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Progress = Callable[[int], None]
AnyLedger = SketchHistory
"""What the engine needs from a sketch's ledger, whatever its measure."""


class Spec(Protocol):
    """The part of a spec that the engine reads. A spec is frozen, and everything in it is public."""

    @property
    def kind(self) -> str:
        """Name of the kind."""

    @property
    def unit(self) -> Literal["event", "item"]:
        """What is protected."""

    @property
    def domain(self) -> Domain:
        """Which items there are."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of one counter in memory."""

    @property
    def slots(self) -> int:
        """Counters of a sketch that has a slot for everything in its domain."""

    @property
    def needs_key(self) -> bool:
        """Whether a hash key decides where an item goes."""

    @property
    def no_privacy(self) -> bool:
        """Whether an epsilon is so large that results must say NO PRIVACY."""

    @property
    def fingerprint(self) -> bytes:
        """16 bytes that are equal exactly for equal specs."""

    def comparable(self) -> Self:
        """The spec with all fields in which parts of a stack may differ set to one value."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, canonical: equal specs give equal dictionaries; `kind` among them."""


class Places(Protocol):
    """Maps items to slots, and adds events to the slots of a state."""

    @property
    def slots(self) -> int:
        """Counters of a sketch."""

    def locate(self, items: Any) -> npt.NDArray[np.int64]:
        """(n,) slot of each item; -1 outside the domain, -2 inside but not sampled."""

    def apply(
        self, state: State, items: Any, weights: object, *, invalid: Invalid, counters: npt.NDArray[np.int64]
    ) -> None:
        """Apply one batch of events to a state, in place.

        Args:
            state: (slots,) integers of the spec's `dtype`.
            items: n items, as `Kind.items` made them.
            weights: (n,) weights, or None for ones.
            invalid: "error", "skip" or "noop" (law 5).
            counters: values of the counters beside the slots that updates move, changed in place.

        Raises:
            ItemError, WeightError, DomainError: nothing of the batch was applied.
        """

    def apply_sums(
        self,
        state: State,
        items: Any,
        sums: npt.NDArray[np.int64],
        events: npt.NDArray[np.int64],
        *,
        invalid: Outside,
        counters: npt.NDArray[np.int64],
    ) -> None:
        """Apply rows of an exact sum over events, in place, as `apply` would apply the events (law 11).

        Args:
            state: see `apply`; of a spec without `sums_refused`.
            items: n items, as `Kind.items` made them; several rows of one item are allowed.
            sums: (n,) sums of the weights of valid events, in lattice units where the spec has fractions.
            events: (n,) their numbers.
            invalid: what a row outside the domain does.
            counters: see `apply`.

        Raises:
            ItemError, DomainError: nothing of the batch was applied.
        """


S = TypeVar("S", bound=Spec)


class Kind(ABC, Generic[S]):
    """One kind of sketch. Stateless: one object for all sketches of the kind. The module's docstring has the laws."""

    name: ClassVar[str]
    """Name of the kind in specs, bytes and configuration files."""
    carries: ClassVar[tuple[str, ...]] = ("item", "weight")
    """What a record may carry for this kind: "item"; "row", of kinds whose events are pairs; "weight"."""
    partitions: ClassVar[Literal["stack", "merge"]] = "stack"
    """How the sketches of a topic's partitions become one: side by side, for items of their own, or added up."""
    spec_type: type[S]
    """Class of its specs."""

    # What it is.

    @property
    def answer(self) -> Literal["profile", "estimate"]:
        """Method of published objects that returns the answer."""
        return "profile" if isinstance(self, Reconstructing) else "estimate"

    def columns(self, spec: S) -> dict[str, ColumnType]:
        """Types of the columns of rows of answers, and of selections of them.

        Columns that are not here are text, whatever is in them: items, groups, labels.
        """
        del spec
        return {"value": "float64", "stderr": "float64", "low": "float64", "high": "float64"}

    def header(self, spec: S) -> tuple[str, ...]:
        """Names of the columns of all rows of the usual answer, in their order: the same in every window."""
        return tuple(self.columns(spec))

    def usual_number(self, spec: S) -> str:
        """The number that series show unless another one is named; the first of `Shown.numbers`."""
        del spec
        return "distinct" if self.answer == "profile" else "sum"

    @abstractmethod
    def expected_error(self, spec: S) -> tuple[str, float]:
        """What its usual numbers are, and the root mean squared error of those that `seal` publishes.

        Args:
            spec: of the sketch.
        """

    def expansion(self, data: Mapping[str, Any]) -> Expansion:
        """What `read_spec` of a spec, and the first answer of a sketch of it, take; from declared sizes alone.

        Args:
            data: of a stranger; any of its values may be of any type.
        """
        del data
        return Expansion()

    @abstractmethod
    def read_spec(self, data: Mapping[str, Any], items: Sequence[Item] | None = None) -> S:
        """The spec that `to_dict` described.

        Args:
            data: what `to_dict` gave.
            items: of a listed domain, whose dictionary has only their digest.

        Raises:
            SpecError: these data describe no spec of this kind.
        """

    def facts(self, spec: S, slots: int) -> list[tuple[str, str]]:
        """Public parameters as rows of (name, value), for people."""
        return [
            (name, str(value))
            for name, value in spec.to_dict().items()
            if not isinstance(value, (dict, list, bytes)) and name != "kind"
        ] + [("slots", f"{slots:,}")]

    # What its noise costs.

    @abstractmethod
    def law(self, spec: S) -> str:
        """Name of the law of a layer."""

    @abstractmethod
    def creation_cost(self, spec: S) -> Fraction:
        """Cost of the layer that is drawn at creation."""

    @abstractmethod
    def asked_cost(self, spec: S, epsilon: Epsilon, delta: Epsilon | None) -> Fraction:
        """Cost of a release, or of a fresh layer, with this epsilon and delta.

        Raises:
            SpecError: such a promise does not exist for this kind.
        """

    @abstractmethod
    def parameter(self, spec: S, cost: Fraction) -> Fraction:
        """Parameter of the noise of the slots, if the whole sketch gets noise of this cost."""

    @abstractmethod
    def cost(self, spec: S, parameter: Fraction) -> Fraction:
        """Cost of a layer whose law has this parameter in the slots."""

    @abstractmethod
    def components(self, spec: S) -> tuple[Component, ...]:
        """The slots, then the counters beside them."""

    @abstractmethod
    def promise(self, spec: S) -> Promise:
        """What `seal` will publish."""

    @abstractmethod
    def ledger(
        self, spec: S, lineage: bytes, epsilon: Epsilon | None = None, delta: Epsilon | None = None
    ) -> AnyLedger:
        """The ledger that a sketch of this spec begins with.

        Args:
            spec: of the sketch.
            lineage: of its creation layer; empty for a sketch that is only planned.
            epsilon: budget, if there is one.
            delta: of that budget, where the kind's losses have one.

        Raises:
            BudgetError: the promised publication alone exceeds the budget.
        """

    @abstractmethod
    def read_ledger(self, spec: S, data: Mapping[str, Any]) -> AnyLedger:
        """The ledger that its `to_dict` described.

        Raises:
            FormatError: these data describe no ledger of this kind.
        """

    @abstractmethod
    def statement(self, spec: S, ledger: AnyLedger, context: Context | None = None) -> Any:
        """What is protected, and how much, as `privacy.guarantee.Guarantee` says it. `guarantee` gives it to others."""

    def guarantee(self, spec: S, ledger: AnyLedger, context: Context | None = None) -> Any:
        """What is protected, and how much, of a sketch whose published numbers are all on the list.

        Args:
            spec: of the sketch.
            ledger: its history.
            context: its deployment, as far as it is known.

        Raises:
            SpecError: a counter is on no entry of `sketchstream.privacy.deployments.publications`.
        """
        require_listed(component.name for component in self.components(spec))
        return self.statement(spec, ledger, context)

    # What it does.

    @abstractmethod
    def index(self, spec: S, key: Key | None, keep: Mask | None, origin: Any = None) -> Places:
        """Build the map from items to slots.

        Args:
            spec: of the sketch.
            key: the secret hash key, where the spec needs one.
            keep: (size,) bool, closed domains: the items that have slots here.
            origin: `Origin` of the sketch, where in a deployment it belongs: the index of some kinds depends on it.
        """

    def items(self, source: object) -> Any:
        """A batch as `update` and the index take it: `Items`, or `Pairs` for kinds that carry a row.

        Args:
            source: what `Sketch.update` was given.

        Raises:
            ItemError: it is no such batch.
        """
        return Items.of(source)

    def stretch_ms(self, spec: S) -> int | None:
        """Stretches of a window, from its start on, each so long, by which events are told apart; None: by none.

        If there are any, `events` is asked for each window of a chunk.
        """
        del spec
        return None

    def roles(self, spec: S) -> tuple[str, ...]:
        """Fields of a record that its events need beside item, weight and time: keys of `Events.columns`."""
        del spec
        return tuple(role for role in self.carries if role not in ("item", "weight"))

    def decimal_weights(self, spec: S) -> bool:
        """Whether weights may have fractions: specs whose `fraction_bits` are above 0."""
        return getattr(spec, "fraction_bits", 0) > 0

    def events(self, spec: S, given: Events) -> Events:
        """What `update` gets of a chunk of records, each judged from itself alone (law 5): items, weights, `good`.

        By default items and weights as they came. Where weights may be decimal, they are exact multiples of 2^-f for
        a spec with a `lattice`, and whole numbers for others.

        Args:
            spec: of the sketch.
            given: what the records hold.
        """
        column = given.weight
        if column is None:
            return given
        if not self.decimal_weights(spec):
            return replace(given, good=column.absent | column.integers()[1])
        from sketchstream.items.lattice import Units

        lattice: Lattice = spec.lattice  # type: ignore[attr-defined]  # specs with fraction_bits have one
        units, good = column.decimals(lattice.bits, lattice.max_weight)
        absent, one = column.absent, lattice.weight(1)
        units[absent] = one or 0
        return replace(given, weights=Units(units, lattice.bits), good=good | (absent & (one is not None)))

    @abstractmethod
    def draw(self, spec: S, state: State, cost: Fraction, progress: Progress | None = None) -> None:
        """Add one independent layer of exact noise to every counter, in place.

        Args:
            spec: of the sketch.
            state: (slots,) integers of `spec.dtype`.
            cost: of the layer.
            progress: told how many counters have their noise.
        """

    def most_weight(self, spec: S) -> int | None:
        """Largest absolute whole weight of an event; None where any weight will do."""
        return math.floor(getattr(spec, "max_weight", 1))

    # What it publishes.

    @abstractmethod
    def require_view(self, spec: S, header: Mapping[str, Any], body: npt.NDArray[Any]) -> None:
        """Refuse a body that this spec does not publish: what `kinds.view` returns.

        Raises:
            FormatError: another shape, type or rule.
        """

    def require_state(self, spec: S, slots: int, body: npt.NDArray[Any]) -> None:
        """Refuse a body that is no state of this spec.

        Raises:
            FormatError: another shape or type.
        """
        if body.dtype != spec.dtype or body.shape != (slots,):
            msg = "the counters do not have the type or number that their header says"
            raise FormatError(msg)

    # What it answers.

    def estimate(self, published: Any, **options: Any) -> Any:
        """The answers, for kinds that give estimates."""
        del published, options
        msg = f"a sketch of kind {self.name!r} has no estimate: ask it for .{self.answer}()"
        raise EstimateError(msg)
