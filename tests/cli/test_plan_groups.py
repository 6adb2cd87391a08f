"""`plan` for groups and windows: what it says before anything is created is what `validate`, the guarantee and the
theory say of the configuration, and what one group of a sketch then shows.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import sketchstream as ss
from helpers.commands import Run
from sketchstream.config import resources
from sketchstream.config.context import context
from sketchstream.config.loader import Config
from sketchstream.kinds import initial_ledger
from sketchstream.kinds.profile.planner import plan
from sketchstream.kinds.profile.statement import statement

ONE = ("--unit", "event", "--epsilon", "1", "--epsilon-publish", "1/2", "--open", "--slots", "8192", "--levels", "2")
ITEM = (*ONE, "--unit", "item")
HOPPING = ("--window", "7d", "--every", "1d")
TOPIC = (
    '[kafka]\n"bootstrap.servers" = "localhost:1"\n"group.id" = "reach"\n'
    '[input]\ntopic = "events"\nformat = "json"\nitem = "user"\ntime = "ts"\npartitioned_by = "item"\n'
    'partitioner = "murmur2"\n[key]\nfile = "key"\n'
)


def asked(run: Run, *options: str) -> dict[str, Any]:
    """The plan as plain data."""
    result = run("plan", *options, "--format", "json")
    assert (result.code, result.err) == (0, "")
    found: dict[str, Any] = json.loads(result.out)
    return found


def configured(lines: str) -> Config:
    """A configuration with that sketch."""
    block = '[[sketch]]\nname = "reach"\nepsilon = "1"\nepsilon_publish = "1/2"\n'
    block += "" if "unit =" in lines else 'unit = "event"\n'
    return Config.parse(f"{TOPIC}{block}domain = {{ slots = 8192, levels = 2 }}\n{lines}\n", "/etc/c.toml", {})


@pytest.mark.parametrize(
    ("unit", "promise", "block"),
    [
        ("event", (), ""),
        ("item", (), ""),
        ("item", ("--max-groups", "2"), "max_groups = 2"),
        ("item", ("--group-of-item",), "group_of_item = true"),
        ("item", ("--max-groups", "2", "--group-limit", "ranked"), 'max_groups = 2\ngroup_limit = "ranked"'),
    ],
)
@pytest.mark.parametrize("hop", [True, False])
def test_memory_losses_and_sentences_are_those_of_the_configuration(
    run: Run, unit: str, promise: tuple[str, ...], block: str, hop: bool
) -> None:
    more = HOPPING if hop else HOPPING[:2]
    options = (*ONE, "--unit", unit, "--items", "9000", "--groups", "a,b,c", "--other-group", *promise, *more)
    found = asked(run, *options, "--parts", "4")
    config = configured(
        f'unit = "{unit}"\nwindow = "7d"\n{"every = " + json.dumps("1d") if hop else ""}\n'
        f'group_by = "campaign"\ngroups = ["a", "b", "c"]\nother_group = true\n{block}'
    )
    plan = config.sketches[0]
    assert found["memory"]["all_partitions"] == resources.memory_bytes(config, 4)
    assert found["memory"]["states"] == found["memory"]["window"] * found["memory"]["open_windows"]
    assert found["memory"]["window"] == 4 * 8192 * (4 if unit == "event" else 2)
    says = statement(plan.spec, initial_ledger(plan.spec), context(config, plan))
    assert found["guarantee"]["protects"] == list(says.protects)
    assert found["guarantee"]["seen"] == list(says.seen)
    assert found["guarantee"]["total"] == str(says.total.pure)
    assert found["loss"] == found["guarantee"]["published"] == str(says.published)


def test_losses_of_an_event_and_an_item_are_those_of_the_theory(run: Run) -> None:
    """docs/theory/privacy.md 5: an event in r = W/E windows, an item in ceil(S/E) + r - 1 of them, k groups each."""
    found = asked(run, *ITEM, "--items", "9000", "--groups", "9", "--max-groups", "2", *HOPPING)["losses"]
    half = Fraction(1, 2)
    assert [(one["windows"], one["event"], one["item"]) for one in found] == [
        (1, str(half), str(2 * half)),
        (7, str(7 * half), str(7 * 2 * half)),
        (7, None, str(7 * 2 * half)),
        (13, None, str(13 * 2 * half)),
    ]
    uneven = asked(
        run, *ITEM, "--items", "9000", "--groups", "9", "--max-groups", "2", "--window", "7d", "--every", "2d"
    )
    assert [(one["windows"], one["event"], one["item"]) for one in uneven["losses"]] == [
        (1, str(half), "1"),
        (4, "2", "4"),  # seven days every two: three or four hold an instant
        (4, None, "4"),
        (7, None, "7"),
    ]
    assert uneven["window"] == "7d every 2d"
    of_events = asked(run, *ONE, "--items", "9000", "--groups", "9", *HOPPING)["losses"]
    assert [(one["event"], one["item"]) for one in of_events][:2] == [("1/2", "unlimited"), ("7/2", "unlimited")]
    tumbling = asked(run, *ITEM, "--items", "9000", "--groups", "9", "--window", "1h")["losses"]
    assert [(one["windows"], one["item"]) for one in tumbling] == [(1, "9/2"), (24, str(24 * 9 * half))]
    states = ("--epsilon", "6", "--unit", "item", "--open", "--slots", "8192", "--levels", "2", "--publish", "state")
    merged = asked(run, *states, "--intrusion", "--merges", "3", "--items", "9000", *HOPPING)
    assert [one["item"] for one in merged["losses"]][:2] == ["18", "126"], "each of three partitions may hold it"


def test_errors_are_those_of_one_group_alone(run: Run) -> None:
    """The noise of a group is that of a sketch without groups, whatever an item pays; items are split evenly."""
    for unit in ((), ("--unit", "item"), ("--unit", "item", "--max-total", "40")):
        alone = asked(run, *ONE, *unit, "--items", "3000")
        split = asked(run, *ONE, *unit, "--items", "12000", "--groups", "3", "--other-group")
        named = asked(run, *ONE, *unit, "--group-items", "3000", "--groups", "a,b")
        assert alone["numbers"] == split["numbers"] == named["numbers"]
        assert split["items"] == named["items"] == 3000
        assert (split["groups"], named["groups"]) == (4, 2)
    text = run("plan", *ONE, "--items", "12000", "--groups", "4").out
    assert "3,000 items expected in one of 4 groups" in text


@pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
@pytest.mark.parametrize("domain", [("--open", "--slots", "8192", "--levels", "2"), ("--size", "5000")])
def test_errors_of_ranked_groups_have_those_of_the_sample(run: Run, domain: tuple[str, ...]) -> None:
    """Errors of as many items as count, divided by their share, and that of the sample, as squares."""
    asked_for = ("--epsilon", "2", *domain, "--unit", "item", "--mean", "2", "--max-total", "40")
    limited = asked(
        run, *asked_for, "--group-items", "3000", "--groups", "6", "--max-groups", "2", "--group-limit", "ranked"
    )
    few = asked(run, *asked_for, "--items", "1000")
    for name, each in (("distinct", 3000.0), ("at_least.2", 1500.0)):
        found = limited["numbers"][name]
        assert found["value"] == pytest.approx(each)
        noise = 3 * few["numbers"][name]["sd"]
        assert found["sd"] == pytest.approx(math.hypot(noise, math.sqrt(2 * each)), rel=0.02)
    total = limited["numbers"]["total"]
    noise = 3 * few["numbers"]["total"]["sd"]
    assert total["sd"] == pytest.approx(math.hypot(noise, math.sqrt(2 * 40 * 6000)), rel=1e-6)
    assert limited["numbers"]["one_hit_ratio"]["value"] == few["numbers"]["one_hit_ratio"]["value"]
    assert any("an item counts in 2 of 6 groups, chosen by the key" in note for note in limited["notes"])
    assert limited["losses"][0]["item"] == "4"
    domain_of = ss.OpenDomain(8192, 2) if "--open" in domain else ss.ClosedDomain(size=5000)
    groups = ss.Groups(range(6), max_groups=2, limit="ranked")
    planned_ = plan(ss.ProfileSpec("8", "item", domain_of, groups=groups), items=3000, runs=60, method="inverse")
    simulated = planned_["distinct"].simulated
    assert simulated is not None
    assert 0.7 < simulated / planned_["distinct"].sd < 1.4


def test_interval_of_a_group_is_as_wide_as_planned(run: Run, key: Path) -> None:
    found = asked(run, *ITEM, "--group-items", "3000", "--mean", "2", "--groups", "3", "--max-groups", "2")
    block = 'unit = "item"\nwindow = "1d"\ngroup_by = "g"\ngroups = ["a", "b", "c"]\nmax_groups = 2\n'
    sketch = ss.Sketch.create(configured(block).sketches[0].spec, key=ss.Key.load(key))
    items = [str(number % 3000) for number in range(6000)]
    sketch.update(ss.Pairs(["a"] * len(items), items))
    distinct = sketch.seal().group("a").profile().distinct
    assert (distinct.high - distinct.low) / 2 == pytest.approx(1.96 * found["numbers"]["distinct"]["sd"], rel=0.3)


def test_the_table_says_memory_losses_and_promises(run: Run) -> None:
    text = run("plan", *ITEM, "--items", "9000", "--groups", "9", "--max-groups", "2", *HOPPING, "--parts", "4").out
    for words in (
        "an item loses at most 1 to readers",
        "snapshots of the 7 busy windows write 3.9 MiB",
        "9 groups: the numbers above are those of a group of 1,000 items",
        "Memory of the counters in one partition: 144.0 KiB a window, 1.3 MiB all windows that may be open at once (9)",
        "6.3 MiB for 4 partitions",
        "in all windows that hold it",
        "it pays for 2 of them",
        "against other payloads of the same item, in 4 groups: 4/2 of every number",
        "over 7 overlapping windows that have a part in one day: an item loses at most 7",
        "assumed: an item has events in at most 2 groups of one window",
    ):
        assert words in text, words


def test_groups_of_a_file_and_a_target(run: Run, tmp_path: Path) -> None:
    (tmp_path / "campaigns.txt").write_text("spring\nsummer\nbrand\n")
    ask = ("--unit", "event", "--epsilon", "1", "--open", "--group-items", "50000", "--groups", "campaigns.txt")
    ask = (*ask, "--number", "at_least.3")
    found = asked(run, *ask, "--target", "0.02")
    assert found["groups"] == 3
    assert found["numbers"]["at_least.3"]["relative"] <= 0.02
    assert found["memory"]["window"] == 3 * found["slots"] * 4
    half = asked(run, *ask, "--slots", str(found["slots"] // 2))
    assert half["numbers"]["at_least.3"]["relative"] > 0.02


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--items", "9e6", "--groups", "100000"), "100,000 groups, at most 10,000 .* 8,192 slots each .* 3.1 GiB"),
        (("--items", "9e6", "--groups", "10000", "--other-group"), "groups has 10,001 groups, at most 10,000"),
        (("--items", "9", "--groups", "0"), "--groups must be at least one group"),
        (("--items", "9", "--groups", "a,a"), "groups names 'a' twice"),
        (("--items", "9", "--groups", "nowhere.txt"), "cannot read --groups .a number, names between commas"),
        (("--items", "9", "--groups", "10"), "less than one item a group; give --group-items"),
        (("--groups", "10"), "either --items, or with --groups --group-items"),
        ((), "either --items, or with --groups --group-items"),
        (("--items", "9", "--groups", "2", "--group-items", "3"), "either --items, or"),
        (("--items", "9", "--other-group"), "belong to --groups: give it too"),
        (("--items", "9", "--max-groups", "2"), "belong to --groups: give it too"),
        (
            ("--items", "9", "--groups", "2", "--max-groups", "1"),
            "max_groups and group_of_item belong to unit = 'item'",
        ),
        (("--items", "9", "--groups", "2", "--unit", "item", "--max-groups", "3"), "max_groups"),
        (("--items", "9", "--groups", "2", "--unit", "item", "--max-groups", "2", "--group-of-item"), "exclude each"),
        (("--items", "9", "--every", "1d"), "belong to --window: give it too"),
        (("--items", "3000", "--window", "7d", "--every", "8d"), "every must not be longer than the window"),
        (("--items", "3000", "--window", "7s"), "a window is"),
        (("--items", "3000", "--window", "7d", "--lateness", "soon"), "--lateness must be a number with a unit"),
        (("--items", "3000", "--window", "7d", "--timezone", "Mars"), "unknown time zone 'Mars'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(run: Run, options: tuple[str, ...], words: str) -> None:
    result = run("plan", *ONE, *options)
    assert (result.code, result.out) == (2, "")
    assert re.search(words, result.complaint), result.complaint


INPUT = TOPIC[TOPIC.index("[input]") :].replace('topic = "events"\nformat = "json"', 'file = "events.jsonl"')
INPUT = INPUT[: INPUT.index("partitioned_by")] + '[key]\nfile = "key"\n'


@pytest.mark.parametrize(
    ("options", "losses", "declared"),
    [
        (("--groups", "a,b", "--other-group"), 3, {"groups": ["a", "b"], "other_group": True}),
        (("--groups", "9", "--max-groups", "2"), 2, {"groups": "groups.txt", "max_groups": 2}),
        (
            ("--groups", "campaigns.txt", "--max-groups", "3", "--group-limit", "ranked", "--group-by", "ad.campaign"),
            3,
            {"groups": "campaigns.txt", "max_groups": 3, "group_limit": "ranked", "group_by": "ad.campaign"},
        ),
        (("--groups", "a,b", "--group-of-item"), 1, {"groups": ["a", "b"], "group_of_item": True}),
        (("--groups", "a,b", "--unit", "event"), 1, {"groups": ["a", "b"]}),
    ],
)
def test_size_finds_groups_that_all_reach_the_error_within_one_loss(
    run: Run, key: Path, tmp_path: Path, options: tuple[str, ...], losses: int, declared: dict[str, Any]
) -> None:
    """The epsilons are those of all groups in which an item counts; the block is a configuration of that loss."""
    assert key.exists()
    names = "".join(f"c{i}\n" for i in range(9))
    for file in ("groups.txt", "campaigns.txt"):
        (tmp_path / file).write_text(names)
    result = run("size", "--group-items", "300000", "--error", "0.1", "--number", "distinct", *options)
    assert (result.code, result.err) == (0, "")
    block = result.out[: result.out.index("\n\n")]
    table = tomllib.loads(block)["sketch"][0]
    assert {name: table[name] for name in declared} == declared
    assert (Fraction(table["epsilon"]), Fraction(table["epsilon_publish"])) == (
        Fraction(4, losses),
        Fraction(1, losses),
    )
    config = Config.parse(INPUT + block, tmp_path / "c.toml", {})
    made = config.sketches[0].spec
    assert initial_ledger(made).loss() == 1
    assert "is at most epsilon 1 against readers" in result.out
    found = json.loads(
        run(
            "size", "--group-items", "300000", "--error", "0.1", "--number", "distinct", *options, "--format", "json"
        ).out
    )
    assert found["plan"]["numbers"]["distinct"]["relative"] <= 0.1
    assert found["memory"] == config.sketches[0].window_bytes(1, checked=True)


def test_size_with_a_ranking_answers_where_all_groups_are_too_dear(run: Run) -> None:
    asked_for = ("--items", "1e6", "--groups", "20", "--error", "0.2")
    assert "the best is" in run("size", *asked_for).complaint
    result = run("size", *asked_for, "--max-groups", "2", "--group-limit", "ranked")
    assert result.code == 0
    assert "for 50,000 items in one of 20 groups" in result.out
    assert "belong to --groups" in run("size", "--items", "9", "--group-limit", "ranked").complaint
