"""The likelihood of open domains: slopes and information agree with differences, laws of slots with slow sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

from helpers.thrown import thrown
from sketchstream.kinds.profile.estimate.open_domain import likelihood
from sketchstream.kinds.profile.estimate.simulate import publish
from sketchstream.kinds.profile.reconstruction import reconstruct

FORMS = {
    "events": {"epsilon": 1, "form": "cumulative", "max_count": 12},
    "events in wide bins": {"epsilon": 1, "form": "bins", "max_count": 400, "max_weight": 3},
    "items": {"epsilon": 4, "form": "bins", "unit": "item", "modulus": 32, "grouped": True},
    "items as released counters": {"epsilon": 4, "form": "state", "unit": "item", "modulus": 16},
}


class Caught(Exception):
    """Carries the problem out of the reconstruction."""


@pytest.fixture(params=FORMS)
def problem(request, monkeypatch):
    """The likelihood that a reconstruction builds, and a law near the truth."""
    options = FORMS[request.param]

    def catch(observed, problem, least):
        raise Caught(problem)

    monkeypatch.setattr(likelihood, "average_law", catch)
    rng = np.random.default_rng(3)
    counts = np.array([900, 500, 250, 125, 60, 30, 10])
    counters = thrown(np.arange(1, 8), counts, 4096, 4, rng)
    part = publish(counters, rng=rng, open_domain=True, cost=options["epsilon"], **options)
    with pytest.raises(Caught) as caught:
        reconstruct([part], method="likelihood", max_count=options.get("modulus", 13) - 1)
    found = caught.value.args[0]
    law = np.full(found.m, 2e-4)
    law[1:6] = np.array([0.2, 0.1, 0.06, 0.03, 0.02]) * min(1.0, 1875.0 / found.d)
    law[0] = 1.0 - law[1:].sum()
    return found, law


def changes(problem, law, number=4):
    """Directions that keep the sum of a law and its signs."""
    rng = np.random.default_rng(4)
    out = law[:, None] * rng.normal(size=(problem.m, number))
    out[0] -= out.sum(axis=0)
    return out


def test_the_slope_is_that_of_the_likelihood(problem):
    opened, law = problem
    _, ratio, _ = opened.score(law)
    for way in changes(opened, law).T:
        h = 1e-5
        slope = (opened.value(law + h * way) - opened.value(law - h * way)) / (2.0 * h)
        assert float(ratio @ way) == pytest.approx(slope, rel=2e-3, abs=2e-3 * math.sqrt(opened.d))


def test_moved_chances_are_differences(problem):
    opened, law = problem
    ways, h = changes(opened, law), 1e-5
    moved = opened.laws.derivatives(opened.laws.laws(opened.scales, law), ways)
    for j, one in enumerate(moved):
        for k in range(ways.shape[1]):
            up, down = (
                opened.laws.chances(opened.laws.laws(opened.scales[j : j + 1], law + sign * h * ways[:, k]))[0]
                for sign in (1.0, -1.0)
            )
            expected = (up - down) / (2.0 * h) / opened.scales[j]
            np.testing.assert_allclose(one[:, k], expected, atol=1e-7, rtol=1e-4)


def test_every_level_counts_once(problem):
    """Likelihood, slopes and information of all levels together are the sums of those of each."""
    opened, law = problem
    ways = changes(opened, law) / law[:, None]
    _, _, mu = opened.score(law)
    rows = opened.rows(law, mu, ways, law @ ways)
    alone = [
        likelihood.Opened(opened.grid, opened.laws, [level], opened.scales[j : j + 1])
        for j, level in enumerate(opened.levels)
    ]
    each = [one.rows(law, one.score(law)[2], ways, law @ ways) for one in alone]
    summed = sum(one.T @ one for one in each)
    np.testing.assert_allclose(rows.T @ rows, summed, rtol=1e-9)
    assert sum(one.value(law) for one in alone) == pytest.approx(opened.value(law), rel=1e-9)
    slopes = sum(one._pull(one._solve(law)[2])[1:] for one in alone)
    np.testing.assert_allclose(opened._pull(opened._solve(law)[2])[1:], slopes, rtol=1e-9)


def test_residues_follow_the_slow_sum_over_numbers_of_items():
    p, eigenvalue = 16, 0.7
    above = np.array([0.5, 0.3, 0.2])
    laws = likelihood.WrappedSums(p + 1 - above.size, above, eigenvalue)
    rng = np.random.default_rng(5)
    f = rng.dirichlet(np.ones(laws.m))
    one = np.append(0.0, np.append(f[1:-1], f[-1] * above)) / f[1:].sum()
    scales = np.array([0.3, 2.0, 9.0])
    for scale, chances in zip(scales, laws.chances(laws.laws(scales, f)), strict=True):
        load, total, power = scale * f[1:].sum(), np.zeros(p), np.eye(p)[0]
        for items in range(80):
            total += math.exp(-load) * load**items / math.factorial(items) * power
            power = np.array([sum(power[i] * one[(r - i) % p] for i in range(p)) for r in range(p)])
        np.testing.assert_allclose(chances, eigenvalue * total + (1.0 - eigenvalue) / p, atol=1e-12)


def test_every_way_to_see_a_law_is_among_the_cases(problem, request):
    expected = {"events": "Sums", "events in wide bins": "CounterSums"}
    assert type(problem[0].laws).__name__ == expected.get(request.node.callspec.params["problem"], "WrappedSums")
