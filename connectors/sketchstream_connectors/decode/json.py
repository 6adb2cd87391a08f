"""A compiled scanner that finds a few fields in many JSON texts and leaves unusual texts to orjson.

In: a uint8 buffer, the bounds of each text, the dotted paths. Out: kind and bounds of each field's value, and a flag
for each text that orjson must parse. Touches: nothing else.
Source: RFC 8259 (grammar), RFC 3629 (UTF-8), RFC 3339 (times). The reference is orjson, which parses all unusual texts:
invalid ones, escapes in keys or wanted strings, surrogates, numbers that might overflow, deep nesting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic

from sketchstream.kernels import kernel
from sketchstream.kernels.machine_code import prefetch_read
from sketchstream.kernels.runs import WORD, ascii_run, digit_run, plain_run

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SURE, ASK, TOMBSTONE, UNREAD = 0, 1, 2, 3
"""What the scanner says of a text. TOMBSTONE: there is none; UNREAD: it has not been looked at."""
U = np.uint64
"""Of an index that is not negative: numba then leaves its support for negative ones out, a third of the time."""

PLAIN, QUOTE, ESCAPE, CONTROL, WIDE = 0, 1, 2, 3, 4
CLASSES = np.zeros(256, dtype=np.uint8)
"""Class of each byte inside a string."""
CLASSES[:32] = CONTROL
CLASSES[ord('"')] = QUOTE
CLASSES[ord("\\")] = ESCAPE
CLASSES[128:] = WIDE


AHEAD = 16
"""Distance in records at which texts of times are prefetched."""
POWERS = np.array([10**n for n in range(9)], dtype=np.uint64)
"""Powers of ten."""

# A mask of one bit for each of the next 64 bytes: the caller ensures `BLOCK <= array.size - position`.

BLOCK = 64

_BYTES = ir.VectorType(ir.IntType(8), BLOCK)


def _mask(marks: Callable[[Any, Any, Callable[[int], Any]], Any]) -> Any:
    """An intrinsic `mask(array, position)`: bit j is set where `marks` marks byte j."""

    def mask(_typing: Any, array: Any, position: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            start = builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
            vector = builder.load(builder.bitcast(start, _BYTES.as_pointer()), align=1)
            return builder.bitcast(marks(builder, vector, lambda value: ir.Constant(_BYTES, [value] * BLOCK)), WORD)

        return types.uint64(array, types.int64), codegen

    return intrinsic(mask)


quote_mask: Callable[[Any, int], Any] = _mask(
    lambda builder, vector, same: builder.icmp_unsigned("==", vector, same(0x22))
)
"""Quotes."""
odd_mask: Callable[[Any, int], Any] = _mask(
    lambda builder, vector, same: builder.or_(
        builder.icmp_unsigned("==", vector, same(0x5C)), builder.icmp_unsigned("<", vector, same(0x20))
    )
)
"""Backslashes and control characters."""
wide_mask: Callable[[Any, int], Any] = _mask(lambda builder, vector, same: builder.icmp_signed("<", vector, same(0)))
"""Bytes from 128 on."""


def _first_bit(_typing: Any, word: Any) -> Any:
    """Position of the first one bit of a word that is not 0."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(word), codegen


def _word_at(_typing: Any, array: Any, position: Any) -> Any:
    """The caller has made sure that they are there."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        return builder.load(builder.bitcast(start, WORD.as_pointer()), align=1)

    return types.uint64(array, types.int64), codegen


first_bit: Callable[[Any], int] = cast("Any", intrinsic(_first_bit))
"""The number of zero bits below the lowest one of a word that is not 0."""
word_at: Callable[[Any, int], Any] = cast("Any", intrinsic(_word_at))
"""The eight bytes at a position as one little-endian word."""


@kernel
def scan_json(
    data: Bytes,
    starts: Ints,
    ends: Ints,
    names: Bytes,
    name_bounds: Ints,
    paths: Ints,
    classes: Bytes,
    status: Bytes,
    kinds: Bytes,
    found_start: Ints,
    found_end: Ints,
) -> tuple[int, int]:
    """Look every path up in every text.

    Args:
        data: the bytes.
        starts: (n,) where each text begins, < 0 where there is none.
        ends: (n,) where it ends.
        names: all components of all paths, one after the other.
        name_bounds: where each component begins, and where the last one ends.
        paths: (k, 2) first component and number of components of each path.
        classes: `CLASSES`.
        status: (n,) in and out: texts marked UNREAD are looked at, and marked SURE, ASK or TOMBSTONE.
        kinds: (k, n) out, see `sketchstream.columns`.
        found_start: (k, n) out; where a string's inside or a number begins; 0 where a text has nothing at a path.
        found_end: (k, n) out; where they end, likewise.

    Returns:
        The number of texts marked ASK, and of those that were walked through from quote to quote.
    """
    k_paths = paths.shape[0]
    reached = np.zeros(k_paths, dtype=np.int64)
    last_run = data.size - 16
    asked = 0
    walked = 0
    sizes = U(0)  # bit s: a component has s bytes; 63: or more. Most keys are none of ours by that alone
    heads = np.zeros(name_bounds.size, dtype=np.uint64)  # the first eight bytes of each component, as one word
    for j in range(name_bounds.size - 1):
        size = name_bounds[j + 1] - name_bounds[j]
        sizes |= U(1) << U(min(size, 63))
        for m in range(min(size, 8)):
            heads[j] |= U(names[name_bounds[j] + m]) << U(8 * m)
    for i in range(starts.size):
        if status[i] != UNREAD:
            continue
        p = starts[i]
        end = ends[i]
        for k in range(k_paths):
            kinds[U(k), U(i)] = 0
            found_start[U(k), U(i)] = 0
            found_end[U(k), U(i)] = 0
            reached[U(k)] = 0
        if p < 0:
            status[i] = 2
            continue
        # Texts as most are: objects of strings without escapes, numbers without exponents, literals and objects of
        # such, at most one space after each colon and comma. The walk goes from quote to quote, by masks of 64 bytes.
        # It may look behind the text's end, up to `BLOCK` bytes, but accepts only what closes exactly there. All else,
        # and invalid input are left to the loop below.
        last = end
        while last > p and (data[U(last - 1)] == 10 or data[U(last - 1)] == 13 or data[U(last - 1)] == 32):
            last -= 1
        if last - p >= 2 and last <= data.size - 64 and data[U(p)] == 123 and data[U(p + 1)] == 34:
            block = p
            left = U(0xFFFFFFFFFFFFFFFF) if last - block >= 64 else (U(1) << U(last - block)) - U(1)
            odd = odd_mask(data, block) & left
            wide = wide_mask(data, block) & left
            quotes = quote_mask(data, block) & left & U(0xFFFFFFFFFFFFFFFC)  # without the first key's, which p is at
            depth = 1
            p += 1
            simple = True
            done = False
            while simple:
                begin = p + 1  # a key; p is at its quote
                while quotes == 0:
                    block += 64
                    if block >= last:
                        simple = False
                        break
                    left = U(0xFFFFFFFFFFFFFFFF) if last - block >= 64 else (U(1) << U(last - block)) - U(1)
                    odd |= odd_mask(data, block) & left
                    wide |= wide_mask(data, block) & left
                    quotes = quote_mask(data, block) & left
                if not simple or odd != 0:
                    simple = False
                    break
                stop = block + first_bit(quotes)
                quotes &= quotes - U(1)
                hits = 0
                descends = 0
                size = stop - begin
                if (sizes >> U(min(size, 63))) & U(1):
                    head = word_at(data, begin)
                    if size < 8:
                        head &= (U(1) << U(8 * size)) - U(1)
                    for k in range(k_paths):
                        if reached[U(k)] == depth - 1 and depth <= paths[U(k), U(1)]:
                            component = paths[U(k), U(0)] + depth - 1
                            first = name_bounds[U(component)]
                            if name_bounds[U(component + 1)] - first == size and heads[U(component)] == head:
                                same = True
                                for j in range(8, size):
                                    if names[U(first + j)] != data[U(begin + j)]:
                                        same = False
                                        break
                                if same:
                                    kinds[U(k), U(i)] = 0
                                    if depth == paths[U(k), U(1)]:
                                        hits |= 1 << k
                                    else:
                                        descends |= 1 << k
                p = stop + 1
                if data[U(p)] != 58:
                    break
                p += 1
                if data[U(p)] == 32:
                    p += 1
                c = data[U(p)]
                opened = False
                if c == 34:
                    begin = p + 1
                    for step in range(2):  # the quote that opens the value, and the one that closes it
                        while quotes == 0:
                            block += 64
                            if block >= last:
                                simple = False
                                break
                            left = U(0xFFFFFFFFFFFFFFFF) if last - block >= 64 else (U(1) << U(last - block)) - U(1)
                            odd |= odd_mask(data, block) & left
                            wide |= wide_mask(data, block) & left
                            quotes = quote_mask(data, block) & left
                        if not simple:
                            break
                        stop = block + first_bit(quotes)
                        quotes &= quotes - U(1)
                        if step == 0 and stop != p:
                            simple = False
                            break
                    if not simple:
                        break
                    p = stop + 1
                    kind = 2
                elif c == 45 or 48 <= c <= 57:
                    begin = p
                    if c == 45:
                        p += 1
                    digits = digit_run(data, p)
                    if digits in (0, 16) or (digits > 1 and data[U(p)] == 48):
                        break
                    if c == 45 and data[U(p)] == 48 and hits:
                        break
                    p += digits
                    stop = p
                    kind = 3
                    if data[U(p)] == 46:
                        digits = digit_run(data, p + 1)
                        if digits in (0, 16):
                            break
                        p += 1 + digits
                        stop = p
                        kind = 5
                elif c == 123:
                    if depth == 8:
                        break
                    for k in range(k_paths):
                        if (descends >> k) & 1:
                            reached[U(k)] = depth
                    depth += 1
                    p += 1
                    kind = 4
                    opened = True
                elif c == 110:
                    if data[U(p + 1)] != 117 or data[U(p + 2)] != 108 or data[U(p + 3)] != 108:
                        break
                    p += 4
                    kind = 1
                elif c == 116:
                    if data[U(p + 1)] != 114 or data[U(p + 2)] != 117 or data[U(p + 3)] != 101:
                        break
                    p += 4
                    kind = 4
                elif c == 102:
                    if data[U(p + 1)] != 97 or data[U(p + 2)] != 108 or data[U(p + 3)] != 115 or data[U(p + 4)] != 101:
                        break
                    p += 5
                    kind = 4
                else:
                    break
                if hits:
                    for k in range(k_paths):
                        if (hits >> k) & 1:
                            kinds[U(k), U(i)] = kind
                            found_start[U(k), U(i)] = begin
                            found_end[U(k), U(i)] = stop
                c = data[U(p)]
                if not opened:
                    while c == 125 and depth > 0 and p < last:
                        depth -= 1
                        for k in range(k_paths):
                            reached[U(k)] = min(reached[U(k)], max(depth - 1, 0))
                        p += 1
                        c = data[U(p)]
                    if depth == 0:
                        done = p == last
                        break
                    if c != 44:
                        break
                    p += 1
                    if data[U(p)] == 32:
                        p += 1
                while quotes == 0:
                    block += 64
                    if block >= last:
                        simple = False
                        break
                    left = U(0xFFFFFFFFFFFFFFFF) if last - block >= 64 else (U(1) << U(last - block)) - U(1)
                    odd |= odd_mask(data, block) & left
                    wide |= wide_mask(data, block) & left
                    quotes = quote_mask(data, block) & left
                if not simple or block + first_bit(quotes) != p:
                    break
                quotes &= quotes - U(1)
            if done:  # everything behind the last quote was compared byte by byte
                good = odd == 0
                p = starts[i]
                while wide != 0 and good and p < last:
                    step = ascii_run(data, p)
                    p += step
                    if step == 16 or p >= last:
                        continue
                    b = data[U(p)]
                    more = 1 if b < 0xE0 else (2 if b < 0xF0 else 3)
                    second = data[U(p + 1)]
                    good = not (
                        b < 0xC2
                        or b > 0xF4
                        or more >= last - p
                        or (second & 0xC0) != 0x80
                        or (b == 0xE0 and second < 0xA0)
                        or (b == 0xED and second > 0x9F)
                        or (b == 0xF0 and second < 0x90)
                        or (b == 0xF4 and second > 0x8F)
                        or (more > 1 and (data[U(p + 2)] & 0xC0) != 0x80)
                        or (more > 2 and (data[U(p + 3)] & 0xC0) != 0x80)
                    )
                    p += 1 + more
                if good:
                    status[i] = 0
                    walked += 1
                    continue
            p = starts[i]
            for k in range(k_paths):
                kinds[U(k), U(i)] = 0
                reached[U(k)] = 0
        depth = 0
        objects = np.int64(0)  # bit d: the container at depth d is an object
        expect = 0  # 0 a value, 1 a key or }, 2 a key, 3 what follows a value, 4 a value or ]
        hits = 0
        descends = 0
        good = True
        while True:
            while p < end and (data[U(p)] == 32 or data[U(p)] == 10 or data[U(p)] == 13 or data[U(p)] == 9):
                p += 1
            if p >= end:
                good = expect == 3 and depth == 0
                break
            c = data[U(p)]
            if expect == 3:
                p += 1
                if depth == 0:
                    good = False
                    break
                inside_object = (objects >> depth) & 1
                if c == 44:
                    expect = 2 if inside_object else 0
                elif (c == 125 and inside_object) or (c == 93 and not inside_object):
                    depth -= 1
                    for k in range(k_paths):
                        reached[U(k)] = min(reached[U(k)], max(depth - 1, 0))
                else:
                    good = False
                    break
            elif c == 34:
                p += 1
                begin = p
                escaped = False
                closed = False
                while p < end:
                    if p <= last_run:
                        step = plain_run(data, p)
                        p += step
                        if step == 16:
                            continue
                        if p >= end:  # the run went on into the next text
                            break
                    kind = classes[data[U(p)]]
                    if kind == 0:
                        p += 1
                    elif kind == 1:
                        closed = True
                        break
                    elif kind == 2:
                        escaped = True
                        if end - p < 2:
                            break
                        e = data[U(p + 1)]
                        if e == 117:
                            if end - p < 6:
                                break
                            point = np.int64(0)
                            for j in range(2, 6):
                                h = data[U(p + j)]
                                if 48 <= h <= 57:
                                    point = point * 16 + np.int64(h) - 48
                                elif 97 <= h <= 102:
                                    point = point * 16 + np.int64(h) - 87
                                elif 65 <= h <= 70:
                                    point = point * 16 + np.int64(h) - 55
                                else:
                                    point = np.int64(0xD800)
                                    break
                            if 0xD800 <= point <= 0xDFFF:
                                break
                            p += 6
                        elif e in (34, 92, 47, 98, 102, 110, 114, 116):
                            p += 2
                        else:
                            break
                    elif kind == 3:
                        break
                    else:
                        b = data[U(p)]
                        if b < 0xC2 or b > 0xF4:
                            break
                        more = 1 if b < 0xE0 else (2 if b < 0xF0 else 3)
                        if more >= end - p:
                            break
                        second = data[U(p + 1)]
                        if (
                            (second & 0xC0) != 0x80
                            or (b == 0xE0 and second < 0xA0)
                            or (b == 0xED and second > 0x9F)
                            or (b == 0xF0 and second < 0x90)
                            or (b == 0xF4 and second > 0x8F)
                            or (more > 1 and (data[U(p + 2)] & 0xC0) != 0x80)
                            or (more > 2 and (data[U(p + 3)] & 0xC0) != 0x80)
                        ):
                            break
                        p += 1 + more
                if not closed:
                    good = False
                    break
                stop = p
                p += 1
                if expect in (1, 2):
                    if escaped:
                        good = False
                        break
                    hits = 0
                    descends = 0
                    for k in range(k_paths if (sizes >> U(min(stop - begin, 63))) & U(1) else 0):
                        if reached[U(k)] == depth - 1 and depth <= paths[U(k), U(1)]:
                            component = paths[U(k), U(0)] + depth - 1
                            first = name_bounds[U(component)]
                            size = name_bounds[U(component + 1)] - first
                            if size == stop - begin:
                                same = True
                                for j in range(size):
                                    if names[U(first + j)] != data[U(begin + j)]:
                                        same = False
                                        break
                                if same:
                                    kinds[U(k), U(i)] = 0
                                    if depth == paths[U(k), U(1)]:
                                        hits |= 1 << k
                                    else:
                                        descends |= 1 << k
                    while p < end and (data[U(p)] == 32 or data[U(p)] == 10 or data[U(p)] == 13 or data[U(p)] == 9):
                        p += 1
                    if p >= end or data[U(p)] != 58:
                        good = False
                        break
                    p += 1
                    expect = 0
                else:
                    if hits:
                        if escaped:
                            good = False
                            break
                        for k in range(k_paths):
                            if (hits >> k) & 1:
                                kinds[U(k), U(i)] = 2
                                found_start[k, i] = begin
                                found_end[k, i] = stop
                        hits = 0
                    descends = 0
                    expect = 3
            elif expect == 1 and c == 125:
                p += 1
                depth -= 1
                for k in range(k_paths):
                    reached[U(k)] = min(reached[U(k)], max(depth - 1, 0))
                expect = 3
            elif expect in (1, 2):
                good = False
                break
            elif expect == 4 and c == 93:
                p += 1
                depth -= 1
                for k in range(k_paths):
                    reached[U(k)] = min(reached[U(k)], max(depth - 1, 0))
                expect = 3
            elif c in (123, 91):
                p += 1
                if depth == 60:
                    good = False
                    break
                for k in range(k_paths):
                    if (hits >> k) & 1:
                        kinds[U(k), U(i)] = 4
                    if c == 123 and (descends >> k) & 1:
                        reached[U(k)] = depth
                hits = 0
                descends = 0
                depth += 1
                if c == 123:
                    objects |= np.int64(1) << depth
                    expect = 1
                else:
                    objects &= ~(np.int64(1) << depth)
                    expect = 4
            elif c == 45 or 48 <= c <= 57:
                begin = p
                whole = True
                if c == 45:
                    p += 1
                digits_from = p
                if p <= last_run:
                    p = min(p + digit_run(data, p), end)
                while p < end and 48 <= data[U(p)] <= 57:
                    p += 1
                digits = p - digits_from
                if digits == 0 or digits > 200 or (digits > 1 and data[U(digits_from)] == 48):
                    good = False
                    break
                if p < end and data[U(p)] == 46:
                    whole = False
                    p += 1
                    mark = p
                    while p < end and 48 <= data[U(p)] <= 57:
                        p += 1
                    if p == mark:
                        good = False
                        break
                if p < end and (data[U(p)] == 101 or data[U(p)] == 69):
                    whole = False
                    p += 1
                    if p < end and (data[U(p)] == 43 or data[U(p)] == 45):
                        p += 1
                    mark = p
                    while p < end and 48 <= data[U(p)] <= 57:
                        p += 1
                    if p == mark or p - mark > 2:
                        good = False
                        break
                if hits:
                    if whole and (digits > 18 or (c == 45 and data[U(digits_from)] == 48)):
                        good = False
                        break
                    for k in range(k_paths):
                        if (hits >> k) & 1:
                            kinds[U(k), U(i)] = 3 if whole else 5
                            found_start[k, i] = begin
                            found_end[k, i] = p
                    hits = 0
                descends = 0
                expect = 3
            else:
                # null, true, false
                if c == 110 and end - p >= 4:
                    good = data[U(p + 1)] == 117 and data[U(p + 2)] == 108 and data[U(p + 3)] == 108
                    p += 4
                elif c == 116 and end - p >= 4:
                    good = data[U(p + 1)] == 114 and data[U(p + 2)] == 117 and data[U(p + 3)] == 101
                    p += 4
                elif c == 102 and end - p >= 5:
                    good = (
                        data[U(p + 1)] == 97
                        and data[U(p + 2)] == 108
                        and data[U(p + 3)] == 115
                        and data[U(p + 4)] == 101
                    )
                    p += 5
                else:
                    good = False
                if not good:
                    break
                for k in range(k_paths):
                    if (hits >> k) & 1:
                        kinds[U(k), U(i)] = 1 if c == 110 else 4
                hits = 0
                descends = 0
                expect = 3
        if good:
            status[i] = 0
        else:
            status[i] = 1
            asked += 1
    return asked, walked


@kernel
def _eight_digits(word: Any) -> Any:
    """The number that eight ASCII digits spell, the first one in the lowest byte: pairs, fours, all of them."""
    pairs = ((word & U(0x0F0F0F0F0F0F0F0F)) * U(10 << 8 | 1)) >> U(8)
    fours = ((pairs & U(0x00FF00FF00FF00FF)) * U(100 << 16 | 1)) >> U(16)
    return ((fours & U(0x0000FFFF0000FFFF)) * U(10_000 << 32 | 1)) >> U(32)


@kernel
def read_times(data: Bytes, kinds: Bytes, starts: Ints, ends: Ints, times: Ints) -> None:
    """Event times in milliseconds: integers as they are, strings by RFC 3339; the smallest int64 where unreadable.

    A fraction is cut to milliseconds (the instant's floor), a leap second counts as the last millisecond of its day.
    """
    unreadable = np.int64(-0x7FFFFFFFFFFFFFFF - 1)
    for i in range(kinds.size):
        if i + AHEAD < kinds.size:
            prefetch_read(data, starts[U(i + AHEAD)])
        times[i] = unreadable
        p = starts[i]
        size = ends[i] - p
        if kinds[i] == 3:
            if 9 <= size <= 16 and data[U(p)] != 45:  # the first eight digits, and the rest behind zeros
                rest = word_at(data, p + size - 8) & (U(0x0F0F0F0F0F0F0F0F) << U(8 * (16 - size)))
                times[i] = _eight_digits(word_at(data, p)) * POWERS[U(size - 8)] + _eight_digits(rest)
                continue
            text = data[p : p + size]
            negative = text[0] == 45
            first = 1 if negative else 0
            if size - first > 19:
                continue
            magnitude = np.uint64(0)
            for j in range(first, size):
                magnitude = magnitude * np.uint64(10) + np.uint64(text[j] - 48)
            if magnitude < np.uint64(1 << 63):
                value = np.int64(magnitude)
                times[i] = -value if negative else value
            continue
        if kinds[i] != 2 or size < 20:
            continue
        text = data[p : p + size]
        good = (
            text[4] == 45
            and text[7] == 45
            and (text[10] == 84 or text[10] == 116 or text[10] == 32)
            and text[13] == 58
            and text[16] == 58
        )
        for j in range(19):
            if j not in (4, 7, 10, 13, 16) and not 48 <= text[j] <= 57:
                good = False
        if not good:
            continue
        year = (
            (np.int64(text[0]) - 48) * 1000
            + (np.int64(text[1]) - 48) * 100
            + (np.int64(text[2]) - 48) * 10
            + (np.int64(text[3]) - 48)
        )
        month = (np.int64(text[5]) - 48) * 10 + np.int64(text[6]) - 48
        day = (np.int64(text[8]) - 48) * 10 + np.int64(text[9]) - 48
        hour = (np.int64(text[11]) - 48) * 10 + np.int64(text[12]) - 48
        minute = (np.int64(text[14]) - 48) * 10 + np.int64(text[15]) - 48
        second = (np.int64(text[17]) - 48) * 10 + np.int64(text[18]) - 48
        if month < 1 or month > 12 or day < 1 or hour > 23 or minute > 59 or second > 60:
            continue
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        last = 31
        if month == 2:
            last = 29 if leap else 28
        elif month in (4, 6, 9, 11):
            last = 30
        if day > last:
            continue
        j = 19
        milliseconds = np.int64(0)
        if text[j] == 46:
            j += 1
            scale = 100
            mark = j
            while j < size and 48 <= text[j] <= 57:
                milliseconds += (np.int64(text[j]) - 48) * scale
                scale //= 10
                j += 1
            if j in (mark, size):
                continue
        shift = np.int64(0)
        if text[j] == 90 or text[j] == 122:
            if size != j + 1:
                continue
        elif text[j] == 43 or text[j] == 45:
            if size != j + 6 or text[j + 3] != 58:
                continue
            good = True
            for m in range(1, 6):
                if m != 3 and not 48 <= text[j + m] <= 57:
                    good = False
            if not good:
                continue
            hours = (np.int64(text[j + 1]) - 48) * 10 + np.int64(text[j + 2]) - 48
            minutes = (np.int64(text[j + 4]) - 48) * 10 + np.int64(text[j + 5]) - 48
            if hours > 23 or minutes > 59:
                continue
            shift = (hours * 60 + minutes) * (-1 if text[j] == 45 else 1)
        else:
            continue
        # days from the civil date: years begin in March, eras of 400 years have 146097 days (Hinnant 2013)
        y = year - (1 if month <= 2 else 0)
        era = y // 400
        of_era = y - era * 400
        of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
        days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
        in_minutes = days * 1440 + hour * 60 + minute - shift
        if second == 60:
            if in_minutes % 1440 != 1439:
                continue
            second = np.int64(59)
            milliseconds = np.int64(999)
        times[i] = in_minutes * 60000 + second * 1000 + milliseconds
