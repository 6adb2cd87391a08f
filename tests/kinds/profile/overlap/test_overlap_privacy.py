"""The ledger against enumeration: every noise value, every outcome, every path that an item's slot can take.

In: small moduli, two or three groups. Out: exact losses. Touches: nothing. One slot is enough: neighbours
differ in one.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import sketchstream as ss
from sketchstream.audit.oracle import bits, log_ratio, randomized_response
from sketchstream.kinds.profile.kind import KIND
from sketchstream.privacy.ledgers.sketch_history import Promise
from sketchstream.privacy.losses.history import LOOK, History
from sketchstream.privacy.losses.looks import item_loss

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
Floats = npt.NDArray[np.float64]
F = Fraction
W = 3
LAYER, EACH, PATTERNS = F(1), F(1, 2), F(7, 10)


def spec(names: Sequence[str], *, histograms: bool = True, **groups: Any) -> ss.ProfileSpec:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ss.ProfileSpec(
            LAYER,
            "item",
            ss.OpenDomain(8, 1),
            modulus=W,
            epsilon_publish=EACH if histograms else None,
            epsilon_overlap=PATTERNS,
            overlap=True,
            histograms=histograms,
            groups=ss.Groups(list(names), **groups),
        )


def vectors(m: int) -> npt.NDArray[np.int64]:
    """(W^m, m) all values of a slot's counters in m groups."""
    return np.array(list(itertools.product(range(W), repeat=m)), np.int64)


def pattern_view(m: int, cost: Fraction) -> Floats:
    """(W^m, outcomes) the noisy pattern of one slot: two cells move by one, each has noise of half the cost."""
    states = vectors(m)
    code = (states != 0) @ (1 << np.arange(m)[::-1])
    return bits(code[:, None] == np.arange(2**m), float(cost) / 2)


def group_views(m: int, cost: Fraction) -> Floats:
    """(W^m, outcomes) the noisy histograms of each group's counter."""
    states, law = vectors(m), np.ones((W**m, 1))
    for group in range(m):
        one = bits(states[:, group, None] == np.arange(W), float(cost) / 2)
        law = np.einsum("so,st->sot", law, one).reshape(len(states), -1)
    return law


def both(first: Floats, second: Floats) -> Floats:
    return np.einsum("so,st->sot", first, second).reshape(len(first), -1)


def law(m: int, views: Sequence[Floats], path: Sequence[int]) -> Floats:
    """Joint law of all views when the slot's data are vectors()[path[v]] at view v."""
    states, one = vectors(m), randomized_response(W, float(LAYER))
    weight = np.prod(one[states], axis=1)
    place = W ** np.arange(m)[::-1]
    out = weight[:, None]
    for view, data in zip(views, path, strict=True):
        shown = ((states + states[data]) % W) @ place
        out = (out[:, :, None] * view[shown][:, None, :]).reshape(len(states), -1)
    return out.sum(axis=0)


def loss(m: int, views: Sequence[Floats], inside: Sequence[int]) -> float:
    """Exact loss of an item that may be active in these groups only."""
    states = vectors(m)
    free = [at for at, one in enumerate(states) if all(one[g] == 0 for g in range(m) if g not in inside)]
    return log_ratio([law(m, views, path) for path in itertools.product(free, repeat=len(views))])


def look(m: int) -> Floats:
    return np.eye(W**m)


def claimed(one: ss.ProfileSpec, *, looked: bool) -> float:
    return float(KIND.accounting.ledger(one, bytes(16)).loss(intrusion=looked))


def test_a_reader_and_a_thief_learn_exactly_what_the_ledger_says() -> None:
    two = spec("ab")
    seal = both(pattern_view(2, PATTERNS), group_views(2, EACH))
    found = loss(2, [look(2), seal], (0, 1))
    assert found == pytest.approx(claimed(two, looked=True), abs=1e-9) == 2 * 1 + 2 * 0.5 + 0.7
    alone = spec("ab", histograms=False)
    found = loss(2, [look(2), pattern_view(2, PATTERNS)], (0, 1))
    assert found == pytest.approx(claimed(alone, looked=True), abs=1e-9) == 2.7


def test_an_item_of_one_of_two_groups_pays_the_patterns_as_if_it_were_in_both() -> None:
    one = spec("ab", max_groups=1)
    seal = both(pattern_view(2, PATTERNS), group_views(2, EACH))
    found = loss(2, [look(2), seal], (1,))
    assert found == pytest.approx(claimed(one, looked=True), abs=1e-9) == pytest.approx(1 + 0.5 + 0.7)


def test_three_groups_pay_the_patterns_once() -> None:
    three = spec("abc", histograms=False)
    found = loss(3, [look(3), pattern_view(3, PATTERNS)], (0, 1, 2))
    assert found == pytest.approx(claimed(three, looked=True), abs=1e-9) == pytest.approx(3.7)
    assert claimed(three, looked=False) == 0.7


def test_readers_alone_never_learn_more() -> None:
    seal = both(pattern_view(2, PATTERNS), group_views(2, EACH))
    assert loss(2, [seal], (0, 1)) <= claimed(spec("ab"), looked=False) + 1e-9
    pattern = loss(2, [pattern_view(2, PATTERNS)], (0, 1))
    assert pattern <= claimed(spec("ab", histograms=False), looked=False) + 1e-9


def test_a_release_before_the_seal_is_paid_in_every_group() -> None:
    two = spec("ab")
    early = KIND.accounting.ledger(two, bytes(16)).charge_release(F(2, 5))
    history = History((early.history.entries[0], early.history.entries[1], LOOK)).then(*early.promised.entries(1))
    seal = both(pattern_view(2, PATTERNS), group_views(2, EACH))
    found = loss(2, [group_views(2, F(1, 5)), look(2), seal[:, :: max(1, seal.shape[1] // 64)]], (0,))
    assert found <= float(item_loss(history)) + 1e-9


@pytest.mark.parametrize("mutant", ["half the noise", "divided by the groups", "cells left out"])
def test_the_enumeration_refuses_what_charges_too_little(mutant: str) -> None:
    claim = claimed(spec("ab", histograms=False), looked=True)
    view = {
        "half the noise": pattern_view(2, 2 * PATTERNS),
        "divided by the groups": pattern_view(2, PATTERNS),
        "cells left out": np.where(pattern_view(2, PATTERNS) > 0.2, pattern_view(2, PATTERNS), 0.0),
    }[mutant]
    if mutant == "divided by the groups":
        claim -= float(PATTERNS) / 2
    if mutant == "cells left out":
        view = np.eye(4)[(vectors(2) != 0) @ np.array([2, 1])]  # an empty cell without noise shows which one moved
    assert loss(2, [look(2), view], (0, 1)) > claim + 0.1


def test_promises_of_patterns_are_histograms_of_one_cost() -> None:
    assert KIND.accounting.promise(spec("ab")) == Promise("histogram", 2 * EACH + PATTERNS)
    assert math.isinf(loss(2, [look(2), np.eye(9)], (0,)))
