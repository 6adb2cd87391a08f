"""Published patterns of one sketch, or of the partitions of a window, as the tables that are fitted.

In: releases and stacks. Out: an `Overlap`. Touches: nothing.
Source: docs/theory/overlap.md, sections 2 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchstream.array_types import Floats
from sketchstream.errors import EstimateError, SpecError
from sketchstream.kinds.groups.expression import member
from sketchstream.kinds.groups.overlap import Overlap
from sketchstream.kinds.profile import mechanism
from sketchstream.kinds.profile.overlap.channel import Channel, JointChannel, contraction
from sketchstream.kinds.profile.overlap.fit import RegionFit, answers_of, fit, start, trusted_levels
from sketchstream.kinds.profile.overlap.law import Patterns
from sketchstream.kinds.profile.overlap.wraps import Wraps, law_of_counts
from sketchstream.noise.laws import DiscreteLaplace
from sketchstream.spec import ClosedDomain, OpenDomain

if TYPE_CHECKING:
    from sketchstream.kinds.profile.spec import ProfileSpec
    from sketchstream.published import Published, Release

HIDDEN = (
    "counts that add up to a multiple of the modulus cannot be told from empty slots: every level of this sketch is "
    "too crowded for its modulus; use more slots or levels, a larger modulus, or counts = 'presence'"
)
UNSEEN = "Items of a group whose counts add up to a multiple of {} are not seen in it, and are not in these numbers."
UNLIKE = 5.0
"""Standard errors by which numbers of slots differ between parts that have different numbers of items."""


def overlap_of(published: Published, groups: Sequence[str] | None = None) -> Overlap:
    """What the groups of a published sketch, or of a stack, have in common.

    Args:
        published: published object with patterns.
        groups: groups to combine; None: all.

    Raises:
        EstimateError: no patterns were published, or every level is full.
        SpecError: there are no patterns of a group.
    """
    parts: Sequence[Any] = published.parts
    spec: ProfileSpec = published.spec
    for part in parts:
        mechanism.patterns(spec, part.state if part.cost is None else part.noised)
    assert spec.overlap is not None
    names = _choose_groups(spec.overlap.groups, groups)
    fits = [_fit_parts(some, names) for some in _alike(parts)]
    rate = spec.domain.sample_rate if isinstance(spec.domain, ClosedDomain) else None
    most = None if isinstance(spec.domain, OpenDomain) else sum(part.slots for part in parts) / spec.group_count
    return answers_of(
        names,
        fits,
        epsilon=max(pattern_cost(part) for part in parts),
        rate=1.0 if rate is None else float(rate),
        most=most,
        notes=() if spec.overlap.presence or spec.overlap.histograms else (UNSEEN.format(spec.modulus),),
    )


def _choose_groups(every: tuple[str, ...], groups: Sequence[str] | None) -> tuple[str, ...]:
    """The groups to combine."""
    names = every if groups is None else tuple(groups)
    for name in names:
        member(every, name)
    if not names or len(set(names)) < len(names):
        raise SpecError(f"expected names of groups, each once, found {', '.join(names) or 'none'}")
    return names


def _marginal(cells: Floats, every: tuple[str, ...], names: tuple[str, ...]) -> Floats:
    """(levels, 2^j) numbers of slots by the pattern of some groups, in their order."""
    axes = cells.reshape(len(cells), *[2] * len(every))
    axes_kept = [1 + every.index(name) for name in names]
    dropped = tuple(axis for axis in range(1, axes.ndim) if axis not in axes_kept)
    order = [axis - sum(one < axis for one in dropped) for axis in axes_kept]
    marginal: Floats = axes.sum(axis=dropped).transpose(0, *order).reshape(len(cells), -1)
    return marginal


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


def _fit_parts(parts: Sequence[Release], names: tuple[str, ...]) -> RegionFit:
    """Parts with equal noise as one, fitted; counts that wrap are allowed for where histograms tell how many do."""
    first = parts[0]
    spec: ProfileSpec = first.spec
    assert spec.overlap is not None
    number, groups = len(parts), len(names)
    cells = np.sum([mechanism.patterns(spec, part.noised) for part in parts], axis=0).astype(np.float64)
    epsilons = [layer.parameter for layer in first.layers]
    cells = _marginal(cells, spec.overlap.groups, names)
    slots = sum(part.slots for part in parts) / spec.group_count / spec.levels
    table = table_of(spec, cells, epsilons, slots, number * cell_noise(spec, pattern_cost(first), groups))
    begin = start(table)
    if table.is_open and spec.overlap.histograms and first.final:
        table = replace(table, wraps=_wraps(spec, names, parts, epsilons, table, begin))
    if table.is_open:
        table = without_hidden(table, begin[[(1 << groups - 1 - at) - 1 for at in range(groups)]])
    return fit(table, begin)


def without_hidden(table: Patterns, items: Floats) -> Patterns:
    """The levels of an open domain that can be trusted.

    Args:
        table: what was published.
        items: (m,) approximate number of items of each group.

    Raises:
        EstimateError: there is none.
    """
    good = trusted_levels(table, np.multiply.outer(items, table.shares) / table.slots)
    if not good.any():
        raise EstimateError(HIDDEN)
    return replace(table, cells=table.cells[good], shares=table.shares[good])


def cell_noise(spec: ProfileSpec, cost: Fraction, groups: int) -> float:
    """Variance of the noise of one part in a cell of the patterns of some of its groups.

    Args:
        spec: spec of the part.
        cost: cost of its patterns.
        groups: number of groups that are combined; each of their cells is a sum of published ones.
    """
    assert spec.overlap is not None
    return _variance(cost) * float(spec.overlap.cells) / 2.0**groups


def table_of(spec: ProfileSpec, cells: Floats, epsilons: Sequence[Fraction], slots: float, noise: float) -> Patterns:
    """The table of patterns to which regions are fitted.

    Args:
        spec: spec of the sketch.
        cells: (levels, 2^m) numbers of slots by pattern.
        epsilons: epsilons of the layers.
        slots: slots of each level of a group, in all parts.
        noise: variance of a cell's.
    """
    is_open = isinstance(spec.domain, OpenDomain)
    shares = np.array(spec.domain.level_shares() if isinstance(spec.domain, OpenDomain) else [1.0], np.float64)
    assert spec.overlap is not None
    assert spec.modulus is not None
    wrapped = 0.0 if spec.overlap.presence or not is_open else 1 / spec.modulus
    return Patterns(cells, shares, slots, noise, channel_of(spec, epsilons), is_open, wrapped=wrapped)


def channel_of(spec: ProfileSpec, epsilons: Sequence[Fraction]) -> Channel:
    """The channel of these layers: what their noise does to a counter."""
    assert spec.modulus is not None
    assert spec.overlap is not None
    drawn = [float(mechanism.response(spec, epsilon)) for epsilon in epsilons]
    if spec.overlap.joint:
        return JointChannel.of(drawn, spec.modulus, spec.group_count, presence=spec.overlap.presence)
    of = Channel.of_presence if spec.overlap.presence else Channel.of_layers
    return of(drawn, spec.modulus)


def _wraps(
    spec: ProfileSpec,
    names: tuple[str, ...],
    parts: Sequence[Release],
    epsilons: Sequence[Fraction],
    table: Patterns,
    begin: Floats,
) -> Wraps:
    """Laws of counts modulo p in each group, from its histogram and about its number of items."""
    assert spec.groups is not None
    assert spec.modulus is not None
    every = np.sum([mechanism.histograms(spec, part.noised) for part in parts], axis=0)
    every = every.reshape(spec.group_count, spec.levels, -1).astype(np.float64)
    kept = contraction([float(epsilon) for epsilon in epsilons], spec.modulus)
    cost = spec.epsilon_publish * spec.slots_share / 2
    noise = len(parts) * float(DiscreteLaplace(cost).variance)
    laws = []
    for at, name in enumerate(names):
        items = float(begin[(1 << (len(names) - 1 - at)) - 1])
        rows = every[spec.groups.all.index(name)]
        laws.append(law_of_counts(rows, table.slots, table.shares, kept, noise, items))
    return Wraps.of(laws, spec.modulus)
