"""A compiled scanner that finds a few fields in many JSON texts and leaves unusual texts to orjson.

In: a uint8 buffer, the bounds of each text, the dotted paths. Out: kind and bounds of each field's value, and a flag
for each text that orjson must parse. Touches: nothing else.
Source: RFC 8259 (grammar), RFC 3629 (UTF-8), RFC 3339 (times); masks from quote to quote: Langdale and Lemire, "Parsing
gigabytes of JSON per second", VLDB Journal 28 (2019), section 3.1. The reference is orjson, which parses all unusual
texts: invalid ones, escapes in keys or wanted strings, surrogates, numbers that might overflow, deep nesting.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels import kernel
from sketchstream.kernels.machine_code import first_byte, prefetch_read, word_at
from sketchstream.kernels.masks import BLOCK
from sketchstream.kernels.texts import is_utf8
from sketchstream.kernels.tokens import (
    ASK,
    COLON,
    COMMA,
    DECIMAL,
    INTEGER,
    LARGE_E,
    LEFT_BRACE,
    LEFT_BRACKET,
    MAX_DEPTH,
    MINUS,
    MISSING,
    NINE,
    NULL,
    OTHER,
    PLUS,
    POINT,
    QUOTATION,
    RIGHT_BRACE,
    SMALL_E,
    SMALL_N,
    SMALL_T,
    SPACE,
    STRING,
    SURE,
    SURE_DIGITS,
    TOMBSTONE,
    UNREAD,
    ZERO,
    U,
    block_masks,
    byte,
    is_odd,
    literal_size,
    next_quote,
    number_end,
    short_number,
    spaces_end,
    string_end,
    text_end,
    value_end,
)

LONG = 63
"""Components of 63 or more bytes share one bit of the set of sizes."""
WORD_BYTES = 8
"""Bytes of a word."""

_Z, _UPPER_T, _UPPER_Z = map(ord, "zTZ")
MAX_SECONDS = 9 * 10**15
"""Seconds whose milliseconds are an int64."""
AHEAD = 16
"""Number of records by which texts of times are prefetched ahead."""
POWERS = np.array([10**n for n in range(9)], dtype=np.uint64)
"""Powers of ten."""


@kernel
def scan_json(
    data: Bytes,
    starts: Ints,
    ends: Ints,
    names: Bytes,
    name_bounds: Ints,
    paths: Ints,
    status: Bytes,
    kinds: Bytes,
    found_start: Ints,
    found_end: Ints,
) -> int:
    """Look every path up in every text.

    The scan goes from quote to quote, by masks of 64 bytes, and compares what is between strings. It may look behind
    the end of a text, but accepts only what closes exactly there. No path leads into an array: they are passed as a
    whole.

    One function on purpose: place, depth, block and its three masks go on from each key to its value and from there to
    the next key. A kernel for keys and one for values would take and return all of them at each call; what is called in
    the inner loop is machine code that is inlined, and kernels for what is rare.

    Args:
        data: the bytes.
        starts: (n,) where each text begins, < 0 where there is none.
        ends: (n,) where it ends.
        names: all components of all paths, one after the other.
        name_bounds: where each component begins, and where the last one ends.
        paths: (k, 2) first component and number of components of each path.
        status: (n,) in and out: texts marked UNREAD are looked at, and marked SURE, ASK or TOMBSTONE.
        kinds: (k, n) out, see `sketchstream.kernels.tokens`.
        found_start: (k, n) out; where a string's inside or a number begins; 0 where a text has nothing at a path.
        found_end: (k, n) out; where they end, likewise.

    Returns:
        The number of texts marked ASK: they are invalid, or nested deeply, or have escapes in a key or in a wanted
        string, or a wanted integer that might be no int64.
    """
    k_paths = paths.shape[0]
    asked = 0
    sizes = U(0)  # bit s: a component has s bytes; bit LONG: or more. Most keys are told from all by that alone
    heads = np.zeros(name_bounds.size, dtype=np.uint64)  # the first eight bytes of each component, as one word
    for j in range(name_bounds.size - 1):
        size = name_bounds[j + 1] - name_bounds[j]
        sizes |= U(1) << U(min(size, LONG))
        for m in range(min(size, WORD_BYTES)):
            heads[j] |= U(names[name_bounds[j] + m]) << U(8 * m)
    reached = np.zeros(k_paths, dtype=np.int64)  # components of each path that lead to where the scan is
    copy = np.zeros(0, dtype=np.uint8)
    for i in range(starts.size):
        if status[i] != UNREAD:
            continue
        p = starts[i]
        for k in range(k_paths):
            kinds[U(k), U(i)] = MISSING
            found_start[U(k), U(i)] = 0
            found_end[U(k), U(i)] = 0
            reached[U(k)] = 0
        if p < 0:
            status[i] = TOMBSTONE
            continue
        text = first_byte(data)
        if ends[i] > data.size - BLOCK:  # a block behind the text cannot be read: scan a copy that has one
            copy = np.zeros(ends[i] - p + BLOCK, dtype=np.uint8)
            copy[: ends[i] - p] = data[p : ends[i]]
            text = first_byte(copy) - U(p)
        # White space around the text is left out here, so that what closes at `end` closes the text.
        end = text_end(text, p, ends[i])
        p = spaces_end(text, p, end)
        begin = p
        depth = 0
        if p >= end:
            p = np.int64(-1)
        elif byte(text, p) != LEFT_BRACE:
            p = value_end(text, p, end)
        else:
            p = spaces_end(text, p + 1, end)
            if byte(text, p) == RIGHT_BRACE:
                p += 1
            else:
                depth = 1
        # Masks of 64 bytes from `block` on. Odd bytes are those since the last look, wide ones those of all the text so
        # far, quotes those that are not yet passed.
        block = begin
        odd, wide, quotes = block_masks(text, block, end, True)
        behind = False  # p is behind a value, not at a key
        key_stop = np.int64(-1)  # where the key at p ends, if `string_end` found it
        while depth > 0:
            slow_key = False
            slow_value = False
            while True:  # no calls of kernels in here: they would take the registers
                if behind:
                    c = byte(text, p)
                    while c == RIGHT_BRACE and depth > 0 and p < end:
                        # Paths that led into the object that ends here lead no further than to where the scan is now.
                        depth -= 1
                        for k in range(k_paths):
                            reached[U(k)] = min(reached[U(k)], max(depth - 1, 0))
                        p += 1
                        c = byte(text, p)
                    if depth == 0:
                        break
                    # White space is skipped, and what follows is looked at again; anything else is left to orjson.
                    if c != COMMA:
                        at = p
                        p = spaces_end(text, p, end)
                        if p == at:
                            break
                        continue
                    p += 1
                    if byte(text, p) <= SPACE:
                        p = spaces_end(text, p, end)
                at = p + 1
                # The end of the key is known if `string_end` read it; else it is the second of the next two quotes.
                stop = key_stop
                key_stop = np.int64(-1)
                if stop < 0:
                    quote, block, odd, wide, quotes = next_quote(text, block, end, odd, wide, quotes, True)
                    # The next quote is not here: something else than a key is, and only orjson may accept it.
                    if quote != p:
                        break
                    stop, block, odd, wide, quotes = next_quote(text, block, end, odd, wide, quotes, False)
                    if stop < 0:
                        break
                    if odd != 0 and is_odd(text, at, stop, block):
                        slow_key = True
                        break
                hits = 0  # bit k: the value is that of path k
                descends = 0  # bit k: path k leads into it
                size = stop - at
                if (sizes >> U(min(size, LONG))) & U(1):
                    # The key's first eight bytes in one word, without what stands behind a shorter key. The word may
                    # reach behind the text, where a block is readable.
                    head = word_at(text + U(at))
                    if size < WORD_BYTES:
                        head &= (U(1) << U(8 * size)) - U(1)
                    for k in range(k_paths):
                        # Only paths whose earlier components led here, and that go as deep.
                        if reached[U(k)] == depth - 1 and depth <= paths[U(k), U(1)]:
                            component = paths[U(k), U(0)] + depth - 1
                            first = name_bounds[U(component)]
                            if name_bounds[U(component + 1)] - first == size and heads[U(component)] == head:
                                same = True
                                for j in range(WORD_BYTES, size):
                                    if names[U(first + j)] != byte(text, at + j):
                                        same = False
                                        break
                                if same:
                                    # Of equal keys the last one counts, as in orjson: what an earlier one gave is
                                    # forgotten.
                                    kinds[U(k), U(i)] = MISSING
                                    if depth == paths[U(k), U(1)]:
                                        hits |= 1 << k
                                    else:
                                        descends |= 1 << k
                p = stop + 1
                if byte(text, p) != COLON:
                    p = spaces_end(text, p, end)
                    if byte(text, p) != COLON:
                        break
                p += 1
                if byte(text, p) <= SPACE:
                    p = spaces_end(text, p, end)
                behind = True
                at = p
                c = byte(text, p)
                if c == QUOTATION:
                    at += 1
                    quote, block, odd, wide, quotes = next_quote(text, block, end, odd, wide, quotes, True)
                    if quote != p:
                        break
                    stop, block, odd, wide, quotes = next_quote(text, block, end, odd, wide, quotes, False)
                    if stop < 0:
                        break
                    if odd != 0 and is_odd(text, at, stop, block):
                        slow_value = True
                        break
                    p = stop + 1
                    kind = STRING
                elif c == MINUS or ZERO <= c <= NINE:
                    stop, whole = short_number(text, p, hits)
                    if stop == 0 or byte(text, stop) == SMALL_E or byte(text, stop) == LARGE_E:
                        slow_value = True
                        break
                    p = stop
                    kind = INTEGER if whole else DECIMAL
                elif c == LEFT_BRACE:
                    p += 1
                    stop = p
                    kind = OTHER
                    if byte(text, p) <= SPACE:
                        p = spaces_end(text, p, end)
                    if byte(text, p) == RIGHT_BRACE:
                        p += 1
                    else:
                        if depth == MAX_DEPTH:
                            break
                        for k in range(k_paths):
                            if (descends >> k) & 1:
                                reached[U(k)] = depth
                        depth += 1
                        behind = False
                elif c == LEFT_BRACKET:
                    slow_value = True
                    break
                else:
                    size = literal_size(text, p)
                    if size == 0:
                        break
                    p += size
                    stop = p
                    kind = NULL if c == SMALL_N else OTHER
                # Bounds are written for wanted values alone; all others are only passed.
                if hits:
                    for k in range(k_paths):
                        if (hits >> k) & 1:
                            kinds[U(k), U(i)] = kind
                            found_start[U(k), U(i)] = at
                            found_end[U(k), U(i)] = stop
            # What the loop above left for a call. Behind it the masks are made anew, from where the call ended.
            if slow_key:
                key_stop, escaped = string_end(text, at, end)
                if key_stop < 0 or escaped:
                    break
                block = key_stop + 1
                behind = False
            elif slow_value:
                if c == QUOTATION:
                    stop, escaped = string_end(text, at, end)
                    if stop < 0 or (escaped and hits != 0):
                        break
                    p = stop + 1
                    kind = STRING
                elif c == LEFT_BRACKET:
                    p = value_end(text, p, end)
                    stop = p
                    kind = OTHER
                else:
                    p, digits = number_end(text, p, end)
                    if hits != 0 and digits > SURE_DIGITS:
                        break
                    stop = p
                    kind = INTEGER if digits > 0 else DECIMAL
                if p < 0:
                    break
                for k in range(k_paths):
                    if (hits >> k) & 1:
                        kinds[U(k), U(i)] = kind
                        found_start[U(k), U(i)] = at
                        found_end[U(k), U(i)] = stop
                block = p
            else:
                break
            odd, more_wide, quotes = block_masks(text, block, end, True)
            wide |= more_wide
        # Everything closed, exactly at the end; else orjson decides. UTF-8 is checked once, where a byte from 128 on
        # was seen.
        good = depth == 0 and p == end
        if good and wide != 0:
            good = is_utf8(text + U(begin), text + U(end), text + U(end))
        if good:
            status[i] = SURE
        else:
            status[i] = ASK
            asked += 1
    return asked + 0 * copy.size  # the copy lives as long as its address is used


@kernel
def _eight_digits(word: Any) -> Any:
    """The number that eight ASCII digits spell, the first one in the lowest byte: pairs, fours, all of them."""
    pairs = ((word & U(0x0F0F0F0F0F0F0F0F)) * U(10 << 8 | 1)) >> U(8)
    fours = ((pairs & U(0x00FF00FF00FF00FF)) * U(100 << 16 | 1)) >> U(16)
    return ((fours & U(0x0000FFFF0000FFFF)) * U(10_000 << 32 | 1)) >> U(32)


@kernel
def read_times(data: Bytes, kinds: Bytes, starts: Ints, ends: Ints, seconds: bool, times: Ints) -> None:
    """Event times in milliseconds: integers as they are, strings by RFC 3339; the smallest int64 where unreadable.

    A fraction is cut to milliseconds (the instant's floor), a leap second counts as the last millisecond of its day.
    With `seconds`, decimals without a sign and an exponent are seconds; else they are unreadable.
    """
    first = first_byte(data)
    unreadable = np.int64(-0x7FFFFFFFFFFFFFFF - 1)
    for i in range(kinds.size):
        if i + AHEAD < kinds.size:
            prefetch_read(data, starts[U(i + AHEAD)])
        times[i] = unreadable
        p = starts[i]
        size = ends[i] - p
        if kinds[i] == INTEGER:
            if 9 <= size <= 16 and data[U(p)] != MINUS:  # the first eight digits, and the rest behind zeros
                rest = word_at(first + U(p + size - 8)) & (U(0x0F0F0F0F0F0F0F0F) << U(8 * (16 - size)))
                times[i] = _eight_digits(word_at(first + U(p))) * POWERS[U(size - 8)] + _eight_digits(rest)
                continue
            text = data[p : p + size]
            negative = text[0] == MINUS
            sign = 1 if negative else 0
            if size - sign > 19:
                continue
            magnitude = np.uint64(0)
            for j in range(sign, size):
                magnitude = magnitude * np.uint64(10) + np.uint64(text[j] - ZERO)
            if magnitude < np.uint64(1 << 63):
                value = np.int64(magnitude)
                times[i] = -value if negative else value
            continue
        if kinds[i] == DECIMAL and seconds:
            at, value, thousandth = p, np.int64(0), 1000
            while at < ends[i] and ZERO <= data[U(at)] <= NINE and value < MAX_SECONDS:
                value = value * 10 + data[U(at)] - ZERO
                at += 1
            if p < at < ends[i] and data[U(at)] == POINT and value < MAX_SECONDS:
                at += 1
                while at < ends[i] and ZERO <= data[U(at)] <= NINE:
                    thousandth //= 10
                    value = value * 10 + data[U(at)] - ZERO if thousandth else value
                    at += 1
                if at == ends[i]:
                    times[i] = value * max(thousandth, 1)
            continue
        if kinds[i] != STRING or size < 20:
            continue
        text = data[p : p + size]
        good = (
            text[4] == MINUS
            and text[7] == MINUS
            and (text[10] == _UPPER_T or text[10] == SMALL_T or text[10] == SPACE)
            and text[13] == COLON
            and text[16] == COLON
        )
        for j in range(19):
            if j not in (4, 7, 10, 13, 16) and not ZERO <= text[j] <= NINE:
                good = False
        if not good:
            continue
        year = (
            (np.int64(text[0]) - ZERO) * 1000
            + (np.int64(text[1]) - ZERO) * 100
            + (np.int64(text[2]) - ZERO) * 10
            + (np.int64(text[3]) - ZERO)
        )
        month = (np.int64(text[5]) - ZERO) * 10 + np.int64(text[6]) - ZERO
        day = (np.int64(text[8]) - ZERO) * 10 + np.int64(text[9]) - ZERO
        hour = (np.int64(text[11]) - ZERO) * 10 + np.int64(text[12]) - ZERO
        minute = (np.int64(text[14]) - ZERO) * 10 + np.int64(text[15]) - ZERO
        second = (np.int64(text[17]) - ZERO) * 10 + np.int64(text[18]) - ZERO
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
        if text[j] == POINT:
            j += 1
            scale = 100
            mark = j
            while j < size and ZERO <= text[j] <= NINE:
                milliseconds += (np.int64(text[j]) - ZERO) * scale
                scale //= 10
                j += 1
            if j in (mark, size):
                continue
        shift = np.int64(0)
        if text[j] == _UPPER_Z or text[j] == _Z:
            if size != j + 1:
                continue
        elif text[j] == PLUS or text[j] == MINUS:
            if size != j + 6 or text[j + 3] != COLON:
                continue
            good = True
            for m in range(1, 6):
                if m != 3 and not ZERO <= text[j + m] <= NINE:
                    good = False
            if not good:
                continue
            hours = (np.int64(text[j + 1]) - ZERO) * 10 + np.int64(text[j + 2]) - ZERO
            minutes = (np.int64(text[j + 4]) - ZERO) * 10 + np.int64(text[j + 5]) - ZERO
            if hours > 23 or minutes > 59:
                continue
            shift = (hours * 60 + minutes) * (-1 if text[j] == MINUS else 1)
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
