"""Shared parts of the samplers: blocks of words, validation of the target array, wrapping addition.

In: the array of a state or of a release. Out: flat views, block bounds, erased scratch memory. Touches: nothing.

Every sampler works block by block: it fills scratch memory with `rows` words per sample, computes the block's noise and
adds it to the array. So memory beyond the array stays near `SCRATCH_WORDS` words for any number of slots. A block's
words are one run of the source: row r of sample i is word r * samples + i. Words for ties follow the block's own words.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from sketchstream.errors import SpecError
from sketchstream.noise.entropy import Keystream, Words, WordSource

SCRATCH_WORDS = 1 << 16
"""Words of one block: 256 KiB, which stay in a core's own cache between the cipher and the sampler."""

Signed = npt.NDArray[np.signedinteger]


def flat(out: object, allowed: tuple[type[np.signedinteger], ...]) -> npt.NDArray[np.int64]:
    """`out` as one flat view of itself.

    Raises:
        SpecError: not an array, not writable, not C-contiguous, or of another type.
    """
    names = " or ".join(np.dtype(kind).name for kind in allowed)
    if not isinstance(out, np.ndarray):
        raise SpecError(f"noise is added to an array of {names} in place, found {type(out).__name__}")
    if out.dtype not in [np.dtype(kind) for kind in allowed]:
        raise SpecError(f"noise is added to an array of {names} in place, found one of {out.dtype}")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise SpecError("noise is added in place: the array must be C-contiguous and writable")
    view: npt.NDArray[np.int64] = out.reshape(-1)
    return view


def positive(value: object, name: str) -> Fraction:
    """`value`, if it is an exact positive rational.

    Raises:
        SpecError: the value is no such number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)) or value <= 0:
        raise SpecError(f"{name} must be a positive Fraction, found {value!r:.60}")
    return Fraction(value)


def block_samples(rows: int) -> int:
    """Samples of one full block: a multiple of 64, at least 64."""
    return max(64, SCRATCH_WORDS // rows // 64 * 64)


def blocks(samples: int, rows: int) -> Iterator[slice]:
    """The slices into which an array of `samples` is cut."""
    step = block_samples(rows)
    for start in range(0, samples, step):
        yield slice(start, min(start + step, samples))


class Scratch:
    """Scratch memory for a block's words, overwritten on exit; opens its own keystream unless a source is given."""

    def __init__(self, samples: int, rows: int, entropy: WordSource | None) -> None:
        self.rows = rows
        self._words: Words = np.zeros(rows * min(samples, block_samples(rows)), np.uint32)
        self._one: Words = np.zeros(1, np.uint32)
        self._keystream = Keystream() if entropy is None else None
        self._source: WordSource = self._keystream if self._keystream is not None else entropy  # type: ignore[assignment]

    def fill(self, samples: int) -> Words:
        """(rows, samples) fresh words."""
        words = self._words[: self.rows * samples]
        self._source.fill(words)
        return words.reshape(self.rows, samples)

    def draw(self) -> int:
        """Draw one more word."""
        self._source.fill(self._one)
        return int(self._one[0])

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        self._words.fill(0)
        self._one.fill(0)
        if self._keystream is not None:
            self._keystream.erase()


def add_wrapping(out: npt.NDArray[np.int64], position: int, value: int) -> None:
    """out[position] += value for an integer of any size, modulo 2^bits of the array's type."""
    bits = 8 * out.itemsize
    total = (int(out[position]) + value) & ((1 << bits) - 1)
    out[position] = total - ((total >> (bits - 1)) << bits)
