"""Non-negative item profiles of open domains.

In: levels of one part and a non-negative start. Out: a `Model`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from sketchstream.estimate.observed import Observed
from sketchstream.estimate.opened import Level, Model


def fit(observed: Observed, levels: Sequence[Level], start: Model) -> Model:
    """The start itself: the recursion's result with k+ numbers made non-increasing."""
    assert observed.open_domain
    assert levels
    return start
