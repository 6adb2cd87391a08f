"""The compiled loops of items and counters: hashing, routing to slots, updates, histograms.

In: plain arrays and numbers, checked by the callers. Out: arrays filled in place. Touches: nothing else.
Source: Aumasson & Bernstein 2012 (SipHash); Datar & Muthukrishnan 2002 (domain sampling).

A block of items is turned into slot numbers in scratch first and added to the state afterwards, with prefetch: the
misses of the second loop then overlap (the naive loop is up to 17 times slower). Loops index slices, never `x[s + j]`:
numba's support for negative indices would turn the latter into a gather. Kernels that call each other live in this
one file, because numba's disk cache notices an edit of a function's own file only. Little-endian machines only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from sketchstream.kernels.door import kernel

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.integer[Any]]

BLOCK = 8192
AHEAD = 128
"""Distance of the prefetch in items; below 64 it hurts."""

NOWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Slot of an item that the domain does not contain."""
UNSAMPLED = np.uint64(0xFFFFFFFFFFFFFFFE)
"""Slot of an item that the domain contains and its sample does not."""

HASHED, IDS, RANKED, LISTED, NEVER = range(5)
"""How items find their slots: by hash alone, as ids, as ids of a subset, in a table, not at all."""

ERROR, SKIP, NOOP = range(3)
"""What an invalid event does: stops the batch; is left out if only its item is bad; is left out."""


def _intrinsic(function: Any) -> Any:
    """A function that writes its own machine code; called inside kernels with one argument less."""
    return intrinsic(function)


_get_or_insert: Any = cgutils.get_or_insert_function


@_intrinsic
def _prefetch(typingctx: Any, array: Any, position: Any) -> Any:
    """Ask for the cache line of array[position], to be written."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.gep(view.data, [args[1]])
        byte_pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        declared = ir.FunctionType(ir.VoidType(), [byte_pointer.type, word, word, word])
        function = _get_or_insert(builder.module, declared, "llvm.prefetch.p0")
        builder.call(function, [byte_pointer, word(1), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, position), codegen


@_intrinsic
def _load(typingctx: Any, array: Any, position: Any) -> Any:
    """The eight bytes at array[position:position + 8] as one little-endian word; any alignment."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.bitcast(builder.gep(view.data, [args[1]]), ir.IntType(64).as_pointer())
        loaded = builder.load(pointer)
        loaded.align = 1
        return loaded

    return types.uint64(array, position), codegen


@_intrinsic
def _trailing_zeros(typingctx: Any, value: Any) -> Any:
    """Number of zero bits below the lowest one bit; value is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), codegen


class Route(NamedTuple):
    """How items of one type find their slots; one shape for all domains, so that kernels compile once."""

    way: int
    """HASHED, IDS, RANKED, LISTED or NEVER."""
    key0: np.uint64
    key1: np.uint64
    """The two words of the hash key of this item type."""
    per_level: np.uint64
    """Slots of one level (HASHED)."""
    last_level: np.uint64
    """Number of the last level (HASHED)."""
    size: np.uint64
    """Ids are below this (IDS, RANKED)."""
    words: U64
    """(ceil(size/64), 3): which ids have a slot, slots before this word, which ids are valid (RANKED)."""
    table: U64
    """(power of two, 2): hash and position + 1 of a listed item, 0 = free (LISTED)."""
    slots: U64
    """(items,) slot of each listed item (LISTED)."""
    ints: I64
    """Listed ints (LISTED)."""
    buffer: Bytes
    """Listed strings, end to end (LISTED)."""
    starts: I64
    ends: I64


_ONE = np.uint64(1)
_TWO = np.uint64(2)
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_V0 = np.uint64(0x736F6D6570736575)
_V1 = np.uint64(0x646F72616E646F6D)
_V2 = np.uint64(0x6C7967656E657261)
_V3 = np.uint64(0x7465646279746573)
_FF = np.uint64(0xFF)
_63 = np.uint64(63)
_6 = np.uint64(6)


@kernel
def _sip_round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    """One SipRound."""
    v0 = v0 + v1
    v1 = (v1 << np.uint64(13)) | (v1 >> np.uint64(51))
    v1 = v1 ^ v0
    v0 = (v0 << np.uint64(32)) | (v0 >> np.uint64(32))
    v2 = v2 + v3
    v3 = (v3 << np.uint64(16)) | (v3 >> np.uint64(48))
    v3 = v3 ^ v2
    v0 = v0 + v3
    v3 = (v3 << np.uint64(21)) | (v3 >> np.uint64(43))
    v3 = v3 ^ v0
    v2 = v2 + v1
    v1 = (v1 << np.uint64(17)) | (v1 >> np.uint64(47))
    v1 = v1 ^ v2
    v2 = (v2 << np.uint64(32)) | (v2 >> np.uint64(32))
    return v0, v1, v2, v3


@kernel
def hash_ints(items: I64, key0: Any, key1: Any, out: U64) -> None:
    """SipHash-2-4 of each int64 as eight little-endian bytes."""
    n = len(out)
    items = items[:n]
    length = np.uint64(8 << 56)
    for i in range(n):
        word = np.uint64(items[i])
        v0, v1, v2, v3 = key0 ^ _V0, key1 ^ _V1, key0 ^ _V2, key1 ^ _V3 ^ word
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 = v0 ^ word
        v3 = v3 ^ length
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 = v0 ^ length
        v2 = v2 ^ _FF
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        out[i] = v0 ^ v1 ^ v2 ^ v3


@kernel
def _tail(buffer: Bytes, start: Any, end: Any) -> Any:
    """The last word of SipHash: the bytes after the last whole word, and the length in the top byte."""
    length = end - start
    rest = length & 7
    word = np.uint64(length) << np.uint64(56)
    if rest > 0:
        if end >= 8:
            word |= _load(buffer, end - 8) >> np.uint64(64 - 8 * rest)
        else:
            piece = buffer[end - rest : end]
            for i in range(rest):
                word |= np.uint64(piece[i]) << np.uint64(8 * i)
    return word


@kernel
def hash_spans(buffer: Bytes, starts: Any, ends: Any, key0: Any, key1: Any, out: U64) -> None:
    """SipHash-2-4 of each buffer[starts[i]:ends[i]]."""
    n = len(out)
    starts = starts[:n]
    ends = ends[:n]
    for i in range(n):
        start = np.int64(starts[i])
        end = np.int64(ends[i])
        v0, v1, v2, v3 = key0 ^ _V0, key1 ^ _V1, key0 ^ _V2, key1 ^ _V3
        for _ in range((end - start) >> 3):
            word = _load(buffer, start)
            start += 8
            v3 = v3 ^ word
            v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
            v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
            v0 = v0 ^ word
        word = _tail(buffer, np.int64(starts[i]), end)
        v3 = v3 ^ word
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 = v0 ^ word
        v2 = v2 ^ _FF
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        out[i] = v0 ^ v1 ^ v2 ^ v3


@kernel
def _spread(hashes: U64, per_level: Any, last_level: Any) -> None:
    """Hash to slot, in place: level = trailing zeros, capped; slot in level = high word of hash * per_level."""
    cap = _ONE << last_level
    low = per_level & _LOW
    high = per_level >> _32
    for i in range(len(hashes)):
        value = hashes[i]
        a = value >> _32
        b = value & _LOW
        middle = a * low + ((b * low) >> _32)
        cross = b * high + (middle & _LOW)
        place = a * high + (middle >> _32) + (cross >> _32)
        hashes[i] = _trailing_zeros(value | cap) * per_level + place


@kernel
def _ones_below(word: Any, bit: Any) -> Any:
    """Number of one bits of word below position bit."""
    word = word & ((_ONE << bit) - _ONE)
    word = word - ((word >> _ONE) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> _TWO) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@kernel
def _rank(items: I64, size: Any, words: U64, out: U64) -> None:
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
        if (row[0] >> bit) & _ONE:
            out[i] = row[1] + _ones_below(row[0], bit)
        elif (row[2] >> bit) & _ONE:
            out[i] = UNSAMPLED
        else:
            out[i] = NOWHERE


@kernel
def _look_up_ints(items: I64, route: Any, out: U64) -> None:
    """Slot of each listed int; `out` holds the hashes."""
    n = len(out)
    items = items[:n]
    table = route.table
    mask = np.uint64(len(table) - 1)
    for i in range(n):
        value = out[i]
        place = value & mask
        found = NOWHERE
        while table[place, 1] != 0:
            if table[place, 0] == value:
                position = table[place, 1] - _ONE
                if route.ints[position] == items[i]:
                    found = route.slots[position]
                    break
            place = (place + _ONE) & mask
        out[i] = found


@kernel
def _look_up_spans(buffer: Bytes, starts: Any, ends: Any, route: Any, out: U64) -> None:
    """Slot of each listed string; `out` holds the hashes."""
    n = len(out)
    starts = starts[:n]
    ends = ends[:n]
    table = route.table
    mask = np.uint64(len(table) - 1)
    for i in range(n):
        value = out[i]
        place = value & mask
        found = NOWHERE
        while table[place, 1] != 0:
            if table[place, 0] == value:
                position = table[place, 1] - _ONE
                one = buffer[starts[i] : ends[i]]
                two = route.buffer[route.starts[position] : route.ends[position]]
                same = len(one) == len(two)
                if same:
                    for j in range(len(one)):
                        if one[j] != two[j]:
                            same = False
                            break
                if same:
                    found = route.slots[position]
                    break
            place = (place + _ONE) & mask
        out[i] = found


@kernel
def locate_ints(items: I64, route: Any, out: U64) -> None:
    """Slot of each int, NOWHERE or UNSAMPLED."""
    if route.way == HASHED:
        hash_ints(items, route.key0, route.key1, out)
        _spread(out, route.per_level, route.last_level)
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
        _spread(out, route.per_level, route.last_level)
    elif route.way == LISTED:
        hash_spans(buffer, starts, ends, route.key0, route.key1, out)
        _look_up_spans(buffer, starts, ends, route, out)
    else:
        out[:] = NOWHERE


@kernel
def count_before(words: U64) -> Any:
    """Fill column 1 with the number of one bits of column 0 in earlier rows; returns their total."""
    total = np.uint64(0)
    for i in range(len(words)):
        words[i, 1] = total
        total += _ones_below(words[i, 0], _63) + (words[i, 0] >> _63)
    return total


@kernel
def fill_table(hashes: U64, table: U64) -> None:
    """Open addressing, linear probing: table[place] = (hash, position + 1)."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(hashes)):
        place = hashes[i] & mask
        while table[place, 1] != 0:
            place = (place + _ONE) & mask
        table[place, 0] = hashes[i]
        table[place, 1] = np.uint64(i + 1)


@kernel
def _add(state: Any, slots: U64, weights: Any, modulus: Any, sign: Any) -> None:
    """state[slots] += sign * weights (empty weights: ones), wrapping, or modulo `modulus` if that is not 0."""
    n = len(slots)
    start = n - AHEAD
    start = max(start, 0)
    ahead = slots[AHEAD:] if n > AHEAD else slots[:0]
    rest = slots[start:]
    if modulus == 0 and len(weights) == 0:
        for i in range(start):
            _prefetch(state, ahead[i])
            state[slots[i]] += sign
        for i in range(len(rest)):
            state[rest[i]] += sign
    elif modulus == 0:
        tail = weights[start:]
        for i in range(start):
            _prefetch(state, ahead[i])
            state[slots[i]] += sign * np.int64(weights[i])
        for i in range(len(rest)):
            state[rest[i]] += sign * np.int64(tail[i])
    else:
        one = sign % modulus
        tail = weights[start:]
        for i in range(n):
            if len(weights) > 0:
                one = sign * (np.int64(weights[i]) % modulus)
                if one < 0:
                    one += modulus
            total = np.int64(state[slots[i]]) + one
            state[slots[i]] = total - modulus if total >= modulus else total


@kernel
def _bad_weights(weights: Any, max_weight: Any) -> Any:
    """Number of weights outside -max_weight..max_weight."""
    bad = 0
    for i in range(len(weights)):
        bad += (np.int64(weights[i]) > max_weight) | (np.int64(weights[i]) < -max_weight)
    return bad


@kernel
def _bad_slots(slots: U64, size: Any) -> Any:
    """Number of slots that are none."""
    bad = 0
    for i in range(len(slots)):
        bad += slots[i] >= size
    return bad


@kernel
def _add_block(
    state: Any, slots: U64, weights: Any, scratch: Any, max_weight: Any, modulus: Any, sign: Any, mode: Any
) -> Any:
    """Add one located block; false, with nothing added, if it holds an invalid event and the mode is to stop."""
    size = np.uint64(len(state))
    bad_slots = _bad_slots(slots, size)
    bad_weights = _bad_weights(weights, max_weight) if max_weight > 0 else 0
    if bad_slots == 0 and bad_weights == 0:
        _add(state, slots, weights, modulus, sign)
        return True
    if mode == ERROR:
        for i in range(len(slots)):
            if slots[i] == NOWHERE:
                return False
    if mode != NOOP and bad_weights > 0:
        return False
    kept = 0
    if len(weights) == 0:
        for i in range(len(slots)):
            slots[kept] = slots[i]
            kept += slots[i] < size
        _add(state, slots[:kept], weights, modulus, sign)
        return True
    for i in range(len(slots)):
        weight = np.int64(weights[i])
        slots[kept] = slots[i]
        scratch[kept] = weights[i]
        kept += (slots[i] < size) and (max_weight == 0 or (-max_weight <= weight <= max_weight))
    _add(state, slots[:kept], scratch[:kept], modulus, sign)
    scratch[:] = 0
    return True


@kernel
def update_ints(
    state: Any, items: I64, weights: Any, route: Any, max_weight: Any, modulus: Any, sign: Any, mode: Any, done: I64
) -> Any:
    """Add a batch of ints, block by block; done[0] counts the events gone by. False: the next block is invalid."""
    n = len(items)
    slots = np.empty(min(n, BLOCK), np.uint64)
    scratch = np.empty(min(len(weights), BLOCK), weights.dtype)
    good = True
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        block = slots[: stop - start]
        locate_ints(items[start:stop], route, block)
        good = _add_block(state, block, weights[start:stop], scratch, max_weight, modulus, sign, mode)
        if not good:
            break
        done[0] += stop - start
    slots[:] = 0
    return good


@kernel
def update_spans(
    state: Any,
    buffer: Bytes,
    starts: Any,
    ends: Any,
    weights: Any,
    route: Any,
    max_weight: Any,
    modulus: Any,
    sign: Any,
    mode: Any,
    done: I64,
) -> Any:
    """As `update_ints`, for strings."""
    n = len(starts)
    slots = np.empty(min(n, BLOCK), np.uint64)
    scratch = np.empty(min(len(weights), BLOCK), weights.dtype)
    good = True
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        block = slots[: stop - start]
        locate_spans(buffer, starts[start:stop], ends[start:stop], route, block)
        good = _add_block(state, block, weights[start:stop], scratch, max_weight, modulus, sign, mode)
        if not good:
            break
        done[0] += stop - start
    slots[:] = 0
    return good
