"""Groups of a profile sketch: one histogram for each of a declared list of groups, in one state.

In: a list of groups, events with the position of their group. Out: the slots of an event, the published sketch of one
group. Touches: the states it is given.
Source: docs/theory/privacy.md, section 5 (groups).

A state with groups holds the slots of the first group, then those of the second, and so on, each with all slots of the
domain. So all groups exist from the creation of the sketch, and are snapshotted, sealed and published together.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sketchstream.components import COUNTED, TOTAL
from sketchstream.errors import DomainError, EstimateError, ItemError, WeightError, did_you_mean
from sketchstream.image import NOTHING, StateImage
from sketchstream.items.arrays import Items, Pairs, Weights, as_weights
from sketchstream.items.batch import Invalid, Outside, locate
from sketchstream.items.domains import GROUPING, Index
from sketchstream.kinds.groups.group_list import Codes, OneOfGroups
from sketchstream.kinds.profile import mechanism
from sketchstream.kinds.profile.presence import present, residues
from sketchstream.kinds.profile.ranking import Ranking
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.privacy.losses.history import Entry, History, LayerEntry

if TYPE_CHECKING:
    from sketchstream.published import Release, SealedState

_BLOCK = 1 << 14
"""Events that are located at a time."""


class Grouped:
    """A batch of events, each with the position of its group.

    Args:
        codes: (n,) int32; -1: no group, a no-op.
        items: n items.
    """

    __slots__ = ("codes", "items")

    def __init__(self, codes: Codes, items: Items) -> None:
        self.codes = codes
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def take(self, chosen: Any) -> Grouped:
        """Select events by a mask or an array of positions."""
        return Grouped(self.codes[chosen], self.items.take(chosen))


@dataclass(frozen=True, eq=False)
class GroupIndex:
    """Finds the slot of an item in each group, and adds events to it and to the counters of that group.

    Counters are (groups,) totals, then (groups,) numbers of events where they are kept.

    Args:
        spec: spec of the sketch.
        inner: index of the domain.
        ranking: decides in which groups an item counts; None: in all.
    """

    spec: ProfileSpec
    inner: Index
    ranking: Ranking | None = None

    @property
    def slots(self) -> int:
        """Counters of all groups."""
        return self.spec.group_count * self.inner.slots

    def locate(self, items: Items | Grouped | Pairs) -> npt.NDArray[np.int64]:
        """(n,) slot of each item, whatever its group, in the first group; see `Index.locate`."""
        return self.inner.locate(items if isinstance(items, Items) else items.items)

    def apply(
        self,
        state: npt.NDArray[Any],
        items: Items | Grouped | Pairs,
        weights: object,
        *,
        invalid: Invalid,
        counters: npt.NDArray[np.int64],
        image: StateImage | None = None,
    ) -> None:
        """As `add`; where counters tell presence alone, each event adds a fresh uniform residue, erased afterwards.

        Residues are drawn before any is added, so that a batch that is interrupted takes away those that it added.
        """
        batch, alone = self._grouped(items), invalid == "noop"
        if self.spec.overlap is None or not self.spec.overlap.presence:
            self.add(state, batch, weights, counters, invalid, image)
            return
        assert self.spec.modulus is not None
        numbers = as_weights(weights, len(batch), alone=alone)
        present_events = present(numbers, alone=alone) if len(numbers) else None
        batch = batch if present_events is None else batch.take(present_events)
        fresh = residues(len(batch), self.spec.modulus)
        try:
            self.add(state, batch, fresh, counters, invalid, image)
        finally:
            fresh.fill(0)

    def add(
        self,
        state: npt.NDArray[Any],
        batch: Grouped,
        weights: object,
        counters: npt.NDArray[np.int64],
        invalid: Invalid,
        image: StateImage | None = None,
    ) -> None:
        """Add each weight to the slot of its item in its group.

        Args:
            state: (slots,) changed in place.
            batch: n events.
            weights: (n,) integers, or None for ones.
            counters: changed in place.
            invalid: what invalid events do, as `ItemIndex` takes it.
            image: an image of the state that is being read: events of slots that it has not read are deferred.

        Raises:
            DomainError, WeightError, ItemError: the batch is invalid. Nothing was applied, as after an interrupt.
        """
        numbers = as_weights(weights, len(batch), alone=invalid == "noop")
        limit = 0 if self.spec.modulus is not None or len(numbers) == 0 else self.spec.max_weight
        if invalid != "noop":
            self._require_valid(batch, numbers, limit, items=invalid == "error")
        self._add(state, batch, numbers, limit, counters, image)

    def apply_sums(
        self,
        state: npt.NDArray[Any],
        items: Items | Grouped | Pairs,
        sums: npt.NDArray[np.int64],
        events: npt.NDArray[np.int64],
        *,
        invalid: Outside,
        counters: npt.NDArray[np.int64],
    ) -> None:
        """Add rows, each of which stands for its events of one item in one group, as `add` would add these events."""
        batch, groups = self._grouped(items), self.spec.group_count
        if invalid == "error":
            self._require_valid(batch, sums, 0, items=True)
        totals, counts = counters[:groups], counters[groups:]
        counted = np.zeros(counts.shape, np.int64)
        if counts.size:
            codes = self._codes_that_count(batch)
            inside = (codes >= 0) & (self.locate(batch) != -1)
            np.add.at(counted, codes[inside], events[inside])
        self._add(state, batch, sums, 0, totals, None)
        counts += counted

    def _grouped(self, items: Items | Grouped | Pairs) -> Grouped:
        """The batch with positions of groups, for names of groups.

        Raises:
            ItemError: items without groups.
        """
        if isinstance(items, Items):
            raise ItemError(GROUPING)
        assert self.spec.groups is not None
        return items if isinstance(items, Grouped) else Grouped(self.spec.groups.locate(items.rows), items.items)

    def _codes_that_count(self, batch: Grouped) -> Codes:
        """(n,) positions of the groups in which events count; -1: in none."""
        if self.ranking is None:
            return batch.codes
        out, hashes = np.empty(len(batch), np.int32), np.empty(len(batch), np.uint64)
        for position, piece in batch.items.pieces():
            here = slice(position, position + len(piece))
            out[here] = self.ranking.first(piece, batch.codes[here], hashes[here])
        hashes[:] = 0
        return out

    def _add(
        self,
        state: npt.NDArray[Any],
        batch: Grouped,
        numbers: Weights,
        limit: int,
        counters: npt.NDArray[np.int64],
        image: StateImage | None,
    ) -> None:
        """Add events that need not be checked, or nothing of them."""
        done = np.zeros(1, np.int64)
        shared = (state, batch, numbers, limit, counters, done, image)
        try:
            self._run(*shared, sign=1)
        except BaseException:  # counters wrap, so subtraction restores them exactly
            self._run(*shared, sign=-1)
            raise

    def _run(
        self,
        state: npt.NDArray[Any],
        batch: Grouped,
        numbers: Weights,
        limit: int,
        counters: npt.NDArray[np.int64],
        done: npt.NDArray[np.int64],
        image: StateImage | None,
        *,
        sign: int,
    ) -> None:
        """Add all events (sign 1), or take away those that were added (sign -1): the first `done[0]`."""
        from sketchstream import kernels

        route = self.inner._routes[batch.items.type_name]
        size, n = np.uint64(self.inner.slots), self.spec.group_count
        room = np.empty(min(len(batch), _BLOCK), np.uint64)
        hashes = room if self.ranking is None else np.empty_like(room)
        spare = np.empty(min(len(numbers), _BLOCK), numbers.dtype)
        none = np.zeros(0, np.int64)
        totals, counts = (counters[:n], counters[n : 2 * n]) if counters.size else (none, none)
        rule = (limit, self.spec.modulus or 0, totals, counts, sign, done)
        most = len(batch) if sign > 0 else int(done[0])
        try:
            for position, piece in batch.items.pieces():
                for first in range(0, len(piece), _BLOCK):
                    if position + first >= most:
                        return
                    part = piece.cut(first, first + _BLOCK)
                    slots = room[: len(part)]
                    here = slice(position + first, position + first + len(part))
                    locate(part, route, slots)
                    codes = batch.codes[here]
                    if self.ranking is not None:
                        codes = self.ranking.first(part, codes, hashes[: len(part)])
                    begins = np.uint64(state.size if image is None else image.read_slots)
                    later = NOTHING if image is None else image.room(len(part))
                    deferred = (begins, later.slots, later.weights, later.filled)
                    kernels.add_to_groups(state, slots, codes, size, numbers[here], spare, *rule, *deferred)
        finally:
            room[:] = 0
            hashes[:] = 0
            spare[:] = 0

    def _require_valid(self, batch: Grouped, weights: Any, limit: int, *, items: bool) -> None:
        """Refuse a batch with invalid weights or, if `items` is set, with items or groups that are not declared."""
        if items:
            wrong = (batch.codes < 0) | (self.locate(batch) == -1)
            if wrong.any():
                raise DomainError(
                    f"the item or group at position {int(np.argmax(wrong))} is not declared; nothing was applied"
                )
        if limit and len(weights):
            wrong = (weights > limit) | (weights < -limit)
            if wrong.any():
                raise WeightError.at(int(np.argmax(wrong)), limit)


def add_deferred(
    spec: ProfileSpec, state: npt.NDArray[Any], slots: npt.NDArray[np.uint32], weights: npt.NDArray[np.int32]
) -> None:
    """Add events that were deferred while an image of the state was read.

    Args:
        spec: spec of the sketch.
        state: changed in place.
        slots: (n,) slots of the state.
        weights: (n,) signed weights.
    """
    from sketchstream import kernels

    kernels.add_deferred(state, slots, weights, spec.modulus or 0)


def position(spec: ProfileSpec, name: str) -> int:
    """Position of a group.

    Raises:
        EstimateError: there are no groups, or none of that name.
    """
    if spec.groups is None:
        raise EstimateError("this sketch has no groups: it was made without group_by")
    if name not in spec.groups.all:
        hint = did_you_mean(name, spec.groups.all)
        raise EstimateError(f"there is no group {name!r:.60} among the {len(spec.groups)} groups of this sketch{hint}")
    return spec.groups.all.index(name)


def spec_of_group(spec: ProfileSpec, group: int = 0, one_of: OneOfGroups | None = None) -> ProfileSpec:
    """The spec of one group's sketch.

    Args:
        spec: spec with groups.
        group: position of the group.
        one_of: what the new spec says of all groups; None: nothing, as if there were no others.
    """
    sample = None if spec.groups is None else spec.groups.sample(group)
    own = {"groups": None, "overlap": None, "epsilon_overlap": None, "histograms": None}
    return spec.changed(**own, counts="modulus", noise="groups", sample=sample, one_of=one_of)


def one_group(part: Release | SealedState, name: str) -> Release | SealedState:
    """The sketch of one group; its ledger is that of all groups, in which an item loses at the same time.

    Args:
        part: published part of a sketch with groups.
        name: name of the group.

    Raises:
        EstimateError: there are no groups, or none of that name.
    """
    spec: ProfileSpec = part.spec
    at = position(spec, name)
    assert spec.groups is not None
    n = len(spec.groups)
    names = {f"{one}.{at}": one for one in (TOTAL, COUNTED)}
    counters = tuple(replace(counter, name=names[counter.name]) for counter in part.counters if counter.name in names)
    ledger: Any = part.ledger
    changed: dict[str, Any] = {
        "spec": spec_of_group(spec, at, replace(spec.groups.one_of, patterns=spec.pattern_cost)),
        "layers": tuple(replace(layer, lineage=_derive_identifier(layer.lineage, at)) for layer in part.layers),
        "seal_id": _derive_identifier(part.seal_id, at),
        "ledger": replace(ledger, history=_history(ledger.history, at), budget=None),
        "counters": counters,
    }
    if part.cost is None:
        changed["state"] = part.state.reshape(n, -1)[at]
    else:
        rows = mechanism.histograms(spec, part.noised).reshape(n, spec.levels, -1)
        changed |= {"noised": rows[at], "slots": part.slots // n}
    return replace(part, **changed)


def _derive_identifier(name: bytes, group: int) -> bytes:
    """An identifier for the part of a noise layer, or of a publication, that belongs to one group."""
    return hashlib.blake2b(name + group.to_bytes(4, "little"), digest_size=16, person=b"sketch-group").digest()


def _history(history: History, group: int) -> History:
    """The history of one group: its own noise, and all costs."""
    return History(
        tuple(_entry(entry, group) for entry in history.entries),
        tuple(_history(part, group) for part in history.parts),
        history.seal,
    )


def _entry(entry: Entry, group: int) -> Entry:
    return replace(entry, lineage=_derive_identifier(entry.lineage, group)) if isinstance(entry, LayerEntry) else entry
