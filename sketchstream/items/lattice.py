"""Weights in lattice units: exact multiples of 2^-f, truncated toward zero, from one event alone.

In: weights as integers, floats, Decimals, Fractions or texts of JSON numbers; f; the largest absolute weight.
Out: int64 lattice units, and a mask of valid weights. Touches: nothing.
Source: Mironov, CCS 2012 (why neither state nor noise is a float); docs/theory/gaussian.md, section 5.

A weight w becomes q = trunc(w 2^f). Truncation never enlarges |w|, so a bound on absolute weights, or on sums of them,
holds for q too. A weight that is not finite, or above the bound, or with |q| >= 2^40, is not an event: its q is 0.
Floats are taken at their binary value; scaling by 2^f and truncation are exact for them. Texts never become floats.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Bytes, Flags, Ints
from sketchstream.errors import WeightError
from sketchstream.kernels import kernel

MAX_FRACTION_BITS: Final = 40
"""Largest number of fraction bits."""
MAX_UNITS: Final = 1 << 40
"""Absolute weights in lattice units stay below this."""
MAX_NUMBER_CHARACTERS: Final = 1000
"""Largest number of characters of a number; longer ones are not read."""
DIGITS: Final = 18
"""Digits that the compiled reader takes; numbers with more are read one by one."""
DECIDED: Final = 0
REFUSED: Final = 1
UNDECIDED: Final = 2
"""Result of the compiled reader for a number: read, refused, or left to exact arithmetic."""

_NUMBER: Final = re.compile(rb"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")


@dataclass(frozen=True, eq=False, repr=False)
class Units:
    """(n,) int64 weights that are already in lattice units, of a lattice with this number of fraction bits."""

    values: Ints
    bits: int

    def __len__(self) -> int:
        return int(self.values.size)

    def __getitem__(self, chosen: Flags | Ints) -> Units:
        """Select weights by a mask or an array of positions."""
        return Units(self.values[chosen], self.bits)


@dataclass(frozen=True)
class Lattice:
    """The lattice of one sketch, and the largest weight of one event.

    Args:
        bits: f, from 0 to 40; one lattice unit is 2^-f.
        max_weight: largest absolute weight in user units.
    """

    bits: int
    max_weight: Fraction

    @property
    def most(self) -> int:
        """Largest absolute weight in lattice units: floor(max_weight 2^f), below 2^40."""
        return min(self.units(self.max_weight), MAX_UNITS - 1)

    def units(self, value: Fraction) -> int:
        """`value` in lattice units, truncated toward zero."""
        return math.trunc(value * (1 << self.bits))

    def weight(self, value: object) -> int | None:
        """One weight in lattice units; None if it is not an event.

        Args:
            value: int, float, Decimal, Fraction, numpy scalar, or the text of a JSON number as str or bytes.
        """
        exact = exact_number(value, MAX_FRACTION_BITS + 1)
        if exact is None or abs(exact) > self.max_weight:
            return None
        units = self.units(exact)
        return units if abs(units) < MAX_UNITS else None

    def weights(self, values: Any) -> tuple[Ints, Flags]:
        """Many weights in lattice units.

        Args:
            values: (n,) array of integers or floats, a sequence of what `weight` takes, or `Units` of these fraction
                bits.

        Returns:
            (n,) int64 lattice units, 0 if the weight is not an event; (n,) bool, whether it is one.
        """
        if isinstance(values, Units):
            if values.bits != self.bits:
                raise WeightError(f"weights are in units of 2^-{values.bits}, expected units of 2^-{self.bits}")
            within = (values.values <= self.most) & (values.values >= -self.most)
            return np.where(within, values.values, 0), within
        if isinstance(values, np.ndarray) and values.ndim == 1:
            if values.dtype.kind in "iu":
                return self._integers(values)
            if values.dtype.kind == "f" and values.dtype.itemsize <= 8:
                return self._floats(values.astype(np.float64))
        weights = [self.weight(value) for value in values]
        units = np.fromiter((weight or 0 for weight in weights), np.int64, len(weights))
        return units, np.fromiter((weight is not None for weight in weights), np.bool_, len(weights))

    def checked(self, values: Any) -> Ints:
        """Many weights in lattice units, see `weights`; a weight that is not an event is an error.

        Raises:
            WeightError: gives the first such position and the allowed weights, never the weight.
        """
        units, good = self.weights(values)
        if not good.all():
            raise WeightError.at(int(np.argmin(good)), self.max_weight)
        return units

    def texts(self, data: Bytes, starts: Ints, ends: Ints, good: Flags) -> Ints:
        """Texts of JSON numbers in one buffer, in lattice units.

        Args:
            data: (bytes,) uint8.
            starts: (n,) starts of the texts.
            ends: (n,) ends of the texts.
            good: (n,) texts to read; cleared if the weight is not an event.

        Returns:
            (n,) int64 lattice units, 0 if the weight is not an event.
        """
        units = np.zeros(len(starts), np.int64)
        status = np.zeros(len(starts), np.uint8)
        _read_decimals(data, starts, ends, good, self.bits, self._decimal_limits(), units, status)
        for place in np.flatnonzero(status == UNDECIDED).tolist():
            weight = self.weight(data[starts[place] : ends[place]].tobytes())
            units[place] = weight or 0
            status[place] = REFUSED if weight is None else DECIDED
        good &= status == DECIDED
        return units

    def _decimal_limits(self) -> Ints:
        """(DIGITS + 1,) the largest m for which m / 10^k is an allowed weight."""
        bound = min(self.max_weight, Fraction(MAX_UNITS, 1 << self.bits) - Fraction(1, 1 << 200))
        limits = [min(math.floor(bound * 10**k), (1 << 63) - 1) for k in range(DIGITS + 1)]
        return np.array(limits, np.int64)

    @cached_property
    def largest_integer(self) -> int:
        """Largest absolute weight that is whole, in user units."""
        return min(math.floor(self.max_weight), (MAX_UNITS - 1) >> self.bits)

    def _integers(self, values: npt.NDArray[Any]) -> tuple[Ints, Flags]:
        """Integers of any width."""
        limit = self.largest_integer
        good = values <= limit
        if values.dtype.kind == "i":
            good &= values >= -min(limit, -int(np.iinfo(values.dtype).min))
        units = (values if good.all() else np.where(good, values, 0)).astype(np.int64, copy=False)
        return units << self.bits if self.bits else units, good

    def _floats(self, values: npt.NDArray[np.float64]) -> tuple[Ints, Flags]:
        """Floats at their binary value; products with 2^f, truncation and conversion are exact below 2^53."""
        bound = float(self.max_weight)
        if Fraction(bound) > self.max_weight:
            bound = math.nextafter(bound, 0.0)
        good = np.abs(values) <= bound
        scaled = np.trunc(np.ldexp(np.where(good, values, 0.0), self.bits))
        good &= np.abs(scaled) < MAX_UNITS
        return np.where(good, scaled, 0.0).astype(np.int64), good


def exact_number(value: object, places: int) -> Fraction | None:
    """The exact rational of a weight; None if it is not a finite number.

    Args:
        value: weight, see `Lattice.weight`.
        places: a number of absolute value below 2^-places may be replaced by one that is also below it, of the same
            sign. A text such as "1e-999999999" would otherwise take that many digits.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, Fraction)):
        return Fraction(value)
    if isinstance(value, float):
        return Fraction(value) if math.isfinite(value) else None
    if isinstance(value, Decimal):
        if not value.is_finite():
            return None
        sign, digits, exponent = value.as_tuple()
        return _decimal(bool(sign), int("".join(map(str, digits)) or "0"), int(exponent), places)
    if isinstance(value, str):
        try:
            value = value.encode("ascii")
        except UnicodeEncodeError:
            return None
    if not isinstance(value, bytes) or len(value) > MAX_NUMBER_CHARACTERS:
        return None
    match = _NUMBER.fullmatch(value)
    if match is None:
        return None
    minus, whole, part, power = match.groups()
    part = part or b""
    return _decimal(bool(minus), int(whole + part), int(power or b"0") - len(part), places)


def _decimal(negative: bool, digits: int, exponent: int, places: int) -> Fraction | None:
    """(-1)^negative digits 10^exponent; None from 10^100 on, which is above every bound."""
    if digits == 0:
        return Fraction(0)
    size = math.floor(digits.bit_length() * 0.302) + 1  # decimal digits, or one more
    if exponent + size > 110:
        return None
    if exponent + size < -places:  # below 10^-places, so below 2^-places
        digits, exponent = 1, -places
    value = Fraction(digits) * Fraction(10) ** exponent
    return -value if negative else value


@kernel
def _read_decimals(
    data: Bytes, starts: Ints, ends: Ints, good: Flags, bits: int, limits: Ints, units: Ints, status: Bytes
) -> None:
    """Read JSON numbers of up to 18 digits without an exponent; all others are left undecided."""
    most = np.int64(0x7FFFFFFFFFFFFFFF) >> bits
    for i in range(starts.size):
        units[i] = 0
        if not good[i]:
            status[i] = 1
            continue
        at, end = starts[i], ends[i]
        status[i] = 2
        negative = at < end and data[at] == 45
        if negative:
            at += 1
        if at >= end or end - at > 19:
            continue
        first = at
        number = np.int64(0)
        while at < end and 48 <= data[at] <= 57:
            number = number * 10 + np.int64(data[at] - 48)
            at += 1
        whole = at - first
        if whole == 0 or (whole > 1 and data[first] == 48):
            continue
        places = 0
        scale = np.int64(1)
        if at < end and data[at] == 46:
            at += 1
            while at < end and 48 <= data[at] <= 57:
                number = number * 10 + np.int64(data[at] - 48)
                scale *= 10
                at += 1
                places += 1
            if places == 0:
                continue
        if at != end or whole + places > 18 or number > most:
            continue
        if number > limits[places]:
            status[i] = 1
            continue
        value = (number << bits) // scale
        units[i] = -value if negative else value
        status[i] = 0
