"""Workloads through the engine: records to named answers, ledgers, guarantees, published bytes, partitions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import sketchstream as ss
from sketchstream import kinds, wire
from sketchstream.errors import BudgetError, DomainError, EstimateError, FormatError, MergeError, SpecError, WeightError
from sketchstream.kinds.workload.kind import KIND
from sketchstream.kinds.workload.queries.queries import Workload
from sketchstream.kinds.workload.queries.universe import Column
from sketchstream.noise.laws import DiscreteGaussian, DiscreteLaplace, battery
from sketchstream.privacy.deployments.surroundings import Context
from sketchstream.privacy.ledgers.gaussian_ledger import GaussianLedger

TABLE = ss.Universe([Column("origin", ["EWR", "JFK", "LGA"]), Column.buckets("delay", -60, 60, 4, other=True)])
FIELDS = {
    "origin": ["EWR", "JFK", "LGA", "LAX"] * 500,
    "delay": [-61, -60, 0, 59.5, 60, "12", None, 200] * 250,
}
HISTOGRAM = np.bincount([cell for cell in TABLE.locate_fields(FIELDS).tolist() if cell >= 0], minlength=15)


def tables(**changes: object) -> ss.WorkloadSpec:
    given = {"workload": TABLE.marginals((1, 2)), "epsilon": "1", "delta": "1e-6", "universe": TABLE}
    return ss.WorkloadSpec(**{"mechanism": "gaussian", **given, **changes})  # type: ignore[arg-type]


def filled(spec: ss.WorkloadSpec) -> ss.Sketch:
    sketch = ss.Sketch.create(spec)
    sketch.update(spec.cells(FIELDS), invalid="skip")
    return sketch


def added(part: ss.SealedState, other: ss.SealedState) -> ss.SealedState:
    return ss.merge([part, other])


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "l2ball"])
def test_records_come_back_as_named_tables(mechanism: str) -> None:
    spec = tables(mechanism=mechanism)
    truth = spec.workload.apply(HISTOGRAM.astype(float))
    sealed = ss.load(filled(spec).seal().to_bytes())
    found = sealed.estimate()
    assert np.abs((found.values - truth) / found.stderr).max() < 9
    rows = list(found.rows())
    assert len(rows) == spec.workload.count == 3 + 5 + 15
    assert {"table", "origin", "value", "stderr", "low", "high"} <= rows[0].keys()
    assert [row["origin"] for row in rows if row["table"] == "origin"] == ["EWR", "JFK", "LGA"]
    assert rows[-1]["delay"] == "other"
    assert found.table("origin x delay").shape == (3, 5)
    assert json.loads(json.dumps(found.to_dict()))["kind"] == "workload"
    assert "origin x delay: 3 x 5" in str(found)


@pytest.mark.parametrize(("mechanism", "law"), [("gaussian", DiscreteGaussian), ("laplace", DiscreteLaplace)])
def test_published_states_less_the_truth_follow_the_laws_of_their_layers(mechanism: str, law: Callable) -> None:
    spec = ss.WorkloadSpec("prefix:8", "1", "1e-6", mechanism, intrusion=False)
    events = np.arange(200) % 8
    exact = spec.strategy.matrix @ np.bincount(events, minlength=8)
    samples = []
    for _ in range(150):
        sketch = ss.Sketch.create(spec)
        sketch.update(events[:60])
        sketch.update(events[60:])
        samples.append(sketch.seal().state - exact)
    parameter = spec.layer().parameter
    assert min(check.p_value for check in battery(np.concatenate(samples), law(parameter))) > 1e-7
    assert min(check.p_value for check in battery(np.concatenate(samples), law(parameter * 3))) < 1e-7


def test_text_and_cell_numbers_are_the_same_events() -> None:
    spec = tables()
    index = KIND.index(spec, None, None)
    from sketchstream.items.arrays import Items

    text = ["EWR\t-61", "JFK\t-60", "LGA\t59.5", "JFK", "LAX\t0", "JFK\t0\t0"]
    assert index.locate(Items.of(text)).tolist() == [4, 5, 11, -1, -1, -1]
    assert index.locate(Items.of(np.array([0, 14, 15, -1]))).tolist() == [0, 14, -1, -1]
    assert index.locate(Items.of([b"EWR\t0"])).tolist() == [-1]
    plain = ss.WorkloadSpec("prefix:4", "1", "1e-6", "gaussian")
    assert KIND.index(plain, None, None).locate(Items.of(["1"])).tolist() == [-1]
    assert ss.Sketch.create(spec).outside(text) == 3


def test_a_layer_loses_what_was_asked_for() -> None:
    for changes in ({}, {"unit": "item", "max_total": 9}, {"max_weight": 5}):
        sketch = ss.Sketch.create(tables(intrusion=False, **changes), max_epsilon="1", max_delta="1e-6")
        ledger = sketch.ledger
        assert isinstance(ledger, GaussianLedger)
        assert 0.9999 < ledger.loss().epsilon("1e-6") <= 1
        law = sketch.spec.layer()
        assert ledger.loss().mu2 == sketch.spec.weight**2 * sketch.spec.strategy.sensitivity2 / law.parameter
    covered = ss.Sketch.create(tables())
    assert covered.ledger.loss(intrusion=True).mu2 == 2 * covered.ledger.loss().mu2
    assert covered.ledger.loss(intrusion=True).epsilon("1e-6") <= 1
    for mechanism in ("laplace", "l2ball"):
        pure = ss.Sketch.create(tables(mechanism=mechanism, epsilon_publish="1/2"), max_epsilon="3/2")
        assert (pure.ledger.loss(), pure.ledger.loss(intrusion=True)) == (Fraction(1, 2), 1)


def test_releases_are_charged_and_budgets_hold() -> None:
    sketch = ss.Sketch.create(tables(), max_epsilon="0.9", max_delta="1e-6")
    before = sketch.ledger.loss().mu2
    release = sketch.release("1/2", "1e-7")
    assert sketch.ledger.loss().mu2 > before
    assert release.cost == sketch.spec.cost(sketch.spec.law(Fraction(1, 2), Fraction(1, 10**7)))
    with pytest.raises(BudgetError):
        sketch.release("3", "1e-6")
    assert sketch.ledger.loss().epsilon("1e-6") < 0.9
    with pytest.raises(BudgetError):
        ss.Sketch.create(tables(mechanism="laplace"), max_epsilon="1/2")
    with pytest.raises(SpecError, match="max_epsilon beside"):
        ss.Sketch.create(tables(), max_delta="1e-6")
    with pytest.raises(SpecError, match="delta of a release must be in"):
        sketch.release("1/10", 0)


def test_releases_answer_with_the_noise_that_they_have() -> None:
    sketch = filled(tables())
    release = ss.load(sketch.release("1/10", "1e-6").to_bytes())
    spec = sketch.spec
    found = release.estimate()
    law = spec.law(Fraction(1, 10), spec.delta)
    wanted = np.sqrt((spec.layer().variance + law.variance) * spec.variances)
    np.testing.assert_allclose(found.stderr, wanted)
    truth = spec.workload.apply(HISTOGRAM.astype(float))
    assert np.abs((found.values - truth) / found.stderr).max() < 6
    assert np.abs((sketch.seal().estimate().values - truth) / found.stderr).max() < 1


@pytest.mark.parametrize("join", [added, lambda *parts: ss.stack(parts)], ids=["merge", "stack"])
def test_partitions_are_added_up(join: Callable) -> None:
    spec = tables()
    halves = []
    for part in range(2):
        sketch = ss.Sketch.create(spec)
        sketch.update(spec.cells({name: values[part::2] for name, values in FIELDS.items()}), invalid="skip")
        halves.append(sketch.seal())
    found = ss.load(join(*halves).to_bytes()).estimate()
    truth = spec.workload.apply(HISTOGRAM.astype(float))
    assert len(found.layers) == 4
    assert np.abs((found.values - truth) / found.stderr).max() < 6
    np.testing.assert_allclose(found.stderr, np.sqrt(2) * halves[0].estimate().stderr)
    assert KIND.partitions == "merge"


def test_parts_of_a_stack_may_differ_in_privacy_and_not_in_strategy() -> None:
    one, two = (ss.Sketch.create(tables(epsilon=epsilon)).seal() for epsilon in ("1", "1/2"))
    assert len(ss.stack([one, two]).estimate().layers) == 4
    with pytest.raises(MergeError, match="strategy"):
        ss.stack([one, ss.Sketch.create(tables(mechanism="paper")).seal()])
    with pytest.raises(MergeError, match="epsilon"):
        ss.merge([one, two])


def test_projections_are_asked_for_by_name() -> None:
    sealed = filled(tables(n_bound=2000)).seal()
    projected = sealed.estimate("simplex", metric="answers")
    assert projected.projected == "simplex"
    assert projected.values[:3].sum() == pytest.approx(2000, rel=1e-6)
    ends, raw = (sealed.estimate(method).interval() for method in ("simplex", "unbiased"))
    assert (ends[:, 0] <= np.maximum(raw[:, 0], 0)).all()  # they stand on the unbiased answers, cut at 0
    assert (ends[:, 1] >= raw[:, 1]).all()
    assert all(row["low"] is not None for row in projected.rows())
    with pytest.raises(EstimateError, match="method must be one of"):
        sealed.estimate("best")
    with pytest.raises(EstimateError, match="takes method, metric, n_bound; found"):
        sealed.estimate(beta=1)
    with pytest.raises(EstimateError, match=r"\.estimate\(\)"):
        sealed.profile()


def test_guarantees_state_what_is_lost() -> None:
    said = filled(tables()).guarantee()
    data = said.to_dict()
    assert data["published_and_one_copy"].startswith("(epsilon 1, delta 1e-06; ")
    assert data["losses"]["published"]["epsilon"] < 0.75
    assert data["mu2_and_one_copy"] == str(2 * Fraction(data["mu2"]))
    assert "one event: whether it counted, and in which cell" in str(said)
    assert "<" in said._repr_html_()
    bare = ss.Sketch.create(tables(mechanism="laplace", intrusion=False)).guarantee()
    assert (bare.to_dict()["published"], bare.to_dict()["published_and_one_copy"]) == ("1", "unlimited")
    item = tables(unit="item", max_total=4)
    ledger = ss.Sketch.create(item).ledger
    day = KIND.guarantee(item, ledger, Context(window_ms=3_600_000, published_ms=7_200_000))
    assert day.total.gaussian.mu2 == 24 * ledger.loss().mu2  # type: ignore[union-attr]
    assert day.total_kept.gaussian.mu2 == 2 * ledger.loss().mu2  # type: ignore[union-attr]
    assert "at most 4 over all partitions" in str(day)
    with pytest.warns(ss.NoPrivacyWarning):
        loud = tables(epsilon="11")
    assert ss.Sketch.create(loud).guarantee().summary.startswith("NO PRIVACY")


def test_real_matrices_travel_with_what_is_published() -> None:
    random = np.random.default_rng(3)
    for matrix in (random.normal(size=(4, 30)), random.integers(-2, 3, (6, 20))):
        spec = ss.WorkloadSpec(matrix, "1", "1e-6", "gaussian", row_weights=range(1, len(matrix) + 1))
        sketch = ss.Sketch.create(spec)
        sketch.update(np.arange(2000) % matrix.shape[1])
        again = ss.load(sketch.seal().to_bytes())
        assert again.spec.fingerprint == spec.fingerprint
        found = again.estimate()
        truth = matrix @ np.bincount(np.arange(2000) % matrix.shape[1])
        assert np.abs((found.values - truth) / found.stderr).max() < 6


def test_altered_bytes_are_refused() -> None:
    sealed = ss.Sketch.create(tables()).seal()
    header, body = wire.unpack(sealed.to_bytes())
    header = {name: value for name, value in header.items() if name not in ("format", "codec", "body")}
    spec = tables(mechanism="paper").to_dict()
    for change in (
        {"spec": {**header["spec"], "strategy": spec["strategy"]}},
        {"spec": {**header["spec"], "max_weight": 2}},
        {"slots": 3},
    ):
        with pytest.raises((FormatError, SpecError)):
            ss.SealedState.from_header({**header, **change}, body)
    with pytest.raises(FormatError, match="counters"):
        ss.SealedState.from_header(header, body[:-1])


def test_what_does_not_apply_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tables()
    with pytest.raises(SpecError, match="keep does not apply"):
        ss.Sketch.create(spec, keep=np.ones(15, np.bool_))
    with pytest.raises(SpecError, match="names and sizes"):
        tables(workload="prefix:15")
    with pytest.raises(SpecError, match="no universe"):
        ss.WorkloadSpec("prefix:15", "1", "1e-6", "gaussian").cells(FIELDS)
    monkeypatch.setattr("sketchstream.kinds.workload.kind.MAX_PUBLISHED_BYTES", 100)
    with pytest.raises(SpecError, match="ask fewer queries"):
        ss.Sketch.create(spec)


def test_no_cell_and_no_weight_appear_in_messages() -> None:
    spec = ss.WorkloadSpec("prefix:8", "1", "1e-6", "gaussian", max_weight=2)
    sketch = ss.Sketch.create(spec)
    for items, weights, error in (([1, 48151], None, DomainError), ([1, 2], [1, 62342], WeightError)):
        with pytest.raises(error) as caught:
            sketch.update(items, weights)
        assert "position 1" in str(caught.value)
        assert not {"48151", "62342"} & set(str(caught.value).replace(";", " ").split())
    sketch.update([1] * 7, invalid="noop")
    assert "7" not in repr(sketch).replace("slots=8", "")
    assert ss.Sketch.create(spec).to_bytes().__len__() == sketch.to_bytes().__len__()


def test_wide_tables_are_answered_without_the_covariance_of_their_cells() -> None:
    matrix = np.random.default_rng(1).integers(0, 2, (6, 9000))
    spec = ss.WorkloadSpec(matrix, "1", "1e-6", "gaussian")
    wanted = np.sum((matrix @ spec.strategy.decoder) ** 2, axis=1)
    np.testing.assert_allclose(spec.variances, wanted, rtol=1e-9)
    assert "spread" not in vars(spec.strategy)
    assert math.isfinite(ss.Sketch.create(spec).seal().estimate().stderr.max())


def test_the_kind_is_found_by_its_name() -> None:
    assert kinds.by_name("workload") is KIND
    assert kinds.kind_of(tables()) is KIND
    facts = dict(KIND.facts(tables(n_bound=9), 11))
    assert facts["table"] == "origin (3) x delay (5)"
    assert facts["most individuals (a promise)"] == "9"
    assert Workload.from_dict(tables().to_dict()["workload"]).digest == tables().workload.digest


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "l2ball"])
@pytest.mark.parametrize(("epsilon", "delta"), [("1", "1e-6"), ("1/10", "1e-9"), ("4", "1e-3")])
@pytest.mark.filterwarnings("ignore::sketchstream.kinds.workload.spec.WorkloadWarning")
def test_a_counter_of_events_takes_its_share_of_every_cost(mechanism: str, epsilon: str, delta: str) -> None:
    alone = tables(mechanism=mechanism, epsilon=epsilon, delta=delta)
    beside = tables(mechanism=mechanism, epsilon=epsilon, delta=delta, counted_share="1/20", epsilon_records="1/10")
    assert ss.WorkloadSpec.from_dict(beside.to_dict()).fingerprint == beside.fingerprint != alone.fingerprint
    ledger = ss.Sketch.create(beside).ledger
    loss = ledger.loss(intrusion=True)
    lost = loss if beside.pure else loss.epsilon(beside.delta)  # type: ignore[union-attr]
    given = Fraction(epsilon)
    assert 0.98 * given < lost <= given
    ratio = beside.layer().parameter / alone.layer().parameter
    if beside.pure:
        assert ratio == Fraction(19, 20) ** (2 if mechanism == "l2ball" else 1)
    else:  # a little more, for the integers of a counter with small noise
        assert 20 / 19 <= ratio <= 20 / 19 * (1.005 if epsilon != "4" else 1.07)
    assert kinds.kind_of(beside).accounting.cost(beside, KIND.accounting.parameter(beside, Fraction(1, 7))) == Fraction(
        1, 7
    )


def test_events_are_counted_under_the_noise_that_the_header_names() -> None:
    spec = tables(intrusion=False, counted_share="1/4", epsilon_records="1/10")
    counted = []
    for _ in range(300):
        sketch = ss.Sketch.create(spec)
        sketch.update([0, 14, 15, 3, -1], invalid="noop")
        sketch.update([7, 99], invalid="skip")
        (found,) = [one for one in sketch.seal().counters if one.name == "counted"]
        counted.append(found.value - 4)
    (noise,) = found.noise
    assert noise.parameter == 1 / (KIND.accounting.creation_cost(spec) / 4)
    samples = np.array(counted)
    assert min(check.p_value for check in battery(samples, DiscreteGaussian(noise.parameter))) > 1e-7
    assert min(check.p_value for check in battery(samples, DiscreteGaussian(noise.parameter * 3))) < 1e-7
    for share in ({"counted_share": "1/4"}, {"epsilon_records": "1"}):
        with pytest.raises(SpecError, match="belongs to unit = 'event'"):
            tables(unit="item", max_total=2, **share)
    with pytest.raises(SpecError, match="counted_share"):
        tables(counted_share=1)
