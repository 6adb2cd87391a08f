"""The histogram of the patterns of slots, exact (a secret) and with its noise.

In: a state with groups. Out: numbers of slots by pattern. Touches: entropy, through `sketchstream.noise`.
Source: docs/theory/overlap.md, section 1.

The pattern of a slot is the set of groups whose counter is not 0 there, as bits, those of the first group highest. An
item has one slot in all groups, so whatever it does moves one slot from one cell to another: two entries by one each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sketchstream import noise
from sketchstream.array_types import Ints

if TYPE_CHECKING:
    from fractions import Fraction

    from sketchstream.kinds.profile.spec import ProfileSpec


def exact_patterns(spec: ProfileSpec, state: npt.NDArray[Any]) -> Ints:
    """(levels, 2^m) number of slots of each pattern, without noise. A secret: nothing but `noised_patterns` and the
    audit may use it.
    """  # noqa: D205
    assert spec.overlap is not None
    assert spec.groups is not None
    every = state.reshape(spec.group_count, -1)
    codes = np.zeros(every.shape[1], np.uint16)
    set_bit = np.empty(every.shape[1], np.bool_)
    try:
        for name in spec.overlap.groups:
            np.left_shift(codes, 1, out=codes)
            np.not_equal(every[spec.groups.all.index(name)], 0, out=set_bit)
            np.bitwise_or(codes, set_bit, out=codes)
        cells = spec.overlap.cells
        return np.stack([np.bincount(level, minlength=cells) for level in codes.reshape(spec.levels, -1)])
    finally:
        codes.fill(0)
        set_bit.fill(0)


def noised_patterns(spec: ProfileSpec, state: npt.NDArray[Any], cost: Fraction) -> Ints:
    """(levels, 2^m) number of slots of each pattern with fresh exact noise on every entry, empty ones included.

    Args:
        spec: spec of the sketch.
        state: counters of the sketch.
        cost: cost of this histogram: once for an item, not once for each of its groups.
    """
    counts = exact_patterns(spec, state)
    noise.discrete_laplace(counts, cost / 2)
    return counts
