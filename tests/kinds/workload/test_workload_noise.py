"""Noise of a workload's layers: laws against enumeration and samples, calibration against exact sums, mutants."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from helpers.noise.words import Seeded
from sketchstream.errors import SpecError
from sketchstream.kinds.workload.queries.queries import Workload
from sketchstream.kinds.workload.spec import WorkloadSpec
from sketchstream.kinds.workload.strategies import mechanism
from sketchstream.kinds.workload.strategies.ball import _enclose, accept_draw, add_ball_noise, laplace_rate
from sketchstream.kinds.workload.strategies.mechanism import LayerLaw, Task, add_noise, choose, layer_law, unit_variance
from sketchstream.noise.blocks import Scratch
from sketchstream.privacy.calibration.discrete import verify_discrete

DELTA = Fraction(1, 10**6)


@pytest.mark.parametrize(
    ("epsilon", "delta", "sigma"),
    [
        ("1", "1e-6", 4.2246788893),
        ("0.1", "1e-6", 36.3046904262),
        ("0.5", "1e-9", 10.6738968151),
        ("3", "1e-5", 1.3905934567),
        ("10", "1e-5", 0.4998886197),
    ],
)
def test_unit_variance_is_the_published_one_and_never_below(epsilon: str, delta: str, sigma: float) -> None:
    found = math.sqrt(unit_variance(Fraction(epsilon), Fraction(delta)))
    assert found == pytest.approx(sigma, rel=1e-10)
    assert found >= sigma * (1 - 5e-11)


def exact_delta(epsilon: float, sigma2: float, shift: int) -> float:
    """Delta of one integer shift, by its definition."""
    reach = math.ceil(14 * math.sqrt(sigma2)) + shift
    values = np.arange(-reach, reach + 1, dtype=float)
    here = np.exp(-(values**2) / (2 * sigma2))
    there = np.exp(-((values - shift) ** 2) / (2 * sigma2))
    total = here.sum()
    return math.fsum(np.maximum(there - math.exp(epsilon) * here, 0)) / total


@pytest.mark.parametrize(
    ("epsilon", "delta"), [("1", "1e-6"), ("0.1", "1e-6"), ("0.5", "1e-9"), ("3", "1e-5"), ("10", "1e-5")]
)
@pytest.mark.parametrize("shift", [1, 2, 3, 8, 64])
def test_lattice_noise_is_private_for_integer_shifts(epsilon: str, delta: str, shift: int) -> None:
    sigma2 = math.ceil(unit_variance(Fraction(epsilon), Fraction(delta)) * shift**2) + 4
    assert exact_delta(float(epsilon), sigma2, shift) <= float(delta) * (1 + 1e-9)


def test_without_the_slack_small_shifts_would_not_be_private() -> None:
    sigma2 = unit_variance(Fraction(8), DELTA) * 4
    assert exact_delta(8, float(sigma2), 2) == pytest.approx(1.64e-6, rel=0.01)
    with pytest.raises(SpecError, match="too small"):
        verify_discrete("8", "1e-6", sigma2, sensitivity2=4, coordinates=2)
    assert verify_discrete("8", "1e-6", sigma2 + 4, sensitivity2=4, coordinates=2).delta <= 1e-6


def test_a_layer_is_verified_in_the_dimension_that_a_neighbour_reaches() -> None:
    spec = WorkloadSpec("prefix:16", "1", "1e-6", "gaussian", max_weight=3)
    law = spec.layer()
    square = spec.strategy.sensitivity2 * 9
    assert law.parameter == math.ceil(unit_variance(Fraction(1) * (1 - Fraction(1, 2**40)), DELTA) * square) + 4 or (
        law.parameter > unit_variance(Fraction(1), DELTA) * square
    )
    verify_discrete("1", "1e-6", law.parameter, sensitivity2=square, coordinates=32)
    for mutant in (law.parameter / 9, law.parameter * Fraction(999, 1000)):
        with pytest.raises(SpecError, match="too small"):
            verify_discrete("1", "1e-6", mutant, sensitivity2=square, coordinates=32)
    assert spec.cost(law) == Fraction(square) / law.parameter
    assert spec.law_of(spec.cost(law)) == law


def test_the_dimension_is_that_of_both_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lattice's correction grows with the counters that one unit can move, once before and once after a look."""
    asked: list[int] = []

    def record(*_: object, coordinates: int, **__: object) -> None:
        asked.append(coordinates)

    monkeypatch.setattr(mechanism, "verify_discrete", record)
    strategy = choose(Task(Workload.named("prefix:16"), Fraction(1), DELTA), "gaussian").strategy
    mechanism._verified_variance.cache_clear()
    layer_law("gaussian", strategy, Fraction(1), DELTA, 1)
    mechanism._verified_variance.cache_clear()
    assert asked == [2 * strategy.length]


def test_ball_noise_of_one_counter_is_laplace_noise() -> None:
    ball, laplace = LayerLaw("discrete-ball", Fraction(1), 1), LayerLaw("discrete-laplace", Fraction(1), 1)
    assert ball.shape == laplace.shape == 1
    assert LayerLaw("discrete-ball", Fraction(1), 7).shape == 4


def test_laws_scale_with_the_weight_of_the_unit() -> None:
    light, heavy = (WorkloadSpec("ranges:8", "1", 0, "laplace", max_weight=weight) for weight in (1, 5))
    assert heavy.layer().parameter * 5 == light.layer().parameter == Fraction(1, light.strategy.sensitivity1)
    assert light.cost(light.layer()) == heavy.cost(heavy.layer()) == 1
    ball = WorkloadSpec("marginals:4:1", "1/2", 0, "l2ball", max_weight=2)
    assert ball.layer().parameter == Fraction(1, 16 * ball.strategy.sensitivity2)
    assert ball.cost(ball.layer()) == Fraction(1, 2)
    assert ball.law_of(Fraction(1, 2)) == ball.layer()


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "l2ball"])
def test_samples_have_the_law_of_the_layer(mechanism: str) -> None:
    spec = WorkloadSpec("prefix:4", "1", "1e-6", mechanism)
    law = spec.layer()
    source = Seeded(7)
    count = 1500 if mechanism == "l2ball" else 20000
    samples = np.zeros((count, spec.length), np.int64)
    for row in samples:
        add_noise(law, row, source)
    scaled = samples / math.sqrt(law.variance)
    kurtosis = 0 if math.isinf(law.shape) else 3 / law.shape
    assert abs(np.mean(scaled**2) - 1) < 5 * math.sqrt((2 + kurtosis) / scaled.size)
    assert abs(scaled.mean()) < 5 / math.sqrt(scaled.size)
    correlation = np.corrcoef(scaled.T) - np.eye(spec.length)
    assert np.abs(correlation).max() < 5 / math.sqrt(count)


def ball_pmf(rate: float, size: int, reach: int) -> dict[tuple[int, ...], float]:
    points = list(itertools.product(range(-reach, reach + 1), repeat=size))
    weights = np.array([math.exp(-rate * math.sqrt(sum(v * v for v in point))) for point in points])
    return dict(zip(points, weights / weights.sum(), strict=True))


def test_ball_noise_has_its_law_on_small_lattices() -> None:
    rate2 = Fraction(9, 16)  # rate 3/4
    pmf = ball_pmf(0.75, 2, 30)
    source, count = Seeded(11), 6000
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(count):
        vector = np.zeros(2, np.int64)
        add_ball_noise(vector, rate2, source)
        seen[tuple(vector.tolist())] = seen.get(tuple(vector.tolist()), 0) + 1
    common = [point for point, mass in pmf.items() if mass * count >= 25]
    rest = 1 - sum(pmf[point] for point in common)
    observed = np.array([*(seen.get(point, 0) for point in common), 0])
    observed[-1] = count - observed.sum()
    expected = np.array([*(pmf[point] for point in common), rest]) * count
    assert chi2.sf(((observed - expected) ** 2 / expected).sum(), len(common)) > 1e-6
    # The same test refuses independent Laplace noise of the proposal, and a rate that is 15% off.
    wrong = ball_pmf(0.75 * 1.15, 2, 30)
    off = np.array([*(wrong[point] for point in common), 1 - sum(wrong[point] for point in common)]) * count
    assert chi2.sf(((observed - off) ** 2 / off).sum(), len(common)) < 1e-12


def test_ball_noise_is_private_for_every_shift_by_enumeration() -> None:
    pmf = ball_pmf(0.75, 2, 20)
    for shift in [(1, 0), (1, 1), (2, -1)]:
        bound = 0.75 * math.hypot(*shift)
        for (a, b), mass in pmf.items():
            other = pmf.get((a + shift[0], b + shift[1]))
            if other is not None:
                assert abs(math.log(mass / other)) <= bound * (1 + 1e-12)


def test_acceptance_is_decided_exactly() -> None:
    rate2 = Fraction(2, 49)
    rate = laplace_rate(rate2, 3)
    assert rate * rate * 3 <= rate2
    assert float(rate) == pytest.approx(math.sqrt(2 / 49 / 3), rel=1e-15)
    square, linear = rate2 * (9 + 1 + 16), rate * 8
    for bits in (40, 200, 700):
        low, high = _enclose(square, linear, bits)
        assert low <= high <= low + 64
    assert low / 2.0**700 == pytest.approx(math.exp(-(math.sqrt(square) - float(linear))), rel=1e-12)
    source = Seeded(5)
    with Scratch(1, 1, source) as scratch:
        share = sum(accept_draw([3, -1, 4], rate2, rate, scratch) for _ in range(4000)) / 4000
        assert accept_draw([0, 0, 0], rate2, rate, scratch)
    expected = math.exp(-(math.sqrt(square) - float(linear)))
    assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / 4000)


def test_noise_wraps_and_fits_its_state() -> None:
    law = LayerLaw("discrete-laplace", Fraction(1, 100), 3)
    state = np.full(3, (1 << 63) - 1, np.int64)
    add_noise(law, state, Seeded(1))
    with pytest.raises(SpecError, match="3 counters"):
        add_noise(law, np.zeros(4, np.int64))
