"""Interrupted at any bytecode, a sketch accounts for exactly the noise that it holds, and for everything that left.

In: sketches whose methods are interrupted after n bytecodes, for every n. Out: verdicts. Touches: the trace function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import FrameType
from typing import Any

import numpy as np
import pytest

from sketchstream import published
from sketchstream.errors import BudgetError, FormatError, SealedError
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.published import Release, SealedState
from sketchstream.sketch import Sketch, merge
from sketchstream.spec import ClosedDomain

ROOMS = (
    "sketchstream/sketch.py",
    "sketchstream/kinds/interface.py",
    "sketchstream/kinds/profile/mechanism.py",
    "sketchstream/privacy/ledgers/ledger.py",
    "sketchstream/privacy/ledgers/sketch_history.py",
)
"""Files whose bytecodes are counted: those that decide the order of drawing, charging and storing."""
SPECS = {
    "event": ProfileSpec(epsilon="1/100", domain=ClosedDomain(size=64)),
    "weights": ProfileSpec(epsilon="1/100", max_weight=3, domain=ClosedDomain(size=64)),
    "item": ProfileSpec(epsilon="1/100", unit="item", modulus=32, domain=ClosedDomain(size=64)),
    "fresh": ProfileSpec(epsilon="1/100", publish="state", intrusion=True, domain=ClosedDomain(size=64)),
    "bare": ProfileSpec(epsilon="1/100", publish="state", intrusion=False, domain=ClosedDomain(size=64)),
}


def interrupted(call: Callable[[], Any], after: int) -> Any:
    """The call's result; or None, if KeyboardInterrupt was raised in it before its bytecode number `after`."""
    left = after

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(ROOMS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return call()
    except KeyboardInterrupt:
        return None
    finally:
        sys.settrace(before)


def each_bytecode(make: Callable[[], Sketch], step: Callable[[Sketch], Any]) -> Iterator[tuple[Sketch, Any, Any]]:
    """A new sketch for every place at which the step can be interrupted: it, what it held, what the step returned."""
    for after in range(20_000):
        sketch = make()
        assert sketch._state is not None
        held = sketch._content._replace(state=sketch._state.copy())
        found = interrupted(lambda sketch=sketch: step(sketch) or True, after)  # type: ignore[misc]
        yield sketch, held, found
        if found is not None:
            assert after > 50, "nothing was interrupted"
            return
    pytest.fail("the step never ended")


def require_honest(sketch: Sketch) -> None:
    """The ledger speaks of the layers that the sketch has, and its bytes can be read back."""
    noted = [entry.lineage for entry in sketch.ledger.layers]
    assert noted == [layer.lineage for layer in sketch.layers]
    if not sketch.closed:
        assert not sketch.ledger.sealed
        Sketch.from_bytes(sketch.to_bytes())


@pytest.mark.parametrize("name", SPECS)
def test_an_interrupted_refresh_has_added_noise_and_its_entry_or_neither(name: str) -> None:
    outcomes = set()
    for sketch, held, _ in each_bytecode(lambda: Sketch.create(SPECS[name]), Sketch.refresh):
        assert sketch._state is not None
        drawn = bool((sketch._state != held.state).any())
        assert (len(sketch.layers), sketch.ledger.looks) == ((2, 1) if drawn else (1, 0))
        outcomes.add(drawn)
        require_honest(sketch)
    assert outcomes == {True, False}


@pytest.mark.parametrize("name", SPECS)
def test_an_interrupted_seal_has_ended_the_sketch_or_left_it_as_it_was(name: str) -> None:
    outcomes = set()
    for sketch, held, sealed in each_bytecode(lambda: Sketch.create(SPECS[name]), Sketch.seal):
        assert sealed is None or sketch.closed, "something left a sketch that is still open"
        outcomes.add(sketch.closed)
        require_honest(sketch)
        if not sketch.closed:
            assert sketch._content._replace(ledger=held.ledger, state=None) == held._replace(state=None)
            assert np.array_equal(sketch._state, held.state)
            assert isinstance(published.read_published(sketch.seal().to_bytes()), (Release, SealedState))
    assert outcomes == {True, False}


def test_an_interrupted_release_is_charged_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchstream.kinds.profile import mechanism

    drawn: list[int] = []
    honest = mechanism.noised_counts
    monkeypatch.setattr(mechanism, "noised_counts", lambda *given: (drawn.append(1), honest(*given))[1])
    for sketch, held, released in each_bytecode(lambda: Sketch.create(SPECS["event"]), lambda s: s.release("1/2")):
        charged = sketch.ledger != held.ledger
        assert charged or (not drawn and released is None)
        assert np.array_equal(sketch._state, held.state)
        require_honest(sketch)
        drawn.clear()


def test_interrupted_merges_and_copies_keep_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    other: list[Sketch] = []

    def join(sketch: Sketch) -> Sketch:
        other[:] = [Sketch.create(SPECS["event"])]
        return merge([sketch, *other])

    for sketch, _, joined in each_bytecode(lambda: Sketch.create(SPECS["event"]), join):
        for one in (sketch, *other):
            require_honest(one)
            assert joined is None or one.closed
        if joined is not None:
            require_honest(joined)
    for sketch, _, _ in each_bytecode(lambda: Sketch.create(SPECS["event"]), Sketch.to_bytes):
        require_honest(sketch)


def test_a_failed_draw_leaves_the_sketch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchstream.kinds.profile import mechanism

    def broken(*_: object) -> None:
        msg = "no entropy"
        raise OSError(msg)

    for name in ("event", "fresh"):
        sketch = Sketch.create(SPECS[name])
        before = sketch.ledger, sketch.layers
        with monkeypatch.context() as patch:
            patch.setattr(mechanism, "add_noise", broken)
            patch.setattr(mechanism, "noised_counts", broken)
            for step in (sketch.refresh, sketch.seal):
                with pytest.raises(OSError, match="no entropy"):
                    step()
                assert (sketch.ledger, sketch.layers) == before
        sketch.seal()
        with pytest.raises(SealedError):
            sketch.refresh()


def test_a_refused_seal_draws_nothing() -> None:
    sketch = Sketch.create(SPECS["fresh"], max_epsilon="1/50")
    sketch._content = sketch._content._replace(ledger=sketch.ledger.record_look().record_look())
    held = sketch._state
    assert held is not None
    before = held.copy()
    with pytest.raises(BudgetError, match="have used it up, and an open sketch keeps its budget: drop the sketch"):
        sketch.seal()
    assert np.array_equal(held, before)


# Bytes whose ledger is not that of their layers.


def forged(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The bytes with another header, their checksum right."""
    from sketchstream import wire

    header, body = wire.unpack(data)
    plain: dict[str, Any] = dict(header)
    change(plain)
    return wire.pack(plain, body, codec=wire.RAW if plain["kind"] == "sketch" else wire.HUFFMAN)


def without_a_layer(header: dict[str, Any]) -> None:
    header["layers"] = header["layers"][:-1]


def another_epsilon(header: dict[str, Any]) -> None:
    header["layers"] = [layer | {"epsilon": "1/7"} for layer in header["layers"]]


def another_lineage(header: dict[str, Any]) -> None:
    header["layers"] = [layer | {"lineage": bytes(16)} for layer in header["layers"]]


def a_layer_that_is_not_there(header: dict[str, Any]) -> None:
    entries = header["ledger"]["history"]["entries"]
    entries.insert(1, ["layer", entries[0][1], "1/100", bytes(range(16)).hex(), entries[0][4]])


def another_unit(header: dict[str, Any]) -> None:
    header["ledger"]["unit"] = "item" if header["ledger"]["unit"] == "event" else "event"


FORGERIES = (without_a_layer, another_epsilon, another_lineage, a_layer_that_is_not_there, another_unit)


@pytest.mark.parametrize("change", FORGERIES)
@pytest.mark.parametrize("name", SPECS)
def test_bytes_whose_ledger_is_of_other_noise_are_refused(name: str, change: Callable[[dict[str, Any]], None]) -> None:
    sketch = Sketch.create(SPECS[name])
    with pytest.raises(FormatError):
        Sketch.from_bytes(forged(sketch.to_bytes(), change))
    for data in (sketch.release("1/2").to_bytes(), sketch.seal().to_bytes()):
        published.read_published(forged(data, lambda _: None))
        with pytest.raises(FormatError):
            published.read_published(forged(data, change))


def test_weights_layers_agree_in_merged_and_refreshed_bytes() -> None:
    states = [Sketch.create(SPECS["fresh"]) for _ in range(3)]
    states[0].refresh("1/10")
    whole = merge([merge(states[:2]), states[2]])
    whole.refresh()
    assert len(Sketch.from_bytes(whole.to_bytes()).layers) == 5
    again = published.read_published(whole.seal().to_bytes())
    assert isinstance(again, SealedState)
    assert len(again.layers) == len(again.ledger.layers) == 6
    assert again.ledger.loss() < Fraction(1)
