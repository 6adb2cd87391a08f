"""The ledger against exact enumeration: never below the truth, infinite exactly where the truth is, tight where said.

In: random histories. Out: verdicts. Touches: nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from sketchstream.audit import oracle
from sketchstream.privacy.losses.history import Gap, History, LayerEntry, Loss, View
from sketchstream.privacy.losses.looks import (
    event_losses,
    item_loss,
    with_one_more_look,
    worst_loss,
    worst_loss_with_look,
)

RESPONSE, LAPLACE = "randomized-response", "discrete-laplace"
EventRule = Callable[[History], list[Gap]]
ItemRule = Callable[[History], Loss]
F = Fraction


def layer(epsilon: str, law: str = RESPONSE) -> LayerEntry:
    return LayerEntry(bytes(16), law, F(epsilon))


def release(cost: str) -> View:
    return View("release", F(cost))


LOOK = View("look", None)
PUBLISHED = View("publication", None)


def covers(claimed: Loss, exact: float) -> None:
    """THE assertion: a claim is not below the exact loss, and infinite only where that is."""
    assert exact <= claimed + 1e-9
    assert (claimed == math.inf) == (exact == math.inf)


def histories(seed: int, count: int, law: str, views: int = 3) -> list[History]:
    rng = random.Random(seed)
    found = [oracle.random_history(rng, law, views=views) for _ in range(count)]
    return [history for history in found if any(isinstance(entry, View) for entry in history.entries)]


def check_events(rule: EventRule, ring: oracle.Ring, count: int = 120, law: str = RESPONSE, views: int = 3) -> float:
    """Compare a rule with the oracle at every gap; the share of gaps at which the claim is attained."""
    attained = total = 0
    for history in histories(1, count, law, views):
        exact = oracle.exact_event_losses(history, ring)
        claimed = {(gap.part, gap.after): gap.loss for gap in rule(history)}
        assert claimed.keys() == exact.keys()
        for place, loss in exact.items():
            covers(claimed[place], loss)
            total += 1
            attained += loss == claimed[place] or abs(loss - claimed[place]) < 1e-3
    return attained / total


def check_items(rule: ItemRule, count: int = 120) -> float:
    attained = total = 0
    for history in histories(2, count, RESPONSE):
        exact = oracle.exact_item_loss(history)
        claimed = rule(history)
        covers(claimed, exact)
        total += 1
        attained += exact == claimed or abs(exact - claimed) < 1e-3
    return attained / total


# The lemma against the truth.


def test_event_losses_cover_the_exact_ones_in_bins_form() -> None:
    assert check_events(event_losses, oracle.EVENT_RING) > 0.3


def test_event_losses_cover_the_exact_ones_on_a_wrapped_state_with_half_circles() -> None:
    assert check_events(event_losses, oracle.WRAPPED_RING, 40, LAPLACE) > 0.1


def test_item_losses_cover_the_worst_pair_of_paths() -> None:
    assert check_items(item_loss) > 0.3


def test_events_are_covered_whatever_the_other_events_do_between_the_views() -> None:
    rng = random.Random(3)
    for history in histories(4, 40, LAPLACE):
        views = sum(isinstance(entry, View) for entry in history.entries)
        paths = [[rng.randrange(8) for _ in range(views)] for _ in range(3)]
        exact = oracle.exact_event_losses(history, oracle.WRAPPED_RING, baselines=paths)
        for gap in event_losses(history):
            assert exact[gap.part, gap.after] <= gap.loss + 1e-9


def test_events_of_any_weight_are_covered_by_noise_scaled_to_the_largest() -> None:
    ring = oracle.Ring(
        8,
        oracle.wrapped_laplace,
        lambda m, c: oracle.bits(np.arange(m)[:, None] // 3 == [0, 1, 2], c / 2),
        (3, 2, 1, -3),
    )
    for history in histories(5, 40, LAPLACE, views=2):
        exact = oracle.exact_event_losses(history, ring, max_weight=3)
        for gap in event_losses(history):
            covers(gap.loss, exact[gap.part, gap.after])


def merged(rng: random.Random, law: str) -> History:
    """Two sketches, merged while open or after their states were published, and perhaps looked at once more."""
    parts = []
    open_parts = rng.random() < 0.5
    for _ in range(2):
        part = oracle.random_history(rng, law, views=2, layers=1)
        entries = tuple(e for e in part.entries if isinstance(e, LayerEntry) or e.kind != "publication")
        made = History(entries)
        parts.append(made if open_parts else made.sealed_by(View("publication", None)))
    if not open_parts:
        return History((), tuple(parts), 0)
    return History((), tuple(parts)).sealed_by(View("publication", rng.choice((None, *oracle.COSTS))))


def test_merged_histories_cover_events_and_items_of_all_parts() -> None:
    rng = random.Random(6)
    for _ in range(60):
        history = merged(rng, RESPONSE)
        exact = oracle.exact_event_losses(history, oracle.EVENT_RING)
        for gap in event_losses(history):
            loss = exact.get((gap.part, gap.after), 0.0)
            covers(gap.loss, loss)
        assert oracle.exact_item_loss(history) <= item_loss(history) + 1e-9


@pytest.mark.parametrize(
    ("entries", "events", "item"),
    [
        pytest.param([layer("1"), PUBLISHED], ["1"], "1", id="bare state"),
        pytest.param([layer("1"), release("1/2"), PUBLISHED], ["1", "3/2"], "3/2", id="release then bare state"),
        pytest.param(
            [layer("1"), release("1/2"), release("1/2"), PUBLISHED], ["1", "3/2", "2"], "2", id="two releases"
        ),
        pytest.param([layer("1"), LOOK, layer("7/10"), PUBLISHED], ["1", "7/10"], "17/10", id="look, fresh layer"),
        pytest.param([layer("1"), LOOK, View("publication", F("7/10"))], ["1", "7/10"], "17/10", id="look, histogram"),
        pytest.param(
            [layer("1"), LOOK, release("3/10"), layer("7/10"), PUBLISHED],
            ["1", "1", "7/10"],
            "2",
            id="look, release, fresh layer",
        ),
    ],
)
def test_the_lemma_is_attained_where_the_theory_says_so(
    entries: list[LayerEntry | View], events: list[str], item: str
) -> None:
    history = History(tuple(entries[:-1])).sealed_by(entries[-1])
    if isinstance(entries[-2], LayerEntry) and len(entries) > 2:
        history = History(tuple(entries[:-2])).sealed_by(*entries[-2:])
    exact = oracle.exact_event_losses(history, oracle.EVENT_RING)
    claimed = [gap.loss for gap in event_losses(history)]
    assert item_loss(history) == F(item)
    assert (
        oracle.exact_item_loss(history) == pytest.approx(float(F(item)), abs=1e-9) or id == "look, release, fresh layer"
    )
    assert exact.keys() == {(gap.part, gap.after) for gap in event_losses(history)}
    for loss, want in zip(claimed, events, strict=True):
        assert loss == F(want)
    for loss, want in zip(exact.values(), events, strict=True):
        assert loss == pytest.approx(float(F(want)), abs=1e-9)


@pytest.mark.parametrize("unit", ["event", "item"])
def test_one_more_look_in_linear_time_equals_trying_every_moment(unit: str) -> None:
    for since in range(4):
        for history in histories(10 + since, 150, RESPONSE, views=5):
            looks = [*with_one_more_look(history, since), history]
            slow = max(worst_loss(look, unit=unit) for look in looks)
            assert worst_loss_with_look(history, unit=unit, since=since) == slow


@pytest.mark.parametrize("unit", ["event", "item"])
def test_a_look_nobody_announced_is_covered_at_its_worst_moment(unit: str) -> None:
    for history in histories(20, 25, RESPONSE, views=2):
        worst = 0.0
        for look in with_one_more_look(history):
            exact = (
                oracle.exact_item_loss(look)
                if unit == "item"
                else max(oracle.exact_event_losses(look, oracle.EVENT_RING).values())
            )
            worst = max(worst, exact)
        covers(worst_loss_with_look(history, unit=unit), worst)


# Mutants: each must be refused by the same assertion.


def releases_charged_to_earlier_events_only(history: History) -> list[Gap]:
    """A plausible ledger that is wrong: releases after the event add to the layer's epsilon, none before."""
    gaps = []
    for gap in event_losses(history):
        before, after = history.entries[: gap.after], history.entries[gap.after :]
        if any(e == LOOK for e in before) or sum(isinstance(e, LayerEntry) for e in history.entries) > 1:
            gaps.append(gap)
            continue
        later = sum((e.cost for e in after if isinstance(e, View) and e.cost is not None), F(0))
        raw = any(isinstance(e, View) and e.cost is None for e in after)
        first = history.entries[0]
        assert isinstance(first, LayerEntry)
        gaps.append(Gap(gap.part, gap.after, first.cost + later if raw else min(first.cost, later)))
    return gaps


def by_event_time(history: History) -> list[Gap]:
    """A late record is filed under the gap its timestamp names: one earlier than where it was applied."""
    gaps = event_losses(history)
    return [Gap(gap.part, gap.after, gaps[max(index - 1, 0)].loss) for index, gap in enumerate(gaps)]


def without_the_last_gap(history: History) -> Loss:
    """The maximum over the gaps that held events so far: not the one before the promised publication."""
    gaps = event_losses(history)
    return max((gap.loss for gap in gaps[:-1]), default=gaps[0].loss)


def largest_of_gaps(history: History) -> Loss:
    """Items treated as events: the maximum, not the sum."""
    return max(gap.loss for gap in event_losses(history))


def only_non_empty_bins(size: int, cost: float) -> oracle.Floats:
    """A dictionary of counts: bins that hold no slot are not noised, so the empty ones are known."""
    full = oracle.bins_release(size, cost)
    law = np.zeros((size, size * full.shape[1]))
    for state in range(size):
        law[state, state * full.shape[1] : (state + 1) * full.shape[1]] = full[state]
    return law


def linear_thresholds(size: int, cost: float) -> oracle.Floats:
    """x >= k on the signed counter: at the wrap every threshold is crossed at once."""
    x = (np.arange(size)[:, None] + size // 2) % size - size // 2
    return oracle.bits(x >= np.array([-1, 0, 1]), cost)


def antipodal_half_circles(size: int, cost: float) -> oracle.Floats:
    """Thresholds k and k + m/2: one step crosses an end of both half circles."""
    x = np.arange(size)[:, None]
    return oracle.bits((x - np.array([0, size // 2])) % size < size // 2, cost)


def test_mutant_that_charges_releases_to_earlier_events_is_refused() -> None:
    with pytest.raises(AssertionError):
        check_events(releases_charged_to_earlier_events_only, oracle.EVENT_RING)


def test_mutant_that_orders_by_event_time_is_refused() -> None:
    with pytest.raises(AssertionError):
        check_events(by_event_time, oracle.EVENT_RING)


def test_mutant_that_takes_the_maximum_for_items_is_refused() -> None:
    with pytest.raises(AssertionError):
        check_items(largest_of_gaps)


def test_mutant_that_forgets_the_gap_before_the_publication_is_refused() -> None:
    def check(rule: ItemRule) -> None:
        for history in histories(7, 60, RESPONSE):
            covers(rule(history), max(oracle.exact_event_losses(history, oracle.EVENT_RING).values()))

    check(lambda history: worst_loss(history, unit="event"))
    with pytest.raises(AssertionError):
        check(without_the_last_gap)


@pytest.mark.parametrize("mutant", [only_non_empty_bins])
def test_mutant_histogram_that_noises_only_its_non_empty_bins_is_refused(
    mutant: Callable[[int, float], oracle.Floats],
) -> None:
    ring = oracle.Ring(3, oracle.randomized_response, mutant)
    with pytest.raises(AssertionError):
        check_events(event_losses, ring, 40)


@pytest.mark.parametrize("mutant", [linear_thresholds, antipodal_half_circles])
def test_mutant_thresholds_on_a_wrapped_state_are_refused(mutant: Callable[[int, float], oracle.Floats]) -> None:
    ring = oracle.Ring(8, oracle.wrapped_laplace, mutant, (1, -1))
    with pytest.raises(AssertionError):
        check_events(event_losses, ring, 40, LAPLACE)


# Mutants of the update, on a line and on two slots.


def loss_of_update(step: Callable[[int, int], int], events: list[int], epsilon: float) -> float:
    """Exact loss of the final state when one event of the stream becomes a no-op."""
    cap = 60
    a = math.exp(-epsilon)
    noise = np.arange(-cap, cap + 1)
    law = a ** np.abs(noise) * (1 - a) / (1 + a)

    def final(stream: list[int]) -> oracle.Floats:
        out = np.zeros(6 * cap + 1)
        for start, mass in zip(noise, law, strict=True):
            x = int(start)
            for weight in stream:
                x = step(x, weight)
            out[x + 3 * cap] += mass
        return out

    whole = final(events)
    worst = 0.0
    for at in range(len(events)):
        other = final([*events[:at], 0, *events[at + 1 :]])
        inner = slice(3 * cap - 20, 3 * cap + 21)  # beyond it the enumeration of the noise is cut
        worst = max(worst, oracle.log_ratio([whole[inner], other[inner]]))
    return worst


def test_mutant_that_saturates_in_place_is_refused() -> None:
    events = [1] * 6 + [-1] * 3
    covers(1.0, loss_of_update(lambda x, w: x + w, events, 1.0))
    with pytest.raises(AssertionError):
        covers(1.0, loss_of_update(lambda x, w: min(5, x + w), events, 1.0))


def slots_that_differ(refuse: Callable[[list[int]], list[int]], batch: list[int]) -> int:
    """Most slots that differ when one payload of a batch (item i goes to slot i, -1 is invalid) becomes a no-op."""

    def counts(payloads: list[int]) -> list[int]:
        kept = refuse(payloads)
        return [kept.count(slot) for slot in range(8)]

    whole = counts(batch)
    worst = 0
    for at in range(len(batch)):
        other = counts([*batch[:at], *batch[at + 1 :]])  # a no-op touches nothing
        worst = max(worst, sum(one != two for one, two in zip(whole, other, strict=True)))
    return worst


def test_mutant_that_refuses_whole_batches_is_refused() -> None:
    batch = [0, 1, 2, 3, -1]
    covers(1.0, 1.0 * slots_that_differ(lambda payloads: [p for p in payloads if p >= 0], batch))
    with pytest.raises(AssertionError):
        covers(1.0, 1.0 * slots_that_differ(lambda payloads: [] if -1 in payloads else payloads, batch))
