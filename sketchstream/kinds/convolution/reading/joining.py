"""The first answers of a window, which reach back beyond its start, completed with the end of the window before.

In: answers of a window, the published state of the one before. Out: answers that are whole, with the noise of both.
Touches: nothing. Post-processing only.
Source: docs/theory/convolution.md, section 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sketchstream.array_types import Ints
from sketchstream.errors import EstimateError
from sketchstream.kinds.convolution.noises.scheme import NoiseLayer
from sketchstream.kinds.convolution.reading.answers import FilterAnswers
from sketchstream.kinds.convolution.reading.quantiles import Term


def joined(
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
    known = spec.length if length is None else length
    if spec.mode != "linear" or spec.origin or current.before is not None:
        msg = "joined needs answers of mode 'linear' and origin 0 that were not completed before"
        raise EstimateError(msg)
    lags = min(current.filter.partial, len(current.values))
    if not lags:
        return current
    values, stderr, partial = current.values.copy(), current.stderr.copy(), current.partial.copy()
    values[:lags] += spec.scheme.decode(state, current.place, known)[known : known + lags]
    stderr[:lags] = np.hypot(stderr[:lags], np.sqrt(spec.scheme.variances(current.place, layers, (known, lags))))
    partial[:lags] = np.arange(lags) < current.filter.partial - known
    before = Term(tuple(layers), known + np.arange(lags, dtype=np.int64), known)
    return replace(current, values=values, stderr=stderr, partial=partial, before=before)
