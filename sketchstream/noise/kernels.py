"""Compiled loops of the samplers: comparisons of words with thresholds, nothing else.

In: a block of words and the first words of the thresholds. Out: the block's noise, and whether any sample of it needs
more bits. Touches: nothing. Integer arithmetic only; no branch on a word; the same results as the numpy loops beside
them, word for word (tests/noise/test_replay.py).
"""

from __future__ import annotations

import numpy as np

from sketchstream.kernels import kernel
from sketchstream.noise.blocks import Signed
from sketchstream.noise.entropy import Words

CHUNK = 2048
"""Samples whose sums stay in the first-level cache while the rows go by."""


@kernel
def laplace_block(words: Words, thresholds: Words, noise: Signed) -> bool:
    """Write S (1 + G) for each column of words; True if some sample is undecided (see `laplace.undecided`)."""
    rows, samples = words.shape
    digits = rows - 2
    one, two, sign = thresholds[digits + 1], thresholds[digits + 2], thresholds[0]
    doubt = np.uint32(0)
    for start in range(0, samples, CHUNK):
        stop = min(start + CHUNK, samples)
        sums = noise[start:stop]
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
            positive = np.int32(row[i]) >> np.int32(31)
            word = row[i] ^ np.uint32(positive)
            doubt |= np.uint32(word == sign)
            magnitude = sums[i] + 1 if word < sign else 0
            sums[i] = magnitude if positive else -magnitude
    return bool(doubt)
