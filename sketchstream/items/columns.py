"""Columns: one field of n records, as bounds into a buffer, without a Python object per record.

In: kinds of values, bounds, a buffer, from a decoder. Out: items, integers, multiples of 2^-f, positions in a list, and
masks of valid records. Touches: nothing. The result for a record depends on that record alone.
Source: RFC 8259 (numbers); docs/theory/gaussian.md, section 5 (multiples of 2^-f).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from sketchstream.array_types import Bytes, Flags, Ints
from sketchstream.errors import SpecError
from sketchstream.items.arrays import Items, whole_numbers
from sketchstream.items.digits import digit_bounds, write_digits
from sketchstream.items.domains import Index
from sketchstream.items.key import Key
from sketchstream.items.lattice import MAX_UNITS, Lattice
from sketchstream.kernels import check_utf8, find_texts, list_texts, plain, read_integers, use_numpy_twin
from sketchstream.kernels.tokens import DECIMAL, INTEGER, NULL, STRING
from sketchstream.spec import ClosedDomain, Item

ItemType = Literal["text", "int", "bytes"]


@dataclass(frozen=True, eq=False, repr=False)
class RecordColumn:
    """One field of n records.

    Args:
        kinds: (n,) uint8, MISSING to DECIMAL.
        buffer: (bytes,) uint8.
        starts: (n,) int64, start of a string's bytes or a number's text; undefined for other kinds.
        ends: (n,) int64, their ends.
        raw: whether strings are bytes of an untyped format: they may spell numbers, and need not be UTF-8.
        floats: (n,) the numbers, if the format has floats and no texts; their binary value counts.
        binary: whether the format has binary integers: one whose end is negative is the number in `starts` itself.
    """

    kinds: Bytes
    buffer: Bytes
    starts: Ints
    ends: Ints
    raw: bool = False
    floats: npt.NDArray[np.float64] | None = None
    binary: bool = False

    def __len__(self) -> int:
        return int(self.kinds.size)

    def __repr__(self) -> str:
        return f"RecordColumn({len(self)} records)"

    @property
    def absent(self) -> Flags:
        """(n,) bool: whether the field is missing or null."""
        absent: Flags = self.kinds <= NULL
        return absent

    def take(self, chosen: npt.NDArray[np.bool_] | Ints) -> RecordColumn:
        """Select records by a mask or an array of positions; the buffer is shared."""
        floats = None if self.floats is None else self.floats[chosen]
        return replace(
            self, kinds=self.kinds[chosen], starts=self.starts[chosen], ends=self.ends[chosen], floats=floats
        )

    def items(self, item_type: ItemType = "text") -> tuple[Items, Flags]:
        """Read items, and find the records that have one.

        Args:
            item_type: "text": strings of UTF-8, integers as their digits; "int": integers of 64 bits, as such or
                spelled in a string, 2^63 to 2^64 - 1 being the int64 of the same bits; "bytes": strings as they are.

        Returns:
            n items, with placeholders for records without one; (n,) bool, whether there is one.
        """
        valid = self._named(item_type)
        if item_type == "int":
            if self.binary:
                return self._binary_items()
            numbers = np.empty(len(self), np.int64)
            _read_integers(self, valid, True, numbers)
            return Items.of(numbers), valid
        if item_type == "text":
            if self.binary:
                return self.spelled().items("text")
            valid = self.texts
        starts, ends = self.starts, self.ends
        if not valid.all():
            starts, ends = np.where(valid, starts, 0), np.where(valid, ends, 0)
        return Items.spans(self.buffer, starts, ends, "bytes" if item_type == "bytes" else "str"), valid

    @property
    def _numbers(self) -> Flags:
        """(n,) bool: whether the value is a binary integer."""
        numbers: Flags = (self.kinds == INTEGER) & (self.ends < 0)
        return numbers

    def _binary_items(self) -> tuple[Items, Flags]:
        """Items of type "int": numbers as they are, the others read from their texts."""
        numbers = self._numbers
        if numbers.all():
            return Items.of(self.starts.copy()), numbers
        valid = self._named("int") & ~numbers
        read = np.empty(len(self), np.int64)
        _read_integers(self, valid, True, read)
        return Items.of(np.where(numbers, self.starts, read)), valid | numbers

    def spelled(self) -> RecordColumn:
        """Replace binary integers by their digits."""
        numbers = self._numbers if self.binary else np.zeros(len(self), np.bool_)
        if not numbers.any():
            return replace(self, binary=False)
        offsets = np.empty(len(self) + 1, np.int64)
        digit_bounds(self.starts, numbers, offsets)
        digits = np.empty(int(offsets[-1]), np.uint8)
        write_digits(self.starts, offsets, digits)
        if not np.any(~numbers & ((self.kinds == STRING) | (self.kinds == INTEGER) | (self.kinds == DECIMAL))):
            buffer, base = digits, 0
        else:
            buffer, base = np.concatenate([self.buffer, digits]), self.buffer.size
        buffer.flags.writeable = False
        starts = np.where(numbers, offsets[:-1] + base, self.starts)
        return replace(
            self, buffer=buffer, starts=starts, ends=np.where(numbers, offsets[1:] + base, self.ends), binary=False
        )

    def _named(self, item_type: ItemType) -> Flags:
        """(n,) bool: whether the value is a string, or a number that stands for its digits."""
        texts: Flags = self.kinds == STRING
        return texts if item_type == "bytes" else texts | (self.kinds == INTEGER)

    @property
    def texts(self) -> Flags:
        """(n,) bool: whether the value is UTF-8 text, or an integer, which stands for its digits."""
        valid = self._named("text")
        if self.raw:
            check_utf8(self.buffer, self.starts, self.ends, valid)
        return valid

    def integers(self) -> tuple[Ints, Flags]:
        """Read integers of 64 bits.

        Returns:
            (n,) int64, undefined where the record has no integer; (n,) bool: whether it has one.
        """
        if self.floats is not None:
            values, whole = whole_numbers(np.where(self.kinds == DECIMAL, self.floats, 0.0))
            return values, whole & (self.kinds == DECIMAL)
        if self.binary:
            numbers = self._numbers
            return np.where(numbers, self.starts, 0), numbers
        valid = self.kinds == INTEGER
        if self.raw:
            valid |= self.kinds == STRING
        values = np.empty(len(self), np.int64)
        _read_integers(self, valid, False, values)
        return values, valid

    def decimals(self, fraction_bits: int, most: Fraction | None = None) -> tuple[Ints, Flags]:
        """Read numbers in units of 2^-f, truncated toward zero, exactly: from their texts, without floats.

        Args:
            fraction_bits: f, 0 to 40.
            most: largest absolute number, compared before truncation; None: any below 2^40 units.

        Returns:
            (n,) int64 units, 0 where the record has no number within the bound; (n,) bool: whether it has one.
        """
        lattice = Lattice(fraction_bits, Fraction(MAX_UNITS) if most is None else most)
        if self.floats is not None:
            units, good = lattice.weights(np.where(self.kinds == DECIMAL, self.floats, np.nan))
            return units, good
        if self.binary and (numbers := self._numbers).any():
            units, good = lattice.weights(np.where(numbers, self.starts, 0))
            rest, read = replace(self, kinds=np.where(numbers, NULL, self.kinds), binary=False).decimals(
                fraction_bits, most
            )
            return np.where(numbers, units, rest), np.where(numbers, good, read)
        good = (self.kinds == INTEGER) | (self.kinds == DECIMAL)
        if self.raw:
            good |= self.kinds == STRING
        return lattice.texts(self.buffer, self.starts, self.ends, good), good

    def codes(self, choices: Choices) -> npt.NDArray[np.int32]:
        """(n,) int32 position of each value in a declared list; -1: not in the list."""
        if self.binary:
            return self.spelled().codes(choices)
        return choices.find(self.buffer, self.starts, self.ends, self._named("text"))


def _read_integers(column: RecordColumn, valid: Flags, unsigned: bool, out: Ints) -> None:
    """Read decimal texts; see `kernels.texts.read_integers`."""
    arguments = (column.buffer, column.starts, column.ends, valid, unsigned, out)
    twin = use_numpy_twin(read_integers, lambda: plain.INTEGER_WORK * len(out), None, arguments)
    (plain.read_integers if twin else read_integers)(*arguments)


_NO_TABLE: Final = np.frombuffer(b"", np.uint8), np.empty(0, np.int64), np.empty(0, np.int32)
"""An empty table of texts: no bytes, no ends, no places."""


class Choices:
    """A declared list of values, prepared once for `RecordColumn.codes`.

    Args:
        values: distinct strings, or integers, which stand for their digits.

    Raises:
        SpecError: no values, values of another type, or one twice.
    """

    def __init__(self, values: Sequence[Item]) -> None:
        listed = [str(value) if type(value) is int else value for value in values]
        if not listed or any(type(one) is not str for one in listed) or len(set(listed)) != len(listed):
            different = len(set(map(str, listed)))
            raise SpecError(f"expected different texts or integers; found {len(listed)} values, {different} different")
        self.values = tuple(listed)
        self._index = Index.build(ClosedDomain(items=listed), Key.generate())

    @cached_property
    def _places(self) -> dict[bytes, int]:
        """The position of each value, by its bytes."""
        return {str(text).encode(): place for place, text in enumerate(self.values)}

    @cached_property
    def _texts(self) -> tuple[Bytes, Ints, npt.NDArray[np.int32]]:
        """The values' bytes, their starts, and their hash table."""
        listed = np.frombuffer(b"".join(self._places), np.uint8)
        offsets = np.cumsum([0, *map(len, self._places)], dtype=np.int64)
        table = np.full(1 << (4 * len(self)).bit_length(), -1, np.int32)
        list_texts(listed, offsets, table)
        return listed, offsets, table

    def find(self, buffer: Bytes, starts: Ints, ends: Ints, valid: Flags) -> npt.NDArray[np.int32]:
        """(n,) int32 position of each text buffer[start:end] in the list; -1 for others.

        Args:
            buffer: buffer of the texts.
            starts: (n,) starts of the texts.
            ends: (n,) ends of the texts.
            valid: (n,) whether there is a text.
        """
        out = np.empty(len(starts), np.int32)
        texts = (buffer, starts, ends, valid)
        if use_numpy_twin(find_texts, lambda: plain.TEXT_WORK * len(out), None, (*texts, *_NO_TABLE, out)):
            plain.find_texts(*texts, self._places, out)
        else:
            find_texts(*texts, *self._texts, out)
        return out

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Choices({len(self)})"

    def locate(self, items: Items) -> Ints:
        """(n,) int64 position of each item in the list; -1: not in the list."""
        return self._index.locate(items)
