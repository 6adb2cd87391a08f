"""Readers that are used again: a connection for each reading would cost more than many readings.

In: how a reader is made. Out: readers. Touches: connections of the readers that it keeps.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Close."""


Reader = TypeVar("Reader", bound=Closable)


class ReaderPool(Generic[Reader]):
    """Readers of one kind, some of which stay open while they have nothing to read; any thread may take one.

    Args:
        connect: makes a reader.
        max_idle: most readers that stay open.
    """

    def __init__(self, connect: Callable[[], Reader], max_idle: int) -> None:
        self._connect, self._max_idle = connect, max_idle
        self._idle: list[Reader] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def take(self) -> Iterator[Reader]:
        """A reader for one caller. One that failed is closed: it may keep failing, and its answers may be stale."""
        with self._lock:
            reader = self._idle.pop() if self._idle else None
        reader = self._connect() if reader is None else reader
        try:
            yield reader
        except Exception:
            with contextlib.suppress(Exception):
                reader.close()
            raise
        except BaseException:  # the caller, a generator, was closed before its end
            self._keep(reader)
            raise
        self._keep(reader)

    def _keep(self, reader: Reader) -> None:
        with self._lock:
            keep = len(self._idle) < self._max_idle
            if keep:
                self._idle.append(reader)
        if not keep:
            reader.close()

    def close(self) -> None:
        """Close the readers that have nothing to read, and the others as soon as they are given back."""
        with self._lock:
            readers, self._idle, self._max_idle = self._idle, [], 0
        for reader in readers:
            with contextlib.suppress(Exception):
                reader.close()
