"""What the tests of kind convolution share: a seeded source of words, and slow twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


class Seeded:
    """Words from a seeded generator; tests only."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def fill(self, words: np.ndarray) -> None:
        words[...] = self.random.integers(0, 1 << 32, words.shape, dtype=np.uint32)


@pytest.fixture(name="seeded")
def _seeded() -> Any:
    return Seeded
