"""Bodies of strangers: right in form and checksum, with numbers that nobody would write.

In: bodies, a source of chance. Out: other bodies. Touches: nothing.

Numbers are altered together (a length, and what follows from it), lists are repeated, values are taken from other
kinds: single flipped bits never find what a spec expands to.
"""

from __future__ import annotations

import copy
import hashlib
import random
import struct
from typing import Any

import msgpack

PREFIX = struct.Struct("<4sHBBBBHIQQQ")
SIZES = [
    0,
    1,
    2,
    3,
    255,
    4096,
    65_535,
    *(1 << n for n in range(16, 33)),
    (1 << 22) - 1,
    (1 << 31) - 1,
    8784,
    10_000_019,
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [one for name, inner in items for one in ((*path, name), *places(inner, (*path, name)))]


def inside(value: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        value = value[name]
    return value


def everywhere(value: Any, old: Any, new: Any) -> Any:
    """A copy in which a number, or a text that begins with it after a colon, is another one."""
    if isinstance(value, dict):
        return {name: everywhere(one, old, new) for name, one in value.items()}
    if isinstance(value, list):
        return [everywhere(one, old, new) for one in value]
    if isinstance(value, str) and value.endswith(f":{old}"):
        return value.removesuffix(str(old)) + str(new)
    return new if type(value) is type(old) and value == old else value


def altered(rng: random.Random, header: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    """A header with one to four changes."""
    header = copy.deepcopy(header)
    for _ in range(rng.randint(1, 4)):
        path = rng.choice(places(header))
        holder, name = inside(header, path[:-1]), path[-1]
        old = holder[name]
        if isinstance(old, int) and not isinstance(old, bool):
            new = rng.choice([rng.choice(SIZES), old * rng.choice([2, 3, 1 << 10, 1 << 20]), old + 1])
            if rng.random() < 0.6:
                header = everywhere(header, old, new)
            else:
                holder[name] = new
        elif isinstance(old, list) and rng.random() < 0.8:
            holder[name] = old * rng.choice([0, 2, 64, 1000])
        elif isinstance(old, str) and rng.random() < 0.6:
            head, colon, number = old.rpartition(":")
            size = rng.choice(SIZES)
            bare = [f"{size}", f"window:{size}", f"1/{size}", old * 50]
            holder[name] = f"{head}:{size}" if colon and number.isdecimal() else rng.choice(bare)
            if rng.random() < 0.3:
                holder[name] = [holder[name]] * rng.choice([2, 64])
        else:
            other = rng.choice(others)
            holder[name] = copy.deepcopy(inside(other, rng.choice(places(other))))
    return header


def body_of(seed: bytes, header: dict[str, Any], *, follows: bool = False) -> bytes:
    """Bytes with a right prefix and checksum; the counters' number sometimes follows the header's."""
    fields = list(PREFIX.unpack_from(seed))
    body = seed[PREFIX.size + fields[7] : PREFIX.size + fields[7] + fields[10]]
    head = msgpack.packb({name: header[name] for name in sorted(header)})
    if follows and isinstance(header.get("slots"), int):
        fields[8 if fields[5] == 2 else 9] = min(header["slots"], (1 << 63) - 1)
    fields[7], fields[10] = len(head), len(body)
    data = PREFIX.pack(*fields) + head + body
    return data + hashlib.blake2b(data, digest_size=32, person=b"sketchstream-sum").digest()
