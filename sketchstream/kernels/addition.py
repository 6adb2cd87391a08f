"""Addition of weights to slots.

In: items or slots, weights, a state. Out: the state and the counters besides it, in place. Touches: nothing else.

The state is far larger than a cache, so an update is a cache miss, and speed depends on the number of concurrent
misses. Hashed ints run through a pipeline: a group is hashed in vector registers while, spread evenly among its
instructions, the slots of the group before it are prefetched and the events LAG items back are added. They must be
spread: a processor looks some 200 instructions ahead, fewer than the hash of a group has, so that misses asked for in
one burst are over before the next. The batch is prefetched too: the processor's own reading ahead falls behind such
misses. Other items are located block by block into scratch and then added with prefetch. Scratch that held items
or slots is cleared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels.compilation import kernel, typed_intrinsic, types
from sketchstream.kernels.machine_code import (
    GROUP,
    INT64,
    LANES,
    U64,
    VECTOR,
    Between,
    address,
    aligned_words,
    ask_for,
    lanes_of,
    prefetch,
    splat,
)
from sketchstream.kernels.routing import (
    HASHED,
    NOWHERE,
    UNSAMPLED,
    VECTOR_LIMIT,
    locate_ints,
    locate_spans,
    slot_group,
    stored_slots,
)
from sketchstream.kernels.siphash import HASH_STEPS

BLOCK = 8192
"""Items whose weights are checked, or that are located, at a time."""
RING = 128
"""Slots in flight in the pipeline; a power of two."""
LAG = 96
"""Items between the hash of one and its addition; fewer do not hide a miss, more leave the first-level cache."""
STREAM = 128
"""Distance at which the batch itself is prefetched; without it the batch is read late, or not ahead at all."""
AHEAD = 128
"""Distance of the prefetch where slots are known already; below 64 it hurts."""
ERROR, SKIP, NOOP = range(3)
"""What an invalid event does: stops the batch; is left out if only its item is bad; is left out."""


def _ask_ahead(context: Any, builder: Any, kind: Any, array: Any, at: Any, piece: int) -> None:
    """Prefetch the part of a batch's array that is STREAM items after a group at `at`, in GROUP pieces."""
    # 512 bits are a cache line: one request for each line, not for each item.
    if piece * kind.dtype.bitwidth % 512 == 0:
        position = builder.add(at, ir.Constant(INT64, STREAM + piece))
        ask_for(builder, address(context, builder, kind, array, position), 0)


def _widen(builder: Any, value: Any) -> Any:
    """A signed integer as 64 bits."""
    return value if value.type.width == INT64.width else builder.sext(value, INT64)


def _truncate(builder: Any, value: Any, kind: Any) -> Any:
    """Truncate 64 bits to an integer type."""
    return value if kind.width == INT64.width else builder.trunc(value, kind)


def _plus(builder: Any, pointer: Any, value: Any) -> None:
    """Add 64 bits to the counter at an address, wrapping."""
    old = builder.load(pointer)
    builder.store(builder.add(old, _truncate(builder, value, old.type)), pointer)


def _weight_lanes(builder: Any, pointer: Any) -> Any:
    """LANES weights from an address on, as 64 bits each."""
    kind = ir.VectorType(pointer.type.pointee, LANES)
    weights = builder.load(builder.bitcast(pointer, kind.as_pointer()), align=kind.element.width // 8)
    return weights if kind.element.width == INT64.width else builder.sext(weights, VECTOR)


def _bad_lanes(builder: Any, values: Any, max_weight: Any) -> Any:
    """One bit for each of LANES weights that is outside -max_weight..max_weight."""
    limit = splat(builder, max_weight)
    # w in -m..m means w + m in 0..2m: one unsigned comparison, because a smaller w wraps to a huge number.
    shifted = builder.add(values, limit)
    return builder.bitcast(builder.icmp_unsigned(">", shifted, builder.add(limit, limit)), ir.IntType(LANES))


def _sum_lanes(builder: Any, sums: Any, values: Any) -> None:
    """Add a vector to the LANES running sums at an address."""
    pointer = lanes_of(builder, sums)
    builder.store(builder.add(builder.load(pointer, align=8), values), pointer, align=8)


@typed_intrinsic
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

    As `slot_group` into ring[to:to + GROUP]; prefetches the slots ring[asked:asked + GROUP]; then
    state[ring[first + i]] += sign * weights[at - LAG + i], wrapping (weights None: sign). Adds weights[at:at + GROUP]
    to the running sums, sums[:LANES]. Returns how many of these are outside -max_weight..max_weight, as bits: 0 if
    none is.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        slots = context.make_array(kinds[4])(context, builder, args[4]).data
        counters = context.make_array(kinds[10])(context, builder, args[10]).data
        weighted = isinstance(kinds[11], types.Array)
        if weighted:
            # Weights are read twice: with their group's hash for bounds and sums, and LAG items later to be added.
            begin = builder.sub(args[1], ir.Constant(INT64, LAG))
            values = address(context, builder, kinds[11], args[11], begin)

        # A hashed slot is below per_level * (last_level + 1), the length of the state: no test of its bounds.
        def counter(group: Any, i: int) -> Any:
            position = builder.add(group, ir.Constant(INT64, i))
            return builder.gep(counters, [builder.load(builder.gep(slots, [position]))])

        def work() -> Between:
            # A prefetch and an addition in turn, GROUP of each, with an equal part of the hash's HASH_STEPS after each.
            for piece in range(2 * GROUP):
                i = piece // 2
                if piece % 2 == 0:
                    ask_for(builder, counter(args[8], i), 1)
                    _ask_ahead(context, builder, kinds[0], args[0], args[1], i)
                else:
                    weight = args[13]
                    if weighted:
                        _ask_ahead(context, builder, kinds[11], args[11], args[1], i)
                        value = builder.load(builder.gep(values, [ir.Constant(INT64, i)]))
                        weight = builder.mul(_widen(builder, value), weight)
                    pointer = counter(args[9], i)
                    _plus(builder, pointer, weight)
                for _ in range(HASH_STEPS // (2 * GROUP)):
                    yield

        stored_slots(context, builder, kinds, args, work())
        bad = ir.Constant(ir.IntType(LANES), 0)
        # The group that was hashed, not the one that was added: a bad weight stops the pipeline before its group.
        if weighted:
            running = context.make_array(kinds[14])(context, builder, args[14]).data
            for place in range(0, GROUP, LANES):
                position = builder.add(args[1], ir.Constant(INT64, place))
                lanes = _weight_lanes(builder, address(context, builder, kinds[11], args[11], position))
                bad = builder.or_(bad, _bad_lanes(builder, lanes, args[12]))
                _sum_lanes(builder, running, lanes)
        return builder.zext(bad, INT64)

    return types.int64(
        items, at, key0, key1, ring, to, per_level, last_level, asked, first, state, weights, max_weight, sign, sums
    ), codegen


_RING_MASK = np.uint64(RING - 1)


@kernel
def _modular(weight: Any, modulus: Any, sign: Any) -> Any:
    """The signed weight modulo `modulus`, any int64 weight."""
    rest = np.int64(weight)
    # Most weights are in 0..modulus - 1 as they are: the division is for the others.
    if rest >= modulus or rest < 0:
        rest = rest + modulus if -modulus <= rest < 0 else rest % modulus
    # Always in 0..modulus - 1, so that a counter plus this is below 2 * modulus: one subtraction brings it back
    # (`_add`).
    return modulus - rest if sign < 0 and rest > 0 else rest


@kernel
def _add(state: Any, slots: Any, weights: Any, modulus: Any, sign: Any) -> None:
    """state[slots] += sign * weights (empty weights: ones), wrapping, or modulo `modulus` if that is not 0."""
    # Two passes through one body: the first prefetches AHEAD slots on, the last AHEAD events have nothing to ask for.
    # Slices, not computed indices: numba then leaves its support for negative ones out.
    n = len(slots)
    early = max(n - AHEAD, 0)
    ahead = slots[n - early :]
    for half in range(2):
        here = slots[:early] if half == 0 else slots[early:]
        many = len(weights) > 0
        values = weights[:early] if half == 0 else weights[early:]
        if modulus == 0 and not many:
            for i in range(len(here)):
                if half == 0:
                    prefetch(state, ahead[i])
                state[here[i]] += sign
        elif modulus == 0:
            for i in range(len(here)):
                if half == 0:
                    prefetch(state, ahead[i])
                state[here[i]] += sign * np.int64(values[i])
        else:
            # Counters are in 0..modulus - 1 whatever was added before: the order of events does not matter.
            amount = _modular(1, modulus, sign)
            for i in range(len(here)):
                if half == 0:
                    prefetch(state, ahead[i])
                if many:
                    amount = _modular(values[i], modulus, sign)
                total = np.int64(state[here[i]]) + amount
                state[here[i]] = total - modulus if total >= modulus else total


@kernel
def _bad_weights(weights: Any, max_weight: Any) -> Any:
    """Number of weights outside -max_weight..max_weight."""
    # Sums of comparisons, without a branch: the compiler makes vector code of it.
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
def _tally(counters: Ints, total: Any, count: Any, sign: Any) -> None:
    """Add to the counters besides the slots, if present: weights applied, events counted; wrapping."""
    if len(counters) > 0:
        counters[0] += sign * total
    if len(counters) > 1:
        counters[1] += sign * count


@kernel
def _add_hashed(
    state: Any,
    items: Ints,
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
    # The slot of item i is ring[i % RING] until it is added. RING >= LAG + GROUP: none is overwritten before that.
    whole = len(items) - len(items) % GROUP
    # One running sum of weights for each lane; they are joined at the end, not for each group.
    sums = np.zeros(LANES, np.int64)
    seen = np.int64(0)
    added = 0
    # Fill the pipeline: hash and ask for slots, add nothing yet.
    for at in range(0, min(LAG, whole), GROUP):
        if many and max_weight > 0 and _bad_weights(weights[at : at + GROUP], max_weight) > 0:
            whole = at
            break
        seen += _sum(weights[at : at + GROUP], GROUP)
        slot_group(items, at, route.key0, route.key1, ring, at, route.per_level, route.last_level)
        for i in range(np.uint64(at), np.uint64(at + GROUP)):
            prefetch(state, ring[i])
    # The full pipeline: new slots go `to` the ring, those `asked` for are the group before, those at `first` are added.
    for at in range(LAG, whole, GROUP):
        to = np.int64(np.uint64(at) & _RING_MASK)
        asked = np.int64(np.uint64(at - GROUP) & _RING_MASK)
        first = np.int64(np.uint64(added) & _RING_MASK)
        key0, key1, per_level, last_level = route.key0, route.key1, route.per_level, route.last_level
        if modulus > 0:
            bad = _bad_weights(weights[at : at + GROUP], max_weight) if many and max_weight > 0 else 0
            seen += _sum(weights[at : at + GROUP], GROUP)
            slot_group(items, at, key0, key1, ring, to, per_level, last_level)
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
                prefetch(state, ring[i])
        added += GROUP
        # The group of a bad weight was hashed and summed, not added. Its sum is taken back; the caller judges it item
        # by item.
        if bad != 0 and max_weight > 0:
            whole = at
            seen -= _sum(weights[at : at + GROUP], GROUP)
            break
    # Empty the pipeline: these slots are in the ring and have been asked for.
    for at in range(added, whole, GROUP):
        first = np.int64(np.uint64(at) & _RING_MASK)
        _add(state, ring[first : first + GROUP], weights[at : at + GROUP], modulus, sign)
    return whole, seen + sums.sum()


@kernel
def _keep(slots: U64, weights: Any, scratch: Any, size: Any, max_weight: Any, mode: Any) -> Any:
    """Move the events that have an effect to the front (weights into `scratch`).

    Returns their number; all of them: nothing was moved. -1: an invalid event, and the mode is to stop.
    """
    n = len(slots)
    # NOWHERE and UNSAMPLED are the largest uint64: one comparison with the size finds both.
    bad_slots = 0
    for i in range(n):
        bad_slots += slots[i] >= size
    bad_weights = _bad_weights(weights, max_weight) if max_weight > 0 else 0
    if bad_slots == 0 and bad_weights == 0:
        return n
    if mode != NOOP and bad_weights > 0:
        return -1
    # An item that is in the domain and not in its sample is no error.
    if mode == ERROR:
        for i in range(n):
            if slots[i] == NOWHERE:
                return -1
    # Each event is written at `kept`, which moves on only behind one that stays: no branch on what an item is.
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
    # Weights are looked at only where there are unsampled items to count.
    if count == 0 or max_weight == 0 or len(weights) == 0:
        return count
    count = 0
    for i in range(len(slots)):
        if slots[i] == UNSAMPLED:
            count += -max_weight <= np.int64(weights[i]) <= max_weight
    return count


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
    counters: Ints,
) -> Any:
    """Add the valid events of a located block; False: an invalid one, and none is added.

    Slots are moved about; `scratch` has room for the weights. An event whose item is in the domain and not in its
    sample is counted and weighs nothing.
    """
    part = weights[:]
    passed = _count_unsampled(slots, part, max_weight) if len(counters) > 1 else 0
    kept = _keep(slots, part, scratch, np.uint64(len(state)), max_weight, mode)
    if kept < 0:
        return False
    if kept < len(slots) and len(part) > 0:
        part = scratch[:kept]
    if len(counters) > 0:
        _tally(counters, _sum(part, kept), kept + passed, sign)
    _add(state, slots[:kept], part, modulus, sign)
    return True


@kernel
def update_ints(
    state: Any,
    items: Ints,
    weights: Any,
    route: Any,
    max_weight: Any,
    modulus: Any,
    sign: Any,
    mode: Any,
    done: Ints,
    counters: Ints,
) -> Any:
    """Add a batch of ints, run by run; done[0] counts the events gone by. False: the next ones hold an invalid one.

    counters: (0,), (1,) or (2,) sum of the weights applied, and number of events counted, kept besides the slots.
    """
    n = len(items)
    piped = route.way == HASHED and route.per_level < VECTOR_LIMIT and weights.flags.c_contiguous
    slots = aligned_words(max(min(n, BLOCK), RING))
    scratch = np.empty(min(len(weights), BLOCK), weights.dtype)
    good = True
    start = 0
    while start < n:
        if piped:
            # The pipeline stops before a bad weight, and where less than a group is left. The block after that is
            # judged item by item, and the pipeline is tried again behind it.
            rest, values = items[start:], weights[start:]
            passed, seen = _add_hashed(state, rest, values, route, max_weight, modulus, sign, slots[:RING])
            _tally(counters, seen, passed, sign)
            done[0] += passed
            start += passed
        stop = min(start + BLOCK, n)
        block = slots[: stop - start]
        locate_ints(items[start:stop], route, block)
        good = _add_block(state, block, weights[start:stop], scratch, max_weight, modulus, sign, mode, counters)
        if not good:
            break
        done[0] += stop - start
        start = stop
    # Slots tell items, and freed memory may be read by its next owner.
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
    done: Ints,
    counters: Ints,
) -> Any:
    """Add a batch of strings, see `update_ints`."""
    n = len(starts)
    slots = aligned_words(min(n, BLOCK))
    scratch = np.empty(min(len(weights), BLOCK), weights.dtype)
    good = True
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        block = slots[: stop - start]
        locate_spans(buffer, starts[start:stop], ends[start:stop], route, block)
        good = _add_block(state, block, weights[start:stop], scratch, max_weight, modulus, sign, mode, counters)
        if not good:
            break
        done[0] += stop - start
    slots[:] = 0
    scratch[:] = 0
    return good


@kernel
def add_to_groups(
    state: Any,
    located: U64,
    codes: Any,
    size: Any,
    weights: Any,
    scratch: Any,
    max_weight: Any,
    modulus: Any,
    totals: Ints,
    counts: Ints,
    sign: Any,
    done: Ints,
    begins: Any,
    later_slots: Any,
    later_weights: Any,
    filled: Ints,
) -> None:
    """Add n located events to the slots of their groups, and to the counters of the groups; invalid ones are left out.

    Args:
        state: (groups x size,) slots of the first group, then of the second, and so on.
        located: (n,) slots in the domain, NOWHERE or UNSAMPLED; overwritten.
        codes: (n,) int32 positions of groups, -1 for none.
        size: number of slots of one group.
        weights: (n,) weights, or (0,) for ones.
        scratch: memory for as many weights.
        max_weight: largest absolute weight of valid events; 0: any weight is valid.
        modulus: modulus of the counters, or 0.
        totals: (groups,) or (0,): sums of the weights of events with a slot; wrapping.
        counts: (groups,) or (0,): numbers of events whose item is in the domain, sampled or not.
        sign: 1 to add, -1 to subtract the same events.
        done: (1,) number of events that were added, updated here so that it is correct after an interrupt too.
        begins: events of slots from this one on are deferred, not added.
        later_slots: (at least filled[0] + n + 1,) uint32, slots of deferred events.
        later_weights: their weights (modulo `modulus`), sign included: as many int32.
        filled: (1,) number of deferred events.
    """
    kept: Any = 0
    late = filled[0]
    many = len(weights) > 0
    amount = _modular(1, modulus, sign) if modulus > 0 else np.int64(sign)
    for i in range(len(located)):
        code: Any = np.int64(codes[i])
        slot = located[i]
        inside = code >= 0 and slot < size
        weight = np.int64(1)
        valid = True
        if many:
            weight = np.int64(weights[i])
            valid = max_weight == 0 or -max_weight <= weight <= max_weight
            scratch[kept] = weights[i]
            amount = _modular(weight, modulus, sign) if modulus > 0 else sign * weight
        # Written before it is known whether the event counts: `kept` and `late` move on only where it does, and the
        # next event overwrites the others. Then `place` may be anything, but is no index of `state`.
        place = slot + np.uint64(code) * size
        located[kept] = place
        later_slots[late] = np.uint32(place)
        later_weights[late] = np.int32(amount)
        now = place < begins
        kept += inside and valid and now
        late += inside and valid and not now
        if inside and valid and len(totals) > 0:
            totals[code] += sign * weight
        # Unlike totals, counts hold the items of the domain that are not in its sample, too.
        if code >= 0 and valid and len(counts) > 0 and (inside or slot == UNSAMPLED):
            counts[code] += sign
    part = scratch[:kept] if many else weights[:]
    if sign > 0:
        _add(state, located[:kept], part, modulus, 1)
        done[0] += len(located)
    else:
        _add(state, located[:kept], part, modulus, -1)
    filled[0] = late


@kernel
def add_deferred(state: Any, slots: Any, weights: Any, modulus: Any) -> None:
    """Add events that `add_to_groups` deferred.

    Args:
        state: (slots,) changed in place.
        slots: (n,) uint32 slots of the events.
        weights: (n,) int32 weights of the events.
        modulus: modulus of the counters, or 0.
    """
    _add(state, slots, weights, modulus, 1)
