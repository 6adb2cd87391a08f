"""A compiled scanner that finds a few fields in many JSON texts and leaves unusual texts to orjson.

In: a uint8 buffer, the bounds of each text, the dotted paths. Out: kind and bounds of each field's value, and a flag
for each text that orjson must parse. Touches: nothing else.
Source: RFC 8259 (grammar), RFC 3629 (UTF-8); masks from quote to quote: Langdale and Lemire, "Parsing
gigabytes of JSON per second", VLDB Journal 28 (2019), section 3.1. The reference is orjson, which parses all unusual
texts: invalid ones, escapes in keys or wanted strings, surrogates, numbers that might overflow, deep nesting.
"""

from __future__ import annotations

import numpy as np

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels import kernel
from sketchstream.kernels.machine_code import first_byte, word_at
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
    QUOTATION,
    RIGHT_BRACE,
    SMALL_E,
    SMALL_N,
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
    n_asked = 0
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
            n_asked += 1
    return n_asked + 0 * copy.size  # the copy lives as long as its address is used
