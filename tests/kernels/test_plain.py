"""Small batches before anything is compiled: numpy twins, which give what the compiled loops give."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import ClassVar

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.noise.words import Seeded
from helpers.twins import twins_run
from helpers.updates_reference import SIPHASH_VECTORS
from sketchstream import kernels
from sketchstream.errors import DomainError, ItemError, WeightError
from sketchstream.items.arrays import Items
from sketchstream.items.domains import Index
from sketchstream.items.key import Key
from sketchstream.kernels import compilation, packing, plain, tally
from sketchstream.noise import discrete_laplace, laplace, randomized_response, response
from sketchstream.noise import kernels as noise_kernels
from sketchstream.spec import ClosedDomain, OpenDomain

KEY = Key(bytes(range(16)))
LIST = [*range(500), *(f"user {number}" for number in range(400)), *(b"user %d" % number for number in range(9))]
DOMAINS = {
    "levels": OpenDomain(slots=500, levels=4),
    "one level": OpenDomain(slots=97, levels=1),
    "many levels": OpenDomain(slots=64, levels=32),
    "ids": ClosedDomain(size=1000),
    "list": ClosedDomain(items=LIST),
    "a tenth of a list": ClosedDomain(items=LIST, sample_rate="0.1"),
}


UPDATES = ("update_ints", "update_spans", "locate_ints", "locate_spans", "read_packed", "check_spans")
NO_KERNELS = (*UPDATES, "hash_ints", "hash_spans", "fill_table")


@pytest.fixture
def twins() -> Iterator[None]:
    """Let the twins run, whatever is compiled already."""
    with twins_run():
        yield


class Refused:
    """In the place of a kernel that must not be called."""

    overloads: ClassVar[dict[object, object]] = {}

    def __call__(self, *_: object) -> None:
        pytest.fail("a compiled loop was called")


def uses_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every compiled loop of updates fail."""
    for name in NO_KERNELS:
        monkeypatch.setattr(kernels, name, Refused())


def test_the_published_vectors_of_siphash_hold_side_by_side():
    key = np.frombuffer(bytes(range(16)), "<u8")
    messages = [bytes(range(n)) for n in range(64)]
    ends = np.cumsum([len(one) for one in messages])
    starts = ends - [len(one) for one in messages]
    out = np.empty(64, np.uint64)
    plain.hash_spans(np.frombuffer(b"".join(messages), np.uint8), starts, ends, *key, out)
    assert [int(value).to_bytes(8, "little").hex() for value in out] == SIPHASH_VECTORS


TEXTS = st.lists(st.binary(max_size=40) | st.binary(min_size=200, max_size=300), max_size=40)


@given(TEXTS, st.binary(max_size=12), st.sampled_from([np.int32, np.int64]))
def test_hashes_of_strings_equal_those_of_the_compiled_loop(texts, behind, offsets):
    buffer = np.frombuffer(b"".join(texts) + behind, np.uint8)
    ends = np.cumsum([len(one) for one in texts]).astype(offsets)
    starts = (ends - [len(one) for one in texts]).astype(offsets)
    key0, key1 = KEY.item_key("bytes")
    expected, found = np.empty(len(texts), np.uint64), np.empty(len(texts), np.uint64)
    kernels.hash_spans(buffer, starts, ends, key0, key1, expected)
    plain.hash_spans(buffer, starts, ends, key0, key1, found)
    assert np.array_equal(found, expected)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=50), st.sampled_from([1, 2, 7, 1 << 30, (1 << 31) + 5,
       (1 << 45) + 3]), st.integers(0, 63))  # fmt: skip
def test_slots_of_ints_equal_those_of_the_compiled_loop(items, per_level, last_level):
    index = Index.build(OpenDomain(slots=500, levels=4), KEY)
    route = index._routes["int"]._replace(per_level=np.uint64(per_level), last_level=np.uint64(last_level))
    values = np.array(items, np.int64)
    expected, found = np.empty(len(items), np.uint64), np.empty(len(items), np.uint64)
    kernels.locate_ints(values, route, expected)
    plain.locate_ints(values, route, found)
    assert np.array_equal(found, expected)


@st.composite
def batches(draw: st.DrawFn) -> tuple[str, list, list | None, int, type, int | None, str]:
    """A domain, items, weights, the largest weight, the counters' type and modulus, and what invalid events do."""
    name = draw(st.sampled_from(sorted(DOMAINS)))
    ids = st.integers(0, 999) if draw(st.booleans()) else st.integers(-2, 1001)
    items = draw(st.lists(ids, max_size=60))
    if name != "ids" and draw(st.booleans()):
        items = [f"user {item}" for item in items]
    limit = draw(st.sampled_from([1, 3, (1 << 40) - 1]))
    amounts = st.integers(-limit, limit) if draw(st.booleans()) else st.integers(-(1 << 63), (1 << 63) - 1)
    weights = draw(st.none() | st.lists(amounts, min_size=len(items), max_size=len(items)))
    dtype, modulus = draw(st.sampled_from([(np.int16, 7), (np.int16, 1 << 15), (np.int32, None), (np.int64, None)]))
    return name, items, weights, limit, dtype, modulus, draw(st.sampled_from(["error", "skip", "noop"]))


def outcome(given_batch: tuple, counters: int, start: np.ndarray) -> tuple:
    """What a batch makes of a state and its counters; or the error, and what it left."""
    name, items, weights, limit, dtype, modulus, invalid = given_batch
    index = Index.build(DOMAINS[name], KEY)
    values = start[: index.slots] if modulus is None else start[: index.slots] % modulus
    state, kept = values.astype(dtype), np.arange(counters) - 1
    error = ""
    try:
        index.batch(
            state, Items.of(items), None if weights is None else np.array(weights, np.int64), max_weight=limit,
            modulus=modulus, invalid=invalid, counters=kept,
        ).apply()  # fmt: skip
    except (DomainError, WeightError, ItemError) as refused:
        error = str(refused)
    return state.tolist(), kept.tolist(), error


@given(batches(), st.integers(0, 2))
def test_a_batch_does_to_the_state_what_the_compiled_loop_does(given_batch, counters):
    start = np.random.default_rng(3).integers(-(1 << 62), 1 << 62, 1000)
    expected = outcome(given_batch, counters, start)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "MAX_TWIN_ELEMENTS", 1 << 18)
        patch.setattr(compilation, "_left", {})
        patch.setattr(compilation, "_is_compiled", lambda *_: False)
        uses_no_kernel(patch)
        assert outcome(given_batch, counters, start) == expected


@given(st.lists(st.integers(-(1 << 63), (1 << 64) - 1) | st.sampled_from([127, 128, 255, -32, -33, -128, 1 << 32]),
       max_size=30))  # fmt: skip
def test_packed_ints_are_read_as_by_the_compiled_loop(items):
    packed = packed_list(items)
    expected, found = np.zeros(len(items), np.int64), np.zeros(len(items), np.int64)
    count = kernels.read_packed(packed, packing.INTS, expected, expected, expected)
    assert plain.read_packed(packed, packing.INTS, found, found, found) == count
    assert found[:count].tolist() == expected[:count].tolist()


LONG = st.sampled_from([31, 32, 255, 256, 65_535, 65_536])


@given(st.lists(st.text(max_size=5) | st.binary(max_size=5) | st.integers(0, 9) | LONG.map("x".__mul__)
       | LONG.map(b"x".__mul__), max_size=20), st.sampled_from([packing.TEXTS, packing.BLOBS]))  # fmt: skip
def test_packed_strings_are_found_where_the_compiled_loop_finds_them(items, kind):
    packed = packed_list(items)
    expected, found = np.zeros((2, len(items)), np.int64), np.zeros((2, len(items)), np.int64)
    count = kernels.read_packed(packed, kind, *expected, expected[0])
    assert plain.read_packed(packed, kind, *found, found[0]) == count
    assert found[:, :count].tolist() == expected[:, :count].tolist()


@given(st.lists(st.tuples(st.integers(-2, 12), st.integers(-2, 12)), max_size=20), st.integers(0, 10))
def test_the_first_bad_span_is_that_of_the_compiled_loop(ends, size):
    spans = np.array(ends, np.int64).reshape(-1, 2)
    starts, stops = np.ascontiguousarray(spans[:, 0]), np.ascontiguousarray(spans[:, 1])
    assert plain.check_spans(starts, stops, size) == kernels.check_spans(starts, stops, size)


def packed_list(items: list) -> np.ndarray:
    """A list in msgpack's form."""
    import msgpack

    return np.frombuffer(msgpack.packb(items), np.uint8)


@pytest.mark.parametrize("place", ["written", "counted"])
def test_an_interrupt_between_state_and_counters_leaves_both_as_they_were(place, twins, monkeypatch):
    """The only lines between which they differ: the interrupt comes before the line that follows the named one."""
    del twins
    index = Index.build(OpenDomain(slots=500, levels=4), KEY)
    before = np.arange(500, dtype=np.int32)
    state, counters = before.copy(), np.array([5, 7])
    waits = {"written": 1, "counted": 2}[place]

    def trace(frame, event, _):
        nonlocal waits
        if frame.f_code is not plain._write.__code__:
            return trace if event == "call" else None
        if event == "line" and np.any(state != before):
            waits -= 1
            if waits == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            index.batch(state, Items.of([f"user{i}" for i in range(9000)]), counters=counters).apply()
    finally:
        sys.settrace(None)
    assert waits == 0
    assert np.array_equal(state, before)
    assert counters.tolist() == [5, 7]


def test_a_list_that_turns_bad_is_taken_out_again(twins):
    del twins
    index = Index.build(OpenDomain(slots=500, levels=4), KEY)
    state = np.arange(500, dtype=np.int16)
    with pytest.raises(ItemError, match="position 9000"):
        index.batch(state, Items.of([*(f"user{i}" for i in range(9000)), None])).apply()
    assert np.array_equal(state, np.arange(500))


@pytest.mark.parametrize("domain", [DOMAINS["levels"], DOMAINS["list"]])
def test_scratch_of_items_and_slots_is_cleared(domain, twins, monkeypatch):
    """What the twins hand to numpy to work in is zero afterwards."""
    del twins
    seen: list[np.ndarray] = []
    original = plain.clear
    monkeypatch.setattr(plain, "clear", lambda arrays: (original(arrays), seen.extend(arrays)))
    index = Index.build(domain, KEY)
    index.batch(np.zeros(index.slots, np.int32), Items.of([f"user {i}" for i in range(300)])).apply()
    assert len(seen) > 10
    assert not any(array.any() for array in seen)


def test_a_twin_gets_little_work_and_none_once_its_kernel_is_compiled(monkeypatch, tmp_path):
    monkeypatch.setattr(compilation, "MAX_TWIN_ELEMENTS", 100)
    monkeypatch.setattr(compilation, "_left", {})
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))  # not what an earlier run has compiled below
    double = compilation.kernel(lambda x: x * 2)
    other = compilation.kernel(lambda x: x * 3)
    work = iter((40, 40, 40, 40, 100, 1)).__next__
    assert [compilation.use_numpy_twin(double, work, None, (1,)) for _ in range(4)] == [True, True, False, False]
    assert compilation.use_numpy_twin(double, work, "other types", (1.0,))
    assert not compilation.use_numpy_twin(double, work, "too much at once", (1j,))
    assert other(1) == 3
    assert not compilation.use_numpy_twin(other, work, None, (1,)), "compiled for these types"
    assert compilation.use_numpy_twin(other, work, "floats", (1.0,)), "not for those"
    assert other(1.0) == 3.0
    assert not compilation.use_numpy_twin(other, work, "floats", (1.0,))
    compilation.compile_first()
    assert not compilation.use_numpy_twin(double, work, "third types", (1,))


@pytest.mark.parametrize(("longest", "least", "most"), [(8, 100, 300), (8000, 1, 3)])
def test_few_items_and_long_ones_use_up_what_a_twin_may_do(longest, least, most, twins):
    """So that the twins never take much longer than compiling would, however items arrive."""
    del twins
    index = Index.build(OpenDomain(slots=500, levels=4), KEY)
    batch = Items.of([b"x" * longest])
    calls = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "update_spans", Refused())
        while calls <= most:
            try:
                index.batch(np.zeros(500, np.int32), batch).apply()
            except pytest.fail.Exception:
                break
            calls += 1
    assert least <= calls <= most


def test_few_elements_are_processed_before_numba_is_imported(monkeypatch):
    """Even where the kernel is compiled: numba's import would take longer. All kernels share what is allowed."""
    monkeypatch.setattr(compilation, "MAX_TWIN_ELEMENTS", 1000)
    monkeypatch.setattr(compilation, "_left", {})
    monkeypatch.setattr(compilation, "_few_left", 100)
    asked = []
    monkeypatch.setattr(compilation, "_is_compiled", lambda *_: asked.append(1) or True)
    monkeypatch.delitem(sys.modules, "numba")
    one, other = compilation.kernel(lambda x: x), compilation.kernel(lambda x: x + 1)
    assert compilation.use_numpy_twin(one, lambda: 60, None, (1,))
    assert not asked
    assert not compilation.use_numpy_twin(other, lambda: 60, None, (1,))
    assert asked
    assert compilation.use_numpy_twin(one, lambda: 30, None, (1,))
    compilation.compile_first()
    assert not compilation.use_numpy_twin(one, lambda: 1, None, (1,))


def test_a_kernel_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(kernels.update_ints)) is kernels.update_ints


def test_programs_start_without_numba():
    """And so do those that read a few records and make a small sketch."""
    code = """
import sys
import numpy as np
import sketchstream as ss
from sketchstream.kernels.tokens import INTEGER
from sketchstream_connectors.decode.json_values import find_fields
import sketchstream_connectors.decode.avro.blocks, sketchstream_connectors.kafka.fetch.record_batch
import sketchstream.kinds.projection.mechanism, sketchstream.kinds.workload.update, sketchstream.stream.kernels
buffer = np.frombuffer(b'{"a": 1}', np.uint8)
assert find_fields(buffer, np.array([0]), np.array([8]), ["a"]).kinds.tolist() == [[INTEGER]]
sketch = ss.Sketch.create(ss.ProfileSpec(epsilon="1", domain=ss.OpenDomain(slots=100, levels=2)), key=ss.Key.generate())
sketch.update(["x", "y"])
assert "numba" not in sys.modules, "numba"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


CODE = """
import sys
sys.path.insert(0, {path!r})
import numba, once
from sketchstream.kernels import compilation
print(compilation.use_numpy_twin(once.double, lambda: 1, None, (3,)), once.double(3))
"""


@pytest.mark.statistics
def test_a_kernel_that_another_process_compiled_is_not_spared(tmp_path):
    (tmp_path / "once.py").write_text(
        "from sketchstream.kernels import kernel\n@kernel\ndef double(x):\n    return x * 2\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", CODE.format(path=str(tmp_path))]
    found = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(2)]
    assert [run.stdout for run in found] == ["True 6\n", "False 6\n"]


@given(st.sampled_from([np.int16, np.int32, np.int64]), st.integers(0, 3000), st.integers(1, 40), st.integers(0, 5))
def test_histograms_of_counters_equal_those_of_the_compiled_loop(dtype, size, bits, edges):
    rng = np.random.default_rng(size)
    limits = np.iinfo(dtype)
    state = rng.integers(-(1 << bits), 1 << bits, size).clip(limits.min, limits.max).astype(dtype)
    state[: size // 50] = limits.max
    ends = np.unique(rng.integers(-(1 << bits), 1 << bits, edges))
    low, width = tally._first_table_range(size)
    table, outer = np.zeros((4, width), np.int64), np.zeros(len(ends) + 1, np.int64)
    tally._tally(state, low, table, ends, outer)
    inner, beyond = tally._sorted_tally(state, low, width, ends)
    assert np.array_equal(inner, table.sum(axis=0))
    assert np.array_equal(beyond, outer)


@pytest.mark.parametrize("law", ["laplace", "response"])
def test_noise_of_a_small_sketch_is_drawn_without_compiled_loops(law, twins, monkeypatch):
    del twins
    expected = np.full(70_000, 5, np.int16 if law == "response" else np.int32)
    drawn = expected.copy()
    monkeypatch.setattr(compilation, "MAX_TWIN_ELEMENTS", 0)
    if law == "laplace":
        laplace.add(expected, laplace.plan(Fraction(1, 3)), Seeded(4), laplace.compiled_block)
        monkeypatch.setattr(noise_kernels, "laplace_block", Refused())
        monkeypatch.setattr(compilation, "MAX_TWIN_ELEMENTS", 1 << 18)
        discrete_laplace(drawn, Fraction(1, 3), Seeded(4))
    else:
        response.add(expected, response.plan(31, Fraction(1, 3)), Seeded(4), response.compiled_block)
        monkeypatch.setattr(noise_kernels, "response_block", Refused())
        monkeypatch.setattr(compilation, "MAX_TWIN_ELEMENTS", 1 << 18)
        randomized_response(drawn, 31, Fraction(1, 3), Seeded(4))
    assert len(set(drawn.tolist())) > 10
    assert np.array_equal(drawn, expected)
