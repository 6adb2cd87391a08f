"""Groups limited by a keyed ranking: what is counted, what it costs, what can be merged, what shows from outside.

In: made-up records, configurations. Out: nothing. Touches: nothing.
"""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from helpers.configurations import KEYED_TOPIC
from helpers.updates_reference import siphash
from helpers.workers import published_windows
from sketchstream import kernels
from sketchstream.config.context import context
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError, DomainError, KeyMismatchError, MergeError, SpecError
from sketchstream.items.arrays import Items, Pairs
from sketchstream.items.key import Key
from sketchstream.kinds import initial_ledger
from sketchstream.kinds.groups.group_list import Groups, GroupSample
from sketchstream.kinds.profile.groups import Grouped, spec_of_group
from sketchstream.kinds.profile.kind import KIND
from sketchstream.kinds.profile.ranking import smallest_prime
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.kinds.profile.statement import statement
from sketchstream.privacy.deployments.deployment import Deployment
from sketchstream.published import Release, SealedState, read_published, stack
from sketchstream.sketch import Sketch, merge
from sketchstream.spec import ClosedDomain, OpenDomain

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
F = Fraction
KEY = Key(bytes(range(16)))
NAMES = ["spring", "summer", "autumn", "winter"]
BLOCK = """
[[sketch]]
name = "reach"
window = "1h"
epsilon = "30"
unit = "item"
modulus = 32
domain = { slots = 4096, levels = 1 }
group_by = "campaign"
groups = ["spring", "summer", "autumn", "winter"]
other_group = true
max_groups = 2
group_limit = "ranked"
"""
ALL = [*NAMES, "other"]
GROUPED = BLOCK[BLOCK.index("group_by") : BLOCK.index("group_limit")]


def spec(epsilon: str = "30", names: list[str] = NAMES, most: int = 2, **more: Any) -> ProfileSpec:
    fields: dict[str, Any] = {"unit": "item", "modulus": 16, "domain": OpenDomain(2048, 1), **more}
    return ProfileSpec(epsilon, groups=Groups(names, max_groups=most, limit="ranked"), **fields)


def first(item: str | int, groups: int, most: int, key: Key = KEY) -> set[int]:
    """The groups in which an item counts, by the definition, in plain Python."""
    words = key.ranking_key("int" if isinstance(item, int) else "str")
    one = siphash(*map(int, words), item.to_bytes(8, "little") if isinstance(item, int) else item.encode())
    two = (one ^ one >> 33) * 0xFF51AFD7ED558CCD % 2**64
    two = (two ^ two >> 33) * 0xC4CEB9FE1A85EC53 % 2**64
    two ^= two >> 33
    prime = smallest_prime(groups)
    factor, shift = 1 + ((two >> 32) * (prime - 1) >> 32), (two % 2**32) * prime >> 32
    found = set()
    for group in range(groups):
        place = (factor * group + shift) % prime
        while place >= groups:
            place = (factor * place + shift) % prime
        if (place + ((one >> 32) * groups >> 32)) % groups < most:
            found.add(group)
    assert len(found) == most
    return found


def records(seed: int, n: int) -> list[dict[str, Any]]:
    """Records over three hours, of 60 users, each in any group or none."""
    rng = np.random.default_rng(seed)
    campaigns: list[Any] = [*NAMES, "unheard of", None]
    return [
        {
            "user": f"u{rng.integers(0, 60)}",
            "ts": f"2024-01-01T{i * 3 // n:02}:{i * 180 // n % 60:02}:00Z",
            "campaign": campaigns[rng.integers(0, len(campaigns))],
        }
        for i in range(n)
    ]


def test_the_ranking_works_modulo_the_smallest_prime_that_holds_all_groups() -> None:
    """Another prime would count an item in other groups than states that were written before."""
    assert [smallest_prime(n) for n in (1, 2, 3, 4, 5, 9, 24, 25, 90)] == [2, 2, 3, 5, 5, 11, 29, 29, 97]


@pytest.mark.parametrize("kill_every", [0, 131])
def test_an_item_counts_in_its_groups_alone_over_windows_partitions_and_kills(kill_every: int) -> None:
    sent = records(4, 1200)
    found = published_windows(KEYED_TOPIC + BLOCK, sent, KEY, kill_every=kill_every)
    expected: dict[tuple[int, str], Counter[str]] = {}
    outside = 0
    for record in sent:
        if record["campaign"] is None:
            continue
        group = record["campaign"] if record["campaign"] in NAMES else "other"
        if ALL.index(group) in first(record["user"], 5, 2):
            expected.setdefault((int(record["ts"][11:13]), group), Counter())[record["user"]] += 1
        else:
            outside += 1
    assert outside > 400, "three of five groups of each user"
    windows, held = list(found.every("reach", None, None)), []
    assert len(windows) == 3
    for hour, window in enumerate(windows):
        for one in window.each_group():
            answer = found.answer(one)
            counts = expected[hour, str(one.group)]
            for k in (1, 2, 4):
                estimate = answer.profile.interval(f"at_least.{k}")
                assert abs(estimate.value * 2 / 5 - sum(n >= k for n in counts.values())) < 0.5
            assert answer.profile.facts.sample == {"share": "2/5", "groups": 5}
            users = {r["user"] for r in sent if _hour(r) == hour and _group(r) == one.group}
            reach = answer.profile.distinct
            held.append(reach.low <= len(users) <= reach.high)
    assert sum(held) >= 12, "15 intervals of 95%, of samples that are nearly the same in every window"


def _hour(record: dict[str, Any]) -> int:
    return int(record["ts"][11:13])


def _group(record: dict[str, Any]) -> str | None:
    return None if record["campaign"] is None else record["campaign"] if record["campaign"] in NAMES else "other"


# Losses.


def exact_loss(made: ProfileSpec, *, others: bool) -> float:
    """Largest loss of an item, by the states that the code makes without noise in every pair of its worlds.

    Each group has one slot, whose randomized response at epsilon e answers two different counts with probabilities
    that differ by a factor of exp(e) at most, and attain it.

    Args:
        made: with a closed domain of one item.
        others: against other payloads of the item; else against none.
    """
    assert made.groups is not None
    number, index = len(made.groups), KIND.index(made, KEY, None)
    worlds = [tuple(np.flatnonzero(bits)) for bits in itertools.product((0, 1), repeat=number)]
    states = []
    for world in worlds:
        state = np.zeros(made.slots, made.dtype)
        batch = Grouped(np.array(world, np.int32), Items.of(np.zeros(len(world), np.int64)))
        index.add(state, batch, None, np.zeros(0, np.int64), "noop")  # type: ignore[attr-defined]
        states.append(state)
    pairs = itertools.product(states, states) if others else ((one, states[0]) for one in states)
    return max(int((one != two).sum()) for one, two in pairs) * float(made.epsilon)


@pytest.mark.parametrize(("groups", "most"), [(2, 1), (3, 1), (4, 2), (6, 5), (7, 3)])
def test_an_item_in_all_groups_loses_what_the_ledger_says_and_without_the_limit_more(
    groups: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"g{i}" for i in range(groups)]
    made = spec("1/2", names, most, domain=ClosedDomain(size=1), publish="state", intrusion=False, modulus=8)
    loss = initial_ledger(made).loss()
    assert loss == F(most, 2)
    assert Sketch.create(made, KEY).layers[0].parameter == F(1, 2), "each group has the whole epsilon"
    for others in (False, True):
        assert exact_loss(made, others=others) == loss
    promised = ProfileSpec.from_dict({**made.to_dict(), "groups": {"names": names, "max_groups": most}})
    assert initial_ledger(promised).loss() == loss
    assert exact_loss(promised, others=False) == groups / 2, "a promise that is broken"

    def without(hashes: Any, codes: Any, most: int, groups: int, prime: int, out: Any) -> None:
        del hashes, most, groups, prime
        out[:] = codes

    monkeypatch.setattr(kernels, "first_groups", without)
    assert exact_loss(made, others=False) == groups / 2 > loss, "the mutant is found"


def test_the_limit_is_over_all_batches_of_a_sketch_not_over_each() -> None:
    """An item that comes to one group after the other is counted in no more of them."""
    made = spec(domain=ClosedDomain(size=3), publish="state", intrusion=False)
    sketch = Sketch.create(made, KEY)
    for name in NAMES:
        sketch.update(Pairs([name] * 3, [0, 1, 1]))
        sketch = Sketch.from_bytes(sketch.to_bytes(), KEY)
    sealed = sketch.seal()
    assert isinstance(sealed, SealedState)
    states = np.array([sealed.group(name).state for name in NAMES])
    for item, times in ((0, 1), (1, 2), (2, 0)):
        inside = first(item, 4, 2)
        assert states[:, item].tolist() == [times if group in inside else 0 for group in range(4)]


def test_guarantee_budget_and_ledger_count_the_limit_without_a_promise() -> None:
    head = KEYED_TOPIC + '[privacy]\nbudget = { epsilon = "6", per = "1h" }\n'
    block = BLOCK.replace('"30"', '"3"')
    config = Config.parse(head + block, "/etc/c.toml", {})
    assert config.check_budget() == "an item loses at most 6 of 6 per 1h"
    with pytest.raises(ConfigError, match=r"an item could lose 9 .*reach 9"):
        Config.parse(head + block.replace("max_groups = 2", "max_groups = 3"), "/etc/c.toml", {})
    plan = config.sketches[0]
    said = statement(plan.spec, initial_ledger(plan.spec), context(config, plan))
    assert said.published == 6
    text = str(said)
    assert "in all of its 5 groups; it counts in at most 2 of them, those that a keyed hash of it ranks first" in text
    assert "pays for 2, against other payloads of the same item too" in text
    assert "of every number" not in text
    assert "promises" not in text, "nothing is promised"
    assert "the answers, not the losses, assume that whoever sends items does not know the key" in text


def test_a_release_a_seal_and_their_groups_have_the_ledgers_of_the_limit() -> None:
    made = spec("1/2", epsilon_publish="1/3")
    sketch = Sketch.create(made, KEY)
    sketch.release("1/4")
    sealed = sketch.seal()
    alone_ = [sealed.group(name) for name in NAMES]
    assert {part.ledger.loss() for part in alone_} == {sealed.ledger.loss()} == {2 * (F(1, 3) + F(1, 8))}
    assert {part.guarantee() for part in alone_} == {sealed.guarantee()}
    assert Deployment.of([sealed]).total().item == sealed.ledger.loss()


# What was published.


def test_the_sample_travels_with_one_group_and_decides_what_goes_together() -> None:
    made = spec(publish="state", intrusion=False)
    sites = [Sketch.create(made, KEY) for _ in range(2)]
    items = [f"u{i}" for i in range(40)]
    for site, some in zip(sites, (items[:25], items[15:]), strict=True):
        for name in NAMES:
            site.update(Pairs([name] * len(some), some))
    sealed = [site.seal() for site in sites]
    part = sealed[0].group("autumn")
    again = read_published(part.to_bytes())
    assert isinstance(again, SealedState)
    assert again.spec.sample == GroupSample(2, 4, 2)
    assert again.spec.needs_key
    assert again.key_id == KEY.id
    assert ProfileSpec.from_dict(again.spec.to_dict()) == again.spec
    # one group of several sites: items count at both or at none, so that their counts add
    merged = merge([one.group("autumn") for one in sealed])
    inside = [one for one in items if 2 in first(one, 4, 2)]
    found = merged.profile(method="inverse")
    assert found.distinct.value / 2 == pytest.approx(len(inside), abs=0.5)
    both = [one for one in inside if one in items[15:25]]
    assert found.interval("at_least.2").value / 2 == pytest.approx(len(both), abs=0.5)
    whole = merge(sealed).group("autumn").profile(method="inverse")
    assert whole.distinct.value == pytest.approx(found.distinct.value, abs=1)
    # two groups count different samples: neither their states nor their histograms go together
    pair = [sealed[0].group("autumn"), sealed[1].group("winter")]
    for together in (merge, stack):
        with pytest.raises(MergeError, match="sample"):
            together(pair)  # type: ignore[operator]
    other = Sketch.create(spec(publish="state", intrusion=False), Key(bytes(16))).seal()
    with pytest.raises((MergeError, KeyMismatchError)):
        merge([sealed[0], other])  # type: ignore[list-item]
    wrong = Sketch.create(spec(most=3, publish="state", intrusion=False), KEY).seal()
    with pytest.raises(MergeError, match="groups"):
        merge([sealed[0], wrong])  # type: ignore[list-item]


def test_stacked_partitions_answer_for_all_items_of_the_group() -> None:
    made = spec()
    parts = [Sketch.create(made, KEY) for _ in range(2)]
    items = [f"u{i}" for i in range(60)]
    for part, some in zip(parts, (items[:30], items[30:]), strict=True):
        part.update(Pairs(["winter"] * 30 + ["spring"] * 10, some + some[:10]))
    whole = stack([read_published(part.seal().to_bytes()) for part in parts])  # type: ignore[misc]
    found = whole.group("winter").profile()
    assert found.facts.sample == {"share": "1/2", "groups": 4}
    assert found.distinct.value == pytest.approx(2 * sum(3 in first(one, 4, 2) for one in items), abs=1)
    assert found.distinct.low <= 60 <= found.distinct.high
    assert isinstance(whole.group("winter").parts[0], Release)


def test_a_counted_total_is_that_of_the_groups_in_which_an_item_counts() -> None:
    made = spec(domain=ClosedDomain(size=40), max_total=30, total_share="1/2", epsilon="40", modulus=32)
    sketch = Sketch.create(made, KEY)
    weights = [1 + i % 5 for i in range(40)]
    sketch.update(Pairs(["summer"] * 40, list(range(40))), weights)
    part = sketch.seal().group("summer")
    held = sum(weight for i, weight in enumerate(weights) if 1 in first(i, 4, 2))
    (total,) = part.counters
    assert abs(total.value - held) <= 60, "two draws of epsilon 40/2/60"
    found = part.profile()
    assert found.total.value == pytest.approx(max(2 * total.value, 0))
    assert found.total.low <= sum(weights) <= found.total.high


# What shows from outside.


def test_a_group_outside_of_the_ranking_is_no_error_and_a_group_outside_of_the_list_is() -> None:
    sketch = Sketch.create(spec(), KEY)
    sketch.update(Pairs(NAMES, ["x"] * 4))
    with pytest.raises(DomainError):
        sketch.update(Pairs(["spring", "none"], ["x", "x"]))
    sizes = set()
    for name in NAMES:
        other = Sketch.create(spec(), KEY)
        other.update(Pairs([name], ["x"]))
        sizes.add(len(other.to_bytes()))
    assert len(sizes) == 1, "an open sketch has one size, whether the event counts or not"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("max_groups = 2\n", ""), "group_limit = 'ranked' needs max_groups"),
        (("max_groups = 2", "max_groups = 5"), r"limits nothing, as there are 5 groups"),
        (("max_groups = 2", "max_groups = 0"), "max_groups must be a whole number from 1 to 5"),
        (('"ranked"', '"random"'), "group_limit"),
        (('unit = "item"\nmodulus = 32\n', 'unit = "event"\n'), "belong to unit = 'item'"),
        (("max_groups = 2\n", "group_of_item = true\n"), "needs max_groups"),
        ((GROUPED, ""), "group_limit belong to group_by"),
    ],
)
def test_limits_that_cannot_be_are_refused(change: tuple[str, str], words: str) -> None:
    assert change[0] in BLOCK
    with pytest.raises(ConfigError, match=words):
        Config.parse(KEYED_TOPIC + BLOCK.replace(*change), "/etc/c.toml", {})


def test_a_ranking_needs_the_key_and_a_sample_is_nothing_to_create() -> None:
    closed = spec(domain=ClosedDomain(size=9))
    assert closed.needs_key
    assert not ProfileSpec("1", "item", ClosedDomain(size=9), groups=Groups(NAMES, max_groups=2)).needs_key
    with pytest.raises(KeyMismatchError):
        Sketch.create(closed)
    with pytest.raises(SpecError, match="create the sketch with all its groups"):
        Sketch.create(spec_of_group(closed, 1), KEY)
    with pytest.raises(SpecError, match="sample belongs to what was published of one group"):
        ProfileSpec("1", domain=ClosedDomain(size=9), sample=GroupSample(0, 3, 1))
    assert Groups(NAMES, max_groups=2).to_dict() == {"names": NAMES, "max_groups": 2}, "specs of before are as before"
