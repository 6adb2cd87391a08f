"""Pools of reusable memory for long frames and for the arrays of their records.

In: sizes. Out: views and arrays. Touches: nothing else.

The system provides fresh memory of this size page by page and takes it back at once. For records of 32 bytes, this
costs as much as reading them.
"""

from __future__ import annotations

import bisect
import collections
import threading
import time
import weakref

import numpy as np

from sketchstream.array_types import Bytes, Ints

MAX_FRESH_BYTES = 1 << 16
"""A request for up to 64 KiB always gets fresh memory: the allocator has it at hand."""
IDLE_S = 1.0
"""Seconds without use after which waiting memory is overwritten and released."""


class MemoryPool:
    """Pieces of memory; each comes back when the last view of it is gone.

    Nobody has to give anything back: the views are counted by the interpreter, on whichever thread they end.

    Args:
        kept: pieces that wait at most.
        kept_bytes: size of those pieces together.
        rounding: sizes are multiples of this number of bytes, so that pieces can be reused.
    """

    def __init__(self, kept: int = 6, kept_bytes: int = 1 << 27, rounding: int = 1 << 20) -> None:
        self.kept, self.kept_bytes, self.rounding = kept, kept_bytes, rounding
        self._free: list[Bytes] = []
        self._returned: collections.deque[Bytes] = collections.deque()
        self._lent: dict[int, tuple[weakref.ref[Bytes], Bytes]] = {}
        self._lock = threading.Lock()
        self._taken_at = float("-inf")

    def take(self, size: int) -> memoryview:
        """Take an exclusive view of `size` bytes with undefined content."""
        if size <= MAX_FRESH_BYTES:
            return np.empty(size, dtype=np.uint8).data
        with self._lock:
            self._collect()
            self._taken_at = time.monotonic()
            place = bisect.bisect_left(self._free, size, key=len)
            if place < len(self._free) and self._free[place].size <= 4 * size + self.rounding:
                piece = self._free.pop(place)
            else:  # slightly more, as the next request is often slightly larger
                piece = np.empty(-(-(size + size // 8) // self.rounding) * self.rounding, dtype=np.uint8)
        lease = np.frombuffer(piece.data, dtype=np.uint8)
        gone = weakref.ref(lease, self._back)
        self._lent[id(gone)] = gone, piece
        return lease.data[:size]

    def _back(self, gone: weakref.ref[Bytes]) -> None:
        """Take memory back whose last view is gone. May run on any thread at any moment: no lock is taken."""
        self._returned.append(self._lent.pop(id(gone))[1])

    def _collect(self) -> None:
        while self._returned:
            self._free.append(self._returned.popleft())
        self._free.sort(key=len)
        while len(self._free) > self.kept or sum(map(len, self._free)) > self.kept_bytes:
            self._free.pop(0).fill(0)

    def rest(self) -> None:
        """Overwrite and release waiting memory that was not used for a while: it holds old records."""
        if not (self._free or self._returned) or time.monotonic() - self._taken_at < IDLE_S:
            return
        with self._lock:
            self._collect()
            for piece in self._free:
                piece.fill(0)
            self._free.clear()

    @property
    def waiting(self) -> int:
        """Bytes of memory that wait to be used again."""
        with self._lock:
            self._collect()
            return sum(map(len, self._free))


ARRAYS = MemoryPool(kept=128, kept_bytes=1 << 26, rounding=1 << 16)
"""Memory for arrays of one number a record, such as places and times; never for keys or values."""


PAYLOADS = MemoryPool(kept=64, kept_bytes=1 << 26)
"""Memory for decompressed batches, which hold keys and values."""


def clear_pools() -> None:
    """Clear the pools that consumers share: overwrite and release what has not been used for `IDLE_S`."""
    ARRAYS.rest()
    PAYLOADS.rest()


def int_rows(count: int, length: int) -> Ints:
    """(count, length) int64 of undefined numbers, with contiguous rows."""
    return np.frombuffer(ARRAYS.take(8 * count * length), dtype=np.int64).reshape(count, length)
