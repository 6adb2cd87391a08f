"""Attackers never prove more than the claim, and prove it where the noise is wrong."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import sketchstream as ss
from helpers.gaussian_attack import epsilon_lower_bound, intruded, neighbours, sealed, statistics
from helpers.noise.words import Seeded
from sketchstream.errors import SpecError
from sketchstream.kinds.gaussian.spec import GaussianSpec
from sketchstream.noise import discrete_gaussian
from sketchstream.noise.laws import DiscreteGaussian
from sketchstream.privacy.calibration.discrete import discrete_delta_of

DELTA = 1e-4
TRIALS = 150_000
SPECS = {
    "event": GaussianSpec(1, "1e-4", domain=ss.ClosedDomain(size=100)),
    "weights": GaussianSpec(1, "1e-4", domain=ss.ClosedDomain(size=100), max_weight="5/4", fraction_bits=2),
    "item": GaussianSpec(1, "1e-4", "item", ss.ClosedDomain(size=100), max_total=5, max_per_slot=2),
    "spread item": GaussianSpec(1, "1e-4", "item", ss.ClosedDomain(size=100), max_total=4, max_per_slot=1),
}


def test_extreme_neighbours_of_an_item_have_several_coordinates() -> None:
    found = {one.name: one.shape for one in neighbours(SPECS["item"])}
    assert found == {
        "longest shift": (2, 2, 1),
        "one slot": (2,),
        "one unit": (1,),
        "one unit in many slots": (1, 1, 1, 1, 1),
    }
    assert [one.shape for one in neighbours(SPECS["event"])] == [(1,)]
    for spec in SPECS.values():
        assert max(sum(v * v for v in one.shape) for one in neighbours(spec)) == spec.sensitivity2


@pytest.mark.statistics
@pytest.mark.parametrize("name", SPECS)
def test_no_attacker_proves_more_than_the_claim(name: str) -> None:
    spec, source = SPECS[name], Seeded(20)
    for one in neighbours(spec):
        for mechanism in (intruded(spec, source), sealed(spec, source)):
            assert epsilon_lower_bound(*statistics(spec, one.shape, TRIALS, mechanism), DELTA) <= float(spec.epsilon)
    longest = statistics(spec, neighbours(spec)[0].shape, TRIALS, intruded(spec, source))
    assert epsilon_lower_bound(*longest, DELTA) > 0.25  # the attack is no straw man


@pytest.mark.statistics
@pytest.mark.parametrize("name", ["item", "spread item"])
def test_noise_that_is_wrong_for_several_coordinates_is_refused(name: str) -> None:
    spec, source = SPECS[name], Seeded(21)
    longest = neighbours(spec)[0].shape
    alone = GaussianSpec(1, "1e-4", domain=ss.ClosedDomain(size=100))  # calibrated as if an item were one event

    def unnoised(truth: np.ndarray) -> np.ndarray:
        """The layer leaves out the last slot of each item."""
        noisy = truth.copy()
        discrete_gaussian(noisy, spec.sigma2, source)
        noisy[len(longest) - 1 :: len(longest)] = truth[len(longest) - 1 :: len(longest)]
        return noisy

    def cancelled(truth: np.ndarray) -> np.ndarray:
        """One layer is drawn once and used with both signs."""
        layer = np.zeros(len(truth), np.int64)
        discrete_gaussian(layer, spec.sigma2, source)
        return truth + layer - layer

    last = [0.0] * (len(longest) - 1) + [1.0]
    for mechanism, weights in ((intruded(alone, source), None), (unnoised, last), (cancelled, None)):
        found = statistics(spec, longest, TRIALS, mechanism, weights)
        assert epsilon_lower_bound(*found, DELTA) > float(spec.epsilon)
    right = statistics(spec, longest, TRIALS, intruded(spec, source), last)
    assert epsilon_lower_bound(*right, DELTA) <= float(spec.epsilon)


def test_the_bound_is_exact_for_a_mechanism_with_known_probabilities() -> None:
    n = 400_000
    quiet, active = np.zeros(n), np.zeros(n)
    quiet[::4], active[::16] = 1.0, 1.0  # Pr 1/4 against 1/16: epsilon = log 4 at delta 0
    found = epsilon_lower_bound(quiet, active, 0.0)
    assert math.log(4) - 0.1 < found <= math.log(4)
    assert epsilon_lower_bound(quiet, active, 0.1) < math.log(0.15 * 16)
    assert epsilon_lower_bound(quiet, quiet, 0.0) == 0
    with pytest.raises(SpecError):
        epsilon_lower_bound(quiet[:99], active[:99], 0.0)
    with pytest.raises(SpecError):
        epsilon_lower_bound(quiet, active[1:], 0.0)


@pytest.mark.statistics
def test_measured_delta_of_the_sampler_is_the_exact_one() -> None:
    draws, s2 = 4_000_000, Fraction(4)
    noise = np.zeros(draws, np.int64)
    discrete_gaussian(noise, s2, Seeded(22))
    above = [float(np.mean(noise >= k)) for k in (4, 5)]
    law = DiscreteGaussian(s2)
    exact = [float(law.pmf(np.arange(k, 60)).sum()) for k in (4, 5)]
    assert exact == pytest.approx([0.038487606, 0.011492123], abs=5e-10)
    wanted = 0.00724877684595258
    assert discrete_delta_of(1, 4) == pytest.approx(wanted, rel=1e-9)
    error = math.sqrt((exact[0] * (1 - exact[0]) + math.e**2 * exact[1]) / draws)
    assert abs(above[0] - math.e * above[1] - wanted) < 5 * error


def loss(views: list[tuple[Fraction, bool]], covariance: np.ndarray) -> float:
    """i'C^-1 i, C the covariance of the views, i = 1 for those after the event."""
    after = np.array([float(moved) for _, moved in views])
    return float(after @ np.linalg.solve(covariance, after))


@pytest.mark.statistics
def test_the_product_s_views_leak_what_the_ladder_says_and_not_what_its_mutants_say() -> None:
    trials, unit, source = 400_000, Fraction(18330, 1024), Seeded(23)
    layer, release, publication = unit, 4 * unit, unit

    def views(weight: int) -> np.ndarray:
        state = np.zeros(trials, np.int64)
        discrete_gaussian(state, layer, source)
        first, second = state.copy(), state + weight
        discrete_gaussian(first, release, source)
        discrete_gaussian(second, publication, source)
        return np.stack((first, second))

    size = 7
    quiet, active = views(0).astype(float), views(size).astype(float)
    covariance = float(unit) * np.array([[5.0, 1.0], [1.0, 2.0]])
    weights = np.linalg.solve(covariance, np.array([0.0, 1.0]))
    shift = (weights @ active).mean() - (weights @ quiet).mean()
    measured = float(unit) * (shift / size) ** 2 / np.var(weights @ quiet)
    ladder = float(unit) * loss([(release, False), (publication, True)], covariance)
    assert ladder == pytest.approx(5 / 9)  # left = 1 * 4 / (1 + 4), right = 1
    assert measured == pytest.approx(ladder, rel=0.02)
    mutants = {  # of 1 / (left + right), left = 1 * 4 / (1 + 4), right = 1, in units of 1 / sigma2
        "publication forgotten": 0.0,
        "release charged to earlier events only": 1 / 2,
        "maximum for sum": 1 / max(4 / 5, 1.0),
        "fresh noise of the publication forgotten": 1 / (4 / 5),
    }
    for name, claim in mutants.items():
        assert abs(claim - measured) > 0.04, name
