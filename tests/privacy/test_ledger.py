"""Ledgers as their callers use them: promises, budgets, merges, plain data, zCDP, tables.

In: hand-made ledgers. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchstream.errors import BudgetError, FormatError, MergeError, SealedError
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.privacy.ledgers.ledger import Ledger, View
from sketchstream.privacy.ledgers.sketch_history import MAX_DEPTH, Promise
from sketchstream.privacy.losses.history import History, LayerEntry
from sketchstream.privacy.losses.loss_numbers import loss_number
from sketchstream.spec import ClosedDomain, OpenDomain

F = Fraction
LAW = {"event": "discrete-laplace", "item": "randomized-response"}
PROMISES = [
    Promise("histogram", F(1)),
    Promise("histogram", F(1, 3)),
    Promise("fresh", F(7, 10)),
    Promise("bare"),
]


def fresh(
    unit: str = "event", promise: Promise = PROMISES[0], budget: Fraction | None = None, epsilon: str = "1"
) -> Ledger:
    return Ledger.create(unit, 1, LayerEntry(bytes(16), LAW[unit], F(epsilon)), promise, budget)


# The table of losses that specs and documentation print.


@pytest.mark.parametrize(
    ("unit", "promise", "releases", "loss", "with_look"),
    [
        ("event", Promise("histogram", F(1)), [], F(1), F(1)),
        ("event", Promise("histogram", F(7, 10)), [], F(7, 10), F(1)),
        ("event", Promise("fresh", F(7, 10)), [], F(7, 10), F(1)),
        ("event", Promise("bare"), [], F(1), math.inf),
        ("event", Promise("bare"), [F(1, 2)], F(3, 2), math.inf),
        ("event", Promise("histogram", F(7, 10)), [F(1, 2)], F(1), F(3, 2)),
        ("item", Promise("histogram", F(7, 10)), [], F(7, 10), F(17, 10)),
        ("item", Promise("fresh", F(7, 10)), [], F(7, 10), F(17, 10)),
        ("item", Promise("bare"), [], F(1), math.inf),
        ("item", Promise("bare"), [F(1, 2)], F(3, 2), math.inf),
        ("item", Promise("histogram", F(2)), [F(1, 2)], F(3, 2), F(7, 2)),
        ("item", Promise("histogram", F(7, 10)), [F(1, 2)], F(6, 5), F(11, 5)),
    ],
)
def test_losses_of_simple_lives(
    unit: str, promise: Promise, releases: list[Fraction], loss: Fraction, with_look: Fraction | float
) -> None:
    ledger = fresh(unit, promise)
    for cost in releases:
        ledger = ledger.charge_release(cost)
    assert ledger.loss() == loss
    assert ledger.loss(intrusion=True) == with_look
    sealed = ledger.charge_publication()
    assert sealed.loss() == loss
    assert sealed.loss(intrusion=True) == with_look
    assert type(ledger.loss()) is Fraction


@pytest.mark.parametrize("unit", ["event", "item"])
def test_looks_and_publication_cost_the_maximum_for_events_and_the_sum_for_items(unit: str) -> None:
    ledger = fresh(unit, Promise("histogram", F(7, 10))).record_look().charge_release(F(1, 5)).charge_publication()
    assert ledger.loss() == (F(1) if unit == "event" else F(19, 10))


@pytest.mark.parametrize("unit", ["event", "item"])
def test_two_looks_are_unlimited_and_a_fresh_layer_protects_from_then_on(unit: str) -> None:
    looked = fresh(unit).record_look()
    assert looked.loss(intrusion=True) == looked.loss(intrusion=True, from_now=True) == math.inf
    refreshed = looked.add_layer(LayerEntry(b"2" * 16, LAW[unit], F(1, 2)))
    assert refreshed.loss(intrusion=True) == math.inf  # one before the known look is beyond help
    assert refreshed.loss(intrusion=True, from_now=True) == (F(1) if unit == "event" else F(5, 2))
    assert refreshed.record_look().loss() == (F(1) if unit == "event" else F(5, 2))


def test_copies_are_noted_without_being_counted_as_seen() -> None:
    ledger = fresh().record_copy().record_copy().record_copy()
    assert (ledger.copies, ledger.loss(), ledger.loss(copies=True)) == (2, F(1), math.inf)
    assert fresh().record_copy().loss(copies=True) == F(1)
    assert ledger.published().copies == 0


# Budgets.


@pytest.mark.parametrize("unit", ["event", "item"])
def test_a_release_beyond_the_budget_is_refused_and_says_what_is_left(unit: str) -> None:
    ledger = fresh(unit, Promise("bare"), F(2)).charge_release(F(3, 4))
    with pytest.raises(
        BudgetError, match=r"of epsilon 1/2 .* from epsilon 7/4 to 9/4 .* at most 1/4 can be released now"
    ) as caught:
        ledger.charge_release(F(1, 2))
    assert (caught.value.asked, caught.value.spent, caught.value.limit) == (F(1, 2), F(7, 4), F(2))
    assert ledger.charge_release(F(1, 4)).loss() == 2
    assert ledger.charge_release(F(1, 4)).affordable() == 0


def test_the_promised_publication_counts_from_the_first_moment() -> None:
    with pytest.raises(BudgetError, match="budget is 1/2"):
        fresh(promise=Promise("histogram", F(1)), budget=F(1, 2))
    ledger = fresh(promise=Promise("bare"), budget=F(6, 5))
    assert ledger.affordable() == F(1, 5)
    with pytest.raises(BudgetError):  # the release alone would cost 1
        ledger.charge_release(F(1))
    assert fresh(promise=Promise("nothing"), budget=F(6, 5)).charge_release(F(1)).loss() == 1


def test_for_events_one_release_is_paid_by_layer_and_publication_already() -> None:
    ledger = fresh(promise=Promise("histogram", F(1)), budget=F(1))
    assert ledger.affordable() == math.inf
    once = ledger.charge_release(F(3))
    assert once.loss() == 1
    assert once.affordable() == 0


def test_a_refused_release_has_charged_nothing() -> None:
    ledger = fresh(promise=Promise("bare"), budget=F(1))
    before = ledger.to_dict()
    with pytest.raises(BudgetError):
        ledger.charge_release(F(1, 100))
    assert ledger.to_dict() == before


def test_looks_can_use_the_budget_of_the_publication_up() -> None:
    ledger = fresh("item", Promise("histogram", F(1)), F(1)).record_look()
    assert ledger.loss() == 2
    with pytest.raises(BudgetError, match="looks at the open state") as caught:
        ledger.charge_publication()
    assert caught.value.spent == 1
    assert fresh("event", Promise("histogram", F(1)), F(1)).record_look().charge_publication().sealed


@given(st.data())
def test_what_is_affordable_is_exactly_the_largest_release_that_passes(data: st.DataObject) -> None:
    costs = st.fractions(min_value=F(1, 20), max_value=F(2), max_denominator=20)
    unit = data.draw(st.sampled_from(["event", "item"]))
    ledger = fresh(unit, data.draw(st.sampled_from(PROMISES)))
    for step in data.draw(st.lists(st.sampled_from(["release", "look", "layer"]), max_size=4)):
        if step == "release":
            ledger = ledger.charge_release(data.draw(costs))
        elif step == "look":
            ledger = ledger.record_look()
        else:
            ledger = ledger.add_layer(LayerEntry(bytes(16), LAW[unit], data.draw(costs)))
    ledger = replace(ledger, budget=data.draw(costs) * 2)
    room = ledger.affordable()
    assert ledger.budget is not None
    if room == math.inf:
        assert ledger.charge_release(F(10**9)).loss() <= ledger.budget
        return
    assert isinstance(room, Fraction)
    if room > 0:
        assert ledger.charge_release(room).loss() <= ledger.budget
    with pytest.raises(BudgetError):
        ledger.charge_release(room + F(1, 10**9))


# Order of life.


def test_nothing_follows_the_seal() -> None:
    sealed = fresh().charge_publication()
    for step in (
        lambda: sealed.charge_release(F(1, 10)),
        sealed.charge_publication,
        sealed.record_look,
        sealed.record_copy,
        lambda: sealed.add_layer(LayerEntry(bytes(16), LAW["event"], F(1))),
    ):
        with pytest.raises(SealedError, match="its state is gone"):
            step()


def test_a_promise_follows_the_spec() -> None:
    histogram = ProfileSpec(epsilon="1", domain=ClosedDomain(size=4), epsilon_publish="1/2")
    state = ProfileSpec(epsilon="1", domain=ClosedDomain(size=4), publish="state", intrusion=True)
    bare = ProfileSpec(epsilon="1", domain=ClosedDomain(size=4), publish="state", intrusion=False)
    made = [Promise.of(s.publish, s.seal_cost, s.intrusion) for s in (histogram, state, bare)]
    assert made == [Promise("histogram", F(1, 2)), Promise("fresh", F(1)), Promise("bare")]


# Merging.


def test_a_merge_of_open_sketches_costs_each_event_what_its_cheapest_layer_hides() -> None:
    left = fresh(promise=Promise("bare")).charge_release(F(1, 2))
    right = fresh(promise=Promise("bare"), epsilon="1/4")
    merged = Ledger.merge([left, right])
    assert [(gap.part, gap.after, gap.loss) for gap in merged.loss_by_gap()] == [
        ((), 0, F(1, 4)),
        ((0,), 1, F(3, 4)),
        ((0,), 2, F(1, 4)),
        ((1,), 1, F(1, 4)),
    ]
    assert merged.loss() == F(3, 4)
    assert not merged.sealed
    later = merged.charge_release(F(1, 10))
    assert [gap.loss for gap in later.loss_by_gap() if gap.part == ()] == [F(1, 4), F(7, 20)]


def test_a_merge_of_published_states_sums_over_parts_for_items_and_not_for_events() -> None:
    for unit, loss in (("event", F(1)), ("item", F(2))):
        parts = [fresh(unit, Promise("bare")).charge_publication() for _ in range(2)]
        merged = Ledger.merge(parts)
        assert merged.sealed
        assert merged.loss() == loss
        assert merged.loss(intrusion=True) == math.inf  # one of the parts may have been seen while it was open


def test_ledgers_that_differ_are_not_merged() -> None:
    with pytest.raises(MergeError) as caught:
        Ledger.merge([fresh(), fresh(promise=Promise("bare")).charge_publication()])
    assert set(caught.value.fields) == {"promised", "sealed"}


# Plain data.


def rich() -> Ledger:
    left = fresh(promise=Promise("bare"), budget=F(9)).charge_release(F(1, 7)).record_copy()
    right = fresh(promise=Promise("bare")).record_look().add_layer(LayerEntry(b"x" * 16, LAW["event"], F(2)))
    return Ledger.merge([left, right]).charge_release(F(1, 3))


def test_plain_data_survive_json_and_msgpack() -> None:
    ledger = rich()
    assert Ledger.from_dict(json.loads(json.dumps(ledger.to_dict()))) == ledger
    assert Ledger.from_dict(msgpack.unpackb(msgpack.packb(ledger.to_dict()))) == ledger
    sealed = ledger.charge_publication()
    assert Ledger.from_dict(sealed.to_dict()) == sealed


def test_damaged_plain_data_are_refused_with_one_kind_of_error() -> None:
    whole = rich().to_dict()
    rng = random.Random(31)
    junk: list[Any] = [None, -1, 0, "x", "1/0", "-1/2", "0", [], {}, 1 << 70, True, "9" * 500, ["release"], b"\x00"]
    refused = changed = 0
    for _ in range(1500):
        data = copy.deepcopy(whole)
        here: Any = data
        while True:
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))
            key = rng.choice(keys)
            if isinstance(here[key], (dict, list)) and here[key] and rng.random() < 0.8:
                here = here[key]
                continue
            if rng.random() < 0.3 and isinstance(here, dict):
                del here[key]
            else:
                here[key] = rng.choice(junk)
            break
        try:
            found = Ledger.from_dict(data)
        except FormatError:
            refused += 1
        else:
            found.loss()
            changed += found != rich()
    assert refused > 1000
    assert changed < 400


def test_absurd_ledgers_are_refused_before_work_is_done() -> None:
    deep: dict[str, Any] = {"entries": [], "seal": None}
    for _ in range(100):
        deep = {"entries": [], "seal": None, "parts": [deep]}
    with pytest.raises(FormatError):
        Ledger.from_dict({**rich().to_dict(), "history": deep})
    with pytest.raises(FormatError):
        Ledger.from_dict({**rich().to_dict(), "version": 2})


def test_tables_show_history_promise_and_totals() -> None:
    text = str(fresh(promise=Promise("bare"), budget=F(2)).charge_release(F(1, 2)).record_copy())
    assert "publication (promised)" in text
    assert "3/2" in text
    assert "unlimited" in text
    assert "at most 1/2 can be released now" in text
    assert len(str(rich()).splitlines()) == 11


def test_long_ledgers_stay_quick() -> None:
    ledger = fresh("item", Promise("histogram", F(1)))
    entries = (*ledger.history.entries, *[View("release", F(1, 1000))] * 3000)
    long = Ledger("item", 1, History(entries), ledger.promised)
    assert long.loss() == 4
    assert long.loss(intrusion=True) == 5
    events = Ledger("event", 1, History(entries), ledger.promised)
    assert events.loss(intrusion=True) == 4


# The half circles of a cumulative release have the sensitivity that the lemma assumes.


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("max_count", [1, 20, 300, 10**9])
def test_no_two_thresholds_lie_half_a_circle_apart(bits: int, max_count: int) -> None:
    spec = ProfileSpec(epsilon="1", domain=OpenDomain(slots=64, levels=4), bits=bits, max_count=max_count)
    assert int(spec.edges[-1]) - int(spec.edges[0]) < 1 << (bits - 1)
    assert len(set(spec.edges.tolist())) == len(spec.edges)


def test_one_step_of_a_counter_crosses_at_most_one_threshold_wrap_included() -> None:
    spec = ProfileSpec(epsilon="1", domain=OpenDomain(slots=64, levels=4))
    near = [int(e) + step for e in spec.edges for step in (-1, 0)]
    wrapped = [((int(e) + (1 << 31)) % (1 << 32)) + step for e in spec.edges for step in (-1, 0)]
    x = np.array([*near, *wrapped, (1 << 31) - 1, -(1 << 31), -1, 0], dtype=np.int64)

    def above(state: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return (state[:, None] - spec.edges) % (1 << 32) < (1 << 31)

    crossed = (above(x) != above(x + 1)).sum(axis=1)
    assert crossed.max() == 1


def test_a_proposal_is_the_loss_that_the_release_then_has() -> None:
    held = fresh(promise=Promise("histogram", F(1, 3)), epsilon="2")
    assert held.propose(F(1, 5)) == held.charge_release(F(1, 5)).loss() == F(1, 5) + F(1, 3)


def test_a_sealed_sketch_affords_no_release() -> None:
    held = fresh(budget=F(9))
    assert held.affordable() > 0
    assert held.charge_publication().affordable() == 0


@pytest.mark.parametrize(("epsilon", "exact"), [("1", True), ("3/4", True), ("1/3", False), ("1/10", False)])
def test_epsilon_as_a_float_is_the_loss_or_the_next_above_it(epsilon: str, exact: bool) -> None:
    found = fresh(promise=Promise("bare"), epsilon=epsilon).epsilon()
    assert (F(found) == F(epsilon)) == exact
    assert F(found) >= F(epsilon) > F(math.nextafter(found, 0))


def test_no_state_existed_before_there_was_noise() -> None:
    look, layer = View("look", None), LayerEntry(bytes(16), "discrete-laplace", F(1))
    assert list(History((look, look)).moments) == []
    assert list(History((look, layer, look)).moments) == [2, 3]
    part = History((layer,), seal=0)
    assert list(History((look,), (part, part)).moments) == []


def test_ledgers_of_merges_of_merges_are_read_up_to_their_greatest_depth() -> None:
    def nested(depth: int) -> dict[str, Any]:
        number = itertools.count(1)

        def inner(depth: int) -> History:
            layer = LayerEntry(next(number).to_bytes(16, "big"), "discrete-laplace", F(1))
            return History((layer,)) if depth == 1 else History((), (inner(depth - 1), History((layer,))))

        return replace(fresh(), history=inner(depth)).to_dict()

    assert Ledger.from_dict(nested(MAX_DEPTH)).to_dict() == nested(MAX_DEPTH)
    with pytest.raises(FormatError):
        Ledger.from_dict(nested(MAX_DEPTH + 1))


def test_losses_for_people_are_rounded_up() -> None:
    assert [loss_number(value) for value in (0.0, 1.0, 1.00001, 0.0154001, 12345.0)] == [
        "0", "1", "1.001", "0.01541", "12,350"
    ]  # fmt: skip
