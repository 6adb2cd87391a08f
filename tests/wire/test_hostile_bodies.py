"""A hundred thousand hostile bodies, right in form and checksum: none costs more than its budget."""

from __future__ import annotations

import random
import struct
import time
import warnings

import pytest

from helpers.hostile import altered, body_of
from helpers.memory import forget_peak, resident_bytes
from helpers.paths import GOLDEN
from sketchstream import published, wire
from sketchstream.errors import SketchstreamError
from sketchstream.serve.store.ledgers import shape_of

BUDGET_S, BUDGET_MB = 10.0, 300


def look(data: bytes) -> str:
    """What the service does with bytes of strangers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            header = wire.claimed_header(data)
            shape_of(header)
            published.read_published(data)
        except SketchstreamError as error:
            return type(error).__name__
    return "read"


SEEDS = [data for data in (path.read_bytes() for path in sorted(GOLDEN.rglob("*.bin"))) if look(data) == "read"]


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
    first, slowest, largest, seen = resident_bytes(), 0.0, 0.0, {}
    for _ in range(number):
        at = rng.randrange(len(SEEDS))
        header = altered(rng, headers[at], headers)
        try:
            data = body_of(SEEDS[at], header, follows=rng.random() < 0.3)
        except (ValueError, OverflowError, struct.error, TypeError):
            continue  # no header of this format
        forget_peak()
        before, began = resident_bytes(), time.process_time()
        verdict = look(data)
        took, more = time.process_time() - began, (resident_bytes(peak=True) - before) / 2**20
        seen[verdict] = seen.get(verdict, 0) + 1
        slowest, largest = max(took, slowest), max(more, largest)
        assert took < BUDGET_S, str(header)[:2000]
        assert more < BUDGET_MB, str(header)[:2000]
    del data, header
    kept = (resident_bytes() - first) / 2**20
    with capsys.disabled():
        print(f"\n{seen}; slowest {slowest:.2f} s, largest {largest:.0f} MiB, {kept:.0f} MiB kept at the end")
    assert kept < BUDGET_MB
    assert sum(seen.values()) > number * 0.9
    assert seen.get("FormatError", 0) > number / 2
