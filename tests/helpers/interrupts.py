"""An interrupt in the middle of an update: the compiled calls of one batch raise at a chosen chunk.

In: the number of the chunk, and whether its call runs before the interrupt. Out: a counter of calls. Touches: the
compiled functions that updates call, through the given monkeypatch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from sketchstream import kernels

CALLED = ("update_ints", "update_spans", "locate_spans")


def interrupt(monkeypatch: pytest.MonkeyPatch, chunk: int, after: bool) -> Iterator[int]:
    """Raise `KeyboardInterrupt` before or after the call for a chunk; the counter says how many calls there were."""
    calls = itertools.count()

    def interrupted(original: Callable[..., Any], *args: Any) -> Any:
        here = next(calls) == chunk
        if here and not after:
            raise KeyboardInterrupt
        out = original(*args)
        if here:
            raise KeyboardInterrupt
        return out

    for name in CALLED:
        monkeypatch.setattr(kernels, name, partial(interrupted, getattr(kernels, name)))
    return calls
