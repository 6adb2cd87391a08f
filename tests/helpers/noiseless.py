"""Sketches without noise, for tests that compare what is counted.

In: a monkeypatch. Out: nothing. Touches: kinds and counters, for one test.
"""

from __future__ import annotations

import pytest

from sketchstream import kinds
from sketchstream.components import Counters


def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no noise for slots, and none for the counters beside them."""
    for name in kinds.names():
        monkeypatch.setattr(type(kinds.by_name(name)), "draw", lambda *_, **__: None)
    drawn = Counters._drawn
    monkeypatch.setattr(Counters, "_drawn", staticmethod(lambda *given: (drawn(*given)[0], 0)))
