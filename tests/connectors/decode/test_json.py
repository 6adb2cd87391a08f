"""The compiled JSON scanner equals orjson: the same texts are refused, the same values are found.

In: random and peculiar texts. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import datetime
import os
import random
import re
import signal
import subprocess
import sys
from json import dumps, loads

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.json_reference import ask_orjson
from helpers.json_texts import BAD_UTF8, GOOD_UTF8, PECULIAR, broken_texts, texts
from helpers.paths import TESTS
from helpers.twins import twins_run
from sketchstream.kernels import check_utf8, plain, read_integers
from sketchstream.kernels.tokens import DECIMAL, INTEGER, MISSING, NULL, OTHER, STRING
from sketchstream.stream.windows.calendar import NO_TIME
from sketchstream_connectors.decode import json_scanner, json_values, layouts, time_kernels, times
from sketchstream_connectors.decode.json_values import find_fields
from sketchstream_connectors.decode.named_fields import Found

FIELDS = ["user.id", "id", "user"]


def laid_out(values: list[bytes | None], tail: bytes = b"") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One buffer. Of texts with fewer than 64 bytes behind them, the scanner reads a copy."""
    buffer = np.frombuffer(b"".join(value or b"" for value in values) + tail, dtype=np.uint8)
    ends = np.cumsum([len(value or b"") for value in values], dtype=np.int64)
    starts = np.array([-1 if v is None else e - len(v) for v, e in zip(values, ends, strict=True)], dtype=np.int64)
    return buffer, starts, np.where(starts < 0, -1, ends)


TAILS = [b"", b"x" * 16, b'"' * 16, b"7" * 16, b" " * 64, b'"' * 80, b"}" * 80, b"7" * 80, b',"user":{"id":7}}' * 8]
"""What a scanner that went on behind a text would find. From 64 bytes on, no text is copied."""


def answers(found: Found, index: int) -> list[tuple[int, bytes]] | None:
    """In the form of the reference."""
    if found.broken[index]:
        return None
    out = []
    for kind, start, end in zip(found.kinds[:, index], found.starts[:, index], found.ends[:, index], strict=True):
        held = kind in (STRING, INTEGER, DECIMAL)
        out.append((int(kind), found.buffer[start:end].tobytes() if held else b""))
    return out


def compare(values: list[bytes], fields: list[str]) -> Found:
    """Every text against orjson."""
    paths = [[part.encode() for part in field.split(".")] for field in fields]
    expected = [ask_orjson(text, paths) for text in values]
    for tail in TAILS:
        found = find_fields(*laid_out(list(values), tail), fields)
        for index, text in enumerate(values):
            assert answers(found, index) == expected[index], text
    return found


@given(st.lists(st.one_of(texts, broken_texts(), st.none()), min_size=1, max_size=8), st.permutations(FIELDS))
def test_few_texts_are_read_by_orjson_alone(values: list[bytes | None], fields: list[str]) -> None:
    one = find_fields(*laid_out(values), fields)
    with pytest.MonkeyPatch.context() as patch, twins_run():
        patch.setattr(json_scanner, "scan_json", None)
        other = find_fields(*laid_out(values), fields)
    for index in range(len(values)):
        assert answers(one, index) == answers(other, index)


@pytest.mark.statistics
@given(st.lists(texts, min_size=1, max_size=8), st.permutations(FIELDS), st.integers(1, 3))
@settings(max_examples=120)
def test_values_are_those_that_orjson_finds(values: list[bytes], fields: list[str], n: int) -> None:
    compare(values, fields[:n])


@pytest.mark.statistics
@given(st.lists(st.one_of(broken_texts(), st.binary(max_size=20)), min_size=1, max_size=8))
@settings(max_examples=120)
def test_broken_texts_are_refused_exactly_when_orjson_refuses_them(values: list[bytes]) -> None:
    compare(values, FIELDS)


def test_peculiar_texts_alone_and_between_others() -> None:
    compare(PECULIAR, FIELDS)
    for text in PECULIAR:
        compare([text], ["user.id"])
        compare([text, b'{"user":{"id":"next"}}'], ["user.id"])


@given(texts)
@settings(max_examples=50)
def test_every_prefix_of_a_text_is_judged_as_orjson_judges_it(text: bytes) -> None:
    compare([text[:size] for size in range(len(text))], FIELDS)


def written(seed: random.Random, depth: int = 0) -> str:
    """An object as most are: strings, numbers, literals and objects, at most one space after colons and commas."""
    colon, comma = seed.choice([(":", ","), (": ", ", ")])
    members = []
    for _ in range(seed.randint(0 if depth else 1, 6)):
        name = seed.choice(["user", "id", "user_id", "a", "ids", "", "user.id", "\u00fc", "a_name_of_twenty_bytes"])
        value = seed.choice(
            [
                lambda: '"' + "x" * seed.choice([0, 1, 5, 30, 63, 64, 65, 130]) + '"',
                lambda: '"' + seed.choice(["\u00fc", "\u0800 \uffff", "\U0001f600" * 9, "{", "},", ":", "\x7f"]) + '"',
                lambda: str(seed.choice([0, 7, -1, -0.5, 12.25, 123456789012345, 1234567890123456, -99])),
                lambda: seed.choice(["-0", "1e5", "[1]", "[]", '"\\n"', "1234567890123456789", "0.12345678901234567"]),
                lambda: seed.choice(["true", "false", "null"]),
                lambda: written(seed, depth + 1) if depth < 9 else "{}",
            ]
        )()
        members.append(f'"{name}"{colon}{value}')
    return "{" + comma.join(members) + "}" + seed.choice(["", "", "", "\n", "\r\n", " "]) * (depth == 0)


def damaged(seed: random.Random, text: bytes) -> bytes:
    """With a few bytes changed, taken out or put in; or cut off."""
    out = bytearray(text)
    for _ in range(seed.randint(1, 3)):
        at = seed.randrange(len(out) + 1)
        new = seed.choice(b'"\\{}[]:,0-.eEtfn \x00\x1f\x7f\x80\xc3\xed\xf4\xff')
        change = seed.randrange(4)
        if change == 0 and at < len(out):
            out[at] = new
        elif change == 1:
            out.insert(at, new)
        elif change == 2 and at < len(out):
            del out[at]
        elif change == 3:
            del out[at:]
    return bytes(out)


@pytest.mark.parametrize("number", range(4))
def test_random_objects_sound_and_damaged_are_judged_as_orjson_judges_them(number: int) -> None:
    seed = random.Random(number)
    sound = [written(seed).encode() for _ in range(1500)]
    values = sound + [damaged(seed, seed.choice(sound)) for _ in range(3000)]
    seed.shuffle(values)
    fields = [["id"], ["user.id", "user_id"], ["user", "user.id.a", "a_name_of_twenty_bytes"], ["user.user.user", "a"]]
    paths = [[part.encode() for part in field.split(".")] for field in fields[number]]
    found = find_fields(*laid_out(list(values), b"x" * 64), fields[number])
    for index, text in enumerate(values):
        assert answers(found, index) == ask_orjson(text, paths), text
    assert asked(sound, fields[number]) < 700


USUAL = [b'"u1"', b'""', b"7", b"1700000000000", b"-3", b"12.50", b"-0.5", b"true", b"false", b"null", b'"a b: c, {d}"']
USUAL += [b'"' + b"x" * size + b'"' for size in (7, 31, 62, 63, 64, 65, 127, 500)] + ['"Z\u00fcrich"'.encode()]
RARE = [b'"\\n"', b'"\\u00e9x\\\\"', b"-0", b"-0.0", b"1e5", b"2E-07", b"9" * 17, b"9" * 19, b"9" * 21, b"1" * 200]
RARE += [b'"\\ud83d\\ude00"', b'"\xf0\x9f\x98\x80"', b'"x\x7f"', b"12345678901234567.5", b"0.12345678901234567"]
WRONG = [
    b"",
    b"01",
    b"1.",
    b".5",
    b"-",
    b"+1",
    b"1e",
    b"1e400",
    b"1" * 201,
    b"nul",
    b"tru",
    b"falsy",
    b"nan",
    b'"',
    b'"x',
]
WRONG += [
    b'"\n"',
    b'"\\x"',
    b'"\\u12g4"',
    b'"\\ud83d"',
    b'"\xc3"',
    b'"\xed\xa0\x80"',
    b'"\xff"',
    b"[1]",
    b"{}",
    b'"a""b"',
    b"1 2",
]


def template(seed: random.Random, depth: int = 0) -> list[bytes | None]:
    """The structure of a text: its bytes, and None for each string, number or literal."""
    if depth == 4 or (depth and seed.random() < 0.6):
        return [None]
    space = seed.choice([b"", b"", b" ", b"\n\t"])
    keys = seed.random() < 0.8
    pieces: list[bytes | None] = [b"{" if keys else b"["]
    for place in range(seed.randint(0 if depth else 1, 5)):
        name = seed.choice(["user", "id", "a", "", "user_id", "\u00fc", "a_name_of_twenty_bytes", "n" * 40])
        pieces.append((b"," if place else b"") + space)
        pieces += [f'"{name}":'.encode() + space] if keys else []
        pieces += template(seed, depth + 1)
    return [*pieces, space + (b"}" if keys else b"]")]


def filled(seed: random.Random, pieces: list[bytes | None], usual: float) -> bytes:
    """A text of a structure; so large a share of its values is as most are."""
    parts = []
    for piece in pieces:
        values = USUAL if seed.random() < usual else seed.choice([RARE, WRONG])
        parts.append(seed.choice(values) if piece is None else piece)
    return b"".join(parts)


@pytest.mark.parametrize("number", range(6))
def test_texts_of_a_few_shapes_are_judged_as_orjson_judges_them(number: int) -> None:
    seed = random.Random(100 + number)
    fields = [["user_id"], ["user.id", "id"], ["user", "user.a.id", "id"], ["a", "user.user.user"], ["a.a"], []][number]
    paths = [[part.encode() for part in field.split(".")] for field in fields]
    for shapes in (1, 2, 4, 7, 40):
        structures = [template(seed) for _ in range(shapes)]
        values = [filled(seed, seed.choice(structures), 0.995) for _ in range(900)]
        values += [damaged(seed, seed.choice(values)) for _ in range(100)]
        values += [
            text[: seed.randrange(len(text) + 1)] for text in values[:25]
        ]  # their rest may follow: it is not theirs
        seed.shuffle(values)
        for tail in (b"", b"x" * 64):
            found = find_fields(*laid_out(list(values), tail), fields)
            for index, text in enumerate(values):
                assert answers(found, index) == ask_orjson(text, paths), text


def drawn(seed: random.Random) -> list[bytes]:
    """A thousand texts: sound ones of some structures or of any, indented, damaged, cut off."""
    if seed.random() < 0.5:
        structures = [template(seed) for _ in range(seed.choice([1, 2, 4, 40]))]
        values = [filled(seed, seed.choice(structures), seed.choice([0.995, 0.9, 0.5])) for _ in range(600)]
    else:
        values = [written(seed).encode() for _ in range(600)]
        if seed.random() < 0.3:
            indent = seed.choice([1, 2, "\t"])
            values = [dumps(loads(text), indent=indent, ensure_ascii=seed.random() < 0.5).encode() for text in values]
    values += [damaged(seed, seed.choice(values)) for _ in range(300)]
    values += [text[: seed.randrange(len(text) + 1)] for text in values[:100]]
    seed.shuffle(values)
    return values


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_a_million_texts_are_judged_as_orjson_judges_them(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.Random(1000 + number)
    behind = [*TAILS, b"\\" * 80, b'",' * 40]
    for _ in range(50):
        fields = seed.choice(
            [["user_id"], ["user.id", "id"], ["user", "user.a.id", "id"], ["a.a", "user.user.user"], []]
        )
        paths = [[part.encode() for part in field.split(".")] for field in fields]
        values = drawn(seed)
        monkeypatch.setattr(layouts, "WORTH", seed.choice([2, 1 << 60]))
        found = find_fields(*laid_out(list(values), seed.choice(behind)), fields)
        for index, text in enumerate(values):
            assert answers(found, index) == ask_orjson(text, paths), text


def test_a_cut_text_does_not_go_on_in_the_next_one() -> None:
    whole = b'{"a":"x","id":"y","n":12}'
    for size in range(len(whole)):
        values = [whole, whole[:size], whole[size:], whole]
        found = find_fields(*laid_out(list(values), b"x" * 64), ["id", "n"])
        for index, text in enumerate(values):
            assert answers(found, index) == ask_orjson(text, [[b"id"], [b"n"]]), text


GUARDED = """
import ctypes, mmap, random, sys
import numpy as np
from connectors.decode.test_json import PECULIAR, TAILS, USUAL, RARE, WRONG, filled, template, times_of
from sketchstream.kernels import check_utf8
from sketchstream_connectors.decode import layouts
from sketchstream_connectors.decode import json_values
from sketchstream_connectors.decode.json_values import find_fields
from sketchstream_connectors.decode.time_kernels import read_times

layouts.WORTH = 2
SIZE = 1 << 20
memory = mmap.mmap(-1, SIZE + mmap.PAGESIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.mprotect(ctypes.c_void_p(address + SIZE), mmap.PAGESIZE, 0) == 0
before = np.frombuffer(memory, dtype=np.uint8)[:SIZE]

def run(values):
    text = np.frombuffer(b"".join(values), dtype=np.uint8)
    buffer = before[SIZE - text.size:]
    buffer[:] = text
    buffer.flags.writeable = False
    ends = np.cumsum([len(value) for value in values], dtype=np.int64)
    starts = ends - [len(value) for value in values]
    found = find_fields(buffer, starts, ends, ["id", "user.id"])
    check_utf8(buffer, starts, ends, np.ones(len(values), np.bool_))
    for k in range(2):
        times = np.empty(len(values), np.int64)
        read_times(found.buffer, found.kinds[k], found.starts[k], found.ends[k], bool(k), times)

seed = random.Random(5)
for text in PECULIAR:
    for size in range(len(text) + 1):
        run([text[:size]])
for _ in range(400):
    pieces = template(seed)
    values = [filled(seed, pieces, 0.9) for _ in range(seed.choice([1, 2, 20, 70]))]
    for last in (values[-1], values[-1][: seed.randrange(len(values[-1]) + 1)], *USUAL[:3]):
        run([*values[:-1], last])
print("inside")
if len(sys.argv) > 1:
    print(memory[SIZE])
"""


@pytest.mark.statistics
def test_nothing_behind_the_buffer_is_read() -> None:
    command = [sys.executable, "-c", GUARDED]
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    sound = subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=300)
    assert (sound.returncode, sound.stdout) == (0, "inside\n"), sound.stderr[-2000:]
    beyond = subprocess.run(
        [*command, "beyond"], env=settings, capture_output=True, text=True, check=False, timeout=300
    )
    assert beyond.returncode == -signal.SIGSEGV  # the guard is on


def asked(values: list[bytes], fields: list[str]) -> int:
    """How many texts the scanner leaves to orjson."""
    calls: list[memoryview] = []
    original = json_values.ask_orjson

    def counted(texts: list[memoryview], paths: list[list[str]]) -> tuple[list[bool], list]:
        calls.extend(texts)
        return original(texts, paths)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "ask_orjson", counted)
        find_fields(*laid_out(list(values)), fields)
    return len(calls)


def test_usual_events_are_decided_without_orjson() -> None:
    plain = [
        b'{"user_id": "u1", "ts": 1700000000000, "page": "/a\\"b\\u00e9", "f": -1.5e-3, "ok": true, "x": null}',
        b'{"user_id":12345,"tags":["a",{"b":[1,2,3]}],"n":-3,"text":"\xc3\xa9\xf0\x9f\x98\x80"}',
        b'\n{"nested": {"user_id": "no"}, "user_id": ""}\r\n',
        b"[]",
        b"17",
        b'{"user_id": "u1", "n": -3, "f": -1.5, "ok": true, "x": null, "no": false}\n',
        b'{\n  "user_id": "u1",\n  "tags": [\n    "a"\n  ],\n  "none": {},\n  "n": 1\n}\n',
        b'{"user":{"id":"u1","plan":{"name":"free"}},"empty":{"":1}}',
        '{"user_id":"\u00fc\U0001f600","city":"Z\u00fcrich"}'.encode(),
        b'{"user_id":"' + b"x" * 500 + b'"}',
        b'{"said":"\\"' + b"x" * 61 + b'\\\\","user_id":"u1"}',
        b"{}",
        b" { } ",
    ]
    assert asked(plain, ["user_id", "ts", "n"]) == 0
    unusual = [
        b'{"user_id":"a\\u0062"}',
        b'{"user_\\u0069d":1}',
        b'{"user_id":12345678901234567890}',
        b'{"user_id":-0}',
    ]
    invalid = [
        b"{",
        b'{"a":1',
        b'{"a":"\xff"}',
        b'{"a":"\n"}',
        b'{"a":[1}',
        b'{"a":1,}',
        b'{,"a":1}',
        b'{"a" 1}',
        b'{"a":1}}',
    ]
    assert asked(unusual + invalid, ["user_id"]) == len(unusual + invalid)


def test_texts_that_are_not_there_have_no_fields() -> None:
    found = find_fields(*laid_out([None, b'{"id":1}', None]), ["id"])
    assert found.kinds.tolist() == [[MISSING, INTEGER, MISSING]]
    assert not found.broken.any()


# ------------------------------------------------------------------------------------------------------- times


def times_of(values: list[bytes], kind: int = STRING) -> list[int]:
    """By the compiled reader, and by its twin, which gives the same."""
    buffer, starts, ends = laid_out(list(values))
    out, plain = np.empty((2, len(values)), dtype=np.int64)
    kinds = np.full(len(values), kind, dtype=np.uint8)
    time_kernels.read_times(buffer, kinds, starts, ends, False, out)
    times.read_plainly(buffer, kinds, starts, ends, False, plain)
    assert plain.tolist() == out.tolist()
    return out.tolist()


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
offsets = st.integers(-1439, 1439)


@given(st.datetimes(), offsets, st.text("0123456789", max_size=12), st.sampled_from("Tt "))
@settings(max_examples=300)
def test_rfc_3339_times_are_exact(moment: datetime.datetime, minutes: int, fraction: str, separator: str) -> None:
    sign = "-" if minutes < 0 else "+"
    zone = f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    whole = moment.replace(microsecond=0)
    text = whole.isoformat(separator) + ("." + fraction if fraction else "") + zone
    since = whole.replace(tzinfo=datetime.UTC) - EPOCH
    expected = (since.days * 86400 + since.seconds - minutes * 60) * 1000 + int((fraction + "000")[:3])
    assert times_of([text.encode()]) == [expected]
    if minutes == 0:
        assert times_of([text.replace(zone, "Z").encode(), text.replace(zone, "z").encode()]) == [expected] * 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("0000-01-01T00:00:00Z", -62167219200000),
        ("9999-12-31T23:59:59.999Z", 253402300799999),
        ("2000-02-29T12:00:00-00:00", 951825600000),
        ("2016-12-31T23:59:60Z", 1483228799999),
        ("2017-01-01T05:29:60.5+05:30", 1483228799999),
        ("2013-01-01T00:00:00+23:59", 1356912060000),
    ],
)
def test_rfc_3339_at_its_edges(text: str, expected: int) -> None:
    assert times_of([text.encode()]) == [expected]


NOT_TIMES = """
2013-01-01 2013-01-01T00:00:00 2013-01-01T00:00Z 2013-1-01T00:00:00Z 2013-13-01T00:00:00Z 2013-00-01T00:00:00Z
2013-02-29T00:00:00Z 1900-02-29T00:00:00Z 2013-04-31T00:00:00Z 2013-01-32T00:00:00Z 2013-01-00T00:00:00Z
2013-01-01T24:00:00Z 2013-01-01T00:60:00Z 2013-01-01T00:00:61Z 2013-01-01T12:00:60Z 2013-01-01T00:00:00.Z
2013-01-01T00:00:00.5 2013-01-01T00:00:00+0100 2013-01-01T00:00:00+01 2013-01-01T00:00:00+24:00
2013-01-01T00:00:00+01:60 2013-01-01T00:00:00Zx 2013-01-01T00:00:00ZZ 2013-01-01T00:00:00+01:000
2013-01-01T00:00:00,5Z 2013/01/01T00:00:00Z 20130101T000000Z 2013-W01-1T00:00:00Z 1356998400000 -2013-01-01T00:00:00Z
2013-01-01X00:00:00Z 201a-01-01T00:00:00Z 2013-01-01T00:00:0aZ 2013-01-01T00:00:00.5a5Z 2013-01-01T00:00:00-1a:00
"""


@pytest.mark.parametrize("text", [*NOT_TIMES.split(), "", "2013-01-01T00:00:00\u00a0", " 2013-01-01T00:00:00Z"])
def test_what_is_not_a_time_is_unreadable(text: str) -> None:
    assert times_of([text.encode()]) == [NO_TIME]


@given(st.binary(max_size=40))
def test_no_bytes_make_the_time_reader_fail(noise: bytes) -> None:
    times_of([noise, b"2013-01-01T00:00:00" + noise])


DECIMAL_TIMES = st.from_regex(r"\A0{0,20}[0-9]{0,18}(\.[0-9]{0,5})?(e3|x)?\Z").map(str.encode)


@given(st.lists(DECIMAL_TIMES | st.binary(max_size=8), min_size=1, max_size=8), st.booleans())
@settings(max_examples=300)
def test_the_twin_reads_decimal_seconds_as_the_compiled_reader(values: list[bytes], seconds: bool) -> None:
    values = [*values, b"9" * 5000 + b".5", b"0" * 5000 + b".5"]
    buffer, starts, ends = laid_out(list(values))
    kinds = np.full(len(values), DECIMAL, dtype=np.uint8)
    out, plainly = np.empty((2, len(values)), dtype=np.int64)
    time_kernels.read_times(buffer, kinds, starts, ends, seconds, out)
    times.read_plainly(buffer, kinds, starts, ends, seconds, plainly)
    assert plainly.tolist() == out.tolist()


@given(st.integers(-(1 << 64), 1 << 65))
def test_integer_times_are_milliseconds_of_64_bits(number: int) -> None:
    expected = number if -(1 << 63) < number < 1 << 63 else NO_TIME
    assert times_of([str(number).encode()], INTEGER) == [expected]


@pytest.mark.parametrize("digits", range(1, 20))
def test_integer_times_of_every_length(digits: int) -> None:
    seed = random.Random(digits)
    low, high = 10 ** (digits - 1), min(10**digits, 1 << 63) - 1
    numbers = [low, high, *(seed.randint(low, high) for _ in range(200))]
    numbers += [-number for number in numbers]
    assert times_of([str(number).encode() for number in numbers], INTEGER) == numbers


def test_other_kinds_are_no_times() -> None:
    for kind in (MISSING, NULL, OTHER):
        assert times_of([b"2013-01-01T00:00:00Z"], kind) == [NO_TIME]


# ---------------------------------------------------------------------------------------------- integers, text

GRAMMAR = re.compile(rb"-?(0|[1-9][0-9]*)\Z")


@given(
    st.lists(
        st.one_of(
            st.integers(-(1 << 65), 1 << 65).map(lambda n: str(n).encode()),
            st.integers(-3, 3).flatmap(
                lambda d: st.sampled_from([str(b + d).encode() for b in (0, 1 << 63, 1 << 64, -(1 << 63), 10**19)])
            ),
            st.text("-+0123456789 ", max_size=22).map(str.encode),
            st.binary(max_size=6),
        ),
        min_size=1,
        max_size=10,
    ),
    st.booleans(),
)
@settings(max_examples=300)
def test_decimal_texts_are_integers_by_jsons_grammar(values: list[bytes], unsigned: bool) -> None:
    buffer, starts, ends = laid_out(list(values))
    valid = np.ones(len(values), dtype=np.bool_)
    out = np.empty(len(values), dtype=np.int64)
    read_integers(buffer, starts, ends, valid, unsigned, out)
    again, spelled = np.ones(len(values), dtype=np.bool_), np.empty(len(values), dtype=np.int64)
    plain.read_integers(buffer, starts, ends, again, unsigned, spelled)
    assert (again.tolist(), spelled.tolist()) == (valid.tolist(), out.tolist())
    top = 1 << (64 if unsigned else 63)
    for text, good, number in zip(values, valid, out, strict=True):
        expected = GRAMMAR.match(text) is not None and -(1 << 63) <= int(text) < top
        assert bool(good) == expected, text
        if expected:
            assert int(number) % (1 << 64) == int(text) % (1 << 64)


@given(st.lists(st.one_of(st.binary(max_size=6), st.text(max_size=6).map(str.encode)), min_size=1, max_size=10))
@settings(max_examples=200)
def test_utf8_is_checked_as_python_checks_it(values: list[bytes]) -> None:
    values = [*values, *BAD_UTF8, *GOOD_UTF8, *(good + bad for good in GOOD_UTF8 for bad in BAD_UTF8)]
    values += [b"x" * n + end for n in (15, 16, 17) for end in (*GOOD_UTF8, *BAD_UTF8)]
    for tail in TAILS:
        buffer, starts, ends = laid_out(list(values), tail)
        valid = np.ones(len(values), dtype=np.bool_)
        check_utf8(buffer, starts, ends, valid)
        assert valid.tolist() == [decodes(value) for value in values]


def decodes(value: bytes) -> bool:
    """Whether Python reads it."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
