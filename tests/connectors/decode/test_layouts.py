"""Texts that repeat a layout: read as the scanner reads them, refused as it refuses them, however they are mixed.

In: streams of texts. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from connectors.decode.test_json import RARE, USUAL, WRONG, answers, damaged, filled, laid_out, template

from helpers.json_reference import ask_orjson
from sketchstream.kernels.tokens import DECIMAL, INTEGER, STRING
from sketchstream_connectors.decode import layouts
from sketchstream_connectors.decode.json_values import find_fields
from sketchstream_connectors.decode.named_fields import Found

EVENT: list[bytes | None] = [
    b'{"ts":', None, b',"user_id":', None, b',"event": {"name":', None, b',"tags":[', None, b",", None, b'],"n":', None,
    b'},"a_key_that_is_longer_than_one_step_of_the_comparison":', None, b"}",
]  # fmt: skip
FIELDS = ["user_id", "ts", "event.n", "event.none"]
VALUES = [b'"u1"', b'""', b"7", b"1700000000000", b"-3", b"12.50", b"true", b"false", b"null", b'"a b: c, {d}"']
VALUES += [b'"' + b"x" * size + b'"' for size in (7, 31, 62, 63, 64, 65, 127, 500)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few texts are worth it, too."""
    monkeypatch.setattr(layouts, "WORTH", 1)


def alike(values: list[bytes], fields: list[str]) -> tuple[Found, int]:
    """Fields of texts that lie end to end, and how many of them were read by their layout."""
    counts: list[int] = []
    scan = layouts.scan_alike

    def counted(*arguments: Any) -> int:
        counts.append(scan(*arguments))
        return counts[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "scan_alike", counted)
        found = find_fields(*laid_out(list(values), b"x" * 64), fields)
    return found, counts[0]


def judged(values: list[bytes], fields: list[str]) -> int:
    """Compare all answers with orjson's; how many texts were read by their layout."""
    paths = [[part.encode() for part in field.split(".")] for field in fields]
    found, followed = alike(values, fields)
    for index, text in enumerate(values):
        assert answers(found, index) == ask_orjson(text, paths), text
    return followed


def events(seed: random.Random, number: int, pieces: list[bytes | None] = EVENT) -> list[bytes]:
    """Sound texts of one layout."""
    return [b"".join(seed.choice(VALUES) if piece is None else piece for piece in pieces) for _ in range(number)]


def test_texts_of_one_layout_are_all_read_by_it_and_as_the_scanner_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    values = events(random.Random(1), 1500) + [text + b" \n" for text in events(random.Random(2), 100)]
    found, followed = alike(values, FIELDS)
    assert followed >= len(values) - 600, "a sample that has no usable value of a field teaches nothing"
    monkeypatch.setattr(layouts, "WORTH", 1 << 60)
    scanned = find_fields(*laid_out(values, b"x" * 64), FIELDS)
    assert (found.kinds == scanned.kinds).all()
    bounded = np.isin(found.kinds, [STRING, INTEGER, DECIMAL])
    assert bounded.sum() > 2 * len(values)
    assert (found.starts == scanned.starts)[bounded].all()
    assert (found.ends == scanned.ends)[bounded].all()
    assert (found.kinds[3] == 0).all()
    assert not found.broken.any()


def one_changed(text: bytes) -> Iterator[bytes]:
    """Each byte left out, doubled, or another one; and each beginning."""
    for at in range(len(text)):
        yield text[:at]
        yield text[:at] + text[at + 1 :]
        yield text[:at] + text[at : at + 1] + text[at:]
        for byte in b'"\\{}[]:,0e-.\n\x00\x1f\x7f\x80\xff':
            yield text[:at] + bytes([byte]) + text[at + 1 :]


@pytest.mark.parametrize(
    "sound",
    [
        b'{"ts":1700000000000,"user_id":"u-1","event":{"n":-2.5,"ok":true},"tags":["a",7],"none":null}',
        b'{\n  "ts": 1700000000000,\n  "user_id": "u-1",\n  "event": {\n    "n": -2.5\n  },\n\t"tags": ["a",\r\n7]\n}',
    ],
)
def test_a_text_that_is_wrong_in_one_byte_is_judged_by_itself_among_sound_ones(sound: bytes) -> None:
    seed = random.Random(3)
    changed = list(one_changed(sound))
    mixed = [one for text in changed for one in (text, sound)]
    assert judged([sound] * 64 + mixed, FIELDS) > len(changed)
    seed.shuffle(mixed)
    assert judged([sound] * 64 + mixed, FIELDS) > len(changed)


@pytest.mark.parametrize("number", range(4))
def test_streams_of_layouts_that_come_and_go_are_judged_as_orjson_judges_them(number: int) -> None:
    seed = random.Random(200 + number)
    fields = [["user_id"], ["user.id", "id"], ["user", "a"], ["a.a", "id", "user_id.user_id"]][number]
    values: list[bytes] = []
    for _ in range(12):  # from one layout to the next, or several at a time
        structures = [template(seed) for _ in range(seed.choice([1, 1, 2, 5]))]
        usual = seed.choice([1.0, 0.99, 0.9])
        values += [filled(seed, seed.choice(structures), usual) for _ in range(seed.choice([40, 300, 700]))]
    for _ in range(200):
        values.insert(seed.randrange(len(values)), damaged(seed, seed.choice(values)))
    judged(values, fields)


def test_each_kind_of_value_may_stand_in_every_place() -> None:
    sound = b'{"id":"x","n":12}'
    values = [sound] * 64
    for value in [*USUAL, *RARE, *WRONG]:
        values += [b'{"id":' + value + b',"n":12}', b'{"id":"x","n":' + value + b"}", sound, sound]
    assert judged(values, ["id", "n"]) > 64 + 2 * len(USUAL)


def test_texts_that_follow_a_layout_and_are_not_utf8_are_judged_by_themselves() -> None:
    sound, wrong = '{"id":"Z\u00fcrich"}'.encode(), b'{"id":"Z\xfcrich"}'
    assert judged([sound] * 100, ["id"]) == 100, "nothing is left for the scanner"
    assert judged([sound] * 50 + [wrong] + [sound] * 49, ["id"]) == 99
    assert judged([sound] * 50 + [wrong] * 50, ["id"]) == 50


def test_what_a_layout_cannot_say_is_left_to_the_scanner() -> None:
    for text in (
        b'{"id":"x","said":"\\n"}',  # an escape
        b'{"id":"x","n":1e5}',  # an exponent
        b'{"id":"x","said":"\t"}',  # invalid
        b'{"id":{"x":1}}',  # a field that is an object
        b'{"id":null,"n":1}',  # nothing to tell the field's place by
        b"{}",
        b'{"id":"x"',
    ):
        assert judged([text] * 100, ["id"]) == 0, text
    for text in (
        '{"id":"Z\u00fcrich","\u00e9":"\U0001f600"}'.encode(),
        b'{"id":"x","n":1}',
        b'[{"id":1}]',
        b'"x"',
        b'{"id":1,"id":"x"}',
        b' { "id" : "x" } \n',
        b'{\n\t"id": "x",\r\n\t"tags": [\n1\n]\n}',
    ):
        assert judged([text] * 100, ["id"]) == 100, text
    values = 200
    assert judged([b"[" + b",".join([b"1"] * values) + b"]"] * 50, ["id"]) == 0, "more values than a layout holds"
    assert judged([b'{"' + b"k" * layouts.MAX_BYTES + b'":1}'] * 50, ["id"]) == 0, "longer than a layout may be"


def test_layouts_are_kept_while_they_are_followed_and_no_longer() -> None:
    seed = random.Random(5)
    kinds: list[list[bytes | None]] = [[b'{"%d":' % n, None, b',"id":"x"}'] for n in range(layouts.LAYOUTS + 2)]
    both = [events(seed, 1, kinds[seed.randrange(2)])[0] for _ in range(4000)]
    assert judged(both, ["id"]) == len(both)
    one_after_the_other = [text for kind in kinds for text in events(seed, 4 * layouts.TEXTS_AT_ONCE, kind)]
    assert judged(one_after_the_other, ["id"]) > 0.8 * len(one_after_the_other)
    never = [b'{"id":"x","%d":1}' % n for n in range(4000)]
    assert judged(never, ["id"]) < 20
    changing = [text for pair in zip(never, events(seed, 4000, kinds[0]), strict=True) for text in pair]
    assert judged(changing, ["id"]) > 0.8 * 4000


def test_texts_that_are_not_there_are_passed_over() -> None:
    values = [b'{"id":"x"}'] * 300
    buffer, starts, ends = laid_out(values, b"x" * 64)
    starts, ends = starts.copy(), ends.copy()
    starts[::3] = ends[::3] = -1
    found = find_fields(buffer, starts, ends, ["id"])
    assert (found.kinds[0] == np.where(np.arange(300) % 3 == 0, 0, STRING)).all()
    assert not found.broken.any()
