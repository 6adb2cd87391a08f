"""Forecasts: expected errors of every noise and layout, and of alternative mechanisms.

In: a filter, a length, epsilon and delta. Out: rows of figures, the best first, and one line of advice.
Touches: nothing.
Source: docs/theory/convolution.md, sections 4, 5 and 9; Henzinger, Upadhyay & Upadhyay 2023 (square roots).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from sketchstream.errors import SpecError
from sketchstream.kinds.convolution.accounting import mu_of
from sketchstream.kinds.convolution.filters import Filter
from sketchstream.kinds.convolution.mechanism import Layout, NoiseKind
from sketchstream.kinds.convolution.spec import NOISES, ConvolutionSpec


@dataclass(frozen=True)
class Figure:
    """One mechanism for the filters.

    Attributes:
        noise: the noise kind.
        layout: the layout.
        transform_length: M.
        rmse: root mean squared error of each filter's answers in the published state.
        words: 8-byte words of the state.
        words_touched: number of words that one event changes.
    """

    noise: NoiseKind
    layout: Layout
    transform_length: int
    rmse: tuple[float, ...]
    words: int
    words_touched: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "noise": self.noise,
            "layout": self.layout,
            "transform_length": self.transform_length,
            "rmse": list(self.rmse),
            "words": self.words,
            "words_touched": self.words_touched,
        }


def figure(spec: ConvolutionSpec, parts: int = 1) -> Figure:
    """The figures of one spec, its fresh noise at seal included.

    Args:
        spec: the specification.
        parts: states that are merged before they are read, each with a layer of its own.
    """
    layers = [spec.layer()] * parts + ([published] if (published := spec.published_layer) else [])
    touched = spec.size if spec.layout == "fourier" else 1
    rmse = tuple(float(one) for one in np.sqrt(spec.mse(layers)))
    return Figure(spec.noise, spec.layout, spec.transform_length, rmse, spec.size, touched)


def forecast(kernel: object, length: int | None = None, *, parts: int = 1, **given: Any) -> tuple[Figure, ...]:
    """Every noise and layout that these arguments allow, the smallest error first.

    Args:
        kernel: see `ConvolutionSpec`.
        length: see `ConvolutionSpec`.
        parts: states that are merged before they are read.
        given: the other arguments of `ConvolutionSpec`; noise and layout are tried in turn.

    Raises:
        SpecError: no combination is possible; the error of the last one.
    """
    found: dict[tuple[str, str], Figure] = {}
    refused: SpecError | None = None
    given = {name: value for name, value in given.items() if name not in ("noise", "layout")}
    for layout in get_args(Layout):
        for noise in NOISES:
            delta = {"delta": 0} if noise == "laplace_pure" else {}
            try:
                one = figure(ConvolutionSpec(kernel, length, noise=noise, layout=layout, **{**given, **delta}), parts)
            except SpecError as error:
                refused = error
                continue
            found[one.noise, one.layout] = one
    if not found:
        assert refused is not None
        raise refused
    return tuple(sorted(found.values(), key=lambda one: (sum(r * r for r in one.rmse), one.words_touched)))


def factorisation_rmse(written: Filter, length: int, mu: float) -> float:
    """Root mean squared error of the square-root factorisation of a causal filter, one layer of Gaussian noise.

    T = R R with R lower triangular Toeplitz; the noise is N(0, |r|^2 / mu^2) on R x, decoded by R: the mean over the
    positions of the squared row norms of R, times the squared norm of its first column.

    Args:
        written: a filter whose first coefficient is above 0.
        length: positions.
        mu: the budget.
    """
    root = square_root(written, length)
    squares = np.cumsum(root**2)
    return math.sqrt(float(squares.mean()) * float(squares[-1])) / mu


def square_root(written: Filter, length: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(length,) coefficients of the power series whose square is the filter's."""
    from numpy.polynomial import polynomial

    h = np.zeros(length)
    h[: len(written)] = written.coefficients[:length]
    out = np.array([math.sqrt(h[0])])
    while len(out) < length:  # Newton: r <- (r + h / r) / 2, twice the terms a round
        size = min(length, 2 * len(out))
        inverse = _reciprocal(out, size)
        quotient = polynomial.polymul(h[:size], inverse)[:size] if size < 256 else _product(h[:size], inverse)[:size]
        padded = np.zeros(size)
        padded[: len(out)] = out
        out = (padded + quotient) / 2
    return out


def _reciprocal(series: np.ndarray[Any, np.dtype[np.float64]], size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(size,) coefficients of 1 / series."""
    out = np.array([1 / series[0]])
    while len(out) < size:
        wide = min(size, 2 * len(out))
        product = _product(_product(out, out)[:wide], series[:wide])[:wide]
        padded = np.zeros(wide)
        padded[: len(out)] = 2 * out
        padded[: len(product)] -= product
        out = padded
    return out


def _product(
    a: np.ndarray[Any, np.dtype[np.float64]], b: np.ndarray[Any, np.dtype[np.float64]]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Product of two polynomials."""
    from scipy.signal import fftconvolve

    out: np.ndarray[Any, np.dtype[np.float64]] = fftconvolve(a, b)
    return out


def advice(spec: ConvolutionSpec) -> str:
    """One line about a mechanism with a smaller error than this spec; empty if there is none."""
    if spec.delta and len(spec.filters) == 1 and spec.mode == "linear" and spec.origin == 0:
        written = spec.filters[0]
        if written.coefficients[0] > 0:
            mu = float(mu_of(spec.epsilon, spec.delta)) * math.sqrt(1 - spec.counted_share) / spec.bound
            other = factorisation_rmse(written, spec.length, mu)
            ours = math.sqrt(float(spec.mse()[0]))
            if math.isfinite(other) and other < 0.98 * ours:
                name = f"prefix:{spec.length}" if written.name == "sum" else "the same filter"
                return (
                    f"the square-root factorisation has {other / ours:.2f} of this error for {written.name}: "
                    f"kind = 'workload' with {name} offers it"
                )
    if spec.columns is not None and len(spec.filters) == 1:
        cells = math.prod(
            len(spec.columns.values[name])
            for name in spec.filters[0].name.removeprefix("marginal:").split(",")
            if name in spec.columns.values
        )
        if cells < spec.length:
            return f"a single marginal is better kept as a table of its {cells} cells with Laplace noise on each"
    return ""
