"""Batches of items: what is accepted, what is refused and where, and that every source gives the same items."""

from __future__ import annotations

import datetime
import enum

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream.errors import ItemError, WeightError
from sketchstream.items.arrays import BLOCK, Items, as_weights
from sketchstream.items.domains import hashes
from sketchstream.items.key import Key

KEY = Key(bytes(range(16)))
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
MARK = "marked-item-7391"


def listed(items: Items) -> list[int | str | bytes]:
    """The items of a batch as Python objects."""
    whole = items.whole()
    if whole.type_name == "int":
        return whole.arrays[0].tolist()
    buffer, starts, ends = whole.arrays
    raw = buffer.tobytes()
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    blobs = [raw[start:end] for start, end in spans]
    return [blob.decode() for blob in blobs] if items.type_name == "str" else blobs


@given(st.one_of(st.lists(INT64), st.lists(TEXT), st.lists(st.binary(max_size=300))))
def test_a_list_comes_back_as_it_went_in(values):
    batch = Items.of(values)
    assert len(batch) == len(values)
    assert listed(batch) == values


@pytest.mark.parametrize("value", [0, 127, 128, 255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32, (1 << 63) - 1])
def test_ints_of_every_width_survive_packing(value):
    assert listed(Items.of([value, -value, ~value])) == [value, -value, ~value]


@pytest.mark.parametrize("length", [0, 1, 31, 32, 255, 256, 65535, 65536, 200_000])
def test_strings_of_every_width_survive_packing(length):
    assert listed(Items.of(["x" * length, "", "y"])) == ["x" * length, "", "y"]
    assert listed(Items.of([b"x" * length, b"", b"y"])) == [b"x" * length, b"", b"y"]


@pytest.mark.parametrize("n", [0, 1, 15, 16, BLOCK - 1, BLOCK, BLOCK + 1, 70_000])
def test_lists_of_every_length_are_packed(n):
    values = [f"item {number} ä" for number in range(n)]
    assert listed(Items.of(values)) == values


class Colour(enum.IntEnum):
    RED = 7


class Text(str):
    __slots__ = ()


def test_equal_items_from_every_source_have_equal_hashes():
    texts = ["a", "", "äß€", "x" * 50, "a"]
    blobs = [text.encode() for text in texts]
    numbers = [1, -1, 0, 1 << 40, -(1 << 63)]
    buffer = b"".join(blobs)
    offsets = np.concatenate([[0], np.cumsum([len(blob) for blob in blobs])])
    by_kind = {
        "str": [
            texts,
            tuple(texts),
            [Text(text) for text in texts],
            [np.str_(text) for text in texts],
            np.array(texts),
            np.array(texts, dtype=object),
            np.array(texts, dtype=np.dtypes.StringDType()),
            pa.array(texts),
            pa.array(["skipped", *texts])[1:],
            pa.array(texts, pa.large_string()),
            pa.chunked_array([texts[:2], texts[2:]]),
            pa.array(texts).dictionary_encode(),
            Items.packed(buffer, offsets, "str"),
            Items.of((buffer, offsets.astype(np.int32)), "str"),
        ],
        "bytes": [
            blobs,
            [bytearray(blob) for blob in blobs],
            [memoryview(blob) for blob in blobs],
            [np.bytes_(blob) for blob in blobs],
            np.array(blobs),
            pa.array(blobs),
            pa.array(blobs, pa.large_binary()),
            (np.frombuffer(buffer, np.uint8), offsets),
            (buffer, offsets.astype(np.uint32)),
            Items.spans(b"xx" + buffer, offsets[:-1] + 2, offsets[1:] + 2),
        ],
        "int": [
            numbers,
            [np.int64(number) for number in numbers],
            np.array(numbers),
            np.array(numbers)[::-1][::-1],
            np.array(numbers).astype(">i8"),
            np.repeat(numbers, 2)[::2],
            np.array(numbers, dtype=object),
            pa.array(numbers),
            pa.array([9, 9, *numbers])[2:],
            pa.chunked_array([numbers[:1], [], numbers[1:]]),
        ],
    }
    for kind, sources in by_kind.items():
        expected = hashes(Items.of(sources[0]), KEY).tolist()
        for source in sources:
            batch = Items.of(source)
            assert batch.type_name == kind
            assert hashes(batch, KEY).tolist() == expected, type(source)
    small = [[3, 200, 7], np.array([3, 200, 7], np.uint8), pa.array([3, 200, 7], pa.uint8()), [3, 200, Colour.RED]]
    assert len({tuple(hashes(Items.of(source), KEY).tolist()) for source in small}) == 1


def test_fixed_size_binary_and_numpy_byte_strings_are_items():
    assert listed(Items.of(pa.array([b"ab", b"cd"], pa.binary(2))[1:])) == [b"cd"]
    assert listed(Items.of(np.array([b"ab", b"c"]))) == [b"ab", b"c"]


def test_arrow_and_packed_sources_are_not_copied():
    array = pa.array(np.arange(1000))
    whole = Items.of(array).whole()
    (held,) = whole.arrays
    assert held.ctypes.data == array.buffers()[1].address
    texts = pa.array(["a", "b"])
    buffer, _, _ = Items.of(texts).whole().arrays
    assert buffer.ctypes.data == texts.buffers()[2].address
    (held,) = Items.of(pa.chunked_array([pa.array([], pa.int64()), array])).whole().arrays
    assert held.ctypes.data == array.buffers()[1].address
    values = np.arange(5)
    assert np.shares_memory(Items.of(values).whole().arrays[0], values)


REFUSED = [
    ([True], "bool at position 0"),
    ([1, True], "bool at position 1"),
    ([np.True_], "position 0"),
    ([1, 2.0], "float at position 1"),
    ([1.5], "float at position 0"),
    ([None], "NoneType at position 0"),
    (["a", None], "NoneType at position 1"),
    (["a", b"a"], "bytes at position 1 in a batch of str"),
    ([1, "1"], "str at position 1 in a batch of int"),
    ([b"1", 1], "int at position 1 in a batch of bytes"),
    ([["a"]], "list at position 0"),
    (["a", ["a"]], "list at position 1"),
    ([1, {}], "dict at position 1"),
    (["a", datetime.date(2020, 1, 1)], "date at position 1"),
    (["a"] * 5000 + [None], "NoneType at position 5000"),
    ([1] * 5000 + [1 << 63], "position 5000"),
    ([1 << 63], "64 bits"),
    ([-(1 << 63) - 1], "64 bits"),
    ([10**30], "64 bits"),
    (["\ud800"], "surrogates"),
    ("abc", "one str"),
    (b"abc", "one bytes"),
    (5, "one int"),
    (None, "NoneType"),
    ({"a"}, "set"),
    ({"a": 1}, "dict"),
    ((x for x in "ab"), "generator"),
    (np.array([1.0]), "float64"),
    (np.array([True]), "bool"),
    (np.array(["2020-01-01"], "datetime64[D]"), "datetime64"),
    (np.zeros((2, 2), int), "one-dimensional"),
    (np.array(3), "one-dimensional"),
    (np.array([1, None], object), "NoneType at position 1"),
    (np.array([1, 1 << 63], np.uint64), "position 1"),
    (np.ma.masked_array([1, 2], [0, 1]), "masked"),
    (pa.array([1.5]), "double"),
    (pa.array([True]), "bool"),
    (pa.array([1, None, None]), "null at position 1"),
    (pa.chunked_array([[1], [2, None]]), "null at position 2"),
    (pa.array(["a", None]), "null at position 1"),
    (pa.DictionaryArray.from_arrays([0, 1], ["a", None]), "null at position 1"),
    (pa.DictionaryArray.from_arrays([0, None], [3, 4]), "null at position 1"),
    (
        pa.chunked_array(
            [
                pa.DictionaryArray.from_arrays([0], [3]),
                pa.DictionaryArray.from_arrays([0], pa.array([None], pa.int64())),
            ]
        ),
        "position 1",
    ),
    (pa.array([1 << 63], pa.uint64()), "64 bits"),
    (pa.array([["a"]]), "list"),
    (pa.scalar(1), "found"),
    ((b"abc", np.array([0, 4])), "position 0"),
    ((b"abc", np.array([0, 2, 1])), "position 1"),
    ((b"abc", np.array([-1, 2])), "position 0"),
    ((b"abc", np.array([0.0, 1.0])), "offsets"),
    ((b"abc", np.zeros((1, 1), int)), "offsets"),
    ((b"abc", np.zeros(0, int)), "offsets"),
    ((np.zeros(4, np.int8), np.array([0, 4])), "uint8"),
    (("abc", np.array([0, 4])), "must be bytes"),
    ((np.zeros(8, np.uint8)[::2], np.array([0, 4])), "contiguous"),
]


@pytest.mark.parametrize(
    ("source", "words"), REFUSED, ids=[f"{number}-{words}" for number, (_, words) in enumerate(REFUSED)]
)
def test_what_is_no_item_is_refused_with_its_position(source, words):
    with pytest.raises(ItemError, match=words):
        Items.of(source).whole()


def test_errors_do_not_tell_the_item():
    number = 739_174_391
    for source in (
        [MARK, 5],
        [5, MARK],
        [MARK, None],
        [1, float(number)],
        [number, "x"],
        [MARK + "\ud800"],
        [10**30 + number],
    ):
        with pytest.raises(ItemError) as caught:
            Items.of(source).whole()
        text = f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"
        assert MARK not in text
        assert str(number) not in text
    assert MARK not in repr(Items.of([MARK]))
    assert MARK not in repr(Items.of([MARK]).whole())


def test_empty_text_and_empty_bytes_are_items():
    assert len(Items.of([""])) == 1
    assert hashes(Items.of([""]), KEY)[0] != hashes(Items.of([b""]), KEY)[0]


@pytest.mark.parametrize(
    "empty", [[], (), np.array([], int), np.array([], "U1"), pa.array([], pa.string()), (b"", np.zeros(1, int))]
)
def test_a_batch_may_be_empty(empty):
    batch = Items.of(empty)
    assert len(batch) == 0
    assert listed(batch) == []
    assert len(Items.concat([batch, Items.of(["a"])])) == 1


def test_take_and_concat_choose_and_join():
    texts = [f"t{number}" for number in range(9000)]
    batch = Items.of(texts)
    mask = np.arange(9000) % 3 == 0
    assert listed(batch.take(mask)) == texts[::3]
    assert listed(Items.of(pa.array(texts)).take(np.array([5, 0]))) == ["t5", "t0"]
    joined = Items.concat([Items.of(["x"]), batch.take(mask), Items.of(pa.array(["y"]))])
    assert listed(joined) == ["x", *texts[::3], "y"]
    assert listed(Items.concat([Items.of([1]), Items.of(np.array([2, 3]))])) == [1, 2, 3]
    with pytest.raises(ItemError, match="one type"):
        Items.concat([Items.of([1]), Items.of(["1"])])
    with pytest.raises(ItemError, match="mask"):
        batch.take(np.ones(3, bool))
    with pytest.raises(ItemError, match="type str"):
        Items.of([1], "str")


def test_pieces_of_a_list_are_cleared_when_the_batch_has_gone_by():
    pieces = [piece for _, piece in Items.of([MARK] * 10).pieces()]
    assert pieces
    assert all(not piece.arrays[0].any() for piece in pieces)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1, -2, 3], [1, -2, 3]),
        (np.array([1, -2, 3], np.int8), [1, -2, 3]),
        (np.array([1, 2, 3], np.uint64), [1, 2, 3]),
        (np.array([1, -2, 3], np.int32), [1, -2, 3]),
        ((1, -2, 3), [1, -2, 3]),
        (pa.array([1, -2, 3]), [1, -2, 3]),
    ],
)
def test_weights_are_integers_of_any_width(weights, expected):
    assert as_weights(weights, 3).tolist() == expected


NO_WEIGHTS = [
    *(1, 1.0, "1", [1, 2], [1.0, 2.0, 3.0], [1, 2, True], [1, 2, None], [1, 2, 1 << 63], ["1", "2", "3"]),
    *(np.ones(3), np.ones(3, bool), np.ones((3, 1), int), iter([1, 2, 3]), pa.array([1, 2, None])),
]


@pytest.mark.parametrize("weights", NO_WEIGHTS, ids=range(len(NO_WEIGHTS)))
def test_what_is_no_weight_is_refused(weights):
    with pytest.raises(WeightError):
        as_weights(weights, 3)
