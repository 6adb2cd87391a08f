"""Published patterns of one sketch, or of the partitions of a window, as the tables that are fitted.

In: releases and stacks. Out: an `Overlap`. Touches: nothing.
Source: docs/theory/overlap.md, sections 2 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sketchstream.kinds.profile import mechanism
from sketchstream.kinds.profile.overlap.answers import Overlap
from sketchstream.kinds.profile.overlap.channel import Channel, contraction
from sketchstream.kinds.profile.overlap.fit import Fit, Table, fit
from sketchstream.kinds.profile.overlap.wraps import Wraps, law_of_counts
from sketchstream.noise.laws import DiscreteLaplace
from sketchstream.spec import ClosedDomain, OpenDomain

if TYPE_CHECKING:
    from sketchstream.kinds.profile.spec import ProfileSpec
    from sketchstream.published import Published, Release

Floats = npt.NDArray[np.float64]
UNLIKE = 5.0
"""Standard errors by which numbers of slots differ between parts that have different numbers of items."""


def overlap_of(published: Published) -> Overlap:
    """What the groups of a published sketch, or of a stack, have in common.

    Raises:
        EstimateError: no patterns were published, or every level is full.
    """
    parts: Sequence[Any] = getattr(published, "parts", (published,))
    spec: ProfileSpec = published.spec
    for part in parts:
        mechanism.patterns(spec, part.noised if hasattr(part, "noised") else part.state)
    found = [_fitted(some) for some in _alike(parts)]
    assert spec.overlap is not None
    whole = Fit(
        found[0].groups,
        np.sum([one.free for one in found], axis=0),
        np.sum([one.regions for one in found], axis=0),
        np.sum([one.covariance for one in found], axis=0),
    )
    rate = spec.domain.sample_rate if isinstance(spec.domain, ClosedDomain) else None
    most = None if isinstance(spec.domain, OpenDomain) else sum(part.slots for part in parts) / spec.group_count
    return Overlap.of(
        spec.overlap.groups,
        whole,
        epsilon=max(pattern_cost(part) for part in parts),
        rate=1.0 if rate is None else float(rate),
        most=most,
    )


def pattern_cost(part: Release) -> Fraction:
    """Cost of the patterns of a publication."""
    spec = part.spec
    cost: Fraction = spec.overlap.epsilon if part.final else part.cost
    return cost


def _alike(parts: Sequence[Release]) -> list[list[Release]]:
    """Parts that are fitted together: of equal noise and slots, and with numbers of items that do not differ."""
    kinds: dict[Any, list[Release]] = {}
    for part in parts:
        kinds.setdefault((part.layers_law, pattern_cost(part), part.slots), []).append(part)
    out: list[list[Release]] = []
    for some in kinds.values():
        spec = some[0].spec
        if len(some) == 1 or not isinstance(spec.domain, OpenDomain):
            out.append(some)
            continue
        cells = np.array([mechanism.patterns(spec, part.noised) for part in some], np.float64)
        bits = (np.arange(cells.shape[-1])[:, None] >> np.arange(len(spec.overlap.groups))) & 1
        seen = cells @ bits.astype(np.float64)
        middle = seen.mean(axis=0)
        slots = some[0].slots / spec.group_count / spec.levels
        spread = np.clip(middle * (1 - middle / slots), slots / 1000, None)
        spread = np.sqrt(spread + _variance(pattern_cost(some[0])) * cells.shape[-1] / 2)
        same = float(np.abs((seen - middle) / spread).max()) < UNLIKE
        out += [some] if same else [[part] for part in some]
    return out


def _variance(cost: Fraction) -> float:
    """Variance of the noise of a cell."""
    return float(DiscreteLaplace(cost / 2).variance)


def _fitted(parts: Sequence[Release]) -> Fit:
    """Parts with equal noise as one, fitted; counts that wrap are allowed for where histograms tell how many do."""
    first = parts[0]
    spec: ProfileSpec = first.spec
    assert spec.overlap is not None
    number, groups = len(parts), len(spec.overlap.groups)
    cells = np.sum([mechanism.patterns(spec, part.noised) for part in parts], axis=0).astype(np.float64)
    epsilons = [float(layer.parameter) for layer in first.layers]
    channel = channel_of(spec, epsilons)
    is_open = isinstance(spec.domain, OpenDomain)
    shares = spec.domain.level_shares() if isinstance(spec.domain, OpenDomain) else np.ones(1)
    slots = sum(part.slots for part in parts) / spec.group_count / spec.levels
    noise = number * _variance(pattern_cost(first))
    tables = [
        Table(level, slots, float(share), noise, channel, is_open) for level, share in zip(cells, shares, strict=True)
    ]
    found = fit(tables, groups)
    if not (is_open and spec.overlap.histograms and first.final):
        return found
    wraps = _wraps(spec, parts, epsilons, slots, shares, found)
    return fit(tables, groups, [wraps] * len(tables))


def channel_of(spec: ProfileSpec, epsilons: Sequence[float]) -> Channel:
    """What the noise of these layers does to a counter."""
    assert spec.modulus is not None
    return Channel.of_layers(epsilons, spec.modulus)


def _wraps(
    spec: ProfileSpec, parts: Sequence[Release], epsilons: Sequence[float], slots: float, shares: Floats, found: Fit
) -> Wraps:
    """Laws of counts modulo p in each group, from its histogram."""
    assert spec.overlap is not None
    assert spec.groups is not None
    assert spec.modulus is not None
    every = np.sum([mechanism.histograms(spec, part.noised) for part in parts], axis=0)
    every = every.reshape(spec.group_count, spec.levels, -1).astype(np.float64)
    kept = contraction(epsilons, spec.modulus)
    cost = spec.epsilon_publish * spec.slots_share / 2
    noise = len(parts) * float(DiscreteLaplace(cost).variance)
    laws = []
    regions = np.arange(1, 2**found.groups)
    for at, name in enumerate(spec.overlap.groups):
        items = float(found.regions[(regions >> (found.groups - 1 - at)) & 1 == 1].sum())
        rows = every[spec.groups.all.index(name)]
        n = spec.levels
        laws.append(law_of_counts(list(rows), [slots] * n, list(shares), [kept] * n, [noise] * n, items))
    return Wraps(np.array(laws))
