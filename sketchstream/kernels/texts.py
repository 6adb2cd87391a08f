"""Compiled loops over texts in one buffer: UTF-8 checks, integers, positions in a list.

In: a uint8 buffer and bounds into it. Out: arrays filled in place. Touches: nothing else.
Source: RFC 3629 (UTF-8), RFC 8259 (integers).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchstream.array_types import Bytes, Flags, Ints
from sketchstream.kernels.compilation import kernel, part
from sketchstream.kernels.machine_code import byte_at, first_byte, trailing_zeros, word_at
from sketchstream.kernels.runs import WIDTH, ascii_run

_ZERO, _ONE, _EIGHT, _BITS, _FOLD = (np.uint64(value) for value in (0, 1, 8, 64, 32))


@kernel
def last_run(first: Any, size: Any) -> Any:
    """The last address from which a run of 16 bytes of a buffer can be read; 0: there is none."""
    return first + np.uint64(size - WIDTH) if size >= WIDTH else _ZERO


@part
def character_size(at: Any, end: Any) -> Any:
    """Bytes of a character that begins with a byte from 128 on; 0 if it is not UTF-8, or does not end before `end`.

    Args:
        at: address of its first byte.
        end: address behind the text.
    """
    # C0, C1 would spell ASCII in two bytes, F5 and above lie beyond U+10FFFF. The number of bytes behind the first one
    # follows from it, and all of them must lie before the end.
    first = byte_at(at)
    more = np.uint64(1) if first < 0xE0 else (np.uint64(2) if first < 0xF0 else np.uint64(3))
    if first < 0xC2 or first > 0xF4 or more >= end - at:
        return _ZERO
    # The second byte decides about spellings that are too long (E0, F0), surrogates (ED), and what lies beyond U+10FFFF
    # (F4).
    second = byte_at(at + _ONE)
    if (
        (second & 0xC0) != 0x80
        or (first == 0xE0 and second < 0xA0)
        or (first == 0xED and second > 0x9F)
        or (first == 0xF0 and second < 0x90)
        or (first == 0xF4 and second > 0x8F)
        or (more > 1 and (byte_at(at + np.uint64(2)) & 0xC0) != 0x80)
        or (more > 2 and (byte_at(at + np.uint64(3)) & 0xC0) != 0x80)
    ):
        return _ZERO
    return _ONE + more


@part
def is_utf8(at: Any, end: Any, limit: Any) -> Any:
    """Whether the bytes of a text are UTF-8.

    Args:
        at: address of the text.
        end: address behind it.
        limit: last address from which a run of 16 bytes can be read.
    """
    while at < end:
        # Sixteen bytes at a time while they are ASCII; near the end of the buffer, and behind that, one by one.
        if at <= limit:
            step = np.uint64(ascii_run(at))
            at += step
            if step == WIDTH or at >= end:
                continue
        size = _ONE
        if byte_at(at) >= 0x80:
            size = character_size(at, end)
        if size == 0:
            return False
        at += size
    return True


@kernel
def check_utf8(data: Bytes, starts: Ints, ends: Ints, valid: Flags) -> None:
    """Clear `valid` where the bytes are not UTF-8; entries that are already False are skipped."""
    first = first_byte(data)
    limit = last_run(first, data.size)
    for i in range(starts.size):
        if valid[i]:
            valid[i] = is_utf8(first + np.uint64(starts[i]), first + np.uint64(ends[i]), limit)


@kernel
def check_payloads(data: Bytes, starts: Ints, ends: Ints, others: Ints, text: bool, absent: Flags, valid: Flags) -> int:
    """Check payloads that are items themselves, in one pass.

    Args:
        data: uint8.
        starts: (n,) start of each payload, < 0: there is none.
        ends: (n,) its end.
        others: (n,) < 0: the record counts as empty too; `starts` again if there is no such part.
        text: whether payloads must be UTF-8.
        absent: (n,) out: whether there is no payload.
        valid: (n,) out: whether there is a payload that passes these checks.

    Returns:
        Number of payloads that are not all ASCII and were left to `check_utf8`.
    """
    first = first_byte(data)
    limit = last_run(first, data.size)
    unsure = 0
    for i in range(starts.size):
        present = starts[i] >= 0 and others[i] >= 0
        absent[i] = not present
        valid[i] = present
        if present and text:
            at, end = first + np.uint64(starts[i]), first + np.uint64(ends[i])
            # The last bytes of the buffer are left to `check_utf8`, as is what is not ASCII.
            step = np.uint64(WIDTH)
            while step == WIDTH and at < end and at <= limit:
                step = np.uint64(ascii_run(at))
                at += step
            unsure += at < end
    return unsure


@kernel
def read_integers(data: Bytes, starts: Ints, ends: Ints, valid: Flags, unsigned: bool, out: Ints) -> None:
    """Read decimal texts of JSON's integer grammar as int64; `valid` is cleared for other texts.

    With `unsigned`, 2^63 to 2^64 - 1 are accepted too, as the int64 with the same 64 bits.
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
        # 2^64 has 20 digits; JSON has no leading zeros.
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
            # The same as 10 * magnitude + digit > most, without a product that could overflow.
            if magnitude > (most - digit) // np.uint64(10):
                good = False
                break
            magnitude = magnitude * np.uint64(10) + digit
        valid[i] = good
        if good:
            # 2^63 becomes -2^63 here, and its negative is itself.
            value = np.int64(magnitude)
            out[i] = -value if negative else value


_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def _word(first: Any, start: Any, length: Any, size: Any) -> Any:
    """The first eight bytes of a text (fewer: zeros follow); nothing outside a buffer of `size` bytes is read."""
    if length == 0:
        return _ZERO
    if start + _EIGHT <= size:
        word = word_at(first + start)
        return word if length >= _EIGHT else word & ((_ONE << (length * _EIGHT)) - _ONE)
    word = _ZERO
    for i in range(min(length, _EIGHT)):
        word |= np.uint64(byte_at(first + start + np.uint64(i))) << (np.uint64(i) * _EIGHT)
    return word


@kernel
def _place(first: Any, start: Any, length: Any, size: Any) -> Any:
    """A hash of a text with well-mixed high bits; not for secrets."""
    value = (_word(first, start, length, size) ^ length) * _MIX
    if length > _EIGHT:
        # Words of eight bytes; the last one ends with the text, and overlaps the one before it.
        at, last = first + start + _EIGHT, first + start + length - _EIGHT
        while at < last:
            value = ((value >> _FOLD) ^ value ^ word_at(at)) * _MIX
            at += _EIGHT
        value = ((value >> _FOLD) ^ value ^ word_at(last)) * _MIX
    return value


@kernel
def _equal(first: Any, start: Any, second: Any, begin: Any, length: Any, size: Any, more: Any) -> Any:
    """Whether two texts of one length in two buffers are equal."""
    if length <= _EIGHT:
        return _word(first, start, length, size) == _word(second, begin, length, more)
    one, other, last = first + start, second + begin, first + start + length - _EIGHT
    while one < last:
        if word_at(one) != word_at(other):
            return False
        one += _EIGHT
        other += _EIGHT
    return word_at(last) == word_at(second + begin + length - _EIGHT)


@kernel
def list_texts(listed: Bytes, offsets: Ints, table: Any) -> None:
    """Fill the hash table of a list of different texts, for `find_texts`.

    Args:
        listed: concatenated texts.
        offsets: (m + 1,) their starts, and the end of the last one.
        table: (a power of two above m, at least 2,) int32, all -1; filled with positions in the list.
    """
    first, size, mask = first_byte(listed), np.uint64(listed.size), np.uint64(table.size - 1)
    shift = _BITS - trailing_zeros(np.uint64(table.size))
    for i in range(len(offsets) - 1):
        start = np.uint64(offsets[i])
        at = _place(first, start, np.uint64(offsets[i + 1]) - start, size) >> shift
        # Linear probing: the table is larger than the list, so a free place is always met.
        while table[at] >= 0:
            at = (at + _ONE) & mask
        table[at] = i


@kernel
def find_texts(
    data: Bytes, starts: Ints, ends: Ints, valid: Flags, listed: Bytes, offsets: Ints, table: Any, out: Any
) -> None:
    """Find the positions of texts in a list; -1 if a text is not in it, or not valid.

    Args:
        data: buffer of the texts.
        starts: (n,) starts of the texts.
        ends: (n,) ends of the texts.
        valid: (n,) whether there is a text.
        listed: see `list_texts`.
        offsets: see `list_texts`.
        table: hash table that `list_texts` filled.
        out: (n,) int32 positions, filled in.
    """
    first, size = first_byte(data), np.uint64(data.size)
    second, more, mask = first_byte(listed), np.uint64(listed.size), np.uint64(table.size - 1)
    shift = _BITS - trailing_zeros(np.uint64(table.size))
    for i in range(len(out)):
        place = np.int32(-1)
        if valid[i]:
            start = np.uint64(starts[i])
            length = np.uint64(ends[i]) - start
            at = _place(first, start, length, size) >> shift
            while table[at] >= 0:
                entry = np.uint64(table[at])
                begin = np.uint64(offsets[entry])
                same = np.uint64(offsets[entry + _ONE]) - begin == length
                if same and _equal(first, start, second, begin, length, size, more):
                    place = table[at]
                    break
                at = (at + _ONE) & mask
        out[i] = place
