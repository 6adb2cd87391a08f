"""Updates: every domain, type of counter and way of giving items against the slow twin; refusals change nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.interrupts import interrupt
from helpers.updates_reference import applied, bin_counts, half_circle_counts, slot_of
from sketchstream import kernels
from sketchstream.errors import DomainError, ItemError, KeyMismatchError, SpecError, WeightError
from sketchstream.items.arrays import Items
from sketchstream.items.domains import Index
from sketchstream.items.key import Key
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.spec import ClosedDomain, OpenDomain

KEY = Key(bytes(range(16)))
MARK = "marked-item-7391"
TEXTS = tuple(f"text {number}" for number in range(40))
MIXED = (*TEXTS[:9], *(text.encode() for text in TEXTS[:9]), *range(-4, 5), "", b"", "5")
KEEP = np.arange(1000) % 3 != 0
DOMAINS = {
    "open": (OpenDomain(slots=500, levels=4), None),
    "open, one level": (OpenDomain(slots=97, levels=1), None),
    "ids": (ClosedDomain(size=1000), None),
    "ids, kept": (ClosedDomain(size=1000), KEEP),
    "ids, sampled": (ClosedDomain(size=1000, sample_rate="0.3"), None),
    "ids, sampled and kept": (ClosedDomain(size=1000, sample_rate="0.3"), KEEP),
    "listed": (ClosedDomain(items=TEXTS), None),
    "listed, mixed": (ClosedDomain(items=MIXED), None),
    "listed, sampled and kept": (ClosedDomain(items=MIXED, sample_rate="1/2"), KEEP[: len(MIXED)]),
}


def _items(kind: str, n: int, seed: int = 0) -> list:
    numbers = np.random.default_rng(seed).integers(-10, 1010, n).tolist()
    if kind == "int":
        return numbers
    texts = [f"text {number % 60}" if number % 11 else "" for number in numbers]
    return texts if kind == "str" else [text.encode() for text in texts]


@pytest.mark.parametrize("kind", ["int", "str", "bytes"])
@pytest.mark.parametrize("name", DOMAINS)
def test_items_find_the_slots_of_the_twin(name, kind):
    domain, keep = DOMAINS[name]
    index = Index.build(domain, KEY, keep)
    items = _items(kind, 60)
    expected = [slot_of(domain, KEY, item, keep) for item in items]
    assert index.locate(Items.of(items)).tolist() == expected
    assert max(expected) < index.slots
    everything = list(domain.items or range(domain.size)) if isinstance(domain, ClosedDomain) else []
    used = {slot_of(domain, KEY, item, keep) for item in everything[:1000]} - {-1, -2}
    assert not everything or used == set(range(index.slots))


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("name", DOMAINS)
@pytest.mark.parametrize(("dtype", "modulus"), [(np.int32, None), (np.int64, None), (np.int16, 7), (np.int16, 1 << 15)])
def test_a_batch_adds_what_the_twin_adds(name, kind, dtype, modulus):
    domain, keep = DOMAINS[name]
    index = Index.build(domain, KEY, keep)
    items = _items(kind, 700, 1)
    rng = np.random.default_rng(2)
    slots = index.locate(Items.of(items))
    limits = np.iinfo(dtype)
    start = rng.integers(limits.min, limits.max, index.slots, endpoint=True).astype(dtype)
    if modulus is not None:
        start = rng.integers(0, modulus, index.slots).astype(dtype)
    for weights in (None, rng.integers(-50, 51, 700), rng.integers(-50, 51, 700).astype(np.int32)):
        state = start.copy()
        index.batch(state, Items.of(items), weights, max_weight=50, modulus=modulus, invalid="noop").apply()
        assert np.array_equal(state, applied(start, slots, weights, modulus))


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 95, 96, 97, 111, 112, 113, 511, 8191, 8192, 8193, 20_000])
def test_batches_of_every_length_run_through_the_pipeline(n):
    index = Index.build(OpenDomain(slots=300, levels=3), KEY)
    rng = np.random.default_rng(n)
    items, weights = rng.integers(0, 10**6, n), rng.integers(-3, 4, n)
    slots = index.locate(Items.of(items))
    for given_weights in (None, weights):
        state = np.zeros(index.slots, np.int32)
        index.batch(state, Items.of(items), given_weights, max_weight=3).apply()
        expected = np.zeros(index.slots, np.int64)
        np.add.at(expected, slots, 1 if given_weights is None else given_weights)
        assert np.array_equal(state, expected)


BAD_PLACES = [[0], [15, 16], [95], [96], [97], [111, 112], [300, 301], [8191], [8192], [9000, 17_400], [19_999]]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("places", BAD_PLACES, ids=str)
def test_a_bad_weight_anywhere_in_the_pipeline_stops_it_there(places, dtype):
    index = Index.build(OpenDomain(slots=300, levels=3), KEY)
    rng = np.random.default_rng(len(places))
    items, weights = rng.integers(0, 10**6, 20_000), rng.integers(-3, 4, 20_000).astype(dtype)
    slots = index.locate(Items.of(items))
    limits = np.iinfo(dtype)
    for bad in (4, -4, limits.max, limits.min):
        weights[places] = bad
        state = np.arange(index.slots, dtype=np.int32)
        with pytest.raises(WeightError, match=f"position {places[0]} "):
            index.batch(state, Items.of(items), weights, max_weight=3).apply()
        assert np.array_equal(state, np.arange(index.slots))
        index.batch(state, Items.of(items), weights, max_weight=3, invalid="noop").apply()
        kept = np.where(np.abs(weights.astype(float)) <= 3, weights, 0)
        expected = np.arange(index.slots, dtype=np.int64)
        np.add.at(expected, slots, kept)
        assert np.array_equal(state, expected)


def test_weights_may_be_every_other_number_of_an_array():
    index = Index.build(OpenDomain(slots=100_000, levels=3), KEY)
    rng = np.random.default_rng(6)
    items, wide = rng.integers(0, 10**6, 30_000), rng.integers(-3, 4, 60_000)
    expected = np.zeros(index.slots, np.int32)
    np.add.at(expected, index.locate(Items.of(items)), wide[::2])
    state = np.zeros(index.slots, np.int32)
    index.batch(state, Items.of(items), wide[::2], max_weight=3).apply()
    assert np.array_equal(state, expected)


def test_counters_wrap_in_both_directions_and_come_back():
    index = Index.build(ClosedDomain(size=3), None)
    for dtype in (np.int32, np.int64):
        limits = np.iinfo(dtype)
        state = np.array([limits.max, limits.min, 0], dtype)
        index.batch(state, Items.of([0, 1]), [2, -2], max_weight=2).apply()
        assert state.tolist() == [limits.min + 1, limits.max - 1, 0]
        index.batch(state, Items.of([0, 1]), [-2, 2], max_weight=2).apply()
        assert state.tolist() == [limits.max, limits.min, 0]


@given(st.integers(2, 1 << 15), st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=20))
def test_any_weight_is_reduced_modulo_the_modulus(modulus, weights):
    index = Index.build(ClosedDomain(size=2), None)
    state = np.array([modulus - 1, 0], np.int16)
    index.batch(state, Items.of(np.zeros(len(weights), np.int64)), weights, modulus=modulus).apply()
    assert state.tolist() == [(modulus - 1 + sum(weights)) % modulus, 0]


SOURCES = {
    "array": lambda items: Items.of(np.array(items)),
    "list": Items.of,
    "packed": lambda items: Items.concat([Items.of(items).take(np.arange(len(items)))]),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", ["int", "str"])
def test_a_refused_batch_leaves_the_state_as_it_was(kind, source):
    index = Index.build(ClosedDomain(items=[*range(500), *map(str, range(500))]), KEY)
    n = 30_000
    items = [number % 500 for number in range(n)]
    items = items if kind == "int" else [str(item) for item in items]
    before = np.random.default_rng(0).integers(-(1 << 31), (1 << 31) - 1, index.slots).astype(np.int32)
    for position in (0, 4095, 8192, 20_000, n - 1):
        state = before.copy()
        wrong = list(items)
        wrong[position] = 999 if kind == "int" else MARK
        with pytest.raises(DomainError, match=f"position {position} ") as caught:
            index.batch(state, SOURCES[source](wrong), np.full(n, 2), max_weight=2).apply()
        assert MARK not in str(caught.value)
        assert np.array_equal(state, before)
        weights = np.full(n, 2)
        weights[position] = -3
        for invalid in ("error", "skip"):
            with pytest.raises(WeightError, match=f"position {position} "):
                index.batch(state, SOURCES[source](items), weights, max_weight=2, invalid=invalid).apply()
            assert np.array_equal(state, before)


def test_a_list_that_turns_bad_is_taken_out_again():
    index = Index.build(OpenDomain(slots=100, levels=2), KEY)
    state = np.arange(index.slots, dtype=np.int32)
    for bad in (None, 1.5, 7, b"x", "\ud800"):
        with pytest.raises(ItemError, match="position 9000"):
            index.batch(state, Items.of(["a"] * 9000 + [bad])).apply()
        assert np.array_equal(state, np.arange(index.slots))


@pytest.mark.parametrize("kind", ["int", "str"])
@pytest.mark.parametrize("chunk", [0, 1])
@pytest.mark.parametrize("after", [True, False])
def test_an_interrupt_in_the_middle_leaves_the_state_as_it_was(kind, chunk, after, monkeypatch):
    index = Index.build(OpenDomain(slots=40_000, levels=2), KEY)
    before = np.arange(index.slots, dtype=np.int32)
    state = before.copy()
    values = np.random.default_rng(8).zipf(1.2, 50_000) & 0xFFFF
    parts = [Items.of(values) if kind == "int" else Items.of([str(value) for value in values])] * 2
    calls = interrupt(monkeypatch, chunk, after)
    with pytest.raises(KeyboardInterrupt):
        index.batch(state, Items.concat(parts)).apply()
    assert next(calls) > chunk
    assert np.array_equal(state, before)


@pytest.mark.parametrize("invalid", ["skip", "noop"])
def test_skipped_events_leave_their_neighbours_in(invalid):
    index = Index.build(ClosedDomain(size=10), None)
    items = np.arange(-5, 15).repeat(1000)
    state = np.zeros(10, np.int32)
    index.batch(state, Items.of(items), invalid=invalid).apply()
    assert state.tolist() == [1000] * 10
    index.batch(state, Items.of(items), np.ones(20_000, int), invalid=invalid).apply()
    assert state.tolist() == [2000] * 10
    index.batch(state, Items.of(["3", "x"]), invalid=invalid).apply()
    assert state.tolist() == [2000] * 10


def test_a_bad_weight_is_a_no_op_decided_from_its_event_alone():
    index = Index.build(OpenDomain(slots=200, levels=2), KEY)
    rng = np.random.default_rng(3)
    items, weights = rng.integers(0, 1000, 30_000), rng.integers(-4, 5, 30_000)
    weights[::1000] = np.iinfo(np.int64).min
    together = np.zeros(index.slots, np.int32)
    index.batch(together, Items.of(items), weights, max_weight=2, invalid="noop").apply()
    apart = np.zeros(index.slots, np.int32)
    good = np.abs(weights.astype(float)) <= 2
    index.batch(apart, Items.of(items[good]), weights[good], max_weight=2).apply()
    assert np.array_equal(together, apart)
    in_pieces = np.zeros(index.slots, np.int32)
    for first in range(0, 30_000, 777):
        piece = slice(first, first + 777)
        index.batch(in_pieces, Items.of(items[piece]), weights[piece], max_weight=2, invalid="noop").apply()
    assert np.array_equal(together, in_pieces)


WEIGHTS = {
    "list": [1, 2**63, 1.5, None, "1", True, 2.0, -1],
    "floats": np.array([1.0, 2.0**63, 1.5, np.nan, np.inf, -np.inf, 2.0, -1.0]),
    "uint64": np.array([1, 2**63, 2**64 - 1, 2**63, 2**63, 2**63, 2, 0], np.uint64),
    "objects": np.array([1, -(2**63) - 1, 1.5, None, "1", True, 2, -1], object),
    "arrow": pa.array([1.0, 2.0**70, 0.5, None, 1e300, -0.5, 2.0, -1.0]),
}


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("modulus", [None, 31])
def test_a_weight_that_is_none_hurts_its_own_event_alone(weights, modulus):
    index = Index.build(ClosedDomain(size=8), None)
    state = np.zeros(8, np.int32)
    with pytest.raises(WeightError):
        index.batch(state, Items.of(np.arange(8)), weights, max_weight=2, modulus=modulus).apply()
    assert not state.any()
    index.batch(state, Items.of(np.arange(8)), weights, max_weight=2, modulus=modulus, invalid="noop").apply()
    last = 0 if isinstance(weights, np.ndarray) and weights.dtype == np.uint64 else -1
    assert state.tolist() == [1, 0, 0, 0, 0, 0, 2, last % modulus if modulus else last]
    with pytest.raises(WeightError, match="8 items"):
        index.batch(state, Items.of(np.arange(8)), weights[:7], max_weight=2, invalid="noop").apply()


def test_the_largest_weights_arrive_whole():
    index = Index.build(ClosedDomain(size=1 << 20), None)
    items = np.arange(100_000) * 10
    weights = np.where(items % 20 == 0, (1 << 30) - 1, 1 - (1 << 30))
    for dtype in (np.int32, np.int64):
        state = np.zeros(index.slots, dtype)
        index.batch(state, Items.of(items), weights, max_weight=(1 << 30) - 1).apply()
        assert np.array_equal(state[items], weights)
        assert np.count_nonzero(state) == len(items)


@given(st.data())
def test_any_batch_does_what_plain_addition_does(data):
    """Lengths around every block and group, few items and many, bad weights anywhere, each way to refuse."""
    n = data.draw(st.integers(1, 20_000))
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    few = data.draw(st.sampled_from([1, 40, 10**9]))
    values = rng.integers(0, few, n)
    kind = data.draw(st.sampled_from(["int", "int", "int", "bytes"]))
    items = Items.of(values) if kind == "int" else Items.of([b"%d" % value for value in values])
    items = Items.concat([items, items]) if data.draw(st.booleans()) else items
    weights = data.draw(st.sampled_from([None, np.int32, np.int64]))
    if weights is not None:
        weights = rng.integers(-3, 4, len(items)).astype(weights)
        weights[rng.integers(0, len(items), data.draw(st.integers(0, 3)))] = data.draw(st.sampled_from([9, -9]))
    modulus = data.draw(st.sampled_from([None, None, 31]))
    index = Index.build(OpenDomain(slots=50_000, levels=4), KEY)
    start = rng.integers(0, 31, index.slots).astype(np.int32)
    options = {"max_weight": 3, "modulus": modulus, "invalid": data.draw(st.sampled_from(["error", "noop"]))}
    values = np.ones(len(items), np.int64) if weights is None else weights.astype(np.int64)
    bad = (np.abs(values) > 3) & (modulus is None)
    state, expected = start.copy(), start.astype(np.int64)
    if bad.any() and options["invalid"] == "error":
        with pytest.raises(WeightError, match=f"position {np.argmax(bad)} "):
            index.batch(state, items, weights, **options).apply()
    else:
        index.batch(state, items, weights, **options).apply()
        np.add.at(expected, index.locate(items)[~bad], values[~bad])
    assert np.array_equal(state, expected % modulus if modulus else expected)


ON_A_NARROW_MACHINE = """
import sys
import numpy as np
from sketchstream.kernels import compile_first, machine_code
assert machine_code.vectors_interleaved() == 1
compile_first()
from sketchstream.items.domains import Index
from sketchstream.items.key import Key
from sketchstream.items.arrays import Items
from sketchstream.spec import OpenDomain
rng = np.random.default_rng(1)
items, weights = rng.integers(0, 5000, 50_000), rng.integers(-3, 4, 50_000)
index = Index.build(OpenDomain(slots=50_000, levels=4), Key(bytes(range(16))))
for numbers in (None, weights):
    state = np.zeros(index.slots, np.int32)
    index.batch(state, Items.of(items), numbers, max_weight=3).apply()
    print(*np.flatnonzero(state), *state[state != 0])
"""


@pytest.mark.statistics
def test_machines_without_wide_vectors_count_the_same(tmp_path):
    """The code for processors without any vectors of their own, compiled on this one, apart from the cache."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "generic"}
    command = [sys.executable, "-c", ON_A_NARROW_MACHINE]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    rng = np.random.default_rng(1)
    items, weights = rng.integers(0, 5000, 50_000), rng.integers(-3, 4, 50_000)
    index = Index.build(OpenDomain(slots=50_000, levels=4), KEY)
    expected = []
    for numbers in (np.ones(50_000, int), weights):
        state = np.zeros(index.slots, np.int32)
        np.add.at(state, index.locate(Items.of(items)), numbers)
        expected.append(" ".join(map(str, [*np.flatnonzero(state), *state[state != 0]])))
    assert run.stdout.splitlines() == expected


def test_an_update_needs_less_than_a_third_of_the_state_beside_it():
    index = Index.build(OpenDomain(slots=1 << 22, levels=8), KEY)
    state = np.zeros(index.slots, np.int32)
    items, weights = Items.of(np.arange(3_000_000)), np.ones(3_000_000, np.int64)
    index.batch(state, items, weights).apply()
    tracemalloc.start()
    index.batch(state, items, weights).apply()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.3 * state.nbytes


def test_listed_items_with_equal_hashes_are_not_mixed_up():
    """Two items whose hashes are forced to be equal: the table compares the items themselves."""
    index = Index.build(ClosedDomain(items=["first", "second", "other"]), KEY)
    route = index._routes["str"]
    hashes = np.full(3, 77, np.uint64)
    table = np.zeros((8, 2), np.uint64)
    kernels.fill_table(hashes, table)
    piece = Items.of(["second", "first", "absent", "other", "secone"]).whole()
    out = np.full(5, 77, np.uint64)
    from sketchstream.kernels import routing

    routing._look_up_spans(*piece.arrays, route._replace(table=table), out)
    assert out.view(np.int64).tolist() == [1, 0, -1, 2, -1]


def test_a_domain_that_needs_a_key_says_so():
    for domain in (OpenDomain(slots=8, levels=1), ClosedDomain(items=["a"]), ClosedDomain(size=9, sample_rate="0.5")):
        with pytest.raises(KeyMismatchError, match="key"):
            Index.build(domain, None)
    assert Index.build(ClosedDomain(size=9), None).slots == 9


def test_what_does_not_fit_an_index_is_refused():
    index = Index.build(ClosedDomain(size=4), None)
    with pytest.raises(SpecError, match="4 counters"):
        index.batch(np.zeros(5, np.int32), Items.of([1])).apply()
    with pytest.raises(SpecError, match="contiguous"):
        index.batch(np.zeros(8, np.int32)[::2], Items.of([1])).apply()
    with pytest.raises(ItemError, match="invalid must be"):
        index.batch(np.zeros(4, np.int32), Items.of([1]), invalid="no").apply()  # type: ignore[arg-type]
    for wide in (0, 1 << 40):
        with pytest.raises(SpecError, match="max_weight"):
            index.batch(np.zeros(4, np.int32), Items.of([1]), [1], max_weight=wide).apply()
    with pytest.raises(SpecError, match="keep"):
        Index.build(OpenDomain(slots=8, levels=1), KEY, np.ones(8, bool))
    with pytest.raises(SpecError, match="keep"):
        Index.build(ClosedDomain(size=4), None, np.ones(5, bool))
    with pytest.raises(SpecError, match="no item"):
        Index.build(ClosedDomain(size=4), None, np.zeros(4, bool))
    with pytest.raises(SpecError, match="64 bits"):
        Index.build(ClosedDomain(items=[1 << 70]), KEY)


def test_a_sample_keeps_its_share_and_another_key_keeps_others():
    domain = ClosedDomain(size=200_000, sample_rate="0.25")
    kept = Index.build(domain, KEY)
    assert abs(kept.slots - 50_000) < 5 * (200_000 * 0.25 * 0.75) ** 0.5
    ids = Items.of(np.arange(200_000))
    other = Index.build(domain, Key(bytes(16)))
    both = np.count_nonzero((kept.locate(ids) >= 0) & (other.locate(ids) >= 0))
    assert abs(both - 12_500) < 1000


EDGES = [-3, -2, -1, 0, 1, 2, 3, 5, 1030, 1 << 20, 1 << 30]


def _extreme(dtype: type, seed: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    far = rng.integers(limits.min, limits.max, 300, endpoint=True)
    near = [limits.min + i for i in range(8)] + [limits.max - i for i in range(8)]
    small = rng.integers(-70_000, 70_000, 300) if limits.max > 70_000 else rng.integers(limits.min, limits.max, 300)
    return np.concatenate([far, near, small, np.arange(-20, 20)]).astype(dtype)


@pytest.mark.parametrize(("dtype", "bits"), [(np.int32, 32), (np.int64, 64)])
def test_cumulative_counts_are_half_circles_wrap_included(dtype, bits):
    edges = ProfileSpec("1", domain=ClosedDomain(size=5), bits=bits).edges
    for state in (_extreme(dtype, 1), np.zeros(0, dtype), np.full(7, np.iinfo(dtype).min, dtype)):
        assert kernels.release_counts(state, edges, "cumulative", 0, bits).tolist() == half_circle_counts(
            state, edges, bits
        )


@pytest.mark.parametrize(("dtype", "bits"), [(np.int32, 32), (np.int64, 64)])
def test_one_event_crosses_one_end_of_one_half_circle(dtype, bits):
    edges = ProfileSpec("1", domain=ClosedDomain(size=5), bits=bits).edges
    for value in _extreme(dtype, 2).tolist():
        state = np.array([value], dtype)
        before = kernels.release_counts(state, edges, "cumulative", 0, bits)
        Index.build(ClosedDomain(size=1), None).batch(state, Items.of([0])).apply()
        after = kernels.release_counts(state, edges, "cumulative", 0, bits)
        assert np.abs(after - before).sum() <= 1


@pytest.mark.parametrize(("dtype", "bits"), [(np.int32, 32), (np.int64, 64)])
def test_bins_count_every_counter_once(dtype, bits):
    edges = ProfileSpec("1", domain=ClosedDomain(size=5), max_weight=2, bits=bits).edges
    state = _extreme(dtype, 3)
    found = kernels.release_counts(state, edges, "bins", 0, bits)
    assert found.tolist() == bin_counts(state, edges)
    assert found.sum() == len(state)
    residues = np.arange(1000, dtype=np.int16) % 32
    assert kernels.release_counts(residues, np.arange(32), "bins", 32).tolist() == bin_counts(residues, range(32))


@pytest.mark.parametrize("extra", [0, 1])
def test_two_threads_count_large_states_exactly(extra):
    """Above 2^22 counters; also where a few, or most, lie outside the first table."""
    rng = np.random.default_rng(9)
    size = (1 << 22) + extra
    near = rng.geometric(0.3, size).astype(np.int32)
    few = near.copy()
    few[:: 1 << 15] = np.iinfo(np.int32).min
    for state in (near, few, near * (1 << 12), near * (1 << 20)):
        values, counts = kernels.value_counts(state)
        wanted_values, wanted_counts = np.unique(state, return_counts=True)
        assert values.tolist() == wanted_values.tolist()
        assert counts.tolist() == wanted_counts.tolist()
        edges = np.array([-5, 0, 1, 3, 1 << 20], np.int64)
        wanted = np.diff(np.append(np.searchsorted(np.sort(state), edges), size))
        assert kernels.release_counts(state, edges, "bins").tolist() == wanted.tolist()


def test_cumulative_counts_need_counters_of_their_width():
    with pytest.raises(SpecError, match="32 bits"):
        kernels.release_counts(np.zeros(3, np.int64), np.array(EDGES), "cumulative", 0, 32)
    with pytest.raises(SpecError, match="modulus"):
        kernels.release_counts(np.zeros(3, np.int32), np.array(EDGES), "cumulative", 7, 32)


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
def test_value_counts_are_exact_near_and_far(dtype):
    for state in (_extreme(dtype, 4), np.zeros(0, dtype), np.array([5], dtype), np.arange(-9, 9, dtype=dtype)):
        values, counts = kernels.value_counts(state)
        expected, times = np.unique(state, return_counts=True)
        assert values.tolist() == expected.tolist()
        assert counts.tolist() == times.tolist()
        assert values.dtype == counts.dtype == np.int64
