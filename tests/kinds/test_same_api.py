"""One public interface for all kinds: what a user writes for one sketch works for every other.

Every case of `helpers.kind_cases` is held to each row; a new kind adds its case there, and nothing here.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from helpers.conformance import Case
from helpers.kind_cases import CASES
from helpers.tally import KIND
from sketchstream import kinds
from sketchstream.privacy.gaussian_ledger import GaussianLedger

PUBLIC = {name: case for name, case in CASES.items() if name != "tally"}
"""All but the toy kind, whose answers are a list."""
SAID = {"unit", "delta", "measure", "published", "published_and_one_copy", "total", "total_kept", "losses", "warning",
        "relation", "swap_factor", "no_privacy", "protects", "seen", "not_protected", "assumes"}  # fmt: skip

every_kind = pytest.mark.parametrize("case", PUBLIC.values(), ids=PUBLIC)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy kind, for one test."""
    monkeypatch.setattr(kinds, "_LOADED", dict(kinds._LOADED))
    kinds.register(KIND)


def pure(case: Case) -> bool:
    """Whether losses are epsilons without a delta."""
    return not isinstance(case.sketch().ledger, GaussianLedger)


def test_every_kind_has_a_case() -> None:
    assert {case.kind.name for case in PUBLIC.values()} == set(kinds.names()) - {"tally"}


@every_kind
def test_a_ledger_says_its_epsilon_at_a_delta(case: Case) -> None:
    ledger = case.sketch().ledger
    usual, small, large = ledger.epsilon(), ledger.epsilon("1e-9"), ledger.epsilon("1e-3")
    assert all(isinstance(one, float) and 0 < one < math.inf for one in (usual, small, large))
    if pure(case):
        assert usual == small == large >= ledger.loss()
        assert Fraction(usual) - ledger.loss() < Fraction(1, 10**12)
    else:
        assert usual == ledger.loss().epsilon(case.spec.delta)
        assert large < usual < small
        with pytest.raises(ss.SpecError, match=r"delta must be in \[1e-300, 0.5\], such as '1e-6', found 0.7"):
            ledger.epsilon("0.7")
    bare = case.sketch()
    bare.ledger.record_look()
    again = ss.Sketch.from_bytes(bare.to_bytes(), bare.key)
    assert again.ledger.epsilon() == usual, "stored sketches say it at the same delta"


@every_kind
def test_a_budget_is_an_epsilon_and_perhaps_a_delta(case: Case) -> None:
    key = case.sketch().key
    loss = case.sketch().ledger.epsilon()
    made = ss.Sketch.create(case.spec, key, max_epsilon="49")
    assert made.ledger.epsilon() == loss
    with pytest.raises(ss.BudgetError, match="lower epsilon or epsilon_publish, or raise the budget"):
        ss.Sketch.create(case.spec, key, max_epsilon=Fraction(loss) / 2)
    with pytest.raises(ss.SpecError, match="leave max_delta out" if pure(case) else "max_epsilon beside max_delta"):
        ss.Sketch.create(case.spec, key, max_delta="1e-6")
    for wrong in ("0", "-1", "many"):
        with pytest.raises(ss.SpecError, match="max_epsilon must be a positive rational number such as '1'"):
            ss.Sketch.create(case.spec, key, max_epsilon=wrong)
    if not pure(case):
        with pytest.raises(ss.SpecError, match=r"max_delta must be in \[1e-300, 0.5\], such as '1e-6', found 0.7"):
            ss.Sketch.create(case.spec, key, max_epsilon="49", max_delta="0.7")


@every_kind
def test_releases_and_layers_take_an_epsilon_and_perhaps_a_delta(case: Case) -> None:
    kind, spec = case.kind, case.spec
    usual = kind.asked_cost(spec, "1/2", None)
    assert usual > 0
    for wrong, found in (("0", "0"), ("-1", "-1"), ("none", "'none'")):
        with pytest.raises(ss.SpecError, match=f"epsilon of a release must be a positive rational .*found {found}"):
            kind.asked_cost(spec, wrong, None)
    with pytest.raises(ss.SpecError, match="epsilon of a release above 50 protects nobody"):
        kind.asked_cost(spec, "60", None)
    sketch = case.sketch()
    sketch.refresh("1/2")
    assert sketch.ledger.layers[-1].cost == usual
    if pure(case):
        with pytest.raises(ss.SpecError, match="pure: its loss has delta = 0, leave delta out"):
            sketch.release("1/2", "1e-6")
        return
    assert kind.asked_cost(spec, "1/2", spec.delta) == usual
    with pytest.raises(ss.SpecError, match=r"delta of a release must be in \[1e-300, 0.5\], such as '1e-6', found 0.7"):
        sketch.release("1/2", "0.7")


@every_kind
def test_options_of_an_update_are_refused_in_the_same_words(case: Case) -> None:
    sketch = case.sketch()
    with pytest.raises(ss.ItemError, match="invalid must be 'error', 'skip' or 'noop', found 'eror'"):
        sketch.update(list(case.items), invalid="eror")  # type: ignore[arg-type]
    with pytest.raises(ss.ItemError, match="threads must be 1 or 2, found 3"):
        sketch.update(list(case.items), threads=3)
    with pytest.raises(ss.ItemError, match=r"update takes (rows, items|items) and weights, found 1 more"):
        sketch.update(list(case.items), [1] * len(case.items), [1] * len(case.items))


@every_kind
def test_events_are_refused_in_the_same_words(case: Case) -> None:
    if case.group is not None:
        return  # groups say that the item or the group is not declared
    sketch, good = case.sketch(), list(case.items[:3])
    if case.outside is not None:
        with pytest.raises(
            ss.DomainError, match=r"^the event at position 3 is not in the domain; nothing was applied$"
        ):
            sketch.update([*good, case.outside])
    if case.bad_weight is not None:
        words = r"^the weight at position 3 is not within -[\d/.]+\.\.[\d/.]+ \(max_\w+\); nothing was applied"
        with pytest.raises(ss.WeightError, match=words):
            sketch.update([*good, good[0]], [1, 1, 1, case.bad_weight])


@every_kind
def test_weights_with_fractions_are_never_cut(case: Case) -> None:
    if case.kind.decimal_weights(case.spec):
        return
    sketch, two = case.sketch(), list(case.items[:2])
    before = sketch._state.copy()
    with pytest.raises(ss.WeightError):
        sketch.update(two, [1, 0.5])
    assert (sketch._state == before).all()
    twin = case.sketch()
    twin._state[:] = before
    sketch.update(two, [1, 0.5], invalid="noop")
    twin.update(two[:1], [1])
    assert (sketch._state == twin._state).all()


@every_kind
def test_statements_have_the_same_parts(case: Case) -> None:
    sketch = case.sketch()
    assert sketch.guarantee().to_dict().keys() >= SAID
    assert sketch.seal().guarantee().to_dict().keys() >= SAID


@every_kind
def test_unknown_methods_and_options_are_refused_in_the_same_words(case: Case) -> None:
    published = case.sketch().seal()
    if case.kind.answer == "profile":
        return
    with pytest.raises(ss.EstimateError, match=r"^method must be one of .*, found 'zzz'$"):
        published.estimate("zzz")
    words = f"estimate of kind '{case.kind.name}' takes .*; found .*bad"
    with pytest.raises(ss.EstimateError, match=words):
        published.estimate(bad=1)


def test_rows_and_items_are_given_together_or_apart() -> None:
    spec = ss.ProjectionSpec(12, 40, 16, "1", "1e-6", max_weight=3)
    rows, items, weights = [0, 3, 11], [5, 5, 39], [1, -2, 3]
    pairs = list(zip(rows, items, strict=True))
    ways: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((pairs, weights), {}),
        ((pairs,), {"weights": weights}),
        ((rows, items, weights), {}),
        ((rows, items), {"weights": weights}),
        ((np.array(rows), np.array(items), np.array(weights)), {}),
        ((np.array(pairs), weights), {}),
        ((ss.Pairs(rows, items), weights), {}),
    ]
    sketch = ss.Sketch.create(spec)
    start = sketch._state.copy()
    sketch.update(pairs, weights)
    moved = sketch._state - start
    assert moved.any()
    for arguments, named in ways:
        before = sketch._state.copy()
        sketch.update(*arguments, **named)
        assert (sketch._state - before == moved).all()
    before = sketch._state.copy()
    sketch.update(rows, items)
    once = sketch._state - before
    sketch.update(pairs, [-1, -1, -1])
    assert (sketch._state == before).all()
    assert once.any()
    with pytest.raises(ss.ItemError, match="one row for each item"):
        sketch.update(rows, items[:2])
    with pytest.raises(ss.ItemError, match="update takes rows, items and weights, found 1 more"):
        sketch.update(rows, items, weights, weights)
