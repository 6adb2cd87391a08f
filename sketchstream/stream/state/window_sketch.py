"""The open sketch of one window in a worker: closed positions, changed slots, and copies that a thread can finish.

In: as for any open sketch; masks of items. Out: instalments, and the bytes of a snapshot, which are a secret. Touches:
the state of the sketch.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import numpy as np

from sketchstream import wire
from sketchstream.array_types import Flags
from sketchstream.errors import SpecError
from sketchstream.image import StateImage, is_large
from sketchstream.instalment import Instalment
from sketchstream.items.domains import closed_items
from sketchstream.kinds import closing_kind, deferred_addition
from sketchstream.kinds.capabilities import Grouping
from sketchstream.sketch import Sketch, in_turn, index_of


class WindowSketch(Sketch):
    """An open sketch that a worker holds for one window."""

    __slots__ = ()

    @in_turn
    def close_positions(self, first: int, stop: int) -> Instalment:
        """Publish positions of a series that no later event will change; the sketch stays open.

        The seal publishes the bare state with the same words: both together are one view. The caller must ensure that
        no event of these positions is counted afterwards, and decide that from envelopes alone.

        Args:
            first: first position.
            stop: position after the last.

        Raises:
            SpecError: the spec publishes nothing before its seal, or has no such positions.
        """
        state = self._open_state("close_positions")
        kind = closing_kind(self.spec)
        if kind is None or not 0 <= first < stop <= self.spec.domain.size:
            raise SpecError(
                f"only specs with publish = 'closed' publish positions when they close; found {first} to {stop}"
            )
        return Instalment(
            spec=self.spec,
            layers=self.layers,
            words=kind.closed(self.spec, state, first, stop),
            first=first,
            stop=stop,
            seal_id=secrets.token_bytes(16),
            origin=self.origin,
            ledger=self.ledger.charge_publication().published(),
        )

    @in_turn
    def change_slots(self, keep: Flags) -> None:
        """Give slots to another selection of a closed domain's items; items in both selections keep their counters.

        A new slot gets noise of every layer before its first event, as at creation. The counters of items that are no
        longer selected are erased. The selection must not depend on events.

        Args:
            keep: (size,) bool, the items that have a slot from now on.

        Raises:
            SpecError: the domain is open, or no item would have a slot.
        """
        old = self._open_state("change_slots")
        index = index_of(self.spec, self.key, keep, self.origin)
        state = np.zeros(index.slots, self.spec.dtype)
        fresh = np.ones(index.slots, np.bool_)
        blocks = self.kind.blocks(self.spec) if isinstance(self.kind, Grouping) else 1
        former, here, new = (array.reshape(blocks, -1) for array in (old, state, fresh))
        for items in closed_items(self.spec.domain):
            before, after = self._index.locate(items), index.locate(items)
            both = (before >= 0) & (after >= 0)
            here[:, after[both]] = former[:, before[both]]
            new[:, after[both]] = False
        if fresh.any():
            added = np.zeros(int(np.count_nonzero(fresh)), self.spec.dtype)
            for layer in self.layers:
                self.kind.draw(self.spec, added, self.kind.accounting.cost(self.spec, layer.parameter))
            state[fresh] = added
        # An interrupt between these two leaves an index that does not fit the state: every later update is refused.
        self._content = self._content._replace(state=state)
        self._index = index
        old.fill(0)

    @in_turn
    def copy_open(self, *, room: Callable[[int], bytearray] = bytearray) -> wire.Unfinished:
        """Copy the input of `to_bytes(with_items=False)`, from which another thread can make the bytes; a secret too.

        This takes no longer than copying the counters, whereas `to_bytes` also hashes them.

        Args:
            room: returns a buffer of at least the given number of bytes.
        """
        state = self._open_state("copy_open")
        return wire.Unfinished(self._described(with_items=False), state, self._tagged_by, room=room)

    @property
    def large(self) -> bool:
        """Whether a snapshot should use `image_open` instead of a copy; depends only on the spec."""
        return deferred_addition(self.spec) is not None and is_large(self.slots, self.spec.dtype.itemsize)

    @in_turn
    def image_open(self) -> wire.Streamed:
        """The bytes of `to_bytes(with_items=False)` now, read in pieces without a copy of the counters; a secret too.

        Until it is read or closed, events of counters that it has not read are kept in a list. Methods that need the
        whole state before then (a seal, a release) copy the rest.

        Raises:
            SpecError: the sketch is not `large`.
        """
        state = self._open_state("image_open")
        deferred = deferred_addition(self.spec)
        if deferred is None or not self.large:
            raise SpecError(
                f"this sketch of kind {self.spec.kind!r} with {self.slots:,} slots is copied (`copy_open`), not imaged"
            )
        self._image = StateImage(state, self._turn, deferred)
        return wire.Streamed(self._described(with_items=False), state, self._image, self._tagged_by)

    @property
    def deferred_bytes(self) -> int:
        """Memory of the events that are deferred until an image is read."""
        return 0 if self._image is None else self._image.deferred_bytes
