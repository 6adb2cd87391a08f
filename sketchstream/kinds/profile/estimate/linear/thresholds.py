"""Which thresholds of a tail allow a number of slots beyond them.

In: sums of k+ shares by threshold, a number of slots. Out: an index. Touches: nothing.
Source: `docs/theory/reconstruction.md`, section 1.
"""

from __future__ import annotations

import math
from typing import Any

from sketchstream.array_types import Floats, Ints
from sketchstream.kernels import kernel


@kernel
def last_possible(sums: Floats, end: Ints, width: Any, s: Any, margin: Any, at: Any) -> Any:
    """Last edge from `at` up at which the mean of the `width` thresholds before its end allows s slots."""
    for i in range(end.size - 1, at - 1, -1):
        first = max(end[i] - width, 0)
        used = max(end[i] - first, 1)
        if end[i] == 0 or (sums[end[i]] - sums[first]) / used >= s - margin / math.sqrt(used):
            return i
    return -1
