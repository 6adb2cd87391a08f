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
from sketchstream.privacy.guarantee import DAY_MS, Beside, Context, Guarantee, duration
from sketchstream.privacy.ledger import LayerEntry, Ledger, Promise
from sketchstream.spec import NoPrivacyWarning

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
    promise = Promise.of(spec.publish, spec.epsilon_publish, spec.intrusion)
    return Ledger.create(spec.unit, spec.max_weight, layer, promise)


def guarantee(unit: str = "event", context: Context | None = None, **more: Any) -> Guarantee:
    spec = spec_of(unit, **more)
    return Guarantee.of(spec, ledger_of(spec), context)


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
    assert (found.published, found.total, found.kept) == (F(1, 10), F(24, 10), F(72))
    assert found.total_zcdp == F(24, 200)
    unkeyed = Context(window_ms=HOUR, published_ms=30 * DAY_MS, partitions=16, keyed=False)
    assert guarantee("item", unkeyed, epsilon="1/10").total == F(24 * 16, 10)
    assert "each at full cost" in str(guarantee("item", unkeyed))
    moved = Context(window_ms=HOUR, published_ms=30 * DAY_MS, partitions=16, counts=2)
    assert guarantee("item", moved, epsilon="1/10").total == F(48, 10)
    assert "may lie in 2 of them and pays in each" in str(guarantee("item", moved))
    assert guarantee("item", Context(window_ms=HOUR, partitions=16, counts=3), epsilon="1/10").total == F(72, 10)
    assert guarantee("item", Context(counts=3), epsilon="1/10").total == F(3, 10)
    assert "over 3 partitions: an item loses at most 3/10" in str(guarantee("item", Context(counts=3), epsilon="1/10"))
    assert guarantee("event", moved, epsilon="1/10").total == F(1, 10)
    day = Beside("day", F(1), F(1), DAY_MS)
    beside = Context(window_ms=HOUR, published_ms=30 * DAY_MS, partitions=16, beside=(day,))
    assert guarantee("item", beside, epsilon="1/10").total == F(34, 10)
    assert guarantee("item", beside, epsilon="1/10").kept == F(102)
    assert guarantee("item", Context(window_ms=HOUR), epsilon="1/10").kept == math.inf
    assert "every window adds its loss" in str(guarantee("item", Context(window_ms=HOUR)))


def test_an_event_lies_in_one_window_of_each_sketch() -> None:
    spec = spec_of("event")
    other = Beside.of("day", ledger_of(spec_of("event", epsilon="1/4")), DAY_MS)
    found = Guarantee.of(spec, ledger_of(spec), Context(window_ms=HOUR, beside=(other,)))
    assert (found.total, found.kept) == (F(5, 4), F(5, 4))
    item = Beside.of("people", ledger_of(spec_of("item", epsilon="2", epsilon_publish="1/2")), DAY_MS)
    assert (item.event, item.item) == (F(1, 2), F(1, 2))
    assert other.item == math.inf


def test_zcdp_is_quoted_where_it_is_lower() -> None:
    text = str(guarantee("item", Context(window_ms=60_000, published_ms=DAY_MS), epsilon="1/10"))
    assert "by zCDP" in text
    assert "by zCDP" not in str(guarantee("item", Context(window_ms=HOUR), epsilon="1/10"))


def test_absurd_epsilons_are_called_no_privacy() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoPrivacyWarning)
        spec = spec_of(epsilon="11", epsilon_publish="1")
    found = Guarantee.of(spec, ledger_of(spec))
    assert found.to_dict()["no_privacy"] is True
    assert str(found).startswith("NO PRIVACY")
    assert not guarantee().no_privacy
    worn = ledger_of(spec_of(publish="state", intrusion=False))
    for _ in range(10):
        worn = worn.charge_release(F(1))
    assert Guarantee.of(spec_of(publish="state", intrusion=False), worn).no_privacy


def test_stores_diagnostics_and_copies_are_listed() -> None:
    text = str(guarantee(context=Context(store="kafka", diagnostics="exact", dead_letters="payload")))
    assert "until it is compacted" in text
    assert "exact counts of invalid" in text
    assert "of updates (every event that was counted)" in text
    assert "hold raw payloads" in text
    assert "plain files of mode 0600" in str(guarantee(context=Context(store="dir")))
    assert "superseded ones are overwritten, but journals" in str(guarantee(context=Context(store="dir")))
    spec = spec_of()
    assert "copies of the open state were written" in str(Guarantee.of(spec, ledger_of(spec).record_copy()))


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
        assert f"find the slot of any guessed item {words}" in str(Guarantee.of(spec, ledger_of(spec)))
    assert "whoever has the hash key" not in str(guarantee()), "a closed domain of ids needs no key"
