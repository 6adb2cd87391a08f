"""Answers of a published sketch of kind `convolution`, for all its filters.

In: a release, a sealed state, or parts that are added up. Out: a `Series`, which prints as text and turns into rows and
plain data. Touches: nothing. Post-processing only.
Source: docs/theory/convolution.md, section 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sketchstream import kinds
from sketchstream.array_types import Floats, Ints
from sketchstream.errors import EstimateError
from sketchstream.kinds.answers import LEVEL, ColumnValues, plain_column
from sketchstream.kinds.convolution.reading.answers import (
    FilterAnswers,
    answers,
    closed_values,
    describe_filters,
    draw_filters,
)
from sketchstream.kinds.convolution.reading.quantiles import Term
from sketchstream.kinds.estimates import checked_level
from sketchstream.kinds.linear.answers import LinearAnswers, parts_of, sum_parts
from sketchstream.kinds.options import require_method, require_options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sketchstream.instalment import Instalment
    from sketchstream.kinds.convolution.mechanisms.scheme import NoiseLayer
    from sketchstream.kinds.convolution.spec import ConvolutionSpec
    from sketchstream.published import Published


OPTIONS: Final = ("name", "level", "before")
"""Options that `estimate` takes besides the method."""


@dataclass(frozen=True)
class Series(LinearAnswers):
    """Answers of all filters of a sketch, or of selected ones.

    Args:
        answers: one object for each filter.
        level: level of the intervals in rows, data and text.

    Examples:
        >>> import sketchstream as ss
        >>> sketch = ss.Sketch.create(ss.ConvolutionSpec(["sum", "window:24"], 48, epsilon="1", delta="1e-6"))
        >>> sketch.update([0, 0, 1, 25])
        >>> found = sketch.seal().estimate()
        >>> found.names, len(found["sum"].values)
        (('sum', 'window:24'), 48)
    """

    spec: ConvolutionSpec = field(repr=False)
    answers: tuple[FilterAnswers, ...]
    level: float = LEVEL
    question = "filters"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the filters."""
        return tuple(answer.filter.name for answer in self.answers)

    def __getitem__(self, name: str) -> FilterAnswers:
        """The answers of one filter.

        Raises:
            EstimateError: the filter does not exist.
        """
        for each in self.answers:
            if each.filter.name == name:
                return each
        raise EstimateError(f"this sketch has the filters {', '.join(self.names)}, found {name!r:.60}")

    @cached_property
    def values(self) -> Floats:
        """(d,) answers of all filters in turn."""
        return np.concatenate([answer.values for answer in self.answers])

    @cached_property
    def stderr(self) -> Floats:
        """(d,) standard deviation of the noise in each."""
        return np.concatenate([answer.stderr for answer in self.answers])

    @cached_property
    def labels(self) -> Mapping[str, ColumnValues]:
        """Labels of each filter in turn; None in columns that a filter does not have."""
        names = dict.fromkeys(name for answer in self.answers for name in answer.labels)
        missing = [[None] * len(answer.values) for answer in self.answers]
        columns = {
            name: [answer.labels.get(name, without) for answer, without in zip(self.answers, missing, strict=True)]
            for name in names
        }
        return {name: [cell for column in parts for cell in plain_column(column)] for name, parts in columns.items()}

    def _parameters(self) -> Sequence[Fraction]:
        return self.answers[0]._parameters()

    def extra_columns(self, level: float) -> Mapping[str, ColumnValues]:
        """Which answers stand on a part of their filter only."""
        return {"partial": np.concatenate([answer.partial for answer in self.answers])}

    def more(self, level: float) -> dict[str, Any]:
        return describe_filters(self.spec, self.answers)

    def _ends(self, level: float) -> tuple[Floats, Floats]:
        low, high = zip(*(answer.interval(level).T for answer in self.answers), strict=True)
        return np.concatenate(low), np.concatenate(high)

    def _draw(self) -> Figure:
        return draw_filters(self.spec, self.answers, self.level)

    def _noted(self) -> str:
        errors = ", ".join(f"{answer.filter.name} {answer.mse**0.5:,.4g}" for answer in self.answers)
        return f"Standard error of an answer: {errors}."

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.answers))


def estimate(
    published: Published,
    *,
    method: str = "auto",
    name: str | None = None,
    level: float = LEVEL,
    before: Published | None = None,
    **options: object,
) -> Series:
    """Compute all filters' answers from published parts; the parts and their noise add up.

    Args:
        method: "auto": the unbiased answers, the only ones.
        name: name of the one filter that is answered; default all are.
        level: level of the intervals, above 0 and below 1.
        before: publication of the window before, with an equal spec: the first answers of filters that reach back
            into it are completed with it, and hold the noise of both; default: they are partial.

    Raises:
        EstimateError: another method, option, name or level, or a window that is not the one before.
    """
    require_method(method, ("auto",))
    require_options(published.kind.name, options, OPTIONS)
    spec: ConvolutionSpec = published.spec
    layers, state, window = _sum_of_parts(published)
    start = None if window is None else window[0]
    by_filter = answers(spec, layers, state, length=spec.positions_of(window), start_ms=start)
    if before is not None:
        by_filter = _complete_answers(by_filter, spec, window, before)
    checked_level(level)
    made = Series(spec, tuple(each.computed_from(published) for each in by_filter), level)
    if name is not None:
        made = Series(spec, (made[name],), level)
    return made.computed_from(published)


def closed_series(parts: Sequence[Sequence[Instalment]], positions: int, before: Published | None = None) -> Series:
    """Answers at positions that have closed, from the instalments of each partition.

    Args:
        parts: instalments of each partition, ascending, without gaps.
        positions: number of positions to answer; every part has at least as many.
    """
    first = parts[0][0]
    spec: ConvolutionSpec = first.spec
    state = np.zeros(spec.size, np.int64)
    layers: list[NoiseLayer] = []
    padding = spec.size - spec.length
    for part in parts:
        words = np.concatenate([instalment.words for instalment in part])
        state[spec.length :] += words[:padding]
        state[:positions] += words[padding : padding + positions]
        layers += [
            spec.layer_of(kinds.kind_of(spec).accounting.cost(spec, layer.parameter)) for layer in part[0].layers
        ]
    start = None if first.origin.window is None else first.origin.window[0]
    by_filter = answers(spec, layers, state, length=positions, start_ms=start)
    made = tuple(replace(each, values=closed_values(spec, state, 0, positions, each.place)) for each in by_filter)
    if before is not None:
        made = _complete_answers(made, spec, first.origin.window, before)
    return Series(spec, made)


def _complete_answers(
    by_filter: tuple[FilterAnswers, ...], spec: ConvolutionSpec, window: tuple[int, int] | None, before: Published
) -> tuple[FilterAnswers, ...]:
    """Answers of a window completed with the window before."""
    former, tail, earlier = _sum_of_parts(before)
    consecutive = window is None or earlier is None or earlier[1] == window[0]
    if before.spec.fingerprint != spec.fingerprint or not consecutive:
        raise EstimateError("before must be the window that ends where this one begins, of an equal spec")
    return tuple(join_windows(each, tail, former, spec.positions_of(earlier)) for each in by_filter)


def join_windows(
    current: FilterAnswers, state: Ints, layers: Sequence[NoiseLayer], length: int | None = None
) -> FilterAnswers:
    """The answers of a window whose first ones are completed with the window before.

    Args:
        current: answers of this window, the first of them partial; those of running sums and decays, which begin anew
            with each window, stay as they are.
        state: (size,) int64, published of the window before.
        length: number of positions of the window before, if it is shorter than the longest one; default all.

    Returns:
        Answers; the completed ones contain the noise of both windows. No answer is partial, unless the window
        before is shorter than the filter.
    """
    spec = current.spec
    end = spec.length if length is None else length
    if spec.mode != "linear" or spec.origin or current.before is not None:
        raise EstimateError("only answers of mode 'linear' and origin 0 that were not completed before can be joined")
    lags = min(current.filter.partial, len(current.values))
    if not lags:
        return current
    values, stderr, partial = current.values.copy(), current.stderr.copy(), current.partial.copy()
    values[:lags] += spec.scheme.decode(state, current.place, end)[end : end + lags]
    stderr[:lags] = np.hypot(stderr[:lags], np.sqrt(spec.scheme.variances(current.place, layers, (end, lags))))
    partial[:lags] = np.arange(lags) < current.filter.partial - end
    before = Term(tuple(layers), end + np.arange(lags, dtype=np.int64), end)
    return replace(current, values=values, stderr=stderr, partial=partial, before=before)


def _sum_of_parts(published: Published) -> tuple[list[NoiseLayer], Ints, tuple[int, int] | None]:
    """All layers of the publication, the sum of its states, and its window."""
    spec, kind = published.spec, published.kind
    parts = parts_of(kind, published)
    layers = [spec.layer_of(kind.accounting.cost(spec, parameter)) for part in parts for parameter in part.parameters]
    windows = {part.origin.window for part in parts}
    window = windows.pop() if len(windows) == 1 else None
    return layers, sum_parts(spec, parts), window
