"""The state of kind `gaussian`: true sums plus layers of noise, in lattice units, modulo 2^64.

In: a `GaussianSpec`, slots and lattice weights. Out: the state, changed in place. Touches: the state it is given, and
entropy through `sketchstream.noise`.
Source: Canonne, Kamath & Steinke 2020 (the noise); docs/theory/gaussian.md, sections 4 and 5.

The sketch matrix is the identity. A layer covers all slots, also those that no event will reach, and is drawn before
there is data. Updates add; nothing reads a counter.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sketchstream import noise
from sketchstream.errors import DomainError, MergeError
from sketchstream.kernels import kernel

if TYPE_CHECKING:
    from sketchstream.kinds.gaussian.spec import GaussianSpec
    from sketchstream.noise.entropy import Source

State = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int64]

LAW: Final = "discrete-gaussian"
PROGRESS_SLOTS: Final = 1 << 22
"""Slots whose noise is drawn between two reports of progress."""


def empty_state(spec: GaussianSpec) -> State:
    """(slots,) int64 zeros: not private until a layer of noise is added."""
    return np.zeros(spec.domain.size, np.int64)


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


def create_state(spec: GaussianSpec, entropy: Source | None = None) -> State:
    """(slots,) int64 with only the creation layer."""
    state = empty_state(spec)
    add_layer(state, spec.sigma2, None, entropy)
    return state


def published_state(spec: GaussianSpec, state: State, entropy: Source | None = None) -> State:
    """The publication of `seal`: a copy of the state, with a fresh layer if the spec requires one."""
    out = state.copy()
    if spec.publish_sigma2 is not None:
        add_layer(out, spec.publish_sigma2, None, entropy)
    return out


def released_state(state: State, sigma2: Fraction, entropy: Source | None = None) -> State:
    """The publication of a release: a copy of the state with fresh noise."""
    out = state.copy()
    add_layer(out, sigma2, None, entropy)
    return out


def merged_state(spec: GaussianSpec, first: State, second: State) -> State:
    """Sum of two states of one spec; the layers of both are in it.

    Raises:
        MergeError: a state does not fit the spec.
    """
    for state in (first, second):
        if state.shape != (spec.domain.size,) or state.dtype != np.int64:
            msg = f"a state of this spec is int64 of shape ({spec.domain.size},), found {state.dtype} of {state.shape}"
            raise MergeError(msg, ["domain"])
    return first + second


def update(state: State, slots: npt.NDArray[Any], units: Ints) -> int:
    """Add lattice weights to slots, in place.

    Args:
        state: (slots,) int64; sums wrap.
        slots: (n,) int64 or uint64 ids; one outside the domain is not an event.
        units: (n,) int64 lattice weights, 0 if a weight is not an event.

    Returns:
        Number of ids in the domain.

    Raises:
        DomainError: the arrays differ in length, or slots are not integers.
    """
    if slots.dtype.kind not in "iu" or slots.shape != units.shape or slots.ndim != 1:
        msg = f"slots must be integers, one for each weight, found {slots.dtype} {slots.shape} for {units.shape}"
        raise DomainError(msg)
    wide = slots if slots.dtype.itemsize == 8 else slots.astype(np.int64)
    return int(_add(state, np.ascontiguousarray(wide).view(np.uint64), np.ascontiguousarray(units)))


@kernel
def _add(state: State, slots: npt.NDArray[np.uint64], units: Ints) -> int:
    """Negative ids, taken as unsigned, lie outside every domain."""
    size = np.uint64(len(state))
    inside = 0
    for i in range(len(slots)):
        slot = slots[i]
        if slot < size:
            state[slot] += units[i]
            inside += 1
    return inside
