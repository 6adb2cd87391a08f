"""Discrete Laplace noise: Pr[z = j] = (1 - a) / (1 + a) * a^|j| with a = exp(-epsilon), sampled exactly.

In: an int32 or int64 array, a rational epsilon. Out: the array with one independent draw added to each element.
Touches: the entropy source.
Source: Ghosh, Roughgarden & Sundararajan 2009 (the law); docs/theory/noise.md (the proof).

z = S (1 + G). S is -1, 0 or 1 and G is geometric with ratio a, independent of S. One uniform real U gives S: -1 if
U < 1/(1 + e^epsilon), 1 if U > 1 - that, else 0. G's binary digits are independent, digit j is one with probability
1 / (1 + exp(epsilon 2^j)); the part of G above digit J is geometric with ratio r = exp(-epsilon 2^J), and is found as
the number of k >= 1 with V < r^k. So a sample takes J + 2 words, whatever its value. More words are drawn only
if a word equals the first word of its threshold, or if V < r^2 (once in a million samples).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sketchstream.errors import SpecError
from sketchstream.noise.blocks import Scratch, Signed, add_wrapping, block_samples, blocks, flat, positive
from sketchstream.noise.entropy import Words, WordSource
from sketchstream.noise.thresholds import WORD_BITS, Draw, Threshold, digit, exponential, is_below

RARE = 20
"""Digits are drawn in bulk up to the first J with exp(-epsilon 2^J)^2 <= 2^-RARE."""
MAX_DIGITS = 60
"""Most digits that fit the accumulators: epsilon above 2^-56 or so."""
NARROW_DIGITS = 29
"""Most digits for which 1 + G, but for its rare high part, fits 32 bits."""
COMPILED_FROM = 1 << 16
"""Smallest array for which loading the compiled loops pays."""
SAMPLES_PER_ELEMENT = 4
"""Samples that numpy draws in the time of an element of `kernels.use_numpy_twin`."""


@dataclass(frozen=True)
class LaplaceThresholds:
    """Precomputed thresholds of one epsilon.

    Attributes:
        epsilon: the exact parameter.
        sign: probability that S is 1, and that it is -1.
        digits: one threshold per binary digit of G, lowest first.
        top: probabilities that the rest of G is at least 1, and at least 2.
        words: (J + 3,) uint32, the first words of `sign`, `digits`, `top`.
        width: bits of a word (32; tests narrow it to enumerate every outcome).
    """

    epsilon: Fraction
    sign: Threshold
    digits: tuple[Threshold, ...]
    top: tuple[Threshold, Threshold]
    words: Words
    width: int = WORD_BITS

    @property
    def rows(self) -> int:
        """Words per sample."""
        return len(self.digits) + 2

    @property
    def opposite(self) -> np.uint32:
        """The first word of 1 - p where `words[0]` is that of p."""
        return np.uint32(((1 << self.width) - 1) ^ int(self.words[0]))


BlockNoise = Callable[[Words, LaplaceThresholds, Signed], bool]
"""(words, thresholds, noise) -> whether some sample is undecided; overwrites noise."""


def plan(epsilon: Fraction, count: int | None = None, width: int = WORD_BITS) -> LaplaceThresholds:
    """Thresholds for one epsilon; `count` (digits drawn in bulk) and `width` are changed by tests only.

    Raises:
        SpecError: epsilon is not a positive rational, or too small for 60 binary digits.
    """
    if count is None:
        count = 0
        while epsilon * 2 ** (count + 1) < Fraction(RARE * 6932, 10000):  # ln 2 < 0.6932
            count += 1
            if count > MAX_DIGITS:
                raise SpecError(
                    f"epsilon / max_weight = {float(epsilon):.3g} is too small: such noise does not fit 64 bits"
                )
    digits = tuple(digit(epsilon * 2**j) for j in range(count))
    top = (exponential(epsilon * 2**count), exponential(epsilon * 2 ** (count + 1)))
    sign = digit(epsilon)
    words = np.array([t.word(width) for t in (sign, *digits, *top)], dtype=np.uint32)
    return LaplaceThresholds(epsilon, sign, digits, top, words, width)


_plan = lru_cache(maxsize=64)(plan)


def discrete_laplace(out: npt.NDArray[np.signedinteger], epsilon: Fraction, entropy: WordSource | None = None) -> None:
    """Add exact discrete Laplace noise to an array, in place.

    Args:
        out: int32 or int64 array of any shape, C-contiguous. Sums wrap.
        epsilon: exact rational; the noise has ratio a = exp(-epsilon). For events of weight up to W pass epsilon / W.
        entropy: words for tests; by default a keystream under a key that is erased before this returns.

    Raises:
        SpecError: `out` or `epsilon` is not as described above.
    """
    view = flat(out, (np.int32, np.int64))
    ready = _plan(positive(epsilon, "epsilon"))
    add(view, ready, entropy, compiled_block if view.size >= COMPILED_FROM else numpy_block)


def add(out: Signed, ready: LaplaceThresholds, entropy: WordSource | None, block_noise: BlockNoise) -> None:
    """Add one draw to each element of a flat array."""
    wide = np.int64 if len(ready.digits) > NARROW_DIGITS else np.int32
    with Scratch(out.size, ready.rows, entropy) as scratch:
        noise: Signed = np.zeros(min(out.size, block_samples(ready.rows)), wide)
        for block in blocks(out.size, ready.rows):
            words = scratch.fill(block.stop - block.start)
            drawn, target = noise[: words.shape[1]], out[block]
            if block_noise(words, ready, drawn):
                tied = undecided_columns(words, ready)
                drawn[tied] = 0
                for position in tied:
                    add_wrapping(target, int(position), complete(words[:, position].tolist(), ready, scratch.draw))
            np.add(target, drawn, out=target, casting="unsafe")
        noise.fill(0)


def numpy_block(words: Words, ready: LaplaceThresholds, noise: Signed) -> bool:
    """Write S (1 + G) for each column of words; True if some sample is undecided."""
    mask = np.empty(noise.size, np.bool_)
    bit = mask.view(np.int8)
    np.less(words[-1], ready.words[-2], out=mask)
    noise[...] = bit
    for row in range(len(ready.digits), 0, -1):
        noise += noise
        np.less(words[row], ready.words[row], out=mask)
        noise += bit
    noise += 1
    np.less(words[0], ready.words[0], out=mask)
    sign = -bit
    np.greater(words[0], ready.opposite, out=mask)
    sign += bit
    noise *= sign
    sign.fill(0)
    mask.fill(0)
    return undecided_columns(words, ready).size > 0


def compiled_block(words: Words, ready: LaplaceThresholds, noise: Signed) -> bool:
    """The compiled twin of `numpy_block`, for words of 32 bits."""
    from sketchstream.kernels import use_numpy_twin
    from sketchstream.noise.kernels import laplace_block

    arguments = (words, ready.words, noise)
    if use_numpy_twin(laplace_block, lambda: len(noise) // SAMPLES_PER_ELEMENT, None, arguments):
        return numpy_block(words, ready, noise)
    return laplace_block(*arguments)


def undecided_columns(words: Words, ready: LaplaceThresholds) -> npt.NDArray[np.intp]:
    """Columns in which a word equals the first word of its threshold, or in which G has a rare high part."""
    doubt = words[-1] <= ready.words[-1]
    equal = np.empty_like(doubt)
    for row, threshold in zip(words[1:], ready.words[1:-1], strict=True):
        doubt |= np.equal(row, threshold, out=equal)
    doubt |= np.equal(words[0], ready.words[0], out=equal)
    doubt |= np.equal(words[0], ready.opposite, out=equal)
    return np.flatnonzero(doubt)


def complete(words: list[int], ready: LaplaceThresholds, draw: Draw) -> int:
    """One sample from its own words; draws more bits for every comparison that these do not decide.

    Args:
        words: sign, digits lowest first, top.
        ready: the thresholds.
        draw: the next word of the source.

    Returns:
        The exact value, an integer of any size.
    """
    full = (1 << ready.width) - 1
    if words[0] <= full >> 1:
        sign = -1 if is_below(ready.sign, words[0], draw, ready.width) else 0
    else:  # U > 1 - p  is  1 - U < p, and the words of 1 - U are the complements of the words of U
        sign = 1 if is_below(ready.sign, full ^ words[0], lambda: full ^ draw(), ready.width) else 0
    magnitude = 0
    for j, threshold in enumerate(ready.digits):
        magnitude += is_below(threshold, words[1 + j], draw, ready.width) << j
    return sign * (1 + magnitude + (unary(words[-1], ready, draw) << len(ready.digits)))


def unary(word: int, ready: LaplaceThresholds, draw: Draw) -> int:
    """Number of k >= 1 with V < r^k, V the uniform real that starts with `word`."""
    bits, count = ready.width, 0
    while True:
        threshold = ready.top[count] if count < 2 else exponential(ready.epsilon * 2 ** len(ready.digits) * (count + 1))
        while word == threshold.prefix(bits):
            word = (word << ready.width) | draw()
            bits += ready.width
        if word > threshold.prefix(bits):
            return count
        count += 1
