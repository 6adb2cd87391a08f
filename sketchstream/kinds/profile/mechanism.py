"""The kind `profile`: a noisy histogram of item counts.

In: a `ProfileSpec`, a state array. Out: noise added to the state, and the published (noised) histogram of its
counters. Touches: the state it is given, and entropy through `sketchstream.noise`.
Source: Wu & Pagh, ICML 2024 (noise and inversion); Dwork et al., ICS 2010 (unit "item"); the half circles of the
cumulative form: docs/theory/privacy.md.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from sketchstream import noise
from sketchstream.array_types import State
from sketchstream.components import ADMITTED, COUNTED, TOTAL, Component
from sketchstream.errors import EstimateError
from sketchstream.kinds.profile.patterns import noised_patterns
from sketchstream.kinds.profile.presence import response_epsilon
from sketchstream.kinds.profile.spec import ProfileSpec
from sketchstream.privacy.losses.law_names import DISCRETE_LAPLACE, RANDOMIZED_RESPONSE
from sketchstream.spec import ClosedDomain, OpenDomain

if TYPE_CHECKING:
    from collections.abc import Callable


PROGRESS_SLOTS = 1 << 22
"""Counters whose noise is drawn between two reports of progress."""
LAWS: Final = {"event": DISCRETE_LAPLACE, "item": RANDOMIZED_RESPONSE}
"""Law of a layer of noise, by the unit."""


def components(spec: ProfileSpec) -> tuple[Component, ...]:
    """The slots, then the counters besides them; the shares add up to one.

    An event moves the total by at most `max_weight`, an item by at most 2 `max_total`, as its payloads may be replaced
    by others of the same item. The number of records admitted is a function of envelopes and costs nothing. With groups
    each group has its own counters, and a cost covers all groups that the unit can be in.
    """
    slots = slots_component(spec)
    total = spec.total_share / 2 if spec.counted else spec.total_share
    weight = spec.max_weight if spec.max_total is None else 2 * spec.max_total
    counters = [Component(TOTAL, total, weight * spec.group_losses)] if total else []
    counters += [Component(COUNTED, total)] if spec.counted else []
    if spec.groups is not None:
        number = range(spec.group_count)
        return slots, *(replace(counter, name=f"{counter.name}.{at}") for counter in counters for at in number)
    counters += [Component(ADMITTED, Fraction(0), own_cost=spec.epsilon_records)] if spec.epsilon_records else []
    return slots, *counters


def slots_kept(domain: ClosedDomain | OpenDomain) -> tuple[int, Fraction] | None:
    """Items of a closed domain of which a sample has slots, and the probability of each; None: all items have one."""
    if isinstance(domain, OpenDomain) or domain.sample_rate is None:
        return None
    return domain.size, domain.sample_rate


def slots_component(spec: ProfileSpec) -> Component:
    """The component of the slots."""
    return Component("slots", spec.slots_share, spec.max_weight * spec.layer_losses, law(spec))


def law(spec: ProfileSpec) -> str:
    """Name of the law of a layer."""
    return LAWS[spec.unit] if spec.overlap is None else spec.overlap.law


def effective_epsilon(spec: ProfileSpec, epsilon: Fraction) -> Fraction:
    """The parameter of one layer's law in the slots: their share of epsilon, over max_weight.

    (Unit "item": not divided, any weight costs the same.)
    """
    return slots_component(spec).parameter(epsilon)


def promised_epsilon(spec: ProfileSpec, effective: Fraction) -> Fraction:
    """The epsilon of the whole sketch for which the slots' noise has this parameter."""
    return effective * spec.max_weight * spec.layer_losses / spec.slots_share


def add_noise(
    spec: ProfileSpec, state: State, epsilon: Fraction, progress: Callable[[int], None] | None = None
) -> None:
    """Add one independent layer of exact noise to every counter, in place.

    Args:
        spec: decides law and modulus.
        state: (slots,) integers of `spec.dtype`.
        epsilon: epsilon of this layer; the slots get their share of it.
        progress: called with the number of counters that have their noise.
    """
    together = spec.overlap is not None and spec.overlap.joint
    if progress is not None and not together:
        for start in range(0, state.size, PROGRESS_SLOTS):
            part = state[start : start + PROGRESS_SLOTS]
            add_noise(spec, part, epsilon)
            progress(start + part.size)
        return
    effective = effective_epsilon(spec, epsilon)
    if spec.modulus is None:
        noise.discrete_laplace(state, effective)
    elif together:
        noise.joint_response(state.reshape(spec.group_count, -1), spec.modulus, response(spec, effective))
    else:
        noise.randomized_response(state, spec.modulus, response(spec, effective))


def response(spec: ProfileSpec, effective: Fraction) -> Fraction:
    """The parameter of randomized response, joint or not, for a layer whose parameter is this.

    Where events add residues it is more than the layer's: see `sketchstream.kinds.profile.presence`.
    """
    if spec.overlap is None or not spec.overlap.presence:
        return effective
    assert spec.modulus is not None
    return response_epsilon(effective, spec.modulus, spec.group_count if spec.overlap.joint else 1)


def exact_counts(spec: ProfileSpec, state: State) -> npt.NDArray[np.int64]:
    """(groups x levels, B) histogram of the counters at the spec's edges, without noise. A secret: nothing but
    `noised_counts` and the audit may use it.
    """  # noqa: D205
    from sketchstream import kernels

    levels = state.reshape(spec.group_count * spec.levels, -1)
    bits = 64 if state.itemsize == 8 else 32
    counts = np.empty((len(levels), spec.edges.size), np.int64)
    for level, row in zip(levels, counts, strict=True):
        row[:] = kernels.release_counts(level, spec.edges, spec.form, spec.modulus or 0, bits)
    return counts


def noised_counts(spec: ProfileSpec, state: State, cost: Fraction) -> npt.NDArray[np.int64]:
    """(groups x levels, B) histogram of the counters with fresh exact noise on every entry, empty ones included.

    One event moves one counter across at most one threshold (cumulative: sensitivity 1) or out of one bin into
    another (bins: sensitivity 2, any weight, both units); a counter lies in one level of one group. The histogram gets
    the slots' share of the cost, and each group its share of that.
    """
    counts = exact_counts(spec, state)
    add_view_noise(spec, counts, cost)
    return counts


def sealed_counts(spec: ProfileSpec, state: State, cost: Fraction) -> npt.NDArray[np.int64]:
    """What a seal of this cost publishes: the groups' histograms and, with `overlap`, the patterns after them, flat."""
    if spec.overlap is None:
        return noised_counts(spec, state, cost)
    patterns = noised_patterns(spec, state, spec.overlap.epsilon).ravel()
    if not spec.overlap.histograms:
        return patterns
    return np.concatenate([noised_counts(spec, state, cost - spec.overlap.epsilon).ravel(), patterns])


def histograms(spec: ProfileSpec, published: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(groups x levels, B) histograms of what was published.

    Raises:
        EstimateError: only patterns were.
    """
    if spec.overlap is not None and not spec.overlap.histograms:
        raise EstimateError(
            "these groups have no profiles: histograms = false publishes their patterns alone; ask for their overlap"
        )
    rows = spec.group_count * spec.levels
    return published.ravel()[: rows * spec.edges.size].reshape(rows, spec.edges.size)


def patterns(spec: ProfileSpec, published: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(levels, 2^m) histogram of patterns of what a seal published, or a release of patterns alone.

    Raises:
        EstimateError: the sketch publishes no patterns.
    """
    if spec.overlap is None:
        raise EstimateError(
            "nothing says what groups have in common: patterns are published at seal by specs with overlap = true or a "
            "list of groups (unit = 'item')"
        )
    size = spec.levels * spec.overlap.cells
    if published.ndim > 1:
        raise EstimateError("a release of an open sketch has no patterns: they are published at seal")
    return published[-size:].reshape(spec.levels, spec.overlap.cells)


def published_shape(spec: ProfileSpec, *, final: bool) -> tuple[int, ...]:
    """Shape of what a release, or the seal, publishes."""
    rows, edges = spec.group_count * spec.levels, spec.edges.size
    if spec.overlap is None:
        return (rows, edges)
    if not spec.overlap.histograms:
        return (spec.levels * spec.overlap.cells,)
    return (rows * edges + spec.levels * spec.overlap.cells,) if final else (rows, edges)


def add_view_noise(spec: ProfileSpec, counts: npt.NDArray[np.int64], cost: Fraction) -> None:
    """Add the noise of one publication to every entry of histograms, in place.

    Args:
        spec: decides the form, and the slots' share of the cost.
        counts: (any, B) int64, exact.
        cost: cost of the publication.
    """
    share = cost * spec.slots_share / spec.group_losses
    noise.discrete_laplace(counts, share if spec.form == "cumulative" else share / 2)
