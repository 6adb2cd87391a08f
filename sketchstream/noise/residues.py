"""Uniform residues: every value 0..p-1 with probability exactly 1/p.

In: an int64 array, p. Out: the array overwritten with independent residues. Touches: the entropy source.
Source: Lemire 2019, section 4 (uniform integers from words by multiplication); docs/theory/noise.md.

One word a sample: word * p / 2^32, rounded down. Another word is drawn if the remainder shows that this one would
favour some values (fewer than p of 2^32 words).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sketchstream.noise.blocks import Scratch, blocks, flat
from sketchstream.noise.entropy import Words, WordSource
from sketchstream.noise.kernels import residue_block
from sketchstream.noise.thresholds import WORD_BITS
from sketchstream.spec import MAX_MODULUS, checked_int


def uniform_residues(out: npt.NDArray[np.int64], modulus: int, entropy: WordSource | None = None) -> None:
    """Overwrite an array with independent uniform residues.

    Args:
        out: int64 array of any shape, C-contiguous.
        modulus: p, from 2 to 2^15.
        entropy: words for tests; by default a keystream under a key that is erased before this returns.

    Raises:
        SpecError: `out` or `modulus` is not as described above.
    """
    view = flat(out, (np.int64,))
    p = checked_int(modulus, "modulus", 2, MAX_MODULUS)
    if not view.size:
        return
    with Scratch(view.size, 1, entropy) as scratch:
        for block in blocks(view.size, 1):
            write_residues(scratch.fill(block.stop - block.start)[0], p, scratch, view[block])


def write_residues(words: Words, modulus: int, scratch: Scratch, out: npt.NDArray[np.int64]) -> None:
    """Write one residue for each word; more words are drawn for those that favour some values.

    Args:
        words: (n,) uniform words.
        modulus: p.
        scratch: gives more words.
        out: (n,) overwritten.
    """
    refused, last = (1 << WORD_BITS) % modulus, (1 << WORD_BITS) - 1
    if not residue_block(words, np.uint64(modulus), np.uint64(refused), out):
        return
    for position in np.flatnonzero(out < 0):
        again = scratch.draw() * modulus
        while again & last < refused:
            again = scratch.draw() * modulus
        out[position] = again >> WORD_BITS
