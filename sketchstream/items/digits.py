"""Decimal digits of binary integers, for items that are text.

In: int64 numbers. Out: their digits, one text behind the other. Touches: nothing else.
"""

from __future__ import annotations

import numpy as np

from sketchstream.array_types import Bytes, Flags, Ints
from sketchstream.kernels import kernel


@kernel
def digit_bounds(numbers: Ints, chosen: Flags, offsets: Ints) -> None:
    """Bounds of the decimal digits of the chosen numbers, one text behind the other; others have none.

    Args:
        numbers: (n,) int64.
        chosen: (n,) which of them are wanted.
        offsets: (n + 1,) out.
    """
    at = 0
    for i in range(numbers.size):
        offsets[i] = at
        if chosen[i]:
            rest = np.uint64(numbers[i])
            if numbers[i] < 0:
                rest = np.uint64(0) - rest
                at += 1
            at += 1
            bound = np.uint64(10)
            for _ in range(18):
                if rest < bound:
                    break
                at += 1
                bound *= np.uint64(10)
    offsets[numbers.size] = at


@kernel
def write_digits(numbers: Ints, offsets: Ints, out: Bytes) -> None:
    """Write the decimal digits of numbers to the bounds that `digit_bounds` gave them."""
    for i in range(numbers.size):
        first, at = offsets[i], offsets[i + 1]
        if at == first:
            continue
        rest = np.uint64(numbers[i])
        if numbers[i] < 0:
            rest = np.uint64(0) - rest
            out[first] = 45
            first += 1
        while at > first:
            at -= 1
            tenth = rest // np.uint64(10)
            out[at] = np.uint8(48) + np.uint8(rest - tenth * np.uint64(10))
            rest = tenth
