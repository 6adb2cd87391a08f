"""Randomized response on Z_p: Pr[z = 0] = e^epsilon / (e^epsilon + p - 1), every other value 1 / (e^epsilon + p - 1).

In: an int16 array of values 0..p-1, p, a rational epsilon. Out: the array with one draw added to each element modulo p.
Touches: the entropy source.
Source: Dwork, Naor, Pitassi, Rothblum & Yekhanin 2010; Lemire 2019, section 4 (uniform integers); docs/theory/noise.md.

Two words per sample. The first decides exactly whether the value moves, the second by how much: word * (p - 1) / 2^32,
rounded down. More words are drawn if the remainder shows that this word would favour some values (at most p of 2^32
words), or if the first word ties with its threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from sketchstream.noise.blocks import Scratch, Signed, block_samples, blocks, flat, positive
from sketchstream.noise.entropy import Words, WordSource
from sketchstream.noise.thresholds import WORD_BITS, Draw, Threshold, is_below, response
from sketchstream.spec import MAX_MODULUS, checked_int

ROWS = 2
COMPILED_FROM = 1 << 16
"""Smallest array for which loading the compiled loops pays."""
SAMPLES_PER_ELEMENT = 16
"""Samples that numpy draws in the time of an element of `kernels.use_numpy_twin`."""


@dataclass(frozen=True)
class ResponseThresholds:
    """Precomputed thresholds of one modulus and epsilon.

    Attributes:
        modulus: p.
        moves: probability that the value changes.
        refused: second words whose product with p - 1 leaves a remainder below this are drawn again.
        width: bits of a word (32; tests narrow it).
    """

    modulus: int
    moves: Threshold
    refused: int
    width: int = WORD_BITS

    @cached_property
    def word(self) -> np.uint32:
        """The first word of `moves`."""
        return np.uint32(self.moves.word(self.width))


BlockShift = Callable[[Words, ResponseThresholds, Signed], bool]
"""(words, thresholds, shift) -> whether some sample is undecided; overwrites shift with values 0..p-1."""


def plan(modulus: int, epsilon: Fraction, width: int = WORD_BITS) -> ResponseThresholds:
    """Thresholds for one modulus and epsilon; `width` is changed by tests only."""
    return ResponseThresholds(modulus, response(modulus, epsilon), (1 << width) % (modulus - 1), width)


_plan = lru_cache(maxsize=64)(plan)


def randomized_response(
    out: npt.NDArray[np.int16], modulus: int, epsilon: Fraction, entropy: WordSource | None = None
) -> None:
    """Add randomized response to an array of Z_p, in place.

    Args:
        out: int16 array of any shape, C-contiguous, values 0..modulus-1 (not checked: no branch on a state).
        modulus: p, from 2 to 2^15.
        epsilon: exact rational.
        entropy: words for tests; by default a keystream under a key that is erased before this returns.

    Raises:
        SpecError: `out`, `modulus` or `epsilon` is not as described above.
    """
    view = flat(out, (np.int16,))
    ready = _plan(checked_int(modulus, "modulus", 2, MAX_MODULUS), positive(epsilon, "epsilon"))
    add(view, ready, entropy, compiled_block if view.size >= COMPILED_FROM else numpy_block)


def add(out: Signed, ready: ResponseThresholds, entropy: WordSource | None, block_shift: BlockShift) -> None:
    """Add one draw to each element of a flat array, modulo p."""
    with Scratch(out.size, ROWS, entropy) as scratch:
        shift: Signed = np.zeros(min(out.size, block_samples(ROWS)), np.int32)
        for block in blocks(out.size, ROWS):
            words = scratch.fill(block.stop - block.start)
            drawn = shift[: words.shape[1]]
            if block_shift(words, ready, drawn):
                for position in undecided_columns(words, ready):
                    drawn[position] = complete(words[:, position].tolist(), ready, scratch.draw)
            drawn += out[block]
            wraps = drawn >= ready.modulus
            np.subtract(drawn, np.int32(ready.modulus), out=drawn, where=wraps)
            wraps.fill(0)
            out[block] = drawn
        shift.fill(0)


def numpy_block(words: Words, ready: ResponseThresholds, shift: Signed) -> bool:
    """Write each column's shift; True if some sample is undecided."""
    product = words[1] * np.uint64(ready.modulus - 1)
    product >>= np.uint64(ready.width)
    moves = words[0] < ready.word
    shift[...] = product
    shift += 1
    shift *= moves
    product.fill(0)
    moves.fill(0)
    return undecided_columns(words, ready).size > 0


def compiled_block(words: Words, ready: ResponseThresholds, shift: Signed) -> bool:
    """The compiled twin of `numpy_block`, for words of 32 bits."""
    from sketchstream.kernels import use_numpy_twin
    from sketchstream.noise.kernels import response_block

    arguments = (words, ready.word, np.uint64(ready.modulus - 1), np.uint64(ready.refused), shift)
    if use_numpy_twin(response_block, lambda: len(shift) // SAMPLES_PER_ELEMENT, None, arguments):
        return numpy_block(words, ready, shift)
    return response_block(*arguments)


def undecided_columns(words: Words, ready: ResponseThresholds) -> npt.NDArray[np.intp]:
    """Columns whose first word ties with its threshold, or whose second word may not be used."""
    product = words[1] * np.uint64(ready.modulus - 1)
    product &= np.uint64((1 << ready.width) - 1)
    doubt = product < np.uint64(ready.refused)
    product.fill(0)
    doubt |= words[0] == ready.word
    return np.flatnonzero(doubt)


def complete(words: list[int], ready: ResponseThresholds, draw: Draw) -> int:
    """One shift from its own words; draws more words if these do not decide it."""
    moves = is_below(ready.moves, words[0], draw, ready.width)
    word = words[1]
    while (word * (ready.modulus - 1)) & ((1 << ready.width) - 1) < ready.refused:
        word = draw()
    return (1 + (word * (ready.modulus - 1) >> ready.width)) if moves else 0
