"""A GaussianSpec is checked, calibrated and written down exactly."""

from __future__ import annotations

import warnings
from fractions import Fraction
from itertools import product

import pytest

import sketchstream as ss
from helpers.gaussian_attack import verified
from sketchstream.errors import SpecError
from sketchstream.kinds.gaussian.spec import LISTED_TOTAL, GaussianSpec
from sketchstream.privacy.calibration.discrete import verify_discrete
from sketchstream.spec import NoPrivacyWarning

SLOTS = ss.ClosedDomain(size=50)


def spec(**options: object) -> GaussianSpec:
    return GaussianSpec(**{"epsilon": "1", "delta": "1e-6", "domain": SLOTS, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "largest", "sensitivity2", "coordinates"),
    [
        ({}, (1, 1, 0), 1, 1),
        ({"max_weight": "2.75", "fraction_bits": 2}, (11, 1, 0), 121, 1),
        ({"max_weight": "2.9", "fraction_bits": 1}, (5, 1, 0), 25, 1),
        ({"unit": "item", "max_total": 7}, (7, 1, 0), 49, 7),
        ({"unit": "item", "max_total": 7, "max_per_slot": 2}, (2, 3, 1), 13, 7),
        ({"unit": "item", "max_total": "3.5", "max_per_slot": 1, "fraction_bits": 1}, (2, 3, 1), 13, 7),
        ({"unit": "item", "max_total": 1000, "max_per_slot": 1}, (1, 50, 0), 50, 100),
        ({"unit": "item", "max_total": 3, "max_per_slot": 9}, (3, 1, 0), 9, 3),
    ],
)
def test_largest_shifts(options: dict, largest: tuple, sensitivity2: int, coordinates: int) -> None:
    made = spec(**options)
    assert (made.largest_shape, made.sensitivity2, made.coordinates) == (largest, sensitivity2, coordinates)


@pytest.mark.parametrize(("total", "slot", "size"), [(4, 4, 3), (5, 2, 3), (3, 3, 1), (6, 1, 2), (4, 2, 2)])
def test_shapes_hold_every_shift_of_an_item_before_and_after_a_look(total: int, slot: int, size: int) -> None:
    made = spec(unit="item", max_total=total, max_per_slot=slot, domain=ss.ClosedDomain(size=size))
    shapes = made.shapes()
    assert shapes is not None
    assert len(set(shapes)) == len(shapes)
    allowed = set()
    for entries in product(range(slot + 1), repeat=2 * size):  # slot j before the look, then after it
        by_slot = [entries[2 * j] + entries[2 * j + 1] for j in range(size)]
        if any(entries) and sum(entries) <= total and max(by_slot) <= slot:
            allowed.add(tuple(sorted((one for one in entries if one), reverse=True)))
    assert allowed <= set(shapes)
    longest = max(sum(one * one for one in shape) for shape in allowed)
    assert max(sum(one * one for one in shape) for shape in shapes) == longest == made.sensitivity2
    assert max(map(len, shapes)) <= made.coordinates


def test_shapes_of_an_event_are_all_its_weights_and_long_lists_are_left_to_smoothing() -> None:
    assert spec(max_weight=3).shapes() == [(1,), (2,), (3,)]
    assert spec(max_weight=201).shapes() is None
    shapes = spec(unit="item", max_total=LISTED_TOTAL).shapes()
    assert shapes is not None
    assert len(shapes) == 194
    assert spec(unit="item", max_total=LISTED_TOTAL + 1).shapes() is None


@pytest.mark.parametrize(
    ("options", "sigma2", "route"),
    [
        ({}, Fraction(18330, 1024), "exact"),
        ({"epsilon": "0.1"}, Fraction(1349708, 1024), "exact"),
        ({"epsilon": 5}, Fraction(920, 1024), "exact"),
        ({"delta": "1e-9"}, Fraction(30975, 1024), "exact"),
        ({"max_weight": "0.25", "fraction_bits": 2}, Fraction(18330, 1024), "exact"),
    ],
)
def test_published_parameters(options: dict, sigma2: Fraction, route: str) -> None:
    made = spec(**options)
    assert (made.sigma2, made.calibration.route) == (sigma2, route)
    assert made.publish_sigma2 == sigma2
    assert made.calibration.delta <= made.delta
    assert made.mu2 == made.sensitivity2 / sigma2


def test_noise_is_calibrated_for_every_shape_and_less_is_refused() -> None:
    made = spec(unit="item", max_total=4, max_per_slot=2, epsilon=3)
    shapes = made.shapes()
    assert shapes is not None
    assert (2, 2) in shapes
    assert (1, 1, 1, 1) in shapes
    for shape in shapes:
        verify_discrete(3, "1e-6", made.sigma2, [shape])
    assert verified(made, made.sigma2, 3, "1e-6").sigma2 == made.sigma2
    with pytest.raises(SpecError, match="too small"):
        verified(made, made.sigma2 * Fraction(98, 100), 3, "1e-6")
    less = spec(unit="item", max_total=90, max_per_slot=10).sigma2
    with pytest.raises(SpecError, match="too small"):
        verified(spec(unit="item", max_total=100, max_per_slot=10), less, 1, "1e-6")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": -1}, "epsilon must be"),
        ({"epsilon": float("nan")}, "epsilon must be"),
        ({"epsilon": "51"}, "epsilon above 50 protects nobody"),
        ({"epsilon": 0}, "epsilon must be a positive rational"),
        ({"epsilon": "1e-7"}, "epsilon must be at least 1e-6"),
        ({"delta": 0}, r"delta must be in \[1e-300, 0.5\]"),
        ({"delta": "0.6"}, "delta must be in"),
        ({"delta": float("nan")}, "delta must be in"),
        ({"delta_publish": 1}, "delta_publish must be in"),
        ({"max_weight": 0}, "max_weight must be at least one lattice unit"),
        ({"max_weight": "0.3", "fraction_bits": 1}, "at least one lattice unit"),
        ({"max_weight": 1 << 40}, "below 2\\^40"),
        ({"unit": "person"}, "unit must be"),
        ({"unit": "item"}, "needs max_total"),
        ({"unit": "item", "max_total": -1}, "max_total must be"),
        ({"max_total": 3}, "belong to unit = 'item'"),
        ({"fraction_bits": 41}, "fraction_bits must be"),
        ({"fraction_bits": -1}, "fraction_bits must be"),
        ({"fraction_bits": 22}, "capacity times"),
        ({"capacity": 0}, "capacity must be"),
        ({"intrusion": None}, "intrusion must be"),
        ({"intrusion": False, "epsilon_publish": 1}, "fresh noise"),
        ({"domain": ss.OpenDomain(slots=64)}, "needs a ClosedDomain"),
        ({"domain": None}, "needs a ClosedDomain"),
        ({"domain": ss.ClosedDomain(size=9, sample_rate="0.5")}, "sample_rate"),
    ],
)
def test_what_cannot_be_is_refused(options: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec(**options)


@pytest.mark.filterwarnings("ignore:epsilon above")
@pytest.mark.parametrize("epsilon", ["0", "1000"])
def test_stored_specs_of_former_ranges_are_read(epsilon: str) -> None:
    data = spec().to_dict() | {"epsilon": epsilon, "epsilon_publish": epsilon}
    assert GaussianSpec.from_dict(data).epsilon == int(epsilon)
    with pytest.raises(SpecError, match="from 0 to 1000"):
        GaussianSpec.from_dict(data | {"epsilon": "1001"})


def test_noise_that_has_no_room_is_refused_when_it_is_calibrated() -> None:
    with pytest.raises(SpecError, match="2\\^40"):
        _ = spec(epsilon="1e-6", delta="1e-15", max_weight=1 << 30).sigma2


def test_warnings_for_what_protects_little() -> None:
    with pytest.warns(NoPrivacyWarning, match="NO PRIVACY"):
        assert spec(epsilon=11).no_privacy
    with pytest.warns(NoPrivacyWarning, match="delta above"):
        spec(delta="0.01")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spec(epsilon="1e-6")


def test_specs_survive_being_written_down_and_fingerprints_tell_them_apart() -> None:
    made = [
        spec(),
        spec(epsilon="1/3"),
        spec(delta="1e-7"),
        spec(max_weight=2),
        spec(fraction_bits=1),
        spec(unit="item", max_total=4),
        spec(unit="item", max_total=4, max_per_slot=2),
        spec(unit="item", max_total=4, max_weight=1),
        spec(intrusion=False),
        spec(epsilon_publish="1/2"),
        spec(delta_publish="1e-8"),
        spec(capacity=1000),
        spec(domain=ss.ClosedDomain(size=51)),
    ]
    assert len({one.fingerprint for one in made}) == len(made)
    for one in made:
        again = GaussianSpec.from_dict(one.to_dict())
        assert again == one
        assert again.fingerprint == one.fingerprint
    listed = spec(domain=ss.ClosedDomain(items=["a", "b"]))
    assert GaussianSpec.from_dict(listed.to_dict(), items=["a", "b"]) == listed
    outline = GaussianSpec.from_dict(listed.to_dict())
    assert outline.fingerprint == listed.fingerprint
    for data, items, message in (
        (listed.to_dict(), ["b", "a"], "not the one"),
        ({**spec().to_dict(), "kind": "profile"}, None, "kind 'gaussian'"),
        ({**spec().to_dict(), "more": 1}, None, "does not know"),
        ({**spec().to_dict(), "domain": {"kind": "open", "slots": 9}}, None, "closed domain"),
    ):
        with pytest.raises(SpecError, match=message):
            GaussianSpec.from_dict(data, items=items)
