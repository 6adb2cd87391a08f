"""Twins of kernels run although the kernels are compiled.

In: nothing. Out: a context. Touches: the choice between them, inside of the context.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from sketchstream.kernels import compilation


@contextlib.contextmanager
def twins_run() -> Iterator[None]:
    """Let twins run, up to so many elements, whatever is compiled already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "MAX_TWIN_ELEMENTS", 1 << 18)
        patch.setattr(compilation, "_left", {})
        patch.setattr(compilation, "_is_compiled", lambda *_: False)
        yield
