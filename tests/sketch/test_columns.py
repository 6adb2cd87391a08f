"""Columns against plain Python: items, integers, multiples of 2^-f and codes, each record judged from itself alone.

In: JSON texts and cells of every kind. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.json_texts import broken_texts, numbers, texts
from helpers.twins import twins_run
from sketchstream.errors import SpecError, WeightError
from sketchstream.items.arrays import Items, Pairs
from sketchstream.items.columns import Choices, RecordColumn
from sketchstream.items.lattice import Lattice, Units
from sketchstream.kernels.tokens import DECIMAL, INTEGER, NULL, OTHER, STRING
from sketchstream_connectors.decode.json_values import find_fields

NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
DIGITS = re.compile(r"-?(0|[1-9][0-9]*)")


def cells(values: list[bytes | None]) -> RecordColumn:
    """Cells of a format without types."""
    ends = np.cumsum([len(value or b"") for value in values], dtype=np.int64)
    starts = np.array([e - len(v or b"") for v, e in zip(values, ends, strict=True)], np.int64)
    kinds = np.array([NULL if value is None else STRING for value in values], np.uint8)
    return RecordColumn(kinds, np.frombuffer(b"".join(v or b"" for v in values), np.uint8), starts, ends, raw=True)


def fields(values: list[bytes], names: list[str]) -> list[RecordColumn]:
    """Columns of JSON texts."""
    ends = np.cumsum([len(value) for value in values], dtype=np.int64)
    starts = ends - np.array([len(value) for value in values], np.int64)
    found = find_fields(np.frombuffer(b"".join(values), np.uint8), starts, ends, names)
    return [found.column(place) for place in range(len(names))]


def plain(batch: Items) -> list[Any]:
    """Items as Python objects."""
    whole = batch.whole()
    if whole.type_name == "int":
        return [int(value) for value in whole.arrays[0]]
    buffer, starts, ends = whole.arrays
    return [buffer[a:b].tobytes() for a, b in zip(starts, ends, strict=True)]


def held(values: Any, valid: Any) -> list[Any]:
    """Values where they are valid."""
    return [value if good else None for value, good in zip(values, valid, strict=True)]


# ---------------------------------------------------------------------------------------------- the slow references


def exact(text: str) -> Fraction | None:
    """A JSON number; None if it is none, or beyond any bound."""
    found = NUMBER.fullmatch(text)
    if found is None or len(text) > 1000:
        return None
    mantissa, _, power = text.lower().partition("e")
    if power and abs(int(power)) > 5000:  # far from every bound in these tests, mantissas being shorter
        return Fraction(0) if int(power) < 0 or Fraction(mantissa) == 0 else None
    return Fraction(mantissa) * Fraction(10) ** int(power or 0)


def slow_decimal(text: str, bits: int, most: Fraction) -> int | None:
    """One number in units of 2^-bits."""
    value = exact(text)
    if value is None or abs(value) > most:
        return None
    units = math.trunc(value * 2**bits)
    return units if abs(units) < 2**40 else None


def slow_integer(text: str) -> int | None:
    """One integer of 64 bits."""
    value = int(text) if DIGITS.fullmatch(text) and len(text) < 30 else None
    return value if value is not None and -(2**63) <= value < 2**63 and len(text) <= 20 else None


spelled = st.one_of(
    numbers,
    st.decimals(allow_nan=False, allow_infinity=False, places=4).map(str),
    st.integers(-(2**66), 2**66).map(str),
    st.sampled_from(["", "-", "+1", "1.", ".5", "01", "1e", " 1", "1 ", "NaN", "Infinity", "0x1", "1_0", "\u0661"]),
    st.text(max_size=5),
)
bounds = st.sampled_from([Fraction(1, 3), Fraction(1), Fraction(1000), Fraction(2**40), Fraction(12345, 1000)])


@given(st.lists(spelled, max_size=8), st.integers(0, 40), bounds)
@settings(max_examples=150)
def test_numbers_of_cells_are_read_exactly_from_their_text(values: list[str], bits: int, most: Fraction) -> None:
    column = cells([value.encode() for value in values])
    assert held(*column.decimals(bits, most)) == [slow_decimal(value, bits, most) for value in values]
    assert held(*column.integers()) == [slow_integer(value) for value in values]


@given(st.lists(st.one_of(texts, broken_texts()), min_size=1, max_size=6), st.integers(0, 40))
@settings(max_examples=150)
def test_numbers_of_json_are_read_exactly_from_their_text(values: list[bytes], bits: int) -> None:
    """The reference keeps the texts of numbers; which texts are JSON, and what is at a path, orjson has decided."""
    names = ["user.id", "n", "id", "ts", "user", "a", "i", "idx"]
    for name, column in zip(names, fields(values, names), strict=True):
        units, integers = held(*column.decimals(bits)), held(*column.integers())
        for index, value in enumerate(values):
            if column.kinds[index] not in (INTEGER, DECIMAL):
                assert units[index] is integers[index] is None
                continue
            found: Any = json.loads(
                value, parse_float=lambda text: ("float", text), parse_int=lambda text: ("int", text)
            )
            for part in name.split("."):
                found = found[part]
            kind, text = found
            assert units[index] == slow_decimal(text, bits, Fraction(2**40))
            if column.kinds[index] == INTEGER:
                assert integers[index] == slow_integer("0" if text == "-0" else text)
            else:
                assert integers[index] is None
                assert kind == "float" or len(text) > 18 or text == "-0"


def test_texts_of_decimals_survive_unusual_documents() -> None:
    """Escapes and long numbers are left to orjson, which makes floats: the text is found all the same."""
    values = [
        b'{"\\u006e": 0.1000000000000000055511151231257827, "n": 0.30000000000000004}',
        b'{"n": 5.5, "x": "\\u00e9 0.7", "n": 0.70000000000000000001e0}',
        b'{"x": {"n": "1.5"}, "n": -0.0, "y": [1.25, {"n": 9.5}]}',
        b'{"n": 36893488147419103232}',
        b'{"n": 1e+0000001}',
        b'{"\\"n": 7.5, "n": 2.5}',
        b'{"n": [2.5]}',
        b'{"n": 1e309}',
    ]
    (column,) = fields(values, ["n"])
    shown = [
        column.buffer[a:b].tobytes() if kind == DECIMAL else None
        for kind, a, b in zip(column.kinds, column.starts, column.ends, strict=True)
    ]
    assert shown == [
        b"0.30000000000000004",
        b"0.70000000000000000001e0",
        b"-0.0",
        b"36893488147419103232",
        b"1e+0000001",
        b"2.5",
        None,
        None,
    ]
    assert held(*column.decimals(2)) == [1, 2, 0, None, 40, 10, None, None]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=6), spelled.map(str.encode)), max_size=8))
def test_items_of_cells(values: list[bytes | None]) -> None:
    def text(value: bytes | None) -> bytes | None:
        try:
            return value if value is None else value.decode().encode()
        except UnicodeDecodeError:
            return None

    def number(value: bytes | None) -> int | None:
        if value is None or not re.fullmatch(rb"-?(0|[1-9][0-9]*)", value) or len(value.lstrip(b"-")) > 20:
            return None
        found = int(value)
        return None if not -(2**63) <= found < 2**64 else found - 2**64 if found >= 2**63 else found

    column = cells(values)
    for item_type, slow in (("text", text), ("bytes", lambda value: value), ("int", number)):
        batch, valid = column.items(item_type)  # type: ignore[arg-type]
        assert held(plain(batch), valid) == [slow(value) for value in values]  # type: ignore[operator]


@given(st.lists(st.one_of(texts, broken_texts()), min_size=2, max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_a_record_is_judged_from_itself_alone(values: list[bytes], random: Any) -> None:
    names = ["user.id", "n", "id"]
    choices = Choices(["12", "5", "a"])
    order = random.sample(range(len(values)), random.randint(1, len(values)))
    alone = [fields([values[place]], names) for place in order]
    for number, column in enumerate(fields(values, names)):
        for chosen in (np.array(order), np.isin(np.arange(len(values)), order)):
            part = column.take(chosen)
            kept = order if chosen.dtype != np.bool_ else sorted(order)
            own = [alone[order.index(place)][number] for place in kept]
            assert part.kinds.tolist() == [int(one.kinds[0]) for one in own]
            assert held(*part.decimals(3)) == [held(*one.decimals(3))[0] for one in own]
            assert held(*part.integers()) == [held(*one.integers())[0] for one in own]
            assert part.codes(choices).tolist() == [int(one.codes(choices)[0]) for one in own]
            assert part.absent.tolist() == [bool(one.absent[0]) for one in own]


def test_codes_are_positions_in_a_declared_list() -> None:
    values = [b'{"c":"AA"}', b'{"c":"UA"}', b'{"c":"ua"}', b'{"c":7}', b'{"c":"7"}', b'{"c":7.0}', b'{"c":null}', b"{}"]
    (column,) = fields([*values, b'{"c":true}', b'{"c":["AA"]}'], ["c"])
    codes = column.codes(Choices(["UA", 7, "AA"]))
    assert codes.dtype == np.int32
    assert codes.tolist() == [2, 0, -1, 1, 1, -1, -1, -1, -1, -1]
    many = Choices([f"level {i}" for i in range(5000)])
    assert cells([b"level 4999", b"level 5000", b"level 0"]).codes(many).tolist() == [4999, -1, 0]


@pytest.mark.parametrize("values", [[], ["a", "a"], [5, "5"], [b"a"], [1.5]])
def test_a_list_of_choices_has_different_texts(values: list[Any]) -> None:
    with pytest.raises(SpecError, match="different texts or integers"):
        Choices(values)


def test_floats_count_at_their_binary_value() -> None:
    given_ = [0.1, 0.25, -3.0, 2.0**40, math.nan, 7.0, 0.0]
    kinds = np.array([DECIMAL, DECIMAL, DECIMAL, DECIMAL, OTHER, NULL, DECIMAL], np.uint8)
    nowhere = np.zeros(7, np.int64)
    column = RecordColumn(kinds, np.zeros(0, np.uint8), nowhere, nowhere, floats=np.array(given_))
    assert held(*column.decimals(40)) == [
        math.trunc(Fraction(0.1) * 2**40),
        2**38,
        None,
        None,
        None,
        None,
        0,
    ]
    assert held(*column.decimals(2)) == [0, 1, -12, None, None, None, 0]
    assert held(*column.integers()) == [None, None, -3, 2**40, None, None, 0]
    assert column.take(np.array([1, 2])).decimals(2)[0].tolist() == [1, -12]
    assert not column.items()[1].any()


def test_units_belong_to_one_lattice() -> None:
    lattice = Lattice(3, Fraction(2))
    units, good = lattice.weights(Units(np.array([16, -16, 17, -17]), 3))
    assert held(units, good) == [16, -16, None, None]
    with pytest.raises(WeightError, match=r"expected units of 2\^-3"):
        lattice.weights(Units(np.array([1]), 2))


def test_pairs_are_taken_together() -> None:
    pairs = Pairs(["a", "b", "c"], [1, 2, 3]).take(np.array([True, False, True]))
    assert (plain(pairs.rows), plain(pairs.items)) == ([b"a", b"c"], [1, 3])


def test_a_column_shows_no_value() -> None:
    assert repr(cells([b"marked"])) == "RecordColumn(1 records)"
    assert "marked" not in repr(Choices(["marked"]))


def test_positions_in_a_list_are_those_of_a_dictionary() -> None:
    """Short and long texts of few letters, equal ends and beginnings, the end of a buffer, other kinds."""
    rng = np.random.default_rng(8)
    made = {bytes(rng.choice(list(b"ab"), rng.integers(0, 30)).tolist()) for _ in range(2000)}
    made |= {b"campaign-%07d" % n for n in range(500)} | {b"2024-01-%d-2024-01" % n for n in range(500)}
    values = sorted(made)
    listed = values[::2]
    choices = Choices([one.decode() for one in listed])
    places = {one: at for at, one in enumerate(listed)}
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(values))
        rows = [values[i] for i in order]
        kinds = rng.choice([STRING, STRING, STRING, INTEGER, NULL, DECIMAL], len(rows)).astype(np.uint8)
        edges = np.cumsum([0, *map(len, rows)])
        column = RecordColumn(kinds, np.frombuffer(b"".join(rows), np.uint8).copy(), edges[:-1], edges[1:])
        good = (STRING, INTEGER)
        expected = [places.get(one, -1) if kind in good else -1 for one, kind in zip(rows, kinds, strict=True)]
        assert column.codes(choices).tolist() == expected
        with twins_run():
            assert column.codes(choices).tolist() == expected
        assert max(expected) > 0
    assert Choices(["", "x"]).find(np.zeros(0, np.uint8), *np.zeros((2, 1), np.int64), np.ones(1, bool)).tolist() == [0]
