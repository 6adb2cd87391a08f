"""Specs with `overlap`: what they allow, publish, charge and say; one group taken out; bytes; configuration."""

from __future__ import annotations

import json
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from helpers.configurations import KEYED_TOPIC
from sketchstream.attestations.verify_attestation import headers, require_noise
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError, EstimateError, FormatError, MergeError, SpecError
from sketchstream.kinds.profile import mechanism
from sketchstream.kinds.profile.patterns import exact_patterns
from sketchstream.published import read_published

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
F = Fraction
KEY = ss.Key(bytes(16))
NAMES = ["spring", "summer", "7"]


def spec(names: list[str] = NAMES, groups: dict[str, Any] | None = None, **more: Any) -> ss.ProfileSpec:
    fields: dict[str, Any] = {"unit": "item", "domain": ss.OpenDomain(64, 2), "modulus": 8, "overlap": True, **more}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ss.ProfileSpec("2", groups=ss.Groups(names, **(groups or {})), **fields)


def test_old_specs_say_nothing_of_overlap_and_keep_their_fingerprint() -> None:
    old = spec(overlap=None)
    assert not {"overlap", "epsilon_overlap", "histograms"} & set(old.to_dict())
    assert old.fingerprint == spec(overlap=False).fingerprint != spec().fingerprint


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"overlap": ["7", "spring"], "epsilon_overlap": "1/4"},
        {"histograms": False, "epsilon_overlap": "1/3"},
        {"max_total": 9, "groups": {"max_groups": 2}},
        {"domain": ss.ClosedDomain(size=30), "groups": {"other": True}},
    ],
)
def test_a_spec_is_what_its_plain_data_say(given: dict[str, Any]) -> None:
    one = spec(**given)
    again = ss.ProfileSpec.from_dict(json.loads(json.dumps(one.to_dict())))
    assert again == one
    assert again.fingerprint == one.fingerprint
    assert again.seal_cost == one.seal_cost


def test_the_usual_epsilon_of_patterns_depends_on_the_slots_alone() -> None:
    assert spec().overlap.epsilon == 1  # type: ignore[union-attr]
    assert spec(domain=ss.OpenDomain(2**18, 8)).overlap.epsilon == F(1, 4)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"unit": "event", "modulus": None}, "unit = 'item'"),
        ({"groups": {"of_item": True}}, "group_of_item"),
        ({"groups": {"max_groups": 2, "limit": "ranked"}}, "ranked groups count different people"),
        ({"publish": "state", "intrusion": True}, "publish = 'histogram'"),
        ({"overlap": ["spring"]}, "2 to 12"),
        ({"overlap": ["spring", "autumn"]}, "'autumn', which is none of"),
        ({"overlap": ["spring", "spring"]}, "twice"),
        ({"overlap": "spring"}, "a list of names"),
        ({"overlap": None, "epsilon_overlap": "1"}, "belong to overlap"),
        ({"overlap": None, "histograms": False}, "belong to overlap"),
        ({"histograms": False, "epsilon_publish": "2"}, "leave epsilon_publish out"),
        ({"histograms": False, "max_total": 9}, "leave max_total"),
        ({"epsilon_overlap": "0"}, "epsilon_overlap must be"),
        ({"names": [str(n) for n in range(13)]}, "name the ones to combine"),
    ],
)
def test_what_cannot_be_combined_is_refused_with_the_way_out(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        spec(**given)


def test_overlap_needs_groups() -> None:
    with pytest.raises(SpecError, match="overlap needs groups"):
        ss.ProfileSpec("1", "item", ss.OpenDomain(64, 2), overlap=True)


def filled(one: ss.ProfileSpec) -> ss.Sketch:
    sketch = ss.Sketch.create(one, KEY if one.needs_key else None, max_epsilon="40")
    sketch.update([("spring", 1), ("summer", 1), ("7", 2)])
    return sketch


def test_patterns_are_paid_once_and_histograms_in_every_group() -> None:
    one = spec(epsilon_publish="3/4", epsilon_overlap="1/5")
    sketch = filled(one)
    assert sketch.ledger.promised.cost == 3 * F(3, 4) + F(1, 5)
    assert sketch.ledger.loss() == 3 * F(3, 4) + F(1, 5)
    assert sketch.ledger.loss(intrusion=True) == 3 * 2 + 3 * F(3, 4) + F(1, 5)
    sealed = sketch.seal()
    assert sealed.cost == 3 * F(3, 4) + F(1, 5)
    alone = filled(spec(histograms=False, epsilon_overlap="1/5"))
    assert (alone.ledger.loss(), alone.ledger.loss(intrusion=True)) == (F(1, 5), 6 + F(1, 5))
    two = filled(spec(epsilon_publish="3/4", epsilon_overlap="1/5", groups={"max_groups": 2}))
    assert two.ledger.loss() == 2 * F(3, 4) + F(1, 5)


def test_what_is_published_is_read_again_and_its_noise_is_accounted_for() -> None:
    for one in (spec(max_total=9), spec(histograms=False), spec(["a", "b", "7"], overlap=["7", "a"])):
        sketch = ss.Sketch.create(one, KEY)
        early, sealed = sketch.release("1/3"), sketch.seal()
        for published in (early, sealed):
            data = published.to_bytes()
            again = read_published(data)
            assert again.to_bytes() == data
            for header in headers(data):
                require_noise(header)
        cells = one.levels * one.overlap.cells  # type: ignore[union-attr]
        histograms = one.group_count * one.levels * one.edges.size if one.overlap.histograms else 0  # type: ignore[union-attr]
        assert sealed.noised.shape == (histograms + cells,)
        shorter = ss.published.Release(**{**vars(sealed), "noised": sealed.noised[:-1]})
        with pytest.raises(FormatError, match="another shape"):
            read_published(shorter.to_bytes())


def test_totals_get_no_noise_for_the_patterns() -> None:
    one = spec(max_total=9, epsilon_publish="1")
    sealed = filled(one).seal()
    share, k = F(1, 40), 3
    wanted = [share * 2 * k / (2 * 9 * k), share * 1 * k / (2 * 9 * k)]
    assert [[draw.parameter for draw in one.noise] for one in sealed.counters] == [wanted] * 3


def test_one_group_has_its_own_noise_and_all_costs_and_no_pattern() -> None:
    one = spec(epsilon_publish="3/4", epsilon_overlap="1/5")
    sealed = filled(one).seal()
    group = sealed.group("summer")
    assert group.spec.overlap is None
    assert (group.cost, group.ledger.loss()) == (sealed.cost, sealed.ledger.loss())
    rows = sealed.noised[: 3 * 2 * 8].reshape(3, 2, 8)
    assert np.array_equal(group.noised, rows[1])
    data = group.to_bytes()
    assert read_published(data).to_bytes() == data
    (seen,) = ss.kinds.profile.observations.observed_counts(group)
    assert seen.cost == F(3, 4)
    with pytest.raises(EstimateError, match="overlap = true"):
        group.overlap()
    assert group.profile(method="inverse").distinct.value >= 0
    early = filled(one).release("3/2").group("7")
    (seen,) = ss.kinds.profile.observations.observed_counts(early)
    assert seen.cost == F(1, 2)
    assert read_published(early.to_bytes()).to_bytes() == early.to_bytes()


def test_patterns_alone_have_no_profiles_and_early_releases_no_patterns() -> None:
    alone = filled(spec(histograms=False))
    with pytest.raises(EstimateError, match="ask for their overlap"):
        alone.seal().group("summer")
    both = filled(spec())
    with pytest.raises(EstimateError, match="published at seal"):
        both.release("1").overlap()
    with pytest.raises(EstimateError, match="overlap = true or a list"):
        filled(spec(overlap=None)).seal().overlap()
    closed = ss.Sketch.create(ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=4)))
    with pytest.raises(EstimateError, match="has no overlap"):
        closed.seal().overlap()


def test_exact_patterns_count_each_slot_once_and_see_its_groups() -> None:
    one = spec(overlap=["7", "spring"])
    state = np.zeros((3, 2, 32), np.int16)  # groups, levels, slots
    state[2, 0, :5], state[0, 0, 4:6], state[1] = 3, 7, 1
    assert exact_patterns(one, state.ravel()).tolist() == [[26, 1, 4, 1], [32, 0, 0, 0]]


def test_one_slot_moves_two_cells_by_one_whatever_happens_in_its_groups() -> None:
    one, rng = spec(), np.random.default_rng(3)
    for _ in range(200):
        state = rng.integers(0, 8, (3, 2, 32)).astype(np.int16) * rng.integers(0, 2, (3, 2, 32), dtype=np.int16)
        other = state.copy()
        other[:, rng.integers(2), rng.integers(32)] = rng.integers(0, 8, 3) * rng.integers(0, 2, 3)
        moved = exact_patterns(one, state.ravel()) - exact_patterns(one, other.ravel())
        assert np.abs(moved).sum() in (0, 2)
        assert np.abs(moved).max(initial=0) <= 1


def test_parts_with_other_epsilons_are_stacked_and_other_groups_are_not() -> None:
    large = {"domain": ss.OpenDomain(2**12, 2)}
    first, second = filled(spec(**large)).seal(), filled(spec(epsilon_overlap="1/2", **large)).seal()
    both = ss.stack([first, second])
    assert both.overlap().groups == tuple(NAMES)
    assert ss.stack([first.group("7"), second.group("7")]).profile(method="inverse").distinct.value >= 0
    with pytest.raises(MergeError, match="overlap"):
        ss.stack([first, filled(spec(overlap=["spring", "7"], **large)).seal()])


def test_the_statement_says_what_an_item_pays_once() -> None:
    text = str(filled(spec(epsilon_overlap="1/5")).guarantee())
    assert "for what the groups have in common it pays 1/5 once, in however many of them it is" in text
    assert "readers see nothing else of it" in str(filled(spec(histograms=False)).guarantee())
    assert "once" in str(filled(spec(epsilon_overlap="1/5")).seal().group("7").guarantee())
    assert "in common" not in str(filled(spec(overlap=None)).guarantee())


BLOCK = """
[[sketch]]
name = "reach"
window = "1h"
epsilon = "2"
unit = "item"
modulus = 8
domain = { slots = 4096, levels = 4 }
group_by = "campaign"
groups = ["spring", "summer", 7]
"""


def configured(more: str, topic: str = KEYED_TOPIC) -> Config:
    return Config.parse(topic + BLOCK + more, "/etc/c.toml", {})


def test_a_configuration_names_the_groups_to_combine() -> None:
    found = configured('overlap = ["summer", 7]\nepsilon_overlap = "1/4"\n').sketches[0].spec
    assert found.overlap.to_dict() == {"overlap": ["summer", "7"], "epsilon_overlap": "1/4"}
    alone = configured("overlap = true\nhistograms = false\n").sketches[0].spec
    assert (alone.overlap.groups, alone.seal_cost) == (tuple(NAMES), 1)
    with pytest.raises(ConfigError, match="belong to overlap"):
        configured('epsilon_overlap = "1/4"\n')


def test_a_topic_that_is_not_keyed_by_the_item_has_no_patterns() -> None:
    with pytest.raises(ConfigError, match="keyed by the item"):
        configured("overlap = true\n", KEYED_TOPIC.replace('"item"', '"none"'))


def test_the_published_histograms_are_those_of_the_counters() -> None:
    one = spec(domain=ss.OpenDomain(2**12, 2), epsilon_publish="40", epsilon_overlap="40")
    sealed = ss.Sketch.create(one, KEY).seal()
    assert mechanism.histograms(one, sealed.noised).sum(axis=1).tolist() == [2048] * 6
    assert mechanism.patterns(one, sealed.noised).sum(axis=1).tolist() == [2048] * 2
