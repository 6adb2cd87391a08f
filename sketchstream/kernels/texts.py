"""Compiled loops over texts in one buffer: what is UTF-8, and what integers they spell.

In: a uint8 buffer and bounds into it. Out: arrays filled in place. Touches: nothing else.
Source: RFC 3629 (UTF-8), RFC 8259 (integers).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sketchstream.kernels.door import kernel
from sketchstream.kernels.runs import ascii_run

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@kernel
def check_utf8(data: Bytes, starts: Ints, ends: Ints, valid: Flags) -> None:
    """Clear `valid` where the bytes are not UTF-8; entries that are already False are left alone."""
    last_run = data.size - 16
    for i in range(starts.size):
        if not valid[i]:
            continue
        p = starts[i]
        end = ends[i]
        good = True
        while p < end:
            if p <= last_run:
                step = ascii_run(data, p)
                p += step
                if step == 16 or p >= end:
                    continue
            b = data[p]
            if b < 0x80:
                p += 1
                continue
            more = 1 if b < 0xE0 else (2 if b < 0xF0 else 3)
            if b < 0xC2 or b > 0xF4 or more >= end - p:
                good = False
                break
            second = data[p + 1]
            if (
                (second & 0xC0) != 0x80
                or (b == 0xE0 and second < 0xA0)
                or (b == 0xED and second > 0x9F)
                or (b == 0xF0 and second < 0x90)
                or (b == 0xF4 and second > 0x8F)
                or (more > 1 and (data[p + 2] & 0xC0) != 0x80)
                or (more > 2 and (data[p + 3] & 0xC0) != 0x80)
            ):
                good = False
                break
            p += 1 + more
        valid[i] = good


@kernel
def read_integers(data: Bytes, starts: Ints, ends: Ints, valid: Flags, unsigned: bool, out: Ints) -> None:
    """Decimal texts of JSON's integer grammar as int64; `valid` is cleared where they are something else.

    With `unsigned`, 2^63 to 2^64 - 1 are taken too, as the int64 of the same 64 bits.
    """
    limit = np.uint64(0xFFFFFFFFFFFFFFFF) if unsigned else np.uint64(0x7FFFFFFFFFFFFFFF)
    for i in range(starts.size):
        out[i] = 0
        if not valid[i]:
            continue
        text = data[starts[i] : ends[i]]
        size = text.size
        negative = size > 0 and text[0] == 45
        first = 1 if negative else 0
        digits = size - first
        if digits < 1 or digits > 20 or (digits > 1 and text[first] == 48):
            valid[i] = False
            continue
        most = np.uint64(0x8000000000000000) if negative else limit
        magnitude = np.uint64(0)
        good = True
        for j in range(first, size):
            if not 48 <= text[j] <= 57:
                good = False
                break
            digit = np.uint64(text[j] - 48)
            if magnitude > (most - digit) // np.uint64(10):
                good = False
                break
            magnitude = magnitude * np.uint64(10) + digit
        valid[i] = good
        if good:
            value = np.int64(magnitude)
            out[i] = -value if negative else value
