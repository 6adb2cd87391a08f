"""Integers as bytes: all of an array with the least number of bytes that holds each of them.

In: int64 arrays, or such bytes. Out: such bytes, or the arrays. Touches: nothing.

There is one way to write an array, so equal arrays have equal bytes on every machine.
"""

from __future__ import annotations

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.errors import FormatError, TruncatedError


def pack_integers(values: Ints) -> bytes:
    """One byte with the width in bytes, then each integer, little endian, two's complement."""
    flat = np.ascontiguousarray(values, "<i8").reshape(-1)
    width = _width(int(flat.min(initial=0)), int(flat.max(initial=0)))
    return bytes([width]) + flat.view(np.uint8).reshape(-1, 8)[:, :width].tobytes()


def unpack_integers(data: bytes, count: int) -> Ints:
    """(count,) int64 that `pack_integers` wrote.

    Raises:
        FormatError: another length, or more bytes for each than are needed.
    """
    width = data[0] if data else 0
    if not 1 <= width <= 8 or len(data) != 1 + width * count:
        raise TruncatedError(f"expected {count} packed integers, found another number of bytes")
    full = np.empty((count, 8), np.uint8)
    full[:, :width] = np.frombuffer(data, np.uint8, offset=1).reshape(count, width)
    full[:, width:] = np.where(full[:, width - 1] >= 128, 255, 0)[:, None]
    out: Ints = full.reshape(-1).view("<i8").astype(np.int64)
    if _width(int(out.min(initial=0)), int(out.max(initial=0))) != width:
        raise FormatError("packed integers are not in their shortest form")
    return out


def _width(least: int, most: int) -> int:
    """Bytes that hold both numbers with their sign."""
    return max(1, 1 + max(most.bit_length(), (~least).bit_length()) // 8)
