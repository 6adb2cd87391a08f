"""Counters with Gaussian noise: shares of mu^2, the laws of what leaves, headers, quantiles of sums of draws.

In: components, drawn noise. Out: verdicts. Touches: entropy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sketchstream.components import COUNTED, TOTAL, Component, Counter, Counters, Noise
from sketchstream.errors import FormatError
from sketchstream.kinds.noise_sums import NoiseSum
from sketchstream.privacy.losses.gaussian import ComponentShift, UnitShift
from sketchstream.privacy.losses.law_names import DISCRETE_GAUSSIAN

F = Fraction
SHARES = (F(7, 8), F(1, 12), F(1, 24))
COST = F(1, 3)
BESIDE = (
    Component(TOTAL, SHARES[1], sensitivity=3, law=DISCRETE_GAUSSIAN),
    Component(COUNTED, SHARES[2], law=DISCRETE_GAUSSIAN),
)
RUNS = 2000


def test_a_share_of_mu_squared_divides_the_variance() -> None:
    assert BESIDE[0].parameter(COST) == 9 * 36
    assert BESIDE[1].parameter(COST) == 72
    shift = UnitShift(tuple(ComponentShift(F(d * d), 1, share) for d, share in zip((1, 3, 1), SHARES, strict=True)))
    assert [part.sigma2(COST) for part in shift.components[1:]] == [one.parameter(COST) for one in BESIDE]
    apart = Component("admitted", F(0), law=DISCRETE_GAUSSIAN, own_cost=F(1, 100))
    assert apart.parameter(COST) == 100


def drawn(step: str) -> list[Counter]:
    made = Counters.create(BESIDE, COST)
    if step == "refreshed":
        made = made.refreshed(COST / 2)
    cost = {"sealed": COST, "released": COST / 4}.get(step)
    return list(made.publish(cost, final=True))


LAWS = {"bare": [1], "sealed": [1, 1], "released": [1, 4], "refreshed": [1, 2]}


def chance(step: str, *, at: int = 0) -> float:
    """Of a variance this far from the one that is said, under a normal law."""
    values = np.array([drawn(step)[at].value for _ in range(RUNS)], float)
    variance = float(sum(times * BESIDE[at].parameter(COST) for times in LAWS[step]))
    tail = stats.chi2.cdf(float((values**2).sum()) / variance, RUNS)
    return 2 * min(tail, 1 - tail)


@pytest.mark.statistics
@pytest.mark.parametrize("step", LAWS)
def test_counters_leave_with_the_noise_that_they_say(step: str) -> None:
    said = [[draw.parameter for draw in one.noise] for one in drawn(step)]
    assert said == [[times * one.parameter(COST) for times in LAWS[step]] for one in BESIDE]
    assert {draw.law for one in drawn(step) for draw in one.noise} == {DISCRETE_GAUSSIAN}
    assert all(chance(step, at=at) > 1e-9 for at in range(2))


def laplace(component: Component, parameter: Fraction) -> tuple[Noise, int]:
    """Mutant: sigma2 is taken for an epsilon."""
    from sketchstream import noise

    number = np.zeros(1, np.int64)
    noise.discrete_laplace(number, parameter)
    return Noise(component.law, parameter), int(number[0])


def whole(component: Component, parameter: Fraction) -> tuple[Noise, int]:
    """Mutant: each counter is drawn as if it had the whole mu^2."""
    from sketchstream import noise

    number = np.zeros(1, np.int64)
    noise.discrete_gaussian(number, parameter * component.share)
    return Noise(component.law, parameter), int(number[0])


@pytest.mark.statistics
@pytest.mark.parametrize("mutant", [laplace, whole])
def test_counters_with_other_noise_are_refused(
    mutant: Callable[[Any, Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counters, "_drawn", staticmethod(mutant))
    assert chance("sealed") < 1e-9


def test_headers_name_the_law_and_refuse_others() -> None:
    made = Counters.create(BESIDE, COST)
    data = [one.to_dict() for one in made.as_they_are()]
    assert data[0]["noise"] == [{"law": "discrete-gaussian", "sigma2": "324"}]
    assert Counters.from_list(BESIDE, data).as_they_are() == made.as_they_are()
    for wrong in (
        {"law": "discrete-gaussian", "epsilon": "324"},
        {"law": "discrete-laplace", "sigma2": "324"},
        {"law": "discrete-gaussian", "sigma2": "0"},
        {"law": "normal", "sigma2": "324"},
    ):
        with pytest.raises(FormatError):
            Noise.from_dict(wrong)


@pytest.mark.parametrize(
    ("epsilons", "sigma2s"),
    [((), (F(1, 2),)), ((), (F(9), F(100), F(100))), ((F(1, 3),), (F(40),)), ((F(2), F(1, 10)), (F(3, 4), F(5)))],
)
def test_quantiles_of_mixed_sums_are_those_of_the_convolution(
    epsilons: tuple[Fraction, ...], sigma2s: tuple[Fraction, ...]
) -> None:
    j = np.arange(-700, 701)
    law = np.ones(1)
    laws = [np.exp(-float(e) * np.abs(j)) for e in epsilons] + [np.exp(-(j**2) / (2 * float(s))) for s in sigma2s]
    for weights in laws:
        law = np.convolve(law, weights / weights.sum())
    centre = len(law) // 2
    assert law.sum() == pytest.approx(1)
    draws = [Noise("discrete-laplace", e) for e in epsilons] + [Noise("discrete-gaussian", s) for s in sigma2s]
    noise = NoiseSum.of(draws)
    assert noise == NoiseSum(epsilons, sigma2s)
    upper = np.cumsum(law[::-1])[::-1]
    for alpha in (0.4, 0.1, 0.025, 1e-3, 1e-6):
        exact = next(q for q in range(700) if upper[centre + q + 1] <= alpha)
        assert noise.quantile(alpha) == exact
    assert noise.variance >= float((law * (np.arange(len(law)) - centre) ** 2).sum()) * (1 - 1e-9)


def test_the_quantile_of_wide_gaussian_noise_is_rounded_outwards() -> None:
    noise = NoiseSum((), (F(10**12),))
    quantile = noise.quantile(0.025)
    exact = 10**6 * stats.norm.isf(0.025)
    assert exact <= quantile <= exact * (1 + 1e-4)
    assert math.isclose(noise.deviation, 10**6)
