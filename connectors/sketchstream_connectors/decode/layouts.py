"""Finds fields in JSON texts that differ from a sample in their values alone.

In: a uint8 buffer, the bounds of texts, and what `scan_json` found in one of them. Out: this too for the
texts that follow its layout. Touches: nothing else.
Source: RFC 8259 (grammar).

What programs write has its keys in one order. The bytes between two values are then the same in every text: they are
compared as they are, and only values are read. Strings without escapes, numbers without exponents, true, false and null
may stand in for each other; everything else between them is part of the layout, so arrays must keep their lengths.
A text that follows the layout of a valid text is valid. All others are left to `scan_json`, at the cost of looking.
Texts whose values are also as long as those of another one are told by that, while at least half of them are
(`sketchstream.kernels.shapes`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchstream.array_types import Bytes, Flags, Ints
from sketchstream.kernels import check_utf8, kernel
from sketchstream.kernels.machine_code import first_byte, trailing_zeros
from sketchstream.kernels.masks import BLOCK, differ_half
from sketchstream.kernels.shapes import (
    COLUMNS,
    END,
    KIND,
    LENGTH,
    SHAPED_BYTES,
    START,
    WAIT,
    has_shape,
    judge_shape,
    take_shape,
)
from sketchstream.kernels.tokens import (
    BACKSLASH,
    COLON,
    DECIMAL,
    INTEGER,
    LARGE_E,
    MINUS,
    MISSING,
    NINE,
    NULL,
    OTHER,
    POINT,
    QUOTATION,
    SMALL_E,
    SMALL_F,
    SMALL_N,
    SMALL_T,
    SPACE,
    STRING,
    SURE,
    UNREAD,
    ZERO,
    U,
    block_masks,
    byte,
    is_space,
    literal_size,
    quoted_block,
    short_number,
    spaces_end,
    text_end,
)
from sketchstream_connectors.decode.json_scanner import scan_json

BYTES_AT_ONCE = BLOCK // 2
"""Bytes of a layout that are compared at once; each part of a layout begins at a multiple of this."""
MAX_SLOTS, MAX_BYTES = 128, 8192
"""Most values of a layout, and most bytes between them, filled up to steps."""

WIDE = 4
"""Status of a text that follows a layout, but whose UTF-8 is still to be checked."""
WORTH = 1024
"""Fewest texts that are worth the call."""
LAYOUTS = 4
"""Most layouts that are kept at a time."""
TEXTS_AT_ONCE = 512
"""Texts that are compared with one layout before the next layout's turn, because they stay in the cache."""
SHARE = 5
"""At least one of 5 texts that are compared with a layout must follow it."""
STATE = 6
"""Numbers of a search's state, kept from one wanted layout to the next."""
MAX_PAUSE = 10
"""At most 2^MAX_PAUSE blocks pass without an attempt to find a layout."""
STRIDE = 61
"""Texts between the place of a failed attempt in its block and the place of the next attempt in a later block."""
MIN_UNMATCHED = 32
"""Fewest unmatched texts that are worth a new layout, and the number that it is tried with."""


@kernel
def learn(
    data: Bytes,
    start: int,
    end: int,
    kinds: Bytes,
    found_start: Ints,
    parts: Bytes,
    bounds: Ints,
    slots: Ints,
    missing: Flags,
) -> int:
    """Take the layout of a valid text.

    Args:
        data: the bytes.
        start: start of the text.
        end: end of the text.
        kinds: (k,) what `scan_json` found in it.
        found_start: (k,) likewise.
        parts: (MAX_BYTES,) out: the bytes before, between and behind values.
        bounds: (MAX_SLOTS + 1, 2) out: where each part begins in `parts`, and its length.
        slots: (MAX_SLOTS,) out: the path that each value belongs to, -1 for none.
        missing: (k,) out: paths that have no value.

    Returns:
        The number of values; -1 where texts like this one cannot be followed.
    """
    text = first_byte(data)
    last = text_end(text, start, end)
    for k in range(kinds.size):
        missing[k] = kinds[k] == MISSING
        if kinds[k] == NULL or kinds[k] == OTHER:
            return -1
    placed = 0
    n = 0
    filled = 0
    part = 0
    p = start
    bounds[0, 0] = 0
    while p < last:
        c = data[p]
        q = p + 1
        value = True
        if c == QUOTATION:
            # A quotation mark behind a backslash would end this loop early, so texts with one are not followed.
            while q < last and data[q] != QUOTATION:
                if data[q] < SPACE or data[q] == BACKSLASH:
                    return -1
                q += 1
            q += 1
            m = spaces_end(text, q, last)
            # A string before a colon is a key: it belongs to the layout.
            value = m >= last or data[m] != COLON
        elif c == MINUS or ZERO <= c <= NINE:
            # The text is valid, so these bytes are a number: its grammar need not be looked at again.
            while q < last and (ZERO <= data[q] <= NINE or data[q] == POINT):
                q += 1
            if q < last and (data[q] == SMALL_E or data[q] == LARGE_E):
                return -1
        # Likewise the letters behind the first one of true, null and false.
        elif c in (SMALL_T, SMALL_N):
            q = p + 4
        elif c == SMALL_F:
            q = p + 5
        elif c < SPACE and not is_space(c):
            return -1
        else:
            value = False
        if value:
            if n == slots.size or filled + 2 * BYTES_AT_ONCE > parts.size:
                return -1
            slots[n] = -1
            for k in range(kinds.size):
                # `scan_json` gives strings without their quotation marks.
                if kinds[k] != MISSING and found_start[k] == (p + 1 if c == QUOTATION else p):
                    slots[n] = k
                    placed += 1
            bounds[n, 1] = part
            n += 1
            # The next part begins at a step of its own: what a comparison reads behind a part is never the next one.
            filled = (filled + BYTES_AT_ONCE - 1) // BYTES_AT_ONCE * BYTES_AT_ONCE
            bounds[n, 0] = filled
            part = 0
        else:
            # A comparison reads a whole step, so one is left behind the last part.
            if filled + (q - p) > parts.size - BYTES_AT_ONCE:
                return -1
            for m in range(p, q):
                parts[filled] = data[m]
                filled += 1
            part += q - p
        p = q
    bounds[n, 1] = part
    # Each wanted value must be one of the values above: an array or an object is several of them.
    for k in range(kinds.size):
        placed -= 1 if kinds[k] != MISSING else 0
    return n if placed == 0 and n > 0 else -1


@kernel
def follow(texts: Any, first: int, until: int, kept: Any, a: Any, found: Any) -> int:
    """Read those texts that follow a layout.

    Args:
        texts: the bytes; where each text begins, < 0 where there is none; where it ends.
        first: number of the first text that is looked at.
        until: number behind that of the last one.
        kept: layouts, as of `follow_all`.
        a: number of the layout.
        found: out: status, SURE for texts that follow it, WIDE where bytes from 128 on must still be checked; kinds,
            starts and ends of their values, as of `scan_json`. All is unchanged for other texts.

    Returns:
        The number of texts that follow the layout.
    """
    data, starts, ends = texts
    status, kinds, found_start, found_end = found
    parts, bounds, slots, n, missing = kept[0][a], kept[1][a], kept[2][a], kept[3][a], kept[4][a]
    sample, masks, places, known = kept[5][a], kept[6][a], kept[7][a], kept[8][a]
    followed = 0
    shaped = 0
    length = known[LENGTH]
    known[WAIT] -= 1
    wanted = length == 0 and known[WAIT] < 0
    k_paths = kinds.shape[0]
    text = first_byte(data)
    parts_text, sample_text = first_byte(parts), first_byte(sample)
    for i in range(first, until):
        p = starts[i]
        last = ends[i]
        if p < 0 or status[U(i)] != UNREAD:
            continue
        last = text_end(text, p, last)
        # Blocks are read whole: behind the last text that is followed there must be one in the buffer.
        if last > data.size - BLOCK or last <= p:
            continue
        # As long as the sample of a shape: if it is equal outside of the values, and those are as long, all of them lie
        # where the sample has them, and nothing has to be read.
        if last - p == length:
            alike, broad = has_shape(text + U(p), length, sample_text, masks)
            if alike:
                for k in range(k_paths):
                    none = missing[U(k)]
                    kinds[U(k), U(i)] = MISSING if none else places[U(k), U(KIND)]
                    found_start[U(k), U(i)] = 0 if none else p + places[U(k), U(START)]
                    found_end[U(k), U(i)] = 0 if none else p + places[U(k), U(END)]
                status[U(i)] = WIDE if broad else SURE
                shaped += 1
                continue
        block = p
        # One bit a byte: those that no string may have, those from 128 on, quotation marks.
        odd, wide, quotes = block_masks(text, block, last, True)
        slot = 0
        whole = False
        while True:
            size = bounds[U(slot), U(1)]
            if size > last - p:
                break
            at = bounds[U(slot), U(0)]
            # Differences of a part are gathered and looked at once: a branch for each step would cost more.
            other = U(0)
            rest = size
            while rest > BYTES_AT_ONCE:
                other |= differ_half(text + U(p), parts_text + U(at))
                p += BYTES_AT_ONCE
                at += BYTES_AT_ONCE
                rest -= BYTES_AT_ONCE
            other |= differ_half(text + U(p), parts_text + U(at)) & ((U(1) << U(rest)) - U(1))
            p += rest
            # The part behind the last value: the text follows if it ends here, and no string of it had an odd byte.
            if slot == n:
                whole = other == 0 and p == last and odd == 0
                break
            if other != 0 or p >= last:
                break
            path = slots[U(slot)]
            c = byte(text, p)
            begin = p
            if c == QUOTATION:
                begin += 1
                if begin - block >= BLOCK:
                    block = begin
                    more_odd, more_wide, quotes = block_masks(text, block, last, False)
                    odd |= more_odd
                    wide |= more_wide
                # The string ends at the next quotation mark of the mask: its bytes are not looked at one by one.
                ahead = quotes >> U(begin - block)
                stop = begin
                if ahead == 0:
                    block, odd, wide, quotes = quoted_block(text, block, last, odd, wide, ahead, False)
                    if quotes == 0:
                        break
                    ahead = quotes
                    stop = block
                stop += np.int64(trailing_zeros(ahead))
                p = stop + 1
                kind = STRING
            elif c == MINUS or ZERO <= c <= NINE:
                stop, all_digits = short_number(text, p, path >= 0)
                if stop == 0:
                    break
                p = stop
                kind = INTEGER if all_digits else DECIMAL
            else:
                stop = p + literal_size(text, p)
                if stop == p:
                    break
                p = stop
                kind = NULL if c == SMALL_N else OTHER
            # Written although the text may still differ: `scan_json` then writes all of it again.
            if path >= 0:
                kinds[U(path), U(i)] = kind
                found_start[U(path), U(i)] = begin
                found_end[U(path), U(i)] = stop
            slot += 1
        if whole:
            for k in range(k_paths):
                if missing[U(k)]:
                    kinds[U(k), U(i)] = MISSING
                    found_start[U(k), U(i)] = 0
                    found_end[U(k), U(i)] = 0
            status[U(i)] = SURE if wide == 0 else WIDE
            followed += 1
            # The first text that follows is the sample of a shape; whether others are as long, `judge_shape` sees.
            if wanted:
                wanted = False
                length = take_shape(data, starts[i], last, bounds, slots, n, sample, masks, places)
    judge_shape(known, length, shaped, followed)
    return followed + shaped


@kernel
def follow_all(texts: Any, kept: Any, octets: Any, state: Ints, found: Any) -> int:
    """Compare texts with the layouts that are kept, until another one is wanted.

    Args:
        texts: see `follow`.
        kept: (LAYOUTS, MAX_BYTES) parts of each layout; (LAYOUTS, MAX_SLOTS + 1, 2) their bounds;
            (LAYOUTS, MAX_SLOTS) paths of its values; (LAYOUTS,) number of values, -1 for what is none; (LAYOUTS, k)
            paths that have none. All as from `learn`. Then, as from `take_shape`, (LAYOUTS, SHAPED_BYTES) a sample
            of each, its masks and places; and (LAYOUTS, 3) what is known of that shape.
        octets: the bytes of each of them, (LAYOUTS, bytes of one layout): what is moved, whatever it means.
        state: (STATE,) in and out, zeros at first: the text to continue with, layouts kept, attempts that failed one
            after the other, blocks to pass before the next one, texts read, and 1 + the text that the layout behind
            those that are kept has been taken from.
        found: see `follow`; texts marked UNREAD are compared.

    Returns:
        The text whose layout is wanted behind those that are kept; -1 at the end.
    """
    starts, status = texts[1], found[0]
    sizes, known = kept[3], kept[8]
    n = starts.size
    first, count, failed, wait, read, sample = state[0], state[1], state[2], state[3], state[4], state[5] - 1
    while first < n:
        until = min(first + TEXTS_AT_ONCE, n)
        a = np.int64(0)
        fresh = np.int64(-1)
        if sample >= 0:
            a = count
            known[a] = 0
            tried = np.int64(0)
            hits = 0
            # A new layout is tried with the next texts before it is kept: most texts may follow none.
            if sizes[a] > 0:
                upto = sample
                while upto < until and tried < MIN_UNMATCHED:
                    tried += 1 if status[upto] == UNREAD else 0
                    upto += 1
                hits = follow(texts, sample, upto, kept, a, found)
                read += hits
            if hits > 0 and SHARE * hits >= tried:
                failed = 0
                fresh = a
                count += 1
            else:
                # Twice as many blocks pass as after the last failure, so texts without layouts cost next to nothing.
                failed = min(failed + 1, MAX_PAUSE)
                wait = 1 << failed
            sample = np.int64(-1)
        left = 0
        for i in range(first, until):
            left += 1 if status[i] == UNREAD else 0
        while a < count:
            hits = follow(texts, first, until, kept, a, found)
            read += hits
            # What too few follow goes; the last layout takes its place.
            if SHARE * hits < left:
                count -= 1
                # As bytes: the arrays differ in type, and a loop over those would be compiled once for each of them.
                for rows in octets:
                    for j in range(rows.shape[1]):
                        rows[a, j] = rows[count, j]
                if a == fresh:
                    failed = min(failed + 1, MAX_PAUSE)
                    wait = 1 << failed
            else:
                a += 1
            left -= hits
        if left >= MIN_UNMATCHED and count < LAYOUTS and wait <= 0:
            # Another place of the block after each failure: texts at one distance may be of one odd kind.
            i = first + failed * STRIDE % (until - first)
            while i < until and (status[i] != UNREAD or starts[i] < 0):
                i += 1
            if i < until:
                state[0], state[1], state[2], state[3], state[4], state[5] = first, count, failed, wait, read, i + 1
                return int(i)
            failed = min(failed + 1, MAX_PAUSE)
        wait -= 1
        first = np.int64(until)
    state[4] = read
    return -1


def scan_alike(
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
    """Read texts that repeat the layout of others among them; `scan_json` reads the rest.

    Layouts come from texts that followed none. One is kept as long as a fifth of the texts that are compared with it
    follow it; after each that is not, twice as many texts pass before the next one is taken.

    Args:
        data: see `scan_json`, which has the other arguments too.
        starts: starts of the texts.
        ends: ends of the texts.
        names: components of paths.
        name_bounds: where each component begins and ends in `names`.
        paths: components of each path.
        status: in and out; texts marked UNREAD are looked at, and marked SURE if they have been read.
        kinds: out.
        found_start: out.
        found_end: out.

    Returns:
        The number of texts that have been read.
    """
    k = paths.shape[0]
    kept = (
        np.empty((LAYOUTS, MAX_BYTES), dtype=np.uint8),
        np.empty((LAYOUTS, MAX_SLOTS + 1, 2), dtype=np.int64),
        np.empty((LAYOUTS, MAX_SLOTS), dtype=np.int64),
        np.empty(LAYOUTS, dtype=np.int64),
        np.empty((LAYOUTS, k), dtype=np.bool_),
        np.empty((LAYOUTS, SHAPED_BYTES), dtype=np.uint8),
        np.empty((LAYOUTS, SHAPED_BYTES // BLOCK, COLUMNS), dtype=np.uint64),
        np.empty((LAYOUTS, k, 3), dtype=np.int64),
        np.zeros((LAYOUTS, 3), dtype=np.int64),
    )
    octets = tuple(array.reshape(LAYOUTS, -1).view(np.uint8) for array in kept)
    parts, bounds, slots, sizes, missing = kept[:5]
    state = np.zeros(STATE, dtype=np.int64)
    sample = np.empty((k, 1), np.uint8), np.empty((k, 1), np.int64), np.empty((k, 1), np.int64)
    verdict = np.empty(1, dtype=np.uint8)
    while True:
        i = int(follow_all((data, starts, ends), kept, octets, state, (status, kinds, found_start, found_end)))
        if i < 0:
            read: int = state[4].item()
            wide = status == WIDE
            if wide.any():
                whole = wide.copy()
                check_utf8(data, starts, ends, whole)
                status[whole] = SURE
                status[wide & ~whole] = UNREAD
                read -= int(wide.sum() - whole.sum())
            return read
        verdict[0] = UNREAD
        scan_json(data, starts[i : i + 1], ends[i : i + 1], names, name_bounds, paths, verdict, *sample)
        a = int(state[1])
        sizes[a] = -1
        if verdict[0] == SURE:
            found = sample[0].reshape(k), sample[1].reshape(k)
            sizes[a] = learn(data, starts[i], ends[i], *found, parts[a], bounds[a], slots[a], missing[a])
