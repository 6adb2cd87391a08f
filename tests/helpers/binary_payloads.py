"""Binary payloads for tests: laid out in memory, as records, and what was found in them in the words of strict readers.

In: payloads, places. Out: buffers, records, verdicts. Touches: memory pages of its own.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np

from sketchstream.items.arrays import Items
from sketchstream_connectors.decode.named_fields import Found
from sketchstream_connectors.decode.records import from_client_records

KINDS = {0: "absent", 1: "absent", 2: "text", 3: "integer", 4: "useless", 5: "decimal"}


def laid_out(bodies: list[bytes], guarded: bool = False) -> tuple[Any, Any, Any]:
    """The values one behind the other; with a guard, the last one ends where memory ends."""
    sizes = np.array([len(body) for body in bodies], np.int64)
    ends = np.cumsum(sizes)
    data = b"".join(bodies)
    if not guarded:
        return np.frombuffer(data, np.uint8), ends - sizes, ends
    pages = len(data) // mmap.PAGESIZE + 1
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)
    address = whole.ctypes.data + pages * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, 0) == 0
    first = pages * mmap.PAGESIZE - len(data)
    whole[first : first + len(data)] = np.frombuffer(data, np.uint8)
    part = whole[first : first + len(data)]
    part.flags.writeable = False
    return part, ends - sizes, ends


def told(places: Found, n: int) -> list[list[tuple[str, Any]] | None]:
    """What was found, in the words of the strict reader."""
    out: list[list[tuple[str, Any]] | None] = []
    for i in range(n):
        row: list[tuple[str, Any]] = []
        for k in range(places.kinds.shape[0]):
            kind, a, b = KINDS[int(places.kinds[k, i])], int(places.starts[k, i]), int(places.ends[k, i])
            if kind in ("absent", "useless"):
                row.append((kind, None))
            elif b < 0:
                double = struct.unpack("<d", struct.pack("<q", a))[0] if kind == "decimal" else a
                row.append((kind, Fraction(double)))
            else:
                text = places.buffer[a:b].tobytes()
                row.append((kind, text if kind == "text" else Fraction(text.decode())))
        out.append(None if places.broken[i] else row)
        assert not places.broken[i] or all(kind == "absent" for kind, _ in row)
    return out


def fields_of(**given: Any) -> Any:
    usual = {"item": None, "item_type": "text", "weight": None, "time": "record", "columns": (), "decimals": False}
    return SimpleNamespace(**{**usual, "time_unit": "ms", **given})


def records_of(bodies: list[bytes | None]) -> Any:
    return from_client_records(
        [SimpleNamespace(offset=i, timestamp=7, key=None, value=body) for i, body in enumerate(bodies)]
    )


def items_of(items: Items) -> list[Any]:
    whole = items.whole()
    if whole.type_name == "int":
        return whole.arrays[0].tolist()
    buffer, starts, ends = whole.arrays
    return [buffer[a:b].tobytes() for a, b in zip(starts, ends, strict=True)]
