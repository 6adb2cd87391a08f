"""Maps items to the slots of a domain, and adds their weights to a state.

In: a domain of a spec, the key, batches of items. Out: `Index`, a state with weights added. Touches: the state.
Source: Datar & Muthukrishnan 2002 (domain sampling); docs/theory/profile.md 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Flags, State
from sketchstream.errors import ItemError, KeyMismatchError, SpecError
from sketchstream.items.arrays import Items, as_weights
from sketchstream.items.batch import Batch, Invalid, Outside, locate, require_invalid
from sketchstream.items.key import TYPE_NAMES, Key, TypeName
from sketchstream.spec import ClosedDomain, Domain, OpenDomain

GROUPING = "a sketch with groups takes Pairs(groups, items), one without takes items"
"""Message about a batch of the wrong type."""
NO_COUNTERS: npt.NDArray[np.int64] = np.zeros(0, np.int64)

_BLOCK = 1 << 22
"""Number of ids hashed or ranked at a time while an index is built."""


def hashes(items: Items, key: Key) -> npt.NDArray[np.uint64]:
    """(n,) keyed 64-bit hashes of a batch: SipHash-2-4 under the key of the items' type."""
    from sketchstream import kernels

    key0, key1 = key.item_key(items.type_name)
    out = np.empty(len(items), np.uint64)
    for position, piece in items.pieces():
        arguments: tuple[Any, ...] = (*piece.arrays, key0, key1, out[position : position + len(piece)])
        loop, twin = (
            (kernels.hash_ints, kernels.plain.hash_ints)
            if items.type_name == "int"
            else (kernels.hash_spans, kernels.plain.hash_spans)
        )
        (twin if kernels.use_numpy_twin(loop, piece.work, None, arguments) else loop)(*arguments)
    return out


def closed_items(domain: Domain) -> Iterator[Items]:
    """All items of a closed domain, in batches of one type.

    Raises:
        SpecError: the domain is open, or its list of items is not available.
    """
    if isinstance(domain, OpenDomain) or (domain.listed and domain.items is None):
        raise SpecError("expected a closed domain whose items are known")
    if domain.items is None:
        assert domain.size is not None
        for first in range(0, domain.size, _BLOCK):
            yield Items.of(np.arange(first, min(first + _BLOCK, domain.size), dtype=np.int64))
        return
    for kind in (int, str, bytes):
        listed = [item for item in domain.items if type(item) is kind]
        if listed:
            yield Items.of(listed)


@dataclass(frozen=True, eq=False)
class Index:
    """Finds the slot of each item of a domain. `Index.build` creates one for each sketch.

    Attributes:
        slots: number of slots of a sketch with this index, d.
        slots_per_level: number of slots of one level (equal to `slots` in closed domains).
        max_weight: see `batch`, for `apply`.
        modulus: see `batch`, for `apply` and `apply_sums`.
        units: (weights, events, alone) -> weights in the units of counters, for `apply`; None: they are in them.
    """

    slots: int
    slots_per_level: int
    _routes: dict[TypeName, Any] = field(repr=False)
    max_weight: int = 1
    modulus: int | None = None
    units: Callable[..., object] | None = None

    @classmethod
    def build(cls, domain: Domain, key: Key | None, keep: Flags | None = None) -> Index:
        """Build the index of a domain.

        Args:
            domain: the domain of the items.
            key: the secret hash key; optional for ClosedDomain(size=) without a sample rate.
            keep: (size,) bool, closed domains: items that have slots here; the others are outside this sketch.

        Raises:
            KeyMismatchError: a key is needed and missing.
            SpecError: the list of items is not available, or `keep` has another shape or type.
            ItemError: a listed item is not a valid item (an int beyond 64 bits).
        """
        if isinstance(domain, OpenDomain):
            if keep is not None:
                raise SpecError("keep belongs to closed domains; an open domain has slots for any item")
            return _open(domain, _require_key(key))
        if keep is not None and (keep.dtype != np.bool_ or keep.shape != (domain.size,)):
            raise SpecError(
                f"keep must be a bool array of one entry for each of {domain.size} items, found shape {keep.shape}"
            )
        if domain.listed:
            return _listed_index(domain, _require_key(key), keep)
        if domain.sample_rate is not None:
            return _ranked_index(domain, _require_key(key), keep)
        return _ids(domain) if keep is None else _ranked_index(domain, None, keep)

    def locate(self, items: Items) -> npt.NDArray[np.int64]:
        """(n,) slot of each item; -1 outside the domain, -2 inside but not sampled."""
        out = np.empty(len(items), np.uint64)
        for position, piece in items.pieces():
            locate(piece, self._routes[items.type_name], out[position : position + len(piece)])
        return out.view(np.int64)

    def apply(
        self,
        state: State,
        items: Items,
        weights: object,
        *,
        invalid: Invalid,
        counters: npt.NDArray[np.int64],
    ) -> None:
        """Add a batch, see `sketchstream.kinds.interface.ItemIndex`."""
        _require_ungrouped(items)
        units = weights if self.units is None else self.units(weights, len(items), alone=invalid == "noop")
        self.batch(
            state, items, units, max_weight=self.max_weight, modulus=self.modulus, invalid=invalid, counters=counters
        ).apply()

    def batch(
        self,
        state: State,
        items: Items,
        weights: object = None,
        *,
        max_weight: int = 1,
        modulus: int | None = None,
        invalid: Invalid = "error",
        counters: npt.NDArray[np.int64] = NO_COUNTERS,
    ) -> Batch:
        """The batch whose `apply` adds weights to the slots of items, wrapping, or modulo `modulus`.

        Args:
            state: (slots,) int16, int32 or int64, C-contiguous, changed in place.
            items: a batch.
            weights: (n,) integers, or None for ones.
            max_weight: largest absolute weight (not used with a modulus: there any int64 is a weight).
            modulus: counters are 0..modulus-1.
            invalid: "error": an invalid event rejects the whole batch, and nothing is applied; "skip": items outside
                the domain are skipped, an invalid weight rejects the batch; "noop": both are skipped. Whether an event
                is skipped depends on that event alone.
            counters: (0,), (1,) or (2,) int64, changed in place with the state: the sum of the weights of events that
                move a slot, and the number of valid events whose item is in the domain, in its sample or not.

        Raises:
            WeightError, ItemError: weights that are not integers, or not one for each item. `apply` raises DomainError
                and WeightError, which give the position, never the item; the state is then as before.
        """
        require_invalid(invalid)
        if state.shape != (self.slots,) or not state.flags.c_contiguous:
            raise SpecError(f"the state must be a contiguous array of {self.slots} counters, found shape {state.shape}")
        if not 0 < max_weight < 1 << 40:
            raise SpecError(f"max_weight must be at least 1 and below 2^40, found {max_weight}")
        numbers = as_weights(weights, len(items), alone=invalid == "noop")
        limit = 0 if modulus is not None or len(numbers) == 0 else max_weight
        return Batch(state, items, numbers, self._routes[items.type_name], limit, modulus or 0, invalid, counters)

    def apply_sums(
        self,
        state: State,
        items: Items,
        sums: npt.NDArray[np.int64],
        events: npt.NDArray[np.int64],
        *,
        invalid: Outside,
        counters: npt.NDArray[np.int64],
    ) -> None:
        """Add rows, see `sketchstream.kinds.interface.ItemIndex`."""
        from sketchstream import kernels

        _require_ungrouped(items)
        route, counted = self._routes[items.type_name], 0
        if len(counters) > 1:  # an open domain holds every item: no second hash
            counted = int((events if route.way == kernels.HASHED else events[self.locate(items) != -1]).sum())
        Batch(state, items, sums, route, 0, self.modulus or 0, invalid, counters[:1]).apply()
        counters[1:] += counted


def _require_ungrouped(items: object) -> None:
    """Refuse a batch of pairs.

    Raises:
        ItemError: this is a batch of pairs.
    """
    if not isinstance(items, Items):
        raise ItemError(GROUPING)


def _require_key(key: Key | None) -> Key:
    """Return the key, or raise an error if it is missing."""
    if key is None:
        raise KeyMismatchError(
            "this domain needs the hash key: open, listed and sampled domains place items by a keyed hash"
        )
    return key


def _open(domain: OpenDomain, key: Key) -> Index:
    """Index of an open domain: the hash of an item determines its level and slot."""
    from sketchstream import kernels

    routes: dict[TypeName, Any] = {}
    for type_name in TYPE_NAMES:
        key0, key1 = key.item_key(type_name)
        routes[type_name] = kernels.Route(
            kernels.HASHED,
            key0=key0,
            key1=key1,
            per_level=np.uint64(domain.slots_per_level),
            last_level=np.uint64(domain.levels - 1),
        )
    return Index(domain.size, domain.slots_per_level, routes)


def _closed_index(slots: int, routes: dict[TypeName, Any]) -> Index:
    """An index of a closed domain; item types without a route have no items."""
    from sketchstream import kernels

    if slots < 1:
        raise SpecError("no item of the domain has a slot here; raise the sample rate or keep more items")
    return Index(
        slots, slots, {type_name: routes.get(type_name) or kernels.Route(kernels.NEVER) for type_name in TYPE_NAMES}
    )


def _ids(domain: ClosedDomain) -> Index:
    """Ids 0..size-1, each its own slot."""
    from sketchstream import kernels

    assert domain.size is not None
    return _closed_index(domain.size, {"int": kernels.Route(kernels.IDS, size=np.uint64(domain.size))})


def _threshold(rate: Fraction) -> np.uint64:
    """Threshold on the hash: items below it are sampled."""
    return np.uint64(min(int(rate * (1 << 64)), (1 << 64) - 1))


def _ranked_index(domain: ClosedDomain, key: Key | None, keep: Flags | None) -> Index:
    """Index of ids where only the kept and sampled ones have slots, in the order of the ids."""
    from sketchstream import kernels

    assert domain.size is not None
    size = domain.size
    words = np.zeros((-(-size // 64), 3), np.uint64)
    for first in range(0, size, _BLOCK):
        last = min(first + _BLOCK, size)
        valid = np.ones(last - first, np.bool_) if keep is None else keep[first:last]
        chosen = valid
        if domain.sample_rate is not None:
            ids = Items.of(np.arange(first, last, dtype=np.int64))
            chosen = valid & (hashes(ids, _require_key(key)) < _threshold(domain.sample_rate))
        for column, bits in ((0, chosen), (2, valid)):
            packed = np.packbits(bits, bitorder="little")
            packed = np.concatenate([packed, np.zeros(-len(packed) % 8, np.uint8)])
            words[first // 64 : first // 64 + len(packed) // 8, column] = packed.view("<u8")
    slots = int(kernels.count_before(words))
    return _closed_index(slots, {"int": kernels.Route(kernels.RANKED, size=np.uint64(size), words=words)})


def _listed_index(domain: ClosedDomain, key: Key, keep: Flags | None) -> Index:
    """Index of a list of items: a hash table that also compares the items, so that hash collisions are harmless."""
    from sketchstream import kernels

    if domain.items is None:
        raise SpecError("the list of items of this domain is not at hand; give the items to update the sketch")
    valid = np.ones(len(domain.items), np.bool_) if keep is None else keep
    position: dict[TypeName, list[int]] = {type_name: [] for type_name in TYPE_NAMES}
    for number, item in enumerate(domain.items):
        position["str" if isinstance(item, str) else "bytes" if isinstance(item, bytes) else "int"].append(number)
    batches = {
        type_name: Items.of([domain.items[number] for number in numbers])
        for type_name, numbers in position.items()
        if numbers
    }
    values = {type_name: hashes(batch, key) for type_name, batch in batches.items()}
    chosen = valid.copy()
    if domain.sample_rate is not None:
        for type_name, hashed in values.items():
            chosen[position[type_name]] &= hashed < _threshold(domain.sample_rate)
    slots = np.where(chosen, (np.cumsum(chosen) - 1).astype(np.uint64), kernels.UNSAMPLED)
    slots[~valid] = kernels.NOWHERE
    routes: dict[TypeName, Any] = {}
    for type_name, batch in batches.items():
        key0, key1 = key.item_key(type_name)
        table = np.zeros((1 << (2 * len(batch) - 1).bit_length(), 2), np.uint64)
        arguments = (values[type_name], table)
        few = kernels.use_numpy_twin(kernels.fill_table, partial(len, batch), None, arguments)
        (kernels.plain.fill_table if few else kernels.fill_table)(*arguments)
        arrays = batch.whole().arrays
        names = ("ints",) if type_name == "int" else ("buffer", "starts", "ends")
        items: dict[str, Any] = {
            name: array if name == "buffer" else array.astype(np.int64, copy=False)
            for name, array in zip(names, arrays, strict=True)
        }
        routes[type_name] = kernels.Route(
            kernels.LISTED, key0=key0, key1=key1, table=table, slots=slots[position[type_name]], **items
        )
    return _closed_index(int(chosen.sum()), routes)
