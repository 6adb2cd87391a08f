"""Joint randomized response on Z_p^m: the vector of m counters is moved by 0, or by a uniform vector.

In: an int16 matrix of values 0..p-1, p, a rational epsilon. Out: the matrix with one draw added to each column modulo
p. Touches: the entropy source.
Source: Dwork, Naor, Pitassi, Rothblum & Yekhanin 2010, on the group Z_p^m; docs/theory/overlap.md, section 1.

With K = p^m: Pr[0] = e^epsilon / (e^epsilon + K - 1), every other vector 1 / (e^epsilon + K - 1). That is a uniform
vector, 0 among them, with probability K / (e^epsilon + K - 1), which one word decides exactly, and 0 otherwise.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sketchstream.errors import SpecError
from sketchstream.noise.blocks import Scratch, blocks, positive
from sketchstream.noise.entropy import WordSource
from sketchstream.noise.residues import write_residues
from sketchstream.noise.thresholds import WORD_BITS, Threshold, exp_minus, is_below

MAX_BITS = 62
"""Number of bits that p^m must fit."""


@lru_cache(maxsize=64)
def replaces(size: int, epsilon: Fraction) -> Threshold:
    """The probability K / (exp(epsilon) + K - 1) that a uniform vector is added.

    Args:
        size: K.
        epsilon: epsilon of the response.
    """

    def enclose(bits: int) -> tuple[int, int]:
        one = 1 << bits
        low, high = exp_minus(epsilon, bits)
        return (size * low << bits) // (one + (size - 1) * low), -(-(size * high << bits) // (one + (size - 1) * high))

    return Threshold(enclose)


def joint_response(
    out: npt.NDArray[np.int16], modulus: int, epsilon: Fraction, entropy: WordSource | None = None
) -> None:
    """Add joint randomized response to each column of a matrix over Z_p, in place.

    Args:
        out: (m, n) int16, C-contiguous, values 0..modulus-1 (not checked: no branch on a state).
        modulus: p.
        epsilon: exact rational.
        entropy: words for tests; by default a keystream under a key that is erased before this returns.

    Raises:
        SpecError: `out`, `modulus` or `epsilon` is not as described above.
    """
    if out.ndim != 2 or out.dtype != np.int16 or not out.flags.c_contiguous or not out.flags.writeable:
        raise SpecError("joint noise is added in place to a writable, C-contiguous matrix of int16")
    rows, columns = out.shape
    if not 2 <= modulus <= 1 << 15 or modulus**rows >= 1 << MAX_BITS:
        raise SpecError(
            f"joint noise needs a modulus from 2 to 2^15 whose power {rows} is below 2^{MAX_BITS}, found {modulus}"
        )
    threshold = replaces(modulus**rows, positive(epsilon, "epsilon"))
    word = np.uint32(threshold.word(WORD_BITS))
    with Scratch(columns, 1 + rows, entropy) as scratch:
        for block in blocks(columns, 1 + rows):
            words = scratch.fill(block.stop - block.start)
            shift = np.empty(words.shape[1], np.int64)
            moves = words[0] < word
            for position in np.flatnonzero(words[0] == word):
                moves[position] = is_below(threshold, int(words[0][position]), scratch.draw)
            for row, line in zip(out, words[1:], strict=True):
                write_residues(line, modulus, scratch, shift)
                shift *= moves
                shift += row[block]
                wraps = shift >= modulus
                np.subtract(shift, np.int64(modulus), out=shift, where=wraps)
                row[block] = shift
                shift.fill(0)
                wraps.fill(0)
            moves.fill(0)
