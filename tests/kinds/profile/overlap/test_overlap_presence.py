"""Counters that tell presence alone, and noise that groups have together: laws, losses by enumeration, refusals."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import sketchstream as ss
from helpers.configurations import KEYED_TOPIC
from sketchstream import noise
from sketchstream.attestations.verify_attestation import headers, require_noise
from sketchstream.audit.oracle import bits, log_ratio, randomized_response
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError, SpecError, WeightError
from sketchstream.kinds.profile.kind import KIND
from sketchstream.kinds.profile.overlap.channel import Channel, JointChannel, Kronecker
from sketchstream.kinds.profile.presence import best_modulus, residues, response_epsilon
from sketchstream.noise.joint import joint_response
from sketchstream.noise.laws import RandomizedResponse, battery
from sketchstream.noise.residues import uniform_residues
from sketchstream.privacy.losses.history import LOOK, History, LayerEntry, View
from sketchstream.privacy.losses.looks import item_loss
from sketchstream.published import read_published

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
Floats = npt.NDArray[np.float64]
F = Fraction
KEY = ss.Key(bytes(16))
NAMES = ["a", "b", "c"]


def spec(epsilon: str = "2", names: list[str] = NAMES, **more: Any) -> ss.ProfileSpec:
    fields: dict[str, Any] = {"domain": ss.OpenDomain(64, 2), "overlap": True, "counts": "presence", **more}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ss.ProfileSpec(epsilon, "item", groups=ss.Groups(names, **fields.pop("groups", {})), **fields)


# Laws.


@pytest.mark.parametrize(("epsilon", "modulus"), [("1", 4), ("2", 8), ("3", 21), ("4", 56), ("6", 404)])
def test_the_modulus_is_near_one_plus_e_to_epsilon_and_the_noise_near_twice_epsilon(epsilon: str, modulus: int) -> None:
    assert best_modulus(F(epsilon)) == modulus == spec(epsilon).modulus
    assert 1.8 * float(F(epsilon)) < float(response_epsilon(F(epsilon), modulus)) <= 2 * float(F(epsilon)) + 0.2


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("modulus", [2, 3, 8, 56])
@pytest.mark.parametrize("epsilon", ["1/10", "1", "4", "12"])
def test_no_set_of_uniform_coordinates_is_told_apart_beyond_epsilon(epsilon: str, modulus: int, groups: int) -> None:
    parameter = float(response_epsilon(F(epsilon), modulus, groups))
    size = modulus**groups
    kept = math.expm1(parameter) / (math.exp(parameter) + size - 1)
    found = 0.0
    # the density of a vector with j uniform coordinates and zeros elsewhere, or with anything elsewhere
    laws = [[(1 - kept) / size + kept * modulus**-j * zero for zero in (0, 1)] for j in range(groups + 1)]
    for first, second in itertools.product(range(groups + 1), repeat=2):
        for at, other in itertools.product((0, 1), repeat=2):
            if (first == groups and at == 0) or (second == groups and other == 0):
                continue  # with all coordinates uniform the rest is always zero
            if (first == 0 and at > other) or (second == 0 and other > at):
                continue  # zeros in all coordinates are zeros outside of any set
            if first == second == 0:
                continue  # the same set
            found = max(found, abs(math.log(laws[first][at] / laws[second][other])))
    assert found <= float(F(epsilon)) + 1e-9
    assert found > float(F(epsilon)) - 1e-4


def test_residues_are_uniform_and_all_values_occur() -> None:
    for modulus in (2, 7, 56, 1 << 15):
        found = residues(1 << 18, modulus)
        counts = np.bincount(found, minlength=modulus)
        assert len(counts) == modulus
        statistic = float(((counts - (1 << 18) / modulus) ** 2 / ((1 << 18) / modulus)).sum())
        assert abs(statistic - (modulus - 1)) < 7 * math.sqrt(2 * (modulus - 1)) + 20
    with pytest.raises(SpecError, match="modulus must be"):
        uniform_residues(np.zeros(3, np.int64), 1)


def test_words_that_favour_a_residue_are_drawn_again() -> None:
    class Words:
        def __init__(self) -> None:
            self.given = [0, 0, 5]  # 0 * 3 leaves a remainder below 2^32 mod 3 = 1

        def fill(self, out: npt.NDArray[np.uint32]) -> None:
            for at in range(len(out)):
                out[at] = self.given.pop(0)

    out = np.full(1, 9, np.int64)
    words = Words()
    uniform_residues(out, 3, words)
    assert (out[0], words.given) == (0, [])


def test_joint_noise_is_zero_or_any_other_vector_alike() -> None:
    drawn = np.zeros((2, 200_000), np.int16)
    joint_response(drawn, 3, F(2))
    codes = (3 * drawn[0] + drawn[1]).astype(np.int64)
    assert min(one.p_value for one in battery(codes, RandomizedResponse(9, F(2)))) > 1e-9
    assert min(one.p_value for one in battery(codes, RandomizedResponse(9, F(21, 10)))) < 1e-9
    again = drawn.copy()
    noise.joint_response(again, 3, F(2))
    moved = ((again.astype(int) - drawn) % 3).astype(np.int64)
    assert min(one.p_value for one in battery(3 * moved[0] + moved[1], RandomizedResponse(9, F(2)))) > 1e-9
    with pytest.raises(SpecError, match="2\\^62"):
        joint_response(np.zeros((5, 4), np.int16), 1 << 15, F(1))


@pytest.mark.parametrize("presence", [False, True])
def test_channels_are_those_of_the_noise(presence: bool) -> None:
    joint = JointChannel.of([2.0], 3, 2, presence=presence)
    rows = joint.kept * Kronecker(joint.one, 2)(np.eye(4)).T + (1 - joint.kept) * joint.drawn(2)[:, None]
    assert np.allclose(rows.sum(axis=0), 1)
    kept = math.expm1(2.0) / (math.exp(2.0) + 8)
    assert rows[3, 0] == pytest.approx((1 - kept) * 4 / 9)
    assert rows[3, 3] == pytest.approx((1 - kept) * 4 / 9 + kept * (4 / 9 if presence else 1))
    assert joint.empty == pytest.approx(rows[[2, 3], 0].sum())
    assert joint.full == pytest.approx(rows[[2, 3], 2].sum())
    alone = Channel.of_presence([2.0], 3)
    assert (alone.full, alone.empty) == (pytest.approx(2 / 3), pytest.approx(2 / (math.exp(2.0) + 2)))


# Losses, by enumeration of noise, residues and outcomes: a Markov chain on the values of one slot.

W = 3


def kernel(noise_law: Floats, groups: int) -> Floats:
    """(states, states) law of the state after a layer."""
    states = list(itertools.product(range(W), repeat=groups))
    place = {state: at for at, state in enumerate(states)}
    out = np.zeros((len(states), len(states)))
    for state in states:
        for at, moved in enumerate(states):
            to = tuple((x + y) % W for x, y in zip(state, moved, strict=True))
            out[place[state], place[to]] += noise_law[at]
    return out


def refreshed(groups: int, chosen: Sequence[int]) -> Floats:
    """(states, states) law of the state after events in some groups."""
    one = [np.full((W, W), 1 / W) if group in chosen else np.eye(W) for group in range(groups)]
    out = np.ones((1, 1))
    for matrix in one:
        out = np.kron(out, matrix)
    return out


def seen(groups: int, cost: Fraction | None) -> Floats:
    """(states, outcomes) of a look, or of the noisy pattern."""
    if cost is None:
        return np.eye(W**groups)
    states = np.array(list(itertools.product(range(W), repeat=groups)))
    code = (states != 0) @ (1 << np.arange(groups)[::-1])
    return bits(code[:, None] == np.arange(2**groups), float(cost) / 2)


def exact_loss(steps: Sequence[Any], groups: int, noise_law: Floats) -> float:
    """Largest log ratio of any two activity patterns: before each view any set of groups may have had events."""
    layer = kernel(noise_law, groups)
    views = [at for at, step in enumerate(steps) if step != "layer"]
    subsets = [c for n in range(groups + 1) for c in itertools.combinations(range(groups), n)]
    found = []
    for path in itertools.product(subsets, repeat=len(views)):
        joint = np.zeros((W**groups, 1))
        joint[0] = 1.0
        events = dict(zip(views, path, strict=True))
        for at, step in enumerate(steps):
            if step == "layer":
                joint = layer.T @ joint
                continue
            joint = refreshed(groups, events[at]).T @ joint
            shown = seen(groups, step)
            joint = (joint[:, :, None] * shown[:, None, :]).reshape(W**groups, -1)
        found.append(joint.sum(axis=0))
    return log_ratio(found)


def programme(steps: Sequence[Any], layer: Fraction, views: Any = lambda cost: cost) -> float:
    """The ledger's loss of the same life."""
    entries = [
        LayerEntry(bytes(16), "presence-response", layer)
        if step == "layer"
        else LOOK
        if step is None
        else View("release", views(step))
        for step in steps
    ]
    return float(item_loss(History(tuple(entries))))


R, LIVES = F(3, 5), ("lx", "lr", "lrx", "lxr", "lrxr", "lxlr", "lrlx", "lxlx", "lrlxr", "lrr", "lrrx")


@pytest.mark.parametrize("life", LIVES)
def test_presence_never_costs_more_than_its_epsilon_in_place_of_the_noise(life: str) -> None:
    steps = ["layer" if one == "l" else None if one == "x" else R for one in life]
    law = randomized_response(W, float(response_epsilon(F(1), W)))
    exact, claimed = exact_loss(steps, 1, law), programme(steps, F(1))
    assert exact <= claimed + 1e-9
    if life == "lx":
        assert exact > 0.99 * claimed


def test_two_groups_pay_for_their_noise_twice_and_for_patterns_once() -> None:
    one = spec("1", ["a", "b"], modulus=W, epsilon_overlap="3/5")
    law = randomized_response(W, float(response_epsilon(F(1), W)))
    exact = exact_loss(["layer", None, R], 2, np.kron(law, law))
    assert exact <= float(KIND.accounting.ledger(one, bytes(16)).loss(intrusion=True)) + 1e-9 == 2.6 + 1e-9
    assert exact > 0.9 * 2.6  # a release sees one value of many that are alike: never quite its cost


def joint_law(parameter: float, groups: int = 2) -> Floats:
    return randomized_response(W**groups, parameter)


@pytest.mark.parametrize("life", ["lx", "lrx", "lxr", "lxlx", "lrlx"])
def test_joint_presence_costs_epsilon_once_for_all_groups(life: str) -> None:
    steps = ["layer" if one == "l" else None if one == "x" else R for one in life]
    exact = exact_loss(steps, 2, joint_law(float(response_epsilon(F(1), W, 2))))
    assert exact <= programme(steps, F(1)) + 1e-9
    if life == "lxr":
        one = spec("1", ["a", "b"], modulus=W, noise="joint", epsilon_overlap="3/5")
        assert float(KIND.accounting.ledger(one, bytes(16)).loss(intrusion=True)) == 1.6
        assert exact > 0.8 * 1.6


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_joint_noise_of_sums_costs_epsilon_once_whatever_the_groups(groups: int) -> None:
    states = list(itertools.product(range(W), repeat=groups))
    law = joint_law(1.0, groups)
    place = {state: at for at, state in enumerate(states)}
    worlds = [[law[place[tuple((x - d) % W for x, d in zip(s, data, strict=True))]] for s in states] for data in states]
    assert log_ratio([np.array(one) for one in worlds]) == pytest.approx(1.0)


@pytest.mark.parametrize("mutant", ["residues from 1 on", "residues from a key", "joint noise for each group"])
def test_the_enumeration_refuses_other_draws(mutant: str) -> None:
    parameter = float(response_epsilon(F(1), W))
    law = randomized_response(W, parameter)
    if mutant == "residues from 1 on":
        mixed = np.array([0, 0.5, 0.5])
        worlds = [law, kernel(law, 1).T @ mixed]
        assert log_ratio(worlds) > 1 + 0.1
    elif mutant == "residues from a key":  # whoever knows what was added sees the noise itself
        worlds = [np.roll(law, moved) for moved in range(W)]
        assert log_ratio(worlds) > 1.5
    else:
        assert exact_loss(["layer", None], 2, np.kron(law, law)) > 1.5


# Sketches.


def test_specs_say_how_they_count() -> None:
    for more in (
        {},
        {"noise": "joint"},
        {"counts": "modulus", "noise": "joint", "modulus": 4},
        {"groups": {"max_groups": 2}},
    ):
        one = spec(**more)
        again = ss.ProfileSpec.from_dict(json.loads(json.dumps(one.to_dict())))
        assert again == one
        assert (again.modulus, again.seal_cost) == (one.modulus, 1)
        assert one.overlap is not None
        assert not one.overlap.histograms
    assert spec().to_dict()["max_count"] == 1


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"histograms": True}, "leave histograms out"),
        ({"max_count": 5}, "leave max_count out"),
        ({"max_total": 5}, "leave max_total"),
        ({"overlap": None}, "belong to overlap"),
        ({"noise": "joint", "names": list("abcde")}, "up to 4 groups"),
        ({"counts": "bits"}, "counts must be"),
        ({"noise": "shared"}, "noise must be"),
    ],
)
def test_what_presence_does_not_have_is_refused(more: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        spec(**more)


def test_losses_of_joint_noise_do_not_grow_with_the_groups() -> None:
    ledgers = [
        KIND.accounting.ledger(spec("2", NAMES, noise=how, epsilon_overlap="1/2"), bytes(16))
        for how in ("groups", "joint")
    ]
    assert [one.loss(intrusion=True) for one in ledgers] == [6 + F(1, 2), 2 + F(1, 2)]
    assert [one.loss() for one in ledgers] == [F(1, 2)] * 2


@pytest.mark.parametrize("how", ["groups", "joint"])
def test_bytes_are_read_again_and_their_noise_is_accounted_for(how: str) -> None:
    sketch = ss.Sketch.create(spec("4", noise=how, domain=ss.OpenDomain(2**12, 3)), KEY)
    again = ss.Sketch.from_bytes(sketch.to_bytes(), KEY)
    again.update([("a", 1), ("b", 1)])
    again.refresh()
    for published in (again.release("1/3"), again.seal()):
        data = published.to_bytes()
        assert read_published(data).to_bytes() == data
        for header in headers(data):
            require_noise(header)
        assert published.overlap().people.value >= 0


def test_weights_and_deletions_are_refused_and_nothing_is_applied() -> None:
    sketch = ss.Sketch.create(spec(), KEY)
    before = ss.wire.unpack(sketch.to_bytes())[1].copy()
    for weights in ([1, 2], [1, -1], [0, 1]):
        with pytest.raises(WeightError, match="is not 1"):
            sketch.update([("a", 1), ("b", 1)], weights)
    assert np.array_equal(ss.wire.unpack(sketch.to_bytes())[1], before)
    sketch.update([("a", 1), ("b", 2)], [1, 5], invalid="noop")
    moved = ss.wire.unpack(sketch.to_bytes())[1].reshape(3, -1) != before.reshape(3, -1)
    assert moved[1:].sum() == 0
    assert moved[0].sum() <= 1


def test_every_event_draws_again_and_an_interrupt_takes_its_residues_back() -> None:
    one = spec("4")
    sketch = ss.Sketch.create(one, KEY)
    states = []
    for _ in range(3):
        sketch.update([("a", "x")])
        states.append(ss.wire.unpack(sketch.to_bytes())[1].copy())
    assert any(not np.array_equal(states[0], other) for other in states[1:])

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    before = states[-1]
    with pytest.MonkeyPatch.context() as patch:
        from sketchstream.kinds.profile.groups import GroupIndex

        honest, calls = GroupIndex._run, []

        def run(*rest: Any, sign: int) -> None:
            honest(*rest, sign=sign)
            calls.append(sign)
            if sign > 0:
                stopped()

        patch.setattr(GroupIndex, "_run", run)
        with pytest.raises(KeyboardInterrupt):
            sketch.update([("b", n) for n in range(50)])
    assert calls == [1, -1]
    assert np.array_equal(ss.wire.unpack(sketch.to_bytes())[1], before)


def test_a_counter_is_uniform_after_any_number_of_events() -> None:
    one = spec("30", modulus=5, domain=ss.ClosedDomain(size=20_000))  # noise is nearly always 0
    for times in (1, 3):
        sketch = ss.Sketch.create(one)
        for _ in range(times):
            sketch.update([("b", n) for n in range(20_000)])
        values = ss.wire.unpack(sketch.to_bytes())[1].reshape(3, -1)
        counts = np.bincount(values[1], minlength=5)
        assert np.abs(counts - 4000).max() < 6 * math.sqrt(3200)
        assert np.count_nonzero(values[[0, 2]]) < 20


def test_configurations_choose_counts_and_noise() -> None:
    block = """
[[sketch]]
name = "reach"
window = "1h"
epsilon = "4"
unit = "item"
domain = { slots = 4096, levels = 4 }
group_by = "campaign"
groups = ["a", "b", "c"]
overlap = true
"""
    found: Any = (
        Config.parse(KEYED_TOPIC + block + 'counts = "presence"\nnoise = "joint"\n', "/c.toml", {}).sketches[0].spec
    )
    assert (found.overlap.presence, found.overlap.joint, found.overlap.histograms) == (True, True, False)
    weighted = KEYED_TOPIC.replace("[key]", 'weight = "n"\n[key]')
    with pytest.raises(ConfigError, match=r"leave input\.weight out"):
        Config.parse(weighted + block + 'counts = "presence"\n', "/c.toml", {})
    with pytest.raises(ConfigError, match="belong to overlap"):
        Config.parse(KEYED_TOPIC + block.replace("overlap = true", 'counts = "presence"'), "/c.toml", {})


@pytest.mark.statistics
@pytest.mark.parametrize("more", [{}, {"noise": "joint"}, {"noise": "joint", "counts": "modulus", "modulus": 8}])
def test_answers_are_unbiased_and_as_exact_as_they_say(more: dict[str, Any]) -> None:
    true, values, sds, held = {"a": 2000, "a & b": 600, "a | b": 2900}, [], [], 0
    for _ in range(40):
        sketch = ss.Sketch.create(spec("4", domain=ss.OpenDomain(2**14, 5), **more), ss.Key.generate())
        for name, ids in (("a", range(2000)), ("b", range(1400, 2900)), ("c", range(2800, 3300))):
            sketch.update([(name, n) for n in ids])
        o = sketch.seal().overlap()
        found = [o.query(one) for one in true]
        values.append([one.value for one in found])
        sds.append([one.stderr for one in found])
        held += sum(one.low <= number <= one.high for one, number in zip(found, true.values(), strict=True))
    sd, mean = np.mean(sds, axis=0), np.mean(values, axis=0)
    assert (np.abs(mean - list(true.values())) < 5 * sd / math.sqrt(40)).all()
    assert ((np.std(values, axis=0) / sd > 0.5) & (np.std(values, axis=0) / sd < 1.55)).all()
    assert held > 0.8 * 120
