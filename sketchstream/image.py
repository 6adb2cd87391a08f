"""Images of an open sketch: its counters at one moment, read piece by piece while the sketch continues to count.

In: a state, the sketch's lock, events during the reading. Out: the bytes of the state at that moment. Touches: only
the state, to which it adds deferred events.

A copy would need the state's memory twice. Instead, an event of a counter that was already read is added at once; any
other event is deferred in a list until all counters are read. The reading order is fixed, so nothing in the bytes
depends on events. The counters of a state are sums, so the time at which an event is added does not matter.

Laws (tests/sketch/test_image.py):
1. The pieces are the bytes of the state at the creation of the image, whatever was added since.
2. After `close` or `detach`, the state is the same as without an image.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import State

Add = Callable[[State, npt.NDArray[np.uint32], npt.NDArray[np.int32]], None]

PIECE_BYTES = 512 * 1024
MIN_DEFERRING_BYTES = 1 << 20
"""Bytes of a state below which it is copied: that takes less time than a list of events."""
MAX_SLOTS = 1 << 32
MAX_DEFERRED_BYTES, DEFERRED_PART = 4 << 20, 16
"""Most bytes of events that may wait: these, or a 16th of the states if that is more. Beyond, no records are taken."""
_BLOCK = 1 << 16
"""Least number of deferred events that one block of memory holds."""
_EVENT_BYTES = 8
"""Bytes of a deferred event: four of its slot and four of its weight."""


def is_large(slots: int, itemsize: int) -> bool:
    """Whether states with this number and size of counters are imaged, by kinds that can defer events."""
    return slots * itemsize >= MIN_DEFERRING_BYTES and slots < MAX_SLOTS


class Deferred:
    """Buffer for events that are added later.

    Args:
        n: number of events that must fit.
    """

    __slots__ = ("filled", "slots", "weights")

    def __init__(self, n: int) -> None:
        self.slots = np.empty(n + 1, np.uint32)  # compiled code writes one entry beyond the last
        self.weights = np.empty(n + 1, np.int32)
        self.filled = np.zeros(1, np.int64)

    @property
    def left(self) -> int:
        """Number of events that still fit."""
        return len(self.slots) - 1 - int(self.filled[0])


NOTHING = Deferred(0)
"""The deferred events where there are none."""


class StateImage:
    """The counters of a state at the creation of the image.

    Args:
        state: (slots,) of an open sketch, fewer than 2^32.
        turn: the sketch's lock.
        add: adds deferred events: state, (n,) slots, (n,) weights.
    """

    def __init__(self, state: State, turn: threading.RLock, add: Add) -> None:
        self._state = state
        self._turn: Any = turn
        self._add = add
        self._size = state.size
        self._rest: State | None = None
        self._rest_from = 0
        self._blocks: list[Deferred] = []
        self.n_bytes = state.nbytes
        self.read_slots = 0
        """Counters before this one were read: events are added to them at once."""

    @property
    def closed(self) -> bool:
        """Whether the image is finished, so that the sketch can forget it."""
        return self.read_slots >= self._size

    @property
    def deferred_bytes(self) -> int:
        """Memory of the deferred events."""
        return sum(len(block.slots) for block in self._blocks) * _EVENT_BYTES

    def room(self, n: int) -> Deferred:
        """Return a buffer with room for `n` deferred events; called with the lock held."""
        if not self._blocks or self._blocks[-1].left < n:
            self._blocks.append(Deferred(max(n, _BLOCK)))
        return self._blocks[-1]

    def pieces(self) -> Iterator[memoryview]:
        """Yield the bytes of the state, in pieces of at most `PIECE_BYTES`, each valid until the next is requested.

        They can be read once.
        """
        step = max(1, PIECE_BYTES // self._state.itemsize)
        itemsize, dtype = self._state.itemsize, self._state.dtype
        buffer = bytearray(step * itemsize)
        room = np.frombuffer(buffer, dtype)
        try:
            for first in range(0, self._size, step):
                stop = min(first + step, self._size)
                with self._turn:
                    rest, begin = (self._state, 0) if self._rest is None else (self._rest, self._rest_from)
                    room[: stop - first] = rest[first - begin : stop - begin]
                    self.read_slots = max(self.read_slots, stop)
                    if self.read_slots == self._size:
                        self._settle()
                yield memoryview(buffer)[: (stop - first) * itemsize]
        finally:
            room[:] = 0

    def detach(self) -> None:
        """Copy the counters that were not read, so that the state is complete now. Called with the lock held."""
        if self._rest is None and not self.closed:
            self._rest_from = self.read_slots
            self._rest = self._state[self.read_slots :].copy()
            self.read_slots = self._size
            self._settle()

    def close(self) -> None:
        """Stop reading: the remaining pieces are not needed."""
        with self._turn:
            self.read_slots = self._size
            self._settle()
            if self._rest is not None:
                self._rest.fill(0)

    def _settle(self) -> None:
        """Add the deferred events, and drop the list."""
        blocks, self._blocks = self._blocks, []
        for block in blocks:
            n = int(block.filled[0])
            self._add(self._state, block.slots[:n], block.weights[:n])
            block.slots.fill(0)
            block.weights.fill(0)
