"""A compiled loop that reads event times: integers, decimals of seconds and texts of RFC 3339.

In: a uint8 buffer, kind and bounds of each value. Out: milliseconds since 1970. Touches: nothing else.
Source: RFC 3339; days of civil dates: Hinnant, "chrono-compatible low-level date algorithms" (2013).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchstream.array_types import Bytes, Ints
from sketchstream.kernels import kernel
from sketchstream.kernels.compilation import part
from sketchstream.kernels.machine_code import first_byte, prefetch_read, word_at
from sketchstream.kernels.tokens import (
    COLON,
    DECIMAL,
    INTEGER,
    MINUS,
    NINE,
    PLUS,
    POINT,
    SMALL_T,
    SPACE,
    STRING,
    ZERO,
    U,
    byte,
)

_Z, _UPPER_T, _UPPER_Z = map(ord, "zTZ")
MAX_SECONDS = 9 * 10**15
"""Seconds whose milliseconds are an int64."""
AHEAD = 16
"""Number of records by which texts of times are prefetched ahead."""
POWERS = np.array([10**n for n in range(9)], dtype=np.uint64)
"""Powers of ten."""
UNREADABLE = np.int64(-0x7FFFFFFFFFFFFFFF - 1)
"""What stands for a time that cannot be read."""


@kernel
def read_times(data: Bytes, kinds: Bytes, starts: Ints, ends: Ints, seconds: bool, times: Ints) -> None:
    """Event times in milliseconds: integers as they are, strings by RFC 3339; the smallest int64 where unreadable.

    A fraction is cut to milliseconds (the instant's floor), a leap second counts as the last millisecond of its day.
    With `seconds`, decimals without a sign and an exponent are seconds; else they are unreadable.
    """
    text = first_byte(data)
    for i in range(kinds.size):
        if i + AHEAD < kinds.size:
            prefetch_read(data, starts[U(i + AHEAD)])
        time = UNREADABLE
        if kinds[U(i)] == INTEGER:
            time = whole_number(text, starts[U(i)], ends[U(i)])
        elif kinds[U(i)] == DECIMAL and seconds:
            time = decimal_seconds(text, starts[U(i)], ends[U(i)])
        elif kinds[U(i)] == STRING:
            time = instant(text, starts[U(i)], ends[U(i)])
        times[U(i)] = time


@part
def whole_number(text: Any, p: Any, end: Any) -> Any:
    """The number that digits spell, perhaps with a sign; UNREADABLE if it is no int64."""
    size = end - p
    if 9 <= size <= 16 and byte(text, p) != MINUS:  # the first eight digits, and the rest behind zeros
        rest = word_at(text + U(end - 8)) & (U(0x0F0F0F0F0F0F0F0F) << U(8 * (16 - size)))
        return np.int64(eight_digits(word_at(text + U(p))) * POWERS[U(size - 8)] + eight_digits(rest))
    negative = byte(text, p) == MINUS
    at = p + 1 if negative else p
    if end - at > 19:  # no int64, and it would wrap
        return UNREADABLE
    magnitude = U(0)
    while at < end:
        magnitude = magnitude * U(10) + U(byte(text, at) - ZERO)
        at += 1
    if magnitude >= U(1 << 63):
        return UNREADABLE
    return -np.int64(magnitude) if negative else np.int64(magnitude)


@part
def eight_digits(word: Any) -> Any:
    """The number that eight ASCII digits spell, the first one in the lowest byte: pairs, fours, all of them."""
    pairs = ((word & U(0x0F0F0F0F0F0F0F0F)) * U(10 << 8 | 1)) >> U(8)
    fours = ((pairs & U(0x00FF00FF00FF00FF)) * U(100 << 16 | 1)) >> U(16)
    return ((fours & U(0x0000FFFF0000FFFF)) * U(10_000 << 32 | 1)) >> U(32)


@part
def is_digit(text: Any, at: Any) -> Any:
    """Whether a byte is a digit."""
    return ZERO <= byte(text, at) <= NINE


@part
def two_digits(text: Any, at: Any) -> Any:
    """The number that two digits spell."""
    return (np.int64(byte(text, at)) - ZERO) * 10 + np.int64(byte(text, at + 1)) - ZERO


@part
def decimal_seconds(text: Any, p: Any, end: Any) -> Any:
    """Milliseconds of seconds with a fraction; UNREADABLE with a sign or an exponent, and where they are no int64."""
    at, value, thousandth = p, np.int64(0), 1000
    while at < end and is_digit(text, at) and value < MAX_SECONDS:
        value = value * 10 + byte(text, at) - ZERO
        at += 1
    if not p < at < end or byte(text, at) != POINT or value >= MAX_SECONDS:
        return UNREADABLE
    at += 1
    while at < end and is_digit(text, at):
        thousandth //= 10
        value = value * 10 + byte(text, at) - ZERO if thousandth else value
        at += 1
    return value * max(thousandth, 1) if at == end else UNREADABLE


@part
def days_in_month(year: Any, month: Any) -> Any:
    """Days of a month."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@part
def days_since_1970(year: Any, month: Any, day: Any) -> Any:
    """Days from 1970-01-01 to a civil date."""
    # Years begin in March, eras of 400 years have 146097 days.
    y = year - (1 if month <= 2 else 0)
    era = y // 400
    of_era = y - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@kernel
def instant(text: Any, p: Any, end: Any) -> Any:
    """Milliseconds of a time of RFC 3339; UNREADABLE if it is none."""
    if end - p < 20:
        return UNREADABLE
    # 2013-01-01T05:00:00: four separators and a T between digits.
    letter = byte(text, p + 10)
    if letter not in (_UPPER_T, SMALL_T, SPACE):
        return UNREADABLE
    if byte(text, p + 4) != MINUS or byte(text, p + 7) != MINUS:
        return UNREADABLE
    if byte(text, p + 13) != COLON or byte(text, p + 16) != COLON:
        return UNREADABLE
    for j in range(19):
        if j not in (4, 7, 10, 13, 16) and not is_digit(text, p + j):
            return UNREADABLE
    year, month, day = (
        two_digits(text, p) * 100 + two_digits(text, p + 2),
        two_digits(text, p + 5),
        two_digits(text, p + 8),
    )
    hour, minute, second = two_digits(text, p + 11), two_digits(text, p + 14), two_digits(text, p + 17)
    if not 1 <= month <= 12 or not 1 <= day <= days_in_month(year, month):
        return UNREADABLE
    if hour > 23 or minute > 59 or second > 60:
        return UNREADABLE
    at = p + 19
    milliseconds = np.int64(0)
    if byte(text, at) == POINT:
        at += 1
        scale = 100
        while at < end and is_digit(text, at):
            milliseconds += (np.int64(byte(text, at)) - ZERO) * scale
            scale //= 10
            at += 1
        # A fraction has a digit, and a zone follows it.
        if at in (p + 20, end):
            return UNREADABLE
    shift = np.int64(0)
    zone = byte(text, at)
    if zone in (_UPPER_Z, _Z):
        if end != at + 1:
            return UNREADABLE
    elif zone in (PLUS, MINUS):
        if end != at + 6 or byte(text, at + 3) != COLON:
            return UNREADABLE
        for j in (1, 2, 4, 5):
            if not is_digit(text, at + j):
                return UNREADABLE
        hours, minutes = two_digits(text, at + 1), two_digits(text, at + 4)
        if hours > 23 or minutes > 59:
            return UNREADABLE
        shift = (hours * 60 + minutes) * (-1 if zone == MINUS else 1)
    else:
        return UNREADABLE
    in_minutes = days_since_1970(year, month, day) * 1440 + hour * 60 + minute - shift
    if second == 60:
        # A leap second ends a day of UTC.
        if in_minutes % 1440 != 1439:
            return UNREADABLE
        second = np.int64(59)
        milliseconds = np.int64(999)
    return in_minutes * 60000 + second * 1000 + milliseconds
