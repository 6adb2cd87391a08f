"""A cache of the values that were used last.

In: values with their keys. Out: the same values, until others have taken their places. Touches: nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Made = TypeVar("Made")


class RecentlyUsed(Generic[Key, Value]):
    """Values that were put or got last, for any number of threads.

    Args:
        most: largest total size of them.
        size: gives the size of a value; default: 1.
    """

    def __init__(self, most: int, size: Callable[[Value], int] = lambda value: 1) -> None:
        self._most, self._size = most, size
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value of a key; None without one."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Keep a value; the values that were not used for longest are removed."""
        with self._lock:
            former = self._values.pop(key, None)
            self._values[key] = value
            self._total += self._size(value) - (0 if former is None else self._size(former))
            while self._total > self._most:
                _, oldest = self._values.popitem(last=False)
                self._total -= self._size(oldest)

    def get_or_make(self: RecentlyUsed[Key, Any], key: Key | None, make: Callable[[], Made]) -> Made:
        """The value of a key, made now if there is none; without a key nothing is kept."""
        kept: Made | None = None if key is None else self.get(key)
        if kept is not None:
            return kept
        value = make()
        if key is not None:
            self.put(key, value)
        return value
