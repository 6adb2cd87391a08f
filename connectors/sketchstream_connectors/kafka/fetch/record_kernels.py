"""Compiled loops over Kafka record batches: they locate the batches, and the key and value of each record.

In: a uint8 buffer of unchecked bytes, and tables of integers. Out: tables filled in place, and how far it went.
Touches: nothing else. Every bound is tested as `length > end - position`, which no hostile length can overflow.
Source: Apache Kafka protocol guide, "Messages: record batch" (magic 2: fixed head, then zigzag varints).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels import kernel
from sketchstream.kernels.compilation import part
from sketchstream.kernels.machine_code import first_byte, prefetch_read
from sketchstream.kernels.tokens import byte

# columns of the table of batches
START, END, MAGIC, LEADER_EPOCH, CRC, ATTRIBUTES, BASE_OFFSET, LAST_DELTA = 0, 1, 2, 3, 4, 5, 6, 7
FIRST_TIMESTAMP, MAX_TIMESTAMP, PRODUCER, COUNT = 8, 9, 10, 11
COLUMNS = 12

AHEAD = 1024
"""Distance in bytes at which records are prefetched; of long ones only the heads are read, which hardware does not."""
HEAD_BYTES = 61
MIN_RECORD_BYTES = 7

# columns of the table of segments: one run of records each, not compressed
SEGMENT_START, SEGMENT_END, SEGMENT_OFFSET, SEGMENT_TIMESTAMP, SEGMENT_FIXED, SEGMENT_COUNT = 0, 1, 2, 3, 4, 5
SEGMENT_COLUMNS = 6

U = np.uint64
"""The type of indexes that are not negative: numba then leaves out its support for negative ones."""


@part
def big_endian(text: Any, position: Any, size: Any) -> Any:
    """An unsigned number of up to eight bytes; eight are an int64 as they are."""
    value = np.int64(0)
    for k in range(size):
        value = (value << 8) | np.int64(byte(text, position + k))
    return value


@kernel
def count_batches(data: Bytes) -> int:
    """How many whole batches `data` begins with; a batch of a hostile length is counted and ends the walk."""
    size = data.size
    text = first_byte(data)
    position = np.int64(0)
    batches = 0
    # Twelve bytes, base offset (8) and length (4), are all that is needed to step over a batch: the length counts what
    # follows them.
    while size - position >= 12:
        length = big_endian(text, position + 8, 4)
        # The length is an int32: this one is negative. It is counted, so that `read_heads` comes to it and stops there.
        if length >= 1 << 31:
            return batches + 1
        if length > size - position - 12:
            return batches
        batches += 1
        position += 12 + length
    return batches


@kernel
def read_heads(data: Bytes, table: Ints) -> int:
    """Fill (n, COLUMNS) `table` from the first n batches; the number filled is short of n where a head is broken."""
    size = data.size
    text = first_byte(data)
    position = np.int64(0)
    for row in range(table.shape[0]):
        if size - position < 12:
            return row
        length = big_endian(text, position + 8, 4)
        # Start, base offset and a magic of -1 are written before anything is refused: the row of a broken head has
        # them.
        line = table[row]
        line[START] = position
        line[END] = position
        line[MAGIC] = -1
        line[BASE_OFFSET] = big_endian(text, position, 8)
        # 14: the shortest message of the old formats (CRC, magic, attributes, sizes of a null key and a null value), so
        # that the magic can be read.
        if length >= 1 << 31 or length > size - position - 12 or length < 14:
            return row
        line[END] = position + 12 + length
        magic = big_endian(text, position + 16, 1)
        line[MAGIC] = magic
        # The old formats have their magic at the same place and none of the fields below; the caller sees column MAGIC.
        if magic < 2:
            position += 12 + length
            continue
        # 49 = HEAD_BYTES - 12: the fixed head is whole, so the reads below need no further test.
        if magic > 2 or length < 49:
            return row
        # Big-endian fields by their place: 12 leader epoch, 16 magic, 17 CRC, 21 attributes, 23 last offset delta, 27
        # first and 35 largest timestamp, 43 producer, 51 its epoch, 53 its sequence, 57 number of records.
        line[LEADER_EPOCH] = big_endian(text, position + 12, 4)
        line[CRC] = big_endian(text, position + 17, 4)
        line[ATTRIBUTES] = big_endian(text, position + 21, 2)
        line[LAST_DELTA] = big_endian(text, position + 23, 4)
        for column in range(3):
            line[FIRST_TIMESTAMP + column] = big_endian(text, position + 27 + 8 * column, 8)
        line[COUNT] = big_endian(text, position + 57, 4)
        # The sign of an int32 that was read as 32 unsigned bits.
        for column in (LEADER_EPOCH, LAST_DELTA, COUNT):
            line[column] -= (line[column] >> 31) << 32
        position += 12 + length
    return int(table.shape[0])


@part
def short_varint(text: Any, p: Any) -> Any:
    """The first three bytes of a varint, zigzag as it is, and the position behind them; 2^21 or more if it goes on."""
    # Varints have seven bits a byte, the lowest first, and bit 7 set in all bytes but the last. The third byte keeps
    # its bit 7, which makes the number of one that goes on so large.
    number = np.int64(byte(text, p))
    p += 1
    if number >= 128:
        number = (number & 127) | np.int64(byte(text, p)) << 7
        p += 1
        if number >= 1 << 14:
            number = (number & 0x3FFF) | np.int64(byte(text, p)) << 14
            p += 1
    return number, p


@part
def varint(text: Any, position: Any, end: Any) -> Any:
    """A varint of any length, and the position behind it; position -1 if it does not end by `end`, or is too long."""
    broken = np.int64(-1)
    if position >= end:
        return broken, broken
    last = np.int64(byte(text, position))
    position += 1
    if last < 128:
        return (last >> 1) ^ -(last & 1), position
    raw = last & 127
    shift = 7
    # Ten bytes at most; of the tenth only one bit is left of 64.
    while last >= 128:
        if position >= end or shift > 63:
            return broken, broken
        last = np.int64(byte(text, position))
        position += 1
        if shift == 63 and last > 1:
            return broken, broken
        raw |= (last & 127) << shift
        shift += 7
    # Zigzag shifts an unsigned number; the mask takes off the sign that an int64 keeps.
    return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), position


@kernel
def read_records(
    data: Bytes,
    segments: Ints,
    from_position: int,
    offsets: Ints,
    timestamps: Ints,
    key_start: Ints,
    key_end: Ints,
    value_start: Ints,
    value_end: Ints,
) -> tuple[int, int]:
    """Write one line per record at or after `from_position`.

    Args:
        data: uint8 bytes that hold the segments.
        segments: (k, SEGMENT_COLUMNS) int64: start, end, base offset, base timestamp, whether that timestamp holds for
            all records, number of records.
        from_position: records below it are dropped.
        offsets: out, int64, as long as all counts together, like those that follow.
        timestamps: out, milliseconds.
        key_start: out, -1 for null.
        key_end: out.
        value_start: out, -1 for null.
        value_end: out; where a null value would end, too: the record's headers follow it.

    Returns:
        The number of lines written, and the first segment that is broken (k if none is); a broken segment writes none.
    """
    written = 0
    text = first_byte(data)
    for s in range(segments.shape[0]):
        segment = segments[s]
        position = segment[SEGMENT_START]
        end = segment[SEGMENT_END]
        base_offset = segment[SEGMENT_OFFSET]
        base_timestamp = segment[SEGMENT_TIMESTAMP]
        fixed = segment[SEGMENT_FIXED]
        count = max(segment[SEGMENT_COUNT], 0)
        # Rows of a segment count only when its end was reached (`written = row` below): the rows of a broken one are
        # overwritten by the next segment, or lie behind the number that is returned.
        row = written
        for _ in range(count):
            # A record as most are: numbers of up to three bytes, key and value, no headers. The first four numbers
            # and the attributes take 13 bytes at most, so that one test of the end is enough for them; whatever is
            # not so, or broken, is read again from its beginning by the loop below, which decides.
            p = position
            prefetch_read(data, p + AHEAD)
            if end - p >= 16:
                number, p = short_varint(text, p)
                # Zigzag: an even n is n / 2, an odd one is negative, which no length may be.
                usual = number < 1 << 21 and number & 1 == 0
                record_end = p + (number >> 1)
                delta, p = short_varint(text, p + 1)  # behind the attributes
                step_on, p = short_varint(text, p)
                size, p = short_varint(text, p)
                usual &= delta < 1 << 21 and step_on < 1 << 21 and size < 1 << 21
                # 1 is -1 in zigzag: a null key.
                usual &= size == 1 or size & 1 == 0
                # What was read so far lies within the 16 bytes that were tested; from here on the record's end is.
                if usual and record_end <= end:
                    key_to = p + (size >> 1)  # p for a null key: its size of -1 stands there as 1
                    if record_end - key_to >= 4:  # three bytes of a number, and the number of headers
                        value_size, p = short_varint(text, key_to)
                        value_to = p + (value_size >> 1)
                        # The value must leave exactly one byte, a number of headers that is 0: then all of the record
                        # was read. A null value is odd, and left to the loop below.
                        if (
                            value_size < 1 << 21
                            and value_size & 1 == 0
                            and value_to == record_end - 1
                            and data[U(value_to)] == 0
                        ):
                            # (n >> 1) ^ -(n & 1) undoes zigzag without a branch.
                            offset = base_offset + ((step_on >> 1) ^ -(step_on & 1))
                            if offset >= from_position:
                                offsets[U(row)] = offset
                                timestamps[U(row)] = (
                                    base_timestamp if fixed else base_timestamp + ((delta >> 1) ^ -(delta & 1))
                                )
                                key_start[U(row)] = -1 if size == 1 else key_to - (size >> 1)
                                key_end[U(row)] = -1 if size == 1 else key_to
                                value_start[U(row)] = p
                                value_end[U(row)] = value_to
                                row += 1
                            position = record_end
                            continue
            # Any record: six numbers (its size, then timestamp, offset, sizes of key and value, number of headers) by
            # one loop that reads varints of any length. The record's end is known when step 0 is done.
            record_end = end
            timestamp = base_timestamp
            offset = base_offset
            key_from = np.int64(-1)
            key_to = np.int64(-1)
            value_from = np.int64(-1)
            value_to = np.int64(-1)
            headers = np.int64(0)
            for step in range(6):
                if step == 1:
                    position += 1  # the attributes of a record: one byte, unused
                number, position = varint(text, position, record_end)
                if position < 0:
                    return written, s
                if step == 0:
                    if number < 0 or number > end - position:
                        return written, s
                    record_end = position + number
                elif step == 1:
                    if fixed == 0:
                        timestamp = base_timestamp + number
                elif step == 2:
                    offset = base_offset + number
                elif step == 5:
                    headers = number
                elif number >= 0:
                    if number > record_end - position:
                        return written, s
                    if step == 3:
                        key_from = position
                        key_to = position + number
                    else:
                        value_from = position
                        value_to = position + number
                    position += number
                elif step == 4:
                    value_to = position
            # More headers than bytes cannot be there; this also bounds the loop that follows.
            if headers < 0 or headers > record_end - position:
                return written, s
            # Keys and values of headers in turn, stepped over; only a value may be null.
            for field in range(2 * headers):
                number, position = varint(text, position, record_end)
                if position < 0 or number > record_end - position or (number < 0 and field % 2 == 0):
                    return written, s
                if number > 0:
                    position += number
            if position != record_end:
                return written, s
            if offset >= from_position:
                offsets[U(row)] = offset
                timestamps[U(row)] = timestamp
                key_start[U(row)] = key_from
                key_end[U(row)] = key_to
                value_start[U(row)] = value_from
                value_end[U(row)] = value_to
                row += 1
        if position != end:
            return written, s
        written = row
    return written, segments.shape[0]
