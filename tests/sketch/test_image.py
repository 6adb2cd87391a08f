"""Images of open states: their bytes are those of one moment, whatever is counted while they are read.

In: made-up events. Out: nothing. Touches: temporary files.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from sketchstream import image, kernels, wire
from sketchstream.errors import FormatError, SpecError
from sketchstream.files import write_durably
from sketchstream.items.arrays import Items
from sketchstream.items.key import Key
from sketchstream.kinds.groups.group_list import Groups
from sketchstream.kinds.profile.groups import Grouped
from sketchstream.spec import ClosedDomain, OpenDomain
from sketchstream.stream.state.window_sketch import WindowSketch

KEY = Key(bytes(16))
N = 5000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of small states, in many pieces, and blocks of deferred events that are soon full."""
    monkeypatch.setattr(image, "PIECE_BYTES", 1024)
    monkeypatch.setattr(image, "_BLOCK", 64)
    monkeypatch.setattr(image, "MIN_DEFERRING_BYTES", 4096)
    monkeypatch.setattr("sketchstream.kinds.profile.groups._BLOCK", 1000)


def made(unit: str) -> WindowSketch:
    more: dict[str, Any] = {"modulus": 8, "max_count": 7} if unit == "item" else {"max_weight": 9, "bits": 64}
    groups = Groups(["a", "b", "c"])
    return WindowSketch.create(ss.ProfileSpec("1", unit=unit, domain=OpenDomain(2048, 2), groups=groups, **more), KEY)  # type: ignore[arg-type]


def batch(seed: int, unit: str) -> tuple[Grouped, Any]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-1, 3, N).astype(np.int32)
    return Grouped(codes, Items.of(rng.integers(0, 3000, N))), None if seed % 2 else rng.integers(-11, 12, N)


def counted(sketch: WindowSketch, batches: list[tuple[Grouped, Any]]) -> np.ndarray:
    """The state after these batches, of a sketch that was never imaged."""
    again = WindowSketch.from_bytes(sketch.to_bytes(), KEY)
    for items, weights in batches:
        again.update(items, weights, invalid="noop")
    state: np.ndarray = again._open_state("test").copy()
    return state


@pytest.mark.parametrize("unit", ["event", "item"])
def test_an_image_holds_one_moment_and_loses_no_event(unit: str) -> None:
    sketch = made(unit)
    sketch.update(*batch(0, unit), invalid="noop")
    before = counted(sketch, [])
    batches = [batch(seed, unit) for seed in range(1, 5)]
    expected = counted(sketch, batches)
    expected_bytes = WindowSketch.from_bytes(sketch.to_bytes(), KEY).to_bytes(with_items=False)
    streamed = sketch.image_open()
    found = b""
    deferred = []
    for number, piece in enumerate(streamed.pieces()):
        found += piece
        if number % 3 == 1 and batches:
            sketch.update(*batches.pop(0), invalid="noop")
            deferred.append(sketch.deferred_bytes)
    assert len(found) == streamed.size
    assert (WindowSketch.from_bytes(found, KEY)._open_state("test") == before).all()
    # the ledger knows of one copy more: everything else is the same, byte for byte
    assert len(found) == len(expected_bytes)
    assert len(deferred) == 4
    assert deferred[0] > 0
    assert sketch.deferred_bytes == 0
    assert (sketch._open_state("test") == expected).all()
    sketch.update(*batch(9, unit), invalid="noop")
    assert not (sketch._open_state("test") == expected).all()


@pytest.mark.parametrize("step", ["seal", "release", "to_bytes", "close", "image_open"])
def test_what_needs_the_whole_state_has_it_and_the_image_stays_as_it_was(step: str) -> None:
    sketch = made("event")
    before, events = counted(sketch, []), batch(3, "event")
    expected = counted(sketch, [events])
    streamed = sketch.image_open()
    pieces = streamed.pieces()
    found = b"".join(bytes(next(pieces)) for _ in range(20))
    sketch.update(*events, invalid="noop")
    assert sketch.deferred_bytes > 0
    state = sketch._require_open("test")
    assert not (state == expected).all()
    assert not (state == before).all(), "counters that were read have their events already"
    if step == "close":
        streamed.close()
        assert (state == expected).all()
        return
    if step == "to_bytes":
        assert (WindowSketch.from_bytes(sketch.to_bytes(), KEY)._open_state("test") == expected).all()
    elif step == "release":
        sketch.release("1")
    elif step == "seal":
        sketch.seal()
    else:
        other = sketch.image_open()
        again = WindowSketch.from_bytes(b"".join(map(bytes, other.pieces())), KEY)
        assert (again._open_state("test") == expected).all()
    assert step == "seal" or (state == expected).all()
    found += b"".join(bytes(piece) for piece in pieces)
    assert (WindowSketch.from_bytes(found, KEY)._open_state("test") == before).all()


def test_an_interrupted_batch_leaves_no_event_among_the_deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = made("event")
    expected = counted(sketch, [batch(2, "event")])
    streamed = sketch.image_open()
    pieces = streamed.pieces()
    for _ in range(20):
        next(pieces)
    calls, add = [], kernels.add_to_groups

    def interrupted(*given: Any) -> None:
        add(*given)
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "add_to_groups", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sketch.update(*batch(4, "event"), invalid="noop")
    assert len(calls) == 6, "three chunks were added and taken away"
    sketch.update(*batch(2, "event"), invalid="noop")
    for _ in pieces:
        pass
    assert (sketch._open_state("test") == expected).all()


def test_which_bytes_are_written_does_not_depend_on_what_is_counted_meanwhile(tmp_path: Path) -> None:
    """Sizes and order of pieces with events and without."""
    sizes = []
    for busy in (False, True):
        sketch = made("event")
        streamed = sketch.image_open()
        sizes.append([])
        for piece in streamed.pieces():
            sizes[-1].append(len(piece))
            if busy:
                sketch.update(*batch(len(sizes[-1]), "event"), invalid="noop")
    assert sizes[0] == sizes[1]
    sketch = made("event")
    write_durably(tmp_path / "blob", sketch.image_open().pieces())
    assert WindowSketch.from_bytes((tmp_path / "blob").read_bytes(), KEY).slots == sketch.slots


def test_another_thread_reads_while_this_one_counts() -> None:
    sketch = made("event")
    batches = [batch(seed, "event") for seed in range(30)]
    expected = counted(sketch, batches)
    before = counted(sketch, [])
    found: list[bytes] = []
    for first in range(0, 30, 10):
        streamed = sketch.image_open()
        reader = threading.Thread(target=lambda one=streamed: found.append(b"".join(map(bytes, one.pieces()))))
        reader.start()
        for events in batches[first : first + 10]:
            sketch.update(*events, invalid="noop")
        reader.join()
    assert (WindowSketch.from_bytes(found[0], KEY)._open_state("test") == before).all()
    assert (sketch._open_state("test") == expected).all()


def test_only_large_states_of_kinds_that_can_defer_are_imaged() -> None:
    assert made("event").large
    plain = WindowSketch.create(ss.ProfileSpec("1", domain=OpenDomain(1 << 16, 1)), KEY)
    assert not plain.large
    with pytest.raises(SpecError, match="is copied"):
        plain.image_open()
    small = WindowSketch.create(ss.ProfileSpec("1", domain=ClosedDomain(size=10), groups=Groups(["a"])))
    assert not small.large


def test_a_restored_sketch_takes_over_memory_that_is_its_own() -> None:
    sketch = made("event")
    data = sketch.to_bytes()
    room = wire.aligned_memory(len(data), data[: wire.PREFIX_BYTES])
    room[:] = data
    again = WindowSketch.from_bytes(room, KEY, take_over=True)
    state = again._open_state("test")
    assert np.shares_memory(state, np.frombuffer(room, np.uint8))
    assert state.ctypes.data % 64 == 0
    again.update(*batch(1, "event"), invalid="noop")
    sketch.update(*batch(1, "event"), invalid="noop")
    assert (state == sketch._open_state("test")).all()
    for given, own in ((data, True), (bytearray(data), False), (memoryview(bytearray(data)).toreadonly(), True)):
        copied = WindowSketch.from_bytes(given, KEY, take_over=own)._open_state("test")
        assert not np.shares_memory(copied, np.frombuffer(given, np.uint8))
    room = wire.aligned_memory(len(data), data[: wire.PREFIX_BYTES])
    room[:] = data
    room[len(data) // 2] ^= 1
    with pytest.raises(FormatError):
        WindowSketch.from_bytes(room, KEY, take_over=True)
    assert len(wire.aligned_memory(5, b"short")) == 5
