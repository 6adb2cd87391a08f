"""Words of entropy that a test can repeat.

In: a seed. Out: `Seeded`. Touches: nothing.
"""

from __future__ import annotations

import numpy as np


class Seeded:
    """Uniform words from a seed, for tests only."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def fill(self, words: np.ndarray) -> None:
        words[...] = self._generator.integers(0, 1 << 32, words.shape, dtype=np.uint32)
