"""Hashing of items, their routes to slots, and the addition of weights to slots.

In: plain arrays and numbers, checked by the callers. Out: arrays filled in place. Touches: nothing else.
Source: Aumasson & Bernstein 2012 (SipHash); Datar & Muthukrishnan 2002 (domain sampling).

The state is far larger than a cache, so an update is a cache miss, and what counts is how many misses are under way at
once. Hashed ints run through a pipeline: a group is hashed in vector registers while, spread evenly among its
instructions, the slots of the group before it are prefetched and the events LAG items back are added. Spread they must
be: a processor looks some 200 instructions ahead, fewer than the hash of a group has, so that misses asked for in one
burst are over before the next. The batch is prefetched too: beside so many misses the processor's own reading ahead
falls behind. Other items are located block by block into scratch and then added with prefetch. Of two threads each
owns half of the slots and is given every event: to hash an item twice costs less than to hand its slot over, and two
processors never want the same cache line. Loops index slices, never `x[s + j]`: numba's support for negative indices
would turn the latter into a gather; where an index must be computed it is unsigned. Scratch that held items or slots is
cleared. Kernels that call each other live in this one file, because numba's disk cache notices an edit of a function's
own file only. Little-endian machines only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from sketchstream.kernels.door import kernel

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

BLOCK = 8192
"""Items whose weights are checked, or that are located, at a time."""
GROUP = 16
"""Items that are hashed at a time, in vector registers."""
RING = 128
"""Slots in flight in the pipeline; a power of two."""
LAG = 96
"""Items between the hash of one and its addition; fewer do not hide a miss, more leave the first-level cache."""
STREAM = 128
"""Distance at which the batch itself is prefetched; without it the batch is read late, or not ahead at all."""
AHEAD = 128
"""Distance of the prefetch where slots are known already; below 64 it hurts."""
SPANS = 1024
"""Strings that are sorted by length and hashed at a time."""
LONGEST = 9
"""Words of SipHash (8 bytes each, the last one partly filled) of a string that is hashed in vector registers."""
OWNER_BIT = np.uint64(10)
"""Two threads share the slots by this bit: stretches of 1024 slots, so that no cache line has two owners."""
BURST = 8
"""Events that a thread which owns half of the slots adds while it hashes a group."""
QUEUE = 2048
"""Room for the events of such a thread; those in flight move to its start when it is full."""

SLOT_BITS = 33
"""Bits of a slot number in a packed event; its weight is above them."""
_SLOT = np.uint64((1 << SLOT_BITS) - 1)

NOWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Slot of an item that the domain does not contain."""
UNSAMPLED = np.uint64(0xFFFFFFFFFFFFFFFE)
"""Slot of an item that the domain contains and its sample does not."""

HASHED, IDS, RANKED, LISTED, NEVER = range(5)
"""How items find their slots: by hash alone, as ids, as ids of a subset, in a table, not at all."""

ERROR, SKIP, NOOP = range(3)
"""What an invalid event does: stops the batch; is left out if only its item is bad; is left out."""


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


# Machine code that numba has no words for.

_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_LANES = 8
_VECTOR = ir.VectorType(_I64, _LANES)
_TOGETHER = GROUP // _LANES if llvm.get_host_cpu_features().get("avx512f") else 1
"""Vectors whose rounds are interleaved, to hide the latency of each; narrower machines have too few registers."""
_get_or_insert: Any = cgutils.get_or_insert_function
_alloca: Any = cgutils.alloca_once_value


def _intrinsic(function: Any) -> Any:
    """A function that writes its own machine code; called inside kernels with one argument less."""
    return intrinsic(function)


def _address(context: Any, builder: Any, kind: Any, array: Any, position: Any) -> Any:
    """Address of array[position]."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [position])


def _lanes_of(builder: Any, pointer: Any) -> Any:
    """The address of a 64-bit word, as that of a vector of them."""
    return builder.bitcast(pointer, _VECTOR.as_pointer())


def _constant(value: int) -> Any:
    """A vector of one constant."""
    return ir.Constant(_VECTOR, [value] * _LANES)


def _splat(builder: Any, value: Any) -> Any:
    """A vector of one value."""
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_I32, _LANES), [0] * _LANES))


def _start(builder: Any, key0: Any, key1: Any) -> list[Any]:
    """The state of SipHash before the first word, in every lane."""
    low, high = _splat(builder, key0), _splat(builder, key1)
    words = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    return [builder.xor(key, _constant(word)) for key, word in zip((low, high, low, high), words, strict=True)]


_ROUND = (
    *(("add", 0, 1), ("add", 2, 3), ("rotate", 1, 13), ("rotate", 3, 16), ("xor", 1, 0), ("xor", 3, 2)),
    *(("rotate", 0, 32), ("add", 2, 1), ("add", 0, 3), ("rotate", 1, 17), ("rotate", 3, 21)),
    *(("xor", 1, 2), ("xor", 3, 0), ("rotate", 2, 32)),
)
"""SipRound: what to do, to which word, with which word or by how many bits."""


Between = Iterator[None]
"""Writes one piece of other work each time it is asked to."""


def _rounds(builder: Any, states: list[list[Any]], times: int, between: Between) -> None:
    """SipRounds on several states, step by step in turn, with other work in between."""
    rotate = _get_or_insert(builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fshl.v{_LANES}i64")
    for step, to, by in _ROUND * times:
        for v in states:
            if step == "rotate":
                v[to] = builder.call(rotate, [v[to], v[to], _constant(by)])
            else:
                v[to] = (builder.add if step == "add" else builder.xor)(v[to], v[by])
            next(between, None)


def _absorb(builder: Any, states: list[list[Any]], words: list[Any], between: Between) -> None:
    """One word into each state."""
    for v, word in zip(states, words, strict=True):
        v[3] = builder.xor(v[3], word)
    _rounds(builder, states, 2, between)
    for v, word in zip(states, words, strict=True):
        v[0] = builder.xor(v[0], word)


def _finish(builder: Any, states: list[list[Any]], between: Between) -> list[Any]:
    """The hash that each state stands for."""
    for v in states:
        v[2] = builder.xor(v[2], _constant(0xFF))
    _rounds(builder, states, 4, between)
    return [builder.xor(builder.xor(v[0], v[1]), builder.xor(v[2], v[3])) for v in states]


_STEPS = GROUP // _LANES * 8 * len(_ROUND)
"""Steps of the hash of a group, after each of which other work can be done."""


Each = Callable[[int, Any], None]
"""Takes the number of a group's first item of a vector, and the vector."""


def _hashed_ints(context: Any, builder: Any, kinds: Any, args: Any, store: Each, between: Between) -> None:
    """Hash GROUP int64 and hand each vector of hashes to `store(number of its first item, hashes)`."""
    start = _start(builder, args[2], args[3])
    for first in range(0, GROUP, _LANES * _TOGETHER):
        places = range(first, first + _LANES * _TOGETHER, _LANES)
        words = []
        for place in places:
            position = builder.add(args[1], ir.Constant(_I64, place))
            pointer = _lanes_of(builder, _address(context, builder, kinds[0], args[0], position))
            words.append(builder.load(pointer, align=8))
        states = [list(start) for _ in words]
        _absorb(builder, states, words, between)
        _absorb(builder, states, [_constant(8 << 56)] * len(words), between)
        for place, hashes in zip(places, _finish(builder, states, between), strict=True):
            store(place, hashes)


def _found_slots(
    context: Any, builder: Any, kinds: Any, args: Any, spread: tuple[Any, Any], each: Each, between: Between
) -> None:
    """The slots of a group of items, vector by vector: items, at, key0, key1; spread: per_level, last_level."""
    lanes = ir.FunctionType(_VECTOR, [_VECTOR, ir.IntType(1)])
    zeros = _get_or_insert(builder.module, lanes, f"llvm.cttz.v{_LANES}i64")
    low, half = _constant(0xFFFFFFFF), _constant(32)
    per_level = builder.and_(_splat(builder, spread[0]), low)
    cap = _splat(builder, builder.shl(ir.Constant(_I64, 1), spread[1]))

    def place_of(place: int, hashes: Any) -> None:
        upper = builder.mul(builder.lshr(hashes, half), per_level)
        lower = builder.lshr(builder.mul(builder.and_(hashes, low), per_level), half)
        in_level = builder.lshr(builder.add(upper, lower), half)
        level = builder.call(zeros, [builder.or_(hashes, cap), ir.IntType(1)(1)])
        each(place, builder.add(builder.mul(builder.and_(level, low), per_level), in_level))

    _hashed_ints(context, builder, kinds, args, place_of, between)


def _stored_slots(context: Any, builder: Any, kinds: Any, args: Any, between: Between) -> None:
    """The slots of a group of items: items, at, key0, key1, out, to, per_level, last_level."""

    def store(place: int, slots: Any) -> None:
        position = builder.add(args[5], ir.Constant(_I64, place))
        pointer = _address(context, builder, kinds[4], args[4], position)
        builder.store(slots, _lanes_of(builder, pointer), align=8)

    _found_slots(context, builder, kinds, args, (args[6], args[7]), store, between)


@_intrinsic
def _hash_group(typingctx: Any, items: Any, at: Any, key0: Any, key1: Any, out: Any, to: Any) -> Any:
    """out[to:to + GROUP] = hashes of items[at:at + GROUP], int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def store(place: int, hashes: Any) -> None:
            position = builder.add(args[5], ir.Constant(_I64, place))
            pointer = _address(context, builder, signature.args[4], args[4], position)
            builder.store(hashes, _lanes_of(builder, pointer), align=8)

        _hashed_ints(context, builder, signature.args, args, store, iter(()))
        return context.get_dummy_value()

    return types.void(items, at, key0, key1, out, to), codegen


@_intrinsic
def _slot_group(
    typingctx: Any, items: Any, at: Any, key0: Any, key1: Any, out: Any, to: Any, per_level: Any, last_level: Any
) -> Any:
    """out[to:to + GROUP] = slots of items[at:at + GROUP]; per_level below 2^31, so that no product overflows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _stored_slots(context, builder, signature.args, args, iter(()))
        return context.get_dummy_value()

    return types.void(items, at, key0, key1, out, to, per_level, last_level), codegen


def _ask_for(builder: Any, pointer: Any, write: int) -> None:
    """Prefetch the cache line of an address, to be written (1) or read (0)."""
    byte = builder.bitcast(pointer, ir.IntType(8).as_pointer())
    declared = ir.FunctionType(ir.VoidType(), [byte.type, _I32, _I32, _I32])
    function = _get_or_insert(builder.module, declared, "llvm.prefetch.p0")
    builder.call(function, [byte, _I32(write), _I32(3), _I32(1)])


def _ask_ahead(context: Any, builder: Any, kind: Any, array: Any, at: Any, piece: int) -> None:
    """Prefetch the part of a batch's array that lies STREAM items after a group at `at`, in GROUP pieces."""
    if piece * kind.dtype.bitwidth % 512 == 0:
        position = builder.add(at, ir.Constant(_I64, STREAM + piece))
        _ask_for(builder, _address(context, builder, kind, array, position), 0)


def _long(builder: Any, value: Any) -> Any:
    """A signed integer as 64 bits."""
    return value if value.type.width == _I64.width else builder.sext(value, _I64)


def _short(builder: Any, value: Any, kind: Any) -> Any:
    """64 bits cut to an integer type."""
    return value if kind.width == _I64.width else builder.trunc(value, kind)


def _plus(builder: Any, pointer: Any, value: Any) -> None:
    """Add 64 bits to the counter at an address, wrapping."""
    old = builder.load(pointer)
    builder.store(builder.add(old, _short(builder, value, old.type)), pointer)


def _weight_lanes(builder: Any, pointer: Any) -> Any:
    """_LANES weights from an address on, as 64 bits each."""
    kind = ir.VectorType(pointer.type.pointee, _LANES)
    weights = builder.load(builder.bitcast(pointer, kind.as_pointer()), align=kind.element.width // 8)
    return weights if kind.element.width == _I64.width else builder.sext(weights, _VECTOR)


def _bad_lanes(builder: Any, values: Any, max_weight: Any) -> Any:
    """One bit for each of _LANES weights that is outside -max_weight..max_weight."""
    limit = _splat(builder, max_weight)
    shifted = builder.add(values, limit)
    return builder.bitcast(builder.icmp_unsigned(">", shifted, builder.add(limit, limit)), ir.IntType(_LANES))


def _sum_lanes(builder: Any, sums: Any, values: Any) -> None:
    """Add a vector to the _LANES running sums at an address."""
    pointer = _lanes_of(builder, sums)
    builder.store(builder.add(builder.load(pointer, align=8), values), pointer, align=8)


@_intrinsic
def _pass_group(
    typingctx: Any,
    items: Any,
    at: Any,
    key0: Any,
    key1: Any,
    ring: Any,
    to: Any,
    per_level: Any,
    last_level: Any,
    asked: Any,
    first: Any,
    state: Any,
    weights: Any,
    max_weight: Any,
    sign: Any,
    sums: Any,
) -> Any:
    """One step of the pipeline: hash a group, and meanwhile ask for the slots of another and add a third.

    As `_slot_group` into ring[to:to + GROUP]; prefetches the slots ring[asked:asked + GROUP]; then
    state[ring[first + i]] += sign * weights[at - LAG + i], wrapping (weights None: sign). Adds weights[at:at + GROUP]
    to the running sums, sums[:_LANES]. Returns how many of these are outside -max_weight..max_weight, as bits: 0 if
    none is.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        slots = context.make_array(kinds[4])(context, builder, args[4]).data
        counters = context.make_array(kinds[10])(context, builder, args[10]).data
        weighted = isinstance(kinds[11], types.Array)
        if weighted:
            begin = builder.sub(args[1], ir.Constant(_I64, LAG))
            values = _address(context, builder, kinds[11], args[11], begin)

        def counter(group: Any, i: int) -> Any:
            position = builder.add(group, ir.Constant(_I64, i))
            return builder.gep(counters, [builder.load(builder.gep(slots, [position]))])

        def work() -> Between:
            for piece in range(2 * GROUP):
                i = piece // 2
                if piece % 2 == 0:
                    _ask_for(builder, counter(args[8], i), 1)
                    _ask_ahead(context, builder, kinds[0], args[0], args[1], i)
                else:
                    weight = args[13]
                    if weighted:
                        _ask_ahead(context, builder, kinds[11], args[11], args[1], i)
                        value = builder.load(builder.gep(values, [ir.Constant(_I64, i)]))
                        weight = builder.mul(_long(builder, value), weight)
                    pointer = counter(args[9], i)
                    _plus(builder, pointer, weight)
                for _ in range(_STEPS // (2 * GROUP)):
                    yield

        _stored_slots(context, builder, kinds, args, work())
        bad = ir.Constant(ir.IntType(_LANES), 0)
        if weighted:
            running = context.make_array(kinds[14])(context, builder, args[14]).data
            for place in range(0, GROUP, _LANES):
                position = builder.add(args[1], ir.Constant(_I64, place))
                lanes = _weight_lanes(builder, _address(context, builder, kinds[11], args[11], position))
                bad = builder.or_(bad, _bad_lanes(builder, lanes, args[12]))
                _sum_lanes(builder, running, lanes)
        return builder.zext(bad, _I64)

    return types.int64(
        items, at, key0, key1, ring, to, per_level, last_level, asked, first, state, weights, max_weight, sign, sums
    ), codegen


def _moved_up(builder: Any, events: Any, wanted: Any, pointer: Any) -> Any:
    """Store the wanted lanes of a vector side by side from an address on (all _LANES are written); their number."""
    if _TOGETHER > 1:
        kind = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR, wanted.type])
        compress = _get_or_insert(builder.module, kind, f"llvm.x86.avx512.mask.compress.v{_LANES}i64")
        builder.store(builder.call(compress, [events, events, wanted]), _lanes_of(builder, pointer), align=8)
        bits = builder.bitcast(wanted, ir.IntType(_LANES))
        return builder.zext(builder.ctpop(bits), _I64)
    count: Any = ir.Constant(_I64, 0)
    for lane in range(_LANES):
        builder.store(builder.extract_element(events, _I32(lane)), builder.gep(pointer, [count]))
        count = builder.add(count, builder.zext(builder.extract_element(wanted, _I32(lane)), _I64))
    return count


@_intrinsic
def _pass_owned(
    typingctx: Any,
    items: Any,
    at: Any,
    key0: Any,
    key1: Any,
    per_level: Any,
    last_level: Any,
    weights: Any,
    max_weight: Any,
    owner: Any,
    queue: Any,
    came: Any,
    asked: Any,
    first: Any,
    state: Any,
    sign: Any,
    sums: Any,
) -> Any:
    """One step of the pipeline of a thread that owns half of the slots: as `_pass_group`, with fewer additions.

    Hashes items[at:at + GROUP] and puts those of this owner at queue[came:], which needs room for GROUP + _LANES, as
    slot | weight << SLOT_BITS (weights None: 1). Meanwhile asks for the slots of queue[asked:asked + BURST] and adds
    queue[first:first + BURST]; state None: neither. Adds weights[at:at + GROUP] to the running sums. Returns how many
    events it put; NOWHERE: a weight is bad.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        weighted = isinstance(kinds[6], types.Array)
        events = context.make_array(kinds[9])(context, builder, args[9]).data
        bad: Any = ir.Constant(ir.IntType(_LANES), 0)
        count: Any = ir.Constant(_I64, 0)

        def event(burst: Any, i: int) -> Any:
            return builder.load(builder.gep(events, [builder.add(burst, ir.Constant(_I64, i))]))

        def work() -> Between:
            counters = context.make_array(kinds[13])(context, builder, args[13]).data

            def counter(packed: Any) -> Any:
                return builder.gep(counters, [builder.and_(packed, ir.Constant(_I64, int(_SLOT)))])

            for piece in range(2 * BURST):
                i = piece // 2
                if piece % 2 == 0:
                    _ask_for(builder, counter(event(args[11], i)), 1)
                    _ask_ahead(context, builder, kinds[0], args[0], args[1], i * GROUP // BURST)
                    if weighted:
                        _ask_ahead(context, builder, kinds[6], args[6], args[1], i * GROUP // BURST)
                else:
                    packed = event(args[12], i)
                    weight = builder.mul(builder.ashr(packed, ir.Constant(_I64, SLOT_BITS)), args[14])
                    _plus(builder, counter(packed), weight)
                for _ in range(_STEPS // (2 * BURST)):
                    yield

        def put(place: int, slots: Any) -> None:
            nonlocal bad, count
            packed = builder.or_(slots, _constant(1 << SLOT_BITS))
            if weighted:
                position = builder.add(args[1], ir.Constant(_I64, place))
                pointer = _address(context, builder, kinds[6], args[6], position)
                values = _weight_lanes(builder, pointer)
                bad = builder.or_(bad, _bad_lanes(builder, values, args[7]))
                _sum_lanes(builder, context.make_array(kinds[15])(context, builder, args[15]).data, values)
                packed = builder.or_(slots, builder.shl(values, _constant(SLOT_BITS)))
            mine = builder.and_(builder.lshr(slots, _constant(int(OWNER_BIT))), _constant(1))
            wanted = builder.icmp_unsigned("==", mine, _splat(builder, args[8]))
            target = builder.gep(events, [builder.add(args[10], count)])
            count = builder.add(count, _moved_up(builder, packed, wanted, target))

        alone = isinstance(kinds[13], types.NoneType)
        _found_slots(context, builder, kinds, args, (args[4], args[5]), put, iter(()) if alone else work())
        none = builder.icmp_unsigned("==", bad, bad.type(0))
        return builder.select(none, count, ir.Constant(_I64, int(NOWHERE)))

    return types.uint64(
        *(items, at, key0, key1, per_level, last_level, weights, max_weight, owner, queue, came, asked, first),
        *(state, sign, sums),
    ), codegen


@_intrinsic
def _hash_words(typingctx: Any, words: Any, at: Any, count: Any, key0: Any, key1: Any, out: Any) -> Any:
    """out[:GROUP] = hashes of GROUP strings of `count` words: word k of string i is words[at + GROUP * k + i]."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = _start(builder, args[3], args[4])
        for first in range(0, GROUP, _LANES * _TOGETHER):
            places = range(first, first + _LANES * _TOGETHER, _LANES)
            kept = [[_alloca(builder, value) for value in start] for _ in places]
            for one in kept:
                for pointer, value in zip(one, start, strict=True):
                    builder.store(value, pointer)
            with cgutils.for_range(builder, args[2]) as loop:
                states = [[builder.load(pointer) for pointer in one] for one in kept]
                row = builder.add(args[1], builder.mul(loop.index, ir.Constant(_I64, GROUP)))
                loaded = []
                for place in places:
                    position = builder.add(row, ir.Constant(_I64, place))
                    pointer = _address(context, builder, signature.args[0], args[0], position)
                    loaded.append(builder.load(_lanes_of(builder, pointer), align=8))
                _absorb(builder, states, loaded, iter(()))
                for one, state in zip(kept, states, strict=True):
                    for pointer, value in zip(one, state, strict=True):
                        builder.store(value, pointer)
            states = [[builder.load(pointer) for pointer in one] for one in kept]
            for place, hashes in zip(places, _finish(builder, states, iter(())), strict=True):
                target = _address(context, builder, signature.args[5], args[5], ir.Constant(_I64, place))
                builder.store(hashes, _lanes_of(builder, target), align=8)
        return context.get_dummy_value()

    return types.void(words, at, count, key0, key1, out), codegen


@_intrinsic
def _prefetch(typingctx: Any, array: Any, position: Any) -> Any:
    """Ask for the cache line of array[position], to be written."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _ask_for(builder, _address(context, builder, signature.args[0], args[0], args[1]), 1)
        return context.get_dummy_value()

    return types.void(array, position), codegen


@_intrinsic
def _first(typingctx: Any, array: Any) -> Any:
    """Address of the first byte of an array. Arrays handed from kernel to kernel cost two atomic counts a call."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(context.make_array(signature.args[0])(context, builder, args[0]).data, _I64)

    return types.uint64(array), codegen


@_intrinsic
def _word(typingctx: Any, address: Any) -> Any:
    """The eight bytes from an address on, as one little-endian word; any alignment."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _I64.as_pointer()), align=1)

    return types.uint64(types.uint64), codegen


@_intrinsic
def _byte(typingctx: Any, address: Any) -> Any:
    """The byte at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(8).as_pointer()), align=1)

    return types.uint8(types.uint64), codegen


@_intrinsic
def _trailing_zeros(typingctx: Any, value: Any) -> Any:
    """Number of zero bits below the lowest one bit; value is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), codegen


# Hashes.

_ONE = np.uint64(1)
_TWO = np.uint64(2)
_6 = np.uint64(6)
_32 = np.uint64(32)
_63 = np.uint64(63)
_LOW = np.uint64(0xFFFFFFFF)
_FF = np.uint64(0xFF)
_V0 = np.uint64(0x736F6D6570736575)
_V1 = np.uint64(0x646F72616E646F6D)
_V2 = np.uint64(0x6C7967656E657261)
_V3 = np.uint64(0x7465646279746573)
_RING_MASK = np.uint64(RING - 1)
_VECTOR_LIMIT = np.uint64(1 << 31)


@kernel
def _aligned(n: Any) -> Any:
    """(n,) uint64 from the start of a cache line: a vector that straddles two is not handed on to the next load."""
    room = np.empty(n + 8, np.uint64)
    skip = np.int64(((~_first(room) + _ONE) & _63) >> np.uint64(3))
    return room[skip : skip + n]


@kernel
def hash_ints(items: I64, key0: Any, key1: Any, out: U64) -> None:
    """SipHash-2-4 of each int64 as eight little-endian bytes."""
    n = len(out)
    whole = n - n % GROUP
    for at in range(0, whole, GROUP):
        _hash_group(items, at, key0, key1, out, at)
    if whole < n:
        last = np.zeros(GROUP, np.int64)
        hashed = _aligned(GROUP)
        last[: n - whole] = items[whole:n]
        _hash_group(last, 0, key0, key1, hashed, 0)
        out[whole:] = hashed[: n - whole]
        last[:] = 0
        hashed[:] = 0


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
def _tail(first: Any, start: Any, end: Any) -> Any:
    """The last word of SipHash: the bytes after the last whole word, and the length in the top byte.

    `first` is the address of the buffer. Nothing outside the buffer is read.
    """
    length = end - start
    rest = length & np.uint64(7)
    word = length << np.uint64(56)
    if rest > 0:
        if end >= 8:
            word |= _word(first + end - np.uint64(8)) >> (np.uint64(64) - (rest << np.uint64(3)))
        else:
            for i in range(rest):
                word |= np.uint64(_byte(first + end - rest + i)) << (i << np.uint64(3))
    return word


@kernel
def _hash_span(first: Any, start: Any, end: Any, key0: Any, key1: Any) -> Any:
    """SipHash-2-4 of the bytes start..end of the buffer at the address `first`."""
    v0, v1, v2, v3 = key0 ^ _V0, key1 ^ _V1, key0 ^ _V2, key1 ^ _V3
    last = _tail(first, start, end)
    at = first + start
    for _ in range((end - start) >> np.uint64(3)):
        word = _word(at)
        at += np.uint64(8)
        v3 = v3 ^ word
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 = v0 ^ word
    v3 = v3 ^ last
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0 = v0 ^ last
    v2 = v2 ^ _FF
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@kernel
def hash_spans(buffer: Bytes, starts: Any, ends: Any, key0: Any, key1: Any, out: U64) -> None:
    """SipHash-2-4 of each buffer[starts[i]:ends[i]]: strings of equal numbers of words side by side."""
    n = len(out)
    if n < 2 * GROUP:
        first = _first(buffer)
        for i in range(n):
            out[i] = _hash_span(first, np.uint64(starts[i]), np.uint64(ends[i]), key0, key1)
        return
    size = min(n, SPANS)
    order = np.empty(size, np.uint64)
    counts = np.empty(LONGEST + 2, np.int64)
    words = _aligned((size + GROUP) * LONGEST)
    hashed = _aligned(GROUP)
    for begin in range(0, n, SPANS):
        end = min(begin + SPANS, n)
        _hash_sorted(
            buffer, starts[begin:end], ends[begin:end], key0, key1, out[begin:end], order, counts, words, hashed
        )
    words[:] = 0
    hashed[:] = 0


@kernel
def _whole_words(start: Any, end: Any) -> Any:
    """Whole words of a string; LONGEST stands for that many or more."""
    return min((np.int64(end) - np.int64(start)) >> 3, LONGEST)


@kernel
def _hash_sorted(
    buffer: Bytes,
    starts: Any,
    ends: Any,
    key0: Any,
    key1: Any,
    out: U64,
    order: U64,
    counts: I64,
    words: U64,
    hashed: U64,
) -> None:
    """At most SPANS strings: sort by number of words, lay the words of a group out lane by lane, hash."""
    n = len(out)
    base = _first(buffer)
    counts[:] = 0
    for i in range(n):
        counts[_whole_words(starts[i], ends[i]) + 1] += 1
    for c in range(LONGEST + 1):
        counts[c + 1] += counts[c]
    for i in range(n):
        c = _whole_words(starts[i], ends[i])
        order[counts[c]] = i
        counts[c] += 1
    begin = 0
    for c in range(LONGEST):
        chosen = order[begin : counts[c]]
        begin = counts[c]
        for i in range(len(chosen)):
            start = np.uint64(starts[chosen[i]])
            end = np.uint64(ends[chosen[i]])
            lane = i & (GROUP - 1)
            at = np.uint64((i - lane) * (c + 1) + lane)
            address = base + start
            for _ in range(c):
                words[at] = _word(address)
                address += np.uint64(8)
                at += np.uint64(GROUP)
            words[at] = _tail(base, start, end)
        for i in range(0, len(chosen), GROUP):
            _hash_words(words, i * (c + 1), c + 1, key0, key1, hashed)
            part = chosen[i : min(i + GROUP, len(chosen))]
            for j in range(len(part)):
                out[part[j]] = hashed[j]
    chosen = order[begin:n]
    for i in range(len(chosen)):
        out[chosen[i]] = _hash_span(base, np.uint64(starts[chosen[i]]), np.uint64(ends[chosen[i]]), key0, key1)


# Slots.


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
def _hash_to_slots(items: I64, route: Any, out: U64) -> None:
    """`hash_ints` and `_spread` in one pass, for levels of fewer than 2^31 slots."""
    n = len(out)
    whole = n - n % GROUP
    for at in range(0, whole, GROUP):
        _slot_group(items, at, route.key0, route.key1, out, at, route.per_level, route.last_level)
    if whole < n:
        last = np.zeros(GROUP, np.int64)
        found = np.empty(GROUP, np.uint64)
        last[: n - whole] = items[whole:n]
        _slot_group(last, 0, route.key0, route.key1, found, 0, route.per_level, route.last_level)
        out[whole:] = found[: n - whole]
        last[:] = 0
        found[:] = 0


@kernel
def _ones_below(word: Any, bit: Any) -> Any:
    """Number of one bits of word below position bit."""
    word = word & ((_ONE << bit) - _ONE)
    word = word - ((word >> _ONE) & np.uint64(0x5555555555555555))
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
                start = np.uint64(starts[i])
                length = np.uint64(ends[i]) - start
                other = np.uint64(route.starts[position])
                same = np.uint64(route.ends[position]) - other == length
                while same and length > 0:
                    length -= _ONE
                    same = buffer[start + length] == route.buffer[other + length]
                if same:
                    found = route.slots[position]
                    break
            place = (place + _ONE) & mask
        out[i] = found


@kernel
def locate_ints(items: I64, route: Any, out: U64) -> None:
    """Slot of each int, NOWHERE or UNSAMPLED."""
    if route.way == HASHED and route.per_level < _VECTOR_LIMIT:
        _hash_to_slots(items, route, out)
    elif route.way == HASHED:
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


# Additions.


@kernel
def _modular(weight: Any, modulus: Any, sign: Any) -> Any:
    """The signed weight modulo `modulus`, any int64 weight."""
    rest = np.int64(weight)
    if rest >= modulus or rest < 0:
        rest = rest + modulus if -modulus <= rest < 0 else rest % modulus
    return modulus - rest if sign < 0 and rest > 0 else rest


@kernel
def _add(state: Any, slots: Any, weights: Any, modulus: Any, sign: Any) -> None:
    """state[slots] += sign * weights (empty weights: ones), wrapping, or modulo `modulus` if that is not 0."""
    n = len(slots)
    early = max(n - AHEAD, 0)
    ahead = slots[n - early :]
    for part in range(2):
        here = slots[:early] if part == 0 else slots[early:]
        many = len(weights) > 0
        values = weights[:early] if part == 0 else weights[early:]
        if modulus == 0 and not many:
            for i in range(len(here)):
                if part == 0:
                    _prefetch(state, ahead[i])
                state[here[i]] += sign
        elif modulus == 0:
            for i in range(len(here)):
                if part == 0:
                    _prefetch(state, ahead[i])
                state[here[i]] += sign * np.int64(values[i])
        else:
            one = _modular(1, modulus, sign)
            for i in range(len(here)):
                if part == 0:
                    _prefetch(state, ahead[i])
                if many:
                    one = _modular(values[i], modulus, sign)
                total = np.int64(state[here[i]]) + one
                state[here[i]] = total - modulus if total >= modulus else total


@kernel
def _add_packed(state: Any, events: U64, sign: Any) -> None:
    """Add events of the form slot | weight << SLOT_BITS, wrapping."""
    for i in range(len(events)):
        state[events[i] & _SLOT] += sign * (np.int64(events[i]) >> SLOT_BITS)


@kernel
def _bad_weights(weights: Any, max_weight: Any) -> Any:
    """Number of weights outside -max_weight..max_weight."""
    bad = 0
    for i in range(len(weights)):
        bad += (np.int64(weights[i]) > max_weight) | (np.int64(weights[i]) < -max_weight)
    return bad


@kernel
def _sum(weights: Any, count: Any) -> Any:
    """Sum of `count` weights, wrapping; no weights: ones."""
    if len(weights) == 0:
        return np.int64(count)
    total = np.int64(0)
    part = weights[:count]
    for i in range(len(part)):
        total += np.int64(part[i])
    return total


@kernel
def _tally(counters: I64, total: Any, count: Any, sign: Any) -> None:
    """Add to the counters beside the slots, those that there are: weights applied, events counted; wrapping."""
    if len(counters) > 0:
        counters[0] += sign * total
    if len(counters) > 1:
        counters[1] += sign * count


@kernel
def _add_hashed(
    state: Any,
    items: I64,
    weights: Any,
    route: Any,
    max_weight: Any,
    modulus: Any,
    sign: Any,
    ring: U64,
) -> Any:
    """The pipeline for hashed ints: adds whole groups, up to the first with a bad weight.

    Returns how many items, and the sum of their weights.
    """
    many = len(weights) > 0
    whole = len(items) - len(items) % GROUP
    sums = np.zeros(_LANES, np.int64)
    seen = np.int64(0)
    added = 0
    for at in range(0, min(LAG, whole), GROUP):
        if many and max_weight > 0 and _bad_weights(weights[at : at + GROUP], max_weight) > 0:
            whole = at
            break
        seen += _sum(weights[at : at + GROUP], GROUP)
        _slot_group(items, at, route.key0, route.key1, ring, at, route.per_level, route.last_level)
        for i in range(np.uint64(at), np.uint64(at + GROUP)):
            _prefetch(state, ring[i])
    for at in range(LAG, whole, GROUP):
        to = np.int64(np.uint64(at) & _RING_MASK)
        asked = np.int64(np.uint64(at - GROUP) & _RING_MASK)
        first = np.int64(np.uint64(added) & _RING_MASK)
        key0, key1, per_level, last_level = route.key0, route.key1, route.per_level, route.last_level
        if modulus > 0:
            bad = _bad_weights(weights[at : at + GROUP], max_weight) if many and max_weight > 0 else 0
            seen += _sum(weights[at : at + GROUP], GROUP)
            _slot_group(items, at, key0, key1, ring, to, per_level, last_level)
            _add(state, ring[first : first + GROUP], weights[added : added + GROUP], modulus, sign)
        elif many:
            bad = _pass_group(
                *(items, at, key0, key1, ring, to, per_level, last_level, asked, first, state),
                *(weights, max_weight, sign, sums),
            )
        else:
            seen += GROUP
            bad = _pass_group(
                *(items, at, key0, key1, ring, to, per_level, last_level, asked, first, state), *(None, 0, sign, sums)
            )
        if modulus > 0:
            for i in range(np.uint64(to), np.uint64(to + GROUP)):
                _prefetch(state, ring[i])
        added += GROUP
        if bad != 0 and max_weight > 0:
            whole = at
            seen -= _sum(weights[at : at + GROUP], GROUP)
            break
    for at in range(added, whole, GROUP):
        first = np.int64(np.uint64(at) & _RING_MASK)
        _add(state, ring[first : first + GROUP], weights[at : at + GROUP], modulus, sign)
    return whole, seen + sums.sum()


@kernel
def _add_owned(
    state: Any, items: I64, weights: Any, route: Any, max_weight: Any, sign: Any, queue: U64, owner: Any
) -> Any:
    """`_add_hashed` of the events whose slots this thread owns; the other thread hashes all of them too.

    The number and the sum that it returns are those of all events.
    """
    many = len(weights) > 0
    whole = len(items) - len(items) % GROUP
    sums = np.zeros(_LANES, np.int64)
    key0, key1, per_level, last_level = route.key0, route.key1, route.per_level, route.last_level
    came: Any = 0
    asked = added = 0
    for at in range(0, whole, GROUP):
        work = came >= asked + BURST and asked >= added + LAG
        if work and many:
            put = _pass_owned(
                *(items, at, key0, key1, per_level, last_level, weights, max_weight, owner),
                *(queue, came, asked, added, state, sign, sums),
            )
        elif work:
            put = _pass_owned(
                *(items, at, key0, key1, per_level, last_level, None, max_weight, owner),
                *(queue, came, asked, added, state, sign, sums),
            )
        elif many:
            put = _pass_owned(
                *(items, at, key0, key1, per_level, last_level, weights, max_weight, owner),
                *(queue, came, 0, 0, None, sign, sums),
            )
        else:
            put = _pass_owned(
                *(items, at, key0, key1, per_level, last_level, None, max_weight, owner),
                *(queue, came, 0, 0, None, sign, sums),
            )
        if work:
            asked += BURST
            added += BURST
        if put == NOWHERE:
            whole = at
            sums[0] -= _sum(weights[at : at + GROUP], GROUP)
            break
        came += np.int64(put)
        while came >= asked + 2 * GROUP:
            for i in range(np.uint64(asked), np.uint64(asked + BURST)):
                _prefetch(state, queue[i] & _SLOT)
            asked += BURST
            if asked > added + LAG:
                _add_packed(state, queue[added : added + BURST], sign)
                added += BURST
        if came > len(queue) - 2 * GROUP:
            for i in range(came - added):
                queue[i] = queue[np.uint64(added + i)]
            came, asked, added = came - added, asked - added, 0
    _add_packed(state, queue[added:came], sign)
    return whole, sums.sum() if many else np.int64(whole)


@kernel
def _keep(slots: U64, weights: Any, scratch: Any, size: Any, max_weight: Any, mode: Any) -> Any:
    """Move the events that have an effect to the front (weights into `scratch`).

    Returns their number; all of them: nothing was moved. -1: an invalid event, and the mode is to stop.
    """
    n = len(slots)
    bad_slots = 0
    for i in range(n):
        bad_slots += slots[i] >= size
    bad_weights = _bad_weights(weights, max_weight) if max_weight > 0 else 0
    if bad_slots == 0 and bad_weights == 0:
        return n
    if mode != NOOP and bad_weights > 0:
        return -1
    if mode == ERROR:
        for i in range(n):
            if slots[i] == NOWHERE:
                return -1
    kept = 0
    if len(weights) == 0:
        for i in range(n):
            slots[kept] = slots[i]
            kept += slots[i] < size
        return kept
    for i in range(n):
        weight = np.int64(weights[i])
        slots[kept] = slots[i]
        scratch[kept] = weights[i]
        kept += (slots[i] < size) and (max_weight == 0 or (-max_weight <= weight <= max_weight))
    return kept


@kernel
def _count_unsampled(slots: U64, weights: Any, max_weight: Any) -> Any:
    """Number of events with a valid weight whose item is in the domain and not in its sample."""
    count = 0
    for i in range(len(slots)):
        count += slots[i] == UNSAMPLED
    if count == 0 or max_weight == 0 or len(weights) == 0:
        return count
    count = 0
    for i in range(len(slots)):
        if slots[i] == UNSAMPLED:
            count += -max_weight <= np.int64(weights[i]) <= max_weight
    return count


@kernel
def _own(slots: U64, weights: Any, scratch: Any, owner: Any) -> Any:
    """Move the events whose slots belong to `owner` to the front (weights into `scratch`); returns their number."""
    kept: Any = 0
    for i in range(len(slots)):
        slots[kept] = slots[i]
        if len(weights) > 0:
            scratch[kept] = weights[i]
        kept += np.int64(((slots[i] >> OWNER_BIT) & _ONE) == owner)
    return kept


@kernel
def _add_block(
    state: Any,
    slots: U64,
    weights: Any,
    scratch: Any,
    max_weight: Any,
    modulus: Any,
    sign: Any,
    mode: Any,
    owner: Any,
    counters: I64,
) -> Any:
    """Add the valid events of a located block, those of one owner or all (None); False: an invalid one, none is added.

    Slots are moved about; `scratch` has room for the weights. An event whose item is in the domain and not in its
    sample is counted and weighs nothing. Of two owners the first adds to the counters, for both.
    """
    part = weights[:]
    passed = _count_unsampled(slots, part, max_weight) if len(counters) > 1 else 0
    kept = _keep(slots, part, scratch, np.uint64(len(state)), max_weight, mode)
    if kept < 0:
        return False
    if kept < len(slots) and len(part) > 0:
        part = scratch[:kept]
    tallied = True
    if owner is not None:
        tallied = owner == 0
    if tallied and len(counters) > 0:
        _tally(counters, _sum(part, kept), kept + passed, sign)
    if owner is not None:
        kept = _own(slots[:kept], part, scratch, np.uint64(owner))
        if len(part) > 0:
            part = scratch[:kept]
    _add(state, slots[:kept], part, modulus, sign)
    return True


@kernel
def update_ints(
    state: Any,
    items: I64,
    weights: Any,
    route: Any,
    max_weight: Any,
    modulus: Any,
    sign: Any,
    mode: Any,
    done: I64,
    owner: Any,
    counters: I64,
) -> Any:
    """Add a batch of ints, run by run; done[0] counts the events gone by. False: the next ones hold an invalid one.

    owner: None; or 0 or 1: only events whose slots this thread owns, of two that are given the same batch.
    counters: (0,), (1,) or (2,) sum of the weights applied, and number of events counted, kept beside the slots.
    """
    n = len(items)
    piped = route.way == HASHED and route.per_level < _VECTOR_LIMIT and weights.flags.c_contiguous
    piped = piped and (owner is None or modulus == 0)
    slots = _aligned(max(min(n, BLOCK), RING, QUEUE))
    scratch = np.empty(min(len(weights), BLOCK), weights.dtype)
    good = True
    start = 0
    while start < n:
        if piped:
            rest, values = items[start:], weights[start:]
            if owner is None:
                passed, seen = _add_hashed(state, rest, values, route, max_weight, modulus, sign, slots[:RING])
                _tally(counters, seen, passed, sign)
            else:
                passed, seen = _add_owned(state, rest, values, route, max_weight, sign, slots[:QUEUE], np.uint64(owner))
                if owner == 0:
                    _tally(counters, seen, passed, sign)
            done[0] += passed
            start += passed
        stop = min(start + BLOCK, n)
        block = slots[: stop - start]
        locate_ints(items[start:stop], route, block)
        good = _add_block(state, block, weights[start:stop], scratch, max_weight, modulus, sign, mode, owner, counters)
        if not good:
            break
        done[0] += stop - start
        start = stop
    slots[:] = 0
    scratch[:] = 0
    return good


@kernel
def update_located(
    state: Any,
    found: U64,
    weights: Any,
    max_weight: Any,
    modulus: Any,
    sign: Any,
    mode: Any,
    done: I64,
    owner: Any,
    counters: I64,
) -> Any:
    """As `update_ints` with an owner, for items that are located already; `found` is left as it is."""
    n = len(found)
    slots = _aligned(min(n, BLOCK))
    scratch = np.empty(min(len(weights), BLOCK), weights.dtype)
    good = True
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        block = slots[: stop - start]
        block[:] = found[start:stop]
        good = _add_block(state, block, weights[start:stop], scratch, max_weight, modulus, sign, mode, owner, counters)
        if not good:
            break
        done[0] += stop - start
    slots[:] = 0
    scratch[:] = 0
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
    owner: Any,
    counters: I64,
) -> Any:
    """As `update_ints`, for strings."""
    n = len(starts)
    slots = _aligned(min(n, BLOCK))
    scratch = np.empty(min(len(weights), BLOCK), weights.dtype)
    good = True
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        block = slots[: stop - start]
        locate_spans(buffer, starts[start:stop], ends[start:stop], route, block)
        good = _add_block(state, block, weights[start:stop], scratch, max_weight, modulus, sign, mode, owner, counters)
        if not good:
            break
        done[0] += stop - start
    slots[:] = 0
    scratch[:] = 0
    return good
