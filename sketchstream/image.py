"""The counters of an open sketch as they were at one moment, read piece by piece while the sketch goes on counting.

In: a state, the sketch's lock, events that came meanwhile. Out: the bytes of the state at that moment. Touches: the
state, to which it adds what it deferred, and nothing else.

A copy would need the state's memory once more. Here an event that belongs to a counter that was read already is added
at once; any other event is kept in a list until all counters are read. Counters are read in their order, whatever the
events are, so that nothing in the bytes depends on them. The counters of a state are sums, so that it does not matter
when an event is added.

Laws (tests/sketch/test_image.py):
1. The pieces are the bytes of the state at the moment at which the image was made, whatever was added since.
2. After `close`, or `detach`, the state is what it would be had there been no image.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

State = npt.NDArray[Any]
Add = Callable[[State, npt.NDArray[np.uint32], npt.NDArray[np.int32]], None]

PIECE_BYTES = 512 * 1024
LEAST_BYTES = 1 << 20
"""Smaller states are copied: that takes less time than a list of events."""
MOST_SLOTS = 1 << 32
LEAST_DEFERRED_BYTES, DEFERRED_PART = 4 << 20, 16
"""Deferred events that may wait: bytes, or a part of the states if that is more. Beyond it, no records are taken."""
_BLOCK = 1 << 16
"""Deferred events that one block of memory holds at least."""
_EVENT_BYTES = 8


def is_large(slots: int, itemsize: int) -> bool:
    """Whether a state of so many counters, of so many bytes each, is imaged by kinds that can defer events."""
    return slots * itemsize >= LEAST_BYTES and slots < MOST_SLOTS


class Deferred:
    """Room for events that are added later.

    Args:
        n: events that must fit.
    """

    __slots__ = ("filled", "slots", "weights")

    def __init__(self, n: int) -> None:
        self.slots = np.empty(n + 1, np.uint32)  # compiled code writes one entry beyond the last
        self.weights = np.empty(n + 1, np.int32)
        self.filled = np.zeros(1, np.int64)

    @property
    def left(self) -> int:
        """How many events still fit."""
        return len(self.slots) - 1 - int(self.filled[0])


NOTHING = Deferred(0)
"""Where no event is deferred."""


class StateImage:
    """The counters of a state at the moment at which this is made.

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
        """Whether the sketch need not care for it any more."""
        return self.read_slots >= self._size

    @property
    def deferred_bytes(self) -> int:
        """Memory of the events that wait."""
        return sum(len(one.slots) for one in self._blocks) * _EVENT_BYTES

    def room(self, n: int) -> Deferred:
        """Where `n` events may be deferred; called with the lock held."""
        if not self._blocks or self._blocks[-1].left < n:
            self._blocks.append(Deferred(max(n, _BLOCK)))
        return self._blocks[-1]

    def pieces(self) -> Iterator[memoryview]:
        """The bytes of the state, in pieces of at most `PIECE_BYTES`; each is good until the next one is asked for.

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
        """Copy the counters that were not read: the state must be whole now. Called with the lock held."""
        if self._rest is None and not self.closed:
            self._rest_from = self.read_slots
            self._rest = self._state[self.read_slots :].copy()
            self.read_slots = self._size
            self._settle()

    def close(self) -> None:
        """Nobody asks for the rest of the pieces."""
        with self._turn:
            self.read_slots = self._size
            self._settle()
            if self._rest is not None:
                self._rest.fill(0)

    def _settle(self) -> None:
        """Add what was deferred, and forget it."""
        blocks, self._blocks = self._blocks, []
        for block in blocks:
            n = int(block.filled[0])
            self._add(self._state, block.slots[:n], block.weights[:n])
            block.slots.fill(0)
            block.weights.fill(0)
