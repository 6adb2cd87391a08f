"""An open sketch: creation with noise, updates, releases, merging and sealing.

In: a spec, a hash key, items and weights. Out: releases and sealed states (`sketchstream.published`), and the open
sketch's own bytes, which are a secret. Touches: its state array and, through `sketchstream.noise`, the operating
system's entropy. Only `release` and `seal` publish a function of an open state.
Source: Wu & Pagh, ICML 2024; Dwork et al., ICS 2010 (noise before the first event).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from functools import wraps
from threading import RLock
from typing import TYPE_CHECKING, Any, Concatenate, Literal, NamedTuple, NoReturn, ParamSpec, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from sketchstream import kinds, wire
from sketchstream.array_types import Flags
from sketchstream.components import Counters, sum_counters
from sketchstream.errors import FormatError, KeyMismatchError, MergeError, SealedError, SpecError
from sketchstream.files import replace_secret, write_durably
from sketchstream.forks import process, require_same_process
from sketchstream.image import StateImage
from sketchstream.items.arrays import arguments_of
from sketchstream.items.batch import Outside, require_invalid, require_outside, require_sums
from sketchstream.items.item_lists import pack_items, unpack_items
from sketchstream.items.key import Key
from sketchstream.kinds import closing_kind, view_of_state, with_noise
from sketchstream.kinds.capabilities import Scoped
from sketchstream.provenance import (
    Layer,
    Origin,
    header_of,
    require_accounted,
    require_distinct,
    require_same,
    well_formed,
)
from sketchstream.published import Release, SealedState
from sketchstream.spec import Rational, checked_int, flag

if TYPE_CHECKING:
    from sketchstream.kinds.interface import ItemIndex, Kind, Spec
    from sketchstream.privacy.deployments.guarantee import Guarantee
    from sketchstream.privacy.ledgers.sketch_history import SketchHistory

P = ParamSpec("P")
R = TypeVar("R")


def in_turn(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Serialise a method that reads or changes the state: calls from other threads wait."""

    @wraps(method)
    def called(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        require_same_process(self._home, method.__name__)  # a forked child must not wait for a thread of its parent
        with self._turn:
            return method(self, *args, **kwargs)

    return called


class _Content(NamedTuple):
    """The parts of a sketch that must change together: state, counters, noise layers and ledger.

    A sketch replaces all of them in one assignment, so an interrupt leaves either the old content or the new one.

    Args:
        state: (slots,) counters; None once the sketch is closed.
        counters: the counters kept besides the slots.
        layers: noise layers in the state.
        ledger: history of layers and views.
    """

    state: npt.NDArray[Any] | None
    counters: Counters
    layers: tuple[Layer, ...]
    ledger: SketchHistory


class Sketch:
    """An open sketch, created by `Sketch.create`.

    Its state is differentially private at every moment, because noise was added before the first event. An intruder may
    see the state once (see docs/guarantee.md for the exact statement). Its bytes are still a secret: two copies
    of one open state reveal the events between them.

    Several threads may use one sketch: calls that read or change the state run one at a time. Updates from several
    threads are therefore no faster than from one: give each its own sketch, and merge.
    """

    __slots__ = ("_content", "_home", "_image", "_index", "_turn", "key", "kind", "origin", "spec")

    def __init__(
        self,
        spec: Spec,
        key: Key | None,
        index: ItemIndex,
        state: npt.NDArray[Any],
        counters: Counters,
        layers: tuple[Layer, ...],
        ledger: SketchHistory,
        origin: Origin,
    ) -> None:
        self.spec = spec
        self.kind: Kind[Any] = kinds.kind_of(spec)
        self.key = key
        self._home = process()
        self._turn = RLock()
        self._index = index
        self._content = _Content(state, counters, layers, ledger)
        self._image: StateImage | None = None
        self.origin = origin

    @classmethod
    def create(
        cls,
        spec: Spec,
        key: Key | None = None,
        *,
        origin: Origin = Origin(),  # noqa: B008 - frozen
        keep: Flags | None = None,
        max_epsilon: Rational | None = None,
        max_delta: Rational | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Self:
        """Draw the noise and return an empty sketch.

        Args:
            spec: specification of the sketch; its type decides the kind of sketch.
            key: secret hash key; needed unless the domain is ClosedDomain(size=) without sampling.
            origin: place of the sketch in a deployment.
            keep: (size,) bool, closed domains only: the items that have a slot here; others are outside the domain.
            max_epsilon: budget; a release that would raise the loss above it is refused.
            max_delta: delta of the budget, for kinds whose losses have a delta.
            progress: called from time to time with the number of slots that have their noise.

        Raises:
            KeyMismatchError: the spec needs a key.
            BudgetError: the promised publication alone exceeds the budget.
        """
        kind = kinds.kind_of(spec)
        if key is not None:
            _require_key(key)
        index = index_of(spec, key, keep, origin)
        cost = kind.accounting.creation_cost(spec)
        layer = _new_layer(spec, cost)
        ledger = kind.accounting.ledger(spec, layer.lineage, max_epsilon, max_delta)
        state = np.zeros(index.slots, spec.dtype)
        kind.draw(spec, state, cost, progress)
        counters = Counters.create(kind.accounting.components(spec)[1:], cost)
        return cls(spec, key, index, state, counters, (layer,), ledger, origin)

    def __repr__(self) -> str:
        """Text with public parameters only."""
        life = "closed" if self.closed else "open"
        return f"<Sketch {life} {self.spec.kind} unit={self.spec.unit} epsilon={self.spec.epsilon} slots={self.slots}>"

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: an open state is a secret that travels only as `to_bytes`."""
        raise TypeError("an open sketch cannot be pickled; use to_bytes() and keep the bytes secret")

    @property
    def slots(self) -> int:
        """Counters in all levels, d."""
        return self._index.slots

    @property
    def closed(self) -> bool:
        """Whether the sketch was sealed or merged away."""
        return self._state is None

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Noise layers in the state."""
        return self._content.layers

    @property
    def ledger(self) -> SketchHistory:
        """History of layers and views, and what it costs."""
        return self._content.ledger

    @property
    def _state(self) -> npt.NDArray[Any] | None:
        return self._content.state

    def update(
        self,
        items: object,
        *columns: object,
        weights: object = None,
        invalid: Literal["error", "skip", "noop"] = "error",
    ) -> None:
        """Count items, in place.

        Args:
            items: (n,) integers, a list of int/str/bytes, a (buffer, offsets) pair, a pyarrow array, or `Items`. For
                kinds whose events name a row too: the rows, followed by the items; or both together as
                `Pairs(rows, items)`, a list of (row, item), or an (n, 2) array.
            columns: the items, after rows; and the weights, if they are not given by name.
            weights: (n,) integers, at most `max_weight` in absolute value; negative ones delete. Default 1.
            invalid: "error" rejects the whole batch and names the position; "skip" skips items outside a closed
                domain; "noop" skips invalid weights too. Whether an event is skipped depends on that event alone.

        Raises:
            ItemError, WeightError, DomainError: nothing of the batch was applied.
            SealedError: the sketch is closed.
        """
        require_same_process(self._home, "update")
        require_invalid(invalid)
        if columns:
            items, weights = arguments_of(items, columns, weights, pairs="row" in self.kind.intake.carries)
        with self._turn:  # written out, not `in_turn`: a call less for each of many small batches
            state, counters = self._require_open("update"), self._content.counters.moved()
            beside: dict[str, Any] = {}
            if self._image is not None and not self._image.closed:  # only images of kinds that defer events are made
                beside["image"] = self._image
            self._index.apply(state, self.kind.items(items), weights, invalid=invalid, counters=counters, **beside)

    @in_turn
    def update_sums(self, items: object, sums: object, events: object, *, invalid: Outside = "error") -> None:
        """Count rows of an exact sum over events, in place: the state is then as after `update` of the events.

        Args:
            items: (n,) items, as `update` takes them; for kinds whose events name a row or a group too, `Pairs`. An
                item may be in several rows.
            sums: (n,) integers, the sum of the weights of the events of each row, each of which was valid by itself.
                For a spec with `fraction_bits` f in units of 2^-f, to which every weight was truncated toward zero.
            events: (n,) integers, the numbers of these events.
            invalid: "error" rejects the whole batch if an item is outside the domain, and names the position; "noop"
                leaves such rows out.

        Raises:
            ItemError, WeightError, DomainError: nothing of the batch was applied.
            SpecError: sums do not say what a sketch of this spec counts.
            SealedError: the sketch is closed.
        """
        require_outside(invalid)
        require_sums_mean_events(self.spec)
        state, batch = self._open_state("update_sums"), self.kind.items(items)
        lattice = self.kind.intake.lattice(self.spec)
        most = self.kind.intake.most_weight(self.spec) if lattice is None else lattice.most
        rows = require_sums(sums, events, len(batch), most)
        amounts = self._content.counters.moved()
        self._index.apply_sums(state, batch, *rows, invalid=invalid, counters=amounts)

    def outside(self, items: object) -> int:
        """Number of these items that a closed domain does not contain; 0 for open domains. Does not read the state.

        Args:
            items: items, see `update`.
        """
        return int((self._index.locate(self.kind.items(items)) == -1).sum())

    @in_turn
    def admit(self, records: int) -> None:
        """Record that this many records were admitted to the sketch, whatever their content.

        With `epsilon_records` in the spec, `seal` publishes their noisy number, and readers see which share of the
        records was counted. Without it, this method does nothing. The caller must decide from envelopes alone which
        records are admitted.

        Args:
            records: number of records, at least 0.

        Raises:
            SealedError: the sketch is closed.
        """
        self._require_open("admit")
        self._content.counters.admit(checked_int(records, "records", 0, (1 << 63) - 1))

    @in_turn
    def release(self, epsilon: Rational, delta: Rational | None = None) -> Release:
        """Publish a noisy view of the counters (kind "profile": their histogram); the sketch stays open.

        Args:
            epsilon: cost, charged to `ledger` before any noise is drawn. Later events are charged for it too.
            delta: delta of that cost, for kinds whose losses have a delta.

        Raises:
            BudgetError: the loss, including the promised publication, would exceed the budget.
        """
        state = self._open_state("release")
        cost = self.kind.accounting.asked_cost(self.spec, epsilon, delta)
        charged = self.ledger.charge_release(cost)
        self._content = self._content._replace(ledger=charged)
        return self._publish(state, cost, charged, final=False)

    @in_turn
    def refresh(self, epsilon: Rational | None = None, delta: Rational | None = None) -> None:
        """Add a fresh layer of noise after a known look at the state, so that a later look is protected again.

        Args:
            epsilon: epsilon of the new layer (default: as at creation).
            delta: delta of the new layer, for kinds whose losses have a delta.
        """
        state = self._open_state("refresh")
        costs = self.kind.accounting
        exact = costs.creation_cost(self.spec) if epsilon is None else costs.asked_cost(self.spec, epsilon, delta)
        layer = _new_layer(self.spec, exact)
        ledger = self.ledger.record_look().add_layer(kinds.layer_entry(self.spec, layer.lineage, exact))
        before = self._content.counters
        counters = before.refreshed(exact)
        fresh = with_noise(self.spec, state, exact)
        self._content = _Content(fresh, counters, (*self.layers, layer), ledger)
        state.fill(0)
        before.erase()

    @in_turn
    def seal(self) -> Release | SealedState:
        """Close the sketch and make the publication of its spec; the state is destroyed.

        Returns:
            A Release of cost `epsilon_publish` (publish = "histogram"), or a SealedState.
        """
        state = self._open_state("seal")
        spec, layers = self.spec, self.layers
        sealed: Release | SealedState
        promise = self.kind.accounting.promise(spec)
        if promise.kind == "histogram":
            assert promise.cost is not None
            ledger = self.ledger.charge_publication()
            sealed = self._publish(state, promise.cost, ledger, final=True)
        else:
            shown, cost = state, promise.cost
            if cost is None:
                ledger = self.ledger.charge_publication()
            else:
                fresh = _new_layer(spec, cost)
                ledger = self.ledger.charge_publication(fresh.lineage)
                layers = (*layers, fresh)
                shown = with_noise(spec, state, cost)
            sealed = SealedState(
                spec=spec,
                layers=layers,
                state=shown,
                seal_id=secrets.token_bytes(16),
                origin=self.origin,
                key_id=self._key_id,
                ledger=ledger.published(),
                counters=self._content.counters.publish(cost, final=True),
            )
        # This must come last: an interrupt before this line has published nothing and leaves the sketch open.
        counters = self._content.counters
        self._content = _Content(None, counters, layers, ledger)
        counters.erase()
        if isinstance(sealed, SealedState):
            sealed.state.flags.writeable = False
        if not isinstance(sealed, SealedState) or sealed.state is not state:
            state.fill(0)
        return sealed

    def guarantee(self) -> Guarantee:
        """The privacy guarantee, in words and numbers."""
        return self.kind.guarantee(self.spec, self.ledger)

    def profile(self, *_: object, **__: object) -> NoReturn:
        """Raise an error: an open sketch has no profile.

        Raises:
            SealedError: always; the message says what to do.
        """
        self._refuse_answers("profile")

    def estimate(self, *_: object, **__: object) -> NoReturn:
        """Raise an error: an open sketch has no estimates.

        Raises:
            SealedError: always; the message says what to do.
        """
        self._refuse_answers("estimate")

    @staticmethod
    def _refuse_answers(what: str) -> NoReturn:
        """Raise an error that says which objects have answers."""
        raise SealedError(
            f"an open sketch has no {what}, only what it publishes: seal or release first; seal().{what}() ends the "
            f"sketch, release(epsilon).{what}() is a look that costs epsilon"
        )

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Write the open sketch to a file of mode 0600, durably. A secret, like a key.

        Args:
            path: path of the file.
            replace: whether to replace an earlier copy of this sketch. Its bytes are then erased as far as the file
                system allows. If False, an existing file is refused.

        Raises:
            StoreError: the file exists, or cannot be written.
        """
        replace = flag(replace, "replace")
        data = self.to_bytes()
        if replace and os.path.lexists(path):
            replace_secret(path, data)
        else:
            write_durably(path, data)

    def _repr_html_(self) -> str:
        """HTML for notebooks: public parameters only."""
        from sketchstream.pictures import cards

        return cards.sketch("Sketch, closed" if self.closed else "Sketch, open", self)

    @in_turn
    def to_bytes(self, *, with_items: bool = True) -> bytes:
        """Serialise the open sketch for storage. The bytes are a secret, like a key: never publish, copy or back up.

        Args:
            with_items: include the list of a listed closed domain; without it `from_bytes` needs `spec`.
        """
        state = self._open_state("to_bytes")
        return wire.pack(self._described(with_items), state, codec=wire.RAW, key=self._tagged_by)

    @property
    def _tagged_by(self) -> Key | None:
        return self.key if self.spec.needs_key else None

    def _described(self, with_items: bool) -> dict[str, Any]:
        """Header of the open sketch. The ledger records the copy for which the header is made."""
        self._content = self._content._replace(ledger=self.ledger.record_copy())
        counters = self._content.counters.as_they_are()
        header = header_of("sketch", self.spec, self.layers, self.slots, self.ledger, self.origin, counters)
        items = getattr(self.spec.domain, "items", None)
        if with_items and items is not None:
            header["items"] = pack_items(items)
        return header

    @classmethod
    def from_bytes(
        cls,
        data: bytes | bytearray | memoryview,
        key: Key | None = None,
        *,
        spec: Spec | None = None,
        keep: Flags | None = None,
        take_over: bool = False,
    ) -> Self:
        """Read the open sketch that `to_bytes` wrote.

        Args:
            data: the bytes.
            key: the hash key with which the sketch was created, if it has one.
            spec: the full spec, for bytes written without the items of a listed domain; must be equal to the original.
            keep: see `create`.
            take_over: whether the sketch may take over the memory of `data` (see `wire.aligned_memory`); nobody
                else uses it then.

        Raises:
            FormatError: the bytes are not an open sketch, truncated, altered, of a newer version, or already sealed.
            KeyMismatchError: the sketch has another key.
        """
        if key is not None:
            _require_key(key)
        header, body = wire.unpack(data, key, take_over=take_over)
        if header["kind"] != "sketch":
            raise SealedError("these bytes were published; an open sketch was expected")
        with well_formed():
            items = header.get("items")
            own = kinds.read_spec(header["spec"], None if items is None else unpack_items(items))
            if spec is not None:
                if spec.fingerprint != own.fingerprint:
                    raise FormatError("the sketch was made with another spec")
                own = spec
            if own.needs_key and key is None:
                raise KeyMismatchError("the sketch needs the hash key it was created with: give a Key, or --key-file")
            if header.get("key_id") != (key.id if key is not None and own.needs_key else None):
                raise KeyMismatchError("the sketch was made with another hash key; give the one it was created with")
            origin = Origin.from_dict(header)
            index = index_of(own, key, keep, origin)
            if body is None or body.dtype != own.dtype or body.shape != (index.slots,):
                raise FormatError(f"expected {index.slots} counters of {own.dtype}, found another number or type")
            counters, layers, ledger = _read_accounted(header, own)
            return cls(own, key, index, body, counters, layers, ledger, origin)

    @property
    def _key_id(self) -> bytes | None:
        return self.key.id if self.key is not None and self.spec.needs_key else None

    def _require_open(self, step: str) -> npt.NDArray[Any]:
        """The state, if the sketch is open; events may be missing from it until its image is read."""
        if self._state is None:
            raise SealedError(
                f"{step} needs an open sketch; this one was sealed or merged into another and its state is gone"
            )
        require_same_process(self._home, step)
        return self._state

    def _open_state(self, step: str) -> npt.NDArray[Any]:
        """The whole state, if the sketch is open."""
        state = self._require_open(step)
        if self._image is not None:
            self._image.detach()
            self._image = None
        return state

    def _publish(self, state: npt.NDArray[Any], cost: Fraction, charged: SketchHistory, *, final: bool) -> Release:
        """Draw one noisy view of the counters; `charged` has its cost."""
        shared = self.kind.accounting.shared_cost(self.spec, cost, final=final)
        return Release(
            spec=self.spec,
            layers=self.layers,
            slots=self.slots,
            noised=view_of_state(self.spec, state, cost, final=final),
            cost=cost,
            seal_id=secrets.token_bytes(16),
            final=final,
            origin=self.origin,
            key_id=self._key_id,
            ledger=charged.published(),
            counters=self._content.counters.publish(shared, final=final),
        )


def require_sums_mean_events(spec: object) -> None:
    """Refuse specs whose sketches do not count sums of weights.

    Raises:
        SpecError: with the reason.
    """
    reason = kinds.kind_of(spec).intake.sums_refused(spec)
    if reason is not None:
        raise SpecError(f"a sketch of this spec counts events one by one, not sums of them: {reason}")


def read_ledger(header: Mapping[str, Any]) -> SketchHistory:
    """The ledger in the header of an open sketch, if it accounts for the noise in that header; needs no key.

    Raises:
        FormatError: the ledger does not account for it, or the header is not one of an open sketch.
    """
    with well_formed():
        return _read_accounted(header, kinds.read_spec(header["spec"]))[2]


def _read_accounted(header: Mapping[str, Any], spec: Spec) -> tuple[Counters, tuple[Layer, ...], SketchHistory]:
    """Counters, layers and ledger in the header of an open sketch, if the ledger accounts for their noise."""
    kind = kinds.kind_of(spec)
    layers = tuple(Layer.from_dict(layer) for layer in header["layers"])
    ledger = kind.accounting.read_ledger(spec, header["ledger"])
    counters = Counters.from_list(kind.accounting.components(spec)[1:], header.get("counters", ()))
    require_accounted(spec, layers, ledger, counters.as_they_are(), view=None)
    return counters, layers, ledger


def _require_key(key: object) -> None:
    """Refuse a value that is not a key, for callers without a type checker."""
    if not isinstance(key, Key):
        raise KeyMismatchError(
            f"key must be a Key, made by Key.generate() or read by Key.load(path), found {type(key).__name__}"
        )


def index_of(spec: Spec, key: Key | None, keep: Flags | None, origin: Origin) -> ItemIndex:
    """The index of the spec's items; a key is required only if the index depends on it."""
    if spec.needs_key and key is None:
        raise KeyMismatchError("this spec needs a hash key: Key.generate(), or `sketchstream keygen` and --key-file")
    return kinds.kind_of(spec).index(spec, key, keep, origin)


def _new_layer(spec: Spec, cost: Fraction) -> Layer:
    """Public description of a new layer. Its lineage comes from the operating system, not from the noise stream."""
    accounting = kinds.kind_of(spec).accounting
    return Layer(accounting.law(spec), accounting.parameter(spec, cost), secrets.token_bytes(16))


@overload
def merge(parts: Sequence[SealedState]) -> SealedState: ...
@overload
def merge(parts: Sequence[Sketch]) -> Sketch: ...
def merge(parts: Sequence[SealedState] | Sequence[Sketch]) -> SealedState | Sketch:
    """Add the states of one population, counted at several sites or in several time ranges.

    The result contains the noise layers of all parts, so merging costs accuracy: `Guarantee` and `plan` print the
    factor. Partitions of a topic keyed by item should be stacked instead.

    Args:
        parts: SealedStates, or open sketches. Open sketches are closed, and the result is open.

    Raises:
        MergeError: nothing to merge; different specs, keys or sets of slots; the same sketch twice; or two
            descendants of one state.
    """
    if isinstance(parts, (Sketch, SealedState)):  # for callers without a type checker
        raise MergeError("merge takes a list of parts, found one alone")
    if not parts:
        raise MergeError("nothing to merge: give at least one SealedState")
    if all(isinstance(part, SealedState) for part in parts):
        sealed: list[SealedState] = list(parts)  # type: ignore[arg-type]
        _require_mergeable(sealed)
        state = kinds.add_states(sealed[0].spec, [part.state for part in sealed])
        state.flags.writeable = False
        return SealedState(
            spec=sealed[0].spec,
            layers=tuple(layer for part in sealed for layer in part.layers),
            state=state,
            seal_id=secrets.token_bytes(16),
            origin=_common_origin([part.origin for part in sealed]),
            key_id=sealed[0].key_id,
            ledger=_merged_ledger([part.ledger for part in sealed]),
            counters=sum_counters([part.counters for part in sealed]),
        )
    if all(isinstance(part, Sketch) for part in parts):
        sketches: list[Sketch] = list(parts)  # type: ignore[arg-type]
        if len({id(part) for part in sketches}) != len(sketches):
            raise MergeError("a sketch cannot be merged with itself", ["lineage"])
        with ExitStack() as turns:
            for part in sorted(sketches, key=id):  # always in the same order, so that two merges cannot deadlock
                require_same_process(part._home, "merge")
                turns.enter_context(part._turn)
            return _merge_open(sketches)
    raise MergeError(
        "merge takes SealedStates or open Sketches, not both; histograms cannot be merged (stack, or publish='state')"
    )


def _merge_open(sketches: list[Sketch]) -> Sketch:
    """Merge open sketches into one open sketch."""
    states = [part._open_state("merge") for part in sketches]
    _require_mergeable(sketches)
    first = sketches[0]
    if closing_kind(first.spec) is not None:
        msg = (
            "open sketches with publish = 'closed' cannot be merged: positions that one of them has published would "
            "be published again under other noise; seal them, and merge what they publish"
        )
        raise MergeError(msg, ["publish"])
    merged = type(first)(
        first.spec,
        first.key,
        first._index,
        kinds.add_states(first.spec, states),
        Counters.merge([part._content.counters for part in sketches]),
        tuple(layer for part in sketches for layer in part.layers),
        _merged_ledger([part.ledger for part in sketches]),
        _common_origin([part.origin for part in sketches]),
    )
    for part, state in zip(sketches, states, strict=True):
        part._content = part._content._replace(state=None)
        state.fill(0)
        part._content.counters.erase()
    return merged


def _require_mergeable(parts: Sequence[SealedState] | Sequence[Sketch]) -> None:
    """Raise MergeError unless the parts have the same spec, key and slots, and no noise in common."""
    key_ids = [part.key_id if isinstance(part, SealedState) else part._key_id for part in parts]
    require_same([part.spec for part in parts], key_ids, what="merged")
    if len({part.slots for part in parts}) > 1:
        raise MergeError("sketches of different partitions of a closed domain cannot be merged; stack them", ["slots"])
    kind = kinds.kind_of(parts[0].spec)
    if isinstance(kind, Scoped):
        kind.require_addable(parts[0].spec, [part.origin for part in parts])
    seal_ids = [part.seal_id for part in parts if isinstance(part, SealedState)]
    require_distinct([part.layers for part in parts], seal_ids, what="merged")


def _merged_ledger(ledgers: Sequence[SketchHistory]) -> SketchHistory:
    """The ledger of merged states; all parts have one spec, so one measure."""
    return type(ledgers[0]).merge(ledgers)


def _common_origin(origins: Sequence[Origin]) -> Origin:
    """What the parts' origins agree on; windows join to the range they span."""
    first = origins[0]
    if all(origin == first for origin in origins):
        return first
    windows = [origin.window for origin in origins]
    bounded = [window for window in windows if window is not None]
    return Origin(
        name=first.name if len({origin.name for origin in origins}) == 1 else "",
        revision=max(origin.revision for origin in origins),
        window=(min(w[0] for w in bounded), max(w[1] for w in bounded)) if len(bounded) == len(windows) else None,
    )
