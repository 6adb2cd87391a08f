"""The statement: numbers filled in, nothing claimed that is not so, everything unprotected said.

In: specs, ledgers, deployments. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import json
import math
import warnings
from fractions import Fraction
from typing import Any

import pytest

import sketchstream as ss
from sketchstream.kinds import initial_ledger
from sketchstream.kinds.profile.statement import statement
from sketchstream.privacy.deployments.guarantee import Guarantee, overlapping
from sketchstream.privacy.deployments.surroundings import DAY_MS, Context, OtherSketch, duration
from sketchstream.privacy.ledgers.ledger import Ledger
from sketchstream.privacy.ledgers.loss_texts import loss_words
from sketchstream.privacy.ledgers.sketch_history import Promise
from sketchstream.privacy.losses.composition import Losses
from sketchstream.privacy.losses.history import LayerEntry
from sketchstream.privacy.losses.loss_numbers import loss_number
from sketchstream.query.words import promise
from sketchstream.spec import WARNING, WARNING_OF_COPIES, NoPrivacyWarning

F = Fraction
HOUR = 3_600_000


def spec_of(unit: str = "event", **more: Any) -> ss.ProfileSpec:
    given: dict[str, Any] = {"epsilon": "1", "unit": unit, "domain": ss.ClosedDomain(size=8), **more}
    if unit == "item":
        given.setdefault("modulus", 16)
    return ss.ProfileSpec(**given)


def ledger_of(spec: ss.ProfileSpec) -> Ledger:
    law = "discrete-laplace" if spec.unit == "event" else "randomized-response"
    layer = LayerEntry(bytes(16), law, spec.epsilon, spec.max_weight)
    promise = Promise.of(spec.publish, spec.seal_cost, spec.intrusion)
    return Ledger.create(spec.unit, spec.max_weight, layer, promise)


def guarantee(unit: str = "event", context: Context | None = None, **more: Any) -> Guarantee:
    spec = spec_of(unit, **more)
    return statement(spec, ledger_of(spec), context)


def test_events_pay_the_maximum_and_items_the_sum_of_look_and_publication() -> None:
    event = guarantee("event", epsilon_publish="1/2").to_dict()
    item = guarantee("item", epsilon_publish="1/2").to_dict()
    assert (event["published"], event["published_and_one_copy"]) == ("1/2", "1")
    assert (item["published"], item["published_and_one_copy"]) == ("1/2", "3/2")
    assert event["swap_factor"] == item["swap_factor"] == 2
    assert event["relation"] == "zero-out"
    assert event["delta"] == 0


@pytest.mark.parametrize("unit", ["event", "item"])
def test_a_bare_publication_says_that_a_copy_voids_the_guarantee(unit: str) -> None:
    found = guarantee(unit, publish="state", intrusion=False)
    assert found.to_dict()["published_and_one_copy"] == "unlimited"
    text = str(found)
    assert f"void for {unit}s after any copy of the open state" in text
    assert "the bare state is published" in text


def test_every_statement_says_swaps_cost_twice_and_what_is_not_protected() -> None:
    for unit in ("event", "item"):
        text = str(guarantee(unit))
        for words in (
            "twice every number",
            "envelopes",
            "in flight",
            "two copies of one open state",
            "an intruder who stays",
            "dead letters",
            "duplicates upstream",
            "AES-256",
            "records that the topic still holds",
            "not chosen from the data",
        ):
            assert words in text
    assert "a person with m events" in str(guarantee("event"))
    assert "person" not in str(guarantee("item"))


@pytest.mark.parametrize(
    ("retention", "words"),
    [
        (7 * DAY_MS, "keeps them for 7 days, the window is 1 hour, so pan-privacy buys nothing"),
        (math.inf, "keeps them for ever, the window is 1 hour, so pan-privacy buys nothing"),
        (1_800_000, "for 30 minutes, less than the window of 1 hour"),
        (None, "unless its retention is shorter than the window"),
    ],
)
def test_retention_is_compared_with_the_window(retention: float | None, words: str) -> None:
    assert words in str(guarantee(context=Context(window_ms=HOUR, retention_ms=retention)))


def test_items_add_over_windows_sketches_and_partitions_where_they_are_not_keyed() -> None:
    hourly = Context(window_ms=HOUR, published_ms=30 * DAY_MS, partitions=16)
    found = guarantee("item", hourly, epsilon="1/10")
    assert (found.published, found.total.pure, found.total_kept.pure) == (F(1, 10), F(24, 10), F(72))
    assert found.total.rho == F(24, 200)
    unkeyed = Context(window_ms=HOUR, published_ms=30 * DAY_MS, partitions=16, keyed=False)
    assert guarantee("item", unkeyed, epsilon="1/10").total.pure == F(24 * 16, 10)
    assert "each at full cost" in str(guarantee("item", unkeyed))
    moved = Context(window_ms=HOUR, published_ms=30 * DAY_MS, partitions=16, counts=2)
    assert guarantee("item", moved, epsilon="1/10").total.pure == F(48, 10)
    assert "may lie in 2 of them and pays in each" in str(guarantee("item", moved))
    assert guarantee("item", Context(window_ms=HOUR, partitions=16, counts=3), epsilon="1/10").total.pure == F(72, 10)
    assert guarantee("item", Context(counts=3), epsilon="1/10").total.pure == F(3, 10)
    assert "over 3 partitions: an item loses at most 3/10" in str(guarantee("item", Context(counts=3), epsilon="1/10"))
    assert guarantee("event", moved, epsilon="1/10").total.pure == F(1, 10)
    day = OtherSketch("day", Losses(F(1), F(1, 2)), Losses(F(1), F(1, 2)), DAY_MS)
    beside = Context(window_ms=HOUR, published_ms=30 * DAY_MS, partitions=16, others=(day,))
    assert guarantee("item", beside, epsilon="1/10").total.pure == F(34, 10)
    assert guarantee("item", beside, epsilon="1/10").total_kept.pure == F(102)
    assert guarantee("item", Context(window_ms=HOUR), epsilon="1/10").total_kept.pure == math.inf
    assert "every window adds its loss" in str(guarantee("item", Context(window_ms=HOUR)))


def test_an_event_lies_in_one_window_of_each_sketch() -> None:
    spec = spec_of("event")
    other = OtherSketch.of("day", ledger_of(spec_of("event", epsilon="1/4")), DAY_MS)
    found = statement(spec, ledger_of(spec), Context(window_ms=HOUR, others=(other,)))
    assert (found.total.pure, found.total_kept.pure) == (F(5, 4), F(5, 4))
    item = OtherSketch.of("people", ledger_of(spec_of("item", epsilon="2", epsilon_publish="1/2")), DAY_MS)
    assert (item.event.pure, item.item.pure) == (F(1, 2), F(1, 2))
    assert other.item.pure == math.inf


def test_zcdp_is_quoted_where_it_is_lower() -> None:
    text = str(guarantee("item", Context(window_ms=60_000, published_ms=DAY_MS), epsilon="1/10"))
    assert "by zCDP" in text
    assert "by zCDP" not in str(guarantee("item", Context(window_ms=HOUR), epsilon="1/10"))


def test_absurd_epsilons_are_called_no_privacy() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoPrivacyWarning)
        spec = spec_of(epsilon="11", epsilon_publish="1")
    found = statement(spec, ledger_of(spec))
    said = found.to_dict()
    assert (said["no_privacy"], said["no_privacy_with_copy"]) == (False, True)
    assert said["warning"] == WARNING_OF_COPIES
    assert str(found).startswith("NO PRIVACY against somebody who also copies the open state")
    assert found.summary.startswith("NO PRIVACY against somebody")
    assert not guarantee().no_privacy
    assert guarantee().warning is None
    with pytest.warns(NoPrivacyWarning, match="protects nobody: NO PRIVACY$"):
        loud = spec_of(epsilon="11", epsilon_publish="12")
    assert statement(loud, ledger_of(loud)).to_dict()["warning"] == WARNING
    worn = ledger_of(spec_of(publish="state", intrusion=False))
    for _ in range(10):
        worn = worn.charge_release(F(1))
    assert statement(spec_of(publish="state", intrusion=False), worn).no_privacy


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("epsilon", ["1/2", "4", "6", "11"])
@pytest.mark.parametrize("publish", ["1/3", "1", "4", "12"])
def test_no_privacy_is_said_about_the_loss_that_it_is_true_of(number: int, epsilon: str, publish: str) -> None:
    """Readers of groups may lose little where somebody who also copies the open state learns everything."""
    groups = None if number == 1 else ss.Groups([str(i) for i in range(number)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NoPrivacyWarning)
        spec = ss.ProfileSpec(
            epsilon, "item", ss.ClosedDomain(size=9), modulus=8, epsilon_publish=publish, groups=groups
        )
    found = statement(spec, initial_ledger(spec))
    said = found.to_dict()
    readers, thief = number * min(F(epsilon), F(publish)), number * (F(epsilon) + F(publish))
    assert (found.published, found.published_and_one_copy) == (readers, thief)
    assert (said["no_privacy"], said["no_privacy_with_copy"]) == (readers > 10, thief > 10)
    assert said["warning"] == (WARNING if readers > 10 else WARNING_OF_COPIES if thief > 10 else None)
    assert bool(caught) == (number * max(F(epsilon), F(publish)) > 10)
    for one in caught:
        assert ("who also copies" in str(one.message)) == (readers <= 10)
    sentence = promise(said)
    assert ("factor of at most" in sentence) == (readers <= 10)
    assert ("NO PRIVACY against somebody" in sentence) == (readers <= 10 < thief)


def test_stores_diagnostics_and_copies_are_listed() -> None:
    text = str(guarantee(context=Context(store="kafka", diagnostics="exact", dead_letters="payload")))
    assert "until it is compacted" in text
    assert "exact counts of invalid" in text
    assert "of updates (every event that was counted)" in text
    assert "hold raw payloads" in text
    assert "plain files of mode 0600" in str(guarantee(context=Context(store="dir")))
    assert "superseded ones are overwritten, but journals" in str(guarantee(context=Context(store="dir")))
    spec = spec_of()
    assert "copies of the open state were written" in str(statement(spec, ledger_of(spec).record_copy()))


def test_the_statement_is_plain_data() -> None:
    for unit in ("event", "item"):
        found = guarantee(unit).to_dict()
        assert json.loads(json.dumps(found)) == found


def test_durations_read_well() -> None:
    assert [duration(x) for x in (1000, 90_000, HOUR, 1.5 * DAY_MS, 7, math.inf)] == [
        "1 second",
        "1.5 minutes",
        "1 hour",
        "1.5 days",
        "7 ms",
        "for ever",
    ]


def test_what_the_owner_of_the_hash_key_can_look_up_is_said() -> None:
    domain = ss.OpenDomain(slots=64, levels=2)
    for publish, words in (
        ({}, "in a copied open state; published histograms do not name slots"),
        ({"publish": "state", "intrusion": False}, "in every published state, and in a copied open one"),
    ):
        spec = ss.ProfileSpec(epsilon="1", domain=domain, **publish)
        assert f"find the slot of any guessed item {words}" in str(statement(spec, ledger_of(spec)))
    assert "whoever has the hash key" not in str(guarantee()), "a closed domain of ids needs no key"


def grouped(unit: str, context: Context | None = None, **more: Any) -> Guarantee:
    """Three groups and one for all others; epsilon 1, published at 1/2."""
    promise = {name: more.pop(name) for name in ("max_groups", "of_item") if name in more}
    spec = spec_of(unit, epsilon_publish="1/2", groups=ss.Groups(["a", "b", "c"], other=True, **promise), **more)
    return statement(spec, initial_ledger(spec), context)


@pytest.mark.parametrize(
    ("unit", "promise", "pays", "sentence"),
    [
        ("event", {}, 1, "an event is in one group and pays for that one: to change its group is two events"),
        ("item", {}, 4, "in all of its 4 groups; it pays for 4 of them"),
        (
            "item",
            {"max_groups": 1},
            1,
            "it pays for one group, which its source promises to be the most that it has events in (max_groups); "
            "against other payloads of the same item, in 2 groups: 2/1 of every number",
        ),
        ("item", {"max_groups": 3}, 3, "it pays for 3 of them, which its source promises to be the most that it has"),
        ("item", {"max_groups": 3}, 3, "against other payloads of the same item, in 4 groups: 4/3 of every number"),
        ("item", {"of_item": True}, 1, "its group follows from the item, as its source promises: it pays for one"),
    ],
)
def test_groups_cost_what_the_theory_says_and_the_statement_says_so(
    unit: str, promise: dict[str, Any], pays: int, sentence: str
) -> None:
    found = grouped(unit, **promise)
    # one group: 1/2 to readers; with a copy max(1, 1/2) for an event, 1 + 1/2 for an item
    copied = pays * (F(1) if unit == "event" else F(3, 2))
    assert (found.published, found.published_and_one_copy) == (F(pays, 2), copied)
    assert sentence in found.protects[0]
    assert any(said.startswith("its group: part of a record's payload") for said in found.protects)
    assert any(said.startswith("which groups had records: all groups of a window exist") for said in found.protects)
    assert "the list of groups was not chosen from the data" in found.assumes
    broken = sum("pays for each group that it was in" in said for said in found.assumes)
    assert broken == bool(promise), "a promise that nothing checks says what an item pays that breaks it"
    assert ("other payloads" in found.protects[0]) == ("max_groups" in promise)


def test_a_filter_is_protected_with_the_record_and_no_groups_are_mentioned_without_any() -> None:
    spec = spec_of(where={"country": ["DE"]})
    found = statement(spec, initial_ledger(spec))
    assert "the fields of where: part of a record's payload, and protected with it" in found.protects
    bare = statement(spec_of(), initial_ledger(spec_of()))
    assert not [said for said in bare.protects + bare.assumes if "group" in said or "where" in said]


@pytest.mark.parametrize(("unit", "windows", "published", "copied"), [("event", 7, "1/2", "1"), ("item", 9, "2", "6")])
def test_a_copy_of_the_machine_takes_all_windows_that_overlap(
    unit: str, windows: int, published: str, copied: str
) -> None:
    """Windows of a week every day; one event is in 7, a day that clocks change might touch 9."""
    found = grouped(unit, Context(window_ms=7 * DAY_MS, overlap=7, a_day=9))
    one = loss_words(F(published))
    assert (loss_number(found.published), loss_number(found.published_and_one_copy)) == (published, copied)
    assert found.seen[0].startswith("someone who sees everything that one window of this sketch publishes: ")
    assert found.seen[0].endswith(f"loses at most {one}")
    assert found.seen[1].startswith("someone who once copied the open state of one window of this sketch, ")
    assert found.seen[1].endswith(f"and sees everything that this window publishes: an {unit} loses at most {copied}")
    assert found.total.pure == windows * F(published)
    all_of_them = f"all these windows of this sketch ({windows}), and sees everything that they publish: an {unit}"
    assert any(all_of_them in said and said.endswith(f"at most {windows * int(copied)}") for said in found.seen)
    tumbling = grouped(unit, Context(window_ms=7 * DAY_MS))
    assert "someone who once copied this machine's open state" in tumbling.seen[1]
    assert not [said for said in tumbling.seen if "all these windows" in said]


def test_a_summary_of_overlapping_windows_says_that_it_is_for_one() -> None:
    assert overlapping("event", 1) == ""
    assert overlapping("event", 7) == (
        " This is for one window: 7 overlapping ones hold an event, and their losses add."
    )
    assert "an item that is active at one instant" in overlapping("item", 7)


def test_a_total_without_a_bound_has_none_by_zcdp_either() -> None:
    free = Context(window_ms=HOUR, others=(OtherSketch("other", Losses.unlimited(), Losses.unlimited(), HOUR),))
    some = Context(
        window_ms=HOUR, others=(OtherSketch("other", Losses(F(9), F(1, 1000)), Losses(F(9), F(1, 1000)), HOUR),)
    )
    (line,) = (one for one in str(guarantee("event", free)).splitlines() if "over 2 sketches" in one)
    assert line.endswith("over 2 sketches: no bound on what an event loses")
    assert "by zCDP" in str(guarantee("event", some))
