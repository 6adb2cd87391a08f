"""What a decoder makes of payloads: items by type, weights, times, no-ops and poison, each event from itself alone.

In: records with payloads of every kind. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.json_texts import broken_texts, texts
from helpers.kafka.batches import Batch, Record
from helpers.kafka.whole import parse_batches
from helpers.records import PlainRecord, records_of
from sketchstream.errors import ConfigError
from sketchstream.items.arrays import Items
from sketchstream.items.events import Events
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.decode.decoder import Decoder
from sketchstream_connectors.decode.packed_maps import ask_msgpack
from sketchstream_connectors.decode.records import from_client_records

NOTHING = object()


def items_of(items: Items) -> list[Any]:
    """As plain objects."""
    whole = items.whole()
    if whole.type_name == "int":
        return [int(value) for value in whole.arrays[0]]
    buffer, starts, ends = whole.arrays
    parts = [buffer[a:b].tobytes() for a, b in zip(starts, ends, strict=True)]
    return [part.decode() for part in parts] if items.type_name == "str" else parts


def outcome(decoded: Events) -> list[Any]:
    """Item of each update, None for a no-op, "poison" for what cannot be used."""
    null = decoded.null if decoded.record is None else decoded.null[decoded.record]
    assert not (decoded.valid & null).any()
    out = []
    for item, valid, no_op, wrong in zip(items_of(decoded.items), decoded.valid, null, decoded.poison, strict=True):
        out.append((item,) if valid else None if no_op else "poison")
        assert wrong == (out[-1] == "poison")
    return out


CASES: list[tuple[Any, Any, Any, Any]] = [
    # JSON value of the item, then what it is as text, int, bytes
    ("u1", ("u1",), "poison", (b"u1",)),
    ("", ("",), "poison", (b"",)),
    ("5", ("5",), (5,), (b"5",)),
    (5, ("5",), (5,), "poison"),
    (-5, ("-5",), (-5,), "poison"),
    ("05", ("05",), "poison", (b"05",)),
    ("+5", ("+5",), "poison", (b"+5",)),
    (2**63 - 1, (str(2**63 - 1),), (2**63 - 1,), "poison"),
    (2**64 - 1, (str(2**64 - 1),), (-1,), "poison"),
    (str(2**64 - 1), (str(2**64 - 1),), (-1,), (str(2**64 - 1).encode(),)),
    (-(2**63), (str(-(2**63)),), (-(2**63),), "poison"),
    (2**64, "poison", "poison", "poison"),
    ("\u00e9\U0001f600", ("\u00e9\U0001f600",), "poison", ("\u00e9\U0001f600".encode(),)),
    (5.0, "poison", "poison", "poison"),
    (True, "poison", "poison", "poison"),
    ({"a": 1}, "poison", "poison", "poison"),
    ([5], "poison", "poison", "poison"),
    (None, None, None, None),
    (NOTHING, None, None, None),
]


@pytest.mark.parametrize("item_type", ["text", "int", "bytes"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_json_items_by_type(item_type: Any, ascii_only: bool) -> None:
    documents = [{"x": 1} if case[0] is NOTHING else {"a": {"b": case[0]}, "x": 1} for case in CASES]
    values = [json.dumps(document, ensure_ascii=ascii_only).encode() for document in documents]
    expected = [case[1 + ("text", "int", "bytes").index(item_type)] for case in CASES]
    decoder = Decoder(item="a.b", item_type=item_type)
    decoded = decoder.decode(records_of([*values, b"{", None]))
    assert outcome(decoded) == [*expected, "poison", None]
    assert decoded.items.type_name == {"text": "str", "int": "int", "bytes": "bytes"}[item_type]
    for value, alone in zip(values, expected, strict=True):
        assert outcome(decoder.decode(records_of([value]))) == [alone]


@pytest.mark.parametrize("format_", ["key", "value"])
def test_raw_bytes_by_type(format_: Any) -> None:
    given_ = [b"u1", b"", b"5", b"-7", b"05", str(2**64 - 1).encode(), b"\xff", "\u00e9".encode(), b"\xed\xa0\x80"]
    records = from_client_records(
        [
            PlainRecord(i, 1, part, b"v") if format_ == "key" else PlainRecord(i, 1, None, part)
            for i, part in enumerate(given_)
        ]
    )
    p = "poison"
    assert outcome(Decoder(format=format_, item_type="bytes").decode(records)) == [(part,) for part in given_]
    assert outcome(Decoder(format=format_, item_type="int").decode(records)) == [p, p, (5,), (-7,), p, (-1,), p, p, p]
    found = outcome(Decoder(format=format_).decode(records))
    assert found == [("u1",), ("",), ("5",), ("-7",), ("05",), (str(2**64 - 1),), p, ("\u00e9",), p]


def test_null_keys_and_tombstones_are_no_ops() -> None:
    records = from_client_records(
        [PlainRecord(0, 1, None, b"v"), PlainRecord(1, 1, b"k", None), PlainRecord(2, 1, b"k", b"v")]
    )
    assert outcome(Decoder(format="key").decode(records)) == [None, None, ("k",)]
    assert outcome(Decoder(format="value").decode(records)) == [("v",), None, ("v",)]
    assert outcome(Decoder(format="packed", item_type="int").decode(records)) == ["poison", None, "poison"]


def test_weights_are_integers_and_one_where_there_is_none() -> None:
    shown = [("3", 3), ("-2", -2), ("null", 1), ("0", 0), (str(2**63 - 1), 2**63 - 1)]
    wrong = ['"3"', "1.0", "true", "[]", "1e3", str(2**63), str(2**64)]
    values = [f'{{"i":"a","n":{text}}}'.encode() for text, _ in shown]
    values += [f'{{"i":"a","n":{text}}}'.encode() for text in wrong]
    values += [b'{"i":"a"}', b'{"i":null,"n":"x"}']
    decoded = Decoder(item="i", weight="n").decode(records_of(values))
    assert decoded.weights is not None
    assert decoded.weights[: len(shown)].tolist() == [weight for _, weight in shown]
    assert outcome(decoded) == [("a",)] * len(shown) + ["poison"] * len(wrong) + [("a",), None]
    assert decoded.weights[-2] == 1
    assert Decoder(item="i").decode(records_of(values)).weights is None


def test_times_are_the_records_or_a_fields() -> None:
    values = [b'{"i":1,"ts":5}', b'{"i":1,"ts":"1970-01-01T00:00:01Z"}', b'{"i":1,"ts":1.5}', b'{"i":1}', b"{", None]
    records = records_of(values, times=[10, 20, 30, 40, 50, -1])
    none = NO_TIME
    assert Decoder(item="i").decode(records).times.tolist() == [10, 20, 30, 40, 50, none]
    assert Decoder(item="i", time="ts").decode(records).times.tolist() == [5, 1000, none, none, none, none]
    decoded = Decoder(item="i", time="ts", weight="ts").decode(records)
    assert decoded.times.tolist() == [5, 1000, none, none, none, none]
    assert Decoder(format="key").decode(records).times.tolist() == [10, 20, 30, 40, 50, none]


@pytest.mark.statistics
@given(st.lists(st.one_of(st.none(), texts, broken_texts()), max_size=6), st.sampled_from(["text", "int", "bytes"]))
def test_an_event_is_judged_from_itself_alone(values: list[bytes | None], item_type: Any) -> None:
    decoder = Decoder(item="user.id", item_type=item_type, weight="n", time="ts")
    together = decoder.decode(records_of(values))
    assert len(together) == len(values)
    for index, value in enumerate(values):
        alone = decoder.decode(records_of([value]))
        assert outcome(alone) == [outcome(together)[index]]
        assert alone.times[0] == together.times[index]
        assert together.weights is not None
        assert alone.weights is not None
        assert not alone.valid[0] or alone.weights[0] == together.weights[index]


@given(st.lists(st.tuples(st.one_of(st.none(), st.binary(max_size=6)), st.one_of(st.none(), texts)), max_size=8))
def test_both_paths_decode_alike(pairs: list[tuple[bytes | None, bytes | None]]) -> None:
    wire = Batch(
        tuple(Record(i, i, key, value) for i, (key, value) in enumerate(pairs)), len(pairs), codec=3 * bool(pairs)
    )
    raw = parse_batches(wire.encode(0), 0)
    stock = from_client_records(
        [PlainRecord(i, 1000 + i, key, value) for i, (key, value) in enumerate(pairs)], next_position=1
    )
    for decoder in (Decoder(item="id", weight="n", time="ts"), Decoder(format="key"), Decoder(format="packed")):
        ours, theirs = decoder.decode(raw), decoder.decode(stock)
        assert outcome(ours) == outcome(theirs)
        assert ours.times.tolist() == theirs.times.tolist()


payloads = st.one_of(
    st.none(), st.binary(max_size=40), st.text(max_size=20).map(str.encode), st.integers(0, 40).map(lambda n: b"x" * n)
)


@given(st.lists(st.tuples(payloads, payloads), max_size=8), st.sampled_from(["text", "bytes"]))
@settings(max_examples=200)
def test_keys_and_values_are_judged_as_python_judges_them(
    pairs: list[tuple[bytes | None, bytes | None]], item_type: Literal["text", "bytes"]
) -> None:
    def judged(payload: bytes | None) -> tuple[str] | tuple[bytes] | str | None:
        if payload is None or item_type == "bytes":
            return None if payload is None else (payload,)
        try:
            return (payload.decode(),)
        except UnicodeDecodeError:
            return "poison"

    records = from_client_records(
        [PlainRecord(i, 1000 + i, key, value) for i, (key, value) in enumerate(pairs)], next_position=1
    )
    keys = Decoder(format="key", item_type=item_type).decode(records)
    assert outcome(keys) == [None if value is None else judged(key) for key, value in pairs]
    values = Decoder(format="value", item_type=item_type).decode(records)
    assert outcome(values) == [judged(value) for _, value in pairs]
    assert values.null.tolist() == [value is None for _, value in pairs]


# ------------------------------------------------------------------------------------------------------ packed


def reference(value: bytes | None) -> tuple[list[int] | str | None, list[int], int | None]:
    """By the msgpack library: items (None for a no-op, or "poison"), weights, t (None where it is missing)."""
    if value is None:
        return None, [1], None
    try:
        document = msgpack.unpackb(value, raw=False, strict_map_key=False)
    except Exception:
        return "poison", [1], NO_TIME
    if not isinstance(document, dict):
        return "poison", [1], NO_TIME
    t = document.get("t")
    if t is not None and (not isinstance(t, int) or isinstance(t, bool) or not -(2**63) <= t < 2**63):
        t = NO_TIME
    items, weights = document.get("i"), document.get("w")
    if items is None:
        return None, [1], t
    good = isinstance(items, bytes) and len(items) % 8 == 0
    if good and weights is not None:
        good = isinstance(weights, bytes) and len(weights) == len(items) // 2
    if not good:
        return "poison", [1], t
    numbers = np.frombuffer(items, dtype="<u8").tolist()
    return numbers, [1] * len(numbers) if weights is None else np.frombuffer(weights, dtype="<i4").tolist(), t


u64 = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 9, 10, 2**63 - 1, 2**63, 2**64 - 1, 10**19, 10**19 - 1]))
bins = st.lists(u64, max_size=4).map(lambda numbers: np.array(numbers, dtype="<u8").tobytes())
weight_bins = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4).map(lambda w: np.array(w, dtype="<i4").tobytes())
junk = st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=3), st.binary(max_size=9), st.lists(st.none()))
moments = st.one_of(st.integers(-(2**63), 2**64 - 1), st.sampled_from([0, 127, 128, -1, -32, -33, 2**63, 2**63 - 1]))


@st.composite
def packed_maps(draw: st.DrawFn) -> bytes:
    """Maps that are right, nearly right, and broken."""
    document: dict[Any, Any] = {}
    if draw(st.integers(0, 9)):
        document["i"] = draw(bins)
        if draw(st.booleans()):
            size = len(document["i"]) // 8
            document["w"] = np.array(draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=size, max_size=size)))
            document["w"] = document["w"].astype("<i4").tobytes()
    if draw(st.booleans()):
        document["t"] = draw(moments)
    if draw(st.integers(0, 3)) == 0:
        document[draw(st.sampled_from(["i", "w", "t", "x", "", 5]))] = draw(st.one_of(junk, bins, weight_bins))
    names = draw(st.permutations(sorted(document, key=str)))
    packed = bytearray(msgpack.packb({name: document[name] for name in names}, use_single_float=draw(st.booleans())))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(packed) - 1)) if packed else 0
        if draw(st.booleans()):
            packed[at : at + 1] = bytes([draw(st.integers(0, 255))])
        else:
            del packed[at : at + draw(st.integers(1, 4))]
    return bytes(packed)


@pytest.mark.statistics
@given(st.lists(st.one_of(st.none(), packed_maps(), st.binary(max_size=12)), max_size=5))
@settings(max_examples=300)
def test_packed_maps_are_read_as_the_msgpack_library_reads_them(values: list[bytes | None]) -> None:
    records = records_of(values, times=[100 + i for i in range(len(values))])
    expected: list[Any] = []
    weights, times, strict = [], [], []
    for index, value in enumerate(values):
        items, given_, t = reference(value)
        expected += [(number,) for number in items] if isinstance(items, list) else [items]
        weights += given_
        times.append(100 + index if t is None else t)
        strict.append(NO_TIME if t is None else t)
    decoded = Decoder(format="packed", item_type="int").decode(records)
    wrapped = [(e[0] - 2**64 if e[0] >= 2**63 else e[0],) if isinstance(e, tuple) else e for e in expected]
    assert outcome(decoded) == wrapped
    assert decoded.times.tolist() == times
    assert (decoded.weights.tolist() if decoded.weights is not None else [1] * len(weights)) == weights
    assert decoded.record is not None
    assert (np.diff(decoded.record) >= 0).all()
    as_text = Decoder(format="packed", time="t").decode(records)
    assert outcome(as_text) == [(str(e[0]),) if isinstance(e, tuple) else e for e in expected]
    assert as_text.times.tolist() == strict


def test_packed_lengths_that_lie_are_refused() -> None:
    body = b"\x81\xa1i"
    eight = bytes(8)
    lies = [
        body + b"\xc6\xff\xff\xff\xff" + eight,
        body + b"\xc5\xff\xff" + eight,
        body + b"\xc4\x09" + eight,
        body + b"\xc4",
        body + b"\xc6\x00\x00",
        b"\xdf\xff\xff\xff\xff\xa1i" + b"\xc4\x08" + eight,
        b"\x8f\xa1i\xc4\x08" + eight,
        body + b"\xc4\x08" + eight + b"\x00",
        b"",
        b"\x81" * 5000,
        b"\x91" * 5000,
    ]
    good = msgpack.packb({"i": eight})
    decoded = Decoder(format="packed", item_type="int").decode(records_of([*lies, good]))
    assert outcome(decoded) == ["poison"] * len(lies) + [(0,)]


def test_usual_packed_maps_need_no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_text: object) -> None:
        raise AssertionError

    monkeypatch.setattr("sketchstream_connectors.decode.packed_maps.ask_msgpack", refused)
    numbers = np.arange(3, dtype="<u8")
    values: list[bytes | None] = [
        msgpack.packb({"i": numbers.tobytes(), "w": bytes(12), "t": t})
        for t in (0, 127, 300, -1, -200, 2**40, -(2**40))
    ]
    values += [
        msgpack.packb({"i": bytes(8 * 40)}),
        msgpack.packb({"i": bytes(8 * 9000)}),
        msgpack.packb({"i": b""}),
        None,
    ]
    decoded = Decoder(format="packed").decode(records_of(values))
    assert len(decoded) == 7 * 3 + 40 + 9000 + 0 + 1
    assert ask_msgpack(msgpack.packb({"i": bytes(8)})) == (bytes(8), None, 0, 0)


# ------------------------------------------------------------------------------------------------ configuration


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"format": "avro"}, "format"),
        ({"item": "a", "item_type": "str"}, "item_type"),
        ({"format": "key", "columns": ("a",)}, "no named fields"),
        ({"format": "packed", "columns": ("a",)}, "no named fields"),
        ({"item": "a", "columns": ("b", "c.")}, "dotted"),
        ({"item": "a", "columns": tuple(f"f{i}" for i in range(33))}, "at most 32"),
        ({"format": "key", "item": "a"}, "item"),
        ({"format": "packed", "item_type": "bytes"}, "packed"),
        ({"format": "key", "weight": "n"}, "weight"),
        ({"format": "packed", "weight": "n"}, "weight"),
        ({"format": "value", "time": "ts"}, "time"),
        ({"format": "packed", "time": "ts"}, "time"),
        ({"item": "a..b"}, "dotted"),
        ({"item": ""}, "dotted"),
        ({"item": "a", "weight": ".n"}, "dotted"),
        ({"item": "a", "time": "t."}, "dotted"),
    ],
)
def test_combinations_that_mean_nothing_are_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Decoder(**options)


def test_no_records_decode_to_no_updates() -> None:
    for decoder in (Decoder(item="a", weight="b", time="c"), Decoder(format="key"), Decoder(format="packed")):
        decoded = decoder.decode(records_of([]))
        assert (len(decoded), decoded.times.size, len(decoded.items)) == (0, 0, 0)


def test_the_item_field_may_be_the_weight_and_the_time_too() -> None:
    decoded = Decoder(item="a", weight="a", time="a", item_type="int").decode(records_of([b'{"a":7}', b'{"a":"7"}']))
    assert outcome(decoded) == [(7,), "poison"]
    assert decoded.times.tolist() == [7, NO_TIME]


def test_no_repr_shows_a_payload() -> None:
    decoder = Decoder(item="i")
    records = records_of([b'{"i":"marked"}', b'{"i":"marked'])
    assert "marked" not in repr(records) + repr(decoder.decode(records)) + repr(decoder)


EIGHT = b"\xc4\x08" + bytes(8)
NONE = NO_TIME


@pytest.mark.parametrize(
    ("t", "time"),
    [
        (b"\x00", 0),
        (b"\x7f", 127),
        (b"\xe0", -32),
        (b"\xff", -1),
        (b"\xcc\xff", 255),
        (b"\xcd\xff\xff", 65535),
        (b"\xce\xff\xff\xff\xff", 2**32 - 1),
        (b"\xcf" + b"\x7f" + b"\xff" * 7, 2**63 - 1),
        (b"\xcf" + b"\x80" + bytes(7), NONE),
        (b"\xcf" + b"\xff" * 8, NONE),
        (b"\xd0\x80", -128),
        (b"\xd1\x80\x00", -(2**15)),
        (b"\xd2\x80\x00\x00\x00", -(2**31)),
        (b"\xd3\x80" + bytes(7), -(2**63)),
        (b"\xd3\xff" + b"\xff" * 6 + b"\xfe", -2),
        (b"\xcb" + bytes(8), NONE),
        (b"\xca" + bytes(4), NONE),
        (b"\xc3", NONE),
        (b"\xa15", NONE),
        (b"\xc0", 1000),
    ],
)
def test_every_number_format_of_t(t: bytes, time: int) -> None:
    decoded = Decoder(format="packed", item_type="int").decode(records_of([b"\x82\xa1t" + t + b"\xa1i" + EIGHT]))
    assert outcome(decoded) == [(0,)]
    assert decoded.times.tolist() == [time]


def test_of_a_packed_field_given_twice_the_last_one_holds() -> None:
    one, two = b"\xc4\x08" + bytes([1]) + bytes(7), b"\xc4\x10" + bytes([2]) + bytes(15)
    values: list[bytes | None] = [
        b"\x82\xa1i" + one + b"\xa1i" + two,
        b"\x82\xa1i" + two + b"\xa1i" + one,
        b"\x83\xa1i" + one + b"\xa1w\xc4\x08" + bytes(8) + b"\xa1w\xc4\x04" + bytes([9, 0, 0, 0]),
        b"\x83\xa1i" + one + b"\xa1t\x01\xa1t\x02",
        b"\x82\xa1i" + one + b"\xa1i\xc0",
    ]
    decoded = Decoder(format="packed", item_type="int").decode(records_of(values))
    assert outcome(decoded) == [(2,), (0,), (1,), (1,), (1,), None]
    assert decoded.weights is not None
    assert decoded.weights[3] == 9
    assert decoded.times.tolist() == [1000, 1000, 1000, 2, 1000]
