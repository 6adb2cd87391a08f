"""A hundred thousand hostile bodies, right in form and checksum: none costs more than its budget.

Numbers are altered together (a length, and what follows from it), lists are repeated, values are taken from other
kinds: single flipped bits never find what a spec expands to.
"""

from __future__ import annotations

import copy
import hashlib
import random
import resource
import struct
import time
import warnings
from typing import Any

import msgpack
import pytest

from helpers.paths import GOLDEN
from sketchstream import published, wire
from sketchstream.errors import SketchstreamError
from sketchstream.serve.ledgers import shape_of

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
BUDGET_S, BUDGET_MB = 10.0, 300


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


def look(data: bytes) -> str:
    """What the service does with bytes of strangers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            header = wire.claimed(data)
            shape_of(header)
            published.read(data)
        except SketchstreamError as error:
            return type(error).__name__
    return "read"


SEEDS = [data for data in (path.read_bytes() for path in sorted(GOLDEN.rglob("*.bin"))) if look(data) == "read"]


def most_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def test_the_seeds_are_read_in_this_form() -> None:
    assert len(SEEDS) > 10
    for seed in SEEDS:
        assert look(body_of(seed, wire.unpack_header(seed))) == "read"


@pytest.mark.parametrize("number", [200, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])])
def test_no_hostile_body_costs_more_than_its_budget(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(20261125)
    headers = [wire.unpack_header(seed) for seed in SEEDS]
    for seed in SEEDS:
        look(seed)  # what is loaded and compiled once
    before, slowest, seen = most_mb(), 0.0, {}
    for _ in range(number):
        at = rng.randrange(len(SEEDS))
        header = altered(rng, headers[at], headers)
        try:
            data = body_of(SEEDS[at], header, follows=rng.random() < 0.3)
        except (ValueError, OverflowError, struct.error, TypeError):
            continue  # no header of this format
        began = time.process_time()
        verdict = look(data)
        took = time.process_time() - began
        seen[verdict] = seen.get(verdict, 0) + 1
        if took > slowest:
            slowest, worst = took, header
        assert took < BUDGET_S, header
        assert most_mb() - before < BUDGET_MB, header
    with capsys.disabled():
        print(f"\n{seen}; slowest {slowest:.2f} s, {most_mb() - before:.0f} MiB more ({str(worst)[:120]})")
    assert sum(seen.values()) > number * 0.9
    assert seen.get("FormatError", 0) > number / 2
