"""The specification of a projection: what it refuses, its plain form, its fingerprint, secret seeds, sensitivities."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import pytest

import sketchstream as ss
from helpers.projection_attack import secret_loss_delta, verify
from sketchstream.errors import SpecError
from sketchstream.kinds.projection.mechanism import (
    creation_sigma2,
    publication_sigma2,
    row_norm2,
    sensitivity2,
)
from sketchstream.kinds.projection.spec import IdentityRowsWarning, ProjectionSpec, secret_seed

EVENT: dict[str, Any] = {"users": 10, "features": 200, "k": 64, "epsilon": "1", "delta": "1e-6"}
ITEM: dict[str, Any] = {**EVENT, "unit": "item"}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"users": 0}, "size of a ClosedDomain"),
        ({"users": "ten"}, "users must be a ClosedDomain or a number, found str"),
        ({"features": ss.ClosedDomain(size=9, sample_rate="1/2")}, "cannot be sampled"),
        ({"k": 0}, "k must be"),
        ({"k": 4097}, "k must be a whole number from 1 to 4096"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"delta": "0.6"}, "delta"),
        ({"unit": "user"}, "unit must be"),
        ({"max_weight": 0}, "max_weight must be a number of at least one lattice unit"),
        ({"max_weight": float("inf")}, "max_weight"),
        ({"max_weight": "1/2"}, "at least one lattice unit"),
        ({"max_weight": 2**40}, "at most the capacity"),
        ({"max_total": 3}, "belong to unit = 'item'"),
        ({"fraction_bits": 31}, "fraction_bits must be"),
        ({"fraction_bits": 30}, "capacity must be"),
        ({"capacity": 2**53}, "capacity must be"),
        ({"matrix": "sparse"}, "matrix must be one of"),
        ({"matrix": "srht", "features": 20}, "k must be at most 32"),
        ({"matrix_seed": "hidden"}, "matrix_seed must be"),
        ({"matrix_seed": "secret"}, "gains only for unit = 'item'"),
        ({"seed": b"short"}, "seed must be 32 bytes"),
        ({"seed": "zz" * 32}, "seed must be 32 bytes"),
        ({"features": 1 << 25}, "use matrix = 'rademacher'"),
        ({"intrusion": None}, "intrusion must be"),
        ({"epsilon_publish": 99}, "epsilon_publish"),
        ({"unit": "item"}, "needs max_total or max_norm"),
        ({"unit": "item", "max_weight": 1}, "max_weight belongs to unit = 'event'"),
        ({"unit": "item", "max_total": 1, "max_features": 2}, "max_features needs max_norm"),
        ({"unit": "item", "max_norm": 1, "matrix": "srht", "matrix_seed": "secret"}, "independent columns"),
        ({"unit": "item", "max_norm": 1, "max_total": 1, "matrix_seed": "secret"}, "max_norm alone"),
        ({"unit": "item", "max_norm": 1, "matrix_seed": "secret", "seed": bytes(32)}, "derived from the sketch's key"),
        ({"unit": "item", "max_norm": 1, "matrix": "rademacher", "features": 1 << 25}, "use matrix = 'srht'"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], found: str) -> None:
    with pytest.raises(SpecError, match=found):
        ProjectionSpec(**{**EVENT, **changes})


def test_warnings_name_what_is_wrong() -> None:
    with pytest.warns(IdentityRowsWarning, match="identity rows would be more accurate"):
        ProjectionSpec(**ITEM, max_norm=2)
    with pytest.warns(ss.NoPrivacyWarning, match="delta above"):
        ProjectionSpec(**{**EVENT, "delta": "0.01"})
    with pytest.warns(ss.NoPrivacyWarning, match="NO PRIVACY"):
        ProjectionSpec(**{**EVENT, "epsilon": 11})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ProjectionSpec(**ITEM, max_norm=2, max_total=3)
        ProjectionSpec(**ITEM, max_norm=2, matrix_seed="secret")
        ProjectionSpec(**{**ITEM, "users": 1 << 20}, max_norm=2, matrix="srht")


def test_the_plain_form_gives_the_spec_back() -> None:
    users, features = ["a", "b", 3], ["x", "y", "z"]
    one = ProjectionSpec(
        ss.ClosedDomain(items=users), ss.ClosedDomain(items=features), 2, "0.5", "1e-7", "item",
        max_total="7/2", max_norm=3, max_features=2, matrix="srht", seed="ab" * 32, fraction_bits=3,
        capacity=1000, intrusion=False,
    )  # fmt: skip
    again = ProjectionSpec.from_dict(one.to_dict(), users, features)
    assert (again, again.fingerprint, again.needs_key) == (one, one.fingerprint, True)
    outline = ProjectionSpec.from_dict(one.to_dict())
    assert outline.fingerprint == one.fingerprint
    assert publication_sigma2(one) == 0
    plain = ProjectionSpec(**EVENT)
    assert not plain.needs_key
    assert ProjectionSpec.from_dict(plain.to_dict()) == plain
    prints = {plain.fingerprint}
    for changes in ({"k": 63}, {"delta": "1e-7"}, {"seed": bytes(32)}, {"max_weight": 2}, {"matrix": "srht"}):
        prints.add(ProjectionSpec(**{**EVENT, **changes}).fingerprint)
    assert len(prints) == 6
    with pytest.raises(SpecError, match="list of items is not the one"):
        ProjectionSpec.from_dict(one.to_dict(), ["a", "b", "3"], features)
    with pytest.raises(SpecError, match="fields that this version does not know"):
        ProjectionSpec.from_dict({**plain.to_dict(), "colour": 1})
    with pytest.raises(SpecError, match="expected a spec of kind 'projection'"):
        ProjectionSpec.from_dict({**plain.to_dict(), "kind": "profile"})


def test_sensitivities_follow_the_promises() -> None:
    event = ProjectionSpec(**EVENT, max_weight="2.7")
    assert sensitivity2(event) == 4 * 390579  # weights are whole: 2 at most
    finer = ProjectionSpec(**EVENT, max_weight="2.7", fraction_bits=2)
    assert sensitivity2(finer) == 100 * 390579  # 10 quarters
    total = ProjectionSpec(**ITEM, max_total=5)
    assert sensitivity2(total) == 25 * 390579
    with pytest.warns(IdentityRowsWarning):
        dense = ProjectionSpec(**ITEM, max_norm=5)
    assert float(sensitivity2(dense)) ** 0.5 == pytest.approx(5 * 1391.07208705, rel=1e-10)
    sparse = ProjectionSpec(**ITEM, max_norm=1, max_features=4)
    assert float(sensitivity2(sparse)) ** 0.5 == pytest.approx(906.0927104, rel=1e-9)
    both = ProjectionSpec(**ITEM, max_norm=5, max_total=6)
    assert sensitivity2(both) == 36 * 390579 < sensitivity2(dense)
    assert sensitivity2(ProjectionSpec(**EVENT, matrix="rademacher")) == 64
    assert (row_norm2(both), row_norm2(finer)) == (25, 100)


def test_layers_are_verified_and_measured() -> None:
    spec = ProjectionSpec(**EVENT)
    layer = creation_sigma2(spec)
    assert abs(layer * 1024 - 7138328076) <= 8
    assert publication_sigma2(spec) == layer
    assert verify(spec, spec.epsilon, spec.delta, layer) <= 1e-6
    with pytest.raises(SpecError, match="too small"):
        verify(spec, spec.epsilon, spec.delta, layer * Fraction(9, 10))


def test_secret_matrices_take_less_noise_and_a_seed_from_the_key() -> None:
    spec = ProjectionSpec(**ITEM, max_norm=5, matrix_seed="secret")
    key = ss.Key(bytes(16))
    seeds = {
        secret_seed(key, spec, "a", "1"),
        secret_seed(key, spec, "a", "2"),
        secret_seed(key, spec, "b", "1"),
        secret_seed(key, spec, "a1", ""),
        secret_seed(ss.Key(bytes([1] * 16)), spec, "a", "1"),
        secret_seed(key, ProjectionSpec(**ITEM, max_norm=6, matrix_seed="secret"), "a", "1"),
    }
    assert len(seeds) == 6
    assert all(len(one) == 32 for one in seeds)
    assert spec.needs_key
    assert spec.seed is None
    seed = secret_seed(key, spec, "a", "1")
    assert spec.projection_matrix(seed).features == 200
    assert seed.hex() not in repr((spec, spec.projection_matrix(seed), spec.to_dict()))
    layer = creation_sigma2(spec)
    with pytest.warns(IdentityRowsWarning):
        public = ProjectionSpec(**ITEM, max_norm=5)
    assert creation_sigma2(public) > 6 * layer
    assert secret_loss_delta(spec, spec.epsilon, layer, Fraction(1)) <= 1e-6
    assert secret_loss_delta(spec, spec.epsilon, layer, Fraction(1, 2)) < 1e-8
    assert secret_loss_delta(spec, spec.epsilon, layer, Fraction(2)) > 1e-4
    assert verify(spec, spec.epsilon, spec.delta, layer) <= 1e-6
    for call in (lambda: spec.projection_matrix(), lambda: sensitivity2(spec)):
        with pytest.raises(SpecError, match="needs secret seed"):
            call()
    with pytest.raises(SpecError, match="takes no secret seed"):
        ProjectionSpec(**EVENT).projection_matrix(bytes(32))
    with pytest.raises(SpecError, match="has a public one"):
        secret_seed(key, ProjectionSpec(**EVENT), "a")
    with pytest.raises(SpecError, match="needs a Key, found NoneType"):
        secret_seed(None, spec, "a")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="loss for a public matrix"):
        secret_loss_delta(public, public.epsilon, layer, Fraction(1))


@pytest.mark.parametrize(("epsilon", "delta"), [("1", "1e-6"), ("1/10", "1e-9"), ("4", "1e-3")])
@pytest.mark.parametrize("matrix", ["gaussian", "rademacher", "srht"])
def test_a_counter_of_events_takes_its_share_of_every_cost(matrix: str, epsilon: str, delta: str) -> None:
    fields = {**EVENT, "epsilon": epsilon, "delta": delta, "matrix": matrix}
    alone = ProjectionSpec(**fields)
    beside = ProjectionSpec(**fields, counted_share="1/20", epsilon_records="1/10")
    assert ProjectionSpec.from_dict(beside.to_dict()).fingerprint == beside.fingerprint != alone.fingerprint
    lost = ss.Sketch.create(beside).ledger.loss(intrusion=True).epsilon(beside.delta)  # type: ignore[union-attr]
    assert 0.93 * Fraction(epsilon) < lost <= Fraction(epsilon)
    ratio = creation_sigma2(beside) / creation_sigma2(alone)
    assert 20 / 19 <= ratio <= 20 / 19 * (1.005 if epsilon != "4" else 1.25)
    assert verify(beside, beside.epsilon, beside.delta, creation_sigma2(beside)) <= beside.delta
    with pytest.raises(SpecError, match="is too small"):
        verify(beside, beside.epsilon, beside.delta, creation_sigma2(alone) * Fraction(9, 10))


def test_items_have_no_counters_of_events() -> None:
    for share in ({"counted_share": "1/4"}, {"epsilon_records": "1"}):
        with pytest.raises(SpecError, match=r"belongs? to unit = 'event'"):
            ProjectionSpec(**ITEM, max_total=5, **share)
    with pytest.raises(SpecError, match="counted_share"):
        ProjectionSpec(**EVENT, counted_share=1)
