"""Twins of the loops that small batches call: the same results, several times slower, nothing to compile.

In: what the compiled loops take. Out: the same arrays, filled with the same numbers. Touches: nothing else.
Source: Aumasson & Bernstein 2012 (SipHash); docs/theory/profile.md 6 (levels and slots).

Compiling the loops takes seconds, more than all the work of a small batch: `compilation.use_numpy_twin` decides which
one runs. The twins know hashed items, ids and listed items. Memory that held items, hashes or slots is cleared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels.addition import ERROR, NOOP
from sketchstream.kernels.machine_code import U64
from sketchstream.kernels.packing import BLOBS, INTS, TEXTS
from sketchstream.kernels.routing import HASHED, IDS, LISTED, NEVER, NOWHERE, UNSAMPLED

_WORD = 8
"""Bytes of a word of SipHash."""
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_FINAL = np.uint64(0xFF)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_CALL, _ROUND = 1024, 128
"""Items whose hashes cost as much as the calls of numpy for a batch, and as those that absorb one more word."""
ROUTES = (HASHED, IDS, LISTED, NEVER)
"""Ways of routes that the twins know."""


INTEGER_WORK, TEXT_WORK = 4, 2
"""Elements of `compilation.use_numpy_twin` that reading one decimal text costs, and finding one text."""
SPANS = 64
"""Spans that are checked in the time of an element of `compilation.use_numpy_twin`."""
_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]{0,19})")


def read_integers(data: Bytes, starts: Ints, ends: Ints, valid: Any, unsigned: bool, out: Ints) -> None:
    """Read decimal texts; see `texts.read_integers`."""
    out[:] = 0
    least, limit = -(1 << 63), (1 << 64 if unsigned else 1 << 63)
    for i, text in _texts(data, starts, ends, valid):
        number = int(text) if _INTEGER.fullmatch(text) else limit
        valid[i] = least <= number < limit
        if valid[i]:
            out[i] = number - (1 << 64) if number >> 63 > 0 else number


def find_texts(data: Bytes, starts: Ints, ends: Ints, valid: Any, places: Mapping[bytes, int], out: Any) -> None:
    """Find the positions of texts in a list, -1 for others; see `texts.find_texts`.

    Args:
        data: buffer of the texts.
        starts: (n,) starts of the texts.
        ends: (n,) ends of the texts.
        valid: (n,) whether there is a text.
        places: position of each text of the list.
        out: (n,) int32, filled in.
    """
    out[:] = -1
    for i, text in _texts(data, starts, ends, valid):
        out[i] = places.get(text, -1)


def check_spans(starts: Any, ends: Any, size: int) -> int:
    """Find the first span that is not within 0..size; see `packing.check_spans`."""
    bad = np.flatnonzero((starts < 0) | (ends < starts) | (ends > size))
    return int(bad[0]) if len(bad) else -1


def _texts(data: Bytes, starts: Ints, ends: Ints, valid: Any) -> Iterator[tuple[int, bytes]]:
    """The texts that are there, each with its place among all."""
    present = np.flatnonzero(valid)
    for i, start, end in zip(present.tolist(), starts[present].tolist(), ends[present].tolist(), strict=True):
        yield i, data.data[start:end].tobytes()


def clear(arrays: Iterable[npt.NDArray[Any]]) -> None:
    """Overwrite scratch memory with zeros."""
    for array in arrays:
        array[...] = 0


def work_of(items: int, longest: int) -> int:
    """Size of a batch for `compilation.use_numpy_twin`: its items, and what calls of numpy cost however few they are.

    Args:
        items: number of items.
        longest: bytes of the longest one.
    """
    return items + _CALL + _ROUND * (longest // _WORD)


class _State:
    """The state of SipHash-2-4 for n messages side by side."""

    def __init__(self, n: int, key0: Any, key1: Any) -> None:
        self.v = np.empty((4, n), np.uint64)
        self._other = np.empty(n, np.uint64)
        for row, (key, word) in enumerate(zip((key0, key1, key0, key1), _START, strict=True)):
            self.v[row] = np.uint64(key) ^ np.uint64(word)

    def _turn(self, word: U64, bits: int, other: U64) -> None:
        """Rotate to the left."""
        np.right_shift(word, np.uint64(64 - bits), out=other)
        np.left_shift(word, np.uint64(bits), out=word)
        word |= other

    def _rounds(self, times: int, n: int) -> None:
        """SipRounds on the first n messages."""
        v0, v1, v2, v3 = self.v[:, :n]
        other = self._other[:n]
        for _ in range(times):
            v0 += v1
            v2 += v3
            self._turn(v1, 13, other)
            self._turn(v3, 16, other)
            v1 ^= v0
            v3 ^= v2
            self._turn(v0, 32, other)
            v2 += v1
            v0 += v3
            self._turn(v1, 17, other)
            self._turn(v3, 21, other)
            v1 ^= v2
            v3 ^= v0
            self._turn(v2, 32, other)

    def absorb(self, words: U64) -> None:
        """Absorb one word into each of the first len(words) messages."""
        n = len(words)
        self.v[3, :n] ^= words
        self._rounds(2, n)
        self.v[0, :n] ^= words

    def finish(self, out: U64) -> None:
        """Write the finished hashes."""
        self.v[2] ^= _FINAL
        self._rounds(4, len(out))
        np.bitwise_xor.reduce(self.v, axis=0, out=out)

    def clear(self) -> None:
        """Erase the state of the hashes."""
        clear((self.v, self._other))


def hash_ints(items: Ints, key0: Any, key1: Any, out: U64) -> None:
    """SipHash-2-4 of each int64 as eight little-endian bytes."""
    state = _State(len(out), key0, key1)
    try:
        state.absorb(items[: len(out)].view(np.uint64))
        state.absorb(np.full(len(out), _WORD << 56, np.uint64))
        state.finish(out)
    finally:
        state.clear()


def hash_spans(buffer: Bytes, starts: npt.NDArray[Any], ends: npt.NDArray[Any], key0: Any, key1: Any, out: U64) -> None:
    """SipHash-2-4 of each buffer[starts[i]:ends[i]]: the longest strings first, so that those with a word k lead."""
    n = len(out)
    sizes = (ends - starts).astype(np.int64)
    order = np.argsort(-(sizes // _WORD), kind="stable")
    sizes = sizes[order]
    first = starts[order].astype(np.int64)
    whole = sizes // _WORD
    state = _State(n, key0, key1)
    places = np.empty((n, _WORD), np.int64)
    piece = np.empty((n, _WORD), np.uint8)
    hashed = np.empty(n, np.uint64)
    steps = np.arange(_WORD)
    last = max(len(buffer) - 1, 0)
    try:
        for k in range(int(whole[0]) + 1 if n else 0):
            here = int(np.searchsorted(-whole, -k, side="right"))  # messages with a word number k
            np.add(first[:here, None] + _WORD * k, steps, out=places[:here])
            np.minimum(places[:here], last, out=places[:here])
            if len(buffer):
                np.take(buffer, places[:here], out=piece[:here], mode="clip")
            ending = int(np.searchsorted(-whole, -k, side="left"))  # from this one on it is the last word
            rest = piece[ending:here]
            rest[steps >= (sizes[ending:here] - _WORD * k)[:, None]] = 0
            rest[:, _WORD - 1] = sizes[ending:here] & 0xFF
            state.absorb(piece[:here].view("<u8")[:, 0])
        state.finish(hashed)
        out[order] = hashed
    finally:
        state.clear()
        clear((places, piece, hashed, first, sizes, whole))


def _spread_hashes(hashes: U64, per_level: int, last_level: int) -> None:
    """Hash to slot, in place: level = trailing zeros, capped; slot in level = high word of hash * per_level."""
    low, high = np.uint64(per_level & 0xFFFFFFFF), np.uint64(per_level >> 32)
    upper, lower = hashes >> _HALF, hashes & _LOW
    part, zeros = lower * low, np.empty(len(hashes), np.bool_)
    middle, cross, place = upper * low, lower * high, upper * high
    try:
        part >>= _HALF
        middle += part
        cross += np.bitwise_and(middle, _LOW, out=part)
        middle >>= _HALF
        cross >>= _HALF
        place += middle
        place += cross
        for level in range(last_level):  # one level more for each further low bit that is zero
            np.bitwise_and(hashes, np.uint64((2 << level) - 1), out=part)
            np.equal(part, np.uint64(0), out=zeros)
            place += np.multiply(zeros, np.uint64(per_level), out=part)
        hashes[:] = place
    finally:
        clear((upper, lower, part, zeros, middle, cross, place))


def fill_table(hashes: U64, table: U64) -> None:
    """Open addressing, linear probing; see `routing.fill_table`."""
    mask = len(table) - 1
    taken, places = bytearray(len(table)), []
    for home in (hashes & np.uint64(mask)).tolist():
        place = home
        while taken[place]:
            place = (place + 1) & mask
        taken[place] = 1
        places.append(place)
    table[places, 0] = hashes
    table[places, 1] = np.arange(1, len(hashes) + 1, dtype=np.uint64)


def _look_up(route: Any, out: U64, same: Callable[[Ints, Ints], npt.NDArray[np.bool_]]) -> None:
    """Slot of each listed item, or NOWHERE.

    Args:
        route: the route that has the table.
        out: hashes of the items; overwritten with their slots.
        same: says which of these items, by position, are those of the list at the positions beside them.
    """
    mask = np.uint64(len(route.table) - 1)
    hashes, places, left = out.copy(), out & mask, np.arange(len(out))
    out[:] = NOWHERE
    scratch: list[npt.NDArray[Any]] = [hashes, places]
    try:
        while len(left):  # one place of the table further for each item that is not decided
            place, hashed = places[left], hashes[left]
            rows = route.table[place.view(np.int64)]
            undecided = rows[:, 1] != 0
            alike = np.flatnonzero(undecided & (rows[:, 0] == hashed))
            listed = rows[alike, 1].view(np.int64)
            listed -= 1
            equal = same(left[alike], listed)  # equal hashes are no proof
            positions = listed[equal]
            slots = route.slots[positions]
            out[left[alike[equal]]] = slots
            place += np.uint64(1)
            place &= mask
            places[left] = place
            scratch += [place, hashed, rows, listed, positions, slots]
            undecided[alike[equal]] = False
            left = left[undecided]
    finally:
        clear(scratch)


def locate_ints(items: Ints, route: Any, out: U64) -> None:
    """Slot of each int, NOWHERE or UNSAMPLED."""
    if route.way == HASHED:
        hash_ints(items, route.key0, route.key1, out)
        _spread_hashes(out, int(route.per_level), int(route.last_level))
    elif route.way == IDS:
        out[:] = items.view(np.uint64)
        out[out >= route.size] = NOWHERE
    elif route.way == LISTED:
        hash_ints(items, route.key0, route.key1, out)

        def same(events: Ints, listed: Ints) -> npt.NDArray[np.bool_]:
            copies = items[events], route.ints[listed]
            equal: npt.NDArray[np.bool_] = copies[0] == copies[1]
            clear(copies)
            return equal

        _look_up(route, out, same)
    else:
        out[:] = NOWHERE


def locate_spans(buffer: Bytes, starts: npt.NDArray[Any], ends: npt.NDArray[Any], route: Any, out: U64) -> None:
    """Slot of each string, NOWHERE or UNSAMPLED."""
    if route.way not in (HASHED, LISTED):
        out[:] = NOWHERE
        return
    hash_spans(buffer, starts, ends, route.key0, route.key1, out)
    if route.way == HASHED:
        _spread_hashes(out, int(route.per_level), int(route.last_level))
        return
    with buffer.data as here, route.buffer.data as there:

        def same(events: Ints, listed: Ints) -> npt.NDArray[np.bool_]:
            bounds = (starts[events], ends[events], route.starts[listed], route.ends[listed])
            spans = zip(*(bound.tolist() for bound in bounds), strict=True)
            equal = (here[start:end] == there[first:last] for start, end, first, last in spans)
            return np.fromiter(equal, np.bool_, len(events))

        _look_up(route, out, same)


def add(
    state: npt.NDArray[Any],
    slots: U64,
    weights: npt.NDArray[Any],
    max_weight: int,
    modulus: int,
    sign: int,
    mode: int,
    done: Ints,
    counters: Ints,
) -> bool:
    """Add a batch of located items; False: an event is invalid, and nothing was added.

    The state, the number of events done and the counters change together: an interrupt between the three puts the
    former values back.

    Args:
        state: (slots,) counters, changed in place.
        slots: (n,) slots, NOWHERE or UNSAMPLED; overwritten with zeros.
        weights: (n,) int32 or int64, or (0,) for ones.
        max_weight: largest absolute weight of valid events; 0: any weight is valid.
        modulus: modulus of the counters, or 0: they wrap.
        sign: 1 to add, -1 to subtract the same events.
        mode: what an invalid event does, see `addition`.
        done: (1,) number of events gone by; the n events are added to it.
        counters: (0,), (1,) or (2,) sum of the weights applied, and number of events counted.
    """
    n = len(slots)
    amounts = weights.astype(np.int64) if len(weights) else np.ones(n, np.int64)
    inside = slots < np.uint64(len(state))
    valid = np.ones(n, np.bool_)
    if max_weight and len(weights):
        valid = (amounts <= max_weight) & (amounts >= -max_weight)
    scratch: list[npt.NDArray[Any]] = [slots, amounts, inside, valid]
    try:
        if (mode != NOOP and not valid.all()) or (mode == ERROR and (slots == NOWHERE).any()):
            return False
        unsampled = int(((slots == UNSAMPLED) & valid).sum())
        inside &= valid
        inner, amounts = slots[inside].view(np.int64), amounts[inside]
        with np.errstate(over="ignore"):
            total = amounts.sum() * np.int64(sign)
        signed = np.remainder(amounts, modulus) * sign if modulus else amounts * np.int64(sign)
        order = np.argsort(inner)
        chosen, amounts_in_order = inner[order], signed[order]
        scratch += [inner, amounts, signed, order, chosen, amounts_in_order]
        begins = np.flatnonzero(np.diff(chosen, prepend=-1))
        touched = chosen[begins]
        before = state[touched]
        after = before.astype(np.int64)
        scratch += [begins, touched, before, after]
        if len(touched):
            after += np.add.reduceat(amounts_in_order, begins)
        if modulus:
            after %= modulus
        _write(
            state,
            touched,
            before,
            after.astype(state.dtype),
            done,
            n,
            counters,
            (total, sign * (len(chosen) + unsampled)),
        )
    finally:
        clear(scratch)
    return True


def _write(
    state: npt.NDArray[Any],
    touched: Ints,
    before: npt.NDArray[Any],
    after: npt.NDArray[Any],
    done: Ints,
    n: int,
    counters: Ints,
    sums: Sequence[Any],
) -> None:
    """Change the state, the number of events done and the counters, all or none."""
    was, kept = done[0], counters.copy()
    try:
        state[touched] = after
        counters += np.array(sums[: len(counters)], np.int64)
        done[0] = was + n
    except BaseException:
        state[touched] = before
        counters[:] = kept
        done[0] = was
        raise
    finally:
        after[...] = 0


def read_packed(packed: Bytes, kind: int, starts: Ints, ends: Ints, values: Ints) -> int:
    """Read the positions of the items of a msgpack array (`starts`, `ends`), or their values (`values`, ints).

    Returns the number of items, from the first on, of the expected kind.
    """
    with packed.data as view:
        return _read_ints(view, values) if kind == INTS else _read_strings(view, kind, starts, ends)


_FIXED = range(0xA0, 0xC0)
"""Tags of strings of fewer than 32 bytes, which hold the length."""
_LENGTHS = {TEXTS: range(0xD9, 0xDC), BLOBS: range(0xC4, 0xC7)}
"""Tags before a length of 1, 2 or 4 bytes."""
_UNSIGNED, _SIGNED = range(0xCC, 0xD0), range(0xD0, 0xD4)
"""Tags before an integer of 1, 2, 4 or 8 bytes."""
_NEGATIVE = 0xE0
"""Tags from this one on are the integers -32 to -1; those below 0x80 are the integers 0 to 127."""
_MAX_INT64 = (1 << 63) - 1
"""Largest integer item."""


def _first_item_offset(n: int) -> int:
    """Position of the first item of a msgpack array of n."""
    return 1 if n < 16 else 3 if n < 1 << 16 else 5


def _read_ints(view: memoryview, values: Ints) -> int:
    """Read the leading integers of at most 64 bits; returns their number."""
    at = _first_item_offset(len(values))
    for i in range(len(values)):
        tag = view[at]
        at += 1
        if tag < 0x80 or tag >= _NEGATIVE:
            value = tag if tag < 0x80 else tag - 256
        elif tag in _UNSIGNED or tag in _SIGNED:
            signed = tag in _SIGNED
            width = 1 << (tag - (_SIGNED if signed else _UNSIGNED).start)
            value = int.from_bytes(view[at : at + width], "big", signed=signed)
            at += width
        else:
            return i
        if value > _MAX_INT64:
            return i
        values[i] = value
    return len(values)


def _read_strings(view: memoryview, kind: int, starts: Ints, ends: Ints) -> int:
    """Read the positions of the leading strings of one kind; returns their number."""
    at = _first_item_offset(len(starts))
    lengths = _LENGTHS[kind]
    for i in range(len(starts)):
        tag = view[at]
        at += 1
        if kind == TEXTS and tag in _FIXED:
            length = tag - _FIXED.start
        elif tag in lengths:
            width = 1 << (tag - lengths.start)
            length = int.from_bytes(view[at : at + width], "big")
            at += width
        else:
            return i
        starts[i] = at
        at += length
        ends[i] = at
    return len(starts)
