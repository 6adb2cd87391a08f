"""Items thrown into the slots of an open domain, many at a time: for benches, never for data.

In: how many items there are of each count. Out: true counts of the slots of each level. Touches: nothing.
Source: Steele, Lea & Flood 2014 (splitmix64), in place of the keyed hash.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.kernels import kernel


def thrown(counts: Ints, numbers: Ints, slots: int, levels: int, rng: np.random.Generator) -> list[Ints]:
    """As `hashed`, for so many items of each count: 10^8 items in about a second."""
    m = slots // levels
    out = np.zeros((levels, m), dtype=np.int64)
    throw(counts, numbers, rng.integers(0, 1 << 63, dtype=np.int64), out)
    return list(out)


@kernel
def throw(counts: Ints, numbers: Ints, seed: Any, out: Ints) -> None:
    """Add each item's count to a slot; levels and slots from splitmix64. counts, numbers: (k,), out: (levels, m)."""
    levels, m = out.shape
    state = np.uint64(seed)
    for i in range(counts.size):
        for _ in range(numbers[i]):
            state += np.uint64(0x9E3779B97F4A7C15)
            x = state
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x = x ^ (x >> np.uint64(31))
            level = 0
            while level < levels - 1 and (x >> np.uint64(level)) & np.uint64(1):
                level += 1
            out[level, ((x >> np.uint64(32)) * np.uint64(m)) >> np.uint64(32)] += counts[i]
