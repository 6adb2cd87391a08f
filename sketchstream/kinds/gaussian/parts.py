"""Joins the parts of a stack into one vector, with the item of each slot.

In: state, noise and items of each part. Out: one state, and the variances in it. Touches: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sketchstream.array_types import Flags, Ints
from sketchstream.errors import EstimateError

if TYPE_CHECKING:
    from sketchstream.kinds.gaussian.spec import GaussianSpec

Variances = tuple[Fraction, ...]
Joined = tuple[Ints, Variances, Ints | None]


def join_parts(
    spec: GaussianSpec, parts: Sequence[tuple[Ints, Variances]], kept: Sequence[Flags] | None = None
) -> Joined:
    """Join the parts of a stack, or a single part, into one vector.

    The count of an item in several parts is the sum of its counts.

    Args:
        kept: (size,) bool of each part, the items that have slots in it; None: all parts have all items.

    Returns:
        (n,) int64, noise included; parameters of all noise in each count; (n,) int64, ascending, the item of each
        count by its place in the domain, or None: all items.
    """
    size = spec.domain.size
    if kept is None:
        if any(len(state) != size for state, _ in parts):
            raise EstimateError(
                "this part has slots for some items of the domain: say which, with kept=[mask, ...], one (size,) bool "
                "array for each part; `sketchstream estimate -c` does so"
            )
        kept = [np.ones(size, np.bool_)] * len(parts)
    if len(kept) != len(parts) or any(
        mask.dtype != np.bool_ or mask.shape != (size,) or int(mask.sum()) != len(state)
        for mask, (state, _) in zip(kept, parts, strict=False)
    ):
        raise EstimateError(
            f"kept must be one bool array of {size} entries for each of {len(parts)} parts, true for its slots"
        )
    total = np.zeros(size, np.int64)
    noise = np.zeros(size, np.int64)  # index of the variances in `laws`
    laws: list[Variances] = [()]
    for mask, (state, variances) in zip(kept, parts, strict=True):
        total[mask] += state
        earlier = noise.copy()
        for before in np.unique(earlier[mask]).tolist():
            after = tuple(sorted((*laws[before], *variances)))
            if after not in laws:
                laws.append(after)
            noise[mask & (earlier == before)] = laws.index(after)
    has = noise > 0
    if len(np.unique(noise[has])) != 1:
        raise EstimateError(
            "the counts of this stack have different noise: its parts were made with different epsilon, or items lie "
            "in several of them; estimate its parts one by one"
        )
    variances = laws[int(noise[has][0])]
    return (total, variances, None) if has.all() else (total[has], variances, np.flatnonzero(has))
