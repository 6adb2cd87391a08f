"""Streams that react to closed positions: why Laplace noise in layout "time" is refused, and Gaussian noise is not.

In: the noise of a small series, its words so far. Out: Kullback-Leibler divergences of an event that is placed by them.
Touches: nothing.
Source: docs/theory/convolution.md, section 11.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import sketchstream as ss
from sketchstream.kinds.convolution.spec import ConvolutionSpec

Floats = npt.NDArray[np.float64]
SERIES: dict[str, Any] = {"epsilon": 1, "delta": "1e-6", "layout": "time", "transform_length": 8}
CLOSED: dict[str, Any] = {"publish": "closed", "intrusion": False, "step_ms": 1000}
EARLY = [6, 7, 0, 1, 2, 3]
"""Words that the instalments have shown: padding, then positions 0 to 3. Positions 4 and 5 are still open."""


def noise_of(noise: Any) -> tuple[Floats, Floats, ConvolutionSpec]:
    """(8, 8) words of each real Fourier coordinate; (8,) its scale; the spec of a series that is published whole."""
    spec = ConvolutionSpec("window:2", 6, noise=noise, **SERIES)
    m = spec.transform_length
    at = np.arange(m)
    rows, frequencies = [np.full(m, m**-0.5)], [0]
    for k in range(1, m // 2):
        rows += [np.sqrt(2 / m) * turn(2 * np.pi * k * at / m) for turn in (np.cos, np.sin)]
        frequencies += [k, k]
    rows.append(np.where(at % 2, -1, 1) * m**-0.5)
    basis = np.array(rows)
    assert np.allclose(basis @ basis.T, np.eye(m))
    share = np.abs(np.fft.fft([1, 1], m))[[*frequencies, m // 2]]
    share = (1 - 1 / 64) * share / np.abs(np.fft.fft([1, 1], m)).sum() + 1 / (64 * m)
    loss = float(spec.layer().loss)
    budget = loss if noise == "gaussian" else 2 * loss
    return basis, 1 / np.sqrt(m * budget * share), spec


def test_an_event_that_reacts_loses_more_than_rho_under_laplace_noise() -> None:
    basis, scales, spec = noise_of("laplace")
    rho = float(spec.layer().loss)
    moved = basis / scales[:, None]  # what each position moves, in units of each coordinate's scale
    assert np.allclose((moved**2).sum(axis=0) / 2, rho, rtol=1e-2), "this is the noise that the spec draws"
    fixed = (np.abs(moved) + np.exp(-np.abs(moved)) - 1).sum(axis=0)
    assert fixed.max() < rho, "one that does not react loses less"
    far, near = (_plane(basis, reach, points) for reach, points in ((330, 61), (40, 121)))
    random = np.random.default_rng(5)
    more = []
    for _ in range(400):
        drawn = random.laplace(0, scales)[:, None]
        likely = np.abs((drawn + far) / scales[:, None]).sum(axis=0).argmin()
        alike = (drawn + far[:, [likely]] + near) / scales[
            :, None
        ]  # noise with these early words, around the likeliest
        cost = np.abs(alike).sum(axis=0)
        weight = np.exp(cost.min() - cost)
        weight /= weight.sum()
        lost = [float(weight @ (np.abs(alike + moved[:, [at]]).sum(axis=0) - cost)) for at in (4, 5)]
        more.append(abs(lost[0] - lost[1]) / 2)  # the larger of both, less their mean, which is that of fixed events
    divergence = fixed[4:6].mean() + np.mean(more)
    error = np.std(more) / np.sqrt(len(more))
    assert divergence - 10 * error > rho, "zCDP would bound the divergence by rho"
    assert divergence == pytest.approx(0.02645, abs=0.0006)


def _plane(basis: Floats, reach: float, points: int) -> Floats:
    """(8, points^2) noise of a square that leaves all early words as they are, by coordinate."""
    still = np.linalg.svd(basis[:, EARLY].T)[2][len(EARLY) :].T
    along = np.linspace(-reach, reach, points)
    first, second = (one.ravel() for one in np.meshgrid(along, along))
    plane: Floats = still[:, :1] * first + still[:, 1:] * second
    return plane


def test_an_event_that_reacts_loses_what_a_fixed_one_does_under_gaussian_noise() -> None:
    """Given the early words the rest is Gaussian with one covariance, whatever these words are."""
    basis, scales, spec = noise_of("gaussian")
    precision = basis.T @ np.diag(scales**-2) @ basis
    assert np.allclose(np.diag(precision), float(spec.layer().loss), rtol=1e-2)
    covariance = np.linalg.inv(precision)
    late = [4, 5]
    between = covariance[np.ix_(late, EARLY)] @ np.linalg.inv(covariance[np.ix_(EARLY, EARLY)])
    conditional = covariance[np.ix_(late, late)] - between @ covariance[np.ix_(EARLY, late)]
    assert np.allclose(np.linalg.inv(conditional), precision[np.ix_(late, late)])


def test_laplace_noise_with_closed_positions_is_refused_with_the_way_out() -> None:
    with pytest.raises(ss.SpecError, match=r"reacts to closed positions.*use noise = 'gaussian'.*'counts'"):
        ConvolutionSpec("window:2", 6, noise="laplace", **SERIES, **CLOSED)
    for kernel, length in (("sum", 64), ("window:40", 64), ("window:2", 64), ("decay:0.99", 200)):
        for epsilon in ("1/10", 1, 8):
            series = {**SERIES, "epsilon": epsilon, "transform_length": None}
            assert ConvolutionSpec(kernel, length, **series, **CLOSED).noise in ("toeplitz", "counts")
    for noise in ("gaussian", "counts"):
        length = {} if noise == "gaussian" else {"transform_length": 8}
        assert ConvolutionSpec("window:2", 6, noise=noise, **{**SERIES, **length}, **CLOSED).publish == "closed"
