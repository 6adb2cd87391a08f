"""Audit of discrete Gaussian noise: epsilons and deltas hold for integers, not only for real numbers.

In: losses of small histories. Out: outcomes. Touches: nothing.
Source: docs/theory/gaussian_ledger.md sections 3 and 4.

Exact deltas are sums over all outcomes of small noise, where the lattice matters most.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.audit.observed import Outcome
from sketchstream.privacy.losses.gaussian import GaussianLoss, UnitShift
from sketchstream.privacy.losses.history import Entry, History, LayerEntry, View

VARIANCES: Final = tuple(Fraction(text) for text in ("1/3", "1/2", "1", "3/2", "4"))
EPSILONS: Final = (Fraction(1, 10), Fraction(1), Fraction(3))
VALUES_SUMMED: Final = 60
"""Values that are summed on either side of 0."""


def pmf(variance: Fraction) -> Floats:
    """Probabilities of a discrete Gaussian value from -VALUES_SUMMED to VALUES_SUMMED."""
    x = np.arange(-VALUES_SUMMED, VALUES_SUMMED + 1)
    mass = np.exp(-(x**2) / (2 * float(variance)))
    return np.asarray(mass / mass.sum())


def deltas() -> Outcome:
    """Check delta at several epsilons of histories with one or two noises against the sum over all outcomes."""
    wrong: list[str] = []
    number = 0
    for first in VARIANCES:
        layer = LayerEntry(b"", "discrete-gaussian", 1 / first)
        for second in VARIANCES:
            both = np.convolve(pmf(first), pmf(second))
            histories: list[tuple[tuple[Entry, ...], Floats]] = [
                ((layer, View("publication", None)), pmf(first)),
                ((layer, View("publication", 1 / second)), both),
                ((layer, LayerEntry(b"", "discrete-gaussian", 1 / second), View("publication", None)), both),
            ]
            for entries, law in histories:
                loss = GaussianLoss.of(History(entries, (), 1), UnitShift.of(1, 1))
                for epsilon in EPSILONS:
                    shifted, here = law[:-1], law[1:]
                    exact = float(np.maximum(here - math.exp(epsilon) * shifted, 0).sum()) + law[0]
                    number += 1
                    if loss.delta(epsilon) < exact * (1 - 1e-9) - 1e-15:
                        wrong.append(f"delta {loss.delta(epsilon):.3g} at epsilon {float(epsilon)}, exact {exact:.3g}")
    result = f"{number} sums" if not wrong else f"WRONG in {len(wrong)} of {number}: {wrong[0]}"
    return not wrong, "never below the sum over all outcomes", result, "a delta below, by 1e-9"


def smoothing() -> Outcome:
    """Check the distance of a discrete law and its smoothed one, which stands for the lattice in every bound."""
    wrong: list[str] = []
    number = 0
    for variance in VARIANCES[2:]:
        history = History((LayerEntry(b"", "discrete-gaussian", 1 / variance), View("publication", None)), (), 1)
        for bound in GaussianLoss.of(history, UnitShift.of(1, 1)).smoothed:
            if bound.rounding < variance and bound.kappa <= 1:
                number += 1
                exact = _distance(float(variance), float(bound.rounding))
                if bound.kappa < exact * (1 - 1e-6) - 1e-12:
                    wrong.append(f"kappa {bound.kappa:.3g}, exact {exact:.3g}")
    result = f"{number} distances" if not wrong else f"WRONG in {len(wrong)} of {number}: {wrong[0]}"
    return not wrong, "never below the distance of the laws", result, "a distance below, by 1e-6"


def _distance(variance: float, rounding: float) -> float:
    """Largest |log ratio| of a discrete Gaussian law and a Gaussian one of less variance, rounded at random.

    A value y of the Gaussian law becomes the integer z with probability in proportion to e^(-(z - y)^2 / 2 rounding).
    """
    y = np.linspace(-12 * math.sqrt(variance), 12 * math.sqrt(variance), 40_001)
    z = np.arange(-6, 7)
    density = np.exp(-(y**2) / (2 * (variance - rounding)))
    density /= density.sum()
    every = np.arange(-80, 81)
    theta = np.exp(-((every[:, None] - y) ** 2) / (2 * rounding)).sum(axis=0)
    smooth = (np.exp(-((z[:, None] - y) ** 2) / (2 * rounding)) / theta * density).sum(axis=1)
    exact = np.exp(-(z**2) / (2 * variance)) / np.exp(-(every**2) / (2 * variance)).sum()
    likely = exact > 1e-12
    return float(np.abs(np.log(smooth[likely] / exact[likely])).max())
