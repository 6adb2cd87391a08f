"""Groups and filters: counts by group against an oracle, what exists with and without a record, losses, bad input.

In: made-up records, configurations. Out: nothing. Touches: temporary files.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from helpers.configurations import KEYED_TOPIC
from helpers.workers import published_windows
from sketchstream import image, kernels
from sketchstream.config import resources
from sketchstream.config.context import context
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError, DomainError, EstimateError, ItemError, MergeError, SpecError, WeightError
from sketchstream.items.arrays import Items, Pairs
from sketchstream.items.key import Key
from sketchstream.kinds import initial_ledger
from sketchstream.kinds.groups.group_list import Groups
from sketchstream.kinds.profile import groups as groups_module
from sketchstream.kinds.profile.groups import Grouped
from sketchstream.kinds.profile.kind import KIND
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.kinds.profile.statement import statement
from sketchstream.privacy.deployments.deployment import Deployment
from sketchstream.privacy.deployments.surroundings import OtherSketch
from sketchstream.published import Release, SealedState, read_published, stack
from sketchstream.sketch import Sketch, merge
from sketchstream.spec import ClosedDomain, OpenDomain
from sketchstream.stream.state.window_sketch import WindowSketch
from sketchstream.testing.driver import Driver
from sketchstream.testing.memory import MemorySealed

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
F = Fraction
KEY = Key(bytes(16))
NAMES = ["spring", "summer", "7"]
BLOCK = """
[[sketch]]
name = "reach"
window = "1h"
epsilon = "30"
unit = "event"
max_count = 40
domain = { slots = 4096, levels = 1 }
group_by = "ad.campaign"
"""
EVENTS = 'unit = "event"\nmax_count = 40\n'
LISTED = 'groups = ["spring", "summer", 7]\n'


def spec(epsilon: str = "30", names: list[str] = NAMES, other: bool = False, **more: Any) -> ProfileSpec:
    promised = {name: more.pop(name) for name in ("max_groups", "of_item", "limit") if name in more}
    fields: dict[str, Any] = {"domain": OpenDomain(2048, 1), **more}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ProfileSpec(epsilon, groups=Groups(names, other, **promised), **fields)


def records(seed: int, n: int) -> list[dict[str, Any]]:
    """Records over three hours: campaigns of the list and others, as text and numbers, missing, null, or of no use."""
    rng = np.random.default_rng(seed)
    campaigns: list[Any] = ["spring", "summer", 7, "7", "autumn", None, True, 7.0, ["spring"], {"a": 1}, "Spring"]
    countries: list[Any] = ["DE", "AT", "CH", None, 3]
    out = []
    for i in range(n):
        seconds = int(i * 3 * 3600 / n)
        record: dict[str, Any] = {
            "user": f"u{rng.integers(0, 40)}",
            "ts": f"2024-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z",
            "ad": {"campaign": campaigns[rng.integers(0, len(campaigns))]},
            "country": countries[rng.integers(0, len(countries))],
        }
        if rng.random() < 0.05:
            del record["ad"]
        if rng.random() < 0.05:
            del record["country"]
        out.append(record)
    return out


def group_of(record: dict[str, Any], other: bool) -> str | None:
    """What the configuration says, in plain Python."""
    value = record.get("ad", {}).get("campaign")
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    return str(value) if str(value) in NAMES else "other" if other else None


@pytest.mark.parametrize(
    ("more", "other", "where", "kill_every"),
    [
        ("", False, {}, 0),
        ("other_group = true\n", True, {}, 97),
        ('where = { country = ["DE", "AT"] }\n', False, {"country": ["DE", "AT"]}, 0),
        ('other_group = true\nwhere = { country = "3" }\n', True, {"country": ["3"]}, 0),
        ('unit = "item"\nmodulus = 32\nmax_count = 20\nmax_groups = 2\n', False, {}, 0),
    ],
)
def test_every_group_counts_its_own_records(
    more: str, other: bool, where: dict[str, list[str]], kill_every: int
) -> None:
    block = BLOCK.replace(EVENTS, "") if "max_count" in more else BLOCK
    sent = records(5, 900)
    found = published_windows(KEYED_TOPIC + block + LISTED + more, sent, KEY, kill_every=kill_every)
    expected: dict[tuple[int, str], Counter[str]] = {}
    for record in sent:
        group = group_of(record, other)
        if group is None or any(str(record.get(name)) not in values for name, values in where.items()):
            continue
        hour = int(record["ts"][11:13])
        expected.setdefault((hour, group), Counter())[record["user"]] += 1
    windows = list(found.every("reach", None, None))
    assert len(windows) == 3
    for hour, window in enumerate(windows):
        assert window.groups == (*NAMES, *(["other"] if other else []))
        assert window.complete
        for one in window.each_group():
            answer = found.answer(one)
            counts = expected.get((hour, str(one.group)), Counter())
            assert answer.facts["group"] == one.group
            for k in (1, 2, 4):
                assert abs(answer.profile.interval(f"at_least.{k}").value - sum(n >= k for n in counts.values())) < 0.5
            if "item" not in more:
                assert abs(answer.profile.total.value - counts.total()) <= 40, "four draws of epsilon 30/40"


RANKED = 'unit = "item"\nmodulus = 32\nmax_groups = 1\ngroup_limit = "ranked"\n'


@pytest.mark.parametrize("imaged", [False, True])
@pytest.mark.parametrize("ranked", [False, True])
def test_what_exists_does_not_depend_on_which_groups_had_records(
    ranked: bool, imaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two worlds that differ in one record's payload: the same windows, names, numbers and sizes of bytes.

    Snapshots are copies of the states, or are read from them piece by piece while they are written. With a ranking two
    of the three listed groups are none in which the item counts.
    """
    block = BLOCK.replace(EVENTS, RANKED) if ranked else BLOCK
    monkeypatch.setattr(image, "MIN_DEFERRING_BYTES", 1 if imaged else 1 << 30)
    sizes: list[int] = []
    read_pieces = image.StateImage.pieces

    def watched(one: image.StateImage) -> Iterator[memoryview]:
        for piece in read_pieces(one):
            sizes.append(len(piece))
            yield piece

    monkeypatch.setattr(image.StateImage, "pieces", watched)

    def world(payload: dict[str, Any]) -> tuple[Any, ...]:
        driver = Driver(KEYED_TOPIC + block + LISTED, partitions=1, now="2024-01-01T03:00:00Z", key=KEY)
        driver.send({"user": "u1", "ts": "2024-01-01T00:00:01Z", **payload})
        driver.run()
        driver.snapshot()
        snapshots = [
            (sorted(map(len, driver.snapshots.blobs[0].values())), len(json.dumps(one.manifest, default=len)))
            for one in driver.snapshots.snapshots.values()
        ]
        driver.advance(hours=12)
        driver.run()
        parts = [
            (entry.sketch, entry.window, entry.partition, *(_shape(read_published(entry.body))))
            for entry in MemorySealed(driver.publisher).read()
            if hasattr(entry, "body")
        ]
        frontiers = [(one.sketch, one.published_through, one.sequence) for one in driver.publisher.frontiers().values()]
        written, sizes[:] = tuple(sizes), []
        assert bool(written) == imaged
        return snapshots, parts, frontiers, written

    def _shape(part: Any) -> tuple[Any, ...]:
        return part.groups, part.noised.shape, [c.name for c in part.counters], part.origin, part.slots

    worlds = [
        world(payload)
        for payload in (
            {"ad": {"campaign": "spring"}},
            {"ad": {"campaign": "summer"}},
            {"ad": {"campaign": 7}},
            {"ad": {"campaign": "unheard of"}},
            {"ad": {"campaign": None}},
            {},
            {"user": None},
        )
    ]
    assert worlds[0][0]
    assert worlds[0][1]
    assert all(one == worlds[0] for one in worlds[1:])


def test_stacked_sketches_of_items_answer_at_the_default_modulus() -> None:
    made = ProfileSpec("20", unit="item", domain=OpenDomain(4096, 1))
    parts = [Sketch.create(made, KEY) for _ in range(2)]
    parts[0].update(["x"] * 3 + ["y"])
    parts[1].update(["z"] * 3)
    found = stack([part.seal() for part in parts]).profile()
    assert [round(found.interval(f"at_least.{k}").value) for k in (1, 2, 3)] == [3, 2, 2]


# Sketches.


@pytest.mark.parametrize("unit", ["event", "item"])
@pytest.mark.parametrize("publish", ["histogram", "state"])
def test_a_group_is_the_sketch_that_it_would_be_alone(unit: str, publish: str) -> None:
    """Counts, ledger and bytes of one group; merged, stacked and restored."""
    more: dict[str, Any] = {"unit": unit, "publish": publish}
    more |= {"intrusion": False} if publish == "state" else {}
    more |= {"modulus": 16, "of_item": True} if unit == "item" else {}
    made = spec(**more)
    open_sketches = [Sketch.create(made, KEY) for _ in range(2)]
    open_sketches[0].update(Pairs(["spring", "spring", "7"], ["x", "x", "x"]))
    open_sketches[1].update(Pairs(["spring", "summer"], ["y", "x"]))
    again = [Sketch.from_bytes(one.to_bytes(), KEY) for one in open_sketches]
    sealed = [read_published(one.seal().to_bytes()) for one in again]
    whole = stack(sealed)
    assert whole.groups == tuple(NAMES)
    counts = {name: round(whole.group(name).profile().distinct.value) for name in NAMES}
    assert counts == {"spring": 2, "summer": 1, "7": 1}
    part = sealed[0].group("spring")
    assert round(part.profile().interval("at_least.2").value) == 1
    alone = read_published(part.to_bytes())
    assert isinstance(alone, (Release, SealedState))
    assert (alone.spec.groups, alone.groups, alone.slots) == (None, (), 2048)
    assert alone.ledger.loss() == part.ledger.loss() == 30
    assert len({one.group(name).layers[0].lineage for one in sealed for name in NAMES}) == 6
    assert len({one.group(name).seal_id for one in sealed for name in NAMES}) == 6
    # the group of an item never changes: groups are disjoint populations
    assert round(stack([sealed[0].group(name) for name in NAMES]).profile().distinct.value) == 2
    if publish == "state":
        merged = merge(sealed)
        assert round(merged.group("spring").profile().distinct.value) == 2
    with pytest.raises(EstimateError, match=r"3 groups, each with a profile of its own: choose one with .group"):
        whole.profile()
    with pytest.raises(
        EstimateError, match=r"no group 'sprin' among the 3 groups of this sketch; did you mean 'spring'"
    ):
        whole.group("sprin")
    with pytest.raises(EstimateError, match="has no groups"):
        alone.group("spring")


@pytest.mark.parametrize("invalid", ["error", "skip", "noop"])
def test_a_batch_is_added_as_by_hand(invalid: str) -> None:
    """Weights, deletions, items and groups outside the lists; the state is read at an epsilon without noise."""
    made = spec(
        domain=ClosedDomain(size=50), max_weight=7, publish="state", intrusion=False, other=True, total_share="1/2"
    )
    rng = np.random.default_rng(3)
    n = 40_000
    codes = rng.integers(-1 if invalid != "error" else 0, 4, n).astype(np.int32)
    ids = rng.integers(0, 60 if invalid != "error" else 50, n)
    weights = rng.integers(-9 if invalid == "noop" else -7, 10 if invalid == "noop" else 8, n)
    sketch = Sketch.create(made)
    sketch.update(Grouped(codes, Items.of(ids)), weights, invalid=invalid)  # type: ignore[arg-type]
    sealed = sketch.seal()
    assert isinstance(sealed, SealedState)
    good = (codes >= 0) & (ids < 50) & (abs(weights) <= 7)
    expected = np.zeros((4, 50), np.int64)
    np.add.at(expected, (codes[good], ids[good]), weights[good])
    for at, name in enumerate((*NAMES, "other")):
        part = sealed.group(name)
        # 30 * 1/2 / 7 a slot: noise of a few, and none of it in the sum of 50 slots beyond 100
        assert abs(part.state - expected[at]).max() <= 15
        total, counted = part.counters
        assert abs(total.value - expected[at].sum()) <= 40
        assert abs(counted.value - np.count_nonzero(good & (codes == at))) <= 15


def test_a_batch_that_is_not_valid_changes_nothing() -> None:
    sketch = Sketch.create(spec(max_weight=3, publish="state", intrusion=False), KEY)
    before = sketch._state.copy()
    for batch, weights, error in (
        (Pairs(["spring", "autumn"], ["x", "x"]), None, DomainError),
        (Pairs(["spring", "summer"], ["x", "x"]), [1, 4], WeightError),
        (["x"], None, ItemError),
    ):
        with pytest.raises(error):
            sketch.update(batch, weights)
    assert (sketch._state == before).all()
    with pytest.raises(ItemError, match="takes Pairs"):
        sketch.update(["x"], invalid="noop")


def test_a_closed_domain_that_moves_keeps_the_counters_of_every_group() -> None:
    made = spec(domain=ClosedDomain(size=8), publish="state", intrusion=False)
    keep = np.arange(8) < 5
    sketch = WindowSketch.create(made, keep=keep)
    sketch.update(Pairs(["spring"] * 4 + ["7"] * 3, [0, 1, 2, 3, 4, 4, 2]))
    sketch.change_slots(np.arange(8) >= 2)
    assert sketch.slots == 3 * 6
    sealed = sketch.seal()
    assert isinstance(sealed, SealedState)
    assert sealed.group("spring").state.tolist() == [1, 1, 0, 0, 0, 0]
    assert sealed.group("7").state.tolist() == [1, 0, 2, 0, 0, 0]


# Losses.


@pytest.mark.parametrize(
    ("unit", "promise", "pays", "replaced"),
    [
        ("event", {}, 1, None),
        ("item", {}, 3, None),
        ("item", {"max_groups": 1}, 1, "2/1 of every number"),
        ("item", {"max_groups": 2}, 2, "3/2 of every number"),
        ("item", {"of_item": True}, 1, None),
    ],
)
def test_the_ledger_counts_the_groups_that_a_unit_may_be_in(
    unit: str, promise: dict[str, Any], pays: int, replaced: str | None
) -> None:
    """By the sum over sketches that each have one group: the largest for an event, the k largest for an item."""
    more: dict[str, Any] = {"unit": unit, **({"modulus": 8} if unit == "item" else {"max_count": 7}), **promise}
    made = spec("1/2", epsilon_publish="1/3", **more)
    sketch = Sketch.create(made, KEY, origin=ss.Origin(name="reach", window=(0, 3_600_000), partition=0))
    sketch.release("1/4")
    sealed = sketch.seal()
    alone = [sealed.group(name) for name in NAMES]
    each = [part.ledger.loss() for part in alone]
    assert len(set(each)) == 1
    if unit == "item":
        assert each[0] == pays * F(1, 3) + F(1, 4), "a release of 1/4 is for all the groups that an item may be in"
    assert sealed.ledger.loss() == each[0]
    whole = sealed.guarantee().to_dict()
    for part in (*alone, read_published(alone[0].to_bytes())):
        assert part.guarantee().to_dict() == whole, "the answer of one group says what all of them cost"
        assert part.profile().guarantee == whole
        assert part.ledger.loss(intrusion=True) == sealed.ledger.loss(intrusion=True)
    found = Deployment.of([sealed])
    assert (found.total().event if unit == "event" else found.total().item) == each[0]
    said = str(statement(made, initial_ledger(made)))
    assert f"{'an event' if unit == 'event' else 'an item'} loses at most {pays * F(1, 3)}" in said
    assert (replaced in said) if replaced else ("of every number" not in said)


def test_an_item_in_several_groups_against_exact_enumeration() -> None:
    """Two groups of one slot each, an item in both: the exact worst ratio of what is published, by the laws drawn."""
    made = spec(
        "1/2", names=["a", "b"], unit="item", modulus=4, domain=ClosedDomain(size=1), publish="state", intrusion=False
    )
    parameter = float(made_parameter(made))
    assert parameter == pytest.approx(0.5), "each group has the whole epsilon of the spec"
    keep, move = np.exp(parameter) / (np.exp(parameter) + 3), 1 / (np.exp(parameter) + 3)
    law = np.full(4, move)
    law[0] = keep
    worst = 0.0
    for x, y in itertools.product(range(4), repeat=2):  # what the item adds to the two groups
        ratios = np.log(np.outer(law, law)) - np.log(np.outer(np.roll(law, x), np.roll(law, y)))
        worst = max(worst, float(abs(ratios).max()))
    assert worst == pytest.approx(float(initial_ledger(made).loss()))
    assert initial_ledger(made).loss() == 1
    only = spec(
        "1/2",
        names=["a", "b"],
        unit="item",
        modulus=4,
        domain=ClosedDomain(size=1),
        publish="state",
        intrusion=False,
        max_groups=1,
    )
    assert initial_ledger(only).loss() == F(1, 2)


@pytest.mark.parametrize("most", [None, 1, 2])
def test_other_payloads_of_an_item_in_several_groups_against_exact_enumeration(most: int | None) -> None:
    """Three groups of one slot: every pair of worlds in which an item is in at most `most` groups.

    Against no payloads the ledger's number is attained, against others the factor that the statement names.
    """
    more = {} if most is None else {"max_groups": most}
    made = spec(
        "1/2",
        names=["a", "b", "c"],
        unit="item",
        modulus=3,
        domain=ClosedDomain(size=1),
        publish="state",
        intrusion=False,
        **more,
    )
    parameter = float(made_parameter(made))
    law = np.array([np.exp(parameter), 1, 1]) / (np.exp(parameter) + 2)
    worlds = [one for one in itertools.product(range(3), repeat=3) if sum(x > 0 for x in one) <= (most or 3)]
    laws = {
        one: np.einsum("i,j,k->ijk", *(np.roll(law, moved) for moved in one)) for one in worlds
    }  # of the three states that an intruder sees
    nothing = max(float(np.log(laws[one] / laws[0, 0, 0]).max()) for one in worlds)
    others = max(float(np.log(laws[one] / laws[two]).max()) for one, two in itertools.product(worlds, repeat=2))
    assert made.groups is not None
    loss = float(initial_ledger(made).loss())
    assert nothing == pytest.approx(loss)
    assert others == pytest.approx(loss * made.groups.of_one_replaced / made.groups.of_one_item)
    assert made.groups.of_one_replaced == min(3, 2 * (most or 3))


def made_parameter(made: ProfileSpec) -> Fraction:
    """Parameter of the noise that a sketch of this spec really draws."""
    sketch = Sketch.create(made, KEY)
    return sketch.layers[0].parameter


def test_budgets_and_guarantees_of_a_configuration_know_groups() -> None:
    head = KEYED_TOPIC + '[privacy]\nbudget = { epsilon = "9", per = "1h" }\n'
    item = BLOCK.replace('"30"', '"3"').replace(EVENTS, 'unit = "item"\n') + LISTED
    config = Config.parse(head + item, "/etc/c.toml", {})
    assert config.check_budget() == "an item loses at most 9 of 9 per 1h"
    with pytest.raises(ConfigError, match=r"an item could lose 12 .*reach 12"):
        Config.parse(head + item + "other_group = true\n", "/etc/c.toml", {})
    plan = Config.parse(head + item + "max_groups = 2\n", "/etc/c.toml", {}).sketches[0]
    said = statement(plan.spec, initial_ledger(plan.spec), context(config, plan))
    assert said.published == 6
    assert "an item has events in at most 2 groups of one window, as its source promises" in str(said)
    assert plan.fields == {"group": "ad.campaign"}


@pytest.mark.parametrize("promise", [{}, {"max_groups": 2}, {"max_groups": 2, "limit": "ranked"}, {"of_item": True}])
def test_an_event_of_a_sketch_that_protects_items_pays_for_its_group_alone(promise: dict[str, Any]) -> None:
    """By the states that each payload makes without noise: an event moves one group, whatever an item pays for."""
    made = spec("3", unit="item", modulus=8, domain=ClosedDomain(size=2), publish="state", intrusion=False, **promise)
    moved = []
    for group, item in itertools.product(range(3), range(2)):
        state = np.zeros(made.slots, made.dtype)
        batch = Grouped(np.array([group], np.int32), Items.of([item]))
        index: Any = KIND.index(made, KEY, None)
        index.add(state, batch, None, np.zeros(0, np.int64), "noop")
        moved.append(int((state.reshape(3, -1) != 0).any(axis=1).sum()))
    exact = max(moved) * made_parameter(made)
    assert exact == 3
    groups = KIND.accounting.groups_of_item(made)
    found = OtherSketch.of("reach", initial_ledger(made), 3_600_000, groups=groups)
    assert (found.event.pure, found.item.pure) == (exact, groups * exact)
    # beside a sketch of events, in a budget and in that sketch's statement: 7 + 3 in each of two overlapping windows
    said = "".join(
        f"{name} = {json.dumps(value)}\n"
        for name, value in {
            "max_groups": promise.get("max_groups"),
            "group_limit": promise.get("limit"),
            "group_of_item": promise.get("of_item"),
        }.items()
        if value is not None
    )
    hop = 'window = "2h"\nevery = "1h"'
    item = BLOCK.replace('"30"', '"3"').replace(EVENTS, 'unit = "item"\n').replace('window = "1h"', hop)
    event = (
        '[[sketch]]\nname = "all"\nunit = "event"\nwindow = "1h"\nepsilon = "20"\ndomain = { slots = 64, levels = 1 }\n'
    )
    head = KEYED_TOPIC + '[privacy]\nbudget = { epsilon = "26", per = "1h" }\n'
    config = Config.parse(head + event + item + LISTED + said, "/etc/c.toml", {})
    assert config.check_budget() == "an event loses at most 26 of 26 per 1h"
    first = config.sketches[0]
    assert statement(first.spec, initial_ledger(first.spec), context(config, first)).total.pure == 26


# Bad input.


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "group_by needs groups"),
        ("groups = []", "at least one group, found an empty list"),
        ('groups = ["a", "b", "a"]', "groups names 'a' twice"),
        ('groups = [7, "7"]', "groups names '7' twice"),
        ('groups = ["a", "other"]\nother_group = true', "groups names 'other', which other_group"),
        ('groups = ["a"]\nmax_groups = 1', "belong to unit = 'item'"),
        ('groups = ["a"]\nunit = "item"\nmax_groups = 2', "max_groups must be a whole number from 1 to 1"),
        ('groups = ["a"]\nunit = "item"\nmax_groups = 1\ngroup_of_item = true', "exclude each other"),
        ('groups = ["a"]\nwhere = {}', "where must name at least one field"),
        ('groups = ["a"]\nwhere = { country = [] }', r"where.country must name at least one value, each once"),
        ('groups = ["a"]\nwhere = { country = ["DE", "DE"] }', "found a value twice"),
        ('groups = ["a"]\nwhere = { country = 1.5 }', "country"),
        ('groups = ["a"]\nepsilon_records = "1/10"', "epsilon_records does not go with groups"),
        ('groups = "missing.txt"', "cannot read groups /etc/missing.txt"),
        ('groups = ["a"]\nwher = { country = "DE" }', "unknown key"),
    ],
)
def test_groups_and_filters_that_cannot_be_are_refused(lines: str, words: str) -> None:
    block = BLOCK.replace(EVENTS, "") if "item" in lines else BLOCK
    with pytest.raises(ConfigError, match=words):
        Config.parse(KEYED_TOPIC + block + lines, "/etc/c.toml", {})


def test_fields_need_a_format_that_has_them() -> None:
    with pytest.raises(ConfigError, match="names a field, and format = 'key' has none"):
        Config.parse(
            KEYED_TOPIC.replace('item = "user"\ntime = "ts"', 'format = "key"') + BLOCK + LISTED, "/etc/c.toml", {}
        )


def test_so_many_groups_are_refused_with_their_memory_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "groups.txt").write_text("\n".join(f"g{i}" for i in range(100_000)))
    with pytest.raises(
        ConfigError, match=r"100,000 groups, at most 10,000 .*with 4,096 slots each they would need 1.5 GiB"
    ):
        Config.parse(KEYED_TOPIC + BLOCK + 'groups = "groups.txt"\n', tmp_path / "c.toml", {})
    (tmp_path / "groups.txt").write_text("\n".join(f"g{i}" for i in range(10_000)))
    config = Config.parse(KEYED_TOPIC + BLOCK + 'groups = "groups.txt"\n', tmp_path / "c.toml", {})
    assert config.sketches[0].spec.group_count == 10_000
    assert resources.memory_bytes(config, 1) == (16 + 1) * 3 * 10_000 * 4096 * 4 // 16, "a snapshot copies none of it"
    with pytest.raises(
        ConfigError,
        match=r"need up to 457.8 GiB, reading .*, more than this machine's memory = .*fewer slots or groups",
    ):
        resources.check_memory(config, 1000, here=True)
    limited = Config.parse(
        KEYED_TOPIC + '[worker]\nmemory_limit = "384MiB"\n' + BLOCK + 'groups = "groups.txt"\n', tmp_path / "c.toml", {}
    )
    with pytest.raises(ConfigError, match=r"more than worker.memory_limit = 384.0 MiB"):
        resources.check_memory(limited, 1)


def test_a_changed_list_begins_with_new_windows() -> None:
    """Open windows finish with the groups that they began with."""
    driver = Driver(KEYED_TOPIC + BLOCK + LISTED, partitions=1, now="2024-01-01T03:00:00Z", key=KEY)
    driver.send({"user": "a", "ts": "2024-01-01T02:50:00Z", "ad": {"campaign": "spring"}})
    driver.run()
    driver.snapshot()
    driver.kill()
    changed = Driver(KEYED_TOPIC + BLOCK + 'groups = ["autumn"]\n', partitions=1, now="2024-01-01T03:00:00Z", key=KEY)
    for name in ("log", "snapshots", "publisher", "sink", "clock"):
        setattr(changed, name, getattr(driver, name))
    changed.send({"user": "b", "ts": "2024-01-01T02:51:00Z", "ad": {"campaign": "spring"}})
    changed.run()
    changed.advance(hours=2)
    changed.send({"user": "c", "ts": "2024-01-01T05:00:00Z", "ad": {"campaign": "autumn"}})
    changed.run()
    changed.advance(hours=12)
    changed.run()
    windows = changed.windows("reach")
    assert [window.groups for window in windows] == [tuple(NAMES), ("autumn",)]
    assert round(windows[0].of_group("spring").result().profile().distinct.value) == 2
    assert round(windows[1].of_group("autumn").result().profile().distinct.value) == 1
    with pytest.raises(EstimateError, match="no group 'spring'"):
        windows[1].of_group("spring")


def test_overlapping_windows_have_all_groups_each() -> None:
    toml = KEYED_TOPIC + BLOCK.replace('window = "1h"', 'window = "2h"\nevery = "1h"') + LISTED
    sent = [{"user": f"u{i}", "ts": f"2024-01-01T{i:02}:30:00Z", "ad": {"campaign": NAMES[i % 3]}} for i in range(3)]
    found = published_windows(toml, sent, KEY, partitions=1)
    counts = [
        [round(found.answer(one).profile.distinct.value) for one in window.each_group()]
        for window in found.every("reach", None, None)
    ]
    assert counts == [[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1]]


def test_specs_with_groups_are_what_they_say() -> None:
    made = ProfileSpec("1", domain=OpenDomain(64, 1), groups=Groups(["a", 7], True), where={"c": ["x"], "b": [1]})
    again = ProfileSpec.from_dict(made.to_dict())
    assert again == made
    assert again.fingerprint == made.fingerprint
    assert made.to_dict()["where"] == {"b": ["1"], "c": ["x"]}
    plain = ProfileSpec("1", domain=OpenDomain(64, 1))
    assert "groups" not in plain.to_dict(), "specs without groups are as before"
    assert plain.fingerprint != made.fingerprint
    with pytest.raises(SpecError, match="groups must be Groups"):
        ProfileSpec("1", domain=OpenDomain(64, 1), groups=["a"])  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="groups must be a list"):
        Groups("abc")


def test_merging_needs_the_same_groups() -> None:
    states = [
        Sketch.create(spec(names=names, publish="state", intrusion=False), KEY).seal() for names in (["a"], ["b"])
    ]
    with pytest.raises(MergeError, match="groups"):
        merge(states)  # type: ignore[arg-type]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("unit", ["event", "item", "ranked"])
def test_an_interrupted_batch_leaves_no_event(unit: str, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before or after the compiled call for a chunk, state, totals and numbers of events are as they were."""
    more = {"counted": True, "max_weight": 3} if unit == "event" else {"modulus": 16}
    more |= {"max_groups": 2, "limit": "ranked"} if unit == "ranked" else {}
    sketch = ss.Sketch.create(spec(unit="event" if unit == "event" else "item", **more), KEY)
    rng = np.random.default_rng(3)
    n = 3 * groups_module._BLOCK
    rows = [["spring", "summer", "7", "none"][code] for code in rng.integers(0, 4, n)]
    pairs = ss.Pairs(rows, [f"u{item}" for item in rng.integers(0, 500, n)])
    weights = None if unit != "event" else rng.integers(-4, 5, n)
    before, counted = sketch._open_state("test").copy(), sketch._content.counters.as_they_are()
    calls, add = [], kernels.add_to_groups

    def interrupted(*given: Any) -> None:
        calls.append(len(calls))
        if len(calls) == 2 and not after:
            raise KeyboardInterrupt
        add(*given)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "add_to_groups", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sketch.update(pairs, weights, invalid="noop")
    assert len(calls) == (4 if after else 3), "one or two chunks are taken away again"
    assert np.array_equal(sketch._open_state("test"), before)
    assert sketch._content.counters.as_they_are() == counted
    sketch.update(pairs, weights, invalid="noop")
    assert not np.array_equal(sketch._open_state("test"), before)
