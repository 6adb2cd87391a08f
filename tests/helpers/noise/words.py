"""Sources of words for tests: seeded, narrow, forged, recorded.

In: a seed or a list of words. Out: objects with `fill`. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

Words = npt.NDArray[np.uint32]


class Seeded:
    """AES-256-CTR under a key that is a function of the seed; `width` keeps that many bits of every word."""

    def __init__(self, seed: int, width: int = 32) -> None:
        key = seed.to_bytes(32, "little")
        self._context = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
        self._shift = np.uint32(32 - width)

    def fill(self, words: Words) -> None:
        words.reshape(-1).view(np.uint8)[:] = np.frombuffer(self._context.update(bytes(4 * words.size)), np.uint8)
        words >>= self._shift


class Recorded:
    """Another source, with everything it gave kept in order, and the buffers that it filled."""

    def __init__(self, source: Seeded | Forged) -> None:
        self._source = source
        self.words: list[int] = []
        self.buffers: list[Words] = []

    def fill(self, words: Words) -> None:
        self._source.fill(words)
        self.words.extend(words.reshape(-1).tolist())
        self.buffers.append(words)


class Forged:
    """The given words first, seeded ones after them."""

    def __init__(self, words: Iterable[int], seed: int = 0, width: int = 32) -> None:
        self._words = list(words)
        self._after = Seeded(seed, width)

    def fill(self, words: Words) -> None:
        flat = words.reshape(-1)
        self._after.fill(flat)
        given = self._words[: flat.size]
        flat[: len(given)] = np.array(given, np.uint32)
        self._words = self._words[flat.size :]
