"""Arrays of small integers, written near their entropy with the standard library alone.

In: (n,) int16, int32 or int64. Out: bytes, and back. Touches: nothing.
Source: Deutsch 1996, RFC 1951 (deflate, here its Huffman coding alone: matching would make noise larger).

Each value is zigzag-encoded. Its lowest `shift` bits are stored as they are (`shift` is 0 unless the values are wide),
and the rest becomes a one-byte token; the token 255 means that the rest minus 255 follows in the escapes as a varint.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.errors import FormatError

Integers = npt.NDArray[np.signedinteger[Any]]
U64 = npt.NDArray[np.uint64]

ESCAPE = 255
_HEAD = struct.Struct("<B7xQQQ")
_BLOCK = 1 << 17
_SAMPLE = 1 << 14
_MAX_VARINT_BYTES = 10
_ONE_BY_ONE = 256
"""Bytes up to which varints are read one by one."""


def encode(values: Integers) -> bytes:
    """(n,) values as bytes."""
    shift = _best_shift(values)
    main = zlib.compressobj(1, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    tokens_out: list[bytes] = []
    excess: list[U64] = []
    aside: list[bytes] = []
    for first in range(0, len(values), _BLOCK):
        wide = _zigzag(values[first : first + _BLOCK])
        rest = wide >> np.uint64(shift)
        tokens_out.append(main.compress(np.minimum(rest, np.uint64(ESCAPE)).astype(np.uint8).tobytes()))
        excess.append(rest[rest >= ESCAPE] - np.uint64(ESCAPE))
        if shift:
            aside.append(_low_bits(wide, shift))
    tokens_out.append(main.flush())
    over = np.concatenate(excess) if excess else np.empty(0, np.uint64)
    escapes = zlib.compressobj(1, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    escaped = escapes.compress(_varints(over)) + escapes.flush()
    length = sum(map(len, tokens_out))
    return b"".join([_HEAD.pack(shift, length, len(over), len(escaped)), *tokens_out, escaped, *aside])


def decode(body: memoryview, n: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The (n,) values of a body.

    Raises:
        FormatError: the body is not one that `encode` writes for n values of this type.
    """
    if len(body) < _HEAD.size or any(body[1:8]):
        raise FormatError("the body is too short for its codec")
    shift, length, count, escaped = _HEAD.unpack(body[: _HEAD.size])
    bits = 8 * dtype.itemsize
    aside = (n * shift + 7) // 8
    rest = body[_HEAD.size :]
    if shift >= bits or length + escaped + aside != len(rest) or n > 8 * length or count > min(n, 8 * escaped):
        raise FormatError("the lengths inside the body do not fit together")
    over = _read_varints(_inflate(rest[length : length + escaped], _MAX_VARINT_BYTES * count), count)
    if count and int(over.max()) > ((1 << bits) - 1 >> shift) - ESCAPE:
        raise FormatError("an escaped value does not fit the type of the array")
    low = rest[length + escaped :]
    try:
        values = np.empty(n, dtype)
    except MemoryError:
        raise FormatError(f"no memory for the {n} values that the body declares") from None
    used = 0
    at = 0
    for tokens in _tokens(rest[:length], n):
        wide = np.frombuffer(tokens, np.uint8).astype(np.uint64)
        escapes = wide == ESCAPE
        more = int(np.count_nonzero(escapes))
        if used + more > count:
            break
        wide[escapes] += over[used : used + more]
        used += more
        wide <<= np.uint64(shift)
        if shift:
            wide |= _read_low_bits(low[at * shift // 8 :], len(wide), shift)
        if bits < 64 and len(wide) and int(wide.max()) >> bits:
            break
        values[at : at + len(wide)] = _unzigzag(wide).astype(dtype)
        at += len(wide)
    if at != n or used != count or (aside and low[-1] >> ((n * shift - 1) % 8 + 1)):
        raise FormatError("the body does not hold what it declares")
    return values


def _zigzag(values: Integers) -> U64:
    """0, -1, 1, -2, ... as 0, 1, 2, 3, ..."""
    wide = values.astype(np.int64)
    return (wide << 1 ^ wide >> 63).view(np.uint64)


def _unzigzag(wide: U64) -> npt.NDArray[np.int64]:
    """The inverse of `_zigzag`."""
    return (wide >> np.uint64(1)).view(np.int64) ^ -(wide & np.uint64(1)).view(np.int64)


def _best_shift(values: Integers) -> int:
    """The shift with the fewest bits per value, estimated from a sample at regular distances."""
    if not len(values):
        return 0
    sample = _zigzag(values[:: max(1, len(values) // _SAMPLE)])
    top = int(sample.max()).bit_length()
    costs = []
    for shift in range(max(1, min(top, 8 * values.itemsize) - 6)):
        rest = sample >> np.uint64(shift)
        shares = np.bincount(np.minimum(rest, np.uint64(ESCAPE)).astype(np.int64), minlength=ESCAPE + 1) / len(sample)
        entropy = -float(np.sum(shares[shares > 0] * np.log2(shares[shares > 0])))
        over = rest[rest >= ESCAPE] - np.uint64(ESCAPE)
        costs.append(shift + max(entropy, 1.0) + 8 * float(_varint_lengths(over).sum()) / len(sample))
    return int(np.argmin(costs))


def _low_bits(wide: U64, shift: int) -> bytes:
    """The lowest bits of each value, packed, lowest first."""
    powers = np.arange(shift, dtype=np.uint64)
    pieces = [
        np.packbits((part[:, None] >> powers & np.uint64(1)).astype(np.uint8), bitorder="little").tobytes()
        for part in (wide[first : first + 8192] for first in range(0, len(wide), 8192))
    ]
    return b"".join(pieces)


def _read_low_bits(low: memoryview, n: int, shift: int) -> U64:
    """The first n values of `_low_bits`."""
    values = np.zeros(n, np.uint64)
    for first in range(0, n, 8192):
        count = min(8192, n - first)
        data = np.frombuffer(low[first * shift // 8 : (first * shift + count * shift + 7) // 8], np.uint8)
        bits = np.unpackbits(data, count=count * shift, bitorder="little").reshape(count, shift)
        for power in range(shift):
            values[first : first + count] |= bits[:, power].astype(np.uint64) << np.uint64(power)
    return values


def _varint_lengths(values: U64) -> npt.NDArray[np.int64]:
    """Length in bytes of each value's varint."""
    lengths = np.ones(len(values), np.int64)
    for power in range(7, 64, 7):
        lengths += values >= np.uint64(1 << power)
    return lengths


def _varints(values: U64) -> bytes:
    """Seven bits per byte, lowest first; the top bit is set if more bytes follow."""
    lengths = _varint_lengths(values)
    ends = np.cumsum(lengths)
    data = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    for number in range(_MAX_VARINT_BYTES):
        longer = lengths > number
        if not longer.any():
            break
        piece = (values[longer] >> np.uint64(7 * number) & np.uint64(127)).astype(np.uint8)
        more = (lengths[longer] > number + 1).astype(np.uint8) << 7
        data[(ends - lengths)[longer] + number] = piece | more
    return data.tobytes()


def _read_varints(data: bytes, count: int) -> U64:
    """Exactly `count` varints, each in its shortest form."""
    if len(data) <= _ONE_BY_ONE:
        return _read_few_varints(data, count)
    raw = np.frombuffer(data, np.uint8)
    lasts = np.flatnonzero(raw < 128)
    starts = np.concatenate([[0], lasts[:-1] + 1]) if len(lasts) else lasts
    lengths = lasts - starts + 1
    bad = len(lasts) != count or (len(raw) and (not len(lasts) or lasts[-1] != len(raw) - 1))
    if bad or (count and (lengths.max() > _MAX_VARINT_BYTES or np.any((raw[lasts] == 0) & (lengths > 1)))):
        raise FormatError("the escapes of the body are not readable")
    values = np.zeros(count, np.uint64)
    for number in range(int(lengths.max()) if count else 0):
        longer = lengths > number
        piece = raw[starts[longer] + number].astype(np.uint64)
        if number == _MAX_VARINT_BYTES - 1 and np.any(piece > 1):
            raise FormatError("an escaped value does not fit in 64 bits")
        values[longer] |= (piece & np.uint64(127)) << np.uint64(7 * number)
    return values


def _read_few_varints(data: bytes, count: int) -> U64:
    """Read numbers one by one, which is faster for few of them."""
    values: list[int] = []
    value = power = 0
    wrong = False
    for byte in data:
        value |= (byte & 127) << power
        if byte < 128:
            wrong |= power > 63 or (byte == 0 and power > 0)
            values.append(value)
            value = power = 0
        else:
            power += 7
    if wrong or power or len(values) != count:
        raise FormatError("the escapes of the body are not readable")
    if max(values, default=0) >> 64:
        raise FormatError("an escaped value does not fit in 64 bits")
    return np.array(values, np.uint64)


def _inflate(data: memoryview, limit: int) -> bytes:
    """A whole deflate stream of at most `limit` bytes."""
    stream = zlib.decompressobj(-15)
    inflated = _some(stream, data, limit + 1)
    if len(inflated) > limit or not stream.eof or stream.unused_data:
        raise FormatError("the body does not decompress to what it declares")
    return inflated


def _tokens(data: memoryview, n: int) -> Iterator[bytes]:
    """The n tokens of a deflate stream, in pieces of _BLOCK, then the remaining bytes."""
    stream = zlib.decompressobj(-15)
    left: bytes | memoryview = data
    for first in range(0, n, _BLOCK):
        wanted = min(_BLOCK, n - first)
        tokens = bytearray()
        while len(tokens) < wanted:
            more = _some(stream, left, wanted - len(tokens))
            left = stream.unconsumed_tail
            if not more:
                raise FormatError("the body does not decompress to what it declares")
            tokens += more
        yield bytes(tokens)
    if _some(stream, left, 1) or not stream.eof or stream.unused_data or stream.unconsumed_tail:
        raise FormatError("the body does not decompress to what it declares")


def _some(stream: Any, data: bytes | memoryview, limit: int) -> bytes:
    """At most `limit` decompressed bytes."""
    try:
        inflated: bytes = stream.decompress(data, limit)
    except zlib.error as error:
        raise FormatError("the body cannot be decompressed") from error
    return inflated
