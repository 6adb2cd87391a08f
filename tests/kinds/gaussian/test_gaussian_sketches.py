"""Sketches of kind `gaussian` through the engine: weights, parts, counters beside the slots, releases, guarantees."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import sketchstream as ss
from helpers.gaussian_attack import verified
from helpers.noise.words import Seeded
from sketchstream.components import Component
from sketchstream.kinds.gaussian.kind import KIND, join_parts
from sketchstream.kinds.linear import kind as linear
from sketchstream.noise import discrete_gaussian
from sketchstream.privacy.calibration.discrete import calibrate_parts, verify_parts
from sketchstream.quality import judge

LIST = [f"plane {i}" for i in range(50)]
LITTLE = {"epsilon": "50", "delta": "0.5"}
"""So little noise that sums of 8 fraction bits show the events."""

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.NoPrivacyWarning")


def little(**fields: object) -> ss.Sketch:
    return ss.Sketch.create(ss.GaussianSpec(**LITTLE, domain=ss.ClosedDomain(size=8), **fields))  # type: ignore[arg-type]


def test_every_slot_gets_noise_however_many_are_drawn_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "DRAWN_AT_ONCE", 7)
    cells, told, source = np.zeros(50, np.int64), list[int](), Seeded(31)
    monkeypatch.setattr("sketchstream.noise.discrete_gaussian", lambda out, s2: discrete_gaussian(out, s2, source))
    spec = ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=50))
    KIND.draw(spec, cells, Fraction(1, 10**16), told.append)
    assert np.count_nonzero(cells) == 50
    assert told == [*range(7, 50, 7), 50]


def test_weights_of_any_form_reach_the_state_exactly() -> None:
    forms: list[object] = [0.25, "0.25", b"0.25", Decimal("0.25"), Fraction(1, 4), np.float32(0.25)]
    for given in (forms, np.full(6, 0.25), [*forms[:5], 0.2509765625]):
        sketch = little(max_weight=2, fraction_bits=8)
        before = sketch._state.copy()
        sketch.update(np.arange(6), given)
        assert (sketch._state - before)[:6].tolist() == [64] * 6
        assert not (sketch._state - before)[6:].any()
    sketch = little(max_weight=2, fraction_bits=8)
    before = sketch._state.copy()
    sketch.update([3, 3, 4])
    assert (sketch._state - before).tolist() == [0, 0, 0, 512, 256, 0, 0, 0]


@pytest.mark.parametrize("bad", ["2.00390625", float("nan"), "x", None, True, 1 << 70, -3])
def test_a_bad_weight_is_refused_or_nothing_whatever_the_others_are(bad: object) -> None:
    sketch = little(max_weight=2, fraction_bits=8)
    before = sketch._state.copy()
    with pytest.raises(ss.WeightError, match="position 1") as caught:
        sketch.update([1, 2, 3], [1, bad, "0.5"])
    assert (sketch._state == before).all()
    assert "70" not in str(caught.value)
    sketch.update([1, 2, 3], [1, bad, "0.5"], invalid="noop")
    assert (sketch._state - before).tolist() == [0, 256, 0, 128, 0, 0, 0, 0]
    with pytest.raises(ss.WeightError):
        sketch.update([1, 2], [1])


@pytest.mark.parametrize("bits", [0, 8])
def test_weights_of_the_wrong_shape_are_refused(bits: int) -> None:
    """Integers that need no conversion are looked at too."""
    sketch = little(max_weight=9, fraction_bits=bits)
    before = sketch._state.copy()
    for dtype in (np.int32, np.int64):
        for wrong in (np.ones((2, 2), dtype), np.ones((4, 1), dtype), np.ones(3, dtype), np.ones((), dtype)):
            with pytest.raises(ss.WeightError):
                sketch.update([1, 2, 3, 4], wrong)
        sketch.update([1, 2, 3, 4], np.zeros(4, dtype))
    assert (sketch._state == before).all()


def test_the_compiled_path_takes_large_weights() -> None:
    most = (1 << 39) + 5
    spec = ss.GaussianSpec(**LITTLE, domain=ss.ClosedDomain(size=1 << 16), max_weight=most)
    sketch = ss.Sketch.create(spec)
    random = np.random.default_rng(3)
    items, weights = random.integers(0, 1 << 16, 200_000), random.integers(-most, most + 1, 200_000)
    before = sketch._state.copy()
    sketch.update(items, weights)
    truth = np.zeros(1 << 16, np.int64)
    np.add.at(truth, items, weights)
    assert (sketch._state - before == truth).all()
    with pytest.raises(ss.WeightError):
        sketch.update(items, np.append(weights[1:], most + 1))
    assert (sketch._state - before == truth).all()


def test_partitions_are_stacked_by_the_items_that_they_keep() -> None:
    spec = ss.GaussianSpec(**LITTLE, domain=ss.ClosedDomain(items=LIST))
    key = ss.Key(bytes(16))
    masks = [np.arange(50) % 3 == part for part in range(3)]
    sealed = []
    for mask in masks:
        sketch = ss.Sketch.create(spec, key, keep=mask)
        for place in np.flatnonzero(mask).tolist():
            sketch.update([LIST[place]] * (10 * place + 10))
        sealed.append(sketch.seal())
    answers = ss.stack(sealed).estimate(kept=masks, method="raw", whole=True)
    exact = 10 * np.arange(50) + 10
    assert np.abs(answers.values - exact).max() <= 8
    assert answers.count("plane 7").value == answers.values[7]
    assert answers.sum(10, 20).value == answers.values[10:20].sum()
    assert answers.top(1)[0].item == "plane 49"
    part = sealed[1].estimate(kept=masks[1:2], method="raw")
    assert [row["item"] for row in part.rows()] == LIST[1::3]
    assert part.sum(0, 5).value == answers.values[[1, 4]].sum()
    assert part.to_dict()["labels"]["item"] == LIST[1::3]
    with pytest.raises(ss.DomainError, match="no slot in this part"):
        part.count("plane 0")
    for wrong in (None, masks[:2], masks[::-1]):
        with pytest.raises(ss.EstimateError, match="kept"):
            ss.stack(sealed).estimate(kept=wrong)
    named = ss.load(ss.stack(sealed).to_bytes()).estimate(kept=masks, items=LIST, method="raw", whole=True)
    assert named.to_dict() == answers.to_dict()


def test_an_item_of_several_parts_has_the_noise_of_all() -> None:
    spec = ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=3))
    ones, all_of_them = np.ones(3, np.int64), np.ones(3, np.bool_)
    state, variances, positions = join_parts(spec, [(ones, (Fraction(2),)), (2 * ones, (Fraction(3), Fraction(2)))])
    assert (state.tolist(), variances, positions) == ([3, 3, 3], (2, 2, 3), None)
    first = np.array([True, False, False])
    with pytest.raises(ss.EstimateError, match="different noise"):
        join_parts(spec, [(ones, (Fraction(2),)), (ones[:1], (Fraction(2),))], [all_of_them, first])
    parts = [(ones[:1], (Fraction(2),)), (ones[:1], (Fraction(2),))]
    state, _, positions = join_parts(spec, parts, [first, np.roll(first, 2)])
    assert positions is not None
    assert (state.tolist(), positions.tolist()) == ([1, 1], [0, 2])


def test_releases_merges_and_refreshes_add_their_variances() -> None:
    spec = ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=64))
    sketches = [ss.Sketch.create(spec) for _ in range(3)]
    release = sketches[0].release("1/2", "1e-7")
    fresh = spec.calibrated("1/2", "1e-7").sigma2
    assert release.estimate().variance == spec.sigma2 + fresh
    sketches[0].refresh()
    merged = ss.merge(sketches)
    assert merged.seal().estimate().variance == 4 * spec.sigma2 + spec.publish_sigma2  # type: ignore[operator]
    sealed = ss.merge([ss.Sketch.create(spec).seal() for _ in range(2)])
    assert sealed.estimate().variance == 4 * spec.sigma2
    assert ss.Sketch.create(spec).release("1/2").cost == spec.shift.cost(spec.calibrated("1/2", spec.delta).sigma2)


def test_a_budget_is_enforced_before_anything_is_drawn() -> None:
    spec = ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=4))
    sketch = ss.Sketch.create(spec, max_epsilon="3/4", max_delta="1e-6")
    sketch.release("1/10", "1e-6")
    ledger = sketch.ledger
    with pytest.raises(ss.BudgetError, match="budget"):
        sketch.release("1", "1e-6")
    assert sketch.ledger is ledger
    with pytest.raises(ss.BudgetError):
        ss.Sketch.create(spec, max_epsilon="1/10", max_delta="1e-6")
    with pytest.raises(ss.BudgetError):
        ss.Sketch.create(spec, max_epsilon="1/10")  # at the delta of the spec


def test_weights_with_fractions_need_fraction_bits() -> None:
    sketch = ss.Sketch.create(ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=4), max_weight=3))
    before = sketch._state.copy()
    sketch.update([0, 1, 2], [2.0, "1", Decimal(3)])
    for fraction in (0.5, "0.5", Decimal("1.5"), np.float32(2.25)):
        with pytest.raises(ss.WeightError, match=r"position 1.*need a spec with fraction_bits above 0"):
            sketch.update([0, 1], [1, fraction])
        with pytest.raises(ss.WeightError, match="fraction_bits"):
            sketch.update([0, 1], np.array([1.0, float(fraction)]))
        sketch.update([3, 3], [1, fraction], invalid="noop")
    assert (sketch._state - before).tolist() == [2, 1, 3, 4]


def test_counters_beside_the_slots_share_the_noise_that_was_calibrated() -> None:
    fields = {"domain": ss.ClosedDomain(size=100), "max_weight": "2.5", "fraction_bits": 1}
    plain = ss.GaussianSpec("1", "1e-6", **fields)  # type: ignore[arg-type]
    spec = ss.GaussianSpec("1", "1e-6", **fields, total_share="1/40", epsilon_records="1")  # type: ignore[arg-type]
    assert spec.counted
    slots, total, counted, admitted = KIND.accounting.components(spec)
    assert (slots.share, total.share, counted.share, admitted.own_cost) == (
        *map(Fraction, ("39/40", "1/80", "1/80")),
        1,
    )
    assert (total.sensitivity, counted.sensitivity) == (5, 1)
    cost = spec.mu2
    assert slots.parameter(cost) == spec.sigma2
    assert total.parameter(cost) == 25 * 80 / cost
    assert sum(Fraction(s) / v for s, v in ((25, spec.sigma2), (25, 2000 / cost), (1, 80 / cost))) == cost
    assert 1 < float(spec.sigma2 * spec.slots_share / plain.sigma2) < 1.05  # the lattice bound costs little
    assert KIND.accounting.ledger(spec, b"").loss(intrusion=True).epsilon("1e-6") < 1.01
    with pytest.raises(ss.SpecError, match="is too small"):
        verified(spec, spec.sigma2 * Fraction(99, 100), "1", "1e-6")
    sketch = ss.Sketch.create(spec)
    sketch.admit(60_000)
    sketch.update(np.arange(60_000) % 100, np.tile([0.5, 2.0], 30_000))
    sealed = sketch.seal()
    values = {one.name: one.value for one in sealed.counters}
    assert values["total"] == pytest.approx(150_000, abs=3000)
    assert values["counted"] == pytest.approx(60_000, abs=1000)
    assert judge([sealed]).verdict == "good"
    short = ss.Sketch.create(spec)
    short.admit(60_000)
    short.update(np.arange(30_000) % 100)
    assert judge([short.seal()]).verdict == "incomplete"


def test_several_components_are_calibrated_from_above_and_tightly() -> None:
    parts = [(Fraction(3), 2, Fraction(9, 10)), (Fraction(4), 1, Fraction(1, 10))]
    found = calibrate_parts("1", "1e-6", parts)
    assert verify_parts("1", "1e-6", found.sigma2, parts).delta <= 1e-6
    with pytest.raises(ss.SpecError, match="is too small"):
        verify_parts("1", "1e-6", found.sigma2 - Fraction(2, 1024), parts)


def test_sensitivities_need_no_root() -> None:
    spec = ss.GaussianSpec("1", "1e-6", "item", ss.ClosedDomain(size=9), max_total=5, max_per_slot=3)
    slots: Component = KIND.accounting.components(spec)[0]
    assert (spec.sensitivity2, slots.square, slots.sensitivity) == (13, 13, 4)
    assert slots.parameter(spec.mu2) == spec.sigma2
    with pytest.raises(ss.SpecError, match="counted"):
        ss.GaussianSpec("1", "1e-6", "item", ss.ClosedDomain(size=9), max_total=5, total_share="1/9", counted=True)
    with pytest.raises(ss.SpecError, match="epsilon_records"):
        ss.GaussianSpec("1", "1e-6", "item", ss.ClosedDomain(size=9), max_total=5, epsilon_records=1)


def test_the_statement_names_epsilon_delta_mu_and_every_assumption() -> None:
    spec = ss.GaussianSpec("1", "1e-6", "item", ss.ClosedDomain(items=LIST), max_total=9)
    sketch = ss.Sketch.create(spec, ss.Key(bytes(16)))
    said = sketch.guarantee()
    text = str(said)
    for needed in ("delta 1e-06", "mu^2", "max_total", "four times", "AES-256", "hash key"):
        assert needed in text
    data = json.loads(json.dumps(said.to_dict()))
    assert data["losses"]["published_and_one_copy"]["epsilon"] == pytest.approx(1, abs=1e-3)
    assert Fraction(data["losses"]["published"]["mu2"]) == spec.mu2 / 2
    assert data["swap_factor"] == 2
    assert "epsilon" in said.summary
    bare = ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=4), intrusion=False)
    statement = ss.Sketch.create(bare).guarantee()
    assert "void" in str(statement)
    assert "unlimited" in statement.to_dict()["published_and_one_copy"]
    assert "NO PRIVACY" in str(little().guarantee())
    for shown in (sketch, sketch.release("1", "1e-6"), said, sketch.seal()):
        assert "<table" in shown._repr_html_()


def test_bytes_stay_close_to_the_entropy_of_the_noise() -> None:
    spec = ss.GaussianSpec("1", "1e-6", domain=ss.ClosedDomain(size=200_000))
    data = ss.Sketch.create(spec).seal().to_bytes()
    entropy = 0.5 * np.log2(2 * np.pi * np.e * float(2 * spec.sigma2)) * 200_000 / 8
    assert len(data) < 1.05 * entropy
