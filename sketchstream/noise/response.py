"""Randomized response on Z_p: Pr[z = 0] = e^epsilon / (e^epsilon + p - 1), every other value 1 / (e^epsilon + p - 1).

In: an int16 array of values 0..p-1, p, a rational epsilon. Out: the array with one draw added to each element modulo p.
Touches: the entropy source.
Source: Dwork, Naor, Pitassi, Rothblum & Yekhanin 2010; Lemire 2019, section 4 (uniform integers); docs/theory/noise.md.

Two words a sample. The first decides exactly whether the value moves, the second by how much: word * (p - 1) / 2^32
rounded down, unless the remainder says that this word would favour some values (p in 2^32 words at most); then, and
where the first word ties with its threshold, more words are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sketchstream.errors import SpecError
from sketchstream.noise.blocks import Scratch, blocks, flat, positive
from sketchstream.noise.entropy import Source, Words
from sketchstream.noise.thresholds import WIDTH, Draw, Threshold, below, response

MAX_MODULUS = 1 << 15
ROWS = 2


@dataclass(frozen=True)
class Plan:
    """What is precomputed for one modulus and epsilon.

    Attributes:
        modulus: p.
        moves: the value changes.
        refused: second words whose product with p - 1 leaves a remainder below this are drawn again.
        width: bits of a word (32; tests narrow it).
    """

    modulus: int
    moves: Threshold
    refused: int
    width: int = WIDTH


def plan(modulus: int, epsilon: Fraction, width: int = WIDTH) -> Plan:
    """Thresholds for one modulus and epsilon; `width` is changed by tests only."""
    return Plan(modulus, response(modulus, epsilon), (1 << width) % (modulus - 1), width)


_plan = lru_cache(maxsize=64)(plan)


def randomized_response(
    out: npt.NDArray[np.int16], modulus: int, epsilon: Fraction, entropy: Source | None = None
) -> None:
    """Add randomized response to an array of Z_p, in place.

    Args:
        out: int16 array of any shape, C-contiguous, values 0..modulus-1 (not checked: no branch on a state).
        modulus: p, from 2 to 2^15.
        epsilon: exact rational.
        entropy: words for tests; by default a keystream under a key that is erased before this returns.

    Raises:
        SpecError: `out`, `modulus` or `epsilon` is not what is said above.
    """
    view = flat(out, (np.int16,))
    if isinstance(modulus, bool) or not isinstance(modulus, (int, np.integer)) or not 2 <= modulus <= MAX_MODULUS:
        msg = f"modulus must be a whole number from 2 to {MAX_MODULUS}, found {modulus!r:.60}"
        raise SpecError(msg)
    ready = _plan(int(modulus), positive(epsilon, "epsilon"))
    with Scratch(view.size, ROWS, entropy) as scratch:
        for block in blocks(view.size, ROWS):
            words = scratch.fill(block.stop - block.start)
            shift, open_ = fast(words, ready)
            for position in open_:
                shift[position] = complete([int(w) for w in words[:, position]], ready, scratch.draw)
            shift += view[block]
            shift -= (shift >= modulus) * np.int32(modulus)
            view[block] = shift
            shift.fill(0)


def fast(words: Words, ready: Plan) -> tuple[npt.NDArray[np.int32], list[int]]:
    """The block's shifts, and the positions of the samples that its words alone do not decide."""
    threshold = np.uint32(ready.moves.word(ready.width))
    product = words[1].astype(np.uint64)
    product *= np.uint64(ready.modulus - 1)
    shift = (product >> np.uint64(ready.width)).astype(np.int32)
    shift += 1
    shift *= words[0] < threshold
    product &= np.uint64((1 << ready.width) - 1)
    open_ = product < np.uint64(ready.refused)
    open_ |= words[0] == threshold
    return shift, [int(i) for i in np.flatnonzero(open_)]


def complete(words: list[int], ready: Plan, draw: Draw) -> int:
    """One shift from its own words, drawing more where they leave it open."""
    moves = below(ready.moves, words[0], draw, ready.width)
    word = words[1]
    while (word * (ready.modulus - 1)) & ((1 << ready.width) - 1) < ready.refused:
        word = draw()
    return (1 + (word * (ready.modulus - 1) >> ready.width)) if moves else 0
