"""Several threads of the caller on one sketch: their calls take turns, nothing is lost, nobody waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

from sketchstream import kernels
from sketchstream.errors import SealedError
from sketchstream.items.arrays import Items
from sketchstream.items.key import Key
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.published import SealedState
from sketchstream.sketch import Sketch, merge
from sketchstream.spec import OpenDomain

KEY = Key(bytes(range(16)))
SPEC = ProfileSpec("1", domain=OpenDomain(slots=1 << 12, levels=1), publish="state", intrusion=False)


def _together(*work: Callable[[], None]) -> None:
    """Run each in a thread of its own, all at once; they must end."""
    ready = threading.Barrier(len(work))

    def run(one: Callable[[], None]) -> None:
        ready.wait(60)
        one()

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_threads_that_update_one_sketch_take_turns_and_lose_nothing(monkeypatch):
    sketch = Sketch.create(SPEC, KEY)
    before = sketch._state.copy()
    items = np.random.default_rng(1).zipf(1.2, 50_000) & 0xFFFF
    original, inside, most = kernels.update_ints, [], []

    def slow(*args):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.002)
        out = original(*args)
        inside.pop()
        return out

    monkeypatch.setattr(kernels, "update_ints", slow)
    _together(*[lambda: [sketch.update(items) for _ in range(5)]] * 4)
    assert max(most) == 1
    assert len(most) == 20
    expected = np.bincount(sketch._index.locate(Items.of(items)), minlength=sketch.slots) * 20
    assert np.array_equal(sketch._state - before, expected)


def test_a_batch_is_in_the_sealed_state_whole_or_not_at_all(monkeypatch):
    sketch = Sketch.create(SPEC, KEY)
    before = sketch._state.copy()
    items = np.arange(50_000)
    counted, refused, sealed = [], [], []
    original = kernels.update_ints

    def slow(*args):
        time.sleep(0.02)
        return original(*args)

    monkeypatch.setattr(kernels, "update_ints", slow)

    def update() -> None:
        try:
            while True:
                sketch.update(items)
                counted.append(1)
        except SealedError:
            refused.append(1)

    def seal() -> None:
        while not counted:
            time.sleep(0.001)
        result = sketch.seal()
        assert isinstance(result, SealedState)
        sealed.append(result.state.copy())

    _together(update, update, seal)
    assert len(refused) == 2
    assert int((sealed[0] - before).sum()) == len(counted) * len(items)


def test_merges_of_the_same_sketches_do_not_wait_for_each_other():
    for _ in range(20):
        a, b = Sketch.create(SPEC, KEY), Sketch.create(SPEC, KEY)
        merged, refused = [], []

        def join(*parts: Sketch, merged: list = merged, refused: list = refused) -> None:
            try:
                merged.append(merge(parts))
            except SealedError:
                refused.append(1)

        _together(lambda a=a, b=b, join=join: join(a, b), lambda a=a, b=b, join=join: join(b, a))
        assert (len(merged), len(refused)) == (1, 1)
