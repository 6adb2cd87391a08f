"""The noise of kind `gaussian`: layers that are added to true sums, in lattice units, modulo 2^64.

In: a state, the parameter of a layer. Out: the state, changed in place. Touches: the state it is given, and entropy
through `sketchstream.noise`.
Source: Canonne, Kamath & Steinke 2020; docs/theory/gaussian.md, sections 4 and 5.

The sketch matrix is the identity. A layer covers all slots, also those that no event will reach, and is drawn before
there is data.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from sketchstream import noise

if TYPE_CHECKING:
    from sketchstream.noise.entropy import Source

State = npt.NDArray[np.int64]

PROGRESS_SLOTS: Final = 1 << 22
"""Slots whose noise is drawn between two reports of progress."""


def add_layer(
    state: State, sigma2: Fraction, progress: Callable[[int], None] | None = None, entropy: Source | None = None
) -> None:
    """Add one independent layer of noise to every slot, in place.

    Args:
        state: (slots,) int64.
        sigma2: parameter of the layer, in squared lattice units.
        progress: called after each part with the number of slots that have their noise.
        entropy: words for tests; by default keystreams under keys that are erased.
    """
    for start in range(0, len(state), PROGRESS_SLOTS):
        part = state[start : start + PROGRESS_SLOTS]
        noise.discrete_gaussian(part, sigma2, entropy)
        if progress is not None:
            progress(start + len(part))
