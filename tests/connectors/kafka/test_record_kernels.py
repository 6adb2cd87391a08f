"""The table of records, against a slow reader of the same bytes: sound records, damaged ones, and cut ones.

In: segments made here, end to end with bytes that belong to nobody. Out: nothing. Touches: nothing.
Source: Apache Kafka protocol guide, "Messages: record" (zigzag varints of 64 bits).
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from helpers.kafka.batches import varint
from sketchstream_connectors.kafka.fetch import record_kernels as kernels

Row = tuple[int, int, int, int, int, int]
SIZES = (0, 1, 5, 16, 62, 63, 64, 100, 8190, 8191, 8192, 9000)
DELTAS = (0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8193, 1 << 20, 1 << 34, -(1 << 50))


class Wrong(Exception):
    """The segment does not have the structure of records."""


def number(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A zigzag varint and where it ends."""
    raw = shift = 0
    while True:
        if at >= end or shift > 63 or (shift == 63 and data[at] > 1):
            raise Wrong
        raw |= (data[at] & 127) << shift
        at += 1
        shift += 7
        if data[at - 1] < 128:
            return raw >> 1 ^ -(raw & 1), at


def part(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Where bytes with a length begin (-1 for null) and end."""
    size, at = number(data, at, end)
    if size > end - at:
        raise Wrong
    return (-1, at) if size < 0 else (at, at + size)


def slow(data: bytes, start: int, end: int, count: int, fixed: bool, from_position: int) -> list[Row]:
    """All rows of a segment, or `Wrong`."""
    rows, at = [], start
    for _ in range(count):
        size, at = number(data, at, end)
        if size < 0 or size > end - at:
            raise Wrong
        last = at + size
        if at >= last:
            raise Wrong
        delta, at = number(data, at + 1, last)
        offset, at = number(data, at, last)
        key, at = part(data, at, last)
        key_end = -1 if key < 0 else at
        value, at = part(data, at, last)
        value_end = at
        headers, at = number(data, at, last)
        if headers < 0 or headers > last - at:
            raise Wrong
        for _ in range(headers):
            name, at = part(data, at, last)
            if name < 0:
                raise Wrong
            _, at = part(data, at, last)
        if at != last:
            raise Wrong
        if 1000 + offset >= from_position:
            rows.append((1000 + offset, 5000 + (0 if fixed else delta), key, key_end, value, value_end))
    if at != end:
        raise Wrong
    return rows


def quick(data: bytes, start: int, end: int, count: int, fixed: bool, from_position: int) -> list[Row]:
    """The same by the compiled table."""
    segments = np.array([[start, end, 1000, 5000, int(fixed), count]], dtype=np.int64)
    columns = [np.empty(count, dtype=np.int64) for _ in range(6)]
    buffer = np.frombuffer(data, dtype=np.uint8)
    buffer.flags.writeable = False
    written, broken = kernels.read_records(buffer, segments, from_position, *columns)
    if broken == 0:
        assert written == 0
        raise Wrong
    return list(zip(*(column[:written].tolist() for column in columns), strict=True))


def record(seed: random.Random) -> bytes:
    """One record."""

    def bytes_or_null(sizes: tuple[int, ...]) -> bytes:
        if seed.random() < 0.15:
            return varint(-1)
        size = seed.choice(sizes)
        return varint(size) + seed.randbytes(size)

    body = bytes([seed.choice((0, 0, 255))]) + varint(seed.choice(DELTAS)) + varint(seed.choice(DELTAS))
    body += bytes_or_null(SIZES[:8]) + bytes_or_null(SIZES)
    headers = seed.choice((0, 0, 0, 0, 1, 2))
    body += varint(headers) + b"".join(varint(1) + b"h" + bytes_or_null(SIZES[:5]) for _ in range(headers))
    return varint(len(body)) + body


def damaged(seed: random.Random, data: bytes) -> bytes:
    """With bytes changed, mostly where numbers are; or one more or less of them."""
    out = bytearray(data)
    for _ in range(seed.randint(1, 3)):
        at = min(int(seed.expovariate(1 / 20)), len(out) - 1)
        change = seed.randrange(4)
        if change == 0:
            del out[at]
        elif change == 1:
            out.insert(at, seed.choice((0, 1, 127, 128, 255)))
        else:
            out[at] = seed.choice((0, 1, 2, 126, 127, 128, 129, 254, 255, seed.randrange(256)))
        if not out:
            return b"\0"
    return bytes(out)


@pytest.mark.parametrize("number_", range(3))
def test_sound_and_damaged_segments_are_read_as_by_the_slow_reader(number_: int) -> None:
    seed = random.Random(number_)
    wrong = 0
    for turn in range(1500):
        count = seed.randint(1, 4)
        segment = b"".join(record(seed) for _ in range(count))
        if turn % 3:
            segment = damaged(seed, segment)
        if turn % 5 == 0:
            segment = segment[: seed.randrange(len(segment) + 1)]
        before, behind = seed.randbytes(seed.choice((0, 3))), seed.randbytes(seed.choice((0, 1, 40)))
        data = before + segment + behind
        bounds = len(before), len(before) + len(segment)
        fixed, from_position = seed.random() < 0.3, seed.choice((0, 1000, 1001, 1064))
        answers: list[list[Row] | None] = []
        for reader in (slow, quick):
            try:
                answers.append(reader(data, *bounds, count, fixed, from_position))
            except Wrong:
                answers.append(None)
        assert answers[0] == answers[1], segment
        wrong += answers[0] is None
    assert 300 < wrong < 1300
