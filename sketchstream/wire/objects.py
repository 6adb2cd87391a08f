"""How many objects a header's bytes would become, counted before any of them is made.

In: untrusted bytes. Out: a number. Touches: nothing.

A byte of MessagePack may be an object of 60 bytes or more: 64 MB of empty lists would take 4 GB.
Source: the MessagePack specification, https://github.com/msgpack/msgpack/blob/master/spec.md.
"""

from __future__ import annotations

from typing import Final

MAX_OBJECTS: Final = 1_000_000
"""Objects of a header, at most. Small containers take up to 300 bytes each while they are read and compared."""
UNCOUNTED_BYTES: Final = 1 << 20
"""Length in bytes up to which the objects of a header need not be counted."""


def _fixed_sizes() -> list[int]:
    """Bytes of an object by its first byte, without those that a length inside it gives; containers end with heads."""
    sizes = [1] * 256
    for code in range(0xA0, 0xC0):  # short texts
        sizes[code] = 1 + (code & 31)
    for code, size in ((0xCA, 5), (0xCB, 9), (0xDC, 3), (0xDD, 5), (0xDE, 3), (0xDF, 5)):
        sizes[code] = size
    for power in range(4):
        sizes[0xCC + power] = sizes[0xD0 + power] = 1 + (1 << power)  # integers
    for power in range(5):
        sizes[0xD4 + power] = 2 + (1 << power)  # extensions
    return sizes


FIXED: Final = _fixed_sizes()
LENGTHS: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4}
"""Bytes that give the length of a text, of bytes or of an extension."""


def objects(data: bytes | memoryview, most: int = MAX_OBJECTS) -> int:
    """The objects that begin in some bytes, values and names; counting ends beyond `most`.

    Args:
        data: whatever it is: bytes that are cut off count as far as they go.
        most: the most that is of interest.
    """
    at = count = 0
    end = len(data)
    while at < end and count <= most:
        code = data[at]
        count += 1
        wide = LENGTHS.get(code)
        if wide is None:
            at += FIXED[code]
        else:
            extension = 0xC7 <= code <= 0xC9
            at += 1 + wide + extension + int.from_bytes(data[at + 1 : at + 1 + wide], "big")
    return count
