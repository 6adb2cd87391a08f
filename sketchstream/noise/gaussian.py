"""Discrete Gaussian noise: Pr[z = j] proportional to exp(-j^2 / (2 sigma2)), sampled exactly.

In: an int32 or int64 array, a rational sigma2. Out: the array with one independent draw added to each element.
Touches: the entropy source.
Source: Canonne, Kamath & Steinke 2020 (the law); docs/theory/noise.md (the proof).

sigma below 1024: one word. Its first bit is the sign; the others are the first bits of a uniform real V, and |z| is
the number of k >= 1 with V < Pr[|z| >= k], found in a table of first words. Larger sigma: z = +-(2^m K + R) with sigma
/ 2^m between 512 and 1024, K from such a table with weights exp(-(2^m K)^2 / (2 sigma2)), R uniform, accepted with
probability exp(-R (2^(m+1) K + R) / (2 sigma2)), at least 99 in 100; minus zero is refused. The table ends where its
first words reach 0; ties, what lies beyond it and every refusal are completed sample by sample. The searches branch on
the noise, unlike those of the other two laws: draw in blocks, before there is data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from sketchstream.errors import SpecError
from sketchstream.noise.blocks import Scratch, Signed, add_wrapping, block_samples, blocks, flat, positive
from sketchstream.noise.entropy import Words, WordSource
from sketchstream.noise.thresholds import LIMIT_BITS, WORD_BITS, Draw, exp_minus, exponential

TABLE_SIGMA = 1024
MAX_SIGMA2 = Fraction(1 << 100)
GUIDE_BITS = range(8, 16)
SCALE = 34
"""Binary places of the coefficient of an acceptance's exponent, beyond the 32 of a word, at most."""
LEVEL = 128
"""Bits of a table's thresholds that are computed at once; ties that need more double it."""
COMPILED_FROM = 1 << 14
"""Smallest array for which loading the compiled loops pays."""

Ends = list[int]
Columns = npt.NDArray[np.intp]
BlockNoise = Callable[[Words, "GaussianTables", Signed], tuple[Columns, Columns]]
"""(words, plan, noise) -> the undecided columns, the refused columns; overwrites noise."""


class GaussianTails:
    """Pr[K >= k] for K >= 0 with weights exp(-k^2 / (2 s2)), the weight of 0 halved or not, to any precision."""

    def __init__(self, s2: Fraction, *, half: bool) -> None:
        self._s2 = s2
        self._half = half
        self._known: dict[int, tuple[Ends, Ends]] = {}

    def enclose(self, k: int, bits: int) -> tuple[int, int]:
        """(low, high) around Pr[K >= k] * 2^bits."""
        low, high = self.sums(bits)
        if k >= len(low):  # Pr[K >= k] < 2^-bits, by the choice of the last row
            return 0, 1
        return low[k], high[k]

    def first_bits(self, k: int, bits: int) -> int:
        """floor(Pr[K >= k] * 2^bits), once both ends agree on it."""
        level = LEVEL
        while True:
            low, high = self.enclose(k, level)
            if low >> (level - bits) == high >> (level - bits):
                return low >> (level - bits)
            level *= 2
            if level > LIMIT_BITS:  # dyadic to 65,536 bits: a guess would bias the noise
                raise ArithmeticError("the interval arithmetic of a noise table does not close")

    def sums(self, bits: int) -> tuple[Ends, Ends]:
        """Both ends of Pr[K >= k] * 2^bits for k = 0, 1, ... while it exceeds 2^-bits; cached for the next call."""
        if bits not in self._known:
            self._known[bits] = self._compute(bits)
        return self._known[bits]

    def _compute(self, bits: int) -> tuple[Ends, Ends]:
        """Weights by e_(k+1) = e_k r_k, r_(k+1) = r_k q^2, each rounded down and up; tail sums; one division each."""
        rows = math.isqrt(int(2 * self._s2 * bits)) + 8  # exp(-rows^2 / (2 s2)) < 2^-bits, as ln 2 < 1
        work = bits + 3 * rows.bit_length() + 16
        one = 1 << work
        lows, highs = [one >> self._half], [one >> self._half]
        low = high = one
        ratio_low, ratio_high = exp_minus(1 / (2 * self._s2), work)
        square_low, square_high = exp_minus(1 / self._s2, work)
        for _ in range(rows):
            low, high = low * ratio_low >> work, -(-high * ratio_high >> work)
            ratio_low, ratio_high = ratio_low * square_low >> work, -(-ratio_high * square_high >> work)
            lows.append(low)
            highs.append(high)
        # Beyond the last row r the weights fall at least as fast as e_(r+1) / e_r = ratio, a geometric series.
        rest = -(-high * ratio_high // max(one - ratio_high, 1))
        tail_low, tail_high = 0, rest
        below_low, below_high = [0] * (rows + 1), [0] * (rows + 1)
        for k in range(rows, -1, -1):
            tail_low += lows[k]
            tail_high += highs[k]
            below_low[k], below_high[k] = tail_low, tail_high
        for k in range(rows + 1):
            below_low[k] = (below_low[k] << bits) // tail_high
            below_high[k] = -(-(below_high[k] << bits) // tail_low)
        while len(below_high) > 1 and below_high[-1] <= 1:
            below_low.pop()
            below_high.pop()
        return below_low, below_high


@dataclass(frozen=True)
class GaussianTables:
    """Precomputed tables of one sigma2.

    Attributes:
        sigma2: the exact parameter.
        shift: m, bits of the uniform part; 0 where the table gives |z| itself.
        tails: the thresholds Pr[K >= k] to any precision.
        steps: (rows,) uint32, their first bits in ascending order: the last row's first.
        guide: (2^g + 1,) uint32, where in `steps` the words with the same first g bits begin.
        sure: (rows + 1,) uint32 per K, second words below this are accepted without looking at R.
        width: bits of a word (32; tests narrow it to enumerate every outcome).
    """

    sigma2: Fraction
    shift: int
    tails: GaussianTails = field(repr=False, compare=False)
    steps: Words = field(repr=False, compare=False)
    guide: Words = field(repr=False, compare=False)
    sure: Words = field(repr=False, compare=False)
    width: int = WORD_BITS

    @property
    def guide_shift(self) -> np.uint32:
        """Number of low bits of a word that the guide ignores."""
        return np.uint32(self.width - (len(self.guide) - 1).bit_length())

    @property
    def rows(self) -> int:
        """Words per sample: 1; or K and sign, acceptance and R in one; or those and enough for R."""
        if self.shift == 0:
            return 1
        return 2 if self.packed else 2 + -(-self.shift // self.width)

    @property
    def packed(self) -> bool:
        """Whether R is the low bits of the acceptance word."""
        return 0 < self.shift <= self.width // 2

    @cached_property
    def scale(self) -> int:
        """Binary places, beyond 32, with which the exponent of any acceptance fits 63 bits."""
        largest = (len(self.steps) + 2) * 4**self.shift / self.sigma2
        return next(
            places for places in range(SCALE, -1, -1) if largest * Fraction(2) ** (WORD_BITS + places) < 1 << 62
        )

    @cached_property
    def coefficient(self) -> int:
        """2^(32 + scale) / (2 sigma2), rounded down."""
        return math.floor(Fraction(2) ** (WORD_BITS + self.scale) / (2 * self.sigma2))


def plan(sigma2: Fraction, width: int = WORD_BITS, table_sigma: int = TABLE_SIGMA) -> GaussianTables:
    """Tables for one sigma2; `width` and `table_sigma` are changed by tests only.

    Raises:
        SpecError: sigma2 is above 2^100.
    """
    if sigma2 > MAX_SIGMA2:
        raise SpecError(f"sigma2 of discrete Gaussian noise must be at most 2^100, found {float(sigma2):.3g}")
    shift = 0
    while sigma2 > Fraction(table_sigma**2) * 4**shift:
        shift += 1
    s2 = sigma2 / 4**shift
    tails = GaussianTails(s2, half=shift == 0)
    bits = width - 1
    steps: list[int] = []
    while step := tails.first_bits(len(steps) + 1, bits):
        steps.append(step)
    steps.reverse()
    guide_bits = min(max(len(steps).bit_length() + 2, GUIDE_BITS[0]), GUIDE_BITS[-1], bits)
    ascending = np.array(steps, np.uint32)
    cells = np.arange((1 << guide_bits) + 1, dtype=np.int64) << (bits - guide_bits)
    guide = np.searchsorted(ascending.astype(np.int64), cells, side="left")
    low = shift if 0 < shift <= width // 2 else 0  # bits of the second word that belong to R
    num, den = 2 * s2.numerator, s2.denominator  # 1 - (k + 1/2) / s2 = (num - (2 k + 1) den) / num
    sure = [max(0, ((num - (2 * k + 1) * den) << (width - low)) // num) << low for k in range(len(steps) + 1)]
    limit = (1 << width) - 1
    return GaussianTables(
        sigma2,
        shift,
        tails,
        ascending,
        guide.astype(np.uint32),
        np.array([min(limit, s) for s in sure], np.uint32),
        width,
    )


_plan = lru_cache(maxsize=32)(plan)


def discrete_gaussian(out: npt.NDArray[np.signedinteger], sigma2: Fraction, entropy: WordSource | None = None) -> None:
    """Add exact discrete Gaussian noise to an array, in place.

    Args:
        out: int32 or int64 array of any shape, C-contiguous. Sums wrap.
        sigma2: exact rational, at most 2^100.
        entropy: words for tests; by default a keystream under a key that is erased before this returns.

    Raises:
        SpecError: `out` or `sigma2` is not as described above.
    """
    view = flat(out, (np.int32, np.int64))
    ready = _plan(positive(sigma2, "sigma2"))
    add(view, ready, entropy, compiled_block if view.size >= COMPILED_FROM else numpy_block)


def add(out: Signed, ready: GaussianTables, entropy: WordSource | None, block_noise: BlockNoise) -> None:
    """Add one draw to each element of a flat array; refused samples are drawn again after all blocks."""
    with Scratch(out.size, ready.rows, entropy) as scratch:
        noise: Signed = np.zeros(min(out.size, block_samples(ready.rows)), np.int64 if ready.shift else np.int32)
        again = []
        for block in blocks(out.size, ready.rows):
            target = out[block]
            drawn = noise[: len(target)]
            refused = _draw_block(target, drawn, ready, scratch, block_noise)
            again.append(refused + block.start)
            np.add(target, drawn, out=target, casting="unsafe")
        pending = np.concatenate(again) if again else np.empty(0, np.intp)
        while pending.size:
            refused = pending[:0]
            for block in blocks(pending.size, ready.rows):
                places = pending[block]
                target, drawn = out[places], noise[: len(places)]
                once_more = _draw_block(target, drawn, ready, scratch, block_noise)
                np.add(target, drawn, out=target, casting="unsafe")
                out[places] = target
                refused = np.append(refused, places[once_more])
            pending = refused
        noise.fill(0)


def _draw_block(
    target: Signed, drawn: Signed, ready: GaussianTables, scratch: Scratch, block_noise: BlockNoise
) -> Columns:
    """Write a block's noise; complete and add undecided samples. Return the refused ones, which are left at 0."""
    words = scratch.fill(len(target))
    undecided, refused = block_noise(words, ready, drawn)
    drawn[undecided] = 0
    drawn[refused] = 0
    more = []
    for position in undecided.tolist():
        value = complete(words[:, position].tolist(), ready, scratch.draw)
        if value is None:
            more.append(position)
        else:
            add_wrapping(target, position, value)
    return np.sort(np.append(refused, np.array(more, np.intp))) if more else refused


def numpy_block(words: Words, ready: GaussianTables, noise: Signed) -> tuple[Columns, Columns]:
    """Write the noise of each column of words; returns the undecided columns and the refused ones."""
    real = words[0] & np.uint32((1 << (ready.width - 1)) - 1)
    place = np.searchsorted(ready.steps, real, side="right")
    tied = real == 0
    if len(ready.steps):
        tied |= ready.steps[np.maximum(place, 1) - 1] == real
    noise[...] = len(ready.steps) - place
    unsure = np.zeros(len(tied), np.bool_)
    if ready.shift:
        unsure |= words[1] >= ready.sure[noise]
        noise <<= ready.shift
        noise += _uniform_parts(words, ready)
        unsure |= noise == 0
    np.negative(noise, out=noise, where=(words[0] >> np.uint32(ready.width - 1)).astype(np.bool_))
    return settle_columns(words, ready, noise, tied, unsure)


def compiled_block(words: Words, ready: GaussianTables, noise: Signed) -> tuple[Columns, Columns]:
    """The compiled twin of `numpy_block`, for words of 32 bits."""
    from sketchstream.noise.kernels import gaussian_block, gaussian_cells

    tied = np.empty(words.shape[1], np.bool_)
    unsure = np.zeros(words.shape[1], np.bool_)
    tables = (ready.steps, ready.guide, ready.guide_shift)
    if ready.shift:
        any_ = gaussian_cells(words, *tables, ready.sure, np.uint64(ready.shift), ready.packed, noise, tied, unsure)
        if not any_:
            return _NONE, _NONE
    else:
        gaussian_block(words[0], *tables, noise, tied)
    return settle_columns(words, ready, noise, tied, unsure)


_NONE: Columns = np.empty(0, np.intp)


def settle_columns(
    words: Words, ready: GaussianTables, noise: Signed, tied: npt.NDArray[np.bool_], unsure: npt.NDArray[np.bool_]
) -> tuple[Columns, Columns]:
    """The columns that stay undecided, and the refused ones, ascending.

    Args:
        words: the block.
        ready: the tables.
        noise: (samples,) the proposal of each column.
        tied: whether K needs more bits.
        unsure: whether the second word alone does not decide on acceptance, or the proposal is 0.
    """
    if not ready.packed:
        return np.flatnonzero(tied | unsure), _NONE
    columns = np.flatnonzero(unsure & ~tied)
    size = np.abs(noise[columns].astype(np.int64))
    left, rest = size >> ready.shift << ready.shift, size & ((1 << ready.shift) - 1)
    product = rest * (2 * left + rest)
    least_x = product * ready.coefficient >> ready.scale
    most_x = (product * (ready.coefficient + 1) >> ready.scale) + 1
    small = most_x < 1 << WORD_BITS  # x below 1
    least, most = exponential_ends(*(np.where(small, x, 0).astype(np.uint64) for x in (least_x, most_x)))
    spare = np.uint64(WORD_BITS - ready.width)  # narrow words: the first bits of 32
    below = np.uint64(ready.shift) + spare
    first = words[1][columns].astype(np.uint64) >> np.uint64(ready.shift)
    accepted = small & ((first + np.uint64(1)) << below <= least)
    refused = (small & (first << below >= most)) | (
        (size == 0) & (words[0][columns] >> np.uint32(ready.width - 1) == 1)
    )
    tied[columns[~accepted & ~refused]] = True
    return np.flatnonzero(tied), columns[refused]


def exponential_ends(
    least_x: npt.NDArray[np.uint64], most_x: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Whole numbers around 2^32 e^-x, from 1 - x + x^2 / 2 - x^3 / 6 <= e^-x <= 1 - x + x^2 / 2.

    Args:
        least_x: (n,) lower ends of 2^32 x, x below 1.
        most_x: (n,) upper ends, below 2^32.
    """
    one, whole = np.uint64(1), np.uint64(1 << WORD_BITS)
    cube = ((most_x * most_x >> np.uint64(32)) + one) * most_x // np.uint64(6) >> np.uint64(32)
    least = whole - most_x + (least_x * least_x >> np.uint64(33)) - cube - one
    most = whole - least_x + (most_x * most_x >> np.uint64(33)) + one
    return np.minimum(least, whole), most


def _uniform_parts(words: Words, ready: GaussianTables) -> npt.NDArray[np.int64]:
    """The uniform part R of each column."""
    out: npt.NDArray[np.int64]
    if ready.packed:
        out = (words[1] & np.uint32((1 << ready.shift) - 1)).astype(np.int64)
        return out
    rest = words[2].astype(np.uint64)
    if ready.rows > 3:
        rest = (rest << np.uint64(ready.width)) | words[3]
    out = (rest >> np.uint64((ready.rows - 2) * ready.width - ready.shift)).astype(np.int64)
    return out


def complete(words: list[int], ready: GaussianTables, draw: Draw) -> int | None:
    """One sample from its own words; draws more bits if these do not decide it. None if it is refused.

    Args:
        words: K and sign; for large sigma also acceptance and R.
        ready: the tables.
        draw: the next word of the source.
    """
    sign = -1 if words[0] >> (ready.width - 1) else 1
    k = cell(words[0] & ((1 << (ready.width - 1)) - 1), ready, draw)
    if ready.shift == 0:
        return sign * k
    if ready.packed:
        rest, drawn = words[1] & ((1 << ready.shift) - 1), ready.width - ready.shift
        first = words[1] >> ready.shift
    else:
        rest, drawn, first = 0, ready.width, words[1]
        for word in words[2:]:
            rest = (rest << ready.width) | word
        rest >>= (ready.rows - 2) * ready.width - ready.shift
    left = k << ready.shift
    exponent = rest * (2 * left + rest) / (2 * ready.sigma2)
    accepted = below_exponential(first, drawn, exponent, ready.width, draw)
    value = left + rest
    return sign * value if accepted and not (sign < 0 and value == 0) else None


def cell(real: int, ready: GaussianTables, draw: Draw) -> int:
    """Number of k >= 1 with V < Pr[K >= k], V the uniform real that starts with the width - 1 bits of `real`."""
    bits = ready.width - 1
    place = int(np.searchsorted(ready.steps, np.uint32(real), side="right"))
    k = len(ready.steps) - place
    if real and not (place and int(ready.steps[place - 1]) == real):
        return k
    level = LEVEL
    while True:  # V is below k thresholds for sure: is it below the next one?
        while level < bits + 32:
            level *= 2
        low, high = ready.tails.enclose(k + 1, level)
        if (real + 1) << (level - bits) <= low:
            k += 1
        elif high <= real << (level - bits):
            return k
        else:
            real = (real << ready.width) | draw()
            bits += ready.width


def below_exponential(word: int, bits: int, exponent: Fraction, width: int, draw: Draw) -> bool:
    """Whether a uniform real is below exp(-exponent), decided exactly.

    Args:
        word: the first bits of the uniform real.
        bits: number of bits.
        exponent: exponent, at least 0.
        width: bits of one further word.
        draw: the next word of the source.
    """
    num, den = exponent.numerator, exponent.denominator
    if (word + 1) * den <= (den - num) << bits:  # below 1 - x, which is below exp(-x); always so for x = 0
        return True
    if 2 * word * den * den >= (2 * den * (den - num) + num * num) << bits:  # above 1 - x + x^2 / 2
        return False
    threshold = exponential(exponent, 64)
    while word == threshold.prefix(bits):
        word = (word << width) | draw()
        bits += width
    return word < threshold.prefix(bits)
