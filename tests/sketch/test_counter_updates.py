"""The counters beside the slots: they get what the slots get, and are left alone where the slots are.

In: random batches, good and bad. Out: counters compared with sums over the events that a slow rule lets through.
Touches: nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

from helpers.interrupts import interrupt
from sketchstream.errors import DomainError, WeightError
from sketchstream.items.arrays import Items
from sketchstream.items.domains import Index
from sketchstream.items.key import Key
from sketchstream.spec import ClosedDomain, OpenDomain

KEY = Key(bytes(range(16)))
DOMAINS = {
    "open": OpenDomain(slots=40_000, levels=2),
    "ids": ClosedDomain(size=3000),
    "sampled": ClosedDomain(size=3000, sample_rate="1/3"),
    "listed": ClosedDomain(items=[*range(1500), *map(str, range(1500, 3000))], sample_rate="1/2"),
}


def tallied(index: Index, items: Items, weights: np.ndarray, max_weight: int | None) -> list[int]:
    """Sum of the weights that move a slot, and number of valid events of the domain, event by event."""
    total = events = 0
    for slot, weight in zip(index.locate(items).tolist(), weights.tolist(), strict=True):
        if slot == -1 or (max_weight is not None and abs(weight) > max_weight):
            continue
        events += 1
        total += weight if slot >= 0 else 0
    return [total, events]


@pytest.mark.parametrize("name", sorted(DOMAINS))
@pytest.mark.parametrize(("modulus", "dtype"), [(None, np.int64), (None, np.int32), (16, np.int64)])
@pytest.mark.parametrize("bad", [0.0, 0.001])
def test_counters_hold_what_was_applied(name, modulus, dtype, bad):
    index = Index.build(DOMAINS[name], KEY)
    rng = np.random.default_rng(len(name) + 1)
    n = 30_011
    values = rng.integers(0, 3200, n)
    weights = rng.integers(-5, 6, n).astype(dtype)
    weights[rng.random(n) < bad] = 77
    state = np.zeros(index.slots, np.int16 if modulus else np.int64)
    max_weight = None if modulus else 5
    for items in (Items.of(values), Items.of([str(value) for value in values])):
        wanted = tallied(index, items, weights, max_weight)
        ones = tallied(index, items, np.ones(n, np.int64), max_weight)
        for size in (0, 1, 2):
            counters = np.full(size, 1 << 40, np.int64)
            settings = {"max_weight": 5, "modulus": modulus, "invalid": "noop"}
            index.batch(state, items, weights, counters=counters, **settings).apply()
            assert (counters - (1 << 40)).tolist() == wanted[:size]
            index.batch(state, items, counters=counters, **settings).apply()
            assert (counters - (1 << 40)).tolist() == [a + b for a, b in zip(wanted, ones, strict=True)][:size]


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("at", [5, 200, 9000, 29_990])
def test_a_refused_batch_leaves_the_counters_as_they_were(kind, at):
    values = np.arange(30_000) % 2000
    weights = np.full(30_000, 2)
    weights[at] = 4
    counters = np.array([11, -7])
    for name in ("open", "ids"):
        index = Index.build(DOMAINS[name], KEY)
        state = np.zeros(index.slots, np.int32)
        items = Items.of(values) if kind == "int" else Items.of([str(value) for value in values])
        with pytest.raises((WeightError, DomainError)):
            index.batch(state, items, weights, max_weight=3, counters=counters).apply()
        assert counters.tolist() == [11, -7]
        assert not state.any()


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("chunk", [0, 1])
@pytest.mark.parametrize("after", [True, False])
def test_an_interrupt_leaves_the_counters_as_they_were(kind, chunk, after, monkeypatch):
    index = Index.build(DOMAINS["open"], KEY)
    state, counters = np.zeros(index.slots, np.int32), np.array([3, 4])
    values = np.random.default_rng(8).zipf(1.2, 50_000) & 0xFFFF
    parts = [Items.of(values) if kind == "int" else Items.of([str(value) for value in values])] * 2
    calls = interrupt(monkeypatch, chunk, after)
    with pytest.raises(KeyboardInterrupt):
        index.batch(state, Items.concat(parts), counters=counters).apply()
    assert next(calls) > chunk
    assert not state.any()
    assert counters.tolist() == [3, 4]
