"""Forecasts: expected errors of every noise and layout, and of alternative mechanisms.

In: a filter, a length, epsilon and delta. Out: rows of figures, the best first, and one line of advice.
Touches: nothing.
Source: docs/theory/convolution.md, sections 4, 5, 9 and 12.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from sketchstream.errors import SpecError
from sketchstream.kinds.convolution.fourier.spectrum import Layout, NoiseKind
from sketchstream.kinds.convolution.mechanisms import NOISES
from sketchstream.kinds.convolution.spec import ConvolutionSpec


@dataclass(frozen=True)
class Figure:
    """One mechanism for the filters.

    Attributes:
        rmse: root mean squared error of each filter's answers in the published state.
        words_touched: number of words that one event changes.
    """

    noise: NoiseKind
    layout: Layout
    transform_length: int
    rmse: tuple[float, ...]
    words: int
    words_touched: int

    def to_dict(self) -> dict[str, Any]:
        """The object as plain data."""
        return asdict(self) | {"rmse": list(self.rmse)}


def figure(spec: ConvolutionSpec, parts: int = 1) -> Figure:
    """The figures of one spec, its fresh noise at seal included, of this number of states that are merged."""
    layers = [spec.layer()] * parts + ([published] if (published := spec.published_layer) else [])
    touched = spec.size if spec.scheme.by_columns else max(1, len(spec.levels))
    rmse = tuple(map(float, np.sqrt(spec.mse(layers))))
    return Figure(spec.noise, spec.layout, spec.transform_length, rmse, spec.size, touched)


def forecast(kernel: object, length: int | None = None, *, parts: int = 1, **arguments: Any) -> tuple[Figure, ...]:
    """Every noise and layout that these arguments allow, the smallest error first.

    Args:
        parts: states that are merged before they are read.
        arguments: the other arguments of `ConvolutionSpec`; noise and layout are tried in turn.
    """
    figures: dict[tuple[str, str], Figure] = {}
    refused: SpecError | None = None
    arguments = {name: value for name, value in arguments.items() if name not in ("noise", "layout")}
    for layout in get_args(Layout):
        for noise in NOISES:
            delta = {"delta": 0} if noise == "laplace_pure" else {}
            try:
                spec = ConvolutionSpec(kernel, length, noise=noise, layout=layout, **{**arguments, **delta})
            except SpecError as error:
                refused = error
                continue
            figures[spec.noise, spec.layout] = figure(spec, parts)
    if not figures:
        assert refused is not None
        raise refused
    return tuple(sorted(figures.values(), key=lambda made: (sum(r * r for r in made.rmse), made.words_touched)))


def advice(spec: ConvolutionSpec) -> str:
    """One line about a mechanism with a smaller error than this spec; empty if there is none."""
    if spec.columns is not None and len(spec.filters) == 1:
        cells = math.prod(
            len(spec.columns.values[name])
            for name in spec.filters[0].name.removeprefix("marginal:").split(",")
            if name in spec.columns.values
        )
        if cells < spec.length:
            return f"a single marginal is better kept as a table of its {cells} cells with Laplace noise on each"
    return ""
