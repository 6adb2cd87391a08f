"""Weights reach the lattice exactly, truncated toward zero, whatever they are written in."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream.errors import WeightError
from sketchstream.items.lattice import MAX_NUMBER_CHARACTERS, Lattice

QUARTERS = Lattice(2, Fraction(10))


def reference(value: Fraction, lattice: Lattice) -> int | None:
    """The rule, written down plainly."""
    if abs(value) > lattice.max_weight:
        return None
    units = abs(value) * 2**lattice.bits
    whole = units.numerator // units.denominator
    if whole >= 2**40:
        return None
    return whole if value >= 0 else -whole


def texts(lattice: Lattice, written: list[bytes]) -> list[int | None]:
    ends = np.cumsum([len(one) for one in written], dtype=np.int64)
    starts = ends - np.array([len(one) for one in written], np.int64)
    good = np.ones(len(written), np.bool_)
    units = lattice.texts(np.frombuffer(b"".join(written) or b" ", np.uint8), starts, ends, good)
    assert not units[~good].any()
    return [int(unit) if fine else None for unit, fine in zip(units, good, strict=True)]


@pytest.mark.parametrize(
    ("weight", "units"),
    [
        (1, 4),
        (0.25, 1),
        ("0.25", 1),
        (b"-0.75", -3),
        (Decimal("9.99"), 39),
        (Fraction(-1, 3), -1),
        (-0.0, 0),
        ("1e1", 40),
        ("1e-999999999", 0),
        ("-0", 0),
        (np.float32(0.5), 2),
        (np.int8(-10), -40),
        (Decimal("0E+999999"), 0),
        ("10." + "0" * 900, 40),
        ("1000e-2", 40),
        (10.000000000000002, None),
        ("10.0000000000000000000000000001", None),
        ("1e999999999", None),
        (math.nan, None),
        (math.inf, None),
        (Decimal("NaN"), None),
        (Decimal("-Infinity"), None),
        (True, None),
        (None, None),
        ("", None),
        ("+1", None),
        ("01", None),
        ("1.", None),
        (".5", None),
        ("1e", None),
        (" 1", None),
        ("NaN", None),
        ("١", None),
        ([1], None),
        ("1" + "0" * MAX_NUMBER_CHARACTERS, None),
    ],
)
def test_weights_of_every_type(weight: object, units: int | None) -> None:
    assert QUARTERS.weight(weight) == units
    if isinstance(weight, (str, bytes)):
        written = weight if isinstance(weight, bytes) else weight.encode()
        assert texts(QUARTERS, [written]) == [units]


numbers = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-2000, max_value=2000).map(str),
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.text("0123456789.-+eE", max_size=12),
)


@given(st.lists(numbers, max_size=30), st.integers(0, 40), st.fractions(Fraction(1, 99), 2**41, max_denominator=99))
def test_texts_equal_the_rule_and_the_single_reader(written: list[str], bits: int, bound: Fraction) -> None:
    lattice = Lattice(bits, bound)
    expected: list[int | None] = []
    for one in written:
        try:
            parsed = json.loads(one, parse_float=Decimal)
        except ValueError:
            parsed = None
        valid = isinstance(parsed, (int, Decimal)) and one == one.strip()
        expected.append(reference(Fraction(parsed), lattice) if valid else None)
    assert [lattice.weight(one) for one in written] == expected
    assert texts(lattice, [one.encode() for one in written]) == expected


@given(
    st.lists(st.floats(width=64), max_size=40),
    st.integers(0, 40),
    st.fractions(Fraction(1, 9), 2**41, max_denominator=9),
)
def test_float_arrays_equal_the_rule(values: list[float], bits: int, bound: Fraction) -> None:
    lattice = Lattice(bits, bound)
    units, good = lattice.weights(np.array(values, np.float64))
    expected = [reference(Fraction(v), lattice) if math.isfinite(v) else None for v in values]
    assert [int(u) if g else None for u, g in zip(units, good, strict=True)] == expected
    assert not units[~good].any()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize(("bits", "bound"), [(0, "1/2"), (0, "5"), (3, "1099511627776"), (40, "1/2"), (40, "7/2")])
def test_integer_arrays_equal_the_rule(dtype: type, bits: int, bound: str) -> None:
    ends = np.iinfo(dtype)
    near = [0, 1, 2, 5, 6, (1 << 37) - 1, 1 << 37, (1 << 40) - 1, 1 << 40, ends.max, ends.min, -1, -5, -6]
    values = np.array([one for one in near if ends.min <= one <= ends.max], dtype)
    lattice = Lattice(bits, Fraction(bound))
    units, good = lattice.weights(values)
    expected = [reference(Fraction(int(v)), lattice) for v in values]
    assert [int(u) if g else None for u, g in zip(units, good, strict=True)] == expected


def test_a_bound_between_two_floats_is_kept() -> None:
    lattice = Lattice(0, Fraction(1, 3))
    below = float(Fraction(1, 3))
    assert Fraction(below) < Fraction(1, 3)
    assert lattice.weights(np.array([below, math.nextafter(below, 1)]))[1].tolist() == [True, False]


def test_truncation_never_enlarges_a_sum_of_absolute_weights() -> None:
    lattice = Lattice(1, Fraction(1))
    units, good = lattice.weights([Fraction(7, 8)] * 8 + [Fraction(-7, 8)] * 8)
    assert good.all()
    assert int(np.abs(units).sum()) <= 14 * 2
    assert int(units.sum()) == 0


def test_python_callers_get_an_error_that_names_the_position_only() -> None:
    assert QUARTERS.checked([1, 0.5]).tolist() == [4, 2]
    with pytest.raises(WeightError, match="position 2") as caught:
        QUARTERS.checked([1, 2, 12345.678])
    assert "12345" not in str(caught.value)
