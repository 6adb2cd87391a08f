"""Checks of the noise as it is drawn: its exact loss for a pair of neighbours, and the delta that follows.

In: the spec, the law of a layer. Out: exact Fractions, upper bounds of delta, neighbours worth attacking.
Touches: nothing.
Source: docs/theory/convolution.md, sections 3 and 6; docs/theory/gaussian.md (the smoothing lemma).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchstream.errors import SpecError
from sketchstream.kinds.convolution.fourier.group import Coordinates
from sketchstream.kinds.convolution.mechanisms.scheme import SMOOTHING, NoiseLayer
from sketchstream.kinds.convolution.spec import COUNTER_ROUNDINGS, ConvolutionSpec
from sketchstream.kinds.convolution.update import Updater
from sketchstream.privacy.calibration.continuous import delta_above
from sketchstream.privacy.calibration.discrete import closeness
from sketchstream.privacy.losses.zcdp import zcdp_log_delta

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Neighbour:
    """One way in which a protected unit can differ: weights at positions, which count as present or absent."""

    positions: tuple[int, ...]
    weights: tuple[int, ...]


def extreme_neighbours(spec: ConvolutionSpec) -> tuple[Neighbour, ...]:
    """Neighbours that an audit should try: the largest weight at the first, a middle and the last position.

    For unit "item" also the bound split over two positions, which must not cost more.
    """
    bound, last = spec.bound, spec.length - 1
    out = [Neighbour((n,), (bound,)) for n in sorted({0, spec.length // 2, last})]
    if spec.unit == "item" and bound > 1 and last > 0:
        out.append(Neighbour((0, last), (bound // 2, bound - bound // 2)))
        out.append(Neighbour((0, last), (bound // 2, -(bound - bound // 2))))
    return tuple(out)


def exact_loss(
    spec: ConvolutionSpec, neighbour: Neighbour, layer: NoiseLayer | None = None, scales: Floats | None = None
) -> Fraction:
    """The loss of a pair of neighbours under one layer, in the measure of the layer, exact; that of the words.

    Args:
        spec: spec of layout "fourier", or of noise "counts", "tree" or "toeplitz".
        neighbour: the difference of the two.
        layer: the law; default the creation layer.
        scales: (size,) integers that replace `spec.scheme.lattice_scales(layer)`, to judge other noise by the same sum.

    Raises:
        SpecError: layout "time" with noise in the spectrum, whose loss is a closed form, or noise that is too small.
    """
    law = spec.layer() if layer is None else layer
    if spec.noise in ("counts", "tree"):
        state = np.zeros(spec.size, np.int64)
        Updater(spec).apply(state, np.asarray(neighbour.positions), np.asarray(neighbour.weights))
        return int(np.abs(state).sum()) * spec.scheme.count_epsilon(law)
    if spec.layout == "time" and spec.noise != "toeplitz":
        msg = "the exact loss is a sum over words of layout 'fourier'; see `spectral_loss` for layout 'time'"
        raise SpecError(msg)
    shift = np.asarray(neighbour.weights) @ spec.scheme.columns(np.asarray(neighbour.positions))
    parameters = spec.scheme.lattice_scales(law) if scales is None else scales
    total = Fraction(0)
    for a, one in zip(shift.tolist(), parameters.tolist(), strict=True):
        parameter = int(one) - (SMOOTHING if spec.measure == "mu2" else 0)
        if a and parameter <= 0:
            msg = f"noise is too small: expected a parameter above {SMOOTHING}, found {int(one)}"
            raise SpecError(msg)
        if spec.measure == "mu2":
            total += Fraction(a * a, parameter) if a else 0
        elif spec.noise == "laplace":
            total += Fraction(a * a, 2 * parameter * parameter) if a else 0
        else:
            total += Fraction(abs(a), parameter) if a else 0
    return total


def spectral_loss(spec: ConvolutionSpec, layer: NoiseLayer | None = None) -> float:
    """The loss of one unit at its bound through the words, by the sum of precisions over the characters.

    Args:
        spec: spec of noise "gaussian" or "laplace".
        layer: the law; default the creation layer.
    """
    law = spec.layer() if layer is None else layer
    scales2 = spec.scheme.scales2(law)
    precision = math.fsum((1 / scales2[spec.scheme.shape.kept]).tolist()) / spec.group.size * spec.bound**2
    return precision if spec.noise == "gaussian" else precision / 2


def verified_delta(spec: ConvolutionSpec, layer: NoiseLayer | None = None) -> float:
    """Upper bound of the delta of one layer at its epsilon, for the integers that are drawn.

    Gaussian noise is compared with rounded real noise; the finite precision of layout "time" is added.

    Args:
        spec: the specification.
        layer: the law; default the creation layer.

    Raises:
        SpecError: the bound is above the layer's delta.
    """
    law = spec.layer() if layer is None else layer
    if law.measure == "epsilon":
        return 0.0
    if law.epsilon is None or law.delta is None:
        msg = "expected a layer with the epsilon and delta that it promises, found one with its loss alone"
        raise SpecError(msg)
    spent = float(spec.scheme.sampling_delta(law.epsilon, law.delta))
    if law.measure == "rho":
        bound = math.exp(zcdp_log_delta(float(law.loss), float(law.epsilon)))
    else:
        bound = 1.0
        for rounding in COUNTER_ROUNDINGS if spec.counted else (SMOOTHING,):
            factor = (spec.size + spec.counted) * closeness(Fraction(rounding))
            left = float(law.epsilon) - 2 * factor
            beside = law.loss * spec.counted_share
            if left > 0 and rounding * beside < 1:
                mu = math.sqrt(law.loss - beside + beside / (1 - rounding * beside))
                bound = min(bound, math.exp(factor) * float(delta_above(np.array([left]), np.array([mu]))[0]))
    bound += spent
    if bound > float(law.delta):
        msg = f"noise is too small: expected delta at most {float(law.delta):.6g}, found {bound:.6g}"
        raise SpecError(msg)
    return bound


def coordinates_of(held: Coordinates, transform: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """(size,) float64, the real coordinates of an (M,) unitary transform."""
    pairs = transform[held.pairs] * np.sqrt(2)
    return np.concatenate([transform[held.singles].real, pairs.real, -pairs.imag])
