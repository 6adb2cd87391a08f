"""SipHash-2-4 of many items at a time, in vector registers.

In: plain arrays and the two words of a key. Out: hashes in place. Touches: nothing else.
Source: Aumasson & Bernstein 2012 (SipHash).

A hash can be written with other work between its instructions (`Between`), which hides the latency of that work.
Strings are sorted by their number of words, so that those of equal length are hashed side by side. Scratch
memory is cleared after use. Loops index slices, never `x[s + j]`: numba's support for negative indices would turn the
latter into a gather. An index that must be computed is unsigned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels.compilation import cgutils, kernel, typed_intrinsic, types
from sketchstream.kernels.machine_code import (
    GROUP,
    INT64,
    LANES,
    U64,
    VECTOR,
    Between,
    address,
    aligned_words,
    byte_at,
    constant,
    first_byte,
    lanes_of,
    prefetch_read,
    splat,
    vectors_interleaved,
    word_at,
)

SPANS = 1024
"""Strings that are sorted by length and hashed at a time."""
MAX_WORDS = 9
"""Words of SipHash (8 bytes each, the last one partly filled) of a string that is hashed in vector registers."""


def _start(builder: Any, key0: Any, key1: Any) -> list[Any]:
    """The state of SipHash before the first word, in every lane."""
    low, high = splat(builder, key0), splat(builder, key1)
    # "somepseudorandomlygeneratedbytes", as in the paper; the key's words alternate.
    words = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    return [builder.xor(key, constant(word)) for key, word in zip((low, high, low, high), words, strict=True)]


_ROUND = (
    *(("add", 0, 1), ("add", 2, 3), ("rotate", 1, 13), ("rotate", 3, 16), ("xor", 1, 0), ("xor", 3, 2)),
    *(("rotate", 0, 32), ("add", 2, 1), ("add", 0, 3), ("rotate", 1, 17), ("rotate", 3, 21)),
    *(("xor", 1, 2), ("xor", 3, 0), ("rotate", 2, 32)),
)
"""SipRound: what to do, to which word, with which word or by how many bits."""


def _rounds(builder: Any, states: list[list[Any]], times: int, between: Between) -> None:
    """SipRounds on several states, step by step in turn, with other work in between."""
    # A funnel shift of a value with itself is a rotation: one instruction where the processor has it.
    lanes = ir.FunctionType(VECTOR, [VECTOR] * 3)
    rotate = cgutils.get_or_insert_function(builder.module, lanes, f"llvm.fshl.v{LANES}i64")
    # Step by step over all states, not state by state: the steps of different states do not wait for each other.
    for step, to, by in _ROUND * times:
        for v in states:
            if step == "rotate":
                v[to] = builder.call(rotate, [v[to], v[to], constant(by)])
            else:
                v[to] = (builder.add if step == "add" else builder.xor)(v[to], v[by])
            next(between, None)


def _absorb(builder: Any, states: list[list[Any]], words: list[Any], between: Between) -> None:
    """Absorb one word into each state."""
    for v, word in zip(states, words, strict=True):
        v[3] = builder.xor(v[3], word)
    _rounds(builder, states, 2, between)
    for v, word in zip(states, words, strict=True):
        v[0] = builder.xor(v[0], word)


def _finish(builder: Any, states: list[list[Any]], between: Between) -> list[Any]:
    """The final hash of each state."""
    for v in states:
        v[2] = builder.xor(v[2], constant(0xFF))
    _rounds(builder, states, 4, between)
    return [builder.xor(builder.xor(v[0], v[1]), builder.xor(v[2], v[3])) for v in states]


HASH_STEPS = GROUP // LANES * 8 * len(_ROUND)
"""Steps of the hash of a group, after each of which other work can be done."""
Each = Callable[[int, Any], None]
"""A function of the place in the group of a vector's first item, and of the vector."""


def hashed_ints(context: Any, builder: Any, kinds: Any, args: Any, store: Each, between: Between) -> None:
    """Hash GROUP int64 and hand each vector of hashes to `store(number of its first item, hashes)`."""
    start = _start(builder, args[2], args[3])
    for first in range(0, GROUP, LANES * vectors_interleaved()):
        places = range(first, first + LANES * vectors_interleaved(), LANES)
        words = []
        for place in places:
            position = builder.add(args[1], ir.Constant(INT64, place))
            pointer = lanes_of(builder, address(context, builder, kinds[0], args[0], position))
            words.append(builder.load(pointer, align=8))
        states = [list(start) for _ in words]
        _absorb(builder, states, words, between)
        # The last word of a message of eight bytes: no bytes are left, and the length 8 is in its top byte.
        _absorb(builder, states, [constant(8 << 56)] * len(words), between)
        for place, hashes in zip(places, _finish(builder, states, between), strict=True):
            store(place, hashes)


@typed_intrinsic
def _hash_group(typingctx: Any, items: Any, at: Any, key0: Any, key1: Any, out: Any, to: Any) -> Any:
    """out[to:to + GROUP] = hashes of items[at:at + GROUP], int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def store(place: int, hashes: Any) -> None:
            position = builder.add(args[5], ir.Constant(INT64, place))
            pointer = address(context, builder, signature.args[4], args[4], position)
            builder.store(hashes, lanes_of(builder, pointer), align=8)

        hashed_ints(context, builder, signature.args, args, store, iter(()))
        return context.get_dummy_value()

    return types.void(items, at, key0, key1, out, to), codegen


@typed_intrinsic
def _hash_words(typingctx: Any, words: Any, at: Any, count: Any, key0: Any, key1: Any, out: Any) -> Any:
    """out[:GROUP] = hashes of GROUP strings of `count` words: word k of string i is words[at + GROUP * k + i]."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = _start(builder, args[3], args[4])
        for first in range(0, GROUP, LANES * vectors_interleaved()):
            places = range(first, first + LANES * vectors_interleaved(), LANES)
            # How many rounds there are is known at run time only: between them the states are on the stack, from where
            # LLVM moves them into registers.
            kept = [[cgutils.alloca_once_value(builder, value) for value in start] for _ in places]
            for pointers in kept:
                for pointer, value in zip(pointers, start, strict=True):
                    builder.store(value, pointer)
            with cgutils.for_range(builder, args[2]) as loop:
                states = [[builder.load(pointer) for pointer in pointers] for pointers in kept]
                row = builder.add(args[1], builder.mul(loop.index, ir.Constant(INT64, GROUP)))
                loaded = []
                for place in places:
                    position = builder.add(row, ir.Constant(INT64, place))
                    pointer = address(context, builder, signature.args[0], args[0], position)
                    loaded.append(builder.load(lanes_of(builder, pointer), align=8))
                _absorb(builder, states, loaded, iter(()))
                for pointers, state in zip(kept, states, strict=True):
                    for pointer, value in zip(pointers, state, strict=True):
                        builder.store(value, pointer)
            states = [[builder.load(pointer) for pointer in pointers] for pointers in kept]
            for place, hashes in zip(places, _finish(builder, states, iter(())), strict=True):
                target = address(context, builder, signature.args[5], args[5], ir.Constant(INT64, place))
                builder.store(hashes, lanes_of(builder, target), align=8)
        return context.get_dummy_value()

    return types.void(words, at, count, key0, key1, out), codegen


_FF = np.uint64(0xFF)
_V0 = np.uint64(0x736F6D6570736575)
_V1 = np.uint64(0x646F72616E646F6D)
_V2 = np.uint64(0x6C7967656E657261)
_V3 = np.uint64(0x7465646279746573)


@kernel
def hash_ints(items: Ints, key0: Any, key1: Any, out: U64) -> None:
    """SipHash-2-4 of each int64 as eight little-endian bytes."""
    n = len(out)
    whole = n - n % GROUP
    for at in range(0, whole, GROUP):
        _hash_group(items, at, key0, key1, out, at)
    if whole < n:
        # The rest as a whole group with zeros behind it, so that one compiled hash serves both.
        last = np.zeros(GROUP, np.int64)
        hashed = aligned_words(GROUP)
        last[: n - whole] = items[whole:n]
        _hash_group(last, 0, key0, key1, hashed, 0)
        out[whole:] = hashed[: n - whole]
        last[:] = 0
        hashed[:] = 0


@kernel
def _sip_round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    """One SipRound on four words."""
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
        # The eight bytes before the end as a word, shifted until the rest alone is left. They may begin before the
        # string, not before the buffer.
        if end >= 8:
            word |= word_at(first + end - np.uint64(8)) >> (np.uint64(64) - (rest << np.uint64(3)))
        else:
            for i in range(rest):
                word |= np.uint64(byte_at(first + end - rest + i)) << (i << np.uint64(3))
    return word


@kernel
def _hash_span(first: Any, start: Any, end: Any, key0: Any, key1: Any) -> Any:
    """SipHash-2-4 of the bytes start..end of the buffer at the address `first`."""
    v0, v1, v2, v3 = key0 ^ _V0, key1 ^ _V1, key0 ^ _V2, key1 ^ _V3
    last = _tail(first, start, end)
    at = first + start
    for _ in range((end - start) >> np.uint64(3)):
        word = word_at(at)
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
        # Too few strings to fill vectors of equal lengths.
        first = first_byte(buffer)
        for i in range(n):
            out[i] = _hash_span(first, np.uint64(starts[i]), np.uint64(ends[i]), key0, key1)
        return
    size = min(n, SPANS)
    order = np.empty(size, np.uint64)
    counts = np.empty(MAX_WORDS + 2, np.int64)
    # For each length in turn: GROUP lanes for each word of each group, the last group padded to GROUP.
    words = aligned_words((size + GROUP) * MAX_WORDS)
    hashed = aligned_words(GROUP)
    for begin in range(0, n, SPANS):
        end = min(begin + SPANS, n)
        _hash_sorted(
            buffer, starts[begin:end], ends[begin:end], key0, key1, out[begin:end], order, counts, words, hashed
        )
    words[:] = 0
    hashed[:] = 0


@kernel
def _whole_words(start: Any, end: Any) -> Any:
    """Whole words of a string; MAX_WORDS stands for that many or more."""
    return min((np.int64(end) - np.int64(start)) >> 3, MAX_WORDS)


@kernel
def _hash_sorted(
    buffer: Bytes,
    starts: Any,
    ends: Any,
    key0: Any,
    key1: Any,
    out: U64,
    order: U64,
    counts: Ints,
    words: U64,
    hashed: U64,
) -> None:
    """Hash at most SPANS strings: sort them by number of words, arrange the words of a group in lanes, hash."""
    n = len(out)
    base = first_byte(buffer)
    # Counting sort by whole words. counts[c + 1] is first the number of strings with c words, then the sums make
    # counts[c] the place where these begin, and after the sort it is the place where they end.
    counts[:] = 0
    for i in range(n):
        prefetch_read(buffer, np.int64(starts[i]))
        counts[_whole_words(starts[i], ends[i]) + 1] += 1
    for c in range(MAX_WORDS + 1):
        counts[c + 1] += counts[c]
    for i in range(n):
        c = _whole_words(starts[i], ends[i])
        order[counts[c]] = i
        counts[c] += 1
    begin = 0
    for c in range(MAX_WORDS):
        chosen = order[begin : counts[c]]
        begin = counts[c]
        for i in range(len(chosen)):
            start = np.uint64(starts[chosen[i]])
            end = np.uint64(ends[chosen[i]])
            # Word k of a group's strings stands in GROUP neighbouring places, string by string, so that a vector is
            # loaded at once: lane i % GROUP of row k, behind the c + 1 rows of each group before.
            lane = i & (GROUP - 1)
            at = np.uint64((i - lane) * (c + 1) + lane)
            address = base + start
            for _ in range(c):
                words[at] = word_at(address)
                address += np.uint64(8)
                at += np.uint64(GROUP)
            words[at] = _tail(base, start, end)
        # Lanes behind the last string hold what was there before: they are hashed, and their hashes are not read.
        for i in range(0, len(chosen), GROUP):
            _hash_words(words, i * (c + 1), c + 1, key0, key1, hashed)
            part = chosen[i : min(i + GROUP, len(chosen))]
            for j in range(len(part)):
                out[part[j]] = hashed[j]
    # Strings of MAX_WORDS words or more one by one: they have no common number of words.
    chosen = order[begin:n]
    for i in range(len(chosen)):
        out[chosen[i]] = _hash_span(base, np.uint64(starts[chosen[i]]), np.uint64(ends[chosen[i]]), key0, key1)
