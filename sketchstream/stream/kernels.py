"""The compiled loops of the stream: admission by watermark, placing in windows, recomputed partitions.

In: plain arrays and numbers, checked by the callers. Out: arrays filled in place, and a few numbers. Touches: nothing.
Source: notes/kafka_faults.md 8 (lateness as a function of the record sequence); Apache Kafka's `Utils.murmur2`
(Appleby's MurmurHash2, seed 0x9747b28c); librdkafka's `rd_crc32` (CRC-32, IEEE) and `rd_fnv1a`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.kernels import kernel

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]

ADMITTED, FUTURE, UNREADABLE = 0, 1, 2
"""Verdicts on a record before windows are looked at."""

OUT, LATE = -1, -2
"""Places of a record that goes to no window: not admitted, or late."""

MURMUR2, CRC32, FNV1A = 0, 1, 2
"""Hash functions of the partitioners."""


@kernel
def admit(
    times: I64,
    stamps: I64,
    stamped: Any,
    max_ahead: Any,
    earliest: Any,
    latest: Any,
    watermark: Any,
    before: I64,
    verdict: U8,
) -> Any:
    """Judge n records in offset order, and move the watermark.

    Args:
        times: (n,) event times, ms.
        stamps: (n,) the records' own timestamps, ms; not read unless `stamped`.
        stamped: whether there are such timestamps.
        max_ahead: ms that an event time may lie beyond its record's timestamp.
        earliest: event times below it are unreadable.
        latest: event times from it on are unreadable.
        watermark: running maximum before the first record.
        before: (n,) filled with the running maximum before each record.
        verdict: (n,) filled with ADMITTED, FUTURE or UNREADABLE; only admitted records move the watermark.

    Returns:
        The watermark after the last record, the smallest and the largest admitted time (meaningless if none was), and
        the numbers of future and of unreadable records.
    """
    n_future = 0
    n_unreadable = 0
    low = latest
    high = earliest
    for i in range(times.size):
        before[i] = watermark
        time = times[i]
        if time < earliest or time >= latest:
            verdict[i] = 2
            n_unreadable += 1
        elif stamped and time > stamps[i] + max_ahead:
            verdict[i] = 1
            n_future += 1
        else:
            verdict[i] = 0
            watermark = max(watermark, time)
            low = min(low, time)
            high = max(high, time)
    return watermark, low, high, n_future, n_unreadable


@kernel
def distinct(values: I64, found: I64) -> Any:
    """The distinct values of an array that holds few of them, in any order, into `found`.

    Args:
        values: (n,) int64.
        found: (k,) filled from the front.

    Returns:
        How many there are; -1 if there are more than k.
    """
    n = 0
    for i in range(values.size):
        value = values[i]
        if n and value == found[n - 1]:
            continue
        known = False
        for j in range(n):
            if found[j] == value:
                found[j] = found[n - 1]
                found[n - 1] = value
                known = True
                break
        if not known:
            if n == found.size:
                return -1
            found[n] = value
            n += 1
    return n


@kernel
def place(
    times: I64,
    before: I64,
    verdict: U8,
    starts: I64,
    ends: I64,
    lateness: Any,
    sealed_through: Any,
    places: npt.NDArray[np.int32],
    used: Any,
) -> Any:
    """Find each admitted record's window, and which records are late.

    Args:
        times: (n,) event times, ms.
        before: (n,) running maximum before each record, from `admit`.
        verdict: (n,) from `admit`.
        starts: (k,) ascending starts of disjoint windows that cover all admitted times.
        ends: (k,) their ends.
        lateness: ms.
        sealed_through: windows that end by then take nothing more.
        places: (n,) filled with the window's index, OUT or LATE.
        used: (k,) bool, False; set to True for windows that receive a record.

    Returns:
        Number of late records.
    """
    n_late = 0
    current = 0
    for i in range(times.size):
        if verdict[i] != 0:
            places[i] = -1
            continue
        time = times[i]
        if not (starts[current] <= time < ends[current]):
            current = np.searchsorted(starts, time, side="right") - 1
        end = ends[current]
        if end + lateness <= before[i] or end <= sealed_through:
            places[i] = -2
            n_late += 1
        else:
            places[i] = current
            used[current] = True
    return n_late


@kernel
def choose(
    record: I64, packed: Any, valid: npt.NDArray[np.bool_], places: npt.NDArray[np.int32], window: Any, chosen: Any
) -> Any:
    """Mark the valid occurrences whose record was placed in `window`; returns how many.

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
def _murmur2(data: U8, start: Any, end: Any) -> Any:
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
def _crc32(data: U8, start: Any, end: Any, table: U64) -> Any:
    """CRC-32 (IEEE, reflected) of data[start:end], in a uint64."""
    crc = np.uint64(0xFFFFFFFF)
    for at in range(start, end):
        crc = table[(crc ^ np.uint64(data[np.uint64(at)])) & np.uint64(0xFF)] ^ (crc >> np.uint64(8))
    return crc ^ np.uint64(0xFFFFFFFF)


@kernel
def _fnv1a(data: U8, start: Any, end: Any) -> Any:
    """FNV-1a of data[start:end] as librdkafka and Sarama take it: absolute value of the signed 32 bits, in a uint64."""
    mask = np.uint64(0xFFFFFFFF)
    h = np.uint64(0x811C9DC5)
    for at in range(start, end):
        h = ((h ^ np.uint64(data[np.uint64(at)])) * np.uint64(0x01000193)) & mask
    if h > np.uint64(0x7FFFFFFF):
        h = (np.uint64(0x100000000) - h) & mask
    return h


@kernel
def _hashed(data: U8, start: Any, end: Any, way: Any, table: U64) -> Any:
    """The hash by which one of the partitioners (MURMUR2, CRC32, FNV1A) places data[start:end]."""
    if way == MURMUR2:
        return _murmur2(data, start, end) & np.uint64(0x7FFFFFFF)
    if way == CRC32:
        return _crc32(data, start, end, table)
    return _fnv1a(data, start, end)


@kernel
def _sends(hashed: Any, counts: U64, partition: Any) -> Any:
    """Whether a hash goes to `partition` under one of the partition counts."""
    found = False
    for count in counts:
        if count & (count - np.uint64(1)) == np.uint64(0):
            found |= hashed & (count - np.uint64(1)) == partition
        else:
            found |= hashed % count == partition
    return found


@kernel
def belongs_spans(
    buffer: U8, starts: Any, ends: Any, way: Any, table: U64, counts: U64, partition: Any, out: Any
) -> Any:
    """(n,) bool: whether item i = buffer[starts[i]:ends[i]] belongs to the partition; returns how many do.

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
    wanted = np.uint64(partition)
    for i in range(starts.size):
        good = _sends(_hashed(buffer, starts[i], ends[i], way, table), counts, wanted)
        out[i] = good
        n += good
    return n


@kernel
def belongs_ints(items: I64, way: Any, table: U64, counts: U64, partition: Any, out: Any) -> Any:
    """The same for int items, whose key is their decimal text."""
    digits = np.zeros(20, np.uint8)
    n = 0
    wanted = np.uint64(partition)
    for i in range(items.size):
        value = items[i]
        negative = value < 0
        rest = np.uint64(0) - np.uint64(value) if negative else np.uint64(value)
        at = 20
        while True:
            at -= 1
            digits[at] = np.uint8(np.uint64(48) + rest % np.uint64(10))
            rest //= np.uint64(10)
            if rest == np.uint64(0):
                break
        if negative:
            at -= 1
            digits[at] = np.uint8(45)
        good = _sends(_hashed(digits, at, 20, way, table), counts, wanted)
        out[i] = good
        n += good
    return n
