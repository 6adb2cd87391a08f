"""The first answers of a window, which reach back beyond its start, completed with the end of the window before.

In: answers of a window, the published state of the one before. Out: answers that are whole, with the noise of both.
Touches: nothing. Post-processing only.
Source: docs/theory/convolution.md, section 8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sketchstream.errors import EstimateError
from sketchstream.kinds.convolution.filtering.group import Floats
from sketchstream.kinds.convolution.reading.answers import FilterAnswers, decode
from sketchstream.kinds.convolution.reading.quantiles import Term
from sketchstream.kinds.convolution.spec import BY_POSITION, ConvolutionSpec, NoiseLayer


def joined(
    current: FilterAnswers, state: npt.NDArray[np.int64], layers: Sequence[NoiseLayer], length: int | None = None
) -> FilterAnswers:
    """The answers of a window whose first ones are completed with the window before.

    Args:
        current: answers of this window, the first of them partial; those of running sums and decays, which begin anew
            with each window, stay as they are.
        state: (size,) int64, published of the window before.
        layers: every layer in that state.
        length: number of positions of the window before, if it is shorter than the longest one; default all.

    Returns:
        Answers; the completed ones contain the noise of both windows. No answer is partial, unless the window
        before is shorter than the filter.

    Raises:
        EstimateError: the answers are not a series with a filter that only looks back, or were completed before.
    """
    spec = current.spec
    known = spec.length if length is None else length
    if spec.mode != "linear" or spec.origin or current.before is not None:
        msg = "joined needs answers of mode 'linear' and origin 0 that were not completed before"
        raise EstimateError(msg)
    lags = min(current.filter.partial, len(current.values))
    if not lags:
        return current
    values, stderr, partial = current.values.copy(), current.stderr.copy(), current.partial.copy()
    values[:lags] += decode(spec, state, current.place, known)[known : known + lags]
    stderr[:lags] = np.hypot(stderr[:lags], _tail_errors(spec, current.place, layers, known, lags))
    partial[:lags] = np.arange(lags) < current.filter.partial - known
    before = Term(tuple(layers), known + np.arange(lags, dtype=np.int64), known)
    return replace(current, values=values, stderr=stderr, partial=partial, before=before)


def _tail_errors(spec: ConvolutionSpec, place: int, layers: Sequence[NoiseLayer], length: int, lags: int) -> Floats:
    """(lags,) standard errors of a tail."""
    if spec.noise not in BY_POSITION:
        return np.full(lags, math.sqrt(float(spec.mse(layers)[place])))
    out: Floats = np.sqrt(spec.word_variance(layers) * spec.unit_variances(place, length, length + lags, length))
    return out
