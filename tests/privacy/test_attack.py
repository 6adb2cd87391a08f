"""Two-look attacks: each wins every time where its protection is switched off, and no more than e^epsilon allows here.

In: sketches that do or do not hold one marked event. Out: how often an attacker who knows everything else tells which.
Touches: temporary folders.

The attacker sees two things that the system produced and knows all other events. Without protection he is never
wrong. With it no test can be right more often than e^L / (1 + e^L), L the ledger's loss; the bound used here adds five
standard deviations of the number of trials.
"""

from __future__ import annotations

import math
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from helpers.commands import Run
from sketchstream import files, published, storage, wire
from sketchstream.cli.commands.sketches import create
from sketchstream.errors import MergeError, SealedError
from sketchstream.kinds.profile import mechanism
from sketchstream.sketch import Sketch

SLOTS = 8
MARKED = 5
EACH = 20
Trial = Callable[[bool], bool]
"""Whether the attacker says that the event is in, for a world in which it is or is not."""


def spec(**more: Any) -> ss.ProfileSpec:
    given = {"epsilon": "1/2", "domain": ss.ClosedDomain(size=SLOTS), **more}
    return ss.ProfileSpec(**given)


def fed(made: Sketch) -> Sketch:
    made.update(np.arange(SLOTS).repeat(EACH))
    return made


def counters(data: bytes) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(wire.unpack(data)[1], dtype=np.int64)


def right(trial: Trial, trials: int = 300) -> float:
    """Share of right answers, half of the worlds with the event."""
    return sum(trial(bool(turn % 2)) == bool(turn % 2) for turn in range(trials)) / trials


def allowed(loss: Fraction | float, trials: int = 300) -> float:
    """What no attacker exceeds against this loss, up to luck."""
    return math.exp(loss) / (1 + math.exp(loss)) + 5 * 0.5 / math.sqrt(trials)


@contextmanager
def switched_off(patch: pytest.MonkeyPatch, *targets: tuple[Any, str, Any]) -> Iterator[None]:
    """Within this block the product lacks one protection."""
    with patch.context() as scope:
        for owner, name, value in targets:
            scope.setattr(owner, name, value)
        yield


NO_RELEASE_NOISE = (mechanism, "noised_counts", lambda made, state, cost: mechanism.exact_counts(made, state))


# Difference of two states.


def between_a_look_and_a_published_state(active: bool) -> bool:
    sketch = fed(Sketch.create(spec(publish="state", intrusion=True)))
    look = counters(sketch.to_bytes())
    if active:
        sketch.update([MARKED])
    sealed: Any = sketch.seal()
    return bool((sealed.state - look)[MARKED] >= 1)


def test_the_difference_of_a_look_and_a_published_state(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = Sketch.create(spec(publish="state", intrusion=True)).ledger.record_look().loss_by_gap()[-1].loss
    assert right(between_a_look_and_a_published_state) <= allowed(loss)
    seal = Sketch.seal
    layers = {"n": 0}

    def once(made: Any, state: Any, epsilon: Any, progress: Any = None) -> None:
        layers["n"] += 1
        if layers["n"] % 2:
            honest(made, state, epsilon)

    honest = mechanism.add_noise
    with switched_off(monkeypatch, (mechanism, "add_noise", once)):
        assert right(between_a_look_and_a_published_state) == 1
    assert Sketch.seal is seal


def test_two_copies_of_one_noise_are_never_put_together() -> None:
    first = fed(Sketch.create(spec(publish="state", intrusion=False)))
    second = Sketch.from_bytes(first.to_bytes())
    second.update([MARKED])
    one: Any = first.seal()
    two: Any = second.seal()
    assert (two.state - one.state).tolist() == np.eye(SLOTS, dtype=int)[MARKED].tolist()  # what the refusal is for
    for together in (ss.merge, ss.stack):
        with pytest.raises(MergeError, match="share a noise layer"):
            together([one, two])


# Two releases.


def between_two_releases(active: bool) -> bool:
    sketch = fed(Sketch.create(spec()))
    before = sketch.release("1/4").values
    if active:
        sketch.update([MARKED])
    after = sketch.release("1/4").values
    return int((after - before).sum()) >= 1


def test_the_difference_of_two_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = Sketch.create(spec())
    ledger = sketch.ledger.charge_release(Fraction(1, 4)).charge_release(Fraction(1, 4))
    assert right(between_two_releases) <= allowed(ledger.loss())
    with switched_off(monkeypatch, NO_RELEASE_NOISE):
        assert right(between_two_releases) == 1


# A release and a state.


def between_a_release_and_the_state(active: bool) -> bool:
    sketch = fed(Sketch.create(spec(publish="state", intrusion=False)))
    before = sketch.release("1/4").values
    if active:
        sketch.update([MARKED])
    sealed: Any = sketch.seal()
    now = mechanism.exact_counts(sketch.spec, np.array(sealed.state))[0]
    return int((now - before).sum()) >= 1


def test_the_difference_of_a_release_and_the_published_state(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = Sketch.create(spec(publish="state", intrusion=False))
    loss = sketch.ledger.charge_release(Fraction(1, 4)).loss()
    assert loss == Fraction(3, 4)
    assert right(between_a_release_and_the_state) <= allowed(loss)
    with switched_off(monkeypatch, NO_RELEASE_NOISE):
        assert right(between_a_release_and_the_state) == 1


# Two publications.


@pytest.mark.statistics
def test_two_publications_of_one_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gets a sketch published again and again averages the noise away."""

    def average(active: bool, times: int = 600) -> bool:
        sketch = fed(Sketch.create(spec()))
        before = mechanism.exact_counts(sketch.spec, sketch._state)[0]
        if active:
            sketch.update([MARKED])
        seen = []
        for _ in range(times):
            held = None if sketch._state is None else sketch._content._replace(state=sketch._state.copy())
            try:
                seen.append(sketch.seal().values)  # type: ignore[union-attr]
            except SealedError:
                break
            if off and held is not None:
                sketch._content = held
        return bool(np.round(np.mean(seen, axis=0) - before).sum() >= 1)

    off = True
    assert right(average, 6) == 1
    off = False
    assert right(average) <= allowed(Fraction(1, 2))


def test_a_publication_is_the_same_bytes_however_often_it_leaves() -> None:
    sealed = fed(Sketch.create(spec())).seal()
    assert len({sealed.to_bytes() for _ in range(5)} | {published.read_published(sealed.to_bytes()).to_bytes()}) == 1


# A created file and its later self.


def test_a_created_file_and_its_later_self(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh file is the noise itself. Nobody but its owner may read it, and no version of it is left behind."""

    def readable(folder: Path) -> list[bytes]:
        """What another user of this machine can read."""
        return [path.read_bytes() for path in sorted(folder.iterdir()) if path.stat().st_mode & stat.S_IROTH]

    def steal(folder: Path) -> list[int] | None:
        """The exact counts, from whatever two versions he can get."""
        seen: list[bytes] = []
        (folder / "events").write_text("".join(f"{item}\n" for item in [1, 1, MARKED]))
        (folder / "events").chmod(0o600)
        for arguments in (
            ("create", "-o", "s.sketch", "--unit", "event", "--epsilon", "1/2", "--size", str(SLOTS)),
            ("update", "s.sketch", "events", "--format", "lines"),
            ("inspect", "s.sketch"),
        ):
            done = run(*arguments)
            assert done.code == 0, done.said
            seen += [data for data in readable(folder) if data not in seen]
        states = [counters(data) for data in seen if wire.unpack(data)[0]["kind"] == "sketch"]
        return (states[-1] - states[0]).tolist() if len(states) > 1 else None

    assert steal(tmp_path) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events", "s.sketch"]
    assert stat.S_IMODE((tmp_path / "s.sketch").stat().st_mode) == 0o600
    (tmp_path / "s.sketch").unlink()
    write = files.write_durably

    def world_readable(path: Any, data: Any, *, replace: bool = False, **_: Any) -> None:
        write(path, data, mode=0o644, replace=replace)

    # a file that others can read is refused by the next command, which would end the attack as well
    unchecked = (storage, "require_private", lambda *_: None)
    with switched_off(
        monkeypatch, (create, "write_durably", world_readable), (files, "write_durably", world_readable), unchecked
    ):
        mask = os.umask(0o022)
        try:
            assert steal(tmp_path) == [0, 2, 0, 0, 0, 1, 0, 0]
        finally:
            os.umask(mask)


def test_a_created_file_and_the_publication(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever copied the created file subtracts it from a bare state; a published histogram has noise of its own."""

    def bare(active: bool, **more: Any) -> bool:
        sketch = Sketch.create(spec(**more))
        created = counters(sketch.to_bytes())
        fed(sketch)
        if active:
            sketch.update([MARKED])
        sealed: Any = sketch.seal()
        if isinstance(sealed, ss.SealedState):
            return bool((sealed.state - created)[MARKED] == EACH + 1)
        expected = mechanism.exact_counts(sketch.spec, (created + EACH).astype(sketch.spec.dtype))[0]
        return int((sealed.values - expected).sum()) >= 1

    def states(active: bool) -> bool:
        return bare(active, publish="state", intrusion=False)

    assert right(states) == 1
    assert Sketch.create(spec(publish="state", intrusion=False)).ledger.loss(intrusion=True) == math.inf
    loss = Sketch.create(spec()).ledger.loss(intrusion=True)
    assert right(bare) <= allowed(loss)
    with switched_off(monkeypatch, NO_RELEASE_NOISE):
        assert right(bare) == 1


# Two file sizes.


def test_two_file_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of an open sketch's bytes depends on its spec alone; compressed, it tells single events."""
    big = spec(domain=ss.ClosedDomain(size=4096))

    def sizes() -> list[tuple[int, int]]:
        found = []
        for item in range(60):
            sketch = Sketch.create(big)
            sketch.update(np.arange(4096).repeat(2))
            before = len(sketch.to_bytes())
            sketch.update([item], None)
            found.append((before, len(sketch.to_bytes())))
        return found

    Sketch.create(big).to_bytes()
    steady = {size for pair in sizes() for size in pair[1:]}
    assert len(steady) == 1
    pack = wire.pack

    def compressed(header: Any, body: Any, codec: Any, key: Any = None) -> bytes:
        return zlib.compress(pack(header, body, codec=codec, key=key))

    with switched_off(monkeypatch, (wire, "pack", compressed)):
        state = Sketch.create(big)
        lengths = set()
        for item in range(60):
            state.update([item])
            lengths.add(len(state.to_bytes()))
        assert len(lengths) > 5


def test_open_sizes_do_not_depend_on_items_weights_or_how_many_there_were() -> None:
    for made in (spec(), spec(unit="item", modulus=16), spec(domain=ss.OpenDomain(slots=64, levels=2))):
        key = ss.Key(bytes(range(16))) if made.needs_key else None
        lengths = set()
        for items in ([], [1], [7] * 1000, list(range(8)) * 50):
            sketch = Sketch.create(made, key)
            sketch.update(np.array(items, dtype=np.int64))
            lengths.add(len(sketch.to_bytes()))
        assert len(lengths) == 1
