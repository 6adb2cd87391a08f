"""Calibration of discrete Gaussian noise: published vectors, both routes against exact summation, refusals."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sketchstream as ss
from sketchstream.errors import SpecError
from sketchstream.privacy.calibration import discrete
from sketchstream.privacy.calibration.discrete import discrete_delta_of, verify_discrete


def exact_delta(epsilon: Any, sigma2: Any, shape: tuple[int, ...], reach: int = 60) -> Any:
    """Delta of one shift by its definition: the sum over all vectors near 0, at 60 digits."""
    eps, s2 = mpmath.mpf(epsilon), mpmath.mpf(sigma2)
    weight = [mpmath.exp(-k * k / (2 * s2)) for k in range(reach + max(shape) + 1)]
    total = mpmath.fsum(weight) * 2 - 1
    grown = mpmath.exp(eps)
    out = mpmath.mpf(0)
    for point in itertools.product(range(-reach, reach + 1), repeat=len(shape)):
        here = math.prod((weight[abs(k)] for k in point), start=mpmath.mpf(1))
        there = math.prod((weight[abs(k - v)] for k, v in zip(point, shape, strict=True)), start=mpmath.mpf(1))
        out += max(here - grown * there, 0)
    return out / total ** len(shape)


@pytest.mark.parametrize(
    ("epsilon", "delta", "shape", "steps"),
    [
        ("0.1", "1e-6", (1,), 1349708),
        ("0.5", "1e-6", (1,), 66484),
        ("1", "1e-6", (1,), 18330),
        ("1", "1e-6", (1, 1), 36578),
        ("1", "1e-6", (1, 1, 1, 1), 73124),
        ("2", "1e-6", (1,), 5169),
        ("5", "1e-6", (1,), 920),
        ("5", "1e-6", (1, 1), 2001),
        ("10", "1e-6", (1,), 256),
        ("1", "1e-9", (1,), 30975),
    ],
)
def test_sigma2_is_the_one_of_the_vectors(epsilon: str, delta: str, shape: tuple[int, ...], steps: int) -> None:
    found = ss.calibrate_discrete(epsilon, delta, [shape])
    assert (found.sigma2, found.route) == (Fraction(steps, 1024), "exact")
    assert found.delta <= Fraction(delta)
    assert verify_discrete(epsilon, delta, found.sigma2, [shape]) == found


@pytest.mark.parametrize(
    ("epsilon", "sigma2", "shape", "value"),
    [
        (1, "18330/1024", (1,), 9.99640946879e-7),
        (1, "18329/1024", (1,), 1.00003015097e-6),
        (5, "984/1024", (1,), 4.72366916755e-7),
        (1, 16, (1,), 3.05545464926682e-6),
        (1, 16, (2,), 6.60704347574722e-3),
        (1, 16, (1, 1), 3.869706090579e-4),
        (1, 16, (1, 1, 1, 1), 6.773557542271e-3),
        (0.5, 100, (3,), 7.56725523842832e-3),
        (3, 2, (1,), 8.435924037276e-6),
        (1, 4, (1,), 0.00724877684595258),
    ],
)
def test_delta_has_the_digits_of_the_vectors(epsilon: float, sigma2: Any, shape: tuple[int, ...], value: float) -> None:
    summed = discrete._Shifted(float(Fraction(sigma2)), shape, 1e-300).summed(float(epsilon))
    assert summed == pytest.approx(value, rel=1e-11, abs=0)
    assert summed < discrete_delta_of(epsilon, sigma2, shape) < summed * (1 + 1e-10)


@pytest.mark.parametrize("epsilon", [0, 0.25, 1, 3])
@pytest.mark.parametrize("sigma2", ["0.3", "0.75", "2", "5"])
@pytest.mark.parametrize("shape", [(1,), (3,), (1, 1), (2, 1)])
def test_both_routes_are_above_the_exact_delta_of_small_noise(
    epsilon: float, sigma2: str, shape: tuple[int, ...]
) -> None:
    exact = exact_delta(epsilon, sigma2, shape, reach=60 if len(shape) == 1 else 26)
    direct = discrete_delta_of(epsilon, sigma2, shape)
    assert exact * (1 - mpmath.mpf("1e-9")) <= direct <= exact * (1 + mpmath.mpf("1e-8"))
    norm2 = sum(one * one for one in shape)
    for rounding in discrete.ROUNDINGS:
        assert discrete.smoothed_delta(float(epsilon), Fraction(sigma2), norm2, len(shape), rounding) >= direct


@pytest.mark.parametrize("coordinates", [1, 3, 20])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 4])
def test_smoothing_bound_is_the_one_of_the_lemma(divergence: Any, epsilon: float, coordinates: int) -> None:
    rounding, sigma2, norm2 = Fraction(1, 4), Fraction(7, 2), 2
    factor = mpmath.mpf(coordinates) * discrete.closeness(rounding)
    left, mu = epsilon - 2 * factor, mpmath.sqrt(mpmath.mpf(norm2) / mpmath.mpf("3.25"))
    inner = divergence(left, mu) if left >= 0 else 1 - mpmath.exp(left) * (1 - divergence(-left, mu))
    exact = mpmath.exp(factor) * inner
    found = discrete.smoothed_delta(epsilon, sigma2, norm2, coordinates, rounding)
    assert min(exact, 1) <= found <= exact * (1 + mpmath.mpf("1e-11"))


def test_mass_that_is_cut_off_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discrete, "TAIL_FRACTION", 1.0)
    shifted = discrete._Shifted(4.0, (1,), 0.5)
    assert (len(shifted.law), shifted.cut) == (7, 2 * math.exp(-9 / 8))
    assert shifted.summed(1.0) < 0.00724877684595258 < shifted.delta(1.0)


@pytest.mark.parametrize("rounding", discrete.ROUNDINGS)
def test_closeness_is_above_the_exact_one_and_near_it(rounding: Fraction) -> None:
    q = mpmath.exp(-2 * mpmath.pi**2 * mpmath.mpf(rounding.numerator) / rounding.denominator)
    top = 1 + 2 * mpmath.fsum(q ** (j * j) for j in range(1, 12))
    bottom = 1 + 2 * mpmath.fsum((-1) ** j * q ** (j * j) for j in range(1, 12))
    exact = mpmath.log(top / bottom)
    assert exact <= discrete.closeness(rounding) <= exact * (1 + mpmath.mpf("1e-11"))


@pytest.mark.parametrize(
    ("sensitivity2", "coordinates", "rounding", "sigma"),
    [(1, 1, "1/2", 4.285088369), (64, 64, "1", 33.812265957), (10**6, 1000, "2", 4224.679126)],
)
def test_smoothing_has_the_sigma_of_the_vectors(
    sensitivity2: int, coordinates: int, rounding: str, sigma: float
) -> None:
    found = ss.calibrate_discrete(1, "1e-6", sensitivity2=sensitivity2, coordinates=coordinates)
    assert (found.route, found.rounding) == ("smoothing", Fraction(rounding))
    # Before the next multiple of 1/1024 was taken, sigma^2 was the vector's, rounded to ten digits.
    assert 0 <= float(found.sigma2) - sigma**2 * (1 - 1e-9) <= 1 / 1024 + 2e-9 * sigma**2
    assert found.delta <= Fraction(1, 10**6)


def test_the_continuous_sigma_is_not_enough_on_the_integers() -> None:
    for epsilon, shape, ratio in ((1, (1,), 1.0197), (2, (1,), 1.100), (5, (1, 1), 1.256)):
        sigma = Fraction(ss.calibrate(epsilon, 1e-6, len(shape) ** 0.5))
        assert discrete_delta_of(epsilon, sigma**2, shape) / 1e-6 == pytest.approx(ratio, abs=1e-3)
        with pytest.raises(SpecError, match="is too small: expected delta at most 1e-06, found 1"):
            verify_discrete(epsilon, 1e-6, sigma**2, [shape])


def test_delta_is_not_monotone_so_a_larger_sigma2_may_be_refused() -> None:
    assert verify_discrete(10, "1e-10", "0.3508").delta == pytest.approx(7.9e-11, rel=0.01, abs=0)
    with pytest.raises(SpecError, match=r"sigma2 4299/10000 is too small: expected delta at most 1e-10, found 1.8"):
        verify_discrete(10, "1e-10", "0.4299")


def test_one_step_less_is_refused_on_both_routes() -> None:
    with pytest.raises(SpecError, match="is too small"):
        verify_discrete(1, "1e-6", "18329/1024")
    found = ss.calibrate_discrete(1, "1e-6", sensitivity2=64, coordinates=64)
    with pytest.raises(SpecError, match="is too small"):
        verify_discrete(1, "1e-6", found.sigma2 - Fraction(1, 256), sensitivity2=64, coordinates=64)


def test_every_shape_counts_up_to_order_and_sign() -> None:
    one = ss.calibrate_discrete(1, "1e-6", [(2, 1), (1, 1, 1)])
    assert one == ss.calibrate_discrete(1, "1e-6", [(-1, 2), (1, 2), (1, -1, 1), (1,)])
    assert one.sigma2 == ss.calibrate_discrete(1, "1e-6", [(2, 1)]).sigma2
    assert ss.calibrate_discrete(2, "1e-6", [(1,), (3,)]).sigma2 >= ss.calibrate_discrete(2, "1e-6", [(3,)]).sigma2


def test_long_and_many_shapes_take_the_smoothing_route_at_a_small_price() -> None:
    assert ss.calibrate_discrete(1, "1e-6", [(2000, 1999)]).route == "smoothing"
    many = [(i, j) for i in range(1, 40) for j in range(1, 10)]
    found = ss.calibrate_discrete(1, "1e-6", many)
    assert found.route == "smoothing"
    reach = math.sqrt(max(i * i + j * j for i, j in many))
    assert 1 < found.sigma / ss.calibrate(1, "1e-6", reach) < 1.0005
    wide = ss.calibrate_discrete("1e-3", "1e-9")
    assert wide.sigma / ss.calibrate("1e-3", "1e-9") < 1 + 1e-6


def test_epsilon_zero() -> None:
    direct = ss.calibrate_discrete(0, "0.01")
    smooth = ss.calibrate_discrete(0, "0.01", sensitivity2=1, coordinates=1)
    assert (direct.route, smooth.route) == ("exact", "smoothing")
    assert direct.sigma2 <= smooth.sigma2 <= direct.sigma2 + 1
    assert exact_delta(0, float(ss.calibrate_discrete(0, "0.3").sigma2), (1,)) <= mpmath.mpf("0.3")


@settings(max_examples=25)
@given(st.floats(1e-3, 20), st.floats(1e-12, 0.5), st.integers(1, 6))
def test_sigma2_is_verified_and_not_far_above_the_continuous_one(epsilon: float, delta: float, weight: int) -> None:
    found = ss.calibrate_discrete(epsilon, delta, [(weight,)])
    assert found.sigma2 * 1024 == int(found.sigma2 * 1024)
    assert found.delta <= delta
    assert verify_discrete(epsilon, delta, found.sigma2, [(weight,)]).delta <= delta
    continuous = ss.calibrate(epsilon, delta, weight)
    assert found.sigma < 1.15 * continuous + 0.1


@pytest.mark.parametrize(
    ("epsilon", "shapes", "steps"),
    [("4", [(1,)], 1402), ("6", [(1,)], 598), ("9/2", [(1,)], 1024), ("10", [(1,)], 256), ("6", [(1,), (1, 1)], 1364)],
)
def test_the_search_begins_below_the_continuous_sigma(epsilon: str, shapes: list[tuple[int, ...]], steps: int) -> None:
    """The sum with many digits allows what is found, and not the parameter before it."""
    found = ss.calibrate_discrete(epsilon, "1e-6", shapes)
    assert found.sigma2 == Fraction(steps, 1024)
    assert found.sigma < ss.calibrate(epsilon, "1e-6", math.sqrt(max(map(len, shapes))))
    allowed = [
        max(exact_delta(float(Fraction(epsilon)), float(sigma2), shape, 20) for shape in shapes) <= mpmath.mpf("1e-6")
        for sigma2 in (found.sigma2, found.sigma2 - Fraction(1, 1024))
    ]
    assert allowed == [True, False]


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((1, 0), {}, r"delta must be in \[1e-300, 0.5\], found 0"),
        ((-1, "1e-6"), {}, "epsilon must be at least 0, found -1"),
        ((1, "1e-6", []), {}, "shapes must be vectors of whole numbers other than 0, .* found none"),
        ((1, "1e-6", [()]), {}, r"found \(\)"),
        ((1, "1e-6", [(1, 0)]), {}, r"found \(1, 0\)"),
        ((1, "1e-6", [(1.5,)]), {}, r"found \(1.5,\)"),
        ((1, "1e-6", [(True,)]), {}, r"found \(True,\)"),
        ((1, "1e-6", [1]), {}, "found 1"),
        ((1, "1e-6", ["1"]), {}, "found '1'"),
        ((1, "1e-6", [(1 << 41,)]), {}, r"at most 2\^40"),
        ((1, "1e-6"), {"sensitivity2": 4}, "coordinates must be a whole number from 1 to 2.80, and both are needed"),
        ((1, "1e-6"), {"sensitivity2": 0, "coordinates": 1}, "sensitivity2 must be a whole number .* found 0"),
        ((0, "1e-300"), {}, r"expected sigma at most 2\^40, found about 2\^996"),
        ((0, "1e-300"), {"sensitivity2": 1, "coordinates": 1}, "no discrete Gaussian could be verified|sigma at most"),
    ],
)
def test_bad_input_is_named(arguments: tuple[Any, ...], named: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ss.calibrate_discrete(*arguments, **named)


@pytest.mark.parametrize("sigma2", [0, -1, "x", None, "1e-7", 1 << 81])
def test_a_sigma2_that_cannot_be_is_named(sigma2: Any) -> None:
    with pytest.raises(SpecError, match=r"sigma2 must be from 1e-6 to 2\^80"):
        verify_discrete(1, "1e-6", sigma2)


@pytest.mark.parametrize("excess", ["1/1000", "1/300", "1/90", "1/30", "1/10"])
def test_delta_is_never_below_where_the_loss_is_rounded_by_more_than_its_excess(excess: str) -> None:
    epsilon, shift, more = 10**14, 10**6, Fraction(excess)
    sigma2 = Fraction(shift**2) / (2 * (epsilon + more))  # the loss at 0 is epsilon + more; elsewhere Pr is below e^-99
    assert 1 - math.exp(-more) - 1e-40 <= discrete_delta_of(epsilon, sigma2, (shift,)) < 0.3


def test_a_sum_that_is_too_long_is_refused() -> None:
    with pytest.raises(SpecError, match="too many terms"):
        discrete_delta_of(1, 10**12)
    assert verify_discrete(1, "1e-6", 10**12).route == "smoothing"


@pytest.mark.parametrize("coordinates", [1, 40, 1000])
def test_one_component_has_the_bound_of_its_own_smoothing(coordinates: int) -> None:
    """Distances of all coordinates add up: with one component it is the lemma for one noise."""
    parameter, square = Fraction(2), Fraction(1, 10)
    found, rounding = discrete._parts_bound(1.0, parameter, [(square, coordinates, Fraction(1))])
    alone = {r: discrete.smoothed_delta(1.0, parameter, square, coordinates, r) for r in discrete.ROUNDINGS}
    assert found == pytest.approx(min(alone.values()), rel=1e-12)
    assert alone[rounding] == min(alone.values())
    halves = [(square / 2, coordinates, Fraction(1, 2)), (square / 2, coordinates, Fraction(1, 2))]
    assert discrete._parts_bound(1.0, parameter, halves)[0] >= found


def test_one_coordinate_pays_for_no_convolution() -> None:
    shifted = discrete._Shifted(1e8, (1,), 1e-9)
    least = shifted.summed(1e-4 * (1 - discrete.LOSS_ERROR)) + shifted.cut
    assert least < shifted.delta(1e-4) < least * (1 + 2 * discrete.SUM_ERROR)
