"""The seam between the engine and the kinds of sketches: what a kind must provide.

In: specs, states, batches of items, published objects. Out: one `Kind` for each kind of sketch. Touches: nothing; a
kind's methods touch the states they are given and, through `sketchstream.noise`, entropy.

A kind is everything that differs between sketches; the engine (`Sketch`, `Release`, bytes, ledger, worker, store,
query, command line) is everything that does not. The engine asks
`sketchstream.kinds.kind_of(spec)` and never names a kind. What only some kinds can do is in
`sketchstream.kinds.capabilities`. Two things a kind has as objects of their own: `accounting`, what its noise costs,
and `intake`, how records become its events.
A kind is added by one package under `kinds/` and one line in the registry, `kinds/__init__.py`.

Laws, which `tests/helpers/conformance.py` checks for every kind:

    1. A spec is frozen, validated once, and the same after `read_spec(spec.to_dict())`; equal specs have equal
       fingerprints and unequal specs unequal ones. `to_dict()["kind"]` is the name of the kind.
    2. `parameter` and `cost` of `accounting` are inverse: `cost(spec, parameter(spec, c)) == c`, exactly. Costs are in
       the measure in which the kind's ledger adds (epsilon of pure differential privacy, mu^2 of Gaussian noise).
    3. `draw` adds one independent vector of exact noise of the law that `parameter` names to every counter, and nothing
       else. It is called before the first event, and what it does is independent of the state.
    4. `apply` is linear and commutative: the state after a batch is the state before it plus (in the group of the
       kind) a function of the batch alone. Batches may be cut and ordered in any way. It never branches on, or fails
       because of, the value of a counter.
    5. An event outside the domain, or with an invalid weight, is an error that leaves the state as it was
       (`invalid="error"`), or no event at all ("noop"; "skip" lets only invalid weights be errors); that is decided
       from the event alone, by `intake` as by `apply`.
    6. `kinds.add_states` is the sum of that group: sketches of two halves of a stream, added, hold the stream.
    7. One protected unit moves component i of the state by at most `accounting.components(spec)[i].sensitivity`, in
       the norm of its law.
    8. `view` reads the state and leaves it as it is; what it returns has fresh noise of the given cost.
    9. `profile` and `estimate` are functions of what was published alone: they need no key, no state, and no entropy.
    10. The ledger that `accounting.ledger` begins accounts for exactly the noise that `draw`, `view` and the counters
        draw; bytes whose ledger does not account for their noise are refused.
    11. `apply_sums` of rows (item, sum of the weights, number of events) leaves state and counters as `apply` of the
        events themselves would, bit for bit, however the events are divided among rows. A spec for which that is not
        true says why in an attribute `sums_refused`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Flags, State
from sketchstream.errors import EstimateError, FormatError
from sketchstream.items.arrays import Items
from sketchstream.kinds.accounting import Accounting
from sketchstream.kinds.capabilities import Reconstructing
from sketchstream.kinds.expansion import Expansion
from sketchstream.kinds.exports import AnswerRows
from sketchstream.kinds.intake import Intake
from sketchstream.privacy.deployments.publications import require_listed
from sketchstream.privacy.ledgers.sketch_history import SketchHistory

if TYPE_CHECKING:
    from sketchstream.items.batch import Invalid, Outside
    from sketchstream.items.key import Key
    from sketchstream.kinds.answers import Answers
    from sketchstream.privacy.deployments.guarantee import Guarantee
    from sketchstream.privacy.deployments.surroundings import Context
    from sketchstream.spec import Domain, Item

Progress = Callable[[int], None]


class Spec(Protocol):
    """The part of a spec that the engine reads. A spec is frozen, and everything in it is public.

    Specs of some kinds have more attributes, which `Intake` reads: `max_weight`; `lattice`, on which weights lie;
    `sums_refused`, the reason of law 11.
    """

    @property
    def kind(self) -> str:
        """Name of the kind."""

    @property
    def unit(self) -> Literal["event", "item"]:
        """The unit that is protected: "event" or "item"."""

    @property
    def domain(self) -> Domain:
        """The domain: which items there are."""

    @property
    def epsilon(self) -> Fraction:
        """Epsilon of each layer of noise."""

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


class ItemIndex(Protocol):
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
            counters: values of the counters besides the slots that updates move, changed in place.

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
            state: counters as `apply` takes them, of a spec without `sums_refused`.
            items: n items, as `Kind.items` made them; several rows of one item are allowed.
            sums: (n,) sums of the weights of valid events, in lattice units where the spec has fractions.
            events: (n,) their numbers.
            invalid: what happens at a row outside the domain.
            counters: counters besides the slots, as `apply` takes them.

        Raises:
            ItemError, DomainError: nothing of the batch was applied.
        """


S = TypeVar("S", bound=Spec)


class Kind(ABC, Generic[S]):
    """One kind of sketch. Stateless: one object for all sketches of the kind. The module's docstring has the laws."""

    name: ClassVar[str]
    """Name of the kind in specs, bytes and configuration files."""
    partitions: ClassVar[Literal["stack", "merge"]] = "stack"
    """How the sketches of a topic's partitions become one: side by side, for items of their own, or added up."""
    spec_type: type[S]
    """Class of the kind's specs."""
    accounting: Accounting[S]
    """What the noise of the kind costs."""
    intake: Intake[S] = Intake()
    """How records become events of the kind."""

    # Specs.

    def expansion(self, data: Mapping[str, Any]) -> Expansion:
        """What `read_spec` of a spec, and the first answer of a sketch of it, take; from declared sizes alone.

        Args:
            data: data of a stranger; any of its values may be of any type.
        """
        return Expansion()

    @abstractmethod
    def read_spec(self, data: Mapping[str, Any], items: Sequence[Item] | None = None) -> S:
        """The spec that `to_dict` described.

        Args:
            data: what `to_dict` gave.
            items: items of a listed domain, whose dictionary has only their digest.

        Raises:
            SpecError: these data describe no spec of this kind.
        """

    # Descriptions and the statement.

    def facts(self, spec: S, slots: int) -> list[tuple[str, str]]:
        """Public parameters as rows of (name, value), for people."""
        return [
            (name, str(value))
            for name, value in spec.to_dict().items()
            if not isinstance(value, (dict, list, bytes)) and name != "kind"
        ] + [("slots", f"{slots:,}")]

    @abstractmethod
    def statement(self, spec: S, ledger: SketchHistory, context: Context | None = None) -> Guarantee:
        """What is protected, and how much; others ask `guarantee`."""

    def guarantee(self, spec: S, ledger: SketchHistory, context: Context | None = None) -> Guarantee:
        """What is protected, and how much, of a sketch whose published numbers are all on the list.

        Args:
            spec: spec of the sketch.
            ledger: ledger of the sketch.
            context: deployment of the sketch, as far as it is known.

        Raises:
            SpecError: a counter is on no entry of `sketchstream.privacy.deployments.publications`.
        """
        require_listed(component.name for component in self.accounting.components(spec))
        return self.statement(spec, ledger, context)

    # Updates and noise.

    @abstractmethod
    def index(self, spec: S, key: Key | None, keep: Flags | None, origin: Any = None) -> ItemIndex:
        """Build the map from items to slots.

        Args:
            spec: spec of the sketch.
            key: the secret hash key, where the spec needs one.
            keep: (size,) bool, closed domains: the items that have slots here.
            origin: `Origin` of the sketch, where in a deployment it belongs: the index of some kinds depends on it.
        """

    def items(self, source: object) -> Any:
        """A batch as `update` and the index take it: `Items`; `Pairs` for kinds that carry a row; with groups, both.

        Args:
            source: what `Sketch.update` was given.

        Raises:
            ItemError: it is not such a batch.
        """
        return Items.of(source)

    @abstractmethod
    def draw(self, spec: S, state: State, cost: Fraction, progress: Progress | None = None) -> None:
        """Add one independent layer of exact noise to every counter, in place.

        Args:
            spec: spec of the sketch.
            state: (slots,) integers of `spec.dtype`.
            cost: cost of the layer.
            progress: told how many counters have their noise.
        """

    # Publications.

    @abstractmethod
    def require_view(self, spec: S, header: Mapping[str, Any], body: npt.NDArray[Any]) -> None:
        """Refuse a body that this spec does not publish: what `kinds.view_of_state` returns.

        Raises:
            FormatError: another shape, type or rule.
        """

    def require_state(self, spec: S, slots: int, body: npt.NDArray[Any]) -> None:
        """Refuse a body that is not a state of this spec.

        Raises:
            FormatError: another shape or type.
        """
        if body.dtype != spec.dtype or body.shape != (slots,):
            raise FormatError("the counters do not have the type or number that their header says")

    # Answers.

    @property
    def answer(self) -> Literal["profile", "estimate"]:
        """Method of published objects that returns the answer, for texts and links; others ask for `Reconstructing`."""
        return "profile" if isinstance(self, Reconstructing) else "estimate"

    def rows(self, spec: S) -> AnswerRows:
        """How the answers of a spec lie in rows."""
        return AnswerRows()

    @abstractmethod
    def expected_error(self, spec: S) -> tuple[str, float]:
        """What the usual numbers of a spec are, and the root mean squared error of those that `seal` publishes.

        Args:
            spec: spec of the sketch.
        """

    def estimate(self, published: Any, **options: Any) -> Answers:
        """The answers, for kinds that give estimates."""
        raise EstimateError(f"a sketch of kind {self.name!r} has no estimate: ask it for .{self.answer}()")
