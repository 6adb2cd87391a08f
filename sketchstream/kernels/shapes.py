"""Tells whether a JSON text has every value where another text of its layout has it.

In: an address, and what was taken from the other text. Out: whether the text does. Touches: nothing else.

Many programs write identifiers and times of one length. Where all values of a text are as long as those of another one
that follows its layout, each byte is known to be one of a few kinds before it is looked at, so that 64 of them are
judged at a time. What is accepted here would be accepted byte by byte; what is not has only cost the look.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels.compilation import kernel, part
from sketchstream.kernels.machine_code import first_byte
from sketchstream.kernels.masks import BLOCK, differ_mask, other_mask, unplain_mask, wide_mask, zero_mask
from sketchstream.kernels.tokens import (
    DECIMAL,
    INTEGER,
    MINUS,
    NINE,
    NULL,
    OTHER,
    POINT,
    QUOTATION,
    SMALL_N,
    STRING,
    ZERO,
    U,
    literal_size,
)

Masks = npt.NDArray[np.uint64]

SHAPED_BYTES = 512
"""Length of the longest text that has a shape."""
SAME, INSIDE, DIGIT, NOT_ZERO = range(4)
"""Columns of masks: bytes that are equal in both texts, bytes inside strings, digits, digits that are not 0."""
COLUMNS = 4
KIND, START, END = range(3)
"""Columns of the table of places."""
LENGTH, FAILED, WAIT = range(3)
"""What is known of a shape: its length, 0 for none; in how many rounds in a row it did not pay; rounds that pass before
it is tried again."""
MAX_PAUSE = 6
"""At most 2 to the power of this many rounds pass before the next shape is taken."""
TRIAL_TEXTS = 32
"""Texts that tell whether a shape is worth it."""


@part
def _mark(masks: Any, p: Any, column: Any) -> None:
    """This byte is of that kind."""
    masks[p // BLOCK, column] |= U(1) << U(p % BLOCK)


@kernel
def take_shape(
    data: Bytes, start: int, last: int, bounds: Ints, slots: Ints, n: int, sample: Bytes, masks: Masks, places: Ints
) -> int:
    """Take the shape of a text that follows a layout.

    Args:
        data: the bytes.
        start: position at which the text begins.
        last: behind its last byte that is no white space.
        bounds: bounds of the layout, as from `layouts.learn`; so are those that follow.
        slots: paths of its values.
        n: number of its values.
        sample: (SHAPED_BYTES,) out: the text.
        masks: (SHAPED_BYTES // BLOCK, COLUMNS) out: bytes of each kind, a bit each.
        places: (k, 3) out: kind, start and end of the values of paths, from the start of the text.

    Returns:
        The length of the text; 0 where it is too long.
    """
    size = last - start
    if size > sample.size:
        return 0
    text = first_byte(data) + U(start)
    masks[:] = U(0)
    for j in range(size):
        sample[j] = data[start + j]
    p = np.int64(0)
    for slot in range(n + 1):
        for _ in range(bounds[slot, 1]):
            _mark(masks, p, SAME)
            p += 1
        if slot == n:
            break
        begin = p
        kind = STRING
        if sample[p] == QUOTATION:
            _mark(masks, p, SAME)
            p += 1
            begin = p
            while sample[p] != QUOTATION:
                _mark(masks, p, INSIDE)
                p += 1
            _mark(masks, p, SAME)
            stop = p
            p += 1
        elif sample[p] == MINUS or ZERO <= sample[p] <= NINE:
            kind = INTEGER
            negative = sample[p] == MINUS
            if negative:
                _mark(masks, p, SAME)
                p += 1
            first = p
            while p < size and (ZERO <= sample[p] <= NINE or sample[p] == POINT):
                if sample[p] == POINT:
                    kind = DECIMAL
                    _mark(masks, p, SAME)
                else:
                    _mark(masks, p, DIGIT)
                p += 1
            whole = first + 1 < size and ZERO <= sample[first + 1] <= NINE
            if whole or (negative and slots[slot] >= 0):
                _mark(masks, first, NOT_ZERO)
            stop = p
        else:
            kind = NULL if sample[p] == SMALL_N else OTHER
            for _ in range(literal_size(text, p)):
                _mark(masks, p, SAME)
                p += 1
            stop = p
        if slots[slot] >= 0:
            places[slots[slot], KIND] = kind
            places[slots[slot], START] = begin
            places[slots[slot], END] = stop
    return size


@part
def has_shape(at: Any, size: Any, sample: Any, masks: Any) -> Any:
    """Whether a text of a sample's length has its shape, and whether bytes from 128 on are inside of its strings.

    Args:
        at: the address of the text; `BLOCK` bytes behind it can be read.
        size: length of the text, bytes.
        sample: the address of a sample.
        masks: masks of the sample.
    """
    wide = U(0)
    wrong = U(0)
    b = 0
    while b * BLOCK < size and wrong == 0:
        here = at + U(b * BLOCK)
        inside = masks[U(b), U(INSIDE)]
        wrong = differ_mask(here, sample + U(b * BLOCK)) & masks[U(b), U(SAME)]
        wrong |= unplain_mask(here) & inside
        wrong |= other_mask(here) & masks[U(b), U(DIGIT)]
        wrong |= zero_mask(here) & masks[U(b), U(NOT_ZERO)]
        wide |= wide_mask(here) & inside
        b += 1
    return wrong == 0, wide != 0


@part
def judge_shape(shape: Any, length: Any, shaped: Any, others: Any) -> None:
    """Keep a shape that has just been taken, and one that half of the texts of its layout had.

    Args:
        shape: (3,) in and out: what is known of the shape.
        length: length of the shape.
        shaped: texts of a round that had it.
        others: texts of that round that followed the layout otherwise.
    """
    if shape[LENGTH] == 0:
        shape[LENGTH] = length
    elif shaped + others >= TRIAL_TEXTS:
        if shaped >= others:
            shape[FAILED] = 0
        else:
            shape[FAILED] = min(shape[FAILED] + 1, MAX_PAUSE)
            shape[WAIT] = 1 << shape[FAILED]
            shape[LENGTH] = 0
