"""The numbers of docs/theory/profile.md 7 and 9, and more of their kind, to their last digits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from helpers import estimates_reference as reference
from sketchstream.kinds.profile.estimate import laws
from sketchstream.kinds.profile.estimate.baselines import circulant
from sketchstream.kinds.profile.estimate.intervals.bounds import present
from sketchstream.kinds.profile.estimate.likelihood import kernels
from sketchstream.kinds.profile.estimate.likelihood.grid import Grid
from sketchstream.kinds.profile.estimate.likelihood.problem import Markov
from sketchstream.kinds.profile.estimate.likelihood.published_counts import PublishedCounts
from sketchstream.kinds.profile.estimate.linear.line import Line
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.reconstruction import reconstruct

X = np.array([0, 1, -1, 2, 1, 0, 3, 1, 5, -2, 1, 0, 2, 1, 4, 0, 1, -1, 7, 1])
EXACT = 1e-11


def state(x=X, epsilon=1):
    edges, counts = np.unique(x, return_counts=True)
    return Observed(
        unit="event",
        form="state",
        open_domain=False,
        layers=(("discrete-laplace", Fraction(epsilon)),),
        slots=(x.size,),
        hashed_into=(),
        shares=(),
        edges=edges,
        values=counts[None],
    )


@pytest.mark.parametrize(
    ("epsilon", "centre", "side", "gain"),
    [
        (0.1, 200.833416633609, -99.916708316805, 400.666833267219),
        (0.5, 8.835396178066, -3.917698089033, 16.670792356131),
        (1.0, 2.841347188416, -0.920673594208, 4.682694376831),
        (2.0, 1.362030830483, -0.181015415242, 1.724061660966),
    ],
)
def test_stencil_and_gain(epsilon, centre, side, gain):
    taps = laws.stencil([epsilon])
    assert taps == pytest.approx([side, centre, side], rel=0, abs=1e-9)
    assert laws.gain([epsilon]) == pytest.approx(gain, abs=1e-9)
    assert np.abs(taps).sum() == pytest.approx(gain, abs=1e-9)


def test_eigenvalues_of_the_truncated_circulant():
    r = circulant.truncation(20, 1.0, 0.1)
    assert r == 6
    wanted = [
        1, 0.902360243192, 0.699318166204, 0.521200488497, 0.397735957877, 0.316017803914, 0.266656699842,
        0.235497799523, 0.218592673747, 0.214454325088,
    ]  # fmt: skip
    assert circulant.eigenvalues(1.0, r, 5) == pytest.approx(wanted, abs=EXACT)


def test_circulant_inverse_before_rounding():
    g = np.bincount(X + 6, minlength=18) / 20
    y = np.fft.irfft(np.fft.rfft(g) / circulant.eigenvalues(1.0, 6, 5), 18)
    wanted = [0.153946059282, 0.717210163691, -0.084005642157, 0.003979112494, 0.049865609423, 0.095938347355]
    assert y[6:12] == pytest.approx(wanted, abs=EXACT)
    assert y[6:12].sum() == pytest.approx(0.936933650287, abs=1e-9)


@pytest.mark.parametrize(
    ("norm", "wanted"),
    [
        (1, [0.227219320961, 0.666978251091, 0, 0, 0.029859103211, 0.075943324738]),
        (2, [0.162330890881, 0.700345242216, 0, 0, 0.033000687949, 0.104323178954]),
        (math.inf, [0.155699028046, 0.706977105051, 0, 0, 0.039632550783, 0.097691316120]),
    ],
)
def test_circulant_in_each_norm(norm, wanted):
    profile = reconstruct([state()], method="circulant", max_count=5, norm=norm, beta=0.1)
    assert profile.fractions == pytest.approx(wanted, abs=EXACT)
    assert profile.fractions.sum() + profile.above.value == pytest.approx(1.0, abs=1e-12)


def test_inverse_on_the_line_and_on_the_circle():
    wanted = [0.153966320290, 0.718269437683, -0.084134718842, 0.003966320290, 0.05, 0.096033679710]
    assert reconstruct([state()], method="inverse", max_count=5).fractions == pytest.approx(wanted, abs=EXACT)
    circle = reference.on_circle(np.bincount(X % 16, minlength=16) / 20, [1.0])
    assert circle[:6] == pytest.approx(wanted, abs=EXACT)


def test_monotone():
    profile = reconstruct([state()], method="monotone", max_count=5)
    pooled = np.append(profile.fractions[:5], profile.fractions[5] + profile.above.value)
    assert pooled == pytest.approx([0.211898960869, 0.663501731885, 0, 0, 0.024599307246, 0.1], abs=EXACT)


def test_randomized_response():
    assert math.e / (math.e + 15) == pytest.approx(0.153416784696, abs=EXACT)
    assert laws.response_eigenvalue([1.0], 16) == pytest.approx(0.096977903677, abs=EXACT)


def test_coefficients_of_the_distinct_count():
    line = Line(state())
    (c,), _ = line._undone((present,), line.cells.low.astype(float))
    at = dict(zip(line.cells.low.tolist(), c.tolist(), strict=True))
    assert [at[-2], at[-1], at[0], at[1], at[2]] == pytest.approx(
        [-0.581976706869] * 3 + [1.920673594208, 1.0], abs=EXACT
    )
    taps = np.diff([at[0], at[1], at[2]])
    assert [at[0], *taps] == pytest.approx([-0.581976706869, 2.502650301077, -0.920673594208], abs=EXACT)


def markov(h, form=kernels.EXACT, q=0.0, d=None):
    h = np.asarray(h, dtype=float)
    grid = Grid(np.arange(h.size), np.ones(h.size, dtype=np.int64), h)
    return Markov(grid, 1.0, PublishedCounts(form, h, float(h.sum() if d is None else d), q, 1.0))


def test_em_step_and_shrinkage_path_of_a_state():
    problem = markov(np.bincount(X.clip(0, 5), minlength=6))
    flat = np.full(6, 1 / 6)
    assert problem.step(flat) == pytest.approx(
        [0.29688109, 0.28570611, 0.16063675, 0.09573767, 0.07767156, 0.08336682], abs=5e-9
    )
    taus = np.array([[20.0], [2.0], [1e-8]]) * np.ones(6)
    first, second, last = problem.path(flat, taus, flat, tolerance=1e-14)
    assert first == pytest.approx([0.24481931, 0.2521182, 0.14529933, 0.11863953, 0.11579606, 0.12332757], abs=5e-9)
    assert second == pytest.approx([0.28710551, 0.44868935, 0.06444759, 0.04698586, 0.056283, 0.09648869], abs=5e-9)
    assert last == pytest.approx([0.25498922, 0.60489708, 0, 0, 0.0255061, 0.11460759], abs=5e-8)


def test_saddlepoint_of_cumulative_counts_and_of_bins():
    mu = np.array([500.0, 300, 120, 50, 20, 10])
    y, z, work = np.zeros(6), np.zeros(1), np.zeros((5, 6))
    h = np.array([520.0, 265, 125, 65, 11, 14])
    value = kernels.saddlepoint(kernels.CUMULATIVE, mu, h, y, z, 1000.0, math.exp(-1), 1.0, work)
    assert value == pytest.approx(-6.48589327, abs=5e-9)
    assert mu * np.exp(y) == pytest.approx(
        [519.69620943, 265.61284716, 125.05503051, 63.00900554, 14.18292125, 12.44398612], abs=2e-8
    )
    y[:], h = 0.0, np.array([523.0, 262, 127, 61, 8, 15])
    value = kernels.saddlepoint(kernels.BINS, mu, h, y, z, 1000.0, math.exp(-0.5), 1.0, work)
    assert value == pytest.approx(-7.23182817, abs=5e-9)
    assert z[0] == pytest.approx(0.03101705, abs=5e-9)
    assert mu * np.exp(y) == pytest.approx(
        [522.89217898, 263.41139589, 126.81007331, 59.73770751, 14.29517157, 12.85347276], abs=2e-8
    )


def test_shrinkage_path_of_releases():
    flat, taus = np.full(6, 1 / 6), np.full((1, 6), 100.0)
    out = markov([520, 265, 125, 65, 11, 14], kernels.CUMULATIVE, math.exp(-1), 1000).path(flat, taus, flat, 1e-14)
    assert out[0] == pytest.approx([0.5399056, 0.26967523, 0.08997985, 0.04808001, 0.02814656, 0.02421276], abs=5e-9)
    out = markov([523, 262, 127, 61, 8, 15], kernels.BINS, math.exp(-0.5), 1000).path(flat, taus, flat, 1e-14)
    assert out[0] == pytest.approx([0.53877164, 0.25450939, 0.09268591, 0.0511695, 0.03310657, 0.02975699], abs=5e-9)
