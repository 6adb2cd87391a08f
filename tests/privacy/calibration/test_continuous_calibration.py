"""Calibration of Gaussian noise: published vectors, mpmath on random cases, properties, bad input."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sketchstream as ss
from sketchstream.errors import SpecError
from sketchstream.privacy.calibration import continuous as calibration
from sketchstream.privacy.calibration import discrete
from sketchstream.privacy.calibration.divergence import log_divergence

DELTAS = ("1e-3", "1e-5", "1e-6", "1e-9", "1e-12", "1e-30")
SIGMAS = {
    "0": "398.9421759586 39894.2280391 398942.2804013 398942280.4014 3.989422804014e11 3.989422804014e29",
    "0.01": "93.90741983985 243.7854376757 306.3503761538 458.5084974973 578.9978670614 1062.478971868",
    "0.1": "17.40439620303 30.74956613198 36.30469042620 50.20981826302 61.53905591889 108.3808124014",
    "0.5": "4.610127950728 7.031826675582 8.057618480725 10.67389681508 12.84417448989 21.99954111251",
    "1": "2.574657018637 3.730631634816 4.224678889327 5.495266157238 6.557822067459 11.08310294898",
    "2": "1.445239160930 1.993812445644 2.230476271186 2.844547073496 3.362672509515 5.593751129466",
    "5": "0.6898423270004 0.8918682649515 0.9800490003092 1.211712466135 1.409837723611 2.278987809611",
    "10": "0.4060595580241 0.4998886197090 0.5410868318184 0.6502469189587 0.7446123229218 1.166022940977",
    "50": "0.1341243079704 0.1497606075608 0.1565928703918 0.1747836249393 0.1907104424064 0.2646369228793",
}
OTHERS = [
    ("3", "1e-8", "1.818642942954"),
    ("1/4", Fraction(1, 2**30), "20.83390229727"),
    ("1", "0.4", "0.5872298068900"),
    ("1000", "1e-6", "0.02485036668695"),
]
VECTORS = [
    (epsilon, delta, sigma) for epsilon, row in SIGMAS.items() for delta, sigma in zip(DELTAS, row.split(), strict=True)
] + OTHERS


@pytest.mark.parametrize(("epsilon", "delta", "sigma"), VECTORS)
def test_sigma_has_the_digits_of_the_vectors(epsilon: str, delta: Any, sigma: str) -> None:
    found = Decimal(ss.calibrate(epsilon, delta))
    unit = Decimal(1).scaleb(Decimal(sigma).as_tuple().exponent)
    # The vector is rounded to its last digit; the result may be above the exact number by a relative 1e-11.
    assert -unit / 2 <= found - Decimal(sigma) <= unit / 2 + Decimal("1e-11") * found


def test_sensitivity_scales() -> None:
    assert ss.calibrate(1, 1e-6, 2**0.5) == pytest.approx(5.974598181957, rel=1e-11)


@pytest.mark.parametrize(
    ("epsilon", "mu", "value"),
    [
        (0.01, 0.001, 7.512025722358e-28),
        (0.1, 0.05, 4.461918648847e-4),
        (1, 0.25, 2.924272104856e-6),
        (1, 1.5, 0.3203919142104),
        (5, 1, 5.793721691919e-7),
        (50, 12, 0.9593829543371),
        (700, 20, 1.356662127752e-138),
    ],
)
def test_divergence_has_the_digits_of_the_vectors(epsilon: float, mu: float, value: float) -> None:
    found = float(np.exp(log_divergence(np.array([epsilon]), np.array([mu])))[0])
    assert found == pytest.approx(value, rel=1e-12, abs=0)
    above = ss.delta_of(epsilon, 1, mu)
    assert found <= above <= found * (1 + 2e-10)


@pytest.mark.parametrize(("epsilon", "value"), [(0.1, 0.138210780761), (1, 0.286208211922), (10, 0.414711140837)])
def test_delta_at_the_crossing_of_both_branches(epsilon: float, value: float) -> None:
    assert ss.delta_of(epsilon, 1, (2 * epsilon) ** 0.5) == pytest.approx(value, rel=3e-12, abs=0)


def test_log_divergence_is_accurate_on_random_arguments(divergence: Any) -> None:
    random = np.random.default_rng(4)
    epsilon, s = 10 ** random.uniform(-6, 3, 1000), random.uniform(-8, 37, 1000)
    root = np.sqrt(s * s + 2 * epsilon)
    mu = np.where(s > 0, 2 * epsilon / (s + root), root - s)
    mu[:100] = random.uniform(0.9, 1.1, 100)
    epsilon[100:200], mu[100:200] = 0, 10 ** random.uniform(-290, 1, 100)
    exact = [divergence(e, m) for e, m in zip(epsilon.tolist(), mu.tolist(), strict=True)]
    found = log_divergence(epsilon, mu).tolist()
    kept = [(x, y) for x, y in zip(exact, found, strict=True) if x > 1e-300]
    assert len(kept) > 950
    assert max(abs(mpmath.exp(mpmath.mpf(y)) / x - 1) for x, y in kept) < 1e-12


def cases(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random (epsilon, delta, sensitivity), with corners of every kind."""
    random = np.random.default_rng(7)
    epsilon, delta = 10 ** random.uniform(-6, 4, size), 10 ** random.uniform(-40, -0.302, size)
    epsilon[:50], delta[50:100] = 0, 10 ** random.uniform(-290, -40, 50)
    epsilon[100:120] = 10 ** random.uniform(-30, -6, 20)
    delta[120:130] = 0.5
    return epsilon, delta, 10 ** random.uniform(-6, 9, size)


def test_a_thousand_random_calibrations_are_never_below_and_never_far_above(divergence: Any) -> None:
    epsilon, delta, sensitivity = cases(1000)
    sigma = ss.calibrate(epsilon, delta, sensitivity)
    spent, least = ss.delta_of(epsilon, sigma, sensitivity), ss.epsilon_of(delta, sigma, sensitivity)
    less = 1 / (1 - mpmath.mpf("1e-10"))
    columns = (epsilon, delta, sensitivity, sigma, spent, least)
    for e, d, reach, found, up, eps in zip(*(one.tolist() for one in columns), strict=True):
        mu = mpmath.mpf(reach) / mpmath.mpf(found)
        exact = divergence(e, mu)
        assert exact <= d, (e, d)
        assert divergence(e, mu * less) > d, (e, d)
        assert exact <= up <= d, (e, d)
        assert eps <= e, (e, d)
        assert divergence(eps, mu) <= d, (e, d)


def test_epsilon_is_tight_where_it_is_not_near_zero(divergence: Any) -> None:
    random = np.random.default_rng(9)
    delta, mu = 10 ** random.uniform(-30, -2, 200), 10 ** random.uniform(-0.5, 2, 200)
    for d, shift, eps in zip(delta.tolist(), mu.tolist(), ss.epsilon_of(delta, 1, mu).tolist(), strict=True):
        assert divergence(eps, shift) <= d
        assert divergence(eps * (1 - mpmath.mpf("1e-9")), shift) > d


def test_epsilon_holds_for_every_mu_that_rounds_to_the_one_given(divergence: Any) -> None:
    """A mu that is larger by a relative 9e-14, within MU_ERROR, has a delta that can be larger by far more."""
    delta, mu = 10.0 ** np.linspace(-250, -10, 25), 10.0 ** np.linspace(-0.5, 1, 25)
    for d, shift, eps in zip(delta.tolist(), mu.tolist(), ss.epsilon_of(delta, 1, mu).tolist(), strict=True):
        assert divergence(eps, mpmath.mpf(shift) * (1 + mpmath.mpf("9e-14"))) <= d


@pytest.mark.parametrize("margin", [0.0, -1e-10])
def test_a_sigma_that_is_too_small_is_refused(margin: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "INFLATION", margin - 1e-11)
    with pytest.raises(ArithmeticError, match="failed its final check"):
        ss.calibrate([0, 1, 30], 1e-6)


def test_the_classical_rule_fails_for_large_epsilon() -> None:
    def classical(epsilon: float) -> float:
        return float((2 * np.log(1.25e6)) ** 0.5 / epsilon)

    assert ss.delta_of(1, classical(1)) < 1e-6
    assert ss.delta_of(8.7, classical(8.7)) < 1e-6 < ss.delta_of(8.8, classical(8.8))
    for epsilon, ratio in ((0.01, 1.729654), (0.1, 1.459537), (0.5, 1.315228), (0.9, 1.263737)):
        assert classical(epsilon) / ss.calibrate(epsilon, 1e-6) == pytest.approx(ratio, abs=1e-6)


def test_the_stable_form_agrees_with_the_algorithm_of_the_paper() -> None:
    from scipy.special import erfcx, ndtr

    def spent(epsilon: float, alpha: float) -> float:
        """B+ or B- of Balle and Wang, Algorithm 1, at sigma = alpha / sqrt(2 epsilon)."""
        if alpha >= 1:
            u = 2 * ((alpha - 1 / alpha) / 2) ** 2
            tails = erfcx((epsilon * u / 2) ** 0.5) - erfcx((epsilon * (u + 2) / 2) ** 0.5)
            return float(0.5 * np.exp(-epsilon * u / 2) * tails)
        v = 2 * ((1 / alpha - alpha) / 2) ** 2
        below = np.exp(-epsilon * v / 2) * erfcx((epsilon * (v + 2) / 2) ** 0.5) / 2
        return float(ndtr((epsilon * v) ** 0.5) - below)

    for epsilon in (0.1, 1, 10):
        for delta in (1e-9, 1e-3, 0.1, 0.45):
            assert spent(epsilon, ss.calibrate(epsilon, delta) * (2 * epsilon) ** 0.5) == pytest.approx(
                delta, rel=1e-8, abs=0
            )


def test_arrays_equal_scalars_and_broadcast() -> None:
    epsilon, delta, sensitivity = (one[:40] for one in cases(200))
    table = ss.calibrate(epsilon[:, None], delta[:3], 2)
    assert table.shape == (40, 3)
    rows = zip(epsilon.tolist(), delta.tolist(), sensitivity.tolist(), strict=True)
    for row, found in zip(rows, ss.calibrate(epsilon, delta, sensitivity).tolist(), strict=True):
        assert ss.calibrate(*row) == found
    one = ss.calibrate(1, 1e-6)
    assert isinstance(one, float)
    assert {one, ss.calibrate("1", "1e-6"), ss.calibrate(Fraction(1), Decimal("0.000001"))} == {one}
    assert ss.calibrate(np.array(["1", Fraction(1)], object), 1e-6).tolist() == [one, one]
    assert ss.calibrate(np.array([0.1], np.float32), 1e-6)[0] == ss.calibrate("0.1", "1e-6")
    assert ss.calibrate([], 1e-6).shape == (0,)
    assert ss.delta_of([1, 2], 4.0, (1, 1)).tolist() == [ss.delta_of(1, 4), ss.delta_of(2, 4)]
    assert ss.epsilon_of([1e-6], [4.0]).tolist() == [ss.epsilon_of(1e-6, 4)]


positive = st.floats(1e-6, 1e4)
deltas = st.floats(1e-100, 0.5)


@given(positive, deltas, positive, st.floats(1.0001, 100))
def test_sigma_falls_with_epsilon_and_delta_and_grows_with_sensitivity(
    epsilon: float, delta: float, sensitivity: float, more: float
) -> None:
    sigma = ss.calibrate(epsilon, delta, sensitivity)
    assert ss.calibrate(epsilon * more, delta, sensitivity) < sigma
    assert ss.calibrate(epsilon, min(delta * more, 0.5), sensitivity) <= sigma
    assert ss.calibrate(epsilon, delta, sensitivity * more) > sigma


@given(positive, deltas, positive)
def test_a_calibrated_sigma_gives_back_what_was_asked(epsilon: float, delta: float, sensitivity: float) -> None:
    sigma = ss.calibrate(epsilon, delta, sensitivity)
    assert delta * (1 - 1e-4) < ss.delta_of(epsilon, sigma, sensitivity) <= delta
    assert ss.epsilon_of(delta, sigma, sensitivity) <= epsilon


def test_corners() -> None:
    assert ss.calibrate(0, "1e-300") == pytest.approx(3.9894228e299, rel=1e-8)
    assert ss.calibrate(1e300, 1e-6) == pytest.approx(0.5**0.5 * 1e-150, rel=1e-9, abs=0)
    assert ss.delta_of(1e9, ss.calibrate(1e9, "1e-300")) <= 1e-300
    assert ss.delta_of(1, 1e-200) == 1.0
    assert 0 < ss.delta_of(1, 1e200) < 1e-307
    assert ss.epsilon_of(0.4, 100) == 0.0
    assert ss.epsilon_of(1e-6, 1e-200) == float("inf")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 1e-6), "epsilon must be at least 0, found -1"),
        ((float("nan"), 1e-6), "epsilon must be at least 0, found 'nan'"),
        (("x", 1e-6), "epsilon must be at least 0, found 'x'"),
        ((True, 1e-6), "epsilon must be at least 0, found bool"),
        ((None, 1e-6), "epsilon must be at least 0, found NoneType"),
        ((1, 0), r"delta must be in \[1e-300, 0.5\], found 0"),
        ((1, 0.6), r"delta must be in \[1e-300, 0.5\], found 0.6"),
        ((1, "1e-301"), r"delta must be in \[1e-300, 0.5\], found 1e-301"),
        ((1, 1e-6, 0), "sensitivity must be at least 1e-300, found 0"),
        ((1, 1e-6, float("inf")), "sensitivity must be at least 1e-300, found 'inf'"),
        ((0, 1e-300, 1e300), "sensitivity is too large"),
        (([1, -1], 1e-6), "epsilon must be at least 0, found -1.0"),
        (([1, float("nan")], 1e-6), "epsilon must be at least 0, found nan"),
        (([1, 2], [1e-6, 1e-7, 1e-8]), r"shapes that broadcast together, found epsilon \(2,\), delta \(3,\)"),
        (([[1], [1, 2]], 1e-6), "epsilon must be at least 0"),
        ((np.array([True]), 1e-6), "found an array of bool"),
        ((np.array([1j]), 1e-6), "found an array of complex128"),
        ((["1", "x"], 1e-6), "epsilon must be at least 0, found 'x'"),
    ],
)
def test_bad_input_is_named(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ss.calibrate(*arguments)


@pytest.mark.parametrize("call", [lambda: ss.delta_of(1, 0), lambda: ss.epsilon_of("1e-6", -1)])
def test_a_sigma_that_cannot_be_is_named(call: Any) -> None:
    with pytest.raises(SpecError, match="sigma must be at least 1e-300, found"):
        call()


@pytest.mark.parametrize("module", [calibration, discrete])
def test_examples_of_the_docstrings(module: Any) -> None:
    failed, tried = doctest.testmod(module)
    assert (failed, tried > 0) == (0, True)


def test_numbers_of_the_document_are_what_its_calls_return() -> None:
    text = (Path(__file__).parents[3] / "docs" / "theory" / "gaussian.md").read_text()
    block = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    lines = [line.split("  # ") for line in block[1].splitlines() if line.startswith("ss.")]
    assert len(lines) == 5
    for call, said in lines:
        found, number = eval(call, {"ss": ss}), re.match(r"[\d.e-]+(?=$|:)", said.strip())
        if number:
            assert found == pytest.approx(float(number[0]), rel=3e-5, abs=0), call
        elif "Fraction" in said:
            assert repr(found) == said.split(":")[0].strip()
        else:
            assert found.shape == (3,)


def test_import_of_the_package_does_not_load_calibration() -> None:
    code = "import sys, sketchstream; print([m for m in sys.modules if m.startswith(('scipy', 'sketchstream.kinds'))])"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"
