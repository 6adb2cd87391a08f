"""The compiled loops that run plans of Avro schemas and Protobuf messages over the values of many records.

In: a uint8 buffer, the bounds of values, plans of all known schema ids. Out: kind and place of each wanted field, and a
status for each record. Touches: nothing else.
Source: the Avro 1.12 specification, "Binary Encoding"; the encoding guide of Protobuf; the frames of Confluent,
Apicurio and AWS Glue. Both loops are in one file, because they share parts: numba's cache does not detect edits across
files.

Arrays: `rows` holds the plans of all schemas, one after the other; a record starts at the row of its id. Every byte is
read at a position below the record's end, which is checked before: nothing beyond a record is read, whatever its
lengths say. A number that was taken is in `found_start` itself, and `found_end` is then negative.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels import kernel
from sketchstream.kernels.compilation import part, typed_intrinsic, types
from sketchstream.kernels.machine_code import first_byte, keep_apart, trailing_zeros, word_at
from sketchstream.kernels.texts import is_utf8, last_run
from sketchstream.kernels.tokens import DECIMAL, INTEGER, MISSING, NULL, OTHER, STRING, U, byte

Words = npt.NDArray[np.uint64]

GOOD, BROKEN, NO_VALUE, BY_TREE, WAITING = range(5)
"""The loop's verdict on a record: read; malformed; without a value; left to `decode.avro.tree`; not looked at yet."""
BARE, CONFLUENT, APICURIO, GLUE, ADJOINING = range(5)
"""Frames in front of a value; ADJOINING: no frame, and a value without a start begins where the one before it ended."""
GLUE_BYTES: Final = 18
"""Bytes of a frame of AWS Glue."""
REFUSED, TREE = -1, -2
"""Marks that replace the first row of a plan: the registry denies the id; the schema has no plan."""
TEXT_BYTES: Final = 24
"""Most bytes of the text of a decimal of 64 bits."""
MAX_LOOPS: Final = 16
"""Most arrays and maps of Avro inside of each other."""
MAX_INT64: Final = (1 << 63) - 1

# Operations of the rows of plans, and what is asked of taken bytes: nothing; UTF-8, else they are of no use; UTF-8,
# else the record is malformed. They lie here, as numba's cache does not detect edits across files.
END, INT, LONG, BYTES, FIXED, BOOLEAN, ENUM, TAKE_INT, TAKE_LONG, TAKE_BYTES, TAKE_FIXED, TAKE_FLOAT = range(12)
TAKE_DOUBLE, TAKE_BOOLEAN, TAKE_ENUM, TAKE_DECIMAL, UNION, JUMP, ARRAY, NEXT, MARK, OPTIONAL, TIME, SLOW = range(12, 24)
ANY_BYTES, TEXT_OR_OTHER, MUST_BE_TEXT = range(3)
_TWO_63: Final = 9223372036854775808.0
_HIGH, _LOW, _ALL = U(0x8080808080808080), U(0x7F7F7F7F7F7F7F7F), U(0xFFFFFFFFFFFFFFFF)


@typed_intrinsic
def double_at(typingctx: Any, address: Any) -> Any:
    """The double at an address; any alignment."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.DoubleType().as_pointer()), align=1)

    return types.float64(types.uint64), codegen


@typed_intrinsic
def single_at(typingctx: Any, address: Any) -> Any:
    """The float of four bytes at an address, as a double; any alignment."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(builder.inttoptr(args[0], ir.FloatType().as_pointer()), align=1)
        return builder.fpext(value, ir.DoubleType())

    return types.float64(types.uint64), codegen


@typed_intrinsic
def bits_of(typingctx: Any, value: Any) -> Any:
    """The 64 bits of a double."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@kernel
def wide_number(text: Any, p: Any, end: Any) -> Any:
    """Read a varint of 2 to 10 bytes and at most 64 bits: its raw bits, and the position behind it; -1: malformed."""
    if end - p >= 8:
        word = word_at(text + U(p))
        last = ~word & _HIGH  # the highest bit of each byte that may be the last one
        if last != 0:
            bits = trailing_zeros(last) + U(1)
            word &= _LOW & (_ALL >> (U(64) - bits))
            word = (word & U(0x007F007F007F007F)) | ((word & U(0x7F007F007F007F00)) >> U(1))
            word = (word & U(0x00003FFF00003FFF)) | ((word & U(0x3FFF00003FFF0000)) >> U(2))
            word = (word & U(0x000000000FFFFFFF)) | ((word & U(0x0FFFFFFF00000000)) >> U(4))
            return word, p + np.int64(bits >> U(3))
    raw = U(0)
    shift = U(0)
    while p < end and shift < U(70):
        c = U(byte(text, p))
        p += 1
        if shift == U(63) and c > U(1):
            break
        raw |= (c & U(127)) << shift
        shift += U(7)
        if c < U(128):
            return raw, p
    return raw, np.int64(-1)


@part
def number(text: Any, p: Any, end: Any) -> Any:
    """Read a varint of at most 10 bytes and 64 bits: its raw bits, and the position behind it; -1: malformed."""
    raw = U(0)
    at = np.int64(-1)
    if p < end:
        raw = U(byte(text, p))
        at = p + 1
        if raw >= U(128):
            raw, at = wide_number(text, p, end)
    return raw, at


@part
def unzigzag(raw: Any) -> Any:
    """The number that a zigzag varint stands for."""
    return np.int64(raw >> U(1)) ^ -np.int64(raw & U(1))


@part
def small(text: Any, p: Any, end: Any) -> Any:
    """Read an Avro int, of at most five bytes and 32 bits: its raw bits, and the position behind it; -1: malformed."""
    raw, at = number(text, p, end)
    if at - p > 5 or raw > U(0xFFFFFFFF):
        at = np.int64(-1)
    return raw, at


@part
def behind_bytes(text: Any, p: Any, end: Any) -> Any:
    """Find where bytes with their length in front begin and end; an end of -1: malformed."""
    raw, begin = number(text, p, end)
    size = unzigzag(raw)
    stop = np.int64(-1)
    if begin >= 0 and 0 <= size <= end - begin:
        stop = begin + size
    return begin, stop


@part
def choice(text: Any, p: Any, end: Any, count: Any) -> Any:
    """Read the index of one of `count` symbols or branches, and the position behind it; -1: malformed."""
    raw, at = small(text, p, end)
    # An odd zigzag number is negative.
    if raw & U(1) or raw >> U(1) >= count:
        at = np.int64(-1)
    return raw >> U(1), at


@part
def floating(text: Any, at: Any, size: Any, whole: Any) -> Any:
    """Kind and number of a float of 4 or 8 bytes: its bits, or, if `whole` asks for that, the integer that it is."""
    value = single_at(text + U(at)) if size == 4 else double_at(text + U(at))
    if whole and -_TWO_63 <= value < _TWO_63 and value == np.floor(value):
        return INTEGER, np.int64(value)
    return DECIMAL if np.isfinite(value) else OTHER, bits_of(value)


@part
def next_block(text: Any, p: Any, end: Any, item_bytes: Any) -> Any:
    """Read the head of a block of an array or a map whose items have at least `item_bytes` bytes.

    Returns:
        The number of items, 0 if no block follows; where the block ends, -1 if its size is not given; and the position
        behind the head, -1: malformed.
    """
    broken = np.int64(-1)
    while True:  # one round a block; several where items are empty, whose blocks have nothing to skip
        raw, p = number(text, p, end)
        count = unzigzag(raw)
        stop = np.int64(-1)
        if p < 0 or count == 0:
            return count, stop, p
        if count < 0:  # a block that gives its size, which has to be right; the least number stays negative
            count = -count
            p, stop = behind_bytes(text, p, end)
            if stop < 0:
                return count, stop, broken
        # Bounds the rounds of the plan by the bytes of the record.
        if item_bytes > 0:
            room = ((end if stop < 0 else stop) - p) // item_bytes
            return count, stop, p if 0 < count <= room else broken
        if stop > p:
            return count, stop, broken


@kernel
def find_id(ids: Words, high: Any, low: Any) -> Any:
    """Place of an id in the sorted (m, 2) list; -1 if it is not there."""
    first, last = np.int64(0), np.int64(ids.shape[0])
    while first < last:
        middle = (first + last) // 2
        if ids[middle, 0] < high or (ids[middle, 0] == high and ids[middle, 1] < low):
            first = middle + 1
        else:
            last = middle
    if first < ids.shape[0] and ids[first, 0] == high and ids[first, 1] == low:
        return first
    return np.int64(-1)


@part
def big_endian(text: Any, p: Any, size: Any) -> Any:
    """The number of `size` bytes, at most eight, the first one highest."""
    value = U(0)
    for j in range(size):
        value = value << U(8) | U(byte(text, p + j))
    return value


@kernel
def frame(data: Bytes, p: Any, end: Any, framing: Any) -> Any:
    """The frame of a value: two halves of its id, and where its body begins; -1: malformed, -2: compressed."""
    text = first_byte(data)
    high, low = U(0), U(0)
    if framing == CONFLUENT:
        if end - p < 5 or byte(text, p) != 0:
            return high, low, np.int64(-1)
        return high, big_endian(text, p + 1, 4), np.int64(p + 5)
    if framing == APICURIO:
        if end - p < 9 or byte(text, p) != 0:
            return high, low, np.int64(-1)
        return high, big_endian(text, p + 1, 8), np.int64(p + 9)
    if framing == GLUE:
        if end - p < GLUE_BYTES or byte(text, p) != 3 or (byte(text, p + 1) != 0 and byte(text, p + 1) != 5):
            return high, low, np.int64(-1)
        high, low = big_endian(text, p + 2, 8), big_endian(text, p + 10, 8)
        return high, low, np.int64(p + GLUE_BYTES) if byte(text, p + 1) == 0 else np.int64(-2)
    return high, low, np.int64(p)


@kernel
def write_decimal(value: Any, places: Any, out: Bytes, at: Any) -> Any:
    """Write value / 10^places as a JSON number with at least one digit before the point; returns the end."""
    rest = U(value) if value >= 0 else U(0) - U(value)
    digits = np.empty(TEXT_BYTES, np.uint8)
    n = 0
    while rest != 0 or n <= places:
        tenth = rest // U(10)
        digits[n] = 48 + np.uint8(rest - tenth * U(10))
        rest = tenth
        n += 1
    if value < 0:
        out[at] = 45
        at += 1
    while n > 0:
        n -= 1
        out[at] = digits[n]
        at += 1
        if n == places and places > 0:
            out[at] = 46
            at += 1
    return at


@kernel
def scan_avro(
    data: Bytes,
    starts: Ints,
    ends: Ints,
    framing: int,
    ids: Words,
    entries: Ints,
    rows: Ints,
    jumps: Ints,
    symbols: Ints,
    status: Bytes,
    kinds: Bytes,
    found_start: Ints,
    found_end: Ints,
    texts: Bytes,
    state: Ints,
) -> int:
    """Run the plans of Avro schemas over the values of records.

    One loop, whose branches are the operations of a plan: they share the position, the row, the block that is read and
    the place of the next text, which a function for each operation would take and give back at every value.

    Args:
        data: the bytes.
        starts: (n,) where each value begins, < 0 where there is none, or, if ADJOINING, where that is to be found.
        ends: (n,) where it ends; if ADJOINING, where it ends at the latest.
        framing: BARE to ADJOINING. With the last one nothing is taken, and `found_end[0]` is where each value ends.
        ids: (m, 2) known ids, sorted; not used if BARE or ADJOINING.
        entries: (m,) first row of each id's plan, or REFUSED, or TREE.
        rows: (r, 5) rows of all plans.
        jumps: rows to which the branches of unions lead.
        symbols: bounds of the symbols of enums, counted from the end of `data`.
        status: (n,) out for the records that were read, see GOOD.
        kinds: (k, n) MISSING before; out, see `sketchstream.kernels.tokens`.
        found_start: (k, n) out: where bytes begin, or a number itself (the bits of a double, if DECIMAL); undefined for
            other kinds, as is `found_end`.
        found_end: (k, n) out: where they end; -1 for a number itself.
        texts: out: texts of decimals; they begin behind the symbols.
        state: (2,) in and out: the record to continue with, bytes of `texts` that are used.

    Returns:
        The record whose id is not known; n at the end.
    """
    text = first_byte(data)
    limit = last_run(text, data.size)
    k_slots = kinds.shape[0]
    left = np.empty(MAX_LOOPS, np.int64)  # items of the block that is read, by depth of loops
    stops = np.empty(MAX_LOOPS, np.int64)  # where that block ends; -1: not given
    n = starts.size
    known_high, known_low, known_place = U(0), U(0), np.int64(-1)
    table = first_byte(rows)
    base = np.int64(data.size)
    if symbols.size:
        base += symbols[symbols.size - 1]
    behind = np.int64(-1)  # where the value before ended, if ADJOINING
    for i in range(state[0], n):
        p = starts[U(i)]
        end = ends[U(i)]
        if framing == ADJOINING and p < 0:
            p = behind
        if p < 0:
            status[U(i)] = NO_VALUE
            continue
        pc = np.int64(0)
        if framing in (BARE, ADJOINING):
            pc = entries[0]
        else:
            if framing == CONFLUENT and end - p >= 5 and byte(text, p) == 0:
                high, low = U(0), big_endian(text, p + 1, 4)
                p += 5
            else:
                high, low, p = frame(data, p, end, framing)
            if p == -1:
                status[U(i)] = BROKEN
                continue
            if known_place < 0 or high != known_high or low != known_low:
                known_place = find_id(ids, high, low)
                if known_place < 0:
                    state[0] = i
                    return i
                known_high, known_low = high, low
            pc = entries[U(known_place)]
            if p < 0 and pc >= 0:
                pc = np.int64(TREE)
        if pc < 0:
            status[U(i)] = BROKEN if pc == REFUSED else BY_TREE
            continue
        verdict = BROKEN  # a `break` of the loop below refuses the record, unless it sets another verdict first
        while True:
            # One operation: a row of five words (op, a, b, c, optional), see `avro.plan`; op decides what a, b, c mean.
            row = table + U(40 * pc)
            op = np.int64(word_at(row))
            a = np.int64(word_at(row + U(8)))
            optional = np.int64(word_at(row + U(32)))
            pc += 1
            # A union of null and one type: the branch is 0 or 1, by zigzag 0 or 2, and null is branch optional - 1. A
            # null ends the row: its slot is null, or it passes over the rows up to a (OPTIONAL).
            if optional != 0:
                if p >= end:
                    break
                branch = U(byte(text, p))
                if branch < U(128):
                    p += 1
                else:
                    branch, p = small(text, p, end)
                    if p < 0:
                        break
                if branch > U(2) or branch & U(1):
                    break
                if branch == U(2 * (optional - 1)):
                    if op == OPTIONAL:
                        pc = a
                    elif op >= TAKE_INT:
                        kinds[U(a), U(i)] = NULL
                    continue
            # Skip a value of the type that the operation names. A negative p: malformed.
            if op == LONG:
                _, p = number(text, p, end)
                if p < 0:
                    break
            elif op == BYTES:
                if p >= end:
                    break
                # A length below 64 is one byte: 2 * length by zigzag.
                c = byte(text, p)
                if c < 128 and c & 1 == 0:
                    p += 1 + np.int64(c >> 1)
                    if p > end:
                        break
                else:
                    _, p = behind_bytes(text, p, end)
                    if p < 0:
                        break
            elif op == INT:
                _, p = small(text, p, end)
                if p < 0:
                    break
            # Rows that take: a is the slot. TAKE_BYTES: b is the check of the bytes.
            elif op == TAKE_BYTES:
                begin, p = behind_bytes(text, p, end)
                if p < 0:
                    break
                check = word_at(row + U(16))
                kind = STRING
                if check != ANY_BYTES and not is_utf8(text + U(begin), text + U(p), limit):
                    if check == MUST_BE_TEXT:
                        break
                    kind = OTHER
                kinds[U(a), U(i)] = kind
                found_start[U(a), U(i)] = begin
                found_end[U(a), U(i)] = p
            elif op == TAKE_LONG:
                raw, p = number(text, p, end)
                if p < 0:
                    break
                kinds[U(a), U(i)] = INTEGER
                found_start[U(a), U(i)] = unzigzag(raw)
                found_end[U(a), U(i)] = -1
            elif op == TAKE_INT:
                raw, p = small(text, p, end)
                if p < 0:
                    break
                kinds[U(a), U(i)] = INTEGER
                found_start[U(a), U(i)] = unzigzag(raw)
                found_end[U(a), U(i)] = -1
            elif op == END:
                verdict = GOOD if p == end or framing == ADJOINING else BROKEN
                break
            # Skip a bytes.
            elif op == FIXED:
                if end - p < a:
                    break
                p += a
            # Skip the number of one of b symbols.
            elif op == ENUM:
                _, p = choice(text, p, end, word_at(row + U(16)))
                if p < 0:
                    break
            elif op in (BOOLEAN, TAKE_BOOLEAN):
                if p >= end or byte(text, p) > 1:
                    break
                p += 1
                if op == TAKE_BOOLEAN:
                    kinds[U(a), U(i)] = OTHER
            # ARRAY begins an array or a map: a is the row behind the loop, b the least bytes of an item, c the depth of
            # loops. NEXT ends an item: a is the row of its ARRAY, c the depth.
            elif op in (ARRAY, NEXT):
                depth = np.int64(word_at(row + U(24)))
                item_bytes = np.int64(word_at(row + U(16)))
                if op == NEXT:
                    left[U(depth)] -= 1
                    if left[U(depth)] > 0:  # the next item of this block
                        pc = a + 1
                        continue
                    if stops[U(depth)] >= 0 and stops[U(depth)] != p:
                        break
                    # Continue as ARRAY, at the next block.
                    pc = a + 1
                    row = table + U(40 * a)
                    a = np.int64(word_at(row + U(8)))
                    item_bytes = np.int64(word_at(row + U(16)))
                count, stop, p = next_block(text, p, end, item_bytes)
                if p < 0:
                    break
                left[U(depth)] = count
                stops[U(depth)] = stop
                if count == 0:
                    pc = a
            # Jump to the row of one of b branches; their rows are listed in `jumps` from a on.
            elif op == UNION:
                branch, p = choice(text, p, end, word_at(row + U(16)))
                if p < 0:
                    break
                pc = jumps[U(a) + branch]
            # Behind a branch: go to the row behind the union.
            elif op == JUMP:
                pc = a
            # The kind of slot a is b, without a value.
            elif op == MARK:
                kinds[U(a), U(i)] = np.uint8(word_at(row + U(16)))
            # b bytes; c is their check.
            elif op == TAKE_FIXED:
                size = np.int64(word_at(row + U(16)))
                if end - p < size:
                    break
                kind = STRING
                if word_at(row + U(24)) != ANY_BYTES and not is_utf8(text + U(p), text + U(p + size), limit):
                    kind = OTHER
                kinds[U(a), U(i)] = kind
                found_start[U(a), U(i)] = p
                p += size
                found_end[U(a), U(i)] = p
            # One of b symbols, which are listed from c on; their texts lie behind the data.
            elif op == TAKE_ENUM:
                symbol, p = choice(text, p, end, word_at(row + U(16)))
                if p < 0:
                    break
                symbol += word_at(row + U(24))
                kinds[U(a), U(i)] = STRING
                found_start[U(a), U(i)] = data.size + symbols[symbol]
                found_end[U(a), U(i)] = data.size + symbols[symbol + U(1)]
            # b: a whole number that fits is wanted as an integer.
            elif op in (TAKE_FLOAT, TAKE_DOUBLE):
                size = np.int64(4 if op == TAKE_FLOAT else 8)
                if end - p < size:
                    break
                kind, value = floating(text, p, size, word_at(row + U(16)) != 0)
                p += size
                kinds[U(a), U(i)] = kind
                found_start[U(a), U(i)] = value
                found_end[U(a), U(i)] = -1
            # A big-endian number in two's complement, of c bytes or (c < 0) with its length in front. The low byte of b
            # is the number of digits behind the point, the bit above it is as for TAKE_DOUBLE.
            elif op == TAKE_DECIMAL:
                size = np.int64(word_at(row + U(24)))
                begin = p
                if size < 0:
                    begin, p = behind_bytes(text, p, end)
                    if p < 0:
                        break
                    size = p - begin
                elif end - p < size:
                    break
                else:
                    p += size
                if size > 8:
                    verdict = BY_TREE
                    break
                if size == 0:
                    kinds[U(a), U(i)] = OTHER
                    continue
                shift = U(64 - 8 * size)  # up and down again: the sign fills the bytes in front
                value = np.int64(big_endian(text, begin, size) << shift) >> np.int64(shift)
                places = np.int64(word_at(row + U(16)) & U(0xFF))
                whole = np.int64(1)
                for _ in range(places):
                    whole *= 10
                if places == 0 or (word_at(row + U(16)) >> U(8) != 0 and value % whole == 0):
                    kinds[U(a), U(i)] = INTEGER
                    found_start[U(a), U(i)] = value // whole
                    found_end[U(a), U(i)] = -1
                else:
                    used = state[1]
                    kinds[U(a), U(i)] = DECIMAL
                    found_start[U(a), U(i)] = base + used
                    used = write_decimal(value, places, texts, used)
                    found_end[U(a), U(i)] = base + used
                    state[1] = used
            # Copy slot b to slot a as a time: multiplied by c, or divided by -c if c < 0. Too large: of no use.
            elif op == TIME:
                source = word_at(row + U(16))
                kind = kinds[source, U(i)]
                kinds[U(a), U(i)] = kind
                value = found_start[source, U(i)]
                if kind == INTEGER:
                    factor = np.int64(word_at(row + U(24)))
                    if factor > 1 and (value > MAX_INT64 // factor or value < -(MAX_INT64 // factor)):
                        kinds[U(a), U(i)] = OTHER
                        factor = np.int64(1)
                    value = value * factor if factor > 0 else value // -factor
                found_start[U(a), U(i)] = value
                found_end[U(a), U(i)] = found_end[source, U(i)]
            # Leave the record to the tree.
            elif op == SLOW:
                verdict = BY_TREE
                break
        if verdict != GOOD:
            for k in range(k_slots):
                kinds[U(k), U(i)] = MISSING
        if framing == ADJOINING:
            behind = p if verdict == GOOD else np.int64(-1)
            found_end[U(0), U(i)] = behind
        status[U(i)] = verdict
    state[0] = n
    return n


# ------------------------------------------------------------------------------------------------ Protobuf

# Operations of the rows of plans.
P_DESCEND, P_UNSIGNED, P_SIGNED, P_ZIGZAG, P_WORD32, P_SIGNED32, P_WORD64, P_SIGNED64, P_SINGLE, P_DOUBLE = range(10)
P_TEXT, P_RAW, P_ENUM, P_USELESS, P_CLEAR, P_ZIGZAG32, P_LOW32, P_SIGN32 = range(10, 18)
MAX_DEPTH: Final = 64
"""Most messages, or groups, inside of each other that the loop enters."""
MAX_INDEXES: Final = 4
LOOKED_UP: Final = 64
"""Numbers of fields below this one are looked up; for the others all rows of the node are compared."""
UNSIGNED_BYTES: Final = 20
"""Digits of an unsigned number above the largest int64."""


@kernel
def message_indexes(data: Bytes, p: Any, end: Any) -> Any:
    """The path of a message in its file, packed into one word, 16 bits a level; and the position behind it, or -1."""
    text = first_byte(data)
    raw, p = number(text, p, end)
    count = unzigzag(raw)
    if p < 0 or count < 0 or count > MAX_INDEXES:
        return U(0), np.int64(-1)
    if count == 0:
        return U(1), p
    packed = U(0)
    for level in range(count):
        raw, p = number(text, p, end)
        index = unzigzag(raw)
        if p < 0 or index < 0 or index >= 0xFFFF:
            return U(0), np.int64(-1)
        packed |= U(index + 1) << U(16 * level)
    return packed, p


@part
def integer(op: Any, raw: Any, text: Any, begin: Any) -> Any:
    """The integer of a field: of its varint, or of the word at `begin`; an unsigned one has its 64 bits."""
    if op in (P_SIGNED, P_UNSIGNED):
        return np.int64(raw)
    if op == P_ZIGZAG:
        return unzigzag(raw)
    if op in (P_WORD64, P_SIGNED64):
        return np.int64(word_at(text + U(begin)))
    low = raw & U(0xFFFFFFFF)
    if op in (P_WORD32, P_SIGNED32):
        low = U(0)
        for j in range(4):
            low |= U(byte(text, begin + j)) << U(8 * j)
    if op == P_ZIGZAG32:
        return unzigzag(low)
    return np.int64(np.int32(low)) if op in (P_SIGN32, P_SIGNED32) else np.int64(low)


@kernel
def skip_group(text: Any, p: Any, end: Any, tag: Any) -> Any:
    """Position behind a group whose start was read; -1: malformed."""
    keep_apart()
    opened = np.empty(MAX_DEPTH, np.uint64)
    opened[0] = tag >> U(3)
    depth = 1
    while depth > 0:
        tag, q = number(text, p, end)
        if q < 0 or q - p > 5 or tag > U(0xFFFFFFFF) or tag >> U(3) == 0:
            return np.int64(-1)
        p = q
        wire = tag & U(7)
        if wire == 0:
            _, p = number(text, p, end)
        elif wire == 1:
            p += 8
        elif wire == 5:
            p += 4
        elif wire == 2:
            size, p = number(text, p, end)
            if p < 0 or size > U(end - p):
                return np.int64(-1)
            p += np.int64(size)
        elif wire == 3:
            if depth == MAX_DEPTH:
                return np.int64(-1)
            opened[depth] = tag >> U(3)
            depth += 1
        elif wire == 4:
            depth -= 1
            if opened[depth] != tag >> U(3):
                return np.int64(-1)
        else:
            return np.int64(-1)
        if p < 0 or p > end:
            return np.int64(-1)
    return p


@kernel
def scan_protobuf(
    data: Bytes,
    starts: Ints,
    ends: Ints,
    framing: int,
    ids: Words,
    entries: Ints,
    nodes: Ints,
    rows: Ints,
    defaults: Ints,
    numbers: Ints,
    symbols: Ints,
    status: Bytes,
    kinds: Bytes,
    found_start: Ints,
    found_end: Ints,
    texts: Bytes,
    state: Ints,
) -> int:
    """Run the plans of Protobuf messages over the values of records.

    One loop over the fields of a message and of those inside it, for the reason that `scan_avro` gives: position, node
    and the ends of outer messages change at every field.

    Args:
        data: the bytes.
        starts: (n,) where each value begins, < 0 where there is none.
        ends: (n,) where it ends.
        framing: BARE to GLUE.
        ids: (m, 2) known ids, sorted: message indexes, and the id of the file.
        entries: (m,) first node of each plan, or REFUSED.
        nodes: (nodes, 4 + LOOKED_UP) see `decode.protobuf.plan.MessagePlan`.
        rows: (rows, 6) likewise.
        defaults: (defaults, 3) likewise.
        numbers: values of enums.
        symbols: bounds of their names, counted from the end of `data`.
        status: (n,) out.
        kinds: (k, n) MISSING before; out.
        found_start: (k, n) out, as of `scan_avro`.
        found_end: (k, n) out.
        texts: (k n UNSIGNED_BYTES,) out: digits of large unsigned numbers, a place for each slot and record.
        state: (1,) in and out: the record to continue with.

    Returns:
        The record whose id is not known; n at the end.
    """
    text = first_byte(data)
    limit = last_run(text, data.size)
    node_table, row_table, default_table = first_byte(nodes), first_byte(rows), first_byte(defaults)
    k_slots = kinds.shape[0]
    n = starts.size
    base = np.int64(data.size) + symbols[symbols.size - 1]
    outer_end = np.empty(MAX_DEPTH, np.int64)  # where the messages around this one end, by depth
    outer_node = np.empty(MAX_DEPTH, np.int64)  # and their nodes
    known_high, known_low, known_place = U(0), U(0), np.int64(-1)
    for i in range(state[0], n):
        p = starts[U(i)]
        end = ends[U(i)]
        if p < 0:
            status[U(i)] = NO_VALUE
            continue
        node = np.int64(0)
        if framing == BARE:
            node = entries[0]
        else:
            if framing == CONFLUENT and end - p >= 5 and byte(text, p) == 0:
                low = big_endian(text, p + 1, 4)
                p += 5
            else:
                _, low, p = frame(data, p, end, framing)
            high = U(1)
            if p >= 0:
                if p < end and byte(text, p) == 0:
                    p += 1
                else:
                    high, p = message_indexes(data, p, end)
            if p < 0:
                status[U(i)] = BROKEN
                continue
            if known_place < 0 or high != known_high or low != known_low:
                known_place = find_id(ids, high, low)
                if known_place < 0:
                    state[0] = i
                    return i
                known_high, known_low = high, low
            node = entries[U(known_place)]
        if node < 0:
            status[U(i)] = BROKEN
            continue
        verdict = BROKEN  # a `break` of the loop below refuses the record, unless it sets another verdict first
        depth = np.int64(0)
        entered = True
        stop = end
        while True:
            # A message begins: the slots of its fields without presence get their defaults, which fields that come
            # replace. If a part of the same message came before, what that part set stays.
            if entered:
                entered = False
                here = node_table + U(8 * (4 + LOOKED_UP) * node)
                default = default_table + U(24) * word_at(here + U(16))
                last_default = default_table + U(24) * word_at(here + U(24))
                while default < last_default:
                    slot, usual = np.int64(word_at(default)), np.uint8(word_at(default + U(8)))
                    symbol = np.int64(word_at(default + U(16)))
                    default += U(24)
                    if kinds[U(slot), U(i)] != MISSING:
                        continue
                    kinds[U(slot), U(i)] = usual
                    if usual != STRING:
                        found_start[U(slot), U(i)] = 0
                        found_end[U(slot), U(i)] = -1
                    elif symbol < 0:
                        found_start[U(slot), U(i)] = 0
                        found_end[U(slot), U(i)] = 0
                    else:
                        found_start[U(slot), U(i)] = data.size + symbols[U(symbol)]
                        found_end[U(slot), U(i)] = data.size + symbols[U(symbol + 1)]
            # At its end: back to the message around it. Every p is at most `stop`, so it is met exactly.
            if p == stop:
                if depth == 0:
                    verdict = GOOD
                    break
                depth -= 1
                stop = outer_end[U(depth)]
                node = outer_node[U(depth)]
                here = node_table + U(8 * (4 + LOOKED_UP) * node)
                continue
            # One field: its tag (number * 8 + wire type), at most 32 bits, of which the number is not 0.
            tag = U(byte(text, p))
            if tag < U(128):
                p += 1
            else:
                before = p
                tag, p = number(text, p, stop)
                if p < 0 or p - before > 5 or tag > U(0xFFFFFFFF):
                    break
            if tag < U(8):
                break
            wire = tag & U(7)
            # The value lies from `begin` to p; a varint is in `raw`.
            begin = p
            raw = U(0)
            if wire == U(0):
                raw, p = number(text, p, stop)
                if p < 0:
                    break
            elif wire == U(2):
                raw, begin = number(text, p, stop)
                if begin < 0 or raw > U(stop - begin):
                    break
                p = begin + np.int64(raw)
            elif wire == U(5):
                if stop - p < 4:
                    break
                p += 4
            elif wire == U(1):
                if stop - p < 8:
                    break
                p += 8
            elif wire == U(3):
                p = skip_group(text, p, stop, tag)
                if p < 0:
                    break
            else:
                break
            # First row of this number; of numbers that are not looked up, the node's first row.
            r = np.int64(word_at(here + U(32) + tag - wire if tag < U(8 * LOOKED_UP) else here))
            if r < 0:
                continue
            good = True
            inner = np.int64(-1)
            # One row for each slot that wants this field, in the order of their tags: tag, op, a (slot, or inner node),
            # flag or first symbol, number of symbols, mask of slots to clear.
            row = row_table + U(48 * r)
            behind = row_table + U(48) * word_at(here + U(8))
            while row < behind and word_at(row) <= tag:
                this = row
                row += U(48)
                if word_at(this) != tag:
                    continue
                op = np.int64(word_at(this + U(8)))
                a = np.int64(word_at(this + U(16)))
                # Of a oneof the last member holds: what the others set is missing again.
                clear = np.int64(word_at(this + U(40)))
                if clear != 0:
                    for k in range(k_slots):
                        if (clear >> k) & 1:
                            kinds[U(k), U(i)] = MISSING
                if op == P_DESCEND:
                    inner = a
                    continue
                if op == P_CLEAR:
                    continue
                # What goes into slot a: kind, the number or where a text begins, -1 or where it ends.
                kind = INTEGER
                value = np.int64(0)
                last = np.int64(-1)
                if op in (P_TEXT, P_RAW):
                    kind = STRING
                    value, last = begin, p
                    checked = op == P_TEXT or word_at(this + U(24)) != 0
                    if checked and not is_utf8(text + U(begin), text + U(p), limit):
                        if op == P_TEXT:
                            good = False
                            break
                        kind = OTHER
                elif op == P_ENUM:
                    value = integer(P_SIGN32, raw, text, begin)
                    first = np.int64(word_at(this + U(24)))
                    for s in range(first, first + np.int64(word_at(this + U(32)))):
                        if numbers[U(s)] == value:
                            kind = STRING
                            value, last = data.size + symbols[U(s)], data.size + symbols[U(s + 1)]
                            break
                elif op == P_USELESS:
                    kind = OTHER
                elif op in (P_SINGLE, P_DOUBLE):
                    kind, value = floating(text, begin, p - begin, word_at(this + U(24)) != 0)
                else:
                    value = integer(op, raw, text, begin)
                    if value < 0 and op in (P_UNSIGNED, P_WORD64):
                        # Above the largest int64: its digits, at a place of this slot and record.
                        rest = U(value)
                        used = UNSIGNED_BYTES * (a * n + i)
                        for j in range(UNSIGNED_BYTES):
                            texts[U(used + UNSIGNED_BYTES - 1 - j)] = np.uint8(48) + np.uint8(rest % U(10))
                            rest //= U(10)
                        skip = 1 if texts[U(used)] == 48 else 0
                        value, last = base + used + skip, base + used + UNSIGNED_BYTES
                kinds[U(a), U(i)] = kind
                found_start[U(a), U(i)] = value
                found_end[U(a), U(i)] = last
            if not good:
                break
            # Enter the message that this field holds; what follows it is read when that has ended.
            if inner >= 0:
                if depth == MAX_DEPTH:
                    break
                outer_end[U(depth)] = stop
                outer_node[U(depth)] = node
                depth += 1
                stop = p
                p = begin
                node = inner
                entered = True
        if verdict != GOOD:
            for k in range(k_slots):
                kinds[U(k), U(i)] = MISSING
        status[U(i)] = verdict
    state[0] = n
    return n
