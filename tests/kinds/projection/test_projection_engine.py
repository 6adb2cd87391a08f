"""Projections through the engine: pairs of a row and an item, secret matrices, answers from what was published."""

from __future__ import annotations

import json
import logging
import math
import pickle
import re
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sketchstream as ss
from helpers.noise.words import Seeded
from helpers.paths import ROOT
from helpers.projection_attack import secret_loss_delta
from sketchstream import kinds
from sketchstream.errors import DomainError, EstimateError, ItemError, MergeError, SealedError, SpecError, WeightError
from sketchstream.kinds.projection import mechanism
from sketchstream.kinds.projection.mechanism import matrix_of, secret_scope
from sketchstream.kinds.projection.secret import SecretLedger, SecretLoss
from sketchstream.noise import discrete_gaussian
from sketchstream.noise.laws import DiscreteGaussian, battery
from sketchstream.privacy.losses.gaussian import GaussianLoss

KEY = ss.Key(bytes(range(16)))
NAMES = [f"user {i}" for i in range(9)]


def public(**options: Any) -> ss.ProjectionSpec:
    """A small public projection."""
    k = None if options.get("matrix") == "identity" else 32
    return ss.ProjectionSpec(9, 40, k, "1", "1e-6", **{"matrix": "rademacher", "max_weight": 1000, **options})


def secret(**options: Any) -> ss.ProjectionSpec:
    """A small projection with a secret matrix."""
    fields = {"unit": "item", "max_norm": 1, "matrix_seed": "secret", **options}
    return ss.ProjectionSpec(9, 40, 32, "1", "1e-6", **fields)


def moved(sketch: ss.Sketch, *batch: Any, **options: Any) -> np.ndarray:
    """What an update adds to the state."""
    assert sketch._state is not None
    before = sketch._state.copy()
    sketch.update(*batch, **options)
    return (sketch._state - before).reshape(-1, sketch.spec.k)


def test_a_record_moves_the_row_of_its_user_by_the_row_of_its_feature() -> None:
    spec = public()
    rows = spec.projection_matrix().rows([3, 7]).astype(np.int64)
    expected = np.zeros((9, 32), np.int64)
    expected[2], expected[8] = rows[0] - 5 * rows[1], 2 * rows[1]
    users, features, weights = [2, 2, 8], [3, 7, 7], [1, -5, 2]
    for batch in (
        list(zip(users, features, strict=True)),
        ss.Pairs(users, features),
        np.array([users, features]).T,
    ):
        assert np.array_equal(moved(ss.Sketch.create(spec), batch, weights), expected)
    assert len(ss.Pairs(users, features)) == 3
    listed = public_listed()
    named = [(NAMES[u], f"feature {j}") for u, j in zip(users, features, strict=True)]
    assert np.array_equal(moved(ss.Sketch.create(listed, KEY), named, weights), expected)


def public_listed() -> ss.ProjectionSpec:
    """The same projection of listed users and features."""
    features = ss.ClosedDomain(items=[f"feature {j}" for j in range(40)])
    return ss.ProjectionSpec(
        ss.ClosedDomain(items=NAMES), features, 32, "1", "1e-6", matrix="rademacher", max_weight=1000
    )


@pytest.mark.parametrize("matrix", ["gaussian", "rademacher", "srht", "identity", "secret"])
def test_states_are_the_projected_rows_plus_their_noise_and_nothing_else(
    matrix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same noise twice: any order, any split, merges and deletions leave exactly X R and the noise."""
    spec = secret(max_norm=1000, fraction_bits=2) if matrix == "secret" else public(matrix=matrix, fraction_bits=2)

    def created(seed: int) -> ss.Sketch:
        origin = ss.Origin(name="rows", window=(0, 10), partition=seed, partitions=(4,))
        source = Seeded(seed)
        with monkeypatch.context() as patch:
            drawn = "sketchstream.noise.discrete_gaussian"
            patch.setattr(drawn, lambda state, s2: discrete_gaussian(state, s2, source))
            return ss.Sketch.create(spec, KEY, origin=origin)

    def cells(sketch: ss.Sketch) -> np.ndarray:
        assert sketch._state is not None
        return sketch._state.reshape(-1, spec.k).copy()

    random = np.random.default_rng(21)
    events = np.column_stack([random.integers(0, 9, 400), random.integers(0, 40, 400)])
    quarters = random.integers(-4000, 4001, 400)
    rows = np.zeros((9, 40), np.int64)
    np.add.at(rows, (events[:, 0], events[:, 1]), quarters)
    noise = [cells(created(seed)) for seed in range(2)]
    assert not np.array_equal(*noise)
    whole = created(0)
    image = rows @ matrix_of(spec, KEY, secret_scope(whole.origin)).rows(np.arange(40)).astype(np.int64)
    whole.update(events, quarters / 4)
    assert np.array_equal(cells(whole) - noise[0], image)
    parts, order = [created(0), created(1)], random.permutation(400)
    for part, chosen in zip(parts, (order[:90], order[90:]), strict=True):
        for batch in np.array_split(chosen, 3):
            part.update(events[batch], quarters[batch] / 4)
    assert np.array_equal(cells(ss.merge(parts)) - noise[0] - noise[1], image)
    whole.update(events[order], -quarters[order] / 4)
    assert np.array_equal(cells(whole), noise[0])


def test_bad_batches_say_where_and_never_what() -> None:
    sketch = ss.Sketch.create(public_listed(), KEY)
    good = [(NAMES[0], "feature 1"), (NAMES[1], "feature 2")]
    for batch, weights, wrong in (
        ([*good, ("marked-user", "feature 1")], None, DomainError),
        ([*good, (NAMES[0], "marked-feature")], None, DomainError),
        ([*good, good[0]], [1, 2, 77_777], WeightError),
    ):
        with pytest.raises(wrong, match="position 2") as caught:
            sketch.update(batch, weights)
        assert not any(word in str(caught.value) for word in ("marked", "77"))
    assert (moved(sketch, [*good, ("marked", "feature 1")], [1, 1, 1], invalid="skip") != 0).any(axis=1).sum() == 2
    assert sketch.outside([*good, ("marked-user", "feature 1")]) == 1
    for bad in (["ab"], "ab", [(1, 2, 3)], np.zeros(3, int), {"user": 1}):
        with pytest.raises(ItemError):
            sketch.update(bad)
    with pytest.raises(ItemError, match="2 rows and 1 items"):
        ss.Pairs([1, 2], [1])
    with pytest.raises(SpecError, match="keep"):
        ss.Sketch.create(public(), keep=np.ones(9, bool))


def test_an_interrupted_batch_leaves_the_state_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchstream.kinds.projection.matrices import kernels

    spec = public(counted_share="1/4")
    monkeypatch.setattr("sketchstream.kinds.projection.matrices.matrix.PRECOMPUTED", 0)
    monkeypatch.setattr(mechanism, "EVENTS", 10)
    sketch, calls, add = ss.Sketch.create(spec), [], kernels.add_rows

    def interrupted(*args: Any) -> None:
        calls.append(1)
        add(*args)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(mechanism, "add_rows", interrupted)
    monkeypatch.setattr("sketchstream.kinds.projection.mechanism.PRECOMPUTED", spec.k)
    assert sketch._state is not None
    before, counted = sketch._state.copy(), sketch._content.counters.values.copy()
    with pytest.raises(KeyboardInterrupt):
        sketch.update([(i % 9, i % 40) for i in range(50)])
    assert len(calls) > 3
    assert np.array_equal(sketch._state, before)
    assert np.array_equal(sketch._content.counters.values, counted)


def test_events_are_counted_under_the_noise_that_the_header_names() -> None:
    spec = public(counted_share="1/4", epsilon_records="1/10", intrusion=False)
    counted = []
    for _ in range(300):
        sketch = ss.Sketch.create(spec)
        # unknown users and features, and weights that are too large or none, are no events
        sketch.update([(0, 1), (8, 39), (9, 1), (-1, 1), (3, 40), (3, 3)], [1, -1000, 1, 1, 1, 1001], invalid="noop")
        sketch.update([(2, 2), (2, 99)], invalid="skip")
        sketch.update([(4, 4)])
        (found,) = [one for one in sketch.seal().counters if one.name == "counted"]
        counted.append(found.value - 4)
    (noise,) = found.noise
    assert noise.parameter == 4 / kinds.kind_of(spec).accounting.creation_cost(spec)
    samples = np.array(counted)
    assert min(check.p_value for check in battery(samples, DiscreteGaussian(noise.parameter))) > 1e-7
    assert min(check.p_value for check in battery(samples, DiscreteGaussian(noise.parameter * 3))) < 1e-7


def test_answers_of_states_releases_merges_and_stacks_are_those_of_the_rows() -> None:
    spec = public(epsilon_publish=9, delta_publish="1e-3")
    rng = np.random.default_rng(3)
    pairs = np.column_stack([rng.integers(0, 9, 600), rng.integers(0, 40, 600)])
    weights = rng.integers(-1000, 1001, 600)
    rows = np.zeros((9, 40))
    np.add.at(rows, (pairs[:, 0], pairs[:, 1]), weights)
    halves = [slice(0, 300), slice(300, None)]

    def parts() -> list[ss.Sketch]:
        made = [ss.Sketch.create(spec) for _ in halves]
        for part, half in zip(made, halves, strict=True):
            part.update(pairs[half], weights[half])
        return made

    release = [part.release("9", "1e-3") for part in parts()]
    sealed = [part.seal() for part in parts()]
    one, image = ss.merge(parts()).seal(), rows @ spec.projection_matrix().rows(np.arange(40))
    fresh = kinds.kind_of(spec).accounting.parameter(spec, release[0].cost)
    first, last = mechanism.creation_sigma2(spec), mechanism.publication_sigma2(spec)
    for published, variance in (
        (one, 2 * first + last),
        (ss.merge(sealed), 2 * (first + last)),
        (ss.stack(sealed), 2 * (first + last)),
        (ss.stack(release), 2 * (first + fresh)),
    ):
        found = published.estimate()
        assert found.variance == variance
        residual = (found.cells - image) / math.sqrt(variance)
        assert np.abs(residual).max() < 6
        assert 0.6 < residual.std() < 1.4
        again = ss.load(published.to_bytes()).estimate()
        assert json.dumps(again.to_dict()) == json.dumps(found.to_dict())
    table = one.estimate(distance=[(0, 1), (2, 2)])
    assert [row["other"] for row in list(table.rows())] == [1, 2]
    assert list(table.rows())[1]["value"] == 0
    assert next(table.rows())["value"] == float(one.estimate().distance(0, 1))
    near = one.estimate(nearest=[4, 5], count=3)
    assert [row["user"] for row in near.rows()] == [4, 4, 4, 5, 5, 5]
    assert "neighbour" in str(near)
    assert len(json.loads(near.to_json())["labels"]["neighbour"]) == 6
    assert str(one.estimate()).count("\n") == 9
    for wrong in ({"distance": [(0, 1)], "nearest": [1]}, {"count": 3}, {"method": "mean"}, {"distance": [3]}):
        with pytest.raises(EstimateError):
            one.estimate(**wrong)
    with pytest.raises(DomainError):
        one.estimate(nearest=[9])


def test_names_are_told_where_the_lists_are_at_hand() -> None:
    sketch = ss.Sketch.create(public_listed(), KEY)
    sketch.update([(NAMES[1], "feature 1")], [1000])
    again = ss.Sketch.from_bytes(sketch.to_bytes(), KEY)
    assert again.spec.users.items == tuple(NAMES)
    sealed = ss.load(again.seal().to_bytes())
    assert [row["user"] for row in sealed.estimate().rows()] == list(range(9))
    named = sealed.estimate(users=NAMES, nearest=NAMES[1], count=50).rows()
    assert {row["neighbour"] for row in named} == {*NAMES} - {NAMES[1]}
    with pytest.raises(SpecError):
        sealed.estimate(users=NAMES[::-1])


@pytest.mark.parametrize("matrix", ["gaussian", "rademacher", "srht", "identity"])
@pytest.mark.parametrize("bound", [{"max_weight": 3}, {"unit": "item", "max_weight": None, "max_norm": 2}])
def test_the_ledger_confirms_what_the_spec_promises(matrix: Any, bound: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        spec = public(matrix=matrix, epsilon_publish="1/2", delta_publish="1e-7", **bound)
    ledger = ss.Sketch.create(spec).ledger
    looked = ledger.loss(intrusion=True)
    assert looked.delta(spec.epsilon) <= spec.delta
    assert looked.epsilon(spec.delta) <= spec.epsilon * (1 + Fraction(1, 10**11))
    assert looked.epsilon(spec.delta) > (0.97 if matrix == "identity" else 0.99)  # few weights fit the promise exactly
    assert ledger.loss().delta("1/2") < spec.delta_publish
    bare = mechanism.creation_sigma2(spec) * Fraction(98, 100)
    assert GaussianLoss.of(ledger.history, ledger.shift, look=True).mu2 < ledger.shift.cost(bare)
    budget = ss.Sketch.create(spec, max_epsilon="0.6", max_delta="1e-6")
    with pytest.raises(ss.BudgetError):
        budget.release("2", "1e-6")
    with pytest.raises(SpecError, match="max_delta"):
        ss.Sketch.create(spec, max_delta="1e-6")
    assert ss.Sketch.create(spec, max_epsilon="2").ledger.budget.delta == spec.delta


def test_secret_matrices_are_never_released_and_never_leave() -> None:
    spec = secret()
    origin = ss.Origin(name="rows", window=(0, 1000))
    sketch = ss.Sketch.create(spec, KEY, origin=origin)
    sketch.update([(0, 1)])
    seed = matrix_of(spec, KEY, secret_scope(origin)).seed
    with pytest.raises(SpecError, match="published once"):
        sketch.release("1", "1e-6")
    for thing in (sketch, sketch._index, sketch._index.matrix, sketch.spec):
        text = f"{thing!r} {thing}"
        assert seed.hex() not in text
        assert repr(seed) not in text
    for refused in (sketch, sketch._index):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(refused)
    opened = sketch.to_bytes()
    again = ss.Sketch.from_bytes(opened, KEY)
    assert again._index.matrix == sketch._index.matrix
    sealed = again.seal()
    assert isinstance(sealed, ss.SealedState)
    for data in (opened, sealed.to_bytes(), pickle.dumps(sealed.estimate()), json.dumps(sealed.estimate().to_dict())):
        raw = data if isinstance(data, bytes) else data.encode()
        assert seed not in raw
        assert seed.hex().encode() not in raw
    with pytest.raises(SealedError, match="sealed"):
        again.update([(0, 1)])
    for refused in (again.seal, again.to_bytes):
        with pytest.raises(SealedError):
            refused()
    with pytest.raises(SealedError, match="seal or release first"):
        sketch.estimate()
    assert sealed.guarantee().to_dict()["unit"] == "item"
    assert "depends on it" in str(sealed.guarantee())
    with pytest.raises(EstimateError, match="secret"):
        sealed.estimate().feature(0, 1)
    known = sealed.estimate(key=KEY)
    assert known.feature(0, 1).stderr > 0
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(known)
    with pytest.raises(EstimateError, match="another hash key"):
        sealed.estimate(key=ss.Key.generate())


def test_secret_states_are_added_within_their_window_only() -> None:
    spec = secret()

    def sealed(window: tuple[int, int], partition: int, name: str = "rows") -> Any:
        origin = ss.Origin(name=name, window=window, partition=partition, partitions=(2,))
        sketch = ss.Sketch.create(spec, KEY, origin=origin)
        sketch.update([(0, 1)])
        return sketch.seal()

    same = [sealed((0, 10), 0), sealed((0, 10), 1)]
    found = ss.merge(same).estimate(key=KEY)
    assert found.variance == 2 * (mechanism.creation_sigma2(spec) + mechanism.publication_sigma2(spec))
    assert ss.stack(same).estimate().cells.shape == (9, 32)
    for other in (sealed((10, 20), 0), sealed((0, 10), 0, "others")):
        with pytest.raises(MergeError, match="across"):
            ss.merge([same[0], other])
        with pytest.raises(MergeError):
            ss.stack([same[0], other]).estimate()
    matrices = {matrix_of(spec, KEY, secret_scope(part.origin)) for part in [*same, sealed((10, 20), 0)]}
    assert len(matrices) == 2
    free = [ss.Sketch.create(public()).seal() for _ in range(2)]
    assert ss.merge(free).slots == 9 * 32


def test_losses_of_secret_matrices_are_those_of_the_mixture() -> None:
    spec = secret()
    ledger = ss.Sketch.create(spec, KEY).ledger
    assert isinstance(ledger, SecretLedger)
    looked, quiet = ledger.loss(intrusion=True), ledger.loss()
    assert looked.delta(spec.epsilon) <= spec.delta
    assert 0.98 < looked.epsilon(spec.delta) < 1 + 1e-6
    assert isinstance(quiet, SecretLoss)
    assert quiet.mean * 2 == looked.mean
    views = secret_loss_delta(spec, Fraction(1), mechanism.creation_sigma2(spec), Fraction(1, 2))
    assert quiet.delta(1) == pytest.approx(views, rel=1e-6)
    # the mean of mu^2 taken for a known one would promise too much
    mean = GaussianLoss.of(ledger.history, ledger.shift, unit="item", look=True)
    assert mean.delta(1) < looked.delta(1) / 5
    assert looked.delta(1) > secret_loss_delta(spec, Fraction(2), mechanism.creation_sigma2(spec), Fraction(1))
    # whoever knows nothing of secret matrices finds no bound, and nothing is added up wrongly
    for one in (quiet + mean, mean + quiet, GaussianLoss.worst([quiet, mean])):
        assert one.delta(30) == 1.0
        assert one.mu2 == math.inf
    assert quiet + GaussianLoss.none() is quiet
    assert GaussianLoss.none() + quiet is quiet
    several = quiet.times(3)
    assert quiet.epsilon("1e-6") < several.epsilon("1e-6") < 3 * quiet.epsilon("1e-6")
    kept = kinds.kind_of(spec).accounting.read_ledger(spec, ledger.to_dict())
    assert kept == ledger
    assert ledger.totals()["budget"] is None


def test_pairs_that_are_asked_for_reach_no_log_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sketch = ss.Sketch.create(public_listed(), KEY)
    sketch.update([(NAMES[7], "feature 3")], [1000])
    sealed = ss.load(sketch.seal().to_bytes())
    for question in ({"nearest": ["marked-user"]}, {"distance": [("marked-user", NAMES[0])]}):
        with pytest.raises(DomainError) as caught:
            sealed.estimate(users=NAMES, **question)
        assert "marked" not in str(caught.value)
    assert "marked" not in caplog.text
    assert NAMES[7] not in caplog.text
    assert NAMES[7].encode() not in sealed.to_bytes()


def test_examples_of_the_document_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "theory" / "projection.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "projection.md", "exec"), {})
    assert "one event is at most epsilon 0.6878 at delta 1e-06 against" in capsys.readouterr().out
