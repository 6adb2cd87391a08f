"""What the estimators take of published profiles: histograms of counters, and facts about the whole sketch.

In: releases, sealed states, stacks. Out: `Observed`, one for each law of the noise, `SketchFacts`. Touches: nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sketchstream import kinds
from sketchstream.array_types import Ints
from sketchstream.components import TOTAL, find_counter, sum_counters
from sketchstream.kinds.profile import mechanism
from sketchstream.kinds.profile.estimate.observed import Observed
from sketchstream.kinds.profile.estimate.sketch_facts import SketchFacts
from sketchstream.spec import OpenDomain

if TYPE_CHECKING:
    from sketchstream.kinds.profile.spec import ProfileSpec
    from sketchstream.published import Published, Release, SealedState


def observed_counts(published: Published) -> list[Observed]:
    """The published counts in the form that estimators take.

    Parts with equal layers of noise and equal costs are added up; those of open domains only if they have the same
    number of slots and about as many items in each, as their levels otherwise collide at different rates.
    """
    alike: dict[Any, list[Release | SealedState]] = {}
    stacked = published.parts[0] is not published
    for part in published.parts:
        crowd = part.slots if isinstance(part.spec.domain, OpenDomain) else None
        alike.setdefault((part.layers_law, _slots_cost(part), crowd), []).append(part)
    out = []
    for (_, _, crowd), some in alike.items():
        if crowd is None or len(some) == 1:
            out.append(_add_parts(some, _digest(some) if stacked else some[0].digest))
            continue
        from sketchstream.kinds.profile.estimate.open_domain.collisions import alike as as_crowded

        for chosen in as_crowded([_add_parts([part], part.digest) for part in some]):
            same = [some[i] for i in chosen]
            out.append(_add_parts(same, _digest(same)))
    return out


def facts_of_publication(published: Published) -> SketchFacts:
    """Facts about the whole sketch: epsilons in one group (not the slots' shares), and the noisy total."""
    spec: ProfileSpec = published.spec
    parts = published.parts
    total = find_counter(sum_counters([part.counters for part in parts]), TOTAL)
    promised = [mechanism.promised_epsilon(part.spec, layer.parameter) for part in parts for layer in part.layers]
    return SketchFacts(
        epsilon=max(promised) / spec.group_losses,
        cost=max((cost for part in parts if (cost := _shared_cost(part)) is not None), default=None),
        total=None if total is None else (total.value, tuple(draw.parameter for draw in total.noise)),
        signed=any(part.spec.counted for part in parts),
        sample=spec.sample,
        kept=mechanism.slots_kept(spec.domain),
        max_total=spec.max_total,
    )


def _shared_cost(part: Release | SealedState) -> Fraction | None:
    """The part of a release's cost that slots and counters share in one group; None for a state."""
    if part.cost is None:
        return None
    losses: int = part.spec.group_losses
    return kinds.kind_of(part.spec).accounting.shared_cost(part.spec, part.cost, final=part.final) / losses


def _slots_cost(part: Release | SealedState) -> Fraction | None:
    """The part of a release's cost that its histogram has; None for a state."""
    cost = _shared_cost(part)
    share: Fraction = part.spec.slots_share
    return None if cost is None else cost * share


def _digest(parts: Sequence[Release | SealedState]) -> bytes:
    """Digest of parts of a stack, independent of their order."""
    return hashlib.blake2b(b"".join(sorted(part.digest for part in parts)), digest_size=16).digest()


def _add_parts(parts: Sequence[Any], digest: bytes) -> Observed:
    """Parts with equal noise as one histogram; of states the exact histogram of their counters."""
    first = parts[0]
    spec: ProfileSpec = first.spec
    cost = _slots_cost(first)
    if cost is None:
        edges, values = _value_counts(spec.levels, [part.state for part in parts])
    else:
        edges, values = spec.edges, np.sum([part.noised for part in parts], axis=0)
    slots = sum(part.slots for part in parts)
    domain = spec.domain
    return Observed(
        unit=spec.unit,
        form="state" if cost is None else spec.form,
        open_domain=isinstance(domain, OpenDomain),
        layers=first.layers_law,
        slots=(slots // spec.levels,) * spec.levels,
        hashed_into=(slots // spec.levels // len(parts),) * spec.levels,
        shares=tuple(domain.level_shares().tolist()) if isinstance(domain, OpenDomain) else (1.0,),
        edges=edges,
        values=values,
        cost=cost,
        parts=len(parts),
        modulus=spec.modulus,
        max_weight=spec.max_weight,
        digest=digest,
    )


def _value_counts(levels: int, states: Sequence[npt.NDArray[Any]]) -> tuple[Ints, Ints]:
    """(B,) counters that occur in states, ascending, and (levels, B) slots with each of them, added up."""
    from sketchstream import kernels

    by_part = [[kernels.value_counts(level) for level in state.reshape(levels, -1)] for state in states]
    support = np.unique(np.concatenate([values for part in by_part for values, _ in part]))
    counts = np.zeros((levels, support.size), np.int64)
    for part in by_part:
        for level, (values, times) in enumerate(part):
            counts[level, np.searchsorted(support, values)] += times
    return support, counts
