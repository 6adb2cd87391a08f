"""Compiled loops over packed batches: parse and unpack.

In: a uint8 buffer and bounds into it. Out: arrays filled in place. Touches: nothing else.
Source: the msgpack specification (formats of maps, str, bin and integers).
"""

from __future__ import annotations

import numpy as np

from sketchstream.array_types import Bytes, Flags, Ints
from sketchstream.kernels import kernel
from sketchstream.kernels.machine_code import first_byte, word_at

# columns of the table of fields; a start of -1: missing
ITEMS_START, ITEMS_END, WEIGHTS_START, WEIGHTS_END, HAS_TIME, TIME = range(6)


@kernel
def scan_packed(data: Bytes, starts: Ints, ends: Ints, status: Bytes, fields: Ints) -> int:
    """Find i, w and t in msgpack maps that have no other key.

    Args:
        data: the bytes.
        starts: (n,) where each map begins, < 0 for none.
        ends: (n,) where it ends.
        status: (n,) out: 0 sure, 1 for the msgpack library to judge, 2 no map at all.
        fields: (n, 6) out: start and end of i, start and end of w (-1 where missing), whether t is there, t.

    Returns:
        The number of entries with status 1.
    """
    n_asked = 0
    for n in range(starts.size):
        p = starts[n]
        end = ends[n]
        line = fields[n]
        for column in range(6):
            line[column] = -1 if column < HAS_TIME else 0
        if p < 0:
            status[n] = 2
            continue
        status[n] = 1
        good = end > p and (data[p] & 0xF0) == 0x80 and data[p] <= 0x83
        if good:
            entries = data[p] & 0x0F
            p += 1
            for _ in range(entries):
                good = False
                if end - p < 3 or data[p] != 0xA1:
                    break
                name = data[p + 1]
                code = data[p + 2]
                p += 3
                if name in (105, 119):
                    column = ITEMS_START if name == 105 else WEIGHTS_START
                    if line[column] >= 0 or code < 0xC4 or code > 0xC6:
                        break
                    width = 1 << (code - 0xC4)
                    if width > end - p:
                        break
                    size = np.int64(0)
                    for j in range(width):
                        size = (size << 8) | np.int64(data[p + j])
                    p += width
                    if size > end - p:
                        break
                    line[column] = p
                    line[column + 1] = p + size
                    p += size
                elif name == 116:
                    if line[HAS_TIME] != 0:
                        break
                    if code <= 0x7F:
                        line[TIME] = np.int64(code)
                    elif code >= 0xE0:
                        line[TIME] = np.int64(code) - 256
                    elif 0xCC <= code <= 0xD3:
                        width = 1 << ((code - 0xCC) & 3)
                        if width > end - p:
                            break
                        value = np.int64(0)
                        for j in range(width):
                            value = (value << 8) | np.int64(data[p + j])
                        p += width
                        if code >= 0xD0:
                            shift = 64 - 8 * width
                            value = (value << shift) >> shift
                        elif value < 0:
                            break
                        line[TIME] = value
                    else:
                        break
                    line[HAS_TIME] = 1
                else:
                    break
                good = True
        if good and p == end and line[ITEMS_START] >= 0:
            count = (line[ITEMS_END] - line[ITEMS_START]) // 8
            if (line[ITEMS_END] - line[ITEMS_START]) % 8 == 0 and (
                line[WEIGHTS_START] < 0 or line[WEIGHTS_END] - line[WEIGHTS_START] == 4 * count
            ):
                status[n] = 0
        if status[n] == 1:
            n_asked += 1
    return n_asked


@kernel
def unpack(data: Bytes, fields: Ints, firsts: Ints, counts: Ints, record: Ints, items: Ints, weights: Ints) -> None:
    """Spread the packed items (and weights, 1 where there are none) of each record over its updates.

    Args:
        data: the bytes.
        fields: (n, 6) from `scan_packed`.
        firsts: (n,) the first update of each record.
        counts: (n,) numbers of items; a record without a readable payload has one, which is 0.
        record: (u,) out, the index of each update's record.
        items: (u,) out, int64 with the same 64 bits.
        weights: (u,) out, or empty if weights are not wanted.
    """
    text = first_byte(data)
    for n in range(firsts.size):
        first = firsts[n]
        count = counts[n]
        for j in range(count):
            record[first + j] = n
        p = fields[n, ITEMS_START]
        if p < 0:
            for j in range(count):
                items[first + j] = 0
        else:
            for j in range(count):
                items[first + j] = np.int64(word_at(text + np.uint64(p + 8 * j)))
        if weights.size:
            w = fields[n, WEIGHTS_START]
            for j in range(count):
                weights[first + j] = 1
            if w >= 0:
                for j in range(count):
                    at = data[w + 4 * j : w + 4 * j + 4]
                    word = np.int64(at[0]) | np.int64(at[1]) << 8 | np.int64(at[2]) << 16 | np.int64(at[3]) << 24
                    weights[first + j] = word - ((word >> 31) << 32)


@kernel
def decimal_sizes(items: Ints, valid: Flags, offsets: Ints) -> None:
    """Fill (u + 1,) `offsets` for the decimal texts of items read as uint64; invalid ones are empty."""
    q = 0
    for i in range(items.size):
        offsets[i] = q
        if valid[i]:
            number = np.uint64(items[i])
            q += 1
            bound = np.uint64(10)
            for _ in range(19):
                if number < bound:
                    break
                q += 1
                bound *= np.uint64(10)
    offsets[items.size] = q


@kernel
def write_decimals(items: Ints, offsets: Ints, out: Bytes) -> None:
    """Write the decimal texts into the places that `decimal_sizes` gave them."""
    for i in range(items.size):
        rest = np.uint64(items[i])
        q = offsets[i + 1]
        while q > offsets[i]:
            q -= 1
            tenth = rest // np.uint64(10)
            out[q] = np.uint8(48) + np.uint8(rest - tenth * np.uint64(10))
            rest = tenth
