"""Answers of every filter: values, standard errors and intervals.

In: the spec, the layers of noise in a published state, the state. Out: `FilterAnswers`, plain data, rows, text.
Touches: nothing. Post-processing only.
Source: docs/theory/convolution.md, section 8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, islice, product
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream import kinds
from sketchstream.array_types import Flags, Floats, Ints
from sketchstream.errors import EstimateError
from sketchstream.kinds.answers import ColumnValues
from sketchstream.kinds.convolution.fourier.filters import Filter
from sketchstream.kinds.convolution.mechanisms.scheme import NoiseLayer
from sketchstream.kinds.convolution.reading.quantiles import Term, laplace_half_widths
from sketchstream.kinds.convolution.spec import ConvolutionSpec
from sketchstream.kinds.linear.answers import LinearAnswers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES: Final = 20
"""Rows of a filter in a text."""


@dataclass(frozen=True)
class FilterAnswers(LinearAnswers):
    """One filter's answers.

    Attributes:
        drawn: the layers whose noise is in the answers.
        positions: (n,) int64, positions of the answers.
        values: (n,) float64, unbiased.
        stderr: (n,) float64, standard deviation of the noise in each value.
        partial: (n,) bool, answers that cover less than their filter, as the window has not filled yet.
        cells: column values of each answer, of marginals.
        start_ms: start of the first position, ms since 1970; None if positions are not times.
        before: noise of the window before in the first answers; None if they were not completed with it.
    """

    question = "filters"

    spec: ConvolutionSpec = field(repr=False)
    place: int
    drawn: tuple[NoiseLayer, ...] = field(repr=False)
    positions: Ints = field(repr=False)
    values: Floats = field(repr=False)
    stderr: Floats = field(repr=False)
    partial: Flags = field(repr=False)
    cells: tuple[dict[str, int | str], ...] | None = field(default=None, repr=False)
    start_ms: int | None = None
    before: Term | None = field(default=None, repr=False)

    @property
    def filter(self) -> Filter:
        """The filter that gave these answers."""
        return self.spec.filters[self.place]

    @property
    def mse(self) -> float:
        """Mean squared error, the mean over the answers."""
        return float(np.mean(self.stderr**2))

    @cached_property
    def labels(self) -> Mapping[str, ColumnValues]:
        """The filter, and each answer's position and time, or its cell; None in columns that the filter sums over."""
        columns: dict[str, ColumnValues] = {"filter": [self.filter.name] * len(self.values)}
        if self.cells is not None and self.spec.columns is not None:
            return columns | {name: [cell.get(name) for cell in self.cells] for name in self.spec.columns.values}
        columns["position"] = self.positions
        return columns if self.times is None else columns | {"time": self.times}

    def _parameters(self) -> Sequence[Fraction]:
        kind = kinds.kind_of(self.spec)
        return [kind.accounting.parameter(self.spec, layer.cost) for layer in self.drawn]

    def extra_columns(self, level: float) -> Mapping[str, ColumnValues]:
        """Which answers stand on a part of the filter only."""
        return {"partial": self.partial}

    def more(self, level: float) -> dict[str, Any]:
        return describe_filters(self.spec, (self,))

    def _draw(self) -> Figure:
        return draw_filters(self.spec, (self,), self.level)

    def _ends(self, level: float) -> tuple[Floats, Floats]:
        """Ends of intervals by the law of the noise: normal, or sums of Laplace draws."""
        if self.spec.measure == "mu2":
            from scipy.special import ndtri

            half = float(ndtri((1 + level) / 2)) * self.stderr
        else:
            term = Term(self.drawn, self.positions, self.spec.length)
            half = laplace_half_widths(self.spec.scheme, self.place, [term], self.stderr, level)
            if self.before is not None:
                first = len(self.before.positions)
                both = [Term(self.drawn, self.positions[:first], self.spec.length), self.before]
                half[:first] = laplace_half_widths(self.spec.scheme, self.place, both, self.stderr[:first], level)
        return self.values - half, self.values + half

    @property
    def starts(self) -> Ints | None:
        """(n,) start of each position, ms since 1970; None if positions are not times."""
        if self.start_ms is None or self.spec.step_ms is None:
            return None
        return self.start_ms + self.positions * self.spec.step_ms

    @property
    def times(self) -> list[str] | None:
        """Start of each position, RFC 3339 in UTC; None if positions are not times."""
        if self.starts is None:
            return None
        whole = not np.any(self.starts % 1000)
        stamps = self.starts.astype("datetime64[ms]").astype("datetime64[s]" if whole else "datetime64[ms]")
        return [str(stamp) for stamp in np.datetime_as_string(stamps, timezone="UTC").tolist()]

    def autocovariance(self, lags: int) -> Floats:
        """(lags + 1,) float64, covariance of the noise of two answers by their distance.

        Args:
            lags: the largest distance; below the number of positions.

        Raises:
            EstimateError: noise whose covariance depends on the position, or no series.
        """
        spec = self.spec
        density = spec.scheme.density(self.drawn)
        if density is None or len(spec.group.shape) > 1 or not 0 <= lags < spec.length:
            raise EstimateError(f"autocovariance is for a series, lags from 0 to {spec.length - 1}, found {lags!r:.40}")
        from scipy import fft

        power = np.abs(spec.scheme.spectrum.eigenvalues[self.place]) ** 2 * density
        return np.asarray(fft.ifft(power).real[: lags + 1])

    def __str__(self) -> str:
        """A short table; further rows are counted."""
        lines = [f"{self.filter.name}: {len(self.values)} answers, standard error {math.sqrt(self.mse):.4g}"]
        for row in islice(self.rows(), LINES):
            where = row.get("time", row.get("position"))
            if self.cells is not None:
                where = ", ".join(f"{k}={row[k]}" for k in self.cells[0])
            mark = "  (partial)" if row["partial"] else ""
            lines.append(f"{where!s:>20}  {row['value']:14.2f}  [{row['low']:.2f}, {row['high']:.2f}]{mark}")
        if len(self.values) > LINES:
            lines.append(f"... and {len(self.values) - LINES} more")
        return "\n".join(lines)


def describe_filters(spec: ConvolutionSpec, parts: Sequence[FilterAnswers]) -> dict[str, Any]:
    """Plain data of filters: where each one's answers are among all of them, and which stand on a part of it only."""
    ends = list(accumulate(len(part.values) for part in parts))
    return {
        "length": spec.length,
        "noise": spec.noise,
        "filters": [
            {
                "name": part.filter.name,
                "offset": end - len(part.values),
                "count": len(part.values),
                "columns": [name for name in part.labels if name != "filter"],
                "mse": part.mse,
            }
            for part, end in zip(parts, ends, strict=True)
        ],
        "partial": [partial for part in parts for partial in part.partial.tolist()],
    }


def draw_filters(spec: ConvolutionSpec, parts: Sequence[FilterAnswers], level: float) -> Figure:
    """Each filter's answers as a line with the band of their intervals, or as bars if they are a table."""
    from sketchstream.pictures import charts

    figure = charts.notebook_figure(9.0, 0.4 + 2.6 * len(parts))
    panels = figure.subplots(len(parts), 1, squeeze=False)[:, 0]
    axis = "position" if spec.step_ms is None else "time, UTC"
    for axes, part in zip(panels, parts, strict=True):
        title, ends = f"{part.filter.name}, {level:.0%} intervals", tuple(part.interval(level).T)
        if part.cells is not None:
            names = [", ".join(map(str, cell.values())) for cell in part.cells]
            charts.draw_columns(axes, title, names, part.values, ends, "")
        else:
            names = [f"{position}" for position in part.positions.tolist()]
            along = names if part.starts is None else part.starts.astype("datetime64[ms]")
            charts.draw_band(axes, title, along, part.values, ends, axis)
    return figure


def answers(
    spec: ConvolutionSpec,
    layers: Sequence[NoiseLayer],
    state: Ints,
    *,
    length: int | None = None,
    start_ms: int | None = None,
) -> tuple[FilterAnswers, ...]:
    """All filters' answers from a published state.

    Args:
        layers: every layer in the state: one for each merged part, and the fresh one of a release or seal.
        length: number of positions of the window, if it is shorter than the longest one; default all.
    """
    if not layers or state.shape != (spec.size,):
        raise EstimateError(
            f"expected layers and a state of {spec.size} words, found {len(layers)} layers and shape {state.shape}"
        )
    out = []
    for place, kernel in enumerate(spec.filters):
        values = spec.scheme.decode(state, place)
        positions, labels = _positions_of(spec, kernel)
        positions = positions[positions < (spec.length if length is None else length)]
        out.append(
            FilterAnswers(
                spec,
                place,
                tuple(layers),
                positions,
                values[positions],
                np.sqrt(spec.scheme.variances(place, layers))[positions],
                (positions < kernel.partial) & (spec.mode == "linear") & (spec.origin == 0),
                labels,
                start_ms,
            )
        )
    return tuple(out)


def closed_values(spec: ConvolutionSpec, state: Ints, first: int, stop: int, place: int = 0) -> Floats:
    """(stop - first,) answers at closed positions, bit for bit independent of later ones.

    Each value is the correctly rounded sum of the products of coefficients and words at its own and earlier positions
    and at padding, so that it is a function of words that no later event touches.
    """
    if spec.publish != "closed" or not 0 <= first <= stop <= spec.length:
        raise EstimateError(f"closed positions need publish = 'closed' and lie from 0 to {spec.length}")
    coefficients = spec.filters[place].coefficients
    if spec.scheme.by_columns:
        return spec.scheme.decode(state, place)[first:stop]
    width = len(coefficients)
    padded = np.zeros(width - 1 + spec.length)
    padded[width - 1 :] = state[: spec.length]
    if spec.size > spec.length and width > 1:
        tail = min(width - 1, spec.size - spec.length)
        padded[width - 1 - tail : width - 1] = state[spec.size - tail :]
    if spec.filters[place].level:
        sums = _running_sums(padded[first : width - 1 + stop] * coefficients[0], width)
        return np.array([total / spec.grid for total in sums], np.float64)
    backwards = coefficients[::-1]
    out = [math.fsum((padded[k : k + width] * backwards).tolist()) / spec.grid for k in range(first, stop)]
    return np.array(out, np.float64)


def _running_sums(values: Floats, width: int) -> list[float]:
    """Correctly rounded sums of each `width` consecutive floats, by exact prefix sums."""
    mantissas, exponents = np.frexp(values)
    whole = (mantissas * 2.0**53).astype(np.int64)
    least = int(np.min(exponents[whole != 0], initial=53)) - 53  # not above 0; all are multiples of 2^least
    shifted = [unit << max(0, by) for unit, by in zip(whole.tolist(), (exponents - 53 - least).tolist(), strict=True)]
    total, unit = [0, *accumulate(shifted)], 1 << -least
    return [(after - before) / unit for before, after in zip(total, total[width:], strict=False)]


def _positions_of(spec: ConvolutionSpec, kernel: Filter) -> tuple[Ints, tuple[dict[str, int | str], ...] | None]:
    """Positions of a filter's answers: all, or one for each cell of a marginal table."""
    if spec.columns is None or not kernel.name.startswith("marginal:"):
        return np.arange(spec.length, dtype=np.int64), None
    values, named = spec.columns.values, kernel.name.removeprefix("marginal:").split(",")
    table = np.arange(spec.length, dtype=np.int64).reshape(spec.columns.shape)
    cells = table[tuple(slice(None) if name in named else 0 for name in values)].reshape(-1)
    kept = [name for name in values if name in named]
    labels = (dict(zip(kept, cell, strict=True)) for cell in product(*(values[name] for name in kept)))
    return cells, tuple(labels)
