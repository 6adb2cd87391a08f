"""Compiled loops of kind `projection`: words of keyed BLAKE2b, matrix entries from words, updates, exact distances.

In: plain arrays and numbers, checked by the callers. Out: arrays filled in place. Touches: nothing else.
Source: RFC 7693 (BLAKE2b); docs/theory/projection.md, section 1 (the matrix).

The hash of eight counters at a time runs in vector registers. With a key, BLAKE2b compresses two blocks: the key, which
is the same for all counters (`matrix.chaining_value`), and the counter. So an entry costs an eighth of one compression.
Kernels that call each other live in this one file, because numba's disk cache notices an edit of a function's own file
only. Little-endian machines only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]

from sketchstream.array_types import Ints
from sketchstream.kernels import kernel
from sketchstream.kernels.compilation import cgutils, typed_intrinsic, types
from sketchstream.kernels.machine_code import (
    INT64,
    LANES,
    VECTOR,
    address,
    constant,
    lanes_of,
    prefetch,
    prefetch_read,
    splat,
)

U64 = npt.NDArray[np.uint64]
I16 = npt.NDArray[np.int16]

WORDS = 8
"""64-bit words of one digest."""
COUNTER_BYTES = 12
"""Length of a counter: feature, 8 bytes; block, 4 bytes."""
BLOCK_BYTES = 128
AHEAD = 12
"""Events between the prefetch of a row and its update."""
MAX_SHORT_WEIGHT = 1 << 31
"""Largest absolute weight, plus 1, of batches that take the short product."""
CACHED_ENTRIES = 1 << 16
"""Entries of a matrix that stays in a core's own cache: to prefetch its rows would only cost time."""
LINE = 8
"""64-bit words of a cache line."""

IV = (
    *(0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1),
    *(0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179),
)
SIGMA = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
    (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
    (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
    (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
    (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
    (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
    (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
    (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
    (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
)
MIXED = (
    *((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)),
    *((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)),
)
ROTATIONS = (32, 24, 16, 63)
ROUNDS = 12


def _lanes(context: Any, builder: Any, kind: Any, array: Any, position: int) -> Any:
    """Address of LANES words from array[position] on."""
    return lanes_of(builder, address(context, builder, kind, array, INT64(position)))


def _compress_last_block(builder: Any, chain: list[Any], message: dict[int, Any]) -> list[Any]:
    """The digest words of one last block; words of the message that are not given are 0."""
    lanes = ir.FunctionType(VECTOR, [VECTOR] * 3)
    rotate = cgutils.get_or_insert_function(builder.module, lanes, f"llvm.fshr.v{LANES}i64")
    # RFC 7693, section 3.2, unrolled when the code is made: v is a list of 16 registers, each with one word of
    # the state of 8 independent hashes, and the schedule is known, so nothing is left of its loops, and of message
    # words that are 0 not even an addition.
    v = chain + [constant(word) for word in IV]
    # Bytes hashed so far: the key's block and the counter; then the mark of the last block.
    v[12] = builder.xor(v[12], constant(BLOCK_BYTES + COUNTER_BYTES))
    v[14] = builder.xor(v[14], constant(2**64 - 1))
    for number in range(ROUNDS):
        schedule = SIGMA[number % len(SIGMA)]
        for step, (a, b, c, d) in enumerate(MIXED):
            for half in range(2):
                v[a] = builder.add(v[a], v[b])
                if (word := schedule[2 * step + half]) in message:
                    v[a] = builder.add(v[a], message[word])
                for to, other, bits in ((d, a, ROTATIONS[2 * half]), (b, c, ROTATIONS[2 * half + 1])):
                    # Before b is turned, c gets d: the third line of the RFC's G, once for each half.
                    if to == b:
                        v[c] = builder.add(v[c], v[d])
                    mixed = builder.xor(v[to], v[other])
                    # fshr of a word with itself is a rotation, one instruction of AVX-512.
                    v[to] = builder.call(rotate, [mixed, mixed, constant(bits)])
    return [builder.xor(builder.xor(h, v[i]), v[i + WORDS]) for i, h in enumerate(chain)]


@typed_intrinsic
def _hash_lanes(typingctx: Any, chain: Any, counters: Any, out: Any) -> Any:
    """out[8 w + l] = word w of the digest of counter l: feature counters[l], block counters[8 + l]; uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # The chaining value is the same in all lanes: each of its words is spread over a register.
        first = [address(context, builder, signature.args[0], args[0], INT64(i)) for i in range(WORDS)]
        spread = [splat(builder, builder.load(word)) for word in first]
        # Of the 16 message words only two are not 0: the feature, and the number of the block.
        message = {
            i: builder.load(_lanes(context, builder, signature.args[1], args[1], i * LANES), align=8) for i in range(2)
        }
        # Word by word, each a register of eight hashes: `keyed_words` puts the words of one hash side by side.
        for i, word in enumerate(_compress_last_block(builder, spread, message)):
            builder.store(word, _lanes(context, builder, signature.args[2], args[2], i * LANES), align=8)
        return context.get_dummy_value()

    return types.void(chain, counters, out), codegen


@typed_intrinsic
def _add_scaled(typingctx: Any, cells: Any, to: Any, weight: Any, entries: Any, at: Any) -> Any:
    """cells[to:to + LANES] += weight * entries[at:at + LANES]; weight int32, so that one product takes one step."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        pointer = lanes_of(builder, address(context, builder, kinds[0], args[0], args[1]))
        # Entries are int16: a quarter of the memory that int64 would read. Addresses need not be aligned to a register,
        # so loads and stores claim the alignment of one element.
        short = ir.VectorType(ir.IntType(16), LANES)
        source = address(context, builder, kinds[3], args[3], args[4])
        row = builder.load(builder.bitcast(source, short.as_pointer()), align=2)
        # Both factors are sign-extended from 32 bits or fewer, which the compiler sees: one multiplication of 32-bit
        # halves makes the 64-bit product, where full int64 factors would need three.
        product = builder.mul(builder.sext(row, VECTOR), splat(builder, builder.sext(args[2], INT64)))
        builder.store(builder.add(builder.load(pointer, align=8), product), pointer, align=8)
        return context.get_dummy_value()

    return types.void(cells, to, types.int32, entries, at), codegen


@kernel
def keyed_words(chain: U64, features: U64, first: int, out: U64) -> None:
    """Digest words of features, block by block.

    Args:
        chain: (8,) state of the hash after the key's block.
        features: (n,) uint64.
        first: number of the first block.
        out: (n, 8 blocks) uint64, C-contiguous; overwritten.
    """
    # A unit of work is one digest: (feature, block), blocks fastest. LANES of them are hashed at once. In the last
    # round unused lanes hash what was there before; their digests are not copied, so any number of units will do.
    blocks = out.shape[1] // WORDS
    total = len(features) * blocks
    counters = np.zeros(2 * LANES, np.uint64)
    digests = np.zeros(WORDS * LANES, np.uint64)
    # counters: 8 features, then 8 numbers of blocks. digests: word w of lane l at 8 w + l, as registers are stored;
    # copying them out transposes.
    flat = out.reshape(-1)
    for start in range(0, total, LANES):
        used = min(LANES, total - start)
        for lane in range(used):
            counters[lane] = features[(start + lane) // blocks]
            counters[LANES + lane] = first + (start + lane) % blocks
        _hash_lanes(chain, counters, digests)
        for lane in range(used):
            at = (start + lane) * WORDS
            for word in range(WORDS):
                flat[at + word] = digests[word * LANES + lane]
    # Digests decide a secret matrix, and counters say which features occurred: neither outlives the call.
    counters[:] = 0
    digests[:] = 0


@kernel
def gaussian_entries(words: U64, cumulative: U64, guide: Ints, shift: Any, out: I16) -> None:
    """Entries of the gaussian matrix: bit 63 is the sign, the rest finds its place among the thresholds.

    Args:
        words: (n, at least k) uint64.
        cumulative: (thresholds + 1,) uint64, ascending; the last is above every 63-bit number.
        guide: thresholds at or below the smallest number with these first bits.
        shift: uint64, number of low bits of a 63-bit number that the guide ignores.
        out: (n, k) int16; overwritten.
    """
    sign = np.uint64(63)
    low = np.uint64(0x7FFFFFFFFFFFFFFF)
    for i in range(out.shape[0]):
        row, source = out[i], words[i]
        for c in range(len(row)):
            # An entry of size t or more has probability 1 - cumulative[t - 1] / 2^63: its size is the number of
            # thresholds at or below a 63-bit number. The guide starts the search in the right neighbourhood, so it
            # takes a step or two; it ends before the table does, because the last threshold is above every number.
            number = source[c] & low
            place = guide[number >> shift]
            while cumulative[place] <= number:
                place += 1
            row[c] = -place if source[c] >> sign else place


@kernel
def sign_entries(words: U64, out: I16) -> None:
    """Entries of the rademacher matrix: bit 63 of a word, 1 for -1. words (n, at least k), out (n, k)."""
    for i in range(out.shape[0]):
        row, source = out[i], words[i]
        for c in range(len(row)):
            row[c] = 1 - 2 * np.int64(source[c] >> np.uint64(63))


@kernel
def hadamard_entries(features: U64, words: U64, columns: U64, out: I16) -> None:
    """Entries of the srht matrix: a random sign a feature, times (-1)^(number of common bits of feature and column).

    Args:
        features: (n,) uint64.
        words: (n, at least 1) uint64; bit 63 of the first is the feature's sign.
        columns: (k,) uint64, the sampled columns.
        out: (n, k) int16; overwritten.
    """
    one = np.uint64(1)
    for i in range(len(features)):
        row = out[i]
        minus = words[i, 0] >> np.uint64(63)
        for c in range(len(row)):
            # The parity of common bits, by folding halves onto each other: bit 0 is the xor of all.
            bits = features[i] & columns[c]
            for half in (32, 16, 8, 4, 2, 1):
                bits ^= bits >> np.uint64(half)
            row[c] = 1 - 2 * np.int64((bits ^ minus) & one)


@kernel
def add_rows(
    state: Ints, events: tuple[Ints, Ints, Ints, Ints], matrix: I16, limits: Ints, done: tuple[Ints, Ints]
) -> None:
    """state[row] += weight * matrix[place of the feature], modulo 2^64, event by event.

    An event is a no-op if its row or feature is outside its domain or its weight is too large; that is decided from
    the event alone. No counter is looked at.

    Args:
        state: (n, k) int64, C-contiguous.
        events: four (m,) int64: rows; features; weights, lattice units; position of the row of each event's feature in
            `matrix` (anything for a no-op).
        matrix: (features made, k) int16.
        limits: (3,) int64: number of rows, number of features, largest absolute weight.
        done: two (1,) int64, to which the number of events that went by is added, and of those that were no no-ops.
    """
    rows, features, weights, places = events
    # Compared without signs, negative numbers are large. |weight| <= most is 0 <= weight + most <= 2 most, modulo 2^64.
    n, d, most = np.uint64(limits[0]), np.uint64(limits[1]), limits[2]
    twice = np.uint64(2 * most)
    # So each check is one comparison, and a checked event needs no further test of its addresses: row < n gives
    # row * width + c < n * width. The place of a checked event's feature lies in `matrix` by contract.
    count, moved = len(rows), 0
    width = state.shape[1]
    flat, entries = state.reshape(-1), matrix.reshape(-1)
    # Users are drawn from far more rows than a cache holds: without a prefetch every event would wait for memory.
    # AHEAD events are enough to cover that wait. Unchecked events are asked for too: a prefetch cannot fail.
    far = len(entries) > CACHED_ENTRIES
    small = most < MAX_SHORT_WEIGHT
    # Columns [0, wide) go four registers at a time, [wide, first) one, the rest one number at a time. Weights beyond
    # 32 bits take the last loop for all columns: first = wide = 0.
    first, wide = (width // LANES * LANES, width // (4 * LANES) * (4 * LANES)) if small else (0, 0)
    for i in range(count):
        coming = i + AHEAD
        if coming < count:
            start = rows[coming] * width
            for c in range(0, width, LINE):
                prefetch(flat, start + c)
            if far:
                # A line of 8 words of 8 bytes has 32 entries of 2.
                start = places[coming] * width
                for c in range(0, width, 4 * LINE):
                    prefetch_read(entries, start + c)
        if np.uint64(rows[i]) < n and np.uint64(features[i]) < d and np.uint64(weights[i] + most) <= twice:
            moved += 1
            weight = weights[i]
            target, source = rows[i] * width, places[i] * width
            if small:
                short = np.int32(weight)
                for c in range(0, wide, 4 * LANES):
                    _add_scaled(flat, target + c, short, entries, source + c)
                    _add_scaled(flat, target + c + LANES, short, entries, source + c + LANES)
                    _add_scaled(flat, target + c + 2 * LANES, short, entries, source + c + 2 * LANES)
                    _add_scaled(flat, target + c + 3 * LANES, short, entries, source + c + 3 * LANES)
                for c in range(wide, first, LANES):
                    _add_scaled(flat, target + c, short, entries, source + c)
            # Products and sums wrap modulo 2^64, here as in the registers.
            if first < width:
                for c in range(first, width):
                    flat[target + c] += weight * entries[source + c]
    done[0][0] += count
    done[1][0] += moved


@kernel
def squared_gaps(left: Ints, right: Ints, first: Ints, second: Ints, out: Any) -> None:
    """out[i] = squared norm of left[first[i]] - right[second[i]]; the differences are formed in int64.

    Args:
        left: (n, k) int64.
        right: (m, k) int64.
        first: (p,) int64, rows of `left`.
        second: (p,) int64, rows of `right`.
        out: (p,) float64; overwritten.
    """
    # The difference is formed before it becomes a float64: two large cells that nearly agree lose no digits.
    for i in range(len(out)):
        a, b = left[first[i]], right[second[i]]
        total = 0.0
        for c in range(len(a)):
            gap = np.float64(a[c] - b[c])
            total += gap * gap
        out[i] = total
