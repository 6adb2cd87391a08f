"""Compiled loops of the samplers: comparisons of words with thresholds.

In: a block of words and the first words of the thresholds. Out: the block's noise, and whether any sample of it needs
more bits. Touches: nothing. Integer arithmetic only; no branch on a word; the same results as the numpy loops next to
them, word for word (tests/noise/test_replay.py).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Flags
from sketchstream.kernels import kernel
from sketchstream.noise.blocks import Signed
from sketchstream.noise.entropy import Words

Residues = npt.NDArray[np.int64]

BLOCK = 2048
"""Samples whose sums stay in the first-level cache while the rows go by."""


@kernel
def laplace_block(words: Words, thresholds: Words, noise: Signed) -> bool:
    """Write S (1 + G) for each column of words; True if some sample is undecided (see `laplace.undecided_columns`)."""
    rows, samples = words.shape
    digits = rows - 2
    one, two, sign = thresholds[digits + 1], thresholds[digits + 2], thresholds[0]
    doubt = np.uint32(0)
    for start in range(0, samples, BLOCK):
        stop = min(start + BLOCK, samples)
        sums = noise[start:stop]
        # The number is made from its highest part down: the last row says whether it is 2^digits or more, each row
        # before it one binary digit. A word that equals a threshold needs more bits: it is noted, without a branch.
        row = words[digits + 1, start:stop]
        for i in range(stop - start):
            word = row[i]
            sums[i] = word < one
            doubt |= np.uint32(word == one) | np.uint32(word <= two)
        for digit in range(digits, 0, -1):
            row = words[digit, start:stop]
            threshold = thresholds[digit]
            for i in range(stop - start):
                word = row[i]
                sums[i] = sums[i] + sums[i] + (word < threshold)
                doubt |= np.uint32(word == threshold)
        row = words[0, start:stop]
        for i in range(stop - start):
            # All bits of `positive` are the first bit, the sign; the xor gives both signs the same words for the
            # magnitude.
            positive = np.int32(row[i]) >> np.int32(31)
            word = row[i] ^ np.uint32(positive)
            doubt |= np.uint32(word == sign)
            magnitude = sums[i] + 1 if word < sign else 0
            sums[i] = magnitude if positive else -magnitude
    return bool(doubt)


@kernel
def response_block(words: Words, threshold: np.uint32, values: np.uint64, refused: np.uint64, shift: Signed) -> bool:
    """Write each column's shift in 0..values; True if some sample is undecided (see `response.undecided_columns`)."""
    first, second = words[0], words[1]
    doubt = np.uint32(0)
    for i in range(len(shift)):
        # The high half is a value, each one equally likely once low halves below `refused` are left out.
        product = np.uint64(second[i]) * values
        moves = first[i] < threshold
        shift[i] = (np.int32(product >> np.uint64(32)) + np.int32(1)) * np.int32(moves)
        doubt |= np.uint32(first[i] == threshold) | np.uint32((product & np.uint64(0xFFFFFFFF)) < refused)
    return bool(doubt)


@kernel
def residue_block(words: Words, modulus: np.uint64, refused: np.uint64, out: Residues) -> bool:
    """Write each word's residue below the modulus, -1 for a word that favours one; True if there is such a word."""
    doubt = np.uint32(0)
    for i in range(len(words)):
        product = np.uint64(words[i]) * modulus
        again = (product & np.uint64(0xFFFFFFFF)) < refused
        out[i] = np.int64(product >> np.uint64(32)) | -np.int64(again)
        doubt |= np.uint32(again)
    return bool(doubt)


@kernel
def gaussian_block(
    words: Words, steps: Words, guide: Words, guide_shift: np.uint32, noise: Signed, tied: Flags
) -> None:
    """Write the table's |z| with the sign of each word's first bit; mark the samples that need more bits."""
    rows = len(steps)
    for i in range(len(words)):
        word = words[i]
        real = word & np.uint32(0x7FFFFFFF)
        # The guide says between which steps words with these leading bits lie: little is left to halve.
        guess = real >> guide_shift
        low, high = guide[guess], guide[guess + np.uint32(1)]
        while low < high:
            middle = (low + high) >> np.uint32(1)
            if steps[middle] <= real:
                low = middle + np.uint32(1)
            else:
                high = middle
        # A word that equals a step, or the beginning of all, does not decide: more bits are drawn for it.
        tie = real == 0
        if low > 0:
            tie |= steps[low - np.uint32(1)] == real
        tied[i] = tie
        # 0 or -1, the sign of the word's first bit: (x ^ s) - s is x or -x, without a branch.
        sign = np.int32(word) >> np.int32(31)
        noise[i] = ((rows - np.int64(low)) ^ sign) - sign


@kernel
def gaussian_cells(
    words: Words,
    steps: Words,
    guide: Words,
    guide_shift: np.uint32,
    sure: Words,
    bits: np.uint64,
    packed: bool,
    noise: Signed,
    tied: Flags,
    unsure: Flags,
) -> bool:
    """Write +-(2^m K + R) of each column; mark those whose K needs more bits, and those that may be refused."""
    rows = len(steps)
    any_ = False
    low_bits = (np.uint32(1) << np.uint32(bits)) - np.uint32(1) if packed else np.uint32(0)
    for i in range(words.shape[1]):
        word = words[0, i]
        real = word & np.uint32(0x7FFFFFFF)
        guess = real >> guide_shift
        low, high = guide[guess], guide[guess + np.uint32(1)]
        while low < high:
            middle = (low + high) >> np.uint32(1)
            if steps[middle] <= real:
                low = middle + np.uint32(1)
            else:
                high = middle
        tie = real == 0
        if low > 0:
            tie |= steps[low - np.uint32(1)] == real
        # K from the table; R from the bits that the second word does not need, or from further words.
        k = rows - np.int64(low)
        if packed:
            rest = np.uint64(words[1, i] & low_bits)
        else:
            rest = np.uint64(words[2, i])
            spare = np.uint64(32) - bits
            if len(words) > 3:
                rest = (rest << np.uint64(32)) | np.uint64(words[3, i])
                spare = np.uint64(64) - bits
            rest >>= spare
        value = (k << np.int64(bits)) + np.int64(rest)
        # Below sure[k] a sample is accepted whatever R is, but 0, which has two signs and may have one. The rest is
        # settled afterwards, by exact comparisons.
        doubt = (words[1, i] >= sure[k]) | (value == 0)
        tied[i] = tie
        unsure[i] = doubt
        any_ |= tie | doubt
        sign = np.int64(np.int32(word) >> np.int32(31))
        noise[i] = (value ^ sign) - sign
    return any_
