"""Tokens of JSON texts, as parts of compiled loops: strings, numbers, literals, and masks of 64 bytes of a text.

In: the address of a buffer and positions in it, counted in bytes. Out: positions. Touches: nothing else.
Source: RFC 8259 (grammar), RFC 3629 (UTF-8).

A part may read the `BLOCK` bytes behind the end of a text: the caller ensures that they are in memory. Kinds of values
and bytes are named here for all loops, because numba's cache detects an edit in this folder only.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sketchstream.kernels.compilation import kernel, part
from sketchstream.kernels.machine_code import byte_at, half_at, keep_apart, trailing_zeros
from sketchstream.kernels.masks import BLOCK, odd_mask, quote_mask, wide_mask
from sketchstream.kernels.runs import WIDTH as RUN
from sketchstream.kernels.runs import digit_run, plain_run
from sketchstream.kernels.texts import character_size

MISSING: Final = 0
NULL: Final = 1
STRING: Final = 2
INTEGER: Final = 3
OTHER: Final = 4
DECIMAL: Final = 5
"""What was found in a record: no such field, a null, a string, a number without and with a fraction or an exponent; all
else is OTHER."""

SURE, ASK, TOMBSTONE, UNREAD = range(4)
"""What loops say of a text: it was read, or orjson must read it, or there is none, or nobody has looked at it."""

U = np.uint64
"""Type of an index that is never negative: numba then omits the support for negative ones, a third of the time."""
ALL = U(0xFFFFFFFFFFFFFFFF)

QUOTATION, BACKSLASH, _SLASH, COMMA, COLON, POINT, PLUS, MINUS = map(ord, '"\\/,:.+-')
LEFT_BRACE, RIGHT_BRACE, LEFT_BRACKET, RIGHT_BRACKET = map(ord, "{}[]")
SPACE = ord(" ")
_SPACES = U(sum(1 << ord(c) for c in " \n\r\t"))
"""One bit for each byte that is white space."""
ZERO, NINE = map(ord, "09")
SMALL_E, LARGE_E, SMALL_F, SMALL_N, SMALL_T = map(ord, "eEfnt")
_A, _B, _R, _U = map(ord, "abru")
_UPPER_A, _UPPER_F = map(ord, "AF")
_NULL_TEXT, _TRUE_TEXT, _FALSE_TEXT = (
    np.uint32(int.from_bytes(text, "little")) for text in (b"null", b"true", b"fals")
)
"""The first four bytes of the literals, as one number."""
_WIDE = 0x80
"""Bytes of characters that are not ASCII begin here."""
_VALUE, _FIRST_VALUE, _NEXT, _KEY, _FIRST_KEY = range(5)
"""What a text may have next: a value, a value or a closing bracket, what follows a value, a key, a key or a closing
brace."""
MAX_DEPTH = 60
"""Deepest nesting that is read here; texts with deeper nesting are left to orjson."""
SURE_DIGITS, _MAX_DIGITS = 18, 201
"""Most digits of a whole number that surely fits an int64; digits from which on a number may overflow as a float."""


@part
def byte(text: Any, p: Any) -> Any:
    """A byte of the buffer that begins at an address."""
    return byte_at(text + U(p))


@part
def is_space(c: Any) -> Any:
    """White space of JSON."""
    return c <= SPACE and ((_SPACES >> U(c)) & U(1)) != 0


@part
def spaces_end(text: Any, p: Any, end: Any) -> Any:
    """Position of the first byte that is no white space, or the end."""
    while p < end and is_space(byte(text, p)):
        p += 1
    return p


@part
def text_end(text: Any, p: Any, end: Any) -> Any:
    """Position behind the last byte of a text that is no white space."""
    while end > p and is_space(byte(text, end - 1)):
        end -= 1
    return end


@part
def _in_strings(quotes: Any) -> Any:
    """Mask of the bytes from each opening quote up to its closing one, for a block that begins outside of strings."""
    # The xor of all bits up to each: the parity of the quotes so far, which is 1 inside of strings.
    mask = quotes
    for shift in (1, 2, 4, 8, 16, 32):
        mask ^= mask << U(shift)
    return mask


@part
def block_masks(text: Any, block: Any, end: Any, outside: Any) -> Any:
    """Masks of a text's next 64 bytes: odd ones, those from 128 on, and quotes.

    Odd are backslashes and, in strings, control characters. That quotes may be escaped does no harm: a backslash is in
    front of the first one. `outside` says whether the block begins outside of strings.
    """
    # Bytes behind the end can be read and have no bit: they belong to another text, or to none.
    valid = ALL if end - block >= BLOCK else (U(1) << U(max(end - block, 0))) - U(1)
    at = text + U(block)
    odd = odd_mask(at) & valid
    quotes = quote_mask(at) & valid
    if odd != 0:
        odd &= _in_strings(quotes) if outside else ~_in_strings(quotes)
    return odd, wide_mask(at) & valid, quotes


@part
def quoted_block(text: Any, block: Any, end: Any, odd: Any, wide: Any, quotes: Any, outside: Any) -> Any:
    """Go on to a block with quotes, where this one has none: that block, odd and wide bytes so far, its quotes.

    There are no quotes if the text has none.
    """
    while quotes == 0:
        block += BLOCK
        if block >= end:
            break
        more_odd, more_wide, quotes = block_masks(text, block, end, outside)
        odd |= more_odd
        wide |= more_wide
    return block, odd, wide, quotes


@part
def next_quote(text: Any, block: Any, end: Any, odd: Any, wide: Any, quotes: Any, outside: Any) -> Any:
    """Position of the next quote, -1 if there is none; its block, odd and wide bytes so far, the quotes behind it."""
    block, odd, wide, quotes = quoted_block(text, block, end, odd, wide, quotes, outside)
    at = block + np.int64(trailing_zeros(quotes)) if quotes != 0 else np.int64(-1)
    return at, block, odd, wide, quotes & (quotes - U(1))


@part
def is_odd(text: Any, begin: Any, stop: Any, block: Any) -> Any:
    """Whether a string that ends in a block has odd bytes, or began before the block, which is not looked at."""
    return begin < block or ((odd_mask(text + U(block)) & ((U(1) << U(stop - block)) - U(1))) >> U(begin - block)) != 0


@part
def literal_size(text: Any, p: Any) -> Any:
    """Bytes of null, true or false; 0 if none of them is here."""
    four = half_at(text + U(p))
    if four == _NULL_TEXT:
        return 4
    if four == _TRUE_TEXT:
        return 4
    return 5 if four == _FALSE_TEXT and byte(text, p + 4) == SMALL_E else 0


@part
def short_number(text: Any, p: Any, kind: Any) -> Any:
    """End of a number without exponent, and whether it is whole.

    The end is 0 if the number has more than 15 digits before or after its point, is malformed, or is a wanted one that
    begins with -0.
    """
    negative = byte(text, p) == MINUS
    if negative:
        p += 1
    digits = digit_run(text + U(p))
    # A run of RUN digits may go on, and a leading zero must stand alone.
    if digits in (0, RUN) or (byte(text, p) == ZERO and (digits > 1 or (negative and kind))):
        return 0, True
    p += digits
    if byte(text, p) != POINT:
        return p, True
    digits = digit_run(text + U(p + 1))
    if digits in (0, RUN):
        return 0, False
    return p + 1 + digits, False


@part
def _escape_size(text: Any, p: Any, end: Any) -> Any:
    """Bytes of an escape; 0 if it is invalid or a surrogate."""
    if end - p < 2:
        return 0
    e = byte(text, p + 1)
    if e != _U:
        return 2 if e in (QUOTATION, BACKSLASH, _SLASH, _B, SMALL_F, SMALL_N, _R, SMALL_T) else 0
    if end - p < 6:
        return 0
    point = np.int64(0)
    for j in range(2, 6):
        h = byte(text, p + j)
        if ZERO <= h <= NINE:
            digit = np.int64(h) - ZERO
        elif _A <= h <= SMALL_F:
            digit = np.int64(h) - _A + 10
        elif _UPPER_A <= h <= _UPPER_F:
            digit = np.int64(h) - _UPPER_A + 10
        else:
            return 0
        point = point * 16 + digit
    # A surrogate needs its partner, which orjson looks for.
    return 0 if 0xD800 <= point <= 0xDFFF else 6


@kernel
def string_end(text: Any, p: Any, end: Any) -> Any:
    """Position of the quote that ends a string, -1 if the string is invalid, and whether it has escapes."""
    keep_apart()
    escaped = False
    while p < end:
        # Up to RUN bytes that need no look at a time; a shorter run ends at one that does.
        step = plain_run(text + U(p))
        p += step
        if step == RUN:
            continue
        if p >= end:  # the run went on behind the text
            break
        c = byte(text, p)
        size = np.int64(1)
        if c == QUOTATION:
            return p, escaped
        if c == BACKSLASH:
            escaped = True
            size = np.int64(_escape_size(text, p, end))
        elif c >= _WIDE:
            size = np.int64(character_size(text + U(p), text + U(end)))
        if size == 0 or c < SPACE:
            break
        p += size
    return np.int64(-1), escaped


@part
def _digits_end(text: Any, p: Any, end: Any) -> Any:
    """Position behind the decimal digits that begin here."""
    while p < end and ZERO <= byte(text, p) <= NINE:
        p += 1
    return p


@kernel
def number_end(text: Any, p: Any, end: Any) -> Any:
    """Position behind a number, -1 if it is malformed or might overflow, and its whole digits; 0: it is not whole.

    A number that is whole and begins with -0 has _MAX_DIGITS digits here, for it is no integer.
    """
    keep_apart()
    negative = byte(text, p) == MINUS
    if negative:
        p += 1
    first = p
    p = _digits_end(text, p, end)
    digits = p - first
    if digits == 0 or digits >= _MAX_DIGITS or (digits > 1 and byte(text, first) == ZERO):
        return np.int64(-1), np.int64(0)
    if negative and byte(text, first) == ZERO:
        digits = np.int64(_MAX_DIGITS)
    if p < end and byte(text, p) == POINT:
        begin = p + 1
        p = _digits_end(text, begin, end)
        if p == begin:
            return np.int64(-1), np.int64(0)
        digits = np.int64(0)
    if p < end and (byte(text, p) == SMALL_E or byte(text, p) == LARGE_E):
        p += 1
        if p < end and (byte(text, p) == PLUS or byte(text, p) == MINUS):
            p += 1
        begin = p
        p = _digits_end(text, begin, end)
        # 10^(201 + 99) is a double: up to two digits of exponent never overflow here.
        if p == begin or p - begin > 2:
            return np.int64(-1), np.int64(0)
        digits = np.int64(0)
    return p, digits


@kernel
def value_end(text: Any, p: Any, end: Any) -> Any:
    """Position behind a value of any kind, -1 if it is invalid or for orjson to judge."""
    keep_apart()
    # A stack of one bit for each level: MAX_DEPTH is below the 63 bits of a positive word.
    depth = np.int64(0)
    objects = np.int64(0)  # bit d: the container at depth d is an object
    expect = _VALUE
    while True:
        p = spaces_end(text, p, end)
        if p >= end:
            return np.int64(-1)
        c = byte(text, p)
        if expect == _NEXT:
            if c == COMMA:
                p += 1
                expect = _KEY if (objects >> depth) & 1 else _VALUE
                continue
            if c != (RIGHT_BRACE if (objects >> depth) & 1 else RIGHT_BRACKET):
                return np.int64(-1)
            p += 1
            depth -= 1
        elif c == QUOTATION:
            p, _ = string_end(text, p + 1, end)
            if p < 0:
                return p
            p += 1
            if expect >= _KEY:
                p = spaces_end(text, p, end)
                if p >= end or byte(text, p) != COLON:
                    return np.int64(-1)
                p += 1
                expect = _VALUE
                continue
        elif (expect == _FIRST_KEY and c == RIGHT_BRACE) or (expect == _FIRST_VALUE and c == RIGHT_BRACKET):
            p += 1
            depth -= 1
        elif expect >= _KEY:
            return np.int64(-1)
        elif c in (LEFT_BRACE, LEFT_BRACKET):
            p += 1
            if depth == MAX_DEPTH:
                return np.int64(-1)
            depth += 1
            if c == LEFT_BRACE:
                objects |= np.int64(1) << depth
                expect = _FIRST_KEY
            else:
                objects &= ~(np.int64(1) << depth)
                expect = _FIRST_VALUE
            continue
        elif c == MINUS or ZERO <= c <= NINE:
            p, _ = number_end(text, p, end)
            if p < 0:
                return p
        else:
            size = literal_size(text, p)
            if size == 0:
                return np.int64(-1)
            p += size
        if depth == 0:
            return p
        expect = _NEXT
