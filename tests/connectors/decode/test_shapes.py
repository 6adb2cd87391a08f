"""Texts whose values are as long as those of another one: judged as orjson judges them, and only while it is worth it.

In: texts that differ from a sound one in some bytes. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from connectors.decode.test_json import laid_out
from connectors.decode.test_layouts import judged

from sketchstream.kernels import kernel, shapes
from sketchstream.kernels.machine_code import first_byte
from sketchstream.kernels.masks import BLOCK
from sketchstream_connectors.decode import layouts
from sketchstream_connectors.decode.json_values import find_fields

SOUND = [
    b'{"ts":1700000000000,"user_id":"u-1","event":{"n":-2.5,"ok":true},"tags":["a",7],"none":null,"last":0}',
    b'{"n":-12,"m":-1,"k":-0,"f":0.25,"g":10.05,"user_id":"' + b"x" * 61 + b'","event":{"n":-3}}',
    '{"user_id":"Z\u00fcrich","\u00e9":"\U0001f600","said":"%s","ts":12}'.encode() % (b"y" * 300),
    b'{\n  "user_id": "u",\n  "event": {\n    "n": 17\n  },\n\t"tags": [ "a",\r\n7, false ]\n}',
]
FIELDS = ["user_id", "ts", "event.n", "event.none", "n", "f"]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few texts are worth it, too."""
    monkeypatch.setattr(layouts, "WORTH", 1)


@pytest.mark.parametrize("sound", SOUND)
def test_every_byte_at_every_place_is_judged_as_orjson_judges_it(sound: bytes) -> None:
    values = [sound] * 600
    for at in range(len(sound)):
        values += [sound[:at] + bytes([byte]) + sound[at + 1 :] for byte in range(256)]
        values += [sound] * 300  # or the shape would be given up
    values += [sound + bytes([byte]) for byte in range(256)] + [sound] * 300
    assert judged(values, FIELDS) > 300 * len(sound)


@pytest.mark.parametrize("sound", SOUND)
def test_several_bytes_at_once_are_judged_as_orjson_judges_them(sound: bytes) -> None:
    seed = random.Random(len(sound))
    values = [sound] * 600
    for _ in range(20_000):
        changed = bytearray(sound)
        for at in seed.sample(range(len(sound)), seed.randrange(1, 4)):
            changed[at] = seed.choice(b'"\\{}[]:,0019e-. \n\x00\x1f\x7f\x80\xc3\xa9\xff')
        values += [bytes(changed), sound]
    assert judged(values, FIELDS) > 20_000


class Shape:
    """What is taken of one text, and how others compare.

    Args:
        sound: the text.
    """

    def __init__(self, sound: bytes) -> None:
        data, starts, ends = laid_out([sound], b"x" * BLOCK)
        parts, bounds = np.zeros(layouts.MAX_BYTES, np.uint8), np.zeros((layouts.MAX_SLOTS + 1, 2), np.int64)
        slots, missing = np.zeros(layouts.MAX_SLOTS, np.int64), np.zeros(0, np.bool_)
        none = np.zeros(0, np.uint8), np.zeros(0, np.int64)
        n = layouts.learn(data, starts[0], ends[0], *none, parts, bounds, slots, missing)
        self.sample = np.zeros(shapes.SHAPED_BYTES, np.uint8)
        self.masks = np.zeros((shapes.SHAPED_BYTES // BLOCK, shapes.COLUMNS), np.uint64)
        places = np.zeros((0, 3), np.int64)
        self.length = shapes.take_shape(data, starts[0], ends[0], bounds, slots, n, self.sample, self.masks, places)

    def fits(self, text: bytes) -> bool:
        """Whether another text has this shape."""
        data, _, _ = laid_out([text], b"x" * BLOCK)
        same, _ = compare(data, len(text), self.sample, self.masks)
        return bool(same)


@kernel
def compare(data: Any, size: Any, sample: Any, masks: Any) -> Any:
    """`has_shape` of the text at the beginning of `data`."""
    return shapes.has_shape(first_byte(data), size, first_byte(sample), masks)


def test_a_shape_says_where_values_may_differ_and_how() -> None:
    shape = Shape(b'{"a":"bcd","n":12,"m":5,"t":true,"x":-7.50}')
    assert shape.length == 43
    for text in (
        b'{"a":"bcd","n":12,"m":5,"t":true,"x":-7.50}',
        b'{"a":"{,}","n":90,"m":0,"t":true,"x":-0.00}',
        '{"a":"\u00e9!","n":10,"m":9,"t":true,"x":-9.99}'.encode(),
    ):
        assert shape.fits(text), text
    for text in (
        b'{"a":"b"d","n":12,"m":5,"t":true,"x":-7.50}',
        b'{"a":"b\\d","n":12,"m":5,"t":true,"x":-7.50}',
        b'{"a":"b\td","n":12,"m":5,"t":true,"x":-7.50}',
        b'{"a":"bcd","n":02,"m":5,"t":true,"x":-7.50}',
        b'{"a":"bcd","n":-2,"m":5,"t":true,"x":-7.50}',
        b'{"a":"bcd","n":12,"m":"","t":true,"x":7.50}',
        b'{"a":"bcd","n":1.,"m":5,"t":true,"x":-7.50}',
        b'{"a":"bcd","n":12,"m":5,"t":null,"x":-7.50}',
        b'{"a":"bcd","n":12,"m":5,"t":true,"x":-75.0}',
        b'{"a":"bcd","n":12,"m":5,"t":true,"x":17.50}',
        b'{"b":"bcd","n":12,"m":5,"t":true,"x":-7.50}',
        b'{"a":"bcd","n":12,"m":5,"t":true,"x":-7.50]',
    ):
        assert len(text) == shape.length
        assert not shape.fits(text), text


def test_a_longer_text_has_no_shape_and_is_read_by_its_layout() -> None:
    fits, long = (b'{"user_id":"' + b"x" * size + b'"}' for size in (498, 499))
    assert len(fits) == shapes.SHAPED_BYTES
    assert Shape(fits).length == shapes.SHAPED_BYTES
    assert Shape(long).length == 0
    assert judged([long] * 700, FIELDS) == 700
    assert judged([fits] * 700, FIELDS) == 700


def test_a_shape_that_few_texts_have_is_given_up_for_longer_and_longer() -> None:
    known = np.zeros(3, np.int64)
    judge(known, 100, 0, 500)
    assert known.tolist() == [100, 0, 0], "just taken"
    judge(known, 100, 256, 256)
    assert known.tolist() == [100, 0, 0], "half of them"
    judge(known, 100, 10, 21)
    assert known.tolist() == [100, 0, 0], "too few to tell"
    for failed in range(1, 9):
        judge(known, 100, 255, 257)
        assert known.tolist() == [0, min(failed, shapes.MAX_PAUSE), 1 << min(failed, shapes.MAX_PAUSE)]
        judge(known, 100, 0, 512)
        assert known[shapes.LENGTH] == 100
    judge(known, 100, 512, 0)
    assert known[shapes.FAILED] == 0


def judge(known: Any, length: int, shaped: int, others: int) -> None:
    """`judge_shape`, compiled or not."""
    getattr(shapes.judge_shape, "py_func", shapes.judge_shape)(known, length, shaped, others)


def test_texts_of_a_shape_have_their_fields_where_the_scanner_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.Random(9)
    values = [
        b'{"ts":%d,"user_id":"user-%011d","n":%d,"none":[{}],"f":-%d.5}'
        % (1_700_000_000_000 + i, seed.randrange(10**9), seed.randrange(10), seed.randrange(10, 99))
        for i in range(3_000)
    ]
    found = find_fields(*laid_out(values, b"x" * BLOCK), FIELDS)
    monkeypatch.setattr(layouts, "WORTH", 1 << 60)
    scanned = find_fields(*laid_out(values, b"x" * BLOCK), FIELDS)
    for one, other in ((found.kinds, scanned.kinds), (found.starts, scanned.starts), (found.ends, scanned.ends)):
        assert (one == other).all()
