"""One state under two seal ids: found wherever publications are added up, and charged what can be proved.

In: copied sketches, sealed more than once; small branched histories, enumerated. Out: verdicts. Touches: temporary
folders.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

import sketchstream as ss
from sketchstream.audit import oracle
from sketchstream.cli.app import run
from sketchstream.errors import MergeError
from sketchstream.privacy.deployments.copies import copied_loss, families
from sketchstream.privacy.deployments.deployment import Deployment
from sketchstream.privacy.losses.history import History, LayerEntry, Loss, View
from sketchstream.published import Release, SealedState

F = Fraction
ONE = bytes(16)
TWO = bytes(range(16))


def spec(unit: str = "event", **more: object) -> ss.ProfileSpec:
    given = {"unit": unit, **({"modulus": 8} if unit == "item" else {}), **more}
    return ss.ProfileSpec(epsilon="1", epsilon_publish="1/2", domain=ss.ClosedDomain(size=32), **given)  # type: ignore[arg-type]


FORMS = {
    "histogram": {},
    "fresh": {"publish": "state", "intrusion": True},
    "bare": {"publish": "state", "intrusion": False},
}


def copied(kind: str, unit: str, releases: int = 0) -> list[Release | SealedState]:
    """A sketch that was copied; one copy counts one event more, and both are sealed."""
    sketch = ss.Sketch.create(spec(unit, **FORMS[kind]))
    sketch.update([1, 2, 3])
    seen: list[Release | SealedState] = [sketch.release("1/8") for _ in range(releases)]
    copy = ss.Sketch.from_bytes(sketch.to_bytes())
    copy.update([7])
    return [*seen, sketch.seal(), copy.seal()]


@pytest.mark.parametrize("unit", ["event", "item"])
@pytest.mark.parametrize(("kind", "loss"), [("histogram", F(1)), ("fresh", F(1)), ("bare", math.inf)])
def test_a_copied_and_updated_sketch_is_one_record_of_both_publications(kind: str, unit: str, loss: Loss) -> None:
    both = copied(kind, unit)
    for order in (both, both[::-1], [*both, *both]):
        found = Deployment.of(order)
        assert len(found.records) == len(found.copied()) == 1
        total = found.total()
        assert (total.event if unit == "event" else total.item) == loss
        assert f"INCIDENT: a sketch: 2 copies of one state were published; together they cost an {unit}" in str(found)
        assert found.to_dict()["copied"] == 1
    alone = Deployment.of(both[:1])
    assert not alone.copied()
    assert "INCIDENT" not in str(alone)


def test_three_copies_and_their_releases_add_up() -> None:
    both = copied("histogram", "event", releases=2)
    assert Deployment.of(both).total().event == 2 * (F(1, 2) + F(2, 8))
    third = copied("histogram", "event")
    assert Deployment.of([*both, *third]).total().event == F(3, 2) + 1
    assert len(Deployment.of([*both, *third]).copied()) == 2


def test_releases_of_two_copies_are_told_apart_by_their_names() -> None:
    sketch = ss.Sketch.create(spec())
    copy = ss.Sketch.from_bytes(sketch.to_bytes())
    assert len(Deployment.of([sketch.release("1/8"), sketch.release("1/8"), sketch.seal()]).copied()) == 0
    looks = [copy.release("1/8"), copy.release("1/8")]
    one = ss.Sketch.create(spec())
    first = one.release("1/4")
    other = ss.Sketch.from_bytes(one.to_bytes())
    assert Deployment.of(looks).copied() == []
    pair = Deployment.of([first, one.release("1/8"), other.release("1/8")])
    assert len(pair.copied()) == 1
    assert pair.total().event == 2 * (F(1, 4) + F(1, 8) + F(1, 2)), "each copy may still publish what it promised"


def test_merging_published_states_is_no_copy() -> None:
    made = [ss.Sketch.create(spec(publish="state", intrusion=False)) for _ in range(3)]
    states = [one.seal() for one in made]
    whole = ss.merge([ss.merge(states[:2]), states[2]])  # type: ignore[list-item]
    for given in ([whole], [*states, whole], [whole, *states], [states[0], whole]):
        found = Deployment.of(given)  # type: ignore[arg-type]
        assert found.copied() == []
        assert found.total().event == 3
    with pytest.raises(MergeError, match="published or copied"):
        ss.merge(copied("bare", "event"))  # type: ignore[arg-type]
    with pytest.raises(MergeError, match="published or copied"):
        ss.stack(copied("histogram", "event"))


def test_a_merge_of_open_sketches_continues_its_parts_and_a_copied_part_is_found() -> None:
    one, two = (ss.Sketch.create(spec(publish="state", intrusion=True)) for _ in range(2))
    look = one.release("1/8")
    stolen = ss.Sketch.from_bytes(one.to_bytes())
    merged = ss.merge([one, two])
    sealed = merged.seal()
    assert Deployment.of([sealed, look]).copied() == []
    found = Deployment.of([sealed, look, stolen.seal()])
    assert len(found.copied()) == 1
    assert found.total().event == F(1, 2) + F(1, 8) + F(1, 2) + F(1, 8)


def test_the_command_finds_copies_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """cp, one update, seal both: what a shell can do to a sketch."""
    import shutil

    def do(*arguments: str) -> str:
        assert run(arguments) == 0
        return capsys.readouterr().out

    for form, words in ((("--no-intrusion",), "without a bound"), (("--intrusion",), "event 2")):
        folder = tmp_path / form[0]
        folder.mkdir()
        first, second = folder / "one.sketch", folder / "two.sketch"
        options = ("--unit", "event", "--epsilon", "1", "--size", "32", "--publish", "state", *form)
        do("create", "-o", str(first), *options)
        shutil.copy2(first, second)
        (folder / "events").write_text("7\n")
        do("update", str(second), str(folder / "events"), "--format", "lines")
        sealed = [str(folder / "a.sealed"), str(folder / "b.sealed")]
        for source, target in zip((first, second), sealed, strict=True):
            do("seal", str(source), "-o", target)
        assert "INCIDENT" in do("ledger", *sealed)
        assert words in do("ledger", *sealed)
        assert json.loads(do("ledger", *sealed, "--format", "json"))["copied"] == 1
        assert run(["stack", *sealed, "-o", str(folder / "both")]) != 0
        capsys.readouterr()


# Bounds of copies against exact losses.


def branched(rng: random.Random) -> tuple[list[History], oracle.Transcript]:
    """A layer, perhaps a release, and two copies that go on from there: their histories, and what is seen in all."""
    layer = LayerEntry(ONE, "randomized-response", rng.choice(oracle.COSTS))
    begin: tuple[LayerEntry | View, ...] = (layer,)
    joint = oracle.Transcript(layers=[layer])
    if rng.random() < 0.4:
        begin = (*begin, View("release", rng.choice(oracle.COSTS)))
        joint.views.append(oracle._Seen(((), 1), begin[1].cost, frozenset({0})))  # type: ignore[union-attr]
    histories = []
    for copy in range(2):
        kind = rng.choice(["histogram", "fresh", "bare"])
        cost = rng.choice(oracle.COSTS)
        if kind == "fresh":
            fresh = LayerEntry(TWO, "randomized-response", cost)
            joint.layers.append(fresh)
            seen = frozenset({0, len(joint.layers) - 1})
            histories.append(History(begin).sealed_by(fresh, View("publication", None)))
            joint.views.append(oracle._Seen(((copy,), 1), None, seen))
        else:
            shown = None if kind == "bare" else cost
            histories.append(History(begin).sealed_by(View("publication", shown)))
            joint.views.append(oracle._Seen(((copy,), 1), shown, frozenset({0})))
    return histories, joint


def event_paths(views: int) -> Iterator[list[int]]:
    """An event that was applied before the split, or after it to one copy or to both, seen by the views after it."""
    for first in (0, 1) if views == 3 else (0,):
        for left, right in itertools.product((0, 1), repeat=2):
            if not first or left == right == 1:
                yield [first, left, right] if views == 3 else [left, right]


def test_copies_cost_at_least_what_they_lose() -> None:
    rng = random.Random(40)
    shares, unlimited = [], 0
    for _ in range(120):
        histories, joint = branched(rng)
        claim = copied_loss(histories)
        for ring in (oracle.EVENT_RING, oracle.Ring(2, oracle.randomized_response, oracle.bins_release)):
            quiet = joint.law(ring, [0] * len(joint.views))
            event = max(oracle.log_ratio([quiet, joint.law(ring, path)]) for path in event_paths(len(joint.views)))
            paths = itertools.product(range(ring.size), repeat=len(joint.views))
            item = oracle.log_ratio([joint.law(ring, path) for path in paths])
            assert event <= item <= float(claim) + 1e-9
            if claim == math.inf:
                unlimited += event == math.inf
            else:
                shares.append(item / float(claim))
    assert unlimited > 10, "two bare copies have no bound, and the oracle says so too"
    assert max(shares) > 0.99, "and the bound is reached"


def test_families_are_found_through_common_layers() -> None:
    layers = [LayerEntry(n.to_bytes(16, "big"), "discrete-laplace", F(1)) for n in range(4)]
    lives = [History((layer,)) for layer in layers]
    joined = History((), (lives[0], lives[1]))
    assert [len(one) for one in families([(life, b"") for life in lives])] == [1, 1, 1, 1]
    found = families([(lives[0], b"a"), (lives[2], b"c"), (lives[1], b"b"), (joined, b"j"), (lives[3], b"d")])
    assert sorted(sorted(n for chain in one for n in chain.members) for one in found) == [[0, 2, 3], [1], [4]]
    assert [len(one) for one in found].count(1) == 3


def layered(number: int, *views: View) -> History:
    return History((LayerEntry(bytes([number]) * 16, "discrete-laplace", F(1)), *views))


def test_a_part_is_found_in_the_merged_state_that_is_longer_by_its_parts_alone() -> None:
    """A merged history has few entries of its own; those of its parts count."""
    part = layered(1, *[View("release", F(1, 8))] * 6)
    merged = History((View("publication", F(1)),), (part, layered(2)), seal=1)
    (chains,) = families([(part, b"part"), (merged, b"merged")])
    assert [chain.members for chain in chains] == [[1, 0]]


def test_the_longest_of_several_chains_comes_first() -> None:
    """By entries, those of parts counted once: a flat history of ten before merged ones of nine."""
    flat = layered(1, *[View("release", F(1, 8))] * 9)
    part = layered(1, *[View("release", F(1, 4))] * 4)
    merged = History((View("publication", F(1)),), (part, layered(2)), seal=1)
    for order in ([flat, merged], [merged, flat]):
        (chains,) = families([(one, str(number).encode()) for number, one in enumerate(order)])
        assert [chain.history for chain in chains] == [flat, merged]
