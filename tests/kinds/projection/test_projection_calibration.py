"""Calibration of projections: the table of every theorem, discrete noise of the vectors, certificates, mutants."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import sketchstream as ss
from helpers.projection_attack import mixture, mixture_delta, paper_theorem_1_as_printed, paper_theorem_2
from helpers.projection_attack import split as split_by_quantile
from sketchstream.errors import SpecError
from sketchstream.kinds.projection import calibration
from sketchstream.kinds.projection.matrices import sensitivity
from sketchstream.kinds.projection.matrices.matrix import Matrix
from sketchstream.kinds.projection.secret import ROUNDING, SecretLoss, _delta, _epsilon
from sketchstream.privacy.losses.gaussian import Smoothed

SEED = bytes(range(32))
TABLE = """
0.1 1e-6 16 1912.0271 114.590300 72.692562 41.77586056 43.2936 9.806475
0.1 1e-6 64 2062.3019 81.824039 54.162003 37.90653614 38.3670 5.026715
0.1 1e-6 256 2212.6369 66.510722 45.191751 36.72772249 36.8536 2.702782
0.1 1e-6 1024 2363.0008 59.367700 40.776747 36.41208050 36.4444 1.641734
1 1e-6 16 202.4237 11.823787 8.420399 5.05677586 5.2276 3.541600
1 1e-6 64 218.2011 8.442861 6.283866 4.47605306 4.5289 2.088507
1 1e-6 256 234.0420 6.862785 5.249662 4.29219347 4.3069 1.441711
1 1e-6 1024 249.9145 6.125746 4.740599 4.24191486 4.2457 1.178416
1 1e-9 16 335.7291 16.133375 12.306647 7.17238843 7.3786 4.547044
1 1e-9 64 354.5608 11.081020 8.793968 6.03143367 6.0973 2.548995
1 1e-9 256 373.4558 8.709103 7.117052 5.64464525 5.6637 1.632048
1 1e-9 1024 392.3823 7.604616 6.303134 5.53393471 5.5390 1.249205
5 1e-6 16 48.5256 2.664933 1.944901 1.22534092 1.2638 2.255703
5 1e-6 256 55.9299 1.546786 1.215756 1.00101072 1.0045 1.269885
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=["-".join(row[:3]) for row in ROWS])
def test_every_theorem_has_the_sigma_of_the_table(row: list[str]) -> None:
    eps, delta, k = row[0], row[1], int(row[2])
    theorem2, theorem1, split, mixed, engine, printed = (float(one) for one in row[3:])
    assert paper_theorem_2(eps, delta, k) == pytest.approx(theorem2, rel=1e-6)
    assert calibration.paper_theorem_1(eps, delta, k) == pytest.approx(theorem1, rel=1e-6)
    assert paper_theorem_1_as_printed(eps, delta, k) == pytest.approx(printed, rel=1e-6)
    assert split_by_quantile(eps, delta, k) == pytest.approx(split, rel=1e-6)
    exact = mixture(eps, delta, k)
    assert exact == pytest.approx(mixed, rel=1e-6)
    used = calibration.sub_gaussian(eps, delta, k)
    assert used == pytest.approx(engine, rel=1e-4)
    assert exact <= used <= 1.04 * exact
    assert theorem2 > theorem1 > split > used > exact > ss.calibrate(eps, delta)
    assert mixture_delta(eps, 1 / (exact * k**0.5), k) <= float(delta)
    assert mixture_delta(eps, 1 / (used * k**0.5), k) <= float(delta)
    assert calibration.sub_gaussian_delta(eps, 1 / (used * k**0.5), k) <= float(delta)
    assert calibration.sub_gaussian_delta(eps, 1.002 / (used * k**0.5), k) > float(delta)


@pytest.mark.parametrize(
    ("eps", "k", "sigma"),
    [("1", 64, 4.47605306), ("1", 16, 5.05677586), ("0.1", 64, 37.90653614), ("5", 256, 1.00101072)],
)
def test_the_mixture_has_the_delta_of_the_vectors(eps: str, k: int, sigma: float) -> None:
    assert mixture_delta(eps, 1 / (sigma * k**0.5), k) == pytest.approx(1e-6, rel=2e-8)


def test_the_mixture_against_thirty_digits() -> None:
    assert mixture_delta(1, 0.3, 10) == pytest.approx(0.108823307, abs=5e-10)

    def integrand(c: mpmath.mpf) -> mpmath.mpf:
        mu = mpmath.mpf("0.3") * mpmath.sqrt(c)
        s, t = 1 / mu - mu / 2, 1 / mu + mu / 2
        divergence = (mpmath.erfc(s / mpmath.sqrt(2)) - mpmath.e * mpmath.erfc(t / mpmath.sqrt(2))) / 2
        return divergence * c**4 * mpmath.exp(-c / 2) / (2**5 * mpmath.gamma(5))

    with mpmath.workdps(30):
        exact = mpmath.quad(integrand, [0, 5, 10, 20, 40, 80, 160])
    assert mixture_delta(1, 0.3, 10) == pytest.approx(float(exact), rel=1e-11)


def test_the_paper_as_printed_is_a_violation() -> None:
    for k, delta in ((16, 1.1e-4), (64, 5.6e-3), (256, 3.7e-2), (1024, 7.7e-2)):
        sigma = paper_theorem_1_as_printed(1, "1e-6", k)
        assert mixture_delta(1, 1 / (sigma * k**0.5), k) == pytest.approx(delta, rel=0.05)


def test_the_certificate_bounds_what_a_fine_grid_finds() -> None:
    random = np.random.default_rng(3)
    for _ in range(30):
        eps, scale, k = 10 ** random.uniform(-1.5, 1), 10 ** random.uniform(-2.5, 0.5), int(random.integers(4, 500))
        _, tilt = calibration._search_bound(eps, scale, k)
        r = np.linspace(1e-6, 60, 200_001)
        found = np.max(calibration.log_divergence(np.full_like(r, eps), scale * r) - tilt * r * r)
        above = calibration._certified_supremum(eps, scale, tilt, float(found)) - float(found)
        assert -1e-9 < above < 1e-4


@pytest.mark.parametrize(
    ("d", "k", "item", "event"),
    [(1000, 32, 105299513205, 4972426590), (200, 64, 35366060745, 7138328076)],
)
def test_public_noise_has_the_parameters_of_the_vectors(d: int, k: int, item: int, event: int) -> None:
    one = Matrix("gaussian", SEED, d, k)
    for reach, wanted in ((sensitivity.spectral(one), item), (Fraction(sensitivity.longest_row(one)), event)):
        found = calibration.public_sigma2(1, "1e-6", reach, k)
        assert abs(found * 1024 - wanted) <= 8
        assert calibration.verify_public(1, "1e-6", reach, k, found) <= 1e-6
        with pytest.raises(SpecError, match="too small: expected delta at most 1e-6, found"):
            calibration.verify_public(1, "1e-6", reach, k, found * (1 - Fraction(1, 10**6)))


def test_the_public_table() -> None:
    """Norms and sigma of public matrices, and the true delta of the paper's Theorem 1 there."""
    for d, k, largest, longest, item, event, srht, theorem1, broken in (
        (200, 64, 2.716937670010, 1.220631247884, 11.478189, 5.156775, 8.449358, 8.442861, 1.36e-4),
        (1000, 32, 6.630015248773, 1.440739174909, 28.009685, 6.086660, 23.898393, 9.818557, 3.27e-2),
        (1000, 100, 4.142344230355, 1.242355531088, 17.500074, 5.248553, 13.518972, 7.797576, 9.86e-3),
        (4096, 64, 8.908435821486, 1.340883968920, 37.635281, 5.664804, 33.797431, 8.442861, 1.47e-1),
    ):
        one = Matrix("gaussian", SEED, d, k)
        top = math.sqrt(sensitivity.spectral(one)) / (64 * k**0.5)
        row = math.sqrt(sensitivity.longest_row(one)) / (64 * k**0.5)
        assert (top, row) == (pytest.approx(largest, rel=1e-11), pytest.approx(longest, rel=1e-11))
        base = ss.calibrate(1, "1e-6")
        assert (base * top, base * row) == (pytest.approx(item, rel=1e-6), pytest.approx(event, rel=1e-6))
        signs = math.sqrt(sensitivity.spectral(Matrix("srht", SEED, d, k)) / k)
        assert base * signs == pytest.approx(srht, rel=1e-6)
        assert calibration.paper_theorem_1(1, "1e-6", k) == pytest.approx(theorem1, rel=1e-6)
        assert ss.delta_of(1, theorem1, top) == pytest.approx(broken, rel=5e-3)


def test_secret_noise_is_verified_and_less_is_refused() -> None:
    found = calibration.secret_sigma2(1, "1e-6", Fraction(9), 64, 4096)
    sigma = math.sqrt(found / (64 * 4096)) / 3
    assert sigma == pytest.approx(4.5289, rel=1e-4)
    assert calibration.verify_secret(1, "1e-6", Fraction(9), 64, 4096, found) <= 1e-6
    with pytest.raises(SpecError, match="too small"):
        calibration.verify_secret(1, "1e-6", Fraction(9), 64, 4096, found * Fraction(999, 1000))
    assert calibration.secret_delta(Fraction(1), Fraction(9), 64, 4096, Fraction(3)) == 1.0
    half = calibration.secret_delta(Fraction(1), Fraction(9, 2), 64, 4096, found)
    assert half < 1e-8


def test_noise_without_room_is_refused() -> None:
    with pytest.raises(SpecError, match="fewer fraction_bits"):
        calibration.public_sigma2(1, "1e-6", Fraction(1 << 80), 4)


@pytest.mark.parametrize("k", [2, 7, 60])
def test_the_diagonal_is_lowered_by_more_than_rounding_can_hide(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rump 2006, Theorem 2.3: (k + 2) u trace of b I - G, and (k + 1) u b for the conversion and the subtraction."""
    rows = np.random.default_rng(k).integers(-99, 99, (k, 40))
    gram, seen = rows @ rows.T, []
    factor = np.linalg.cholesky
    monkeypatch.setattr(np.linalg, "cholesky", lambda one: seen.append(one) or factor(one))
    bound = sensitivity._certified_eigenvalue(gram)
    unit = Fraction(1, 1 << 53)
    trace = k * bound - int(np.trace(gram))
    least = min(bound - Fraction(float(one)) for one in np.diag(seen[-1]) + np.diag(gram))
    assert least >= (k + 2) * unit * trace + (k + 1) * unit * bound


def test_without_a_bound_delta_is_one() -> None:
    for bound in (Smoothed(ROUNDING, math.inf, 0.0), Smoothed(ROUNDING, Fraction(1), 1.5)):
        loss = SecretLoss(math.inf, (), mean=Fraction(1), bound=bound, columns=16)
        assert loss.delta(0) == loss.delta(50) == 1.0
        assert math.isinf(loss.at("1e-6").epsilon)


def test_noise_that_is_close_to_a_history_without_loss_costs_twice_the_distance() -> None:
    """Log-probabilities that differ by at most 2 kappa: delta is 1 - e^(epsilon - 2 kappa) at most."""
    for epsilon in (0.0, 0.1, 0.39):
        assert _delta(epsilon, Fraction(0), 0.2, 16) == pytest.approx(1 - math.exp(epsilon - 0.4), rel=1e-12)
    assert _delta(0.4, Fraction(0), 0.2, 16) == 0.0


@pytest.mark.parametrize("kappa", [0.0, 0.05, 0.5])
def test_the_epsilon_of_a_secret_matrix_is_the_least_that_its_certificate_allows(kappa: float) -> None:
    for mean, delta in ((Fraction(1, 4), Fraction(1, 10**6)), (Fraction(2), Fraction(1, 100))):
        found = _epsilon(delta, mean, kappa, 64)
        assert _delta(found, mean, kappa, 64) <= delta < _delta(found * (1 - 1e-4), mean, kappa, 64)
