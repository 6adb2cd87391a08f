"""Reusable buffers for copies of open states. Copying into pages that are already mapped is several times faster.

In: sizes, buffers that are no longer needed. Out: buffers. Touches: nothing else; safe for use by several threads.

A returned buffer is overwritten at once: an old copy next to the current state would show what happened in between.
"""

from __future__ import annotations

import threading

KEPT_BYTES = 32 << 20
"""Bytes of spare buffers that are kept at least; one larger buffer may be kept alone."""


class Buffers:
    """Spare memory of one worker."""

    def __init__(self) -> None:
        self._spare: list[bytearray] = []
        self._guard = threading.Lock()

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least this size; all zeros."""
        with self._guard:
            fitting = [buffer for buffer in self._spare if size <= len(buffer) <= 2 * size]
            if fitting:
                smallest = min(fitting, key=len)
                self._spare = [buffer for buffer in self._spare if buffer is not smallest]
                return smallest
        return bytearray(size)

    def give(self, buffer: bytearray) -> None:
        """Take back a buffer that nobody reads any more."""
        wipe(buffer)
        with self._guard:
            self._spare.append(buffer)
            while len(self._spare) > 1 and sum(map(len, self._spare)) > KEPT_BYTES:
                self._spare.pop(0)


def wipe(buffer: bytearray) -> None:
    """Overwrite with zeros, in place."""
    import numpy as np

    np.frombuffer(buffer, np.uint8).fill(0)
