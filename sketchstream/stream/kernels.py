"""Compiled loops of the stream: admission by watermark, assignment to windows, recomputation of partitions.

In: plain arrays and numbers, checked by the callers. Out: arrays filled in place, and a few numbers. Touches: nothing.
Source: docs/streams.md (the watermark's quorum); Apache Kafka's `Utils.murmur2` (Appleby's MurmurHash2, seed
0x9747b28c); librdkafka's `rd_crc32` (CRC-32, IEEE) and `rd_fnv1a`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels import kernel

U64 = npt.NDArray[np.uint64]

ADMITTED, FUTURE, UNREADABLE = 0, 1, 2
"""Verdicts on a record before windows are looked at."""

OUT, LATE = -1, -2
"""Marks, in place of a window, for a record that goes to none: it was not admitted, or it is late."""

MURMUR2, CRC32, FNV1A = 0, 1, 2
"""Hash functions of the partitioners."""


class WatermarkRule(NamedTuple):
    """Which times are valid, and when the watermark moves.

    Args:
        earliest: event times below it count as unreadable, ms.
        latest: event times from it on count as unreadable, ms.
        lateness: how long windows stay open behind the watermark, ms.
        slice_ms: width of a slice of time.
        quorum: records, and slices, that must agree.
        most: records that are enough without as many slices.
    """

    earliest: int
    latest: int
    lateness: int
    slice_ms: int
    quorum: int
    most: int


class Votes(NamedTuple):
    """The votes for r target times, nearest target first.

    Args:
        scores: (r,) votes in eighths; never rising.
        lowest: (r,) smallest time that a supporter vouches for, ms.
        slices: (r,) bit set of the slices of time that the supporters' times fall into.
    """

    scores: Ints
    lowest: Ints
    slices: U64


class Judged(NamedTuple):
    """What `admit` found, beside the watermark and the verdict of each record.

    Args:
        watermark: watermark after the last record.
        top: how many targets have votes then.
        low: smallest admitted time; meaningless if none was.
        high: largest admitted time; meaningless if none was.
        future: number of future records.
        unreadable: number of unreadable records.
        early: number of records that vouch for more than the watermark + lateness.
        jumps: number of moves by more than the lateness.
        jumped_at: index of the record that caused the last one; -1 if there was none.
    """

    watermark: int
    top: int
    low: int
    high: int
    future: int
    unreadable: int
    early: int
    jumps: int
    jumped_at: int


@kernel
def _distinct_slices(mask: Any) -> Any:
    """Number of bits set in a uint64."""
    # Bits are summed by pairs, fours and bytes; the product sums the eight bytes in its top byte.
    pairs = mask - ((mask >> np.uint64(1)) & np.uint64(0x5555555555555555))
    fours = (pairs & np.uint64(0x3333333333333333)) + ((pairs >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bytes_ = (fours + (fours >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bytes_ * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def _targets_reached(number: Any, base: Any, target_times: Any) -> Any:
    """How many targets after slice `base` are at or before slice `number`: those i with (number >> i) > (base >> i)."""
    if number <= base:
        return 0
    # number > base, so (number >> i) > (base >> i) as long as some bit from i on differs: for i below the xor's length.
    differing = number ^ base
    # Signs differ: so does the top bit, and every target is passed.
    if differing < 0:
        return target_times
    n = 0
    while differing:
        differing >>= 1
        n += 1
    return min(n, target_times)


@kernel
def move(before: Any, after: Any, top: Any, votes: Votes) -> Any:
    """Carry the votes over to the targets that follow a later watermark.

    Target i after slice s of time is slice ((s >> i) + 1) << i: the next multiple of 2^i slices. A vote for a later
    time is also one for an earlier time, so each new target takes the votes of the first old target that is not before
    it.

    Args:
        before: slice of the old watermark.
        after: slice of the new one.
        top: how many targets had votes.
        votes: changed in place.

    Returns:
        How many targets have votes now.
    """
    scores, lowest, slices = votes
    old = 0
    left = 0
    for i in range(top):
        target = (after >> i) + 1 << i
        # votes from i on are still there; an old target before i that is not before the new one equals old target i
        old = max(old, i)
        while old < top and (before >> old) + 1 << old < target:
            old += 1
        if old == top:
            break
        scores[i] = scores[old]
        lowest[i] = lowest[old]
        slices[i] = slices[old]
        left = i + 1
    # Scores alone are cleared: the first vote for a target (score 0) sets `lowest` and `slices` again.
    for i in range(left, top):
        scores[i] = 0
    return left


@kernel
def admit(
    times: Ints,
    stamps: Ints,
    future_after: Any,
    rule: WatermarkRule,
    watermark: Any,
    top: Any,
    votes: Votes,
    before: Ints,
    verdict: Bytes,
) -> Any:
    """Judge n records in offset order, and move the watermark when a quorum of them agrees.

    An admitted record vouches for the smaller of its event time and its own timestamp. It supports each target up to
    that time (+1). It votes against a target that its own clock had not reached (-3; -1/8 if that clock is behind
    all open windows), and weakly against one that its clock had reached but its event time had not (-1/8). A target is
    passed when its score is at least `quorum` and its supporters fall into as many different slices of time, or when
    the score is `most`; the watermark moves to the smallest time of these supporters.

    One function on purpose: each record meets the watermark and the votes that the one before it left, so nothing can
    be computed for all records first.

    Args:
        times: (n,) event times, ms.
        stamps: (n,) the records' own timestamps, ms, negative where a record has none: its event time replaces it; (0,)
            if the source has none.
        future_after: event times beyond it are refused as future.
        rule: when the watermark moves.
        watermark: watermark before the first record.
        top: how many targets have votes.
        votes: changed in place.
        before: (n,) filled with the watermark before each record.
        verdict: (n,) filled with ADMITTED, FUTURE or UNREADABLE; only admitted records have a vote.

    Returns:
        A `Judged`.
    """
    earliest, latest, lateness, slice_ms, quorum, most = rule
    scores, lowest, slices = votes
    stamped = stamps.size > 0
    n_future = 0
    n_unreadable = 0
    n_early = 0
    n_jumps = 0
    jumped_at = -1
    low = latest
    high = earliest
    # In eighths of a vote, so that the weak objection of 1/8 is a whole number.
    enough = 8 * quorum
    full = 8 * most
    base = max(watermark, earliest)
    base_slice = base // slice_ms
    # Where the nearest target begins: a record that vouches for less supports none.
    first = (base_slice + 1) * slice_ms
    for i in range(times.size):
        before[i] = watermark
        time = times[i]
        if time < earliest or time >= latest:
            verdict[i] = UNREADABLE
            n_unreadable += 1
            continue
        if time > future_after:
            verdict[i] = FUTURE
            n_future += 1
            continue
        verdict[i] = ADMITTED
        low = min(low, time)
        high = max(high, time)
        clock = time
        if stamped and stamps[i] >= 0:
            clock = stamps[i]
        testified = min(time, clock)
        # It supports no target, and there is none that it could object to.
        if testified < first and top == 0:
            continue
        supported = 0
        passed = False
        if testified >= first:
            if testified > base + lateness and watermark >= earliest:
                n_early += 1
            number = testified // slice_ms
            # Targets ascend with r: a time supports the first `supported` of them.
            supported = _targets_reached(number, base_slice, scores.size)
            # slices 64 apart share a bit unless the higher digits shift it: a period would always meet the same one
            shift = np.uint64(number >> 6) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(58)
            bit = np.uint64(1) << ((np.uint64(number) + shift) & np.uint64(63))
            for r in range(supported):
                score = scores[r]
                if score == 0:
                    lowest[r] = testified
                    slices[r] = bit
                    passed |= quorum == 1
                else:
                    lowest[r] = min(lowest[r], testified)
                    # only a new vote can make a quorum
                    passed |= slices[r] & bit == np.uint64(0) or score < enough
                    slices[r] |= bit
                # Cut at `full`, which is enough in any case: scores are bounded however long the stream is.
                score = min(score + 8, full)
                passed |= score == full
                scores[r] = score
        if supported < top:
            # targets that the record's clock had reached; all of them where it is as old as what is late anyway
            doubtful = top
            if clock > base - lateness:
                doubtful = supported
                if clock > testified:
                    doubtful = _targets_reached(clock // slice_ms, base_slice, scores.size)
            for r in range(supported, top):
                # 3 votes against a target that the record's own clock had not reached, else an eighth.
                scores[r] = max(0, scores[r] - (24 if r >= doubtful else 1))
        top = max(top, supported)
        # Scores never rise with r: behind the last one above 0 there are no votes.
        while top and scores[top - 1] == 0:
            top -= 1
        if passed and scores[0] >= enough:
            # The latest target with a quorum; those before it are behind the new watermark.
            for j in range(top - 1, -1, -1):
                score = scores[j]
                if score >= enough and (score == full or _distinct_slices(slices[j]) >= quorum):
                    if watermark >= earliest and lowest[j] - watermark > lateness:
                        n_jumps += 1
                        jumped_at = i
                    watermark = lowest[j]
                    base = watermark
                    # Votes for still later times stay votes: `move` hands them to the targets after the new watermark.
                    moved = base // slice_ms
                    top = move(base_slice, moved, top, votes)
                    base_slice = moved
                    first = (base_slice + 1) * slice_ms
                    break
    return Judged(watermark, top, low, high, n_future, n_unreadable, n_early, n_jumps, jumped_at)


@kernel
def distinct(values: Ints, out: Ints) -> Any:
    """The distinct values of an array that holds few of them, in any order, into `out`.

    Args:
        values: (n,) int64.
        out: (k,) filled from the front.

    Returns:
        How many there are; -1 if there are more than k.
    """
    n = 0
    for i in range(values.size):
        value = values[i]
        # Neighbours are mostly equal: the value seen last stands at the end, where it is looked for first.
        if n and value == out[n - 1]:
            continue
        seen = False
        for j in range(n):
            if out[j] == value:
                out[j] = out[n - 1]
                out[n - 1] = value
                seen = True
                break
        if not seen:
            if n == out.size:
                return -1
            out[n] = value
            n += 1
    return n


@kernel
def place(
    times: Ints,
    before: Ints,
    verdict: Bytes,
    starts: Ints,
    ends: Ints,
    lateness: Any,
    sealed_through: Any,
    places: npt.NDArray[np.int32],
    used: Any,
) -> Any:
    """Find each admitted record's window, and which records are late.

    Args:
        times: (n,) event times, ms.
        before: (n,) watermark before each record, from `admit`.
        verdict: (n,) from `admit`.
        starts: (k,) ascending starts of disjoint windows that cover all admitted times.
        ends: (k,) their ends.
        lateness: ms.
        sealed_through: windows that end by then accept no more records.
        places: (n,) filled with the window's index, OUT or LATE.
        used: (k,) bool, False; set to True for windows that receive a record.

    Returns:
        Number of late records.
    """
    n_late = 0
    current = 0
    for i in range(times.size):
        if verdict[i] != ADMITTED:
            places[i] = OUT
            continue
        time = times[i]
        # The window of the record before is tried first. Windows cover all admitted times, so the search finds one.
        if not (starts[current] <= time < ends[current]):
            current = np.searchsorted(starts, time, side="right") - 1
        end = ends[current]
        # By the watermark before the record: a record never makes itself late.
        if end + lateness <= before[i] or end <= sealed_through:
            places[i] = LATE
            n_late += 1
        else:
            places[i] = current
            used[current] = True
    return n_late


@kernel
def inside(
    times: Ints,
    before: Ints,
    verdict: Bytes,
    start: Any,
    end: Any,
    lateness: Any,
    sealed_through: Any,
    places: npt.NDArray[np.int32],
    late: Any,
) -> Any:
    """Find the admitted records of one window, and those that are late for it.

    Args:
        times: (n,) event times, ms.
        before: (n,) watermark before each record, from `admit`.
        verdict: (n,) from `admit`.
        start: start of the window, ms.
        end: end of the window, ms.
        lateness: ms.
        sealed_through: windows that end by then accept no more records.
        places: (n,) filled with 0, or OUT if the window does not accept the record.
        late: (n,) bool, set to True for records that are too late for the window.

    Returns:
        Number of records that the window accepts.
    """
    n = 0
    for i in range(times.size):
        places[i] = OUT
        if verdict[i] != ADMITTED or times[i] < start or times[i] >= end:
            continue
        if end + lateness <= before[i] or end <= sealed_through:
            late[i] = True
        else:
            places[i] = 0
            n += 1
    return n


@kernel
def choose(
    record: Ints, packed: Any, valid: npt.NDArray[np.bool_], places: npt.NDArray[np.int32], window: Any, chosen: Any
) -> Any:
    """Mark the valid occurrences whose record was placed in `window`; return how many.

    Args:
        record: (u,) index of each occurrence's record; not read unless `packed` (occurrence i is then record i).
        packed: whether records hold several occurrences.
        valid: (u,) bool.
        places: (n,) as `place` left them.
        window: index.
        chosen: (u,) bool, filled.
    """
    n = 0
    for i in range(valid.size):
        at = record[i] if packed else i
        good = valid[i] and places[at] == window
        chosen[i] = good
        n += good
    return n


@kernel
def _murmur2(data: Bytes, start: Any, end: Any) -> Any:
    """Java client's murmur2 of data[start:end], as an unsigned 32-bit number in a uint64.

    Unsigned positions and 64-bit words with a mask: no check for negative indices, no slices, three times as fast.
    """
    mask = np.uint64(0xFFFFFFFF)
    m = np.uint64(0x5BD1E995)
    at = np.uint64(start)
    left = np.uint64(end) - at
    h = np.uint64(0x9747B28C) ^ left
    while left >= np.uint64(4):
        k = (
            np.uint64(data[at])
            | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
            | np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
            | np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
        )
        k = (k * m) & mask
        k ^= k >> np.uint64(24)
        k = (k * m) & mask
        h = ((h * m) & mask) ^ k
        at += np.uint64(4)
        left -= np.uint64(4)
    if left == np.uint64(3):
        h ^= np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
    if left >= np.uint64(2):
        h ^= np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
    if left >= np.uint64(1):
        h = ((h ^ np.uint64(data[at])) * m) & mask
    h ^= h >> np.uint64(13)
    h = (h * m) & mask
    h ^= h >> np.uint64(15)
    return h


@kernel
def _crc32(data: Bytes, start: Any, end: Any, table: U64) -> Any:
    """CRC-32 (IEEE, reflected) of data[start:end], in a uint64."""
    crc = np.uint64(0xFFFFFFFF)
    for at in range(start, end):
        crc = table[(crc ^ np.uint64(data[np.uint64(at)])) & np.uint64(0xFF)] ^ (crc >> np.uint64(8))
    return crc ^ np.uint64(0xFFFFFFFF)


@kernel
def _fnv1a(data: Bytes, start: Any, end: Any) -> Any:
    """FNV-1a of data[start:end] as in librdkafka and Sarama: absolute value of the signed 32 bits, in a uint64."""
    mask = np.uint64(0xFFFFFFFF)
    h = np.uint64(0x811C9DC5)
    for at in range(start, end):
        h = ((h ^ np.uint64(data[np.uint64(at)])) * np.uint64(0x01000193)) & mask
    if h > np.uint64(0x7FFFFFFF):
        h = (np.uint64(0x100000000) - h) & mask
    return h


@kernel
def _partitioner_hash(data: Bytes, start: Any, end: Any, way: Any, table: U64) -> Any:
    """The hash with which one of the partitioners (MURMUR2, CRC32, FNV1A) places data[start:end]."""
    if way == MURMUR2:
        return _murmur2(data, start, end) & np.uint64(0x7FFFFFFF)
    if way == CRC32:
        return _crc32(data, start, end, table)
    return _fnv1a(data, start, end)


@kernel
def _sends(hashed: Any, counts: U64, partition: Any) -> Any:
    """Whether a hash goes to `partition` under one of the partition counts."""
    sends = False
    for count in counts:
        # A power of two: a mask in place of a division, with the same remainder.
        if count & (count - np.uint64(1)) == np.uint64(0):
            sends |= hashed & (count - np.uint64(1)) == partition
        else:
            sends |= hashed % count == partition
    return sends


@kernel
def belongs_spans(
    buffer: Bytes, starts: Any, ends: Any, way: Any, table: U64, counts: U64, partition: Any, out: Any
) -> Any:
    """Find the items buffer[starts[i]:ends[i]] that belong to the partition; return how many there are.

    Args:
        buffer: uint8.
        starts: (n,) where items begin.
        ends: (n,) where they end.
        way: MURMUR2, CRC32 or FNV1A.
        table: (256,) table of CRC-32; not read for the others.
        counts: (k,) partition counts that were valid since the window opened.
        partition: the one in question.
        out: (n,) bool, filled.
    """
    n = 0
    here = np.uint64(partition)
    for i in range(starts.size):
        good = _sends(_partitioner_hash(buffer, starts[i], ends[i], way, table), counts, here)
        out[i] = good
        n += good
    return n


@kernel
def belongs_ints(items: Ints, way: Any, table: U64, counts: U64, partition: Any, out: Any) -> Any:
    """`belongs_spans` for int items, whose key is their decimal text."""
    digits = np.zeros(20, np.uint8)
    n = 0
    here = np.uint64(partition)
    for i in range(items.size):
        value = items[i]
        negative = value < 0
        # As uint64, which has the absolute value of -2^63, too. 20 bytes hold a sign and 19 digits.
        rest = np.uint64(0) - np.uint64(value) if negative else np.uint64(value)
        at = 20
        # From the last digit to the first; tested afterwards, so that 0 has its one digit.
        while True:
            at -= 1
            digits[at] = np.uint8(np.uint64(48) + rest % np.uint64(10))
            rest //= np.uint64(10)
            if rest == np.uint64(0):
                break
        if negative:
            at -= 1
            digits[at] = np.uint8(45)
        good = _sends(_partitioner_hash(digits, at, 20, way, table), counts, here)
        out[i] = good
        n += good
    return n


@kernel
def _mix_bits(value: Any) -> Any:
    """Spread a uint64 over all bits (the finalizer of splitmix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@kernel
def spread_spans(buffer: Bytes, starts: Any, ends: Any, out: U64) -> Any:
    """Hash the items buffer[starts[i]:ends[i]] by FNV-1a (64 bits) and a finalizer, unlike any partitioner.

    Args:
        buffer: uint8.
        starts: (n,) where items begin.
        ends: (n,) where they end.
        out: (n,) filled.
    """
    for i in range(starts.size):
        hashed = np.uint64(0xCBF29CE484222325)
        for at in range(starts[i], ends[i]):
            hashed = (hashed ^ np.uint64(buffer[at])) * np.uint64(0x100000001B3)
        out[i] = _mix_bits(hashed)


@kernel
def spread_ints(items: Ints, out: U64) -> Any:
    """Hash int items by the finalizer of `spread_spans` alone."""
    for i in range(items.size):
        out[i] = _mix_bits(np.uint64(items[i]) + np.uint64(0x9E3779B97F4A7C15))
