"""Positions of the items of a packed list or an external buffer.

In: msgpack bytes, offsets. Out: starts and ends, or the first error. Touches: nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels.compilation import kernel

INTS, TEXTS, BLOBS = range(3)
"""Item types as `read_packed` knows them."""


@kernel
def _big_endian(piece: Bytes) -> Any:
    """A big-endian unsigned integer."""
    value = np.uint64(0)
    for i in range(len(piece)):
        value = (value << np.uint64(8)) | np.uint64(piece[i])
    return value


@kernel
def read_packed(packed: Bytes, kind: Any, starts: Ints, ends: Ints, values: Ints) -> Any:
    """Read the positions of the items of a msgpack array (`starts`, `ends`), or their values (`values`, ints).

    Returns the number of items, from the first on, of the expected kind.
    """
    n = len(values) if kind == INTS else len(starts)
    at = 1 if n < 16 else 3 if n < 65536 else 5
    for i in range(n):
        tag = packed[at]
        at += 1
        width = 0
        if kind == INTS:
            if tag < 0x80:
                values[i] = tag
            elif tag >= 0xE0:
                values[i] = np.int64(tag) - 256
            elif 0xCC <= tag <= 0xCF:
                width = 1 << (tag - 0xCC)
                value = _big_endian(packed[at : at + width])
                at += width
                values[i] = np.int64(value)
                if values[i] < 0:
                    return i
            elif 0xD0 <= tag <= 0xD3:
                width = 1 << (tag - 0xD0)
                value = _big_endian(packed[at : at + width])
                at += width
                unused = np.int64(64 - 8 * width)
                values[i] = np.int64(value << np.uint64(unused)) >> unused
            else:
                return i
            continue
        if kind == TEXTS and 0xA0 <= tag < 0xC0:
            length: Any = np.int64(tag) - 0xA0
        elif kind == TEXTS and 0xD9 <= tag <= 0xDB:
            width = 1 << (tag - 0xD9)
            length = np.int64(_big_endian(packed[at : at + width]))
            at += width
        elif kind == BLOBS and 0xC4 <= tag <= 0xC6:
            width = 1 << (tag - 0xC4)
            length = np.int64(_big_endian(packed[at : at + width]))
            at += width
        else:
            return i
        starts[i] = at
        at += length
        ends[i] = at
    return n


@kernel
def check_spans(starts: Any, ends: Any, size: Any) -> Any:
    """Position of the first span that is not within 0..size, or -1."""
    bad = 0
    for i in range(len(starts)):
        bad += (starts[i] < 0) | (ends[i] < starts[i]) | (ends[i] > size)
    if bad > 0:
        for i in range(len(starts)):
            if starts[i] < 0 or ends[i] < starts[i] or ends[i] > size:
                return i
    return -1
