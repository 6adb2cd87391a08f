"""Coverage-guided fuzzing of `wire.unpack`; needs atheris, which is no dependency of the project.

In: a directory of seeds (default: the golden files and the kept corpus). Out: new inputs in the corpus directory,
or a crash with its input. Touches: the corpus directory.

The checksum would stop nearly every mutation at the door, so each input is tried twice: as it is, and with its last
32 bytes (and its tag) made right. Whatever the bytes: an error of our tree, or an object that packs to the same bytes.

Run: python bench/fuzz_wire.py CORPUS [-max_total_time=60 and other libFuzzer options]
again and again: atheris keeps a few kilobytes of every input (the same calls outside it keep none), so one long run
ends at its memory limit.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["sketchstream.wire"]):
    from sketchstream import wire
    from sketchstream.errors import FormatError, KeyMismatchError
    from sketchstream.items.key import Key
    from sketchstream.wire import envelope

import numpy as np

KEY = Key(bytes(range(16)))
ROOT = Path(__file__).parents[1]


def sealed(data: bytes) -> bytes:
    """The same bytes with a right tag and checksum, where there is room for them."""
    body = data[:-32]
    if len(body) > 72 and data[7:8] == b"\x01":
        body = body[:-32] + envelope._tag(KEY, [body[:-32]])
    return body + envelope._checksum([body])


def tried(data: bytes, key: Key | None) -> None:
    try:
        header, body = wire.unpack(data, key)
    except (FormatError, KeyMismatchError):
        return
    codec = data[6]
    tagged = data[7] == 1
    if tagged and header["key_id"] != KEY.id:
        return
    again = wire.pack(header, body, codec, KEY if tagged else None)
    if codec == wire.RAW:
        assert (tagged and key is None) or again == data
    else:
        back = wire.unpack(again)
        assert back[0] == header
        assert np.array_equal(back[1], body)
        assert back[1].dtype == body.dtype


def test_one(data: bytes) -> None:
    tried(data, None)
    made = sealed(data)
    tried(made, None)
    tried(made, KEY)


def main() -> None:
    corpus = Path(sys.argv[1])
    corpus.mkdir(parents=True, exist_ok=True)
    seeds = [str(ROOT / "tests" / "golden" / "v1"), str(ROOT / "tests" / "wire" / "corpus")]
    atheris.Setup(
        [sys.argv[0], str(corpus), *seeds, "-max_len=8192", "-rss_limit_mb=3072", "-timeout=10", *sys.argv[2:]],
        test_one,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
