"""Routes of items to slots: by hash, as ids, by rank among a subset, by a table of listed items.

In: items, a `Route`. Out: slots in place. Touches: nothing else.
Source: Datar & Muthukrishnan 2002 (domain sampling).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels.compilation import cgutils, kernel, typed_intrinsic, types
from sketchstream.kernels.machine_code import (
    GROUP,
    INT64,
    LANES,
    ONE,
    U64,
    VECTOR,
    Between,
    address,
    byte_at,
    constant,
    first_byte,
    lanes_of,
    splat,
    trailing_zeros,
    word_at,
)
from sketchstream.kernels.siphash import Each, hash_ints, hash_spans, hashed_ints

_63 = np.uint64(63)
WORD = np.uint64(8)
"""Bytes of a word."""
NOWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Slot of an item that the domain does not contain."""
UNSAMPLED = np.uint64(0xFFFFFFFFFFFFFFFE)
"""Slot of an item that the domain contains and its sample does not."""
HASHED, IDS, RANKED, LISTED, NEVER = range(5)
"""How items find their slots: by hash alone, as ids, as ids of a subset, in a table, not at all."""


_ZERO = np.uint64(0)
_NO_NUMBERS = np.empty(0, np.int64)


class Route(NamedTuple):
    """Route from items of one type to slots; the same type for all domains, so that kernels compile once.

    Fields that its way does not use are empty.
    """

    way: int
    """HASHED, IDS, RANKED, LISTED or NEVER."""
    key0: np.uint64 = _ZERO
    key1: np.uint64 = _ZERO
    """The two words of the hash key of this item type."""
    per_level: np.uint64 = _ZERO
    """Slots of one level (HASHED)."""
    last_level: np.uint64 = _ZERO
    """Number of the last level (HASHED)."""
    size: np.uint64 = _ZERO
    """Ids are below this (IDS, RANKED)."""
    words: U64 = np.empty((0, 3), np.uint64)
    """(ceil(size/64), 3): which ids have a slot, slots before this word, which ids are valid (RANKED)."""
    table: U64 = np.empty((0, 2), np.uint64)
    """(power of two, 2): hash and position + 1 of a listed item, 0 = free (LISTED)."""
    slots: U64 = np.empty(0, np.uint64)
    """(items,) slot of each listed item (LISTED)."""
    ints: Ints = _NO_NUMBERS
    """Listed ints (LISTED)."""
    buffer: Bytes = np.empty(0, np.uint8)
    """Listed strings, end to end (LISTED)."""
    starts: Ints = _NO_NUMBERS
    ends: Ints = _NO_NUMBERS


def found_slots(
    context: Any, builder: Any, kinds: Any, args: Any, spread: tuple[Any, Any], each: Each, between: Between
) -> None:
    """The slots of a group of items, vector by vector: items, at, key0, key1; spread: per_level, last_level."""
    lanes = ir.FunctionType(VECTOR, [VECTOR, ir.IntType(1)])
    zeros = cgutils.get_or_insert_function(builder.module, lanes, f"llvm.cttz.v{LANES}i64")
    low, half = constant(0xFFFFFFFF), constant(32)
    per_level = builder.and_(splat(builder, spread[0]), low)
    cap = splat(builder, builder.shl(ir.Constant(INT64, 1), spread[1]))

    def place_of(place: int, hashes: Any) -> None:
        # floor(hash * per_level / 2^64) from two products of 32 bits; the lower one is shifted down before the sum.
        upper = builder.mul(builder.lshr(hashes, half), per_level)
        lower = builder.lshr(builder.mul(builder.and_(hashes, low), per_level), half)
        in_level = builder.lshr(builder.add(upper, lower), half)
        level = builder.call(zeros, [builder.or_(hashes, cap), ir.IntType(1)(1)])
        each(place, builder.add(builder.mul(builder.and_(level, low), per_level), in_level))

    hashed_ints(context, builder, kinds, args, place_of, between)


def stored_slots(context: Any, builder: Any, kinds: Any, args: Any, between: Between) -> None:
    """The slots of a group of items: items, at, key0, key1, out, to, per_level, last_level."""

    def store(place: int, slots: Any) -> None:
        position = builder.add(args[5], ir.Constant(INT64, place))
        pointer = address(context, builder, kinds[4], args[4], position)
        builder.store(slots, lanes_of(builder, pointer), align=8)

    found_slots(context, builder, kinds, args, (args[6], args[7]), store, between)


@typed_intrinsic
def slot_group(
    typingctx: Any, items: Any, at: Any, key0: Any, key1: Any, out: Any, to: Any, per_level: Any, last_level: Any
) -> Any:
    """out[to:to + GROUP] = slots of items[at:at + GROUP]; per_level below 2^31, so that no product overflows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        stored_slots(context, builder, signature.args, args, iter(()))
        return context.get_dummy_value()

    return types.void(items, at, key0, key1, out, to, per_level, last_level), codegen


_TWO = np.uint64(2)
_6 = np.uint64(6)
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
VECTOR_LIMIT = np.uint64(1 << 31)


@kernel
def _spread_hashes(hashes: U64, per_level: Any, last_level: Any) -> None:
    """Hash to slot, in place: level = trailing zeros, capped; slot in level = high word of hash * per_level."""
    # A one bit at the last level: trailing zeros end there, also for the hash 0.
    cap = ONE << last_level
    low = per_level & _LOW
    high = per_level >> _32
    for i in range(len(hashes)):
        value = hashes[i]
        # The high word of a product of 128 bits, from four products of 32 bits; none of the sums overflows.
        a = value >> _32
        b = value & _LOW
        middle = a * low + ((b * low) >> _32)
        cross = b * high + (middle & _LOW)
        place = a * high + (middle >> _32) + (cross >> _32)
        hashes[i] = trailing_zeros(value | cap) * per_level + place


@kernel
def _hash_to_slots(items: Ints, route: Any, out: U64) -> None:
    """`hash_ints` and `_spread_hashes` in one pass, for levels of fewer than 2^31 slots."""
    n = len(out)
    whole = n - n % GROUP
    for at in range(0, whole, GROUP):
        slot_group(items, at, route.key0, route.key1, out, at, route.per_level, route.last_level)
    if whole < n:
        # The last items are filled up to a group, so that one loop serves all; what they leave is overwritten.
        last = np.zeros(GROUP, np.int64)
        group_slots = np.empty(GROUP, np.uint64)
        last[: n - whole] = items[whole:n]
        slot_group(last, 0, route.key0, route.key1, group_slots, 0, route.per_level, route.last_level)
        out[whole:] = group_slots[: n - whole]
        last[:] = 0
        group_slots[:] = 0


@kernel
def _ones_below(word: Any, bit: Any) -> Any:
    """Number of one bits of word below position bit."""
    word = word & ((ONE << bit) - ONE)
    # Bits are added in pairs, in fours, in bytes; the product adds the bytes up in its highest one.
    word = word - ((word >> ONE) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> _TWO) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@kernel
def count_before(words: U64) -> Any:
    """Fill column 1 with the number of one bits of column 0 in earlier rows; returns their total."""
    total = np.uint64(0)
    for i in range(len(words)):
        words[i, 1] = total
        total += _ones_below(words[i, 0], _63) + (words[i, 0] >> _63)
    return total


@kernel
def _rank(items: Ints, size: Any, words: U64, out: U64) -> None:
    """Slot of each id among those of a subset."""
    n = len(out)
    items = items[:n]
    for i in range(n):
        value = np.uint64(items[i])
        if value >= size:
            out[i] = NOWHERE
            continue
        row = words[value >> _6]
        bit = value & _63
        # Columns: ids with a slot; how many of them lie in the words before; all ids of the domain.
        if (row[0] >> bit) & ONE:
            out[i] = row[1] + _ones_below(row[0], bit)
        elif (row[2] >> bit) & ONE:
            out[i] = UNSAMPLED
        else:
            out[i] = NOWHERE


@kernel
def fill_table(hashes: U64, table: U64) -> None:
    """Open addressing, linear probing: table[place] = (hash, position + 1)."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(hashes)):
        place = hashes[i] & mask
        # Never full: the table has at least two places for each item.
        while table[place, 1] != 0:
            place = (place + ONE) & mask
        table[place, 0] = hashes[i]
        table[place, 1] = np.uint64(i + 1)


@kernel
def _look_up_ints(items: Ints, route: Any, out: U64) -> None:
    """Slot of each listed int; `out` holds the hashes."""
    n = len(out)
    items = items[:n]
    table = route.table
    mask = np.uint64(len(table) - 1)
    for i in range(n):
        value = out[i]
        place = value & mask
        slot = NOWHERE
        while table[place, 1] != 0:
            if table[place, 0] == value:
                position = table[place, 1] - ONE
                # Equal hashes are no proof: two items may share one.
                if route.ints[position] == items[i]:
                    slot = route.slots[position]
                    break
            place = (place + ONE) & mask
        out[i] = slot


@kernel
def _look_up_spans(buffer: Bytes, starts: Any, ends: Any, route: Any, out: U64) -> None:
    """Slot of each listed string; `out` holds the hashes."""
    n = len(out)
    starts = starts[:n]
    ends = ends[:n]
    table = route.table
    first, listed = first_byte(buffer), first_byte(route.buffer)
    mask = np.uint64(len(table) - 1)
    for i in range(n):
        value = out[i]
        place = value & mask
        slot = NOWHERE
        while table[place, 1] != 0:
            if table[place, 0] == value:
                position = table[place, 1] - ONE
                here = first + np.uint64(starts[i])
                length = np.uint64(ends[i]) - np.uint64(starts[i])
                stored = listed + np.uint64(route.starts[position])
                same = np.uint64(route.ends[position]) - np.uint64(route.starts[position]) == length
                while same and length >= WORD:  # from the end, where names differ most
                    length -= WORD
                    same = word_at(here + length) == word_at(stored + length)
                while same and length > 0:
                    length -= ONE
                    same = byte_at(here + length) == byte_at(stored + length)
                if same:
                    slot = route.slots[position]
                    break
            place = (place + ONE) & mask
        out[i] = slot


@kernel
def locate_ints(items: Ints, route: Any, out: U64) -> None:
    """Slot of each int, NOWHERE or UNSAMPLED."""
    if route.way == HASHED and route.per_level < VECTOR_LIMIT:
        _hash_to_slots(items, route, out)
    elif route.way == HASHED:
        hash_ints(items, route.key0, route.key1, out)
        _spread_hashes(out, route.per_level, route.last_level)
    elif route.way == IDS:
        n = len(out)
        items = items[:n]
        size = route.size
        for i in range(n):
            value = np.uint64(items[i])
            out[i] = value if value < size else NOWHERE
    elif route.way == RANKED:
        _rank(items, route.size, route.words, out)
    elif route.way == LISTED:
        hash_ints(items, route.key0, route.key1, out)
        _look_up_ints(items, route, out)
    else:
        out[:] = NOWHERE


@kernel
def locate_spans(buffer: Bytes, starts: Any, ends: Any, route: Any, out: U64) -> None:
    """Slot of each string, NOWHERE or UNSAMPLED."""
    if route.way == HASHED:
        hash_spans(buffer, starts, ends, route.key0, route.key1, out)
        _spread_hashes(out, route.per_level, route.last_level)
    elif route.way == LISTED:
        hash_spans(buffer, starts, ends, route.key0, route.key1, out)
        _look_up_spans(buffer, starts, ends, route, out)
    else:
        out[:] = NOWHERE
