"""A compiled scanner that finds a few fields in many JSON texts and leaves unusual texts to orjson.

In: a uint8 buffer, the bounds of each text, the dotted paths. Out: kind and bounds of each field's value, and a flag
for each text that orjson must parse. Touches: nothing else.
Source: RFC 8259 (grammar), RFC 3629 (UTF-8), RFC 3339 (times). The reference is orjson, which parses all unusual texts:
invalid ones, escapes in keys or wanted strings, surrogates, numbers that might overflow, deep nesting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.kernels import kernel, part
from sketchstream.kernels.machine_code import byte_at, first_byte, half_at, prefetch_read, word_at
from sketchstream.kernels.masks import BLOCK, first_bit, odd_mask, quote_mask, wide_mask
from sketchstream.kernels.runs import WIDTH as RUN
from sketchstream.kernels.runs import digit_run, plain_run
from sketchstream.kernels.texts import character_size, is_utf8

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MISSING, NULL, STRING, INTEGER, OTHER, DECIMAL = 0, 1, 2, 3, 4, 5
"""As in `sketchstream.columns`; compiled loops take nothing from files whose edits numba's cache does not notice."""
SURE, ASK, TOMBSTONE, UNREAD = 0, 1, 2, 3
"""What the scanner says of a text. TOMBSTONE: there is none; UNREAD: it has not been looked at."""
U = np.uint64
"""Of an index that is not negative: numba then leaves its support for negative ones out, a third of the time."""

QUOTATION, BACKSLASH, SLASH, COMMA, COLON, POINT, PLUS, MINUS = map(ord, '"\\/,:.+-')
LEFT_BRACE, RIGHT_BRACE, LEFT_BRACKET, RIGHT_BRACKET = map(ord, "{}[]")
SPACE = ord(" ")
SPACES = U(sum(1 << ord(c) for c in " \n\r\t"))
"""One bit for each byte that is white space."""
ZERO, NINE = map(ord, "09")
_A, _B, _E, _F, _L, _N, _R, _S, _T, _U, _Z = map(ord, "abeflnrstuz")
_UPPER_A, _UPPER_E, _UPPER_F, _UPPER_T, _UPPER_Z = map(ord, "AEFTZ")
NULL_TEXT, TRUE_TEXT, FALSE_TEXT = (np.uint32(int.from_bytes(text, "little")) for text in (b"null", b"true", b"fals"))
"""The first four bytes of the literals, as one number."""
WIDE = 0x80
"""Bytes of characters that are not ASCII begin here."""
VALUE, FIRST_VALUE, NEXT, KEY, FIRST_KEY = range(5)
"""What a text may have next: a value, a value or a closing bracket, what follows a value, a key, a key or a closing
brace."""
WALK_DEPTH, MOST_DEPTH = 8, 60
"""Nesting that the walk follows, and that is not left to orjson."""
SURE_DIGITS, MOST_DIGITS = 18, 201
"""Digits of a whole number that is an int64 for sure; a number with so many digits may overflow."""
LONG = 63
"""Components of so many bytes or more share one bit of the set of sizes."""
WORD_BYTES = 8
"""Bytes of a word."""

AHEAD = 16
"""Distance in records at which texts of times are prefetched."""
POWERS = np.array([10**n for n in range(9)], dtype=np.uint64)
"""Powers of ten."""

ALL = U(0xFFFFFFFFFFFFFFFF)


@part
def _byte(text: Any, p: Any) -> Any:
    """A byte of the buffer that begins at an address."""
    return byte_at(text + U(p))


@part
def _ones(count: Any) -> Any:
    """A mask of the first bytes of a block."""
    return ALL if count >= BLOCK else (U(1) << U(count)) - U(1)


@part
def _next_quote(text: Any, block: Any, last: Any, odd: Any, wide: Any, quotes: Any) -> Any:
    """Go on from block to block up to one with a quote; no quotes: there is none before `last`."""
    while quotes == 0:
        block += BLOCK
        if block >= last:
            break
        inside = _ones(last - block)
        odd |= odd_mask(text + U(block)) & inside
        wide |= wide_mask(text + U(block)) & inside
        quotes = quote_mask(text + U(block)) & inside
    return block, odd, wide, quotes


@part
def _literal_size(text: Any, p: Any, end: Any) -> Any:
    """Bytes of null, true or false; 0 if none of them is here."""
    if end - p < 4:
        return 0
    four = half_at(text + U(p))
    if four == NULL_TEXT:
        return 4
    if four == TRUE_TEXT:
        return 4
    return 5 if four == FALSE_TEXT and end - p > 4 and _byte(text, p + 4) == _E else 0


@part
def _short_number(text: Any, p: Any, wanted: Any) -> Any:
    """End of a number without exponent, and whether it is whole.

    The end is 0 if the number has more than 15 digits before or after its point, is malformed, or is a wanted one that
    begins with -0.
    """
    negative = _byte(text, p) == MINUS
    if negative:
        p += 1
    digits = digit_run(text + U(p))
    if digits in (0, RUN) or (_byte(text, p) == ZERO and (digits > 1 or (negative and wanted))):
        return 0, True
    p += digits
    if _byte(text, p) != POINT:
        return p, True
    digits = digit_run(text + U(p + 1))
    if digits in (0, RUN):
        return 0, False
    return p + 1 + digits, False


@part
def _is_space(c: Any) -> Any:
    """White space of JSON."""
    return c <= SPACE and ((SPACES >> U(c)) & U(1)) != 0


@part
def _escape_size(text: Any, p: Any, end: Any) -> Any:
    """Bytes of an escape; 0 if it is invalid or a surrogate."""
    if end - p < 2:
        return 0
    e = _byte(text, p + 1)
    if e != _U:
        return 2 if e in (QUOTATION, BACKSLASH, SLASH, _B, _F, _N, _R, _T) else 0
    if end - p < 6:
        return 0
    point = np.int64(0)
    for j in range(2, 6):
        h = _byte(text, p + j)
        if ZERO <= h <= NINE:
            digit = np.int64(h) - ZERO
        elif _A <= h <= _F:
            digit = np.int64(h) - _A + 10
        elif _UPPER_A <= h <= _UPPER_F:
            digit = np.int64(h) - _UPPER_A + 10
        else:
            return 0
        point = point * 16 + digit
    return 0 if 0xD800 <= point <= 0xDFFF else 6


@part
def _string_end(text: Any, p: Any, end: Any, last_run: Any) -> Any:
    """Position of the quote that ends a string, -1 if the string is invalid, and whether it has escapes."""
    escaped = False
    while p < end:
        if p <= last_run:
            step = plain_run(text + U(p))
            p += step
            if step == RUN:
                continue
            if p >= end:  # the run went on into the next text
                break
        c = _byte(text, p)
        size = np.int64(1)
        if c == QUOTATION:
            return p, escaped
        if c == BACKSLASH:
            escaped = True
            size = _escape_size(text, p, end)
        elif c >= WIDE:
            size = np.int64(character_size(text + U(p), text + U(end)))
        if size == 0 or c < SPACE:
            break
        p += size
    return np.int64(-1), escaped


@part
def _digits_end(text: Any, p: Any, end: Any) -> Any:
    """Position behind the decimal digits that begin here."""
    while p < end and ZERO <= _byte(text, p) <= NINE:
        p += 1
    return p


@part
def _number_end(text: Any, p: Any, end: Any, last_run: Any) -> Any:
    """Position behind a number, -1 if it is malformed or might overflow, and its whole digits; 0: it is not whole.

    A number that is whole and begins with -0 has MOST_DIGITS digits here, for it is no integer.
    """
    negative = _byte(text, p) == MINUS
    if negative:
        p += 1
    first = p
    if p <= last_run:
        p = min(p + digit_run(text + U(p)), end)
    p = _digits_end(text, p, end)
    digits = p - first
    if digits == 0 or digits >= MOST_DIGITS or (digits > 1 and _byte(text, first) == ZERO):
        return -1, 0
    if negative and _byte(text, first) == ZERO:
        digits = MOST_DIGITS
    if p < end and _byte(text, p) == POINT:
        begin = p + 1
        p = _digits_end(text, begin, end)
        if p == begin:
            return -1, 0
        digits = 0
    if p < end and (_byte(text, p) == _E or _byte(text, p) == _UPPER_E):
        p += 1
        if p < end and (_byte(text, p) == PLUS or _byte(text, p) == MINUS):
            p += 1
        begin = p
        p = _digits_end(text, begin, end)
        if p == begin or p - begin > 2:
            return -1, 0
        digits = 0
    return p, digits


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
) -> tuple[int, int]:
    """Look every path up in every text.

    Args:
        data: the bytes.
        starts: (n,) where each text begins, < 0 where there is none.
        ends: (n,) where it ends.
        names: all components of all paths, one after the other.
        name_bounds: where each component begins, and where the last one ends.
        paths: (k, 2) first component and number of components of each path.
        status: (n,) in and out: texts marked UNREAD are looked at, and marked SURE, ASK or TOMBSTONE.
        kinds: (k, n) out, see `sketchstream.columns`.
        found_start: (k, n) out; where a string's inside or a number begins; 0 where a text has nothing at a path.
        found_end: (k, n) out; where they end, likewise.

    Returns:
        The number of texts marked ASK, and of those that were walked through from quote to quote.
    """
    k_paths = paths.shape[0]
    text = first_byte(data)
    last_run = data.size - RUN
    asked = 0
    walked = 0
    sizes = U(0)  # bit s: a component has s bytes; bit LONG: or more. Most keys are told from all by that alone
    heads = np.zeros(name_bounds.size, dtype=np.uint64)  # the first eight bytes of each component, as one word
    for j in range(name_bounds.size - 1):
        size = name_bounds[j + 1] - name_bounds[j]
        sizes |= U(1) << U(min(size, LONG))
        for m in range(min(size, WORD_BYTES)):
            heads[j] |= U(names[name_bounds[j] + m]) << U(8 * m)
    reached = np.zeros(k_paths, dtype=np.int64)  # components of each path that lead to where the scan is
    for i in range(starts.size):
        if status[i] != UNREAD:
            continue
        p = starts[i]
        end = ends[i]
        for k in range(k_paths):
            kinds[U(k), U(i)] = MISSING
            found_start[U(k), U(i)] = 0
            found_end[U(k), U(i)] = 0
            reached[U(k)] = 0
        if p < 0:
            status[i] = TOMBSTONE
            continue
        last = end
        while last > p and _is_space(data[U(last - 1)]):
            last -= 1
        # Texts as most are: objects of strings without escapes, short numbers, literals and objects of such, at most
        # one space after each colon and comma. The walk goes from quote to quote, by masks of 64 bytes. It may look
        # behind the text's end, up to `BLOCK` bytes, but accepts only what closes exactly there. All else, and invalid
        # input are left to the loop below.
        if last - p >= 2 and last <= data.size - BLOCK and data[U(p)] == LEFT_BRACE and data[U(p + 1)] == QUOTATION:
            block = p
            inside = _ones(last - block)
            odd = odd_mask(text + U(block)) & inside
            wide = wide_mask(text + U(block)) & inside
            quotes = quote_mask(text + U(block)) & inside & ~U(3)  # without the first key's, which p is at
            depth = 1
            p += 1
            done = False
            while True:
                begin = p + 1  # a key; p is at its quote
                block, odd, wide, quotes = _next_quote(text, block, last, odd, wide, quotes)
                if quotes == 0 or odd != 0:
                    break
                stop = block + first_bit(quotes)
                quotes &= quotes - U(1)
                hits = 0
                descends = 0
                size = stop - begin
                if (sizes >> U(min(size, LONG))) & U(1):
                    head = word_at(text + U(begin))
                    if size < WORD_BYTES:
                        head &= (U(1) << U(8 * size)) - U(1)
                    for k in range(k_paths):
                        if reached[U(k)] == depth - 1 and depth <= paths[U(k), U(1)]:
                            component = paths[U(k), U(0)] + depth - 1
                            first = name_bounds[U(component)]
                            if name_bounds[U(component + 1)] - first == size and heads[U(component)] == head:
                                same = True
                                for j in range(WORD_BYTES, size):
                                    if names[U(first + j)] != data[U(begin + j)]:
                                        same = False
                                        break
                                if same:
                                    kinds[U(k), U(i)] = MISSING
                                    if depth == paths[U(k), U(1)]:
                                        hits |= 1 << k
                                    else:
                                        descends |= 1 << k
                p = stop + 1
                if data[U(p)] != COLON:
                    break
                p += 1
                if data[U(p)] == SPACE:
                    p += 1
                c = data[U(p)]
                opened = False
                if c == QUOTATION:
                    begin = p + 1
                    block, odd, wide, quotes = _next_quote(text, block, last, odd, wide, quotes)
                    if quotes == 0 or block + first_bit(quotes) != p:
                        break
                    quotes &= quotes - U(1)
                    block, odd, wide, quotes = _next_quote(text, block, last, odd, wide, quotes)
                    if quotes == 0:
                        break
                    stop = block + first_bit(quotes)
                    quotes &= quotes - U(1)
                    p = stop + 1
                    kind = STRING
                elif c == MINUS or ZERO <= c <= NINE:
                    begin = p
                    p, whole = _short_number(text, p, hits)
                    if p == 0:
                        break
                    stop = p
                    kind = INTEGER if whole else DECIMAL
                elif c == LEFT_BRACE:
                    if depth == WALK_DEPTH:
                        break
                    for k in range(k_paths):
                        if (descends >> k) & 1:
                            reached[U(k)] = depth
                    depth += 1
                    p += 1
                    kind = OTHER
                    opened = True
                else:
                    size = _literal_size(text, p, last + BLOCK)
                    if size == 0:
                        break
                    p += size
                    kind = NULL if c == _N else OTHER
                if hits:
                    for k in range(k_paths):
                        if (hits >> k) & 1:
                            kinds[U(k), U(i)] = kind
                            found_start[U(k), U(i)] = begin
                            found_end[U(k), U(i)] = stop
                if not opened:
                    c = data[U(p)]
                    while c == RIGHT_BRACE and depth > 0 and p < last:
                        depth -= 1
                        for k in range(k_paths):
                            reached[U(k)] = min(reached[U(k)], max(depth - 1, 0))
                        p += 1
                        c = data[U(p)]
                    if depth == 0:
                        done = p == last  # everything behind the last quote was compared byte by byte
                        break
                    if c != COMMA:
                        break
                    p += 1
                    if data[U(p)] == SPACE:
                        p += 1
                block, odd, wide, quotes = _next_quote(text, block, last, odd, wide, quotes)
                if quotes == 0 or block + first_bit(quotes) != p:
                    break
                quotes &= quotes - U(1)
            p = starts[i]
            if done and odd == 0 and (wide == 0 or is_utf8(text + U(p), text + U(last), text + U(last_run))):
                status[i] = SURE
                walked += 1
                continue
            for k in range(k_paths):
                kinds[U(k), U(i)] = MISSING
                reached[U(k)] = 0
        depth = 0
        objects = np.int64(0)  # bit d: the container at depth d is an object
        expect = VALUE
        hits = 0
        descends = 0
        good = False
        while True:
            while p < end and _is_space(data[U(p)]):
                p += 1
            if p >= end:
                good = expect == NEXT and depth == 0
                break
            c = data[U(p)]
            if expect == NEXT:
                p += 1
                if depth == 0:
                    break
                inside_object = (objects >> depth) & 1
                if c == COMMA:
                    expect = KEY if inside_object else VALUE
                elif (c == RIGHT_BRACE and inside_object) or (c == RIGHT_BRACKET and not inside_object):
                    depth -= 1
                    for k in range(k_paths):
                        reached[U(k)] = min(reached[U(k)], max(depth - 1, 0))
                else:
                    break
            elif c == QUOTATION:
                begin = p + 1
                stop, escaped = _string_end(text, begin, end, last_run)
                is_key = expect >= KEY
                if stop < 0 or (escaped and (is_key or hits != 0)):
                    break
                p = stop + 1
                if is_key:
                    hits = 0
                    descends = 0
                    size = stop - begin
                    for k in range(k_paths if (sizes >> U(min(size, LONG))) & U(1) else 0):
                        if reached[U(k)] == depth - 1 and depth <= paths[U(k), U(1)]:
                            component = paths[U(k), U(0)] + depth - 1
                            first = name_bounds[U(component)]
                            if name_bounds[U(component + 1)] - first == size:
                                same = True
                                for j in range(size):
                                    if names[U(first + j)] != data[U(begin + j)]:
                                        same = False
                                        break
                                if same:
                                    kinds[U(k), U(i)] = MISSING
                                    if depth == paths[U(k), U(1)]:
                                        hits |= 1 << k
                                    else:
                                        descends |= 1 << k
                    while p < end and _is_space(data[U(p)]):
                        p += 1
                    if p >= end or data[U(p)] != COLON:
                        break
                    p += 1
                    expect = VALUE
                else:
                    for k in range(k_paths if hits else 0):
                        if (hits >> k) & 1:
                            kinds[U(k), U(i)] = STRING
                            found_start[U(k), U(i)] = begin
                            found_end[U(k), U(i)] = stop
                    hits = 0
                    descends = 0
                    expect = NEXT
            elif (expect == FIRST_KEY and c == RIGHT_BRACE) or (expect == FIRST_VALUE and c == RIGHT_BRACKET):
                p += 1
                depth -= 1
                for k in range(k_paths):
                    reached[U(k)] = min(reached[U(k)], max(depth - 1, 0))
                expect = NEXT
            elif expect >= KEY:
                break
            elif c in (LEFT_BRACE, LEFT_BRACKET):
                p += 1
                if depth == MOST_DEPTH:
                    break
                for k in range(k_paths):
                    if (hits >> k) & 1:
                        kinds[U(k), U(i)] = OTHER
                    if c == LEFT_BRACE and (descends >> k) & 1:
                        reached[U(k)] = depth
                hits = 0
                descends = 0
                depth += 1
                if c == LEFT_BRACE:
                    objects |= np.int64(1) << depth
                    expect = FIRST_KEY
                else:
                    objects &= ~(np.int64(1) << depth)
                    expect = FIRST_VALUE
            else:
                begin = p
                kind = OTHER
                if c == MINUS or ZERO <= c <= NINE:
                    p, digits = _number_end(text, p, end, last_run)
                    if p < 0 or (hits and digits > SURE_DIGITS):
                        break
                    kind = INTEGER if digits > 0 else DECIMAL
                else:
                    size = _literal_size(text, p, end)
                    if size == 0:
                        break
                    p += size
                    if c == _N:
                        kind = NULL
                for k in range(k_paths if hits else 0):
                    if (hits >> k) & 1:
                        kinds[U(k), U(i)] = kind
                        found_start[U(k), U(i)] = begin
                        found_end[U(k), U(i)] = p
                hits = 0
                descends = 0
                expect = NEXT
        if good:
            status[i] = SURE
        else:
            status[i] = ASK
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
        if kinds[i] != STRING or size < 20:
            continue
        text = data[p : p + size]
        good = (
            text[4] == MINUS
            and text[7] == MINUS
            and (text[10] == _UPPER_T or text[10] == _T or text[10] == SPACE)
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
